/* SPDX-License-Identifier: BSD-3-Clause */
/* check.c - `ropeway plugin check`: options, and how what the conformance run finds is shown. The
 * cases are ncclnet/check/conform.c's. */
#include <jansson.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/plugin/plugin.h"
#include "ncclnet/check/conform.h"
#include "ncclnet/check/rma.h"
#include "ncclnet/drive/rma.h"

#define CHECK_NAME "ropeway plugin check"

enum {
	COLUMNS = CLI_HELP_COLUMNS,
	TEXT_AT = 23,
	SIZE_LEAST = 4096,
	SIZE_MOST = 1 << 30,
	ROUNDS_MOST = 100000000,
	MESSAGES_MOST = 100000000
};

struct shown {
	const char *path;
	json_t *root, *lines; /* NULL: for people */
	struct conform_facts facts;
	bool rma, partial; /* partial: --only leaves properties out */
	int ranks;
	unsigned nccl_failed, rccl_failed; /* properties that each asks for */
};

/* ---- for people ---- */

/* What a release takes: the highest that both know; 0: none. */
static int taken(const struct ncclnet_release *r, unsigned exported)
{
	for (int v = r->last; v >= r->first; v--)
		if (exported >> v & 1)
			return v;
	return 0;
}

static const char *table_name(int i)
{
	return i < 0 ? "none: it uses its own backends" : ncclnet_rma_table_name((unsigned)i);
}

static void print_rma_facts(const struct shown *s)
{
	char path[500];
	const char *between = "";
	printf("%s exports ", rpwi_cli_printable(s->path, path, sizeof(path)));
	for (unsigned i = 0; ncclnet_rma_table_name(i); i++) {
		if (!(s->facts.exported >> i & 1))
			continue;
		printf("%s%s", between, ncclnet_rma_table_name(i));
		between = ", ";
	}
	printf("; checking %s with %d ranks.\n\nNCCL              uses\n", table_name(s->facts.rma),
		s->ranks);
	for (const struct conform_rma_release *r = conform_rma_release; r->name; r++) {
		int table = conform_rma_taken(r, s->facts.exported);
		printf("%-16s  %s%s\n", r->name, table_name(table),
			r->net_only && table >= 0 ? ", if the network plugin is the same file"
						  : "");
	}
	putchar('\n');
	fflush(stdout);
}

static void print_facts(const struct shown *s)
{
	char versions[100], path[500];
	printf("%s exports %s; checking v%d.\n\nNCCL           uses\n",
		rpwi_cli_printable(s->path, path, sizeof(path)),
		ncclnet_versions(s->facts.exported, versions, sizeof(versions)), s->facts.abi);
	for (const struct ncclnet_release *r = ncclnet_release; r->name; r++) {
		int v = taken(r, s->facts.exported);
		printf(v ? "%-13s  v%d\n" : "%-13s  none: it uses its own transports\n", r->name,
			v);
	}
	putchar('\n');
	fflush(stdout);
}

static void print_line(const struct conform_line *l)
{
	char text[sizeof(l->text)];
	rpwi_cli_printable(l->text, text, sizeof(text));
	bool beside = l->verdict <= CONFORM_SKIP &&
		      strlen(l->what) + strlen(text) + TEXT_AT + 3 <= COLUMNS;
	printf("%-6s %-15s %s", conform_verdict_name[l->verdict], l->id, l->what);
	if (beside && *text)
		printf(" (%s)", text);
	putchar('\n');
	if (!beside && *text) {
		printf("%*s", TEXT_AT, "");
		cli_help_text(stdout, text, TEXT_AT, TEXT_AT, COLUMNS);
	}
	if (l->then && l->verdict == CONFORM_FAIL) {
		printf("%*s", TEXT_AT, "");
		cli_help_text(stdout, l->then, TEXT_AT, TEXT_AT, COLUMNS);
	}
	fflush(stdout);
}

/* ---- verdicts: of the releases that take the table that was checked ---- */

enum fit { FIT, UNFIT, UNCHECKED };
static const char *const fit_name[] = {
	[FIT] = "fit", [UNFIT] = "not fit", [UNCHECKED] = "not checked"};

/* A part of the properties can show that it is unfit, and no more. */
static enum fit fit_by(const struct shown *s, unsigned failed)
{
	if (failed)
		return UNFIT;
	return s->partial ? UNCHECKED : FIT;
}

static bool takes_this(const struct shown *s, const struct conform_rma_release *r)
{
	return conform_rma_taken(r, s->facts.exported) == s->facts.rma;
}

static void print_verdicts(const struct shown *s)
{
	bool any = false;
	for (const struct conform_rma_release *r = conform_rma_release; r->name; r++)
		if (takes_this(s, r)) {
			if (any)
				printf(", %s", r->name);
			else
				printf("%s for NCCL %s", fit_name[fit_by(s, s->nccl_failed)],
					r->name);
			any = true;
		}
	if (any)
		printf(", by %s\n", table_name(s->facts.rma));
	else
		printf("no release of NCCL that is known uses %s of this plugin\n",
			table_name(s->facts.rma));
	printf("%s for RCCL, with %s\n", fit_name[fit_by(s, s->rccl_failed)],
		table_name(s->facts.rma));
	for (const struct conform_rma_release *r = conform_rma_release; r->name; r++) {
		int table = conform_rma_taken(r, s->facts.exported);
		if (table >= 0 && table != s->facts.rma)
			printf("not checked: NCCL %s, which uses %s\n", r->name, table_name(table));
	}
}

/* ---- for programs ---- */

static void keep_facts(struct shown *s)
{
	json_t *exported = json_array(), *releases = json_array();
	for (int v = NCCL_NET_V_FIRST; v <= NCCL_NET_V_LAST; v++)
		if (s->facts.exported >> v & 1)
			json_array_append_new(exported, json_integer(v));
	for (const struct ncclnet_release *r = ncclnet_release; r->name; r++) {
		int v = taken(r, s->facts.exported);
		json_array_append_new(releases, json_pack("{s:s, s:o}", "nccl", r->name, "abi",
							v ? json_integer(v) : json_null()));
	}
	json_object_set_new(s->root, "abi", json_integer(s->facts.abi));
	json_object_set_new(s->root, "exported", exported);
	json_object_set_new(s->root, "releases", releases);
}

static void keep_rma_facts(struct shown *s)
{
	json_t *exported = json_array();
	for (unsigned i = 0; ncclnet_rma_table_name(i); i++)
		if (s->facts.exported >> i & 1)
			json_array_append_new(exported, json_string(ncclnet_rma_table_name(i)));
	json_object_set_new(s->root, "table", json_string(table_name(s->facts.rma)));
	json_object_set_new(s->root, "ranks", json_integer(s->ranks));
	json_object_set_new(s->root, "exported", exported);
}

static json_t *verdicts(const struct shown *s)
{
	json_t *releases = json_array();
	for (const struct conform_rma_release *r = conform_rma_release; r->name; r++) {
		int table = conform_rma_taken(r, s->facts.exported);
		enum fit fit = takes_this(s, r) ? fit_by(s, s->nccl_failed) : UNCHECKED;
		json_array_append_new(
			releases, json_pack("{s:s, s:s?, s:s}", "nccl", r->name, "table",
					  table < 0 ? NULL : table_name(table), "verdict",
					  table < 0 ? "none" : fit_name[fit]));
	}
	json_object_set_new(s->root, "rccl", json_string(fit_name[fit_by(s, s->rccl_failed)]));
	return releases;
}

static void on_facts(void *arg, const struct conform_facts *f)
{
	struct shown *s = arg;
	s->facts = *f;
	if (s->rma && s->root)
		keep_rma_facts(s);
	else if (s->rma)
		print_rma_facts(s);
	else if (s->root)
		keep_facts(s);
	else
		print_facts(s);
}

static void on_line(void *arg, const struct conform_line *l)
{
	struct shown *s = arg;
	char text[sizeof(l->text)];
	s->nccl_failed += l->verdict == CONFORM_FAIL;
	s->rccl_failed += l->verdict == CONFORM_FAIL && !l->nccl_only;
	if (!s->root)
		print_line(l);
	else
		json_array_append_new(s->lines,
			json_pack("{s:s, s:s, s:s, s:s, s:s*}", "id", l->id, "property", l->what,
				"verdict",
				l->verdict == CONFORM_SKIP ? "skip"
							   : conform_verdict_name[l->verdict],
				"text", rpwi_cli_printable(l->text, text, sizeof(text)), "then",
				l->then));
}

/* ---- options ---- */

struct options {
	struct conform_options conform;
	double timeout_s;
	int ranks;       /* 0: not given */
	unsigned rounds; /* 0: not given */
	bool json;
};
static const struct cli_option option[] = {
	{"abi", 0, CLI_NUMBER, "vN",
		"version of the plugin API (default: the highest, as NCCL; FILE.so@vN does the "
		"same)",
		.prefix = "v", .least = NCCL_NET_V_FIRST, .most = NCCL_NET_V_LAST,
		CLI_INTO(struct options, conform.abi)},
	{"rma", 0, CLI_TEXT, "TABLE",
		"check one-sided operations instead: the table that the newest NCCL uses, or "
		"TABLE: v13 to v16, gin11 to gin13",
		.bare = "", CLI_INTO(struct options, conform.table)},
	{"ranks", 0, CLI_NUMBER, "N", "ranks of --rma, each a process (default 2)", .least = 2,
		.most = PAIR_SIDES_MAX, CLI_INTO(struct options, ranks)},
	{"rounds", 0, CLI_NUMBER, "N", "rounds of the property `strong` of --rma (default 100000)",
		.least = 1, .most = ROUNDS_MOST, CLI_INTO(struct options, rounds)},
	{"timeout", 0, CLI_REAL, "SECONDS", "time for each step", .unit = "seconds", .least = 0.1,
		.most = 3600, .preset = "5", CLI_INTO(struct options, timeout_s)},
	{"largest", 0, CLI_SIZE, "SIZE", "largest message", .least = SIZE_LEAST, .most = SIZE_MOST,
		.preset = "64M", CLI_INTO(struct options, conform.size_most)},
	{"messages", 0, CLI_NUMBER, "N",
		"messages of each size for the property `polled` (default 100, of large ones 10)",
		.least = 1, .most = MESSAGES_MOST, CLI_INTO(struct options, conform.messages)},
	{"device", 0, CLI_NUMBER, "N", "which device of the plugin", .most = PLUGIN_DEVICE_MOST,
		.preset = "0", CLI_INTO(struct options, conform.device)},
	{"only", 0, CLI_TEXT, "TEXT", "only properties whose name contains TEXT",
		CLI_INTO(struct options, conform.only)},
	{"json", 0, CLI_FLAG, NULL, "print JSON", CLI_INTO(struct options, json)},
	{},
};
static const struct cli_command command = {
	.name = CHECK_NAME,
	.usage = "FILE.so [OPTIONS]",
	.about =
		"Checks whether a NCCL network plugin does what NCCL expects, between two "
		"processes on this host; with --rma a plugin for one-sided operations, between up "
		"to eight. Each property has a line: pass; quirk, "
		"if NCCL or ropeway can cope with it; or fail. If the plugin crashes or hangs, one "
		"line fails. The exit status is 1 if a property failed.",
	.option = option,
	.operands_least = 1,
	.operands_most = 1,
	.operand = CLI_OPERAND_FILE,
	.missing = "expected the plugin to check, as in ./libnccl-net-ropeway.so",
};

static bool any_id_has(bool rma, const char *text)
{
	for (unsigned i = 0; conform_id(rma, i, NULL); i++)
		if (strstr(conform_id(rma, i, NULL), text))
			return true;
	return false;
}

static int finish(struct shown *s, const unsigned count[CONFORM_VERDICTS])
{
	if (!s->root) {
		printf("\n%u pass, %u quirk%s, %u fail", count[CONFORM_PASS], count[CONFORM_QUIRK],
			rpwi_cli_plural(count[CONFORM_QUIRK]), count[CONFORM_FAIL]);
		printf(count[CONFORM_SKIP] ? ", %u not for this plugin\n" : "\n",
			count[CONFORM_SKIP]);
		if (s->rma)
			print_verdicts(s);
		return CLI_OK;
	}
	if (s->rma)
		json_object_set_new(s->root, "releases", verdicts(s));
	for (int v = 0; v < CONFORM_VERDICTS; v++)
		json_object_set_new(s->root, v == CONFORM_SKIP ? "skip" : conform_verdict_name[v],
			json_integer(count[v]));
	json_object_set_new(s->root, "lines", s->lines);
	return rpwi_cli_json(CHECK_NAME, s->root, JSON_INDENT(1));
}

/* What one option cannot know of another. */
static int settle(struct options *o)
{
	struct conform_options *c = &o->conform;
	c->rma = c->table != NULL;
	if (!c->rma && (o->ranks || o->rounds))
		return rpwi_cli_usage(
			CHECK_NAME, "--%s is of --rma", o->ranks ? "ranks" : "rounds");
	if (c->rma && c->abi)
		return rpwi_cli_usage(
			CHECK_NAME, "--abi is of network plugins; --rma=v16 sets the table");
	if (c->rma && !rma_table(c->table))
		return cli_options_invalid(
			&command, "rma", c->table, "expected v13 to v16, or gin11 to gin13");
	if (c->rma)
		c->table = rma_table(c->table);
	c->ranks = o->ranks ? o->ranks : 2;
	c->rounds = o->rounds ? o->rounds : 100000;
	if (c->only && !any_id_has(c->rma, c->only))
		return cli_options_invalid(
			&command, "only", c->only, "expected a part of the name of a property");
	return CLI_GO_ON;
}

int rpwi_plugin_check(int argc, char **argv)
{
	struct shown s = {0};
	struct options o = {.conform = {.facts = on_facts, .line = on_line, .arg = &s}};
	unsigned count[CONFORM_VERDICTS];
	char why[400], path[512];
	int abi, status = cli_options_parse(&command, &o, &argc, &argv);
	if (status == CLI_GO_ON &&
		ncclnet_parse(argv[0], path, sizeof(path), &abi, why, sizeof(why)))
		return rpwi_cli_fail(CLI_USAGE, CHECK_NAME, "%s", why);
	if (status == CLI_GO_ON) {
		o.conform.abi = abi ? abi : o.conform.abi;
		status = settle(&o);
	}
	if (status != CLI_GO_ON)
		return status;
	o.conform.path = s.path = path;
	s.rma = o.conform.rma;
	s.partial = o.conform.only != NULL;
	s.ranks = o.conform.ranks;
	o.conform.timeout_ms = (unsigned)(o.timeout_s * 1000);
	if (o.json) {
		s.root = json_pack("{s:s}", "path", path);
		s.lines = json_array();
	}
	rpwi_cli_when_stopped(CHECK_NAME, "stopped: %s",
		o.json ? "no JSON before all properties are tested"
		       : "the lines above are whole; --only picks others");
	if (conform_run(&o.conform, count, why, sizeof(why))) {
		json_decref(s.lines);
		json_decref(s.root);
		return rpwi_cli_fail(CLI_FAILED, CHECK_NAME, "%s", why);
	}
	rpwi_cli_stop_is_late();
	return finish(&s, count) || count[CONFORM_FAIL] ? CLI_FAILED : CLI_OK;
}
