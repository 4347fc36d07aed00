/* life.c - cases in which connections come about. */
#include "cases.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- who closes ---- */

void client_closes_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct conn c;

	connect_as_server(s, &c, 1);
	exchange(s, &c);
	see_disconnect(s, &c);
	MUST(rdma_destroy_id(listener));
}

void client_closes_client(struct side *s)
{
	struct conn c;
	int port = hear(s);

	connect_as_client(s, &c, port, 1);
	exchange(s, &c);
	say_result("rdma_disconnect", rdma_disconnect(c.id));
	next_event(s);
	conn_close(&c);
}

void server_closes_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct conn c;

	connect_as_server(s, &c, 2);
	exchange(s, &c);
	hear(s); /* the client has its message */
	say_result("rdma_disconnect", rdma_disconnect(c.id));
	next_event(s);
	conn_close(&c);
	MUST(rdma_destroy_id(listener));
}

void server_closes_client(struct side *s)
{
	struct conn c;
	int port = hear(s);

	connect_as_client(s, &c, port, 2);
	exchange(s, &c);
	conn_post_receive(&c);
	tell(s, 1);
	expect_event(s, RDMA_CM_EVENT_DISCONNECTED);
	struct ibv_wc wc;
	say_result("rdma_disconnect", rdma_disconnect(c.id));
	if (rdma_get_recv_comp(c.id, &wc) == 1)
		say("receive: %s", ibv_wc_status_str(wc.status));
	conn_close(&c);
}

static void close_at_once(struct side *s, struct conn *c)
{
	tell(s, 1);
	hear(s);
	say_result("rdma_disconnect", rdma_disconnect(c->id));
	next_event(s);
	conn_close(c);
	wait_for_death(s);
}

void both_close_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct conn c;

	connect_as_server(s, &c, 3);
	exchange(s, &c);
	tell(s, 1);
	hear(s);
	say_result("rdma_disconnect", rdma_disconnect(c.id));
	next_event(s);
	conn_close(&c);
	MUST(rdma_destroy_id(listener));
}

void both_close_client(struct side *s)
{
	struct conn c;
	int port = hear(s);

	connect_as_client(s, &c, port, 3);
	exchange(s, &c);
	close_at_once(s, &c);
}

/* ---- parameters and private data ---- */

static void say_conn_param(const struct rdma_conn_param *p, bool qpn_right)
{
	say("responder_resources %u, initiator_depth %u, flow_control %u, retry_count %u, rnr_retry_count %u, srq %u, qp_num %s", p->responder_resources,
		p->initiator_depth, p->flow_control, p->retry_count, p->rnr_retry_count, p->srq, qpn_right ? "right" : "wrong");
}

static void say_qp_attr(struct ibv_qp *qp)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;

	MUST(ibv_query_qp(qp, &a,
		IBV_QP_STATE | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER, &init));
	say("QP: state %d, max_rd_atomic %u, max_dest_rd_atomic %u, retry_cnt %u, rnr_retry %u", a.qp_state, a.max_rd_atomic, a.max_dest_rd_atomic, a.retry_cnt,
		a.rnr_retry);
}

void parameters_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct rdma_conn_param param = {.responder_resources = 4, .initiator_depth = 2, .flow_control = 1, .rnr_retry_count = 3, .private_data = "reply data"};
	struct conn c;
	struct event e;

	param.private_data_len = 11;
	e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);
	say_conn_param(&e.conn, e.conn.qp_num == (uint32_t)hear(s));
	say("private data: %u bytes, '%.11s'", e.pdata_len, (const char *)e.pdata);
	say("on the listener's behalf: %s; port space %d, type %d", e.listen_id == listener ? "yes" : "no", e.id->ps, e.id->qp_type);
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
	struct rdma_conn_param param = {
		.responder_resources = 5, .initiator_depth = 3, .flow_control = 1, .retry_count = 6, .rnr_retry_count = 5, .private_data = "ask for it"};
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
			say("length %u: wrong, or not %d bytes but %u", n, REQUEST_DATA_MAX, e.pdata_len);
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
		struct rdma_conn_param param = {.private_data = data, .private_data_len = (uint8_t)n, .retry_count = 7};

		pattern_fill(data, n, n);
		conn_open(s, &c, resolved_id(s, port, RDMA_PS_TCP), n);
		MUST(rdma_connect(c.id, &param));
		expect_event(s, RDMA_CM_EVENT_REJECTED);
		conn_close(&c);
	}
	for (unsigned n = REQUEST_DATA_MAX + 1; n < 256; n += 199 - REQUEST_DATA_MAX - 1) {
		struct rdma_conn_param param = {.private_data = data, .private_data_len = (uint8_t)n};

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
		struct rdma_conn_param param = {.private_data = data, .private_data_len = (uint8_t)n};
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
				say("length %u: wrong, or not %d bytes but %u", n, REPLY_DATA_MAX, e.pdata_len);
			MUST(rdma_disconnect(c.id));
			expect_event(s, RDMA_CM_EVENT_DISCONNECTED);
		}
		conn_close(&c);
	}
	say("%u lengths came as they were sent", right);
}

/* ---- QPs made outside ---- */

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
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	struct ibv_qp *qp;

	*cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	attr.send_cq = attr.recv_cq = *cq;
	qp = ibv_create_qp(id->pd, &attr);
	if (!qp)
		give_up("ibv_create_qp: %s", errno_name(errno));
	return qp;
}

/* One message from the client, and one back, on a QP that librdmacm does not know. */
static void own_exchange(struct side *s, struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *mr, uint8_t *buf)
{
	struct ibv_sge sge = {(uintptr_t)buf, MESSAGE_BYTES, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .wr_id = 1}, *bad;
	bool sent = false, received = false;

	if (!s->is_server)
		MUST(ibv_post_send(qp, &wr, &bad));
	while (!sent || !received) {
		struct ibv_wc wc;

		if (ibv_poll_cq(cq, 1, &wc) != 1)
			continue;
		if (wc.status) {
			say("%s: %s", wc.wr_id == 1 ? "send" : "receive", ibv_wc_status_str(wc.status));
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
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7};
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
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
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
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7};
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
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
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

/* ---- channels ---- */

void migrate_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct rdma_event_channel *own = rdma_create_event_channel();
	struct rdma_conn_param param = {.retry_count = 7};
	struct conn c;
	struct event e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);

	say_result("rdma_migrate_id", rdma_migrate_id(e.id, own));
	conn_open(s, &c, e.id, 7);
	conn_post_receive(&c);
	MUST(rdma_accept(c.id, &param));
	say("on its own channel:");
	next_event_within(s, own, &e, EVENT_WAIT_MS);
	exchange(s, &c);
	next_event_within(s, own, &e, EVENT_WAIT_MS);
	MUST(rdma_disconnect(c.id));
	say("on the listener's:");
	next_event_within(s, s->channel, &e, 100);
	conn_close(&c);
	rdma_destroy_event_channel(own);
	MUST(rdma_destroy_id(listener));
}

/* Here events wait on the old channel when the id moves: they move with it. */
void migrate_client(struct side *s)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct event e;
	struct conn c;
	int port = hear(s);

	MUST(rdma_create_id(s->channel, &id, NULL, RDMA_PS_TCP));
	MUST(rdma_resolve_addr(id, NULL, server_address(s, port), 2000));
	usleep(300000);
	say_result("rdma_migrate_id", rdma_migrate_id(id, other));
	say("on the old channel:");
	next_event_within(s, s->channel, &e, 100);
	say("on the new one:");
	next_event_within(s, other, &e, EVENT_WAIT_MS);
	MUST(rdma_resolve_route(id, 2000));
	next_event_within(s, other, &e, EVENT_WAIT_MS);
	conn_open(s, &c, id, 7);
	conn_post_receive(&c);
	MUST(rdma_connect(id, &param));
	next_event_within(s, other, &e, EVENT_WAIT_MS);
	exchange(s, &c);
	MUST(rdma_disconnect(id));
	next_event_within(s, other, &e, EVENT_WAIT_MS);
	conn_close(&c);
	rdma_destroy_event_channel(other);
}

void epoll_server(struct side *s) { client_closes_server(s); }

static bool readable(int epoll_fd, int ms)
{
	struct epoll_event ev;

	return epoll_wait(epoll_fd, &ev, 1, ms) == 1;
}

static void take_nonblocking(struct side *s, const char *when)
{
	struct rdma_cm_event *ev;

	if (rdma_get_cm_event(s->channel, &ev)) {
		say("%s: rdma_get_cm_event: %s", when, errno_name(errno));
		return;
	}
	say("%s: %s", when, rdma_event_str(ev->event));
	rdma_ack_cm_event(ev);
}

void epoll_client(struct side *s)
{
	int epoll_fd = epoll_create1(0);
	struct epoll_event want = {.events = EPOLLIN};
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct rdma_cm_id *id;
	struct conn c;
	int port = hear(s);

	MUST(fcntl(s->channel->fd, F_SETFL, fcntl(s->channel->fd, F_GETFL) | O_NONBLOCK));
	MUST(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, s->channel->fd, &want));
	say("readable before anything: %d", readable(epoll_fd, 0));
	take_nonblocking(s, "before anything");
	MUST(rdma_create_id(s->channel, &id, NULL, RDMA_PS_TCP));
	MUST(rdma_resolve_addr(id, NULL, server_address(s, port), 2000));
	say("readable: %d", readable(epoll_fd, 10000));
	say("still readable: %d", readable(epoll_fd, 0));
	take_nonblocking(s, "first");
	say("readable after the last event: %d", readable(epoll_fd, 100));
	take_nonblocking(s, "second");
	MUST(rdma_resolve_route(id, 2000));
	say("readable: %d", readable(epoll_fd, 10000));
	take_nonblocking(s, "third");
	conn_open(s, &c, id, 1);
	conn_post_receive(&c);
	MUST(rdma_connect(id, &param));
	say("readable: %d", readable(epoll_fd, 10000));
	take_nonblocking(s, "fourth");
	exchange(s, &c);
	MUST(rdma_disconnect(id));
	say("readable: %d", readable(epoll_fd, 10000));
	take_nonblocking(s, "fifth");
	take_nonblocking(s, "sixth");
	conn_close(&c);
	close(epoll_fd);
}

/* ---- listeners ---- */

void wildcard_server(struct side *s)
{
	struct sockaddr_storage any = s->address;
	struct rdma_cm_id *id;
	struct conn c;

	if (any.ss_family == AF_INET)
		((struct sockaddr_in *)&any)->sin_addr.s_addr = INADDR_ANY;
	else
		((struct sockaddr_in6 *)&any)->sin6_addr = in6addr_any;
	MUST(rdma_create_id(s->channel, &id, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(id, (struct sockaddr *)&any));
	say("bound: verbs %s", id->verbs ? "known" : "not known");
	MUST(rdma_listen(id, 4));
	tell(s, ntohs(rdma_get_src_port(id)));
	connect_as_server(s, &c, 9);
	say("the connection's address is the client's target: %s",
		s->address.ss_family == AF_INET
			? (((struct sockaddr_in *)rdma_get_local_addr(c.id))->sin_addr.s_addr == ((struct sockaddr_in *)&s->address)->sin_addr.s_addr ? "yes"
																		      : "no")
			: (memcmp(&((struct sockaddr_in6 *)rdma_get_local_addr(c.id))->sin6_addr, &((struct sockaddr_in6 *)&s->address)->sin6_addr, 16)
					  ? "no"
					  : "yes"));
	say("ports: own %s, peer %s", rdma_get_src_port(c.id) == rdma_get_src_port(id) ? "as bound" : "another",
		ntohs(rdma_get_dst_port(c.id)) == hear(s) ? "right" : "wrong");
	exchange(s, &c);
	see_disconnect(s, &c);
	MUST(rdma_destroy_id(id));
}

void wildcard_client(struct side *s)
{
	struct conn c;
	int port = hear(s);

	connect_as_client(s, &c, port, 9);
	tell(s, ntohs(rdma_get_src_port(c.id)));
	exchange(s, &c);
	MUST(rdma_disconnect(c.id));
	next_event(s);
	conn_close(&c);
}

/* ---- many ---- */

/* Processes of one device keep a connection to each other while they have something to say (io/line.c): a few more or fewer descriptors are no leak of 180 connections. */
enum { CYCLES = 200, WARM_UP = 20, AT_ONCE = 20, LINES_ROOM = 8 };

struct footprint {
	unsigned descriptors;
	size_t bytes;
};

static struct footprint measure(void) { return (struct footprint){open_descriptors(), mallinfo2().uordblks}; }

/* Each connection's leavings in TIMEWAIT may be remembered for a while: hence some room. */
static void say_growth(struct footprint before)
{
	struct footprint now = measure();

	if (now.descriptors > before.descriptors + LINES_ROOM)
		say("descriptors: %u before, %u now", before.descriptors, now.descriptors);
	else
		say("descriptors: as before");
	if (now.bytes > before.bytes + (256 << 10))
		say("memory: %zu bytes before, %zu now", before.bytes, now.bytes);
	else
		say("memory: as before");
}

void cycles_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 16);
	struct footprint before = {0};

	s->mute = true;
	for (unsigned i = 0; i < CYCLES; i++) {
		struct conn c;

		if (i == WARM_UP)
			before = measure();
		connect_as_server(s, &c, i);
		exchange(s, &c);
		see_disconnect(s, &c);
	}
	say_growth(before);
	MUST(rdma_destroy_id(listener));
}

void cycles_client(struct side *s)
{
	struct footprint before = {0};
	int port = hear(s);

	s->mute = true;
	for (unsigned i = 0; i < CYCLES; i++) {
		struct conn c;

		if (i == WARM_UP)
			before = measure();
		connect_as_client(s, &c, port, i);
		exchange(s, &c);
		MUST(rdma_disconnect(c.id));
		expect_event(s, RDMA_CM_EVENT_DISCONNECTED);
		conn_close(&c);
	}
	say_growth(before);
}

static struct conn *conn_of(struct conn *conns, struct rdma_cm_id *id)
{
	for (unsigned i = 0; i < AT_ONCE; i++)
		if (conns[i].id == id)
			return &conns[i];
	give_up("an event for an id that is none of ours");
}

void at_once_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, AT_ONCE);
	struct rdma_conn_param param = {.rnr_retry_count = 7};
	struct conn conns[AT_ONCE] = {0};
	unsigned n = 0, established = 0, closed = 0;

	s->mute = true;
	while (closed < AT_ONCE) {
		struct event e = next_event(s);

		if (e.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			conn_open(s, &conns[n], e.id, e.pdata[0]);
			conn_post_receive(&conns[n]);
			MUST(rdma_accept(e.id, &param));
			n++;
		} else if (e.type == RDMA_CM_EVENT_ESTABLISHED) {
			if (++established == AT_ONCE)
				for (unsigned i = 0; i < AT_ONCE; i++)
					exchange(s, &conns[i]);
		} else if (e.type == RDMA_CM_EVENT_DISCONNECTED) {
			MUST(rdma_disconnect(e.id));
			conn_close(conn_of(conns, e.id));
			closed++;
		} else if (e.type != RDMA_CM_EVENT_TIMEWAIT_EXIT) {
			give_up("%s, status %d", rdma_event_str(e.type), e.status);
		}
	}
	say("%u requests, %u established, %u closed", n, established, closed);
	MUST(rdma_destroy_id(listener));
}

void at_once_client(struct side *s)
{
	struct conn conns[AT_ONCE] = {0};
	unsigned established = 0, closed = 0;
	int port = hear(s);

	s->mute = true;
	for (unsigned i = 0; i < AT_ONCE; i++)
		MUST(rdma_create_id(s->channel, &conns[i].id, NULL, RDMA_PS_TCP));
	for (unsigned i = 0; i < AT_ONCE; i++)
		MUST(rdma_resolve_addr(conns[i].id, NULL, server_address(s, port), 2000));
	while (established < AT_ONCE) {
		struct event e = next_event(s);
		struct conn *c = conn_of(conns, e.id);
		uint8_t number = (uint8_t)(c - conns);
		struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7, .private_data = &number, .private_data_len = 1};

		if (e.type == RDMA_CM_EVENT_ADDR_RESOLVED) {
			MUST(rdma_resolve_route(e.id, 2000));
		} else if (e.type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
			conn_open(s, c, e.id, number);
			conn_post_receive(c);
			MUST(rdma_connect(e.id, &param));
		} else if (e.type == RDMA_CM_EVENT_ESTABLISHED) {
			established++;
		} else {
			give_up("%s, status %d", rdma_event_str(e.type), e.status);
		}
	}
	for (unsigned i = 0; i < AT_ONCE; i++) {
		MUST(rdma_post_send(conns[i].id, NULL, conns[i].buf, MESSAGE_BYTES, conns[i].mr, IBV_SEND_SIGNALED));
	}
	for (unsigned i = 0; i < AT_ONCE; i++) {
		struct ibv_wc wc;

		if (rdma_get_recv_comp(conns[i].id, &wc) != 1 || wc.status || !pattern_holds(conns[i].buf + MESSAGE_BYTES, MESSAGE_BYTES, conns[i].seed_in))
			say("connection %u: wrong bytes or status", i);
		MUST(rdma_disconnect(conns[i].id));
	}
	while (closed < AT_ONCE) {
		struct event e = next_event(s);

		if (e.type == RDMA_CM_EVENT_DISCONNECTED)
			closed++;
		else if (e.type != RDMA_CM_EVENT_TIMEWAIT_EXIT)
			give_up("%s, status %d", rdma_event_str(e.type), e.status);
	}
	for (unsigned i = 0; i < AT_ONCE; i++)
		conn_close(&conns[i]);
	say("%u established, %u closed", established, closed);
}

/* ---- the synchronous calls ---- */

static const struct ibv_qp_init_attr endpoint_attr = {
	.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 16}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};

static struct rdma_addrinfo *endpoint_address(struct side *s, int port, int flags)
{
	struct rdma_addrinfo hints = {.ai_flags = flags | RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP}, *found;
	char host[INET6_ADDRSTRLEN], service[8];
	const void *at = s->address.ss_family == AF_INET ? (void *)&((struct sockaddr_in *)&s->address)->sin_addr
							 : (void *)&((struct sockaddr_in6 *)&s->address)->sin6_addr;

	inet_ntop(s->address.ss_family, at, host, sizeof(host));
	snprintf(service, sizeof(service), "%d", port);
	MUST(rdma_getaddrinfo(host, service, &hints, &found));
	return found;
}

static void endpoint_exchange(struct side *s, struct conn *c)
{
	struct ibv_wc wc;

	exchange(s, c);
	/* A READ of the peer's outgoing message, with the address it sends us in a message. */
	uint64_t where[2];

	conn_post_receive(c);
	tell(s, 1);
	if (rdma_get_recv_comp(c->id, &wc) != 1 || wc.status || wc.byte_len != sizeof(where))
		say("receive: failed");
	memcpy(where, c->buf + MESSAGE_BYTES, sizeof(where));
	memset(c->buf + MESSAGE_BYTES, 0, MESSAGE_BYTES);
	MUST(rdma_post_read(c->id, NULL, c->buf + MESSAGE_BYTES, MESSAGE_BYTES, c->mr, IBV_SEND_SIGNALED, where[0], (uint32_t)where[1]));
	if (rdma_get_send_comp(c->id, &wc) != 1 || wc.status)
		say("READ: %s", ibv_wc_status_str(wc.status));
	if (!pattern_holds(c->buf + MESSAGE_BYTES, MESSAGE_BYTES, c->seed_in))
		say("READ: the bytes are not the server's");
	say("SEND and READ through the synchronous calls");
}

static void endpoint_memory(struct side *s, struct conn *c)
{
	*c = (struct conn){.id = c->id, .seed_out = 22 + s->is_server, .seed_in = 22 + !s->is_server, .buf = calloc(2, MESSAGE_BYTES)};
	pattern_fill(c->buf, MESSAGE_BYTES, c->seed_out);
	c->mr = rdma_reg_read(c->id, c->buf, (size_t)2 * MESSAGE_BYTES);
	if (!c->mr)
		give_up("rdma_reg_read: %s", errno_name(errno));
	conn_post_receive(c);
}

void endpoints_server(struct side *s)
{
	struct rdma_addrinfo *address = endpoint_address(s, 0, RAI_PASSIVE);
	struct ibv_qp_init_attr attr = endpoint_attr;
	struct rdma_cm_id *listener;
	struct conn c = {0};

	say("passive: source %s, destination %s, QP type %d", address->ai_src_len ? "given" : "none", address->ai_dst_len ? "given" : "none",
		address->ai_qp_type);
	MUST(rdma_create_ep(&listener, address, NULL, &attr));
	rdma_freeaddrinfo(address);
	MUST(rdma_listen(listener, 0));
	tell(s, ntohs(rdma_get_src_port(listener)));
	say_result("rdma_get_request", rdma_get_request(listener, &c.id));
	say("QP %s, event %s", c.id->qp ? "made" : "missing", c.id->event ? rdma_event_str(c.id->event->event) : "none");
	endpoint_memory(s, &c);
	say_result("rdma_accept", rdma_accept(c.id, NULL));
	exchange(s, &c);
	hear(s);
	uint64_t where[2] = {(uintptr_t)c.buf, c.mr->rkey};
	struct ibv_wc wc;

	MUST(rdma_post_send(c.id, NULL, where, sizeof(where), NULL, IBV_SEND_INLINE));
	if (rdma_get_send_comp(c.id, &wc) != 1 || wc.status)
		say("inline send: failed");
	hear(s); /* it has read. A synchronous rdma_disconnect waits for the other side's, so both call it */
	say_result("rdma_disconnect", rdma_disconnect(c.id));
	rdma_dereg_mr(c.mr);
	free(c.buf);
	rdma_destroy_ep(c.id);
	rdma_destroy_ep(listener);
}

void endpoints_client(struct side *s)
{
	int port = hear(s);
	struct rdma_addrinfo *address = endpoint_address(s, port, 0);
	struct ibv_qp_init_attr attr = endpoint_attr;
	struct rdma_conn_param param = {.responder_resources = 2, .initiator_depth = 2, .retry_count = 7, .rnr_retry_count = 7};
	struct conn c = {0};

	say("active: source %s, destination %s, QP type %d", address->ai_src_len ? "given" : "none", address->ai_dst_len ? "given" : "none",
		address->ai_qp_type);
	MUST(rdma_create_ep(&c.id, address, NULL, &attr));
	rdma_freeaddrinfo(address);
	endpoint_memory(s, &c);
	say_result("rdma_connect", rdma_connect(c.id, &param));
	say("event %s", c.id->event ? rdma_event_str(c.id->event->event) : "none");
	endpoint_exchange(s, &c);
	tell(s, 1);
	say_result("rdma_disconnect", rdma_disconnect(c.id));
	rdma_dereg_mr(c.mr);
	free(c.buf);
	rdma_destroy_ep(c.id);
}

/* ---- processes ---- */

/* A parent that has a channel and a listener, and no device yet: a kernel's verbs cannot be used by two processes. */
void fork_server(struct side *s)
{
	struct sockaddr_storage any = s->address;
	struct rdma_cm_id *listener;
	struct conn c;
	int status;
	pid_t child;

	if (any.ss_family == AF_INET)
		((struct sockaddr_in *)&any)->sin_addr.s_addr = INADDR_ANY;
	else
		((struct sockaddr_in6 *)&any)->sin6_addr = in6addr_any;
	MUST(rdma_create_id(s->channel, &listener, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(listener, (struct sockaddr *)&any));
	MUST(rdma_listen(listener, 4));
	child = fork();
	if (!child) {
		struct side mine = *s;
		struct conn own;

		mine.channel = rdma_create_event_channel();
		mine.mute = true;
		listen_and_tell(&mine, 4);
		connect_as_server(&mine, &own, 31);
		exchange(&mine, &own);
		see_disconnect(&mine, &own);
		_exit(0);
	}
	waitpid(child, &status, 0);
	say("the child ended with %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	tell(s, ntohs(rdma_get_src_port(listener)));
	connect_as_server(s, &c, 30);
	exchange(s, &c);
	see_disconnect(s, &c);
	MUST(rdma_destroy_id(listener));
}

void fork_client(struct side *s)
{
	struct conn c;

	for (unsigned i = 0; i < 2; i++) {
		int port = hear(s);

		connect_as_client(s, &c, port, 31 - i);
		exchange(s, &c);
		MUST(rdma_disconnect(c.id));
		next_event(s);
		conn_close(&c);
	}
}

void within_server(struct side *s) { tell(s, 0); }

void within_client(struct side *s)
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
	struct conn in = {0}, out;
	struct side as_server = *s;
	struct rdma_cm_id *listener;
	unsigned established = 0, closed = 0;

	hear(s);
	as_server.is_server = true;
	s->mute = true;
	MUST(rdma_create_id(s->channel, &listener, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(listener, server_address(s, 0)));
	MUST(rdma_listen(listener, 4));
	conn_open(s, &out, resolved_id(s, ntohs(rdma_get_src_port(listener)), RDMA_PS_TCP), 40);
	conn_post_receive(&out);
	MUST(rdma_connect(out.id, &param));
	while (established < 2) {
		struct event e = next_event(s);

		if (e.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			conn_open(&as_server, &in, e.id, 40);
			conn_post_receive(&in);
			MUST(rdma_accept(in.id, &param));
		} else if (e.type == RDMA_CM_EVENT_ESTABLISHED) {
			established++;
		} else {
			give_up("%s, status %d", rdma_event_str(e.type), e.status);
		}
	}
	MUST(rdma_post_send(out.id, NULL, out.buf, MESSAGE_BYTES, out.mr, IBV_SEND_SIGNALED));
	exchange(&as_server, &in);
	struct ibv_wc wc;

	if (rdma_get_recv_comp(out.id, &wc) != 1 || wc.status || !pattern_holds(out.buf + MESSAGE_BYTES, MESSAGE_BYTES, out.seed_in))
		say("wrong bytes");
	MUST(rdma_disconnect(out.id));
	while (closed < 2) {
		struct event e = next_event(s);

		if (e.type != RDMA_CM_EVENT_DISCONNECTED)
			give_up("%s, status %d", rdma_event_str(e.type), e.status);
		if (e.id == in.id)
			MUST(rdma_disconnect(in.id));
		closed++;
	}
	say("%u established, %u closed", established, closed);
	conn_close(&out);
	conn_close(&in);
	MUST(rdma_destroy_id(listener));
}

void timewait_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct conn c;

	connect_as_server(s, &c, 50);
	expect_event(s, RDMA_CM_EVENT_DISCONNECTED);
	MUST(rdma_disconnect(c.id));
	next_event(s);
	conn_close(&c);
	MUST(rdma_destroy_id(listener));
}

void timewait_client(struct side *s)
{
	struct conn c;
	int port = hear(s);

	connect_as_client(s, &c, port, 50);
	MUST(rdma_disconnect(c.id));
	next_event(s);
	next_event(s);
	conn_close(&c);
}
