/* SPDX-License-Identifier: BSD-3-Clause */
/* common.c - options, and the clock of all the educational programs. */
#include <getopt.h>
#include <time.h>

#include "common.h"

#ifndef ROPEWAY_VERSION
#define ROPEWAY_VERSION "unversioned"
#endif

enum { FLAGS_MAX = 16 };

/* ---- options ---- */

static void print_help(const struct program *p, const struct flag *flags)
{
	char left[40];

	printf(_("Usage: %s [options] %s\n%s\n"), p->name, _(p->words), _(p->purpose));
	for (const struct flag *f = flags; f->name; f++) {
		if (!(f->programs & p->bit))
			continue;
		if (f->letter)
			snprintf(left, sizeof(left), "-%c, --%s %s", f->letter, f->name,
				f->value ? f->value : "");
		printf("  %-16s  %s", f->letter ? left : f->name, _(f->help));
		if (f->max)
			printf(_(", %u to %u"), f->min, f->max);
		if (f->max && *f->number) /* what it is without the option */
			printf(" (%u)", *f->number);
		putchar('\n');
	}
	printf("  -h, --help        %s\n  -V, --version     %s\n", _("this text"),
		_("the version"));
}

static void take(const struct flag *f, const char *word)
{
	const char option[] = {'-', f->letter, '\0'};
	unsigned long number;
	char *end;

	if (f->yes)
		*f->yes = true;
	if (f->text)
		*f->text = word;
	if (!f->number)
		return;
	errno = 0;
	number = strtoul(word, &end, 10);
	if (word[0] < '0' || word[0] > '9' || *end || errno || number < f->min || number > f->max)
		die("%s is \"%s\", but must be a number from %u to %u: %s (--help says more)",
			f->letter ? option : f->name, word, f->min, f->max, _(f->help));
	*f->number = (unsigned)number;
}

/* The option that getopt stumbled over. optopt is 0 for an unknown long one. */
static _Noreturn void wrong_option(int c, char **argv)
{
	const char option[] = {'-', (char)optopt, '\0'};
	const char *shown = optopt ? option : argv[optind - 1];

	if (c == ':')
		die("option %s needs a value after it (--help lists the options)", shown);
	die("there is no option %s (--help lists the options)", shown);
}

static void take_option(const struct program *p, const struct flag *flags, int c, char **argv)
{
	const struct flag *f = flags;

	if (c == 'h')
		print_help(p, flags);
	if (c == 'V')
		printf("%s (ropeway) %s\n", p->name, ROPEWAY_VERSION);
	if (c == 'h' || c == 'V')
		exit(EXIT_SUCCESS);
	if (c == ':' || c == '?')
		wrong_option(c, argv);
	while (f->letter != c)
		f++;
	optopt = c;
	if (!(f->programs & p->bit))
		wrong_option('?', argv);
	take(f, optarg);
}

/* The leading ':' of `letters` keeps getopt quiet: this program explains errors itself. */
void options_parse(const struct program *p, const struct flag *flags, int argc, char **argv)
{
	struct option names[FLAGS_MAX + 3] = {
		{"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'}};
	char letters[2 * FLAGS_MAX + 4] = ":hV";
	const struct flag *f;
	unsigned n = 2;
	int c;

	language_start(p->name);
	for (f = flags; f->name; f++) {
		if (!f->letter)
			continue;
		names[n++] = (struct option){f->name, !f->yes, NULL, f->letter};
		snprintf(letters + strlen(letters), 3, "%c%s", f->letter, f->yes ? "" : ":");
	}
	while ((c = getopt_long(argc, argv, letters, names, NULL)) != -1)
		take_option(p, flags, c, argv);
	for (f = flags; f->name; f++) {
		if (f->letter || !(f->programs & p->bit))
			continue;
		if (optind < argc)
			take(f, argv[optind++]);
		else if (f->missing)
			die("%s: %s %s (--help says more)", _(f->missing), p->name, _(p->words));
	}
	if (optind < argc)
		die("\"%s\" is one argument too many (--help shows the order)", argv[optind]);
}

struct addrinfo *addresses_of(const char *host, unsigned port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found;
	char service[8];
	int error;

	snprintf(service, sizeof(service), "%u", port);
	error = getaddrinfo(host, service, &hints, &found);
	if (error)
		die("\"%s\" is no address (%s): write an IP address or a host name", host,
			gai_strerror(error));
	return found;
}

/* ---- clock, errors ---- */

uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

bool succeeded(int rc)
{
	if (rc > 0)
		errno = rc;
	return !rc;
}
