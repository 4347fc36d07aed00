/* SPDX-License-Identifier: BSD-3-Clause */
/* linger.c - what outlives a connection whose storage the program has taken back, or that has been
 * refused: see enum cm_linger_kind. Bounded: the oldest makes room. */
#include "cm/internal.h"

enum {
	DREQ_TRIES = 8, /* after 0.25, 0.5, 1, ... 32 s: about as long as a connection's own DREQ */
	ANSWER_TRIES = 5, /* of an answer that the peer has been asked to wait for: see conn.c */
	FIRST_NS = 250 * 1000000,
	TIMEWAIT_MIN_NS = 100 * 1000000
};
static const uint64_t timewait_max_ns = 4 * RPWI_NS_PER_S;
/* A peer that has missed our answer asks again within its response time-out, kernel peers every 4.3
 * s. Eight such times, from when it asked last: then it is only once in 10^8 that one datagram in
 * ten being lost makes a second request of a repetition. After an MRA the peer asks that much
 * later. */
static const uint64_t answer_ns = 8 * (4096ull << RPWI_CM_RESPONSE_TIMEOUT);

/* IB 12.9.8.4: twice the packet lifetime and the peer's delay, which is what the ACK time-out is
 * made of; bounded, since a peer chose it. 0 stands for no bound. */
uint64_t rpwi_cm_timewait_ns(const struct rpwi_cm_conn *c)
{
	uint8_t exponent = c->passive ? c->remote.ack_timeout : c->local.ack_timeout;
	uint64_t ns = exponent ? rpwi_cm_wait_ns(exponent) : timewait_max_ns;
	return RPWI_MIN(RPWI_MAX(ns, (uint64_t)TIMEWAIT_MIN_NS), timewait_max_ns);
}

static struct cm_linger *linger_take(struct rpwi_cm *cm)
{
	if (rpwi_list_empty(&cm->lingers_free) && cm->lingers_made == CM_LINGERS_MAX)
		rpwi_cm_linger_drop_oldest(cm);
	if (rpwi_list_empty(&cm->lingers_free))
		return &cm->linger[cm->lingers_made++];
	struct cm_linger *l = RPWI_CONTAINER_OF(cm->lingers_free.next, struct cm_linger, link);
	rpwi_list_del(&l->link);
	return l;
}

static void linger_quiet(struct rpwi_cm *cm, struct cm_linger *l, uint64_t now_ns)
{
	l->kind = CM_LINGER_QUIET;
	l->tries_left = 0;
	l->expires_ns = now_ns + l->timewait_ns;
	rpwi_cm_timer_set(cm, &l->node, l->expires_ns);
}

/* How often it speaks unasked, and how long it stays. */
static void linger_begin(
	struct rpwi_cm *cm, struct cm_linger *l, bool peer_patient, uint64_t now_ns)
{
	l->interval_ns = FIRST_NS;
	if (l->kind == CM_LINGER_ANSWER) {
		l->tries_left = peer_patient ? ANSWER_TRIES : 0;
		l->expires_ns = now_ns + answer_ns +
				(peer_patient ? rpwi_cm_wait_ns(RPWI_CM_MRA_TIMEOUT) : 0);
	} else {
		l->tries_left = l->kind == CM_LINGER_DREQ ? DREQ_TRIES : 0;
		l->expires_ns = l->kind == CM_LINGER_DREQ ? RPWI_NEVER : now_ns + l->timewait_ns;
	}
	rpwi_cm_timer_set(cm, &l->node, l->tries_left ? now_ns + l->interval_ns : l->expires_ns);
}

void rpwi_cm_linger_new(struct rpwi_cm_conn *c, enum cm_linger_kind kind, uint64_t now_ns)
{
	struct rpwi_cm *cm = c->cm;
	struct cm_linger *l = linger_take(cm);

	l->kind = kind;
	l->path = c->path;
	l->tid = c->tid;
	l->timewait_ns = rpwi_cm_timewait_ns(c);
	memcpy(l->mad, c->mad, sizeof(l->mad));

	rpwi_cm_node_init(&l->node);
	l->node.lingers = true;
	l->node.sidr = c->sidr;
	l->node.remote_id = c->node.remote_id;
	l->node.remote_qpn = c->node.remote_qpn;
	l->node.remote = c->node.remote;
	memcpy(l->node.remote_ca_guid, c->node.remote_ca_guid, 8);
	rpwi_cm_id_move(cm, &c->node, &l->node);
	if (l->node.remote_id)
		rpwi_cm_know_id(cm, &l->node);
	/* A QP that was refused has never been connected: its owner may try again with it at
	 * once. */
	if (kind == CM_LINGER_QUIET || kind == CM_LINGER_DREQ)
		rpwi_cm_know_qp(cm, &l->node);
	rpwi_list_add_tail(&cm->lingers, &l->link);
	linger_begin(cm, l, c->peer_patient, now_ns);
}

void rpwi_cm_linger_drop(struct rpwi_cm *cm, struct cm_linger *l)
{
	rpwi_cm_timer_clear(cm, &l->node);
	rpwi_cm_forget(&l->node);
	rpwi_cm_id_free(cm, &l->node);
	rpwi_list_del(&l->link);
	rpwi_list_add_tail(&cm->lingers_free, &l->link);
}

bool rpwi_cm_linger_drop_oldest(struct rpwi_cm *cm)
{
	if (rpwi_list_empty(&cm->lingers))
		return false;
	rpwi_cm_linger_drop(cm, RPWI_CONTAINER_OF(cm->lingers.next, struct cm_linger, link));
	return true;
}

void rpwi_cm_linger_timer(struct rpwi_cm *cm, struct cm_linger *l, uint64_t now_ns)
{
	if (l->tries_left) {
		l->tries_left--;
		l->interval_ns *= 2;
		cm->stats.retries++;
		rpwi_cm_timer_set(cm, &l->node,
			!l->tries_left && l->kind == CM_LINGER_ANSWER ? l->expires_ns
								      : now_ns + l->interval_ns);
		rpwi_cm_send(cm, &l->path, l->mad);
	} else if (l->kind == CM_LINGER_DREQ) {
		cm->stats.timeouts++;
		linger_quiet(cm, l, now_ns);
	} else {
		rpwi_cm_linger_drop(cm, l);
	}
}

/* A REQ or SIDR_REQ again, or a REP or RTU by someone who thinks that there is a connection. */
static void linger_asked(
	struct rpwi_cm *cm, struct cm_linger *l, const struct rpwi_cm_msg *m, uint64_t now_ns)
{
	struct rpwi_cm_msg rej;

	if (l->kind == CM_LINGER_ANSWER) {
		l->expires_ns = RPWI_MAX(l->expires_ns, now_ns + answer_ns);
		if (!l->tries_left)
			rpwi_cm_timer_set(cm, &l->node, l->expires_ns);
		rpwi_cm_send(cm, &l->path, l->mad);
	} else if (m->attr == RPWI_CM_REQ && l->kind != CM_LINGER_DEAF) {
		rpwi_cm_build_rej(m, RPWI_REJ_STALE_CONN, CM_REJECTED_REQ, &rej);
		rpwi_cm_send_msg(cm, &l->path, &rej);
	}
}

/* The message is from this connection's peer: rx.c has checked. */
void rpwi_cm_linger_rx(
	struct rpwi_cm *cm, struct cm_linger *l, const struct rpwi_cm_msg *m, uint64_t now_ns)
{
	struct rpwi_cm_msg drep;

	cm->stats.duplicates++;
	switch (m->attr) {
	case RPWI_CM_DREQ:
		rpwi_cm_build_drep(m, &drep);
		rpwi_cm_send_msg(cm, &l->path, &drep);
		if (l->kind == CM_LINGER_DREQ)
			linger_quiet(cm, l, now_ns);
		break;
	case RPWI_CM_DREP:
	case RPWI_CM_REJ:
		if (l->kind == CM_LINGER_DREQ)
			linger_quiet(cm, l, now_ns);
		break;
	case RPWI_CM_REQ:
	case RPWI_CM_SIDR_REQ:
	case RPWI_CM_REP:
	case RPWI_CM_RTU:
		linger_asked(cm, l, m, now_ns);
		break;
	default:
		break;
	}
}

bool rpwi_cm_id_left(struct rpwi_cm *cm)
{
	return cm->free_count || rpwi_cm_linger_drop_oldest(cm);
}
