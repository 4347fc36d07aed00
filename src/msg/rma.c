/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.c - puts and gets, one or a batch, with or without a notification: what the program asks for.
 * The bytes move in transfer.c; the part for memory in GPUs is in pipeline_ask.c. */
#include "msg/endpoint.h"
#include "msg/objects.h"
#include "msg/pipeline.h"
#include "msg/request.h"
#include "msg/rma.h"
#include "msg/transfer.h"

#include <stdlib.h>

static void rma_done(rpw_request *r)
{
	bool has_put = r->xfers && r->xfer->is_put;
	for (unsigned i = 1; i < r->xfers; i++)
		has_put |= r->xfer[i].is_put;
	if (RPWI_UNLIKELY(r->direct && !has_put))
		r->worst = direct_landed(r, r->worst);
	if (r->worst || !has_put || (!r->rma.notify && !r->ep->link.breakable))
		req_complete(r, r->worst);
	else
		transfer_settles(r);
}

/* The peer has the bytes. */
static void rma_settled(rpw_request *r, int status)
{
	if (r->rma.notify && !status) {
		uint64_t len = r->len;
		link_reply(&r->ep->link, FRAME_NOTIFY, 0, r->rma.word, &len, sizeof(len));
	}
	req_complete(r, status);
}

static const struct transfer_role rma_role = {NULL, rma_done, rma_settled};

int rma_begin(rpw_request *r)
{
	r->worst = 0;
	r->role = &rma_role;
	if (RPWI_UNLIKELY(pipeline_wants(r)))
		return pipeline_rma_begin(r);
	r->where = AT_FETCH;
	rpwi_list_add_tail(&r->ep->fetching, &r->link);
	transfer_go(r);
	return 0;
}

/* ---- the calls ---- */

static const char *right_name(unsigned need)
{
	if (need == RPW_REMOTE_WRITE)
		return "WRITE";
	return need == RPW_REMOTE_READ ? "READ" : "ATOMIC";
}

int rma_access_check(rpw_endpoint *ep, const rpw_rkey *key, uint64_t offset, size_t len,
	unsigned need, const char *what)
{
	if (!ep || !key)
		return msg_wrong(what, ep ? "the remote key is NULL" : "the endpoint is NULL");
	if (key->ep != ep)
		return rpwi_fail(RPW_ERR_INVALID,
			"%s: the remote key was unpacked for another endpoint; unpack it for this "
			"one",
			what);
	if (offset > key->len || len > key->len - offset)
		return rpwi_fail(RPW_ERR_ACCESS,
			"%s of %zu bytes at offset %llu: %s registered %llu bytes; stay within "
			"them",
			what, len, (unsigned long long)offset, ep->peer,
			(unsigned long long)key->len);
	if ((key->access & need) != need)
		return rpwi_fail(RPW_ERR_ACCESS,
			"%s: %s registered this memory without RPW_REMOTE_%s: it has to be "
			"registered with that right",
			what, ep->peer, right_name(need));
	return 0;
}

static int transfer_check(
	rpw_endpoint *ep, bool is_put, const rpw_rkey *key, uint64_t offset, size_t len)
{
	return is_put ? rma_access_check(ep, key, offset, len, RPW_REMOTE_WRITE, "put")
		      : rma_access_check(ep, key, offset, len, RPW_REMOTE_READ, "get");
}

static int one_transfer(rpw_endpoint *ep, bool is_put, void *buf, size_t len, const rpw_rkey *key,
	uint64_t offset, const uint64_t *notify, rpw_request **req)
{
	int rc = transfer_check(ep, is_put, key, offset, len);
	if (rc)
		return rc;
	if (len && !buf)
		return rpwi_fail(RPW_ERR_INVALID, "%s of %zu bytes without a buffer",
			is_put ? "put" : "get", len);
	rpw_request *r = req_new(ep->c, ep, REQ_RMA, req != NULL);
	if (!r)
		return RPW_ERR_NO_MEMORY;
	r->one = (struct xfer){
		.local = buf, .offset = offset, .len = len, .key = key, .is_put = is_put};
	r->gpu = pipeline_gpu_of(ep->c, buf, len);
	r->rma.to_gpu = key->device;
	r->xfer = &r->one;
	r->xfers = 1;
	r->len = r->done.length = len;
	r->rma.notify = notify != NULL;
	if (notify)
		r->rma.word = *notify;
	return ep_post(ep, r, req);
}

int rpw_put(rpw_endpoint *ep, const void *buf, size_t len, const rpw_rkey *key, uint64_t offset,
	rpw_request **req)
{
	return one_transfer(ep, true, (void *)buf, len, key, offset, NULL, req);
}

int rpw_get(rpw_endpoint *ep, void *buf, size_t len, const rpw_rkey *key, uint64_t offset,
	rpw_request **req)
{
	return one_transfer(ep, false, buf, len, key, offset, NULL, req);
}

int rpw_put_notify(rpw_endpoint *ep, const void *buf, size_t len, const rpw_rkey *key,
	uint64_t offset, uint64_t data, rpw_request **req)
{
	return one_transfer(ep, true, (void *)buf, len, key, offset, &data, req);
}

enum { TRANSFER_SIZE_MIN = sizeof(rpw_transfer) }; /* as of version 0.1 */

int rpw_transfer_batch(rpw_endpoint *ep, const rpw_transfer *t, size_t n, rpw_request **req)
{
	if (!ep)
		return msg_wrong("rpw_transfer_batch", "the endpoint is NULL");
	if (n && !t)
		return msg_wrong("rpw_transfer_batch", "the array of transfers is NULL");
	if (n > UINT32_MAX / 2)
		return msg_wrong("rpw_transfer_batch", "more transfers than a batch takes");
	size_t stride = n ? t->size : 0;
	if (n && (stride < TRANSFER_SIZE_MIN || stride % _Alignof(rpw_transfer)))
		return rpwi_fail(RPW_ERR_INVALID,
			"rpw_transfer_batch: rpw_transfer.size is %zu, at least %d is needed: "
			"begin with RPW_TRANSFER_INIT",
			stride, TRANSFER_SIZE_MIN);
	struct xfer *x = malloc((n ? n : 1) * sizeof(*x));
	rpw_request *r = x ? req_new(ep->c, ep, REQ_RMA, req != NULL) : NULL;
	if (!r) {
		free(x);
		return rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for a batch of %zu transfers", n);
	}
	int rc = 0;
	size_t total = 0;
	for (size_t i = 0; !rc && i < n; i++) {
		const rpw_transfer *one = (const rpw_transfer *)((const char *)t + i * stride);
		if (one->size != stride) {
			rc = rpwi_fail(RPW_ERR_INVALID,
				"transfer %zu of the batch has size %zu, the first has %zu: all of "
				"an array are of one size",
				i, one->size, stride);
			break;
		}
		rc = transfer_check(ep, !one->is_get, one->key, one->offset, one->len);
		if (!rc && one->len && !one->buf)
			rc = rpwi_fail(
				RPW_ERR_INVALID, "transfer %zu of the batch has no buffer", i);
		x[i] = (struct xfer){.local = one->buf,
			.offset = one->offset,
			.len = one->len,
			.key = one->key,
			.is_put = !one->is_get};
		total += one->len;
	}
	if (rc) {
		free(x);
		req_drop(r);
		return rc;
	}
	r->xfer = x;
	r->xfers = (unsigned)n;
	/* rma_access_check has refused a key that is NULL.
	 * NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
	r->rma.to_gpu = n && x->key->device;
	r->done.length = total;
	return ep_post(ep, r, req);
}

void rpw_context_on_notify(rpw_context *c, rpw_notify_fn fn, void *arg)
{
	if (!c)
		return;
	c->notify_fn = fn;
	c->notify_arg = arg;
}
