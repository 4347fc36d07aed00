/* SPDX-License-Identifier: BSD-3-Clause */
/* fail.c - the one line on standard error with which a command ends; a limit and signals that would
 * end it without one. */
#include "cli/cli.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

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

/* Two texts, so that a signal finds a whole one while the next is written. */
static struct {
	pid_t pid;
	volatile sig_atomic_t current;
	char text[2][512];
	const char *volatile result;
} stop;

static void say(int fd, const char *text)
{
	if (write(fd, text, strlen(text)) < 0) {
		/* nobody reads it */
	}
}

static void on_stop(int sig)
{
	if (getpid() == stop.pid) {
		if (stop.result)
			say(STDOUT_FILENO, stop.result);
		say(STDERR_FILENO, stop.text[stop.current]);
	}
	signal(sig, SIG_DFL);
	raise(sig);
}

void rpwi_cli_when_stopped(const char *command, const char *fmt, ...)
{
	char line[400];
	int next = !stop.current;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	rpwi_cli_printable(line, line, sizeof(line));
	snprintf(stop.text[next], sizeof(stop.text[next]), "%s%s: %s\n",
		isatty(STDERR_FILENO) ? "\r\033[K" : "", command, line);
	stop.current = next;
	if (stop.pid)
		return;
	stop.pid = getpid();
	for (int i = 0; i < 2; i++) {
		int sig = i ? SIGTERM : SIGINT;
		if (signal(sig, on_stop) == SIG_IGN) /* as nohup and shells have it */
			signal(sig, SIG_IGN);
	}
}

void rpwi_cli_when_stopped_print(const char *result) { stop.result = result; }

void rpwi_cli_stop_is_late(void)
{
	int next = !stop.current;
	stop.result = NULL;
	stop.text[next][0] = '\0';
	stop.current = next;
}
