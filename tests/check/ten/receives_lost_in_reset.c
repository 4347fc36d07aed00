/* SPDX-License-Identifier: BSD-3-Clause */
/* receives_lost_in_reset.c
 *
 * Public report: kvcache-ai/Mooncake pull request #1567 (2026), its second point. After a
 * reconnection, notifications hung. The function that connects takes the QP through RESET, INIT,
 * RTR and RTS each time, but the receives are posted once, when the endpoint is made.
 *
 * The bug: the way through RESET drops every posted receive without a completion. The receive
 * queue is empty afterwards, and with rnr_retry 7 the peer's sends are retried forever: no error,
 * no completion on either side. */
#include "plain.h"

enum { DEPTH = 4, BYTES = 64 };

struct endpoint {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
};

/* At BYTES and on; the send's buffer is before them. */
static void post_receives(struct endpoint *e)
{
	for (int i = 1; i <= DEPTH; i++)
		post_receive(e->qp, e->mr, (size_t)i * BYTES, BYTES);
}

static void endpoint_make(struct endpoint *e, struct device *d)
{
	e->cq = cq_make(d, 16, NULL);
	e->qp = qp_make(d, IBV_QPT_RC, e->cq, e->cq, DEPTH);
	e->mr = registered(d, (size_t)(DEPTH + 1) * BYTES);
	rc_to_init(e->qp);
	post_receives(e);
}

static void connect_both(struct device *d, struct endpoint *a, struct endpoint *b)
{
	const struct where at_a = {.gid = d->gid, .qpn = a->qp->qp_num, .psn = 100};
	const struct where at_b = {.gid = d->gid, .qpn = b->qp->qp_num, .psn = 200};

	rc_to_rts(a->qp, at_a.psn, &at_b);
	rc_to_rts(b->qp, at_b.psn, &at_a);
}

static void endpoint_reset(struct endpoint *e)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};

	if (ibv_modify_qp(e->qp, &a, IBV_QP_STATE))
		die("RESET");
	rc_to_init(e->qp);
	if (FIXED)
		post_receives(e);
}

static void notify(struct endpoint *from, struct endpoint *to, const char *text)
{
	snprintf(from->mr->addr, BYTES, "%s", text);
	if (post_bytes(from->qp, IBV_WR_SEND, from->mr, 0, BYTES, NULL))
		die("ibv_post_send");
	succeeded(to->cq, text);
	succeeded(from->cq, text);
	printf("%s: arrived\n", text);
}

static void endpoint_destroy(struct endpoint *e)
{
	if (ibv_destroy_qp(e->qp) || ibv_destroy_cq(e->cq))
		die("the end");
	unregister(e->mr);
}

int main(void)
{
	struct device d = {0};
	struct endpoint a, b;

	alarm(HANG_S);
	device_open(&d);
	endpoint_make(&a, &d);
	endpoint_make(&b, &d);
	connect_both(&d, &a, &b);
	notify(&a, &b, "the first notification");

	/* The peer went and came back. */
	endpoint_reset(&a);
	endpoint_reset(&b);
	connect_both(&d, &a, &b);
	notify(&a, &b, "the second notification");

	endpoint_destroy(&a);
	endpoint_destroy(&b);
	device_close(&d);
	return 0;
}
