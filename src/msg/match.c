/* SPDX-License-Identifier: BSD-3-Clause */
/* match.c - see match.h. */
#include "msg/match.h"

#include <stdlib.h>

enum { BITS_FIRST = 8, BITS_CACHED = 14, BITS_MAX = 24 };

/* Sparse: who meets another in a bucket has to look at it, a line that it does not need. More so
 * while the buckets fit into a core's cache. */
static size_t leaders_max(const struct match_table *t)
{
	return (size_t)1 << t->bits >> (t->bits < BITS_CACHED ? 3 : 2);
}

bool match_init(struct match_table *t, uint64_t secret)
{
	*t = (struct match_table){.bits = BITS_FIRST, .secret = secret | 1};
	t->buckets = calloc(1u << BITS_FIRST, sizeof(*t->buckets));
	t->last.key = match_key(t, 0, 0);
	t->last.bucket = match_bucket(t, t->last.key);
	return t->buckets;
}

void match_fini(struct match_table *t)
{
	free(t->buckets);
	t->buckets = NULL;
}

static void push(struct match_bucket *b, struct match_node *n, uint64_t key)
{
	n->next_key = b->first;
	n->below = b->key;
	b->key = key | (b->first ? MATCH_MORE : 0);
	b->first = n;
}

/* More buckets, if there is memory; without, chains grow longer, and nothing else happens. */
static void grow(struct match_table *t)
{
	struct match_table bigger = {
		.bits = t->bits + 1, .secret = t->secret, .leaders = t->leaders, .last = t->last};
	bigger.buckets = calloc((size_t)1 << bigger.bits, sizeof(*bigger.buckets));
	if (!bigger.buckets)
		return;
	for (size_t i = 0; i < (size_t)1 << t->bits; i++)
		for (struct match_bucket at = t->buckets[i], next; at.first; at = next) {
			next = (struct match_bucket){at.first->below, at.first->next_key};
			push(match_bucket(&bigger, at.key), at.first, at.key & ~MATCH_MORE);
		}
	free(t->buckets);
	*t = bigger;
	t->last.bucket = match_bucket(t, t->last.key);
}

void match_look(struct match_table *t, uint64_t tag, uint64_t source)
{
	uint64_t key = match_key(t, tag, source);
	struct match_bucket *b = match_bucket(t, key);
	struct match_node *n = b->first;
	if (n && (b->key ^ key) & ~MATCH_MORE && !(b->key & MATCH_MORE))
		n = NULL;
	while (n && !match_is(n, tag, source))
		n = n->next_key;
	t->last.tag = tag;
	t->last.source = source;
	t->last.key = key;
	t->last.bucket = b;
	t->last.leader = n;
}

void match_lead(struct match_table *t, struct match_node *n)
{
	n->next = n->prev = n;
	push(t->last.bucket, n, t->last.key);
	t->last.leader = n;
	if (RPWI_UNLIKELY(++t->leaders > leaders_max(t)) && t->bits < BITS_MAX)
		grow(t);
}

void match_yield(struct match_table *t, struct match_node *n)
{
	struct match_node *heir = n->next == n ? NULL : n->next;
	struct match_bucket *b = t->last.bucket;
	struct match_node **at = &b->first, *above = NULL;
	for (; *at != n; at = &(*at)->next_key)
		above = *at;
	t->last.leader = heir;
	if (RPWI_LIKELY(heir != NULL)) {
		heir->leads = true;
		heir->next_key = n->next_key;
		heir->below = n->below;
		*at = heir;
		return;
	}
	*at = n->next_key;
	t->leaders--;
	if (!above) {
		b->key = n->below;
		return;
	}
	above->below = n->below;
	if (above == b->first && !above->next_key)
		b->key &= ~MATCH_MORE;
}
