/* SPDX-License-Identifier: BSD-3-Clause */
/* transfer.c - bytes to and from the peer's memory: in pieces, several under way, as the path takes
 * them. What the bytes are for is told by the transfer's role: a put or a get of the program's, a
 * message that is fetched, one that is put where it was invited to, a chunk.
 *
 * On a path that may break a put is complete only when the transport has flushed it (it "settles"),
 * since it may have to be repeated before from the program's buffer. */
#include "msg/objects.h"
#include "msg/request.h"
#include "msg/transfer.h"

#include "base/copy.h"

/* A receive may be posted for any endpoint: then it is that of what it fetches. */
static rpw_endpoint *endpoint_of(const rpw_request *r) { return r->rts ? r->done.from : r->ep; }

/* ---- pieces ---- */

void transfer_over(rpw_request *r)
{
	rpw_endpoint *ep = endpoint_of(r);
	rpwi_list_del(&r->link);
	r->where = AT_NONE;
	r->role->done(r);
	if (!rpwi_list_empty(&ep->link.queue))
		msg_todo(ep, TODO_SEND); /* a fence may wait for it */
}

static int piece_go(rpw_endpoint *ep, rpw_request *r, const struct xfer *x, size_t at, size_t n)
{
	const struct tran_desc *d = x->desc;
	if (x->key) {
		if (!x->key->has[ep->tran])
			return rpwi_fail(RPW_ERR_NOT_SUPPORTED,
				"the remote key does not describe its memory for %s: its owner "
				"packed it without that transport",
				ep->link.ops->name);
		d = &x->key->desc[ep->tran];
	}
	ep->rma_dirty |= x->is_put;
	return ep->link.ops->rma->transfer(ep->link.te, x->is_put, d, x->offset + at, x->local + at,
		n, x->mem, transfer_cookie(r, COOKIE_PIECE));
}

void transfer_go(rpw_request *r)
{
	rpw_endpoint *ep = endpoint_of(r);
	if (r->issuing || r->parked || ep->state != EP_UP || (r->rts && r->rts->stale))
		return;
	if (r->role->ready && !r->role->ready(r, ep))
		return;
	r->issuing = true;
	while (r->at_xfer < r->xfers && r->under_way < PIECES_UNDER_WAY && !r->worst) {
		const struct xfer *x = &r->xfer[r->at_xfer];
		size_t at = r->at_byte, n = RPWI_MIN(x->len - at, (size_t)PIECE_BYTES);
		if (RPWI_UNLIKELY(r->c->polled) && !x->is_put && at + n < x->len)
			n = rpwi_whole_lines(x->local + at, n); /* the next one may come sooner */
		bool last = at + n == x->len;
		r->at_xfer += last;
		r->at_byte = last ? 0 : at + n;
		r->under_way++;
		int rc = n ? piece_go(ep, r, x, at, n) : 0;
		if (!n)
			r->under_way--;
		if (!rc)
			continue;
		r->under_way--;
		r->at_xfer -= last;
		r->at_byte = at;
		/* Later; or on the next path, for which the loss of this one makes everything begin
		 * anew. */
		bool lost = ep->link.breakable && rc == RPW_ERR_PEER_GONE;
		if (rc == RPWI_LATER || lost) {
			msg_todo(ep, lost ? TODO_PATH : TODO_SEND);
			break;
		}
		r->worst = rc;
		req_note(r, rpwi_last_error());
	}
	r->issuing = false;
	if (!r->under_way && (r->worst || r->at_xfer == r->xfers))
		transfer_over(r);
}

/* The path is gone: from the beginning again, on the next one. Puts and gets may be repeated. */
void transfer_restart(rpw_request *r)
{
	rpw_endpoint *ep = endpoint_of(r);
	if (r->where == AT_SETTLE) {
		rpwi_list_del(&r->link);
		r->where = AT_FETCH;
		rpwi_list_add_tail(&ep->fetching, &r->link);
	}
	if (r->where == AT_FETCH) {
		r->at_xfer = r->under_way = 0;
		r->at_byte = 0;
		r->worst = 0;
		rpwi_error_drop(&r->error);
		if (r->rts)
			r->rts->stale = true;
	}
}

/* ---- puts that wait for the transport's flush ---- */

void transfer_settle(rpw_endpoint *ep)
{
	if (ep->settle_under_way || rpwi_list_empty(&ep->settling) || ep->state != EP_UP)
		return;
	unsigned n = 0;
	for (struct rpwi_list *l = ep->settling.next; l != &ep->settling; l = l->next)
		n++;
	ep->settle_under_way = n;
	int rc = ep->link.ops->rma->flush(ep->link.te, transfer_cookie(ep, COOKIE_SETTLE));
	if (!rc)
		return;
	ep->settle_under_way = 0;
	msg_todo(ep, rc == RPWI_LATER ? TODO_SEND : TODO_PATH);
}

void transfer_settles(rpw_request *r)
{
	rpw_endpoint *ep = endpoint_of(r);
	r->where = AT_SETTLE;
	rpwi_list_add_tail(&ep->settling, &r->link);
	transfer_settle(ep);
}

static void settled(rpw_endpoint *ep, const struct rpwi_error *e)
{
	for (unsigned n = ep->settle_under_way; n && !rpwi_list_empty(&ep->settling); n--) {
		rpw_request *r = RPWI_CONTAINER_OF(ep->settling.next, rpw_request, link);
		rpwi_list_del(&r->link);
		r->where = AT_NONE;
		if (e)
			req_note(r, e);
		r->role->settled(r, e ? e->status : 0);
	}
	ep->settle_under_way = 0;
	if (!rpwi_list_empty(&ep->settling) || !rpwi_list_empty(&ep->link.queue))
		msg_todo(ep, TODO_SEND);
}

void transfer_up_done(void *user, void *what, const struct rpwi_error *e)
{
	rpw_endpoint *ep = user;
	void *p = (void *)((uintptr_t)what & ~(uintptr_t)COOKIE_BITS);
	unsigned bits = (uintptr_t)what & COOKIE_BITS;
	if (bits == COOKIE_SETTLE) {
		settled(ep, e);
		return;
	}
	rpw_request *r = p;
	if (RPWI_UNLIKELY(e != NULL))
		req_note(r, e);
	if (bits == COOKIE_FLUSH) {
		r->settled = true;
		if (e)
			r->worst = e->status;
		msg_todo(ep, TODO_SEND);
		return;
	}
	r->under_way--;
	ep->moved |= !e;
	if (e && !r->worst)
		r->worst = e->status;
	if (!r->role) /* an atomic: one word, no pieces */
		req_complete(r, e ? e->status : 0);
	else if (!r->issuing)
		transfer_go(r);
}

void transfer_answered(rpw_request *r, int status)
{
	rpw_endpoint *ep = r->ep;
	r->role->settled(r, status);
	if (!rpwi_list_empty(&ep->link.queue))
		msg_todo(ep, TODO_SEND); /* a fence may wait for it */
}
