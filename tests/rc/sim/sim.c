/* SPDX-License-Identifier: BSD-3-Clause */
/* sim.c - the simulator's settings, event loop and command line. See sim.h.
 *
 *   sim --seed 7                     one run, settings drawn from the seed
 *   sim --seed 1 --seeds 2000        seeds 1..2000; stops at the first that fails and says how to
 *                                    replay it
 *   sim --seed 7 --loss 0.3 --trace  the same run with another loss, each packet on stderr
 */
#include "sim.h"

#include <getopt.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* of virtual time without a completion: the longest chain of time-outs is shorter */
static const uint64_t STUCK_NS = 120 * RPWI_NS_PER_S;
enum { CALLS_AT_ONE_TIME_MAX = 20000 };
static const uint64_t HOLD_ACK_NS = 20000;
/* a host runs for so long at most between stops */
static const uint64_t STOP_MIN_NS = 5 * RPWI_NS_PER_MS, RUN_MAX_NS = 2 * RPWI_NS_PER_MS;

static jmp_buf failed;
static char overrides[512]; /* of the command line, to be printed with a failing seed */
static struct sim_world world;

void sim_fail(struct sim_world *w, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	printf("FAIL seed %llu at %llu ns: ", (unsigned long long)w->cfg.seed,
		(unsigned long long)w->now_ns);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n     replay: sim --seed %llu --messages %llu%s --trace\n",
		(unsigned long long)w->cfg.seed, (unsigned long long)w->cfg.messages, overrides);
	fflush(stdout);
	longjmp(failed, 1);
}

/* An assertion in the transport ends the process: say which seed it was. */
static void on_abort(int signo)
{
	char line[700];
	int n = snprintf(line, sizeof(line),
		"FAIL seed %llu at %llu ns: signal %d\n     replay: sim --seed %llu --messages "
		"%llu%s --trace\n",
		(unsigned long long)world.cfg.seed, (unsigned long long)world.now_ns, signo,
		(unsigned long long)world.cfg.seed, (unsigned long long)world.cfg.messages,
		overrides);
	ssize_t ignored = write(1, line, (size_t)n);
	(void)ignored;
	signal(signo, SIG_DFL);
	raise(signo);
}

/* ---- What a seed stands for ---- */

static double pick_rate(struct rng *r, double max)
{
	return rng_chance(r, 0.25)  ? 0
	       : rng_chance(r, 0.5) ? 0.1
				    : max * (double)rng_below(r, 1000) / 1000;
}

static void config_from_seed(struct sim_config *c, uint64_t seed)
{
	struct rng r = {rng_mix(seed + 0xc0ffee)};
	c->seed = seed;
	c->loss = pick_rate(&r, 0.2);
	c->dup = pick_rate(&r, 0.3);
	c->reorder = pick_rate(&r, 0.3);
	c->corrupt = pick_rate(&r, 0.1) / 4;
	c->late = rng_chance(&r, 0.3) ? 0.002 : 0;
	c->stall = rng_chance(&r, 0.5) ? 0 : (double)rng_below(&r, 900) / 1000;
	c->delay_ns = rng_between(&r, 1, 50) * 1000;
	c->jitter_ns = rng_below(&r, c->delay_ns);
	c->conns = rng_chance(&r, 0.6) ? 1 : (unsigned)rng_between(&r, 2, SIM_CONNS_MAX);
	c->mtu = 256u << rng_below(&r, 5);
	c->size_max = rng_chance(&r, 0.02) ? 1u << 20
					   : RPWI_MIN(1u << rng_between(&r, 6, 16), c->mtu * 64);
	c->sq_depth = (uint32_t)rng_between(&r, 1, c->size_max > 65536 ? 8 : 64);
	c->rq_depth = (uint32_t)rng_between(&r, 1, c->size_max > 65536 ? 8 : 64);
	c->sge_max = (uint32_t)rng_between(&r, 1, SIM_SGE_MAX);
	c->inline_max = rng_chance(&r, 0.5) ? 0 : (uint32_t)rng_between(&r, 1, 256);
	c->cwnd_max =
		(uint32_t)(rng_chance(&r, 0.3) ? rng_between(&r, 1, 8) : rng_between(&r, 8, 300));
	c->rd_atomic = (uint32_t)(rng_chance(&r, 0.1) ? 0 : rng_between(&r, 1, 16));
	c->queue_max = rng_chance(&r, 0.3) ? (uint32_t)rng_between(&r, 8, 100) : 0;
	c->timeout = (uint8_t)rng_between(&r, 7, 12); /* 0.5 to 17 ms */
	c->min_rnr_timer = (uint8_t)rng_between(&r, 1, 14);
	c->srq = rng_chance(&r, 0.25);
	c->one_way = rng_chance(&r, 0.3);
	c->sig_all = rng_chance(&r, 0.3);
	c->type = rng_chance(&r, 0.8) ? IBV_QPT_RC : rng_chance(&r, 0.5) ? IBV_QPT_UC : IBV_QPT_UD;
	c->timers_first = seed % 2;
	c->failure = rng_chance(&r, 0.2) ? (enum sim_failure)rng_between(
						   &r, SIM_NO_FAILURE + 1, SIM_FAILURES - 1)
					 : SIM_NO_FAILURE;
}

/* ---- Set-up ---- */

static void make_recv_region(
	struct sim_world *w, unsigned host, struct sim_region *region, struct sim_recv **recv)
{
	const struct sim_config *c = &w->cfg;
	*region = sim_region_make(w, host, c->rq_depth * sim_slot_size(c), IBV_ACCESS_LOCAL_WRITE);
	*recv = sim_alloc(c->rq_depth * sizeof(**recv));
	for (unsigned i = 0; i < c->rq_depth; i++)
		memset(region->bytes + i * sim_slot_size(c), sim_junk_of(i), sim_slot_size(c));
}

static void make_host(struct sim_world *w, unsigned h, bool v6)
{
	struct sim_host *host = &w->host[h];
	memset(host, 0, sizeof(*host));
	host->addr =
		(struct rpwi_addr){.family = v6 ? 6 : 4, .bytes = {10, 1, 2, (uint8_t)(h + 1)}};
	rpwi_cc_init(&host->cc, RPWI_MIN(w->cfg.cwnd_max, 32), w->cfg.cwnd_max);
	if (w->cfg.srq) {
		make_recv_region(w, h, &host->srq_region, &host->srq_recv);
		if (rpwi_rq_init(&host->srq, w->cfg.rq_depth, w->cfg.sge_max, true))
			sim_fail(w, "rpwi_rq_init");
	}
}

static enum ibv_mtu mtu_enum(const struct sim_config *c)
{
	return (enum ibv_mtu)(IBV_MTU_256 + __builtin_ctz(c->mtu / 256));
}

static void make_end(struct sim_world *w, unsigned i)
{
	const struct sim_config *c = &w->cfg;
	struct sim_end *e = &w->ends[i];
	unsigned h = i % 2;
	e->w = w;
	e->index = i;
	e->host = &w->host[h];
	e->peer = &w->ends[i ^ 1];
	e->ops = sim_alloc(c->sq_depth * sizeof(*e->ops));
	e->region[SIM_LOCAL] =
		sim_region_make(w, h, c->sq_depth * sim_slot_size(c), IBV_ACCESS_LOCAL_WRITE);
	e->region[SIM_REMOTE] = sim_region_make(w, h, 2 * c->size_max + 65536,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC);
	e->shadow = sim_alloc(e->region[SIM_REMOTE].len);
	pattern_fill(e->shadow, e->region[SIM_REMOTE].len, rng_next(&w->rng_setup));
	memcpy(e->region[SIM_REMOTE].bytes, e->shadow, e->region[SIM_REMOTE].len);
	e->rq = c->srq ? &e->host->srq : &e->own_rq;
	e->recv_region = c->srq ? &e->host->srq_region : &e->own_recv_region;
	if (!c->srq) {
		make_recv_region(w, h, &e->own_recv_region, &e->own_recv);
		if (rpwi_rq_init(&e->own_rq, c->rq_depth, c->sge_max, false))
			sim_fail(w, "rpwi_rq_init");
	}
	e->recv = c->srq ? e->host->srq_recv : e->own_recv;
	struct rpwi_qp_init init = {.ops = &sim_ops,
		.user = e,
		.type = c->type,
		.qpn = 0x1000 + 17 * i,
		.sq_sig_all = c->sig_all,
		.rq = e->rq};
	init.cap = (struct ibv_qp_cap){.max_send_wr = c->sq_depth,
		.max_recv_wr = c->rq_depth,
		.max_send_sge = c->sge_max,
		.max_recv_sge = c->sge_max,
		.max_inline_data = c->inline_max};
	if (rpwi_qp_init(&e->qp, &init))
		sim_fail(w, "rpwi_qp_init");
	e->qp.attr.path_mtu = mtu_enum(c);
	e->history = sim_is_rc(w) ? NULL : sim_alloc(c->messages * sizeof(*e->history));
	e->uncertain = sim_alloc(c->sq_depth * sizeof(*e->uncertain));
	e->broken_at_ns = RPWI_NEVER;
}

static uint32_t first_psn(struct sim_world *w)
{
	return (uint32_t)(rng_chance(&w->rng_setup, 0.5)
				  ? rng_below(&w->rng_setup, 1 << 24)
				  : 0x1000000 - rng_between(&w->rng_setup, 1, 200)) &
	       RPWI_PSN_MASK;
}

static void modify(struct sim_end *e, struct ibv_qp_attr *a, int mask, const struct rpwi_av *av)
{
	int rc = rpwi_qp_modify(&e->qp, a, mask, av, e->w->now_ns);
	if (rc)
		sim_fail(e->w, "end %u: modify to state %d is refused with %d", e->index,
			a->qp_state, rc);
}

static void connect_end(struct sim_end *e, uint32_t sq_psn, uint32_t rq_psn)
{
	const struct sim_config *c = &e->w->cfg;
	e->av.flow = (struct rpwi_flow){.src = e->host->addr,
		.dst = e->peer->host->addr,
		.sport = (uint16_t)(0xc000 + e->index),
		.dport = RPWI_UDP_PORT};
	e->av.cc = &e->host->cc;
	bool rc = c->type == IBV_QPT_RC, ud = c->type == IBV_QPT_UD;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = SIM_QKEY,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
				   (rc ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC : 0)};
	modify(e, &a,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			(ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS),
		NULL);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_enum(c),
		.dest_qp_num = e->peer->qp.qpn,
		.rq_psn = rq_psn,
		.max_dest_rd_atomic = (uint8_t)c->rd_atomic,
		.min_rnr_timer = c->min_rnr_timer,
		.ah_attr = {.is_global = 1, .port_num = 1}};
	modify(e, &a,
		IBV_QP_STATE |
			(ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
			(rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0),
		ud ? NULL : &e->av);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		.sq_psn = sq_psn,
		.timeout = c->timeout,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = (uint8_t)c->rd_atomic};
	modify(e, &a,
		IBV_QP_STATE | IBV_QP_SQ_PSN |
			(rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_MAX_QP_RD_ATOMIC
			    : 0),
		NULL);
	if (rng_chance(&e->w->rng_setup, 0.5)) { /* as if it had been written to, all of it */
		const struct sim_region *r = &e->peer->region[SIM_REMOTE];
		e->qp.wrote_rkey = r->rkey;
		e->qp.wrote_va = r->iova;
		e->qp.wrote_end = r->iova + r->len;
	}
}

static void plan_stop(struct sim_world *w, struct sim_host *h)
{
	h->stop_from_ns =
		w->cfg.stop_ns ? w->now_ns + rng_below(&w->rng_stop, RUN_MAX_NS) : RPWI_NEVER;
	h->stop_to_ns = w->cfg.stop_ns ? h->stop_from_ns + rng_between(&w->rng_stop, STOP_MIN_NS,
								   w->cfg.stop_ns)
				       : RPWI_NEVER;
}

/* When this host does what is due at `at_ns`: not while it is stopped. */
static uint64_t runs_at(const struct sim_host *h, uint64_t at_ns)
{
	return at_ns >= h->stop_from_ns && at_ns < h->stop_to_ns ? h->stop_to_ns : at_ns;
}

static void set_up(struct sim_world *w)
{
	const struct sim_config *c = &w->cfg;
	bool v6 = rng_chance(&w->rng_setup, 0.5);
	make_host(w, 0, v6);
	make_host(w, 1, v6);
	w->ends = sim_alloc(2 * c->conns * sizeof(*w->ends));
	w->nends = 2 * c->conns;
	for (unsigned i = 0; i < w->nends; i++)
		make_end(w, i);
	for (unsigned i = 0; i < w->nends; i += 2) {
		uint32_t psn0 = first_psn(w), psn1 = first_psn(w);
		connect_end(&w->ends[i], psn0, psn1);
		connect_end(&w->ends[i + 1], psn1, psn0);
	}
	for (uint64_t m = 0; m < c->messages; m++)
		w->ends[c->one_way ? 2 * rng_below(&w->rng_setup, c->conns)
				   : rng_below(&w->rng_setup, w->nends)]
			.to_post++;
	sim_failure_plan(w);
	plan_stop(w, &w->host[0]);
	plan_stop(w, &w->host[1]);
	for (unsigned i = 0; i < w->nends; i++)
		sim_app_wake(&w->ends[i]);
}

static void tear_down(struct sim_world *w)
{
	while (w->nheap) {
		struct sim_event ev = sim_next_event(w);
		if (ev.packet)
			sim_packet_free(w, ev.packet);
	}
	w->n.stops += w->stops;
	for (unsigned i = 0; i < w->nends; i++) {
		w->n.probes += w->ends[i].qp.stats.probes;
		w->n.retransmits += w->ends[i].qp.stats.retransmits;
		w->n.timeouts += w->ends[i].qp.stats.timeouts;
		w->n.rnr += w->ends[i].qp.stats.rnr_nak_rx;
		w->n.seq_naks += w->ends[i].qp.stats.seq_nak_rx;
		rpwi_qp_fini(&w->ends[i].qp);
		rpwi_rq_fini(&w->ends[i].own_rq);
	}
	rpwi_rq_fini(&w->host[0].srq);
	rpwi_rq_fini(&w->host[1].srq);
	w->nends = 0;
	sim_alloc_reset();
}

/* ---- The loop ---- */

/* Send all that a host's QPs may send. A plain ACK may be held for a while, as the device does. */
static void pump(struct sim_world *w, struct sim_host *h)
{
	/* the window is the host's: each QP comes first in its turn */
	unsigned calls = 0, first = w->turn++;
	for (unsigned k = 0; k < w->nends; k++) {
		unsigned i = (first + k) % w->nends;
		struct sim_end *e = &w->ends[i];
		if (e->host != h)
			continue;
		bool hold = e->held ? w->now_ns < e->hold_until_ns
				    : rpwi_qp_ack_owed(&e->qp) && rng_chance(&w->rng_app, 0.5);
		while (rpwi_qp_tx_ready(&e->qp, hold, w->now_ns)) {
			if (rng_chance(&w->rng_app, 0.8) && sim_link_send_short(e))
				continue;
			rpwi_txb_reset(w->txb);
			if (rng_chance(&w->rng_app, 0.1))
				w->txb->pkt_max = (unsigned)rng_between(&w->rng_app, 1, 4);
			w->txb->by_datagrams = rng_chance(&w->rng_app, 0.7);
			w->txb->may_split = rng_chance(&w->rng_app, 0.5);
			rpwi_qp_tx(&e->qp, w->txb, hold, w->now_ns);
			if (w->txb->npkt)
				sim_link_send(e, w->txb);
			rpwi_qp_tx_done(&e->qp);
			if (++calls > CALLS_AT_ONE_TIME_MAX)
				sim_fail(w,
					"end %u: has something to send, and sends nothing or for "
					"ever",
					i);
		}
		bool owed = rpwi_qp_ack_owed(&e->qp);
		if (owed && !e->held)
			e->hold_until_ns = w->now_ns + HOLD_ACK_NS;
		e->held = owed;
	}
}

static uint64_t end_deadline(const struct sim_end *e)
{
	uint64_t d = rpwi_qp_deadline(&e->qp);
	if (e->held)
		d = RPWI_MIN(d, e->hold_until_ns);
	return d == RPWI_NEVER ? d : runs_at(e->host, RPWI_MAX(d, e->w->now_ns));
}

static void run_timers(struct sim_world *w)
{
	for (unsigned i = 0; i < w->nends; i++) {
		struct sim_end *e = &w->ends[i];
		bool due = end_deadline(e) <= w->now_ns;
		if (due && rpwi_qp_deadline(&e->qp) <= w->now_ns) {
			rpwi_qp_timer(&e->qp, w->now_ns);
			if (w->cfg.trace)
				fprintf(stderr, "%12llu ns  end %u timer; retries left %u\n",
					(unsigned long long)w->now_ns, i, e->qp.retry_left);
		}
		if (due)
			pump(w, e->host);
	}
}

static void handle(struct sim_world *w, struct sim_event *ev)
{
	struct sim_end *e = ev->app;
	if (e) {
		sim_app_step(e);
	} else {
		e = ev->packet->to;
		sim_link_receive(e, ev->packet);
		sim_packet_free(w, ev->packet);
	}
	pump(w, e->host);
}

/* The next thing that happens; false when nothing will ever happen any more. */
static bool step(struct sim_world *w, unsigned *still)
{
	uint64_t deadline = RPWI_NEVER, event = w->nheap ? w->heap[0].at_ns : RPWI_NEVER,
		 before_ns = w->now_ns;
	for (unsigned i = 0; i < w->nends; i++)
		deadline = RPWI_MIN(deadline, end_deadline(&w->ends[i]));
	if (deadline == RPWI_NEVER && event == RPWI_NEVER)
		return false;
	w->now_ns = RPWI_MAX(w->now_ns, RPWI_MIN(deadline, event));
	sim_failure_tick(w);
	for (int h = 0; h < 2; h++)
		if (w->now_ns >= w->host[h].stop_to_ns) {
			w->stops++;
			plan_stop(w, &w->host[h]);
		}
	if (deadline < event || (w->cfg.timers_first && deadline <= w->now_ns)) {
		run_timers(w);
	} else {
		struct sim_event ev = sim_next_event(w);
		struct sim_host *h = (ev.app ? ev.app : ev.packet->to)->host;
		uint64_t at_ns = runs_at(h, w->now_ns);
		if (at_ns > w->now_ns)
			sim_schedule(w, at_ns, ev.packet, ev.app);
		else
			handle(w, &ev);
	}
	*still = w->now_ns > before_ns ? 0 : *still + 1;
	if (*still > CALLS_AT_ONE_TIME_MAX)
		sim_fail(w, "time stands still: a deadline that is never over");
	return true;
}

static bool all_done(const struct sim_world *w)
{
	for (unsigned i = 0; i < w->nends; i++)
		if (!sim_end_done(&w->ends[i]))
			return false;
	return true;
}

static const char *where_it_hangs(const struct sim_world *w)
{
	static char text[1000];
	size_t n = 0;
	for (unsigned i = 0; i < w->nends && n < sizeof(text) - 200; i++) {
		const struct sim_end *e = &w->ends[i];
		n += (size_t)snprintf(text + n, sizeof(text) - n,
			"; end %u: %llu to post, [%llu, %llu) outstanding, una %x nxt %x, %u "
			"receives posted, blocked %d, ready %d",
			i, (unsigned long long)e->to_post, (unsigned long long)e->op_head,
			(unsigned long long)e->op_tail, e->qp.una & RPWI_PSN_MASK,
			e->qp.nxt & RPWI_PSN_MASK, rpwi_rq_count(e->rq), rpwi_qp_blocked(&e->qp),
			rpwi_qp_tx_ready(&e->qp, false, w->now_ns));
	}
	return text;
}

static void run_world(struct sim_world *w)
{
	unsigned still = 0;
	set_up(w);
	while (!all_done(w)) {
		if (!step(w, &still))
			sim_fail(w, "nothing will happen any more%s", where_it_hangs(w));
		if (w->now_ns - w->last_progress_ns > STUCK_NS)
			sim_fail(w, "no completion for %llu s%s",
				(unsigned long long)(STUCK_NS / RPWI_NS_PER_S), where_it_hangs(w));
	}
	while (w->nheap) /* what is still under way are ghosts: none may change anything */
		step(w, &still);
	sim_check_at_end(w);
}

/* 0, or 1 when it failed. */
static int run_seed(const struct sim_config *cfg)
{
	struct sim_world *w = &world;
	struct sim_world fresh = {.cfg = *cfg,
		.heap = w->heap,
		.heap_cap = w->heap_cap,
		.free_packets = w->free_packets,
		.txb = w->txb,
		.n = w->n};
	fresh.rng_setup.state = rng_mix(cfg->seed ^ 0x11);
	fresh.rng_link.state = rng_mix(cfg->seed ^ 0x22);
	fresh.rng_app.state = rng_mix(cfg->seed ^ 0x33);
	fresh.rng_stop.state = rng_mix(cfg->seed ^ 0x44);
	*w = fresh;
	int rc = setjmp(failed);
	if (!rc)
		run_world(w);
	tear_down(w);
	return rc;
}

/* ---- The command line ---- */

static const struct option options[] = {
	{"seed", required_argument, NULL, 's'},
	{"seeds", required_argument, NULL, 'n'},
	{"messages", required_argument, NULL, 'm'},
	{"loss", required_argument, NULL, 'l'},
	{"dup", required_argument, NULL, 'd'},
	{"reorder", required_argument, NULL, 'r'},
	{"corrupt", required_argument, NULL, 'c'},
	{"late", required_argument, NULL, 'L'},
	{"stall", required_argument, NULL, 'S'},
	{"mtu", required_argument, NULL, 'M'},
	{"size-max", required_argument, NULL, 'z'},
	{"conns", required_argument, NULL, 'C'},
	{"type", required_argument, NULL, 'T'},
	{"failure", required_argument, NULL, 'F'},
	{"timeout", required_argument, NULL, 'O'},
	{"stop", required_argument, NULL, 'P'},
	{"queue-max", required_argument, NULL, 'Q'},
	{"keep-going", no_argument, NULL, 'k'},
	{"trace", no_argument, NULL, 't'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const char usage[] =
	"usage: sim [--seed N] [--seeds COUNT] [--messages M] [--keep-going] [--trace]\n"
	"           [--loss P] [--dup P] [--reorder P] [--corrupt P] [--late P] [--stall P] [--mtu "
	"BYTES] [--size-max BYTES] [--conns N]\n"
	"           [--timeout CODE] [--stop MS] [--queue-max PACKETS] [--type rc|uc|ud] "
	"[--failure none|rkey|bounds|misaligned|lkey|long|death]\n"
	"What is not given is drawn from the seed. Exits with 1 when a seed fails.\n";

static double rate(const char *text)
{
	char *end;
	double v = strtod(text, &end);
	if (end == text || *end || !(v >= 0 && v <= 0.9)) {
		fprintf(stderr, "sim: \"%s\" is not a rate from 0 to 0.9\n", text);
		exit(2);
	}
	return v;
}

static uint64_t number(const char *text, uint64_t min, uint64_t max)
{
	char *end;
	uint64_t v = strtoull(text, &end, 0);
	if (end == text || *end || v < min || v > max) {
		fprintf(stderr, "sim: \"%s\" is not a number from %llu to %llu\n", text,
			(unsigned long long)min, (unsigned long long)max);
		exit(2);
	}
	return v;
}

static const char *const type_names[] = {"rc", "uc", "ud"};
static const int type_values[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
static const char *const failure_names[SIM_FAILURES] = {
	[SIM_NO_FAILURE] = "none",
	[SIM_BAD_RKEY] = "rkey",
	[SIM_OUT_OF_BOUNDS] = "bounds",
	[SIM_MISALIGNED] = "misaligned",
	[SIM_BAD_LKEY] = "lkey",
	[SIM_TOO_LONG] = "long",
	[SIM_DEATH] = "death",
};

static int word(const char *text, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(text, names[i]))
			return (int)i;
	fprintf(stderr, "sim: \"%s\" is not known\n%s", text, usage);
	exit(2);
}

struct given {
	uint64_t seed, seeds, messages;
	double loss, dup, reorder, corrupt, late, stall;
	uint64_t mtu, size_max, conns, timeout, stop_ms;
	int queue_max;
	int type, failure;
	bool keep_going, trace;
};

static void apply(struct sim_config *c, const struct given *g)
{
	c->messages = g->messages;
	c->trace = g->trace;
	c->loss = g->loss >= 0 ? g->loss : c->loss;
	c->dup = g->dup >= 0 ? g->dup : c->dup;
	c->reorder = g->reorder >= 0 ? g->reorder : c->reorder;
	c->corrupt = g->corrupt >= 0 ? g->corrupt : c->corrupt;
	c->late = g->late >= 0 ? g->late : c->late;
	c->stall = g->stall >= 0 ? g->stall : c->stall;
	c->mtu = g->mtu ? (uint32_t)g->mtu : c->mtu;
	c->size_max = g->size_max ? (uint32_t)g->size_max : c->size_max;
	c->conns = g->conns ? (unsigned)g->conns : c->conns;
	c->timeout = g->timeout ? (uint8_t)g->timeout : c->timeout;
	c->stop_ns = g->stop_ms * RPWI_NS_PER_MS;
	c->queue_max = g->queue_max >= 0 ? (uint32_t)g->queue_max : c->queue_max;
	c->type = g->type >= 0 ? (enum ibv_qp_type)g->type : c->type;
	c->failure = g->failure >= 0 ? (enum sim_failure)g->failure : c->failure;
}

static void remember_override(const char *name, const char *value)
{
	size_t n = strlen(overrides);
	snprintf(overrides + n, sizeof(overrides) - n, " --%s %s", name, value);
}

static struct given parse(int argc, char **argv)
{
	struct given g = {.seed = 1,
		.seeds = 1,
		.messages = 500,
		.loss = -1,
		.dup = -1,
		.reorder = -1,
		.corrupt = -1,
		.late = -1,
		.stall = -1,
		.queue_max = -1,
		.type = -1,
		.failure = -1};
	int o, i = -1;
	while ((o = getopt_long(argc, argv, "", options, &i)) != -1) {
		switch (o) {
		case 's':
			g.seed = number(optarg, 0, UINT64_MAX);
			continue;
		case 'n':
			g.seeds = number(optarg, 1, UINT64_MAX);
			continue;
		case 'm':
			g.messages = number(optarg, 1, UINT32_MAX);
			continue;
		case 'l':
			g.loss = rate(optarg);
			break;
		case 'd':
			g.dup = rate(optarg);
			break;
		case 'r':
			g.reorder = rate(optarg);
			break;
		case 'c':
			g.corrupt = rate(optarg);
			break;
		case 'L':
			g.late = rate(optarg);
			break;
		case 'S':
			g.stall = rate(optarg);
			break;
		case 'M':
			g.mtu = 1ull << (63 - __builtin_clzll(number(optarg, 256, 4096)));
			break;
		case 'z':
			g.size_max = number(optarg, 1, 1 << 20);
			break;
		case 'C':
			g.conns = number(optarg, 1, SIM_CONNS_MAX);
			break;
		case 'O':
			g.timeout = number(optarg, 1, 31);
			break;
		case 'P':
			g.stop_ms = number(optarg, 5, 100000);
			break;
		case 'Q':
			g.queue_max = (int)number(optarg, 0, 1 << 20);
			break;
		case 'T':
			g.type = type_values[word(optarg, type_names, RPWI_ARRAY_LEN(type_names))];
			break;
		case 'F':
			g.failure = word(optarg, failure_names, SIM_FAILURES);
			break;
		case 'k':
			g.keep_going = true;
			continue;
		case 't':
			g.trace = true;
			continue;
		default:
			fputs(usage, o == 'h' ? stdout : stderr);
			exit(o == 'h' ? 0 : 2);
		}
		remember_override(options[i].name, optarg);
	}
	return g;
}

int main(int argc, char **argv)
{
	struct given g = parse(argc, argv);
	uint64_t failures = 0, last = g.seed;
	mallopt(M_TRIM_THRESHOLD, INT32_MAX);
	mallopt(M_MMAP_THRESHOLD, 1 << 28);
	signal(SIGABRT, on_abort);
	signal(SIGALRM, on_abort);
	world.txb = calloc(1, sizeof(*world.txb));
	world.txb->scratch = malloc(RPWI_TXB_SCRATCH);
	for (uint64_t i = 0; i < g.seeds && (!failures || g.keep_going); i++) {
		struct sim_config c = {0};
		last = g.seed + i;
		config_from_seed(&c, last);
		apply(&c, &g);
		failures += (uint64_t)run_seed(&c);
	}
	const struct sim_counts *n = &world.n;
	printf("seeds %llu..%llu: %llu messages, %.1f MB, %llu packets (%llu lost, %llu "
	       "duplicated, %llu reordered, %llu corrupted, %llu late, %llu "
	       "overflowed), "
	       "%llu without a batch, %llu sent again, %llu probes, %llu stops, %llu time-outs, "
	       "%llu RNR, %llu gaps; "
	       "%llu requests failed as meant, %llu flushed, %llu datagrams "
	       "lost; %llu seeds failed\n",
		(unsigned long long)g.seed, (unsigned long long)last,
		(unsigned long long)n->messages, (double)n->bytes / 1e6,
		(unsigned long long)n->packets, (unsigned long long)n->lost,
		(unsigned long long)n->duplicated, (unsigned long long)n->reordered,
		(unsigned long long)n->corrupted, (unsigned long long)n->late,
		(unsigned long long)n->overflowed, (unsigned long long)n->shorts,
		(unsigned long long)n->retransmits, (unsigned long long)n->probes,
		(unsigned long long)n->stops, (unsigned long long)n->timeouts,
		(unsigned long long)n->rnr, (unsigned long long)n->seq_naks,
		(unsigned long long)n->failures, (unsigned long long)n->flushed,
		(unsigned long long)n->undelivered, (unsigned long long)failures);
	return failures ? 1 : 0;
}
