/* SPDX-License-Identifier: BSD-3-Clause */
/* stopped_test.c - RDMA WRITEs to a process that is stopped are done, in order, each once, and what
 * it may not get it does not get; when it goes on it has what was written, and its QP goes on.
 * TEST_ROUNDS: how often it is stopped at a moment of chance. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/test.h"
#include "peers.h"

enum { LEN = PAIR_BUF, HALF = LEN / 2, SEED = 41, RECVS = 64 };

/* What both see, beside the device. */
struct shared {
	_Atomic int word; /* a letter: do that, and take it back */
	_Atomic uint64_t got;
	_Atomic uint32_t rkey;
};
static struct shared *both_see;

/* ---- the passive side ---- */

static struct rng naps;

static void obey(struct end *e, int what)
{
	struct ibv_wc wc;
	switch (what) {
	case 'd':
		assert_int_equal(ibv_dereg_mr(e->s.mr), 0);
		e->s.mr = NULL;
		break;
	case 'm': /* its own bytes, over what was written */
		memset(e->s.buf, 0x77, HALF);
		break;
	case 'r': /* a message has come */
		assert_true(pair_poll(e->s.cq, &wc, 5000));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		both_see->got++;
		break;
	case 'n': /* registered anew, at once, again and again */
		for (int i = 0; i < 40; i++) {
			uint32_t key = e->s.mr->rkey;
			both_see->rkey = 0;
			assert_int_equal(ibv_dereg_mr(e->s.mr), 0);
			memset(e->s.buf, 0x55, HALF);
			usleep((unsigned)rng_below(&naps, 200));
			assert_int_equal(e->s.buf[0], 0x55);
			assert_memory_equal(e->s.buf, e->s.buf + 1, HALF - 1);
			e->s.mr = ibv_reg_mr(e->p.pd, e->s.buf, LEN,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
					IBV_ACCESS_REMOTE_WRITE);
			assert_int_not_equal(e->s.mr->rkey, key);
			both_see->rkey = e->s.mr->rkey;
		}
		break;
	}
	both_see->word = 0;
}

static pid_t both(struct end *e)
{
	int sv[2];
	if (!both_see)
		both_see =
			mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(both_see, 0, sizeof(*both_see));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	pid_t pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(sv[0]);
		end_make(e, sv[1]);
		for (int i = 0; i < RECVS; i++)
			pair_recv(&e->s, HALF + 64 * (uint64_t)i, 64, (uint64_t)i);
		for (int what;;) {
			if ((what = both_see->word))
				obey(e, what);
			usleep(100);
		}
	}
	close(sv[1]);
	end_make(e, sv[0]);
	/* the lane is made while packets go by UDP */
	for (int i = 0; i < 40; i++) {
		assert_int_equal(
			pair_send(&e->s, IBV_WR_RDMA_WRITE, 0, 8, e->peer.addr, e->peer.rkey), 0);
		assert_int_equal(side_done(&e->s), IBV_WC_SUCCESS);
		usleep(1000);
	}
	return pid;
}

static void tell(int what)
{
	both_see->word = what;
	for (int i = 0; both_see->word; i++) {
		assert_true(i < 100000);
		usleep(100);
	}
}

static void ends(struct end *e, pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	end_free(e);
}

/* What is there, by a READ, which needs nobody. */
static bool there_is(struct end *e, uint64_t off, uint32_t len, uint64_t seed)
{
	memset(e->s.buf, 0, len);
	assert_int_equal(
		pair_send(&e->s, IBV_WR_RDMA_READ, 0, len, e->peer.addr + off, e->peer.rkey), 0);
	assert_int_equal(side_done(&e->s), IBV_WC_SUCCESS);
	return pattern_holds(e->s.buf, len, seed);
}

static int write_peer(struct end *e, uint64_t off, uint32_t len, uint64_t seed, uint32_t rkey)
{
	pattern_fill(e->s.buf, len, seed);
	assert_int_equal(pair_send(&e->s, IBV_WR_RDMA_WRITE, 0, len, e->peer.addr + off, rkey), 0);
	return side_done(&e->s);
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the tests ---- */

static void a_stopped_process_is_written(void **state)
{
	static const uint32_t lens[] = {8, 1, 7, 9, 64, 4096, 5000, 65536, 65537, 300000, HALF, 8};
	struct end e;
	pid_t pid = both(&e);
	stop(pid);
	for (unsigned i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		IN_CASE("bytes", lens[i]);
		double began = seconds();
		assert_int_equal(
			write_peer(&e, 3 * i, lens[i], SEED + i, e.peer.rkey), IBV_WC_SUCCESS);
		print_message("# %u bytes: %.1f ms\n", lens[i], (seconds() - began) * 1e3);
		assert_true(there_is(&e, 3 * i, lens[i], SEED + i));
	}
	ends(&e, pid);
}

/* Many under way when nobody takes them; then it goes on, changes its memory, and nothing of what
 * was done comes again; and the QP goes on. */
static void what_was_done_comes_once(void **state)
{
	enum { N = 50 };
	static const uint32_t each[] = {8, 3000, 9000};
	for (unsigned k = 0; k < 3; k++) {
		struct end e;
		pid_t pid = both(&e);
		stop(pid);
		for (unsigned i = 0; i < N; i++) {
			uint64_t at = (uint64_t)i * each[k];
			pattern_fill(e.s.buf + at, each[k], SEED + i);
			assert_int_equal(pair_send(&e.s, IBV_WR_RDMA_WRITE, at, each[k],
						 e.peer.addr + at, e.peer.rkey),
				0);
		}
		for (unsigned i = 0; i < N; i++)
			assert_int_equal(side_done(&e.s), IBV_WC_SUCCESS);
		for (unsigned i = 0; i < N; i++)
			assert_true(there_is(&e, (uint64_t)i * each[k], each[k], SEED + i));
		/* a message behind them waits for the process */
		struct ibv_wc wc;
		assert_int_equal(pair_send(&e.s, IBV_WR_SEND, 0, 64, 0, 0), 0);
		assert_false(pair_poll(e.s.cq, &wc, 50));
		kill(pid, SIGCONT);
		tell('m');
		assert_int_equal(side_done(&e.s), IBV_WC_SUCCESS);
		tell('r');
		assert_int_equal(both_see->got, 1);
		usleep(20000);
		memset(e.s.buf, 0x77, HALF);
		uint8_t *want = malloc(HALF);
		memcpy(want, e.s.buf, HALF);
		assert_int_equal(
			pair_send(&e.s, IBV_WR_RDMA_READ, 0, HALF, e.peer.addr, e.peer.rkey), 0);
		assert_int_equal(side_done(&e.s), IBV_WC_SUCCESS);
		assert_memory_equal(e.s.buf, want, HALF);
		free(want);
		for (unsigned i = 0; i < N; i++) {
			assert_int_equal(write_peer(&e, 0, 5000, i, e.peer.rkey), IBV_WC_SUCCESS);
			assert_true(there_is(&e, 0, 5000, i));
		}
		ends(&e, pid);
	}
}

static void what_may_not_be_written_is_not(void **state)
{
	for (int i = 0; i < 3; i++) {
		struct end e;
		struct ibv_wc wc;
		pid_t pid = both(&e);
		if (i == 0)
			tell('d');
		stop(pid);
		pattern_fill(e.s.buf, 64, SEED);
		assert_int_equal(
			pair_send(&e.s, IBV_WR_RDMA_WRITE, 0, 64,
				e.peer.addr + (i == 1 ? LEN - 63 : 0), e.peer.rkey + (i == 2)),
			0);
		assert_false(pair_poll(e.s.cq, &wc, 300)); /* it is for the peer to say so */
		kill(pid, SIGCONT);
		assert_int_equal(side_done(&e.s), IBV_WC_REM_ACCESS_ERR);
		ends(&e, pid);
	}
}

/* A SEND in between needs its program; what is before it is done, what is behind it waits. */
static void behind_a_send_it_waits(void **state)
{
	struct end e;
	struct ibv_wc wc;
	pid_t pid = both(&e);
	stop(pid);
	pattern_fill(e.s.buf, 200, SEED);
	assert_int_equal(pair_send(&e.s, IBV_WR_RDMA_WRITE, 0, 64, e.peer.addr, e.peer.rkey), 0);
	assert_int_equal(pair_send(&e.s, IBV_WR_SEND, 0, 64, 0, 0), 0);
	assert_int_equal(
		pair_send(&e.s, IBV_WR_RDMA_WRITE, 64, 64, e.peer.addr + 64, e.peer.rkey), 0);
	assert_true(pair_poll(e.s.cq, &wc, 1000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
	assert_false(pair_poll(e.s.cq, &wc, 100));
	kill(pid, SIGCONT);
	for (int i = 0; i < 2; i++)
		assert_int_equal(side_done(&e.s), IBV_WC_SUCCESS);
	assert_true(there_is(&e, 0, 128, SEED));
	ends(&e, pid);
}

/* It is stopped and goes on whenever it likes, while numbers are written in order: at no time is an
 * older one seen, and each is there when it has completed. */
static void stopped_at_moments_of_chance(void **state)
{
	unsigned rounds = (unsigned)test_rounds(40);
	struct rng rng = {test_seed(7)};
	struct end e;
	struct ibv_wc wc;
	pid_t pid = both(&e);
	uint64_t n = 0, done = 0;
	for (unsigned r = 0; r < rounds; r++) {
		IN_CASE("round", r);
		uint32_t len = r % 3 ? 8 : r % 2 ? 20000 : 3000;
		bool stops = r % 2;
		double until = seconds() + 0.001 * (double)rng_below(&rng, 8);
		if (stops)
			stop(pid);
		for (uint64_t first = n; seconds() < until || n < first + 4;) {
			if (n - done < 16) {
				uint64_t at = n % 16 * 20000;
				pattern_fill(e.s.buf + at, len, n);
				assert_int_equal(pair_send(&e.s, IBV_WR_RDMA_WRITE, at, len,
							 e.peer.addr, e.peer.rkey),
					0);
				n++;
			}
			while (pair_poll(e.s.cq, &wc, 0)) {
				assert_int_equal(wc.status, IBV_WC_SUCCESS);
				done++;
			}
		}
		if (rng_one_in(&rng, 3)) /* in the middle of what is done for it */
			usleep((unsigned)rng_below(&rng, 3000));
		if (stops)
			kill(pid, SIGCONT);
		while (done < n) {
			assert_true(pair_poll(e.s.cq, &wc, 5000));
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			done++;
		}
		assert_true(there_is(&e, 0, len, n - 1));
	}
	print_message("# %llu WRITEs in %u rounds\n", (unsigned long long)n, rounds);
	ends(&e, pid);
}

/* While it deregisters and registers its memory it is stopped and goes on: never is a byte written
 * that was not registered (the passive side looks). */
static void no_late_write(void **state)
{
	unsigned rounds = (unsigned)test_rounds(90) / 30, good = 0;
	struct rng rng = {test_seed(9)};
	struct end e;
	struct ibv_wc wc;
	pid_t pid = both(&e);
	both_see->rkey = e.peer.rkey;
	for (unsigned r = 0; r < rounds; r++) {
		IN_CASE("round", r);
		both_see->word = 'n';
		while (both_see->word) {
			uint32_t rkey = both_see->rkey;
			if (!rkey) {
				usleep(20);
				continue;
			}
			stop(pid);
			if (both_see->rkey == rkey) { /* it is registered while it does not run */
				pattern_fill(e.s.buf, 64, r);
				assert_int_equal(pair_send(&e.s, IBV_WR_RDMA_WRITE, 0, 60000,
							 e.peer.addr, rkey),
					0);
				usleep((unsigned)rng_below(&rng, 12000));
				kill(pid, SIGCONT);
				assert_true(pair_poll(e.s.cq, &wc, 5000));
				if (wc.status != IBV_WC_SUCCESS) {
					assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
					goto anew;
				}
				good++;
			} else {
				kill(pid, SIGCONT);
			}
		}
		continue;
anew:
		/* its connection is over: another process */
		ends(&e, pid);
		pid = both(&e);
		both_see->rkey = e.peer.rkey;
	}
	print_message("# %u of them done in %u rounds\n", good, rounds);
	ends(&e, pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stopped_process_is_written),
		cmocka_unit_test(what_was_done_comes_once),
		cmocka_unit_test(what_may_not_be_written_is_not),
		cmocka_unit_test(behind_a_send_it_waits),
		cmocka_unit_test(stopped_at_moments_of_chance),
		cmocka_unit_test(no_late_write),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
