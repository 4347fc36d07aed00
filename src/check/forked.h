/* SPDX-License-Identifier: BSD-3-Clause */
/* forked.h - forks: of a process that has registered memory (222), and of one whose child uses
 * its objects (223). */
#ifndef ROPEWAY_CHECK_FORKED_H
#define ROPEWAY_CHECK_FORKED_H

#include "check/queue.h"

extern bool rpwi_check_is_child; /* of a process that had objects */

/* Once, before the first call. */
void check_forked_init(void);
/* The program has called ibv_fork_init. */
void check_fork_ready(void);
/* A child uses an object of its parent: a queue pair, or (q NULL) a CQ or SRQ, by the call `what`.
 * The lock is held. */
void check_child_uses(const struct check_qp *q, const struct rpwi_site *made, const char *what);
/* A child polls a CQ of its parent's, or does not. */
void check_child_polls(const struct ibv_cq *cq);

#endif
