/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_states_test.c - every order in which two peers of rdma-server and rdma-client can notice
 * what happens.
 *
 * A model of both sides: what is posted arrives at once, but when it is noticed (its completion on
 * one side, the message on the other, ESTABLISHED on the side that accepts) is free within what the
 * transport guarantees: one queue's work requests complete in order, and messages arrive in order.
 * The search goes through all of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../learn/peer_states.h"

enum { ORDER_MAX = 8 };

struct side {
	bool established, left;
	enum send_state send;
	enum recv_state recv;
	enum posted posted;
	char order[ORDER_MAX + 1]; /* what it noticed: S a send's completion, R a message */
	int noticed;
};

struct world {
	struct side side[2]; /* 0 connects, 1 accepts */
};

static unsigned long paths;
static char seen[2][16][ORDER_MAX + 1];
static int seen_count[2];
static bool seen_before_established;

static void remember(int who, const char *order)
{
	for (int i = 0; i < seen_count[who]; i++)
		if (!strcmp(seen[who][i], order))
			return;
	assert_true(seen_count[who] < 16);
	strcpy(seen[who][seen_count[who]++], order);
}

/* Messages that the peer has posted: its MR, then its DONE. */
static int messages_sent(const struct side *s)
{
	return (s->posted >= POSTED_MR) + (s->posted >= POSTED_DONE);
}

static void act(struct side *s)
{
	if (!s->established)
		return;
	switch (peer_action(s->send, s->recv, s->posted)) {
	case ACTION_POST_MR:
		assert_int_equal(s->posted, POSTED_NOTHING);
		s->posted = POSTED_MR;
		break;
	case ACTION_POST_RDMA:
		assert_int_equal(s->posted, POSTED_MR);
		assert_int_not_equal(s->recv, RS_INIT);
		s->posted = POSTED_RDMA;
		break;
	case ACTION_POST_DONE:
		assert_int_equal(s->posted, POSTED_RDMA);
		s->posted = POSTED_DONE;
		break;
	case ACTION_DISCONNECT:
		assert_int_equal(s->send, SS_DONE_SENT);
		assert_int_equal(s->recv, RS_DONE_RECV);
		s->left = true;
		break;
	case ACTION_WAIT:
		assert_int_not_equal(peer_waits_for(s->send, s->recv, s->posted), WAIT_NOTHING);
		break;
	}
}

static void notice_send(struct side *s)
{
	s->send = send_state_next(s->send, (enum send_step)s->send);
	assert_int_not_equal(s->send, SS_ILLEGAL);
	s->order[s->noticed++] = 'S';
	act(s);
}

static void notice_message(struct side *s)
{
	s->recv = recv_state_next(s->recv, (enum recv_step)s->recv);
	assert_int_not_equal(s->recv, RS_ILLEGAL);
	s->order[s->noticed++] = 'R';
	act(s);
}

/* The peer has left, and this side looks: it takes what lies in its queue and judges. Its own last
 * completion may never come. */
static void check_judgement(struct world w, int who)
{
	struct side *s = &w.side[who];

	while (messages_sent(&w.side[!who]) > (int)s->recv)
		notice_message(s);
	assert_true(peer_may_leave(s->recv, s->posted));
	assert_true(flush_is_normal(ENDED_BY_PEER, peer_may_leave(s->recv, s->posted)));
}

static void explore(struct world w)
{
	bool stuck = true;

	for (int who = 0; who < 2; who++) {
		const struct side *s = &w.side[who], *peer = &w.side[!who];
		struct world next = w;

		if (peer->left)
			check_judgement(w, who);
		if (!s->established) {
			next.side[who].established = true;
			act(&next.side[who]);
			explore(next);
			stuck = false;
		}
		next = w;
		if ((int)s->posted > (int)s->send) {
			notice_send(&next.side[who]);
			explore(next);
			stuck = false;
		}
		next = w;
		if (messages_sent(peer) > (int)s->recv) {
			seen_before_established |= !s->established;
			notice_message(&next.side[who]);
			explore(next);
			stuck = false;
		}
	}
	if (!stuck)
		return;
	paths++;
	for (int who = 0; who < 2; who++) {
		assert_true(w.side[who].left); /* no order ends in waiting for ever */
		remember(who, w.side[who].order);
	}
}

static bool was_seen(int who, const char *order)
{
	for (int i = 0; i < seen_count[who]; i++)
		if (!strcmp(seen[who][i], order))
			return true;
	return false;
}

static void every_order_ends_well(void **state)
{
	/* All orders of three completions and two messages in which the peer's MR comes before our
	 * RDMA operation completes. */
	static const char *const orders[] = {
		"RRSSS", "RSRSS", "RSSRS", "RSSSR", "SRRSS", "SRSRS", "SRSSR"};
	struct world w = {0};

	w.side[0].established = true; /* the side that connects learns it before the other */
	act(&w.side[0]);
	explore(w);
	print_message("# %lu orders of both sides together\n", paths);
	assert_true(paths > 100);
	assert_true(seen_before_established);
	for (int who = 0; who < 2; who++) {
		for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
			assert_true(was_seen(who, orders[i]));
		assert_int_equal(seen_count[who], sizeof(orders) / sizeof(orders[0]));
	}
}

/* The one that deadlocks programs with a single state: the peer's DONE is polled before one's own
 * MR send completes. */
static void done_before_the_own_mr_completes(void **state)
{
	enum recv_state recv =
		recv_state_next(recv_state_next(RS_INIT, RECEIVED_MR), RECEIVED_DONE);
	enum send_state send = SS_INIT;

	assert_int_equal(recv, RS_DONE_RECV);
	assert_int_equal(peer_action(send, recv, POSTED_MR), ACTION_WAIT);
	assert_int_equal(peer_waits_for(send, recv, POSTED_MR), WAIT_OWN_MR);
	send = send_state_next(send, SENT_MR);
	assert_int_equal(peer_action(send, recv, POSTED_MR), ACTION_POST_RDMA);
	send = send_state_next(send, SENT_RDMA);
	assert_int_equal(peer_action(send, recv, POSTED_RDMA), ACTION_POST_DONE);
	send = send_state_next(send, SENT_DONE);
	assert_int_equal(peer_action(send, recv, POSTED_DONE), ACTION_DISCONNECT);
}

static void every_other_step_is_illegal(void **state)
{
	for (int s = SS_INIT; s <= SS_DONE_SENT; s++)
		for (int step = SENT_MR; step <= SENT_DONE + 1; step++)
			assert_int_equal(send_state_next((enum send_state)s, (enum send_step)step),
				s == step && s < SS_DONE_SENT ? s + 1 : SS_ILLEGAL);
	for (int r = RS_INIT; r <= RS_DONE_RECV; r++)
		for (int step = RECEIVED_MR; step <= RECEIVED_DONE + 1; step++) /* that of a text */
			assert_int_equal(recv_state_next((enum recv_state)r, (enum recv_step)step),
				r == step && r < RS_DONE_RECV ? r + 1 : RS_ILLEGAL);
	assert_int_equal(send_state_next(SS_INIT, (enum send_step)77), SS_ILLEGAL);
	assert_int_equal(recv_state_next(RS_INIT, (enum recv_step)77), RS_ILLEGAL);
	assert_int_equal(send_state_next(SS_ILLEGAL, SENT_MR), SS_ILLEGAL);
	assert_int_equal(recv_state_next(RS_ILLEGAL, RECEIVED_MR), RS_ILLEGAL);
}

static void the_peer_may_leave_only_when_it_has_our_done(void **state)
{
	for (int r = RS_INIT; r <= RS_DONE_RECV; r++)
		for (int p = POSTED_NOTHING; p <= POSTED_DONE; p++)
			assert_int_equal(peer_may_leave((enum recv_state)r, (enum posted)p),
				r == RS_DONE_RECV && p == POSTED_DONE);
}

static void flushed_is_normal_after_an_end_that_was_due(void **state)
{
	assert_true(flush_is_normal(ENDED_BY_US, false));
	assert_true(flush_is_normal(ENDED_BY_US, true));
	assert_true(flush_is_normal(ENDED_BY_PEER, true));
	assert_false(flush_is_normal(ENDED_BY_PEER, false));
	for (int might = 0; might < 2; might++) {
		assert_false(flush_is_normal(ENDED_NOT, might));
		assert_false(flush_is_normal(ENDED_BY_ERROR, might));
	}
}

static void states_have_their_names(void **state)
{
	assert_string_equal(send_state_name(SS_INIT), "SS_INIT");
	assert_string_equal(send_state_name(SS_DONE_SENT), "SS_DONE_SENT");
	assert_string_equal(send_state_name(SS_ILLEGAL), "SS_ILLEGAL");
	assert_string_equal(recv_state_name(RS_MR_RECV), "RS_MR_RECV");
	assert_string_equal(recv_state_name(RS_ILLEGAL), "RS_ILLEGAL");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_order_ends_well),
		cmocka_unit_test(done_before_the_own_mr_completes),
		cmocka_unit_test(every_other_step_is_illegal),
		cmocka_unit_test(the_peer_may_leave_only_when_it_has_our_done),
		cmocka_unit_test(flushed_is_normal_after_an_end_that_was_due),
		cmocka_unit_test(states_have_their_names),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
