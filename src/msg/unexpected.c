/* SPDX-License-Identifier: BSD-3-Clause */
/* unexpected.c - messages that came before their receive: kept, and found. A table has them by
 * (tag, endpoint) and by (tag, any). A receive with a mask looks through the list, in the order in
 * which they came; when that was long, they are put into a table by (tag & mask), too, which is
 * kept up to date until no message is left. So a receive costs with 100,000 waiting what it costs
 * with one. */
#include "msg/ids.h"
#include "msg/loan.h"
#include "msg/objects.h"
#include "msg/unexpected.h"

#include <stdlib.h>

enum { SMALL_BODY = 64, SMALL_KEPT_MAX = 4096, SEARCH_LONG = 64, INDEXES_MAX = 4 };

/* ---- by mask ---- */

/* A message in the index of one mask. */
struct unexpected_ref {
	struct match_node of_endpoint, of_any;
	struct unexpected_ref *next; /* the same message's, in another index */
	struct unexpected_index *index;
	struct unexpected *u;
};

struct unexpected_index {
	struct unexpected_index *next;
	uint64_t mask;
	struct match_table table;
	bool lacks; /* a message, for want of memory: of no use any more */
};

static void index_add(struct unexpected_index *x, struct unexpected *u)
{
	struct unexpected_ref *ref = x->lacks ? NULL : malloc(sizeof(*ref));
	if (!ref) {
		x->lacks = true;
		return;
	}
	ref->u = u;
	ref->index = x;
	ref->next = u->refs;
	u->refs = ref;
	match_add(&x->table, &ref->of_endpoint, u->tag & x->mask, u->ep->id);
	match_add(&x->table, &ref->of_any, u->tag & x->mask, 1);
}

static void refs_free(struct unexpected *u)
{
	for (struct unexpected_ref *ref = u->refs, *next; ref; ref = next) {
		next = ref->next;
		match_del(&ref->index->table, &ref->of_endpoint);
		match_del(&ref->index->table, &ref->of_any);
		free(ref);
	}
	u->refs = NULL;
}

static void index_make(rpw_context *c, uint64_t mask)
{
	unsigned n = 0;
	for (const struct unexpected_index *x = c->unexpected_indexes; x; x = x->next)
		n++;
	struct unexpected_index *x = n < INDEXES_MAX ? calloc(1, sizeof(*x)) : NULL;
	if (!x || !match_init(&x->table, msg_random())) {
		free(x);
		return;
	}
	x->mask = mask;
	x->next = c->unexpected_indexes;
	c->unexpected_indexes = x;
	RPWI_LIST_EACH (struct unexpected, u, &c->unexpected_list, in_context)
		index_add(x, u);
}

void unexpected_indexes_free(rpw_context *c)
{
	for (struct unexpected_index *x = c->unexpected_indexes, *next; x; x = next) {
		next = x->next;
		match_fini(&x->table);
		free(x);
	}
	c->unexpected_indexes = NULL;
}

static struct unexpected *search(rpw_context *c, rpw_endpoint *ep, uint64_t tag, uint64_t mask)
{
	struct rpwi_list *list = ep ? &ep->unexpected : &c->unexpected_list;
	struct unexpected *found = NULL;
	unsigned looked = 0;
	for (struct rpwi_list *n = list->next; n != list && !found; n = n->next, looked++) {
		struct unexpected *u = ep ? RPWI_CONTAINER_OF(n, struct unexpected, in_endpoint)
					  : RPWI_CONTAINER_OF(n, struct unexpected, in_context);
		if (!((u->tag ^ tag) & mask))
			found = u;
	}
	if (RPWI_UNLIKELY(looked > SEARCH_LONG))
		index_make(c, mask);
	return found;
}

/* ---- kept ---- */

struct unexpected *unexpected_new(rpw_endpoint *ep, size_t body_len)
{
	rpw_context *c = ep->c;
	struct unexpected *u;
	if (body_len <= SMALL_BODY && !rpwi_list_empty(&c->small_free)) {
		u = RPWI_CONTAINER_OF(c->small_free.next, struct unexpected, in_context);
		rpwi_list_del(&u->in_context);
		c->small_count--;
	} else
		u = malloc(sizeof(*u) + RPWI_MAX(body_len, (size_t)SMALL_BODY));
	if (!u)
		return NULL;
	u->ep = ep;
	u->rts = NULL;
	u->number = 0;
	u->head_len = 0;
	u->loaned = false;
	u->len = (uint32_t)body_len;
	u->units = credit_units(body_len);
	u->refs = NULL;
	rpwi_list_init(&u->in_context);
	rpwi_list_init(&u->in_endpoint);
	c->stat.unexpected++;
	c->stat.unexpected_bytes += body_len;
	return u;
}

/* Of what a peer offers to be fetched; NULL: there was no memory, and the peer has been told. */
struct unexpected *unexpected_offered(rpw_endpoint *ep, struct rts *rts, uint32_t units)
{
	struct unexpected *u = unexpected_new(ep, 0);
	if (!u) {
		link_reply(&ep->link, FRAME_DONE, done_word(DONE_FETCHED, RPW_ERR_NO_MEMORY),
			rts->number, NULL, 0);
		free(rts);
		return NULL;
	}
	u->rts = rts;
	u->units = units;
	return u;
}

static void taken_out(struct unexpected *u)
{
	u->ep->c->stat.unexpected_bytes -= u->len;
	rpwi_list_del(&u->in_endpoint);
	rpwi_list_del(&u->in_context);
}

void unexpected_release(struct unexpected *u)
{
	rpw_context *c = u->ep->c;
	taken_out(u);
	free(u->rts);
	if (RPWI_UNLIKELY(u->loaned))
		loan_come_give_back((struct loan_come *)u->body);
	if (u->len <= SMALL_BODY && c->small_count < SMALL_KEPT_MAX) {
		c->small_count++;
		rpwi_list_add_tail(&c->small_free, &u->in_context);
	} else
		free(u);
}

/* A tagged one. */
static void unmatched(struct unexpected *u)
{
	rpw_context *c = u->ep->c;
	match_del(&c->unexpected, &u->of_endpoint);
	match_del(&c->unexpected, &u->of_any);
	if (RPWI_UNLIKELY(u->refs != NULL))
		refs_free(u);
	if (!--c->unexpected_count && RPWI_UNLIKELY(c->unexpected_indexes != NULL))
		unexpected_indexes_free(c);
}

/* Its memory is the caller's now, to be given to free(). */
void unexpected_keep(struct unexpected *u)
{
	unmatched(u);
	taken_out(u);
	if (u->ep->state != EP_FAILED)
		credit_return(&u->ep->link, u->units);
}

/* credit: give it back to the peer (it may be gone). */
void unexpected_free(struct unexpected *u, bool credit)
{
	unmatched(u);
	rpw_endpoint *ep = u->ep;
	uint32_t units = u->units;
	unexpected_release(u);
	if (credit && ep->state != EP_FAILED)
		credit_return(&ep->link, units);
}

void unexpected_add(rpw_endpoint *ep, struct unexpected *u, uint64_t tag)
{
	rpw_context *c = ep->c;
	u->tag = tag;
	match_add(&c->unexpected, &u->of_endpoint, tag, ep->id);
	match_add(&c->unexpected, &u->of_any, tag, 1);
	rpwi_list_add_tail(&ep->unexpected, &u->in_endpoint);
	rpwi_list_add_tail(&c->unexpected_list, &u->in_context);
	c->unexpected_count++;
	for (struct unexpected_index *x = c->unexpected_indexes; RPWI_UNLIKELY(x != NULL);
		x = x->next)
		index_add(x, u);
}

struct unexpected *unexpected_for(rpw_context *c, rpw_endpoint *ep, uint64_t tag, uint64_t mask)
{
	if (mask == UINT64_MAX) {
		struct match_node *n = match_first(&c->unexpected, tag, ep ? ep->id : 1);
		if (!n)
			return NULL;
		return ep ? RPWI_CONTAINER_OF(n, struct unexpected, of_endpoint)
			  : RPWI_CONTAINER_OF(n, struct unexpected, of_any);
	}
	for (struct unexpected_index *x = c->unexpected_indexes; x; x = x->next)
		if (x->mask == mask && !x->lacks) {
			struct match_node *n = match_first(&x->table, tag & mask, ep ? ep->id : 1);
			if (!n)
				return NULL;
			return ep ? RPWI_CONTAINER_OF(n, struct unexpected_ref, of_endpoint)->u
				  : RPWI_CONTAINER_OF(n, struct unexpected_ref, of_any)->u;
		}
	return search(c, ep, tag, mask);
}
