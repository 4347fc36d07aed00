/* SPDX-License-Identifier: BSD-3-Clause */
/* pattern.h - bytes that say where they belong: each is a function of a key (seed, session, round,
 * who to whom, which operation) and of its offset. */
#ifndef TESTS_SOAK_PATTERN_H
#define TESTS_SOAK_PATTERN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}
static inline uint64_t mix2(uint64_t a, uint64_t b)
{
	return mix(a * 0x9e3779b97f4a7c15ull + mix(b + 0x632be59bd9b4e019ull));
}

static inline uint64_t pattern_word(uint64_t key, uint64_t i)
{
	return mix(key + i * 0x9e3779b97f4a7c15ull);
}
static inline uint8_t pattern_byte(uint64_t key, size_t at)
{
	return (uint8_t)(pattern_word(key, at >> 3) >> (at & 7) * 8);
}

/* Bytes [from, from + len) of the key's stream. */
static inline void pattern_fill(void *buf, size_t len, uint64_t key, size_t from)
{
	uint8_t *p = buf, *end = p + len;
	for (; p < end && from & 7; from++)
		*p++ = pattern_byte(key, from);
	for (; end - p >= 8; p += 8, from += 8) {
		uint64_t w = pattern_word(key, from >> 3);
		memcpy(p, &w, 8);
	}
	for (; p < end; from++)
		*p++ = pattern_byte(key, from);
}

/* The first that differs, or len. */
static inline size_t pattern_wrong(const void *buf, size_t len, uint64_t key, size_t from)
{
	const uint8_t *p = buf;
	size_t i = 0;
	for (; i < len && from & 7; i++, from++)
		if (p[i] != pattern_byte(key, from))
			return i;
	for (; len - i >= 8; i += 8, from += 8) {
		uint64_t w;
		memcpy(&w, p + i, 8);
		if (w != pattern_word(key, from >> 3))
			break;
	}
	for (; i < len; i++, from++)
		if (p[i] != pattern_byte(key, from))
			return i;
	return len;
}

#endif
