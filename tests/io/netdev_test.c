/* SPDX-License-Identifier: BSD-3-Clause */
/* netdev_test.c - the devices of a namespace whose links and addresses the test makes itself with
 * iproute2 (veth pairs). */
#include "ns.h"

#include <arpa/inet.h>

/* True if the command ran and succeeded. */
static bool run(const char *cmd) { return system(cmd) == 0; }

static const struct rpwi_netdev *find(const struct rpwi_netdev *l, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(l[i].name, name))
			return &l[i];
	fail_msg("no device %s", name);
	return NULL;
}

static void expect_gid(const struct rpwi_netdev *d, unsigned i, const char *text)
{
	uint8_t want[16];
	char got[64];
	assert_int_equal(inet_pton(AF_INET6, text, want), 1);
	assert_in_range(i + 1, 1, d->gid_count);
	if (memcmp(want, d->gid[i].raw, 16))
		fail_msg("%s GID %u is %s, not %s", d->name, i,
			inet_ntop(AF_INET6, d->gid[i].raw, got, sizeof(got)), text);
}

/* The kernel makes the local route of an IPv6 address in a work queue, which may come to it long
 * after `ip addr add` has returned. */
static bool is_local_soon(const struct rpwi_addr *a)
{
	enum { TURNS = 1000, TURN_US = 10000 };
	for (int i = 0; i < TURNS && !rpwi_netdev_route(a).local; i++)
		usleep(TURN_US);
	return rpwi_netdev_route(a).local;
}

static void loopback_alone(void **state)
{
	struct rpwi_netdev *l;
	assert_int_equal(rpwi_netdev_list(&l, NULL), 1);
	assert_string_equal(l->name, "rpw_lo");
	assert_true(l->loopback && l->up);
	assert_int_equal(l->mtu, 65536);
	assert_int_equal(l->gid_count, 3);
	expect_gid(l, 0, "fe80::200:ff:fe00:0");
	assert_true(rpwi_addr_eq(&l->gid[0].addr, &lo6));
	assert_true(l->gid[0].usable);
	expect_gid(l, 1, "::ffff:127.0.0.1");
	assert_true(rpwi_addr_eq(&l->gid[1].addr, &lo4));
	expect_gid(l, 2, "::1");
	free(l);
}

static void links_and_addresses(void **state)
{
	struct rpwi_netdev *l;
	if (!run("for i in aa bb cc; do ip link add $i type veth peer name p$i && ip link set p$i "
		 "addrgenmode none up || exit 1; done")) {
		fprintf(stderr, "SKIPPED: no veth pairs here: the list of devices was tested with "
				"loopback alone\n");
		skip();
	}
	assert_true(run("ip link set aa address 02:00:00:00:00:aa mtu 1400 addrgenmode none up && "
			"ip link set bb addrgenmode none up && ip link set cc "
			"addrgenmode none up"));
	assert_true(run("ip addr add 10.1.0.1/24 dev aa && ip addr add 10.2.0.1/24 dev bb && ip "
			"addr add 10.2.0.2/24 dev bb && ip addr add 10.3.0.1/24 dev bb"));
	assert_true(run("ip addr add fd00:3::1/64 dev cc nodad && ip addr add fd00:2::1/64 dev bb "
			"nodad && ip addr add fe80::b:b/64 dev bb nodad"));
	assert_true(run("ip route add default via 10.2.0.9 dev bb"));
	unsigned all;
	assert_int_equal(rpwi_netdev_list(&l, &all), 5); /* offer_test.c has what is hidden */
	assert_int_equal(all, 6);
	int n = (int)all;
	assert_string_equal(l[0].name, "rpw_bb"); /* the default route's first */
	assert_string_equal(l[5].name, "rpw_lo"); /* loopback last */

	const struct rpwi_netdev *aa = find(l, n, "rpw_aa"), *bb = find(l, n, "rpw_bb"),
				 *b1 = find(l, n, "rpw_bb_1"), *cc = find(l, n, "rpw_cc");
	/* also for who sorts by it, as librdmacm does */
	assert_true(rpwi_netdev_uverbs(aa) < rpwi_netdev_uverbs(&l[5]) &&
		    rpwi_netdev_uverbs(bb) < rpwi_netdev_uverbs(&l[5]) &&
		    rpwi_netdev_uverbs(cc) < rpwi_netdev_uverbs(&l[5]));
	assert_int_equal(aa->mtu, 1400);
	assert_int_equal(aa->mac[5], 0xaa);
	assert_int_equal(aa->gid_count, 2);
	expect_gid(aa, 0, "fe80::ff:fe00:aa"); /* made up from the MAC: nobody carries it */
	assert_false(aa->gid[0].usable);
	expect_gid(aa, 1, "::ffff:10.1.0.1");
	assert_true(aa->gid[1].usable);
	expect_gid(bb, 0, "fe80::b:b");
	assert_true(bb->gid[0].usable);
	assert_int_equal(bb->gid[0].addr.scope, bb->ifindex);
	expect_gid(bb, 1, "::ffff:10.2.0.1");
	expect_gid(bb, 2, "fd00:2::1");
	assert_int_equal(bb->gid_count, 3);
	expect_gid(b1, 0, "fe80::b:b");
	assert_string_equal(b1->ifname, "bb");
	/* the kernel lists secondary addresses after the primary ones */
	expect_gid(b1, 1, "::ffff:10.3.0.1");
	expect_gid(find(l, n, "rpw_bb_2"), 1, "::ffff:10.2.0.2");
	expect_gid(cc, 1, "fd00:3::1"); /* IPv6 alone: no mapped GID between */
	free(l);

	struct rpwi_addr a = {.family = 4, .bytes = {10, 2, 0, 2}},
			 b = {.family = 4, .bytes = {10, 2, 0, 3}}, c = {.family = 6};
	inet_pton(AF_INET6, "fd00:3::1", c.bytes);
	assert_true(rpwi_netdev_route(&a).local);
	assert_false(rpwi_netdev_route(&b).local);
	assert_true(is_local_soon(&c));
	c.bytes[15] = 2;
	assert_false(rpwi_netdev_route(&c).local);
	assert_true(rpwi_netdev_route(&lo4).local);
	assert_true(rpwi_netdev_route(&lo6).local);
}

static bool system_has(const char *name, int hops)
{
	char command[100];
	snprintf(command, sizeof(command), "echo %d >/proc/sys/net/%s", hops, name);
	return run(command);
}

static int hops_to(const struct rpwi_addr *a)
{
	struct rpwi_route r = rpwi_netdev_route(a);
	return rpwi_netdev_hops(a, &r);
}

/* The hop limit that a connection's packets get (the kernel's rdma_cm and rxe take it from there,
 * 6.1 to 7.2). */
static void a_route_has_its_hops(void **state)
{
	struct rpwi_addr near = {.family = 4, .bytes = {10, 2, 0, 3}},
			 far = {.family = 4, .bytes = {10, 77, 0, 1}}, six = {.family = 6};
	inet_pton(AF_INET6, "fd00:2::5", six.bytes);
	if (!run("ip link show bb >/dev/null 2>&1"))
		skip(); /* as above */
	assert_true(run("ip route add 10.77.0.0/24 via 10.2.0.9 hoplimit 9"));
	assert_true(
		system_has("ipv4/ip_default_ttl", 77) && system_has("ipv6/conf/bb/hop_limit", 33));
	assert_int_equal(hops_to(&near), 77);
	assert_int_equal(hops_to(&far), 9);
	assert_int_equal(hops_to(&six), 33);
	assert_true(
		system_has("ipv4/ip_default_ttl", 64) && system_has("ipv6/conf/bb/hop_limit", 64));
	assert_int_equal(hops_to(&near), 64);
	assert_int_equal(hops_to(&six), 64);
	assert_true(run("ip route del 10.77.0.0/24"));
}

static void watch_sees_changes(void **state)
{
	int fd = rpwi_netdev_watch_open();
	assert_true(fd >= 0);
	while (rpwi_netdev_watch_read(fd))
		;
	assert_false(rpwi_netdev_watch_read(fd));
	assert_true(run("ip addr add 127.9.9.9/32 dev lo"));
	assert_true(rpwi_netdev_watch_read(fd));
	assert_false(rpwi_netdev_watch_read(fd));
	close(fd);
	struct rpwi_netdev *l;
	int n = rpwi_netdev_list(&l, NULL);
	expect_gid(find(l, n, "rpw_lo_1"), 1, "::ffff:127.9.9.9");
	free(l);
	assert_true(run("ip addr del 127.9.9.9/32 dev lo"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(loopback_alone),
		cmocka_unit_test(watch_sees_changes), cmocka_unit_test(links_and_addresses),
		cmocka_unit_test(a_route_has_its_hops)};
	ns_enter();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
