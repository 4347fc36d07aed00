/* SPDX-License-Identifier: BSD-3-Clause */
/* cq.h - what those who put completions into a CQ and those who take them out share: its lock.
 * Private to cq.c and poll.c. */
#ifndef ROPEWAY_DEVICE_CQ_H
#define ROPEWAY_DEVICE_CQ_H

#include <sched.h>

#include "device/hca.h"

static inline void cq_lock(struct dcq *cq)
{
	rpwi_lock_enter(RPWI_LOCK_CQ);
	for (unsigned spins = 0; atomic_exchange_explicit(&cq->spin, hca_here.generation,
					 memory_order_acquire) == hca_here.generation;
		spins++)
		if (spins > 100)
			sched_yield();
}

static inline void cq_unlock(struct dcq *cq)
{
	atomic_store_explicit(&cq->spin, 0, memory_order_release);
	rpwi_lock_leave(RPWI_LOCK_CQ);
}

/* NULL and errno, as the verb. */
struct dcq *cq_new(struct ibv_context *c, int cqe, void *cq_context, struct ibv_comp_channel *ch,
	int comp_vector);

#endif
