/* SPDX-License-Identifier: BSD-3-Clause */
/* place.c - copies of registered memory that may have been unmapped. It knows no transport. */
#include "tran/place.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/copy.h"
#include "near/process.h"

static int populated(void *to, size_t n)
{
	size_t into_page = (uintptr_t)to % (size_t)sysconf(_SC_PAGESIZE);
	return madvise((char *)to - into_page, n + into_page, MADV_POPULATE_WRITE) &&
			       (errno == ENOMEM || errno == EFAULT)
		       ? -EFAULT
		       : 0;
}

/* 0, -EFAULT, or 1: a sandbox forbids the call. */
static int by_kernel(ssize_t moved, size_t n)
{
	if (moved == (ssize_t)n)
		return 0;
	return moved >= 0 || moved == -EFAULT ? -EFAULT : 1;
}

int tran_place(pid_t own, void *to, const void *from, size_t n, bool up)
{
	if (!n)
		return 0;
	if (up) {
		if (populated(to, n))
			return -EFAULT;
		rpwi_copy_up(to, from, n);
		return 0;
	}
	int rc = by_kernel(rpwi_process_write(own, to, from, n), n);
	if (rc > 0)
		memcpy(to, from, n);
	return rc < 0 ? rc : 0;
}

int tran_fetch(pid_t own, void *to, const void *from, size_t n)
{
	if (!n)
		return 0;
	int rc = by_kernel(rpwi_process_read(own, to, from, n), n);
	if (rc > 0)
		memcpy(to, from, n);
	return rc < 0 ? rc : 0;
}

int tran_reachable(void *at) { return populated(at, 8); }
