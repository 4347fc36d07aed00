/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_region.c - fill and check the 4 KiB that are written or read. / 填写和检查被写（读）的 4
 * KiB。 */
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "peer_region.h"

enum { SEED_AT = 256, PATTERN_AT = SEED_AT + 8, CHECKSUM_AT = REGION_BYTES - 8 };

static void put64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (56 - 8 * i));
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v = v << 8 | p[i];
	return v;
}

/* splitmix64: one step of a well-mixed sequence. / 一个混合良好的伪随机序列。 */
static uint64_t mix(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static void make_pattern(uint8_t *out, uint64_t seed)
{
	for (int at = PATTERN_AT; at < CHECKSUM_AT; at += 8)
		put64(out + at - PATTERN_AT, mix(&seed));
}

/* FNV-1a: short enough to be read here, and it sees every byte. / FNV-1a：简短易读，
 * 且覆盖每个字节。 */
static uint64_t checksum_of(const uint8_t *p, size_t bytes)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	while (bytes--)
		hash = (hash ^ *p++) * 0x100000001b3ull;
	return hash;
}

uint64_t region_fill(uint8_t region[REGION_BYTES], const char *text, uint64_t seed)
{
	uint64_t checksum;

	memset(region, 0, SEED_AT);
	memcpy(region, text, strnlen(text, SEED_AT - 1));
	put64(region + SEED_AT, seed);
	make_pattern(region + PATTERN_AT, seed);
	checksum = checksum_of(region, CHECKSUM_AT);
	put64(region + CHECKSUM_AT, checksum);
	return checksum;
}

/* Text, then zeros up to the seed; nothing that a terminal would obey. / 先是文本，然后全是零；
 * 不含终端控制字符。 */
static bool text_is_clean(const uint8_t *region)
{
	int i = 0;

	while (i < SEED_AT && region[i] >= 0x20 && region[i] <= 0x7e)
		i++;
	if (i == 0 || i == SEED_AT)
		return false;
	while (i < SEED_AT && !region[i])
		i++;
	return i == SEED_AT;
}

bool region_check(const uint8_t region[REGION_BYTES], uint64_t *checksum)
{
	uint8_t pattern[CHECKSUM_AT - PATTERN_AT];

	*checksum = checksum_of(region, CHECKSUM_AT);
	make_pattern(pattern, get64(region + SEED_AT));
	return *checksum == get64(region + CHECKSUM_AT) &&
	       !memcmp(pattern, region + PATTERN_AT, sizeof(pattern)) && text_is_clean(region);
}

const char *region_text(const uint8_t region[REGION_BYTES]) { return (const char *)region; }

uint64_t region_seed(void)
{
	uint64_t seed;
	struct timespec ts;

	if (getrandom(&seed, sizeof(seed), 0) == sizeof(seed))
		return seed;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec << 32 ^ (uint64_t)ts.tv_nsec;
}
