/* SPDX-License-Identifier: BSD-3-Clause */
/* events.h - completion events: the order of poll, arm and wait, and acknowledgements.
 *
 * A completion that comes after the last poll and before the CQ is armed makes no event (IB
 * 11.4.2.2). A CQ is `risky` from such an arm on, until the program polls it again, or posts a
 * send: then it may know that nothing could have come before. RPWI_LOCK_CHECK is taken inside.
 */
#ifndef ROPEWAY_CHECK_EVENTS_H
#define ROPEWAY_CHECK_EVENTS_H

#include <infiniband/verbs.h>

#include "check/check.h"

/* A CQ was polled; empty: until nothing was left. */
void check_drained(const struct ibv_cq *cq, bool empty);
/* already: it was armed for the same, and no event has come since; pending: an event of it waits to
 * be taken. */
void check_armed(const struct ibv_cq *cq, bool solicited, bool already, bool pending);
/* The program waits for an event of this channel, and there is none. */
void check_waits(const struct ibv_comp_channel *ch);
void check_event_got(const struct ibv_cq *cq);
/* ibv_destroy_cq waits until they are acknowledged. */
void check_events_left(const struct ibv_cq *cq, unsigned n);

#endif
