/* SPDX-License-Identifier: BSD-3-Clause */
/* cause.c - see check.h: the first event of a connection whose work failed or was flushed, on
 * whichever side.
 *
 * The events of a report say how processes used a connection; "failed", "send-flushed" and
 * "recv-flushed" are the ends of their work. From the first of those it goes back to the first
 * event of the same pair of QPs. All processes are of one host, so they have one clock.
 */
#include "cli/check/check.h"

#include <stdlib.h>

enum { SHOWN = 6 };

static bool is_consequence(const struct ck_event *e)
{
	return !strcmp(e->what, "failed") || !strcmp(e->what, "recv-flushed") ||
	       !strcmp(e->what, "send-flushed");
}

/* Are both about one connection? */
static bool is_of(const struct ck_event *e, const struct ck_event *other)
{
	if (!e->qpn) /* the process as a whole */
		return e->process == other->process;
	return e->qpn == other->qpn || (e->qpn == other->peer_qpn && e->peer_qpn == other->qpn) ||
	       (e->qpn == other->peer_qpn && !e->peer_qpn);
}

static int by_time(const void *a, const void *b)
{
	const struct ck_event *const *x = a, *const *y = b;
	return (*x)->t < (*y)->t ? -1 : (*x)->t > (*y)->t;
}

/* The events of one connection, in their order; how many. */
static uint32_t collect(
	const struct ck_report *r, const struct ck_event *of, const struct ck_event **list)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < r->events; i++)
		if (is_of(&r->event[i], of))
			list[n++] = &r->event[i];
	qsort(list, n, sizeof(*list), by_time);
	return n;
}

static const struct ck_event *first_consequence(const struct ck_report *r)
{
	const struct ck_event *first = NULL;
	for (uint32_t i = 0; i < r->events; i++)
		if (is_consequence(&r->event[i]) && (!first || r->event[i].t < first->t))
			first = &r->event[i];
	return first;
}

/* A line for each, the first without a time. */
static void tell(const struct ck_report *r, const struct ck_event *const *list, uint32_t n,
	char *text, size_t room)
{
	size_t used = 0;
	text[0] = '\0';
	for (uint32_t i = 0; i < n && used < room; i++) {
		const struct ck_process *p = &r->process[list[i]->process];
		if (i == SHOWN) {
			snprintf(text + used, room - used, "\nand %u more", n - i);
			break;
		}
		used += i ? (size_t)snprintf(text + used, room - used, "\n%.3f ms later ",
				    (double)(list[i]->t - list[0]->t) / 1e6)
			  : 0;
		if (used < room)
			used += (size_t)snprintf(text + used, room - used,
				is_consequence(list[i]) ? "in %s (process %d) %s"
							: "%s (process %d) %s",
				p->program, p->pid, list[i]->text);
	}
}

bool rpwi_ck_cause(const struct ck_report *r, struct ck_kind *k, char *text, size_t text_len)
{
	const struct ck_event *failed = first_consequence(r), *first, **list;
	list = failed ? calloc(r->events, sizeof(const struct ck_event *)) : NULL;
	if (!list)
		return false;
	uint32_t n = collect(r, failed, list);
	tell(r, list, n, text, text_len);
	first = list[0];
	*k = (struct ck_kind){.rule = RPWI_RULE_FIRST_CAUSE,
		.text = text,
		.program = r->process[first->process].program,
		.program_path = r->process[first->process].program_path,
		.pid = r->process[first->process].pid,
		.count = 1};
	if (first->site.frames) {
		k->site[k->sites] = first->site;
		k->site[k->sites++].what = "first, here";
	}
	if (failed != first && failed->site.frames) {
		k->site[k->sites] = failed->site;
		k->site[k->sites++].what = "then, here";
	}
	free(list);
	return true;
}
