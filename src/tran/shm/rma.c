/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.c - the peer's registered memory: get, put, atomics.
 *
 * Four ways, in this order:
 *   copy  the memory is of this process, or a memfd of the peer's that we have mapped: a plain
 *         copy;
 *   peer  the peer is progressing, or soon again: it sends (GET) or takes (PUT) the bytes through
 *         the ring, in chunks that stay in the cache. Both cores copy at once, and no page is
 *         pinned;
 *   vm    the peer is busy with something else, and the kernel lets us: process_vm_readv and
 *         _writev, without its help. Also where that is the shorter of the two, as it is where the
 *         cores share no cache, and on some processors always: both are measured (near/cost.h);
 *   peer  again, waking it, where the kernel does not let us.
 * A GET whose peer began and then stopped progressing goes on by `vm`.
 *
 * Memory whose owner may look while it is filled (tran_facts.polled, shm_board.polled) is written
 * by rpwi_copy_up only: what `vm` reads passes a buffer of this side's; into the peer's it does not
 * write.
 *
 * Only ever this process writes its own memory, so that a closed endpoint's buffers are untouched
 * from then on: what still comes for them is dropped. The peer answers for at most SHM_SLOTS
 * operations at a time; the others wait here. So what it must remember is bounded, and a peer that
 * asks for more has broken the rules.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/error.h"
#include "base/turn.h"
#include "ropeway.h"
#include "shm.h"

enum {
	PIECE_COPY = 4 << 20,
	PIECE_STRING = 256 * 1024,
	PIECE_VM = 512 * 1024,
	PIECE_BOUNCED = 64 * 1024,
	WORK_BYTES = 2 << 20,
	SPARE = RING_SPARE_MAX,
	BEAT_LOOKS = 32,
	COMPANY_NS = 3000000,
	TICKS_COMPANY = 64,
	JOB_TURN = 8
};

const char *rpwi_shm_rma_path(const struct shm_link *l)
{
	static _Thread_local char text[112];
	if (l->local)
		return "the same process, plain copies";
	if (l->pvm)
		return "both sides copy, or one by process_vm";
	snprintf(text, sizeof text, "both sides copy (process_vm: %s)", l->pvm_why);
	return text;
}

/* ---- operations ---- */

static bool op_writes(const struct shm_op *op) { return op->kind != SHM_OP_GET; }
static bool op_is_atomic(const struct shm_op *op)
{
	return op->kind == SHM_OP_ADD || op->kind == SHM_OP_SWAP;
}

static unsigned op_access(const struct shm_op *op)
{
	return op->kind == SHM_OP_GET   ? TRAN_READ
	       : op->kind == SHM_OP_PUT ? TRAN_WRITE
					: TRAN_ATOMIC;
}

static struct shm_op *op_new(struct shm_ep *ep, enum shm_op_kind kind, void *cookie)
{
	struct shm *t = ep->t;
	struct shm_op *op;
	if (!rpwi_list_empty(&t->ops_free)) {
		op = RPWI_CONTAINER_OF(t->ops_free.next, struct shm_op, in_ep);
		rpwi_list_del(&op->in_ep);
	} else if (!(op = malloc(sizeof *op))) {
		return NULL;
	}
	*op = (struct shm_op){.ep = ep, .link = ep->link, .kind = kind, .cookie = cookie};
	rpwi_list_init(&op->in_link);
	rpwi_list_add_tail(&ep->ops, &op->in_ep);
	return op;
}

static void op_free(struct shm *t, struct shm_op *op)
{
	rpwi_list_del(&op->in_link);
	rpwi_list_del(&op->in_ep);
	rpwi_list_add_tail(&t->ops_free, &op->in_ep);
}

/* status: of the last error, or 0. */
static void op_finish(struct shm_op *op, int status)
{
	struct shm_ep *ep = op->ep;
	void *cookie = op->cookie;
	op_free(op->link->t, op);
	if (!ep)
		return;
	ep->t->base.up->done(ep->base.user, cookie, status ? rpwi_last_error() : NULL);
	/* A flush is done when all before it are. The endpoint may have failed meanwhile: then its
	 * list is empty. */
	while (!rpwi_list_empty(&ep->ops)) {
		op = RPWI_CONTAINER_OF(ep->ops.next, struct shm_op, in_ep);
		if (op->kind != SHM_OP_FLUSH)
			return;
		cookie = op->cookie;
		op_free(ep->t, op);
		ep->t->base.up->done(ep->base.user, cookie, NULL);
	}
}

static void op_queue(struct shm_op *op, enum shm_op_how how)
{
	struct shm_link *l = op->link;
	op->how = how;
	rpwi_list_del(&op->in_link);
	rpwi_list_add_tail(how == SHM_HOW_WAIT   ? &l->waiting
			   : how == SHM_HOW_PEER ? &l->puts
						 : &l->work,
		&op->in_link);
	l->todo = true;
}

/* ---- slots: what the peer owes an answer ---- */

static void slot_take(struct shm_op *op)
{
	struct shm_link *l = op->link;
	op->slot = (uint32_t)__builtin_ctzll(l->free_slots);
	l->free_slots &= l->free_slots - 1;
	l->slots[op->slot] = op;
	op->how = SHM_HOW_PEER;
}

static uint32_t slot_id(const struct shm_op *op)
{
	return op->link->generation[op->slot] << 6 | op->slot;
}

static void slot_give(struct shm_op *op)
{
	struct shm_link *l = op->link;
	l->slots[op->slot] = NULL;
	l->free_slots |= 1ull << op->slot;
	l->generation[op->slot] = (l->generation[op->slot] + 1) & 0x3ffffff;
	op->how = SHM_HOW_NONE;
	l->todo |= !rpwi_list_empty(&l->waiting);
}

static struct shm_op *slot_find(struct shm_link *l, uint32_t id)
{
	struct shm_op *op = l->slots[id % SHM_SLOTS];
	return op && slot_id(op) == id ? op : NULL;
}

/* ---- by our own hands ---- */

static void atomic_here(const struct shm_op *op, uint8_t *at)
{
	enum tran_atomic kind = op->kind == SHM_OP_ADD ? TRAN_FETCH_ADD : TRAN_COMPARE_SWAP;
	uint64_t before = tran_atomic_here((uint64_t *)(void *)at, kind, op->operand, op->compare);
	if (op->before)
		*op->before = before;
}

static int still_there(struct shm_op *op)
{
	uint64_t addr;
	return rpwi_shm_mem_remote(op->link, &op->desc, op->offset, op->len, op_access(op), &addr);
}

/* Around an access to memory that its owner may give back to its program, or unmap, at any time: it
 * waits until we are done (mem_del). A status; the operation is to be finished with it. */
static int touch_begin(struct shm_op *op)
{
	atomic_store_explicit(&op->link->t->board->touching, op->desc.nonce, memory_order_seq_cst);
	return still_there(op);
}
static void touch_end(struct shm_op *op)
{
	atomic_store_explicit(&op->link->t->board->touching, 0, memory_order_release);
}
/* What another context of this process has registered, maybe in another thread; in mappings of a
 * memfd nobody else is harmed, nor gone. */
static bool touches(const struct shm_op *op) { return op->link->local && !op->link->self; }

static void op_begin(struct shm_op *op);

/* In stretches that memcpy makes with the processor's string instruction: the C library does so up
 * to the size of a core's L2 on AMD, beyond it copies 8% more slowly. */
static void copy_long(uint8_t *to, const uint8_t *from, size_t n, bool polled)
{
	if (polled)
		rpwi_copy_up(to, from, n);
	for (size_t at = polled ? n : 0; at < n; at += PIECE_STRING)
		rpwi_copy(to + at, from + at, RPWI_MIN(n - at, (size_t)PIECE_STRING));
}

static bool peer_polls(const struct shm_link *l)
{
	return atomic_load_explicit(&l->board->polled, memory_order_relaxed);
}

/* Of the bytes that come from the peer: the consumer of its ring tells it. */
static _Atomic uint32_t *fetch_cost(struct shm_link *l) { return &l->rx.shared->fetch_ns; }

/* A piece by plain copy, or an atomic. */
static void piece_here(struct shm_op *op, uint8_t *at, size_t n)
{
	int status = touches(op) ? touch_begin(op) : RPW_OK;
	bool fetches = op->kind == SHM_OP_GET;
	uint64_t began_ns = fetches ? shm_sample(op->link, n) : 0;
	if (!status && op_is_atomic(op))
		atomic_here(op, at);
	else if (!status && op->kind == SHM_OP_PUT)
		copy_long(at + op->done, op->local + op->done, n, peer_polls(op->link));
	else if (!status)
		copy_long(op->local + op->done, at + op->done, n, op->link->t->base.polled);
	if (touches(op))
		touch_end(op);
	shm_sampled(op->link->local ? fetch_cost(op->link) : &op->link->rx.shared->mapped_ns,
		began_ns, n);
	op->done += n;
	if (status || op->done == op->len)
		op_finish(op, status);
}

/* By way of a buffer: the kernel copies in no order, and slowly where rpwi_copy_is_slow. */
static ssize_t vm_read_by(struct shm_op *op, size_t n)
{
	uint8_t bounce[PIECE_BOUNCED + RPWI_COPY_WAY_MORE];
	ssize_t done = 0;
	while ((size_t)done < n) {
		uint8_t *to = op->local + op->done + done;
		void *from = (void *)(uintptr_t)(op->addr + op->done + (size_t)done);
		size_t part = RPWI_MIN(n - (size_t)done, (size_t)PIECE_BOUNCED);
		struct iovec local = {rpwi_copy_way(bounce, to, from), part}, remote = {from, part};
		ssize_t got = process_vm_readv(op->link->pid, &local, 1, &remote, 1, 0);
		if (got <= 0)
			return done ? done : got;
		if (op->link->t->base.polled)
			rpwi_copy_up(to, local.iov_base, (size_t)got);
		else
			rpwi_copy(to, local.iov_base, (size_t)got);
		done += got;
	}
	return done;
}

static ssize_t vm_write_by(struct shm_op *op, size_t n)
{
	uint8_t bounce[PIECE_BOUNCED + RPWI_COPY_WAY_MORE];
	ssize_t done = 0;
	while ((size_t)done < n) {
		const uint8_t *from = op->local + op->done + done;
		void *to = (void *)(uintptr_t)(op->addr + op->done + (size_t)done);
		size_t part = RPWI_MIN(n - (size_t)done, (size_t)PIECE_BOUNCED);
		struct iovec local = {rpwi_copy_way(bounce, to, from), part}, remote = {to, part};
		rpwi_copy(local.iov_base, from, part);
		ssize_t got = process_vm_writev(op->link->pid, &local, 1, &remote, 1, 0);
		if (got <= 0)
			return done ? done : got;
		done += got;
	}
	return done;
}

/* By our own hands through the kernel, or by both sides through the ring: which is shorter is
 * measured. */
static bool vm_is_shorter(struct shm_op *op)
{
	struct shm_link *l = op->link;
	if (op->len < SHM_SAMPLED)
		return false;
	if (op->kind == SHM_OP_PUT)
		return rpwi_cost_second(shm_ring_cost(l->tx.shared), l->put_ns, l->asked_put++);
	return rpwi_cost_second(shm_ring_cost(l->rx.shared),
		atomic_load_explicit(fetch_cost(l), memory_order_relaxed), l->asked_get++);
}

static ssize_t vm_move(struct shm_op *op, size_t n, int *status)
{
	struct iovec local = {op->local + op->done, n},
		     remote = {(void *)(uintptr_t)(op->addr + op->done), n};
	ssize_t got = 0;
	if (op->kind == SHM_OP_GET) {
		bool by = op->link->t->base.polled ||
			  rpwi_copy_is_slow(local.iov_base, remote.iov_base, n);
		got = by ? vm_read_by(op, n)
			 : process_vm_readv(op->link->pid, &local, 1, &remote, 1, 0);
		int error = errno;
		atomic_thread_fence(memory_order_acquire);
		/* else the program may have written there already, or unmapped it */
		*status = still_there(op);
		errno = error;
		return got;
	}
	*status = touch_begin(op);
	if (!*status)
		got = rpwi_copy_is_slow(remote.iov_base, local.iov_base, n)
			      ? vm_write_by(op, n)
			      : process_vm_writev(op->link->pid, &local, 1, &remote, 1, 0);
	touch_end(op);
	return got;
}

static void vm_piece(struct shm_op *op, size_t n)
{
	struct shm_link *l = op->link;
	int status;
	uint64_t began_ns = n < SHM_SAMPLED ? 0 : rpwi_now_ns();
	ssize_t got = vm_move(op, n, &status);
	if (status) {
		op_finish(op, status);
		return;
	}
	if (got > 0) {
		if (began_ns && op->kind == SHM_OP_PUT)
			l->put_ns =
				rpwi_cost_learn(l->put_ns, rpwi_now_ns() - began_ns, (size_t)got);
		else
			shm_sampled(fetch_cost(l), began_ns, (size_t)got);
		op->done += (size_t)got;
		if (op->done == op->len)
			op_finish(op, RPW_OK);
		return;
	}
	int error = got ? errno : EFAULT;
	if (error == ESRCH) {
		rpwi_shm_link_end(l, RPW_ERR_PEER_GONE);
	} else if (error == EPERM || error == ENOSYS) {
		l->pvm = false; /* it was allowed before: another user now, or a filter */
		atomic_store_explicit(fetch_cost(l), RPWI_COST_NEVER, memory_order_relaxed);
		snprintf(l->pvm_why, sizeof l->pvm_why, "%s", strerror(error));
		op_queue(op, SHM_HOW_WAIT);
	} else if (error != EINTR && error != ENOMEM) {
		op_finish(
			op, rpwi_fail(RPW_ERR_ACCESS,
				    "shm: %zu bytes at 0x%llx of process %d can not be %s (%s): "
				    "has that process unmapped them?",
				    n, (unsigned long long)op->addr + op->done, (int)l->pid,
				    op->kind == SHM_OP_PUT ? "written" : "read", strerror(error)));
	}
}

/* The next piece; how many bytes it had at most. By vm only as long as there is no mapping: it may
 * have come since. */
static size_t work_step(struct shm_op *op)
{
	uint64_t addr;
	int status =
		rpwi_shm_mem_remote(op->link, &op->desc, op->offset, op->len, op_access(op), &addr);
	if (status) {
		op_finish(op, status);
		return 0;
	}
	uint8_t *at =
		rpwi_shm_mem_reach(op->link, &op->desc, addr, op->offset, op->len, op_writes(op));
	size_t n = RPWI_MIN(op->len - op->done, at ? (size_t)PIECE_COPY : (size_t)PIECE_VM);
	if (at) {
		piece_here(op, at, n);
	} else if (op->how == SHM_HOW_VM) {
		vm_piece(op, n);
	} else { /* it was unmapped to make room for another */
		rpwi_list_del(&op->in_link);
		op_begin(op);
	}
	return n;
}

/* ---- by the peer's ---- */

/* Has its beat moved since the last look? */
static bool beat_look(struct shm_link *l, uint64_t now_ns)
{
	uint32_t beat = atomic_load_explicit(&l->board->beat, memory_order_relaxed);
	bool moved = beat != l->beat;
	if (moved)
		l->beat_ns = l->beat_looked_ns; /* at the earliest */
	l->beat = beat;
	l->beat_looked_ns = now_ns;
	return moved;
}

/* The peer's thread looks after other contexts, too, and was in this one a moment ago: it will come
 * round again. */
static bool peer_comes_round(struct shm_link *l, uint64_t now_ns)
{
	beat_look(l, now_ns);
	return atomic_load_explicit(&l->board->company, memory_order_relaxed) &&
	       now_ns < l->beat_ns + COMPANY_NS;
}

/* Does the peer make progress now? It is worth some hundred nanoseconds to know, for a transfer
 * that takes longer. */
static bool peer_beats(struct shm_link *l)
{
	if (atomic_load_explicit(&l->board->sleeping, memory_order_relaxed))
		return false;
	uint64_t now_ns = rpwi_now_ns();
	if (peer_comes_round(l, now_ns))
		return true;
	for (int i = 0; i < BEAT_LOOKS; i++) {
		rpwi_turn_pause();
		if (beat_look(l, now_ns))
			return true;
	}
	return false;
}

static int put_chunk(struct shm_op *op)
{
	size_t left = op->len - op->done,
	       n = RPWI_MIN(
		       left, op->len > SHM_SMALL_MAX ? (size_t)SHM_CHUNK : (size_t)SHM_CHUNK_SMALL);
	struct shm_ctl ctl = {.id = slot_id(op),
		.index = op->desc.index,
		.nonce = op->desc.nonce,
		.offset = op->offset + op->done,
		.a = left - n};
	int rc = rpwi_shm_link_ctl(op->link, SHM_PUT, 0, &ctl, op->local + op->done, n, SPARE);
	if (rc)
		return rc;
	op->done += n;
	if (op->done == op->len) {
		op->sent = true;
		rpwi_list_del(&op->in_link);
	}
	return 0;
}

/* Ask the peer, when there is a slot and room. 0, -EAGAIN, -EPROTO. */
static int peer_start(struct shm_op *op)
{
	static const uint8_t kinds[] = {
		[SHM_OP_GET] = SHM_GET, [SHM_OP_ADD] = SHM_ADD, [SHM_OP_SWAP] = SHM_SWAP};
	struct shm_link *l = op->link;
	if (!l->free_slots)
		return -EAGAIN;
	slot_take(op);
	if (op->kind == SHM_OP_PUT) {
		op_queue(op, SHM_HOW_PEER);
		return 0;
	}
	struct shm_ctl ctl = {.id = slot_id(op),
		.index = op->desc.index,
		.nonce = op->desc.nonce,
		.offset = op->offset + op->done,
		.a = op->kind == SHM_OP_GET ? op->len - op->done : op->operand,
		.b = op->compare};
	int rc = rpwi_shm_link_ctl(l, kinds[op->kind], 0, &ctl, NULL, 0, 0);
	if (rc) {
		slot_give(op);
		op->how = SHM_HOW_WAIT;
		return rc;
	}
	rpwi_list_del(&op->in_link);
	op->seen = op->done;
	op->ticks = 0;
	return 0;
}

/* Choose the way, and go as far as one call may. */
static void op_begin(struct shm_op *op)
{
	struct shm_link *l = op->link;
	int status =
		rpwi_shm_mem_remote(l, &op->desc, op->offset, op->len, op_access(op), &op->addr);
	if (!status && op_is_atomic(op) && op->addr % 8)
		status = rpwi_fail(RPW_ERR_ACCESS,
			"shm: an atomic needs 8 aligned bytes; 0x%llx is not",
			(unsigned long long)op->addr);
	if (status || !op->len) {
		op_finish(op, status);
		return;
	}
	uint8_t *at =
		rpwi_shm_mem_reach(l, &op->desc, op->addr, op->offset, op->len, op_writes(op));
	if (at && (op_is_atomic(op) || op->len - op->done <= SHM_INLINE_COPY)) {
		piece_here(op, at, op->len - op->done);
	} else if (at) {
		op_queue(op, SHM_HOW_COPY);
	} else if (l->pvm && !op_is_atomic(op) && !(op->kind == SHM_OP_PUT && peer_polls(l)) &&
		   (vm_is_shorter(op) || (!~l->free_slots && !peer_beats(l)))) {
		op_queue(op, SHM_HOW_VM);
		if (op->len <= SHM_INLINE_VM)
			vm_piece(op, op->len);
	} else if (!rpwi_list_empty(&l->waiting) || peer_start(op)) {
		op_queue(op, SHM_HOW_WAIT);
	} else if (op->kind == SHM_OP_PUT) {
		put_chunk(op); /* what does not fit now follows in the next rounds */
	}
}

/* ---- the three operations ---- */

/* What the peer described, and where in it. Version 0 is refused by rpwi_shm_mem_remote. */
static void op_target(struct shm_op *op, const struct tran_desc *remote, uint64_t offset)
{
	struct shm_desc *d = &op->desc;
	memset(d, 0, sizeof *d);
	if (remote->len == sizeof *d)
		memcpy(d, remote->bytes, sizeof *d);
	if (__builtin_add_overflow(offset, d->base, &op->offset))
		op->offset = UINT64_MAX; /* beyond all memory */
}

int rpwi_shm_rma(struct tran_ep *base, bool is_put, const struct tran_desc *remote, uint64_t offset,
	void *local, size_t len, const struct tran_mem *mem, void *cookie)
{
	struct shm_ep *ep = shm_ep_of(base);
	if (ep->state != SHM_EP_READY)
		return tran_path_over(base);
	struct shm_op *op = op_new(ep, is_put ? SHM_OP_PUT : SHM_OP_GET, cookie);
	if (!op)
		return tran_no_memory(base->tran, "an operation");
	op_target(op, remote, offset);
	op->local = local;
	op->len = len;
	op_begin(op);
	return 0;
}

int rpwi_shm_atomic(struct tran_ep *base, enum tran_atomic kind, const struct tran_desc *remote,
	uint64_t offset, uint64_t operand, uint64_t compare, uint64_t *before, void *cookie)
{
	struct shm_ep *ep = shm_ep_of(base);
	if (ep->state != SHM_EP_READY)
		return tran_path_over(base);
	struct shm_op *op = op_new(ep, kind == TRAN_FETCH_ADD ? SHM_OP_ADD : SHM_OP_SWAP, cookie);
	if (!op)
		return tran_no_memory(base->tran, "an operation");
	op_target(op, remote, offset);
	op->operand = operand;
	op->compare = compare;
	op->before = before;
	op->len = 8;
	op_begin(op);
	return 0;
}

int rpwi_shm_flush(struct tran_ep *base, void *cookie)
{
	struct shm_ep *ep = shm_ep_of(base);
	if (ep->state != SHM_EP_READY)
		return tran_path_over(base);
	/* the answers to puts and atomics come after they took effect */
	if (rpwi_list_empty(&ep->ops))
		ep->t->base.up->done(base->user, cookie, NULL);
	else if (!op_new(ep, SHM_OP_FLUSH, cookie))
		return tran_no_memory(base->tran, "an operation");
	return 0;
}

/* ---- what the peer asks of us ---- */

static bool answer(struct shm_link *l, uint32_t id, int status, uint64_t value)
{
	struct shm_ctl ctl = {.id = id, .a = (uint64_t)(int64_t)status, .b = value};
	return rpwi_shm_link_reply(l, SHM_ACK, 0, &ctl);
}

static bool serve_get(struct shm_link *l, const struct shm_ctl *ctl)
{
	if (!ctl->a ||
		!rpwi_shm_mem_own(l->t, ctl->index, ctl->nonce, ctl->offset, ctl->a, TRAN_READ))
		return answer(l, ctl->id, RPW_ERR_ACCESS, 0);
	if (!l->jobs && !(l->jobs = calloc(SHM_SLOTS, sizeof *l->jobs)))
		return false;
	if (l->job_count == SHM_SLOTS)
		return false;
	l->jobs[l->job_count++] = (struct shm_job){.id = ctl->id,
		.index = ctl->index,
		.nonce = ctl->nonce,
		.offset = ctl->offset,
		.left = ctl->a,
		.len = ctl->a};
	l->todo = true;
	return true;
}

/* Into memory of this side. */
static void place(struct shm_link *l, uint8_t *at, const uint8_t *body, size_t n)
{
	if (l->t->base.polled)
		rpwi_copy_up(at, body, n);
	else
		rpwi_copy(at, body, n);
}

static bool serve_put(struct shm_link *l, const struct ring_frame *f, const struct shm_ctl *ctl)
{
	uint8_t *at = rpwi_shm_mem_own(
		l->t, ctl->index, ctl->nonce, ctl->offset, f->body_len, TRAN_WRITE);
	if (!at)
		return answer(l, ctl->id, RPW_ERR_ACCESS, 0);
	place(l, at, f->body, f->body_len);
	return ctl->a || answer(l, ctl->id, RPW_OK, 0);
}

static bool serve_atomic(struct shm_link *l, const struct ring_frame *f, const struct shm_ctl *ctl)
{
	uint64_t before = 0;
	uint8_t *at = rpwi_shm_mem_own(l->t, ctl->index, ctl->nonce, ctl->offset, 8, TRAN_ATOMIC);
	if (!at || (uintptr_t)at % 8)
		return answer(l, ctl->id, RPW_ERR_ACCESS, 0);
	struct shm_op op = {.kind = f->kind == SHM_ADD ? SHM_OP_ADD : SHM_OP_SWAP,
		.operand = ctl->a,
		.compare = ctl->b,
		.before = &before};
	atomic_here(&op, at);
	return answer(l, ctl->id, RPW_OK, before);
}

/* One chunk of a GET. 0, or -EAGAIN: no room. Done or refused jobs go. */
static int job_chunk(struct shm_link *l, unsigned which)
{
	struct shm_job *j = &l->jobs[which];
	size_t n = RPWI_MIN(
		j->left, j->len > SHM_SMALL_MAX ? (uint64_t)SHM_CHUNK : (uint64_t)SHM_CHUNK_SMALL);
	const uint8_t *from = rpwi_shm_mem_own(l->t, j->index, j->nonce, j->offset, n, TRAN_READ);
	struct shm_ctl ctl = {.id = j->id};
	if (from) {
		int rc = rpwi_shm_link_ctl(l, SHM_DATA, 0, &ctl, from, n, SPARE);
		if (rc)
			return rc;
		j->offset += n;
		j->left -= n;
	} else if (!answer(l, j->id, RPW_ERR_ACCESS, 0)) { /* released meanwhile */
		return -EAGAIN;
	}
	if (!from || !j->left)
		*j = l->jobs[--l->job_count];
	return 0;
}

/* ---- what it answers ---- */

static bool take_data(struct shm_link *l, const struct ring_frame *f, const struct shm_ctl *ctl)
{
	struct shm_op *op = slot_find(l, ctl->id);
	if (!op || op->kind != SHM_OP_GET || !f->body_len || f->body_len > op->len - op->done)
		return false;
	if (op->ep)
		place(l, op->local + op->done, f->body, f->body_len);
	op->done += f->body_len;
	if (op->done == op->len) {
		slot_give(op);
		op_finish(op, RPW_OK);
	}
	return true;
}

static bool take_ack(struct shm_link *l, const struct shm_ctl *ctl)
{
	struct shm_op *op = slot_find(l, ctl->id);
	int status = ctl->a ? RPW_ERR_ACCESS : RPW_OK;
	/* each refused piece of a PUT is answered; the first answer ended it */
	if (!op)
		return true;
	if (!status && (op->kind == SHM_OP_GET || (op->kind == SHM_OP_PUT && !op->sent)))
		return false;
	if (!status && op->kind != SHM_OP_PUT && op->ep && op->before)
		*op->before = ctl->b;
	if (status)
		rpwi_fail(status,
			"shm: process %d refused the access: outside of what it registered, or "
			"released meanwhile",
			(int)l->pid);
	slot_give(op);
	op_finish(op, status);
	return true;
}

bool rpwi_shm_rma_ctl(struct shm_link *l, const struct ring_frame *f, const struct shm_ctl *ctl)
{
	struct shm_mem *m;
	switch (f->kind) {
	case SHM_GET:
		return serve_get(l, ctl);
	case SHM_PUT:
		return serve_put(l, f, ctl);
	case SHM_ADD:
	case SHM_SWAP:
		return serve_atomic(l, f, ctl);
	case SHM_DATA:
		return take_data(l, f, ctl);
	case SHM_ACK:
		return take_ack(l, ctl);
	case SHM_MAP:
		m = rpwi_shm_mem_find(l->t, ctl->index, ctl->nonce);
		if (m && m->fd >= 0 && l->socket.fd >= 0 && rpwi_shm_link_pass(l, m))
			rpwi_debug("shm: a descriptor for process %d did not fit into its socket: "
				   "it goes on without mapping",
				(int)l->pid);
		return true;
	case SHM_UNMAP:
		rpwi_shm_mem_unmap(l, ctl->index, ctl->nonce);
		return true;
	default:
		return false;
	}
}

/* ---- moving on ---- */

static unsigned pump(struct shm_link *l)
{
	unsigned n = 0;
	for (; n < SHM_PUMP_BATCH && (l->job_count || !rpwi_list_empty(&l->puts)); n++) {
		if (l->job_count && (n % 2 || rpwi_list_empty(&l->puts))) {
			if (job_chunk(l, l->job_next / JOB_TURN % l->job_count))
				break;
			l->job_next++;
		} else {
			struct shm_op *op = RPWI_CONTAINER_OF(l->puts.next, struct shm_op, in_link);
			if (put_chunk(op))
				break;
		}
	}
	return n;
}

unsigned rpwi_shm_rma_round(struct shm_link *l)
{
	unsigned n = pump(l);
	while (!rpwi_list_empty(&l->waiting)) {
		if (peer_start(RPWI_CONTAINER_OF(l->waiting.next, struct shm_op, in_link)))
			break;
		n++;
	}
	/* Each of those that are there now, once at most: finished ones post more. A round has a
	 * bound, so that nobody else waits for many large ones, nor a descriptor that would speed
	 * them up. */
	size_t count = 0;
	for (struct rpwi_list *at = l->work.next; at != &l->work; at = at->next)
		count++;
	for (size_t bytes = 0; count && bytes < WORK_BYTES && !rpwi_list_empty(&l->work);
		count--, n++) {
		struct shm_op *op = RPWI_CONTAINER_OF(l->work.next, struct shm_op, in_link);
		rpwi_list_del(&op->in_link);
		rpwi_list_add_tail(&l->work, &op->in_link);
		bytes += work_step(op);
	}
	return n;
}

bool rpwi_shm_rma_pending(const struct shm_link *l)
{
	return l->job_count || !rpwi_list_empty(&l->puts) || !rpwi_list_empty(&l->work) ||
	       (!rpwi_list_empty(&l->waiting) && l->free_slots);
}

bool rpwi_shm_rma_can_go(struct shm_link *l)
{
	if (!rpwi_list_empty(&l->work))
		return true;
	if (!rpwi_list_empty(&l->waiting) && l->free_slots && ring_tx_room(&l->tx, 0, 0) != -EAGAIN)
		return true;
	return (l->job_count || !rpwi_list_empty(&l->puts)) &&
	       ring_tx_room(&l->tx, ring_bulk_need(sizeof(struct shm_ctl), SHM_CHUNK), SPARE) !=
		       -EAGAIN;
}

/* A GET that no data came for since the last tick but one, or for longer from a peer that comes
 * round: it does something else. Bytes that may still come for it are dropped by an operation that
 * stands in its slot. */
static void get_take_over(struct shm_op *op)
{
	struct shm_link *l = op->link;
	struct shm_op *stand_in = malloc(sizeof *stand_in);
	if (!stand_in)
		return;
	*stand_in = *op;
	stand_in->ep = NULL;
	rpwi_list_init(&stand_in->in_ep);
	rpwi_list_init(&stand_in->in_link);
	l->slots[op->slot] = stand_in;
	op_queue(op, SHM_HOW_VM);
}

void rpwi_shm_rma_tick(struct shm_link *l)
{
	if (!~l->free_slots || !l->pvm)
		return;
	unsigned patience = peer_comes_round(l, rpwi_now_ns()) ? TICKS_COMPANY : 2;
	for (unsigned i = 0; i < SHM_SLOTS; i++) {
		struct shm_op *op = l->slots[i];
		if (!op || !op->ep || op->kind != SHM_OP_GET)
			continue;
		if (op->seen != op->done) {
			op->seen = op->done;
			op->ticks = 0;
		} else if (++op->ticks >= patience) {
			get_take_over(op);
		}
	}
}

bool rpwi_shm_rma_needs_tick(const struct shm_link *l) { return l->pvm && ~l->free_slots; }

void rpwi_shm_rma_ep_close(struct shm_ep *ep)
{
	while (!rpwi_list_empty(&ep->ops)) {
		struct shm_op *op = RPWI_CONTAINER_OF(ep->ops.next, struct shm_op, in_ep);
		rpwi_list_del(&op->in_ep);
		op->ep = NULL;
		/* An answer that is owed keeps its slot; a PUT that has not been sent wholly gets
		 * none. */
		bool owed = op->how == SHM_HOW_PEER && (op->kind != SHM_OP_PUT || op->sent);
		if (owed)
			continue;
		if (op->how == SHM_HOW_PEER)
			slot_give(op);
		op_free(ep->t, op);
	}
}

void rpwi_shm_rma_link_end(struct shm_link *l)
{
	for (unsigned i = 0; i < SHM_SLOTS; i++)
		if (l->slots[i])
			op_free(l->t, l->slots[i]);
	memset(l->slots, 0, sizeof l->slots);
	l->free_slots = UINT64_MAX;
	struct rpwi_list *lists[] = {&l->work, &l->waiting, &l->puts};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		while (!rpwi_list_empty(lists[i]))
			op_free(l->t, RPWI_CONTAINER_OF(lists[i]->next, struct shm_op, in_link));
	free(l->jobs);
	l->jobs = NULL;
	l->job_count = 0;
}
