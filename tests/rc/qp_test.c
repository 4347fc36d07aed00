/* SPDX-License-Identifier: BSD-3-Clause */
/* States and attributes. */
#include "wire_pair.h"

static void sqd_finishes_what_is_in_flight_and_holds_the_rest(void **state)
{
	pair(CONFIG(.cwnd = 4));
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 20 * MTU, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	emit(0);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	assert_int_equal(
		rpwi_qp_modify(&S[0].qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY, NULL, now),
		0);
	rpwi_qp_query(&S[0].qp, &a);
	assert_true(a.sq_draining);
	assert_int_equal(S[0].nevent, 0);
	settle();
	expect_wc(0, 0, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	assert_int_equal(S[0].nwc, 1);
	assert_int_equal(S[0].nevent, 1);
	assert_int_equal(S[0].event[0], IBV_EVENT_SQ_DRAINED);
	rpwi_qp_query(&S[0].qp, &a);
	assert_false(a.sq_draining);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS};
	assert_int_equal(rpwi_qp_modify(&S[0].qp, &a, IBV_QP_STATE, NULL, now), 0);
	settle();
	expect_wc(0, 1, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	unpair();
}

static void reset_forgets_without_completions(void **state)
{
	pair(CONFIG());
	post_recv(0, 9, AT, 10);
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 20 * MTU, RAT, SIG);
	emit(0);
	wire_n = 0;
	assert_int_equal(S[0].cc.inflight, 20);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};
	assert_int_equal(rpwi_qp_modify(&S[0].qp, &a, IBV_QP_STATE, NULL, now), 0);
	assert_int_equal(S[0].cc.inflight, 0);
	assert_int_equal(S[0].nwc, 0);
	assert_int_equal(rpwi_rq_count(&S[0].rq), 0);
	assert_int_equal(post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG), -EINVAL);
	unpair();
}

static void the_first_packet_in_rtr_is_an_event(void **state)
{
	struct config c = CONFIG();
	pair(c);
	rpwi_qp_fini(&S[1].qp);
	rpwi_rq_fini(&S[1].rq);
	make(1, &c);
	assert_int_equal(to_init(1, &c), 0);
	assert_int_equal(to_rtr(1, &c), 0);
	post(0, IBV_WR_RDMA_WRITE, 1, AT, 10, RAT, SIG);
	post(0, IBV_WR_RDMA_WRITE, 2, AT, 10, RAT, SIG);
	settle();
	assert_int_equal(S[0].nwc, 2);
	assert_int_equal(S[1].nevent, 1);
	assert_int_equal(S[1].event[0], IBV_EVENT_COMM_EST);
	unpair();
}

static int modify(int i, enum ibv_qp_state to, int mask)
{
	struct rpwi_av av = av_between(i);
	struct ibv_qp_attr a = {.qp_state = to,
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = QPN1,
		.cur_qp_state = S[i].qp.state,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1};
	return rpwi_qp_modify(&S[i].qp, &a, mask, &av, now);
}

static void every_required_attribute_is_required(void **state)
{
	static const struct {
		enum ibv_qp_type type;
		int need[3];
	} rules[] = {
		{IBV_QPT_RC, {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
				     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
				     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC}},
		{IBV_QPT_UC, {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
				     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
				     IBV_QP_SQ_PSN}},
		{IBV_QPT_UD, {IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0, IBV_QP_SQ_PSN}},
	};
	static const enum ibv_qp_state next[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};

	for (unsigned r = 0; r < 3; r++) {
		struct config c = CONFIG(.type = rules[r].type);
		make(0, &c);
		assert_int_equal(modify(0, IBV_QPS_RTR, IBV_QP_STATE | rules[r].need[1]), -EINVAL);
		/* not from RESET */
		assert_int_equal(modify(0, IBV_QPS_ERR, IBV_QP_STATE), -EINVAL);
		for (unsigned s = 0; s < 3; s++) {
			for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
				if (rules[r].need[s] & bit)
					assert_int_equal(
						modify(0, next[s],
							IBV_QP_STATE | (rules[r].need[s] & ~bit)),
						-EINVAL);
			}
			assert_int_equal(
				modify(0, next[s], IBV_QP_STATE | IBV_QP_CAP | rules[r].need[s]),
				-EINVAL);
			assert_int_equal(modify(0, next[s], IBV_QP_STATE | rules[r].need[s]), 0);
			assert_int_equal(S[0].qp.state, next[s]);
		}
		assert_int_equal(modify(0, IBV_QPS_INIT, IBV_QP_STATE | rules[r].need[0]), -EINVAL);
		assert_int_equal(
			modify(0, IBV_QPS_RTS,
				rules[r].type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS),
			0);
		assert_int_equal(modify(0, IBV_QPS_SQE, IBV_QP_STATE), -EINVAL);
		assert_int_equal(modify(0, IBV_QPS_ERR, IBV_QP_STATE), 0);
		assert_int_equal(modify(0, IBV_QPS_RTS, IBV_QP_STATE), -EINVAL);
		assert_int_equal(modify(0, IBV_QPS_RESET, IBV_QP_STATE), 0);
		rpwi_qp_fini(&S[0].qp);
		rpwi_rq_fini(&S[0].rq);
	}
}

static void values_out_of_range_are_refused(void **state)
{
	struct config c = CONFIG();
	pair(c);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS, .min_rnr_timer = 31};
	assert_int_equal(rpwi_qp_modify(&S[0].qp, &a, IBV_QP_MIN_RNR_TIMER, NULL, now), 0);
	rpwi_qp_query(&S[0].qp, &a);
	assert_int_equal(a.min_rnr_timer, 31);
	assert_int_equal(a.qp_state, IBV_QPS_RTS);
	assert_int_equal(a.sq_psn, PSN0);
	assert_int_equal(a.dest_qp_num, QPN1);
	a.cur_qp_state = IBV_QPS_SQD;
	assert_int_equal(
		rpwi_qp_modify(&S[0].qp, &a, IBV_QP_STATE | IBV_QP_CUR_STATE, NULL, now), -EINVAL);
	unpair();
}

static void what_the_device_has_less_is_not_set(void **state)
{
	static const struct rpwi_qp_bounds bounds = {
		.mtu = IBV_MTU_1024, .rd_atomic_in = 2, .rd_atomic_out = 3};
	struct config c = CONFIG(.rd = 2);
	make(0, &c);
	S[0].qp.bounds = bounds;
	assert_int_equal(to_init(0, &c), 0);
	c.rd = 3;
	assert_int_equal(to_rtr(0, &c), -EINVAL);
	c.rd = 2;
	S[0].qp.bounds.mtu = IBV_MTU_512;
	assert_int_equal(to_rtr(0, &c), -EINVAL);
	S[0].qp.bounds.mtu = IBV_MTU_1024;
	assert_int_equal(to_rtr(0, &c), 0);
	c.rd = 4;
	assert_int_equal(to_rts(0, &c), -EINVAL);
	c.rd = 3;
	assert_int_equal(to_rts(0, &c), 0);
	rpwi_qp_fini(&S[0].qp);
	rpwi_rq_fini(&S[0].rq);
}

static int try_post(enum ibv_wr_opcode op, uint32_t len, int nsge)
{
	struct ibv_sge sge[4] = {{.addr = AT, .length = len, .lkey = KEY}};
	for (int i = 1; i < nsge; i++)
		sge[i] = (struct ibv_sge){.addr = AT, .lkey = KEY};
	struct ibv_send_wr wr = {.sg_list = sge, .num_sge = nsge, .opcode = op};
	return rpwi_qp_post_send(&S[0].qp, &wr, NULL);
}

static void what_the_device_has_less_is_not_posted(void **state)
{
	const struct rpwi_qp_bounds bounds = {.message = 5000,
		.send = 100,
		.opcodes = ~(1u << IBV_WR_ATOMIC_FETCH_AND_ADD),
		.sge_rd = 2};
	pair(CONFIG());
	S[0].qp.bounds = bounds;
	S[0].qp.plain_max = 100;
	for (int nsge = 1; nsge <= 2; nsge++) { /* the short way, and the general one */
		assert_int_equal(try_post(IBV_WR_SEND, 100, nsge), 0);
		assert_int_equal(try_post(IBV_WR_SEND, 101, nsge), -EINVAL);
		assert_int_equal(try_post(IBV_WR_RDMA_WRITE, 5000, nsge), 0);
		assert_int_equal(try_post(IBV_WR_RDMA_WRITE, 5001, nsge), -EINVAL);
		assert_int_equal(try_post(IBV_WR_RDMA_READ, 5000, nsge), 0);
		assert_int_equal(try_post(IBV_WR_RDMA_READ, 5001, nsge), -EINVAL);
	}
	assert_int_equal(try_post(IBV_WR_RDMA_READ, 10, 3), -EINVAL);
	assert_int_equal(try_post(IBV_WR_RDMA_WRITE, 10, 3), 0);
	assert_int_equal(try_post(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1), -EINVAL);
	assert_int_equal(try_post(IBV_WR_ATOMIC_CMP_AND_SWP, 8, 1), 0);
	unpair();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sqd_finishes_what_is_in_flight_and_holds_the_rest),
		cmocka_unit_test(reset_forgets_without_completions),
		cmocka_unit_test(the_first_packet_in_rtr_is_an_event),
		cmocka_unit_test(every_required_attribute_is_required),
		cmocka_unit_test(values_out_of_range_are_refused),
		cmocka_unit_test(what_the_device_has_less_is_not_set),
		cmocka_unit_test(what_the_device_has_less_is_not_posted),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, wire_pair_setup, wire_pair_teardown);
}
