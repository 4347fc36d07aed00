/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs.c - the verbs transport: one context, its completions, sleeping; and the table of
 * operations. */
#include "tran/verbs/verbs_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

/* of completions, in one progress: then the other planes and frames that wait have their turn */
enum { BATCHES_MAX = 4 };

/* As `usable` gives it. */
static int devices_look(const char *names, char *why, size_t why_len)
{
	bool any = false;
	int software = 0, n = 0;
	for (int source = VERBS_REAL; source < VERBS_SOURCES && !any; source++) {
		const struct verbs_table *v =
			rpwi_verbs_table((enum verbs_source)source, why, why_len);
		n = v ? rpwi_verbs_devices(v, names, &software) : 0;
		any = n > 0;
		if (v && !any && *names)
			snprintf(why, why_len,
				"%s shows none of the selected RDMA devices (%.120s)", v->source,
				names);
		else if (v && !any)
			snprintf(why, why_len,
				"%s shows no RDMA device: the software device needs an interface "
				"that is up and has an address",
				v->source);
	}
	return !any ? RPW_ERR_NOT_SUPPORTED : n == software;
}

/* What the last look for devices found, and when. */
static struct {
	pthread_mutex_t lock;
	uint64_t at_ns;
	int rc;
	char names[sizeof(((struct tran_facts *)0)->rdma_devices)], why[256];
} looked = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Is there any device now? To look takes netlink and /sys, and each endpoint asks several times
 * while it connects: so what was seen holds for a second. */
static int devices_here(const char *names, char *why, size_t why_len)
{
	pthread_mutex_lock(&looked.lock);
	uint64_t now_ns = rpwi_now_ns();
	if (!looked.at_ns || now_ns - looked.at_ns > RPWI_NS_PER_S ||
		strcmp(looked.names, names) != 0) {
		looked.rc = devices_look(names, looked.why, sizeof(looked.why));
		snprintf(looked.names, sizeof(looked.names), "%s", names);
		looked.at_ns = now_ns;
	}
	int found = looked.rc;
	snprintf(why, why_len, "%s", found < 0 ? looked.why : "");
	pthread_mutex_unlock(&looked.lock);
	return found;
}

static int verbs_usable(
	const struct tran_facts *own, const struct tran_facts *peer, char *why, size_t why_len)
{
	if (peer && !tran_lists(peer->transports, tran_verbs.name)) {
		snprintf(why, why_len, "%s has no verbs device", peer->hostname);
		return RPW_ERR_NOT_SUPPORTED;
	}
	return devices_here(own->rdma_devices, why, why_len);
}

static int verbs_open(const struct tran_up *up, const struct tran_facts *own, struct tran **out)
{
	struct verbs *t = calloc(1, sizeof(*t));
	if (!t)
		return rpwi_fail(RPW_ERR_NO_MEMORY, "verbs: no memory for the transport");
	t->base = (struct tran){.ops = &tran_verbs, .up = up, .polled = own->polled};
	t->own = *own;
	t->nonce = (uint32_t)rpwi_random64();
	rpwi_list_init(&t->all);
	rpwi_list_init(&t->starting);
	rpwi_list_init(&t->lingering);
	rpwi_list_init(&t->peers);
	rpwi_list_init(&t->todo);
	rpwi_list_init(&t->mems);
	t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (t->epoll_fd < 0) {
		int err = errno;
		free(t);
		return rpwi_fail_errno(err, "verbs: no descriptor to wait on");
	}
	*out = &t->base;
	return 0;
}

static void verbs_close(struct tran *base)
{
	struct verbs *t = verbs_of(base);
	while (!rpwi_list_empty(&t->lingering))
		rpwi_verbs_ep_free(
			RPWI_CONTAINER_OF(t->lingering.next, struct verbs_ep, in_starting));
	rpwi_verbs_planes_close(t);
	rpwi_verbs_ops_free(t);
	close(t->epoll_fd);
	free(t);
}

/* ---- completions ---- */

static void retire(struct verbs_sq *q, uint32_t to)
{
	struct verbs_ep *ep = q->ep;
	while (q->head != to && ep->state != VERBS_EP_FAILED) {
		struct verbs_sqe e = q->sqe[q->head++ % VERBS_SQ_DEPTH];
		if (e.kind == VERBS_SQE_SLOT)
			verbs_slot_put(&ep->p->tx, e.p);
		if (e.kind != VERBS_SQE_OP)
			continue;
		ep->rma_qp->reading -= e.reading;
		ep->rma_done = true;
		rpwi_verbs_op_retired(ep, e.p, RPW_OK);
	}
}

/* The RMA QP's queue pair is in the error state: the peer's device refused an access of ours, or
 * ours one of the peer's. */
static void rma_qp_error(struct verbs_ep *ep, struct verbs_sq *q, const struct ibv_wc *wc)
{
	bool refused = wc->status == IBV_WC_REM_ACCESS_ERR || wc->status == IBV_WC_REM_OP_ERR ||
		       wc->status == IBV_WC_REM_INV_REQ_ERR || wc->status == IBV_WC_LOC_PROT_ERR;
	if (!refused && wc->status != IBV_WC_WR_FLUSH_ERR) {
		rpwi_verbs_ep_fail_wc(ep, wc, "an operation on remote memory");
		return;
	}
	/* Of this one it is known what became of it; those behind it were not begun. */
	if (refused) {
		struct verbs_op *op = q->sqe[q->head++ % VERBS_SQ_DEPTH].p;
		rpwi_debug("verbs: %s: an access to the peer's memory was refused: %s",
			ep->base.path, ep->p->v->ibv_wc_status_str(wc->status));
		rpwi_verbs_op_refused(ep, op, wc->status);
		rpwi_verbs_rma_qp_broke(ep, op, true);
		return;
	}
	rpwi_verbs_rma_qp_broke(ep, NULL, false);
}

static void send_done(struct verbs_sq *q, const struct ibv_wc *wc)
{
	struct verbs_ep *ep = q->ep;
	uint32_t seq = (uint32_t)(wc->wr_id >> 1);
	if (ep->state == VERBS_EP_FAILED || seq - q->head >= q->tail - q->head)
		return;
	bool good = wc->status == IBV_WC_SUCCESS;
	retire(q, good ? seq + 1 : seq);
	if (ep->state == VERBS_EP_FAILED)
		return;
	if (RPWI_UNLIKELY(!good)) {
		if (q == &ep->sq)
			rpwi_verbs_ep_fail_wc(ep, wc, "a frame");
		else
			rma_qp_error(ep, q, wc);
	} else if (ep->state == VERBS_EP_UP &&
		   (ep->want_room || !rpwi_list_empty(&ep->ops) || ep->received_data ||
			   (ep->rma_qp && ep->rma_qp->say))) {
		verbs_todo(ep);
	}
}

static void recv_done(struct verbs_plane *p, struct verbs_sq *q, const struct ibv_wc *wc)
{
	/* nobody sends into a RMA QP, and a message there is dropped */
	struct verbs_ep *ep = q && q == &q->ep->sq ? q->ep : NULL;
	struct verbs_slot *s = (struct verbs_slot *)(uintptr_t)wc->wr_id;
	p->rx_posted--;
	if (ep && ep->state != VERBS_EP_FAILED) {
		if (RPWI_LIKELY(wc->status == IBV_WC_SUCCESS))
			rpwi_verbs_frame_came(ep, s->buf, wc->byte_len);
		else
			rpwi_verbs_ep_fail_wc(ep, wc, "a receive");
	}
	s->next = p->repost;
	p->repost = s;
}

static unsigned handle_polled(struct verbs_plane *p)
{
	unsigned n = 0;
	while (p->wc_at < p->wc_count) {
		/* A copy: an up-call may close other endpoints, and so change what follows. */
		struct ibv_wc wc = p->wc[p->wc_at++];
		if (!wc.wr_id)
			continue;
		struct verbs_sq *q = rpwi_verbs_map_find(p, wc.qp_num);
		n++;
		if (!(wc.wr_id & 1))
			recv_done(p, q, &wc);
		else if (q) /* else of a queue pair that has been destroyed */
			send_done(q, &wc);
	}
	return n;
}

static int poll_more(struct verbs_plane *p)
{
	int n = ibv_poll_cq(p->cq, VERBS_POLL_BATCH, p->wc);
	p->wc_at = 0;
	p->wc_count = n > 0 ? n : 0;
	if (RPWI_UNLIKELY(n < 0))
		rpwi_error("verbs: the completion queue of %s cannot be read (%d): it overran, or "
			   "the device is gone",
			p->name, n);
	return n;
}

static unsigned plane_progress(struct verbs_plane *p)
{
	unsigned n = handle_polled(p); /* what arm found */
	for (unsigned i = 0; i < BATCHES_MAX && poll_more(p) > 0; i++) {
		bool full = p->wc_count == VERBS_POLL_BATCH;
		n += handle_polled(p);
		if (!full)
			break;
	}
	if (p->repost && p->rx_posted + VERBS_RX_BATCH <= verbs_rx_of(p, p->eps))
		rpwi_verbs_rx_fill(p);
	return n;
}

static unsigned todo_progress(struct verbs *t)
{
	/* Those that come back into the list while this runs have their turn next time. */
	struct rpwi_list now;
	unsigned n = 0;
	if (rpwi_list_empty(&t->todo))
		return 0;
	rpwi_list_init(&now);
	while (!rpwi_list_empty(&t->todo)) {
		struct rpwi_list *l = t->todo.next;
		rpwi_list_del(l);
		rpwi_list_add_tail(&now, l);
	}
	for (; !rpwi_list_empty(&now); n++) {
		struct verbs_ep *ep = RPWI_CONTAINER_OF(now.next, struct verbs_ep, in_todo);
		rpwi_list_del(&ep->in_todo);
		rpwi_verbs_ep_work(ep);
	}
	return n;
}

static unsigned starting_progress(struct verbs *t)
{
	uint64_t now_ns = rpwi_now_ns();
	unsigned n = 0;
	for (struct rpwi_list *at = t->starting.next, *next; at != &t->starting; at = next) {
		next = at->next;
		struct verbs_ep *ep = RPWI_CONTAINER_OF(at, struct verbs_ep, in_starting);
		bool late = now_ns >= ep->deadline_ns;
		if (!late && now_ns < ep->look_ns)
			continue;
		ep->look_ns = now_ns + VERBS_LOOK_MS * RPWI_NS_PER_MS;
		rpwi_verbs_ep_look(ep, late);
		if (ep->state != VERBS_EP_STARTING) {
			n++;
			next = t->starting.next;
			continue;
		}
		if (!late)
			continue;
		char to[VERBS_GID_TEXT];
		rpwi_verbs_ep_fail(ep, RPW_ERR_TIMEOUT,
			"no greeting came on %s from %s, GID %s: does its process run, and is UDP "
			"port 4791 open both ways?",
			ep->base.path, ep->remote.name,
			rpwi_verbs_gid_text(ep->remote_gid, to, sizeof(to)));
		n++;
		next = t->starting.next; /* the up-call may have closed others */
	}
	return n;
}

/* Closed endpoints go when all that they had to say has been acknowledged, or nobody is left to
 * hear it. */
static void lingering_progress(struct verbs *t)
{
	uint64_t now_ns = rpwi_now_ns();
	RPWI_LIST_EACH_SAFE (struct verbs_ep, ep, next, &t->lingering, in_starting) {
		if (!ep->bye_said && ep->state == VERBS_EP_CLOSING)
			ep->bye_said = rpwi_verbs_control(ep, VERBS_FRAME_BYE);
		if (ep->state == VERBS_EP_FAILED || ep->bye_heard || now_ns >= ep->deadline_ns ||
			(ep->bye_said && ep->sq.head == ep->sq.tail))
			rpwi_verbs_ep_free(ep);
	}
}

/* Each time from the beginning: the up-call may close others. */
static struct verbs_ep *next_orphan(struct verbs *t)
{
	RPWI_LIST_EACH (struct verbs_ep, ep, &t->all, in_all)
		if (ep->state != VERBS_EP_FAILED && ep->peer && ep->peer->ended)
			return ep;
	return NULL;
}

static unsigned peers_progress(struct verbs *t)
{
	struct verbs_ep *ep;
	unsigned ended = 0, n = 0;
	t->look_at_peers = false;
	t->idle_rounds = 0;
	RPWI_LIST_EACH (struct verbs_peer, peer, &t->peers, link) {
		if (peer->ended || !rpwi_verbs_peer_ended(peer))
			continue;
		epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, peer->fd, NULL); /* it stays readable */
		ended++;
	}
	while (ended && (ep = next_orphan(t))) {
		rpwi_verbs_ep_fail(ep, RPW_ERR_PEER_GONE,
			"the peer's process %u of this host has ended", ep->peer_pid);
		n++;
	}
	return n;
}

/* The channel is readable from the first completion after a request to notify until its event is
 * taken. */
static void plane_disarm(struct verbs_plane *p)
{
	struct ibv_cq *cq;
	void *arg;
	while (p->armed && !p->v->ibv_get_cq_event(p->channel, &cq, &arg)) {
		p->v->ibv_ack_cq_events(cq, 1);
		p->armed = false;
	}
}

static unsigned verbs_progress(struct tran *base)
{
	struct verbs *t = verbs_of(base);
	unsigned n = 0;
	for (unsigned i = 0; i < t->planes; i++)
		if (t->plane[i]->eps)
			n += plane_progress(t->plane[i]);
		else
			plane_disarm(t->plane[i]);
	n += todo_progress(t);
	if (RPWI_UNLIKELY(!rpwi_list_empty(&t->starting)))
		n += starting_progress(t);
	if (RPWI_UNLIKELY(!rpwi_list_empty(&t->lingering)))
		lingering_progress(t);
	/* Whatever a process sent before it ended comes first. */
	if (!n && !rpwi_list_empty(&t->peers) &&
		(t->look_at_peers || ++t->idle_rounds >= VERBS_PEERS_LOOK))
		n += peers_progress(t);
	return n;
}

/* ---- sleeping ---- */

static int plane_arm(struct verbs_plane *p)
{
	plane_disarm(p);
	if (!p->armed && !ibv_req_notify_cq(p->cq, 0))
		p->armed = true;
	/* What came before the request raises no event. */
	if (p->wc_at < p->wc_count || poll_more(p) > 0)
		return 1;
	return !p->armed;
}

static int verbs_arm(struct tran *base, int *fd, uint64_t *deadline_ns)
{
	struct verbs *t = verbs_of(base);
	*fd = t->epoll_fd;
	t->look_at_peers = true; /* one of them may be what ends the sleep */
	if (!rpwi_list_empty(&t->todo))
		return 1;
	for (unsigned i = 0; i < t->planes; i++)
		if (t->plane[i]->eps && plane_arm(t->plane[i]))
			return 1;
	RPWI_LIST_EACH (const struct verbs_ep, ep, &t->starting, in_starting) {
		*deadline_ns = RPWI_MIN(*deadline_ns, ep->deadline_ns);
		if (ep->greeted)
			*deadline_ns = RPWI_MIN(*deadline_ns, ep->look_ns);
	}
	if (!rpwi_list_empty(&t->lingering)) /* the oldest is the first */
		*deadline_ns = RPWI_MIN(*deadline_ns,
			RPWI_CONTAINER_OF(t->lingering.next, struct verbs_ep, in_starting)
				->deadline_ns);
	return 0;
}

static const struct tran_mem_ops verbs_mem_ops = {
	.add = rpwi_verbs_mem_add, .add_gpu = rpwi_verbs_gpu_add, .del = rpwi_verbs_mem_del};
static const struct tran_rma_ops verbs_rma_ops = {
	.transfer = rpwi_verbs_rma, .atomic = rpwi_verbs_atomic, .flush = rpwi_verbs_flush};
const struct tran_ops tran_verbs = {
	.name = "verbs",
	.caps = TRAN_CAN_BREAK | TRAN_GPU,
	.usable = verbs_usable,
	.open = verbs_open,
	.close = verbs_close,
	.progress = verbs_progress,
	.arm = verbs_arm,
	.ep_make = rpwi_verbs_ep_make,
	.ep_start = rpwi_verbs_ep_start,
	.ep_close = rpwi_verbs_ep_close,
	.send = rpwi_verbs_send,
	.again = rpwi_verbs_way_again,
	.mem = &verbs_mem_ops,
	.rma = &verbs_rma_ops,
};
