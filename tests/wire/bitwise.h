/* SPDX-License-Identifier: BSD-3-Clause */
/* bitwise.h - CRC-32, one bit at a time: what the tests hold the library's against. */
#ifndef TESTS_WIRE_BITWISE_H
#define TESTS_WIRE_BITWISE_H

#include <stddef.h>
#include <stdint.h>

/* The raw state, which zlib and the ICRC show as its complement. */
static inline uint32_t bitwise_crc(uint32_t state, const uint8_t *d, size_t n)
{
	while (n--) {
		state ^= *d++;
		for (int i = 0; i < 8; i++)
			state = state & 1 ? state >> 1 ^ 0xedb88320 : state >> 1;
	}
	return state;
}

#endif
