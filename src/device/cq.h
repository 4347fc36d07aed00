/* SPDX-License-Identifier: BSD-3-Clause */
/* cq.h - completion queues: the lock of a ring, putting completions in, and taking them out.
 * Private to device/. */
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

/* poll.c */
int dev_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int dev_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *dev_create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *attr);

/* cq.c */
/* the lock is held, or that of a QP of it */
void cq_push(struct dcq *cq, const struct ibv_wc *wc, bool solicited);
/* Events that wait (ibv_modify_cq): when the first is due, or RPWI_NEVER; and saying those that
 * are, with the HCA's lock held. */
uint64_t cq_event_deadline(void);
void cq_event_timer(uint64_t now_ns);
int dev_modify_cq(struct ibv_cq *ibv, struct ibv_modify_cq_attr *attr);
void cq_purge_qp(struct dcq *cq, uint32_t qpn);
/* NULL and errno, as the verb. */
struct dcq *cq_new(struct ibv_context *c, int cqe, void *cq_context, struct ibv_comp_channel *ch,
	int comp_vector);

#endif
