/* SPDX-License-Identifier: BSD-3-Clause */
/* mr.c - memory regions: the key table, and every access that the transport makes to the program's
 * memory. Nothing is pinned: a copy into memory that the program has unmapped is an error of that
 * request (base/guard.h), never a crash. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/guard.h"
#include "base/mapped.h"
#include "check/keys.h"
#include "check/queue.h"
#include "device/board.h"
#include "device/hca.h"
#include "device/mem.h"
#include "device/tally.h"
#include "fault/fault.h"

enum {
	REMOTE_ACCESS = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	/* ON_DEMAND: nothing is pinned in any case */
	KNOWN_ACCESS = IBV_ACCESS_LOCAL_WRITE | REMOTE_ACCESS | IBV_ACCESS_MW_BIND |
		       IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB | IBV_ACCESS_ON_DEMAND |
		       IBV_ACCESS_OPTIONAL_RANGE
};

/* ---- the key table; the lock is held ---- */

/* A key is 32 bits of the kernel's chance, drawn again until its place in the table is free: the
 * place is the key's own bits from 8 up, as many as the table needs. So no key tells anything of
 * another, and to look one up is one load and one comparison. The lowest 8 bits are a window's
 * owner's to change (IB 10.6.7.2). The highest digit is not 0, so that keys are of one length
 * wherever they are printed. */
static uint32_t place_of(uint32_t key, uint32_t cap) { return key >> 8 & (cap - 1); }

struct dkey *mr_find(uint32_t key)
{
	if (RPWI_UNLIKELY(!hca_here.keys_cap))
		return NULL;
	struct dkey *k = hca_here.keys[place_of(key, hca_here.keys_cap)];
	return k && k->key == key ? k : NULL;
}

struct dkey *mr_place(uint32_t key)
{
	return hca_here.keys_cap ? hca_here.keys[place_of(key, hca_here.keys_cap)] : NULL;
}

/* Two keys in different places of a table are so in one of twice the size. */
static int keys_grow(struct hca *h)
{
	uint32_t cap = h->keys_cap ? h->keys_cap * 2 : 64;
	struct dkey **t = calloc(cap, sizeof(struct dkey *));
	if (!t)
		return -ENOMEM;
	qplock_take_all();
	for (uint32_t i = 0; i < h->keys_cap; i++)
		if (h->keys[i])
			t[place_of(h->keys[i]->key, cap)] = h->keys[i];
	free(h->keys);
	h->keys = t;
	h->keys_cap = cap;
	return 0;
}

/* Into its place, which is free. */
static void key_put(struct dkey *k)
{
	hca_here.keys[place_of(k->key, hca_here.keys_cap)] = k;
	hca_here.keys_used++;
	board_key_add(k);
}

int mr_key_add(struct dkey *k)
{
	struct hca *h = &hca_here;
	if (h->keys_used >= DEV_KEYS_MAX)
		return -ENOMEM;
	if (h->keys_used >= h->keys_cap / 2) {
		int rc = keys_grow(h);
		if (rc)
			return rc;
	}
	qplock_take_all();
	do
		k->key = (uint32_t)rpwi_random64();
	/* every second one, at worst, is taken */
	while (!(k->key >> 28) || h->keys[place_of(k->key, h->keys_cap)]);
	key_put(k);
	return 0;
}

/* When it returns, nobody writes into the region or reads it who found it by that key. */
void mr_key_del(struct dkey *k)
{
	qplock_take_all();
	hca_here.keys[place_of(k->key, hca_here.keys_cap)] = NULL;
	hca_here.keys_used--;
	board_key_del(k);
	rpwi_lanes_revoke_memory(hca_here.lanes, k->addr, k->length);
}

/* ---- regions ---- */

static bool access_sane(int access)
{
	return !(access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) ||
	       (access & IBV_ACCESS_LOCAL_WRITE);
}

/* What of it programs may ask for. */
static int known_access(void)
{
	int known = KNOWN_ACCESS;
	if (!rpwi_like_has(RPWI_LIKE_ODP_GENERAL, IBV_ODP_SUPPORT))
		known &= ~IBV_ACCESS_ON_DEMAND;
	if (!rpwi_like_has(RPWI_LIKE_OPTIONAL, RPWI_LIKE_ZERO_BASED))
		known &= ~IBV_ACCESS_ZERO_BASED;
	return known;
}

static bool is_too_long(size_t len) { return rpwi_like_beyond(RPWI_LIKE_MAX_MR_SIZE, len); }

/* All memory that this process has or will have ("implicit ODP", ibv_reg_mr(3)); a page not mapped
 * when an access comes is an error of that access, as with every region. */
static bool is_implicit(const void *addr, size_t len) { return !addr && len == SIZE_MAX; }

/* A kernel pins all of it (ib_umem_get), and gives EFAULT where it cannot. Nothing is pinned here,
 * and no page is touched: mappings are looked up. 0, or an errno. */
static int memory_refused(const void *addr, size_t len, int access)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)addr & -page,
		  end = ((uintptr_t)addr + len + page - 1) & -page;
	if (end < from || !len || is_too_long(len)) /* wraps, or has no page (ib_umem_get) */
		return EINVAL;
	return rpwi_mapped(addr, len, access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND))
		       ? 0
		       : EFAULT;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, int access);

struct ibv_mr *rpwi_dev_reg_mr(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, int access)
{
	bool asked = access_sane(access) && !(access & (~KNOWN_ACCESS | IBV_ACCESS_ON_DEMAND));
	int refused = asked ? memory_refused(addr, len, access) : 0;
	if (refused)
		return rpwi_none(refused);
	return rpwi_plan_refuses(RPWI_CALL_REG_MR) ? NULL : reg_mr(pd, addr, len, iova, access);
}

/* In its PD, with a key: 0 or -errno. The lock is not held. */
static int mr_new(struct dmr *mr)
{
	struct ibv_pd *pd = mr->ibv.pd;
	hca_lock();
	int rc = pd_usable(pd);
	if (rc)
		goto out;
	mr->ibv.context = pd->context;
	mr->k.pd = to_dpd(pd);
	rc = mr_key_add(&mr->k);
	if (rc)
		goto out;
	rc = live_add(&mr->live, LIVE_MR, &mr->ibv, mr->k.key >> 8);
	if (rc) {
		mr_key_del(&mr->k);
		goto out;
	}
	mr->ibv.lkey = mr->k.key;
	mr->k.pd->refs++;
	tally_one(pd->context, mrs, 1);
out:
	hca_unlock();
	if (!rc && RPWI_UNLIKELY(rpwi_check_on))
		check_mr_made(&mr->ibv, mr->k.addr, mr->k.iova, mr->k.access);
	return rc;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, int access)
{
	int unknown = access & ~known_access();
	bool implicit = is_implicit(addr, len);
	if (implicit && !rpwi_like_has(RPWI_LIKE_ODP_GENERAL, IBV_ODP_SUPPORT_IMPLICIT))
		unknown |= IBV_ACCESS_ON_DEMAND;
	if (!access_sane(access) || unknown || (uintptr_t)addr + len < (uintptr_t)addr ||
		iova + len < iova || (!implicit && is_too_long(len)) ||
		(implicit && !(access & IBV_ACCESS_ON_DEMAND)))
		return rpwi_none(unknown ? EOPNOTSUPP : EINVAL);
	struct dmr *mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	if (access & IBV_ACCESS_ZERO_BASED)
		iova = 0;
	mr->k = (struct dkey){
		.valid = true, .access = access, .iova = iova, .length = len, .addr = addr};
	mr->ibv = (struct ibv_mr){.pd = pd, .addr = addr, .length = len};
	int rc = mr_new(mr);
	if (rc) {
		free(mr);
		return rpwi_none(-rc);
	}
	mr->ibv.rkey = mr->k.key;
	return &mr->ibv;
}

/* What the processor can map, the software device reaches: memory of memfd, udmabuf, a dma-buf
 * heap, a driver whose exporter knows mmap. A GPU's does not, and that is said as a device says it
 * that cannot do dma-buf. So is -1: with it NCCL, UCX and libfabric ask whether a device takes what
 * a GPU exports, and a program that gets EBADF (which a kernel's device with dma-buf says) gives it
 * the GPU's memory where the topology allows, and ends when that is refused. The mapping keeps the
 * buffer alive, as a NIC's attachment does: the descriptor may be closed. */
static void *dmabuf_map(uint64_t offset, size_t len, int fd, int access, size_t *lead)
{
	struct stat file;
	*lead = offset % (uint64_t)sysconf(_SC_PAGESIZE);
	if (fd == -1)
		return rpwi_none(EOPNOTSUPP);
	if (fstat(fd, &file))
		return NULL;
	if (!len || len > (uint64_t)file.st_size || offset > (uint64_t)file.st_size - len)
		return rpwi_none(EINVAL);
	int prot = PROT_READ | (access & IBV_ACCESS_LOCAL_WRITE ? PROT_WRITE : 0);
	uint8_t *map = mmap(NULL, len + *lead, prot, MAP_SHARED, fd, (off_t)(offset - *lead));
	if (map == MAP_FAILED)
		return rpwi_none(errno == ENOMEM || errno == EACCES ? errno : EOPNOTSUPP);
	return map;
}

struct ibv_mr *rpwi_dev_reg_dmabuf_mr(
	struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova, int fd, int access)
{
	size_t lead;
	/* before the buffer is looked at: what a device without the feature says can be scripted,
	 * too */
	if (rpwi_plan_refuses(RPWI_CALL_REG_MR))
		return NULL;
	uint8_t *map = dmabuf_map(offset, len, fd, access, &lead);
	struct ibv_mr *ibv = map ? reg_mr(pd, map + lead, len, iova, access) : NULL;
	if (!ibv) {
		int error = errno;
		if (map)
			munmap(map, len + lead);
		return rpwi_none(error);
	}
	struct dmr *mr = RPWI_CONTAINER_OF(ibv, struct dmr, ibv);
	mr->map = map;
	mr->map_len = len + lead;
	ibv->addr = (void *)(uintptr_t)offset; /* as libibverbs has it */
	return ibv;
}

/* A null MR and a dma-buf have no addresses of the program's, an imported MR is another's
 * (libibverbs: mr_type). */
static bool is_plain(const struct dmr *mr) { return !mr->map && !mr->k.is_null && !mr->imported; }

/* What libibverbs itself refuses: an errno, or 0. */
static int rereg_input(const struct dmr *mr, int flags, const void *addr, size_t len, int access)
{
	if (!is_plain(mr) ||
		flags & ~(IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD |
				IBV_REREG_MR_CHANGE_ACCESS) ||
		(flags & IBV_REREG_MR_CHANGE_TRANSLATION && (!len || !addr)) ||
		(access && !(flags & IBV_REREG_MR_CHANGE_ACCESS)))
		return EINVAL;
	return 0;
}

/* What the kernel refuses, of the command. The lock is held. */
static int rereg_command(const struct dmr *mr, int flags, const struct ibv_pd *pd, const void *addr,
	size_t len, int access)
{
	if (!rpwi_like_has(RPWI_LIKE_OPTIONAL, RPWI_LIKE_REREG_MR))
		return EOPNOTSUPP;
	if (!flags || (flags & IBV_REREG_MR_CHANGE_PD &&
			      (!pd || pd_usable(pd) || to_dpd(pd)->group != mr->k.pd->group)))
		return EINVAL;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION &&
		((uintptr_t)addr + len < (uintptr_t)addr || is_too_long(len)))
		return EINVAL;
	int then = flags & IBV_REREG_MR_CHANGE_ACCESS ? access : mr->k.access;
	bool moves = flags & (IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS);
	if (moves && access_sane(then) && !(then & (~KNOWN_ACCESS | IBV_ACCESS_ON_DEMAND))) {
		int refused = flags & IBV_REREG_MR_CHANGE_TRANSLATION
				      ? memory_refused(addr, len, then)
				      : memory_refused(mr->k.addr, mr->k.length, then);
		if (refused)
			return refused;
	}
	int unknown = flags & IBV_REREG_MR_CHANGE_ACCESS ? access & ~known_access() : 0;
	if (unknown || (flags & IBV_REREG_MR_CHANGE_ACCESS && !access_sane(access)))
		return unknown ? EOPNOTSUPP : EINVAL;
	return mr->k.refs ? EBUSY : 0;
}

int rpwi_dev_rereg_mr(
	struct ibv_mr *ibv, int flags, struct ibv_pd *pd, void *addr, size_t len, int access)
{
	struct dmr *mr = RPWI_CONTAINER_OF(ibv, struct dmr, ibv);
	access &= ~IBV_ACCESS_OPTIONAL_RANGE;
	hca_lock();
	bool is_mr = live_is(LIVE_MR, ibv);
	int input = is_mr ? rereg_input(mr, flags, addr, len, access) : 0, rc = input;
	if (!rc)
		rc = is_mr ? rereg_command(mr, flags, pd, addr, len, access) : ENOENT;
	if (rc) {
		hca_unlock();
		errno = rc;
		return input ? IBV_REREG_MR_ERR_INPUT : IBV_REREG_MR_ERR_CMD;
	}
	const uint32_t was = mr->k.key;
	mr_key_del(&mr->k); /* who reads or fetches by it now has to look again */
	if (RPWI_UNLIKELY(!board_writers_end())) {
		key_put(&mr->k);
		hca_unlock();
		errno = EBUSY;
		return IBV_REREG_MR_ERR_CMD;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		mr->k.pd->refs--;
		mr->k.pd = to_dpd(pd);
		mr->k.pd->refs++;
		ibv->pd = pd;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		mr->k.access = access;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->k.addr = addr;
		mr->k.iova = mr->k.access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
		mr->k.length = len;
		ibv->addr = addr;
		ibv->length = len;
		/* Other memory, another key: a peer that has the old one reaches none of it. */
		(void)mr_key_add(&mr->k); /* there is room: one has just gone */
		ibv->lkey = ibv->rkey = mr->k.key;
		live_renumber(&mr->live, mr->k.key >> 8);
	} else {
		key_put(&mr->k); /* the same, as kernel rxe and NICs have it */
	}
	hca_unlock();
	if (RPWI_UNLIKELY(rpwi_check_on)) {
		check_mr_gone(was);
		check_mr_made(ibv, mr->k.addr, mr->k.iova, mr->k.access);
	}
	return 0;
}

int rpwi_dev_dereg_mr(struct ibv_mr *ibv)
{
	struct dmr *mr = RPWI_CONTAINER_OF(ibv, struct dmr, ibv);
	if (!hca_lock_live(LIVE_MR, ibv))
		return ENOENT;
	if (mr->imported) {
		hca_unlock();
		rpwi_warn("ibv_dereg_mr of an imported MR: its context's owner deregisters it; "
			  "use ibv_unimport_mr here");
		return EINVAL;
	}
	if (mr->k.refs) {
		if (RPWI_UNLIKELY(rpwi_check_on)) {
			live_tell_busy(LIVE_MR, ibv);
			check_window_left(0, mr->k.key, false);
		}
		hca_unlock();
		return EBUSY;
	}
	mr_key_del(&mr->k);
	if (RPWI_UNLIKELY(!board_writers_end())) {
		key_put(&mr->k);
		hca_unlock();
		return EBUSY;
	}
	mr->k.pd->refs--;
	live_del(&mr->live);
	tally_one(ibv->context, mrs, -1);
	hca_unlock();
	if (RPWI_UNLIKELY(rpwi_check_on))
		check_mr_gone(mr->k.key);
	if (mr->map)
		munmap(mr->map, mr->map_len);
	free(mr);
	return 0;
}

/* ---- a region without memory (ibv_alloc_null_mr(3)): reads as zeros, takes writes and drops them;
 * ---- the lkey alone ---- */

/* A batch's payload at most: packets point into it. */
enum { NULL_BYTES = RPWI_TXB_PKTS * RPWI_MTU_MAX };

struct ibv_mr *dev_alloc_null_mr(struct ibv_pd *pd)
{
	RPWI_CHECK_HERE();
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return dev_refuse("ibv_alloc_null_mr");
	if (!rpwi_like_has(RPWI_LIKE_OPTIONAL, RPWI_LIKE_NULL_MR))
		return rpwi_none(EOPNOTSUPP);
	if (rpwi_plan_refuses(RPWI_CALL_REG_MR))
		return NULL;
	struct dmr *mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	hca_lock();
	if (!hca_here.zeros) {
		void *at = mmap(NULL, NULL_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		hca_here.zeros = at == MAP_FAILED ? NULL : at;
	}
	mr->k = (struct dkey){.valid = true,
		.is_null = true,
		.access = IBV_ACCESS_LOCAL_WRITE,
		.length = NULL_BYTES,
		.addr = hca_here.zeros};
	hca_unlock();
	mr->ibv = (struct ibv_mr){.pd = pd, .length = SIZE_MAX};
	int rc = mr->k.addr ? mr_new(mr) : -ENOMEM;
	if (rc) {
		free(mr);
		return rpwi_none(-rc);
	}
	return &mr->ibv;
}

/* ---- the transport's accesses ---- */

/* The place of [addr, addr+len) if the key allows `access`, else NULL. */
static inline uint8_t *resolve_in(const struct dpd *pd, const struct dkey *k, struct rpwi_qp *qp,
	uint64_t addr, uint64_t len, int access, bool remote)
{
	if (RPWI_UNLIKELY(!k || !k->valid || k->pd != pd || (k->access & access) != access))
		return NULL;
	if (RPWI_UNLIKELY(k->is_mw && (!remote || (k->qpn && k->qpn != qp->qpn))))
		return NULL;
	if (RPWI_UNLIKELY(k->is_null))
		return k->addr;
	if (RPWI_UNLIKELY(addr < k->iova || len > k->length || addr - k->iova > k->length - len))
		return NULL;
	return (uint8_t *)((uintptr_t)k->addr + (addr - k->iova));
}

static inline uint8_t *resolve_by(const struct dkey *k, struct rpwi_qp *qp, uint64_t addr,
	uint64_t len, int access, bool remote)
{
	return resolve_in(dqp_of(qp)->pd, k, qp, addr, len, access, remote);
}

static uint8_t *resolve(
	struct rpwi_qp *qp, uint32_t key, uint64_t addr, uint64_t len, int access, bool remote)
{
	return resolve_by(mr_find(key), qp, addr, len, access, remote);
}

int mem_check(
	struct rpwi_qp *qp, uint32_t key, uint64_t addr, uint64_t len, int access, bool remote)
{
	if (!len)
		return 0;
	return resolve(qp, key, addr, len, access, remote) ? 0 : -EACCES;
}

static inline int place(uint8_t *to, const struct dkey *k, const void *src, uint32_t len)
{
	/* Upwards, as a NIC writes: programs poll the end of a WRITE (ib_write_lat), or flags
	 * inside of it. Packets come here in the order of their PSNs, so that is the order of the
	 * whole message. */
	if (RPWI_UNLIKELY(to && k->is_null))
		return 0;
	if (to == src && to) /* a lane has put it there (receive_place) */
		return 0;
	return to ? rpwi_guard_copy_up(to, src, len) : -EACCES;
}

int mem_write(
	struct rpwi_qp *qp, uint32_t key, uint64_t addr, const void *src, uint32_t len, bool remote)
{
	if (!len)
		return 0;
	const struct dkey *k = mr_find(key);
	return place(resolve_by(k, qp, addr, len,
			     remote ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_LOCAL_WRITE, remote),
		k, src, len);
}

int mem_receive(struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, const void *src, uint32_t len)
{
	const struct dkey *k = mr_find(lkey);
	const struct dpd *pd = to_dpd(dqp_of(qp)->srq->ibv.pd);
	return place(resolve_in(pd, k, qp, addr, len, IBV_ACCESS_LOCAL_WRITE, false), k, src, len);
}

int mem_read(struct rpwi_qp *qp, uint32_t key, uint64_t addr, void *dst, uint32_t len, bool remote)
{
	if (!len)
		return 0;
	const uint8_t *from =
		resolve(qp, key, addr, len, remote ? IBV_ACCESS_REMOTE_READ : 0, remote);
	return from ? rpwi_guard_copy(dst, from, len) : -EACCES;
}

const void *mem_map(struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, uint32_t len)
{
	const uint8_t *at = resolve(qp, lkey, addr, len, 0, false);
	/* a null MR's zeros are as long as a batch, and no longer */
	return RPWI_UNLIKELY(at && len > NULL_BYTES && mr_find(lkey)->is_null) ? NULL : at;
}

void *mem_sink(struct rpwi_qp *qp, uint32_t key, uint64_t addr, uint32_t len, bool remote)
{
	const struct dkey *k = mr_find(key);
	uint8_t *at = resolve_by(k, qp, addr, len,
		remote ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_LOCAL_WRITE, remote);
	return RPWI_UNLIKELY(at && k->is_null) ? NULL : at;
}

struct atomic_job {
	uint64_t *at;
	bool cmp_swap;
	uint64_t compare, swap_add, orig;
};

static void atomic_do(void *arg)
{
	struct atomic_job *j = arg;
	if (j->cmp_swap) {
		uint64_t expect = j->compare;
		__atomic_compare_exchange_n(
			j->at, &expect, j->swap_add, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		j->orig = expect;
	} else {
		j->orig = __atomic_fetch_add(j->at, j->swap_add, __ATOMIC_SEQ_CST);
	}
}

int mem_atomic(struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, bool cmp_swap, uint64_t compare,
	uint64_t swap_add, uint64_t *orig)
{
	uint8_t *at = resolve(qp, rkey, addr, 8, IBV_ACCESS_REMOTE_ATOMIC, true);
	if (!at || ((uintptr_t)at & 7))
		return -EACCES;
	struct atomic_job j = {.at = (uint64_t *)(void *)at,
		.cmp_swap = cmp_swap,
		.compare = compare,
		.swap_add = swap_add};
	int rc = rpwi_guard_call(atomic_do, &j);
	*orig = j.orig;
	return rc;
}

struct atomic_write_job {
	uint64_t *at;
	uint64_t value;
};

static void atomic_write_do(void *arg)
{
	struct atomic_write_job *j = arg;
	__atomic_store_n(j->at, j->value, __ATOMIC_RELEASE);
}

int mem_atomic_write(struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, const void *value)
{
	uint8_t *at = resolve(qp, rkey, addr, 8, IBV_ACCESS_REMOTE_WRITE, true);
	if (!at || ((uintptr_t)at & 7))
		return -EACCES;
	struct atomic_write_job j = {.at = (uint64_t *)(void *)at};
	memcpy(&j.value, value, sizeof(j.value));
	return rpwi_guard_call(atomic_write_do, &j);
}
