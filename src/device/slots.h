/* SPDX-License-Identifier: BSD-3-Clause */
/* slots.h - a device whose send queue has room again when a completion is polled, as NICs' drivers
 * have it (profiles with `send_slots = POLL`). Without such a profile none of this is called.
 * Private to device/. */
#ifndef ROPEWAY_DEVICE_SLOTS_H
#define ROPEWAY_DEVICE_SLOTS_H

#include "device/hca.h"

static inline bool slots_on(void)
{
	return RPWI_UNLIKELY(rpwi_like_most(RPWI_LIKE_SEND_SLOTS) == RPWI_LIKE_SLOTS_POLL);
}
/* They take the place of the calls in a context's table, and in that of a CQ with its own. */
void slots_context(struct verbs_context *v);
void slots_cq_ex(struct ibv_cq_ex *cq);
/* Of a QP: when it is made (0 or -ENOMEM), reset, destroyed. */
int slots_make(struct dqp *q);
void slots_reset(struct dqp *q);
void slots_free(struct dqp *q);
const struct rpwi_qp_ops *slots_qp_ops(const struct rpwi_qp_ops *of);

#endif
