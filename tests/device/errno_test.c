/* SPDX-License-Identifier: BSD-3-Clause */
/* errno_test.c - a verb that fails says why twice: what it returns, and errno, as with a kernel's
 * device, whose commands set it. */
#include <errno.h>

#include "lib/test.h"
#include "pair.h"

static struct ibv_context *c;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_comp_channel *ch;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_qp *qp, *plain;
static struct ibv_mw *mw;
static uint8_t *buf;

static int begin(void **state)
{
	c = pair_open_loopback();
	pd = ibv_alloc_pd(c);
	buf = aligned_alloc(4096, 8192);
	mr = ibv_reg_mr(pd, buf, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	ch = ibv_create_comp_channel(c);
	cq = ibv_create_cq(c, 16, NULL, ch, 0);
	struct ibv_srq_init_attr sa = {.attr = {16, 1, 0}};
	srq = ibv_create_srq(pd, &sa);
	struct ibv_qp_init_attr qa = {.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.cap = {4, 4, 1, 1, 0},
		.qp_type = IBV_QPT_RC};
	qp = ibv_create_qp(pd, &qa);
	qa.srq = NULL;
	plain = ibv_create_qp(pd, &qa);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	assert_true(mr && ch && cq && srq && qp && plain && mw);
	return 0;
}

/* It fails with this number, in both places. */
static void both_are(int want, int got, const char *what)
{
	int seen = errno;
	errno = 0;
	if (got != want || seen != want)
		fail_msg("%s: returned %d, errno %d; expected %d", what, got, seen, want);
}
#define BOTH(want, call) \
	do { \
		errno = 0; \
		both_are(want, call, #call); \
	} while (0)

static void a_verb_that_returns_an_error_number_sets_errno(void **state)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS};
	struct ibv_port_attr port;
	struct ibv_srq_attr large = {.max_wr = 1u << 30}, limit = {.srq_limit = 1u << 30};
	struct ibv_modify_cq_attr moderate = {.attr_mask = 1u << 7};
	struct ibv_mw_bind bind = {.bind_info = {.mr = mr,
					   .addr = (uintptr_t)buf,
					   .length = 8,
					   .mw_access_flags = IBV_ACCESS_ZERO_BASED}};
	struct ibv_sge sge = {(uintptr_t)buf, 8, mr->lkey};
	struct ibv_recv_wr *bad_recv, recv = {.sg_list = &sge, .num_sge = 5};
	struct ibv_send_wr *bad_send,
		send = {.sg_list = &sge, .num_sge = 99, .opcode = IBV_WR_SEND};
	struct ibv_ece ece = {0};
	union ibv_gid gid = {{0}};
	BOTH(EBUSY, ibv_dealloc_pd(pd));
	BOTH(EBUSY, ibv_destroy_cq(cq));
	BOTH(EBUSY, ibv_destroy_srq(srq));
	BOTH(EBUSY, ibv_destroy_comp_channel(ch));
	BOTH(EINVAL, ibv_modify_qp(qp, &a, IBV_QP_STATE));
	BOTH(EINVAL, ibv_query_port(c, 9, &port));
	BOTH(EINVAL, ibv_resize_cq(cq, 1 << 30));
	BOTH(EINVAL, ibv_modify_cq(cq, &moderate));
	BOTH(EINVAL, ibv_modify_srq(srq, &large, IBV_SRQ_MAX_WR));
	BOTH(EINVAL, ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	BOTH(EINVAL, ibv_attach_mcast(qp, &gid, 0));
	BOTH(EINVAL, ibv_detach_mcast(qp, &gid, 0));
	BOTH(EINVAL, ibv_bind_mw(qp, mw, &bind));
	BOTH(EINVAL, ibv_post_srq_recv(srq, &recv, &bad_recv));
	BOTH(EINVAL, ibv_post_recv(plain, &recv, &bad_recv));
	struct pair up;
	pair_make(&up, 14, 7, 7);
	BOTH(EINVAL, ibv_post_send(up.a.qp, &send, &bad_send));
	pair_free(&up);
	BOTH(EOPNOTSUPP, ibv_query_ece(qp, &ece));
	BOTH(EOPNOTSUPP, ibv_set_ece(qp, &ece));
	BOTH(EINVAL, ibv_destroy_qp(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_verb_that_returns_an_error_number_sets_errno),
	};
	return cmocka_run_group_tests(tests, begin, NULL);
}
