/* SPDX-License-Identifier: BSD-3-Clause */
/* many.c - cases of many connections, one after the other and at once. */
#include "cases.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

/* PEER_DESCRIPTORS: what a device keeps for a peer process that it looks after, and has perhaps not
 * had yet after the warm-up: a connection to it, and what tells its end. */
enum { CYCLES = 200, WARM_UP = 20, AT_ONCE = 20, PEER_DESCRIPTORS = 4 };

struct footprint {
	unsigned descriptors;
	size_t bytes;
};

static struct footprint measure(void)
{
	return (struct footprint){open_descriptors(), mallinfo2().uordblks};
}

/* Each connection's leavings in TIMEWAIT may be remembered for a while: hence some room. */
static void say_growth(struct footprint before)
{
	struct footprint now = measure();

	if (now.descriptors > before.descriptors + PEER_DESCRIPTORS)
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
		struct rdma_conn_param param = {.retry_count = 7,
			.rnr_retry_count = 7,
			.private_data = &number,
			.private_data_len = 1};

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
		MUST(rdma_post_send(conns[i].id, NULL, conns[i].buf, MESSAGE_BYTES, conns[i].mr,
			IBV_SEND_SIGNALED));
	}
	for (unsigned i = 0; i < AT_ONCE; i++) {
		struct ibv_wc wc;

		if (rdma_get_recv_comp(conns[i].id, &wc) != 1 || wc.status ||
			!pattern_holds(
				conns[i].buf + MESSAGE_BYTES, MESSAGE_BYTES, conns[i].seed_in))
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
