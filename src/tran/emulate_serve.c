/* SPDX-License-Identifier: BSD-3-Clause */
/* emulate_serve.c - registered memory, and the side that answers (emulate_priv.h). */
#include "tran/emulate_priv.h"

#include <errno.h>
#include <stdlib.h>

enum { REGIONS_MAX = 1 << 28 };

/* ---- registered memory ---- */

static int region_add(
	struct tran *t, void *addr, size_t len, unsigned access, struct tran_mem **out)
{
	struct rpwi_slots *slots = &t->emulated->regions;
	struct region *m = rpwi_slots_reserve(slots, REGIONS_MAX) ? malloc(sizeof(*m)) : NULL;
	if (!m)
		return tran_no_memory(t, "one more registration");
	m->base.addr = addr;
	m->base.len = len;
	m->base.access = access;
	m->base.kept = false;
	m->home.addr = addr;
	m->home.len = len;
	rpwi_list_init(&m->home.regs);
	rpwi_list_init(&m->moving);
	m->slot = rpwi_slots_take(slots, m);
	m->key = rpwi_random64();
	struct desc d = {.magic = MAGIC, .slot = m->slot, .key = m->key};
	m->base.desc.len = sizeof(d);
	memcpy(m->base.desc.bytes, &d, sizeof(d));
	*out = &m->base;
	return 0;
}

/* Nothing more begins. What moves is cut, and its peer hears that when it ends. */
static void region_del(struct tran *t, struct tran_mem *base)
{
	struct region *m = (struct region *)base;
	rpwi_slots_hide(&t->emulated->regions, m->slot);
	while (!rpwi_list_empty(&m->moving)) {
		struct serve *s =
			RPWI_CONTAINER_OF(rpwi_list_pop(&m->moving), struct serve, moving);
		s->answer = NO_ACCESS;
		t->ops->bulk->cut(s->bulk);
	}
	if (t->ops->bulk && t->ops->bulk->release)
		t->ops->bulk->release(t, &m->home);
	rpwi_slots_give(&t->emulated->regions, m->slot);
	free(m);
}

const struct tran_mem_ops emulated_mem = {.add = region_add, .del = region_del};

/* What a request names, if it may do this there; NULL otherwise. */
static struct region *region_find(
	struct tran *t, const struct ask *a, uint64_t len, unsigned access)
{
	struct region *m = rpwi_slots_find(&t->emulated->regions, a->slot);
	if (!m || m->key != a->key || (m->base.access & access) != access)
		return NULL;
	return a->offset <= m->base.len && len <= m->base.len - a->offset ? m : NULL;
}

static uint8_t *region_at(const struct region *m, const struct ask *a)
{
	return (uint8_t *)m->base.addr + a->offset;
}

static uint8_t *own(struct tran *t, const struct ask *a, uint64_t len, unsigned access)
{
	if (t->ops->reach)
		return t->ops->reach->own(t, a->slot, a->key, a->offset, len, access);
	const struct region *m = region_find(t, a, len, access);
	return m ? region_at(m, a) : NULL;
}

/* ---- requests ---- */

static uint8_t *bounce(struct tran_ep *ep)
{
	struct emulated *t = ep->tran->emulated;
	if (t->room < emulate_frame_most(ep)) {
		uint8_t *p = realloc(t->bounce, emulate_frame_most(ep));
		if (!p)
			return NULL;
		t->bounce = p;
		t->room = emulate_frame_most(ep);
	}
	return t->bounce;
}

/* The bytes of a get: only when they go, since the answer may have waited, and the memory be gone.
 * NULL, and s->answer says so. */
static const void *got(struct emulated_ep *e, struct serve *s, size_t len)
{
	struct tran *t = e->ep->tran;
	const uint8_t *from = own(t, &s->ask, len, TRAN_READ);
	if (from && t->ops->reach)
		return from;
	uint8_t *p = from ? bounce(e->ep) : NULL;
	if (p && !tran_fetch(t->emulated->pid, p, from, len))
		return p;
	s->answer = from && !p ? FAILED : NO_ACCESS;
	return NULL;
}

/* An answer goes, or its rest waits for room. */
static bool answer_sent(struct emulated_ep *e, struct serve *s)
{
	bool get = s->ask.kind == EMULATED_GET;
	do {
		size_t len = RPWI_MIN(s->ask.len, s->part);
		const void *body = get && s->answer == OK && len ? got(e, s, len) : NULL;
		struct done d = {.kind = EMULATED_DONE,
			.answer = s->answer,
			.id = s->ask.id,
			.value = s->value};
		if (emulate_send(e, &d, sizeof(d), body, body ? len : 0))
			return false;
		s->ask.offset += len;
		s->ask.len -= len;
	} while (get && s->answer == OK && s->ask.len);
	s->busy = false;
	return true;
}

static void answer(struct emulated_ep *e, struct serve *s, unsigned how)
{
	s->answer = (uint8_t)how;
	if (!rpwi_list_empty(&e->owed) || !answer_sent(e, s))
		rpwi_list_add_tail(&e->owed, &s->owed);
}

static void serve_bulk(struct emulated_ep *e, struct serve *s)
{
	const struct tran_bulk_ops *bulk = e->ep->tran->ops->bulk;
	bool put = s->ask.kind == EMULATED_PUT;
	struct region *m =
		region_find(e->ep->tran, &s->ask, s->ask.len, put ? TRAN_WRITE : TRAN_READ);
	int rc = m ? bulk->make(
			     e->ep, !put, region_at(m, &s->ask), s->ask.len, &m->home, s, &s->bulk)
		   : 0;
	s->answer = m ? OK : NO_ACCESS;
	if (rc) {
		s->answer = FAILED;
		m = NULL;
	}
	if (!m && !put && rc != RPW_ERR_PEER_GONE) {
		answer(e, s, s->answer);
		return;
	}
	/* Of a put that is refused the bytes come, too. */
	if (!m && rc != RPW_ERR_PEER_GONE)
		rc = bulk->make(e->ep, false, NULL, s->ask.len, NULL, s, &s->bulk);
	if (rc == RPW_ERR_PEER_GONE) /* up->failed says so */
		return;
	if (!s->bulk) {
		e->ep->tran->ops->breach(e->ep, rpwi_last_error());
		return;
	}
	if (m)
		rpwi_list_add_tail(&m->moving, &s->moving);
	bulk->go(s->bulk, put ? s->ask.id | EMULATED_PUT_ID : s->ask.id);
}

static unsigned put_small(struct tran *t, const struct ask *a, const void *body)
{
	uint8_t *at = own(t, a, a->len, TRAN_WRITE);
	return !at || emulate_place(t, at, body, a->len) ? NO_ACCESS : OK;
}

static unsigned add_or_swap(struct tran *t, const struct ask *a, const void *body, uint64_t *before)
{
	struct operands o;
	uint64_t *at = (uint64_t *)(void *)own(t, a, 8, TRAN_ATOMIC);
	memcpy(&o, body, sizeof(o));
	if (!at || (uintptr_t)at % 8 || (!t->ops->reach && tran_reachable(at)))
		return NO_ACCESS;
	*before = tran_atomic_here(at, a->kind == EMULATED_ADD ? TRAN_FETCH_ADD : TRAN_COMPARE_SWAP,
		o.operand, o.compare);
	return OK;
}

static const char *ask_wrong(const struct tran_ep *ep, const struct ask *a, size_t body_len)
{
	unsigned i = a->id % (1 << INDEX_BITS);
	bool atomic = a->kind == EMULATED_ADD || a->kind == EMULATED_SWAP;
	if (i >= EMULATED_WINDOW || (i >= EMULATED_SMALL) != !!a->bulk ||
		a->bulk > (ep->tran->ops->bulk ? 1 : 0) || a->id & EMULATED_PUT_ID)
		return "a request with a number that there is not";
	size_t least = 0, most = emulate_frame_most(ep), body = 0;
	if (ep->tran->ops->reach && a->kind == EMULATED_GET)
		most = EMULATED_SPAN;
	if (a->bulk) {
		least = 1;
		most = TRAN_BULK_LEN_MAX;
	} else if (atomic) {
		least = most = 8;
		body = sizeof(struct operands);
	} else if (a->kind == EMULATED_PUT) {
		body = a->len;
	}
	if (a->more && (a->kind != EMULATED_PUT || !ep->tran->ops->reach))
		return "a request that has no more bytes, and says so";
	if (a->len < least || a->len > most || (a->bulk && atomic))
		return "a request for more than one takes";
	if (body_len != body)
		return "a request that is not as long as it says";
	return NULL;
}

static void serve(struct emulated_ep *e, struct serve *s, const struct ask *a, const void *body)
{
	struct tran *t = e->ep->tran;
	s->busy = true;
	s->ask = *a;
	s->part = emulate_part_most(e->ep, a->len);
	s->value = 0;
	s->bulk = NULL;
	if (a->bulk)
		serve_bulk(e, s);
	else if (a->kind == EMULATED_GET) /* bytes are checked when they go */
		answer(e, s, a->len || own(t, a, 0, TRAN_READ) ? OK : NO_ACCESS);
	else if (a->kind == EMULATED_PUT)
		answer(e, s, put_small(t, a, body));
	else
		answer(e, s, add_or_swap(t, a, body, &s->value));
}

void emulate_asked(struct tran_ep *ep, const struct ask *a, const void *body, size_t body_len)
{
	struct emulated_ep *e = emulate_of(ep);
	const char *why = ask_wrong(ep, a, body_len);
	struct serve *s = e && !why ? &e->serve[a->id % (1 << INDEX_BITS)] : NULL;
	if (s && s->bulk && s->ask.kind == EMULATED_GET)
		s += EMULATED_BULK;
	if (s && s->busy)
		why = "more requests than allowed";
	if (s && !why &&
		a->more) { /* the answer to the last piece is that to all: it ends highest */
		put_small(ep->tran, a, body);
		return;
	}
	if (why)
		emulate_breach(ep, why);
	else if (!s)
		ep->tran->ops->breach(ep, &(struct rpwi_error){RPW_ERR_NO_MEMORY, ENOMEM,
						  "no memory to answer the peer's requests"});
	else
		serve(e, s, a, body);
}

void emulate_served(struct emulated_ep *e, struct serve *s, int status)
{
	rpwi_list_del(&s->moving);
	s->bulk = NULL;
	if (s->ask.kind != EMULATED_PUT) {
		s->busy = false; /* the bytes were the answer */
		return;
	}
	if (s->answer == OK && status)
		s->answer = status == RPW_ERR_ACCESS ? NO_ACCESS : FAILED;
	answer(e, s, s->answer);
}

bool emulate_serve_room(struct emulated_ep *e)
{
	while (!rpwi_list_empty(&e->owed)) {
		struct serve *s = RPWI_CONTAINER_OF(e->owed.next, struct serve, owed);
		if (!answer_sent(e, s))
			return false;
		rpwi_list_del(&s->owed);
	}
	return true;
}
