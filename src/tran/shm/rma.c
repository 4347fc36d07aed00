/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.c - the peer's registered memory: get, put, atomics.
 *
 * Four ways, in this order:
 *   copy  the memory is of this process, or a memfd of the peer's that we have mapped: a plain
 *         copy;
 *   peer  the peer is progressing, or soon again, or sleeps and much is to be moved: it sends
 *         (GET) or takes (PUT) the bytes through the ring, in pieces that stay in the cache. Both
 *         cores copy at once, and no page is pinned;
 *   vm    the peer is busy with something else, and the kernel lets us: process_vm_readv and
 *         _writev, without its help. Also where that is the shorter of the two, as it is where the
 *         cores share no cache, and on some processors always: both are measured (near/cost.h);
 *   peer  again, waking it, where the kernel does not let us.
 * A GET whose peer began and then stopped progressing goes on by `vm`. `copy` and `vm` are here.
 * tran/emulate_ask.c keeps the operations that one call does not finish, and asks the peer.
 *
 * Memory whose owner may look while it is filled (tran_facts.polled, shm_board.polled) is written
 * by rpwi_copy_up only: what `vm` reads passes a buffer of this side's; into the peer's it does not
 * write.
 *
 * Only ever this process writes its own memory, so that a closed endpoint's buffers are untouched
 * from then on: what still comes for them is dropped.
 */
#include <stdio.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/error.h"
#include "base/turn.h"
#include "near/process.h"
#include "ropeway.h"
#include "shm.h"

enum {
	PIECE_COPY = 4 << 20,
	PIECE_STRING = 256 * 1024,
	PIECE_VM = 512 * 1024,
	PIECE_BOUNCED = 64 * 1024,
	WORK_BYTES = 2 << 20,
	WOKEN_FOR = 1 << 20,
	SPARE = RING_SPARE_MAX,
	BEAT_LOOKS = 32,
	COMPANY_NS = 3000000,
	TICKS_COMPANY = 64
};

const char *rpwi_shm_rma_path(const struct shm_link *l, char text[RPWI_SHM_WAY])
{
	if (l->local)
		return "the same process, plain copies";
	if (l->pvm)
		return "large data: both sides copy while the peer polls, else process_vm (or "
		       "where "
		       "that is faster)";
	snprintf(text, RPWI_SHM_WAY, "large data: both sides copy (process_vm: %s)", l->pvm_why);
	return text;
}

static bool is_atomic(const struct emulated_move *m)
{
	return m->kind == EMULATED_ADD || m->kind == EMULATED_SWAP;
}

static unsigned access_of(const struct emulated_move *m)
{
	if (is_atomic(m))
		return TRAN_ATOMIC;
	return m->kind == EMULATED_GET ? TRAN_READ : TRAN_WRITE;
}

static int still_there(struct shm_link *l, const struct emulated_move *m, struct shm_there *there)
{
	return rpwi_shm_mem_remote(l, m, access_of(m), there);
}

/* ---- by our own hands ---- */

/* Around an access to memory that its owner may give back to its program, or unmap, at any time: it
 * waits until we are done (mem_del). A status; the operation is to be finished with it. */
static int touch_begin(struct shm_link *l, const struct emulated_move *m)
{
	struct shm_there there;
	atomic_store_explicit(&l->t->board->touching, m->key, memory_order_seq_cst);
	return still_there(l, m, &there);
}
static void touch_end(struct shm_link *l)
{
	atomic_store_explicit(&l->t->board->touching, 0, memory_order_release);
}
/* What another context of this process has registered, maybe in another thread; in mappings of a
 * memfd nobody else is harmed, nor gone. */
static bool touches(const struct shm_link *l) { return l->local && !l->self; }

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

static void copy_here(
	struct shm_link *l, const struct emulated_move *m, uint8_t *at, uint8_t *local, size_t n)
{
	if (m->kind == EMULATED_GET) {
		uint64_t began_ns = shm_sample(l, n);
		copy_long(local, at, n, l->t->base.polled);
		rpwi_cost_sampled(l->local ? fetch_cost(l) : &l->rx.shared->mapped_ns, began_ns, n);
	} else if (m->kind == EMULATED_PUT) {
		copy_long(at, local, n, peer_polls(l));
	} else {
		uint64_t before = tran_atomic_here((uint64_t *)(void *)at,
			m->kind == EMULATED_ADD ? TRAN_FETCH_ADD : TRAN_COMPARE_SWAP, m->operand,
			m->compare);
		if (m->before)
			*m->before = before;
	}
}

/* A piece by plain copy, or an atomic. */
static int piece_here(struct shm_link *l, const struct emulated_move *m, uint8_t *at, size_t n)
{
	uint8_t *local = (uint8_t *)m->local;
	if (m->done) /* never of an atomic, which has no local bytes */
		local += m->done;
	if (!touches(l)) {
		copy_here(l, m, at + m->done, local, n);
		return RPW_OK;
	}
	int status = touch_begin(l, m);
	if (!status)
		copy_here(l, m, at + m->done, local, n);
	touch_end(l);
	return status;
}

/* By way of a buffer: the kernel copies in no order, and slowly where rpwi_copy_is_slow. */
static ssize_t vm_read_by(struct shm_link *l, uint8_t *to, const uint8_t *from, size_t n)
{
	uint8_t bounce[PIECE_BOUNCED + RPWI_COPY_WAY_MORE];
	ssize_t done = 0;
	while ((size_t)done < n) {
		uint8_t *by = rpwi_copy_way(bounce, to + done, from + done);
		ssize_t got = rpwi_process_read(
			l->pid, by, from + done, RPWI_MIN(n - (size_t)done, (size_t)PIECE_BOUNCED));
		if (got <= 0)
			return done ? done : got;
		if (l->t->base.polled)
			rpwi_copy_up(to + done, by, (size_t)got);
		else
			rpwi_copy(to + done, by, (size_t)got);
		done += got;
	}
	return done;
}

static ssize_t vm_write_by(struct shm_link *l, uint8_t *to, const uint8_t *from, size_t n)
{
	uint8_t bounce[PIECE_BOUNCED + RPWI_COPY_WAY_MORE];
	ssize_t done = 0;
	while ((size_t)done < n) {
		size_t part = RPWI_MIN(n - (size_t)done, (size_t)PIECE_BOUNCED);
		uint8_t *by = rpwi_copy_way(bounce, to + done, from + done);
		rpwi_copy(by, from + done, part);
		ssize_t got = rpwi_process_write(l->pid, to + done, by, part);
		if (got <= 0)
			return done ? done : got;
		done += got;
	}
	return done;
}

static ssize_t vm_get(struct shm_link *l, uint8_t *to, const uint8_t *from, size_t n)
{
	if (l->t->base.polled || rpwi_copy_is_slow(to, from, n))
		return vm_read_by(l, to, from, n);
	return rpwi_process_read(l->pid, to, from, n);
}

static ssize_t vm_put(struct shm_link *l, uint8_t *to, const uint8_t *from, size_t n)
{
	if (rpwi_copy_is_slow(to, from, n))
		return vm_write_by(l, to, from, n);
	return rpwi_process_write(l->pid, to, from, n);
}

/* By our own hands through the kernel, or by both sides through the ring: which is shorter is
 * measured. */
static bool vm_is_shorter(struct shm_link *l, const struct emulated_move *m)
{
	if (m->len < SHM_SAMPLED)
		return false;
	if (m->kind == EMULATED_PUT)
		return rpwi_cost_second(shm_ring_cost(l->tx.shared), l->put_ns, l->asked_put++);
	return rpwi_cost_second(shm_ring_cost(l->rx.shared),
		atomic_load_explicit(fetch_cost(l), memory_order_relaxed), l->asked_get++);
}

static ssize_t vm_move(
	struct shm_link *l, const struct emulated_move *m, uint64_t addr, size_t n, int *status)
{
	uint8_t *here = (uint8_t *)m->local + m->done,
		*there = (uint8_t *)(uintptr_t)addr + m->done;
	struct shm_there again;
	ssize_t got = 0;
	if (m->kind == EMULATED_GET) {
		got = vm_get(l, here, there, n);
		atomic_thread_fence(memory_order_acquire);
		/* else the program may have written there already, or unmapped it */
		*status = still_there(l, m, &again);
		return got;
	}
	*status = touch_begin(l, m);
	if (!*status)
		got = vm_put(l, there, here, n);
	touch_end(l);
	return got;
}

static int vm_failed(
	struct shm_link *l, const struct emulated_move *m, uint64_t addr, size_t n, int error)
{
	if (error == ESRCH)
		rpwi_shm_link_end(l, RPW_ERR_PEER_GONE);
	if (error == ESRCH || error == EINTR || error == ENOMEM)
		return RPWI_LATER;
	if (error == EPERM || error == ENOSYS) {
		l->pvm = false; /* it was allowed before: another user now, or a filter */
		atomic_store_explicit(fetch_cost(l), RPWI_COST_NEVER, memory_order_relaxed);
		snprintf(l->pvm_why, sizeof l->pvm_why, "%s", strerror(error));
		return TRAN_ASK;
	}
	return rpwi_fail(RPW_ERR_ACCESS,
		"shm: %zu bytes at 0x%llx of process %d can not be %s (%s): has that process "
		"unmapped them?",
		n, (unsigned long long)addr + m->done, (int)l->pid,
		m->kind == EMULATED_PUT ? "written" : "read", strerror(error));
}

static int vm_piece(
	struct shm_link *l, const struct emulated_move *m, uint64_t addr, size_t n, size_t *moved)
{
	int status;
	uint64_t began_ns = n < SHM_SAMPLED ? 0 : rpwi_now_ns();
	ssize_t got = vm_move(l, m, addr, n, &status);
	if (status)
		return status;
	if (got <= 0)
		return vm_failed(l, m, addr, n, got ? (int)-got : EFAULT);
	rpwi_cost_sampled(
		m->kind == EMULATED_PUT ? &l->put_ns : fetch_cost(l), began_ns, (size_t)got);
	*moved = (size_t)got;
	return 0;
}

/* ---- the peer ---- */

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

/* Does the peer make progress now, or as soon as it is woken? Some hundred nanoseconds are worth
 * the answer, and a long transfer is worth the wake-up: a peer that sleeps because all goes by `vm`
 * would never show how fast the ring is. */
static bool peer_helps(struct shm_link *l, size_t len)
{
	if (atomic_load_explicit(&l->board->sleeping, memory_order_relaxed))
		return len >= WOKEN_FOR;
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

/* ---- operations ---- */

static void done(struct shm_ep *ep, const struct emulated_move *m, int status)
{
	ep->t->base.up->done(ep->base.user, m->cookie, status ? rpwi_last_error() : NULL);
}

static void enqueue(struct shm_ep *ep, struct rpwi_list *in, struct rpwi_list *queue)
{
	ep->link->todo = true;
	if (rpwi_list_empty(in))
		rpwi_list_add_tail(queue, in);
}

/* Has it something to be moved by hand, or to be waited for? */
static void queues_look(struct shm_ep *ep)
{
	if (emulate_can_step(&ep->base))
		enqueue(ep, &ep->in_work, &ep->link->work);
	if (!emulate_is_idle(&ep->base) && rpwi_list_empty(&ep->in_asking))
		rpwi_list_add_tail(&ep->link->asking, &ep->in_asking);
}

/* Is the peer asked for nothing, by any endpoint? */
static bool link_is_idle(struct shm_link *l)
{
	while (!rpwi_list_empty(&l->asking)) {
		struct shm_ep *ep = RPWI_CONTAINER_OF(l->asking.next, struct shm_ep, in_asking);
		if (!emulate_is_idle(&ep->base))
			return false;
		rpwi_list_del(&ep->in_asking);
	}
	return true;
}

/* Those that cannot be finished in one call. */
static int go_on(struct shm_ep *ep, const struct emulated_move *m)
{
	int rc = emulate_begin(&ep->base, m);
	queues_look(ep);
	return rc;
}

/* Choose the way, and go as far as one call may. */
static int begin(struct shm_ep *ep, struct emulated_move *m, struct shm_there *there)
{
	struct shm_link *l = ep->link;
	uint8_t *at = rpwi_shm_mem_reach(l, m, there);
	if (at && (is_atomic(m) || m->len <= SHM_INLINE_COPY)) {
		done(ep, m, piece_here(l, m, at, m->len));
		return 0;
	}
	m->by_hand =
		at || (l->pvm && !is_atomic(m) && !(m->kind == EMULATED_PUT && peer_polls(l)) &&
			      (vm_is_shorter(l, m) || (link_is_idle(l) && !peer_helps(l, m->len))));
	if (!at && m->by_hand && m->len <= SHM_INLINE_VM) {
		size_t moved = 0;
		int rc = vm_piece(l, m, there->addr, m->len, &moved);
		m->done = moved;
		m->by_hand = rc != TRAN_ASK;
		if (rc < 0 || moved == m->len) {
			done(ep, m, rc);
			return 0;
		}
	}
	return go_on(ep, m);
}

static int reach_begin(struct tran_ep *base, struct emulated_move *m,
	const struct tran_desc *remote, uint64_t offset)
{
	struct shm_ep *ep = shm_ep_of(base);
	struct shm_there there;
	if (ep->state != SHM_EP_READY)
		return tran_path_over(base);
	int rc = rpwi_shm_mem_target(ep->link, m, remote, offset);
	if (!rc)
		rc = still_there(ep->link, m, &there);
	if (!rc && is_atomic(m) && there.addr % 8)
		rc = rpwi_fail(RPW_ERR_ACCESS,
			"shm: an atomic needs 8 aligned bytes; 0x%llx is not",
			(unsigned long long)there.addr);
	if (!rc && m->len)
		return begin(ep, m, &there);
	done(ep, m, rc);
	return 0;
}

/* By vm only as long as there is no mapping: it may have come since; or it was unmapped to make
 * room for another. */
static int reach_step(struct tran_ep *base, const struct emulated_move *m, size_t *moved)
{
	struct shm_link *l = shm_ep_of(base)->link;
	struct shm_there there;
	int status = still_there(l, m, &there);
	if (status)
		return status;
	uint8_t *at = rpwi_shm_mem_reach(l, m, &there);
	size_t left = m->len - m->done;
	if (!at)
		return l->pvm && !(m->kind == EMULATED_PUT && peer_polls(l))
			       ? vm_piece(l, m, there.addr, RPWI_MIN(left, (size_t)PIECE_VM), moved)
			       : TRAN_ASK;
	size_t n = RPWI_MIN(left, (size_t)PIECE_COPY);
	status = piece_here(l, m, at, n);
	*moved = status ? 0 : n;
	return status;
}

static int reach_send(
	struct tran_ep *base, const void *head, size_t head_len, const void *body, size_t len)
{
	struct shm_ep *ep = shm_ep_of(base);
	struct shm_link *l = ep->link;
	if (ep->state != SHM_EP_READY)
		return tran_path_over(base);
	int rc = rpwi_shm_link_put(
		l, SHM_MEMORY, ep->peer_index, head, head_len, body, len, len ? SPARE : 0);
	if (rc == -EPROTO)
		rpwi_shm_link_end(l, RPW_ERR_PROTOCOL);
	if (rc)
		enqueue(ep, &ep->in_blocked, &l->blocked);
	return rc ? RPWI_LATER : 0;
}

static size_t reach_piece(size_t len)
{
	return len > SHM_SMALL_MAX ? (size_t)SHM_CHUNK : (size_t)SHM_CHUNK_SMALL;
}

static uint8_t *reach_own(
	struct tran *t, uint32_t slot, uint64_t key, uint64_t offset, uint64_t len, unsigned access)
{
	return rpwi_shm_mem_own(shm_of(t), slot, key, offset, len, access);
}

const struct tran_reach_ops rpwi_shm_reach = {.begin = reach_begin,
	.step = reach_step,
	.own = reach_own,
	.send = reach_send,
	.piece = reach_piece};

void rpwi_shm_rma_breach(struct tran_ep *ep, const struct rpwi_error *e)
{
	struct shm_link *l = shm_ep_of(ep)->link;
	rpwi_debug("shm: process %d: %s", (int)l->pid, e->text);
	rpwi_shm_link_end(l, RPW_ERR_PROTOCOL);
}

bool rpwi_shm_rma_frame(struct shm_link *l, const struct ring_frame *f)
{
	struct shm_ep *ep = rpwi_shm_ep_find(l->t, f->endpoint);
	if (!f->head_len || *f->head < TRAN_OWN_HEADS)
		return false;
	if (ep && ep->link == l && ep->state == SHM_EP_READY)
		emulate_frame(&ep->base, f->head, f->head_len, f->body, f->body_len);
	return !l->dead_soon || l->dead_status != RPW_ERR_PROTOCOL;
}

bool rpwi_shm_rma_ctl(struct shm_link *l, const struct ring_frame *f, const struct shm_ctl *ctl)
{
	if (f->kind == SHM_UNMAP)
		rpwi_shm_mem_unmap(l, ctl->index, ctl->nonce);
	if (f->kind != SHM_MAP)
		return f->kind == SHM_UNMAP;
	struct shm_mem *m = rpwi_shm_mem_find(l->t, ctl->index, ctl->nonce);
	if (m && m->fd >= 0 && l->socket.fd >= 0 && rpwi_shm_link_pass(l, m))
		rpwi_debug("shm: a descriptor for process %d did not fit into its socket: it goes "
			   "on without mapping",
			(int)l->pid);
	return true;
}

/* ---- moving on ---- */

static bool blocked_can_go(struct shm_link *l)
{
	return !rpwi_list_empty(&l->blocked) &&
	       ring_tx_room(&l->tx, ring_bulk_need(RING_INLINE, SHM_CHUNK), SPARE) != -EAGAIN;
}

unsigned rpwi_shm_rma_round(struct shm_link *l)
{
	unsigned n = 0;
	for (; blocked_can_go(l) && n < SHM_PUMP_BATCH; n++) {
		struct shm_ep *ep = RPWI_CONTAINER_OF(l->blocked.next, struct shm_ep, in_blocked);
		rpwi_list_del(&ep->in_blocked);
		emulate_room(&ep->base);
		queues_look(ep);
	}
	/* A round has a bound, so that nobody else waits for many large ones, nor a descriptor that
	 * would speed them up. */
	size_t count = 0;
	for (struct rpwi_list *at = l->work.next; at != &l->work; at = at->next)
		count++;
	for (size_t bytes = 0; count && bytes < WORK_BYTES && !rpwi_list_empty(&l->work);
		count--, n++) {
		struct shm_ep *ep = RPWI_CONTAINER_OF(l->work.next, struct shm_ep, in_work);
		rpwi_list_del(&ep->in_work);
		bytes += emulate_step(&ep->base);
		queues_look(ep);
	}
	return n;
}

bool rpwi_shm_rma_pending(const struct shm_link *l)
{
	return !rpwi_list_empty(&l->blocked) || !rpwi_list_empty(&l->work);
}

bool rpwi_shm_rma_can_go(struct shm_link *l)
{
	return !rpwi_list_empty(&l->work) || blocked_can_go(l);
}

/* A GET that nothing came for since the last tick but one, or for longer from a peer that comes
 * round: it does something else. */
void rpwi_shm_rma_tick(struct shm_link *l)
{
	if (!rpwi_shm_rma_needs_tick(l))
		return;
	unsigned patience = peer_comes_round(l, rpwi_now_ns()) ? TICKS_COMPANY : 2;
	struct rpwi_list asking = {&asking, &asking};
	while (!rpwi_list_empty(&l->asking))
		rpwi_list_add_tail(&asking, rpwi_list_pop(&l->asking));
	while (!rpwi_list_empty(&asking)) {
		struct shm_ep *ep = RPWI_CONTAINER_OF(asking.next, struct shm_ep, in_asking);
		rpwi_list_del(&ep->in_asking);
		emulate_tick(&ep->base, patience);
		queues_look(ep);
	}
}

bool rpwi_shm_rma_needs_tick(const struct shm_link *l)
{
	return l->pvm && !rpwi_list_empty(&l->asking);
}

void rpwi_shm_rma_ep_close(struct shm_ep *ep)
{
	rpwi_list_del(&ep->in_work);
	rpwi_list_del(&ep->in_blocked);
	rpwi_list_del(&ep->in_asking);
	emulate_ep_close(&ep->base);
}
