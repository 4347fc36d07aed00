/* SPDX-License-Identifier: BSD-3-Clause */
/* ids.c - numbers given to peers: an index and a generation, so that a late or forged one names nothing. */
#include "msg/ids.h"
#include "msg/objects.h"

#include <stdlib.h>
#include <sys/random.h>

uint64_t msg_random(void)
{
	uint64_t v = 0;
	while (!v)
		if (getrandom(&v, sizeof(v), 0) != sizeof(v))
			v = 0;
	return v;
}

uint64_t slots_add(struct slots *s, void *what)
{
	if (!s->free_head) {
		uint32_t n = s->n ? s->n * 2 : 64;
		struct slot *v = n > 1u << 28 ? NULL : realloc(s->v, n * sizeof(*v));
		if (!v)
			return 0;
		s->v = v;
		for (uint32_t i = s->n; i < n; i++)
			v[i] = (struct slot){.generation = 1, .next_free = i + 1 < n ? i + 2 : 0};
		s->free_head = s->n + 1;
		s->n = n;
	}
	uint32_t i = s->free_head - 1;
	s->free_head = s->v[i].next_free;
	s->v[i].what = what;
	s->used++;
	return (uint64_t)s->v[i].generation << 32 | (i + 1);
}

void *slots_get(const struct slots *s, uint64_t number)
{
	uint32_t i = (uint32_t)number - 1;
	return i < s->n && s->v[i].generation == number >> 32 ? s->v[i].what : NULL;
}

void slots_del(struct slots *s, uint64_t number)
{
	if (!slots_get(s, number))
		return;
	uint32_t i = (uint32_t)number - 1;
	s->v[i].what = NULL;
	s->v[i].generation++;
	s->v[i].next_free = s->free_head;
	s->free_head = i + 1;
	s->used--;
}
