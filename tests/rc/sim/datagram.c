/* SPDX-License-Identifier: BSD-3-Clause */
/* datagram.c - UC and UD on the same link: nothing is sent again, so what arrives is checked
 * against all that was ever sent.
 *
 * A message that is received is whole and right, whatever the link did. Where the link neither
 * duplicates nor reorders, UC and UD deliver in order and at most once; where it harms nothing and
 * receives are always posted, everything. (IB 9.8.2.2: a UC responder takes the beginning of a
 * message at any PSN, so a duplicated message of one packet is received twice.)
 */
#include "sim.h"

void sim_datagram_posted(struct sim_end *e, const struct sim_op *op)
{
	e->history[e->history_len++] = *op;
}

static bool in_order(const struct sim_config *c) { return !c->dup && !c->reorder && !c->late; }

static bool holds(struct sim_end *e, const struct sim_recv *r, const struct sim_op *op)
{
	uint32_t skip = e->w->cfg.type == IBV_QPT_UD ? RPWI_GRH_LEN : 0, done = 0;
	for (unsigned i = 0; i < r->nsge && done < op->len; i++) {
		uint32_t s = RPWI_MIN(skip, r->piece[i].len),
			 n = RPWI_MIN(r->piece[i].len - s, op->len - done);
		if (!pattern_holds_from(
			    e->recv_region->bytes + r->piece[i].off + s, n, op->pattern, done))
			return false;
		skip -= s;
		done += n;
	}
	return done == op->len;
}

static bool is_that(struct sim_end *e, const struct sim_recv *r, const struct sim_op *op,
	const struct ibv_wc *wc, bool solicited)
{
	uint32_t grh = e->w->cfg.type == IBV_QPT_UD ? RPWI_GRH_LEN : 0;
	if (!sim_takes_recv(op->opcode) ||
		wc->opcode != (sim_is_send(op->opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM) ||
		wc->byte_len != op->len + grh || solicited != op->solicited)
		return false;
	bool imm = wc->wc_flags & IBV_WC_WITH_IMM;
	if (imm != sim_has_imm(op->opcode) || (imm && wc->imm_data != op->imm))
		return false;
	return !sim_is_send(op->opcode) || holds(e, r, op);
}

void sim_datagram_received(struct sim_end *e, const struct ibv_wc *wc, bool solicited)
{
	struct sim_world *w = e->w;
	struct sim_end *by = e->peer;
	struct sim_recv *r = &e->recv[wc->wr_id];
	uint64_t i = in_order(&w->cfg) ? by->history_next : 0;
	while (i < by->history_len && !is_that(e, r, &by->history[i], wc, solicited))
		i++;
	if (i == by->history_len)
		sim_fail(w,
			"end %u: received %u bytes, flags %x, immediate %x, which nobody sent%s",
			e->index, wc->byte_len, wc->wc_flags, wc->imm_data,
			in_order(&w->cfg) ? " after what came before" : "");
	if (w->cfg.type == IBV_QPT_UD && (wc->src_qp != by->qp.qpn || !(wc->wc_flags & IBV_WC_GRH)))
		sim_fail(w, "end %u: received from QP %x, flags %x; it was QP %x", e->index,
			wc->src_qp, wc->wc_flags, by->qp.qpn);
	const struct sim_op *op = &by->history[i];
	if (sim_is_write(op->opcode) && in_order(&w->cfg) &&
		!pattern_holds(e->region[SIM_REMOTE].bytes + op->remote_off, op->len, op->pattern))
		sim_fail(w, "end %u: WRITE %llu is received, but is not there", e->index,
			(unsigned long long)op->id);
	sim_check_landing(e, r, op, (uint32_t)wc->wr_id);
	r->posted = false;
	by->history_next = i + 1;
	e->delivered++;
}

struct sim_op *sim_datagram_write(struct sim_end *by, uint64_t off, const void *src, uint32_t len)
{
	for (uint64_t i = by->history_len; i-- > 0;) { /* most likely one of the last */
		struct sim_op *op = &by->history[i];
		if (sim_is_write(op->opcode) && off >= op->remote_off &&
			off + len <= op->remote_off + op->len &&
			pattern_holds_from(src, len, op->pattern, off - op->remote_off))
			return op;
	}
	return NULL;
}

void sim_datagram_check_at_end(struct sim_end *e)
{
	struct sim_world *w = e->w;
	const struct sim_config *c = &w->cfg;
	uint64_t sent = 0;
	for (uint64_t i = 0; i < e->peer->history_len; i++)
		sent += sim_takes_recv(e->peer->history[i].opcode);
	bool harmless =
		in_order(c) && !c->loss && !c->corrupt && !c->queue_max && !e->qp.stats.rx_no_rwqe;
	if (harmless && e->delivered != sent)
		sim_fail(w, "end %u: %llu of %llu messages received, though nothing was lost",
			e->index, (unsigned long long)e->delivered, (unsigned long long)sent);
	if (e->op_head != e->op_tail || e->qp.state != IBV_QPS_RTS)
		sim_fail(w, "end %u: something is left over, or state %d", e->index, e->qp.state);
	w->n.undelivered += sent > e->delivered ? sent - e->delivered : 0;
}
