/* SPDX-License-Identifier: BSD-3-Clause */
/* emulate_ask.c - the side that asks, and what it moves by its own hands (emulate_priv.h).
 *
 * An operation is asked for in chunks, each by itself, in frames or as one message of bulk data. A
 * put is done when the peer has said that the bytes are in place (and the transport that it needs
 * ours no more); so flush needs nothing on the wire, it waits for what was posted before. */
#include "tran/emulate_priv.h"

#include <errno.h>
#include <stdlib.h>

enum {
	OPS_KEPT = 256,
	/* requests of operations of several frames, with `reach`: short ones overtake them */
	LONG_MOST = 16
};

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
	if (emulate_send(e, a, sizeof(*a), NULL, 0)) {
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
	if (emulate_send(e, a, sizeof(*a), body, len))
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

void emulate_pump(struct emulated_ep *e)
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
	op->part = emulate_part_most(e->ep, op->m.len);
	rpwi_list_add_tail(&e->waiting[op->m.len > op->part], &op->waiting);
}

/* What can go does. 0, or the endpoint has failed, and the operation was not taken. */
static int begin(struct emulated_ep *e, struct op *op)
{
	if (e->pumping) /* from inside up->done: its turn comes there */
		return 0;
	e->beginning = op;
	emulate_pump(e);
	op = e->beginning;
	e->beginning = NULL;
	if (RPWI_LIKELY(!e->broken) || !op || op->chunks)
		return 0;
	op_free(e, op);
	return tran_path_over(e->ep);
}

int emulate_begin(struct tran_ep *ep, const struct emulated_move *m)
{
	struct emulated_ep *e = ep->closed ? NULL : emulate_of(ep);
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
		emulate_pump(e);
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

void emulate_answered(struct tran_ep *ep, const struct done *d, const void *body, size_t len)
{
	struct emulated_ep *e = ep->emulated;
	struct chunk *c = e ? chunk_of(e, d->id) : NULL;
	bool get = c && c->op->m.kind == EMULATED_GET, ok = d->answer == OK;
	bool more = get && ok && ep->tran->ops->reach && len && len < c->len;
	if (!c || c->answered || c == c->op->open || d->answer >= ANSWERS ||
		(get && ok && (is_bulk(e, c) || (len != c->len && !more))) ||
		(len && !(get && ok))) {
		emulate_breach(ep, "an answer to what was not asked");
		return;
	}
	if (!ok) {
		refused(e, c, d->answer);
		op_shut(e, c->op);
	} else if (get && c->local && len && emulate_place(ep->tran, c->local, body, len))
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
	emulate_pump(e);
}

void emulate_chunk_moved(struct emulated_ep *e, struct chunk *c, int status)
{
	c->bulk = NULL;
	if (status == RPW_ERR_ACCESS && c->op->m.kind == EMULATED_GET)
		refused(e, c, NO_ACCESS);
	else if (status)
		op_fault(c->op, &(struct rpwi_error){status, 0, "its bytes could not be moved"});
	if (c->op->m.kind == EMULATED_GET || c->answered)
		chunk_done(e, c);
	emulate_pump(e);
}

void emulate_ask_close(struct emulated_ep *e)
{
	struct rpwi_list *lists[] = {&e->gets, &e->ordered};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		while (!rpwi_list_empty(lists[i]))
			op_free(e, RPWI_CONTAINER_OF(rpwi_list_pop(lists[i]), struct op, posted));
	rpwi_error_drop(&e->nobody.error);
}
