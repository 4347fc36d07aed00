/* SPDX-License-Identifier: BSD-3-Clause */
/* sum.h - what is in a buffer, as a CRC: all of it up to CHECK_SUM_ALL bytes. Of a longer one
 * CHECK_SUM_ENDS bytes at either end, and CHECK_SUM_PIECES pieces of CHECK_SUM_PIECE bytes between
 * them, at equal distances. */
#ifndef ROPEWAY_CHECK_SUM_H
#define ROPEWAY_CHECK_SUM_H

#include <stddef.h>
#include <stdint.h>

enum {
	CHECK_SUM_ALL = 1 << 16,
	CHECK_SUM_ENDS = 1 << 14,
	CHECK_SUM_PIECES = 32,
	CHECK_SUM_PIECE = 1 << 10
};

typedef uint32_t check_crc(uint32_t crc, const void *data, size_t len);

/* Goes on with `sum`. */
static inline uint32_t check_sum(check_crc *crc, uint32_t sum, const void *data, size_t len)
{
	const uint8_t *at = data;
	if (len <= CHECK_SUM_ALL)
		return crc(sum, at, len);
	size_t between = len - 2 * CHECK_SUM_ENDS,
	       step = (between - CHECK_SUM_PIECE) / (CHECK_SUM_PIECES - 1);
	sum = crc(sum, at, CHECK_SUM_ENDS);
	for (size_t i = 0; i < CHECK_SUM_PIECES; i++)
		sum = crc(sum, at + CHECK_SUM_ENDS + i * step, CHECK_SUM_PIECE);
	return crc(sum, at + len - CHECK_SUM_ENDS, CHECK_SUM_ENDS);
}

#endif
