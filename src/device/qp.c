/* SPDX-License-Identifier: BSD-3-Clause */
/* qp.c - queue pairs of the device: made and ended, attributes, and what the transport (rc/) calls.
 * Numbers are qpn.c's, posting is post.c's and build.c's. */
#include <stdlib.h>

#include "check/queue.h"
#include "device/alive.h"
#include "device/board.h"
#include "device/checked.h"
#include "device/comp_cntr.h"
#include "device/cq.h"
#include "device/devices.h"
#include "device/fact.h"
#include "device/fault.h"
#include "device/ledger.h"
#include "device/mem.h"
#include "device/path.h"
#include "device/ports.h"
#include "device/progress.h"
#include "device/qp.h"
#include "device/slots.h"
#include "device/tally.h"
#include "explain/verbs.h"

/* ---- what the transport calls ---- */

static void revoke(const struct dqp *q)
{
	if (q->t.type == IBV_QPT_RC)
		rpwi_lanes_revoke_qp(hca_here.lanes, q->t.attr.dest_qp_num);
}

static void on_complete(struct rpwi_qp *t, bool recv, const struct ibv_wc *wc, bool solicited)
{
	struct dqp *q = dqp_of(t);
	if (RPWI_UNLIKELY(rpwi_explain_on))
		rpwi_explain_complete(t->qpn, recv, wc);
	if (RPWI_UNLIKELY(wc->status != IBV_WC_SUCCESS)) {
		board_qp_fails(q);
		if (!recv)
			/* its memory is the program's again, whatever the peer got of it */
			revoke(q);
	}
	if (RPWI_UNLIKELY(wc->status == IBV_WC_RETRY_EXC_ERR))
		path_retries_exceeded(&hca_here, q);
	if (RPWI_UNLIKELY(rpwi_plan_on) && fault_complete(q, recv, wc, solicited))
		return;
	cq_push(recv ? q->rcq : q->scq, wc, solicited);
}

static void on_event(struct rpwi_qp *t, enum ibv_event_type type)
{
	struct dqp *q = dqp_of(t);
	struct ibv_async_event ev = {.event_type = type};
	if (type == IBV_EVENT_SRQ_LIMIT_REACHED) {
		if (!q->srq)
			return;
		ev.element.srq = &q->srq->ibv;
	} else {
		ev.element.qp = &q->ibv;
	}
	dev_event(q->ctx, &ev);
}

static bool peer_rejects(struct rpwi_qp *t)
{
	const struct dqp *q = dqp_of(t);
	return board_rejects(q) || path_no_port(q);
}

const struct rpwi_qp_ops device_qp_ops = {
	.mem_check = mem_check,
	.mem_write = mem_write,
	.mem_receive = mem_receive,
	.mem_read = mem_read,
	.mem_map = mem_map,
	.mem_atomic = mem_atomic,
	.mem_atomic_write = mem_atomic_write,
	.mem_sink = mem_sink,
	.peer_read = board_read,
	.take_over = board_take_over,
	.peer_write = board_write,
	.give_over = board_give_over,
	.peer_rejects = peer_rejects,
	.invalidate = mem_invalidate,
	.bind_mw = mem_bind_mw,
	.complete = on_complete,
	.count = comp_cntr_count,
	.event = on_event,
};

/* ---- life ---- */

static unsigned mtu_bytes(enum ibv_mtu m)
{
	return m >= IBV_MTU_256 && m <= IBV_MTU_4096 ? 128u << m : RPWI_MTU_MAX;
}

static void qp_free(struct dqp *q);

/* 0 or -errno. */
static int caps_check(const struct ibv_qp_init_attr_ex *a)
{
	const struct ibv_qp_cap *c = &a->cap;
	/* of the three there are, those of the profile */
	if ((unsigned)a->qp_type > 63 || !rpwi_like_has(RPWI_LIKE_TRANSPORTS, 1ull << a->qp_type))
		return -EOPNOTSUPP;
	if (!a->send_cq || !a->recv_cq || !a->pd)
		return -EINVAL;
	if (rpwi_like_beyond(RPWI_LIKE_MAX_QP_WR, c->max_send_wr) ||
		rpwi_like_beyond(RPWI_LIKE_MAX_SGE, c->max_send_sge) ||
		rpwi_like_beyond(RPWI_LIKE_MAX_INLINE_DATA, c->max_inline_data))
		return -EINVAL;
	if (!a->srq && (rpwi_like_beyond(RPWI_LIKE_MAX_QP_WR, c->max_recv_wr) ||
			       rpwi_like_beyond(RPWI_LIKE_MAX_SGE, c->max_recv_sge)))
		return -EINVAL;
	return 0;
}

/* What is asked for and what it gets: 0 or -errno. The caller frees the half-made one. */
static int qp_sized(struct dqp *q, struct ibv_qp_init_attr_ex *a)
{
	rpwi_list_init(&q->tx_link);
	rpwi_list_init(&q->held_link);
	rpwi_list_init(&q->rx_link);
	rpwi_list_init(&q->srq_link);
	q->scq = to_dcq(a->send_cq);
	q->rcq = to_dcq(a->recv_cq);
	q->srq = a->srq ? RPWI_CONTAINER_OF(a->srq, struct dsrq, ibv) : NULL;
	q->sq_sig_all = a->sq_sig_all;
	if (a->srq)
		a->cap.max_recv_wr = a->cap.max_recv_sge = 0;
	/* Where SGEs fit inline data does too, asked for or not: programs (rdma_xclient) count on
	 * what hardware gives them. */
	a->cap.max_inline_data = RPWI_MAX(a->cap.max_inline_data,
		RPWI_MIN(a->cap.max_send_sge * (uint32_t)sizeof(struct ibv_sge),
			(uint32_t)rpwi_like_most(RPWI_LIKE_MAX_INLINE_DATA)));
	q->cap = a->cap;
	q->cap.max_send_wr = RPWI_MAX(a->cap.max_send_wr, 1u);
	q->cap.max_send_sge = RPWI_MAX(a->cap.max_send_sge, 1u);
	return q->srq ? 0
		      : rpwi_rq_init(&q->rq, RPWI_MAX(a->cap.max_recv_wr, 1u),
				RPWI_MAX(a->cap.max_recv_sge, 1u), false);
}

/* What it is made of has to be there. The lock is held. 0 or -errno. */
static int parts_check(const struct ibv_qp_init_attr_ex *a)
{
	int rc = pd_usable(a->pd);
	if (!rc && (!live_is(LIVE_CQ, a->send_cq) || !live_is(LIVE_CQ, a->recv_cq) ||
			   (a->srq && !live_is(LIVE_SRQ, a->srq))))
		rc = -ENOENT;
	return rc;
}

enum {
	ATOMICS = 1 << IBV_WR_ATOMIC_CMP_AND_SWP | 1 << IBV_WR_ATOMIC_FETCH_AND_ADD,
	KEY_OPS = 1 << IBV_WR_SEND_WITH_INV | 1 << IBV_WR_LOCAL_INV,
};

/* What the device has less than the transport. */
static struct rpwi_qp_bounds bounds(void)
{
	const uint64_t *most = rpwi_like()->has;
	uint64_t caps = most[RPWI_LIKE_DEVICE_CAP_FLAGS];
	uint32_t without = most[RPWI_LIKE_ATOMIC_CAP] == IBV_ATOMIC_NONE ? ATOMICS : 0;
	if (!(caps & RPWI_LIKE_ATOMIC_WRITE))
		without |= 1u << RPWI_WR_ATOMIC_WRITE;
	if (!(caps & IBV_DEVICE_MEM_MGT_EXTENSIONS))
		without |= KEY_OPS;
	return (struct rpwi_qp_bounds){.message = (uint32_t)most[RPWI_LIKE_MAX_MSG_SZ],
		.send = (uint32_t)most[RPWI_LIKE_MAX_SEND_SZ],
		.opcodes = ~without,
		.sge_rd = (uint16_t)most[RPWI_LIKE_MAX_SGE_RD],
		.rd_atomic_out = (uint8_t)most[RPWI_LIKE_MAX_QP_INIT_RD_ATOM],
		.rd_atomic_in = (uint8_t)most[RPWI_LIKE_MAX_QP_RD_ATOM],
		.mtu = (uint8_t)dev_mtu_most()};
}

static const struct rpwi_qp_ops *qp_ops(void)
{
	const struct rpwi_qp_ops *ops = slots_on() ? slots_qp_ops(&device_qp_ops) : &device_qp_ops;
	return RPWI_UNLIKELY(rpwi_check_on) ? checked_qp_ops(ops) : ops;
}

/* A number, and the transport's part; the lock is held. 0 or -errno. */
static int qp_numbered(struct dqp *q, const struct ibv_qp_init_attr_ex *a)
{
	enum ibv_qp_type type = a->qp_type;
	uint32_t qpn = 0;
	int rc = parts_check(a);
	if (!rc)
		rc = qpn_alloc(q, &qpn);
	if (rc)
		return rc;
	q->pd = to_dpd(a->pd);
	const struct rpwi_qp_bounds bound = bounds();
	struct rpwi_qp_init init = {.ops = qp_ops(),
		.bounds = &bound,
		.user = q,
		.type = type,
		.qpn = qpn,
		.cap = q->cap,
		.sq_sig_all = q->sq_sig_all,
		.rq = q->srq ? &q->srq->rq : &q->rq};
	rc = rpwi_qp_init(&q->t, &init);
	if (!rc && RPWI_UNLIKELY(rpwi_check_on))
		q->t.counted = CHECKED_COUNTS;
	if (!rc) {
		q->ibv.context = &q->ctx->v.context;
		rc = live_add(&q->live, LIVE_QP, &q->ibv, qpn);
		if (rc)
			rpwi_qp_fini(&q->t);
	}
	if (rc) {
		qpn_free(qpn);
		return rc;
	}
	if (type == IBV_QPT_UD) {
		/* A UD message is one packet, of what the port carries. */
		q->t.attr.path_mtu = dev_mtu(q->ctx->dev);
		q->t.mtu = mtu_bytes(q->t.attr.path_mtu);
	}
	tally_qp(q);
	board_qp_is(q);
	q->lock = qplock_choose();
	q->pd->refs++;
	q->scq->refs++;
	q->rcq->refs++;
	if (q->srq)
		q->srq->refs++;
	return 0;
}

static void qp_shown(struct dqp *q, const struct ibv_qp_init_attr_ex *a)
{
	q->ibv.qp_context = a->qp_context;
	q->ibv.pd = a->pd;
	q->ibv.send_cq = a->send_cq;
	q->ibv.recv_cq = a->recv_cq;
	q->ibv.srq = a->srq;
	q->ibv.qp_num = q->t.qpn;
	q->ibv.qp_type = a->qp_type;
	q->ibv.state = IBV_QPS_RESET;
	pthread_mutex_init(&q->ibv.mutex, NULL);
	pthread_cond_init(&q->ibv.cond, NULL);
}

/* NULL and errno, as the verb. */
static struct dqp *qp_new(struct ibv_context *c, struct ibv_qp_init_attr_ex *a)
{
	const struct ibv_qp_cap asked = a->cap;
	int rc = caps_check(a);
	if (!rc)
		rc = -rpwi_plan_call(RPWI_CALL_CREATE_QP);
	struct dqp *q = rc ? NULL : calloc(1, sizeof(*q));
	if (!q)
		return rpwi_none(rc ? -rc : ENOMEM);
	q->ctx = to_dctx(c);
	rc = qp_sized(q, a);
	if (!rc && slots_on())
		rc = slots_make(q);
	if (!rc) {
		hca_lock();
		rc = qp_numbered(q, a);
		q->ordinal = rc ? 0 : ++hca_here.made[LIVE_QP];
		hca_unlock();
	}
	if (rc) {
		qp_free(q);
		return rpwi_none(-rc);
	}
	a->cap = q->cap;
	qp_shown(q, a);
	if (RPWI_UNLIKELY(rpwi_check_on))
		check_qp_made(&q->ibv, &q->t, &asked, &q->cap);
	return q;
}

static void qp_free(struct dqp *q)
{
	if (!q)
		return;
	slots_free(q);
	rpwi_rq_fini(&q->rq);
	free(q);
}

struct ibv_qp *rpwi_dev_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd};
	struct dqp *q = qp_new(pd->context, &ex);
	if (!q)
		return NULL;
	attr->cap = ex.cap;
	return &q->ibv;
}

static uint32_t create_flags(const struct ibv_qp_init_attr_ex *a)
{
	return a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? a->create_flags : 0;
}

static bool create_flags_known(const struct ibv_qp_init_attr_ex *a)
{
	const uint32_t known = a->qp_type == IBV_QPT_UD ? IBV_QP_CREATE_BLOCK_SELF_MCAST_LB : 0;
	return !(create_flags(a) & ~known);
}

/* bits of IBV_QP_EX_WITH_* */
static uint64_t ops_missing(void)
{
	uint32_t has = bounds().opcodes;
	uint64_t missing = has & ATOMICS ? 0
					 : IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
						   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	if (!(has & KEY_OPS))
		missing |= IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV;
	if (!(has >> RPWI_WR_ATOMIC_WRITE & 1))
		missing |= IBV_QP_EX_WITH_ATOMIC_WRITE;
	return missing;
}

struct ibv_qp *dev_create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *attr)
{
	RPWI_CHECK_HERE();
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return dev_refuse("ibv_create_qp_ex");
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) ||
		(attr->comp_mask &
			~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
				    IBV_QP_INIT_ATTR_CREATE_FLAGS)) ||
		!create_flags_known(attr))
		return rpwi_none(EOPNOTSUPP);
	uint64_t ops = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS ? attr->send_ops_flags : 0;
	const uint64_t known = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
			       IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
			       IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
			       IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV |
			       IBV_QP_EX_WITH_ATOMIC_WRITE;
	if (ops & ~known || ops & ops_missing())
		return rpwi_none(EOPNOTSUPP);
	struct dqp *q = qp_new(c, attr);
	if (!q)
		return NULL;
	q->blocks_own = create_flags(attr) & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		build_attach(q);
	rpwi_explain(RPWI_EXPLAIN_CALL,
		"ibv_create_qp_ex: QP 0x%06x, room for %u send%s and %u receive%s", q->t.qpn,
		q->cap.max_send_wr, rpwi_plural(q->cap.max_send_wr), q->cap.max_recv_wr,
		rpwi_plural(q->cap.max_recv_wr));
	return &q->ibv;
}

static void ports_drop(struct dqp *q)
{
	for (unsigned i = 0; i < q->nports; i++)
		port_put(q->ports[i]);
	q->nports = 0;
}

int rpwi_dev_destroy_qp(struct ibv_qp *ibv)
{
	RPWI_WHOLE;
	struct dqp *q = to_dqp(ibv);
	if (!hca_lock_live(LIVE_QP, ibv))
		return ENOENT;
	rpwi_explain(RPWI_EXPLAIN_CALL, "ibv_destroy_qp 0x%06x", ibv->qp_num);
	if (RPWI_UNLIKELY(q->groups)) {
		/* as the kernel has it */
		rpwi_warn("ibv_destroy_qp: QP 0x%06x is attached to %u multicast group%s: "
			  "ibv_detach_mcast first",
			q->t.qpn, q->groups, rpwi_plural(q->groups));
		hca_unlock();
		return EBUSY;
	}
	qp_hold(q);
	/* The peer may wait for the last ACK; and a NIC would have sent the messages that wait for
	 * company. */
	if (rpwi_qp_ack_owed(&q->t) || q->gathers)
		send_kick(q, false, rpwi_now_ns());
	if (RPWI_UNLIKELY(rpwi_explain_on))
		rpwi_explain_state(&q->t);
	if (RPWI_UNLIKELY(rpwi_check_on))
		check_qp_gone(ibv);
	live_del(&q->live);
	send_forget(q);
	revoke(q);
	board_qp_gone(q);
	ledger_qp_gone(q);
	mw_qp_gone(q);
	comp_cntr_qp_gone(q);
	qpn_free(q->t.qpn);
	receive_forget(q);
	tally_qp_gone(q);
	rpwi_qp_fini(&q->t);
	ports_drop(q);
	peer_put(q->peer);
	cq_purge_qp(q->scq, q->t.qpn);
	if (q->rcq != q->scq)
		cq_purge_qp(q->rcq, q->t.qpn);
	q->pd->refs--;
	q->scq->refs--;
	q->rcq->refs--;
	if (q->srq)
		q->srq->refs--;
	qplock_give_back(q->lock);
	hca_unlock();
	dev_events_forget(q->ctx, ibv);
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->events_completed != q->events_got)
		pthread_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	qp_free(q);
	return 0;
}

/* ---- attributes ---- */

/* A UD QP receives on every address of its device. */
static int ud_ports_open(struct dqp *q)
{
	const struct dev *d = q->ctx->dev;
	char why[RPWI_WHY_LEN] = "no usable GID";
	int err = -EADDRNOTAVAIL;
	for (unsigned i = 0; i < d->net.gid_count; i++) {
		if (!d->net.gid[i].usable)
			continue;
		struct dport *p = port_get(&d->net.gid[i].addr, false, why, sizeof(why), &err);
		if (p) {
			rpwi_port_want_ttl(p->io, true); /* for the GRH of received datagrams */
			q->ports[q->nports++] = p;
		}
	}
	if (q->nports)
		return 0;
	rpwi_error("%s: cannot use UDP port 4791: %s", d->net.name, why);
	path_port_held(&hca_here, why);
	return err;
}

static bool is_to_group(const struct dqp *q, const struct ibv_ah_attr *attr)
{
	struct rpwi_addr a;
	gid_to_addr(&attr->grh.dgid, q->ctx->dev->net.ifindex, &a);
	return attr->is_global && rpwi_addr_is_mcast(&a);
}

/* As kernel rxe, the device takes what the program asks for, up to its max_mtu: short messages
 * arrive, longer ones are lost. To this host's own addresses all fit. */
static void warn_of_mtu(const struct dqp *q, enum ibv_mtu asked)
{
	const struct rpwi_netdev *net = &q->ctx->dev->net;
	unsigned fits = mtu_bytes(dev_mtu(q->ctx->dev));
	if (mtu_bytes(asked) > fits)
		rpwi_warn("%s: path MTU %u is larger than the %u bytes that interface %s allows: "
			  "messages of more than %u bytes will fail with status 12. Ask for the "
			  "port's active_mtu, or: ip link set %s mtu %u",
			net->name, mtu_bytes(asked), fits, net->ifname, fits, net->ifname,
			mtu_bytes(asked) + 80);
}

/* A change of attributes. */
struct change {
	const struct ibv_qp_attr *attr; /* the program's, or `as_is` */
	int mask;
	struct ibv_qp_attr as_is; /* with the address as it will be used, ... */
	struct rpwi_av av;
	struct dport *port; /* ... and what that takes */
	struct dpeer *peer;
};

static bool becomes(const struct change *c, enum ibv_qp_state state)
{
	return c->mask & IBV_QP_STATE && c->attr->qp_state == state;
}

/* The lock is held, but not while it waits for a fault script or a host, which may take a second. 0
 * or an errno. */
static int change_waits(struct dqp *q, const struct change *c)
{
	bool finds = c->mask & IBV_QP_AV && becomes(c, IBV_QPS_RTR) && q->t.state == IBV_QPS_INIT;
	int err = 0;
	if (RPWI_LIKELY(!finds && !rpwi_plan_on))
		return 0;
	hca_unlock();
	if (RPWI_UNLIKELY(rpwi_plan_on))
		err = rpwi_plan_modify_qp(
			c->mask & IBV_QP_STATE ? (int)c->attr->qp_state : RPWI_ANY, q->ordinal);
	if (!err && finds) {
		err = -ah_find_host(q->ctx, &c->attr->ah_attr);
		if (err && RPWI_UNLIKELY(rpwi_explain_on))
			rpwi_explain_modify(&q->t, IBV_QPS_INIT, c->attr, c->mask, -err);
	}
	hca_lock();
	return err;
}

static int change_address(struct dqp *q, struct change *c)
{
	const struct ibv_qp_attr *a = c->attr;
	uint32_t dqpn = 0;
	if (((c->mask & IBV_QP_PORT) && a->port_num != 1) ||
		((c->mask & IBV_QP_PKEY_INDEX) && a->pkey_index))
		return -EINVAL;
	if (!(c->mask & IBV_QP_AV)) {
		bool opens = becomes(c, IBV_QPS_RTR) && q->t.type == IBV_QPT_UD && !q->nports;
		return opens ? ud_ports_open(q) : 0;
	}
	if (is_to_group(q, &a->ah_attr)) {
		rpwi_warn("QP 0x%06x: only UD sends to a multicast group", q->t.qpn);
		return -EINVAL;
	}
	/* A connection's hop limit is its route's, as the kernel has it for all of RoCE: what the
	 * program says counts for datagrams alone. */
	c->as_is = *a;
	c->attr = &c->as_is;
	if (q->t.type != IBV_QPT_UD)
		c->as_is.ah_attr.grh.hop_limit = 0;
	if (q->t.type == IBV_QPT_RC)
		dqpn = c->mask & IBV_QP_DEST_QPN ? a->dest_qp_num : q->t.attr.dest_qp_num;
	int rc = ah_resolve(q->ctx, &c->as_is.ah_attr, dqpn,
		mtu_bytes(c->mask & IBV_QP_PATH_MTU ? a->path_mtu : q->t.attr.path_mtu), &c->av,
		&c->port, &c->peer);
	c->as_is.ah_attr.grh.hop_limit = rc ? 0 : c->av.hop_limit;
	if (!rc && c->mask & IBV_QP_PATH_MTU && !c->av.loopback_zone)
		warn_of_mtu(q, a->path_mtu);
	return rc;
}

/* The transport has taken it. */
static void change_made(struct dqp *q, struct change *c, enum ibv_qp_state was, uint64_t now_ns)
{
	if (c->port) {
		/* The old one, if any, stays until the new one is there: the same port is not
		 * opened twice. */
		ports_drop(q);
		q->ports[q->nports++] = c->port;
		send_unlist(q);
		peer_put(q->peer);
		q->peer = c->peer;
	}
	if (becomes(c, IBV_QPS_RESET) && was != IBV_QPS_RESET) {
		if (RPWI_UNLIKELY(rpwi_check_on))
			check_qp_reset(&q->ibv);
		if (RPWI_UNLIKELY(q->slots))
			slots_reset(q);
		send_forget(q);
		cq_purge_qp(q->scq, q->t.qpn);
		cq_purge_qp(q->rcq, q->t.qpn);
		board_qp(q);
		ledger_qp_gone(q);
	} else {
		if (q->t.type == IBV_QPT_RC && q->t.state == IBV_QPS_RTR)
			alive_wanted(now_ns);
		send_kick(q, false, now_ns);
	}
	q->ibv.state = q->t.state;
	if (c->mask & IBV_QP_STATE) {
		board_qp_is(q);
		tally_qp_connects(q);
	}
}

int rpwi_dev_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct dqp *q = to_dqp(ibv);
	struct change c = {.attr = attr, .mask = mask};
	hca_lock();
	int rc = live_is(LIVE_QP, ibv) ? change_waits(q, &c) : ENOENT;
	if (rc) {
		hca_unlock();
		return rc;
	}
	qp_hold(q);
	enum ibv_qp_state was = q->t.state;
	rc = change_address(q, &c);
	uint64_t now_ns = rpwi_now_ns();
	if (!rc && (becomes(&c, IBV_QPS_ERR) || becomes(&c, IBV_QPS_RESET))) {
		if (rpwi_qp_ack_owed(&q->t) || q->gathers) /* as in destroy */
			send_kick(q, false, now_ns);
		revoke(q);
	}
	if (!rc && becomes(&c, IBV_QPS_ERR) && was != IBV_QPS_ERR)
		rpwi_fact(RPWI_FACT_TO_ERROR, q->t.qpn, 1, NULL); /* before what it flushes */
	if (!rc)
		rc = rpwi_qp_modify(&q->t, c.attr, mask, mask & IBV_QP_AV ? &c.av : NULL, now_ns);
	q->path.turn = 0;
	if (RPWI_UNLIKELY(rpwi_explain_on))
		rpwi_explain_modify(&q->t, was, c.attr, mask, rc);
	if (rc) {
		port_put(c.port);
		peer_put(c.peer);
	} else {
		change_made(q, &c, was, now_ns);
	}
	if (RPWI_UNLIKELY(rpwi_check_on) && !rc)
		check_modified(ibv, attr, mask);
	hca_unlock();
	return -rc;
}

void qp_to_error(struct dqp *q, uint64_t now_ns)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	qp_hold(q);
	if (q->t.state == IBV_QPS_RESET || q->t.state == IBV_QPS_ERR)
		return;
	revoke(q);
	if (!rpwi_qp_modify(&q->t, &attr, IBV_QP_STATE, NULL, now_ns))
		send_kick(q, false, now_ns);
	board_qp_is(q);
	q->ibv.state = q->t.state;
}

int rpwi_dev_query_qp(
	struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct dqp *q = to_dqp(ibv);
	if (!hca_lock_live(LIVE_QP, ibv))
		return ENOENT;
	qp_hold(q);
	rpwi_qp_query(&q->t, attr);
	attr->cap = q->cap;
	ibv->state = q->t.state;
	hca_unlock();
	if (init)
		*init = (struct ibv_qp_init_attr){.qp_context = ibv->qp_context,
			.send_cq = ibv->send_cq,
			.recv_cq = ibv->recv_cq,
			.srq = ibv->srq,
			.cap = q->cap,
			.qp_type = ibv->qp_type,
			.sq_sig_all = q->sq_sig_all};
	return 0;
}
