/* SPDX-License-Identifier: BSD-3-Clause */
/* planted_ends.c - mistakes in waiting, and at the end of things: events, destruction, rdma_cm. */
#include "planted.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- another thread acknowledges: soon, which is right, or so late that the call hangs ---- */

struct later {
	bool soon;
	pthread_t thread;
	struct ibv_cq *cq;
	struct rdma_cm_event *event;
	struct pair *pair;
};

static void *acknowledge(void *arg)
{
	const struct later *l = arg;
	wait_ms(l->soon ? 50 : 1000);
	if (l->cq)
		ibv_ack_cq_events(l->cq, 1);
	if (l->event)
		rdma_ack_cm_event(l->event);
	if (l->pair)
		expect(!send_at(&l->pair->a, 1, 0, 64, IBV_SEND_SIGNALED), "a send");
	return NULL;
}

static void later(struct later *l)
{
	expect(!pthread_create(&l->thread, NULL, acknowledge, l), "a thread");
}

/* ---- events of CQs ---- */

static void take_event(struct half *h)
{
	struct ibv_cq *cq;
	void *context;
	expect(!ibv_get_cq_event(h->channel, &cq, &context) && cq == h->cq, "an event");
}

static void send_one(struct pair *p)
{
	expect(!send_at(&p->a, 1, 0, 64, IBV_SEND_SIGNALED), "a send");
}

static void events_unacked(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	struct later l = {.soon = !bad, .cq = p.b.cq};
	expect(!recv_at(&p.b, 1, 0, 64), "a receive");
	expect(!ibv_req_notify_cq(p.b.cq, 0), "to arm");
	send_one(&p);
	take_event(&p.b);
	poll_good(p.b.cq);
	poll_good(p.a.cq);
	later(&l);
	pair_close(&p);
	pthread_join(l.thread, NULL);
}

static void nothing_there(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	expect(!ibv_poll_cq(cq, 1, &wc), "an empty CQ");
}

/* Arms it too late, or in time; then waits. */
static void wait_late(bool bad, bool by_poll)
{
	struct pair p = pair_open(&(struct wish){0});
	expect(!recv_at(&p.b, 1, 0, 64), "a receive");
	if (by_poll)
		expect(!fcntl(p.b.channel->fd, F_SETFL, O_NONBLOCK), "a flag");
	nothing_there(p.b.cq);
	expect(!ibv_req_notify_cq(p.b.cq, 0), "to arm");
	if (!bad)
		nothing_there(p.b.cq);
	send_one(&p);
	struct pollfd fd = {.fd = p.b.channel->fd, .events = POLLIN};
	if (by_poll)
		expect(poll(&fd, 1, 10000) == 1, "a descriptor that is readable");
	take_event(&p.b);
	ibv_ack_cq_events(p.b.cq, 1);
	poll_good(p.b.cq);
	poll_good(p.a.cq);
	pair_close(&p);
}
static void armed_late(bool bad) { wait_late(bad, false); }
static void armed_late_poll(bool bad) { wait_late(bad, true); }

/* Two messages have come when it is armed. bad: one of them is polled before it waits. */
static void in_part(bool bad, bool by_poll)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_wc wc;
	for (unsigned i = 0; i < 3; i++)
		expect(!recv_at(&p.b, i, 4096 + i * 64, 64), "a receive");
	for (unsigned i = 0; i < 2; i++) {
		send_one(&p);
		poll_good(p.a.cq);
	}
	expect(!ibv_req_notify_cq(p.b.cq, 0), "to arm");
	poll_good(p.b.cq);
	if (!bad)
		while (ibv_poll_cq(p.b.cq, 1, &wc) > 0)
			;
	struct pollfd fd = {.fd = p.b.channel->fd, .events = POLLIN};
	struct later l = {.soon = true, .pair = &p};
	if (by_poll) {
		expect(!poll(&fd, 1, bad ? 8000 : 100), "no event");
		send_one(&p);
		expect(poll(&fd, 1, 10000) == 1, "an event");
	} else {
		later(&l);
	}
	take_event(&p.b);
	ibv_ack_cq_events(p.b.cq, 1);
	if (!by_poll)
		pthread_join(l.thread, NULL);
	while (ibv_poll_cq(p.b.cq, 1, &wc) > 0)
		;
	poll_good(p.a.cq);
	pair_close(&p);
}
static void polled_in_part(bool bad) { in_part(bad, false); }
static void polled_in_part_poll(bool bad) { in_part(bad, true); }

static void armed_twice(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	expect(!recv_at(&p.b, 1, 0, 64), "a receive");
	expect(!ibv_req_notify_cq(p.b.cq, 1), "to arm for solicited ones");
	expect(!ibv_req_notify_cq(p.b.cq, 0), "to arm for all");
	if (bad)
		expect(!ibv_req_notify_cq(p.b.cq, 0), "to arm");
	send_one(&p);
	take_event(&p.b);
	ibv_ack_cq_events(p.b.cq, 1);
	expect(!ibv_req_notify_cq(p.b.cq, 0), "to arm");
	poll_good(p.b.cq);
	poll_good(p.a.cq);
	pair_close(&p);
}

/* ---- destruction ---- */

static void destroy_order(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	if (bad)
		expect(ibv_dealloc_pd(p.pd) == EBUSY, "EBUSY");
	pair_close(&p);
}

static void destroy_order_cq(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	if (bad)
		expect(ibv_destroy_cq(p.a.cq) == EBUSY, "EBUSY");
	pair_close(&p);
}

static void destroy_order_channel(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	if (bad)
		expect(ibv_destroy_comp_channel(p.a.channel) == EBUSY, "EBUSY");
	pair_close(&p);
}

static void leak(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	if (!bad)
		pair_close(&p);
}

/* ---- rdma_cm ---- */

enum { FROM_CLIENT, FROM_SERVER };
struct link {
	struct rdma_event_channel *channel[2];
	struct rdma_cm_id *listener, *id[2];
	struct ibv_pd *pd[2];
	struct ibv_cq *cq[2];
	struct ibv_mr *mr[2];
	char buf[2][4096];
};

static struct rdma_cm_event *event(struct link *l, int side, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e;
	expect(!rdma_get_cm_event(l->channel[side], &e), "an event");
	if (e->event != type)
		fprintf(stderr, "got %s, status %d\n", rdma_event_str(e->event), e->status);
	expect(e->event == type, rdma_event_str(type));
	return e;
}

static void pass(struct link *l, int side, enum rdma_cm_event_type type)
{
	expect(!rdma_ack_cm_event(event(l, side, type)), "to acknowledge");
}

static void queue_pair(struct link *l, int side)
{
	struct rdma_cm_id *id = l->id[side];
	l->pd[side] = ibv_alloc_pd(id->verbs);
	l->cq[side] = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	expect(l->pd[side] && l->cq[side], "a PD and a CQ");
	l->mr[side] =
		ibv_reg_mr(l->pd[side], l->buf[side], sizeof(l->buf[side]), IBV_ACCESS_LOCAL_WRITE);
	expect(l->mr[side], "a memory region");
	struct ibv_qp_init_attr init = {.send_cq = l->cq[side],
		.recv_cq = l->cq[side],
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	expect(!rdma_create_qp(id, l->pd[side], &init), "a QP");
}

static void link_connect(struct link *l)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_conn_param how = {.rnr_retry_count = 7, .retry_count = 7};
	struct rdma_cm_event *e;
	for (int side = 0; side < 2; side++)
		expect((l->channel[side] = rdma_create_event_channel()), "an event channel");
	expect(!rdma_create_id(l->channel[FROM_SERVER], &l->listener, NULL, RDMA_PS_TCP), "an id");
	expect(!rdma_bind_addr(l->listener, (struct sockaddr *)&to), "to bind");
	expect(!rdma_listen(l->listener, 1), "to listen");
	to.sin_port = rdma_get_src_port(l->listener);
	expect(!rdma_create_id(l->channel[FROM_CLIENT], &l->id[FROM_CLIENT], NULL, RDMA_PS_TCP),
		"an id");
	struct rdma_cm_id *client = l->id[FROM_CLIENT];
	expect(!rdma_resolve_addr(client, NULL, (struct sockaddr *)&to, 2000), "to resolve");
	pass(l, FROM_CLIENT, RDMA_CM_EVENT_ADDR_RESOLVED);
	expect(!rdma_resolve_route(client, 2000), "to resolve");
	pass(l, FROM_CLIENT, RDMA_CM_EVENT_ROUTE_RESOLVED);
	queue_pair(l, FROM_CLIENT);
	expect(!rdma_connect(client, &how), "to connect");
	e = event(l, FROM_SERVER, RDMA_CM_EVENT_CONNECT_REQUEST);
	l->id[FROM_SERVER] = e->id;
	expect(!rdma_ack_cm_event(e), "to acknowledge");
	queue_pair(l, FROM_SERVER);
	expect(!rdma_accept(l->id[FROM_SERVER], &how), "to accept");
	pass(l, FROM_CLIENT, RDMA_CM_EVENT_ESTABLISHED);
}

static void link_disconnect(struct link *l)
{
	expect(!rdma_disconnect(l->id[FROM_CLIENT]), "to disconnect");
	pass(l, FROM_SERVER, RDMA_CM_EVENT_DISCONNECTED);
	expect(!rdma_disconnect(l->id[FROM_SERVER]), "to disconnect");
	pass(l, FROM_CLIENT, RDMA_CM_EVENT_DISCONNECTED);
}

static void link_close(struct link *l)
{
	for (int side = 0; side < 2; side++) {
		rdma_destroy_qp(l->id[side]);
		expect(!ibv_dereg_mr(l->mr[side]) && !ibv_destroy_cq(l->cq[side]) &&
				!ibv_dealloc_pd(l->pd[side]),
			"all to go");
		expect(!rdma_destroy_id(l->id[side]), "the id to go");
	}
	expect(!rdma_destroy_id(l->listener), "the listener to go");
	rdma_destroy_event_channel(l->channel[0]);
	rdma_destroy_event_channel(l->channel[1]);
}

static void *take_for_another(void *arg)
{
	struct link *l = arg;
	return event(l, FROM_SERVER, RDMA_CM_EVENT_ESTABLISHED);
}

static void cm_unacked(bool bad)
{
	struct link l = {0};
	struct later late = {.soon = !bad};
	pthread_t taker;
	void *e;
	link_connect(&l);
	expect(!pthread_create(&taker, NULL, take_for_another, &l), "a thread");
	expect(!pthread_join(taker, &e), "its end");
	late.event = e;
	link_disconnect(&l);
	later(&late);
	link_close(&l);
	pthread_join(late.thread, NULL);
}

static void cm_destroyed(bool bad)
{
	struct link l = {0};
	struct later late = {0};
	link_connect(&l);
	late.event = event(&l, FROM_SERVER, RDMA_CM_EVENT_ESTABLISHED);
	expect(!rdma_disconnect(l.id[FROM_CLIENT]) && !rdma_disconnect(l.id[FROM_SERVER]),
		"to disconnect");
	if (bad)
		later(&late);
	else
		expect(!rdma_ack_cm_event(late.event), "to acknowledge");
	link_close(&l);
	if (bad)
		pthread_join(late.thread, NULL);
}

static void cm_send(struct link *l, int side)
{
	struct ibv_sge sge = {(uintptr_t)l->buf[side], 64, l->mr[side]->lkey};
	struct ibv_send_wr *no, wr = {.wr_id = 7,
					.sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED};
	expect(!ibv_post_send(l->id[side]->qp, &wr, &no), "a send");
}

static void cm_receive(struct link *l, int side)
{
	struct ibv_sge sge = {(uintptr_t)l->buf[side], 64, l->mr[side]->lkey};
	struct ibv_recv_wr *no, wr = {.wr_id = 8, .sg_list = &sge, .num_sge = 1};
	expect(!ibv_post_recv(l->id[side]->qp, &wr, &no), "a receive");
}

static void cm_undrained(bool bad)
{
	struct link l = {0};
	link_connect(&l);
	pass(&l, FROM_SERVER, RDMA_CM_EVENT_ESTABLISHED);
	if (!bad)
		cm_receive(&l, FROM_SERVER); /* else the send waits for one */
	cm_send(&l, FROM_CLIENT);
	if (!bad) {
		poll_good(l.cq[FROM_CLIENT]);
		poll_good(l.cq[FROM_SERVER]);
	}
	link_disconnect(&l);
	link_close(&l);
}

/* The oldest mistake of the field, for first_cause_test.py: the client waits for an answer, and the
 * server disconnects without one. bad: it does not even look at ESTABLISHED. */
static void first_cause(bool bad)
{
	struct link l = {0};
	struct ibv_wc wc;
	link_connect(&l);
	cm_receive(&l, FROM_CLIENT);
	if (!bad) {
		pass(&l, FROM_SERVER, RDMA_CM_EVENT_ESTABLISHED);
		cm_send(&l, FROM_SERVER);
		poll_good(l.cq[FROM_SERVER]);
		poll_good(l.cq[FROM_CLIENT]);
		link_disconnect(&l);
		link_close(&l);
		return;
	}
	/* it is there, and stays there */
	struct pollfd established = {.fd = l.channel[FROM_SERVER]->fd, .events = POLLIN};
	expect(poll(&established, 1, 10000) == 1, "ESTABLISHED");
	expect(!rdma_disconnect(l.id[FROM_SERVER]), "to disconnect");
	pass(&l, FROM_CLIENT, RDMA_CM_EVENT_DISCONNECTED);
	expect(!rdma_disconnect(l.id[FROM_CLIENT]), "to disconnect");
	expect(poll_one(l.cq[FROM_CLIENT], &wc) == IBV_WC_WR_FLUSH_ERR, "a flush");
	link_close(&l);
}

void planted_first_cause(bool bad) { first_cause(bad); }

const struct planted planted_ends[] = {
	{"events-unacked", NULL, events_unacked},
	{"armed-late", NULL, armed_late},
	{"armed-late", "armed-late-poll", armed_late_poll},
	{"polled-in-part", NULL, polled_in_part},
	{"polled-in-part", "polled-in-part-poll", polled_in_part_poll},
	{"armed-twice", NULL, armed_twice},
	{"destroy-order", NULL, destroy_order},
	{"destroy-order", "destroy-order-cq", destroy_order_cq},
	{"destroy-order", "destroy-order-channel", destroy_order_channel},
	{"leak", NULL, leak},
	{"cm-unacked", NULL, cm_unacked},
	{"cm-destroyed", NULL, cm_destroyed},
	{"cm-undrained", NULL, cm_undrained},
	{0},
};
