/* SPDX-License-Identifier: BSD-3-Clause */
/* faults.c - harm done to a process from outside. Its sockets are reached by pidfd_getfd: a copy of
 * the descriptor is the same socket, so what is done to it happens in the middle of whatever its
 * owner does. connect() to AF_UNSPEC disconnects a TCP socket with a RST to the peer, and the owner
 * finds ECONNRESET. */
#include "soak.h"

#include <dirent.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FOUND_MAX = 256 };

static int option(int fd, int name)
{
	int v = -1;
	socklen_t n = sizeof(v);
	return getsockopt(fd, SOL_SOCKET, name, &v, &n) ? -1 : v;
}

static int port_of(int fd, int (*name)(int, struct sockaddr *, socklen_t *))
{
	struct sockaddr_in6 a = {0};
	socklen_t n = sizeof(a);
	/* at the same place in both families */
	return name(fd, (struct sockaddr *)&a, &n) ? -1 : ntohs(a.sin6_port);
}

/* Copies of the sockets of a process for which `want` is true. */
static unsigned sockets(int pid, bool (*want)(int fd, const void *arg), const void *arg, int *found)
{
	char path[64], link[64];
	unsigned n = 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	int process = (int)syscall(SYS_pidfd_open, pid, 0);
	DIR *d = process < 0 ? NULL : opendir(path);
	for (struct dirent *e; d && n < FOUND_MAX && (e = readdir(d));) {
		char name[400];
		snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		ssize_t len = readlink(name, link, sizeof(link) - 1);
		if (len < 7 || memcmp(link, "socket:", 7))
			continue;
		int fd = (int)syscall(SYS_pidfd_getfd, process, atoi(e->d_name), 0);
		if (fd >= 0 && want(fd, arg))
			found[n++] = fd;
		else if (fd >= 0)
			close(fd);
		else if (errno == EPERM) {
			fprintf(stderr, "SKIPPED: pidfd_getfd is not permitted here: no connection "
					"can be reset\n");
			exit(77);
		}
	}
	if (d)
		closedir(d);
	if (process >= 0)
		close(process);
	return n;
}

struct wanted {
	const int *ports;
	unsigned n;
	bool control;
};
static bool is_wanted(int fd, const void *arg)
{
	const struct wanted *w = arg;
	int local = port_of(fd, getsockname), remote = port_of(fd, getpeername);
	if (option(fd, SO_PROTOCOL) != IPPROTO_TCP || option(fd, SO_ACCEPTCONN) || remote <= 0)
		return false;
	bool to = false, from = false;
	for (unsigned i = 0; i < w->n; i++) {
		to |= remote == w->ports[i];
		from |= local == w->ports[i];
	}
	return w->control ? to : !to && !from;
}
static bool is_udp(int fd, const void *arg) { return option(fd, SO_PROTOCOL) == IPPROTO_UDP; }

int fault_find(int pid, const int *ports, unsigned n, bool control, uint64_t random, unsigned *to)
{
	int found[FOUND_MAX];
	struct wanted w = {ports, n, control};
	unsigned have = sockets(pid, is_wanted, &w, found),
		 k = have ? (unsigned)(random % have) : 0;
	for (unsigned i = 0; i < have; i++)
		if (i != k)
			close(found[i]);
	for (unsigned i = 0; have && i < n; i++)
		if (port_of(found[k], getpeername) == ports[i])
			*to = i;
	return have ? found[k] : -1;
}

void fault_cut(int fd, uint64_t random)
{
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	if (random % 4)
		connect(fd, &none, sizeof(none));
	else
		shutdown(fd, random % 8 ? SHUT_RDWR : SHUT_WR);
	close(fd);
}

void fault_blackout(int pid, bool on)
{
	struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog program = {1, &nothing};
	int found[FOUND_MAX];
	for (unsigned i = sockets(pid, is_udp, NULL, found); i; i--) {
		setsockopt(found[i - 1], SOL_SOCKET, on ? SO_ATTACH_FILTER : SO_DETACH_FILTER,
			&program, sizeof(program));
		close(found[i - 1]);
	}
}

void fault_no_vm(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		fprintf(stderr, "SKIPPED: no system call can be forbidden here\n");
		exit(77);
	}
}
