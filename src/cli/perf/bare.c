/* SPDX-License-Identifier: BSD-3-Clause */
/* bare.c - what the machine itself does, beside which a library's figures mean something: a TCP
 * connection that both sides poll (the cache line is line.c's). Also what
 * every run between two processes needs: two cores, and a server process of our own. */
#include "cli/perf/perf.h"

#include "cli/perf/hist.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 200, TCP_TURNS = 40, GIVE_UP_NS = 1000000000 };

bool rpwi_perf_cores(int core[2])
{
	cpu_set_t set;
	int n = 0;
	core[0] = core[1] = -1;
	if (sched_getaffinity(0, sizeof(set), &set))
		return false;
	for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
		if (CPU_ISSET(i, &set))
			core[n++] = i;
	return n == 2;
}

void rpwi_perf_pin(int core)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	if (core < 0)
		return;
	CPU_SET(core, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* A child that dies with us, however we end. */
static pid_t child(int core)
{
	pid_t parent = getpid(), pid;
	fflush(NULL);
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	rpwi_perf_pin(core);
	return 0;
}

void rpwi_perf_reap(pid_t pid)
{
	for (int i = 0; i < 200 && pid > 0; i++) {
		if (waitpid(pid, NULL, WNOHANG) != 0)
			return;
		usleep(10000);
	}
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

/* ---- the polled TCP connection ---- */

static bool move(int fd, char *buf, size_t len, bool in)
{
	uint64_t since = 0;
	for (size_t done = 0; done < len;) {
		ssize_t n = in ? recv(fd, buf + done, len - done, MSG_DONTWAIT)
			       : send(fd, buf + done, len - done, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n > 0) {
			done += (size_t)n;
			continue;
		}
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			return false;
		uint64_t now = rpwi_now_ns();
		since = since ? since : now;
		if (now - since > GIVE_UP_NS)
			return false;
	}
	return true;
}

static bool tcp_pair(int fd[2])
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int one = 1, l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	fd[1] = -1;
	if (l >= 0 && fd[0] >= 0 && !bind(l, (struct sockaddr *)&a, len) && !listen(l, 1) &&
		!getsockname(l, (struct sockaddr *)&a, &len) &&
		!connect(fd[0], (struct sockaddr *)&a, len))
		fd[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	if (l >= 0)
		close(l);
	for (int i = 0; i < 2 && fd[1] >= 0; i++)
		setsockopt(fd[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd[1] >= 0;
}

static double polled_tcp(const int core[2], size_t size)
{
	char buf[4096] = {0};
	double s[ROUNDS];
	unsigned n = 0;
	int fd[2];
	bool there = tcp_pair(fd);
	pid_t pid = there ? child(core[1]) : -1;
	if (!pid) {
		close(fd[0]);
		while (move(fd[1], buf, size, true) && move(fd[1], buf, size, false))
			;
		_exit(0);
	}
	if (fd[1] >= 0)
		close(fd[1]);
	while (there && pid > 0 && n < ROUNDS) {
		uint64_t begin = rpwi_now_ns();
		for (unsigned i = 0; i < TCP_TURNS && there; i++)
			there = move(fd[0], buf, size, false) && move(fd[0], buf, size, true);
		if (there)
			s[n++] = (double)(rpwi_now_ns() - begin) / 1e9;
	}
	if (fd[0] >= 0)
		close(fd[0]);
	rpwi_perf_reap(pid);
	return rpwi_perf_median(s, n) / TCP_TURNS / 2;
}

void rpwi_perf_bare(const int core[2], struct perf_bare *out)
{
	cpu_set_t before;
	sched_getaffinity(0, sizeof(before), &before);
	rpwi_perf_pin(core[0]);
	*out = (struct perf_bare){
		.tcp_8_s = polled_tcp(core, 8), .tcp_4k_s = polled_tcp(core, 4096)};
	sched_setaffinity(0, sizeof(before), &before);
}

/* ---- a server process of our own ---- */

pid_t rpwi_perf_spawn(const char *transport, int core, unsigned *port)
{
	int ready[2];
	char text[16] = "";
	if (pipe2(ready, O_CLOEXEC))
		return -1;
	pid_t pid = child(core);
	if (!pid) {
		close(ready[0]);
		_exit(rpwi_perf_serve("127.0.0.1:0", transport, true, ready[1]));
	}
	close(ready[1]);
	ssize_t n = pid > 0 ? read(ready[0], text, sizeof(text) - 1) : -1;
	close(ready[0]);
	*port = n > 0 ? (unsigned)strtoul(text, NULL, 10) : 0;
	if (*port)
		return pid;
	rpwi_perf_reap(pid);
	return -1;
}
