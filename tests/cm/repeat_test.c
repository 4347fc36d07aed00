/* SPDX-License-Identifier: BSD-3-Clause */
/* Repetition: what is not answered is said again, when and for how long; what an MRA changes; a
 * burst. */
#include "peer.h"

/* Early at first; never less than the 16 tries of rdma_cm; an end after 16 times 4.3 s. */
static void unanswered_requests(void **state)
{
	static const struct {
		enum rpwi_cm_state state;
		bool passive;
		uint16_t attr;
	} cases[] = {{S(REQ_SENT), false, S(REQ)}, {S(REP_SENT), true, S(REP)},
		{S(DREQ_SENT), false, S(DREQ)}};
	const uint64_t response_ns = 4096ull << 20;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		IN_CASE("row", i);
		again();
		struct rpwi_cm_conn *c = bring(cases[i].state, cases[i].passive);
		uint64_t start = now, first;
		first = rpwi_cm_deadline(cm) - start;
		assert_true(first == 250 * RPWI_NS_PER_MS);
		run_until(start + 4 * SECOND);
		assert_int_equal(nsent, 4); /* 0.25, 0.75, 1.75, 3.75 s */
		run_until(start + 16 * response_ns - 1);
		assert_int_equal(nevent, 0);
		assert_int_equal(c->state, cases[i].state);
		assert_in_range(nsent, 15, 20);
		for (unsigned k = 0; k < nsent; k++) {
			assert_int_equal(sent[k].attr, cases[i].attr);
			assert_true(sent[k].tid == sent[0].tid);
		}
		assert_int_equal(rpwi_cm_stats(cm)->retries, nsent);
		run_until(start + 16 * response_ns);
		assert_int_equal(nevent, 1);
		assert_int_equal(rpwi_cm_stats(cm)->timeouts, 1);
	}
}

static void the_peer_sets_the_pace_of_its_answers_within_bounds(void **state)
{
	static const struct {
		uint8_t exponent, retries;
		uint64_t end_ns;
	} cases[] = {{20, 2, 3 * (4096ull << 20)}, {0, 0, 4096ull << 16},
		{31, 15, 16 * (4096ull << 22)}, {18, 7, 8 * (4096ull << 18)}};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		IN_CASE("row", i);
		again();
		struct rpwi_cm_msg req = a_req(THEIR_ID, THEIR_QPN);
		req.req.local_cm_response_timeout = cases[i].exponent;
		req.req.max_cm_retries = cases[i].retries;
		rx(&req);
		assert_int_equal(rpwi_cm_accept(passive, our_guid, &our_param, NULL, 0, now), 0);
		uint64_t start = now;
		run_until(start + cases[i].end_ns - 1);
		assert_int_equal(nevent, 0);
		run_until(start + cases[i].end_ns);
		assert_int_equal(event[0].ev.type, RPWI_CM_EV_REP_ERROR);
	}
}

static void an_mra_gives_time_and_not_for_ever(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_REQ_SENT, false);
	uint64_t start = now, service_ns = 4096ull << 24;
	struct rpwi_cm_msg mra = within(c, RPWI_CM_MRA);
	mra.mra.service_timeout = 31; /* 2.4 hours: cut to 24 */
	rx(&mra);
	run_until(start + service_ns - 1);
	assert_int_equal(nsent, 0);
	run_until(start + service_ns);
	assert_int_equal(nsent, 1);
	assert_int_equal(sent[0].attr, RPWI_CM_REQ);
	while (nevent == 0 && now < start + 1000 * SECOND) {
		if (now < start + 100 * SECOND)
			rx(&mra); /* each time anew */
		run_until(now + SECOND);
	}
	/* however patient, it asks again before it gives up: the answer may have been lost */
	assert_in_range(nsent, 5, 20);
	assert_int_equal(event[0].ev.type, RPWI_CM_EV_REQ_ERROR);
	assert_true(now < start + 3 * service_ns);
	again();
	c = bring(RPWI_CM_REQ_SENT, false);
	mra = within(c, RPWI_CM_MRA);
	mra.mra.msg_mraed = 1; /* of a REP, which this side has not sent */
	rx(&mra);
	assert_int_equal(c->state, RPWI_CM_REQ_SENT);
	assert_int_equal(rpwi_cm_stats(cm)->stray, 1);
}

static void a_slow_program_asks_for_time_only_when_asked(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_REQ_RCVD, true);
	run_until(now + 100 * SECOND);
	assert_int_equal(nsent, 0);
	rx_attr(c, RPWI_CM_REQ);
	assert_int_equal(nsent, 1);
	assert_int_equal(sent[0].mra.msg_mraed, 0);
	assert_int_equal(sent[0].mra.service_timeout, 24);
	assert_int_equal(sent[0].remote_comm_id, THEIR_ID);
	assert_int_equal(rpwi_cm_accept(c, our_guid, &our_param, "late", 5, now), 0);
	rx_attr(c, RPWI_CM_REQ); /* once more, overtaken by the REP */
	assert_int_equal(sent[2].attr, RPWI_CM_REP);
	assert_memory_equal(sent[2].pdata, "late", 5);
	assert_int_equal(nincoming, 1);
	assert_int_equal(rpwi_cm_stats(cm)->duplicates, 2);
	again();
	c = bring(RPWI_CM_REP_RCVD, false);
	rx_attr(c, RPWI_CM_REP);
	assert_int_equal(sent[0].attr, RPWI_CM_MRA);
	assert_int_equal(sent[0].mra.msg_mraed, 1);
}

/* After our MRA the peer waits a minute for the answer: a lost one would cost that minute. */
static void an_answer_after_an_mra_is_repeated_unasked(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_REP_RCVD, false);
	rx_attr(c, RPWI_CM_REP);
	assert_int_equal(rpwi_cm_establish(c, "rtu", 4, now), 0);
	run_until(now + 100 * SECOND);
	assert_int_equal(nsent, 7); /* MRA, RTU, and five more */
	assert_true(sent[6].attr == RPWI_CM_RTU && !memcmp(sent[4].pdata, "rtu", 4));
	assert_int_equal(c->state, RPWI_CM_ESTABLISHED);
	assert_int_equal(nevent, 0);
	again();
	c = bring(RPWI_CM_REP_RCVD, false);
	assert_int_equal(rpwi_cm_establish(c, "rtu", 4, now), 0);
	assert_true(rpwi_cm_deadline(cm) == RPWI_NEVER);
	again();
	c = bring(RPWI_CM_REP_RCVD, false);
	rx_attr(c, RPWI_CM_REP);
	assert_int_equal(rpwi_cm_establish(c, "rtu", 4, now), 0);
	rx_attr(c, RPWI_CM_DREQ);
	run_until(now + 100 * SECOND);
	assert_int_equal(nsent, 2); /* the peer is there, and is done */
	again();
	c = bring(RPWI_CM_REQ_RCVD, true);
	rx_attr(c, RPWI_CM_REQ);
	assert_int_equal(rpwi_cm_reject(c, 28, NULL, 0, "why", 4, now), 0);
	run_until(now + 60 * SECOND);
	assert_int_equal(nsent, 7); /* MRA, REJ, and five more */
	run_until(now + 10 * SECOND);
	rx_attr(c, RPWI_CM_REQ); /* the peer's next try, when the MRA's time is over */
	assert_int_equal(nsent, 8);
	assert_true(sent[7].attr == RPWI_CM_REJ && !memcmp(sent[7].pdata, "why", 4));
	assert_int_equal(nincoming, 1);
}

/* A listener that was there a moment ago may be there again in a moment. */
static void nobody_listens_yet(void **state)
{
	rpwi_cm_conn_init(cm, &mine, NULL);
	mine.patient_until_ns = now + SECOND;
	assert_int_equal(connect_with(&mine, 0x100), 0);
	struct rpwi_cm_msg rej = within(&mine, RPWI_CM_REJ);
	rej.rej.reason = RPWI_REJ_INVALID_SERVICE_ID;
	rx(&rej);
	assert_int_equal(mine.state, RPWI_CM_REQ_SENT);
	assert_int_equal(nevent, 0);
	run_until(now + 50 * RPWI_NS_PER_MS);
	assert_int_equal(sent_total, 2);
	assert_int_equal(sent[1].attr, RPWI_CM_REQ);
	assert_int_equal(sent[1].tid, sent[0].tid);
	run_until(now + SECOND);
	rx(&rej);
	assert_int_equal(mine.state, RPWI_CM_IDLE);
	assert_int_equal(event[0].ev.reason, RPWI_REJ_INVALID_SERVICE_ID);
	/* Any other reason is final at once. */
	mine.patient_until_ns = now + SECOND;
	assert_int_equal(connect_with(&mine, 0x100), 0);
	rej = within(&mine, RPWI_CM_REJ);
	rej.rej.reason = RPWI_REJ_CONSUMER_DEFINED;
	rx(&rej);
	assert_int_equal(mine.state, RPWI_CM_IDLE);
}

/* A program that connects a thousand times at once: so many requests go out as a socket can hold,
 * the next with each answer, the rest when their first repetition is due. */
static void a_burst_waits_its_turn(void **state)
{
	enum { BURST = 300, WINDOW = 64 };
	static struct rpwi_cm_conn burst[BURST];
	for (unsigned i = 0; i < BURST; i++) {
		rpwi_cm_conn_init(cm, &burst[i], NULL);
		assert_int_equal(connect_with(&burst[i], 0x100 + i), 0);
	}
	assert_int_equal(sent_total, WINDOW);
	rx_attr(&burst[0], RPWI_CM_REJ);
	assert_int_equal(sent_total, WINDOW + 1);
	rpwi_cm_destroy(&burst[BURST - 1], now); /* never sent: tells only that it has gone */
	rx_attr(&burst[1], RPWI_CM_REP);
	assert_int_equal(burst[1].state, RPWI_CM_REP_RCVD);
	unsigned before = sent_total;
	run_until(now + SECOND / 4);
	assert_int_equal(before, WINDOW + 3);
	/* By then each of them has gone out at least once; those of the window a second time. */
	assert_true(sent_total >= before + BURST - 3 - (WINDOW + 2));
	for (unsigned i = 2; i < BURST - 1; i++)
		assert_int_equal(burst[i].state, RPWI_CM_REQ_SENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(unanswered_requests),
		TEST(the_peer_sets_the_pace_of_its_answers_within_bounds),
		TEST(an_mra_gives_time_and_not_for_ever),
		TEST(a_slow_program_asks_for_time_only_when_asked),
		TEST(an_answer_after_an_mra_is_repeated_unasked),
		TEST(nobody_listens_yet),
		TEST(a_burst_waits_its_turn),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
