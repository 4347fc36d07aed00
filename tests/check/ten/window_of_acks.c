/* SPDX-License-Identifier: BSD-3-Clause */
/* window_of_acks.c
 *
 * Public report: apache/brpc issue #3132 (2025), which took until #3202 and two months of patches.
 * ibv_post_send failed with ENOMEM under load, though the sliding window was open: "window=3". The
 * window opens when the peer acknowledges messages by a message of its own. The reporter could not
 * reproduce it with a small program.
 *
 * The bug: the peer's message says that the data arrived, but the send queue's entries are free
 * only when the sender has polled a completion of its own sends. Here the sends have a CQ that the
 * program looks at when it has nothing else to do, which makes the order certain. */
#include "plain.h"

enum { WINDOW = 8, BYTES = 64, MESSAGES = 64, RECEIVES = 2 * WINDOW };

struct peer {
	struct ibv_cq *sent, *received;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
};

static void peer_open(struct peer *p, struct device *d)
{
	p->sent = cq_make(d, 2 * MESSAGES, NULL);
	p->received = cq_make(d, 2 * MESSAGES, NULL);
	p->qp = qp_make(d, IBV_QPT_RC, p->sent, p->received, RECEIVES);
	p->mr = registered(d, (size_t)2 * BYTES);
}

static void peer_close(struct peer *p)
{
	if (ibv_destroy_qp(p->qp) || ibv_destroy_cq(p->sent) || ibv_destroy_cq(p->received))
		die("the end");
	unregister(p->mr);
}

/* Takes a window of messages and answers with one. */
static void serve(struct peer *s)
{
	for (int i = 0; i < WINDOW; i++) {
		succeeded(s->received, "the server's receive");
		post_receive(s->qp, s->mr, BYTES, BYTES);
	}
	if (post_bytes(s->qp, IBV_WR_SEND, s->mr, 0, BYTES, NULL))
		die("the acknowledgment");
	succeeded(s->sent, "the acknowledgment");
}

static void sends_done(struct peer *c, int n)
{
	for (int i = 0; i < n; i++)
		succeeded(c->sent, "a send");
}

/* The number of messages until the first failure. */
static int stream(struct peer *c, struct peer *s)
{
	int window = WINDOW;

	for (int n = 0; n < MESSAGES; n++) {
		const int error = post_bytes(c->qp, IBV_WR_SEND, c->mr, 0, BYTES, NULL);
		if (error) {
			printf("ibv_post_send: %s, window=%d\n", strerror(error), window);
			return n;
		}
		if (--window)
			continue;
		serve(s);
		succeeded(c->received, "the window");
		post_receive(c->qp, c->mr, BYTES, BYTES);
		if (FIXED)
			sends_done(c, WINDOW);
		window = WINDOW;
	}
	return MESSAGES;
}

int main(void)
{
	struct device d = {0};
	struct peer client, server;

	alarm(HANG_S);
	device_open(&d);
	peer_open(&client, &d);
	peer_open(&server, &d);
	rc_connect_two(&d, client.qp, server.qp);
	for (int i = 0; i < RECEIVES; i++)
		post_receive(server.qp, server.mr, BYTES, BYTES);
	post_receive(client.qp, client.mr, BYTES, BYTES);

	const int sent = stream(&client, &server);
	printf("%d of %d messages\n", sent, MESSAGES);
	if (!FIXED)
		sends_done(&client, sent);

	peer_close(&client);
	peer_close(&server);
	device_close(&d);
	return sent == MESSAGES ? 0 : 1;
}
