/* SPDX-License-Identifier: BSD-3-Clause */
/* events.c - see events.h. */
#include "check/events.h"

#include "check/queue.h"

#include <stdio.h>

void check_drained(const struct ibv_cq *ibv, bool empty)
{
	if (!rpwi_check_lock())
		return;
	struct check_cq *cq = check_cq_find(ibv);
	if (cq) {
		cq->polled_empty = empty;
		cq->risky = false;
		if (empty && cq->armed_solicited && cq->polls < CHECK_POLLS)
			cq->polls++;
	}
	rpwi_check_unlock();
}

static struct rpwi_finding finding_of(enum rpwi_check_rule rule, const char *what)
{
	return (struct rpwi_finding){
		.rule = rule, .site[0] = {.what = what, .at = rpwi_check_site}};
}

void check_armed(const struct ibv_cq *ibv, bool solicited, bool already, bool pending)
{
	if (!rpwi_check_lock())
		return;
	struct check_cq *cq = check_cq_find(ibv);
	if (cq && already) {
		struct rpwi_finding f = finding_of(RPWI_RULE_ARMED_TWICE, "armed again here");
		snprintf(f.text, sizeof(f.text),
			"the CQ was armed before, and no event has come since");
		f.site[1].what = "armed before, here";
		f.site[1].at = cq->arm_at;
		rpwi_check_report(&f);
	}
	if (cq) {
		/* with an event that waits, the program will poll once more in any case */
		cq->risky = cq->polled_empty && cq->outstanding && !pending;
		cq->armed = true;
		cq->armed_solicited = solicited;
		cq->polls = 0;
		cq->arm_at = rpwi_check_site;
	}
	rpwi_check_unlock();
}

static void late(struct check_cq *cq, const char *what)
{
	if (!cq->risky)
		return;
	cq->risky = false;
	struct rpwi_finding f = finding_of(RPWI_RULE_ARMED_LATE, what);
	snprintf(f.text, sizeof(f.text),
		"the last poll found the CQ empty; then it was armed, with %u request%s "
		"outstanding, "
		"and not polled again: if one of them completed in between, it makes no event",
		cq->outstanding, rpwi_plural(cq->outstanding));
	f.site[1].what = "armed here";
	f.site[1].at = cq->arm_at;
	rpwi_check_report(&f);
}

static void late_on(struct check_cq *cq, void *channel)
{
	if (cq->ibv->channel == channel)
		late(cq, "the program waits here");
}

void check_waits(const struct ibv_comp_channel *ch)
{
	if (!rpwi_check_lock())
		return;
	check_cqs_each(late_on, (void *)(uintptr_t)ch);
	rpwi_check_unlock();
}

/* A program that waits by poll(2) or epoll is seen here, when it takes what it has waited for. */
void check_event_got(const struct ibv_cq *ibv)
{
	if (!rpwi_check_lock())
		return;
	struct check_cq *cq = check_cq_find(ibv);
	if (cq) {
		late(cq, "the event was waited for, and taken here");
		cq->armed = false;
		cq->got_at = rpwi_check_site;
	}
	rpwi_check_unlock();
}

void check_events_left(const struct ibv_cq *ibv, unsigned n)
{
	if (!rpwi_check_lock())
		return;
	const struct check_cq *cq = check_cq_find(ibv);
	struct rpwi_finding f = finding_of(RPWI_RULE_EVENTS_UNACKED, "the CQ is destroyed here");
	if ((int)n < 0)
		snprintf(f.text, sizeof(f.text),
			"%u more event%s of the CQ acknowledged than taken: some were another "
			"CQ's, "
			"and ibv_destroy_cq waits",
			-n, n == -1u ? " was" : "s were");
	else
		snprintf(f.text, sizeof(f.text),
			"%u event%s of the CQ %s taken and not acknowledged, and no other thread "
			"has done "
			"it since: ibv_destroy_cq waits",
			n, rpwi_plural(n), n == 1 ? "was" : "were");
	if (cq) {
		f.site[1].what = "the last event was taken here";
		f.site[1].at = cq->got_at;
	}
	rpwi_check_report(&f);
	rpwi_check_unlock();
}
