/* SPDX-License-Identifier: BSD-3-Clause */
/* events.c - see events.h. */
#include "check/events.h"

#include "check/queue.h"

#include <stdio.h>

#define VAIN_NS (5 * RPWI_NS_PER_S) /* no program leaves a CQ alone so long on purpose */

void check_drained(const struct ibv_cq *ibv, unsigned n, bool empty)
{
	if (!rpwi_check_lock())
		return;
	struct check_cq *cq = check_cq_find(ibv);
	if (cq) {
		cq->polled_empty = empty;
		cq->risky = false;
		cq->unheard -= empty ? cq->unheard : RPWI_MIN(cq->unheard, n);
		cq->unheard_ns = 0;
		if (empty && cq->armed_solicited && cq->polls < CHECK_POLLS)
			cq->polls++;
	}
	rpwi_check_unlock();
}

static struct rpwi_finding finding_of(enum rpwi_check_rule rule, const char *what)
{
	struct rpwi_finding f = {.rule = rule};
	rpwi_finding_site(&f, what, &rpwi_check_site);
	return f;
}

void check_armed(const struct ibv_cq *ibv, const struct check_arm *a)
{
	if (!rpwi_check_lock())
		return;
	struct check_cq *cq = check_cq_find(ibv);
	if (cq && a->already) {
		struct rpwi_finding f = finding_of(RPWI_RULE_ARMED_TWICE, "armed again here");
		rpwi_finding_site(&f, "armed before, here", &cq->arm_at);
		rpwi_check_say(&f, "the CQ was armed before, and no event has come since");
	}
	if (cq) {
		/* with an event that waits, the program will poll once more in any case */
		cq->risky = cq->polled_empty && cq->outstanding && !a->pending;
		cq->unheard = a->pending ? 0 : a->left;
		cq->unheard_ns = 0;
		cq->armed = true;
		cq->armed_solicited = a->solicited;
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
	rpwi_finding_site(&f, "armed here", &cq->arm_at);
	rpwi_check_say(&f,
		"the last poll found the CQ empty; then it was armed, with %u request%s "
		"outstanding, "
		"and not polled again: if one of them completed in between, it makes no event",
		cq->outstanding, rpwi_plural(cq->outstanding));
}

/* waits: the program waits for an event; else it has not polled for long. */
static void in_part(struct check_cq *cq, bool waits)
{
	uint32_t n = cq->unheard;
	struct rpwi_finding f = {.rule = RPWI_RULE_POLLED_IN_PART};
	cq->unheard = 0;
	if (waits)
		rpwi_finding_site(&f, "the program waits here", &rpwi_check_site);
	rpwi_finding_site(&f, "armed here", &cq->arm_at);
	rpwi_check_say(&f,
		"%u completion%s %s in the CQ when it was armed, and %s not been polled since: no "
		"event comes for %s%s",
		n, rpwi_plural(n), n == 1 ? "was" : "were", n == 1 ? "has" : "have",
		n == 1 ? "it" : "them", waits ? "" : "; it has not been polled for 5 s");
}

static void late_on(struct check_cq *cq, void *channel)
{
	if (cq->ibv->channel != channel)
		return;
	if (cq->unheard && !cq->risky)
		in_part(cq, true);
	late(cq, "the program waits here");
}

void check_unheard_tick(struct check_cq *cq, uint64_t ns)
{
	cq->unheard_ns += ns;
	if (cq->unheard && cq->unheard_ns >= VAIN_NS)
		in_part(cq, false);
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
		cq->unheard = 0;
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
		rpwi_finding_site(&f, "the last event was taken here", &cq->got_at);
	}
	rpwi_check_report(&f);
	rpwi_check_unlock();
}
