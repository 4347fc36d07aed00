/* SPDX-License-Identifier: BSD-3-Clause */
/* rndv_put.c - large messages where the path writes them faster than it reads them
 * (limits.put_min): the receiver says where (RTR, ready to receive), the sender puts it there, lets
 * the transport flush that, and says DONE (after the put), which is counted. All else is as in
 * rendezvous.c: the RTS still describes the sender's memory, and the receiver fetches what it
 * cannot invite: short messages, those that do not fit one piece into one, what the sender could
 * not put.
 *
 * The receiver's memory is registered from the RTR to that DONE, or to the end of the path. An RTR
 * is not counted: one that a path loses is followed by a new description of the message for the
 * next path, and the receiver then invites anew, or fetches. A DONE that a path loses goes again on
 * the next one. */
#include "msg/endpoint.h"
#include "msg/ids.h"
#include "msg/objects.h"
#include "msg/pipeline.h"
#include "msg/request.h"
#include "msg/rndv.h"
#include "msg/transfer.h"

#include <stdlib.h>

/* ---- the receiver's side ---- */

static bool may_invite(const rpw_request *r, const rpw_endpoint *ep)
{
	size_t put_min = ep->link.te->limits.put_min;
	bool begun = r->at_xfer || r->at_byte || r->under_way;
	bool receive = proto_of(r)->receive;
	return put_min && receive && !begun && !r->put_failed && r->rts->pieces == 1 &&
	       r->xfers == 1 && r->xfer->len == r->rts->len && r->rts->len >= put_min;
}

static bool rtr_make(rpw_request *r, rpw_endpoint *ep)
{
	if (!r->number)
		r->number = ids_add(&r->c->numbers, r);
	r->rtr_tran = ep->tran;
	r->invited = false;
	if (r->direct && r->number) {
		r->rtr_mem = r->direct;
		r->direct = NULL;
		return true;
	}
	if (!r->number || ep->link.ops->mem->add(r->c->t[ep->tran].tran, r->xfer->local,
				  r->xfer->len, TRAN_WRITE, &r->rtr_mem)) {
		r->rtr_mem = NULL;
		r->put_failed = true; /* fetching may do with less */
		return false;
	}
	return true;
}

bool rndv_put_invite(rpw_request *r)
{
	rpw_endpoint *ep = r->done.from;
	uint8_t body[RTS_BODY_MAX];
	if (!r->rtr_mem && (!may_invite(r, ep) || !rtr_make(r, ep)))
		return false;
	if (r->invited)
		return true;
	struct iovec iov = {
		body, rndv_describe_one(body, r->number, r->rts->len, &r->rtr_mem->desc)};
	/* No room now: fetches are looked at again when there is. */
	r->invited = !link_send(&ep->link, &(struct frame){.type = FRAME_RTR,
						   .tag = r->rts->number,
						   .iov = &iov,
						   .iovcnt = 1,
						   .len = iov.iov_len});
	r->was_invited |= r->invited;
	return true;
}

void rndv_put_placed(rpw_endpoint *ep, uint64_t number, int status)
{
	rpw_request *r = ids_get(&ep->c->numbers, number);
	if (!r || !r->rts || r->done.from != ep || r->where != AT_FETCH || !r->was_invited) {
		rpwi_debug("%s: a DONE for number 0x%llx, which is nothing that it was invited to",
			ep->peer, (unsigned long long)number);
		return;
	}
	rndv_rtr_drop(r);
	if (status) {
		r->put_failed = true;
		transfer_go(r);
		return;
	}
	rpwi_list_del(&r->link);
	r->where = AT_NONE;
	r->placed = true;
	r->worst = direct_landed(r, RPW_OK);
	rndv_fetched(r);
}

/* ---- the sender's side ---- */

/* It is on offer again. */
static void put_forget(rpw_request *r)
{
	free(r->rndv->to);
	r->rndv->to = NULL;
	r->xfer = NULL;
	r->role = NULL;
	r->xfers = 0;
	r->where = AT_PEER;
}

static void put_over(rpw_request *r, int status)
{
	uint64_t number = r->rndv->to->number;
	put_forget(r);
	link_reply(&r->ep->link, FRAME_DONE, done_word(DONE_PLACED, status), number, NULL, 0);
	if (!status)
		req_complete(r, RPW_OK);
}

static void put_done(rpw_request *r)
{
	if (r->worst)
		put_over(r, r->worst);
	else
		transfer_settles(r);
}

static const struct transfer_role put_role = {NULL, put_done, put_over};

void rndv_put_invited(rpw_endpoint *ep, uint64_t number, const void *body, size_t len)
{
	struct rts *to = rndv_parse(body, len);
	rpw_request *r = ids_get(&ep->c->numbers, number);
	if (!to || to->pieces != 1) {
		ep_breach(ep, "an invitation of %zu bytes that does not add up", len);
		free(to);
		return;
	}
	bool sends = r && r->ep == ep && r->where == AT_PEER && r->rndv && !r->pipeline &&
		     proto_of(r)->message;
	struct rndv *v = sends ? r->rndv : NULL;
	if (!v || v->n != 1 || !v->mem[0] || v->tran != ep->tran || to->len != v->iov[0].iov_len) {
		rpwi_debug("%s: an invitation of number 0x%llx, which is none of its messages",
			ep->peer, (unsigned long long)number);
		link_reply(&ep->link, FRAME_DONE, done_word(DONE_PLACED, RPW_ERR_NOT_SUPPORTED),
			to->number, NULL, 0);
		free(to);
		return;
	}
	v->to = to;
	r->role = &put_role;
	r->xfer = &r->one;
	r->one = (struct xfer){.local = v->iov[0].iov_base,
		.len = to->len,
		.desc = &to->piece[0].desc,
		.mem = v->mem[0],
		.is_put = true};
	r->xfers = 1;
	r->at_xfer = r->under_way = 0;
	r->at_byte = 0;
	r->worst = 0;
	r->where = AT_FETCH;
	rpwi_list_add_tail(&ep->fetching, &r->link);
	transfer_go(r);
}

void rndv_put_path_gone(rpw_request *r)
{
	if (!r->rndv || !r->rndv->to)
		return;
	rpwi_list_del(&r->link);
	put_forget(r);
}
