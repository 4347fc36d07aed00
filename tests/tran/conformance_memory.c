/* SPDX-License-Identifier: BSD-3-Clause */
/* conformance_memory.c - remote memory: put, get, atomics, flush; what is released, what is not
 * allowed. */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

void rma_done(struct end *e, void *cookie, int status)
{
	struct result *r = cookie;
	REQUIRE(!r->done, "told twice");
	r->done = true;
	r->status = status;
}

int rma(struct end *e, bool is_put, const struct tran_desc *d, uint64_t offset, void *local,
	size_t len)
{
	struct result r = {0};
	int rc = e->side->ops->rma->transfer(e->ep, is_put, d, offset, local, len, NULL, &r);
	REQUIRE(!rc, "rma of %zu bytes: %d", len, rc);
	REQUIRE(pair_until(e->side, &r.done), "%zu bytes at %llu: no end. %s", len,
		(unsigned long long)offset, e->why);
	return r.status;
}

int flush(struct end *e)
{
	struct result r = {0};
	REQUIRE(!e->side->ops->rma->flush(e->ep, &r));
	REQUIRE(pair_until(e->side, &r.done));
	return r.status;
}

uint64_t atomic(struct end *e, enum tran_atomic op, const struct tran_desc *d, uint64_t offset,
	uint64_t operand, uint64_t compare, int *status)
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

/* The passive side registers memory, as the program's own or allocated, and sends its description;
 * the active one reads, writes, reads again. */
void rma_case(struct side *s, bool allocate, bool passive_sleeps)
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
		pattern_fill(m->addr, REGION, 42);
		REQUIRE(pair_say(s, &m->desc, sizeof m->desc));
		if (passive_sleeps) {
			/* it still has to hear the end, by polling the socket alone where that does
			 * not need progress */
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
			size_t wrong =
				pattern_wrong((uint8_t *)m->addr + at, rma_sizes[i], 100 + i);
			REQUIRE(wrong == rma_sizes[i], "put of %zu: byte %zu", rma_sizes[i], wrong);
		}
		s->ops->mem->del(s->t, m);
	} else {
		REQUIRE(pair_hear(s, &d, sizeof d, &len));
		for (size_t i = 0; i < RPWI_ARRAY_LEN(rma_sizes); i++) {
			/* the second: where a string instruction is slow (base/copy.h) */
			static const size_t offsets[] = {0, 4080, 4099};
			for (size_t k = 0; k < RPWI_ARRAY_LEN(offsets); k++) {
				size_t n = rma_sizes[i], offset = offsets[k];
				memset(mine, 0xee, n + 1);
				REQUIRE(rma(&e, false, &d, offset, mine, n) == RPW_OK,
					"get of %zu: %d", n, e.status);
				size_t wrong = pattern_wrong_from(mine, n, 42, offset);
				REQUIRE(wrong == n && mine[n] == 0xee,
					"get of %zu at %zu: byte %zu", n, offset, wrong);
			}
		}
		/* All puts at once, and a flush behind them. */
		struct result r[RPWI_ARRAY_LEN(rma_sizes)] = {0};
		size_t from = 0, at = 3;
		for (size_t i = 0; i < RPWI_ARRAY_LEN(rma_sizes); i++) {
			pattern_fill(mine + from, rma_sizes[i], 100 + i);
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

/* The passive side progresses now and then only, alone or in turn with another context of its: what
 * began with its help goes on without, or waits; the bytes are right either way. */
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
		pattern_fill(mine, LEN, 42);
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
		REQUIRE(pattern_holds(mine, LEN, ROUNDS - 1));
		s->ops->mem->del(s->t, m);
	} else {
		REQUIRE(pair_hear(s, &d, sizeof d, &len));
		for (uint64_t i = 0; i < ROUNDS; i++) {
			memset(mine, 0, LEN);
			REQUIRE(rma(&e, false, &d, 0, mine, LEN) == RPW_OK);
			size_t wrong = pattern_wrong(mine, LEN, i ? i - 1 : 42);
			REQUIRE(wrong == LEN, "get %llu: byte %zu", (unsigned long long)i, wrong);
			pattern_fill(mine, LEN, i);
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
			pattern_fill(m[i]->addr, LEN, round * REGIONS + i);
			d[i] = m[i]->desc;
		}
		if (s->which == 1) {
			REQUIRE(pair_say(s, d, sizeof d) && pair_sync(s));
			for (uint64_t i = 0; i < REGIONS; i++) {
				REQUIRE(pattern_holds(m[i]->addr, LEN,
						round * REGIONS + i + (i % 2 ? 1000 : 0)),
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
				REQUIRE(pattern_holds(local, LEN,
						round * REGIONS + i + (i % 2 && again ? 1000 : 0)),
					"region %llu", (unsigned long long)i);
				pattern_fill(local, LEN, round * REGIONS + i + 1000);
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
	pattern_fill(mine, LEN, 6);
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
					REQUIRE(pattern_holds_from(
						mine + i * (LEN / 4), LEN / 4, 6, i * (LEN / 4)));
			}
			REQUIRE(!e.is_failed, "%s", e.why);
		}
		REQUIRE(pair_sync(s));
	}
	free(mine);
	s->ops->ep_close(e.ep);
}

/* Both sides put into, get from and add to each other's memory, with frames in between: as many
 * operations as the transport takes. */
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
	pattern_fill(out, LEN, seed);
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
		REQUIRE(pattern_holds_from(in + (i - 100) * PIECE, back, seed, (i - 100) * PIECE),
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
		REQUIRE(pattern_holds_from(
				region + i * PIECE, n, 900 + (uint64_t)!s->which, i * PIECE),
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
		/* another value: no swap */
		REQUIRE(atomic(&e, TRAN_COMPARE_SWAP, &d, 16, 1, 17, &status) == 3 * ADDS &&
			status == RPW_OK);
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

/* The passive side has no room for its answers, since the active one does not look; then it
 * does. */
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
			head_fill(head, nth_head(sent), 2 * sent);
			pattern_fill(body, iov.iov_len, 2 * sent + 1);
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

/* Outside, without the right, forged, released: RPW_ERR_ACCESS, not a byte moved, and the endpoint
 * lives on. */
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
	pattern_fill(local, sizeof local, 3);
	if (s->which == 1) {
		static const unsigned rights[4] = {TRAN_READ, TRAN_WRITE,
			TRAN_READ | TRAN_WRITE | TRAN_ATOMIC, TRAN_READ | TRAN_WRITE | TRAN_ATOMIC};
		for (int i = 0; i < 4; i++) {
			pattern_fill(region[i], 4096, 50 + (uint64_t)i);
			REQUIRE(!s->ops->mem->add(s->t, region[i], 4096, rights[i], &m[i]));
			d[i] = m[i]->desc;
		}
		s->ops->mem->del(s->t, m[3]);
		REQUIRE(pair_say(s, d, sizeof d) && pair_sync(s));
		for (int i = 0; i < 4; i++)
			REQUIRE(pattern_holds(region[i], 4096, 50 + (uint64_t)i),
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
	/* Every bit of a description, turned: refused, or it was of no meaning, and the right bytes
	 * come. */
	for (size_t bit = 0; bit < 8 * sizeof bad; bit++) {
		bad = d[2];
		((uint8_t *)&bad)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		memset(local, 0, 64);
		status = rma(&e, false, &bad, 64, local, 64);
		REQUIRE(status == RPW_ERR_ACCESS ||
				(status == RPW_OK && pattern_holds_from(local, 64, 52, 64)),
			"bit %zu turned: %d", bit, status);
	}
	memset(&bad, 0, sizeof bad);
	REQUIRE(rma(&e, false, &bad, 0, local, 8) == RPW_ERR_ACCESS);
	memset(&bad, 0xff, sizeof bad);
	REQUIRE(rma(&e, true, &bad, 0, local, 8) == RPW_ERR_ACCESS);
	REQUIRE(flush(&e) == RPW_OK && !e.is_failed);
	REQUIRE(rma(&e, false, &d[2], 96, local, 4000) == RPW_OK &&
		pattern_holds_from(local, 4000, 52, 96));
	REQUIRE(pair_sync(s) && pair_sync(s));
	s->ops->ep_close(e.ep);
}
/* What messages are fetched from: parts of allocated memory, registered for as long as each takes.
 * They come and go without harm to what they are parts of, nor it to them; and a part of memory
 * that no peer may read is none. */
static void case_parts(struct side *s)
{
	enum { ROOM = 1 << 20, PARTS = 64, TURNS = 4, LEAST = 1000 };
	struct end e = {.done = rma_done};
	struct tran_mem *whole[2], *part[PARTS];
	static const unsigned rights[2] = {TRAN_READ, TRAN_WRITE};
	struct tran_desc d[PARTS];
	static uint8_t local[ROOM];
	size_t len;
	REQUIRE(pair_connect(s, &e), "%s", e.why);
	for (int k = 0; k < 2 && s->which == 1; k++) {
		REQUIRE(!pair_memory(s, s->t, ROOM, rights[k], &whole[k]));
		pattern_fill(whole[k]->addr, ROOM, 60 + (uint64_t)k);
	}
	for (size_t turn = 0; turn < TURNS; turn++) {
		for (size_t i = 0; i < PARTS; i++) {
			/* every eighth of the other one; the last ends where the memory does */
			size_t k = i % 8 == 7, n = LEAST + i * 17,
			       at = i + 1 < PARTS ? i * 4099 : ROOM - n;
			if (s->which == 1) {
				REQUIRE(!s->ops->mem->add(s->t, (uint8_t *)whole[k]->addr + at, n,
					TRAN_READ, &part[i]));
				REQUIRE(pair_say(s, &part[i]->desc, sizeof part[i]->desc));
				continue;
			}
			REQUIRE(pair_hear(s, &d[i], sizeof d[i], &len));
			memset(local, 0, n);
			REQUIRE(rma(&e, false, &d[i], 0, local, n) == RPW_OK);
			REQUIRE(pattern_holds_from(local, n, 60 + k, at), "part %zu", i);
			REQUIRE(rma(&e, false, &d[i], 96, local, n - 96) == RPW_OK);
			REQUIRE(pattern_holds_from(local, n - 96, 60 + k, at + 96), "in %zu", i);
			REQUIRE(rma(&e, true, &d[i], 0, local, 8) == RPW_ERR_ACCESS);
		}
		REQUIRE(pair_sync(s));
		for (size_t i = 0; i < PARTS && s->which == 1; i++)
			s->ops->mem->del(s->t, part[i]);
	}
	if (s->which == 1)
		for (int k = 0; k < 2; k++)
			s->ops->mem->del(s->t, whole[k]);
	REQUIRE(pair_sync(s));
	for (size_t i = 0; i < PARTS && s->which == 0; i++)
		REQUIRE(rma(&e, false, &d[i], 0, local, LEAST) == RPW_ERR_ACCESS, "late %zu", i);
	REQUIRE(pair_sync(s));
	s->ops->ep_close(e.ep);
}

const struct conformance_case memory_cases[] = {
	{"rma", case_rma, false},
	{"rma-allocated", case_rma_allocated, false},
	{"rma-sleeping", case_rma_sleeping, false},
	{"rma-stops", case_rma_stops, false},
	{"rma-stops-all", case_rma_stops_all, false},
	{"regions", case_regions, false},
	{"released", case_released, false},
	{"parts", case_parts, false},
	{"rma-mixed", case_rma_mixed, false},
	{"atomic", case_atomic, false},
	{"answers-wait", case_answers_wait, false},
	{"access", case_access, false},
	{0},
};
