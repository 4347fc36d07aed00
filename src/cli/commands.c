/* SPDX-License-Identifier: BSD-3-Clause */
/* commands.c - see options.h: a command whose first operand is the name of another one. */
#include "cli/options.h"

#include "base/number.h"
#include "cli/cli.h"

enum { COMMANDS_MAX = 32 };

void cli_commands_list(const struct cli_subcommand *of, FILE *to)
{
	unsigned column = 0;

	fputs("Commands:\n", to);
	for (const struct cli_subcommand *s = of; s->name; s++)
		if (s->summary)
			column = RPWI_MAX(column, 2 + (unsigned)strlen(s->name) + 2);
	for (const struct cli_subcommand *s = of; s->name; s++)
		if (s->summary)
			cli_help_row(to, s->name, column, s->summary);
	fputs("\nOptions:\n", to);
}

static int unknown(const struct cli_command *c, const struct cli_subcommand *of, const char *word)
{
	const char *name[COMMANDS_MAX + 1] = {NULL};
	unsigned n = 0;

	for (const struct cli_subcommand *s = of; s->name; s++)
		if (s->summary && n < COMMANDS_MAX)
			name[n++] = s->name;
	const char *near = rpwi_word_near(word, name);
	if (near)
		return rpwi_cli_usage(
			c->name, "unknown command '%s': did you mean '%s'?", word, near);
	return rpwi_cli_usage(c->name, "unknown command '%s'", word);
}

/* The command itself, then each that people may know. */
static int show(const struct cli_command *c, const struct cli_subcommand *of)
{
	cli_options_visitor->visit(c, of);
	for (const struct cli_subcommand *s = of; s->name; s++)
		if (s->summary)
			s->run(1, (char *[]){(char *)(uintptr_t)s->full_name, NULL});
	return CLI_OK;
}

int cli_commands_run(
	const struct cli_command *c, const struct cli_subcommand *of, int argc, char **argv)
{
	if (cli_options_visitor)
		return show(c, of);
	int status = cli_options_parse(c, NULL, &argc, &argv);

	if (status != CLI_GO_ON)
		return status;
	if (!argc) {
		cli_options_help(c, stderr);
		return CLI_USAGE;
	}
	for (const struct cli_subcommand *s = of; s->name; s++) {
		if (strcmp(argv[0], s->name) != 0)
			continue;
		argv[0] = (char *)(uintptr_t)s->full_name;
		return s->run(argc, argv);
	}
	return unknown(c, of, argv[0]);
}
