/* SPDX-License-Identifier: BSD-3-Clause */
/* lane_refs_test.c - payloads that a peer on this host fetches from the sender's memory when it
 * gets to them. Once the sender has heard that its request failed, or has taken the memory away,
 * nothing is fetched: what the program puts there next does not arrive. The peer is stopped while
 * that happens, or runs, and it happens at a moment of chance (TEST_ROUNDS: how often). */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/test.h"
#include "peers.h"

enum { BYTES = 1 << 18, SEED = 41, LATER = 42, BEFORE = 0x11 };

/* The sender, its memory (mapped, so that it can be unmapped), and what both can look into. */
struct from {
	struct end e;
	pid_t pid;
	uint8_t *buf, *dst;
	struct ibv_mr *mr;
};

static void receiver(int sock, uint8_t *dst)
{
	struct end e;
	char what;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	end_make(&e, sock);
	struct ibv_mr *mr =
		ibv_reg_mr(e.p.pd, dst, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct info me = {.rkey = mr->rkey, .addr = (uintptr_t)dst};
	say(&e, &me, sizeof(me));
	while (read(sock, &what, 1) == 1)
		end_again(&e);
	_exit(0);
}

/* Where no other mapping lies, in this program and in the one that takes its place, nor what a
 * sanitizer keeps. */
#define PLACE ((void *)0x7e9000000000)

static void memory_is_new(struct from *f)
{
	f->buf = mmap(PLACE, BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	assert_ptr_equal(f->buf, PLACE);
	pattern_fill(f->buf, BYTES, SEED);
	f->mr = ibv_reg_mr(f->e.p.pd, f->buf, BYTES, 0);
	assert_non_null(f->mr);
}

static void write_all(struct from *f)
{
	struct ibv_sge sge = {(uintptr_t)f->buf, BYTES, f->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_RDMA_WRITE,
				   .wr.rdma = {f->e.peer.addr, f->e.peer.rkey}},
			   *bad;
	assert_int_equal(ibv_post_send(f->e.s.qp, &wr, &bad), 0);
}

static int status_of(struct from *f, int ms)
{
	struct ibv_wc wc;
	return pair_poll(f->e.s.cq, &wc, ms) ? (int)wc.status : -1;
}

/* Written whole a few times: the first goes by UDP, while the lane is made. */
static void begin_to(struct from *f, uint8_t *dst)
{
	int sock;
	struct info i;
	*f = (struct from){.dst = dst};
	f->pid = peer_fork(&sock);
	if (!f->pid)
		receiver(sock, f->dst);
	end_make(&f->e, sock);
	hear(&f->e, &i, sizeof(i));
	f->e.peer.addr = i.addr;
	f->e.peer.rkey = i.rkey;
	memory_is_new(f);
	for (int n = 0; n < 20; n++) {
		write_all(f);
		assert_int_equal(status_of(f, 5000), IBV_WC_SUCCESS);
		usleep(1000);
	}
	assert_true(pattern_holds(f->dst, BYTES, SEED));
	memset(f->dst, BEFORE, BYTES);
}

static uint8_t *shared(void)
{
	return mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void begin(struct from *f) { begin_to(f, shared()); }

static void end(struct from *f)
{
	kill(f->pid, SIGKILL);
	waitpid(f->pid, NULL, 0);
	if (f->mr)
		assert_int_equal(ibv_dereg_mr(f->mr), 0);
	munmap(f->buf, BYTES);
	munmap(f->dst, BYTES);
	end_free(&f->e);
}

static void to_state(struct from *f, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = {.qp_state = state};
	assert_int_equal(ibv_modify_qp(f->e.s.qp, &a, IBV_QP_STATE), 0);
}

/* Of each byte: what was there before, or what was sent. */
static bool only_what_was_sent(const struct from *f)
{
	static uint8_t sent[BYTES];
	pattern_fill(sent, BYTES, SEED);
	for (size_t i = 0; i < BYTES; i++)
		if (f->dst[i] != BEFORE && f->dst[i] != sent[i])
			return false;
	return true;
}

/* Other bytes into memory that is posted, which no program may do; so ThreadSanitizer, which would
 * be right to complain, does not look. */
__attribute__((no_sanitize("thread"))) static void change_under_way(
	struct from *f, const uint8_t *later)
{
	for (size_t i = 0; i < BYTES; i++)
		((volatile uint8_t *)f->buf)[i] = later[i];
}

/* What the other tests need in order to show something. */
static void a_payload_is_fetched_when_its_receiver_runs(void **state)
{
	static uint8_t later[BYTES];
	struct from f;
	pattern_fill(later, BYTES, LATER); /* no time for it once the peer is stopped */
	begin(&f);
	stop(f.pid);
	write_all(&f);
	change_under_way(&f, later);
	kill(f.pid, SIGCONT);
	assert_int_equal(status_of(&f, 5000), IBV_WC_SUCCESS);
	bool late = pattern_holds(f.dst, BYTES, LATER);
	if (!late)
		print_message("# SKIPPED: the kernel does not let one process read the other here, "
			      "so payloads are copied when they are sent\n");
	end(&f);
	if (!late)
		skip();
}

enum how { BY_ERR, BY_RESET, BY_DESTROY, BY_DEREG, HOWS };

static void what_has_failed_is_not_fetched(void **state)
{
	for (enum how how = BY_ERR; how < HOWS; how++) {
		struct from f;
		begin(&f);
		stop(f.pid);
		write_all(&f);
		switch (how) {
		case BY_ERR:
			to_state(&f, IBV_QPS_ERR);
			assert_int_equal(status_of(&f, 1000), IBV_WC_WR_FLUSH_ERR);
			break;
		case BY_RESET:
			to_state(&f, IBV_QPS_RESET);
			break;
		case BY_DESTROY: {
			struct side *s = &f.e.s;
			struct ibv_qp_init_attr init = {
				.send_cq = s->cq, .recv_cq = s->cq, .qp_type = IBV_QPT_RC};
			assert_int_equal(ibv_destroy_qp(s->qp), 0);
			s->qp = ibv_create_qp(f.e.p.pd, &init); /* for end_free */
			break;
		}
		default:
			assert_int_equal(ibv_dereg_mr(f.mr), 0);
			f.mr = NULL;
		}
		pattern_fill(f.buf, BYTES, LATER);
		kill(f.pid, SIGCONT);
		if (how == BY_DEREG)
			assert_int_equal(status_of(&f, 5000), IBV_WC_LOC_PROT_ERR);
		usleep(50000);
		if (!only_what_was_sent(&f))
			print_error("case %d\n", how);
		assert_true(only_what_was_sent(&f));
		end(&f);
	}
}

/* It cannot be fetched then; the sender copies from now on, and finds the same. */
static void memory_that_is_gone_fails_its_request_and_no_other(void **state)
{
	struct from f;
	begin(&f);
	stop(f.pid);
	write_all(&f);
	munmap(f.buf, BYTES);
	kill(f.pid, SIGCONT);
	assert_int_equal(status_of(&f, 5000), IBV_WC_LOC_PROT_ERR);
	assert_true(only_what_was_sent(&f));
	say(&f.e, "a", 1);
	end_again(&f.e);
	assert_int_equal(ibv_dereg_mr(f.mr), 0);
	memory_is_new(&f);
	for (int i = 0; i < 3; i++) {
		memset(f.dst, BEFORE, BYTES);
		write_all(&f);
		assert_int_equal(status_of(&f, 5000), IBV_WC_SUCCESS);
		assert_true(pattern_holds(f.dst, BYTES, SEED));
	}
	end(&f);
}

/* The same process to whoever knows its number: at the same place it has other bytes. */
static void another_program_in_its_place_is_not_read(void **state)
{
	int fds[2];
	char ready;
	struct from f = {.dst = shared()};
	assert_int_equal(pipe(fds), 0);
	pid_t pid = fork();
	if (!pid) {
		alarm(60); /* what fails here is in nobody's way */
		close(fds[0]);
		begin_to(&f, f.dst);
		stop(f.pid);
		write_all(&f);
		dup2(fds[1], 1);
		char receiver[16];
		snprintf(receiver, sizeof(receiver), "%d", (int)f.pid);
		execl("/proc/self/exe", "lane_refs_test", receiver, NULL);
		_exit(9);
	}
	close(fds[1]);
	assert_int_equal(read(fds[0], &ready, 1), 1);
	usleep(100000);
	assert_int_equal(kill(pid, 0), 0);
	assert_true(only_what_was_sent(&f));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(fds[0]);
	munmap(f.dst, BYTES);
}

/* It lets the receiver go on, which dies with it. */
static int other_program(pid_t receiver)
{
	uint8_t *at = mmap(PLACE, BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	memset(at, 0xee, BYTES);
	kill(receiver, SIGCONT);
	if (write(1, "r", 1) != 1)
		return 1;
	pause();
	return 0;
}

static void at_a_moment_of_chance(void **state)
{
	unsigned rounds = (unsigned)test_rounds(300), whole = 0, part = 0, none = 0;
	struct rng rng = {test_seed_any()};
	struct from f;
	begin(&f);
	for (unsigned n = 0; n < rounds; n++) {
		IN_CASE("round", n);
		memset(f.dst, BEFORE, BYTES);
		pattern_fill(f.buf, BYTES, SEED);
		write_all(&f);
		for (volatile uint64_t i = rng_below(&rng, 1 << 18); i; i--)
			;
		to_state(&f, IBV_QPS_ERR);
		int status = status_of(&f, 1000);
		memset(f.buf, 0xee, BYTES);
		assert_true(status == IBV_WC_SUCCESS || status == IBV_WC_WR_FLUSH_ERR);
		usleep(n % 8 ? 0 : 2000);
		assert_true(status != IBV_WC_SUCCESS || pattern_holds(f.dst, BYTES, SEED));
		/* after this nothing of the old connection is taken */
		say(&f.e, "a", 1);
		end_again(&f.e);
		assert_true(only_what_was_sent(&f));
		whole += status == IBV_WC_SUCCESS;
		none += status != IBV_WC_SUCCESS && f.dst[0] == BEFORE;
		part += status != IBV_WC_SUCCESS && f.dst[0] != BEFORE;
	}
	print_message(
		"# %u WRITEs ended: %u whole, %u begun, %u not begun\n", rounds, whole, part, none);
	end(&f);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return other_program(atoi(argv[1]));
	setenv("ROPEWAY_WIRE", "fetch", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_payload_is_fetched_when_its_receiver_runs),
		cmocka_unit_test(what_has_failed_is_not_fetched),
		cmocka_unit_test(memory_that_is_gone_fails_its_request_and_no_other),
		cmocka_unit_test(another_program_in_its_place_is_not_read),
		cmocka_unit_test(at_a_moment_of_chance),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
