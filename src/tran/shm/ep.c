/* SPDX-License-Identifier: BSD-3-Clause */
/* ep.c - endpoints: a number on a link. Two frames bring one up (OPEN, each way) and two take it
 * down (CLOSE, each way); the number is used again only when the peer's CLOSE has come, so that no
 * late frame meets a new endpoint.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/error.h"
#include "base/hash.h"
#include "ropeway.h"
#include "shm.h"

enum { HANDLE_MAGIC = 0x48534d52, EAGER_MAX = SHM_FRAME_MAX };

static uint64_t handle_check(const struct shm_handle *h)
{
	return rpwi_hash(RPWI_HASH, h, offsetof(struct shm_handle, check));
}

static const struct tran_up *up_of(const struct shm_ep *ep) { return ep->t->base.up; }

int rpwi_shm_ep_make(struct tran *tran, const struct tran_control *control, void *user,
	struct tran_ep **out, uint8_t *handle, size_t *handle_len)
{
	struct shm *t = shm_of(tran);
	struct shm_ep *ep =
		rpwi_slots_reserve(&t->eps, SHM_EPS_MAX) ? rpwi_alloc_lines(sizeof *ep) : NULL;
	if (!ep)
		return rpwi_fail(RPW_ERR_LIMIT,
			"shm: no room for one more endpoint beside %u (%d are the most)",
			t->eps.used, SHM_EPS_MAX);
	ep->base = (struct tran_ep){.tran = tran,
		.user = user,
		.limits = {.frame_max = SHM_FRAME_MAX, .eager_max = EAGER_MAX}};
	snprintf(ep->base.path, sizeof ep->base.path, "shared memory");
	ep->t = t;
	ep->index = rpwi_slots_take(&t->eps, ep);
	ep->nonce = rpwi_shm_nonce(t);
	ep->pid_expected = (pid_t)control->peer->pid;
	rpwi_list_init(&ep->in_link);
	rpwi_list_init(&ep->in_owing);
	rpwi_list_init(&ep->in_rooms);
	rpwi_list_init(&ep->in_starting);
	rpwi_list_init(&ep->in_work);
	rpwi_list_init(&ep->in_blocked);
	rpwi_list_init(&ep->in_asking);
	struct shm_handle h = {.magic = HANDLE_MAGIC,
		.version = SHM_VERSION,
		.len = sizeof h,
		.pid = (uint32_t)getpid(),
		.endpoint = ep->index,
		.nonce = ep->nonce};
	memcpy(h.context, t->context, sizeof h.context);
	h.check = handle_check(&h);
	memcpy(handle, &h, sizeof h);
	*handle_len = sizeof h;
	*out = &ep->base;
	return 0;
}

void rpwi_shm_ep_free(struct shm_ep *ep)
{
	struct shm *t = ep->t;
	rpwi_shm_rma_ep_close(ep); /* of one that a forked child inherited */
	rpwi_shm_loan_ep_close(ep);
	rpwi_list_del(&ep->in_link);
	rpwi_list_del(&ep->in_owing);
	rpwi_list_del(&ep->in_rooms);
	rpwi_list_del(&ep->in_starting);
	rpwi_slots_give(&t->eps, ep->index);
	free(ep);
}

void rpwi_shm_ep_fail(struct shm_ep *ep, int status, const char *why)
{
	enum shm_ep_state before = ep->state;
	if (before == SHM_EP_FAILED || before == SHM_EP_CLOSED)
		return;
	rpwi_list_del(&ep->in_starting);
	rpwi_list_del(&ep->in_rooms);
	rpwi_shm_rma_ep_close(ep);
	if (before == SHM_EP_MADE) { /* it will say so when it is started */
		ep->close_got = true;
		return;
	}
	ep->state = SHM_EP_FAILED;
	char text[200];
	snprintf(text, sizeof text, "shared memory with process %u: %s", ep->peer.pid, why);
	(before == SHM_EP_STARTING ? up_of(ep)->ready : up_of(ep)->failed)(
		ep->base.user, &(struct rpwi_error){status, 0, text});
}

static void ep_ready_if(struct shm_ep *ep)
{
	if (ep->state != SHM_EP_STARTING || !ep->open_sent || !ep->open_got)
		return;
	ep->state = SHM_EP_READY;
	rpwi_list_del(&ep->in_starting);
	char way[RPWI_SHM_WAY];
	snprintf(ep->base.path, sizeof ep->base.path, "shared memory with process %u: %s",
		ep->peer.pid, rpwi_shm_rma_path(ep->link, way));
	up_of(ep)->ready(ep->base.user, NULL);
}

/* Send the OPEN or CLOSE that an endpoint owes. False: no room. May free it. */
static bool ep_pay(struct shm_ep *ep)
{
	struct shm_ctl ctl = {.index = ep->index, .nonce = ep->peer.nonce};
	uint32_t to = ep->open_got ? ep->peer_index : ep->peer.endpoint;
	if (ep->open_owed) {
		if (rpwi_shm_link_ctl(ep->link, SHM_OPEN, to, &ctl))
			return false;
		ep->open_owed = false;
		ep->open_sent = true;
	}
	if (ep->close_owed) {
		if (rpwi_shm_link_ctl(ep->link, SHM_CLOSE, to, &ctl))
			return false;
		ep->close_owed = false;
		ep->close_sent = true;
	}
	return true;
}

static void ep_owe(struct shm_ep *ep)
{
	if (!rpwi_list_empty(&ep->in_owing) || ep_pay(ep))
		return;
	rpwi_list_add_tail(&ep->link->owing, &ep->in_owing);
	ep->link->todo = true;
}

unsigned rpwi_shm_ep_owed(struct shm_link *l)
{
	unsigned n = 0;
	for (; !rpwi_list_empty(&l->owing); n++) {
		struct shm_ep *ep = RPWI_CONTAINER_OF(l->owing.next, struct shm_ep, in_owing);
		if (!ep_pay(ep))
			break;
		rpwi_list_del(&ep->in_owing);
		if (ep->state == SHM_EP_CLOSED && ep->close_sent && ep->close_got)
			rpwi_shm_ep_free(ep);
		else
			ep_ready_if(ep);
	}
	return n;
}

void rpwi_shm_ep_attach(struct shm_ep *ep, struct shm_link *l)
{
	if (rpwi_list_empty(&ep->in_link))
		rpwi_list_add_tail(&l->eps, &ep->in_link);
	ep->link = l;
	if (l->state != SHM_LINK_UP || ep->open_sent || ep->open_owed)
		return;
	ep->open_owed = true;
	ep_owe(ep);
	ep_ready_if(ep);
}

void rpwi_shm_ep_adopt(struct shm *t, struct shm_link *l)
{
	for (struct rpwi_list *at = t->starting.next, *next; at != &t->starting; at = next) {
		next = at->next;
		struct shm_ep *ep = RPWI_CONTAINER_OF(at, struct shm_ep, in_starting);
		if (!ep->link && (pid_t)ep->peer.pid == l->pid &&
			!memcmp(ep->peer.context, l->context, 16))
			rpwi_shm_ep_attach(ep, l);
	}
}

static int handle_read(
	const struct shm_ep *ep, const uint8_t *handle, size_t len, struct shm_handle *h)
{
	if (len != sizeof *h)
		return rpwi_fail(RPW_ERR_PROTOCOL,
			"shm: a handle of %zu bytes came, %zu were expected: do both sides run the "
			"same version?",
			len, sizeof *h);
	memcpy(h, handle, sizeof *h);
	if (h->magic != HANDLE_MAGIC || h->version != SHM_VERSION || h->len != sizeof *h ||
		h->check != handle_check(h) || h->endpoint >= SHM_EPS_MAX || !h->nonce)
		return rpwi_fail(RPW_ERR_PROTOCOL,
			"shm: the handle is garbled or of version %u, version %u was expected: do "
			"both sides run the same version?",
			h->version, SHM_VERSION);
	if (!h->pid || h->pid > INT32_MAX ||
		(ep->pid_expected && h->pid != (uint32_t)ep->pid_expected))
		return rpwi_fail(RPW_ERR_PROTOCOL,
			"shm: the handle is of process %u, the peer said that it is process %d",
			h->pid, (int)ep->pid_expected);
	return 0;
}

int rpwi_shm_ep_start(struct tran_ep *base, const uint8_t *handle, size_t len, unsigned timeout_ms)
{
	struct shm_ep *ep = shm_ep_of(base);
	struct shm *t = ep->t;
	if (ep->state != SHM_EP_MADE)
		return rpwi_fail(RPW_ERR_INVALID, "shm: the endpoint was started before");
	int rc = handle_read(ep, handle, len, &ep->peer);
	if (rc)
		return rc;
	struct shm_link *l = ep->link; /* the peer's OPEN may have come already */
	if (l && (ep->peer.endpoint != ep->peer_index || ep->peer.pid != (uint32_t)l->pid ||
			 memcmp(ep->peer.context, l->context, 16)))
		return rpwi_fail(RPW_ERR_PROTOCOL,
			"shm: process %d uses this endpoint already, and the handle is of another",
			(int)l->pid);
	ep->state = SHM_EP_STARTING;
	ep->deadline_ns = rpwi_now_ns() + timeout_ms * RPWI_NS_PER_MS;
	rpwi_list_add_tail(&t->starting, &ep->in_starting);
	if (ep->close_got) {
		rpwi_shm_ep_fail(ep, RPW_ERR_PEER_GONE, "the other side has closed it already");
		return 0;
	}
	if (!l)
		l = rpwi_shm_link_find(t, ep->peer.context, (pid_t)ep->peer.pid);
	if (!l && memcmp(t->context, ep->peer.context, 16) <= 0) {
		rc = rpwi_shm_link_dial(t, ep, &l);
		if (rc) {
			rpwi_shm_ep_fail(ep, RPW_ERR_SYSTEM, strerror(-rc));
			return 0;
		}
	}
	if (l)
		rpwi_shm_ep_attach(ep, l); /* else the peer dials */
	return 0;
}

void rpwi_shm_ep_close(struct tran_ep *base)
{
	struct shm_ep *ep = shm_ep_of(base);
	struct shm_link *l = ep->link;
	rpwi_shm_rma_ep_close(ep);
	rpwi_shm_loan_ep_close(ep);
	rpwi_list_del(&ep->in_starting);
	rpwi_list_del(&ep->in_rooms);
	ep->state = SHM_EP_CLOSED;
	if (!l || l->state == SHM_LINK_DEAD || (!ep->open_sent && !ep->open_got)) {
		bool dialed = l && l->dialing_for == ep;
		rpwi_shm_ep_free(ep);
		if (dialed)
			rpwi_shm_link_forsake(l);
		return;
	}
	ep->open_owed = false;
	if (!ep->close_sent) {
		ep->close_owed = true;
		ep_owe(ep);
	}
	if (ep->close_sent && ep->close_got)
		rpwi_shm_ep_free(ep);
}

int rpwi_shm_ep_send(struct tran_ep *base, const void *head, size_t head_len,
	const struct iovec *iov, int iovcnt, size_t body_len)
{
	struct shm_ep *ep = shm_ep_of(base);
	if (RPWI_UNLIKELY(ep->state != SHM_EP_READY))
		return tran_path_over(base);
	if (RPWI_UNLIKELY(head_len > TRAN_HEAD_MAX || body_len > SHM_FRAME_MAX))
		return rpwi_fail(RPW_ERR_INVALID,
			"shm: a frame of %zu and %zu bytes, %d and %d are the most", head_len,
			body_len, TRAN_HEAD_MAX, SHM_FRAME_MAX);
	struct shm_link *l = ep->link;
	int rc = ring_tx_room(&l->tx, ring_bulk_need(head_len, body_len), 0);
	if (RPWI_UNLIKELY(rc)) {
		if (rc == -EPROTO)
			rpwi_shm_link_end(l, RPW_ERR_PROTOCOL);
		else if (rpwi_list_empty(&ep->in_rooms))
			rpwi_list_add_tail(&l->rooms, &ep->in_rooms);
		l->todo = true;
		return RPWI_LATER;
	}
	uint8_t *head_at, *body_at;
	ring_tx_place(&l->tx, head_len, body_len, &head_at, &body_at);
	if (head_len <= RING_INLINE)
		rpwi_copy_small(head_at, head, head_len);
	else
		memcpy(head_at, head, head_len);
	if (iovcnt == 1 && body_len <= RING_INLINE) {
		rpwi_copy_small(body_at, iov->iov_base, body_len);
	} else {
		size_t left = body_len;
		uint64_t began_ns = shm_sample(l, body_len);
		for (int i = 0; i < iovcnt && left; i++) {
			size_t n = RPWI_MIN(left, iov[i].iov_len);
			if (n)
				rpwi_copy(body_at, iov[i].iov_base, n);
			body_at += n;
			left -= n;
		}
		rpwi_cost_sampled(&l->tx.shared->in_ns, began_ns, body_len);
	}
	ring_tx_publish(&l->tx, SHM_FRAME, ep->peer_index, head_len, body_len);
	shm_link_kick(l);
	return 0;
}

/* A fetch costs a frame each way beside the bytes. */
bool rpwi_shm_ep_eager(struct tran_ep *base, const void *buf, size_t len)
{
	enum { FETCH_NS = 1000 };
	struct shm_link *l = shm_ep_of(base)->link;
	if (len < SHM_SAMPLED || !l || l->state != SHM_LINK_UP)
		return true;
	const struct shm_mem *of = buf ? rpwi_shm_mem_allocated(l->t, buf, len) : NULL;
	bool mapped = of && of->base.access & TRAN_READ && !l->local;
	uint32_t fetch = atomic_load_explicit(
		mapped ? &l->tx.shared->mapped_ns : &l->tx.shared->fetch_ns, memory_order_relaxed);
	if (fetch && fetch != RPWI_COST_NEVER)
		fetch = (uint32_t)RPWI_MIN(fetch + (uint64_t)FETCH_NS * RPWI_COST_BYTES / len,
			(uint64_t)RPWI_COST_NEVER - 1);
	return !rpwi_cost_second(shm_ring_cost(l->tx.shared), fetch, l->asked_eager++);
}

unsigned rpwi_shm_ep_rooms(struct shm_link *l)
{
	/* Room for a few, so that it is not one frame at a time. */
	if (rpwi_list_empty(&l->rooms) ||
		ring_tx_room(&l->tx, ring_bulk_need(TRAN_HEAD_MAX, SHM_FRAME_MAX), SHM_FRAME_MAX))
		return 0;
	struct rpwi_list told = {&told, &told};
	while (!rpwi_list_empty(&l->rooms)) {
		struct rpwi_list *at = l->rooms.next;
		rpwi_list_del(at);
		rpwi_list_add_tail(&told, at);
	}
	unsigned n = 0;
	for (; !rpwi_list_empty(&told); n++) {
		struct shm_ep *ep = RPWI_CONTAINER_OF(told.next, struct shm_ep, in_rooms);
		rpwi_list_del(&ep->in_rooms);
		up_of(ep)->room(ep->base.user);
	}
	return n;
}

static void ep_opened(struct shm_link *l, const struct ring_frame *f, const struct shm_ctl *ctl)
{
	struct shm_ep *ep = rpwi_shm_ep_find(l->t, f->endpoint);
	bool fits = ep && ctl->nonce == ep->nonce && !ep->open_got &&
		    (!ep->link || ep->link == l) &&
		    (ep->state == SHM_EP_MADE ||
			    (ep->state == SHM_EP_STARTING && ctl->index == ep->peer.endpoint &&
				    !memcmp(ep->peer.context, l->context, 16))) &&
		    (!ep->pid_expected || ep->pid_expected == l->pid);
	if (!fits) {
		struct shm_ctl no = {.index = f->endpoint};
		rpwi_shm_link_hint(l, SHM_REFUSE, ctl->index & (SHM_EPS_MAX - 1), &no);
		return;
	}
	ep->open_got = true;
	ep->peer_index = ctl->index & (SHM_EPS_MAX - 1);
	if (ep->state == SHM_EP_MADE) {
		ep->link = l;
		rpwi_list_add_tail(&l->eps, &ep->in_link);
	} else {
		rpwi_shm_ep_attach(ep, l);
		ep_ready_if(ep);
	}
}

static void ep_closed(struct shm_ep *ep, int status, const char *why)
{
	ep->close_got = true;
	if (ep->open_got && !ep->close_sent && !ep->close_owed) {
		ep->open_owed = false;
		ep->close_owed = true;
		ep_owe(ep);
	} else if (!ep->open_got) {
		ep->close_sent = true; /* it does not know us: nothing to tell */
	}
	if (ep->state != SHM_EP_CLOSED)
		rpwi_shm_ep_fail(ep, status, why);
	else if (ep->close_sent)
		rpwi_shm_ep_free(ep);
}

void rpwi_shm_ep_ctl(struct shm_link *l, const struct ring_frame *f, const struct shm_ctl *ctl)
{
	if (f->kind == SHM_OPEN) {
		ep_opened(l, f, ctl);
		return;
	}
	struct shm_ep *ep = rpwi_shm_ep_find(l->t, f->endpoint);
	if (!ep || ep->link != l || ep->close_got)
		return;
	uint32_t peer = ep->open_got ? ep->peer_index : ep->peer.endpoint;
	if (f->kind == SHM_CLOSE && ctl->index == peer)
		ep_closed(ep, ep->state == SHM_EP_STARTING ? RPW_ERR_REFUSED : RPW_ERR_PEER_GONE,
			"the other side closed the endpoint");
	else if (f->kind == SHM_REFUSE && !ep->open_got && ep->open_sent &&
		 ctl->index == ep->peer.endpoint)
		ep_closed(ep, RPW_ERR_REFUSED,
			"the other side has no such endpoint (any more): the handle is old, or of "
			"another connection");
}

void rpwi_shm_ep_tick(struct shm *t, uint64_t now_ns)
{
	size_t count = 0;
	for (struct rpwi_list *at = t->starting.next; at != &t->starting; at = at->next)
		count++;
	for (; count && !rpwi_list_empty(&t->starting); count--) {
		struct shm_ep *ep = RPWI_CONTAINER_OF(t->starting.next, struct shm_ep, in_starting);
		rpwi_list_del(&ep->in_starting);
		rpwi_list_add_tail(&t->starting, &ep->in_starting);
		if (ep->deadline_ns > now_ns)
			continue;
		struct shm_link *l = ep->link;
		bool dialed = l && l->dialing_for == ep;
		rpwi_shm_ep_fail(ep, RPW_ERR_TIMEOUT,
			l && l->state == SHM_LINK_UP
				? "the link stands, but the other side did not start the endpoint"
				: "the other process did not answer");
		if (dialed)
			rpwi_shm_link_forsake(l);
	}
}

uint64_t rpwi_shm_ep_next(const struct shm *t)
{
	uint64_t next = RPWI_NEVER;
	for (const struct rpwi_list *at = t->starting.next; at != &t->starting; at = at->next)
		next = RPWI_MIN(
			next, RPWI_CONTAINER_OF(at, struct shm_ep, in_starting)->deadline_ns);
	return next;
}
