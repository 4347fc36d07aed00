/* SPDX-License-Identifier: BSD-3-Clause */
/* deferred_cm_test.c - a server takes a request from its channel, destroys its listener and accepts
 * a second later. Its client, another process of this host, is connected. The client repeats its
 * request until then, and nobody listens any more: the process that such a copy reaches must not
 * reject it. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/test.h"

enum { ROUNDS = 4, WAIT_MS = 10000 };

/* the event that comes; -1 where none does */
static int next(struct rdma_event_channel *ch, struct rdma_cm_id **id, int *status)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};
	struct rdma_cm_event *e;
	if (poll(&p, 1, WAIT_MS) != 1 || rdma_get_cm_event(ch, &e))
		return -1;
	int type = (int)e->event;
	if (id)
		*id = e->id;
	*status = e->status;
	rdma_ack_cm_event(e);
	return type;
}

/* The client's process: 0 when it is connected, else what it saw. */
static int be_client(uint16_t port)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_conn_param param = {.qp_num = 17, .retry_count = 7};
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;
	int status;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!ch || rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) ||
		rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 2000) ||
		next(ch, NULL, &status) != RDMA_CM_EVENT_ADDR_RESOLVED ||
		rdma_resolve_route(id, 2000) ||
		next(ch, NULL, &status) != RDMA_CM_EVENT_ROUTE_RESOLVED || rdma_connect(id, &param))
		return 99;
	int type = next(ch, NULL, &status);
	return type == RDMA_CM_EVENT_CONNECT_RESPONSE ? 0
	       : type == RDMA_CM_EVENT_REJECTED       ? 100 + status
						      : 98;
}

static void one_round(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_conn_param param = {.qp_num = 18, .retry_count = 7};
	struct rdma_event_channel *ch;
	struct rdma_cm_id *listener, *request = NULL;
	uint16_t port;
	int up[2], status;
	assert_int_equal(pipe(up), 0);
	pid_t client = fork(); /* before the device is opened */
	if (!client)
		_exit(read(up[0], &port, sizeof(port)) == sizeof(port) ? be_client(port) : 97);
	assert_non_null(ch = rdma_create_event_channel());
	assert_int_equal(rdma_create_id(ch, &listener, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(listener, (struct sockaddr *)&a), 0);
	assert_int_equal(rdma_listen(listener, 4), 0);
	port = rdma_get_src_port(listener);
	assert_int_equal(write(up[1], &port, sizeof(port)), sizeof(port));
	assert_int_equal(next(ch, &request, &status), RDMA_CM_EVENT_CONNECT_REQUEST);
	/* Not between the client's first two tries, 2 ms apart, of which one is under way. */
	usleep(50000);
	assert_int_equal(rdma_destroy_id(listener), 0);
	usleep(1000000);
	assert_int_equal(rdma_accept(request, &param), 0);
	assert_int_equal(waitpid(client, &status, 0), client);
	assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
	assert_int_equal(rdma_destroy_id(request), 0);
	rdma_destroy_event_channel(ch);
	close(up[0]);
	close(up[1]);
}

static void a_request_outlives_its_listener(void **state)
{
	ibv_free_device_list(ibv_get_device_list(NULL)); /* so that the drop-in is linked */
	for (int i = 0; i < ROUNDS; i++) {
		IN_CASE("round", i);
		/* each from a process that has no device yet */
		pid_t server = fork();
		int status;
		if (!server) {
			one_round();
			_exit(0);
		}
		assert_int_equal(waitpid(server, &status, 0), server);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_outlives_its_listener),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
