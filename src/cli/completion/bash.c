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
		[CLI_OPERAND_CAPTURE] = "capture",
		[CLI_OPERAND_WORDS] = "words",
		[CLI_OPERAND_FOLDER] = "folder",
		[CLI_OPERAND_HOST] = "host",
		[CLI_OPERAND_PROGRAM] = "program"};

	printf("\t'%s')\n\t\tkind=%s\n\t\tchoices='", c->name, kind[c->operand]);
	rpwi_completion_words(c->operand_words, ' ');
	printf("'\n\t\tcommands='");
	for (const struct cli_subcommand *s = of; s && s->name; s++)
		if (s->summary)
			printf("%s ", s->name);
	printf("'\n\t\toptions='");
	rpwi_completion_options(c, bash_name);
	printf("'\n\t\tvalued='");
	rpwi_completion_options(c, bash_valued);
	printf(" '\n\t\t;;\n");
}

static const char *bash_kind(const struct cli_option *o)
{
	static const char *const kind[] = {[CLI_OFFER_DEVICE] = "device",
		[CLI_OFFER_DEVICES] = "devices",
		[CLI_OFFER_SETTINGS] = "list"};

	if (o->offer)
		return kind[o->offer];
	if (o->kind == CLI_CHOICES)
		return "list";
	return o->words ? "words" : "file";
}

static void bash_value(const struct cli_command *c, const struct cli_option *o)
{
	bool file = rpwi_completion_is_file(o);

	if (!file && !o->words && !o->offer)
		return;
	printf("\t'%s --%s'", c->name, o->name);
	if (o->letter)
		printf(" | '%s -%c'", c->name, o->letter);
	printf(") kind=%s choices='", bash_kind(o));
	for (const char *const *w = o->words; w && *w; w++)
		printf("%s%s ", *w, o->offer == CLI_OFFER_SETTINGS ? "=" : "");
	printf("%s'%s ;;\n", o->kind == CLI_CHOICES ? "all" : "",
		file && bash_kind(o)[0] != 'f' ? " also=file" : "");
}

static void bash_values(const struct cli_command *c, const struct cli_subcommand *of)
{
	rpwi_completion_options(c, bash_value);
}

static const char bash_head[] =
	"# bash completion of ropeway, made by `ropeway completion bash`.\n"
	"\n"
	"# Sets kind and choices (of operands), commands, options and valued of the command $1.\n"
	"_ropeway_command()\n"
	"{\n"
	"\tkind=none choices= commands= options= valued=\n"
	"\tcase $1 in\n";

static const char bash_middle[] =
	"\tesac\n"
	"}\n"
	"\n"
	"# Sets kind, choices and also of a value: of \"COMMAND OPTION\".\n"
	"_ropeway_value()\n"
	"{\n"
	"\tkind=none choices= also=\n"
	"\tcase $1 in\n";

static const char bash_tail[] =
	"\tesac\n"
	"}\n"
	"\n"
	"# Sets words and at: the words of the line, where the shell's own are split at each "
	"\"=\".\n"
	"_ropeway_words()\n"
	"{\n"
	"\tlocal i glued=\n"
	"\tfor ((i = 0; i <= COMP_CWORD; i++)); do\n"
	"\t\tif ((i > 1)) && [[ $glued || ${COMP_WORDS[i]} == '=' ]]; then\n"
	"\t\t\twords[-1]+=${COMP_WORDS[i]}\n"
	"\t\telse\n"
	"\t\t\twords+=(\"${COMP_WORDS[i]}\") at+=(\"$i\")\n"
	"\t\tfi\n"
	"\t\t[[ ${COMP_WORDS[i]} == '=' ]] && glued=1 || glued=\n"
	"\tdone\n"
	"}\n"
	"\n"
	"_ropeway_files()\n"
	"{\n"
	"\tlocal -a files\n"
	"\tcompopt -o filenames\n"
	"\tmapfile -t files < <(compgen \"$@\")\n"
	"\tCOMPREPLY+=(\"${files[@]}\")\n"
	"}\n"
	"\n"
	"# Offers what begins with $2, of kind $1.\n"
	"_ropeway_offer()\n"
	"{\n"
	"\tlocal before= end\n"
	"\t[[ $1 != device* ]] || choices+=\" $(\"${COMP_WORDS[0]}\" completion devices "
	"2>/dev/null)\"\n"
	"\tcase $1 in\n"
	"\tfile) _ropeway_files -f -- \"$2\" ;;\n"
	"\tcapture)\n"
	"\t\tfor end in ";
static const char bash_end[] =
	"; do\n"
	"\t\t\t_ropeway_files -f -X \"!*.$end\" -- \"$2\"\n"
	"\t\tdone\n"
	"\t\tif ((${#COMPREPLY[@]})); then\n"
	"\t\t\t_ropeway_files -d -- \"$2\"\n"
	"\t\telse\n"
	"\t\t\t_ropeway_files -f -- \"$2\"\n"
	"\t\tfi\n"
	"\t\t;;\n"
	"\tfolder) _ropeway_files -d -- \"$2\" ;;\n"
	"\thost) mapfile -t COMPREPLY < <(compgen -A hostname -- \"$2\") ;;\n"
	"\tprogram) mapfile -t COMPREPLY < <(compgen -c -- \"$2\") ;;\n"
	"\twords | device) mapfile -t COMPREPLY < <(compgen -W \"$choices\" -- \"$2\") ;;\n"
	"\tlist | devices)\n"
	"\t\tbefore=${2%\"${2##*,}\"}\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -P \"$before\" -W \"$choices\" -- \"${2##*,}\")\n"
	"\t\t;;\n"
	"\tesac\n"
	"\t[[ ! $also || $before ]] || _ropeway_files -f -- \"$2\"\n"
	"}\n"
	"\n"
	"_ropeway()\n"
	"{\n"
	"\tlocal path=ropeway option= only= cur word i\n"
	"\tlocal kind commands options valued choices also=\n"
	"\tlocal -a words=() at=()\n"
	"\tCOMPREPLY=()\n"
	"\t_ropeway_words\n"
	"\t_ropeway_command \"$path\"\n"
	"\tfor ((i = 1; i < ${#words[@]} - 1; i++)); do\n"
	"\t\tword=${words[i]}\n"
	"\t\tif [[ $option && $valued == *\" $option \"* ]]; then\n"
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
	"\t\t\t\t_comp_command_offset \"${at[i]}\"\n"
	"\t\t\telif declare -F _command_offset >/dev/null; then\n"
	"\t\t\t\t_command_offset \"${at[i]}\"\n"
	"\t\t\telse\n"
	"\t\t\t\t_ropeway_offer file \"${COMP_WORDS[COMP_CWORD]}\"\n"
	"\t\t\tfi\n"
	"\t\t\treturn\n"
	"\t\telse\n"
	"\t\t\toption=\n"
	"\t\tfi\n"
	"\tdone\n"
	"\tcur=${words[-1]}\n"
	"\tif [[ $option && $valued == *\" $option \"* ]]; then\n"
	"\t\t_ropeway_value \"$path $option\"\n"
	"\t\t_ropeway_offer \"$kind\" \"$cur\"\n"
	"\telif [[ $cur == --*=* && ! $only ]]; then\n"
	"\t\t_ropeway_value \"$path ${cur%%=*}\"\n"
	"\t\t_ropeway_offer \"$kind\" \"${cur#*=}\"\n"
	"\t\tCOMPREPLY=(\"${COMPREPLY[@]/#/${cur%%=*}=}\")\n"
	"\telif [[ $cur == -* && ! $only ]]; then\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n"
	"\telif [[ $commands ]]; then\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$cur\")\n"
	"\telse\n"
	"\t\t_ropeway_offer \"$kind\" \"$cur\"\n"
	"\tfi\n"
	"\t[[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace\n"
	"\t[[ $COMP_WORDBREAKS != *=* ]] || "
	"COMPREPLY=(\"${COMPREPLY[@]#\"${cur%\"${cur##*=}\"}\"}\")\n"
	"} && complete -F _ropeway ropeway\n";

void rpwi_completion_bash(const struct cli_command *c, const struct cli_subcommand *of)
{
	fputs(bash_head, stdout);
	rpwi_completion_visit(c, of, bash_command);
	fputs(bash_middle, stdout);
	rpwi_completion_visit(c, of, bash_values);
	fputs(bash_tail, stdout);
	rpwi_completion_words(rpwi_completion_captures, ' ');
	fputs(bash_end, stdout);
}
