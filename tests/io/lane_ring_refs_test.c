/* SPDX-License-Identifier: BSD-3-Clause */
/* lane_ring_refs_test.c - the memory of a lane, what goes by reference: it arrives whole or was
 * revoked, packets of one message share a slot, and what cannot be fetched is lost alone. */
#include <errno.h>

#include "lane_ring_pair.h"

/* What the writer's process has, and whether it can be read. */
static struct {
	uint8_t bytes[1 << 20];
	uint64_t gone_from, gone_to;
	unsigned calls, packets;
} far;

/* Places of the reader's process for some of the runs, with gaps, and not always for all of one. */
static struct {
	uint8_t bytes[2 * LANE_PULL_BYTES];
	uint32_t end;
	bool wanted;
	unsigned taken;
} near;

static void *near_place(void *arg, bool first, const struct lane_headers *h)
{
	uint32_t len = h->len * (1 + h->more);
	assert_ptr_equal(arg, &near);
	assert_int_equal(h->hdr_len, 12 + 16);
	assert_int_equal(h->more, 0);
	if (first) {
		near.wanted = chance(3);
		near.end = 0;
	}
	if (!near.wanted || !chance(50))
		return NULL;
	uint32_t at = near.end + chance(64);
	near.end = at + len;
	near.taken++;
	return near.bytes + at;
}

static bool far_pull(
	void *arg, const struct lane_span *to, const struct lane_span *from, unsigned n)
{
	assert_ptr_equal(arg, &far);
	far.calls++;
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(to[i].len, from[i].len);
		uint64_t at = from[i].addr - (uint64_t)(uintptr_t)far.bytes;
		if (at > sizeof(far.bytes) || from[i].len > sizeof(far.bytes) - at ||
			(at < far.gone_to && far.gone_from < at + from[i].len))
			return false;
		memcpy((void *)(uintptr_t)to[i].addr, far.bytes + at, from[i].len);
	}
	far.packets += n;
	return true;
}

static void far_begins(struct ring *g)
{
	memset(&far, 0, sizeof(far));
	for (uint32_t i = 0; i < sizeof(far.bytes); i++)
		far.bytes[i] = pattern_byte(7, i);
	g->r.pull = far_pull;
	g->r.pull_arg = &far;
	g->r.place = near_place;
	g->r.place_arg = &near;
	g->w.refs = true;
}

static uint32_t far_at(uint64_t number)
{
	return (uint32_t)(number * 40503u % (sizeof(far.bytes) - RPWI_MTU_MAX));
}
enum { QPS = 5 };
static bool refer(struct lane_writer *w, uint64_t number)
{
	uint32_t len = len_of(number) ? len_of(number) : 1;
	struct rpwi_txpkt t = {
		.hdr_len = 12 + 16, .payload_len = len, .iov_count = 1, .stays = true};
	const struct rpwi_iov part = {far.bytes + far_at(number), len};
	t.hdr[7] = (uint8_t)(number % QPS);
	memcpy(t.hdr + 12, &number, sizeof(number));
	struct lane_way way = way_no(w, 0, 1, 2);
	return rpwi_lane_writer_reference(w, &way, &t, &part);
}

/* Copied and referred to in turn; the QP of each fifth reference fails while it is under way, and
 * its memory changes. `revoked`: the numbers up to which those of a QP must not come any more,
 * unless they were fetched before. */
static void what_is_referred_to_arrives_or_was_revoked(void **arg)
{
	struct ring *g = *arg;
	struct lane_packet p;
	static uint8_t kind[1 << 19]; /* 1 copied, 2 referred to, 3 revoked */
	uint64_t written = 0, read = 0, lost = 0, late = 0;
	far_begins(g);
	while (read < 200000) {
		for (unsigned n = chance(100); n; n--) {
			bool ref = chance(3);
			if (!(ref ? refer(&g->w, written) : write_packet(&g->w, written)))
				break;
			kind[written++] = ref ? 2 : 1;
		}
		rpwi_lane_writer_publish(&g->w);
		if (!chance(4)) {
			uint32_t qp = chance(QPS);
			rpwi_lane_writer_revoke_qp(&g->w, qp);
			for (uint64_t i = read; i < written; i++)
				kind[i] = kind[i] == 2 && i % QPS == qp ? 3 : kind[i];
		}
		for (unsigned n = chance(100); n && read < written; n--, read++) {
			bool before = rpwi_lane_reader_fetched(&g->r);
			int rc = rpwi_lane_reader_next(&g->r, &p);
			rpwi_lane_reader_done(&g->r);
			if (rc == -ENODATA) {
				assert_int_equal(kind[read], 3);
				lost++;
				continue;
			}
			assert_int_equal(rc, 1);
			if (kind[read] == 1) {
				assert_true(is_packet(&p, read));
				continue;
			}
			assert_true(kind[read] == 2 || before);
			late += kind[read] == 3;
			assert_memory_equal(p.data + 12, &read, sizeof(read));
			assert_memory_equal(p.payload, far.bytes + far_at(read), p.len);
		}
		rpwi_lane_reader_tell(&g->r);
	}
	assert_true(lost > 1000 && far.packets > 2 * far.calls);
	assert_true(near.taken > 1000);
	print_message("# %u fetched in %u calls, %llu revoked, %llu fetched before\n", far.packets,
		far.calls, (unsigned long long)lost, (unsigned long long)late);
	free(g->r.bounce);
}

/* A packet of a message with 1 KiB packets: opcode, PSN, where its payload is. */
static bool refer_at(
	struct lane_writer *w, uint8_t opcode, uint32_t psn, bool ack, uint64_t at, uint32_t len)
{
	const struct rpwi_pkt h = {.opcode = opcode,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = 0x123456,
		.psn = psn & RPWI_PSN_MASK,
		.ackreq = ack,
		.va = 0x1000,
		.rkey = 5,
		.dma_len = 1 << 20};
	struct rpwi_txpkt t = {.payload_len = len, .iov_count = 1, .stays = true};
	const struct rpwi_iov part = {far.bytes + at, len};
	t.hdr_len = (uint16_t)rpwi_pkt_encode(&h, t.hdr);
	struct lane_way way = way_no(w, 0, 1, 2);
	return rpwi_lane_writer_reference(w, &way, &t, &part);
}

/* The next slot has so many; each of them is what refer_at was given; does the last want an ACK? */
static void expect_shared(
	struct ring *g, uint8_t opcode, uint32_t psn, uint64_t at, unsigned n, bool ack)
{
	struct lane_packet p, one;
	struct rpwi_pkt got;
	assert_int_equal(rpwi_lane_reader_next(&g->r, &p), 1);
	assert_int_equal(p.more + 1, n);
	for (unsigned i = 0; i < n; i++) {
		one = p;
		rpwi_lane_packet_nth(&one, i);
		assert_int_equal(
			rpwi_pkt_decode_parts(one.data, one.hdr_len, one.payload, one.len, &got),
			0);
		assert_int_equal(got.psn, (psn + i) & RPWI_PSN_MASK);
		assert_int_equal(got.dqpn, 0x123456);
		assert_int_equal(got.ackreq, ack && i + 1 == n);
		assert_int_equal(
			got.opcode, i && opcode == RPWI_OP_WRITE_FIRST  ? RPWI_OP_WRITE_MIDDLE
				    : i && opcode == RPWI_OP_SEND_FIRST ? RPWI_OP_SEND_MIDDLE
									: opcode);
		assert_memory_equal(one.payload, far.bytes + at + i * 1024, one.len);
	}
	rpwi_lane_reader_done(&g->r);
}

static void packets_of_one_message_share_a_slot(void **arg)
{
	struct ring *g = *arg;
	struct lane_writer *w = &g->w;
	const uint32_t psn = RPWI_PSN_MASK - 3; /* it wraps */
	far_begins(g);
	g->r.place = NULL;
	assert_true(refer_at(w, RPWI_OP_WRITE_FIRST, psn, false, 0, 1024));
	for (unsigned i = 1; i < 70; i++) /* one that is fetched has 64 KiB at most */
		assert_true(refer_at(w, RPWI_OP_WRITE_MIDDLE, psn + i, false, i * 1024, 1024));
	assert_true(refer_at(w, RPWI_OP_WRITE_LAST, psn + 70, true, 70 * 1024, 1024));
	/* the next message, behind it in memory; another place; a gap of PSNs; after an ACK;
	 * another length */
	assert_true(refer_at(w, RPWI_OP_SEND_FIRST, 7, false, 71 * 1024, 1024));
	assert_true(refer_at(w, RPWI_OP_SEND_MIDDLE, 8, false, 72 * 1024, 1024));
	assert_true(refer_at(w, RPWI_OP_SEND_MIDDLE, 9, false, 80 * 1024, 1024));
	assert_true(refer_at(w, RPWI_OP_SEND_MIDDLE, 11, false, 81 * 1024, 1024));
	assert_true(refer_at(w, RPWI_OP_SEND_MIDDLE, 12, true, 82 * 1024, 1024));
	assert_true(refer_at(w, RPWI_OP_SEND_MIDDLE, 13, false, 83 * 1024, 1024));
	assert_true(refer_at(w, RPWI_OP_SEND_MIDDLE, 14, false, 84 * 1024, 1000));
	/* messages of one packet each */
	assert_true(refer_at(w, RPWI_OP_SEND_ONLY, 20, false, 0, 1024));
	assert_true(refer_at(w, RPWI_OP_SEND_ONLY, 21, false, 1024, 1024));
	/* seen already */
	assert_true(refer_at(w, RPWI_OP_SEND_FIRST, 30, false, 0, 1024));
	rpwi_lane_writer_publish(w);
	assert_true(refer_at(w, RPWI_OP_SEND_MIDDLE, 31, false, 1024, 1024));
	rpwi_lane_writer_publish(w);
	expect_shared(g, RPWI_OP_WRITE_FIRST, psn, 0, 64, false);
	expect_shared(g, RPWI_OP_WRITE_MIDDLE, psn + 64, 64 * 1024, 6, false);
	expect_shared(g, RPWI_OP_WRITE_LAST, psn + 70, 70 * 1024, 1, true);
	expect_shared(g, RPWI_OP_SEND_FIRST, 7, 71 * 1024, 2, false);
	expect_shared(g, RPWI_OP_SEND_MIDDLE, 9, 80 * 1024, 1, false);
	expect_shared(g, RPWI_OP_SEND_MIDDLE, 11, 81 * 1024, 2, true);
	expect_shared(g, RPWI_OP_SEND_MIDDLE, 13, 83 * 1024, 1, false);
	expect_shared(g, RPWI_OP_SEND_MIDDLE, 14, 84 * 1024, 1, false);
	expect_shared(g, RPWI_OP_SEND_ONLY, 20, 0, 1, false);
	expect_shared(g, RPWI_OP_SEND_ONLY, 21, 1024, 1, false);
	expect_shared(g, RPWI_OP_SEND_FIRST, 30, 0, 1, false);
	expect_shared(g, RPWI_OP_SEND_MIDDLE, 31, 1024, 1, false);
	free(g->r.bounce);
}

/* Any byte of what a slot refers to that goes back to the program takes all of it along. */
static void a_shared_slot_is_revoked_as_a_whole(void **arg)
{
	struct ring *g = *arg;
	struct lane_packet p;
	far_begins(g);
	g->r.place = NULL;
	assert_true(refer_at(&g->w, RPWI_OP_SEND_FIRST, 0, false, 0, 1024));
	for (unsigned i = 1; i < 10; i++)
		assert_true(refer_at(&g->w, RPWI_OP_SEND_MIDDLE, i, false, i * 1024, 1024));
	rpwi_lane_writer_publish(&g->w);
	rpwi_lane_writer_revoke_memory(&g->w, (uint64_t)(uintptr_t)far.bytes + 10 * 1024 - 1, 1);
	assert_int_equal(rpwi_lane_reader_next(&g->r, &p), -ENODATA);
	rpwi_lane_reader_done(&g->r);
	assert_int_equal(rpwi_lane_reader_next(&g->r, &p), 0);
	free(g->r.bounce);
}

static void a_slot_that_has_too_many_is_refused(void **arg)
{
	struct ring *g = *arg;
	struct lane_packet p;
	const uint32_t more[] = {64, 65, 1 << 22, INT32_MAX, UINT32_MAX - 1, UINT32_MAX};
	far_begins(g);
	g->r.place = NULL;
	assert_true(refer_at(&g->w, RPWI_OP_SEND_FIRST, 0, false, 0, 1024));
	rpwi_lane_writer_publish(&g->w);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(more); i++) {
		IN_CASE("row", i);
		g->mem->slot[0].bulk = more[i];
		assert_int_equal(rpwi_lane_reader_next(&g->r, &p), -EPROTO);
	}
	assert_int_equal(far.calls, 0);
	g->mem->slot[0].bulk = 63;
	assert_int_equal(rpwi_lane_reader_next(&g->r, &p), 1);
	assert_int_equal(p.more, 63);
	g->mem->slot[0].bulk = 62; /* changed since */
	assert_int_equal(rpwi_lane_reader_next(&g->r, &p), -EPROTO);
	free(g->r.bounce);
}

static void what_cannot_be_fetched_takes_no_other_along(void **arg)
{
	struct ring *g = *arg;
	struct lane_packet p;
	struct rpwi_txb *b = calloc(1, sizeof(*b));
	far_begins(g);
	for (b->npkt = 0; b->npkt < 20; b->npkt++)
		b->pkt[b->npkt] = (struct rpwi_txpkt){.payload_len = 1024, .stays = true};
	g->w.choice = LANE_FETCHED;
	assert_true(rpwi_lane_writer_may_refer(&g->w, b));
	for (uint64_t n = 0; n < 20; n++)
		assert_true(refer(&g->w, n));
	assert_false(rpwi_lane_reader_ready(&g->r)); /* all at once */
	rpwi_lane_writer_publish(&g->w);
	far.gone_from = far_at(7);
	far.gone_to = far.gone_from + 1;
	for (uint64_t n = 0; n < 20; n++) {
		uint32_t at = far_at(n), len = len_of(n) ? len_of(n) : 1;
		bool gone = at < far.gone_to && far.gone_from < at + len;
		assert_int_equal(rpwi_lane_reader_next(&g->r, &p), gone ? -ENODATA : 1);
		rpwi_lane_reader_done(&g->r);
	}
	assert_false(rpwi_lane_writer_may_refer(&g->w, b)); /* from now on it copies */
	/* and memory that is deregistered, by any byte of it */
	far.gone_to = 0;
	assert_true(refer(&g->w, 20) && refer(&g->w, 21));
	rpwi_lane_writer_publish(&g->w);
	rpwi_lane_writer_revoke_memory(&g->w, (uint64_t)(uintptr_t)far.bytes + far_at(20), 1);
	assert_int_equal(rpwi_lane_reader_next(&g->r, &p), -ENODATA);
	rpwi_lane_reader_done(&g->r);
	assert_int_equal(rpwi_lane_reader_next(&g->r, &p), 1);
	free(g->r.bounce);
	free(b);
}

static void a_reference_that_nobody_asked_for_is_refused(void **arg)
{
	struct ring *g = *arg;
	struct lane_packet p;
	far_begins(g);
	g->r.pull = NULL;
	assert_true(refer(&g->w, 0));
	rpwi_lane_writer_publish(&g->w);
	assert_int_equal(rpwi_lane_reader_next(&g->r, &p), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RING_TEST(what_is_referred_to_arrives_or_was_revoked),
		RING_TEST(packets_of_one_message_share_a_slot),
		RING_TEST(a_shared_slot_is_revoked_as_a_whole),
		RING_TEST(a_slot_that_has_too_many_is_refused),
		RING_TEST(what_cannot_be_fetched_takes_no_other_along),
		RING_TEST(a_reference_that_nobody_asked_for_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
