/* SPDX-License-Identifier: BSD-3-Clause */
/* spin.c - see spin.h. */
#include "device/spin.h"

enum {
	SPIN_MIN_NS = 20000,
	SPIN_MAX_NS = 100000,
	SPIN_GAPS = 8,
	NEED_MAX = 64,
	/* a yield to nobody takes under 1 us; one to a kernel thread, a few */
	YIELD_LONG_NS = 30000,
	KEEPS_OFF_MIN_NS = 5000000,
	KEEPS_OFF_MAX_NS = 1000000000,
};

void spin_packet(struct spin *s, uint64_t now_ns)
{
	uint64_t gap = now_ns - s->last_ns;
	s->last_ns = now_ns;
	if (gap > SPIN_MAX_NS) {
		s->close_ones = 0;
	} else {
		s->close_ones += s->close_ones < NEED_MAX;
		s->gap_ns = s->gap_ns ? s->gap_ns - s->gap_ns / 8 + gap / 8 : gap;
	}
	if (s->waited) {
		s->need -= s->need > 1;
		s->keeps_off_ns -= s->keeps_off_ns / 1024;
	}
	s->waited = false;
}

bool spin_goes_on(struct spin *s, uint64_t now_ns)
{
	if (now_ns < s->not_before_ns || s->close_ones < RPWI_MAX(s->need, 1u))
		return false;
	uint64_t limit = RPWI_MIN(
		RPWI_MAX(s->gap_ns * SPIN_GAPS, (uint64_t)SPIN_MIN_NS), (uint64_t)SPIN_MAX_NS);
	if (now_ns - s->last_ns <= limit) {
		s->waited = true;
		return true;
	}
	s->need = RPWI_MIN(RPWI_MAX(s->need, 1u) * 2, (uint32_t)NEED_MAX);
	s->close_ones = 0;
	s->waited = false;
	return false;
}

void spin_yielded(struct spin *s, uint64_t before_ns, uint64_t after_ns)
{
	if (after_ns - before_ns < YIELD_LONG_NS)
		return;
	s->keeps_off_ns = RPWI_MIN(RPWI_MAX(s->keeps_off_ns * 2, (uint64_t)KEEPS_OFF_MIN_NS),
		(uint64_t)KEEPS_OFF_MAX_NS);
	s->not_before_ns = after_ns + s->keeps_off_ns;
	s->waited = false;
}
