/* SPDX-License-Identifier: BSD-3-Clause */
/* gsi_test.c - QP 1 between processes of one host: requests reach whoever has claimed the service,
 * wherever they land; a service that nobody has is refused at once; nothing of a burst is lost; a
 * peer that is killed or ends is noticed; strays and forgeries are counted and change nothing.
 *
 * Topology: a network namespace of the test's own with loopback; processes A and B, which do as the
 * test tells them, all on port 4791. Addresses: 127.0.0.1 is everybody's; the others of 127/8
 * belong to whoever is told to open them, so that it is known where a packet lands.
 */
#include "lib/users.h"
#include "gsi_proc.h"

enum { SERVICE_A = 0x106aaaa, SERVICE_B = 0x106bbbb, SERVICE_NONE = 0x106cccc };

static const struct rpwi_addr all = {0};
static const struct rpwi_addr addr2 = {.family = 4, .bytes = {127, 0, 0, 2}};

static struct proc a, b;

static int end_both(void **state)
{
	end(&a, SIGKILL);
	end(&b, SIGKILL);
	return 0;
}

/* A and B with a connection from A to B. */
static void connected_pair(void)
{
	open_engine(&a, &lo4);
	open_engine(&b, &lo4);
	claim(&b, SERVICE_B, &lo4);
	connect_to(&a, SERVICE_B, &lo4, &lo4, 1);
	await(&a.seen->active, 1);
	await(&b.seen->passive, 1);
}

/* One flow lands at one process whatever it asks for; A asks for a service here and one there, so
 * one of the two has to be handed over. */
static void both_ways(
	const struct rpwi_addr *addr, const struct rpwi_addr *claimed, uid_t user_a, uid_t user_b)
{
	open_engine_as(&a, addr, user_a);
	open_engine_as(&b, addr, user_b);
	claim(&a, SERVICE_A, claimed);
	claim(&b, SERVICE_B, claimed);
	connect_to(&a, SERVICE_A, addr, addr, 1);
	connect_to(&a, SERVICE_B, addr, addr, 1);
	connect_to(&b, SERVICE_A, addr, addr, 1);
	connect_to(&b, SERVICE_B, addr, addr, 1);
	await(&a.seen->active, 2);
	await(&b.seen->active, 2);
	await(&a.seen->passive, 2);
	await(&b.seen->passive, 2);
	assert_int_equal(a.seen->requests, 2);
	assert_int_equal(b.seen->requests, 2);
	assert_int_equal(a.seen->bad + b.seen->bad, 0);
	assert_true(COUNTER_OF(&a, mads_handed_over) + COUNTER_OF(&b, mads_handed_over) >= 2);
	assert_int_equal(
		tell(&a,
			(struct order){
				.verb = SIDR, .service = SERVICE_B, .from = *addr, .to = *addr}),
		0);
	await(&a.seen->event[RPWI_CM_EV_SIDR_REP], 1);
	assert_int_equal(a.seen->sidr_status, 0);
	assert_int_equal(a.seen->sidr_qpn, 0x4242);
	/* of that with itself, both ends */
	assert_int_equal(tell(&a, (struct order){.verb = DISCONNECT}), 4);
	await_state(&a, RPWI_CM_ESTABLISHED, 0);
	await_state(&b, RPWI_CM_ESTABLISHED, 2); /* its own with itself */
}
static void both_ways_ipv4(void **state) { both_ways(&lo4, &lo4, 0, 0); }
static void both_ways_ipv6(void **state) { both_ways(&lo6, &lo6, 0, 0); }
static void both_ways_wildcard(void **state) { both_ways(&lo4, &all, 0, 0); }

/* All packets land at A, whose user has the port; those of B are handed over: both have said that
 * they share it. */
static void both_ways_another_user(void **state)
{
	if (!users_can_be_others("connections between users"))
		skip();
	both_ways(&lo4, &lo4, 1003, 1001);
	end_both(state);
	both_ways(&lo4, &all, 1001, 1002);
}

static bool run(const char *command) { return system(command) == 0; }

/* The same address on two interfaces, told apart by the scope. */
static void both_ways_link_local(void **state)
{
	if (!run("ip link add ll0 type veth peer name ll1 && ip link set ll1 addrgenmode none up "
		 "&& ip link set ll0 addrgenmode none up && ip addr add "
		 "fe80::7:7/64 dev ll0 nodad")) {
		fprintf(stderr,
			"SKIPPED: no veth pair here: link-local addresses were not tried\n");
		skip();
	}
	struct rpwi_addr ll = {.family = 6,
		.bytes = {0xfe, 0x80, [13] = 7, [15] = 7},
		.scope = if_nametoindex("ll0")};
	both_ways(&ll, &ll, 0, 0);
	assert_int_equal(tell(&a, (struct order){.verb = LOCAL, .from = ll}), 0);
	ll.scope++;
	assert_int_equal(tell(&a, (struct order){.verb = LOCAL, .from = ll}), -EADDRNOTAVAIL);
	assert_true(run("ip link del ll0"));
}

static void address_comes_and_goes(void **state)
{
	static const struct rpwi_addr late = {.family = 4, .bytes = {10, 99, 0, 1}};
	open_engine(&a, &lo4);
	assert_int_equal(tell(&a, (struct order){.verb = LOCAL, .from = late}), -EADDRNOTAVAIL);
	unsigned before = a.seen->addresses_changed;
	assert_true(run("ip addr add 10.99.0.1/32 dev lo"));
	for (int i = 0; i < WAIT_MS && tell(&a, (struct order){.verb = LOCAL, .from = late}); i++)
		usleep(1000);
	assert_int_equal(tell(&a, (struct order){.verb = LOCAL, .from = late}), 0);
	for (int i = 0; i < WAIT_MS && a.seen->addresses_changed == before; i++)
		usleep(1000);
	assert_true(a.seen->addresses_changed > before);
	assert_int_equal(tell(&a, (struct order){.verb = PORT, .from = late}), 0);
	claim(&a, SERVICE_A, &all);
	connect_to(&a, SERVICE_A, &lo4, &late, 1);
	await(&a.seen->active, 1);
	assert_true(run("ip addr del 10.99.0.1/32 dev lo"));
	for (int i = 0; i < WAIT_MS && !tell(&a, (struct order){.verb = LOCAL, .from = late}); i++)
		usleep(1000);
	assert_int_equal(tell(&a, (struct order){.verb = LOCAL, .from = late}), -EADDRNOTAVAIL);
}

static void refused(struct proc *p, const struct rpwi_addr *from, const struct rpwi_addr *to)
{
	unsigned before = p->seen->event[RPWI_CM_EV_REJ],
		 sidr = p->seen->event[RPWI_CM_EV_SIDR_REP];
	connect_to(p, SERVICE_NONE, from, to, 1);
	await(&p->seen->event[RPWI_CM_EV_REJ], before + 1);
	assert_int_equal(p->seen->rej_reason, RPWI_REJ_INVALID_SERVICE_ID);
	assert_int_equal(
		tell(p,
			(struct order){
				.verb = SIDR, .service = SERVICE_NONE, .from = *from, .to = *to}),
		0);
	await(&p->seen->event[RPWI_CM_EV_SIDR_REP], sidr + 1);
	assert_int_equal(p->seen->sidr_status, 1);
	assert_int_equal(p->seen->event[RPWI_CM_EV_REQ_ERROR], 0);
}

static void nobody_listens(void **state)
{
	open_engine(&a, &lo4);
	open_engine(&b, &lo4);
	refused(&a, &lo4, &lo4);
	refused(&b, &lo4, &lo4);
	claim(&b, SERVICE_NONE, &addr2); /* not on the address that is asked */
	refused(&a, &lo4, &lo4);
	assert_int_equal(
		tell(&b, (struct order){.verb = UNCLAIM, .service = SERVICE_NONE, .from = addr2}),
		0);
	claim(&b, SERVICE_NONE, &lo4);
	connect_to(&a, SERVICE_NONE, &lo4, &lo4, 1);
	await(&a.seen->active, 1);
	assert_int_equal(
		tell(&b, (struct order){.verb = UNCLAIM, .service = SERVICE_NONE, .from = lo4}), 0);
	refused(&a, &lo4, &lo4);
}

/* A plain verbs program has the address: it answers for the host, though it never heard of
 * connections. */
static void no_engine_there(void **state)
{
	open_engine(&a, &lo4);
	start(&b);
	assert_int_equal(tell(&b, (struct order){.verb = OPEN_DEVICE_PORT, .from = addr2}), 0);
	refused(&a, &lo4, &addr2);
	assert_true(COUNTER_OF(&b, mads) > 0);
	/* And it hands over what somebody else listens to: here, the one who asks. */
	claim(&a, SERVICE_A, &all);
	connect_to(&a, SERVICE_A, &lo4, &addr2, 1);
	await(&a.seen->active, 1);
	await(&a.seen->passive, 1);
	assert_true(COUNTER_OF(&b, mads_handed_over) > 0);
}

/* All land at A, which has the address; B listens, and sleeps. */
static void burst(void **state)
{
	enum { N = 300, AT_ONCE = 64 };
	open_engine(&a, &lo4);
	assert_int_equal(tell(&a, (struct order){.verb = PORT, .from = addr2}), 0);
	open_engine(&b, &lo4);
	claim(&b, SERVICE_B, &all);
	assert_int_equal(tell(&b, (struct order){.verb = NAP, .n = 500}), 0);
	connect_to(&a, SERVICE_B, &lo4, &addr2, N);
	await(&a.seen->active, N);
	await(&b.seen->passive, N);
	assert_int_equal(a.seen->bad + b.seen->bad, 0);
	/* At least what was sent before B first answered: to answer, B opens the address too, and
	 * gets a part of the rest itself. */
	assert_true(COUNTER_OF(&a, mads_handed_over) >= AT_ONCE);
	assert_int_equal(tell(&a, (struct order){.verb = LOST}), 0);
	assert_int_equal(b.seen->requests, N);
	assert_int_equal(tell(&b, (struct order){.verb = DISCONNECT}), N);
	await(&a.seen->event[RPWI_CM_EV_DREQ], N);
	await(&b.seen->event[RPWI_CM_EV_DREP], N);
}

static void killed_peer(void **state)
{
	connected_pair();
	claim(&a, SERVICE_A, &lo4);
	connect_to(&b, SERVICE_A, &lo4, &lo4, 3);
	await(&a.seen->passive, 3);
	connect_to(&a, SERVICE_A, &lo4, &lo4, 1); /* with itself: that peer lives */
	await(&a.seen->active, 2);
	end(&b, SIGKILL);
	await(&a.seen->event[RPWI_CM_EV_PEER_GONE], 4);
	assert_int_equal(tell(&a, (struct order){.verb = STATE, .n = RPWI_CM_ESTABLISHED}), 2);
	assert_int_equal(a.seen->event[RPWI_CM_EV_DREQ], 0);
}

/* What is left of a killed process's connections is answered by whoever is there: nobody waits a
 * minute for a DREP. The look at who is gone may come first, but not every time. */
static void disconnect_from_killed(void **state)
{
	for (int round = 0; round < 5; round++) {
		IN_CASE("round", round);
		connected_pair();
		end(&b, SIGKILL);
		tell(&a, (struct order){.verb = DISCONNECT});
		for (int i = 0; i < WAIT_MS && !a.seen->event[RPWI_CM_EV_DREP] &&
				!a.seen->event[RPWI_CM_EV_PEER_GONE];
			i++)
			usleep(1000);
		assert_int_equal(
			a.seen->event[RPWI_CM_EV_DREP] + a.seen->event[RPWI_CM_EV_PEER_GONE], 1);
		assert_int_equal(tell(&a, (struct order){.verb = STATE, .n = RPWI_CM_TIMEWAIT}), 1);
		bool answered = a.seen->event[RPWI_CM_EV_DREP] && COUNTER_OF(&a, mads_for_gone);
		end(&a, 0);
		if (answered)
			return;
	}
	fail_msg("nobody answers for a process that was killed");
}

/* The client gives up before the server has decided: its REJ names no receiver, and lands where the
 * request did, which is not where the server is. */
static void taken_back(void **state)
{
	open_engine(&a, &lo4);
	assert_int_equal(tell(&a, (struct order){.verb = PORT, .from = addr2}), 0);
	open_engine(&b, &lo4);
	claim(&b, SERVICE_B, &all);
	assert_int_equal(tell(&b, (struct order){.verb = HOLD}), 0);
	connect_to(&a, SERVICE_B, &lo4, &addr2, 3);
	await(&b.seen->requests, 3);
	assert_int_equal(tell(&a, (struct order){.verb = DESTROY}), 0);
	await(&b.seen->event[RPWI_CM_EV_REJ], 3);
	assert_int_equal(b.seen->rej_reason, RPWI_REJ_TIMEOUT);
}

/* A request for B, and then one more, lie in A's socket when A closes it. */
static void what_lies_in_a_socket_that_closes_goes_to_its_owner(void **state)
{
	struct proc c = {0};
	open_engine(&a, &addr2);
	open_engine(&b, &lo4);
	open_engine(&c, &lo4);
	claim(&b, SERVICE_B, &all);
	assert_int_equal(tell(&b, (struct order){.verb = HOLD}), 0);
	assert_int_equal(tell(&a, (struct order){.verb = PUT_LATE, .n = 100}), 0);
	connect_to(&c, SERVICE_B, &lo4, &addr2, 2);
	await(&b.seen->requests, 2);
	assert_int_equal(a.seen->requests + c.seen->requests, 0);
	end(&c, SIGKILL);
}

/* Killed in the middle of the handshake, on either side. */
static void killed_in_handshake(void **state)
{
	open_engine(&a, &lo4);
	open_engine(&b, &lo4);
	claim(&a, SERVICE_A, &lo4);
	assert_int_equal(tell(&a, (struct order){.verb = HOLD}), 0);
	connect_to(&b, SERVICE_A, &lo4, &lo4, 2);
	await(&a.seen->requests, 2);
	end(&b, SIGKILL);
	await(&a.seen->event[RPWI_CM_EV_PEER_GONE], 2);
	/* The server: who asks it again finds nobody there. */
	open_engine(&b, &lo4);
	claim(&b, SERVICE_B, &lo4);
	assert_int_equal(tell(&b, (struct order){.verb = HOLD}), 0);
	connect_to(&a, SERVICE_B, &lo4, &lo4, 1);
	await(&b.seen->requests, 1);
	end(&b, SIGKILL);
	await(&a.seen->event[RPWI_CM_EV_REJ], 1);
	assert_int_equal(a.seen->rej_reason, RPWI_REJ_INVALID_SERVICE_ID);
}

static void exit_says_so(void **state)
{
	connected_pair();
	end(&a, 0);
	await(&b.seen->event[RPWI_CM_EV_DREQ], 1);
	assert_int_equal(b.seen->event[RPWI_CM_EV_PEER_GONE], 0);
}

/* A thousand at once, more than a socket of the default size holds: each is told, by the end of the
 * process or by its absence. */
static void exit_with_many(void **state)
{
	enum { N = 1000 };
	open_engine(&a, &lo4);
	open_engine(&b, &lo4);
	claim(&b, SERVICE_B, &lo4);
	connect_to(&a, SERVICE_B, &lo4, &lo4, N);
	await(&a.seen->active, N);
	await(&b.seen->passive, N);
	end(&a, 0);
	for (int i = 0; i < WAIT_MS &&
			b.seen->event[RPWI_CM_EV_DREQ] + b.seen->event[RPWI_CM_EV_PEER_GONE] < N;
		i++)
		usleep(1000);
	assert_int_equal(b.seen->event[RPWI_CM_EV_DREQ] + b.seen->event[RPWI_CM_EV_PEER_GONE], N);
	assert_int_equal(tell(&b, (struct order){.verb = STATE, .n = RPWI_CM_ESTABLISHED}), 0);
}

static void fork_child_exits(void **state)
{
	connected_pair();
	assert_int_equal(tell(&a, (struct order){.verb = FORK_EXIT}), 0);
	assert_int_equal(tell(&b, (struct order){.verb = FORK_EXIT}), 0);
	/* The connection lives: a DREQ would have come before this answer, from the same socket. */
	connect_to(&a, SERVICE_B, &lo4, &lo4, 1);
	await(&b.seen->passive, 2);
	assert_int_equal(b.seen->event[RPWI_CM_EV_DREQ], 0);
	assert_int_equal(a.seen->event[RPWI_CM_EV_DREQ], 0);
	assert_int_equal(tell(&b, (struct order){.verb = STATE, .n = RPWI_CM_ESTABLISHED}), 2);
}

static void fork_child_on_its_own(void **state)
{
#ifdef __SANITIZE_THREAD__
	skip(); /* ThreadSanitizer ends a child that starts a thread */
#endif
	connected_pair();
	assert_int_equal(tell(&a, (struct order){.verb = FORK_OWN,
					  .service = SERVICE_B,
					  .from = lo4,
					  .to = lo4,
					  .n = 1}),
		0);
	await(&b.seen->passive, 2);
	await(&b.seen->event[RPWI_CM_EV_DREQ], 1); /* the child's, when it ended */
	assert_int_equal(tell(&b, (struct order){.verb = STATE, .n = RPWI_CM_ESTABLISHED}), 1);
	assert_int_equal(tell(&a, (struct order){.verb = STATE, .n = RPWI_CM_ESTABLISHED}), 1);
	assert_int_equal(tell(&a, (struct order){.verb = DISCONNECT}), 1);
	await(&a.seen->event[RPWI_CM_EV_DREP], 1);
}

/* As daemon(3): the child goes on with the connections, the parent ends without a word. */
static void fork_daemon(void **state)
{
#ifdef __SANITIZE_THREAD__
	skip();
#endif
	connected_pair();
	assert_int_equal(tell(&a, (struct order){.verb = DAEMON}), 0);
	connect_to(&a, SERVICE_B, &lo4, &lo4, 1);
	await(&b.seen->passive, 2);
	await(&a.seen->active, 2);
	claim(&a, SERVICE_A, &lo4);
	connect_to(&b, SERVICE_A, &lo4, &lo4, 1);
	await(&a.seen->passive, 1);
	assert_int_equal(b.seen->event[RPWI_CM_EV_DREQ] + b.seen->event[RPWI_CM_EV_PEER_GONE], 0);
	assert_int_equal(tell(&a, (struct order){.verb = DISCONNECT}), 3);
	await(&b.seen->event[RPWI_CM_EV_DREQ], 3);
	await(&a.seen->event[RPWI_CM_EV_DREP], 3);
}

/* ---- what nobody should send ---- */

static void send_raw(const struct rpwi_addr *to, const struct rpwi_pkt *head,
	const uint8_t *payload, uint32_t len, uint32_t icrc_xor)
{
	uint8_t out[RPWI_PACKET_MAX];
	struct rpwi_pkt p = *head;
	union io_sockaddr sa;
	p.payload_len = len;
	p.pad = (uint8_t)((4 - len % 4) % 4);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), one = IP_PMTUDISC_DO;
	assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &one, sizeof(one)), 0);
	assert_int_equal(bind(fd, &sa.sa, rpwi_sockaddr_make(&sa, &lo4, 0)), 0);
	socklen_t sl = sizeof(sa);
	getsockname(fd, &sa.sa, &sl);
	struct rpwi_flow flow = {
		.src = lo4, .dst = *to, .sport = ntohs(sa.in.sin_port), .dport = RPWI_UDP_PORT};
	size_t n = rpwi_pkt_encode(&p, out);
	struct rpwi_iov part = {payload, len};
	uint32_t icrc = rpwi_icrc(&flow, 0, out, n, &part, 1, p.pad) ^ icrc_xor;
	memcpy(out + n, payload, len);
	memset(out + n + len, 0, p.pad);
	rpwi_put_le32(out + n + len + p.pad, icrc);
	n += len + p.pad + RPWI_ICRC_LEN;
	assert_int_equal(
		sendto(fd, out, n, 0, &sa.sa, rpwi_sockaddr_make(&sa, to, RPWI_UDP_PORT)), n);
	close(fd);
}

static void not_for_qp1(void **state)
{
	static const struct {
		uint8_t opcode;
		uint16_t pkey;
		uint32_t dqpn, qkey, len;
	} bad[] = {
		{RPWI_SVC_UD | RPWI_OP_SEND_ONLY, 0xffff, 1, 0x80010001, 256},
		{RPWI_SVC_UD | RPWI_OP_SEND_ONLY, 0xffff, 1, 0x00010000, 256},
		{RPWI_SVC_UD | RPWI_OP_SEND_ONLY, 0xffff, 1, RPWI_GSI_QKEY, 255},
		{RPWI_SVC_UD | RPWI_OP_SEND_ONLY, 0xffff, 1, RPWI_GSI_QKEY, 0},
		{RPWI_SVC_UD | RPWI_OP_SEND_ONLY, 0xffff, 1, RPWI_GSI_QKEY, 260},
		{RPWI_SVC_UD | RPWI_OP_SEND_ONLY, 0x8001, 1, RPWI_GSI_QKEY, 256},
		{RPWI_SVC_UD | RPWI_OP_SEND_ONLY_IMM, 0xffff, 1, RPWI_GSI_QKEY, 256},
		{RPWI_SVC_RC | RPWI_OP_SEND_ONLY, 0xffff, 1, RPWI_GSI_QKEY, 256},
	};
	uint8_t mad[512];
	struct rpwi_cm_msg req = {.attr = RPWI_CM_REQ, .tid = 99, .local_comm_id = 0xabcdef12};
	open_engine(&a, &lo4);
	open_engine(&b, &addr2);
	claim(&b, SERVICE_B, &addr2);
	connect_to(&a, SERVICE_B, &lo4, &addr2, 1);
	await(&a.seen->active, 1);
	await(&b.seen->passive, 1);
	memset(mad, 0, sizeof(mad));
	req.req.service_id = SERVICE_B;
	req.req.qpn = 0x777777;
	rpwi_cm_encode(&req, mad);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(bad); i++) {
		struct rpwi_pkt p = {.opcode = bad[i].opcode,
			.pkey = bad[i].pkey,
			.dqpn = bad[i].dqpn,
			.qkey = bad[i].qkey,
			.sqpn = 1,
			.migreq = true};
		send_raw(&addr2, &p, mad, bad[i].len, 0);
	}
	await_counter(&b, offsetof(struct hca_counters, mads_dropped), RPWI_ARRAY_LEN(bad));
	struct rpwi_pkt good = {.opcode = RPWI_SVC_UD | RPWI_OP_SEND_ONLY,
		.pkey = 0xffff,
		.dqpn = 1,
		.qkey = RPWI_GSI_QKEY,
		.sqpn = 1,
		.migreq = true};
	send_raw(&addr2, &good, mad, 256, 0x5a5a5a5a);
	await_counter(&b, offsetof(struct hca_counters, icrc_errors), 1);
	good.dqpn = 0;
	send_raw(&addr2, &good, mad, 256, 0);
	await_counter(&b, offsetof(struct hca_counters, qp0), 1);
	/* Well-formed, for connections that are not, from somebody who is not their peer. */
	int before = COUNTER_OF(&b, mads);
	good.dqpn = 1;
	for (unsigned attr = RPWI_CM_MRA; attr <= RPWI_CM_APR; attr++) {
		struct rpwi_cm_msg m = {.attr = (uint16_t)attr,
			.tid = attr,
			.local_comm_id = 0x12345678,
			.remote_comm_id = 0x00000001};
		if (attr == RPWI_CM_SIDR_REQ || attr == RPWI_CM_LAP || attr == RPWI_CM_APR)
			continue;
		rpwi_cm_encode(&m, mad);
		send_raw(&addr2, &good, mad, 256, 0);
		before++;
	}
	await_counter(&b, offsetof(struct hca_counters, mads), before);
	assert_int_equal(b.seen->requests, 1);
	assert_int_equal(tell(&b, (struct order){.verb = STATE, .n = RPWI_CM_ESTABLISHED}), 1);
	assert_int_equal(tell(&a, (struct order){.verb = DISCONNECT}), 1);
	await(&a.seen->event[RPWI_CM_EV_DREP], 1);
}

/* Messages with a communication ID come straight to whose it is, from whatever port they are sent,
 * once the port group knows its members. */
static void steered_by_the_kernel(void **state)
{
	enum { N = 40, ROUNDS = 100 };
	uint8_t mad[RPWI_MAD_LEN];
	const struct rpwi_pkt head = {.opcode = RPWI_SVC_UD | RPWI_OP_SEND_ONLY,
		.pkey = 0xffff,
		.dqpn = 1,
		.qkey = RPWI_GSI_QKEY,
		.sqpn = 1,
		.migreq = true};
	open_engine(&a, &lo4);
	open_engine(&b, &lo4);
	uint32_t slot[2] = {(uint32_t)tell(&a, (struct order){.verb = SLOT}),
		(uint32_t)tell(&b, (struct order){.verb = SLOT})};
	bool straight = false;
	for (int round = 1; round <= ROUNDS && !straight; round++) {
		int handed = COUNTER_OF(&a, mads_handed_over) + COUNTER_OF(&b, mads_handed_over);
		for (unsigned i = 0; i < N; i++) {
			static const uint16_t attr[] = {
				RPWI_CM_DREP, RPWI_CM_SIDR_REP, RPWI_CM_RTU, RPWI_CM_REJ};
			uint32_t id = slot[i % 2] << 20 | 0xfff00 | i,
				 other = slot[1 - i % 2] << 20 | i;
			struct rpwi_cm_msg m = {.attr = attr[i / 2 % 4],
				.tid = i,
				.local_comm_id = other,
				.remote_comm_id = id};
			if (m.attr == RPWI_CM_SIDR_REP) {
				m.local_comm_id = id;
				m.remote_comm_id = 0;
			}
			rpwi_cm_encode(&m, mad);
			send_raw(&lo4, &head, mad, sizeof(mad), 0);
		}
		await_counter(&a, offsetof(struct hca_counters, mads), round * N / 2);
		await_counter(&b, offsetof(struct hca_counters, mads), round * N / 2);
		straight = COUNTER_OF(&a, mads_handed_over) + COUNTER_OF(&b, mads_handed_over) ==
			   handed;
	}
	assert_true(straight);
}

/* A stopped process keeps no requests from those that live: who joins after it stopped has them
 * come to itself. */
static void stopped_member(void **state)
{
	enum { N = 24, ROUNDS = 10 };
	uint8_t mad[RPWI_MAD_LEN];
	const struct rpwi_pkt head = {.opcode = RPWI_SVC_UD | RPWI_OP_SEND_ONLY,
		.pkey = 0xffff,
		.dqpn = 1,
		.qkey = RPWI_GSI_QKEY,
		.sqpn = 1,
		.migreq = true};
	open_engine(&a, &lo4);
	kill(a.pid, SIGSTOP);
	open_engine(&b, &lo4);
	bool all_came = false;
	for (int round = 1; round <= ROUNDS && !all_came; round++) {
		int before = tell(&b, (struct order){.verb = REFUSED});
		for (unsigned i = 0; i < N; i++) {
			struct rpwi_cm_msg m = {.attr = RPWI_CM_SIDR_REQ,
				.tid = (uint64_t)round << 8 | i,
				.local_comm_id = (uint32_t)round << 8 | i,
				.sidr_req = {.pkey = 0xffff, .service_id = SERVICE_NONE}};
			rpwi_cm_encode(&m, mad);
			send_raw(&lo4, &head, mad, sizeof(mad), 0);
		}
		for (int i = 0; i < 1000 && tell(&b, (struct order){.verb = REFUSED}) < before + N;
			i++)
			usleep(1000);
		all_came = tell(&b, (struct order){.verb = REFUSED}) == before + N;
	}
	assert_true(all_came);
}

/* ---- what is left behind ---- */

static void nothing_is_left(void **state)
{
	start(&a);
	assert_int_equal(tell(&a, (struct order){.verb = LOCAL, .from = lo4}), 0);
	assert_int_equal(tell(&a, (struct order){.verb = LOCAL, .from = lo6}), 0);
	assert_int_equal(tell(&a, (struct order){.verb = LOCAL, .from = addr2}), -EADDRNOTAVAIL);
	int files = tell(&a, (struct order){.verb = FILES});
	for (int round = 0; round < 3; round++) {
		IN_CASE("round", round);
		assert_int_equal(tell(&a, (struct order){.verb = GET}), 0);
		assert_int_equal(tell(&a, (struct order){.verb = PORT, .from = lo4}), 0);
		assert_int_equal(tell(&a, (struct order){.verb = PORT, .from = lo4}), 0);
		claim(&a, SERVICE_A, &all);
		connect_to(&a, SERVICE_A, &lo4, &lo4, 5);
		await(&a.seen->active, 5 * (unsigned)(round + 1));
		await(&a.seen->passive, 5 * (unsigned)(round + 1));
		assert_int_equal(
			tell(&a,
				(struct order){.verb = UNCLAIM, .service = SERVICE_A, .from = all}),
			0);
		assert_int_equal(tell(&a, (struct order){.verb = UNPORT, .from = lo4}), 0);
		assert_int_equal(tell(&a, (struct order){.verb = UNPORT, .from = lo4}), 0);
		assert_int_equal(tell(&a, (struct order){.verb = PUT}), 0);
		assert_int_equal(tell(&a, (struct order){.verb = FILES}), files);
	}
}

/* An argument is a pattern of the names of tests to run. */
int main(int argc, char **argv)
{
	ns_enter();
	/* else datagrams do not land where they do not belong: reject_cm_test.c */
	setenv("ROPEWAY_WIRE", "udp", 1);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(both_ways_ipv4, end_both),
		cmocka_unit_test_teardown(both_ways_ipv6, end_both),
		cmocka_unit_test_teardown(both_ways_wildcard, end_both),
		cmocka_unit_test_teardown(both_ways_another_user, end_both),
		cmocka_unit_test_teardown(both_ways_link_local, end_both),
		cmocka_unit_test_teardown(address_comes_and_goes, end_both),
		cmocka_unit_test_teardown(nobody_listens, end_both),
		cmocka_unit_test_teardown(no_engine_there, end_both),
		cmocka_unit_test_teardown(burst, end_both),
		cmocka_unit_test_teardown(killed_peer, end_both),
		cmocka_unit_test_teardown(disconnect_from_killed, end_both),
		cmocka_unit_test_teardown(taken_back, end_both),
		cmocka_unit_test_teardown(
			what_lies_in_a_socket_that_closes_goes_to_its_owner, end_both),
		cmocka_unit_test_teardown(killed_in_handshake, end_both),
		cmocka_unit_test_teardown(exit_says_so, end_both),
		cmocka_unit_test_teardown(exit_with_many, end_both),
		cmocka_unit_test_teardown(fork_child_exits, end_both),
		cmocka_unit_test_teardown(fork_child_on_its_own, end_both),
		cmocka_unit_test_teardown(fork_daemon, end_both),
		cmocka_unit_test_teardown(not_for_qp1, end_both),
		cmocka_unit_test_teardown(steered_by_the_kernel, end_both),
		cmocka_unit_test_teardown(stopped_member, end_both),
		cmocka_unit_test_teardown(nothing_is_left, end_both),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
