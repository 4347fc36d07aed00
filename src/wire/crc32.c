/* SPDX-License-Identifier: BSD-3-Clause */
/* crc32.c - see crc32.h. Two well-kept libraries, and what they lack.
 *
 * ISA-L does 30 to 60 GB/s on a processor with AVX-512 and VPCLMULQDQ. Without AVX-512 (AMD's
 * Zen 3, Intel's clients) its releases up to 2.32 multiply 16 bytes at a time, 8 to 12 GB/s; a fold
 * of 32 bytes does 15 to 20 there, and goes when every ISA-L has one. Under an emulated processor
 * (QEMU's TCG) zlib's tables are three times as fast as ISA-L. */
#include "wire/crc32.h"

#include <isa-l/crc.h>
#include <string.h>
#include <zlib.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "base/base.h"

static bool always(void) { return true; }

/* ISA-L leaves the upper halves of the vector registers in use, and the next instruction of the
 * old encoding, which is what this is compiled to, waits for them: 100 ns on Intel's Golden
 * Cove. */
static inline void wide_registers_clean(void)
{
#ifdef __x86_64__
	if (RPWI_LIKELY(__builtin_cpu_supports("avx")))
		__asm__ volatile("vzeroupper");
#endif
}

static uint32_t crc32_isal(uint32_t crc, const uint8_t *data, size_t len)
{
	crc = crc32_gzip_refl(crc, data, len);
	wide_registers_clean();
	return crc;
}

static uint32_t crc32_zlib(uint32_t crc, const uint8_t *data, size_t len)
{
	return (uint32_t)crc32_z(crc, data, len);
}

#ifdef __x86_64__
#define WIDE __attribute__((target("avx2,pclmul,vpclmulqdq")))

enum { LANE = 32, LANES = 4, BLOCK = LANES * LANE, FOLD_LEAST = 2 * BLOCK };

/* To bring 128 bits forward by d bits: x^(d+32) and x^(d-32) modulo the polynomial, bit-reflected,
 * times 2 (for d = 128 they are in Intel's paper on CRCs by PCLMULQDQ of 2009). */
static const uint64_t by_block[2] = {0x1e88ef372, 0x14a7fe880};
static const uint64_t by_lane[2] = {0x0f1da05aa, 0x15a546366};
static const uint64_t by_half[2] = {0x1751997d0, 0x0ccaa009e};

static bool can_fold(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
}

WIDE static inline __m256i load(const uint8_t *p)
{
	return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

WIDE static inline __m256i twice(const uint64_t *by)
{
	return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)by));
}

WIDE static inline __m256i fold(__m256i x, __m256i by, __m256i onto)
{
	return _mm256_xor_si256(onto, _mm256_xor_si256(_mm256_clmulepi64_epi128(x, by, 0x00),
					      _mm256_clmulepi64_epi128(x, by, 0x11)));
}

/* All but a rest of less than a lane becomes 16 bytes of the same CRC. */
WIDE static size_t fold_down(uint32_t crc, const uint8_t *p, size_t len, uint8_t out[16])
{
	const size_t all = len;
	const __m256i block = twice(by_block), lane = twice(by_lane);
	__m256i a = _mm256_xor_si256(load(p), _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)~crc)));
	__m256i b = load(p + LANE), c = load(p + 2 * LANE), d = load(p + 3 * LANE);
	for (p += BLOCK, len -= BLOCK; len >= BLOCK; p += BLOCK, len -= BLOCK) {
		a = fold(a, block, load(p));
		b = fold(b, block, load(p + LANE));
		c = fold(c, block, load(p + 2 * LANE));
		d = fold(d, block, load(p + 3 * LANE));
	}
	d = fold(fold(fold(a, lane, b), lane, c), lane, d);
	for (; len >= LANE; p += LANE, len -= LANE)
		d = fold(d, lane, load(p));
	const __m128i half = _mm256_castsi256_si128(twice(by_half));
	const __m128i low = _mm256_castsi256_si128(d);
	const __m128i sum = _mm_xor_si128(
		_mm256_extracti128_si256(d, 1), _mm_xor_si128(_mm_clmulepi64_si128(low, half, 0x00),
							_mm_clmulepi64_si128(low, half, 0x11)));
	_mm_storeu_si128((__m128i *)(void *)out, sum);
	return all - len;
}

static uint32_t crc32_fold(uint32_t crc, const uint8_t *data, size_t len)
{
	enum { HALF = LANE / 2 };
	uint8_t rest[HALF + LANE];
	if (len < FOLD_LEAST)
		return crc32_isal(crc, data, len);
	size_t done = fold_down(crc, data, len, rest);
	memcpy(rest + HALF, data + done, len - done);
	/* ~0 is a raw state of 0: what came before is in `rest` */
	return crc32_isal(~0u, rest, HALF + len - done);
}
#else
static bool can_fold(void) { return false; }
static uint32_t crc32_fold(uint32_t crc, const uint8_t *data, size_t len)
{
	return crc32_isal(crc, data, len);
}
#endif

const struct rpwi_crc32_way rpwi_crc32_ways[RPWI_CRC32_WAYS] = {
	[RPWI_CRC32_ISAL] = {"ISA-L", crc32_isal, always},
	[RPWI_CRC32_ZLIB] = {"zlib", crc32_zlib, always},
	[RPWI_CRC32_FOLD] = {"VPCLMULQDQ", crc32_fold, can_fold},
};
rpwi_crc32_fn *rpwi_crc32_chosen = crc32_isal;

const char *rpwi_crc32_choose(uint64_t (*now_ns)(void))
{
	const uint8_t sample[4096] = {0};
	uint64_t took[RPWI_CRC32_WAYS];
	volatile uint32_t sink = 0;
	unsigned best = RPWI_CRC32_ISAL;
	memset(took, 0xff, sizeof(took));
	for (unsigned round = 0; round < 3 * RPWI_CRC32_WAYS; round++) {
		unsigned i = round % RPWI_CRC32_WAYS;
		if (!rpwi_crc32_ways[i].is_possible())
			continue;
		uint64_t began = now_ns();
		sink = rpwi_crc32_ways[i].of(sink, sample, sizeof(sample));
		uint64_t t = now_ns() - began;
		took[i] = RPWI_MIN(took[i], t);
	}
	for (unsigned i = 0; i < RPWI_CRC32_WAYS; i++)
		if (took[i] < took[best])
			best = i;
	rpwi_crc32_chosen = rpwi_crc32_ways[best].of;
	return rpwi_crc32_ways[best].name;
}
