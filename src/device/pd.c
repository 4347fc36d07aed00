/* SPDX-License-Identifier: BSD-3-Clause */
/* pd.c - protection domains, thread and parent domains; PDs and MRs that another context of the
 * same group has made, by their handles (ibv_import_pd(3), ibv_import_mr(3)).
 *
 * As with the kernel, a PD may be deallocated while an import of it exists: then nothing can be
 * made in it any more.
 */
#include <stdlib.h>

#include "check/check.h"
#include "device/hca.h"
#include "device/mem.h"
#include "device/tally.h"
#include "fault/fault.h"

/* Deallocated: false if imports of it still need its memory, which the last one frees. */
static bool pd_unlisted(struct dpd *pd)
{
	live_del(&pd->live);
	if (pd->parent)
		return true;
	pd->dead = pd->imports;
	return !pd->dead;
}

struct ibv_pd *rpwi_dev_alloc_pd(struct ibv_context *c)
{
	if (rpwi_plan_refuses(RPWI_CALL_ALLOC_PD))
		return NULL;
	struct dpd *pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	pd->ibv.context = c;
	pd->group = to_dctx(c)->group;
	hca_lock();
	pd->id = ++hca_here.made[LIVE_PD];
	int rc = live_add(&pd->live, LIVE_PD, &pd->ibv, pd->id);
	if (!rc)
		tally_one(c, pds, 1);
	hca_unlock();
	if (!rc)
		return &pd->ibv;
	free(pd);
	return rpwi_none(-rc);
}

int rpwi_dev_dealloc_pd(struct ibv_pd *ibv)
{
	struct dpd *pd = RPWI_CONTAINER_OF(ibv, struct dpd, ibv);
	if (!hca_lock_live(LIVE_PD, ibv))
		return ENOENT;
	if (pd->refs) {
		if (RPWI_UNLIKELY(rpwi_check_on))
			live_tell_busy(LIVE_PD, ibv);
		hca_unlock();
		return EBUSY;
	}
	if (pd->imported) {
		hca_unlock();
		rpwi_warn(
			"ibv_dealloc_pd of an imported PD: its context's owner deallocates it; use "
			"ibv_unimport_pd here");
		return EINVAL;
	}
	tally_one(ibv->context, pds, -1);
	if (pd->parent)
		pd->parent->refs--;
	bool frees = pd_unlisted(pd);
	hca_unlock();
	if (frees)
		free(pd);
	return 0;
}

/* Thread and parent domains are hints about locking; ours locks anyway. */
struct ibv_td *dev_alloc_td(struct ibv_context *c, struct ibv_td_init_attr *attr)
{
	if (!rpwi_like_has(RPWI_LIKE_OPTIONAL, RPWI_LIKE_DOMAINS))
		return rpwi_none(EOPNOTSUPP);
	if (attr->comp_mask)
		return rpwi_none(EINVAL);
	struct ibv_td *td = calloc(1, sizeof(*td));
	if (td)
		td->context = c;
	return td;
}

int dev_dealloc_td(struct ibv_td *td)
{
	free(td);
	return 0;
}

struct ibv_pd *dev_alloc_parent_domain(
	struct ibv_context *c, struct ibv_parent_domain_init_attr *attr)
{
	RPWI_CHECK_HERE();
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return dev_refuse("ibv_alloc_parent_domain");
	if (!rpwi_like_has(RPWI_LIKE_OPTIONAL, RPWI_LIKE_DOMAINS))
		return rpwi_none(EOPNOTSUPP);
	if (!attr->pd || (attr->comp_mask & ~(uint32_t)(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
							IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)))
		return rpwi_none(attr->pd ? EOPNOTSUPP : EINVAL);
	struct ibv_pd *ibv = rpwi_dev_alloc_pd(c);
	if (!ibv)
		return NULL;
	hca_lock();
	bool is_pd = live_is(LIVE_PD, attr->pd);
	struct dpd *pd = RPWI_CONTAINER_OF(ibv, struct dpd, ibv);
	if (is_pd) {
		pd->parent = to_dpd(attr->pd);
		pd->parent->refs++;
	}
	hca_unlock();
	if (is_pd)
		return ibv;
	rpwi_dev_dealloc_pd(ibv);
	return rpwi_none(ENOENT);
}

/* ---- imported PDs ---- */

struct ibv_pd *rpwi_dev_import_pd(struct ibv_context *c, uint32_t handle)
{
	struct dpd *pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	pd->imported = true;
	pd->ibv.context = c;
	struct rpwi_list *all = live_all(LIVE_PD);
	int rc = -ENOENT;
	hca_lock();
	for (struct rpwi_list *at = all->next; at != all; at = at->next) {
		struct dpd *p = RPWI_CONTAINER_OF(at, struct dpd, live.link);
		if (!p->parent && p->id == handle && p->group == to_dctx(c)->group)
			pd->parent = p;
	}
	if (pd->parent)
		rc = live_add(&pd->live, LIVE_PD, &pd->ibv, handle);
	if (!rc)
		pd->parent->imports++;
	hca_unlock();
	if (!rc)
		return &pd->ibv;
	free(pd);
	return rpwi_none(-rc);
}

void rpwi_dev_unimport_pd(struct ibv_pd *ibv)
{
	struct dpd *pd = RPWI_CONTAINER_OF(ibv, struct dpd, ibv);
	hca_lock();
	if (!live_is(LIVE_PD, ibv) || !pd->imported) {
		hca_unlock();
		return;
	}
	live_del(&pd->live);
	struct dpd *of = pd->parent;
	bool last = !--of->imports && of->dead;
	hca_unlock();
	if (last)
		free(of);
	free(pd);
}

/* ---- imported MRs ---- */

struct ibv_mr *rpwi_dev_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct dmr *mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	mr->imported = true;
	int rc = -ENOENT;
	hca_lock();
	const struct dkey *k = handle >> 24 ? NULL : mr_place(handle << 8);
	bool found = live_is(LIVE_PD, pd) && k && !k->is_mw && k->key >> 8 == handle &&
		     k->pd->group == to_dctx(pd->context)->group;
	if (found) {
		const struct ibv_mr *of = &RPWI_CONTAINER_OF(k, struct dmr, k)->ibv;
		/* the address is not told (ibv_import_mr(3)) */
		mr->ibv = (struct ibv_mr){.context = pd->context,
			.pd = pd,
			.length = of->length,
			.lkey = of->lkey,
			.rkey = of->rkey};
		rc = live_add(&mr->live, LIVE_MR, &mr->ibv, handle);
	}
	hca_unlock();
	if (!rc)
		return &mr->ibv;
	free(mr);
	return rpwi_none(-rc);
}

void rpwi_dev_unimport_mr(struct ibv_mr *ibv)
{
	struct dmr *mr = RPWI_CONTAINER_OF(ibv, struct dmr, ibv);
	hca_lock();
	bool goes = live_is(LIVE_MR, ibv) && mr->imported;
	if (goes)
		live_del(&mr->live);
	hca_unlock();
	if (goes)
		free(mr);
}
