/* SPDX-License-Identifier: BSD-3-Clause */
/* slots.h - numbers for registered memory, which a peer names by number and key: a table that grows, and the numbers that are spare. For the transports that have no keys of a device's. */
#ifndef ROPEWAY_TRAN_SLOTS_H
#define ROPEWAY_TRAN_SLOTS_H

#include <errno.h>
#include <stdlib.h>

#include "base/base.h"

struct tran_slots {
	void **at;
	uint32_t *spare;
	unsigned room, spares;
};

static inline int tran_slots_grow(struct tran_slots *s)
{
	unsigned room = s->room ? 2 * s->room : 64;
	void **at = realloc(s->at, room * sizeof(*at));
	if (!at)
		return -ENOMEM;
	s->at = at;
	uint32_t *spare = realloc(s->spare, room * sizeof(*spare));
	if (!spare)
		return -ENOMEM;
	s->spare = spare;
	for (unsigned slot = room; slot-- > s->room;) {
		s->at[slot] = NULL;
		s->spare[s->spares++] = slot;
	}
	s->room = room;
	return 0;
}

/* Afterwards one can be taken: 0 or -ENOMEM. */
static inline int tran_slots_room(struct tran_slots *s)
{
	return s->spares ? 0 : tran_slots_grow(s);
}

static inline uint32_t tran_slots_take(struct tran_slots *s, void *what)
{
	uint32_t slot = s->spare[--s->spares];
	s->at[slot] = what;
	return slot;
}

/* What a peer names; NULL: nothing. */
static inline void *tran_slots_find(const struct tran_slots *s, uint32_t slot)
{
	return slot < s->room ? s->at[slot] : NULL;
}

/* Nothing is found by it any more; it is taken again only once it was given back. */
static inline void tran_slots_hide(struct tran_slots *s, uint32_t slot) { s->at[slot] = NULL; }
static inline void tran_slots_give(struct tran_slots *s, uint32_t slot)
{
	s->at[slot] = NULL;
	s->spare[s->spares++] = slot;
}

static inline void tran_slots_fini(struct tran_slots *s)
{
	free(s->at);
	free(s->spare);
}

#endif
