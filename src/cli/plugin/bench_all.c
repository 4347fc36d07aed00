/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_all.c - the ranks of `ropeway plugin bench --alltoall`: in an exchange each rank sends a
 * block to every other one, and begins the next exchange when it has sent all of its own and
 * received all of theirs. With a network plugin by isend and irecv, one comm for each direction of
 * a pair; with --rma by puts, each with a signal in a word that only its sender adds to.
 *
 * A rank is at most one exchange ahead of any other, so puts go to two sets of blocks in turn; a
 * receive is posted when its block is free. Rank 0 is timed. */
#include <sched.h>
#include <stdlib.h>

#include "cli/plugin/bench.h"

enum { VERIFY_TIMES = 4, SIGNAL_BYTES = 4096, SETS = 2 };
_Static_assert(PAIR_SIDES_MAX * 64 <= SIGNAL_BYTES, "a cache line for each rank");

/* The ranks that are so many ahead and behind. */
struct peer {
	int to, from;
	struct link link;  /* send, to one; recv, from the other */
	void *mhandle[2];  /* of the memory, with send and with recv */
	void *request[2];  /* of a put only the first */
	unsigned open;     /* requests that are not done, a bit each */
	uint64_t *arrived; /* --rma: the word of `from` */
};
struct all {
	struct side *s;
	const struct options *o;
	unsigned index;
	int rank, peers;
	size_t pitch;
	uint64_t exchanges; /* so far */
	struct peer peer[PAIR_SIDES_MAX - 1];
	char *out, *in; /* blocks by rank; `in` of SETS sets */
	struct rma_side r;
	struct rma_comm m;
	struct rma_mem window, source; /* --rma; window: SIGNAL_BYTES of words, then `in` */
	struct end memory;             /* without: `out`, then `in` */
};

static size_t blocks(const struct all *a) { return (size_t)(a->peers + 1) * a->pitch; }
static size_t of_rank(const struct all *a, int rank) { return (size_t)rank * a->pitch; }
/* The set whose turn it is. */
static size_t set(const struct all *a) { return a->exchanges % SETS * blocks(a); }

static bool meet(struct all *a)
{
	return a->o->table ? rma_meet(&a->r, &a->m) : side_meet_spinning(a->s);
}

/* Ranks may be more than cores. */
static inline bool pause_looking(struct all *a, unsigned *looks)
{
	if (a->o->table && !rma_progress(&a->r, &a->m))
		return false;
	sched_yield();
	if (++*looks % 1024 || rpwi_now_ns() < a->s->until)
		return true;
	return side_fail(a->s, "not done after %u ms", a->s->timeout_ms);
}

/* ---- opening ---- */

static bool rma_open(struct all *a, struct result *r)
{
	if (!bench_rma_load(&a->r, a->o, a->index, r) || !rma_join(&a->r, &a->m, a->peers + 1, 1) ||
		!rma_mem_make(&a->r, &a->m, &a->window, SIGNAL_BYTES + SETS * blocks(a)) ||
		!rma_mem_make(&a->r, &a->m, &a->source, blocks(a)))
		return false;
	a->out = a->source.at;
	a->in = a->window.at + SIGNAL_BYTES;
	for (int i = 0; i < a->peers; i++)
		a->peer[i].arrived = (uint64_t *)(void *)(a->window.at + 64 * a->peer[i].from);
	return rma_meet(&a->r, &a->m);
}

/* One step of a connection; either end may wait for the other one's rank. */
static bool net_step(struct all *a, struct link *l)
{
	struct side *s = a->s;
	int rc = 0;
	if (!l->send)
		rc = SIDE_CALL(s, "connect",
			ncclnet_connect(s->n, s->ctx, s->device, l->handle, &l->send, &l->device));
	if (!side_result(s, rc, "connect"))
		return false;
	if (!l->recv)
		rc = SIDE_CALL(s, "accept", ncclnet_accept(s->n, l->listen, &l->recv, &l->device));
	return side_result(s, rc, "accept");
}

static bool net_link(struct all *a, struct peer *p)
{
	struct side *s = a->s;
	struct link *l = &p->link;
	unsigned looks = 0;
	l->device = &l->device_memory;
	if (!link_listen(s, l))
		return false;
	memcpy(s->shared->note[a->rank], l->handle, s->n->handle_bytes);
	if (!side_meet_spinning(s))
		return false;
	memcpy(l->handle, s->shared->note[p->to], s->n->handle_bytes);
	while (net_step(a, l) && (!l->send || !l->recv))
		if (!s->idle(s, &looks))
			return side_fail(s, "no comm to rank %d, or from rank %d", p->to, p->from);
	return !s->why && side_meet_spinning(s);
}

static bool net_reg(struct all *a, void *comm, void **mhandle)
{
	size_t bytes = a->memory.bytes;
	int rc = SIDE_CALL(a->s, "regMr",
		ncclnet_reg(a->s->n, comm, a->memory.memory, bytes, NCCL_PTR_HOST, mhandle));
	return side_result(a->s, rc, "regMr of %zu bytes of host memory", bytes);
}

/* The memory is first registered with one comm, as that of an end. */
static bool net_open(struct all *a, struct result *r)
{
	if (!bench_net_load(a->s, a->o, a->index, r))
		return false;
	for (int i = 0; i < a->peers; i++)
		if (!net_link(a, &a->peer[i]))
			return false;
	a->memory = (struct end){.link.send = a->peer[0].link.send, .sends = true};
	if (!end_memory(a->s, &a->memory, (1 + SETS) * blocks(a)))
		return false;
	a->out = a->memory.memory;
	a->in = a->out + blocks(a);
	for (int i = 0; i < a->peers; i++)
		if (!net_reg(a, a->peer[i].link.send, &a->peer[i].mhandle[0]) ||
			!net_reg(a, a->peer[i].link.recv, &a->peer[i].mhandle[1]))
			return false;
	return side_meet_spinning(a->s);
}

/* ---- one exchange ---- */

static bool rma_begin(struct all *a, struct peer *p, size_t size)
{
	struct ncclnet_rma_op op = {.from = a->source.mhandle,
		.from_off = of_rank(a, p->to),
		.size = size,
		.to = a->window.mhandle,
		.to_off = SIGNAL_BYTES + set(a) + of_rank(a, a->rank),
		.rank = (uint32_t)p->to,
		.signals = true,
		.signal = a->window.mhandle,
		.signal_off = 64 * (uint64_t)a->rank,
		.signal_op = NCCL_RMA_SIGNAL_INCREMENT,
		.value = 1};
	p->open = 1;
	return rma_put(&a->r, &a->m, 0, &op, &p->request[0]);
}

/* A request that is NULL is to be asked for again. */
static bool net_post(struct all *a, struct peer *p, size_t size, int receives)
{
	struct end e = {.link = p->link, .sends = !receives, .mhandle = p->mhandle[receives]};
	char *at = receives ? a->in + set(a) + of_rank(a, p->from) : a->out + of_rank(a, p->to);
	int rc = end_post(a->s, &e, at, size, 0, &p->request[receives]);
	return side_result(a->s, rc, "%s of %zu bytes", end_call(&e), size);
}

static bool net_begin(struct all *a, struct peer *p, size_t size)
{
	p->open = 3;
	p->request[0] = p->request[1] = NULL;
	return net_post(a, p, size, 1) && net_post(a, p, size, 0);
}

/* Negative: an error; else whether one was done. */
static int net_look(struct all *a, struct peer *p, size_t size)
{
	int moved = 0;
	for (int i = 0; i < 2; i++) {
		int done = 0, sizes[NCCL_NET_GROUP_MAX] = {0};
		if (!(p->open >> i & 1))
			continue;
		if (!p->request[i] && !net_post(a, p, size, i))
			return -1;
		int rc = p->request[i] ? end_test(a->s, p->request[i], &done, sizes) : 0;
		if (!side_result(a->s, rc, "test of %zu bytes", size))
			return -1;
		if (done && i && (size_t)sizes[0] != size) {
			side_fail(a->s, "test says that %d bytes came, %zu were sent", sizes[0],
				size);
			return -1;
		}
		if (done)
			p->open &= ~(1u << i);
		moved |= done;
	}
	return moved;
}

static int rma_look(struct all *a, struct peer *p)
{
	int done = 0, rc = p->open ? rma_test(&a->r, &a->m, p->request[0], &done) : 0;
	if (!side_result(a->s, rc, "test"))
		return -1;
	if (done)
		p->open = 0;
	return done != 0;
}

static bool is_over(const struct all *a, const struct peer *p)
{
	return !p->open &&
	       (!p->arrived || __atomic_load_n(p->arrived, __ATOMIC_ACQUIRE) > a->exchanges);
}

static bool exchange(struct all *a, size_t size)
{
	unsigned looks = 0;
	for (int i = 0; i < a->peers; i++)
		if (!(a->o->table ? rma_begin(a, &a->peer[i], size)
				  : net_begin(a, &a->peer[i], size)))
			return false;
	for (int left = a->peers; left;) {
		int moved = 0;
		left = 0;
		for (int i = 0; i < a->peers; i++) {
			struct peer *p = &a->peer[i];
			int rc = a->o->table ? rma_look(a, p) : net_look(a, p, size);
			if (rc < 0)
				return false;
			moved |= rc;
			left += !is_over(a, p);
		}
		if (left && !moved && !pause_looking(a, &looks))
			return false;
	}
	a->exchanges++;
	return true;
}

/* ---- jobs ---- */

/* No two blocks have the same bytes. */
static uint64_t salt(const struct all *a, int from, int to)
{
	return (a->exchanges * PAIR_SIDES_MAX + (uint64_t)from) * PAIR_SIDES_MAX + (uint64_t)to;
}

static bool verify(struct all *a, size_t size)
{
	for (int times = 0; times < VERIFY_TIMES; times++) {
		const char *in = a->in + set(a);
		side_step(a->s);
		for (int i = 0; i < a->peers; i++)
			side_fill(a->out + of_rank(a, a->peer[i].to), size,
				salt(a, a->rank, a->peer[i].to));
		if (!exchange(a, size))
			return false;
		a->exchanges--; /* as it was when the patterns were made */
		for (int i = 0; i < a->peers; i++) {
			int from = a->peer[i].from;
			size_t wrong =
				side_wrong(in + of_rank(a, from), size, salt(a, from, a->rank));
			if (wrong != size)
				return side_fail(a->s,
					"a block of %zu bytes from rank %d: byte %zu is wrong",
					size, from, wrong);
		}
		a->exchanges++;
	}
	return meet(a);
}

static bool run(void *arg, const struct job *j, struct result *r)
{
	struct all *a = arg;
	if (j->kind == OPEN)
		return a->o->table ? rma_open(a, r) : net_open(a, r);
	if (j->kind == VERIFY)
		return verify(a, j->size);
	if (!meet(a))
		return false;
	uint64_t begin = rpwi_now_ns();
	for (uint64_t i = 0; i < j->n; i++)
		if (!exchange(a, j->size))
			return false;
	r->seconds = (double)(rpwi_now_ns() - begin) / 1e9;
	return meet(a);
}

static void close_all(struct all *a)
{
	if (a->o->table)
		rma_close(&a->r, &a->m);
	for (int i = 0; i < a->peers; i++)
		link_close(a->s, &a->peer[i].link);
}

void bench_all_body(struct side *s, void *arg)
{
	const struct bench_start *start = arg;
	struct all *a = calloc(1, sizeof(*a));
	int ranks = (int)start->o->ranks;
	if (!a)
		return;
	*a = (struct all){.s = s,
		.o = start->o,
		.index = start->index,
		.rank = s->role,
		.peers = ranks - 1,
		.pitch = start->bytes,
		.r.s = s};
	for (int i = 0; i < a->peers; i++) {
		a->peer[i].to = (s->role + 1 + i) % ranks;
		a->peer[i].from = (s->role + ranks - 1 - i) % ranks;
	}
	bench_jobs(s, start, run, a);
	if (!s->why)
		close_all(a);
	free(a);
}
