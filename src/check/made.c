/* SPDX-License-Identifier: BSD-3-Clause */
/* made.c - see made.h: objects that others use when they are to go, and objects that are left at
 * the end. */
#include "check/made.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

enum { PLACES = 1024 };

struct place {
	const char *kind, *undo;
	uint32_t alive;
	struct rpwi_site at;
};
static struct {
	pid_t pid; /* whose they are: a child's exit says nothing of its parent's */
	uint32_t n;
	struct place place[PLACES];
} made;

/* librdmacm opens each device and has a PD of each, for all of a program's ids, and keeps them to
 * the end: in calls that the drop-in stands before (preload/rdma.c), and in others. */
static bool may_be_librdmacms(const char *kind)
{
	return !strcmp(kind, "PD") || !strcmp(kind, "context");
}

static bool is_librdmacms(const struct place *p)
{
	Dl_info of;
	return may_be_librdmacms(p->kind) && p->at.pc[0] &&
	       dladdr((const void *)p->at.pc[0], &of) && of.dli_fname &&
	       strstr(of.dli_fname, "librdmacm.so");
}

static bool is_left(const struct place *p) { return p->alive && !is_librdmacms(p); }

/* "2 QPs, 1 MR", of all that are left; the kinds in the order in which they were made first. */
static void kinds_say(char *out, size_t room)
{
	size_t used = 0;
	out[0] = '\0';
	for (uint32_t i = 0; i < made.n; i++) {
		const char *kind = made.place[i].kind;
		uint32_t n = 0, before = 0;
		while (before < i &&
			(made.place[before].kind != kind || !is_left(&made.place[before])))
			before++;
		for (uint32_t k = i; k < made.n && before == i; k++)
			if (made.place[k].kind == kind && is_left(&made.place[k]))
				n += made.place[k].alive;
		if (n && used < room)
			used += (size_t)snprintf(out + used, room - used, "%s%u %s%s",
				used ? ", " : "", n, kind, rpwi_plural(n));
	}
}

/* A program that gives up leaves all that it had: one finding, with the first places. */
static void all_left(void)
{
	struct rpwi_finding f = {.rule = RPWI_RULE_LEAK};
	char kinds[256];
	for (uint32_t i = 0; i < made.n; i++)
		if (is_left(&made.place[i]))
			rpwi_finding_site(&f, "one of them, made here", &made.place[i].at);
	kinds_say(kinds, sizeof(kinds));
	rpwi_check_say(&f, "%s: none of them was destroyed", kinds);
}

static void left_over(void)
{
	uint32_t left = 0;
	if (made.pid != getpid())
		return;
	for (uint32_t i = 0; i < made.n; i++)
		left += is_left(&made.place[i]);
	if (left > RPWI_FINDING_SITES) {
		all_left();
		return;
	}
	for (uint32_t i = 0; i < made.n; i++) {
		const struct place *p = &made.place[i];
		struct rpwi_finding f = {.rule = RPWI_RULE_LEAK};
		rpwi_finding_site(&f, "made here", &p->at);
		if (is_left(p))
			rpwi_check_say(&f, "%u %s%s without %s", p->alive, p->kind,
				rpwi_plural(p->alive), p->undo);
	}
}

uint32_t check_made(const char *kind, const char *undo)
{
	uint32_t i = 0;
	if ((rpwi_check_site_kept && may_be_librdmacms(kind)) || !rpwi_check_lock())
		return 0;
	if (made.pid != getpid()) {
		made.pid = getpid();
		made.n = 0;
		rpwi_check_at_end(left_over);
	}
	while (i < made.n &&
		(made.place[i].kind != kind ||
			memcmp(&made.place[i].at, &rpwi_check_site, sizeof(rpwi_check_site))))
		i++;
	if (i == made.n && i < PLACES)
		made.place[made.n++] =
			(struct place){.kind = kind, .undo = undo, .at = rpwi_check_site};
	if (i < PLACES)
		made.place[i].alive++;
	else
		rpwi_check_unwatched("objects are made in more than 1,024 places of the program");
	rpwi_check_unlock();
	return i < PLACES ? i + 1 : 0;
}

void check_unmade(uint32_t place)
{
	if (!place || !rpwi_check_lock())
		return;
	if (made.pid == getpid() && place <= made.n && made.place[place - 1].alive)
		made.place[place - 1].alive--;
	rpwi_check_unlock();
}

void check_busy(const char *call, const char *kind, const char *user, unsigned more, uint32_t place)
{
	if (!rpwi_check_lock())
		return;
	struct rpwi_finding f = {.rule = RPWI_RULE_DESTROY_ORDER};
	rpwi_finding_site(&f, "called here", &rpwi_check_site);
	int n = snprintf(
		f.text, sizeof(f.text), "%s fails with EBUSY: %s uses this %s", call, user, kind);
	if (more && n > 0 && n < (int)sizeof(f.text))
		snprintf(f.text + n, sizeof(f.text) - (size_t)n, ", and so %s %u object%s more",
			more == 1 ? "does" : "do", more, rpwi_plural(more));
	if (place && place <= made.n) {
		rpwi_finding_site(&f, "which was made here", &made.place[place - 1].at);
	}
	rpwi_check_report(&f);
	rpwi_check_unlock();
}
