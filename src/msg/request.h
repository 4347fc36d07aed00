/* SPDX-License-Identifier: BSD-3-Clause */
/* request.h - requests: made, completed once, freed; their buffers. */
#ifndef ROPEWAY_MSG_REQUEST_H
#define ROPEWAY_MSG_REQUEST_H

#include "msg/objects.h"

rpw_request *req_new(rpw_context *c, rpw_endpoint *ep, enum req_kind kind, bool held);
rpw_request *req_more(rpw_context *c); /* there is no free one: NULL, no memory */
void req_blank(rpw_request *r);
/* For a receive into one piece: blank, with nothing written that is so already. */
static inline rpw_request *req_new_plain(rpw_context *c, rpw_endpoint *ep, bool held)
{
	rpw_request *r = c->free_requests;
	if (RPWI_UNLIKELY(!r) && !(r = req_more(c)))
		return NULL;
	c->free_requests = r->next_free;
	if (RPWI_UNLIKELY(!r->plain)) {
		req_blank(r);
		r->plain = true;
	}
	r->c = c;
	r->ep = ep;
	r->kind = REQ_RECV;
	r->where = AT_NONE;
	r->held = held;
	r->complete = false;
	r->done = (rpw_completion){.status = RPW_IN_PROGRESS};
	r->fn = NULL;
	c->stat.requests++;
	return r;
}
static inline void req_give_back(rpw_request *r)
{
	r->next_free = r->c->free_requests;
	r->c->free_requests = r;
}
/* The program's completion: as much of it as it has room for. What a request keeps has no size. */
int req_completion_check(const rpw_completion *to, const char *call); /* 0, or RPW_ERR_INVALID */
static inline void completion_give(rpw_completion *to, const rpw_completion *from)
{
	rpw_completion now = *from;
	now.size = to->size;
	if (RPWI_LIKELY(now.size == sizeof(now)))
		*to = now;
	else
		memcpy(to, &now, RPWI_MIN(now.size, sizeof(now)));
}
/* with what it has come to; it may be freed in there */
void req_call(rpw_request *r, rpw_done_fn fn, void *arg);
void req_complete(rpw_request *r, int status);
/* Its frame has gone (0), or cannot (RPW_ERR_NO_MEMORY). A body that is kept is the program's again
 * once it is acknowledged. */
static inline void req_sent(rpw_request *r, int rc)
{
	if (r->keep.in)
		r->where = AT_LOG;
	else
		req_complete(r, rc);
}
/* It is to fail: this is why, unless something was before. */
static inline void req_note(rpw_request *r, const struct rpwi_error *e)
{
	r->plain = false;
	if (!r->error.status)
		rpwi_error_keep(&r->error, e);
}
/* Of a call that makes its errors the last one. */
static inline int req_noted(rpw_request *r, int status)
{
	if (RPWI_UNLIKELY(status < 0))
		req_note(r, rpwi_last_error());
	return status;
}
static inline void req_fail(rpw_request *r, const struct rpwi_error *e)
{
	req_note(r, e);
	req_complete(r, e->status);
}
void req_say_why(const rpw_request *r); /* it has failed: its own sentence is the last error */
void req_drop(rpw_request *r);          /* was never posted */
int req_set_local(rpw_request *r, const struct iovec *iov, int iovcnt);
/* a stretch (len > 0) of r's buffers */
int req_set_slice(rpw_request *slice, const rpw_request *r, size_t skip, size_t len);
void req_chunks_free(rpw_context *c);
/* Give what was posted to the program: RPW_OK, RPW_IN_PROGRESS or its status. */
int req_return(rpw_request *r, rpw_request **out);
/* What `iov` has from `skip` on, at most n bytes, to or from `flat`. How many. */
/* up: by rpwi_copy_up */
size_t iov_scatter(const struct iovec *iov, int iovcnt, const void *flat, size_t n, bool up);
size_t iov_gather(const struct iovec *iov, int iovcnt, size_t skip, void *flat, size_t n);
static inline struct iovec *req_iov(rpw_request *r, struct iovec *one)
{
	if (r->iovcnt != 1)
		return r->iov;
	*one = (struct iovec){r->buf, r->len};
	return one;
}
int msg_deliver_callbacks(rpw_context *c);

#endif
