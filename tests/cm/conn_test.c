/* SPDX-License-Identifier: BSD-3-Clause */
/* Each state with everything that can happen to it; then how a connection ends, and what callbacks
 * may do. */
#include "peer.h"

enum { NO = 0, NONE = -1 };
/* What must follow; where there is no line, nothing: EINVAL for a call, and a message is stray. */
struct expected {
	enum rpwi_cm_state state;
	int side; /* SIDES: either */
	int input;
	enum rpwi_cm_state next;
	int send;  /* attribute or NO */
	int event; /* or NONE */
};
/* clang-format off */
static const struct expected expected[] = {
	{S(IDLE), SIDES, IN_CONNECT, S(REQ_SENT), S(REQ), NONE},
	{S(IDLE), SIDES, IN_SIDR_ASK, S(SIDR_REQ_SENT), S(SIDR_REQ), NONE},
	{S(IDLE), SIDES, IN_DESTROY, S(IDLE), NO, NONE},

	{S(REQ_SENT), ACTIVE, S(MRA), S(REP_WAIT), NO, NONE},
	{S(REQ_SENT), ACTIVE, S(REP), S(REP_RCVD), NO, E(REP)},
	{S(REQ_SENT), ACTIVE, S(REJ), S(IDLE), NO, E(REJ)},
	{S(REQ_SENT), ACTIVE, IN_REJ_STALE, S(TIMEWAIT), NO, E(REJ)},
	{S(REQ_SENT), ACTIVE, IN_REJECT, S(IDLE), S(REJ), NONE},
	{S(REQ_SENT), ACTIVE, IN_GONE, S(IDLE), NO, E(PEER_GONE)},
	{S(REQ_SENT), ACTIVE, IN_DESTROY, S(IDLE), S(REJ), NONE},

	{S(REP_WAIT), ACTIVE, S(MRA), S(REP_WAIT), NO, NONE},
	{S(REP_WAIT), ACTIVE, S(REP), S(REP_RCVD), NO, E(REP)},
	{S(REP_WAIT), ACTIVE, S(REJ), S(IDLE), NO, E(REJ)},
	{S(REP_WAIT), ACTIVE, IN_REJ_STALE, S(TIMEWAIT), NO, E(REJ)},
	{S(REP_WAIT), ACTIVE, IN_REJECT, S(IDLE), S(REJ), NONE},
	{S(REP_WAIT), ACTIVE, IN_GONE, S(IDLE), NO, E(PEER_GONE)},
	{S(REP_WAIT), ACTIVE, IN_DESTROY, S(IDLE), S(REJ), NONE},

	{S(REQ_RCVD), PASSIVE, S(REQ), S(REQ_RCVD), S(MRA), NONE},
	{S(REQ_RCVD), PASSIVE, S(REJ), S(IDLE), NO, E(REJ)},
	{S(REQ_RCVD), PASSIVE, IN_REJ_STALE, S(IDLE), NO, E(REJ)},
	{S(REQ_RCVD), PASSIVE, IN_ACCEPT, S(REP_SENT), S(REP), NONE},
	{S(REQ_RCVD), PASSIVE, IN_REJECT, S(IDLE), S(REJ), NONE},
	{S(REQ_RCVD), PASSIVE, IN_GONE, S(IDLE), NO, E(PEER_GONE)},
	{S(REQ_RCVD), PASSIVE, IN_DESTROY, S(IDLE), S(REJ), NONE},

	{S(REP_SENT), PASSIVE, S(REQ), S(REP_SENT), S(REP), NONE},
	{S(REP_SENT), PASSIVE, S(MRA), S(RTU_WAIT), NO, NONE},
	{S(REP_SENT), PASSIVE, S(RTU), S(ESTABLISHED), NO, E(ESTABLISHED)},
	{S(REP_SENT), PASSIVE, S(REJ), S(IDLE), NO, E(REJ)},
	{S(REP_SENT), PASSIVE, IN_REJ_STALE, S(TIMEWAIT), NO, E(REJ)},
	{S(REP_SENT), PASSIVE, IN_COMM_ESTABLISHED, S(ESTABLISHED), NO, E(ESTABLISHED)},
	{S(REP_SENT), PASSIVE, IN_REJECT, S(TIMEWAIT), S(REJ), NONE},
	{S(REP_SENT), PASSIVE, IN_GONE, S(IDLE), NO, E(PEER_GONE)},
	{S(REP_SENT), PASSIVE, IN_DESTROY, S(IDLE), S(REJ), NONE},
	/* a DREQ is looked at by itself: two events */
	{S(REP_SENT), PASSIVE, S(DREQ), S(DREQ_RCVD), NO, E(DREQ)},

	{S(RTU_WAIT), PASSIVE, S(REQ), S(RTU_WAIT), S(REP), NONE},
	{S(RTU_WAIT), PASSIVE, S(MRA), S(RTU_WAIT), NO, NONE},
	{S(RTU_WAIT), PASSIVE, S(RTU), S(ESTABLISHED), NO, E(ESTABLISHED)},
	{S(RTU_WAIT), PASSIVE, S(REJ), S(IDLE), NO, E(REJ)},
	{S(RTU_WAIT), PASSIVE, IN_REJ_STALE, S(TIMEWAIT), NO, E(REJ)},
	{S(RTU_WAIT), PASSIVE, IN_COMM_ESTABLISHED, S(ESTABLISHED), NO, E(ESTABLISHED)},
	{S(RTU_WAIT), PASSIVE, IN_REJECT, S(TIMEWAIT), S(REJ), NONE},
	{S(RTU_WAIT), PASSIVE, IN_GONE, S(IDLE), NO, E(PEER_GONE)},
	{S(RTU_WAIT), PASSIVE, IN_DESTROY, S(IDLE), S(REJ), NONE},
	{S(RTU_WAIT), PASSIVE, S(DREQ), S(DREQ_RCVD), NO, E(DREQ)},

	{S(REP_RCVD), ACTIVE, S(REP), S(REP_RCVD), S(MRA), NONE},
	{S(REP_RCVD), ACTIVE, S(REJ), S(TIMEWAIT), NO, E(REJ)},
	{S(REP_RCVD), ACTIVE, IN_REJ_STALE, S(TIMEWAIT), NO, E(REJ)},
	{S(REP_RCVD), ACTIVE, IN_ESTABLISH, S(ESTABLISHED), S(RTU), NONE},
	{S(REP_RCVD), ACTIVE, IN_REJECT, S(IDLE), S(REJ), NONE},
	{S(REP_RCVD), ACTIVE, IN_GONE, S(IDLE), NO, E(PEER_GONE)},
	{S(REP_RCVD), ACTIVE, IN_DESTROY, S(IDLE), S(REJ), NONE},

	{S(ESTABLISHED), PASSIVE, S(REQ), S(ESTABLISHED), NO, NONE},
	{S(ESTABLISHED), ACTIVE, S(REP), S(ESTABLISHED), S(RTU), NONE},
	{S(ESTABLISHED), PASSIVE, S(RTU), S(ESTABLISHED), NO, NONE},
	{S(ESTABLISHED), SIDES, S(DREQ), S(DREQ_RCVD), NO, E(DREQ)},
	{S(ESTABLISHED), SIDES, S(REJ), S(TIMEWAIT), NO, E(PEER_GONE)},
	{S(ESTABLISHED), SIDES, IN_REJ_STALE, S(TIMEWAIT), NO, E(PEER_GONE)},
	{S(ESTABLISHED), SIDES, IN_DISCONNECT, S(DREQ_SENT), S(DREQ), NONE},
	{S(ESTABLISHED), SIDES, IN_GONE, S(TIMEWAIT), NO, E(PEER_GONE)},
	{S(ESTABLISHED), SIDES, IN_DESTROY, S(IDLE), S(DREQ), NONE},

	{S(DREQ_SENT), PASSIVE, S(REQ), S(DREQ_SENT), NO, NONE},
	{S(DREQ_SENT), ACTIVE, S(REP), S(DREQ_SENT), NO, NONE},
	{S(DREQ_SENT), PASSIVE, S(RTU), S(DREQ_SENT), NO, NONE},
	{S(DREQ_SENT), SIDES, S(DREQ), S(TIMEWAIT), S(DREP), E(DREP)},
	{S(DREQ_SENT), SIDES, S(DREP), S(TIMEWAIT), NO, E(DREP)},
	{S(DREQ_SENT), SIDES, S(REJ), S(TIMEWAIT), NO, E(DREP)},
	{S(DREQ_SENT), SIDES, IN_REJ_STALE, S(TIMEWAIT), NO, E(DREP)},
	{S(DREQ_SENT), SIDES, IN_GONE, S(TIMEWAIT), NO, E(PEER_GONE)},
	{S(DREQ_SENT), SIDES, IN_DESTROY, S(IDLE), NO, NONE},

	{S(DREQ_RCVD), PASSIVE, S(REQ), S(DREQ_RCVD), NO, NONE},
	{S(DREQ_RCVD), ACTIVE, S(REP), S(DREQ_RCVD), NO, NONE},
	{S(DREQ_RCVD), PASSIVE, S(RTU), S(DREQ_RCVD), NO, NONE},
	{S(DREQ_RCVD), SIDES, S(DREQ), S(DREQ_RCVD), NO, NONE},
	{S(DREQ_RCVD), SIDES, IN_DISCONNECT, S(TIMEWAIT), S(DREP), NONE},
	{S(DREQ_RCVD), SIDES, IN_GONE, S(TIMEWAIT), NO, NONE},
	{S(DREQ_RCVD), SIDES, IN_DESTROY, S(IDLE), S(DREP), NONE},

	{S(TIMEWAIT), PASSIVE, S(REQ), S(TIMEWAIT), S(REJ), NONE},
	{S(TIMEWAIT), ACTIVE, S(REP), S(TIMEWAIT), NO, NONE},
	{S(TIMEWAIT), PASSIVE, S(RTU), S(TIMEWAIT), NO, NONE},
	{S(TIMEWAIT), SIDES, S(DREQ), S(TIMEWAIT), S(DREP), NONE},
	{S(TIMEWAIT), SIDES, S(DREP), S(TIMEWAIT), NO, NONE},
	{S(TIMEWAIT), SIDES, S(REJ), S(TIMEWAIT), NO, NONE},
	{S(TIMEWAIT), SIDES, IN_REJ_STALE, S(TIMEWAIT), NO, NONE},
	{S(TIMEWAIT), SIDES, IN_DESTROY, S(IDLE), NO, NONE},

	{S(SIDR_REQ_SENT), ACTIVE, S(SIDR_REP), S(IDLE), NO, E(SIDR_REP)},
	{S(SIDR_REQ_SENT), ACTIVE, IN_GONE, S(IDLE), NO, E(PEER_GONE)},
	{S(SIDR_REQ_SENT), ACTIVE, IN_DESTROY, S(IDLE), NO, NONE},
	{S(SIDR_REQ_RCVD), PASSIVE, S(SIDR_REQ), S(SIDR_REQ_RCVD), NO, NONE},
	{S(SIDR_REQ_RCVD), PASSIVE, IN_SIDR_REPLY, S(IDLE), S(SIDR_REP), NONE},
	{S(SIDR_REQ_RCVD), PASSIVE, IN_GONE, S(IDLE), NO, E(PEER_GONE)},
	{S(SIDR_REQ_RCVD), PASSIVE, IN_DESTROY, S(IDLE), S(SIDR_REP), NONE},
};
/* clang-format on */

static const struct expected *expected_of(enum rpwi_cm_state state, int side, int input)
{
	const struct expected *found = NULL;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(expected); i++)
		if (expected[i].state == state &&
			(expected[i].side == SIDES || expected[i].side == side) &&
			expected[i].input == input) {
			assert_null(found);
			found = &expected[i];
		}
	return found;
}

static void check_one(enum rpwi_cm_state state, int side, int input)
{
	const struct expected *e = expected_of(state, side, input);
	/* For the active side a REQ from this peer is a new connection; nothing to do with this
	 * one. */
	if (!e && ((input == RPWI_CM_REQ && side == ACTIVE) || input == RPWI_CM_SIDR_REQ ||
			  (input == RPWI_CM_REQ && state >= RPWI_CM_SIDR_REQ_SENT) ||
			  state == RPWI_CM_IDLE))
		return;
	again();
	struct rpwi_cm_conn *c = bring(state, side == PASSIVE);
	const struct rpwi_cm_stats *st = rpwi_cm_stats(cm);
	uint64_t stray_before = st->stray;
	unsigned moved_before = nmoved, incoming_before = nincoming;
	int rc = feed(c, input);
	bool is_call = input >= IN_ACCEPT, is_message = input < IN_ACCEPT || input == IN_REJ_STALE;
	char what[64];
	snprintf(what, sizeof(what), "%s %s + %s/%d", side == PASSIVE ? "passive" : "active",
		rpwi_cm_state_name[state], rpwi_cm_attr_name((unsigned)input), input);

	enum rpwi_cm_state next = e ? e->next : state;
	int send = e ? e->send : NO, ev = e ? e->event : NONE;
	unsigned events = ev == NONE ? 0
			  : e->input == RPWI_CM_DREQ && state != RPWI_CM_ESTABLISHED &&
					  state != RPWI_CM_DREQ_SENT
				  ? 2
				  : 1;
	bool right = c->state == next && nsent == (send != NO) && nevent == events &&
		     (send == NO || sent[0].attr == send) &&
		     (ev == NONE || (int)event[events - 1].ev.type == ev) &&
		     nincoming == incoming_before &&
		     (next == state ? nmoved == moved_before
				    : nmoved == moved_before + (events ? events : 1));
	right = right &&
		rc == (!e && is_call && !is_message && input != IN_GONE && input != IN_DESTROY
				      ? -EINVAL
				      : 0);
	right = right && st->stray == stray_before + (!e && is_message);
	if (!right)
		fail_msg("%s: now %s, rc %d, sent %u (%s), events %u (%d), stray +%u", what,
			rpwi_cm_state_name[c->state], rc, nsent,
			nsent ? rpwi_cm_attr_name(sent[0].attr) : "-", nevent,
			nevent ? (int)event[0].ev.type : -1, (unsigned)(st->stray - stray_before));
}

static void every_state_with_everything(void **state)
{
	static const struct {
		enum rpwi_cm_state state;
		int side;
	} places[] = {
		{S(IDLE), ACTIVE},
		{S(REQ_SENT), ACTIVE},
		{S(REP_WAIT), ACTIVE},
		{S(REQ_RCVD), PASSIVE},
		{S(REP_SENT), PASSIVE},
		{S(RTU_WAIT), PASSIVE},
		{S(REP_RCVD), ACTIVE},
		{S(ESTABLISHED), ACTIVE},
		{S(ESTABLISHED), PASSIVE},
		{S(DREQ_SENT), ACTIVE},
		{S(DREQ_SENT), PASSIVE},
		{S(DREQ_RCVD), ACTIVE},
		{S(DREQ_RCVD), PASSIVE},
		{S(TIMEWAIT), ACTIVE},
		{S(TIMEWAIT), PASSIVE},
		{S(SIDR_REQ_SENT), ACTIVE},
		{S(SIDR_REQ_RCVD), PASSIVE},
	};
	for (size_t p = 0; p < RPWI_ARRAY_LEN(places); p++) {
		for (int input = RPWI_CM_REQ; input <= RPWI_CM_APR; input++)
			check_one(places[p].state, places[p].side, input);
		for (int input = IN_ACCEPT; input < INPUTS; input++)
			check_one(places[p].state, places[p].side, input);
	}
}

/* Each state but IDLE has a way out by itself, or waits for its program. */
static void every_wait_ends(void **state)
{
	static const struct {
		enum rpwi_cm_state state;
		bool passive;
		int event;
		enum rpwi_cm_state next;
		int last; /* message sent last */
	} cases[] = {
		{S(REQ_SENT), false, E(REQ_ERROR), S(IDLE), S(REJ)},
		{S(REP_WAIT), false, E(REQ_ERROR), S(IDLE), S(REJ)},
		{S(REP_SENT), true, E(REP_ERROR), S(TIMEWAIT), S(REJ)},
		{S(RTU_WAIT), true, E(REP_ERROR), S(TIMEWAIT), S(REJ)},
		{S(DREQ_SENT), false, E(DREQ_ERROR), S(TIMEWAIT), S(DREQ)},
		{S(DREQ_SENT), true, E(DREQ_ERROR), S(TIMEWAIT), S(DREQ)},
		{S(TIMEWAIT), false, E(TIMEWAIT_EXIT), S(IDLE), NO},
		{S(TIMEWAIT), true, E(TIMEWAIT_EXIT), S(IDLE), NO},
		{S(SIDR_REQ_SENT), false, E(SIDR_REQ_ERROR), S(IDLE), S(SIDR_REQ)},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		IN_CASE("row", i);
		again();
		struct rpwi_cm_conn *c = bring(cases[i].state, cases[i].passive);
		run_until(now + 300 * SECOND);
		assert_true(nevent >= 1);
		assert_int_equal(event[0].ev.type, cases[i].event);
		assert_int_equal(event[0].state, cases[i].next);
		/* Where TIMEWAIT follows, its end is told as well, and then nothing is left. */
		assert_int_equal(nevent, cases[i].next == RPWI_CM_TIMEWAIT ? 2 : 1);
		if (nevent == 2)
			assert_int_equal(event[1].ev.type, RPWI_CM_EV_TIMEWAIT_EXIT);
		assert_int_equal(c->state, RPWI_CM_IDLE);
		if (cases[i].last)
			assert_int_equal(sent[nsent - 1].attr, cases[i].last);
		else
			assert_int_equal(nsent, 0);
		assert_true(rpwi_cm_deadline(cm) == RPWI_NEVER);
	}
}

static void a_dreq_before_the_rtu_establishes_first(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_REP_SENT, true);
	rx_attr(c, RPWI_CM_DREQ);
	assert_int_equal(nevent, 2);
	assert_int_equal(event[0].ev.type, RPWI_CM_EV_ESTABLISHED);
	assert_int_equal(event[1].ev.type, RPWI_CM_EV_DREQ);
	again();
	bring(RPWI_CM_REP_SENT, true);
	struct rpwi_cm_msg dreq = within(passive, RPWI_CM_DREQ);
	destroy_in_event = true;
	rx(&dreq);
	assert_int_equal(nevent, 1);
	assert_int_equal(sent[0].attr, RPWI_CM_DREQ);
}

static void crossing_disconnects(void **state)
{
	for (int side = 0; side < 2; side++) {
		again();
		struct rpwi_cm_conn *c = bring(RPWI_CM_DREQ_SENT, side);
		struct rpwi_cm_msg dreq = within(c, RPWI_CM_DREQ);
		dreq.tid = 0x777;
		rx(&dreq);
		assert_int_equal(nevent, 1);
		assert_int_equal(event[0].ev.type, RPWI_CM_EV_DREP);
		assert_int_equal(sent[0].attr, RPWI_CM_DREP);
		assert_true(sent[0].tid == 0x777);
		rx_attr(c, RPWI_CM_DREP); /* the answer to ours: nothing more */
		rx(&dreq);                /* their DREQ again: the DREP was lost */
		assert_int_equal(nevent, 1);
		assert_int_equal(nsent, 2);
		assert_int_equal(sent[1].attr, RPWI_CM_DREP);
	}
}

static void a_callback_may_destroy(void **state)
{
	static const struct {
		enum rpwi_cm_state state;
		bool passive;
		int input; /* or 0: time */
	} cases[] = {
		{S(REQ_SENT), 0, S(REP)},
		{S(REQ_SENT), 0, S(REJ)},
		{S(REQ_SENT), 0, IN_GONE},
		{S(REQ_SENT), 0, 0},
		{S(REQ_RCVD), 1, S(REJ)},
		{S(REP_SENT), 1, S(RTU)},
		{S(REP_SENT), 1, IN_COMM_ESTABLISHED},
		{S(REP_SENT), 1, 0},
		{S(ESTABLISHED), 0, S(DREQ)},
		{S(ESTABLISHED), 1, S(DREQ)},
		{S(ESTABLISHED), 1, IN_GONE},
		{S(DREQ_SENT), 0, S(DREP)},
		{S(DREQ_SENT), 0, S(DREQ)},
		{S(DREQ_SENT), 1, 0},
		{S(TIMEWAIT), 0, 0},
		{S(SIDR_REQ_SENT), 0, S(SIDR_REP)},
		{S(SIDR_REQ_SENT), 0, 0},
		{S(REQ_SENT), 0, IN_REJ_STALE},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		IN_CASE("row", i);
		again();
		struct rpwi_cm_conn *c = bring(cases[i].state, cases[i].passive);
		destroy_in_event = true;
		if (cases[i].input)
			feed(c, cases[i].input);
		run_until(now + 200 * SECOND);
		assert_int_equal(nevent, 1);
		assert_true(rpwi_cm_deadline(cm) == RPWI_NEVER);
		rpwi_cm_conn_init(cm, &mine, &mine);
	}
}

static void a_callback_may_accept(void **state)
{
	reply_in_incoming = true;
	rx_attr(&mine, RPWI_CM_REQ);
	assert_int_equal(passive->state, RPWI_CM_REP_SENT);
	assert_int_equal(sent[0].attr, RPWI_CM_REP);
}

static void timewait_follows_the_ack_timeout(void **state)
{
	static const struct {
		uint8_t ack_timeout;
		uint64_t ns;
	} cases[] = {{0, 4 * SECOND}, {1, SECOND / 10}, {18, 4096ull << 18}, {31, 4 * SECOND}};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		IN_CASE("row", i);
		again();
		struct rpwi_cm_msg req = a_req(THEIR_ID, THEIR_QPN);
		req.req.primary.local_ack_timeout = cases[i].ack_timeout;
		rx(&req);
		rpwi_cm_accept(passive, our_guid, &our_param, NULL, 0, now);
		rx_attr(passive, RPWI_CM_RTU);
		rx_attr(passive, RPWI_CM_DREQ);
		rpwi_cm_disconnect(passive, now);
		assert_int_equal(passive->state, RPWI_CM_TIMEWAIT);
		assert_true(rpwi_cm_deadline(cm) == now + cases[i].ns);
	}
}

/* An IDLE connection may be used again, and nothing of the old peer is left in it. */
static void storage_may_be_used_again(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_TIMEWAIT, false);
	uint32_t old_id = c->local_id;
	run_until(now + 10 * SECOND);
	assert_int_equal(c->state, RPWI_CM_IDLE);
	assert_int_equal(connect_with(c, 0x31), 0);
	assert_int_not_equal(c->local_id, old_id);
	assert_int_equal(c->remote_id, 0);
	assert_int_equal(c->remote.qpn, 0);
	rx_attr(c, RPWI_CM_REP);
	assert_int_equal(c->state, RPWI_CM_REP_RCVD);
}

static void names(void **state)
{
	for (unsigned i = 0; i < RPWI_CM_STATE_COUNT; i++) {
		assert_non_null(rpwi_cm_state_name[i]);
		for (unsigned k = 0; k < i; k++)
			assert_string_not_equal(rpwi_cm_state_name[i], rpwi_cm_state_name[k]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_state_with_everything),
		TEST(every_wait_ends),
		TEST(a_dreq_before_the_rtu_establishes_first),
		TEST(crossing_disconnects),
		TEST(a_callback_may_destroy),
		TEST(a_callback_may_accept),
		TEST(timewait_follows_the_ack_timeout),
		TEST(storage_may_be_used_again),
		TEST(names),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
