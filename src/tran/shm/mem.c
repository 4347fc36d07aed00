/* SPDX-License-Identifier: BSD-3-Clause */
/* mem.c - registered memory: our own (a table, and its image on the board that peers can read), and
 * the peers' (checked by their boards, mapped where it is a memfd). */
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "ropeway.h"
#include "shm.h"

enum { TOUCH_MS = 100 };

/* The first one that begins behind addr. */
static unsigned allocated_after(const struct shm *t, const void *addr)
{
	unsigned low = 0, high = t->allocated_count;
	while (low < high) {
		unsigned middle = (low + high) / 2;
		if ((uintptr_t)t->allocated[middle]->base.addr <= (uintptr_t)addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct shm_mem *rpwi_shm_mem_allocated(const struct shm *t, const void *addr, size_t len)
{
	unsigned at = t->allocated_count ? allocated_after(t, addr) : 0;
	struct shm_mem *m = at ? t->allocated[at - 1] : NULL;
	uintptr_t offset = m ? (uintptr_t)addr - (uintptr_t)m->base.addr : 0;
	return m && offset <= m->base.len && len <= m->base.len - offset ? m : NULL;
}

static bool allocated_add(struct shm *t, struct shm_mem *m)
{
	if (t->allocated_count == t->allocated_room) {
		unsigned room = t->allocated_room ? t->allocated_room * 2 : 8;
		struct shm_mem **bigger = realloc(t->allocated, room * sizeof *bigger);
		if (!bigger)
			return false;
		t->allocated = bigger;
		t->allocated_room = room;
	}
	unsigned at = allocated_after(t, m->base.addr);
	memmove(&t->allocated[at + 1], &t->allocated[at],
		(t->allocated_count++ - at) * sizeof *t->allocated);
	t->allocated[at] = m;
	return true;
}

static void allocated_del(struct shm *t, const struct shm_mem *m)
{
	unsigned at = allocated_after(t, m->base.addr) - 1;
	memmove(&t->allocated[at], &t->allocated[at + 1],
		(--t->allocated_count - at) * sizeof *t->allocated);
}

static void mem_describe(struct shm *t, struct shm_mem *m, uint64_t base)
{
	struct shm_desc d = {.version = SHM_VERSION,
		.index = m->index,
		.nonce = m->nonce,
		.check = shm_desc_check(base),
		.base = base};
	memcpy(d.context, t->context, sizeof d.context);
	m->base.desc.len = sizeof d;
	memcpy(m->base.desc.bytes, &d, sizeof d);
}

static int mem_publish(struct shm *t, struct shm_mem *m)
{
	if (!rpwi_slots_reserve(&t->mems, SHM_MEMS_MAX))
		return rpwi_fail(RPW_ERR_LIMIT,
			"shm: no room for one more registration beside %u (%d are the most)",
			t->mems.used, SHM_MEMS_MAX);
	m->index = rpwi_slots_take(&t->mems, m);
	m->nonce = rpwi_shm_nonce(t);
	struct shm_entry *e = &t->board->entries[m->index];
	atomic_store_explicit(&e->addr, (uint64_t)(uintptr_t)m->base.addr, memory_order_relaxed);
	atomic_store_explicit(&e->len, m->base.len, memory_order_relaxed);
	atomic_store_explicit(
		&e->access, m->base.access | (m->fd >= 0 ? SHM_MAPPABLE : 0), memory_order_relaxed);
	atomic_store_explicit(&e->nonce, m->nonce, memory_order_release);
	mem_describe(t, m, 0);
	return 0;
}

/* A message out of allocated memory needs no registration of its own, and the peer copies it out of
 * its mapping. */
static struct shm_mem *view_new(struct shm *t, const struct shm_mem *of, void *addr, size_t len)
{
	struct shm_mem *m = calloc(1, sizeof *m);
	if (!m)
		return NULL;
	*m = (struct shm_mem){
		.t = t, .index = of->index, .nonce = of->nonce, .fd = -1, .is_view = true};
	m->base.addr = addr;
	m->base.len = len;
	m->base.access = TRAN_READ;
	mem_describe(t, m, (uint64_t)((uintptr_t)addr - (uintptr_t)of->base.addr));
	return m;
}

/* addr NULL: allocated. */
static int mem_new(
	struct tran *tran, void *addr, size_t len, unsigned access, struct tran_mem **out)
{
	struct shm *t = shm_of(tran);
	struct shm_mem *m = calloc(1, sizeof *m);
	if (!m)
		return tran_no_memory(tran, "one more registration");
	m->t = t;
	m->fd = -1;
	m->base.addr = addr;
	m->base.len = len;
	m->base.access = access;
	int rc = 0;
	if (!addr && len) {
		bool writable = access & (TRAN_WRITE | TRAN_ATOMIC);
		m->fd = rpwi_memory_make("ropeway", len,
			writable ? RPWI_MEMORY_WRITE : RPWI_MEMORY_READ, &m->base.addr);
		rc = m->fd < 0 ? rpwi_fail_errno(
					 -m->fd, "shm: %zu bytes of memory for peers to map", len)
			       : 0;
		if (!rc)
			shm_huge(m->base.addr, len);
	}
	if (!rc)
		rc = mem_publish(t, m);
	if (!rc && m->fd >= 0 && !allocated_add(t, m)) {
		atomic_store_explicit(&t->board->entries[m->index].nonce, 0, memory_order_seq_cst);
		rpwi_slots_give(&t->mems, m->index);
		rc = tran_no_memory(tran, "one more registration");
	}
	if (rc) {
		if (m->fd >= 0) {
			munmap(m->base.addr, len);
			close(m->fd);
		}
		free(m);
		return rc;
	}
	*out = &m->base;
	return 0;
}

int rpwi_shm_mem_add(struct tran *t, void *addr, size_t len, unsigned access, struct tran_mem **out)
{
	const struct shm_mem *of =
		access == TRAN_READ ? rpwi_shm_mem_allocated(shm_of(t), addr, len) : NULL;
	if (of && of->base.access & TRAN_READ) {
		struct shm_mem *m = view_new(shm_of(t), of, addr, len);
		if (!m)
			return tran_no_memory(t, "one more registration");
		*out = &m->base;
		return 0;
	}
	return addr ? mem_new(t, addr, len, access, out)
		    : rpwi_fail(RPW_ERR_INVALID, "shm: no address to register");
}
int rpwi_shm_mem_alloc(struct tran *t, size_t len, unsigned access, struct tran_mem **out)
{
	return mem_new(t, NULL, len, access, out);
}

/* A peer that has begun to access memory with its own hands, before it could see that it is not
 * registered any more: for as long as a piece takes. */
static void touches_await(const struct shm *t, const struct shm_mem *m)
{
	if (!(m->base.access & (TRAN_WRITE | TRAN_ATOMIC)) && !t->local_count)
		return; /* reading is harmless to us, and its reader looks again afterwards */
	uint64_t deadline_ns = 0;
	for (unsigned i = 0; i < t->link_count; i++) {
		const struct shm_link *l = t->links[i];
		while (l->board && !l->self &&
			atomic_load_explicit(&l->board->touching, memory_order_seq_cst) ==
				m->nonce) {
			uint64_t now = rpwi_now_ns();
			deadline_ns = deadline_ns ? deadline_ns : now + TOUCH_MS * RPWI_NS_PER_MS;
			if (now > deadline_ns)
				return; /* it was killed or stopped there, or lies */
			sched_yield();
		}
	}
}

void rpwi_shm_mem_del(struct tran *tran, struct tran_mem *base)
{
	struct shm *t = shm_of(tran);
	struct shm_mem *m = RPWI_CONTAINER_OF(base, struct shm_mem, base);
	if (m->is_view) {
		free(m);
		return;
	}
	atomic_store_explicit(&t->board->entries[m->index].nonce, 0, memory_order_seq_cst);
	touches_await(t, m);
	rpwi_slots_give(&t->mems, m->index);
	if (m->fd >= 0) {
		allocated_del(t, m);
		/* Peers that have it mapped can let go of the pages. One that misses this does so
		 * when its table of mappings is full. */
		struct shm_ctl ctl = {.index = m->index, .nonce = m->nonce};
		for (unsigned i = 0; i < t->link_count; i++)
			if (t->links[i]->state == SHM_LINK_UP && !t->links[i]->self)
				rpwi_shm_link_hint(t->links[i], SHM_UNMAP, 0, &ctl);
		munmap(m->base.addr, m->base.len);
		close(m->fd);
	}
	free(m);
}

void rpwi_shm_mem_inherited_free(struct shm *t)
{
	for (uint32_t i = 0; i < t->mems.room; i++) {
		struct shm_mem *m = rpwi_slots_find(&t->mems, i);
		if (m && m->fd >= 0) {
			munmap(m->base.addr, m->base.len);
			close(m->fd);
		}
		free(m);
	}
}

struct shm_mem *rpwi_shm_mem_find(struct shm *t, uint32_t index, uint64_t nonce)
{
	struct shm_mem *m = rpwi_slots_find(&t->mems, index);
	return m && m->nonce == nonce ? m : NULL;
}

uint8_t *rpwi_shm_mem_own(struct shm *t, uint32_t index, uint64_t nonce, uint64_t offset,
	uint64_t len, unsigned access)
{
	struct shm_mem *m = rpwi_shm_mem_find(t, index, nonce);
	if (!m || (m->base.access & access) != access || offset > m->base.len ||
		len > m->base.len - offset)
		return NULL;
	return (uint8_t *)m->base.addr + offset;
}

int rpwi_shm_mem_target(struct shm_link *l, struct emulated_move *m, const struct tran_desc *remote,
	uint64_t offset)
{
	struct shm_desc d = {0};
	if (remote->len == sizeof d)
		memcpy(&d, remote->bytes, sizeof d);
	if (d.version != SHM_VERSION || d.check != shm_desc_check(d.base) ||
		memcmp(d.context, l->context, sizeof l->context) || d.index >= SHM_MEMS_MAX ||
		!d.nonce)
		return rpwi_fail(RPW_ERR_ACCESS,
			"shm: the key is not of memory of process %d, which this endpoint leads "
			"to: use the key that this peer packed",
			(int)l->pid);
	m->slot = d.index;
	m->key = d.nonce;
	if (__builtin_add_overflow(offset, d.base, &m->offset))
		m->offset = UINT64_MAX; /* beyond all memory */
	return RPW_OK;
}

int rpwi_shm_mem_remote(
	struct shm_link *l, const struct emulated_move *m, unsigned access, struct shm_there *there)
{
	const struct shm_entry *e = &l->board->entries[m->slot];
	uint64_t nonce = atomic_load_explicit(&e->nonce, memory_order_acquire);
	uint64_t base = atomic_load_explicit(&e->addr, memory_order_relaxed),
		 room = atomic_load_explicit(&e->len, memory_order_relaxed);
	unsigned rights = atomic_load_explicit(&e->access, memory_order_relaxed);
	atomic_thread_fence(memory_order_acquire);
	if (nonce != m->key || atomic_load_explicit(&e->nonce, memory_order_relaxed) != nonce)
		return rpwi_fail(RPW_ERR_ACCESS,
			"shm: process %d has no such memory registered (any more): was it released "
			"before the last access?",
			(int)l->pid);
	if ((rights & access) != access)
		return rpwi_fail(RPW_ERR_ACCESS,
			"shm: process %d registered that memory with access 0x%x, this needs 0x%x: "
			"register it with that right",
			(int)l->pid, rights & ~SHM_MAPPABLE, access);
	if (m->offset > room || m->len > room - m->offset)
		return rpwi_fail(RPW_ERR_ACCESS,
			"shm: %llu bytes at offset %llu of memory of which process %d registered "
			"%llu: stay within them",
			(unsigned long long)m->len, (unsigned long long)m->offset, (int)l->pid,
			(unsigned long long)room);
	there->addr = base + m->offset;
	there->mappable = rights & SHM_MAPPABLE;
	return RPW_OK;
}

static struct shm_map *map_find(struct shm_link *l, uint32_t index)
{
	for (unsigned i = 0; i < l->map_count; i++)
		if (l->maps[i].index == index)
			return &l->maps[i];
	return NULL;
}

static void map_drop(struct shm_link *l, struct shm_map *m)
{
	if (m->at)
		munmap(m->at, m->len);
	*m = l->maps[--l->map_count];
}

static void map_ask(struct shm_link *l, const struct emulated_move *of)
{
	if (!l->maps && !(l->maps = calloc(SHM_MAPS_MAX, sizeof *l->maps)))
		return;
	struct shm_ctl ctl = {.index = of->slot, .nonce = of->key};
	if (rpwi_shm_link_ctl(l, SHM_MAP, 0, &ctl))
		return; /* no room now: the next access asks again */
	if (l->map_count == SHM_MAPS_MAX) {
		struct shm_map *oldest = l->maps;
		for (unsigned i = 1; i < l->map_count; i++)
			if (l->maps[i].used < oldest->used)
				oldest = &l->maps[i];
		map_drop(l, oldest);
	}
	l->maps[l->map_count++] =
		(struct shm_map){.index = of->slot, .nonce = of->key, .used = ++l->map_clock};
	rpwi_shm_hurry(l->t);
}

uint8_t *rpwi_shm_mem_reach(
	struct shm_link *l, const struct emulated_move *of, const struct shm_there *there)
{
	if (l->local)
		return (uint8_t *)(uintptr_t)there->addr;
	if (!there->mappable)
		return NULL;
	struct shm_map *m = map_find(l, of->slot);
	if (m && m->nonce != of->key) {
		map_drop(l, m);
		m = NULL;
	}
	if (!m) {
		map_ask(l, of);
		return NULL;
	}
	m->used = ++l->map_clock;
	bool fits = m->at && of->offset <= m->len && of->len <= m->len - of->offset;
	return fits && (m->writable || of->kind == EMULATED_GET) ? m->at + of->offset : NULL;
}

void rpwi_shm_mem_mapped(
	struct shm_link *l, uint32_t index, uint64_t nonce, int fd, uint64_t len, bool writable)
{
	struct shm_map *m = map_find(l, index);
	if (!m || m->nonce != nonce || m->at)
		return; /* not asked for, or no longer */
	enum rpwi_memory_right right = writable ? RPWI_MEMORY_WRITE : RPWI_MEMORY_READ;
	if (!len || len > SIZE_MAX / 2 || rpwi_memory_size(fd) < (ssize_t)len) {
		rpwi_debug("shm: process %d passed a descriptor that is not the sealed memory of "
			   "%llu bytes that it spoke of",
			(int)l->pid, (unsigned long long)len);
		return;
	}
	void *at = rpwi_memory_take_part(fd, len, right);
	if (!at) {
		rpwi_debug("shm: memory of process %d can not be mapped: %s", (int)l->pid,
			strerror(errno));
		return; /* it stays "asked for": accesses go the other way */
	}
	shm_huge(at, len);
	m->at = at;
	m->len = len;
	m->writable = writable;
}

void rpwi_shm_mem_unmap(struct shm_link *l, uint32_t index, uint64_t nonce)
{
	struct shm_map *m = map_find(l, index);
	if (m && m->nonce == nonce)
		map_drop(l, m);
}

void rpwi_shm_mem_unmap_all(struct shm_link *l)
{
	while (l->map_count)
		map_drop(l, &l->maps[0]);
	free(l->maps);
	l->maps = NULL;
}
