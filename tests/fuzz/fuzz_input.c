/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_input.c - reading the input of a fuzz target, and saying that something is broken. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>

uint8_t fuzz_u8(struct fuzz_input *in) { return in->left ? (in->left--, *in->p++) : 0; }

uint16_t fuzz_u16(struct fuzz_input *in)
{
	uint8_t hi = fuzz_u8(in);
	return (uint16_t)(hi << 8 | fuzz_u8(in));
}

void fuzz_readable(const void *p, size_t len, size_t step)
{
	const volatile uint8_t *b = p;
	for (size_t i = 0; i < len; i += step)
		(void)b[i];
	if (len)
		(void)b[len - 1];
}

void fuzz_broken(const char *what)
{
	fprintf(stderr, "fuzz: %s\n", what);
	abort();
}
