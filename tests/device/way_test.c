/* SPDX-License-Identifier: BSD-3-Clause */
/* way_test.c - the way to a host that is kept is the one that the kernel would say now, in a
 * namespace whose links, addresses and routes the test changes. */
#include <arpa/inet.h>

#include "../io/ns.h"
#include "device/way.h"

/* The linker sends way.c's questions here. */
struct rpwi_route __real_rpwi_netdev_route(const struct rpwi_addr *to);
struct rpwi_route __wrap_rpwi_netdev_route(const struct rpwi_addr *to);

static unsigned questions;

struct rpwi_route __wrap_rpwi_netdev_route(const struct rpwi_addr *to)
{
	questions++;
	return __real_rpwi_netdev_route(to);
}

static bool run(const char *cmd) { return system(cmd) == 0; }

static struct rpwi_addr host(unsigned n)
{
	return (struct rpwi_addr){.family = 4, .bytes = {10, 9, 0, (uint8_t)n}};
}

static struct rpwi_addr host6(unsigned n)
{
	return (struct rpwi_addr){.family = 6, .bytes = {0xfd, [15] = (uint8_t)n}};
}

static void expect_truth(const struct rpwi_addr *a)
{
	const struct way *w = way_to(a);
	struct rpwi_route r = __real_rpwi_netdev_route(a);
	assert_int_equal(w->route.local, r.local);
	assert_int_equal(w->route.direct, r.direct);
	assert_int_equal(w->route.ifindex, r.ifindex);
	assert_int_equal(w->route.hops, r.hops);
	assert_int_equal(w->hops, rpwi_netdev_hops(a, &r));
}

static void an_answer_is_kept_and_its_place_is_bounded(void **state)
{
	enum { HOSTS = 250, AGAIN = 1000 };
	struct rpwi_addr a = host(1);
	way_to(&a);
	questions = 0;
	uint64_t start_ns = rpwi_now_ns();
	for (int i = 0; i < AGAIN; i++)
		expect_truth(&a);
	/* one for each second of a slow machine */
	assert_in_range(questions, 0, (rpwi_now_ns() - start_ns) / RPWI_NS_PER_S + 1);
	for (unsigned i = 1; i < HOSTS; i++) {
		a = host(i);
		expect_truth(&a);
	}
}

static void what_was_found_is_known_until_something_changes(void **state)
{
	struct rpwi_addr a = host(2), b = host(3);
	uint32_t turn = way_to(&a)->turn;
	assert_false(way_to(&a)->found);
	way_found(&b, turn); /* of another, or of another turn: nothing */
	way_found(&a, turn + 1);
	assert_false(way_to(&a)->found);
	way_found(&a, turn);
	assert_true(way_to(&a)->found);
	assert_true(run("ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev aa"));
	assert_false(way_to(&a)->found);
	way_found(&a, turn);
	assert_false(way_to(&a)->found);
}

/* Each changes the answer for some of the hosts, one way and back. */
static const char *const changes[] = {
	"ip addr add 10.9.0.1/24 dev aa",
	"ip addr del 10.9.0.1/24 dev aa",
	"ip route add 10.9.0.4/30 dev bb hoplimit 7",
	"ip route change 10.9.0.4/30 dev bb hoplimit 9",
	"ip route del 10.9.0.4/30 dev bb",
	"ip route add 10.9.0.8/29 via 10.8.0.9",
	"ip link set bb down",
	"ip link set bb up",
	"ip rule add to 10.9.0.0/24 table 99",
	"ip route add 10.9.0.0/24 dev bb table 99",
	"ip route del 10.9.0.0/24 dev bb table 99",
	"ip rule del to 10.9.0.0/24 table 99",
	"ip route add fd00::4/126 dev bb hoplimit 7",
	"ip route del fd00::4/126 dev bb",
	"ip addr add fd00::1/64 dev aa nodad",
	"ip addr del fd00::1/64 dev aa",
	"ip nexthop add id 5 via 10.8.0.9 dev bb",
	"ip route add 10.9.0.12/30 nhid 5",
	"ip nexthop replace id 5 dev aa",
	"ip nexthop del id 5",
};

static void it_is_what_the_kernel_would_say_after_each_change(void **state)
{
	struct rng rng = {7};
	for (unsigned i = 0; i < 3 * RPWI_ARRAY_LEN(changes); i++) {
		/* in order once, then at random: what does not apply changes nothing */
		unsigned k = i < RPWI_ARRAY_LEN(changes)
				     ? i
				     : (unsigned)(rng_next(&rng) % RPWI_ARRAY_LEN(changes));
		char command[200];
		IN_CASE("change", k);
		snprintf(command, sizeof(command), "%s 2>/dev/null", changes[k]);
		bool did = run(command);
		if (!did && i < RPWI_ARRAY_LEN(changes) && !strstr(command, "nexthop") &&
			!strstr(command, "nhid"))
			fail_msg("%s", changes[k]);
		for (unsigned n = 1; n < 16; n++) {
			struct rpwi_addr a = host(n), b = host6(n);
			expect_truth(&a);
			expect_truth(&b);
		}
	}
}

static int make_links(void **state)
{
	return !run("ip link add aa type veth peer name pa && ip link add bb type veth peer name "
		    "pb && ip link set aa up "
		    "&& ip link set bb up && ip addr add 10.8.0.1/24 dev bb");
}

int main(void)
{
	ns_enter();
	if (make_links(NULL)) {
		fprintf(stderr, "SKIPPED: no veth pairs here: no way was tested\n");
		return 77;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_is_kept_and_its_place_is_bounded),
		cmocka_unit_test(what_was_found_is_known_until_something_changes),
		cmocka_unit_test(it_is_what_the_kernel_would_say_after_each_change),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
