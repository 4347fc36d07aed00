/* SPDX-License-Identifier: BSD-3-Clause */
/* lane_order_test.c - WRITEs of another process whose payloads are fetched from its memory, polled
 * as NCCL's LL128 does: when the last 8 bytes of any 128-byte line are there, all before are.
 * TEST_ROUNDS: how many. */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <signal.h>

#include "base/base.h"
#include "lib/test.h"
#include "peers.h"

enum { WORDS = 4096, LINE_WORDS = 16 };

static uint64_t word_of(uint64_t message, size_t i) { return pattern_word(message, i); }

static void writer(int sock, uint64_t messages, const _Atomic uint64_t *checked)
{
	struct end e;
	struct ibv_wc wc;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	end_make(&e, sock);
	for (uint64_t message = 1; message <= messages; message++) {
		pattern_fill(e.s.buf, WORDS * 8, message);
		if (pair_send(&e.s, IBV_WR_RDMA_WRITE, 0, WORDS * 8, e.peer.addr, e.peer.rkey) ||
			!pair_poll(e.s.cq, &wc, 20000) || wc.status)
			_exit(1);
		while (*checked != message)
			;
	}
	_exit(0);
}

/* Spins, so that it is seen as soon as it is there. */
static void await_word(const uint64_t *at, uint64_t word)
{
	uint64_t until_ns = rpwi_now_ns() + 60 * RPWI_NS_PER_S;
	for (unsigned looks = 1; __atomic_load_n(at, __ATOMIC_ACQUIRE) != word; looks++)
		assert_true(looks % 65536 || rpwi_now_ns() < until_ns);
}

static void the_last_words_of_a_line_come_last(void **unused)
{
	struct end e;
	int sock, status;
	uint64_t messages = test_rounds(1000), missing = 0;
	struct rng rng = {test_seed_any()};
	_Atomic uint64_t *checked =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(checked != MAP_FAILED);
	(void)unused;
	pid_t pid = peer_fork(&sock);
	if (!pid)
		writer(sock, messages, checked);
	end_make(&e, sock);
	const uint64_t *at = (const uint64_t *)(const void *)e.s.buf;
	for (uint64_t message = 1; message <= messages; message++) {
		size_t line = 1 + rng_below(&rng, WORDS / LINE_WORDS), flag = line * LINE_WORDS - 1;
		await_word(at + flag, word_of(message, flag));
		for (size_t i = flag; i-- > 0;)
			missing += __atomic_load_n(at + i, __ATOMIC_ACQUIRE) != word_of(message, i);
		await_word(at + WORDS - 1, word_of(message, WORDS - 1));
		*checked = message;
	}
	assert_int_equal(missing, 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	end_free(&e);
}

int main(void)
{
	setenv("ROPEWAY_WIRE", "fetch", 1);
	const struct CMUnitTest tests[] = {cmocka_unit_test(the_last_words_of_a_line_come_last)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
