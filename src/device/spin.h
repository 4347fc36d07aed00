/* SPDX-License-Identifier: BSD-3-Clause */
/* spin.h - does the service thread wait for the next packet awake, or asleep? Private to device/.
 *
 * To be woken takes 10 to 40 us, so a passive target that sleeps between requests answers late. To
 * stay awake costs a core. So it stays awake only where the last packets came so close together
 * that the next one is due, and only while nobody else wants the core:
 * - after `need` packets in a row less than SPIN_MAX_NS apart, for eight times their usual
 *   distance. A wait in vain doubles `need`, a packet that found it awake takes one off. So a
 *   process to which nothing comes sleeps, and short bursts between silences cost one wait for ever
 *   more of them;
 * - when sched_yield gives the core to somebody (it takes long), it sleeps between packets, as if
 *   there were no spin.h, for 5 ms; the second time for 10 ms, and so on up to a second: a thread
 *   that slept may interrupt one that computes, one that yielded waits for the other's time slice.
 *
 * No clock is read here. Threads: the service thread's own.
 */
#ifndef ROPEWAY_DEVICE_SPIN_H
#define ROPEWAY_DEVICE_SPIN_H

#include "base/base.h"

struct spin {
	uint64_t last_ns;       /* when the last packet came */
	uint64_t gap_ns;        /* smoothed, of those below SPIN_MAX_NS */
	uint64_t not_before_ns; /* the core was wanted */
	uint64_t keeps_off_ns;  /* for how long, the last time */
	uint32_t close_ones;    /* packets in a row that came close behind another */
	uint32_t need;          /* of those, before it pays to wait; 0 is 1 */
	bool waited;            /* since the last packet */
};

/* Something came. */
void spin_packet(struct spin *s, uint64_t now_ns);
/* Nothing came in this round. True: look again at once; false: sleep. */
bool spin_goes_on(struct spin *s, uint64_t now_ns);
/* sched_yield took so long. */
void spin_yielded(struct spin *s, uint64_t before_ns, uint64_t after_ns);

#endif
