/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_cm.h - what the targets share that speak to the communication manager. */
#ifndef ROPEWAY_FUZZ_CM_H
#define ROPEWAY_FUZZ_CM_H

#include "cm/cm.h"

/* The rest of a message of m->attr, as the peer of this connection (NULL: of none) would say it:
 * its own IDs are small numbers, so that they meet again. */
void fuzz_cm_fill(struct rpwi_cm_msg *m, const struct rpwi_cm_conn *c, uint8_t own);

#endif
