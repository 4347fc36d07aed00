/* SPDX-License-Identifier: BSD-3-Clause */
/* A silence costs one small packet, whose answer says what was lost. */
#include "wire_pair.h"

/* One WRITE there and back, so that the round trip is known; then one of so many packets, all under
 * way. */
static void under_way(unsigned packets)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	settle();
	post(0, IBV_WR_RDMA_WRITE, 2, AT, packets * MTU, RAT, SIG);
	assert_int_equal(emit(0), packets);
}

/* The silence ends in one small packet: a duplicate of what was acknowledged last. */
static void expect_a_probe(uint32_t psn)
{
	unsigned before = wire_n;
	uint64_t probes = S[0].qp.stats.probes;
	do /* in between it may be looked at whether the QP counts in its window */
		assert_true(tick());
	while (!emit(0));
	assert_int_equal(wire_n, before + 1);
	struct rpwi_pkt p = decoded(&wire[before]);
	assert_int_equal(p.opcode, RPWI_SVC_RC | RPWI_OP_SEND_ONLY);
	assert_int_equal(p.psn, psn);
	assert_int_equal(p.payload_len, 0);
	assert_true(p.ackreq);
	assert_int_equal(S[0].qp.stats.probes, probes + 1);
}

static void a_silence_costs_one_probe_and_repeats_nothing(void **state)
{
	under_way(20);
	for (int k = 0; k < 3; k++) /* a peer that does not run: each silence is longer */
		expect_a_probe(PSN0);
	settle();
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].qp.stats.retransmits, 0);
	assert_int_equal(S[0].qp.stats.timeouts, 0);
	assert_int_equal(S[1].qp.epsn, S[0].qp.nxt);
	same(AT, RAT, 20 * MTU);
	unpair();
}

/* [from, 20) of the twenty is lost: the probe's answer says how far the peer got. */
static void lose_from(unsigned from)
{
	under_way(20);
	wire_n = from;
	flush_wire();
	settle();
	uint32_t una = S[0].qp.una;
	expect_a_probe((una - 1) & RPWI_PSN_MASK);
	settle();
	if (S[0].nwc == 1) { /* that was new: the next one says that there is no more */
		assert_true(S[0].qp.una != una);
		expect_a_probe((S[0].qp.una - 1) & RPWI_PSN_MASK);
		settle();
	}
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].qp.stats.retransmits, 20 - from);
	assert_int_equal(S[0].qp.stats.timeouts, 0);
	assert_int_equal(S[0].qp.retry_left, 7);
	same(AT, RAT, 20 * MTU);
	unpair();
}

static void a_lost_tail_is_found_by_a_probe(void **state)
{
	lose_from(0);
	lose_from(16);
	lose_from(17);
	lose_from(19);
}

static void a_lost_ack_is_found_by_a_probe(void **state)
{
	under_way(20);
	doom(RPWI_OP_ACK, UINT32_MAX, 1);
	for (int k = 0; k < 5 && victims; k++) {
		flush_wire();
		emit(1);
	}
	settle();
	assert_int_equal(S[0].nwc, 1);
	expect_a_probe((S[0].qp.una - 1) & RPWI_PSN_MASK);
	settle();
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].qp.stats.retransmits, 0);
	unpair();
}

static void a_lost_nak_is_found_by_a_probe(void **state)
{
	under_way(20);
	take_off(0);
	doom(RPWI_OP_ACK, UINT32_MAX, 1);
	settle();
	assert_int_equal(S[1].qp.stats.seq_nak_tx, 1);
	assert_int_equal(victims, 0);
	expect_a_probe(PSN0);
	settle();
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].qp.stats.retransmits, 20);
	assert_int_equal(S[0].qp.stats.timeouts, 0);
	unpair();
}

/* The answer to a probe that was not needed comes when another is under way: it is no answer to
 * that one. */
static void a_late_answer_to_a_probe_is_none_to_the_next(void **state)
{
	struct wpkt late;
	under_way(2);
	expect_a_probe(PSN0);
	late = wire[2];
	wire_n = 2;
	settle(); /* all of it is acknowledged, the probe not yet answered */
	assert_int_equal(S[0].nwc, 2);
	post(0, IBV_WR_RDMA_WRITE, 3, AT, 3 * MTU, RAT, SIG);
	assert_int_equal(emit(0), 3);
	wire_n = 0; /* they take their time */
	deliver(&late);
	assert_int_equal(emit(1), 1);
	struct wpkt answer = wire[0];
	wire_n = 0;
	expect_a_probe((S[0].qp.una - 1) & RPWI_PSN_MASK);
	deliver(&answer);
	assert_int_equal(emit(0), 0);
	assert_int_equal(S[0].qp.stats.retransmits, 0);
	settle(); /* its own answer counts: they were lost */
	assert_int_equal(S[0].qp.stats.retransmits, 3);
	expect_wc(0, 2, 3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	unpair();
}

/* The peer goes on in parts: what it says to the first probe covers all that was sent before that
 * one. */
static void an_answer_to_the_first_probe_is_none_to_the_second(void **state)
{
	enum { FIRST = 20, PART = 18, MORE = 5 };
	struct wpkt sent[FIRST + 1 + MORE + 1];
	under_way(FIRST);
	expect_a_probe(PSN0);
	for (unsigned i = 0; i < PART; i++)
		deliver(&wire[i]);
	memcpy(sent, wire, sizeof(*sent) * (FIRST + 1));
	wire_n = 0;
	emit(1);
	settle();
	assert_int_not_equal(S[0].qp.una & RPWI_PSN_MASK, (PSN0 + 1) & RPWI_PSN_MASK);
	assert_int_equal(S[0].nwc, 1);
	post(0, IBV_WR_RDMA_WRITE, 3, AT, MORE * MTU, RAT, SIG);
	assert_int_equal(emit(0), MORE);
	expect_a_probe((S[0].qp.una - 1) & RPWI_PSN_MASK);
	memcpy(sent + FIRST + 1, wire, sizeof(*sent) * (MORE + 1));
	wire_n = 0;
	for (unsigned i = PART; i < RPWI_ARRAY_LEN(sent); i++) {
		deliver(&sent[i]);
		emit(1); /* each is answered by itself, and heard before the next comes */
		flush_wire();
		emit(0);
	}
	settle();
	assert_int_equal(S[0].qp.stats.retransmits, 0);
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_wc(0, 2, 3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	unpair();
}

static void lost_read_responses_are_found_by_a_probe(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	settle();
	doom(RPWI_OP_READ_RESP_LAST, UINT32_MAX, 1);
	post(0, IBV_WR_RDMA_READ, 2, AT, 5 * MTU, RAT, SIG);
	settle();
	assert_int_equal(S[0].nwc, 1);
	expect_a_probe((S[0].qp.una - 1) & RPWI_PSN_MASK);
	settle();
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	assert_int_equal(S[0].qp.stats.timeouts, 0);
	same(AT, RAT, 5 * MTU);
	unpair();
}

/* A deadline that is seen late: this process did not run, and the answers wait in its socket. */
static void a_process_that_did_not_run_reads_before_it_repeats(void **state)
{
	under_way(20);
	now += 500000000; /* longer than the ACK time-out */
	rpwi_qp_timer(&S[0].qp, now);
	assert_int_equal(emit(0), 0);
	settle();
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_int_equal(
		S[0].qp.stats.retransmits + S[0].qp.stats.probes + S[0].qp.stats.timeouts, 0);
	unpair();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_silence_costs_one_probe_and_repeats_nothing),
		cmocka_unit_test(a_lost_tail_is_found_by_a_probe),
		cmocka_unit_test(a_lost_ack_is_found_by_a_probe),
		cmocka_unit_test(a_lost_nak_is_found_by_a_probe),
		cmocka_unit_test(a_late_answer_to_a_probe_is_none_to_the_next),
		cmocka_unit_test(an_answer_to_the_first_probe_is_none_to_the_second),
		cmocka_unit_test(lost_read_responses_are_found_by_a_probe),
		cmocka_unit_test(a_process_that_did_not_run_reads_before_it_repeats),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, wire_pair_setup, wire_pair_teardown);
}
