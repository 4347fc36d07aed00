/* SPDX-License-Identifier: BSD-3-Clause */
/* request.c - requests: made from a free list, completed once, freed when both sides of them (the
 * program, the operation) are done with them. */
#include "msg/checked.h"
#include "msg/objects.h"
#include "msg/request.h"

#include "base/copy.h"

#include <stdio.h>
#include <stdlib.h>

enum { CHUNK = 64 };
struct chunk {
	struct rpwi_list all;
	rpw_request r[CHUNK];
};

rpw_request *req_more(rpw_context *c)
{
	struct chunk *k = aligned_alloc(_Alignof(struct chunk), sizeof(*k));
	if (!k) {
		rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for a request");
		return NULL;
	}
	rpwi_list_add_tail(&c->chunks, &k->all);
	for (int i = CHUNK - 1; i >= 0; i--) {
		rpw_request *r = &k->r[i];
		r->c = c;
		r->plain = r->iov_owned = false;
		r->kind = REQ_RECV;
		r->bounce = NULL;
		r->error = (struct rpwi_error){0};
		rpwi_list_init(&r->active);
		req_give_back(r);
	}
	return c->free_requests;
}

/* What a request has copied for as long as it is there. */
static void copies_free(rpw_request *r)
{
	if (r->iov_owned)
		free(r->iov);
	r->iov_owned = false;
	if (r->kind == REQ_AM) {
		free(r->am.header);
		r->am.header = NULL;
	}
	free(r->bounce);
	r->bounce = NULL;
	rpwi_error_drop(&r->error);
}

void req_chunks_free(rpw_context *c)
{
	while (!rpwi_list_empty(&c->chunks)) {
		struct chunk *k = RPWI_CONTAINER_OF(c->chunks.next, struct chunk, all);
		rpwi_list_del(&k->all);
		for (int i = 0; i < CHUNK; i++)
			copies_free(&k->r[i]); /* of those that the program has not freed */
		free(k);
	}
}

void req_blank(rpw_request *r)
{
	memset((char *)r + offsetof(rpw_request, issuing), 0,
		sizeof(*r) - offsetof(rpw_request, issuing));
	r->iovcnt = 1;
}

rpw_request *req_new(rpw_context *c, rpw_endpoint *ep, enum req_kind kind, bool held)
{
	rpw_request *r = req_new_plain(c, ep, held);
	if (!r)
		return NULL;
	r->kind = (uint8_t)kind;
	r->plain = false;
	return r;
}

void req_drop(rpw_request *r)
{
	if (RPWI_UNLIKELY(rpwi_check_on))
		checked_gone(r);
	if (!r->complete)
		r->c->stat.requests--;
	copies_free(r);
	rpwi_list_del(&r->active);
	req_give_back(r);
}

/* ---- why it failed ---- */

/* Nobody has said more. */
static const char *in_general(int status)
{
	static const char *const texts[] = {
		[-RPW_ERR_INVALID] = "its buffer is not mapped",
		[-RPW_ERR_NO_MEMORY] = "there was no memory for it, on this side or on the other",
		[-RPW_ERR_CANCELED] = "canceled by rpw_request_cancel",
		[-RPW_ERR_PEER_GONE] = "the peer has just closed, and its memory is gone",
		[-RPW_ERR_ACCESS] = "the peer has registered no such memory, right or length",
		[-RPW_ERR_PROTOCOL] = "the peer answered what is no answer",
		[-RPW_ERR_LIMIT] =
			"it is longer than its receiver takes (unexpected_bytes_max there)",
		[-RPW_ERR_NOT_SUPPORTED] = "the path of now cannot do it",
		[-RPW_ERR_SYSTEM] = "a call of the system failed",
	};
	return status < 0 && -status < (int)RPWI_ARRAY_LEN(texts) && texts[-status]
		       ? texts[-status]
		       : rpw_status_name(status);
}

static void keep_why(rpw_request *r, int status)
{
	const rpw_endpoint *ep = r->ep ? r->ep : r->done.from;
	if (status == RPW_ERR_TRUNCATED)
		return;
	r->plain = false;
	if (ep && ep->state == EP_FAILED && ep->error.status == status)
		rpwi_error_keep(&r->error, &ep->error);
	const char *peer = ep ? text_or(ep->peer, "") : "";
	size_t len = r->len ? r->len : r->done.length;
	if (r->error.status && *r->error.text)
		r->error.status = status;
	else
		rpwi_error_say(&r->error, status, "%s of %zu bytes%s%s: %s", proto_of(r)->name, len,
			*peer ? ", peer " : "", peer, in_general(status));
}

void req_say_why(const rpw_request *r)
{
	char text[128];
	struct rpwi_error e = {r->done.status, 0, text};
	if (r->done.status == RPW_ERR_TRUNCATED)
		snprintf(text, sizeof(text), "the message has %zu bytes, the buffer %zu",
			r->done.length, r->len);
	else
		e.text = in_general(r->done.status);
	rpwi_fail_again(r->error.status == r->done.status && *r->error.text ? &r->error : &e);
}

void req_complete(rpw_request *r, int status)
{
	rpw_context *c = r->c;
	if (RPWI_UNLIKELY(status < 0))
		keep_why(r, status);
	r->complete = true;
	r->done.status = status;
	r->where = AT_NONE;
	if (RPWI_UNLIKELY(rpwi_check_on))
		checked_ends(r);
	if (RPWI_UNLIKELY(r->rndv || r->number || r->xfer || r->rts || r->keep.in || r->pipeline ||
			  r->serves || r->lent))
		c->proto_ends(r);
	if (!rpwi_list_empty(&r->active)) {
		rpwi_list_del(&r->active);
		if (r->ep && !rpwi_list_empty(&r->ep->active_list) &&
			proto_of(RPWI_CONTAINER_OF(r->ep->active_list.next, rpw_request, active))
				->waits_for_older)
			msg_todo(r->ep, TODO_SEND);
	}
	c->stat.requests--;
	if (RPWI_UNLIKELY(r->fn))
		rpwi_list_add_tail(&c->callbacks, &r->link);
	else if (!r->held)
		req_drop(r);
}

int req_return(rpw_request *r, rpw_request **out)
{
	if (r->complete) {
		int status = r->done.status;
		if (out)
			*out = NULL;
		if (status < 0)
			req_say_why(r);
		req_drop(r);
		return status;
	}
	if (out)
		*out = r;
	else
		r->held = false;
	return RPW_IN_PROGRESS;
}

/* Of a call with one buffer that is `buf` and `len`, of others a piece. */
static int piece_wrong(int i, int iovcnt, size_t len, const char *why)
{
	if (iovcnt == 1)
		return rpwi_fail(RPW_ERR_INVALID, "a buffer of %zu bytes: %s", len, why);
	return rpwi_fail(
		RPW_ERR_INVALID, "piece %d of the scatter list has %zu bytes: %s", i, len, why);
}

static int iov_total(const struct iovec *iov, int iovcnt, size_t *total)
{
	if (iovcnt < 0 || iovcnt > IOV_MAX_COUNT || (iovcnt && !iov))
		return rpwi_fail(RPW_ERR_INVALID,
			"a scatter list of %d pieces: 0 to %d can be given", iovcnt, IOV_MAX_COUNT);
	*total = 0;
	for (int i = 0; i < iovcnt; i++) {
		if (iov[i].iov_len && !iov[i].iov_base)
			return piece_wrong(i, iovcnt, iov[i].iov_len, "its address is NULL");
		if (iov[i].iov_len > SIZE_MAX / 2 - *total)
			return piece_wrong(i, iovcnt, iov[i].iov_len, "no memory is as long");
		*total += iov[i].iov_len;
	}
	return 0;
}

/* The list is copied: the program may forget it when the call returns. */
int req_set_local(rpw_request *r, const struct iovec *iov, int iovcnt)
{
	int rc = iov_total(iov, iovcnt, &r->len);
	if (rc)
		return rc;
	r->iovcnt = iovcnt;
	if (iovcnt <= 1) {
		r->buf = iovcnt ? iov->iov_base : NULL;
		r->iovcnt = 1;
		return 0;
	}
	r->iov = malloc((size_t)iovcnt * sizeof(*iov));
	if (!r->iov)
		return rpwi_fail(
			RPW_ERR_NO_MEMORY, "no memory for a scatter list of %d pieces", iovcnt);
	memcpy(r->iov, iov, (size_t)iovcnt * sizeof(*iov));
	r->iov_owned = true;
	return 0;
}

int req_set_slice(rpw_request *slice, const rpw_request *r, size_t skip, size_t len)
{
	slice->len = len;
	if (r->iovcnt == 1) {
		slice->buf = r->buf + skip;
		return 0;
	}
	slice->iov = malloc((size_t)r->iovcnt * sizeof(*slice->iov));
	if (!slice->iov)
		return RPW_ERR_NO_MEMORY;
	slice->iov_owned = true;
	slice->iovcnt = 0;
	for (int i = 0; i < r->iovcnt && len; i++) {
		const struct iovec *v = &r->iov[i];
		if (skip >= v->iov_len) {
			skip -= v->iov_len;
			continue;
		}
		size_t n = RPWI_MIN(v->iov_len - skip, len);
		if (!slice->iovcnt)
			slice->buf = (char *)v->iov_base + skip; /* where one piece is looked for */
		slice->iov[slice->iovcnt++] = (struct iovec){(char *)v->iov_base + skip, n};
		len -= n;
		skip = 0;
	}
	return 0;
}

enum iov_way { GATHER, SCATTER, SCATTER_UP };

static size_t iov_copy(
	const struct iovec *iov, int iovcnt, size_t skip, char *flat, size_t n, enum iov_way way)
{
	size_t done = 0;
	for (int i = 0; i < iovcnt && done < n; i++) {
		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		size_t m = RPWI_MIN(iov[i].iov_len - skip, n - done);
		char *piece = (char *)iov[i].iov_base + skip;
		if (way == GATHER)
			rpwi_copy(flat + done, piece, m);
		else if (way == SCATTER)
			rpwi_copy(piece, flat + done, m);
		else
			rpwi_copy_up(piece, flat + done, m);
		done += m;
		skip = 0;
	}
	return done;
}
size_t iov_scatter(const struct iovec *iov, int iovcnt, const void *flat, size_t n, bool up)
{
	return iov_copy(iov, iovcnt, 0, (char *)flat, n, up ? SCATTER_UP : SCATTER);
}
size_t iov_gather(const struct iovec *iov, int iovcnt, size_t skip, void *flat, size_t n)
{
	return iov_copy(iov, iovcnt, skip, flat, n, GATHER);
}

enum { COMPLETION_SIZE_MIN = sizeof(rpw_completion) }; /* as of version 0.1 */

int req_completion_check(const rpw_completion *to, const char *call)
{
	if (RPWI_LIKELY(to->size >= COMPLETION_SIZE_MIN))
		return RPW_OK;
	return rpwi_fail(RPW_ERR_INVALID,
		"%s: rpw_completion.size is %zu, at least %d is needed: begin with "
		"RPW_COMPLETION_INIT",
		call, to->size, COMPLETION_SIZE_MIN);
}

void req_call(rpw_request *r, rpw_done_fn fn, void *arg)
{
	rpw_completion done = r->done;
	done.size = sizeof(done);
	if (done.status < 0)
		req_say_why(r);
	fn(r, &done, arg);
}

int rpw_request_test(rpw_request *r, rpw_completion *done)
{
	if (!r)
		return rpwi_fail(RPW_ERR_INVALID, "rpw_request_test: the request is NULL (a call "
						  "that gave RPW_OK was complete already)");
	if (done) {
		if (RPWI_UNLIKELY(req_completion_check(done, "rpw_request_test")))
			return RPW_ERR_INVALID;
		completion_give(done, &r->done);
	}
	if (RPWI_UNLIKELY(r->done.status < 0))
		req_say_why(r);
	return r->done.status;
}

void rpw_request_destroy(rpw_request *r)
{
	if (!r)
		return;
	r->held = false;
	if (!r->complete || RPWI_UNLIKELY(r->fn != NULL))
		return;
	if (RPWI_LIKELY(r->plain && !rpwi_check_on))
		req_give_back(r);
	else
		req_drop(r);
}

void rpw_request_on_done(rpw_request *r, rpw_done_fn fn, void *arg)
{
	if (!r)
		return;
	if (!r->complete) {
		r->fn = fn;
		r->arg = arg;
		return;
	}
	/* the one that was to be called in the next progress: this one takes its place */
	if (r->fn)
		rpwi_list_del(&r->link);
	r->fn = NULL;
	if (fn) {
		rpw_context *c = r->c; /* the request may be freed in there */
		bool outer = msg_callback_begin(c);
		req_call(r, fn, arg);
		c->in_progress = outer;
	}
}

static void cancel_at_peer(rpw_request *r)
{
	if (!r->canceled && r->number && proto_of(r)->message)
		link_reply(&r->ep->link, FRAME_WITHDRAW, 0, r->number, NULL, 0);
	r->canceled = true;
}

int rpw_request_cancel(rpw_request *r)
{
	if (!r)
		return rpwi_fail(RPW_ERR_INVALID, "rpw_request_cancel: the request is NULL");
	if (RPWI_UNLIKELY(!msg_is_ours(r->c)))
		return msg_inherited(r->c);
	if (r->complete)
		return RPW_OK;
	r->plain = false;
	switch (r->where) {
	case AT_POSTED:
		proto_of(r)->unpost(r);
		req_complete(r, RPW_ERR_CANCELED);
		break;
	case AT_QUEUE:
		rpwi_list_del(&r->link);
		msg_todo(r->ep, TODO_SEND); /* what was behind it */
		req_complete(r, RPW_ERR_CANCELED);
		break;
	case AT_PEER:
		cancel_at_peer(r);
		break;
	default: /* bytes are moving: it ends as it would have */
		if (proto_of(r)->cancel)
			proto_of(r)->cancel(r);
		break;
	}
	return RPW_OK;
}

int msg_deliver_callbacks(rpw_context *c)
{
	int n = 0;
	for (; !rpwi_list_empty(&c->callbacks); n++) {
		rpw_request *r = RPWI_CONTAINER_OF(c->callbacks.next, rpw_request, link);
		rpwi_list_del(&r->link);
		rpw_done_fn fn = r->fn;
		r->fn = NULL;
		bool held = r->held;
		req_call(r, fn, r->arg);
		if (!held)
			req_drop(r);
	}
	return n;
}
