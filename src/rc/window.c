/* SPDX-License-Identifier: BSD-3-Clause */
/* window.c - what a QP has of its peer's window (cc.c), so that no QP waits for one that gets no
 * answer.
 *
 * The window is of one peer process: of its socket. As a rule what a QP has in flight counts
 * there, nxt - una. Not so where:
 *   - it was lent: a short message of a QP with nothing in flight goes beside a window that is used
 *     up or that others wait for, out of a share that is kept for such messages;
 *   - it is silent: nothing of it has been acknowledged for a while, though the process answers
 *     others, or for three such whiles. What it has sent is in nobody's way any more: it was taken,
 *     thrown away or lost. Until an answer comes it sends a few packets at most;
 *   - it is slow: after a time-out it begins again with a few packets, whatever the window has. So
 *     does a QP whose turn comes after another to its process became silent, until it has an
 *     answer: else of many dead ones each would hold the window in its turn.
 * It yields, for one turn of the device, when others wait for the window and it was not called
 * (device/send.c).
 */
#include "rc/internal.h"

static uint32_t less(uint32_t room, uint32_t used) { return room > used ? room - used : 0; }

/* What its own limit leaves, whatever the window has. */
static uint32_t own_room(const struct rpwi_qp *qp)
{
	uint32_t inflight = qp->nxt - qp->una;

	if (qp->window & RPWI_WINDOW_SILENT)
		return less(RPWI_FEW_PKTS, inflight);
	return qp->window & RPWI_WINDOW_SLOW ? less(qp->slow_pkts, inflight) : UINT32_MAX;
}

uint32_t rpwi_window_room_now(const struct rpwi_qp *qp)
{
	uint32_t room = rpwi_cc_room(qp->cc), own = own_room(qp);

	if (qp->window & RPWI_WINDOW_SILENT)
		return own;
	if (qp->window & RPWI_WINDOW_YIELDS)
		return 0;
	/* what it was lent is given back when it takes more */
	if (qp->window & RPWI_WINDOW_LENT)
		room = less(room, qp->nxt - qp->una);
	return RPWI_MIN(room, own);
}

uint32_t rpwi_window_cwnd(const struct rpwi_qp *qp)
{
	if (qp->window & RPWI_WINDOW_SILENT)
		return RPWI_FEW_PKTS;
	return qp->window & RPWI_WINDOW_SLOW ? RPWI_MIN(qp->slow_pkts, qp->cc->cwnd) : qp->cc->cwnd;
}

bool rpwi_window_is_in_the_way(const struct rpwi_qp *qp, uint32_t need)
{
	return !(qp->window & RPWI_WINDOW_SILENT) && own_room(qp) >= need;
}

bool rpwi_window_lends(const struct rpwi_qp *qp)
{
	return qp->cc && qp->nxt == qp->una && !(qp->window & RPWI_WINDOW_SILENT) &&
	       qp->cc->lent < qp->cc->lent_max;
}

void rpwi_window_lend(struct rpwi_qp *qp)
{
	if (rpwi_window_lends(qp))
		qp->window |= RPWI_WINDOW_LENT;
}

void rpwi_window_sent(struct rpwi_qp *qp, uint32_t pkts)
{
	struct rpwi_cc *cc = qp->cc;
	uint32_t inflight = qp->nxt - qp->una;

	if (qp->window & RPWI_WINDOW_SILENT)
		return;
	if (!(qp->window & RPWI_WINDOW_LENT)) {
		rpwi_cc_on_send(cc, pkts);
		return;
	}
	if (!inflight && pkts == 1) {
		cc->lent++;
		return;
	}
	/* it takes more: what it was lent is of the window now */
	qp->window &= (uint8_t)~RPWI_WINDOW_LENT;
	cc->lent -= inflight;
	rpwi_cc_on_send(cc, inflight + pkts);
}

/* `pkts` of it are in flight no longer. */
static void gives_back(struct rpwi_qp *qp, uint32_t pkts)
{
	if (qp->window & RPWI_WINDOW_SILENT)
		return;
	if (!(qp->window & RPWI_WINDOW_LENT)) {
		rpwi_cc_on_forget(qp->cc, pkts);
		return;
	}
	assert(pkts <= qp->cc->lent);
	qp->cc->lent -= pkts;
}

void rpwi_window_forget(struct rpwi_qp *qp, uint32_t pkts)
{
	if (!qp->cc || !pkts)
		return;
	gives_back(qp, pkts);
	if (pkts == qp->nxt - qp->una)
		qp->window &= (uint8_t)~RPWI_WINDOW_LENT;
}

void rpwi_window_acked(struct rpwi_qp *qp, uint32_t pkts, uint64_t now_ns)
{
	if (!qp->cc)
		return;
	qp->cc->heard_ns = now_ns;
	if (!(qp->window & (RPWI_WINDOW_LENT | RPWI_WINDOW_SILENT)) && pkts)
		rpwi_cc_on_ack(qp->cc, pkts, now_ns);
	else
		gives_back(qp, pkts);
	if (qp->window & RPWI_WINDOW_SILENT) {
		qp->window &= (uint8_t)~RPWI_WINDOW_SILENT;
		rpwi_cc_on_send(qp->cc, qp->nxt - qp->una);
	}
	if (qp->nxt == qp->una)
		qp->window &= (uint8_t)~RPWI_WINDOW_LENT;
	if (qp->window & RPWI_WINDOW_SLOW) {
		qp->slow_pkts += pkts;
		if (qp->slow_pkts >= qp->cc->cwnd)
			qp->window &= (uint8_t)~RPWI_WINDOW_SLOW;
	}
}

void rpwi_window_silent(struct rpwi_qp *qp, uint64_t now_ns)
{
	if (!qp->cc)
		return;
	qp->cc->silent_ns = now_ns;
	gives_back(qp, qp->nxt - qp->una);
	qp->window = (uint8_t)((qp->window & ~RPWI_WINDOW_LENT) | RPWI_WINDOW_SILENT);
}

void rpwi_window_timed_out(struct rpwi_qp *qp, uint64_t now_ns)
{
	if (!qp->cc)
		return;
	rpwi_window_silent(qp, now_ns);
	qp->window |= RPWI_WINDOW_SLOW;
	qp->slow_pkts = RPWI_FEW_PKTS;
}

void rpwi_qp_turn_begins(struct rpwi_qp *qp, uint64_t heard_ns)
{
	if (!qp->cc || !qp->cc->silent_ns || heard_ns > qp->cc->silent_ns ||
		qp->window & RPWI_WINDOW_SLOW)
		return;
	qp->window |= RPWI_WINDOW_SLOW;
	qp->slow_pkts = qp->nxt - qp->una + RPWI_FEW_PKTS;
}

void rpwi_window_move(struct rpwi_qp *qp, struct rpwi_cc *cc)
{
	uint32_t inflight = qp->nxt - qp->una;

	rpwi_window_forget(qp, inflight);
	qp->cc = cc;
	if (cc && inflight && !(qp->window & RPWI_WINDOW_SILENT))
		rpwi_cc_on_send(cc, inflight);
}
