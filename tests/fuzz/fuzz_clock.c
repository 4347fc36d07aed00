/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_clock.c - time and random numbers of a target's own, for those that are linked with
 * --wrap=clock_gettime,rpwi_random64 (meson.build): the same input does the same each time. */
#include "fuzz.h"

#include <time.h>

struct fuzz_clock fuzz_clock;

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
	if (!fuzz_clock.now_ns)
		return __real_clock_gettime(id, ts);
	*ts = (struct timespec){.tv_sec = (time_t)(fuzz_clock.now_ns / RPWI_NS_PER_S),
		.tv_nsec = (long)(fuzz_clock.now_ns % RPWI_NS_PER_S)};
	return 0;
}

uint64_t __wrap_rpwi_random64(void);
uint64_t __wrap_rpwi_random64(void)
{
	uint64_t r = 0;
	for (unsigned i = 0; i < sizeof(r); i++) {
		fuzz_clock.random =
			fuzz_clock.random * 6364136223846793005ull + 1442695040888963407ull;
		r |= fuzz_clock.random >> 56 << 8 * i;
	}
	return r;
}
