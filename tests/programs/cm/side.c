/* SPDX-License-Identifier: BSD-3-Clause */
/* side.c - see side.h. */
#include "side.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

const char *errno_name(int code)
{
	const char *name = strerrorname_np(code);

	return name ? name : "?";
}

void say_result(const char *call, int rc) { say("%s: %s", call, rc ? errno_name(errno) : "0"); }

void give_up(const char *format, ...)
{
	va_list args;

	printf("GAVE UP: ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
	_exit(3);
}

int must(int rc, const char *what, const char *function, int line)
{
	if (rc)
		give_up("%s:%d: %s: %d, %s", function, line, what, rc,
			errno_name(rc > 0 ? rc : errno));
	return rc;
}

void tell(struct side *s, int value)
{
	if (write(s->other, &value, sizeof(value)) != sizeof(value) && errno != EPIPE)
		give_up("the other side cannot be told: %s", errno_name(errno));
}

int hear(struct side *s)
{
	int value;

	return read(s->other, &value, sizeof(value)) == sizeof(value) ? value : -1;
}

void wait_for_death(struct side *s)
{
	while (hear(s) != -1)
		;
}

void die(void) { kill(getpid(), SIGKILL); }

struct sockaddr *server_address(struct side *s, int port)
{
	static struct sockaddr_storage address;

	address = s->address;
	/* sin6_port is at the same place */
	((struct sockaddr_in *)&address)->sin_port = htons((uint16_t)port);
	return (struct sockaddr *)&address;
}

bool next_event_within(struct side *s, struct rdma_event_channel *channel, struct event *e, int ms)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *ev;
	const void *pdata;

	*e = (struct event){.type = RDMA_CM_EVENT_ADDR_CHANGE};
	if (poll(&p, 1, ms) != 1) {
		say("no event");
		return false;
	}
	if (rdma_get_cm_event(channel, &ev)) {
		say_result("rdma_get_cm_event", -1);
		return false;
	}
	*e = (struct event){
		.type = ev->event, .status = ev->status, .id = ev->id, .listen_id = ev->listen_id};
	if (ev->id->ps == RDMA_PS_TCP) {
		e->conn = ev->param.conn;
		pdata = ev->param.conn.private_data;
		e->pdata_len = pdata ? ev->param.conn.private_data_len : 0;
	} else {
		e->ud = ev->param.ud;
		pdata = ev->param.ud.private_data;
		e->pdata_len = pdata ? ev->param.ud.private_data_len : 0;
	}
	if (e->pdata_len)
		memcpy(e->pdata, pdata, e->pdata_len);
	if (!s->mute)
		say("%s, status %d%s%s%s", rdma_event_str(e->type), e->status,
			e->status < 0 ? " " : "", e->status < 0 ? errno_name(-e->status) : "",
			e->type == RDMA_CM_EVENT_DISCONNECTED &&
					(e->pdata_len || e->conn.private_data_len)
				? ", with private data"
				: "");
	rdma_ack_cm_event(ev);
	return true;
}

struct event next_event(struct side *s)
{
	struct event e;

	next_event_within(s, s->channel, &e, EVENT_WAIT_MS);
	return e;
}

struct event expect_event(struct side *s, enum rdma_cm_event_type type)
{
	struct event e = next_event(s);

	if (e.type != type)
		give_up("%s was wanted, %s with status %d came", rdma_event_str(type),
			rdma_event_str(e.type), e.status);
	return e;
}

struct rdma_cm_id *listen_at_and_tell(struct side *s, int port, int backlog)
{
	struct rdma_cm_id *id;

	MUST(rdma_create_id(s->channel, &id, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(id, server_address(s, port)));
	MUST(rdma_listen(id, backlog));
	tell(s, ntohs(rdma_get_src_port(id)));
	return id;
}

struct rdma_cm_id *listen_and_tell(struct side *s, int backlog)
{
	return listen_at_and_tell(s, 0, backlog);
}

struct rdma_cm_id *resolved_id(struct side *s, int port, enum rdma_port_space ps)
{
	struct rdma_cm_id *id;
	bool mute = s->mute;

	MUST(rdma_create_id(s->channel, &id, NULL, ps));
	s->mute = true;
	MUST(rdma_resolve_addr(id, NULL, server_address(s, port), 2000));
	expect_event(s, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(id, 2000));
	expect_event(s, RDMA_CM_EVENT_ROUTE_RESOLVED);
	s->mute = mute;
	return id;
}

void conn_open(struct side *s, struct conn *c, struct rdma_cm_id *id, unsigned number)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1};

	*c = (struct conn){.id = id,
		.seed_out = 2 * number + s->is_server,
		.seed_in = 2 * number + !s->is_server};
	/* Pages of its own: with ibv_fork_init a child lacks the pages that are registered. */
	c->buf = aligned_alloc(MESSAGE_BYTES, (size_t)2 * MESSAGE_BYTES);
	if (!c->buf)
		give_up("no memory");
	memset(c->buf, 0, (size_t)2 * MESSAGE_BYTES);
	pattern_fill(c->buf, MESSAGE_BYTES, c->seed_out);
	MUST(rdma_create_qp(id, NULL, &attr));
	c->mr = rdma_reg_msgs(id, c->buf, (size_t)2 * MESSAGE_BYTES);
	if (!c->mr)
		give_up("rdma_reg_msgs: %s", errno_name(errno));
}

void conn_close(struct conn *c)
{
	if (c->id && c->id->qp)
		rdma_destroy_qp(c->id);
	if (c->mr)
		MUST(rdma_dereg_mr(c->mr));
	if (c->id)
		MUST(rdma_destroy_id(c->id));
	free(c->buf);
	*c = (struct conn){0};
}

void conn_post_receive(struct conn *c)
{
	MUST(rdma_post_recv(c->id, NULL, c->buf + MESSAGE_BYTES, MESSAGE_BYTES, c->mr));
}

static void take_completion(
	const char *what, int (*get)(struct rdma_cm_id *, struct ibv_wc *), struct rdma_cm_id *id)
{
	struct ibv_wc wc;
	int n = get(id, &wc);

	if (n != 1)
		say("%s: no completion: %s", what, errno_name(errno));
	else if (wc.status != IBV_WC_SUCCESS)
		say("%s: %s", what, ibv_wc_status_str(wc.status));
}

static void send_message(struct conn *c)
{
	MUST(rdma_post_send(c->id, NULL, c->buf, MESSAGE_BYTES, c->mr, IBV_SEND_SIGNALED));
	take_completion("send", rdma_get_send_comp, c->id);
}

static void receive_message(struct conn *c)
{
	take_completion("receive", rdma_get_recv_comp, c->id);
	if (!pattern_holds(c->buf + MESSAGE_BYTES, MESSAGE_BYTES, c->seed_in))
		say("receive: the bytes are not those that were sent");
}

void exchange(struct side *s, struct conn *c)
{
	if (s->is_server) {
		receive_message(c);
		send_message(c);
	} else {
		send_message(c);
		receive_message(c);
	}
}

void connect_as_client(struct side *s, struct conn *c, int port, unsigned number)
{
	struct rdma_conn_param param = {.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7};

	conn_open(s, c, resolved_id(s, port, RDMA_PS_TCP), number);
	conn_post_receive(c);
	MUST(rdma_connect(c->id, &param));
	expect_event(s, RDMA_CM_EVENT_ESTABLISHED);
}

void connect_as_server(struct side *s, struct conn *c, unsigned number)
{
	struct rdma_conn_param param = {
		.responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7};
	struct event e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);

	conn_open(s, c, e.id, number);
	conn_post_receive(c);
	MUST(rdma_accept(c->id, &param));
	expect_event(s, RDMA_CM_EVENT_ESTABLISHED);
}

void see_disconnect(struct side *s, struct conn *c)
{
	expect_event(s, RDMA_CM_EVENT_DISCONNECTED);
	rdma_disconnect(c->id);
	conn_close(c);
}

/* The connections between processes of one device (io/line.c) come and go as they have something to
 * say; the device uses sockets of that type for nothing else, and the cases not at all. */
static bool is_line(const char *name)
{
	int type = 0;
	socklen_t len = sizeof(type);

	return !getsockopt(atoi(name), SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_SEQPACKET;
}

unsigned open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;
	unsigned n = 0;

	while (dir && (entry = readdir(dir)))
		n += !is_line(entry->d_name);
	if (dir)
		closedir(dir);
	return n;
}
