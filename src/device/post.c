/* SPDX-License-Identifier: BSD-3-Clause */
/* post.c - the program posts work requests: under the HCA's lock as a rule, with its QP's alone
 * where that will do. The lists of ibv_wr_* are build.c's. */
#include "device/board.h"
#include "device/fault.h"
#include "device/progress.h"
#include "device/qp.h"
#include "device/tally.h"
#include "explain/verbs.h"

/* A list of ibv_wr_complete is posted whole or not at all (ibv_wr_post(3)). Before: where the QP
 * completes a request as it is posted, whether all are in order. */
__attribute__((cold, noinline)) static int all_in_order(
	const struct dqp *q, const struct ibv_send_wr *wr)
{
	int rc = 0;
	for (; wr && !rc; wr = wr->next) {
		const struct rpwi_av *av;
		rc = post_av(q, wr, &av);
		rc = rc ? rc : rpwi_qp_check_wr(&q->t, wr, av);
	}
	return rc;
}

/* After: of one of which `bad` was refused, nothing stays. None of it has left, and none is
 * complete. */
__attribute__((cold, noinline)) static void take_back(
	struct dqp *q, const struct ibv_send_wr *wr, const struct ibv_send_wr *bad)
{
	for (; wr != bad; wr = wr->next)
		q->t.sq_tail--;
}

static int post_list(struct dqp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int rc = 0;
	const struct ibv_send_wr *first = wr;
	if (RPWI_UNLIKELY(q->batch != NULL) && !rpwi_qp_keeps_posts(&q->t) && q->batch == wr &&
		(rc = all_in_order(q, wr))) {
		*bad = wr;
		errno = -rc;
		return rc;
	}
	for (; wr; wr = wr->next) {
		const struct rpwi_av *av;
		rc = post_av(q, wr, &av);
		if (RPWI_LIKELY(!rc))
			rc = RPWI_UNLIKELY(rpwi_plan_on) ? fault_post_send(q, wr, av)
							 : rpwi_qp_post_send(&q->t, wr, av);
		if (rc) {
			*bad = wr;
			errno = -rc;
			if (first == q->batch && rpwi_qp_keeps_posts(&q->t))
				take_back(q, first, wr);
			break;
		}
	}
	return rc;
}

/* With nothing but the QP's lock? Not where others than the QP and its CQ want to know. */
static bool may_post_alone(void)
{
	return qplock_is_split() && RPWI_LIKELY(!rpwi_explain_on && !rpwi_plan_on) &&
	       atomic_load_explicit(&hca_here.service_running, memory_order_relaxed);
}

/* Under the HCA's lock. The first WQE, a READ, waits for nothing, and it and those behind it may be
 * done without a packet. */
static bool may_read_alone(const struct dqp *q)
{
	return RPWI_LIKELY(!rpwi_explain_on && !rpwi_plan_on) && rpwi_qp_is_quiet(&q->t) &&
	       board_reaches(q);
}

static bool all_are_reads(const struct ibv_send_wr *wr)
{
	for (; wr; wr = wr->next)
		if (wr->opcode != IBV_WR_RDMA_READ)
			return false;
	return true;
}

enum alone { NOT_POSTED, NOT_DONE, DONE };
/* READs out of the peer's memory. NOT_POSTED: nothing was done; else *rc is as of post_list, and
 * NOT_DONE: progress has to go on with them. */
__attribute__((noinline)) static enum alone read_alone(
	struct dqp *q, struct ibv_send_wr *wr, struct ibv_send_wr **bad, int *rc)
{
	enum alone a = NOT_POSTED;
	if (!may_post_alone() || !all_are_reads(wr) || !tally_is_own(q))
		return a;
	rpwi_lock(q->lock);
	if (rpwi_qp_is_quiet(&q->t) && board_reaches(q)) {
		*rc = post_list(q, wr, bad);
		a = rpwi_qp_read_alone(&q->t) ? DONE : NOT_DONE;
	}
	rpwi_unlock(q->lock);
	/* as after any post; who makes progress does it, too */
	if (a == DONE && atomic_load_explicit(&hca_here.held_any, memory_order_relaxed) &&
		hca_try()) {
		send_held(rpwi_now_ns());
		hca_unlock();
	}
	return a;
}

int dev_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return rpwi_fork_refuse("ibv_post_send");
	struct dqp *q = to_dqp(ibv);
	int refused = rpwi_plan_call(RPWI_CALL_POST_SEND);
	if (RPWI_UNLIKELY(refused)) {
		*bad = wr;
		return rpwi_dev_told(refused);
	}
	int rc = 0;
	enum alone alone = NOT_POSTED;
	if (RPWI_UNLIKELY(qplock_is_split()) && (alone = read_alone(q, wr, bad, &rc)) == DONE)
		return -rc;
	hca_lock_serving();
	if (RPWI_UNLIKELY(qplock_here.poster != &rpwi_locks_mine))
		qplock_poster_changes();
	qp_hold(q);
	if (RPWI_UNLIKELY(rpwi_explain_on))
		rpwi_explain_post_send(&q->t, wr);
	bool reads =
		alone == NOT_POSTED && wr && wr->opcode == IBV_WR_RDMA_READ && may_read_alone(q);
	if (alone == NOT_POSTED)
		rc = post_list(q, wr, bad);
	/* At once; an ACK that is owed goes along. A QP that waits for the window needs no try. */
	if (!(reads && rpwi_qp_read_alone(&q->t)) && !send_gather(q) &&
		(rpwi_list_empty(&q->tx_link) || rpwi_qp_ack_owed(&q->t) ||
			!rpwi_qp_blocked(&q->t)))
		send_posted(q, rpwi_now_ns());
	if (!rpwi_list_empty(&hca_here.held))
		send_held(rpwi_now_ns());
	if (RPWI_UNLIKELY(rpwi_plan_on))
		fault_timer(rpwi_now_ns());
	hca_unlock();
	return -rc;
}

int dev_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return rpwi_fork_refuse("ibv_post_recv");
	struct dqp *q = to_dqp(ibv);
	int rc = 0, refused = rpwi_plan_call(RPWI_CALL_POST_RECV);
	if (RPWI_UNLIKELY(refused)) {
		*bad = wr;
		return rpwi_dev_told(refused);
	}
	bool alone = may_post_alone();
	if (alone) {
		rpwi_lock(q->lock);
	} else {
		hca_lock_serving();
		qp_hold(q);
	}
	if (RPWI_UNLIKELY(rpwi_explain_on))
		rpwi_explain_post_recv(&q->t, wr);
	if (q->t.state == IBV_QPS_RESET || q->srq)
		rc = -EINVAL;
	if (rc) {
		*bad = wr;
		errno = -rc;
	}
	for (; wr && !rc; wr = wr->next) {
		rc = RPWI_UNLIKELY(rpwi_plan_on) ? fault_post_recv(q, &q->rq, wr)
						 : rpwi_rq_post(&q->rq, wr);
		if (rc) {
			*bad = wr;
			errno = -rc;
		}
	}
	rpwi_qp_recv_posted(&q->t);
	if (alone)
		rpwi_unlock(q->lock);
	else
		hca_unlock();
	return -rc;
}

/* As rdma-core's provider for rxe checks before it posts. */
int dev_bind_mw(struct ibv_qp *ibv, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	const struct ibv_mw_bind_info *info = &bind->bind_info;
	if (mw->type != IBV_MW_TYPE_1 || info->mw_access_flags & IBV_ACCESS_ZERO_BASED ||
		(!info->mr && (info->addr || info->length)))
		return EINVAL;
	if (info->mr && to_dpd(info->mr->pd) != to_dpd(mw->pd))
		return EPERM;
	struct ibv_send_wr *bad, wr = {.wr_id = bind->wr_id,
					 .opcode = IBV_WR_BIND_MW,
					 .send_flags = bind->send_flags};
	wr.bind_mw.mw = mw;
	wr.bind_mw.bind_info = *info;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	int rc = dev_post_send(ibv, &wr, &bad);
	if (!rc)
		mw->rkey = wr.bind_mw.rkey;
	return rc;
}
