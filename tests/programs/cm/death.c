/* SPDX-License-Identifier: BSD-3-Clause */
/* death.c - one side stops itself at a step of the handshake: killed, or by exit() without a word
 * to the other. What does the other see? */
#include "cases.h"

#include <poll.h>
#include <stdlib.h>

static void client_asks(struct side *s, struct conn *c, int port)
{
	struct rdma_conn_param param = {
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};

	conn_open(s, c, resolved_id(s, port, RDMA_PS_TCP), 1);
	MUST(rdma_connect(c->id, &param));
}

/* For the survivor: what comes, a call in this state, and a clean end. */
static void see_the_end(struct side *s, struct conn *c)
{
	next_event(s);
	rdma_disconnect(c->id);
	conn_close(c);
}

void server_dies_listening_server(struct side *s)
{
	listen_and_tell(s, 4);
	die();
}

void server_dies_listening_client(struct side *s)
{
	struct conn c;
	int port = hear(s);

	wait_for_death(s);
	client_asks(s, &c, port);
	see_the_end(s, &c);
}

void server_dies_asked_server(struct side *s)
{
	listen_and_tell(s, 4);
	expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);
	die();
}

void server_dies_asked_client(struct side *s)
{
	struct conn c;

	client_asks(s, &c, hear(s));
	see_the_end(s, &c);
}

void server_dies_unseen_server(struct side *s)
{
	struct pollfd p = {.fd = s->channel->fd, .events = POLLIN};

	listen_and_tell(s, 4);
	poll(&p, 1, EVENT_WAIT_MS);
	die();
}

void server_dies_unseen_client(struct side *s) { server_dies_asked_client(s); }

void server_dies_accepted_server(struct side *s)
{
	struct rdma_conn_param param = {0};
	struct conn c;

	listen_and_tell(s, 4);
	conn_open(s, &c, expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST).id, 1);
	MUST(rdma_accept(c.id, &param));
	hear(s); /* the client has the reply in hand */
	die();
}

/* With a QP made outside, the client answers only when its program says so. */
void server_dies_accepted_client(struct side *s)
{
	struct rdma_cm_id *id = resolved_id(s, hear(s), RDMA_PS_TCP);
	struct rdma_conn_param param = {.retry_count = 7, .qp_num = 0x123};

	MUST(rdma_connect(id, &param));
	expect_event(s, RDMA_CM_EVENT_CONNECT_RESPONSE);
	tell(s, 1);
	wait_for_death(s);
	next_event(s);
	MUST(rdma_destroy_id(id));
}

void server_dies_connected_server(struct side *s)
{
	struct conn c;

	listen_and_tell(s, 4);
	connect_as_server(s, &c, 1);
	exchange(s, &c);
	hear(s);
	die();
}

void server_dies_connected_client(struct side *s)
{
	struct conn c;

	connect_as_client(s, &c, hear(s), 1);
	exchange(s, &c);
	tell(s, 1);
	see_the_end(s, &c);
}

void client_dies_asking_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct rdma_conn_param param = {0};
	struct event e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct conn c;

	conn_open(s, &c, e.id, 1);
	tell(s, 1);
	wait_for_death(s);
	next_event_within(s, s->channel, &e, 3000);
	say_result("rdma_accept", rdma_accept(c.id, &param));
	next_event_within(s, s->channel, &e, 3000);
	conn_close(&c);
	MUST(rdma_destroy_id(listener));
}

void client_dies_asking_client(struct side *s)
{
	struct conn c;

	client_asks(s, &c, hear(s));
	hear(s);
	die();
}

void client_dies_answered_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct rdma_conn_param param = {0};
	struct conn c;

	conn_open(s, &c, expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST).id, 1);
	MUST(rdma_accept(c.id, &param));
	wait_for_death(s);
	see_the_end(s, &c);
	MUST(rdma_destroy_id(listener));
}

void client_dies_answered_client(struct side *s)
{
	struct rdma_cm_id *id = resolved_id(s, hear(s), RDMA_PS_TCP);
	struct rdma_conn_param param = {.retry_count = 7, .qp_num = 0x123};

	MUST(rdma_connect(id, &param));
	expect_event(s, RDMA_CM_EVENT_CONNECT_RESPONSE);
	die();
}

void client_dies_connected_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct conn c;

	connect_as_server(s, &c, 1);
	exchange(s, &c);
	wait_for_death(s);
	see_the_end(s, &c);
	MUST(rdma_destroy_id(listener));
}

void client_dies_connected_client(struct side *s)
{
	struct conn c;

	connect_as_client(s, &c, hear(s), 1);
	exchange(s, &c);
	die();
}

void client_dies_closing_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct conn c;

	connect_as_server(s, &c, 1);
	hear(s);
	MUST(rdma_disconnect(c.id));
	tell(s, 1);
	see_the_end(s, &c);
	MUST(rdma_destroy_id(listener));
}

void client_dies_closing_client(struct side *s)
{
	struct conn c;

	connect_as_client(s, &c, hear(s), 1);
	tell(s, 1);
	hear(s);
	expect_event(s, RDMA_CM_EVENT_DISCONNECTED);
	die();
}

void server_exits_server(struct side *s)
{
	struct conn c;

	listen_and_tell(s, 4);
	connect_as_server(s, &c, 1);
	exchange(s, &c);
	hear(s);
	exit(0);
}

void server_exits_client(struct side *s) { server_dies_connected_client(s); }

void client_exits_server(struct side *s) { client_dies_connected_server(s); }

void client_exits_client(struct side *s)
{
	struct conn c;

	connect_as_client(s, &c, hear(s), 1);
	exchange(s, &c);
	exit(0);
}
