/* SPDX-License-Identifier: BSD-3-Clause */
/* random.c - see rpwi_random64 in base.h. */
#include "base/base.h"

#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t rpwi_random64(void)
{
	uint64_t r;
	/* The system call itself: no thread is canceled there, as it may be in getrandom, under
	 * locks. The upper half of the product is the good one. */
	if (syscall(SYS_getrandom, &r, sizeof(r), GRND_NONBLOCK) != sizeof(r))
		r = __builtin_bswap64(
			(rpwi_now_ns() ^ (uint64_t)(uintptr_t)&r) * 0x9e3779b97f4a7c15ull);
	return r;
}
