/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes out: operations of every size, their order, the window; and what is wrong on this
 * side. */
#include "wire_pair.h"

static const uint32_t sizes[] = {
	0, 1, 3, MTU - 1, MTU, MTU + 1, 2 * MTU, 5 * MTU + 7, 33 * MTU, 200 * MTU + 1};

static void write_of_every_size_arrives(void **state)
{
	for (unsigned k = 0; k < RPWI_ARRAY_LEN(sizes); k++) {
		IN_CASE("bytes", sizes[k]);
		pair(CONFIG());
		uint8_t after = S[1].mem[RAT + sizes[k]];
		assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 7, AT, sizes[k], RAT, SIG), 0);
		settle();
		assert_int_equal(S[0].nwc, 1);
		expect_wc(0, 0, 7, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		same(AT, RAT, sizes[k]);
		assert_int_equal(S[1].mem[RAT + sizes[k]], after);
		assert_int_equal(S[1].nwc, 0);
		unpair();
	}
}

static void send_with_immediate_and_invalidate_fill_the_completion(void **state)
{
	for (unsigned k = 0; k < RPWI_ARRAY_LEN(sizes); k++) {
		IN_CASE("bytes", sizes[k]);
		pair(CONFIG());
		for (int m = 0; m < 4; m++)
			post_recv(1, 100 + (uint64_t)m, RAT, MEM - RAT);
		assert_int_equal(
			post(0, IBV_WR_SEND, 1, AT, sizes[k], 0, SIG | IBV_SEND_SOLICITED), 0);
		settle();
		same(AT, RAT, sizes[k]);
		fill(&S[0], 77);
		assert_int_equal(post(0, IBV_WR_SEND_WITH_IMM, 2, AT, sizes[k], 0, SIG), 0);
		settle();
		same(AT, RAT, sizes[k]);
		assert_int_equal(post(0, IBV_WR_SEND_WITH_INV, 3, AT, sizes[k], 0, SIG), 0);
		assert_int_equal(
			post(0, IBV_WR_RDMA_WRITE_WITH_IMM, 4, AT, sizes[k], RAT + 64, SIG), 0);
		settle();
		same(AT, RAT + 64, sizes[k]);
		assert_int_equal(S[1].nwc, 4);
		for (unsigned m = 0; m < 4; m++) {
			expect_wc(0, m, m + 1, IBV_WC_SUCCESS,
				m < 3 ? IBV_WC_SEND : IBV_WC_RDMA_WRITE);
			expect_wc(1, m, m + 100, IBV_WC_SUCCESS,
				m < 3 ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
			assert_int_equal(S[1].wc[m].byte_len, sizes[k]);
		}
		assert_int_equal(S[1].nsolicited, 1);
		assert_int_equal(S[1].wc[0].wc_flags, 0);
		assert_int_equal(S[1].wc[1].wc_flags, IBV_WC_WITH_IMM);
		assert_int_equal(S[1].wc[1].imm_data, htobe32(0xabcd0002));
		assert_int_equal(S[1].wc[2].wc_flags, IBV_WC_WITH_INV);
		assert_int_equal(S[1].wc[2].invalidated_rkey, 0x7003);
		assert_int_equal(S[1].inv_key, 0x7003);
		assert_true(S[1].inv_remote);
		assert_int_equal(S[1].wc[3].imm_data, htobe32(0xabcd0004));
		unpair();
	}
}

static void read_of_every_size_arrives(void **state)
{
	for (unsigned k = 0; k < RPWI_ARRAY_LEN(sizes); k++) {
		IN_CASE("bytes", sizes[k]);
		pair(CONFIG());
		assert_int_equal(post(0, IBV_WR_RDMA_READ, 9, AT, sizes[k], RAT, SIG), 0);
		settle();
		assert_int_equal(S[0].nwc, 1);
		expect_wc(0, 0, 9, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
		assert_int_equal(S[0].wc[0].byte_len, sizes[k]);
		same(AT, RAT, sizes[k]);
		unpair();
	}
}

static unsigned longest_read;
static int watch_reads(const struct wpkt *w, const struct rpwi_pkt *p)
{
	if (rpwi_pkt_op(p) == RPWI_OP_READ_REQ)
		longest_read = RPWI_MAX(longest_read, p->dma_len);
	assert_true(S[0].cc.inflight <= S[0].cc.cwnd);
	return 0;
}

static void reads_are_cut_to_the_window(void **state)
{
	pair(CONFIG(.cwnd = 10));
	longest_read = 0;
	fate = watch_reads;
	assert_int_equal(post(0, IBV_WR_RDMA_READ, 9, AT, 100 * MTU, RAT, SIG), 0);
	settle();
	expect_wc(0, 0, 9, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	same(AT, RAT, 100 * MTU);
	assert_int_equal(longest_read, 10 * MTU);
	unpair();
}

static void scattered_and_gathered_bytes_keep_their_order(void **state)
{
	pair(CONFIG());
	static const uint32_t cut[] = {1, 1500, 0, 2599};
	struct ibv_sge from[4], to[4];
	uint32_t at = AT, rat = RAT, total = 0;
	uint8_t want[8192];

	for (int k = 0; k < 4; k++) {
		from[k] = (struct ibv_sge){
			.addr = (uintptr_t)S[0].mem + at, .length = cut[k], .lkey = KEY};
		to[k] = (struct ibv_sge){
			.addr = (uintptr_t)S[1].mem + rat, .length = cut[3 - k], .lkey = KEY};
		memcpy(want + total, S[0].mem + at, cut[k]);
		total += cut[k];
		at += 5000;
		rat += 7000;
	}
	struct ibv_recv_wr rwr = {.wr_id = 1, .sg_list = to, .num_sge = 4};
	assert_int_equal(rpwi_rq_post(&S[1].rq, &rwr), 0);
	struct ibv_send_wr wr = {.wr_id = 2,
		.opcode = IBV_WR_SEND,
		.sg_list = from,
		.num_sge = 4,
		.send_flags = SIG};
	assert_int_equal(rpwi_qp_post_send(&S[0].qp, &wr, NULL), 0);
	settle();
	expect_wc(1, 0, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
	uint32_t seen = 0;
	for (int k = 0; k < 4; k++) {
		assert_memory_equal((void *)(uintptr_t)to[k].addr, want + seen, to[k].length);
		seen += to[k].length;
	}
	/* and a READ into several SGEs */
	wr.opcode = IBV_WR_RDMA_READ;
	wr.wr.rdma.remote_addr = (uintptr_t)S[1].mem + 3;
	wr.wr.rdma.rkey = KEY;
	assert_int_equal(rpwi_qp_post_send(&S[0].qp, &wr, NULL), 0);
	settle();
	seen = 3;
	for (int k = 0; k < 4; k++) {
		assert_memory_equal(
			(void *)(uintptr_t)from[k].addr, S[1].mem + seen, from[k].length);
		seen += from[k].length;
	}
	unpair();
}

static void inline_data_is_taken_at_post(void **state)
{
	pair(CONFIG());
	uint8_t data[] = "taken at post";
	struct ibv_sge sge = {.addr = (uintptr_t)data, .length = sizeof(data)};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = SIG | IBV_SEND_INLINE};
	wr.wr.rdma.remote_addr = (uintptr_t)S[1].mem + RAT;
	wr.wr.rdma.rkey = KEY;
	assert_int_equal(rpwi_qp_post_send(&S[0].qp, &wr, NULL), 0);
	memcpy(data, "changed after", sizeof(data));
	settle();
	assert_string_equal((char *)S[1].mem + RAT, "taken at post");
	sge.length = 257;
	assert_int_equal(rpwi_qp_post_send(&S[0].qp, &wr, NULL), -EINVAL);
	unpair();
}

static void atomics_return_what_was_there(void **state)
{
	pair(CONFIG());
	uint64_t *remote = (uint64_t *)(S[1].mem + RAT), *local = (uint64_t *)(S[0].mem + AT);

	*remote = 41;
	assert_int_equal(post_atomic(0, false, 1, AT, RAT, 5, 0), 0);
	assert_int_equal(post_atomic(0, true, 2, AT + 8, RAT, 46, 1000), 0);
	assert_int_equal(post_atomic(0, true, 3, AT + 16, RAT, 46, 2000), 0);
	settle();
	assert_int_equal(local[0], 41);
	assert_int_equal(local[1], 46);
	assert_int_equal(local[2], 1000);
	assert_int_equal(*remote, 1000);
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD);
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_COMP_SWAP);
	assert_int_equal(S[0].wc[1].byte_len, 8);
	assert_int_equal(post_atomic(0, true, 4, AT, RAT + 4, 0, 0), 0); /* misaligned */
	settle();
	expect_wc(0, 3, 4, IBV_WC_REM_INV_REQ_ERR, 0);
	assert_int_equal(S[1].event[S[1].nevent - 1], IBV_EVENT_QP_REQ_ERR);
	unpair();
}

static void unsignaled_requests_retire_in_silence(void **state)
{
	pair(CONFIG(.send_wr = 4));
	for (int round = 0; round < 5; round++) {
		IN_CASE("round", round);
		for (int k = 0; k < 3; k++)
			assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, 0), 0);
		assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG), 0);
		assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 3, AT, 10, RAT, SIG), -ENOMEM);
		settle();
		assert_int_equal(S[0].nwc, round + 1);
		expect_wc(0, (unsigned)round, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	}
	unpair();
	pair(CONFIG(.sig_all = true));
	assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, 0), 0);
	settle();
	assert_int_equal(S[0].nwc, 1);
	unpair();
}

static void window_opens_steadily(void **state)
{
	pair(CONFIG(.cwnd = 40));
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 200 * MTU, RAT, SIG);
	assert_int_equal(emit(0), 40);
	assert_true(rpwi_qp_blocked(&S[0].qp));
	unsigned asked = 0;
	for (unsigned k = 0; k < wire_n; k++)
		asked += decoded(&wire[k]).ackreq;
	assert_int_equal(asked, 3); /* packets 16 and 32, and the last that the window let out */
	assert_true(decoded(&wire[39]).ackreq);
	settle();
	assert_int_equal(S[0].nwc, 1);
	same(AT, RAT, 200 * MTU);
	unpair();
}

static void a_write_of_nothing_needs_no_key(void **state)
{
	pair(CONFIG());
	struct ibv_send_wr wr = {.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = SIG};
	wr.wr.rdma.rkey = KEY_BAD;
	assert_int_equal(rpwi_qp_post_send(&S[0].qp, &wr, NULL), 0);
	settle();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	unpair();
}

static void a_bad_local_key_fails_after_what_was_before_it(void **state)
{
	pair(CONFIG());
	struct ibv_sge sge = {.addr = (uintptr_t)S[0].mem, .length = 10, .lkey = KEY_BAD};
	struct ibv_send_wr wr = {.wr_id = 2, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1};
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 5000, RAT, SIG);
	assert_int_equal(rpwi_qp_post_send(&S[0].qp, &wr, NULL), 0);
	post(0, IBV_WR_RDMA_WRITE, 3, AT, 10, RAT, SIG);
	emit(0);
	assert_int_equal(S[0].nwc, 0);
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_wc(0, 1, 2, IBV_WC_LOC_PROT_ERR, 0);
	expect_wc(0, 2, 3, IBV_WC_WR_FLUSH_ERR, 0);
	assert_int_equal(S[0].qp.state, IBV_QPS_ERR);
	unpair();
}

static void local_memory_that_goes_away_is_a_protection_error(void **state)
{
	pair(CONFIG(.cwnd = 8));
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 60 * MTU, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	emit(0);
	S[0].hole_at = (uintptr_t)S[0].mem + AT + 20 * MTU;
	S[0].hole_len = 1;
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_LOC_PROT_ERR, 0);
	expect_wc(0, 1, 2, IBV_WC_WR_FLUSH_ERR, 0);
	unpair();
	/* and when only the send finds out */
	pair(CONFIG());
	S[0].qp.read_chunk_pkts = 32;
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	post(0, IBV_WR_RDMA_READ, 2, AT, 40 * MTU, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 3, AT, 10 * MTU, RAT, SIG);
	rpwi_txb_reset(txb);
	rpwi_qp_tx(&S[0].qp, txb, false, now);
	assert_int_equal(txb->npkt, 13); /* two requests for the READ */
	for (unsigned k = 0; k < 8; k++)
		put_on_wire(1, txb, k);
	rpwi_qp_tx_fault(&S[0].qp, txb, 8, now);
	settle_timed();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	expect_wc(0, 2, 3, IBV_WC_LOC_PROT_ERR, 0);
	unpair();
}

static void a_fence_waits_for_reads(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_READ, 1, AT, 10, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT + 64, SIG | IBV_SEND_FENCE);
	assert_int_equal(emit(0), 1);
	settle();
	assert_int_equal(S[0].nwc, 2);
	/* what was read is what was written */
	assert_memory_equal(S[1].mem + RAT + 64, S[1].mem + RAT, 10);
	unpair();
}

static void no_more_reads_than_agreed_are_outstanding(void **state)
{
	pair(CONFIG(.rd = 2));
	for (uint64_t k = 0; k < 5; k++)
		post(0, IBV_WR_RDMA_READ, k, AT + 64 * (uint32_t)k, 10, RAT + 64 * (uint32_t)k,
			SIG);
	assert_int_equal(emit(0), 2);
	assert_false(rpwi_qp_blocked(&S[0].qp));
	settle();
	assert_int_equal(S[0].nwc, 5);
	for (uint32_t k = 0; k < 5; k++)
		same(AT + 64 * k, RAT + 64 * k, 10);
	unpair();
}

static void local_operations_complete_in_their_turn(void **state)
{
	pair(CONFIG());
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	post(0, IBV_WR_BIND_MW, 2, 0, 0, 0, SIG);
	post(0, IBV_WR_RDMA_WRITE, 3, AT, 10, RAT, SIG);
	post(0, IBV_WR_LOCAL_INV, 4, 0, 0, 0, SIG);
	post(0, IBV_WR_RDMA_WRITE, 5, AT, 10, RAT, SIG);
	assert_int_equal(emit(0), 2);
	assert_int_equal(S[0].binds, 1);
	assert_int_equal(S[0].bound.mw_key, 0x5502);
	assert_int_equal(S[0].inv_key, 0); /* not while a resend might need it */
	assert_int_equal(S[0].nwc, 0);
	settle();
	assert_int_equal(S[0].nwc, 5);
	for (unsigned k = 0; k < 5; k++)
		expect_wc(0, k, k + 1, IBV_WC_SUCCESS,
			k == 1   ? IBV_WC_BIND_MW
			: k == 3 ? IBV_WC_LOCAL_INV
				 : IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].inv_key, 0x7004);
	S[0].bind_rc = -EINVAL;
	post(0, IBV_WR_RDMA_WRITE, 6, AT, 10, RAT, SIG);
	post(0, IBV_WR_BIND_MW, 7, 0, 0, 0, SIG);
	settle();
	expect_wc(0, 5, 6, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_wc(0, 6, 7, IBV_WC_MW_BIND_ERR, 0);
	unpair();
}

/* As the device posts: what may not wait goes at once. How many packets went. */
static unsigned post_gathering(uint64_t id, uint32_t off, uint32_t len)
{
	assert_int_equal(post(0, IBV_WR_RDMA_WRITE, id, AT + off, len, RAT + off, SIG), 0);
	return rpwi_qp_may_gather(&S[0].qp) ? 0 : emit(0);
}

static void short_messages_wait_for_company_behind_others_alone(void **state)
{
	unsigned packets;

	pair(CONFIG(.cwnd = 256));
	/* one at a time: each at once */
	for (uint64_t i = 0; i < 20; i++) {
		assert_int_equal(post_gathering(i, 0, 8), 1);
		settle();
	}
	/* many: the first four at once, the others until they are a batch */
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(post_gathering(i, (uint32_t)i * 8, 8), 1);
	for (uint64_t i = 4; i < 4 + RPWI_GATHER_MAX; i++)
		assert_int_equal(post_gathering(i, (uint32_t)i * 8, 8), 0);
	assert_int_equal(post_gathering(52, 52 * 8, 8), RPWI_GATHER_MAX + 1);
	assert_int_equal(post_gathering(53, 53 * 8, 8), 0);
	/* the acknowledgement finds it */
	settle();
	assert_int_equal(S[0].nwc, 20 + 54);
	for (unsigned k = 0; k < 54; k++)
		expect_wc(0, 20 + k, k, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	same(AT, RAT, 54 * 8);
	/* who does that again waits behind the first */
	assert_int_equal(post_gathering(0, 0, 8), 1);
	assert_int_equal(post_gathering(1, 8, 8), 0);
	/* but not what is long, or a READ: it takes the others along, in order */
	packets = post_gathering(2, 16, 3 * MTU);
	assert_int_equal(packets, 1 + 3);
	settle();
	same(AT, RAT, 16 + 3 * MTU);
	assert_int_equal(post_gathering(3, 0, 8), 1);
	assert_int_equal(post(0, IBV_WR_RDMA_READ, 4, AT, 8, RAT, SIG), 0);
	assert_false(rpwi_qp_may_gather(&S[0].qp));
	settle();
	unpair();
}

static void what_waits_for_company_is_flushed_with_the_rest(void **state)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};

	pair(CONFIG());
	for (uint64_t i = 0; i < 10; i++)
		post_gathering(i, 0, 8);
	assert_int_equal(S[0].nwc, 0);
	assert_int_equal(rpwi_qp_modify(&S[0].qp, &err, IBV_QP_STATE, NULL, now), 0);
	assert_int_equal(S[0].nwc, 10);
	for (unsigned k = 0; k < 10; k++)
		assert_int_equal(S[0].wc[k].status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 11, AT, 8, RAT, SIG), 0);
	assert_false(rpwi_qp_may_gather(&S[0].qp));
	unpair();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_of_every_size_arrives),
		cmocka_unit_test(send_with_immediate_and_invalidate_fill_the_completion),
		cmocka_unit_test(read_of_every_size_arrives),
		cmocka_unit_test(reads_are_cut_to_the_window),
		cmocka_unit_test(scattered_and_gathered_bytes_keep_their_order),
		cmocka_unit_test(inline_data_is_taken_at_post),
		cmocka_unit_test(atomics_return_what_was_there),
		cmocka_unit_test(unsignaled_requests_retire_in_silence),
		cmocka_unit_test(window_opens_steadily),
		cmocka_unit_test(a_write_of_nothing_needs_no_key),
		cmocka_unit_test(a_bad_local_key_fails_after_what_was_before_it),
		cmocka_unit_test(local_memory_that_goes_away_is_a_protection_error),
		cmocka_unit_test(a_fence_waits_for_reads),
		cmocka_unit_test(no_more_reads_than_agreed_are_outstanding),
		cmocka_unit_test(local_operations_complete_in_their_turn),
		cmocka_unit_test(short_messages_wait_for_company_behind_others_alone),
		cmocka_unit_test(what_waits_for_company_is_flushed_with_the_rest),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, wire_pair_setup, wire_pair_teardown);
}
