/* SPDX-License-Identifier: BSD-3-Clause */
/* fail.c - the one line on standard error with which a command ends; a limit that would end it
 * without one. */
#include "cli/cli.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

static void print_line(const char *command, const char *fmt, va_list ap)
{
	char line[1024];

	vsnprintf(line, sizeof(line), fmt, ap);
	fflush(stdout);
	fprintf(stderr, "%s: %s\n", command, rpwi_cli_printable(line, line, sizeof(line)));
}

int rpwi_cli_fail(int status, const char *command, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_line(command, fmt, ap);
	va_end(ap);
	return status;
}

int rpwi_cli_usage(const char *command, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print_line(command, fmt, ap);
	va_end(ap);
	fprintf(stderr, "Try '%s --help'.\n", command);
	return CLI_USAGE;
}

static void (*limit_before)(int) = SIG_DFL;

void rpwi_cli_file_limit_is_error(void) { limit_before = signal(SIGXFSZ, SIG_IGN); }
void rpwi_cli_file_limit_as_before(void) { signal(SIGXFSZ, limit_before); }
