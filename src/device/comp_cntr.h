/* SPDX-License-Identifier: BSD-3-Clause */
/* comp_cntr.h - completion counters: what a QP and its transport need of them. The verbs are in
 * device.h.
 */
#ifndef ROPEWAY_DEVICE_COMP_CNTR_H
#define ROPEWAY_DEVICE_COMP_CNTR_H

#include "device/hca.h"

/* rpwi_qp_ops.count: the QP's lock is held. */
void comp_cntr_count(struct rpwi_qp *t, enum rpwi_counted kind, uint32_t bytes, bool good);
/* The QP is destroyed: its counters may be, too. The HCA's lock is held. */
void comp_cntr_qp_gone(struct dqp *q);

#endif
