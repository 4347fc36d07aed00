/* SPDX-License-Identifier: BSD-3-Clause */
/* messages.h - tagged messages, objects, active messages: begun, and as they come. */
#ifndef ROPEWAY_MSG_MESSAGES_H
#define ROPEWAY_MSG_MESSAGES_H

#include "msg/objects.h"

void tag_arrived(rpw_endpoint *ep, uint64_t tag, const void *body, size_t len);
void tag_offered(rpw_endpoint *ep, uint64_t tag, struct rts *rts, uint32_t units);
void tag_loaned(rpw_endpoint *ep, uint64_t tag, const void *body, size_t len);
void tag_unpost(rpw_request *r);
void view_fetched(rpw_request *r, int status);
void object_unpost(rpw_request *r);
const char *tag_whose(const rpw_context *c);
int tag_send_begin(rpw_request *r);
/* Where a message goes of which the first bytes come: a posted receive's buffer, which is filled
 * from here on; NULL: none, or none that lies in one piece of the host's memory. */
void *tag_place(rpw_endpoint *ep, uint64_t tag, size_t len);
bool tag_eager(const rpw_request *r, uint32_t *units);
void object_arrived(rpw_endpoint *ep, uint64_t number, const void *body, size_t len);
void object_offered(rpw_endpoint *ep, struct rts *rts, uint32_t units);
void object_fetched(rpw_request *r, int status);
int object_send_begin(rpw_request *r);
void am_arrived(rpw_endpoint *ep, uint64_t word, const void *header, size_t header_len,
	const void *body, size_t len);
void am_offered(rpw_endpoint *ep, uint64_t word, struct rts *rts, uint32_t units);
void am_fetched(rpw_request *r, int status);
void am_turn(rpw_endpoint *ep);
int am_send_begin(rpw_request *r);

/* A small frame may go at once, without a request: nothing is before it, and the log would copy
 * it. */
static inline bool path_is_free(const rpw_endpoint *ep, size_t len, uint32_t units)
{
	return ep->state == EP_UP && !ep->shut && msg_is_ours(ep->c) && len <= EAGER_SMALL &&
	       len <= ep->eager_max && rpwi_list_empty(&ep->link.queue) &&
	       rpwi_list_empty(&ep->link.replies) && credit_has(&ep->link, units) &&
	       rpwi_list_empty(&ep->c->gpus);
}

#endif
