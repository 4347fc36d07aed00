/* SPDX-License-Identifier: BSD-3-Clause */
/* forget.c - what a QP drops when it fails, is flushed or is reset: what it has in flight, and the
 * answers that it owes. */
#include "rc/internal.h"

void rpwi_resp_silence(struct rpwi_qp *qp)
{
	qp->res_cur = qp->res_tail;
	rpwi_slow_end(qp, RPWI_SLOW_NAK);
	qp->ack_owed = false;
}

void rpwi_req_forget(struct rpwi_qp *qp)
{
	rpwi_window_forget(qp, qp->nxt - qp->una);
	qp->window = 0;
	qp->una = qp->nxt;
	qp->psn_max = qp->nxt;
	qp->rd_head = qp->rd_next = qp->rd_tail;
	rpwi_qp_rnr_over(qp);
	rpwi_slow_end(qp, RPWI_SLOW_TWICE | RPWI_SLOW_ONE | RPWI_SLOW_PROBE);
	qp->rtt_running = qp->implied = false;
	qp->timeouts_in_row = 0;
	qp->since_ackreq = 0;
	qp->deaf_until_ns = 0;
	qp->probing = qp->late = false;
	qp->probes = qp->silences = qp->answers = qp->asked = qp->stale = 0;
	qp->probe_end = qp->una;
}
