/* SPDX-License-Identifier: BSD-3-Clause */
/* tag.c - tagged messages: which receive gets which message. MPI's rule: of the receives that
 * match, the one posted first; of the messages that match, the one that came first; and messages of
 * one endpoint come in the order sent.
 *
 * Posted receives are in one table under (tag & mask, class of their mask, endpoint or any): a
 * message looks once into each class that has receives, usually one. Masks beyond CLASSES_MAX - 1
 * different ones share the last class, which is searched in order. Messages without a receive:
 * unexpected.c. */
#include "msg/checked.h"
#include "msg/endpoint.h"
#include "msg/loan.h"
#include "msg/messages.h"
#include "msg/objects.h"
#include "msg/pipeline.h"
#include "msg/request.h"
#include "msg/rndv.h"
#include "msg/trace.h"
#include "msg/unexpected.h"

#include "base/copy.h"

#include <stdlib.h>

enum { OTHER = CLASSES_MAX - 1, SEND_IOV_MAX = 8, KEPT_SMALL = 32 };

/* ---- posted receives ---- */

static uint64_t source(const rpw_endpoint *ep, unsigned class)
{
	return ep ? ep->id + class * 2 : class * 2 + 1;
}

static unsigned class_of(rpw_context *c, uint64_t mask)
{
	unsigned spare = 0;
	for (unsigned i = 0; i < RPWI_MIN(c->classes, (unsigned)OTHER); i++) {
		if (c->class[i].mask == mask)
			return i;
		if (i && !c->class[i].of_any && !c->class[i].of_endpoint)
			spare = i;
	}
	if (!spare && c->classes < OTHER)
		spare = c->classes++;
	if (!spare) {
		c->classes = CLASSES_MAX;
		return OTHER;
	}
	c->class[spare].mask = mask;
	return spare;
}

static inline void post(rpw_request *r)
{
	rpw_context *c = r->c;
	r->class = (uint8_t)(RPWI_LIKELY(r->mask == UINT64_MAX) ? 0 : class_of(c, r->mask));
	r->order = c->next_order++;
	r->where = AT_POSTED;
	match_add(&c->posted, &r->match, r->class == OTHER ? 0 : r->tag & r->mask,
		source(r->ep, r->class));
	if (r->ep) {
		c->class[r->class].of_endpoint++;
		rpwi_list_add_tail(&r->ep->receives, &r->active);
	} else {
		c->class[r->class].of_any++;
		rpwi_list_add_tail(&c->any_receives, &r->active);
	}
}

static inline void taken(rpw_request *r)
{
	struct recv_class *k = &r->c->class[r->class];
	rpwi_list_del(&r->active);
	match_del(&r->c->posted, &r->match);
	if (r->ep)
		k->of_endpoint--;
	else
		k->of_any--;
}

void tag_unpost(rpw_request *r)
{
	taken(r);
	r->where = AT_NONE;
}

static rpw_request *older(rpw_request *a, struct match_node *n)
{
	rpw_request *b = n ? RPWI_CONTAINER_OF(n, rpw_request, match) : NULL;
	return !a || (b && b->order < a->order) ? b : a;
}

static struct match_node *first_of_others(rpw_context *c, rpw_endpoint *ep, uint64_t tag)
{
	struct match_node *first = match_first(&c->posted, 0, source(ep, OTHER)), *n = first;
	if (!n)
		return NULL;
	do {
		const rpw_request *r = RPWI_CONTAINER_OF(n, rpw_request, match);
		if (!((r->tag ^ tag) & r->mask))
			return n;
		n = n->next;
	} while (n != first);
	return NULL;
}

static rpw_request *oldest_for(rpw_endpoint *ep, uint64_t tag)
{
	rpw_context *c = ep->c;
	rpw_request *best = NULL;
	for (unsigned i = 0; i < c->classes; i++) {
		const struct recv_class *k = &c->class[i];
		if (k->of_endpoint)
			best = older(best,
				i == OTHER ? first_of_others(c, ep, tag)
					   : match_first(&c->posted, tag & k->mask, source(ep, i)));
		if (k->of_any)
			best = older(best, i == OTHER ? first_of_others(c, NULL, tag)
						      : match_first(&c->posted, tag & k->mask,
								source(NULL, i)));
	}
	return best;
}

static inline rpw_request *first_for(rpw_endpoint *ep, uint64_t tag)
{
	rpw_context *c = ep->c;
	rpw_request *best = NULL;
	if (RPWI_LIKELY(c->classes == 1 && !c->class[0].of_any)) { /* no masks, no wildcards */
		if (c->class[0].of_endpoint)
			best = older(NULL, match_first(&c->posted, tag, source(ep, 0)));
	} else
		best = oldest_for(ep, tag);
	return best;
}

/* The receive that gets this message, taken out of the table; or NULL. */
static inline rpw_request *posted_for(rpw_endpoint *ep, uint64_t tag)
{
	rpw_request *r = first_for(ep, tag);
	if (r)
		taken(r);
	return r;
}

void *tag_place(rpw_endpoint *ep, uint64_t tag, size_t len)
{
	rpw_request *r = first_for(ep, tag);
	if (!r) /* acknowledgements for ours would have to wait, too */
		return rpwi_list_empty(&ep->active_list) ? TRAN_PLACE_LATER : NULL;
	if (r->kind == REQ_RECV_VIEW && !view_room(r, len))
		return NULL;
	if (r->kind == REQ_RECV && (!r->plain || len > r->len))
		return NULL;
	taken(r);
	r->where = AT_PLACE;
	r->done.from = ep;
	ep->placing = r;
	return r->buf;
}

/* The message for which a receive was taken when it began: here it is, be it over another path. */
static rpw_request *placed_for(rpw_endpoint *ep, uint64_t tag, size_t len)
{
	rpw_request *r = ep->placing;
	if (((tag ^ r->tag) & r->mask) || (len > r->len)) {
		ep_breach(ep, "it sends another message than the one that it had begun");
		return NULL;
	}
	ep->placing = NULL;
	return r;
}

/* ---- delivery ---- */

/* One that does not lie in one piece of the host's memory. */
static int put_into(rpw_request *r, const void *body, size_t n)
{
	if (r->gpu)
		return n ? gpu_copy(r->gpu, GPU_IN, r->buf, (void *)body, n) : 0;
	struct iovec one;
	iov_scatter(req_iov(r, &one), r->iovcnt, body, n, r->c->polled);
	return 0;
}

/* Short ones without a call: of up to 16 bytes both ends, which may be the same. */
static inline void copy_body(char *to, const char *body, size_t n)
{
	uint64_t first, last;
	if (n - 8 > 8) {
		rpwi_copy(to, body, n);
		return;
	}
	memcpy(&first, body, 8);
	memcpy(&last, body + n - 8, 8);
	memcpy(to, &first, 8);
	memcpy(to + n - 8, &last, 8);
}

/* A receive is complete, and nothing of it was used that only long operations need. */
static inline void done_plain(rpw_request *r)
{
	r->where = AT_NONE;
	r->complete = true;
	r->c->stat.requests--;
}

/* ---- views ---- */

static void view_done(rpw_request *r, rpw_endpoint *ep, uint64_t tag, size_t len, bool made)
{
	int status = made ? RPW_OK : RPW_ERR_NO_MEMORY;
	trace_received(ep->c, ep, tag, len);
	r->done = (rpw_completion){.status = status, .length = len, .tag = tag, .from = ep};
	if (RPWI_UNLIKELY(!made || r->fn || !r->held || r->view || rpwi_check_on)) {
		req_complete(r, status);
		return;
	}
	r->plain = true;
	done_plain(r);
}

void view_fetched(rpw_request *r, int status)
{
	if (!status && !view_own(r, r->done.from, r->done.length))
		status = RPW_ERR_NO_MEMORY;
	req_complete(r, status);
}

/* A path that breaks leaves the room that was made for a message, and the next one brings this as a
 * frame. */
static void deliver_view(
	rpw_request *r, rpw_endpoint *ep, uint64_t tag, const void *body, size_t len)
{
	bool made = r->bounce || view_room(r, len);
	if (made && body && body != r->buf)
		rpwi_copy(r->buf, body, len);
	view_done(r, ep, tag, len, made && view_own(r, ep, len));
}

/* ---- copies ---- */

static inline void deliver(
	rpw_request *r, rpw_endpoint *ep, uint64_t tag, const void *body, size_t len)
{
	rpw_context *c = ep->c;
	if (RPWI_UNLIKELY(r->kind == REQ_RECV_VIEW)) {
		deliver_view(r, ep, tag, body, len);
		return;
	}
	size_t n = RPWI_MIN(len, r->len);
	int status = len <= r->len ? RPW_OK : RPW_ERR_TRUNCATED;
	if (RPWI_UNLIKELY(len && (!body || body == r->buf))) { /* it was put there as it came */
		if (!body)
			status = RPW_ERR_INVALID; /* where nothing is mapped */
	} else if (RPWI_LIKELY(r->plain)) {
		if (RPWI_UNLIKELY(c->polled))
			rpwi_copy_up(r->buf, body, n);
		else if (n)
			copy_body(r->buf, body, n);
	} else
		status = req_noted(r, put_into(r, body, n)) ?: status;
	trace_received(c, ep, tag, len);
	r->done = (rpw_completion){.status = status, .length = len, .tag = tag, .from = ep};
	if (RPWI_UNLIKELY(!r->plain || r->fn || !r->held)) {
		req_complete(r, status);
		return;
	}
	done_plain(r);
}

/* A loan, where it lies; or its bytes, and then it is given back. */
static void deliver_loan(rpw_request *r, rpw_endpoint *ep, uint64_t tag, const struct loan_come *m)
{
	if (RPWI_LIKELY(r->kind == REQ_RECV_VIEW)) {
		bool made = view_of_loan(ep, (rpw_view *)r->buf, m);
		if (RPWI_UNLIKELY(!made))
			loan_come_give_back(m);
		view_done(r, ep, tag, m->len, made);
		return;
	}
	view_wanted(ep, m->len, false);
	deliver(r, ep, tag, loan_come_data(m), m->len);
	loan_come_give_back(m);
}

static void fetch(rpw_request *r, rpw_endpoint *ep, uint64_t tag, struct rts *rts)
{
	r->done.tag = tag;
	trace_received(ep->c, ep, tag, rts->len);
	if (RPWI_UNLIKELY(r->kind == REQ_RECV_VIEW) && !view_room(r, rts->len)) {
		link_reply(&ep->link, FRAME_DONE, done_word(DONE_FETCHED, RPW_ERR_NO_MEMORY),
			rts->number, NULL, 0);
		free(rts);
		r->done.from = ep;
		req_complete(r, RPW_ERR_NO_MEMORY);
		return;
	}
	rndv_fetch(r, ep, rts, r->len);
}

/* A program that keeps a few receives posted gets the chance to post them again, before more comes
 * that would have to be kept for it: a kept message is copied twice, which makes the receiver
 * slower than its sender, so that it never catches up. So a round of progress ends when the last
 * posted receive has been filled, or with a message that nobody waits for. A short one costs little
 * either way; thousands of them do not fit into a core's cache, so each KEPT_SMALL-th ends it. */
static inline void round_ends(rpw_endpoint *ep, size_t len)
{
	if (len > EAGER_SMALL || !(ep->c->stat.unexpected % KEPT_SMALL))
		ep->c->kept_one = true;
}

void tag_arrived(rpw_endpoint *ep, uint64_t tag, const void *body, size_t len)
{
	bool begun = RPWI_UNLIKELY(ep->placing != NULL);
	rpw_request *r = begun ? placed_for(ep, tag, len) : posted_for(ep, tag);
	if (RPWI_UNLIKELY(begun && !r))
		return;
	if (RPWI_LIKELY(r != NULL)) {
		deliver(r, ep, tag, body, len);
		credit_return(&ep->link, credit_units(len));
		if (len > EAGER_SMALL && rpwi_list_empty(&ep->receives) &&
			rpwi_list_empty(&ep->c->any_receives))
			ep->c->kept_one = true;
		return;
	}
	struct unexpected *u = unexpected_new(ep, len);
	if (!u) {
		ep_doom(ep, RPW_ERR_NO_MEMORY,
			"no memory for a message that came before its receive");
		return;
	}
	if (len)
		rpwi_copy(u->body, body, len);
	unexpected_add(ep, u, tag);
	round_ends(ep, len);
}

/* A loan that nobody waits for yet stays where it is. */
void tag_loaned(rpw_endpoint *ep, uint64_t tag, const void *body, size_t len)
{
	const uint32_t units = credit_units(sizeof(struct loan_body));
	struct loan_come m;
	if (!credit_charge(&ep->link, units))
		return;
	int rc = loan_come_make(ep, body, len, &m);
	if (RPWI_UNLIKELY(rc)) {
		if (rc == RPW_ERR_PROTOCOL)
			ep_breach(ep, "%s", rpwi_last_error()->text);
		else
			ep_doom_by(ep, rpwi_last_error());
		return;
	}
	rpw_request *r = posted_for(ep, tag);
	if (RPWI_LIKELY(r != NULL)) {
		deliver_loan(r, ep, tag, &m);
		credit_return(&ep->link, units);
		return;
	}
	struct unexpected *u = unexpected_new(ep, 0);
	if (!u) {
		loan_come_give_back(&m);
		ep_doom(ep, RPW_ERR_NO_MEMORY, "no memory for a loan that came before its receive");
		return;
	}
	u->loaned = true;
	u->units = units;
	memcpy(u->body, &m, sizeof(m));
	unexpected_add(ep, u, tag);
}

void tag_offered(rpw_endpoint *ep, uint64_t tag, struct rts *rts, uint32_t units)
{
	rpw_request *r = posted_for(ep, tag);
	if (r) {
		fetch(r, ep, tag, rts);
		credit_return(&ep->link, units);
		return;
	}
	struct unexpected *u = unexpected_offered(ep, rts, units);
	if (u)
		unexpected_add(ep, u, tag);
}

/* ---- receive ---- */

static int none_left(const rpw_endpoint *ep)
{
	return rpwi_fail(ep->error.status,
		"no message of that tag is left, and endpoint to %s has ended: %s",
		text_or(ep->peer, "?"), ep_end_text(ep));
}

/* It goes to the receive: as a view its memory is kept. */
static void unexpected_take(rpw_request *r, struct unexpected *u)
{
	struct loan_come m;
	rpw_endpoint *ep = u->ep;
	uint64_t tag = u->tag;
	if (u->loaned) {
		memcpy(&m, u->body, sizeof(m));
		u->loaned = false;
		unexpected_free(u, true);
		deliver_loan(r, ep, tag, &m);
	} else if (r->kind == REQ_RECV_VIEW) {
		size_t len = u->len;
		unexpected_keep(u);
		bool made = view_of_memory(ep, (rpw_view *)r->buf, u, u->body, len);
		if (!made)
			free(u);
		view_done(r, ep, tag, len, made);
	} else {
		deliver(r, ep, tag, u->body, u->len);
		unexpected_free(u, true);
	}
}

static inline __attribute__((always_inline)) int recv_with(rpw_request *r, rpw_request **req)
{
	rpw_context *c = r->c;
	r->held = true;
	struct unexpected *u = RPWI_UNLIKELY(c->unexpected_count)
				       ? unexpected_for(c, r->ep, r->tag, r->mask)
				       : NULL;
	if (u && u->rts) {
		struct rts *rts = u->rts;
		rpw_endpoint *from = u->ep;
		uint64_t tag = u->tag;
		u->rts = NULL;
		unexpected_free(u, true);
		fetch(r, from, tag, rts);
	} else if (u) {
		unexpected_take(r, u);
	} else if (r->ep && r->ep->state == EP_FAILED) {
		int status = none_left(r->ep);
		req_drop(r);
		return status;
	} else
		post(r);
	/* A receive always gives its request, when one is asked for: its completion says length,
	 * tag and sender. */
	if (!req)
		return req_return(r, NULL);
	if (RPWI_UNLIKELY(rpwi_check_on))
		checked_begins(r);
	*req = r;
	return RPW_IN_PROGRESS;
}

/* What is wrong with the context or the endpoint of a receive. */
const char *tag_whose(const rpw_context *c)
{
	return c ? "the endpoint is of another context" : "the context is NULL";
}

int rpw_recv(rpw_context *c, rpw_endpoint *ep, void *buf, size_t len, uint64_t tag, uint64_t mask,
	rpw_request **req)
{
	if (RPWI_UNLIKELY(!c || (ep && ep->c != c) || (!buf && len)))
		return msg_wrong("rpw_recv",
			!c || (ep && ep->c != c) ? tag_whose(c)
						 : "the buffer is NULL, and its length is not 0");
	if (RPWI_UNLIKELY(!msg_is_ours(c)))
		return msg_inherited(c);
	rpw_request *r = req_new_plain(c, ep, req != NULL);
	if (RPWI_UNLIKELY(!r))
		return RPW_ERR_NO_MEMORY;
	r->buf = buf;
	r->len = len;
	r->tag = tag;
	r->mask = mask;
	int local = pipeline_local(r);
	if (RPWI_UNLIKELY(local)) {
		req_drop(r);
		return local;
	}
	return recv_with(r, req);
}

int rpw_recv_iov(rpw_context *c, rpw_endpoint *ep, const struct iovec *iov, int iovcnt,
	uint64_t tag, uint64_t mask, rpw_request **req)
{
	if (!c || (ep && ep->c != c))
		return msg_wrong("rpw_recv_iov", tag_whose(c));
	if (RPWI_UNLIKELY(!msg_is_ours(c)))
		return msg_inherited(c);
	rpw_request *r = req_new(c, ep, REQ_RECV, req != NULL);
	if (!r)
		return RPW_ERR_NO_MEMORY;
	int rc = req_set_local(r, iov, iovcnt);
	if (!rc)
		rc = pipeline_local(r);
	if (rc) {
		req_drop(r);
		return rc;
	}
	r->tag = tag;
	r->mask = mask;
	return recv_with(r, req);
}

int rpw_recv_view(rpw_context *c, rpw_endpoint *ep, uint64_t tag, uint64_t mask, rpw_view *view,
	rpw_request **req)
{
	if (RPWI_UNLIKELY(!c || (ep && ep->c != c)))
		return msg_wrong("rpw_recv_view", tag_whose(c));
	if (RPWI_UNLIKELY(view_check(view, "rpw_recv_view")))
		return RPW_ERR_INVALID;
	if (RPWI_UNLIKELY(!msg_is_ours(c)))
		return msg_inherited(c);
	rpw_request *r = req_new(c, ep, REQ_RECV_VIEW, req != NULL);
	if (RPWI_UNLIKELY(!r))
		return RPW_ERR_NO_MEMORY;
	view->data = view->holder = NULL;
	r->buf = (char *)view;
	r->len = 0;
	r->tag = tag;
	r->mask = mask;
	return recv_with(r, req);
}

static size_t length_of(const struct unexpected *u)
{
	if (u->loaned)
		return ((const struct loan_come *)u->body)->len;
	return u->rts ? u->rts->len : u->len;
}

int rpw_probe(rpw_context *c, rpw_endpoint *ep, uint64_t tag, uint64_t mask, rpw_completion *what)
{
	if (!c || (ep && ep->c != c))
		return msg_wrong("rpw_probe", tag_whose(c));
	if (RPWI_UNLIKELY(!msg_is_ours(c)))
		return msg_inherited(c);
	if (what && req_completion_check(what, "rpw_probe"))
		return RPW_ERR_INVALID;
	struct unexpected *u = unexpected_for(c, ep, tag, mask);
	if (!u)
		return ep && ep->state == EP_FAILED ? none_left(ep) : RPW_IN_PROGRESS;
	if (what)
		completion_give(what, &(rpw_completion){.status = RPW_OK,
					      .length = length_of(u),
					      .tag = u->tag,
					      .from = u->ep});
	return RPW_OK;
}

/* ---- send ---- */

/* Nobody has said how long an eager message may be, and the path knows better now. */
static bool fetched_rather(const rpw_endpoint *ep, const rpw_request *r)
{
	return r->len > EAGER_SMALL && !ep->c->eager_option && ep->link.te && ep->link.ops->eager &&
	       !ep->link.ops->eager(ep->link.te, r->iovcnt > 1 ? NULL : r->buf, r->len);
}

/* Eager while there is credit; beyond EAGER_SMALL some of it is left over, so that an RTS can still
 * go. */
bool tag_eager(const rpw_request *r, uint32_t *units)
{
	rpw_endpoint *ep = r->ep;
	size_t len = r->len;
	*units = 0;
	if (len > ep->eager_max || fetched_rather(ep, r))
		return false;
	*units = credit_units(len);
	return credit_has(&ep->link, *units + (len > EAGER_SMALL ? WINDOW_LEAST : 0));
}

/* More than `most` requests of the endpoint are under way. */
static bool more_under_way(const rpw_endpoint *ep, unsigned most)
{
	const struct rpwi_list *n = ep->active_list.next;
	for (; n != &ep->active_list && most; most--)
		n = n->next;
	return n != &ep->active_list;
}

/* A long message as a frame, whose place the receiver knows when it begins to come. */
static bool placed(const rpw_request *r, uint32_t *units)
{
	rpw_endpoint *ep = r->ep;
	if (r->gpu || r->iovcnt > SEND_IOV_MAX || ep->c->eager_option || r->len <= ep->eager_max ||
		!ep->link.te || r->len > ep->link.te->limits.placed_max ||
		(!(ep->c->polled && pthread_equal(ep->c->mover, pthread_self())) &&
			more_under_way(ep, ep->link.te->limits.placed_under_way)))
		return false;
	*units = credit_units(r->len);
	return credit_has(&ep->link, *units + WINDOW_LEAST) &&
	       ep->link.ops->eager(ep->link.te, NULL, r->len);
}

static int eager(rpw_request *r, uint32_t units)
{
	rpw_endpoint *ep = r->ep;
	struct iovec one, *iov = req_iov(r, &one);
	int iovcnt = r->iovcnt;
	void *flat = NULL;
	if (iovcnt > SEND_IOV_MAX) {
		flat = malloc(r->len ? r->len : 1);
		if (!flat) {
			req_complete(r, RPW_ERR_NO_MEMORY);
			return 0;
		}
		iov_gather(iov, iovcnt, 0, flat, r->len);
		one = (struct iovec){flat, r->len};
		iov = &one;
		iovcnt = 1;
	}
	int rc = link_send(&ep->link, &(struct frame){.type = FRAME_TAG,
					      .tag = r->tag,
					      .iov = iov,
					      .iovcnt = iovcnt,
					      .len = r->len,
					      .keep = &r->keep,
					      .stays = !flat,
					      .units = units});
	free(flat);
	if (rc == RPWI_LATER)
		return rc;
	if (!rc)
		trace_sent(ep, r->tag, r->len);
	req_sent(r, rc);
	return 0;
}

/* The peer reads messages where they lie, and this one would lie whole in shared memory: so it is
 * copied into a loan, not into the path, whose memory comes back in order. */
static bool lent(rpw_request *r)
{
	rpw_endpoint *ep = r->ep;
	struct iovec one;
	if (!ep->peer_views || r->gpu || r->len <= EAGER_SMALL || r->len > ep->eager_max)
		return false;
	r->lent = loan_of_copy(ep, req_iov(r, &one), r->iovcnt, r->len);
	return r->lent;
}

int tag_send_begin(rpw_request *r)
{
	rpw_endpoint *ep = r->ep;
	uint32_t units = 0;
	r->done.length = r->len;
	if (RPWI_UNLIKELY(r->lent ? loan_is_shared(r->lent) : lent(r)))
		return loan_begin(r);
	bool to_fetch = r->gpu || (r->len >= STREAM_BYTES && ep->link.log_kept > 1);
	if ((!to_fetch && tag_eager(r, &units)) || placed(r, &units))
		return eager(r, units);
	int rc = rndv_offer(r, units, RTS_TAG, r->tag);
	if (!rc && !r->complete)
		trace_sent(ep, r->tag, r->len);
	return rc;
}

static int send_slow(
	rpw_endpoint *ep, const struct iovec *iov, int iovcnt, uint64_t tag, rpw_request **req)
{
	rpw_request *r = req_new(ep->c, ep, REQ_SEND, req != NULL);
	if (!r)
		return RPW_ERR_NO_MEMORY;
	int rc = req_set_local(r, iov, iovcnt);
	if (!rc)
		rc = pipeline_outgoing(r);
	if (rc) {
		req_drop(r);
		return rc;
	}
	r->tag = tag;
	r->done.tag = tag;
	return ep_post(ep, r, req);
}

int rpw_send(rpw_endpoint *ep, const void *buf, size_t len, uint64_t tag, rpw_request **req)
{
	if (RPWI_LIKELY(ep && ep->link.fast && msg_is_ours(ep->c) &&
			len <= RPWI_MIN(ep->eager_max, (size_t)EAGER_SMALL) && (buf || !len))) {
		uint32_t units = credit_units(len);
		if (RPWI_LIKELY(credit_has(&ep->link, units))) {
			struct frame_head h = frame_head_make(
				FRAME_TAG, 0, ep->link.rx_count, ep->link.rx_limit, tag);
			struct iovec iov = {(void *)buf, len};
			if (RPWI_LIKELY(!ep->link.ops->send(
				    ep->link.te, &h, sizeof(h), &iov, 1, len))) {
				ep->link.rx_told = ep->link.rx_limit;
				ep->link.tx_used += units;
				ep->link.tx_count++;
				ep->c->stat.sent++;
				ep->c->stat.bytes_sent += len;
				if (req)
					*req = NULL;
				return RPW_OK;
			}
		}
	}
	struct iovec iov = {(void *)buf, len};
	uint32_t units = credit_units(len);
	if (ep && (buf || !len) && path_is_free(ep, len, units) &&
		!link_send(&ep->link, &(struct frame){.type = FRAME_TAG,
					      .tag = tag,
					      .iov = &iov,
					      .iovcnt = 1,
					      .len = len,
					      .units = units})) {
		trace_sent(ep, tag, len);
		if (req)
			*req = NULL;
		return RPW_OK;
	}
	if (!ep)
		return msg_wrong("a send", "the endpoint is NULL");
	return send_slow(ep, &iov, 1, tag, req);
}

int rpw_send_iov(
	rpw_endpoint *ep, const struct iovec *iov, int iovcnt, uint64_t tag, rpw_request **req)
{
	if (!ep)
		return msg_wrong("a send", "the endpoint is NULL");
	return send_slow(ep, iov, iovcnt, tag, req);
}
