/* SPDX-License-Identifier: BSD-3-Clause */
/* Receive queues, shared and not. */
#include "wire_pair.h"

static void a_srq_tells_its_limit_and_the_last_wqe(void **state)
{
	pair(CONFIG(.srq = true));
	for (uint64_t k = 0; k < 4; k++)
		post_recv(1, 100 + k, RAT + 4096 * (uint32_t)k, 4096);
	S[1].rq.limit = 3;
	post(0, IBV_WR_SEND, 1, AT, 10, 0, SIG);
	settle();
	assert_int_equal(S[1].nevent, 0);
	post(0, IBV_WR_SEND, 2, AT, 10, 0, SIG);
	post(0, IBV_WR_SEND, 3, AT, 10, 0, SIG);
	settle();
	assert_int_equal(S[1].nevent, 1); /* once */
	assert_int_equal(S[1].event[0], IBV_EVENT_SRQ_LIMIT_REACHED);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	assert_int_equal(rpwi_qp_modify(&S[1].qp, &a, IBV_QP_STATE, NULL, now), 0);
	assert_int_equal(S[1].event[1], IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_int_equal(rpwi_rq_count(&S[1].rq), 1);
	assert_int_equal(S[1].nwc, 3);
	unpair();
}

static void resizing_a_queue_keeps_what_is_posted(void **state)
{
	struct rpwi_rq rq;
	assert_int_equal(rpwi_rq_init(&rq, 5, 2, true), 0);
	struct ibv_sge sge[2] = {{.length = 1}, {.length = 2}};
	struct ibv_recv_wr wr = {.sg_list = sge, .num_sge = 2};
	rq.head = rq.tail = 6; /* as after some use */
	for (uint64_t k = 0; k < 5; k++) {
		wr.wr_id = k;
		sge[0].addr = 1000 + k;
		assert_int_equal(rpwi_rq_post(&rq, &wr), 0);
	}
	assert_int_equal(rpwi_rq_post(&rq, &wr), -ENOMEM);
	assert_int_equal(rpwi_rq_resize(&rq, 4), -EINVAL);
	assert_int_equal(rpwi_rq_resize(&rq, 20), 0);
	assert_int_equal(rpwi_rq_count(&rq), 5);
	for (uint64_t k = 0; k < 5; k++) {
		const struct rpwi_rwqe *w = &rq.ring[rq.head++ & rq.mask];
		assert_int_equal(w->wr_id, k);
		assert_int_equal(w->sge[0].addr, 1000 + k);
		assert_int_equal(w->len, 3);
	}
	wr.num_sge = 3;
	assert_int_equal(rpwi_rq_post(&rq, &wr), -EINVAL);
	rpwi_rq_fini(&rq);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_srq_tells_its_limit_and_the_last_wqe),
		cmocka_unit_test(resizing_a_queue_keeps_what_is_posted),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, wire_pair_setup, wire_pair_teardown);
}
