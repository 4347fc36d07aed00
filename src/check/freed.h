/* SPDX-License-Identifier: BSD-3-Clause */
/* freed.h - memory that the program frees or unmaps while the device may use it (rule 215).
 *
 * free() and its like are hooked by a library of its own (hooks.h). A hook takes no lock and no
 * memory: it looks into a table of counters whether the page may be registered, and if so leaves a
 * note in a ring. Every section of the checker's lock begins with the notes (check.h), before it
 * changes anything: so a note is judged by the requests that were in flight when it was made.
 */
#ifndef ROPEWAY_CHECK_FREED_H
#define ROPEWAY_CHECK_FREED_H

#include "check/queue.h"

/* Requests that the device has not done; the lock is held. */
extern int rpwi_check_in_flight;
static inline void check_in_flight(int n)
{
	__atomic_store_n(&rpwi_check_in_flight, rpwi_check_in_flight + n, __ATOMIC_RELAXED);
}

/* Finds the library of hooks, or says what is not watched. Once, before the first call. */
void check_freed_init(void);
/* A request is posted, or has filled memory, or was refused it: has its region lost the pages? The
 * lock is held. */
void check_freed_uses(struct check_qp *q, struct check_wr *w);
/* The peer has reached memory of that key, or tried; has it lost its pages? The lock is held. */
bool check_freed_reached(uint32_t qpn, uint32_t key, uint64_t addr, uint64_t len);

#endif
