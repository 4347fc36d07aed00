/* SPDX-License-Identifier: BSD-3-Clause */
/* parameters.c - cases of connection parameters and private data. */
#include "cases.h"

#include <stdlib.h>
#include <string.h>

static void say_conn_param(const struct rdma_conn_param *p, bool qpn_right)
{
	say("responder_resources %u, initiator_depth %u, flow_control %u, retry_count %u, "
	    "rnr_retry_count %u, srq %u, qp_num %s",
		p->responder_resources, p->initiator_depth, p->flow_control, p->retry_count,
		p->rnr_retry_count, p->srq, qpn_right ? "right" : "wrong");
}

static void say_qp_attr(struct ibv_qp *qp)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;

	MUST(ibv_query_qp(qp, &a,
		IBV_QP_STATE | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
			IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER,
		&init));
	say("QP: state %d, max_rd_atomic %u, max_dest_rd_atomic %u, retry_cnt %u, rnr_retry %u",
		a.qp_state, a.max_rd_atomic, a.max_dest_rd_atomic, a.retry_cnt, a.rnr_retry);
}

void parameters_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct rdma_conn_param param = {.responder_resources = 4,
		.initiator_depth = 2,
		.flow_control = 1,
		.rnr_retry_count = 3,
		.private_data = "reply data"};
	struct conn c;
	struct event e;

	param.private_data_len = 11;
	e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);
	say_conn_param(&e.conn, e.conn.qp_num == (uint32_t)hear(s));
	say("private data: %u bytes, '%.11s'", e.pdata_len, (const char *)e.pdata);
	say("on the listener's behalf: %s; port space %d, type %d",
		e.listen_id == listener ? "yes" : "no", e.id->ps, e.id->qp_type);
	conn_open(s, &c, e.id, 4);
	tell(s, (int)e.id->qp->qp_num);
	MUST(rdma_accept(e.id, &param));
	e = expect_event(s, RDMA_CM_EVENT_ESTABLISHED);
	say("private data: %u bytes", e.pdata_len);
	say_qp_attr(c.id->qp);
	see_disconnect(s, &c);
	MUST(rdma_destroy_id(listener));
}

void parameters_client(struct side *s)
{
	struct rdma_conn_param param = {.responder_resources = 5,
		.initiator_depth = 3,
		.flow_control = 1,
		.retry_count = 6,
		.rnr_retry_count = 5,
		.private_data = "ask for it"};
	struct conn c;
	struct event e;

	param.private_data_len = 11;
	conn_open(s, &c, resolved_id(s, hear(s), RDMA_PS_TCP), 4);
	tell(s, (int)c.id->qp->qp_num);
	MUST(rdma_connect(c.id, &param));
	e = expect_event(s, RDMA_CM_EVENT_ESTABLISHED);
	say_conn_param(&e.conn, e.conn.qp_num == (uint32_t)hear(s));
	say("private data: %u bytes, '%.11s'", e.pdata_len, (const char *)e.pdata);
	say_qp_attr(c.id->qp);
	MUST(rdma_disconnect(c.id));
	next_event(s);
	conn_close(&c);
}

void no_parameters_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct event e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct conn c;

	say_conn_param(&e.conn, true);
	conn_open(s, &c, e.id, 5);
	conn_post_receive(&c);
	MUST(rdma_accept(c.id, NULL));
	expect_event(s, RDMA_CM_EVENT_ESTABLISHED);
	exchange(s, &c);
	see_disconnect(s, &c);
	MUST(rdma_destroy_id(listener));
}

void no_parameters_client(struct side *s)
{
	struct conn c;
	struct event e;

	conn_open(s, &c, resolved_id(s, hear(s), RDMA_PS_TCP), 5);
	conn_post_receive(&c);
	MUST(rdma_connect(c.id, NULL));
	e = expect_event(s, RDMA_CM_EVENT_ESTABLISHED);
	say_conn_param(&e.conn, true);
	exchange(s, &c);
	MUST(rdma_disconnect(c.id));
	next_event(s);
	conn_close(&c);
}

enum { REQUEST_DATA_MAX = 56, REPLY_DATA_MAX = 196 };

/* What was sent, then zeros up to the room of the message. */
static bool is_private_data(const struct event *e, unsigned sent, unsigned room, uint64_t seed)
{
	if (e->pdata_len != room || !pattern_holds(e->pdata, sent, seed))
		return false;
	for (unsigned i = sent; i < room; i++)
		if (e->pdata[i])
			return false;
	return true;
}

void request_data_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 64);
	unsigned right = 0;

	s->mute = true;
	for (unsigned n = 0; n <= REQUEST_DATA_MAX; n++) {
		struct event e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);

		if (is_private_data(&e, n, REQUEST_DATA_MAX, n))
			right++;
		else
			say("length %u: wrong, or not %d bytes but %u", n, REQUEST_DATA_MAX,
				e.pdata_len);
		MUST(rdma_reject(e.id, NULL, 0));
		MUST(rdma_destroy_id(e.id));
	}
	say("%u lengths came as they were sent", right);
	wait_for_death(s);
	MUST(rdma_destroy_id(listener));
}

void request_data_client(struct side *s)
{
	uint8_t data[256];
	int port = hear(s);
	struct conn c;

	s->mute = true;
	for (unsigned n = 0; n <= REQUEST_DATA_MAX; n++) {
		struct rdma_conn_param param = {
			.private_data = data, .private_data_len = (uint8_t)n, .retry_count = 7};

		pattern_fill(data, n, n);
		conn_open(s, &c, resolved_id(s, port, RDMA_PS_TCP), n);
		MUST(rdma_connect(c.id, &param));
		expect_event(s, RDMA_CM_EVENT_REJECTED);
		conn_close(&c);
	}
	for (unsigned n = REQUEST_DATA_MAX + 1; n < 256; n += 199 - REQUEST_DATA_MAX - 1) {
		struct rdma_conn_param param = {
			.private_data = data, .private_data_len = (uint8_t)n};

		conn_open(s, &c, resolved_id(s, port, RDMA_PS_TCP), n);
		say("%u bytes:", n);
		say_result("rdma_connect", rdma_connect(c.id, &param));
		conn_close(&c);
	}
}

void reply_data_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 64);
	uint8_t data[256];

	s->mute = true;
	for (unsigned n = 0; n <= REPLY_DATA_MAX + 1; n++) {
		struct rdma_conn_param param = {
			.private_data = data, .private_data_len = (uint8_t)n};
		struct event e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);
		struct conn c;

		pattern_fill(data, n, n);
		conn_open(s, &c, e.id, n);
		if (n > REPLY_DATA_MAX) {
			say("%u bytes:", n);
			say_result("rdma_accept", rdma_accept(e.id, &param));
			conn_close(&c);
			break;
		}
		MUST(rdma_accept(e.id, &param));
		expect_event(s, RDMA_CM_EVENT_ESTABLISHED);
		see_disconnect(s, &c);
	}
	MUST(rdma_destroy_id(listener));
}

void reply_data_client(struct side *s)
{
	int port = hear(s);
	unsigned right = 0;

	s->mute = true;
	for (unsigned n = 0; n <= REPLY_DATA_MAX + 1; n++) {
		struct rdma_conn_param param = {.retry_count = 7};
		struct conn c;
		struct event e;

		conn_open(s, &c, resolved_id(s, port, RDMA_PS_TCP), n);
		MUST(rdma_connect(c.id, &param));
		s->mute = n <= REPLY_DATA_MAX;
		e = next_event(s);
		if (e.type == RDMA_CM_EVENT_ESTABLISHED) {
			if (is_private_data(&e, n, REPLY_DATA_MAX, n))
				right++;
			else
				say("length %u: wrong, or not %d bytes but %u", n, REPLY_DATA_MAX,
					e.pdata_len);
			MUST(rdma_disconnect(c.id));
			expect_event(s, RDMA_CM_EVENT_DISCONNECTED);
		}
		conn_close(&c);
	}
	say("%u lengths came as they were sent", right);
}
