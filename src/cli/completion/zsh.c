/* SPDX-License-Identifier: BSD-3-Clause */
/* zsh.c - completion for zsh: a function for each command, which calls _arguments
 * (zshcompsys(1)). */
#include "cli/completion/completion.h"

#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

/* In a line of _arguments what an option does has to be short. */
enum { ABOUT_MOST = 60 };

/* Within single quotes and a specification of _arguments. */
static void zsh_text(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (text[i] == '\'')
			fputs("'\\''", stdout);
		else if (strchr("[]:\\", text[i]))
			printf("\\%c", text[i]);
		else
			putchar(text[i]);
}

/* The beginning of what help says: up to a pause, or the last word that fits. */
static size_t about_len(const char *help)
{
	size_t n = strcspn(help, ":;(");

	if (n > ABOUT_MOST)
		for (n = ABOUT_MOST; n && help[n] != ' ';)
			n--;
	while (n && strchr(" ,", help[n - 1]))
		n--;
	return n;
}

static void zsh_action(const struct cli_option *o)
{
	printf("%s", o->bare ? "::" : ":");
	zsh_text(o->value, strlen(o->value));
	putchar(':');
	if (o->kind == CLI_CHOICES) {
		fputs("_values -s , ", stdout);
		zsh_text(o->value, strlen(o->value));
		putchar(' ');
		rpwi_completion_words(o->words, ' ');
		fputs(" all", stdout);
	} else if (o->words) {
		putchar('(');
		rpwi_completion_words(o->words, ' ');
		putchar(')');
	} else if (rpwi_completion_is_file(o)) {
		fputs("_files", stdout);
	}
}

static bool repeats(const struct cli_option *o)
{
	return (o->kind == CLI_TEXT || o->kind == CLI_FILE) && o->width > sizeof(char *);
}

/* "=": the value in the same word behind "=" or in the next one; "=-": in the same word only. */
static void zsh_spec(
	const char *dashes, const char *name, const char *equals, const struct cli_option *o)
{
	fputs(" \\\n\t\t'", stdout);
	if (repeats(o))
		putchar('*');
	else if (o->letter)
		printf("(-%c --%s)", o->letter, o->name);
	printf("%s%s%s[", dashes, name, cli_options_takes_value(o) ? equals : "");
	zsh_text(o->help, about_len(o->help));
	putchar(']');
	if (cli_options_takes_value(o))
		zsh_action(o);
	putchar('\'');
}

static void zsh_option(const struct cli_command *c, const struct cli_option *o)
{
	zsh_spec("--", o->name, o->bare ? "=-" : "=", o);
	if (o->letter)
		zsh_spec("-", (char[]){o->letter, '\0'}, o->bare ? "-" : "+", o);
}

static void zsh_function(const char *name)
{
	putchar('_');
	for (; *name; name++)
		putchar(*name == ' ' ? '_' : *name);
}

/* Specifications of _arguments, as lines that go on. */
static void zsh_operands(enum cli_operand operand)
{
	static const char *const action[] = {[CLI_OPERAND_FILE] = "*:file:_files",
		[CLI_OPERAND_FOLDER] = "*:folder:_files -/",
		[CLI_OPERAND_HOST] = "*:host:_hosts",
		[CLI_OPERAND_PROGRAM] = "(-)1:program: _command_names -e"};

	if (operand != CLI_OPERAND_NONE)
		printf(" \\\n\t\t'%s'", action[operand]);
	if (operand == CLI_OPERAND_PROGRAM)
		fputs(" \\\n\t\t'*::arguments: _normal'", stdout);
	putchar('\n');
}

static void zsh_subcommands(const char *name, const struct cli_subcommand *of)
{
	fputs("\tcase $state in\n\tcommand)\n\t\tlocal -a commands=(", stdout);
	for (const struct cli_subcommand *s = of; s->name; s++)
		if (s->summary) {
			printf("\n\t\t\t'%s:", s->name);
			zsh_text(s->summary, strlen(s->summary));
			putchar('\'');
		}
	fputs(")\n\t\t_describe command commands\n\t\t;;\n\targument)\n\t\tcase $words[1] in\n",
		stdout);
	for (const struct cli_subcommand *s = of; s->name; s++)
		if (s->summary) {
			printf("\t\t%s) ", s->name);
			zsh_function(s->full_name);
			fputs(" ;;\n", stdout);
		}
	fputs("\t\tesac\n\t\t;;\n\tesac\n", stdout);
}

static void zsh_command(const struct cli_command *c, const struct cli_subcommand *of)
{
	const char *how = c->ends_at_operand ? "-A '-*'" : "";

	zsh_function(c->name);
	printf("()\n{\n\tlocal curcontext=$curcontext state line\n\ttypeset -A opt_args\n"
	       "\t_arguments -s -S %s",
		of ? "-C -A '-*'" : how);
	rpwi_completion_options(c, zsh_option);
	if (of) {
		fputs(" \\\n\t\t'1:command:->command' \\\n\t\t'*::argument:->argument'\n", stdout);
		zsh_subcommands(c->name, of);
	} else {
		zsh_operands(c->operand);
	}
	fputs("}\n\n", stdout);
}

void rpwi_completion_zsh(const struct cli_command *c, const struct cli_subcommand *of)
{
	fputs("#compdef ropeway\n# zsh completion of ropeway, made by `ropeway completion "
	      "zsh`.\n\n",
		stdout);
	rpwi_completion_visit(c, of, zsh_command);
	fputs("_ropeway \"$@\"\n", stdout);
}
