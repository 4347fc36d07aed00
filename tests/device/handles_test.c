/* SPDX-License-Identifier: BSD-3-Clause */
/* handles_test.c - objects that are destroyed twice, whose number was overwritten, or that belong
 * to another context: ENOENT, as a kernel's device has it, and nothing is lost or broken by it. And
 * what the device says it has room for: so many, and no more. */
#include <errno.h>

#include "lib/test.h"
#include "pair.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

static struct ibv_context *c;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_comp_channel *ch;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_qp *qp;
static struct ibv_mw *mw;
static struct ibv_ah *ah;
static struct ibv_ah_attr ah_attr;
static uint8_t *buf;

static struct ibv_qp_init_attr qp_attr(void)
{
	return (struct ibv_qp_init_attr){.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.cap = {4, 4, 1, 1, 0},
		.qp_type = IBV_QPT_RC};
}

static int begin(void **state)
{
	struct ibv_srq_init_attr sa = {.attr = {16, 1, 0}};
	c = pair_open_loopback();
	pd = ibv_alloc_pd(c);
	buf = aligned_alloc(4096, 8192);
	mr = ibv_reg_mr(pd, buf, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	ch = ibv_create_comp_channel(c);
	cq = ibv_create_cq(c, 16, NULL, ch, 0);
	srq = ibv_create_srq(pd, &sa);
	struct ibv_qp_init_attr qa = qp_attr();
	qp = ibv_create_qp(pd, &qa);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	ah_attr = (struct ibv_ah_attr){
		.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .hop_limit = 64}};
	assert_int_equal(ibv_query_gid(c, 1, 1, &ah_attr.grh.dgid), 0);
	ah = ibv_create_ah(pd, &ah_attr);
	assert_true(mr && ch && cq && srq && qp && mw && ah);
	return 0;
}

static int end(void **state)
{
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	assert_int_equal(ibv_close_device(c), 0);
	free(buf);
	return 0;
}

/* With the number of that object overwritten the call gives ENOENT, and errno is that, too. */
#define GONE(handle, call) \
	do { \
		(handle) ^= 0xdeadbeef; \
		errno = 0; \
		int rc_ = (call); \
		(handle) ^= 0xdeadbeef; \
		if (rc_ != ENOENT || errno != ENOENT) \
			fail_msg("%s: returned %d, errno %d; expected ENOENT", #call, rc_, errno); \
	} while (0)
/* Likewise of one that makes something: NULL. */
#define NOTHING(handle, call) \
	do { \
		(handle) ^= 0xdeadbeef; \
		errno = 0; \
		void *made_ = (call); \
		(handle) ^= 0xdeadbeef; \
		if (made_ || errno != ENOENT) \
			fail_msg("%s: %p, errno %d; expected NULL, ENOENT", #call, made_, errno); \
	} while (0)

static void an_object_whose_number_was_overwritten_is_none(void **state)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_init_attr qa;
	struct ibv_srq_attr sa = {.srq_limit = 1};
	struct ibv_modify_cq_attr moderate = {.attr_mask = IBV_CQ_ATTR_MODERATE};
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	union ibv_gid group = {{0xff, 0x0e, [15] = 1}};
	GONE(pd->handle, ibv_dealloc_pd(pd));
	GONE(mr->handle, ibv_dereg_mr(mr));
	GONE(mw->handle, ibv_dealloc_mw(mw));
	GONE(cq->handle, ibv_destroy_cq(cq));
	GONE(cq->handle, ibv_resize_cq(cq, 32));
	GONE(cq->handle, ibv_modify_cq(cq, &moderate));
	GONE(cq->handle, ibv_req_notify_cq(cq, 0));
	GONE(srq->handle, ibv_destroy_srq(srq));
	GONE(srq->handle, ibv_modify_srq(srq, &sa, IBV_SRQ_LIMIT));
	GONE(srq->handle, ibv_query_srq(srq, &sa));
	GONE(qp->handle, ibv_destroy_qp(qp));
	GONE(qp->handle, ibv_modify_qp(qp, &a, init));
	GONE(qp->handle, ibv_query_qp(qp, &a, IBV_QP_STATE, &qa));
	GONE(qp->handle, ibv_attach_mcast(qp, &group, 0));
	GONE(qp->handle, ibv_detach_mcast(qp, &group, 0));
	GONE(ah->handle, ibv_destroy_ah(ah));
	mr->handle ^= 1;
	errno = 0;
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, pd, buf, 8192, 1),
		IBV_REREG_MR_ERR_CMD);
	assert_int_equal(errno, ENOENT);
	mr->handle ^= 1;
}

static struct ibv_qp *made_of(struct ibv_cq *s, struct ibv_cq *r, struct ibv_srq *q)
{
	struct ibv_qp_init_attr qa = qp_attr();
	qa.send_cq = s;
	qa.recv_cq = r;
	qa.srq = q;
	return ibv_create_qp(pd, &qa);
}

static void nothing_is_made_of_what_is_none(void **state)
{
	struct ibv_qp_init_attr qa = qp_attr();
	struct ibv_srq_init_attr sa = {.attr = {16, 1, 0}};
	struct ibv_parent_domain_init_attr domain = {.pd = pd};
	struct ibv_cq *other = ibv_create_cq(c, 4, NULL, NULL, 0);
	NOTHING(pd->handle, ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE));
	NOTHING(pd->handle, ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	NOTHING(pd->handle, ibv_alloc_null_mr(pd));
	NOTHING(pd->handle, ibv_create_srq(pd, &sa));
	NOTHING(pd->handle, ibv_create_qp(pd, &qa));
	NOTHING(pd->handle, ibv_create_ah(pd, &ah_attr));
	NOTHING(pd->handle, ibv_alloc_parent_domain(c, &domain));
	NOTHING(other->handle, made_of(other, cq, srq));
	NOTHING(other->handle, made_of(cq, other, srq));
	NOTHING(srq->handle, made_of(cq, cq, srq));
	assert_int_equal(ibv_destroy_cq(other), 0);
	/* nothing was kept: all of it can be made, and its parts be destroyed after it */
	struct ibv_qp *good = made_of(cq, cq, srq);
	assert_non_null(good);
	assert_int_equal(ibv_destroy_qp(good), 0);
}

/* Freed memory, which the C library has written into, or somebody else's by now. */
static void what_is_destroyed_twice_is_none(void **state)
{
	struct ibv_pd *p = ibv_alloc_pd(c);
	struct ibv_mr *m = ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mw *w = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_comp_channel *l = ibv_create_comp_channel(c);
	struct ibv_cq *q = ibv_create_cq(c, 4, NULL, NULL, 0);
	struct ibv_srq_init_attr sa = {.attr = {16, 1, 0}};
	struct ibv_srq *s = ibv_create_srq(pd, &sa);
	struct ibv_qp *x = made_of(cq, cq, srq);
	struct ibv_ah *h = ibv_create_ah(pd, &ah_attr);
	assert_true(p && m && w && l && q && s && x && h);
#define TWICE(call) \
	do { \
		assert_int_equal(call, 0); \
		errno = 0; \
		assert_int_equal(call, ENOENT); \
		assert_int_equal(errno, ENOENT); \
	} while (0)
	TWICE(ibv_dealloc_pd(p));
	TWICE(ibv_dereg_mr(m));
	TWICE(ibv_destroy_comp_channel(l));
	TWICE(ibv_destroy_cq(q));
	TWICE(ibv_destroy_srq(s));
	TWICE(ibv_destroy_qp(x));
	TWICE(ibv_destroy_ah(h));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	/* verbs.h itself reads this one's context first */
	TWICE(ibv_dealloc_mw(w));
#else
	assert_int_equal(ibv_dealloc_mw(w), 0);
#endif
	assert_null(ibv_create_ah(p, &ah_attr));
	assert_int_equal(errno, ENOENT);
}

/* What is left when its context is closed is gone with it (and its memory leaks). */
static void an_object_of_another_context_is_none(void **state)
{
	struct ibv_context *other = pair_open_loopback(), *own = pd->context;
	pd->context = other;
	assert_int_equal(ibv_dealloc_pd(pd), ENOENT);
	pd->context = own;
#ifndef __SANITIZE_ADDRESS__
	struct ibv_pd *left = ibv_alloc_pd(other);
	assert_non_null(left);
	assert_int_equal(ibv_close_device(other), 0);
	assert_int_equal(ibv_dealloc_pd(left), ENOENT);
#else
	assert_int_equal(ibv_close_device(other), 0);
#endif
}

static void a_device_has_as_many_as_it_says(void **state)
{
	struct ibv_device_attr a;
	assert_int_equal(ibv_query_device(c, &a), 0);
	/* no program of today shall meet one */
	assert_true(a.max_pd >= 65536 && a.max_cq >= 65536 && a.max_srq >= 65536 &&
		    a.max_qp >= 65536 && a.max_ah >= 65536 && a.max_mr >= 65536 &&
		    a.max_mw >= 65536);
	struct ibv_pd **p = calloc((size_t)a.max_pd, sizeof(struct ibv_pd *));
	assert_non_null(p);
	int n = 0;
	while (n < a.max_pd && (p[n] = ibv_alloc_pd(c)))
		n++;
	assert_int_equal(n, a.max_pd - 1); /* and the test's own */
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(ibv_dealloc_pd(p[--n]), 0);
	assert_non_null(p[n] = ibv_alloc_pd(c));
	for (int i = 0; i <= n; i++)
		assert_int_equal(ibv_dealloc_pd(p[i]), 0);
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_object_whose_number_was_overwritten_is_none),
		cmocka_unit_test(nothing_is_made_of_what_is_none),
		cmocka_unit_test(what_is_destroyed_twice_is_none),
		cmocka_unit_test(an_object_of_another_context_is_none),
		cmocka_unit_test(a_device_has_as_many_as_it_says),
	};
	return cmocka_run_group_tests(tests, begin, end);
}
