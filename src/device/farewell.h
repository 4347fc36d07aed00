/* SPDX-License-Identifier: BSD-3-Clause */
/* farewell.h - who tells the peers on other hosts that a process has ended: the helper
 * (io/helper.h, src/helper). Here is the process's connection to it. Private to device/ and the
 * helper.
 */
#ifndef ROPEWAY_DEVICE_FAREWELL_H
#define ROPEWAY_DEVICE_FAREWELL_H

#include "device/ledger.h"
#include "io/helper.h"

/* The service thread's alone, without the lock: finds the helper, or starts it, and says hello. */
uint64_t farewell_deadline(void); /* RPWI_NEVER: nothing to do */
void farewell_tend(uint64_t now_ns);
uint16_t farewell_helper_slot(void); /* 0: none known */
/* A child of a fork goes on with what it inherited: the helper watches it from now on. */
void farewell_is_forked(void);
/* The child begins anew; or nobody uses the device any more. No service thread runs. */
void farewell_close(void);

extern bool farewell_is_helper; /* this process is one */

#endif
