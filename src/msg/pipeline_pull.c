/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline_pull.c - messages that cannot be fetched as they are described, since a GPU has to do
 * with them: they are asked for in chunks (PULL, an RTS for each chunk, DONE). */
#include "msg/endpoint.h"
#include "msg/pipeline_priv.h"
#include "msg/request.h"
#include "msg/rndv.h"
#include "msg/transfer.h"

#include <stdlib.h>

static void chunk_done(rpw_request *r) { rndv_fetched(r); }
static const struct transfer_role chunk_role = {NULL, chunk_done, NULL};

void pipeline_fetch(rpw_request *r, rpw_endpoint *ep, size_t room)
{
	r->parked = true;
	struct pipeline *s = pipeline_new(ep, r, PIPELINE_RECV, r->buf, r->rts->len, room);
	if (!s) {
		r->worst = RPW_ERR_NO_MEMORY;
		rpwi_list_del(&r->link);
		r->where = AT_NONE;
		rndv_fetched(r);
		return;
	}
	link_reply(&ep->link, FRAME_PULL, 0, r->rts->number, NULL, 0);
}

static struct pipeline *receiving(rpw_endpoint *ep, uint64_t number)
{
	for (struct rpwi_list *l = ep->pipelines ? ep->pipelines->list.next : NULL;
		l && l != &ep->pipelines->list; l = l->next) {
		struct pipeline *s = RPWI_CONTAINER_OF(l, struct pipeline, all);
		if (s->way == PIPELINE_RECV && s->r && s->r->rts->number == number)
			return s;
	}
	return NULL;
}

/* Chunks of that message that have had no DONE. */
static unsigned chunks_of(const rpw_endpoint *ep, uint64_t number)
{
	unsigned n = 0;
	RPWI_LIST_EACH (const rpw_request, r, &ep->fetching, link)
		n += r->kind == REQ_RECV_CHUNK && r->tag == number;
	return n;
}

void pipeline_chunk(rpw_endpoint *ep, uint64_t number, struct rts *rts)
{
	struct pipeline *s = receiving(ep, number);
	unsigned under_way = chunks_of(ep, number);
	if (!s) { /* its receive has ended: the sender shall not wait */
		link_reply(&ep->link, FRAME_DONE, done_word(DONE_FETCHED, RPW_ERR_CANCELED),
			rts->number, NULL, 0);
		free(rts);
		return;
	}
	rpw_request *child = NULL;
	if (s->stopped || !rts->pieces || rts->len > PIPELINE_BYTES ||
		rts->len > s->len - s->announced || under_way >= CHUNKS_UNDER_WAY)
		ep_breach(ep, "a chunk of %llu bytes, %u under way, %zu of %zu bytes announced",
			(unsigned long long)rts->len, under_way, s->announced, s->len);
	else
		child = req_new(ep->c, ep, REQ_RECV_CHUNK, false);
	if (!child) {
		free(rts);
		return;
	}
	s->announced += rts->len;
	child->role = &chunk_role;
	child->rts = rts;
	child->tag = number;
	child->done.from = ep;
	child->parked = true;
	child->where = AT_FETCH;
	rpwi_list_add_tail(&ep->fetching, &child->link);
	rpwi_list_add_tail(&s->parked, &child->active);
	pipeline_go(s);
}

void pipeline_stopped(rpw_endpoint *ep, uint64_t number, int status)
{
	struct pipeline *s = receiving(ep, number);
	if (!s || s->stopped)
		return;
	s->stopped = true;
	if (!s->worst)
		s->worst = status ? status : RPW_ERR_PROTOCOL;
	pipeline_go(s);
}
