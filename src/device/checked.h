/* SPDX-License-Identifier: BSD-3-Clause */
/* checked.h - the device under --check: its tables of calls with the checker before and behind each
 * of them. Without --check none of this is called. Private to device/. */
#ifndef ROPEWAY_DEVICE_CHECKED_H
#define ROPEWAY_DEVICE_CHECKED_H

#include "device/hca.h"

/* They take the place of the device's calls: in a context's table, and in the tables of a CQ and a
 * QP of their own. */
void checked_context(struct verbs_context *v);
void checked_cq_ex(struct ibv_cq_ex *cq);
void checked_qp_ex(struct ibv_qp_ex *qp);
/* The kinds of operations whose end the checker wants to know, of each QP (rpwi_qp.counted). */
enum { CHECKED_COUNTS = RPWI_COUNT_SEND | RPWI_COUNT_WRITE };
/* What the transport calls. */
const struct rpwi_qp_ops *checked_qp_ops(const struct rpwi_qp_ops *of);

/* checked_mem.c: what the transport does with memory; and a peer has refused a request. */
void checked_memory(struct rpwi_qp_ops *ops);
void checked_refused(struct rpwi_qp *t, const struct ibv_wc *wc);

#endif
