/* SPDX-License-Identifier: BSD-3-Clause */
/* late.c - see order.h: messages that come before their receive, and what the program, or its peer,
 * waits for in vain. */
#include "check/order.h"

#include "check/events.h"
#include "check/queue.h"

#include <stdio.h>

#define TICK_NS (RPWI_NS_PER_S / 4)
#define AWAKE_MOST_NS RPWI_NS_PER_S  /* the device tells more often (device/service.c) */
#define VAIN_NS (5 * RPWI_NS_PER_S)  /* so long does nobody wait on purpose */
#define UNSOLICITED_NS RPWI_NS_PER_S /* a program that is busy elsewhere is back before */
#define UNSOLICITED_VAIN_NS (10 * RPWI_NS_PER_S)

static _Atomic uint64_t tick_ns; /* the next one */

static double us(uint64_t ns) { return (double)ns / 1000; }

/* The peer's request that waits, where its QP is of this process. */
static const struct check_wr *sent(const struct check_qp *q, const struct check_qp **by)
{
	*by = check_partner(q);
	return *by ? check_oldest(&(*by)->sq) : NULL;
}

/* ---- a receive that is late ---- */

/* What the two ends did: the last two sites, and a sentence on the peer. */
static void both_ends(struct rpwi_finding *f, const struct check_qp *q)
{
	const struct check_qp *peer;
	const struct check_wr *w = sent(q, &peer);
	if (w) {
		snprintf(f->peer, sizeof(f->peer),
			"QP 0x%06x of this process: its %s with wr_id %llu was posted %.1f us ago, "
			"and rnr_retry is %u",
			peer->t->qpn, check_op_name(&peer->sq, w), (unsigned long long)w->wr_id,
			us(rpwi_now_ns() - w->posted_ns), peer->t->attr.rnr_retry);
		rpwi_finding_site(f, "the message was posted here", &w->site);
	}
	rpwi_finding_site_when(f, "made ready to receive here", &q->order.rtr_at,
		w ? RPWI_SITE_UNORDERED : RPWI_SITE_BEFORE);
}

static struct rpwi_finding late_finding(const struct check_qp *q, bool first)
{
	return check_finding(first ? RPWI_RULE_RECV_LATE : RPWI_RULE_RECV_RAN_OUT, q, NULL);
}

static const char *which(bool first)
{
	return first ? "a message came, and no receive had ever been posted"
		     : "a message came when all receives that had been posted were used up";
}

static void late_done(struct check_qp *q)
{
	q->order.late_ns = 0;
	q->order.late_tries = 0;
	if (q->srq && q->srq->late)
		q->srq->late--;
}

/* The receive that it waits for is being posted. */
static void late_over(struct check_qp *q)
{
	struct check_order *o = &q->order;
	struct rpwi_finding f = late_finding(q, o->late_first);
	uint64_t ns = rpwi_now_ns() - o->late_ns;
	rpwi_finding_site(&f, "the receive was posted here", &rpwi_check_site);
	if (q->t->type == IBV_QPT_RC)
		snprintf(f.text, sizeof(f.text),
			"%s: the receive was posted %.1f us after it came, and the peer was told "
			"%u time%s to wait and try again",
			which(o->late_first), us(ns), o->late_tries, rpwi_plural(o->late_tries));
	else
		snprintf(f.text, sizeof(f.text),
			"%s: the receive was posted %.1f us after it came, and the message is lost",
			which(o->late_first), us(ns));
	both_ends(&f, q);
	rpwi_check_report(&f);
	late_done(q);
}

/* None comes: the QP goes, or it has waited for long. */
static void late_in_vain(struct check_qp *q, const char *so_far)
{
	struct check_order *o = &q->order;
	struct rpwi_finding f = late_finding(q, o->late_first);
	snprintf(f.text, sizeof(f.text), "%s, nor has one been posted in the %.1f ms since%s",
		which(o->late_first), us(rpwi_now_ns() - o->late_ns) / 1000, so_far);
	both_ends(&f, q);
	rpwi_check_report(&f);
	o->late_told = true;
	late_done(q);
}

static void no_receive(struct check_qp *q, const struct rpwi_pkt *p)
{
	struct check_order *o = &q->order;
	const struct check_queue *of = q->srq ? &q->srq->q : &q->rq;
	/* a fault script may say so where there is one */
	if (rpwi_rq_count(q->t->rq) || !of->ring)
		return;
	/* a retry, while the receive that it is told about is being posted */
	if (q->srq ? q->srq->posting : o->posting)
		return;
	if (!q->srq && check_receives_missed(q)) {
		o->late_told = true; /* by that */
		return;
	}
	/* a datagram that is lost for want of a receive is what programs of UC and UD have to
	 * expect; but not that there has never been one */
	if (q->t->type != IBV_QPT_RC && of->tail)
		return;
	/* a group's senders are members, too, and need not listen */
	if (p->dqpn == RPWI_MCAST_QPN)
		return;
	o->late_tries++;
	if (o->late_ns || o->late_told)
		return;
	o->late_ns = rpwi_now_ns();
	if (!o->looking) /* else the one that is being posted is counted already */
		o->late_first = !of->tail;
	if (q->srq)
		q->srq->late++;
}

bool check_receive_comes(const struct ibv_qp *qp)
{
	bool looks = false;
	if (!rpwi_check_lock())
		return false;
	struct check_qp *q = check_qp_find(qp);
	if (q && q->order.late_ns) {
		late_over(q);
		q->order.posting = looks = true;
	} else if (q && q->order.late_told) {
		q->order.posting = looks = true; /* what waits has been reported */
	} else if (q && q->rq.ring && q->order.rtr && q->t->type == IBV_QPT_RC &&
		   q->rq.done == q->rq.tail) {
		q->order.looking = looks = true;
		q->order.late_first = !q->rq.tail;
	}
	if (q)
		q->order.late_told = false;
	rpwi_check_unlock();
	return looks;
}

static void late_of_srq(struct check_qp *q, void *srq)
{
	if (q->srq == srq && q->order.late_ns)
		late_over(q);
}

bool check_srq_receive_comes(const struct ibv_srq *srq)
{
	if (!rpwi_check_lock())
		return false;
	struct check_srq *s = check_srq_find(srq);
	bool late = s && s->late;
	if (late) {
		check_qps_each(late_of_srq, s);
		s->posting = true;
	}
	rpwi_check_unlock();
	return late;
}

void check_srq_received(const struct ibv_srq *srq)
{
	if (!rpwi_check_lock())
		return;
	struct check_srq *s = check_srq_find(srq);
	if (s)
		s->posting = false;
	rpwi_check_unlock();
}

/* It waited at the sender, in a lane or in a socket's buffer, where a NIC would have refused it. */
static void waited(struct check_qp *q, const struct check_wr *w)
{
	struct check_order *o = &q->order;
	o->looking = false;
	struct rpwi_finding f = late_finding(q, o->late_first);
	const struct check_qp *peer;
	const struct check_wr *by = sent(q, &peer);
	f.has_wr = true;
	f.wr_id = w->wr_id;
	f.op = "RECV";
	rpwi_finding_site(&f, "the receive was posted here", &w->site);
	if (by && by->posted_ns < w->posted_ns)
		snprintf(f.text, sizeof(f.text),
			"%s: it had been posted %.1f us before the receive was. The software "
			"device has brought it later; a NIC would not",
			which(o->late_first), us(w->posted_ns - by->posted_ns));
	else
		snprintf(f.text, sizeof(f.text),
			"%s: it had come when the receive was posted. The software device looked "
			"at it later; a NIC would not",
			which(o->late_first));
	both_ends(&f, q);
	rpwi_check_report(&f);
}

void check_received(struct check_qp *q, const struct check_wr *w)
{
	if (w->status == IBV_WC_SUCCESS && !q->srq)
		waited(q, w);
}

/* Nothing has come: but where the peer is of this process, what it has posted is known. */
static void look_at_sender(struct check_qp *q)
{
	const struct check_qp *peer;
	const struct check_wr *by = sent(q, &peer), *w = check_oldest(&q->rq);
	if (by && w && rpwi_op_wants_receive(by->opcode) && by->posted_ns < w->posted_ns)
		waited(q, w);
}

void check_looked(const struct ibv_qp *qp)
{
	if (!rpwi_check_lock())
		return;
	struct check_qp *q = check_qp_find(qp);
	if (q && q->order.late_ns)
		late_over(q);
	else if (q && q->order.looking)
		look_at_sender(q);
	if (q)
		q->order.looking = q->order.posting = false;
	rpwi_check_unlock();
}

void check_late_ends(struct check_qp *q)
{
	if (q->order.late_ns)
		late_in_vain(q, "");
}

/* ---- a sender that waits for it ---- */

static void rnr_told(struct check_qp *q)
{
	struct check_order *o = &q->order;
	uint64_t now_ns = rpwi_now_ns();
	if (!o->rnr_ns || o->rnr_una != q->t->una) {
		o->rnr_ns = now_ns;
		o->rnr_una = q->t->una;
	}
	const struct check_wr *w = check_oldest(&q->sq);
	if (q->t->attr.rnr_retry != 7 || now_ns - o->rnr_ns < VAIN_NS || !w ||
		!check_tells(q, RPWI_RULE_RNR_FOREVER))
		return;
	struct rpwi_finding f = check_finding(RPWI_RULE_RNR_FOREVER, q, w);
	rpwi_finding_site(&f, "made ready to send here", &o->rts_at);
	rpwi_check_say(&f,
		"the peer has had no receive for this request for %.1f s, and rnr_retry is 7: it "
		"is tried again forever",
		us(now_ns - o->rnr_ns) / 1e6);
}

/* A datagram is longer than its receive, with the GRH before it. */
static void no_room(struct check_qp *q, const struct rpwi_pkt *p)
{
	uint32_t len = p->payload_len;
	if (p->dqpn == RPWI_MCAST_QPN) /* what others say in a group is not this program's */
		return;
	const struct check_queue *of = q->srq ? &q->srq->q : &q->rq;
	const struct check_wr *w = check_with_id(of, of->head, q->t->rcv.wr_id, CHECK_POSTED);
	struct rpwi_finding f = check_finding(RPWI_RULE_RECV_SHORT, q, w);
	rpwi_check_say(&f,
		"a datagram of %u bytes came for a receive of %u, and needs %u with the GRH before "
		"it: it was dropped",
		len, q->t->rcv.len, RPWI_GRH_LEN + len);
}

void check_told(struct rpwi_qp *t, enum rpwi_told what, const struct rpwi_pkt *p,
	const struct rpwi_flow *from)
{
	if (!rpwi_check_lock())
		return;
	struct check_qp *q = check_qpn_find(t->qpn);
	if (q && what == RPWI_TOLD_NO_RECEIVE)
		no_receive(q, p);
	else if (q && what == RPWI_TOLD_NO_ROOM)
		no_room(q, p);
	else if (q && what == RPWI_TOLD_RNR_NAK)
		rnr_told(q);
	else if (q)
		check_order_told(q, what, p, from);
	rpwi_check_unlock();
}

/* ---- CQs ---- */

static struct rpwi_finding of_cq(enum rpwi_check_rule rule, const struct check_cq *cq)
{
	struct rpwi_finding f = {.rule = rule};
	bool armed = rule == RPWI_RULE_SOLICITED_NEVER && cq->arm_at.pc[0];
	rpwi_finding_site(&f,
		armed ? "armed for solicited completions here" : "the CQ was created here",
		armed ? &cq->arm_at : &cq->made);
	return f;
}

void check_overran(const struct ibv_cq *ibv, uint32_t qpn, uint32_t room)
{
	if (!rpwi_check_lock())
		return;
	struct check_cq *cq = check_cq_find(ibv);
	if (cq && !cq->overran) {
		cq->overran = true;
		struct rpwi_finding f = of_cq(RPWI_RULE_CQ_OVERRUN, cq);
		rpwi_check_say(&f,
			"%u completions wait in a CQ that was made for %u, and one of QP 0x%06x "
			"more is lost",
			room, cq->cqe, qpn);
	}
	rpwi_check_unlock();
}

void check_unsolicited(const struct ibv_cq *ibv, bool solicited)
{
	if (!rpwi_check_lock())
		return;
	struct check_cq *cq = check_cq_find(ibv);
	if (cq && solicited) {
		cq->solicited_seen = true;
	} else if (cq && !cq->solicited_seen) {
		cq->unsolicited++;
		if (!cq->unsolicited_ns)
			cq->unsolicited_ns = rpwi_now_ns();
	}
	rpwi_check_unlock();
}

static void unsolicited_look(struct check_cq *cq, uint64_t least_ns)
{
	uint64_t ns = cq->unsolicited_ns ? rpwi_now_ns() - cq->unsolicited_ns : 0;
	if (cq->solicited_seen || !ns || ns < least_ns || cq->polls >= CHECK_POLLS)
		return;
	cq->solicited_seen = true; /* it is told once */
	struct rpwi_finding f = of_cq(RPWI_RULE_SOLICITED_NEVER, cq);
	rpwi_check_say(&f,
		"%u message%s came without the solicited bit, while only a solicited completion "
		"makes an event; the first waited for %.1f ms, and none has ever had the bit",
		cq->unsolicited, rpwi_plural(cq->unsolicited), us(ns) / 1000);
}

void check_cq_waited(struct check_cq *cq)
{
	unsolicited_look(cq, UNSOLICITED_NS);
	cq->unsolicited_ns = 0;
}

static void cq_vain(struct check_cq *cq, void *awake_ns)
{
	unsolicited_look(cq, UNSOLICITED_VAIN_NS);
	check_unheard_tick(cq, *(uint64_t *)awake_ns);
}

static void qp_vain(struct check_qp *q, void *now_ns)
{
	if (q->order.late_ns && *(uint64_t *)now_ns - q->order.late_ns > VAIN_NS)
		late_in_vain(q, "; the program goes on without one");
}

void check_tick(uint64_t now_ns)
{
	if (now_ns < tick_ns || !rpwi_check_lock())
		return;
	/* a process that was stopped did not wait */
	uint64_t awake_ns = RPWI_MIN(now_ns - tick_ns, AWAKE_MOST_NS) + TICK_NS;
	tick_ns = now_ns + TICK_NS;
	check_cqs_each(cq_vain, &awake_ns);
	check_qps_each(qp_vain, &now_ns);
	rpwi_check_unlock();
}
