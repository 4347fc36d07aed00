/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline_ask.c - what this side wants to have moved that a GPU has to do with: puts into and gets
 * out of GPUs, here and at the peer. */
#include "msg/ids.h"
#include "msg/pipeline_priv.h"
#include "msg/request.h"
#include "msg/rndv.h"
#include "msg/transfer.h"

#include <stdlib.h>

static int ask_put(rpw_request *r)
{
	struct ask_body b = {
		r->xfer->key->region, r->xfer->key->secret, r->xfer->offset, r->xfer->len};
	r->buf = r->xfer->local;
	r->len = r->xfer->len;
	return rndv_offer_as(r, FRAME_PUT, 0, 0, &b, sizeof(b));
}

static int ask_get(rpw_request *r)
{
	struct ask_body b = {
		r->xfer->key->region, r->xfer->key->secret, r->xfer->offset, r->xfer->len};
	struct iovec iov = {&b, sizeof(b)};
	if (!r->number && !(r->number = ids_add(&r->c->numbers, r))) {
		req_complete(r, RPW_ERR_NO_MEMORY);
		return 0;
	}
	r->buf = r->xfer->local;
	r->len = r->xfer->len;
	int rc = link_send(&r->ep->link, &(struct frame){.type = FRAME_GET,
						 .tag = r->number,
						 .iov = &iov,
						 .iovcnt = 1,
						 .len = sizeof(b)});
	if (!rc)
		r->where = AT_PEER;
	return rc ? RPWI_LATER : 0;
}

/* The peer's memory is in a GPU: its side has to help. */
static int ask(rpw_request *r)
{
	struct pipelines *g = pipelines_of(r->ep);
	if (!g || g->asked >= ASKED_MAX)
		return RPWI_LATER;
	if (!r->xfer->len) {
		transfer_answered(r, r->worst);
		return 0;
	}
	int rc = r->xfer->is_put ? ask_put(r) : ask_get(r);
	if (!rc && !r->complete) {
		r->asked = true;
		g->asked++;
	}
	return rc;
}

void pipeline_got(rpw_endpoint *ep, uint64_t number, struct rts *rts)
{
	rpw_request *r = ids_get(&ep->c->numbers, number);
	if (!r || r->ep != ep || r->kind != REQ_RMA || r->where != AT_PEER || r->xfer->is_put ||
		r->rts || rts->len != r->len) {
		rpwi_debug("%s: %llu bytes for number 0x%llx, which did not ask for them", ep->peer,
			(unsigned long long)rts->len, (unsigned long long)number);
		link_reply(&ep->link, FRAME_DONE, done_word(DONE_FETCHED, RPW_ERR_CANCELED),
			rts->number, NULL, 0);
		free(rts);
		return;
	}
	free(r->xfer == &r->one ? NULL : r->xfer);
	r->xfer = NULL; /* from here on it is a message to be fetched */
	r->xfers = 0;
	rndv_fetch(r, ep, rts, r->len);
}

void pipeline_answered(rpw_request *r)
{
	r->asked = false;
	if (!r->ep->pipelines)
		return;
	r->ep->pipelines->asked--;
	msg_todo(r->ep, TODO_SEND);
}

bool pipeline_asks(const rpw_endpoint *ep) { return ep->pipelines && ep->pipelines->asked; }

/* Each transfer a request of its own, since some need help and some do not. */
static int batch(rpw_request *r)
{
	struct pipeline *s = pipeline_new(r->ep, r, PIPELINE_BATCH, NULL, r->xfers, 0);
	if (!s) {
		req_complete(r, RPW_ERR_NO_MEMORY);
		return 0;
	}
	for (unsigned i = 0; i < r->xfers; i++) {
		rpw_request *child = req_new(r->c, r->ep, REQ_RMA, false);
		if (!child) {
			s->worst = RPW_ERR_NO_MEMORY;
			break;
		}
		child->one = r->xfer[i];
		child->gpu = pipeline_gpu_of(r->c, child->one.local, child->one.len);
		child->xfer = &child->one;
		child->xfers = 1;
		child->len = child->one.len;
		child->fn = pipeline_member_done;
		child->arg = s;
		s->under_way++;
		rpwi_list_add_tail(&s->ready, &child->active);
	}
	r->gpu = NULL;
	r->parked = true;
	r->where = AT_FETCH;
	rpwi_list_add_tail(&r->ep->fetching, &r->link);
	pipeline_go(s);
	return 0;
}

bool pipeline_wants(rpw_request *r)
{
	bool wants = r->gpu != NULL;
	for (unsigned i = 0; i < r->xfers && !wants; i++)
		wants = r->xfer[i].key->device ||
			(r->xfers > 1 && pipeline_gpu_of(r->c, r->xfer[i].local, r->xfer[i].len));
	return wants && !direct_rma(r);
}

int pipeline_rma_begin(rpw_request *r)
{
	if (r->xfers != 1)
		return batch(r);
	if (r->xfer->key->device)
		return ask(r);
	struct pipeline *s = pipeline_new(r->ep, r, r->xfer->is_put ? PIPELINE_PUT : PIPELINE_GET,
		r->xfer->local, r->xfer->len, r->xfer->len);
	if (!s) {
		req_complete(r, RPW_ERR_NO_MEMORY);
		return 0;
	}
	s->key = r->xfer->key;
	s->offset = r->xfer->offset;
	r->parked = true;
	r->where = AT_FETCH;
	rpwi_list_add_tail(&r->ep->fetching, &r->link);
	pipeline_go(s);
	return 0;
}
