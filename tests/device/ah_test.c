/* SPDX-License-Identifier: BSD-3-Clause */
/* ah_test.c - address handles in numbers, from inside: the kernel is asked for the way now and
 * then, not for each. */
#include "lib/test.h"
#include "device/hca.h"
#include "io/io.h"

/* The linker sends ah.c's questions here. */
struct rpwi_route __real_rpwi_netdev_route(const struct rpwi_addr *to);
struct rpwi_route __wrap_rpwi_netdev_route(const struct rpwi_addr *to);
int __real_rpwi_neighbor_wait(const struct rpwi_addr *src, const struct rpwi_addr *dst,
	const struct rpwi_route *r, uint64_t longest_ns);
int __wrap_rpwi_neighbor_wait(const struct rpwi_addr *src, const struct rpwi_addr *dst,
	const struct rpwi_route *r, uint64_t longest_ns);

static unsigned routes, neighbors;

struct rpwi_route __wrap_rpwi_netdev_route(const struct rpwi_addr *to)
{
	routes++;
	return __real_rpwi_netdev_route(to);
}

int __wrap_rpwi_neighbor_wait(const struct rpwi_addr *src, const struct rpwi_addr *dst,
	const struct rpwi_route *r, uint64_t longest_ns)
{
	neighbors++;
	return __real_rpwi_neighbor_wait(src, dst, r, longest_ns);
}

static void a_thousand_address_handles_ask_for_few_routes(void **state)
{
	enum { N = 1000 };
	static struct ibv_ah *ah[N];
	int n;
	struct ibv_device **list = rpwi_dev_get_list(&n);
	assert_true(list && n);
	struct ibv_context *c = rpwi_dev_open_device(list[0]);
	struct ibv_pd *pd = rpwi_dev_alloc_pd(c);
	struct ibv_ah_attr a = {
		.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .hop_limit = 64}};
	assert_int_equal(rpwi_dev_query_gid(c, 1, 1, &a.grh.dgid), 0);
	routes = neighbors = 0;
	uint64_t start_ns = rpwi_now_ns();
	for (int i = 0; i < N; i++)
		assert_non_null(ah[i] = rpwi_dev_create_ah(pd, &a));
	/* An answer holds for a second, unless something changes: other tests make links and
	 * addresses meanwhile. */
	uint64_t most = (rpwi_now_ns() - start_ns) / RPWI_NS_PER_MS + 2;
	assert_in_range(routes, 1, most);
	assert_in_range(neighbors, 1, most);
	for (int i = 0; i < N; i++)
		assert_int_equal(rpwi_dev_destroy_ah(ah[i]), 0);
	rpwi_dev_dealloc_pd(pd);
	rpwi_dev_close_device(c);
	free(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thousand_address_handles_ask_for_few_routes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
