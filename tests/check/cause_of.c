/* SPDX-License-Identifier: BSD-3-Clause */
/* cause_of.c - prints the first causes of a report: `cause_of REPORT`, for first_cause_test.py.
 * Reads what the library writes (check/report.c), and no other JSON. */
#include "check/cause.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS = 4096, PROGRAMS = 64, LINE = 8192 };

static struct rpwi_cause_event events[EVENTS];
static struct {
	int pid;
	char name[256];
} programs[PROGRAMS];
static size_t nevents, nprograms;

static const char *after(const char *line, const char *key)
{
	const char *at = strstr(line, key);
	return at ? at + strlen(key) : NULL;
}

static unsigned long long number(const char *line, const char *key)
{
	const char *at = after(line, key);
	return at ? strtoull(at, NULL, 10) : 0;
}

static void string(const char *line, const char *key, char *out, size_t room)
{
	const char *at = after(line, key);
	size_t n = at ? strcspn(at, "\"") : 0;
	snprintf(out, room, "%.*s", (int)n, at ? at : "");
}

static int by_time(const void *a, const void *b)
{
	const struct rpwi_cause_event *x = a, *y = b;
	if (x->t_ns != y->t_ns)
		return x->t_ns < y->t_ns ? -1 : 1;
	return 0;
}

static void take(const char *line)
{
	char kind[16], what[32], text[200];
	string(line, "\"kind\":\"", kind, sizeof(kind));
	int pid = (int)number(line, "\"pid\":");
	if (!strcmp(kind, "begin") && nprograms < PROGRAMS) {
		programs[nprograms].pid = pid;
		string(line, "\"program\":\"", programs[nprograms].name,
			sizeof(programs[nprograms].name));
		nprograms++;
	}
	bool ends = !strcmp(kind, "end");
	if ((strcmp(kind, "event") && !ends) || nevents == EVENTS)
		return;
	struct rpwi_cause_event *e = &events[nevents++];
	string(line, "\"what\":\"", what, sizeof(what));
	string(line, "\"text\":\"", text, sizeof(text));
	*e = (struct rpwi_cause_event){.t_ns = number(line, "\"t\":"),
		.pid = pid,
		.kind = ends ? RPWI_CAUSE_ENDED : rpwi_cause_named(what),
		.qpn = (uint32_t)number(line, "\"qpn\":"),
		.peer_qpn = (uint32_t)number(line, "\"peer_qpn\":"),
		.text = strdup(ends ? "ended without disconnecting" : text)};
	for (size_t i = 0; i < nprograms; i++)
		if (programs[i].pid == pid)
			e->program = programs[i].name;
	if (e->kind == RPWI_CAUSES) {
		fprintf(stderr, "unknown event: %s", line);
		exit(3);
	}
}

int main(int argc, char **argv)
{
	static char line[LINE];
	struct rpwi_cause out[8];
	FILE *f = fopen(argc > 1 ? argv[1] : "/dev/stdin", "r");
	while (f && fgets(line, sizeof(line), f))
		take(line);
	if (f)
		fclose(f);
	qsort(events, nevents, sizeof(*events), by_time);
	unsigned n = rpwi_causes(events, nevents, out, 8);
	for (unsigned i = 0; i < n; i++)
		printf("%u: %s.\n", out[i].pairs, out[i].text);
	return 0;
}
