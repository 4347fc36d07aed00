/* SPDX-License-Identifier: BSD-3-Clause */
/* datagram.c - the UDP port space: service look-ups (SIDR) and UD QPs. */
#include "cases.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { GRH = 40, DATAGRAM = 512 };

static struct rdma_cm_id *listen_udp(struct side *s)
{
	struct rdma_cm_id *id;

	MUST(rdma_create_id(s->channel, &id, NULL, RDMA_PS_UDP));
	MUST(rdma_bind_addr(id, server_address(s, 0)));
	MUST(rdma_listen(id, 4));
	tell(s, ntohs(rdma_get_src_port(id)));
	return id;
}

static void ud_open(struct side *s, struct conn *c, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1};

	*c = (struct conn){.id = id,
		.seed_out = 60 + s->is_server,
		.seed_in = 60 + !s->is_server,
		.buf = calloc(2, MESSAGE_BYTES)};
	pattern_fill(c->buf, DATAGRAM, c->seed_out);
	MUST(rdma_create_qp(id, NULL, &attr));
	c->mr = rdma_reg_msgs(id, c->buf, (size_t)2 * MESSAGE_BYTES);
	conn_post_receive(c);
}

static void ud_receive(struct conn *c, struct ibv_wc *wc)
{
	if (rdma_get_recv_comp(c->id, wc) != 1 || wc->status)
		say("receive: %s", ibv_wc_status_str(wc->status));
	say("received %u bytes, %s", wc->byte_len,
		pattern_holds(c->buf + MESSAGE_BYTES + GRH, DATAGRAM, c->seed_in) ? "right"
										  : "WRONG");
}

static void ud_send(struct conn *c, struct ibv_ah *ah, uint32_t qpn)
{
	struct ibv_wc wc;

	if (!ah)
		give_up("no address handle: %s", errno_name(errno));
	MUST(rdma_post_ud_send(c->id, NULL, c->buf, DATAGRAM, c->mr, IBV_SEND_SIGNALED, ah, qpn));
	if (rdma_get_send_comp(c->id, &wc) != 1 || wc.status)
		say("send: %s", ibv_wc_status_str(wc.status));
	MUST(ibv_destroy_ah(ah));
}

void ud_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_udp(s);
	struct event e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_conn_param param = {.private_data = "found", .private_data_len = 6};
	struct ibv_wc wc;
	struct conn c;

	say("private data: %u bytes, '%.7s'; QP type %d, port space %#x", e.pdata_len,
		(const char *)e.pdata, e.id->qp_type, e.id->ps);
	ud_open(s, &c, e.id);
	param.qp_num = c.id->qp->qp_num;
	say_result("rdma_accept", rdma_accept(c.id, &param));
	ud_receive(&c, &wc);
	ud_send(&c,
		ibv_create_ah_from_wc(
			c.id->pd, &wc, (struct ibv_grh *)(c.buf + MESSAGE_BYTES), c.id->port_num),
		wc.src_qp);
	wait_for_death(s);
	say_result("rdma_disconnect", rdma_disconnect(c.id));
	conn_close(&c);
	MUST(rdma_destroy_id(listener));
}

void ud_client(struct side *s)
{
	struct rdma_cm_id *id = resolved_id(s, hear(s), RDMA_PS_UDP);
	struct rdma_conn_param param = {.private_data = "looking", .private_data_len = 7};
	struct event e;
	struct ibv_wc wc;
	struct conn c;

	ud_open(s, &c, id);
	MUST(rdma_connect(id, &param));
	e = expect_event(s, RDMA_CM_EVENT_ESTABLISHED);
	say("private data: %u bytes, '%.5s'; Q_Key %#x, address handle global %u", e.pdata_len,
		(const char *)e.pdata, e.ud.qkey, e.ud.ah_attr.is_global);
	ud_send(&c, ibv_create_ah(id->pd, &e.ud.ah_attr), e.ud.qp_num);
	ud_receive(&c, &wc);
	conn_close(&c);
}

void ud_reject_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_udp(s);
	struct event e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);

	say_result("rdma_reject", rdma_reject(e.id, "not here", 9));
	MUST(rdma_destroy_id(e.id));
	wait_for_death(s);
	MUST(rdma_destroy_id(listener));
}

void ud_reject_client(struct side *s)
{
	struct rdma_cm_id *id = resolved_id(s, hear(s), RDMA_PS_UDP);
	struct rdma_conn_param param = {0};
	struct event e;
	struct conn c;

	ud_open(s, &c, id);
	MUST(rdma_connect(id, &param));
	e = next_event(s);
	say("private data: %u bytes, '%.8s'", e.pdata_len, (const char *)e.pdata);
	conn_close(&c);
}

void ud_no_listener_server(struct side *s)
{
	struct rdma_cm_id *id;

	MUST(rdma_create_id(s->channel, &id, NULL, RDMA_PS_UDP));
	MUST(rdma_bind_addr(id, server_address(s, 0)));
	tell(s, ntohs(rdma_get_src_port(id)));
	wait_for_death(s);
	MUST(rdma_destroy_id(id));
}

void ud_no_listener_client(struct side *s)
{
	struct rdma_cm_id *id = resolved_id(s, hear(s), RDMA_PS_UDP);
	struct rdma_conn_param param = {0};
	struct conn c;

	ud_open(s, &c, id);
	MUST(rdma_connect(id, &param));
	next_event(s);
	conn_close(&c);
}
