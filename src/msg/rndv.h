/* SPDX-License-Identifier: BSD-3-Clause */
/* rndv.h - large messages: offered, fetched, put; rendezvous.c chooses. */
#ifndef ROPEWAY_MSG_RNDV_H
#define ROPEWAY_MSG_RNDV_H

#include "msg/objects.h"

/* What a peer may fetch from us. */
struct rndv {
	unsigned n;
	int tran; /* whose registrations */
	uint8_t kind;
	void *bounce;   /* more pieces than an RTS can describe: packed here */
	struct rts *to; /* where it is being put, invited by the peer */
	struct iovec iov[RTS_PIECES_MAX];
	struct tran_mem *mem[RTS_PIECES_MAX];
};

/* Of an RTS: what it costs must not depend on how this path's transport describes memory, since it
 * may go again on another, which describes it otherwise. */
static inline uint32_t credit_units_rts(unsigned pieces, size_t am_header_len)
{
	return credit_units(
		sizeof(struct rts_body) + pieces * sizeof(struct tran_desc) + am_header_len);
}

/* What no frame takes now: it waits for `units` of credit if it is short enough (RPWI_LATER), else
 * the peer is to fetch it. */
int rndv_offer(rpw_request *r, uint32_t units, enum rts_kind kind, uint64_t tag);
int rndv_offer_as(rpw_request *r, enum frame_type type, enum rts_kind kind, uint64_t tag,
	const void *extra, size_t extra_len);
void *rndv_flatten(rpw_request *r); /* a list of pieces, in one; NULL: no memory */
void rndv_fetch_parked(rpw_request *r, size_t room);
size_t rndv_describe(rpw_request *r, uint8_t *body); /* for the path of now */
void rndv_describe_all(rpw_endpoint *ep);
bool rndv_describe_go(rpw_endpoint *ep);
void rndv_path_gone(rpw_endpoint *ep);
void rndv_end(rpw_request *r);
void rndv_unregister(rpw_request *r); /* what it offers, with the path that is gone */
struct rts *rndv_parse(const void *body, size_t len);
void rndv_fetch(rpw_request *r, rpw_endpoint *ep, struct rts *rts, size_t room);
void rndv_fetched(rpw_request *r);
void rndv_finished(rpw_endpoint *ep, uint64_t number, int status);
void rndv_withdrawn(rpw_endpoint *ep, uint64_t number);
void rndv_described(rpw_endpoint *ep, const void *body, size_t len);
/* The body of a description of one piece. Its length. */
size_t rndv_describe_piece(uint8_t *p, uint64_t len, const struct tran_desc *d);
size_t rndv_describe_one(
	uint8_t *body, uint64_t number, uint64_t len, const struct tran_desc *desc);

/* rndv_put.c */
/* a receive that is to be fetched: false when it has to be, indeed */
bool rndv_put_invite(rpw_request *r);
void rndv_rtr_drop(rpw_request *r);
void rndv_put_placed(rpw_endpoint *ep, uint64_t number, int status);
void rndv_put_invited(rpw_endpoint *ep, uint64_t number, const void *body, size_t len);
void rndv_put_path_gone(rpw_request *r);

#endif
