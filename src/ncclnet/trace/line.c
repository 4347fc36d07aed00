/* SPDX-License-Identifier: BSD-3-Clause */
/* line.c - the plugin's tables, and a line for each call. */
#include "base/base.h"
#include "check/check.h"
#include "ncclnet/trace/trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

const void *trace_tables[TRACE_TABLES];

bool trace_lines;

const char *trace_table_name(int table, char out[16])
{
	if (table >= TRACE_RMA)
		snprintf(out, 16, "%s v%d", table >= TRACE_GIN ? "GIN" : "RMA", table % TRACE_RMA);
	else
		snprintf(out, 16, "v%d", table);
	return out;
}

/* ---- a line for each call ---- */

void trace_begin(struct trace_call *c, int v, const char *name, void *comm, const void *from)
{
	*c = (struct trace_call){.name = name, .from = from, .comm = comm, .v = v};
	rpwi_check_site = (struct rpwi_site){.pc = {(uintptr_t)from}};
}

int trace_line(const struct trace_call *c, int rc, const char *fmt, ...)
{
	char text[256], table[16];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "ropeway: plugin %s %d.%ld %s: %s%s%d\n", trace_table_name(c->v, table),
		(int)getpid(), syscall(SYS_gettid), c->name, text, *text ? ", result " : "result ",
		rc);
	return rc;
}
