/* SPDX-License-Identifier: BSD-3-Clause */
/* mw.c - memory windows, type 1 and type 2B (IB 10.6.7): a key over a part of a region. Work
 * requests name them by key, so one that waits in a queue while its window is freed finds nothing
 * and fails. The lock is held in all but the verbs. */
#include <stdlib.h>

#include "check/check.h"
#include "check/keys.h"
#include "device/hca.h"
#include "device/mem.h"
#include "fault/fault.h"

enum {
	WINDOW_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_OPTIONAL_RANGE
};

struct ibv_mw *dev_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	RPWI_CHECK_HERE();
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return dev_refuse("ibv_alloc_mw");
	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		return rpwi_none(EINVAL);
	uint64_t needs =
		type == IBV_MW_TYPE_1 ? IBV_DEVICE_MEM_WINDOW : IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	if (!rpwi_like_has(RPWI_LIKE_DEVICE_CAP_FLAGS, needs))
		return rpwi_none(EOPNOTSUPP);
	if (rpwi_plan_refuses(RPWI_CALL_ALLOC_MW))
		return NULL;
	struct dmw *mw = calloc(1, sizeof(*mw));
	if (!mw)
		return NULL;
	mw->ibv = (struct ibv_mw){.context = pd->context, .pd = pd, .type = type};
	hca_lock();
	int rc = pd_usable(pd);
	if (!rc) {
		mw->k = (struct dkey){.is_mw = true, .pd = to_dpd(pd)};
		rc = mr_key_add(&mw->k);
	}
	if (!rc) {
		rc = live_add(&mw->live, LIVE_MW, &mw->ibv, mw->k.key >> 8);
		if (rc)
			mr_key_del(&mw->k);
	}
	if (!rc) {
		mw->ibv.rkey = mw->k.key;
		mw->k.pd->refs++;
	}
	hca_unlock();
	if (!rc)
		return &mw->ibv;
	free(mw);
	return rpwi_none(-rc);
}

static void unbind(struct dkey *k)
{
	qplock_take_all();
	struct dqp *q = k->qpn ? qp_lookup(k->qpn) : NULL;
	if (q)
		q->windows--;
	if (k->mr)
		k->mr->refs--;
	k->mr = NULL;
	k->valid = false;
	k->qpn = 0;
}

int dev_dealloc_mw(struct ibv_mw *ibv)
{
	RPWI_CHECK_HERE();
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return rpwi_fork_refuse("ibv_dealloc_mw");
	struct dmw *mw = RPWI_CONTAINER_OF(ibv, struct dmw, ibv);
	if (!hca_lock_live(LIVE_MW, ibv))
		return ENOENT;
	live_del(&mw->live);
	if (RPWI_UNLIKELY(rpwi_check_on))
		check_window_gone(mw->k.key, &rpwi_check_site);
	unbind(&mw->k);
	mr_key_del(&mw->k);
	mw->k.pd->refs--;
	hca_unlock();
	free(mw);
	return 0;
}

/* o10-37.2.37: a window bound to a QP is invalid when the QP is no more; its number may be
 * another's later. */
void mw_qp_gone(struct dqp *q)
{
	for (uint32_t i = 0; q->windows && i < hca_here.keys_cap; i++) {
		struct dkey *k = hca_here.keys[i];
		if (k && k->is_mw && k->qpn == q->t.qpn)
			unbind(k);
	}
}

/* The window that `key` leads to, whatever its tag is by now. */
static struct dmw *window_at(uint32_t key)
{
	struct dkey *k = mr_place(key);
	return k && k->is_mw && k->key >> 8 == key >> 8 ? RPWI_CONTAINER_OF(k, struct dmw, k)
							: NULL;
}

/* IB 10.6.7.2.2: the window must lie in a region with MW_BIND of the same PD (C10-73, C10-75);
 * remote write or atomic needs the region's local write (C10-74). */
static int bind_to_region(struct dmw *mw, struct dqp *q, const struct rpwi_bind *b)
{
	struct dkey *mr = mr_find(b->mr_key);
	bool changes = b->access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	if (!mr || mr->is_mw || mr->is_null || mr->pd != q->pd ||
		!(mr->access & IBV_ACCESS_MW_BIND) ||
		(changes && !(mr->access & IBV_ACCESS_LOCAL_WRITE)) || b->addr < mr->iova ||
		b->length > mr->length || b->addr - mr->iova > mr->length - b->length)
		return -EACCES;
	unbind(&mw->k);
	mw->k.mr = mr;
	mr->refs++;
	mw->k.addr = (uint8_t *)((uintptr_t)mr->addr + (b->addr - mr->iova));
	mw->k.iova = b->access & IBV_ACCESS_ZERO_BASED ? 0 : b->addr;
	mw->k.length = b->length;
	mw->k.access = (int)b->access;
	mw->k.valid = true;
	if (mw->ibv.type == IBV_MW_TYPE_2) {
		mw->k.qpn = q->t.qpn;
		q->windows++;
	}
	return 0;
}

int mem_bind_mw(struct rpwi_qp *qp, const struct rpwi_bind *b)
{
	struct dqp *q = dqp_of(qp);
	struct dmw *mw = window_at(b->mw_key);
	if (!mw || b->access & ~(unsigned)WINDOW_ACCESS)
		return -EINVAL;
	if (mw->k.pd != q->pd) /* C10-72 */
		return -EACCES;
	if (mw->ibv.type == IBV_MW_TYPE_2 && (mw->k.valid || !b->length))
		return -EINVAL; /* o10-37.2.30: invalidate it first; o10-37.2.40 */
	if (mw->ibv.type == IBV_MW_TYPE_1 && b->access & IBV_ACCESS_ZERO_BASED)
		return -EINVAL; /* o10-36.2.2 */
	if (b->length) {
		int rc = bind_to_region(mw, q, b);
		if (rc)
			return rc;
	} else {
		unbind(&mw->k);
	}
	/* Type 2: the consumer chooses the key's tag, its lowest 8 bits, and nothing else of it (IB
	 * 10.6.7.2.4); type 1: a new one at each bind, which ibv_bind_mw has put in. */
	mw->k.key = (mw->k.key & ~0xffu) | (b->new_key & 0xff);
	/* The program's struct has it, as with irdma; of type 1 it has had it since the post. */
	if (mw->ibv.type == IBV_MW_TYPE_2)
		mw->ibv.rkey = mw->k.key;
	return 0;
}

/* o10-37.2.26: type 1 is unbound by binding it to nothing, never invalidated. */
int mem_invalidate(struct rpwi_qp *qp, uint32_t key, bool remote)
{
	struct dkey *k = mr_find(key);
	if (!k || !k->is_mw || !k->valid || k->pd != dqp_of(qp)->pd || k->qpn != qp->qpn)
		return -EACCES;
	unbind(k);
	return 0;
}
