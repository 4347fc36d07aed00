/* SPDX-License-Identifier: BSD-3-Clause */
/* bytes.c - numbers in network byte order (big-endian), and at random. */
#include <sys/random.h>

#include "common.h"

void put(uint8_t *out, unsigned bytes, uint64_t number)
{
	for (; bytes--; number >>= 8)
		out[bytes] = (uint8_t)number;
}

uint64_t get(const uint8_t *in, unsigned bytes)
{
	uint64_t number = 0;

	while (bytes--)
		number = number << 8 | *in++;
	return number;
}

size_t put_header(uint8_t *out, uint32_t magic, unsigned version, unsigned kind, size_t body_bytes)
{
	put(out, 4, magic);
	put(out + 4, 2, version);
	put(out + 6, 2, kind);
	put(out + 8, 4, body_bytes);
	return HEADER_BYTES + body_bytes;
}

uint64_t mix(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint64_t random_number(void)
{
	uint64_t number;

	if (getentropy(&number, sizeof(number)))
		number = (uintptr_t)&number; /* as the kernel placed the stack */
	return mix(&number);
}
