/* SPDX-License-Identifier: BSD-3-Clause */
/* transfer.h - bytes to and from the peer's memory. */
#ifndef ROPEWAY_MSG_TRANSFER_H
#define ROPEWAY_MSG_TRANSFER_H

#include "msg/objects.h"

/* What the bytes of a transfer are for. */
struct transfer_role {
	/* before any piece: false when it is not to go in pieces, now or any more. NULL: it is */
	bool (*ready)(rpw_request *r, rpw_endpoint *ep);
	/* no piece is under way: all are done, or `worst` says why not */
	void (*done)(rpw_request *r);
	/* the transport has flushed what was put, or the peer has said that it is there */
	void (*settled)(rpw_request *r, int status);
};
/* What a transport's `done` is about: low bits of the cookie. */
enum transfer_cookie { COOKIE_PIECE = 0, COOKIE_SETTLE = 1, COOKIE_FLUSH = 2, COOKIE_BITS = 3 };
static inline void *transfer_cookie(void *p, enum transfer_cookie what)
{
	return (void *)((uintptr_t)p | what);
}
void transfer_go(rpw_request *r);
void transfer_over(rpw_request *r);    /* it is to go in no more pieces */
void transfer_settles(rpw_request *r); /* what it put is to be flushed: then role->settled */
void transfer_answered(rpw_request *r, int status); /* the peer has said that it is done */
/* the path is gone: from the beginning, on the next one. Puts and gets may be repeated */
void transfer_restart(rpw_request *r);
void transfer_settle(rpw_endpoint *ep);
void transfer_up_done(void *user, void *cookie, const struct rpwi_error *e);

#endif
