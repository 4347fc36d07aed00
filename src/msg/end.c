/* SPDX-License-Identifier: BSD-3-Clause */
/* end.c - the end of a path, and of an endpoint with all that is under way on it. */
#include "msg/connect.h"
#include "msg/endpoint.h"
#include "msg/loan.h"
#include "msg/messages.h"
#include "msg/objects.h"
#include "msg/pipeline.h"
#include "msg/request.h"
#include "msg/rndv.h"
#include "msg/unexpected.h"

#include <stdlib.h>

void connect_path_close(rpw_endpoint *ep)
{
	ep->self_ready = ep->peer_ready = ep->path_broken = false;
	link_close(&ep->link);
	/* That it broke may still be to be dealt with, when the peer's choice of the next path has
	 * come already: that one is not broken. */
	if (ep->todo & TODO_PATH)
		ep->todo = (uint8_t)((ep->todo & ~TODO_PATH) | TODO_SEND);
	if (!ep->link.te)
		return;
	ep->link.ops->ep_close(ep->link.te);
	ep->link.te = NULL;
	ep->c->t[ep->tran].endpoints--;
	rndv_path_gone(ep);
}

static void request_end(rpw_request *r, int status)
{
	if (r->where == AT_QUEUE || r->where == AT_FETCH || r->where == AT_SETTLE)
		rpwi_list_del(&r->link);
	req_complete(r, status);
}

static void fetch_end(rpw_request *r, int status)
{
	rpwi_list_del(&r->link);
	r->where = AT_NONE;
	r->worst = status;
	r->peer_lost = true;
	rndv_fetched(r);
}

static void requests_end(rpw_endpoint *ep, int status)
{
	while (!rpwi_list_empty(&ep->active_list))
		request_end(RPWI_CONTAINER_OF(ep->active_list.next, rpw_request, active), status);
	while (!rpwi_list_empty(&ep->fetching))
		fetch_end(RPWI_CONTAINER_OF(ep->fetching.next, rpw_request, link), status);
	if (ep->placing) {
		rpw_request *r = ep->placing;
		ep->placing = NULL;
		req_complete(r, status);
	}
	while (!rpwi_list_empty(&ep->receives)) {
		rpw_request *r = RPWI_CONTAINER_OF(ep->receives.next, rpw_request, active);
		tag_unpost(r);
		req_complete(r, status);
	}
	while (!rpwi_list_empty(&ep->object_receives)) {
		rpw_request *r = RPWI_CONTAINER_OF(ep->object_receives.next, rpw_request, active);
		object_unpost(r);
		req_complete(r, status);
	}
}

/* Messages that came whole can still be received; those that would have to be fetched cannot. */
static void unexpected_end(rpw_endpoint *ep, bool all)
{
	RPWI_LIST_EACH_SAFE (struct unexpected, u, next, &ep->unexpected, in_endpoint)
		if (all || u->rts)
			unexpected_free(u, false);
	RPWI_LIST_EACH_SAFE (struct unexpected, u, next, &ep->objects, in_endpoint)
		unexpected_release(u);
	RPWI_LIST_EACH_SAFE (struct unexpected, u, next, &ep->ams, in_endpoint)
		unexpected_release(u);
}

static void control_close(rpw_endpoint *ep)
{
	if (!ep->boot)
		return;
	boot_close(ep->boot);
	ep->boot = NULL;
}

static void end(rpw_endpoint *ep, const struct rpwi_error *e)
{
	bool talked = ep->state != EP_BOOT;
	ep_move(ep, EP_ENDS);
	rpwi_error_keep(&ep->error, e);
	int status = ep->error.status;
	/* that it was this side's will goes without saying */
	if (ep->boot && talked && !ep->gone_heard)
		say_bye(ep, status != RPW_ERR_CANCELED ? ep->error.text : "");
	connect_path_close(ep);
	control_close(ep);
	rpwi_fail_again(&ep->error);
	rpwi_debug("%s: ends: %s", text_or(ep->peer, "peer"), ep->error.text);
	rpw_request *connecting = ep->connecting;
	ep->connecting = NULL;
	if (connecting)
		req_complete(connecting, status);
	requests_end(ep, status);
	unexpected_end(ep, false);
}

void ep_fail(rpw_endpoint *ep, const struct rpwi_error *e)
{
	if (ep->state == EP_FAILED)
		return;
	bool known = ep->active || ep->accepted;
	/* Who has the key and gets no path: somebody between the two may be the reason, and no
	 * callback reports it. */
	if (!known && boot_has_key(ep->c->boot) && ep->listener && e->status != RPW_ERR_PEER_GONE)
		rpwi_warn("%s connected, and its endpoint could not be made: %s",
			text_or(ep->peer, "a peer"),
			*e->text ? e->text : rpw_status_name(e->status));
	end(ep, e);
	if (!known) {
		ep_free(ep);
		return;
	}
	/* Whoever hears of the end has heard of everything else. */
	if (ep->closed_fn)
		msg_deliver_callbacks(ep->c);
	if (ep->closed_fn) {
		rpw_endpoint_closed_fn fn = ep->closed_fn;
		ep->closed_fn = NULL;
		fn(ep, ep_end_status(ep), ep->closed_arg);
	}
}

/* Callbacks that have yet to run: whom their message is from has gone. */
static void callbacks_forget(const rpw_endpoint *ep)
{
	const struct rpwi_list *all = &ep->c->callbacks;
	RPWI_LIST_EACH (rpw_request, r, all, link)
		if (r->done.from == ep)
			r->done.from = NULL;
}

void ep_free(rpw_endpoint *ep)
{
	if (ep->state != EP_FAILED) {
		if (!ep->path_broken)
			link_ack_now(&ep->link); /* what came last, came: its sender shall know */
		end(ep, &(struct rpwi_error){
				RPW_ERR_CANCELED, 0, "the endpoint was closed by this side"});
	}
	callbacks_forget(ep);
	unexpected_end(ep, true);
	loan_all_end(ep);
	view_endpoint_gone(ep);
	link_fini(&ep->link);
	pipeline_endpoint_gone(ep);
	if (ep->todo)
		rpwi_list_del(&ep->work);
	rpwi_list_del(&ep->all);
	free(ep->why);
	free(ep->next.reasons);
	free(ep->peer);
	free(ep->path_text);
	rpwi_error_drop(&ep->error);
	free(ep);
}

void rpw_endpoint_destroy(rpw_endpoint *ep)
{
	if (!ep)
		return;
	if (!msg_is_ours(ep->c))
		return; /* it goes with its context */
	ep->closed_fn = NULL;
	if (!ep->c->in_progress) {
		ep_free(ep);
		return;
	}
	ep->c->closes = true;
	msg_todo(ep, TODO_CLOSE);
}
