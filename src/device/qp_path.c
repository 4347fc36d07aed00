/* SPDX-License-Identifier: BSD-3-Clause */
/* qp_path.c - see qp_path.h. */
#include "device/qp_path.h"

#include "device/path.h"
#include "explain/verbs.h"

enum {
	/* beside the payload of a full packet, where it goes as a datagram */
	LANE_EXTRA_BYTES = RPWI_HDR_MAX + 4 + RPWI_ICRC_LEN,
	AWAITED_ROUNDS = 64, /* then it has waited in vain, or the peer is far away */
};

/* ---- near ---- */

/* Nothing is lost there: packets without room wait. */
static unsigned near_room(struct dqp *q, struct rpwi_txb *b)
{
	b->pkt_max =
		rpwi_lane_room(q->path.lane, RPWI_TXB_PKTS, rpwi_qp_mtu(&q->t) + LANE_EXTRA_BYTES);
	b->dqpn = rpwi_qp_next_dqpn(&q->t);
	b->dqpn_mask = ~(uint32_t)(RPWI_SLOT_QPNS - 1);
	return b->pkt_max;
}

static int near_send(struct dqp *q, struct rpwi_txb *b, unsigned *sent)
{
	return rpwi_port_send_by_lane(b->av->port, q->path.lane, b, sent);
}

/* ---- by UDP ---- */

/* Not where somebody captures or explains what was posted; and only to a ropeway, to which a
 * message costs no more than a packet. */
bool qp_path_may_split(const struct dqp *q)
{
	const struct dpeer *p = q->peer;
	return p && (q->t.av.loopback_zone || p->is_ropeway || p->sends_batches) &&
	       !rpwi_explain_on && !rpwi_port_is_watched(q->t.av.port);
}

static unsigned udp_room(struct dqp *q, struct rpwi_txb *b)
{
	b->by_datagrams = true;
	b->may_split = qp_path_may_split(q);
	b->pkt_max = hca_here.awaited && hca_here.awaited != q ? rpwi_gso_pkts(q->t.attr.path_mtu)
							       : RPWI_TXB_PKTS;
	return RPWI_TXB_PKTS;
}

/* Of a batch: how much it was, and whether it was a message that is alone in flight. */
static void note_sent(struct dqp *q, const struct rpwi_txb *b)
{
	struct hca *h = &hca_here;
	if (h->awaited)
		h->round_bytes += b->npkt * b->pkt[b->npkt - 1].payload_len;
	if (q->t.nxt - q->t.una == 1) {
		h->awaited = q;
		h->awaited_rounds = AWAITED_ROUNDS;
	}
}

static int udp_send(struct dqp *q, struct rpwi_txb *b, unsigned *sent)
{
	note_sent(q, b);
	int rc = rpwi_port_send(b->av->port, b, sent);
	if (RPWI_UNLIKELY(rc && rc != -EFAULT)) {
		q->t.n->tx_refused += rc != -EREMOTEIO;
		path_refused(&hca_here, b->av->port, b->av, q->t.qpn, rc);
	}
	return rc;
}

/* No acknowledgement will tell that the peer cannot keep up: its receive counter does. */
static unsigned paced_room(struct dqp *q, struct rpwi_txb *b)
{
	udp_room(q, b);
	uint32_t to = rpwi_qp_next_dqpn(&q->t);
	/* What goes by UDP now could be overtaken by what goes by the lane. */
	unsigned room = rpwi_lane_is_awaited(hca_here.lanes, to)
				? 0
				: rpwi_steer_room(hca_here.steer, to, RPWI_TXB_PKTS,
					  (size_t)RPWI_TXB_PKTS * rpwi_qp_mtu(&q->t));
	hca_here.n.pace_stalls += !room;
	b->pkt_max = RPWI_MIN(b->pkt_max, room);
	return room;
}

static void paced_unused(unsigned pkts) { rpwi_steer_unused(hca_here.steer, pkts); }

static int group_send(struct dqp *q, struct rpwi_txb *b, unsigned *sent)
{
	int rc = udp_send(q, b, sent);
	q->t.n->tx_mcast += *sent;
	return rc;
}

/* ---- which ---- */

const struct qp_path_ops qp_path_near = {near_room, NULL, near_send, RPWI_FACT_BY_MEMORY};
static const struct qp_path_ops udp = {udp_room, NULL, udp_send, RPWI_FACT_BY_UDP};
static const struct qp_path_ops paced = {paced_room, paced_unused, udp_send, RPWI_FACT_BY_UDP};
static const struct qp_path_ops group = {udp_room, NULL, group_send, RPWI_FACT_BY_UDP};

void qp_path_changes(void)
{
	qplock_take_all();
	hca_here.path_turn += hca_here.path_turn == UINT32_MAX ? 2 : 1; /* never 0 */
}

static const struct qp_path_ops *without_lane(const struct dqp *q, const struct rpwi_av *av)
{
	bool sends = rpwi_qp_next_av(&q->t); /* there is something to pace */
	if (av && av->loopback_zone && q->t.type != IBV_QPT_RC && sends)
		return &paced;
	if (av && q->t.type == IBV_QPT_UD && rpwi_addr_is_mcast(&av->flow.dst))
		return &group;
	return &udp;
}

void qp_path_choose(struct dqp *q)
{
	bool ud = q->t.type == IBV_QPT_UD;
	const struct rpwi_av *av = ud ? rpwi_qp_next_av(&q->t) : &q->t.av;
	bool local = av && av->loopback_zone;
	q->path.lane = local ? rpwi_lane_to(hca_here.lanes, rpwi_qp_next_dqpn(&q->t)) : NULL;
	q->path.ops = q->path.lane ? &qp_path_near : without_lane(q, av);
	/* Asking for a lane to this process makes one, so the turn is read last. */
	q->path.turn = ud || (local && !q->path.lane) ? 0 : hca_here.path_turn;
}
