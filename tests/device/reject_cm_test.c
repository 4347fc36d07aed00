/* SPDX-License-Identifier: BSD-3-Clause */
/* reject_cm_test.c - a server that rejects a request with private data, destroys its ids and ends
 * at once, while other processes want the processors: the client hears of the rejection and gets
 * the data, each time. */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/test.h"

enum { ROUNDS = 40, BUSY = 6, PORT = 18700, REJECTED_BY_CONSUMER = 28 };
static const char reason[] = "no room today";

static struct sockaddr_in address(int round)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
		.sin_port = htons((uint16_t)(PORT + round)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static struct rdma_cm_id *next(struct rdma_event_channel *c, enum rdma_cm_event_type want)
{
	struct rdma_cm_event *e;
	if (rdma_get_cm_event(c, &e) || e->event != want)
		_exit(2);
	struct rdma_cm_id *id = e->id;
	rdma_ack_cm_event(e);
	return id;
}

static void serve(int round, int ready)
{
	struct rdma_event_channel *c = rdma_create_event_channel();
	struct rdma_cm_id *l;
	struct sockaddr_in a = address(round);
	if (!c || rdma_create_id(c, &l, NULL, RDMA_PS_TCP) ||
		rdma_bind_addr(l, (struct sockaddr *)&a) || rdma_listen(l, 4) ||
		write(ready, "x", 1) != 1)
		_exit(3);
	struct rdma_cm_id *in = next(c, RDMA_CM_EVENT_CONNECT_REQUEST);
	if (rdma_reject(in, reason, sizeof(reason)))
		_exit(4);
	rdma_destroy_id(in);
	rdma_destroy_id(l);
	_exit(0);
}

static void ask(int round)
{
	struct rdma_event_channel *c = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct rdma_cm_event *e;
	struct rdma_conn_param p = {.retry_count = 7};
	struct ibv_qp_init_attr q = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	struct sockaddr_in a = address(round);
	if (!c || rdma_create_id(c, &id, NULL, RDMA_PS_TCP) ||
		rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 2000))
		_exit(3);
	next(c, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(id, 2000))
		_exit(3);
	next(c, RDMA_CM_EVENT_ROUTE_RESOLVED);
	if (rdma_create_qp(id, NULL, &q) || rdma_connect(id, &p) || rdma_get_cm_event(c, &e))
		_exit(3);
	bool right = e->event == RDMA_CM_EVENT_REJECTED && e->status == REJECTED_BY_CONSUMER &&
		     e->param.conn.private_data_len >= sizeof(reason) &&
		     !memcmp(e->param.conn.private_data, reason, sizeof(reason));
	if (!right)
		fprintf(stderr, "round %d: %s, status %d, %u bytes\n", round,
			rdma_event_str(e->event), e->status, e->param.conn.private_data_len);
	_exit(!right);
}

static void a_rejection_outlives_its_sender(void **state)
{
	pid_t busy[BUSY];
	int wrong = 0, status;
	for (int i = 0; i < BUSY; i++)
		if (!(busy[i] = fork()))
			for (;;)
				;
	for (int round = 0; round < ROUNDS; round++) {
		IN_CASE("round", round);
		int ready[2];
		char x;
		assert_int_equal(pipe(ready), 0);
		pid_t server = fork();
		if (!server)
			serve(round, ready[1]);
		assert_int_equal(read(ready[0], &x, 1), 1);
		pid_t client = fork();
		if (!client)
			ask(round);
		assert_int_equal(waitpid(client, &status, 0), client);
		wrong += status != 0;
		assert_int_equal(waitpid(server, &status, 0), server);
		wrong += status != 0;
		close(ready[0]);
		close(ready[1]);
	}
	for (int i = 0; i < BUSY; i++) {
		kill(busy[i], SIGKILL);
		waitpid(busy[i], NULL, 0);
	}
	assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rejection_outlives_its_sender),
	};
	if (argc > 9)
		ibv_free_device_list(ibv_get_device_list(NULL)); /* the drop-in is linked */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
