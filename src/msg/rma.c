/* rma.c - transfers to and from the peer's memory: puts, gets, batches, what an RTS offers; atomics, flush, fence, notifications.
 *
 * A transfer goes in pieces, several under way, as the path takes them. On a path that may break a put is complete only when the transport has flushed it (it "settles"), since until then
 * it may have to be repeated from the program's buffer; and atomics go as counted frames, which happen once, rather than as the transport's, of which nobody could tell whether they did. */
#include "msg/msg.h"
#include "msg/stage.h"

#include "base/copy.h"

#include <errno.h>
#include <stdlib.h>

/* What a transport's `done` is about: low bits of the cookie. */
enum { COOKIE_PIECE = 0, COOKIE_SETTLE = 1, COOKIE_FLUSH = 2, COOKIE_BITS = 3 };
static void *cookie(void *p, unsigned what) { return (void *)((uintptr_t)p | what); }

enum { ATOMICS_MAX = 4096 }; /* as frames, under way: well below what a peer may owe in answers */

/* A receive may be posted for any endpoint: then it is that of what it fetches. */
static rpw_endpoint *endpoint_of(const rpw_request *r) { return r->rts ? r->done.from : r->ep; }

/* The transport has no room now: -EAGAIN of the contract, and -ENOBUFS of its table of operations. */
static bool later(int rc) { return rc == -EAGAIN || rc == -ENOBUFS; }

/* ---- pieces ---- */

void rma_transfers_done(rpw_request *r)
{
	rpw_endpoint *ep = endpoint_of(r);
	rpwi_list_del(&r->link);
	r->where = AT_NONE;
	bool has_put = false;
	for (unsigned i = 0; i < r->xfers; i++)
		has_put |= r->xfer[i].is_put;
	if (RPWI_UNLIKELY(r->direct && !has_put))
		r->worst = direct_landed(r, r->worst);
	if (r->rts) {
		rndv_fetched(r);
		return;
	}
	if (landing_put(r) && r->worst)
		landing_put_over(r, r->worst);
	else if (r->worst || !has_put || (!r->notify && !ep->link.breakable && !landing_put(r)))
		req_complete(r, r->worst);
	else {
		r->where = AT_SETTLE;
		rpwi_list_add_tail(&ep->settling, &r->link);
		rma_settle(ep);
	}
	if (!rpwi_list_empty(&ep->link.queue))
		msg_todo(ep, TODO_SEND); /* a fence may wait for it */
}

static int piece_go(rpw_endpoint *ep, rpw_request *r, const struct xfer *x, size_t at, size_t n)
{
	const struct tran_desc *d = x->desc;
	if (x->key) {
		if (!x->key->has[ep->tran]) {
			rpwi_fail(RPW_ERR_NOT_SUPPORTED, "the remote key does not describe its memory for %s: its owner packed it without that transport",
				ep->link.ops->name);
			return -EOPNOTSUPP;
		}
		d = &x->key->desc[ep->tran];
	}
	ep->rma_dirty |= x->is_put;
	struct tran_ep *te = ep->link.te;
	te->local = x->mem;
	int rc = ep->link.ops->rma(te, x->is_put, d, x->offset + at, x->local + at, n, cookie(r, COOKIE_PIECE));
	te->local = NULL;
	return rc;
}

void rma_go(rpw_request *r)
{
	rpw_endpoint *ep = endpoint_of(r);
	if (r->issuing || r->parked || ep->state != EP_UP || (r->rts && r->rts->stale))
		return;
	if (RPWI_UNLIKELY(r->gpu || direct_lost(r)) && !direct_go(r, ep))
		return;
	if (r->rts && landing_invite(r))
		return;
	r->issuing = true;
	while (r->at_xfer < r->xfers && r->under_way < PIECES_UNDER_WAY && !r->worst) {
		const struct xfer *x = &r->xfer[r->at_xfer];
		size_t at = r->at_byte, n = RPWI_MIN(x->len - at, (size_t)PIECE_BYTES);
		if (RPWI_UNLIKELY(r->c->polled) && !x->is_put && at + n < x->len)
			n = rpwi_whole_lines(x->local + at, n); /* the next one may come sooner */
		bool last = at + n == x->len;
		r->at_xfer += last;
		r->at_byte = last ? 0 : at + n;
		r->under_way++;
		int rc = n ? piece_go(ep, r, x, at, n) : 0;
		if (!n)
			r->under_way--;
		if (!rc)
			continue;
		r->under_way--;
		r->at_xfer -= last;
		r->at_byte = at;
		/* Later; or on the next path, for which the loss of this one makes everything begin anew. */
		bool lost = ep->link.breakable && msg_status_of_errno(rc) == RPW_ERR_PEER_GONE;
		if (later(rc) || lost) {
			msg_todo(ep, lost ? TODO_PATH : TODO_SEND);
			break;
		}
		r->worst = msg_status_of_errno(rc);
	}
	r->issuing = false;
	if (!r->under_way && (r->worst || r->at_xfer == r->xfers))
		rma_transfers_done(r);
}

/* The path is gone: from the beginning again, on the next one. Puts and gets may be repeated. */
void rma_restart(rpw_request *r)
{
	rpw_endpoint *ep = endpoint_of(r);
	if (r->where == AT_SETTLE) {
		rpwi_list_del(&r->link);
		r->where = AT_FETCH;
		rpwi_list_add_tail(&ep->fetching, &r->link);
	}
	if (r->where == AT_FETCH) {
		r->at_xfer = r->under_way = 0;
		r->at_byte = 0;
		r->worst = 0;
		if (r->rts)
			r->rts->stale = true;
	}
	if (r->kind == REQ_FLUSH || r->kind == REQ_FENCE) {
		/* A FLUSH frame that is on its way is in the log, and its answer will come; the transport's flush is asked for again. */
		r->settled = r->settle_sent = false;
		ep->rma_dirty = true;
	}
}

/* ---- puts that wait for the transport's flush ---- */

void rma_settle(rpw_endpoint *ep)
{
	if (ep->settle_under_way || rpwi_list_empty(&ep->settling) || ep->state != EP_UP)
		return;
	unsigned n = 0;
	for (struct rpwi_list *l = ep->settling.next; l != &ep->settling; l = l->next)
		n++;
	ep->settle_under_way = n;
	int rc = ep->link.ops->flush(ep->link.te, cookie(ep, COOKIE_SETTLE));
	if (!rc)
		return;
	ep->settle_under_way = 0;
	msg_todo(ep, later(rc) ? TODO_SEND : TODO_PATH);
}

static void settled(rpw_endpoint *ep, int status)
{
	for (unsigned n = ep->settle_under_way; n && !rpwi_list_empty(&ep->settling); n--) {
		rpw_request *r = RPWI_CONTAINER_OF(ep->settling.next, rpw_request, link);
		rpwi_list_del(&r->link);
		r->where = AT_NONE;
		if (r->notify && !status) {
			uint64_t len = r->len;
			link_reply(&ep->link, FRAME_NOTIFY, 0, r->operand, &len, sizeof(len));
		}
		if (landing_put(r))
			landing_put_over(r, status);
		else
			req_complete(r, status);
	}
	ep->settle_under_way = 0;
	if (!rpwi_list_empty(&ep->settling) || !rpwi_list_empty(&ep->link.queue))
		msg_todo(ep, TODO_SEND);
}

void rma_up_done(void *user, void *what, int status)
{
	rpw_endpoint *ep = user;
	void *p = (void *)((uintptr_t)what & ~(uintptr_t)COOKIE_BITS);
	unsigned bits = (uintptr_t)what & COOKIE_BITS;
	if (bits == COOKIE_SETTLE) {
		settled(ep, status);
		return;
	}
	rpw_request *r = p;
	if (bits == COOKIE_FLUSH) {
		r->settled = true;
		if (status)
			r->worst = status;
		msg_todo(ep, TODO_SEND);
		return;
	}
	r->under_way--;
	if (status && !r->worst) {
		r->worst = status;
		req_note_why(r, status);
	}
	if (r->kind == REQ_ATOMIC)
		req_complete(r, status);
	else if (!r->issuing)
		rma_go(r);
}

/* ---- begin what was posted ---- */

void rma_staged(rpw_request *r)
{
	if (r->notify && !r->worst) {
		uint64_t len = r->len;
		link_reply(&r->ep->link, FRAME_NOTIFY, 0, r->operand, &len, sizeof(len));
	}
	req_complete(r, r->worst);
	if (!rpwi_list_empty(&r->ep->link.queue))
		msg_todo(r->ep, TODO_SEND); /* a fence may wait for it */
}

int rma_begin(rpw_request *r)
{
	r->worst = 0;
	if (RPWI_UNLIKELY(stage_wants(r)))
		return stage_rma_begin(r);
	r->where = AT_FETCH;
	rpwi_list_add_tail(&r->ep->fetching, &r->link);
	rma_go(r);
	return 0;
}

static int atomic_as_frame(rpw_request *r)
{
	rpw_endpoint *ep = r->ep;
	if (ep->atomics >= ATOMICS_MAX)
		return -EAGAIN;
	if (!r->number && !(r->number = slots_add(&r->c->numbers, r))) {
		req_complete(r, RPW_ERR_NO_MEMORY);
		return 0;
	}
	struct atomic_body b = {
		.region = r->key->region, .secret = r->key->secret, .offset = r->one.offset, .operand = r->operand, .compare = r->compare, .op = r->op};
	struct iovec iov = {&b, sizeof(b)};
	int rc = link_send(&ep->link, &(struct frame){.type = FRAME_ATOMIC, .tag = r->number, .iov = &iov, .iovcnt = 1, .len = sizeof(b)});
	if (rc)
		return -EAGAIN;
	ep->atomics++;
	r->where = AT_PEER;
	return 0;
}

int rma_atomic_begin(rpw_request *r)
{
	rpw_endpoint *ep = r->ep;
	if (ep->link.breakable)
		return atomic_as_frame(r);
	if (!r->key->has[ep->tran]) {
		req_complete(r, rpwi_fail(RPW_ERR_NOT_SUPPORTED, "the remote key does not describe its memory for %s", ep->link.ops->name));
		return 0;
	}
	r->where = AT_PEER;
	r->under_way = 1;
	ep->rma_dirty = true;
	int rc = ep->link.ops->atomic(ep->link.te, r->op, &r->key->desc[ep->tran], r->one.offset, r->operand, r->compare, r->before, cookie(r, COOKIE_PIECE));
	if (later(rc)) {
		r->where = AT_NONE;
		r->under_way = 0;
		msg_todo(ep, TODO_SEND);
		return -EAGAIN;
	}
	if (rc)
		req_complete(r, msg_status_of_errno(rc));
	return 0;
}

void rma_atomic_arrived(rpw_endpoint *ep, uint64_t number, const void *body, size_t len)
{
	struct atomic_body b;
	if (len != sizeof(b)) {
		ep_breach(ep, "an atomic of %zu bytes", len);
		return;
	}
	memcpy(&b, body, sizeof(b));
	struct rpw_memory *m = slots_get(&ep->c->regions, b.region);
	uint64_t *at = m && !m->gpu && m->secret == b.secret && b.offset <= m->len && m->len - b.offset >= 8 ? (uint64_t *)((char *)m->addr + b.offset) : NULL,
		 before = 0;
	int status = RPW_ERR_ACCESS;
	if (at && !((uintptr_t)at & 7) && (m->access & RPW_REMOTE_ATOMIC) && b.op <= TRAN_COMPARE_SWAP) {
		status = RPW_OK;
		if (b.op == TRAN_FETCH_ADD)
			before = __atomic_fetch_add(at, b.operand, __ATOMIC_SEQ_CST);
		else {
			before = b.compare;
			__atomic_compare_exchange_n(at, &before, b.operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		}
	} else
		rpwi_debug("%s: an atomic outside of what is registered for it", ep->peer);
	link_reply(&ep->link, FRAME_ATOMIC_DONE, (unsigned)-status, number, &before, sizeof(before));
}

void rma_atomic_done(rpw_endpoint *ep, uint64_t number, unsigned flags, const void *body, size_t len)
{
	rpw_request *r = slots_get(&ep->c->numbers, number);
	if (!r || r->ep != ep || r->kind != REQ_ATOMIC || r->where != AT_PEER || len != 8) {
		rpwi_debug("%s: an answer to no atomic", ep->peer);
		return;
	}
	ep->atomics--;
	if (!flags && r->before)
		memcpy(r->before, body, 8);
	if (flags == (unsigned)-RPW_ERR_ACCESS)
		rpwi_fail(RPW_ERR_ACCESS,
			"%s refused an atomic on 8 bytes at offset %llu: it has no such memory registered (any more), or not for this; use the key that it "
			"packed",
			ep->peer, (unsigned long long)r->one.offset);
	req_complete(r, flags > (unsigned)-RPW_ERR_SYSTEM ? RPW_ERR_PROTOCOL : -(int)flags);
	if (!rpwi_list_empty(&ep->link.queue))
		msg_todo(ep, TODO_SEND);
}

/* ---- flush and fence ---- */

int rma_flush_begin(rpw_request *r)
{
	r->where = AT_PEER;
	r->settled = r->settle_sent = r->answered = r->flush_sent = false;
	r->worst = 0;
	rma_flush_look(r->ep);
	return 0;
}

/* The transport's own flush, unless nothing was put since the last. */
static bool transport_flushed(rpw_endpoint *ep, rpw_request *r)
{
	if (!r->settle_sent && !ep->rma_dirty)
		return true;
	if (!r->settle_sent) {
		r->settle_sent = true;
		ep->rma_dirty = false;
		int rc = ep->link.ops->flush(ep->link.te, cookie(r, COOKIE_FLUSH));
		if (rc) {
			r->settle_sent = false;
			ep->rma_dirty = true;
			msg_todo(ep, later(rc) ? TODO_SEND : TODO_PATH);
		}
	}
	return r->settled;
}

/* The oldest operation is a flush: everything before it is done here. Now the transport, then the peer's word. */
void rma_flush_look(rpw_endpoint *ep)
{
	while (ep->state == EP_UP && !rpwi_list_empty(&ep->active_list)) {
		rpw_request *r = RPWI_CONTAINER_OF(ep->active_list.next, rpw_request, active);
		if (r->kind != REQ_FLUSH || r->where != AT_PEER || !transport_flushed(ep, r))
			return;
		if (!r->flush_sent) {
			if (!r->number && !(r->number = slots_add(&ep->c->numbers, r))) {
				req_complete(r, RPW_ERR_NO_MEMORY);
				continue;
			}
			r->order = ep->link.tx_count;
			if (!rpwi_list_empty(&ep->link.replies) || link_send(&ep->link, &(struct frame){.type = FRAME_FLUSH, .tag = r->number}))
				return;
			r->flush_sent = true;
		}
		if (!r->answered)
			return;
		req_complete(r, r->worst);
	}
}

void rma_flush_bye(rpw_endpoint *ep, uint64_t received)
{
	while (!rpwi_list_empty(&ep->active_list)) {
		rpw_request *r = RPWI_CONTAINER_OF(ep->active_list.next, rpw_request, active);
		bool done = r->flush_sent ? received >= r->order : received == ep->link.tx_count && !ep->rma_dirty;
		if (r->kind != REQ_FLUSH || !done)
			return;
		if (r->where == AT_QUEUE)
			rpwi_list_del(&r->link);
		req_complete(r, r->worst);
	}
	ep->all_taken = received == ep->link.tx_count && !ep->rma_dirty;
}

static bool transfers_of_ours(const rpw_endpoint *ep)
{
	for (const struct rpwi_list *n = ep->fetching.next; n != &ep->fetching; n = n->next)
		if (RPWI_CONTAINER_OF(n, rpw_request, link)->kind == REQ_RMA)
			return true;
	return !rpwi_list_empty(&ep->settling) || ep->atomics || stage_asks(ep);
}

/* Stays at the head of the queue until everything before it has taken effect. */
int rma_fence_begin(rpw_request *r)
{
	if (transfers_of_ours(r->ep) || !transport_flushed(r->ep, r))
		return -EAGAIN;
	req_complete(r, r->worst);
	return 0;
}

int rpw_flush(rpw_endpoint *ep, rpw_request **req)
{
	if (!ep)
		return msg_wrong("rpw_flush", "the endpoint is NULL");
	if (RPWI_UNLIKELY(!msg_is_ours(ep->c)))
		return msg_inherited(ep->c);
	if (ep->state == EP_FAILED && ep->all_taken) {
		if (req)
			*req = NULL;
		return RPW_OK;
	}
	rpw_request *r = req_new(ep->c, ep, REQ_FLUSH, req != NULL);
	return r ? ep_post(ep, r, req) : RPW_ERR_NO_MEMORY;
}

int rpw_fence(rpw_endpoint *ep)
{
	if (!ep)
		return msg_wrong("rpw_fence", "the endpoint is NULL");
	if (RPWI_UNLIKELY(!msg_is_ours(ep->c)))
		return msg_inherited(ep->c);
	if (ep->state == EP_UP && !ep->rma_dirty && rpwi_list_empty(&ep->link.queue) && !transfers_of_ours(ep))
		return RPW_OK;
	rpw_request *r = req_new(ep->c, ep, REQ_FENCE, false);
	if (!r)
		return RPW_ERR_NO_MEMORY;
	r->settled = r->settle_sent = false;
	r->worst = 0;
	int rc = ep_post(ep, r, NULL);
	return rc < 0 ? rc : RPW_OK;
}

/* ---- the calls ---- */

static int access_check(rpw_endpoint *ep, const rpw_rkey *key, uint64_t offset, size_t len, unsigned need, const char *what)
{
	if (!ep || !key)
		return msg_wrong(what, ep ? "the remote key is NULL" : "the endpoint is NULL");
	if (key->ep != ep)
		return rpwi_fail(RPW_ERR_INVALID, "%s: the remote key was unpacked for another endpoint; unpack it for this one", what);
	if (offset > key->len || len > key->len - offset)
		return rpwi_fail(RPW_ERR_ACCESS, "%s of %zu bytes at offset %llu: %s registered %llu bytes; stay within them", what, len,
			(unsigned long long)offset, ep->peer, (unsigned long long)key->len);
	if ((key->access & need) != need)
		return rpwi_fail(RPW_ERR_ACCESS, "%s: %s registered this memory without RPW_REMOTE_%s: it has to be registered with that right", what, ep->peer,
			need == RPW_REMOTE_WRITE  ? "WRITE"
			: need == RPW_REMOTE_READ ? "READ"
						  : "ATOMIC");
	return 0;
}

static int one_transfer(rpw_endpoint *ep, bool is_put, void *buf, size_t len, const rpw_rkey *key, uint64_t offset, const uint64_t *notify, rpw_request **req)
{
	int rc = access_check(ep, key, offset, len, is_put ? RPW_REMOTE_WRITE : RPW_REMOTE_READ, is_put ? "put" : "get");
	if (rc)
		return rc;
	if (len && !buf)
		return rpwi_fail(RPW_ERR_INVALID, "%s of %zu bytes without a buffer", is_put ? "put" : "get", len);
	rpw_request *r = req_new(ep->c, ep, REQ_RMA, req != NULL);
	if (!r)
		return RPW_ERR_NO_MEMORY;
	r->one = (struct xfer){.local = buf, .offset = offset, .len = len, .key = key, .is_put = is_put};
	r->gpu = stage_gpu_of(ep->c, buf, len);
	r->remote_gpu = key->device;
	r->xfer = &r->one;
	r->xfers = 1;
	r->len = r->done.length = len;
	r->notify = notify != NULL;
	if (notify)
		r->operand = *notify;
	return ep_post(ep, r, req);
}

int rpw_put(rpw_endpoint *ep, const void *buf, size_t len, const rpw_rkey *key, uint64_t offset, rpw_request **req)
{
	return one_transfer(ep, true, (void *)buf, len, key, offset, NULL, req);
}

int rpw_get(rpw_endpoint *ep, void *buf, size_t len, const rpw_rkey *key, uint64_t offset, rpw_request **req)
{
	return one_transfer(ep, false, buf, len, key, offset, NULL, req);
}

int rpw_put_notify(rpw_endpoint *ep, const void *buf, size_t len, const rpw_rkey *key, uint64_t offset, uint64_t data, rpw_request **req)
{
	return one_transfer(ep, true, (void *)buf, len, key, offset, &data, req);
}

int rpw_transfer_batch(rpw_endpoint *ep, const rpw_transfer *t, size_t n, rpw_request **req)
{
	if (!ep || (n && !t) || n > UINT32_MAX / 2)
		return msg_wrong("rpw_transfer_batch", !ep       ? "the endpoint is NULL"
						       : n && !t ? "the array of transfers is NULL"
								 : "more transfers than a batch takes");
	struct xfer *x = malloc((n ? n : 1) * sizeof(*x));
	rpw_request *r = x ? req_new(ep->c, ep, REQ_RMA, req != NULL) : NULL;
	if (!r) {
		free(x);
		return rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for a batch of %zu transfers", n);
	}
	int rc = 0;
	size_t total = 0;
	for (size_t i = 0; !rc && i < n; total += t[i].len, i++) {
		rc = access_check(ep, t[i].key, t[i].offset, t[i].len, t[i].is_get ? RPW_REMOTE_READ : RPW_REMOTE_WRITE, t[i].is_get ? "get" : "put");
		if (!rc && t[i].len && !t[i].buf)
			rc = rpwi_fail(RPW_ERR_INVALID, "transfer %zu of the batch has no buffer", i);
		x[i] = (struct xfer){.local = t[i].buf, .offset = t[i].offset, .len = t[i].len, .key = t[i].key, .is_put = !t[i].is_get};
	}
	if (rc) {
		free(x);
		req_drop(r);
		return rc;
	}
	r->xfer = x;
	r->xfers = (unsigned)n;
	r->remote_gpu = n && x->key->device; /* NOLINT(clang-analyzer-core.NullDereference): access_check has refused a key that is NULL */
	r->done.length = total;
	return ep_post(ep, r, req);
}

static int atomic(
	rpw_endpoint *ep, enum tran_atomic op, uint64_t operand, uint64_t compare, const rpw_rkey *key, uint64_t offset, uint64_t *before, rpw_request **req)
{
	int rc = access_check(ep, key, offset, 8, RPW_REMOTE_ATOMIC, "atomic");
	if (rc)
		return rc;
	if (key->device)
		return rpwi_fail(RPW_ERR_NOT_SUPPORTED, "atomic: the peer's memory is in a GPU, where neither transports nor its CPU can do atomics");
	if (offset & 7)
		return rpwi_fail(RPW_ERR_INVALID, "atomic at offset %llu: it has to be a multiple of 8", (unsigned long long)offset);
	if (!before)
		return rpwi_fail(RPW_ERR_INVALID, "atomic: `before` is where the value that was there goes; it must not be NULL");
	rpw_request *r = req_new(ep->c, ep, REQ_ATOMIC, req != NULL);
	if (!r)
		return RPW_ERR_NO_MEMORY;
	r->op = (uint8_t)op;
	r->operand = operand;
	r->compare = compare;
	r->key = key;
	r->one.offset = offset;
	r->before = before;
	r->done.length = 8;
	return ep_post(ep, r, req);
}

int rpw_fetch_add(rpw_endpoint *ep, uint64_t add, const rpw_rkey *key, uint64_t offset, uint64_t *before, rpw_request **req)
{
	return atomic(ep, TRAN_FETCH_ADD, add, 0, key, offset, before, req);
}

int rpw_compare_swap(rpw_endpoint *ep, uint64_t compare, uint64_t swap, const rpw_rkey *key, uint64_t offset, uint64_t *before, rpw_request **req)
{
	return atomic(ep, TRAN_COMPARE_SWAP, swap, compare, key, offset, before, req);
}

void rpw_on_notify(rpw_context *c, rpw_notify_fn fn, void *arg)
{
	if (!c)
		return;
	c->notify_fn = fn;
	c->notify_arg = arg;
}
