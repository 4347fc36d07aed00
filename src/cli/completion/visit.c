/* SPDX-License-Identifier: BSD-3-Clause */
/* visit.c - see completion.h. Each command is called with cli_options_visitor set: it shows its
 * table and does nothing else. */
#include "cli/completion/completion.h"

#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

void rpwi_completion_visit(const struct cli_command *c, const struct cli_subcommand *of,
	void (*fn)(const struct cli_command *c, const struct cli_subcommand *of))
{
	struct cli_visitor visitor = {.visit = fn};

	cli_options_visitor = &visitor;
	cli_commands_run(c, of, 0, NULL);
	cli_options_visitor = NULL;
}

void rpwi_completion_options(const struct cli_command *c,
	void (*fn)(const struct cli_command *c, const struct cli_option *o))
{
	for (const struct cli_option *o = c->option; o && o->name; o++)
		fn(c, o);
	for (size_t i = 0; i < CLI_COMMON; i++)
		fn(c, &cli_options_common[i]);
}

const char *const rpwi_completion_captures[] = {"pcapng", "pcap", "cap", "gz", NULL};

bool rpwi_completion_is_file(const struct cli_option *o)
{
	return o->kind == CLI_FILE || (o->kind == CLI_TEXT && strstr(o->value, "FILE"));
}

void rpwi_completion_words(const char *const *words, char between)
{
	for (const char *const *w = words; w && *w; w++)
		printf(w[1] ? "%s%c" : "%s", *w, between);
}

/* In a list what an option does has to be short. */
enum { ABOUT_MOST = 60 };

/* Up to a pause, or the last word that fits. */
size_t rpwi_completion_about(const char *help)
{
	size_t n = strcspn(help, ":;(");

	if (n > ABOUT_MOST)
		for (n = ABOUT_MOST; n && help[n] != ' ';)
			n--;
	while (n && strchr(" ,", help[n - 1]))
		n--;
	return n;
}

bool rpwi_completion_repeats(const struct cli_option *o)
{
	return (o->kind == CLI_TEXT || o->kind == CLI_FILE) && o->width > sizeof(char *);
}
