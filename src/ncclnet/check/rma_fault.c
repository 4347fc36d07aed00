/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_fault.c - operations out of bounds, ranks that do not fit or die, and ends with work in
 * flight. */
#include "ncclnet/check/rma_priv.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { BUSY = 8, BUSY_BYTES = 256 << 10, INSTANCES = 3, SLEEP_US = 200, KILLED_FLIGHT = 8 };

/* ---- beyond ---- */

enum { BOUND = 8192, FILL = 0x11 };
#define WRAPS ((uint64_t)-8)

static const struct bad {
	const char *what;
	bool gets, signals;
	uint64_t from_off, size, to_off, signal_off;
} bad[] = {
	{"a source that ends 4 bytes past its registration", false, false, BOUND - 4, 8, 0, 0},
	{"a source whose offset wraps", false, false, WRAPS, 16, 0, 0},
	{"a destination that ends 4 bytes past its registration", false, false, 0, 8, BOUND - 4, 0},
	{"a destination past its registration", false, false, 0, 8, BOUND + 64, 0},
	{"a destination whose offset wraps", false, false, 0, 16, WRAPS, 0},
	{"a put that is longer than both", false, false, 0, 2 * BOUND, 0, 0},
	{"a signal past its registration", false, true, 0, 0, 0, BOUND},
	{"a signal that ends 4 bytes past its registration", false, true, 0, 0, 0, BOUND - 4},
	{"a get from past its registration", true, false, BOUND - 4, 8, 0, 0},
	{"a get to past its registration", true, false, 0, 8, BOUND - 4, 0},
};

/* Refused at once, by test, or by queryLastError: true. */
static bool is_refused(
	struct conform *c, struct rma_comm *m, const struct ncclnet_rma_op *op, const struct bad *b)
{
	struct rma_side *r = &c->rma->r;
	uint64_t until = rpwi_now_ns() + conform_linger_ms(c) * RPWI_NS_PER_MS;
	void *request;
	int done = 0;
	bool posted = b->gets ? rma_get(r, m, 0, op, &request) : rma_put(r, m, 0, op, &request);
	if (!posted)
		return true;
	while (rpwi_now_ns() < until) {
		if ((!done && rma_test(r, m, request, &done)) || rma_has_failed(r, m) ||
			!rma_progress(r, m))
			return true;
		usleep(SLEEP_US);
	}
	return conform_fail(
		c, "%s is %s", b->what, done ? "done, with success" : "neither done nor an error");
}

/* As long as side 0 is busy with it, the others move; what becomes of their comm is not asked. */
static bool meet_whatever(struct conform *c, struct rma_comm *m)
{
	struct rma_side *r = &c->rma->r;
	uint32_t ticket = side_arrive(c->s);
	for (unsigned looks = 0; !side_arrived(c->s, ticket);) {
		rma_progress(r, m);
		rma_forgive(c);
		if (!c->s->idle(c->s, &looks))
			return false;
	}
	return true;
}

static bool is_untouched(struct conform *c, const struct bad *b, const struct rma_mem *w)
{
	long hurt = rma_mem_hurt(w);
	if (hurt)
		return conform_fail(
			c, "%s: the byte at offset %ld of %zu was written", b->what, hurt, w->size);
	for (size_t i = 0; i < w->size; i++)
		if (w->at[i] != FILL)
			return conform_fail(
				c, "%s: byte %zu of the registration was written", b->what, i);
	return true;
}

static bool try_bad(struct conform *c, const struct bad *b)
{
	struct rma_side *r = &c->rma->r;
	struct rma_comm m;
	struct rma_mem w, from;
	side_step(c->s);
	if (!rma_join(r, &m, rma_ranks(c), 1) || !rma_mem_make(r, &m, &w, BOUND) ||
		!rma_mem_make(r, &m, &from, BOUND))
		return false;
	memset(w.at, FILL, BOUND);
	memset(from.at, FILL, BOUND);
	if (!rma_meet(r, &m))
		return false;
	struct ncclnet_rma_op op = {.from = b->gets ? w.mhandle : from.mhandle,
		.from_off = b->from_off,
		.size = b->size,
		.to = b->gets ? from.mhandle : w.mhandle,
		.to_off = b->to_off,
		.rank = 1,
		.signals = b->signals,
		.signal = b->signals ? w.mhandle : NULL,
		.signal_off = b->signal_off,
		.signal_op = NCCL_RMA_SIGNAL_ADD,
		.value = 0x2222222222222222};
	bool ok = c->s->role || is_refused(c, &m, &op, b);
	rma_forgive(c);
	if (!meet_whatever(c, &m) || !is_untouched(c, b, &w) || !is_untouched(c, b, &from) || !ok)
		return false;
	/* what is broken may say so */
	rma_close(r, &m);
	rma_forgive(c);
	return true;
}

void case_rma_beyond(struct conform *c)
{
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(bad); i++)
		if ((!bad[i].gets || rma_has_get(&c->rma->r)) && !try_bad(c, &bad[i]))
			return;
}

void case_rma_wrong_rank(struct conform *c)
{
	const uint32_t ranks[] = {(uint32_t)rma_ranks(c), UINT32_MAX};
	struct rma_checked *k = c->rma;
	if (!rma_world(c))
		return;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(ranks) && !c->s->role; i++) {
		struct ncclnet_rma_op op = rma_op(c, 0, 8);
		void *request;
		op.rank = ranks[i];
		if (rma_put(&k->r, &k->world, 0, &op, &request))
			conform_quirk(
				c, -1, "a put to rank %u of %d is taken", ranks[i], rma_ranks(c));
		rma_forgive(c);
	}
}

/* ---- two tables ---- */

/* Another table of the plugin, the nearest one in NCCL's order. */
static const char *other_table(const struct rma_side *r)
{
	const char *before = NULL;
	bool past = false;
	for (unsigned i = 0; ncclnet_rma_table_name(i); i++) {
		const char *name = ncclnet_rma_table_name(i);
		char symbol[32], own[32];
		if (!(r->exported >> i & 1))
			continue;
		snprintf(own, sizeof(own), "ncclnet_v%d", r->n.abi);
		snprintf(symbol, sizeof(symbol), "ncclnet_%s", strchr(name, 'v'));
		if (!strcmp(own, symbol)) {
			past = true;
			continue;
		}
		if (past)
			return name;
		before = name;
	}
	return before;
}

/* Side 0 takes another table; all refuse, or all work. */
void case_rma_mixed(struct conform *c)
{
	struct rma_side *r = &c->rma->r, mixed = {.s = c->s};
	struct rma_comm m;
	const char *other = other_table(r);
	int own = r->n.abi;
	if (!other) {
		conform_skip(c, "there is one table");
		return;
	}
	if (!c->s->role) {
		if (!rma_load(&mixed, c->o->path, other) ||
			!rma_init(&mixed, side_logger(c->s), &mixed.instance) ||
			!rma_properties(&mixed))
			return;
		*r = mixed;
	}
	bool joined = rma_join(r, &m, rma_ranks(c), 1);
	if (c->s->waited)
		return;
	rma_forgive(c);
	side_step(c->s);
	atomic_store(&c->s->shared->count[rma_me(c)][1], joined + 1u);
	for (unsigned looks = 0, i = 0; i < (unsigned)rma_ranks(c);)
		if (atomic_load(&c->s->shared->count[i][1]))
			i++;
		else if (!c->s->idle(c->s, &looks))
			return;
	for (int i = 0; i < rma_ranks(c); i++)
		if ((atomic_load(&c->s->shared->count[i][1]) == 2) != joined) {
			conform_fail(c, "rank %d %s, and rank %d %s", rma_me(c),
				joined ? "connects" : "does not", i,
				joined ? "does not" : "connects");
			return;
		}
	if (!joined)
		conform_note(c, "%s and v%d: refused", other, own);
	else if (rma_exchange(c, &m, 4096))
		conform_note(c, "%s and v%d: it works", other, own);
}

/* ---- a rank that dies ---- */

/* Until a call says so: true. Puts go to the last rank, a few at a time. */
static bool ends_in_error(struct conform *c, uint64_t until)
{
	struct rma_checked *k = c->rma;
	struct ncclnet_rma_op op = rma_op(c, rma_ranks(c) - 1, BUSY_BYTES);
	void *request[KILLED_FLIGHT] = {NULL};
	for (unsigned n = 0; rpwi_now_ns() < until; n++) {
		void **slot = &request[n % KILLED_FLIGHT];
		int done = 0;
		if (*slot && rma_test(&k->r, &k->world, *slot, &done))
			return true;
		if (done)
			*slot = NULL;
		if (!*slot && !rma_put(&k->r, &k->world, 0, &op, slot))
			return true;
		if (rma_has_failed(&k->r, &k->world) || !rma_progress(&k->r, &k->world))
			return true;
		if (!done)
			usleep(SLEEP_US);
	}
	return false;
}

void case_rma_killed(struct conform *c)
{
	struct rma_checked *k = c->rma;
	if (!rma_world(c) || !rma_met(c))
		return;
	struct ncclnet_rma_op op = rma_op(c, rma_next(c), BUSY_BYTES);
	void *request;
	for (unsigned i = 0; i < BUSY; i++)
		if (!rma_put(&k->r, &k->world, 0, &op, &request))
			return;
	if (!rma_met(c))
		return;
	if (rma_me(c) == rma_ranks(c) - 1)
		kill(getpid(), SIGKILL);
	bool ended = ends_in_error(c, rpwi_now_ns() + c->s->timeout_ms * RPWI_NS_PER_MS);
	rma_forgive(c);
	if (!ended)
		conform_fail(c,
			"rank %d was killed, and %u ms later rank %d has no error: neither a "
			"request nor queryLastError says so",
			rma_ranks(c) - 1, c->s->timeout_ms, rma_me(c));
	/* To be over in time is all that is asked of these. */
	rma_close(&k->r, &k->world);
	rma_forgive(c);
}

/* ---- ends ---- */

/* No rank goes on, and ends, while another one still posts to it. */
static bool keep_busy(struct conform *c)
{
	struct rma_checked *k = c->rma;
	struct ncclnet_rma_op op = rma_op(c, rma_next(c), BUSY_BYTES);
	void *request;
	for (unsigned i = 0; i < BUSY; i++)
		if (!rma_put(&k->r, &k->world, 0, &op, &request))
			return false;
	return side_meet_spinning(c->s);
}

/* A comm that is made then works. */
static void works_anew(struct conform *c)
{
	struct rma_comm m;
	if (rma_meet(&c->rma->r, NULL) && rma_join(&c->rma->r, &m, rma_ranks(c), RMA_CONTEXTS) &&
		rma_exchange(c, &m, 100000))
		rma_close(&c->rma->r, &m);
}

void case_rma_close_busy(struct conform *c)
{
	if (!rma_world(c) || !rma_met(c) || !keep_busy(c))
		return;
	rma_close(&c->rma->r, &c->rma->world);
	rma_forgive(c);
	works_anew(c);
}

void case_rma_dereg_busy(struct conform *c)
{
	struct rma_checked *k = c->rma;
	if (!rma_world(c) || !rma_met(c) || !keep_busy(c))
		return;
	/* refused or not; requests in flight may fail */
	rma_dereg(&k->r, &k->world, k->source.mhandle);
	rma_dereg(&k->r, &k->world, k->window.mhandle);
	for (unsigned i = 0; i < 1000; i++)
		rma_progress(&k->r, &k->world);
	rma_close(&k->r, &k->world);
	rma_forgive(c);
	works_anew(c);
}

void case_rma_finalize(struct conform *c)
{
	struct rma_side *r = &c->rma->r;
	void *first = r->instance, *instance[INSTANCES];
	for (unsigned i = 0; i < INSTANCES; i++)
		if (!rma_init(r, side_logger(c->s), &instance[i]))
			return;
	for (unsigned i = 0; i < INSTANCES; i++) {
		struct rma_comm m;
		/* The last one works while the others are gone. */
		r->instance = instance[i];
		if (i == INSTANCES - 1 && (!rma_join(r, &m, rma_ranks(c), 1) ||
						  !rma_exchange(c, &m, 4096) || !rma_close(r, &m)))
			return;
		int rc = SIDE_CALL(c->s, "finalize", r->n.calls->finalize(r->n.table, instance[i]));
		if (!side_result(c->s, rc, "finalize"))
			return;
	}
	r->instance = first;
}
