/* SPDX-License-Identifier: BSD-3-Clause */
/* failure.c - one request of a run is made to fail, or one connection dies. Held here: it fails
 * with the right status, what was before it is complete, what is after it is flushed, each once and
 * in order (IB 10.8.2), its peer learns of it, nothing that was not allowed is in memory, and it
 * ends in the time that the retry settings say.
 */
#include "sim.h"

/* What the failing request completes with (IB 9.7.5.2.8 and following, 11.6.2). */
static const enum ibv_wc_status first_status[SIM_FAILURES] = {
	[SIM_BAD_RKEY] = IBV_WC_REM_ACCESS_ERR,
	[SIM_OUT_OF_BOUNDS] = IBV_WC_REM_ACCESS_ERR,
	[SIM_MISALIGNED] = IBV_WC_REM_INV_REQ_ERR,
	[SIM_BAD_LKEY] = IBV_WC_LOC_PROT_ERR,
	[SIM_TOO_LONG] = IBV_WC_REM_INV_REQ_ERR,
	[SIM_DEATH] = IBV_WC_RETRY_EXC_ERR,
};

void sim_failure_plan(struct sim_world *w)
{
	struct sim_config *c = &w->cfg;
	for (unsigned i = 0; i < w->nends; i++)
		w->ends[i].broken_at_ns = RPWI_NEVER;
	w->death_at_ns = w->death_ns = RPWI_NEVER;
	if (!sim_is_rc(w) || (c->failure == SIM_MISALIGNED && !c->rd_atomic))
		c->failure = SIM_NO_FAILURE;
	w->victim = &w->ends[rng_below(&w->rng_setup, w->nends)];
	if (!w->victim->to_post)
		w->victim = w->victim->peer;
	if (!w->victim->to_post)
		c->failure = SIM_NO_FAILURE;
	if (c->failure == SIM_NO_FAILURE)
		return;
	w->fail_at = rng_below(&w->rng_setup, w->victim->to_post);
	if (c->failure == SIM_DEATH)
		w->death_at_ns = rng_below(&w->rng_setup, 20 * RPWI_NS_PER_MS);
}

bool sim_failure_due(const struct sim_end *e)
{
	const struct sim_world *w = e->w;
	return w->cfg.failure != SIM_NO_FAILURE && w->cfg.failure != SIM_DEATH && e == w->victim &&
	       e->op_tail == w->fail_at;
}

/* An atomic's foreseen effect does not come. */
static void unforesee(struct sim_end *e, const struct sim_op *op)
{
	if (sim_is_atomic(op->opcode))
		memcpy(e->peer->shadow + op->remote_off, &op->expect_orig, 8);
}

/* Turn the request that was made into one that must fail. */
void sim_failure_make(struct sim_end *e, struct sim_op *op, struct ibv_send_wr *wr)
{
	struct sim_region *target = &e->peer->region[SIM_REMOTE], *local = &e->region[SIM_LOCAL];
	unforesee(e, op);
	op->bad = true;
	op->opcode = e->w->cfg.failure == SIM_MISALIGNED ? IBV_WR_ATOMIC_FETCH_AND_ADD
		     : e->w->cfg.failure == SIM_TOO_LONG ? IBV_WR_SEND
							 : IBV_WR_RDMA_WRITE;
	op->is_inline = op->hot = op->solicited = false;
	op->len = 0; /* as the other checks see it: it has no effect */
	static struct ibv_sge sge;
	sge = (struct ibv_sge){.addr = local->iova + op->slot * sim_slot_size(&e->w->cfg),
		.length = 8,
		.lkey = local->lkey};
	*wr = (struct ibv_send_wr){.wr_id = op->id,
		.opcode = op->opcode,
		.send_flags = wr->send_flags & IBV_SEND_SIGNALED,
		.sg_list = &sge,
		.num_sge = 1};
	wr->wr.rdma.remote_addr = target->iova;
	wr->wr.rdma.rkey = target->rkey;
	switch (e->w->cfg.failure) {
	case SIM_BAD_RKEY:
		wr->wr.rdma.rkey ^= 0x4000;
		break;
	case SIM_OUT_OF_BOUNDS:
		wr->wr.rdma.remote_addr += target->len - 7;
		break;
	case SIM_BAD_LKEY:
		sge.lkey ^= 0x4000;
		break;
	case SIM_TOO_LONG:
		sge.length = sim_slot_size(&e->w->cfg);
		break; /* more than any receive takes */
	case SIM_MISALIGNED:
		wr->wr.atomic.remote_addr = target->iova + 4;
		wr->wr.atomic.rkey = target->rkey;
		break;
	default:
		break;
	}
}

void sim_failure_tick(struct sim_world *w)
{
	if (w->now_ns < w->death_at_ns)
		return;
	w->death_at_ns = RPWI_NEVER;
	w->death_ns = w->now_ns;
	w->victim->dead = true;
}

static bool concerned(const struct sim_end *e)
{
	return e->w->cfg.failure != SIM_NO_FAILURE &&
	       (e == e->w->victim || e->peer == e->w->victim);
}

/* With the first failure: what of the atomics still outstanding will never be executed? They were
 * foreseen in order; take that back from the last one on. */
static void break_end(struct sim_end *e)
{
	e->broken_at_ns = e->w->now_ns;
	for (uint64_t i = e->op_tail; i-- > e->op_head;)
		if (!sim_op_at(e, i)->executed && !sim_op_at(e, i)->bad)
			unforesee(e, sim_op_at(e, i));
}

/* May the first request to fail at this end have this status? The peer of the victim either sees
 * its QP fail, and is flushed, or gets no answers any more. */
static bool first_status_ok(
	const struct sim_end *e, const struct sim_op *op, enum ibv_wc_status status)
{
	enum sim_failure f = e->w->cfg.failure;
	const struct sim_config *c = &e->w->cfg;
	/* or come before the answer to a READ. Its sender is in ERR by then, and silent (IB
	 * 9.9.3) */
	bool nak_may_be_lost = f != SIM_BAD_LKEY &&
			       (c->loss || c->corrupt || c->late || c->reorder || c->queue_max);
	if (e == e->w->victim && op->id < e->w->fail_at && nak_may_be_lost && f != SIM_DEATH)
		return status == IBV_WC_RETRY_EXC_ERR; /* so was its ACK */
	if (op->bad)
		return status == first_status[f] ||
		       (nak_may_be_lost && status == IBV_WC_RETRY_EXC_ERR);
	if (f == SIM_DEATH)
		return status == IBV_WC_RETRY_EXC_ERR && e->w->death_ns != RPWI_NEVER;
	return e != e->w->victim &&
	       (status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_RETRY_EXC_ERR);
}

/* What was behind the victim's failed request must not have happened. Of others one cannot know. */
static void settle(struct sim_end *e, const struct sim_op *op)
{
	bool behind = e == e->w->victim && e->w->cfg.failure != SIM_DEATH && op->id > e->w->fail_at;
	if (sim_is_write(op->opcode) && !op->bad && !op->after_failure && !behind) {
		e->uncertain[e->uncertain_count].off = op->remote_off;
		e->uncertain[e->uncertain_count++].len = op->len;
	}
	if (behind && op->executed && op->opcode != IBV_WR_LOCAL_INV)
		sim_fail(e->w,
			"end %u: request %llu was executed, though request %llu before it failed",
			e->index, (unsigned long long)op->id, (unsigned long long)e->w->fail_at);
	if (op->after_failure)
		unforesee(e, op);
}

static void check_in_time(struct sim_end *e)
{
	struct sim_world *w = e->w;
	/* Each of retry_cnt + 1 waits may take 4 times the local time-out (IB 9.9.2.1.1), and a RNR
	 * wait may have been under way. */
	uint64_t bound_ns = 8 * 4 * (4096ull << w->cfg.timeout) + RPWI_NS_PER_S,
		 since_ns = RPWI_MAX(w->death_ns, e->quiet_since_ns);
	if (w->now_ns - since_ns > bound_ns)
		sim_fail(w, "end %u: learns only after %llu ns that its peer is dead", e->index,
			(unsigned long long)(w->now_ns - since_ns));
}

void sim_failed_send(struct sim_end *e, const struct ibv_wc *wc)
{
	struct sim_world *w = e->w;
	struct sim_op *op = sim_op_at(e, wc->wr_id);
	if (!concerned(e))
		sim_fail(w, "end %u: request %llu failed: status %d; retries left %u", e->index,
			(unsigned long long)wc->wr_id, wc->status, e->qp.retry_left);
	if (e->op_head != wc->wr_id)
		sim_fail(w, "end %u: request %llu fails, but %llu was not completed", e->index,
			(unsigned long long)wc->wr_id, (unsigned long long)e->op_head);
	bool first = !e->send_failed;
	if (first ? !first_status_ok(e, op, wc->status) : wc->status != IBV_WC_WR_FLUSH_ERR)
		sim_fail(w,
			"end %u: request %llu, the %s to fail, has status %d (failure %d, made at "
			"end %u, request %llu)",
			e->index, (unsigned long long)wc->wr_id, first ? "first" : "next",
			wc->status, w->cfg.failure, w->victim->index,
			(unsigned long long)w->fail_at);
	if (first) {
		if (w->death_ns != RPWI_NEVER)
			check_in_time(e);
		if (!sim_broken(e))
			break_end(e);
		e->send_failed = true;
		w->n.failures++;
	}
	w->n.flushed += wc->status == IBV_WC_WR_FLUSH_ERR;
	settle(e, op);
	e->op_head++;
}

void sim_failed_recv(struct sim_end *e, const struct ibv_wc *wc)
{
	struct sim_world *w = e->w;
	bool too_long = w->cfg.failure == SIM_TOO_LONG && e->peer == w->victim &&
			wc->status == IBV_WC_LOC_LEN_ERR;
	if (!concerned(e) || (wc->status != IBV_WC_WR_FLUSH_ERR && !too_long))
		sim_fail(w, "end %u: receive %llu failed: status %d", e->index,
			(unsigned long long)wc->wr_id, wc->status);
	struct sim_recv *r = &e->recv[wc->wr_id];
	for (unsigned i = 0; i < r->nsge; i++) /* a part of a message may be there */
		memset(e->recv_region->bytes + r->piece[i].off, r->junk, r->piece[i].len);
	r->posted = false;
	if (!sim_broken(e))
		break_end(e);
}

void sim_failure_check_at_end(struct sim_end *e)
{
	struct sim_world *w = e->w;
	struct sim_region *target = &e->region[SIM_REMOTE];
	for (unsigned i = 0; i < e->peer->uncertain_count; i++)
		memcpy(e->shadow + e->peer->uncertain[i].off,
			target->bytes + e->peer->uncertain[i].off, e->peer->uncertain[i].len);
	if (e->op_head != e->op_tail)
		sim_fail(w, "end %u: requests were never completed", e->index);
	if (memcmp(target->bytes, e->shadow, target->len))
		sim_fail(w,
			"end %u: its memory differs from what the requests make of it, after a "
			"failure",
			e->index);
	if (e == w->victim && w->cfg.failure != SIM_DEATH && e->qp.state != IBV_QPS_ERR)
		sim_fail(w, "end %u: its request failed, but its state is %d", e->index,
			e->qp.state);
	if (e->qp.state == IBV_QPS_ERR && e->rq == &e->own_rq && rpwi_rq_count(e->rq))
		sim_fail(w, "end %u: in ERR with %u receives that were not flushed", e->index,
			rpwi_rq_count(e->rq));
}
