/* SPDX-License-Identifier: BSD-3-Clause */
/* match.h - a table of queues by key: the first with (tag, source). Costs the same with 1 entry and
 * with 100,000, whether their keys differ or are equal: a bucket holds one leader for each key, the
 * others of that key queue behind their leader.
 *
 * With 100,000 entries neither table nor entries fit into a core's cache, so what counts are the
 * lines touched. The key of a leader is beside the pointer to it, too: to see that it is not the
 * one wanted, or to take away what was before it in its bucket, takes no look at it. And tags that
 * follow each other are in buckets that do, so a program that counts its tags finds the next bucket
 * in the line of the last.
 *
 * With few entries what counts are instructions: the last question and its answer are kept. So
 * nothing is computed twice for the message that takes what it found, nor for programs that stay
 * with one tag for a while. */
#ifndef ROPEWAY_MSG_MATCH_H
#define ROPEWAY_MSG_MATCH_H

#include "base/base.h"

struct match_node {
	struct match_node *next_key;    /* leaders: the next leader of the bucket ... */
	uint64_t below;                 /* ... and its key, as a bucket has it of its first */
	struct match_node *next, *prev; /* of the same key, in order; circular */
	uint64_t tag, source;
	bool leads;
};

#define MATCH_MORE (1ull << 63)
struct match_bucket {
	uint64_t key; /* of `first`; and MATCH_MORE when it has a next_key */
	struct match_node *first;
};

struct match_table {
	struct match_bucket *buckets;
	unsigned bits;
	size_t leaders;
	uint64_t secret; /* odd: a peer that picks tags cannot make them meet in one bucket */
	struct {
		uint64_t tag, source, key;
		struct match_bucket *bucket; /* where `key` is, or would be */
		struct match_node *leader;   /* or NULL */
	} last; /* always true: whatever changes a bucket asks for its key before */
};

bool match_init(struct match_table *t, uint64_t secret);
void match_fini(struct match_table *t);

/* The lowest bits of a tag move within a run of buckets; where that begins, all the others
 * decide. */
enum { MATCH_RUN_BITS = 5 };
static inline uint64_t match_key(const struct match_table *t, uint64_t tag, uint64_t source)
{
	uint64_t run = tag >> MATCH_RUN_BITS, low = tag & ((1u << MATCH_RUN_BITS) - 1);
	uint64_t x = (run ^ (source * 0x9e3779b97f4a7c15ull)) * t->secret;
	x = (x ^ x >> 32) * t->secret;
	return ((x ^ x >> 32) + low) & ~MATCH_MORE;
}
static inline struct match_bucket *match_bucket(const struct match_table *t, uint64_t key)
{
	return &t->buckets[key & (((size_t)1 << t->bits) - 1)];
}
static inline bool match_is(const struct match_node *n, uint64_t tag, uint64_t source)
{
	return n->tag == tag && n->source == source;
}

void match_look(struct match_table *t, uint64_t tag, uint64_t source); /* sets t->last */
void match_lead(struct match_table *t, struct match_node *n); /* the first of the key of t->last */
/* t->last.leader goes, and the next one behind it leads, if anybody is */
void match_yield(struct match_table *t, struct match_node *n);

/* The oldest of that key, or NULL. */
static inline struct match_node *match_first(struct match_table *t, uint64_t tag, uint64_t source)
{
	if (RPWI_UNLIKELY(t->last.tag != tag || t->last.source != source))
		match_look(t, tag, source);
	return t->last.leader;
}

static inline void match_add(
	struct match_table *t, struct match_node *n, uint64_t tag, uint64_t source)
{
	struct match_node *leader = match_first(t, tag, source);
	n->tag = tag;
	n->source = source;
	n->leads = !leader;
	if (RPWI_UNLIKELY(!leader)) {
		match_lead(t, n);
		return;
	}
	n->next = leader;
	n->prev = leader->prev;
	leader->prev->next = n;
	leader->prev = n;
}

static inline void match_del(struct match_table *t, struct match_node *n)
{
	if (n->leads) {
		match_first(t, n->tag, n->source);
		match_yield(t, n);
	}
	n->prev->next = n->next;
	n->next->prev = n->prev;
}

#endif
