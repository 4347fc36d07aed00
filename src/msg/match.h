/* match.h - a table of queues by key: who has (tag, whom) and was first. Costs the same with 1 entry and with 100,000, whether their keys differ or are all the same: a bucket holds
 * one leader for each key, the others of that key queue behind their leader. */
#ifndef ROPEWAY_MSG_MATCH_H
#define ROPEWAY_MSG_MATCH_H

#include "base/base.h"

struct match_node {
	struct match_node *next_key;    /* leaders: the next leader of the bucket */
	struct match_node *next, *prev; /* of the same key, in order; circular */
	uint64_t tag, whom;
	bool leads;
};

struct match_table {
	struct match_node **buckets;
	unsigned bits;
	size_t leaders;
	uint64_t secret; /* odd: a peer that picks tags cannot make them meet in one bucket */
};

bool match_init(struct match_table *t, uint64_t secret);
void match_fini(struct match_table *t);
static inline struct match_node **match_bucket(const struct match_table *t, uint64_t tag, uint64_t whom)
{
	uint64_t x = (tag ^ (whom * 0x9e3779b97f4a7c15ull)) * t->secret;
	return &t->buckets[(x ^ x >> 32) * t->secret >> (64 - t->bits)];
}
/* The oldest of that key, or NULL. */
static inline struct match_node *match_first(const struct match_table *t, uint64_t tag, uint64_t whom)
{
	struct match_node *n = *match_bucket(t, tag, whom);
	while (n && (n->tag != tag || n->whom != whom))
		n = n->next_key;
	return n;
}
void match_add(struct match_table *t, struct match_node *n, uint64_t tag, uint64_t whom);
void match_del(struct match_table *t, struct match_node *n);

#endif
