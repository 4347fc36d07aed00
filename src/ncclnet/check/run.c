/* SPDX-License-Identifier: BSD-3-Clause */
/* run.c - the run: processes that do one case after the other, and the watcher, which starts new
 * ones where a case has left them in no state to go on. The lists of cases are conform.c's and
 * rma.c's. */
#include "ncclnet/check/conform.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "ncclnet/check/conform_priv.h"

enum { CASE_STEPS = 12, STUCK_STEPS = 2, OTHER_WELL_MS = 100, LONG = 10 };

const char *const conform_verdict_name[CONFORM_VERDICTS] = {[CONFORM_PASS] = "pass",
	[CONFORM_SKIP] = "-",
	[CONFORM_QUIRK] = "quirk",
	[CONFORM_FAIL] = "fail"};

static const struct conform_list *list_of(bool rma) { return rma ? &conform_rma : &conform_net; }

const char *conform_id(bool rma, unsigned i, const char **what)
{
	const struct conform_list *list = list_of(rma);
	if (i >= list->n)
		return NULL;
	if (what)
		*what = list->cases[i].what;
	return list->cases[i].id;
}

/* ---- a side ---- */

struct question {
	unsigned which;
};
struct answer {
	enum conform_verdict verdict;
	int quirk, load_error;
	bool waited;
	struct conform_facts facts;
	char text[400];
};
_Static_assert(sizeof(struct answer) <= PAIR_MESSAGE, "it fits a message");

static void answer_for(struct conform *c, const struct conform_case *k, struct answer *a)
{
	struct side *s = c->s;
	s->why = NULL;
	s->waited = false;
	c->verdict = CONFORM_PASS;
	c->quirk = -1;
	*c->text = '\0';
	side_step(s);
	if (k->flags & CASE_FIRST || list_of(c->o->rma)->prepare(c, k->flags)) {
		if (c->abi && c->abi < k->abi_least)
			conform_skip(c, "v%d has none", c->abi);
		else
			k->run(c);
	}
	if (s->why && c->verdict != CONFORM_FAIL)
		conform_fail(c, "%s", s->text);
	if (k->flags & CASE_NEVER_FAILS && c->verdict == CONFORM_FAIL) {
		/* it waited for the other side's */
		c->verdict = s->waited ? CONFORM_PASS : CONFORM_QUIRK;
		c->quirk = k->quirk;
		if (s->waited)
			*c->text = '\0';
	}
	*a = (struct answer){.verdict = c->verdict,
		.quirk = c->quirk,
		.waited = s->waited,
		.load_error = c->load_error};
	memcpy(a->text, c->text, sizeof(a->text));
	list_of(c->o->rma)->facts(c, &a->facts);
}

static void body(struct side *s, void *arg)
{
	struct conform c = {.s = s, .o = arg};
	s->device = c.o->device;
	struct question q;
	while (side_asked(s, &q, sizeof(q)) == sizeof(q)) {
		struct answer a;
		answer_for(&c, &list_of(c.o->rma)->cases[q.which], &a);
		if (!side_tell(s, &a, sizeof(a)))
			break;
	}
}

/* ---- the watcher ---- */

struct run {
	const struct conform_options *o;
	struct pair pair;
	bool up;
};

static void stop(struct run *r)
{
	if (r->up)
		pair_end(&r->pair);
	r->up = false;
}

static const char *how_it_ended(int status, char out[60])
{
	if (WIFSIGNALED(status))
		snprintf(out, 60, "signal %d, %s", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(out, 60, "exit status %d", WEXITSTATUS(status));
	return out;
}

/* A side that did not answer. */
static void no_answer(
	struct run *r, const struct conform_case *k, int rc, int role, struct conform_line *l)
{
	char how[60];
	const char *call = rc ? pair_call(&r->pair, role) : NULL;
	l->verdict = CONFORM_FAIL;
	if (rc == -EPIPE && k->flags & CASE_CRASH_IS_QUIRK) {
		l->verdict = CONFORM_QUIRK;
		snprintf(l->text, sizeof(l->text), "crashes in %s; ropeway: %s",
			call ? call : "a thread of its own",
			k->quirk < 0 ? "never does this" : ncclnet_quirks[k->quirk].done);
	} else if (rc == -EPIPE)
		snprintf(l->text, sizeof(l->text), "crashed in %s (%s)",
			call ? call : "no call: in a thread of its own, or by exit",
			how_it_ended(r->pair.status[role], how));
	else if (rc == -ETIMEDOUT)
		snprintf(l->text, sizeof(l->text), "hung in %s", call ? call : "a call");
	else
		snprintf(l->text, sizeof(l->text), "did not end within %u ms",
			r->o->timeout_ms * CASE_STEPS);
}

/* The worse of what both sides say; where it is the same once. What ropeway does about a quirk ends
 * it, once. */
static void merge(struct conform_line *l, const struct answer *a)
{
	char old[sizeof(l->text)] = "", done[300] = "";
	if (a->verdict < l->verdict)
		return;
	if (a->verdict == l->verdict)
		snprintf(old, sizeof(old), "%s", l->text);
	if (strstr(old, a->text) && *a->text)
		return;
	if (a->quirk >= 0 && a->verdict == CONFORM_QUIRK &&
		!strstr(old, ncclnet_quirks[a->quirk].done))
		snprintf(done, sizeof(done), "; ropeway: %s", ncclnet_quirks[a->quirk].done);
	snprintf(l->text, sizeof(l->text), "%s%s%s%s", a->text, done, *a->text && *old ? "; " : "",
		old);
	l->verdict = a->verdict;
}

/* The plugin's own words belong to a failure. */
static void add_said(struct run *r, struct conform_line *l)
{
	for (int i = 0; i < r->pair.sides && l->verdict == CONFORM_FAIL; i++) {
		char *said = r->pair.shared->said[i];
		size_t n = strlen(l->text);
		said[PAIR_SAID - 1] = '\0';
		if (!*said)
			continue;
		snprintf(l->text + n, sizeof(l->text) - n, "; the plugin says: %s", said);
		break;
	}
}

static bool expected_to_die(const struct run *r, const struct conform_case *k, int rc, int role)
{
	return rc == -EPIPE && k->flags & CASE_KILLS && role == r->pair.sides - 1 &&
	       WIFSIGNALED(r->pair.status[role]) && WTERMSIG(r->pair.status[role]) == SIGKILL;
}

/* out: what side 0 says. */
static void run_case(struct run *r, unsigned which, struct conform_line *l, struct answer *out)
{
	const struct conform_case *k = &list_of(r->o->rma)->cases[which];
	struct question q = {.which = which};
	bool waited = false;
	int left = r->pair.sides;
	unsigned wait_ms = r->o->timeout_ms * CASE_STEPS, stuck_ms = r->o->timeout_ms * STUCK_STEPS;
	wait_ms *= k->flags & CASE_LONG ? LONG : 1;
	memset(r->pair.shared->said, 0, sizeof(r->pair.shared->said));
	for (int i = 0; i < r->pair.sides; i++)
		pair_ask(&r->pair, i, &q, sizeof(q)); /* who has gone is seen below */
	while (left) {
		struct answer a = {0};
		int who = 0, rc = pair_answer(&r->pair, &who, &a, sizeof(a), wait_ms, stuck_ms);
		if (expected_to_die(r, k, rc, who)) {
			left--;
			continue;
		}
		if (rc != sizeof(a)) {
			/* Silence of the other one, after a failure that has been told, is its
			 * consequence. */
			if (rc || l->verdict != CONFORM_FAIL)
				no_answer(r, k, rc, who, l);
			break;
		}
		left--;
		if (!who)
			*out = a;
		if (a.waited && l->verdict == CONFORM_FAIL)
			continue;
		if (waited && a.verdict == CONFORM_FAIL)
			*l->text = '\0'; /* this is what was waited for */
		merge(l, &a);
		if (a.verdict != CONFORM_FAIL)
			continue;
		/* Has the other one crashed, does it hang, or say more? Else it may wait for its
		 * deadline in vain. */
		waited = a.waited;
		wait_ms = waited ? r->o->timeout_ms : OTHER_WELL_MS;
		stuck_ms = r->o->timeout_ms / 2;
	}
	add_said(r, l);
	if (l->verdict == CONFORM_FAIL || k->flags & (CASE_FRESH | CASE_KILLS) || left)
		stop(r);
}

static int start(struct run *r)
{
	int rc = r->up ? 0
		       : pair_start(&r->pair, r->o->rma ? r->o->ranks : 2, body, (void *)r->o,
				 r->o->timeout_ms, NULL);
	r->up = !rc;
	return rc;
}

int conform_run(const struct conform_options *o, unsigned count[CONFORM_VERDICTS], char *why,
	size_t why_len)
{
	struct run r = {.o = o};
	const struct conform_list *list = list_of(o->rma);
	memset(count, 0, CONFORM_VERDICTS * sizeof(*count));
	for (unsigned i = 0; i < list->n; i++) {
		const struct conform_case *k = &list->cases[i];
		struct conform_line l = {.id = k->id,
			.what = k->what,
			.then = k->then,
			.nccl_only = (k->flags & CASE_NCCL_ONLY) != 0};
		struct answer a = {0};
		if (i && o->only && !strstr(l.id, o->only))
			continue;
		int rc = start(&r);
		if (rc) {
			snprintf(
				why, why_len, "the processes cannot be started: %s", strerror(-rc));
			return rc;
		}
		run_case(&r, i, &l, &a);
		if (i == 0 && a.load_error) {
			snprintf(why, why_len, "%s", a.text);
			stop(&r);
			return a.load_error;
		}
		if (i == 0 && o->facts && a.facts.abi)
			o->facts(o->arg, &a.facts);
		count[l.verdict]++;
		o->line(o->arg, &l);
		/* Without these nothing else can be tried. */
		if (l.verdict == CONFORM_FAIL && k->flags & CASE_NEEDED)
			break;
	}
	stop(&r);
	return 0;
}
