/* SPDX-License-Identifier: BSD-3-Clause */
/* freed.c - see freed.h. */
#include "check/freed.h"

#include "base/mapped.h"
#include "check/hooks.h"
#include "check/keys.h"
#include "check/overlap.h"
#include "check/pages.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>

int rpwi_check_in_flight;

/* ---- the ring of notes ---- */

enum { NOTES = 1024, LOSSES = 256 };
struct note {
	_Atomic uint32_t ready; /* its number + 1 */
	enum rpwi_loss how;
	uint64_t addr, len;
	uintptr_t pc;
};
struct check_loss {
	uint64_t addr, len;
	uintptr_t pc;
	enum rpwi_loss how;
};
static struct {
	struct note note[NOTES];
	_Atomic uint32_t missed;
	struct check_loss loss[LOSSES]; /* of regions; the newest */
	uint32_t losses;                /* free-running, from 1 on */
} ring = {.losses = 1};

static void lost(const void *addr, size_t len, enum rpwi_loss how, const void *pc)
{
	uint64_t at = (uintptr_t)addr;
	if (!len || at + len < at || !check_pages_hold(at, len) ||
		(how == RPWI_FREED && !__atomic_load_n(&rpwi_check_in_flight, __ATOMIC_RELAXED)))
		return;
	uint32_t n = atomic_load_explicit(&rpwi_check_notes.made, memory_order_relaxed);
	do
		if (n - atomic_load_explicit(&rpwi_check_notes.read, memory_order_acquire) >=
			NOTES) {
			atomic_fetch_add_explicit(&ring.missed, 1, memory_order_relaxed);
			return;
		}
	while (!atomic_compare_exchange_weak_explicit(
		&rpwi_check_notes.made, &n, n + 1, memory_order_relaxed, memory_order_relaxed));
	struct note *v = &ring.note[n % NOTES];
	v->how = how;
	v->addr = at;
	v->len = len;
	v->pc = (uintptr_t)pc;
	atomic_store_explicit(&v->ready, n + 1, memory_order_release);
}

/* ---- notes are judged ---- */

static const char *how_text(enum rpwi_loss how)
{
	static const char *const text[] = {[RPWI_FREED] = "freed",
		[RPWI_UNMAPPED] = "unmapped",
		[RPWI_REMAPPED] = "moved by mremap",
		[RPWI_DONTNEED] = "given back by madvise(MADV_DONTNEED)",
		[RPWI_REMOVED] = "given back by madvise(MADV_REMOVE)"};
	return text[how];
}

static const char *how_here(enum rpwi_loss how)
{
	return how == RPWI_FREED ? "freed here" : "unmapped here";
}

static void say_lost(
	const struct check_qp *q, struct check_wr *w, const struct ibv_sge *s, const struct note *v)
{
	struct rpwi_finding f = check_finding(RPWI_RULE_MEMORY_FREED, q, w);
	if (w->told)
		return;
	w->told = true;
	w->summed = false;
	f.addr = s->addr;
	f.len = s->length;
	f.key = s->lkey;
	rpwi_finding_site_when(&f, how_here(v->how), &(struct rpwi_site){{v->pc}}, RPWI_SITE_AFTER);
	rpwi_check_say(&f,
		"the program has %s %llu bytes at 0x%llx, and the request that uses them has not "
		"completed",
		how_text(v->how), (unsigned long long)v->len, (unsigned long long)v->addr);
}

static bool lose(struct check_qp *q, struct check_queue *of, struct check_wr *w, void *arg)
{
	const struct note *v = arg;
	if (of->is_send) {
		uint32_t from = check_sending_from(q), i = (uint32_t)(w - of->ring) - from;
		if ((i & of->mask) >= of->tail - from)
			return true;
	}
	for (unsigned i = 0; i < w->nsge && w->phase == CHECK_POSTED; i++) {
		uint64_t at = (uintptr_t)check_key_memory(&w->sge[i]);
		if (at && at < v->addr + v->len && v->addr < at + w->sge[i].length)
			say_lost(q, w, &w->sge[i], v);
	}
	return true;
}

/* All sends in flight of one QP, against all notes. */
struct batch {
	uint32_t from, to;
};

static void lose_sends(struct check_qp *q, void *arg)
{
	const struct batch *b = arg;
	for (uint32_t i = check_sending_from(q); i != q->sq.tail; i++)
		for (uint32_t n = b->from; n != b->to; n++)
			if (ring.note[n % NOTES].how == RPWI_FREED)
				lose(q, &q->sq, &q->sq.ring[i & q->sq.mask], &ring.note[n % NOTES]);
}

struct privacy {
	uint64_t addr;
	bool is;
};

static bool privacy_look(const struct rpwi_mapping *m, void *arg)
{
	struct privacy *p = arg;
	bool found = p->addr >= m->begin && p->addr < m->end;
	p->is = found && m->perms[3] == 'p';
	return !found;
}

/* Pages of a file or of shared memory stay the same ones. */
static bool is_private(uint64_t addr)
{
	struct privacy p = {.addr = addr};
	rpwi_mappings_each(0, privacy_look, &p);
	return p.is;
}

static void mark(uint32_t key, uint32_t *loss, void *arg) { *loss = *(const uint32_t *)arg; }

/* On hardware the region keeps its old pages, so nobody else is hurt; use of them is told when it
 * comes, of requests in flight, too: a cache deregisters, a program that ends destroys its QP. */
static void lose_pages(const struct note *v)
{
	if (v->how == RPWI_DONTNEED && !is_private(v->addr))
		return;
	uint32_t n = ring.losses;
	ring.loss[n % LOSSES] = (struct check_loss){v->addr, v->len, v->pc, v->how};
	check_keys_each(v->addr, v->len, mark, &n);
	ring.losses += ring.losses + 1 ? 1 : 2;
}

static void notes_read(void)
{
	struct batch b = {.from = rpwi_check_notes.read, .to = rpwi_check_notes.read};
	while (b.to != rpwi_check_notes.made && atomic_load_explicit(&ring.note[b.to % NOTES].ready,
							memory_order_acquire) == b.to + 1)
		b.to++;
	if (b.from == b.to)
		return;
	if (rpwi_check_wants(RPWI_RULE_MEMORY_FREED)) {
		if (rpwi_check_in_flight)
			check_qps_each(lose_sends, &b);
		for (uint32_t n = b.from; n != b.to; n++) {
			struct note *v = &ring.note[n % NOTES];
			if (v->how == RPWI_FREED)
				check_owners_each(v->addr, v->len, lose, v);
			else
				lose_pages(v);
		}
	}
	atomic_store_explicit(&rpwi_check_notes.read, b.to, memory_order_release);
	if (atomic_exchange(&ring.missed, 0))
		rpwi_check_unwatched("memory was freed faster than it could be looked at: some of "
				     "that was not watched");
}

/* ---- use of a region that has lost its pages ---- */

static const struct check_loss *loss_of(uint32_t key, uint64_t iova, uint64_t len, uint64_t *at)
{
	uint32_t n = check_key_loss(key, iova, at);
	const struct check_loss *l = &ring.loss[n % LOSSES];
	/* one that was overwritten is another's by now: nothing is said */
	bool good = n && ring.losses - n <= LOSSES && *at < l->addr + l->len && l->addr < *at + len;
	return good ? l : NULL;
}

static void say_loss(struct rpwi_finding *f, const struct check_loss *l, const char *who)
{
	snprintf(f->text, sizeof(f->text),
		"%s memory of a region whose pages, %llu bytes at 0x%llx, the program has %s", who,
		(unsigned long long)l->len, (unsigned long long)l->addr, how_text(l->how));
	rpwi_finding_site(f, how_here(l->how), &(struct rpwi_site){{l->pc}});
	rpwi_check_report(f);
}

void check_freed_uses(struct check_qp *q, struct check_wr *w)
{
	uint64_t at;
	for (unsigned i = 0; i < w->nsge && RPWI_UNLIKELY(ring.losses > 1) && !w->told; i++) {
		const struct ibv_sge *s = &w->sge[i];
		const struct check_loss *l =
			s->length ? loss_of(s->lkey, s->addr, s->length, &at) : NULL;
		if (!l)
			continue;
		struct rpwi_finding f = check_finding(RPWI_RULE_MEMORY_FREED, q, w);
		w->told = true;
		say_loss(&f, l, "the request uses");
	}
}

bool check_freed_reached(uint32_t qpn, uint32_t key, uint64_t addr, uint64_t len)
{
	uint64_t at;
	const struct check_loss *l = ring.losses > 1 ? loss_of(key, addr, len, &at) : NULL;
	if (!l)
		return false;
	struct rpwi_finding f = check_finding(RPWI_RULE_MEMORY_FREED, check_qpn_find(qpn), NULL);
	f.has_memory = true;
	f.addr = addr;
	f.len = len;
	f.key = key;
	say_loss(&f, l, "the peer reaches");
	return true;
}

/* ---- the hooks ---- */

static char other[256];

void check_freed_init(void)
{
	struct rpwi_check_hooks *h = dlsym(RTLD_DEFAULT, "ropeway_check_hooks");
	if (!h) {
		rpwi_check_unwatched("free, munmap and fork were not watched: ropeway run --check "
				     "preloads libropeway-check.so.0 for that");
		return;
	}
	rpwi_check_notes.look = notes_read;
	h->lost = lost;
	Dl_info info;
	void *called = dlsym(RTLD_DEFAULT, "free");
	if (called == h->free)
		return;
	snprintf(other, sizeof(other), "free was not watched: the program's is that of %s",
		dladdr(called, &info) && info.dli_fname ? info.dli_fname : "another library");
	rpwi_check_unwatched(other);
}
