/* SPDX-License-Identifier: BSD-3-Clause */
/* gather_test.c - short messages that wait for others, to go as one batch (send_gather): none
 * waits for a program that has stopped polling, all keep their order, and a QP may end while some
 * wait. By UDP, or as the first argument says (ROPEWAY_WIRE).
 */
#include <time.h>

#include "lib/test.h"
#include "pair.h"

enum { WORD = 8, MANY = 40, DEADLINE_MS = 5000 };

static uint64_t now_us(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void write_word(struct pair *p, uint64_t i)
{
	assert_int_equal(pair_send(&p->a, IBV_WR_RDMA_WRITE, i * WORD, WORD,
				 (uintptr_t)p->b.buf + i * WORD, p->b.mr->rkey),
		0);
}

/* Without a call of the device: n words are there, before the deadline. How long did it take? */
static uint64_t words_come(struct pair *p, uint64_t n)
{
	uint64_t begin = now_us(), end = begin + DEADLINE_MS * 1000;
	const struct timespec nap = {.tv_nsec = 50000};
	for (uint64_t i = 0; i < n; i++)
		while (__atomic_load_n((uint64_t *)(void *)(p->b.buf + i * WORD),
			       __ATOMIC_ACQUIRE) != *(uint64_t *)(void *)(p->a.buf + i * WORD)) {
			assert_true(now_us() < end);
			nanosleep(&nap, NULL);
		}
	return now_us() - begin;
}

static void spin_in_vain(struct pair *p, unsigned polls)
{
	struct ibv_wc wc;
	while (polls--)
		assert_int_equal(ibv_poll_cq(p->a.cq, 1, &wc), 0);
}

static void drain(struct pair *p, unsigned n)
{
	struct ibv_wc wc;
	while (n--) {
		assert_true(pair_poll(p->a.cq, &wc, DEADLINE_MS));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
}

/* polls_first: the sockets are the program's, which then calls nothing any more. */
static void nothing_waits_for_polls(bool polls_first)
{
	struct pair p;
	pair_make(&p, 14, 7, 7);
	for (unsigned round = 0; round < 5; round++) {
		pattern_fill(p.a.buf, MANY * WORD, round + 1);
		if (polls_first)
			spin_in_vain(&p, 2000);
		for (uint64_t i = 0; i < MANY; i++)
			write_word(&p, i);
		print_message("%u words without a poll%s: %llu us\n", MANY,
			polls_first ? ", after many" : "",
			(unsigned long long)words_come(&p, MANY));
		drain(&p, MANY);
	}
	pair_free(&p);
}

static void test_who_never_polls_is_served(void **state) { nothing_waits_for_polls(false); }
static void test_who_stops_polling_is_served(void **state) { nothing_waits_for_polls(true); }

static void test_a_lone_message_goes_at_once(void **state)
{
	struct pair p;
	pair_make(&p, 14, 7, 7);
	for (unsigned round = 0; round < 5; round++) {
		pattern_fill(p.a.buf, WORD, round + 100);
		spin_in_vain(&p, 2000);
		write_word(&p, 0);
		print_message("one word: %llu us\n", (unsigned long long)words_come(&p, 1));
		drain(&p, 1);
	}
	pair_free(&p);
}

static void in_order(void)
{
	enum { MESSAGES = 4000, WINDOW = 16 };
	struct pair p;
	struct ibv_wc wc;
	unsigned posted = 0, sent = 0, received = 0;
	pair_make(&p, 14, 7, 7);
	for (unsigned i = 0; i < WINDOW; i++)
		pair_recv(&p.b, 65536 + i * 4096, 4096, i);
	while (received < MESSAGES) {
		while (posted < MESSAGES && posted - received < WINDOW && posted - sent < WINDOW) {
			/* one in eight is too long to wait, and takes those before it along */
			uint32_t len = posted % 8 == 7 ? 3000 : WORD;
			uint64_t at = posted % WINDOW * 4096;
			pattern_fill(p.a.buf + at, len, posted + 1);
			assert_int_equal(
				pair_send(&p.a, posted % 3 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM, at,
					len, 0, 0),
				0);
			posted++;
		}
		while (ibv_poll_cq(p.a.cq, 1, &wc) == 1) {
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			sent++;
		}
		while (received < posted && pair_poll(p.b.cq, &wc, DEADLINE_MS)) {
			uint32_t len = received % 8 == 7 ? 3000 : WORD;
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.wr_id, received % WINDOW);
			assert_int_equal(wc.byte_len, len);
			assert_true(pattern_holds(
				p.b.buf + 65536 + wc.wr_id * 4096, len, received + 1));
			pair_recv(&p.b, 65536 + wc.wr_id * 4096, 4096, wc.wr_id);
			received++;
		}
	}
	pair_free(&p);
}

static void test_order_is_kept(void **state) { in_order(); }

/* An ACK that is lost is not waited for without end. */
static void test_order_is_kept_with_losses(void **state)
{
	setenv("ROPEWAY_FAULT", "drop=0.02,seed=7", 1);
	in_order();
	nothing_waits_for_polls(false);
	nothing_waits_for_polls(true);
	unsetenv("ROPEWAY_FAULT");
}

/* The first go, the others wait; then the QP ends in one of three ways. */
static void test_a_qp_may_end_meanwhile(void **state)
{
	enum { END_ERR, END_RESET, END_DESTROY, ENDS };
	for (int round = 0; round < 30; round++) {
		IN_CASE("round", round);
		struct pair p;
		struct ibv_wc wc;
		unsigned n = 0;
		pair_make(&p, 14, 7, 7);
		pattern_fill(p.a.buf, MANY * WORD, 7);
		if (round % 2)
			spin_in_vain(&p, 1000);
		for (uint64_t i = 0; i < MANY; i++)
			write_word(&p, i);
		if (round % ENDS == END_DESTROY) {
			assert_int_equal(ibv_destroy_qp(p.a.qp), 0);
			/* what it left behind is nobody's */
			assert_int_equal(ibv_poll_cq(p.a.cq, 1, &wc), 0);
			struct ibv_qp_init_attr init = {.send_cq = p.a.cq,
				.recv_cq = p.a.cq,
				.qp_type = IBV_QPT_RC,
				.cap = {.max_send_wr = 1, .max_recv_wr = 1}};
			p.a.qp = ibv_create_qp(p.pd, &init);
			assert_non_null(p.a.qp);
		} else {
			struct ibv_qp_attr attr = {
				.qp_state = round % ENDS == END_ERR ? IBV_QPS_ERR : IBV_QPS_RESET};
			assert_int_equal(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
			while (ibv_poll_cq(p.a.cq, 1, &wc) == 1)
				n++;
			assert_int_equal(n, round % ENDS == END_ERR ? MANY : 0);
		}
		pair_free(&p);
	}
}

int main(int argc, char **argv)
{
	setenv("ROPEWAY_WIRE", argc > 1 ? argv[1] : "udp", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_lone_message_goes_at_once),
		cmocka_unit_test(test_who_never_polls_is_served),
		cmocka_unit_test(test_who_stops_polling_is_served),
		cmocka_unit_test(test_order_is_kept),
		cmocka_unit_test(test_order_is_kept_with_losses),
		cmocka_unit_test(test_a_qp_may_end_meanwhile),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
