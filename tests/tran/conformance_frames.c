/* SPDX-License-Identifier: BSD-3-Clause */
/* conformance_frames.c - frames: every size of head and body, both ways at once; room. */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>

/* Sizes around every boundary that a transport of ours has, up to frame_max. */
static const size_t body_sizes[] = {0, 1, 7, 8, 9, 15, 16, 31, 32, 33, 40, 47, 48, 55, 56, 57, 63,
	64, 65, 100, 127, 128, 255, 256, 1000, 1023, 1024, 1025, 2000, 4095, 4096, 4097, 8191, 8192,
	8193, 16000, 16384, 32767, 32768, 65535, 65536, 131072, SIZE_MAX};
static const size_t head_sizes[] = {
	0, 1, 8, 16, 20, 24, 40, 55, 56, 57, 64, 100, 255, 256, 319, 320};

/* The n-th frame of a stream; both sides know it. The head begins with n, where it is long
 * enough. */
size_t nth_head(uint64_t n) { return head_sizes[n % RPWI_ARRAY_LEN(head_sizes)]; }
size_t nth_body(uint64_t n, const struct end *e)
{
	size_t most = RPWI_MIN(e->ep->limits.frame_max, (size_t)BODY_MAX);
	return RPWI_MIN(body_sizes[(n / 3) % RPWI_ARRAY_LEN(body_sizes)], most);
}

/* A head's first byte is below TRAN_OWN_HEADS. */
void head_fill(uint8_t *head, size_t len, uint64_t seed)
{
	pattern_fill(head, len, seed);
	if (len)
		head[0] %= TRAN_OWN_HEADS;
}
bool head_right(const uint8_t *head, size_t len, uint64_t seed)
{
	uint8_t want[TRAN_HEAD_MAX];
	head_fill(want, len, seed);
	return !memcmp(head, want, len);
}

void stream_frame(
	struct end *e, const uint8_t *head, size_t head_len, const uint8_t *body, size_t body_len)
{
	struct stream *st = e->arg;
	uint64_t n = st->next++;
	REQUIRE(head_len == nth_head(n), "frame %llu: head of %zu bytes, sent %zu",
		(unsigned long long)n, head_len, nth_head(n));
	REQUIRE(body_len == nth_body(n, e), "frame %llu: body of %zu bytes, sent %zu",
		(unsigned long long)n, body_len, nth_body(n, e));
	REQUIRE(head_right(head, head_len, st->seed + 2 * n), "frame %llu: head differs",
		(unsigned long long)n);
	size_t at = pattern_wrong(body, body_len, st->seed + 2 * n + 1);
	REQUIRE(at == body_len, "frame %llu: body of %zu differs at %zu", (unsigned long long)n,
		body_len, at);
}

void stream_send(struct end *e, uint64_t seed, uint64_t n)
{
	static uint8_t head[TRAN_HEAD_MAX], body[BODY_MAX];
	size_t head_len = nth_head(n), body_len = nth_body(n, e);
	head_fill(head, head_len, seed + 2 * n);
	pattern_fill(body, body_len, seed + 2 * n + 1);
	REQUIRE(pair_send(e, head, head_len, body, body_len), "%s", e->why);
}

/* Both directions at once, each in order, every size of head and body. */
static void case_order(struct side *s)
{
	enum { FRAMES = 3000 };
	struct end e = {.frame = stream_frame};
	struct stream st = {.seed = 1000000 * (uint64_t)!s->which};
	e.arg = &st;
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	REQUIRE(e.ep->limits.frame_max >= 4096 && e.ep->path[0]);
	for (uint64_t n = 0; n < FRAMES; n++) {
		stream_send(&e, 1000000 * (uint64_t)s->which, n);
		if (n % 7 == 0)
			s->ops->progress(s->t);
	}
	REQUIRE(pair_until_count(s, &e.frames, FRAMES), "%llu frames came",
		(unsigned long long)e.frames);
	REQUIRE(e.frames == FRAMES && !e.is_failed, "%s", e.why);
	REQUIRE(pair_sync(s) && e.frames == FRAMES);
	s->ops->ep_close(e.ep);
}

static void scatter_frame(
	struct end *e, const uint8_t *head, size_t head_len, const uint8_t *body, size_t body_len)
{
	REQUIRE(head_len == 4 && !memcmp(head, "head", 4) && body_len == 3000 &&
		pattern_holds(body, 3000, 77));
}

/* A body in pieces. */
static void case_scatter(struct side *s)
{
	struct end e = {.frame = scatter_frame};
	uint8_t body[3000];
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	pattern_fill(body, sizeof body, 77);
	if (s->which == 0) {
		struct iovec iov[] = {{body, 1}, {body + 1, 0}, {body + 1, 15}, {body + 16, 2000},
			{body + 2016, 984}};
		int rc;
		while ((rc = s->ops->send(e.ep, "head", 4, iov, 5, sizeof body)) == RPWI_LATER)
			s->ops->progress(s->t);
		REQUIRE(!rc);
	}
	REQUIRE(pair_sync(s));
	if (s->which == 1)
		REQUIRE(pair_until_count(s, &e.frames, 1));
	REQUIRE(pair_sync(s));
	s->ops->ep_close(e.ep);
}

/* A receiver that does not look: the sender is told, and goes on when there is room; nothing is
 * lost. Too long frames are refused. */
static void case_room(struct side *s)
{
	struct end e = {.frame = stream_frame};
	struct stream st = {.seed = 0};
	uint64_t sent = 0;
	e.arg = &st;
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	if (s->which == 0) {
		static uint8_t head[TRAN_HEAD_MAX], body[BODY_MAX];
		int rc = 0;
		struct iovec iov = {body, 0};
		for (; sent < 1000000; sent++) {
			size_t head_len = nth_head(sent), body_len = nth_body(sent, &e);
			head_fill(head, head_len, 2 * sent);
			pattern_fill(body, body_len, 2 * sent + 1);
			iov.iov_len = body_len;
			rc = s->ops->send(e.ep, head, head_len, &iov, 1, body_len);
			if (rc)
				break;
		}
		REQUIRE(rc == RPWI_LATER,
			"%llu frames, then %d: nothing bounds what a sender may queue",
			(unsigned long long)sent, rc);
		size_t most = RPWI_MAX(e.ep->limits.frame_max, e.ep->limits.placed_max);
		REQUIRE(s->ops->send(e.ep, head, sizeof head, &iov, 1, most + 1) < 0);
		REQUIRE(pair_say(s, &sent, sizeof sent));
		REQUIRE(pair_until(s, &e.has_room));
		for (int i = 0; i < 500; i++)
			stream_send(&e, 0, sent + (uint64_t)i);
	} else {
		size_t len;
		struct tran *t = s->t;
		s->t = NULL; /* so that nothing progresses meanwhile */
		REQUIRE(pair_hear(s, &sent, sizeof sent, &len));
		s->t = t;
		REQUIRE(pair_until_count(s, &e.frames, sent + 500), "%llu of %llu",
			(unsigned long long)e.frames, (unsigned long long)sent + 500);
	}
	REQUIRE(pair_sync(s));
	s->ops->ep_close(e.ep);
}

/* ---- frames that may go in one write ---- */

enum { GATHERED = 6000, BURST = 40, UNTOUCHED_MS = 20 };
struct burst {
	struct end *e;
	struct rng rng;
	bool gathers; /* whether `gather` has begun */
	uint64_t seed, next;
	uint8_t *body[BURST]; /* of frames that may not have gone yet */
	unsigned bodies;
};

static void gathers(struct burst *b, bool begins)
{
	struct side *s = b->e->side;
	if (s->ops->gather && b->gathers != begins)
		s->ops->gather(b->e->ep, begins);
	b->gathers = begins;
	while (!begins && b->bodies) { /* their owner's again */
		uint8_t *body = b->body[--b->bodies];
		memset(body, 0x5a, 16);
		free(body);
	}
}

/* As one of many or not, and whether it may wait for others or not. */
static void burst_send(struct burst *b)
{
	struct end *e = b->e;
	uint64_t n = b->next++;
	uint8_t head[TRAN_HEAD_MAX];
	size_t head_len = nth_head(n), len = nth_body(n, e);
	uint8_t *body = b->body[b->bodies++] = malloc(len + 16);
	head_fill(head, head_len, b->seed + 2 * n);
	pattern_fill(body, len, b->seed + 2 * n + 1);
	struct iovec iov = {body, len};
	for (;;) {
		e->has_room = false;
		e->ep->under_way = (unsigned)rng_below(&b->rng, 6);
		e->ep->stays = rng_one_in(&b->rng, 2);
		bool stays = e->ep->stays;
		int rc = e->side->ops->send(e->ep, head, head_len, &iov, 1, len);
		e->ep->stays = false;
		if (!rc && !stays)
			memset(body, 0x5a, len);
		if (!rc)
			return;
		REQUIRE(rc == RPWI_LATER, "%d", rc);
		bool again = b->gathers;
		if (e->side->ops->gather && b->gathers)
			e->side->ops->gather(e->ep, false);
		REQUIRE(pair_until(e->side, &e->has_room), "no room for frame %llu",
			(unsigned long long)n);
		if (e->side->ops->gather && again)
			e->side->ops->gather(e->ep, true);
	}
}

/* Bodies change as soon as they may; the order, and each byte, is as without `gather`. The other
 * side does not look now and then, so that the kernel takes a part of what goes in one write. */
static void case_gathered(struct side *s)
{
	struct end e = {.frame = stream_frame};
	struct stream st = {.seed = 1000000 * (uint64_t)!s->which};
	struct burst b = {
		.e = &e, .rng = {7 + (uint64_t)s->which}, .seed = 1000000 * (uint64_t)s->which};
	e.arg = &st;
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	while (b.next < GATHERED) {
		gathers(&b, rng_below(&b.rng, 3));
		uint64_t upto = b.next + 1 + rng_below(&b.rng, BURST);
		for (upto = RPWI_MIN(upto, (uint64_t)GATHERED); b.next < upto;) {
			burst_send(&b);
			if (!b.gathers)
				gathers(&b, false);
		}
		gathers(&b, false);
		if (rng_one_in(&b.rng, 20))
			usleep(UNTOUCHED_MS * 1000);
		if (rng_one_in(&b.rng, 2))
			s->ops->progress(s->t);
	}
	REQUIRE(pair_until_count(s, &e.frames, GATHERED), "%llu frames came",
		(unsigned long long)e.frames);
	REQUIRE(pair_sync(s) && e.frames == GATHERED && !e.is_failed, "%s", e.why);
	REQUIRE(pair_sync(s)); /* neither may hear the other's close before it has looked */
	s->ops->ep_close(e.ep);
}

/* ---- long frames ---- */

enum { LONGS = 120, SMALL = 24 };
struct longs {
	uint64_t next, asked_for;
	size_t least, most;
	unsigned asked, placed, later;
	uint8_t *place, *given;
};

/* The n-th: every other one is long, and of all lengths up to the longest. */
static size_t nth_long(const struct longs *l, uint64_t n)
{
	return n % 2 ? SMALL : n % 10 ? l->least + n * 4099 % (l->most - l->least + 1) : l->most;
}

static void *long_place(struct end *e, const uint8_t *head, size_t head_len, size_t body_len)
{
	struct longs *l = e->arg;
	REQUIRE(head_len == 8 && head_right(head, 8, l->next) && body_len == nth_long(l, l->next),
		"the place of %zu bytes is asked for, the next frame has %zu", body_len,
		nth_long(l, l->next));
	if (l->asked_for != l->next ||
		!l->asked) { /* some are to be asked for again, or for ever */
		l->asked++;
		l->asked_for = l->next;
		l->later = l->next % 8 == 2 ? 20 : l->next % 24 == 12 ? UINT32_MAX : 0;
	}
	if (l->later) {
		l->later--;
		return TRAN_PLACE_LATER;
	}
	l->given = l->next % 3 ? l->place + l->next % 8 : NULL;
	l->placed += l->given != NULL;
	return l->given;
}

static void long_frame(
	struct end *e, const uint8_t *head, size_t head_len, const uint8_t *body, size_t body_len)
{
	struct longs *l = e->arg;
	uint64_t n = l->next++;
	REQUIRE(head_len == 8 && head_right(head, 8, n) && body_len == nth_long(l, n));
	REQUIRE(!l->given || body == l->given, "it was to be put elsewhere");
	size_t at = pattern_wrong(body, body_len, 900 + n);
	REQUIRE(at == body_len, "frame %llu of %zu differs at %zu", (unsigned long long)n, body_len,
		at);
	l->given = NULL;
}

/* Longer than frame_max: put into a place, or kept, between small ones; to who looks and to who
 * does not, so that the kernel takes a part. */
static void case_long(struct side *s)
{
	struct end e = {.frame = long_frame, .place = long_place};
	struct longs l = {0};
	e.arg = &l;
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	l.least = e.ep->limits.frame_max + 1;
	l.most = e.ep->limits.placed_max;
	uint8_t head[8], *body = calloc(1, l.most + 8);
	l.place = body;
	for (uint64_t n = 0; l.most && n < LONGS && s->which == 0; n++) {
		size_t len = nth_long(&l, n);
		head_fill(head, sizeof head, n);
		pattern_fill(body, len, 900 + n);
		s->ops->eager(e.ep, body, len); /* what it says is advice */
		REQUIRE(pair_send(&e, head, sizeof head, body, len), "%s", e.why);
		memset(body, 0x5a, len); /* it was copied, or is gone */
	}
	if (s->which == 1 && l.most) {
		struct tran *t = s->t;
		s->t = NULL;
		usleep(20000);
		s->t = t;
		REQUIRE(pair_until_count(s, &e.frames, LONGS), "%llu came",
			(unsigned long long)e.frames);
		REQUIRE(l.asked == LONGS / 2 && l.placed >= LONGS / 4);
	}
	REQUIRE(pair_sync(s));
	/* One side leaves while one comes: its place is its own again, and others go on. */
	if (s->which == 0 && l.most) {
		head_fill(head, sizeof head, l.next = 0);
		pattern_fill(body, l.most, 900);
		REQUIRE(pair_send(&e, head, sizeof head, body, l.most), "%s", e.why);
	}
	if (s->which == 1)
		e.frame = NULL;
	s->ops->ep_close(e.ep);
	for (int i = 0; i < 50; i++)
		s->ops->progress(s->t);
	REQUIRE(pair_sync(s));
	free(body);
}

const struct conformance_case frame_cases[] = {
	{"order", case_order, false},
	{"scatter", case_scatter, false},
	{"gathered", case_gathered, false},
	{"room", case_room, false},
	{"long", case_long, false},
	{0},
};
