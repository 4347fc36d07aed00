/* SPDX-License-Identifier: BSD-3-Clause */
/* race.h - one-sided races (rule 401, `--check=race`): two operations on the same bytes,
 * one of which writes, and nothing orders them. Operations that reach memory from outside are
 * compared with each other, with messages placed into receives, and with requests of the target's
 * own that have the bytes in their SGEs and were not polled yet.
 *
 * Order is kept in vector clocks, one component for each process of the run. A post takes a copy of
 * its process's clock; a completion that is polled ends the operation, and the clock ticks; a
 * receive that is polled brings the clock of the peer's send along, and ends that send, and what
 * went before it through the QP, for whoever hears of it. An operation B comes after A if B's clock
 * knows of A's end, or if both went through one QP. Clocks lie in memory that the
 * processes of a run share: a file beside the report, or, without one, nowhere: then only
 * operations of one process are seen.
 *
 * Not seen: loads and stores of the processors; order by anything but verbs messages (sockets,
 * pipes, flags in memory): a program that orders its operations so gets findings that are none.
 * READs that a process does in its peer's memory by itself are off under this rule.
 *
 * Bounds: RACE_PROCS processes, RACE_QPS QPs of them together; of each QP the newest RACE_RING
 * sends and operations; the newest RACE_ACCESSES accesses of a process. What falls out is not
 * compared. The lock is held for all but race_init.
 */
#ifndef ROPEWAY_CHECK_RACE_H
#define ROPEWAY_CHECK_RACE_H

#include "check/queue.h"

enum { RACE_PROCS = 32, RACE_QPS = 512, RACE_RING = 64, RACE_ACCESSES = 512 };
enum race_kind { RACE_READS, RACE_WRITES, RACE_ATOMIC };

/* With the rule on; the clocks of the run. */
void race_init(void);
/* A request is posted, and is retired by a poll. */
void race_posted(const struct check_qp *q, struct check_wr *w);
void race_sent_polled(const struct check_qp *q, const struct check_wr *w);
void race_recv_polled(const struct check_qp *q, const struct check_wr *w);
/* A receive is filled, or ended by a WRITE with immediate data. */
void race_came(struct check_qp *q, const struct check_wr *w, const struct ibv_wc *wc);
/* The peer's operation has reached memory of this process: `len` bytes at `at`, which is `addr` to
 * the peer. */
void race_arrives(
	const struct check_qp *q, enum race_kind kind, uint64_t addr, uintptr_t at, uint64_t len);

#endif
