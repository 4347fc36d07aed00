/* SPDX-License-Identifier: BSD-3-Clause */
/* done.c - completions: each that comes is held against the plan, field by field and in order. */
#include <string.h>

#include "side.h"

static void see(struct side *m, enum choice c)
{
	__atomic_fetch_add(&m->tally->choice[c], 1, __ATOMIC_RELAXED);
}

#define WRONG(m, e, wc, form, ...) \
	fail(m, "connection %u side %u, %s completion %llx, status %s: " form, (e)->number, \
		(e)->side, (wc)->wr_id >> 48 & 1 ? "receive" : "send", \
		(unsigned long long)(wc)->wr_id, ibv_wc_status_str((wc)->status), ##__VA_ARGS__)

/* After an end's own error, or its program's, the QP is in ERR. */
static void has_failed(struct end *e)
{
	uint8_t was = ALIVE;
	atomic_compare_exchange_strong(&e->state, &was, ERRED);
	atomic_store(&e->pub->gone, 1);
	atomic_store(&e->peer->gone, 1);
}

static void first_error(struct side *m, struct end *e, const struct ibv_wc *wc, uint32_t i)
{
	static const enum ibv_wc_status due[BAD_KINDS] = {[BAD_RKEY] = IBV_WC_REM_ACCESS_ERR,
		[BAD_BOUNDS] = IBV_WC_REM_ACCESS_ERR,
		[BAD_RIGHT] = IBV_WC_REM_ACCESS_ERR,
		[BAD_STALE] = IBV_WC_REM_ACCESS_ERR,
		[BAD_LKEY] = IBV_WC_LOC_PROT_ERR,
		[BAD_SHORT] = IBV_WC_REM_INV_REQ_ERR,
		[BAD_RECV_LKEY] = IBV_WC_REM_OP_ERR};
	bool own = i == e->out.bad && wc->status == due[e->out.step[i].bad];
	bool ended = atomic_load(&e->pub->gone) || e->state != ALIVE;
	bool killed = e->fate.killed >= 0;
	/* the peer's refusal moves it to ERR, where it answers no more */
	bool refused = e->fate.bad_dir == (int)!e->side;
	/* or has refused, but its only NAK was lost on the way */
	refused |= m->sh->sockets && e->fate.bad_dir == (int)e->side && i <= e->out.bad &&
		   wc->status == IBV_WC_RETRY_EXC_ERR;
	if (!e->fate.dies)
		WRONG(m, e, wc,
			"step %u, a %s of %u bytes, has no reason to fail (QP %u, PSNs from %u, "
			"the peer's from %u)",
			i, kind_names[e->out.step[i].kind], e->out.step[i].len, e->pub->qpn,
			e->pub->psn, e->peer->psn);
	if (!own) {
		if (wc->status == IBV_WC_RETRY_EXC_ERR && (ended || killed || refused))
			see(m, CH_RETRY_EXC);
		else if (wc->status == IBV_WC_WR_FLUSH_ERR && (ended || killed || refused))
			see(m, CH_FLUSH_PEER);
		else
			WRONG(m, e, wc, "step %u, a %s (%s) of %u bytes, cannot fail so", i,
				kind_names[e->out.step[i].kind], bad_names[e->out.step[i].bad],
				e->out.step[i].len);
	}
	e->failed = true;
	has_failed(e);
}

static enum ibv_wc_opcode opcode_of(const struct step *p)
{
	static const enum ibv_wc_opcode all[K_KINDS] = {[K_SEND] = IBV_WC_SEND,
		[K_SEND_IMM] = IBV_WC_SEND,
		[K_SEND_INV] = IBV_WC_SEND,
		[K_WRITE] = IBV_WC_RDMA_WRITE,
		[K_WRITE_IMM] = IBV_WC_RDMA_WRITE,
		[K_READ] = IBV_WC_RDMA_READ,
		[K_CAS] = IBV_WC_COMP_SWAP,
		[K_ADD] = IBV_WC_FETCH_ADD,
		[K_AWRITE] = IBV_WC_ATOMIC_WRITE};
	return all[p->kind];
}

static void send_done(struct side *m, struct end *e, const struct ibv_wc *wc)
{
	uint32_t i = (uint32_t)wc->wr_id, done = atomic_load(&e->sdone);
	const struct step *p = &e->out.step[i];
	if ((wc->wr_id >> 32 & 0xffff) != (m->round & 0xffffu) || i >= e->posted || i < done)
		WRONG(m, e, wc, "step %u of round %u: posted are %u, done %u of round %u", i,
			(unsigned)(wc->wr_id >> 32 & 0xffff), e->posted, done, m->round);
	if (wc->qp_num != e->pub->qpn)
		WRONG(m, e, wc, "QP %u, not %u", wc->qp_num, e->pub->qpn);
	for (uint32_t k = done; k < i; k++)
		if (e->failed || e->out.step[k].flags & F_SIGNALED)
			WRONG(m, e, wc, "step %u has no completion, step %u has", k, i);
	if (wc->status) {
		if (!e->failed)
			first_error(m, e, wc, i);
		else if (wc->status != IBV_WC_WR_FLUSH_ERR)
			WRONG(m, e, wc, "step %u is behind one that failed", i);
		atomic_store(&e->sdone, i + 1);
		return;
	}
	if (e->failed || i >= e->out.bad || !(p->flags & F_SIGNALED))
		WRONG(m, e, wc, "step %u, a %s (%s): %s", i, kind_names[p->kind], bad_names[p->bad],
			e->failed                  ? "one before it has failed"
			: !(p->flags & F_SIGNALED) ? "it is not signaled"
						   : "it must fail");
	bool right = p->kind == K_WINDOW
			     ? wc->opcode == IBV_WC_BIND_MW || wc->opcode == IBV_WC_LOCAL_INV
			     : wc->opcode == opcode_of(p);
	if (!right)
		WRONG(m, e, wc, "step %u, a %s, has opcode %d", i, kind_names[p->kind], wc->opcode);
	if ((p->kind == K_READ || kind_is_atomic(p->kind)) && wc->byte_len != p->len)
		WRONG(m, e, wc, "step %u, a %s: byte_len %u, not %u", i, kind_names[p->kind],
			wc->byte_len, p->len);
	atomic_store(&e->pub->good, i + 1);
	atomic_store(&e->sdone, i + 1);
}

/* The payload of message k as it should be, against a receive's pieces. */
static bool holds(struct end *e, const uint8_t *mem, const struct piece *pc, unsigned n, unsigned k,
	uint32_t skip)
{
	const struct step *p = &e->in.step[e->in.step_of[k]];
	uint32_t left = p->len;
	const uint8_t *should;
	image_payload(&e->im_in, &e->in, p);
	should = e->im_in.msg;
	for (unsigned i = 0; i < n && left; i++) {
		uint32_t len = pc[i].len, off = skip < len ? skip : len;
		skip -= off;
		len = len - off < left ? len - off : left;
		if (memcmp(mem + pc[i].at + off, should, len))
			return false;
		should += len;
		left -= len;
	}
	return !left;
}

static bool fits(const struct end *e, const struct ibv_wc *wc, unsigned k)
{
	const struct step *p = &e->in.step[e->in.step_of[k]];
	bool imm = p->kind == K_SEND_IMM || p->kind == K_WRITE_IMM;
	uint32_t grh = e->conn->type == IBV_QPT_UD ? GRH : 0;
	return wc->byte_len == p->len + grh && !!(wc->wc_flags & IBV_WC_WITH_IMM) == imm &&
	       (!imm || wc->imm_data == p->imm) &&
	       (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) == (p->kind == K_WRITE_IMM);
}

/* UC and UD: which message is it? */
static unsigned identify(struct side *m, struct end *e, const struct ibv_wc *wc, const uint8_t *mem,
	const struct piece *pc, unsigned n)
{
	bool ud = e->conn->type == IBV_QPT_UD;
	/* over UC, too, a whole message is taken whatever its PSN (IB 9.8.2.2), so one that went
	 * another way (by a socket, before there was a lane) may come later */
	for (unsigned k = 0; k < e->in.msgs; k++) {
		const struct step *p = &e->in.step[e->in.step_of[k]];
		if (e->got[k] || !fits(e, wc, k))
			continue;
		if (p->kind != K_WRITE_IMM && !holds(e, mem, pc, n, k, ud ? GRH : 0))
			continue;
		if (k < e->next_msg)
			see(m, CH_UD_ORDER);
		e->got[k] = 1;
		e->next_msg = k + 1 > e->next_msg ? k + 1 : e->next_msg;
		return k;
	}
	for (unsigned k = 0; m->sh->doubles && k < e->in.msgs; k++)
		if (e->got[k] && fits(e, wc, k) &&
			(e->in.step[e->in.step_of[k]].kind == K_WRITE_IMM ||
				holds(e, mem, pc, n, k, ud ? GRH : 0))) {
			see(m, CH_UD_TWICE);
			return k;
		}
	char alike[200] = "";
	for (unsigned k = 0; k < e->in.msgs; k++)
		if (fits(e, wc, k))
			snprintf(alike + strlen(alike), sizeof(alike) - strlen(alike), " %u%s%s", k,
				e->got[k] ? " (came before)" : "",
				holds(e, mem, pc, n, k, ud ? GRH : 0) ? " (its bytes)" : "");
	WRONG(m, e, wc,
		"%u bytes, opcode %d, flags %x, imm %x are no message that was sent; %u were taken "
		"for %u; so long are%s",
		wc->byte_len, wc->opcode, wc->wc_flags, wc->imm_data, e->rdone, e->next_msg, alike);
}

static void recv_error(struct side *m, struct end *e, const struct ibv_wc *wc, uint32_t i)
{
	enum bad bad = BAD_NONE;
	if (i < e->in.msgs)
		bad = e->in.step[e->in.step_of[i]].bad;
	bool own = (bad == BAD_SHORT && wc->status == IBV_WC_LOC_LEN_ERR) ||
		   (bad == BAD_RECV_LKEY && wc->status == IBV_WC_LOC_PROT_ERR);
	if (!e->fate.dies && e->state == ALIVE)
		WRONG(m, e, wc, "receive %u has no reason to fail", i);
	if (own ? e->rfailed : wc->status != IBV_WC_WR_FLUSH_ERR)
		WRONG(m, e, wc, "receive %u cannot fail so", i);
	if (own)
		has_failed(e);
	uint8_t was = ALIVE;
	e->rfailed = true;
	atomic_fetch_add(&e->pub->flushed, 1);
	atomic_compare_exchange_strong(&e->state, &was, ERRED);
	atomic_fetch_add(&e->rflushed, 1);
}

static void recv_done(struct side *m, struct end *e, const struct ibv_wc *wc)
{
	uint32_t i = (uint32_t)wc->wr_id, done = atomic_load(&e->rdone);
	bool srq = e->in.shared;
	struct piece pieces[SGE_MAX] = {{i % SRQ_SLOTS * SLOT, SLOT}};
	const uint8_t *mem = srq ? m->srq_mem : e->mem[MR_RX];
	unsigned n = 1, k = done;
	if (srq) {
		struct slot *slot = &m->slot[i % SRQ_SLOTS];
		if (i - m->srq_first >= m->srq_posted - m->srq_first || slot->done)
			WRONG(m, e, wc, "slot %u of the SRQ is not posted", i);
		if (e->last_slot != UINT32_MAX && i <= e->last_slot)
			WRONG(m, e, wc, "slot %u of the SRQ after slot %u", i, e->last_slot);
		e->last_slot = i;
		slot->done = 1;
		atomic_fetch_add(&m->srq_done, 1);
	} else if ((wc->wr_id >> 32 & 0xffff) != (m->round & 0xffffu) ||
		   i != done + atomic_load(&e->rflushed) || i >= e->rposted) {
		WRONG(m, e, wc, "receive %u of round %u: done are %u of round %u", i,
			(unsigned)(wc->wr_id >> 32 & 0xffff), done, m->round);
	}
	if (wc->status) {
		if (srq) {
			if (!e->fate.dies || wc->status != IBV_WC_WR_FLUSH_ERR ||
				e->srq_slot_flushed)
				WRONG(m, e, wc, "slot %u cannot fail so", i);
			e->srq_slot_flushed = true;
			m->slot[i % SRQ_SLOTS].flushed = e;
			return;
		}
		recv_error(m, e, wc, i);
		return;
	}
	if (e->rfailed || done >= e->in.msgs)
		if (e->conn->type == IBV_QPT_RC || !m->sh->doubles)
			WRONG(m, e, wc, "message %u: %s", done,
				e->rfailed ? "one before it has failed" : "so many were not sent");
	if (!srq)
		n = plan_receive(&e->in, i, pieces);
	if (e->conn->type != IBV_QPT_RC) {
		k = identify(m, e, wc, mem, pieces, n);
		e->msg_of[done] = (uint16_t)k;
	} else if (!fits(e, wc, k)) {
		const struct step *p = &e->in.step[e->in.step_of[k]];
		WRONG(m, e, wc,
			"message %u, a %s of %u bytes, imm %x: byte_len %u, opcode %d, flags %x, "
			"imm %x",
			k, kind_names[p->kind], p->len, p->imm, wc->byte_len, wc->opcode,
			wc->wc_flags, wc->imm_data);
	}
	const struct step *p = &e->in.step[e->in.step_of[k]];
	if (p->bad)
		WRONG(m, e, wc, "message %u (%s) must fail", k, bad_names[p->bad]);
	if (!!(wc->wc_flags & IBV_WC_WITH_INV) != (p->kind == K_SEND_INV) ||
		(p->kind == K_SEND_INV && wc->invalidated_rkey != e->pub->window_rkey))
		WRONG(m, e, wc, "message %u, a %s: flags %x, key %x, not %x", k,
			kind_names[p->kind], wc->wc_flags, wc->invalidated_rkey,
			e->pub->window_rkey);
	if (e->conn->type == IBV_QPT_UD &&
		(wc->src_qp != e->peer->qpn || !(wc->wc_flags & IBV_WC_GRH)))
		WRONG(m, e, wc, "from QP %u, not %u, flags %x", wc->src_qp, e->peer->qpn,
			wc->wc_flags);
	if (p->kind == K_SEND_INV)
		e->window_bound = false;
	e->slot_of[e->conn->type == IBV_QPT_RC ? k : done] = i;
	atomic_store(&e->rdone, done + 1);
	atomic_store(&e->pub->received, done + 1);
}

static void dispatch(struct side *m, unsigned cq, const struct ibv_wc *wc)
{
	unsigned conn = wc->wr_id >> 56, side = wc->wr_id >> 52 & 0xf, recv = wc->wr_id >> 48 & 0xf;
	struct end *e = NULL;
	__atomic_fetch_add(&m->tally->completions, 1, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < m->nends && !e; i++) {
		struct end *k = m->end[i];
		if (conn == ID_SRQ ? k->pub->qpn == wc->qp_num && k->in.shared
				   : k->number == conn && k->side == side)
			e = k;
	}
	if (!e || recv > 1)
		fail(m, "a completion of nobody: wr_id %llx, QP %u", (unsigned long long)wc->wr_id,
			wc->qp_num);
	if (cq != (recv ? e->rcq : e->scq))
		WRONG(m, e, wc, "in CQ %u, not %u", cq, recv ? e->rcq : e->scq);
	if (e->state == DEAD) {
		see(m, CH_AFTER_END); /* it was in the CQ before */
		return;
	}
	if (recv)
		recv_done(m, e, wc);
	else
		send_done(m, e, wc);
}

unsigned poll_some(struct side *m, unsigned cq, unsigned n)
{
	struct ibv_wc wc[32];
	if (pthread_mutex_trylock(&m->cq_lock[cq]))
		return 0;
	int got = ibv_poll_cq(m->cq[cq], (int)(n < 32 ? n : 32), wc);
	if (got < 0)
		fail(m, "ibv_poll_cq: %d", got);
	for (int i = 0; i < got; i++)
		dispatch(m, cq, &wc[i]);
	pthread_mutex_unlock(&m->cq_lock[cq]);
	return (unsigned)got;
}

bool end_finished(const struct end *e)
{
	uint32_t sends = e->sdone, receives = e->rdone + e->rflushed;
	if (e->state == DEAD)
		return true;
	if (e->fate.dies)
		return e->state == ERRED && sends == e->out.n &&
		       (e->in.shared || receives == e->in.msgs);
	return sends == e->out.n && (e->conn->type != IBV_QPT_RC || receives == e->in.msgs);
}
