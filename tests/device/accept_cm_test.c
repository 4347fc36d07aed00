/* SPDX-License-Identifier: BSD-3-Clause */
/* accept_cm_test.c - an rdma_accept that fails is a rejection for the peer, as the kernel's is; and
 * a connection that stands is not harmed by one. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include "lib/test.h"

enum { TOO_LONG = 197 };

static struct rdma_event_channel *server, *client;

static enum rdma_cm_event_type next(
	struct rdma_event_channel *ch, struct rdma_cm_id **id, int *status)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};
	struct rdma_cm_event *e;
	assert_int_equal(poll(&p, 1, 5000), 1);
	assert_int_equal(rdma_get_cm_event(ch, &e), 0);
	enum rdma_cm_event_type type = e->event;
	*id = e->id;
	*status = e->status;
	rdma_ack_cm_event(e);
	return type;
}

static void an_acceptance_that_fails_is_a_rejection(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_conn_param param = {.qp_num = 17, .retry_count = 7};
	struct rdma_cm_id *listener, *id, *request, *same;
	uint8_t data[256] = {0};
	int status;
	ibv_free_device_list(ibv_get_device_list(NULL)); /* so that the drop-in is linked */
	assert_non_null(server = rdma_create_event_channel());
	assert_non_null(client = rdma_create_event_channel());
	assert_int_equal(rdma_create_id(server, &listener, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(listener, (struct sockaddr *)&a), 0);
	assert_int_equal(rdma_listen(listener, 4), 0);
	a.sin_port = rdma_get_src_port(listener);
	assert_int_equal(rdma_create_id(client, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 2000), 0);
	assert_int_equal(next(client, &same, &status), RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(id, 2000), 0);
	assert_int_equal(next(client, &same, &status), RDMA_CM_EVENT_ROUTE_RESOLVED);
	assert_int_equal(rdma_connect(id, &param), 0);
	assert_int_equal(next(server, &request, &status), RDMA_CM_EVENT_CONNECT_REQUEST);

	param.private_data = data;
	param.private_data_len = TOO_LONG;
	errno = 0;
	assert_int_equal(rdma_accept(request, &param), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(next(client, &same, &status), RDMA_CM_EVENT_REJECTED);
	assert_int_equal(status, 28); /* consumer defined */

	assert_int_equal(rdma_destroy_id(request), 0);
	assert_int_equal(rdma_destroy_id(id), 0);
	assert_int_equal(rdma_destroy_id(listener), 0);
	rdma_destroy_event_channel(server);
	rdma_destroy_event_channel(client);
}

static void the_port_space_of_ipoib_has_no_roce_device(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;
	assert_non_null(ch);
	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_IPOIB), 0);
	errno = 0;
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&a), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(ch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_acceptance_that_fails_is_a_rejection),
		cmocka_unit_test(the_port_space_of_ipoib_has_no_roce_device),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
