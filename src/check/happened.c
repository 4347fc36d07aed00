/* SPDX-License-Identifier: BSD-3-Clause */
/* happened.c - see happened.h. */
#include "check/happened.h"

#include "rc/names.h"

#include <stdarg.h>
#include <stdio.h>

static bool told_already(struct check_qp *q, enum rpwi_cause_kind kind)
{
	bool was = q && q->told >> kind & 1;
	if (q)
		q->told |= 1u << kind;
	return was;
}

static uint32_t peer_of(const struct check_qp *q)
{
	return q && q->t->type != IBV_QPT_UD ? q->t->attr.dest_qp_num : 0;
}

void check_happened(enum rpwi_cause_kind kind, uint32_t qpn, const char *fmt, ...)
{
	char text[160];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!rpwi_check_lock())
		return;
	struct check_qp *q = qpn ? check_qpn_find(qpn) : NULL;
	if (!told_already(q, kind))
		rpwi_check_event(rpwi_cause_name(kind), qpn, peer_of(q), "%s", text);
	rpwi_check_unlock();
}

void check_sent(struct check_qp *q)
{
	if (!told_already(q, RPWI_CAUSE_SENT))
		rpwi_check_event(rpwi_cause_name(RPWI_CAUSE_SENT), q->t->qpn, peer_of(q),
			"posted its first send");
}

/* A failure is written as the device makes its completion: that is when it came. Flushes and
 * receives are written when the program has polled them: what it never asks about hurts nobody. */
void check_ended(
	struct check_qp *q, const struct ibv_wc *wc, const char *op, bool recv, bool polled)
{
	enum rpwi_cause_kind kind = RPWI_CAUSE_FAILED;
	bool good = wc->status == IBV_WC_SUCCESS, flushed = wc->status == IBV_WC_WR_FLUSH_ERR;
	if (good && recv)
		kind = RPWI_CAUSE_RECEIVED;
	else if (flushed)
		kind = recv ? RPWI_CAUSE_RECV_FLUSHED : RPWI_CAUSE_SEND_FLUSHED;
	if ((good && !recv) || polled != (good || flushed) || told_already(q, kind))
		return;
	if (good)
		rpwi_check_event(
			rpwi_cause_name(kind), q->t->qpn, peer_of(q), "received its first message");
	else if (flushed)
		rpwi_check_event(rpwi_cause_name(kind), q->t->qpn, peer_of(q),
			"the %s with wr_id %llu was flushed", op, (unsigned long long)wc->wr_id);
	else
		rpwi_check_event(rpwi_cause_name(kind), q->t->qpn, peer_of(q),
			"the %s with wr_id %llu failed with status %u (%s)", op,
			(unsigned long long)wc->wr_id, wc->status, rpwi_status_name(wc->status));
}

void check_over(struct check_qp *q, const char *how)
{
	bool connected = q->t->state == IBV_QPS_RTR || q->t->state == IBV_QPS_RTS;
	if ((q->told || connected) && q->t->type != IBV_QPT_UD)
		rpwi_check_event(
			rpwi_cause_name(RPWI_CAUSE_DESTROYED), q->t->qpn, peer_of(q), "%s", how);
	q->told = 0;
}

void check_undrained(uint32_t qpn, uint32_t left)
{
	const uint32_t over = 1u << RPWI_CAUSE_DISCONNECTED | 1u << RPWI_CAUSE_PEER_GONE;
	if (!left || !rpwi_check_lock())
		return;
	struct check_qp *q = check_qpn_find(qpn);
	if (q && !(q->told & over) && q->t->state == IBV_QPS_RTS) {
		const struct check_wr *first = &q->sq.ring[(q->sq.tail - left) & q->sq.mask];
		struct rpwi_finding f = check_finding(RPWI_RULE_CM_UNDRAINED, q, NULL);
		rpwi_finding_site(&f, "disconnected here", &rpwi_check_site);
		rpwi_finding_site(&f, "the first of them, posted here", &first->site);
		rpwi_check_say(&f,
			"%u send%s not complete when the program disconnects; the first of them is "
			"the %s with wr_id %llu",
			left, left == 1 ? " is" : "s are", check_op_name(&q->sq, first),
			(unsigned long long)first->wr_id);
	}
	rpwi_check_unlock();
}
