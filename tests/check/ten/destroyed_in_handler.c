/* SPDX-License-Identifier: BSD-3-Clause */
/* destroyed_in_handler.c
 *
 * Public report: spdk/spdk issue #3118 (2023); alike linux-rdma/perftest pull request #60 (2019).
 * A storage target froze when a client disconnected, if one thread served both the connection's
 * events and its I/O. The stack of the hang ends in rdma_destroy_id.
 *
 * The bug: the handler of RDMA_CM_EVENT_DISCONNECTED destroys the id, and the event is acknowledged
 * after the handler. rdma_destroy_id waits for the acknowledgment of the id's events, so the thread
 * waits for itself. */
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <sys/wait.h>

#include "plain.h"

enum { WAIT_MS = 2000 };

static struct sockaddr_in device_address(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(20000 + getpid() % 10000)};
	struct device d = {0};

	device_open(&d);
	memcpy(&a.sin_addr, d.gid.raw + 12, sizeof a.sin_addr);
	device_close(&d);
	return a;
}

static void qp_for(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};

	if (rdma_create_qp(id, NULL, &init))
		die("rdma_create_qp");
}

static void handle(const struct rdma_cm_event *event)
{
	struct rdma_conn_param p = {.initiator_depth = 1,
		.responder_resources = 1,
		.retry_count = 7,
		.rnr_retry_count = 7};

	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		qp_for(event->id);
		if (rdma_accept(event->id, &p))
			die("rdma_accept");
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		rdma_destroy_qp(event->id);
		printf("server: destroying the id\n");
		rdma_destroy_id(event->id);
		break;
	default:
		break;
	}
}

static void server(int fd, struct sockaddr_in at)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	enum rdma_cm_event_type last;

	if (!channel || rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) ||
		rdma_bind_addr(listener, (struct sockaddr *)&at) || rdma_listen(listener, 1))
		die("the listener");
	token_send(fd);
	do {
		struct rdma_cm_event *event, copy;

		if (rdma_get_cm_event(channel, &event))
			die("rdma_get_cm_event");
		copy = *event;
		last = event->event;
		if (!FIXED)
			handle(event);
		rdma_ack_cm_event(event);
		if (FIXED)
			handle(&copy);
	} while (last != RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
}

static void client(int fd, struct sockaddr_in at)
{
	struct rdma_conn_param p = {.initiator_depth = 1,
		.responder_resources = 1,
		.retry_count = 7,
		.rnr_retry_count = 7};
	struct rdma_cm_id *id;

	token_wait(fd);
	/* Without a channel each call waits for its own event. */
	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) ||
		rdma_resolve_addr(id, NULL, (struct sockaddr *)&at, WAIT_MS) ||
		rdma_resolve_route(id, WAIT_MS))
		die("resolving");
	qp_for(id);
	if (rdma_connect(id, &p) || rdma_disconnect(id))
		die("the connection");
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
}

int main(void)
{
	int fds[2], status = 0;

	alarm(HANG_S);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		die("socketpair");
	const struct sockaddr_in at = device_address();
	const pid_t child = fork();
	if (child < 0)
		die("fork");
	if (child == 0) {
		alarm(HANG_S);
		close(fds[0]);
		client(fds[1], at);
		exit(0);
	}
	close(fds[1]);
	server(fds[0], at);
	return waitpid(child, &status, 0) != child || status ? 1 : 0;
}
