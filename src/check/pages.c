/* SPDX-License-Identifier: BSD-3-Clause */
/* pages.c - see pages.h. */
#include "check/pages.h"

#include "base/hash.h"

#include <stdatomic.h>

/* ---- may this page be registered? Read by hooks without a lock ---- */

/* Counters by a hash of the page, of regions up to FINE_MAX pages; by a hash of 2 MiB, of larger
 * ones; of those above COARSE_MAX of these, one for all. */
enum {
	PAGE = 12,
	HUGE = 21,
	FINE = 1 << 16,
	COARSE = 1 << 14,
	FINE_MAX = 512,
	COARSE_MAX = 4096,
	LOOK_MAX = 64
};
static struct {
	_Atomic uint32_t fine[FINE], coarse[COARSE], fines, coarses, vast;
} pages;

static _Atomic uint32_t *fine_at(uint64_t page)
{
	return &pages.fine[rpwi_mix(0, page) >> 40 & (FINE - 1)];
}

static _Atomic uint32_t *coarse_at(uint64_t huge)
{
	return &pages.coarse[rpwi_mix(0, huge) >> 40 & (COARSE - 1)];
}

static void add(_Atomic uint32_t *to, int n)
{
	atomic_fetch_add_explicit(to, (uint32_t)n, memory_order_relaxed);
}

void check_pages_region(uint64_t addr, uint64_t len, int n)
{
	/* a region of all addresses says nothing of any page */
	if (!len || addr + len < addr || len > 1ull << 47)
		return;
	uint64_t last = addr + len - 1;
	if ((last >> PAGE) - (addr >> PAGE) < FINE_MAX) {
		for (uint64_t p = addr >> PAGE; p <= last >> PAGE; p++)
			add(fine_at(p), n);
		add(&pages.fines, n);
	} else if ((last >> HUGE) - (addr >> HUGE) < COARSE_MAX) {
		for (uint64_t p = addr >> HUGE; p <= last >> HUGE; p++)
			add(coarse_at(p), n);
		add(&pages.coarses, n);
	} else {
		add(&pages.vast, n);
	}
}

static uint32_t load(_Atomic uint32_t *at)
{
	return atomic_load_explicit(at, memory_order_relaxed);
}

bool check_pages_hold(uint64_t addr, uint64_t len)
{
	uint64_t last = addr + len - 1;
	if (load(&pages.vast))
		return true;
	if (load(&pages.fines)) {
		if ((last >> PAGE) - (addr >> PAGE) > LOOK_MAX)
			return true;
		for (uint64_t p = addr >> PAGE; p <= last >> PAGE; p++)
			if (load(fine_at(p)))
				return true;
	}
	if (load(&pages.coarses)) {
		if ((last >> HUGE) - (addr >> HUGE) > LOOK_MAX)
			return true;
		for (uint64_t p = addr >> HUGE; p <= last >> HUGE; p++)
			if (load(coarse_at(p)))
				return true;
	}
	return false;
}
