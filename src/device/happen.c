/* SPDX-License-Identifier: BSD-3-Clause */
/* happen.c - the events and failures that a fault script makes happen to the device (fault.c), and
 * what fault.c may call. */
#include "device/cq.h"
#include "device/devices.h"
#include "device/fault.h"
#include "device/gsi_priv.h"
#include "device/mem.h"
#include "device/qp.h"

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
