/* SPDX-License-Identifier: BSD-3-Clause */
/* hash.h - a hash for tables in memory, of one 64-bit word after the other: multiply and fold.
 * Where others choose the keys it begins with a random salt. */
#ifndef ROPEWAY_BASE_HASH_H
#define ROPEWAY_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t rpwi_mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}

/* FNV-1a of bytes: against accidents, not against forgers; of a part, go on with what the part
 * before gave. Handles on the wire have it. */
#define RPWI_HASH 0xcbf29ce484222325ull
static inline uint64_t rpwi_hash(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;
	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	return h;
}

/* splitmix64's finalizer: of numbers one after the other it makes draws that show no order. The
 * same on every machine and in every release: seeds of faults are kept by people. */
static inline uint64_t rpwi_scatter(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

#endif
