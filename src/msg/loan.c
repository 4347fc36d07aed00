/* SPDX-License-Identifier: BSD-3-Clause */
/* loan.c - memory for loans: pools of slots of one size, classes of sizes. The state of a slot is
 * private; the peer writes one word for each, and only this is believed: a word with the number of
 * the loan that is out gives it back. So a peer that writes other words keeps its loans, and
 * one that writes them too early reads what is next.
 *
 * Words are looked at when a class has no free slot: they are written by the peer, so each look
 * moves a line between the cores, which then serves eight slots. */
#include "base/copy.h"
#include "msg/checked.h"
#include "msg/endpoint.h"
#include "msg/loan.h"
#include "msg/request.h"
#include "msg/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum {
	ALIGN = TRAN_LOAN_ALIGN,
	/* sizes: multiples of ALIGN, four to each doubling */
	CLASSES = 4 * 36,
	POOL_BYTES_FIRST = 256 * 1024,
	POOL_SLOTS_FIRST = 64,
	/* of a class: beyond it it grows by what is missing, since what it has is used in turn */
	POOL_BYTES_DOUBLED = 4 << 20,
	POOL_SLOTS_MOST = 4096,
	/* a look that finds fewer returned than one of so many makes the class larger */
	SWEEP_YIELD = 8,
};

struct loan_class {
	struct rpwi_list free, sent; /* sent: in that order */
	uint32_t slots;
};
struct loan_pool {
	struct loans *of;         /* NULL: its endpoint has gone */
	struct loan_class *class; /* of which it is */
	struct tran_pool *shared; /* NULL: private */
	struct rpwi_list in;      /* loans.pools */
	uint8_t *data;
	size_t slot_bytes, bytes;
	uint32_t slots, busy; /* busy: not free */
	bool writable;        /* by the peer */
	const struct tran_loan_ops *ops;
	struct loan_slot slot[];
};
struct loans {
	rpw_endpoint *ep;
	struct rpwi_list pools, held;
	size_t reserved; /* of all pools */
	struct loan_class *class[LOAN_KINDS];
};

/* Four milliseconds exact, and no system call. */
static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* How long a slot for n bytes is; and the number of its class. */
static size_t slot_bytes_of(size_t n, unsigned *class)
{
	size_t units = RPWI_MAX((n + ALIGN - 1) / ALIGN, (size_t)1);
	if (units <= 4) {
		*class = (unsigned)units - 1;
		return units * ALIGN;
	}
	unsigned top = 63 - (unsigned)__builtin_clzll(units - 1), shift = top - 2;
	size_t steps = ((units - 1) >> shift) + 1; /* 5 to 8 */
	*class = 4 + shift * 4 + (unsigned)steps - 5;
	return (steps << shift) * ALIGN;
}

static size_t whole_pages(size_t n) { return (n + LOAN_PAGE - 1) & ~(size_t)(LOAN_PAGE - 1); }

enum loan_kind loan_kind_of(const rpw_endpoint *ep, unsigned flags)
{
	if (ep->state != EP_UP || !ep->link.te || !ep->link.ops->loan)
		return LOAN_PRIVATE;
	return flags & RPW_LOAN_WRITABLE ? LOAN_SHARED_WRITABLE : LOAN_SHARED;
}

/* ---- pools ---- */

static struct loans *loans_of(rpw_endpoint *ep)
{
	if (RPWI_LIKELY(ep->loans != NULL))
		return ep->loans;
	struct loans *l = calloc(1, sizeof(*l));
	if (!l) {
		rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for loans");
		return NULL;
	}
	l->ep = ep;
	rpwi_list_init(&l->pools);
	rpwi_list_init(&l->held);
	return ep->loans = l;
}

static struct loan_class *class_of(struct loans *l, enum loan_kind kind, unsigned class)
{
	if (RPWI_UNLIKELY(!l->class[kind])) {
		l->class[kind] = malloc(CLASSES * sizeof(struct loan_class));
		if (!l->class[kind]) {
			rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for loans");
			return NULL;
		}
		for (unsigned i = 0; i < CLASSES; i++) {
			struct loan_class *c = &l->class[kind][i];
			rpwi_list_init(&c->free);
			rpwi_list_init(&c->sent);
			c->slots = 0;
		}
	}
	return &l->class[kind][class];
}

static void pool_unmap(struct loan_pool *p, struct tran_ep *te)
{
	if (RPWI_UNLIKELY(rpwi_check_on))
		checked_loans_gone(p->data, p->bytes);
	if (p->shared)
		p->ops->end(te, p->shared);
	else if (p->data)
		munmap(p->data, p->bytes);
	free(p);
}

/* Of an endpoint that is there; none of its slots is in use. */
static void pool_drop(struct loan_pool *p)
{
	struct loans *l = p->of;
	for (uint32_t i = 0; i < p->slots; i++)
		rpwi_list_del(&p->slot[i].in);
	p->class->slots -= p->slots;
	l->reserved -= p->bytes;
	rpwi_list_del(&p->in);
	pool_unmap(p, l->ep->link.te);
}

/* 0, RPWI_LATER or an error. */
static int pool_map(struct loan_pool *p, enum loan_kind kind)
{
	rpw_endpoint *ep = p->of->ep;
	if (kind != LOAN_PRIVATE) {
		p->ops = ep->link.ops->loan;
		int rc = p->ops->make(ep->link.te, p->slot_bytes, p->slots,
			kind == LOAN_SHARED_WRITABLE, &p->shared);
		p->data = rc ? NULL : p->shared->data;
		return rc;
	}
	void *at = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for loans: %zu bytes", p->bytes);
	p->data = at;
	return 0;
}

static int pool_make(struct loans *l, struct loan_class *class, enum loan_kind kind,
	size_t slot_bytes, uint32_t slots)
{
	struct loan_pool *p = malloc(sizeof(*p) + slots * sizeof(struct loan_slot));
	if (!p)
		return rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for a pool of loans");
	*p = (struct loan_pool){.of = l,
		.class = class,
		.slot_bytes = slot_bytes,
		.bytes = whole_pages(slot_bytes * slots),
		.slots = slots,
		.writable = kind == LOAN_SHARED_WRITABLE};
	int rc = pool_map(p, kind);
	if (rc) {
		free(p);
		return rc;
	}
	for (uint32_t i = 0; i < slots; i++) {
		p->slot[i] = (struct loan_slot){.pool = p, .state = LOAN_FREE};
		rpwi_list_add_tail(&class->free, &p->slot[i].in);
	}
	class->slots += slots;
	l->reserved += p->bytes;
	rpwi_list_add_tail(&l->pools, &p->in);
	return 0;
}

/* ---- what comes back ---- */

static bool is_returned(const struct loan_slot *s)
{
	const struct loan_pool *p = s->pool;
	return atomic_load_explicit(&p->shared->returned[s - p->slot], memory_order_acquire) ==
	       s->number;
}

/* It was sent long ago: so it is the warmest of those that are free now, and first. */
static void slot_comes_back(struct loan_slot *s)
{
	struct rpwi_list *first = &s->pool->class->free;
	rpwi_list_del(&s->in);
	rpwi_list_add_tail(first->next, &s->in);
	s->state = LOAN_FREE;
	s->pool->busy--;
}

/* How many were given back; *looked: of how many. */
static unsigned sweep(struct loan_class *class, unsigned *looked)
{
	unsigned n = 0;
	*looked = 0;
	RPWI_LIST_EACH_SAFE (struct loan_slot, s, next, &class->sent, in) {
		++*looked;
		if (!is_returned(s))
			continue;
		slot_comes_back(s);
		n++;
	}
	return n;
}

static void sweep_all(struct loans *l)
{
	unsigned looked;
	for (int kind = LOAN_SHARED; kind < LOAN_KINDS; kind++)
		for (unsigned i = 0; l->class[kind] && i < CLASSES; i++)
			if (l->class[kind][i].slots)
				sweep(&l->class[kind][i], &looked);
}

/* Pools of other sizes that nobody uses. */
static void make_room(struct loans *l, size_t bytes, size_t most)
{
	sweep_all(l);
	RPWI_LIST_EACH_SAFE (struct loan_pool, p, next, &l->pools, in) {
		if (l->reserved + bytes <= most)
			return;
		if (!p->busy)
			pool_drop(p);
	}
}

static int grow(struct loans *l, struct loan_class *class, enum loan_kind kind, size_t slot_bytes,
	size_t most)
{
	uint32_t slots = (uint32_t)RPWI_MAX(
		RPWI_MIN(POOL_BYTES_FIRST / slot_bytes, (size_t)POOL_SLOTS_FIRST), (size_t)1);
	uint32_t more =
		class->slots * slot_bytes <= POOL_BYTES_DOUBLED ? class->slots : class->slots / 8;
	slots = RPWI_MAX(slots, RPWI_MIN(more, (uint32_t)POOL_SLOTS_MOST));
	if (l->reserved + whole_pages(slot_bytes) > most)
		make_room(l, whole_pages(slot_bytes), most);
	size_t room = most > l->reserved ? most - l->reserved : 0;
	while (slots > 1 && whole_pages(slots * slot_bytes) > room)
		slots /= 2;
	if (whole_pages(slots * slot_bytes) > room)
		return RPWI_LATER;
	return pool_make(l, class, kind, slot_bytes, slots);
}

/* 0: there is a free one. */
static int refill(struct loans *l, struct loan_class *class, enum loan_kind kind, size_t slot_bytes,
	size_t most)
{
	unsigned looked, back = sweep(class, &looked);
	if (back && back >= looked / SWEEP_YIELD)
		return 0;
	int rc = grow(l, class, kind, slot_bytes, most);
	return rpwi_list_empty(&class->free) ? rc ?: RPWI_LATER : 0;
}

/* The endpoint's pools grow to `most` bytes for it. */
static struct loan_slot *slot_take(
	rpw_endpoint *ep, size_t bytes, enum loan_kind kind, size_t most, bool *again)
{
	unsigned number;
	size_t slot_bytes = slot_bytes_of(bytes, &number);
	slot_bytes = RPWI_MIN(slot_bytes, ep->c->loan_max); /* whole pages */
	struct loans *l = loans_of(ep);
	struct loan_class *class = l ? class_of(l, kind, number) : NULL;
	if (!class)
		return NULL;
	int rc = RPWI_UNLIKELY(rpwi_list_empty(&class->free))
			 ? refill(l, class, kind, slot_bytes, most)
			 : 0;
	if (RPWI_UNLIKELY(rc)) {
		*again = rc == RPWI_LATER;
		return NULL;
	}
	struct loan_slot *s = RPWI_CONTAINER_OF(class->free.next, struct loan_slot, in);
	if (RPWI_UNLIKELY(rpwi_check_on))
		checked_loan_taken(loan_address(s));
	s->number = ++ep->c->loan_numbers;
	s->since_ms = now_ms();
	s->pool->busy++;
	loan_hold(s);
	return s;
}

struct loan_slot *loan_take(rpw_endpoint *ep, size_t bytes, enum loan_kind kind, bool *again)
{
	*again = false;
	if (bytes <= ep->c->loan_max)
		return slot_take(ep, bytes, kind, ep->c->loan_max, again);
	rpwi_fail(RPW_ERR_LIMIT,
		"%zu bytes can never be loaned: %zu are the most of an endpoint (loan_bytes_max)",
		bytes, ep->c->loan_max);
	return NULL;
}

/* Half of what an endpoint may have is left to the loans that its program asks for. The receiver
 * may write into it, as into every view of a message that nobody loaned. */
struct loan_slot *loan_of_copy(rpw_endpoint *ep, const struct iovec *iov, int iovcnt, size_t len)
{
	bool again = false;
	size_t most = ep->c->loan_max / 2;
	enum loan_kind kind = loan_kind_of(ep, RPW_LOAN_WRITABLE);
	struct loan_slot *s = len <= most && kind == LOAN_SHARED_WRITABLE
				      ? slot_take(ep, len, kind, most, &again)
				      : NULL;
	if (s) {
		iov_gather(iov, iovcnt, 0, loan_address(s), len);
		s->state = LOAN_SENDING;
	}
	return s;
}

/* ---- one slot ---- */

uint8_t *loan_address(const struct loan_slot *s)
{
	return s->pool->data + s->pool->slot_bytes * (size_t)(s - s->pool->slot);
}
size_t loan_room(const struct loan_slot *s) { return s->pool->slot_bytes; }
bool loan_is_writable(const struct loan_slot *s) { return s->pool->writable; }
bool loan_is_of(const struct loan_slot *s, const rpw_endpoint *ep)
{
	return s->pool->of && s->pool->of->ep == ep;
}
bool loan_is_shared(const struct loan_slot *s) { return s->pool->shared; }

struct loan_body loan_describe(const struct loan_slot *s, size_t len)
{
	const struct loan_pool *p = s->pool;
	return (struct loan_body){.pool = p->shared->id,
		.generation = p->shared->generation,
		.slot = (uint32_t)(s - p->slot),
		.number = s->number,
		.len = len};
}

void loan_hold(struct loan_slot *s)
{
	rpwi_list_del(&s->in);
	rpwi_list_add_tail(&s->pool->of->held, &s->in);
	s->state = LOAN_HELD;
}

void loan_hold_again(struct loan_slot *s)
{
	s->pool->busy += s->state == LOAN_FREE;
	loan_hold(s);
}

void loan_passed(struct loan_slot *s)
{
	rpwi_list_del(&s->in);
	rpwi_list_add_tail(&s->pool->class->sent, &s->in);
	s->state = LOAN_SENT;
}

void loan_free(struct loan_slot *s)
{
	struct loan_pool *p = s->pool;
	rpwi_list_del(&s->in);
	s->state = LOAN_FREE;
	p->busy--;
	if (RPWI_LIKELY(p->of != NULL))
		rpwi_list_add_tail(p->class->free.next, &s->in);
	else if (!p->busy)
		pool_unmap(p, NULL);
}

int loan_begin(rpw_request *r)
{
	rpw_endpoint *ep = r->ep;
	struct loan_slot *s = r->lent;
	const uint32_t units = credit_units(sizeof(struct loan_body));
	if (!credit_has(&ep->link, units)) {
		credit_need(&ep->link, units);
		return RPWI_LATER;
	}
	struct loan_body body = loan_describe(s, r->len);
	struct iovec iov = {&body, sizeof(body)};
	int rc = link_send(&ep->link, &(struct frame){.type = FRAME_LOAN,
					      .tag = r->tag,
					      .iov = &iov,
					      .iovcnt = 1,
					      .len = sizeof(body),
					      .units = units});
	if (rc == RPWI_LATER)
		return rc;
	if (!rc) {
		trace_sent(ep, r->tag, r->len);
		loan_passed(s);
		r->lent = NULL;
	}
	req_complete(r, rc);
	return 0;
}

/* ---- all of an endpoint ---- */

struct holding {
	unsigned n;
	size_t bytes;
	uint64_t since_ms;
};
static void holding_add(struct holding *h, const struct loan_slot *s)
{
	if (!h->n || s->since_ms < h->since_ms)
		h->since_ms = s->since_ms;
	h->n++;
	h->bytes += s->pool->slot_bytes;
}

static void holdings(struct loans *l, struct holding *own, struct holding *peer)
{
	sweep_all(l);
	RPWI_LIST_EACH (struct loan_pool, p, &l->pools, in)
		for (uint32_t i = 0; i < p->slots; i++)
			if (p->slot[i].state == LOAN_SENT)
				holding_add(peer, &p->slot[i]);
			else if (p->slot[i].state != LOAN_FREE)
				holding_add(own, &p->slot[i]);
}

static const char *holding_text(const struct holding *h, char text[96])
{
	if (!h->n)
		return "nothing";
	snprintf(text, 96, "%zu bytes in %u loan%s, the oldest for %.3f s", h->bytes, h->n,
		rpwi_plural(h->n), (double)(now_ms() - h->since_ms) / 1000);
	return text;
}

void loan_say_full(rpw_endpoint *ep, size_t bytes)
{
	struct holding own = {0}, peer = {0};
	char own_text[96], peer_text[96];
	if (ep->loans)
		holdings(ep->loans, &own, &peer);
	rpwi_fail(RPW_ERR_LIMIT,
		"%zu bytes cannot be loaned now on the endpoint to %s: the peer holds %s; this "
		"program holds %s; at most %zu bytes (loan_bytes_max)",
		bytes, text_or(ep->peer, "?"), holding_text(&peer, peer_text),
		holding_text(&own, own_text), ep->c->loan_max);
}

size_t loan_bytes_out(rpw_endpoint *ep)
{
	struct holding own = {0}, peer = {0};
	if (!ep->loans)
		return 0;
	holdings(ep->loans, &own, &peer);
	return own.bytes + peer.bytes;
}

/* Pools with slots that the program holds stay until these are returned. */
void loan_all_end(rpw_endpoint *ep)
{
	struct loans *l = ep->loans;
	struct holding own = {0}, peer = {0};
	if (!l)
		return;
	holdings(l, &own, &peer);
	if (RPWI_UNLIKELY(rpwi_check_on) && own.n)
		checked_loans_left(own.n, own.bytes);
	while (!rpwi_list_empty(&l->pools)) {
		struct loan_pool *p = RPWI_CONTAINER_OF(l->pools.next, struct loan_pool, in);
		rpwi_list_del(&p->in);
		p->busy = 0;
		for (uint32_t i = 0; i < p->slots; i++) {
			struct loan_slot *s = &p->slot[i];
			rpwi_list_del(&s->in);
			p->busy += s->state == LOAN_HELD;
			if (s->state != LOAN_HELD)
				s->state = LOAN_FREE;
		}
		p->of = NULL;
		if (!p->busy)
			pool_unmap(p, NULL);
	}
	for (int i = 0; i < LOAN_KINDS; i++)
		free(l->class[i]);
	free(l);
	ep->loans = NULL;
}
