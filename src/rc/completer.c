/* SPDX-License-Identifier: BSD-3-Clause */
/* completer.c - what comes back to an RC requester: ACKs, NAKs, READ and atomic responses (IB
 * 9.7.5.1, 9.7.7, 9.9.2); retries and time-outs.
 *
 * Every loss is repaired by going back to una, the oldest PSN without an answer, and sending from
 * there. What makes it go back:
 *   - a sequence NAK: the responder saw a gap;
 *   - an implied NAK: a response that passes over a READ or atomic whose own responses are missing
 *     (IB 9.7.5.1.4);
 *   - a probe's answer that does not cover what was sent before it;
 *   - the local ACK time-out;
 *   - a RNR NAK: after the time that it names.
 * NAKs and time-outs share retry_cnt, the last has rnr_retry; any progress gives them all back.
 * With attr.timeout 0 (none) a packet that a socket lost would hold its share of the peer's window
 * for ever: so it is sent again every half second, which is counted as no retry.
 */
#include "rc/internal.h"

#define DEAF_MIN_NS 20000ull
#define DEAF_UNKNOWN_NS RPWI_NS_PER_MS

/* IB table 45: RNR NAK timer codes. */
static const uint64_t rnr_wait_ns[32] = {
	655360000,
	10000,
	20000,
	30000,
	40000,
	60000,
	80000,
	120000,
	160000,
	240000,
	320000,
	480000,
	640000,
	960000,
	1280000,
	1920000,
	2560000,
	3840000,
	5120000,
	7680000,
	10240000,
	15360000,
	20480000,
	30720000,
	40960000,
	61440000,
	81920000,
	122880000,
	163840000,
	245760000,
	327680000,
	491520000,
};

static bool active(const struct rpwi_qp *qp)
{
	return qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
}

/* ---- progress ---- */

static void retire_head(struct rpwi_qp *qp)
{
	rpwi_qp_complete_send(qp, rpwi_sq_at(qp, qp->sq_head), IBV_WC_SUCCESS);
	/* after going back, an answer to the first attempt may overtake the second */
	qp->sq_cur += qp->sq_cur == qp->sq_head;
	qp->sq_head++;
}

static void take_rtt(struct rpwi_qp *qp, uint64_t sample_ns)
{
	qp->rtt_running = false;
	qp->rtt_ns = qp->rtt_ns ? qp->rtt_ns - qp->rtt_ns / 8 + sample_ns / 8 : sample_ns;
	if (qp->cc)
		rpwi_cc_on_rtt(qp->cc, sample_ns);
}

/* una went on. All before the last probe is acknowledged: its answer, and those to probes before
 * it, may still come and would look like an answer to the next one. Once anything sent behind it is
 * acknowledged, they have come. */
static void probe_done(struct rpwi_qp *qp)
{
	if (rpwi_before(qp->una, qp->probe_end))
		return;
	qp->stale = qp->una == qp->probe_end ? (uint8_t)(qp->stale + qp->asked) : 0;
	qp->asked = 0;
	qp->probing = false;
}

/* una went on from una0: the window, timers and retry counts. */
static void account(struct rpwi_qp *qp, uint32_t una0, uint64_t now_ns)
{
	if (qp->una == una0)
		return;
	bool overtaken = rpwi_before(qp->nxt, qp->una);
	uint32_t acked = (overtaken ? qp->nxt : qp->una) - una0;

	if (overtaken)
		qp->nxt = qp->una;
	if (RPWI_UNLIKELY(qp->window))
		rpwi_window_acked(qp, acked, now_ns);
	else if (qp->cc && acked)
		rpwi_cc_on_ack(qp->cc, acked, now_ns);
	if (qp->rtt_running && rpwi_before(qp->rtt_psn, qp->una))
		take_rtt(qp, now_ns - qp->rtt_start_ns);
	qp->retry_left = qp->attr.retry_cnt;
	qp->rnr_left = qp->attr.rnr_retry;
	qp->timeouts_in_row = 0;
	rpwi_slow_end(qp, RPWI_SLOW_TWICE | RPWI_SLOW_ONE | RPWI_SLOW_PROBE);
	qp->implied = false;
	qp->deaf_until_ns = 0;
	qp->probes = qp->answers = 0;
	qp->late = false;
	if (RPWI_UNLIKELY(qp->probing || qp->stale))
		probe_done(qp);
	if (qp->una == qp->nxt) /* the next that is sent sets them */
		return;
	qp->ack_deadline_ns = now_ns + rpwi_req_ack_wait_ns(qp);
	rpwi_req_arm_probe(qp, now_ns);
}

/* Where the peer lets this QP write. */
static void note_written(struct rpwi_qp *qp, const struct rpwi_swqe *w)
{
	uint64_t end = w->raddr + w->len;

	if (w->rkey == qp->wrote_rkey && w->raddr <= qp->wrote_end && end >= qp->wrote_va) {
		qp->wrote_va = RPWI_MIN(qp->wrote_va, w->raddr);
		qp->wrote_end = RPWI_MAX(qp->wrote_end, end);
	} else {
		qp->wrote_rkey = w->rkey;
		qp->wrote_va = w->raddr;
		qp->wrote_end = end;
	}
}

/* All before `upto` is acknowledged; but a READ or atomic is acknowledged by its own responses
 * alone. False when one of them is in the way. */
static bool advance(struct rpwi_qp *qp, uint32_t upto, uint64_t now_ns)
{
	uint32_t una0 = qp->una;
	bool passed = true;

	while (rpwi_before(qp->una, upto)) {
		/* A WQE without PSNs can be at the head only when it has not run, and then nothing
		 * after it has been sent. */
		const struct rpwi_swqe *w = rpwi_sq_at(qp, qp->sq_head);
		if (w->phase == RPWI_SWQE_DONE) {
			retire_head(qp);
			continue;
		}
		if (rpwi_op_needs_response(w->opcode)) {
			passed = false;
			break;
		}
		uint32_t end = w->psn_first + w->npsn;

		if (rpwi_before(upto, end)) {
			qp->una = upto;
			break;
		}
		qp->una = end;
		if (w->npsn > 1 && w->opcode == IBV_WR_RDMA_WRITE)
			note_written(qp, w);
		retire_head(qp);
	}
	account(qp, una0, now_ns);
	return passed;
}

void rpwi_cpl_placed(struct rpwi_qp *qp, uint32_t upto, uint64_t now_ns)
{
	uint32_t head = qp->sq_head;

	advance(qp, upto, now_ns);
	qp->n->writes_alone += qp->sq_head - head;
	qp->slow |= RPWI_SLOW_PEER;
	rpwi_req_retired(qp);
}

/* ---- going back ---- */

/* Once more from una, if retry_cnt allows. */
static void retry(struct rpwi_qp *qp)
{
	if (!qp->retry_left) {
		rpwi_qp_fail_send(qp, IBV_WC_RETRY_EXC_ERR);
		return;
	}
	qp->retry_left--;
	qp->n->retries++;
	rpwi_req_go_back(qp);
}

static uint64_t deaf_ns(const struct rpwi_qp *qp)
{
	return qp->rtt_ns ? RPWI_MAX(2 * qp->rtt_ns, DEAF_MIN_NS) : DEAF_UNKNOWN_NS;
}

/* A loss was reported. Packets that come within a round trip of going back were sent before the
 * peer saw any of it, and says nothing new. */
static void go_back_once(struct rpwi_qp *qp, uint64_t now_ns)
{
	if (qp->nxt == qp->una || now_ns < qp->deaf_until_ns)
		return;
	qp->deaf_until_ns = now_ns + deaf_ns(qp);
	if (qp->cc)
		rpwi_cc_on_loss(qp->cc, now_ns);
	retry(qp);
}

/* `psn` came, and the responses of the READ or atomic at una did not. The rest of the answers to
 * the same attempt may still be arriving, in order; a PSN that is not above the last one belongs to
 * the next attempt, and says that it has failed as well. */
static void implied_nak(struct rpwi_qp *qp, uint32_t psn, uint64_t now_ns)
{
	bool same_attempt = qp->implied && rpwi_before(qp->implied_psn, psn);

	qp->implied = true;
	qp->implied_psn = psn;
	if (!same_attempt)
		go_back_once(qp, now_ns);
}

static void sequence_nak(struct rpwi_qp *qp, uint64_t now_ns)
{
	qp->n->seq_nak_rx++;
	go_back_once(qp, now_ns);
}

static void rnr_nak(struct rpwi_qp *qp, const struct rpwi_pkt *p, uint64_t now_ns)
{
	qp->n->rnr_nak_rx++;
	if (qp->nxt == qp->una)
		return;
	rpwi_tell(qp, RPWI_TOLD_RNR_NAK, p);
	if (qp->attr.rnr_retry != 7) { /* 7 is for ever (IB 9.7.5.2.8) */
		if (!qp->rnr_left) {
			rpwi_qp_fail_send(qp, IBV_WC_RNR_RETRY_EXC_ERR);
			return;
		}
		qp->rnr_left--;
	}
	rpwi_req_go_back(qp);
	qp->slow |= RPWI_SLOW_RNR | RPWI_SLOW_ONE;
	qp->rnr_deadline_ns = now_ns + rnr_wait_ns[p->syndrome & 0x1f];
}

void rpwi_cpl_timeout(struct rpwi_qp *qp, uint64_t now_ns)
{
	qp->n->timeouts++;
	rpwi_window_timed_out(qp, now_ns);
	rpwi_req_count_wait(qp);
	if (qp->timeouts_in_row < UINT8_MAX)
		qp->timeouts_in_row++;
	qp->implied = false;
	qp->deaf_until_ns = 0;
	rpwi_slow_end(qp, RPWI_SLOW_TWICE);
	qp->slow |= qp->timeouts_in_row > 1 ? RPWI_SLOW_TWICE : 0;
	if (qp->timeout_ns) {
		retry(qp);
		return;
	}
	qp->n->retries++;
	rpwi_req_go_back(qp);
}

/* Of several probes the first is answered first, and its answer covers what was sent before that
 * one. Had that answer been lost, and this one reported a loss behind it, the next probe's would
 * say so. */
static bool answers_an_earlier_probe(struct rpwi_qp *qp, uint32_t psn)
{
	if (qp->asked < 2 || rpwi_before(psn + 1, qp->probe_first_end))
		return false;
	if (--qp->asked == 1)
		qp->probe_first_end = qp->probe_end;
	return true;
}

/* Many round trips without a word, and the ACK timer, which is tens of milliseconds as programs set
 * it, still runs: a lost tail, a lost NAK (there is one for each gap), a lost ACK, or a peer that
 * does not run. A probe asks which. It comes to the peer behind all that was sent before it, so an
 * ACK that covers none of that says that it is lost; no more than that one packet is sent before
 * the peer has said so. */
static void probe_answered(struct rpwi_qp *qp, uint64_t now_ns)
{
	if (qp->cc)
		rpwi_cc_on_loss(qp->cc, now_ns);
	qp->implied = false;
	qp->probes = 0;
	qp->answers++;
	qp->deaf_until_ns = now_ns + deaf_ns(qp);
	qp->n->retries++;
	rpwi_req_go_back(qp);
}

/* ---- responses ---- */

static void nak(struct rpwi_qp *qp, unsigned code, uint64_t now_ns)
{
	if (code < RPWI_NAK_COUNT)
		qp->n->nak_rx[code]++;
	switch (code) {
	case RPWI_NAK_PSN_SEQ:
		sequence_nak(qp, now_ns);
		return;
	case RPWI_NAK_INV_REQ:
		rpwi_qp_fail_send(qp, IBV_WC_REM_INV_REQ_ERR);
		return;
	case RPWI_NAK_REM_ACCESS:
		rpwi_qp_fail_send(qp, IBV_WC_REM_ACCESS_ERR);
		return;
	case RPWI_NAK_REM_OP:
		rpwi_qp_fail_send(qp, IBV_WC_REM_OP_ERR);
		return;
	default: /* reserved, or of services that there are none of (IB 9.7.5.2.1): ignored */
		rpwi_debug("QP %u: NAK with code %u ignored", qp->qpn, code);
	}
}

/* An ACK acknowledges its own PSN too, a NAK all before it. */
static void rx_ack(struct rpwi_qp *qp, const struct rpwi_pkt *p, uint32_t psn, uint64_t now_ns)
{
	enum rpwi_aeth_kind kind = rpwi_aeth_kind(p->syndrome);

	if (kind == RPWI_AETH_RESERVED)
		return;
	uint32_t una0 = qp->una;
	bool passed = advance(qp, kind == RPWI_AETH_ACK ? psn + 1 : psn, now_ns);

	qp->acked |= qp->una != una0;

	rpwi_req_retired(qp);
	if (!active(qp))
		return;
	if (!passed)
		implied_nak(qp, psn, now_ns);
	else if (kind == RPWI_AETH_RNR_NAK)
		rnr_nak(qp, p, now_ns);
	else if (kind == RPWI_AETH_NAK)
		nak(qp, p->syndrome & 0x1f, now_ns);
}

/* Is this the response that the READ at the head waits for? In the middle of a request FIRST and
 * MIDDLE are alike: a request that was resumed begins anew there. */
static bool read_response_fits(
	const struct rpwi_qp *qp, const struct rpwi_swqe *w, const struct rpwi_pkt *p)
{
	unsigned op = rpwi_pkt_op(p);
	bool last = qp->una + 1 == qp->rd_end[qp->rd_head % RPWI_RD_ATOMIC_MAX];
	uint32_t left = w->len - (qp->una - w->psn_first) * qp->mtu;

	return w->opcode == IBV_WR_RDMA_READ && rpwi_op_has(op, RPWI_F_READRESP) &&
	       rpwi_op_has(op, RPWI_F_LAST) == last && p->payload_len == RPWI_MIN(left, qp->mtu);
}

static bool atomic_response_fits(const struct rpwi_swqe *w, const struct rpwi_pkt *p)
{
	return w->opcode != IBV_WR_RDMA_READ && w->opcode != RPWI_WR_ATOMIC_WRITE &&
	       rpwi_op_has(rpwi_pkt_op(p), RPWI_F_ATOMICACK);
}

/* IB A19: as a READ of nothing is answered. */
static bool atomic_write_response_fits(const struct rpwi_swqe *w, const struct rpwi_pkt *p)
{
	return w->opcode == RPWI_WR_ATOMIC_WRITE && rpwi_pkt_op(p) == RPWI_OP_READ_RESP_ONLY &&
	       !p->payload_len;
}

/* What a response brings, to where its WQE wants it. 0, -EACCES or -EFAULT. */
static int take_data(
	struct rpwi_qp *qp, const struct rpwi_swqe *w, const struct rpwi_pkt *p, uint32_t psn)
{
	if (w->opcode == RPWI_WR_ATOMIC_WRITE)
		return 0;
	if (w->opcode == IBV_WR_RDMA_READ)
		return rpwi_cpl_scatter(
			qp, w, (psn - w->psn_first) * qp->mtu, p->payload, p->payload_len);
	return rpwi_cpl_scatter(qp, w, 0, (const uint8_t *)&p->atomic_orig, sizeof(p->atomic_orig));
}

static void rx_data(struct rpwi_qp *qp, const struct rpwi_pkt *p, uint32_t psn, uint64_t now_ns)
{
	if (rpwi_op_has(rpwi_pkt_op(p), RPWI_F_AETH) &&
		rpwi_aeth_kind(p->syndrome) != RPWI_AETH_ACK) {
		qp->n->rx_bad_opcode++;
		return;
	}
	/* a response acknowledges the SENDs and WRITEs before it (IB 9.7.5.1.2) */
	advance(qp, psn, now_ns);
	rpwi_req_retired(qp);
	if (!active(qp))
		return;
	if (qp->una != psn) {
		implied_nak(qp, psn, now_ns);
		return;
	}

	const struct rpwi_swqe *w = rpwi_sq_at(qp, qp->sq_head);
	bool wants = qp->rd_head != qp->rd_tail && rpwi_op_needs_response(w->opcode);

	if (!wants || (!read_response_fits(qp, w, p) && !atomic_response_fits(w, p) &&
			      !atomic_write_response_fits(w, p))) {
		qp->n->rx_bad_opcode++;
		rpwi_debug("QP %u: bad response %s of %u bytes at PSN %u", qp->qpn,
			rpwi_opcode_name(p->opcode), p->payload_len, p->psn);
		rpwi_qp_fail_send(qp, IBV_WC_BAD_RESP_ERR);
		return;
	}
	if (take_data(qp, w, p, psn)) {
		rpwi_qp_fail_send(qp, IBV_WC_LOC_PROT_ERR);
		return;
	}
	qp->una = psn + 1;
	if (qp->una == qp->rd_end[qp->rd_head % RPWI_RD_ATOMIC_MAX]) {
		qp->rd_next += qp->rd_next == qp->rd_head;
		qp->rd_head++;
	}
	if (qp->una == w->psn_first + w->npsn)
		retire_head(qp);
	account(qp, psn, now_ns);
	rpwi_req_retired(qp);
}

void rpwi_cpl_rx(struct rpwi_qp *qp, const struct rpwi_pkt *p, uint64_t now_ns)
{
	if (!active(qp)) {
		qp->n->rx_wrong_state++;
		return;
	}
	int32_t ahead = rpwi_psn_diff(p->psn, qp->una);
	uint32_t psn = qp->una + (uint32_t)ahead;

	bool plain = rpwi_pkt_op(p) == RPWI_OP_ACK && rpwi_aeth_kind(p->syndrome) == RPWI_AETH_ACK;

	if (plain && (ahead < 0 || !rpwi_before(psn, qp->psn_max))) {
		if (RPWI_UNLIKELY(qp->stale)) {
			qp->stale--;
		} else if (RPWI_UNLIKELY(qp->probing && !(qp->slow & RPWI_SLOW_PROBE)) &&
			   !answers_an_earlier_probe(qp, psn)) {
			probe_answered(qp, now_ns);
			return;
		}
	}
	if (ahead < 0) { /* answered already */
		rpwi_tell(qp, RPWI_TOLD_UNASKED, p);
		qp->n->rx_duplicate++;
		return;
	}
	if (!rpwi_before(psn, qp->psn_max)) { /* never asked (IB 9.9.2.4.1: a ghost is ignored) */
		rpwi_tell(qp, RPWI_TOLD_UNASKED, p);
		qp->n->rx_out_of_order++;
		return;
	}
	if (rpwi_pkt_op(p) == RPWI_OP_ACK)
		rx_ack(qp, p, psn, now_ns);
	else
		rx_data(qp, p, psn, now_ns);
}
