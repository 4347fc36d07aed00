/* SPDX-License-Identifier: BSD-3-Clause */
/* cost.h - what it takes to move 64 KiB, learned from samples: which of several ways is the shorter
 * depends on where the two processes run, and that changes. The numbers may lie in memory that the
 * other process writes, too: a wrong one costs time only. */
#ifndef ROPEWAY_NEAR_COST_H
#define ROPEWAY_NEAR_COST_H

#include <stdatomic.h>

#include "base/base.h"

enum { RPWI_COST_BYTES = 65536 };
/* A way that cannot be gone. */
#define RPWI_COST_NEVER UINT32_MAX

/* In ns for RPWI_COST_BYTES, 0: nothing is known yet. One more sample: a slow one may have waited
 * for a CPU, and is believed slowly. */
static inline uint32_t rpwi_cost_learn(uint32_t known, uint64_t ns, uint64_t bytes)
{
	uint64_t each = ns * RPWI_COST_BYTES / bytes + 1;
	uint32_t sample = (uint32_t)RPWI_MIN(each, (uint64_t)1 << 30);
	if (!known || known == RPWI_COST_NEVER)
		return sample;
	if (sample <= known)
		return known - (known - sample) / 2;
	return known + RPWI_MIN((sample - known) / 8, known / 16 + 1);
}

/* Is a sample to be taken, one time in four? By chance: events in turn would be met always or
 * never. */
static inline bool rpwi_cost_by_chance(unsigned *state)
{
	*state = *state * 1664525u + 1013904223u;
	return !(*state >> 30);
}
/* The end of a sample that began then; 0: none is taken. */
static inline void rpwi_cost_sampled(_Atomic uint32_t *cost, uint64_t began_ns, uint64_t bytes)
{
	if (RPWI_LIKELY(!began_ns))
		return;
	uint32_t known = atomic_load_explicit(cost, memory_order_relaxed);
	atomic_store_explicit(cost, rpwi_cost_learn(known, rpwi_now_ns() - began_ns, bytes),
		memory_order_relaxed);
}

/* Of two ways, is the second one to be gone? The asked-th question: the cheaper one, and now and
 * then the other, so that its cost stays known: several times in a row, since the first has cold
 * caches (64 KiB by process_vm were seen to take 40 us where the next ones took 5). */
static inline bool rpwi_cost_second(uint32_t first, uint32_t second, unsigned asked)
{
	enum { IN_A_ROW = 8, AT_FIRST = 64, OFTEN = 32, SELDOM = 512 };
	unsigned period = asked < AT_FIRST ? OFTEN : SELDOM;
	bool other = asked % period >= period - IN_A_ROW;
	if (second == RPWI_COST_NEVER || first == RPWI_COST_NEVER)
		return second != RPWI_COST_NEVER;
	if (!first || !second)
		return other == !second;
	return (second < first) != other;
}

#endif
