/* SPDX-License-Identifier: BSD-3-Clause */
/* options.c - see options.h. getopt_long takes the arguments apart, silently; errors in them are
 * reported here, so that it is said alike of every command. */
#include "cli/options.h"

#include "base/number.h"
#include "cli/cli.h"

#include <getopt.h>
#include <stdio.h>

/* from LONG_BASE on: positions in the table, as getopt_long gives them */
enum { WORD_MAX = 32, LONG_BASE = 256 };

/* The table of a command, and what every command has, as getopt_long wants them. */
struct parser {
	const struct cli_command *c;
	const struct cli_option *option[CLI_OPTIONS_MAX];
	const char *name[CLI_OPTIONS_MAX + 1];
	unsigned n;
	struct option longs[CLI_OPTIONS_MAX + 1];
	char letters[2 + 3 * CLI_OPTIONS_MAX + 1];
};

const struct cli_visitor *cli_options_visitor;

static bool begins_with(const char *text, const char *beginning)
{
	return !strncmp(text, beginning, strlen(beginning));
}

/* ---- what is wrong ---- */

int cli_options_invalid(
	const struct cli_command *c, const char *name, const char *value, const char *why)
{
	return rpwi_cli_usage(c->name, "invalid value '%s' for --%s: %s", value, name, why);
}

static int invalid(const struct parser *p, const struct cli_option *o, const char *value)
{
	char expected[CLI_EXPECTED_LEN], why[CLI_EXPECTED_LEN + 64];

	const char *near = o->kind == CLI_CHOICE ? rpwi_word_near(value, o->words) : NULL;
	snprintf(why, sizeof(why), "expected %s", cli_value_expected(o, expected));
	if (near)
		snprintf(why, sizeof(why), "did you mean '%s'? Expected %s", near,
			cli_value_expected(o, expected));
	return cli_options_invalid(p->c, o->name, value, why);
}

static const struct cli_option *option_of(const struct parser *p, int found)
{
	for (unsigned i = 0; i < p->n; i++)
		if (found == LONG_BASE + (int)i ||
			(p->option[i]->letter && found == p->option[i]->letter))
			return p->option[i];
	return NULL;
}

/* A word that begins with --, which getopt_long did not find in the table, or found more than once
 * as an abbreviation. */
static int unknown_name(const struct parser *p, const char *argument)
{
	char word[WORD_MAX + 1];
	const char *candidate[2] = {NULL, NULL};
	unsigned candidates = 0;

	snprintf(word, sizeof(word), "%.*s",
		(int)RPWI_MIN(strcspn(argument + 2, "="), (size_t)WORD_MAX), argument + 2);
	for (unsigned i = 0; i < p->n; i++)
		if (begins_with(p->name[i], word) && candidates++ < 2)
			candidate[candidates - 1] = p->name[i];
	if (candidates > 1)
		return rpwi_cli_usage(p->c->name, "ambiguous option '--%s': '--%s' or '--%s'", word,
			candidate[0], candidate[1]);
	const char *near = rpwi_word_near(word, p->name);
	if (near)
		return rpwi_cli_usage(
			p->c->name, "unknown option '--%s': did you mean '--%s'?", word, near);
	return rpwi_cli_usage(p->c->name, "unknown option '--%s'", word);
}

static int unknown(const struct parser *p, const char *argument)
{
	const struct cli_option *o = option_of(p, optopt);

	if (o)
		return rpwi_cli_usage(p->c->name,
			"option '--%s' takes no value, but has one in '%s'", o->name, argument);
	if (optopt)
		return rpwi_cli_usage(p->c->name, "unknown option '-%c'", optopt);
	return unknown_name(p, argument);
}

static int without_value(const struct parser *p)
{
	const struct cli_option *o = option_of(p, optopt);
	char expected[CLI_EXPECTED_LEN];

	return rpwi_cli_usage(p->c->name, "option '--%s' needs a value: %s", o->name,
		cli_value_expected(o, expected));
}

static int check_operands(const struct cli_command *c, int n, char **operand)
{
	if (n < (int)c->operands_least)
		return rpwi_cli_usage(c->name, "%s", c->missing);
	if (n > (int)c->operands_most && !c->ends_at_operand) {
		if (c->operands_most < 2)
			return rpwi_cli_usage(
				c->name, "unexpected argument '%s'", operand[c->operands_most]);
		return rpwi_cli_usage(c->name, "unexpected argument '%s': at most %u allowed",
			operand[c->operands_most], c->operands_most);
	}
	return CLI_GO_ON;
}

/* ---- going through ---- */

bool cli_options_takes_value(const struct cli_option *o)
{
	return o->kind != CLI_FLAG && o->kind != CLI_UNSET;
}

static void add(struct parser *p, const struct cli_option *o)
{
	int argument = o->bare ? optional_argument : required_argument;

	if (!cli_options_takes_value(o))
		argument = no_argument;

	assert(p->n < CLI_OPTIONS_MAX);
	p->option[p->n] = o;
	p->name[p->n] = o->name;
	p->longs[p->n] = (struct option){o->name, argument, NULL, LONG_BASE + (int)p->n};
	p->n++;
	if (!o->letter)
		return;
	char *end = p->letters + strlen(p->letters);
	*end++ = o->letter;
	for (int i = 0; i < argument; i++) /* ":" or "::" */
		*end++ = ':';
}

static void prepare(struct parser *p, const struct cli_command *c)
{
	*p = (struct parser){.c = c};
	strcpy(p->letters, c->ends_at_operand ? "+:" : ":"); /* ":": getopt_long prints nothing */
	for (const struct cli_option *o = c->option; o && o->name; o++)
		add(p, o);
	for (size_t i = 0; i < CLI_COMMON; i++)
		add(p, &cli_options_common[i]);
}

/* A text of ours, which is never wrong. */
static void set(const struct cli_option *o, const char *text, void *into)
{
	int rc = cli_value_take(o, text, into);

	assert(!rc);
	(void)rc;
}

static void set_presets(const struct cli_command *c, void *into)
{
	for (const struct cli_option *o = c->option; o && o->name; o++)
		if (o->preset)
			set(o, o->preset, into);
}

void cli_options_set(const struct cli_command *c, const char *name, const char *text, void *into)
{
	const struct cli_option *o = c->option;

	while (strcmp(o->name, name) != 0)
		o++;
	set(o, text, into);
}

/* One that every command has; CLI_GO_ON: it is another one. */
static int take_common(const struct cli_command *c, const struct cli_option *o)
{
	if (o == &cli_options_common[CLI_HELP])
		cli_options_help(c, stdout);
	else if (o == &cli_options_common[CLI_VERSION])
		puts("ropeway " ROPEWAY_VERSION);
	else
		return CLI_GO_ON;
	return CLI_OK;
}

int cli_options_parse(const struct cli_command *c, void *into, int *argc, char ***argv)
{
	struct parser p;
	int found;

	if (cli_options_visitor) {
		cli_options_visitor->visit(c, NULL);
		return CLI_OK;
	}
	prepare(&p, c);
	set_presets(c, into);
	optind = 0; /* from the beginning, and letters anew (getopt(3), NOTES) */
	opterr = 0;
	while ((found = getopt_long(*argc, *argv, p.letters, p.longs, NULL)) != -1) {
		if (found == ':')
			return without_value(&p);
		const struct cli_option *o = found == '?' ? NULL : option_of(&p, found);
		if (!o)
			return unknown(&p, (*argv)[optind - 1]);
		int status = take_common(c, o);
		if (status != CLI_GO_ON)
			return status;
		const char *text = optarg ? optarg : o->bare;
		if (cli_value_take(o, text, into))
			return invalid(&p, o, text);
	}
	*argc -= optind;
	*argv += optind;
	return check_operands(c, *argc, *argv);
}
