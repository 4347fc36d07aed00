/* SPDX-License-Identifier: BSD-3-Clause */
/* check.c - `ropeway check`: options, and which way a report is written. */
#include "cli/check/check.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"

#define NAME "ropeway check"

enum { REPORTS_MAX = 256, STATUS_MOST = 125 };

struct options {
	const char *format, *output, *suppress, *color;
	unsigned exitcode;
};
static const char *const formats[] = {"text", "json", "sarif", NULL};
static const char *const when[] = {"always", "never", "auto", NULL};
static const struct cli_option option[] = {
	{"format", 'f', CLI_CHOICE, "FORMAT",
		"text: blocks for people; json: a line for each kind of finding; sarif: SARIF "
		"2.1.0, for code scanning",
		.words = formats, .preset = "text", CLI_INTO(struct options, format)},
	{"output", 'o', CLI_FILE, "FILE", "write to FILE (- for standard output)", .preset = "-",
		CLI_INTO(struct options, output)},
	{"suppress", 's', CLI_FILE, "FILE",
		"leave out the findings of FILE: one RULE:GLOB per line; the glob is compared with "
		"the "
		"functions, source files and modules of a finding, and with the program",
		CLI_INTO(struct options, suppress)},
	{"exitcode", 0, CLI_NUMBER, "N", "exit status if there is an error or a warning",
		.most = STATUS_MOST, .preset = "0", CLI_INTO(struct options, exitcode)},
	{"color", 'c', CLI_CHOICE, "WHEN", "colors in the text: always, never or auto",
		.words = when, .preset = "auto", CLI_INTO(struct options, color)},
	{},
};
static const struct cli_command command = {
	.name = NAME,
	.usage = "[OPTIONS] REPORT...",
	.about = "Shows what `ropeway run --check` found, from its report: each kind of finding "
		 "once, with functions and lines of source where the programs have debug "
		 "information. Several reports are shown as one; - is standard input.",
	.option = option,
	.operands_least = 1,
	.operands_most = REPORTS_MAX,
	.operand = CLI_OPERAND_FILE,
	.missing = "no report given",
};

/* ---- reading ---- */

/* When the newest report was written; 0: nobody knows. */
static time_t newest(char **file, int n)
{
	time_t t = 0;
	struct stat st;
	for (int i = 0; i < n; i++)
		if (!stat(file[i], &st) && S_ISREG(st.st_mode))
			t = RPWI_MAX(t, st.st_mtime);
	return t;
}

static int read_all(struct ck_report *r, char **file, int n)
{
	for (int i = 0; i < n; i++) {
		int rc = rpwi_ck_read(r, file[i]);
		if (rc)
			return rpwi_cli_fail(
				CLI_FAILED, NAME, "cannot read %s: %s", file[i], strerror(-rc));
	}
	if (!r->processes)
		return rpwi_cli_fail(CLI_FAILED, NAME,
			"%s is no report of the checker: no line of it names a process", file[0]);
	if (rpwi_ck_add_causes(r) || rpwi_ck_add_handles(r))
		return rpwi_cli_fail(CLI_FAILED, NAME, "out of memory");
	return CLI_OK;
}

/* ---- writing ---- */

static int write_text(FILE *to, const struct ck_report *r, const char *color)
{
	struct ck_look look = rpwi_ck_look(fileno(to), color, 0);
	for (uint32_t i = 0; i < r->kinds; i++)
		if (!r->kind[i].suppressed)
			rpwi_ck_show(to, &r->kind[i], &look);
	rpwi_ck_summary(to, r, NULL);
	return 0;
}

static int write_report(FILE *to, const struct ck_report *r, const struct options *o)
{
	int rc;
	if (!strcmp(o->format, "json"))
		rc = rpwi_ck_json(to, r);
	else if (!strcmp(o->format, "sarif"))
		rc = rpwi_ck_sarif(to, r);
	else
		rc = write_text(to, r, o->color);
	return rc ? rpwi_cli_fail(CLI_FAILED, NAME, "out of memory") : CLI_OK;
}

static int write_to(const struct ck_report *r, const struct options *o)
{
	if (!strcmp(o->output, "-"))
		return write_report(stdout, r, o);
	FILE *to = fopen(o->output, "we");
	int status = to ? write_report(to, r, o) : CLI_OK;
	bool failed = !to || ferror(to);
	if ((to && fclose(to)) || failed)
		return rpwi_cli_fail(
			CLI_FAILED, NAME, "cannot write %s: %s", o->output, strerror(errno));
	return status;
}

/* ---- the whole ---- */

static int show(struct ck_report *r, struct ck_symbols *s, const struct ck_suppressions *without,
	const struct options *o)
{
	for (uint32_t i = 0; i < r->kinds; i++) {
		rpwi_ck_symbolize_kind(s, &r->kind[i]);
		r->kind[i].suppressed = rpwi_ck_suppressed(without, &r->kind[i]);
	}
	int status = write_to(r, o);
	struct ck_totals t = rpwi_ck_totals(r);
	if (!status && (t.kinds[RPWI_SEVERITY_ERROR] || t.kinds[RPWI_SEVERITY_WARNING]))
		status = (int)o->exitcode;
	return status;
}

int rpwi_cli_check(int argc, char **argv)
{
	struct options o = {0};
	struct ck_report *r = NULL;
	struct ck_symbols *s = NULL;
	struct ck_suppressions *without = NULL;
	char why[RPWI_WHY_LEN];
	int status = cli_options_parse(&command, &o, &argc, &argv);
	if (status != CLI_GO_ON)
		return status;
	if (o.suppress && rpwi_ck_suppressions_read(o.suppress, &without, why, sizeof(why)))
		return rpwi_cli_fail(CLI_USAGE, NAME, "--suppress: %s", why);
	r = calloc(1, sizeof(*r));
	s = rpwi_ck_symbols_new(newest(argv, argc));
	status =
		r && s ? read_all(r, argv, argc) : rpwi_cli_fail(CLI_FAILED, NAME, "out of memory");
	if (!status && r && s)
		status = show(r, s, without, &o);
	if (r)
		rpwi_ck_free(r);
	free(r);
	rpwi_ck_symbols_free(s);
	rpwi_ck_suppressions_free(without);
	return status;
}
