/* SPDX-License-Identifier: BSD-3-Clause */
/* checked.c - see checked.h. The calls themselves are the device's; before and behind them the
 * checker is told. */
#include "device/checked.h"

#include "check/events.h"
#include "check/forked.h"
#include "check/keys.h"
#include "check/queue.h"
#include "check/race.h"
#include "device/progress.h"
#include "device/cq.h"

/* The device's own, of all contexts, CQs and QPs. */
static struct {
	struct ibv_context_ops ops;
	int (*start)(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr);
	int (*next)(struct ibv_cq_ex *cq);
	int (*complete)(struct ibv_qp_ex *qp);
	struct rpwi_qp_ops qp, checked_qp;
} device;

/* ---- the data path ---- */

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	/* of ibv_wr_complete the site is known already */
	if (to_dqp(qp)->batch != wr || !wr)
		RPWI_CHECK_HERE();
	struct check_qp *q = check_sends_begin(qp, wr);
	int rc = device.ops.post_send(qp, wr, bad);
	check_sends_end(q, rc ? *bad : NULL, rc);
	return rc;
}

/* What came before now is taken before anything else can come. */
static void look(const struct ibv_qp *qp)
{
	hca_lock_serving();
	progress_run(true);
	hca_unlock();
	check_looked(qp);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	RPWI_CHECK_HERE();
	bool looks = check_receive_comes(qp);
	check_recvs_begin(qp, wr);
	int rc = device.ops.post_recv(qp, wr, bad);
	check_recvs_end(qp, rc ? *bad : NULL);
	if (RPWI_UNLIKELY(looks))
		look(qp);
	return rc;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	RPWI_CHECK_HERE();
	bool late = check_srq_receive_comes(srq);
	check_srq_recvs_begin(srq, wr);
	int rc = device.ops.post_srq_recv(srq, wr, bad);
	check_srq_recvs_end(srq, rc ? *bad : NULL);
	if (RPWI_UNLIKELY(late))
		check_srq_received(srq);
	return rc;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	RPWI_CHECK_HERE();
	int got = device.ops.poll_cq(cq, n, wc);
	if (RPWI_UNLIKELY(rpwi_check_is_child))
		check_child_polls(cq);
	if (got > 0)
		check_polled(cq, wc, got);
	if (got >= 0 && cq->channel)
		check_drained(cq, (unsigned)got, got < n);
	return got;
}

static int req_notify_cq(struct ibv_cq *ibv, int solicited)
{
	RPWI_CHECK_HERE();
	struct dcq *cq = to_dcq(ibv);
	cq_lock(cq);
	struct check_arm a = {.solicited = solicited,
		.already =
			cq->notify == NOTIFY_ALL || (solicited && cq->notify == NOTIFY_SOLICITED),
		.left = atomic_load_explicit(&cq->tail, memory_order_acquire) -
			atomic_load_explicit(&cq->head, memory_order_relaxed)};
	cq_unlock(cq);
	rpwi_lock(RPWI_LOCK_EVENTS);
	a.pending = cq->pending_events;
	rpwi_unlock(RPWI_LOCK_EVENTS);
	int rc = device.ops.req_notify_cq(ibv, solicited);
	if (!rc)
		check_armed(ibv, &a);
	return rc;
}
static const struct ibv_pd *pd_root(const struct ibv_pd *pd) { return &to_dpd(pd)->ibv; }

void checked_context(struct verbs_context *v)
{
	struct ibv_context_ops *o = &v->context.ops;
	device.ops = *o;
	o->req_notify_cq = req_notify_cq;
	check_pd_root = pd_root;
	o->poll_cq = poll_cq;
	o->post_send = post_send;
	o->post_recv = post_recv;
	o->post_srq_recv = post_srq_recv;
}

/* ---- extended CQs and QPs ---- */

static int polled_ex(struct ibv_cq_ex *ex, int rc)
{
	struct dcq *cq = RPWI_CONTAINER_OF(ex, struct dcq, ex);
	if (!rc)
		check_polled(&cq->ibv, &cq->cur, 1);
	if (cq->ibv.channel)
		check_drained(&cq->ibv, !rc, rc == ENOENT);
	return rc;
}

static int ex_start(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	RPWI_CHECK_HERE();
	return polled_ex(cq, device.start(cq, attr));
}

static int ex_next(struct ibv_cq_ex *cq)
{
	RPWI_CHECK_HERE();
	return polled_ex(cq, device.next(cq));
}

void checked_cq_ex(struct ibv_cq_ex *cq)
{
	device.start = cq->start_poll;
	device.next = cq->next_poll;
	cq->start_poll = ex_start;
	cq->next_poll = ex_next;
}

static int wr_complete(struct ibv_qp_ex *qp)
{
	RPWI_CHECK_HERE();
	return device.complete(qp);
}

void checked_qp_ex(struct ibv_qp_ex *qp)
{
	device.complete = qp->wr_complete;
	qp->wr_complete = wr_complete;
}

/* ---- what the transport calls ---- */

static bool waits_solicited(struct dcq *cq)
{
	cq_lock(cq);
	bool waits = cq->notify == NOTIFY_SOLICITED;
	cq_unlock(cq);
	return waits;
}

static void completes(struct rpwi_qp *t, bool recv, const struct ibv_wc *wc, bool solicited)
{
	if (wc->status == IBV_WC_REM_ACCESS_ERR && !recv)
		checked_refused(t, wc);
	check_completes(t, recv, wc);
	if (RPWI_UNLIKELY(wc->status == IBV_WC_RETRY_EXC_ERR))
		check_unanswered(t);
	struct dcq *cq = dqp_of(t)->rcq;
	if (recv && wc->status == IBV_WC_SUCCESS && cq->ibv.channel && waits_solicited(cq))
		check_unsolicited(&cq->ibv, solicited);
	device.qp.complete(t, recv, wc, solicited);
}

/* The target has to see it. */
static const uint8_t *no_peer_read(
	struct rpwi_qp *t, uint32_t rkey, uint64_t addr, uint32_t len, void *into)
{
	return NULL;
}

/* Of a QP that is checked these are counted, with a counter of the program's or without. */
static void counts(struct rpwi_qp *t, enum rpwi_counted kind, uint32_t bytes, bool good)
{
	if (dqp_of(t)->counters[__builtin_ctz(kind)])
		device.qp.count(t, kind, bytes, good);
	if (kind & CHECKED_COUNTS)
		check_retires(t, good);
}

const struct rpwi_qp_ops *checked_qp_ops(const struct rpwi_qp_ops *of)
{
	struct rpwi_qp_ops *ops = &device.checked_qp;
	device.qp = *of;
	*ops = *of;
	ops->complete = completes;
	ops->count = counts;
	checked_memory(ops);
	ops->told = check_told;
	if (rpwi_check_wants(RPWI_RULE_RACE)) {
		race_init();
		ops->peer_read = no_peer_read;
	}
	return ops;
}
