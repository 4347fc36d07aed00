/* SPDX-License-Identifier: BSD-3-Clause */
#include "pair.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

void pair_facts(struct tran_facts *f)
{
	memset(f, 0, sizeof *f);
	memcpy(f->host_id, "the same host...", 16);
	f->pid = (uint32_t)getpid();
	f->uid = (uint32_t)getuid();
	snprintf(f->hostname, sizeof f->hostname, "testhost");
	const char *plugin = getenv("TRAN_PLUGIN"); /* what ncclnet is to host */
	snprintf(f->plugin, sizeof f->plugin, "%s", plugin ? plugin : "");
	for (size_t i = 0; tran_all[i]; i++)
		snprintf(f->transports + strlen(f->transports),
			sizeof f->transports - strlen(f->transports), "%s%s", i ? "," : "",
			tran_all[i]->name);
}

const uint8_t *pair_secret(void)
{
	static const uint8_t secret[TRAN_SECRET_LEN] = {0x5e, 0xc4, 0x37, 0x11, 0x90, 0x2b, 0x6d,
		0xfe, 0x08, 0xa3, 0x7c, 0x55, 0x1e, 0x42, 0x99, 0xd0};
	return getenv("TRAN_SEALED") ? secret : NULL;
}

int pair_fork(struct side *s, const struct tran_ops *ops)
{
	int fds[2];
	memset(s, 0, sizeof *s);
	s->ops = ops;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
		return -1;
	fflush(NULL);
	pid_t pid = fork();
	if (pid < 0)
		return -1;
	s->which = pid ? 0 : 1;
	s->child = pid;
	s->talk = fds[s->which];
	close(fds[!s->which]);
	return 0;
}

static void up_ready(void *user, const struct rpwi_error *err)
{
	int status = err ? err->status : 0;
	const char *why = err ? err->text : "";
	struct end *e = user;
	e->is_ready = true;
	e->status = status;
	snprintf(e->why, sizeof e->why, "%s", why ? why : "");
}

static bool up_frame(
	void *user, const void *head, size_t head_len, const void *body, size_t body_len)
{
	struct end *e = user;
	e->frames++;
	if (e->frame)
		e->frame(e, head, head_len, body, body_len);
	return e->frames % 5 != 0; /* what is behind it may be left for the next round */
}

static void *up_place(void *user, const void *head, size_t head_len, size_t body_len)
{
	struct end *e = user;
	return e->place ? e->place(e, head, head_len, body_len) : NULL;
}

static void up_room(void *user)
{
	struct end *e = user;
	e->has_room = true;
	e->rooms++;
}

static void up_done(void *user, void *cookie, const struct rpwi_error *err)
{
	int status = err ? err->status : 0;
	struct end *e = user;
	e->dones++;
	if (e->done)
		e->done(e, cookie, status);
}

static void up_failed(void *user, const struct rpwi_error *err)
{
	int status = err ? err->status : 0;
	const char *why = err ? err->text : "";
	struct end *e = user;
	e->is_failed = true;
	e->status = status;
	snprintf(e->why, sizeof e->why, "%s", why ? why : "");
}

static const struct tran_up the_up = {
	up_ready, up_frame, up_place, up_room, up_done, up_failed, NULL};

int pair_open(struct side *s)
{
	size_t len;
	pair_facts(&s->facts);
	s->facts.polled = getenv("TRAN_POLLED") != NULL;
	int rc = s->ops->open(&the_up, &s->facts, &s->t);
	if (rc)
		return rc;
	if (!pair_say(s, &s->facts, sizeof s->facts) ||
		!pair_hear(s, &s->peer_facts, sizeof s->peer_facts, &len))
		return -EPIPE;
	/* as boot sees the peer */
	snprintf(s->peer_facts.address, sizeof s->peer_facts.address, "127.0.0.1");
	return 0;
}

void pair_close(struct side *s)
{
	if (s->t)
		s->ops->close(s->t);
	s->t = NULL;
	close(s->talk);
}

bool pair_say(struct side *s, const void *data, size_t len)
{
	return send(s->talk, data, len, MSG_NOSIGNAL) == (ssize_t)len;
}

bool pair_hear(struct side *s, void *data, size_t room, size_t *len)
{
	uint64_t end = rpwi_now_ns() + PAIR_DEADLINE_MS * RPWI_NS_PER_MS;
	while (rpwi_now_ns() < end) {
		ssize_t got = recv(s->talk, data, room, MSG_DONTWAIT);
		if (got >= 0) {
			*len = (size_t)got;
			return got > 0;
		}
		if (errno != EAGAIN && errno != EINTR)
			return false;
		if (!s->t || !s->ops->progress(s->t))
			usleep(100);
	}
	return false;
}

bool pair_sync(struct side *s)
{
	char c = 's';
	size_t len;
	return pair_say(s, &c, 1) && pair_hear(s, &c, 1, &len);
}

bool pair_until(struct side *s, const bool *flag)
{
	uint64_t end = rpwi_now_ns() + PAIR_DEADLINE_MS * RPWI_NS_PER_MS;
	for (unsigned idle = 0; !*flag;) {
		idle = s->ops->progress(s->t) ? 0 : idle + 1;
		if (idle > 1000) { /* two cores, many processes */
			sched_yield();
			if (rpwi_now_ns() > end)
				return false;
		}
	}
	return true;
}

bool pair_until_count(struct side *s, const uint64_t *count, uint64_t at_least)
{
	uint64_t end = rpwi_now_ns() + PAIR_DEADLINE_MS * RPWI_NS_PER_MS;
	for (unsigned idle = 0; *count < at_least;) {
		idle = s->ops->progress(s->t) ? 0 : idle + 1;
		if (idle > 1000) {
			sched_yield();
			if (rpwi_now_ns() > end)
				return false;
		}
	}
	return true;
}

bool pair_connect(struct side *s, struct end *e)
{
	uint8_t handle[TRAN_HANDLE_MAX], theirs[TRAN_HANDLE_MAX];
	size_t len = 0, their_len = 0;
	e->side = s;
	if (s->ops->ep_make(s->t,
		    &(struct tran_control){.peer = &s->peer_facts,
			    .active = s->which == 0,
			    .secret = pair_secret()},
		    e, &e->ep, handle, &len))
		return false;
	if (!pair_say(s, handle, len) || !pair_hear(s, theirs, sizeof theirs, &their_len))
		return false;
	return !s->ops->ep_start(e->ep, theirs, their_len, PAIR_DEADLINE_MS) &&
	       pair_until(s, &e->is_ready) && e->status == RPW_OK;
}

bool pair_send(struct end *e, const void *head, size_t head_len, const void *body, size_t body_len)
{
	struct iovec iov = {(void *)body, body_len};
	for (;;) {
		e->has_room = false;
		int rc = e->side->ops->send(e->ep, head, head_len, &iov, 1, body_len);
		if (!rc)
			return true;
		if (rc != RPWI_LATER || !pair_until(e->side, &e->has_room))
			return false;
	}
}

bool pair_sleep(struct side *s, int ms)
{
	int fd = -1;
	uint64_t now_ns = rpwi_now_ns(), end = now_ns + (uint64_t)ms * RPWI_NS_PER_MS,
		 deadline = end;
	if (s->ops->arm(s->t, &fd, &deadline))
		return true;
	struct pollfd p = {fd, POLLIN, 0};
	struct timespec ts = {
		.tv_nsec = deadline > now_ns ? (long)((deadline - now_ns) % RPWI_NS_PER_S) : 0,
		.tv_sec = deadline > now_ns ? (time_t)((deadline - now_ns) / RPWI_NS_PER_S) : 0};
	return ppoll(&p, 1, &ts, NULL) > 0 || deadline < end;
}

int pair_memory(struct side *s, struct tran *t, size_t len, unsigned access, struct tran_mem **out)
{
	if (s->ops->mem->alloc)
		return s->ops->mem->alloc(t, len, access, out);
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? -ENOMEM : s->ops->mem->add(t, p, len, access, out);
}

void pair_memory_free(struct side *s, struct tran *t, struct tran_mem *m)
{
	void *p = m->addr;
	size_t len = m->len;
	s->ops->mem->del(t, m);
	if (!s->ops->mem->alloc)
		munmap(p, len);
}
