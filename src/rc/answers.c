/* SPDX-License-Identifier: BSD-3-Clause */
/* answers.c - the answers of an RC responder go out: responses to READs and atomics from the ring
 * of resources, ACKs and NAKs from a flag each. A request that is refused gets such a NAK. */
#include "rc/internal.h"

#include "wire/encode.h"

static bool nak_is_sequence(const struct rpwi_qp *qp)
{
	return qp->nak_syndrome == rpwi_aeth(RPWI_AETH_NAK, RPWI_NAK_PSN_SEQ);
}

void rpwi_resp_refuse(
	struct rpwi_qp *qp, enum rpwi_nak code, uint32_t psn, enum ibv_wc_status recv_status)
{
	rpwi_debug("QP %u: request at PSN %u refused: %s", qp->qpn, psn & RPWI_PSN_MASK,
		rpwi_nak_name[code]);
	rpwi_resp_owe_nak(qp, rpwi_aeth(RPWI_AETH_NAK, code), psn);
	if (recv_status != IBV_WC_SUCCESS && qp->rcv.have)
		rpwi_rcv_fail(qp, recv_status);
	else if (qp->state != IBV_QPS_ERR)
		qp->ops->event(qp, code == RPWI_NAK_REM_ACCESS ? IBV_EVENT_QP_ACCESS_ERR
							       : IBV_EVENT_QP_REQ_ERR);
	rpwi_qp_enter_err(qp, true);
}

bool rpwi_resp_has_answers(const struct rpwi_qp *qp) { return qp->res_cur != qp->res_tail; }

static void answer_init(
	const struct rpwi_qp *qp, struct rpwi_pkt *h, unsigned op, uint32_t psn, uint32_t msn)
{
	rpwi_pkt_clear(h);
	h->opcode = (uint8_t)(RPWI_SVC_RC | op);
	h->pkey = RPWI_PKEY_DEFAULT;
	h->dqpn = qp->attr.dest_qp_num;
	h->psn = psn & RPWI_PSN_MASK;
	h->syndrome = rpwi_aeth(RPWI_AETH_ACK, RPWI_AETH_CREDITS_NONE);
	h->msn = msn & RPWI_PSN_MASK;
}

static unsigned read_response_op(const struct rpwi_res *r, uint32_t psn)
{
	static const uint8_t first[] = {RPWI_OP_READ_RESP_FIRST, RPWI_OP_READ_RESP_ONLY},
			     later[] = {RPWI_OP_READ_RESP_MIDDLE, RPWI_OP_READ_RESP_LAST};

	return (psn == r->begin ? first : later)[psn + 1 == r->stop];
}

/* Copy the next `*pkts` packets' worth of a READ into the batch's scratch memory: a payload must
 * not change under its ICRC. NULL when not one packet can be read. */
static const uint8_t *snapshot(
	struct rpwi_qp *qp, struct rpwi_txb *b, const struct rpwi_res *r, uint32_t *pkts)
{
	uint8_t *to = b->scratch + b->scratch_used;

	for (;; *pkts = 1) {
		uint32_t bytes = (uint32_t)RPWI_MIN((uint64_t)*pkts * qp->mtu, r->left);

		if (!bytes || !qp->ops->mem_read(qp, r->rkey, r->next_va, to, bytes, true)) {
			b->scratch_used += (bytes + 63u) & ~63u;
			return to;
		}
		if (*pkts == 1)
			return NULL;
	}
}

/* As many packets of a READ's response as fit. False when there was no room, or the memory is
 * gone. */
static bool tx_read_response(struct rpwi_qp *qp, struct rpwi_txb *b, struct rpwi_res *r)
{
	uint32_t room = (uint32_t)((RPWI_TXB_SCRATCH -
					   RPWI_MIN(b->scratch_used, (size_t)RPWI_TXB_SCRATCH)) /
				   qp->mtu);
	uint32_t n = RPWI_MIN(RPWI_MIN(r->stop - r->next, rpwi_txb_room(b)),
		RPWI_MIN(room, (uint32_t)RPWI_TXB_IOVS - b->niov));
	const uint8_t *middle = NULL;

	if (!n)
		return false;
	const uint8_t *data = snapshot(qp, b, r, &n);

	if (!data && r->replay) { /* as in replay_read */
		r->next = r->stop;
		return true;
	}
	if (!data) {
		uint32_t psn = r->next;
		qp->res_cur = qp->res_tail; /* nothing after it is answered */
		rpwi_resp_refuse(qp, RPWI_NAK_REM_ACCESS, psn, IBV_WC_SUCCESS);
		return false;
	}
	for (uint32_t i = 0; i < n; i++, r->next++) {
		unsigned op = read_response_op(r, r->next);
		uint32_t len = RPWI_MIN(r->left, qp->mtu);
		struct rpwi_txpkt *t = rpwi_txb_add(b);

		t->payload_len = len;
		if (middle && op == RPWI_OP_READ_RESP_MIDDLE) {
			memcpy(t->hdr, middle, RPWI_BTH_LEN);
			rpwi_pkt_set_psn(t->hdr, r->next, false);
			t->hdr_len = RPWI_BTH_LEN;
		} else {
			struct rpwi_pkt h;

			answer_init(qp, &h, op, r->next, r->msn);
			h.payload_len = len;
			h.pad = t->pad = (uint8_t)(-len & 3);
			t->hdr_len = (uint16_t)rpwi_pkt_encode(&h, t->hdr);
			if (op == RPWI_OP_READ_RESP_MIDDLE)
				middle = t->hdr;
		}
		if (len) {
			b->iov[b->niov++] = (struct rpwi_iov){.base = data, .len = len};
			t->iov_count = 1;
		}
		data += len;
		r->next_va += len;
		r->left -= len;
		qp->n->tx_bytes += len;
	}
	qp->n->tx_packets += n;
	return true;
}

static void tx_atomic_response(struct rpwi_qp *qp, struct rpwi_txb *b, struct rpwi_res *r)
{
	struct rpwi_pkt h;

	answer_init(qp, &h, RPWI_OP_ATOMIC_ACK, r->psn, r->msn);
	h.atomic_orig = r->atomic_orig;
	struct rpwi_txpkt *t = rpwi_txb_add(b);

	t->hdr_len = (uint16_t)rpwi_pkt_encode(&h, t->hdr);
	r->next = r->stop;
	qp->n->tx_packets++;
}

void rpwi_resp_tx(struct rpwi_qp *qp, struct rpwi_txb *b, uint64_t now_ns)
{
	while (qp->res_cur != qp->res_tail) {
		struct rpwi_res *r = &qp->res[qp->res_cur & qp->res_mask];

		if (r->next == r->stop) {
			qp->res_cur++;
			continue;
		}
		if (!rpwi_txb_room(b))
			return;
		unsigned npkt = b->npkt;

		if (r->atomic)
			tx_atomic_response(qp, b, r);
		else if (!tx_read_response(qp, b, r))
			return;
		if (r->next == qp->epsn &&
			b->npkt != npkt) { /* it acknowledges all before it as well */
			qp->ack_owed = false;
			qp->ack_pkts = 0;
		}
	}
}

bool rpwi_resp_ack_due(const struct rpwi_qp *qp, bool hold_ack, uint64_t now_ns)
{
	/* never before the responses to what precedes it */
	if (qp->slow & RPWI_SLOW_NAK)
		return !rpwi_resp_has_answers(qp);
	if (!qp->ack_owed || rpwi_resp_has_answers(qp))
		return false;
	return !hold_ack || qp->ack_pkts >= 2 * rpwi_gso_pkts(qp->attr.path_mtu) ||
	       now_ns - qp->ack_since_ns >= RPWI_ACK_HOLD_NS;
}

static void count_nak(struct rpwi_qp *qp)
{
	if (rpwi_aeth_kind(qp->nak_syndrome) == RPWI_AETH_RNR_NAK) {
		qp->n->rnr_nak_tx++;
		return;
	}
	qp->n->nak_tx[qp->nak_syndrome & 0x1f]++;
	qp->n->seq_nak_tx += nak_is_sequence(qp);
}

static void ack_goes(struct rpwi_qp *qp)
{
	rpwi_slow_end(qp, RPWI_SLOW_NAK);
	qp->ack_owed = false;
	qp->ack_pkts = 0;
	qp->n->tx_packets++;
}

void rpwi_resp_tx_ack(struct rpwi_qp *qp, struct rpwi_txb *b)
{
	bool nak = qp->slow & RPWI_SLOW_NAK;
	uint32_t psn = qp->epsn - 1;

	if (nak)
		psn = nak_is_sequence(qp) ? qp->epsn : qp->nak_psn;
	const struct rpwi_pkt h = {
		.opcode = RPWI_SVC_RC | RPWI_OP_ACK,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = qp->attr.dest_qp_num,
		.psn = psn & RPWI_PSN_MASK,
		.syndrome =
			nak ? qp->nak_syndrome : rpwi_aeth(RPWI_AETH_ACK, RPWI_AETH_CREDITS_NONE),
		.msn = qp->msn & RPWI_PSN_MASK,
	};
	struct rpwi_txpkt *t = rpwi_txb_add(b);

	if (nak)
		count_nak(qp);
	t->hdr_len = (uint16_t)rpwi_pkt_encode_here(&h, t->hdr);
	ack_goes(qp);
}

/* The plain ACK that is owed, if any, before a message. */
void rpwi_resp_lead_by_ack(struct rpwi_qp *qp, struct rpwi_short *s)
{
	s->led = qp->ack_owed;
	if (!s->led)
		return;
	s->ack_psn = (qp->epsn - 1) & RPWI_PSN_MASK;
	rpwi_put_be32(s->aeth, (uint32_t)rpwi_aeth(RPWI_AETH_ACK, RPWI_AETH_CREDITS_NONE) << 24 |
				       (qp->msn & RPWI_PSN_MASK));
	ack_goes(qp);
}
