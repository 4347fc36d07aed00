/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_rma.c - registered memory, and operations on the peer's: RDMA READ and WRITE, atomics,
 * flush.
 *
 * A description of memory has its address, length, rights, the nonce of the process's context and a
 * key for each device: the endpoint's is taken. What lies outside is refused here and, since a
 * description can be forged or out of date, by the peer's device; then the RMA QP is broken, and
 * made anew (verbs_rma_qp.c).
 *
 * Local memory needs a key, too. Short transfers go through a buffer of ours. For longer ones a
 * registration that the caller names or the program keeps is used where it covers the buffer; else
 * the buffer is registered for this one operation. Keeping such registrations would be wrong on a
 * NIC: the program may unmap the pages without telling us, and the device would go on writing into
 * the old ones.
 *
 * Memory of a GPU (add_gpu) is reached by the device alone: its bytes are neither copied to a
 * buffer of ours nor sent inline. All devices have to reach it, since any of them may become an
 * endpoint's. On the software device, which the processor works, that is memory that the processor
 * can map or read: not a real GPU's.
 *
 * flush is a READ of no bytes: the peer's device answers requests in order, so its answer says that
 * all before it have taken effect.
 */
#include "tran/verbs/verbs_priv.h"

#include "base/copy.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

enum { DESC_VERSION = 1, DESC_HEAD = 28, DESC_CHECK_AT = 24, DESC_KEY = 5, MEMS_LOOKED_AT = 16 };
_Static_assert(DESC_HEAD + DESC_KEY * VERBS_PLANES_MAX < TRAN_DESC_MAX, "a key for each device");

struct verbs_mem {
	struct tran_mem base;
	struct rpwi_list link;
	struct ibv_mr *mr[VERBS_PLANES_MAX];
	bool ours; /* its pages, too */
	bool gpu, deleted;
	unsigned lent;             /* so many others use its keys; it goes when they have */
	struct verbs_mem *lent_by; /* whose keys these are */
};

static void put_le64(uint8_t *p, uint64_t v) { memcpy(p, &v, 8); }
static uint64_t get_le64(const uint8_t *p)
{
	uint64_t v;
	memcpy(&v, p, 8);
	return v;
}

/* ---- registered memory ---- */

/* Of all but itself. */
static uint32_t desc_check_sum(const struct tran_desc *desc)
{
	return rpwi_verbs_check(desc->bytes, DESC_CHECK_AT) ^
	       rpwi_verbs_check(desc->bytes + DESC_HEAD, desc->len - DESC_HEAD) * 3;
}

static void desc_write(struct verbs *t, struct verbs_mem *m)
{
	uint8_t *d = m->base.desc.bytes, *key = d + DESC_HEAD;
	d[0] = DESC_VERSION;
	d[2] = (uint8_t)m->base.access;
	rpwi_put_le32(d + 4, t->nonce);
	put_le64(d + 8, (uintptr_t)m->base.addr);
	put_le64(d + 16, m->base.len);
	for (unsigned i = 0; i < t->planes; i++) {
		if (!m->mr[i])
			continue;
		key[0] = (uint8_t)i;
		rpwi_put_le32(key + 1, m->mr[i]->rkey);
		key += DESC_KEY;
		d[1]++;
	}
	m->base.desc.len = (uint8_t)(key - d);
	rpwi_put_le32(d + DESC_CHECK_AT, desc_check_sum(&m->base.desc));
}

static int access_flags(unsigned access, bool atomics)
{
	int flags = access & TRAN_READ ? IBV_ACCESS_REMOTE_READ : 0;
	if (access & TRAN_WRITE)
		flags |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	if (access & TRAN_ATOMIC)
		flags |= IBV_ACCESS_LOCAL_WRITE | (atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0);
	return flags;
}

int rpwi_verbs_mem_add(
	struct tran *base, void *addr, size_t len, unsigned access, struct tran_mem **out)
{
	struct verbs *t = verbs_of(base);
	bool any = !len; /* of nothing there is no key, and none is needed */
	int rc = t->planes ? 0 : rpwi_verbs_planes_open(t);
	if (rc)
		return rc;
	struct verbs_mem *m = calloc(1, sizeof(*m));
	if (!m)
		return tran_no_memory(base, "one more registration");
	m->base = (struct tran_mem){.addr = addr, .len = len, .access = access};
	for (unsigned i = 0; len && i < t->planes; i++) {
		struct verbs_plane *p = t->plane[i];
		m->mr[i] = p->v->ibv_reg_mr(p->pd, addr, len, access_flags(access, p->atomics));
		any |= m->mr[i] != NULL;
		if (!m->mr[i])
			rc = rpwi_fail(rpwi_status_of_errno(errno),
				"verbs: %zu bytes at %s cannot be registered with %s: %s; is all "
				"of it mapped, and the limit of locked memory (ulimit -l) high "
				"enough?",
				len, RPWI_AT(addr), p->name, strerror(errno));
	}
	if (!any) {
		free(m);
		return rc;
	}
	desc_write(t, m);
	rpwi_list_add_tail(&t->mems, &m->link);
	*out = &m->base;
	return 0;
}

static void mem_free(struct verbs *t, struct verbs_mem *m)
{
	for (unsigned i = 0; i < t->planes && !m->lent_by; i++)
		if (m->mr[i])
			t->plane[i]->v->ibv_dereg_mr(m->mr[i]);
	rpwi_list_del(&m->link);
	free(m);
}

void rpwi_verbs_mem_del(struct tran *base, struct tran_mem *mem)
{
	struct verbs *t = verbs_of(base);
	struct verbs_mem *m = RPWI_CONTAINER_OF(mem, struct verbs_mem, base), *lender = m->lent_by;
	m->deleted = true;
	if (!m->lent)
		mem_free(t, m);
	if (lender && !--lender->lent && lender->deleted)
		mem_free(t, lender);
}

/* ---- memory of GPUs ---- */

/* Asked of the kernel, which answers where a load would be the end of the process. */
static bool processor_reaches(const void *addr, size_t len)
{
	char bytes[2];
	struct iovec to = {bytes, 2}, from[2] = {{(void *)addr, 1}, {(char *)addr + len - 1, 1}};
	return process_vm_readv(getpid(), &to, 1, from, 2, 0) == 2;
}

static struct ibv_mr *gpu_reg(
	struct verbs_plane *p, const struct tran_gpu_memory *w, unsigned access)
{
	int flags = access_flags(access & ~(unsigned)TRAN_ATOMIC, false);
	errno = EOPNOTSUPP;
	if (w->dmabuf >= 0)
		return p->v->ibv_reg_dmabuf_mr ? p->v->ibv_reg_dmabuf_mr(p->pd, w->offset, w->len,
							 (uintptr_t)w->addr, w->dmabuf, flags)
					       : NULL;
	errno = EFAULT;
	return p->software && !processor_reaches(w->addr, w->len)
		       ? NULL
		       : p->v->ibv_reg_mr(p->pd, w->addr, w->len, flags);
}

static int gpu_refused(const struct verbs_plane *p, const struct tran_gpu_memory *w, int error)
{
	const char *missing = "by dma-buf that takes a kernel of 5.12 or later, rdma-core of 34 or "
			      "later, and a driver of the device that can";
	if (w->dmabuf < 0)
		missing = "by its address that takes the kernel module nvidia-peermem";
	if (p->software)
		missing = "it is ropeway's software device, which the processor works; a NIC is "
			  "needed";
	return rpwi_fail(RPW_ERR_NOT_SUPPORTED,
		"%s does not reach memory of the GPU by itself (%s: %s): %s", p->name,
		w->dmabuf < 0 ? "ibv_reg_mr" : "ibv_reg_dmabuf_mr", strerror(error), missing);
}

/* One that has it all, and gives these rights. */
static struct verbs_mem *gpu_lender(
	struct verbs *t, const struct tran_gpu_memory *w, unsigned access)
{
	RPWI_LIST_EACH (struct verbs_mem, m, &t->mems, link) {
		uintptr_t offset = (uintptr_t)w->addr - (uintptr_t)m->base.addr;
		if (m->gpu && m->base.kept && !m->deleted && (m->base.access & access) == access &&
			(uintptr_t)w->addr >= (uintptr_t)m->base.addr && w->len <= m->base.len &&
			offset <= m->base.len - w->len)
			return m;
	}
	return NULL;
}

int rpwi_verbs_gpu_add(
	struct tran *base, const struct tran_gpu_memory *w, unsigned access, struct tran_mem **out)
{
	struct verbs *t = verbs_of(base);
	int rc = t->planes ? 0 : rpwi_verbs_planes_open(t);
	if (rc)
		return rc;
	if (!w->len)
		return rpwi_fail(RPW_ERR_INVALID, "verbs: no memory of a GPU to register");
	struct verbs_mem *m = calloc(1, sizeof(*m));
	if (!m)
		return tran_no_memory(base, "one more registration");
	m->base = (struct tran_mem){.addr = w->addr, .len = w->len, .access = access};
	m->gpu = true;
	rpwi_list_init(&m->link);
	m->lent_by = gpu_lender(t, w, access);
	if (m->lent_by) {
		memcpy(m->mr, m->lent_by->mr, sizeof(m->mr));
		m->lent_by->lent++;
	}
	for (unsigned i = 0; i < t->planes && !m->lent_by && !rc; i++)
		if (!(m->mr[i] = gpu_reg(t->plane[i], w, access)))
			rc = gpu_refused(t->plane[i], w, errno);
	if (rc) {
		mem_free(t, m);
		return rc;
	}
	desc_write(t, m);
	rpwi_list_add_tail(&t->mems, &m->link);
	*out = &m->base;
	return 0;
}

/* The key of a registration that the program holds; those used last are in front. */
static bool held_lkey(
	struct verbs_plane *p, const uint8_t *addr, uint64_t len, bool write, uint32_t *lkey)
{
	struct verbs *t = p->t;
	unsigned looked = 0;
	for (struct rpwi_list *at = t->mems.next; at != &t->mems && looked < MEMS_LOOKED_AT;
		at = at->next, looked++) {
		struct verbs_mem *m = RPWI_CONTAINER_OF(at, struct verbs_mem, link);
		uint64_t offset = (uint64_t)(uintptr_t)addr - (uint64_t)(uintptr_t)m->base.addr;
		if ((uintptr_t)addr < (uintptr_t)m->base.addr || len > m->base.len ||
			offset > m->base.len - len || !m->mr[p->index] || !m->base.kept || m->gpu)
			continue;
		if (write && !(m->base.access & (TRAN_WRITE | TRAN_ATOMIC)))
			continue;
		*lkey = m->mr[p->index]->lkey;
		rpwi_list_del(&m->link);
		rpwi_list_add_tail(t->mems.next, &m->link); /* before the first one: in front */
		return true;
	}
	return false;
}

/* What the caller says about the local side. */
static void local_given(const struct verbs_ep *ep, struct verbs_op *op, const struct tran_mem *mem)
{
	const struct verbs_mem *m = mem ? RPWI_CONTAINER_OF(mem, struct verbs_mem, base) : NULL;
	op->gpu = m && m->gpu;
	op->lkey = m && (m->gpu || op->len > VERBS_COPY_MAX) && m->mr[ep->p->index]
			   ? m->mr[ep->p->index]->lkey
			   : 0;
}

/* ---- posting ---- */

/* Where the device finds or puts our bytes. 0, or an enum rpw_status; VERBS_COPY_MAX decides
 * between copying and registering. */
static int op_local(struct verbs_ep *ep, struct verbs_op *op)
{
	struct verbs_plane *p = ep->p;
	bool is_get = op->kind == VERBS_OP_GET;
	if (op->slot || op->mr || op->lkey ||
		(op->kind == VERBS_OP_PUT && op->len <= p->inline_max))
		return RPW_OK;
	if (op->len <= VERBS_COPY_MAX &&
		(op->slot = rpwi_verbs_slot_get(p, &p->tx, VERBS_TX_SLOTS_MAX))) {
		if (op->kind == VERBS_OP_PUT)
			memcpy(op->slot->buf, op->local, op->len);
		op->lkey = op->slot->lkey;
		return RPW_OK;
	}
	if (held_lkey(p, op->local, op->len, is_get, &op->lkey))
		return RPW_OK;
	op->mr = p->v->ibv_reg_mr(p->pd, op->local, op->len, is_get ? IBV_ACCESS_LOCAL_WRITE : 0);
	if (!op->mr)
		return rpwi_fail(
			errno == EFAULT || errno == EACCES ? RPW_ERR_ACCESS : RPW_ERR_NO_MEMORY,
			"verbs: the buffer of %llu bytes cannot be registered with %s: %s; is all "
			"of it mapped, and the limit of locked memory (ulimit -l) "
			"high enough?",
			(unsigned long long)op->len, p->name, strerror(errno));
	op->lkey = op->mr->lkey;
	return RPW_OK;
}

static int post_transfer(struct verbs_ep *ep, struct verbs_op *op)
{
	uint64_t n = RPWI_MIN(op->len - op->posted,
		op->kind == VERBS_OP_GET ? (uint64_t)VERBS_GET_PIECE : (uint64_t)VERBS_PUT_PIECE);
	struct verbs_rma_qp *l = ep->rma_qp;
	if (op->kind == VERBS_OP_GET && l->reading + n > VERBS_READING_MAX)
		return RPWI_LATER; /* until one of those is done */
	bool inlined = op->kind == VERBS_OP_PUT && op->len <= ep->p->inline_max && !op->gpu;
	struct ibv_sge sge = {
		.addr = (uintptr_t)(op->slot ? op->slot->buf : op->local) + op->posted,
		.length = (uint32_t)n,
		.lkey = op->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
		.num_sge = 1,
		.opcode = op->kind == VERBS_OP_GET ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = op->remote + op->posted, .rkey = op->rkey}};
	if (inlined)
		wr.send_flags = IBV_SEND_INLINE;
	int rc = verbs_post(&l->sq, &wr, VERBS_SQE_OP, op);
	if (rc)
		return rc;
	op->posted += n;
	if (op->kind == VERBS_OP_GET) {
		l->sq.sqe[(l->sq.tail - 1) % VERBS_SQ_DEPTH].reading = (uint32_t)n;
		l->reading += (uint32_t)n;
	}
	return 0;
}

static int post_atomic(struct verbs_ep *ep, struct verbs_op *op)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)op->slot->buf, .length = 8, .lkey = op->slot->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
		.wr.atomic = {.remote_addr = op->remote,
			.compare_add = op->compare,
			.swap = op->operand,
			.rkey = op->rkey}};
	if (op->kind == VERBS_OP_ADD) {
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.compare_add = op->operand;
		wr.wr.atomic.swap = 0;
	}
	int rc = verbs_post(&ep->rma_qp->sq, &wr, VERBS_SQE_OP, op);
	op->posted += rc ? 0 : 8;
	return rc;
}

static int post_flush(struct verbs_ep *ep, struct verbs_op *op)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ};
	return verbs_post(&ep->rma_qp->sq, &wr, VERBS_SQE_OP, op);
}

/* One work request. 0; RPWI_LATER; an error: the device refuses it. */
static int op_post(struct verbs_ep *ep, struct verbs_op *op)
{
	if (op->kind == VERBS_OP_FLUSH)
		return post_flush(ep, op);
	if (op->kind == VERBS_OP_GET || op->kind == VERBS_OP_PUT)
		return post_transfer(ep, op);
	if (!op->slot && !(op->slot = rpwi_verbs_slot_get(ep->p, &ep->p->tx, VERBS_TX_SLOTS_MAX))) {
		verbs_todo(ep);
		return RPWI_LATER;
	}
	return post_atomic(ep, op);
}

void rpwi_verbs_ops_pump(struct verbs_ep *ep)
{
	while (ep->state == VERBS_EP_UP && !rpwi_list_empty(&ep->ops) &&
		rpwi_verbs_rma_qp_ready(ep) && verbs_sq_room(&ep->rma_qp->sq)) {
		struct verbs_op *op = RPWI_CONTAINER_OF(ep->ops.next, struct verbs_op, link);
		int status = op->kind == VERBS_OP_GET || op->kind == VERBS_OP_PUT ? op_local(ep, op)
										  : RPW_OK;
		if (status) {
			rpwi_verbs_op_done(ep, op, status);
			continue;
		}
		int rc = op_post(ep, op);
		if (rc == RPWI_LATER)
			return;
		if (rc) {
			rpwi_verbs_ep_fail(ep, rc, "%s", rpwi_last_error()->text);
			return;
		}
		op->out++;
		if (op->posted == op->len) {
			rpwi_list_del(&op->link);
			rpwi_list_add_tail(&ep->inflight, &op->link);
		}
	}
}

/* ---- what msg asks for ---- */

static int refuse(struct verbs_ep *ep, void *cookie, const char *what)
{
	rpwi_fail(RPW_ERR_ACCESS, "verbs: %s", what);
	ep->t->base.up->done(ep->base.user, cookie, rpwi_last_error());
	return 0;
}

/* NULL, or why not. */
static const char *desc_check(const struct verbs_ep *ep, const struct tran_desc *desc,
	unsigned access, uint64_t offset, uint64_t len, uint64_t *addr, uint32_t *rkey)
{
	const uint8_t *d = desc->bytes, *key = d + DESC_HEAD;
	if (desc->len < DESC_HEAD || desc->len > sizeof(desc->bytes) || d[0] != DESC_VERSION ||
		desc->len != DESC_HEAD + d[1] * DESC_KEY ||
		desc_check_sum(desc) != rpwi_get_le32(d + DESC_CHECK_AT))
		return "the description of the remote memory is garbled";
	if (rpwi_get_le32(d + 4) != ep->peer_nonce)
		return "the remote memory is not this peer's";
	if ((d[2] & access) != access)
		return "the peer's registration does not give the right to do that";
	uint64_t size = get_le64(d + 16);
	if (len > size || offset > size - len)
		return "outside of the memory that the peer registered";
	*addr = get_le64(d + 8) + offset;
	for (unsigned i = 0; i < d[1]; i++, key += DESC_KEY)
		if (key[0] == ep->remote.dev) {
			*rkey = rpwi_get_le32(key + 1);
			return NULL;
		}
	return len ? "the peer could not register that memory with the device of this endpoint"
		   : NULL;
}

/* 0: an operation may be queued. */
static int admit(struct verbs_ep *ep)
{
	if (ep->state != VERBS_EP_UP)
		return tran_path_over(&ep->base);
	if (ep->op_count < VERBS_OPS_MAX)
		return 0;
	ep->want_room = true;
	return RPWI_LATER;
}

int rpwi_verbs_rma(struct tran_ep *base, bool is_put, const struct tran_desc *remote,
	uint64_t offset, void *local, size_t len, const struct tran_mem *mem, void *cookie)
{
	struct verbs_ep *ep = verbs_ep_of(base);
	uint64_t addr = 0;
	uint32_t rkey = 0;
	int rc = admit(ep);
	if (rc)
		return rc;
	const char *why =
		desc_check(ep, remote, is_put ? TRAN_WRITE : TRAN_READ, offset, len, &addr, &rkey);
	if (why)
		return refuse(ep, cookie, why);
	if (!len) {
		ep->t->base.up->done(ep->base.user, cookie, NULL);
		return 0;
	}
	struct verbs_op *op = rpwi_verbs_op_new(ep, is_put ? VERBS_OP_PUT : VERBS_OP_GET, cookie);
	if (!op)
		return tran_no_memory(base->tran, "an operation");
	op->local = local;
	op->remote = addr;
	op->rkey = rkey;
	op->len = len;
	local_given(ep, op, mem);
	ep->changes += is_put;
	rpwi_verbs_ops_pump(ep);
	return 0;
}

int rpwi_verbs_atomic(struct tran_ep *base, enum tran_atomic kind, const struct tran_desc *remote,
	uint64_t offset, uint64_t operand, uint64_t compare, uint64_t *before, void *cookie)
{
	struct verbs_ep *ep = verbs_ep_of(base);
	uint64_t addr = 0;
	uint32_t rkey = 0;
	int rc = admit(ep);
	if (rc)
		return rc;
	if (!ep->p->atomics || !ep->remote.atomics)
		return rpwi_fail(RPW_ERR_NOT_SUPPORTED,
			"verbs: the device %s has no atomic operations",
			ep->p->atomics ? ep->remote.name : ep->p->name);
	const char *why = desc_check(ep, remote, TRAN_ATOMIC, offset, 8, &addr, &rkey);
	if (!why && addr & 7)
		why = "atomic operations need an address that is a multiple of 8";
	if (why)
		return refuse(ep, cookie, why);
	struct verbs_op *op = rpwi_verbs_op_new(
		ep, kind == TRAN_FETCH_ADD ? VERBS_OP_ADD : VERBS_OP_SWAP, cookie);
	if (!op)
		return tran_no_memory(base->tran, "an operation");
	op->remote = addr;
	op->rkey = rkey;
	op->len = 8;
	op->operand = operand;
	op->compare = compare;
	op->before = before;
	ep->changes++;
	rpwi_verbs_ops_pump(ep);
	return 0;
}

int rpwi_verbs_flush(struct tran_ep *base, void *cookie)
{
	struct verbs_ep *ep = verbs_ep_of(base);
	int rc = admit(ep);
	if (rc)
		return rc;
	if (ep->flushed == ep->changes) {
		ep->t->base.up->done(ep->base.user, cookie, NULL);
		return 0;
	}
	struct verbs_op *op = rpwi_verbs_op_new(ep, VERBS_OP_FLUSH, cookie);
	if (!op)
		return tran_no_memory(base->tran, "an operation");
	op->changes = ep->changes;
	rpwi_verbs_ops_pump(ep);
	return 0;
}
