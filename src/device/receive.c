/* SPDX-License-Identifier: BSD-3-Clause */
/* receive.c - packets, from sockets and lanes, to the QPs that they are for, and the answers. */
#include "base/copy.h"
#include "device/devices.h"
#include "device/fault.h"
#include "device/gsi_priv.h"
#include "device/mcast.h"
#include "device/path.h"
#include "device/ports.h"
#include "device/progress.h"
#include "device/tally.h"
#include "wire/icrc.h"

enum {
	RX_BATCHES_MAX = 8, /* in one round and port: then others get their turn */
	LONE_BYTES = 2048,
	ACK_BATCHES = 2, /* a stream is acknowledged once in so many, or when the socket is empty */
	LANE_PACKETS_MAX = 128, /* in one round */
	LANE_ACK_PACKETS = 32,
	/* in one round, before it is in vain: to leave and come again takes as long as ten */
	LANE_LOOKS = 4,
};

/* It is held. Unless a fault script has it otherwise. */
static inline void to_qp(
	struct dqp *q, const struct rpwi_pkt *pkt, const struct rpwi_rxmeta *meta, uint64_t now_ns)
{
	if (RPWI_UNLIKELY(rpwi_plan_on) && fault_rx(q, pkt, meta, now_ns))
		return;
	q->heard_ns = now_ns;
	rpwi_qp_rx(&q->t, pkt, meta, now_ns);
	if (rpwi_list_empty(&q->rx_link))
		rpwi_list_add_tail(&hca_here.touched, &q->rx_link);
}

/* A segment of a batch as a packet, for `q` as it seems. *ip_id: its ID by its place in the batch,
 * then the one that it was sent with. False: it is broken, and counted. */
static inline bool is_whole(const struct dqp *q, const struct rpwi_rx *rx,
	struct rpwi_icrc_run *icrc, const uint8_t *seg, size_t len, uint16_t *ip_id,
	struct rpwi_pkt *pkt)
{
	struct hca *h = &hca_here;
	if (RPWI_UNLIKELY(rpwi_pkt_decode(seg, len, pkt))) {
		h->n.decode_errors++;
		return false;
	}
	if (RPWI_UNLIKELY(rpwi_icrc_check_next(icrc, seg, len, ip_id) == RPWI_ICRC_BAD)) {
		h->n.icrc_errors++;
		path_bad_icrc(h, q, rx, seg, len, *ip_id, pkt);
		rpwi_debug("packet for QP 0x%06x, PSN %u: bad ICRC, dropped", pkt->dqpn, pkt->psn);
		return false;
	}
	return true;
}

static inline void capture(const struct rpwi_rx *rx, const uint8_t *seg, size_t len, uint16_t ip_id)
{
	struct rpwi_iov part = {seg, len};
	if (RPWI_UNLIKELY(rpwi_tap_enabled))
		rpwi_tap(&rx->flow, ip_id, rx->ttl, rx->tos, 0, &part, 1);
}

static inline uint16_t ip_id_at(const struct rpwi_rx *rx, unsigned index)
{
	return (uint16_t)((rx->ip_id >= 0 ? (unsigned)rx->ip_id : 0) + index);
}

static inline struct rpwi_rxmeta meta_of(const struct rpwi_rx *rx)
{
	return (struct rpwi_rxmeta){.flow = &rx->flow, .ttl = rx->ttl, .tos = rx->tos};
}

static void rx_group(struct group *g, const struct rpwi_rx *rx, struct rpwi_icrc_run *icrc,
	const uint8_t *seg, size_t len, unsigned index, uint64_t now_ns)
{
	uint16_t ip_id = ip_id_at(rx, index);
	struct rpwi_rxmeta meta = meta_of(rx);
	struct rpwi_pkt pkt;
	if (!is_whole(NULL, rx, icrc, seg, len, &ip_id, &pkt)) {
		mcast_broken(g);
		return;
	}
	if (!mcast_takes(&pkt))
		return;
	capture(rx, seg, len, ip_id);
	unsigned at = 0;
	for (struct dqp *q; (q = mcast_next_qp(g, &at, &pkt, &rx->flow.src));) {
		uint64_t before = q->t.n->rx_packets;
		hca_here.n.rx_packets++;
		qp_hold(q);
		to_qp(q, &pkt, &meta, now_ns);
		q->t.n->rx_mcast += q->t.n->rx_packets - before;
	}
}

/* `icrc`: of the batch */
static void rx_segment(struct dport *port, struct rpwi_rx *rx, struct rpwi_icrc_run *icrc,
	const uint8_t *seg, size_t len, unsigned index, uint64_t now_ns)
{
	struct hca *h = &hca_here;
	int32_t qpn = rpwi_pkt_peek_qpn(seg, len);
	if (RPWI_UNLIKELY(qpn < 0)) {
		h->n.decode_errors++;
		tally_at(dev_first(), &rx->flow.dst)->rx_broken++;
		return;
	}
	struct dqp *q = qp_lookup((uint32_t)qpn);
	/* QPs 0 and 1 are every process's: what a packet says tells whose it is */
	bool management = qpn <= RPWI_GSI_QPN;
	if (RPWI_UNLIKELY(!q && port && !management && !rpwi_steer_owns(h->steer, (uint32_t)qpn))) {
		if (qpn == RPWI_MCAST_QPN) {
			mcast_by_unicast();
			return;
		}
		h->n.handed_over++;
		rpwi_port_hand_over(port->io, rx, seg, len, (uint32_t)qpn);
		return;
	}
	uint16_t ip_id = ip_id_at(rx, index);
	struct rpwi_pkt pkt;
	if (RPWI_UNLIKELY(!is_whole(q, rx, icrc, seg, len, &ip_id, &pkt))) {
		tally_at(dev_first(), &rx->flow.dst)->rx_broken++;
		return;
	}
	if (RPWI_UNLIKELY(management && port && gsi_pass_on(port, rx, seg, len, &pkt)))
		return;
	capture(rx, seg, len, ip_id);
	if (RPWI_UNLIKELY(management)) {
		if (!gsi_defer(rx, seg, len, &pkt, now_ns))
			gsi_rx(rx, &pkt, now_ns);
		return;
	}
	struct rpwi_rxmeta meta = meta_of(rx);
	if (RPWI_UNLIKELY(!q)) {
		/* index 0 of a slot: its process is asked, or answered (wire/ask.h) */
		h->n.no_qp += (pkt.dqpn & (RPWI_SLOT_QPNS - 1)) || !gsi_ask(rx, &pkt, now_ns);
		return;
	}
	h->n.rx_packets++;
	qp_hold(q);
	to_qp(q, &pkt, &meta, now_ns);
}

/* Does the batch end in an ACK that is to be taken first? It was sent before the requests
 * (io/tx.c), and travels behind them. Not so an ACK behind other answers to the same QP: their
 * order says what is missing. */
static bool ack_leads(const struct rpwi_rx *rx, size_t seg_len, size_t last)
{
	const uint8_t *ack = rx->data + last;
	if (!rpwi_pkt_is_ack(ack, rx->len - last))
		return false;
	int32_t qpn = rpwi_pkt_peek_qpn(ack, rx->len - last);
	if (!qp_lookup((uint32_t)qpn)) /* another process's: handed over in one piece */
		return false;
	for (size_t at = 0; at < last; at += seg_len)
		if (!rpwi_op_is_request(rx->data[at] & 0x1f) &&
			rpwi_pkt_peek_qpn(rx->data + at, seg_len) == qpn)
			return false;
	return true;
}

/* Where batches come from: a port, the groups, or (neither) other processes' ports. */
struct source {
	struct dport *port;
	bool groups;
	struct group *group; /* whose the batch is */
};

static inline bool next_batch(struct source *s, struct rpwi_rx *rx)
{
	if (s->port)
		return rpwi_port_recv(s->port->io, rx) > 0;
	if (s->groups)
		return (s->group = mcast_recv(rx));
	return hca_here.steer && rpwi_steer_recv(hca_here.steer, rx) > 0;
}

static inline void rx_one(const struct source *s, struct rpwi_rx *rx, struct rpwi_icrc_run *icrc,
	const uint8_t *seg, size_t len, unsigned index, uint64_t now_ns)
{
	if (RPWI_UNLIKELY(s->group))
		rx_group(s->group, rx, icrc, seg, len, index, now_ns);
	else
		rx_segment(s->port, rx, icrc, seg, len, index, now_ns);
}

static void rx_batch(const struct source *s, struct rpwi_rx *rx, uint64_t now_ns)
{
	struct rpwi_icrc_run icrc = {.flow = &rx->flow};
	hca_here.n.rx_batches++;
	size_t seg_len = rx->seg_len ? rx->seg_len : rx->len, end = rx->len;
	unsigned index = 0;
	if (end > seg_len) {
		size_t last = (end - 1) / seg_len * seg_len;
		struct dqp *q = seg_len >= RPWI_BTH_LEN
					? qp_lookup((uint32_t)rpwi_pkt_peek_qpn(rx->data, seg_len))
					: NULL;
		if (q && q->peer && rpwi_addr_eq(&q->peer->addr, &rx->flow.src))
			q->peer->sends_batches = true;
		if (ack_leads(rx, seg_len, last)) {
			rx_one(s, rx, &icrc, rx->data + last, end - last,
				(unsigned)(last / seg_len), now_ns);
			end = last;
		}
	}
	for (size_t at = 0; at < end; at += seg_len)
		rx_one(s, rx, &icrc, rx->data + at, RPWI_MIN(seg_len, end - at), index++, now_ns);
}

/* Whoever got packets answers now: responses, what the window lets go; plain ACKs wait for the next
 * post or poll. */
static void rx_answer(bool hold_ack, uint64_t now_ns)
{
	struct hca *h = &hca_here;
	if (atomic_load_explicit(&h->gathered, memory_order_relaxed))
		send_gathered(now_ns);
	while (!rpwi_list_empty(&h->touched)) {
		struct dqp *q = RPWI_CONTAINER_OF(h->touched.next, struct dqp, rx_link);
		rpwi_list_del(&q->rx_link);
		send_answer(q, hold_ack, now_ns);
	}
	if (RPWI_UNLIKELY(!rpwi_list_empty(&h->waited)))
		send_waiting(now_ns);
}

static inline unsigned receive(struct source *s, bool hold_ack, uint64_t *now_ns)
{
	struct rpwi_rx rx;
	unsigned n = 0;
	bool lone = false;
	while (n < RX_BATCHES_MAX && next_batch(s, &rx)) {
		if (!n++ && !*now_ns)
			*now_ns = rpwi_now_ns();
		/* The ACK of a stream should not wait; the ACK of a possible request on its own
		 * rides with the answer. And after one datagram of a lone request a port's socket
		 * is empty as a rule: looking again would cost as much as everything else here.
		 * Behind an ACK there may be the reply. */
		lone = rx.len < LONE_BYTES;
		bool ack = lone && rpwi_pkt_is_ack(rx.data, rx.len);
		if (!lone)
			atomic_store_explicit(&hca_here.stream_ns, *now_ns, memory_order_relaxed);
		rx_batch(s, &rx, *now_ns);
		rx_answer(true, *now_ns);
		if (lone && !ack && s->port)
			break;
		if (n % ACK_BATCHES == 0)
			send_held(*now_ns);
	}
	if (n && !(lone && hold_ack))
		send_held(*now_ns);
	return n;
}

unsigned receive_port(struct dport *p, bool hold_ack, uint64_t *now_ns)
{
	return receive(&(struct source){.port = p}, hold_ack, now_ns);
}

unsigned receive_groups(bool hold_ack, uint64_t *now_ns)
{
	return receive(&(struct source){.groups = true}, hold_ack, now_ns);
}

unsigned receive_handed(uint64_t *now_ns) { return receive(&(struct source){0}, false, now_ns); }

/* True: it was another process's. */
static bool pass_on(struct dport *p, const struct rpwi_rx *rx, const uint8_t *seg, size_t len)
{
	int32_t qpn = rpwi_pkt_peek_qpn(seg, len);
	struct rpwi_pkt pkt;
	if (qpn < 0 || qpn == RPWI_MCAST_QPN || rpwi_steer_owns(hca_here.steer, (uint32_t)qpn))
		return false;
	if (qpn <= RPWI_GSI_QPN)
		return !rpwi_pkt_decode(seg, len, &pkt) && gsi_pass_on(p, rx, seg, len, &pkt);
	rpwi_port_hand_over(p->io, rx, seg, len, (uint32_t)qpn);
	return true;
}

void receive_for_others(struct dport *p)
{
	struct rpwi_rx rx;
	/* what a fork's child has is its parent's, and so is what comes to it */
	while (!hca_here.forked_from && rpwi_port_recv(p->io, &rx) > 0)
		for (size_t at = 0, seg; at < rx.len; at += seg) {
			seg = RPWI_MIN(rx.seg_len ? rx.seg_len : rx.len, rx.len - at);
			hca_here.n.handed_over += pass_on(p, &rx, rx.data + at, seg);
		}
}

/* ---- lanes ---- */

static struct rpwi_alike last; /* packet of a lane, */
static struct dqp *last_qp;    /* and whose it was; NULL: not known */
/* Of the run that is being fetched; the QP is NULL unless that of its first packet is there. */
static struct rpwi_places places;

void receive_forget(const struct dqp *q)
{
	if (last_qp == q)
		last_qp = NULL;
	if (places.qp == &q->t)
		places.qp = NULL;
}

/* A packet that came through memory. Its headers are ours, and no ICRC is needed: nothing between
 * the two processes changes a bit that would not change it in a register as well. */
static void rx_lane_packet(struct lane_packet *p, uint64_t now_ns)
{
	struct hca *h = &hca_here;
	if (RPWI_UNLIKELY(p->kind == LANE_DATAGRAM)) {
		struct rpwi_rx rx = {.flow = *p->flow,
			.ttl = p->ttl,
			.tos = p->tos,
			.data = (uint8_t *)(uintptr_t)p->payload,
			.len = p->len,
			.seg_len = p->len};
		struct rpwi_icrc_run icrc = {.flow = &rx.flow};
		rx_segment(NULL, &rx, &icrc, p->payload, p->len, 0, now_ns);
		return;
	}
	struct rpwi_pkt *pkt = &last.pkt;
	if (RPWI_UNLIKELY(rpwi_pkt_decode_next(p->data, p->hdr_len, p->payload, p->len, &last) ||
			  (p->more && !rpwi_opcode_may_have_more(pkt->opcode)))) {
		h->n.decode_errors++;
		return;
	}
	struct dqp *q = last_qp;
	if (RPWI_UNLIKELY(!q || q->t.qpn != pkt->dqpn)) {
		q = last_qp = pkt->dqpn > RPWI_GSI_QPN ? qp_lookup(pkt->dqpn) : NULL;
		if (RPWI_UNLIKELY(!q)) {
			h->n.no_qp++;
			return;
		}
	}
	struct rpwi_rxmeta meta = {.flow = p->flow, .ttl = p->ttl, .tos = p->tos};
	qp_hold(q);
	unsigned parts = rpwi_lane_packet_parts(p);
	if (RPWI_UNLIKELY(parts > 1 && (rpwi_plan_on || rpwi_tap_enabled ||
					       (p->more && !rpwi_qp_takes_more(&q->t, pkt))))) {
		struct lane_packet one;
		for (unsigned i = 0; i < parts; i++) {
			rpwi_lanes_nth(h->lanes, p, i, &one);
			rx_lane_packet(&one, now_ns);
		}
		return;
	}
	if (p->led) {
		struct rpwi_pkt ack;
		rpwi_lane_packet_ack(p, &ack);
		rpwi_qp_rx(&q->t, &ack, &meta, now_ns);
	}
	pkt->more = (uint16_t)p->more;
	pkt->placed = p->placed;
	pkt->ackreq |= p->more_ack;
	pkt->payload_len = p->len * (1 + p->more);
	h->n.rx_packets += parts;
	to_qp(q, pkt, &meta, now_ns);
}

/* With the lock of the HCA and the QP's; and packets fetched so are taken before the locks are
 * given back (rpwi_lanes_mid_run). */
void *receive_place(void *arg, bool first, const struct lane_headers *h)
{
	struct rpwi_pkt pkt;
	(void)arg;
	if (first)
		places.qp = NULL;
	if (RPWI_UNLIKELY(rpwi_plan_on || rpwi_tap_enabled) ||
		rpwi_pkt_decode_parts(h->hdr, h->hdr_len, h->hdr, h->len, &pkt))
		return NULL;
	if (first) {
		struct dqp *q = pkt.dqpn > RPWI_GSI_QPN ? qp_lookup(pkt.dqpn) : NULL;
		if (!q)
			return NULL;
		qp_hold(q);
		rpwi_places_begin(&places, &q->t, hca_here.writes_unordered);
	}
	pkt.more = (uint16_t)h->more;
	pkt.payload_len = h->len * (1 + h->more);
	if (!places.qp || places.qp->qpn != pkt.dqpn)
		return NULL;
	void *to = rpwi_places_next(&places, &pkt);
	/* then it passes the bounce buffer (lane_ring.c) */
	if (to && RPWI_UNLIKELY(rpwi_copy_is_slow(to, h->from, pkt.payload_len)))
		rpwi_places_late(&places, to, (uint32_t)pkt.payload_len);
	return to;
}

unsigned receive_lanes(bool hold_ack, uint64_t *now_ns)
{
	struct lane_packet p;
	unsigned n = 0, answered = 0;
	uint64_t bytes = 0;
	if (hold_ack)
		rpwi_lanes_linger(hca_here.lanes, LANE_LOOKS);
	while ((n < LANE_PACKETS_MAX || rpwi_lanes_mid_run(hca_here.lanes)) &&
		rpwi_lanes_recv(hca_here.lanes, &p)) {
		if (!n && !*now_ns)
			*now_ns = rpwi_now_ns();
		n += rpwi_lane_packet_parts(&p);
		bytes += p.len * (1ull + p.more);
		rx_lane_packet(&p, *now_ns);
		/* The sender fills what this makes room for while the rest is taken. */
		if (n - answered >= LANE_ACK_PACKETS) {
			answered = n;
			rx_answer(true, *now_ns);
			send_held(*now_ns);
		}
	}
	if (!n)
		return 0;
	rx_answer(true, *now_ns);
	/* What may be a request on its own has its ACK ride with the answer. */
	if (bytes >= LONE_BYTES || !hold_ack)
		send_held(*now_ns);
	if (bytes >= LONE_BYTES)
		atomic_store_explicit(&hca_here.stream_ns, *now_ns, memory_order_relaxed);
	return n;
}
