/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.c - a round of progress: arriving packets, sends that they release, timers; and which
 * thread makes it.
 *
 * It is made in three places, always under the HCA's lock:
 * - inline, in ibv_poll_cq, where the program polls (progress_run);
 * - by a program's thread that blocks in ibv_get_cq_event (poll.c);
 * - by the service thread otherwise (service.c): it is what serves a passive RDMA target and a
 *   program that polls memory or its own epoll.
 */
#include "device/cq.h"
#include "device/fault.h"
#include "device/gsi_priv.h"
#include "device/mcast.h"
#include "device/path.h"
#include "device/pollset.h"
#include "device/progress.h"

enum {
	/* after so many empty polls a port is quiet; among several it is polled in one of so many
	 * rounds */
	QUIET_POLLS = 64,
	QUIET_SOCKETS_EVERY = 16,
	/* while packets come by lanes, sockets are looked at in one of so many rounds; those that
	 * are quiet */
	LANE_SOCKETS_EVERY = 16,
	LANE_QUIET_SOCKETS_EVERY = 256,
	/* what others hand over is looked for in one of so many rounds */
	HANDED_EVERY = 64,
	LANE_HANDED_EVERY = 256,
	LANE_ROUNDS = 1024,
	PACE_RETRY_NS = 100000,
	STUCK_RETRY_NS = 10000000,
};

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

struct round {
	bool all_ports, hold_ack, by_lanes;
	struct pollset_ready ready;
	uint64_t now_ns; /* 0: nobody has asked yet */
	unsigned got;
	unsigned open; /* ports */
};

/* Of the sockets whose turn it is. */
static void round_ports(struct round *r)
{
	struct hca *h = &hca_here;
	bool all_looked_at = true, all_sockets = rpwi_lanes_any_new(h->lanes), any = r->got;
	for (unsigned i = 0; i < h->nports; i++) {
		struct dport *p = &h->port[i];
		if (!p->refs)
			continue;
		r->open++;
		unsigned every = look_every(p, r->all_ports, r->by_lanes);
		bool unready = !(r->ready.ports >> i & 1) && rpwi_port_fd(p->io) >= 0;
		bool passed_by = !all_sockets && (unready || (h->rounds.n + i) % every);
		if (passed_by) {
			all_looked_at = false;
			continue;
		}
		rpwi_shield();
		unsigned n = receive_port(p, r->hold_ack, &r->now_ns);
		p->quiet = n ? 0 : p->quiet + 1;
		all_looked_at &= !n;
		r->got += n;
	}
	if (all_looked_at) {
		rpwi_lanes_sockets_empty(h->lanes);
		h->emptied += !any;
	}
}

static void round_timers(uint64_t now_ns)
{
	struct hca *h = &hca_here;
	if (rpwi_heap_deadline(&h->timers) <= now_ns)
		send_timers(now_ns);
	for (unsigned i = 0; i < h->nports; i++)
		if (h->port[i].refs && rpwi_port_deadline(h->port[i].io) <= now_ns) {
			rpwi_shield();
			rpwi_port_timer(h->port[i].io, now_ns);
		}
	if (gsi_defer_deadline() <= now_ns) {
		rpwi_shield();
		gsi_defer_timer(now_ns);
	}
	if (gsi_deadline() <= now_ns) {
		rpwi_shield();
		gsi_timer(now_ns);
	}
	if (RPWI_UNLIKELY(rpwi_plan_on))
		fault_timer(now_ns);
	if (RPWI_UNLIKELY(cq_event_deadline() <= now_ns))
		cq_event_timer(now_ns);
}

bool progress_round(bool all_ports, bool hold_ack, struct pollset_ready ready)
{
	struct hca *h = &hca_here;
	struct round r = {.all_ports = all_ports, .hold_ack = hold_ack, .ready = ready};
	h->rounds.n++;
	if (RPWI_UNLIKELY(h->awaited)) {
		h->round_bytes = 0;
		if (!h->awaited_rounds-- || h->awaited->t.nxt == h->awaited->t.una)
			h->awaited = NULL;
	}
	r.got = receive_lanes(hold_ack, &r.now_ns);
	h->rounds.by_lanes = r.got ? LANE_ROUNDS : h->rounds.by_lanes - !!h->rounds.by_lanes;
	r.by_lanes = !all_ports && h->rounds.by_lanes;
	round_ports(&r);
	if (mcast_due(all_ports)) {
		rpwi_shield();
		r.got += receive_groups(r.hold_ack, &r.now_ns);
	}
	/* What others hand over: now and then, and at once while it keeps coming, for their queue
	 * is short. */
	if ((all_ports && ready.steer) || h->rounds.more_handed ||
		!(h->rounds.n % (r.by_lanes ? LANE_HANDED_EVERY : HANDED_EVERY)) ||
		(h->steer && !r.open)) {
		rpwi_shield();
		unsigned n = receive_handed(&r.now_ns);
		h->rounds.more_handed = n;
		r.got += n;
	}
	/* Timers, and packets left to send: after packets, and now and then. */
	if (r.got || all_ports || !(h->rounds.n % 16) || !rpwi_list_empty(&h->tx_list)) {
		if (!r.now_ns)
			r.now_ns = rpwi_now_ns();
		round_timers(r.now_ns);
		send_run(r.now_ns);
	}
	/* Another thread sleeps, and what it waits for is still to come. */
	if (RPWI_UNLIKELY(atomic_load_explicit(&h->lane_sleepers, memory_order_relaxed)) &&
		!rpwi_lanes_arm(h->lanes))
		rpwi_lanes_wake_self(h->lanes);
	return r.got || send_is_spent();
}

bool progress_run(bool all_ports) { return progress_round(all_ports, true, pollset_all_ready); }

uint64_t progress_deadline(void)
{
	struct hca *h = &hca_here;
	uint64_t at = rpwi_heap_deadline(&h->timers);
	for (unsigned i = 0; i < h->nports; i++)
		if (h->port[i].refs)
			at = RPWI_MIN(at, rpwi_port_deadline(h->port[i].io));
	at = RPWI_MIN(at, RPWI_MIN(gsi_deadline(), gsi_defer_deadline()));
	at = RPWI_MIN(at, cq_event_deadline());
	if (RPWI_UNLIKELY(rpwi_plan_on))
		at = RPWI_MIN(at, fault_deadline());
	if (!rpwi_list_empty(&h->tx_list)) /* paced: try again soon */
		at = RPWI_MIN(at,
			rpwi_now_ns() + (h->all_stuck ? (uint64_t)STUCK_RETRY_NS : PACE_RETRY_NS));
	return at;
}
