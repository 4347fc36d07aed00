/* SPDX-License-Identifier: BSD-3-Clause */
/* posts_test.c - a post in each state of each kind of QP, of each opcode, in chains with a bad one
 * among them: refused with EINVAL and the bad request, flushed, kept or sent, and nothing else. */
#include <errno.h>

#include "lib/test.h"
#include "pair.h"

enum { LEN = 8, POSTS = 16 };

/* How the QP came to the state. */
enum way {
	NEW,     /* RESET */
	REFUSED, /* RESET, after a modify that was refused */
	INIT,
	INIT_REFUSED, /* INIT, after a modify to RTR that was refused */
	INIT_ERR,     /* ERR, straight from INIT */
	RTR,
	SQD,
	ERR,         /* after RTS */
	RESET_AGAIN, /* RESET, after RTS */
	WAYS,
};
static const struct {
	const char *name;
	enum ibv_qp_state state;
} ways[WAYS] = {
	[NEW] = {"new", IBV_QPS_RESET},
	[REFUSED] = {"RESET, after a refused modify", IBV_QPS_RESET},
	[INIT] = {"INIT", IBV_QPS_INIT},
	[INIT_REFUSED] = {"INIT, after a refused modify", IBV_QPS_INIT},
	[INIT_ERR] = {"ERR from INIT", IBV_QPS_ERR},
	[RTR] = {"RTR", IBV_QPS_RTR},
	[SQD] = {"SQD", IBV_QPS_SQD},
	[ERR] = {"ERR from RTS", IBV_QPS_ERR},
	[RESET_AGAIN] = {"RESET, after RTS", IBV_QPS_RESET},
};

struct fixture {
	struct pair p;
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_ah *ah;
	struct ibv_mw *mw;
	uint8_t *buf;
	struct ibv_mr *mr;
};

static int to(struct fixture *f, enum ibv_qp_state state)
{
	bool ud = f->qp->qp_type == IBV_QPT_UD, rc = f->qp->qp_type == IBV_QPT_RC;
	struct ibv_qp_attr a = {.qp_state = state,
		.port_num = 1,
		.qkey = 0x11,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = f->qp->qp_num,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1}}};
	int mask = IBV_QP_STATE;
	assert_int_equal(ibv_query_gid(f->p.ctx, 1, 1, &a.ah_attr.grh.dgid), 0);
	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (state == IBV_QPS_RTR && !ud)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (state == IBV_QPS_RTR && rc)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (state == IBV_QPS_RTS)
		mask |= IBV_QP_SQ_PSN;
	if (state == IBV_QPS_RTS && rc)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(f->qp, &a, mask);
}

static void refused(struct fixture *f)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS};
	assert_int_equal(ibv_modify_qp(f->qp, &a, IBV_QP_STATE), EINVAL);
}

static void bring(struct fixture *f, enum way way)
{
	bool connects = way == RTR || way == SQD || way == ERR || way == RESET_AGAIN;
	if (way == REFUSED)
		refused(f);
	if (way != NEW && way != REFUSED)
		assert_int_equal(to(f, IBV_QPS_INIT), 0);
	if (way == INIT_REFUSED)
		refused(f);
	if (connects)
		assert_int_equal(to(f, IBV_QPS_RTR), 0);
	if (connects && way != RTR)
		assert_int_equal(to(f, IBV_QPS_RTS), 0);
	if (way == SQD)
		assert_int_equal(to(f, IBV_QPS_SQD), 0);
	if (way == ERR || way == INIT_ERR)
		assert_int_equal(to(f, IBV_QPS_ERR), 0);
	if (way == RESET_AGAIN)
		assert_int_equal(to(f, IBV_QPS_RESET), 0);
	assert_int_equal(f->qp->state, ways[way].state);
}

static void begin(struct fixture *f, enum ibv_qp_type type, enum way way, bool srq)
{
	memset(f, 0, sizeof(*f));
	f->p.ctx = pair_open_loopback();
	f->p.pd = ibv_alloc_pd(f->p.ctx);
	f->cq = ibv_create_cq(f->p.ctx, 64, NULL, NULL, 0);
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 4, .max_sge = 1}};
	f->srq = srq ? ibv_create_srq(f->p.pd, &sa) : NULL;
	struct ibv_qp_init_attr_ex a = {.qp_type = type,
		.send_cq = f->cq,
		.recv_cq = f->cq,
		.srq = f->srq,
		.cap = {POSTS, 4, 2, 1, 32},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = f->p.pd,
		.send_ops_flags =
			IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ};
	f->qp = ibv_create_qp_ex(f->p.ctx, &a);
	f->buf = calloc(1, 4096);
	f->mr = ibv_reg_mr(f->p.pd, f->buf, 4096,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_MW_BIND);
	f->mw = ibv_alloc_mw(f->p.pd, IBV_MW_TYPE_2);
	assert_true(f->qp && f->mr && f->mw && (f->srq || !srq));
	struct ibv_ah_attr ah = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1}};
	assert_int_equal(ibv_query_gid(f->p.ctx, 1, 1, &ah.grh.dgid), 0);
	f->ah = ibv_create_ah(f->p.pd, &ah);
	assert_non_null(f->ah);
	bring(f, way);
}

static void end(struct fixture *f)
{
	assert_int_equal(ibv_destroy_qp(f->qp), 0);
	if (f->srq)
		assert_int_equal(ibv_destroy_srq(f->srq), 0);
	assert_int_equal(ibv_destroy_ah(f->ah), 0);
	assert_int_equal(ibv_dealloc_mw(f->mw), 0);
	assert_int_equal(ibv_dereg_mr(f->mr), 0);
	assert_int_equal(ibv_destroy_cq(f->cq), 0);
	assert_int_equal(ibv_dealloc_pd(f->p.pd), 0);
	assert_int_equal(ibv_close_device(f->p.ctx), 0);
	free(f->buf);
}

static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
	IBV_WR_SEND_WITH_INV, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV, IBV_WR_BIND_MW};
enum { OPCODES = sizeof(opcodes) / sizeof(opcodes[0]) };

/* IB 11.4.1.1, table 38 */
static bool has(enum ibv_qp_type type, enum ibv_wr_opcode op)
{
	if (type == IBV_QPT_RC)
		return true;
	if (type == IBV_QPT_UD)
		return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM;
	return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE ||
	       op == IBV_WR_RDMA_WRITE_WITH_IMM || op == IBV_WR_LOCAL_INV || op == IBV_WR_BIND_MW;
}

static void request(const struct fixture *f, enum ibv_wr_opcode op, uint64_t id,
	struct ibv_sge *sge, struct ibv_send_wr *wr)
{
	*sge = (struct ibv_sge){(uintptr_t)f->buf, LEN, f->mr->lkey};
	*wr = (struct ibv_send_wr){.wr_id = id,
		.opcode = op,
		.sg_list = sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED};
	if (op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.remote_addr = (uintptr_t)f->buf + 64;
		wr->wr.atomic.rkey = f->mr->rkey;
	} else if (op == IBV_WR_BIND_MW) {
		wr->bind_mw.mw = f->mw;
		wr->bind_mw.rkey = ibv_inc_rkey(f->mw->rkey);
		wr->bind_mw.bind_info = (struct ibv_mw_bind_info){
			.mr = f->mr, .addr = (uintptr_t)f->buf, .length = 64};
	} else if (f->qp->qp_type == IBV_QPT_UD) {
		wr->wr.ud.ah = f->ah;
		wr->wr.ud.remote_qpn = f->qp->qp_num;
		wr->wr.ud.remote_qkey = 0x11;
	} else {
		wr->wr.rdma.remote_addr = (uintptr_t)f->buf + 64;
		wr->wr.rdma.rkey = f->mr->rkey;
	}
}

/* Flushed, in order, those from `id` on; and no more. */
static void flushed(const struct fixture *f, uint64_t id, unsigned n)
{
	struct ibv_wc wc;
	for (unsigned i = 0; i < n; i++) {
		assert_true(pair_poll(f->cq, &wc, 1000));
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc.wr_id, id + i);
		assert_int_equal(wc.qp_num, f->qp->qp_num);
	}
	assert_false(pair_poll(f->cq, &wc, 0));
}

/* A chain of three, of which the one in the middle is bad; and that one alone. */
static void chain(const struct fixture *f, enum ibv_wr_opcode op)
{
	struct ibv_sge sge[3];
	struct ibv_send_wr wr[3], *bad = NULL;
	enum ibv_qp_state state = f->qp->state;
	bool accepts = state == IBV_QPS_ERR || state == IBV_QPS_SQD;
	for (unsigned i = 0; i < 3; i++)
		request(f, op, 100 + i, &sge[i], &wr[i]);
	wr[0].next = &wr[1];
	wr[1].next = &wr[2];
	wr[1].opcode = (enum ibv_wr_opcode)77;
	assert_int_equal(ibv_post_send(f->qp, wr, &bad), EINVAL);
	assert_ptr_equal(bad, accepts && has(f->qp->qp_type, op) ? &wr[1] : &wr[0]);
	if (state == IBV_QPS_ERR)
		flushed(f, 100, has(f->qp->qp_type, op));
	else
		flushed(f, 0, 0);
}

static void by_wr_calls(const struct fixture *f)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(f->qp);
	enum ibv_qp_state state = f->qp->state;
	ibv_wr_start(x);
	x->wr_id = 200;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(x);
	ibv_wr_set_sge(x, f->mr->lkey, (uintptr_t)f->buf, LEN);
	if (f->qp->qp_type == IBV_QPT_UD)
		ibv_wr_set_ud_addr(x, f->ah, f->qp->qp_num, 0x11);
	assert_int_equal(
		ibv_wr_complete(x), state == IBV_QPS_ERR || state == IBV_QPS_SQD ? 0 : EINVAL);
	flushed(f, 200, state == IBV_QPS_ERR);
}

static void each_opcode(enum ibv_qp_type type, enum way way, bool srq)
{
	struct fixture f;
	begin(&f, type, way, srq);
	enum ibv_qp_state state = ways[way].state;
	for (unsigned i = 0; i < OPCODES; i++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr, *bad = NULL;
		request(&f, opcodes[i], i, &sge, &wr);
		int rc = ibv_post_send(f.qp, &wr, &bad);
		bool ok = has(type, opcodes[i]) && (state == IBV_QPS_ERR || state == IBV_QPS_SQD);
		if (rc != (ok ? 0 : EINVAL) || (!ok && bad != &wr))
			fail_msg("QP type %d, %s, opcode %d: %d", type, ways[way].name, opcodes[i],
				rc);
		flushed(&f, i, ok && state == IBV_QPS_ERR);
		assert_int_equal(f.qp->state, state);
	}
	if (state != IBV_QPS_SQD) { /* there the queue is full by and by */
		for (unsigned i = 0; i < OPCODES; i++)
			chain(&f, opcodes[i]);
		by_wr_calls(&f);
	}
	assert_int_equal(ibv_post_send(f.qp, NULL, NULL), 0);
	end(&f);
}

static void a_post_is_refused_or_flushed_in_each_state_that_does_not_send(void **unused)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	(void)unused;
	for (unsigned t = 0; t < 3; t++)
		for (int way = 0; way < WAYS; way++)
			for (int srq = 0; srq < 2; srq++)
				each_opcode(types[t], (enum way)way, srq);
}

/* What SQD kept goes in RTS, in order. */
static void what_is_posted_in_sqd_is_kept_for_rts(void **unused)
{
	struct fixture f;
	struct ibv_wc wc;
	(void)unused;
	begin(&f, IBV_QPT_RC, SQD, false);
	for (unsigned i = 0; i < 4; i++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr, *bad;
		request(&f, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, i, &sge, &wr);
		assert_int_equal(ibv_post_send(f.qp, &wr, &bad), 0);
	}
	assert_false(pair_poll(f.cq, &wc, 50));
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS};
	assert_int_equal(ibv_modify_qp(f.qp, &a, IBV_QP_STATE), 0);
	for (unsigned i = 0; i < 4; i++) {
		assert_true(pair_poll(f.cq, &wc, 5000));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
	}
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_post_is_refused_or_flushed_in_each_state_that_does_not_send),
		cmocka_unit_test(what_is_posted_in_sqd_is_kept_for_rts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
