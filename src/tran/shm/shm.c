/* SPDX-License-Identifier: BSD-3-Clause */
/* shm.c - the context: open and close, rounds of progress, sleep.
 *
 * A round looks at every link while there are few, else at those that had traffic lately and a
 * slice of the others, so that a thousand idle ones do not slow down one that is busy. The sockets
 * are asked once in a millisecond, or in each round while something is expected there.
 *
 * Sleep: the sleeper writes `sleeping` on its board, makes every sender's stores visible with one
 * membarrier, and looks at the rings again. Thus a sender needs no fence: it publishes a frame, and
 * reads a line that is in its cache. Only where the kernel has no membarrier do senders fence.
 */
#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "ropeway.h"
#include "shm.h"

enum {
	CELLS_AHEAD = 3,
	ROUNDS_A_CLOCK = 64,
	ROUNDS_A_LOOK_HURRY = 4,
	HURRY_ROUNDS = 4096,
	COMPANY_TICKS = 16
};

uint64_t rpwi_shm_nonce(struct shm *t)
{
	for (;;) {
		if (!t->nonces_left) {
			/* Without the kernel's random bytes there is nothing to trust a peer by:
			 * there is no second best. */
			if (getrandom(t->nonces, sizeof t->nonces, 0) != sizeof t->nonces)
				continue;
			t->nonces_left = RPWI_ARRAY_LEN(t->nonces);
		}
		uint64_t nonce = t->nonces[--t->nonces_left];
		if (nonce)
			return nonce;
	}
}

void rpwi_shm_hurry(struct shm *t) { t->hurry_rounds = HURRY_ROUNDS; }

static int shm_usable(
	const struct tran_facts *own, const struct tran_facts *peer, char *why, size_t why_len)
{
	if (peer && memcmp(own->host_id, peer->host_id, sizeof own->host_id)) {
		snprintf(why, why_len,
			"%s and %s are different hosts (or containers that share no processes)",
			own->hostname, peer->hostname);
		return RPW_ERR_UNREACHABLE;
	}
	int fd = memfd_create("ropeway-probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0) {
		int error = errno;
		snprintf(why, why_len, "memfd_create: %s", strerror(error));
		return rpwi_status_of_errno(error);
	}
	close(fd);
	return 0;
}

static bool membarrier_ready(void)
{
	return !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
}

/* All stores that were done anywhere before are visible to what we read next. */
static void barrier_everywhere(const struct shm *t)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (t->membarrier)
		syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

static void shm_free(struct shm *t)
{
	rpwi_shm_unlisten(t);
	if (t->epoll_fd >= 0)
		close(t->epoll_fd);
	if (t->board_fd >= 0) {
		close(t->board_fd);
		munmap(t->board, sizeof *t->board);
	}
	free(t->links);
	free(t->allocated);
	rpwi_slots_fini(&t->eps);
	rpwi_slots_fini(&t->mems);
	emulate_close(&t->base);
	free(t);
}

static void shm_board_init(struct shm *t)
{
	t->board->fence = !t->membarrier;
	t->board->polled = t->base.polled;
}

static int shm_open_context(
	const struct tran_up *up, const struct tran_facts *own, struct tran **out)
{
	struct shm *t = calloc(1, sizeof *t);
	if (!t)
		return rpwi_fail(RPW_ERR_NO_MEMORY, "shm: no memory for the transport");
	t->base = (struct tran){.ops = &tran_shm, .up = up, .polled = own->polled};
	t->listener.fd = -1;
	t->born = rpwi_born();
	rpwi_list_init(&t->starting);
	rpwi_list_init(&t->embryos);
	for (unsigned i = 0; i < 2; i++)
		memcpy(t->context + i * 8, &(uint64_t){rpwi_shm_nonce(t)}, 8);
	t->secret = rpwi_shm_nonce(t);
	t->membarrier = membarrier_ready();
	void *at = NULL;
	t->board_fd = rpwi_memory_make("ropeway-board", sizeof *t->board, RPWI_MEMORY_READ, &at);
	t->board = at;
	int rc = t->board_fd < 0 ? t->board_fd : 0;
	if (!rc)
		shm_board_init(t);
	t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (!rc && t->epoll_fd < 0)
		rc = -errno;
	if (!rc)
		rc = rpwi_shm_listen(t);
	if (rc) {
		shm_free(t);
		return rpwi_fail_errno(
			-rc, "shm: no memory to share, or no door for peers to come in");
	}
	rc = emulate_open(&t->base);
	if (rc) {
		shm_free(t);
		return rc;
	}
	*out = &t->base;
	return 0;
}

static void shm_close(struct tran *tran)
{
	struct shm *t = shm_of(tran);
	bool ours = rpwi_is_ours(t->born);
	/* what their peers wait for: CLOSE of the last endpoints */
	for (unsigned i = 0; ours && i < t->link_count; i++)
		if (t->links[i]->state == SHM_LINK_UP)
			rpwi_shm_ep_owed(t->links[i]);
	while (t->link_count) {
		struct shm_link *l = t->links[t->link_count - 1];
		while (!rpwi_list_empty(&l->eps)) /* closed ones, whose peers have not answered */
			rpwi_shm_ep_free(RPWI_CONTAINER_OF(l->eps.next, struct shm_ep, in_link));
		rpwi_shm_link_free(l);
	}
	if (!ours)
		rpwi_shm_mem_inherited_free(t);
	shm_free(t);
}

/* ---- rounds ---- */

/* of this round: the receives for the rest are about to be posted */
enum after { BAD, GO_ON, ENOUGH };

static enum after dispatch(struct shm_link *l, const struct ring_frame *f)
{
	struct shm *t = l->t;
	if (RPWI_LIKELY(f->kind == SHM_FRAME)) {
		struct shm_ep *ep = rpwi_shm_ep_find(t, f->endpoint);
		if (RPWI_LIKELY(ep && ep->link == l && ep->state == SHM_EP_READY))
			return t->base.up->frame(
				       ep->base.user, f->head, f->head_len, f->body, f->body_len)
				       ? GO_ON
				       : ENOUGH;
		return GO_ON;
	}
	struct shm_ctl ctl;
	if (f->kind == SHM_MEMORY)
		return rpwi_shm_rma_frame(l, f) ? GO_ON : BAD;
	if (f->head_len != sizeof ctl)
		return BAD;
	memcpy(&ctl, f->head, sizeof ctl);
	if (f->kind == SHM_OPEN || f->kind == SHM_CLOSE || f->kind == SHM_REFUSE) {
		rpwi_shm_ep_ctl(l, f, &ctl);
		return GO_ON;
	}
	return rpwi_shm_rma_ctl(l, f, &ctl) ? GO_ON : BAD;
}

/* The peer was told how far we are. If it sleeps until there is room, it is woken. */
static void room_told(struct shm_link *l)
{
	if (l->t->membarrier)
		atomic_signal_fence(memory_order_seq_cst);
	else
		atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&l->rx.shared->producer_waits, memory_order_relaxed))
		shm_link_kick(l);
}

static unsigned link_poll(struct shm_link *l)
{
	struct ring_frame f;
	unsigned n = 0;
	enum after after = GO_ON;
	for (; n < SHM_POLL_BATCH && after != ENOUGH; n++) {
		/* The producer is ahead: its lines can be on their way before they are needed; one
		 * that it still writes to would be taken from it. */
		if (n >= 2)
			__builtin_prefetch(&l->rx.cells[(l->rx.head + CELLS_AHEAD) % RING_CELLS]);
		int rc = ring_rx_next(&l->rx, &f);
		if (!rc)
			break;
		uint64_t began_ns = rc > 0 ? shm_sample(l, f.body_len) : 0;
		after = rc < 0 ? BAD : dispatch(l, &f);
		rpwi_cost_sampled(&l->rx.shared->out_ns, began_ns, f.body_len);
		if (RPWI_UNLIKELY(after == BAD)) {
			rpwi_debug("shm: process %d wrote a frame of kind %u, %zu and %zu bytes "
				   "that makes no sense",
				(int)l->pid, f.kind, f.head_len, f.body_len);
			rpwi_shm_link_end(l, RPW_ERR_PROTOCOL);
			break;
		}
		if (RPWI_UNLIKELY(ring_rx_release(&l->rx, &f)))
			room_told(l);
	}
	l->busy |= n > 0;
	return n;
}

static bool link_open(const struct shm_link *l)
{
	return l->state == SHM_LINK_UP && !(l->dead_soon && l->dead_status == RPW_ERR_PROTOCOL);
}

/* What waits for room, or for its turn. */
static unsigned link_push(struct shm_link *l)
{
	unsigned n = rpwi_shm_link_hints(l);
	n += rpwi_shm_ep_owed(l);
	n += rpwi_shm_rma_round(l);
	n += rpwi_shm_ep_rooms(l);
	if (ring_tx_refresh(&l->tx))
		rpwi_shm_link_end(l, RPW_ERR_PROTOCOL);
	l->todo = l->hint_count || !rpwi_list_empty(&l->owing) || !rpwi_list_empty(&l->rooms) ||
		  rpwi_shm_rma_pending(l);
	return n;
}

static unsigned link_round(struct shm_link *l)
{
	if (RPWI_UNLIKELY(!link_open(l)))
		return 0;
	unsigned n = link_poll(l);
	if (RPWI_UNLIKELY(l->todo) && link_open(l))
		n += link_push(l);
	return n;
}

static unsigned links_round(struct shm *t)
{
	unsigned n = 0;
	if (RPWI_LIKELY(t->link_count <= SHM_COLD_SLICE)) {
		for (unsigned i = 0; i < t->link_count; i++)
			n += link_round(t->links[i]);
		return n;
	}
	for (unsigned i = 0; i < t->hot_count; i++)
		n += link_round(t->links[i]);
	unsigned cold = t->link_count - t->hot_count;
	for (unsigned i = 0;
		i < RPWI_MIN(cold, (unsigned)SHM_COLD_SLICE) && t->link_count > t->hot_count; i++) {
		if (t->cold_next < t->hot_count || t->cold_next >= t->link_count)
			t->cold_next = t->hot_count;
		struct shm_link *l = t->links[t->cold_next++];
		n += link_round(l);
		if (l->busy || l->todo)
			rpwi_shm_link_swap(t, l->position, t->hot_count++);
	}
	return n;
}

static void links_fail(struct shm *t)
{
	for (unsigned i = 0; i < t->link_count; i++) {
		struct shm_link *l = t->links[i];
		if (!l->dead_soon || l->state == SHM_LINK_DEAD ||
			(link_open(l) && ring_rx_waiting(&l->rx)))
			continue;
		rpwi_shm_link_fail(l, l->dead_status,
			l->dead_status == RPW_ERR_PROTOCOL
				? "it wrote invalid data into the shared memory"
				: "the process ended");
	}
}

static void links_sweep(struct shm *t)
{
	for (unsigned i = t->link_count; i-- > 0;)
		if (t->links[i]->state == SHM_LINK_DEAD && rpwi_list_empty(&t->links[i]->eps)) {
			t->dead_count--;
			rpwi_shm_link_free(t->links[i]);
		}
}

static void links_tick(struct shm *t)
{
	for (unsigned i = t->link_count; i-- > 0;) {
		struct shm_link *l = t->links[i];
		rpwi_shm_rma_tick(l);
		if (l->position < t->hot_count && !l->busy && !l->todo)
			rpwi_shm_link_swap(t, l->position, --t->hot_count);
		l->busy = false;
	}
}

static _Thread_local struct {
	const struct shm *last; /* whose tick it had; only compared */
} thread;

/* Contexts that one thread progresses in turn have their ticks in turn. */
static void company_look(struct shm *t)
{
	bool was = t->company_ticks;
	if (thread.last && thread.last != t)
		t->company_ticks = COMPANY_TICKS;
	else
		t->company_ticks -= was;
	thread.last = t;
	if (was != (t->company_ticks > 0))
		atomic_store_explicit(&t->board->company, !was, memory_order_relaxed);
}

static unsigned tick(struct shm *t, uint64_t now_ns)
{
	unsigned n = rpwi_shm_control(t);
	t->control_ns = now_ns;
	if (now_ns - t->tick_ns < SHM_CONTROL_NS)
		return n;
	t->tick_ns = now_ns;
	company_look(t);
	if (!rpwi_list_empty(&t->starting))
		rpwi_shm_ep_tick(t, now_ns);
	rpwi_shm_embryos_tick(t, now_ns);
	links_tick(t);
	return n;
}

static unsigned shm_progress(struct tran *tran)
{
	struct shm *t = shm_of(tran);
	unsigned n = 0;
	atomic_store_explicit(&t->board->beat, ++t->beat, memory_order_relaxed);
	t->rounds++;
	if (RPWI_UNLIKELY(t->armed)) {
		t->armed = false;
		atomic_store_explicit(&t->board->sleeping, 0, memory_order_relaxed);
		n += tick(t, rpwi_now_ns());
	} else if (RPWI_UNLIKELY(t->hurry_rounds || !rpwi_list_empty(&t->starting))) {
		t->hurry_rounds -= t->hurry_rounds > 0;
		if (t->rounds % ROUNDS_A_LOOK_HURRY == 0)
			n += tick(t, rpwi_now_ns());
	} else if (RPWI_UNLIKELY(t->rounds % ROUNDS_A_CLOCK == 0)) {
		uint64_t now_ns = rpwi_now_ns();
		if (now_ns - t->control_ns >= SHM_CONTROL_NS)
			n += tick(t, now_ns);
	}
	n += links_round(t);
	if (RPWI_UNLIKELY(t->ending_count))
		links_fail(t);
	if (RPWI_UNLIKELY(t->dead_count))
		links_sweep(t);
	return n;
}

/* ---- sleep ---- */

static void disarm(struct shm *t)
{
	t->armed = false;
	atomic_store_explicit(&t->board->sleeping, 0, memory_order_relaxed);
}

static bool link_has_work(struct shm_link *l)
{
	if (!link_open(l))
		return false;
	if (ring_rx_waiting(&l->rx))
		return true;
	if (!l->todo)
		return false;
	bool cell = l->hint_count || !rpwi_list_empty(&l->owing);
	if (cell && ring_tx_room(&l->tx, 0, 0) != -EAGAIN)
		return true;
	if (!rpwi_list_empty(&l->rooms) &&
		ring_tx_room(&l->tx, ring_bulk_need(TRAN_HEAD_MAX, SHM_FRAME_MAX), SHM_FRAME_MAX) !=
			-EAGAIN)
		return true;
	return rpwi_shm_rma_can_go(l);
}

static int shm_arm(struct tran *tran, int *fd, uint64_t *deadline_ns)
{
	struct shm *t = shm_of(tran);
	*fd = t->epoll_fd;
	if (t->ending_count)
		return 1;
	if (!++t->sleeps)
		t->sleeps = 1;
	atomic_store_explicit(&t->board->sleeping, t->sleeps, memory_order_relaxed);
	bool needs_tick = false;
	for (unsigned i = 0; i < t->link_count; i++) {
		struct shm_link *l = t->links[i];
		if (!link_open(l))
			continue;
		atomic_store_explicit(&l->tx.shared->producer_waits, l->todo, memory_order_relaxed);
		needs_tick |= rpwi_shm_rma_needs_tick(l);
	}
	barrier_everywhere(t);
	for (unsigned i = 0; i < t->link_count; i++)
		if (link_has_work(t->links[i])) {
			disarm(t);
			return 1;
		}
	t->armed = true;
	uint64_t now_ns = rpwi_now_ns();
	uint64_t next = RPWI_MIN(rpwi_shm_ep_next(t), rpwi_shm_embryos_next(t));
	for (unsigned i = 0; i < t->link_count && !rpwi_list_empty(&t->starting); i++)
		needs_tick |= t->links[i]->state == SHM_LINK_DIALING;
	if (needs_tick)
		next = RPWI_MIN(next, now_ns + SHM_CONTROL_NS);
	*deadline_ns = RPWI_MIN(*deadline_ns, next);
	return 0;
}

static const struct tran_mem_ops shm_mem_ops = {
	.add = rpwi_shm_mem_add, .alloc = rpwi_shm_mem_alloc, .del = rpwi_shm_mem_del};
const struct tran_ops tran_shm = {
	.name = "shm",
	.caps = TRAN_SAME_HOST | TRAN_MAPS | TRAN_GUARDED | TRAN_INHERITED,
	.usable = shm_usable,
	.open = shm_open_context,
	.close = shm_close,
	.progress = shm_progress,
	.arm = shm_arm,
	.ep_make = rpwi_shm_ep_make,
	.ep_start = rpwi_shm_ep_start,
	.ep_close = rpwi_shm_ep_close,
	.eager = rpwi_shm_ep_eager,
	.send = rpwi_shm_ep_send,
	.mem = &shm_mem_ops,
	.rma = &emulated_rma,
	.loan = &rpwi_shm_loan,
	.reach = &rpwi_shm_reach,
	.breach = rpwi_shm_rma_breach,
};
