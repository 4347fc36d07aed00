/* SPDX-License-Identifier: BSD-3-Clause */
/* fail.c - see fail.h. */
#include "base/fail.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"

static __thread char text[512] = "no error";
static __thread unsigned count;
static __thread int last;

/* In brackets: fail.h has a macro of that name for analysers. */
int(rpwi_fail)(int status, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	count++;
	last = status;
	rpwi_debug("%s", text);
	return status;
}

const char *rpwi_fail_text(void) { return text; }
unsigned rpwi_fail_count(void) { return count; }
int rpwi_fail_status(void) { return last; }
void rpwi_fail_again(const char *sentence) { snprintf(text, sizeof(text), "%s", sentence); }
