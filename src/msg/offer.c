/* SPDX-License-Identifier: BSD-3-Clause */
/* offer.c - large messages, the sender's side: an RTS says where the memory is, a DONE says that it
 * is free.
 *
 * Memory is registered with the path's transport for as long as the offer stands; whether
 * registrations are kept is the transport's business, which alone knows what they cost and when
 * they go stale. After a change of path offers are described anew: by the RTS itself when it has to
 * be sent again, else by one that says "again". */
#include "base/copy.h"
#include "msg/ids.h"
#include "msg/objects.h"
#include "msg/pipeline.h"
#include "msg/request.h"
#include "msg/rndv.h"
#include "msg/transfer.h"

#include <stdlib.h>

void rndv_unregister(rpw_request *r)
{
	struct rndv *v = r->rndv;
	for (unsigned i = 0; i < v->n; i++)
		if (v->mem[i]) {
			r->c->t[v->tran].ops->mem->del(r->c->t[v->tran].tran, v->mem[i]);
			v->mem[i] = NULL;
		}
}

void rndv_end(rpw_request *r)
{
	rndv_unregister(r);
	free(r->rndv->bounce);
	free(r->rndv->to);
	free(r->rndv);
	r->rndv = NULL;
}

static bool registrations_make(rpw_request *r)
{
	struct rndv *v = r->rndv;
	rpw_endpoint *ep = r->ep;
	v->tran = ep->tran;
	for (unsigned i = 0; i < v->n; i++) {
		if (v->mem[i])
			continue;
		if (r->gpu) {
			direct_offer(r, &v->mem[i]); /* or it is staged */
			continue;
		}
		int rc = ep->link.ops->mem->add(r->c->t[v->tran].tran, v->iov[i].iov_base,
			v->iov[i].iov_len, TRAN_READ, &v->mem[i]);
		if (rc) {
			v->mem[i] = NULL;
			rndv_unregister(r);
			rpwi_fail(rc, "%zu bytes at %s cannot be given to the peer: %.350s",
				v->iov[i].iov_len, RPWI_AT(v->iov[i].iov_base),
				rpwi_last_error()->text);
			req_note(r, rpwi_last_error());
			return false;
		}
	}
	return true;
}

void *rndv_flatten(rpw_request *r)
{
	struct iovec one, *iov = req_iov(r, &one);
	struct rndv *v = r->rndv;
	if (v->bounce)
		return v->bounce;
	v->bounce = malloc(r->len);
	for (size_t i = 0, at = 0; v->bounce && i < (size_t)r->iovcnt; at += iov[i].iov_len, i++)
		rpwi_copy((char *)v->bounce + at, iov[i].iov_base, iov[i].iov_len);
	return v->bounce;
}

static int rndv_make(rpw_request *r, enum rts_kind kind)
{
	struct iovec one, *iov = req_iov(r, &one);
	int iovcnt = r->iovcnt;
	struct rndv *v = r->rndv = calloc(1, sizeof(*v));
	r->number = ids_add(&r->c->numbers, r);
	if (!v || !r->number)
		return RPW_ERR_NO_MEMORY;
	v->kind = (uint8_t)kind;
	if (r->gpu) { /* where there is nothing that the peer could fetch, it has to pull */
		v->tran = r->ep->tran;
		v->n = direct_offer(r, &v->mem[0]);
		v->iov[0] = (struct iovec){r->buf, r->len};
		return 0;
	}
	unsigned n = 0;
	for (int i = 0; i < iovcnt; i++)
		n += iov[i].iov_len > 0;
	if (n <= RTS_PIECES_MAX) {
		for (int i = 0; i < iovcnt; i++)
			if (iov[i].iov_len)
				v->iov[v->n++] = iov[i];
		return 0;
	}
	if (!rndv_flatten(r))
		return RPW_ERR_NO_MEMORY;
	v->iov[0] = (struct iovec){v->bounce, r->len};
	v->n = 1;
	return 0;
}

/* The body of an RTS for the path of now; 0: its memory could not be registered. */
size_t rndv_describe(rpw_request *r, uint8_t *body)
{
	struct rndv *v = r->rndv;
	if (!registrations_make(r))
		return 0;
	struct rts_body h = {.number = r->number,
		.len = r->len,
		.pieces = (uint16_t)v->n,
		.am_header_len = v->kind == RTS_AM ? r->am.header_len : 0};
	uint8_t *p = body;
	memcpy(p, &h, sizeof(h));
	p += sizeof(h);
	for (unsigned i = 0; i < v->n; i++)
		p += rndv_describe_piece(p, v->iov[i].iov_len, v->mem[i] ? &v->mem[i]->desc : NULL);
	if (h.am_header_len)
		memcpy(p, r->am.header, h.am_header_len);
	return (size_t)(p - body) + h.am_header_len;
}

/* What is offered beside a message costs no credit. */
int rndv_offer_as(rpw_request *r, enum frame_type type, enum rts_kind kind, uint64_t tag,
	const void *extra, size_t extra_len)
{
	rpw_endpoint *ep = r->ep;
	uint8_t body[RTS_BODY_MAX];
	int status = r->rndv ? 0 : rndv_make(r, kind);
	size_t len = status ? 0 : rndv_describe(r, body);
	if (!len) {
		req_complete(r, status ? status : RPW_ERR_SYSTEM);
		return 0;
	}
	uint32_t units = 0;
	if (type == FRAME_RTS && kind <= RTS_AM)
		units = credit_units_rts(r->rndv->n, kind == RTS_AM ? r->am.header_len : 0);
	if (units && !credit_has(&ep->link, units)) {
		credit_need(&ep->link, units);
		return RPWI_LATER;
	}
	struct iovec iov = {body, len};
	int rc = link_send(&ep->link, &(struct frame){.type = type,
					      .flags = kind,
					      .tag = tag,
					      .extra = extra,
					      .extra_len = extra_len,
					      .iov = &iov,
					      .iovcnt = 1,
					      .len = len,
					      .keep = &r->keep,
					      .anew = true,
					      .units = units});
	if (rc == RPW_ERR_NO_MEMORY) {
		req_complete(r, RPW_ERR_NO_MEMORY);
		return 0;
	}
	if (rc)
		return rc;
	r->where = AT_PEER;
	return 0;
}

int rndv_offer(rpw_request *r, uint32_t units, enum rts_kind kind, uint64_t tag)
{
	rpw_endpoint *ep = r->ep;
	if (units)
		credit_need(&ep->link, units);
	if (!r->gpu && r->len <= EAGER_SMALL && r->len <= ep->eager_max)
		return RPWI_LATER;
	return rndv_offer_as(r, FRAME_RTS, kind, tag, "", 0);
}

/* May a DONE be the answer to it? */
static bool offers(const rpw_request *r)
{
	return r->kind == REQ_SEND || r->kind == REQ_OBJECT || r->kind == REQ_AM ||
	       r->kind == REQ_CHUNK || r->kind == REQ_SERVE_GET || (r->kind == REQ_RMA && r->asked);
}

void rndv_finished(rpw_endpoint *ep, uint64_t number, int status)
{
	rpw_request *r = ids_get(&ep->c->numbers, number);
	if (!r || r->ep != ep || r->where != AT_PEER || !offers(r)) {
		rpwi_debug("%s: a DONE for number 0x%llx, which is none of its messages", ep->peer,
			(unsigned long long)number);
		return;
	}
	if (r->role)
		transfer_answered(r, status);
	else
		req_complete(r, status);
}

void rndv_describe_all(rpw_endpoint *ep)
{
	RPWI_LIST_EACH (rpw_request, r, &ep->active_list, active) {
		if (r->rndv && r->where == AT_PEER && !r->keep.in) {
			r->describe = true;
			ep->describe = true;
		}
	}
}

bool rndv_describe_go(rpw_endpoint *ep)
{
	for (struct rpwi_list *n = ep->active_list.next; ep->describe && n != &ep->active_list;
		n = n->next) {
		rpw_request *r = RPWI_CONTAINER_OF(n, rpw_request, active);
		uint8_t body[RTS_BODY_MAX];
		if (!r->describe)
			continue;
		size_t len = rndv_describe(r, body);
		struct iovec iov = {body, len};
		if (!len || link_send(&ep->link, &(struct frame){.type = FRAME_RTS,
							 .flags = RTS_AGAIN,
							 .tag = r->number,
							 .iov = &iov,
							 .iovcnt = 1,
							 .len = len,
							 .keep = &r->keep,
							 .anew = true}))
			return false;
		ep->lost.again_tx++;
		r->describe = false;
	}
	ep->describe = false;
	return true;
}
