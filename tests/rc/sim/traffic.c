/* SPDX-License-Identifier: BSD-3-Clause */
/* traffic.c - the programs on both sides: what they post, and the check of every completion against
 * what was posted.
 *
 * Held here: a send queue completes in order, each signaled request once; what consumes a receive
 * consumes one, in order, with the right bytes, length, flags and immediate, before its sender sees
 * it complete; READs and atomics return what the target held; bytes beside the message are never
 * touched. Requests in flight at the same time never overlap in the target (but for the hot words,
 * where atomics are ordered), so each has one right answer.
 */
#include "sim.h"

#include <stdlib.h>

static const uint64_t JUNK = 0x5ca1ab1e;
enum { HOT_BYTES = 64, JUNK_CHECKED = 8192 };

static enum ibv_wc_opcode wc_opcode_of(enum ibv_wr_opcode o)
{
	return sim_is_send(o)                     ? IBV_WC_SEND
	       : sim_is_write(o)                  ? IBV_WC_RDMA_WRITE
	       : sim_is_read(o)                   ? IBV_WC_RDMA_READ
	       : o == IBV_WR_ATOMIC_CMP_AND_SWP   ? IBV_WC_COMP_SWAP
	       : o == IBV_WR_ATOMIC_FETCH_AND_ADD ? IBV_WC_FETCH_ADD
	       : sim_is_atomic_write(o)           ? (enum ibv_wc_opcode)RPWI_WC_ATOMIC_WRITE
						  : IBV_WC_LOCAL_INV;
}

/* Cut `len` bytes into pieces that lie in a slot with gaps between them. */
static unsigned cut(struct sim_world *w, uint32_t len, uint32_t sge_max, uint32_t *off, uint32_t *n)
{
	unsigned count = 0, want = (unsigned)rng_between(&w->rng_app, 1, sge_max);
	uint32_t at = SIM_SLOT_GAP, left = len;
	while (left && count < want) {
		uint32_t k = count + 1 == want ? left : (uint32_t)rng_between(&w->rng_app, 1, left);
		off[count] = at + (uint32_t)rng_below(&w->rng_app, 8);
		n[count] = k;
		at = off[count] + k + 8;
		left -= k;
		count++;
	}
	return count;
}

/* ---- Posting receives ---- */

uint8_t sim_junk_of(unsigned slot) { return (uint8_t)rng_mix(JUNK + slot); }

static int free_recv_slot(struct sim_end *e)
{
	for (unsigned i = 0; i < e->w->cfg.rq_depth; i++)
		if (!e->recv[i].posted)
			return (int)i;
	return -1;
}

static bool post_one_recv(struct sim_end *e)
{
	struct sim_world *w = e->w;
	struct ibv_sge sge[SIM_SGE_MAX];
	uint32_t off[SIM_SGE_MAX], n[SIM_SGE_MAX];
	int slot = free_recv_slot(e);
	if (slot < 0)
		return false;
	struct sim_recv *r = &e->recv[slot];
	*r = (struct sim_recv){.posted = true,
		.total = sim_recv_size(&w->cfg),
		.junk = sim_junk_of((unsigned)slot),
		.serial = e->recv_posted++};
	r->nsge = cut(w, r->total, w->cfg.sge_max, off, n);
	for (unsigned i = 0; i < r->nsge; i++) {
		r->piece[i].off = (uint32_t)slot * sim_slot_size(&w->cfg) + off[i];
		r->piece[i].len = n[i];
		sge[i] = (struct ibv_sge){.addr = e->recv_region->iova + r->piece[i].off,
			.length = n[i],
			.lkey = e->recv_region->lkey};
	}
	struct ibv_recv_wr wr = {.wr_id = (uint64_t)slot, .sg_list = sge, .num_sge = (int)r->nsge};
	int rc = rpwi_rq_post(e->rq, &wr);
	if (rc)
		sim_fail(
			w, "end %u: a receive into a queue with room is refused: %d", e->index, rc);
	return true;
}

static bool recv_room(struct sim_end *e)
{
	return rpwi_rq_count(e->rq) < e->w->cfg.rq_depth && free_recv_slot(e) >= 0;
}

static void post_receives(struct sim_end *e)
{
	struct sim_world *w = e->w;
	if (rng_chance(&w->rng_app, w->cfg.stall))
		return;
	uint64_t n = rng_between(&w->rng_app, 1, w->cfg.rq_depth);
	bool any = false;
	while (n-- && rpwi_rq_count(e->rq) < w->cfg.rq_depth && post_one_recv(e))
		any = true;
	if (any && e->rq == &e->own_rq)
		rpwi_qp_recv_posted(&e->qp);
}

/* ---- Posting requests ---- */

static enum ibv_wr_opcode pick_opcode(struct sim_world *w)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		unsigned weight;
		bool rd, uc, ud;
	} table[] = {
		{IBV_WR_SEND, 20, false, true, true},
		{IBV_WR_SEND_WITH_IMM, 8, false, true, true},
		{IBV_WR_SEND_WITH_INV, 6, false, false, false},
		{IBV_WR_RDMA_WRITE, 16, false, true, false},
		{(enum ibv_wr_opcode)RPWI_WR_ATOMIC_WRITE, 4, true, false, false},
		{IBV_WR_RDMA_WRITE_WITH_IMM, 10, false, true, false},
		{IBV_WR_RDMA_READ, 16, true, false, false},
		{IBV_WR_ATOMIC_CMP_AND_SWP, 8, true, false, false},
		{IBV_WR_ATOMIC_FETCH_AND_ADD, 9, true, false, false},
		{IBV_WR_LOCAL_INV, 3, false, false, false},
	};
	enum ibv_qp_type type = w->cfg.type;
	for (;;) {
		uint64_t r = rng_below(&w->rng_app, 100);
		for (size_t i = 0; i < RPWI_ARRAY_LEN(table); r -= table[i].weight, i++)
			if (r < table[i].weight) {
				if ((!table[i].rd || w->cfg.rd_atomic) &&
					(type == IBV_QPT_RC ||
						(type == IBV_QPT_UC && table[i].uc) ||
						(type == IBV_QPT_UD && table[i].ud)))
					return table[i].opcode;
				break;
			}
	}
}

static uint32_t pick_len(struct sim_world *w)
{
	const struct sim_config *c = &w->cfg;
	unsigned bits = 0;
	int64_t len;
	while (1u << bits < c->size_max)
		bits++;
	if (rng_chance(&w->rng_app, 0.2)) /* at and beside packet boundaries */
		len = (int64_t)(c->mtu * rng_below(&w->rng_app, 4)) +
		      (int64_t)rng_below(&w->rng_app, 3) - 1;
	else
		len = (int64_t)rng_below(&w->rng_app, 1ull << rng_below(&w->rng_app, bits + 1));
	return (uint32_t)RPWI_MIN(RPWI_MAX(len, 0),
		c->type == IBV_QPT_UD ? RPWI_MIN(c->size_max, c->mtu) : c->size_max);
}

static bool overlaps(const struct sim_end *e, uint64_t off, uint64_t len)
{
	for (uint64_t i = e->op_head; i < e->op_tail; i++) {
		const struct sim_op *op = sim_op_at(e, i);
		if (sim_is_remote(op->opcode) && off < op->remote_off + op->len &&
			op->remote_off < off + len)
			return true;
	}
	return false;
}

static bool pick_target(struct sim_end *e, struct sim_op *op)
{
	struct sim_world *w = e->w;
	uint32_t room = e->peer->region[SIM_REMOTE].len - HOT_BYTES;
	op->hot = sim_is_atomic(op->opcode) && rng_chance(&w->rng_app, 0.6);
	if (op->hot) {
		op->remote_off = 8 * rng_below(&w->rng_app, SIM_HOT_WORDS);
		return true;
	}
	for (int attempt = 0; attempt < 6; attempt++) {
		op->remote_off = HOT_BYTES + rng_below(&w->rng_app, room - op->len + 1);
		if (sim_is_atomic(op->opcode) || sim_is_atomic_write(op->opcode))
			op->remote_off = op->remote_off & ~7ull;
		if (!overlaps(e, op->remote_off, op->len))
			return true;
	}
	return false;
}

/* What an atomic will find and leave: they execute in the order of posting. */
static void foresee_atomic(struct sim_end *e, struct sim_op *op)
{
	struct sim_world *w = e->w;
	uint64_t v;
	memcpy(&v, e->peer->shadow + op->remote_off, 8);
	op->expect_orig = v;
	op->swap_add = rng_next(&w->rng_app);
	op->compare = rng_chance(&w->rng_app, 0.6) ? v : rng_next(&w->rng_app);
	if (op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		v += op->swap_add;
	else if (op->compare == v)
		v = op->swap_add;
	memcpy(e->peer->shadow + op->remote_off, &v, 8);
}

static struct sim_op *make_op(struct sim_end *e)
{
	struct sim_world *w = e->w;
	struct sim_op *op = sim_op_at(e, e->op_tail);
	*op = (struct sim_op){.id = e->op_tail,
		.opcode = pick_opcode(w),
		.slot = (unsigned)(e->op_tail % w->cfg.sq_depth),
		.after_failure = sim_broken(e)};
	op->pattern = rng_mix(w->cfg.seed * 0x10001 + e->index) + (op->id << 32);
	op->imm = (uint32_t)rng_next(&w->rng_app);
	op->inv_key = (uint32_t)rng_mix(op->pattern);
	op->solicited = rng_chance(&w->rng_app, 0.2) && sim_takes_recv(op->opcode);
	op->len = sim_is_atomic(op->opcode) || sim_is_atomic_write(op->opcode) ? 8
		  : op->opcode == IBV_WR_LOCAL_INV                             ? 0
									       : pick_len(w);
	if (sim_is_remote(op->opcode) && !pick_target(e, op)) {
		op->opcode = IBV_WR_SEND;
		op->remote_off = 0;
	}
	if (sim_is_atomic(op->opcode))
		foresee_atomic(e, op);
	if (!sim_is_rc(w)) /* of no meaning to UC and UD */
		op->inv_key = 0;
	bool last = e->to_post == 1 || e->op_tail + 1 - e->op_head == w->cfg.sq_depth;
	op->signaled = w->cfg.sig_all || last || rng_chance(&w->rng_app, 0.6);
	op->is_inline = op->len <= w->cfg.inline_max &&
			(sim_is_send(op->opcode) || sim_is_write(op->opcode) ||
				sim_is_atomic_write(op->opcode)) &&
			rng_chance(&w->rng_app, 0.5);
	return op;
}

static void place_data(struct sim_end *e, struct sim_op *op, struct ibv_sge *sge)
{
	struct sim_region *r = &e->region[SIM_LOCAL];
	uint32_t off[SIM_SGE_MAX], n[SIM_SGE_MAX];
	uint64_t done = 0;
	op->nsge = cut(e->w, op->len, sim_is_atomic(op->opcode) ? 1 : e->w->cfg.sge_max, off, n);
	for (unsigned i = 0; i < op->nsge; i++) {
		uint32_t at = op->slot * sim_slot_size(&e->w->cfg) + off[i];
		op->piece[i].off = at;
		op->piece[i].len = n[i];
		sge[i] = (struct ibv_sge){.addr = r->iova + at, .length = n[i], .lkey = r->lkey};
		if (op->is_inline)
			sge[i] = (struct ibv_sge){
				.addr = (uintptr_t)(r->bytes + at), .length = n[i], .lkey = 0xbad};
		/* A READ's landing place holds something else than what is to come. */
		pattern_fill_from(r->bytes + at, n[i],
			sim_is_read(op->opcode) || sim_is_atomic(op->opcode) ? ~op->pattern
									     : op->pattern,
			done);
		done += n[i];
	}
}

static void scribble(struct sim_end *e, const struct sim_op *op)
{
	for (unsigned i = 0; i < op->nsge; i++)
		pattern_fill_from(e->region[SIM_LOCAL].bytes + op->piece[i].off,
			RPWI_MIN(op->piece[i].len, JUNK_CHECKED), ~op->pattern, 77);
}

static void post_one_send(struct sim_end *e)
{
	struct sim_world *w = e->w;
	struct sim_op *op = make_op(e);
	struct ibv_sge sge[SIM_SGE_MAX];
	struct sim_region *target = &e->peer->region[SIM_REMOTE];
	place_data(e, op, sge);
	struct ibv_send_wr wr = {
		.wr_id = op->id, .opcode = op->opcode, .sg_list = sge, .num_sge = (int)op->nsge};
	wr.send_flags = (op->signaled ? IBV_SEND_SIGNALED : 0) |
			(op->solicited ? IBV_SEND_SOLICITED : 0) |
			(op->is_inline ? IBV_SEND_INLINE : 0) |
			(rng_chance(&w->rng_app, 0.1) ? IBV_SEND_FENCE : 0);
	if (sim_has_imm(op->opcode))
		wr.imm_data = op->imm;
	if (op->opcode == IBV_WR_SEND_WITH_INV || op->opcode == IBV_WR_LOCAL_INV)
		wr.invalidate_rkey = op->inv_key;
	if (sim_is_atomic(op->opcode)) {
		wr.wr.atomic.remote_addr = target->iova + op->remote_off;
		wr.wr.atomic.rkey = target->rkey;
		wr.wr.atomic.compare_add =
			op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? op->swap_add : op->compare;
		wr.wr.atomic.swap = op->swap_add;
	} else if (sim_is_remote(op->opcode)) {
		wr.wr.rdma.remote_addr = target->iova + op->remote_off;
		wr.wr.rdma.rkey = target->rkey;
	}
	if (sim_failure_due(e))
		sim_failure_make(e, op, &wr);
	if (w->cfg.type == IBV_QPT_UD) {
		wr.wr.ud.remote_qpn = e->peer->qp.qpn;
		wr.wr.ud.remote_qkey = SIM_QKEY;
	}
	if (!sim_is_rc(w))
		sim_datagram_posted(e, op);
	if (e->op_head == e->op_tail)
		e->quiet_since_ns = w->now_ns;
	e->op_tail++;
	e->to_post--;
	int rc = rpwi_qp_post_send(&e->qp, &wr, w->cfg.type == IBV_QPT_UD ? &e->av : NULL);
	if (rc)
		sim_fail(w,
			"end %u: request %llu, opcode %d, is refused with %d; %llu of %u "
			"outstanding",
			e->index, (unsigned long long)op->id, op->opcode, rc,
			(unsigned long long)(e->op_tail - 1 - e->op_head), w->cfg.sq_depth);
	if (op->is_inline) /* the data was taken: the program may use its buffer again */
		scribble(e, op);
}

static bool send_room(const struct sim_end *e)
{
	return e->to_post && e->op_tail - e->op_head < e->w->cfg.sq_depth;
}

void sim_app_step(struct sim_end *e)
{
	struct sim_world *w = e->w;
	e->app_scheduled = false;
	post_receives(e);
	uint64_t n = rng_between(&w->rng_app, 0, w->cfg.sq_depth);
	/* what was flushed may still have effects: keep its records */
	if (sim_broken(e) && e->in_link)
		n = 0;
	while (n-- && send_room(e))
		post_one_send(e);
	/* into a QP in error one could post for ever */
	if (send_room(e) || (recv_room(e) && !sim_broken(e)))
		sim_app_wake(e);
}

void sim_app_wake(struct sim_end *e)
{
	struct sim_world *w = e->w;
	if (e->app_scheduled)
		return;
	e->app_scheduled = true;
	sim_schedule(w,
		w->now_ns + rng_below(&w->rng_app, 2 * (w->cfg.delay_ns + w->cfg.jitter_ns) + 1000),
		NULL, e);
}

/* ---- Completions of requests ---- */

static void check_target(struct sim_end *e, struct sim_op *op)
{
	if (!pattern_holds(
		    e->peer->region[SIM_REMOTE].bytes + op->remote_off, op->len, op->pattern))
		sim_fail(e->w,
			"end %u: WRITE %llu of %u bytes is complete, but the target holds "
			"something else",
			e->index, (unsigned long long)op->id, op->len);
}

static void check_landed(struct sim_end *e, const struct sim_op *op)
{
	const uint8_t *want = e->peer->shadow + op->remote_off;
	for (unsigned i = 0; i < op->nsge; want += op->piece[i].len, i++)
		if (memcmp(e->region[SIM_LOCAL].bytes + op->piece[i].off, want, op->piece[i].len))
			sim_fail(e->w,
				"end %u: READ %llu of %u bytes at %llu brought something else than "
				"the target held",
				e->index, (unsigned long long)op->id, op->len,
				(unsigned long long)op->remote_off);
}

static void check_orig(struct sim_end *e, const struct sim_op *op)
{
	uint64_t got;
	memcpy(&got, e->region[SIM_LOCAL].bytes + op->piece[0].off, 8);
	if (got != op->expect_orig || !op->executed)
		sim_fail(e->w, "end %u: atomic %llu returned %016llx, not %016llx%s", e->index,
			(unsigned long long)op->id, (unsigned long long)got,
			(unsigned long long)op->expect_orig,
			op->executed ? "" : ", and was never executed");
}

static void retire(struct sim_end *e, struct sim_op *op)
{
	struct sim_world *w = e->w;
	if (!sim_is_rc(w)) /* complete means sent, no more */
		goto out;
	if (sim_takes_recv(op->opcode) && e->op_exec <= op->id)
		sim_fail(w, "end %u: request %llu is complete before its receive is", e->index,
			(unsigned long long)op->id);
	if (sim_is_write(op->opcode)) {
		check_target(e, op);
		pattern_fill(e->peer->shadow + op->remote_off, op->len, op->pattern);
	} else if (sim_is_read(op->opcode)) {
		check_landed(e, op);
	} else if (sim_is_atomic(op->opcode)) {
		check_orig(e, op);
	} else if (sim_is_atomic_write(op->opcode)) {
		if (!op->executed)
			sim_fail(w, "end %u: ATOMIC WRITE %llu is complete, and was never executed",
				e->index, (unsigned long long)op->id);
		check_target(e, op);
	} else if ((op->opcode == IBV_WR_SEND_WITH_INV || op->opcode == IBV_WR_LOCAL_INV) &&
		   !op->executed) {
		sim_fail(w, "end %u: request %llu is complete, but key %x was never invalidated",
			e->index, (unsigned long long)op->id, op->inv_key);
	}
out:
	if (!op->is_inline)
		scribble(e, op);
	w->n.messages++;
	w->n.bytes += op->len;
}

static void on_send_complete(struct sim_end *e, const struct ibv_wc *wc)
{
	struct sim_world *w = e->w;
	if (wc->status == IBV_WC_SUCCESS && sim_broken(e))
		sim_fail(w, "end %u: request %llu succeeds after one that failed", e->index,
			(unsigned long long)wc->wr_id);
	if (wc->wr_id < e->op_head || wc->wr_id >= e->op_tail)
		sim_fail(w, "end %u: request %llu completes, of [%llu, %llu) that are outstanding",
			e->index, (unsigned long long)wc->wr_id, (unsigned long long)e->op_head,
			(unsigned long long)e->op_tail);
	struct sim_op *op = sim_op_at(e, wc->wr_id);
	if (wc->status != IBV_WC_SUCCESS) {
		/* the ones before it went well */
		while (e->op_head < wc->wr_id && !sim_op_at(e, e->op_head)->signaled &&
			!e->send_failed)
			retire(e, sim_op_at(e, e->op_head++));
		sim_failed_send(e, wc);
		return;
	}
	e->quiet_since_ns = w->now_ns;
	if (op->bad)
		sim_fail(w, "end %u: request %llu was made to fail (%d) and succeeds", e->index,
			(unsigned long long)wc->wr_id, w->cfg.failure);
	if (!op->signaled)
		sim_fail(w, "end %u: request %llu completes, though it is not signaled", e->index,
			(unsigned long long)wc->wr_id);
	if (wc->opcode != wc_opcode_of(op->opcode))
		sim_fail(w, "end %u: request %llu completes as opcode %d, not %d", e->index,
			(unsigned long long)wc->wr_id, wc->opcode, wc_opcode_of(op->opcode));
	if ((sim_is_read(op->opcode) || sim_is_atomic(op->opcode) ||
		    sim_is_atomic_write(op->opcode)) &&
		wc->byte_len != op->len)
		sim_fail(w, "end %u: request %llu completes with %u bytes, not %u", e->index,
			(unsigned long long)wc->wr_id, wc->byte_len, op->len);
	while (e->op_head <= wc->wr_id) {
		op = sim_op_at(e, e->op_head);
		if ((op->signaled || op->bad) && e->op_head != wc->wr_id)
			sim_fail(w, "end %u: request %llu was passed over", e->index,
				(unsigned long long)e->op_head);
		retire(e, op);
		e->op_head++;
	}
}

/* ---- Completions of receives ---- */

/* The next request of the peer that takes a receive. */
static struct sim_op *next_expected(struct sim_end *e)
{
	struct sim_end *by = e->peer;
	by->op_exec = RPWI_MAX(by->op_exec, sim_op_oldest(by));
	while (by->op_exec < by->op_tail && !sim_takes_recv(sim_op_at(by, by->op_exec)->opcode))
		by->op_exec++;
	return by->op_exec < by->op_tail ? sim_op_at(by, by->op_exec++) : NULL;
}

static bool all_junk(const uint8_t *p, size_t n, uint8_t junk)
{
	return !n || (p[0] == junk && !memcmp(p, p + 1, n - 1));
}

/* The message in the pieces, junk behind it and around them; then all junk again. UD: 40 bytes are
 * before it (IB 11.4.1.2), whatever they hold. */
void sim_check_landing(
	struct sim_end *e, struct sim_recv *r, const struct sim_op *op, uint32_t slot)
{
	uint8_t *base = e->recv_region->bytes;
	uint32_t begin = slot * sim_slot_size(&e->w->cfg), done = 0,
		 len = sim_is_send(op->opcode) ? op->len : 0, gap = begin,
		 grh = e->w->cfg.type == IBV_QPT_UD ? RPWI_GRH_LEN : 0;
	bool uc = e->w->cfg.type == IBV_QPT_UC;
	for (unsigned i = 0; i < r->nsge; i++) {
		uint8_t *p = base + r->piece[i].off;
		uint32_t skip = RPWI_MIN(r->piece[i].len, grh);
		memset(p, r->junk, skip);
		grh -= skip;
		p += skip;
		uint32_t n = RPWI_MIN(r->piece[i].len - skip, len - done),
			 rest = RPWI_MIN(r->piece[i].len - skip - n, JUNK_CHECKED);
		if (!pattern_holds_from(p, n, op->pattern, done))
			sim_fail(e->w,
				"end %u: message %llu of %u bytes arrived as something else, in "
				"piece %u",
				e->index, (unsigned long long)op->id, op->len, i);
		if (uc) {
			/* IB 9.8.2.2.3: a message given up in the middle leaves its bytes in the
			 * receive that the next one takes */
			memset(p + n, r->junk, r->piece[i].len - n);
			rest = 0;
		}
		if (!all_junk(p + n, rest, r->junk) ||
			!all_junk(base + gap, r->piece[i].off - gap, r->junk))
			sim_fail(e->w,
				"end %u: message %llu of %u bytes touched bytes beside it, at "
				"piece %u",
				e->index, (unsigned long long)op->id, op->len, i);
		memset(p, r->junk, n);
		gap = r->piece[i].off + r->piece[i].len;
		done += n;
	}
	if (!all_junk(base + gap, SIM_SLOT_GAP / 2, r->junk))
		sim_fail(e->w, "end %u: message %llu of %u bytes touched bytes behind its slot",
			e->index, (unsigned long long)op->id, op->len);
}

static void on_recv_complete(struct sim_end *e, const struct ibv_wc *wc, bool solicited)
{
	struct sim_world *w = e->w;
	if (wc->wr_id >= w->cfg.rq_depth || !e->recv[wc->wr_id].posted)
		sim_fail(w, "end %u: receive %llu completes, which is not posted", e->index,
			(unsigned long long)wc->wr_id);
	if (e->rq == &e->own_rq && e->recv[wc->wr_id].serial != e->recv_done++)
		sim_fail(w, "end %u: receive %llu completes before an older one", e->index,
			(unsigned long long)wc->wr_id);
	if (wc->status != IBV_WC_SUCCESS) {
		sim_failed_recv(e, wc);
		return;
	}
	if (!sim_is_rc(w)) {
		sim_datagram_received(e, wc, solicited);
		return;
	}
	struct sim_op *op = next_expected(e);
	if (!op)
		sim_fail(w,
			"end %u: a receive completes, but the peer has sent nothing more (request "
			"%llu is the last)",
			e->index, (unsigned long long)e->peer->op_tail);
	bool imm = sim_has_imm(op->opcode), inv = op->opcode == IBV_WR_SEND_WITH_INV;
	enum ibv_wc_opcode want = sim_is_send(op->opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
	if (wc->opcode != want || wc->byte_len != op->len || solicited != op->solicited)
		sim_fail(w,
			"end %u: message %llu received as opcode %d of %u bytes, solicited %d; it "
			"is opcode %d, %u, %d",
			e->index, (unsigned long long)op->id, wc->opcode, wc->byte_len, solicited,
			want, op->len, op->solicited);
	if (!!(wc->wc_flags & IBV_WC_WITH_IMM) != imm || (imm && wc->imm_data != op->imm) ||
		!!(wc->wc_flags & IBV_WC_WITH_INV) != inv ||
		(inv && wc->invalidated_rkey != op->inv_key))
		sim_fail(w,
			"end %u: message %llu received with flags %x, immediate %x; it has opcode "
			"%d, immediate %x, key %x",
			e->index, (unsigned long long)op->id, wc->wc_flags, wc->imm_data,
			op->opcode, op->imm, op->inv_key);
	if (inv && !op->executed)
		sim_fail(w, "end %u: message %llu received, but key %x was not invalidated",
			e->index, (unsigned long long)op->id, op->inv_key);
	if (sim_is_write(op->opcode))
		check_target(e->peer, op);
	sim_check_landing(e, &e->recv[wc->wr_id], op, (uint32_t)wc->wr_id);
	e->recv[wc->wr_id].posted = false;
}

void sim_on_complete(struct rpwi_qp *qp, bool recv, const struct ibv_wc *wc, bool solicited)
{
	struct sim_end *e = qp->user;
	if (wc->qp_num != qp->qpn)
		sim_fail(e->w, "end %u: a completion of QP %x, not %x", e->index, wc->qp_num,
			qp->qpn);
	if (recv)
		on_recv_complete(e, wc, solicited);
	else
		on_send_complete(e, wc);
	e->w->last_progress_ns = e->w->now_ns;
	/* there is room for the others' receives too */
	for (unsigned i = 0; e->rq->shared && i < e->w->nends; i++)
		if (e->w->ends[i].host == e->host && !sim_broken(&e->w->ends[i]))
			sim_app_wake(&e->w->ends[i]);
	if (!recv || wc->status == IBV_WC_SUCCESS)
		sim_app_wake(e);
}

void sim_on_event(struct rpwi_qp *qp, enum ibv_event_type type)
{
	struct sim_end *e = qp->user;
	bool error = type != IBV_EVENT_COMM_EST && type != IBV_EVENT_SRQ_LIMIT_REACHED;
	if (error && (e->w->cfg.failure == SIM_NO_FAILURE ||
			     (e != e->w->victim && e->peer != e->w->victim)))
		sim_fail(e->w, "end %u: event %d", e->index, type);
}

/* ---- The end ---- */

bool sim_end_done(const struct sim_end *e) { return !e->to_post && e->op_head == e->op_tail; }

/* What nobody lost, refused or gave up waiting for is never sent again, however long a host did not
 * run. */
static void check_no_repeats(struct sim_world *w)
{
	const struct sim_config *c = &w->cfg;
	if (!sim_is_rc(w) || c->failure != SIM_NO_FAILURE || c->loss > 0 || c->dup > 0 ||
		c->reorder > 0 || c->corrupt > 0 || c->late > 0 || c->queue_max)
		return;
	for (unsigned i = 0; i < w->nends; i++) {
		const struct rpwi_qp_stats *s = &w->ends[i].qp.stats;
		if (s->retransmits && !s->rnr_nak_rx && !s->timeouts)
			sim_fail(w, "end %u: %llu packets were sent again, though nothing was lost",
				i, (unsigned long long)s->retransmits);
		/* of 2, 4, 8 ms and so on, and one for the rest */
		if (s->probes > 6 * (w->stops + 1))
			sim_fail(w, "end %u: %llu probes, in %u stops", i,
				(unsigned long long)s->probes, w->stops);
	}
}

void sim_check_at_end(struct sim_world *w)
{
	check_no_repeats(w);
	for (unsigned i = 0; i < w->nends; i++) {
		struct sim_end *e = &w->ends[i];
		if (!sim_is_rc(w)) {
			sim_datagram_check_at_end(e);
			continue;
		}
		if (sim_broken(e) || sim_broken(e->peer)) {
			sim_failure_check_at_end(e);
			continue;
		}
		if (e->op_head != e->op_tail || next_expected(e))
			sim_fail(w, "end %u: something is left over", i);
		if (memcmp(e->region[SIM_REMOTE].bytes, e->shadow, e->region[SIM_REMOTE].len))
			sim_fail(w, "end %u: its memory differs from what the requests make of it",
				i);
		if (e->qp.state != IBV_QPS_RTS)
			sim_fail(w, "end %u: QP state %d", i, e->qp.state);
	}
	for (int h = 0; h < 2; h++)
		if (w->host[h].cc.inflight)
			sim_fail(w, "host %d: %u packets count as in flight after the end", h,
				w->host[h].cc.inflight);
}
