/* SPDX-License-Identifier: BSD-3-Clause */
/* steer_test.c - several processes on one port: every packet reaches the process that owns its QPN,
 * exactly once, while processes join, stop, are killed, or belong to another user; and same-host
 * pacing. Topology: one namespace, loopback, this process and its children all on port 4791 of one
 * address. */
#include "lib/users.h"
#include "lib/descriptors.h"
#include "steer_kit.h"

static void two_processes(void **state)
{
	open_self(&lo4);
	spawn(1, &lo4);
	assert_int_not_equal(members[0].slot, members[1].slot);
	exchange(1, &lo4);
	until_steered(1, &lo4);
	end_kid(1, 0);
	exchange(1, &lo4);
}

static void five_processes(const struct rpwi_addr *a)
{
	open_self(a);
	for (unsigned i = 1; i <= 4; i++)
		spawn(i, a);
	exchange(4, a);
	until_steered(4, a);
	/* The last member moves into the hole: packets land wrong until the program is renewed. */
	end_kid(1, SIGKILL);
	exchange(4, a);
	until_steered(4, a);
	spawn(1, a);
	exchange(4, a);
	until_steered(4, a);
	end_kid(2, 0);
	end_kid(4, SIGKILL);
	exchange(4, a);
	until_steered(4, a);
}
static void five_processes_ipv4(void **state) { five_processes(&lo4); }
static void five_processes_ipv6(void **state) { five_processes(&lo6); }

/* A stopped member answers no probe; the others are steered all the same, and what is for it
 * waits. */
static void stopped_member(void **state)
{
	open_self(&lo4);
	spawn(1, &lo4);
	spawn(2, &lo4);
	until_steered(2, &lo4);
	kill(members[1].pid, SIGSTOP);
	members[1].state = 2;
	spawn(3, &lo4);
	/* until then the kernel's hash may put its packets before the stopped one */
	while (!members[3].resteered)
		serve(&members[0]);
	until_steered(3, &lo4);
	send_to(&members[1], &lo4, 0, 10, 100);
	members[1].state = 1;
	kill(members[1].pid, SIGCONT);
	expect_all(1, 1, 10);
	exchange(3, &lo4);
}

static void more_slots(void **state)
{
	uint16_t slot, first;
	open_self(&lo4);
	spawn(1, &lo4);
	until_steered(1, &lo4);
	first = members[0].slot;
	assert_int_equal(rpwi_steer_claim(steer, &slot), 0);
	assert_int_not_equal(slot, first);
	assert_true(rpwi_steer_owns(steer, (uint32_t)slot << RPWI_SLOT_SHIFT | 77));
	assert_false(rpwi_steer_owns(steer, qpn_of(&members[1])));
	members[0].slot = slot;
	exchange(1, &lo4);
	until_steered(1, &lo4);
	members[0].slot = first;
	until_steered(1, &lo4);
}

/* A fork's child has nothing of the parent's; the parent keeps all. */
static void fork_and_open_anew(void **state)
{
	open_self(&lo4);
	exchange(0, &lo4);
	for (unsigned i = 1; i <= 2; i++)
		spawn(i, &lo4);
	until_steered(2, &lo4);
	assert_int_equal(members[1].pid > 0, 1);
	close_all();
	/* Were the parent's sockets still open in the children, its slot would be taken. */
	char name[RPWI_NAME_MAX];
	int fd = rpwi_name_listen(rpwi_dest_name(&(struct io_dest){.slot = members[0].slot}, name));
	assert_true(fd >= 0);
	close(fd);
	open_self(&lo4);
	until_steered(2, &lo4);
}

static void dead_shell_after_fork(void **state)
{
	open_self(&lo4);
	pid_t pid = fork();
	if (!pid) {
		struct rpwi_av av = av_to(&lo4, 1);
		struct rpwi_rx rx;
		unsigned sent;
		rpwi_io_atfork_child();
		rpwi_txb_reset(txb);
		txb->av = &av;
		add_packet(txb, qpn_of(&members[0]), 0, NULL, 0);
		bool ok = rpwi_port_send(port, txb, &sent) == -ENETDOWN &&
			  rpwi_port_recv(port, &rx) == 0 && rpwi_steer_recv(steer, &rx) == 0 &&
			  rpwi_port_fd(port) == -1;
		ok = ok && rpwi_port_deadline(port) == RPWI_NEVER;
		rpwi_port_timer(port, rpwi_now_ns());
		close_all();
		_exit(ok ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	exchange(0, &lo4);
}

/* ---- another user ---- */

static void other_users(void **state)
{
	if (!users_can_be_others("sharing the port between users"))
		skip();
	open_self(&lo4);
	spawn_as(1, &lo4, 1001);
	assert_true(members[1].shares);
	spawn_as(2, &lo4, 1002);
	assert_true(members[2].shares);
	spawn(3, &lo4);
	for (int i = 0; i < 5; i++)
		exchange(3, &lo4);
	assert_true(members[1].taken > 0);
	/* A user that is not the holder takes the port when the holders are gone; and hands nothing
	 * over to who does not want that. */
	end_kid(3, 0);
	rpwi_port_close(port);
	port = NULL;
	for (int i = 0; i < 5000 && members[1].shares && members[2].shares; i++)
		usleep(1000);
	assert_int_equal(members[1].shares + members[2].shares, 1);
	char why[RPWI_WHY_LEN];
	assert_int_equal(rpwi_port_open(steer, &lo4, false, &port, why, sizeof(why)), -EADDRINUSE);
	assert_non_null(strstr(why, members[1].shares ? "user 1002" : "user 1001"));
	assert_non_null(strstr(why, "unshare -rn"));
	assert_non_null(strstr(why, "ROPEWAY_SHARE_PORT=1"));
	close_all();
	setenv("ROPEWAY_SHARE_PORT", "1", 1);
	open_self(&lo4);
	unsetenv("ROPEWAY_SHARE_PORT");
	assert_int_equal(rpwi_port_fd(port), -1);
	for (int i = 0; i < 5; i++)
		exchange(2, &lo4);
}

/* A message to our slot as some user: the first `parts` of message, record and data. True if we
 * took a packet from it. */
static bool offered_by(uid_t uid, const struct io_msg *m, const struct io_packet *k, unsigned parts)
{
	static const uint8_t data[64] = {RPWI_OP_SEND_ONLY};
	struct rpwi_rx rx;
	pid_t pid = fork();
	if (!pid) {
		char name[RPWI_NAME_MAX];
		struct rpwi_who who;
		if (uid && (setresgid(uid, uid, uid) || setresuid(uid, uid, uid)))
			_exit(1);
		int fd = rpwi_name_connect(
			rpwi_dest_name(&(struct io_dest){.slot = members[0].slot}, name), &who);
		struct iovec iov[4] = {{(void *)(uintptr_t)m, sizeof(*m)},
			{(void *)(uintptr_t)k, sizeof(*k)}, {(void *)(uintptr_t)data, sizeof(data)},
			{(void *)(uintptr_t)data, 5}};
		struct msghdr h = {.msg_iov = iov, .msg_iovlen = parts};
		_exit(parts && sendmsg(fd, &h, 0) < 0);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	bool took = rpwi_steer_recv(steer, &rx) == 1;
	while (rpwi_steer_recv(steer, &rx) == 1)
		;
	return took;
}

static void whom_to_trust(void **state)
{
	const struct io_msg m = {
		.magic = IO_MSG_MAGIC, .version = IO_MSG_VERSION, .type = IO_MSG_PACKETS};
	const struct io_packet k = {.len = 64,
		.seg_len = 64,
		.ip_id = -1,
		.flow = {.src = lo4, .dst = lo4, .sport = 50000, .dport = RPWI_UDP_PORT}};
	struct io_msg odd;
	struct io_packet broken;
	open_self(&lo4);
	assert_true(offered_by(0, &m, &k, 3));
	assert_true(offered_by(0, &m, &k, 4)); /* and what follows it is no record */
	for (unsigned parts = 0; parts < 3; parts++)
		assert_false(offered_by(0, &m, &k, parts));
	static const struct {
		uint32_t len, seg_len;
	} lengths[] = {{64, 0}, {64, 65}, {65, 64}, {0, 0}, {UINT32_MAX, 64},
		{UINT32_MAX - 60, UINT32_MAX - 60}};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lengths); i++) {
		IN_CASE("row", i);
		broken = k;
		broken.len = lengths[i].len;
		broken.seg_len = lengths[i].seg_len;
		assert_false(offered_by(0, &m, &broken, 3));
	}
	broken = k;
	broken.flow.src.family = 9;
	assert_false(offered_by(0, &m, &broken, 3));
	odd = m;
	odd.version++;
	assert_false(offered_by(0, &odd, &k, 3));
	for (unsigned type = 2; type < 256; type += type < 8 ? 1 : 31) {
		/* questions and answers that nobody asked for */
		odd = m;
		odd.type = (uint8_t)type;
		odd.index = odd.nslots = 0xffff;
		assert_false(offered_by(0, &odd, &k, 3));
	}
	exchange(0, &lo4);
	if (!users_can_be_others("sharing the port between users"))
		return;
	assert_false(offered_by(1001, &m, &k, 3)); /* our own user holds the port, not that one */
}

/* ---- pacing ---- */

/* Single packets to ourselves until there is no room. */
static unsigned fill_up(struct rpwi_av *av)
{
	unsigned n = 0, sent;
	for (; n < 100000 && rpwi_steer_room(steer, qpn_of(&members[0]), 1, 1024) == 1; n++) {
		rpwi_txb_reset(txb);
		txb->av = av;
		add_packet(txb, qpn_of(&members[0]), n, NULL, 0);
		assert_int_equal(rpwi_port_send(port, txb, &sent), 0);
	}
	return n;
}

static void pacing_own_slot(void **state)
{
	struct rpwi_av av = av_to(&lo4, 1);
	open_self(&lo4);
	unsigned first = fill_up(&av);
	assert_in_range(first, 8, 100000 - 1);
	assert_int_equal(rpwi_steer_room(steer, qpn_of(&members[0]), 1, 1024), 0);
	expect_all(0, 0, first);
	/* All of it is read: the same again, and nothing has leaked. */
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fill_up(&av), first);
		expect_all(0, 0, first);
	}
	/* What was granted and not sent is not charged. */
	for (int i = 0; i < 100000; i++) {
		assert_int_equal(rpwi_steer_room(steer, qpn_of(&members[0]), 8, 8192), 8);
		rpwi_steer_unused(steer, 8);
	}
	assert_int_equal(fill_up(&av), first);
	/* Nothing drains: still something is granted now and then. */
	unsigned n = 0;
	while (!n)
		n = rpwi_steer_room(steer, qpn_of(&members[0]), 64, 64 * 1024);
	assert_in_range(n, 1, 64);
}

/* A slow reader with the default rmem_max loses nothing, whatever the sizes: `batch` packets of
 * `len` bytes at a time. */
static void slow_reader(
	uid_t uid, unsigned batch, const uint32_t *lens, unsigned nlens, uint32_t total)
{
	static uint8_t mem[RPWI_TXB_PKTS * 4096];
	struct rpwi_av av = av_to(&lo4, 1);
	struct member *m = &members[1];
	open_self(&lo4);
	spawn_as(1, &lo4, uid);
	assert_int_equal(m->shares, uid != 0);
	if (!uid)
		until_steered(1, &lo4);
	m->rcvbuf = 212992;
	while (m->rcvbuf)
		usleep(1000);
	m->nap_us = 60;
	uint32_t psn = 0;
	bool waited = false;
	for (unsigned turn = 0; psn < total; turn++) {
		uint32_t len = lens[turn % nlens];
		unsigned n = rpwi_steer_room(steer, qpn_of(m), batch, (size_t)batch * 4096), sent;
		serve(&members[0]);
		waited = waited || n < batch;
		if (!n)
			continue;
		rpwi_txb_reset(txb);
		txb->av = &av;
		for (unsigned k = 0; k < n; k++, psn++) {
			uint8_t *at = mem + (size_t)k * len;
			for (uint32_t i = 0; i < len; i++)
				at[i] = pattern(m->slot, psn, i);
			add_packet(txb, qpn_of(m), psn, at, len);
		}
		assert_int_equal(rpwi_port_send(port, txb, &sent), 0);
	}
	m->nap_us = 0;
	expect_all(1, 1, psn);
	assert_int_equal(m->overflow, 0);
	assert_true(waited);
	reap(NULL);
}

static void pacing_slow_reader(void **state)
{
	static const uint32_t mixed[] = {8, 1024, 100, 4096, 0, 2048, 512}, small[] = {4},
			      kib[] = {1024}, two[] = {2048}, page[] = {4096};
	slow_reader(0, 1, mixed, RPWI_ARRAY_LEN(mixed), 4000);
	slow_reader(0, 1, small, 1, 4000);
	slow_reader(0, 1, kib, 1, 2000);
	slow_reader(0, 1, two, 1, 2000);
	slow_reader(0, 1, page, 1, 2000);
	slow_reader(0, 64, small, 1, 20000);
	slow_reader(0, 64, kib, 1, 20000);
	slow_reader(0, 15, page, 1, 10000);
	slow_reader(0, 64, page, 1, 10000);
	if (users_can_be_others("sharing the port between users")) {
		slow_reader(1001, 1, kib, 1, 2000);
		slow_reader(1001, 64, kib, 1, 20000);
		slow_reader(1001, 15, page, 1, 10000);
	}
}

/* Descriptors come with any message, also with an empty one, which looks like the end of the
 * connection. */
static void descriptors_of_strange_messages_are_closed(void **state)
{
	static struct io_msg nonsense;
	char name[RPWI_NAME_MAX];
	struct rpwi_who who;
	struct rpwi_rx rx;
	open_self(&lo4);
	unsigned had = open_descriptors();
	for (size_t len = 0; len <= sizeof(nonsense); len += sizeof(nonsense) / 2) {
		IN_CASE("len", len);
		int fd = rpwi_name_connect(
			    rpwi_dest_name(&(struct io_dest){.slot = members[0].slot}, name), &who),
		    fds[2] = {fd, fd};
		assert_int_equal(rpwi_rights_send(fd, &nonsense, len, fds, 2), 0);
		close(fd);
		for (int i = 0; i < 4; i++)
			assert_int_equal(rpwi_steer_recv(steer, &rx), 0);
		assert_int_equal(open_descriptors(), had);
	}
	close_all();
}

/* Nobody owns the slot: nothing to wait for. A stopped owner: bounded waits. */
static void pacing_no_answer(void **state)
{
	open_self(&lo4);
	spawn(1, &lo4);
	uint32_t nobody = (uint32_t)(members[0].slot % RPWI_SLOT_MAX + 1 == members[1].slot
					     ? members[0].slot % RPWI_SLOT_MAX + 2
					     : members[0].slot % RPWI_SLOT_MAX + 1)
			  << RPWI_SLOT_SHIFT;
	assert_int_equal(rpwi_steer_room(steer, nobody, 64, 65536), 64);
	kill(members[1].pid, SIGSTOP);
	for (int grants = 0; grants < 3;)
		grants += rpwi_steer_room(steer, qpn_of(&members[1]), 64, 65536) > 0;
	kill(members[1].pid, SIGCONT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(two_processes, reap),
		cmocka_unit_test_teardown(five_processes_ipv4, reap),
		cmocka_unit_test_teardown(five_processes_ipv6, reap),
		cmocka_unit_test_teardown(stopped_member, reap),
		cmocka_unit_test_teardown(more_slots, reap),
		cmocka_unit_test_teardown(fork_and_open_anew, reap),
		cmocka_unit_test_teardown(dead_shell_after_fork, reap),
		cmocka_unit_test_teardown(other_users, reap),
		cmocka_unit_test_teardown(whom_to_trust, reap),
		cmocka_unit_test_teardown(descriptors_of_strange_messages_are_closed, reap),
		cmocka_unit_test_teardown(pacing_own_slot, reap),
		cmocka_unit_test_teardown(pacing_slow_reader, reap),
		cmocka_unit_test_teardown(pacing_no_answer, reap),
	};
	ns_enter();
	members = mmap(NULL, KIDS * sizeof(*members), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	txb = calloc(1, sizeof(*txb));
	return members == MAP_FAILED || !txb ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
