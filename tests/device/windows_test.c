/* SPDX-License-Identifier: BSD-3-Clause */
/* windows_test.c - memory windows of both types: rights, bounds, invalidation, refusals.
 * Through the drop-in, as a program sees it. */
#include <errno.h>

#include "lib/test.h"
#include "pair.h"

enum { RW = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

enum { WINDOW_AT = 8192, WINDOW_LEN = 4096 };

static struct ibv_mr *bindable(struct pair *p, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(p->pd, p->b.buf, PAIR_BUF, access | IBV_ACCESS_MW_BIND);
	assert_non_null(mr);
	return mr;
}

static int post_bind(struct side *s, struct ibv_mw *mw, uint32_t rkey, struct ibv_mr *mr,
	uint64_t addr, uint64_t len, unsigned access)
{
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_BIND_MW};
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){mr, addr, len, access};
	return ibv_post_send(s->qp, &wr, &bad);
}

static void local_inv(struct side *s, uint32_t rkey)
{
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = rkey};
	assert_int_equal(ibv_post_send(s->qp, &wr, &bad), 0);
}

static void a_window_of_type_1_opens_a_part(void **state)
{
	struct pair p;
	pair_make(&p, 14, 7, 7);
	struct ibv_mr *mr = bindable(&p, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mw *mw = ibv_alloc_mw(p.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {
			mr, (uintptr_t)p.b.buf + WINDOW_AT, WINDOW_LEN, IBV_ACCESS_REMOTE_WRITE}};
	pattern_fill(p.b.buf, PAIR_BUF, 1);
	uint32_t first = mw->rkey;
	assert_int_equal(ibv_bind_mw(p.b.qp, mw, &bind), 0);
	assert_int_not_equal(mw->rkey, first);
	assert_int_equal(mw->rkey >> 8, first >> 8);
	struct ibv_wc wc;
	assert_true(pair_poll(p.b.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_BIND_MW);
	assert_int_equal(pair_write_to(&p, 2, WINDOW_LEN, (uintptr_t)p.b.buf + WINDOW_AT, mw->rkey),
		IBV_WC_SUCCESS);
	assert_true(pattern_holds(p.b.buf + WINDOW_AT, WINDOW_LEN, 2));
	/* A region with a window is not to be had back, nor changed. */
	assert_int_equal(ibv_dereg_mr(mr), EBUSY);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RW),
		IBV_REREG_MR_ERR_CMD);
	assert_int_equal(errno, EBUSY);
	/* Bound anew, the old key is none; bound to nothing, neither is the new one. */
	uint32_t old = mw->rkey;
	assert_int_equal(ibv_bind_mw(p.b.qp, mw, &bind), 0);
	assert_int_equal(side_done(&p.b), IBV_WC_SUCCESS);
	assert_int_equal(pair_write_to(&p, 3, 8, (uintptr_t)p.b.buf + WINDOW_AT, old),
		IBV_WC_REM_ACCESS_ERR);
	assert_true(pattern_holds(p.b.buf + WINDOW_AT, WINDOW_LEN, 2));
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	pair_free(&p);
}

/* One request against a window of type 2 with these rights. */
static enum ibv_wc_status through_window(unsigned access, enum ibv_wr_opcode op, uint64_t at,
	uint32_t len, unsigned mr_access, enum ibv_wc_status *bound)
{
	struct pair p;
	enum ibv_wc_status status = IBV_WC_GENERAL_ERR;
	pair_make(&p, 14, 7, 7);
	struct ibv_mr *mr = bindable(&p, (int)mr_access);
	struct ibv_mw *mw = ibv_alloc_mw(p.pd, IBV_MW_TYPE_2);
	uint32_t key = ibv_inc_rkey(mw->rkey);
	uint64_t base = access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)p.b.buf + WINDOW_AT;
	pattern_fill(p.a.buf, PAIR_BUF, 7);
	pattern_fill(p.b.buf, PAIR_BUF, 8);
	assert_int_equal(
		post_bind(&p.b, mw, key, mr, (uintptr_t)p.b.buf + WINDOW_AT, WINDOW_LEN, access),
		0);
	*bound = side_done(&p.b);
	if (*bound == IBV_WC_SUCCESS) {
		assert_int_equal(pair_send(&p.a, op, 0, len, base + at, key), 0);
		status = side_done(&p.a);
		if (status == IBV_WC_SUCCESS && op == IBV_WR_RDMA_WRITE) {
			assert_memory_equal(p.b.buf + WINDOW_AT + at, p.a.buf, len);
		} else {
			assert_true(pattern_holds(p.b.buf, PAIR_BUF, 8));
			if (status == IBV_WC_SUCCESS)
				assert_memory_equal(p.a.buf, p.b.buf + WINDOW_AT + at, len);
		}
	}
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	pair_free(&p);
	return status;
}

/* The program owns the key's lowest byte; what it says of the others is not listened to (IB
 * 10.6.7.2.4; kernel rxe and mlx5 alike). */
static void a_bind_takes_the_lowest_byte_of_the_key(void **state)
{
	struct pair p;
	pair_make(&p, 14, 7, 7);
	struct ibv_mr *mr = bindable(&p, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mw *mw = ibv_alloc_mw(p.pd, IBV_MW_TYPE_2);
	uint32_t key = (mw->rkey & ~0xffu) | ((mw->rkey + 9) & 0xff);
	assert_int_equal(post_bind(&p.b, mw, key ^ 0x5a5a00, mr, (uintptr_t)p.b.buf + WINDOW_AT,
				 WINDOW_LEN, IBV_ACCESS_REMOTE_WRITE),
		0);
	assert_int_equal(side_done(&p.b), IBV_WC_SUCCESS);
	/* what the window has now, for who looks there (irdma) */
	assert_int_equal(mw->rkey, key);
	assert_int_equal(pair_write_to(&p, 3, WINDOW_LEN, (uintptr_t)p.b.buf + WINDOW_AT, key),
		IBV_WC_SUCCESS);
	assert_true(pattern_holds(p.b.buf + WINDOW_AT, WINDOW_LEN, 3));
	assert_int_equal(
		pair_write_to(&p, 4, WINDOW_LEN, (uintptr_t)p.b.buf + WINDOW_AT, key ^ 0x5a5a00),
		IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	pair_free(&p);
}

static void a_window_of_type_2_has_its_own_rights_and_bounds(void **state)
{
	enum {
		LW = IBV_ACCESS_LOCAL_WRITE,
		W = IBV_ACCESS_REMOTE_WRITE,
		R = IBV_ACCESS_REMOTE_READ,
		ZB = IBV_ACCESS_ZERO_BASED
	};
	static const struct {
		unsigned access;
		enum ibv_wr_opcode op;
		int64_t at;
		uint32_t len;
		enum ibv_wc_status want;
	} rows[] = {
		{W, IBV_WR_RDMA_WRITE, 0, WINDOW_LEN, IBV_WC_SUCCESS},
		{W, IBV_WR_RDMA_WRITE, 1, WINDOW_LEN, IBV_WC_REM_ACCESS_ERR},
		{W, IBV_WR_RDMA_WRITE, -1, 8, IBV_WC_REM_ACCESS_ERR},
		{W, IBV_WR_RDMA_READ, 0, 8, IBV_WC_REM_ACCESS_ERR},
		{R, IBV_WR_RDMA_READ, 8, WINDOW_LEN - 8, IBV_WC_SUCCESS},
		{R, IBV_WR_RDMA_WRITE, 0, 8, IBV_WC_REM_ACCESS_ERR},
		{W | ZB, IBV_WR_RDMA_WRITE, 16, 100, IBV_WC_SUCCESS},
		{W | ZB, IBV_WR_RDMA_WRITE, WINDOW_LEN - 7, 8, IBV_WC_REM_ACCESS_ERR},
		{R | ZB, IBV_WR_RDMA_READ, 0, WINDOW_LEN, IBV_WC_SUCCESS},
	};
	enum ibv_wc_status bound;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		IN_CASE("row", i);
		assert_int_equal(through_window(rows[i].access, rows[i].op, (uint64_t)rows[i].at,
					 rows[i].len, LW, &bound),
			rows[i].want);
		assert_int_equal(bound, IBV_WC_SUCCESS);
	}
	/* C10-74: a window that changes memory needs a region that may be written. */
	through_window(W, IBV_WR_RDMA_WRITE, 0, 8, 0, &bound);
	assert_int_equal(bound, IBV_WC_MW_BIND_ERR);
	assert_int_equal(through_window(R, IBV_WR_RDMA_READ, 0, 8, 0, &bound), IBV_WC_SUCCESS);
}

static void invalidation_closes_a_window_of_type_2(void **state)
{
	struct pair p;
	struct ibv_wc wc;
	pair_make(&p, 14, 7, 7);
	struct ibv_mr *mr = bindable(&p, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mw *mw = ibv_alloc_mw(p.pd, IBV_MW_TYPE_2);
	uint64_t at = (uintptr_t)p.b.buf + WINDOW_AT;
	uint32_t key = mw->rkey;
	for (unsigned i = 0; i < 300; i++) { /* more than there are tags */
		key = ibv_inc_rkey(key);
		assert_int_equal(
			post_bind(&p.b, mw, key, mr, at, WINDOW_LEN, IBV_ACCESS_REMOTE_WRITE), 0);
		assert_int_equal(side_done(&p.b), IBV_WC_SUCCESS);
		assert_int_equal(pair_write_to(&p, i, 64, at, key), IBV_WC_SUCCESS);
		assert_true(pattern_holds(p.b.buf + WINDOW_AT, 64, i));
		if (i % 2) {
			local_inv(&p.b, key);
			assert_int_equal(side_done(&p.b), IBV_WC_SUCCESS);
		} else { /* by its user, with a message */
			pair_recv(&p.b, 0, 64, i);
			struct ibv_send_wr *bad,
				wr = {.opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = key};
			assert_int_equal(ibv_post_send(p.a.qp, &wr, &bad), 0);
			assert_true(pair_poll(p.b.cq, &wc, 5000));
			assert_int_equal(wc.wc_flags, IBV_WC_WITH_INV);
			assert_int_equal(wc.invalidated_rkey, key);
			assert_int_equal(side_done(&p.a), IBV_WC_SUCCESS);
		}
	}
	pattern_fill(p.b.buf, PAIR_BUF, 5);
	assert_int_equal(pair_write_to(&p, 6, 64, at, key), IBV_WC_REM_ACCESS_ERR);
	assert_true(pattern_holds(p.b.buf, PAIR_BUF, 5));
	assert_int_equal(ibv_dereg_mr(mr), 0); /* nothing is bound any more */
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	pair_free(&p);
}

/* Each is refused where it is posted, or fails with the status of a bind. */
static void a_bind_that_may_not_be_is_refused(void **state)
{
	for (int i = 0; i < 8; i++) {
		struct pair p;
		pair_make(&p, 14, 7, 7);
		struct ibv_pd *other = ibv_alloc_pd(p.ctx);
		struct ibv_mr *mr = bindable(&p, IBV_ACCESS_LOCAL_WRITE),
			      *plain = ibv_reg_mr(p.pd, p.b.buf, 4096, RW);
		struct ibv_mw *mw = ibv_alloc_mw(i == 4 ? other : p.pd, IBV_MW_TYPE_2);
		uint64_t at = (uintptr_t)p.b.buf;
		uint32_t key = ibv_inc_rkey(mw->rkey);
		unsigned w = IBV_ACCESS_REMOTE_WRITE;
		int rc = i == 0   ? post_bind(&p.b, mw, key, plain, at, 64, w) /* no MW_BIND */
			 : i == 1 ? post_bind(&p.b, mw, key, mr, at, PAIR_BUF + 1, w)
			 : i == 2 ? post_bind(&p.b, mw, key, mr, at, 0, w)
			 : i == 3 ? post_bind(&p.b, mw, key, mr, at, UINT64_MAX, w)
			 : i == 4 ? post_bind(&p.b, mw, key, mr, at, 64, w) /* another PD's */
			 : i == 5 ? post_bind(&p.b, mw, key, NULL, at, 64, w)
			 : i == 6 ? post_bind(&p.b, mw, key, mr, at, 64, w | IBV_ACCESS_ON_DEMAND)
				  : post_bind(&p.b, mw, key, mr, at - 1, 64, w);
		assert_int_equal(rc, 0);
		assert_int_equal(side_done(&p.b), IBV_WC_MW_BIND_ERR);
		assert_int_equal(ibv_dealloc_mw(mw), 0);
		assert_int_equal(ibv_dereg_mr(mr) | ibv_dereg_mr(plain), 0);
		assert_int_equal(ibv_dealloc_pd(other), 0);
		pair_free(&p);
	}
	struct pair p;
	pair_make(&p, 14, 7, 7);
	assert_int_equal(post_bind(&p.b, NULL, 1, p.b.mr, 0, 64, 0), EINVAL);
	struct ibv_mw *one = ibv_alloc_mw(p.pd, IBV_MW_TYPE_1),
		      *two = ibv_alloc_mw(p.pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = {
		.bind_info = {p.b.mr, (uintptr_t)p.b.buf, 64, IBV_ACCESS_ZERO_BASED}};
	assert_int_equal(ibv_bind_mw(p.b.qp, one, &bind), EINVAL); /* o10-36.2.2 */
	bind.bind_info.mw_access_flags = 0;
	assert_int_equal(ibv_bind_mw(p.b.qp, two, &bind), EINVAL);
	bind.bind_info.mr = NULL;
	assert_int_equal(ibv_bind_mw(p.b.qp, one, &bind), EINVAL);
	errno = 0;
	assert_null(ibv_alloc_mw(p.pd, (enum ibv_mw_type)3));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_dealloc_mw(one) | ibv_dealloc_mw(two), 0);
	pair_free(&p);
}

static void a_window_of_type_1_cannot_be_invalidated(void **state)
{
	struct pair p;
	pair_make(&p, 14, 7, 7);
	struct ibv_mr *mr = bindable(&p, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mw *mw = ibv_alloc_mw(p.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.bind_info = {mr, (uintptr_t)p.b.buf, 64, IBV_ACCESS_REMOTE_READ}};
	assert_int_equal(ibv_bind_mw(p.b.qp, mw, &bind), 0);
	assert_int_equal(side_done(&p.b), IBV_WC_SUCCESS);
	local_inv(&p.b, mw->rkey);
	assert_int_equal(side_done(&p.b), IBV_WC_LOC_QP_OP_ERR);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	pair_free(&p);
}

/* A bind that waits for its turn while the program frees what it names: it fails, and touches
 * nothing of theirs (ASan would tell). And a window whose QP is gone is nobody's. */
static void freed_objects_are_not_bound(void **state)
{
	struct pair p;
	pair_make(&p, 14, 7, 7);
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD};
	for (int window = 0; window < 2; window++) {
		attr.qp_state = IBV_QPS_SQD;
		struct side *s = window ? &p.a : &p.b;
		mr = bindable(&p, IBV_ACCESS_LOCAL_WRITE);
		mw = ibv_alloc_mw(p.pd, IBV_MW_TYPE_2);
		assert_int_equal(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
		assert_int_equal(post_bind(s, mw, ibv_inc_rkey(mw->rkey), mr, (uintptr_t)p.b.buf,
					 64, IBV_ACCESS_REMOTE_READ),
			0);
		if (window)
			assert_int_equal(ibv_dealloc_mw(mw), 0);
		assert_int_equal(ibv_dereg_mr(mr), 0);
		attr.qp_state = IBV_QPS_RTS;
		assert_int_equal(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
		assert_int_equal(side_done(s), IBV_WC_MW_BIND_ERR);
		if (!window)
			assert_int_equal(ibv_dealloc_mw(mw), 0);
	}
	pair_free(&p);

	pair_make(&p, 14, 7, 7);
	mr = bindable(&p, IBV_ACCESS_LOCAL_WRITE);
	mw = ibv_alloc_mw(p.pd, IBV_MW_TYPE_2);
	assert_int_equal(post_bind(&p.b, mw, ibv_inc_rkey(mw->rkey), mr, (uintptr_t)p.b.buf, 64,
				 IBV_ACCESS_REMOTE_READ),
		0);
	assert_int_equal(side_done(&p.b), IBV_WC_SUCCESS);
	assert_int_equal(ibv_dereg_mr(mr), EBUSY);
	struct ibv_mr *b = p.b.mr;
	p.b.mr = mr;
	side_free(&p.b); /* destroys the QP first: then its windows hold no region (o10-37.2.37) */
	assert_int_equal(ibv_dereg_mr(b), 0);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	side_free(&p.a);
	assert_int_equal(ibv_dealloc_pd(p.pd), 0);
	assert_int_equal(ibv_close_device(p.ctx), 0);
}

/* By the ibv_wr_* calls: windows and ATOMIC WRITE in one list; the 8 bytes are taken at once. */
static void the_newer_calls_post_them_too(void **state)
{
	struct pair p;
	pair_make(&p, 14, 7, 7);
	struct ibv_qp_init_attr_ex init = {.send_cq = p.a.cq,
		.recv_cq = p.a.cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.pd = p.pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | 1 << 12,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp_ex(p.ctx, &init), *old = p.a.qp;
	assert_non_null(qp);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	assert_int_equal(
		ibv_modify_qp(qp, &attr,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	p.a.qp = qp;
	side_connect_to(&p, &p.a, qp->qp_num, p.a.psn); /* to itself */
	struct ibv_mr *mr = bindable(&p, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mw *mw = ibv_alloc_mw(p.pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info info = {
		mr, (uintptr_t)p.b.buf + WINDOW_AT, 64, IBV_ACCESS_REMOTE_WRITE};
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qp);
	uint32_t key = ibv_inc_rkey(mw->rkey);
	uint64_t value = 0x1122334455667788;
	pattern_fill(p.b.buf, PAIR_BUF, 3);
	ibv_wr_start(x);
	ibv_wr_bind_mw(x, mw, key, &info);
	ibv_wr_atomic_write(x, key, (uintptr_t)p.b.buf + WINDOW_AT + 8, &value);
	value = 0;
	ibv_wr_local_inv(x, key);
	assert_int_equal(ibv_wr_complete(x), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(side_done(&p.a), IBV_WC_SUCCESS);
	value = 0x1122334455667788;
	assert_memory_equal(p.b.buf + WINDOW_AT + 8, &value, 8);
	assert_true(pattern_holds(p.b.buf, WINDOW_AT + 8, 3));
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	p.a.qp = old;
	pair_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_window_of_type_1_opens_a_part),
		cmocka_unit_test(a_bind_takes_the_lowest_byte_of_the_key),
		cmocka_unit_test(a_window_of_type_2_has_its_own_rights_and_bounds),
		cmocka_unit_test(invalidation_closes_a_window_of_type_2),
		cmocka_unit_test(a_bind_that_may_not_be_is_refused),
		cmocka_unit_test(a_window_of_type_1_cannot_be_invalidated),
		cmocka_unit_test(freed_objects_are_not_bound),
		cmocka_unit_test(the_newer_calls_post_them_too),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
