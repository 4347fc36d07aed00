/* SPDX-License-Identifier: BSD-3-Clause */
/* happened.h - what happens at this end of a connection, as lines of the report: cause.h draws the
 * conclusion from both ends. Each kind once for a QP. */
#ifndef ROPEWAY_CHECK_HAPPENED_H
#define ROPEWAY_CHECK_HAPPENED_H

#include "check/cause.h"
#include "check/queue.h"

/* To the QP of that number, known or not; 0: of none. RPWI_LOCK_CHECK is taken inside. The text is
 * a clause without its subject ("called rdma_disconnect"). */
void check_happened(enum rpwi_cause_kind kind, uint32_t qpn, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* With the lock, of requests. */
void check_sent(struct check_qp *q);
void check_ended(
	struct check_qp *q, const struct ibv_wc *wc, const char *op, bool recv, bool polled);
/* It is destroyed, or reset: the report begins anew with its number. */
void check_over(struct check_qp *q, const char *how);
/* The program disconnects, and `left` of its sends are not complete (rule cm-undrained). */
void check_undrained(uint32_t qpn, uint32_t left);

#endif
