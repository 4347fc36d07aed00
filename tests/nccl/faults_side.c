/* SPDX-License-Identifier: BSD-3-Clause */
/* faults_side.c - see faults_side.h. Nobody spins here: two processes and a plugin's threads share
 * two cores with whatever else runs. */
#include "faults_side.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/descriptors.h"
#include "lib/pattern.h"

enum { PAUSE_US = 200, TAG = 5 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[8192];

void warned_reset(void)
{
	pthread_mutex_lock(&lock);
	*lines = 0;
	pthread_mutex_unlock(&lock);
}

const char *warned(void)
{
	static char copy[sizeof(lines)];
	pthread_mutex_lock(&lock);
	memcpy(copy, lines, sizeof(copy));
	pthread_mutex_unlock(&lock);
	return copy;
}

static void log_line(int level, unsigned long subsys, const char *file, int line, const char *fmt,
	...) __attribute__((format(printf, 5, 6)));
static void log_line(
	int level, unsigned long subsys, const char *file, int line, const char *fmt, ...)
{
	va_list ap;
	if (level != NCCL_LOG_WARN)
		return;
	va_start(ap, fmt);
	pthread_mutex_lock(&lock);
	size_t n = strlen(lines);
	vsnprintf(lines + n, sizeof(lines) - n, fmt, ap);
	n = strlen(lines);
	snprintf(lines + n, sizeof(lines) - n, "\n");
	pthread_mutex_unlock(&lock);
	va_end(ap);
}

uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- a side ---- */

int side_open(struct side *s, const char *plugin)
{
	char why[512];
	memset(s, 0, sizeof(*s));
	if (ncclnet_load(plugin, 0, &s->net, why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		return NCCL_INTERNAL_ERROR;
	}
	for (unsigned i = 0; i < FLIGHTS; i++)
		if (!(s->flight[i].buf = malloc(BYTES_MAX)))
			return NCCL_SYSTEM_ERROR;
	return ncclnet_init(s->net, &s->ctx, log_line);
}

int side_listen(struct side *s)
{
	return ncclnet_listen(s->net, s->ctx, 0, s->handle, &s->listener);
}

int side_close_listen(struct side *s)
{
	void *l = s->listener;
	s->listener = NULL;
	return ncclnet_close_listen(s->net, l);
}

static int registered(struct side *s, bool receives)
{
	int rc = NCCL_SUCCESS;
	s->receives = receives;
	s->posted = s->ended = s->good = 0;
	for (unsigned i = 0; i < FLIGHTS && !rc; i++)
		rc = ncclnet_reg(s->net, s->comm, s->flight[i].buf, BYTES_MAX, NCCL_PTR_HOST,
			&s->flight[i].mhandle);
	return rc;
}

int side_connect(struct side *s, const uint8_t *handle, unsigned calls, unsigned timeout_ms)
{
	uint64_t until = now_ms() + timeout_ms;
	unsigned made = 0;
	if (handle != s->handle)
		memcpy(s->handle, handle, sizeof(s->handle));
	do {
		int rc = ncclnet_connect(s->net, s->ctx, 0, s->handle, &s->comm, NULL);
		if (rc || s->comm)
			return rc ? rc : registered(s, false);
		usleep(PAUSE_US);
	} while (++made != calls && now_ms() < until);
	return STILL_WAITS;
}

int side_accept(struct side *s, unsigned timeout_ms)
{
	uint64_t until = now_ms() + timeout_ms;
	do {
		int rc = ncclnet_accept(s->net, s->listener, &s->comm, NULL);
		if (rc || s->comm)
			return rc ? rc : registered(s, true);
		usleep(PAUSE_US);
	} while (now_ms() < until);
	return STILL_WAITS;
}

static void fill(const struct flight *f) { pattern_fill(f->buf, f->size, f->seq); }
static bool holds(const struct flight *f) { return pattern_holds(f->buf, f->size, f->seq); }

static int post(struct side *s, size_t size)
{
	struct flight *f = &s->flight[s->posted % FLIGHTS];
	void *data = f->buf;
	int rc;
	*f = (struct flight){.mhandle = f->mhandle,
		.buf = f->buf,
		.size = size,
		.seq = s->posted,
		.receives = s->receives};
	if (s->receives) {
		memset(f->buf, 0x5a, size);
		rc = ncclnet_irecv(
			s->net, s->comm, 1, &data, &size, &(int){TAG}, &f->mhandle, &f->request);
	} else {
		fill(f);
		rc = ncclnet_isend(s->net, s->comm, data, size, TAG, f->mhandle, &f->request);
	}
	if (!rc && !f->request)
		return STILL_WAITS;
	s->posted += !rc;
	return rc;
}

int side_post(struct side *s, unsigned n, size_t size)
{
	for (unsigned i = 0; i < n; i++) {
		int rc = post(s, size);
		if (rc)
			return rc;
	}
	return NCCL_SUCCESS;
}

/* The oldest: STILL_WAITS, or how it ended. */
static int test_one(struct side *s)
{
	struct flight *f = &s->flight[s->ended % FLIGHTS];
	int done = 0, sizes[NCCL_NET_GROUP_MAX] = {0};
	int rc = ncclnet_test(s->net, f->request, &done, sizes);
	if (!rc && !done)
		return STILL_WAITS;
	s->ended++;
	if (!rc && f->receives && (sizes[0] != (int)f->size || !holds(f)))
		return WRONG_DATA;
	s->good += !rc;
	return rc;
}

int side_wait(struct side *s, unsigned timeout_ms)
{
	uint64_t until = now_ms() + timeout_ms;
	int first = NCCL_SUCCESS;
	while (s->ended < s->posted) {
		int rc = test_one(s);
		if (rc == STILL_WAITS && now_ms() >= until)
			return rc;
		if (rc == STILL_WAITS)
			usleep(PAUSE_US);
		else
			first = first ? first : rc;
	}
	return first;
}

int side_stream(struct side *s, uint64_t n, size_t size)
{
	uint64_t until = now_ms() + PATIENCE_MS;
	while (s->ended < n && now_ms() < until) {
		int rc = s->posted < n && s->posted - s->ended < FLIGHTS ? post(s, size)
									 : STILL_WAITS;
		if (rc && rc != STILL_WAITS)
			return rc;
		rc = s->ended < s->posted ? test_one(s) : STILL_WAITS;
		if (rc && rc != STILL_WAITS)
			return rc;
		if (rc)
			usleep(PAUSE_US);
	}
	return s->ended < n ? STILL_WAITS : NCCL_SUCCESS;
}

int side_close(struct side *s)
{
	void *c = s->comm;
	s->comm = NULL;
	if (!c)
		return NCCL_SUCCESS;
	for (unsigned i = 0; i < FLIGHTS && s->ended == s->posted; i++)
		ncclnet_dereg(s->net, c, s->flight[i].mhandle);
	return s->receives ? ncclnet_close_recv(s->net, c) : ncclnet_close_send(s->net, c);
}

/* ---- a process ---- */

static int obey(struct side *s, const struct order *o)
{
	switch (o->op) {
	case LISTEN:
		return side_listen(s);
	case CLOSE_LISTEN:
		return side_close_listen(s);
	case CONNECT:
		return side_connect(s, o->handle, o->n, o->timeout_ms);
	case ACCEPT:
		return side_accept(s, o->timeout_ms);
	case POST:
		return side_post(s, o->n, o->size);
	case WAIT:
		return side_wait(s, o->timeout_ms);
	case STREAM:
		return side_stream(s, o->n, o->size);
	case CLOSE:
		return side_close(s);
	default:
		return NCCL_INVALID_USAGE;
	}
}

int peer_main(int fd, const char *plugin)
{
	struct side s;
	struct order o;
	struct answer a = {.rc = side_open(&s, plugin)};
	do {
		a.good = s.good;
		a.descriptors = open_descriptors();
		memcpy(a.handle, s.handle, sizeof(a.handle));
		snprintf(a.warned, sizeof(a.warned), "%s", warned());
		if (send(fd, &a, sizeof(a), MSG_NOSIGNAL) != sizeof(a) ||
			recv(fd, &o, sizeof(o), 0) != sizeof(o))
			break;
		warned_reset();
		a.rc = obey(&s, &o);
	} while (true);
	for (unsigned i = 0; i < FLIGHTS; i++)
		free(s.flight[i].buf);
	ncclnet_unload(s.net);
	return 0;
}

void peer_start(struct peer *p, const char *plugin)
{
	struct answer a;
	char number[16];
	int fd[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd))
		abort();
	snprintf(number, sizeof(number), "%d", fd[1]);
	p->fd = fd[0];
	p->pid = fork();
	if (!p->pid) { /* other threads were left behind: nothing but system calls until exec */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		int kept = dup(fd[1]);
		dup2(kept, fd[1]); /* without close-on-exec */
		close(kept);
		execl("/proc/self/exe", "faults_peer", "peer", number, plugin, (char *)NULL);
		_exit(127);
	}
	close(fd[1]);
	if (p->pid < 0 || !peer_hear(p, &a) || a.rc)
		abort();
}

void peer_tell(const struct peer *p, struct order o)
{
	if (send(p->fd, &o, sizeof(o), MSG_NOSIGNAL) != sizeof(o))
		abort();
}

bool peer_hear(const struct peer *p, struct answer *a)
{
	struct pollfd ready = {.fd = p->fd, .events = POLLIN};
	return poll(&ready, 1, 2 * PATIENCE_MS) == 1 && recv(p->fd, a, sizeof(*a), 0) == sizeof(*a);
}

void peer_signal(const struct peer *p, int signal)
{
	if (p->pid > 0)
		kill(p->pid, signal);
}

void peer_kill(struct peer *p)
{
	peer_signal(p, SIGKILL);
	if (p->pid > 0)
		waitpid(p->pid, NULL, 0);
	if (p->fd >= 0)
		close(p->fd);
	*p = (struct peer){.fd = -1};
}
