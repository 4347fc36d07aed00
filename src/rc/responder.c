/* SPDX-License-Identifier: BSD-3-Clause */
/* responder.c - takes the requests of an RC peer, executes them, and owes answers (IB 9.7.4, 9.7.5,
 * 9.9.3), which answers.c sends.
 *
 * Answers are owed, not sent: READ and atomic responses stand in the ring of resources, ACK and NAK
 * are a flag each. rpwi_qp_tx sends what is owed by then, so one ACK covers a whole batch. A NAK
 * that is fatal leaves the QP in ERR with that answer, and the responses before it, still to be
 * sent.
 */
#include "rc/internal.h"

#include <stdlib.h>

/* ---- what is owed ---- */

static void owe_ack(struct rpwi_qp *qp, uint64_t now_ns)
{
	if (!qp->ack_owed)
		qp->ack_since_ns = now_ns;
	qp->ack_owed = true;
}

/* IB 9.9.6.3, class J: the receive WQE fails and the QP is in ERR, but no NAK says so. The peer's
 * retries end, as with kernel rxe. Requests executed before are still acknowledged. */
static void end_unanswered(struct rpwi_qp *qp, enum ibv_wc_status recv_status)
{
	bool executed = qp->ack_pkts;

	rpwi_rcv_fail(qp, recv_status);
	rpwi_qp_enter_err(qp, true);
	qp->ack_owed = executed;
}

/* No receive WQE: say so, and take nothing until the request comes again (IB 9.7.5.2.8). */
static void not_ready(struct rpwi_qp *qp, const struct rpwi_pkt *p)
{
	rpwi_tell(qp, RPWI_TOLD_NO_RECEIVE, p);
	qp->n->rx_no_rwqe++;
	rpwi_resp_owe_nak(qp, rpwi_aeth(RPWI_AETH_RNR_NAK, qp->attr.min_rnr_timer), qp->epsn);
	qp->nak_sent = true;
}

/* A request packet is executed. */
static void accept(struct rpwi_qp *qp, const struct rpwi_pkt *p, uint64_t now_ns)
{
	qp->epsn += 1u + p->more;
	qp->ack_pkts += 1u + p->more;
	if (rpwi_op_has(rpwi_pkt_op(p), RPWI_F_LAST))
		qp->msn++;
	if (p->ackreq)
		owe_ack(qp, now_ns);
}

/* ---- SEND and WRITE ---- */

/* Most: a message of one packet, into the only piece of its WQE, which is not even taken out of the
 * queue. False: nothing was done, but that bytes may have been written there. */
static bool rx_send_only(struct rpwi_qp *qp, const struct rpwi_pkt *p, uint64_t now_ns)
{
	const struct rpwi_rq *rq = qp->rq;
	const struct rpwi_rwqe *w = &rq->ring[rq->head & rq->mask];

	if (rq->shared || qp->rcv.have || rq->head == rq->tail || w->nsge != 1 || w->doom ||
		p->payload_len > w->sge->length)
		return false;
	if (p->payload_len && qp->ops->mem_write(qp, w->sge->lkey, w->sge->addr, p->payload,
				      p->payload_len, false))
		return false;
	qp->rq->head++;
	qp->rcv.wr_id = w->wr_id;
	accept(qp, p, now_ns);
	rpwi_rcv_done(qp, p, p->payload_len);
	return true;
}

static void rx_send(struct rpwi_qp *qp, const struct rpwi_pkt *p, uint64_t now_ns)
{
	unsigned op = rpwi_pkt_op(p);

	if (RPWI_LIKELY(op == RPWI_OP_SEND_ONLY) && rx_send_only(qp, p, now_ns))
		return;
	if (!rpwi_rcv_take(qp)) {
		not_ready(qp, p);
		return;
	}
	if (RPWI_UNLIKELY(qp->rcv.doom)) {
		rpwi_resp_refuse(qp, RPWI_NAK_REM_OP, qp->epsn, (enum ibv_wc_status)qp->rcv.doom);
		return;
	}
	int rc = rpwi_rcv_scatter(qp, p->payload, p->payload_len);

	if (rc == -EMSGSIZE) {
		rpwi_resp_refuse(qp, RPWI_NAK_INV_REQ, qp->epsn, IBV_WC_LOC_LEN_ERR);
		return;
	}
	if (rc) {
		rpwi_resp_refuse(qp, RPWI_NAK_REM_OP, qp->epsn, IBV_WC_LOC_PROT_ERR);
		return;
	}
	if (rpwi_op_has(op, RPWI_F_IETH) && qp->ops->invalidate(qp, p->inv_rkey, true)) {
		end_unanswered(qp, IBV_WC_LOC_QP_OP_ERR);
		return;
	}
	bool last = rpwi_op_has(op, RPWI_F_LAST);

	qp->msg = last ? RPWI_MSG_NONE : RPWI_MSG_SEND;
	accept(qp, p, now_ns);
	if (last)
		rpwi_rcv_done(qp, p, qp->rcv.done);
}

/* The rights or the key of a WRITE do not do. If it has immediate data, it is an error of the
 * receive WQE that it takes (IB 9.9.3, class C: "can be related to a particular WQE"), and
 * 11.6.2 has a status for just that; if not, of the QP. */
static void refuse_write(struct rpwi_qp *qp, const struct rpwi_pkt *p, enum rpwi_nak code)
{
	bool takes = rpwi_op_has(rpwi_pkt_op(p), RPWI_F_IMM) && rpwi_rcv_take(qp);

	rpwi_resp_refuse(qp, code, qp->epsn, takes ? IBV_WC_LOC_ACCESS_ERR : IBV_WC_SUCCESS);
}

/* The RETH of a WRITE. -1: refused. */
static int begin_write(struct rpwi_qp *qp, const struct rpwi_pkt *p)
{
	bool permits = qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE;

	if (!permits || p->dma_len > qp->bounds.message) {
		if (!permits)
			rpwi_tell(qp, RPWI_TOLD_QP_ACCESS, p);
		refuse_write(qp, p, RPWI_NAK_INV_REQ);
		return -1;
	}
	/* IB 9.7.4.1.5: without data there is nothing that the R_Key could protect. Where one
	 * packet is all of it, and no receive WQE comes before its bytes, to write them is the
	 * check. */
	unsigned op = rpwi_pkt_op(p);
	bool at_once = rpwi_op_has(op, RPWI_F_LAST) && !rpwi_op_has(op, RPWI_F_IMM) &&
		       p->payload_len == p->dma_len;

	if (p->dma_len && !p->placed && !at_once &&
		qp->ops->mem_check(qp, p->rkey, p->va, p->dma_len, IBV_ACCESS_REMOTE_WRITE, true)) {
		refuse_write(qp, p, RPWI_NAK_REM_ACCESS);
		return -1;
	}
	qp->write_va = p->va;
	qp->write_rkey = p->rkey;
	qp->write_len = qp->write_left = p->dma_len;
	return 0;
}

static void rx_write(struct rpwi_qp *qp, const struct rpwi_pkt *p, uint64_t now_ns)
{
	unsigned op = rpwi_pkt_op(p);
	bool last = rpwi_op_has(op, RPWI_F_LAST), imm = rpwi_op_has(op, RPWI_F_IMM);

	if (rpwi_op_has(op, RPWI_F_FIRST) && begin_write(qp, p))
		return;
	if (last ? p->payload_len != qp->write_left : p->payload_len >= qp->write_left) {
		/* not what the RETH said (IB 9.7.4.1.6) */
		rpwi_resp_refuse(qp, RPWI_NAK_INV_REQ, qp->epsn, IBV_WC_SUCCESS);
		return;
	}
	if (imm && !rpwi_rcv_take(qp)) {
		not_ready(qp, p);
		return;
	}
	if (RPWI_UNLIKELY(imm && qp->rcv.doom)) {
		rpwi_resp_refuse(qp, RPWI_NAK_REM_OP, qp->epsn, (enum ibv_wc_status)qp->rcv.doom);
		return;
	}
	if (p->payload_len && !p->placed &&
		qp->ops->mem_write(
			qp, qp->write_rkey, qp->write_va, p->payload, p->payload_len, true)) {
		refuse_write(qp, p, RPWI_NAK_REM_ACCESS);
		return;
	}
	qp->write_va += p->payload_len;
	qp->write_left -= p->payload_len;
	qp->msg = last ? RPWI_MSG_NONE : RPWI_MSG_WRITE;
	accept(qp, p, now_ns);
	if (imm)
		rpwi_rcv_done(qp, p, qp->write_len);
}

/* ---- READ and atomics: resources ---- */

int rpwi_resp_alloc(struct rpwi_qp *qp, uint32_t max_dest_rd_atomic)
{
	uint32_t slots = 1;

	while (slots < max_dest_rd_atomic)
		slots <<= 1;
	struct rpwi_res *res = calloc(slots, sizeof(*res));

	if (!res)
		return -ENOMEM;
	if (qp->res) {
		qp->res_count = RPWI_MIN(qp->res_count, slots);
		for (uint32_t i = qp->res_tail - qp->res_count; i != qp->res_tail; i++)
			res[i & (slots - 1)] = qp->res[i & qp->res_mask];
		if (qp->res_tail - qp->res_cur > qp->res_count)
			qp->res_cur = qp->res_tail - qp->res_count;
	}
	free(qp->res);
	qp->res = res;
	qp->res_mask = slots - 1;
	return 0;
}

void rpwi_resp_reset(struct rpwi_qp *qp, uint32_t psn)
{
	rpwi_resp_silence(qp);
	qp->res_cur = qp->res_tail = qp->res_count = 0;
	qp->epsn = psn;
	qp->msn = 0;
	qp->ack_pkts = 0;
	qp->nak_sent = false;
	qp->scripted = 0;
	qp->msg = RPWI_MSG_NONE;
	qp->rcv.have = false;
}

/* A resource for a new request: the oldest one's. NULL when that one has still to be answered: more
 * requests than the peer was told it may have outstanding. */
static struct rpwi_res *res_new(struct rpwi_qp *qp)
{
	if (!qp->res || !qp->attr.max_dest_rd_atomic)
		return NULL;
	while (qp->res_tail - qp->res_cur >= qp->attr.max_dest_rd_atomic) {
		const struct rpwi_res *oldest = &qp->res[qp->res_cur & qp->res_mask];

		/* A replay that is cut short here was asked for by a copy of a request that the
		 * network delayed: the peer has moved on. */
		if (oldest->next != oldest->stop && !oldest->replay)
			return NULL;
		qp->res_cur++;
	}
	qp->res_count = RPWI_MIN(qp->res_count + 1, qp->res_mask + 1);
	struct rpwi_res *r = &qp->res[qp->res_tail++ & qp->res_mask];

	*r = (struct rpwi_res){.psn = qp->epsn, .begin = qp->epsn, .next = qp->epsn};
	return r;
}

static uint32_t pkts_of(const struct rpwi_qp *qp, uint32_t len)
{
	return len <= qp->mtu ? 1 : (uint32_t)(((uint64_t)len + qp->mtu - 1) / qp->mtu);
}

/* Begins the answer to a READ or an atomic of `len` bytes there; NULL: it was refused. */
static struct rpwi_res *answer_begin(
	struct rpwi_qp *qp, const struct rpwi_pkt *p, uint32_t len, int access, bool is_valid)
{
	struct rpwi_res *r = NULL;

	if (!(qp->attr.qp_access_flags & access))
		rpwi_tell(qp, RPWI_TOLD_QP_ACCESS, p);
	else if (is_valid) {
		if (len && qp->ops->mem_check(qp, p->rkey, p->va, len, access, true)) {
			rpwi_resp_refuse(qp, RPWI_NAK_REM_ACCESS, qp->epsn, IBV_WC_SUCCESS);
			return NULL;
		}
		r = res_new(qp);
		if (!r)
			rpwi_tell(qp, RPWI_TOLD_RD_ATOMIC, p);
	}
	if (r)
		r->stop = r->psn; /* nothing to say yet */
	else
		rpwi_resp_refuse(qp, RPWI_NAK_INV_REQ, qp->epsn, IBV_WC_SUCCESS);
	return r;
}

static void answer_ready(
	struct rpwi_qp *qp, const struct rpwi_pkt *p, struct rpwi_res *r, uint32_t npsn)
{
	r->npsn = npsn;
	r->stop = r->psn + npsn;
	r->va = r->next_va = p->va;
	r->rkey = p->rkey;
	r->msn = ++qp->msn;
	qp->epsn += npsn;
}

static void rx_read(struct rpwi_qp *qp, const struct rpwi_pkt *p)
{
	struct rpwi_res *r = answer_begin(
		qp, p, p->dma_len, IBV_ACCESS_REMOTE_READ, p->dma_len <= qp->bounds.message);

	if (!r)
		return;
	r->len = r->left = p->dma_len;
	answer_ready(qp, p, r, pkts_of(qp, p->dma_len));
}

static bool executes(const struct rpwi_qp *qp, unsigned wr_opcode)
{
	return qp->bounds.opcodes >> wr_opcode & 1;
}

static void rx_atomic(struct rpwi_qp *qp, const struct rpwi_pkt *p)
{
	/* IB 9.7.4.1.4: misaligned is invalid, not a matter of access */
	bool is_valid = !(p->va & 7) && executes(qp, IBV_WR_ATOMIC_FETCH_AND_ADD);
	struct rpwi_res *r = answer_begin(qp, p, 8, IBV_ACCESS_REMOTE_ATOMIC, is_valid);

	if (!r)
		return;
	if (qp->ops->mem_atomic(qp, p->rkey, p->va, rpwi_pkt_op(p) == RPWI_OP_CMP_SWAP, p->compare,
		    p->swap_add, &r->atomic_orig)) {
		rpwi_resp_refuse(qp, RPWI_NAK_REM_ACCESS, qp->epsn, IBV_WC_SUCCESS);
		return;
	}
	r->atomic = true;
	answer_ready(qp, p, r, 1);
}

/* ATOMIC WRITE (IB A19): 8 bytes at once, after all that was placed before; refused as an atomic
 * is, and answered like a READ of nothing. */
static void rx_atomic_write(struct rpwi_qp *qp, const struct rpwi_pkt *p)
{
	bool is_valid = !(p->va & 7) && p->payload_len == RPWI_ATOMIC_WRITE_LEN &&
			p->dma_len == RPWI_ATOMIC_WRITE_LEN && executes(qp, RPWI_WR_ATOMIC_WRITE);
	struct rpwi_res *r =
		answer_begin(qp, p, RPWI_ATOMIC_WRITE_LEN, IBV_ACCESS_REMOTE_WRITE, is_valid);

	if (!r)
		return;
	if (qp->ops->mem_atomic_write(qp, p->rkey, p->va, p->payload)) {
		rpwi_resp_refuse(qp, RPWI_NAK_REM_ACCESS, qp->epsn, IBV_WC_SUCCESS);
		return;
	}
	r->atomic_write = true;
	answer_ready(qp, p, r, 1);
}

/* ---- duplicates (IB 9.7.5.1.3, table 37) ---- */

static struct rpwi_res *res_find(struct rpwi_qp *qp, uint32_t psn, uint32_t *index)
{
	for (uint32_t n = 1; n <= qp->res_count; n++) {
		*index = qp->res_tail - n;
		struct rpwi_res *r = &qp->res[*index & qp->res_mask];

		if (psn - r->psn < r->npsn)
			return r;
	}
	return NULL;
}

/* A READ again, or the end of one: from any PSN in it, if it asks for the same bytes. One whose key
 * is gone by now is dropped, not refused: as a rule a copy that was late, whose requester has had
 * its answer, and may have said so. Where it has not, its retries end. */
static bool replay_read(
	struct rpwi_qp *qp, struct rpwi_res *r, const struct rpwi_pkt *p, uint32_t psn)
{
	uint32_t off = (psn - r->psn) * qp->mtu;

	if (r->atomic || r->atomic_write || p->rkey != r->rkey || p->va != r->va + off ||
		p->dma_len > r->len - off || pkts_of(qp, p->dma_len) > r->npsn - (psn - r->psn))
		return false;
	if (p->dma_len &&
		qp->ops->mem_check(qp, p->rkey, p->va, p->dma_len, IBV_ACCESS_REMOTE_READ, true))
		return false;
	r->stop = psn + pkts_of(qp, p->dma_len);
	r->next_va = p->va;
	r->left = p->dma_len;
	return true;
}

static void rx_duplicate(
	struct rpwi_qp *qp, const struct rpwi_pkt *p, uint32_t psn, uint64_t now_ns)
{
	unsigned op = rpwi_pkt_op(p);
	uint32_t index;

	qp->n->rx_duplicate++;
	if (!rpwi_op_has(op, RPWI_F_READ | RPWI_F_ATOMIC | RPWI_F_ATOMICWRITE)) {
		/* of the newest that was executed: it tells the peer how far it got */
		owe_ack(qp, now_ns);
		return;
	}
	struct rpwi_res *r = res_find(qp, psn, &index);

	if (!r) /* older than what is kept: the peer cannot be waiting for it */
		return;
	bool was_done = r->next == r->stop;

	if (rpwi_op_has(op, RPWI_F_ATOMIC | RPWI_F_ATOMICWRITE)) {
		if ((rpwi_op_has(op, RPWI_F_ATOMIC) ? !r->atomic : !r->atomic_write) ||
			p->va != r->va || p->rkey != r->rkey)
			return;
		r->stop = r->psn + 1;
	} else if (!replay_read(qp, r, p, psn)) {
		return;
	}
	r->begin = r->next = psn;
	r->replay = r->replay || was_done;
	if (rpwi_before(index, qp->res_cur))
		qp->res_cur = index;
}

/* ---- one request packet ---- */

static void rx_expected(struct rpwi_qp *qp, const struct rpwi_pkt *p, uint64_t now_ns)
{
	unsigned op = rpwi_pkt_op(p);

	qp->nak_sent = false;
	/* what came after the gap was thrown away, so the peer must still hear of it: at the PSN
	 * expected by then */
	if (RPWI_UNLIKELY(qp->slow & RPWI_SLOW_NAK))
		qp->nak_syndrome = rpwi_aeth(RPWI_AETH_NAK, RPWI_NAK_PSN_SEQ);
	if (RPWI_UNLIKELY(!rpwi_rcv_follows(qp, p))) {
		qp->n->rx_bad_opcode++;
		rpwi_resp_refuse(qp, RPWI_NAK_INV_REQ, qp->epsn, IBV_WC_SUCCESS);
		return;
	}
	if (RPWI_UNLIKELY(!rpwi_rcv_length_ok(qp, p))) {
		rpwi_tell(qp, RPWI_TOLD_PACKET_LENGTH, p);
		qp->n->rx_bad_length++;
		rpwi_resp_refuse(qp, RPWI_NAK_INV_REQ, qp->epsn, IBV_WC_SUCCESS);
		return;
	}
	if (rpwi_op_has(op, RPWI_F_WRITE))
		rx_write(qp, p, now_ns);
	else if (rpwi_op_has(op, RPWI_F_SEND))
		rx_send(qp, p, now_ns);
	else if (rpwi_op_has(op, RPWI_F_READ))
		rx_read(qp, p);
	else if (rpwi_op_has(op, RPWI_F_ATOMICWRITE))
		rx_atomic_write(qp, p);
	else
		rx_atomic(qp, p);
}

/* A fault script speaks in the place of this responder. */
static void answer_scripted(struct rpwi_qp *qp, const struct rpwi_pkt *p)
{
	uint8_t syndrome = (uint8_t)(qp->scripted - 1);
	qp->scripted = 0;
	if (rpwi_aeth_kind(syndrome) == RPWI_AETH_RNR_NAK)
		not_ready(qp, p);
	else
		rpwi_resp_refuse(qp, (enum rpwi_nak)(syndrome & 0x1f), qp->epsn, IBV_WC_SUCCESS);
}

void rpwi_resp_rx(struct rpwi_qp *qp, const struct rpwi_pkt *p, uint64_t now_ns)
{
	int32_t ahead = rpwi_psn_diff(p->psn, qp->epsn);

	rpwi_resp_comm_est(qp);
	if (RPWI_LIKELY(!ahead)) {
		if (RPWI_UNLIKELY(qp->scripted))
			answer_scripted(qp, p);
		else
			rx_expected(qp, p, now_ns);
	} else if (ahead < 0) {
		rpwi_tell(qp, RPWI_TOLD_PSN_BEHIND, p);
		rx_duplicate(qp, p, qp->epsn + (uint32_t)ahead, now_ns);
	} else {
		rpwi_tell(qp, RPWI_TOLD_PSN_AHEAD, p);
		qp->n->rx_out_of_order++;
		if (!qp->nak_sent) { /* one NAK for a gap (IB 9.7.5.1.1) */
			qp->nak_sent = true;
			rpwi_resp_owe_nak(qp, rpwi_aeth(RPWI_AETH_NAK, RPWI_NAK_PSN_SEQ), qp->epsn);
		}
	}
}

bool rpwi_qp_takes_more(const struct rpwi_qp *qp, const struct rpwi_pkt *p)
{
	return rpwi_qp_is_rc(qp) && rpwi_qp_receives(qp) && !qp->scripted &&
	       p->psn == (qp->epsn & RPWI_PSN_MASK);
}
