/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_order.c - what a signal promises of the puts before it, sums of signals, and how much may be
 * in flight. */
#include "ncclnet/check/rma_priv.h"

#include <stdio.h>
#include <stdlib.h>

enum {
	DEEP = 3, /* rounds of a context: with two contexts all requests are within 32 */
	PUTS = 4,
	CELL = 4096,
	SLOT = PUTS * CELL,
	BIG_EACH = 16, /* a round with a page in it, of so many */
	BEAT = 64,     /* rounds between two looks at the clock */
	ADDS = 300,
	ADDS_WINDOW = 16,
	WEAK_TIMES = 60,
	WEAK_SMALL = 100,
	FLIGHT_MOST = 1024,
	FLIGHT_BYTES = 64
};

/* ---- strong signals ---- */

/* A rank writes to the next one, round after round, and looks at what the one before it writes. */
struct rounds {
	struct conform *c;
	unsigned n, sent, reaped, seen, depth;
	uint64_t word; /* of the first context */
	void *request[RMA_CONTEXTS * DEEP][PUTS + 1];
};

static size_t put_size(unsigned round, unsigned put)
{
	static const size_t small[PUTS] = {8, 24, 64, 200};
	return round % BIG_EACH ? small[put] : CELL >> (put & 1);
}
static uint64_t cell(const struct rounds *w, unsigned round, unsigned put)
{
	return (uint64_t)(round % w->depth) * SLOT + (uint64_t)put * CELL;
}

static bool send_round(struct rounds *w)
{
	struct conform *c = w->c;
	struct rma_checked *k = c->rma;
	int ctx = (int)(w->sent % (unsigned)k->world.contexts);
	void **request = w->request[w->sent % w->depth];
	for (unsigned i = 0; i < PUTS; i++) {
		uint64_t at = cell(w, w->sent, i);
		struct ncclnet_rma_op op = rma_op(c, rma_next(c), put_size(w->sent, i));
		op.from_off = at;
		op.to_off += at;
		op.options = rma_has_options(&k->r) && i < PUTS - 1 ? NCCL_RMA_MORE : 0;
		side_fill(k->source.at + at, op.size,
			rma_salt(c, rma_me(c), rma_next(c), w->sent * PUTS + i));
		if (!rma_put(&k->r, &k->world, ctx, &op, &request[i]))
			return false;
	}
	struct ncclnet_rma_op signal =
		rma_signal(c, rma_next(c), w->word + (uint64_t)ctx * sizeof(uint64_t));
	w->sent++;
	return rma_put(&k->r, &k->world, ctx, &signal, &request[PUTS]);
}

/* 1: the oldest round is done; negative: failed. */
static int reap_round(struct rounds *w)
{
	struct rma_checked *k = w->c->rma;
	void **request = w->request[w->reaped % w->depth];
	for (unsigned i = 0; i <= PUTS; i++) {
		int done = 0;
		if (!request[i])
			continue;
		if (!side_result(w->c->s, rma_test(&k->r, &k->world, request[i], &done), "test"))
			return -1;
		if (!done)
			return 0;
		request[i] = NULL;
	}
	w->reaped++;
	return 1;
}

/* 1: the signal of the next round is there, and with it the round; negative: it is not. */
static int see_round(struct rounds *w)
{
	struct conform *c = w->c;
	struct rma_checked *k = c->rma;
	unsigned contexts = (unsigned)k->world.contexts, ctx = w->seen % contexts;
	const uint64_t *word = rma_word(c, w->word) + ctx;
	if (__atomic_load_n(word, __ATOMIC_ACQUIRE) < w->seen / contexts + 1)
		return 0;
	const char *area = k->window.at + rma_area(rma_before(c));
	for (unsigned i = 0; i < PUTS; i++) {
		size_t size = put_size(w->seen, i);
		char what[80];
		snprintf(what, sizeof(what), "round %u, put %u before the signal", w->seen, i + 1);
		if (!rma_is(c, what, area + cell(w, w->seen, i), size,
			    rma_salt(c, rma_before(c), rma_me(c), w->seen * PUTS + i)))
			return -1;
	}
	w->seen++;
	atomic_store(&c->s->shared->count[rma_me(c)][0], w->seen);
	return 1;
}

static bool one_look(struct rounds *w, unsigned *looks)
{
	struct conform *c = w->c;
	uint64_t taken = atomic_load(&c->s->shared->count[rma_next(c)][0]);
	int moved = 0, rc;
	if (w->sent < w->n && w->sent - w->reaped < w->depth && w->sent < taken + w->depth) {
		if (!send_round(w))
			return false;
		moved = 1;
	}
	if (w->reaped < w->sent) {
		if ((rc = reap_round(w)) < 0)
			return false;
		moved |= rc;
	}
	if (w->seen < w->n) {
		if ((rc = see_round(w)) < 0)
			return false;
		moved |= rc;
	}
	if (!moved)
		return rma_idle(&c->rma->r, &c->rma->world, looks);
	*looks = 0;
	if (w->seen % BEAT == 0)
		side_step(c->s);
	return true;
}

void case_rma_strong(struct conform *c)
{
	struct rounds w = {.c = c, .n = c->o->rounds};
	unsigned looks = 0;
	if (!rma_world(c))
		return;
	w.word = rma_take(c, RMA_CONTEXTS);
	w.depth = c->rma->world.contexts > 1 ? DEEP * RMA_CONTEXTS : DEEP;
	atomic_store(&c->s->shared->count[rma_me(c)][0], 0);
	if (!rma_met(c))
		return;
	while (w.seen < w.n || w.reaped < w.n)
		if (!one_look(&w, &looks))
			return;
	if (rma_met(c))
		conform_note(c, "%u rounds of %d puts, %d context%s", w.n, PUTS,
			c->rma->world.contexts, c->rma->world.contexts > 1 ? "s" : "");
}

/* ---- weak ones ---- */

void case_rma_weak(struct conform *c)
{
	struct rma_checked *k = c->rma;
	if (!rma_world(c))
		return;
	uint64_t word = rma_take(c, 1), big = RMA_AREA - CELL;
	for (unsigned i = 0; i < WEAK_TIMES; i++) {
		struct ncclnet_rma_op first = rma_op(c, rma_next(c), big),
				      op = rma_signaled(c, rma_next(c),
					      i % 2 ? (size_t)WEAK_SMALL : (size_t)CELL, word);
		void *a, *b;
		op.weak = true;
		op.from_off = big;
		op.to_off += big;
		side_fill(k->source.at + big, op.size, rma_salt(c, rma_me(c), rma_next(c), i));
		if (!rma_put(&k->r, &k->world, 0, &first, &a) ||
			!rma_put(&k->r, &k->world, 0, &op, &b) ||
			!rma_await(&k->r, &k->world, rma_word(c, word), i + 1) ||
			!rma_is(c, "the weak signal's own put",
				k->window.at + rma_area(rma_before(c)) + big, op.size,
				rma_salt(c, rma_before(c), rma_me(c), i)) ||
			!rma_wait(&k->r, &k->world, a) || !rma_wait(&k->r, &k->world, b) ||
			!rma_met(c))
			return;
	}
}

/* ---- sums ---- */

static uint64_t value_of(int rank, unsigned i)
{
	return i % 3 ? (uint64_t)(rank + 1) << 33 | i : 1;
}

static bool add_all(struct conform *c, uint64_t word)
{
	struct rma_checked *k = c->rma;
	void *request[ADDS_WINDOW] = {NULL};
	unsigned n = 0, all = ADDS * (unsigned)rma_ranks(c);
	for (; n < all + ADDS_WINDOW; n++) {
		void **slot = &request[n % ADDS_WINDOW];
		if (*slot && !rma_wait(&k->r, &k->world, *slot))
			return false;
		*slot = NULL;
		if (n >= all)
			continue;
		unsigned i = n / (unsigned)rma_ranks(c);
		struct ncclnet_rma_op op = rma_signal(c, (int)(n % (unsigned)rma_ranks(c)), word);
		op.signal_op = i % 3 ? NCCL_RMA_SIGNAL_ADD : NCCL_RMA_SIGNAL_INCREMENT;
		op.value = value_of(rma_me(c), i);
		op.weak = rma_has_weak(&k->r) && i % 2;
		if (!rma_put(&k->r, &k->world, (int)i % k->world.contexts, &op, slot))
			return false;
		side_step(c->s);
	}
	return true;
}

void case_rma_sums(struct conform *c)
{
	if (!rma_world(c))
		return;
	uint64_t word = rma_take(c, 3) + sizeof(uint64_t), sum = 0;
	for (int by = 0; by < rma_ranks(c); by++)
		for (unsigned i = 0; i < ADDS; i++)
			sum += value_of(by, i);
	if (!add_all(c, word))
		return;
	if (!rma_await(&c->rma->r, &c->rma->world, rma_word(c, word), sum) || !rma_met(c) ||
		*rma_word(c, word) != sum) {
		conform_fail(c, "%u signals of each of %d ranks make 0x%llx, not 0x%llx", ADDS,
			rma_ranks(c), (unsigned long long)*rma_word(c, word),
			(unsigned long long)sum);
		return;
	}
	if (*rma_word(c, word - sizeof(uint64_t)) || *rma_word(c, word + sizeof(uint64_t)))
		conform_fail(c, "the word beside the signals was written");
}

/* ---- in flight ---- */

static bool fly(struct conform *c, void **request, unsigned each, uint64_t word)
{
	struct rma_checked *k = c->rma;
	unsigned posted = 0;
	for (unsigned i = 0; i < each; i++)
		for (int to = 0; to < rma_ranks(c); to++) {
			struct ncclnet_rma_op op = rma_signaled(c, to, FLIGHT_BYTES, word);
			op.from_off = (uint64_t)i * FLIGHT_BYTES;
			op.to_off += (uint64_t)i * FLIGHT_BYTES;
			if (to == rma_me(c))
				continue;
			if (!rma_put(&k->r, &k->world, 0, &op, &request[posted++]))
				return conform_fail(c,
					"with %u requests of %u for each peer in flight: %s", i,
					each, c->s->text);
		}
	side_step(c->s);
	for (unsigned i = 0; i < posted; i++)
		if (!rma_wait(&k->r, &k->world, request[i]))
			return false;
	return true;
}

void case_rma_in_flight(struct conform *c)
{
	struct rma_checked *k = c->rma;
	unsigned each = RMA_PER_RECEIVE * (unsigned)RPWI_MAX(k->r.p.max_recvs, 1);
	if (!rma_world(c))
		return;
	each = RPWI_MIN(each, (unsigned)FLIGHT_MOST);
	void **request = calloc((size_t)each * PAIR_SIDES_MAX, sizeof(*request));
	uint64_t word = rma_take(c, 1);
	size_t bytes = (size_t)each * FLIGHT_BYTES;
	side_fill(k->source.at, bytes, rma_salt(c, rma_me(c), 0, 1));
	bool ok = request && fly(c, request, each, word) &&
		  rma_await(&k->r, &k->world, rma_word(c, word),
			  (uint64_t)each * (uint64_t)(rma_ranks(c) - 1));
	for (int by = 0; by < rma_ranks(c) && ok; by++)
		ok = by == rma_me(c) ||
		     rma_is(c, "puts in flight at once", k->window.at + rma_area(by), bytes,
			     rma_salt(c, by, 0, 1));
	free(request);
	if (ok && rma_met(c))
		conform_note(c, "%u for each of %d peers", each, rma_ranks(c) - 1);
}
