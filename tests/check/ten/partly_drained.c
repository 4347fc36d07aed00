/* SPDX-License-Identifier: BSD-3-Clause */
/* partly_drained.c
 *
 * Public report: linux-rdma/perftest issue #137 and pull request #138 (2022). ib_send_bw with
 * events and several QPs stopped in the middle of a run. For some it blocked their tests for a
 * year; the maintainers could not reproduce it. After each wake-up the program polled as many
 * completions as one QP may have, though the CQ holds those of all QPs.
 *
 * The bug: the program re-arms the CQ, takes some of the completions and sleeps again. Those that
 * were in the CQ when it was armed raise no event, so nothing ever wakes it. */
#include "plain.h"

enum { QPS = 2, DEPTH = 4, BYTES = 64, ALL = QPS * DEPTH };

static void send_all(struct ibv_qp *qps[QPS], struct ibv_cq *cq, struct ibv_mr *mr)
{
	for (int i = 0; i < ALL; i++)
		if (post_bytes(qps[i % QPS], IBV_WR_SEND, mr, 0, BYTES, NULL))
			die("ibv_post_send");
	for (int i = 0; i < ALL; i++)
		succeeded(cq, "a send");
}

static void receive_all(struct ibv_comp_channel *channel, struct ibv_cq *cq)
{
	int got = 0;

	while (got < ALL) {
		struct ibv_wc wc[DEPTH];
		struct ibv_cq *from;
		void *context;
		int n;

		if (ibv_get_cq_event(channel, &from, &context))
			die("ibv_get_cq_event");
		ibv_ack_cq_events(from, 1);
		if (ibv_req_notify_cq(cq, 0))
			die("ibv_req_notify_cq");
		do {
			n = ibv_poll_cq(cq, DEPTH, wc);
			if (n < 0)
				die("ibv_poll_cq");
			for (int i = 0; i < n; i++)
				if (wc[i].status)
					die("a receive");
			got += n;
		} while (FIXED && n > 0);
		printf("%d of %d messages\n", got, ALL);
	}
}

int main(void)
{
	struct device d = {0};
	struct ibv_qp *senders[QPS], *receivers[QPS];

	alarm(HANG_S);
	device_open(&d);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(d.context);
	if (!channel)
		die("ibv_create_comp_channel");
	struct ibv_cq *sent = cq_make(&d, ALL, NULL), *received = cq_make(&d, ALL, channel);
	struct ibv_mr *mr = registered(&d, (size_t)(ALL + 1) * BYTES);
	for (int i = 0; i < QPS; i++) {
		senders[i] = qp_make(&d, IBV_QPT_RC, sent, sent, DEPTH);
		receivers[i] = qp_make(&d, IBV_QPT_RC, received, received, DEPTH);
		rc_connect_two(&d, senders[i], receivers[i]);
		for (int k = 0; k < DEPTH; k++)
			post_receive(receivers[i], mr, (size_t)(1 + i * DEPTH + k) * BYTES, BYTES);
	}
	if (ibv_req_notify_cq(received, 0))
		die("ibv_req_notify_cq");

	/* The machine is busy: all messages are there before the receiver runs. */
	send_all(senders, sent, mr);
	receive_all(channel, received);

	for (int i = 0; i < QPS; i++)
		if (ibv_destroy_qp(senders[i]) || ibv_destroy_qp(receivers[i]))
			die("ibv_destroy_qp");
	if (ibv_destroy_cq(sent) || ibv_destroy_cq(received))
		die("ibv_destroy_cq");
	ibv_destroy_comp_channel(channel);
	unregister(mr);
	device_close(&d);
	return 0;
}
