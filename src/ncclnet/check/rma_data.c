/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_data.c - registrations, and that every byte of puts, signals and gets is where it should be
 * and nothing else is. Order is rma_order.c's. */
#include "ncclnet/check/rma_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { REGS = 3, REG_SIZE = 8192, LARGE_MOST = 16 << 20, TIMES = 40, SMALL = 64 };

static const size_t sizes[] = {
	1, 7, 8, 9, 63, 64, 1000, 4095, 4096, 4097, 65535, 65536, 262145, 1000003, RMA_AREA};

static char *source(const struct conform *c) { return c->rma->source.at; }

static bool not_hurt(struct conform *c, const char *what, const struct rma_mem *w)
{
	long at = rma_mem_hurt(w);
	return !at ||
	       conform_fail(c, "%s: the byte at offset %ld of %zu was written", what, at, w->size);
}

/* ---- registrations ---- */

static char *memory(size_t size)
{
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

void case_rma_reg(struct conform *c)
{
	static const uint64_t flags[] = {
		0, NCCL_RMA_FORCE_ORDER, NCCL_RMA_FORCE_ORDER | NCCL_RMA_SIGNAL_NEVER_RESET};
	static const size_t lengths[] = {8, 4096, 100001};
	struct rma_checked *k = c->rma;
	char *at = memory(lengths[2]);
	if (!rma_world(c) || !at)
		return;
	for (unsigned i = 0; i < 9; i++) {
		void *mhandle;
		if (!rma_reg(&k->r, &k->world, at, lengths[i / 3], flags[i % 3], &mhandle) ||
			!rma_met(c) || !rma_dereg(&k->r, &k->world, mhandle) || !rma_met(c))
			return;
	}
	munmap(at, lengths[2]);
}

/* Each rank writes to the next one's `n` registrations, and looks at its own: `mine`, in the order
 * of registration. */
static bool write_each(struct conform *c, void *const *mhandle, char *const *mine, int n)
{
	struct rma_checked *k = c->rma;
	uint64_t word = rma_take(c, 1);
	for (int i = 0; i < n; i++) {
		struct ncclnet_rma_op op = rma_signaled(c, rma_next(c), REG_SIZE, word);
		op.to = mhandle[i];
		op.to_off = 0;
		side_fill(source(c), REG_SIZE, rma_salt(c, rma_me(c), rma_next(c), (uint64_t)i));
		if (!rma_do_put(&k->r, &k->world, 0, &op))
			return false;
	}
	if (!rma_await(&k->r, &k->world, rma_word(c, word), (uint64_t)n) || !rma_met(c))
		return false;
	for (int i = 0; i < n; i++) {
		char what[60];
		snprintf(what, sizeof(what), "registration %d of %d", i + 1, n);
		if (!rma_is(c, what, mine[i], REG_SIZE,
			    rma_salt(c, rma_before(c), rma_me(c), (uint64_t)i)))
			return false;
	}
	return true;
}

static void registrations(struct conform *c, char *const mine[REGS])
{
	struct rma_checked *k = c->rma;
	void *mhandle[REGS];
	for (int i = 0; i < REGS; i++)
		if (!mine[i] || !rma_reg(&k->r, &k->world, mine[i], REG_SIZE, NCCL_RMA_FORCE_ORDER,
					&mhandle[i]))
			return;
	if (!rma_met(c) || !write_each(c, mhandle, mine, REGS) || !rma_met(c))
		return;
	for (int i = 0; i < REGS; i++)
		if (!rma_dereg(&k->r, &k->world, mhandle[i]))
			return;
}

/* Each rank begins with another piece of its memory, so that neither addresses nor arrival order
 * tell which belong together. */
void case_rma_reg_order(struct conform *c)
{
	char *mine[REGS], *all = memory((size_t)REGS * REG_SIZE);
	if (!rma_world(c) || !all)
		return;
	for (int i = 0; i < REGS; i++)
		mine[i] = all + (size_t)((i + rma_me(c)) % REGS) * REG_SIZE;
	registrations(c, mine);
}

/* The same memory: the last of the writers wins, and so does its pattern. */
void case_rma_reg_twice(struct conform *c)
{
	struct rma_checked *k = c->rma;
	void *mhandle[2];
	char *at = memory(REG_SIZE);
	if (!rma_world(c) || !at)
		return;
	for (int i = 0; i < 2; i++)
		if (!rma_reg(&k->r, &k->world, at, REG_SIZE, NCCL_RMA_FORCE_ORDER, &mhandle[i]))
			return;
	for (int i = 0; i < 2; i++) {
		if (!rma_met(c) || !write_each(c, &mhandle[i], &at, 1) || !rma_met(c) ||
			!rma_dereg(&k->r, &k->world, mhandle[i]))
			return;
		rma_renumber(c);
	}
}

void case_rma_reg_type(struct conform *c)
{
	static const int types[] = {0, 64};
	struct rma_checked *k = c->rma;
	char *at = memory(REG_SIZE);
	if (!rma_world(c) || !at)
		return;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(types); i++) {
		void *mhandle;
		int rc = SIDE_CALL(c->s, "regMrSym",
			k->r.n.calls->reg(k->r.n.table, k->world.coll, at, REG_SIZE, types[i],
				NCCL_RMA_FORCE_ORDER, &mhandle));
		if (!rc) {
			conform_fail(c, "it takes memory of type %d", types[i]);
			return;
		}
	}
}

/* ---- puts ---- */

/* The area that `by` writes to has the pattern in `size` bytes, and is untouched behind them. */
static bool area_is(struct conform *c, int by, size_t size, uint64_t n)
{
	const unsigned char *at = (unsigned char *)c->rma->window.at + rma_area(by);
	char what[60];
	snprintf(what, sizeof(what), "a put of %zu bytes from rank %d", size, by);
	if (!rma_is(c, what, at, size, rma_salt(c, by, rma_me(c), n)))
		return false;
	return size == RMA_AREA || !at[size] ||
	       conform_fail(c, "%s: the byte behind it was written", what);
}

static bool put_one_size(struct conform *c, size_t size, uint64_t n, uint64_t word)
{
	struct rma_checked *k = c->rma;
	memset(k->window.at + rma_area(0), 0, (size_t)rma_ranks(c) * RMA_AREA);
	if (!rma_met(c))
		return false;
	for (int to = 0; to < rma_ranks(c); to++) {
		struct ncclnet_rma_op op = rma_signaled(c, to, size, word);
		side_step(c->s);
		op.from_off = n % 3;
		side_fill(source(c) + op.from_off, size, rma_salt(c, rma_me(c), to, n));
		if (to != rma_me(c) &&
			!rma_do_put(&k->r, &k->world, (int)n % k->world.contexts, &op))
			return false;
	}
	if (!rma_await(&k->r, &k->world, rma_word(c, word), (n + 1) * (uint64_t)(rma_ranks(c) - 1)))
		return false;
	for (int by = 0; by < rma_ranks(c); by++)
		if (by != rma_me(c) && !area_is(c, by, size, n))
			return false;
	return rma_met(c);
}

void case_rma_put(struct conform *c)
{
	if (!rma_world(c))
		return;
	uint64_t word = rma_take(c, 1);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(sizes); i++)
		if (!put_one_size(c, sizes[i], i, word))
			return;
	if (not_hurt(c, "the window", &c->rma->window))
		not_hurt(c, "the source", &c->rma->source);
}

void case_rma_large(struct conform *c)
{
	size_t size = RPWI_MIN(c->o->size_most, (size_t)LARGE_MOST);
	if (rma_world(c))
		rma_exchange(c, &c->rma->world, size);
}

void case_rma_self(struct conform *c)
{
	struct rma_checked *k = c->rma;
	if (!rma_world(c))
		return;
	uint64_t word = rma_take(c, 1);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(sizes); i++) {
		struct ncclnet_rma_op op = rma_signaled(c, rma_me(c), sizes[i], word);
		side_fill(source(c), sizes[i], rma_salt(c, rma_me(c), rma_me(c), i));
		if (!rma_do_put(&k->r, &k->world, 0, &op) ||
			!rma_await(&k->r, &k->world, rma_word(c, word), i + 1))
			return;
		if (!rma_is(c, "a put to itself", k->window.at + op.to_off, sizes[i],
			    rma_salt(c, rma_me(c), rma_me(c), i)))
			return;
	}
	rma_met(c);
}

/* Puts, and gets where there are some, of the first and the last bytes of a registration; the
 * signal is its last word. */
static bool both_ends(
	struct conform *c, struct rma_mem *w, struct rma_mem *from, size_t size, uint64_t count)
{
	struct rma_checked *k = c->rma;
	const uint64_t last = w->size - sizeof(uint64_t);
	for (unsigned i = 0; i < 4; i++) {
		uint64_t from_off = i & 1 ? from->size - size : 0;
		uint64_t to_off = i & 2 ? last - size : 0;
		struct ncclnet_rma_op op = rma_signaled(c, rma_next(c), size, 0);
		op.from = from->mhandle;
		op.from_off = from_off;
		op.to = op.signal = w->mhandle;
		op.to_off = to_off;
		op.signal_off = last;
		side_fill(from->at + from_off, size, rma_salt(c, rma_me(c), rma_next(c), i));
		if (!rma_do_put(&k->r, &k->world, 0, &op) ||
			!rma_await(&k->r, &k->world, (uint64_t *)(void *)(w->at + last),
				count * 4 + i + 1) ||
			!rma_is(c, i & 2 ? "a put to the end" : "a put to the start",
				w->at + to_off, size, rma_salt(c, rma_before(c), rma_me(c), i)) ||
			!rma_met(c))
			return false;
	}
	if (!rma_has_get(&k->r))
		return true;
	side_fill(w->at, w->size - sizeof(uint64_t), rma_salt(c, rma_me(c), 0, 9));
	if (!rma_met(c))
		return false;
	for (unsigned i = 0; i < 2; i++) {
		struct ncclnet_rma_op op = {.from = w->mhandle,
			.size = w->size - sizeof(uint64_t),
			.to = from->mhandle,
			.to_off = i ? from->size - (w->size - sizeof(uint64_t)) : 0,
			.rank = (uint32_t)rma_next(c)};
		if (!rma_do_get(&k->r, &k->world, 0, &op) ||
			!rma_is(c, "a get of all", from->at + op.to_off, op.size,
				rma_salt(c, rma_next(c), 0, 9)))
			return false;
	}
	return rma_met(c);
}

void case_rma_ends(struct conform *c)
{
	static const size_t pieces[] = {8, 1, 100};
	struct rma_checked *k = c->rma;
	struct rma_mem w, from;
	if (!rma_world(c) || !rma_mem_make(&k->r, &k->world, &w, 4096 + sizeof(uint64_t)) ||
		!rma_mem_make(&k->r, &k->world, &from, 5000) || !rma_met(c))
		return;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(pieces); i++) {
		*(uint64_t *)(void *)(w.at + w.size - sizeof(uint64_t)) = 4 * i;
		if (!rma_met(c) || !both_ends(c, &w, &from, pieces[i], i))
			return;
	}
	if (not_hurt(c, "the window", &w) && not_hurt(c, "the source", &from) &&
		rma_mem_end(&k->r, &k->world, &from))
		rma_mem_end(&k->r, &k->world, &w);
}

/* ---- signals ---- */

void case_rma_signal_only(struct conform *c)
{
	struct rma_checked *k = c->rma;
	if (!rma_world(c))
		return;
	uint64_t word = rma_take(c, 1);
	for (unsigned i = 0; i < TIMES; i++) {
		struct ncclnet_rma_op op = rma_signal(c, rma_next(c), word);
		if (i % 2) { /* no bytes, of memory that there is */
			op.from = k->source.mhandle;
			op.to = k->window.mhandle;
		}
		if (!rma_do_put(&k->r, &k->world, (int)i % k->world.contexts, &op) ||
			!rma_await(&k->r, &k->world, rma_word(c, word), i + 1))
			return;
	}
	if (rma_met(c) && *rma_word(c, word) != TIMES)
		conform_fail(
			c, "%d signals make %llu", TIMES, (unsigned long long)*rma_word(c, word));
}

void case_rma_signals(struct conform *c)
{
	static const struct {
		uint32_t op;
		uint64_t value, adds;
	} steps[] = {{NCCL_RMA_SIGNAL_INCREMENT, 77, 1}, {NCCL_RMA_SIGNAL_ADD, 5, 5},
		{NCCL_RMA_SIGNAL_ADD, 3ull << 32, 3ull << 32}, {NCCL_RMA_SIGNAL_INCREMENT, 0, 1},
		{NCCL_RMA_SIGNAL_ADD, 0xffffffff, 0xffffffff}};
	struct rma_checked *k = c->rma;
	if (!rma_world(c))
		return;
	uint64_t word = rma_take(c, 3) + sizeof(uint64_t), sum = 0;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(steps); i++) {
		struct ncclnet_rma_op op = rma_signaled(c, rma_next(c), i % 2 ? 100 : 0, word);
		op.signal_op = steps[i].op;
		op.value = steps[i].value;
		sum += steps[i].adds;
		if (!rma_do_put(&k->r, &k->world, 0, &op))
			return;
		if (!rma_await(&k->r, &k->world, rma_word(c, word), sum)) {
			conform_fail(c, "after %s of 0x%llx the word is 0x%llx, not 0x%llx",
				steps[i].op == NCCL_RMA_SIGNAL_ADD ? "an add" : "an increment",
				(unsigned long long)steps[i].value,
				(unsigned long long)*rma_word(c, word), (unsigned long long)sum);
			return;
		}
		if (!rma_met(c))
			return;
		if (*rma_word(c, word) != sum) {
			conform_fail(c, "after %s of 0x%llx the word is 0x%llx, not 0x%llx",
				steps[i].op == NCCL_RMA_SIGNAL_ADD ? "an add" : "an increment",
				(unsigned long long)steps[i].value,
				(unsigned long long)*rma_word(c, word), (unsigned long long)sum);
			return;
		}
		if (!rma_met(c))
			return;
	}
	if (*rma_word(c, word - sizeof(uint64_t)) || *rma_word(c, word + sizeof(uint64_t)))
		conform_fail(c, "the word beside the signal was written");
}

/* VA signals: the payload goes to one registration, the signal to one of its own. */
void case_rma_signal_window(struct conform *c)
{
	struct rma_checked *k = c->rma;
	struct rma_mem w;
	if (!rma_world(c) || !rma_mem_make(&k->r, &k->world, &w, 4096) || !rma_met(c))
		return;
	struct ncclnet_rma_op op = rma_signaled(c, rma_next(c), 1000, 0);
	op.signal = w.mhandle;
	op.signal_off = 8 * (uint64_t)rma_me(c);
	side_fill(source(c), op.size, rma_salt(c, rma_me(c), rma_next(c), 0));
	if (!rma_do_put(&k->r, &k->world, 0, &op) ||
		!rma_await(&k->r, &k->world, (uint64_t *)(void *)w.at + rma_before(c), 1) ||
		!rma_is(c, "its payload", k->window.at + rma_area(rma_before(c)), op.size,
			rma_salt(c, rma_before(c), rma_me(c), 0)) ||
		!rma_met(c))
		return;
	rma_mem_end(&k->r, &k->world, &w);
}

/* ---- the source, and gets ---- */

/* As soon as a put is done, its source is something else. */
void case_rma_source(struct conform *c)
{
	static const size_t lengths[] = {8, 200, 4096, 65536, RMA_AREA};
	struct rma_checked *k = c->rma;
	if (!rma_world(c))
		return;
	uint64_t word = rma_take(c, 1);
	for (unsigned i = 0; i < TIMES; i++) {
		size_t size = lengths[i % RPWI_ARRAY_LEN(lengths)];
		struct ncclnet_rma_op op = rma_op(c, rma_next(c), size),
				      signal = rma_signal(c, rma_next(c), word);
		side_fill(source(c), size, rma_salt(c, rma_me(c), rma_next(c), i));
		if (!rma_do_put(&k->r, &k->world, 0, &op))
			return;
		memset(source(c), 0xee, size);
		if (!rma_do_put(&k->r, &k->world, 0, &signal) ||
			!rma_await(&k->r, &k->world, rma_word(c, word), i + 1) ||
			!rma_is(c, "a put whose source was overwritten once it was done",
				k->window.at + rma_area(rma_before(c)), size,
				rma_salt(c, rma_before(c), rma_me(c), i)) ||
			!rma_met(c))
			return;
	}
}

void case_rma_get(struct conform *c)
{
	struct rma_checked *k = c->rma;
	if (!rma_world(c))
		return;
	side_fill(k->window.at + rma_area(0), RMA_AREA, rma_salt(c, rma_me(c), 0, 0));
	if (!rma_met(c))
		return;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(sizes); i++)
		for (int by = 0; by < rma_ranks(c); by++) {
			struct ncclnet_rma_op op = {.from = k->window.mhandle,
				.from_off = rma_area(0),
				.size = sizes[i],
				.to = k->source.mhandle,
				.to_off = i % 5,
				.rank = (uint32_t)by};
			side_step(c->s);
			memset(source(c), 0x5a, k->source.size);
			if (!rma_do_get(&k->r, &k->world, (int)i % k->world.contexts, &op) ||
				!rma_is(c, "a get", source(c) + op.to_off, sizes[i],
					rma_salt(c, by, 0, 0)))
				return;
			if (source(c)[op.to_off + sizes[i]] != 0x5a) {
				conform_fail(c, "a get of %zu bytes wrote the byte behind them",
					sizes[i]);
				return;
			}
		}
	rma_met(c);
}

/* NCCL_RMA_MORE, and then nothing. */
void case_rma_more(struct conform *c)
{
	struct rma_checked *k = c->rma;
	if (!rma_world(c))
		return;
	uint64_t word = rma_take(c, 1);
	for (unsigned i = 0; i < TIMES; i++) {
		struct ncclnet_rma_op op = rma_signaled(c, rma_next(c), i % 2 ? SMALL : 0, word);
		op.options = NCCL_RMA_MORE;
		side_fill(source(c), op.size, rma_salt(c, rma_me(c), rma_next(c), i));
		if (!rma_do_put(&k->r, &k->world, 0, &op) ||
			!rma_await(&k->r, &k->world, rma_word(c, word), i + 1) ||
			!rma_is(c, "a put with more to follow",
				k->window.at + rma_area(rma_before(c)), op.size,
				rma_salt(c, rma_before(c), rma_me(c), i)) ||
			!rma_met(c))
			return;
	}
}
