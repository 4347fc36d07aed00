/* SPDX-License-Identifier: BSD-3-Clause */
/* claim_test.c - services claimed by several processes of one network namespace: who excludes whom,
 * what a process that ends or forks leaves behind, and requests that are handed over to a claimant:
 * each arrives once and in order, however slow the claimant, and whoever its user is. */
#include "lib/users.h"
#include "ns.h"

#include <signal.h>
#include <sys/resource.h>

enum { BURST = 1000, SERVICE = 0x1061234, OTHER_SERVICE = 0x1061235 };

static const struct rpwi_addr all = {0};
static const struct rpwi_addr one = {.family = 4, .bytes = {127, 0, 0, 1}};
static const struct rpwi_addr two = {.family = 4, .bytes = {127, 0, 0, 2}};
static const struct rpwi_addr six = {.family = 6, .bytes = {[15] = 1}};
static const struct rpwi_addr link2 = {.family = 6, .bytes = {0xfe, 0x80, [15] = 9}, .scope = 2};
static const struct rpwi_addr link3 = {.family = 6, .bytes = {0xfe, 0x80, [15] = 9}, .scope = 3};

static struct rpwi_steer *steer; /* this process's */

/* ---- another process, that does as it is told ---- */

enum verb { CLAIM, UNCLAIM, OWNS, TAKE, SLOT, END };
struct order {
	enum verb verb;
	uint64_t service;
	struct rpwi_addr addr;
	unsigned n;
};
struct other {
	pid_t pid;
	int fd;
};

static int order(const struct other *o, enum verb verb, uint64_t service,
	const struct rpwi_addr *addr, unsigned n)
{
	struct order what = {.verb = verb, .service = service, .n = n};
	int answer = -1;
	what.addr = *addr;
	assert_int_equal(write(o->fd, &what, sizeof(what)), sizeof(what));
	assert_int_equal(read(o->fd, &answer, sizeof(answer)), sizeof(answer));
	return answer;
}

/* Take n packets; how many came as they were sent: once, in order, each with its own pattern. */
static int take(unsigned n)
{
	struct rpwi_rx rx;
	unsigned got = 0;
	for (int idle = 0; got < n && idle < 5000;) {
		if (rpwi_steer_recv(steer, &rx) != 1) {
			idle++;
			usleep(1000);
			continue;
		}
		for (size_t at = 0; at < rx.len; at += rx.seg_len, got++) {
			struct rpwi_pkt pkt;
			if (rpwi_pkt_decode(
				    rx.data + at, RPWI_MIN(rx.seg_len, rx.len - at), &pkt) ||
				pkt.psn != got || pkt.payload_len != 256)
				return -EBADMSG;
			for (unsigned i = 0; i < 256; i++)
				if (pkt.payload[i] != pattern(7, got, i))
					return -EBADMSG;
		}
	}
	usleep(20000);
	return rpwi_steer_recv(steer, &rx) == 1 ? -EEXIST : (int)got; /* one too many */
}

static void obey(int fd)
{
	struct order o;
	while (read(fd, &o, sizeof(o)) == sizeof(o) && o.verb != END) {
		int answer = 0;
		uint16_t slot = 0;
		if (o.verb == CLAIM)
			answer = rpwi_steer_claim_service(steer, o.service, &o.addr);
		else if (o.verb == UNCLAIM)
			rpwi_steer_unclaim_service(steer, o.service, &o.addr);
		else if (o.verb == OWNS)
			answer = rpwi_steer_owns_service(steer, o.service, &o.addr);
		else if (o.verb == TAKE)
			answer = take(o.n);
		else if (o.verb == SLOT)
			answer = rpwi_steer_slots(steer, &slot, 1) ? slot : -1;
		if (write(fd, &answer, sizeof(answer)) != sizeof(answer))
			break;
	}
}

static struct other start_as(uid_t uid)
{
	int fd[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct rpwi_steer *parents = steer;
		close(fd[0]);
		rpwi_io_atfork_child();
		if (parents)
			rpwi_steer_close(parents);
		if (uid && (setresgid(uid, uid, uid) || setresuid(uid, uid, uid)))
			_exit(3);
		if (rpwi_steer_open(&steer))
			_exit(4);
		obey(fd[1]);
		rpwi_steer_close(steer);
		_exit(0);
	}
	close(fd[1]);
	struct other o = {.pid = pid, .fd = fd[0]};
	assert_int_equal(order(&o, OWNS, 0, &all, 0), 0);
	return o;
}
static struct other start(void) { return start_as(0); }

static void end(struct other *o, int signo)
{
	struct order what = {.verb = END};
	int status;
	if (signo)
		kill(o->pid, signo);
	else
		assert_int_equal(write(o->fd, &what, sizeof(what)), sizeof(what));
	assert_int_equal(waitpid(o->pid, &status, 0), o->pid);
	if (!signo)
		assert_int_equal(status, 0);
	close(o->fd);
}

static int claim(const struct rpwi_addr *a) { return rpwi_steer_claim_service(steer, SERVICE, a); }
static void unclaim(const struct rpwi_addr *a) { rpwi_steer_unclaim_service(steer, SERVICE, a); }

static int open_steer(void **state) { return rpwi_steer_open(&steer); }
static int close_steer(void **state)
{
	rpwi_steer_close(steer);
	steer = NULL;
	return 0;
}

/* ---- who excludes whom ---- */

static void within_one_process(void **state)
{
	assert_int_equal(claim(&one), 0);
	assert_int_equal(claim(&one), -EADDRINUSE);
	assert_int_equal(claim(&all), -EADDRNOTAVAIL);
	assert_int_equal(claim(&two), 0);
	assert_int_equal(claim(&six), 0);
	assert_int_equal(rpwi_steer_claim_service(steer, OTHER_SERVICE, &all), 0);
	assert_int_equal(rpwi_steer_claim_service(steer, OTHER_SERVICE, &one), -EADDRNOTAVAIL);
	unclaim(&one);
	assert_int_equal(claim(&all), -EADDRNOTAVAIL);
	unclaim(&two);
	unclaim(&six);
	assert_int_equal(claim(&all), 0);
	assert_int_equal(claim(&one), -EADDRNOTAVAIL);
	assert_int_equal(claim(&all), -EADDRINUSE);
	unclaim(&all);
	assert_int_equal(claim(&one), 0);
}

static void which_are_ours(void **state)
{
	assert_false(rpwi_steer_owns_service(steer, SERVICE, &one));
	assert_int_equal(claim(&one), 0);
	assert_true(rpwi_steer_owns_service(steer, SERVICE, &one));
	assert_false(rpwi_steer_owns_service(steer, SERVICE, &two));
	assert_false(rpwi_steer_owns_service(steer, OTHER_SERVICE, &one));
	unclaim(&two); /* never claimed */
	assert_true(rpwi_steer_owns_service(steer, SERVICE, &one));
	unclaim(&one);
	unclaim(&one);
	assert_false(rpwi_steer_owns_service(steer, SERVICE, &one));
	assert_int_equal(claim(&all), 0);
	assert_true(rpwi_steer_owns_service(steer, SERVICE, &two));
	assert_true(rpwi_steer_owns_service(steer, SERVICE, &six));
}

/* The same link-local address on two interfaces is two addresses. */
static void link_local(void **state)
{
	assert_int_equal(claim(&link2), 0);
	assert_int_equal(claim(&link3), 0);
	assert_int_equal(claim(&link2), -EADDRINUSE);
	assert_int_equal(claim(&all), -EADDRNOTAVAIL);
	unclaim(&link3);
	assert_true(rpwi_steer_owns_service(steer, SERVICE, &link2));
	assert_false(rpwi_steer_owns_service(steer, SERVICE, &link3));
}

static void two_processes(void **state)
{
	struct other o = start();
	assert_int_equal(order(&o, CLAIM, SERVICE, &one, 0), 0);
	assert_int_equal(claim(&one), -EADDRINUSE);
	assert_int_equal(claim(&all), -EADDRNOTAVAIL);
	assert_false(rpwi_steer_owns_service(steer, SERVICE, &one));
	assert_int_equal(claim(&two), 0);
	assert_int_equal(order(&o, CLAIM, SERVICE, &all, 0), -EADDRNOTAVAIL);
	assert_int_equal(order(&o, UNCLAIM, SERVICE, &one, 0), 0);
	unclaim(&two);
	assert_int_equal(claim(&all), 0);
	assert_int_equal(order(&o, CLAIM, SERVICE, &one, 0), -EADDRNOTAVAIL);
	assert_int_equal(order(&o, CLAIM, SERVICE, &all, 0), -EADDRINUSE);
	assert_int_equal(order(&o, CLAIM, OTHER_SERVICE, &all, 0), 0);
	end(&o, 0);
}

/* Of many who want it at once, never two get it. */
static void race(void **state)
{
	enum { RACERS = 8, ROUNDS = 20 };
	struct other o[RACERS];
	for (unsigned i = 0; i < RACERS; i++)
		o[i] = start();
	for (unsigned round = 0; round < ROUNDS; round++) {
		IN_CASE("round", round);
		unsigned winners_all = 0, winners_one = 0;
		for (unsigned i = 0; i < RACERS; i++) {
			struct order what = {
				.verb = CLAIM, .service = SERVICE, .addr = i % 2 ? all : one};
			assert_int_equal(write(o[i].fd, &what, sizeof(what)), sizeof(what));
		}
		for (unsigned i = 0; i < RACERS; i++) {
			int answer;
			assert_int_equal(read(o[i].fd, &answer, sizeof(answer)), sizeof(answer));
			assert_true(
				answer == 0 || answer == -EADDRINUSE || answer == -EADDRNOTAVAIL);
			if (!answer && i % 2)
				winners_all++;
			else if (!answer)
				winners_one++;
		}
		assert_in_range(winners_all + winners_one, 0, 1);
		for (unsigned i = 0; i < RACERS; i++)
			order(&o[i], UNCLAIM, SERVICE, i % 2 ? &all : &one, 0);
	}
	for (unsigned i = 0; i < RACERS; i++)
		end(&o[i], 0);
	assert_int_equal(claim(&all), 0);
}

static void released_by_death(void **state)
{
	struct other o = start();
	int slot = order(&o, SLOT, 0, &all, 0);
	assert_int_equal(order(&o, CLAIM, SERVICE, &all, 0), 0);
	assert_int_equal(claim(&one), -EADDRNOTAVAIL);
	assert_true(rpwi_steer_slot_exists(steer, (uint16_t)slot));
	end(&o, SIGKILL);
	assert_false(rpwi_steer_slot_exists(steer, (uint16_t)slot));
	assert_int_equal(claim(&one), 0);
}

/* A fork's child keeps no copy of a claim that the parent gives up. */
static void not_kept_by_a_child(void **state)
{
	assert_int_equal(claim(&one), 0);
	struct other o = start();
	assert_int_equal(order(&o, OWNS, SERVICE, &one, 0), 0);
	assert_int_equal(order(&o, CLAIM, SERVICE, &one, 0), -EADDRINUSE);
	unclaim(&one);
	assert_int_equal(claim(&one), 0);
	unclaim(&one);
	assert_int_equal(order(&o, CLAIM, SERVICE, &one, 0), 0);
	end(&o, 0);
}

/* A thousand listeners; and each gives its descriptor back. */
static unsigned open_descriptors(void)
{
	unsigned n = 0;
	for (int fd = 0; fd < 4096; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void a_thousand(void **state)
{
	unsigned before = open_descriptors();
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(
			rpwi_steer_claim_service(steer, SERVICE + i, i % 2 ? &one : &six), 0);
	assert_int_equal(open_descriptors(), before + 1000);
	assert_true(rpwi_steer_owns_service(steer, SERVICE + 999, &one));
	for (unsigned i = 0; i < 1000; i++)
		rpwi_steer_unclaim_service(steer, SERVICE + i, i % 2 ? &one : &six);
	assert_int_equal(open_descriptors(), before);
}

/* ---- handing over ---- */

static uint8_t packets[BURST][RPWI_PACKET_MAX];

/* All of the burst, landed at our port; true if there was somebody to give it to. */
static bool hand_over(struct rpwi_port *p, unsigned n)
{
	for (unsigned k = 0; k < n; k++) {
		struct rpwi_pkt pkt = {.opcode = RPWI_SVC_UD | RPWI_OP_SEND_ONLY,
			.pkey = RPWI_PKEY_DEFAULT,
			.dqpn = 1,
			.psn = k,
			.payload_len = 256};
		size_t len = rpwi_pkt_encode(&pkt, packets[k]);
		for (unsigned i = 0; i < 256; i++)
			packets[k][len + i] = pattern(7, k, i);
		len += 256 + RPWI_ICRC_LEN;
		struct rpwi_rx rx = {
			.flow = {.src = two, .dst = one, .sport = 50000, .dport = RPWI_UDP_PORT},
			.data = packets[k],
			.len = len,
			.seg_len = len,
			.ip_id = -1};
		if (!rpwi_port_hand_over_service(p, &rx, packets[k], len, SERVICE))
			return false;
	}
	rpwi_port_timer(p, rpwi_now_ns());
	return true;
}

static struct rpwi_port *open_port(void)
{
	struct rpwi_port *p;
	char why[RPWI_WHY_LEN];
	assert_int_equal(rpwi_port_open(steer, &one, false, &p, why, sizeof(why)), 0);
	return p;
}

/* What waits goes out while the claimant reads: its answer ends the loop. */
static int serve_until_answered(struct rpwi_port *p, const struct other *o, unsigned n)
{
	struct order what = {.verb = TAKE, .n = n};
	int answer = -1;
	assert_int_equal(write(o->fd, &what, sizeof(what)), sizeof(what));
	while (recv(o->fd, &answer, sizeof(answer), MSG_DONTWAIT) < 0) {
		rpwi_port_timer(p, rpwi_now_ns());
		usleep(200);
	}
	return answer;
}

static void burst_to(const struct rpwi_addr *addr, uid_t uid)
{
	struct rpwi_port *p = open_port();
	struct rpwi_port_stats st;
	struct other o = start_as(uid), idle = start();
	assert_false(hand_over(p, 1)); /* to nobody */
	assert_int_equal(order(&o, CLAIM, SERVICE, addr, 0), 0);
	assert_int_equal(order(&idle, CLAIM, SERVICE, &two, 0), addr->family ? 0 : -EADDRNOTAVAIL);
	/* The claimant reads nothing yet: its queue holds ten or so. */
	assert_true(hand_over(p, BURST));
	assert_int_equal(serve_until_answered(p, &o, BURST), BURST);
	rpwi_port_stats(p, &st);
	assert_int_equal(st.hand_over_lost, 0);
	assert_int_equal(st.handed_over, BURST);
	end(&o, 0);
	assert_false(hand_over(p, 1));
	end(&idle, 0);
	rpwi_port_close(p);
}
static void burst_on_one(void **state) { burst_to(&one, 0); }
static void burst_on_all(void **state) { burst_to(&all, 0); }

/* What waited for a claimant that died is given up, and the next claimant gets only what is its
 * own. */
static void claimant_dies(void **state)
{
	struct rpwi_port *p = open_port();
	struct other o = start();
	assert_int_equal(order(&o, CLAIM, SERVICE, &one, 0), 0);
	assert_true(hand_over(p, 100));
	end(&o, SIGKILL);
	for (unsigned i = 0; i < 10; i++, usleep(1000))
		rpwi_port_timer(p, rpwi_now_ns());
	o = start();
	assert_int_equal(order(&o, CLAIM, SERVICE, &one, 0), 0);
	assert_true(hand_over(p, 20));
	assert_int_equal(serve_until_answered(p, &o, 20), 20);
	end(&o, 0);
	rpwi_port_close(p);
}

/* ---- another user ---- */

/* Each user's services are its own: a request that landed at ours is for ours alone. */
static void another_user(void **state)
{
	if (!users_can_be_others("claims of other users"))
		skip();
	struct rpwi_port *p = open_port();
	struct other o = start_as(1001);
	assert_int_equal(order(&o, CLAIM, SERVICE, &one, 0), 0);
	assert_false(hand_over(p, 1));
	assert_int_equal(claim(&all), 0);
	assert_int_equal(order(&o, CLAIM, OTHER_SERVICE, &all, 0), 0);
	end(&o, SIGKILL);
	rpwi_port_close(p);
}

/* But for users who say so on both sides. */
static void users_who_share(void **state)
{
	if (!users_can_be_others("claims of other users"))
		skip();
	close_steer(state);
	setenv("ROPEWAY_SHARE_PORT", "1", 1);
	open_steer(state);
	struct other o = start_as(1001);
	assert_int_equal(order(&o, CLAIM, SERVICE, &one, 0), 0);
	assert_int_equal(claim(&one), -EADDRINUSE);
	assert_int_equal(claim(&all), -EADDRNOTAVAIL);
	assert_int_equal(claim(&two), 0);
	assert_int_equal(order(&o, CLAIM, SERVICE, &all, 0), -EADDRNOTAVAIL);
	end(&o, SIGKILL);
	assert_int_equal(claim(&one), 0);
	unclaim(&one);
	unclaim(&two);
	burst_to(&one, 1001);
	unsetenv("ROPEWAY_SHARE_PORT");
}

int main(void)
{
	struct rlimit files;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max; /* a_thousand */
	setrlimit(RLIMIT_NOFILE, &files);
	ns_enter();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(within_one_process, open_steer, close_steer),
		cmocka_unit_test_setup_teardown(which_are_ours, open_steer, close_steer),
		cmocka_unit_test_setup_teardown(link_local, open_steer, close_steer),
		cmocka_unit_test_setup_teardown(two_processes, open_steer, close_steer),
		cmocka_unit_test_setup_teardown(race, open_steer, close_steer),
		cmocka_unit_test_setup_teardown(released_by_death, open_steer, close_steer),
		cmocka_unit_test_setup_teardown(not_kept_by_a_child, open_steer, close_steer),
		cmocka_unit_test_setup_teardown(a_thousand, open_steer, close_steer),
		cmocka_unit_test_setup_teardown(burst_on_one, open_steer, close_steer),
		cmocka_unit_test_setup_teardown(burst_on_all, open_steer, close_steer),
		cmocka_unit_test_setup_teardown(claimant_dies, open_steer, close_steer),
		cmocka_unit_test_setup_teardown(another_user, open_steer, close_steer),
		cmocka_unit_test_setup_teardown(users_who_share, open_steer, close_steer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
