/* SPDX-License-Identifier: BSD-3-Clause */
/* strange_peer.c - a peer of rdma-server and rdma-client that does not behave: it says things that
 * they must refuse, or nothing at all.
 *
 *     strange_peer client BEHAVIOUR ADDRESS PORT
 *     strange_peer server BEHAVIOUR ADDRESS        prints "listening on port N."
 *
 * Written on librdmacm alone, with the messages as peer_wire.h describes them written down a second
 * time. It prints what the other side did ("rejected 28 reason 1", "connected", "disconnected"),
 * and never stays longer than a minute.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

enum { SENDS = 64, RECEIVES = 8, BUFFER_BYTES = 4096, STAY_S = 60 };

static uint8_t out[BUFFER_BYTES], in[RECEIVES][BUFFER_BYTES];
static struct rdma_cm_id *id;
static struct ibv_mr *out_mr, *in_mr;
static const char *behaviour;

static int is(const char *name) { return !strcmp(behaviour, name); }

static void die(const char *what)
{
	perror(what);
	exit(2);
}

#define MUST(call) \
	do { \
		if (call) \
			die(#call); \
	} while (0)

static struct rdma_cm_event *wait_for(
	struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event;

	MUST(rdma_get_cm_event(channel, &event));
	if (event->event == RDMA_CM_EVENT_REJECTED) {
		const uint8_t *p = event->param.conn.private_data;
		printf("rejected %d reason %d version %d mode %d\n", event->status, p ? p[7] : -1,
			p ? p[5] : -1, p ? p[6] : -1);
		exit(0);
	}
	if (event->event != wanted) {
		printf("%s instead of %s, status %d\n", rdma_event_str(event->event),
			rdma_event_str(wanted), event->status);
		exit(3);
	}
	return event;
}

/* ---- what is said ---- */

struct hello {
	uint8_t bytes[8];
	uint8_t length;
};

static struct hello hello(void)
{
	struct hello h = {.bytes = {'R', 'P', 'W', 'H', 0, 1, 1, 0}, .length = 8};

	if (is("no-hello"))
		h.length = 0;
	if (is("short-hello"))
		h.length = 3;
	if (is("other-program"))
		h.bytes[0] = 'X';
	if (is("other-version"))
		h.bytes[5] = 9;
	if (is("no-mode"))
		h.bytes[6] = 77;
	return h;
}

static uint32_t put_mr(uint64_t address, uint32_t rkey, uint32_t length)
{
	static const uint8_t head[] = {'R', 'P', 'W', 'M', 0, 1, 0, 1, 0, 0, 0, 16};
	uint32_t high = htonl((uint32_t)(address >> 32)), low = htonl((uint32_t)address);

	memcpy(out, head, 12);
	rkey = htonl(rkey);
	length = htonl(length);
	memcpy(out + 12, &high, 4);
	memcpy(out + 16, &low, 4);
	memcpy(out + 20, &rkey, 4);
	memcpy(out + 24, &length, 4);
	return 28;
}

static uint32_t put_good_mr(void) { return put_mr((uintptr_t)in, in_mr->rkey, 4096); }

static uint32_t put_done(void)
{
	put_good_mr();
	out[7] = 2;
	out[11] = 0;
	return 12;
}

static const struct {
	const char *name;
	int at; /* this byte of a good MR message becomes `value` */
	uint8_t value;
	uint32_t bytes; /* and it has this length; 0: as it is */
} changes[] = {
	{"wrong-magic", 0, 'x', 0},
	{"wrong-version", 5, 7, 0},
	{"wrong-type", 7, 200, 0},
	{"long-length", 8, 0xff, 0},
	{"short", 0, 'R', 5},
	{"cut", 0, 'R', 27},
	{"long", 0, 'R', 300},
	{"too-long", 0, 'R', 600},
	{"memory-too-small", 26, 0, 0},
	{"memory-too-large", 24, 1, 0},
	{"text", 7, 3, 0},
};

static uint32_t put_first(void)
{
	uint32_t bytes = put_good_mr();

	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		if (!is(changes[i].name))
			continue;
		out[changes[i].at] = changes[i].value;
		return changes[i].bytes ? changes[i].bytes : bytes;
	}
	if (is("wraps-around"))
		return put_mr(UINT64_MAX - 100, in_mr->rkey, 4096);
	if (is("wrong-rkey"))
		return put_mr((uintptr_t)in, in_mr->rkey ^ 0x5a5a5a5a, 4096);
	if (is("wrong-address"))
		return put_mr((uintptr_t)in - 4096, in_mr->rkey, 4096);
	if (is("done-first"))
		return put_done();
	if (is("garbage"))
		for (int i = 0; i < 200; i++)
			out[i] = (uint8_t)(i * 151 + getpid());
	return is("garbage") ? 200 : bytes;
}

/* ---- doing it ---- */

/* Whatever becomes of it: the other side may break off at any time. */
static enum ibv_wc_status finish_send(int error)
{
	struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};

	if (!error && rdma_get_send_comp(id, &wc) < 0)
		return IBV_WC_GENERAL_ERR;
	return wc.status;
}

static void send_bytes(uint32_t bytes)
{
	finish_send(rdma_post_send(id, NULL, out, bytes, out_mr, 0));
}

/* The other side's MR message: where one may write to. */
static void take_mr(uint64_t *address, uint32_t *rkey)
{
	struct ibv_wc wc;
	const uint8_t *p;
	uint32_t high, low;

	if (rdma_get_recv_comp(id, &wc) < 1 || wc.status != IBV_WC_SUCCESS)
		exit(4);
	p = in[wc.wr_id];
	memcpy(&high, p + 12, 4);
	memcpy(&low, p + 16, 4);
	memcpy(rkey, p + 20, 4);
	*address = (uint64_t)ntohl(high) << 32 | ntohl(low);
	*rkey = ntohl(*rkey);
}

static void write_there(uint64_t beyond)
{
	uint64_t address;
	uint32_t rkey;
	enum ibv_wc_status status;

	take_mr(&address, &rkey);
	memset(out, 0x5a, sizeof(out));
	status = finish_send(
		rdma_post_write(id, NULL, out, 4096, out_mr, 0, address + beyond, rkey));
	printf("write status %d\n", status);
}

static void talk(void)
{
	if (is("silent") || is("no-hello") || is("other-version"))
		return;
	send_bytes(put_first());
	if (is("mr-twice"))
		send_bytes(put_good_mr());
	if (is("flood"))
		for (int i = 0; i < 50; i++)
			rdma_post_send(id, NULL, out, 28, out_mr, 0);
	if (is("write-beyond"))
		write_there(1);
	if (is("wrong-content")) {
		write_there(0);
		send_bytes(put_done());
	}
}

static void prepare(void)
{
	struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = SENDS,
						.max_recv_wr = RECEIVES,
						.max_send_sge = 1,
						.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1};

	MUST(rdma_create_qp(id, NULL, &attr));
	MUST(!(out_mr = rdma_reg_msgs(id, out, sizeof(out))));
	MUST(!(in_mr = ibv_reg_mr(id->pd, in, sizeof(in),
		       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)));
	/* The first buffer is the one that the other side may write to. */
	for (int i = 1; i < RECEIVES; i++)
		MUST(rdma_post_recv(id, (void *)(uintptr_t)i, in[i], BUFFER_BYTES, in_mr));
}

static struct rdma_conn_param parameters(struct hello *h)
{
	*h = hello();
	return (struct rdma_conn_param){.private_data = h->length ? h->bytes : NULL,
		.private_data_len = h->length,
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7};
}

static void until_disconnected(struct rdma_event_channel *channel)
{
	rdma_ack_cm_event(wait_for(channel, RDMA_CM_EVENT_DISCONNECTED));
	rdma_disconnect(id);
	printf("disconnected\n");
}

static struct addrinfo *address_of(const char *host, const char *port)
{
	struct addrinfo *found = NULL;

	MUST(getaddrinfo(host, port, NULL, &found));
	return found;
}

static void client(struct rdma_event_channel *channel, const char *host, const char *port)
{
	struct addrinfo *to = address_of(host, port);
	struct rdma_conn_param param;
	struct hello h;

	MUST(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	MUST(rdma_resolve_addr(id, NULL, to->ai_addr, 5000));
	rdma_ack_cm_event(wait_for(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
	MUST(rdma_resolve_route(id, 5000));
	rdma_ack_cm_event(wait_for(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
	prepare();
	param = parameters(&h);
	MUST(rdma_connect(id, &param));
	rdma_ack_cm_event(wait_for(channel, RDMA_CM_EVENT_ESTABLISHED));
	printf("connected\n");
	talk();
	printf("said\n");
	until_disconnected(channel);
	freeaddrinfo(to);
}

static void server(struct rdma_event_channel *channel, const char *host)
{
	struct addrinfo *at = address_of(host, "0");
	struct rdma_cm_id *listener;
	struct rdma_conn_param param;
	struct rdma_cm_event *event;
	struct hello h;

	MUST(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(listener, at->ai_addr));
	MUST(rdma_listen(listener, 8));
	printf("listening on port %d.\n", ntohs(rdma_get_src_port(listener)));
	event = wait_for(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	id = event->id;
	rdma_ack_cm_event(event);
	printf("request\n");
	if (is("never-accept"))
		pause();
	if (is("reject")) {
		rdma_reject(id, NULL, 0);
		pause();
	}
	prepare();
	param = parameters(&h);
	MUST(rdma_accept(id, &param));
	rdma_ack_cm_event(wait_for(channel, RDMA_CM_EVENT_ESTABLISHED));
	printf("connected\n");
	talk();
	printf("said\n");
	until_disconnected(channel);
	freeaddrinfo(at);
}

int main(int argc, char **argv)
{
	struct rdma_event_channel *channel;

	if (argc < 4)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(STAY_S);
	behaviour = argv[2];
	channel = rdma_create_event_channel();
	MUST(!channel);
	if (!strcmp(argv[1], "client"))
		client(channel, argv[3], argv[4]);
	else
		server(channel, argv[3]);
	return 0;
}
