/* fail.c - see fail.h. */
#include "base/fail.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"

static __thread char text[512] = "no error";

/* In brackets: fail.h has a macro of that name for analysers. */
int(rpwi_fail)(int status, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	rpwi_debug("%s", text);
	return status;
}

const char *rpwi_fail_text(void) { return text; }
