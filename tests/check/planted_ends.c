/* SPDX-License-Identifier: BSD-3-Clause */
/* planted_ends.c - mistakes in waiting, and at the end of things: events, destruction. */
#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- another thread acknowledges: soon, which is right, or so late that the call hangs ---- */

struct later {
	bool soon;
	pthread_t thread;
	struct ibv_cq *cq;
};

static void *acknowledge(void *arg)
{
	const struct later *l = arg;
	wait_ms(l->soon ? 50 : 1000);
	ibv_ack_cq_events(l->cq, 1);
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

const struct planted planted_ends[] = {
	{"events-unacked", NULL, events_unacked},
	{"armed-late", NULL, armed_late},
	{"armed-late", "armed-late-poll", armed_late_poll},
	{"armed-twice", NULL, armed_twice},
	{"destroy-order", NULL, destroy_order},
	{"destroy-order", "destroy-order-cq", destroy_order_cq},
	{"destroy-order", "destroy-order-channel", destroy_order_channel},
	{"leak", NULL, leak},
	{0},
};
