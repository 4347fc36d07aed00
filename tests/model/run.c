/* SPDX-License-Identifier: BSD-3-Clause */
/* run.c - a process of the model: round by round it makes what is to be made anew, posts and polls
 * in an order of chance, and compares. */
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "side.h"

void fail(struct side *m, const char *form, ...)
{
	char text[900];
	uint32_t first = 0;
	va_list args;
	va_start(args, form);
	vsnprintf(text, sizeof(text), form, args);
	va_end(args);
	if (atomic_compare_exchange_strong(&m->sh->failed, &first, 1)) {
		snprintf(m->sh->why, sizeof(m->sh->why), "process %u, round %u: %s", m->me,
			m->round, text);
		atomic_store(&m->sh->failed, 2);
	}
	if (getenv("MODEL_STAY"))
		for (;;)
			pause();
	_Exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* All processes come to the same place. */
void meet(struct side *m, bool poll)
{
	uint32_t want = ++m->meetings;
	atomic_store(&m->sh->arrived[m->me], want);
	for (unsigned tries = 0;; tries++) {
		unsigned there = 0;
		for (unsigned i = 0; i < m->s->procs; i++)
			there += atomic_load(&m->sh->arrived[i]) >= want;
		if (there == m->s->procs)
			return;
		if (atomic_load(&m->sh->failed))
			_Exit(1);
		for (unsigned i = 0; poll && i < m->s->cqs; i++)
			poll_some(m, i, 16);
		if (tries < 100)
			sched_yield();
		else
			usleep(50);
	}
}

/* What both sides of a connection know alike. */
static uint64_t target_seed(const struct side *m, unsigned conn, unsigned dir)
{
	return rng_mix(m->s->seed + 77) ^ ((uint64_t)m->round << 8 | conn << 1 | dir);
}

static void blank(struct end *e, enum mr which, size_t n) { memset(e->mem[which], BLANK, n); }

static void prepare(struct side *m, struct end *e, struct span ops, bool fresh)
{
	static const size_t len[MR_KINDS] = {TX_LEN, SINK_LEN, TGT_LEN, RX_LEN};
	size_t sink_was = e->out.sink_used + 64, rx_was = e->in.rx_used + 64;
	e->fate = plan_fate(m->s, ops, m->round, e->number);
	e->fresh = fresh;
	e->acted = e->armed = false;
	e->until_ns = 0;
	if (fresh) {
		end_drop(m, e);
		for (unsigned i = 0; i < MR_KINDS; i++)
			blank(e, i, len[i] + 64);
		end_make_qp(m, e);
	} else {
		blank(e, MR_SINK, sink_was < SINK_LEN ? sink_was : SINK_LEN);
		blank(e, MR_RX, rx_was < RX_LEN ? rx_was : RX_LEN);
	}
	plan_stream(&e->out, m->s, ops, e->number, e->side);
	plan_stream(&e->in, m->s, ops, e->number, !e->side);
	if (e->out.bad == e->out.n && e->in.bad == e->in.n && e->fate.bad_dir >= 0) {
		e->fate.bad_dir = -1; /* there was no room for it */
		e->fate.dies = e->fate.killed >= 0 && (e->conn->proc[0] == e->fate.killed ||
							      e->conn->proc[1] == e->fate.killed);
	}
	memset(e->im_out.sink, BLANK, sink_was < SINK_LEN ? sink_was : SINK_LEN);
	memset(e->im_in.sink, BLANK,
		SINK_LEN < e->in.sink_used + 64 ? SINK_LEN : e->in.sink_used + 64);
	image_round(&e->im_out, &e->out);
	image_round(&e->im_in, &e->in);
	if (fresh) {
		image_target(&e->im_out, target_seed(m, e->number, e->side));
		image_target(&e->im_in, target_seed(m, e->number, !e->side));
		memcpy(e->mem[MR_TGT], e->im_in.tgt, TGT_LEN);
	}
	memcpy(e->mem[MR_TX], e->im_out.tx, e->out.tx_len);
	for (unsigned i = 0; i < e->out.n; i++) /* up to what fails */
		if (i < e->out.bad)
			image_apply(&e->im_out, &e->out, &e->out.step[i]);
	atomic_store(&e->state, ALIVE);
	e->posted = e->sdone = e->rposted = e->rdone = e->rflushed = 0;
	e->failed = e->rfailed = e->srq_slot_flushed = false;
	e->next_msg = 0;
	e->last_slot = UINT32_MAX;
	memset(e->got, 0, sizeof(e->got));
	atomic_store(&e->pub->posted, 0);
	atomic_store(&e->pub->good, 0);
	atomic_store(&e->pub->gone, 0);
	e->pub->finished = e->pub->received = e->pub->flushed = 0;
	atomic_store(&e->pub->again, 0);
}

/* No completion is taken from any CQ meanwhile. */
static void cqs_lock(struct side *m)
{
	for (unsigned i = 0; i < m->s->cqs; i++)
		pthread_mutex_lock(&m->cq_lock[i]);
}

static void cqs_unlock(struct side *m)
{
	for (unsigned i = 0; i < m->s->cqs; i++)
		pthread_mutex_unlock(&m->cq_lock[i]);
}

/* Destroyed, reset or to ERR: `n` of them, one behind the other. */
static void end_them(struct side *m, struct end **ends, unsigned n, enum event how)
{
	int rc = 0;
	if (how != EV_ERR)
		cqs_lock(m);
	for (unsigned i = 0; i < n && !rc; i++) {
		struct end *e = ends[i];
		uint8_t was = ALIVE;
		e->acted = true;
		if (how == EV_ERR)
			atomic_compare_exchange_strong(&e->state, &was, ERRED);
		rc = how == EV_DESTROY
			     ? ibv_destroy_qp(e->qp)
			     : end_to_state(e, how == EV_ERR ? IBV_QPS_ERR : IBV_QPS_RESET);
		if (rc)
			fail(m, "connection %u: %s: %s", e->number, event_names[how], strerror(rc));
		if (how == EV_DESTROY)
			e->qp = NULL, e->qpx = NULL;
	}
	for (unsigned i = 0; i < n; i++) {
		if (how != EV_ERR) {
			verify_dead(m, ends[i]);
			atomic_store(&ends[i]->state, DEAD);
		}
		atomic_store(&ends[i]->pub->gone, 1);
		atomic_store(&ends[i]->peer->gone, 1);
	}
	if (how != EV_ERR)
		cqs_unlock(m);
}

/* What goes together with e: other ends of the same thread, which has them to itself. */
static unsigned companions(struct side *m, struct end *e, struct end **out)
{
	unsigned n = 0;
	out[n++] = e;
	for (unsigned i = 0; i < m->nends && e->fate.h && e->fate.h->together; i++) {
		struct end *k = m->end[i];
		if (k != e && k->thread == e->thread && !k->acted && k->state != DEAD &&
			k->fate.h && k->fate.h->together && k->fate.h->side == k->side &&
			k->fate.h->event == e->fate.h->event)
			out[n++] = k;
	}
	return n;
}

/* Nothing more will happen to it by itself. */
static bool idles(const struct end *e)
{
	return e->posted == e->out.n && e->sdone == e->out.n &&
	       (e->conn->type != IBV_QPT_RC || e->rdone == e->in.msgs);
}

static void events(struct side *m, struct end *e, struct rng *r)
{
	const struct happening *h = e->fate.h;
	struct end *all[2 * CONNS_MAX];
	uint32_t progress = e->posted + e->sdone + e->rdone;
	if (e->state == DEAD || e->acted)
		return;
	if (h && h->side == e->side && h->event != EV_KILL) {
		if (progress >= h->at || idles(e) || atomic_load(&e->pub->gone))
			end_them(m, all, companions(m, e, all), h->event);
		return;
	}
	if (!atomic_load(&e->pub->gone) || e->state == ERRED)
		return;
	if (!e->until_ns) /* its traffic goes on for a while, towards nobody */
		e->until_ns = now_ns() + (rng_one_in(r, 2) ? 0 : rng_below(r, 4000000));
	if (now_ns() < e->until_ns)
		return;
	if (h && h->waits && e->conn->type == IBV_QPT_RC && e->sdone != e->posted)
		return; /* for an error of its own */
	end_them(m, &e, 1, (enum event)(EV_DESTROY + rng_below(r, 3)));
}

/* The driver stops and kills from outside, at any moment. */
static void arm(struct side *m, struct end *e)
{
	uint32_t progress = e->posted + e->sdone + e->rdone;
	for (unsigned i = 0; i < m->s->nhappenings && !e->armed; i++) {
		const struct happening *h = &m->s->happening[i];
		if (h->round != m->round || h->conn != e->number || h->side != e->side ||
			(h->event != EV_STOP && h->event != EV_KILL))
			continue;
		if (progress < h->at && !idles(e))
			continue;
		e->armed = true;
		if (h->event == EV_STOP)
			atomic_fetch_add(&m->sh->armed_stop[m->me], 1);
		else
			atomic_store(&m->sh->armed_kill[m->me], 1);
	}
}

static bool all_finished(const struct side *m)
{
	bool all = true;
	for (unsigned i = 0; i < m->nends; i++) {
		bool now = end_finished(m->end[i]);
		if (now)
			atomic_store_explicit(&m->end[i]->pub->finished, 1, memory_order_relaxed);
		all &= now;
	}
	return all;
}

struct worker {
	struct side *m;
	unsigned number;
	pthread_t id;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct side *m = w->m;
	struct rng r = {rng_mix(m->sh->salt + (m->round * 64u + m->me * 8u + w->number))};
	struct end *own[2 * CONNS_MAX];
	unsigned n = 0, idle = 0;
	for (unsigned i = 0; i < m->nends; i++)
		if (m->end[i]->thread == w->number)
			own[n++] = m->end[i];
	for (unsigned turn = 1; !all_finished(m); turn++) {
		uint32_t before = 0, after = 0;
		if (n) {
			struct end *e = own[rng_below(&r, n)];
			before = e->posted + e->rposted;
			if (e->state != DEAD && e->rposted < e->in.msgs && !e->in.shared &&
				(!e->conn->late || rng_below(&r, 16) < e->conn->late))
				post_receives(
					m, e, e->conn->late ? 1 + rng_below(&r, 8) : BATCH_MAX);
			if (e->state != DEAD && e->posted < e->out.n && !rng_one_in(&r, 4))
				post_sends(m, e,
					1 + (rng_one_in(&r, 2) ? 0 : rng_below(&r, BATCH_MAX)), &r);
			if (e->fate.dies)
				events(m, e, &r);
			if (m->s->nhappenings)
				arm(m, e);
			after = e->posted + e->rposted;
		}
		if (!w->number && m->srq_posted != m->srq_target && rng_one_in(&r, 2))
			post_srq(m, 1 + rng_below(&r, BATCH_MAX));
		unsigned got = 0;
		if (rng_below(&r, 8))
			got = poll_some(m, rng_below(&r, m->s->cqs), 1u << rng_below(&r, 6));
		idle = got || before != after ? 0 : idle + 1;
		if (idle > 20 && idle % 4 == 0)
			sched_yield();
		if (turn % 64 == 0) {
			if (atomic_load(&m->sh->failed))
				_Exit(1);
			atomic_fetch_add(&m->sh->progress[m->me], idle < 64);
		}
	}
	return NULL;
}

static void run_threads(struct side *m)
{
	struct worker w[THREADS_MAX];
	for (unsigned i = 1; i < m->s->threads; i++) {
		w[i] = (struct worker){.m = m, .number = i};
		if (pthread_create(&w[i].id, NULL, work, &w[i]))
			fail(m, "no thread");
	}
	w[0] = (struct worker){.m = m};
	work(&w[0]);
	for (unsigned i = 1; i < m->s->threads; i++)
		pthread_join(w[i].id, NULL);
}

static bool unreliable(const struct script *s)
{
	for (unsigned i = 0; i < s->conns; i++)
		if (s->conn[i].type != IBV_QPT_RC)
			return true;
	return false;
}

/* Messages of UC and UD that are still to come, or never will. */
static void settle(struct side *m)
{
	uint64_t quiet = (m->sh->lossy ? 60u : 30u) * 1000000ull, last = now_ns();
	for (;;) {
		unsigned missing = 0, got = 0;
		for (unsigned i = 0; i < m->nends; i++) {
			struct end *e = m->end[i];
			missing += e->conn->type != IBV_QPT_RC && e->state == ALIVE &&
				   e->rdone < e->in.msgs;
		}
		for (unsigned i = 0; i < m->s->cqs; i++)
			got += poll_some(m, i, 32);
		if (got)
			last = now_ns();
		if (!missing || now_ns() - last > quiet)
			break;
	}
	for (unsigned i = 0; i < m->nends; i++) {
		struct end *e = m->end[i];
		bool lost = e->rdone < e->in.msgs;
		/* the second of a pair of packets may be held back until the next round */
		if (e->conn->type == IBV_QPT_RC || e->state != ALIVE || (!lost && !m->sh->doubles))
			continue;
		if (lost)
			m->tally->choice[e->conn->type == IBV_QPT_UC ? CH_UC_LOST : CH_UD_LOST] +=
				e->in.msgs - e->rdone;
		atomic_store(&e->state, ERRED);
		atomic_store(&e->pub->again, 1);
		if (end_to_state(e, IBV_QPS_ERR))
			fail(m, "connection %u to ERR", e->number);
		last = now_ns();
		while (!e->in.shared && e->rdone + e->rflushed < e->rposted) {
			poll_some(m, e->rcq, 32);
			if (now_ns() - last > 10000000000ull)
				fail(m, "connection %u: %u of %u receives were not flushed",
					e->number, e->rposted - e->rdone - e->rflushed, e->rposted);
		}
	}
}

/* A meeting orders what other processes do to this memory with what this thread does: through
 * memory that they share, which TSan does not see. It sees the device's lock. */
static void order(struct side *m)
{
	static uint8_t page[4096];
	struct ibv_mr *mr = ibv_reg_mr(m->pd, page, sizeof(page), 0);
	if (!mr || ibv_dereg_mr(mr))
		fail(m, "ibv_reg_mr of a page: %s", strerror(errno));
}

static void one_round(struct side *m)
{
	struct span ops = plan_round(m->s, m->round);
	uint32_t srq = 0;
	bool fresh[2 * CONNS_MAX];
	for (unsigned i = 0; i < m->nends; i++) {
		struct end *e = m->end[i];
		fresh[i] = !m->round || e->fate.dies || atomic_load(&e->pub->again) ||
			   atomic_load(&e->peer->again) || m->again;
	}
	meet(m, false); /* all have looked */
	for (unsigned i = 0; i < m->nends; i++) {
		prepare(m, m->end[i], ops, fresh[i]);
		if (m->end[i]->in.shared)
			srq += m->end[i]->in.msgs;
	}
	m->again = false;
	order(m);
	meet(m, false);
	for (unsigned i = 0; i < m->nends; i++) {
		struct end *e = m->end[i];
		if (e->fresh)
			end_connect(m, e);
		end_windows(m, e, &m->rng);
		while (!e->conn->late && !e->in.shared && e->rposted < e->in.msgs)
			post_receives(m, e, BATCH_MAX);
	}
	uint32_t target = m->srq_done + m->srq_lost + srq + SRQ_EXTRA;
	m->srq_target = target > m->srq_posted ? target : m->srq_posted; /* some were left over */
	if (rng_one_in(&m->rng, 2))
		while (m->srq_posted != m->srq_target)
			post_srq(m, BATCH_MAX);
	atomic_store(&m->sh->round[m->me], m->round);
	meet(m, false);
	run_threads(m);
}

static void finish_round(struct side *m)
{
	meet(m, rng_one_in(&m->rng, 2));
	settle(m);
	if (unreliable(m->s))
		meet(m, true);
	for (unsigned i = 0; i < m->s->cqs; i++)
		while (poll_some(m, i, 32))
			;
	order(m);
	verify_round(m);
}

int side_run(struct shared *sh, unsigned me, bool again)
{
	static struct side side;
	struct side *m = &side;
	*m = (struct side){.sh = sh, .s = &sh->script, .me = me, .again = again};
	m->tally = &sh->tally[me];
	m->rng = (struct rng){rng_mix(sh->salt + me)};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	side_open(m);
	for (unsigned c = 0; c < m->s->conns; c++)
		for (unsigned k = 0; k < 2; k++) {
			if (m->s->conn[c].proc[k] != me)
				continue;
			struct end *e = calloc(1, sizeof(*e));
			if (!e)
				abort();
			e->conn = &m->s->conn[c];
			e->number = c;
			e->side = k;
			e->thread = c % m->s->threads;
			e->pub = &sh->pub[c][k];
			e->peer = &sh->pub[c][!k];
			end_objects(m, e);
			m->end[m->nends++] = e;
		}
	unsigned each = unreliable(m->s) ? 5 : 4;
	if (again) { /* in the middle of a round that ends for all of its connections */
		m->round = atomic_load(&sh->round[me]);
		m->meetings = m->round * each + 3;
		meet(m, false);
		if (unreliable(m->s))
			meet(m, false);
		m->round++;
	}
	for (; m->round < m->s->rounds; m->round++) {
		one_round(m);
		finish_round(m);
	}
	meet(m, false); /* nobody goes while another may still compare */
	for (unsigned i = 0; i < m->nends; i++)
		end_drop(m, m->end[i]);
	return 0;
}
