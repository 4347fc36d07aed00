/* SPDX-License-Identifier: BSD-3-Clause */
/* number.c - see number.h. */
#include "base/number.h"

#include <string.h>
#include <strings.h>

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
