/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs.h - the device's part of the account (trace.h): posts, completions, states, in words.
 * Everything here is called only while rpwi_explain_on. */
#ifndef ROPEWAY_EXPLAIN_VERBS_H
#define ROPEWAY_EXPLAIN_VERBS_H

#include "explain/trace.h"
#include "rc/rc.h"

/* Before the work requests are taken; the lists may be wrong ones. */
void rpwi_explain_post_send(const struct rpwi_qp *q, const struct ibv_send_wr *wr);
void rpwi_explain_post_recv(const struct rpwi_qp *q, const struct ibv_recv_wr *wr);
/* Facts of a completion as it is made, and the line of one that the program gets; got 0: a poll in
 * vain. */
void rpwi_explain_complete(uint32_t qpn, bool recv, const struct ibv_wc *wc);
void rpwi_explain_polled(const struct ibv_wc *wc, int got);
/* The transport moves a QP to ERR by itself: callers that may have seen it happen ask here. The
 * lock is held. */
void rpwi_explain_state(const struct rpwi_qp *q);
void rpwi_explain_modify(const struct rpwi_qp *q, enum ibv_qp_state was,
	const struct ibv_qp_attr *attr, int mask, int rc);

#endif
