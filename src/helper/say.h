/* SPDX-License-Identifier: BSD-3-Clause */
/* say.h - what the helper says to the peers of a process that has ended. */
#ifndef ROPEWAY_HELPER_SAY_H
#define ROPEWAY_HELPER_SAY_H

#include "device/ledger.h"

/* Take leave of everyone in the ledger: a DREQ for each connection, and, `and_qps`, a request
 * that ends each RC QP's peer (see say.c). The HCA's lock is held. Gives how many were told
 * something. */
unsigned say_farewell(const struct ledger *l, uint64_t now_ns, bool and_qps);

#endif
