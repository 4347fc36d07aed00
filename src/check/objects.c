/* SPDX-License-Identifier: BSD-3-Clause */
/* objects.c - see queue.h: the queues, QPs and CQs that are watched, found by address or number,
 * and how they come and go. */
#include "check/owned.h"
#include "check/queue.h"

#include "base/hash.h"
#include "rc/names.h"

#include <stdlib.h>

enum { BUCKETS = 1024 };
static struct {
	struct check_qp *qp[BUCKETS]; /* by number */
	struct check_cq *cq[BUCKETS]; /* by address, and so the others */
	struct check_srq *srq[BUCKETS];
} all;

/* The numbers that have ever been QPs, of the process's first slot: the upper 12 bits. */
enum { SLOT_SHIFT = 12, SLOT_QPNS = 1 << SLOT_SHIFT };
static struct {
	bool any;
	uint32_t slot;
	uint64_t bits[SLOT_QPNS / 64];
} was;

static void qpn_is(uint32_t qpn)
{
	uint32_t i = qpn & (SLOT_QPNS - 1);
	if (!was.any)
		was.slot = qpn >> SLOT_SHIFT;
	was.any = true;
	if (qpn >> SLOT_SHIFT == was.slot)
		was.bits[i / 64] |= 1ull << i % 64;
}

bool check_qpn_was(uint32_t qpn)
{
	uint32_t i = qpn & (SLOT_QPNS - 1);
	return !was.any || qpn >> SLOT_SHIFT != was.slot || was.bits[i / 64] >> i % 64 & 1;
}

static unsigned bucket(const void *object)
{
	return rpwi_mix(0, (uintptr_t)object) >> 32 & (BUCKETS - 1);
}

struct check_qp *check_qpn_find(uint32_t qpn)
{
	struct check_qp *q = all.qp[qpn & (BUCKETS - 1)];
	while (q && q->t->qpn != qpn)
		q = q->next;
	return q;
}

struct check_qp *check_qp_find(const struct ibv_qp *qp)
{
	struct check_qp *q = check_qpn_find(qp->qp_num);
	return q && q->ibv == qp ? q : NULL;
}

struct check_cq *check_cq_find(const struct ibv_cq *cq)
{
	struct check_cq *c = all.cq[bucket(cq)];
	while (c && c->ibv != cq)
		c = c->next;
	return c;
}

struct check_srq *check_srq_find(const struct ibv_srq *srq)
{
	struct check_srq *s = all.srq[bucket(srq)];
	while (s && s->ibv != srq)
		s = s->next;
	return s;
}

void check_qps_each(void (*fn)(struct check_qp *q, void *arg), void *arg)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct check_qp *q = all.qp[i], *next; q; q = next) {
			next = q->next;
			fn(q, arg);
		}
}

void check_cqs_each(void (*fn)(struct check_cq *cq, void *arg), void *arg)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct check_cq *c = all.cq[i]; c; c = c->next)
			fn(c, arg);
}

static void inherit(struct check_qp *q, void *arg) { q->inherited = true; }

void check_objects_inherit(void)
{
	check_qps_each(inherit, NULL);
	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct check_cq *c = all.cq[i]; c; c = c->next)
			c->inherited = true;
		for (struct check_srq *s = all.srq[i]; s; s = s->next)
			s->inherited = true;
	}
}

/* ---- made and gone ---- */

/* Twice what the queue has room for: slots become free in the device before the program polls. */
static int queue_init(struct check_queue *q, uint32_t max)
{
	uint32_t n = 2;
	while (n < 2 * max)
		n *= 2;
	q->ring = calloc(n, sizeof(*q->ring));
	q->mask = n - 1;
	q->max = max;
	if (!q->ring)
		return -ENOMEM;
	check_owned_room(max);
	return 0;
}

void check_queue_fini(struct check_queue *q)
{
	if (q->ring)
		check_owned_room_less(q->max);
	free(q->ring);
}

static void no_room(void)
{
	rpwi_check_unwatched("there was no memory to watch one of the queues");
}

void check_cq_made(const struct ibv_cq *cq, uint32_t cqe)
{
	struct check_cq *c = calloc(1, sizeof(*c));
	if (!rpwi_check_lock()) {
		free(c);
		return;
	}
	if (c) {
		unsigned at = bucket(cq);
		*c = (struct check_cq){
			.next = all.cq[at], .ibv = cq, .cqe = cqe, .made = rpwi_check_site};
		all.cq[at] = c;
	} else {
		no_room();
	}
	rpwi_check_unlock();
}

void check_cq_resized(const struct ibv_cq *cq, uint32_t cqe)
{
	if (!rpwi_check_lock())
		return;
	struct check_cq *c = check_cq_find(cq);
	if (c)
		c->cqe = cqe;
	rpwi_check_unlock();
}

void check_cq_take_out(struct check_cq *c)
{
	struct check_cq **at = &all.cq[bucket(c->ibv)];
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
}

void check_srq_made(const struct ibv_srq *srq, const struct ibv_srq_attr *asked, uint32_t room)
{
	struct check_srq *s = calloc(1, sizeof(*s));
	bool good = s && !queue_init(&s->q, room);
	if (!rpwi_check_lock())
		good = false;
	else {
		if (good) {
			unsigned at = bucket(srq);
			s->next = all.srq[at];
			s->ibv = srq;
			s->sge_max = asked->max_sge;
			s->made = rpwi_check_site;
			s->q.shared = true;
			all.srq[at] = s;
		} else {
			no_room();
		}
		rpwi_check_unlock();
	}
	if (!good && s)
		check_queue_fini(&s->q);
	if (!good)
		free(s);
}

static void forget_srq(struct check_qp *q, void *srq)
{
	if (q->srq == srq)
		q->srq = NULL;
}

void check_srq_gone(const struct ibv_srq *srq)
{
	if (!rpwi_check_lock())
		return;
	struct check_srq **at = &all.srq[bucket(srq)], *s;
	while (*at && (*at)->ibv != srq)
		at = &(*at)->next;
	s = *at;
	if (s) {
		*at = s->next;
		check_qps_each(forget_srq, s);
		for (uint32_t i = 0; i <= s->q.mask; i++)
			check_owned_leave(&s->q.ring[i]);
	}
	rpwi_check_unlock();
	if (s)
		check_queue_fini(&s->q);
	free(s);
}

void check_qp_made(const struct ibv_qp *qp, const struct rpwi_qp *t, const struct ibv_qp_cap *asked,
	const struct ibv_qp_cap *got)
{
	struct check_qp *q = calloc(1, sizeof(*q));
	bool good = q && !queue_init(&q->sq, got->max_send_wr) &&
		    (qp->srq || !queue_init(&q->rq, RPWI_MAX(got->max_recv_wr, 1u)));
	bool mine = rpwi_check_lock();
	if (mine && good) {
		q->ibv = qp;
		q->t = t;
		q->asked = *asked;
		q->made = rpwi_check_site;
		q->sq.is_send = true;
		q->scq = check_cq_find(qp->send_cq);
		q->rcq = check_cq_find(qp->recv_cq);
		q->srq = qp->srq ? check_srq_find(qp->srq) : NULL;
		pthread_mutex_init(&q->posting, NULL);
		qpn_is(t->qpn);
		q->next = all.qp[t->qpn & (BUCKETS - 1)];
		all.qp[t->qpn & (BUCKETS - 1)] = q;
	} else if (mine) {
		no_room();
	}
	if (mine)
		rpwi_check_unlock();
	if ((!mine || !good) && q) {
		check_queue_fini(&q->sq);
		check_queue_fini(&q->rq);
		free(q);
	}
}

void check_qp_take_out(struct check_qp *q)
{
	struct check_qp **at = &all.qp[q->t->qpn & (BUCKETS - 1)];
	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
}

/* ---- findings about them ---- */

const char *check_op_name(const struct check_queue *q, const struct check_wr *w)
{
	if (!q->is_send)
		return "RECV";
	return rpwi_wr_name((enum ibv_wr_opcode)w->opcode);
}

struct rpwi_finding check_finding(
	enum rpwi_check_rule rule, const struct check_qp *q, const struct check_wr *w)
{
	struct rpwi_finding f = {.rule = rule};
	if (q) {
		f.qpn = q->t->qpn;
		f.peer_qpn = q->t->type == IBV_QPT_UD ? 0 : q->t->attr.dest_qp_num;
		f.type = rpwi_type_name(q->t->type);
		f.state = rpwi_state_name(q->t->state);
	}
	if (q && w) {
		bool is_send = w >= q->sq.ring && w <= q->sq.ring + q->sq.mask;
		f.has_wr = true;
		f.wr_id = w->wr_id;
		f.op = check_op_name(is_send ? &q->sq : &q->rq, w);
		f.has_memory = w->nsge;
		f.addr = w->nsge ? w->sge[0].addr : 0;
		f.len = w->len;
		f.key = w->nsge ? w->sge[0].lkey : 0;
		rpwi_finding_site(&f, "posted here", &w->site);
	}
	return f;
}

const struct check_wr *check_oldest(const struct check_queue *q)
{
	return q->ring && q->done != q->tail ? &q->ring[q->done & q->mask] : NULL;
}

struct check_wr *check_with_id(
	const struct check_queue *q, uint32_t from, uint64_t wr_id, enum check_phase phase)
{
	for (uint32_t i = from; i != q->tail; i++) {
		struct check_wr *w = &q->ring[i & q->mask];
		if (w->phase == phase && w->wr_id == wr_id)
			return w;
	}
	return NULL;
}
