/* SPDX-License-Identifier: BSD-3-Clause */
/* comp_cntr.c - completion counters (rdma-core 65, ibv_create_comp_cntr(3)): how many operations of
 * a kind are complete, or how many bytes they moved, and how many ended with an error. One counter
 * may count for many QPs, each of which may be in a lock of its own, so both numbers are atomic.
 *
 * Every work request counts, signaled or not; those that are flushed count as errors. What a peer
 * asks for is not counted, and ibv_query_comp_cntr_caps says so: a long READ or WRITE may come as
 * several (rc/requester.c), or be done in this process's memory by the peer (board.c).
 */
#include "device/comp_cntr.h"

#include <errno.h>
#include <stdlib.h>

static struct dcounter *to_dcounter(const struct rpwi_comp_cntr *c)
{
	return RPWI_CONTAINER_OF((struct rpwi_comp_cntr *)(uintptr_t)c, struct dcounter, ibv);
}

void comp_cntr_count(struct rpwi_qp *t, enum rpwi_counted kind, uint32_t bytes, bool good)
{
	struct dcounter *c = dqp_of(t)->counters[__builtin_ctz(kind)];
	if (!good)
		atomic_fetch_add_explicit(&c->errors, 1, memory_order_release);
	else
		atomic_fetch_add_explicit(&c->count, c->of_bytes ? bytes : 1, memory_order_release);
}

void comp_cntr_qp_gone(struct dqp *q)
{
	for (unsigned i = 0; i < RPWI_COUNTED; i++)
		if (q->counters[i])
			q->counters[i]->refs--;
	q->t.counted = 0;
}

int rpwi_dev_query_comp_cntr_caps(const struct ibv_context *c, struct rpwi_comp_cntr_caps *caps)
{
	(void)c;
	if (!rpwi_like_has(RPWI_LIKE_OPTIONAL, RPWI_LIKE_COUNTERS))
		return EOPNOTSUPP;
	*caps = (struct rpwi_comp_cntr_caps){.max_value = UINT64_MAX,
		.max_counters = DEV_COUNTER_MAX,
		.supported_qp_attach_ops = RPWI_COUNT_ALL};
	return 0;
}

struct rpwi_comp_cntr *rpwi_dev_create_comp_cntr(struct ibv_context *ctx, bool of_bytes)
{
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return dev_refuse("ibv_create_comp_cntr");
	if (!rpwi_like_has(RPWI_LIKE_OPTIONAL, RPWI_LIKE_COUNTERS))
		return rpwi_none(EOPNOTSUPP);
	struct dcounter *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->ibv.context = ctx;
	c->of_bytes = of_bytes;
	hca_lock();
	int rc = live_add(&c->live, LIVE_COUNTER, &c->ibv, ++hca_here.made[LIVE_COUNTER]);
	hca_unlock();
	if (!rc)
		return &c->ibv;
	free(c);
	errno = -rc;
	return NULL;
}

int rpwi_dev_destroy_comp_cntr(struct rpwi_comp_cntr *ibv)
{
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return rpwi_fork_refuse("ibv_destroy_comp_cntr");
	struct dcounter *c = to_dcounter(ibv);
	hca_lock();
	int rc = live_may_go(LIVE_COUNTER, ibv, &c->refs);
	if (!rc)
		live_del(&c->live);
	hca_unlock();
	if (!rc)
		free(c);
	return rc;
}

/* One of its two numbers; NULL: it is no counter. */
static _Atomic uint64_t *number_of(const struct rpwi_comp_cntr *ibv, bool errors)
{
	struct dcounter *c = to_dcounter(ibv);
	hca_lock();
	bool is = live_is(LIVE_COUNTER, ibv);
	hca_unlock();
	if (!is)
		return NULL;
	return errors ? &c->errors : &c->count;
}

int rpwi_dev_set_comp_cntr(struct rpwi_comp_cntr *c, bool errors, uint64_t value)
{
	_Atomic uint64_t *n = number_of(c, errors);
	if (n)
		atomic_store_explicit(n, value, memory_order_release);
	return n ? 0 : ENOENT;
}

int rpwi_dev_inc_comp_cntr(struct rpwi_comp_cntr *c, bool errors, uint64_t amount)
{
	_Atomic uint64_t *n = number_of(c, errors);
	if (n)
		atomic_fetch_add_explicit(n, amount, memory_order_release);
	return n ? 0 : ENOENT;
}

int rpwi_dev_read_comp_cntr(const struct rpwi_comp_cntr *c, bool errors, uint64_t *value)
{
	const _Atomic uint64_t *n = number_of(c, errors);
	if (!value)
		return EFAULT;
	if (n)
		*value = atomic_load_explicit(n, memory_order_acquire);
	return n ? 0 : ENOENT;
}

/* The locks are held. */
static int attach(struct dqp *q, struct dcounter *c, uint32_t kinds)
{
	if (q->t.state != IBV_QPS_RESET && q->t.state != IBV_QPS_INIT)
		return EINVAL;
	for (unsigned i = 0; i < RPWI_COUNTED; i++)
		if (kinds >> i & 1 && q->counters[i])
			return EBUSY;
	for (unsigned i = 0; i < RPWI_COUNTED; i++)
		if (kinds >> i & 1) {
			q->counters[i] = c;
			c->refs++;
		}
	q->t.counted |= (uint8_t)kinds;
	return 0;
}

int rpwi_dev_qp_attach_comp_cntr(struct ibv_qp *ibv, struct rpwi_comp_cntr *cntr, uint32_t kinds)
{
	struct dqp *q = to_dqp(ibv);
	if (kinds & ~(uint32_t)RPWI_COUNT_ALL)
		return EOPNOTSUPP;
	hca_lock();
	int rc = live_is(LIVE_QP, ibv) && live_is(LIVE_COUNTER, cntr) ? 0 : ENOENT;
	if (!rc && (!kinds || cntr->context != ibv->context))
		rc = EINVAL;
	if (!rc) {
		qp_hold(q);
		rc = attach(q, to_dcounter(cntr), kinds);
	}
	hca_unlock();
	return rc;
}
