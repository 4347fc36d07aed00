/* SPDX-License-Identifier: BSD-3-Clause */
/* log.c - the log: one line an event, to stderr, filtered by ROPEWAY_LOG; addresses in it. */
#include "base/base.h"
#include "base/file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int rpwi_log_level_cached = -1;

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

const char *rpwi_at(const volatile void *p, char out[RPWI_AT_LEN])
{
	if (p)
		snprintf(out, RPWI_AT_LEN, "0x%zx", (size_t)(uintptr_t)p);
	else
		snprintf(out, RPWI_AT_LEN, "NULL");
	return out;
}

int rpwi_log_level_load(void)
{
	const char *want = getenv("ROPEWAY_LOG");
	int level = RPWI_LOG_WARN;
	for (int i = 0; want && i < (int)RPWI_ARRAY_LEN(level_names); i++)
		if (!strcmp(want, level_names[i]))
			level = i;
	rpwi_log_level_cached = level;
	return level;
}

void rpwi_log_write(enum rpwi_log_level level, const char *fmt, ...)
{
	char line[1024];
	int n = snprintf(line, sizeof(line), "ropeway: %s: ", level_names[level]);
	va_list ap;
	va_start(ap, fmt);
	int m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	if (m < 0)
		return;
	n = RPWI_MIN(n + m, (int)sizeof(line) - 2);
	line[n++] = '\n';
	rpwi_file_write(STDERR_FILENO, line, (size_t)n);
}
