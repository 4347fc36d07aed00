/* SPDX-License-Identifier: BSD-3-Clause */
/* missing.h - stand-ins for calls that the distribution's library lacks, and others that fail, by
 * what a call returns (calls.h, library/forwards.h). They ignore the arguments they are called
 * with, which the ABIs we run on allow. */
#ifndef ROPEWAY_PRELOAD_MISSING_H
#define ROPEWAY_PRELOAD_MISSING_H

#include "base/base.h"

#define RPWI_STAND_INS(word, error) \
	static long word##_ERRNO(void) { return errno = (error); } \
	static long word##_MINUS(void) { return rpwi_minus(error); } \
	static void *word##_NONE(void) { return rpwi_none(error); }

RPWI_STAND_INS(missing, EOPNOTSUPP)

#endif
