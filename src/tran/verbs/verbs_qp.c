/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_qp.c - queue pairs: made, taken from RESET to RTS, freed with what is posted on them. */
#include "tran/verbs/verbs_priv.h"

#include <errno.h>
#include <stdlib.h>

enum {
	PSN_MASK = 0xffffff,
	TIMEOUT = 14,    /* 4.096 us * 2^14 = 67 ms until an unanswered packet is sent again, */
	RETRIES = 7,     /* so often */
	RNR_FOREVER = 7, /* a receive will be there: see VERBS_RX_RESERVE */
	RNR_TIMER = 12,  /* 0.64 ms */
	HOP_LIMIT = 64,
};

uint32_t rpwi_verbs_psn(void) { return (uint32_t)rpwi_random64() & PSN_MASK; }

/* ---- making ---- */

struct ibv_qp *rpwi_verbs_qp_new(struct verbs_plane *p)
{
	/* What inline data a device can take is found by asking: less each time. */
	unsigned inlines = RPWI_MIN(p->inline_max, (unsigned)VERBS_INLINE_MAX);
	if (rpwi_verbs_cq_reserve(p))
		return NULL;
	for (;;) {
		struct ibv_qp_init_attr a = {.send_cq = p->cq,
			.recv_cq = p->cq,
			.srq = p->srq,
			.cap = {.max_send_wr = VERBS_SQ_DEPTH,
				.max_send_sge = 1,
				.max_inline_data = inlines},
			.qp_type = IBV_QPT_RC};
		struct ibv_qp *qp = p->v->ibv_create_qp(p->pd, &a);
		if (qp) {
			p->inline_max = RPWI_MIN(inlines, a.cap.max_inline_data);
			p->qps++;
			return qp;
		}
		if (!inlines || errno == ENOMEM) {
			rpwi_fail(RPW_ERR_SYSTEM, "verbs: %s gives no queue pair beside its %u: %s",
				p->name, p->qps, strerror(errno));
			return NULL;
		}
		inlines = inlines > 32 ? inlines / 2 : 0;
	}
}

void rpwi_verbs_qp_free(struct verbs_plane *p, struct ibv_qp *qp)
{
	p->v->ibv_destroy_qp(qp);
	p->qps--;
}

/* ---- what the software device knows of the way ---- */

unsigned rpwi_verbs_path_word(const struct verbs_ep *ep, struct ibv_qp *qp, unsigned *bytes,
	char word[VERBS_PATH_WORD_BYTES])
{
	*bytes = 0;
	*word = 0;
	return ep->p->v->ropeway_path_word && qp
		       ? ep->p->v->ropeway_path_word(qp, bytes, word, VERBS_PATH_WORD_BYTES)
		       : 0;
}

/* ---- RESET -> INIT -> RTR -> RTS ---- */

static int modify(
	struct verbs_ep *ep, struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, const char *state)
{
	char word[VERBS_PATH_WORD_BYTES];
	unsigned bytes;
	int rc = ep->p->v->ibv_modify_qp(qp, a, mask);
	if (!rc)
		return 0;
	rc = rc > 0 ? rc : errno; /* some libraries give -1 */
	rpwi_verbs_path_word(ep, qp, &bytes, word);
	if (rc == EADDRINUSE)
		return rpwi_fail(RPW_ERR_UNREACHABLE, "the queue pair on %s cannot go to %s: %s",
			ep->base.path, state,
			*word ? word
			      : "another program holds UDP port 4791 (`ss -uanp sport = :4791` "
				"says "
				"which)");
	return rpwi_fail(RPW_ERR_UNREACHABLE,
		"the queue pair on %s cannot go to %s: %s; is there a route between the two "
		"addresses?",
		ep->base.path, state, strerror(rc));
}

static int to_init(struct verbs_ep *ep, struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
		.port_num = ep->own_port,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   (ep->p->atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0)};
	return modify(ep, qp, &a,
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
}

/* Frames need no READs: each one that a device is to answer at a time costs memory there. */
static uint8_t reads_max(const struct verbs_ep *ep, const struct ibv_qp *qp, uint8_t of_lane)
{
	return qp == ep->sq.qp ? 1 : of_lane;
}

static int to_rtr(struct verbs_ep *ep, struct ibv_qp *qp, uint32_t peer_qpn, uint32_t peer_psn)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)ep->mtu,
		.dest_qp_num = peer_qpn,
		.rq_psn = peer_psn,
		.max_dest_rd_atomic = reads_max(ep, qp, ep->p->rd_in),
		.min_rnr_timer = RNR_TIMER,
		.ah_attr = {.dlid = ep->remote.lid,
			.port_num = ep->own_port,
			.is_global = 1,
			.grh = {.sgid_index = ep->own_gid_index, .hop_limit = HOP_LIMIT}}};
	memcpy(a.ah_attr.grh.dgid.raw, ep->remote_gid, 16);
	return modify(ep, qp, &a,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		"RTR");
}

static int to_rts(struct verbs_ep *ep, struct ibv_qp *qp, uint32_t psn)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
		.timeout = TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = RNR_FOREVER,
		.sq_psn = psn,
		.max_rd_atomic =
			reads_max(ep, qp, RPWI_MIN(ep->p->rd_out, RPWI_MAX(ep->remote.rd_in, 1)))};
	return modify(ep, qp, &a,
		IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
		"RTS");
}

int rpwi_verbs_qp_connect(
	struct verbs_ep *ep, struct ibv_qp *qp, uint32_t psn, uint32_t peer_qpn, uint32_t peer_psn)
{
	int rc = to_init(ep, qp);
	if (!rc)
		rc = to_rtr(ep, qp, peer_qpn, peer_psn);
	return rc ? rc : to_rts(ep, qp, psn);
}

/* ---- the end ---- */

static bool wc_is_recv(const struct ibv_wc *wc) { return !(wc->wr_id & 1); }

/* Completions of a QP number that may be used again soon: the receives among them give their buffer
 * back. */
static void wcs_forget(struct verbs_plane *p, struct ibv_wc *wc, int n, uint32_t qpn)
{
	for (int i = 0; i < n; i++) {
		if (wc[i].qp_num != qpn || !wc[i].wr_id)
			continue;
		if (wc_is_recv(&wc[i])) {
			struct verbs_slot *s = (struct verbs_slot *)(uintptr_t)wc[i].wr_id;
			s->next = p->repost;
			p->repost = s;
			p->rx_posted--;
		}
		wc[i].wr_id = 0;
	}
	while (p->wc_count > p->wc_at && !p->wc[p->wc_count - 1].wr_id)
		p->wc_count--;
}

/* To destroy a queue pair drops its completions, and with them the receive that a message half came
 * into: so they are taken before. */
static void wcs_take(struct verbs_plane *p)
{
	for (unsigned i = 0; i < VERBS_SQ_DEPTH; i++) {
		if (p->wc_count + VERBS_POLL_BATCH > p->wc_size) {
			struct ibv_wc *more =
				realloc(p->wc, sizeof(*more) * (size_t)p->wc_size * 2);
			if (!more)
				return;
			p->wc = more;
			p->wc_size *= 2;
		}
		int n = ibv_poll_cq(p->cq, VERBS_POLL_BATCH, p->wc + p->wc_count);
		if (n <= 0)
			return;
		p->wc_count += n;
	}
}

void rpwi_verbs_sq_free(struct verbs_ep *ep, struct verbs_sq *q)
{
	struct verbs_plane *p = ep->p;
	uint32_t qpn = q->qp->qp_num;
	/* Unknown from here on: completions polled of it later are dropped, and its receives are
	 * posted again. */
	if (q->mapped)
		rpwi_verbs_map_del(p, q);
	p->v->ibv_modify_qp(q->qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE);
	wcs_take(p);
	rpwi_verbs_qp_free(p, q->qp);
	wcs_forget(p, p->wc + p->wc_at, p->wc_count - p->wc_at, qpn);
	for (; q->head != q->tail; q->head++)
		if (q->sqe[q->head % VERBS_SQ_DEPTH].kind == VERBS_SQE_SLOT)
			verbs_slot_put(&p->tx, q->sqe[q->head % VERBS_SQ_DEPTH].p);
	q->qp = NULL;
	q->mapped = false;
	q->unsignalled = 0;
}
