/* SPDX-License-Identifier: BSD-3-Clause */
/* What answers do: losses are found and repaired, retries end, and what is no answer changes
 * nothing. */
#include "wire_pair.h"

static void a_gap_gets_one_nak_and_is_filled(void **state)
{
	pair(CONFIG());
	doom(RPWI_OP_WRITE_MIDDLE, psn_of(PSN0, 5), 1);
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 60 * MTU, RAT, SIG);
	settle();
	assert_int_equal(victims, 0);
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	same(AT, RAT, 60 * MTU);
	assert_int_equal(S[1].qp.stats.seq_nak_tx, 1);
	assert_int_equal(S[0].qp.stats.seq_nak_rx, 1);
	assert_int_equal(S[0].qp.stats.timeouts, 0);
	assert_int_equal(S[0].cc.losses, 1);
	assert_true(S[0].cc.cwnd < 64);
	unpair();
}

/* Nothing is sent before that. */
static void until_the_time_out(void)
{
	while (!S[0].qp.stats.timeouts) {
		assert_int_equal(emit(0), 0);
		assert_true(tick());
	}
}

static void a_lost_last_packet_waits_for_the_time_out(void **state)
{
	pair(CONFIG());
	doom(RPWI_OP_WRITE_LAST, UINT32_MAX, 3);
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 3 * MTU, RAT, SIG);
	settle();
	assert_int_equal(S[0].nwc, 0);
	uint64_t began = now;
	until_the_time_out();
	assert_true(now - began > (4096ull << 14) && now - began <= 4 * (4096ull << 14));
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	same(AT, RAT, 3 * MTU);
	assert_true(S[0].qp.stats.timeouts >= 1);
	unpair();
}

static void after_a_time_out_a_few_packets_go_first(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 60 * MTU, RAT, SIG);
	assert_int_equal(emit(0), 60);
	wire_n = 0;
	until_the_time_out();
	unsigned n = emit(0);
	assert_in_range(n, 1, 8);
	assert_true(decoded(&wire[n - 1]).ackreq);
	settle();
	assert_int_equal(S[0].nwc, 1);
	same(AT, RAT, 60 * MTU);
	unpair();
}

static struct rpwi_pkt last_read;
static int drop_victim_and_note_reads(const struct wpkt *w, const struct rpwi_pkt *p)
{
	if (rpwi_pkt_op(p) == RPWI_OP_READ_REQ)
		last_read = *p;
	return drop_victim(w, p);
}

static void a_read_resumes_at_the_first_missing_packet(void **state)
{
	pair(CONFIG());
	doom(RPWI_OP_READ_RESP_MIDDLE, psn_of(PSN0, 7), 1);
	fate = drop_victim_and_note_reads;
	post(0, IBV_WR_RDMA_READ, 1, AT, 20 * MTU + 5, RAT, SIG);
	settle();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	same(AT, RAT, 20 * MTU + 5);
	assert_int_equal(last_read.psn, psn_of(PSN0, 7));
	assert_int_equal(last_read.va, (uintptr_t)S[1].mem + RAT + 7 * MTU);
	assert_int_equal(last_read.dma_len, 13 * MTU + 5);
	assert_int_equal(S[0].qp.stats.timeouts, 0);
	assert_int_equal(S[0].qp.retry_left, 7);
	unpair();
}

static void an_ack_that_passes_over_a_read_means_its_responses_were_lost(void **state)
{
	pair(CONFIG());
	doom(RPWI_OP_READ_RESP_ONLY, UINT32_MAX, 1);
	post(0, IBV_WR_RDMA_READ, 1, AT, 10, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT + 64, 10, RAT + 64, SIG);
	settle();
	assert_int_equal(S[0].nwc, 2);
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].qp.stats.timeouts, 0);
	same(AT, RAT, 10);
	unpair();
}

static void a_lost_read_request_is_asked_again(void **state)
{
	pair(CONFIG());
	doom(RPWI_OP_READ_REQ, UINT32_MAX, 1);
	post(0, IBV_WR_RDMA_READ, 1, AT, 40 * MTU, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT + 64, 10, RAT + 64, SIG);
	settle_timed();
	assert_int_equal(S[0].nwc, 2);
	assert_int_equal(S[1].qp.stats.seq_nak_tx, 1);
	unpair();
}

static void swapped_packets_are_put_right(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 4 * MTU, RAT, SIG);
	assert_int_equal(emit(0), 4);
	struct wpkt *third = malloc(sizeof(*third));
	*third = wire[2];
	wire[2] = wire[1];
	wire[1] = *third;
	free(third);
	settle();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	same(AT, RAT, 4 * MTU);
	assert_int_equal(S[0].qp.stats.timeouts, 0);
	unpair();
}

static void no_answer_at_all_ends_with_retry_exceeded(void **state)
{
	pair(CONFIG(.retry = 3));
	doom(RPWI_OP_WRITE_ONLY, UINT32_MAX, 1000);
	uint64_t start = now;
	post_recv(0, 50, AT, 10);
	for (uint64_t k = 1; k <= 3; k++)
		post(0, IBV_WR_RDMA_WRITE, k, AT, 10, RAT, k == 2 ? 0 : SIG);
	settle_timed();
	assert_int_equal(S[0].qp.state, IBV_QPS_ERR);
	assert_int_equal(S[0].qp.stats.timeouts, 4); /* the first attempt and three retries */
	assert_true(now - start <= 4 * 4 * (4096ull << 14) + RPWI_NS_PER_MS);
	assert_int_equal(S[0].nwc, 4);
	expect_wc(0, 0, 1, IBV_WC_RETRY_EXC_ERR, 0);
	expect_wc(0, 1, 2, IBV_WC_WR_FLUSH_ERR, 0); /* unsignaled too */
	expect_wc(0, 2, 3, IBV_WC_WR_FLUSH_ERR, 0);
	expect_wc(0, 3, 50, IBV_WC_WR_FLUSH_ERR, 0);
	assert_true(S[0].wc_recv[3] && !S[0].wc_recv[2]);
	assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 9, AT, 10, RAT, 0), 0);
	expect_wc(0, 4, 9, IBV_WC_WR_FLUSH_ERR, 0);
	post_recv(0, 51, AT, 10);
	expect_wc(0, 5, 51, IBV_WC_WR_FLUSH_ERR, 0);
	assert_int_equal(rpwi_qp_deadline(&S[0].qp), RPWI_NEVER);
	unpair();
}

/* IB 9.7.6.1.3: T is the least. Not a moment earlier, whatever the numbers are. */
static void nobody_there_costs_the_least_that_the_attributes_allow(void **state)
{
	static const struct {
		int timeout, retry;
	} rows[] = {{14, 3}, {14, 0}, {14, 1}, {14, 7}, {5, 7}, {9, 7}, {10, 7}, {18, 5}};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		IN_CASE("row", i);
		pair(CONFIG(.timeout = rows[i].timeout, .retry = rows[i].retry));
		doom(RPWI_OP_WRITE_ONLY, UINT32_MAX, 1000);
		S[0].rejected = true;
		uint64_t start = now, tries = (uint64_t)rows[i].retry + 1,
			 t_ns = 4096ull << rows[i].timeout, least = t_ns * tries;
		post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
		settle_timed();
		expect_wc(0, 0, 1, IBV_WC_RETRY_EXC_ERR, 0);
		assert_true(now - start >= least);
		/* a wait is never under 4 ms, and the first is of 2 T */
		assert_true(now - start <=
			    RPWI_MAX(least, tries * 4 * RPWI_NS_PER_MS) + t_ns + RPWI_NS_PER_MS);
		unpair();
	}
}

/* Not there, or in ERR, until all but one of the retries that this leaves are used: then it is. */
static void who_is_there_in_the_end_gets_it(void **state)
{
	pair(CONFIG(.retry = 3));
	S[0].rejected = true;
	doom(RPWI_OP_WRITE_ONLY, UINT32_MAX, 2);
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	same(AT, RAT, 10);
	assert_int_equal(S[0].qp.stats.timeouts, 2); /* of 2 T and T */
	/* whose silence is only silence has its 4 T again */
	S[0].rejected = false;
	doom(RPWI_OP_WRITE_ONLY, UINT32_MAX, 1000);
	uint64_t start = now;
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	settle_timed();
	expect_wc(0, 1, 2, IBV_WC_RETRY_EXC_ERR, 0);
	assert_true(now - start >= 14 * (4096ull << 14)); /* 2 + 4 + 4 + 4 */
	unpair();
}

static void without_a_time_out_a_lost_packet_is_still_repaired(void **state)
{
	pair(CONFIG(.timeout = 0, .retry = 0));
	doom(RPWI_OP_WRITE_ONLY, UINT32_MAX, 20);
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	unpair();
}

static void answers_to_the_first_attempt_cost_no_retries(void **state)
{
	pair(CONFIG(.rd = 2));
	doom(RPWI_OP_READ_RESP_ONLY, UINT32_MAX, 1);
	post(0, IBV_WR_RDMA_READ, 1, AT, 10, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT + 64, 10, RAT + 64, SIG);
	emit(0);
	flush_wire();
	emit(1);
	struct rpwi_pkt ack = decoded(&wire[1]);
	assert_int_equal(rpwi_pkt_op(&ack), RPWI_OP_ACK);
	for (int k = 0; k < 20; k++) { /* as for a WRITE that arrived again and again */
		rx(0, &ack);
		for (unsigned n = emit(0); n; n--)
			take_off(wire_n - 1);
	}
	assert_int_equal(S[0].qp.retry_left, 6);
	wire_n = 0;
	settle_timed();
	assert_int_equal(S[0].nwc, 2);
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	/* the same for a sequence NAK that the network doubled */
	post(0, IBV_WR_RDMA_WRITE, 3, AT, 4 * MTU, RAT, SIG);
	emit(0);
	take_off(0);
	flush_wire();
	emit(1);
	struct rpwi_pkt nak = decoded(&wire[0]);
	assert_int_equal(nak.syndrome, 0x60);
	wire_n = 0;
	for (int k = 0; k < 20; k++) {
		rx(0, &nak);
		emit(0);
	}
	assert_int_equal(S[0].qp.retry_left, 6);
	assert_int_equal(wire_n, 4);
	settle();
	expect_wc(0, 2, 3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	same(AT, RAT, 4 * MTU);
	unpair();
}

static void after_rnr_one_packet_asks_whether_it_is_ready_now(void **state)
{
	pair(CONFIG(.rnr_retry = 7));
	for (uint64_t k = 0; k < 20; k++)
		post(0, IBV_WR_SEND, k, AT + 64 * (uint32_t)k, 10, 0, SIG);
	settle();
	for (int k = 0; k < 3; k++) {
		assert_true(tick());
		assert_int_equal(emit(0), 1);
		assert_false(rpwi_qp_blocked(&S[0].qp));
		assert_true(decoded(&wire[0]).ackreq);
		settle();
	}
	for (uint64_t k = 0; k < 20; k++)
		post_recv(1, k, RAT + 64 * (uint32_t)k, 64);
	settle_timed();
	assert_int_equal(S[0].nwc, 20);
	for (uint32_t k = 0; k < 20; k++)
		same(AT + 64 * k, RAT + 64 * k, 10);
	assert_int_equal(S[1].qp.stats.rnr_nak_tx, 4);
	unpair();
}

/* DLSlime's min_rnr_timer is 32, which is 0 in the 5 bits of a NAK. */
static void an_rnr_timer_of_32_is_that_of_0(void **state)
{
	pair(CONFIG(.rnr_retry = 7, .rnr_timer = 32));
	assert_int_equal(S[1].qp.attr.min_rnr_timer, 32);
	post(0, IBV_WR_SEND, 1, AT, 5, 0, SIG);
	settle();
	assert_in_range(rpwi_qp_deadline(&S[0].qp) - now, 655000000, 655360000);
	tick();
	post_recv(1, 100, RAT, 10);
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
	unpair();
}

static void rnr_retries_end(void **state)
{
	pair(CONFIG(.rnr_retry = 3));
	post(0, IBV_WR_SEND, 1, AT, 5, 0, SIG);
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_RNR_RETRY_EXC_ERR, 0);
	assert_int_equal(S[1].qp.stats.rnr_nak_tx, 4);
	unpair();
	pair(CONFIG(.rnr_retry = 7, .rnr_timer = 0));
	post(0, IBV_WR_SEND, 1, AT, 5, 0, SIG);
	for (int k = 0; k < 50; k++) {
		settle();
		assert_in_range(rpwi_qp_deadline(&S[0].qp) - now, 655000000, 655360000);
		tick();
	}
	post_recv(1, 100, RAT, 10);
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
	unpair();
}

static void a_bad_read_response_fails_the_read(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_READ, 1, AT, 10, RAT, SIG);
	emit(0);
	wire_n = 0;
	uint8_t data[16];
	memset(data, 0x77, sizeof(data));
	uint8_t before[16];
	memcpy(before, S[0].mem + AT, 16);
	struct rpwi_pkt p = forged(RPWI_OP_READ_RESP_ONLY, PSN0, data, 12);
	p.dqpn = QPN0;
	p.syndrome = 0x1f;
	rx(0, &p);
	expect_wc(0, 0, 1, IBV_WC_BAD_RESP_ERR, 0);
	assert_memory_equal(S[0].mem + AT, before, 16);
	unpair();
}

static void answers_to_nothing_and_strangers_change_nothing(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 3 * MTU, RAT, SIG);
	emit(0);
	struct rpwi_pkt p = forged(RPWI_OP_ACK, psn_of(PSN0, 3), NULL, 0);
	p.syndrome = 0x1f;
	rx(0, &p); /* never sent */
	p.psn = psn_of(PSN0, 0xffffff);
	p.syndrome = 0x61;
	rx(0, &p); /* before all */
	assert_int_equal(S[0].qp.stats.rx_out_of_order, 1);
	assert_int_equal(S[0].qp.stats.rx_duplicate, 1);
	struct rpwi_flow other = S[0].rx_flow;
	other.src.bytes[3] = 99;
	struct rpwi_rxmeta meta = {.flow = &other};
	p.psn = psn_of(PSN0, 2);
	rpwi_qp_rx(&S[0].qp, &p, &meta, now);
	assert_int_equal(S[0].qp.stats.rx_wrong_peer, 1);
	p.pkey = 0x1234;
	rx(0, &p);
	assert_int_equal(S[0].qp.stats.rx_wrong_peer, 2);
	assert_int_equal(S[0].nwc, 0);
	assert_int_equal(S[0].qp.state, IBV_QPS_RTS);
	p.pkey = RPWI_PKEY_DEFAULT;
	p.syndrome = 0x47; /* a reserved kind */
	rx(0, &p);
	p.syndrome = 0x7f; /* a reserved NAK: acknowledges what is before it, and no more */
	rx(0, &p);
	assert_int_equal(S[0].qp.state, IBV_QPS_RTS);
	settle();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	unpair();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_gap_gets_one_nak_and_is_filled),
		cmocka_unit_test(a_lost_last_packet_waits_for_the_time_out),
		cmocka_unit_test(after_a_time_out_a_few_packets_go_first),
		cmocka_unit_test(a_read_resumes_at_the_first_missing_packet),
		cmocka_unit_test(an_ack_that_passes_over_a_read_means_its_responses_were_lost),
		cmocka_unit_test(a_lost_read_request_is_asked_again),
		cmocka_unit_test(swapped_packets_are_put_right),
		cmocka_unit_test(no_answer_at_all_ends_with_retry_exceeded),
		cmocka_unit_test(nobody_there_costs_the_least_that_the_attributes_allow),
		cmocka_unit_test(who_is_there_in_the_end_gets_it),
		cmocka_unit_test(without_a_time_out_a_lost_packet_is_still_repaired),
		cmocka_unit_test(answers_to_the_first_attempt_cost_no_retries),
		cmocka_unit_test(after_rnr_one_packet_asks_whether_it_is_ready_now),
		cmocka_unit_test(an_rnr_timer_of_32_is_that_of_0),
		cmocka_unit_test(rnr_retries_end),
		cmocka_unit_test(a_bad_read_response_fails_the_read),
		cmocka_unit_test(answers_to_nothing_and_strangers_change_nothing),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, wire_pair_setup, wire_pair_teardown);
}
