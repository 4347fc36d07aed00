/* SPDX-License-Identifier: BSD-3-Clause */
/* cm.c - rdma_cm: both sides of a connection are ids of this process, each with a channel of its
 * own. */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 5000, PDATA = 256 };

struct heard {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id;
	struct rdma_conn_param conn;
	struct rdma_ud_param ud;
	uint8_t pdata[PDATA];
	unsigned pdata_len;
};

/* The server's listener, the id of the request; the client's id. */
struct ends {
	struct rdma_event_channel *server, *client;
	struct rdma_cm_id *listener, *accepted, *id;
	struct heard heard;
};

static const char *word(enum rdma_cm_event_type type)
{
	return rdma_event_str(type) + strlen("RDMA_CM_EVENT_");
}

static struct rdma_event_channel *channel(void)
{
	struct rdma_event_channel *c = rdma_create_event_channel();

	MUST(c);
	return c;
}

static struct rdma_cm_id *id_on(struct rdma_event_channel *c, enum rdma_port_space ps)
{
	struct rdma_cm_id *id;

	MUST(!rdma_create_id(c, &id, NULL, ps));
	return id;
}

/* The next event within `ms`, copied and acknowledged. */
static bool hear(struct rdma_event_channel *c, struct heard *h, int ms)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	struct rdma_cm_event *e;
	const void *data;

	*h = (struct heard){.status = -1};
	if (poll(&p, 1, ms) != 1 || rdma_get_cm_event(c, &e))
		return false;
	h->type = e->event;
	h->status = e->status;
	h->id = e->id;
	if (e->id->ps == RDMA_PS_TCP) {
		h->conn = e->param.conn;
		data = e->param.conn.private_data;
		h->pdata_len = data ? e->param.conn.private_data_len : 0;
	} else {
		h->ud = e->param.ud;
		data = e->param.ud.private_data;
		h->pdata_len = data ? e->param.ud.private_data_len : 0;
	}
	if (h->pdata_len)
		memcpy(h->pdata, data, h->pdata_len);
	rdma_ack_cm_event(e);
	return true;
}

static void say_event(const char *who, struct rdma_event_channel *c, int ms)
{
	struct heard h;

	if (hear(c, &h, ms))
		say("%s: %s %d", who, word(h.type), h.status);
	else
		say("%s: no event", who);
}

/* All of one side's, in their order. */
static void say_all(const char *who, struct rdma_event_channel *c, int ms)
{
	char text[200] = "";
	struct heard h;

	while (hear(c, &h, ms)) {
		size_t len = strlen(text);

		snprintf(text + len, sizeof(text) - len, "%s%s %d", len ? ", " : "", word(h.type),
			h.status);
	}
	say("%s: %s", who, *text ? text : "no event");
}

static struct sockaddr *at(const struct sockaddr_in *address, int port)
{
	static struct sockaddr_in copy[4];
	static unsigned n;
	struct sockaddr_in *out = &copy[n++ % 4];

	*out = *address;
	out->sin_port = htons((uint16_t)port);
	return (struct sockaddr *)out;
}

static struct sockaddr *ip4(const char *text, int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET};

	inet_pton(AF_INET, text, &address.sin_addr);
	return at(&address, port);
}

/* A port at which nobody listens, bound so that it stays so. */
static int quiet_port(enum rdma_port_space ps)
{
	struct rdma_cm_id *id = id_on(channel(), ps);

	MUST(!rdma_bind_addr(id, at(&host, 0)));
	return ntohs(rdma_get_src_port(id));
}

static void listen_on(struct ends *e, enum rdma_port_space ps, int backlog)
{
	*e = (struct ends){.server = channel(), .client = channel()};
	e->listener = id_on(e->server, ps);
	MUST(!rdma_bind_addr(e->listener, at(&host, 0)));
	MUST(!rdma_listen(e->listener, backlog));
}

static int port_of(const struct rdma_cm_id *id)
{
	return ntohs(rdma_get_src_port((struct rdma_cm_id *)id));
}

static struct rdma_cm_id *resolved(struct rdma_event_channel *c, enum rdma_port_space ps, int port)
{
	struct rdma_cm_id *id = id_on(c, ps);
	struct heard h;

	MUST(!rdma_resolve_addr(id, NULL, at(&host, port), 2000));
	MUST(hear(c, &h, WAIT_MS) && h.type == RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(!rdma_resolve_route(id, 2000));
	MUST(hear(c, &h, WAIT_MS) && h.type == RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

static void add_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.cap = {4, 4, 1, 1, 0}, .qp_type = id->ps == RDMA_PS_TCP ? IBV_QPT_RC : IBV_QPT_UD};

	MUST(!rdma_create_qp(id, NULL, &init));
}

static const struct rdma_conn_param usual_param = {
	.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};

/* Up to the request. */
static void request(struct ends *e, const struct rdma_conn_param *param)
{
	struct rdma_conn_param copy = param ? *param : usual_param;

	listen_on(e, RDMA_PS_TCP, 4);
	e->id = resolved(e->client, RDMA_PS_TCP, port_of(e->listener));
	add_qp(e->id);
	MUST(!rdma_connect(e->id, &copy));
	MUST(hear(e->server, &e->heard, WAIT_MS) && e->heard.type == RDMA_CM_EVENT_CONNECT_REQUEST);
	e->accepted = e->heard.id;
}

static void connect_ends(struct ends *e)
{
	struct rdma_conn_param copy = usual_param;
	struct heard h;

	request(e, NULL);
	add_qp(e->accepted);
	MUST(!rdma_accept(e->accepted, &copy));
	MUST(hear(e->client, &h, WAIT_MS) && h.type == RDMA_CM_EVENT_ESTABLISHED);
	MUST(hear(e->server, &h, WAIT_MS) && h.type == RDMA_CM_EVENT_ESTABLISHED);
}

/* ---- connections ---- */

static void ask_connect(const struct question *q)
{
	struct rdma_conn_param copy = usual_param;
	struct ends e;

	(void)q;
	request(&e, NULL);
	add_qp(e.accepted);
	say_rc("rdma_accept", rdma_accept(e.accepted, &copy));
	say_all("client", e.client, 400);
	say_all("server", e.server, 400);
}

static void ask_no_qp(const struct question *q)
{
	struct rdma_conn_param copy = usual_param;
	struct ends e;

	(void)q;
	listen_on(&e, RDMA_PS_TCP, 4);
	e.id = resolved(e.client, RDMA_PS_TCP, port_of(e.listener));
	copy.qp_num = 17;
	say_rc("rdma_connect", rdma_connect(e.id, &copy));
	MUST(hear(e.server, &e.heard, WAIT_MS));
	say("request for QP %u", e.heard.conn.qp_num);
	copy.qp_num = 18;
	say_rc("rdma_accept", rdma_accept(e.heard.id, &copy));
	MUST(hear(e.client, &e.heard, WAIT_MS));
	say("client: %s %d, QP %u", word(e.heard.type), e.heard.status, e.heard.conn.qp_num);
	say_rc("rdma_establish", rdma_establish(e.id));
	say_all("server", e.server, 400);
	say_all("client", e.client, 200);
}

static void say_conn(const char *who, const struct rdma_conn_param *p)
{
	say("%s: responder_resources %u, initiator_depth %u, flow_control %u, retry_count %u, "
	    "rnr_retry_count %u, srq %u",
		who, p->responder_resources, p->initiator_depth, p->flow_control, p->retry_count,
		p->rnr_retry_count, p->srq);
}

static void ask_parameters(const struct question *q)
{
	struct rdma_conn_param param = {.responder_resources = 3,
		.initiator_depth = 5,
		.flow_control = 1,
		.retry_count = 6,
		.rnr_retry_count = 5};
	struct ends e;

	(void)q;
	request(&e, &param);
	say_conn("request", &e.heard.conn);
	add_qp(e.accepted);
	param = (struct rdma_conn_param){.responder_resources = 4,
		.initiator_depth = 2,
		.flow_control = 1,
		.retry_count = 1,
		.rnr_retry_count = 3};
	MUST(!rdma_accept(e.accepted, &param));
	MUST(hear(e.client, &e.heard, WAIT_MS));
	say_conn("reply", &e.heard.conn);
}

static void ask_no_parameters(const struct question *q)
{
	struct ends e;

	(void)q;
	listen_on(&e, RDMA_PS_TCP, 4);
	e.id = resolved(e.client, RDMA_PS_TCP, port_of(e.listener));
	add_qp(e.id);
	say_rc("rdma_connect", rdma_connect(e.id, NULL));
	MUST(hear(e.server, &e.heard, WAIT_MS));
	say_conn("request", &e.heard.conn);
	add_qp(e.heard.id);
	say_rc("rdma_accept", rdma_accept(e.heard.id, NULL));
	MUST(hear(e.client, &e.heard, WAIT_MS));
	say_conn("reply", &e.heard.conn);
}

static void ask_much(const struct question *q)
{
	struct rdma_conn_param param = usual_param;
	struct ends e;

	param.responder_resources = (uint8_t)q->a;
	param.initiator_depth = (uint8_t)q->a;
	param.retry_count = (uint8_t)q->b;
	param.rnr_retry_count = (uint8_t)q->b;
	listen_on(&e, RDMA_PS_TCP, 4);
	e.id = resolved(e.client, RDMA_PS_TCP, port_of(e.listener));
	add_qp(e.id);
	say_rc("rdma_connect", rdma_connect(e.id, &param));
	if (hear(e.server, &e.heard, 1000))
		say_conn("request", &e.heard.conn);
	else
		say("no request");
}

/* a: the length of the private data. */
static void ask_request_data(const struct question *q)
{
	struct rdma_conn_param param = usual_param;
	uint8_t data[PDATA];
	struct ends e;

	pattern_fill(data, sizeof(data), 31);
	param.private_data = data;
	param.private_data_len = (uint8_t)q->a;
	listen_on(&e, RDMA_PS_TCP, 4);
	e.id = resolved(e.client, RDMA_PS_TCP, port_of(e.listener));
	add_qp(e.id);
	say_rc("rdma_connect", rdma_connect(e.id, &param));
	if (!hear(e.server, &e.heard, 1000))
		return;
	say("%u bytes heard", e.heard.pdata_len);
	if (!pattern_holds(e.heard.pdata, (size_t)q->a, 31))
		wrong_bytes("private data of a request");
}

static void ask_reply_data(const struct question *q)
{
	struct rdma_conn_param param = usual_param;
	uint8_t data[PDATA];
	struct ends e;

	request(&e, NULL);
	add_qp(e.accepted);
	pattern_fill(data, sizeof(data), 32);
	param.private_data = data;
	param.private_data_len = (uint8_t)q->a;
	say_rc("rdma_accept", rdma_accept(e.accepted, &param));
	if (!hear(e.client, &e.heard, 1000))
		return;
	say("%s, %u bytes heard", word(e.heard.type), e.heard.pdata_len);
	if (e.heard.type == RDMA_CM_EVENT_ESTABLISHED &&
		!pattern_holds(e.heard.pdata, (size_t)q->a, 32))
		wrong_bytes("private data of a reply");
}

static void ask_reject(const struct question *q)
{
	uint8_t data[PDATA];
	struct ends e;

	request(&e, NULL);
	pattern_fill(data, sizeof(data), 33);
	say_rc("rdma_reject", rdma_reject(e.accepted, data, (uint8_t)q->a));
	if (!hear(e.client, &e.heard, 1000)) {
		say("no event");
		return;
	}
	say("%s %d, %u bytes heard", word(e.heard.type), e.heard.status, e.heard.pdata_len);
	if (e.heard.pdata_len && !pattern_holds(e.heard.pdata, (size_t)q->a, 33))
		wrong_bytes("private data of a rejection");
}

static void ask_reject_twice(const struct question *q)
{
	struct rdma_conn_param copy = usual_param;
	struct ends e;

	(void)q;
	request(&e, NULL);
	say_rc("reject", rdma_reject(e.accepted, NULL, 0));
	say_rc("again", rdma_reject(e.accepted, NULL, 0));
	say_rc("accept", rdma_accept(e.accepted, &copy));
}

static void ask_nobody(const struct question *q)
{
	struct rdma_conn_param copy = usual_param;
	struct rdma_event_channel *c = channel();
	struct rdma_cm_id *id = resolved(c, RDMA_PS_TCP, quiet_port(RDMA_PS_TCP));

	(void)q;
	add_qp(id);
	MUST(!rdma_connect(id, &copy));
	say_event("client", c, WAIT_MS);
	say_rc("connecting again", rdma_connect(id, &copy));
	say("QP %s", state_word(state_of(id->qp)));
}

static void ask_drop_request(const struct question *q)
{
	struct ends e;

	request(&e, NULL);
	say_rc("rdma_destroy_id", rdma_destroy_id(q->a ? e.listener : e.accepted));
	say_event("client", e.client, 1500);
	if (q->a) {
		struct rdma_conn_param copy = usual_param;

		add_qp(e.accepted);
		say_rc("rdma_accept", rdma_accept(e.accepted, &copy));
		say_event("client", e.client, WAIT_MS);
	}
}

/* Requests that the program has not taken from its channel. */
static void ask_unheard(const struct question *q)
{
	struct rdma_conn_param copy = usual_param;
	struct ends e;

	(void)q;
	listen_on(&e, RDMA_PS_TCP, 4);
	e.id = resolved(e.client, RDMA_PS_TCP, port_of(e.listener));
	add_qp(e.id);
	MUST(!rdma_connect(e.id, &copy));
	sleep_ms(300);
	say_rc("rdma_destroy_id of the listener", rdma_destroy_id(e.listener));
	say_event("client", e.client, 1500);
}

static void ask_backlog(const struct question *q)
{
	struct rdma_conn_param copy = usual_param;
	struct ends e;
	int n = 0;

	listen_on(&e, RDMA_PS_TCP, (int)q->a);
	for (int i = 0; i < 4; i++) {
		struct rdma_cm_id *id = resolved(e.client, RDMA_PS_TCP, port_of(e.listener));

		add_qp(id);
		MUST(!rdma_connect(id, &copy));
		sleep_ms(50);
	}
	say_event("clients", e.client, 700);
	/* Those that wait already: each that is taken makes room for one that is repeated. */
	while (hear(e.server, &e.heard, 0))
		n++;
	say("%d of 4 requests heard at once", n);
}

static void ask_client_leaves(const struct question *q)
{
	struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct rdma_conn_param copy = usual_param;
	struct ends e;

	(void)q;
	request(&e, NULL);
	rdma_destroy_qp(e.id);
	say_rc("rdma_destroy_id", rdma_destroy_id(e.id));
	say_event("server", e.server, 500);
	say_rc("rdma_create_qp", rdma_create_qp(e.accepted, NULL, &init));
	copy.qp_num = 17;
	say_rc("rdma_accept", rdma_accept(e.accepted, &copy));
	say_event("server", e.server, 700);
}

/* ---- ends ---- */

static void ask_disconnect(const struct question *q)
{
	struct ends e;

	connect_ends(&e);
	say_rc("rdma_disconnect", rdma_disconnect(q->a ? e.accepted : e.id));
	say_event("server", e.server, 2000);
	say_event("client", e.client, 2000);
	say("QPs: server %s, client %s", state_word(state_of(e.accepted->qp)),
		state_word(state_of(e.id->qp)));
	say_rc("the other's rdma_disconnect", rdma_disconnect(q->a ? e.id : e.accepted));
	say_rc("again", rdma_disconnect(q->a ? e.accepted : e.id));
}

static void ask_timewait(const struct question *q)
{
	struct ends e;
	struct heard h;

	(void)q;
	connect_ends(&e);
	MUST(!rdma_disconnect(e.id));
	MUST(hear(e.server, &h, 2000) && h.type == RDMA_CM_EVENT_DISCONNECTED);
	MUST(!rdma_disconnect(e.accepted));
	MUST(hear(e.client, &h, 2000) && h.type == RDMA_CM_EVENT_DISCONNECTED);
	say_event("client", e.client, 8000);
	say_event("server", e.server, 3000);
}

static void ask_drop(const struct question *q)
{
	struct ends e;

	connect_ends(&e);
	if (!q->a)
		rdma_destroy_qp(e.id);
	say_rc("rdma_destroy_id", rdma_destroy_id(e.id));
	say_event("server", e.server, 2000);
	say("its QP %s", state_word(state_of(e.accepted->qp)));
}

static void ask_drop_listener(const struct question *q)
{
	struct ends e;

	(void)q;
	connect_ends(&e);
	say_rc("rdma_destroy_id of the listener", rdma_destroy_id(e.listener));
	say_event("server", e.server, 300);
	say_event("client", e.client, 300);
	say("QPs: server %s, client %s", state_word(state_of(e.accepted->qp)),
		state_word(state_of(e.id->qp)));
}

/* An endpoint whose QP is in ERR still says goodbye. */
static void ask_error_then(const struct question *q)
{
	struct ends e;

	(void)q;
	connect_ends(&e);
	MUST(!to_state(e.id->qp, IBV_QPS_ERR));
	say_event("client", e.client, 300);
	say_event("server", e.server, 300);
	say_rc("rdma_disconnect", rdma_disconnect(e.id));
	say_event("server", e.server, 2000);
}

/* ---- the QP ---- */

static void ask_qp_states(const struct question *q)
{
	struct rdma_conn_param copy = usual_param;
	struct ends e;

	(void)q;
	listen_on(&e, RDMA_PS_TCP, 4);
	e.id = resolved(e.client, RDMA_PS_TCP, port_of(e.listener));
	add_qp(e.id);
	say("made: %s", state_word(state_of(e.id->qp)));
	MUST(!rdma_connect(e.id, &copy));
	MUST(hear(e.server, &e.heard, WAIT_MS));
	say("asking: %s", state_word(state_of(e.id->qp)));
	e.accepted = e.heard.id;
	add_qp(e.accepted);
	say("server's made: %s", state_word(state_of(e.accepted->qp)));
	MUST(!rdma_accept(e.accepted, &copy));
	say("accepted: %s", state_word(state_of(e.accepted->qp)));
	MUST(hear(e.client, &e.heard, WAIT_MS));
	say("established: %s", state_word(state_of(e.id->qp)));
}

static void ask_qp_attr(const struct question *q)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;
	struct ends e;

	connect_ends(&e);
	MUST(!ibv_query_qp(q->a ? e.accepted->qp : e.id->qp, &a, 0x1fffff, &init));
	say("timeout %u, retry_cnt %u, rnr_retry %u, min_rnr_timer %u, path_mtu %d, access %#x, "
	    "max_rd_atomic %u, max_dest_rd_atomic %u, hop_limit %u, sl %u",
		a.timeout, a.retry_cnt, a.rnr_retry, a.min_rnr_timer, a.path_mtu, a.qp_access_flags,
		a.max_rd_atomic, a.max_dest_rd_atomic, a.ah_attr.grh.hop_limit, a.ah_attr.sl);
}

/* rdma_init_qp_attr in the states of an id. */
static void ask_init_attr(const struct question *q)
{
	struct rdma_cm_id *id = resolved(channel(), RDMA_PS_TCP, quiet_port(RDMA_PS_TCP));
	struct ibv_qp_attr a = {.qp_state = (enum ibv_qp_state)q->a};
	int mask = 0, rc = rdma_init_qp_attr(id, &a, &mask);

	say("%s, mask %#x", errno_word(rc), mask);
	if (!rc)
		say("access %#x", a.qp_access_flags);
}

enum { UNRESOLVED, TWICE, RAW, UD_IN_TCP, CAPS };

static void ask_create_qp(const struct question *q)
{
	struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct rdma_cm_id *id = q->a == UNRESOLVED
					? id_on(channel(), RDMA_PS_TCP)
					: resolved(channel(), RDMA_PS_TCP, quiet_port(RDMA_PS_TCP));

	if (q->a == TWICE)
		add_qp(id);
	if (q->a == RAW)
		init.qp_type = IBV_QPT_RAW_PACKET;
	if (q->a == UD_IN_TCP)
		init.qp_type = IBV_QPT_UD;
	if (q->a == CAPS)
		init.cap.max_send_sge = 1000;
	say_rc("rdma_create_qp", rdma_create_qp(id, NULL, &init));
}

/* ---- ports and addresses ---- */

static void ask_bind(const struct question *q)
{
	struct rdma_cm_id *id = id_on(channel(), RDMA_PS_TCP);
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
	struct sockaddr other = {.sa_family = AF_UNIX};
	struct sockaddr *to = q->a == 0   ? at(&host, 0)
			      : q->a == 1 ? ip4("0.0.0.0", 0)
			      : q->a == 2 ? ip4("203.0.113.9", 0)
			      : q->a == 3 ? (struct sockaddr *)&six
			      : q->a == 4 ? &other
			      : q->a == 5 ? ip4("239.7.7.7", 0)
			      : q->a == 6 ? ip4("255.255.255.255", 0)
					  : ip4("127.0.0.1", 0);

	say_rc("rdma_bind_addr", rdma_bind_addr(id, to));
	say("port %s, verbs %s, port_num %u", rdma_get_src_port(id) ? "given" : "none",
		id->verbs ? "set" : "NULL", id->port_num);
}

static void ask_bind_again(const struct question *q)
{
	struct rdma_cm_id *id = id_on(channel(), RDMA_PS_TCP);

	(void)q;
	MUST(!rdma_bind_addr(id, at(&host, 0)));
	say_rc("rdma_bind_addr", rdma_bind_addr(id, at(&host, 0)));
}

/* a: the first's address is any; b: the second's; both at one port. */
static void ask_bind_taken(const struct question *q)
{
	struct rdma_cm_id *first = id_on(channel(), RDMA_PS_TCP),
			  *second = id_on(channel(), RDMA_PS_TCP),
			  *udp = id_on(channel(), RDMA_PS_UDP);

	MUST(!rdma_bind_addr(first, q->a ? ip4("0.0.0.0", 0) : at(&host, 0)));
	say_rc("same port", rdma_bind_addr(second, q->b ? ip4("0.0.0.0", port_of(first))
							: at(&host, port_of(first))));
	say_rc("in the UDP port space", rdma_bind_addr(udp, at(&host, port_of(first))));
}

static void ask_reuse(const struct question *q)
{
	struct rdma_cm_id *a = id_on(channel(), RDMA_PS_TCP), *b = id_on(channel(), RDMA_PS_TCP);
	int on = 1;

	(void)q;
	MUST(!rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
	MUST(!rdma_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
	MUST(!rdma_bind_addr(a, at(&host, 0)));
	say_rc("bind the second", rdma_bind_addr(b, at(&host, port_of(a))));
	say_rc("listen on the first", rdma_listen(a, 4));
	say_rc("listen on the second", rdma_listen(b, 4));
}

enum { UNBOUND, LISTEN_TWICE, BACKLOG_0, BACKLOG_NEGATIVE, RESOLVED, CONNECTED };

static void ask_listen(const struct question *q)
{
	struct rdma_cm_id *id;
	struct ends e;

	if (q->a == RESOLVED) {
		id = resolved(channel(), RDMA_PS_TCP, quiet_port(RDMA_PS_TCP));
	} else if (q->a == CONNECTED) {
		connect_ends(&e);
		id = e.id;
	} else {
		id = id_on(channel(), RDMA_PS_TCP);
		if (q->a != UNBOUND)
			MUST(!rdma_bind_addr(id, at(&host, 0)));
		if (q->a == LISTEN_TWICE)
			MUST(!rdma_listen(id, 4));
	}
	say_rc("rdma_listen", rdma_listen(id, q->a == BACKLOG_0          ? 0
					      : q->a == BACKLOG_NEGATIVE ? -1
									 : 4));
	if (q->a == UNBOUND)
		say("port %s", rdma_get_src_port(id) ? "given" : "none");
}

enum {
	TO_ABSENT,
	TO_NO_ROUTE,
	TO_ANY,
	TO_PORT_0,
	TO_BROADCAST,
	TO_GROUP,
	TO_LOOPBACK,
	FROM_FOREIGN,
	TIMEOUT_0,
	RESOLVE_TWICE,
	TO_SELF,
	FAMILIES
};

static void ask_resolve(const struct question *q)
{
	struct rdma_event_channel *c = channel();
	struct rdma_cm_id *id = id_on(c, RDMA_PS_TCP);
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr *to = q->a == TO_ABSENT      ? at(&absent, 7471)
			      : q->a == TO_NO_ROUTE  ? ip4("203.0.113.9", 7471)
			      : q->a == TO_ANY       ? ip4("0.0.0.0", 7471)
			      : q->a == TO_BROADCAST ? ip4("255.255.255.255", 7471)
			      : q->a == TO_GROUP     ? ip4("239.7.7.7", 7471)
			      : q->a == TO_LOOPBACK  ? ip4("127.0.0.1", 7471)
			      : q->a == FAMILIES     ? (struct sockaddr *)&six
			      : q->a == TO_PORT_0    ? at(&host, 0)
						     : at(&host, 7471);
	struct sockaddr *from = q->a == FROM_FOREIGN ? ip4("203.0.113.9", 0)
				: q->a == FAMILIES   ? at(&host, 0)
						     : NULL;
	int rc = rdma_resolve_addr(id, from, to, q->a == TIMEOUT_0 ? 0 : 1000);

	say_rc("rdma_resolve_addr", rc);
	if (rc)
		return;
	say_event("event", c, 4000);
	if (q->a == RESOLVE_TWICE)
		say_rc("again", rdma_resolve_addr(id, NULL, to, 1000));
	if (q->a == TO_SELF || q->a == TO_LOOPBACK)
		say("verbs %s, source port %s", id->verbs ? "set" : "NULL",
			rdma_get_src_port(id) ? "given" : "none");
}

enum {
	ROUTE_FIRST,
	ROUTE_TWICE,
	CONNECT_FIRST,
	CONNECT_TWICE,
	ACCEPT_CLIENT,
	ACCEPT_TWICE,
	IDLE_DISCONNECT,
	IDLE_REJECT,
	IDLE_ESTABLISH,
	IDLE_NOTIFY,
	REJECT_CONNECTED,
	LISTENER_CONNECT,
	LISTENER_REJECT,
	REQUEST_RESOLVE
};

static void ask_wrong(const struct question *q)
{
	struct rdma_conn_param copy = usual_param;
	struct rdma_cm_id *id;
	struct ends e;
	int rc;

	switch (q->a) {
	case ROUTE_FIRST:
		rc = rdma_resolve_route(id_on(channel(), RDMA_PS_TCP), 1000);
		break;
	case ROUTE_TWICE:
		rc = rdma_resolve_route(resolved(channel(), RDMA_PS_TCP, 7471), 1000);
		break;
	case CONNECT_FIRST:
		id = id_on(channel(), RDMA_PS_TCP);
		MUST(!rdma_bind_addr(id, at(&host, 0)));
		copy.qp_num = 17;
		rc = rdma_connect(id, &copy);
		break;
	case CONNECT_TWICE:
		request(&e, NULL);
		rc = rdma_connect(e.id, &copy);
		break;
	case ACCEPT_CLIENT:
		request(&e, NULL);
		rc = rdma_accept(e.id, &copy);
		break;
	case ACCEPT_TWICE:
		connect_ends(&e);
		rc = rdma_accept(e.accepted, &copy);
		break;
	case IDLE_DISCONNECT:
		rc = rdma_disconnect(id_on(channel(), RDMA_PS_TCP));
		break;
	case IDLE_REJECT:
		rc = rdma_reject(id_on(channel(), RDMA_PS_TCP), NULL, 0);
		break;
	case IDLE_ESTABLISH:
		rc = rdma_establish(id_on(channel(), RDMA_PS_TCP));
		break;
	case IDLE_NOTIFY:
		rc = rdma_notify(id_on(channel(), RDMA_PS_TCP), IBV_EVENT_COMM_EST);
		break;
	case REJECT_CONNECTED:
		connect_ends(&e);
		rc = rdma_reject(e.accepted, NULL, 0);
		break;
	case LISTENER_CONNECT:
		listen_on(&e, RDMA_PS_TCP, 4);
		copy.qp_num = 17;
		rc = rdma_connect(e.listener, &copy);
		break;
	case LISTENER_REJECT:
		listen_on(&e, RDMA_PS_TCP, 4);
		rc = rdma_reject(e.listener, NULL, 0);
		break;
	default:
		request(&e, NULL);
		rc = rdma_resolve_addr(e.accepted, NULL, at(&host, 7471), 1000);
	}
	say_rc("call", rc);
}

static void ask_space(const struct question *q)
{
	struct rdma_cm_id *id = NULL;
	int rc = rdma_create_id(channel(), &id, NULL, (enum rdma_port_space)q->a);

	say_rc("rdma_create_id", rc);
	if (!rc)
		say_rc("rdma_bind_addr", rdma_bind_addr(id, at(&host, 0)));
}

static void ask_option(const struct question *q)
{
	struct rdma_cm_id *id = id_on(channel(), RDMA_PS_TCP);
	uint8_t byte = (uint8_t)q->b;
	int word4 = (int)q->b;
	bool is_byte = q->a == RDMA_OPTION_ID_TOS || q->a == RDMA_OPTION_ID_ACK_TIMEOUT;

	say_rc("rdma_set_option",
		rdma_set_option(id, RDMA_OPTION_ID, (int)q->a,
			is_byte ? (void *)&byte : (void *)&word4, is_byte ? 1 : sizeof(word4)));
}

static void ask_option_odd(const struct question *q)
{
	struct rdma_cm_id *id = id_on(channel(), RDMA_PS_TCP);
	int value = 0;

	if (q->a == 0)
		say_rc("rdma_set_option",
			rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &value, 4));
	else if (q->a == 1)
		say_rc("rdma_set_option", rdma_set_option(id, 77, 0, &value, 4));
	else
		say_rc("rdma_set_option",
			rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &value, 4));
}

/* The type of service is that of the address vector. */
static void ask_tos(const struct question *q)
{
	struct ibv_qp_init_attr init;
	struct rdma_conn_param copy = usual_param;
	struct ibv_qp_attr a;
	struct ends e;
	struct heard h;
	uint8_t tos = 0x28;

	(void)q;
	listen_on(&e, RDMA_PS_TCP, 4);
	e.id = id_on(e.client, RDMA_PS_TCP);
	MUST(!rdma_set_option(e.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1));
	MUST(!rdma_resolve_addr(e.id, NULL, at(&host, port_of(e.listener)), 2000));
	MUST(hear(e.client, &h, WAIT_MS) && !rdma_resolve_route(e.id, 2000) &&
		hear(e.client, &h, WAIT_MS));
	add_qp(e.id);
	MUST(!rdma_connect(e.id, &copy) && hear(e.server, &h, WAIT_MS));
	add_qp(h.id);
	e.accepted = h.id;
	MUST(!rdma_accept(h.id, &copy) && hear(e.client, &h, WAIT_MS));
	MUST(!ibv_query_qp(e.id->qp, &a, IBV_QP_AV, &init));
	say("client: traffic_class %#x, sl %u", a.ah_attr.grh.traffic_class, a.ah_attr.sl);
	MUST(!ibv_query_qp(e.accepted->qp, &a, IBV_QP_AV, &init));
	say("server: traffic_class %#x, sl %u", a.ah_attr.grh.traffic_class, a.ah_attr.sl);
}

static void ask_migrate(const struct question *q)
{
	struct ends e;
	struct rdma_event_channel *other = channel();

	(void)q;
	connect_ends(&e);
	say_rc("rdma_migrate_id", rdma_migrate_id(e.accepted, other));
	MUST(!rdma_disconnect(e.id));
	say_event("old channel", e.server, 500);
	say_event("new channel", other, 500);
}

static void ask_no_event(const struct question *q)
{
	struct rdma_event_channel *c = channel();
	struct rdma_cm_event *e;

	(void)q;
	MUST(!fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK));
	say_rc("rdma_get_cm_event", rdma_get_cm_event(c, &e));
}

static void ask_names(const struct question *q)
{
	struct ends e;
	const struct sockaddr_in *peer, *local;

	(void)q;
	connect_ends(&e);
	peer = (const struct sockaddr_in *)rdma_get_peer_addr(e.accepted);
	local = (const struct sockaddr_in *)rdma_get_local_addr(e.accepted);
	say("server's id: peer %s, its port %s, own port %s",
		peer->sin_addr.s_addr == host.sin_addr.s_addr ? "right" : "wrong",
		peer->sin_port == rdma_get_src_port(e.id) ? "right" : "wrong",
		local->sin_port == rdma_get_src_port(e.listener) ? "the listener's" : "another");
	say("context %s, port space %#x, qp_type %d, pd %s, verbs %s",
		e.accepted->context == e.listener->context ? "the listener's" : "another",
		e.accepted->ps, e.accepted->qp_type,
		e.accepted->pd == e.id->pd ? "shared" : "its own",
		e.accepted->verbs == e.id->verbs ? "shared" : "its own");
}

/* ---- the calls that wait ---- */

static void ask_sync(const struct question *q)
{
	struct rdma_conn_param copy = usual_param;
	struct rdma_cm_id *id;
	int rc;

	MUST(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	if (q->a) {
		say_rc("rdma_resolve_addr",
			rdma_resolve_addr(id, NULL, ip4("203.0.113.9", 7471), 1000));
		return;
	}
	say_rc("rdma_resolve_addr",
		rdma_resolve_addr(id, NULL, at(&host, quiet_port(RDMA_PS_TCP)), 1000));
	say_rc("rdma_resolve_route", rdma_resolve_route(id, 1000));
	add_qp(id);
	rc = rdma_connect(id, &copy);
	say_rc("rdma_connect", rc);
	say("event %s", id->event ? word(id->event->event) : "none");
}

static void ask_getaddrinfo(const struct question *q)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = (int)q->a}, *res;
	char text[INET_ADDRSTRLEN];
	int rc;

	inet_ntop(AF_INET, &host.sin_addr, text, sizeof(text));
	rc = rdma_getaddrinfo(q->b ? "no.such.host.invalid" : text, "7471", &hints, &res);
	if (rc) {
		say("fails");
		return;
	}
	say("source %s, destination %s, QP type %d, port space %#x, routes %s",
		res->ai_src_len ? "given" : "none", res->ai_dst_len ? "given" : "none",
		res->ai_qp_type, res->ai_port_space, res->ai_route_len ? "given" : "none");
}

/* ---- UDP ---- */

static void ask_udp(const struct question *q)
{
	struct rdma_conn_param param = {.private_data = "looking", .private_data_len = 8};
	struct ends e;

	listen_on(&e, RDMA_PS_UDP, 4);
	e.id = resolved(
		e.client, RDMA_PS_UDP, q->a == 2 ? quiet_port(RDMA_PS_UDP) : port_of(e.listener));
	add_qp(e.id);
	say("QP %s", state_word(state_of(e.id->qp)));
	say_rc("rdma_connect", rdma_connect(e.id, &param));
	if (q->a != 2) {
		MUST(hear(e.server, &e.heard, WAIT_MS));
		say("server: %s %d, %u bytes", word(e.heard.type), e.heard.status,
			e.heard.pdata_len);
		if (q->a) {
			say_rc("rdma_reject", rdma_reject(e.heard.id, "no", 3));
		} else {
			add_qp(e.heard.id);
			param.private_data = "found";
			param.qp_num = e.heard.id->qp->qp_num;
			say_rc("rdma_accept", rdma_accept(e.heard.id, &param));
		}
	}
	if (!hear(e.client, &e.heard, WAIT_MS)) {
		say("client: no event");
		return;
	}
	say("client: %s %d, %u bytes, Q_Key %#x", word(e.heard.type), e.heard.status,
		e.heard.pdata_len, e.heard.ud.qkey);
	say_all("server", e.server, 300);
}

static void ask_udp_data(const struct question *q)
{
	struct rdma_conn_param param = {.private_data_len = (uint8_t)q->a};
	uint8_t data[PDATA] = {0};
	struct ends e;

	param.private_data = data;
	listen_on(&e, RDMA_PS_UDP, 4);
	e.id = resolved(e.client, RDMA_PS_UDP, port_of(e.listener));
	add_qp(e.id);
	say_rc("rdma_connect", rdma_connect(e.id, &param));
}

/* ---- groups ---- */

enum {
	JOIN,
	JOIN_TWICE,
	JOIN_HOST,
	JOIN_TCP,
	JOIN_UNBOUND,
	LEAVE_NONE,
	JOIN_NO_QP,
	JOIN_SIX,
	JOIN_SEND_ONLY
};

static void ask_join(const struct question *q)
{
	struct rdma_event_channel *c = channel();
	struct rdma_cm_id *id = id_on(c, q->a == JOIN_TCP ? RDMA_PS_TCP : RDMA_PS_UDP);
	struct sockaddr *group = ip4(q->a == JOIN_HOST ? "10.9.0.77" : "239.7.7.7", 0);
	struct sockaddr_in6 six = {.sin6_family = AF_INET6};
	struct rdma_cm_join_mc_attr_ex ex = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
		.addr = group};
	struct heard h;
	int rc;

	if (q->a != JOIN_UNBOUND)
		MUST(!rdma_bind_addr(id, at(&host, 0)));
	if (q->a != JOIN_UNBOUND && q->a != JOIN_NO_QP && q->a != JOIN_TCP)
		add_qp(id);
	if (q->a == LEAVE_NONE) {
		say_rc("rdma_leave_multicast", rdma_leave_multicast(id, group));
		return;
	}
	inet_pton(AF_INET6, "ff0e::7777", &six.sin6_addr);
	rc = q->a == JOIN_SEND_ONLY ? rdma_join_multicast_ex(id, &ex, NULL)
	     : q->a == JOIN_SIX     ? rdma_join_multicast(id, (struct sockaddr *)&six, NULL)
				    : rdma_join_multicast(id, group, NULL);
	say_rc("join", rc);
	if (rc)
		return;
	if (!hear(c, &h, WAIT_MS)) {
		say("no event");
		return;
	}
	say("%s %d, QPN %#x, Q_Key %#x", word(h.type), h.status, h.ud.qp_num, h.ud.qkey);
	if (q->a == JOIN_TWICE) {
		say_rc("again", rdma_join_multicast(id, group, NULL));
		say_event("event", c, 1000);
	}
	if (q->a == JOIN) {
		say_rc("leave", rdma_leave_multicast(id, group));
		say_rc("again", rdma_leave_multicast(id, group));
	}
}

const struct question cm_questions[] = {{"cm.connect", "connecting", ask_connect, 0, 0},
	{"cm.own_qp", "connecting without a QP of librdmacm", ask_no_qp, 0, 0},
	{"cm.parameters", "what the parameters of connect and accept become", ask_parameters, 0, 0},
	{"cm.no_parameters", "rdma_connect and rdma_accept without parameters", ask_no_parameters,
		0, 0},
	{"cm.resources_200", "rdma_connect with 200 READs", ask_much, 200, 7},
	{"cm.retry_count_9", "rdma_connect with retry counts of 9", ask_much, 1, 9},
	{"cm.request_data_10", "10 bytes in a request", ask_request_data, 10, 0},
	{"cm.request_data_56", "56 bytes in a request", ask_request_data, 56, 0},
	{"cm.request_data_57", "57 bytes in a request", ask_request_data, 57, 0},
	{"cm.reply_data_10", "10 bytes in a reply", ask_reply_data, 10, 0},
	{"cm.reply_data_196", "196 bytes in a reply", ask_reply_data, 196, 0},
	{"cm.reply_data_197", "197 bytes in a reply", ask_reply_data, 197, 0},
	{"cm.reject", "rdma_reject", ask_reject, 0, 0},
	{"cm.reject_10", "rdma_reject with 10 bytes", ask_reject, 10, 0},
	{"cm.reject_148", "rdma_reject with 148 bytes", ask_reject, 148, 0},
	{"cm.reject_149", "rdma_reject with 149 bytes", ask_reject, 149, 0},
	{"cm.reject_twice", "rdma_reject twice, then rdma_accept", ask_reject_twice, 0, 0},
	{"cm.nobody", "no listener at the port", ask_nobody, 0, 0},
	{"cm.request_dropped", "a request whose id is destroyed", ask_drop_request, 0, 0},
	{"cm.listener_dropped", "a request whose listener is destroyed", ask_drop_request, 1, 0},
	{"cm.unheard", "a listener destroyed before its request was taken", ask_unheard, 0, 0},
	{"cm.backlog", "four requests for a backlog of 2", ask_backlog, 2, 0},
	{"cm.backlog_0", "four requests for a backlog of 0", ask_backlog, 0, 0},
	{"cm.client_leaves", "a client that leaves before the answer", ask_client_leaves, 0, 0},
	{"cm.disconnect_client", "rdma_disconnect by the client", ask_disconnect, 0, 0},
	{"cm.disconnect_server", "rdma_disconnect by the server", ask_disconnect, 1, 0},
	{"cm.timewait", "after both have disconnected", ask_timewait, 0, 0},
	{"cm.destroy", "rdma_destroy_id of a connected id", ask_drop, 0, 0},
	{"cm.destroy_with_qp", "rdma_destroy_id of a connected id that has its QP", ask_drop, 1, 0},
	{"cm.destroy_listener", "rdma_destroy_id of the listener when connected", ask_drop_listener,
		0, 0},
	{"cm.error", "a connection whose QP goes to ERR", ask_error_then, 0, 0},
	{"cm.qp_states", "the states of the QPs", ask_qp_states, 0, 0},
	{"cm.qp_client", "the attributes of the client's QP", ask_qp_attr, 0, 0},
	{"cm.qp_server", "the attributes of the server's QP", ask_qp_attr, 1, 0},
	{"cm.init_attr_INIT", "rdma_init_qp_attr for INIT", ask_init_attr, IBV_QPS_INIT, 0},
	{"cm.init_attr_RTR", "rdma_init_qp_attr for RTR before the reply", ask_init_attr,
		IBV_QPS_RTR, 0},
	{"cm.init_attr_ERR", "rdma_init_qp_attr for ERR", ask_init_attr, IBV_QPS_ERR, 0},
	{"cm.create_qp_unresolved", "rdma_create_qp before an address", ask_create_qp, UNRESOLVED,
		0},
	{"cm.create_qp_twice", "rdma_create_qp twice", ask_create_qp, TWICE, 0},
	{"cm.create_qp_raw", "rdma_create_qp of a raw packet QP", ask_create_qp, RAW, 0},
	{"cm.create_qp_ud", "rdma_create_qp of a UD QP in the TCP port space", ask_create_qp,
		UD_IN_TCP, 0},
	{"cm.create_qp_caps", "rdma_create_qp with 1000 SGEs", ask_create_qp, CAPS, 0},
	{"cm.bind_host", "rdma_bind_addr to the device's address", ask_bind, 0, 0},
	{"cm.bind_any", "rdma_bind_addr to 0.0.0.0", ask_bind, 1, 0},
	{"cm.bind_foreign", "rdma_bind_addr to another host's address", ask_bind, 2, 0},
	{"cm.bind_any_6", "rdma_bind_addr to ::", ask_bind, 3, 0},
	{"cm.bind_family", "rdma_bind_addr of another family", ask_bind, 4, 0},
	{"cm.bind_group", "rdma_bind_addr to a group", ask_bind, 5, 0},
	{"cm.bind_broadcast", "rdma_bind_addr to 255.255.255.255", ask_bind, 6, 0},
	{"cm.bind_loopback", "rdma_bind_addr to 127.0.0.1", ask_bind, 7, 0},
	{"cm.bind_twice", "rdma_bind_addr twice", ask_bind_again, 0, 0},
	{"cm.bind_taken", "rdma_bind_addr to a port that is taken", ask_bind_taken, 0, 0},
	{"cm.bind_taken_any", "0.0.0.0 where the address has the port", ask_bind_taken, 0, 1},
	{"cm.bind_taken_by_any", "the address where 0.0.0.0 has the port", ask_bind_taken, 1, 0},
	{"cm.bind_any_twice", "0.0.0.0 where 0.0.0.0 has the port", ask_bind_taken, 1, 1},
	{"cm.reuse", "two ids with RDMA_OPTION_ID_REUSEADDR", ask_reuse, 0, 0},
	{"cm.listen_unbound", "rdma_listen without an address", ask_listen, UNBOUND, 0},
	{"cm.listen_twice", "rdma_listen twice", ask_listen, LISTEN_TWICE, 0},
	{"cm.listen_0", "rdma_listen with backlog 0", ask_listen, BACKLOG_0, 0},
	{"cm.listen_negative", "rdma_listen with backlog -1", ask_listen, BACKLOG_NEGATIVE, 0},
	{"cm.listen_resolved", "rdma_listen on a resolved id", ask_listen, RESOLVED, 0},
	{"cm.listen_connected", "rdma_listen on a connected id", ask_listen, CONNECTED, 0},
	{"cm.resolve", "rdma_resolve_addr of the own address", ask_resolve, TO_SELF, 0},
	{"cm.resolve_absent", "rdma_resolve_addr of a host that does not answer", ask_resolve,
		TO_ABSENT, 0},
	{"cm.resolve_no_route", "rdma_resolve_addr where no route goes", ask_resolve, TO_NO_ROUTE,
		0},
	{"cm.resolve_any", "rdma_resolve_addr of 0.0.0.0", ask_resolve, TO_ANY, 0},
	{"cm.resolve_port_0", "rdma_resolve_addr of port 0", ask_resolve, TO_PORT_0, 0},
	{"cm.resolve_broadcast", "rdma_resolve_addr of 255.255.255.255", ask_resolve, TO_BROADCAST,
		0},
	{"cm.resolve_group", "rdma_resolve_addr of a group", ask_resolve, TO_GROUP, 0},
	{"cm.resolve_loopback", "rdma_resolve_addr of 127.0.0.1", ask_resolve, TO_LOOPBACK, 0},
	{"cm.resolve_from", "rdma_resolve_addr from another host's address", ask_resolve,
		FROM_FOREIGN, 0},
	{"cm.resolve_families", "rdma_resolve_addr from IPv4 to IPv6", ask_resolve, FAMILIES, 0},
	{"cm.resolve_timeout_0", "rdma_resolve_addr with timeout 0", ask_resolve, TIMEOUT_0, 0},
	{"cm.resolve_twice", "rdma_resolve_addr twice", ask_resolve, RESOLVE_TWICE, 0},
	{"cm.route_first", "rdma_resolve_route before the address", ask_wrong, ROUTE_FIRST, 0},
	{"cm.route_twice", "rdma_resolve_route twice", ask_wrong, ROUTE_TWICE, 0},
	{"cm.connect_first", "rdma_connect before the route", ask_wrong, CONNECT_FIRST, 0},
	{"cm.connect_twice", "rdma_connect twice", ask_wrong, CONNECT_TWICE, 0},
	{"cm.accept_client", "rdma_accept of a client's id", ask_wrong, ACCEPT_CLIENT, 0},
	{"cm.accept_twice", "rdma_accept twice", ask_wrong, ACCEPT_TWICE, 0},
	{"cm.idle_disconnect", "rdma_disconnect of an idle id", ask_wrong, IDLE_DISCONNECT, 0},
	{"cm.idle_reject", "rdma_reject of an idle id", ask_wrong, IDLE_REJECT, 0},
	{"cm.idle_establish", "rdma_establish of an idle id", ask_wrong, IDLE_ESTABLISH, 0},
	{"cm.idle_notify", "rdma_notify of an idle id", ask_wrong, IDLE_NOTIFY, 0},
	{"cm.reject_connected", "rdma_reject of a connected id", ask_wrong, REJECT_CONNECTED, 0},
	{"cm.listener_connect", "rdma_connect of a listener", ask_wrong, LISTENER_CONNECT, 0},
	{"cm.listener_reject", "rdma_reject of a listener", ask_wrong, LISTENER_REJECT, 0},
	{"cm.request_resolve", "rdma_resolve_addr of a request", ask_wrong, REQUEST_RESOLVE, 0},
	{"cm.space_ipoib", "port space IPOIB", ask_space, RDMA_PS_IPOIB, 0},
	{"cm.space_ib", "port space IB", ask_space, RDMA_PS_IB, 0},
	{"cm.space_udp", "port space UDP", ask_space, RDMA_PS_UDP, 0},
	{"cm.space_none", "a port space that is none", ask_space, 0x999, 0},
	{"cm.option_tos", "option TOS", ask_option, RDMA_OPTION_ID_TOS, 32},
	{"cm.option_afonly", "option AFONLY", ask_option, RDMA_OPTION_ID_AFONLY, 1},
	{"cm.option_timeout", "option ACK_TIMEOUT 16", ask_option, RDMA_OPTION_ID_ACK_TIMEOUT, 16},
	{"cm.option_timeout_32", "option ACK_TIMEOUT 32", ask_option, RDMA_OPTION_ID_ACK_TIMEOUT,
		32},
	{"cm.option_none", "an option that is none", ask_option, 77, 1},
	{"cm.option_length", "option TOS of 4 bytes", ask_option_odd, 0, 0},
	{"cm.option_level", "an option level that is none", ask_option_odd, 1, 0},
	{"cm.option_path", "option IB_PATH of 4 bytes", ask_option_odd, 2, 0},
	{"cm.tos", "what option TOS does", ask_tos, 0, 0},
	{"cm.migrate", "rdma_migrate_id of a connection", ask_migrate, 0, 0},
	{"cm.no_event", "rdma_get_cm_event of a nonblocking channel", ask_no_event, 0, 0},
	{"cm.names", "the addresses and objects of an accepted id", ask_names, 0, 0},
	{"cm.sync_nobody", "the waiting calls where nobody listens", ask_sync, 0, 0},
	{"cm.sync_no_route", "the waiting calls where no route goes", ask_sync, 1, 0},
	{"cm.addrinfo", "rdma_getaddrinfo", ask_getaddrinfo, 0, 0},
	{"cm.addrinfo_passive", "rdma_getaddrinfo, passive", ask_getaddrinfo, RAI_PASSIVE, 0},
	{"cm.udp", "connecting in the UDP port space", ask_udp, 0, 0},
	{"cm.udp_reject", "rdma_reject in the UDP port space", ask_udp, 1, 0},
	{"cm.udp_nobody", "no listener in the UDP port space", ask_udp, 2, 0},
	{"cm.udp_data_180", "180 bytes in a request, UDP", ask_udp_data, 180, 0},
	{"cm.udp_data_181", "181 bytes in a request, UDP", ask_udp_data, 181, 0},
	{"cm.join", "joining a group and leaving it", ask_join, JOIN, 0},
	{"cm.join_twice", "joining a group twice", ask_join, JOIN_TWICE, 0},
	{"cm.join_host", "joining a host's address", ask_join, JOIN_HOST, 0},
	{"cm.join_tcp", "joining in the TCP port space", ask_join, JOIN_TCP, 0},
	{"cm.join_unbound", "joining without an address", ask_join, JOIN_UNBOUND, 0},
	{"cm.join_no_qp", "joining without a QP", ask_join, JOIN_NO_QP, 0},
	{"cm.join_6", "an IPv4 id joining an IPv6 group", ask_join, JOIN_SIX, 0},
	{"cm.join_send_only", "joining to send only", ask_join, JOIN_SEND_ONLY, 0},
	{"cm.leave_none", "leaving a group not joined", ask_join, LEAVE_NONE, 0}, {0}};
