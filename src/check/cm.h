/* SPDX-License-Identifier: BSD-3-Clause */
/* cm.h - events of rdma_cm that the program has taken and not acknowledged. librdmacm counts the
 * acknowledgements, and tells nobody: so the drop-in stands before these calls (preload/rdma.c).
 *
 * Events are known by their address, ids likewise; neither is read here. RPWI_LOCK_CHECK is taken
 * inside. Bound: 256 events at a time.
 */
#ifndef ROPEWAY_CHECK_CM_H
#define ROPEWAY_CHECK_CM_H

#include "check/check.h"

/* name: "ESTABLISHED"; id: whose acknowledgements rdma_destroy_id waits for. */
void check_cm_got(const void *event, const void *id, const char *name);
void check_cm_acked(const void *event);
/* rdma_destroy_id, before it waits. Gives other threads a moment to acknowledge. */
void check_cm_destroys(const void *id);

#endif
