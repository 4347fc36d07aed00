/* SPDX-License-Identifier: BSD-3-Clause */
/* events.h - completion events: the order of poll, arm and wait, and acknowledgements.
 *
 * A completion that comes after the last poll and before the CQ is armed makes no event (IB
 * 11.4.2.2). A CQ is `risky` from such an arm on, until the program polls it again, or posts a
 * send: then it may know that nothing could have come before. `unheard` counts completions that
 * were there when it was armed and have not been polled since, until another one makes an event.
 * RPWI_LOCK_CHECK is taken inside.
 */
#ifndef ROPEWAY_CHECK_EVENTS_H
#define ROPEWAY_CHECK_EVENTS_H

#include <infiniband/verbs.h>

#include "check/check.h"

struct check_cq;

/* A CQ was polled, and gave n; empty: until nothing was left. */
void check_drained(const struct ibv_cq *cq, unsigned n, bool empty);
struct check_arm {
	bool solicited, already; /* already: armed for the same, and no event has come since */
	bool pending;            /* an event of it waits to be taken */
	uint32_t left;           /* completions that it held before */
};
void check_armed(const struct ibv_cq *cq, const struct check_arm *a);
/* The program waits for an event of this channel, and there is none. */
void check_waits(const struct ibv_comp_channel *ch);
void check_event_got(const struct ibv_cq *cq);
/* So long was the process awake since the last time. The lock is held. */
void check_unheard_tick(struct check_cq *cq, uint64_t ns);
/* ibv_destroy_cq waits until they are acknowledged. */
void check_events_left(const struct ibv_cq *cq, unsigned n);

#endif
