/* SPDX-License-Identifier: BSD-3-Clause */
/* stopped.c - WRITEs to a peer whose process is stopped: a NIC would take them, so they are done
 * from here, in the memory of that process.
 *
 * Two ways. Packets that were sent, and lie where the peer has not taken it (ops->take_over says
 * from which PSN on), is placed, its packets are marked as done (ops->give_over), and it completes
 * as if it were acknowledged; the peer takes the PSNs when it goes on. Then nothing is under way,
 * and the next WQE takes no PSN at all, as a READ out of the peer's memory. A SEND or anything else
 * that needs the peer's program waits for it, and WQEs behind it wait as well.
 *
 * What was sent twice cannot be told from what the peer has taken and not yet acknowledged:
 * qp->once keeps those apart.
 */
#include "rc/internal.h"

/* The bytes [off, end) of a WRITE: how many pieces. 0: its memory is gone. */
static unsigned pieces(struct rpwi_qp *qp, const struct rpwi_swqe *w, uint32_t off, uint32_t end,
	struct rpwi_iov *v)
{
	unsigned n = 0;
	uint32_t at = 0;

	if (w->flags & IBV_SEND_INLINE) {
		v[0] = (struct rpwi_iov){.base = w->inl + off, .len = end - off};
		return 1;
	}
	for (uint32_t i = 0; i < w->nsge && at < end; at += w->sge[i++].length) {
		const struct ibv_sge *s = &w->sge[i];
		uint32_t skip = off > at ? RPWI_MIN(off - at, s->length) : 0;
		uint32_t len = RPWI_MIN(s->length, end - at) - RPWI_MIN(skip, end - at);

		if (!len)
			continue;
		v[n].base = qp->ops->mem_map(qp, s->lkey, s->addr + skip, len);
		v[n].len = len;
		if (!v[n++].base)
			return 0;
	}
	return n;
}

static bool place(struct rpwi_qp *qp, const struct rpwi_swqe *w, uint32_t off, uint32_t end)
{
	struct rpwi_iov v[RPWI_SGE_MAX];
	unsigned n = off < end ? pieces(qp, w, off, end, v) : 0;

	return off >= end || (n && qp->ops->peer_write(qp, w->rkey, w->raddr + off, v, n));
}

/* WRITEs that were sent, in order, from PSN `from` on: the PSN up to which they are placed. */
static uint32_t place_sent(struct rpwi_qp *qp, uint32_t from)
{
	uint32_t done = from;

	for (uint32_t i = qp->sq_head; i != qp->sq_tail && rpwi_before(done, qp->nxt); i++) {
		const struct rpwi_swqe *w = rpwi_sq_at(qp, i);
		uint32_t end = w->psn_first + w->npsn;

		if (w->phase == RPWI_SWQE_DONE)
			continue;
		if (w->phase != RPWI_SWQE_STARTED)
			break;
		if (!rpwi_before(done, end) && !rpwi_op_needs_response(w->opcode))
			continue; /* the peer has taken it */
		if (w->opcode != IBV_WR_RDMA_WRITE)
			break;
		uint32_t stop = rpwi_before(qp->nxt, end) ? qp->nxt : end;
		uint64_t off = (uint64_t)(done - w->psn_first) * qp->mtu,
			 upto = (uint64_t)(stop - w->psn_first) * qp->mtu;

		if (!place(qp, w, (uint32_t)off, (uint32_t)RPWI_MIN(upto, (uint64_t)w->len)))
			break;
		done = stop;
	}
	return done;
}

bool rpwi_stopped_look(struct rpwi_qp *qp, uint32_t *upto)
{
	uint32_t psn;

	if (!qp->ops->take_over || RPWI_UNLIKELY(qp->slow & RPWI_SLOW_LOST) ||
		rpwi_before(qp->una, qp->once) ||
		!qp->ops->take_over(qp, qp->una & RPWI_PSN_MASK, &psn))
		return false;
	uint32_t from = qp->una + (uint32_t)rpwi_psn_diff(psn, qp->una);
	bool some = psn != RPWI_NO_PSN && !rpwi_before(from, qp->una) && rpwi_before(from, qp->nxt);

	*upto = some ? place_sent(qp, from) : from;
	qp->ops->give_over(qp, *upto == from ? RPWI_NO_PSN : *upto & RPWI_PSN_MASK);
	return *upto != from;
}

bool rpwi_stopped_write(struct rpwi_qp *qp, const struct rpwi_swqe *w)
{
	uint32_t psn;

	if (!qp->ops->take_over(qp, qp->una & RPWI_PSN_MASK, &psn)) {
		rpwi_slow_end(qp, RPWI_SLOW_PEER);
		return false;
	}
	qp->slow |= RPWI_SLOW_PEER;
	bool done = psn == RPWI_NO_PSN && place(qp, w, 0, w->len);

	qp->ops->give_over(qp, RPWI_NO_PSN);
	return done;
}
