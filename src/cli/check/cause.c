/* SPDX-License-Identifier: BSD-3-Clause */
/* cause.c - see check.h: the events of a report, in the order of time, and the sentence that
 * check/cause.h makes of them. All processes are of one host, so they have one clock. */
#include "cli/check/check.h"

#include "check/cause.h"

#include <jansson.h>
#include <stdlib.h>

enum { SHOWN = 4 };

/* Of an event of the report, or of the end of a process (`from` is NULL). */
struct row {
	struct rpwi_cause_event e;
	const struct ck_event *from;
	uint32_t process;
};

static int by_time(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	if (x->e.t_ns != y->e.t_ns)
		return x->e.t_ns < y->e.t_ns ? -1 : 1;
	return 0;
}

static struct row row_of(const struct ck_report *r, uint32_t process)
{
	const struct ck_process *p = &r->process[process];
	return (struct row){.e = {.pid = p->pid, .program = p->program}, .process = process};
}

/* Room for all events, and an end for each process. How many there are. */
static size_t collect(const struct ck_report *r, struct row *row)
{
	size_t n = 0;
	for (uint32_t i = 0; i < r->events; i++) {
		const struct ck_event *e = &r->event[i];
		enum rpwi_cause_kind kind = rpwi_cause_named(e->what);
		if (kind == RPWI_CAUSES) /* a later version's */
			continue;
		row[n] = row_of(r, e->process);
		row[n].e.t_ns = e->t;
		row[n].e.kind = kind;
		row[n].e.qpn = e->qpn;
		row[n].e.peer_qpn = e->peer_qpn;
		row[n].e.text = e->text;
		row[n++].from = e;
	}
	for (uint32_t i = 0; i < r->processes; i++) {
		if (!r->process[i].end)
			continue;
		row[n] = row_of(r, i);
		row[n].e.t_ns =
			(uint64_t)json_integer_value(json_object_get(r->process[i].end, "t"));
		row[n].e.kind = RPWI_CAUSE_ENDED;
		row[n++].e.text = "ended without disconnecting";
	}
	qsort(row, n, sizeof(*row), by_time);
	return n;
}

/* A line for each cause. */
static void tell(const struct rpwi_cause *cause, unsigned n, char *text, size_t room)
{
	size_t used = 0;
	text[0] = '\0';
	for (unsigned i = 0; i < n && used < room; i++) {
		unsigned others = cause[i].pairs - 1;
		used += (size_t)snprintf(
			text + used, room - used, "%s%s", i ? "\n" : "", cause[i].text);
		if (others && used < room)
			used += (size_t)snprintf(text + used, room - used,
				"; and so on %u more connection%s", others, rpwi_plural(others));
	}
}

static void add_site(struct ck_kind *k, const struct ck_event *e, const char *what)
{
	if (!e || !e->site.frames)
		return;
	k->site[k->sites] = e->site;
	k->site[k->sites++].what = what;
}

static bool make(const struct ck_report *r, struct row *row, struct rpwi_cause_event *e,
	struct ck_kind *k, char *text, size_t text_len)
{
	struct rpwi_cause cause[SHOWN];
	size_t n = collect(r, row);
	for (size_t i = 0; i < n; i++)
		e[i] = row[i].e;
	unsigned found = rpwi_causes(e, n, cause, SHOWN);
	if (!found)
		return false;
	const struct row *seen = &row[cause->seen],
			 *first = cause->first < n ? &row[cause->first] : seen;
	const struct ck_process *p = &r->process[first->process];
	tell(cause, found, text, text_len);
	*k = (struct ck_kind){.rule = RPWI_RULE_FIRST_CAUSE,
		.text = text,
		.program = p->program,
		.program_path = p->program_path,
		.pid = p->pid,
		.count = 1};
	add_site(k, first->from, "first, here");
	if (seen != first)
		add_site(k, seen->from, "then, here");
	return true;
}

bool rpwi_ck_cause(const struct ck_report *r, struct ck_kind *k, char *text, size_t text_len)
{
	size_t room = (size_t)r->events + r->processes + 1;
	struct row *row = r->events ? calloc(room, sizeof(*row)) : NULL;
	struct rpwi_cause_event *e = row ? calloc(room, sizeof(*e)) : NULL;
	bool found = e && make(r, row, e, k, text, text_len);
	free(row);
	free(e);
	return found;
}
