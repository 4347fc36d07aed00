/* SPDX-License-Identifier: BSD-3-Clause */
/* bind_cm_test.c - what rdma_bind_addr says of a port that another id has: EADDRINUSE for the same
 * address, EADDRNOTAVAIL where one of the two has all addresses, as the kernel's cma_check_port. */
#include <errno.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include "lib/test.h"

enum { PORT = 18663 };
static struct rdma_event_channel *ch;

static int bound(uint32_t address, struct rdma_cm_id **id)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(address)};
	assert_int_equal(rdma_create_id(ch, id, NULL, RDMA_PS_TCP), 0);
	return rdma_bind_addr(*id, (struct sockaddr *)&a) ? errno : 0;
}

static void which_error_a_taken_port_gives(void **state)
{
	static const struct {
		uint32_t first, second;
		int error;
	} rows[] = {{INADDR_LOOPBACK, INADDR_LOOPBACK, EADDRINUSE},
		{INADDR_ANY, INADDR_ANY, EADDRNOTAVAIL},
		{INADDR_ANY, INADDR_LOOPBACK, EADDRNOTAVAIL},
		{INADDR_LOOPBACK, INADDR_ANY, EADDRNOTAVAIL}};
	ibv_free_device_list(ibv_get_device_list(NULL)); /* so that the drop-in is linked */
	ch = rdma_create_event_channel();
	assert_non_null(ch);
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		IN_CASE("row", i);
		struct rdma_cm_id *one, *two;
		assert_int_equal(bound(rows[i].first, &one), 0);
		assert_int_equal(bound(rows[i].second, &two), rows[i].error);
		assert_int_equal(rdma_destroy_id(two), 0);
		assert_int_equal(rdma_destroy_id(one), 0);
	}
	rdma_destroy_event_channel(ch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(which_error_a_taken_port_gives),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
