/* SPDX-License-Identifier: BSD-3-Clause */
/* heap.h - deadlines, earliest first: a binary heap of nodes that know where they are, so that each
 * can be moved and taken out. It allocates in rpwi_heap_reserve only. Threads: its owner's lock is
 * held over every call. */
#ifndef ROPEWAY_BASE_HEAP_H
#define ROPEWAY_BASE_HEAP_H

#include <assert.h>
#include <stdlib.h>

#include "base/base.h"

/* Embedded in what has a deadline. Zero: in no heap. */
struct rpwi_heap_node {
	uint64_t deadline_ns;
	uint32_t pos; /* 1 and more; 0: in no heap */
};

/* Zero: empty. */
struct rpwi_heap {
	struct rpwi_heap_node **at; /* from 1 */
	uint32_t n, room;
};

/* Room for n nodes in all. False: no memory, and the heap is as it was. */
static inline bool rpwi_heap_reserve(struct rpwi_heap *h, uint32_t n)
{
	if (n <= h->room)
		return true;
	uint32_t room = RPWI_MAX(n, h->room ? 2 * h->room : 64u);
	struct rpwi_heap_node **at =
		realloc(h->at, ((size_t)room + 1) * sizeof(struct rpwi_heap_node *));
	if (!at)
		return false;
	h->at = at;
	h->room = room;
	return true;
}

static inline void rpwi_heap_free(struct rpwi_heap *h)
{
	free(h->at);
	*h = (struct rpwi_heap){0};
}

/* NULL: empty. */
static inline struct rpwi_heap_node *rpwi_heap_first(const struct rpwi_heap *h)
{
	return h->n ? h->at[1] : NULL;
}
static inline uint64_t rpwi_heap_deadline(const struct rpwi_heap *h)
{
	return h->n ? h->at[1]->deadline_ns : RPWI_NEVER;
}

static inline void rpwi_heap_place(struct rpwi_heap *h, uint32_t pos, struct rpwi_heap_node *n)
{
	h->at[pos] = n;
	n->pos = pos;
}

/* n is to stand at pos, or above or below it. */
static inline void rpwi_heap_settle(struct rpwi_heap *h, uint32_t pos, struct rpwi_heap_node *n)
{
	for (; pos > 1 && h->at[pos / 2]->deadline_ns > n->deadline_ns; pos /= 2)
		rpwi_heap_place(h, pos, h->at[pos / 2]);
	for (uint32_t child; (child = 2 * pos) <= h->n; pos = child) {
		if (child < h->n && h->at[child + 1]->deadline_ns < h->at[child]->deadline_ns)
			child++;
		if (h->at[child]->deadline_ns >= n->deadline_ns)
			break;
		rpwi_heap_place(h, pos, h->at[child]);
	}
	rpwi_heap_place(h, pos, n);
}

/* In, or moved. There is room: rpwi_heap_reserve. */
static inline void rpwi_heap_set(
	struct rpwi_heap *h, struct rpwi_heap_node *n, uint64_t deadline_ns)
{
	n->deadline_ns = deadline_ns;
	assert(n->pos || h->n < h->room);
	rpwi_heap_settle(h, n->pos ? n->pos : ++h->n, n);
}

/* Out, if it is in. */
static inline void rpwi_heap_del(struct rpwi_heap *h, struct rpwi_heap_node *n)
{
	uint32_t pos = n->pos;
	if (!pos)
		return;
	struct rpwi_heap_node *last = h->at[h->n--];
	n->pos = 0;
	if (last != n)
		rpwi_heap_settle(h, pos, last);
}

#endif
