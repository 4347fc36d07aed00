/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_clock.c - time and random numbers of a target's own, for those that are linked with
 * --wrap=clock_gettime,getrandom (meson.build): the same input does the same each time. */
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

ssize_t __wrap_getrandom(void *p, size_t len, unsigned flags);
ssize_t __wrap_getrandom(void *p, size_t len, unsigned flags)
{
	for (size_t i = 0; i < len; i++) {
		fuzz_clock.random =
			fuzz_clock.random * 6364136223846793005ull + 1442695040888963407ull;
		((uint8_t *)p)[i] = (uint8_t)(fuzz_clock.random >> 56);
	}
	return (ssize_t)len;
}
