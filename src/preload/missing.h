/* SPDX-License-Identifier: BSD-3-Clause */
/* missing.h - stand-ins for calls that the distribution's library lacks, by what a call returns
 * (calls.h, library/forwards.h). They ignore the arguments they are called with, which the ABIs we
 * run on allow. */
#ifndef ROPEWAY_PRELOAD_MISSING_H
#define ROPEWAY_PRELOAD_MISSING_H

#include <errno.h>
#include <stddef.h>

static long missing_ERRNO(void) { return errno = EOPNOTSUPP; }
static long missing_MINUS(void)
{
	errno = EOPNOTSUPP;
	return -1;
}
static void *missing_NONE(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

#endif
