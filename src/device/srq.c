/* SPDX-License-Identifier: BSD-3-Clause */
/* srq.c - shared receive queues. */
#include <stdlib.h>

#include "check/queue.h"
#include "device/fault.h"
#include "device/hca.h"
#include "device/mem.h"
#include "device/qp.h"
#include "device/tally.h"

static struct dsrq *to_dsrq(struct ibv_srq *s) { return RPWI_CONTAINER_OF(s, struct dsrq, ibv); }

struct ibv_srq *rpwi_dev_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_attr *a = &attr->attr;
	if (rpwi_plan_refuses(RPWI_CALL_CREATE_SRQ))
		return NULL;
	if (!rpwi_like_most(RPWI_LIKE_MAX_SRQ))
		return rpwi_none(EOPNOTSUPP);
	if (rpwi_like_beyond(RPWI_LIKE_MAX_SRQ_WR, a->max_wr) ||
		rpwi_like_beyond(RPWI_LIKE_MAX_SRQ_SGE, a->max_sge) || !a->max_wr)
		return rpwi_none(EINVAL);
	struct dsrq *s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	a->max_sge = RPWI_MAX(a->max_sge, 1u);
	int rc = rpwi_rq_init(&s->rq, a->max_wr, a->max_sge, true);
	if (rc) {
		free(s);
		return rpwi_none(-rc);
	}
	s->ibv.srq_context = attr->srq_context;
	s->ibv.pd = pd;
	pthread_mutex_init(&s->ibv.mutex, NULL);
	pthread_cond_init(&s->ibv.cond, NULL);
	hca_lock();
	rc = pd_usable(pd);
	if (!rc) {
		s->ibv.context = pd->context;
		rc = live_add(&s->live, LIVE_SRQ, &s->ibv, hca_here.made[LIVE_SRQ] + 1);
	}
	if (!rc) {
		to_dpd(pd)->refs++;
		s->ordinal = ++hca_here.made[LIVE_SRQ];
		tally_one(pd->context, srqs, 1);
	}
	hca_unlock();
	if (!rc && RPWI_UNLIKELY(rpwi_check_on))
		check_srq_made(&s->ibv, a, s->rq.wr_max);
	if (!rc)
		return &s->ibv;
	rpwi_rq_fini(&s->rq);
	free(s);
	return rpwi_none(-rc);
}

struct ibv_srq *dev_create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *attr)
{
	RPWI_CHECK_HERE();
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return dev_refuse("ibv_create_srq_ex");
	if (((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type != IBV_SRQT_BASIC) ||
		!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD))
		return rpwi_none(EOPNOTSUPP);
	struct ibv_srq_init_attr plain = {.srq_context = attr->srq_context, .attr = attr->attr};
	struct ibv_srq *s = rpwi_dev_create_srq(attr->pd, &plain);
	attr->attr = plain.attr;
	return s;
}

static bool may_grow(uint32_t wr_max)
{
	return rpwi_like_has(RPWI_LIKE_DEVICE_CAP_FLAGS, IBV_DEVICE_SRQ_RESIZE) &&
	       !rpwi_like_beyond(RPWI_LIKE_MAX_SRQ_WR, wr_max);
}

int rpwi_dev_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask)
{
	struct dsrq *s = to_dsrq(ibv);
	int rc = rpwi_plan_call(RPWI_CALL_MODIFY_SRQ);
	if (rc)
		return rc;
	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return EINVAL;
	if (!hca_lock_live(LIVE_SRQ, ibv))
		return ENOENT;
	uint32_t wr_max = mask & IBV_SRQ_MAX_WR ? attr->max_wr : s->rq.wr_max;
	if ((mask & IBV_SRQ_MAX_WR) && (!attr->max_wr || !may_grow(attr->max_wr)))
		rc = -EINVAL;
	else if ((mask & IBV_SRQ_LIMIT) && attr->srq_limit > wr_max)
		rc = -EINVAL;
	else if (mask & IBV_SRQ_MAX_WR)
		rc = rpwi_rq_resize(&s->rq, attr->max_wr);
	if (!rc && (mask & IBV_SRQ_LIMIT))
		s->rq.limit = attr->srq_limit;
	hca_unlock();
	return -rc;
}

int rpwi_dev_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
	struct dsrq *s = to_dsrq(ibv);
	hca_lock();
	bool is_srq = live_is(LIVE_SRQ, ibv);
	if (is_srq)
		*attr = (struct ibv_srq_attr){
			.max_wr = s->rq.wr_max, .max_sge = s->rq.sge_max, .srq_limit = s->rq.limit};
	hca_unlock();
	return is_srq ? 0 : ENOENT;
}

int rpwi_dev_destroy_srq(struct ibv_srq *ibv)
{
	RPWI_WHOLE;
	struct dsrq *s = to_dsrq(ibv);
	hca_lock();
	int rc = live_may_go(LIVE_SRQ, ibv, &s->refs);
	if (rc) {
		hca_unlock();
		return rc;
	}
	to_dpd(ibv->pd)->refs--;
	tally_one(ibv->context, srqs, -1);
	live_del(&s->live);
	hca_unlock();
	if (RPWI_UNLIKELY(rpwi_check_on))
		check_srq_gone(ibv);
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->events_completed != s->events_got)
		pthread_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
	rpwi_rq_fini(&s->rq);
	free(s);
	return 0;
}

int dev_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return rpwi_fork_refuse("ibv_post_srq_recv");
	struct dsrq *s = to_dsrq(ibv);
	int rc = rpwi_plan_call(RPWI_CALL_POST_SRQ_RECV);
	if (RPWI_UNLIKELY(rc)) {
		*bad = wr;
		return rpwi_dev_told(rc);
	}
	rpwi_lock(RPWI_LOCK_HCA);
	for (; wr; wr = wr->next) {
		rc = RPWI_UNLIKELY(rpwi_plan_on) ? fault_post_recv(NULL, &s->rq, wr)
						 : rpwi_rq_post(&s->rq, wr);
		if (rc) {
			*bad = wr;
			errno = -rc;
			break;
		}
	}
	hca_unlock();
	return -rc;
}
