/* SPDX-License-Identifier: BSD-3-Clause */
/* post.c - the steps of a plan as work requests: in lists by ibv_post_send, or in batches by
 * ibv_wr_*. */
#include <errno.h>
#include <string.h>

#include "side.h"

static const enum ibv_wr_opcode opcodes[K_KINDS] = {
	[K_SEND] = IBV_WR_SEND,
	[K_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
	[K_SEND_INV] = IBV_WR_SEND_WITH_INV,
	[K_WRITE] = IBV_WR_RDMA_WRITE,
	[K_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[K_READ] = IBV_WR_RDMA_READ,
	[K_CAS] = IBV_WR_ATOMIC_CMP_AND_SWP,
	[K_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	[K_AWRITE] = IBV_WR_ATOMIC_WRITE,
};

struct request {
	struct ibv_sge sge[SGE_MAX];
	unsigned nsge, flags;
	uint64_t id, raddr;
	uint32_t rkey;
	enum ibv_wr_opcode opcode;
	struct ibv_mw_bind_info bind;
};

static void target(const struct end *e, const struct step *p, struct request *q)
{
	q->raddr = e->peer->addr + p->to;
	q->rkey = p->flags & F_WINDOW ? e->peer->window_rkey : e->peer->rkey;
	switch (p->bad) {
	case BAD_RKEY:
		q->rkey ^= 0x5a5a00;
		break;
	case BAD_RIGHT:
		q->rkey = e->peer->rx_rkey;
		q->raddr = e->peer->rx_addr;
		break;
	case BAD_STALE:
		q->rkey = e->peer->stale_rkey;
		break;
	default:
		break;
	}
}

static void window(struct end *e, struct request *q)
{
	q->nsge = 0;
	if (e->scratch_bound) {
		q->opcode = IBV_WR_LOCAL_INV;
		q->rkey = e->scratch_key;
	} else {
		q->opcode = IBV_WR_BIND_MW;
		q->rkey = e->scratch_key = ibv_inc_rkey(e->scratch_key);
		q->bind = (struct ibv_mw_bind_info){.mr = e->mr[MR_TGT],
			.addr = (uintptr_t)e->mem[MR_TGT],
			.length = 4096,
			.mw_access_flags = IBV_ACCESS_REMOTE_READ};
	}
	e->scratch_bound = !e->scratch_bound;
}

static void request_of(struct side *m, struct end *e, uint32_t i, struct request *q)
{
	const struct stream *st = &e->out;
	const struct step *p = &st->step[i];
	struct piece pieces[SGE_MAX];
	enum mr mr = p->flags & F_SINK ? MR_SINK : MR_TX;
	q->id = id_of(e->number, e->side, 0, m->round, i);
	q->opcode = opcodes[p->kind];
	q->flags = (p->flags & F_SIGNALED ? IBV_SEND_SIGNALED : 0u) |
		   (p->flags & F_FENCE ? IBV_SEND_FENCE : 0u) |
		   (p->flags & F_INLINE ? IBV_SEND_INLINE : 0u) |
		   (p->flags & F_SOLICITED ? IBV_SEND_SOLICITED : 0u);
	if (p->kind == K_WINDOW) {
		window(e, q);
		return;
	}
	if (kind_has_payload(p->kind)) {
		q->nsge = plan_gather(st, p, pieces);
	} else if (p->kind == K_READ) {
		mr = MR_SINK;
		q->nsge = plan_scatter(p, pieces);
	} else {
		mr = MR_SINK;
		q->nsge = 1;
		pieces[0] = (struct piece){p->sink_at, 8};
	}
	for (unsigned k = 0; k < q->nsge; k++)
		q->sge[k] = (struct ibv_sge){(uintptr_t)e->mem[mr] + pieces[k].at, pieces[k].len,
			e->mr[mr]->lkey ^ (p->bad == BAD_LKEY ? 0x3c3c00u : 0)};
	if (!kind_is_send(p->kind))
		target(e, p, q);
	else
		q->rkey = p->kind == K_SEND_INV ? e->peer->window_rkey : 0;
}

static void list(struct side *m, struct end *e, struct request *q, uint32_t first, unsigned n)
{
	struct ibv_send_wr wr[BATCH_MAX], *bad = NULL;
	for (unsigned i = 0; i < n; i++) {
		const struct step *p = &e->out.step[first + i];
		wr[i] = (struct ibv_send_wr){.wr_id = q[i].id,
			.next = i + 1 < n ? &wr[i + 1] : NULL,
			.sg_list = q[i].sge,
			.num_sge = (int)q[i].nsge,
			.opcode = q[i].opcode,
			.send_flags = q[i].flags};
		if (q[i].opcode == IBV_WR_BIND_MW) {
			wr[i].bind_mw.mw = e->scratch;
			wr[i].bind_mw.rkey = q[i].rkey;
			wr[i].bind_mw.bind_info = q[i].bind;
			continue;
		}
		if (q[i].opcode == IBV_WR_LOCAL_INV || p->kind == K_SEND_INV)
			wr[i].invalidate_rkey = q[i].rkey;
		if (p->kind == K_SEND_IMM || p->kind == K_WRITE_IMM)
			wr[i].imm_data = p->imm;
		if (e->conn->type == IBV_QPT_UD) {
			wr[i].wr.ud.ah = e->ah;
			wr[i].wr.ud.remote_qpn = e->peer->qpn;
			wr[i].wr.ud.remote_qkey = 0x1111;
		} else if (kind_is_atomic(p->kind)) {
			wr[i].wr.atomic.remote_addr = q[i].raddr;
			wr[i].wr.atomic.rkey = q[i].rkey;
			wr[i].wr.atomic.compare_add = p->kind == K_ADD ? p->cut : p->compare;
			wr[i].wr.atomic.swap = rng_mix(p->cut);
		} else {
			wr[i].wr.rdma.remote_addr = q[i].raddr;
			wr[i].wr.rdma.rkey = q[i].rkey;
		}
	}
	int rc = ibv_post_send(e->qp, wr, &bad);
	if (rc)
		fail(m, "ibv_post_send on connection %u, steps %u to %u: %s", e->number, first,
			first + n - 1, strerror(rc));
}

static void one_of_batch(struct end *e, const struct request *q, const struct step *p)
{
	struct ibv_qp_ex *x = e->qpx;
	x->wr_id = q->id;
	x->wr_flags = q->flags;
	switch (q->opcode) {
	case IBV_WR_SEND:
		ibv_wr_send(x);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(x, p->imm);
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(x, q->rkey);
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(x, q->rkey, q->raddr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(x, q->rkey, q->raddr, p->imm);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(x, q->rkey, q->raddr);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(x, q->rkey, q->raddr, p->compare, rng_mix(p->cut));
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(x, q->rkey, q->raddr, p->cut);
		break;
	case IBV_WR_ATOMIC_WRITE:
		ibv_wr_atomic_write(x, q->rkey, q->raddr, (void *)(uintptr_t)q->sge[0].addr);
		return;
	case IBV_WR_LOCAL_INV:
		ibv_wr_local_inv(x, q->rkey);
		return;
	default:
		ibv_wr_bind_mw(x, e->scratch, q->rkey, &q->bind);
		return;
	}
	if (e->conn->type == IBV_QPT_UD)
		ibv_wr_set_ud_addr(x, e->ah, e->peer->qpn, 0x1111);
	if (q->flags & IBV_SEND_INLINE) {
		struct ibv_data_buf bufs[SGE_MAX];
		for (unsigned i = 0; i < q->nsge; i++)
			bufs[i] = (struct ibv_data_buf){
				(void *)(uintptr_t)q->sge[i].addr, q->sge[i].length};
		if (q->nsge == 1)
			ibv_wr_set_inline_data(x, bufs[0].addr, bufs[0].length);
		else
			ibv_wr_set_inline_data_list(x, q->nsge, bufs);
	} else if (q->nsge == 1) {
		ibv_wr_set_sge(x, q->sge[0].lkey, q->sge[0].addr, q->sge[0].length);
	} else {
		ibv_wr_set_sge_list(x, q->nsge, q->sge);
	}
}

void post_sends(struct side *m, struct end *e, unsigned n, struct rng *r)
{
	struct request q[BATCH_MAX];
	uint32_t first = atomic_load(&e->posted);
	uint32_t room = SQ_DEPTH - (first - atomic_load(&e->sdone));
	n = n < room ? n : room;
	n = n < e->out.n - first ? n : e->out.n - first;
	n = n < BATCH_MAX ? n : BATCH_MAX;
	if (!n)
		return;
	for (unsigned i = 0; i < n; i++)
		request_of(m, e, first + i, &q[i]);
	/* the peer may see what is posted at once */
	atomic_store(&e->pub->posted, first + n);
	atomic_store(&e->posted, first + n);
	if (e->qpx && !rng_one_in(r, 4)) {
		ibv_wr_start(e->qpx);
		for (unsigned i = 0; i < n; i++)
			one_of_batch(e, &q[i], &e->out.step[first + i]);
		int rc = ibv_wr_complete(e->qpx);
		if (rc)
			fail(m, "ibv_wr_complete on connection %u, steps %u to %u: %s", e->number,
				first, first + n - 1, strerror(rc));
	} else {
		list(m, e, q, first, n);
	}
}

void post_receives(struct side *m, struct end *e, unsigned n)
{
	struct ibv_sge sge[BATCH_MAX][SGE_MAX];
	struct ibv_recv_wr wr[BATCH_MAX], *bad = NULL;
	struct piece pieces[SGE_MAX];
	uint32_t first = atomic_load(&e->rposted);
	n = n < e->in.msgs - first ? n : e->in.msgs - first;
	n = n < BATCH_MAX ? n : BATCH_MAX;
	if (!n)
		return;
	for (unsigned i = 0; i < n; i++) {
		unsigned pn = plan_receive(&e->in, first + i, pieces);
		uint32_t key = e->mr[MR_RX]->lkey;
		if (e->in.step[e->in.step_of[first + i]].bad == BAD_RECV_LKEY)
			key ^= 0x3c3c00;
		for (unsigned k = 0; k < pn; k++)
			sge[i][k] = (struct ibv_sge){
				(uintptr_t)e->mem[MR_RX] + pieces[k].at, pieces[k].len, key};
		wr[i] = (struct ibv_recv_wr){
			.wr_id = id_of(e->number, e->side, 1, m->round, first + i),
			.next = i + 1 < n ? &wr[i + 1] : NULL,
			.sg_list = sge[i],
			.num_sge = (int)pn};
	}
	atomic_store(&e->rposted, first + n);
	int rc = ibv_post_recv(e->qp, wr, &bad);
	if (rc)
		fail(m, "ibv_post_recv on connection %u, %u to %u: %s", e->number, first,
			first + n - 1, strerror(rc));
}

void post_srq(struct side *m, unsigned n)
{
	struct ibv_sge sge[BATCH_MAX][2];
	struct ibv_recv_wr wr[BATCH_MAX], *bad = NULL;
	n = n < m->srq_target - m->srq_posted ? n : m->srq_target - m->srq_posted;
	n = n < BATCH_MAX ? n : BATCH_MAX;
	if (!n)
		return;
	for (unsigned i = 0; i < n; i++) {
		uint32_t s = m->srq_posted + i;
		uintptr_t at = (uintptr_t)m->srq_mem + (size_t)(s % SRQ_SLOTS) * SLOT;
		uint32_t cut = (uint32_t)rng_mix(s) % 3 ? SLOT : (uint32_t)rng_mix(s) % SLOT;
		m->slot[s % SRQ_SLOTS] = (struct slot){0};
		sge[i][0] = (struct ibv_sge){at, cut, m->srq_mr->lkey};
		sge[i][1] = (struct ibv_sge){at + cut, SLOT - cut, m->srq_mr->lkey};
		wr[i] = (struct ibv_recv_wr){.wr_id = id_of(ID_SRQ, 0, 1, 0, s),
			.next = i + 1 < n ? &wr[i + 1] : NULL,
			.sg_list = sge[i],
			.num_sge = cut == SLOT ? 1 : 2};
	}
	atomic_fetch_add(&m->srq_posted, n); /* another thread may see the completion at once */
	int rc = ibv_post_srq_recv(m->srq, wr, &bad);
	if (rc)
		fail(m, "ibv_post_srq_recv: %s", strerror(rc));
}
