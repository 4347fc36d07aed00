/* SPDX-License-Identifier: BSD-3-Clause */
/* life.c - see queue.h: a QP's requests are over, with it or without it. */
#include "check/forked.h"
#include "check/happened.h"

#include <stdlib.h>

static void over(struct check_qp *q, bool destroyed)
{
	check_late_ends(q);
	check_order_ends(q);
	if (destroyed && RPWI_UNLIKELY(q->inherited))
		check_child_uses(q, &q->made, "ibv_destroy_qp");
	else
		check_unread(q);
	if (!destroyed)
		check_drops(q);
	check_queues_drop(q);
	check_over(q, destroyed ? "destroyed its QP" : "reset its QP");
}

/* Takes it out of the table: before the device frees it. */
void check_qp_gone(const struct ibv_qp *qp)
{
	if (!rpwi_check_lock())
		return;
	struct check_qp *q = check_qp_find(qp);
	if (q) {
		over(q, true);
		check_qp_take_out(q);
	}
	rpwi_check_unlock();
	if (!q)
		return;
	pthread_mutex_destroy(&q->posting);
	check_queue_fini(&q->sq);
	check_queue_fini(&q->rq);
	free(q);
}

void check_qp_reset(const struct ibv_qp *qp)
{
	if (!rpwi_check_lock())
		return;
	struct check_qp *q = check_qp_find(qp);
	if (q) {
		over(q, false);
		q->failed = 0;
		q->posts_since = 0;
	}
	rpwi_check_unlock();
}

void check_cq_gone(const struct ibv_cq *cq)
{
	if (!rpwi_check_lock())
		return;
	struct check_cq *c = check_cq_find(cq);
	if (c) {
		check_cq_waited(c);
		check_cq_take_out(c);
	}
	rpwi_check_unlock();
	free(c);
}
