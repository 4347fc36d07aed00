/* SPDX-License-Identifier: BSD-3-Clause */
/* slots.c - see slots.h. Each completion of a send, as it is made, notes how far the queue is done;
 * the program's poll of it gives that much of the queue back. A request that makes no completion
 * keeps its slot until one behind it is polled. */
#include "device/slots.h"

#include <stdlib.h>

/* The device's own, of all contexts and CQs. */
static struct {
	struct ibv_context_ops ops;
	struct rpwi_qp_ops qp, slots_qp;
	int (*start)(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr);
	int (*next)(struct ibv_cq_ex *cq);
} device;

struct dslots {
	pthread_mutex_t lock;
	uint32_t polled;           /* free-running, as the transport's sq_head: free up to here */
	uint32_t mask, head, tail; /* completions that were not polled yet, */
	uint32_t upto[];           /* and what each gives back */
};

int slots_make(struct dqp *q)
{
	uint32_t n = 1;
	while (n < q->cap.max_send_wr)
		n *= 2;
	q->slots = calloc(1, sizeof(*q->slots) + n * sizeof(*q->slots->upto));
	if (!q->slots)
		return -ENOMEM;
	q->slots->mask = n - 1;
	pthread_mutex_init(&q->slots->lock, NULL);
	return 0;
}

void slots_reset(struct dqp *q)
{
	pthread_mutex_lock(&q->slots->lock);
	q->slots->polled = q->slots->head = q->slots->tail = 0;
	pthread_mutex_unlock(&q->slots->lock);
}

void slots_free(struct dqp *q)
{
	if (q->slots)
		pthread_mutex_destroy(&q->slots->lock);
	free(q->slots);
}

static void completes(struct rpwi_qp *t, bool recv, const struct ibv_wc *wc, bool solicited)
{
	struct dslots *s = dqp_of(t)->slots;
	if (!recv && s) {
		pthread_mutex_lock(&s->lock);
		/* more wait than the queue has room for where posts are flushed as they come */
		if (s->tail - s->head <= s->mask)
			s->upto[s->tail++ & s->mask] = t->sq_head + 1;
		pthread_mutex_unlock(&s->lock);
	}
	device.qp.complete(t, recv, wc, solicited);
}

const struct rpwi_qp_ops *slots_qp_ops(const struct rpwi_qp_ops *of)
{
	device.qp = device.slots_qp = *of;
	device.slots_qp.complete = completes;
	return &device.slots_qp;
}

static uint32_t room(const struct dqp *q)
{
	pthread_mutex_lock(&q->slots->lock);
	uint32_t used = q->t.sq_tail - q->slots->polled;
	pthread_mutex_unlock(&q->slots->lock);
	return used < q->cap.max_send_wr ? q->cap.max_send_wr - used : 0;
}

/* Those that there is room for go; what ibv_wr_complete posts goes whole or not at all. */
static int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct dqp *q = to_dqp(ibv);
	struct ibv_send_wr *last = NULL, *over = wr;
	for (uint32_t n = q->slots && q->t.state == IBV_QPS_RTS ? room(q) : UINT32_MAX; over && n;
		n--, over = over->next)
		last = over;
	if (!over)
		return device.ops.post_send(ibv, wr, bad);
	int rc = ENOMEM;
	*bad = over;
	if (last && q->batch != wr) {
		struct ibv_send_wr *none;
		last->next = NULL;
		rc = device.ops.post_send(ibv, wr, &none);
		last->next = over;
		*bad = rc ? none : over;
		rc = rc ? rc : ENOMEM;
	} else {
		*bad = wr;
	}
	return errno = rc;
}

static void polled(const struct ibv_wc *wc)
{
	hca_lock();
	struct dqp *q = qp_lookup(wc->qp_num);
	struct dslots *s = q ? q->slots : NULL;
	bool send = wc->status == IBV_WC_SUCCESS ? !(wc->opcode & IBV_WC_RECV)
						 : wc->opcode != IBV_WC_RECV;
	if (s && send) {
		pthread_mutex_lock(&s->lock);
		if (s->head != s->tail)
			s->polled = s->upto[s->head++ & s->mask];
		pthread_mutex_unlock(&s->lock);
	}
	hca_unlock();
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = device.ops.poll_cq(cq, n, wc);
	for (int i = 0; i < got; i++)
		polled(&wc[i]);
	return got;
}

void slots_context(struct verbs_context *v)
{
	device.ops = v->context.ops;
	v->context.ops.post_send = post_send;
	v->context.ops.poll_cq = poll_cq;
}

static int polled_ex(struct ibv_cq_ex *ex, int rc)
{
	if (!rc)
		polled(&RPWI_CONTAINER_OF(ex, struct dcq, ex)->cur);
	return rc;
}
static int ex_start(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	return polled_ex(cq, device.start(cq, attr));
}
static int ex_next(struct ibv_cq_ex *cq) { return polled_ex(cq, device.next(cq)); }

void slots_cq_ex(struct ibv_cq_ex *cq)
{
	device.start = cq->start_poll;
	device.next = cq->next_poll;
	cq->start_poll = ex_start;
	cq->next_poll = ex_next;
}
