/* SPDX-License-Identifier: BSD-3-Clause */
/* offer_test.c - which devices programs see, in a namespace whose interfaces the test makes: with
 * and without ROPEWAY_DEVICES, and while a process has the loopback interface's device in use. */
#include "lib/users.h"
#include "ns.h"

#include <arpa/inet.h>
#include <sys/wait.h>
#include <unistd.h>

static bool run(const char *cmd) { return system(cmd) == 0; }

/* "rpw_aa rpw_lo | rpw_bb": seen, then hidden */
static const char *list_text(void)
{
	static char text[256];
	struct rpwi_netdev *l;
	unsigned all;
	int n = rpwi_netdev_list(&l, &all);
	size_t used = 0;
	assert_true(n >= 0 && (unsigned)n <= all);
	text[0] = '\0';
	for (unsigned i = 0; i < all; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s%s",
			(int)i == n ? "| " : "", l[i].name, i + 1 < all ? " " : "");
	free(l);
	return text;
}

/* The kernel tells that a link is up when it comes to it: up to a second later (linkwatch). */
static void seen(const char *want)
{
	for (int i = 0; i < 1000 && strcmp(list_text(), want) != 0; i++)
		usleep(10000);
	assert_string_equal(list_text(), want);
}
#define SEEN(want) seen(want)

static void make_links(void)
{
	if (!run("ip link add aa type veth peer name paa && ip link add bb type veth peer name "
		 "pbb && ip link set paa addrgenmode none && ip link set pbb addrgenmode none && "
		 "ip link set aa addrgenmode none && ip link set bb addrgenmode none")) {
		fprintf(stderr, "SKIPPED: no veth pairs here\n");
		skip();
	}
}

static void drop_links(void) { assert_true(run("ip link del aa; ip link del bb")); }

/* What comes up step by step; only an interface with an address that reaches others hides it. */
static void loopback_is_shown_for_want_of_others(void **state)
{
	SEEN("rpw_lo");
	make_links();
	SEEN("rpw_lo");
	assert_true(run("ip addr add 10.1.0.1/24 dev aa"));
	SEEN("rpw_aa rpw_lo"); /* down */
	assert_true(run("ip link set aa up"));
	SEEN("rpw_aa rpw_lo"); /* no carrier */
	assert_true(run("ip link set paa up"));
	SEEN("rpw_aa | rpw_lo");
	assert_true(run("ip addr flush dev aa && ip addr add fe80::a/64 dev aa nodad"));
	SEEN("rpw_aa rpw_lo"); /* a link-local address alone */
	assert_true(run("ip addr add fd00::a/64 dev aa nodad"));
	SEEN("rpw_aa | rpw_lo");
	drop_links();
	SEEN("rpw_lo");
}

static void two_up(void)
{
	make_links();
	assert_true(run("ip addr add 10.1.0.1/24 dev aa && ip addr add 10.1.0.2/24 dev aa && ip "
			"addr add 10.2.0.1/24 dev bb && for i in aa paa bb pbb; do ip link set "
			"$i up; done"));
	bool up = false;
	for (int i = 0; i < 1000 && !up; i++) {
		struct rpwi_netdev *l;
		unsigned all, n = 0;
		assert_true(rpwi_netdev_list(&l, &all) >= 0);
		for (unsigned k = 0; k < all; k++)
			n += l[k].up;
		free(l);
		up = n == 4;
		usleep(up ? 0 : 10000);
	}
	assert_true(up);
}

static void names_choose(void **state)
{
	static const struct {
		const char *list, *seen;
	} row[] = {
		{"all", "rpw_aa rpw_aa_1 rpw_bb rpw_lo"},
		{"lo", "rpw_lo | rpw_aa rpw_aa_1 rpw_bb"},
		{"rpw_lo", "rpw_lo | rpw_aa rpw_aa_1 rpw_bb"},
		{"bb", "rpw_bb | rpw_aa rpw_aa_1 rpw_lo"},
		{"aa", "rpw_aa rpw_aa_1 | rpw_bb rpw_lo"},
		{"rpw_aa", "rpw_aa | rpw_aa_1 rpw_bb rpw_lo"},
		{" rpw_aa_1 , lo,", "rpw_aa_1 rpw_lo | rpw_aa rpw_bb"},
		{"bb,all", "rpw_aa rpw_aa_1 rpw_bb rpw_lo"},
		{"none", "| rpw_aa rpw_aa_1 rpw_bb rpw_lo"},
		{"a", "| rpw_aa rpw_aa_1 rpw_bb rpw_lo"},
		{"", "rpw_aa rpw_aa_1 rpw_bb | rpw_lo"}, /* as if it were not set */
		{" , ", "rpw_aa rpw_aa_1 rpw_bb | rpw_lo"},
		/* words about real devices alone: as if it were not set */
		{"software", "rpw_aa rpw_aa_1 rpw_bb | rpw_lo"},
		{"first,auto,^mlx5_0", "rpw_aa rpw_aa_1 rpw_bb | rpw_lo"},
		{"software,bb", "rpw_bb | rpw_aa rpw_aa_1 rpw_lo"},
		{"^aa", "rpw_bb | rpw_aa rpw_aa_1 rpw_lo"},
		{"^rpw_aa_1 software", "rpw_aa rpw_bb | rpw_aa_1 rpw_lo"},
		{"all,^rpw_aa,^lo", "rpw_aa_1 rpw_bb | rpw_aa rpw_lo"},
		{"^aa,^bb", "rpw_lo | rpw_aa rpw_aa_1 rpw_bb"}, /* for want of others */
		{"aa,^aa", "| rpw_aa rpw_aa_1 rpw_bb rpw_lo"},
	};
	struct rpwi_netdev *l;
	char name[64];
	unsigned all;
	two_up();
	for (size_t i = 0; i < RPWI_ARRAY_LEN(row); i++) {
		setenv("ROPEWAY_DEVICES", row[i].list, 1);
		SEEN(row[i].seen);
	}
	assert_true(rpwi_netdev_list(&l, &all) >= 0);
	setenv("ROPEWAY_DEVICES", "aa,rpw_lo,all,software,first,auto,^mlx5_0", 1);
	assert_false(rpwi_netdev_unknown(l, all, name, sizeof(name)));
	setenv("ROPEWAY_DEVICES", "aa,rpw_ll,zz", 1);
	assert_true(rpwi_netdev_unknown(l, all, name, sizeof(name)));
	assert_string_equal(name, "rpw_ll");
	unsetenv("ROPEWAY_DEVICES");
	free(l);
	drop_links();
}

/* What a child that `who` makes sees. */
static void child_sees(const char *want, uid_t who)
{
	pid_t pid = fork();
	int status;
	if (!pid)
		_exit((who && setresuid(who, who, who)) || strcmp(list_text(), want) != 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* An interface that comes up takes the device from nobody who has it, and all processes of the user
 * see the same. */
static void what_is_in_use_stays(void **state)
{
	int fd = rpwi_loopback_hold(), second = rpwi_loopback_hold();
	assert_true(fd >= 0 && second >= 0);
	SEEN("rpw_lo");
	two_up();
	SEEN("rpw_aa rpw_aa_1 rpw_bb rpw_lo");
	child_sees("rpw_aa rpw_aa_1 rpw_bb rpw_lo", 0);
	close(fd);
	SEEN("rpw_aa rpw_aa_1 rpw_bb rpw_lo");
	if (users_can_be_others("what another user sees"))
		child_sees("rpw_aa rpw_aa_1 rpw_bb | rpw_lo",
			4711); /* another user's is none of its */
	close(second);
	SEEN("rpw_aa rpw_aa_1 rpw_bb | rpw_lo");
	drop_links();
}

static struct sockaddr_in holders_address(int fd)
{
	struct sockaddr_in a = {0};
	socklen_t len = sizeof(a);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	return a;
}

/* Somebody else has the address, or binds it without being a holder. */
static void a_stranger_holds_nothing(void **state)
{
	int fd = rpwi_loopback_hold(), other;
	struct sockaddr_in a = holders_address(fd);
	close(fd);
	two_up();
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	SEEN("rpw_aa rpw_aa_1 rpw_bb | rpw_lo");
	close(fd);
	if (users_can_be_others("another user's address")) {
		assert_int_equal(seteuid(4711), 0);
		other = socket(AF_INET, SOCK_DGRAM, 0);
		assert_int_equal(bind(other, (struct sockaddr *)&a, sizeof(a)), 0);
		assert_int_equal(connect(other, (struct sockaddr *)&a, sizeof(a)), 0);
		assert_int_equal(seteuid(0), 0);
		SEEN("rpw_aa rpw_aa_1 rpw_bb | rpw_lo");
		close(other);
	}
	drop_links();
}

/* Those that ask at the same moment take no other's question for a holder. */
static void many_ask_at_once(void **state)
{
	enum { CHILDREN = 4, ROUNDS = 300 };
	int status, wrong = 0;
	two_up();
	for (int i = 0; i < CHILDREN; i++)
		if (!fork()) {
			int bad = 0;
			for (int k = 0; k < ROUNDS; k++)
				bad |= strcmp(list_text(), "rpw_aa rpw_aa_1 rpw_bb | rpw_lo") != 0;
			_exit(bad);
		}
	while (wait(&status) > 0)
		wrong += status != 0;
	assert_int_equal(wrong, 0);
	drop_links();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loopback_is_shown_for_want_of_others),
		cmocka_unit_test(names_choose),
		cmocka_unit_test(what_is_in_use_stays),
		cmocka_unit_test(a_stranger_holds_nothing),
		cmocka_unit_test(many_ask_at_once),
	};
	unsetenv("ROPEWAY_DEVICES");
	ns_enter();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
