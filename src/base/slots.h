/* SPDX-License-Identifier: BSD-3-Clause */
/* slots.h - things by small numbers: a table that grows, its free places in a list, and for each
 * place how often it was given back, so that a number can be made of both that names nothing later.
 * Threads: its owner's lock is held over every call. */
#ifndef ROPEWAY_BASE_SLOTS_H
#define ROPEWAY_BASE_SLOTS_H

#include <stdlib.h>

#include "base/base.h"

struct rpwi_slot {
	void *what;
	uint32_t generation;
	uint32_t next_free; /* its index + 1; 0: the last */
};

/* Zero: empty. */
struct rpwi_slots {
	struct rpwi_slot *at;
	uint32_t room, used, free /* as next_free */;
};

/* Afterwards one can be taken. False: no memory, or there are `max`. */
static inline bool rpwi_slots_reserve(struct rpwi_slots *s, uint32_t max)
{
	if (RPWI_LIKELY(s->free != 0))
		return true;
	uint32_t room = RPWI_MIN(s->room ? 2 * s->room : 16u, max);
	struct rpwi_slot *at = room > s->room ? realloc(s->at, room * sizeof(*at)) : NULL;
	if (!at)
		return false;
	s->at = at;
	for (uint32_t i = s->room; i < room; i++)
		at[i] = (struct rpwi_slot){.next_free = i + 1 < room ? i + 2 : 0};
	s->free = s->room + 1;
	s->room = room;
	return true;
}

static inline uint32_t rpwi_slots_take(struct rpwi_slots *s, void *what)
{
	uint32_t i = s->free - 1;
	s->free = s->at[i].next_free;
	s->at[i].what = what;
	s->used++;
	return i;
}

/* NULL: nothing is there. */
static inline void *rpwi_slots_find(const struct rpwi_slots *s, uint32_t i)
{
	return i < s->room ? s->at[i].what : NULL;
}

/* Nothing is found there any more; it is taken again only once it was given back. */
static inline void rpwi_slots_hide(struct rpwi_slots *s, uint32_t i) { s->at[i].what = NULL; }

static inline void rpwi_slots_give(struct rpwi_slots *s, uint32_t i)
{
	s->at[i] = (struct rpwi_slot){.generation = s->at[i].generation + 1, .next_free = s->free};
	s->free = i + 1;
	s->used--;
}

static inline void rpwi_slots_fini(struct rpwi_slots *s)
{
	free(s->at);
	*s = (struct rpwi_slots){0};
}

#endif
