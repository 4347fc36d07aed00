/* SPDX-License-Identifier: BSD-3-Clause */
/* ah_test.c - address handles in numbers: the kernel is asked for the way now and then, not for
 * each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "pair.h"

static uint64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void a_thousand_address_handles_ask_for_few_routes(void **state)
{
	enum { N = 1000 };
	static struct ibv_ah *ah[N];
	struct ibv_context *c = pair_open_loopback();
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_ah_attr a = {
		.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .hop_limit = 64}};
	assert_int_equal(ibv_query_gid(c, 1, 1, &a.grh.dgid), 0);
	uint64_t start = cpu_ns();
	for (int i = 0; i < N; i++)
		assert_non_null(ah[i] = ibv_create_ah(pd, &a));
	uint64_t handles = cpu_ns() - start;
	/* what the question takes at least */
	start = cpu_ns();
	for (int i = 0; i < N; i++)
		close(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0));
	uint64_t sockets = cpu_ns() - start;
	if (2 * handles > sockets)
		fail_msg("%d address handles: %llu ns; as many sockets: %llu ns", N,
			(unsigned long long)handles, (unsigned long long)sockets);
	for (int i = 0; i < N; i++)
		assert_int_equal(ibv_destroy_ah(ah[i]), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thousand_address_handles_ask_for_few_routes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
