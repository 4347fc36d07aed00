/* SPDX-License-Identifier: BSD-3-Clause */
/* build.c - the ibv_wr_* calls: a list is built between ibv_wr_start and ibv_wr_complete, then
 * posted as one: all of it, or, where one request is refused or the send queue has too little room,
 * none (ibv_wr_post(3)). What a list may hold is what the queue may: requests, SGEs, inline data.
 *
 * It is built in pieces of a pool that all QPs share, which grows to the most that is built at a
 * time and is kept. An idle QP holds none of it. */
#include <stdlib.h>

#include "check/check.h"
#include "device/checked.h"
#include "device/hca.h"
#include "device/qp.h"

enum { PIECE_WRS = 64, PIECE_SGES = 256, PIECE_INLINE = 16 * 1024 };
_Static_assert((int)PIECE_SGES >= (int)RPWI_SGE_MAX && (int)PIECE_INLINE >= (int)RPWI_INLINE_MAX,
	"those of one request");
struct wr_piece {
	struct wr_piece *next; /* of the list, or of the pool */
	unsigned n, nsge, inl_used;
	struct ibv_send_wr wr[PIECE_WRS];
	struct ibv_sge sge[PIECE_SGES];
	uint8_t inl[PIECE_INLINE];
};

static struct wr_piece *pool; /* under RPWI_LOCK_BUILDS */
/* Of lists that begin when there is no memory. Each has failed, and none is posted, so it does not
 * matter that they write over each other. */
static struct wr_piece nowhere;

/* NULL: no memory. */
static struct wr_piece *piece_take(void)
{
	rpwi_lock(RPWI_LOCK_BUILDS);
	struct wr_piece *p = pool;
	if (p)
		pool = p->next;
	rpwi_unlock(RPWI_LOCK_BUILDS);
	if (!p)
		p = malloc(sizeof(*p));
	if (!p)
		return NULL;
	p->next = NULL;
	p->n = p->nsge = 0;
	p->inl_used = 0;
	return p;
}

static struct dqp *ex_qp(struct ibv_qp_ex *ex) { return RPWI_CONTAINER_OF(ex, struct dqp, ex); }

static void wr_start(struct ibv_qp_ex *ex)
{
	struct dqp *q = ex_qp(ex);
	pthread_mutex_lock(&q->build_lock); /* until wr_complete or wr_abort */
	struct wr_build *b = &q->build;
	b->first = b->last = piece_take();
	b->cur = NULL;
	b->n = 0;
	b->err = 0;
	/* wr_start cannot fail (its man page); wr_complete says it */
	if (RPWI_UNLIKELY(!b->first)) {
		b->first = b->last = &nowhere;
		b->err = ENOMEM;
	}
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	struct dqp *q = ex_qp(ex);
	if (RPWI_LIKELY(q->build.first != &nowhere)) {
		rpwi_lock(RPWI_LOCK_BUILDS);
		q->build.last->next = pool;
		pool = q->build.first;
		rpwi_unlock(RPWI_LOCK_BUILDS);
	}
	pthread_mutex_unlock(&q->build_lock);
}

static int build_post(struct dqp *q)
{
	struct wr_build *b = &q->build;
	struct ibv_send_wr *bad;
	if (b->err || !b->n)
		return rpwi_dev_told(b->err);
	b->cur->next = NULL;
	q->batch = b->first->wr;
	int rc = q->ibv.context->ops.post_send(&q->ibv, b->first->wr, &bad);
	q->batch = NULL;
	return rc;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	int rc = build_post(ex_qp(ex));
	wr_abort(ex);
	return rc;
}

__attribute__((noinline)) static struct wr_piece *piece_more(struct wr_build *b)
{
	struct wr_piece *p = b->err ? NULL : piece_take();
	if (!p) {
		b->err = b->err ? b->err : ENOMEM;
		return NULL;
	}
	b->last->next = p;
	b->last = p;
	return p;
}

/* Room for so much more in one piece: the last, or a new one behind it. NULL: the list has failed.
 */
static inline struct wr_piece *room_for(
	struct wr_build *b, unsigned wrs, unsigned sges, unsigned inl)
{
	struct wr_piece *p = b->last;
	if (RPWI_LIKELY(!b->err && p->n + wrs <= PIECE_WRS && p->nsge + sges <= PIECE_SGES &&
			p->inl_used + inl <= PIECE_INLINE))
		return p;
	return piece_more(b);
}

static void fails(struct wr_build *b, int err) { b->err = b->err ? b->err : err; }

static inline struct ibv_send_wr *wr_new(struct ibv_qp_ex *ex, enum ibv_wr_opcode op)
{
	struct dqp *q = ex_qp(ex);
	struct wr_build *b = &q->build;
	if (RPWI_UNLIKELY(b->n == q->cap.max_send_wr))
		fails(b, ENOMEM);
	struct wr_piece *p = room_for(b, 1, 0, 0);
	if (RPWI_UNLIKELY(!p)) /* into one that will not be posted */
		return &b->first->wr[0];
	struct ibv_send_wr *wr = &p->wr[p->n++];
	*wr = (struct ibv_send_wr){.wr_id = ex->wr_id, .opcode = op, .send_flags = ex->wr_flags};
	if (b->cur)
		b->cur->next = wr;
	b->cur = wr;
	b->n++;
	return wr;
}

/* The last one that was begun. In a list that has failed it is written, too, and not posted. */
static inline struct ibv_send_wr *wr_cur(struct ibv_qp_ex *ex)
{
	struct wr_build *b = &ex_qp(ex)->build;
	if (RPWI_LIKELY(b->cur != NULL))
		return b->cur;
	fails(b, EINVAL);
	return &b->first->wr[0];
}

static void wr_send(struct ibv_qp_ex *ex) { wr_new(ex, IBV_WR_SEND); }
static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	wr_new(ex, IBV_WR_SEND_WITH_IMM)->imm_data = imm;
}
static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	wr_new(ex, IBV_WR_SEND_WITH_INV)->invalidate_rkey = rkey;
}
static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	wr_new(ex, IBV_WR_LOCAL_INV)->invalidate_rkey = rkey;
}

static struct ibv_send_wr *wr_rdma(
	struct ibv_qp_ex *ex, enum ibv_wr_opcode op, uint32_t rkey, uint64_t addr)
{
	struct ibv_send_wr *wr = wr_new(ex, op);
	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = addr;
	return wr;
}
static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	wr_rdma(ex, IBV_WR_RDMA_READ, rkey, addr);
}
static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	wr_rdma(ex, IBV_WR_RDMA_WRITE, rkey, addr);
}
static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm)
{
	wr_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr)->imm_data = imm;
}

static void wr_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode op, uint32_t rkey, uint64_t addr,
	uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr *wr = wr_new(ex, op);
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
}
static void wr_cmp_swp(
	struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	wr_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}
static void wr_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add)
{
	wr_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}

static void wr_bind_mw(
	struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = wr_new(ex, IBV_WR_BIND_MW);
	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct ibv_send_wr *wr = wr_cur(ex);
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = qpn;
	wr->wr.ud.remote_qkey = qkey;
}

/* SGEs for the last request; NULL: the list has failed. */
static inline struct ibv_sge *wr_sges(struct ibv_qp_ex *ex, size_t n)
{
	struct dqp *q = ex_qp(ex);
	struct ibv_send_wr *wr = wr_cur(ex);
	if (RPWI_UNLIKELY(n > q->cap.max_send_sge))
		fails(&q->build, EINVAL);
	struct wr_piece *p = room_for(&q->build, 0, (unsigned)n, 0);
	if (RPWI_UNLIKELY(!p))
		return NULL;
	wr->sg_list = &p->sge[p->nsge];
	wr->num_sge = (int)n;
	p->nsge += (unsigned)n;
	return wr->sg_list;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list)
{
	struct ibv_sge *to = wr_sges(ex, n);
	if (RPWI_LIKELY(to != NULL))
		memcpy(to, list, n * sizeof(*list));
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge *to = wr_sges(ex, 1);
	if (RPWI_LIKELY(to != NULL))
		*to = (struct ibv_sge){.addr = addr, .length = length, .lkey = lkey};
}

/* Room for the last request's inline data; NULL: the list has failed. */
static inline uint8_t *wr_inline(struct ibv_qp_ex *ex, size_t len)
{
	struct dqp *q = ex_qp(ex);
	struct ibv_send_wr *wr = wr_cur(ex);
	if (RPWI_UNLIKELY(len > q->cap.max_inline_data)) {
		fails(&q->build, EINVAL);
		return NULL;
	}
	struct wr_piece *p = room_for(&q->build, 0, 1, (unsigned)len);
	if (RPWI_UNLIKELY(!p))
		return NULL;
	uint8_t *to = p->inl + p->inl_used;
	p->inl_used += (unsigned)len;
	wr->sg_list = &p->sge[p->nsge++];
	*wr->sg_list = (struct ibv_sge){.addr = (uintptr_t)to, .length = (uint32_t)len};
	wr->num_sge = 1;
	wr->send_flags |= IBV_SEND_INLINE;
	return to;
}

static void wr_set_inline_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *bufs)
{
	size_t len = 0;
	for (size_t i = 0; i < n && len <= RPWI_INLINE_MAX; i++)
		len += RPWI_MIN(bufs[i].length, (size_t)RPWI_INLINE_MAX + 1);
	uint8_t *to = wr_inline(ex, len);
	for (size_t i = 0; i < n && to; to += bufs[i].length, i++)
		memcpy(to, bufs[i].addr, bufs[i].length);
}

static void wr_set_inline(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	uint8_t *to = wr_inline(ex, length);
	if (RPWI_LIKELY(to != NULL))
		memcpy(to, addr, length);
}

/* The 8 bytes are taken now, as inline data. */
static void wr_atomic_write(
	struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, const void *atomic_wr)
{
	wr_rdma(ex, (enum ibv_wr_opcode)RPWI_WR_ATOMIC_WRITE, rkey, addr);
	wr_set_inline(ex, (void *)(uintptr_t)atomic_wr, RPWI_ATOMIC_WRITE_LEN);
}

void build_attach(struct dqp *q)
{
	pthread_mutex_init(&q->build_lock, NULL);
	q->has_wr_ops = true;
	struct ibv_qp_ex *ex = &q->ex;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_atomic_cmp_swp = wr_cmp_swp;
	ex->wr_atomic_fetch_add = wr_fetch_add;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_atomic_write = wr_atomic_write;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline;
	ex->wr_set_inline_data_list = wr_set_inline_list;
	if (RPWI_UNLIKELY(rpwi_check_on))
		checked_qp_ex(ex);
}

struct ibv_qp_ex *rpwi_dev_qp_to_qp_ex(struct ibv_qp *ibv)
{
	struct dqp *q = to_dqp(ibv);
	return q->has_wr_ops ? &q->ex : NULL;
}
