/* rendezvous.c - large messages: an RTS says where the sender's memory is, the receiver fetches it into the user's buffer, a FIN says that the sender's buffer is free.
 * Where the path writes faster than it reads, the sender puts the message instead: landing.c.
 *
 * Memory is registered with the path's transport for as long as the offer stands; whether registrations are kept is the transport's business, which alone knows what they cost and when
 * they go stale. After a change of path offers are described anew: by the RTS itself when it has to be sent again, else by DESCRIBE; until then the receiver's fetch is stale and waits. */
#include "msg/msg.h"
#include "msg/stage.h"

#include <errno.h>
#include <stdlib.h>

/* ---- the sender's side ---- */

void rndv_unregister(rpw_request *r)
{
	struct rndv *v = r->rndv;
	for (unsigned i = 0; i < v->n; i++)
		if (v->mem[i]) {
			r->c->t[v->tran].ops->mem_del(r->c->t[v->tran].tran, v->mem[i]);
			v->mem[i] = NULL;
		}
}

void rndv_end(rpw_request *r)
{
	rndv_unregister(r);
	free(r->rndv->bounce);
	free(r->rndv->to);
	free(r->rndv);
	r->rndv = NULL;
}

static bool registrations_make(rpw_request *r)
{
	struct rndv *v = r->rndv;
	rpw_endpoint *ep = r->ep;
	v->tran = ep->tran;
	for (unsigned i = 0; i < v->n; i++) {
		if (v->mem[i])
			continue;
		if (r->gpu) {
			direct_offer(r, &v->mem[i]); /* or it is staged */
			continue;
		}
		int rc = ep->link.ops->mem_add(r->c->t[v->tran].tran, v->iov[i].iov_base, v->iov[i].iov_len, TRAN_READ, &v->mem[i]);
		if (rc) {
			v->mem[i] = NULL;
			rndv_unregister(r);
			rpwi_fail(msg_status_of_errno(rc), "%zu bytes at %p cannot be given to the peer by %s: %s; is `ulimit -l` large enough?",
				v->iov[i].iov_len, v->iov[i].iov_base, ep->link.ops->name, strerror(-rc));
			return false;
		}
	}
	return true;
}

void *rndv_flatten(rpw_request *r)
{
	struct iovec one, *iov = req_iov(r, &one);
	struct rndv *v = r->rndv;
	if (v->bounce)
		return v->bounce;
	v->bounce = malloc(r->len);
	for (size_t i = 0, at = 0; v->bounce && i < (size_t)r->iovcnt; at += iov[i].iov_len, i++)
		memcpy((char *)v->bounce + at, iov[i].iov_base, iov[i].iov_len);
	return v->bounce;
}

static int rndv_make(rpw_request *r, enum rts_kind kind)
{
	struct iovec one, *iov = req_iov(r, &one);
	int iovcnt = r->iovcnt;
	struct rndv *v = r->rndv = calloc(1, sizeof(*v));
	r->number = slots_add(&r->c->numbers, r);
	if (!v || !r->number)
		return RPW_ERR_NO_MEMORY;
	v->kind = (uint8_t)kind;
	if (r->gpu) { /* where there is nothing that the peer could fetch, it has to pull */
		v->tran = r->ep->tran;
		v->n = direct_offer(r, &v->mem[0]);
		v->iov[0] = (struct iovec){r->buf, r->len};
		return 0;
	}
	unsigned n = 0;
	for (int i = 0; i < iovcnt; i++)
		n += iov[i].iov_len > 0;
	if (n <= RTS_PIECES_MAX) {
		for (int i = 0; i < iovcnt; i++)
			if (iov[i].iov_len)
				v->iov[v->n++] = iov[i];
		return 0;
	}
	if (!rndv_flatten(r))
		return RPW_ERR_NO_MEMORY;
	v->iov[0] = (struct iovec){v->bounce, r->len};
	v->n = 1;
	return 0;
}

static size_t put_piece(uint8_t *p, uint64_t len, const struct tran_desc *d)
{
	static const struct tran_desc none; /* in a GPU that this path does not reach, as the one before did: the peer has to pull now */
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
	return sizeof(h) + put_piece(body + sizeof(h), len, desc);
}

/* The body of an RTS for the path of now; 0: its memory could not be registered. */
size_t rndv_describe(rpw_request *r, uint8_t *body)
{
	struct rndv *v = r->rndv;
	if (!registrations_make(r))
		return 0;
	struct rts_body h = {.number = r->number, .len = r->len, .pieces = (uint16_t)v->n, .am_header_len = v->kind == RTS_AM ? r->am_header_len : 0};
	uint8_t *p = body;
	memcpy(p, &h, sizeof(h));
	p += sizeof(h);
	for (unsigned i = 0; i < v->n; i++)
		p += put_piece(p, v->iov[i].iov_len, v->mem[i] ? &v->mem[i]->desc : NULL);
	if (h.am_header_len)
		memcpy(p, r->am_header, h.am_header_len);
	return (size_t)(p - body) + h.am_header_len;
}

/* The frame types beside RTS cost no credit. */
int rndv_offer_as(rpw_request *r, enum frame_type type, enum rts_kind kind, uint64_t tag, const void *extra, size_t extra_len)
{
	rpw_endpoint *ep = r->ep;
	uint8_t body[RTS_BODY_MAX];
	int status = r->rndv ? 0 : rndv_make(r, kind);
	size_t len = status ? 0 : rndv_describe(r, body);
	if (!len) {
		req_complete(r, status ? status : RPW_ERR_SYSTEM);
		return 0;
	}
	uint32_t units = type == FRAME_RTS ? credit_units_rts(r->rndv->n, kind == RTS_AM ? r->am_header_len : 0) : 0;
	if (units && !credit_has(&ep->link, units)) {
		credit_need(&ep->link, units);
		return -EAGAIN;
	}
	struct iovec iov = {body, len};
	int rc = link_send(&ep->link, &(struct frame){.type = type,
					      .flags = kind,
					      .tag = tag,
					      .extra = extra,
					      .extra_len = extra_len,
					      .iov = &iov,
					      .iovcnt = 1,
					      .len = len,
					      .keep = &r->keep,
					      .anew = true});
	if (rc == -ENOMEM) {
		req_complete(r, RPW_ERR_NO_MEMORY);
		return 0;
	}
	if (rc)
		return rc;
	ep->link.tx_used += units;
	r->where = AT_PEER;
	return 0;
}

int rndv_offer(rpw_request *r, enum rts_kind kind, uint64_t tag) { return rndv_offer_as(r, FRAME_RTS, kind, tag, "", 0); }

/* May a FIN be the answer to it? */
static bool offers(const rpw_request *r)
{
	return r->kind == REQ_SEND || r->kind == REQ_OBJECT || r->kind == REQ_AM || r->kind == REQ_CHUNK || r->kind == REQ_SERVE_GET ||
	       (r->kind == REQ_RMA && r->asked);
}

void rndv_finished(rpw_endpoint *ep, uint64_t number, unsigned flags)
{
	rpw_request *r = slots_get(&ep->c->numbers, number);
	if (!r || r->ep != ep || r->where != AT_PEER || !offers(r)) {
		rpwi_debug("%s: a FIN for number 0x%llx, which is none of its messages", ep->peer, (unsigned long long)number);
		return;
	}
	int rc = flags > (unsigned)-RPW_ERR_SYSTEM ? RPW_ERR_PROTOCOL : -(int)flags;
	if (r->kind != REQ_RMA) {
		req_complete(r, rc);
		return;
	}
	r->worst = rc;
	rma_staged(r);
}

void rndv_describe_all(rpw_endpoint *ep)
{
	for (struct rpwi_list *n = ep->active_list.next; n != &ep->active_list; n = n->next) {
		rpw_request *r = RPWI_CONTAINER_OF(n, rpw_request, active);
		if (r->rndv && r->where == AT_PEER && !r->keep.in) {
			r->describe = true;
			ep->describe = true;
		}
	}
}

bool rndv_describe_go(rpw_endpoint *ep)
{
	for (struct rpwi_list *n = ep->active_list.next; ep->describe && n != &ep->active_list; n = n->next) {
		rpw_request *r = RPWI_CONTAINER_OF(n, rpw_request, active);
		uint8_t body[RTS_BODY_MAX];
		if (!r->describe)
			continue;
		size_t len = rndv_describe(r, body);
		struct iovec iov = {body, len};
		if (!len || link_send(&ep->link, &(struct frame){.type = FRAME_DESCRIBE,
							 .flags = r->rndv->kind,
							 .tag = r->number,
							 .iov = &iov,
							 .iovcnt = 1,
							 .len = len,
							 .keep = &r->keep,
							 .anew = true}))
			return false;
		r->describe = false;
	}
	ep->describe = false;
	return true;
}

/* ---- the receiver's side ---- */

/* On shared memory the peer can still write what is parsed here: so it is copied first, and each byte is the same whenever it is looked at. */
struct rts *rndv_parse(const void *body, size_t len)
{
	struct rts_body h;
	uint8_t copy[RTS_BODY_MAX];
	if (len < sizeof(h) || len > sizeof(copy))
		return NULL;
	memcpy(copy, body, len);
	memcpy(&h, copy, sizeof(h));
	if (h.pieces > RTS_PIECES_MAX || (!h.pieces && !h.len) || h.am_header_len > RPW_AM_HEADER_MAX || h.len > SIZE_MAX / 2)
		return NULL;
	struct rts *t = malloc(sizeof(*t) + h.pieces * sizeof(t->piece[0]) + h.am_header_len);
	if (!t)
		return NULL;
	*t = (struct rts){.number = h.number, .len = h.len, .pieces = h.pieces, .am_header_len = h.am_header_len};
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

/* The stretches in which both the sender's pieces and ours are contiguous. */
static bool stretches_make(rpw_request *r, struct rts *rts, size_t want)
{
	struct iovec one, *iov = req_iov(r, &one);
	size_t most = rts->pieces + (size_t)r->iovcnt;
	r->xfer = most == 2 ? &r->one : malloc(most * sizeof(*r->xfer));
	if (!r->xfer)
		return false;
	unsigned remote = 0;
	int local = 0;
	for (size_t at_remote = 0, at_local = 0; want && remote < rts->pieces && local < r->iovcnt;) {
		size_t n = RPWI_MIN(RPWI_MIN(rts->piece[remote].len - at_remote, iov[local].iov_len - at_local), want);
		if (n)
			r->xfer[r->xfers++] =
				(struct xfer){.local = (char *)iov[local].iov_base + at_local, .offset = at_remote, .len = n, .desc = &rts->piece[remote].desc};
		want -= n;
		at_remote += n;
		at_local += n;
		if (at_remote == rts->piece[remote].len) {
			remote++;
			at_remote = 0;
		}
		if (at_local == iov[local].iov_len) {
			local++;
			at_local = 0;
		}
	}
	return true;
}

/* r gets the message, rts is its; done.tag is the caller's. */
void rndv_fetch(rpw_request *r, rpw_endpoint *ep, struct rts *rts, size_t room)
{
	r->plain = false;
	r->rts = rts;
	r->done.length = rts->len;
	r->done.from = ep;
	r->worst = 0;
	r->where = AT_FETCH;
	rpwi_list_add_tail(&ep->fetching, &r->link);
	if (RPWI_UNLIKELY(!rts->pieces || (r->gpu && !direct_fetch(r, ep))))
		stage_fetch(r, ep, room);
	else
		rndv_fetch_parked(r, room);
}

/* It is on the list already. */
void rndv_fetch_parked(rpw_request *r, size_t room)
{
	r->parked = false;
	if (!stretches_make(r, r->rts, RPWI_MIN(r->rts->len, room)))
		r->worst = RPW_ERR_NO_MEMORY;
	rma_go(r);
}

/* All of it is here, or it failed (worst). */
void rndv_fetched(rpw_request *r)
{
	rpw_endpoint *ep = r->done.from;
	/* An offer stands until our FIN: when its memory is not there any more, the sender has just closed, and its word of that is on the way. */
	if (r->worst == RPW_ERR_ACCESS)
		r->worst = RPW_ERR_PEER_GONE;
	if (!r->peer_lost && !r->placed)
		link_reply(&ep->link, FRAME_FIN, (unsigned)-r->worst, r->rts->number, NULL, 0);
	if (proto_of(r)->fetched)
		proto_of(r)->fetched(r, r->worst);
	else
		req_complete(r, r->worst ? r->worst : r->rts->len > r->len ? RPW_ERR_TRUNCATED : RPW_OK);
}

static struct unexpected *early_find(rpw_endpoint *ep, uint64_t number, struct rpwi_list **list)
{
	struct rpwi_list *lists[] = {&ep->unexpected, &ep->objects, &ep->ams};
	for (size_t k = 0; k < RPWI_ARRAY_LEN(lists); k++)
		for (struct rpwi_list *n = lists[k]->next; n != lists[k]; n = n->next) {
			struct unexpected *u = RPWI_CONTAINER_OF(n, struct unexpected, in_endpoint);
			if (u->rts ? u->rts->number == number : u->number && u->number == number) {
				*list = lists[k];
				return u;
			}
		}
	return NULL;
}

/* Its sender wants it back: if nobody has begun to take it, it never came. */
void rndv_withdrawn(rpw_endpoint *ep, uint64_t number)
{
	struct rpwi_list *list;
	struct unexpected *u = early_find(ep, number, &list);
	if (!u)
		return;
	uint32_t units = u->units;
	if (list == &ep->unexpected)
		tag_early_free(u, false);
	else
		early_release(u);
	link_reply(&ep->link, FRAME_FIN, -RPW_ERR_CANCELED, number, NULL, 0);
	credit_return(&ep->link, units);
}

static struct rts *rts_find(rpw_endpoint *ep, uint64_t number, rpw_request **fetching)
{
	for (struct rpwi_list *n = ep->fetching.next; n != &ep->fetching; n = n->next) {
		rpw_request *r = RPWI_CONTAINER_OF(n, rpw_request, link);
		if (r->rts && r->rts->number == number) {
			*fetching = r;
			return r->rts;
		}
	}
	struct rpwi_list *list;
	struct unexpected *u = early_find(ep, number, &list);
	return u ? u->rts : NULL;
}

void rndv_described(rpw_endpoint *ep, const void *body, size_t len)
{
	if (!len)
		return; /* its FIN, sent on an earlier path, crossed this description: nothing is left to describe */
	rpw_request *fetching = NULL;
	struct rts *now = rndv_parse(body, len), *have = now ? rts_find(ep, now->number, &fetching) : NULL;
	if (!now || (have && (now->len != have->len || now->pieces != have->pieces)))
		ep_breach(ep, "a description of %zu bytes that does not fit its message", len);
	else if (have) {
		for (unsigned i = 0; i < have->pieces; i++)
			have->piece[i] = now->piece[i];
		have->stale = false;
		if (fetching)
			rma_go(fetching);
	}
	free(now);
}

/* ---- both: the path is closed, nothing of it moves any more ---- */

void rndv_path_gone(rpw_endpoint *ep)
{
	stage_path_gone(ep);
	for (struct rpwi_list *n = ep->active_list.next; n != &ep->active_list; n = n->next) {
		rpw_request *r = RPWI_CONTAINER_OF(n, rpw_request, active);
		landing_path_gone(r);
		if (r->rndv)
			rndv_unregister(r);
		direct_path_gone(r);
		rma_restart(r);
	}
	for (struct rpwi_list *n = ep->fetching.next; n != &ep->fetching; n = n->next) {
		rpw_request *r = RPWI_CONTAINER_OF(n, rpw_request, link);
		landing_drop(r);
		direct_drop(r);
		rma_restart(r);
	}
	struct rpwi_list *lists[] = {&ep->unexpected, &ep->objects, &ep->ams};
	for (size_t k = 0; k < RPWI_ARRAY_LEN(lists); k++)
		for (struct rpwi_list *n = lists[k]->next; n != lists[k]; n = n->next) {
			struct unexpected *u = RPWI_CONTAINER_OF(n, struct unexpected, in_endpoint);
			if (u->rts)
				u->rts->stale = true;
		}
	ep->settle_under_way = 0;
}
