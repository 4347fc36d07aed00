/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_test.c - what is special to the verbs transport: the choice between two offers, handles,
 * sentences where there is no device, and a peer on another host that falls silent.
 *
 * verbs_test                 the cases
 * verbs_test PROGRAM ARGS    runs the program in a network namespace of its own: the conformance
 *                            suite
 */
#include "pair.h"

#include "../io/ns.h"
#include "base/error.h"
#include "tran/verbs/verbs_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

/* ---- offers ---- */

static struct verbs_gid gid(const char *text, enum verbs_gid_type type, unsigned prefix)
{
	struct verbs_gid g = {.type = (uint8_t)type, .prefix = (uint8_t)prefix};
	rpwi_verbs_gid_of_address(text, g.raw);
	return g;
}

static void add_port(struct verbs_offer *o, const char *name, unsigned mbps, unsigned mtu)
{
	struct verbs_port *p = &o->port[o->ports];
	*p = (struct verbs_port){.dev = (uint8_t)o->ports,
		.port = 1,
		.mtu = (uint8_t)mtu,
		.ethernet = true,
		.mbps = mbps,
		.qpn = 0x100 + o->ports,
		.psn = 77,
		.rd_in = 16};
	snprintf(p->name, sizeof(p->name), "%s", name);
	o->ports++;
}

static void add_gid(struct verbs_offer *o, struct verbs_gid g)
{
	struct verbs_port *p = &o->port[o->ports - 1];
	g.index = p->gids;
	p->gid[p->gids++] = g;
}

static struct verbs_offer offer(void)
{
	return (struct verbs_offer){.window = 4, .nonce = 0x12345678};
}

/* The names and GIDs that both sides come to, "a 10.0.0.1 b 10.0.0.2"; each side's view must be the
 * other's mirrored. */
static const char *chosen(const struct verbs_offer *a, const struct verbs_offer *b, bool same_host)
{
	static char text[200];
	struct verbs_choice x, y;
	bool found = rpwi_verbs_choose(a, b, true, same_host, &x);
	assert_int_equal(rpwi_verbs_choose(b, a, false, same_host, &y), found);
	if (!found)
		return "none";
	assert_true(x.own_port == y.peer_port && x.own_gid == y.peer_gid &&
		    x.peer_port == y.own_port && x.peer_gid == y.own_gid);
	char g[VERBS_GID_TEXT], h[VERBS_GID_TEXT];
	snprintf(text, sizeof(text), "%s %s %s %s", a->port[x.own_port].name,
		rpwi_verbs_gid_text(a->port[x.own_port].gid[x.own_gid].raw, g, sizeof(g)),
		b->port[x.peer_port].name,
		rpwi_verbs_gid_text(b->port[x.peer_port].gid[x.peer_gid].raw, h, sizeof(h)));
	return text;
}

static void choice_prefers(void **state)
{
	struct verbs_offer a = offer(), b = offer();
	add_port(&a, "a0", 10000, 3);
	add_gid(&a, gid("fe80::1", VERBS_GID_ROCE_V2, 64));
	add_gid(&a, gid("10.0.0.1", VERBS_GID_ROCE_V1, 120));
	add_gid(&a, gid("10.0.0.1", VERBS_GID_ROCE_V2, 120));
	add_gid(&a, gid("2001:db8::1", VERBS_GID_ROCE_V2, 64));
	add_port(&b, "b0", 10000, 3);
	add_gid(&b, gid("fe80::2", VERBS_GID_ROCE_V2, 64));
	add_gid(&b, gid("2001:db8::2", VERBS_GID_ROCE_V2, 64));
	add_gid(&b, gid("10.0.0.2", VERBS_GID_ROCE_V1, 120));
	add_gid(&b, gid("10.0.0.2", VERBS_GID_ROCE_V2, 120));
	assert_string_equal(chosen(&a, &b, false), "a0 ::ffff:10.0.0.1 b0 ::ffff:10.0.0.2");
	/* A faster pair on a subnet of its own; a still faster one that needs a router does not
	 * come before. */
	add_port(&a, "a1", 100000, 5);
	add_gid(&a, gid("10.1.0.1", VERBS_GID_ROCE_V2, 112));
	add_port(&b, "b1", 100000, 5);
	add_gid(&b, gid("10.1.9.2", VERBS_GID_ROCE_V2, 112));
	add_port(&b, "b2", 400000, 5);
	add_gid(&b, gid("10.7.0.2", VERBS_GID_ROCE_V2, 120));
	assert_string_equal(chosen(&a, &b, false), "a1 ::ffff:10.1.0.1 b1 ::ffff:10.1.9.2");
}

/* A peer that is reached over IPv4 is not looked for at a link-local IPv6 address, however fast
 * that seems. */
static void choice_follows_the_control_path(void **state)
{
	struct verbs_offer a = offer(), b = offer();
	char text[160];
	struct verbs_choice c;
	add_port(&a, "fast", 400000, 5);
	add_gid(&a, gid("fe80::1", VERBS_GID_ROCE_V2, 64));
	add_port(&a, "eth0", 1000, 3);
	add_gid(&a, gid("fe80::2", VERBS_GID_ROCE_V2, 64));
	add_gid(&a, gid("10.77.0.1", VERBS_GID_ROCE_V2, 0)); /* its subnet is not known */
	add_port(&b, "rxe0", 1000, 5);
	add_gid(&b, gid("fe80::3", VERBS_GID_ROCE_V2, 64));
	add_gid(&b, gid("10.77.0.2", VERBS_GID_ROCE_V2, 120));
	assert_string_equal(chosen(&a, &b, false), "eth0 ::ffff:10.77.0.1 rxe0 ::ffff:10.77.0.2");
	rpwi_verbs_gid_of_address("10.77.0.2", a.sees);
	rpwi_verbs_gid_of_address("10.77.0.1", b.sees);
	assert_string_equal(chosen(&a, &b, false), "eth0 ::ffff:10.77.0.1 rxe0 ::ffff:10.77.0.2");
	assert_true(rpwi_verbs_choose(&a, &b, true, false, &c));
	rpwi_verbs_choice_text(&a, &b, &c, text, sizeof(text));
	assert_string_equal(text,
		"eth0, GID 1 ::ffff:10.77.0.1, MTU 1024, to rxe0 "
		"::ffff:10.77.0.2 on one subnet (2 other pairs of GIDs would do)");
	assert_true(rpwi_verbs_choose(&b, &a, false, false, &c));
	rpwi_verbs_choice_text(&b, &a, &c, text, sizeof(text));
	assert_string_equal(text,
		"rxe0, GID 1 ::ffff:10.77.0.2, MTU 1024, to eth0 "
		"::ffff:10.77.0.1 on one subnet (2 other pairs of GIDs would do)");
	/* Rails: two of equal worth on both sides. The first of the active side's wins, on both. */
	add_port(&a, "eth1", 1000, 3);
	add_gid(&a, gid("10.77.0.3", VERBS_GID_ROCE_V2, 120));
	add_port(&b, "rxe1", 1000, 5);
	add_gid(&b, gid("10.77.0.4", VERBS_GID_ROCE_V2, 120));
	for (unsigned i = 0; i < 3; i++)
		assert_string_equal(
			chosen(&a, &b, false), "eth0 ::ffff:10.77.0.1 rxe0 ::ffff:10.77.0.2");
	/* A NIC comes before a software device. */
	a.port[1].software = b.port[0].software = true;
	assert_string_equal(chosen(&a, &b, false), "eth1 ::ffff:10.77.0.3 rxe1 ::ffff:10.77.0.4");
}

static void choice_loopback_and_twins(void **state)
{
	struct verbs_offer a = offer(), b = offer();
	add_port(&a, "lo", 100000, 5);
	add_gid(&a, gid("127.0.0.1", VERBS_GID_ROCE_V2, 104));
	add_port(&b, "lo", 100000, 5);
	add_gid(&b, gid("127.0.0.1", VERBS_GID_ROCE_V2, 104));
	assert_string_equal(chosen(&a, &b, true), "lo ::ffff:127.0.0.1 lo ::ffff:127.0.0.1");
	assert_string_equal(chosen(&a, &b, false), "none");
	/* Bridges of containers have one address on every host: that is no network between them. */
	add_port(&a, "docker0", 10000, 3);
	add_gid(&a, gid("172.17.0.1", VERBS_GID_ROCE_V2, 112));
	add_port(&b, "docker0", 10000, 3);
	add_gid(&b, gid("172.17.0.1", VERBS_GID_ROCE_V2, 112));
	assert_string_equal(chosen(&a, &b, false), "none");
	add_port(&a, "eth0", 1000, 3);
	add_gid(&a, gid("192.168.1.1", VERBS_GID_ROCE_V2, 120));
	add_port(&b, "eth0", 1000, 3);
	add_gid(&b, gid("192.168.2.2", VERBS_GID_ROCE_V2, 120));
	/* Without it docker0 would be as good a way to the router. */
	rpwi_verbs_gid_of_address("192.168.2.2", a.sees);
	rpwi_verbs_gid_of_address("192.168.1.1", b.sees);
	assert_string_equal(
		chosen(&a, &b, false), "eth0 ::ffff:192.168.1.1 eth0 ::ffff:192.168.2.2");
	/* RoCE v1 and v2 do not understand each other, nor do Ethernet and InfiniBand. */
	struct verbs_offer v1 = offer(), ib = offer();
	add_port(&v1, "x", 1000, 3);
	add_gid(&v1, gid("192.168.1.9", VERBS_GID_ROCE_V1, 120));
	add_port(&ib, "y", 1000, 3);
	add_gid(&ib, gid("fe80::5", VERBS_GID_IB, 64));
	ib.port[0].ethernet = false;
	assert_string_equal(chosen(&a, &v1, false), "none");
	assert_string_equal(chosen(&v1, &ib, false), "none");
}

static struct rng rng;
static unsigned rnd(unsigned n) { return (unsigned)rng_below(&rng, n); }

static struct verbs_offer random_offer(void)
{
	struct verbs_offer o = offer();
	for (unsigned p = 0, ports = 1 + rnd(VERBS_PORTS_MAX); p < ports; p++) {
		char text[40];
		add_port(&o, "r", 1000u << rnd(4), 1 + rnd(5));
		o.port[p].dev = (uint8_t)rnd(VERBS_PLANES_MAX);
		o.port[p].ethernet = rnd(4) > 0;
		o.port[p].software = rnd(2);
		for (unsigned g = 0, n = rnd(VERBS_GIDS_MAX + 1); g < n; g++) {
			snprintf(text, sizeof(text), rnd(2) ? "10.0.%u.%u" : "2001:db8:%u::%u",
				rnd(3), rnd(3));
			add_gid(&o, gid(text, (enum verbs_gid_type)rnd(3), rnd(2) * 120));
		}
	}
	snprintf(o.port[0].name, sizeof(o.port[0].name), "first");
	return o;
}

static void choice_is_the_same_on_both_sides(void **state)
{
	unsigned found = 0;
	rng.state = test_seed(1);
	while (found < 2000) {
		struct verbs_offer a = random_offer(), b = random_offer();
		found += strcmp(chosen(&a, &b, rnd(2)), "none") != 0;
	}
}

static void handle_is_read_as_written_and_nothing_else(void **state)
{
	uint8_t handle[TRAN_HANDLE_MAX], bad[TRAN_HANDLE_MAX];
	struct verbs_offer back;
	rng.state = test_seed(7);
	for (unsigned round = 0; round < 20; round++) {
		IN_CASE("round", round);
		struct verbs_offer o = random_offer();
		size_t len = rpwi_verbs_offer_write(&o, handle, sizeof(handle));
		assert_true(len > 0 && len <= sizeof(handle));
		assert_int_equal(rpwi_verbs_offer_read(&back, handle, len), 0);
		assert_memory_equal(&back, &o, sizeof(o));
		for (size_t n = 0; n < len; n++)
			assert_int_equal(rpwi_verbs_offer_read(&back, handle, n), RPW_ERR_PROTOCOL);
		for (size_t i = 0; i < len; i++) {
			memcpy(bad, handle, len);
			bad[i] ^= (uint8_t)(1 + rnd(255));
			assert_int_equal(rpwi_verbs_offer_read(&back, bad, len), RPW_ERR_PROTOCOL);
		}
	}
	handle[4]++;
	assert_int_equal(rpwi_verbs_offer_read(&back, handle, sizeof(handle)), RPW_ERR_PROTOCOL);
	assert_non_null(strstr(rpwi_last_error()->text, "version 2, this side speaks 1"));
}

/* ---- no device ---- */

/* In a process of its own, since a library that was loaded stays. Gives what usable says, and what
 * open and ep_make do then. */
static void say_unusable(int to)
{
	char why[300] = "";
	struct tran_facts f;
	pair_facts(&f);
	int rc = tran_verbs.usable(&f, &f, why, sizeof(why));
	if (rc >= 0)
		snprintf(why, sizeof(why), rc ? "usable, in software" : "usable");
	if (write(to, why, strlen(why) + 1) < 0)
		_exit(1);
	_exit(0);
}

static const char *unusable(const char *library, bool lo_down)
{
	static char why[300];
	int fds[2];
	assert_int_equal(pipe(fds), 0);
	pid_t pid = fork();
	if (!pid) {
		if (library)
			setenv("ROPEWAY_VERBS_LIB", library, 1);
		if (lo_down && unshare(CLONE_NEWNET))
			_exit(1);
		say_unusable(fds[1]);
	}
	close(fds[1]);
	ssize_t got = read(fds[0], why, sizeof(why) - 1);
	why[got > 0 ? got : 0] = '\0';
	close(fds[0]);
	int status;
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	return why;
}

static void without_a_device_a_sentence_says_so(void **state)
{
	assert_non_null(strstr(
		unusable("/nowhere/libropeway-verbs.so", false), "/nowhere/libropeway-verbs.so"));
	assert_non_null(strstr(unusable(NULL, true), "shows no RDMA device"));
	assert_string_equal(unusable(NULL, false), "usable, in software");
	struct tran_facts own, peer;
	char why[200];
	pair_facts(&own);
	peer = own;
	snprintf(peer.transports, sizeof(peer.transports), "shm,tcp,xverbs");
	assert_int_equal(tran_verbs.usable(&own, &peer, why, sizeof(why)), RPW_ERR_NOT_SUPPORTED);
	assert_non_null(strstr(why, "testhost has no verbs device"));
}

/* What is learned of a host: only ever less, told once, and nothing of others. */
static void a_way_becomes_narrower(void **state)
{
	struct verbs *t = calloc(1, sizeof(*t));
	struct tran_facts peer = {.host_id = {1, 2, 3}}, other = {.host_id = {9}};
	assert_non_null(t);
	assert_int_equal(rpwi_verbs_way_mtu(t, peer.host_id), 5);
	assert_false(rpwi_verbs_way_again(&t->base, &peer));
	assert_true(rpwi_verbs_way_narrow(t, peer.host_id, 5, 0)); /* one less */
	assert_int_equal(rpwi_verbs_way_mtu(t, peer.host_id), 4);
	assert_false(rpwi_verbs_way_again(&t->base, &other));
	assert_true(rpwi_verbs_way_again(&t->base, &peer));
	assert_false(rpwi_verbs_way_again(&t->base, &peer));
	assert_true(rpwi_verbs_way_narrow(t, peer.host_id, 4, 1023)); /* what is known to pass */
	assert_int_equal(rpwi_verbs_way_mtu(t, peer.host_id), 2);
	assert_true(rpwi_verbs_way_narrow(t, peer.host_id, 2, 4096)); /* it did not: less */
	assert_int_equal(rpwi_verbs_way_mtu(t, peer.host_id), 1);
	assert_false(rpwi_verbs_way_narrow(t, peer.host_id, 1, 0));
	assert_false(rpwi_verbs_way_narrow(t, peer.host_id, 5, 200));
	assert_int_equal(rpwi_verbs_way_mtu(t, other.host_id), 5);
	for (uint8_t i = 0; i < 2 * VERBS_WAYS_MAX; i++) { /* others push it out */
		other.host_id[1] = i;
		assert_true(rpwi_verbs_way_narrow(t, other.host_id, 5, 0));
	}
	assert_int_equal(rpwi_verbs_way_mtu(t, peer.host_id), 5);
	free(t);
}

/* Across a router, though it is the control path's own pair: that is what is told. */
static void a_router_is_told(void **state)
{
	struct verbs_offer a = offer(), b = offer();
	struct verbs_choice c;
	char text[160];
	add_port(&a, "eth0", 1000, 5);
	add_gid(&a, gid("192.168.7.2", VERBS_GID_ROCE_V2, 120));
	add_port(&b, "eth0", 1000, 5);
	add_gid(&b, gid("10.77.5.2", VERBS_GID_ROCE_V2, 120));
	rpwi_verbs_gid_of_address("10.77.5.2", a.sees);
	rpwi_verbs_gid_of_address("192.168.7.2", b.sees);
	assert_true(rpwi_verbs_choose(&a, &b, true, false, &c));
	rpwi_verbs_choice_text(&a, &b, &c, text, sizeof(text));
	assert_non_null(strstr(text, " by a router"));
}

/* ---- a peer on another host ---- */

static void alias(const char *name, const char *address)
{
	struct ifreq ifr = {0};
	struct sockaddr_in *sin = (struct sockaddr_in *)(void *)&ifr.ifr_addr;
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	sin->sin_family = AF_INET;
	inet_pton(AF_INET, address, &sin->sin_addr);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(ioctl(fd, SIOCSIFADDR, &ifr), 0);
	inet_pton(AF_INET, "255.255.255.0", &sin->sin_addr);
	assert_int_equal(ioctl(fd, SIOCSIFNETMASK, &ifr), 0);
	close(fd);
}

static void got_frame(
	struct end *e, const uint8_t *head, size_t head_len, const uint8_t *body, size_t body_len)
{
}

/* Two processes that take each other for another host's: their end is known only from silence. */
static void silent_peer_of_another_host(void **state)
{
	struct side s;
	struct end e = {.frame = got_frame};
	alias("lo:1", "10.9.0.1");
	alias("lo:2", "10.9.0.2");
	assert_int_equal(pair_fork(&s, &tran_verbs), 0);
	if (s.which) {
		if (pair_open(&s))
			_exit(1);
		s.peer_facts.host_id[0]++;
		if (!pair_connect(&s, &e) || !pair_send(&e, "alive", 5, "", 0))
			_exit(1);
		for (;;)
			s.ops->progress(s.t);
	}
	assert_int_equal(pair_open(&s), 0);
	s.peer_facts.host_id[0]++;
	assert_true(pair_connect(&s, &e));
	assert_non_null(strstr(e.ep->path, "::ffff:10.9.0."));
	assert_true(pair_until_count(&s, &e.frames, 1));
	kill(s.child, SIGKILL);
	waitpid(s.child, NULL, 0);
	assert_true(pair_send(&e, "anybody?", 8, "", 0));
	assert_true(pair_until(&s, &e.is_failed));
	assert_int_equal(e.status, RPW_ERR_UNREACHABLE);
	assert_non_null(strstr(e.why, "10.9.0.1"));
	assert_non_null(strstr(e.why, "10.9.0.2"));
	s.ops->ep_close(e.ep);
	pair_close(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(choice_prefers),
		cmocka_unit_test(choice_follows_the_control_path),
		cmocka_unit_test(choice_loopback_and_twins),
		cmocka_unit_test(a_router_is_told),
		cmocka_unit_test(a_way_becomes_narrower),
		cmocka_unit_test(choice_is_the_same_on_both_sides),
		cmocka_unit_test(handle_is_read_as_written_and_nothing_else),
		cmocka_unit_test(without_a_device_a_sentence_says_so),
		cmocka_unit_test(silent_peer_of_another_host),
	};
	ns_enter();
	if (argc > 1) {
		execv(argv[1], argv + 1);
		fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
