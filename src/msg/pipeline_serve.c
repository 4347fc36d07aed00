/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline_serve.c - what the side that holds the memory does for its peer: it answers PULL with
 * chunks of a message, PUT by fetching into a GPU, GET by offering what is in one. Peers are let
 * into nothing but what is registered, and only as long as it is. */
#include "msg/endpoint.h"
#include "msg/ids.h"
#include "msg/pipeline_priv.h"
#include "msg/request.h"
#include "msg/rndv.h"

#include <stdlib.h>

void pipeline_pulled(rpw_endpoint *ep, uint64_t number)
{
	rpw_request *r = ids_get(&ep->c->numbers, number);
	if (!r || r->ep != ep || r->where != AT_PEER || !r->rndv || r->pipeline ||
		r->kind == REQ_CHUNK) {
		rpwi_debug("%s: a PULL for number 0x%llx, which is none of its messages", ep->peer,
			(unsigned long long)number);
		return;
	}
	char *base = r->iovcnt == 1 ? r->buf : rndv_flatten(r);
	bool released = r->kind == REQ_SERVE_GET && !r->serves;
	struct pipeline *s =
		base && !released ? pipeline_new(ep, r, PIPELINE_SEND, base, r->len, r->len) : NULL;
	if (s)
		pipeline_go(s);
	else if (released)
		link_reply(&ep->link, FRAME_DONE, done_word(DONE_CHUNKS, RPW_ERR_ACCESS), number,
			NULL, 0);
	else
		link_reply(&ep->link, FRAME_DONE, done_word(DONE_CHUNKS, RPW_ERR_NO_MEMORY), number,
			NULL, 0);
}

static rpw_memory *region_of(rpw_endpoint *ep, const struct ask_body *b, unsigned need)
{
	rpw_memory *m = ids_get(&ep->c->regions, b->region);
	if (m && m->gpu && m->secret == b->secret && (m->access & need) && b->len &&
		b->offset <= m->len && b->len <= m->len - b->offset)
		return m;
	rpwi_debug("%s: %llu bytes at %llu of region 0x%llx, which is not registered for that",
		ep->peer, (unsigned long long)b->len, (unsigned long long)b->offset,
		(unsigned long long)b->region);
	return NULL;
}

static rpw_request *serve_new(
	rpw_endpoint *ep, rpw_memory *m, const struct ask_body *b, enum req_kind kind)
{
	struct pipelines *g = pipelines_of(ep);
	if (g && g->serving >= ASKED_MAX) {
		ep_breach(ep, "it has %d puts and gets under way already", ASKED_MAX);
		return NULL;
	}
	rpw_request *r = g ? req_new(ep->c, ep, kind, false) : NULL;
	if (!r)
		return NULL;
	r->gpu = m->gpu;
	r->buf = (char *)m->addr + b->offset;
	r->len = r->done.length = b->len;
	r->serves = m;
	g->serving++;
	return r;
}

void pipeline_served(rpw_request *r)
{
	r->serves = NULL;
	if (r->ep->pipelines)
		r->ep->pipelines->serving--;
}

void pipeline_put_arrived(rpw_endpoint *ep, const void *extra, size_t extra_len, struct rts *rts)
{
	struct ask_body b = {0};
	if (extra_len == sizeof(b))
		memcpy(&b, extra, sizeof(b));
	rpw_memory *m = b.len == rts->len ? region_of(ep, &b, RPW_REMOTE_WRITE) : NULL;
	rpw_request *r = m ? serve_new(ep, m, &b, REQ_SERVE_PUT) : NULL;
	if (r) {
		rndv_fetch(r, ep, rts, r->len);
		return;
	}
	link_reply(&ep->link, FRAME_DONE,
		done_word(DONE_FETCHED, m ? RPW_ERR_NO_MEMORY : RPW_ERR_ACCESS), rts->number, NULL,
		0);
	free(rts);
}

void pipeline_get_arrived(rpw_endpoint *ep, uint64_t number, const void *body, size_t len)
{
	struct ask_body b;
	if (len != sizeof(b)) {
		ep_breach(ep, "a GET of %zu bytes", len);
		return;
	}
	memcpy(&b, body, sizeof(b));
	rpw_memory *m = region_of(ep, &b, RPW_REMOTE_READ);
	rpw_request *r = m ? serve_new(ep, m, &b, REQ_SERVE_GET) : NULL;
	if (!r) {
		link_reply(&ep->link, FRAME_DONE,
			done_word(DONE_FETCHED, m ? RPW_ERR_NO_MEMORY : RPW_ERR_ACCESS), number,
			NULL, 0);
		return;
	}
	r->tag = number;
	rpwi_list_add_tail(&ep->active_list, &r->active);
	if (proto_of(r)->begin(r) == RPWI_LATER) {
		post_wait(r);
		msg_todo(ep, TODO_SEND);
	}
}

int pipeline_got_begin(rpw_request *r)
{
	return rndv_offer_as(r, FRAME_RTS, RTS_GOT, r->tag, "", 0);
}

/* The memory is being released: nothing more goes to it or comes from it. */
void pipeline_memory_gone(rpw_memory *m)
{
	RPWI_LIST_EACH (struct pipelines, g, &m->c->pipelines, in_context) {
		RPWI_LIST_EACH (struct pipeline, s, &g->list, all) {
			if (!s->r || s->r->serves != m)
				continue;
			gpu_copy_wait(s->gpu, pipeline_direction(s));
			s->worst = RPW_ERR_ACCESS;
			if (g->ep)
				msg_todo(g->ep, TODO_SEND);
		}
		for (struct rpwi_list *n = g->ep ? g->ep->active_list.next : NULL;
			n && n != &g->ep->active_list; n = n->next) {
			rpw_request *r = RPWI_CONTAINER_OF(n, rpw_request, active);
			if (r->serves == m)
				pipeline_served(r);
		}
		for (struct rpwi_list *n = g->ep ? g->ep->fetching.next : NULL;
			n && n != &g->ep->fetching; n = n->next) {
			rpw_request *r = RPWI_CONTAINER_OF(n, rpw_request, link);
			if (r->serves == m)
				pipeline_served(r);
		}
	}
}
