/* SPDX-License-Identifier: BSD-3-Clause */
/* shrink.c - a failing script made short: delta debugging over its rounds and operations. Threads
 * and processes race, so each candidate is tried several times, and one that fails once counts. */
#include "drive.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES = 8, DEADLINE_S = 15 };

struct work {
	const struct limits *l;
	double until;
	uint64_t salt;
	struct result *last;
};

static bool fails(struct work *w, const struct script *s)
{
	struct result r;
	for (unsigned i = 0; i < TRIES && drive_now() < w->until; i++)
		if (!drive(s, w->l, w->salt++, DEADLINE_S, &r)) {
			*w->last = r;
			return true;
		}
	return false;
}

/* Rounds that have become empty close up. */
static void close_up(struct script *s)
{
	uint16_t to[65536 / 8];
	uint16_t next = 0;
	if (s->rounds > sizeof(to) / sizeof(to[0]))
		return;
	for (unsigned r = 0, i = 0; r < s->rounds; r++) {
		bool any = false;
		for (; i < s->nops && s->op[i].round == r; i++)
			any = true;
		to[r] = any ? next++ : UINT16_MAX;
	}
	for (uint32_t i = 0; i < s->nops; i++)
		s->op[i].round = to[s->op[i].round];
	uint16_t kept = 0;
	for (unsigned i = 0; i < s->nhappenings; i++) {
		struct happening h = s->happening[i];
		if (h.round >= s->rounds || to[h.round] == UINT16_MAX)
			continue;
		h.round = to[h.round];
		s->happening[kept++] = h;
	}
	s->nhappenings = kept;
	s->rounds = next;
}

static struct script *copy_without(const struct script *s, uint32_t first, uint32_t n)
{
	struct script *c = script_new(s->nops);
	memcpy(c, s, sizeof(*s) + first * sizeof(s->op[0]));
	c->room = s->nops;
	memcpy(c->op + first, s->op + first + n, (s->nops - first - n) * sizeof(s->op[0]));
	c->nops = s->nops - n;
	close_up(c);
	return c;
}

struct script *shrink(
	const struct script *s, const struct limits *l, double seconds, struct result *last)
{
	struct work w = {l, drive_now() + seconds, s->seed * 7919 + 1, last};
	struct script *best = copy_without(s, 0, 0);
	for (uint32_t size = best->nops / 2; size && drive_now() < w.until;) {
		bool shorter = false;
		for (uint32_t at = 0; at < best->nops && drive_now() < w.until;) {
			uint32_t n = best->nops - at < size ? best->nops - at : size;
			struct script *c = copy_without(best, at, n);
			if (c->nops && fails(&w, c)) {
				free(best);
				best = c;
				shorter = true;
			} else {
				free(c);
				at += size;
			}
		}
		if (!shorter || size > best->nops)
			size = size / 2 < best->nops ? size / 2 : best->nops / 2;
	}
	for (unsigned i = 0; i < best->nhappenings && drive_now() < w.until;) {
		struct script *c = copy_without(best, 0, 0);
		memmove(&c->happening[i], &c->happening[i + 1],
			(c->nhappenings - i - 1) * sizeof(c->happening[0]));
		c->nhappenings--;
		if (fails(&w, c)) {
			free(best);
			best = c;
		} else {
			free(c);
			i++;
		}
	}
	return best;
}
