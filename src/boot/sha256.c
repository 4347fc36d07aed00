/* SPDX-License-Identifier: BSD-3-Clause */
/* sha256.c - see sha256.h. */
#include "boot/sha256.h"

#include <endian.h>
#include <string.h>

/* FIPS 180-4, 4.2.2 and 5.3.3: the first bits of the fractions of cube and square roots of primes.
 */
static const uint32_t K[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b,
	0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
	0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6,
	0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d,
	0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
	0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585,
	0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
	0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa,
	0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
static const uint32_t START[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
	0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static uint32_t turn(uint32_t x, unsigned bits) { return x >> bits | x << (32 - bits); }

/* 6.2.2, one block of 64 bytes. */
static void block(uint32_t h[8], const uint8_t *p)
{
	uint32_t w[64], s[8];
	for (int t = 0; t < 16; t++) {
		memcpy(&w[t], p + 4 * t, 4);
		w[t] = be32toh(w[t]);
	}
	for (int t = 16; t < 64; t++)
		w[t] = (turn(w[t - 2], 17) ^ turn(w[t - 2], 19) ^ w[t - 2] >> 10) + w[t - 7] +
		       (turn(w[t - 15], 7) ^ turn(w[t - 15], 18) ^ w[t - 15] >> 3) + w[t - 16];
	memcpy(s, h, sizeof(s));
	for (int t = 0; t < 64; t++) {
		uint32_t t1 = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) +
			      ((s[4] & s[5]) ^ (~s[4] & s[6])) + K[t] + w[t];
		uint32_t t2 = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) +
			      ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
		memmove(s + 1, s, 7 * sizeof(*s));
		s[4] += t1;
		s[0] = t1 + t2;
	}
	for (int i = 0; i < 8; i++)
		h[i] += s[i];
}

void boot_sha256(const void *data, size_t len, uint8_t out[32])
{
	const uint8_t *p = data;
	uint32_t h[8];
	uint8_t last[128] = {0};
	size_t left = len % 64, padded = left < 56 ? 64 : 128;
	uint64_t bits = htobe64((uint64_t)len * 8);
	memcpy(h, START, sizeof(h));
	for (size_t at = 0; at + 64 <= len; at += 64)
		block(h, p + at);
	if (left)
		memcpy(last, p + (len - left), left);
	last[left] = 0x80;
	memcpy(last + padded - 8, &bits, 8);
	for (size_t at = 0; at < padded; at += 64)
		block(h, last + at);
	for (int i = 0; i < 8; i++) {
		uint32_t word = htobe32(h[i]);
		memcpy(out + 4 * i, &word, 4);
	}
}
