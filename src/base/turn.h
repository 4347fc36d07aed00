/* SPDX-License-Identifier: BSD-3-Clause */
/* turn.h - a program that polls in vain may have the very core that its peer needs: one CPU in a
 * container, or more programs than cores. Only the end of its time slice takes the core from it
 * then, and each message takes milliseconds. So it gives its turn away now and then, by sched_yield
 * (0.2 us where nobody else wants the core), and after every look in vain for as long as that lets
 * somebody run who brings something.
 *
 * Threads: whoever looks. */
#ifndef ROPEWAY_TURN_H
#define ROPEWAY_TURN_H

#include <sched.h>

#include "base/base.h"

enum {
	RPWI_TURN_MOST = 512, /* looks in vain until a yield */
	RPWI_TURN_LONG_NS =
		1000, /* somebody ran meanwhile: a yield to nobody takes a quarter of it */
};

/* All 0 at first. */
struct rpwi_turn {
	uint32_t in_vain; /* looks since something was found, or since the last yield */
	uint32_t every;   /* so many of them, then a yield; 0: RPWI_TURN_MOST */
	bool was_taken;   /* somebody ran in a yield just before this look */
};

/* For the core's other thread, between two looks. */
static inline void rpwi_turn_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* A look has found something, or nothing. True: rpwi_turn_give before the next. */
static inline bool rpwi_turn_ends(struct rpwi_turn *t, bool found)
{
	if (RPWI_UNLIKELY(t->was_taken)) {
		t->every = found ? 1 : t->every;
		t->was_taken = false;
	}
	if (found)
		t->in_vain = 0;
	return !found && ++t->in_vain >= (t->every ? t->every : (uint32_t)RPWI_TURN_MOST);
}

/* No lock is held. */
static inline void rpwi_turn_give(struct rpwi_turn *t)
{
	uint64_t before_ns = rpwi_now_ns();
	sched_yield();
	t->in_vain = 0;
	t->was_taken = rpwi_now_ns() - before_ns >= RPWI_TURN_LONG_NS;
	t->every = t->every ? RPWI_MIN(t->every * 2, (uint32_t)RPWI_TURN_MOST)
			    : (uint32_t)RPWI_TURN_MOST;
}

#endif
