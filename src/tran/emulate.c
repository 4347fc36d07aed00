/* SPDX-License-Identifier: BSD-3-Clause */
/* emulate.c - remote memory over frames and bulk data: the side that asks, and the side that
 * answers. What a transport owes it, and the bytes, are in emulate.h.
 *
 * An operation is asked for in chunks, each by itself, in frames or as one message of bulk data. A
 * put is done when the peer has said that the bytes are in place (and the transport that it needs
 * ours no more); so flush needs nothing on the wire, it waits for what was posted before. */
#include "tran/emulate.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/error.h"
#include "base/slots.h"
#include "ropeway.h"
#include "tran/place.h"

enum answer { OK, NO_ACCESS, FAILED, ANSWERS };
enum {
	INDEX_BITS = 7,
	REGIONS_MAX = 1 << 28,
	MAGIC = 0x454d5052,
	OPS_KEPT = 256,
	/* requests of operations of several frames, with `reach`: short ones overtake them */
	LONG_MOST = 16
};
_Static_assert(EMULATED_WINDOW <= 1 << INDEX_BITS, "an index fits");
_Static_assert(EMULATED_SMALL == 64, "small_used has a bit for each");

struct ask {
	uint8_t kind, bulk, more, zero;
	uint32_t id, slot, zero2;
	uint64_t key, offset, len;
};
_Static_assert(sizeof(struct ask) == 40, "no padding on the wire");
struct done {
	uint8_t kind, answer, zero[2];
	uint32_t id;
	uint64_t value;
};
_Static_assert(sizeof(struct done) == 16, "no padding on the wire");
struct operands {
	uint64_t operand, compare;
};
struct desc {
	uint32_t magic, slot;
	uint64_t key;
};

struct region {
	struct tran_mem base;
	struct tran_home home;
	uint32_t slot;
	uint64_t key;
	struct rpwi_list moving; /* of struct serve: bulk data into or out of it */
};

struct op {
	struct rpwi_list waiting; /* has parts that are not asked for yet, or goes by hand */
	struct rpwi_list posted;  /* of e->gets or e->ordered */
	struct rpwi_error error;
	unsigned chunks;    /* asked for, not answered */
	struct chunk *open; /* of a put, with more bytes to come; NULL: none */
	size_t part;        /* goes into one frame */
	size_t arrived;     /* of a get, from its begin */
	struct emulated_move m;
};

/* A request of ours that is not answered yet. */
struct chunk {
	struct op *op; /* NULL: free */
	uint32_t id, len;
	char *local;
	struct tran_bulk *bulk; /* under way */
	bool answered;
};

/* A request of the peer's that is not answered yet. */
struct serve {
	struct rpwi_list owed;   /* of e->owed: its answer waits for room */
	struct rpwi_list moving; /* of its region */
	struct tran_bulk *bulk;
	struct ask ask; /* of a get, its rest */
	size_t part;    /* of it, in one frame */
	uint64_t value;
	uint8_t answer;
	bool busy;
};

struct emulated_ep {
	struct tran_ep *ep;
	unsigned ops, small, bulks; /* chunks */
	uint64_t small_used;        /* a bit for each of chunk[0] to chunk[EMULATED_SMALL - 1] */
	uint32_t number, next_bulk;
	bool broken; /* the transport took a frame no more */
	bool pumping;
	struct op *beginning; /* which is being posted; NULL once it is over */
	struct rpwi_list waiting[2], gets,
		/* waiting: small ones, bulk ones; all that is not done; ordered: puts, atomics and
		 * flushes, as they were posted */
		ordered, by_hand;
	struct rpwi_list owed;
	/* Of gets that went on by hand: what still comes for them. It never ends. */
	struct op nobody;
	unsigned answers, answers_seen, ticks;
	struct chunk chunk[EMULATED_WINDOW];
	/* the second for a number with bulk data: a peer that has all bytes of a get asks again,
	 * maybe before this side is told that they have gone */
	struct serve serve[EMULATED_WINDOW + EMULATED_BULK];
};

struct emulated {
	struct rpwi_slots regions;
	pid_t pid;
	uint8_t *bounce; /* small bytes of registered memory, on their way */
	size_t room;
	struct rpwi_list kept; /* operations that are over, for the next */
	unsigned kept_count;
};

/* ---- one and all ---- */

int emulate_open(struct tran *t)
{
	t->emulated = calloc(1, sizeof(*t->emulated));
	if (!t->emulated)
		return tran_no_memory(t, "remote memory");
	t->emulated->pid = getpid();
	rpwi_list_init(&t->emulated->kept);
	return 0;
}

void emulate_close(struct tran *t)
{
	if (!t->emulated)
		return;
	rpwi_slots_fini(&t->emulated->regions);
	while (t->emulated->kept_count) {
		t->emulated->kept_count--;
		free(RPWI_CONTAINER_OF(rpwi_list_pop(&t->emulated->kept), struct op, waiting));
	}
	free(t->emulated->bounce);
	free(t->emulated);
	t->emulated = NULL;
}

/* Made when it is first needed; NULL: no memory. */
static struct emulated_ep *of(struct tran_ep *ep)
{
	struct emulated_ep *e = ep->emulated;
	if (RPWI_LIKELY(e != NULL) || !(e = calloc(1, sizeof(*e))))
		return e;
	e->ep = ep;
	struct rpwi_list *lists[] = {&e->waiting[0], &e->waiting[1], &e->gets, &e->ordered,
		&e->by_hand, &e->owed, &e->nobody.waiting, &e->nobody.posted};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		rpwi_list_init(lists[i]);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(e->serve); i++) {
		rpwi_list_init(&e->serve[i].owed);
		rpwi_list_init(&e->serve[i].moving);
	}
	e->nobody.chunks = 1;
	e->nobody.m.kind = EMULATED_GET;
	return ep->emulated = e;
}

/* So much goes in one frame. */
static size_t frame_most(const struct tran_ep *ep)
{
	return ep->limits.bulk_max ? RPWI_MIN(ep->limits.bulk_min - 1, ep->limits.frame_max)
				   : ep->limits.frame_max;
}

/* The same of a part of an operation of `len`. */
static size_t part_most(const struct tran_ep *ep, size_t len)
{
	const struct tran_reach_ops *reach = ep->tran->ops->reach;
	return reach ? reach->piece(len) : frame_most(ep);
}

static uint8_t *bounce(struct tran_ep *ep)
{
	struct emulated *t = ep->tran->emulated;
	if (t->room < frame_most(ep)) {
		uint8_t *p = realloc(t->bounce, frame_most(ep));
		if (!p)
			return NULL;
		t->bounce = p;
		t->room = frame_most(ep);
	}
	return t->bounce;
}

static int frame(
	struct emulated_ep *e, const void *head, size_t head_len, const void *body, size_t len)
{
	const struct tran_ops *ops = e->ep->tran->ops;
	struct iovec iov = {(void *)body, len};
	int rc;
	if (ops->reach)
		rc = ops->reach->send(e->ep, head, head_len, body, len);
	else
		rc = ops->send(e->ep, head, head_len, &iov, len ? 1 : 0, len);
	if (rc < 0)
		e->broken = true;
	return rc;
}

static void breach(struct tran_ep *ep, const char *why)
{
	ep->tran->ops->breach(ep, &(struct rpwi_error){RPW_ERR_PROTOCOL, 0, why});
}

/* ---- registered memory ---- */

static int region_add(
	struct tran *t, void *addr, size_t len, unsigned access, struct tran_mem **out)
{
	struct rpwi_slots *slots = &t->emulated->regions;
	struct region *m = rpwi_slots_reserve(slots, REGIONS_MAX) ? malloc(sizeof(*m)) : NULL;
	if (!m)
		return tran_no_memory(t, "one more registration");
	m->base.addr = addr;
	m->base.len = len;
	m->base.access = access;
	m->base.kept = false;
	m->home.addr = addr;
	m->home.len = len;
	rpwi_list_init(&m->home.regs);
	rpwi_list_init(&m->moving);
	m->slot = rpwi_slots_take(slots, m);
	m->key = rpwi_random64();
	struct desc d = {.magic = MAGIC, .slot = m->slot, .key = m->key};
	m->base.desc.len = sizeof(d);
	memcpy(m->base.desc.bytes, &d, sizeof(d));
	*out = &m->base;
	return 0;
}

/* Nothing more begins. What moves is cut, and its peer hears that when it ends. */
static void region_del(struct tran *t, struct tran_mem *base)
{
	struct region *m = (struct region *)base;
	rpwi_slots_hide(&t->emulated->regions, m->slot);
	while (!rpwi_list_empty(&m->moving)) {
		struct serve *s =
			RPWI_CONTAINER_OF(rpwi_list_pop(&m->moving), struct serve, moving);
		s->answer = NO_ACCESS;
		t->ops->bulk->cut(s->bulk);
	}
	if (t->ops->bulk && t->ops->bulk->release)
		t->ops->bulk->release(t, &m->home);
	rpwi_slots_give(&t->emulated->regions, m->slot);
	free(m);
}

const struct tran_mem_ops emulated_mem = {.add = region_add, .del = region_del};

/* What a request names, if it may do this there; NULL otherwise. */
static struct region *region_find(
	struct tran *t, const struct ask *a, uint64_t len, unsigned access)
{
	struct region *m = rpwi_slots_find(&t->emulated->regions, a->slot);
	if (!m || m->key != a->key || (m->base.access & access) != access)
		return NULL;
	return a->offset <= m->base.len && len <= m->base.len - a->offset ? m : NULL;
}

static uint8_t *region_at(const struct region *m, const struct ask *a)
{
	return (uint8_t *)m->base.addr + a->offset;
}

static uint8_t *own(struct tran *t, const struct ask *a, uint64_t len, unsigned access)
{
	if (t->ops->reach)
		return t->ops->reach->own(t, a->slot, a->key, a->offset, len, access);
	const struct region *m = region_find(t, a, len, access);
	return m ? region_at(m, a) : NULL;
}

/* Bytes that came, to where they belong: 0 or -EFAULT. */
static int place(const struct tran *t, void *to, const void *from, size_t n)
{
	if (!t->ops->reach)
		return tran_place(t->emulated->pid, to, from, n, t->polled);
	if (t->polled)
		rpwi_copy_up(to, from, n);
	else
		rpwi_copy(to, from, n);
	return 0;
}

/* ---- the side that asks ---- */

static void op_free(struct emulated_ep *e, struct op *op)
{
	struct emulated *t = e->ep->tran->emulated;
	rpwi_list_del(&op->waiting);
	rpwi_list_del(&op->posted);
	if (RPWI_UNLIKELY(op->error.status))
		rpwi_error_drop(&op->error);
	e->ops--;
	if (e->beginning == op)
		e->beginning = NULL;
	if (t->kept_count >= OPS_KEPT) {
		free(op);
		return;
	}
	rpwi_list_add_tail(&t->kept, &op->waiting);
	t->kept_count++;
}

static void op_done(struct emulated_ep *e, struct op *op)
{
	struct tran_ep *ep = e->ep;
	void *cookie = op->m.cookie;
	struct rpwi_error error = op->error;
	op->error = (struct rpwi_error){0};
	op_free(e, op);
	ep->tran->up->done(ep->user, cookie, error.status ? &error : NULL);
	if (RPWI_UNLIKELY(error.status))
		rpwi_error_drop(&error);
}

static void op_check_done(struct emulated_ep *e, struct op *op)
{
	if (op->chunks || !rpwi_list_empty(&op->waiting))
		return;
	op_done(e, op);
	while (!rpwi_list_empty(&e->ordered) &&
		RPWI_CONTAINER_OF(e->ordered.next, struct op, posted)->m.kind == EMULATED_FLUSH)
		op_done(e, RPWI_CONTAINER_OF(rpwi_list_pop(&e->ordered), struct op, posted));
}

/* It goes wrong: no use in asking for the rest. */
static void op_fault(struct op *op, const struct rpwi_error *e)
{
	if (!op->error.status)
		rpwi_error_keep(&op->error, e);
	rpwi_list_del(&op->waiting);
}

static bool is_bulk(const struct emulated_ep *e, const struct chunk *c)
{
	return c >= e->chunk + EMULATED_SMALL;
}

static void chunk_take(struct emulated_ep *e, struct chunk *c, struct op *op)
{
	c->op = op;
	op->chunks++;
	if (is_bulk(e, c)) {
		e->bulks++;
		return;
	}
	e->small++;
	e->small_used |= UINT64_C(1) << (c - e->chunk);
}

static void chunk_give(struct emulated_ep *e, struct chunk *c)
{
	c->op->chunks--;
	if (is_bulk(e, c)) {
		e->bulks--;
	} else {
		e->small--;
		e->small_used &= ~(UINT64_C(1) << (c - e->chunk));
	}
	*c = (struct chunk){0};
}

/* After a fault: an open chunk gets no answer. */
static void op_shut(struct emulated_ep *e, struct op *op)
{
	if (op->open)
		chunk_give(e, op->open);
	op->open = NULL;
}

static void chunk_done(struct emulated_ep *e, struct chunk *c)
{
	struct op *op = c->op;
	chunk_give(e, c);
	op_check_done(e, op);
}

static struct chunk *chunk_of(struct emulated_ep *e, uint32_t id)
{
	unsigned i = id % (1 << INDEX_BITS);
	struct chunk *c = i < EMULATED_WINDOW ? &e->chunk[i] : NULL;
	return c && c->op && c->id == id ? c : NULL;
}

static struct chunk *chunk_free(struct emulated_ep *e, bool bulk, unsigned small_most)
{
	if (bulk ? e->bulks == EMULATED_BULK : e->small >= small_most)
		return NULL;
	/* One is free: the counts say so. */
	if (!bulk)
		return &e->chunk[__builtin_ctzll(~e->small_used)];
	unsigned i;
	do
		i = EMULATED_SMALL + e->next_bulk++ % EMULATED_BULK;
	while (e->chunk[i].op); /* in turn: see struct emulated_ep */
	return &e->chunk[i];
}

static void chunk_begun(
	struct emulated_ep *e, struct chunk *c, struct op *op, uint32_t id, size_t len)
{
	if (!c->op) {
		chunk_take(e, c, op);
		c->id = id;
		c->local = op->m.local ? op->m.local + op->m.done : NULL;
	}
	c->len += (uint32_t)len;
	op->m.done += len;
	if (op->m.done == op->m.len)
		rpwi_list_del(&op->waiting);
}

/* It cannot even be asked for. */
static bool issue_failed(struct emulated_ep *e, struct op *op)
{
	op_fault(op, rpwi_last_error());
	op_check_done(e, op);
	return true;
}

static bool issue_bulk(struct emulated_ep *e, struct op *op, struct chunk *c, struct ask *a)
{
	const struct tran_bulk_ops *bulk = e->ep->tran->ops->bulk;
	bool put = op->m.kind == EMULATED_PUT;
	struct tran_home *home = op->m.mem ? &((struct region *)op->m.mem)->home : NULL;
	struct tran_bulk *b;
	int rc = bulk->make(e->ep, put, op->m.local + op->m.done, a->len, home, c, &b);
	if (rc == RPW_ERR_PEER_GONE)
		e->broken = true;
	if (rc)
		return !e->broken && issue_failed(e, op);
	a->bulk = 1;
	if (frame(e, a, sizeof(*a), NULL, 0)) {
		bulk->drop(b);
		return false;
	}
	chunk_begun(e, c, op, a->id, a->len);
	c->bulk = b;
	bulk->go(b, put ? a->id | EMULATED_PUT_ID : a->id);
	return true;
}

static bool issue_small(struct emulated_ep *e, struct op *op, struct chunk *c, const struct ask *a)
{
	const struct operands operands = {op->m.operand, op->m.compare};
	const void *body = NULL;
	size_t len = 0;
	if (op->m.kind == EMULATED_PUT) {
		body = op->m.local + op->m.done;
		len = a->len;
	} else if (op->m.kind != EMULATED_GET) {
		body = &operands;
		len = sizeof(operands);
	}
	if (frame(e, a, sizeof(*a), body, len))
		return false;
	chunk_begun(e, c, op, a->id, a->len);
	op->open = a->more ? c : NULL;
	return true;
}

/* Ask for one part. False: there is no room for it now. */
static bool issue(struct emulated_ep *e, struct op *op)
{
	const struct tran_reach_ops *reach = e->ep->tran->ops->reach;
	size_t left = op->m.len - op->m.done, most = RPWI_MAX(op->part, e->ep->limits.bulk_max);
	if (reach && op->m.kind == EMULATED_GET)
		most = EMULATED_SPAN;
	size_t len = RPWI_MIN(left, most);
	if (len < left) /* the next part may come sooner */
		len = rpwi_whole_lines(
			op->m.kind == EMULATED_PUT
				? (const char *)(uintptr_t)(op->m.offset + op->m.done)
				: op->m.local + op->m.done,
			len);
	bool bulk = !reach && len > op->part, is_long = reach && op->m.len > op->part;
	struct chunk *c = op->open;
	if (!c)
		c = chunk_free(e, bulk, is_long ? LONG_MOST : EMULATED_SMALL);
	if (!c)
		return false;
	uint32_t id = (++e->number << INDEX_BITS | (uint32_t)(c - e->chunk)) & ~EMULATED_PUT_ID;
	struct ask a = {.kind = (uint8_t)op->m.kind,
		.id = id,
		.slot = op->m.slot,
		.key = op->m.key,
		.offset = op->m.offset + op->m.done,
		.len = len};
	if (op->open)
		a.id = c->id;
	a.more =
		is_long && op->m.kind == EMULATED_PUT && len < left && c->len + len < EMULATED_SPAN;
	return bulk ? issue_bulk(e, op, c, &a) : issue_small(e, op, c, &a);
}

static void pump(struct emulated_ep *e)
{
	bool nothing = rpwi_list_empty(&e->waiting[0]) && rpwi_list_empty(&e->waiting[1]);
	if (nothing || e->pumping) /* pumping: from inside up->done */
		return;
	e->pumping = true;
	for (int bulk = 0; bulk < 2; bulk++)
		while (!rpwi_list_empty(&e->waiting[bulk]) &&
			issue(e, RPWI_CONTAINER_OF(e->waiting[bulk].next, struct op, waiting))) {
		}
	e->pumping = false;
}

static struct op *op_new(struct emulated_ep *e, const struct emulated_move *m)
{
	struct emulated *t = e->ep->tran->emulated;
	struct op *op;
	if (t->kept_count) {
		op = RPWI_CONTAINER_OF(rpwi_list_pop(&t->kept), struct op, waiting);
		t->kept_count--;
	} else if (!(op = malloc(sizeof(*op)))) {
		return NULL;
	}
	memset(op, 0, offsetof(struct op, m));
	rpwi_copy_small(&op->m, m, sizeof(*m)); /* in the words that it was just written in */
	rpwi_list_init(&op->waiting);
	rpwi_list_init(&op->posted);
	rpwi_list_add_tail(m->kind == EMULATED_GET ? &e->gets : &e->ordered, &op->posted);
	e->ops++;
	return op;
}

static void op_ask(struct emulated_ep *e, struct op *op)
{
	op->m.by_hand = false;
	op->part = part_most(e->ep, op->m.len);
	rpwi_list_add_tail(&e->waiting[op->m.len > op->part], &op->waiting);
}

/* What can go does. 0, or the endpoint has failed, and the operation was not taken. */
static int begin(struct emulated_ep *e, struct op *op)
{
	if (e->pumping) /* from inside up->done: its turn comes there */
		return 0;
	e->beginning = op;
	pump(e);
	op = e->beginning;
	e->beginning = NULL;
	if (RPWI_LIKELY(!e->broken) || !op || op->chunks)
		return 0;
	op_free(e, op);
	return tran_path_over(e->ep);
}

int emulate_begin(struct tran_ep *ep, const struct emulated_move *m)
{
	struct emulated_ep *e = ep->closed ? NULL : of(ep);
	if (!e)
		return ep->closed ? tran_path_over(ep) : tran_no_memory(ep->tran, "operations");
	if (e->broken || e->ops >= EMULATED_OPS_MAX)
		return e->broken ? tran_path_over(ep) : RPWI_LATER;
	struct op *op = op_new(e, m);
	if (!op)
		return tran_no_memory(ep->tran, "an operation");
	op->arrived = m->done;
	if (m->by_hand) {
		rpwi_list_add_tail(&e->by_hand, &op->waiting);
		return 0;
	}
	op_ask(e, op);
	return begin(e, op);
}

static int start(struct tran_ep *ep, struct emulated_move *m, const struct tran_desc *remote,
	uint64_t offset)
{
	struct desc d = {0};
	if (ep->tran->ops->reach)
		return ep->tran->ops->reach->begin(ep, m, remote, offset);
	if (remote->len == sizeof(d))
		memcpy(&d, remote->bytes, sizeof(d));
	/* garbled: the peer will not find it, either */
	m->slot = d.magic == MAGIC ? d.slot : UINT32_MAX;
	m->key = d.key;
	m->offset = offset;
	return emulate_begin(ep, m);
}

static int transfer(struct tran_ep *ep, bool is_put, const struct tran_desc *remote,
	uint64_t offset, void *local, size_t len, const struct tran_mem *mem, void *cookie)
{
	struct emulated_move m = {.local = local, .len = len, .mem = mem, .cookie = cookie};
	m.kind = is_put ? EMULATED_PUT : EMULATED_GET;
	return start(ep, &m, remote, offset);
}

static int atomic(struct tran_ep *ep, enum tran_atomic kind, const struct tran_desc *remote,
	uint64_t offset, uint64_t operand, uint64_t compare, uint64_t *before, void *cookie)
{
	struct emulated_move m = {.kind = kind == TRAN_FETCH_ADD ? EMULATED_ADD : EMULATED_SWAP,
		.len = 8,
		.operand = operand,
		.compare = compare,
		.before = before,
		.cookie = cookie};
	return start(ep, &m, remote, offset);
}

static int flush(struct tran_ep *ep, void *cookie)
{
	struct emulated_ep *e = ep->emulated;
	if (ep->closed || (e && e->broken)) /* what went before may not have arrived */
		return tran_path_over(ep);
	if (!e || rpwi_list_empty(&e->ordered)) {
		ep->tran->up->done(ep->user, cookie, NULL);
		return 0;
	}
	if (e->ops >= EMULATED_OPS_MAX)
		return RPWI_LATER;
	return op_new(e, &(struct emulated_move){.kind = EMULATED_FLUSH, .cookie = cookie})
		       ? 0
		       : tran_no_memory(ep->tran, "an operation");
}

const struct tran_rma_ops emulated_rma = {.transfer = transfer, .atomic = atomic, .flush = flush};

/* ---- by the transport's own hands ---- */

bool emulate_can_step(const struct tran_ep *ep)
{
	return ep->emulated && !rpwi_list_empty(&ep->emulated->by_hand);
}

size_t emulate_step(struct tran_ep *ep)
{
	struct emulated_ep *e = ep->emulated;
	size_t moved = 0;
	if (!emulate_can_step(ep))
		return 0;
	struct op *op = RPWI_CONTAINER_OF(rpwi_list_pop(&e->by_hand), struct op, waiting);
	int rc = ep->tran->ops->reach->step(ep, &op->m, &moved);
	op->m.done += moved;
	op->arrived = op->m.done;
	if (rc == TRAN_ASK) {
		op_ask(e, op);
		pump(e);
	} else if (rc < 0) {
		op_fault(op, rpwi_last_error());
		op_check_done(e, op);
	} else if (op->m.done < op->m.len) {
		rpwi_list_add_tail(&e->by_hand, &op->waiting);
	} else {
		op_check_done(e, op);
	}
	return moved;
}

bool emulate_is_idle(const struct tran_ep *ep)
{
	const struct emulated_ep *e = ep->emulated;
	return !e || e->small + 1 == e->nobody.chunks;
}

static void take_over(struct emulated_ep *e, struct op *op)
{
	for (unsigned i = 0; i < EMULATED_SMALL; i++) {
		struct chunk *c = &e->chunk[i];
		if (c->op != op)
			continue;
		c->op = &e->nobody;
		c->local = NULL;
		e->nobody.chunks++;
	}
	op->chunks = 0;
	rpwi_list_del(&op->waiting);
	if (op->error.status) {
		op_check_done(e, op);
		return;
	}
	op->m.done = op->arrived;
	op->m.by_hand = true;
	rpwi_list_add_tail(&e->by_hand, &op->waiting);
}

void emulate_tick(struct tran_ep *ep, unsigned patience)
{
	struct emulated_ep *e = ep->emulated;
	if (!e)
		return;
	e->ticks = e->answers == e->answers_seen && !emulate_is_idle(ep) ? e->ticks + 1 : 0;
	e->answers_seen = e->answers;
	if (e->ticks < patience)
		return;
	e->ticks = 0;
	for (struct rpwi_list *at = e->gets.next, *next; at != &e->gets; at = next) {
		struct op *op = RPWI_CONTAINER_OF(at, struct op, posted);
		next = at->next;
		if (!op->m.by_hand)
			take_over(e, op);
	}
}

/* ---- the side that asks, when it is answered ---- */

static void refused(struct emulated_ep *e, const struct chunk *c, unsigned answer)
{
	const char *name = e->ep->tran->ops->name;
	unsigned long long at = c->op->m.offset;
	if (answer == NO_ACCESS)
		rpwi_fail(RPW_ERR_ACCESS,
			"%s: the peer refused the access to %zu bytes at offset %llu: it has no "
			"such memory registered (any more), or not for this, or not "
			"that "
			"much; use the key that it packed",
			name, c->op->m.len, at);
	else
		rpwi_fail(RPW_ERR_SYSTEM,
			"%s: the peer's side could not move the %zu bytes at offset %llu", name,
			c->op->m.len, at);
	op_fault(c->op, rpwi_last_error());
}

static void answered(struct tran_ep *ep, const struct done *d, const void *body, size_t len)
{
	struct emulated_ep *e = ep->emulated;
	struct chunk *c = e ? chunk_of(e, d->id) : NULL;
	bool get = c && c->op->m.kind == EMULATED_GET, ok = d->answer == OK;
	bool more = get && ok && ep->tran->ops->reach && len && len < c->len;
	if (!c || c->answered || c == c->op->open || d->answer >= ANSWERS ||
		(get && ok && (is_bulk(e, c) || (len != c->len && !more))) ||
		(len && !(get && ok))) {
		breach(ep, "an answer to what was not asked");
		return;
	}
	if (!ok) {
		refused(e, c, d->answer);
		op_shut(e, c->op);
	} else if (get && c->local && len && place(ep->tran, c->local, body, len))
		op_fault(c->op,
			&(struct rpwi_error){RPW_ERR_INVALID, EFAULT, "its buffer is not mapped"});
	else if (c->op->m.before)
		*c->op->m.before = d->value;
	c->op->arrived += len;
	e->answers++;
	if (more) {
		c->local = c->local ? c->local + len : NULL;
		c->len -= (uint32_t)len;
		return;
	}
	c->answered = true;
	if (c->bulk && get) {
		ep->tran->ops->bulk->drop(c->bulk);
		c->bulk = NULL;
	}
	if (!c->bulk)
		chunk_done(e, c);
	pump(e);
}

/* ---- the side that answers ---- */

/* The bytes of a get: only when they go, since the answer may have waited, and the memory be gone.
 * NULL, and s->answer says so. */
static const void *got(struct emulated_ep *e, struct serve *s, size_t len)
{
	struct tran *t = e->ep->tran;
	const uint8_t *from = own(t, &s->ask, len, TRAN_READ);
	if (from && t->ops->reach)
		return from;
	uint8_t *p = from ? bounce(e->ep) : NULL;
	if (p && !tran_fetch(t->emulated->pid, p, from, len))
		return p;
	s->answer = from && !p ? FAILED : NO_ACCESS;
	return NULL;
}

/* An answer goes, or its rest waits for room. */
static bool answer_sent(struct emulated_ep *e, struct serve *s)
{
	bool get = s->ask.kind == EMULATED_GET;
	do {
		size_t len = RPWI_MIN(s->ask.len, s->part);
		const void *body = get && s->answer == OK && len ? got(e, s, len) : NULL;
		struct done d = {.kind = EMULATED_DONE,
			.answer = s->answer,
			.id = s->ask.id,
			.value = s->value};
		if (frame(e, &d, sizeof(d), body, body ? len : 0))
			return false;
		s->ask.offset += len;
		s->ask.len -= len;
	} while (get && s->answer == OK && s->ask.len);
	s->busy = false;
	return true;
}

static void answer(struct emulated_ep *e, struct serve *s, unsigned how)
{
	s->answer = (uint8_t)how;
	if (!rpwi_list_empty(&e->owed) || !answer_sent(e, s))
		rpwi_list_add_tail(&e->owed, &s->owed);
}

static void serve_bulk(struct emulated_ep *e, struct serve *s)
{
	const struct tran_bulk_ops *bulk = e->ep->tran->ops->bulk;
	bool put = s->ask.kind == EMULATED_PUT;
	struct region *m =
		region_find(e->ep->tran, &s->ask, s->ask.len, put ? TRAN_WRITE : TRAN_READ);
	int rc = m ? bulk->make(
			     e->ep, !put, region_at(m, &s->ask), s->ask.len, &m->home, s, &s->bulk)
		   : 0;
	s->answer = m ? OK : NO_ACCESS;
	if (rc) {
		s->answer = FAILED;
		m = NULL;
	}
	if (!m && !put && rc != RPW_ERR_PEER_GONE) {
		answer(e, s, s->answer);
		return;
	}
	/* Of a put that is refused the bytes come, too. */
	if (!m && rc != RPW_ERR_PEER_GONE)
		rc = bulk->make(e->ep, false, NULL, s->ask.len, NULL, s, &s->bulk);
	if (rc == RPW_ERR_PEER_GONE) /* up->failed says so */
		return;
	if (!s->bulk) {
		e->ep->tran->ops->breach(e->ep, rpwi_last_error());
		return;
	}
	if (m)
		rpwi_list_add_tail(&m->moving, &s->moving);
	bulk->go(s->bulk, put ? s->ask.id | EMULATED_PUT_ID : s->ask.id);
}

static unsigned put_small(struct tran *t, const struct ask *a, const void *body)
{
	uint8_t *at = own(t, a, a->len, TRAN_WRITE);
	return !at || place(t, at, body, a->len) ? NO_ACCESS : OK;
}

static unsigned add_or_swap(struct tran *t, const struct ask *a, const void *body, uint64_t *before)
{
	struct operands o;
	uint64_t *at = (uint64_t *)(void *)own(t, a, 8, TRAN_ATOMIC);
	memcpy(&o, body, sizeof(o));
	if (!at || (uintptr_t)at % 8 || (!t->ops->reach && tran_reachable(at)))
		return NO_ACCESS;
	*before = tran_atomic_here(at, a->kind == EMULATED_ADD ? TRAN_FETCH_ADD : TRAN_COMPARE_SWAP,
		o.operand, o.compare);
	return OK;
}

static const char *ask_wrong(const struct tran_ep *ep, const struct ask *a, size_t body_len)
{
	unsigned i = a->id % (1 << INDEX_BITS);
	bool atomic = a->kind == EMULATED_ADD || a->kind == EMULATED_SWAP;
	if (i >= EMULATED_WINDOW || (i >= EMULATED_SMALL) != !!a->bulk ||
		a->bulk > (ep->tran->ops->bulk ? 1 : 0) || a->id & EMULATED_PUT_ID)
		return "a request with a number that there is not";
	size_t least = 0, most = frame_most(ep), body = 0;
	if (ep->tran->ops->reach && a->kind == EMULATED_GET)
		most = EMULATED_SPAN;
	if (a->bulk) {
		least = 1;
		most = TRAN_BULK_LEN_MAX;
	} else if (atomic) {
		least = most = 8;
		body = sizeof(struct operands);
	} else if (a->kind == EMULATED_PUT) {
		body = a->len;
	}
	if (a->more && (a->kind != EMULATED_PUT || !ep->tran->ops->reach))
		return "a request that has no more bytes, and says so";
	if (a->len < least || a->len > most || (a->bulk && atomic))
		return "a request for more than one takes";
	if (body_len != body)
		return "a request that is not as long as it says";
	return NULL;
}

static void serve(struct emulated_ep *e, struct serve *s, const struct ask *a, const void *body)
{
	struct tran *t = e->ep->tran;
	s->busy = true;
	s->ask = *a;
	s->part = part_most(e->ep, a->len);
	s->value = 0;
	s->bulk = NULL;
	if (a->bulk)
		serve_bulk(e, s);
	else if (a->kind == EMULATED_GET) /* bytes are checked when they go */
		answer(e, s, a->len || own(t, a, 0, TRAN_READ) ? OK : NO_ACCESS);
	else if (a->kind == EMULATED_PUT)
		answer(e, s, put_small(t, a, body));
	else
		answer(e, s, add_or_swap(t, a, body, &s->value));
}

static void asked(struct tran_ep *ep, const struct ask *a, const void *body, size_t body_len)
{
	struct emulated_ep *e = of(ep);
	const char *why = ask_wrong(ep, a, body_len);
	struct serve *s = e && !why ? &e->serve[a->id % (1 << INDEX_BITS)] : NULL;
	if (s && s->bulk && s->ask.kind == EMULATED_GET)
		s += EMULATED_BULK;
	if (s && s->busy)
		why = "more requests than allowed";
	if (s && !why &&
		a->more) { /* the answer to the last piece is that to all: it ends highest */
		put_small(ep->tran, a, body);
		return;
	}
	if (why)
		breach(ep, why);
	else if (!s)
		ep->tran->ops->breach(ep, &(struct rpwi_error){RPW_ERR_NO_MEMORY, ENOMEM,
						  "no memory to answer the peer's requests"});
	else
		serve(e, s, a, body);
}

/* ---- what the transport tells ---- */

void emulate_frame(
	struct tran_ep *ep, const void *head, size_t head_len, const void *body, size_t body_len)
{
	uint8_t kind = *(const uint8_t *)head;
	struct ask a;
	struct done d;
	if (kind < EMULATED_DONE && head_len == sizeof(a)) {
		memcpy(&a, head, sizeof(a));
		asked(ep, &a, body, body_len);
	} else if (kind == EMULATED_DONE && head_len == sizeof(d)) {
		memcpy(&d, head, sizeof(d));
		answered(ep, &d, body, body_len);
	} else
		breach(ep, "a frame about memory that does not add up");
}

static void served(struct emulated_ep *e, struct serve *s, int status)
{
	rpwi_list_del(&s->moving);
	s->bulk = NULL;
	if (s->ask.kind != EMULATED_PUT) {
		s->busy = false; /* the bytes were the answer */
		return;
	}
	if (s->answer == OK && status)
		s->answer = status == RPW_ERR_ACCESS ? NO_ACCESS : FAILED;
	answer(e, s, s->answer);
}

void emulate_moved(struct tran_ep *ep, void *cookie, int status)
{
	struct emulated_ep *e = ep->emulated;
	struct chunk *c = cookie;
	if (c < e->chunk || c >= e->chunk + EMULATED_WINDOW) {
		served(e, cookie, status);
		return;
	}
	c->bulk = NULL;
	if (status == RPW_ERR_ACCESS && c->op->m.kind == EMULATED_GET)
		refused(e, c, NO_ACCESS);
	else if (status)
		op_fault(c->op, &(struct rpwi_error){status, 0, "its bytes could not be moved"});
	if (c->op->m.kind == EMULATED_GET || c->answered)
		chunk_done(e, c);
	pump(e);
}

void emulate_room(struct tran_ep *ep)
{
	struct emulated_ep *e = ep->emulated;
	if (!e)
		return;
	while (!rpwi_list_empty(&e->owed)) {
		struct serve *s = RPWI_CONTAINER_OF(e->owed.next, struct serve, owed);
		if (!answer_sent(e, s))
			return;
		rpwi_list_del(&s->owed);
	}
	pump(e);
}

void emulate_ep_close(struct tran_ep *ep)
{
	struct emulated_ep *e = ep->emulated;
	ep->closed = true;
	if (!e)
		return;
	struct rpwi_list *lists[] = {&e->gets, &e->ordered};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		while (!rpwi_list_empty(lists[i]))
			op_free(e, RPWI_CONTAINER_OF(rpwi_list_pop(lists[i]), struct op, posted));
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(e->serve); i++)
		rpwi_list_del(&e->serve[i].moving);
	rpwi_error_drop(&e->nobody.error);
	free(e);
	ep->emulated = NULL;
}
