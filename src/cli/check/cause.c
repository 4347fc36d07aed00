/* SPDX-License-Identifier: BSD-3-Clause */
/* cause.c - see check.h: the first causes that check/cause.h finds in the events of a report become
 * kinds of findings. All processes of a report are of one host, so they have one clock. */
#include "cli/check/check.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "check/cause.h"

enum { CAUSES_MAX = 8 };

/* What happened, and which event of the report says so; NULL: the end of a process. */
struct moment {
	struct rpwi_cause_event e;
	const struct ck_event *event;
	uint32_t process;
};

static int by_time(const void *a, const void *b)
{
	const struct moment *x = a, *y = b;
	return x->e.t_ns < y->e.t_ns ? -1 : x->e.t_ns > y->e.t_ns;
}

static uint32_t collect(const struct ck_report *r, struct moment *m)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < r->events; i++) {
		const struct ck_event *e = &r->event[i];
		const struct ck_process *p = &r->process[e->process];
		enum rpwi_cause_kind kind = rpwi_cause_named(e->what);
		if (kind != RPWI_CAUSES)
			m[n++] = (struct moment){
				{e->t, p->pid, kind, e->qpn, e->peer_qpn, e->text, p->program}, e,
				e->process};
	}
	for (uint32_t i = 0; i < r->processes; i++) {
		const struct ck_process *p = &r->process[i];
		if (p->end)
			m[n++] = (struct moment){{p->end_t, p->pid, RPWI_CAUSE_ENDED, 0, 0,
							 "ended without disconnecting", p->program},
				NULL, i};
	}
	qsort(m, n, sizeof(*m), by_time);
	return n;
}

/* Of the process that has the cause, if it is known. */
static int add_kind(
	struct ck_report *r, const struct moment *m, uint32_t n, const struct rpwi_cause *c)
{
	const struct moment *seen = &m[c->seen], *first = c->first < n ? &m[c->first] : seen;
	const struct ck_process *p = &r->process[first->process];
	struct ck_kind k = {.rule = RPWI_RULE_FIRST_CAUSE,
		.program = p->program,
		.program_path = p->program_path,
		.pid = p->pid,
		.t = seen->e.t_ns,
		.count = c->pairs,
		.processes = 1};
	int rc = rpwi_ck_line(&k, c->text);
	if (rc)
		return rc;
	rpwi_ck_site_of(&k, first->event, "first, here", RPWI_SITE_BEFORE);
	if (seen != first) /* no thread goes from one process to another */
		rpwi_ck_site_of(&k, seen->event, "then, here",
			seen->process == first->process ? RPWI_SITE_AFTER : RPWI_SITE_UNORDERED);
	rc = rpwi_ck_add(r, &k);
	json_decref(k.line);
	return rc;
}

int rpwi_ck_add_causes(struct ck_report *r)
{
	struct rpwi_cause cause[CAUSES_MAX];
	struct moment *m = calloc((size_t)r->events + r->processes + 1, sizeof(*m));
	uint32_t n = m ? collect(r, m) : 0;
	struct rpwi_cause_event *e = calloc((size_t)n + 1, sizeof(*e));
	int rc = m && e ? 0 : -ENOMEM;
	for (uint32_t i = 0; e && i < n; i++)
		e[i] = m[i].e;
	unsigned causes = rc ? 0 : rpwi_causes(e, n, cause, CAUSES_MAX);
	for (unsigned i = 0; i < causes && !rc; i++)
		rc = add_kind(r, m, n, &cause[i]);
	free(e);
	free(m);
	return rc;
}
