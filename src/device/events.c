/* SPDX-License-Identifier: BSD-3-Clause */
/* events.c - async events: queued for a context, taken and acknowledged by the program. */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "device/devices.h"
#include "device/hca.h"

void dev_event(struct dctx *c, const struct ibv_async_event *ev)
{
	struct event_node *n = malloc(sizeof(*n));
	uint64_t one = 1;
	if (!n) {
		rpwi_error("no memory for an async event of type %d: it is lost", ev->event_type);
		return;
	}
	n->ev = *ev;
	rpwi_list_init(&n->link);
	rpwi_lock(RPWI_LOCK_EVENTS);
	rpwi_list_add_tail(&c->events, &n->link);
	/* each one, for who waits for edges (EPOLLET) */
	if (write(c->v.context.async_fd, &one, sizeof(one)) < 0)
		rpwi_error("cannot signal an async event: %s", strerror(errno));
	rpwi_unlock(RPWI_LOCK_EVENTS);
}

static bool event_take(struct dctx *c, struct ibv_async_event *ev)
{
	bool got = false;
	uint64_t n;
	rpwi_lock(RPWI_LOCK_EVENTS);
	if (!rpwi_list_empty(&c->events)) {
		struct event_node *node =
			RPWI_CONTAINER_OF(c->events.next, struct event_node, link);
		rpwi_list_del(&node->link);
		*ev = node->ev;
		free(node);
		got = true;
		if (rpwi_list_empty(&c->events) && read(c->v.context.async_fd, &n, sizeof(n)) < 0)
			rpwi_debug("async descriptor: %s", strerror(errno));
	}
	rpwi_unlock(RPWI_LOCK_EVENTS);
	return got;
}

static bool is_srq_event(enum ibv_event_type t)
{
	return t == IBV_EVENT_SRQ_ERR || t == IBV_EVENT_SRQ_LIMIT_REACHED;
}
static bool is_qp_event(enum ibv_event_type t)
{
	return t == IBV_EVENT_QP_FATAL || t == IBV_EVENT_QP_REQ_ERR ||
	       t == IBV_EVENT_QP_ACCESS_ERR || t == IBV_EVENT_COMM_EST ||
	       t == IBV_EVENT_SQ_DRAINED || t == IBV_EVENT_PATH_MIG ||
	       t == IBV_EVENT_PATH_MIG_ERR || t == IBV_EVENT_QP_LAST_WQE_REACHED;
}

/* An event that nobody will take: of an object that goes away. Those not handed out yet are
 * dropped, as the kernel does. */
static void events_forget(struct dctx *c, const void *object)
{
	uint64_t n;
	rpwi_lock(RPWI_LOCK_EVENTS);
	bool had = !rpwi_list_empty(&c->events);
	for (struct rpwi_list *l = c->events.next, *next; l != &c->events; l = next) {
		struct event_node *node = RPWI_CONTAINER_OF(l, struct event_node, link);
		next = l->next;
		if (!object || node->ev.element.qp == object) {
			rpwi_list_del(l);
			free(node);
		}
	}
	if (had && rpwi_list_empty(&c->events) && read(c->v.context.async_fd, &n, sizeof(n)) < 0)
		rpwi_debug("async descriptor: %s", strerror(errno));
	rpwi_unlock(RPWI_LOCK_EVENTS);
}

void dev_events_forget(struct dctx *c, const void *object) { events_forget(c, object); }

int rpwi_dev_get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev)
{
	struct dctx *c = to_dctx(ctx);
	while (!event_take(c, ev)) {
		if (fcntl(ctx->async_fd, F_GETFL) & O_NONBLOCK)
			return rpwi_minus(EAGAIN);
		struct pollfd p = {.fd = ctx->async_fd, .events = POLLIN};
		if (poll(&p, 1, -1) < 0)
			return -1;
	}
	if (is_qp_event(ev->event_type))
		to_dqp(ev->element.qp)->events_got++;
	else if (is_srq_event(ev->event_type))
		RPWI_CONTAINER_OF(ev->element.srq, struct dsrq, ibv)->events_got++;
	return 0;
}

void rpwi_dev_ack_async_event(struct ibv_async_event *ev)
{
	if (is_qp_event(ev->event_type)) {
		struct ibv_qp *qp = ev->element.qp;
		pthread_mutex_lock(&qp->mutex);
		qp->events_completed++;
		pthread_cond_signal(&qp->cond);
		pthread_mutex_unlock(&qp->mutex);
	} else if (is_srq_event(ev->event_type)) {
		struct ibv_srq *srq = ev->element.srq;
		pthread_mutex_lock(&srq->mutex);
		srq->events_completed++;
		pthread_cond_signal(&srq->cond);
		pthread_mutex_unlock(&srq->mutex);
	}
}
