/* SPDX-License-Identifier: BSD-3-Clause */
/* am.c - active messages: a handler of the program's runs for each, in the order sent on each
 * endpoint. Small ones run out of the transport's memory. Large ones are fetched first, one at a
 * time for each endpoint (those behind wait for their turn), into memory that is bounded over all
 * endpoints by unexpected_bytes_max. */
#include "base/copy.h"
#include "msg/endpoint.h"
#include "msg/messages.h"
#include "msg/objects.h"
#include "msg/pipeline.h"
#include "msg/request.h"
#include "msg/rndv.h"
#include "msg/trace.h"
#include "msg/unexpected.h"

#include <stdlib.h>

int rpw_context_on_am(rpw_context *c, unsigned id, rpw_am_fn fn, void *arg)
{
	if (!c)
		return msg_wrong("rpw_context_on_am", "the context is NULL");
	if (RPWI_UNLIKELY(!msg_is_ours(c)))
		return msg_inherited(c);
	if (id >= RPW_AM_IDS)
		return rpwi_fail(RPW_ERR_INVALID, "rpw_context_on_am: id %u; they are 0 to %d", id,
			RPW_AM_IDS - 1);
	c->am[id].fn = fn;
	c->am[id].arg = arg;
	return RPW_OK;
}

static bool run(rpw_endpoint *ep, uint64_t word, const void *header, size_t header_len,
	const void *data, size_t len)
{
	rpw_context *c = ep->c;
	unsigned id = word & 0xff;
	trace_received(c, ep, id, len);
	if (!c->am[id].fn) {
		rpwi_debug("%s: an active message with id %u, which has no handler here", ep->peer,
			id);
		return false;
	}
	c->am[id].fn(ep, header, header_len, data, len, c->am[id].arg);
	return true;
}

static void refuse(rpw_endpoint *ep, struct rts *rts, int status)
{
	link_reply(&ep->link, FRAME_DONE, done_word(DONE_FETCHED, status), rts->number, NULL, 0);
	free(rts);
}

void am_arrived(rpw_endpoint *ep, uint64_t word, const void *header, size_t header_len,
	const void *body, size_t len)
{
	if (header_len > RPW_AM_HEADER_MAX || header_len != word >> 8) {
		ep_breach(ep, "an active message with a header of %zu bytes", header_len);
		return;
	}
	if (RPWI_LIKELY(rpwi_list_empty(&ep->ams) && !ep->am_fetch)) {
		run(ep, word, header, header_len, body, len);
		credit_return(&ep->link, credit_units(len));
		return;
	}
	struct unexpected *u = unexpected_new(ep, header_len + len);
	if (!u) {
		ep_doom(ep, RPW_ERR_NO_MEMORY,
			"no memory for an active message that has to wait for its turn");
		return;
	}
	u->tag = word;
	u->units = credit_units(len);
	u->head_len = (uint32_t)header_len;
	memcpy(u->body, header, header_len);
	if (len)
		rpwi_copy(u->body + header_len, body, len);
	rpwi_list_add_tail(&ep->ams, &u->in_endpoint);
}

void am_offered(rpw_endpoint *ep, uint64_t word, struct rts *rts, uint32_t units)
{
	if (rts->am_header_len != word >> 8) {
		refuse(ep, rts, RPW_ERR_NO_MEMORY);
		return;
	}
	struct unexpected *u = unexpected_offered(ep, rts, units);
	if (!u)
		return;
	u->tag = word;
	rpwi_list_add_tail(&ep->ams, &u->in_endpoint);
	am_turn(ep);
}

/* Fetch the first of the queue. false: there is no room for it now. */
static bool fetch(rpw_endpoint *ep, struct unexpected *u)
{
	rpw_context *c = ep->c;
	struct rts *rts = u->rts;
	if (rts->len > c->unexpected_max) {
		u->rts = NULL;
		refuse(ep, rts, RPW_ERR_LIMIT);
		return true;
	}
	if (c->am_bytes && rts->len > c->unexpected_max - RPWI_MIN(c->am_bytes, c->unexpected_max))
		return false;
	rpw_request *r = req_new(c, ep, REQ_RECV_AM, false);
	char *buf = NULL;
	if (r)
		buf = malloc(rts->len ? rts->len : 1);
	u->rts = NULL;
	if (!buf) {
		if (r)
			req_drop(r);
		refuse(ep, rts, RPW_ERR_NO_MEMORY);
		return true;
	}
	r->buf = buf;
	r->len = rts->len;
	r->tag = r->done.tag = u->tag;
	c->am_bytes += rts->len;
	ep->am_fetch = r;
	rndv_fetch(r, ep, rts, rts->len);
	return true;
}

void am_turn(rpw_endpoint *ep)
{
	while (!rpwi_list_empty(&ep->ams) && !ep->am_fetch && ep->state == EP_UP) {
		struct unexpected *u =
			RPWI_CONTAINER_OF(ep->ams.next, struct unexpected, in_endpoint);
		uint32_t units = u->units;
		if (u->rts) {
			if (!fetch(ep, u))
				return;
		} else
			run(ep, u->tag, u->body, u->head_len, u->body + u->head_len,
				u->len - u->head_len);
		unexpected_release(u);
		credit_return(&ep->link, units);
	}
}

void am_fetched(rpw_request *r, int status)
{
	rpw_endpoint *ep = r->done.from;
	rpw_context *c = ep->c;
	if (!status)
		run(ep, r->tag, r->rts->am_header, r->rts->am_header_len, r->buf, r->len);
	c->am_bytes -= r->len;
	free(r->buf);
	ep->am_fetch = NULL;
	req_complete(r, status);
	RPWI_LIST_EACH (rpw_endpoint, other, &c->endpoints, all)
		if (!rpwi_list_empty(&other->ams))
			msg_todo(other, TODO_AM);
}

int am_send_begin(rpw_request *r)
{
	rpw_endpoint *ep = r->ep;
	uint32_t units = 0;
	r->done.length = r->len;
	if (!r->gpu && tag_eager(r, &units)) {
		struct iovec iov = {r->buf, r->len};
		int rc = link_send(&ep->link, &(struct frame){.type = FRAME_AM,
						      .tag = r->tag,
						      .extra = r->am.header,
						      .extra_len = r->am.header_len,
						      .iov = &iov,
						      .iovcnt = r->len ? 1 : 0,
						      .len = r->len,
						      .keep = &r->keep,
						      .stays = true,
						      .units = units});
		if (rc == RPWI_LATER)
			return rc;
		if (!rc)
			trace_sent(ep, r->tag & 0xff, r->len);
		req_sent(r, rc);
		return 0;
	}
	int rc = rndv_offer(r, units, RTS_AM, r->tag);
	if (!rc && !r->complete)
		trace_sent(ep, r->tag & 0xff, r->len);
	return rc;
}

int rpw_am_send(rpw_endpoint *ep, unsigned id, const void *header, size_t header_len,
	const void *buf, size_t len, rpw_request **req)
{
	if (!ep)
		return msg_wrong("rpw_am_send", "the endpoint is NULL");
	if (header_len && !header)
		return msg_wrong("rpw_am_send", "the header is NULL, and its length is not 0");
	if (len && !buf)
		return msg_wrong("rpw_am_send", "the buffer is NULL, and its length is not 0");
	if (id >= RPW_AM_IDS || header_len > RPW_AM_HEADER_MAX)
		return rpwi_fail(RPW_ERR_INVALID,
			"rpw_am_send: id %u with a header of %zu bytes: ids are 0 to %d, headers "
			"have at most %d bytes",
			id, header_len, RPW_AM_IDS - 1, RPW_AM_HEADER_MAX);
	struct iovec iov = {(void *)buf, len};
	uint64_t word = am_word(id, header_len);
	uint32_t units = credit_units(len);
	if (path_is_free(ep, len, units) && !link_send(&ep->link, &(struct frame){.type = FRAME_AM,
									  .tag = word,
									  .extra = header,
									  .extra_len = header_len,
									  .iov = &iov,
									  .iovcnt = len ? 1 : 0,
									  .len = len,
									  .units = units})) {
		trace_sent(ep, id, len);
		if (req)
			*req = NULL;
		return RPW_OK;
	}
	rpw_request *r = req_new(ep->c, ep, REQ_AM, req != NULL);
	if (!r)
		return RPW_ERR_NO_MEMORY;
	r->buf = (void *)buf;
	r->len = len;
	r->tag = r->done.tag = word;
	r->am.header_len = header_len;
	int rc = pipeline_outgoing(r);
	if (rc) {
		req_drop(r);
		return rc;
	}
	if (header_len && !(r->am.header = malloc(header_len))) {
		req_drop(r);
		return rpwi_fail(
			RPW_ERR_NO_MEMORY, "no memory for the header of an active message");
	}
	if (header_len)
		memcpy(r->am.header, header, header_len);
	return ep_post(ep, r, req);
}
