/* SPDX-License-Identifier: BSD-3-Clause */
/* pattern.h - bytes that tell where they belong: each is a function of a key (whose message, which
 * one) and of its offset. C11 and C++17. */
#ifndef TESTS_LIB_PATTERN_H
#define TESTS_LIB_PATTERN_H

#include <stddef.h>
#include <string.h>

#include "lib/rng.h"

static inline uint64_t pattern_word(uint64_t key, uint64_t i)
{
	return rng_mix(rng_mix(key + RNG_STEP) + i * RNG_STEP);
}
static inline uint8_t pattern_byte(uint64_t key, uint64_t at)
{
	return (uint8_t)(pattern_word(key, at >> 3) >> (at & 7) * 8);
}

/* Bytes [from, from + len) of the key's stream. */
static inline void pattern_fill_from(void *buf, size_t len, uint64_t key, uint64_t from)
{
	uint8_t *p = (uint8_t *)buf, *end = p + len;
	for (; p < end && from & 7; from++)
		*p++ = pattern_byte(key, from);
	for (; end - p >= 8; p += 8, from += 8) {
		uint64_t w = pattern_word(key, from >> 3);
		memcpy(p, &w, 8);
	}
	for (; p < end; from++)
		*p++ = pattern_byte(key, from);
}
static inline void pattern_fill(void *buf, size_t len, uint64_t key)
{
	pattern_fill_from(buf, len, key, 0);
}

/* The first that differs, or len. */
static inline size_t pattern_wrong_from(const void *buf, size_t len, uint64_t key, uint64_t from)
{
	const uint8_t *p = (const uint8_t *)buf;
	size_t i = 0;
	for (; i < len && (from + i) & 7; i++)
		if (p[i] != pattern_byte(key, from + i))
			return i;
	for (; len - i >= 8; i += 8) {
		uint64_t w;
		memcpy(&w, p + i, 8);
		if (w != pattern_word(key, (from + i) >> 3))
			break;
	}
	for (; i < len; i++)
		if (p[i] != pattern_byte(key, from + i))
			return i;
	return len;
}
static inline size_t pattern_wrong(const void *buf, size_t len, uint64_t key)
{
	return pattern_wrong_from(buf, len, key, 0);
}
static inline bool pattern_holds_from(const void *buf, size_t len, uint64_t key, uint64_t from)
{
	return pattern_wrong_from(buf, len, key, from) == len;
}
static inline bool pattern_holds(const void *buf, size_t len, uint64_t key)
{
	return pattern_holds_from(buf, len, key, 0);
}

#endif
