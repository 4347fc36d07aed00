/* SPDX-License-Identifier: BSD-3-Clause */
/* hca.c - the process's one HCA: the list of devices, async events, and what lives as long as any
 * context is open; contexts are context.c's. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/guard.h"
#include "device/alive.h"
#include "device/board.h"
#include "device/farewell.h"
#include "device/fault.h"
#include "device/mcast.h"
#include "device/tally.h"
#include "wire/icrc.h"

/* ---- the list ---- */

/* all that were ever seen, in the order seen; never freed: programs keep pointers */
static struct dev *devs;

static struct dev *dev_find(const char *name)
{
	for (struct dev *d = devs; d; d = d->next)
		if (!strcmp(d->net.name, name))
			return d;
	return NULL;
}

static struct dev *dev_new(const struct rpwi_netdev *net)
{
	struct dev *d = calloc(1, sizeof(*d)), **end = &devs;
	if (!d)
		return NULL;
	d->ibv.node_type = IBV_NODE_CA;
	d->ibv.transport_type = IBV_TRANSPORT_IB;
	d->index = (int)rpwi_netdev_uverbs(net);
	snprintf(d->ibv.name, sizeof(d->ibv.name), "%s", net->name);
	unsigned uverbs = rpwi_netdev_uverbs(net);
	snprintf(d->ibv.dev_name, sizeof(d->ibv.dev_name), "uverbs%u", uverbs);
	snprintf(d->ibv.dev_path, sizeof(d->ibv.dev_path), "/sys/class/infiniband_verbs/uverbs%u",
		uverbs);
	snprintf(d->ibv.ibdev_path, sizeof(d->ibv.ibdev_path), "/sys/class/infiniband/%s",
		net->name);
	while (*end)
		end = &(*end)->next;
	*end = d;
	return d;
}

/* Said once: the list is read again and again. */
static void names_check(const struct rpwi_netdev *nets, unsigned n)
{
	static bool said;
	char name[64];
	if (said || !rpwi_netdev_unknown(nets, n, name, sizeof(name)))
		return;
	said = true;
	rpwi_warn("ROPEWAY_DEVICES names '%s', but no interface and no software device is called "
		  "that; `ropeway devices` lists them",
		name);
}

/* RPWI_LOCK_DEVICES is held, and the HCA's, under which devices' addresses are read. Hidden ones
 * are kept, too: their addresses are this host's. */
static int list_refresh(struct ibv_device ***out)
{
	struct rpwi_netdev *nets = NULL;
	unsigned all = 0;
	int n = rpwi_netdev_list(&nets, &all);
	if (n < 0)
		return n;
	names_check(nets, all);
	struct ibv_device **list = calloc((size_t)n + 1, sizeof(*list));
	if (!list) {
		free(nets);
		return -ENOMEM;
	}
	for (struct dev *d = devs; d; d = d->next)
		d->present = false;
	int have = 0;
	for (unsigned i = 0; i < all; i++) {
		struct dev *d = dev_find(nets[i].name);
		if (!d)
			d = dev_new(&nets[i]);
		if (!d)
			continue;
		d->net = nets[i];
		d->place = i;
		d->present = true;
		if (!d->net.hidden)
			list[have++] = &d->ibv;
	}
	free(nets);
	if (out)
		*out = list;
	else
		free(list);
	return have;
}

void dev_list_renew(void)
{
	rpwi_lock(RPWI_LOCK_DEVICES);
	hca_lock();
	int n = list_refresh(NULL);
	hca_unlock();
	rpwi_unlock(RPWI_LOCK_DEVICES);
	if (n < 0)
		rpwi_error("cannot read the interfaces: %s", strerror(-n));
}

struct dev *dev_first(void) { return devs; }

struct ibv_device **rpwi_dev_get_list(int *num)
{
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return dev_refuse("ibv_get_device_list");
	struct ibv_device **list = NULL;
	rpwi_lock(RPWI_LOCK_DEVICES);
	hca_lock();
	int n = list_refresh(&list);
	hca_unlock();
	rpwi_unlock(RPWI_LOCK_DEVICES);
	if (num)
		*num = RPWI_MAX(n, 0);
	if (n < 0)
		errno = -n;
	return list;
}

bool rpwi_dev_owns_device(const struct ibv_device *dev)
{
	bool ours = false;
	if (rpwi_fork_broken)
		return false;
	rpwi_lock(RPWI_LOCK_DEVICES);
	for (struct dev *d = devs; d && !ours; d = d->next)
		ours = &d->ibv == dev;
	rpwi_unlock(RPWI_LOCK_DEVICES);
	return ours;
}

/* The context's abi_compat alone would be read from memory that may not be ours: the list says. */
bool rpwi_dev_owns_context(const struct ibv_context *c)
{
	bool ours = false;
	if (rpwi_fork_broken)
		return false;
	rpwi_lock(RPWI_LOCK_DEVICES);
	for (struct rpwi_list *l = hca_here.contexts.next; l != &hca_here.contexts && !ours;
		l = l->next)
		ours = &RPWI_CONTAINER_OF(l, struct dctx, link)->v.context == c;
	rpwi_unlock(RPWI_LOCK_DEVICES);
	return ours;
}

int rpwi_dev_get_index(const struct ibv_device *d) { return to_dev(d)->index; }

/* ---- async events ---- */

void dev_event(struct dctx *c, const struct ibv_async_event *ev)
{
	struct event_node *n = malloc(sizeof(*n));
	uint64_t one = 1;
	if (!n) {
		rpwi_error("no memory for an async event of type %d: it is lost", ev->event_type);
		return;
	}
	n->ev = *ev;
	rpwi_list_init(&n->link);
	rpwi_lock(RPWI_LOCK_EVENTS);
	bool first = rpwi_list_empty(&c->events);
	rpwi_list_add_tail(&c->events, &n->link);
	if (first && write(c->v.context.async_fd, &one, sizeof(one)) < 0)
		rpwi_error("cannot signal an async event: %s", strerror(errno));
	rpwi_unlock(RPWI_LOCK_EVENTS);
}

static bool event_take(struct dctx *c, struct ibv_async_event *ev)
{
	bool got = false;
	uint64_t n;
	rpwi_lock(RPWI_LOCK_EVENTS);
	if (!rpwi_list_empty(&c->events)) {
		struct event_node *node =
			RPWI_CONTAINER_OF(c->events.next, struct event_node, link);
		rpwi_list_del(&node->link);
		*ev = node->ev;
		free(node);
		got = true;
		if (rpwi_list_empty(&c->events) && read(c->v.context.async_fd, &n, sizeof(n)) < 0)
			rpwi_debug("async descriptor: %s", strerror(errno));
	}
	rpwi_unlock(RPWI_LOCK_EVENTS);
	return got;
}

static bool is_srq_event(enum ibv_event_type t)
{
	return t == IBV_EVENT_SRQ_ERR || t == IBV_EVENT_SRQ_LIMIT_REACHED;
}
static bool is_qp_event(enum ibv_event_type t)
{
	return t == IBV_EVENT_QP_FATAL || t == IBV_EVENT_QP_REQ_ERR ||
	       t == IBV_EVENT_QP_ACCESS_ERR || t == IBV_EVENT_COMM_EST ||
	       t == IBV_EVENT_SQ_DRAINED || t == IBV_EVENT_PATH_MIG ||
	       t == IBV_EVENT_PATH_MIG_ERR || t == IBV_EVENT_QP_LAST_WQE_REACHED;
}

/* An event that nobody will take: of an object that goes away. Those not handed out yet are
 * dropped, as the kernel does. */
static void events_forget(struct dctx *c, const void *object)
{
	uint64_t n;
	rpwi_lock(RPWI_LOCK_EVENTS);
	bool had = !rpwi_list_empty(&c->events);
	for (struct rpwi_list *l = c->events.next, *next; l != &c->events; l = next) {
		struct event_node *node = RPWI_CONTAINER_OF(l, struct event_node, link);
		next = l->next;
		if (!object || node->ev.element.qp == object) {
			rpwi_list_del(l);
			free(node);
		}
	}
	if (had && rpwi_list_empty(&c->events) && read(c->v.context.async_fd, &n, sizeof(n)) < 0)
		rpwi_debug("async descriptor: %s", strerror(errno));
	rpwi_unlock(RPWI_LOCK_EVENTS);
}

void dev_events_forget(struct dctx *c, const void *object) { events_forget(c, object); }

int rpwi_dev_get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev)
{
	struct dctx *c = to_dctx(ctx);
	while (!event_take(c, ev)) {
		if (fcntl(ctx->async_fd, F_GETFL) & O_NONBLOCK) {
			errno = EAGAIN;
			return -1;
		}
		struct pollfd p = {.fd = ctx->async_fd, .events = POLLIN};
		if (poll(&p, 1, -1) < 0)
			return -1;
	}
	if (is_qp_event(ev->event_type))
		to_dqp(ev->element.qp)->events_got++;
	else if (is_srq_event(ev->event_type))
		RPWI_CONTAINER_OF(ev->element.srq, struct dsrq, ibv)->events_got++;
	return 0;
}

void rpwi_dev_ack_async_event(struct ibv_async_event *ev)
{
	if (is_qp_event(ev->event_type)) {
		struct ibv_qp *qp = ev->element.qp;
		pthread_mutex_lock(&qp->mutex);
		qp->events_completed++;
		pthread_cond_signal(&qp->cond);
		pthread_mutex_unlock(&qp->mutex);
	} else if (is_srq_event(ev->event_type)) {
		struct ibv_srq *srq = ev->element.srq;
		pthread_mutex_lock(&srq->mutex);
		srq->events_completed++;
		pthread_cond_signal(&srq->cond);
		pthread_mutex_unlock(&srq->mutex);
	}
}

static bool gids_differ(const struct rpwi_netdev *a, const struct rpwi_netdev *b)
{
	if (a->gid_count != b->gid_count)
		return true;
	for (unsigned i = 0; i < a->gid_count; i++)
		if (memcmp(a->gid[i].raw, b->gid[i].raw, sizeof(a->gid[i].raw)) ||
			a->gid[i].usable != b->gid[i].usable)
			return true;
	return false;
}

/* An address or a link changed: the list is read anew, and whoever has a changed device open is
 * told (IB 11.6.3). Called by the service thread, without locks. */
void dev_refresh(void)
{
	enum { MAX = 64 };
	struct {
		struct dev *d;
		struct rpwi_netdev was;
		bool present;
	} before[MAX];
	int n = 0;
	rpwi_lock(RPWI_LOCK_DEVICES);
	for (struct dev *d = devs; d && n < MAX; d = d->next, n++) {
		before[n].d = d;
		before[n].was = d->net;
		before[n].present = d->present;
	}
	hca_lock();
	list_refresh(NULL);
	hca_unlock();
	for (int i = 0; i < n; i++) {
		struct dev *d = before[i].d;
		bool was_up = before[i].present && before[i].was.up,
		     is_up = d->present && d->net.up;
		bool gids = gids_differ(&before[i].was, &d->net);
		for (struct rpwi_list *l = hca_here.contexts.next; l != &hca_here.contexts;
			l = l->next) {
			struct dctx *c = RPWI_CONTAINER_OF(l, struct dctx, link);
			struct ibv_async_event ev = {.element.port_num = 1};
			if (c->dev != d)
				continue;
			if (was_up != is_up) {
				ev.event_type = is_up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
				dev_event(c, &ev);
			}
			if (gids) {
				ev.event_type = IBV_EVENT_GID_CHANGE;
				dev_event(c, &ev);
			}
		}
	}
	rpwi_unlock(RPWI_LOCK_DEVICES);
	hca_lock();
	gsi_addresses_changed();
	hca_unlock();
}

/* ---- what a fault script has happen to the device (device/fault.c) ---- */

static struct dqp *each_qp(bool (*fn)(struct dqp *q, uint32_t n), uint32_t n)
{
	struct hca *h = &hca_here;
	for (unsigned i = 0; i < h->nslots; i++)
		for (unsigned j = 0; h->qps[i] && j < RPWI_SLOT_QPNS; j++)
			if (h->qps[i][j] && fn(h->qps[i][j], n))
				return h->qps[i][j];
	return NULL;
}
static bool is_qp(struct dqp *q, uint32_t n) { return q->ordinal == n; }
static bool has_scq(struct dqp *q, uint32_t n) { return q->scq->ordinal == n; }
static bool has_rcq(struct dqp *q, uint32_t n) { return q->rcq->ordinal == n; }
static bool has_srq(struct dqp *q, uint32_t n) { return q->srq && q->srq->ordinal == n; }
static bool end_qp(struct dqp *q, uint32_t n)
{
	qp_to_error(q, rpwi_now_ns());
	return false;
}

static void tell_all(enum ibv_event_type type)
{
	struct ibv_async_event ev = {.event_type = type, .element.port_num = 1};
	for (struct rpwi_list *l = hca_here.contexts.next; l != &hca_here.contexts; l = l->next)
		dev_event(RPWI_CONTAINER_OF(l, struct dctx, link), &ev);
}

static void event(const struct rpwi_happening *h)
{
	struct ibv_async_event ev = {.event_type = (enum ibv_event_type)h->value};
	struct dqp *q;
	switch (ev.event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		q = each_qp(is_qp, h->qp);
		if (!q)
			break;
		/* the first three say that it works no more (IB 11.6.3) */
		if (ev.event_type <= IBV_EVENT_QP_ACCESS_ERR)
			qp_to_error(q, rpwi_now_ns());
		ev.element.qp = &q->ibv;
		dev_event(q->ctx, &ev);
		return;
	case IBV_EVENT_CQ_ERR: {
		q = each_qp(has_scq, h->cq);
		struct dcq *cq = q ? q->scq : NULL;
		if (!q && (q = each_qp(has_rcq, h->cq)))
			cq = q->rcq;
		if (!cq)
			break;
		cq->overflowed = true;
		ev.element.cq = &cq->ibv;
		dev_event(q->ctx, &ev);
		return;
	}
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		q = each_qp(has_srq, h->srq);
		if (!q)
			break;
		ev.element.srq = &q->srq->ibv;
		dev_event(q->ctx, &ev);
		return;
	default:
		tell_all(ev.event_type);
		return;
	}
	rpwi_warn("fault script: no object matches an event: it was not created yet, was "
		  "destroyed, or (a CQ, an SRQ) no QP uses it");
}

static void happen(const struct rpwi_happening *h)
{
	struct dqp *q;
	switch (h->act) {
	case RPWI_ACT_EVENT:
		event(h);
		break;
	case RPWI_ACT_PORT_DOWN:
		tell_all(IBV_EVENT_PORT_ERR);
		break;
	case RPWI_ACT_QP_ERROR:
		q = each_qp(is_qp, h->qp);
		if (q)
			qp_to_error(q, rpwi_now_ns());
		break;
	case RPWI_ACT_DEVICE_FATAL:
		rpwi_plan_device_died();
		each_qp(end_qp, 0);
		tell_all(IBV_EVENT_DEVICE_FATAL);
		break;
	default:
		break;
	}
}

const struct fault_ops hca_fault_ops = {
	.key = mr_find,
	.push = cq_push,
	.to_error = qp_to_error,
	.send = gsi_send,
	.feed = gsi_feed,
	.happen = happen,
	.wake = service_wake,
};

/* ---- contexts ---- */

static pid_t own_pid;

static void after_fork_child(void)
{
	service_atfork_child();
	if (rpwi_fork_broken)
		rpwi_lanes_leave(hca_here.lanes);
	hca_here.generation++;
	hca_here.forked_from = hca_here.opens ? own_pid : 0;
	own_pid = getpid();
}

/* The process's place among those that share port 4791, its descriptors and its service thread. */
static int place_take(void)
{
	struct hca *h = &hca_here;
	char why[RPWI_WHY_LEN];
	int rc = rpwi_steer_open(&h->steer);
	if (rc) {
		snprintf(why, sizeof(why), "%s", strerror(-rc));
		if (rc == -ENOSPC)
			rpwi_steer_explain_full(why, sizeof(why));
		rpwi_error("cannot claim a place among the processes that share UDP port 4791: %s",
			why);
		return rc;
	}
	h->lanes = rpwi_steer_lanes(h->steer);
	h->steer_fd = rpwi_steer_fd(h->steer);
	h->nslots = rpwi_steer_slots(h->steer, h->slots, RPWI_ARRAY_LEN(h->slots));
	h->next_idx = (uint32_t)rpwi_random64() % RPWI_SLOT_QPNS;
	h->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (h->wake_fd < 0)
		return -errno;
	tally_begin(h);
	board_open(h->lanes, h->slots[0]);
	rpwi_lanes_place_by(h->lanes, receive_place);
	gsi_begin();
	h->watch_fd = rpwi_netdev_watch_open();
	return h->watch_fd < 0 ? h->watch_fd : service_start();
}

static void descriptors_close(void)
{
	struct hca *h = &hca_here;
	if (h->wake_fd >= 0)
		close(h->wake_fd);
	if (h->watch_fd >= 0)
		close(h->watch_fd);
	h->steer_fd = h->watch_fd = h->wake_fd = -1;
}

/* The entries are the parent's. */
static void copies_forget_ledger(void)
{
	for (unsigned i = 0; i < hca_here.nslots; i++)
		for (unsigned j = 0; hca_here.qps[i] && j < RPWI_SLOT_QPNS; j++)
			if (hca_here.qps[i][j])
				hca_here.qps[i][j]->ledger = NULL;
}

/* What fork means. Nobody can tell at fork which of the two goes on, so the child keeps its copies
 * of the sockets, without a thread that would read from them:
 * - it execs or ends: they close with it, and the parent has noticed nothing;
 * - it calls verbs on what it inherited, as a daemon whose parent has ended: from the first such
 *   call on, packets are its own (service_start);
 * - it opens a device while its parent lives: it is a process like any other, and this function
 *   gives it a place of its own. What it inherited stays the
 *   parent's: the child's copies send nothing and get nothing, and may be destroyed.
 * Both going on with the same QPs is what no device can do (ibv_fork_init(3)). */
static int place_leave_to_parent(void)
{
	struct hca *h = &hca_here;
	char why[RPWI_WHY_LEN];
	h->forked_from = 0;
	rpwi_io_atfork_child();
	mcast_left_to_parent();
	board_left_to_parent();
	farewell_close();
	alive_forget();
	copies_forget_ledger();
	tally_left_to_parent(h);
	descriptors_close();
	/* Not freed: the copies of QPs and address handles point to the old ports, and those to the
	 * old steer. */
	for (unsigned i = 0; i < h->nslots; i++)
		h->qps[i] = NULL;
	h->nslots = 0;
	h->steer = NULL;
	h->lanes = NULL;
	int rc = place_take();
	for (unsigned i = 0; i < h->nports && !rc; i++)
		if (h->port[i].refs &&
			rpwi_port_open(h->steer, &h->port[i].addr, rpwi_port_is_mute(h->port[i].io),
				&h->port[i].io, why, sizeof(why)))
			rpwi_warn("after a fork: %s", why);
	if (!rc)
		gsi_left_to_parent();
	return rc;
}

/* What a device would do after its program's end: acknowledge what has come, and take leave of the
 * peers of its connections. */
static void at_exit(void)
{
	enum { LOCK_MS = 200, ROUNDS = 8 };
	/* Whoever holds the lock may never give it back: it may be this thread, that calls exit in
	 * a signal handler. */
	if (rpwi_fork_broken || rpwi_locks_mine.wanted & RPWI_LOCKS_QPS ||
		!rpwi_lock_within(RPWI_LOCK_HCA, LOCK_MS))
		return;
	if (hca_here.opens && !hca_here.forked_from) {
		send_held(rpwi_now_ns());
		gsi_exit();
		/* What lies in our sockets for other processes of this host goes to them, and not
		 * down with us. */
		for (int i = 0; i < ROUNDS && progress_run(true); i++)
			;
	}
	hca_unlock();
}

int hca_get(void)
{
	struct hca *h = &hca_here;
	static bool forks_hooked;
	int rc;
	/* for rdma_cm alone, too: a listener on all addresses opens no device */
	fault_begin(&hca_fault_ops);
	rpwi_plan_wake = service_wake;
	while (h->closing) {
		hca_unlock();
		sched_yield();
		hca_lock();
	}
	if (h->opens++) {
		rc = h->forked_from && h->forked_from == getppid() ? place_leave_to_parent() : 0;
		if (rc)
			goto fail;
		return 0;
	}
	if (!h->txb.scratch && !(h->txb.scratch = aligned_alloc(4096, RPWI_TXB_SCRATCH))) {
		rc = -ENOMEM;
		goto fail;
	}
	if (!forks_hooked) {
		rc = rpwi_fork_watch(after_fork_child);
		if (rc)
			goto fail;
		own_pid = getpid();
		atexit(at_exit);
		forks_hooked = true;
		const char *crc = rpwi_icrc_choose(rpwi_now_ns);
		rpwi_debug("ICRCs are computed by %s", crc);
	}
	rpwi_tap_init();
	rc = rpwi_guard_install();
	if (rc)
		goto fail;
	rc = place_take();
	if (!rc)
		return 0;
fail:
	hca_put();
	return rc;
}

static void lane_stats_add(struct rpwi_lane_stats *sum)
{
	struct rpwi_lane_stats s = {0};
	rpwi_lanes_stats(hca_here.lanes, &s);
	sum->tx_packets += s.tx_packets;
	sum->tx_refs += s.tx_refs;
	sum->rx_packets += s.rx_packets;
	sum->rx_lost += s.rx_lost;
	sum->wakes += s.wakes;
	sum->stalls += s.stalls;
}

void hca_put(void)
{
	struct hca *h = &hca_here;
	if (--h->opens)
		return;
	h->closing = true;
	service_stop();
	h->closing = false;
	gsi_hca_gone();
	ports_tend(true, receive_for_others);
	mcast_hca_gone();
	alive_forget();
	farewell_close();
	descriptors_close();
	lane_stats_add(&h->lanes_gone);
	tally_end(h);
	board_close();
	if (h->steer)
		rpwi_steer_close(h->steer);
	h->steer = NULL;
	h->lanes = NULL;
	h->forked_from = 0;
	for (unsigned i = 0; i < h->nslots; i++) {
		free(h->qps[i]);
		h->qps[i] = NULL;
	}
	h->nslots = 0;
	rpwi_tap_flush();
}

/* ---- statistics ---- */

void rpwi_dev_stats_print(FILE *to)
{
	struct hca *h = &hca_here;
	hca_lock();
	struct rpwi_qp_stats s = h->gone;
	tally_sum(&s);
	for (unsigned i = 0; i < h->nslots; i++)
		for (unsigned j = 0; h->qps[i] && j < RPWI_SLOT_QPNS; j++)
			if (h->qps[i][j]) {
				qp_hold(h->qps[i][j]);
				rpwi_counts_add(&s, &h->qps[i][j]->t.stats);
			}
	struct hca_counters n = h->n;
	struct rpwi_port_stats ports = h->ports_gone;
	struct rpwi_lane_stats lanes = h->lanes_gone;
	for (unsigned i = 0; i < h->nports; i++)
		if (h->port[i].refs)
			port_stats_add(h->port[i].io, &ports);
	lane_stats_add(&lanes);
	hca_unlock();
	const struct {
		const char *name;
		uint64_t v;
	} rows[] = {
		{"packets sent", s.tx_packets},
		{"payload bytes sent", s.tx_bytes},
		{"packets received", s.rx_packets},
		{"payload bytes received", s.rx_bytes},
		{"packets sent again", s.retransmits},
		{"probes after a silence", s.probes},
		{"time-outs", s.timeouts},
		{"RNR NAKs sent", s.rnr_nak_tx},
		{"RNR NAKs received", s.rnr_nak_rx},
		{"sequence NAKs sent", s.seq_nak_tx},
		{"sequence NAKs received", s.seq_nak_rx},
		{"duplicates received", s.rx_duplicate},
		{"out of order received", s.rx_out_of_order},
		{"from a wrong peer", s.rx_wrong_peer},
		{"in a wrong state", s.rx_wrong_state},
		{"bad opcode or length", s.rx_bad_opcode + s.rx_bad_length},
		{"bad Q_Key", s.rx_bad_qkey},
		{"no receive posted (UC, UD)", s.rx_no_rwqe},
		{"ICRC errors", n.icrc_errors},
		{"undecodable", n.decode_errors},
		{"for an unknown QP", n.no_qp},
		{"handed to another process", n.handed_over},
		{"of them lost", ports.hand_over_lost},
		{"handed to us by others", ports.taken_over},
		{"port group learned anew", ports.resteered},
		{"lost in a full socket", ports.rx_overflow},
		{"refused when sent", ports.tx_refused},
		{"too big for the path", n.path[RPWI_PATH_TOO_BIG]},
		{"hop limit used up", n.path[RPWI_PATH_HOPS]},
		{"port unreachable", n.path[RPWI_PATH_NO_PORT]},
		{"host unreachable", n.path[RPWI_PATH_NO_HOST]},
		{"rejected by a firewall", n.path[RPWI_PATH_FORBIDDEN]},
		{"changed by a NAT", n.path[RPWI_PATH_NAT]},
		{"lost for their size", n.path[RPWI_PATH_SIZE_LOST]},
		{"UDP port held by another", n.path_held},
		{"ICMP not believed", n.icmp_unbelieved + ports.icmp_lost},
		{"CQ overruns", n.cq_overflows},
		{"pacing stalls (UC, UD)", n.pace_stalls},
		{"sent through memory", lanes.tx_packets},
		{"of them by reference", lanes.tx_refs},
		{"received through memory", lanes.rx_packets},
		{"of them not to be fetched", lanes.rx_lost},
		{"of them with a wake-up", lanes.wakes},
		{"waits for room there", lanes.stalls},
		{"hosts asked whether peers live", alive_stats()->asked},
		{"answers to that", alive_stats()->answers},
		{"peers that had ended", alive_stats()->gone},
		{"READ from the peer's memory", s.reads_alone},
		{"written into a stopped peer's", s.writes_alone},
		{"receive batches", n.rx_batches},
		{"send batches", n.tx_batches},
		{"inline polls", n.inline_polls},
		{"of them in vain", n.inline_empty},
		{"service thread wake-ups", n.service_wakeups},
	};
	fprintf(to, "ropeway: statistics of process %d\n", (int)getpid());
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rows); i++)
		fprintf(to, "  %-28s %llu\n", rows[i].name, (unsigned long long)rows[i].v);
	hca_lock();
	for (struct rpwi_list *l = h->peers.next; l != &h->peers; l = l->next) {
		const struct rpwi_cc *cc = &RPWI_CONTAINER_OF(l, struct dpeer, link)->cc;
		fprintf(to,
			"  window of a peer process: %u packets (at most %u), in flight %u, round "
			"trip %.1f us, halved %llu times\n",
			cc->cwnd, cc->cwnd_max, cc->inflight, (double)cc->srtt_ns / 1000,
			(unsigned long long)cc->losses);
	}
	mcast_stats_print(to);
	gsi_stats_print(to);
	hca_unlock();
	rpwi_plan_print(to);
	for (int k = 1; k < RPWI_NAK_COUNT; k++)
		fprintf(to, "  NAKs \"%s\": sent %llu, received %llu\n", rpwi_nak_name[k],
			(unsigned long long)s.nak_tx[k], (unsigned long long)s.nak_rx[k]);
}
