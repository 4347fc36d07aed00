/* SPDX-License-Identifier: BSD-3-Clause */
/* conformance_ends.c - beginnings and ends of one endpoint; sleeping. */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

/* Handles that are no handles: ep_start says so, or ready does, within its time; never ready with
 * 0. */
static void case_garbage(struct side *s)
{
	uint8_t handle[TRAN_HANDLE_MAX], theirs[TRAN_HANDLE_MAX], bad[TRAN_HANDLE_MAX];
	size_t len = 0, their_len = 0;
	struct end good = {.side = s};
	REQUIRE(!s->ops->ep_make(s->t,
		&(struct tran_control){
			.peer = &s->peer_facts, .active = s->which == 0, .secret = pair_secret()},
		&good, &good.ep, handle, &len));
	REQUIRE(len > 0 && len <= sizeof handle && pair_say(s, handle, len) &&
		pair_hear(s, theirs, sizeof theirs, &their_len));
	for (int i = 0; i < 40; i++) {
		struct end e = {.side = s};
		size_t n = their_len;
		memcpy(bad, theirs, sizeof bad);
		if (i == 0)
			n = 0;
		else if (i == 1)
			n = their_len - 1;
		else if (i == 2)
			memset(bad, 0, n = 64);
		else if (i == 3)
			memset(bad, 0xff, n = sizeof bad);
		else if (i == 4)
			pattern_fill(bad, n, 1);
		else /* a byte of it, anywhere */
			bad[(size_t)i * 7919 % their_len] ^= (uint8_t)(1 + i * 37);
		REQUIRE(!s->ops->ep_make(s->t,
			&(struct tran_control){.peer = &s->peer_facts,
				.active = s->which == 0,
				.secret = pair_secret()},
			&e, &e.ep, handle, &len));
		int rc = s->ops->ep_start(e.ep, bad, n, 60);
		if (!rc) {
			REQUIRE(pair_until(s, &e.is_ready),
				"garbage %d: ep_start said 0, ready never came", i);
			REQUIRE(e.status < 0, "garbage %d was accepted", i);
		}
		s->ops->ep_close(e.ep);
	}
	REQUIRE(pair_sync(s));
	/* After all that the good one still comes up. */
	REQUIRE(!s->ops->ep_start(good.ep, theirs, their_len, PAIR_DEADLINE_MS) &&
			pair_until(s, &good.is_ready) && good.status == 0,
		"%s", good.why);
	REQUIRE(pair_sync(s));
	s->ops->ep_close(good.ep);
}

/* A peer that made an endpoint and never starts it: ready comes with an error, in time. */
static void case_never_started(struct side *s)
{
	uint8_t handle[TRAN_HANDLE_MAX], theirs[TRAN_HANDLE_MAX];
	size_t len, their_len;
	struct end e = {.side = s};
	REQUIRE(!s->ops->ep_make(s->t,
		&(struct tran_control){
			.peer = &s->peer_facts, .active = s->which == 0, .secret = pair_secret()},
		&e, &e.ep, handle, &len));
	REQUIRE(pair_say(s, handle, len) && pair_hear(s, theirs, sizeof theirs, &their_len));
	if (s->which == 0) {
		uint64_t began = rpwi_now_ns();
		REQUIRE(!s->ops->ep_start(e.ep, theirs, their_len, 200));
		REQUIRE(pair_until(s, &e.is_ready) && e.status < 0);
		REQUIRE(rpwi_now_ns() - began < 10 * RPWI_NS_PER_S);
	}
	REQUIRE(pair_sync(s));
	s->ops->ep_close(e.ep);
}

void handles_swap(struct side *s, struct end *e, uint8_t *theirs, size_t *their_len)
{
	uint8_t handle[TRAN_HANDLE_MAX];
	size_t len;
	e->side = s;
	REQUIRE(!s->ops->ep_make(s->t,
		&(struct tran_control){
			.peer = &s->peer_facts, .active = s->which == 0, .secret = pair_secret()},
		e, &e->ep, handle, &len));
	REQUIRE(pair_say(s, handle, len) && pair_hear(s, theirs, TRAN_HANDLE_MAX, their_len));
}

/* The sides start at different times, or one closes instead: both orders, over a path that is there
 * already and over none. */
static void case_late(struct side *s)
{
	uint8_t theirs[TRAN_HANDLE_MAX];
	size_t len;
	for (int round = 0; round < 8; round++) {
		struct end e = {.frame = stream_frame};
		struct stream st = {.seed = 0};
		bool early = s->which == round % 2;
		e.arg = &st;
		handles_swap(s, &e, theirs, &len);
		/* where nobody says that the other has gone, time says it */
		if (round < 6 && early)
			REQUIRE(!s->ops->ep_start(e.ep, theirs, len, round < 4 ? 5000 : 1000));
		uint64_t end = rpwi_now_ns() + 30 * RPWI_NS_PER_MS;
		while (rpwi_now_ns() < end)
			s->ops->progress(s->t);
		if (round < 4) {
			REQUIRE(!e.is_ready, "ready before the other side has started");
			REQUIRE(pair_sync(s));
			if (!early)
				REQUIRE(!s->ops->ep_start(e.ep, theirs, len, 5000));
			REQUIRE(pair_until(s, &e.is_ready) && !e.status, "round %d: %s", round,
				e.why);
			for (uint64_t i = 0; i < 50; i++)
				stream_send(&e, 0, i);
			REQUIRE(pair_until_count(s, &e.frames, 50));
		} else if (early) {
			/* the other closes, and never starts (4, 5), or before we do (6, 7) */
			REQUIRE(pair_sync(s));
			if (round >= 6) {
				int rc = s->ops->ep_start(e.ep, theirs, len, 300);
				REQUIRE(rc || pair_until(s, &e.is_ready));
				e.status = rc ? rc : e.status;
			} else {
				REQUIRE(pair_until(s, &e.is_ready));
			}
			REQUIRE(e.status < 0, "round %d: ready, and nobody is there", round);
		} else {
			s->ops->ep_close(e.ep);
			e.ep = NULL;
			REQUIRE(pair_sync(s));
		}
		REQUIRE(pair_sync(s));
		if (e.ep)
			s->ops->ep_close(e.ep);
		REQUIRE(pair_sync(s));
	}
}

static void count_only(
	struct end *e, const uint8_t *head, size_t head_len, const uint8_t *body, size_t body_len)
{
}

/* One side closes with transfers under way: the other is told, once, and no byte of the closed
 * one's buffers changes after. */
static void case_close(struct side *s)
{
	enum { LEN = 16 << 20, ROUNDS = 10 };
	uint8_t *buf = malloc(LEN), *region = malloc(LEN);
	struct tran_mem *m;
	struct tran_desc d;
	size_t len;
	pattern_fill(region, LEN, 5);
	REQUIRE(!s->ops->mem->add(s->t, region, LEN, TRAN_READ | TRAN_WRITE, &m));
	REQUIRE(pair_say(s, &m->desc, sizeof m->desc) && pair_hear(s, &d, sizeof d, &len));
	for (int round = 0; round < ROUNDS; round++) {
		struct end e = {.frame = count_only}, other = {.frame = count_only};
		struct result r[4] = {0};
		REQUIRE(pair_connect(s, &e) && pair_connect(s, &other), "round %d: %s %s", round,
			e.why, other.why);
		if (s->which == round % 2) {
			for (int i = 0; i < 4; i++)
				REQUIRE(!s->ops->rma->transfer(e.ep, i % 2, &d,
					(uint64_t)i * (LEN / 4), buf + i * (LEN / 4), LEN / 4, NULL,
					&r[i]));
			REQUIRE(!s->ops->send(e.ep, "last", 4, NULL, 0, 0));
			for (int i = 0; i < round; i++)
				s->ops->progress(s->t);
			s->ops->ep_close(e.ep);
			memset(buf, round + 1, LEN);
			for (int i = 0; i < 200; i++) {
				s->ops->progress(s->t);
				usleep(20);
			}
			for (size_t i = 0; i < LEN; i++)
				REQUIRE(buf[i] == (uint8_t)(round + 1),
					"byte %zu changed after ep_close", i);
		} else {
			REQUIRE(pair_until(s, &e.is_failed), "round %d: the end was not told",
				round);
			REQUIRE(e.frames == 1, "what was sent before the end must come before it");
			REQUIRE(e.status < 0 && s->ops->send(e.ep, "x", 1, NULL, 0, 0) < 0);
			s->ops->ep_close(e.ep);
		}
		/* The other endpoint between the two is as it was. */
		REQUIRE(pair_send(&other, "still", 5, "here", 4));
		REQUIRE(pair_until_count(s, &other.frames, 1) && !other.is_failed);
		REQUIRE(pair_sync(s));
		s->ops->ep_close(other.ep);
	}
	s->ops->mem->del(s->t, m);
	free(buf);
	free(region);
}

/* A call that fails has made its error the last one, with a sentence (base/error.h). */
#define IS_THE_LAST_ERROR(call) \
	do { \
		rpwi_fail(RPW_ERR_SYSTEM, "an older one"); \
		int rc_ = (call); \
		const struct rpwi_error *last_ = rpwi_last_error(); \
		REQUIRE(rc_ < 0 && rc_ == last_->status && *last_->text && \
				strcmp(last_->text, "an older one") != 0, \
			#call ": %d, the last error is %d: %s", rc_, last_->status, last_->text); \
	} while (0)
static void case_errors(struct side *s)
{
	static uint8_t word[8];
	struct end e = {.frame = count_only};
	struct tran_mem *m;
	struct tran_desc d;
	struct result r = {0};
	size_t len;
	REQUIRE(!s->ops->mem->add(
		s->t, word, sizeof word, TRAN_READ | TRAN_WRITE | TRAN_ATOMIC, &m));
	REQUIRE(pair_say(s, &m->desc, sizeof m->desc) && pair_hear(s, &d, sizeof d, &len));
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	size_t most = RPWI_MAX(e.ep->limits.frame_max, e.ep->limits.placed_max);
	uint8_t *body = calloc(1, most + 1);
	struct iovec iov = {body, most + 1};
	IS_THE_LAST_ERROR(s->ops->send(e.ep, body, TRAN_HEAD_MAX + 1, NULL, 0, 0));
	IS_THE_LAST_ERROR(s->ops->send(e.ep, "head", 4, &iov, 1, most + 1));
	IS_THE_LAST_ERROR(s->ops->ep_start(e.ep, body, 8, 1000));
	REQUIRE(pair_send(&e, "still", 5, "here", 4) && pair_until_count(s, &e.frames, 1));
	REQUIRE(pair_sync(s));
	if (s->which) {
		REQUIRE(pair_until(s, &e.is_failed), "the end was not told");
		REQUIRE(e.status < 0 && e.why[0], "%d: \"%s\"", e.status, e.why);
		const struct tran_rma_ops *rma_ops = s->ops->rma;
		IS_THE_LAST_ERROR(s->ops->send(e.ep, "x", 1, NULL, 0, 0));
		IS_THE_LAST_ERROR(rma_ops->transfer(e.ep, true, &d, 0, body, 8, NULL, &r));
		IS_THE_LAST_ERROR(rma_ops->atomic(
			e.ep, TRAN_FETCH_ADD, &d, 0, 1, 0, (uint64_t *)(void *)body, &r));
		IS_THE_LAST_ERROR(rma_ops->flush(e.ep, &r));
		REQUIRE(!r.done, "told, and refused");
	}
	s->ops->ep_close(e.ep);
	REQUIRE(pair_sync(s));
	s->ops->mem->del(s->t, m);
	free(body);
}

/* Closed while nothing more fits: the other gets a beginning of what was sent, in order, and then
 * the end. */
static void case_close_full(struct side *s)
{
	for (int round = 0; round < 3; round++) {
		struct end e[4];
		struct stream st[4];
		for (int i = 0; i < 4; i++) {
			st[i] = (struct stream){.seed = 0};
			e[i] = (struct end){.frame = stream_frame, .arg = &st[i]};
			REQUIRE(pair_connect(s, &e[i]), "%s", e[i].why);
		}
		REQUIRE(pair_sync(s));
		if (s->which == 0) {
			static uint8_t head[TRAN_HEAD_MAX], body[BODY_MAX];
			for (uint64_t n = 0; n < 100000; n++) {
				uint64_t nth = n / 4;
				struct iovec iov = {body, nth_body(nth, &e[n % 4])};
				head_fill(head, nth_head(nth), 2 * nth);
				pattern_fill(body, iov.iov_len, 2 * nth + 1);
				if (s->ops->send(
					    e[n % 4].ep, head, nth_head(nth), &iov, 1, iov.iov_len))
					break;
			}
			for (int i = 0; i < 4; i++)
				s->ops->ep_close(e[i].ep);
			REQUIRE(pair_say(s, "closed", 6));
		} else {
			char text[8];
			size_t len;
			struct tran *t = s->t;
			s->t = NULL; /* no progress until the other has closed */
			REQUIRE(pair_hear(s, text, sizeof text, &len));
			s->t = t;
			for (int i = 0; i < 4; i++) {
				REQUIRE(pair_until(s, &e[i].is_failed) && e[i].status < 0,
					"the end of %d was not told", i);
				s->ops->ep_close(e[i].ep);
			}
		}
		REQUIRE(pair_sync(s));
	}
}

/* The peer is killed, in the middle of everything. */
static void case_killed(struct side *s)
{
	struct end e = {.frame = count_only, .done = NULL}, second = {0};
	struct tran_mem *m;
	struct tran_desc d;
	size_t len;
	static uint8_t region[1 << 20], local[1 << 20];
	REQUIRE(pair_connect(s, &e) && pair_connect(s, &second), "%s", e.why);
	REQUIRE(!s->ops->mem->add(s->t, region, sizeof region, TRAN_READ | TRAN_WRITE, &m));
	REQUIRE(pair_say(s, &m->desc, sizeof m->desc) && pair_hear(s, &d, sizeof d, &len));
	if (s->which == 1) {
		if (s->ops->caps & TRAN_SAME_HOST && !fork()) {
			/* a child that holds its descriptors for a while does not hide its end */
			sleep(6);
			_exit(0);
		}
		for (;;) { /* until the signal comes */
			struct iovec iov = {region, 1000};
			s->ops->send(e.ep, "flood", 5, &iov, 1, 1000);
			s->ops->progress(s->t);
		}
	}
	REQUIRE(pair_until_count(s, &e.frames, 10));
	for (int i = 0; i < 8; i++)
		s->ops->rma->transfer(e.ep, i % 2, &d, 0, local, sizeof local, NULL, NULL);
	kill(s->child, SIGKILL);
	uint64_t began = rpwi_now_ns();
	REQUIRE(pair_until(s, &e.is_failed) && pair_until(s, &second.is_failed),
		"the end of the peer was not noticed");
	REQUIRE(rpwi_now_ns() - began < (s->ops->caps & TRAN_SAME_HOST ? 5 : 10) * RPWI_NS_PER_S);
	if (s->ops->caps & TRAN_SAME_HOST)
		REQUIRE(e.status == RPW_ERR_PEER_GONE && second.status == RPW_ERR_PEER_GONE,
			"%d: %s", e.status, e.why);
	REQUIRE(s->ops->send(e.ep, "x", 1, NULL, 0, 0) < 0 &&
		s->ops->rma->transfer(e.ep, true, &d, 0, local, 8, NULL, NULL) < 0);
	s->ops->ep_close(e.ep);
	s->ops->ep_close(second.ep);
	s->ops->mem->del(s->t, m);
}

/* A sleeper is woken by a frame, by a request for its memory where that needs it, by room, and by
 * the end of its peer. */
static void case_sleep(struct side *s)
{
	enum { ROUNDS = 200 };
	struct end e = {.frame = count_only};
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	for (int i = 0; i < ROUNDS; i++) {
		if (s->which == i % 2) {
			if (i % 5 == 0)
				usleep(300);
			REQUIRE(pair_send(&e, "wake", 4, "up", 2));
		} else {
			uint64_t end = rpwi_now_ns() + 10 * RPWI_NS_PER_S;
			while (e.frames <= (unsigned)i / 2) {
				/* the first may have come with the greeting */
				REQUIRE(pair_sleep(s, 5000), "round %d: slept through a frame", i);
				s->ops->progress(s->t);
				REQUIRE(rpwi_now_ns() < end);
			}
		}
	}
	REQUIRE(pair_sync(s));
	/* A sender that sleeps while there is no room. The receiver takes its time. */
	static uint8_t body[4096];
	struct iovec iov = {body, sizeof body};
	e.frames = 0;
	if (s->which == 0) {
		for (int i = 0; i < 2000; i++) {
			int rc;
			e.has_room = false;
			while ((rc = s->ops->send(e.ep, "many", 4, &iov, 1, sizeof body)) ==
				RPWI_LATER) {
				while (!e.has_room) {
					REQUIRE(pair_sleep(s, 5000), "slept through the room");
					s->ops->progress(s->t);
				}
				e.has_room = false;
			}
			REQUIRE(!rc);
		}
		/* what is still queued on our side goes out */
		uint64_t end = rpwi_now_ns() + 20 * RPWI_NS_PER_S;
		char word;
		while (recv(s->talk, &word, 1, MSG_DONTWAIT | MSG_PEEK) < 0) {
			pair_sleep(s, 50);
			s->ops->progress(s->t);
			REQUIRE(rpwi_now_ns() < end, "the peer does not get all");
		}
	} else {
		while (e.frames < 2000) {
			s->ops->progress(s->t);
			if (e.frames % 100 == 0)
				usleep(200);
		}
	}
	REQUIRE(pair_sync(s));
	/* The end of the other side. */
	if (s->which == 1) {
		s->ops->ep_close(e.ep);
		for (int i = 0; i < 100; i++) {
			s->ops->progress(s->t);
			usleep(100);
		}
	} else {
		while (!e.is_failed) {
			REQUIRE(pair_sleep(s, 5000), "slept through the end");
			s->ops->progress(s->t);
		}
		s->ops->ep_close(e.ep);
	}
	REQUIRE(pair_sync(s));
}

const struct conformance_case end_cases[] = {
	{"garbage", case_garbage, false},
	{"never-started", case_never_started, false},
	{"late", case_late, false},
	{"close", case_close, false},
	{"errors", case_errors, false},
	{"close-full", case_close_full, false},
	{"killed", case_killed, true},
	{"sleep", case_sleep, false},
	{0},
};
