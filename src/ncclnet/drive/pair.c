/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.c - see pair.h. */
#include "ncclnet/drive/pair.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ABORT = 0x61626f72, YIELDS = 2000, LOOK_AT_CLOCK = 64, TICK_MS = 50, REAP_MS = 2000 };

/* ---- a side ---- */

/* The plugin's last warning is kept for the watcher; all of them are shown where NCCL would show
 * them. Threads of the plugin call it, too. */
static char *said_by_us;
static pthread_mutex_t saying = PTHREAD_MUTEX_INITIALIZER;
static void keep_said(int level, unsigned long subsys, const char *file, int line, const char *fmt,
	...) __attribute__((format(printf, 5, 6)));
static void keep_said(
	int level, unsigned long subsys, const char *file, int line, const char *fmt, ...)
{
	const char *debug = getenv("NCCL_DEBUG");
	char text[1024];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&saying);
	if (level == NCCL_LOG_WARN && said_by_us)
		snprintf(said_by_us, PAIR_SAID, "%.*s", PAIR_SAID - 1, text);
	pthread_mutex_unlock(&saying);
	if (debug && (level <= NCCL_LOG_WARN ||
			     (strcasecmp(debug, "WARN") != 0 && strcasecmp(debug, "VERSION") != 0)))
		fprintf(stderr, "NCCL %s %s\n", level <= NCCL_LOG_WARN ? "WARN" : "INFO", text);
}

bool side_load(struct side *s, const char *path, int abi)
{
	char why[300] = "";
	int rc = SIDE_CALL(s, "dlopen", ncclnet_load(path, abi, &s->n, why, sizeof(why)));
	if (rc)
		return side_fail(s, "%s", why);
	return true;
}

nccl_logger side_logger(struct side *s)
{
	said_by_us = s->shared->said[s->role];
	return keep_said;
}

bool side_init(struct side *s, const struct ncclnet *n, void **ctx)
{
	char why[300];
	if (!side_result(s, SIDE_CALL(s, "init", ncclnet_init(n, ctx, side_logger(s))), "init"))
		return false;
	return !ncclnet_complete(n, why, sizeof(why)) || side_fail(s, "%s", why);
}

bool side_properties(struct side *s)
{
	int rc = SIDE_CALL(s, "getProperties", ncclnet_properties(s->n, s->device, &s->p));
	return side_result(s, rc, "getProperties");
}

struct side side_thread(const struct side *s, unsigned thread)
{
	struct side own = *s;
	own.watch = &s->shared->watch[s->role][thread];
	own.why = NULL;
	return own;
}

static bool other_has_gone(struct side *s)
{
	char c;
	if (s->peer < 0) {
		for (int i = 0; i < s->shared->sides; i++)
			if (atomic_load(&s->shared->gone[i]))
				return true;
		return false;
	}
	ssize_t n = recv(s->peer, &c, 1, MSG_PEEK | MSG_DONTWAIT);
	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static bool late(struct side *s, const char *what)
{
	s->waited |= !s->why;
	return side_fail(s, "%s within %u ms", what, s->timeout_ms);
}

static bool ended(struct side *s)
{
	s->waited |= !s->why;
	return side_fail(s, "the other side has ended");
}

static bool idle(struct side *s, unsigned *looks)
{
	if (++*looks % LOOK_AT_CLOCK == 0 && rpwi_now_ns() > s->until)
		return late(s, "nothing came of it");
	if (*looks % 1024 == 0 && other_has_gone(s))
		return ended(s);
	if (*looks < YIELDS)
		sched_yield();
	else
		usleep(*looks < 2 * YIELDS ? 50 : 500);
	return true;
}

bool side_give(struct side *s, const void *data, size_t len)
{
	return send(s->peer, data, len, MSG_NOSIGNAL) == (ssize_t)len || ended(s);
}

bool side_heard(struct side *s, unsigned timeout_ms)
{
	struct pollfd f = {.fd = s->peer, .events = POLLIN};
	return poll(&f, 1, (int)timeout_ms) > 0;
}

bool side_take(struct side *s, void *data, size_t len)
{
	for (;;) {
		uint64_t now = rpwi_now_ns();
		struct pollfd f = {.fd = s->peer, .events = POLLIN};
		if (now >= s->until)
			return late(s, "the other side did not come to this point");
		if (poll(&f, 1, (int)((s->until - now) / RPWI_NS_PER_MS) + 1) <= 0)
			continue;
		ssize_t n = recv(s->peer, data, len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return ended(s);
		return n == (ssize_t)len || side_fail(s, "the other side is at another point");
	}
}

bool side_meet(struct side *s)
{
	char mine = 'm', its = 0;
	return side_give(s, &mine, 1) && side_take(s, &its, 1);
}

uint32_t side_arrive(struct side *s)
{
	return atomic_fetch_add(&s->shared->meeting[s->role].arrived, 1) + 1;
}

bool side_arrived(const struct side *s, uint32_t ticket)
{
	for (int i = 0; i < s->shared->sides; i++)
		if ((int32_t)(atomic_load(&s->shared->meeting[i].arrived) - ticket) < 0)
			return false;
	return true;
}

bool side_meet_spinning(struct side *s)
{
	uint32_t mine = side_arrive(s);
	for (unsigned looks = 1; !side_arrived(s, mine); looks++) {
		if (looks % 1024)
			continue;
		sched_yield();
		if (rpwi_now_ns() > s->until || other_has_gone(s))
			return late(s, "the other side did not come to this point");
	}
	return true;
}

bool side_tell(struct side *s, const void *message, size_t len)
{
	return send(s->up, message, len, MSG_NOSIGNAL) == (ssize_t)len;
}

size_t side_asked(struct side *s, void *message, size_t room)
{
	ssize_t n;
	do
		n = recv(s->up, message, room, 0);
	while (n < 0 && errno == EINTR);
	return n > 0 ? (size_t)n : 0;
}

/* ---- a connection ---- */

bool link_offer(struct side *s, struct link *l)
{
	return link_listen(s, l) && side_give(s, l->handle, s->n->handle_bytes);
}

bool link_take(struct side *s, struct link *l)
{
	link_guard(s, l);
	return side_take(s, l->handle, s->n->handle_bytes);
}

static bool link_open(struct side *s, struct link *l, int receiver)
{
	bool accepts = s->role == receiver;
	memset(l, 0, sizeof(*l));
	l->device = &l->device_memory;
	side_step(s);
	return (accepts ? link_offer(s, l) && link_accept(s, l)
			: link_take(s, l) && link_connect(s, l)) &&
	       side_meet(s);
}

bool end_open(struct side *s, struct end *e, int receiver, size_t bytes)
{
	*e = (struct end){.sends = s->role != receiver};
	return link_open(s, &e->link, receiver) && end_memory(s, e, bytes);
}

/* ---- the watcher ---- */

static void pin(int core)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	if (core < 0)
		return;
	CPU_SET(core, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static bool idle(struct side *s, unsigned *looks);
static void run_side(
	struct pair *p, int role, int up, int peer, pair_body *body, void *arg, unsigned timeout_ms)
{
	struct side s = {.role = role,
		.peer = peer,
		.up = up,
		.timeout_ms = timeout_ms,
		.idle = idle,
		.shared = p->shared,
		.watch = &p->shared->watch[role][0]};
	/* A message to a process that was killed is an error, not our end. */
	signal(SIGPIPE, SIG_IGN);
	body(&s, arg);
	/* Without exit handlers: the plugin's may wait for what this test broke on purpose. */
	_exit(0);
}

/* `own` and `other`: the ends of the socket between two sides; -1 among more. */
static int start_side(struct pair *p, int role, int own, int other, pair_body *body, void *arg,
	unsigned timeout_ms, int core)
{
	pid_t parent = getpid();
	int up[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, up))
		return -errno;
	fflush(NULL);
	pid_t pid = fork();
	if (pid < 0) {
		int err = -errno;
		close(up[0]);
		close(up[1]);
		return err;
	}
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		close(up[0]);
		if (other >= 0)
			close(other);
		for (int i = 0; i < role; i++)
			close(p->up[i]);
		pin(core);
		run_side(p, role, up[1], own, body, arg, timeout_ms);
	}
	close(up[1]);
	p->up[role] = up[0];
	p->pid[role] = pid;
	return 0;
}

int pair_start(
	struct pair *p, int sides, pair_body *body, void *arg, unsigned timeout_ms, const int *core)
{
	int peer[2] = {-1, -1}, err = 0;
	*p = (struct pair){.sides = sides};
	for (int i = 0; i < sides; i++)
		p->pid[i] = p->up[i] = -1;
	p->shared = mmap(NULL, sizeof(*p->shared), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p->shared == MAP_FAILED) {
		p->shared = NULL;
		return -ENOMEM;
	}
	p->shared->sides = sides;
	if (sides == 2 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, peer)) {
		err = -errno;
		pair_end(p);
		return err;
	}
	for (int i = 0; i < sides && !err; i++)
		err = start_side(p, i, sides == 2 ? peer[i] : -1, sides == 2 ? peer[1 - i] : -1,
			body, arg, timeout_ms, core ? core[i] : -1);
	for (int i = 0; i < 2; i++)
		if (peer[i] >= 0)
			close(peer[i]);
	if (err)
		pair_end(p);
	return err;
}

void pair_end(struct pair *p)
{
	for (int i = 0; i < p->sides; i++) {
		if (p->up[i] >= 0)
			close(p->up[i]);
		p->up[i] = -1;
		if (p->pid[i] > 0 && !p->gone[i]) {
			kill(p->pid[i], SIGKILL);
			waitpid(p->pid[i], &p->status[i], 0);
		}
		p->pid[i] = -1;
	}
	if (p->shared)
		munmap(p->shared, sizeof(*p->shared));
	p->shared = NULL;
}

int pair_ask(struct pair *p, int role, const void *message, size_t len)
{
	return send(p->up[role], message, len, MSG_NOSIGNAL) == (ssize_t)len ? 0 : -EPIPE;
}

/* Its socket is closed: it ends at once, or it is made to. */
static int gone(struct pair *p, int role)
{
	atomic_store(&p->shared->gone[role], true);
	for (int i = 0; i < REAP_MS / 10; i++) {
		if (waitpid(p->pid[role], &p->status[role], WNOHANG) == p->pid[role]) {
			p->gone[role] = true;
			return -EPIPE;
		}
		usleep(10000);
	}
	kill(p->pid[role], SIGKILL);
	waitpid(p->pid[role], &p->status[role], 0);
	p->gone[role] = true;
	return -EPIPE;
}

static uint64_t calls_made(const struct pair *p, int role)
{
	uint64_t n = 0;
	for (unsigned i = 0; i < PAIR_THREADS; i++)
		n += atomic_load(&p->shared->watch[role][i].count);
	return n;
}

const char *pair_call(const struct pair *p, int role)
{
	for (unsigned i = 0; i < PAIR_THREADS; i++) {
		const char *call = atomic_load(&p->shared->watch[role][i].call);
		if (call)
			return call;
	}
	return NULL;
}

/* Where the same call lasts: a poller makes many, and a side that waits for others is in none. */
struct lasting {
	uint64_t made, since;
};
static bool is_stuck(const struct pair *p, int role, struct lasting *l, unsigned stuck_ms)
{
	uint64_t n = calls_made(p, role), now = rpwi_now_ns();
	if (n == l->made && pair_call(p, role))
		return now - l->since > stuck_ms * RPWI_NS_PER_MS;
	*l = (struct lasting){n, now};
	return false;
}

int pair_answer(struct pair *p, int *role, void *message, size_t room, unsigned timeout_ms,
	unsigned stuck_ms)
{
	uint64_t begin = rpwi_now_ns();
	struct lasting last[PAIR_SIDES_MAX];
	for (int i = 0; i < p->sides; i++)
		last[i] = (struct lasting){calls_made(p, i), begin};
	for (uint64_t now = begin; now - begin <= timeout_ms * RPWI_NS_PER_MS;
		now = rpwi_now_ns()) {
		struct pollfd f[PAIR_SIDES_MAX];
		for (int i = 0; i < p->sides; i++)
			f[i] = (struct pollfd){.fd = p->gone[i] ? -1 : p->up[i], .events = POLLIN};
		if (poll(f, (nfds_t)p->sides, (int)RPWI_MIN((unsigned)TICK_MS, timeout_ms)) < 0 &&
			errno != EINTR)
			return -errno;
		for (int i = 0; i < p->sides; i++) {
			if (!f[i].revents)
				continue;
			*role = i;
			ssize_t n = recv(p->up[i], message, room, MSG_DONTWAIT);
			return n > 0 ? (int)n : gone(p, i);
		}
		for (int i = 0; i < p->sides; i++)
			if (is_stuck(p, i, &last[i], stuck_ms)) {
				*role = i;
				return -ETIMEDOUT;
			}
	}
	return 0;
}
