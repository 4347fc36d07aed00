/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.h - endpoints: made, posted on, failed; their states. */
#ifndef ROPEWAY_MSG_ENDPOINT_H
#define ROPEWAY_MSG_ENDPOINT_H

#include "msg/objects.h"

/* state.c: false, the event has no meaning now */
bool ep_move(rpw_endpoint *ep, enum ep_event event);

/* endpoint.c */
rpw_endpoint *ep_new(rpw_context *c);
void ep_free(rpw_endpoint *ep); /* everything of it ends, requests with CANCELED */
/* the peer sent what it must not */
void ep_breach(rpw_endpoint *ep, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* queue it, and begin what can begin */
int ep_post(rpw_endpoint *ep, rpw_request *r, rpw_request **out);
/* It ends, for that reason: now; or soon, in a round of progress (what is said last counts). */
void ep_fail(rpw_endpoint *ep, const struct rpwi_error *e);
void ep_doom_by(rpw_endpoint *ep, const struct rpwi_error *e);
void ep_doom(rpw_endpoint *ep, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* what the program hears of its end */
static inline int ep_end_status(const rpw_endpoint *ep)
{
	return ep->orderly ? RPW_OK : ep->error.status;
}
static inline const char *ep_end_text(const rpw_endpoint *ep)
{
	return ep->error.status ? ep->error.text : "";
}
int ep_has_ended(const rpw_endpoint *ep);     /* an error: it has ended, and why */
void ep_keep(char **where, const char *text); /* a copy, for the one that is there */
void ep_refresh(rpw_endpoint *ep); /* ep->link.fast, from everything that it depends on */

/* post.c */
void post_wait(rpw_request *r); /* it begins when what is before it has */
void post_go(rpw_endpoint *ep); /* the queue, as far as it goes now */

#endif
