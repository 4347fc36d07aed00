/* SPDX-License-Identifier: BSD-3-Clause */
/* What outlives a connection: disconnecting, refusals, the peer's past; and that it is bounded. */
#include "peer.h"

/* The storage is gone, but the peer still hears of the end, though the first DREQ was lost. */
static void a_destroyed_connection_goes_on_disconnecting(void **state)
{
	for (int answered = 0; answered < 2; answered++) {
		again();
		struct rpwi_cm_conn *c = bring(RPWI_CM_ESTABLISHED, false), was = *c;
		rpwi_cm_destroy(c, now);
		memset(c, 0xdd, sizeof(*c));
		assert_int_equal(sent[0].attr, RPWI_CM_DREQ);
		run_until(now + SECOND);
		assert_int_equal(nsent, 3);
		assert_true(sent[2].attr == RPWI_CM_DREQ && sent[2].tid == sent[0].tid &&
			    sent[2].dreq.remote_qpn == THEIR_QPN);
		if (answered)
			rx_attr(&was, RPWI_CM_DREP);
		run_until(now + 200 * SECOND);
		assert_int_equal(nsent, answered ? 3 : 9);
		assert_true(rpwi_cm_deadline(cm) == RPWI_NEVER);
		assert_int_equal(nevent, 0);
		rpwi_cm_conn_init(cm, &mine, &mine);
	}
}

static void nobody_hears_of_a_destroyed_connection(void **state)
{
	for (enum rpwi_cm_state s = RPWI_CM_REQ_SENT; s < RPWI_CM_STATE_COUNT; s++)
		for (int side = 0; side < 2; side++) {
			again();
			if ((side == ACTIVE &&
				    (s == S(REQ_RCVD) || s == S(REP_SENT) || s == S(RTU_WAIT) ||
					    s == S(SIDR_REQ_RCVD))) ||
				(side == PASSIVE &&
					(s == S(REQ_SENT) || s == S(REP_WAIT) || s == S(REP_RCVD) ||
						s == S(SIDR_REQ_SENT))))
				continue;
			struct rpwi_cm_conn *c = bring(s, side), was = *c;
			unsigned incoming_before = nincoming;
			rpwi_cm_destroy(c, now);
			memset(c, 0xdd, sizeof(*c));
			for (uint16_t attr = RPWI_CM_REQ; attr <= RPWI_CM_APR; attr++) {
				bool new_request =
					(attr == RPWI_CM_REQ && !(side && !was.sidr)) ||
					(attr == RPWI_CM_SIDR_REQ && !(side && was.sidr));
				if (!new_request)
					feed(&was, attr);
			}
			run_until(now + 200 * SECOND);
			assert_int_equal(nevent, 0);
			/* a late copy of the request is not a second one */
			assert_int_equal(nincoming, incoming_before);
			assert_true(rpwi_cm_deadline(cm) == RPWI_NEVER);
			rpwi_cm_conn_init(cm, &mine, &mine);
		}
}

static void a_lost_rejection_is_said_again(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_REQ_RCVD, true);
	struct rpwi_cm_msg req = a_req(THEIR_ID, THEIR_QPN);
	assert_int_equal(
		rpwi_cm_reject(c, RPWI_REJ_CONSUMER_DEFINED, NULL, 0, "because", 8, now), 0);
	rpwi_cm_destroy(c, now);
	run_until(now + 4 * SECOND);
	rx(&req);
	assert_int_equal(nsent, 2);
	assert_int_equal(sent[1].attr, RPWI_CM_REJ);
	assert_int_equal(sent[1].rej.reason, RPWI_REJ_CONSUMER_DEFINED);
	assert_memory_equal(sent[1].pdata, "because", 8);
	assert_int_equal(nincoming, 1);
	/* The same QP, tried anew at once: it was never connected. */
	req = a_req(THEIR_ID + 1, THEIR_QPN);
	rx(&req);
	assert_int_equal(nincoming, 2);
	/* As long as it is asked it remembers; then, after a while, it forgets. */
	run_until(now + 30 * SECOND);
	req = a_req(THEIR_ID, THEIR_QPN);
	rx(&req);
	run_until(now + 30 * SECOND);
	rx(&req);
	assert_int_equal(nsent, 4);
	assert_int_equal(nincoming, 2);
	run_until(now + 40 * SECOND);
	req = a_req(THEIR_ID, 0x5555);
	rx(&req);
	assert_int_equal(nincoming, 3);
}

/* The peer has given up; a copy of its request that comes later is not another request, and gets no
 * answer. */
static void a_late_copy_of_a_withdrawn_request_is_ignored(void **state)
{
	static const enum rpwi_cm_state states[] = {
		RPWI_CM_REQ_RCVD, RPWI_CM_REP_SENT, RPWI_CM_RTU_WAIT};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(states); i++)
		for (int gone = 0; gone < 2; gone++) {
			IN_CASE("state", states[i]);
			again();
			struct rpwi_cm_conn *c = bring(states[i], true);
			feed(c, gone ? IN_GONE : RPWI_CM_REJ);
			assert_int_equal(c->state, RPWI_CM_IDLE);
			rx_attr(c, RPWI_CM_REQ);
			assert_int_equal(nincoming, 1);
			assert_int_equal(nsent, 0);
			assert_int_equal(nevent, 1);
		}
}

/* A peer that has been started anew may come back with an ID of its former life: what only lingers
 * here does not stand in its way; what is connected does. */
static void an_id_of_a_former_life_is_no_obstacle(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_TIMEWAIT, true);
	struct rpwi_cm_msg req = a_req(THEIR_ID, THEIR_QPN);
	rpwi_cm_destroy(c, now);
	rx(&req); /* of the former life */
	assert_int_equal(nincoming, 1);
	assert_int_equal(sent[0].rej.reason, RPWI_REJ_STALE_CONN);
	req.tid ^= 1ull << 40;
	req.req.qpn ^= 0x80;
	rx(&req);
	assert_int_equal(nincoming, 2);
	assert_int_equal(nsent, 1);
}

static void the_past_believes_only_its_peer(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_ESTABLISHED, true), was = *c;
	static const struct rpwi_addr stranger = {.family = 4, .bytes = {10, 0, 0, 3}};
	rpwi_cm_destroy(c, now);
	for (uint16_t attr = RPWI_CM_MRA; attr <= RPWI_CM_DREP; attr++) {
		struct rpwi_cm_msg m = within(&was, attr);
		rx_from(&stranger, &m);
		m.local_comm_id ^= 1;
		rx(&m);
	}
	assert_int_equal(rpwi_cm_stats(cm)->stray, 2 * (RPWI_CM_DREP - RPWI_CM_MRA + 1));
	assert_int_equal(nsent, 1);
	run_until(now + SECOND); /* the DREQ is still repeated */
	assert_int_equal(nsent, 3);
}

/* More refusals than are remembered: the oldest is forgotten, nothing grows. */
static void memory_of_the_past_is_bounded(void **state)
{
	for (unsigned i = 0; i < 20000; i++) {
		struct rpwi_cm_msg req = a_req(i + 1, i + 1);
		pool_used = 0;
		rx(&req);
		assert_int_equal(nincoming, i + 1);
		assert_int_equal(rpwi_cm_reject(passive, 28, NULL, 0, &i, sizeof(i), now), 0);
	}
	struct rpwi_cm_msg last = a_req(20000, 20000), first = a_req(1, 1);
	nsent = 0;
	rx(&last);
	assert_int_equal(nincoming, 20000);
	assert_memory_equal(sent[0].pdata, &(unsigned){19999}, sizeof(unsigned));
	rx(&first);
	assert_int_equal(nincoming, 20001);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_destroyed_connection_goes_on_disconnecting),
		TEST(nobody_hears_of_a_destroyed_connection),
		TEST(a_lost_rejection_is_said_again),
		TEST(a_late_copy_of_a_withdrawn_request_is_ignored),
		TEST(an_id_of_a_former_life_is_no_obstacle),
		TEST(the_past_believes_only_its_peer),
		TEST(memory_of_the_past_is_bounded),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
