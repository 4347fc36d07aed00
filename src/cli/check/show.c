/* SPDX-License-Identifier: BSD-3-Clause */
/* show.c - see check.h: kinds of findings as blocks of text, and the table at the end. */
#include "cli/check/check.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"

enum { BLOCK_ROOM = 64 * 1024, REMARKS_MAX = 16, COLUMNS = 80, LABEL = 9, ROW_AT = 44 };

struct ck_look rpwi_ck_look(int fd, const char *color, unsigned columns)
{
	struct winsize w = {0};
	bool tty = isatty(fd);
	const char *no_color = getenv("NO_COLOR");
	if (!columns && tty && !ioctl(fd, TIOCGWINSZ, &w))
		columns = w.ws_col;
	return (struct ck_look){
		.color = !strcmp(color, "always") ||
			 (!strcmp(color, "auto") && tty && !(no_color && *no_color)),
		.columns = columns ? columns : COLUMNS,
	};
}

/* ---- frames ---- */

static char cwd[PATH_MAX]; /* of this program, which stays where it is */

const char *rpwi_ck_short_path(const char *path)
{
	if (!cwd[0] && !getcwd(cwd, sizeof(cwd)))
		return path;
	size_t len = strlen(cwd);
	return len > 1 && !strncmp(path, cwd, len) && path[len] == '/' ? path + len + 1 : path;
}

__attribute__((format(printf, 3, 4))) static void add(
	char out[CK_FRAME_TEXT], size_t *used, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(out + *used, CK_FRAME_TEXT - *used, fmt, ap);
	va_end(ap);
	*used = RPWI_MIN(*used + (size_t)n, (size_t)CK_FRAME_TEXT - 1);
}

const char *rpwi_ck_frame_text(const struct ck_frame *f, char out[CK_FRAME_TEXT])
{
	size_t used = 0;
	bool has_line = f->places && f->place[0].file;
	for (unsigned i = 0; i < f->places; i++) {
		const struct ck_place *p = &f->place[i];
		add(out, &used, "%s%s", i ? "\n" : "", p->function ? p->function : "?");
		if (p->file)
			add(out, &used, " at %s:%u", rpwi_ck_short_path(p->file), p->line);
		if (i + 1 < f->places)
			add(out, &used, " (inlined)");
	}
	if (!has_line)
		add(out, &used, "%s%s+0x%llx", f->places ? " in " : "",
			*f->module ? rpwi_ck_short_path(f->module) : "?",
			(unsigned long long)f->address);
	return out;
}

const struct ck_frame *rpwi_ck_best_frame(const struct ck_site *s)
{
	for (unsigned f = 0; f < s->frames; f++)
		if (s->frame[f].places && s->frame[f].place[0].file)
			return &s->frame[f];
	return s->frames ? &s->frame[0] : NULL;
}

/* ---- blocks ---- */

static char frame_text[RPWI_FINDING_SITES][RPWI_SITE_FRAMES][CK_FRAME_TEXT], block[BLOCK_ROOM];

void rpwi_ck_show(FILE *to, const struct ck_kind *k, const struct ck_look *look)
{
	struct rpwi_shown s = {.rule = &rpwi_rules[k->rule],
		.text = k->text,
		.peer = k->peer,
		.objects = k->objects,
		.program = k->program,
		.pid = k->pid,
		.count = k->count};
	for (unsigned i = 0; i < k->sites; i++) {
		s.site[i].what = k->site[i].what;
		for (unsigned f = 0; f < k->site[i].frames; f++)
			s.site[i].frame[f] =
				rpwi_ck_frame_text(&k->site[i].frame[f], frame_text[i][f]);
	}
	size_t len = rpwi_shown_text(&s, look->color, look->columns, block, sizeof(block));
	fwrite(block, 1, len, to);
	fputc('\n', to);
	fflush(to);
}

/* ---- the end ---- */

static void put_count(FILE *to, unsigned n, const char *what, bool *any)
{
	if (!n)
		return;
	fprintf(to, "%s%u %s%s", *any ? ", " : "", n, what, rpwi_cli_plural(n));
	*any = true;
}

/* The block above has it. */
static void drop_folder(char *text)
{
	char *slash = strrchr(text, '/'), *from = slash;
	while (from && from > text && from[-1] != ' ')
		from--;
	if (from)
		memmove(from, slash + 1, strlen(slash + 1) + 1);
}

/* "main at x.c:12", of the first site; or "". */
static const char *where(const struct ck_kind *k, char out[CK_FRAME_TEXT])
{
	const struct ck_frame *f = k->sites ? rpwi_ck_best_frame(&k->site[0]) : NULL;
	out[0] = '\0';
	if (f)
		rpwi_ck_frame_text(f, out);
	char *end = strstr(out, " (inlined)");
	if (end)
		*end = '\0';
	out[strcspn(out, "\n")] = '\0';
	if (strlen(out) > COLUMNS - ROW_AT)
		drop_folder(out);
	return out;
}

static void put_rows(FILE *to, const struct ck_report *r)
{
	char at[CK_FRAME_TEXT], times[32];
	for (int severity = RPWI_SEVERITY_ERROR; severity >= 0; severity--)
		for (uint32_t i = 0; i < r->kinds; i++) {
			const struct ck_kind *k = &r->kind[i];
			const struct rpwi_rule_info *rule = &rpwi_rules[k->rule];
			if (k->suppressed || (int)rule->severity != severity)
				continue;
			snprintf(times, sizeof(times), "%u time%s", k->count,
				rpwi_cli_plural(k->count));
			fprintf(to, "  %-7s %u %-18s %9s  %s\n", rpwi_severity_name(rule->severity),
				rule->number, rule->name, times, where(k, at));
		}
}

/* Each sentence once. */
struct remarks {
	const char *said[REMARKS_MAX];
	unsigned n;
};
static void put_remark(FILE *to, struct remarks *done, const char *text)
{
	if (!text || !*text || done->n == REMARKS_MAX)
		return;
	for (unsigned i = 0; i < done->n; i++)
		if (!strcmp(done->said[i], text))
			return;
	done->said[done->n++] = text;
	fputs("ropeway: ", to);
	cli_help_text(to, text, LABEL, LABEL, COLUMNS);
}

static void put_remarks(FILE *to, const struct ck_report *r)
{
	struct remarks done = {.n = 0};
	for (uint32_t i = 0; i < r->kinds; i++)
		for (unsigned s = 0; s < r->kind[i].sites && !r->kind[i].suppressed; s++)
			if (r->kind[i].site[s].frames)
				put_remark(to, &done, r->kind[i].site[s].frame[0].remark);
	for (uint32_t i = 0; i < r->processes; i++)
		put_remark(to, &done, r->process[i].unwatched);
	if (r->unknown_rules)
		fprintf(to,
			"ropeway: %u finding%s of rules that this version does not know: a newer "
			"one shows them\n",
			r->unknown_rules, rpwi_cli_plural(r->unknown_rules));
	if (r->cut)
		fprintf(to, "ropeway: %u finding%s too long for the report\n", r->cut,
			r->cut == 1 ? " was" : "s were");
	if (r->bad_lines)
		fprintf(to, "ropeway: %u line%s of the report cannot be read\n", r->bad_lines,
			rpwi_cli_plural(r->bad_lines));
}

void rpwi_ck_summary(FILE *to, const struct ck_report *r, const char *file)
{
	struct ck_totals t = rpwi_ck_totals(r);
	bool any = false;
	fputs("ropeway: ", to);
	if (!r->processes) {
		fputs("no finding: no process has reported to the checker\n", to);
		return;
	}
	put_count(to, t.kinds[RPWI_SEVERITY_ERROR], "error", &any);
	put_count(to, t.kinds[RPWI_SEVERITY_WARNING], "warning", &any);
	if (!any)
		fputs("no error, no warning", to);
	any = true;
	put_count(to, t.kinds[RPWI_SEVERITY_NOTE], "note", &any);
	fprintf(to, " in %u process%s", r->processes, r->processes == 1 ? "" : "es");
	if (t.times > t.kinds[RPWI_SEVERITY_ERROR] + t.kinds[RPWI_SEVERITY_WARNING])
		fprintf(to, ", found %u times", t.times);
	if (t.suppressed)
		fprintf(to, " (%u suppressed)", t.suppressed);
	if (file)
		fprintf(to, "; report: %s", file);
	fputc('\n', to);
	put_rows(to, r);
	put_remarks(to, r);
}
