/* SPDX-License-Identifier: BSD-3-Clause */
/* ids.c - numbers given to peers: an index and a generation, so that a late or forged one names
 * nothing. */
#include "msg/ids.h"
#include "msg/objects.h"

#include <sys/random.h>

uint64_t msg_random(void)
{
	uint64_t v = 0;
	while (!v)
		if (getrandom(&v, sizeof(v), 0) != sizeof(v))
			v = 0;
	return v;
}

enum { IDS_MAX = 1 << 28 };

static uint64_t id_of(const struct rpwi_slots *s, uint32_t i)
{
	return ((uint64_t)s->at[i].generation + 1) << 32 | (i + 1);
}

uint64_t ids_add(struct rpwi_slots *s, void *what)
{
	return rpwi_slots_reserve(s, IDS_MAX) ? id_of(s, rpwi_slots_take(s, what)) : 0;
}

void *ids_get(const struct rpwi_slots *s, uint64_t number)
{
	uint32_t i = (uint32_t)number - 1;
	return i < s->room && s->at[i].generation + 1 == number >> 32 ? s->at[i].what : NULL;
}

void ids_del(struct rpwi_slots *s, uint64_t number)
{
	if (ids_get(s, number))
		rpwi_slots_give(s, (uint32_t)number - 1);
}
