/* conformance.c - what every transport must do, run on one of them between two processes: conformance NAME [CASE...]. TAP; exit 77 when the transport cannot be used here.
 *
 * Each case is one function that both processes run, told apart by s->which (0: the one that connects). A process that finds something wrong says so and exits 1; the other then misses it.
 */
#include "pair.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define REQUIRE(x, ...) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "# %s:%d (side %d): %s.", __FILE__, __LINE__, the_side, \
				#x); \
			fprintf(stderr, " " __VA_ARGS__); \
			fprintf(stderr, "\n"); \
			_exit(1); \
		} \
	} while (0)

static int the_side;
enum { BODY_MAX = 1 << 20 };

/* ---- frames ---- */

/* Sizes around every boundary that a transport of ours has, up to frame_max. */
static const size_t body_sizes[] = {0, 1, 7, 8, 9, 15, 16, 31, 32, 33, 40, 47, 48, 55, 56, 57, 63,
	64, 65, 100, 127, 128, 255, 256, 1000, 1023, 1024, 1025, 2000, 4095, 4096, 4097, 8191, 8192,
	8193, 16000, 16384, 32767, 32768, 65535, 65536, 131072, SIZE_MAX};
static const size_t head_sizes[] = {
	0, 1, 8, 16, 20, 24, 40, 55, 56, 57, 64, 100, 255, 256, 319, 320};

/* The n-th frame of a stream; both sides know it. The head begins with n, where it is long enough. */
static size_t nth_head(uint64_t n) { return head_sizes[n % RPWI_ARRAY_LEN(head_sizes)]; }
static size_t nth_body(uint64_t n, const struct end *e)
{
	size_t most = RPWI_MIN(e->ep->limits.frame_max, (size_t)BODY_MAX);
	return RPWI_MIN(body_sizes[(n / 3) % RPWI_ARRAY_LEN(body_sizes)], most);
}

struct stream {
	uint64_t seed, next;
};

static void stream_frame(
	struct end *e, const uint8_t *head, size_t head_len, const uint8_t *body, size_t body_len)
{
	struct stream *st = e->arg;
	uint64_t n = st->next++;
	REQUIRE(head_len == nth_head(n), "frame %llu: head of %zu bytes, sent %zu",
		(unsigned long long)n, head_len, nth_head(n));
	REQUIRE(body_len == nth_body(n, e), "frame %llu: body of %zu bytes, sent %zu",
		(unsigned long long)n, body_len, nth_body(n, e));
	REQUIRE(pattern_check(head, head_len, st->seed + 2 * n, 0) < 0, "frame %llu: head differs",
		(unsigned long long)n);
	ssize_t at = pattern_check(body, body_len, st->seed + 2 * n + 1, 0);
	REQUIRE(at < 0, "frame %llu: body of %zu differs at %zd", (unsigned long long)n, body_len,
		at);
}

static void stream_send(struct end *e, uint64_t seed, uint64_t n)
{
	static uint8_t head[TRAN_HEAD_MAX], body[BODY_MAX];
	size_t head_len = nth_head(n), body_len = nth_body(n, e);
	pattern_fill(head, head_len, seed + 2 * n, 0);
	pattern_fill(body, body_len, seed + 2 * n + 1, 0);
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
		pattern_check(body, 3000, 77, 0) < 0);
}

/* A body in pieces. */
static void case_scatter(struct side *s)
{
	struct end e = {.frame = scatter_frame};
	uint8_t body[3000];
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	pattern_fill(body, sizeof body, 77, 0);
	if (s->which == 0) {
		struct iovec iov[] = {{body, 1}, {body + 1, 0}, {body + 1, 15}, {body + 16, 2000},
			{body + 2016, 984}};
		int rc;
		while ((rc = s->ops->send(e.ep, "head", 4, iov, 5, sizeof body)) == -EAGAIN)
			s->ops->progress(s->t);
		REQUIRE(!rc);
	}
	REQUIRE(pair_sync(s));
	if (s->which == 1)
		REQUIRE(pair_until_count(s, &e.frames, 1));
	REQUIRE(pair_sync(s));
	s->ops->ep_close(e.ep);
}

/* A receiver that does not look: the sender is told, and goes on when there is room; nothing is lost. Too long frames are refused. */
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
			pattern_fill(head, head_len, 2 * sent, 0);
			pattern_fill(body, body_len, 2 * sent + 1, 0);
			iov.iov_len = body_len;
			rc = s->ops->send(e.ep, head, head_len, &iov, 1, body_len);
			if (rc)
				break;
		}
		REQUIRE(rc == -EAGAIN,
			"%llu frames, then %d: nothing bounds what a sender may queue",
			(unsigned long long)sent, rc);
		REQUIRE(s->ops->send(e.ep, head, sizeof head, &iov, 1, e.ep->limits.frame_max + 1) <
			0);
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

/* ---- remote memory ---- */

struct result {
	bool done;
	int status;
};
static void rma_done(struct end *e, void *cookie, int status)
{
	struct result *r = cookie;
	REQUIRE(!r->done, "told twice");
	r->done = true;
	r->status = status;
}

static int rma(struct end *e, bool is_put, const struct tran_desc *d, uint64_t offset, void *local,
	size_t len)
{
	struct result r = {0};
	int rc = e->side->ops->rma->transfer(e->ep, is_put, d, offset, local, len, NULL, &r);
	REQUIRE(!rc, "rma of %zu bytes: %d", len, rc);
	REQUIRE(pair_until(e->side, &r.done), "%zu bytes at %llu: no end. %s", len,
		(unsigned long long)offset, e->why);
	return r.status;
}

static int flush(struct end *e)
{
	struct result r = {0};
	REQUIRE(!e->side->ops->rma->flush(e->ep, &r));
	REQUIRE(pair_until(e->side, &r.done));
	return r.status;
}

static uint64_t atomic(struct end *e, enum tran_atomic op, const struct tran_desc *d,
	uint64_t offset, uint64_t operand, uint64_t compare, int *status)
{
	struct result r = {0};
	uint64_t before = ~0ull;
	REQUIRE(!e->side->ops->rma->atomic(e->ep, op, d, offset, operand, compare, &before, &r));
	REQUIRE(pair_until(e->side, &r.done));
	*status = r.status;
	return before;
}

static const size_t rma_sizes[] = {0, 1, 8, 63, 64, 100, 4095, 4096, 4097, 16384, 65536, 100000,
	262144, 1 << 20, (1 << 20) + 17, 9 << 20};
enum { REGION = 20 << 20 };

/* The passive side registers memory, as the program's own or allocated, and sends its description; the active one reads, writes, reads again. */
static void rma_case(struct side *s, bool allocate, bool passive_sleeps)
{
	struct end e = {.done = rma_done};
	struct tran_mem *m = NULL;
	struct tran_desc d;
	size_t len;
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	uint8_t *mine =
		mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(mine != MAP_FAILED);
	if (s->which == 1) {
		unsigned all = TRAN_READ | TRAN_WRITE | TRAN_ATOMIC;
		int rc = allocate ? pair_memory(s, s->t, REGION, all, &m)
				  : s->ops->mem->add(s->t, mine, REGION, all, &m);
		REQUIRE(!rc && m->len == REGION && m->addr && (allocate || m->addr == mine), "%d",
			rc);
		REQUIRE(m->desc.len > 0 && m->desc.len <= TRAN_DESC_MAX - 1);
		pattern_fill(m->addr, REGION, 42, 0);
		REQUIRE(pair_say(s, &m->desc, sizeof m->desc));
		if (passive_sleeps) { /* it still has to hear the end, by polling the socket alone where that does not need progress */
			char c;
			while (recv(s->talk, &c, 1, MSG_DONTWAIT) < 0) {
				pair_sleep(s, 5);
				s->ops->progress(s->t);
			}
		} else {
			REQUIRE(pair_sync(s));
		}
		for (size_t i = 0, at = 3; i < RPWI_ARRAY_LEN(rma_sizes);
			at += rma_sizes[i] + 5, i++) {
			ssize_t wrong =
				pattern_check((uint8_t *)m->addr + at, rma_sizes[i], 100 + i, 0);
			REQUIRE(wrong < 0, "put of %zu: byte %zd", rma_sizes[i], wrong);
		}
		s->ops->mem->del(s->t, m);
	} else {
		REQUIRE(pair_hear(s, &d, sizeof d, &len));
		for (size_t i = 0; i < RPWI_ARRAY_LEN(rma_sizes); i++) {
			for (size_t offset = 0; offset <= 4099; offset += 4099) {
				size_t n = rma_sizes[i];
				memset(mine, 0xee, n + 1);
				REQUIRE(rma(&e, false, &d, offset, mine, n) == RPW_OK,
					"get of %zu: %d", n, e.status);
				ssize_t wrong = pattern_check(mine, n, 42, offset);
				REQUIRE(wrong < 0 && mine[n] == 0xee, "get of %zu at %zu: byte %zd",
					n, offset, wrong);
			}
		}
		/* All puts at once, and a flush behind them. */
		struct result r[RPWI_ARRAY_LEN(rma_sizes)] = {0};
		size_t from = 0, at = 3;
		for (size_t i = 0; i < RPWI_ARRAY_LEN(rma_sizes); i++) {
			pattern_fill(mine + from, rma_sizes[i], 100 + i, 0);
			REQUIRE(!s->ops->rma->transfer(
				e.ep, true, &d, at, mine + from, rma_sizes[i], NULL, &r[i]));
			from += rma_sizes[i];
			at += rma_sizes[i] + 5;
		}
		REQUIRE(flush(&e) == RPW_OK);
		for (size_t i = 0; i < RPWI_ARRAY_LEN(rma_sizes); i++) {
			REQUIRE(pair_until(s, &r[i].done) && r[i].status == RPW_OK,
				"put of %zu: %d", rma_sizes[i], r[i].status);
		}
		/* Gets of what was put, all at once. */
		uint8_t *back = mmap(
			NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct result g[RPWI_ARRAY_LEN(rma_sizes)] = {0};
		from = 0;
		at = 3;
		for (size_t i = 0; i < RPWI_ARRAY_LEN(rma_sizes); i++) {
			REQUIRE(!s->ops->rma->transfer(
				e.ep, false, &d, at, back + from, rma_sizes[i], NULL, &g[i]));
			from += rma_sizes[i];
			at += rma_sizes[i] + 5;
		}
		for (size_t i = 0; i < RPWI_ARRAY_LEN(rma_sizes); i++)
			REQUIRE(pair_until(s, &g[i].done) && g[i].status == RPW_OK,
				"get of %zu: %d", rma_sizes[i], g[i].status);
		REQUIRE(!memcmp(mine, back, from));
		munmap(back, REGION);
		if (passive_sleeps)
			REQUIRE(pair_say(s, "x", 1));
		else
			REQUIRE(pair_sync(s));
	}
	REQUIRE(pair_sync(s));
	munmap(mine, REGION);
	s->ops->ep_close(e.ep);
}
static void case_rma(struct side *s) { rma_case(s, false, false); }
static void case_rma_allocated(struct side *s) { rma_case(s, true, false); }
static void case_rma_sleeping(struct side *s) { rma_case(s, false, true); }

/* The passive side progresses now and then only, alone or in turn with another context of its: what began with its help goes on without, or waits; the bytes are right either way. */
static void rma_stops(struct side *s, bool company)
{
	enum { LEN = 3 << 20, ROUNDS = 24 };
	struct tran *second = NULL;
	struct end e = {.done = rma_done};
	struct tran_mem *m = NULL;
	struct tran_desc d;
	size_t len;
	uint8_t *mine = malloc(LEN);
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	if (s->which == 1) {
		char c;
		REQUIRE(!company || !s->ops->open(s->t->up, &s->facts, &second));
		REQUIRE(!s->ops->mem->add(s->t, mine, LEN, TRAN_READ | TRAN_WRITE, &m));
		pattern_fill(mine, LEN, 42, 0);
		REQUIRE(pair_say(s, &m->desc, sizeof m->desc));
		for (unsigned i = 0; recv(s->talk, &c, 1, MSG_DONTWAIT) < 0; i++) {
			uint64_t end = rpwi_now_ns() + 1000 * (20 + i * 37 % 300);
			while (rpwi_now_ns() < end) {
				s->ops->progress(s->t);
				if (second)
					s->ops->progress(second);
			}
			usleep(i % 4 ? 300 : 8000);
		}
		if (second)
			s->ops->close(second);
		REQUIRE(pattern_check(mine, LEN, ROUNDS - 1, 0) < 0);
		s->ops->mem->del(s->t, m);
	} else {
		REQUIRE(pair_hear(s, &d, sizeof d, &len));
		for (uint64_t i = 0; i < ROUNDS; i++) {
			memset(mine, 0, LEN);
			REQUIRE(rma(&e, false, &d, 0, mine, LEN) == RPW_OK);
			ssize_t wrong = pattern_check(mine, LEN, i ? i - 1 : 42, 0);
			REQUIRE(wrong < 0, "get %llu: byte %zd", (unsigned long long)i, wrong);
			pattern_fill(mine, LEN, i, 0);
			REQUIRE(rma(&e, true, &d, 0, mine, LEN) == RPW_OK && flush(&e) == RPW_OK);
		}
		REQUIRE(pair_say(s, "x", 1));
	}
	REQUIRE(pair_sync(s));
	free(mine);
	s->ops->ep_close(e.ep);
}
static void case_rma_stops(struct side *s) { rma_stops(s, false); }
static void case_rma_stops_all(struct side *s) { rma_stops(s, true); }

/* More regions than a transport may keep at hand, and others in their places. */
static void case_regions(struct side *s)
{
	enum { REGIONS = 150, LEN = 5000 };
	struct end e = {.done = rma_done};
	struct tran_mem *m[REGIONS];
	static struct tran_desc d[REGIONS];
	uint8_t local[LEN];
	size_t len;
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	for (uint64_t round = 0; round < 3; round++) {
		for (uint64_t i = 0; s->which == 1 && i < REGIONS; i++) {
			REQUIRE(!pair_memory(
				s, s->t, LEN, TRAN_READ | (i % 2 ? TRAN_WRITE : 0), &m[i]));
			pattern_fill(m[i]->addr, LEN, round * REGIONS + i, 0);
			d[i] = m[i]->desc;
		}
		if (s->which == 1) {
			REQUIRE(pair_say(s, d, sizeof d) && pair_sync(s));
			for (uint64_t i = 0; i < REGIONS; i++) {
				REQUIRE(pattern_check(m[i]->addr, LEN,
						round * REGIONS + i + (i % 2 ? 1000 : 0), 0) < 0,
					"region %llu", (unsigned long long)i);
				pair_memory_free(s, s->t, m[i]);
			}
			REQUIRE(pair_sync(s));
			continue;
		}
		REQUIRE(pair_hear(s, d, sizeof d, &len) && len == sizeof d);
		for (int again = 0; again < 3; again++) {
			for (uint64_t i = 0; i < REGIONS; i++) {
				REQUIRE(rma(&e, false, &d[i], 0, local, LEN) == RPW_OK);
				REQUIRE(pattern_check(local, LEN,
						round * REGIONS + i + (i % 2 && again ? 1000 : 0),
						0) < 0,
					"region %llu", (unsigned long long)i);
				pattern_fill(local, LEN, round * REGIONS + i + 1000, 0);
				REQUIRE(rma(&e, true, &d[i], 0, local, LEN) ==
					(i % 2 ? RPW_OK : RPW_ERR_ACCESS));
			}
		}
		REQUIRE(flush(&e) == RPW_OK && pair_sync(s) && pair_sync(s));
		for (uint64_t i = 0; i < REGIONS; i++)
			REQUIRE(rma(&e, false, &d[i], 0, local, LEN) == RPW_ERR_ACCESS,
				"region %llu was released", (unsigned long long)i);
	}
	REQUIRE(pair_sync(s));
	s->ops->ep_close(e.ep);
}

/* Memory is released while it is read: done or refused, and the endpoint goes on. */
static void case_released(struct side *s)
{
	enum { LEN = 4 << 20, ROUNDS = 40 };
	struct end e = {.done = rma_done};
	struct tran_mem *m = NULL;
	struct tran_desc d;
	size_t len;
	uint8_t *mine = malloc(LEN);
	pattern_fill(mine, LEN, 6, 0);
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	for (int round = 0; round < ROUNDS; round++) {
		if (s->which == 1) {
			REQUIRE(!s->ops->mem->add(s->t, mine, LEN, TRAN_READ, &m) &&
				pair_say(s, &m->desc, sizeof m->desc));
			uint64_t frames = (uint64_t)round + 1;
			REQUIRE(pair_until_count(s, &e.frames, frames)); /* it has begun */
			for (int i = 0; i < round; i++)
				s->ops->progress(s->t);
			s->ops->mem->del(s->t, m);
		} else {
			struct result r[3] = {0};
			REQUIRE(pair_hear(s, &d, sizeof d, &len));
			memset(mine, 0, LEN);
			for (int i = 0; i < 3; i++)
				REQUIRE(!s->ops->rma->transfer(e.ep, false, &d,
					(uint64_t)i * (LEN / 4), mine + i * (LEN / 4), LEN / 4,
					NULL, &r[i]));
			REQUIRE(pair_send(&e, "go", 2, NULL, 0));
			for (size_t i = 0; i < 3; i++) {
				REQUIRE(pair_until(s, &r[i].done) &&
						(r[i].status == RPW_OK ||
							r[i].status == RPW_ERR_ACCESS),
					"%d", r[i].status);
				if (!r[i].status)
					REQUIRE(pattern_check(mine + i * (LEN / 4), LEN / 4, 6,
							i * (LEN / 4)) < 0);
			}
			REQUIRE(!e.is_failed, "%s", e.why);
		}
		REQUIRE(pair_sync(s));
	}
	free(mine);
	s->ops->ep_close(e.ep);
}

/* Both sides put into, get from and add to each other's memory, with frames in between: as many operations as the transport takes. */
static void mixed_frame(
	struct end *e, const uint8_t *head, size_t head_len, const uint8_t *body, size_t body_len)
{
	stream_frame(e, head, head_len, body, body_len);
}
static void case_rma_mixed(struct side *s)
{
	enum { OPS = 400, PIECE = 30000, LEN = OPS * PIECE };
	struct end e = {.done = rma_done, .frame = mixed_frame};
	struct stream st = {.seed = 7000000 + 1000000 * (uint64_t)!s->which};
	struct tran_mem *m;
	struct tran_desc d;
	size_t len;
	e.arg = &st;
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	uint8_t *region = malloc(LEN + 8), *out = malloc(LEN), *in = malloc(LEN);
	memset(region, 0, LEN + 8);
	REQUIRE(!s->ops->mem->add(s->t, region, LEN + 8, TRAN_READ | TRAN_WRITE | TRAN_ATOMIC, &m));
	REQUIRE(pair_say(s, &m->desc, sizeof m->desc) && pair_hear(s, &d, sizeof d, &len));
	struct result *put = calloc(OPS, sizeof *put), *get = calloc(OPS, sizeof *get),
		      *add = calloc(OPS, sizeof *add);
	uint64_t *before = calloc(OPS, 8);
	uint64_t seed = 900 + (uint64_t)s->which;
	pattern_fill(out, LEN, seed, 0);
	for (uint64_t i = 0; i < OPS; i++) {
		size_t n = (size_t)(i * 7919 % PIECE) + 1;
		REQUIRE(!s->ops->rma->transfer(
			e.ep, true, &d, i * PIECE, out + i * PIECE, n, NULL, &put[i]));
		REQUIRE(!s->ops->rma->atomic(
			e.ep, TRAN_FETCH_ADD, &d, LEN, i + 1, 0, &before[i], &add[i]));
		stream_send(&e, 7000000 + 1000000 * (uint64_t)s->which, i);
		if (i >= 100) {
			REQUIRE(pair_until(s, &put[i - 100].done) && put[i - 100].status == RPW_OK);
			size_t back = (size_t)((i - 100) * 7919 % PIECE) + 1;
			REQUIRE(!s->ops->rma->transfer(e.ep, false, &d, (i - 100) * PIECE,
				in + (i - 100) * PIECE, back, NULL, &get[i]));
		}
	}
	REQUIRE(flush(&e) == RPW_OK);
	for (uint64_t i = 0; i < OPS; i++) {
		REQUIRE(pair_until(s, &put[i].done) && put[i].status == RPW_OK &&
			pair_until(s, &add[i].done) && add[i].status == RPW_OK);
		if (i < 100)
			continue;
		REQUIRE(pair_until(s, &get[i].done) && get[i].status == RPW_OK);
		size_t back = (size_t)((i - 100) * 7919 % PIECE) + 1;
		REQUIRE(pattern_check(in + (i - 100) * PIECE, back, seed, (i - 100) * PIECE) < 0,
			"get %llu", (unsigned long long)i);
	}
	/* Each add saw another value: they were atomic. */
	uint64_t sum = 0;
	for (uint64_t i = 0; i < OPS; i++)
		sum += i + 1;
	REQUIRE(pair_until_count(s, &e.frames, OPS));
	REQUIRE(pair_sync(s));
	uint64_t total;
	memcpy(&total, region + LEN, 8);
	REQUIRE(total == sum, "adds: %llu, not %llu", (unsigned long long)total,
		(unsigned long long)sum);
	for (uint64_t i = 0; i < OPS; i++) {
		size_t n = (size_t)(i * 7919 % PIECE) + 1;
		REQUIRE(pattern_check(region + i * PIECE, n, 900 + (uint64_t)!s->which, i * PIECE) <
				0,
			"piece %llu of what the peer put", (unsigned long long)i);
	}
	REQUIRE(pair_sync(s));
	s->ops->mem->del(s->t, m);
	for (void **p = (void *[]){region, out, in, put, get, add, before, NULL}; *p; p++)
		free(*p);
	s->ops->ep_close(e.ep);
}

/* Both sides add to one word; each sees every value once at most. */
static void case_atomic(struct side *s)
{
	enum { ADDS = 2000 };
	struct end e = {.done = rma_done};
	struct tran_mem *m = NULL;
	struct tran_desc d;
	size_t len;
	int status;
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	if (s->which == 1) {
		REQUIRE(!pair_memory(s, s->t, 4096, TRAN_READ | TRAN_WRITE | TRAN_ATOMIC, &m));
		memset(m->addr, 0, 4096);
		REQUIRE(pair_say(s, &m->desc, sizeof m->desc));
		REQUIRE(pair_sync(s));
		REQUIRE(((uint64_t *)m->addr)[2] == ADDS * 3 + 1000);
		REQUIRE(pair_sync(s));
		pair_memory_free(s, s->t, m);
	} else {
		REQUIRE(pair_hear(s, &d, sizeof d, &len));
		for (uint64_t i = 0; i < ADDS; i++) {
			uint64_t before = atomic(&e, TRAN_FETCH_ADD, &d, 16, 3, 0, &status);
			REQUIRE(status == RPW_OK && before == 3 * i, "%llu",
				(unsigned long long)before);
		}
		REQUIRE(atomic(&e, TRAN_COMPARE_SWAP, &d, 16, 1, 17, &status) == 3 * ADDS &&
			status == RPW_OK); /* another value: no swap */
		REQUIRE(atomic(&e, TRAN_COMPARE_SWAP, &d, 16, 3 * ADDS + 1000, 3 * ADDS, &status) ==
				3 * ADDS &&
			status == RPW_OK);
		REQUIRE(atomic(&e, TRAN_FETCH_ADD, &d, 16, 0, 0, &status) == 3 * ADDS + 1000 &&
			status == RPW_OK);
		REQUIRE(pair_sync(s));
		REQUIRE(pair_sync(s));
	}
	s->ops->ep_close(e.ep);
}

/* The passive side has no room for its answers, since the active one does not look; then it does. */
static void case_answers_wait(struct side *s)
{
	enum { ADDS = 200 };
	struct end e = {.done = rma_done, .frame = stream_frame};
	struct stream st = {.seed = 0};
	struct tran_mem *m = NULL;
	struct tran_desc d;
	uint64_t sent = 0;
	size_t len;
	static uint8_t head[TRAN_HEAD_MAX], body[BODY_MAX];
	_Alignas(8) static uint8_t region[64];
	e.arg = &st;
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	if (s->which == 1) {
		REQUIRE(!s->ops->mem->add(
				s->t, region, sizeof region, TRAN_READ | TRAN_ATOMIC, &m) &&
			pair_say(s, &m->desc, sizeof m->desc));
		REQUIRE(pair_hear(s, body, sizeof body, &len)); /* the requests are under way */
		for (; sent < 1000000; sent++) {
			struct iovec iov = {body, nth_body(sent, &e)};
			pattern_fill(head, nth_head(sent), 2 * sent, 0);
			pattern_fill(body, iov.iov_len, 2 * sent + 1, 0);
			if (s->ops->send(e.ep, head, nth_head(sent), &iov, 1, iov.iov_len))
				break;
		}
		for (int i = 0; i < 2000; i++)
			s->ops->progress(s->t);
		REQUIRE(pair_say(s, &sent, sizeof sent));
		REQUIRE(pair_sync(s));
		s->ops->mem->del(s->t, m);
	} else {
		struct result r[ADDS] = {0};
		uint64_t before[ADDS], seen = 0;
		REQUIRE(pair_hear(s, &d, sizeof d, &len));
		for (int i = 0; i < ADDS; i++)
			REQUIRE(!s->ops->rma->atomic(
				e.ep, TRAN_FETCH_ADD, &d, 8, 1, 0, &before[i], &r[i]));
		struct tran *t = s->t;
		s->t = NULL; /* no progress */
		REQUIRE(pair_say(s, "go", 2) && pair_hear(s, &sent, sizeof sent, &len));
		s->t = t;
		for (int i = 0; i < ADDS; i++) {
			REQUIRE(pair_until(s, &r[i].done) && !r[i].status, "add %d", i);
			seen += before[i];
		}
		REQUIRE(seen == ADDS * (ADDS - 1) / 2);
		REQUIRE(pair_until_count(s, &e.frames, sent));
		REQUIRE(pair_sync(s));
	}
	s->ops->ep_close(e.ep);
}

/* Outside, without the right, forged, released: RPW_ERR_ACCESS, not a byte moved, and the endpoint lives on. */
static void case_access(struct side *s)
{
	struct end e = {.done = rma_done};
	struct tran_mem *m[4] = {0};
	struct tran_desc d[4], bad;
	size_t len;
	int status;
	uint8_t local[8192];
	_Alignas(64) static uint8_t region[4][4096];
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	pattern_fill(local, sizeof local, 3, 0);
	if (s->which == 1) {
		static const unsigned rights[4] = {TRAN_READ, TRAN_WRITE,
			TRAN_READ | TRAN_WRITE | TRAN_ATOMIC, TRAN_READ | TRAN_WRITE | TRAN_ATOMIC};
		for (int i = 0; i < 4; i++) {
			pattern_fill(region[i], 4096, 50 + (uint64_t)i, 0);
			REQUIRE(!s->ops->mem->add(s->t, region[i], 4096, rights[i], &m[i]));
			d[i] = m[i]->desc;
		}
		s->ops->mem->del(s->t, m[3]);
		REQUIRE(pair_say(s, d, sizeof d) && pair_sync(s));
		for (int i = 0; i < 4; i++)
			REQUIRE(pattern_check(region[i], 4096, 50 + (uint64_t)i, 0) < 0,
				"region %d was written", i);
		REQUIRE(pair_sync(s));
		for (int i = 0; i < 3; i++)
			s->ops->mem->del(s->t, m[i]);
		s->ops->ep_close(e.ep);
		return;
	}
	REQUIRE(pair_hear(s, d, sizeof d, &len));
	static const struct {
		int which;
		bool is_put;
		uint64_t offset;
		size_t len;
	} wrong[] = {{0, true, 0, 8}, {1, false, 0, 8}, {2, false, 4096, 1}, {2, false, 4095, 2},
		{2, true, 0, 4097}, {2, true, UINT64_MAX, 2}, {2, false, UINT64_MAX - 7, 16},
		{2, true, 1ull << 63, 8}, {3, false, 0, 8}, {3, true, 0, 8}, {3, true, 0, 4096}};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(wrong); i++) {
		status = rma(&e, wrong[i].is_put, &d[wrong[i].which], wrong[i].offset, local,
			wrong[i].len);
		REQUIRE(status == RPW_ERR_ACCESS, "access %zu: %d", i, status);
	}
	atomic(&e, TRAN_FETCH_ADD, &d[0], 0, 1, 0, &status);
	REQUIRE(status == RPW_ERR_ACCESS);
	atomic(&e, TRAN_FETCH_ADD, &d[2], 4092, 1, 0, &status);
	REQUIRE(status == RPW_ERR_ACCESS);
	atomic(&e, TRAN_FETCH_ADD, &d[2], 4, 1, 0, &status);
	REQUIRE(status == RPW_ERR_ACCESS, "unaligned: %d", status);
	/* Every bit of a description, turned: refused, or it was of no meaning, and the right bytes come. */
	for (size_t bit = 0; bit < 8 * sizeof bad; bit++) {
		bad = d[2];
		((uint8_t *)&bad)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		memset(local, 0, 64);
		status = rma(&e, false, &bad, 64, local, 64);
		REQUIRE(status == RPW_ERR_ACCESS ||
				(status == RPW_OK && pattern_check(local, 64, 52, 64) < 0),
			"bit %zu turned: %d", bit, status);
	}
	memset(&bad, 0, sizeof bad);
	REQUIRE(rma(&e, false, &bad, 0, local, 8) == RPW_ERR_ACCESS);
	memset(&bad, 0xff, sizeof bad);
	REQUIRE(rma(&e, true, &bad, 0, local, 8) == RPW_ERR_ACCESS);
	REQUIRE(flush(&e) == RPW_OK && !e.is_failed);
	REQUIRE(rma(&e, false, &d[2], 96, local, 4000) == RPW_OK &&
		pattern_check(local, 4000, 52, 96) < 0);
	REQUIRE(pair_sync(s) && pair_sync(s));
	s->ops->ep_close(e.ep);
}

/* ---- beginnings and ends ---- */

/* Handles that are no handles: ep_start says so, or ready does, within its time; never ready with 0. */
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
			pattern_fill(bad, n, 1, 0);
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

static void handles_swap(struct side *s, struct end *e, uint8_t *theirs, size_t *their_len)
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

/* The sides start at different times, or one closes instead: both orders, over a path that is there already and over none. */
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
		if (round < 6 && early)
			REQUIRE(!s->ops->ep_start(e.ep, theirs, len,
				round < 4
					? 5000
					: 1000)); /* where nobody says that the other has gone, time says it */
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
		} else if (
			early) { /* the other closes, and never starts (4, 5), or before we do (6, 7) */
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

/* One side closes with transfers under way: the other is told, once, and no byte of the closed one's buffers changes after. */
static void case_close(struct side *s)
{
	enum { LEN = 16 << 20, ROUNDS = 10 };
	uint8_t *buf = malloc(LEN), *region = malloc(LEN);
	struct tran_mem *m;
	struct tran_desc d;
	size_t len;
	pattern_fill(region, LEN, 5, 0);
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

/* Closed while nothing more fits: the other gets a beginning of what was sent, in order, and then the end. */
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
				pattern_fill(head, nth_head(nth), 2 * nth, 0);
				pattern_fill(body, iov.iov_len, 2 * nth + 1, 0);
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
		if (s->ops->caps & TRAN_SAME_HOST &&
			!fork()) { /* a child that holds its descriptors for a while does not hide its end */
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

/* A sleeper is woken by a frame, by a request for its memory where that needs it, by room, and by the end of its peer. */
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
			uint64_t before = e.frames, end = rpwi_now_ns() + 10 * RPWI_NS_PER_S;
			while (e.frames == before) {
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
				-EAGAIN) {
				while (!e.has_room) {
					REQUIRE(pair_sleep(s, 5000), "slept through the room");
					s->ops->progress(s->t);
				}
				e.has_room = false;
			}
			REQUIRE(!rc);
		}
		uint64_t quiet = rpwi_now_ns();
		while (pair_sleep(s, 50) &&
			rpwi_now_ns() <
				quiet + 300 * RPWI_NS_PER_MS) /* what is still queued on our side goes out; some only ever look again */
			if (s->ops->progress(s->t))
				quiet = rpwi_now_ns();
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

/* Many endpoints between two contexts: each has its own frames, in any order of use. */
static void many_frame(
	struct end *e, const uint8_t *head, size_t head_len, const uint8_t *body, size_t body_len)
{
	uint64_t which = (uint64_t)(uintptr_t)e->arg;
	REQUIRE(head_len == 8 && body_len == 100 && pattern_check(head, 8, which, 0) < 0 &&
			pattern_check(body, 100, which, 8) < 0,
		"endpoint %llu", (unsigned long long)which);
}
static void case_many(struct side *s)
{
	enum { MANY = 200, FRAMES = 20 };
	static struct end e[MANY];
	uint8_t text[108];
	for (uint64_t i = 0; i < MANY; i++) {
		e[i] = (struct end){.frame = many_frame, .arg = (void *)(uintptr_t)i};
		REQUIRE(pair_connect(s, &e[i]), "endpoint %llu: %s", (unsigned long long)i,
			e[i].why);
	}
	for (int f = 0; f < FRAMES; f++)
		for (uint64_t i = 0; i < MANY; i++) {
			pattern_fill(text, sizeof text, i, 0);
			REQUIRE(pair_send(&e[i], text, 8, text + 8, 100));
		}
	for (int i = 0; i < MANY; i++)
		REQUIRE(pair_until_count(s, &e[i].frames, FRAMES), "endpoint %d has %llu", i,
			(unsigned long long)e[i].frames);
	REQUIRE(pair_sync(s));
	for (int i = 0; i < MANY; i++)
		s->ops->ep_close(e[i].ep);
	REQUIRE(pair_sync(s));
}

/* One context with endpoints to many others: all are heard, however many there are, and each end is told to its own endpoint only. */
struct other {
	struct side side;
	struct end end;
};
static void contexts_frame(
	struct end *e, const uint8_t *head, size_t head_len, const uint8_t *body, size_t body_len)
{
	uint64_t which = (uint64_t)(uintptr_t)e->arg;
	REQUIRE(head_len == 16 && pattern_check(head, 16, which, 0) < 0 &&
			pattern_check(body, body_len, which, 16) < 0,
		"context %llu", (unsigned long long)which);
}
enum { CONTEXTS = 40 };

/* One waits for one of them; all progress meanwhile, since the other side may wait for another. */
static void contexts_round(struct side *s, struct other *o, uint64_t end_ns)
{
	if (!s->which)
		s->ops->progress(s->t);
	for (int i = 0; s->which && i < CONTEXTS; i++)
		if (o[i].side.t)
			s->ops->progress(o[i].side.t);
	sched_yield();
	REQUIRE(rpwi_now_ns() < end_ns, "waited too long");
}

static void contexts_until(
	struct side *s, struct other *o, const uint64_t *count, uint64_t at_least)
{
	uint64_t end_ns = rpwi_now_ns() + PAIR_DEADLINE_MS * RPWI_NS_PER_MS;
	while (*count < at_least)
		contexts_round(s, o, end_ns);
}

static void contexts_sync(struct side *s, struct other *o)
{
	uint64_t end_ns = rpwi_now_ns() + PAIR_DEADLINE_MS * RPWI_NS_PER_MS;
	char c = 's';
	REQUIRE(pair_say(s, &c, 1));
	while (recv(s->talk, &c, 1, MSG_DONTWAIT) != 1)
		contexts_round(s, o, end_ns);
}

static void contexts_send(struct side *s, struct other *o, uint64_t which, size_t len)
{
	uint8_t text[600];
	struct iovec iov = {text + 16, len};
	uint64_t end_ns = rpwi_now_ns() + PAIR_DEADLINE_MS * RPWI_NS_PER_MS;
	int rc;
	pattern_fill(text, sizeof text, which, 0);
	while ((rc = s->ops->send(o[which].end.ep, text, 16, &iov, 1, len)) == -EAGAIN)
		contexts_round(s, o, end_ns);
	REQUIRE(!rc, "context %llu: %d, %s", (unsigned long long)which, rc, o[which].end.why);
}

static void case_contexts(struct side *s)
{
	enum { FRAMES = 60 };
	struct other *o = calloc(CONTEXTS, sizeof *o);
	uint8_t a[TRAN_HANDLE_MAX], b[TRAN_HANDLE_MAX];
	for (uint64_t i = 0; i < CONTEXTS; i++) {
		size_t len, their_len;
		o[i].side = *s;
		struct side *mine = &o[i].side;
		if (s->which)
			REQUIRE(!s->ops->open(s->t->up, &s->facts, &mine->t));
		o[i].end = (struct end){
			.side = mine, .frame = contexts_frame, .arg = (void *)(uintptr_t)i};
		REQUIRE(!s->ops->ep_make(mine->t,
			&(struct tran_control){.peer = &s->peer_facts,
				.active = s->which == 0,
				.secret = pair_secret()},
			&o[i].end, &o[i].end.ep, a, &len));
		REQUIRE(pair_say(mine, a, len) && pair_hear(mine, b, sizeof b, &their_len) &&
			!s->ops->ep_start(o[i].end.ep, b, their_len, PAIR_DEADLINE_MS));
		REQUIRE(pair_until(mine, &o[i].end.is_ready) && !o[i].end.status,
			"context %llu: %s", (unsigned long long)i, o[i].end.why);
	}
	for (uint64_t f = 0; f < FRAMES; f++)
		for (uint64_t i = 0; i < CONTEXTS; i++) {
			if (f % 3 == 0 && i % 4)
				continue; /* some are quiet for a while */
			contexts_send(s, o, i, f * 8 % 500);
			s->ops->progress(o[i].side.t);
		}
	for (uint64_t i = 0; i < CONTEXTS; i++)
		contexts_until(s, o, &o[i].end.frames, i % 4 ? FRAMES - FRAMES / 3 : FRAMES);
	contexts_sync(s, o);
	/* Every other context goes. */
	for (uint64_t i = 0; i < CONTEXTS && s->which; i += 2) {
		s->ops->ep_close(o[i].end.ep);
		s->ops->close(o[i].side.t);
		o[i].side.t = NULL;
	}
	for (uint64_t i = 0; i < CONTEXTS && !s->which; i += 2) {
		REQUIRE(pair_until(s, &o[i].end.is_failed) && o[i].end.status < 0,
			"the end of context %llu", (unsigned long long)i);
		s->ops->ep_close(o[i].end.ep);
	}
	REQUIRE(pair_sync(s));
	for (uint64_t i = 1; i < CONTEXTS; i += 2)
		contexts_send(s, o, i, 99);
	for (uint64_t i = 1; i < CONTEXTS; i += 2) {
		contexts_until(s, o, &o[i].end.frames, FRAMES - FRAMES / 3 + 1);
		REQUIRE(!o[i].end.is_failed, "context %llu: %s", (unsigned long long)i,
			o[i].end.why);
	}
	contexts_sync(s, o);
	for (uint64_t i = 1; i < CONTEXTS; i += 2) {
		s->ops->ep_close(o[i].end.ep);
		if (s->which)
			s->ops->close(o[i].side.t);
	}
	free(o);
}

static unsigned count_entries(const char *path)
{
	unsigned n = 0;
	DIR *d = opendir(path);
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* What AddressSanitizer holds back of freed memory; it finds leaks itself. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QUARANTINE_KIB (256 * 1024)
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define QUARANTINE_KIB (256 * 1024)
#endif
#ifndef QUARANTINE_KIB
#define QUARANTINE_KIB 0
#endif

static long resident_kib(void)
{
	long pages = 0, resident = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	if (!f || fscanf(f, "%ld %ld", &pages, &resident) != 2)
		resident = 0;
	if (f)
		fclose(f);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Contexts and endpoints, again and again: what was there before is there after, descriptors, memory, names in /dev/shm. */
static void case_leaks(struct side *s)
{
	enum { ROUNDS = 60 };
	static uint8_t region[1 << 16], local[1 << 16];
	unsigned fds = 0, names = 0;
	long kib = 0;
	s->ops->close(s->t);
	s->t = NULL;
	for (int round = 0; round < ROUNDS; round++) {
		if (round == 10) {
			fds = count_entries("/proc/self/fd");
			names = count_entries("/dev/shm");
			kib = resident_kib();
		}
		REQUIRE(!pair_open(s));
		struct end e[4] = {{.done = rma_done}, {.done = rma_done}, {.done = rma_done},
			{.done = rma_done}};
		struct tran_mem *m, *own;
		struct tran_desc d;
		size_t len;
		for (int i = 0; i < 4; i++)
			REQUIRE(pair_connect(s, &e[i]), "round %d: %s", round, e[i].why);
		REQUIRE(!pair_memory(s, s->t, sizeof region, TRAN_READ | TRAN_WRITE, &m) &&
			!s->ops->mem->add(s->t, region, sizeof region, TRAN_READ, &own));
		REQUIRE(pair_say(s, &m->desc, sizeof m->desc) && pair_hear(s, &d, sizeof d, &len));
		for (int i = 0; i < 4; i++)
			REQUIRE(rma(&e[i], i % 2, &d, 0, local, sizeof local) == RPW_OK);
		REQUIRE(pair_sync(s));
		for (int i = 0; i < 4; i++)
			s->ops->ep_close(e[i].ep);
		pair_memory_free(s, s->t, m);
		s->ops->mem->del(s->t, own);
		REQUIRE(pair_sync(s)); /* neither may meet the other's next context early */
		s->ops->close(s->t);
		s->t = NULL;
	}
	REQUIRE(count_entries("/proc/self/fd") == fds, "%u descriptors, %u before",
		count_entries("/proc/self/fd"), fds);
	REQUIRE(count_entries("/dev/shm") <= names + 2, "%u names in /dev/shm, %u before",
		count_entries("/dev/shm"), names); /* others use it, too */
	REQUIRE(resident_kib() < kib + 2048 + QUARANTINE_KIB, "%ld KiB resident, %ld before",
		resident_kib(), kib);
}

/* As another user, who may not look into the other process: the ways that need no permission. Root only. */
static void case_no_permission(struct side *s)
{
	if (geteuid()) {
		printf("# no-permission needs root to become somebody else: not run\n");
		return;
	}
	s->ops->close(s->t);
	s->t = NULL;
	setenv("ROPEWAY_SHARE_PORT", "1", 1); /* two users, one address */
	REQUIRE(!setresuid(65534 - (uid_t)s->which, 65534 - (uid_t)s->which,
			65534 - (uid_t)s->which) &&
		!prctl(PR_SET_DUMPABLE, 0));
	REQUIRE(pair_sync(s) && !pair_open(s));
	rma_case(s, false, false);
	rma_case(s, true, true);
	case_rma_stops(s);
	case_rma_mixed(s);
	case_access(s);
	case_close(s);
}

/* Both contexts are progressed by one thread. By the clock: what is done by threads of the transport takes its time on a busy machine. */
#define BOTH_UNTIL(x) \
	for (uint64_t end_ns = rpwi_now_ns() + PAIR_DEADLINE_MS * RPWI_NS_PER_MS; \
		!(x) && rpwi_now_ns() < end_ns;) { \
		s->ops->progress(ta); \
		s->ops->progress(tb); \
	}

/* An endpoint to one's own context, and to another context of the same process. */
static void case_same_process(struct side *s)
{
	struct side second = *s;
	uint8_t a[TRAN_HANDLE_MAX], b[TRAN_HANDLE_MAX], local[300];
	size_t a_len, b_len;
	if (s->ops->open(s->t->up, &s->facts, &second.t))
		REQUIRE(false, "a second context");
	for (int own = 0; own < 2; own++) {
		struct tran *ta = s->t, *tb = own ? s->t : second.t;
		struct stream to_x = {.seed = 2000000}, to_y = {.seed = 1000000};
		struct end x = {.side = s, .frame = stream_frame, .done = rma_done, .arg = &to_x},
			   y = {.side = &second,
				   .frame = stream_frame,
				   .done = rma_done,
				   .arg = &to_y};
		struct tran_facts peer =
			s->facts; /* as boot sees it: our own facts have no address, and interfaces but loopback need not be there */
		snprintf(peer.address, sizeof peer.address, "127.0.0.1");
		REQUIRE(!s->ops->ep_make(ta,
				&(struct tran_control){
					.peer = &peer, .active = true, .secret = pair_secret()},
				&x, &x.ep, a, &a_len) &&
			!s->ops->ep_make(tb,
				&(struct tran_control){
					.peer = &peer, .active = false, .secret = pair_secret()},
				&y, &y.ep, b, &b_len));
		REQUIRE(!s->ops->ep_start(x.ep, b, b_len, 5000) &&
			!s->ops->ep_start(y.ep, a, a_len, 5000));
		BOTH_UNTIL(x.is_ready && y.is_ready)
		REQUIRE(x.is_ready && y.is_ready && !x.status && !y.status, "%s %s", x.why, y.why);
		for (uint64_t n = 0; n < 500; n++) {
			stream_send(&x, 1000000, n);
			stream_send(&y, 2000000, n);
			BOTH_UNTIL(x.frames > n && y.frames > n)
			REQUIRE(x.frames == n + 1 && y.frames == n + 1);
		}
		struct tran_mem *m;
		REQUIRE(!pair_memory(s, tb, 4096, TRAN_READ | TRAN_WRITE, &m));
		pattern_fill(m->addr, 4096, 9, 0);
		struct result r = {0};
		REQUIRE(!s->ops->rma->transfer(
			x.ep, false, &m->desc, 33, local, sizeof local, NULL, &r));
		BOTH_UNTIL(r.done)
		REQUIRE(r.done && !r.status && pattern_check(local, sizeof local, 9, 33) < 0);
		pair_memory_free(s, tb, m);
		s->ops->ep_close(x.ep);
		BOTH_UNTIL(y.is_failed)
		REQUIRE(y.is_failed);
		s->ops->ep_close(y.ep);
	}
	s->ops->close(second.t);
}

static const struct {
	const char *name;
	void (*run)(struct side *s);
	bool child_dies;
} cases[] = {
	{"order", case_order, false},
	{"scatter", case_scatter, false},
	{"room", case_room, false},
	{"rma", case_rma, false},
	{"rma-allocated", case_rma_allocated, false},
	{"rma-sleeping", case_rma_sleeping, false},
	{"rma-stops", case_rma_stops, false},
	{"rma-stops-all", case_rma_stops_all, false},
	{"regions", case_regions, false},
	{"released", case_released, false},
	{"rma-mixed", case_rma_mixed, false},
	{"atomic", case_atomic, false},
	{"answers-wait", case_answers_wait, false},
	{"access", case_access, false},
	{"garbage", case_garbage, false},
	{"never-started", case_never_started, false},
	{"late", case_late, false},
	{"close", case_close, false},
	{"close-full", case_close_full, false},
	{"killed", case_killed, true},
	{"sleep", case_sleep, false},
	{"many", case_many, false},
	{"contexts", case_contexts, false},
	{"leaks", case_leaks, false},
	{"same-process", case_same_process, false},
	{"no-permission", case_no_permission, false},
};

/* One case, in two fresh processes. */
static bool run_case(size_t which, const struct tran_ops *ops)
{
	pid_t runner = fork();
	if (!runner) {
		struct side s;
		alarm(120);
		if (pair_fork(&s, ops))
			_exit(1);
		the_side = s.which;
		alarm(120);
		if (s.which)
			prctl(PR_SET_PDEATHSIG, SIGKILL);
		int rc = pair_open(&s);
		REQUIRE(!rc, "open: %d", rc);
		cases[which].run(&s);
		pair_close(&s);
		fflush(NULL);
		if (s.which)
			exit(0); /* not _exit: a sanitizer looks for leaks there */
		int status;
		REQUIRE(waitpid(s.child, &status, 0) == s.child);
		exit(!(cases[which].child_dies ? WIFSIGNALED(status) : status == 0));
	}
	int status = 1;
	waitpid(runner, &status, 0);
	if (WIFSIGNALED(status))
		fprintf(stderr, "# ended by signal %d\n", WTERMSIG(status));
	return status == 0;
}

int main(int argc, char **argv)
{
	const struct tran_ops *ops = NULL;
	struct tran_facts own;
	char why[256] = "it is not in this build";
	pair_facts(&own);
	for (size_t i = 0; argc > 1 && tran_all[i]; i++)
		if (!strcmp(tran_all[i]->name, argv[1]))
			ops = tran_all[i];
	if (!ops || ops->usable(&own, NULL, why, sizeof why) < 0 ||
		ops->usable(&own, &own, why, sizeof why) < 0) {
		printf("1..0 # SKIP %s can not be used here: %s\n",
			argc > 1 ? argv[1] : "(no name)", why);
		return 77;
	}
	int failed = 0, ran = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		bool asked = argc == 2;
		for (int k = 2; k < argc; k++)
			asked |= !strcmp(argv[k], cases[i].name);
		if (!asked)
			continue;
		uint64_t began = rpwi_now_ns();
		bool fine = run_case(i, ops);
		printf("%sok %d - %s %s # %llu ms\n", fine ? "" : "not ", ++ran, ops->name,
			cases[i].name, (unsigned long long)((rpwi_now_ns() - began) / 1000000));
		failed += !fine;
	}
	printf("1..%d\n", ran);
	return failed || !ran;
}
