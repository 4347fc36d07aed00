/* SPDX-License-Identifier: BSD-3-Clause */
/* check.h - for small programs that run under the drop-in: each failed check is one line, and the
 * exit status says how many. */
#ifndef ROPEWAY_TESTS_ABI_CHECK_H
#define ROPEWAY_TESTS_ABI_CHECK_H

#include <stdio.h>
#include <stdlib.h>

static int failures;

/* CHECK(condition), or with the facts in printf style. The space keeps a format of no length from
 * being one. */
#define CHECK(cond, ...) \
	do { \
		if (!(cond)) { \
			failures++; \
			fprintf(stderr, "%s:%d: %s", __FILE__, __LINE__, #cond); \
			fprintf(stderr, " " __VA_ARGS__); \
			fputc('\n', stderr); \
		} \
	} while (0)

#define CHECK_DONE() return failures > 100 ? 100 : failures

#endif
