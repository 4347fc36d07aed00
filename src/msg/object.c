/* SPDX-License-Identifier: BSD-3-Clause */
/* object.c - objects: the receiver learns the size, asks the program's allocator for memory, and
 * answers; so a send of an object is complete when the other side has taken it, or has refused it.
 * They have an order of their own on each endpoint, apart from tagged messages. */
#include "base/copy.h"
#include "msg/endpoint.h"
#include "msg/ids.h"
#include "msg/messages.h"
#include "msg/objects.h"
#include "msg/pipeline.h"
#include "msg/request.h"
#include "msg/rndv.h"
#include "msg/trace.h"
#include "msg/unexpected.h"

#include <stdlib.h>

void object_unpost(rpw_request *r)
{
	rpwi_list_del(&r->active);
	r->where = AT_NONE;
}

static rpw_request *first(const struct rpwi_list *receives)
{
	return rpwi_list_empty(receives) ? NULL
					 : RPWI_CONTAINER_OF(receives->next, rpw_request, active);
}

/* The receive that was posted first, of those for this endpoint and for any. */
static rpw_request *waiting(rpw_endpoint *ep)
{
	rpw_request *own = first(&ep->object_receives), *any = first(&ep->c->object_receives);
	rpw_request *r = !own || (any && any->order < own->order) ? any : own;
	if (r)
		object_unpost(r);
	return r;
}

static void keep(rpw_endpoint *ep, struct unexpected *u)
{
	rpwi_list_add_tail(&ep->objects, &u->in_endpoint);
	rpwi_list_add_tail(&ep->c->objects, &u->in_context);
}

/* Memory of the program's for it; NULL: refused. */
static bool room_make(rpw_request *r, size_t len)
{
	bool outer = msg_callback_begin(r->c); /* rpw_recv_obj itself may be what calls it */
	if (r->object.alloc)
		r->buf = r->object.alloc(len, r->object.arg);
	else
		r->buf = malloc(len ? len : 1);
	r->c->in_progress = outer;
	r->len = len;
	r->done.length = len;
	if (!r->buf)
		return rpwi_fail(RPW_ERR_NO_MEMORY,
			       "an object of %zu bytes was refused: its receiver's allocator gave "
			       "no memory",
			       len),
		       false;
	r->gpu = pipeline_gpu_of(r->c, r->buf, len);
	*r->object.buf = r->buf;
	*r->object.len = len;
	return true;
}

static void deliver(rpw_request *r, rpw_endpoint *ep, uint64_t number, const void *body, size_t len)
{
	int status = room_make(r, len) ? RPW_OK : RPW_ERR_NO_MEMORY;
	if (!status && RPWI_UNLIKELY(r->gpu != NULL))
		status = req_noted(r, gpu_copy(r->gpu, GPU_IN, r->buf, (void *)body, len));
	else if (!status && len)
		rpwi_copy(r->buf, body, len);
	r->done.from = ep;
	trace_received(ep->c, ep, ep->peer_message_tag, len);
	link_reply(&ep->link, FRAME_DONE, done_word(DONE_FETCHED, status), number, NULL, 0);
	req_complete(r, status);
}

static void fetch(rpw_request *r, rpw_endpoint *ep, struct rts *rts)
{
	trace_received(ep->c, ep, ep->peer_message_tag, rts->len);
	if (room_make(r, rts->len)) {
		rndv_fetch(r, ep, rts, rts->len);
		return;
	}
	link_reply(&ep->link, FRAME_DONE, done_word(DONE_FETCHED, RPW_ERR_NO_MEMORY), rts->number,
		NULL, 0);
	free(rts);
	r->done.from = ep;
	req_complete(r, RPW_ERR_NO_MEMORY);
}

void object_fetched(rpw_request *r, int status)
{
	if (status) {
		if (!r->object.alloc)
			free(r->buf); /* memory of the program's allocator is the program's */
		*r->object.buf = r->object.alloc ? r->buf : NULL;
		*r->object.len = 0;
	}
	req_complete(r, status);
}

void object_arrived(rpw_endpoint *ep, uint64_t number, const void *body, size_t len)
{
	rpw_request *r = waiting(ep);
	if (r) {
		deliver(r, ep, number, body, len);
		credit_return(&ep->link, credit_units(len));
		return;
	}
	struct unexpected *u = unexpected_new(ep, len);
	if (!u) {
		link_reply(&ep->link, FRAME_DONE, done_word(DONE_FETCHED, RPW_ERR_NO_MEMORY),
			number, NULL, 0);
		return;
	}
	u->number = number;
	if (len)
		rpwi_copy(u->body, body, len);
	keep(ep, u);
}

void object_offered(rpw_endpoint *ep, struct rts *rts, uint32_t units)
{
	rpw_request *r = waiting(ep);
	if (r) {
		fetch(r, ep, rts);
		credit_return(&ep->link, units);
		return;
	}
	struct unexpected *u = unexpected_offered(ep, rts, units);
	if (u)
		keep(ep, u);
}

static bool unexpected_take(rpw_request *r)
{
	struct rpwi_list *of = r->ep ? &r->ep->objects : &r->c->objects;
	if (rpwi_list_empty(of))
		return false;
	struct unexpected *u = r->ep ? RPWI_CONTAINER_OF(of->next, struct unexpected, in_endpoint)
				     : RPWI_CONTAINER_OF(of->next, struct unexpected, in_context);
	rpw_endpoint *ep = u->ep;
	uint32_t units = u->units;
	struct rts *rts = u->rts;
	u->rts = NULL;
	rpwi_list_del(&u->in_endpoint); /* the allocator may post the next receive */
	rpwi_list_init(&u->in_endpoint);
	rpwi_list_del(&u->in_context);
	rpwi_list_init(&u->in_context);
	if (rts)
		fetch(r, ep, rts);
	else
		deliver(r, ep, u->number, u->body, u->len);
	unexpected_release(u);
	credit_return(&ep->link, units);
	return true;
}

int rpw_recv_obj(rpw_context *c, rpw_endpoint *ep, rpw_alloc_fn alloc, void *arg, void **buf,
	size_t *len, rpw_request **req)
{
	if (!c || (ep && ep->c != c))
		return msg_wrong("rpw_recv_obj", tag_whose(c));
	if (!buf || !len)
		return msg_wrong("rpw_recv_obj", buf ? "len is NULL" : "buf is NULL");
	if (RPWI_UNLIKELY(!msg_is_ours(c)))
		return msg_inherited(c);
	if (ep && ep->state == EP_FAILED)
		return ep_has_ended(ep);
	rpw_request *r = req_new(c, ep, REQ_RECV_OBJECT, req != NULL);
	if (!r)
		return RPW_ERR_NO_MEMORY;
	*buf = NULL;
	*len = 0;
	r->object.alloc = alloc;
	r->object.arg = arg;
	r->object.buf = buf;
	r->object.len = len;
	r->held = true;
	if (!unexpected_take(r)) {
		r->where = AT_POSTED;
		r->order = c->next_order++;
		rpwi_list_add_tail(ep ? &ep->object_receives : &c->object_receives, &r->active);
	}
	if (!req)
		return req_return(r, NULL);
	*req = r;
	return RPW_IN_PROGRESS;
}

int object_send_begin(rpw_request *r)
{
	rpw_endpoint *ep = r->ep;
	uint32_t units = 0;
	r->done.length = r->len;
	int rc;
	if (!r->gpu && tag_eager(r, &units)) {
		if (!r->number && !(r->number = ids_add(&r->c->numbers, r))) {
			req_complete(r, RPW_ERR_NO_MEMORY);
			return 0;
		}
		struct iovec iov = {r->buf, r->len};
		rc = link_send(&ep->link, &(struct frame){.type = FRAME_OBJECT,
						  .tag = r->number,
						  .iov = &iov,
						  .iovcnt = r->len ? 1 : 0,
						  .len = r->len,
						  .keep = &r->keep,
						  .units = units});
		if (rc == RPW_ERR_NO_MEMORY) {
			req_complete(r, RPW_ERR_NO_MEMORY);
			return 0;
		}
		if (rc)
			return rc;
		r->where = AT_PEER;
	} else {
		rc = rndv_offer(r, units, RTS_OBJECT, 0);
		if (rc || r->complete)
			return rc;
	}
	trace_sent(ep, ep->message_tag, r->len);
	return 0;
}

int rpw_send_obj(rpw_endpoint *ep, const void *buf, size_t len, rpw_request **req)
{
	if (!ep || (len && !buf))
		return msg_wrong("rpw_send_obj", ep ? "the buffer is NULL, and its length is not 0"
						    : "the endpoint is NULL");
	rpw_request *r = req_new(ep->c, ep, REQ_OBJECT, req != NULL);
	if (!r)
		return RPW_ERR_NO_MEMORY;
	r->buf = (void *)buf;
	r->len = len;
	int rc = pipeline_outgoing(r);
	if (rc) {
		req_drop(r);
		return rc;
	}
	return ep_post(ep, r, req);
}
