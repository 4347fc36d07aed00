/* SPDX-License-Identifier: BSD-3-Clause */
/* lane_test.c - two processes of one user on one host: the reader does its READs by itself, also of
 * a process that is stopped; and what it must not get, it does not get. TEST_ROUNDS: how often
 * memory is taken away at a moment of chance. */
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/test.h"
#include "lib/users.h"
#include "peers.h"

enum { LEN = 1 << 20, SEED = 41, LATER = 42 };

/* ---- the passive side: a letter, and it does that ---- */

static void obey(struct end *e, char what)
{
	struct info me = {0};
	switch (what) {
	case 'd': /* deregister */
		assert_int_equal(ibv_dereg_mr(e->s.mr), 0);
		e->s.mr = NULL;
		break;
	case 'u': /* unmap under the registration */
		assert_int_equal(munmap(e->s.buf, LEN), 0);
		break;
	case 'l': /* a region that may not be read */
		ibv_dereg_mr(e->s.mr);
		e->s.mr = ibv_reg_mr(
			e->p.pd, e->s.buf, LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		me.rkey = e->s.mr->rkey;
		break;
	case 'p': /* one of another protection domain */
		ibv_dereg_mr(e->s.mr);
		e->s.mr = ibv_reg_mr(ibv_alloc_pd(e->p.ctx), e->s.buf, LEN, IBV_ACCESS_REMOTE_READ);
		me.rkey = e->s.mr->rkey;
		break;
	case 'x': /* another program in its place */
		say(e, &me, sizeof(me));
		execl("/bin/sleep", "sleep", "20", NULL);
		_exit(9);
	case 'f': /* its child goes on, with other bytes; the parent lives, and does nothing */
		if (fork()) {
			say(e, &me, sizeof(me));
			pause();
		}
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pattern_fill(e->s.buf, LEN, LATER);
		struct ibv_wc wc;
		for (;;)
			ibv_poll_cq(e->s.cq, 1, &wc);
	case 'q':
		_exit(0);
	}
	say(e, &me, sizeof(me));
}

static pid_t passive(struct end *e)
{
	int sv[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	pid_t pid = fork();
	if (!pid) {
		char what;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(sv[0]);
		end_make(e, sv[1]);
		/* memory of its own, page by page, so that it can be unmapped */
		void *buf =
			mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		free(e->s.buf);
		ibv_dereg_mr(e->s.mr);
		e->s.buf = buf;
		pattern_fill(buf, LEN, SEED);
		e->s.mr = ibv_reg_mr(e->p.pd, buf, LEN,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
		pair_recv(&e->s, LEN - 64, 64, 0);
		struct info me = {.rkey = e->s.mr->rkey, .addr = (uintptr_t)buf};
		say(e, &me, sizeof(me));
		while (read(sv[1], &what, 1) == 1)
			obey(e, what);
		_exit(0);
	}
	close(sv[1]);
	e->sock = sv[0];
	return pid;
}

static struct info tell(struct end *e, char what)
{
	struct info i;
	say(e, &what, 1);
	hear(e, &i, sizeof(i));
	return i;
}

/* READ, and its status; -1: none within `ms`. */
static int read_peer(struct end *e, uint64_t off, uint32_t len, uint32_t rkey, int ms)
{
	struct ibv_wc wc;
	memset(e->s.buf, 0, len);
	assert_int_equal(pair_send(&e->s, IBV_WR_RDMA_READ, 0, len, e->peer.addr + off, rkey), 0);
	return pair_poll(e->s.cq, &wc, ms) ? (int)wc.status : -1;
}

/* The lane is made while packets go by UDP. */
static void let_the_lane_come_up(struct end *e)
{
	for (int i = 0; i < 40; i++) {
		assert_int_equal(read_peer(e, 0, 8, e->peer.rkey, 5000), IBV_WC_SUCCESS);
		usleep(1000);
	}
}

static pid_t both(struct end *e)
{
	pid_t pid = passive(e);
	struct info i;
	end_make(e, e->sock);
	hear(e, &i, sizeof(i));
	e->peer.addr = i.addr;
	e->peer.rkey = i.rkey;
	let_the_lane_come_up(e);
	return pid;
}

static void ends(struct end *e, pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	end_free(e);
}

/* ---- the tests ---- */

static void a_stopped_process_is_read(void **state)
{
	static const uint32_t lens[] = {1, 8, 4096, 5000, 8192, 65536, 65537, 300000, LEN};
	struct end e;
	pid_t pid = both(&e);
	stop(pid);
	for (unsigned i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		IN_CASE("bytes", lens[i]);
		assert_int_equal(read_peer(&e, 0, lens[i], e.peer.rkey, 1000), IBV_WC_SUCCESS);
		assert_true(pattern_holds(e.s.buf, lens[i], SEED));
	}
	ends(&e, pid);
}

/* Every distance within pages: some take another way (base/copy.h). */
static void a_stopped_process_is_read_to_any_place(void **state)
{
	static const uint32_t lens[] = {8192, 65536, 65537, 65599, 65600, 200000};
	struct end e;
	pid_t pid = both(&e);
	stop(pid);
	for (unsigned i = 0; i < sizeof(lens) / sizeof(*lens); i++)
		for (uint64_t at = 0; at < 100; at += at < 40 ? 1 : 7) {
			IN_CASE("bytes", lens[i]);
			IN_CASE("at", at);
			memset(e.s.buf, 0xee, at + lens[i] + 1);
			assert_int_equal(pair_send(&e.s, IBV_WR_RDMA_READ, at, lens[i], e.peer.addr,
						 e.peer.rkey),
				0);
			assert_int_equal(side_done(&e.s), IBV_WC_SUCCESS);
			assert_true(pattern_holds(e.s.buf + at, lens[i], SEED));
			assert_true(!at || e.s.buf[at - 1] == 0xee);
			assert_int_equal(e.s.buf[at + lens[i]], 0xee);
		}
	ends(&e, pid);
}

static void an_empty_list_posts_nothing(void **state)
{
	(void)state;
	struct end e;
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	pid_t pid = both(&e);
	assert_int_equal(ibv_post_send(e.s.qp, NULL, &bad), 0);
	assert_int_equal(ibv_poll_cq(e.s.cq, 1, &wc), 0);
	assert_int_equal(read_peer(&e, 0, 8, e.peer.rkey, 5000), IBV_WC_SUCCESS);
	ends(&e, pid);
}

static void behind_a_send_it_waits_its_turn(void **state)
{
	struct end e;
	struct ibv_wc wc;
	pid_t pid = both(&e);
	stop(pid);
	/* nobody takes it, so the READ behind it must not be done */
	uint64_t there = e.peer.addr + LEN - 64;
	assert_int_equal(pair_send(&e.s, IBV_WR_SEND, 0, 64, 0, 0), 0);
	assert_int_equal(pair_send(&e.s, IBV_WR_RDMA_READ, 64, 64, there, e.peer.rkey), 0);
	assert_false(pair_poll(e.s.cq, &wc, 50));
	kill(pid, SIGCONT);
	for (int i = 0; i < 2; i++) {
		assert_true(pair_poll(e.s.cq, &wc, 5000));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, i ? IBV_WC_RDMA_READ : IBV_WC_SEND);
	}
	assert_memory_equal(e.s.buf, e.s.buf + 64, 64);
	ends(&e, pid);
}

static void what_may_not_be_read_is_refused(void **state)
{
	static const struct {
		char what;
		bool new_key;
		uint64_t off;
		int status;
	} cases[] = {
		{'d', false, 0, IBV_WC_REM_ACCESS_ERR},
		{'l', true, 0, IBV_WC_REM_ACCESS_ERR},
		{'p', true, 0, IBV_WC_REM_ACCESS_ERR},
		{0, false, LEN - 63, IBV_WC_REM_ACCESS_ERR},
		{0, false, (uint64_t)-1, IBV_WC_REM_ACCESS_ERR},
		{'u', false, 0, IBV_WC_REM_ACCESS_ERR},
		{'x', false, 0, IBV_WC_RETRY_EXC_ERR},
	};
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		IN_CASE("row", i);
		struct end e;
		pid_t pid = both(&e);
		struct info answer = {0};
		if (cases[i].what)
			answer = tell(&e, cases[i].what);
		if (cases[i].what == 'x')
			usleep(100000);
		int status = read_peer(
			&e, cases[i].off, 64, cases[i].new_key ? answer.rkey : e.peer.rkey, 5000);
		if (status != cases[i].status)
			print_error("case %u: %s\n", i,
				status < 0 ? "no completion"
					   : ibv_wc_status_str((enum ibv_wc_status)status));
		assert_int_equal(status, cases[i].status);
		ends(&e, pid);
	}
}

static void a_killed_process_is_not_read(void **state)
{
	struct end e;
	pid_t pid = both(&e);
	assert_int_equal(kill(pid, SIGKILL), 0);
	waitpid(pid, NULL, 0);
	assert_int_equal(read_peer(&e, 0, 64, e.peer.rkey, 5000), IBV_WC_RETRY_EXC_ERR);
	end_free(&e);
}

/* The child has the queue pairs now; the parent's copy of the memory is nobody's. */
static void a_forked_process_is_not_taken_for_its_parent(void **state)
{
#ifdef __SANITIZE_THREAD__
	print_message("# SKIPPED: ThreadSanitizer ends a forked child that starts a thread\n");
	skip();
#endif
	struct end e;
	pid_t pid = both(&e);
	tell(&e, 'f');
	int status = -1;
	for (int i = 0; i < 200 && !pattern_holds(e.s.buf, 64, LATER); i++) {
		usleep(10000);
		status = read_peer(&e, 0, 64, e.peer.rkey, 5000);
		assert_int_equal(status, IBV_WC_SUCCESS);
	}
	assert_true(pattern_holds(e.s.buf, 64, LATER));
	for (int i = 0; i < 100; i++) {
		assert_int_equal(read_peer(&e, 0, 70000, e.peer.rkey, 5000), IBV_WC_SUCCESS);
		assert_true(pattern_holds(e.s.buf, 70000, LATER));
	}
	ends(&e, pid);
}

/* Where the kernel does not let one read the other (here: a process that has changed its user is
 * not dumpable), packets do it; nothing is changed to get its leave. */
static void without_the_kernels_leave_packets_do_it(void **state)
{
	if (!users_can_be_others("a lane without the kernel's leave"))
		skip();
	pid_t pid = fork();
	if (!pid) {
		struct end e;
		struct info i;
		/* another user's port must not be in the way of other tests */
		struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
		if (unshare(CLONE_NEWNET) ||
			ioctl(socket(AF_INET, SOCK_DGRAM, 0), SIOCSIFFLAGS, &lo) || setgid(54321) ||
			setuid(54321))
			_exit(1);
		pid_t peer = passive(&e);
		end_make(&e, e.sock);
		hear(&e, &i, sizeof(i));
		e.peer.addr = i.addr;
		e.peer.rkey = i.rkey;
		let_the_lane_come_up(&e);
		assert_int_equal(prctl(PR_GET_DUMPABLE), 0);
		stop(peer);
		int status = read_peer(&e, 0, 64, e.peer.rkey, 50);
		kill(peer, SIGCONT);
		struct ibv_wc wc;
		bool done = pair_poll(e.s.cq, &wc, 5000) && wc.status == IBV_WC_SUCCESS &&
			    pattern_holds(e.s.buf, 64, SEED);
		kill(peer, SIGKILL);
		waitpid(peer, NULL, 0);
		_exit(status == -1 && done ? 0 : 2);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- memory taken away at a moment of chance ---- */

struct churn {
	_Atomic uint32_t rkey, stop, rounds;
};

/* Registers, lets it be read for a moment, deregisters, and only then writes something else. */
static void churn(struct end *e, struct churn *c)
{
	struct rng rng = {(uint64_t)getpid()};
	for (uint32_t n = 0; !c->stop; n++) {
		pattern_fill(e->s.buf, 8192, SEED);
		struct ibv_mr *mr = ibv_reg_mr(e->p.pd, e->s.buf, 8192, IBV_ACCESS_REMOTE_READ);
		c->rkey = mr->rkey;
		for (volatile uint64_t i = rng_below(&rng, 1 << 16); i; i--)
			;
		ibv_dereg_mr(mr);
		memset(e->s.buf, 0xee, 8192);
		c->rounds = n + 1;
	}
}

/* Each READ gives what was registered, whole, or fails; a failed QP is connected anew. */
static void what_is_deregistered_is_never_read(void **state)
{
	unsigned rounds = (unsigned)test_rounds(300), good = 0, failed = 0, n = 0;
	struct churn *c =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	while (n < rounds) {
		struct end e;
		int sv[2];
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
		c->stop = c->rkey = 0;
		pid_t pid = fork();
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			end_make(&e, sv[1]);
			churn(&e, c);
			_exit(0);
		}
		close(sv[1]);
		end_make(&e, sv[0]);
		uint64_t addr = e.peer.addr;
		for (bool alive = true; alive && n < rounds; n++) {
			IN_CASE("round", n);
			while (!c->rkey)
				;
			e.peer.addr = addr;
			uint32_t len = n % 3 ? 8192 : 512;
			int status = read_peer(&e, 0, len, c->rkey, 5000);
			if (status == IBV_WC_SUCCESS) {
				assert_true(pattern_holds(e.s.buf, len, SEED));
				good++;
			} else {
				assert_int_equal(status, IBV_WC_REM_ACCESS_ERR);
				failed++;
				alive = false;
			}
		}
		c->stop = 1;
		ends(&e, pid);
	}
	print_message("# %u READs: %u good, %u refused\n", n, good, failed);
	munmap(c, 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stopped_process_is_read),
		cmocka_unit_test(a_stopped_process_is_read_to_any_place),
		cmocka_unit_test(an_empty_list_posts_nothing),
		cmocka_unit_test(behind_a_send_it_waits_its_turn),
		cmocka_unit_test(what_may_not_be_read_is_refused),
		cmocka_unit_test(a_killed_process_is_not_read),
		cmocka_unit_test(a_forked_process_is_not_taken_for_its_parent),
		cmocka_unit_test(without_the_kernels_leave_packets_do_it),
		cmocka_unit_test(what_is_deregistered_is_never_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
