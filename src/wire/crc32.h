/* SPDX-License-Identifier: BSD-3-Clause */
/* crc32.h - zlib's CRC-32, which the ICRC is (IB annex A17.3.3), by the fastest way on this
 * processor. */
#ifndef ROPEWAY_WIRE_CRC32_H
#define ROPEWAY_WIRE_CRC32_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint32_t rpwi_crc32_fn(uint32_t crc, const uint8_t *data, size_t len);

/* All give the same. */
struct rpwi_crc32_way {
	const char *name;
	rpwi_crc32_fn *of;
	bool (*is_possible)(void); /* on this processor */
};
enum { RPWI_CRC32_ISAL, RPWI_CRC32_ZLIB, RPWI_CRC32_FOLD, RPWI_CRC32_WAYS };
extern const struct rpwi_crc32_way rpwi_crc32_ways[RPWI_CRC32_WAYS];

/* Choose the fastest, by a few microseconds of measurement with the caller's clock; before, it is
 * ISA-L. Returns its name. Not while another thread computes a CRC. */
const char *rpwi_crc32_choose(uint64_t (*now_ns)(void));

extern rpwi_crc32_fn *rpwi_crc32_chosen;

/* `crc`: of what came before, or 0. */
static inline uint32_t rpwi_crc32(uint32_t crc, const void *data, size_t len)
{
	return rpwi_crc32_chosen(crc, data, len);
}

#endif
