/* SPDX-License-Identifier: BSD-3-Clause */
/* alive.h - do the processes at the other ends still exist? Private to device/; the lock is held.
 *
 * Looked at once a second while there is a RC QP or a connection of rdma_cm's. On this host the
 * kernel knows. Another host is asked (wire/ask.h), once a second, and only about processes that
 * nothing has come from for a second. Whose process has ended is told: a connection of rdma_cm's is
 * disconnected, a RC QP fails (IBV_EVENT_QP_FATAL, what is posted is flushed).
 */
#ifndef ROPEWAY_DEVICE_ALIVE_H
#define ROPEWAY_DEVICE_ALIVE_H

#include "device/hca.h"

void alive_wanted(void); /* there may be something to look after */
uint64_t alive_deadline(void);
void alive_timer(uint64_t now_ns);
/* A MAD that may be a question or an answer; true: it was. */
bool alive_rx(const struct rpwi_addr *local, const struct rpwi_addr *remote, const uint8_t *mad,
	uint64_t now_ns);
/* What came to a QPN of ours that is no QP. True: a question or an answer. */
bool alive_rx_slot(const struct rpwi_rx *rx, const struct rpwi_pkt *pkt, uint64_t now_ns);
/* That host has said that nobody has its port 4791 (ICMP). */
void alive_refused(const struct rpwi_addr *remote);
void alive_forget(void); /* nobody uses the HCA any more, or a child begins anew */

#endif
