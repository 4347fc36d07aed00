/* SPDX-License-Identifier: BSD-3-Clause */
/* send.c - what QPs have to send, onto the wire or into a lane: one after the other, short messages
 * of several together, ACKs that wait for company, and their timers. */
#include "device/board.h"
#include "device/fault.h"
#include "device/ledger.h"
#include "device/path.h"
#include "device/progress.h"
#include "device/qp_path.h"
#include "explain/verbs.h"

enum {
	ACKS_UNKNOWN = 128,
	GATHER_SLEEP_NS = 10000000, /* short messages wait so long where an ACK is lost */
	LANE_GATHER_MAX = 16,
	GATHER_FORGIVEN = 1024, /* batches that were full, for one that waited in vain */
	/* in one go, while others wait for the window or do not */
	BATCHES_A_TURN = 1,
	/* a turn lasts for so many: a QP that sends in small pieces gets as many ACKs */
	TURN_PKTS = 128,
	BATCHES_ALONE = 4,
	/* by UDP in one round of progress, while a lone message of another QP has no answer yet:
	 * about one datagram, so that the answer is not looked at later than that takes */
	ROUND_BYTES = 1 << 15,
};

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

void send_timers(uint64_t now_ns)
{
	struct hca *h = &hca_here;
	while (rpwi_heap_deadline(&h->timers) <= now_ns) {
		struct dqp *q = RPWI_CONTAINER_OF(rpwi_heap_first(&h->timers), struct dqp, timer);
		qp_hold(q);
		uint64_t at = rpwi_qp_deadline(&q->t);
		rpwi_heap_del(&hca_here.timers, &q->timer);
		if (at <= now_ns) {
			rpwi_qp_timer(&q->t, now_ns);
			if (rpwi_qp_is_silent(&q->t) && q->t.av.loopback_zone)
				rpwi_port_no_answer(q->t.av.port, &q->t.av.flow.dst, now_ns);
			send_kick(q, true, now_ns);
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

bool send_is_spent(void) { return hca_here.round_bytes >= ROUND_BYTES; }

/* One batch of a QP onto the wire. False when there was nothing. */
__attribute__((always_inline)) static inline bool tx_batch(
	struct dqp *q, bool hold_ack, uint64_t now_ns)
{
	struct rpwi_txb *b = &hca_here.txb;
	const struct qp_path_ops *path = qp_path(q);
	rpwi_txb_reset(b);
	unsigned room = path->room(q, b), sent = 0;
	if (!room) {
		rpwi_qp_tx_done(&q->t);
		return false;
	}
	rpwi_qp_tx(&q->t, b, hold_ack, now_ns);
	if (path->unused && b->npkt < room)
		path->unused(room - b->npkt);
	if (!b->npkt)
		return false;
	hca_here.n.tx_batches++;
	if (RPWI_UNLIKELY(rpwi_plan_on))
		b->ordinal = q->ordinal;
	if (b->ack && b->ack < b->npkt && !ack_may_follow(q))
		b->ack = 0;
	int rc = path->send(q, b, &sent);
	if (RPWI_UNLIKELY(rpwi_explain_on) && sent)
		rpwi_explain_fact(path->fact, q->t.qpn, sent);
	if (RPWI_UNLIKELY(rc == -EFAULT))
		rpwi_qp_tx_fault(&q->t, b, sent, now_ns);
	else
		rpwi_qp_tx_done(&q->t);
	return true;
}

/* It waits for the window of its peer, behind `after`. */
static void wait_behind(struct dqp *q, struct rpwi_list *after)
{
	struct dpeer *p = q->peer;
	q->waits = true;
	rpwi_list_add_tail(after->next, &q->tx_link);
	if (rpwi_list_empty(&p->wait_link))
		rpwi_list_add_tail(&hca_here.waited, &p->wait_link);
}

/* After its batches: where it waits, its ACK, its timer. It is in no list. `ready`: it has more.
 * `after`: where it waits for the window. */
static inline void qp_sent(struct dqp *q, bool ready, bool hold_ack, struct rpwi_list *after)
{
	if (ready) {
		hca_here.all_stuck = false;
		rpwi_list_add_tail(&hca_here.tx_list, &q->tx_link);
	} else if (q->peer && rpwi_qp_blocked(&q->t)) {
		wait_behind(q, after ? after : q->peer->blocked.prev);
	}
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

void send_unlist(struct dqp *q)
{
	rpwi_list_del(&q->tx_link);
	q->gathers = 0;
	q->waits = false;
}

/* What it may send now, but bounded: a QP with more goes to the end of the list, so that all get
 * their turn. */
__attribute__((always_inline)) static inline void send_some(
	struct dqp *q, unsigned batches, bool hold_ack, struct rpwi_list *after, uint64_t now_ns)
{
	bool ready = rpwi_qp_tx_ready(&q->t, hold_ack, now_ns), sends = true;
	for (unsigned i = 0; i < batches && ready && sends; i++) {
		sends = tx_batch(q, hold_ack, now_ns);
		ready = rpwi_qp_tx_ready(&q->t, hold_ack, now_ns);
	}
	qp_sent(q, ready, hold_ack, after);
}

/* Out of the way of send_kick. */
__attribute__((noinline)) static void send_in_turn(
	struct dqp *q, unsigned batches, bool hold_ack, struct rpwi_list *after, uint64_t now_ns)
{
	send_some(q, batches, hold_ack, after, now_ns);
}

/* Somebody waits for a window, or enough has been sent in this round. Where that is in its way, it
 * sends what needs no window, and waits where it waited. */
__attribute__((noinline)) static void kick_among_others(
	struct dqp *q, struct rpwi_list *after, bool hold_ack, uint64_t now_ns)
{
	bool yields = q->peer && (!rpwi_list_empty(&q->peer->blocked) || send_is_spent());
	if (yields)
		rpwi_qp_yields(&q->t, true);
	send_in_turn(q, yields ? BATCHES_A_TURN : BATCHES_ALONE, hold_ack, after, now_ns);
	if (yields)
		rpwi_qp_yields(&q->t, false);
}

void send_kick(struct dqp *q, bool hold_ack, uint64_t now_ns)
{
	struct hca *h = &hca_here;
	qp_hold(q);
	if (RPWI_UNLIKELY(!rpwi_list_empty(&h->waited) || h->round_bytes >= ROUND_BYTES)) {
		struct rpwi_list *after = q->waits ? q->tx_link.prev : NULL;
		send_unlist(q);
		kick_among_others(q, after, hold_ack, now_ns);
		return;
	}
	send_unlist(q);
	send_some(q, BATCHES_ALONE, hold_ack, NULL, now_ns);
}

/* What send_kick comes to for who has nothing to send, as most that have just received something
 * through memory: the rest of qp_sent is for what has been sent, or has changed state. */
static bool rests(struct dqp *q, uint64_t now_ns)
{
	if (!rpwi_qp_rests(&q->t, now_ns) || !q->t.av.loopback_zone ||
		!rpwi_list_empty(&q->tx_link) || RPWI_UNLIKELY(rpwi_explain_on))
		return false;
	if (rpwi_qp_ack_owed(&q->t))
		held_add(q);
	else
		held_del(q);
	timer_update(q);
	return true;
}

/* Its payload is not mapped. */
static void short_failed(
	struct dqp *q, struct rpwi_lane *lane, const struct rpwi_short *s, uint64_t now_ns)
{
	struct rpwi_txb *b = &hca_here.txb;
	unsigned sent;
	rpwi_txb_reset(b);
	rpwi_qp_tx_short_fault(&q->t, s, b);
	if (b->npkt)
		rpwi_port_send_by_lane(q->t.av.port, lane, b, &sent);
	send_kick(q, false, now_ns);
}

/* May it go straight into a line of the lane to its peer? A QP that does not send has no peer to
 * ask about. One that waits for something has its turn, and packets that somebody watches go in a
 * batch. */
static struct rpwi_lane *short_way(struct dqp *q)
{
	if (!rpwi_qp_sends_short(&q->t) || !rpwi_list_empty(&q->tx_link) ||
		RPWI_UNLIKELY(rpwi_explain_on || rpwi_port_is_watched(q->t.av.port)))
		return NULL;
	struct rpwi_lane *lane = qp_lane(q);
	return lane && rpwi_lane_room(lane, 1, 0) ? lane : NULL;
}

void send_posted(struct dqp *q, uint64_t now_ns)
{
	struct rpwi_lane *lane = short_way(q);
	struct rpwi_short s;
	if (!lane || !rpwi_qp_tx_short(&q->t, &s, LANE_SHORT_BYTES, now_ns)) {
		send_kick(q, false, now_ns);
		return;
	}
	hca_here.n.tx_batches++;
	if (RPWI_UNLIKELY(rpwi_port_send_short(q->t.av.port, lane, &q->t.av, &s))) {
		short_failed(q, lane, &s, now_ns);
		return;
	}
	held_del(q);
	timer_update(q);
}

void send_answer(struct dqp *q, bool hold_ack, uint64_t now_ns)
{
	qp_hold(q);
	if (!hold_ack || !rests(q, now_ns))
		send_kick(q, hold_ack, now_ns);
}

/* ---- short messages, of several QPs, as one batch ---- */

/* May its packets go behind those of `first`? To one process: only that gets them in one piece. */
static bool same_way(struct dqp *q, const struct dqp *first)
{
	uint32_t apart = q->t.attr.dest_qp_num ^ first->t.attr.dest_qp_num;
	return q->gathers && q->peer == first->peer && !(apart & ~(uint32_t)(RPWI_SLOT_QPNS - 1)) &&
	       !qp_lane(q);
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
	b->by_datagrams = true;
	b->may_split = qp_path_may_split(first);
	for (struct rpwi_list *l = &first->tx_link, *next;
		l != &h->tx_list && b->npkt < RPWI_TXB_PKTS && looked_at < RPWI_TXB_PKTS;
		l = next, looked_at++) {
		struct dqp *q = RPWI_CONTAINER_OF(l, struct dqp, tx_link);
		next = l->next;
		if (!same_way(q, first))
			continue;
		send_unlist(q);
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
		qp_sent(q, rpwi_qp_tx_ready(&q->t, true, now_ns), true, NULL);
	}
}

void send_gathered(uint64_t now_ns)
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
		if (qp_lane(q))
			send_kick(q, true, now_ns);
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

bool send_gather(struct dqp *q)
{
	struct hca *h = &hca_here;
	if (!rpwi_qp_may_gather(&q->t))
		return false;
	if (rpwi_list_empty(&q->tx_link)) {
		struct rpwi_lane *lane = qp_lane(q);
		if (!may_wait_for_more(q, lane))
			return false;
		h->all_stuck = false;
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
	send_gathered(rpwi_now_ns());
	/* no longer so often in vain */
	if (RPWI_UNLIKELY(h->gather_pauses) && ++h->gather_full % GATHER_FORGIVEN == 0)
		h->gather_pauses--;
	return true;
}

void send_forget(struct dqp *q)
{
	send_unlist(q);
	if (hca_here.awaited == q) {
		hca_here.awaited = NULL;
		hca_here.round_bytes = 0;
	}
	rpwi_list_del(&q->rx_link);
	held_del(q);
	rpwi_heap_del(&hca_here.timers, &q->timer);
}

void send_held(uint64_t now_ns)
{
	while (!rpwi_list_empty(&hca_here.held)) {
		struct dqp *q = RPWI_CONTAINER_OF(hca_here.held.next, struct dqp, held_link);
		send_kick(q, false, now_ns);
		held_del(q);
	}
}

/* QPs that waited for the window of a peer, in turn, as far as it has room now. The first one that
 * still finds too little keeps its place, and nobody behind it is tried: with a thousand QPs in the
 * list, to try them all at each ACK took longer than to send. */
static void turns(struct dpeer *p, uint64_t now_ns)
{
	while (!rpwi_list_empty(&p->blocked) && rpwi_cc_room(&p->cc)) {
		struct dqp *q = RPWI_CONTAINER_OF(p->blocked.next, struct dqp, tx_link);
		uint32_t nxt = q->t.nxt;
		qp_hold(q);
		send_unlist(q);
		bool others = !rpwi_list_empty(&p->blocked);
		rpwi_qp_turn_begins(&q->t, q->heard_ns);
		send_in_turn(q, others ? BATCHES_A_TURN : BATCHES_ALONE, true, NULL, now_ns);
		bool some = q->t.nxt != nxt;
		q->turn_pkts += q->t.nxt - nxt;
		if (q->waits && (!some || q->turn_pkts < TURN_PKTS)) {
			send_unlist(q);
			wait_behind(q, &p->blocked);
		} else {
			q->turn_pkts = 0;
		}
		if ((q->waits && !some) || send_is_spent())
			break;
	}
}

void send_waiting(uint64_t now_ns)
{
	struct rpwi_list *last = hca_here.waited.prev;
	if (send_is_spent())
		return;
	for (struct rpwi_list *l = hca_here.waited.next, *next; l != &hca_here.waited; l = next) {
		struct dpeer *p = RPWI_CONTAINER_OF(l, struct dpeer, wait_link);
		next = l->next;
		turns(p, now_ns);
		rpwi_list_del(&p->wait_link);
		if (!rpwi_list_empty(&p->blocked))
			rpwi_list_add_tail(&hca_here.waited, &p->wait_link);
		if (l == last || send_is_spent())
			break;
	}
}

/* Those who waited for a window; then everyone who has something to send, once. */
void send_run(uint64_t now_ns)
{
	struct hca *h = &hca_here;
	if (RPWI_UNLIKELY(!rpwi_list_empty(&h->waited)))
		send_waiting(now_ns);
	if (atomic_load_explicit(&h->gathered, memory_order_relaxed))
		send_gathered(now_ns);
	if (rpwi_list_empty(&h->tx_list))
		return;
	/* Those for whom a lane has no room are the first the next time. */
	struct rpwi_list *last = h->tx_list.prev, stuck;
	rpwi_list_init(&stuck);
	while (!rpwi_list_empty(&h->tx_list)) {
		struct rpwi_list *n = h->tx_list.next;
		struct dqp *q = RPWI_CONTAINER_OF(n, struct dqp, tx_link);
		uint32_t nxt = q->t.nxt;
		send_kick(q, true, now_ns);
		if (!rpwi_list_empty(n) && !q->waits && q->t.nxt == nxt && qp_lane(q)) {
			rpwi_list_del(n);
			rpwi_list_add_tail(&stuck, n);
		}
		if (n == last || send_is_spent())
			break;
	}
	h->all_stuck = rpwi_list_empty(&h->tx_list);
	while (!rpwi_list_empty(&stuck)) {
		struct rpwi_list *n = stuck.prev;
		rpwi_list_del(n);
		rpwi_list_add_tail(h->tx_list.next, n);
	}
}
