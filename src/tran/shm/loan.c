/* SPDX-License-Identifier: BSD-3-Clause */
/* loan.c - pools of memory that is loaned: made for one endpoint, shown to its peer once, over the
 * link's socket; and the pools that the peer has shown.
 *
 * A pool is two memfds: the slots, which only their owner can write (unless they are to be
 * writable), and a word for each slot, which the peer writes when it gives a loan back. Both sides
 * map them and close the descriptors: nothing has a name, and the kernel frees the pages with the
 * last mapping. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "near/rights.h"
#include "ropeway.h"
#include "shm.h"

struct shm_pool {
	struct tran_pool base;
	size_t bytes, words_bytes;
};

static size_t words_bytes(uint32_t slots) { return slots * sizeof(uint64_t); }

/* ---- own ---- */

static void pool_unmap(struct shm_pool *p)
{
	if (p->base.data)
		munmap(p->base.data, p->bytes);
	if (p->base.returned)
		munmap((void *)p->base.returned, p->words_bytes);
	free(p);
}

/* To the peer, by way of the socket; to itself by the other end of the pair. 0 or -errno. */
static int pool_say(const struct shm_ep *ep, const struct tran_pool *p, bool writable,
	uint32_t slots, const int fds[2])
{
	struct shm_note n = {.magic = SHM_NOTE_MAGIC,
		.version = SHM_VERSION,
		.type = SHM_POOL,
		.index = ep->peer_index,
		.writable = writable,
		.nonce = (uint64_t)p->generation << 32 | p->id,
		.addr = p->slot_bytes,
		.value = slots};
	return rpwi_rights_send(ep->link->wake_fd, &n, sizeof n, fds, fds ? 2 : 0);
}

static int pool_map(struct shm_ep *ep, struct shm_pool *p, bool writable)
{
	int fds[2];
	void *at;
	p->bytes = p->base.slot_bytes * p->base.slots;
	p->words_bytes = words_bytes(p->base.slots);
	fds[0] = rpwi_memory_make(
		"ropeway-loans", p->bytes, writable ? RPWI_MEMORY_WRITE : RPWI_MEMORY_READ, &at);
	if (fds[0] < 0)
		return fds[0];
	p->base.data = at;
	shm_huge(at, p->bytes);
	fds[1] = rpwi_memory_make("ropeway-returns", p->words_bytes, RPWI_MEMORY_WRITE, &at);
	if (fds[1] < 0) {
		close(fds[0]);
		return fds[1];
	}
	p->base.returned = at;
	int rc = pool_say(ep, &p->base, writable, p->base.slots, fds);
	close(fds[0]);
	close(fds[1]);
	return rc;
}

static int pool_make(struct tran_ep *base, size_t slot_bytes, uint32_t slots, bool writable,
	struct tran_pool **out)
{
	struct shm_ep *ep = shm_ep_of(base);
	if (ep->state != SHM_EP_READY || ep->link->state != SHM_LINK_UP || ep->link->dead_soon)
		return tran_path_over(base);
	if (!rpwi_slots_reserve(&ep->pools, SHM_POOLS_MAX))
		return rpwi_fail(RPW_ERR_LIMIT,
			"shm: %d pools of loans are the most of one endpoint", SHM_POOLS_MAX);
	struct shm_pool *p = calloc(1, sizeof *p);
	if (!p)
		return tran_no_memory(base->tran, "a pool of loans");
	p->base.slot_bytes = slot_bytes;
	p->base.slots = slots;
	p->base.id = rpwi_slots_take(&ep->pools, p);
	p->base.generation = ep->pools.at[p->base.id].generation;
	int rc = pool_map(ep, p, writable);
	if (!rc) {
		*out = &p->base;
		return 0;
	}
	rpwi_slots_give(&ep->pools, p->base.id);
	pool_unmap(p);
	if (rc == -EAGAIN)
		return RPWI_LATER;
	return rpwi_fail_errno(-rc, "shm: a pool of %u loans of %zu bytes for process %d", slots,
		slot_bytes, (int)ep->link->pid);
}

static void pool_end(struct tran_ep *base, struct tran_pool *pool)
{
	if (base) {
		struct shm_ep *ep = shm_ep_of(base);
		/* every loan of it is back: no frame is under way that names it. A peer that misses
		 * this keeps its mapping until the number is used again */
		if (ep->state == SHM_EP_READY && ep->link->wake_fd >= 0)
			pool_say(ep, pool, false, 0, NULL);
		rpwi_slots_give(&ep->pools, pool->id);
	}
	pool_unmap(RPWI_CONTAINER_OF(pool, struct shm_pool, base));
}

/* ---- the peer's ---- */

static void seen_forget(struct tran_seen *s)
{
	if (s->data)
		munmap(s->data, s->slot_bytes * s->slots);
	if (s->returned)
		munmap((void *)s->returned, words_bytes(s->slots));
	free(s);
}

static void seen_drop(struct shm_ep *ep, uint32_t id)
{
	struct tran_seen *s = ep->seen[id];
	ep->seen[id] = NULL;
	if (!s)
		return;
	if (s->data)
		ep->seen_bytes -= s->slot_bytes * s->slots;
	if (!--s->refs)
		seen_forget(s);
}

static void seen_map(struct shm_ep *ep, struct tran_seen *s, const int fds[2])
{
	size_t bytes = s->slot_bytes * s->slots;
	enum rpwi_memory_right right = s->writable ? RPWI_MEMORY_WRITE : RPWI_MEMORY_READ;
	errno = ENOMEM;
	if (bytes > TRAN_LOAN_BYTES_MAX - ep->seen_bytes)
		return;
	s->returned = rpwi_memory_take(fds[1], words_bytes(s->slots), RPWI_MEMORY_WRITE);
	s->data = s->returned ? rpwi_memory_take(fds[0], bytes, right) : NULL;
	if (!s->data)
		return;
	shm_huge(s->data, bytes);
	ep->seen_bytes += bytes;
}

/* The place of a pool that the peer names; NULL: it may have none of that name. */
static struct tran_seen **seen_place(
	struct shm_link *l, const struct shm_note *n, struct shm_ep **ep)
{
	*ep = rpwi_shm_ep_find(l->t, n->index);
	uint32_t id = (uint32_t)n->nonce;
	if (!*ep || (*ep)->link != l || (*ep)->state == SHM_EP_CLOSED || id >= SHM_POOLS_MAX)
		return NULL;
	if (!(*ep)->seen && !((*ep)->seen = calloc(SHM_POOLS_MAX, sizeof(struct tran_seen *))))
		return NULL;
	return &(*ep)->seen[id];
}

void rpwi_shm_loan_shown(struct shm_link *l, const struct shm_note *n, const int fds[2])
{
	struct shm_ep *ep;
	struct tran_seen **place = seen_place(l, n, &ep);
	if (!place)
		return;
	seen_drop(ep, (uint32_t)n->nonce);
	if (!n->value || n->value > UINT32_MAX || !n->addr || n->addr % TRAN_LOAN_ALIGN ||
		n->addr > TRAN_LOAN_BYTES_MAX / n->value || fds[0] < 0 || fds[1] < 0)
		return;
	struct tran_seen *s = calloc(1, sizeof *s);
	if (!s)
		return;
	*s = (struct tran_seen){.refs = 1,
		.generation = (uint32_t)(n->nonce >> 32),
		.slots = (uint32_t)n->value,
		.slot_bytes = n->addr,
		.writable = n->writable};
	seen_map(ep, s, fds);
	if (!s->data)
		rpwi_debug("shm: a pool of %u loans of %zu bytes of process %d can not be mapped: "
			   "%s",
			s->slots, s->slot_bytes, (int)l->pid, strerror(errno));
	*place = s;
}

static struct tran_seen *seen_find(const struct shm_ep *ep, uint32_t id, uint32_t generation)
{
	if (RPWI_UNLIKELY(!ep->seen || id >= SHM_POOLS_MAX))
		return NULL;
	struct tran_seen *s = ep->seen[id];
	return s && s->generation == generation ? s : NULL;
}

/* A frame may overtake the message on the socket that was sent before it. */
static int pool_find(struct tran_ep *base, uint32_t id, uint32_t generation, struct tran_seen **out)
{
	struct shm_ep *ep = shm_ep_of(base);
	struct tran_seen *s = seen_find(ep, id, generation);
	if (RPWI_UNLIKELY(!s) && ep->link) {
		ep->link->notes(ep->link);
		s = seen_find(ep, id, generation);
	}
	if (RPWI_UNLIKELY(!s))
		return rpwi_fail(RPW_ERR_PROTOCOL, "shm: process %d has shown no pool %u of loans",
			ep->link ? (int)ep->link->pid : 0, id);
	if (RPWI_UNLIKELY(!s->data))
		return rpwi_fail(RPW_ERR_NO_MEMORY,
			"shm: %zu bytes for loans of process %d could not be mapped",
			s->slot_bytes * s->slots, (int)ep->link->pid);
	*out = s;
	return 0;
}

void rpwi_shm_loan_ep_close(struct shm_ep *ep)
{
	for (uint32_t i = 0; ep->seen && i < SHM_POOLS_MAX; i++)
		seen_drop(ep, i);
	free(ep->seen);
	ep->seen = NULL;
	rpwi_slots_fini(&ep->pools);
}

const struct tran_loan_ops rpwi_shm_loan = {
	.make = pool_make,
	.end = pool_end,
	.find = pool_find,
	.forget = seen_forget,
};
