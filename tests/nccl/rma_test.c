/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_test.c - our one-sided plugin: what puts, signals, gets and flushes do, by each table,
 * between 2, 4 and 8 processes. PLUGIN TRANSPORT [TEST]... */
#include "rma_group.h"

#include <unistd.h>

enum { ROOM = 3 << 20 };

/* ---- every byte ---- */

static const size_t sizes[] = {
	0, 1, 7, 8, 9, 63, 64, 1000, 4095, 4096, 4097, 8192, 65535, 262144, 262145, 1000003};

static uint64_t key_of(int from, int to, size_t n) { return (uint64_t)(from * 100 + to) << 32 | n; }

/* Each rank puts each size to each rank, itself too, and signals. */
static void all_sizes(struct rank *r)
{
	size_t each = ROOM / 2;
	struct window *w = window_new(each * (size_t)r->ranks);
	uint8_t *from = room_new(each);
	void *wh = rank_reg(r, w, sizeof(*w) + each * (size_t)r->ranks),
	     *fh = rank_reg(r, from, each);
	for (size_t n = 0; n < RPWI_ARRAY_LEN(sizes); n++) {
		IN_CASE("bytes", sizes[n]);
		for (int to = 0; to < r->ranks; to++) {
			pattern_fill(from, sizes[n], key_of(r->rank, to, n));
			rank_do(r, 0,
				&(struct ncclnet_rma_op){.from = fh,
					.size = sizes[n],
					.to = wh,
					.to_off = at(each * (size_t)r->rank + 1),
					.rank = (uint32_t)to,
					.signals = true,
					.signal = wh,
					.signal_off = 8 * (size_t)r->rank,
					.signal_op = NCCL_RMA_SIGNAL_INCREMENT,
					.value = 77});
		}
		for (int by = 0; by < r->ranks; by++) {
			const uint8_t *p = w->at + each * (size_t)by + 1;
			rank_await(r, &w->signal[by], n + 1, n % 2);
			RANK_TRUE(r, w->signal[by] == n + 1);
			size_t wrong = pattern_wrong(p, sizes[n], key_of(by, r->rank, n));
			if (wrong < sizes[n])
				rank_fail(r, "byte %zu of %zu from rank %d is 0x%02x", wrong,
					sizes[n], by, p[wrong]);
		}
		rank_barrier(r);
	}
	rank_barrier(r);
	RANK_OK(r, r->n.calls->dereg(r->n.table, r->coll, wh));
	RANK_OK(r, r->n.calls->dereg(r->n.table, r->coll, fh));
}

static void each_size_arrives_by_each_table(void **unused) { group_each_table(2, 1, 0, all_sizes); }
static void each_size_arrives_among_four(void **unused) { group_newest(4, 1, 0, all_sizes); }
static void each_size_arrives_among_eight(void **unused) { group_newest(8, 1, 0, all_sizes); }
static void one_rank_alone(void **unused) { group_newest(1, 1, 0, all_sizes); }

/* ---- order ---- */

enum { ROUNDS = 400, PUTS = 12, CELL = 20000 };

/* Puts of small and large sizes, then a strong signal without payload: all are there. Contexts are
 * used in turn, each with a window of its own. */
static void strong(struct rank *r)
{
	int contexts = r->n.gin && r->n.abi == 11 ? 1 : 2, to = (r->rank + 1) % r->ranks;
	int by = (r->rank + r->ranks - 1) % r->ranks;
	size_t each = (size_t)PUTS * CELL, size = sizeof(struct window) + 2 * each;
	struct window *w = window_new(2 * each);
	uint8_t *from = room_new(2 * each);
	void *wh = rank_reg(r, w, size), *fh = rank_reg(r, from, 2 * each);
	struct rng rng = {.state = test_seed(7) * 100 + (uint64_t)r->rank};
	unsigned long rounds = test_rounds(ROUNDS);
	for (unsigned long k = 0; k < rounds; k++) {
		IN_CASE("round", k);
		int c = (int)(k % (unsigned)contexts);
		void *request[PUTS + 1];
		for (unsigned i = 0; i < PUTS; i++) {
			size_t cell = (size_t)c * each + (size_t)i * CELL;
			size_t len =
				rng_one_in(&rng, 3) ? rng_below(&rng, CELL) : rng_below(&rng, 200);
			/* the length is the first thing that the target looks at */
			memcpy(from + cell, &len, 8);
			pattern_fill(from + cell + 8, len < 8 ? 0 : len - 8, k * PUTS + i);
			request[i] = rank_put(r, c,
				&(struct ncclnet_rma_op){.from = fh,
					.from_off = cell,
					.size = RPWI_MAX(len, 8),
					.to = wh,
					.to_off = at(cell),
					.options = !r->n.gin && r->n.abi >= 15 && i % 2,
					.rank = (uint32_t)to});
		}
		request[PUTS] = rank_put(r, c,
			&(struct ncclnet_rma_op){.rank = (uint32_t)to,
				.signals = true,
				.signal = wh,
				.signal_off = 8 * (size_t)c,
				.signal_op = NCCL_RMA_SIGNAL_ADD,
				.value = 3});
		rank_await(r, &w->signal[c], 3 * (k / (unsigned)contexts + 1), k % 3);
		for (unsigned i = 0; i < PUTS; i++) {
			const uint8_t *p = w->at + (size_t)c * each + (size_t)i * CELL;
			size_t len;
			memcpy(&len, p, 8);
			RANK_TRUE(r, len < CELL);
			size_t body = len < 8 ? 0 : len - 8;
			if (pattern_wrong(p + 8, body, k * PUTS + i) < body)
				rank_fail(r,
					"put %u of %zu bytes of round %lu from rank %d is not "
					"there",
					i, len, k, by);
		}
		for (unsigned i = 0; i <= PUTS; i++)
			RANK_OK(r, rank_wait(r, request[i]));
		/* the next round but one uses this place again */
		rank_barrier(r);
	}
}

static void strong_signals_come_last(void **unused) { group_each_table(2, 2, 0, strong); }
static void strong_signals_come_last_among_four(void **unused) { group_newest(4, 2, 0, strong); }

/* A weak signal covers its own payload, whatever is under way before it. */
static void weak(struct rank *r)
{
	enum { BIG = 1 << 20, SMALL = 100, TIMES = 200 };
	struct window *w = window_new(BIG + SMALL);
	uint8_t *from = room_new(BIG + SMALL);
	void *wh = rank_reg(r, w, sizeof(*w) + BIG + SMALL), *fh = rank_reg(r, from, BIG + SMALL);
	uint32_t to = (uint32_t)(r->rank ^ 1);
	for (unsigned k = 0; k < TIMES; k++) {
		struct ncclnet_rma_op big = {
			.from = fh, .size = BIG, .to = wh, .to_off = at(0), .rank = to};
		struct ncclnet_rma_op small = {.from = fh,
			.from_off = BIG,
			.size = SMALL,
			.to = wh,
			.to_off = at(BIG),
			.rank = to,
			.signals = true,
			.weak = k % 2,
			.signal = wh,
			.signal_op = NCCL_RMA_SIGNAL_INCREMENT};
		pattern_fill(from, BIG, k);
		pattern_fill(from + BIG, SMALL, k + 1000);
		void *a = rank_put(r, 0, &big), *b = rank_put(r, 0, &small);
		rank_await(r, &w->signal[0], k + 1, true);
		RANK_TRUE(r, pattern_wrong(w->at + BIG, SMALL, k + 1000) == SMALL);
		if (!small.weak)
			RANK_TRUE(r, pattern_wrong(w->at, BIG, k) == BIG);
		RANK_OK(r, rank_wait(r, a));
		RANK_OK(r, rank_wait(r, b));
		rank_barrier(r);
	}
}
static void weak_signals_cover_their_own(void **unused) { group_newest(2, 1, 0, weak); }

/* ---- sums ---- */

static void sums(struct rank *r)
{
	enum { TIMES = 500 };
	struct window *w = window_new(8);
	uint64_t one = 0, expected = 0;
	void *wh = rank_reg(r, w, sizeof(*w) + 8), *request[TIMES];
	for (unsigned k = 0; k < TIMES; k++)
		for (int by = 0; by < r->ranks; by++)
			expected += k % 3 ? (uint64_t)by * 1000 + k : 1;
	for (int to = 0; to < r->ranks; to++) {
		for (unsigned k = 0; k < TIMES; k++) {
			if (k >= 200) /* as many as may be in flight, and then some */
				RANK_OK(r, rank_wait(r, request[k - 200]));
			request[k] = rank_put(r, 0,
				&(struct ncclnet_rma_op){.rank = (uint32_t)to,
					.signals = true,
					.weak = rank_has_weak(r) && k % 2,
					.signal = wh,
					.signal_off = 8 * 5,
					.signal_op = k % 3 ? NCCL_RMA_SIGNAL_ADD
							   : NCCL_RMA_SIGNAL_INCREMENT,
					.value = (uint64_t)r->rank * 1000 + k});
		}
		for (unsigned k = TIMES - 200; k < TIMES; k++)
			RANK_OK(r, rank_wait(r, request[k]));
	}
	(void)one;
	rank_await(r, &w->signal[5], expected, true);
	rank_barrier(r);
	RANK_TRUE(r, w->signal[5] == expected);
	RANK_TRUE(r, w->signal[4] == 0 && w->signal[6] == 0);
}
static void signals_of_all_ranks_add_up(void **unused)
{
	group_each_table(2, 1, 0, sums);
	group_newest(4, 1, 0, sums);
	group_newest(8, 1, 0, sums);
}

/* ---- gets ---- */

static void gets(struct rank *r)
{
	size_t each = ROOM / 2;
	uint8_t *own = room_new(each), *into = room_new(each);
	void *oh = rank_reg(r, own, each), *ih = rank_reg(r, into, each);
	if (!rank_has_iget(r))
		return;
	pattern_fill(own, each, (uint64_t)r->rank);
	rank_barrier(r);
	for (size_t n = 0; n < RPWI_ARRAY_LEN(sizes); n++)
		for (int by = 0; by < r->ranks; by++) {
			memset(into, 0x5a, each);
			rank_get(r, 0,
				&(struct ncclnet_rma_op){.from = oh,
					.from_off = 16,
					.size = sizes[n],
					.to = ih,
					.to_off = 3,
					.rank = (uint32_t)by});
			RANK_TRUE(r, pattern_wrong_from(into + 3, sizes[n], (uint64_t)by, 16) ==
					     sizes[n]);
			RANK_TRUE(r, into[2] == 0x5a && into[3 + sizes[n]] == 0x5a);
		}
	rank_barrier(r);
}
static void gets_bring_what_is_there(void **unused)
{
	group_each_table(2, 1, 0, gets);
	group_newest(4, 1, 0, gets);
}

/* ---- nobody calls ---- */

static void passive(struct rank *r)
{
	enum { BIG = 700000 };
	struct window *w = window_new(BIG);
	uint8_t *from = room_new(BIG);
	void *wh = rank_reg(r, w, sizeof(*w) + BIG), *fh = rank_reg(r, from, BIG);
	for (unsigned k = 0; k < 20; k++) {
		if (!r->rank) {
			pattern_fill(from, BIG, k);
			rank_do(r, 0,
				&(struct ncclnet_rma_op){.from = fh,
					.size = k % 2 ? BIG : 100,
					.to = wh,
					.to_off = at(0),
					.rank = 1,
					.signals = true,
					.signal = wh,
					.signal_op = NCCL_RMA_SIGNAL_INCREMENT});
			rank_await(r, (uint64_t *)rank_shared(r, 0), k + 1, false);
			continue;
		}
		rank_await(r, &w->signal[0], k + 1, false);
		size_t size = k % 2 ? BIG : 100;
		RANK_TRUE(r, pattern_wrong(w->at, size, k) == size);
		rank_settle(r);
		atomic_fetch_add(rank_shared(r, 0), 1);
	}
	if (rank_has_iget(r) && !r->rank)
		rank_get(r, 0,
			&(struct ncclnet_rma_op){
				.from = wh, .from_off = at(0), .size = BIG, .to = fh, .rank = 1});
	rank_barrier(r);
}
static void a_target_needs_to_call_nothing(void **unused) { group_each_table(2, 1, 0, passive); }

int main(int argc, char **argv)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test(each_size_arrives_by_each_table),
		cmocka_unit_test(each_size_arrives_among_four),
		cmocka_unit_test(each_size_arrives_among_eight),
		cmocka_unit_test(one_rank_alone),
		cmocka_unit_test(strong_signals_come_last),
		cmocka_unit_test(strong_signals_come_last_among_four),
		cmocka_unit_test(weak_signals_cover_their_own),
		cmocka_unit_test(signals_of_all_ranks_add_up),
		cmocka_unit_test(gets_bring_what_is_there),
		cmocka_unit_test(a_target_needs_to_call_nothing),
	};
	return group_tests(argc, argv, all, RPWI_ARRAY_LEN(all));
}
