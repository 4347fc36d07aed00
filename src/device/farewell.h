/* SPDX-License-Identifier: BSD-3-Clause */
/* farewell.h - who tells the peers on other hosts that a process has ended: the helper
 * (io/helper.h). Here is the process's connection to it, and what the helper says to peers. Private
 * to device/ and the helper.
 */
#ifndef ROPEWAY_DEVICE_FAREWELL_H
#define ROPEWAY_DEVICE_FAREWELL_H

#include "device/ledger.h"
#include "io/helper.h"

/* ---- in every process ---- */

/* There is something in the ledger that the helper has not seen. Any thread. */
void farewell_wanted(void);
/* The service thread's alone, without the lock: finds the helper, or starts it, and says hello. */
uint64_t farewell_deadline(void); /* RPWI_NEVER: nothing to do */
void farewell_tend(uint64_t now_ns);
uint16_t farewell_helper_slot(void); /* 0: none known */
/* A child of a fork goes on with what it inherited: the helper watches it from now on. */
void farewell_is_forked(void);
/* The child begins anew; or nobody uses the device any more. No service thread runs. */
void farewell_close(void);

/* ---- in the helper ---- */

extern bool farewell_is_helper; /* this process is one */
/* Take leave of everyone in the ledger of a process that has ended: a DREQ for each connection, and,
 * `and_qps`, a request that ends each RC QP's peer (see farewell.c). The lock is held. Gives how
 * many were told something. */
unsigned farewell_say(const struct ledger *l, uint64_t now_ns, bool and_qps);

#endif
