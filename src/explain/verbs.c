/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs.c - see verbs.h. Only words: nothing of the device is changed here. */
#include "explain/verbs.h"

#include "rc/names.h"

#include <inttypes.h>
#include <stdio.h>

static const char *wc_op(const struct ibv_wc *wc)
{
	switch ((int)wc->opcode) {
	case IBV_WC_SEND:
		return "SEND";
	case IBV_WC_RDMA_WRITE:
		return "RDMA_WRITE";
	case IBV_WC_RDMA_READ:
		return "RDMA_READ";
	case IBV_WC_COMP_SWAP:
		return "ATOMIC_CMP_AND_SWP";
	case IBV_WC_FETCH_ADD:
		return "ATOMIC_FETCH_AND_ADD";
	case RPWI_WC_ATOMIC_WRITE:
		return "ATOMIC_WRITE";
	case IBV_WC_BIND_MW:
		return "BIND_MW";
	case IBV_WC_LOCAL_INV:
		return "LOCAL_INV";
	case IBV_WC_RECV:
		return "RECV";
	case IBV_WC_RECV_RDMA_WITH_IMM:
		return "RECV of RDMA_WRITE with immediate";
	default:
		return "?";
	}
}

/* ---- posting ---- */

static uint64_t bytes_of(const struct ibv_sge *sge, int n)
{
	uint64_t len = 0;
	for (int i = 0; sge && i < n && i < RPWI_SGE_MAX; i++)
		len += sge[i].length;
	return len;
}

static bool is_remote(enum ibv_wr_opcode op)
{
	return op == IBV_WR_RDMA_WRITE || op == IBV_WR_RDMA_WRITE_WITH_IMM ||
	       op == IBV_WR_RDMA_READ || (int)op == RPWI_WR_ATOMIC_WRITE;
}

void rpwi_explain_post_send(const struct rpwi_qp *q, const struct ibv_send_wr *wr)
{
	for (; wr; wr = wr->next) {
		const char *op = rpwi_wr_name(wr->opcode);
		char remote[64] = "";
		if (is_remote(wr->opcode))
			snprintf(remote, sizeof(remote), ", peer's 0x%" PRIx64 ", rkey 0x%x",
				wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
		rpwi_explain(RPWI_EXPLAIN_CALL,
			"ibv_post_send %s, wr_id %" PRIu64 ", %" PRIu64 " bytes%s", op, wr->wr_id,
			bytes_of(wr->sg_list, wr->num_sge), remote);
		rpwi_explain_fact(RPWI_FACT_SEND_POSTED, q->qpn, 1);
	}
}

void rpwi_explain_post_recv(const struct rpwi_qp *q, const struct ibv_recv_wr *wr)
{
	for (; wr; wr = wr->next) {
		rpwi_explain(RPWI_EXPLAIN_CALL,
			"ibv_post_recv wr_id %" PRIu64 ", room for %" PRIu64 " bytes", wr->wr_id,
			bytes_of(wr->sg_list, wr->num_sge));
		rpwi_explain_fact(RPWI_FACT_RECV_POSTED, q->qpn, 1);
	}
}

/* ---- completions ---- */

void rpwi_explain_complete(uint32_t qpn, bool recv, const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_SUCCESS)
		rpwi_explain_fact(recv ? RPWI_FACT_RECV_DONE : RPWI_FACT_SEND_DONE, qpn, 1);
	else if (wc->status == IBV_WC_WR_FLUSH_ERR)
		rpwi_explain_fact(recv ? RPWI_FACT_RECV_FLUSHED : RPWI_FACT_SEND_FLUSHED, qpn, 1);
	else
		rpwi_explain_fact(RPWI_FACT_FAILED, qpn, wc->status);
}

void rpwi_explain_polled(const struct ibv_wc *wc, int got)
{
	if (got <= 0)
		rpwi_explain_poll_in_vain();
	for (int i = 0; i < got; i++) {
		/* opcode and byte_len mean something only in a success (ibv_poll_cq(3)). */
		if (wc[i].status == IBV_WC_SUCCESS)
			rpwi_explain(RPWI_EXPLAIN_WC,
				"ibv_poll_cq: %s done, wr_id %" PRIu64 ", %u bytes", wc_op(&wc[i]),
				wc[i].wr_id, wc[i].byte_len);
		else
			rpwi_explain(RPWI_EXPLAIN_WC,
				"ibv_poll_cq: wr_id %" PRIu64 " %s (status %d)", wc[i].wr_id,
				rpwi_status_name(wc[i].status), wc[i].status);
	}
}

/* ---- states ---- */

enum { SEEN = 256 };
static struct {
	uint32_t qpn;
	enum ibv_qp_state state;
	uint32_t retransmits;
	/* by the low bits of the QPN: where two QPs meet, only words are lost. Under
	 * RPWI_LOCK_HCA */
} seen[SEEN];

static void remember(const struct rpwi_qp *q)
{
	unsigned i = q->qpn % SEEN;
	if (seen[i].qpn != q->qpn)
		seen[i].retransmits = 0;
	seen[i].qpn = q->qpn;
	seen[i].state = q->state;
}

void rpwi_explain_state(const struct rpwi_qp *q)
{
	unsigned i = q->qpn % SEEN;
	if (seen[i].qpn != q->qpn)
		return;
	if (q->resent > seen[i].retransmits) {
		rpwi_explain_fact(RPWI_FACT_RETRANSMITTED, q->qpn, q->resent - seen[i].retransmits);
		seen[i].retransmits = q->resent;
	}
	if (seen[i].state == q->state)
		return;
	rpwi_explain(RPWI_EXPLAIN_STATE, "QP 0x%06x: %s -> %s by itself", q->qpn,
		rpwi_state_name(seen[i].state), rpwi_state_name(q->state));
	remember(q);
}

void rpwi_explain_modify(const struct rpwi_qp *q, enum ibv_qp_state was,
	const struct ibv_qp_attr *attr, int mask, int rc)
{
	if (rc) {
		rpwi_explain(RPWI_EXPLAIN_CALL, "ibv_modify_qp: refused, %s", strerror(-rc));
		return;
	}
	if (!(mask & IBV_QP_STATE))
		return;
	rpwi_explain(RPWI_EXPLAIN_CALL, "ibv_modify_qp to %s", rpwi_state_name(attr->qp_state));
	remember(q);
	if (attr->qp_state == IBV_QPS_RTR && q->type != IBV_QPT_UD)
		rpwi_explain(RPWI_EXPLAIN_STATE,
			"QP 0x%06x: %s -> RTR, peer QPN 0x%06x, expects PSN 0x%06x", q->qpn,
			rpwi_state_name(was), attr->dest_qp_num, attr->rq_psn);
	else if (attr->qp_state == IBV_QPS_RTS && was == IBV_QPS_RTR)
		rpwi_explain(RPWI_EXPLAIN_STATE, "QP 0x%06x: RTR -> RTS, first PSN 0x%06x", q->qpn,
			attr->sq_psn);
	else
		rpwi_explain(RPWI_EXPLAIN_STATE, "QP 0x%06x: %s -> %s", q->qpn,
			rpwi_state_name(was), rpwi_state_name(attr->qp_state));
}
