/* SPDX-License-Identifier: BSD-3-Clause */
/* mem.h - memory: protection domains, regions, windows. Private to device/. */
#ifndef ROPEWAY_DEVICE_MEM_H
#define ROPEWAY_DEVICE_MEM_H

#include "device/hca.h"

/* May something be made in it? 0 or -errno. The lock is held. */
static inline int pd_usable(const struct ibv_pd *pd)
{
	if (!live_is(LIVE_PD, pd))
		return -ENOENT;
	return to_dpd(pd)->dead ? -EINVAL : 0;
}

/* mr.c; the lock is held for all but the verbs, but where a key is looked up a QP's will do; where
 * one is changed, all of them are held */
struct dkey *mr_find(uint32_t key);
int mem_check(
	struct rpwi_qp *qp, uint32_t key, uint64_t addr, uint64_t len, int access, bool remote);
int mem_write(struct rpwi_qp *qp, uint32_t key, uint64_t addr, const void *src, uint32_t len,
	bool remote);
/* into a receive of the QP's SRQ */
int mem_receive(struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, const void *src, uint32_t len);
int mem_read(struct rpwi_qp *qp, uint32_t key, uint64_t addr, void *dst, uint32_t len, bool remote);
const void *mem_map(struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, uint32_t len);
void *mem_sink(struct rpwi_qp *qp, uint32_t key, uint64_t addr, uint32_t len, bool remote);
int mem_atomic(struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, bool cmp_swap, uint64_t compare,
	uint64_t swap_add, uint64_t *orig);
int mem_atomic_write(struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, const void *value);
struct dkey *mr_place(
	uint32_t key);          /* what lies where this key would: of another tag, or another */
int mr_key_add(struct dkey *k); /* a new key of chance. 0 or -ENOMEM */
void mr_key_del(struct dkey *k);

/* mw.c; the lock is held for mem_* and mw_qp_gone */
int mem_invalidate(struct rpwi_qp *qp, uint32_t key, bool remote);
int mem_bind_mw(struct rpwi_qp *qp, const struct rpwi_bind *b);
void mw_qp_gone(struct dqp *q);
struct ibv_mr *dev_alloc_null_mr(struct ibv_pd *pd);
struct ibv_mw *dev_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int dev_dealloc_mw(struct ibv_mw *mw);

/* pd.c */
struct ibv_td *dev_alloc_td(struct ibv_context *c, struct ibv_td_init_attr *attr);
int dev_dealloc_td(struct ibv_td *td);
struct ibv_pd *dev_alloc_parent_domain(
	struct ibv_context *c, struct ibv_parent_domain_init_attr *attr);

/* advise.c */
int dev_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
	struct ibv_sge *sges, uint32_t n);

#endif
