/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_model.c - random one-sided operations held against a model of symmetric memory.
 *
 * In each rank's window every rank has a slice for each context, which nobody else writes. What it
 * does there comes in epochs: a list of puts at places that do not overlap, some with a signal of
 * their own (weak or strong), and a strong signal at last. The list follows from the seed, the two
 * ranks, the context and the epoch; so the target makes it, too, and knows what each signal has to
 * have made visible, and what the whole slice has to be at the end of the epoch. Then it answers
 * with a signal, and the next epoch may use the same places. All ranks do that with all others, and
 * themselves, at once; between it they get from their own slices elsewhere, add to sums that all
 * share, and test requests in any order.
 *
 * PLUGIN TRANSPORT [TEST]...; TEST_SEED, TEST_ROUNDS (operations of all ranks together). */
#include "rma_group.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

enum {
	CONTEXTS = 2,
	OPS = 16, /* of an epoch, at most */
	SLICE = 48 * 1024,
	SUMS = 4,
	OPERATIONS = 10000,
	IDLE_S = 30,
};

/* What each rank has registered. */
struct shared {
	uint64_t op[RANKS_MAX][CONTEXTS][OPS]; /* signals of puts: how many epochs had it */
	uint64_t last[RANKS_MAX][CONTEXTS];    /* epochs that are whole */
	uint64_t answer[RANKS_MAX][CONTEXTS];  /* ... and that the target has checked */
	uint64_t sum[SUMS];
	uint8_t slice[RANKS_MAX][CONTEXTS][SLICE];
};

enum form { PLAIN, WEAK, STRONG };
struct item {
	enum form form;
	uint32_t off, len;
};
struct list {
	unsigned n;
	struct item item[OPS];
};

/* An epoch, from the side that writes it. */
struct out {
	struct list list;
	uint64_t epoch;
	unsigned next; /* to be posted; list.n: the last signal; beyond: all is */
	bool dead;
	void *request[OPS + 1];
	uint8_t is[SLICE]; /* what our slice there is, once the epoch is over */
	/* the bytes, where they are put from */
	uint8_t *from;
};
/* ... and from the side that it is written to. */
struct in {
	struct list list;
	uint64_t epoch;
	bool begun, seen[OPS];
	uint64_t signals[OPS]; /* of each op, in all epochs so far */
	uint8_t is[SLICE];
};

struct model {
	struct rank *r;
	struct rng rng;
	uint64_t seed;
	struct shared *shared;
	uint8_t *from, *into;
	void *h, *from_h, *into_h;
	struct out out[RANKS_MAX][CONTEXTS];
	struct in in[RANKS_MAX][CONTEXTS];
	unsigned long left; /* operations of ours to come */
	unsigned dead;      /* ranks */
	/* a request is done when its bytes are this process's own affair: they die with it */
	bool dies;
	uint64_t moved_ns;
};

/* ---- lists ---- */

static uint64_t list_key(uint64_t seed, int from, int to, int c, uint64_t epoch)
{
	return rng_mix2(
		seed, ((uint64_t)from << 8 | (uint64_t)to << 4 | (uint64_t)c) << 40 | epoch);
}

static void list_make(struct list *l, uint64_t key, bool weak)
{
	struct rng rng = {.state = key};
	uint32_t at_byte = (uint32_t)rng_below(&rng, 100);
	l->n = 0;
	for (unsigned n = (unsigned)rng_below(&rng, OPS + 1); l->n < n; l->n++) {
		static const uint32_t most[] = {8, 64, 1024, 4096, 4097, 12000};
		uint32_t len = (uint32_t)rng_below(&rng, most[rng_below(&rng, 6)] + 1u);
		if (at_byte + len > SLICE)
			return;
		enum form f = (enum form)rng_below(&rng, 3);
		l->item[l->n] = (struct item){f == WEAK && !weak ? STRONG : f, at_byte, len};
		at_byte += len + (uint32_t)rng_below(&rng, 200);
	}
}

static void item_apply(uint8_t *slice, const struct item *i, uint64_t key)
{
	pattern_fill_from(slice + i->off, i->len, key, i->off);
}

static bool item_there(const uint8_t *slice, const struct item *i, uint64_t key)
{
	return pattern_wrong_from(slice + i->off, i->len, key, i->off) == i->len;
}

/* ---- what we write ---- */

static bool is_dead(const struct model *m, int rank) { return m->dead >> rank & 1; }

static void result(struct model *m, int rank, int rc, const char *what)
{
	if (!rc)
		return;
	if (rc != NCCL_REMOTE_ERROR || !atomic_load(rank_shared(m->r, (unsigned)rank)))
		rank_fail(m->r, "%s rank %d: %d; it last said: %s", what, rank, rc, rank_warned());
	m->dead |= 1u << rank;
}

#define OFFSET(member) offsetof(struct shared, member)

static void put(struct model *m, int to, int c, struct out *o)
{
	unsigned k = o->next++;
	int self = m->r->rank;
	struct ncclnet_rma_op op = {.rank = (uint32_t)to,
		.options = rank_has_options(m->r) && rng_one_in(&m->rng, 3),
		.signal = m->h,
		.signal_op =
			rng_one_in(&m->rng, 2) ? NCCL_RMA_SIGNAL_INCREMENT : NCCL_RMA_SIGNAL_ADD,
		.value = 1};
	if (k == o->list.n) {
		op.signals = true;
		op.signal_off = OFFSET(last[self][c]);
	} else {
		const struct item *i = &o->list.item[k];
		op.from = m->from_h;
		op.from_off = (uint64_t)(o->from - m->from) + i->off;
		op.size = i->len;
		op.to = m->h;
		op.to_off = OFFSET(slice[self][c]) + i->off;
		op.signals = i->form != PLAIN;
		op.weak = i->form == WEAK;
		op.signal_off = OFFSET(op[self][c][k]);
	}
	int rc = m->r->n.calls->put(m->r->n.table, m->r->coll, m->r->ctx, c, &op, &o->request[k]);
	result(m, to, rc, "putting to");
	m->left -= m->left > 0;
}

static void begin(struct model *m, int to, int c, struct out *o)
{
	uint64_t key = list_key(m->seed, m->r->rank, to, c, o->epoch);
	list_make(&o->list, key, rank_has_weak(m->r));
	for (unsigned i = 0; i < o->list.n; i++) {
		item_apply(o->is, &o->list.item[i], key);
		item_apply(o->from, &o->list.item[i], key);
	}
	o->next = 0;
}

/* All that was posted is done. */
static bool settled(struct model *m, int to, struct out *o, bool all)
{
	bool none = true;
	for (unsigned k = 0; k <= OPS; k++) {
		int done = 0;
		if (!o->request[k])
			continue;
		none = false;
		if (!all && !rng_one_in(&m->rng, 3))
			continue;
		int rc = m->r->n.calls->test(m->r->n.table, m->r->coll, o->request[k], &done);
		result(m, to, rc, "a put to");
		if (done || rc) {
			o->request[k] = NULL;
			m->moved_ns = rpwi_now_ns();
		}
	}
	return none;
}

/* True: the epoch before is over, everywhere. */
static bool answered(const struct model *m, int to, int c, const struct out *o)
{
	return __atomic_load_n(&m->shared->answer[to][c], __ATOMIC_ACQUIRE) == o->epoch;
}

static void get(struct model *m, int by, int c, const struct out *o)
{
	uint32_t off = (uint32_t)rng_below(&m->rng, SLICE),
		 len = (uint32_t)rng_below(&m->rng, SLICE - off);
	void *request = NULL, *flush = NULL;
	struct ncclnet_rma_op op = {.from = m->h,
		.from_off = OFFSET(slice[m->r->rank][c]) + off,
		.size = len,
		.to = m->into_h,
		.to_off = off,
		.rank = (uint32_t)by};
	const struct ncclnet_rma *n = &m->r->n;
	int rc = n->calls->get(n->table, m->r->coll, m->r->ctx, c, &op, &request);
	if (!rc)
		rc = n->calls->flush(
			n->table, m->r->coll, m->r->ctx, c, m->into_h, (uint32_t)by, &flush);
	if (flush)
		rc = rank_wait(m->r, flush);
	bool good = !flush || !memcmp(m->into + off, o->is + off, len);
	if (request) {
		int own = rank_wait(m->r, request);
		rc = rc ? rc : own;
	}
	result(m, by, rc, "a get from");
	if (!rc && !good)
		rank_fail(m->r, "a get of %u bytes at %u from rank %d gave other bytes", len, off,
			by);
	m->left -= m->left > 0;
}

/* ---- what is written to us ---- */

static void in_wrong(
	struct model *m, int by, int c, const struct in *i, unsigned k, const char *what)
{
	rank_fail(m->r,
		"epoch %llu of rank %d, context %d: put %u of %u (%u bytes at %u, form %d): %s",
		(unsigned long long)i->epoch, by, c, k, i->list.n, i->list.item[k].len,
		i->list.item[k].off, i->list.item[k].form, what);
}

static void signals_look(struct model *m, int by, int c, struct in *i, uint64_t key)
{
	const uint8_t *slice = m->shared->slice[by][c];
	for (unsigned k = 0; k < i->list.n; k++) {
		const struct item *item = &i->list.item[k];
		uint64_t now = __atomic_load_n(&m->shared->op[by][c][k], __ATOMIC_ACQUIRE);
		if (item->form == PLAIN || i->seen[k] || now == i->signals[k])
			continue;
		if (now != i->signals[k] + 1)
			in_wrong(m, by, c, i, k, "its signal came more than once");
		i->seen[k] = true;
		i->signals[k] = now;
		if (!item_there(slice, item, key))
			in_wrong(m, by, c, i, k, "its signal is here, and its bytes are not");
		for (unsigned e = 0; e < k && item->form == STRONG; e++)
			if (!item_there(slice, &i->list.item[e], key))
				in_wrong(m, by, c, i, e,
					"a later strong signal is here, and these bytes are not");
	}
}

static void whole(struct model *m, int by, int c, struct in *i, uint64_t key)
{
	const uint8_t *slice = m->shared->slice[by][c];
	for (unsigned k = 0; k < i->list.n; k++) {
		item_apply(i->is, &i->list.item[k], key);
		if (i->list.item[k].form != PLAIN && !i->seen[k])
			in_wrong(m, by, c, i, k, "the last signal is here, and its own is not");
	}
	for (size_t at_byte = 0; at_byte < SLICE; at_byte++)
		if (slice[at_byte] != i->is[at_byte])
			rank_fail(m->r,
				"epoch %llu of rank %d, context %d: byte %zu is 0x%02x, not 0x%02x",
				(unsigned long long)i->epoch, by, c, at_byte, slice[at_byte],
				i->is[at_byte]);
	struct ncclnet_rma_op op = {.rank = (uint32_t)by,
		.signals = true,
		.signal = m->h,
		.signal_off = OFFSET(answer[m->r->rank][c]),
		.signal_op = NCCL_RMA_SIGNAL_INCREMENT};
	void *request = NULL;
	const struct ncclnet_rma *n = &m->r->n;
	int rc = n->calls->put(n->table, m->r->coll, m->r->ctx, c, &op, &request);
	if (!rc)
		rc = rank_wait(m->r, request);
	result(m, by, rc, "answering");
	i->epoch++;
	i->begun = false;
	m->moved_ns = rpwi_now_ns();
}

static void incoming(struct model *m, int by, int c)
{
	struct in *i = &m->in[by][c];
	uint64_t key = list_key(m->seed, by, m->r->rank, c, i->epoch);
	/* read first: what came before it has to be there */
	uint64_t last = __atomic_load_n(&m->shared->last[by][c], __ATOMIC_ACQUIRE);
	if (!i->begun) {
		list_make(&i->list, key, rank_has_weak(m->r));
		memset(i->seen, 0, sizeof(i->seen));
		i->begun = true;
	}
	signals_look(m, by, c, i, key);
	if (last > i->epoch + 1)
		rank_fail(m->r, "rank %d is ahead of our answer", by);
	if (last == i->epoch + 1)
		whole(m, by, c, i, key);
}

/* ---- a rank ---- */

static void sum_add(struct model *m)
{
	unsigned s = (unsigned)rng_below(&m->rng, SUMS);
	uint64_t value = rng_below(&m->rng, 1000);
	int to = (int)rng_below(&m->rng, (uint64_t)m->r->ranks);
	void *request = NULL;
	struct ncclnet_rma_op op = {.rank = (uint32_t)to,
		.signals = true,
		.weak = rank_has_weak(m->r) && rng_one_in(&m->rng, 2),
		.signal = m->h,
		.signal_off = OFFSET(sum[s]),
		.signal_op = NCCL_RMA_SIGNAL_ADD,
		.value = value};
	if (is_dead(m, to))
		return;
	const struct ncclnet_rma *n = &m->r->n;
	int rc = n->calls->put(n->table, m->r->coll, m->r->ctx, 0, &op, &request);
	if (!rc)
		rc = rank_wait(m->r, request);
	result(m, to, rc, "adding to");
	if (!rc) /* all sums of a rank together */
		atomic_fetch_add(rank_shared(m->r, 16 + (unsigned)to), value);
	m->left -= m->left > 0;
}

/* One thing towards a rank. True: something is under way with it. */
static bool step(struct model *m, int to, int c)
{
	struct out *o = &m->out[to][c];
	if (is_dead(m, to)) {
		settled(m, to, o, true);
		return false;
	}
	if (o->next <= o->list.n) {
		put(m, to, c, o);
		return true;
	}
	if (!settled(m, to, o, !m->left) || !answered(m, to, c, o))
		return true;
	if (rank_has_iget(m->r) && rng_one_in(&m->rng, 4) && m->left)
		get(m, to, c, o);
	if (!m->left)
		return false;
	begin(m, to, c, o);
	return true;
}

/* epoch counts those that were begun: the answer has to reach it. */
static bool outgoing(struct model *m, int to, int c)
{
	struct out *o = &m->out[to][c];
	bool was_open = o->next <= o->list.n;
	bool busy = step(m, to, c);
	if (was_open && o->next > o->list.n)
		o->epoch++;
	return busy;
}

static void model_new(struct model *m, struct rank *r)
{
	m->r = r;
	m->seed = test_seed(1);
	m->rng.state = rng_mix2(m->seed, (uint64_t)r->rank);
	m->left = test_rounds(OPERATIONS) / (unsigned)r->ranks;
	m->shared = room_new(sizeof(*m->shared));
	size_t out = (size_t)r->ranks * CONTEXTS * SLICE;
	m->from = room_new(out);
	m->into = room_new(SLICE);
	RANK_TRUE(r, m->shared && m->from && m->into);
	for (int i = 0; i < r->ranks; i++)
		for (int c = 0; c < CONTEXTS; c++) {
			m->out[i][c].from = m->from + ((size_t)i * CONTEXTS + (size_t)c) * SLICE;
			m->out[i][c].next = OPS + 2;
		}
	m->h = rank_reg(r, m->shared, sizeof(*m->shared));
	m->from_h = rank_reg(r, m->from, out);
	m->into_h = rank_reg(r, m->into, SLICE);
	rank_barrier(r);
}

static int contexts(const struct rank *r) { return r->n.gin && r->n.abi == 11 ? 1 : CONTEXTS; }

/* Everything of ours is answered. */
static bool turn(struct model *m)
{
	struct rank *r = m->r;
	bool busy = false;
	for (int k = 0; k < r->ranks; k++)
		for (int c = 0; c < contexts(r); c++) {
			if (!is_dead(m, k))
				incoming(m, k, c);
			busy |= rng_one_in(&m->rng, 3) || outgoing(m, k, c);
		}
	if (m->left && !m->dies && rng_one_in(&m->rng, 20))
		sum_add(m);
	/* what nobody tests moves all the same, now and then with our help */
	if (rng_one_in(&m->rng, 4))
		r->n.calls->progress(r->n.table, r->coll, r->ctx);
	return busy;
}

/* 15: how many ranks have nothing under way. The others may still need our answers. */
static void run(struct model *m, int dies)
{
	struct rank *r = m->r;
	unsigned long last_words = dies == r->rank ? rng_below(&m->rng, m->left) : 0;
	bool said = false;
	uint64_t others = (uint64_t)r->ranks - (dies >= 0);
	m->moved_ns = rpwi_now_ns();
	m->dies = dies == r->rank;
	while (atomic_load(rank_shared(r, 15)) < others) {
		bool busy = turn(m);
		if (dies == r->rank && m->left <= last_words) {
			atomic_store(rank_shared(r, (unsigned)r->rank), 1);
			kill(getpid(), SIGKILL);
		}
		if (dies >= 0 && dies != r->rank && !m->left && !is_dead(m, dies))
			m->left = 1; /* until it is heard of */
		if (!busy && !m->left && !said) {
			said = true;
			atomic_fetch_add(rank_shared(r, 15), 1);
		}
		if (rpwi_now_ns() - m->moved_ns > IDLE_S * RPWI_NS_PER_S && !said)
			rank_fail(r, "nothing has moved for %d s", IDLE_S);
		sched_yield();
	}
}

static uint64_t sum_of(struct model *m)
{
	uint64_t sum = 0;
	for (unsigned s = 0; s < SUMS; s++)
		sum += __atomic_load_n(&m->shared->sum[s], __ATOMIC_ACQUIRE);
	return sum;
}

/* Requests are done when their source may be used again, which may be before. */
static void sums_look(struct model *m)
{
	uint64_t expected = atomic_load(rank_shared(m->r, 16 + (unsigned)m->r->rank)), sum;
	uint64_t until_ns = rpwi_now_ns() + 5 * RPWI_NS_PER_S;
	while ((sum = sum_of(m)) < expected && rpwi_now_ns() < until_ns)
		usleep(100);
	if (sum != expected)
		rank_fail(m->r, "the sums are %llu, %llu were added", (unsigned long long)sum,
			(unsigned long long)expected);
}

static void lives(struct rank *r)
{
	struct model *m = room_new(sizeof(*m));
	model_new(m, r);
	run(m, -1);
	rank_barrier(r);
	sums_look(m);
	rank_barrier(r);
}

static void dies(struct rank *r)
{
	struct model *m = room_new(sizeof(*m));
	bool failed = false;
	model_new(m, r);
	run(m, 1);
	RANK_OK(r, r->n.calls->query(r->n.table, r->coll, r->ctx, &failed));
	RANK_TRUE(r, failed);
	sums_look(m);
	atomic_fetch_add(rank_shared(r, 14), 1);
	while (atomic_load(rank_shared(r, 14)) < (uint64_t)r->ranks - 1)
		usleep(100);
}

static void two_ranks(void **unused) { group_newest(2, CONTEXTS, 0, lives); }
static void four_ranks(void **unused) { group_newest(4, CONTEXTS, 0, lives); }
static void eight_ranks(void **unused) { group_newest(8, CONTEXTS, 0, lives); }
static void two_ranks_by_each_table(void **unused) { group_each_table(2, CONTEXTS, 0, lives); }
static void two_ranks_and_one_dies(void **unused) { group_newest(2, CONTEXTS, 1u << 1, dies); }
static void four_ranks_and_one_dies(void **unused) { group_newest(4, CONTEXTS, 1u << 1, dies); }
static void eight_ranks_and_one_dies(void **unused) { group_newest(8, CONTEXTS, 1u << 1, dies); }

int main(int argc, char **argv)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test(two_ranks),
		cmocka_unit_test(four_ranks),
		cmocka_unit_test(eight_ranks),
		cmocka_unit_test(two_ranks_by_each_table),
		cmocka_unit_test(two_ranks_and_one_dies),
		cmocka_unit_test(four_ranks_and_one_dies),
		cmocka_unit_test(eight_ranks_and_one_dies),
	};
	return group_tests(argc, argv, all, RPWI_ARRAY_LEN(all));
}
