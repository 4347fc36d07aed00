/* SPDX-License-Identifier: BSD-3-Clause */
/* acks_on_one_cq.c
 *
 * Public report: openucx/ucx issue #1039 (2016). A program hung while it destroyed its worker. Its
 * loop took events off a completion channel that two CQs share, and acknowledged all of them at
 * the end, on the CQ that the last event named. Days went into the call stack of the hang, which
 * shows only the destruction of the CQ.
 *
 * The bug: ibv_ack_cq_events counts on the wrong CQ. The other CQ has an event that nobody
 * acknowledged, and ibv_destroy_cq waits for it forever. */
#include <poll.h>

#include "plain.h"

enum { BYTES = 64 };

struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
};

static void side_open(struct side *s, struct device *d, struct ibv_comp_channel *channel)
{
	s->cq = cq_make(d, 16, channel);
	s->qp = qp_make(d, IBV_QPT_RC, s->cq, s->cq, 4);
	s->mr = registered(d, (size_t)2 * BYTES);
}

static void arm(struct side *s)
{
	if (ibv_req_notify_cq(s->cq, 0))
		die("ibv_req_notify_cq");
}

static bool event_waits(struct ibv_comp_channel *channel, int wait_ms)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};

	return poll(&p, 1, wait_ms) == 1;
}

/* All events that wait on the channel; the acknowledgment comes once, for speed. */
static unsigned take_events(struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq = NULL;
	void *context;
	unsigned n = 0;

	while (event_waits(channel, n ? 200 : TRANSFER_S * 1000)) {
		if (ibv_get_cq_event(channel, &cq, &context))
			die("ibv_get_cq_event");
		n++;
		if (FIXED)
			ibv_ack_cq_events(cq, 1);
	}
	if (n && !FIXED)
		ibv_ack_cq_events(cq, n);
	return n;
}

static void side_close(struct side *s)
{
	if (ibv_destroy_qp(s->qp) || ibv_destroy_cq(s->cq))
		die("the end");
	unregister(s->mr);
}

int main(void)
{
	struct device d = {0};
	struct side a, b;

	alarm(HANG_S);
	device_open(&d);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(d.context);
	if (!channel)
		die("ibv_create_comp_channel");
	side_open(&a, &d, channel);
	side_open(&b, &d, channel);
	rc_connect_two(&d, a.qp, b.qp);
	post_receive(a.qp, a.mr, BYTES, BYTES);
	post_receive(b.qp, b.mr, BYTES, BYTES);
	arm(&a);
	arm(&b);

	if (post_bytes(a.qp, IBV_WR_SEND, a.mr, 0, BYTES, NULL) ||
		post_bytes(b.qp, IBV_WR_SEND, b.mr, 0, BYTES, NULL))
		die("ibv_post_send");
	printf("%u events\n", take_events(channel));
	for (int i = 0; i < 2; i++) {
		succeeded(a.cq, "a");
		succeeded(b.cq, "b");
	}

	side_close(&a);
	side_close(&b);
	ibv_destroy_comp_channel(channel);
	device_close(&d);
	return 0;
}
