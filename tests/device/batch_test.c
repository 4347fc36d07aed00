/* SPDX-License-Identifier: BSD-3-Clause */
/* batch_test.c - a list of ibv_wr_start .. ibv_wr_complete: it may hold what the send queue holds,
 * and is posted whole or not at all (ibv_wr_post(3)). */
#include <errno.h>
#include <unistd.h>

#include "lib/test.h"
#include "pair.h"

enum { WRS = 2048, SGES = 16, INLINE = 512, CQES = 8192, PIECE = 8 };

static struct pair p;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_qp_ex *ex;

static struct ibv_qp *qp_new(void)
{
	struct ibv_qp_init_attr_ex a = {.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = WRS,
			.max_recv_wr = 1,
			.max_send_sge = SGES,
			.max_recv_sge = 1,
			.max_inline_data = INLINE},
		.pd = p.pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ};
	struct ibv_qp *q = ibv_create_qp_ex(p.ctx, &a);
	assert_non_null(q);
	return q;
}

static int begin(void **state)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
	pair_make(&p, 14, 7, 7);
	cq = ibv_create_cq(p.ctx, CQES, NULL, NULL, 0);
	assert_non_null(cq);
	qp = qp_new();
	ex = ibv_qp_to_qp_ex(qp);
	struct side s = {.qp = qp, .cq = cq, .psn = 500};
	struct side *sides[] = {&s, &p.b};
	assert_int_equal(
		ibv_modify_qp(qp, &a,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	/* side b's QP is made anew for it */
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	assert_int_equal(ibv_modify_qp(sides[1]->qp, &reset, IBV_QP_STATE), 0);
	assert_int_equal(
		ibv_modify_qp(sides[1]->qp, &a,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	side_connect_to(&p, &s, p.b.qp->qp_num, p.b.psn);
	side_connect_to(&p, &p.b, qp->qp_num, s.psn);
	return 0;
}

static int end(void **state)
{
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	pair_free(&p);
	return 0;
}

static void one(unsigned i)
{
	ex->wr_id = i;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, p.b.mr->rkey, (uintptr_t)p.b.buf + i * (uint64_t)PIECE);
}

static void all_done(unsigned n)
{
	struct ibv_wc wc;
	for (unsigned i = 0; i < n; i++) {
		assert_true(pair_poll(cq, &wc, 5000));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
	}
}
static void nothing_comes(void)
{
	struct ibv_wc wc;
	assert_false(pair_poll(cq, &wc, 50));
}

static void a_list_holds_what_the_queue_holds(void **state)
{
	memset(p.b.buf, 0, PAIR_BUF);
	pattern_fill(p.a.buf, WRS * PIECE, 3);
	ibv_wr_start(ex);
	for (unsigned i = 0; i < WRS; i++) {
		one(i);
		ibv_wr_set_sge(ex, p.a.mr->lkey, (uintptr_t)p.a.buf + i * (uint64_t)PIECE, PIECE);
	}
	assert_int_equal(ibv_wr_complete(ex), 0);
	all_done(WRS);
	assert_true(pattern_holds(p.b.buf, WRS * PIECE, 3));
}

static void with_as_many_pieces_as_it_takes(void **state)
{
	memset(p.b.buf, 0, PAIR_BUF);
	pattern_fill(p.a.buf, WRS * PIECE, 4);
	ibv_wr_start(ex);
	for (unsigned i = 0; i < WRS / 2; i++) {
		struct ibv_sge s[SGES];
		for (unsigned k = 0; k < SGES; k++)
			s[k] = (struct ibv_sge){(uintptr_t)p.a.buf + (i * SGES + k) % (WRS * PIECE),
				1, p.a.mr->lkey};
		ex->wr_id = i;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(ex, p.b.mr->rkey, (uintptr_t)p.b.buf + i * (uint64_t)SGES);
		ibv_wr_set_sge_list(ex, SGES, s);
	}
	assert_int_equal(ibv_wr_complete(ex), 0);
	all_done(WRS / 2);
	assert_true(pattern_holds(p.b.buf, (size_t)WRS / 2 * SGES, 4));
}

static void and_as_much_inline_data(void **state)
{
	memset(p.b.buf, 0, PAIR_BUF);
	pattern_fill(p.a.buf, PAIR_BUF, 5);
	ibv_wr_start(ex);
	for (unsigned i = 0; i < WRS; i++) {
		struct ibv_data_buf parts[] = {{p.a.buf + i * (size_t)INLINE, 100},
			{p.a.buf + i * (size_t)INLINE + 100, INLINE - 100}};
		ex->wr_id = i;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(ex, p.b.mr->rkey, (uintptr_t)p.b.buf + i * (uint64_t)INLINE);
		ibv_wr_set_inline_data_list(ex, 2, parts);
	}
	assert_int_equal(ibv_wr_complete(ex), 0);
	all_done(WRS);
	assert_true(pattern_holds(p.b.buf, PAIR_BUF, 5));
}

static void one_request_too_many_and_none_is_posted(void **state)
{
	ibv_wr_start(ex);
	for (unsigned i = 0; i < WRS + 1; i++) {
		one(0);
		ibv_wr_set_inline_data(ex, p.a.buf, PIECE);
	}
	assert_int_equal(ibv_wr_complete(ex), ENOMEM);
	nothing_comes();
}

static void too_little_room_and_none_is_posted(void **state)
{
	struct ibv_qp_attr down = {.qp_state = IBV_QPS_RESET};
	/* side b is deaf for a moment: what is posted stays */
	assert_int_equal(ibv_modify_qp(p.b.qp, &down, IBV_QP_STATE), 0);
	ibv_wr_start(ex);
	for (unsigned i = 0; i < WRS - 10; i++) {
		one(i);
		ibv_wr_set_inline_data(ex, p.a.buf, PIECE);
	}
	assert_int_equal(ibv_wr_complete(ex), 0);
	ibv_wr_start(ex);
	for (unsigned i = 0; i < 11; i++) {
		one(9999);
		ibv_wr_set_inline_data(ex, p.a.buf, PIECE);
	}
	assert_int_equal(ibv_wr_complete(ex), ENOMEM);
	/* the ten that there is room for are still to be had */
	ibv_wr_start(ex);
	for (unsigned i = 0; i < 10; i++) {
		one(WRS - 10 + i);
		ibv_wr_set_inline_data(ex, p.a.buf, PIECE);
	}
	assert_int_equal(ibv_wr_complete(ex), 0);
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	struct ibv_wc wc;
	assert_int_equal(ibv_modify_qp(qp, &err, IBV_QP_STATE), 0);
	for (unsigned i = 0; i < WRS; i++) {
		assert_true(pair_poll(cq, &wc, 5000));
		assert_int_equal(wc.wr_id, i);
	}
	nothing_comes();
}

/* The fault in the middle, where those before it are in order. */
static void bad_one(unsigned kind)
{
	static uint8_t much[INLINE + 1];
	struct ibv_sge s[SGES + 1] = {{0}};
	one(1);
	if (kind == 0)
		ibv_wr_set_inline_data(ex, much, sizeof(much));
	else if (kind == 1)
		ibv_wr_set_sge_list(ex, SGES + 1, s);
	else if (kind == 2)
		ibv_wr_set_sge_list(ex, 2,
			(struct ibv_sge[]){{(uintptr_t)p.a.buf, 1u << 31, p.a.mr->lkey},
				{(uintptr_t)p.a.buf, 1, p.a.mr->lkey}});
	else { /* a READ cannot be inline */
		ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
		ibv_wr_rdma_read(ex, p.b.mr->rkey, (uintptr_t)p.b.buf);
		ibv_wr_set_sge(ex, p.a.mr->lkey, (uintptr_t)p.a.buf, 8);
	}
}
static void a_bad_one_in_the_middle_and_none_is_posted(void **state)
{
	for (unsigned kind = 0; kind < 4; kind++) {
		ibv_wr_start(ex);
		for (unsigned i = 0; i < 5; i++) {
			one(0);
			ibv_wr_set_inline_data(ex, p.a.buf, PIECE);
		}
		bad_one(kind);
		for (unsigned i = 0; i < 5; i++) {
			one(0);
			ibv_wr_set_inline_data(ex, p.a.buf, PIECE);
		}
		assert_int_equal(ibv_wr_complete(ex), EINVAL);
		nothing_comes();
	}
}
/* Where each is flushed as it is posted. */
static void nor_in_a_qp_that_is_in_err(void **state)
{
	a_bad_one_in_the_middle_and_none_is_posted(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_holds_what_the_queue_holds),
		cmocka_unit_test(with_as_many_pieces_as_it_takes),
		cmocka_unit_test(and_as_much_inline_data),
		cmocka_unit_test(one_request_too_many_and_none_is_posted),
		cmocka_unit_test(a_bad_one_in_the_middle_and_none_is_posted),
		cmocka_unit_test(too_little_room_and_none_is_posted),
		cmocka_unit_test(nor_in_a_qp_that_is_in_err),
	};
	return cmocka_run_group_tests(tests, begin, end);
}
