/* SPDX-License-Identifier: BSD-3-Clause */
/* path.c - the path of an endpoint: incoming frames go to their receivers, frames that may go now
 * go. Frames are counted, kept and sent again by the link below. */
#include "msg/connect.h"
#include "msg/endpoint.h"
#include "msg/ids.h"
#include "msg/messages.h"
#include "msg/objects.h"
#include "msg/path.h"
#include "msg/pipeline.h"
#include "msg/request.h"
#include "msg/rma.h"
#include "msg/rndv.h"
#include "msg/transfer.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- what the link asks of its endpoint ---- */

static rpw_endpoint *endpoint_of(struct link *l)
{
	return RPWI_CONTAINER_OF(l, rpw_endpoint, link);
}
static rpw_request *request_of(struct link_keep *k)
{
	return RPWI_CONTAINER_OF(k, rpw_request, keep);
}

static bool up_body(struct link_keep *k, size_t at, size_t n, struct link_body *out)
{
	rpw_request *r = request_of(k);
	if (r->iovcnt == 1) {
		out->iov = (struct iovec){r->buf + at, n};
		return true;
	}
	out->flat = malloc(n);
	out->iov = (struct iovec){out->flat, n};
	return out->flat && iov_gather(r->iov, r->iovcnt, at, out->flat, n) == n;
}
static void up_anew(struct link_keep *k, struct link_body *out)
{
	out->iov = (struct iovec){out->made, rndv_describe(request_of(k), out->made)};
}
static void up_delivered(struct link_keep *k)
{
	rpw_request *r = request_of(k);
	if (r->where == AT_LOG)
		req_complete(r, RPW_OK);
}
static void up_work(struct link *l) { msg_todo(endpoint_of(l), TODO_SEND); }
static void up_lost(struct link *l)
{
	rpw_endpoint *ep = endpoint_of(l);
	rpwi_debug("%s: the path by %s took no frame: %s", text_or(ep->peer, "peer"), l->ops->name,
		rpwi_last_error()->text);
	msg_todo(ep, TODO_PATH);
}
static void up_breach(struct link *l, const char *what) { ep_breach(endpoint_of(l), "%s", what); }
static void up_no_memory(struct link *l, const char *what)
{
	rpw_endpoint *ep = endpoint_of(l);
	ep_doom(ep, RPW_ERR_NO_MEMORY, "%s", what);
}
const struct link_up path_link_up = {
	.body = up_body,
	.anew = up_anew,
	.delivered = up_delivered,
	.work = up_work,
	.lost = up_lost,
	.breach = up_breach,
	.no_memory = up_no_memory,
};

/* ---- everything that may go now ---- */

static void fetches_go(rpw_endpoint *ep)
{
	RPWI_LIST_EACH_SAFE (rpw_request, r, next, &ep->fetching, link)
		transfer_go(r);
}

void path_work(rpw_endpoint *ep)
{
	if (!link_resend(&ep->link) || !rndv_describe_go(ep))
		return;
	if (link_work(&ep->link)) {
		fetches_go(ep);
		pipeline_work(ep);
		post_go(ep);
	}
	transfer_settle(ep);
	rma_flush_look(ep);
	ep_refresh(ep);
}

/* ---- what comes ---- */

/* An offer of a message, which it costs credit to keep. */
static void message_offered(rpw_endpoint *ep, const struct frame_head *h, struct rts *rts)
{
	uint32_t units = credit_units_rts(rts->pieces, rts->am_header_len);
	if (!credit_charge(&ep->link, units))
		free(rts);
	else if (h->flags == RTS_TAG)
		tag_offered(ep, h->tag, rts, units);
	else if (h->flags == RTS_OBJECT)
		object_offered(ep, rts, units);
	else
		am_offered(ep, h->tag, rts, units);
}
static void on_rts(rpw_endpoint *ep, const struct frame_head *h, const void *body, size_t len)
{
	if (h->flags == RTS_AGAIN) {
		ep->lost.again_rx++;
		rndv_described(ep, body, len);
		return;
	}
	struct rts *rts = h->flags < RTS_KINDS ? rndv_parse(body, len) : NULL;
	if (!rts)
		ep_breach(
			ep, "an RTS of kind %u and %zu bytes that does not add up", h->flags, len);
	else if (h->flags <= RTS_AM)
		message_offered(ep, h, rts);
	else if (h->flags == RTS_CHUNK)
		pipeline_chunk(ep, h->tag, rts);
	else
		pipeline_got(ep, h->tag, rts);
}
static void on_put(
	rpw_endpoint *ep, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	struct rts *rts = rndv_parse(body, len);
	if (rts)
		pipeline_put_arrived(ep, extra, extra_len, rts);
	else
		ep_breach(ep, "a put of %zu bytes that does not add up", len);
}
/* The peer has waited for its device; the GPU has its own idea of when bytes are there. */
static bool puts_landed(rpw_endpoint *ep)
{
	int status = RPWI_LIKELY(rpwi_list_empty(&ep->c->gpus)) ? 0 : direct_flush(ep->c);
	if (status)
		ep_doom_by(ep, rpwi_last_error());
	return !status;
}
static void on_notify(rpw_endpoint *ep, const struct frame_head *h, const void *body, size_t len)
{
	uint64_t n;
	if (len != sizeof(n)) {
		ep_breach(ep, "a notification with %zu bytes", len);
		return;
	}
	memcpy(&n, body, sizeof(n));
	if (!puts_landed(ep))
		return;
	if (ep->c->notify_fn)
		ep->c->notify_fn(ep, h->tag, (size_t)n, ep->c->notify_arg);
}
static void on_flush(rpw_endpoint *ep, uint64_t number)
{
	if (puts_landed(ep))
		link_reply(&ep->link, FRAME_DONE, done_word(DONE_FLUSHED, RPW_OK), number, NULL, 0);
}
static void flushed(rpw_endpoint *ep, uint64_t number)
{
	rpw_request *r = ids_get(&ep->c->numbers, number);
	if (r && r->ep == ep && r->kind == REQ_FLUSH) {
		r->flush.answered = true;
		msg_todo(ep, TODO_SEND);
	}
}
static void on_done(rpw_endpoint *ep, const struct frame_head *h, const void *body, size_t len)
{
	unsigned code = h->flags % (1 << DONE_STATUS_BITS);
	int status = code > (unsigned)-RPW_ERR_SYSTEM ? RPW_ERR_PROTOCOL : -(int)code;
	switch (h->flags >> DONE_STATUS_BITS) {
	case DONE_FETCHED:
		rndv_finished(ep, h->tag, status);
		break;
	case DONE_FLUSHED:
		flushed(ep, h->tag);
		break;
	case DONE_ATOMIC:
		rma_atomic_done(ep, h->tag, status, body, len);
		break;
	case DONE_CHUNKS:
		pipeline_stopped(ep, h->tag, status);
		break;
	case DONE_PLACED:
		rndv_put_placed(ep, h->tag, status);
		break;
	default:
		ep_breach(ep, "an end of kind %u", h->flags >> DONE_STATUS_BITS);
	}
}

/* Its sender may have heard that a fetch is over, and mean this to come after the active messages
 * that the fetch held up. */
static void on_atomic(rpw_endpoint *ep, uint64_t number, const void *body, size_t len)
{
	if (RPWI_UNLIKELY(!rpwi_list_empty(&ep->ams)))
		am_turn(ep);
	rma_atomic_arrived(ep, number, body, len);
}

/* Of all types but FRAME_TAG. */
static void other_came(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra,
	size_t extra_len, const void *body, size_t len)
{
	switch (h->type) {
	case FRAME_OBJECT:
		object_arrived(ep, h->tag, body, len);
		break;
	case FRAME_AM:
		am_arrived(ep, h->tag, extra, extra_len, body, len);
		break;
	case FRAME_RTS:
		on_rts(ep, h, body, len);
		break;
	case FRAME_DONE:
		on_done(ep, h, body, len);
		break;
	case FRAME_WITHDRAW:
		rndv_withdrawn(ep, h->tag);
		break;
	case FRAME_NOTIFY:
		on_notify(ep, h, body, len);
		break;
	case FRAME_FLUSH:
		on_flush(ep, h->tag);
		break;
	case FRAME_ATOMIC:
		on_atomic(ep, h->tag, body, len);
		break;
	case FRAME_PULL:
		pipeline_pulled(ep, h->tag);
		break;
	case FRAME_PUT:
		on_put(ep, extra, extra_len, body, len);
		break;
	case FRAME_GET:
		pipeline_get_arrived(ep, h->tag, body, len);
		break;
	case FRAME_LOAN:
		tag_loaned(ep, h->tag, body, len);
		break;
	case FRAME_CREDIT:
		if (h->flags)
			ep->peer_views = h->flags == CREDIT_VIEWS;
		if (h->tag)
			credit_needed(&ep->link, h->tag);
		break;
	case FRAME_PART:
		link_part(&ep->link, h, body, len);
		break;
	case FRAME_RTR:
		rndv_put_invited(ep, h->tag, body, len);
		break;
	}
}

/* TAG, OBJECT and AM pay for their bodies. */
static inline void frame_came(rpw_endpoint *ep, const struct frame_head *h, unsigned type,
	const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	if (type <= FRAME_AM && !credit_charge(&ep->link, credit_units(len)))
		return;
	if (type == FRAME_TAG)
		tag_arrived(ep, h->tag, body, len);
	else
		other_came(ep, h, extra, extra_len, body, len);
}

/* The last bytes of a body that came in parts. */
static void whole_frame_came(rpw_endpoint *ep, const struct frame_head *h, const uint8_t *extra,
	size_t extra_len, const void *body, size_t len)
{
	if (!link_whole(&ep->link, h, &body, &len))
		return;
	frame_came(ep, h, h->type, extra, extra_len, body, len);
	link_parts_free(&ep->link);
}

/* `type` is the head's; where it is known when this is compiled, little is left. */
static inline __attribute__((always_inline)) void take(rpw_endpoint *ep, const struct frame_head *h,
	unsigned type, const uint8_t *extra, size_t extra_len, const void *body, size_t len)
{
	if (!link_took(&ep->link, h, type, len))
		return;
	if (RPWI_UNLIKELY(ep->link.parts.p && type != FRAME_PART))
		whole_frame_came(ep, h, extra, extra_len, body, len);
	else
		frame_came(ep, h, type, extra, extra_len, body, len);
	if (RPWI_UNLIKELY(ep->bye_heard) && ep->link.rx_count >= ep->peer_sent)
		msg_todo(ep, TODO_FAIL);
}

bool path_up_frame(void *user, const void *head, size_t head_len, const void *body, size_t body_len)
{
	rpw_endpoint *ep = user;
	struct frame_head h;
	if (RPWI_UNLIKELY(ep->state != EP_UP)) {
		if (ep->state != EP_CHOOSING || !ep->self_ready)
			return true;
		connect_peer_talks(ep);
	}
	if (RPWI_UNLIKELY(ep->todo & (TODO_FAIL | TODO_CLOSE)))
		return true;
	if (RPWI_UNLIKELY(head_len < sizeof(h))) {
		ep_breach(ep, "a frame with a head of %zu bytes", head_len);
		return true;
	}
	memcpy(&h, head, sizeof(h));
	const uint8_t *extra = (const uint8_t *)head + sizeof(h);
	ep->c->kept_one = false;
	if (RPWI_LIKELY(h.type == FRAME_TAG))
		take(ep, &h, FRAME_TAG, extra, head_len - sizeof(h), body, body_len);
	else if (RPWI_UNLIKELY(!h.type || h.type >= FRAME_TYPES))
		ep_breach(ep, "a frame of type %u", h.type);
	else
		take(ep, &h, h.type, extra, head_len - sizeof(h), body, body_len);
	return !ep->c->kept_one;
}

/* A frame that is not counted yet: when the path breaks it comes again, and first of all, whole or
 * in parts. So its receive waits for it. */
void *path_up_place(void *user, const void *head, size_t head_len, size_t body_len)
{
	rpw_endpoint *ep = user;
	struct frame_head h;
	if (ep->state != EP_UP || ep->todo & (TODO_FAIL | TODO_CLOSE) || ep->link.parts.p ||
		ep->placing || head_len < sizeof(h))
		return NULL;
	memcpy(&h, head, sizeof(h));
	return h.type == FRAME_TAG ? tag_place(ep, h.tag, body_len) : NULL;
}

void path_up_room(void *user)
{
	rpw_endpoint *ep = user;
	msg_todo(ep, TODO_SEND);
}

void path_up_failed(void *user, const struct rpwi_error *e)
{
	rpw_endpoint *ep = user;
	rpwi_debug("%s: the path by %s broke: %s", text_or(ep->peer, "peer"), ep->link.ops->name,
		e->text);
	ep->path_broken = true;
	ep->link.open = false;
	if (e->status == RPW_ERR_PEER_GONE && !ep->link.breakable) {
		rpwi_error_keep(&ep->error, e);
		connect_await_word(ep);
	} else if (ep->bye_heard || ep->gone_heard)
		msg_todo(ep, TODO_FAIL);
	else if (e->status == RPW_ERR_PROTOCOL && (ep->link.ops->caps & TRAN_SEALS) &&
		 boot_has_key(ep->c->boot)) {
		/* Somebody between the two changes what is sent: no other path mends that, and it
		 * is to be heard of. */
		rpwi_fail(e->status,
			"what came from %s by %s was changed on its way, or is not of its making: "
			"%.300s",
			ep->peer, ep->link.ops->name, e->text);
		ep_doom_by(ep, rpwi_last_error());
	} else {
		snprintf(ep->next.last_why, sizeof(ep->next.last_why), "%.300s", e->text);
		msg_todo(ep, TODO_PATH);
	}
}
