/* SPDX-License-Identifier: BSD-3-Clause */
/* atomic.c - fetch-add and compare-swap on 8 bytes of the peer's. On a path that may break they go
 * as counted frames, which happen once, rather than as the transport's, of which nobody could tell
 * whether they did. So they do for memory of GPUs, where the peer's processor does them. */
#include "msg/cuda.h"
#include "msg/endpoint.h"
#include "msg/ids.h"
#include "msg/objects.h"
#include "msg/request.h"
#include "msg/rma.h"
#include "msg/transfer.h"

enum { ATOMICS_MAX = 4096 };

static int atomic_as_frame(rpw_request *r)
{
	rpw_endpoint *ep = r->ep;
	if (ep->atomics >= ATOMICS_MAX)
		return RPWI_LATER;
	if (!r->number && !(r->number = ids_add(&r->c->numbers, r))) {
		req_complete(r, RPW_ERR_NO_MEMORY);
		return 0;
	}
	struct atomic_body b = {.region = r->atomic.key->region,
		.secret = r->atomic.key->secret,
		.offset = r->one.offset,
		.operand = r->atomic.operand,
		.compare = r->atomic.compare,
		.op = r->atomic.op};
	struct iovec iov = {&b, sizeof(b)};
	int rc = link_send(&ep->link, &(struct frame){.type = FRAME_ATOMIC,
					      .tag = r->number,
					      .iov = &iov,
					      .iovcnt = 1,
					      .len = sizeof(b)});
	if (rc)
		return RPWI_LATER;
	ep->atomics++;
	r->where = AT_PEER;
	return 0;
}

int rma_atomic_begin(rpw_request *r)
{
	rpw_endpoint *ep = r->ep;
	if (ep->link.breakable || r->atomic.key->device)
		return atomic_as_frame(r);
	if (!r->atomic.key->has[ep->tran]) {
		rpwi_fail(RPW_ERR_NOT_SUPPORTED,
			"the remote key does not describe its memory for %s", ep->link.ops->name);
		req_fail(r, rpwi_last_error());
		return 0;
	}
	r->where = AT_PEER;
	r->under_way = 1;
	ep->rma_dirty = true;
	int rc = ep->link.ops->rma->atomic(ep->link.te, r->atomic.op,
		&r->atomic.key->desc[ep->tran], r->one.offset, r->atomic.operand, r->atomic.compare,
		r->atomic.before, transfer_cookie(r, COOKIE_PIECE));
	if (rc == RPWI_LATER) {
		r->where = AT_NONE;
		r->under_way = 0;
		msg_todo(ep, TODO_SEND);
		return RPWI_LATER;
	}
	if (rc)
		req_fail(r, rpwi_last_error());
	return 0;
}

static uint64_t changed(uint64_t before, const void *body)
{
	const struct atomic_body *b = body;
	tran_atomic_here(&before, b->op, b->operand, b->compare);
	return before;
}

/* A status. */
static int atomic_here(
	const struct rpw_memory *m, uint64_t *at, const struct atomic_body *b, uint64_t *before)
{
	if (m->gpu)
		return gpu_change(m->gpu, at, changed, b, before);
	*before = tran_atomic_here(at, b->op, b->operand, b->compare);
	return RPW_OK;
}

void rma_atomic_arrived(rpw_endpoint *ep, uint64_t number, const void *body, size_t len)
{
	struct atomic_body b;
	if (len != sizeof(b)) {
		ep_breach(ep, "an atomic of %zu bytes", len);
		return;
	}
	memcpy(&b, body, sizeof(b));
	struct rpw_memory *m = ids_get(&ep->c->regions, b.region);
	uint64_t *at = m && m->secret == b.secret && b.offset <= m->len && m->len - b.offset >= 8
			       ? (uint64_t *)((char *)m->addr + b.offset)
			       : NULL,
		 before = 0;
	int status = RPW_ERR_ACCESS;
	if (at && !((uintptr_t)at & 7) && (m->access & RPW_REMOTE_ATOMIC) &&
		b.op <= TRAN_COMPARE_SWAP) {
		status = atomic_here(m, at, &b, &before);
	} else
		rpwi_debug("%s: an atomic outside of the memory registered for it", ep->peer);
	link_reply(&ep->link, FRAME_DONE, done_word(DONE_ATOMIC, status), number, &before,
		sizeof(before));
}

void rma_atomic_done(rpw_endpoint *ep, uint64_t number, int status, const void *body, size_t len)
{
	rpw_request *r = ids_get(&ep->c->numbers, number);
	if (!r || r->ep != ep || r->kind != REQ_ATOMIC || r->where != AT_PEER || len != 8) {
		rpwi_debug("%s: an answer without an atomic", ep->peer);
		return;
	}
	ep->atomics--;
	if (!status && r->atomic.before)
		memcpy(r->atomic.before, body, 8);
	if (status == RPW_ERR_ACCESS) {
		rpwi_fail(RPW_ERR_ACCESS,
			"%s refused an atomic on 8 bytes at offset %llu: it has no such memory "
			"registered (any more), or not for this; use the key that it "
			"packed",
			ep->peer, (unsigned long long)r->one.offset);
		req_note(r, rpwi_last_error());
	}
	req_complete(r, status);
	if (!rpwi_list_empty(&ep->link.queue))
		msg_todo(ep, TODO_SEND);
}

static int atomic(rpw_endpoint *ep, enum tran_atomic op, uint64_t operand, uint64_t compare,
	const rpw_rkey *key, uint64_t offset, uint64_t *before, rpw_request **req)
{
	int rc = rma_access_check(ep, key, offset, 8, RPW_REMOTE_ATOMIC, "atomic");
	if (rc)
		return rc;
	if (offset & 7)
		return rpwi_fail(RPW_ERR_INVALID,
			"atomic at offset %llu: it has to be a multiple of 8",
			(unsigned long long)offset);
	if (!before)
		return rpwi_fail(RPW_ERR_INVALID, "atomic: `before` is where the value that was "
						  "there goes; it must not be NULL");
	rpw_request *r = req_new(ep->c, ep, REQ_ATOMIC, req != NULL);
	if (!r)
		return RPW_ERR_NO_MEMORY;
	r->atomic.op = (uint8_t)op;
	r->atomic.operand = operand;
	r->atomic.compare = compare;
	r->atomic.key = key;
	r->one.offset = offset;
	r->atomic.before = before;
	r->done.length = 8;
	return ep_post(ep, r, req);
}

int rpw_fetch_add(rpw_endpoint *ep, uint64_t add, const rpw_rkey *key, uint64_t offset,
	uint64_t *before, rpw_request **req)
{
	return atomic(ep, TRAN_FETCH_ADD, add, 0, key, offset, before, req);
}

int rpw_compare_swap(rpw_endpoint *ep, uint64_t compare, uint64_t swap, const rpw_rkey *key,
	uint64_t offset, uint64_t *before, rpw_request **req)
{
	return atomic(ep, TRAN_COMPARE_SWAP, swap, compare, key, offset, before, req);
}
