/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - registered memory of the two hosts: regions with keys and addresses of their own, and
 * what the transport may do to them at this moment. A write from the wire must be part of a WRITE
 * that its sender has posted and not yet seen complete, and must carry that message's bytes: so a
 * ghost, a second execution or a misplaced byte is caught where it happens.
 */
#include "sim.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* ---- Regions ---- */

enum { ARENA_BYTES = 1 << 30 }; /* address space; what is never touched costs nothing */
static uint8_t *arena;
static size_t arena_used;

void *sim_alloc(size_t n)
{
	if (!arena)
		arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	n = (n + 63) & ~63ull;
	if (arena == MAP_FAILED || arena_used + n > ARENA_BYTES)
		abort();
	void *p = arena + arena_used;
	arena_used += n;
	return memset(p, 0, n);
}

void sim_alloc_reset(void) { arena_used = 0; }

/* Addresses on the wire are not addresses here: a mix-up of the two is found at once. Keys differ
 * for local and remote use. */
struct sim_region sim_region_make(struct sim_world *w, unsigned host, uint32_t len, int access)
{
	struct sim_region r = {.len = len, .access = access};
	w->serial++;
	r.bytes = sim_alloc(len + 64);
	r.iova = 0x100000000000ull * (host + 1) + rng_below(&w->rng_setup, 1u << 30) * 64;
	r.lkey = (w->serial & 0xffffff) << 8 | 0x11;
	r.rkey = (w->serial & 0xffffff) << 8 | 0x22;
	return r;
}

static struct sim_region *find(struct sim_end *e, uint32_t key, bool remote)
{
	struct sim_region *all[] = {&e->region[SIM_LOCAL], &e->region[SIM_REMOTE], e->recv_region};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(all); i++)
		if ((remote ? all[i]->rkey : all[i]->lkey) == key)
			return all[i];
	return NULL;
}

static struct sim_region *checked(
	struct rpwi_qp *qp, uint32_t key, uint64_t addr, uint64_t len, int access, bool remote)
{
	struct sim_region *r = find(qp->user, key, remote);
	if (!r || addr < r->iova || len > r->len || addr - r->iova > r->len - len ||
		(r->access & access) != access)
		return NULL;
	return r;
}

static int mem_check(
	struct rpwi_qp *qp, uint32_t key, uint64_t addr, uint64_t len, int access, bool remote)
{
	if (remote && !len)
		return 0;
	return checked(qp, key, addr, len, access, remote) ? 0 : -EACCES;
}

/* The WRITE under way, posted by `by`, that [off, off + len) of the target belongs to. */
static struct sim_op *write_under_way(struct sim_end *by, uint64_t off, uint32_t len)
{
	for (uint64_t i = sim_op_oldest(by); i < by->op_tail; i++) {
		struct sim_op *op = sim_op_at(by, i);
		bool write =
			op->opcode == IBV_WR_RDMA_WRITE || op->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
		if (write && off >= op->remote_off && off + len <= op->remote_off + op->len)
			return op;
	}
	return NULL;
}

static int mem_write(
	struct rpwi_qp *qp, uint32_t key, uint64_t addr, const void *src, uint32_t len, bool remote)
{
	struct sim_end *e = qp->user;
	struct sim_region *r = checked(qp, key, addr, len,
		remote ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_LOCAL_WRITE, remote);
	if (!r)
		return remote && !len ? 0 : -EACCES;
	if (remote && len) {
		struct sim_op *op = sim_is_rc(e->w)
					    ? write_under_way(e->peer, addr - r->iova, len)
					    : sim_datagram_write(e->peer, addr - r->iova, src, len);
		if (!op)
			sim_fail(e->w,
				"end %u: %u bytes written at %llu, where no WRITE is under way",
				e->index, len, (unsigned long long)(addr - r->iova));
		if (!pattern_holds_from(src, len, op->pattern, addr - r->iova - op->remote_off))
			sim_fail(e->w, "end %u: WRITE %llu puts other bytes than were sent at %llu",
				e->index, (unsigned long long)op->id,
				(unsigned long long)(addr - r->iova));
	}
	memcpy(r->bytes + (addr - r->iova), src, len);
	return 0;
}

static int mem_receive(
	struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, const void *src, uint32_t len)
{
	return mem_write(qp, lkey, addr, src, len, false);
}

static int mem_read(
	struct rpwi_qp *qp, uint32_t key, uint64_t addr, void *dst, uint32_t len, bool remote)
{
	struct sim_region *r =
		checked(qp, key, addr, len, remote ? IBV_ACCESS_REMOTE_READ : 0, remote);
	if (!r)
		return remote && !len ? 0 : -EACCES;
	memcpy(dst, r->bytes + (addr - r->iova), len);
	return 0;
}

static const void *mem_map(struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, uint32_t len)
{
	struct sim_region *r = checked(qp, lkey, addr, len, 0, false);
	return r ? r->bytes + (addr - r->iova) : NULL;
}

/* The oldest atomic posted by `by` and not yet executed: they execute in order and once. */
static struct sim_op *next_atomic(struct sim_end *by)
{
	for (uint64_t i = sim_op_oldest(by); i < by->op_tail; i++) {
		struct sim_op *op = sim_op_at(by, i);
		if ((op->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
			    op->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) &&
			!op->executed)
			return op;
	}
	return NULL;
}

static int mem_atomic(struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, bool cmp_swap,
	uint64_t compare, uint64_t swap_add, uint64_t *orig)
{
	struct sim_end *e = qp->user;
	struct sim_region *r = checked(qp, rkey, addr, 8, IBV_ACCESS_REMOTE_ATOMIC, true);
	struct sim_op *op = next_atomic(e->peer);
	uint64_t v;
	if (!r)
		return -EACCES;
	if (!op || op->remote_off != addr - r->iova || op->swap_add != swap_add ||
		(op->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) != cmp_swap ||
		(cmp_swap && op->compare != compare))
		sim_fail(e->w, "end %u: an atomic at %llu that is not the next one posted",
			e->index, (unsigned long long)(addr - r->iova));
	op->executed = true;
	memcpy(&v, r->bytes + (addr - r->iova), 8);
	*orig = v;
	if (!cmp_swap)
		v += swap_add;
	else if (v == compare)
		v = swap_add;
	memcpy(r->bytes + (addr - r->iova), &v, 8);
	if (sim_broken(e->peer)) /* its sender had given up hope */
		memcpy(e->shadow + (addr - r->iova), &v, 8);
	return 0;
}

/* Each is executed once, in the order of posting among those that are answered. */
static int mem_atomic_write(struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, const void *value)
{
	struct sim_end *e = qp->user, *by = e->peer;
	struct sim_region *r = checked(qp, rkey, addr, 8, IBV_ACCESS_REMOTE_WRITE, true);
	struct sim_op *op = NULL;
	if (!r)
		return -EACCES;
	for (uint64_t i = sim_op_oldest(by); i < by->op_tail && !op; i++)
		if (sim_is_atomic_write(sim_op_at(by, i)->opcode) && !sim_op_at(by, i)->executed)
			op = sim_op_at(by, i);
	if (!op || op->remote_off != addr - r->iova || !pattern_holds(value, 8, op->pattern))
		sim_fail(e->w, "end %u: an ATOMIC WRITE at %llu that is not the next one posted",
			e->index, (unsigned long long)(addr - r->iova));
	op->executed = true;
	memcpy(r->bytes + op->remote_off, value, 8);
	memcpy(e->shadow + op->remote_off, value, 8);
	return 0;
}

static int invalidate(struct rpwi_qp *qp, uint32_t key, bool remote)
{
	struct sim_end *e = qp->user, *by = remote ? e->peer : e;
	for (uint64_t i = sim_op_oldest(by); i < by->op_tail; i++) {
		struct sim_op *op = sim_op_at(by, i);
		if (op->opcode != (remote ? IBV_WR_SEND_WITH_INV : IBV_WR_LOCAL_INV) ||
			op->inv_key != key)
			continue;
		if (op->executed)
			sim_fail(e->w, "end %u: key %x invalidated twice", e->index, key);
		op->executed = true;
		return 0;
	}
	sim_fail(e->w, "end %u: key %x invalidated, which nobody asked for now", e->index, key);
}

static int bind_mw(struct rpwi_qp *qp, const struct rpwi_bind *b) { return -EINVAL; }

/* All READs go by packets. */
static void *no_sink(struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, uint32_t len, bool remote)
{
	return NULL;
}

static const uint8_t *no_peer_read(
	struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, uint32_t len, void *into)
{
	return NULL;
}

const struct rpwi_qp_ops sim_ops = {
	.mem_sink = no_sink,
	.peer_read = no_peer_read,
	.mem_check = mem_check,
	.mem_write = mem_write,
	.mem_receive = mem_receive,
	.mem_read = mem_read,
	.mem_map = mem_map,
	.mem_atomic = mem_atomic,
	.mem_atomic_write = mem_atomic_write,
	.invalidate = invalidate,
	.bind_mw = bind_mw,
	.complete = sim_on_complete,
	.event = sim_on_event,
};
