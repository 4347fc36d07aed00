/* SPDX-License-Identifier: BSD-3-Clause */
/* What comes in: acknowledgements, receivers that are not ready, what is refused and why, what is
 * replayed. */
#include "wire_pair.h"

static void one_ack_covers_a_batch_and_can_be_held(void **state)
{
	pair(CONFIG());
	for (int k = 0; k < 5; k++)
		post(0, IBV_WR_RDMA_WRITE, (uint64_t)k, AT, 10, RAT, SIG);
	assert_int_equal(emit(0), 5);
	flush_wire();
	assert_true(rpwi_qp_ack_owed(&S[1].qp));
	assert_false(rpwi_qp_tx_ready(&S[1].qp, true, now));
	assert_int_equal(emit_held(1, true), 0);
	/* with a request, it goes along, before it */
	post(1, IBV_WR_RDMA_WRITE, 9, AT, 10, RAT, SIG);
	assert_int_equal(emit_held(1, true), 2);
	assert_int_equal(rpwi_pkt_op(&(struct rpwi_pkt){.opcode = wire[0].raw[0]}), RPWI_OP_ACK);
	assert_int_equal(txb->ack, 1);
	settle();
	assert_int_equal(S[0].nwc, 5);
	/* held no longer than its time */
	post(0, IBV_WR_RDMA_WRITE, 6, AT, 10, RAT, SIG);
	emit(0);
	flush_wire();
	assert_int_equal(emit_held(1, true), 0);
	now += 20000;
	assert_int_equal(emit_held(1, true), 1);
	settle();
	assert_int_equal(S[0].nwc, 6);
	unpair();
}

static void ack_comes_after_the_responses_before_it(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_READ, 1, AT, 3 * MTU, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	emit(0);
	flush_wire();
	assert_int_equal(emit(1), 4);
	assert_int_equal(decoded(&wire[0]).opcode, RPWI_OP_READ_RESP_FIRST);
	assert_int_equal(decoded(&wire[1]).opcode, RPWI_OP_READ_RESP_MIDDLE);
	assert_int_equal(decoded(&wire[2]).opcode, RPWI_OP_READ_RESP_LAST);
	assert_int_equal(decoded(&wire[3]).opcode, RPWI_OP_ACK);
	settle();
	assert_int_equal(S[0].nwc, 2);
	/* and a response acknowledges what was before it: no ACK of its own */
	post(0, IBV_WR_RDMA_WRITE, 3, AT, 10, RAT, SIG);
	post(0, IBV_WR_RDMA_READ, 4, AT, 10, RAT, SIG);
	emit(0);
	flush_wire();
	assert_int_equal(emit(1), 1);
	settle();
	assert_int_equal(S[0].nwc, 4);
	unpair();
}

static void a_lost_ack_makes_no_message_arrive_twice(void **state)
{
	pair(CONFIG());
	post_recv(1, 100, RAT, 4096);
	post_recv(1, 101, RAT + 4096, 4096);
	doom(RPWI_OP_ACK, UINT32_MAX, 2);
	post(0, IBV_WR_SEND, 1, AT, 3000, 0, SIG);
	settle_timed();
	assert_int_equal(S[0].nwc, 1);
	assert_int_equal(S[1].nwc, 1);
	assert_true(S[1].qp.stats.rx_duplicate > 0);
	same(AT, RAT, 3000);
	unpair();
}

static void an_atomic_whose_response_was_lost_is_not_done_twice(void **state)
{
	pair(CONFIG());
	uint64_t *remote = (uint64_t *)(S[1].mem + RAT), *local = (uint64_t *)(S[0].mem + AT);
	*remote = 100;
	doom(RPWI_OP_ATOMIC_ACK, UINT32_MAX, 3);
	post_atomic(0, false, 1, AT, RAT, 1, 0);
	post_atomic(0, false, 2, AT + 8, RAT, 1, 0);
	settle_timed();
	assert_int_equal(S[0].nwc, 2);
	assert_int_equal(*remote, 102);
	assert_int_equal(local[0], 100);
	assert_int_equal(local[1], 101);
	unpair();
}

static void a_send_waits_for_a_receive(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_SEND, 1, AT, 3 * MTU, 0, SIG);
	post(0, IBV_WR_SEND, 2, AT, 5, 0, SIG);
	settle();
	assert_int_equal(S[0].nwc, 0);
	assert_int_equal(S[1].qp.stats.rnr_nak_tx, 1);
	assert_int_equal(S[1].qp.stats.seq_nak_tx, 0);
	assert_int_equal(S[0].cc.inflight, 0);
	uint64_t wait = rpwi_qp_deadline(&S[0].qp) - now;
	assert_in_range(wait, 600000, 640000); /* code 12: 0.64 ms, less what has passed */
	post_recv(1, 100, RAT, 4096);
	post_recv(1, 101, RAT + 8192, 4096);
	settle_timed();
	assert_int_equal(S[0].nwc, 2);
	assert_int_equal(S[1].nwc, 2);
	same(AT, RAT, 3 * MTU);
	unpair();
}

static void a_write_with_immediate_waits_at_its_last_packet(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_WRITE_WITH_IMM, 1, AT, 3 * MTU, RAT, SIG);
	settle();
	assert_int_equal(S[0].nwc, 0);
	assert_int_equal(S[1].qp.stats.rnr_nak_tx, 1);
	post_recv(1, 100, 0, 0);
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_wc(1, 0, 100, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(S[1].wc[0].byte_len, 3 * MTU);
	same(AT, RAT, 3 * MTU);
	unpair();
}

static void expect_refused(enum ibv_wc_status status, int remote_event)
{
	settle_timed();
	assert_int_equal(S[0].qp.state, IBV_QPS_ERR);
	assert_int_equal(S[1].qp.state, IBV_QPS_ERR);
	expect_wc(0, 0, 1, status, 0);
	expect_wc(0, 1, 2, IBV_WC_WR_FLUSH_ERR, 0);
	if (remote_event >= 0)
		assert_int_equal(S[1].event[S[1].nevent - 1], remote_event);
	else
		for (unsigned k = 0; k < S[1].nevent; k++)
			assert_true(S[1].event[k] != IBV_EVENT_QP_ACCESS_ERR &&
				    S[1].event[k] != IBV_EVENT_QP_REQ_ERR);
	unpair();
}

static void bad_remote_memory_is_an_access_error(void **state)
{
	static const enum ibv_wr_opcode op[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
	for (int k = 0; k < 2; k++) {
		pair(CONFIG());
		uint8_t *before = malloc(MEM);
		memcpy(before, S[1].mem, MEM);
		/* the region does not allow it */
		S[1].key_access &= ~(k ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);
		post(0, op[k], 1, AT, 5000, RAT, SIG);
		post(0, op[k], 2, AT, 10, RAT, SIG);
		expect_refused(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
		pair(CONFIG());
		post(0, op[k], 1, AT, 5000, MEM - 4999, SIG); /* one byte too far */
		post(0, op[k], 2, AT, 10, RAT, SIG);
		expect_refused(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
		assert_memory_equal(before, S[1].mem, MEM);
		pair(CONFIG(.access = IBV_ACCESS_REMOTE_ATOMIC)); /* the QP does not allow it */
		post(0, op[k], 1, AT, 5000, RAT, SIG);
		post(0, op[k], 2, AT, 10, RAT, SIG);
		expect_refused(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
		assert_memory_equal(before, S[1].mem, MEM);
		free(before);
	}
}

static void a_refusal_comes_after_the_responses_before_it(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_READ, 7, AT, 20 * MTU, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, MEM - 5, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	settle_timed();
	expect_wc(0, 0, 7, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	expect_wc(0, 1, 1, IBV_WC_REM_ACCESS_ERR, 0);
	expect_wc(0, 2, 2, IBV_WC_WR_FLUSH_ERR, 0);
	unpair();
}

static void unmapped_remote_memory_is_an_access_error(void **state)
{
	pair(CONFIG());
	S[1].hole_at = (uintptr_t)S[1].mem + RAT + 9000;
	S[1].hole_len = 1;
	post(0, IBV_WR_RDMA_READ, 1, AT, 20 * MTU, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	expect_refused(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	same(AT, RAT, 8 * MTU); /* what came before the hole */
	pair(CONFIG());
	S[1].hole_at = (uintptr_t)S[1].mem + RAT + 9000;
	S[1].hole_len = 1;
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 20 * MTU, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	expect_refused(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

static void a_receive_that_is_too_small_fails_on_both_sides(void **state)
{
	pair(CONFIG());
	post_recv(1, 100, RAT, 2 * MTU + 9);
	post_recv(1, 101, RAT, 4096);
	post(0, IBV_WR_SEND, 1, AT, 2 * MTU + 10, 0, SIG);
	post(0, IBV_WR_SEND, 2, AT, 1, 0, SIG);
	settle_timed();
	assert_int_equal(S[1].nwc, 2);
	expect_wc(1, 0, 100, IBV_WC_LOC_LEN_ERR, 0);
	expect_wc(1, 1, 101, IBV_WC_WR_FLUSH_ERR, 0);
	expect_refused(IBV_WC_REM_INV_REQ_ERR, -1);
}

static void a_receive_with_a_bad_key_is_a_remote_operation_error(void **state)
{
	pair(CONFIG());
	post_recv_key(1, 100, RAT, 4096, KEY_BAD);
	post(0, IBV_WR_SEND, 1, AT, 10, 0, SIG);
	post(0, IBV_WR_SEND, 2, AT, 1, 0, SIG);
	settle_timed();
	expect_wc(1, 0, 100, IBV_WC_LOC_PROT_ERR, 0);
	expect_refused(IBV_WC_REM_OP_ERR, -1);
}

static void invalid_requests_are_refused(void **state)
{
	uint8_t data[2 * MTU];
	memset(data, 0x5a, sizeof(data));
	struct {
		const char *what;
		struct rpwi_pkt p[2];
		unsigned n;
	} bad[] = {
		{"MIDDLE first", {forged(RPWI_OP_WRITE_MIDDLE, PSN0, data, MTU)}, 1},
		{"SEND in a WRITE",
			{forged(RPWI_OP_WRITE_FIRST, PSN0, data, MTU),
				forged(RPWI_OP_SEND_LAST, psn_of(PSN0, 1), data, 10)},
			2},
		{"FIRST in a WRITE",
			{forged(RPWI_OP_WRITE_FIRST, PSN0, data, MTU),
				forged(RPWI_OP_WRITE_FIRST, psn_of(PSN0, 1), data, MTU)},
			2},
		{"READ in a WRITE",
			{forged(RPWI_OP_WRITE_FIRST, PSN0, data, MTU),
				forged(RPWI_OP_READ_REQ, psn_of(PSN0, 1), NULL, 0)},
			2},
		{"short FIRST", {forged(RPWI_OP_WRITE_FIRST, PSN0, data, MTU - 4)}, 1},
		{"long ONLY", {forged(RPWI_OP_WRITE_ONLY, PSN0, data, MTU + 4)}, 1},
		{"empty LAST",
			{forged(RPWI_OP_WRITE_FIRST, PSN0, data, MTU),
				forged(RPWI_OP_WRITE_LAST, psn_of(PSN0, 1), data, 0)},
			2},
		{"more than the RETH",
			{forged(RPWI_OP_WRITE_FIRST, PSN0, data, MTU),
				forged(RPWI_OP_WRITE_LAST, psn_of(PSN0, 1), data, 101)},
			2},
		{"less than the RETH",
			{forged(RPWI_OP_WRITE_FIRST, PSN0, data, MTU),
				forged(RPWI_OP_WRITE_LAST, psn_of(PSN0, 1), data, 99)},
			2},
		{"ONLY that is not all", {forged(RPWI_OP_WRITE_ONLY, PSN0, data, 64)}, 1},
		{"READ of too much", {forged(RPWI_OP_READ_REQ, PSN0, NULL, 0)}, 1},
	};
	for (unsigned k = 0; k < RPWI_ARRAY_LEN(bad); k++) {
		IN_CASE("row", k);
		pair(CONFIG());
		bool multi = bad[k].n == 2;
		bad[k].p[0].dma_len = multi || rpwi_pkt_op(&bad[k].p[0]) == RPWI_OP_WRITE_FIRST
					      ? MTU + 100
					      : bad[k].p[0].dma_len;
		if (!strcmp(bad[k].what, "ONLY that is not all"))
			bad[k].p[0].dma_len = 65;
		if (!strcmp(bad[k].what, "READ of too much"))
			bad[k].p[0].dma_len = (1u << 31) + 1;
		for (unsigned n = 0; n < bad[k].n; n++)
			rx(1, &bad[k].p[n]);
		if (S[1].qp.state != IBV_QPS_ERR)
			fail_msg("accepted: %s", bad[k].what);
		assert_int_equal(S[1].event[S[1].nevent - 1], IBV_EVENT_QP_REQ_ERR);
		assert_int_equal(emit(1), 1);
		struct rpwi_pkt nak = decoded(&wire[0]);
		assert_int_equal(nak.syndrome, 0x61);
		assert_int_equal(nak.psn, bad[k].p[bad[k].n - 1].psn);
		wire_n = 0;
		unpair();
	}
}

/* Packets first..first+more of those on the wire, as one. */
static struct rpwi_pkt as_one(uint8_t *bytes, unsigned first, unsigned more)
{
	struct rpwi_pkt p = decoded(&wire[first]);
	for (unsigned k = 0; k <= more; k++) {
		struct rpwi_pkt each = decoded(&wire[first + k]);
		uint8_t bth[RPWI_BTH_LEN];
		memcpy(bth, wire[first].raw, sizeof(bth));
		rpwi_pkt_follow(bth, k);
		rpwi_pkt_ask_ack(bth, each.ackreq);
		p.ackreq |= each.ackreq;
		assert_memory_equal(bth, wire[first + k].raw, sizeof(bth));
		assert_int_equal(each.payload_len, MTU);
		memcpy(bytes + k * MTU, each.payload, MTU);
	}
	assert_true(rpwi_opcode_may_have_more(p.opcode));
	p.payload = bytes;
	p.more = (uint16_t)more;
	p.payload_len = MTU * (1 + more);
	return p;
}

/* PSNs wrap in the middle of it. A receive in two pieces. */
static void packets_of_one_message_are_taken_as_one(void **state)
{
	static uint8_t bytes[64 * MTU];
	const uint32_t len = 60 * MTU + 10;
	for (unsigned write = 0; write < 2; write++)
		for (unsigned begin = 0; begin < 3; begin++) {
			pair(CONFIG(.cwnd = 128));
			struct ibv_sge parts[2] = {{(uintptr_t)S[1].mem + RAT, 5 * MTU + 3, KEY},
				{(uintptr_t)S[1].mem + RAT + 5 * MTU + 3, len, KEY}};
			const struct ibv_recv_wr wr = {.wr_id = 7, .sg_list = parts, .num_sge = 2};
			assert_int_equal(rpwi_rq_post(&S[1].rq, &wr), 0);
			rpwi_qp_recv_posted(&S[1].qp);
			post(0, write ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND, 1, AT, len,
				write ? RAT : 0, SIG);
			assert_int_equal(emit(0), 61);
			for (unsigned k = 0; k < begin; k++)
				deliver(&wire[k]);
			struct rpwi_pkt p = as_one(bytes, begin, 59 - begin);
			assert_true(rpwi_qp_takes_more(&S[1].qp, &p));
			rx(1, &p);
			assert_false(rpwi_qp_takes_more(&S[1].qp, &p)); /* as it was taken */
			deliver(&wire[60]);
			wire_n = 0;
			assert_int_equal(S[1].qp.stats.rx_packets, 61);
			assert_int_equal(S[1].qp.stats.rx_bytes, len);
			settle();
			assert_int_equal(S[0].nwc, 1);
			assert_int_equal(S[0].wc[0].status, IBV_WC_SUCCESS);
			assert_int_equal(S[1].nwc, 1);
			assert_int_equal(S[1].wc[0].byte_len, len);
			assert_int_equal(S[1].qp.stats.rx_out_of_order, 0);
			same(AT, RAT, len);
			/* and on: the sides agree about PSNs and messages */
			post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
			settle();
			assert_int_equal(S[0].nwc, 2);
			unpair();
		}
}

static void packets_as_one_of_another_length_are_refused(void **state)
{
	static uint8_t bytes[64 * MTU];
	for (int off = -1; off <= 1; off += 2) {
		pair(CONFIG());
		post(0, IBV_WR_RDMA_WRITE, 1, AT, 6 * MTU, RAT, SIG);
		assert_int_equal(emit(0), 6);
		struct rpwi_pkt p = as_one(bytes, 0, 4);
		p.payload_len += (uint32_t)off;
		rx(1, &p);
		assert_int_equal(S[1].qp.state, IBV_QPS_ERR);
		assert_int_equal(S[1].qp.stats.rx_bad_length, 1);
		wire_n = 0;
		unpair();
	}
	/* more than the RETH says */
	pair(CONFIG());
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 6 * MTU, RAT, SIG);
	assert_int_equal(emit(0), 6);
	struct rpwi_pkt p = as_one(bytes, 0, 4);
	p.dma_len = 5 * MTU;
	rx(1, &p);
	assert_int_equal(S[1].qp.state, IBV_QPS_ERR);
	wire_n = 0;
	unpair();
}

static void what_may_have_more_is_in_the_middle_of_a_message(void **state)
{
	for (unsigned opcode = 0; opcode < 256; opcode++)
		assert_int_equal(rpwi_opcode_may_have_more((uint8_t)opcode),
			opcode == RPWI_OP_SEND_FIRST || opcode == RPWI_OP_SEND_MIDDLE ||
				opcode == RPWI_OP_WRITE_FIRST || opcode == RPWI_OP_WRITE_MIDDLE);
}

static void more_reads_than_agreed_are_refused(void **state)
{
	for (uint32_t rd = 1; rd <= 5; rd++) {
		pair(CONFIG(.rd = rd));
		for (uint32_t k = 0; k <= rd; k++) {
			assert_int_equal(S[1].qp.state, IBV_QPS_RTS);
			struct rpwi_pkt p = forged(RPWI_OP_READ_REQ, psn_of(PSN0, k), NULL, 0);
			p.dma_len = 8;
			rx(1, &p);
		}
		assert_int_equal(S[1].qp.state, IBV_QPS_ERR);
		assert_int_equal(emit(1), rd + 1);
		assert_int_equal(decoded(&wire[rd]).syndrome, 0x61);
		wire_n = 0;
		unpair();
	}
	pair(CONFIG(.rd = 0));
	post(0, IBV_WR_RDMA_READ, 1, AT, 10, RAT, SIG);
	settle();
	expect_wc(0, 0, 1, IBV_WC_LOC_QP_OP_ERR, 0);
	unpair();
}

/* The requester has its answer, and the program has taken the key back since. */
static void a_late_copy_of_a_read_whose_key_is_gone_is_dropped(void **state)
{
	for (int taken_before_the_answer = 0; taken_before_the_answer < 2;
		taken_before_the_answer++) {
		static struct wpkt copy;
		pair(CONFIG());
		assert_int_equal(post(0, IBV_WR_RDMA_READ, 1, AT, 2 * MTU, RAT, SIG), 0);
		assert_int_equal(emit(0), 1);
		copy = wire[0];
		settle();
		expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
		if (taken_before_the_answer)
			deliver(&copy);
		S[1].key_access = 0;
		if (!taken_before_the_answer)
			deliver(&copy);
		assert_int_equal(emit(1), 0);
		assert_int_equal(S[1].qp.state, IBV_QPS_RTS);
		assert_int_equal(S[1].nevent, 0);
		/* and the next one, which is wanted, is refused */
		assert_int_equal(post(0, IBV_WR_RDMA_READ, 2, AT, 2 * MTU, RAT, SIG), 0);
		settle();
		expect_wc(0, 1, 2, IBV_WC_REM_ACCESS_ERR, IBV_WC_RDMA_READ);
		unpair();
	}
}

static void a_replay_must_ask_for_the_same_bytes(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_READ, 1, AT, 4 * MTU, RAT, SIG);
	settle();
	struct rpwi_pkt p = forged(RPWI_OP_READ_REQ, psn_of(PSN0, 1), NULL, 0);
	p.va += MTU;
	p.dma_len = 2 * MTU;
	rx(1, &p);
	assert_int_equal(emit(1), 2);
	assert_int_equal(decoded(&wire[0]).opcode, RPWI_OP_READ_RESP_FIRST);
	assert_int_equal(decoded(&wire[0]).psn, psn_of(PSN0, 1));
	assert_int_equal(decoded(&wire[1]).opcode, RPWI_OP_READ_RESP_LAST);
	assert_memory_equal(decoded(&wire[0]).payload, S[1].mem + RAT + MTU, MTU);
	wire_n = 0;
	p.va += 1;
	rx(1, &p);
	assert_int_equal(emit(1), 0);
	p.va -= 1;
	p.dma_len = 3 * MTU + 1;
	rx(1, &p);
	assert_int_equal(emit(1), 0);
	assert_int_equal(S[1].qp.state, IBV_QPS_RTS);
	unpair();
}

/* ---- ATOMIC WRITE ---- */

static int atomic_write(uint64_t id, uint32_t off, uint32_t len, uint32_t roff)
{
	return post(0, (enum ibv_wr_opcode)RPWI_WR_ATOMIC_WRITE, id, off, len, roff, SIG);
}

static void an_atomic_write_is_answered_like_a_read_of_nothing(void **state)
{
	pair(CONFIG(.rd = 2));
	for (uint32_t k = 0; k < 5; k++)
		assert_int_equal(atomic_write(k, AT + 8 * k, 8, RAT + 64 * k), 0);
	assert_int_equal(emit(0), 2); /* no more than may be outstanding */
	assert_int_equal(decoded(&wire[0]).opcode, RPWI_OP_ATOMIC_WRITE);
	assert_int_equal(decoded(&wire[0]).dma_len, 8);
	assert_int_equal(decoded(&wire[0]).payload_len, 8);
	flush_wire();
	assert_int_equal(emit(1), 2);
	assert_int_equal(decoded(&wire[0]).opcode, RPWI_OP_READ_RESP_ONLY);
	assert_int_equal(decoded(&wire[0]).payload_len, 0);
	settle();
	assert_int_equal(S[0].nwc, 5);
	assert_int_equal(S[1].atomic_writes, 5);
	for (unsigned k = 0; k < 5; k++) {
		expect_wc(0, k, k, IBV_WC_SUCCESS, (enum ibv_wc_opcode)RPWI_WC_ATOMIC_WRITE);
		same(AT + 8 * k, RAT + 64 * k, 8);
	}
	unpair();
}

static void an_atomic_write_whose_answer_was_lost_is_not_done_twice(void **state)
{
	pair(CONFIG());
	doom(RPWI_OP_READ_RESP_ONLY, UINT32_MAX, 3);
	atomic_write(1, AT, 8, RAT);
	post(0, IBV_WR_RDMA_WRITE, 2, AT + 64, 8, RAT, SIG); /* of the same place, after it */
	post(0, IBV_WR_RDMA_READ, 3, AT + 128, 8, RAT, SIG);
	settle_timed();
	assert_int_equal(S[0].nwc, 3);
	assert_int_equal(S[1].atomic_writes, 1);
	same(AT + 64, RAT, 8);
	same(AT + 128, RAT, 8);
	unpair();
}

static void only_eight_bytes_are_an_atomic_write(void **state)
{
	pair(CONFIG());
	assert_int_equal(atomic_write(1, AT, 7, RAT), -EINVAL);
	assert_int_equal(atomic_write(1, AT, 16, RAT), -EINVAL);
	assert_int_equal(atomic_write(1, AT, 0, RAT), -EINVAL);
	unpair();
	pair(CONFIG(.type = IBV_QPT_UC));
	assert_int_equal(atomic_write(1, AT, 8, RAT), -EINVAL);
	unpair();
}

static unsigned answers, naks;
static int count_answers(const struct wpkt *w, const struct rpwi_pkt *p)
{
	if (!w->to && rpwi_pkt_op(p) == RPWI_OP_ACK) {
		answers++;
		naks += rpwi_aeth_kind(p->syndrome) != RPWI_AETH_ACK;
	}
	return 0;
}

/* IB 9.9.6.3, class J. The message before it is acknowledged; of it itself nothing is said. */
static void a_send_that_invalidates_no_window_is_not_answered(void **state)
{
	pair(CONFIG());
	fate = count_answers;
	answers = naks = 0;
	S[1].inv_rc = -EACCES;
	post_recv(1, 100, RAT, 64);
	post_recv(1, 101, RAT + 64, 64);
	post_recv(1, 102, RAT + 128, 64);
	assert_int_equal(post(0, IBV_WR_SEND, 1, AT, 64, 0, SIG), 0);
	assert_int_equal(post(0, IBV_WR_SEND_WITH_INV, 2, AT + 64, 64, 0, SIG), 0);
	settle();
	assert_int_equal(S[1].inv_key, 0x7002);
	assert_int_equal(answers, 1);
	assert_int_equal(naks, 0);
	assert_int_equal(S[1].qp.state, IBV_QPS_ERR);
	assert_int_equal(S[1].nevent, 0);
	expect_wc(1, 0, 100, IBV_WC_SUCCESS, IBV_WC_RECV);
	expect_wc(1, 1, 101, IBV_WC_LOC_QP_OP_ERR, IBV_WC_RECV);
	expect_wc(1, 2, 102, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
	assert_memory_equal(S[0].mem + AT, S[1].mem + RAT, 64);
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
	assert_int_equal(S[0].nwc, 1);
	settle_timed();
	expect_wc(0, 1, 2, IBV_WC_RETRY_EXC_ERR, IBV_WC_SEND);
	assert_int_equal(naks, 0);
	fate = NULL;
	unpair();
}

static void an_atomic_write_without_the_right_or_misaligned_is_refused(void **state)
{
	pair(CONFIG());
	uint8_t *before = malloc(MEM);
	memcpy(before, S[1].mem, MEM);
	atomic_write(1, AT, 8, RAT + 4);
	atomic_write(2, AT, 8, RAT);
	expect_refused(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	pair(CONFIG(.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
	atomic_write(1, AT, 8, RAT);
	atomic_write(2, AT, 8, RAT);
	expect_refused(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	pair(CONFIG());
	S[1].key_access &= ~IBV_ACCESS_REMOTE_WRITE;
	atomic_write(1, AT, 8, RAT);
	atomic_write(2, AT, 8, RAT);
	expect_refused(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
	assert_memory_equal(before, S[1].mem, MEM);
	free(before);
}

/* A RETH that says another length than the payload has, and one that asks a peer without
 * resources. */
static void a_forged_atomic_write_is_refused(void **state)
{
	uint8_t data[16] = {0};
	for (int k = 0; k < 3; k++) {
		pair(CONFIG());
		struct rpwi_pkt p = forged(RPWI_OP_ATOMIC_WRITE, PSN0, data,
			k == 1   ? 16
			: k == 2 ? 0
				 : 8);
		p.va = (uintptr_t)S[1].mem + RAT;
		p.rkey = KEY;
		p.dma_len = k ? 8 : 4;
		rx(1, &p);
		assert_int_equal(S[1].qp.state, IBV_QPS_ERR);
		assert_int_equal(S[1].qp.stats.nak_tx[RPWI_NAK_INV_REQ], 0);
		emit(1);
		assert_int_equal(S[1].qp.stats.nak_tx[RPWI_NAK_INV_REQ], 1);
		assert_int_equal(S[1].atomic_writes, 0);
		unpair();
	}
}

static void an_atomic_write_answered_as_something_else_fails(void **state)
{
	pair(CONFIG());
	atomic_write(1, AT, 8, RAT);
	emit(0);
	struct rpwi_pkt p = {.opcode = RPWI_SVC_RC | RPWI_OP_ATOMIC_ACK,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = QPN0,
		.psn = PSN0,
		.syndrome = 0x1f};
	rx(0, &p);
	expect_wc(0, 0, 1, IBV_WC_BAD_RESP_ERR, 0);
	unpair();
}

/* The requester's device has it, so it asks. */
static void what_the_device_has_less_is_refused(void **state)
{
	uint64_t *remote;
	pair(CONFIG());
	remote = (uint64_t *)(S[1].mem + RAT);
	*remote = 100;
	S[1].qp.bounds.opcodes = ~(1u << IBV_WR_ATOMIC_FETCH_AND_ADD);
	post_atomic(0, false, 1, AT, RAT, 1, 0);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	expect_refused(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	assert_int_equal(*remote, 100);
	unpair();
	pair(CONFIG());
	S[1].qp.bounds.opcodes = ~(1u << RPWI_WR_ATOMIC_WRITE);
	post(0, (enum ibv_wr_opcode)RPWI_WR_ATOMIC_WRITE, 1, AT, 8, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	expect_refused(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
	assert_int_equal(S[1].atomic_writes, 0);
	unpair();
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
	static const enum ibv_wc_opcode done[] = {IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ};
	for (unsigned k = 0; k < 2; k++) {
		pair(CONFIG());
		S[1].qp.bounds.message = 5000;
		post(0, ops[k], 0, AT, 5000, RAT, SIG);
		settle();
		expect_wc(0, 0, 0, IBV_WC_SUCCESS, done[k]);
		S[0].nwc = 0;
		post(0, ops[k], 1, AT, 5001, RAT, SIG);
		post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
		expect_refused(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
		unpair();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_ack_covers_a_batch_and_can_be_held),
		cmocka_unit_test(ack_comes_after_the_responses_before_it),
		cmocka_unit_test(a_lost_ack_makes_no_message_arrive_twice),
		cmocka_unit_test(an_atomic_whose_response_was_lost_is_not_done_twice),
		cmocka_unit_test(a_send_waits_for_a_receive),
		cmocka_unit_test(a_write_with_immediate_waits_at_its_last_packet),
		cmocka_unit_test(bad_remote_memory_is_an_access_error),
		cmocka_unit_test(a_refusal_comes_after_the_responses_before_it),
		cmocka_unit_test(unmapped_remote_memory_is_an_access_error),
		cmocka_unit_test(a_receive_that_is_too_small_fails_on_both_sides),
		cmocka_unit_test(a_receive_with_a_bad_key_is_a_remote_operation_error),
		cmocka_unit_test(invalid_requests_are_refused),
		cmocka_unit_test(packets_of_one_message_are_taken_as_one),
		cmocka_unit_test(packets_as_one_of_another_length_are_refused),
		cmocka_unit_test(what_may_have_more_is_in_the_middle_of_a_message),
		cmocka_unit_test(more_reads_than_agreed_are_refused),
		cmocka_unit_test(what_the_device_has_less_is_refused),
		cmocka_unit_test(a_late_copy_of_a_read_whose_key_is_gone_is_dropped),
		cmocka_unit_test(a_replay_must_ask_for_the_same_bytes),
		cmocka_unit_test(an_atomic_write_is_answered_like_a_read_of_nothing),
		cmocka_unit_test(an_atomic_write_whose_answer_was_lost_is_not_done_twice),
		cmocka_unit_test(only_eight_bytes_are_an_atomic_write),
		cmocka_unit_test(a_send_that_invalidates_no_window_is_not_answered),
		cmocka_unit_test(an_atomic_write_without_the_right_or_misaligned_is_refused),
		cmocka_unit_test(a_forged_atomic_write_is_refused),
		cmocka_unit_test(an_atomic_write_answered_as_something_else_fails),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, wire_pair_setup, wire_pair_teardown);
}
