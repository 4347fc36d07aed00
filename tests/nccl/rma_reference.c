/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_reference.c - a small plugin of one-sided operations over shared memory, right by what NCCL
 * asks and by nothing else: a ring of cells for each pair of ranks, which the target's own progress
 * applies in their order. All tables, RMA v13 to v16 and GIN v11 to v13. RMA_MUTANT in the
 * environment names the one way in which it is wrong (the list below): the checker's tests find
 * each. For one thread of a process at a time, but for the lock. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rma_reference.h"

enum {
	RANKS = 8,
	CELLS = 64,
	CELL_BYTES = 8192,
	REGS = 256,
	FEW = 16,
	JOIN_MS = 10000,
	LOOK_AT_PIDS = 512,
	MAGIC = 0x524d4152
};

/* ---- mutants ---- */

static const char *wrong(void)
{
	const char *name = getenv("RMA_MUTANT");
	return name ? name : "";
}
bool rma_is_mutant(const char *name) { return !strcmp(wrong(), name); }
#define MUTANT rma_is_mutant

/* ---- what the ranks share ---- */

enum kind { PUT, GET, REPLY };
struct cell {
	enum kind kind;
	int reg, signal_reg; /* the target's registrations by number; -1: none */
	uint64_t at, bytes, signal_at, add;
	bool signals;
	/* of a get: the request at home, what is asked for, and the piece of the answer */
	uint64_t request, asked;
	char data[CELL_BYTES];
};
struct ring {
	_Alignas(64) _Atomic uint64_t head, tail;
	struct cell cell[CELLS];
};
struct shared {
	_Atomic uint32_t step[RANKS]; /* of the collective calls */
	_Atomic int pid[RANKS];
	_Atomic uint64_t size[RANKS];
	struct ring ring[RANKS][RANKS]; /* from, to */
};

struct handle {
	uint32_t magic, version;
	int pid, fd;
};

/* ---- here ---- */

struct reg {
	bool used;
	int number;
	char *at;
	uint64_t size[RANKS];
};
struct request {
	struct request *next;
	enum kind kind;
	bool done, failed;
	const struct reg *from, *to, *signal;
	int reply_reg; /* of a reply: our registration */
	uint64_t from_at, to_at, size, moved, signal_at, add, home;
	bool signals;
	uint32_t rank;
	bool waits;
};
struct coll {
	int ranks, rank, version, fd;
	struct shared *s;
	struct reg reg[REGS];
	int regs;
	uint32_t step;
	int pidfd[RANKS];
	bool dead[RANKS], failed;
	struct request *first[RANKS], **last[RANKS]; /* what is still to be written */
	unsigned calls, live;
	struct cell kept; /* mutants: what is applied later */
	bool has_kept;
	unsigned count;
};
struct listener {
	int fd, version;
	struct shared *s;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned instances;

int rma_ref_init(void **instance)
{
	static char one;
	instances++;
	*instance = &one;
	return MUTANT("init-once") && instances > 1 ? NCCL_INTERNAL_ERROR : NCCL_SUCCESS;
}
int rma_ref_finalize(void)
{
	/* beside another one, but for the two that `init` makes */
	if (MUTANT("finalize-busy") && instances > 2)
		return NCCL_INTERNAL_ERROR;
	instances--;
	return NCCL_SUCCESS;
}

/* ---- joining ---- */

static int shared_map(int fd, struct shared **out)
{
	*out = mmap(NULL, sizeof(**out), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return *out == MAP_FAILED ? NCCL_SYSTEM_ERROR : NCCL_SUCCESS;
}

int rma_ref_listen(int version, void *handle, void **out)
{
	struct listener *l = calloc(1, sizeof(*l));
	l->fd = memfd_create("rma-reference", MFD_CLOEXEC);
	l->version = version;
	if (l->fd < 0 || ftruncate(l->fd, sizeof(struct shared)))
		return NCCL_SYSTEM_ERROR;
	struct handle h = {MAGIC, (uint32_t)version, getpid(), l->fd};
	memcpy(handle, &h, sizeof(h));
	if (MUTANT("long-handle"))
		((char *)handle)[NCCL_RMA_HANDLE_BYTES] = 1;
	*out = l;
	return NCCL_SUCCESS;
}
int rma_ref_close_listen(void *listener)
{
	struct listener *l = listener;
	close(l->fd);
	free(l);
	return NCCL_SUCCESS;
}

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void look_at_pids(struct coll *c)
{
	for (int i = 0; i < c->ranks; i++) {
		struct pollfd p = {.fd = c->pidfd[i], .events = POLLIN};
		if (MUTANT("no-deaths") || c->dead[i] || i == c->rank || poll(&p, 1, 0) <= 0)
			continue;
		c->dead[i] = c->failed = true;
		for (struct request *r = c->first[i]; r; r = r->next)
			r->failed = true;
	}
}

/* All ranks are here. */
static int together(struct coll *c)
{
	uint64_t until = now_ms() + JOIN_MS;
	atomic_store(&c->s->step[c->rank], ++c->step);
	for (int i = 0; i < c->ranks;) {
		if ((int32_t)(atomic_load(&c->s->step[i]) - c->step) >= 0) {
			i++;
			continue;
		}
		look_at_pids(c);
		if (c->failed || now_ms() > until)
			return NCCL_REMOTE_ERROR;
		usleep(50);
	}
	return NCCL_SUCCESS;
}

int rma_ref_connect(int version, void **handles, int ranks, int rank, void **out)
{
	struct handle h;
	char path[64];
	if (ranks > RANKS || rank < 0 || rank >= ranks || (MUTANT("not-alone") && ranks == 1))
		return NCCL_INVALID_ARGUMENT;
	for (int i = 0; i < ranks; i++) {
		memcpy(&h, handles[i], sizeof(h));
		if (h.magic != MAGIC)
			return NCCL_INVALID_ARGUMENT;
		while (MUTANT("mixed-hangs") && h.version != (uint32_t)version)
			usleep(1000);
		if (h.version != (uint32_t)version)
			return NCCL_INVALID_USAGE;
	}
	struct coll *c = calloc(1, sizeof(*c));
	memcpy(&h, handles[0], sizeof(h));
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", h.pid, h.fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || shared_map(fd, &c->s))
		return NCCL_SYSTEM_ERROR;
	close(fd);
	c->ranks = ranks;
	c->rank = rank;
	c->version = version;
	for (int i = 0; i < ranks; i++) {
		struct handle of;
		memcpy(&of, handles[i], sizeof(of));
		c->pidfd[i] = (int)syscall(SYS_pidfd_open, of.pid, 0);
		c->last[i] = &c->first[i];
	}
	*out = c;
	return together(c);
}

int rma_ref_close(void *coll)
{
	struct coll *c = coll;
	while (MUTANT("close-hangs") && c->first[(c->rank + 1) % c->ranks])
		usleep(1000);
	for (int i = 0; i < c->ranks; i++) {
		close(c->pidfd[i]);
		while (c->first[i]) {
			struct request *r = c->first[i];
			c->first[i] = r->next;
			free(r);
		}
	}
	munmap(c->s, sizeof(*c->s));
	free(c);
	return NCCL_SUCCESS;
}

/* ---- registrations ---- */

int rma_ref_reg(void *coll, void *data, size_t size, int type, uint64_t flags, void **mhandle)
{
	struct coll *c = coll;
	if (type != NCCL_PTR_HOST && !MUTANT("any-type"))
		return NCCL_INVALID_ARGUMENT;
	if (MUTANT("no-flags") && flags & NCCL_RMA_SIGNAL_NEVER_RESET)
		return NCCL_INVALID_ARGUMENT;
	if (c->regs == REGS)
		return NCCL_INTERNAL_ERROR;
	struct reg *g = &c->reg[c->regs];
	for (int i = 0; i < c->regs; i++)
		if (MUTANT("reg-once") && c->reg[i].used && c->reg[i].at == data)
			return NCCL_INVALID_ARGUMENT;
	*g = (struct reg){.used = true, .number = c->regs++, .at = data};
	atomic_store(&c->s->size[c->rank], size);
	if (together(c))
		return NCCL_REMOTE_ERROR;
	for (int i = 0; i < c->ranks; i++)
		g->size[i] = atomic_load(&c->s->size[i]);
	if (together(c))
		return NCCL_REMOTE_ERROR;
	*mhandle = g;
	return NCCL_SUCCESS;
}

int rma_ref_dereg(void *coll, void *mhandle)
{
	struct coll *c = coll;
	struct reg *g = mhandle;
	for (int i = 0; i < c->ranks; i++)
		for (struct request *r = c->first[i]; r; r = r->next) {
			if (MUTANT("dereg-crashes") && r->from == g)
				raise(SIGSYS);
			if (r->from == g || r->to == g || r->signal == g)
				r->failed = true;
		}
	g->used = false;
	return NCCL_SUCCESS;
}

/* ---- what arrives ---- */

static struct reg *reg_of(struct coll *c, int number)
{
	if (number < 0 || number >= c->regs)
		return NULL;
	if (MUTANT("reg-by-address")) { /* of equal ones the first in memory */
		struct reg *first = &c->reg[number];
		for (int i = 0; i < c->regs; i++)
			if (c->reg[i].used && c->reg[i].size[c->rank] == first->size[c->rank] &&
				c->reg[i].at < first->at && first->at - c->reg[i].at < 65536)
				first = &c->reg[i];
		return first;
	}
	return c->reg[number].used ? &c->reg[number] : NULL;
}

static void apply_signal(struct coll *c, const struct cell *m)
{
	struct reg *g = reg_of(c, m->signal_reg);
	if (!g || !m->signals)
		return;
	if (MUTANT("signal-narrow"))
		__atomic_fetch_add((uint32_t *)(void *)(g->at + m->signal_at), (uint32_t)m->add,
			__ATOMIC_ACQ_REL);
	else if (!MUTANT("sums-lost") || ++c->count % 200)
		__atomic_fetch_add(
			(uint64_t *)(void *)(g->at + m->signal_at), m->add, __ATOMIC_ACQ_REL);
	if (MUTANT("signal-wide"))
		*(uint64_t *)(void *)(g->at + m->signal_at + 8) += 1;
}

static void apply_bytes(struct coll *c, const struct cell *m)
{
	struct reg *g = reg_of(c, m->reg);
	if (!g)
		return;
	memcpy(g->at + m->at, m->data, m->bytes);
	if (MUTANT("wrong-byte") && m->bytes == CELL_BYTES)
		g->at[m->at + 17] ^= 4;
	if (MUTANT("wide-put") && m->bytes == 1000)
		g->at[m->at + 1000] = 1;
}

static void queue(struct coll *c, int rank, struct request *r)
{
	r->next = NULL;
	*c->last[rank] = r;
	c->last[rank] = &r->next;
}

static void apply_get(struct coll *c, int from, const struct cell *m)
{
	struct request *r = calloc(1, sizeof(*r));
	struct reg *g = reg_of(c, m->reg);
	*r = (struct request){.kind = REPLY,
		.from = g,
		.from_at = m->at,
		.size = m->asked,
		.home = m->request,
		.failed = !g};
	queue(c, from, r);
}

static void apply_reply(struct coll *c, const struct cell *m)
{
	struct request *r = (struct request *)(uintptr_t)m->request;
	if (r->to && r->to->used)
		memcpy(r->to->at + r->to_at + m->at, m->data, m->bytes);
	r->moved += m->bytes;
	if (MUTANT("get-short") && r->size > CELL_BYTES)
		r->to->at[r->to_at + r->size - 1] = 0;
	r->done |= r->moved >= r->size;
}

static void apply(struct coll *c, int from, struct cell *m)
{
	if (m->kind == GET) {
		apply_get(c, from, m);
	} else if (m->kind == REPLY) {
		apply_reply(c, m);
	} else if (MUTANT("self-lost") && from == c->rank) {
		return;
	} else if (MUTANT("signal-first") || MUTANT("weak-first")) {
		/* bytes of small puts come later than the signal */
		bool late = !c->has_kept && m->bytes && m->bytes <= 200 &&
			    MUTANT("weak-first") == m->signals;
		if (late) {
			c->kept = *m;
			c->has_kept = true;
		} else {
			apply_bytes(c, m);
		}
		apply_signal(c, m);
	} else {
		apply_bytes(c, m);
		apply_signal(c, m);
	}
}

static void take_arrivals(struct coll *c)
{
	if (c->has_kept && ++c->count % 4 == 0) {
		apply_bytes(c, &c->kept);
		c->has_kept = false;
	}
	for (int i = 0; i < c->ranks; i++) {
		struct ring *r = &c->s->ring[i][c->rank];
		uint64_t at = atomic_load_explicit(&r->head, memory_order_relaxed);
		for (int n = 0; n < 8 && at < atomic_load(&r->tail); n++) {
			apply(c, i, &r->cell[at++ % CELLS]);
			atomic_store(&r->head, at);
		}
	}
}

/* ---- what leaves ---- */

static void fill_cell(const struct request *r, struct cell *m, uint64_t bytes)
{
	m->kind = r->kind;
	m->reg = r->to ? r->to->number : -1;
	m->at = r->to_at + r->moved;
	m->bytes = bytes;
	m->signals = r->signals && r->moved + bytes == r->size;
	m->signal_reg = r->signal ? r->signal->number : -1;
	m->signal_at = r->signal_at;
	m->add = r->add;
	m->request = r->kind == REPLY ? r->home : (uint64_t)(uintptr_t)r;
	if (r->kind == GET) {
		m->reg = r->from->number;
		m->at = r->from_at;
		m->asked = r->size;
		m->bytes = 0;
	} else {
		if (r->kind == REPLY)
			m->at = r->moved;
		if (bytes)
			memcpy(m->data, r->from->at + r->from_at + r->moved, bytes);
	}
}

/* One cell of it: false where there is no room. */
static bool write_cell(struct coll *c, int rank, struct request *r)
{
	struct ring *g = &c->s->ring[c->rank][rank];
	uint64_t at = atomic_load_explicit(&g->tail, memory_order_relaxed);
	if (at - atomic_load(&g->head) >= CELLS)
		return false;
	uint64_t left = r->size - r->moved, bytes = left < CELL_BYTES ? left : CELL_BYTES;
	fill_cell(r, &g->cell[at % CELLS], r->kind == GET ? 0 : bytes);
	atomic_store(&g->tail, at + 1);
	if (r->kind == GET)
		return true;
	r->moved += bytes;
	return true;
}

static void send_queue(struct coll *c, int rank)
{
	while (c->first[rank]) {
		struct request *r = c->first[rank];
		bool over = r->failed;
		if (r->waits)
			return;
		if (!over && !write_cell(c, rank, r))
			return;
		if (!over && r->kind != GET && r->moved < r->size)
			continue;
		c->first[rank] = r->next;
		if (!r->next)
			c->last[rank] = &c->first[rank];
		if (r->kind == REPLY)
			free(r);
		else if (r->kind == PUT && !over)
			r->done = true;
	}
}

int rma_ref_progress(void *coll)
{
	struct coll *c = coll;
	pthread_mutex_lock(&lock);
	if (++c->calls % LOOK_AT_PIDS == 0)
		look_at_pids(c);
	take_arrivals(c);
	for (int i = 0; i < c->ranks; i++) {
		if (MUTANT("done-early") && c->first[i] && c->calls % 4 == 0)
			c->first[i]->waits = false;
		send_queue(c, i);
	}
	pthread_mutex_unlock(&lock);
	return NCCL_SUCCESS;
}

/* ---- operations ---- */

static bool within(const struct reg *g, int rank, uint64_t at, uint64_t size)
{
	if (MUTANT("no-bounds") || (MUTANT("no-wrap") && at + size < at))
		return true;
	if (MUTANT("no-last-byte") && size && at + size == g->size[rank])
		return false;
	return size <= g->size[rank] && at <= g->size[rank] - size;
}

static int check(const struct coll *c, const struct rma_ref_op *op)
{
	const struct reg *from = op->from, *to = op->to, *signal = op->signal;
	if (op->rank >= (uint32_t)c->ranks)
		return NCCL_INVALID_ARGUMENT;
	int here = c->rank, there = (int)op->rank;
	if (op->size && (!from || !to || !from->used || !to->used))
		return NCCL_INVALID_ARGUMENT;
	if (op->size && (!within(from, op->gets ? there : here, op->from_at, op->size) ||
				!within(to, op->gets ? here : there, op->to_at, op->size)))
		return NCCL_INVALID_ARGUMENT;
	if (op->signals &&
		(!signal || !within(signal, there, op->signal_at, 8) ||
			(op->op != NCCL_RMA_SIGNAL_INCREMENT && op->op != NCCL_RMA_SIGNAL_ADD)))
		return NCCL_INVALID_ARGUMENT;
	return c->dead[there] || c->failed ? NCCL_REMOTE_ERROR : NCCL_SUCCESS;
}

static void make(struct coll *c, const struct rma_ref_op *op, struct request *r)
{
	bool adds = op->op == NCCL_RMA_SIGNAL_ADD || MUTANT("inc-adds");
	*r = (struct request){.kind = op->gets ? GET : PUT,
		.from = op->size ? op->from : NULL,
		.to = op->size ? op->to : NULL,
		.signal = op->signal,
		.from_at = op->from_at,
		.to_at = op->to_at,
		.size = op->size,
		.signals = op->signals,
		.signal_at = op->signal_at,
		.add = adds ? op->value : 1,
		.rank = op->rank,
		.waits = MUTANT("done-early") ||
			 (MUTANT("more-waits") && op->options & NCCL_RMA_MORE)};
	if (MUTANT("signal-same-window") && op->signals && op->size)
		r->signal = r->to;
	r->done = op->gets && !op->size;
}

int rma_ref_post(void *coll, const struct rma_ref_op *op, void **request)
{
	struct coll *c = coll;
	struct rma_ref_op own = *op;
	if (MUTANT("any-rank") && own.rank >= (uint32_t)c->ranks)
		own.rank = (uint32_t)c->rank;
	int rc = check(c, &own);
	if (rc)
		return rc;
	if (MUTANT("few-requests") && c->live >= FEW)
		return NCCL_INTERNAL_ERROR;
	struct request *r = calloc(1, sizeof(*r));
	pthread_mutex_lock(&lock);
	for (struct request *q = c->first[own.rank]; q && MUTANT("more-waits"); q = q->next)
		q->waits = false;
	make(c, &own, r);
	c->live++;
	bool lost = MUTANT("empty-lost") && own.signals && !own.size;
	r->done |= lost;
	if (!r->done)
		queue(c, (int)own.rank, r);
	send_queue(c, (int)own.rank);
	pthread_mutex_unlock(&lock);
	*request = MUTANT("null-request") ? NULL : r;
	return NCCL_SUCCESS;
}

int rma_ref_test(void *coll, void *request, int *done)
{
	struct coll *c = coll;
	struct request *r = request;
	bool early = MUTANT("done-early") && r->kind == PUT && !r->done;
	rma_ref_progress(coll);
	*done = 0;
	if (!r->done && (r->failed || c->dead[r->rank]))
		return NCCL_REMOTE_ERROR;
	*done = r->done || early;
	if (r->done && !MUTANT("done-early")) {
		c->live--;
		free(r);
	}
	return NCCL_SUCCESS;
}

int rma_ref_query(void *coll, bool *failed)
{
	struct coll *c = coll;
	*failed = c->failed;
	return NCCL_SUCCESS;
}
