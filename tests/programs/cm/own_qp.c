/* SPDX-License-Identifier: BSD-3-Clause */
/* own_qp.c - cases of queue pairs made outside of librdmacm. */
#include "cases.h"

#include <stdlib.h>
#include <string.h>

static void move_qp(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask;

	MUST(rdma_init_qp_attr(id, &attr, &mask));
	if (state == IBV_QPS_INIT)
		attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE, mask |= IBV_QP_ACCESS_FLAGS;
	MUST(ibv_modify_qp(qp, &attr, mask));
}

static struct ibv_qp *make_own_qp(struct rdma_cm_id *id, struct ibv_cq **cq)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1};
	struct ibv_qp *qp;

	*cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	attr.send_cq = attr.recv_cq = *cq;
	qp = ibv_create_qp(id->pd, &attr);
	if (!qp)
		give_up("ibv_create_qp: %s", errno_name(errno));
	return qp;
}

/* One message from the client, and one back, on a QP that librdmacm does not know. */
static void own_exchange(
	struct side *s, struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *mr, uint8_t *buf)
{
	struct ibv_sge sge = {(uintptr_t)buf, MESSAGE_BYTES, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .wr_id = 1},
			   *bad;
	bool sent = false, received = false;

	if (!s->is_server)
		MUST(ibv_post_send(qp, &wr, &bad));
	while (!sent || !received) {
		struct ibv_wc wc;

		if (ibv_poll_cq(cq, 1, &wc) != 1)
			continue;
		if (wc.status) {
			say("%s: %s", wc.wr_id == 1 ? "send" : "receive",
				ibv_wc_status_str(wc.status));
			return;
		}
		if (wc.wr_id == 1) {
			sent = true;
			continue;
		}
		received = true;
		if (!pattern_holds(buf + MESSAGE_BYTES, MESSAGE_BYTES, !s->is_server))
			say("receive: the bytes are not those that were sent");
		if (s->is_server)
			MUST(ibv_post_send(qp, &wr, &bad));
	}
	say("a message each way");
}

struct own {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	uint8_t *buf;
};

static void own_open(struct side *s, struct own *o, struct rdma_cm_id *id)
{
	struct ibv_sge sge;
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1, .wr_id = 2}, *bad;

	o->pd = ibv_alloc_pd(id->verbs);
	id->pd = o->pd;
	o->qp = make_own_qp(id, &o->cq);
	o->buf = calloc(2, MESSAGE_BYTES);
	pattern_fill(o->buf, MESSAGE_BYTES, s->is_server);
	o->mr = ibv_reg_mr(o->pd, o->buf, (size_t)2 * MESSAGE_BYTES, IBV_ACCESS_LOCAL_WRITE);
	if (!o->mr)
		give_up("ibv_reg_mr: %s", errno_name(errno));
	move_qp(id, o->qp, IBV_QPS_INIT);
	sge = (struct ibv_sge){(uintptr_t)o->buf + MESSAGE_BYTES, MESSAGE_BYTES, o->mr->lkey};
	MUST(ibv_post_recv(o->qp, &wr, &bad));
}

static void own_close(struct own *o, struct rdma_cm_id *id)
{
	MUST(ibv_destroy_qp(o->qp));
	MUST(ibv_destroy_cq(o->cq));
	MUST(ibv_dereg_mr(o->mr));
	id->pd = NULL;
	MUST(rdma_destroy_id(id));
	MUST(ibv_dealloc_pd(o->pd));
	free(o->buf);
}

void own_qp_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct event e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_conn_param param = {
		.responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7};
	struct own o;

	own_open(s, &o, e.id);
	move_qp(e.id, o.qp, IBV_QPS_RTR);
	move_qp(e.id, o.qp, IBV_QPS_RTS);
	param.qp_num = o.qp->qp_num;
	MUST(rdma_accept(e.id, &param));
	expect_event(s, RDMA_CM_EVENT_ESTABLISHED);
	own_exchange(s, o.qp, o.cq, o.mr, o.buf);
	expect_event(s, RDMA_CM_EVENT_DISCONNECTED);
	say_result("rdma_disconnect", rdma_disconnect(e.id));
	own_close(&o, e.id);
	MUST(rdma_destroy_id(listener));
}

void own_qp_client(struct side *s)
{
	struct rdma_cm_id *id = resolved_id(s, hear(s), RDMA_PS_TCP);
	struct rdma_conn_param param = {.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7};
	struct own o;

	own_open(s, &o, id);
	param.qp_num = o.qp->qp_num;
	MUST(rdma_connect(id, &param));
	expect_event(s, RDMA_CM_EVENT_CONNECT_RESPONSE);
	move_qp(id, o.qp, IBV_QPS_RTR);
	move_qp(id, o.qp, IBV_QPS_RTS);
	say_result("rdma_establish", rdma_establish(id));
	own_exchange(s, o.qp, o.cq, o.mr, o.buf);
	say_result("rdma_disconnect", rdma_disconnect(id));
	next_event(s);
	own_close(&o, id);
}

void early_data_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct event e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_conn_param param = {
		.responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7};
	struct own o;

	own_open(s, &o, e.id);
	move_qp(e.id, o.qp, IBV_QPS_RTR);
	move_qp(e.id, o.qp, IBV_QPS_RTS);
	param.qp_num = o.qp->qp_num;
	MUST(rdma_accept(e.id, &param));
	own_exchange(s, o.qp, o.cq, o.mr, o.buf);
	say_result("rdma_notify COMM_EST", rdma_notify(e.id, IBV_EVENT_COMM_EST));
	expect_event(s, RDMA_CM_EVENT_ESTABLISHED);
	tell(s, 1);
	expect_event(s, RDMA_CM_EVENT_DISCONNECTED);
	say_result("rdma_disconnect", rdma_disconnect(e.id));
	own_close(&o, e.id);
	MUST(rdma_destroy_id(listener));
}

void early_data_client(struct side *s)
{
	struct rdma_cm_id *id = resolved_id(s, hear(s), RDMA_PS_TCP);
	struct rdma_conn_param param = {.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7};
	struct own o;

	own_open(s, &o, id);
	param.qp_num = o.qp->qp_num;
	MUST(rdma_connect(id, &param));
	expect_event(s, RDMA_CM_EVENT_CONNECT_RESPONSE);
	move_qp(id, o.qp, IBV_QPS_RTR);
	move_qp(id, o.qp, IBV_QPS_RTS);
	own_exchange(s, o.qp, o.cq, o.mr, o.buf);
	hear(s); /* the server has ESTABLISHED without our RTU */
	say_result("rdma_establish", rdma_establish(id));
	say_result("rdma_disconnect", rdma_disconnect(id));
	next_event(s);
	own_close(&o, id);
}
