/* SPDX-License-Identifier: BSD-3-Clause */
/* number.c - see number.h. */
#include "base/number.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"

enum { WORD_MAX = 32, SLIPS_MOST = 2 };

const char *rpwi_digits(const char *s, uint64_t *v)
{
	const char *from = s;
	for (*v = 0; *s >= '0' && *s <= '9'; s++) {
		if (*v > (UINT64_MAX >> 1) / 10)
			return from;
		*v = *v * 10 + (uint64_t)(*s - '0');
	}
	return s;
}

const char *rpwi_number(const char *s, uint64_t *v)
{
	uint64_t exponent;
	const char *e = rpwi_digits(s, v);
	if (e == s)
		return NULL;
	if (*e == '^') {
		const char *f = rpwi_digits(e + 1, &exponent);
		uint64_t base = *v;
		if (f == e + 1 || exponent > 62)
			return NULL;
		for (*v = 1; exponent--; *v *= base)
			if (base && *v > (UINT64_MAX >> 1) / base)
				return NULL;
		return f;
	}
	static const char units[] = "KMG";
	const char *u = *e ? strchr(units, *e) : NULL;
	unsigned shift = u ? 10 * (unsigned)(u - units + 1) : 0;
	if (*v > UINT64_MAX >> 1 >> shift)
		return NULL;
	*v <<= shift;
	return u ? e + 1 : e;
}

size_t rpwi_alike(const char *a, const char *b)
{
	size_t n = 0;
	while (a[n] && !strncasecmp(a, b, n + 1))
		n++;
	return n;
}

/* ---- near words ---- */

/* Damerau-Levenshtein distance, its restricted form: letters that are wrong, missing, too many, or
 * swapped with their neighbor. */
static unsigned distance(const char *a, const char *b)
{
	size_t la = strlen(a), lb = strlen(b);
	unsigned d[WORD_MAX + 1][WORD_MAX + 1];

	if (la > WORD_MAX || lb > WORD_MAX)
		return WORD_MAX;
	for (size_t i = 0; i <= la; i++)
		for (size_t j = 0; j <= lb; j++) {
			if (!i || !j) {
				d[i][j] = (unsigned)(i + j);
				continue;
			}
			unsigned replaced = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]),
				 shorter = RPWI_MIN(d[i - 1][j], d[i][j - 1]) + 1;
			d[i][j] = RPWI_MIN(replaced, shorter);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				d[i][j] = RPWI_MIN(d[i][j], d[i - 2][j - 2] + 1);
		}
	return d[la][lb];
}

static bool begins_with(const char *text, const char *beginning)
{
	return !strncmp(text, beginning, strlen(beginning));
}

const char *rpwi_word_near(const char *word, const char *const *names)
{
	const char *nearest = NULL;
	unsigned least = SLIPS_MOST + 1;

	for (const char *const *n = names; *n && *word; n++)
		if (begins_with(*n, word))
			return *n;
	for (const char *const *n = names; *n; n++) {
		unsigned d = distance(word, *n);
		if (d < least && 2 * d <= RPWI_MAX(strlen(word), strlen(*n))) {
			/* two slips in a word of three letters make any other one */
			least = d;
			nearest = *n;
		}
	}
	for (const char *const *n = names; *n && !nearest; n++)
		if (begins_with(word, *n))
			nearest = *n;
	return nearest;
}
