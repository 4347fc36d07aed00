/* SPDX-License-Identifier: BSD-3-Clause */
/* zsh.c - completion for zsh: a function for each command, which calls _arguments
 * (zshcompsys(1)). */
#include "cli/completion/completion.h"

#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

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

/* A list of words between commas; `more`: what a shell finds when it is asked. */
static void zsh_list(const struct cli_option *o, const char *more)
{
	fputs("_values -s , ", stdout);
	zsh_text(o->value, strlen(o->value));
	putchar(' ');
	rpwi_completion_words(o->words, ' ');
	printf(" %s", more);
}

static void zsh_words(const char *const *words)
{
	putchar('(');
	rpwi_completion_words(words, ' ');
	putchar(')');
}

static void zsh_action(const struct cli_option *o)
{
	printf("%s", o->bare ? "::" : ":");
	zsh_text(o->value, strlen(o->value));
	putchar(':');
	if (o->kind == CLI_CHOICES) {
		zsh_list(o, "all");
	} else if (o->offer == CLI_OFFER_DEVICE) {
		fputs("compadd -- ${=$(__ropeway_devices)}", stdout);
	} else if (o->offer == CLI_OFFER_DEVICES) {
		zsh_list(o, "${=$(__ropeway_devices)}");
	} else if (o->offer == CLI_OFFER_SETTINGS) {
		fputs(" __ropeway_settings ", stdout);
		rpwi_completion_words(o->words, ' ');
	} else if (o->words && rpwi_completion_is_file(o)) {
		fputs(" __ropeway_or_file ", stdout);
		rpwi_completion_words(o->words, ' ');
	} else if (o->words) {
		zsh_words(o->words);
	} else if (rpwi_completion_is_file(o)) {
		fputs("_files", stdout);
	}
}

/* "=": the value in the same word behind "=" or in the next one; "=-": in the same word only. */
static void zsh_spec(
	const char *dashes, const char *name, const char *equals, const struct cli_option *o)
{
	fputs(" \\\n\t\t'", stdout);
	if (rpwi_completion_repeats(o))
		putchar('*');
	else if (o->letter)
		printf("(-%c --%s)", o->letter, o->name);
	printf("%s%s%s[", dashes, name, cli_options_takes_value(o) ? equals : "");
	zsh_text(o->help, rpwi_completion_about(o->help));
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
static void zsh_operands(const struct cli_command *c)
{
	static const char *const action[] = {[CLI_OPERAND_FILE] = "*:file:_files",
		[CLI_OPERAND_CAPTURE] = "*:capture:_files -g \"*.(",
		[CLI_OPERAND_FOLDER] = "*:folder:_files -/",
		[CLI_OPERAND_WORDS] = "1:word:",
		[CLI_OPERAND_HOST] = "*:host:_hosts",
		[CLI_OPERAND_PROGRAM] = "(-)1:program: _command_names -e"};

	if (c->operand != CLI_OPERAND_NONE)
		printf(" \\\n\t\t'%s", action[c->operand]);
	if (c->operand == CLI_OPERAND_CAPTURE) {
		rpwi_completion_words(rpwi_completion_captures, '|');
		fputs(")(-.)\"", stdout);
	} else if (c->operand == CLI_OPERAND_WORDS) {
		zsh_words(c->operand_words);
	}
	if (c->operand != CLI_OPERAND_NONE)
		putchar('\'');
	if (c->operand == CLI_OPERAND_PROGRAM)
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
	printf("()\n{\n\tlocal curcontext=$curcontext state line\n"
	       "\tlocal _ropeway_command=${_ropeway_command-$words[1]}\n\ttypeset -A opt_args\n"
	       "\t_arguments -s -S %s",
		of ? "-C -A '-*'" : how);
	rpwi_completion_options(c, zsh_option);
	if (of) {
		fputs(" \\\n\t\t'1:command:->command' \\\n\t\t'*::argument:->argument'\n", stdout);
		zsh_subcommands(c->name, of);
	} else {
		zsh_operands(c);
	}
	fputs("}\n\n", stdout);
}

static const char zsh_head[] = "#compdef ropeway\n"
			       "# zsh completion of ropeway, made by `ropeway completion zsh`.\n"
			       "\n"
			       "__ropeway_devices()\n"
			       "{\n"
			       "\t${(Q)_ropeway_command} completion devices 2>/dev/null\n"
			       "}\n"
			       "\n"
			       "__ropeway_or_file()\n"
			       "{\n"
			       "\t_files\n"
			       "\tcompadd -- $@\n"
			       "}\n"
			       "\n"
			       "# A list of NAME=VALUE, or a file.\n"
			       "__ropeway_settings()\n"
			       "{\n"
			       "\tif [[ $PREFIX == *,* ]]; then\n"
			       "\t\tcompset -P '*,'\n"
			       "\telse\n"
			       "\t\t_files\n"
			       "\tfi\n"
			       "\tcompadd -S '=' -- $@\n"
			       "}\n"
			       "\n";

void rpwi_completion_zsh(const struct cli_command *c, const struct cli_subcommand *of)
{
	fputs(zsh_head, stdout);
	rpwi_completion_visit(c, of, zsh_command);
	fputs("_ropeway \"$@\"\n", stdout);
}
