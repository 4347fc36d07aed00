/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_rma.c - the two processes of `ropeway plugin bench --rma`. Side 1 puts into side 0's
 * memory, and side 0 gets from side 1's. On each context up to UNDER_WAY operations are in flight,
 * tested in their order, one thread for all contexts.
 *
 * Side 0 is timed: of puts from the moment when both sides have met until the last signal is there
 * (a strong one of each context after its puts, or each put's own); of gets until the flush that
 * follows the last one is done. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/perf/hist.h"
#include "cli/plugin/bench.h"
#include "ncclnet/drive/rma.h"

enum { VERIFY_TIMES = 3, SIGNAL_BYTES = 4096 };

struct rma_bench {
	struct rma_side r;
	struct rma_comm m;
	const struct options *o;
	unsigned index;
	/* window: SIGNAL_BYTES of words, a cache line for each context, then `bytes` */
	struct rma_mem window, source;
	size_t bytes;
	uint64_t signals[RMA_BENCH_CONTEXTS], back; /* that have come so far, or were sent */
	uint64_t number;
	struct perf_hist *hist;
};

struct lane {
	uint64_t posted, done;
	void *request[UNDER_WAY];
};

static uint64_t word_at(unsigned context) { return 64 * (uint64_t)context; }
static const uint64_t *word(const struct rma_bench *b, unsigned context)
{
	return (uint64_t *)(void *)(b->window.at + word_at(context));
}

/* How many buffers a context has in turn. */
static unsigned buffers(const struct rma_bench *b, uint64_t size)
{
	size_t each = b->bytes / RMA_BENCH_CONTEXTS / bench_pitch(size);
	return (unsigned)RPWI_MAX(RPWI_MIN(each, (size_t)b->o->buffers), (size_t)1);
}
static uint64_t place(const struct rma_bench *b, unsigned context, uint64_t i, uint64_t size)
{
	return (uint64_t)context * (b->bytes / RMA_BENCH_CONTEXTS) +
	       i % buffers(b, size) * bench_pitch(size);
}

bool bench_rma_load(
	struct rma_side *r, const struct options *o, unsigned index, struct result *found)
{
	struct side *s = r->s;
	if (!rma_load(r, o->path[index], o->table) || !rma_init(r, side_logger(s), &r->instance))
		return false;
	const struct ncclnet_rma *n = &r->n;
	found->abi = n->abi;
	snprintf(found->table, sizeof(found->table), "%s v%d", n->gin ? "GIN" : "RMA", n->abi);
	snprintf(found->name, sizeof(found->name), "%s", n->calls->name(n->table));
	int rc = SIDE_CALL(s, "devices", n->calls->devices(n->table, &found->devices));
	if (!side_result(s, rc, "devices"))
		return false;
	if (s->device >= found->devices)
		return side_fail(s, "devices gives %d devices: device %d is not among them",
			found->devices, s->device);
	if (!rma_properties(r))
		return false;
	snprintf(found->device, sizeof(found->device), "%s", r->p.name ? r->p.name : "");
	return true;
}

static bool open_all(struct rma_bench *b, struct result *r)
{
	return bench_rma_load(&b->r, b->o, b->index, r) &&
	       rma_join(&b->r, &b->m, 2, RMA_BENCH_CONTEXTS) &&
	       rma_mem_make(&b->r, &b->m, &b->window, SIGNAL_BYTES + b->bytes) &&
	       rma_mem_make(&b->r, &b->m, &b->source, b->bytes) && rma_meet(&b->r, &b->m);
}

static struct ncclnet_rma_op put_of(
	const struct rma_bench *b, unsigned context, uint64_t i, uint64_t size, bool signals)
{
	uint64_t at = place(b, context, i, size);
	return (struct ncclnet_rma_op){.from = size ? b->source.mhandle : NULL,
		.from_off = at,
		.size = size,
		.to = size ? b->window.mhandle : NULL,
		.to_off = SIGNAL_BYTES + at,
		.rank = b->m.rank == 0,
		.signals = signals,
		.signal = signals ? b->window.mhandle : NULL,
		.signal_off = word_at(context),
		.signal_op = NCCL_RMA_SIGNAL_INCREMENT,
		.value = 1};
}
static struct ncclnet_rma_op get_of(
	const struct rma_bench *b, unsigned context, uint64_t i, uint64_t size)
{
	uint64_t at = place(b, context, i, size);
	return (struct ncclnet_rma_op){.from = b->window.mhandle,
		.from_off = SIGNAL_BYTES + at,
		.size = size,
		.to = b->source.mhandle,
		.to_off = at,
		.rank = b->m.rank == 0};
}

/* ---- verifying ---- */

static bool is(struct rma_bench *b, const char *what, const char *at, uint64_t size, uint64_t salt)
{
	size_t wrong = side_wrong(at, size, salt);
	return wrong == size ||
	       side_fail(b->r.s, "a %s of %zu bytes: byte %zu is wrong", what, (size_t)size, wrong);
}

static bool verify_context(struct rma_bench *b, unsigned context, uint64_t i, uint64_t size)
{
	uint64_t at = place(b, context, i, size), salt = ++b->number;
	struct ncclnet_rma_op put = put_of(b, context, i, size, true),
			      get = get_of(b, context, i, size);
	if (b->m.rank) {
		side_fill(b->source.at + at, size, salt);
		if (!rma_do_put(&b->r, &b->m, (int)context, &put))
			return false;
		side_fill(b->window.at + SIGNAL_BYTES + at, size, salt + 1);
	} else if (!rma_await(&b->r, &b->m, word(b, context), ++b->signals[context]) ||
		   !is(b, "put", b->window.at + SIGNAL_BYTES + at, size, salt)) {
		return false;
	}
	b->number++;
	if (!rma_meet(&b->r, &b->m))
		return false;
	if (!b->m.rank && rma_has_get(&b->r) &&
		(!rma_do_get(&b->r, &b->m, (int)context, &get) ||
			!is(b, "get", b->source.at + at, size, salt + 1)))
		return false;
	return rma_meet(&b->r, &b->m);
}

static bool verify(struct rma_bench *b, const struct job *j)
{
	for (unsigned context = 0; context < (unsigned)b->m.contexts; context++)
		for (uint64_t i = 0; i < VERIFY_TIMES; i++) {
			side_step(b->r.s);
			if (!verify_context(b, context, i, j->size))
				return false;
		}
	return true;
}

/* ---- rates ---- */

static inline int post(struct rma_bench *b, unsigned context, struct lane *l, const struct job *j)
{
	void **request = &l->request[l->posted % UNDER_WAY];
	bool ok;
	if (j->kind == GET) {
		struct ncclnet_rma_op op = get_of(b, context, l->posted, j->size);
		ok = rma_get(&b->r, &b->m, (int)context, &op, request);
	} else {
		bool last = j->kind == STREAM && l->posted + 1 == j->n;
		struct ncclnet_rma_op op =
			put_of(b, context, l->posted, j->size, j->kind == SIGNAL || last);
		ok = rma_put(&b->r, &b->m, (int)context, &op, request);
	}
	l->posted += ok;
	return ok ? 1 : -1;
}

/* Negative: an error; else whether anything moved. */
static inline int advance(
	struct rma_bench *b, unsigned context, struct lane *l, const struct job *j)
{
	int moved = 0, done = 0;
	if (l->posted < j->n && l->posted - l->done < b->o->under_way &&
		(moved = post(b, context, l, j)) < 0)
		return -1;
	if (l->done == l->posted)
		return moved;
	int rc = rma_test(&b->r, &b->m, l->request[l->done % UNDER_WAY], &done);
	if (!side_result(b->r.s, rc, "test"))
		return -1;
	l->done += done != 0;
	return moved | (done != 0);
}

static inline bool pause_looking(struct rma_bench *b, unsigned *looks)
{
	if (!rma_progress(&b->r, &b->m))
		return false;
	if (++*looks % IDLE_LOOKS)
		return true;
	sched_yield();
	if (*looks % 65536)
		return true;
	return rpwi_now_ns() < b->r.s->until ||
	       side_fail(b->r.s, "not done after %u ms", b->r.s->timeout_ms);
}

static bool drive(struct rma_bench *b, const struct job *j, unsigned contexts)
{
	struct lane lane[RMA_BENCH_CONTEXTS] = {{0}};
	unsigned looks = 0;
	for (unsigned left = contexts; left;) {
		int moved = 0;
		left = 0;
		for (unsigned i = 0; i < contexts; i++) {
			int rc = advance(b, i, &lane[i], j);
			if (rc < 0)
				return false;
			moved |= rc;
			left += lane[i].done < j->n;
		}
		if (!moved && !pause_looking(b, &looks))
			return false;
	}
	return true;
}

static bool await_all(struct rma_bench *b, unsigned contexts)
{
	unsigned looks = 0;
	for (unsigned i = 0; i < contexts;)
		if (__atomic_load_n(word(b, i), __ATOMIC_ACQUIRE) >= b->signals[i])
			i++;
		else if (!pause_looking(b, &looks))
			return false;
	return true;
}

static bool flush(struct rma_bench *b, unsigned contexts)
{
	for (unsigned i = 0; i < contexts; i++) {
		void *request;
		if (!rma_flush(&b->r, &b->m, (int)i, b->source.mhandle, 1, &request) ||
			(request && !rma_wait(&b->r, &b->m, request)))
			return false;
	}
	return true;
}

static bool stream(struct rma_bench *b, const struct job *j, struct result *r)
{
	/* what has fewer contexts moves as much */
	unsigned contexts = RPWI_MAX(1u, RPWI_MIN(j->contexts, (unsigned)b->m.contexts));
	struct job own = *j;
	own.n = j->n * j->contexts / contexts;
	for (unsigned i = 0; i < contexts; i++)
		b->signals[i] += j->kind == SIGNAL ? own.n : j->kind == STREAM;
	if (j->kind == GET && !rma_has_get(&b->r))
		return side_fail(b->r.s, "GIN v%d has no iget", b->r.n.abi);
	if (!rma_meet(&b->r, &b->m))
		return false;
	uint64_t begin = rpwi_now_ns();
	bool moves = (b->m.rank == 0) == (j->kind == GET);
	if (moves && !drive(b, &own, contexts))
		return false;
	if (moves && j->kind == GET && !flush(b, contexts))
		return false;
	if (!moves && j->kind != GET && !await_all(b, contexts))
		return false;
	r->seconds = (double)(rpwi_now_ns() - begin) / 1e9;
	return rma_meet(&b->r, &b->m);
}

/* ---- round trips ---- */

static bool answer(struct rma_bench *b, uint64_t expected)
{
	unsigned looks = 0;
	while (__atomic_load_n(word(b, 0), __ATOMIC_ACQUIRE) < expected)
		if (!pause_looking(b, &looks))
			return false;
	return true;
}

static bool trips(struct rma_bench *b, const struct job *j, struct result *r)
{
	memset(b->hist, 0, sizeof(*b->hist));
	struct ncclnet_rma_op op = put_of(b, 0, 0, j->size, true);
	uint64_t *own = b->m.rank ? &b->back : &b->signals[0];
	if (!rma_meet(&b->r, &b->m))
		return false;
	for (uint64_t i = 0; i < j->n; i++) {
		uint64_t begin = rpwi_now_ns();
		if (!b->m.rank && !answer(b, ++*own))
			return false;
		if (!rma_do_put(&b->r, &b->m, 0, &op))
			return false;
		if (b->m.rank && !answer(b, ++*own))
			return false;
		perf_hist_add(
			b->hist, (uint32_t)RPWI_MIN(rpwi_now_ns() - begin, (uint64_t)UINT32_MAX));
	}
	r->seconds = perf_hist_at(b->hist, 0.5) / 2e9;
	return rma_meet(&b->r, &b->m);
}

static bool run(void *arg, const struct job *j, struct result *r)
{
	struct rma_bench *b = arg;
	switch (j->kind) {
	case OPEN:
		return open_all(b, r);
	case VERIFY:
		return verify(b, j);
	case TRIPS:
		return trips(b, j, r);
	default:
		return stream(b, j, r);
	}
}

void bench_rma_body(struct side *s, void *arg)
{
	const struct bench_start *start = arg;
	struct rma_bench *b = calloc(1, sizeof(*b));
	if (!b)
		return;
	*b = (struct rma_bench){
		.r.s = s, .o = start->o, .index = start->index, .bytes = start->bytes};
	b->hist = calloc(1, sizeof(*b->hist));
	if (b->hist)
		bench_jobs(s, start, run, b);
	if (!s->why)
		rma_close(&b->r, &b->m);
	free(b->hist);
	free(b);
}
