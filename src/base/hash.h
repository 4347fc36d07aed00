/* SPDX-License-Identifier: BSD-3-Clause */
/* hash.h - a hash for tables in memory, of one 64-bit word after the other: multiply and fold.
 * Where others choose the keys it begins with a random salt. */
#ifndef ROPEWAY_BASE_HASH_H
#define ROPEWAY_BASE_HASH_H

#include <stdint.h>

static inline uint64_t rpwi_mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}

#endif
