/* SPDX-License-Identifier: BSD-3-Clause */
/* no_memory_test.c - ibv_wr_start when memory is gone: it cannot fail, so ibv_wr_complete does. */
#include <errno.h>
#include <sys/resource.h>

#include "lib/test.h"
#include "pair.h"

enum { BLOCK = 16 << 10, BLOCKS = 1 << 14 };

static int list_of_one(struct ibv_qp_ex *x, const struct side *s)
{
	ibv_wr_start(x);
	x->wr_id = 7;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(x, s->mr->rkey, (uintptr_t)s->buf + 4096);
	ibv_wr_set_sge(x, s->mr->lkey, (uintptr_t)s->buf, 64);
	return ibv_wr_complete(x);
}

static void a_list_that_begins_without_memory_is_refused(void **state)
{
	static void *block[BLOCKS];
	struct rlimit was, now;
	struct pair p;
	struct ibv_wc wc;
	pair_make(&p, 14, 7, 7);
	/* a second QP, which never leaves RESET, builds by ibv_wr_* */
	struct ibv_qp_init_attr_ex a = {.send_cq = p.a.cq,
		.recv_cq = p.a.cq,
		.qp_type = IBV_QPT_RC,
		.pd = p.pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
		.cap = {4, 4, 1, 1, 0}};
	struct ibv_qp *qp = ibv_create_qp_ex(p.ctx, &a);
	assert_non_null(qp);
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qp);
	assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
	now = (struct rlimit){.rlim_cur = 1, .rlim_max = was.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_AS, &now), 0);
	unsigned n = 0;
	while (n < BLOCKS && (block[n] = malloc(BLOCK)))
		n++;
	int first = list_of_one(x, &p.a), second = list_of_one(x, &p.a);
	ibv_wr_start(x);
	ibv_wr_abort(x);
	while (n--)
		free(block[n]);
	assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
	assert_int_equal(first, ENOMEM);
	assert_int_equal(second, ENOMEM);
	assert_int_equal(list_of_one(x, &p.a), EINVAL); /* memory is back; it is in RESET */
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(
		pair_write_to(&p, 3, 64, (uintptr_t)p.b.buf, p.b.mr->rkey), IBV_WC_SUCCESS);
	assert_int_equal(ibv_poll_cq(p.a.cq, 1, &wc), 0);
	pair_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_that_begins_without_memory_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
