/* SPDX-License-Identifier: BSD-3-Clause */
/* finish.c - how work requests end: completions, a WQE that fails, and flushing (IB 10.8.2) in ERR
 * and SQE. */
#include "rc/internal.h"

/* ---- completions ---- */

_Static_assert((int)IBV_WC_SEND == (int)RPWI_DONE_SENDS &&
		       (int)RPWI_WC_ATOMIC_WRITE < (int)RPWI_DONE_KINDS,
	"the kinds that are counted");

/* 0: nobody counts it. */
static enum rpwi_counted counted_as(unsigned opcode)
{
	if (rpwi_op_sends(opcode))
		return RPWI_COUNT_SEND;
	if (rpwi_op_writes(opcode))
		return RPWI_COUNT_WRITE;
	return opcode == IBV_WR_RDMA_READ ? RPWI_COUNT_READ : 0;
}

void rpwi_qp_complete_send(struct rpwi_qp *qp, const struct rpwi_swqe *w, enum ibv_wc_status status)
{
	if (RPWI_UNLIKELY(qp->counted))
		rpwi_qp_count(qp, counted_as(w->opcode), w->len, status == IBV_WC_SUCCESS);
	if (status == IBV_WC_SUCCESS) {
		qp->n->done[rpwi_wr_info[w->opcode].wc_opcode]++;
		if (!qp->sig_all && !(w->flags & IBV_SEND_SIGNALED))
			return;
	} else if (status != IBV_WC_WR_FLUSH_ERR) {
		qp->n->failed++;
	}
	struct ibv_wc wc = {
		.wr_id = w->wr_id,
		.status = status,
		.opcode = rpwi_wr_info[w->opcode].wc_opcode,
		.byte_len = w->len,
		.qp_num = qp->qpn,
	};
	qp->ops->complete(qp, false, &wc, status != IBV_WC_SUCCESS);
}

void rpwi_qp_complete_recv(struct rpwi_qp *qp, struct ibv_wc *wc, bool solicited)
{
	wc->qp_num = qp->qpn;
	rpwi_qp_count(qp, RPWI_COUNT_RECV, wc->byte_len, wc->status == IBV_WC_SUCCESS);
	qp->ops->complete(qp, true, wc, solicited || wc->status != IBV_WC_SUCCESS);
}

/* ---- ERR and SQE ---- */

static void flush_sends(struct rpwi_qp *qp)
{
	rpwi_req_forget(qp);
	for (; qp->sq_head != qp->sq_tail; qp->sq_head++)
		rpwi_qp_complete_send(qp, rpwi_sq_at(qp, qp->sq_head), IBV_WC_WR_FLUSH_ERR);
	qp->sq_cur = qp->sq_head;
	qp->sq_failed = false;
}

static void flush_recv(struct rpwi_qp *qp, uint64_t wr_id)
{
	struct ibv_wc wc = {.wr_id = wr_id, .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV};

	rpwi_qp_complete_recv(qp, &wc, true);
}

/* The WQE being filled, then what the QP's own RQ holds. What a SRQ holds is for other QPs: the
 * event says that this one takes no more (IB 10.2.9.3). */
static void flush_recvs(struct rpwi_qp *qp)
{
	struct rpwi_rq *rq = qp->rq;

	if (qp->rcv.have) {
		qp->rcv.have = false;
		flush_recv(qp, qp->rcv.wr_id);
	}
	if (!rq->shared) {
		while (rpwi_rq_count(rq))
			flush_recv(qp, rq->ring[rq->head++ & rq->mask].wr_id);
	} else if (!qp->last_wqe_told) {
		qp->last_wqe_told = true;
		qp->ops->event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
	}
}

void rpwi_qp_enter_err(struct rpwi_qp *qp, bool answer)
{
	rpwi_qp_enter(qp, IBV_QPS_ERR);
	qp->msg = RPWI_MSG_NONE;
	if (!answer)
		rpwi_resp_silence(qp);
	qp->ack_owed = false;
	flush_sends(qp);
	flush_recvs(qp);
}

void rpwi_qp_fail_send(struct rpwi_qp *qp, enum ibv_wc_status status)
{
	rpwi_debug("QP %u: send WQE failed: status %d", qp->qpn, status);
	if (status == IBV_WC_RETRY_EXC_ERR)
		qp->n->retry_exceeded++;
	else if (status == IBV_WC_RNR_RETRY_EXC_ERR)
		qp->n->rnr_exceeded++;
	rpwi_qp_complete_send(qp, rpwi_sq_at(qp, qp->sq_head), status);
	qp->sq_head++;
	if (rpwi_qp_is_rc(qp)) {
		rpwi_qp_enter_err(qp, false);
		return;
	}
	rpwi_qp_enter(qp, IBV_QPS_SQE); /* IB 10.3.1: of UC and UD only the send side stops */
	flush_sends(qp);
}

void rpwi_qp_peer_gone(struct rpwi_qp *qp)
{
	if (!rpwi_qp_is_rc(qp) ||
		(qp->state != IBV_QPS_RTR && qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD))
		return;
	if (qp->sq_head != qp->sq_tail)
		rpwi_qp_fail_send(qp, IBV_WC_RETRY_EXC_ERR);
	else
		rpwi_qp_enter_err(qp, false);
	qp->ops->event(qp, IBV_EVENT_QP_FATAL);
}

void rpwi_qp_recv_posted(struct rpwi_qp *qp)
{
	if (qp->state == IBV_QPS_ERR && !qp->rq->shared)
		flush_recvs(qp);
}
