/* SPDX-License-Identifier: BSD-3-Clause */
/* rts.c - what an RTS says, in bytes; and its end: the message that was fetched. */
#include "msg/objects.h"
#include "msg/request.h"
#include "msg/rndv.h"

#include <stdlib.h>

size_t rndv_describe_piece(uint8_t *p, uint64_t len, const struct tran_desc *d)
{
	/* in a GPU that this path does not reach, as the one before did: the peer has to pull
	 * now */
	static const struct tran_desc none;
	d = d ? d : &none;
	memcpy(p, &len, 8);
	p[8] = d->len;
	memcpy(p + 9, d->bytes, d->len);
	return 9u + d->len;
}

size_t rndv_describe_one(uint8_t *body, uint64_t number, uint64_t len, const struct tran_desc *desc)
{
	struct rts_body h = {.number = number, .len = len, .pieces = 1};
	memcpy(body, &h, sizeof(h));
	return sizeof(h) + rndv_describe_piece(body + sizeof(h), len, desc);
}

/* On shared memory the peer can still write what is parsed here: so it is copied first, and each
 * byte is the same whenever it is looked at. */
struct rts *rndv_parse(const void *body, size_t len)
{
	struct rts_body h;
	uint8_t copy[RTS_BODY_MAX];
	if (len < sizeof(h) || len > sizeof(copy))
		return NULL;
	memcpy(copy, body, len);
	memcpy(&h, copy, sizeof(h));
	if (h.pieces > RTS_PIECES_MAX || (!h.pieces && !h.len) ||
		h.am_header_len > RPW_AM_HEADER_MAX || h.len > SIZE_MAX / 2)
		return NULL;
	struct rts *t = malloc(sizeof(*t) + h.pieces * sizeof(t->piece[0]) + h.am_header_len);
	if (!t)
		return NULL;
	*t = (struct rts){.number = h.number,
		.len = h.len,
		.pieces = h.pieces,
		.am_header_len = h.am_header_len};
	t->am_header = (uint8_t *)&t->piece[h.pieces];
	const uint8_t *p = copy + sizeof(h), *end = copy + len;
	uint64_t sum = 0;
	for (unsigned i = 0; i < h.pieces; i++) {
		if (end - p < 9 || p[8] >= TRAN_DESC_MAX || end - p < 9 + p[8])
			goto bad;
		memcpy(&t->piece[i].len, p, 8);
		t->piece[i].desc = (struct tran_desc){.len = p[8]};
		memcpy(t->piece[i].desc.bytes, p + 9, p[8]);
		p += 9 + p[8];
		if (t->piece[i].len > h.len - sum)
			goto bad;
		sum += t->piece[i].len;
	}
	if ((h.pieces && sum != h.len) || (size_t)(end - p) != h.am_header_len)
		goto bad;
	memcpy(t->am_header, p, h.am_header_len);
	return t;
bad:
	free(t);
	return NULL;
}

/* All of it is here, or it failed (worst). */
void rndv_fetched(rpw_request *r)
{
	rpw_endpoint *ep = r->done.from;
	/* An offer stands until our DONE: when its memory is not there any more, the sender has
	 * just closed, and its word of that is on the way. */
	if (r->worst == RPW_ERR_ACCESS) {
		r->worst = RPW_ERR_PEER_GONE;
		rpwi_error_drop(&r->error);
	}
	if (!r->peer_lost && !r->placed)
		link_reply(&ep->link, FRAME_DONE, done_word(DONE_FETCHED, r->worst), r->rts->number,
			NULL, 0);
	if (proto_of(r)->fetched)
		proto_of(r)->fetched(r, r->worst);
	else if (!r->worst && r->rts->len > r->len)
		req_complete(r, RPW_ERR_TRUNCATED);
	else
		req_complete(r, r->worst);
}

void rndv_rtr_drop(rpw_request *r)
{
	if (r->rtr_mem)
		r->c->t[r->rtr_tran].ops->mem->del(r->c->t[r->rtr_tran].tran, r->rtr_mem);
	r->rtr_mem = NULL;
}
