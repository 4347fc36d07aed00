/* SPDX-License-Identifier: BSD-3-Clause */
/* flush.c - flush, shutdown and fence: everything before it is done here, then the transport says
 * so, then the peer. */
#include "msg/connect.h"
#include "msg/endpoint.h"
#include "msg/ids.h"
#include "msg/objects.h"
#include "msg/pipeline.h"
#include "msg/request.h"
#include "msg/rma.h"
#include "msg/transfer.h"

int rma_flush_begin(rpw_request *r)
{
	r->where = AT_PEER;
	r->settled = r->settle_sent = r->flush.answered = r->flush.sent = false;
	r->worst = 0;
	rma_flush_look(r->ep);
	return 0;
}

/* The transport's own flush, unless nothing was put since the last. */
static bool transport_flushed(rpw_endpoint *ep, rpw_request *r)
{
	if (!r->settle_sent && !ep->rma_dirty)
		return true;
	if (!r->settle_sent) {
		r->settle_sent = true;
		ep->rma_dirty = false;
		int rc = ep->link.ops->rma->flush(ep->link.te, transfer_cookie(r, COOKIE_FLUSH));
		if (rc) {
			r->settle_sent = false;
			ep->rma_dirty = true;
			msg_todo(ep, rc == RPWI_LATER ? TODO_SEND : TODO_PATH);
		}
	}
	return r->settled;
}

/* What was posted before is at the peer. If it was the last, the peer hears that nothing more
 * comes; this side stays, until the peer has closed or the program does. */
static void flush_complete(rpw_request *r)
{
	rpw_endpoint *ep = r->ep;
	if (r->flush.ends && !r->worst && ep->boot && !ep->gone_heard && !ep->bye_heard)
		say_bye(ep, "");
	req_complete(r, r->worst);
}

/* The oldest operation is a flush: everything before it is done here. Now the transport, then the
 * peer's word. */
void rma_flush_look(rpw_endpoint *ep)
{
	while (ep->state == EP_UP && !rpwi_list_empty(&ep->active_list)) {
		rpw_request *r = RPWI_CONTAINER_OF(ep->active_list.next, rpw_request, active);
		if (r->kind != REQ_FLUSH || r->where != AT_PEER || !transport_flushed(ep, r))
			return;
		if (!r->flush.sent) {
			if (!r->number && !(r->number = ids_add(&ep->c->numbers, r))) {
				req_complete(r, RPW_ERR_NO_MEMORY);
				continue;
			}
			r->order = ep->link.tx_count;
			if (!rpwi_list_empty(&ep->link.replies) ||
				link_send(&ep->link,
					&(struct frame){.type = FRAME_FLUSH, .tag = r->number}))
				return;
			r->flush.sent = true;
		}
		if (!r->flush.answered)
			return;
		flush_complete(r);
	}
}

void rma_flush_bye(rpw_endpoint *ep, uint64_t received)
{
	while (!rpwi_list_empty(&ep->active_list)) {
		rpw_request *r = RPWI_CONTAINER_OF(ep->active_list.next, rpw_request, active);
		if (r->kind != REQ_FLUSH)
			return;
		bool done = r->flush.sent ? received >= r->order
					  : received == ep->link.tx_count && !ep->rma_dirty;
		if (!done)
			return;
		if (r->where == AT_QUEUE)
			rpwi_list_del(&r->link);
		flush_complete(r);
	}
	ep->all_taken = received == ep->link.tx_count && !ep->rma_dirty;
}

static bool transfers_of_ours(const rpw_endpoint *ep)
{
	RPWI_LIST_EACH (const rpw_request, r, &ep->fetching, link)
		if (r->kind == REQ_RMA)
			return true;
	return !rpwi_list_empty(&ep->settling) || ep->atomics || pipeline_asks(ep);
}

/* Stays at the head of the queue until everything before it has taken effect. */
int rma_fence_begin(rpw_request *r)
{
	if (transfers_of_ours(r->ep) || !transport_flushed(r->ep, r))
		return RPWI_LATER;
	req_complete(r, r->worst);
	return 0;
}

/* A FLUSH frame that is on its way is in the log, and its answer will come; the transport's flush
 * is asked for again. */
void flush_path_gone(rpw_request *r)
{
	r->settled = r->settle_sent = false;
	r->ep->rma_dirty = true;
}

static int flush(rpw_endpoint *ep, const char *call, bool ends, rpw_request **req)
{
	if (!ep)
		return msg_wrong(call, "the endpoint is NULL");
	if (RPWI_UNLIKELY(!msg_is_ours(ep->c)))
		return msg_inherited(ep->c);
	if (ep->state == EP_FAILED && ep->all_taken) {
		if (req)
			*req = NULL;
		return RPW_OK;
	}
	rpw_request *r = req_new(ep->c, ep, REQ_FLUSH, req != NULL);
	if (!r)
		return RPW_ERR_NO_MEMORY;
	r->flush.ends = ends;
	ep->shutting |= ends && !ep->shut;
	return ep_post(ep, r, req);
}

int rpw_endpoint_flush(rpw_endpoint *ep, rpw_request **req)
{
	return flush(ep, "rpw_endpoint_flush", false, req);
}

int rpw_endpoint_shutdown(rpw_endpoint *ep, rpw_request **req)
{
	int rc = flush(ep, "rpw_endpoint_shutdown", true, req);
	if (rc >= 0) {
		ep->shut = true;
		ep->link.fast = false;
	}
	return rc;
}

int rpw_endpoint_fence(rpw_endpoint *ep)
{
	if (!ep)
		return msg_wrong("rpw_endpoint_fence", "the endpoint is NULL");
	if (RPWI_UNLIKELY(!msg_is_ours(ep->c)))
		return msg_inherited(ep->c);
	if (ep->state == EP_UP && !ep->rma_dirty && rpwi_list_empty(&ep->link.queue) &&
		!transfers_of_ours(ep))
		return RPW_OK;
	rpw_request *r = req_new(ep->c, ep, REQ_FENCE, false);
	if (!r)
		return RPW_ERR_NO_MEMORY;
	r->settled = r->settle_sent = false;
	r->worst = 0;
	int rc = ep_post(ep, r, NULL);
	return rc < 0 ? rc : RPW_OK;
}
