/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_rma_qp.c - an endpoint's second queue pair, for operations on remote memory: made with the
 * first of them, and anew when an access was refused, which breaks a queue pair.
 *
 * Both sides say, by frames: epoch, QPN, PSN, and whether they are connected to what the other
 * said. The side that needs a RMA QP offers it; who hears an offer of a later epoch than its own
 * makes its side of it; who knows the other's side connects; who knows that the other is connected
 * may post. So it does not matter who began, nor whether both did.
 */
#include "tran/verbs/verbs_priv.h"

#include <stdlib.h>

enum { EPOCH_AHEAD_MAX = 16 };

static void qp_drop(struct verbs_ep *ep)
{
	struct verbs_rma_qp *l = ep->rma_qp;
	if (l->sq.qp)
		rpwi_verbs_sq_free(ep, &l->sq);
	l->state = VERBS_RMA_QP_NONE;
	l->reading = 0;
}

/* Our side of that epoch. False: it cannot be, and the endpoint has failed. */
static bool offer(struct verbs_ep *ep, uint32_t epoch)
{
	struct verbs_rma_qp *l = ep->rma_qp;
	if (!l) {
		l = ep->rma_qp = calloc(1, sizeof(*l));
		if (!l) {
			rpwi_verbs_ep_fail(
				ep, RPW_ERR_NO_MEMORY, "no memory for a second queue pair");
			return false;
		}
		l->sq.ep = ep;
	}
	qp_drop(ep);
	l->epoch = epoch;
	l->psn = rpwi_verbs_psn();
	l->sq.qp = rpwi_verbs_qp_new(ep->p);
	if (!l->sq.qp || rpwi_verbs_map_add(ep->p, &l->sq)) {
		rpwi_verbs_ep_fail(
			ep, RPW_ERR_LIMIT, "no second queue pair: %s", rpwi_last_error()->text);
		return false;
	}
	l->state = VERBS_RMA_QP_OFFERED;
	l->say = true;
	verbs_todo(ep);
	return true;
}

bool rpwi_verbs_rma_qp_ready(struct verbs_ep *ep)
{
	if (RPWI_LIKELY(ep->rma_qp && ep->rma_qp->state == VERBS_RMA_QP_UP))
		return true;
	if (!ep->rma_qp || ep->rma_qp->state == VERBS_RMA_QP_NONE)
		offer(ep, ep->rma_qp ? ep->rma_qp->epoch + 1 : 1);
	return false;
}

void rpwi_verbs_rma_qp_body(const struct verbs_ep *ep, uint8_t *out)
{
	const struct verbs_rma_qp *l = ep->rma_qp;
	rpwi_put_le32(out, l->epoch);
	rpwi_put_le32(out + 4, l->sq.qp ? l->sq.qp->qp_num : 0);
	rpwi_put_le32(out + 8, l->psn);
	rpwi_put_le32(out + 12, l->state >= VERBS_RMA_QP_CONNECTED);
}

void rpwi_verbs_rma_qp_came(struct verbs_ep *ep, const uint8_t *body, size_t len)
{
	uint32_t epoch = 0, qpn = 0, psn = 0;
	uint32_t own = ep->rma_qp ? ep->rma_qp->epoch : 0;
	if (len == VERBS_RMA_QP_BYTES) {
		epoch = rpwi_get_le32(body);
		qpn = rpwi_get_le32(body + 4);
		psn = rpwi_get_le32(body + 8);
	}
	if (!epoch || epoch > own + EPOCH_AHEAD_MAX || qpn > 0xffffff || psn > 0xffffff) {
		rpwi_verbs_ep_fail(ep, RPW_ERR_PROTOCOL,
			"the peer offers a queue pair 0x%x of epoch %u after %u, which cannot be",
			qpn, epoch, own);
		return;
	}
	if (epoch < own)
		return; /* it will hear of the later one */
	bool begun_by_peer = epoch > own;
	if (begun_by_peer && (!rpwi_verbs_ops_again(ep, false) || !offer(ep, epoch)))
		return;
	struct verbs_rma_qp *l = ep->rma_qp;
	if (l->state == VERBS_RMA_QP_NONE)
		return; /* it broke since: the next epoch is under way */
	if (l->state == VERBS_RMA_QP_OFFERED) {
		if (rpwi_verbs_qp_connect(ep, l->sq.qp, l->psn, qpn, psn)) {
			rpwi_verbs_ep_fail(ep, RPW_ERR_UNREACHABLE, "%s", rpwi_last_error()->text);
			return;
		}
		l->state = VERBS_RMA_QP_CONNECTED;
		l->say = true;
	}
	if (rpwi_get_le32(body + 12))
		l->state = VERBS_RMA_QP_UP;
	verbs_todo(ep);
}

void rpwi_verbs_rma_qp_broke(struct verbs_ep *ep, struct verbs_op *refused, bool certain)
{
	uint32_t epoch = ep->rma_qp->epoch + 1;
	qp_drop(ep);
	if (refused) /* before the rest is posted again; it may post more */
		rpwi_verbs_op_retired(ep, refused, RPW_ERR_ACCESS);
	if (ep->state != VERBS_EP_UP || !rpwi_verbs_ops_again(ep, certain))
		return;
	/* The peer's side is broken, too: it is told by the offer of the next epoch. */
	if (ep->rma_qp->epoch < epoch)
		offer(ep, epoch);
}

void rpwi_verbs_rma_qp_free(struct verbs_ep *ep)
{
	if (!ep->rma_qp)
		return;
	qp_drop(ep);
	free(ep->rma_qp);
	ep->rma_qp = NULL;
}
