/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.c - what moves packets: receive, dispatch, send, timers; and who does it.
 *
 * Progress is made in three places, always under the HCA's lock:
 * - inline, in ibv_poll_cq, where the program polls (progress_run);
 * - by a program's thread that blocks in ibv_get_cq_event (progress_wait);
 * - by the service thread otherwise: it is what serves a passive RDMA target and a program that
 *   polls memory or its own epoll.
 * The sockets have one owner at a time: while polls in vain show that the program spins, or a
 * thread waits in get_cq_event, the service thread sleeps on a tick, not on the sockets, and takes
 * over after a tick without polls. While they are its own it sleeps on them, or, where the next
 * packet is due (spin.h), looks at them without a pause.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "device/alive.h"
#include "device/board.h"
#include "device/farewell.h"
#include "device/fault.h"
#include "device/mcast.h"
#include "device/path.h"
#include "device/pollset.h"
#include "device/spin.h"
#include "device/tally.h"
#include "explain/verbs.h"
#include "wire/icrc.h"
#include "wire/mad.h"

enum {
	RX_BATCHES_MAX = 8, /* in one round and port: then others get their turn */
	LONE_BYTES = 2048,
	ACK_BATCHES = 2, /* a stream is acknowledged once in so many, or when the socket is empty */
	/* after so many empty polls a port is quiet; among several it is polled in one of so many
	 * rounds */
	QUIET_POLLS = 64,
	QUIET_SOCKETS_EVERY = 16,
	ACKS_UNKNOWN = 128,
	LANE_PACKETS_MAX = 128, /* in one round */
	LANE_ACK_PACKETS = 32,
	/* beside the payload of a full packet, where it goes as a datagram */
	LANE_EXTRA_BYTES = RPWI_HDR_MAX + 4 + RPWI_ICRC_LEN,
	/* while packets come by lanes, sockets are looked at in one of so many rounds; those that
	 * are quiet */
	LANE_SOCKETS_EVERY = 16,
	LANE_QUIET_SOCKETS_EVERY = 64,
	LANE_QUIET_ROUNDS = 1024,
	/* in one round, before it is in vain: to leave and come again takes as long as ten */
	LANE_LOOKS = 4,
	SPIN_POLLS = 32, /* so many polls in vain within a tick mean that the program spins */
	STREAM_SPIN_NS = 50000,
	TICK_NS = 200000,
	GATHER_SLEEP_NS = 10000000, /* short messages wait so long where an ACK is lost */
	LANE_GATHER_MAX = 16,
	/* after one that waited for the service thread so many do not wait, twice as many after
	 * the next */
	GATHER_PAUSE = 1024,
	GATHER_PAUSES_MAX = 20,
	GATHER_FORGIVEN = 1024, /* batches that were full, for one of those */
	/* who has not polled for so long at the end of a tick has stopped */
	POLLS_SEEN_NS = 30000,
	/* at most, by the service thread; a few times that where the machine is busy */
	ACK_HOLD_NS = 20000,
	SERVICE_SLEEP_MAX_MS = 60000,
	PACE_RETRY_NS = 100000,
	ALL_ROUNDS = 8,
	YIELD_ROUNDS = 4, /* awake: the core is offered to others once in so many rounds */
	LEFT_TO_CHILD_MS = 10,
};

/* ---- ports and peers ---- */

/* It is wanted for more than lanes, which may be all that it serves. */
static int port_take(struct dport *p, char *why, size_t why_len)
{
	struct rpwi_port *io;
	if (RPWI_LIKELY(!rpwi_port_is_mute(p->io)))
		return 0;
	int rc = rpwi_port_open(hca_here.steer, &p->addr, false, &io, why, why_len);
	if (!rc)
		rpwi_port_close(io); /* the same one */
	return rc;
}

struct dport *port_get(
	const struct rpwi_addr *a, bool lanes_do, char *why, size_t why_len, int *err)
{
	struct hca *h = &hca_here;
	struct dport *p = NULL;
	for (unsigned i = 0; i < h->nports; i++)
		if (h->port[i].refs && rpwi_addr_eq(&h->port[i].addr, a)) {
			int rc = lanes_do ? 0 : port_take(&h->port[i], why, why_len);
			if (rc) {
				*err = rc;
				return NULL;
			}
			h->port[i].refs++;
			return &h->port[i];
		}
	for (unsigned i = 0; i < DEV_PORTS_MAX && !p; i++)
		if (!h->port[i].refs)
			p = &h->port[i];
	if (!p) {
		*err = -ENOSPC;
		snprintf(
			why, why_len, "more than %d local addresses in use at once", DEV_PORTS_MAX);
		return NULL;
	}
	int rc = rpwi_port_open(h->steer, a, lanes_do, &p->io, why, why_len);
	if (rc) {
		*err = rc;
		return NULL;
	}
	p->addr = *a;
	p->refs = 1;
	p->quiet = 0;
	h->nports = RPWI_MAX(h->nports, (unsigned)(p - h->port) + 1);
	service_wake();
	return p;
}

void port_stats_add(const struct rpwi_port *io, struct rpwi_port_stats *sum)
{
	struct rpwi_port_stats s;
	rpwi_port_stats(io, &s);
	sum->rx_overflow += s.rx_overflow;
	sum->tx_refused += s.tx_refused;
	sum->resteered += s.resteered;
	sum->icmp_lost += s.icmp_lost;
	/* Of the process, not of the port. */
	sum->taken_over = s.taken_over;
	sum->hand_over_lost = s.hand_over_lost;
}

void port_put(struct dport *p)
{
	if (!p || --p->refs)
		return;
	port_stats_add(p->io, &hca_here.ports_gone);
	rpwi_port_close(p->io);
	p->io = NULL;
	service_wake();
}

struct dpeer *peer_get(const struct rpwi_addr *a, unsigned mtu_bytes)
{
	struct hca *h = &hca_here;
	uint32_t max = rpwi_cc_window(mtu_bytes, rpwi_rcvbuf_bytes());
	for (struct rpwi_list *l = h->peers.next; l != &h->peers; l = l->next) {
		struct dpeer *p = RPWI_CONTAINER_OF(l, struct dpeer, link);
		if (rpwi_addr_eq(&p->addr, a)) {
			p->refs++;
			if (max < p->cc.cwnd_max) {
				p->cc.cwnd_max = max;
				p->cc.cwnd = RPWI_MIN(p->cc.cwnd, max);
			}
			return p;
		}
	}
	struct dpeer *p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	rpwi_cc_init(&p->cc, RPWI_MIN(64u, max), max);
	p->addr = *a;
	p->refs = 1;
	rpwi_list_init(&p->blocked);
	rpwi_list_add_tail(&h->peers, &p->link);
	return p;
}

void peer_put(struct dpeer *p)
{
	if (!p || --p->refs)
		return;
	rpwi_list_del(&p->link);
	free(p);
}

/* ---- timers: QPs by deadline. A QP whose deadline moved later stays where it is until its old
 * time comes. ---- */

static void timer_update(struct dqp *q)
{
	struct hca *h = &hca_here;
	uint64_t at = rpwi_qp_deadline(&q->t);
	if (at == RPWI_NEVER || (q->timer.pos && q->timer.deadline_ns <= at))
		return;
	if (!q->timer.pos && !rpwi_heap_reserve(&h->timers, h->timers.n + 1)) {
		rpwi_error("no memory for the timer of QP 0x%06x: its retries stop", q->t.qpn);
		return;
	}
	rpwi_heap_set(&h->timers, &q->timer, at);
	if (q->timer.pos == 1 && atomic_load_explicit(&h->service_sleeps, memory_order_relaxed) &&
		at < h->service_wake_ns)
		service_wake();
}

static void timers_run(uint64_t now_ns)
{
	struct hca *h = &hca_here;
	while (rpwi_heap_deadline(&h->timers) <= now_ns) {
		struct dqp *q = RPWI_CONTAINER_OF(rpwi_heap_first(&h->timers), struct dqp, timer);
		qp_hold(q);
		uint64_t at = rpwi_qp_deadline(&q->t);
		rpwi_heap_del(&hca_here.timers, &q->timer);
		if (at <= now_ns) {
			rpwi_qp_timer(&q->t, now_ns);
			progress_qp_kick(q, true, now_ns);
		} else {
			timer_update(q);
		}
	}
}

/* ---- sending ---- */

static void held_add(struct dqp *q)
{
	if (rpwi_list_empty(&q->held_link)) {
		rpwi_list_add_tail(&hca_here.held, &q->held_link);
		atomic_store_explicit(&hca_here.held_any, true, memory_order_relaxed);
	}
}

static void held_del(struct dqp *q)
{
	if (!rpwi_list_empty(&q->held_link)) {
		rpwi_list_del(&q->held_link);
		if (rpwi_list_empty(&hca_here.held))
			atomic_store_explicit(&hca_here.held_any, false, memory_order_relaxed);
	}
}

/* May an ACK travel behind the requests that it precedes? To a peer on this host, and to one whose
 * own GSO batches arrive here in one piece: only what is sent through a socket, with UDP checksums,
 * is ever merged, so it is a ropeway, which takes the ACK first. rxe and NICs get a datagram for
 * each packet, and the ACK as the first of them. Two ropeways that exchange small messages learn of
 * each other by the 128th ACK, the 512th, the 2048th and so on, which are sent so anyway. */
static bool ack_may_follow(struct dqp *q)
{
	struct dpeer *p = q->peer;
	if (q->t.av.loopback_zone || !p || p->sends_batches)
		return q->t.av.loopback_zone || p;
	uint32_t n = ++p->acks_before, k = ACKS_UNKNOWN;
	while (k < n && k < 1u << 30)
		k *= 4;
	return n == k;
}

/* One batch of a QP onto the wire. False when there was nothing. */
static bool tx_batch(struct dqp *q, bool hold_ack, uint64_t now_ns)
{
	struct rpwi_txb *b = &hca_here.txb;
	rpwi_txb_reset(b);
	b->pkt_max = RPWI_TXB_PKTS;
	uint32_t to = 0;
	unsigned room = RPWI_TXB_PKTS, mtu = 0;
	bool paced = q->t.type != IBV_QPT_RC;
	struct rpwi_lane *lane = qp_lane(q, hca_here.lanes);
	if (lane) {
		/* Nothing is lost there: what has no room waits. */
		to = rpwi_qp_next_dqpn(&q->t);
		room = rpwi_lane_room(lane, RPWI_TXB_PKTS, rpwi_qp_mtu(&q->t) + LANE_EXTRA_BYTES);
		paced = false;
		if (!room) {
			rpwi_qp_tx_done(&q->t);
			return false;
		}
		b->pkt_max = room;
		b->dqpn = to;
		b->dqpn_mask = ~(uint32_t)(RPWI_SLOT_QPNS - 1);
	}
	if (paced) {
		/* No acknowledgement will tell that the peer cannot keep up: on this host, its
		 * receive counter does. */
		to = rpwi_qp_next_dqpn(&q->t);
		const struct rpwi_av *av = rpwi_qp_next_av(&q->t);
		if (!av || !av->loopback_zone) {
			paced = false;
		} else {
			mtu = rpwi_qp_mtu(&q->t);
			/* What goes by UDP now could be overtaken by what goes by the lane. */
			room = rpwi_lane_is_awaited(hca_here.lanes, to)
				       ? 0
				       : rpwi_steer_room(hca_here.steer, to, RPWI_TXB_PKTS,
						 (size_t)RPWI_TXB_PKTS * mtu);
			if (!room) {
				hca_here.n.pace_stalls++;
				rpwi_qp_tx_done(&q->t);
				return false;
			}
			b->pkt_max = room;
		}
	}
	rpwi_qp_tx(&q->t, b, hold_ack, now_ns);
	if (paced && b->npkt < room)
		rpwi_steer_unused(
			hca_here.steer, to, room - b->npkt, (size_t)(room - b->npkt) * mtu);
	if (!b->npkt)
		return false;
	hca_here.n.tx_batches++;
	if (RPWI_UNLIKELY(rpwi_plan_on))
		b->ordinal = q->ordinal;
	if (b->ack && b->ack < b->npkt && !ack_may_follow(q))
		b->ack = 0;
	unsigned sent = 0;
	struct rpwi_port *port = b->av->port;
	int rc = lane ? rpwi_port_send_by_lane(port, lane, b, &sent)
		      : rpwi_port_send(port, b, &sent);
	if (RPWI_UNLIKELY(rpwi_explain_on) && sent)
		rpwi_explain_fact(lane ? RPWI_FACT_BY_MEMORY : RPWI_FACT_BY_UDP, q->t.qpn, sent);
	if (RPWI_UNLIKELY(rc && !lane && rc != -EFAULT)) {
		q->t.n->tx_refused += rc != -EREMOTEIO;
		path_refused(&hca_here, port, b->av, q->t.qpn, rc);
	}
	if (RPWI_UNLIKELY(q->t.type == IBV_QPT_UD) && rpwi_addr_is_mcast(&b->av->flow.dst))
		q->t.n->tx_mcast += sent;
	if (RPWI_UNLIKELY(rc == -EFAULT))
		rpwi_qp_tx_fault(&q->t, b, sent, now_ns);
	else
		rpwi_qp_tx_done(&q->t);
	return true;
}

/* After its batches: where it waits, its ACK, its timer. It is in no list. `ready`: it has more. */
static inline void qp_sent(struct dqp *q, bool ready, bool hold_ack)
{
	if (ready)
		rpwi_list_add_tail(&hca_here.tx_list, &q->tx_link);
	else if (q->peer && rpwi_qp_blocked(&q->t))
		rpwi_list_add_tail(&q->peer->blocked, &q->tx_link);
	if (hold_ack && rpwi_qp_ack_owed(&q->t))
		held_add(q);
	else
		held_del(q);
	timer_update(q);
	board_qp(q);
	if (RPWI_UNLIKELY(!q->t.av.loopback_zone) && RPWI_UNLIKELY(ledger_qp(q)))
		service_wake();
	if (RPWI_UNLIKELY(rpwi_explain_on))
		rpwi_explain_state(&q->t);
}

void progress_qp_kick(struct dqp *q, bool hold_ack, uint64_t now_ns)
{
	qp_hold(q);
	rpwi_list_del(&q->tx_link);
	q->gathers = 0;
	/* What it may send now, but bounded: a QP with more goes to the end of the list, so that
	 * all get their turn. */
	bool ready = rpwi_qp_tx_ready(&q->t, hold_ack, now_ns), sends = true;
	for (int i = 0; i < 4 && ready && sends; i++) {
		sends = tx_batch(q, hold_ack, now_ns);
		ready = rpwi_qp_tx_ready(&q->t, hold_ack, now_ns);
	}
	qp_sent(q, ready, hold_ack);
}

/* ---- short messages, of several QPs, as one batch ---- */

/* May its packets go behind those of `first`? To one process: only that gets them in one piece. */
static bool same_way(struct dqp *q, const struct dqp *first)
{
	uint32_t apart = q->t.attr.dest_qp_num ^ first->t.attr.dest_qp_num;
	return q->gathers && q->peer == first->peer && !(apart & ~(uint32_t)(RPWI_SLOT_QPNS - 1)) &&
	       !qp_lane(q, hca_here.lanes);
}

/* `first` and those behind it in tx_list that go the same way, as far as a batch has room. */
static void tx_together(struct dqp *first, uint64_t now_ns)
{
	struct hca *h = &hca_here;
	struct rpwi_txb *b = &h->txb;
	struct {
		struct dqp *q;
		unsigned end; /* of its packets */
	} part[RPWI_TXB_PKTS];
	unsigned n = 0, looked_at = 0, sent = 0;
	rpwi_txb_reset(b);
	for (struct rpwi_list *l = &first->tx_link, *next;
		l != &h->tx_list && b->npkt < RPWI_TXB_PKTS && looked_at < RPWI_TXB_PKTS;
		l = next, looked_at++) {
		struct dqp *q = RPWI_CONTAINER_OF(l, struct dqp, tx_link);
		next = l->next;
		if (!same_way(q, first))
			continue;
		rpwi_list_del(&q->tx_link);
		q->gathers = 0;
		qp_hold(q);
		rpwi_qp_tx(&q->t, b, true, now_ns);
		part[n].q = q;
		part[n++].end = b->npkt;
	}
	int rc = 0;
	if (b->npkt) {
		h->n.tx_batches++;
		if (b->ack && b->ack < b->npkt && !ack_may_follow(first))
			b->ack = 0;
		rc = rpwi_port_send(b->av->port, b, &sent);
	}
	for (unsigned i = 0, begin = 0; i < n; begin = part[i++].end) {
		struct dqp *q = part[i].q;
		if (RPWI_UNLIKELY(rpwi_explain_on) && sent > begin)
			rpwi_explain_fact(
				RPWI_FACT_BY_UDP, q->t.qpn, RPWI_MIN(sent, part[i].end) - begin);
		/* Those of the QPs behind it are lost, as on a wire. */
		if (RPWI_UNLIKELY(rc == -EFAULT) && sent >= begin && sent < part[i].end)
			rpwi_qp_tx_fault(&q->t, b, sent, now_ns);
		qp_sent(q, rpwi_qp_tx_ready(&q->t, true, now_ns), true);
	}
}

static void tx_gathered(uint64_t now_ns)
{
	struct hca *h = &hca_here;
	struct rpwi_list *l = h->tx_list.next;
	atomic_store_explicit(&h->gathered, 0, memory_order_relaxed);
	while (l != &h->tx_list) {
		struct dqp *q = RPWI_CONTAINER_OF(l, struct dqp, tx_link);
		struct rpwi_list *before = l->prev;
		if (!q->gathers) { /* waits for something else, and stays */
			l = l->next;
			continue;
		}
		if (qp_lane(q, h->lanes))
			progress_qp_kick(q, true, now_ns);
		else
			tx_together(q, now_ns);
		l = before->next;
	}
}

/* Whether a QP that waits for nothing yet may wait for more posts. */
static bool may_wait_for_more(struct dqp *q, bool by_lane)
{
	struct hca *h = &hca_here;
	if (RPWI_UNLIKELY(h->gather_pause)) {
		h->gather_pause--;
		return false;
	}
	/* Nobody polls, and should the ACK be lost, the service thread sleeps on. A lane is so fast
	 * that to wait for that thread is out of the question. */
	return atomic_load_explicit(&h->gathered, memory_order_relaxed) ||
	       !atomic_load_explicit(&h->service_sleeps, memory_order_relaxed) ||
	       (!by_lane && h->service_wake_ns <= rpwi_now_ns() + GATHER_SLEEP_NS);
}

bool progress_gather(struct dqp *q)
{
	struct hca *h = &hca_here;
	if (!rpwi_qp_may_gather(&q->t))
		return false;
	if (rpwi_list_empty(&q->tx_link)) {
		struct rpwi_lane *lane = qp_lane(q, h->lanes);
		if (!may_wait_for_more(q, lane))
			return false;
		rpwi_list_add_tail(&h->tx_list, &q->tx_link);
		q->gathers = lane ? LANE_GATHER_MAX : RPWI_GATHER_MAX;
	}
	if (!q->gathers)
		return true;
	unsigned n = atomic_load_explicit(&h->gathered, memory_order_relaxed) + 1;
	atomic_store_explicit(&h->gathered, n, memory_order_relaxed);
	atomic_store_explicit(&h->gathers,
		atomic_load_explicit(&h->gathers, memory_order_relaxed) + 1, memory_order_relaxed);
	if (n < q->gathers)
		return true;
	tx_gathered(rpwi_now_ns());
	/* no longer so often in vain */
	if (RPWI_UNLIKELY(h->gather_pauses) && ++h->gather_full % GATHER_FORGIVEN == 0)
		h->gather_pauses--;
	return true;
}

void progress_qp_forget(struct dqp *q)
{
	rpwi_list_del(&q->tx_link);
	q->gathers = 0;
	rpwi_list_del(&q->rx_link);
	held_del(q);
	rpwi_heap_del(&hca_here.timers, &q->timer);
}

void progress_flush_held(uint64_t now_ns)
{
	while (!rpwi_list_empty(&hca_here.held)) {
		struct dqp *q = RPWI_CONTAINER_OF(hca_here.held.next, struct dqp, held_link);
		progress_qp_kick(q, false, now_ns);
		held_del(q);
	}
}

/* QPs that waited for the window of a peer, in turn, as far as it has room now. The first one that
 * still finds too little keeps its place, and nobody behind it is tried: with a thousand QPs in the
 * list, to try them all at each ACK took longer than to send. */
static void tx_blocked(struct dpeer *p, uint64_t now_ns)
{
	struct rpwi_list *last = p->blocked.prev;
	while (!rpwi_list_empty(&p->blocked) && rpwi_cc_room(&p->cc)) {
		struct rpwi_list *n = p->blocked.next;
		struct dqp *q = RPWI_CONTAINER_OF(n, struct dqp, tx_link);
		uint32_t inflight = p->cc.inflight;
		progress_qp_kick(q, true, now_ns);
		if (p->cc.inflight == inflight && rpwi_qp_blocked(&q->t)) {
			rpwi_list_del(&q->tx_link);
			rpwi_list_add_tail(p->blocked.next, &q->tx_link); /* before the first */
			break;
		}
		if (n == last)
			break;
	}
}

/* Those who waited for a window; then everyone who has something to send, once. */
static void tx_run(uint64_t now_ns)
{
	struct hca *h = &hca_here;
	for (struct rpwi_list *l = h->peers.next; l != &h->peers; l = l->next)
		tx_blocked(RPWI_CONTAINER_OF(l, struct dpeer, link), now_ns);
	if (atomic_load_explicit(&h->gathered, memory_order_relaxed))
		tx_gathered(now_ns);
	struct rpwi_list *last = h->tx_list.prev;
	while (!rpwi_list_empty(&h->tx_list)) {
		struct rpwi_list *n = h->tx_list.next;
		progress_qp_kick(RPWI_CONTAINER_OF(n, struct dqp, tx_link), true, now_ns);
		if (n == last)
			break;
	}
}

/* ---- receiving ---- */

static void rx_segment(struct dport *port, struct rpwi_rx *rx, const uint8_t *seg, size_t len,
	unsigned index, uint64_t now_ns)
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
	uint16_t ip_id = (uint16_t)((rx->ip_id >= 0 ? (unsigned)rx->ip_id : 0) + index);
	struct rpwi_pkt pkt;
	if (RPWI_UNLIKELY(rpwi_pkt_decode(seg, len, &pkt))) {
		h->n.decode_errors++;
		tally_at(dev_first(), &rx->flow.dst)->rx_broken++;
		return;
	}
	if (RPWI_UNLIKELY(rpwi_icrc_check(&rx->flow, seg, len, &ip_id) == RPWI_ICRC_BAD)) {
		h->n.icrc_errors++;
		tally_at(dev_first(), &rx->flow.dst)->rx_broken++;
		path_bad_icrc(h, q, rx, seg, len, ip_id, &pkt);
		rpwi_debug("packet for QP 0x%06x, PSN %u: bad ICRC, dropped", pkt.dqpn, pkt.psn);
		return;
	}
	if (RPWI_UNLIKELY(management && port && gsi_pass_on(port, rx, seg, len, &pkt)))
		return;
	if (RPWI_UNLIKELY(rpwi_tap_enabled)) {
		struct rpwi_iov part = {seg, len};
		rpwi_tap(&rx->flow, ip_id, rx->ttl, rx->tos, 0, &part, 1);
	}
	if (RPWI_UNLIKELY(management)) {
		if (!gsi_defer(rx, seg, len, &pkt, now_ns))
			gsi_rx(rx, &pkt, now_ns);
		return;
	}
	struct rpwi_rxmeta meta = {.flow = &rx->flow, .ttl = rx->ttl, .tos = rx->tos};
	if (RPWI_UNLIKELY(!q)) {
		/* index 0 of a slot: its process is asked, or answered (wire/ask.h) */
		h->n.no_qp += (pkt.dqpn & (RPWI_SLOT_QPNS - 1)) || !gsi_ask(rx, &pkt, now_ns);
		return;
	}
	h->n.rx_packets++;
	qp_hold(q);
	if (RPWI_UNLIKELY(rpwi_plan_on) && fault_rx(q, &pkt, &meta, now_ns))
		return;
	q->heard_ns = now_ns;
	rpwi_qp_rx(&q->t, &pkt, &meta, now_ns);
	if (rpwi_list_empty(&q->rx_link))
		rpwi_list_add_tail(&h->touched, &q->rx_link);
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

static void rx_batch(struct dport *port, struct rpwi_rx *rx, uint64_t now_ns)
{
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
			rx_segment(port, rx, rx->data + last, end - last,
				(unsigned)(last / seg_len), now_ns);
			end = last;
		}
	}
	for (size_t at = 0; at < end; at += seg_len)
		rx_segment(port, rx, rx->data + at, RPWI_MIN(seg_len, end - at), index++, now_ns);
}

/* Whoever got packets answers now: responses, what the window lets go; plain ACKs wait for the next
 * post or poll. */
static void rx_answer(bool hold_ack, uint64_t now_ns)
{
	struct hca *h = &hca_here;
	if (atomic_load_explicit(&h->gathered, memory_order_relaxed))
		tx_gathered(now_ns);
	while (!rpwi_list_empty(&h->touched)) {
		struct dqp *q = RPWI_CONTAINER_OF(h->touched.next, struct dqp, rx_link);
		rpwi_list_del(&q->rx_link);
		progress_qp_kick(q, hold_ack, now_ns);
	}
}

static unsigned rx_port(struct dport *p, bool hold_ack, uint64_t *now_ns)
{
	struct rpwi_rx rx;
	unsigned n = 0;
	bool lone = false;
	while (n < RX_BATCHES_MAX && rpwi_port_recv(p->io, &rx) > 0) {
		if (!n++ && !*now_ns)
			*now_ns = rpwi_now_ns();
		/* The ACK of a stream should not wait; that of what may be a request on its own
		 * rides with the answer. And after one datagram of a lone request the socket is
		 * empty as a rule: looking again would cost as much as everything else here. Behind
		 * an ACK there may be the reply. */
		lone = rx.len < LONE_BYTES;
		bool ack = lone && rpwi_pkt_is_ack(rx.data, rx.len);
		if (!lone)
			atomic_store_explicit(&hca_here.stream_ns, *now_ns, memory_order_relaxed);
		rx_batch(p, &rx, *now_ns);
		rx_answer(true, *now_ns);
		if (lone && !ack)
			break;
		if (n % ACK_BATCHES == 0)
			progress_flush_held(*now_ns);
	}
	if (n && !(lone && hold_ack))
		progress_flush_held(*now_ns);
	return n;
}

static unsigned rx_groups(uint64_t *now_ns)
{
	unsigned n = 0;
	while (n < RX_BATCHES_MAX && mcast_rx(&hca_here, now_ns)) {
		n++;
		rx_answer(true, *now_ns);
	}
	return n;
}

/* ---- lanes ---- */

/* A packet that came through memory. Its headers are ours, and no ICRC is needed: nothing between
 * the two processes changes a bit that would not change it in a register as well. */
static void rx_lane_packet(struct lane_packet *p, uint64_t now_ns)
{
	struct hca *h = &hca_here;
	struct rpwi_pkt pkt;
	if (RPWI_UNLIKELY(p->kind == LANE_DATAGRAM)) {
		struct rpwi_rx rx = {.flow = p->flow,
			.ttl = p->ttl,
			.tos = p->tos,
			.data = (uint8_t *)(uintptr_t)p->payload,
			.len = p->len,
			.seg_len = p->len};
		rx_segment(NULL, &rx, p->payload, p->len, 0, now_ns);
		return;
	}
	if (RPWI_UNLIKELY(rpwi_pkt_decode_parts(p->data, p->hdr_len, p->payload, p->len, &pkt) ||
			  (p->more && !rpwi_opcode_may_have_more(pkt.opcode)))) {
		h->n.decode_errors++;
		return;
	}
	struct dqp *q = pkt.dqpn > RPWI_GSI_QPN ? qp_lookup(pkt.dqpn) : NULL;
	if (RPWI_UNLIKELY(!q)) {
		h->n.no_qp++;
		return;
	}
	struct rpwi_rxmeta meta = {.flow = &p->flow, .ttl = p->ttl, .tos = p->tos};
	qp_hold(q);
	unsigned parts = rpwi_lane_packet_parts(p);
	if (RPWI_UNLIKELY(parts > 1 && (rpwi_plan_on || rpwi_tap_enabled ||
					       (p->more && !rpwi_qp_takes_more(&q->t, &pkt))))) {
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
	pkt.more = (uint16_t)p->more;
	pkt.ackreq |= p->more_ack;
	pkt.payload_len = p->len * (1 + p->more);
	h->n.rx_packets += parts;
	if (RPWI_UNLIKELY(rpwi_plan_on) && fault_rx(q, &pkt, &meta, now_ns))
		return;
	q->heard_ns = now_ns;
	rpwi_qp_rx(&q->t, &pkt, &meta, now_ns);
	if (rpwi_list_empty(&q->rx_link))
		rpwi_list_add_tail(&h->touched, &q->rx_link);
}

/* With the lock of the HCA and the QP's; and what is fetched so is taken before they are given back
 * (rpwi_lanes_mid_run). */
void *progress_place(void *arg, bool first, const struct lane_headers *h)
{
	static struct rpwi_places places;
	struct rpwi_pkt pkt;
	(void)arg;
	if (RPWI_UNLIKELY(rpwi_plan_on || rpwi_tap_enabled) ||
		rpwi_pkt_decode_parts(h->hdr, h->hdr_len, h->hdr, h->len, &pkt))
		return NULL;
	if (first) {
		struct dqp *q = pkt.dqpn > RPWI_GSI_QPN ? qp_lookup(pkt.dqpn) : NULL;
		if (!q)
			return NULL;
		qp_hold(q);
		rpwi_places_begin(&places, &q->t);
	}
	pkt.more = (uint16_t)h->more;
	pkt.payload_len = h->len * (1 + h->more);
	return places.qp && places.qp->qpn == pkt.dqpn ? rpwi_places_next(&places, &pkt) : NULL;
}

static unsigned rx_lanes(bool hold_ack, uint64_t *now_ns)
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
			progress_flush_held(*now_ns);
		}
	}
	if (!n)
		return 0;
	rx_answer(true, *now_ns);
	/* What may be a request on its own has its ACK ride with the answer. */
	if (bytes >= LONE_BYTES || !hold_ack)
		progress_flush_held(*now_ns);
	if (bytes >= LONE_BYTES)
		atomic_store_explicit(&hca_here.stream_ns, *now_ns, memory_order_relaxed);
	return n;
}

/* Its socket is looked at in one of so many rounds. */
static unsigned look_every(const struct dport *p, bool all_ports, bool by_lanes)
{
	bool quiet = p->quiet >= QUIET_POLLS;
	if (all_ports)
		return 1;
	if (by_lanes)
		return quiet ? LANE_QUIET_SOCKETS_EVERY : LANE_SOCKETS_EVERY;
	return quiet && hca_here.nports > 1 ? QUIET_SOCKETS_EVERY : 1;
}

static bool progress(bool all_ports, bool hold_ack, struct pollset_ready ready)
{
	struct hca *h = &hca_here;
	static unsigned round;
	uint64_t now_ns = 0;
	unsigned got = 0, open = 0;
	bool all_looked_at = true;
	static unsigned lane_quiet = LANE_QUIET_ROUNDS;
	round++;
	got = rx_lanes(hold_ack, &now_ns);
	lane_quiet = got ? 0 : lane_quiet + (lane_quiet < LANE_QUIET_ROUNDS);
	bool all_sockets = rpwi_lanes_any_new(h->lanes);
	bool by_lanes = !all_ports && lane_quiet < LANE_QUIET_ROUNDS;
	for (unsigned i = 0; i < h->nports; i++) {
		struct dport *p = &h->port[i];
		if (!p->refs)
			continue;
		open++;
		unsigned every = look_every(p, all_ports, by_lanes);
		bool unready = !(ready.ports >> i & 1) && rpwi_port_fd(p->io) >= 0;
		bool passed_by = !all_sockets && (unready || (round + i) % every);
		if (passed_by) {
			all_looked_at = false;
			continue;
		}
		unsigned n = rx_port(p, hold_ack, &now_ns);
		p->quiet = n ? 0 : p->quiet + 1;
		all_looked_at &= !n;
		got += n;
	}
	if (all_looked_at) {
		rpwi_lanes_sockets_empty(h->lanes);
		h->emptied += lane_quiet != 0;
	}
	if (mcast_due(all_ports))
		got += rx_groups(&now_ns);
	/* What others hand over: now and then, and at once while it keeps coming, for their queue
	 * is short. */
	static bool more_handed;
	if ((all_ports && ready.steer) || more_handed || !(round % 64) || (h->steer && !open)) {
		struct rpwi_rx rx;
		more_handed = false;
		for (unsigned n = 0;
			n < RX_BATCHES_MAX && h->steer && rpwi_steer_recv(h->steer, &rx) > 0;
			n++, got++) {
			more_handed = true;
			now_ns = rpwi_now_ns();
			rx_batch(NULL, &rx, now_ns);
			rx_answer(false, now_ns);
		}
	}
	/* Timers and what is left to send: after packets, and now and then. */
	if (got || all_ports || !(round % 16) || !rpwi_list_empty(&h->tx_list)) {
		if (!now_ns)
			now_ns = rpwi_now_ns();
		timers_run(now_ns);
		for (unsigned i = 0; i < h->nports; i++)
			if (h->port[i].refs && rpwi_port_deadline(h->port[i].io) <= now_ns)
				rpwi_port_timer(h->port[i].io, now_ns);
		if (gsi_deadline() <= now_ns)
			gsi_timer(now_ns);
		if (RPWI_UNLIKELY(rpwi_plan_on))
			fault_timer(now_ns);
		if (RPWI_UNLIKELY(cq_event_deadline() <= now_ns))
			cq_event_timer(now_ns);
		tx_run(now_ns);
	}
	/* Another thread sleeps, and what it waits for is still to come. */
	if (RPWI_UNLIKELY(atomic_load_explicit(&h->lane_sleepers, memory_order_relaxed)) &&
		!rpwi_lanes_arm(h->lanes))
		rpwi_lanes_wake_self(h->lanes);
	return got;
}

bool progress_run(bool all_ports) { return progress(all_ports, true, pollset_all_ready); }

/* ---- who waits where ---- */

static uint64_t next_deadline(void)
{
	struct hca *h = &hca_here;
	uint64_t at = rpwi_heap_deadline(&h->timers);
	for (unsigned i = 0; i < h->nports; i++)
		if (h->port[i].refs)
			at = RPWI_MIN(at, rpwi_port_deadline(h->port[i].io));
	at = RPWI_MIN(at, gsi_deadline());
	at = RPWI_MIN(at, cq_event_deadline());
	if (RPWI_UNLIKELY(rpwi_plan_on))
		at = RPWI_MIN(at, fault_deadline());
	if (!rpwi_list_empty(&h->tx_list)) /* paced: try again soon */
		at = RPWI_MIN(at, rpwi_now_ns() + PACE_RETRY_NS);
	return at;
}

void service_wait_begin(void) { atomic_fetch_add(&hca_here.waiters, 1); }
void service_wait_end(void) { atomic_fetch_sub(&hca_here.waiters, 1); }

int progress_wait(int fd)
{
	struct hca *h = &hca_here;
	struct pollfd fds[2 * DEV_PORTS_MAX + 4];
	hca_lock_serving();
	bool got = progress(true, false, pollset_all_ready);
	progress_flush_held(rpwi_now_ns());
	unsigned n = pollset_fill(h, fds);
	uint64_t until = next_deadline();
	got = got || !pollset_sleep(h);
	hca_unlock();
	if (got)
		return 0;
	fds[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
	/* Bounded: what another thread posts meanwhile may set an earlier deadline. */
	struct timespec ts = pollset_timeout(until, 10 * RPWI_NS_PER_MS);
	int rc = ppoll(fds, n, &ts, NULL) < 0 ? -errno : 0;
	pollset_awake(h);
	if (RPWI_UNLIKELY(!rc && pollset_path_spoke(fds, n))) {
		hca_lock();
		path_heard(h);
		hca_unlock();
	}
	return rc;
}

void service_wake(void)
{
	uint64_t one = 1;
	if (hca_here.wake_fd >= 0 && hca_here.service_running &&
		write(hca_here.wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		rpwi_error("service thread: cannot wake it: %s", strerror(errno));
}

/* The program counts there what it does; does it do so now? */
static bool counts_now(const _Atomic uint32_t *at, uint32_t seen)
{
	uint64_t until = rpwi_now_ns() + POLLS_SEEN_NS;
	while (atomic_load_explicit(at, memory_order_relaxed) == seen) {
		if (rpwi_now_ns() > until)
			return false;
		sched_yield();
	}
	return true;
}

/* The program has posted; if it does not go on, and polls no more or finds what it polls for, it
 * cannot know that some of that waits. It will not wait so often again. */
static void tend_gathered(void)
{
	struct hca *h = &hca_here;
	uint32_t seen = atomic_load_explicit(&h->gathers, memory_order_relaxed);
	if (!atomic_load_explicit(&h->gathered, memory_order_relaxed) ||
		counts_now(&h->gathers, seen) || !hca_try())
		return;
	if (atomic_load_explicit(&h->gathered, memory_order_relaxed) &&
		atomic_load_explicit(&h->gathers, memory_order_relaxed) == seen) {
		h->gather_pause = GATHER_PAUSE << h->gather_pauses;
		h->gather_pauses += h->gather_pauses < GATHER_PAUSES_MAX;
		tx_run(rpwi_now_ns());
	}
	hca_unlock();
}

/* A tick of sleep while the program owns the sockets. True when it still does. */
static bool tick(uint32_t *seen_polls)
{
	struct hca *h = &hca_here;
	struct pollfd wake = {.fd = h->wake_fd, .events = POLLIN};
	struct timespec ts = {.tv_nsec = TICK_NS};
	ppoll(&wake, 1, &ts, NULL);
	if (wake.revents) {
		uint64_t n;
		if (read(h->wake_fd, &n, sizeof(n)) < 0)
			return false;
	}
	tend_gathered();
	if (atomic_load_explicit(&h->waiters, memory_order_relaxed) > 0)
		return true;
	uint32_t polls = atomic_load_explicit(&h->any_polls, memory_order_relaxed);
	bool polled = polls != *seen_polls;
	*seen_polls = polls;
	return polled &&
	       atomic_load_explicit(&h->empty_polls, memory_order_relaxed) >= SPIN_POLLS &&
	       counts_now(&h->any_polls, polls);
}

static bool program_owns(void)
{
	struct hca *h = &hca_here;
	return atomic_load_explicit(&h->waiters, memory_order_relaxed) > 0 ||
	       atomic_load_explicit(&h->empty_polls, memory_order_relaxed) >= SPIN_POLLS;
}

static void *service_main(void *arg)
{
	struct hca *h = &hca_here;
	struct pollfd fds[2 * DEV_PORTS_MAX + 5];
	/* After poll only what it found is read, until that is empty; but now and then everything,
	 * for a stream may go on for long. */
	struct pollset_ready ready = pollset_all_ready;
	unsigned polled = 0 /* descriptors that poll has just looked at; 0: it has not */,
		 rounds = 0;
	uint32_t seen = atomic_load(&h->any_polls), last_calls = seen;
	struct spin spin = {0};
	bool spins = false;
	prctl(PR_SET_TIMERSLACK, 1ul); /* 50 us by default: more than an ACK may wait */
	while (!atomic_load_explicit(&h->stop, memory_order_relaxed)) {
		/* It has a service thread of its own, and the same sockets and lanes: what this one
		 * took would be answered from memory that is nobody's any more. */
		if (RPWI_UNLIKELY(board_is_the_childs())) {
			const struct timespec ts = {.tv_nsec = LEFT_TO_CHILD_MS * RPWI_NS_PER_MS};
			nanosleep(&ts, NULL);
			continue;
		}
		if (RPWI_UNLIKELY(farewell_deadline() != RPWI_NEVER) &&
			farewell_deadline() <= rpwi_now_ns())
			farewell_tend(rpwi_now_ns());
		if (program_owns()) {
			ready = pollset_all_ready;
			polled = 0;
			if (tick(&seen))
				continue;
			atomic_store_explicit(&h->empty_polls, 0, memory_order_relaxed);
		}
		/* Never queue for the lock: who has it makes progress or is about to, and would
		 * have to wake this thread at each unlock. Commands to the CM do not, and are
		 * short. */
		if (!hca_try()) {
			if (!atomic_load_explicit(&h->commands, memory_order_relaxed)) {
				ready = pollset_all_ready;
				polled = 0;
				tick(&seen);
				continue;
			}
			hca_lock();
		}
		if (atomic_load_explicit(&h->stop, memory_order_relaxed)) {
			/* a tick may have taken the wake-up that was meant for poll */
			hca_unlock();
			break;
		}
		if (polled) {
			if (RPWI_UNLIKELY(pollset_path_spoke(fds, polled)))
				path_heard(h);
			ready = pollset_read(h, fds, polled);
		}
		if (++rounds % ALL_ROUNDS == 0)
			ready = pollset_all_ready;
		polled = 0;
		/* A program that polls memory answers soon: its reply takes the ACK along, and then
		 * the peer gets both where it polls. A program that has made no call of late does
		 * not: its ACK goes at once. */
		uint32_t calls = atomic_load_explicit(&h->any_polls, memory_order_relaxed);
		bool active = calls != last_calls;
		last_calls = calls;
		if (!rpwi_list_empty(&h->held))
			progress_flush_held(rpwi_now_ns());
		/* Awake, it looks where packets come from; now and then everywhere. */
		bool got = progress(!spins || rounds % ALL_ROUNDS == 0, active,
			spins ? pollset_all_ready : ready);
		uint64_t now_ns = rpwi_now_ns();
		if (got)
			spin_packet(&spin, now_ns);
		unsigned n = pollset_fill(h, fds);
		fds[n++] = (struct pollfd){.fd = h->wake_fd, .events = POLLIN};
		fds[n++] = (struct pollfd){.fd = h->watch_fd, .events = POLLIN};
		uint64_t until = RPWI_MIN(next_deadline(), farewell_deadline());
		if (!rpwi_list_empty(&h->held))
			until = RPWI_MIN(until, now_ns + ACK_HOLD_NS);
		h->service_wake_ns = until;
		bool held = !rpwi_list_empty(&h->held), sleep = !got || held;
		/* In the middle of a stream the next batch is microseconds away, and to sleep and
		 * be woken takes longer than that. */
		spins = !held && !got && spin_goes_on(&spin, now_ns);
		spins = spins || (!held && now_ns - atomic_load_explicit(
							    &h->stream_ns, memory_order_relaxed) <=
						   STREAM_SPIN_NS);
		sleep = sleep && (spins || pollset_sleep(h));
		atomic_store(&h->service_sleeps, sleep && !spins);
		hca_unlock();
		if (!sleep)
			continue;
		if (spins) {
			if (rounds % YIELD_ROUNDS)
				continue;
			sched_yield();
			spin_yielded(&spin, now_ns, rpwi_now_ns());
			continue;
		}
		struct timespec ts = pollset_timeout(until, SERVICE_SLEEP_MAX_MS * RPWI_NS_PER_MS);
		if (ppoll(fds, n, &ts, NULL) >= 0)
			polled = n - 2;
		pollset_awake(h);
		atomic_store(&h->service_sleeps, false);
		h->n.service_wakeups++;
		if (fds[n - 2].revents & POLLIN) {
			uint64_t v;
			if (read(h->wake_fd, &v, sizeof(v)) < 0)
				rpwi_debug("service thread: %s", strerror(errno));
		}
		if ((fds[n - 1].revents & POLLIN) && rpwi_netdev_watch_read(h->watch_fd))
			dev_refresh();
	}
	return NULL;
}

int service_start(void)
{
	struct hca *h = &hca_here;
	sigset_t all, old;
	/* The program's signals are not ours to take; faults of our own copies are. */
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	atomic_store(&h->stop, false);
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 * 1024);
	int rc = pthread_create(&h->service, &attr, service_main, NULL);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc) {
		rpwi_error("cannot start the service thread: %s; RDMA requests from peers are "
			   "served only while the program polls",
			strerror(rc));
		return -rc;
	}
	pthread_setname_np(h->service, "ropeway");
	h->service_running = true;
	if (h->forked_from) {
		board_is_forked();
		farewell_is_forked();
		rpwi_steer_inherit(h->steer);
	}
	h->forked_from = 0;
	return 0;
}

/* The lock is held on entry and on return, but not while the thread ends. */
void service_stop(void)
{
	struct hca *h = &hca_here;
	if (!h->service_running)
		return;
	atomic_store(&h->stop, true);
	service_wake();
	h->service_running = false;
	hca_unlock();
	pthread_join(h->service, NULL);
	hca_lock();
}

/* A thread does not survive fork: it is started again by the next call on the data path. See
 * place_leave_to_parent in hca.c for the sockets. */
void service_atfork_child(void)
{
	hca_here.service_running = false;
	hca_here.waiters = hca_here.commands = 0;
	hca_here.service_sleeps = false;
	hca_here.lane_sleepers = 0;
}
