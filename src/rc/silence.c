/* SPDX-License-Identifier: BSD-3-Clause */
/* silence.c - what a requester does while nothing is answered: when it asks for a sign of life (a
 * probe, long before IB's timer runs out, IB 9.7.6.1.3), and when a QP that nobody answers stops
 * counting in the window of its peer process.
 */
#include "rc/internal.h"

#define ACK_WAIT_MIN_NS 4000000ull
#define SILENCE_MIN_NS 2000000ull /* a process may not run for so long on a busy machine */
#define SILENCE_RTTS 16
#define PARTIAL_MIN_NS 250000ull
/* without an answer: each silence is twice as long as the one before; and without progress */
enum { PROBES_MAX = 5, ANSWERS_MAX = 7, SILENCES_MAX = 2 };

/* How long to wait for an ACK. IB 9.7.6.1.3 lets the timer run out anywhere between T and 4 T:
 * twice T at first; 4 T once it did run out, so that a peer that is stopped for a while, as a NIC
 * never is, costs no connection; T if it is known that there is nobody to wait for. Never under 4
 * ms, whatever the code: a process is not always running. */
uint64_t rpwi_req_ack_wait_ns(const struct rpwi_qp *qp)
{
	if (!qp->timeout_ns)
		return RPWI_PROBE_NS;
	unsigned times = 2;
	if (RPWI_UNLIKELY(qp->timeouts_in_row))
		times = qp->rejected ? 1 : 4;
	return RPWI_MAX(qp->timeout_ns * times, ACK_WAIT_MIN_NS);
}

/* The timer has run out. Where nobody is there the wait was as many retries as it was T long: so
 * all of them together take what IB asks for at least, (retry_cnt + 1) T, and no more. */
void rpwi_req_count_wait(struct rpwi_qp *qp)
{
	uint64_t times = qp->timeout_ns ? rpwi_req_ack_wait_ns(qp) / qp->timeout_ns : 0;

	qp->rejected = times && qp->ops->peer_rejects && qp->ops->peer_rejects(qp);
	if (qp->rejected)
		qp->retry_left -= (uint8_t)RPWI_MIN(times - 1, (uint64_t)qp->retry_left);
}

/* rxe acknowledges PSN 0xffffff to a duplicate as long as it has executed nothing but READs
 * (duplicate_request in rxe_resp.c): that must not look like an answer. */
static bool may_probe(const struct rpwi_qp *qp)
{
	uint32_t to_wrap = RPWI_PSN_MASK - (qp->una & RPWI_PSN_MASK);

	return qp->timeout_ns && qp->rtt_ns && qp->probes < PROBES_MAX &&
	       qp->answers < ANSWERS_MAX && !qp->timeouts_in_row &&
	       (qp->acked || to_wrap >= qp->psn_max - qp->una);
}

/* Has it something in the window, which its silence will give back? */
static bool is_counted(const struct rpwi_qp *qp)
{
	return qp->cc && !(qp->window & RPWI_WINDOW_SILENT);
}

static uint64_t silence_ns(const struct rpwi_qp *qp)
{
	/* part of an answer, it seems: the rest comes soon or is lost */
	if (qp->probing)
		return RPWI_MAX(2 * qp->rtt_ns, PARTIAL_MIN_NS);
	return RPWI_MAX(SILENCE_RTTS * qp->rtt_ns, SILENCE_MIN_NS);
}

static uint64_t asks_ns(const struct rpwi_qp *qp, uint64_t now_ns)
{
	return may_probe(qp) ? now_ns + (silence_ns(qp) << qp->probes) : RPWI_NEVER;
}

/* Until it is looked at whether the QP counts: at first one silence, then two more, then four. */
static uint64_t counts_ns(const struct rpwi_qp *qp)
{
	return qp->silent_from_ns + qp->cc->silence_ns * ((2u << qp->silences) - 1);
}

void rpwi_req_arm_probe(struct rpwi_qp *qp, uint64_t now_ns)
{
	uint64_t at = asks_ns(qp, now_ns);

	qp->silent_from_ns = now_ns;
	qp->silences = 0;
	qp->asks_ns = at;
	if (is_counted(qp) && now_ns + qp->cc->silence_ns < at)
		at = now_ns + qp->cc->silence_ns;
	qp->probe_deadline_ns = at;
}

/* The process answers others meanwhile, or nobody for a long while. */
static void look_whether_it_counts(struct rpwi_qp *qp, uint64_t now_ns)
{
	if (qp->cc->heard_ns > qp->silent_from_ns || qp->silences >= SILENCES_MAX)
		rpwi_window_silent(qp, now_ns);
	else
		qp->silences++;
}

void rpwi_req_probe(struct rpwi_qp *qp, uint64_t now_ns)
{
	bool asks = now_ns >= qp->asks_ns;

	if (is_counted(qp) && now_ns >= counts_ns(qp))
		look_whether_it_counts(qp, now_ns);
	if (asks) {
		qp->probing = false;
		qp->probes++;
		qp->asks_ns = asks_ns(qp, now_ns);
	}
	qp->probe_deadline_ns = qp->asks_ns;
	if (is_counted(qp))
		qp->probe_deadline_ns = RPWI_MIN(qp->asks_ns, counts_ns(qp));
	if (!asks)
		return;
	qp->probing = true;
	qp->slow |= RPWI_SLOW_PROBE;
	qp->probe_end = qp->nxt;
	if (!qp->asked++)
		qp->probe_first_end = qp->probe_end;
}
