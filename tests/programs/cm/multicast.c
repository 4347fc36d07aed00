/* SPDX-License-Identifier: BSD-3-Clause */
/* multicast.c - rdma_join_multicast and ibv_attach_mcast: what they answer, and datagrams to a
 * group of both processes. */
#include "cases.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { GRH = 40, DATAGRAM = 512 };

static struct sockaddr *group_address(const char *text)
{
	static struct sockaddr_in in;

	in = (struct sockaddr_in){.sin_family = AF_INET};
	inet_pton(AF_INET, text, &in.sin_addr);
	return (struct sockaddr *)&in;
}

static union ibv_gid group_gid(const char *text)
{
	union ibv_gid g = {.raw = {[10] = 0xff, [11] = 0xff}};

	inet_pton(AF_INET, text, g.raw + 12);
	return g;
}

static struct rdma_cm_id *bound(struct side *s, enum rdma_port_space ps)
{
	struct rdma_cm_id *id;

	MUST(rdma_create_id(s->channel, &id, NULL, ps));
	MUST(rdma_bind_addr(id, server_address(s, 0)));
	return id;
}

static void open_qp(struct conn *c, struct rdma_cm_id *id, struct side *s)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1};

	*c = (struct conn){.id = id,
		.seed_out = 70 + s->is_server,
		.seed_in = 70 + !s->is_server,
		.buf = calloc(2, MESSAGE_BYTES)};
	pattern_fill(c->buf, DATAGRAM, c->seed_out);
	MUST(rdma_create_qp(id, NULL, &attr));
	c->mr = rdma_reg_msgs(id, c->buf, (size_t)2 * MESSAGE_BYTES);
	conn_post_receive(c);
}

static void close_qp(struct conn *c)
{
	rdma_dereg_mr(c->mr);
	rdma_destroy_qp(c->id);
	free(c->buf);
}

static void say_leave(const char *what, struct rdma_cm_id *id, const char *group)
{
	int rc = rdma_leave_multicast(id, group_address(group));

	say("%s: %s", what, rc ? errno_name(errno) : "0");
}

static struct event join(struct side *s, struct rdma_cm_id *id, const char *group)
{
	union ibv_gid gid = group_gid(group);

	MUST(rdma_join_multicast(id, group_address(group), NULL));
	struct event e = expect_event(s, RDMA_CM_EVENT_MULTICAST_JOIN);
	say("QPN %#x, Q_Key %#x, %s, hop limit %d, LID %#x", e.ud.qp_num, e.ud.qkey,
		memcmp(&e.ud.ah_attr.grh.dgid, &gid, sizeof(gid)) ? "ANOTHER GID" : "its GID",
		e.ud.ah_attr.grh.hop_limit, e.ud.ah_attr.dlid);
	return e;
}

/* ---- what is answered ---- */

void multicast_server(struct side *s) { tell(s, 0); }

static void wrong_joins(struct side *s)
{
	struct rdma_cm_id *id;

	MUST(rdma_create_id(s->channel, &id, NULL, RDMA_PS_UDP));
	say_result("join before the id is bound",
		rdma_join_multicast(id, group_address("239.7.7.7"), NULL));
	MUST(rdma_destroy_id(id));
	id = bound(s, RDMA_PS_TCP);
	say_result("join of the TCP port space",
		rdma_join_multicast(id, group_address("239.7.7.7"), NULL));
	MUST(rdma_destroy_id(id));
	id = bound(s, RDMA_PS_UDP);
	say_result("join of 0.0.0.0", rdma_join_multicast(id, group_address("0.0.0.0"), NULL));
	MUST(rdma_destroy_id(id));
}

static void attachments(struct conn *c)
{
	union ibv_gid group = group_gid("239.7.7.8"), host = group_gid("10.78.0.1");
	struct ibv_qp *qp = c->id->qp;

	say_result("attach", ibv_attach_mcast(qp, &group, 0));
	say_result("attach again", ibv_attach_mcast(qp, &group, 0));
	say("attach to a host: %s", errno_name(ibv_attach_mcast(qp, &host, 0)));
	say("detach from what it is not attached to: %s",
		errno_name(ibv_detach_mcast(qp, &host, 0)));
	say("destroy an attached QP: %s", errno_name(ibv_destroy_qp(qp)));
	say_result("detach", ibv_detach_mcast(qp, &group, 0));
	say("detach again: %s", errno_name(ibv_detach_mcast(qp, &group, 0)));
}

/* LeakSanitizer's, where it is there. */
__attribute__((weak)) void __lsan_disable(void);
__attribute__((weak)) void __lsan_enable(void);

/* To be destroyed as a member: librdmacm 44 never frees what it keeps of such a group. */
static void join_for_good(struct side *s, struct rdma_cm_id *id, const char *group)
{
	if (__lsan_disable)
		__lsan_disable();
	join(s, id, group);
	if (__lsan_enable)
		__lsan_enable();
}

void multicast_client(struct side *s)
{
	struct rdma_cm_id *id;
	struct conn c;

	hear(s);
	wrong_joins(s);
	id = bound(s, RDMA_PS_UDP);
	open_qp(&c, id, s);
	attachments(&c);
	join(s, id, "239.7.7.7");
	join(s, id, "239.7.7.9");
	say_leave("leave", id, "239.7.7.7");
	say_leave("leave again", id, "239.7.7.7");
	say_leave("leave the other", id, "239.7.7.9");
	join_for_good(s, id, "239.7.7.7");
	union ibv_gid gid = group_gid("239.7.7.7");
	say_result("detach", ibv_detach_mcast(id->qp, &gid, 0));
	close_qp(&c);
	MUST(rdma_destroy_id(id));
}

/* ---- datagrams ---- */

static void receive_one(struct conn *c, const char *from)
{
	struct ibv_wc wc;

	if (rdma_get_recv_comp(c->id, &wc) != 1 || wc.status)
		say("receive: %s", ibv_wc_status_str(wc.status));
	const uint8_t *at = c->buf + MESSAGE_BYTES;
	bool own = pattern_holds(at + GRH, DATAGRAM, c->seed_out);
	say("%s: %u bytes, GRH %d, %s, to 239.7.7.7 %d", from, wc.byte_len,
		!!(wc.wc_flags & IBV_WC_GRH),
		own                                             ? "its own"
		: pattern_holds(at + GRH, DATAGRAM, c->seed_in) ? "the other's"
								: "WRONG",
		!memcmp(at + GRH - 4, "\xef\x07\x07\x07", 4));
}

static void send_one(struct conn *c, const struct event *e)
{
	struct ibv_ah_attr attr = e->ud.ah_attr;
	struct ibv_ah *ah = ibv_create_ah(c->id->pd, &attr);
	struct ibv_wc wc;

	if (!ah)
		give_up("no address handle: %s", errno_name(errno));
	MUST(rdma_post_ud_send(
		c->id, NULL, c->buf, DATAGRAM, c->mr, IBV_SEND_SIGNALED, ah, e->ud.qp_num));
	if (rdma_get_send_comp(c->id, &wc) != 1 || wc.status)
		say("send: %s", ibv_wc_status_str(wc.status));
	MUST(ibv_destroy_ah(ah));
}

static void leave_and_close(struct side *s, struct conn *c)
{
	struct rdma_cm_id *id = c->id;

	say_leave("leave", id, "239.7.7.7");
	close_qp(c);
	MUST(rdma_destroy_id(id));
}

/* Each sends one: both get both, the sender its own as well. */
void multicast_traffic_server(struct side *s)
{
	struct rdma_cm_id *id = bound(s, RDMA_PS_UDP);
	struct conn c;

	open_qp(&c, id, s);
	struct event e = join(s, id, "239.7.7.7");
	tell(s, 0);
	receive_one(&c, "the client sends");
	conn_post_receive(&c);
	tell(s, 0);
	hear(s);
	send_one(&c, &e);
	receive_one(&c, "the server sends");
	hear(s);
	leave_and_close(s, &c);
}

void multicast_traffic_client(struct side *s)
{
	struct rdma_cm_id *id = bound(s, RDMA_PS_UDP);
	struct conn c;

	open_qp(&c, id, s);
	struct event e = join(s, id, "239.7.7.7");
	hear(s);
	send_one(&c, &e);
	receive_one(&c, "the client sends");
	conn_post_receive(&c);
	hear(s);
	tell(s, 0);
	receive_one(&c, "the server sends");
	tell(s, 0);
	leave_and_close(s, &c);
}
