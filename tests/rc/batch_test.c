/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes by datagrams: as many packets of one length as a GSO send takes, without regard to
 * where a message ends. */
#include "wire_pair.h"

#include "rc/internal.h"

enum { WHOLE = 62 }; /* packets of MTU bytes in a datagram */

/* One batch of side 0, onto the wire. */
static unsigned batch(bool may_split)
{
	rpwi_txb_reset(txb);
	txb->by_datagrams = true;
	txb->may_split = may_split;
	rpwi_qp_tx(&S[0].qp, txb, false, now);
	for (unsigned k = 0; k < txb->npkt; k++)
		put_on_wire(1, txb, k);
	return txb->npkt;
}

/* All of a WRITE, in batches. How many of its packets were WRITE ONLY. */
static unsigned write_all(uint64_t id, uint32_t roff, uint32_t len)
{
	unsigned only = 0;

	assert_int_equal(post(0, IBV_WR_RDMA_WRITE, id, AT, len, roff, SIG), 0);
	while (rpwi_qp_tx_ready(&S[0].qp, false, now)) {
		batch(true);
		for (unsigned k = 0; k < txb->npkt; k++)
			only += (txb->pkt[k].hdr[0] & 0x1f) == RPWI_OP_WRITE_ONLY;
	}
	return only;
}

static void a_batch_fills_datagrams_and_begins_where_a_message_ended(void **state)
{
	pair(CONFIG(.cwnd = 300, .recv_wr = 64));
	for (uint64_t id = 0; id < 10; id++) {
		post_recv(1, id, RAT, 40 * MTU);
		assert_int_equal(post(0, IBV_WR_SEND, id, AT, 40 * MTU, 0, SIG), 0);
	}
	for (int k = 0; k < 4; k++)
		assert_int_equal(batch(false), WHOLE);
	/* 52 are left of the window, which is less than a datagram: they wait for an answer */
	assert_false(rpwi_qp_tx_ready(&S[0].qp, false, now));
	assert_true(rpwi_qp_blocked(&S[0].qp));
	settle();
	assert_int_equal(S[0].nwc, 10);
	assert_int_equal(S[1].nwc, 10);
	unpair();
}

static void a_window_smaller_than_a_datagram_is_used_up(void **state)
{
	pair(CONFIG(.cwnd = 20));
	assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 1, AT, 40 * MTU, RAT, SIG), 0);
	assert_int_equal(batch(false), 20);
	settle();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	same(AT, RAT, 40 * MTU);
	unpair();
}

/* Somebody is always asked for an answer, so no timer has to help. */
static void no_window_stalls(void **state)
{
	for (unsigned path_mtu = IBV_MTU_256; path_mtu <= IBV_MTU_4096; path_mtu++)
		for (uint32_t cwnd = 1; cwnd < 160; cwnd++) {
			pair(CONFIG(.cwnd = cwnd));
			S[0].qp.attr.path_mtu = path_mtu; /* how many fill a datagram */
			assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 1, AT, 200 * MTU, RAT, SIG), 0);
			for (unsigned moved = 1; moved;) {
				moved = rpwi_qp_tx_ready(&S[0].qp, false, now) ? batch(true) : 0;
				flush_wire();
				moved += emit(1);
				flush_wire();
			}
			assert_int_equal(S[0].nwc, 1);
			unpair();
		}
}

static void writes_are_split_where_the_peer_has_taken_one(void **state)
{
	pair(CONFIG(.cwnd = 256));
	assert_int_equal(write_all(1, RAT, 20 * MTU), 0); /* nothing is known yet */
	assert_int_equal(write_all(2, RAT, 20 * MTU), 0); /* nor before its answer */
	settle();
	fill(&S[0], 5);
	assert_int_equal(write_all(3, RAT, 20 * MTU), 20);
	settle();
	same(AT, RAT, 20 * MTU);
	assert_int_equal(write_all(4, RAT + 4 * MTU, 20 * MTU), 0); /* farther than it was seen */
	settle();
	fill(&S[0], 6);
	assert_int_equal(write_all(5, RAT, 24 * MTU - 3), 24); /* both together */
	settle();
	same(AT, RAT, 24 * MTU - 3);
	assert_int_equal(write_all(6, RAT - 1, 4 * MTU), 0);
	settle();
	/* another place, and the first is forgotten */
	assert_int_equal(write_all(7, RAT + 100 * MTU, 4 * MTU), 0);
	settle();
	assert_int_equal(write_all(8, RAT, 20 * MTU), 0);
	settle();
	assert_int_equal(S[0].nwc, 8);
	for (unsigned k = 0; k < 8; k++)
		expect_wc(0, k, k + 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	unpair();
}

static void what_the_peer_gets_of_a_split_write_is_of_one_length(void **state)
{
	pair(CONFIG(.cwnd = 256));
	write_all(1, RAT, 20 * MTU);
	settle();
	for (uint64_t id = 2; id < 5; id++)
		assert_int_equal(post(0, IBV_WR_RDMA_WRITE, id, AT, 20 * MTU, RAT, SIG), 0);
	assert_int_equal(batch(true), 60);
	for (unsigned k = 0; k < 60; k++) {
		struct rpwi_pkt p = decoded(&wire[k]);
		assert_int_equal(txb->pkt[k].hdr_len, txb->pkt[0].hdr_len);
		assert_int_equal(p.dma_len, MTU);
		assert_int_equal(p.va, (uintptr_t)S[1].mem + RAT + k % 20 * MTU);
		assert_int_equal(p.rkey, KEY);
		assert_int_equal(p.ackreq, k % 20 == 15 || k % 20 == 19);
	}
	settle();
	unpair();
}

/* Most headers are copies of the one before: all are as if made alone. */
static void each_header_is_as_if_made_alone(void **state)
{
	enum { MESSAGES = 400, MOST = 30 };
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM};
	struct rng rng = {11};

	pair(CONFIG(.cwnd = 256, .recv_wr = 64));
	write_all(0, RAT, MOST * MTU);
	settle();
	for (uint64_t id = 1; id <= MESSAGES; id++) {
		enum ibv_wr_opcode op = ops[rng_next(&rng) % RPWI_ARRAY_LEN(ops)];
		const struct rpwi_wr_info *info = &rpwi_wr_info[op];
		uint32_t len = (uint32_t)(MTU * (1 + rng_next(&rng) % MOST)), psn = S[0].qp.nxt;
		unsigned solicited = rng_next(&rng) % 2 ? IBV_SEND_SOLICITED : 0;

		if (rng_next(&rng) % 2)
			len -= (uint32_t)(rng_next(&rng) % MTU);
		if (op != IBV_WR_RDMA_WRITE)
			post_recv(1, id, RAT, MOST * MTU);
		assert_int_equal(post(0, op, id, AT, len, RAT, SIG | solicited), 0);
		unsigned n = batch(true);
		bool split = op == IBV_WR_RDMA_WRITE || n == 1;

		assert_int_equal(n, (len + MTU - 1) / MTU);
		for (unsigned k = 0; k < n; k++) {
			struct rpwi_pkt p = decoded(&wire[k]);
			uint32_t here = RPWI_MIN(len - k * MTU, (uint32_t)MTU);
			unsigned whole = k + 1 == n ? info->last : info->middle;
			uint8_t hdr[RPWI_HDR_MAX];
			const struct rpwi_pkt want = {
				.opcode = split ? info->only : (uint8_t)(k ? whole : info->first),
				.pkey = RPWI_PKEY_DEFAULT,
				.dqpn = S[1].qp.qpn,
				.psn = (psn + k) & RPWI_PSN_MASK,
				.ackreq = p.ackreq,
				.solicited = k + 1 == n && solicited,
				.va = (uintptr_t)S[1].mem + RAT + (split ? k * MTU : 0),
				.rkey = KEY,
				.dma_len = split ? here : len,
				.imm_be = p.imm_be,
				.payload_len = here,
				.pad = (uint8_t)(-here & 3)};

			assert_int_equal(txb->pkt[k].hdr_len, rpwi_pkt_encode(&want, hdr));
			assert_memory_equal(txb->pkt[k].hdr, hdr, txb->pkt[k].hdr_len);
		}
		settle();
	}
	unpair();
}

/* With an immediate the peer's completion tells the length of all of it. */
static void others_are_never_split(void **state)
{
	pair(CONFIG(.cwnd = 256));
	write_all(1, RAT, 20 * MTU);
	settle();
	post_recv(1, 2, RAT, 0);
	assert_int_equal(post(0, IBV_WR_RDMA_WRITE_WITH_IMM, 2, AT, 20 * MTU, RAT, SIG), 0);
	assert_int_equal(batch(true), 20);
	assert_int_equal(decoded(&wire[0]).opcode & 0x1f, RPWI_OP_WRITE_FIRST);
	settle();
	assert_int_equal(S[1].wc[0].byte_len, 20 * MTU);
	/* nor for a peer that gets its packets one by one */
	assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 3, AT, 20 * MTU, RAT, SIG), 0);
	batch(false);
	assert_int_equal(decoded(&wire[0]).opcode & 0x1f, RPWI_OP_WRITE_FIRST);
	settle();
	unpair();
}

static void a_split_write_is_sent_again_as_it_was(void **state)
{
	for (uint32_t lost = 0; lost < 20; lost++) {
		pair(CONFIG(.cwnd = 256));
		write_all(1, RAT, 20 * MTU);
		settle();
		fill(&S[0], lost);
		doom(RPWI_OP_WRITE_ONLY, psn_of(PSN0, 20 + lost), 1);
		assert_int_equal(write_all(2, RAT, 20 * MTU), 20);
		settle_timed();
		assert_int_equal(victims, 0);
		expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		same(AT, RAT, 20 * MTU);
		unpair();
	}
}

static void a_write_out_of_bounds_writes_nothing_split_or_not(void **state)
{
	static uint8_t before[MEM];

	pair(CONFIG(.cwnd = 256));
	write_all(1, MEM - 20 * MTU, 20 * MTU);
	settle();
	fill(&S[0], 9);
	memcpy(before, S[1].mem, MEM);
	assert_int_equal(write_all(2, MEM - 10 * MTU, 20 * MTU), 0);
	settle();
	expect_wc(0, 1, 2, IBV_WC_REM_ACCESS_ERR, 0);
	assert_memory_equal(before, S[1].mem, MEM);
	unpair();
	/* the key is taken back in between */
	pair(CONFIG(.cwnd = 256));
	write_all(1, RAT, 20 * MTU);
	settle();
	fill(&S[0], 10);
	memcpy(before, S[1].mem, MEM);
	S[1].key_access = IBV_ACCESS_REMOTE_READ;
	assert_int_equal(write_all(2, RAT, 20 * MTU), 20);
	settle();
	expect_wc(0, 1, 2, IBV_WC_REM_ACCESS_ERR, 0);
	assert_memory_equal(before, S[1].mem, MEM);
	unpair();
}

static void as_many_reads_are_asked_for_as_are_answered_at_once(void **state)
{
	pair(CONFIG(.cwnd = 150, .rd = 16));
	for (uint64_t id = 0; id < 16; id++)
		assert_int_equal(post(0, IBV_WR_RDMA_READ, id, AT, 16 * MTU, RAT, SIG), 0);
	assert_int_equal(batch(false), 9); /* 144 of the window */
	assert_false(rpwi_qp_tx_ready(&S[0].qp, false, now));
	/* the first two are answered: that is no reason to ask for two more */
	flush_wire();
	emit(1);
	for (unsigned k = 0; k < 32; k++)
		deliver(&wire[k]);
	assert_false(rpwi_qp_tx_ready(&S[0].qp, false, now));
	for (unsigned k = 32; k < 64; k++)
		deliver(&wire[k]);
	assert_true(rpwi_qp_tx_ready(&S[0].qp, false, now));
	for (unsigned k = 64; k < wire_n; k++)
		deliver(&wire[k]);
	wire_n = 0;
	settle();
	assert_int_equal(S[0].nwc, 16);
	same(AT, RAT, 16 * MTU);
	unpair();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_batch_fills_datagrams_and_begins_where_a_message_ended),
		cmocka_unit_test(a_window_smaller_than_a_datagram_is_used_up),
		cmocka_unit_test(no_window_stalls),
		cmocka_unit_test(writes_are_split_where_the_peer_has_taken_one),
		cmocka_unit_test(what_the_peer_gets_of_a_split_write_is_of_one_length),
		cmocka_unit_test(each_header_is_as_if_made_alone),
		cmocka_unit_test(others_are_never_split),
		cmocka_unit_test(a_split_write_is_sent_again_as_it_was),
		cmocka_unit_test(a_write_out_of_bounds_writes_nothing_split_or_not),
		cmocka_unit_test(as_many_reads_are_asked_for_as_are_answered_at_once),
	};
	return cmocka_run_group_tests(tests, wire_pair_setup, wire_pair_teardown);
}
