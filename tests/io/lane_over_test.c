/* SPDX-License-Identifier: BSD-3-Clause */
/* lane_over_test.c - the memory of a lane, whose reader is stopped: which WRITEs the writer may do,
 * when it may not, and what the reader finds when it goes on. */
#include <errno.h>

#include "lane_ring_pair.h"

enum { QP = 0x123456, OTHER = 0x123457, LEN = 300 };

static bool put(struct lane_writer *w, unsigned op, uint32_t dqpn, uint32_t psn)
{
	static uint8_t bytes[LEN];
	struct rpwi_pkt h = {.opcode = (uint8_t)(RPWI_SVC_RC | op),
		.dqpn = dqpn,
		.psn = psn,
		.payload_len = LEN};
	struct rpwi_txpkt t = {.payload_len = LEN, .iov_count = 1};
	const struct rpwi_iov part = {bytes, LEN};
	t.hdr_len = (uint16_t)rpwi_pkt_encode(&h, t.hdr);
	struct lane_way way = way_no(w, 0, 64, 0);
	return rpwi_lane_writer_packet(w, &way, &t, &part, NULL, 0);
}

/* One packet taken, in a turn of its own: its PSN, + PLACED where it was; -1: none. */
enum { PLACED = 1 << 24 };
static int take(struct ring *g)
{
	struct lane_packet p;
	rpwi_lane_reader_turns(&g->r, true);
	int rc = rpwi_lane_reader_next(&g->r, &p);
	if (rc > 0)
		rpwi_lane_reader_done(&g->r);
	rpwi_lane_reader_tell(&g->r);
	rpwi_lane_reader_turns(&g->r, false);
	assert_true(rc == 0 || rc == 1);
	return rc ? (int)rpwi_get_be24(p.data + 9) + (p.placed ? PLACED : 0) : -1;
}

/* The reader has taken one before, as take_over asks. */
static struct ring *begun(void **arg)
{
	struct ring *g = *arg;
	assert_true(put(&g->w, RPWI_OP_WRITE_ONLY, QP, 99));
	assert_int_equal(take(g), 99);
	return g;
}

static bool it_is(void *arg) { return true; }
static bool it_runs(void *arg) { return false; }
/* It goes on while it is looked at, takes what it finds, and is stopped again. */
static bool it_went_on(void *arg)
{
	assert_int_equal(take(arg), -1); /* what is being placed waits */
	return true;
}

static void writes_of_one_qp_are_placed(void **arg)
{
	struct ring *g = begun(arg);
	uint32_t from;
	assert_true(put(&g->w, RPWI_OP_WRITE_FIRST, QP, 100));
	assert_true(put(&g->w, RPWI_OP_SEND_ONLY, OTHER, 7));
	assert_true(put(&g->w, RPWI_OP_ACK, QP, 50)); /* an answer to its own requests */
	assert_true(put(&g->w, RPWI_OP_WRITE_LAST, QP, 101));
	assert_true(put(&g->w, RPWI_OP_WRITE_ONLY, QP, 102));
	assert_true(rpwi_lane_writer_take_over(&g->w, QP, 100, &from, it_is, NULL));
	assert_int_equal(from, 100);
	assert_true(rpwi_lane_is_over(g->mem));
	assert_int_equal(take(g), -1);
	rpwi_lane_writer_give_over(&g->w, QP, 102);
	assert_false(rpwi_lane_is_over(g->mem));
	static const int found[] = {100 + PLACED, 7, 50, 101 + PLACED, 102, -1};
	for (unsigned i = 0; i < sizeof(found) / sizeof(*found); i++) {
		IN_CASE("row", i);
		assert_int_equal(take(g), found[i]);
	}
}

static void it_begins_behind_what_was_taken(void **arg)
{
	struct ring *g = begun(arg);
	uint32_t from;
	for (uint32_t i = 0; i < 3; i++)
		assert_true(put(&g->w, RPWI_OP_WRITE_ONLY, QP, (0xffffff + i) & RPWI_PSN_MASK));
	assert_int_equal(take(g), 0xffffff);
	assert_true(rpwi_lane_writer_take_over(&g->w, QP, 0xffffff, &from, it_is, NULL));
	assert_int_equal(from, 0);
	rpwi_lane_writer_give_over(&g->w, QP, 2);
	assert_int_equal(take(g), 0 + PLACED);
	/* and what is placed is not placed again */
	assert_true(rpwi_lane_writer_take_over(&g->w, QP, 0, &from, it_is, NULL));
	assert_int_equal(from, LANE_NONE);
	rpwi_lane_writer_give_over(&g->w, QP, LANE_NONE);
	assert_int_equal(take(g), 1 + PLACED);
}

static void a_request_of_another_kind_ends_it(void **arg)
{
	static const unsigned ops[] = {RPWI_OP_SEND_ONLY, RPWI_OP_WRITE_ONLY_IMM, RPWI_OP_READ_REQ,
		RPWI_OP_FETCH_ADD, RPWI_OP_ATOMIC_WRITE};
	struct ring *g = begun(arg);
	uint32_t psn = 100, from;
	for (unsigned i = 0; i < sizeof(ops) / sizeof(*ops); i++, psn += 3) {
		IN_CASE("row", i);
		assert_true(put(&g->w, RPWI_OP_WRITE_ONLY, QP, psn));
		assert_true(put(&g->w, ops[i], QP, psn + 1));
		assert_true(put(&g->w, RPWI_OP_WRITE_ONLY, QP, psn + 2));
		assert_true(rpwi_lane_writer_take_over(&g->w, QP, psn, &from, it_is, NULL));
		assert_int_equal(from, psn);
		rpwi_lane_writer_give_over(&g->w, QP, psn + 3);
		assert_int_equal(take(g), (int)psn + PLACED);
		assert_int_equal(take(g), (int)psn + 1);
		assert_int_equal(take(g), (int)psn + 2);
	}
}

static void nothing_is_done_for_who_runs(void **arg)
{
	struct ring *g = begun(arg);
	uint32_t from;
	assert_true(put(&g->w, RPWI_OP_WRITE_ONLY, QP, 100));
	assert_false(rpwi_lane_writer_take_over(&g->w, QP, 100, &from, it_runs, NULL));
	assert_false(rpwi_lane_is_over(g->mem));
	/* stopped within a turn */
	rpwi_lane_reader_turns(&g->r, true);
	assert_false(rpwi_lane_writer_take_over(&g->w, QP, 100, &from, it_is, NULL));
	rpwi_lane_reader_turns(&g->r, false);
	/* a turn in between */
	assert_false(rpwi_lane_writer_take_over(&g->w, QP, 100, &from, it_went_on, g));
	assert_int_equal(take(g), 100);
}

static void not_before_it_has_taken_one(void **arg)
{
	struct ring *g = *arg;
	uint32_t from;
	assert_true(put(&g->w, RPWI_OP_WRITE_ONLY, QP, 100));
	assert_false(rpwi_lane_writer_take_over(&g->w, QP, 100, &from, it_is, NULL));
	assert_int_equal(take(g), 100);
}

static void not_through_a_capture(void **arg)
{
	struct ring *g = begun(arg);
	uint32_t from;
	assert_true(put(&g->w, RPWI_OP_WRITE_ONLY, QP, 100));
	struct lane_way way = way_no(&g->w, 0, 64, 0);
	assert_true(rpwi_lane_writer_datagram(&g->w, &way, "a whole datagram", 16));
	assert_false(rpwi_lane_writer_take_over(&g->w, QP, 100, &from, it_is, NULL));
	assert_int_equal(take(g), 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RING_TEST(writes_of_one_qp_are_placed),
		RING_TEST(it_begins_behind_what_was_taken),
		RING_TEST(a_request_of_another_kind_ends_it),
		RING_TEST(nothing_is_done_for_who_runs),
		RING_TEST(not_before_it_has_taken_one),
		RING_TEST(not_through_a_capture),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
