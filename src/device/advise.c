/* SPDX-License-Identifier: BSD-3-Clause */
/* advise.c - ibv_advise_mr: page in what the device will touch soon. No region is pinned, so a
 * prefetch is what the kernel's madvise(2) does. Errors as kernel rxe gives them (rxe_odp.c); of
 * regions that were not registered on demand: EINVAL, as from NICs. */
#include <sys/mman.h>
#include <unistd.h>

#include "base/guard.h"
#include "device/hca.h"
#include "device/mem.h"

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

struct range {
	uint8_t *at;
	size_t len;
};

/* The memory of one SGE: 0 or an errno. The lock is held. */
static int find_range(struct ibv_pd *pd, enum ibv_advise_mr_advice advice,
	const struct ibv_sge *sge, struct range *r)
{
	const struct dkey *k = mr_find(sge->lkey);
	if (!k || k->is_mw || k->is_null || !k->valid || k->pd != to_dpd(pd) ||
		!(k->access & IBV_ACCESS_ON_DEMAND))
		return EINVAL;
	if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE && !(k->access & IBV_ACCESS_LOCAL_WRITE))
		return EPERM;
	if (sge->addr < k->iova || sge->length > k->length ||
		sge->addr - k->iova > k->length - sge->length)
		return EFAULT;
	*r = (struct range){(uint8_t *)((uintptr_t)k->addr + (sge->addr - k->iova)), sge->length};
	return 0;
}

/* Kernels before 5.14: each page is read once. */
static int touch(const struct range *r, size_t page)
{
	uint8_t byte;
	for (size_t off = 0; off < r->len; off += page)
		if (rpwi_guard_copy(&byte, r->at + off, 1))
			return EFAULT;
	return rpwi_guard_copy(&byte, r->at + r->len - 1, 1) ? EFAULT : 0;
}

/* 0 or EFAULT; errors count only where the caller waits for the pages. */
static int page_in(const struct range *r, enum ibv_advise_mr_advice advice, bool wait)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)r->at & ~(page - 1), to = (uintptr_t)r->at + r->len;
	int how = MADV_WILLNEED;
	if (wait && advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE)
		how = MADV_POPULATE_WRITE;
	else if (wait)
		how = MADV_POPULATE_READ;
	if (!madvise((void *)from, to - from, how) || !wait)
		return 0;
	return errno == EINVAL ? touch(r, page) : EFAULT;
}

int dev_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
	struct ibv_sge *sges, uint32_t n)
{
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return rpwi_fork_refuse("ibv_advise_mr");
	if (!rpwi_like_has(RPWI_LIKE_ODP_GENERAL, IBV_ODP_SUPPORT))
		return EOPNOTSUPP;
	if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH &&
		advice != IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
		advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return EOPNOTSUPP;
	if (!n || !sges || flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH)
		return EINVAL;
	for (uint32_t i = 0; i < n; i++) {
		struct range r = {0};
		hca_lock();
		int rc = find_range(pd, advice, &sges[i], &r);
		hca_unlock();
		/* NO_FAULT asks for pages that are there already: nothing is to be done. */
		if (!rc && r.len && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
			rc = page_in(&r, advice, flags & IBV_ADVISE_MR_FLAG_FLUSH);
		if (rc)
			return rc;
	}
	return 0;
}
