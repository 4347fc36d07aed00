/* match.c - see match.h. */
#include "msg/match.h"

#include <stdlib.h>

enum { BITS_FIRST = 8, BITS_MAX = 24 };

bool match_init(struct match_table *t, uint64_t secret)
{
	*t = (struct match_table){.bits = BITS_FIRST, .secret = secret | 1};
	t->buckets = calloc(1u << BITS_FIRST, sizeof(*t->buckets));
	return t->buckets;
}

void match_fini(struct match_table *t)
{
	free(t->buckets);
	t->buckets = NULL;
}

/* More buckets, if there is memory; without, chains grow longer, and nothing else happens. */
static void grow(struct match_table *t)
{
	struct match_table bigger = {.bits = t->bits + 2, .secret = t->secret, .leaders = t->leaders};
	bigger.buckets = calloc((size_t)1 << bigger.bits, sizeof(*bigger.buckets));
	if (!bigger.buckets)
		return;
	for (size_t i = 0; i < (size_t)1 << t->bits; i++)
		for (struct match_node *n = t->buckets[i], *next; n; n = next) {
			next = n->next_key;
			struct match_node **b = match_bucket(&bigger, n->tag, n->whom);
			n->next_key = *b;
			*b = n;
		}
	free(t->buckets);
	*t = bigger;
}

void match_add(struct match_table *t, struct match_node *n, uint64_t tag, uint64_t whom)
{
	n->tag = tag;
	n->whom = whom;
	struct match_node **b = match_bucket(t, tag, whom), *leader = *b;
	while (leader && (leader->tag != tag || leader->whom != whom))
		leader = leader->next_key;
	n->leads = !leader;
	if (leader) {
		n->next = leader;
		n->prev = leader->prev;
		leader->prev->next = n;
		leader->prev = n;
		return;
	}
	n->next = n->prev = n;
	n->next_key = *b;
	*b = n;
	if (RPWI_UNLIKELY(++t->leaders > (size_t)1 << t->bits) && t->bits < BITS_MAX)
		grow(t);
}

void match_del(struct match_table *t, struct match_node *n)
{
	struct match_node *heir = n->next == n ? NULL : n->next;
	n->prev->next = n->next;
	n->next->prev = n->prev;
	if (!n->leads)
		return;
	struct match_node **at = match_bucket(t, n->tag, n->whom);
	while (*at != n)
		at = &(*at)->next_key;
	if (heir) {
		heir->leads = true;
		heir->next_key = n->next_key;
		*at = heir;
	} else {
		*at = n->next_key;
		t->leaders--;
	}
}
