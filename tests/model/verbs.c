/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs.c - the objects of a process and of its ends: made, connected, taken down. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "side.h"

static const size_t mr_len[MR_KINDS] = {TX_LEN, SINK_LEN, TGT_LEN, RX_LEN};
static const int mr_access[MR_KINDS] = {0, IBV_ACCESS_LOCAL_WRITE,
	IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
	IBV_ACCESS_LOCAL_WRITE};
enum {
	REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	CQ_DEPTH = 16384
};

static uint8_t *memory(size_t n)
{
	uint8_t *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		abort();
	return at;
}

void side_open(struct side *m)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	const char *name = m->sh->device[m->me];
	for (int i = 0; list && list[i] && !m->ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			m->ctx = ibv_open_device(list[i]);
	if (!m->ctx)
		fail(m, "no device %s", name);
	ibv_free_device_list(list);
	m->pd = ibv_alloc_pd(m->ctx);
	for (unsigned i = 0; i < m->s->cqs; i++) {
		m->cq[i] = ibv_create_cq(m->ctx, CQ_DEPTH, NULL, NULL, 0);
		pthread_mutex_init(&m->cq_lock[i], NULL);
		if (!m->cq[i])
			fail(m, "ibv_create_cq: %s", strerror(errno));
	}
	m->srq_mem = memory((size_t)SRQ_SLOTS * SLOT);
	memset(m->srq_mem, BLANK, (size_t)SRQ_SLOTS * SLOT);
	m->srq_mr = ibv_reg_mr(m->pd, m->srq_mem, (size_t)SRQ_SLOTS * SLOT, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_srq_init_attr a = {.attr = {.max_wr = SRQ_SLOTS, .max_sge = 2}};
	m->srq = ibv_create_srq(m->pd, &a);
	if (!m->srq || !m->srq_mr)
		fail(m, "ibv_create_srq: %s", strerror(errno));
}

void end_objects(struct side *m, struct end *e)
{
	for (unsigned i = 0; i < MR_KINDS; i++) {
		/* a page more, whose first bytes are looked at as well */
		e->mem[i] = memory(mr_len[i] + 4096);
		memset(e->mem[i], BLANK, mr_len[i] + 64);
		e->guarded[i] = memory(mr_len[i] + 4096);
		memset(e->guarded[i], 0, mr_len[i] + 64); /* so that it is there at once */
		e->mr[i] = ibv_reg_mr(m->pd, e->mem[i], mr_len[i], mr_access[i]);
		if (!e->mr[i])
			fail(m, "ibv_reg_mr: %s", strerror(errno));
	}
	image_make(&e->im_out);
	image_make(&e->im_in);
	e->base = malloc(TGT_LEN);
	unsigned type = e->conn->window[e->side];
	if (type)
		e->window = ibv_alloc_mw(m->pd, type == 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	if (e->conn->type == IBV_QPT_RC)
		e->scratch = ibv_alloc_mw(m->pd, IBV_MW_TYPE_2);
	if ((type && !e->window) || (e->conn->type == IBV_QPT_RC && !e->scratch))
		fail(m, "ibv_alloc_mw: %s", strerror(errno));
	if (e->scratch)
		e->scratch_key = e->scratch->rkey;
	if (e->window)
		e->window_key = e->window->rkey;
}

int end_to_state(struct end *e, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = {.qp_state = state};
	return ibv_modify_qp(e->qp, &a, IBV_QP_STATE);
}

/* A post to a QP that takes none yet: it is refused, and bad_wr says which. */
static void refused(struct side *m, struct end *e, const char *state)
{
	struct ibv_sge sge = {(uintptr_t)e->mem[MR_TX], 8, e->mr[MR_TX]->lkey};
	struct ibv_send_wr wr[2] =
		{{.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND},
			{.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}},
			   *bad = NULL;
	if (!m->sh->limits.states)
		return;
	wr[0].next = &wr[1];
	int rc = ibv_post_send(e->qp, wr, &bad);
	if (rc != EINVAL || bad != wr)
		fail(m, "ibv_post_send in %s: %d, bad_wr %s", state, rc,
			bad == wr ? "the first" : "not the first");
	if (e->qpx && e->conn->type == IBV_QPT_RC) {
		ibv_wr_start(e->qpx);
		e->qpx->wr_id = 3;
		e->qpx->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_send(e->qpx);
		ibv_wr_set_sge(e->qpx, sge.lkey, sge.addr, sge.length);
		rc = ibv_wr_complete(e->qpx);
		if (rc != EINVAL)
			fail(m, "ibv_wr_complete in %s: %d", state, rc);
	}
}

void end_make_qp(struct side *m, struct end *e)
{
	const struct conn *c = e->conn;
	struct rng r = {m->s->seed ^ rng_mix((uint64_t)m->round << 8 | e->number << 1 | e->side)};
	e->scq = rng_below(&r, m->s->cqs);
	e->rcq = rng_below(&r, m->s->cqs);
	struct ibv_qp_init_attr_ex a = {.send_cq = m->cq[e->scq],
		.recv_cq = m->cq[e->rcq],
		.srq = c->srq[e->side] ? m->srq : NULL,
		.qp_type = c->type,
		.pd = m->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.cap = {.max_send_wr = SQ_DEPTH,
			.max_recv_wr = c->srq[e->side] ? 0 : RQ_DEPTH,
			.max_send_sge = SGE_MAX,
			.max_recv_sge = SGE_MAX,
			.max_inline_data = INLINE_MAX}};
	if (c->ex[e->side]) {
		a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		a.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
		if (c->type != IBV_QPT_UD)
			a.send_ops_flags |=
				IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
		if (c->type == IBV_QPT_RC)
			a.send_ops_flags |=
				IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
				IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV |
				IBV_QP_EX_WITH_ATOMIC_WRITE;
	}
	e->qp = ibv_create_qp_ex(m->ctx, &a);
	if (!e->qp)
		fail(m, "ibv_create_qp_ex: %s", strerror(errno));
	e->qpx = c->ex[e->side] ? ibv_qp_to_qp_ex(e->qp) : NULL;
	refused(m, e, "RESET");
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = 0x1111,
		.qp_access_flags = REMOTE | IBV_ACCESS_LOCAL_WRITE};
	int rc = ibv_modify_qp(e->qp, &q,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			(c->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	if (rc)
		fail(m, "to INIT: %s", strerror(rc));
	refused(m, e, "INIT");
	struct pub *p = e->pub;
	p->qpn = e->qp->qp_num;
	p->psn = rng_one_in(&r, 2) ? 0xffffff - rng_below(&r, 40) : (uint32_t)rng_next(&r) >> 8;
	p->rkey = e->mr[MR_TGT]->rkey;
	p->rx_rkey = e->mr[MR_RX]->rkey;
	p->addr = (uintptr_t)e->mem[MR_TGT];
	p->rx_addr = (uintptr_t)e->mem[MR_RX];
	if (ibv_query_gid(m->ctx, 1, c->gid, &p->gid))
		fail(m, "ibv_query_gid %u", c->gid);
}

void end_connect(struct side *m, struct end *e)
{
	const struct conn *c = e->conn;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
		.path_mtu = c->mtu,
		.dest_qp_num = e->peer->qpn,
		.rq_psn = e->peer->psn,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = e->peer->gid, .sgid_index = c->gid, .hop_limit = 64}}};
	int mask = IBV_QP_STATE;
	if (c->type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (c->type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	int rc = ibv_modify_qp(e->qp, &a, mask);
	if (rc)
		fail(m, "to RTR: %s", strerror(rc));
	refused(m, e, "RTR");
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		/* 67 ms: a busy machine is no error; where packets are lost, 16 ms */
		.timeout = m->sh->lossy ? 12 : 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = e->pub->psn,
		.max_rd_atomic = 16};
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (c->type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	rc = ibv_modify_qp(e->qp, &a, mask);
	if (rc)
		fail(m, "to RTS: %s", strerror(rc));
	if (c->type == IBV_QPT_UD) {
		struct ibv_ah_attr ah = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = e->peer->gid, .sgid_index = c->gid, .hop_limit = 64}};
		if (e->ah)
			ibv_destroy_ah(e->ah);
		e->ah = ibv_create_ah(m->pd, &ah);
		if (!e->ah)
			fail(m, "ibv_create_ah: %s", strerror(errno));
	}
}

/* Nothing else is under way on this QP. */
static void one_send(struct side *m, struct end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	wr->wr_id = id_of(e->number, e->side, 2, m->round, 0);
	wr->send_flags = IBV_SEND_SIGNALED;
	int rc = ibv_post_send(e->qp, wr, &bad), n = 0;
	if (rc)
		fail(m, "ibv_post_send of a window's request: %s", strerror(rc));
	while (!(n = ibv_poll_cq(m->cq[e->scq], 1, &wc)))
		if (atomic_load(&m->sh->failed))
			_Exit(1);
	if (n < 0 || wc.wr_id != wr->wr_id || wc.status)
		fail(m, "a window's request on connection %u: %s, wr_id %llx", e->number,
			ibv_wc_status_str(wc.status), (unsigned long long)wc.wr_id);
}

/* The window over all of the target, for the peer; sometimes invalidated here and bound anew. */
void end_windows(struct side *m, struct end *e, struct rng *r)
{
	if (!e->window)
		return;
	struct ibv_mw_bind_info info = {.mr = e->mr[MR_TGT],
		.addr = (uintptr_t)e->mem[MR_TGT],
		.length = TGT_LEN,
		.mw_access_flags = REMOTE};
	if (e->window_bound && !rng_one_in(r, 3))
		return;
	e->pub->stale_rkey = e->window_key;
	if (e->conn->window[e->side] == 1) {
		struct ibv_mw_bind bind = {.wr_id = id_of(e->number, e->side, 2, m->round, 0),
			.send_flags = IBV_SEND_SIGNALED,
			.bind_info = info};
		struct ibv_wc wc;
		int n, rc = ibv_bind_mw(e->qp, e->window, &bind);
		if (rc)
			fail(m, "ibv_bind_mw: %s", strerror(rc));
		while (!(n = ibv_poll_cq(m->cq[e->scq], 1, &wc)))
			if (atomic_load(&m->sh->failed))
				_Exit(1);
		if (wc.status || wc.wr_id != bind.wr_id || wc.opcode != IBV_WC_BIND_MW)
			fail(m, "ibv_bind_mw completes with %s", ibv_wc_status_str(wc.status));
		e->window_key = e->window->rkey;
	} else {
		struct ibv_send_wr wr = {
			.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = e->window_key};
		if (e->window_bound)
			one_send(m, e, &wr);
		e->window_key = ibv_inc_rkey(e->window_key);
		wr = (struct ibv_send_wr){.opcode = IBV_WR_BIND_MW,
			.bind_mw = {.mw = e->window, .rkey = e->window_key, .bind_info = info}};
		one_send(m, e, &wr);
	}
	e->window_bound = true;
	e->pub->window_rkey = e->window_key;
}

/* Between rounds: the QP goes, if it has not gone already. */
void end_drop(struct side *m, struct end *e)
{
	if (e->qp) {
		int rc = ibv_destroy_qp(e->qp);
		if (rc)
			fail(m, "ibv_destroy_qp: %s", strerror(rc));
	}
	e->qp = NULL;
	e->qpx = NULL;
	/* a window of type 2 goes with its QP; one of type 1 stays bound */
	e->window_bound = false;
	e->scratch_bound = false;
}
