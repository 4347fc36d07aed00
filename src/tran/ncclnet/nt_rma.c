/* SPDX-License-Identifier: BSD-3-Clause */
/* nt_rma.c - gets, puts, atomics and flush.
 *
 * An operation is asked for in chunks, each by itself: up to NT_HERE_MAX bytes with the frames, else as a message of bulk data, which its sender announces. At most NT_SMALL_MAX and NT_BULK_MAX chunks of one side are unanswered;
 * the rest waits. A put is done when the peer has said that the bytes are in place (and the plugin that it needs ours no more); so flush needs nothing on the wire, it waits for what was posted before.
 */
#include "tran/ncclnet/nt_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/guard.h"

enum { INDEX_BITS = 7 };
_Static_assert(NT_CHUNKS <= 1 << INDEX_BITS, "an index fits");

/* ---- the side that asks ---- */

static struct nt_op *op_new(struct nt_ep *ep, enum nt_op_kind kind, void *cookie)
{
	struct nt_op *op = calloc(1, sizeof *op);
	if (!op)
		return NULL;
	op->kind = kind;
	op->cookie = cookie;
	rpwi_list_init(&op->waiting);
	rpwi_list_init(&op->posted);
	ep->ops++;
	return op;
}

static void op_free(struct nt_ep *ep, struct nt_op *op)
{
	rpwi_list_del(&op->waiting);
	rpwi_list_del(&op->posted);
	ep->ops--;
	free(op);
}

void nt_rma_drop(struct nt_ep *ep)
{
	struct rpwi_list *lists[] = {&ep->gets, &ep->ordered};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		while (!rpwi_list_empty(lists[i]))
			op_free(ep,
				RPWI_CONTAINER_OF(rpwi_list_pop(lists[i]), struct nt_op, posted));
	memset(ep->chunk, 0, sizeof ep->chunk);
	ep->answers_count = 0;
}

static void op_done(struct nt_ep *ep, struct nt_op *op)
{
	void *cookie = op->cookie;
	int status = op->status;
	op_free(ep, op);
	ep->base.tran->up->done(ep->base.user, cookie, status);
}

static void op_check_done(struct nt_ep *ep, struct nt_op *op)
{
	if (op->chunks || !rpwi_list_empty(&op->waiting))
		return;
	op_done(ep, op);
	while (!rpwi_list_empty(&ep->ordered) &&
		RPWI_CONTAINER_OF(ep->ordered.next, struct nt_op, posted)->kind == NT_OP_FLUSH)
		op_done(ep, RPWI_CONTAINER_OF(rpwi_list_pop(&ep->ordered), struct nt_op, posted));
}

/* It goes wrong on this side: no use in asking for the rest. */
static void op_fault(struct nt_op *op, int status)
{
	if (!op->status)
		op->status = status;
	rpwi_list_del(&op->waiting);
}

static struct nt_chunk *chunk_new(struct nt_ep *ep, struct nt_op *op, size_t len, bool bulk)
{
	static const uint8_t kinds[] = {[NT_OP_GET] = NT_GET,
		[NT_OP_PUT] = NT_PUT,
		[NT_OP_ADD] = NT_ADD,
		[NT_OP_SWAP] = NT_SWAP};
	unsigned i = bulk ? NT_SMALL_MAX : 0;
	while (ep->chunk[i].op) /* one is free: the counts say so */
		i++;
	struct nt_chunk *c = &ep->chunk[i];
	*c = (struct nt_chunk){.op = op,
		.id = ++ep->chunk_number << INDEX_BITS | i,
		.len = (uint32_t)len,
		.local = op->local ? op->local + op->issued : NULL,
		.kind = kinds[op->kind]};
	*(bulk ? &ep->bulk_chunks : &ep->small_chunks) += 1;
	op->chunks++;
	op->issued += len;
	if (op->issued == op->len)
		rpwi_list_del(&op->waiting);
	return c;
}

static struct nt_chunk *chunk_of(struct nt_ep *ep, uint32_t id)
{
	unsigned i = id & ((1 << INDEX_BITS) - 1);
	struct nt_chunk *c = i < NT_CHUNKS ? &ep->chunk[i] : NULL;
	return c && c->op && c->id == id ? c : NULL;
}

static bool is_bulk(const struct nt_ep *ep, const struct nt_chunk *c)
{
	return c - ep->chunk >= NT_SMALL_MAX;
}

static void chunk_done(struct nt_ep *ep, struct nt_chunk *c)
{
	struct nt_op *op = c->op;
	*(is_bulk(ep, c) ? &ep->bulk_chunks : &ep->small_chunks) -= 1;
	*c = (struct nt_chunk){0};
	op->chunks--;
	op_check_done(ep, op);
}

/* A put of bulk data: announced, and queued behind those announced before. False: not now, or not at all. */
static bool issue_put(struct nt_ep *ep, struct nt_op *op, const struct nt_target *at, size_t len)
{
	struct nt_reg *reg = NULL;
	uint8_t *p = nt_frame_reserve(ep, NT_ITEM_LEN + NT_TARGET_LEN);
	if (!p)
		return false;
	reg = nt_lane_register(&ep->bulk_out, op->local_mem, op->local + op->issued, len);
	if (!reg) {
		nt_frame_unreserve(ep, NT_ITEM_LEN + NT_TARGET_LEN);
		op_fault(op, RPW_ERR_SYSTEM);
		op_check_done(ep, op);
		return true;
	}
	struct nt_chunk *c = chunk_new(ep, op, len, true);
	nt_put_item(p, &(struct nt_item){.kind = NT_PUT, .id = c->id, .len = len});
	nt_put_target(p + NT_ITEM_LEN, at);
	nt_bulk_add(ep, true,
		&(struct nt_bulk){
			.data = c->local, .len = len, .reg = reg, .id = c->id, .kind = NT_PUT});
	return true;
}

static bool issue_small(struct nt_ep *ep, struct nt_op *op, const struct nt_target *at, size_t len)
{
	bool atomic = op->kind == NT_OP_ADD || op->kind == NT_OP_SWAP;
	size_t more = op->kind == NT_OP_PUT ? len : atomic ? NT_ATOMIC_LEN - NT_TARGET_LEN : 0;
	uint8_t *p = nt_frame_reserve(ep, NT_ITEM_LEN + NT_TARGET_LEN + more);
	if (!p)
		return false;
	if (op->kind == NT_OP_PUT && len &&
		rpwi_guard_copy(p + NT_ITEM_LEN + NT_TARGET_LEN, op->local + op->issued, len)) {
		nt_frame_unreserve(ep, NT_ITEM_LEN + NT_TARGET_LEN + more);
		op_fault(op, RPW_ERR_INVALID); /* our own program's buffer is not mapped */
		op_check_done(ep, op);
		return true;
	}
	struct nt_chunk *c = chunk_new(ep, op, len, len > NT_HERE_MAX);
	c->sent = true;
	nt_put_item(p, &(struct nt_item){.kind = c->kind == NT_PUT ? NT_PUT_HERE : c->kind,
			       .id = c->id,
			       .len = len});
	nt_put_target(p + NT_ITEM_LEN, at);
	if (atomic) {
		rpwi_put_be64(p + NT_ITEM_LEN + NT_TARGET_LEN, op->operand);
		rpwi_put_be64(p + NT_ITEM_LEN + NT_TARGET_LEN + 8, op->compare);
	}
	return true;
}

/* Ask for one part. False: there is no room for it now. */
static bool issue(struct nt_ep *ep, struct nt_op *op)
{
	size_t left = op->len - op->issued, len = RPWI_MIN(left, ep->out.load->chunk_max);
	bool bulk = len > NT_HERE_MAX;
	struct nt_target at = {.slot = op->target.slot,
		.key = op->target.key,
		.offset = op->target.offset + op->issued};
	if (bulk ? ep->bulk_chunks == NT_BULK_MAX || !ep->bulk_in.comm || ep->bulk_in.error ||
				ep->bulk_out.error
		 : ep->small_chunks == NT_SMALL_MAX)
		return false;
	return bulk && op->kind == NT_OP_PUT ? issue_put(ep, op, &at, len)
					     : issue_small(ep, op, &at, len);
}

void nt_rma_pump(struct nt_ep *ep)
{
	for (int bulk = 0; bulk < 2; bulk++)
		while (!rpwi_list_empty(&ep->waiting[bulk]) &&
			issue(ep,
				RPWI_CONTAINER_OF(ep->waiting[bulk].next, struct nt_op, waiting))) {
		}
}

/* What was asked for goes out, unless it gathers behind what is under way. */
static void push(struct nt_ep *ep)
{
	nt_rma_pump(ep);
	nt_frame_flush(ep);
	if (ep->to_send.count)
		nt_bulk_push(ep);
}

static int post(struct nt_ep *ep, enum nt_op_kind kind, const struct tran_desc *remote,
	uint64_t offset, void *local, size_t len, const struct tran_mem *mem, void *cookie,
	struct nt_op **out)
{
	struct nt_key key;
	if (ep->state != NT_UP)
		return -EPIPE;
	if (ep->ops >= NT_OPS_MAX)
		return -ENOBUFS;
	struct nt_op *op = op_new(ep, kind, cookie);
	if (!op)
		return -ENOMEM;
	if (nt_get_desc(remote, &key))
		key = (struct nt_key){
			.slot = UINT32_MAX}; /* garbled: the peer will not find it, either */
	op->target = (struct nt_target){.slot = key.slot, .key = key.key, .offset = offset};
	op->local = local;
	op->local_mem = (struct nt_mem *)mem;
	op->len = len;
	rpwi_list_add_tail(kind == NT_OP_GET ? &ep->gets : &ep->ordered, &op->posted);
	rpwi_list_add_tail(&ep->waiting[len > NT_HERE_MAX], &op->waiting);
	*out = op;
	return 0;
}

int nt_rma(struct tran_ep *tran_ep, bool is_put, const struct tran_desc *remote, uint64_t offset,
	void *local, size_t len, const struct tran_mem *mem, void *cookie)
{
	struct nt_ep *ep = (struct nt_ep *)tran_ep;
	struct nt_op *op;
	int err = post(
		ep, is_put ? NT_OP_PUT : NT_OP_GET, remote, offset, local, len, mem, cookie, &op);
	if (!err)
		push(ep);
	return err;
}

int nt_atomic(struct tran_ep *tran_ep, enum tran_atomic kind, const struct tran_desc *remote,
	uint64_t offset, uint64_t operand, uint64_t compare, uint64_t *before, void *cookie)
{
	struct nt_ep *ep = (struct nt_ep *)tran_ep;
	struct nt_op *op;
	int err = post(ep, kind == TRAN_FETCH_ADD ? NT_OP_ADD : NT_OP_SWAP, remote, offset, NULL, 8,
		NULL, cookie, &op);
	if (err)
		return err;
	op->operand = operand;
	op->compare = compare;
	op->before = before;
	push(ep);
	return 0;
}

int nt_flush(struct tran_ep *tran_ep, void *cookie)
{
	struct nt_ep *ep = (struct nt_ep *)tran_ep;
	if (ep->state != NT_UP)
		return -EPIPE;
	if (rpwi_list_empty(&ep->ordered)) {
		ep->base.tran->up->done(ep->base.user, cookie, RPW_OK);
		return 0;
	}
	if (ep->ops >= NT_OPS_MAX)
		return -ENOBUFS;
	struct nt_op *op = op_new(ep, NT_OP_FLUSH, cookie);
	if (!op)
		return -ENOMEM;
	rpwi_list_add_tail(&ep->ordered, &op->posted);
	return 0;
}

/* ---- what the peer answers ---- */

static const char *on_data(struct nt_ep *ep, const struct nt_item *i)
{
	struct nt_chunk *c = chunk_of(ep, i->id);
	if (!c || c->kind != NT_GET || !is_bulk(ep, c) || c->coming || c->len != i->len)
		return "data that nobody asked for";
	if (ep->to_receive.count == RPWI_ARRAY_LEN(ep->to_receive.at))
		return "more puts and data than allowed"; /* its puts have taken the places of what we asked for */
	c->coming = true;
	struct nt_bulk b = {.data = c->local, .len = c->len, .id = c->id, .kind = NT_DATA};
	b.reg = nt_lane_register(&ep->bulk_in, c->op->local_mem, c->local, c->len);
	b.answer = b.reg ? NT_OK : NT_FAILED;
	nt_bulk_add(ep, false, &b);
	return NULL;
}

static const char *on_data_here(struct nt_ep *ep, const struct nt_item *i, const uint8_t *more)
{
	struct nt_chunk *c = chunk_of(ep, i->id);
	if (!c || c->kind != NT_GET || is_bulk(ep, c) || c->len != i->len)
		return "data that nobody asked for";
	if (c->len && rpwi_guard_copy_up(c->local, more, c->len))
		op_fault(c->op, RPW_ERR_INVALID);
	chunk_done(ep, c);
	return NULL;
}

static const char *on_done(struct nt_ep *ep, const struct nt_item *i)
{
	struct nt_chunk *c = chunk_of(ep, i->id);
	if (!c || c->answered || (c->kind == NT_GET && (c->coming || i->answer == NT_OK)))
		return "an answer to what was not asked";
	struct nt_op *op = c->op;
	if (i->answer == NT_OK && op->before)
		*op->before = i->value;
	else if (i->answer == NT_NO_ACCESS)
		op_fault(op, rpwi_fail(RPW_ERR_ACCESS,
				     "ncclnet: %s refused the access to %zu bytes at offset %llu: "
				     "it has no such memory registered (any more), or not for "
				     "this, or not that much; use the key that it packed",
				     ep->peer, op->len, (unsigned long long)op->target.offset));
	else if (i->answer != NT_OK)
		op_fault(op, rpwi_fail(RPW_ERR_SYSTEM,
				     "ncclnet: plugin %s v%d of %s could not register the %zu "
				     "bytes at offset %llu",
				     ep->out.load->name, ep->out.load->n->abi, ep->peer, op->len,
				     (unsigned long long)op->target.offset));
	c->answered = true;
	if (c->sent || c->kind == NT_GET)
		chunk_done(ep, c);
	return NULL;
}

void nt_rma_sent(struct nt_ep *ep, const struct nt_bulk *b)
{
	struct nt_chunk *c = b->kind == NT_PUT ? chunk_of(ep, b->id) : NULL;
	if (!c)
		return;
	c->sent = true;
	if (c->answered)
		chunk_done(ep, c);
}

/* ---- the side that answers ---- */

static const char *answer(struct nt_ep *ep, const struct nt_answer *a)
{
	if (ep->answers_count == NT_ANSWERS_MAX)
		return "more requests than allowed";
	ep->answers[(ep->answers_first + ep->answers_count++) % NT_ANSWERS_MAX] = *a;
	return NULL;
}

static const char *done(struct nt_ep *ep, uint32_t id, uint8_t how, uint64_t value)
{
	return answer(
		ep, &(struct nt_answer){
			    .item = {.kind = NT_DONE, .id = id, .answer = how, .value = value}});
}

void nt_rma_came(struct nt_ep *ep, const struct nt_bulk *b)
{
	if (b->kind == NT_PUT) {
		const char *why = done(ep, b->id, b->answer, 0);
		if (why)
			nt_ep_fail(ep, RPW_ERR_PROTOCOL, "%s sent %s", ep->peer, why);
		return;
	}
	struct nt_chunk *c = chunk_of(ep, b->id);
	if (!c)
		return;
	if (b->answer != NT_OK)
		op_fault(c->op, RPW_ERR_SYSTEM);
	chunk_done(ep, c);
}

/* Data of what the peer asked for, or a refusal in its place. False: not now. */
static bool place_data(struct nt_ep *ep, struct nt_answer *a)
{
	size_t len = a->item.len;
	bool here = len <= NT_HERE_MAX;
	struct nt_mem *m = nt_mem_find(nt_of_ep(ep), &a->at, len, TRAN_READ);
	uint8_t *from = m ? (uint8_t *)m->base.addr + a->at.offset : NULL;
	struct nt_reg *reg = NULL;
	if (!here && ep->to_send.count >= NT_BULK_MAX)
		return false; /* the other half is for our own puts */
	uint8_t *p = nt_frame_reserve(ep, NT_ITEM_LEN + (here && m ? len : 0));
	if (!p)
		return false;
	if (!m)
		a->item =
			(struct nt_item){.kind = NT_DONE, .id = a->item.id, .answer = NT_NO_ACCESS};
	else if (here && len && rpwi_guard_copy(p + NT_ITEM_LEN, from, len)) {
		nt_frame_unreserve(ep, len);
		a->item =
			(struct nt_item){.kind = NT_DONE, .id = a->item.id, .answer = NT_NO_ACCESS};
	} else if (!here && !(reg = nt_lane_register(&ep->bulk_out, m, from, len)))
		a->item = (struct nt_item){.kind = NT_DONE, .id = a->item.id, .answer = NT_FAILED};
	else
		a->item.kind = here ? NT_DATA_HERE : NT_DATA;
	nt_put_item(p, &a->item);
	if (a->item.kind == NT_DATA)
		nt_bulk_add(ep, true,
			&(struct nt_bulk){.data = from,
				.len = len,
				.reg = reg,
				.mem = m,
				.id = a->item.id,
				.kind = NT_DATA});
	return true;
}

void nt_rma_answer(struct nt_ep *ep)
{
	for (; ep->answers_count;
		ep->answers_count--, ep->answers_first = (ep->answers_first + 1) % NT_ANSWERS_MAX) {
		struct nt_answer *a = &ep->answers[ep->answers_first];
		if (a->item.kind == NT_GET) {
			if (!place_data(ep, a))
				return;
			continue;
		}
		uint8_t *p = nt_frame_reserve(ep, NT_ITEM_LEN);
		if (!p)
			return;
		nt_put_item(p, &a->item);
	}
}

static const char *on_put(struct nt_ep *ep, const struct nt_item *i, const uint8_t *more)
{
	struct nt_target at = nt_get_target(more);
	struct nt_mem *m = nt_mem_find(nt_of_ep(ep), &at, (size_t)i->len, TRAN_WRITE);
	if (ep->to_receive.count == RPWI_ARRAY_LEN(ep->to_receive.at))
		return "more puts than allowed";
	struct nt_bulk b = {
		.len = (size_t)i->len, .id = i->id, .kind = NT_PUT, .answer = NT_NO_ACCESS};
	if (m) {
		b.data = (uint8_t *)m->base.addr + at.offset;
		b.reg = nt_lane_register(&ep->bulk_in, m, b.data, b.len);
		b.mem = b.reg ? m : NULL;
		b.answer = b.reg ? NT_OK : NT_FAILED;
	}
	nt_bulk_add(ep, false, &b);
	return NULL;
}

static const char *on_put_here(struct nt_ep *ep, const struct nt_item *i, const uint8_t *more)
{
	struct nt_target at = nt_get_target(more);
	struct nt_mem *m = nt_mem_find(nt_of_ep(ep), &at, (size_t)i->len, TRAN_WRITE);
	bool bad = !m || (i->len && rpwi_guard_copy_up((uint8_t *)m->base.addr + at.offset,
					    more + NT_TARGET_LEN, (size_t)i->len));
	return done(ep, i->id, bad ? NT_NO_ACCESS : NT_OK, 0);
}

struct atomic {
	uint64_t *at, operand, compare, before;
	bool is_add;
};

static void do_atomic(void *arg)
{
	struct atomic *a = arg;
	if (a->is_add) {
		a->before = __atomic_fetch_add(a->at, a->operand, __ATOMIC_SEQ_CST);
		return;
	}
	a->before = a->compare;
	__atomic_compare_exchange_n(
		a->at, &a->before, a->operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static const char *on_atomic(struct nt_ep *ep, const struct nt_item *i, const uint8_t *more)
{
	struct nt_target at = nt_get_target(more);
	struct nt_mem *m = nt_mem_find(nt_of_ep(ep), &at, 8, TRAN_ATOMIC);
	struct atomic a = {.operand = rpwi_get_be64(more + NT_TARGET_LEN),
		.compare = rpwi_get_be64(more + NT_TARGET_LEN + 8),
		.is_add = i->kind == NT_ADD};
	if (m)
		a.at = (uint64_t *)((char *)m->base.addr + at.offset);
	bool bad = !m || (uintptr_t)a.at % 8 || rpwi_guard_call(do_atomic, &a);
	return done(ep, i->id, bad ? NT_NO_ACCESS : NT_OK, a.before);
}

const char *nt_rma_take(struct nt_ep *ep, const struct nt_item *i, const uint8_t *more)
{
	switch (i->kind) {
	case NT_FRAME:
		ep->base.tran->up->frame(
			ep->base.user, more, i->head_len, more + i->head_len, (size_t)i->len);
		return NULL;
	case NT_GET:
		return answer(ep, &(struct nt_answer){.item = *i, .at = nt_get_target(more)});
	case NT_PUT:
		return on_put(ep, i, more);
	case NT_PUT_HERE:
		return on_put_here(ep, i, more);
	case NT_DATA:
		return on_data(ep, i);
	case NT_DATA_HERE:
		return on_data_here(ep, i, more);
	case NT_ADD:
	case NT_SWAP:
		return on_atomic(ep, i, more);
	default:
		return on_done(ep, i);
	}
}
