/* SPDX-License-Identifier: BSD-3-Clause */
/* rcv.c - the receiving of messages into receive WQEs, which RC, UC and UD share: a WQE is taken,
 * filled, and completes or fails; where the data of packets to come belong. */
#include "rc/internal.h"

/* ---- receive WQEs ---- */

bool rpwi_rcv_take(struct rpwi_qp *qp)
{
	struct rpwi_rq *rq = qp->rq;
	struct rpwi_rcv *r = &qp->rcv;

	if (r->have)
		return true;
	if (!rpwi_rq_count(rq))
		return false;

	const struct rpwi_rwqe *w = &rq->ring[rq->head & rq->mask];

	r->have = true;
	r->wr_id = w->wr_id;
	r->doom = w->doom;
	r->nsge = w->nsge;
	r->len = w->len;
	r->done = r->sge_i = r->sge_off = 0;
	memcpy(r->sge, w->sge, w->nsge * sizeof(*r->sge));
	rq->head++;
	if (rq->limit && rpwi_rq_count(rq) < rq->limit) { /* IB 10.2.9.2: once, until armed again */
		rq->limit = 0;
		qp->ops->event(qp, IBV_EVENT_SRQ_LIMIT_REACHED);
	}
	return true;
}

int rpwi_rcv_scatter(struct rpwi_qp *qp, const void *data, uint32_t len)
{
	struct rpwi_rcv *r = &qp->rcv;
	const uint8_t *from = data;

	if (len > r->len - r->done)
		return -EMSGSIZE;
	r->done += len;
	while (len) {
		const struct ibv_sge *s = &r->sge[r->sge_i];
		uint32_t n = RPWI_MIN(len, s->length - r->sge_off);

		if (n) {
			/* mem_write checks the bounds of this piece; that the whole SGE is writable
			 * is its key's affair */
			uint64_t to = s->addr + r->sge_off;
			int rc = RPWI_UNLIKELY(qp->rq->shared)
					 ? qp->ops->mem_receive(qp, s->lkey, to, from, n)
					 : qp->ops->mem_write(qp, s->lkey, to, from, n, false);
			if (rc)
				return rc;
		}
		from += n;
		len -= n;
		r->sge_off += n;
		if (r->sge_off == s->length) {
			r->sge_i++;
			r->sge_off = 0;
		}
	}
	return 0;
}

void rpwi_places_begin(struct rpwi_places *at, struct rpwi_qp *qp, bool writes)
{
	const struct rpwi_rcv *r = &qp->rcv;
	bool write = qp->msg == RPWI_MSG_WRITE, send = qp->msg == RPWI_MSG_SEND;

	*at = (struct rpwi_places){.psn = qp->epsn,
		.wqe = qp->rq->head,
		.writes = writes,
		.within = send || write,
		.write = write};
	if (!rpwi_qp_is_rc(qp) || !rpwi_qp_receives(qp) || qp->scripted || r->have != send ||
		(send && r->doom))
		return;
	at->qp = qp;
	if (write) {
		at->rkey = qp->write_rkey;
		at->va = qp->write_va;
		at->left = qp->write_left;
	} else if (send) {
		at->left = r->len - r->done;
		at->sge = r->sge + r->sge_i;
		at->nsge = r->nsge - r->sge_i;
		at->off = r->sge_off;
	}
}

/* The whole WRITE is checked, as begin_write does. */
static bool write_begins(struct rpwi_places *at, const struct rpwi_pkt *p)
{
	struct rpwi_qp *qp = at->qp;

	at->rkey = p->rkey;
	at->va = p->va;
	at->left = p->dma_len;
	return qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE &&
	       p->dma_len <= qp->bounds.message &&
	       !qp->ops->mem_check(qp, p->rkey, p->va, p->dma_len, IBV_ACCESS_REMOTE_WRITE, true);
}

static bool place_write(struct rpwi_places *at, const struct rpwi_pkt *p, void **to)
{
	struct rpwi_qp *qp = at->qp;
	unsigned op = rpwi_pkt_op(p);
	bool last = rpwi_op_has(op, RPWI_F_LAST);

	if (!at->writes || (!at->within && !write_begins(at, p)) ||
		(last ? p->payload_len != at->left : p->payload_len >= at->left))
		return false;
	at->within = !last;
	at->write = true;
	/* With immediate data it takes a receive, or waits for one, and so do those behind it. */
	if (rpwi_op_has(op, RPWI_F_IMM))
		return false;
	void *there = qp->ops->mem_sink(qp, at->rkey, at->va, (uint32_t)p->payload_len, true);
	at->va += p->payload_len;
	at->left -= p->payload_len;
	if (last)
		rpwi_places_late(at, there, (uint32_t)p->payload_len);
	else
		*to = there;
	return there || !p->payload_len;
}

static bool place_send(struct rpwi_places *at, const struct rpwi_pkt *p, void **to)
{
	struct rpwi_qp *qp = at->qp;

	at->writes = false;
	if (qp->rq->shared)
		return false;
	if (!at->within) {
		const struct rpwi_rwqe *w = &qp->rq->ring[at->wqe & qp->rq->mask];

		if (at->wqe++ == qp->rq->tail || w->doom)
			return false;
		at->left = w->len;
		at->sge = w->sge;
		at->nsge = w->nsge;
		at->off = 0;
	}
	at->within = !rpwi_op_has(rpwi_pkt_op(p), RPWI_F_LAST);
	at->write = false;
	if (!at->within)
		return true;
	for (; at->nsge && at->off == at->sge->length; at->sge++, at->nsge--)
		at->off = 0;
	if (p->payload_len > at->left || !at->nsge || p->payload_len > at->sge->length - at->off)
		return false;
	*to = qp->ops->mem_sink(
		qp, at->sge->lkey, at->sge->addr + at->off, (uint32_t)p->payload_len, false);
	at->off += p->payload_len;
	at->left -= p->payload_len;
	return *to;
}

/* False: nothing is known any more. */
static bool place_next(struct rpwi_places *at, const struct rpwi_pkt *p, void **to)
{
	unsigned op = rpwi_pkt_op(p);
	bool write = rpwi_op_has(op, RPWI_F_WRITE);

	if (!rpwi_op_has(op, RPWI_F_SEND | RPWI_F_WRITE) || p->psn != (at->psn & RPWI_PSN_MASK) ||
		rpwi_op_has(op, RPWI_F_FIRST) == at->within || (at->within && at->write != write))
		return false;
	at->psn += 1u + p->more;
	return write ? place_write(at, p, to) : place_send(at, p, to);
}

void rpwi_places_late(struct rpwi_places *at, const void *to, uint32_t len)
{
	uintptr_t begin = (uintptr_t)to, end = begin + len;

	if (!len)
		return;
	at->late = at->late_end ? RPWI_MIN(at->late, begin) : begin;
	at->late_end = RPWI_MAX(at->late_end, end);
}

void *rpwi_places_next(struct rpwi_places *at, const struct rpwi_pkt *p)
{
	void *to = NULL;

	if (!at->qp)
		return NULL;
	if (!place_next(at, p, &to) ||
		(to && (uintptr_t)to < at->late_end && (uintptr_t)to + p->payload_len > at->late)) {
		at->qp = NULL;
		return NULL;
	}
	return to;
}

void rpwi_rcv_done(struct rpwi_qp *qp, const struct rpwi_pkt *p, uint32_t byte_len)
{
	unsigned op = rpwi_pkt_op(p);
	struct ibv_wc wc = {
		.wr_id = qp->rcv.wr_id,
		.status = IBV_WC_SUCCESS,
		.byte_len = byte_len,
		.opcode = rpwi_op_has(op, RPWI_F_WRITE) ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
	};

	if (rpwi_op_has(op, RPWI_F_IMM)) {
		wc.wc_flags = IBV_WC_WITH_IMM;
		wc.imm_data = p->imm_be;
	} else if (rpwi_op_has(op, RPWI_F_IETH)) {
		wc.wc_flags = IBV_WC_WITH_INV;
		wc.invalidated_rkey = p->inv_rkey;
	}
	qp->rcv.have = false;
	qp->n->recvs++;
	rpwi_qp_complete_recv(qp, &wc, p->solicited);
}

void rpwi_rcv_fail(struct rpwi_qp *qp, enum ibv_wc_status status)
{
	struct ibv_wc wc = {.wr_id = qp->rcv.wr_id, .status = status, .opcode = IBV_WC_RECV};

	rpwi_debug("QP %u: receive failed: status %d", qp->qpn, status);
	qp->n->failed++;
	qp->rcv.have = false;
	rpwi_qp_complete_recv(qp, &wc, true);
}

/* ---- checks that RC and UC share ---- */

bool rpwi_rcv_length_ok(const struct rpwi_qp *qp, const struct rpwi_pkt *p)
{
	unsigned op = rpwi_pkt_op(p);

	if (!rpwi_op_has(op, RPWI_F_PAYLOAD))
		return !p->payload_len;
	if (!rpwi_op_has(op, RPWI_F_LAST))
		return p->payload_len == qp->mtu * (1u + p->more);
	return p->payload_len <= qp->mtu && (p->payload_len || rpwi_op_has(op, RPWI_F_FIRST));
}

bool rpwi_rcv_follows(const struct rpwi_qp *qp, const struct rpwi_pkt *p)
{
	unsigned op = rpwi_pkt_op(p);

	if (rpwi_op_has(op, RPWI_F_FIRST))
		return qp->msg == RPWI_MSG_NONE;
	return rpwi_op_has(op, RPWI_F_SEND) ? qp->msg == RPWI_MSG_SEND : qp->msg == RPWI_MSG_WRITE;
}

void rpwi_resp_comm_est(struct rpwi_qp *qp)
{
	if (RPWI_LIKELY(qp->comm_est))
		return;
	qp->comm_est = true;
	if (qp->state == IBV_QPS_RTR)
		qp->ops->event(qp, IBV_EVENT_COMM_EST);
}
