/* SPDX-License-Identifier: BSD-3-Clause */
/* number.h - numbers and words as people write them: in files that ropeway reads, in options. */
#ifndef ROPEWAY_BASE_NUMBER_H
#define ROPEWAY_BASE_NUMBER_H

#include <stddef.h>
#include <stdint.h>

/* Decimal digits; behind them. The same pointer: there is none, or it is too large. */
const char *rpwi_digits(const char *s, uint64_t *v);
/* "1000000", "10^6", "64K" (also M, G: powers of 1024): NULL where `s` begins with none, or where
 * it is too large (2^63), else what is behind it. */
const char *rpwi_number(const char *s, uint64_t *v);
/* How many characters of the two are alike from the beginning, whatever their case. */
size_t rpwi_alike(const char *a, const char *b);
/* Which of `names`, up to a NULL, was meant by a word that is none of them: one that begins with
 * it, or is up to two slips of the keyboard away, or that it begins with. NULL: none. */
const char *rpwi_word_near(const char *word, const char *const *names);

#endif
