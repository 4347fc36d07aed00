/* SPDX-License-Identifier: BSD-3-Clause */
/* datagram.c - takes the packets of the services without acknowledgements: UC (IB 9.8.2) and UD
 * (9.8.3). They are sent by requester.c. A message that does not fit is dropped and counted; the
 * sender never hears of it, and the QP receives on: no sender ends it by a long message.
 */
#include "rc/internal.h"

/* ---- UC ---- */

/* The message being received is lost. Its receive WQE, if it took one, waits for the next. */
static void uc_abandon(struct rpwi_qp *qp)
{
	qp->msg = RPWI_MSG_NONE;
	qp->rcv.done = qp->rcv.sge_i = qp->rcv.sge_off = 0;
}

static void local_error(struct rpwi_qp *qp, enum ibv_wc_status status)
{
	rpwi_rcv_fail(qp, status);
	rpwi_qp_enter_err(qp, false);
}

/* A message longer than its receive (IB 9.9.3): one of the QP's own queue waits for the next
 * message (class D), one of a shared queue, into which it cannot be put back, completes in error
 * (class E). The QP stays as it is. */
static void too_long(struct rpwi_qp *qp)
{
	qp->n->rx_bad_length++;
	if (qp->rq->shared)
		rpwi_rcv_fail(qp, IBV_WC_LOC_LEN_ERR);
}

static void uc_send(struct rpwi_qp *qp, const struct rpwi_pkt *p)
{
	bool last = rpwi_op_has(rpwi_pkt_op(p), RPWI_F_LAST);

	if (!rpwi_rcv_take(qp)) {
		rpwi_tell(qp, RPWI_TOLD_NO_RECEIVE, p);
		qp->n->rx_no_rwqe++;
		uc_abandon(qp);
		return;
	}
	if (RPWI_UNLIKELY(qp->rcv.doom)) {
		local_error(qp, (enum ibv_wc_status)qp->rcv.doom);
		return;
	}
	int rc = rpwi_rcv_scatter(qp, p->payload, p->payload_len);

	if (rc == -EMSGSIZE) {
		too_long(qp);
		uc_abandon(qp);
		return;
	}
	if (rc) {
		local_error(qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	qp->msg = last ? RPWI_MSG_NONE : RPWI_MSG_SEND;
	if (last)
		rpwi_rcv_done(qp, p, qp->rcv.done);
}

static bool uc_begin_write(struct rpwi_qp *qp, const struct rpwi_pkt *p)
{
	bool permits = qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE;

	if (!permits)
		rpwi_tell(qp, RPWI_TOLD_QP_ACCESS, p);
	if (!permits || p->dma_len > qp->bounds.message ||
		(p->dma_len && qp->ops->mem_check(qp, p->rkey, p->va, p->dma_len,
				       IBV_ACCESS_REMOTE_WRITE, true))) {
		rpwi_debug("QP %u: UC WRITE to rkey 0x%x dropped", qp->qpn, p->rkey);
		return false;
	}
	qp->write_va = p->va;
	qp->write_rkey = p->rkey;
	qp->write_len = qp->write_left = p->dma_len;
	return true;
}

static void uc_write(struct rpwi_qp *qp, const struct rpwi_pkt *p)
{
	unsigned op = rpwi_pkt_op(p);
	bool last = rpwi_op_has(op, RPWI_F_LAST), imm = rpwi_op_has(op, RPWI_F_IMM);

	if ((rpwi_op_has(op, RPWI_F_FIRST) && !uc_begin_write(qp, p)) ||
		(last ? p->payload_len != qp->write_left : p->payload_len >= qp->write_left)) {
		qp->n->rx_bad_length++;
		uc_abandon(qp);
		return;
	}
	if (imm && !rpwi_rcv_take(qp)) {
		rpwi_tell(qp, RPWI_TOLD_NO_RECEIVE, p);
		qp->n->rx_no_rwqe++;
		uc_abandon(qp);
		return;
	}
	if (RPWI_UNLIKELY(imm && qp->rcv.doom)) {
		local_error(qp, (enum ibv_wc_status)qp->rcv.doom);
		return;
	}
	if (p->payload_len && qp->ops->mem_write(qp, qp->write_rkey, qp->write_va, p->payload,
				      p->payload_len, true)) {
		uc_abandon(qp);
		return;
	}
	qp->write_va += p->payload_len;
	qp->write_left -= p->payload_len;
	qp->msg = last ? RPWI_MSG_NONE : RPWI_MSG_WRITE;
	if (imm)
		rpwi_rcv_done(qp, p, qp->write_len);
}

void rpwi_uc_rx(struct rpwi_qp *qp, const struct rpwi_pkt *p)
{
	unsigned op = rpwi_pkt_op(p);
	uint32_t psn = qp->epsn + (uint32_t)rpwi_psn_diff(p->psn, qp->epsn);

	rpwi_resp_comm_est(qp);
	if (psn != qp->epsn) {
		/* IB 9.8.2.2.2: the rest of a message that lost a packet is dropped; the next
		 * message begins wherever it begins */
		qp->n->rx_out_of_order++;
		uc_abandon(qp);
	}
	qp->epsn = psn + 1;
	if (rpwi_op_has(op, RPWI_F_FIRST) && qp->msg != RPWI_MSG_NONE)
		uc_abandon(qp);
	if (!rpwi_rcv_follows(qp, p) || !rpwi_rcv_length_ok(qp, p)) {
		qp->n->rx_bad_length++;
		uc_abandon(qp);
		return;
	}
	if (rpwi_op_has(op, RPWI_F_SEND))
		uc_send(qp, p);
	else
		uc_write(qp, p);
}

/* ---- UD ---- */

enum {
	IPV4_LEN = 20,
	IPV6_LEN = 40,
	UDP_LEN = 8,
	PROTO_UDP = 17,
	/* wc.sl as mlx5 and rxe have it: bit 3 UDP, low bits 2 for IPv4; UCX reads the network type
	 * there */
	SL_ROCE_V2_IPV4 = 10,
};

static uint16_t ipv4_checksum(const uint8_t *h)
{
	uint32_t sum = 0;

	for (int i = 0; i < IPV4_LEN; i += 2)
		sum += rpwi_get_be16(h + i);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t) ~(sum + (sum >> 16));
}

/* The 40 bytes before a UD payload (IB A17.4.5.1): an IPv6 header, or 20 bytes and an IPv4 header,
 * whose checksum ibv_init_ah_from_wc looks at. */
static void make_grh(uint8_t *grh, const struct rpwi_pkt *p, const struct rpwi_rxmeta *meta)
{
	const struct rpwi_flow *f = meta->flow;
	uint16_t udp_len =
		(uint16_t)(UDP_LEN + p->hdr_len + p->payload_len + p->pad + RPWI_ICRC_LEN);

	memset(grh, 0, RPWI_GRH_LEN);
	if (f->src.family == 6) {
		rpwi_put_be32(grh, 6u << 28 | (uint32_t)meta->tos << 20);
		rpwi_put_be16(grh + 4, udp_len);
		grh[6] = PROTO_UDP;
		grh[7] = meta->ttl;
		memcpy(grh + 8, f->src.bytes, 16);
		memcpy(grh + 24, f->dst.bytes, 16);
		return;
	}
	uint8_t *h = grh + RPWI_GRH_LEN - IPV4_LEN;

	h[0] = 0x45;
	h[1] = meta->tos;
	rpwi_put_be16(h + 2, (uint16_t)(IPV4_LEN + udp_len));
	h[6] = 0x40; /* don't fragment */
	h[8] = meta->ttl;
	h[9] = PROTO_UDP;
	memcpy(h + 12, f->src.bytes, 4);
	memcpy(h + 16, f->dst.bytes, 4);
	rpwi_put_be16(h + 10, ipv4_checksum(h));
}

void rpwi_ud_rx(struct rpwi_qp *qp, const struct rpwi_pkt *p, const struct rpwi_rxmeta *meta)
{
	uint8_t grh[RPWI_GRH_LEN];

	if (p->qkey != qp->attr.qkey) { /* IB 9.6.1.4.3 */
		if (RPWI_UNLIKELY(qp->ops->told))
			qp->ops->told(qp, RPWI_TOLD_QKEY, p, meta->flow);
		qp->n->rx_bad_qkey++;
		return;
	}
	if (p->payload_len > qp->mtu) {
		qp->n->rx_bad_length++;
		return;
	}
	if (!rpwi_rcv_take(qp)) {
		rpwi_tell(qp, RPWI_TOLD_NO_RECEIVE, p);
		qp->n->rx_no_rwqe++;
		return;
	}
	if (RPWI_UNLIKELY(qp->rcv.doom)) {
		local_error(qp, (enum ibv_wc_status)qp->rcv.doom);
		return;
	}
	if (RPWI_GRH_LEN + p->payload_len > qp->rcv.len) {
		rpwi_tell(qp, RPWI_TOLD_NO_ROOM, p);
		too_long(qp);
		return;
	}
	make_grh(grh, p, meta);
	if (rpwi_rcv_scatter(qp, grh, sizeof(grh)) ||
		rpwi_rcv_scatter(qp, p->payload, p->payload_len)) {
		local_error(qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	struct ibv_wc wc = {
		.wr_id = qp->rcv.wr_id,
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_RECV,
		.byte_len = RPWI_GRH_LEN + p->payload_len,
		.src_qp = p->sqpn,
		.wc_flags = IBV_WC_GRH,
		.sl = meta->flow->src.family == 4 ? SL_ROCE_V2_IPV4 : 0,
	};

	if (rpwi_op_has(rpwi_pkt_op(p), RPWI_F_IMM)) {
		wc.wc_flags |= IBV_WC_WITH_IMM;
		wc.imm_data = p->imm_be;
	}
	qp->rcv.have = false;
	qp->n->recvs++;
	rpwi_qp_complete_recv(qp, &wc, p->solicited);
}
