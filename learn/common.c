/* SPDX-License-Identifier: BSD-3-Clause */
/* common.c - options, the clock, and numbers as bytes, for all the educational programs. */
#include <getopt.h>
#include <sys/random.h>
#include <time.h>

#include "common.h"

#ifndef ROPEWAY_VERSION
#define ROPEWAY_VERSION "unversioned"
#endif

enum { FLAGS_MAX = 16 };

/* ---- options ---- */

static void print_help(const struct program *p, const struct flag *flags)
{
	printf("Usage: %s [options] %s\n%s\n\n", p->name, p->words, p->purpose);
	for (const struct flag *f = flags; f->name; f++) {
		if (!(f->programs & p->bit))
			continue;
		if (f->letter)
			printf("  -%c, --%-10s  %s", f->letter, f->name, f->help);
		else
			printf("  %-16s  %s", f->name, f->help);
		if (f->max)
			printf(", %u to %u", f->min, f->max);
		if (f->max && *f->number) /* what it is without the option */
			printf(" (%u)", *f->number);
		putchar('\n');
	}
	printf("  -h, --help        this text\n  -V, --version     the version\n");
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
			f->letter ? option : f->name, word, f->min, f->max, f->help);
	*f->number = (unsigned)number;
}

static void take_option(const struct program *p, const struct flag *f, int c, char **argv)
{
	/* What getopt stumbled over. optopt is 0 for an unknown long option. */
	const char option[] = {'-', (char)optopt, '\0'};
	const char *shown = optopt ? option : argv[optind - 1];

	if (c == ':')
		die("option %s needs a value after it (--help lists the options)", shown);
	if (c == '?')
		die("there is no option %s (--help lists the options)", shown);
	if (c == 'h')
		print_help(p, f);
	if (c == 'V')
		printf("%s (ropeway) %s\n", p->name, ROPEWAY_VERSION);
	if (c == 'h' || c == 'V')
		exit(EXIT_SUCCESS);
	while (f->letter != c || !(f->programs & p->bit))
		f++;
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

	program_invocation_short_name = (char *)p->name; /* where err(3) looks */
	/* Line by line, also into a pipe: a waiting reader sees each step when it happens. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (f = flags; f->name; f++) {
		if (!f->letter || !(f->programs & p->bit))
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
		else if (f->required)
			die("%s is missing: %s %s (--help says more)", f->help, p->name, p->words);
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

/* ---- numbers ---- */

void put(uint8_t *out, unsigned bytes, uint64_t number)
{
	for (; bytes--; number >>= 8)
		out[bytes] = (uint8_t)number;
}

uint64_t get(const uint8_t *in, unsigned bytes)
{
	uint64_t number = 0;

	while (bytes--)
		number = number << 8 | *in++;
	return number;
}

size_t put_header(uint8_t *out, uint32_t magic, unsigned version, unsigned kind, size_t body_bytes)
{
	put(out, 4, magic);
	put(out + 4, 2, version);
	put(out + 6, 2, kind);
	put(out + 8, 4, body_bytes);
	return HEADER_BYTES + body_bytes;
}

uint64_t mix(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint64_t random_number(void)
{
	uint64_t number;

	if (getentropy(&number, sizeof(number)))
		err(1, "getentropy");
	return number;
}
