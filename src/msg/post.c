/* SPDX-License-Identifier: BSD-3-Clause */
/* post.c - operations that begin: at once where that is possible, else in the order posted. */
#include "msg/checked.h"
#include "msg/endpoint.h"
#include "msg/objects.h"
#include "msg/request.h"

#include <stdlib.h>

static void go(rpw_endpoint *ep)
{
	while (!rpwi_list_empty(&ep->link.queue)) {
		rpw_request *r = RPWI_CONTAINER_OF(ep->link.queue.next, rpw_request, link);
		rpwi_list_del(&r->link);
		r->where = AT_NONE;
		int rc = proto_of(r)->begin(r);
		if (rc == RPWI_LATER) {
			r->where = AT_QUEUE;
			r->link.next = ep->link.queue.next;
			r->link.prev = &ep->link.queue;
			ep->link.queue.next->prev = &r->link;
			ep->link.queue.next = &r->link;
			return;
		}
	}
}

void post_go(rpw_endpoint *ep)
{
	const struct tran_ops *ops = ep->link.ops;
	struct tran_ep *te = ep->link.te;
	bool several = !rpwi_list_empty(&ep->link.queue) &&
		       ep->link.queue.next != ep->link.queue.prev && ep->link.open && ops->gather;
	if (several)
		ops->gather(te, true);
	go(ep);
	if (several)
		ops->gather(te, false);
}

void post_wait(rpw_request *r)
{
	r->where = AT_QUEUE;
	rpwi_list_add_tail(&r->ep->link.queue, &r->link);
	r->ep->link.fast = false;
}

int ep_post(rpw_endpoint *ep, rpw_request *r, rpw_request **out)
{
	bool ours = msg_is_ours(ep->c);
	if (RPWI_UNLIKELY(ep->state == EP_FAILED || ep->shut || !ours)) {
		int status;
		if (!ours)
			status = msg_inherited(ep->c);
		else if (ep->shut)
			status = rpwi_fail(RPW_ERR_INVALID,
				"rpw_endpoint_shutdown was called for the endpoint to %s: nothing "
				"can be posted after it",
				text_or(ep->peer, "?"));
		else
			status = ep_has_ended(ep);
		r->complete = true;
		ep->c->stat.requests--;
		if (r->xfer != &r->one)
			free(r->xfer);
		req_drop(r);
		return status;
	}
	r->held = true;
	if (RPWI_UNLIKELY(rpwi_check_on))
		checked_begins(r);
	rpwi_list_add_tail(&ep->active_list, &r->active);
	if (ep->state != EP_UP || !rpwi_list_empty(&ep->link.queue) ||
		!rpwi_list_empty(&ep->link.replies) || proto_of(r)->begin(r) == RPWI_LATER)
		post_wait(r);
	return req_return(r, out);
}
