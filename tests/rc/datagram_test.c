/* SPDX-License-Identifier: BSD-3-Clause */
/* UC and UD. */
#include "wire_pair.h"

/* ---- UC ---- */

static void uc_moves_messages_without_acks(void **state)
{
	pair(CONFIG(.type = IBV_QPT_UC));
	post_recv(1, 100, RAT, MEM - RAT);
	post_recv(1, 101, 0, 0);
	post(0, IBV_WR_SEND, 1, AT, 150 * MTU + 3, 0, SIG);
	assert_int_equal(emit(0), 151);
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_SEND);
	settle();
	assert_int_equal(S[1].qp.stats.tx_packets, 0);
	expect_wc(1, 0, 100, IBV_WC_SUCCESS, IBV_WC_RECV);
	same(AT, RAT, 150 * MTU + 3);
	fill(&S[0], 5);
	post(0, IBV_WR_RDMA_WRITE_WITH_IMM, 2, AT, 5000, RAT, SIG);
	settle();
	expect_wc(1, 1, 101, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM);
	same(AT, RAT, 5000);
	assert_int_equal(post(0, IBV_WR_RDMA_READ, 2, AT, 5000, RAT, SIG), -EINVAL);
	assert_int_equal(post(0, IBV_WR_SEND_WITH_INV, 2, AT, 5000, RAT, SIG), -EINVAL);
	assert_int_equal(rpwi_qp_deadline(&S[0].qp), RPWI_NEVER);
	unpair();
}

static void uc_completes_only_what_has_left(void **state)
{
	pair(CONFIG(.type = IBV_QPT_UC));
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	rpwi_txb_reset(txb);
	rpwi_qp_tx(&S[0].qp, txb, false, now);
	assert_int_equal(txb->npkt, 1);
	assert_int_equal(S[0].nwc, 0);
	assert_true(rpwi_qp_tx_ready(&S[0].qp, false, now));
	rpwi_qp_tx_done(&S[0].qp);
	assert_int_equal(S[0].nwc, 1);
	assert_false(rpwi_qp_tx_ready(&S[0].qp, false, now));
	unpair();
}

static void uc_drops_a_message_with_a_gap(void **state)
{
	pair(CONFIG(.type = IBV_QPT_UC));
	for (int lost = 0; lost < 3; lost++) {
		post_recv(1, 100, RAT, 4096);
		post(0, IBV_WR_SEND, 1, AT, 3 * MTU, 0, SIG);
		emit(0);
		take_off((unsigned)lost);
		settle();
		assert_int_equal(S[1].nwc, (unsigned)lost);
		post(0, IBV_WR_SEND, 2, AT + 9, 2 * MTU, 0, SIG);
		settle();
		assert_int_equal(S[1].nwc, (unsigned)lost + 1);
		assert_int_equal(S[1].wc[lost].byte_len, 2 * MTU);
		same(AT + 9, RAT, 2 * MTU);
	}
	post(0, IBV_WR_SEND, 3, AT, 10, 0, SIG); /* no receive: dropped, and nothing breaks */
	settle();
	assert_int_equal(S[1].qp.stats.rx_no_rwqe, 1);
	assert_int_equal(S[1].qp.state, IBV_QPS_RTS);
	unpair();
}

static void uc_send_error_stops_only_the_send_side(void **state)
{
	pair(CONFIG(.type = IBV_QPT_UC));
	struct ibv_sge sge = {.addr = (uintptr_t)S[0].mem, .length = 10, .lkey = KEY_BAD};
	struct ibv_send_wr wr = {.wr_id = 2, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1};
	post_recv(0, 50, AT, 64);
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	rpwi_qp_post_send(&S[0].qp, &wr, NULL);
	post(0, IBV_WR_RDMA_WRITE, 3, AT, 10, RAT, SIG);
	settle();
	assert_int_equal(S[0].qp.state, IBV_QPS_SQE);
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_wc(0, 1, 2, IBV_WC_LOC_PROT_ERR, 0);
	expect_wc(0, 2, 3, IBV_WC_WR_FLUSH_ERR, 0);
	post(1, IBV_WR_SEND, 4, RAT, 10, 0, SIG);
	settle();
	expect_wc(0, 3, 50, IBV_WC_SUCCESS, IBV_WC_RECV);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS};
	assert_int_equal(rpwi_qp_modify(&S[0].qp, &a, IBV_QP_STATE, NULL, now), 0);
	post(0, IBV_WR_RDMA_WRITE, 5, AT, 10, RAT, SIG);
	settle();
	expect_wc(0, 4, 5, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	same(AT, RAT, 10);
	unpair();
}

/* ---- UD ---- */

static int post_ud(
	int i, uint64_t id, uint32_t off, uint32_t len, uint32_t qkey, const struct rpwi_av *av)
{
	struct ibv_sge sge = {.addr = (uintptr_t)S[i].mem + off, .length = len, .lkey = KEY};
	struct ibv_send_wr wr = {.wr_id = id,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = SIG,
		.imm_data = 0x11223344};
	wr.wr.ud.remote_qpn = i ? QPN0 : QPN1;
	wr.wr.ud.remote_qkey = qkey;
	return rpwi_qp_post_send(&S[i].qp, &wr, av);
}

static void ud_receives_say_where_they_come_from(void **state)
{
	pair(CONFIG(.type = IBV_QPT_UD));
	struct rpwi_av av = av_between(0);
	post_recv(1, 100, RAT, 40 + MTU);
	post_recv(1, 101, RAT + 4096, 40 + MTU);
	assert_int_equal(post_ud(0, 1, AT, MTU + 1, 0x5152, &av), -EINVAL);
	assert_int_equal(post_ud(0, 1, AT, MTU - 3, 0x5152, &av), 0);
	assert_int_equal(post_ud(0, 2, AT, 10, 0x9999, &av), 0);
	settle();
	assert_int_equal(S[0].nwc, 2);
	assert_int_equal(S[1].nwc, 1);
	assert_int_equal(S[1].qp.stats.rx_bad_qkey, 1);
	expect_wc(1, 0, 100, IBV_WC_SUCCESS, IBV_WC_RECV);
	assert_int_equal(S[1].wc[0].byte_len, 40 + MTU - 3);
	assert_int_equal(S[1].wc[0].wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	assert_int_equal(S[1].wc[0].imm_data, 0x11223344);
	assert_int_equal(S[1].wc[0].src_qp, QPN0);
	assert_int_equal(S[1].wc[0].sl, 10);
	same(AT, RAT + 40, MTU - 3);
	const uint8_t *ip = S[1].mem + RAT + 20;
	assert_int_equal(ip[0], 0x45);
	assert_int_equal(ip[8], 61);
	assert_memory_equal(ip + 12, S[1].rx_flow.src.bytes, 4);
	assert_memory_equal(ip + 16, S[1].rx_flow.dst.bytes, 4);
	uint32_t sum = 0;
	for (int k = 0; k < 20; k += 2)
		sum += rpwi_get_be16(ip + k);
	assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff);
	/* IPv6, and the QP's own Q_Key */
	S[1].rx_flow.src = (struct rpwi_addr){.family = 6, .bytes = {0xfd, 1, [15] = 7}};
	S[1].rx_flow.dst = (struct rpwi_addr){.family = 6, .bytes = {0xfd, 1, [15] = 9}};
	S[1].qp.attr.qkey = S[0].qp.attr.qkey;
	assert_int_equal(post_ud(0, 3, AT, 10, 0x80000000, &av), 0);
	settle();
	expect_wc(1, 1, 101, IBV_WC_SUCCESS, IBV_WC_RECV);
	assert_int_equal(S[1].mem[RAT + 4096] >> 4, 6);
	assert_memory_equal(S[1].mem + RAT + 4096 + 8, S[1].rx_flow.src.bytes, 16);
	assert_memory_equal(S[1].mem + RAT + 4096 + 24, S[1].rx_flow.dst.bytes, 16);
	assert_int_equal(S[1].wc[1].sl, 0);
	unpair();
}

static void a_ud_batch_has_one_destination(void **state)
{
	pair(CONFIG(.type = IBV_QPT_UD));
	struct rpwi_av av[2] = {av_between(0), av_between(0)};
	av[1].flow.dst.bytes[3] = 77;
	for (uint64_t k = 0; k < 6; k++)
		assert_int_equal(post_ud(0, k, AT, 10, 0x5152, &av[k / 2 % 2]), 0);
	for (int k = 0; k < 3; k++) {
		rpwi_txb_reset(txb);
		rpwi_qp_tx(&S[0].qp, txb, false, now);
		assert_int_equal(txb->npkt, 2);
		assert_memory_equal(&txb->av->flow, &av[k % 2].flow, sizeof(av[0].flow));
	}
	rpwi_qp_tx_done(&S[0].qp);
	assert_int_equal(S[0].nwc, 6);
	unpair();
}

/* IB 9.9.3, class D: it waits for the next datagram, and no sender ends the receiver. */
static void a_ud_receive_without_room_waits_for_the_next(void **state)
{
	pair(CONFIG(.type = IBV_QPT_UD));
	struct rpwi_av av = av_between(0);
	post_recv(1, 100, RAT, 40 + 9);
	post_ud(0, 1, AT, 10, 0x5152, &av);
	settle();
	assert_int_equal(S[1].nwc, 0);
	assert_int_equal(S[1].qp.state, IBV_QPS_RTS);
	post_ud(0, 2, AT, 9, 0x5152, &av);
	settle();
	expect_wc(1, 0, 100, IBV_WC_SUCCESS, IBV_WC_RECV);
	unpair();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uc_moves_messages_without_acks),
		cmocka_unit_test(uc_completes_only_what_has_left),
		cmocka_unit_test(uc_drops_a_message_with_a_gap),
		cmocka_unit_test(uc_send_error_stops_only_the_send_side),
		cmocka_unit_test(ud_receives_say_where_they_come_from),
		cmocka_unit_test(a_ud_batch_has_one_destination),
		cmocka_unit_test(a_ud_receive_without_room_waits_for_the_next),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, wire_pair_setup, wire_pair_teardown);
}
