/* SPDX-License-Identifier: BSD-3-Clause */
/* requester.c - sends requests: begins send WQEs, cuts messages into packets, keeps to the window
 * and to the READs that may be outstanding. RC, UC and UD alike; what an RC requester gets back is
 * completer.c's.
 *
 * Payload is sent from where it lies: the batch points into registered memory, found by
 * ops->mem_map once for each run of packets.
 */
#include "rc/internal.h"

#include "wire/encode.h"

/* ---- state ---- */

void rpwi_req_reset(struct rpwi_qp *qp, uint32_t psn)
{
	rpwi_req_forget(qp);
	qp->una = qp->nxt = qp->psn_max = qp->once = psn;
	rpwi_slow_end(qp, RPWI_SLOW_LOST | RPWI_SLOW_PEER);
	qp->sq_failed = qp->acked = false;
	qp->rtt_ns = 0;
	qp->probe_end = psn;
	qp->wrote_va = qp->wrote_end = 0;
}

void rpwi_req_go_back(struct rpwi_qp *qp)
{
	rpwi_window_forget(qp, qp->nxt - qp->una);
	qp->nxt = qp->una;
	qp->once = qp->psn_max;
	qp->sq_cur = qp->sq_head;
	qp->rd_next = qp->rd_head;
	qp->rtt_running = false; /* an ACK of a packet sent twice times neither (Karn) */
	qp->since_ackreq = 0;
	rpwi_slow_end(qp, RPWI_SLOW_PROBE);
	qp->probing = false;
	qp->asked = 0;
}

__attribute__((always_inline)) static inline uint32_t window_room(const struct rpwi_qp *qp)
{
	if (qp->cc)
		return rpwi_window_room(qp);
	uint32_t inflight = qp->nxt - qp->una;
	return inflight < RPWI_UNWINDOWED_PKTS ? RPWI_UNWINDOWED_PKTS - inflight : 0;
}

/* Response packets that the next READ request may ask for: a repeated request keeps its old end, so
 * that no request spans two of the responder's resources. */
static uint32_t read_pkts_wanted(const struct rpwi_qp *qp, const struct rpwi_swqe *w)
{
	if (qp->rd_next != qp->rd_tail)
		return qp->rd_end[qp->rd_next % RPWI_RD_ATOMIC_MAX] - qp->nxt;
	uint32_t rest =
		w->phase == RPWI_SWQE_POSTED
			? RPWI_MAX((uint32_t)(((uint64_t)w->len + qp->mtu - 1) / qp->mtu), 1)
			: w->psn_first + w->npsn - qp->nxt;
	return RPWI_MIN(rest, qp->read_chunk_pkts);
}

/* Room for a READ: all of it, and the first of a batch waits until as many may be asked for as the
 * peer answers at once; or half the window, lest it crumbles into requests of one packet. */
static uint32_t read_pkts_least(const struct rpwi_qp *qp, uint32_t wanted, bool begun)
{
	uint32_t half = qp->cc ? rpwi_window_cwnd(qp) / 2 : RPWI_UNWINDOWED_PKTS;

	return RPWI_MIN(begun ? wanted : RPWI_MAX(wanted, RPWI_TXB_PKTS), RPWI_MAX(half, 1));
}

/* Room for data: a whole datagram of GSO or two, at most a quarter of the window. Sent as it opens,
 * packet by packet, a stream would crumble into batches as small as the ACKs' steps (RFC 1122,
 * 4.2.3.4, on the silly window), and each batch costs a system call on both sides. With nothing in
 * flight there is always room. */
static uint32_t data_pkts_least(const struct rpwi_qp *qp)
{
	uint32_t pkts = rpwi_gso_pkts(qp->attr.path_mtu);

	pkts += 2 * pkts <= RPWI_TXB_PKTS ? pkts : 0;
	return qp->cc ? RPWI_MAX(RPWI_MIN(rpwi_window_cwnd(qp) / 4, pkts), 1u) : 1;
}

/* Is it a message of one packet, of a QP with nothing in flight, and may go beside the window? */
static bool is_lent(const struct rpwi_qp *qp, const struct rpwi_swqe *w)
{
	bool one = w->len <= qp->mtu ||
		   (rpwi_op_needs_response(w->opcode) && w->opcode != IBV_WR_RDMA_READ);

	return one && rpwi_window_lends(qp);
}

/* For `need` packets, or for one that is lent. */
__attribute__((noinline)) static enum rpwi_req_state window_says(
	const struct rpwi_qp *qp, const struct rpwi_swqe *w, uint32_t need)
{
	if (window_room(qp) >= need || is_lent(qp, w))
		return RPWI_REQ_READY;
	/* its own limit goes when an answer comes, to itself */
	return !qp->cc || rpwi_window_is_in_the_way(qp, need) ? RPWI_REQ_BLOCKED : RPWI_REQ_IDLE;
}

/* Has the window room for data? `any`: for the rest of a batch, any room will do. */
__attribute__((always_inline)) static inline enum rpwi_req_state window_takes_data(
	const struct rpwi_qp *qp, const struct rpwi_swqe *w, bool any)
{
	if (RPWI_LIKELY(window_room(qp) >= RPWI_TXB_PKTS))
		return RPWI_REQ_READY;
	return window_says(qp, w, any ? 1 : data_pkts_least(qp));
}

/* May a WQE not yet begun begin? */
static bool may_begin(const struct rpwi_qp *qp, const struct rpwi_swqe *w)
{
	if (qp->state == IBV_QPS_SQD)
		return false;
	/* IB 10.8.3.3: after all READs and atomics before it */
	if ((w->flags & IBV_SEND_FENCE) && qp->rd_head != qp->rd_tail)
		return false;
	/* A key is taken back only when nothing before can need it for a resend. */
	return w->opcode != IBV_WR_LOCAL_INV || qp->sq_head == qp->sq_cur;
}

/* `begun`: others of its packets are in the batch. Of data any room will do then, if it goes by
 * datagrams. */
static enum rpwi_req_state state_of(const struct rpwi_qp *qp, bool begun, bool by_datagrams)
{
	if (RPWI_UNLIKELY(qp->slow & RPWI_SLOW_PROBE))
		return RPWI_REQ_READY;
	if (qp->sq_cur == qp->sq_tail || qp->slow & RPWI_SLOW_RNR)
		return RPWI_REQ_IDLE;
	const struct rpwi_swqe *w = rpwi_sq_at(qp, qp->sq_cur);

	if (w->phase == RPWI_SWQE_FAILED || (w->phase == RPWI_SWQE_POSTED && !may_begin(qp, w)))
		return RPWI_REQ_IDLE;
	if (!rpwi_qp_is_rc(qp) || w->phase == RPWI_SWQE_DONE || rpwi_wr_info[w->opcode].local)
		return RPWI_REQ_READY;

	if (RPWI_UNLIKELY(qp->slow & RPWI_SLOW_ONE) && qp->nxt != qp->una)
		return RPWI_REQ_IDLE;
	if (!rpwi_op_needs_response(w->opcode))
		return window_takes_data(qp, w, begun && by_datagrams);
	/* (With max_rd_atomic 0 it may begin, and fails.) */
	if (qp->rd_next == qp->rd_tail && qp->attr.max_rd_atomic &&
		qp->rd_tail - qp->rd_head >= qp->attr.max_rd_atomic)
		return RPWI_REQ_IDLE;
	uint32_t need = w->opcode == IBV_WR_RDMA_READ
				? read_pkts_least(qp, read_pkts_wanted(qp, w), begun)
				: 1;
	return window_says(qp, w, need);
}

enum rpwi_req_state rpwi_req_state(const struct rpwi_qp *qp) { return state_of(qp, false, true); }

/* ---- WQEs: begin, fail, retire ---- */

static void fail_later(struct rpwi_qp *qp, struct rpwi_swqe *w, enum ibv_wc_status status)
{
	w->phase = RPWI_SWQE_FAILED;
	qp->sq_failed = true;
	qp->sq_fail_status = (uint8_t)status;
	rpwi_req_retired(qp);
}

void rpwi_req_retired(struct rpwi_qp *qp)
{
	while (qp->sq_head != qp->sq_tail && rpwi_sq_at(qp, qp->sq_head)->phase == RPWI_SWQE_DONE) {
		rpwi_qp_complete_send(qp, rpwi_sq_at(qp, qp->sq_head), IBV_WC_SUCCESS);
		qp->sq_cur += qp->sq_cur == qp->sq_head;
		qp->sq_head++;
	}
	if (RPWI_LIKELY(!qp->sq_failed && !qp->sqd_notify) || qp->sq_head != qp->sq_cur)
		return;

	bool waiting = qp->sq_cur != qp->sq_tail;
	unsigned phase = waiting ? rpwi_sq_at(qp, qp->sq_cur)->phase : RPWI_SWQE_POSTED;

	if (waiting && phase == RPWI_SWQE_FAILED) {
		rpwi_qp_fail_send(qp, (enum ibv_wc_status)qp->sq_fail_status);
	} else if (qp->state == IBV_QPS_SQD && qp->sqd_notify && phase == RPWI_SWQE_POSTED) {
		qp->sqd_notify = false;
		qp->ops->event(qp, IBV_EVENT_SQ_DRAINED);
	}
}

void rpwi_req_sent(struct rpwi_qp *qp)
{
	for (; qp->sq_head != qp->sq_cur; qp->sq_head++)
		rpwi_qp_complete_send(qp, rpwi_sq_at(qp, qp->sq_head), IBV_WC_SUCCESS);
	rpwi_req_retired(qp);
}

/* LOCAL_INV and BIND_MW: done here and now, completed in their turn. */
static void run_local(struct rpwi_qp *qp, struct rpwi_swqe *w)
{
	int rc;

	if (w->opcode == IBV_WR_LOCAL_INV) {
		rc = qp->ops->invalidate(qp, w->inv_rkey, false);
		if (rc) {
			fail_later(qp, w, IBV_WC_LOC_QP_OP_ERR);
			return;
		}
	} else {
		rc = qp->ops->bind_mw(qp, &w->bind);
		if (rc) {
			fail_later(qp, w, IBV_WC_MW_BIND_ERR);
			return;
		}
	}
	w->phase = RPWI_SWQE_DONE;
	qp->sq_cur++;
	rpwi_req_retired(qp);
}

/* Where the piece from `off` may be read to, at least RPWI_PEER_SINK_MIN bytes in one SGE, and how
 * long it is there; or NULL. */
static void *sink(struct rpwi_qp *qp, const struct rpwi_swqe *w, uint32_t off, uint32_t *len)
{
	uint32_t i = 0;

	for (; i < w->nsge && off >= w->sge[i].length; i++)
		off -= w->sge[i].length;
	if (i == w->nsge || w->sge[i].length - off < RPWI_PEER_SINK_MIN)
		return NULL;
	*len = RPWI_MIN(w->sge[i].length - off, (uint32_t)RPWI_PEER_SINK_MAX);
	return qp->ops->mem_sink(qp, w->sge[i].lkey, w->sge[i].addr + off, *len, false);
}

/* All of a READ out of the peer's memory: 0; -EAGAIN, it is to go by packets, from the beginning;
 * or what rpwi_cpl_scatter says. */
static int fetch(struct rpwi_qp *qp, const struct rpwi_swqe *w)
{
	for (uint32_t off = 0, n; off < w->len; off += n) {
		void *into = sink(qp, w, off, &n);

		if (!into)
			n = RPWI_MIN(w->len - off, (uint32_t)RPWI_PEER_READ_MAX);
		const uint8_t *data = qp->ops->peer_read(qp, w->rkey, w->raddr + off, n, into);
		if (!data)
			return -EAGAIN;
		int rc = into ? 0 : rpwi_cpl_scatter(qp, w, off, data, n);

		if (rc)
			return rc;
	}
	return 0;
}

static void done_alone(struct rpwi_qp *qp, struct rpwi_swqe *w, uint64_t *count, uint64_t *bytes)
{
	++*count;
	*bytes += w->len;
	w->phase = RPWI_SWQE_DONE;
	qp->sq_cur++;
	rpwi_req_retired(qp);
}

/* Has nothing before it been sent that may be under way, nor anything of it? */
static bool is_alone(const struct rpwi_qp *qp, const struct rpwi_swqe *w)
{
	return qp->sq_head == qp->sq_cur && qp->nxt == qp->una && qp->nxt == w->psn_first &&
	       RPWI_LIKELY(!(qp->slow & RPWI_SLOW_LOST));
}

/* A READ that nothing is under way before, done here and now: it takes no PSN, and the peer does
 * not notice. Nothing after it has begun, so the order of the queue is kept. False: by packets,
 * from the beginning. */
static bool read_at_once(struct rpwi_qp *qp, struct rpwi_swqe *w)
{
	if (w->opcode != IBV_WR_RDMA_READ || !w->len || !is_alone(qp, w))
		return false;
	int rc = fetch(qp, w);

	if (rc == -EAGAIN)
		return false;
	if (rc)
		fail_later(qp, w, IBV_WC_LOC_PROT_ERR);
	else
		done_alone(qp, w, &qp->n->reads_alone, &qp->n->read_alone_bytes);
	return true;
}

/* Likewise a WRITE, while the peer is stopped. */
static bool write_at_once(struct rpwi_qp *qp, struct rpwi_swqe *w)
{
	if (w->opcode != IBV_WR_RDMA_WRITE || !is_alone(qp, w) || !rpwi_stopped_write(qp, w))
		return false;
	done_alone(qp, w, &qp->n->writes_alone, &qp->n->written_alone_bytes);
	return true;
}

/* May what the WQE names be read, or (`access`) written? */
static bool sges_allow(struct rpwi_qp *qp, const struct rpwi_swqe *w, int access)
{
	for (uint32_t i = 0; i < w->nsge; i++) {
		const struct ibv_sge *s = &w->sge[i];

		if (s->length && qp->ops->mem_check(qp, s->lkey, s->addr, s->length, access, false))
			return false;
	}
	return true;
}

bool rpwi_qp_is_quiet(const struct rpwi_qp *qp)
{
	return !qp->slow && qp->sq_head == qp->sq_tail && qp->nxt == qp->una && !qp->ack_owed &&
	       qp->attr.max_rd_atomic && !rpwi_resp_has_answers(qp);
}

bool rpwi_qp_read_alone(struct rpwi_qp *qp)
{
	while (qp->sq_cur != qp->sq_tail) {
		struct rpwi_swqe *w = rpwi_sq_at(qp, qp->sq_cur);

		if (w->opcode != IBV_WR_RDMA_READ || !w->len || w->doom ||
			!sges_allow(qp, w, IBV_ACCESS_LOCAL_WRITE) || fetch(qp, w))
			return false;
		done_alone(qp, w, &qp->n->reads_alone, &qp->n->read_alone_bytes);
	}
	return true;
}

/* A WRITE FIRST is longer than the packets behind it, so it is a datagram by itself; WRITE ONLYs
 * are of one length, and whole datagrams of them go without regard to where a message ends. But
 * the peer checks the bounds of each alone. So only where it has taken WRITEs before: then one that
 * goes too far still writes nothing. */
static bool may_split(const struct rpwi_qp *qp, const struct rpwi_swqe *w)
{
	return w->opcode == IBV_WR_RDMA_WRITE && w->rkey == qp->wrote_rkey &&
	       w->raddr >= qp->wrote_va && w->raddr + w->len <= qp->wrote_end && rpwi_qp_is_rc(qp);
}

/* Check a WQE's memory and give it its PSNs. False when it failed. */
static bool begin(struct rpwi_qp *qp, struct rpwi_swqe *w, bool split)
{
	bool response = rpwi_op_needs_response(w->opcode), fetches = rpwi_op_fetches(w->opcode);

	if (response && !qp->attr.max_rd_atomic) {
		fail_later(qp, w, IBV_WC_LOC_QP_OP_ERR);
		return false;
	}
	bool one = w->len <= qp->mtu || (response && w->opcode != IBV_WR_RDMA_READ);

	/* where one packet takes all of it, that looks at the memory anyway (add_only) */
	if (!(w->flags & IBV_SEND_INLINE) && (fetches || !one) &&
		!sges_allow(qp, w, fetches ? IBV_ACCESS_LOCAL_WRITE : 0)) {
		fail_later(qp, w, IBV_WC_LOC_PROT_ERR);
		return false;
	}
	w->npsn = one ? 1 : (uint32_t)(((uint64_t)w->len + qp->mtu - 1) / qp->mtu);
	w->psn_first = qp->nxt;
	w->split = split && !one && may_split(qp, w);
	w->phase = RPWI_SWQE_STARTED;
	return true;
}

void rpwi_req_fault(struct rpwi_qp *qp, uint32_t psn)
{
	for (uint32_t i = qp->sq_head; i != qp->sq_tail; i++) {
		struct rpwi_swqe *w = rpwi_sq_at(qp, i);

		if (w->phase == RPWI_SWQE_POSTED)
			return;
		if (w->phase != RPWI_SWQE_STARTED ||
			((psn - w->psn_first) & RPWI_PSN_MASK) >= w->npsn)
			continue;
		uint32_t back = rpwi_before(w->psn_first, qp->una) ? qp->una : w->psn_first;

		if (rpwi_before(back, qp->nxt)) {
			rpwi_window_forget(qp, qp->nxt - back);
			qp->nxt = back;
		}
		qp->sq_cur = i;
		for (qp->rd_next = qp->rd_head; qp->rd_next != qp->rd_tail; qp->rd_next++)
			if (rpwi_before(qp->nxt, qp->rd_end[qp->rd_next % RPWI_RD_ATOMIC_MAX]))
				break;
		if (!rpwi_qp_is_rc(qp)) {
			qp->una = qp->psn_max = qp->nxt;
			w->phase = RPWI_SWQE_FAILED;
			qp->sq_failed = true;
			qp->sq_fail_status = IBV_WC_LOC_PROT_ERR;
			rpwi_req_sent(qp); /* those before it have been sent */
			return;
		}
		fail_later(qp, w, IBV_WC_LOC_PROT_ERR);
		return;
	}
}

/* ---- payload: a walk over a WQE's memory ---- */

struct walk {
	const uint8_t *at;
	uint32_t left;      /* bytes mapped at `at` */
	uint32_t sge, skip; /* then from here on */
	uint32_t budget;    /* bytes that this run wants mapped at most */
};

static void walk_open(struct walk *k, const struct rpwi_swqe *w, uint32_t off, uint32_t budget)
{
	*k = (struct walk){.budget = budget};
	if (w->flags & IBV_SEND_INLINE) {
		k->at = w->inl + off;
		k->left = w->len - off;
		return;
	}
	while (k->sge < w->nsge && off >= w->sge[k->sge].length)
		off -= w->sge[k->sge++].length;
	k->skip = off;
}

/* Put the next `len` bytes into the batch as iovs of packet t. False when the memory is gone. */
static bool walk_take(struct walk *k, struct rpwi_qp *qp, const struct rpwi_swqe *w,
	struct rpwi_txb *b, struct rpwi_txpkt *t, uint32_t len)
{
	while (len) {
		if (!k->left) {
			if (RPWI_UNLIKELY(k->sge >= w->nsge))
				return false;
			const struct ibv_sge *s = &w->sge[k->sge++];
			uint32_t n = RPWI_MIN(s->length - k->skip, k->budget);

			if (!n)
				continue;
			k->at = qp->ops->mem_map(qp, s->lkey, s->addr + k->skip, n);
			if (RPWI_UNLIKELY(!k->at))
				return false;
			k->left = n;
			k->budget -= n;
			k->skip = 0;
		}
		uint32_t n = RPWI_MIN(len, k->left);

		b->iov[b->niov++] = (struct rpwi_iov){.base = k->at, .len = n};
		t->iov_count++;
		k->at += n;
		k->left -= n;
		len -= n;
	}
	return true;
}

/* ---- packets ---- */

/* IB 10.2.5: the high bit asks for the QP's own. */
static uint32_t qkey_of(const struct rpwi_qp *qp, const struct rpwi_swqe *w)
{
	return w->dqkey >> 31 ? qp->attr.qkey : w->dqkey;
}

static void headers_init(const struct rpwi_qp *qp, const struct rpwi_swqe *w, struct rpwi_pkt *h)
{
	rpwi_pkt_clear(h);
	h->pkey = RPWI_PKEY_DEFAULT;
	h->dqpn = qp->attr.dest_qp_num;
	h->imm_be = w->imm_be;
	h->va = w->raddr;
	h->rkey = w->rkey;
	h->dma_len = w->len;
	h->inv_rkey = w->inv_rkey;
	if (qp->type == IBV_QPT_UD) {
		h->dqpn = w->dqpn;
		h->sqpn = qp->qpn;
		h->qkey = qkey_of(qp, w);
	}
}

static uint8_t service_of(const struct rpwi_qp *qp)
{
	if (qp->type == IBV_QPT_RC)
		return RPWI_SVC_RC;
	return qp->type == IBV_QPT_UC ? RPWI_SVC_UC : RPWI_SVC_UD;
}

static void count_resent(struct rpwi_qp *qp, uint32_t pkts)
{
	qp->n->retransmits += pkts;
	qp->resent += pkts;
}

/* [nxt, nxt + pkts) is in the batch, in tx_pkts packets of `bytes` bytes together. */
static void sent(
	struct rpwi_qp *qp, uint32_t pkts, uint32_t tx_pkts, uint64_t bytes, uint64_t now_ns)
{
	qp->n->tx_packets += tx_pkts;
	qp->n->tx_bytes += bytes;
	if (!rpwi_qp_is_rc(qp)) {
		qp->nxt += pkts;
		qp->una = qp->psn_max = qp->nxt;
		return;
	}
	if (qp->nxt == qp->una) {
		qp->ack_deadline_ns = now_ns + rpwi_req_ack_wait_ns(qp);
		rpwi_req_arm_probe(qp, now_ns);
	}
	if (RPWI_UNLIKELY(rpwi_before(qp->nxt, qp->psn_max)))
		count_resent(qp, tx_pkts);
	else if (!qp->rtt_running) {
		qp->rtt_running = true;
		qp->rtt_psn = qp->nxt + pkts - 1;
		qp->rtt_start_ns = now_ns;
	}
	if (qp->cc) {
		if (RPWI_LIKELY(!qp->window))
			rpwi_cc_on_send(qp->cc, pkts);
		else
			rpwi_window_sent(qp, pkts);
	}
	qp->nxt += pkts;
	if (rpwi_before(qp->psn_max, qp->nxt))
		qp->psn_max = qp->nxt;
}

/* The packet of a WQE of one, with all its payload. NULL: the batch has no room, or the memory is
 * gone, and it has failed. */
static struct rpwi_txpkt *add_only(struct rpwi_qp *qp, struct rpwi_swqe *w, struct rpwi_txb *b)
{
	if (b->niov + w->nsge + 1 > RPWI_TXB_IOVS)
		return NULL;
	struct rpwi_txpkt *t = rpwi_txb_add(b);
	struct rpwi_iov *v = &b->iov[b->niov], *begin = v;

	if (w->flags & IBV_SEND_INLINE && w->len)
		*v++ = (struct rpwi_iov){.base = w->inl, .len = w->len};
	for (const struct ibv_sge *s = w->sge, *end = s + w->nsge; s != end; s++) {
		if (!s->length)
			continue;
		v->base = qp->ops->mem_map(qp, s->lkey, s->addr, s->length);
		v->len = s->length;
		if (RPWI_UNLIKELY(!v++->base)) {
			b->npkt--;
			fail_later(qp, w, IBV_WC_LOC_PROT_ERR);
			return NULL;
		}
	}
	t->iov_count = (uint8_t)(v - begin);
	b->niov += t->iov_count;
	t->payload_len = w->len;
	return t;
}

/* The headers of a SEND or WRITE of one packet: what headers_init does, in one expression. Assigned
 * field by field, the compiler makes all of the struct, 130 instructions more. */
__attribute__((always_inline)) static inline uint8_t headers_only(
	const struct rpwi_qp *qp, const struct rpwi_swqe *w, uint8_t *hdr)
{
	bool ud = qp->type == IBV_QPT_UD, rc = qp->type == IBV_QPT_RC;
	uint32_t dqpn = ud ? w->dqpn : qp->attr.dest_qp_num;
	uint32_t qkey = ud ? qkey_of(qp, w) : 0;
	const struct rpwi_pkt h = {
		.opcode = service_of(qp) | rpwi_wr_info[w->opcode].only,
		.pkey = RPWI_PKEY_DEFAULT,
		.solicited = w->flags & IBV_SEND_SOLICITED,
		.ackreq = rc,
		.dqpn = dqpn,
		.psn = qp->nxt & RPWI_PSN_MASK,
		.sqpn = qp->qpn,
		.qkey = qkey,
		.va = w->raddr,
		.rkey = w->rkey,
		.dma_len = w->len,
		.imm_be = w->imm_be,
		.inv_rkey = w->inv_rkey,
		.payload_len = w->len,
		.pad = (uint8_t)(-w->len & 3),
	};
	return (uint8_t)rpwi_pkt_encode_here(&h, hdr);
}

/* The same as in the packet before it, but for the PSN and an address. */
static uint8_t headers_alike(const struct rpwi_qp *qp, const struct rpwi_swqe *w,
	const struct rpwi_txpkt *before, uint8_t *hdr)
{
	memcpy(hdr, before->hdr, RPWI_BTH_LEN + RETH_LEN);
	rpwi_pkt_set_psn(hdr, qp->nxt, true);
	if (w->opcode == IBV_WR_RDMA_WRITE) {
		rpwi_put_be64(hdr + RPWI_BTH_LEN, w->raddr);
		rpwi_put_be32(hdr + RPWI_BTH_LEN + 8, w->rkey);
	}
	return (uint8_t)before->hdr_len;
}

/* A SEND or WRITE of one packet, as most of them are: what tx_data does, without its loops.
 * `alike`: its headers are like those of the packet before it in the batch. */
static bool tx_only(
	struct rpwi_qp *qp, struct rpwi_swqe *w, struct rpwi_txb *b, bool alike, uint64_t now_ns)
{
	struct rpwi_txpkt *t = add_only(qp, w, b);

	if (RPWI_UNLIKELY(!t))
		return false;
	qp->since_ackreq = 0;
	t->pad = (uint8_t)(-w->len & 3);
	t->stays = rpwi_qp_is_rc(qp) && t->iov_count == 1 && !(w->flags & IBV_SEND_INLINE);
	t->hdr_len = alike ? headers_alike(qp, w, t - 1, t->hdr) : headers_only(qp, w, t->hdr);
	sent(qp, 1, 1, w->len, now_ns);
	qp->sq_cur++;
	return true;
}

/* Does one packet do, and nothing else of it has to be looked at? */
static bool is_short(const struct rpwi_qp *qp, const struct rpwi_swqe *w)
{
	enum {
		SHORT = 1 << IBV_WR_SEND | 1 << IBV_WR_SEND_WITH_IMM | 1 << IBV_WR_SEND_WITH_INV |
			1 << IBV_WR_RDMA_WRITE | 1 << IBV_WR_RDMA_WRITE_WITH_IMM
	};

	return w->phase == RPWI_SWQE_POSTED && w->len <= qp->mtu && (SHORT >> w->opcode & 1) &&
	       !w->doom && !(w->flags & IBV_SEND_FENCE);
}

/* What begin does with one. */
static void begin_short(const struct rpwi_qp *qp, struct rpwi_swqe *w)
{
	w->npsn = 1;
	w->psn_first = qp->nxt;
	w->split = false;
	w->phase = RPWI_SWQE_STARTED;
}

bool rpwi_req_tx_short(
	struct rpwi_qp *qp, struct rpwi_short *out, uint32_t len_max, uint64_t now_ns)
{
	struct rpwi_swqe *w = rpwi_sq_at(qp, qp->sq_cur);

	if (qp->slow || qp->sq_tail - qp->sq_cur != 1 || w->len > len_max || w->nsge > 1 ||
		!is_short(qp, w) || window_room(qp) < RPWI_TXB_PKTS)
		return false;
	*out = (struct rpwi_short){.data = w->inl, .len = w->len};
	if (w->nsge && w->len) {
		out->data = qp->ops->mem_map(qp, w->sge->lkey, w->sge->addr, w->len);
		if (RPWI_UNLIKELY(!out->data))
			return false;
	}
	begin_short(qp, w);
	qp->since_ackreq = 0;
	out->psn = qp->nxt & RPWI_PSN_MASK;
	out->hdr_len = headers_only(qp, w, out->hdr);
	sent(qp, 1, 1, w->len, now_ns);
	qp->sq_cur++;
	return true;
}

/* Are their headers the same but for the PSN and an address? */
static bool is_alike(const struct rpwi_swqe *w, const struct rpwi_swqe *before)
{
	return w->opcode == before->opcode && w->flags == before->flags && w->len == before->len &&
	       (w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_RDMA_WRITE);
}

/* Such WQEs, the first of them READY, one after the other: what state_of and begin ask for each
 * holds for all, as long as the window has room for a whole batch. False: the batch has no room, or
 * one has failed. */
static bool tx_row(struct rpwi_qp *qp, struct rpwi_txb *b, unsigned end, uint64_t now_ns)
{
	struct rpwi_swqe *w = rpwi_sq_at(qp, qp->sq_cur);
	const struct rpwi_swqe *before = NULL;

	do {
		begin_short(qp, w);
		if (!tx_only(qp, w, b, before && is_alike(w, before), now_ns))
			return false;
		before = w;
		w = rpwi_sq_at(qp, qp->sq_cur);
	} while (b->npkt < end && qp->sq_cur != qp->sq_tail && is_short(qp, w));
	return true;
}

static bool row_begins(const struct rpwi_qp *qp, const struct rpwi_swqe *w)
{
	enum { IN_THE_WAY = RPWI_SLOW_STATE | RPWI_SLOW_PEER | RPWI_SLOW_ONE };

	return RPWI_LIKELY(!(qp->slow & IN_THE_WAY)) && is_short(qp, w) &&
	       window_room(qp) >= RPWI_TXB_PKTS;
}

static inline uint8_t opcode_of(const struct rpwi_qp *qp, const struct rpwi_swqe *w, uint32_t k)
{
	const struct rpwi_wr_info *info = &rpwi_wr_info[w->opcode];
	uint8_t service = service_of(qp);

	if (w->split)
		return service | info->only;
	if (!k)
		return service | info->first;
	return service | (k + 1 == w->npsn ? info->last : info->middle);
}

/* Those of packet k of several, whose payload is known. */
static inline void headers_of(const struct rpwi_qp *qp, const struct rpwi_swqe *w, uint32_t k,
	bool ackreq, struct rpwi_pkt *h, struct rpwi_txpkt *t)
{
	if (w->split) {
		h->va = w->raddr + (uint64_t)k * qp->mtu;
		h->dma_len = t->payload_len;
	}
	h->opcode = opcode_of(qp, w, k);
	h->psn = (w->psn_first + k) & RPWI_PSN_MASK;
	h->ackreq = ackreq;
	h->solicited = k + 1 == w->npsn && (w->flags & IBV_SEND_SOLICITED);
	h->payload_len = t->payload_len;
	h->pad = t->pad = (uint8_t)(-t->payload_len & 3);
	t->hdr_len = (uint16_t)rpwi_pkt_encode(h, t->hdr);
}

/* The same as in `before`, another full packet of the message and neither its last, but for the PSN
 * and an address. */
static inline void headers_like(const struct rpwi_qp *qp, const struct rpwi_swqe *w, uint32_t k,
	bool ackreq, const struct rpwi_txpkt *before, struct rpwi_txpkt *t)
{
	memcpy(t->hdr, before->hdr, RPWI_BTH_LEN + RETH_LEN);
	rpwi_pkt_set_psn(t->hdr, w->psn_first + k, ackreq);
	if (w->split)
		rpwi_put_be64(t->hdr + RPWI_BTH_LEN, w->raddr + (uint64_t)k * qp->mtu);
	t->hdr_len = before->hdr_len;
}

/* As many packets of a SEND or WRITE of several as there is room for. An ACK is asked for every so
 * many packets, and with the last one here: that of the message, or the rest of the window may be
 * too little for more. False when nothing went. */
static bool tx_data(struct rpwi_qp *qp, struct rpwi_swqe *w, struct rpwi_txb *b, uint32_t pkts_max,
	uint64_t now_ns)
{
	bool rc = rpwi_qp_is_rc(qp);
	uint32_t mtu = qp->mtu, k = qp->nxt - w->psn_first, left = w->len - k * mtu, done = 0;
	uint32_t window = rc ? window_room(qp) : UINT32_MAX;
	if (rc && qp->slow & RPWI_SLOW_ONE)
		window = 1;
	uint32_t n = RPWI_MIN(RPWI_MIN(w->npsn - k, pkts_max), window);
	const struct rpwi_txpkt *alike = NULL;
	struct rpwi_pkt h;
	struct walk walk;
	bool lost = false;

	headers_init(qp, w, &h);
	walk_open(&walk, w, k * mtu, RPWI_MIN(left, n * mtu));
	for (; done < n && b->niov + w->nsge + 1 <= RPWI_TXB_IOVS; done++, k++) {
		bool last = k + 1 == w->npsn;
		bool ackreq = rc && ++qp->since_ackreq >= RPWI_ACKREQ_EVERY;
		uint32_t len = RPWI_MIN(left, mtu);
		unsigned niov = b->niov;
		struct rpwi_txpkt *t = rpwi_txb_add(b);

		if (RPWI_UNLIKELY(!walk_take(&walk, qp, w, b, t, len))) {
			b->npkt--;
			b->niov = niov;
			lost = true;
			break;
		}
		if (ackreq)
			qp->since_ackreq = 0;
		t->payload_len = len;
		t->stays = rc && t->iov_count == 1 && !(w->flags & IBV_SEND_INLINE);
		if (alike && !last) {
			headers_like(qp, w, k, ackreq, alike, t);
		} else {
			headers_of(qp, w, k, ackreq, &h, t);
			if (!last && (k || w->split))
				alike = t;
		}
		left -= len;
	}
	if (done && rc) {
		rpwi_pkt_set_psn(b->pkt[b->npkt - 1].hdr, qp->nxt + done - 1, true);
		qp->since_ackreq = 0;
	}
	if (done)
		sent(qp, done, done, w->len - (uint64_t)(qp->nxt - w->psn_first) * mtu - left,
			now_ns);
	if (k == w->npsn)
		qp->sq_cur++;
	if (lost)
		fail_later(qp, w, IBV_WC_LOC_PROT_ERR);
	return done && !lost;
}

/* One READ request, for one of the pieces that a READ is cut into (see rpwi_qp.read_chunk_pkts):
 * READ responses are not acknowledged, so the requester alone can keep them from overrunning its
 * own socket. To the responder it is a READ like any. */
static void tx_read(struct rpwi_qp *qp, struct rpwi_swqe *w, struct rpwi_txb *b, uint64_t now_ns)
{
	uint32_t n = read_pkts_wanted(qp, w), k = qp->nxt - w->psn_first;
	uint64_t off = (uint64_t)k * qp->mtu;
	struct rpwi_pkt h;

	if (qp->rd_next == qp->rd_tail) {
		n = RPWI_MIN(n, RPWI_MAX(window_room(qp), 1u)); /* one may be lent */
		qp->rd_end[qp->rd_tail++ % RPWI_RD_ATOMIC_MAX] = qp->nxt + n;
	}
	qp->rd_next++;
	headers_init(qp, w, &h);
	h.opcode = RPWI_SVC_RC | RPWI_OP_READ_REQ;
	h.psn = qp->nxt & RPWI_PSN_MASK;
	h.va += off;
	h.dma_len = (uint32_t)RPWI_MIN((uint64_t)n * qp->mtu, w->len - off);
	h.ackreq = true;
	struct rpwi_txpkt *t = rpwi_txb_add(b);

	t->hdr_len = (uint16_t)rpwi_pkt_encode(&h, t->hdr);
	sent(qp, n, 1, 0, now_ns);
	if (k + n == w->npsn)
		qp->sq_cur++;
}

static void tx_atomic(struct rpwi_qp *qp, struct rpwi_swqe *w, struct rpwi_txb *b, uint64_t now_ns)
{
	struct rpwi_pkt h;

	if (qp->rd_next == qp->rd_tail)
		qp->rd_end[qp->rd_tail++ % RPWI_RD_ATOMIC_MAX] = qp->nxt + 1;
	qp->rd_next++;
	headers_init(qp, w, &h);
	h.opcode = RPWI_SVC_RC | rpwi_wr_info[w->opcode].only;
	h.psn = qp->nxt & RPWI_PSN_MASK;
	h.ackreq = true;
	if (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		h.compare = w->compare_add;
		h.swap_add = w->swap;
	} else {
		h.swap_add = w->compare_add;
	}
	struct rpwi_txpkt *t = rpwi_txb_add(b);

	t->hdr_len = (uint16_t)rpwi_pkt_encode(&h, t->hdr);
	sent(qp, 1, 1, 0, now_ns);
	qp->sq_cur++;
}

/* ATOMIC WRITE (IB A19): a WRITE of 8 bytes that is answered like a READ of none, and counts as one
 * among those that may be outstanding. False when the batch has no room for it, or its memory is
 * gone. */
static bool tx_atomic_write(
	struct rpwi_qp *qp, struct rpwi_swqe *w, struct rpwi_txb *b, uint64_t now_ns)
{
	struct rpwi_txpkt *t = add_only(qp, w, b);
	struct rpwi_pkt h;

	if (RPWI_UNLIKELY(!t))
		return false;
	if (qp->rd_next == qp->rd_tail)
		qp->rd_end[qp->rd_tail++ % RPWI_RD_ATOMIC_MAX] = qp->nxt + 1;
	qp->rd_next++;
	headers_init(qp, w, &h);
	h.opcode = RPWI_SVC_RC | RPWI_OP_ATOMIC_WRITE;
	h.psn = qp->nxt & RPWI_PSN_MASK;
	h.ackreq = true;
	h.payload_len = w->len;
	t->hdr_len = (uint16_t)rpwi_pkt_encode(&h, t->hdr);
	sent(qp, 1, 1, w->len, now_ns);
	qp->sq_cur++;
	return true;
}

/* After time-outs in a row the first packet goes twice: the retries left are few, and on a bad path
 * one copy more makes the difference. */
static void repeat_first(struct rpwi_qp *qp, struct rpwi_txb *b, unsigned first)
{
	if (b->npkt == first || !rpwi_txb_room(b))
		return;
	b->pkt[b->npkt++] = b->pkt[first];
	rpwi_slow_end(qp, RPWI_SLOW_TWICE);
	qp->n->tx_packets++;
	count_resent(qp, 1);
}

/* A duplicate of the last packet that was acknowledged, as far as a responder looks at one (IB
 * 9.7.5.1.3): it executes nothing, and acknowledges the newest that it has executed. The bytes do
 * not matter, so there are none. */
static void tx_probe(struct rpwi_qp *qp, struct rpwi_txb *b)
{
	struct rpwi_pkt h = {.opcode = RPWI_SVC_RC | RPWI_OP_SEND_ONLY,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = qp->attr.dest_qp_num,
		.psn = (qp->una - 1) & RPWI_PSN_MASK,
		.ackreq = true};
	struct rpwi_txpkt *t = rpwi_txb_add(b);

	t->hdr_len = (uint16_t)rpwi_pkt_encode(&h, t->hdr);
	rpwi_slow_end(qp, RPWI_SLOW_PROBE);
	qp->n->tx_packets++;
	qp->n->probes++;
}

/* By a fault script: it fails in its turn (true), or nothing of it gets to the peer. */
static bool doomed(struct rpwi_qp *qp, struct rpwi_swqe *w)
{
	if (!(w->doom & RPWI_DOOM_SILENT)) {
		fail_later(qp, w, (enum ibv_wc_status)w->doom);
		return true;
	}
	if (!(qp->slow & RPWI_SLOW_LOST))
		qp->lost_psn = qp->nxt;
	qp->slow |= RPWI_SLOW_LOST;
	return false;
}

/* The requests from lost_psn on leave the batch; they are in order. Probes, too, once all before it
 * has been acknowledged: their answers would show a peer. */
static void lose(struct rpwi_qp *qp, struct rpwi_txb *b, unsigned first)
{
	for (unsigned i = first; i < b->npkt; i++)
		if (qp->una == qp->lost_psn ||
			rpwi_psn_diff(rpwi_get_be24(b->pkt[i].hdr + 9), qp->lost_psn) >= 0) {
			b->npkt = i;
			return;
		}
}

/* Of so many packets that there is room for, as many as fill datagrams. */
static unsigned in_datagrams(const struct rpwi_qp *qp, unsigned pkts)
{
	uint32_t whole = rpwi_gso_pkts(qp->attr.path_mtu);
	uint32_t room = rpwi_qp_is_rc(qp) ? RPWI_MIN(pkts, window_room(qp)) : pkts;

	return room > whole ? room - room % whole : pkts;
}

void rpwi_req_tx(struct rpwi_qp *qp, struct rpwi_txb *b, unsigned pkts_max, uint64_t now_ns)
{
	if (b->by_datagrams)
		pkts_max = in_datagrams(qp, pkts_max);
	unsigned first = b->npkt, end = b->npkt + pkts_max, began = first;

	if (RPWI_UNLIKELY(qp->slow & RPWI_SLOW_PROBE)) {
		tx_probe(qp, b);
		first++;
	}
	while (b->npkt < end && state_of(qp, b->npkt > began, b->by_datagrams) == RPWI_REQ_READY) {
		struct rpwi_swqe *w = rpwi_sq_at(qp, qp->sq_cur);

		if (row_begins(qp, w)) {
			if (!tx_row(qp, b, end, now_ns))
				break;
			continue;
		}
		if (w->phase == RPWI_SWQE_DONE) {
			qp->sq_cur++;
			continue;
		}
		if (RPWI_UNLIKELY(w->doom) && w->phase == RPWI_SWQE_POSTED && doomed(qp, w))
			continue;
		if (rpwi_wr_info[w->opcode].local) {
			run_local(qp, w);
			continue;
		}
		if (qp->type == IBV_QPT_UD &&
			(((w->dqpn ^ b->dqpn) & b->dqpn_mask) || !rpwi_txb_accepts(b, w->av)))
			break;
		if (w->phase == RPWI_SWQE_POSTED &&
			(!begin(qp, w, b->may_split) || read_at_once(qp, w) ||
				(RPWI_UNLIKELY(qp->slow & RPWI_SLOW_PEER) && write_at_once(qp, w))))
			continue;
		if (RPWI_UNLIKELY(qp->cc && !window_room(qp)))
			rpwi_window_lend(qp);
		if (w->opcode == IBV_WR_RDMA_READ)
			tx_read(qp, w, b, now_ns);
		else if (rpwi_op_fetches(w->opcode))
			tx_atomic(qp, w, b, now_ns);
		else if (w->opcode == RPWI_WR_ATOMIC_WRITE) {
			if (!tx_atomic_write(qp, w, b, now_ns))
				break;
		} else if (w->npsn == 1 ? !tx_only(qp, w, b, false, now_ns)
					: !tx_data(qp, w, b, end - b->npkt, now_ns))
			break;
	}
	if (RPWI_UNLIKELY(qp->slow & RPWI_SLOW_TWICE))
		repeat_first(qp, b, first);
	if (RPWI_UNLIKELY(qp->slow & RPWI_SLOW_LOST))
		lose(qp, b, began);
}
