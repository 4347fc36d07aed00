/* SPDX-License-Identifier: BSD-3-Clause */
/* handles.c - see check.h: handles of NCCL's plugins that reach connect in one process with other
 * bytes than listen gave in another (rule 502). The tracer writes an event for each, with a hash of
 * either half.
 *
 * A handle that nobody in the report gave may be that of a process that was not traced. So one is
 * said to be changed only if one half of it is that of a handle that was given, which no connect
 * has got, and if that half tells handles apart: several were given, and no two share it.
 */
#include "cli/check/check.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

struct handle {
	const struct ck_event *event;
	uint64_t half[2];
	bool found; /* given: a connect has got it */
};
struct handles {
	struct handle *given, *used;
	uint32_t givens, useds;
};

static bool handle_read(struct handle *h, const struct ck_event *e)
{
	*h = (struct handle){.event = e};
	return sscanf(e->text, "v%*u %16" SCNx64 " %16" SCNx64, &h->half[0], &h->half[1]) == 2;
}

static void collect(const struct ck_report *r, struct handles *s)
{
	for (uint32_t i = 0; i < r->events; i++) {
		const struct ck_event *e = &r->event[i];
		if (!strcmp(e->what, "handle-given"))
			s->givens += handle_read(&s->given[s->givens], e);
		else if (!strcmp(e->what, "handle-used"))
			s->useds += handle_read(&s->used[s->useds], e);
	}
}

/* Those that arrived as they were. */
static void match(struct handles *s)
{
	for (uint32_t u = 0; u < s->useds; u++)
		for (uint32_t g = 0; g < s->givens; g++)
			if (!memcmp(s->used[u].half, s->given[g].half, sizeof(s->used[u].half)))
				s->used[u].found = s->given[g].found = true;
}

static bool tells_apart(const struct handles *s, unsigned half)
{
	for (uint32_t i = 0; i < s->givens; i++)
		for (uint32_t k = 0; k < i; k++)
			if (s->given[i].half[half] == s->given[k].half[half])
				return false;
	return s->givens > 1;
}

static int changed(
	struct ck_report *r, const struct handle *u, const struct handle *g, unsigned same_half)
{
	const struct ck_process *by = &r->process[u->event->process];
	struct ck_kind k = {.rule = RPWI_RULE_PLUGIN_HANDLE,
		.program = by->program,
		.program_path = by->program_path,
		.pid = by->pid,
		.t = u->event->t,
		.count = 1,
		.processes = 1};
	char text[256];
	snprintf(text, sizeof(text),
		"bytes %s of the handle are not those that listen gave in process %d; the others "
		"are",
		same_half ? "0 to 63" : "64 to 127", r->process[g->event->process].pid);
	int rc = rpwi_ck_line(&k, text);
	if (rc)
		return rc;
	rpwi_ck_site_of(&k, u->event, "connect is called here", RPWI_SITE_BEFORE);
	rpwi_ck_site_of(&k, g->event, "listen gave it here", RPWI_SITE_UNORDERED);
	rc = rpwi_ck_add(r, &k);
	json_decref(k.line);
	return rc;
}

int rpwi_ck_add_handles(struct ck_report *r)
{
	struct handles s = {.given = calloc((size_t)r->events + 1, sizeof(*s.given)),
		.used = calloc((size_t)r->events + 1, sizeof(*s.used))};
	int rc = s.given && s.used ? 0 : -ENOMEM;
	if (!rc) {
		collect(r, &s);
		match(&s);
	}
	for (unsigned half = 0; half < 2 && !rc; half++) {
		bool tells = tells_apart(&s, half);
		for (uint32_t u = 0; u < s.useds && tells; u++)
			for (uint32_t g = 0; g < s.givens && !s.used[u].found && !rc; g++) {
				if (s.given[g].found ||
					s.given[g].half[half] != s.used[u].half[half])
					continue;
				s.used[u].found = s.given[g].found = true;
				rc = changed(r, &s.used[u], &s.given[g], half);
			}
	}
	free(s.given);
	free(s.used);
	return rc;
}
