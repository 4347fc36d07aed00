/* SPDX-License-Identifier: BSD-3-Clause */
/* fish.c - completion for fish: a line of complete(1) for each command, option and operand, each
 * under the condition that the line is about this command. */
#include "cli/completion/completion.h"

#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

/* Within single quotes. */
static void fish_text(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\'' || text[i] == '\\')
			putchar('\\');
		putchar(text[i]);
	}
}

static void fish_begin(const struct cli_command *c, const char *behind)
{
	printf("complete -c ropeway -n '__ropeway_is \"%s%s\"'", c->name, behind);
}

static void fish_about(const char *text, size_t len)
{
	fputs(" -d '", stdout);
	fish_text(text, len);
	fputs("'\n", stdout);
}

static void fish_words(const char *const *words, const char *behind)
{
	for (const char *const *w = words; w && *w; w++)
		printf("%s%s%s", w == words ? "" : " ", *w, behind);
}

/* What may be the value: words, what a function prints, files. */
static void fish_value(const struct cli_option *o)
{
	bool list = o->kind == CLI_CHOICES || o->offer == CLI_OFFER_DEVICES ||
		    o->offer == CLI_OFFER_SETTINGS;

	fputs(rpwi_completion_is_file(o) ? " -r -F" : " -x", stdout);
	if (!o->words && !o->offer)
		return;
	printf(list || o->offer ? " -a '(%s" : " -a '%s",
		list ? "__ropeway_list " : (o->offer ? "__ropeway_devices" : ""));
	fish_words(o->words, o->offer == CLI_OFFER_SETTINGS ? "=" : "");
	if (o->kind == CLI_CHOICES)
		fputs(" all", stdout);
	if (o->offer == CLI_OFFER_DEVICES)
		fputs(" (__ropeway_devices)", stdout);
	fputs(list || o->offer ? ")'" : "'", stdout);
}

static void fish_option(const struct cli_command *c, const struct cli_option *o)
{
	fish_begin(c, "");
	printf(" -l %s", o->name);
	if (o->letter)
		printf(" -s %c", o->letter);
	if (cli_options_takes_value(o) && !o->bare)
		fish_value(o);
	fish_about(o->help, rpwi_completion_about(o->help));
}

/* Of options whose value may be the next word. */
static void fish_valued(const struct cli_command *c, const struct cli_option *o)
{
	if (!cli_options_takes_value(o) || o->bare)
		return;
	printf(" '%s --%s'", c->name, o->name);
	if (o->letter)
		printf(" '%s -%c'", c->name, o->letter);
}

static void fish_operands(const struct cli_command *c)
{
	static const char *const offer[] = {[CLI_OPERAND_NONE] = " -f",
		[CLI_OPERAND_FILE] = " -F",
		[CLI_OPERAND_CAPTURE] = " -f -a '(__ropeway_captures)'",
		[CLI_OPERAND_FOLDER] = " -f -a '(__fish_complete_directories (commandline -ct))'",
		[CLI_OPERAND_WORDS] = " -f -a '",
		[CLI_OPERAND_HOST] = " -f -a '(__fish_print_hostnames)'",
		[CLI_OPERAND_PROGRAM] = " -f -a '(__fish_complete_command)'"};

	fish_begin(c, "");
	fputs(offer[c->operand], stdout);
	if (c->operand == CLI_OPERAND_WORDS) {
		fish_words(c->operand_words, "");
		putchar('\'');
	}
	putchar('\n');
	if (c->operand != CLI_OPERAND_PROGRAM)
		return;
	fish_begin(c, " PROGRAM");
	fputs(" -f -a '(__ropeway_program)'\n", stdout);
}

static void fish_command(const struct cli_command *c, const struct cli_subcommand *of)
{
	for (const struct cli_subcommand *s = of; s && s->name; s++) {
		if (!s->summary)
			continue;
		fish_begin(c, "");
		printf(" -f -a %s", s->name);
		fish_about(s->summary, strlen(s->summary));
	}
	rpwi_completion_options(c, fish_option);
	if (!of)
		fish_operands(c);
}

/* The variables by which __ropeway_at goes through a line. */
static void fish_tables(const struct cli_command *c, const struct cli_subcommand *of)
{
	fputs("set -a __ropeway_valued", stdout);
	rpwi_completion_options(c, fish_valued);
	putchar('\n');
	for (const struct cli_subcommand *s = of; s && s->name; s++)
		if (s->summary)
			printf("set -a __ropeway_commands '%s'\n", s->full_name);
	if (c->operand == CLI_OPERAND_PROGRAM)
		printf("set -a __ropeway_runs '%s'\n", c->name);
}

static const char fish_head[] =
	"# fish completion of ropeway, made by `ropeway completion fish`.\n"
	"\n"
	"# The command that the line is about; PROGRAM behind it, and then its words, where they "
	"follow.\n"
	"function __ropeway_at\n"
	"    set -l path ropeway\n"
	"    set -l value 0\n"
	"    set -l only 0\n"
	"    set -l words (commandline -opc)\n"
	"    while set -q words[2]\n"
	"        set -e words[1]\n"
	"        set -l word $words[1]\n"
	"        if test $value = 1\n"
	"            set value 0\n"
	"        else if test $only = 0; and test \"$word\" = --\n"
	"            set only 1\n"
	"        else if test $only = 0; and string match -q -- '-?*' $word\n"
	"            contains -- \"$path $word\" $__ropeway_valued; and set value 1\n"
	"        else if contains -- \"$path $word\" $__ropeway_commands\n"
	"            set path \"$path $word\"\n"
	"        else if contains -- $path $__ropeway_runs\n"
	"            printf '%s\\n' \"$path PROGRAM\" $words\n"
	"            return\n"
	"        end\n"
	"    end\n"
	"    echo $path\n"
	"end\n"
	"\n"
	"function __ropeway_is\n"
	"    set -l at (__ropeway_at)\n"
	"    test $at[1] = $argv[1]\n"
	"end\n"
	"\n"
	"# What the program behind `ropeway run` takes.\n"
	"function __ropeway_program\n"
	"    set -l at (__ropeway_at)\n"
	"    complete -C (string escape -- $at[2..-1] | string join ' ')\" \"(commandline -ct)\n"
	"end\n"
	"\n"
	"function __ropeway_devices\n"
	"    set -l words (commandline -opc)\n"
	"    command $words[1] completion devices 2>/dev/null\n"
	"end\n"
	"\n"
	"# Each word behind the comma that is typed last.\n"
	"function __ropeway_list\n"
	"    set -l before (commandline -ct | string replace -r '^--[^=]*=' '' |\n"
	"        string replace -r '[^,]*$' '')\n"
	"    set -q before[1]; or set before ''\n"
	"    printf '%s\\n' $before$argv\n"
	"end\n"
	"\n"
	"# Files with packets and folders; all files where there is none.\n"
	"function __ropeway_captures\n"
	"    set -l files (complete -C \"__ropeway_no_command \"(commandline -ct))\n"
	"    string match -r '.*(?:/|\\.(?:";
static const char fish_middle[] = "))$' -- $files\n"
				  "    or printf '%s\\n' $files\n"
				  "end\n"
				  "\n"
				  "set -g __ropeway_valued\n"
				  "set -g __ropeway_commands\n"
				  "set -g __ropeway_runs\n";

void rpwi_completion_fish(const struct cli_command *c, const struct cli_subcommand *of)
{
	fputs(fish_head, stdout);
	rpwi_completion_words(rpwi_completion_captures, '|');
	fputs(fish_middle, stdout);
	rpwi_completion_visit(c, of, fish_tables);
	putchar('\n');
	rpwi_completion_visit(c, of, fish_command);
}
