/* SPDX-License-Identifier: BSD-3-Clause */
/* options_help.c - see options.h: what --help prints, made from a command's table. No line is
 * longer than 80 columns, and no text in a table has line breaks of its own but between
 * paragraphs. */
#include "cli/options.h"

#include <string.h>

enum { TEXT_COLUMN_MOST = 28, LEFT_LEN = 64 };

const struct cli_option cli_options_common[CLI_COMMON] = {
	[CLI_HELP] = {.name = "help", .letter = 'h', .kind = CLI_FLAG, .help = "print this text"},
	[CLI_VERSION] = {.name = "version",
		.letter = 'V',
		.kind = CLI_FLAG,
		.help = "print the version"},
};

static void pad(FILE *to, unsigned n) { fprintf(to, "%*s", (int)n, ""); }

void cli_help_text(FILE *to, const char *text, unsigned at, unsigned column, unsigned columns)
{
	bool first = true;

	while (*text) {
		size_t word = strcspn(text, " \n");
		if (!first && at + 1 + word > columns) {
			putc('\n', to);
			pad(to, column);
			at = column;
			first = true;
		}
		fprintf(to, "%s%.*s", first ? "" : " ", (int)word, text);
		at += (unsigned)word + !first;
		first = false;
		text += word;
		if (*text == '\n') {
			putc('\n', to);
			pad(to, text[1] && text[1] != '\n' ? column : 0);
			at = column;
			first = true;
		}
		text += *text ? 1 : 0;
	}
	putc('\n', to);
}

void cli_help_row(FILE *to, const char *left, unsigned column, const char *text)
{
	unsigned at = 2 + (unsigned)strlen(left);

	fprintf(to, "  %s", left);
	if (at + 2 > column) {
		putc('\n', to);
		at = 0;
	}
	pad(to, column - at);
	cli_help_text(to, text, column, column, CLI_HELP_COLUMNS);
}

/* "-s, --size N" */
static const char *left_of(const struct cli_option *o, char out[LEFT_LEN])
{
	char letter[] = {'-', o->letter, ',', ' ', '\0'};

	int n = snprintf(out, LEFT_LEN, "%s--%s", o->letter ? letter : "    ", o->name);
	if (o->value)
		snprintf(out + n, LEFT_LEN - (size_t)n, o->bare ? "[=%s]" : " %s", o->value);
	return out;
}

static unsigned text_column(const struct cli_option *table)
{
	char left[LEFT_LEN];
	unsigned column = 2 + (unsigned)strlen(left_of(&cli_options_common[CLI_VERSION], left)) + 2;

	for (const struct cli_option *o = table; o && o->name; o++) {
		unsigned needs = 2 + (unsigned)strlen(left_of(o, left)) + 2;
		if (needs > column && needs <= TEXT_COLUMN_MOST)
			column = needs;
	}
	return column;
}

static void print_option(FILE *to, const struct cli_option *o, unsigned column)
{
	char left[LEFT_LEN], text[512];

	if (o->preset)
		snprintf(text, sizeof(text), "%s (default %s)", o->help, o->preset);
	else
		snprintf(text, sizeof(text), "%s", o->help);
	cli_help_row(to, left_of(o, left), column, text);
}

static void print_usage(FILE *to, const struct cli_command *c)
{
	const char *form = c->usage;
	char line[256];

	for (bool first = true; form; first = false) {
		size_t len = strcspn(form, "\n");
		snprintf(line, sizeof(line), "%.*s", (int)len, form);
		fprintf(to, "%s%s ", first ? "Usage: " : "       ", c->name);
		unsigned column = (unsigned)(strlen("Usage: ") + strlen(c->name) + 1);
		cli_help_text(to, line, column, column, CLI_HELP_COLUMNS);
		form = form[len] ? form + len + 1 : NULL;
	}
}

void cli_options_help(const struct cli_command *c, FILE *to)
{
	unsigned column = text_column(c->option);

	print_usage(to, c);
	putc('\n', to);
	cli_help_text(to, c->about, 0, 0, CLI_HELP_COLUMNS);
	putc('\n', to);
	if (c->list)
		c->list(to);
	for (const struct cli_option *o = c->option; o && o->name; o++)
		print_option(to, o, column);
	for (size_t i = 0; i < CLI_COMMON; i++)
		print_option(to, &cli_options_common[i], column);
	if (c->after) {
		putc('\n', to);
		cli_help_text(to, c->after, 0, 0, CLI_HELP_COLUMNS);
	}
}
