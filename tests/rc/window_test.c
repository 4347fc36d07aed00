/* SPDX-License-Identifier: BSD-3-Clause */
/* Two QPs with one window: what one has in flight is in the other's way only while it counts. Side
 * 1's QP is put into side 0's window, so both of the pair share it. */
#include "rc/internal.h"
#include "wire_pair.h"

enum { CWND = 16, LEN = 8 };

static void pair_in_one_window(uint32_t cwnd)
{
	pair(CONFIG(.cwnd = cwnd));
	rpwi_window_move(&S[1].qp, &S[0].cc);
}

static void unpair_both(void)
{
	rpwi_qp_fini(&S[1].qp);
	unpair();
}

static void drop_all_of(int i)
{
	for (unsigned k = 0; k < wire_n;)
		if (wire[k].to == !i)
			take_off(k);
		else
			k++;
}

/* What each QP has in flight is counted once, or lent, or nowhere. */
static void the_sums_are_right(void)
{
	uint32_t counted = 0, lent = 0;
	for (int i = 0; i < 2; i++) {
		const struct rpwi_qp *q = &S[i].qp;
		uint32_t inflight = q->nxt - q->una;
		if (q->window & RPWI_WINDOW_SILENT)
			continue;
		if (q->window & RPWI_WINDOW_LENT)
			lent += inflight;
		else
			counted += inflight;
	}
	assert_int_equal(S[0].cc.inflight, counted);
	assert_int_equal(S[0].cc.lent, lent);
	assert_true(lent <= S[0].cc.lent_max);
}

/* Side 0 fills the window, and its packets are lost. */
static void fill_and_lose(void)
{
	assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 1, AT, 2 * CWND * MTU, RAT, SIG), 0);
	emit(0);
	assert_int_equal(S[0].cc.inflight, CWND);
	drop_all_of(0);
	the_sums_are_right();
}

static void a_short_message_goes_beside_a_full_window(void **state)
{
	pair_in_one_window(CWND);
	fill_and_lose();
	post(1, IBV_WR_RDMA_WRITE, 2, AT, LEN, RAT, SIG);
	assert_true(rpwi_qp_tx_ready(&S[1].qp, false, now));
	assert_int_equal(emit(1), 1);
	the_sums_are_right();
	assert_int_equal(S[0].cc.lent, 1);
	/* one at a time */
	post(1, IBV_WR_RDMA_WRITE, 3, AT, LEN, RAT, SIG);
	assert_true(rpwi_qp_blocked(&S[1].qp));
	assert_int_equal(emit(1), 0);
	flush_wire();
	emit(0);
	drop_all_of(0); /* nothing but the ACK goes to side 1, and that is not lost: */
	assert_int_equal(S[0].cc.inflight, CWND);
	unpair_both();
}

static void its_acknowledgement_gives_back_what_was_lent(void **state)
{
	pair_in_one_window(CWND);
	fill_and_lose();
	for (unsigned k = 0; k < 3; k++) {
		post(1, k ? IBV_WR_RDMA_READ : IBV_WR_SEND, 2 + k, AT, LEN, RAT, SIG);
		if (!k)
			post_recv(0, 9, RAT, LEN);
		assert_int_equal(emit(1), 1);
		assert_int_equal(S[0].cc.lent, 1);
		flush_wire();
		emit(0);
		flush_wire();
		assert_int_equal(S[0].cc.lent, 0);
		expect_wc(1, k, 2 + k, IBV_WC_SUCCESS, k ? IBV_WC_RDMA_READ : IBV_WC_SEND);
		the_sums_are_right();
	}
	unpair_both();
}

static void a_long_message_waits_until_the_other_is_silent(void **state)
{
	pair_in_one_window(CWND);
	fill_and_lose();
	post(1, IBV_WR_RDMA_WRITE, 2, AT, 2 * CWND * MTU, RAT, SIG);
	assert_int_equal(emit(1), 0);
	assert_true(rpwi_qp_blocked(&S[1].qp));
	uint64_t began = now;
	while (!(S[0].qp.window & RPWI_WINDOW_SILENT)) {
		assert_true(tick());
		the_sums_are_right();
		assert_true(now - began < 100 * RPWI_NS_PER_MS);
	}
	assert_int_equal(S[0].cc.inflight, 0);
	assert_int_equal(emit(1), CWND);
	/* and whoever is silent sends no more than a probe: it has too many under way */
	post(0, IBV_WR_RDMA_WRITE, 3, AT, LEN, RAT, SIG);
	assert_true(emit(0) <= 1);
	the_sums_are_right();
	unpair_both();
}

static void silence_is_short_where_the_process_answers_another(void **state)
{
	pair_in_one_window(CWND);
	fill_and_lose();
	uint64_t began = now;
	while (!(S[0].qp.window & RPWI_WINDOW_SILENT)) {
		post(1, IBV_WR_RDMA_WRITE, 2, AT, LEN, RAT, SIG);
		emit(1);
		now += 100000;
		rpwi_cpl_rx(&S[1].qp,
			&(struct rpwi_pkt){.opcode = RPWI_SVC_RC | RPWI_OP_ACK,
				.psn = (S[1].qp.nxt - 1) & RPWI_PSN_MASK,
				.syndrome = rpwi_aeth(RPWI_AETH_ACK, RPWI_AETH_CREDITS_NONE)},
			now);
		wire_n = 0;
		rpwi_qp_timer(&S[0].qp, now);
		S[1].nwc = 0;
		assert_true(now - began < 12 * RPWI_NS_PER_MS); /* no round trip is known */
	}
	unpair_both();
}

static void a_time_out_limits_its_own_qp_alone(void **state)
{
	pair_in_one_window(CWND);
	fill_and_lose();
	while (!S[0].qp.stats.timeouts)
		assert_true(tick());
	assert_int_equal(S[0].cc.cwnd, CWND);
	unsigned n = emit(0);
	assert_in_range(n, 1, RPWI_FEW_PKTS);
	the_sums_are_right();
	assert_int_equal(S[0].cc.inflight, 0);
	post(1, IBV_WR_RDMA_WRITE, 2, AT, CWND * MTU, RAT, SIG);
	assert_int_equal(emit(1), CWND);
	/* it is answered, grows, and counts again */
	for (int k = 0; k < 100 && S[0].nwc == 0; k++) {
		flush_wire();
		emit(0);
		emit(1);
		now += 1000;
		the_sums_are_right();
		assert_true(S[0].qp.nxt - S[0].qp.una <= CWND);
	}
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].qp.window, 0);
	unpair_both();
}

/* A QP that has heard nothing yet begins carefully only where another one waited in vain. */
static void a_turn_is_slow_only_after_a_silence(void **state)
{
	pair_in_one_window(CWND);
	rpwi_qp_turn_begins(&S[1].qp, 0);
	assert_false(S[1].qp.window & RPWI_WINDOW_SLOW);
	rpwi_window_silent(&S[0].qp, now);
	rpwi_qp_turn_begins(&S[1].qp, now + 1);
	assert_false(S[1].qp.window & RPWI_WINDOW_SLOW);
	rpwi_qp_turn_begins(&S[1].qp, 0);
	assert_true(S[1].qp.window & RPWI_WINDOW_SLOW);
	assert_int_equal(S[1].qp.slow_pkts, RPWI_FEW_PKTS);
	unpair_both();
}

static void who_yields_takes_nothing_but_what_is_lent(void **state)
{
	pair_in_one_window(CWND);
	rpwi_qp_yields(&S[0].qp, true);
	post(0, IBV_WR_RDMA_WRITE, 1, AT, LEN, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, LEN, RAT, SIG);
	assert_int_equal(emit(0), 1);
	assert_int_equal(S[0].cc.lent, 1);
	assert_true(rpwi_qp_blocked(&S[0].qp));
	rpwi_qp_yields(&S[0].qp, false);
	assert_int_equal(emit(0), 1);
	/* what it had been lent is of the window now */
	assert_int_equal(S[0].cc.lent, 0);
	assert_int_equal(S[0].cc.inflight, 2);
	settle();
	unpair_both();
}

/* Both post and lose at random, in a window of a few packets; the sums are right after each step,
 * and each way was gone. */
static void at_any_moment_the_sums_are_right(void **state)
{
	unsigned long lent = 0, silent = 0, slow = 0, blocked = 0, done = 0;
	FOR_SEEDS (s, 200) {
		struct rng *r = &s.rng;
		pair_in_one_window(4 + (uint32_t)rng_below(r, 20));
		for (unsigned step = 0; step < 300; step++) {
			int i = (int)rng_below(r, 2);
			uint32_t len = rng_below(r, 2) ? LEN : 1 + (uint32_t)rng_below(r, 6 * MTU);
			switch (rng_below(r, 6)) {
			case 0:
				post(i, rng_below(r, 3) ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
					step, AT, len, RAT, SIG);
				break;
			case 1:
				emit(i);
				break;
			case 2:
				rpwi_qp_yields(&S[i].qp, true);
				emit(i);
				blocked += rpwi_qp_blocked(&S[i].qp);
				rpwi_qp_yields(&S[i].qp, false);
				break;
			case 3:
				flush_wire();
				now += rng_below(r, 100000);
				break;
			case 4:
				if (!rng_below(r, 3))
					drop_all_of(i);
				break;
			default:
				if (!rng_below(r, 4))
					tick();
			}
			the_sums_are_right();
			lent += !!(S[i].qp.window & RPWI_WINDOW_LENT);
			silent += !!(S[i].qp.window & RPWI_WINDOW_SILENT);
			slow += !!(S[i].qp.window & RPWI_WINDOW_SLOW);
		}
		done += S[0].nwc + S[1].nwc;
		unpair_both();
	}
	assert_true(lent > 100 && silent > 100 && slow > 100 && blocked > 100 && done > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_short_message_goes_beside_a_full_window),
		cmocka_unit_test(its_acknowledgement_gives_back_what_was_lent),
		cmocka_unit_test(a_long_message_waits_until_the_other_is_silent),
		cmocka_unit_test(silence_is_short_where_the_process_answers_another),
		cmocka_unit_test(a_time_out_limits_its_own_qp_alone),
		cmocka_unit_test(a_turn_is_slow_only_after_a_silence),
		cmocka_unit_test(who_yields_takes_nothing_but_what_is_lent),
		cmocka_unit_test(at_any_moment_the_sums_are_right),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, wire_pair_setup, wire_pair_teardown);
}
