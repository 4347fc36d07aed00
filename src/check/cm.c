/* SPDX-License-Identifier: BSD-3-Clause */
/* cm.c - see cm.h. */
#include "check/cm.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, WAIT_MS = 200 };

static struct cm_event {
	const void *event, *id; /* event NULL: free */
	const char *name;
	long tid;
	uint64_t n; /* counts up */
	struct rpwi_site at;
} events[EVENTS];
static uint64_t taken;

void check_cm_got(const void *event, const void *id, const char *name)
{
	unsigned i = 0;
	if (!rpwi_check_lock())
		return;
	while (i < EVENTS && events[i].event)
		i++;
	if (i < EVENTS)
		events[i] = (struct cm_event){.event = event,
			.id = id,
			.name = name,
			.tid = syscall(SYS_gettid),
			.n = ++taken,
			.at = rpwi_check_site};
	else
		rpwi_check_unwatched("more than 256 events of rdma_cm were not acknowledged");
	rpwi_check_unlock();
}

void check_cm_acked(const void *event)
{
	if (!rpwi_check_lock())
		return;
	for (unsigned i = 0; i < EVENTS; i++)
		if (events[i].event == event)
			events[i].event = NULL;
	rpwi_check_unlock();
}

/* The last event of the id that is left, and how many there are. */
static const struct cm_event *last_of(const void *id, unsigned *n)
{
	const struct cm_event *last = NULL;
	*n = 0;
	for (unsigned i = 0; i < EVENTS; i++) {
		if (!events[i].event || events[i].id != id)
			continue;
		++*n;
		if (!last || events[i].n > last->n)
			last = &events[i];
	}
	return last;
}

static void report(const struct cm_event *e, unsigned n)
{
	bool own = e->tid == syscall(SYS_gettid);
	struct rpwi_finding f = {.rule = own ? RPWI_RULE_CM_DESTROYED : RPWI_RULE_CM_UNACKED};
	rpwi_finding_site(&f, "rdma_destroy_id is called here", &rpwi_check_site);
	rpwi_finding_site(&f, "the event was taken here", &e->at);
	if (own)
		rpwi_check_say(&f,
			"this thread took the event %s of the id, has not acknowledged it, and "
			"destroys the id: rdma_destroy_id waits for the acknowledgement, which "
			"could only come after it",
			e->name);
	else
		rpwi_check_say(&f,
			"%u event%s of the id %s taken by another thread and not acknowledged, the "
			"last one %s: rdma_destroy_id waits",
			n, rpwi_plural(n), n == 1 ? "was" : "were", e->name);
}

void check_cm_destroys(const void *id)
{
	const struct timespec ms = {.tv_nsec = 1000000};
	const struct cm_event *e = NULL;
	for (unsigned waited = 0; rpwi_check_lock(); waited++) {
		unsigned n;
		e = last_of(id, &n);
		if (e && waited >= WAIT_MS)
			report(e, n);
		rpwi_check_unlock();
		if (!e || waited >= WAIT_MS)
			return;
		nanosleep(&ms, NULL);
	}
}
