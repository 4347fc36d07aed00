/* SPDX-License-Identifier: BSD-3-Clause */
/* bash.c - completion for bash: one function goes through the words of the line, and asks two
 * others, which are the tables as case statements. */
#include "cli/completion/completion.h"

#include "cli/cli.h"

#include <stdio.h>

static void bash_name(const struct cli_command *c, const struct cli_option *o)
{
	bool has_value = cli_options_takes_value(o) && !o->bare;

	printf(o == c->option ? "--%s" : " --%s", o->name);
	if (has_value)
		putchar('=');
}

/* Those whose value may be the next word. */
static void bash_valued(const struct cli_command *c, const struct cli_option *o)
{
	if (!cli_options_takes_value(o) || o->bare)
		return;
	printf(" --%s", o->name);
	if (o->letter)
		printf(" -%c", o->letter);
}

static void bash_command(const struct cli_command *c, const struct cli_subcommand *of)
{
	static const char *const kind[] = {[CLI_OPERAND_NONE] = "none",
		[CLI_OPERAND_FILE] = "file",
		[CLI_OPERAND_FOLDER] = "folder",
		[CLI_OPERAND_HOST] = "host",
		[CLI_OPERAND_PROGRAM] = "program"};

	printf("\t'%s')\n\t\tkind=%s\n\t\tcommands='", c->name, kind[c->operand]);
	for (const struct cli_subcommand *s = of; s && s->name; s++)
		if (s->summary)
			printf("%s ", s->name);
	printf("'\n\t\toptions='");
	rpwi_completion_options(c, bash_name);
	printf("'\n\t\tvalued='");
	rpwi_completion_options(c, bash_valued);
	printf(" '\n\t\t;;\n");
}

static void bash_value(const struct cli_command *c, const struct cli_option *o)
{
	if (!rpwi_completion_is_file(o) && !o->words)
		return;
	printf("\t'%s --%s'", c->name, o->name);
	if (o->letter)
		printf(" | '%s -%c'", c->name, o->letter);
	const char *kind = o->words ? "words" : "file";
	printf(") kind=%s choices='", o->kind == CLI_CHOICES ? "list" : kind);
	rpwi_completion_words(o->words, ' ');
	printf("%s' ;;\n", o->kind == CLI_CHOICES ? " all" : "");
}

static void bash_values(const struct cli_command *c, const struct cli_subcommand *of)
{
	rpwi_completion_options(c, bash_value);
}

static const char bash_head[] =
	"# bash completion of ropeway, made by `ropeway completion bash`.\n"
	"\n"
	"# Sets kind (of operands), commands, options and valued of the command $1.\n"
	"_ropeway_command()\n"
	"{\n"
	"\tkind=none commands= options= valued=\n"
	"\tcase $1 in\n";

static const char bash_middle[] = "\tesac\n"
				  "}\n"
				  "\n"
				  "# Sets kind and choices of a value: of \"COMMAND OPTION\".\n"
				  "_ropeway_value()\n"
				  "{\n"
				  "\tkind=none choices=\n"
				  "\tcase $1 in\n";

static const char bash_tail[] =
	"\tesac\n"
	"}\n"
	"\n"
	"# Offers what begins with $2, of kind $1.\n"
	"_ropeway_offer()\n"
	"{\n"
	"\tlocal before=\n"
	"\tcase $1 in\n"
	"\tfile) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$2\") ;;\n"
	"\tfolder) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$2\") ;;\n"
	"\thost) mapfile -t COMPREPLY < <(compgen -A hostname -- \"$2\") ;;\n"
	"\tprogram) mapfile -t COMPREPLY < <(compgen -c -- \"$2\") ;;\n"
	"\twords) mapfile -t COMPREPLY < <(compgen -W \"$choices\" -- \"$2\") ;;\n"
	"\tlist)\n"
	"\t\tbefore=${2%\"${2##*,}\"}\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -P \"$before\" -W \"$choices\" -- \"${2##*,}\")\n"
	"\t\t;;\n"
	"\tesac\n"
	"}\n"
	"\n"
	"_ropeway()\n"
	"{\n"
	"\tlocal cur=${COMP_WORDS[COMP_CWORD]} path=ropeway option= only= word i\n"
	"\tlocal kind commands options valued choices\n"
	"\tCOMPREPLY=()\n"
	"\t_ropeway_command \"$path\"\n"
	"\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	"\t\tword=${COMP_WORDS[i]}\n"
	"\t\tif [[ $word == '=' && $option ]]; then # the shell splits --option=value there\n"
	"\t\t\t((i + 1 < COMP_CWORD)) && option= && ((i++))\n"
	"\t\telif [[ $option && $valued == *\" $option \"* ]]; then\n"
	"\t\t\toption=\n"
	"\t\telif [[ $word == -- && ! $only ]]; then\n"
	"\t\t\tonly=operands option=\n"
	"\t\telif [[ $word == -?* && ! $only ]]; then\n"
	"\t\t\toption=$word\n"
	"\t\telif [[ \" $commands \" == *\" $word \"* ]]; then\n"
	"\t\t\tpath=\"$path $word\" option=\n"
	"\t\t\t_ropeway_command \"$path\"\n"
	"\t\telif [[ $kind == program ]]; then # the rest is that program's\n"
	"\t\t\tif declare -F _comp_command_offset >/dev/null; then\n"
	"\t\t\t\t_comp_command_offset \"$i\"\n"
	"\t\t\telif declare -F _command_offset >/dev/null; then\n"
	"\t\t\t\t_command_offset \"$i\"\n"
	"\t\t\telse\n"
	"\t\t\t\t_ropeway_offer file \"$cur\"\n"
	"\t\t\tfi\n"
	"\t\t\treturn\n"
	"\t\telse\n"
	"\t\t\toption=\n"
	"\t\tfi\n"
	"\tdone\n"
	"\tif [[ $cur == '=' ]]; then\n"
	"\t\tcur=\n"
	"\telif [[ ${COMP_WORDS[COMP_CWORD - 1]} != '=' && $valued != *\" $option \"* ]]; then\n"
	"\t\toption=\n"
	"\tfi\n"
	"\tif [[ $option ]]; then\n"
	"\t\t_ropeway_value \"$path $option\"\n"
	"\t\t_ropeway_offer \"$kind\" \"$cur\"\n"
	"\telif [[ $cur == -* && ! $only ]]; then\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n"
	"\t\t[[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace\n"
	"\telif [[ $commands ]]; then\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$cur\")\n"
	"\telse\n"
	"\t\t_ropeway_offer \"$kind\" \"$cur\"\n"
	"\tfi\n"
	"} && complete -F _ropeway ropeway\n";

void rpwi_completion_bash(const struct cli_command *c, const struct cli_subcommand *of)
{
	fputs(bash_head, stdout);
	rpwi_completion_visit(c, of, bash_command);
	fputs(bash_middle, stdout);
	rpwi_completion_visit(c, of, bash_values);
	fputs(bash_tail, stdout);
}
