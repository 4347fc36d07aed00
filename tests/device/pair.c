/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.c - see pair.h. */
#include "pair.h"

#include <time.h>

#include "lib/test.h"

struct ibv_context *pair_open_loopback(void)
{
	int n;
	setenv("ROPEWAY_DEVICES", "lo", 1); /* whatever else this machine has: MTU 4096 */
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *c = NULL;
	assert_non_null(list);
	for (int i = 0; i < n && !c; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "rpw_lo"))
			c = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	assert_non_null(c);
	return c;
}

void side_make(struct pair *p, struct side *s, uint32_t psn)
{
	s->buf = aligned_alloc(4096, PAIR_BUF);
	s->cq = ibv_create_cq(p->ctx, 512, NULL, p->channel, 0);
	s->mr = ibv_reg_mr(p->pd, s->buf, PAIR_BUF,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC);
	assert_non_null(s->mr);
	struct ibv_qp_init_attr init = {.send_cq = s->cq,
		.recv_cq = s->cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 128,
			.max_recv_wr = 128,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 128}};
	s->qp = ibv_create_qp(p->pd, &init);
	assert_non_null(s->qp);
	s->psn = psn;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC};
	assert_int_equal(
		ibv_modify_qp(s->qp, &a,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
}

void side_connect_to(struct pair *p, struct side *s, uint32_t qpn, uint32_t psn)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
		.path_mtu = p->mtu ? p->mtu : IBV_MTU_1024,
		.dest_qp_num = qpn,
		.rq_psn = psn,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 1,
		.ah_attr = {
			.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .hop_limit = 1}}};
	assert_int_equal(ibv_query_gid(p->ctx, 1, 1, &a.ah_attr.grh.dgid), 0);
	assert_int_equal(
		ibv_modify_qp(s->qp, &a,
			IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		0);
	a.qp_state = IBV_QPS_RTS;
	a.timeout = p->timeout;
	a.retry_cnt = p->retry_cnt;
	a.rnr_retry = p->rnr_retry;
	a.sq_psn = s->psn;
	a.max_rd_atomic = 16;
	assert_int_equal(
		ibv_modify_qp(s->qp, &a,
			IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
		0);
}

static void make(struct pair *p)
{
	p->ctx = pair_open_loopback();
	p->pd = ibv_alloc_pd(p->ctx);
	side_make(p, &p->a, 0xfffff0); /* PSNs wrap early */
	side_make(p, &p->b, 0x123456);
	side_connect_to(p, &p->a, p->b.qp->qp_num, p->b.psn);
	side_connect_to(p, &p->b, p->a.qp->qp_num, p->a.psn);
}

void pair_make(struct pair *p, uint8_t timeout, uint8_t retry_cnt, uint8_t rnr_retry)
{
	*p = (struct pair){.timeout = timeout, .retry_cnt = retry_cnt, .rnr_retry = rnr_retry};
	make(p);
}

void pair_make_mtu(struct pair *p, enum ibv_mtu mtu)
{
	*p = (struct pair){.timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .mtu = mtu};
	make(p);
}

void side_free(struct side *s)
{
	if (s->qp)
		assert_int_equal(ibv_destroy_qp(s->qp), 0);
	assert_int_equal(ibv_destroy_cq(s->cq), 0);
	if (s->mr)
		assert_int_equal(ibv_dereg_mr(s->mr), 0);
	free(s->buf);
}

void pair_free(struct pair *p)
{
	side_free(&p->a);
	side_free(&p->b);
	assert_int_equal(ibv_dealloc_pd(p->pd), 0);
	assert_int_equal(ibv_close_device(p->ctx), 0);
}

static int64_t now_ms(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

bool pair_poll(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
	int64_t until = now_ms() + ms;
	do {
		int n = ibv_poll_cq(cq, 1, wc);
		assert_true(n >= 0);
		if (n)
			return true;
	} while (now_ms() < until);
	return false;
}

int pair_send(struct side *s, enum ibv_wr_opcode op, uint64_t local_off, uint32_t len,
	uint64_t raddr, uint32_t rkey)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->buf + local_off, .length = len, .lkey = s->mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = 0x5e4d,
					 .opcode = op,
					 .sg_list = &sge,
					 .num_sge = len ? 1 : 0,
					 .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = raddr;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(s->qp, &wr, &bad);
}

void pair_recv(struct side *s, uint64_t off, uint32_t len, uint64_t wr_id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)s->buf + off, .length = len, .lkey = s->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};
	assert_int_equal(ibv_post_recv(s->qp, &wr, &bad), 0);
}

enum ibv_wc_status side_done(struct side *s)
{
	struct ibv_wc wc;
	assert_true(pair_poll(s->cq, &wc, 5000));
	return wc.status;
}

enum ibv_wc_status pair_write_to(
	struct pair *p, uint64_t seed, uint32_t len, uint64_t addr, uint32_t rkey)
{
	pattern_fill(p->a.buf, len, seed);
	assert_int_equal(pair_send(&p->a, IBV_WR_RDMA_WRITE, 0, len, addr, rkey), 0);
	return side_done(&p->a);
}
