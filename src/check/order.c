/* SPDX-License-Identifier: BSD-3-Clause */
/* order.c - see order.h: attributes of the two ends of a connection, compared where both are known,
 * and else what packets say of them. Messages without a receive are late.c's. */
#include "check/order.h"

#include "check/queue.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>

enum {
	CM_KNOWN = 64,
	FAR_AHEAD = 4096,    /* more PSNs than are ever in flight: no loss explains the distance */
	AHEAD_TIMES = 5,     /* so often is the same first packet not lost by accident */
	AHEAD_TIMES_END = 2, /* nor so often where nothing else ever came */
	STRANGERS = 2,
	UNASKED = 2
};

#define NAMED(address) (char[INET6_ADDRSTRLEN]){0}, address

static const char *text_of(char out[INET6_ADDRSTRLEN], const struct rpwi_addr *a)
{
	inet_ntop(a->family == 6 ? AF_INET6 : AF_INET, a->bytes, out, INET6_ADDRSTRLEN);
	return out;
}

static uint16_t bit_of(enum rpwi_check_rule rule)
{
	return (uint16_t)(1u << (rule - RPWI_RULE_RECV_LATE));
}

bool check_tells(struct check_qp *q, enum rpwi_check_rule rule)
{
	bool first = !(q->order.told & bit_of(rule));
	q->order.told |= bit_of(rule);
	return first;
}

static struct rpwi_finding made_at(struct check_qp *q, enum rpwi_check_rule rule, bool rts)
{
	struct rpwi_finding f = check_finding(rule, q, NULL);
	rpwi_finding_site(&f, rts ? "made ready to send here" : "made ready to receive here",
		rts ? &q->order.rts_at : &q->order.rtr_at);
	return f;
}

/* With no other site. */
__attribute__((format(printf, 4, 5))) static void says(
	struct check_qp *q, enum rpwi_check_rule rule, bool rts, const char *fmt, ...)
{
	struct rpwi_finding f = made_at(q, rule, rts);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(f.text, sizeof(f.text), fmt, ap);
	va_end(ap);
	rpwi_check_report(&f);
}

/* ---- both ends are of this process ---- */

/* The QP that is named as the peer's; NULL: it is not of this process. */
static struct check_qp *named(const struct check_qp *q)
{
	struct check_qp *p = q->t->av.loopback_zone ? check_qpn_find(q->t->attr.dest_qp_num) : NULL;
	return p && p->t->type == q->t->type ? p : NULL;
}

struct check_qp *check_partner(const struct check_qp *q)
{
	struct check_qp *p = named(q);
	return p && p->order.rtr && p->t->attr.dest_qp_num == q->t->qpn ? p : NULL;
}

static void psn_compare(struct check_qp *sends, struct check_qp *receives)
{
	if (!sends->order.rts || !receives->order.rtr ||
		sends->order.sq_psn == receives->order.rq_psn ||
		!check_tells(receives, RPWI_RULE_PSN_MISMATCH))
		return;
	check_tells(sends, RPWI_RULE_PSN_MISMATCH);
	struct rpwi_finding f = made_at(receives, RPWI_RULE_PSN_MISMATCH, false);
	rpwi_finding_site_when(&f, "the peer was made ready to send here", &sends->order.rts_at,
		RPWI_SITE_UNORDERED);
	rpwi_check_say(&f,
		"QP 0x%06x sends from PSN 0x%06x on (sq_psn), and QP 0x%06x expects 0x%06x "
		"(rq_psn)",
		sends->t->qpn, sends->order.sq_psn, receives->t->qpn, receives->order.rq_psn);
}

static void mtu_compare(struct check_qp *q, struct check_qp *p)
{
	if (q->t->mtu == p->t->mtu || !check_tells(q, RPWI_RULE_MTU_MISMATCH))
		return;
	check_tells(p, RPWI_RULE_MTU_MISMATCH);
	struct rpwi_finding f = made_at(q, RPWI_RULE_MTU_MISMATCH, false);
	rpwi_finding_site_when(&f, "the peer was made ready to receive here", &p->order.rtr_at,
		RPWI_SITE_UNORDERED);
	rpwi_check_say(&f, "path_mtu of QP 0x%06x is %u bytes, and %u of its peer 0x%06x",
		q->t->qpn, q->t->mtu, p->t->mtu, p->t->qpn);
}

/* ---- attributes as they are set ---- */

static struct {
	struct {
		uint32_t dest_qpn, rq_psn;
		bool active;
	} of[CM_KNOWN];
	unsigned next;
} cm;

void check_cm_gave(uint32_t dest_qpn, uint32_t rq_psn, bool active)
{
	if (!rpwi_check_lock())
		return;
	cm.of[cm.next].dest_qpn = dest_qpn;
	cm.of[cm.next].rq_psn = rq_psn;
	cm.of[cm.next].active = active;
	cm.next = (cm.next + 1) % CM_KNOWN;
	rpwi_check_unlock();
}

static bool cm_made(const struct check_qp *q, bool *active)
{
	for (unsigned i = 0; i < CM_KNOWN; i++)
		if (cm.of[i].dest_qpn == q->t->attr.dest_qp_num &&
			cm.of[i].rq_psn == q->order.rq_psn) {
			*active = cm.of[i].active;
			return true;
		}
	return false;
}

static void value_told(struct check_qp *q, enum rpwi_check_rule rule, const char *fmt, unsigned v)
{
	if (!check_tells(q, rule))
		return;
	struct rpwi_finding f = check_finding(rule, q, NULL);
	rpwi_finding_site(&f, "set here", &rpwi_check_site);
	rpwi_check_say(&f, fmt, v);
}

static void values_look(struct check_qp *q, const struct ibv_qp_attr *a, int mask)
{
	bool active = false, by_cm = q->order.by_cm && cm_made(q, &active);
	if (q->t->type != IBV_QPT_RC)
		return;
	if (mask & IBV_QP_TIMEOUT && !a->timeout && !by_cm)
		value_told(q, RPWI_RULE_TIMEOUT_0,
			"timeout is %u: a packet that is lost is never sent again by the "
			"specification",
			0);
	if (mask & IBV_QP_RETRY_CNT && !a->retry_cnt && (!by_cm || active))
		value_told(q, RPWI_RULE_RETRY_0,
			by_cm ? "retry_count of rdma_connect is %u: no packet is sent again"
			      : "retry_cnt is %u: no packet is sent again",
			0);
	/* of min_rnr_timer the low 5 bits count */
	if (mask & IBV_QP_MIN_RNR_TIMER && !(a->min_rnr_timer & 0x1f) && !by_cm)
		value_told(q, RPWI_RULE_MIN_RNR_0,
			"min_rnr_timer is %u: a peer whose SEND comes before its receive waits "
			"655.36 ms",
			a->min_rnr_timer);
}

void check_modified(const struct ibv_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	bool active;
	if (!rpwi_check_lock())
		return;
	struct check_qp *q = check_qp_find(qp);
	struct check_order *o = q ? &q->order : NULL;
	if (o && mask & IBV_QP_QKEY)
		o->qkey_at = rpwi_check_site;
	if (o && mask & IBV_QP_ACCESS_FLAGS)
		o->access_at = rpwi_check_site;
	if (o && mask & IBV_QP_STATE && a->qp_state == IBV_QPS_RTR)
		o->rtr_at = rpwi_check_site;
	if (o && mask & IBV_QP_RQ_PSN) {
		o->rtr = true;
		o->connects++;
		o->rq_psn = a->rq_psn & RPWI_PSN_MASK;
		o->by_cm = cm_made(q, &active);
	}
	if (o && mask & IBV_QP_SQ_PSN) {
		o->rts = true;
		o->sq_psn = a->sq_psn & RPWI_PSN_MASK;
		o->rts_at = rpwi_check_site;
		check_sends_missed(q);
	}
	if (o)
		values_look(q, a, mask);
	struct check_qp *p = o && mask & (IBV_QP_RQ_PSN | IBV_QP_SQ_PSN) ? check_partner(q) : NULL;
	if (p && q->t->type != IBV_QPT_UD) {
		mtu_compare(q, p);
		psn_compare(q, p);
		psn_compare(p, q);
	}
	rpwi_check_unlock();
}

void check_gid_refused(unsigned index, const char *why)
{
	if (!rpwi_check_lock())
		return;
	struct rpwi_finding f = {.rule = RPWI_RULE_GID_TYPE};
	rpwi_finding_site(&f, "used here", &rpwi_check_site);
	rpwi_check_say(&f, "GID index %u %s", index, why);
	rpwi_check_unlock();
}

/* ---- READs ---- */

static void reads_beyond(struct check_qp *q, const struct check_wr *w)
{
	uint32_t max = q->t->attr.max_rd_atomic, n = 0;
	for (uint32_t i = q->sq.tail; i != q->sq.done && n <= max; i--)
		n += rpwi_op_needs_response(q->sq.ring[(i - 1) & q->sq.mask].opcode);
	if (n <= max || !check_tells(q, RPWI_RULE_READS_BEYOND))
		return;
	struct rpwi_finding f =
		check_finding(max ? RPWI_RULE_READS_BEYOND : RPWI_RULE_READS_NONE, q, w);
	rpwi_finding_site(&f, "made ready to send here", &q->order.rts_at);
	if (!max)
		rpwi_check_say(&f, "the %s needs an answer, and max_rd_atomic allows for none",
			check_op_name(&q->sq, w));
	else
		rpwi_check_say(&f,
			"%u READs and atomics are outstanding, and max_rd_atomic is %u: this one "
			"and what "
			"is posted behind it waits for the first to be answered",
			n, max);
}

/* Harmless as long as there is no READ: so it is said at the first. */
static void rd_atomic_compare(struct check_qp *q, const struct check_wr *w)
{
	struct check_qp *p = check_partner(q);
	if (!p || q->t->attr.max_rd_atomic <= p->t->attr.max_dest_rd_atomic ||
		!check_tells(q, RPWI_RULE_RD_ATOMIC))
		return;
	check_tells(p, RPWI_RULE_RD_ATOMIC);
	struct rpwi_finding f = made_at(q, RPWI_RULE_RD_ATOMIC, true);
	rpwi_finding_site_when(&f, "the peer was made ready to receive here", &p->order.rtr_at,
		RPWI_SITE_UNORDERED);
	rpwi_finding_site_when(
		&f, "the first READ or atomic, posted here", &w->site, RPWI_SITE_AFTER);
	rpwi_check_say(&f,
		"max_rd_atomic of QP 0x%06x is %u, and its peer 0x%06x takes %u "
		"(max_dest_rd_atomic)",
		q->t->qpn, q->t->attr.max_rd_atomic, p->t->qpn, p->t->attr.max_dest_rd_atomic);
}

void check_reads(struct check_qp *q, const struct check_wr *w)
{
	if (q->t->state != IBV_QPS_RTS)
		return;
	if (!q->order.by_cm)
		rd_atomic_compare(q, w);
	if (!(q->order.told & bit_of(RPWI_RULE_READS_BEYOND)))
		reads_beyond(q, w);
}

/* ---- packets ---- */

static bool nothing_accepted(const struct check_qp *q)
{
	return q->order.rtr && q->t->epsn == q->order.rq_psn;
}

/* The peer is of this process, and begins as it is expected to: this is somebody else's. */
static void other_sends(struct check_qp *q, uint32_t psn)
{
	if (!check_tells(q, RPWI_RULE_QPN_MISMATCH))
		return;
	says(q, RPWI_RULE_QPN_MISMATCH, false,
		"packets with PSN 0x%06x come, and the peer begins with 0x%06x: another QP has the "
		"number of this one as its dest_qp_num",
		psn, q->order.rq_psn);
}

static void psn_told(struct check_qp *q, uint32_t psn, uint32_t times)
{
	const struct check_qp *p = check_partner(q);
	if (p && p->order.rts && p->order.sq_psn == q->order.rq_psn) {
		other_sends(q, psn);
		return;
	}
	if (!check_tells(q, RPWI_RULE_PSN_MISMATCH))
		return;
	says(q, RPWI_RULE_PSN_MISMATCH, false,
		"the peer's first packet has PSN 0x%06x, and this QP expects 0x%06x (rq_psn); it "
		"came %u time%s, and no packet with the PSN expected",
		psn, q->order.rq_psn, times, rpwi_plural(times));
}

/* Before the first that is expected: no loss explains it, but a copy that is older than this
 * connection of a QP that had another one. A probe repeats the last PSN, without a byte. */
static void psn_behind(struct check_qp *q, const struct rpwi_pkt *p)
{
	bool probe = rpwi_psn_diff(p->psn, q->order.rq_psn) == -1 && !p->payload_len;
	if (!nothing_accepted(q) || probe || (q->order.connects > 1 && ++q->order.ahead_times < 3))
		return;
	psn_told(q, p->psn, RPWI_MAX(q->order.ahead_times, 1u));
}

/* The first packet may be lost, and those behind it come. They come again behind it. */
static void psn_ahead(struct check_qp *q, const struct rpwi_pkt *p)
{
	struct check_order *o = &q->order;
	if (!nothing_accepted(q))
		return;
	if (!o->ahead_times || rpwi_psn_diff(p->psn, o->ahead_psn) < 0) {
		o->ahead_psn = p->psn;
		o->ahead_times = 1;
	} else if (p->psn == o->ahead_psn) {
		o->ahead_times++;
	}
	bool far = rpwi_psn_diff(p->psn, o->rq_psn) > FAR_AHEAD;
	if (o->ahead_times >= AHEAD_TIMES || (far && o->ahead_times >= AHEAD_TIMES_END))
		psn_told(q, o->ahead_psn, o->ahead_times);
}

/* The peer waits for a PSN that was not sent, and nothing has been acknowledged yet. Where nothing
 * is under way, somebody else may have sent to the peer. */
static void unasked(struct check_qp *q, const struct rpwi_pkt *p)
{
	struct check_order *o = &q->order;
	bool waits = rpwi_pkt_op(p) == RPWI_OP_ACK &&
		     rpwi_aeth_kind(p->syndrome) == RPWI_AETH_NAK &&
		     (p->syndrome & 0x1f) == RPWI_NAK_PSN_SEQ;
	if (!waits || !o->rts || o->connects > 1 || q->t->una != o->sq_psn ||
		q->t->nxt == q->t->una || ++o->unasked < UNASKED ||
		!check_tells(q, RPWI_RULE_PSN_MISMATCH))
		return;
	says(q, RPWI_RULE_PSN_MISMATCH, true,
		"this QP sends from PSN 0x%06x on (sq_psn), and the peer says that it waits for "
		"0x%06x",
		o->sq_psn, p->psn);
}

static void length_told(struct check_qp *q, const struct rpwi_pkt *p)
{
	bool last = rpwi_op_has(rpwi_pkt_op(p), RPWI_F_LAST);
	uint32_t each = p->payload_len / (1u + p->more);
	/* what is short is no matter of the MTU, but a broken packet */
	bool is_mtu = each == 256 || each == 512 || each == 1024 || each == 2048 || each == 4096;
	if ((last ? each <= q->t->mtu : !is_mtu) || !check_tells(q, RPWI_RULE_MTU_MISMATCH))
		return;
	says(q, RPWI_RULE_MTU_MISMATCH, false,
		"a packet with %u bytes came, %s, and path_mtu of this QP is %u", each,
		last ? "the last of its message" : "with more of its message to come", q->t->mtu);
}

static void refuses_read(struct check_qp *q)
{
	if (!check_tells(q, RPWI_RULE_RD_ATOMIC))
		return;
	says(q, RPWI_RULE_RD_ATOMIC, false,
		"the peer has more READs and atomics outstanding than max_dest_rd_atomic of this "
		"QP, which is %u: its request was refused",
		q->t->attr.max_dest_rd_atomic);
}

static void qkey_told(struct check_qp *q, const struct rpwi_pkt *p, const struct rpwi_flow *from)
{
	if (!check_tells(q, RPWI_RULE_QKEY))
		return;
	struct rpwi_finding f = check_finding(RPWI_RULE_QKEY, q, NULL);
	rpwi_finding_site(&f, "the Q_Key was set here", &q->order.qkey_at);
	rpwi_check_say(&f,
		"a datagram of QP 0x%06x at %s has Q_Key 0x%x, and this QP's is 0x%x: it was "
		"dropped",
		p->sqpn, text_of(NAMED(&from->src)), p->qkey, q->t->attr.qkey);
}

/* Its own peer has never been heard. */
static void stranger(struct check_qp *q, const struct rpwi_pkt *p, const struct rpwi_flow *from)
{
	bool peers = rpwi_addr_eq(&from->src, &q->t->av.flow.dst) &&
		     rpwi_addr_eq(&from->dst, &q->t->av.flow.src);
	if (peers || !nothing_accepted(q) || rpwi_pkt_svc(p) == RPWI_SVC_UD ||
		++q->order.strangers < STRANGERS || !check_tells(q, RPWI_RULE_QPN_MISMATCH))
		return;
	says(q, RPWI_RULE_QPN_MISMATCH, false,
		"packets for this QP come from %s to %s, and its peer is at %s and knows it as %s: "
		"they are dropped",
		text_of(NAMED(&from->src)), text_of(NAMED(&from->dst)),
		text_of(NAMED(&q->t->av.flow.dst)), text_of(NAMED(&q->t->av.flow.src)));
}

void check_order_told(struct check_qp *q, enum rpwi_told what, const struct rpwi_pkt *p,
	const struct rpwi_flow *from)
{
	switch (what) {
	case RPWI_TOLD_PSN_AHEAD:
		psn_ahead(q, p);
		break;
	case RPWI_TOLD_PSN_BEHIND:
		psn_behind(q, p);
		break;
	case RPWI_TOLD_UNASKED:
		unasked(q, p);
		break;
	case RPWI_TOLD_PACKET_LENGTH:
		length_told(q, p);
		break;
	case RPWI_TOLD_RD_ATOMIC:
		refuses_read(q);
		break;
	case RPWI_TOLD_QP_ACCESS:
		check_flags_refuse(q, p);
		break;
	case RPWI_TOLD_QKEY:
		qkey_told(q, p, from);
		break;
	case RPWI_TOLD_WRONG_PEER:
		stranger(q, p, from);
		break;
	default:
		break;
	}
}

/* Nothing that was sent has ever been answered: is there such a peer, and does it look here? */
void check_unanswered(const struct rpwi_qp *t)
{
	if (!rpwi_check_lock())
		return;
	struct check_qp *q = check_qpn_find(t->qpn);
	const struct check_qp *p = q && q->order.rts && t->type == IBV_QPT_RC ? named(q) : NULL;
	bool other = p && p->order.rtr && p->t->attr.dest_qp_num != t->qpn;
	bool never = q && !p && t->av.loopback_zone && !check_qpn_was(t->attr.dest_qp_num);
	if (q && (other || never) && t->una == q->order.sq_psn &&
		check_tells(q, RPWI_RULE_QPN_MISMATCH)) {
		struct rpwi_finding f = made_at(q, RPWI_RULE_QPN_MISMATCH, false);
		if (other) {
			snprintf(f.text, sizeof(f.text),
				"dest_qp_num of this QP is 0x%06x, and that QP's peer is 0x%06x: "
				"nothing that was sent has been answered",
				p->t->qpn, p->t->attr.dest_qp_num);
			rpwi_finding_site_when(&f, "the other one was made ready to receive here",
				&p->order.rtr_at, RPWI_SITE_UNORDERED);
		} else {
			snprintf(f.text, sizeof(f.text),
				"dest_qp_num of this QP is 0x%06x, and this process, whose number "
				"that would be, has never had such a QP",
				t->attr.dest_qp_num);
		}
		rpwi_check_report(&f);
	}
	rpwi_check_unlock();
}

void check_order_ends(struct check_qp *q)
{
	if (nothing_accepted(q) && q->order.ahead_times >= AHEAD_TIMES_END)
		psn_told(q, q->order.ahead_psn, q->order.ahead_times);
	q->order = (struct check_order){.connects = q->order.connects};
}
