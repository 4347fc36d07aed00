/* SPDX-License-Identifier: BSD-3-Clause */
/* allocated.h - how much memory a test has, and how much more than before, with and without ASan
 * (whose allocator mallinfo2 knows nothing of). */
#ifndef TESTS_MSG_ALLOCATED_H
#define TESTS_MSG_ALLOCATED_H

#include <malloc.h>
#include <stddef.h>

size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static inline size_t allocated(void)
{
	if (__sanitizer_get_current_allocated_bytes)
		return __sanitizer_get_current_allocated_bytes();
	struct mallinfo2 m = mallinfo2();
	return m.uordblks + m.hblkhd;
}

static inline size_t grown(size_t before)
{
	size_t now = allocated();
	return now > before ? now - before : 0;
}

#endif
