/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.c - see pair.h. */
#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void expect(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "expected: %s (errno %d: %s)\n", what, errno, strerror(errno));
	exit(3);
}

void wait_ms(unsigned ms)
{
	struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
	nanosleep(&t, NULL);
}

void half_open(struct pair *p, struct half *h, const struct wish *w)
{
	h->channel = ibv_create_comp_channel(p->ctx);
	expect(h->channel, "a completion channel");
	h->cq = ibv_create_cq(p->ctx, w->cqe ? (int)w->cqe : 64, NULL, h->channel, 0);
	expect(h->cq, "a CQ");
	h->buf = aligned_alloc(4096, BUFFER);
	expect(h->buf, "memory");
	memset(h->buf, 0x5a, BUFFER);
	h->mr = ibv_reg_mr(p->pd, h->buf, BUFFER,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC);
	expect(h->mr, "a memory region");
	struct ibv_qp_init_attr init = {.send_cq = h->cq,
		.recv_cq = h->cq,
		.srq = w->srq,
		.qp_type = w->type ? w->type : IBV_QPT_RC,
		.sq_sig_all = !w->some_signaled,
		.cap = {.max_send_wr = w->sends ? w->sends : 16,
			.max_recv_wr = w->recvs ? w->recvs : 16,
			.max_send_sge = w->sges ? w->sges : 1,
			.max_recv_sge = w->sges ? w->sges : 1,
			.max_inline_data = w->inlines}};
	h->qp = ibv_create_qp(p->pd, &init);
	expect(h->qp, "a QP");
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = 0x11111111,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	mask |= init.qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	expect(!ibv_modify_qp(h->qp, &attr, mask), "INIT");
}

void pair_device(struct pair *p)
{
	int n;
	if (p->ctx)
		return;
	struct ibv_device **list = ibv_get_device_list(&n);
	expect(list && n, "a device");
	p->ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	expect(p->ctx, "to open it");
	p->pd = ibv_alloc_pd(p->ctx);
	expect(p->pd, "a PD");
	expect(!ibv_query_gid(p->ctx, 1, 1, &p->gid), "GID 1");
}

void pair_begin(struct pair *p, const struct wish *w)
{
	pair_device(p);
	half_open(p, &p->a, w);
	half_open(p, &p->b, w);
}

static int or_default(int one_more, int otherwise) { return one_more ? one_more - 1 : otherwise; }

void half_connect(struct pair *p, struct half *h, uint32_t qpn, bool is_a, const struct wish *x)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = x->mtu ? (enum ibv_mtu)x->mtu : IBV_MTU_1024,
		.dest_qp_num = qpn ^ x->dest_qpn_xor,
		.rq_psn = (0x1000 + is_a) ^ x->psn_xor,
		.max_dest_rd_atomic = (uint8_t)or_default(x->dest_rd_atomic_1, 4),
		.min_rnr_timer = (uint8_t)or_default(x->min_rnr_1, 1),
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = p->gid, .sgid_index = 1, .hop_limit = 1}}};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (h->qp->qp_type == IBV_QPT_UD)
		mask = IBV_QP_STATE;
	expect(!ibv_modify_qp(h->qp, &attr, mask), "RTR");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		.timeout = (uint8_t)or_default(x->timeout_1, 10),
		.retry_cnt = (uint8_t)or_default(x->retry_1, 7),
		.rnr_retry = (uint8_t)or_default(x->rnr_retry_1, 6),
		.sq_psn = 0x1000 + !is_a,
		.max_rd_atomic = (uint8_t)or_default(x->rd_atomic_1, 4)};
	mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	       IBV_QP_MAX_QP_RD_ATOMIC;
	if (h->qp->qp_type == IBV_QPT_UD)
		mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	expect(!ibv_modify_qp(h->qp, &attr, mask), "RTS");
}

void pair_connect(struct pair *p, const struct wish *w)
{
	static const struct wish plain;
	half_connect(p, &p->a, p->b.qp->qp_num, true, w);
	half_connect(p, &p->b, p->a.qp->qp_num, false, &plain);
}

/* The one whose number is smaller is `a` to both. */
void pair_connect_to(struct pair *p, struct half *h, uint32_t qpn)
{
	static const struct wish plain;
	half_connect(p, h, qpn, h->qp->qp_num < qpn, &plain);
}

struct pair pair_open(const struct wish *w)
{
	struct pair p = {0};
	pair_begin(&p, w);
	pair_connect(&p, w);
	return p;
}

static void half_close(struct half *h)
{
	expect(!h->qp || !ibv_destroy_qp(h->qp), "the QP to go");
	expect(!h->cq || !ibv_destroy_cq(h->cq), "the CQ to go");
	expect(!h->channel || !ibv_destroy_comp_channel(h->channel), "the channel to go");
	expect(!h->mr || !ibv_dereg_mr(h->mr), "the region to go");
	free(h->buf);
}

void pair_drop(struct pair *p)
{
	half_close(&p->a);
	half_close(&p->b);
}

void pair_end(struct pair *p)
{
	expect(!ibv_dealloc_pd(p->pd), "the PD to go");
	expect(!ibv_close_device(p->ctx), "the device to close");
}

void pair_close(struct pair *p)
{
	pair_drop(p);
	pair_end(p);
}

/* ---- requests ---- */

static int post(struct half *h, struct ibv_send_wr *wr, size_t off, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)h->buf + off, len, h->mr->lkey};
	struct ibv_send_wr *bad;
	wr->sg_list = &sge;
	wr->num_sge = 1;
	return ibv_post_send(h->qp, wr, &bad);
}

int send_at(struct half *h, uint64_t wr_id, size_t off, uint32_t len, unsigned flags)
{
	struct ibv_send_wr wr = {.wr_id = wr_id, .opcode = IBV_WR_SEND, .send_flags = flags};
	return post(h, &wr, off, len);
}

int recv_at(struct half *h, uint64_t wr_id, size_t off, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)h->buf + off, len, h->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};
	return ibv_post_recv(h->qp, &wr, &bad);
}

int write_at(struct half *h, uint64_t wr_id, size_t off, uint32_t len, struct half *to, size_t at,
	unsigned flags)
{
	struct ibv_send_wr wr = {.wr_id = wr_id, .opcode = IBV_WR_RDMA_WRITE, .send_flags = flags};
	wr.wr.rdma.remote_addr = (uintptr_t)to->buf + at;
	wr.wr.rdma.rkey = to->mr->rkey;
	return post(h, &wr, off, len);
}

int read_at(struct half *h, uint64_t wr_id, size_t off, uint32_t len, struct half *to, size_t at)
{
	struct ibv_send_wr wr = {.wr_id = wr_id, .opcode = IBV_WR_RDMA_READ};
	wr.wr.rdma.remote_addr = (uintptr_t)to->buf + at;
	wr.wr.rdma.rkey = to->mr->rkey;
	return post(h, &wr, off, len);
}

enum ibv_wc_status poll_one(struct ibv_cq *cq, struct ibv_wc *wc)
{
	for (unsigned tries = 0; tries < 100000; tries++) {
		int n = ibv_poll_cq(cq, 1, wc);
		expect(n >= 0, "a CQ that can be polled");
		if (n)
			return wc->status;
		if (tries > 1000)
			usleep(100);
	}
	expect(false, "a completion within 10 s");
	return IBV_WC_GENERAL_ERR;
}

void poll_good(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	expect(poll_one(cq, &wc) == IBV_WC_SUCCESS, "a good completion");
}
