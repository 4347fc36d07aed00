/* SPDX-License-Identifier: BSD-3-Clause */
/* plan.c - this process's fault script at work: counts what is met, decides what becomes of it, and
 * keeps what is to happen to the device until it has come due. */
#include "fault/fault.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/lock.h"
#include "explain/trace.h"

bool rpwi_plan_on, rpwi_plan_packets;
void (*rpwi_plan_wake)(void);

enum { PENDING_MAX = RPWI_SCRIPT_RULES_MAX + 64, SILENT_MAX = 64 };

struct pending {
	uint64_t due_ns;
	const struct rpwi_rule *rule; /* NULL: the port comes up again */
	struct rpwi_happening what;
};

static struct {
	struct rpwi_script *script;
	uint64_t began_ns;
	struct pending pending[PENDING_MAX];
	unsigned npending;
	struct {
		uint32_t qp; /* 0: of all */
		uint64_t until_ns;
	} silent[SILENT_MAX];
	unsigned nsilent;
	uint64_t down_until_ns;
	bool dead;
} plan; /* under RPWI_LOCK_PLAN */

/* ---- loading ---- */

static void pending_add(
	uint64_t due_ns, const struct rpwi_rule *rule, const struct rpwi_happening *what)
{
	if (plan.npending == PENDING_MAX) {
		rpwi_warn("fault script: more than %d events wait: one is lost", PENDING_MAX);
		return;
	}
	plan.pending[plan.npending++] = (struct pending){due_ns, rule, *what};
	if (rpwi_plan_wake)
		rpwi_plan_wake();
}

static bool about_packets(const struct rpwi_rule *r)
{
	return r->subject == RPWI_SUBJ_TX || r->subject == RPWI_SUBJ_RX ||
	       r->act == RPWI_ACT_PORT_DOWN || r->act == RPWI_ACT_PEER_SILENT ||
	       r->act == RPWI_ACT_DEVICE_FATAL;
}

static void plan_begin(struct rpwi_script *s)
{
	plan.script = s;
	plan.began_ns = rpwi_now_ns();
	for (unsigned i = 0; i < s->nrules; i++) {
		const struct rpwi_rule *r = &s->rule[i];
		rpwi_plan_packets |= about_packets(r);
		if (r->subject == RPWI_SUBJ_TIME)
			pending_add(plan.began_ns + r->after_ns, r,
				&(struct rpwi_happening){r->act, r->value, r->qp, r->cq, r->srq});
	}
	/* Whoever sees this sees the rest: before it no object of verbs exists. */
	rpwi_plan_on = s->nrules > 0;
}

static int load_rc;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static void load(void)
{
	const char *path = getenv("ROPEWAY_FAULT");
	char why[RPWI_WHY_LEN];
	struct rpwi_script *s;
	if (!path || !rpwi_script_is_file(path))
		return;
	struct rpwi_script_who who = rpwi_script_self();
	load_rc = rpwi_script_load(path, &who, &s, why, sizeof(why));
	if (load_rc) {
		rpwi_error("ROPEWAY_FAULT: %s", why);
		return;
	}
	rpwi_lock(RPWI_LOCK_PLAN);
	plan_begin(s);
	rpwi_unlock(RPWI_LOCK_PLAN);
}

int rpwi_plan_load(void)
{
	pthread_once(&load_once, load);
	return load_rc;
}

/* ---- deciding ---- */

/* A number for each (seed, line, n). */
static uint64_t draw(const struct rpwi_rule *r)
{
	return rpwi_scatter(rpwi_scatter(plan.script->seed + 0x9e3779b97f4a7c15) +
			    rpwi_scatter(r->line) + r->seen * 0x9e3779b97f4a7c15);
}

/* Of others a line's QP is the one that something happens to. */
static bool of_a_qp(const struct rpwi_occasion *o)
{
	return o->subject != RPWI_SUBJ_CALL && o->subject != RPWI_SUBJ_CM_TX &&
	       o->subject != RPWI_SUBJ_CM_RX;
}

static bool matches(const struct rpwi_rule *r, const struct rpwi_occasion *o, uint64_t at_ns)
{
	return r->subject == o->subject && (r->detail == RPWI_ANY || r->detail == o->detail) &&
	       (r->state == RPWI_ANY || r->state == o->state) &&
	       (!r->qp || r->qp == o->qp || !of_a_qp(o)) && at_ns >= r->after_ns &&
	       (!r->until_ns || at_ns < r->until_ns);
}

/* Is it this one? It has been counted. */
static bool chosen(const struct rpwi_rule *r, const struct rpwi_occasion *o)
{
	switch (r->which) {
	case RPWI_WHICH_RANGE:
		return r->seen >= r->first && r->seen <= r->last;
	case RPWI_WHICH_EVERY:
		return r->seen % r->first == 0;
	case RPWI_WHICH_CHANCE:
		return (double)(draw(r) >> 11) * 0x1p-53 < r->chance;
	case RPWI_WHICH_BYTE:
		return r->first < r->bytes && r->first >= r->bytes - o->bytes;
	default:
		return true;
	}
}

static void silence(uint32_t qp, uint64_t until_ns)
{
	for (unsigned i = 0; i < plan.nsilent; i++)
		if (plan.silent[i].qp == qp) {
			plan.silent[i].until_ns = RPWI_MAX(plan.silent[i].until_ns, until_ns);
			return;
		}
	if (plan.nsilent < SILENT_MAX) {
		plan.silent[plan.nsilent].qp = qp;
		plan.silent[plan.nsilent++].until_ns = until_ns;
	}
}

static uint64_t end_of(uint64_t now_ns, uint64_t ns)
{
	return ns == RPWI_NEVER ? RPWI_NEVER : now_ns + ns;
}

/* What packets meet begins with the very next one; the device is told by rpwi_plan_next. */
static void begin_window(const struct rpwi_rule *r, uint32_t qp, uint64_t now_ns)
{
	uint64_t until = end_of(now_ns, r->ns);
	if (r->act == RPWI_ACT_PEER_SILENT) {
		silence(qp, until);
	} else if (r->act == RPWI_ACT_PORT_DOWN) {
		plan.down_until_ns = RPWI_MAX(plan.down_until_ns, until);
		if (until != RPWI_NEVER)
			pending_add(until, NULL,
				&(struct rpwi_happening){
					RPWI_ACT_EVENT, IBV_EVENT_PORT_ACTIVE, 0, 0, 0});
	}
}

static void told(struct rpwi_rule *r)
{
	if (!r->fired++)
		rpwi_info("fault script, line %u: %s", r->line, r->text);
	else
		rpwi_debug("fault script, line %u: %s", r->line, r->text);
	rpwi_explain(RPWI_EXPLAIN_NOTE, "on purpose (fault script, line %u): %s", r->line, r->text);
}

static void put(
	struct rpwi_fate *f, struct rpwi_rule *r, const struct rpwi_occasion *o, uint64_t now_ns)
{
	switch (r->act) {
	case RPWI_ACT_FAIL:
		f->err = r->value;
		break;
	case RPWI_ACT_TAKE:
		f->take_ns = r->ns;
		break;
	case RPWI_ACT_CM_EVENT:
		f->cm_event = r->value + 1;
		break;
	case RPWI_ACT_STATUS:
	case RPWI_ACT_FORGE:
		f->status = r->value;
		f->forge = r->act == RPWI_ACT_FORGE;
		break;
	case RPWI_ACT_LATE:
		f->late_ns = r->ns;
		break;
	case RPWI_ACT_DROP:
		f->drop = true;
		break;
	case RPWI_ACT_DUP:
		f->dup = true;
		break;
	case RPWI_ACT_DELAY:
		f->delay_ns = r->ns;
		break;
	case RPWI_ACT_REORDER:
		f->hold = true;
		break;
	case RPWI_ACT_CORRUPT:
		f->corrupt = true;
		f->draw = draw(r);
		break;
	case RPWI_ACT_BAD_KEY:
		f->bad_key = true;
		break;
	case RPWI_ACT_NAK:
		f->nak = r->value + 1;
		break;
	case RPWI_ACT_REJECT:
		f->reject = r->value;
		break;
	default: {
		struct rpwi_happening what = {
			r->act, r->value, r->qp ? r->qp : o->qp, r->cq, r->srq};
		begin_window(r, r->qp, now_ns);
		pending_add(now_ns, r, &what);
		break;
	}
	}
}

struct rpwi_fate rpwi_plan_ask(const struct rpwi_occasion *o)
{
	struct rpwi_fate f = {0};
	rpwi_lock(RPWI_LOCK_PLAN);
	uint64_t now = rpwi_now_ns();
	for (unsigned i = 0; plan.script && i < plan.script->nrules; i++) {
		struct rpwi_rule *r = &plan.script->rule[i];
		if (r->subject != o->subject || !matches(r, o, now - plan.began_ns))
			continue;
		r->seen++;
		r->bytes += o->bytes;
		if (!chosen(r, o))
			continue;
		told(r);
		put(&f, r, o, now);
	}
	if (plan.dead && o->subject == RPWI_SUBJ_CALL)
		f.err = EIO;
	rpwi_unlock(RPWI_LOCK_PLAN);
	return f;
}

static int ask_call(enum rpwi_call c, int state, uint32_t qp, int *cm_event)
{
	struct rpwi_fate f = rpwi_plan_ask(&(struct rpwi_occasion){
		.subject = RPWI_SUBJ_CALL, .detail = (int)c, .state = state, .qp = qp});
	if (f.take_ns) {
		struct timespec ts = {.tv_sec = (time_t)(f.take_ns / RPWI_NS_PER_S),
			.tv_nsec = (long)(f.take_ns % RPWI_NS_PER_S)};
		nanosleep(&ts, NULL);
	}
	if (cm_event)
		*cm_event = f.cm_event;
	if (f.err) /* also where the call gives it: programs print %m */
		errno = f.err;
	return f.err;
}

int rpwi_plan_call_asked(enum rpwi_call c) { return ask_call(c, RPWI_ANY, 0, NULL); }
int rpwi_plan_cm_call(enum rpwi_call c, int *event) { return ask_call(c, RPWI_ANY, 0, event); }
int rpwi_plan_modify_qp(int state, uint32_t qp)
{
	return ask_call(RPWI_CALL_MODIFY_QP, state, qp, NULL);
}

bool rpwi_plan_refuses_asked(enum rpwi_call c) { return rpwi_plan_call_asked(c); }

/* ---- what happens ---- */

bool rpwi_plan_next(uint64_t now_ns, struct rpwi_happening *out)
{
	bool got = false;
	rpwi_lock(RPWI_LOCK_PLAN);
	for (unsigned i = 0; i < plan.npending && !got; i++) {
		struct pending p = plan.pending[i];
		if (p.due_ns > now_ns)
			continue;
		/* in the order in which they were added */
		memmove(&plan.pending[i], &plan.pending[i + 1],
			(--plan.npending - i) * sizeof(plan.pending[0]));
		if (p.rule && p.rule->subject == RPWI_SUBJ_TIME) {
			told(&plan.script->rule[p.rule - plan.script->rule]);
			begin_window(p.rule, p.rule->qp, now_ns);
		}
		*out = p.what;
		got = true;
		/* two outages that overlap end with the later one */
		if (!p.rule && plan.down_until_ns > now_ns)
			got = false, i--;
	}
	rpwi_unlock(RPWI_LOCK_PLAN);
	return got;
}

uint64_t rpwi_plan_deadline(void)
{
	uint64_t at = RPWI_NEVER;
	rpwi_lock(RPWI_LOCK_PLAN);
	for (unsigned i = 0; i < plan.npending; i++)
		at = RPWI_MIN(at, plan.pending[i].due_ns);
	rpwi_unlock(RPWI_LOCK_PLAN);
	return at;
}

bool rpwi_plan_port_down(uint64_t now_ns)
{
	rpwi_lock(RPWI_LOCK_PLAN);
	bool down = plan.down_until_ns > now_ns || plan.dead;
	rpwi_unlock(RPWI_LOCK_PLAN);
	return down;
}

bool rpwi_plan_silent(uint32_t qp, uint64_t now_ns)
{
	bool silent = false;
	rpwi_lock(RPWI_LOCK_PLAN);
	for (unsigned i = 0; i < plan.nsilent && !silent; i++)
		silent = (!plan.silent[i].qp || plan.silent[i].qp == qp) &&
			 plan.silent[i].until_ns > now_ns;
	rpwi_unlock(RPWI_LOCK_PLAN);
	return silent;
}

void rpwi_plan_device_died(void)
{
	rpwi_lock(RPWI_LOCK_PLAN);
	plan.dead = true;
	rpwi_unlock(RPWI_LOCK_PLAN);
}

void rpwi_plan_print(FILE *to)
{
	rpwi_lock(RPWI_LOCK_PLAN);
	for (unsigned i = 0; plan.script && i < plan.script->nrules; i++) {
		const struct rpwi_rule *r = &plan.script->rule[i];
		fprintf(to, "  fault script, line %u: %s: %s %llu times\n", r->line, r->text,
			r->fired ? "happened" : "NEVER HAPPENED,", (unsigned long long)r->fired);
	}
	rpwi_unlock(RPWI_LOCK_PLAN);
}
