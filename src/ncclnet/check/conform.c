/* SPDX-License-Identifier: BSD-3-Clause */
/* conform.c - the list of properties, and the run: two processes that do one case after the other,
 * and the watcher, which starts new ones where a case has left them in no state to go on. */
#include "ncclnet/check/conform.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "ncclnet/check/conform_priv.h"

enum { CASE_STEPS = 12, STUCK_STEPS = 2, OTHER_WELL_MS = 100 };

const char *const conform_verdict_name[CONFORM_VERDICTS] = {[CONFORM_PASS] = "pass",
	[CONFORM_SKIP] = "-",
	[CONFORM_QUIRK] = "quirk",
	[CONFORM_FAIL] = "fail"};

static const struct conform_case cases[] = {
	{"load", "loads, and has a table of this version", case_load, CASE_BARE, 0, 0},
	{"name", "its name can be read before init, and stays", case_name, CASE_BARE, 0, 0},
	{"init", "initializes", case_init, CASE_BARE, 0, 0},
	{"table", "every call that NCCL makes unasked is there", case_table, 0, 0, 0},
	{"devices", "has devices", case_devices, 0, 0, 0},
	{"properties", "properties stay in their struct, and make sense", case_properties, 0, 0, 0},
	{"vprops", "virtual devices are made of devices that there are", case_vprops, 0, 9, 0},
	{"handle", "a handle stays within its bytes", case_handle, 0, 0, 0},
	{"accept", "accept does not wait for a peer", case_accept, 0, 0, 0},
	{"connect", "connect does not wait for the peer's accept", case_connect, 0, 0, 0},
	{"handle-copy", "connects by a copy of the handle", case_handle_copy, 0, 0, 0},
	{"device-handle", "connects without a device handle of the caller", case_device_handle,
		CASE_FRESH | CASE_CRASH_IS_QUIRK, 7, NCCLNET_DEVICE_HANDLE},
	{"reg", "registers host memory", case_reg, 0, 0, 0},
	{"reg-bad-type", "refuses memory of a type that it does not have", case_reg_bad, 0, 0, 0},
	{"messages", "messages arrive, both ways", case_messages, 0, 0, 0},
	{"request", "writes *request whenever it says success; NULL: again", case_request, 0, 0, 0},
	{"zero", "messages of no bytes arrive", case_zero, 0, 0, 0},
	{"sizes", "test gives the size of what came", case_sizes, 0, 0, 0},
	{"sizes-null", "test may be given no sizes", case_sizes_null, 0, 0, 0},
	{"short", "a message may be shorter than its receive", case_short, 0, 0, 0},
	{"truncation", "a message longer than its receive is an error", case_truncation, CASE_FRESH,
		0, 0},
	{"patterns", "every byte of large messages arrives", case_patterns, 0, 0, 0},
	{"order", "messages arrive in their order, done when they are there", case_order, 0, 0, 0},
	{"polled", "a line of 128 bytes arrives before its last 8", case_polled, CASE_FRESH, 0, 0},
	{"group", "the tag finds the slot of a grouped receive", case_group, 0, 5, 0},
	{"same-tag", "of two slots with one tag the first is filled first", case_same_tag, 0, 5, 0},
	{"under-way", "as many requests under way as NCCL has", case_under_way, 0, 0, 0},
	{"test-order", "requests may be tested in any order", case_test_order,
		CASE_FRESH | CASE_NEVER_FAILS, 0, NCCLNET_FIFO_TEST},
	{"flush", "iflush is done at once or later", case_flush, 0, 0, 0},
	{"comms", "several connections at once", case_comms, 0, 0, 0},
	{"threads", "a thread for each connection", case_threads, 0, 0, 0},
	{"reg-thread", "memory is registered by another thread meanwhile", case_reg_thread, 0, 0,
		0},
	{"wrong-handle", "an invalid handle is refused", case_wrong_handle, CASE_FRESH, 0, 0},
	{"mixed", "a handle of another version of the API is refused", case_mixed, CASE_FRESH, 0,
		0},
	{"peer-killed", "a peer that is killed is an error, not a hang", case_killed,
		CASE_FRESH | CASE_KILLS, 0, 0},
	{"close-busy", "closes with requests under way", case_close_busy, CASE_FRESH, 0, 0},
	{"finalize", "contexts are made and ended", case_finalize, CASE_FRESH, 11, 0},
	{"reload", "is unloaded and loaded again", case_reload, CASE_FRESH, 0, 0},
};

const char *conform_id(unsigned i, const char **what)
{
	if (i >= RPWI_ARRAY_LEN(cases))
		return NULL;
	if (what)
		*what = cases[i].what;
	return cases[i].id;
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

/* What every case but the first ones finds done. An init that leaves the table incomplete is
 * `table`'s to say. */
static bool prepare(struct conform *c, unsigned flags)
{
	if (!c->s->n && !side_load(c->s, c->o->path, c->o->abi))
		return false;
	if (flags & CASE_BARE || c->initialized)
		return true;
	c->initialized = side_init(c->s, c->s->n, &c->s->ctx);
	return c->initialized && side_properties(c->s);
}

static void answer_for(struct conform *c, const struct conform_case *k, struct answer *a)
{
	struct side *s = c->s;
	s->why = NULL;
	s->waited = false;
	c->verdict = CONFORM_PASS;
	c->quirk = -1;
	*c->text = '\0';
	side_step(s);
	if (k->run == case_load || prepare(c, k->flags)) {
		if (s->n && s->n->abi < k->abi_least)
			conform_skip(c, "v%d has none", s->n->abi);
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
	if (s->n)
		a->facts = (struct conform_facts){.exported = s->n->exported, .abi = s->n->abi};
}

static void body(struct side *s, void *arg)
{
	struct conform c = {.s = s, .o = arg};
	s->device = c.o->device;
	struct question q;
	while (side_asked(s, &q, sizeof(q)) == sizeof(q)) {
		struct answer a;
		answer_for(&c, &cases[q.which], &a);
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
			call ? call : "a thread of its own", ncclnet_quirks[k->quirk].done);
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
	for (int i = 0; i < 2 && l->verdict == CONFORM_FAIL; i++) {
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
	return rc == -EPIPE && k->flags & CASE_KILLS && role == 1 &&
	       WIFSIGNALED(r->pair.status[1]) && WTERMSIG(r->pair.status[1]) == SIGKILL;
}

static void run_case(struct run *r, unsigned which, struct conform_line *l, struct answer out[2])
{
	const struct conform_case *k = &cases[which];
	struct question q = {.which = which};
	bool heard[2] = {false, false}, waited = false;
	unsigned wait_ms = r->o->timeout_ms * CASE_STEPS, stuck_ms = r->o->timeout_ms * STUCK_STEPS;
	memset(r->pair.shared->said, 0, sizeof(r->pair.shared->said));
	for (int i = 0; i < 2; i++)
		pair_ask(&r->pair, i, &q, sizeof(q)); /* who has gone is seen below */
	while (!heard[0] || !heard[1]) {
		struct answer a = {0};
		int who = 0, rc = pair_answer(&r->pair, &who, &a, sizeof(a), wait_ms, stuck_ms);
		if (expected_to_die(r, k, rc, who)) {
			heard[1] = true;
			continue;
		}
		if (rc != sizeof(a)) {
			/* Silence of the other one, after a failure that has been told, is its
			 * consequence. */
			if (rc || l->verdict != CONFORM_FAIL)
				no_answer(r, k, rc, who, l);
			break;
		}
		heard[who] = true;
		out[who] = a;
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
	if (l->verdict == CONFORM_FAIL || k->flags & (CASE_FRESH | CASE_KILLS) || !heard[0] ||
		!heard[1])
		stop(r);
}

static int start(struct run *r)
{
	int rc = r->up ? 0 : pair_start(&r->pair, body, (void *)r->o, r->o->timeout_ms, NULL);
	r->up = !rc;
	return rc;
}

int conform_run(const struct conform_options *o, unsigned count[CONFORM_VERDICTS], char *why,
	size_t why_len)
{
	struct run r = {.o = o};
	memset(count, 0, CONFORM_VERDICTS * sizeof(*count));
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		struct conform_line l = {.id = cases[i].id, .what = cases[i].what};
		struct answer a[2] = {{0}};
		if (i && o->only && !strstr(l.id, o->only))
			continue;
		int rc = start(&r);
		if (rc) {
			snprintf(
				why, why_len, "two processes cannot be started: %s", strerror(-rc));
			return rc;
		}
		run_case(&r, i, &l, a);
		if (i == 0 && a[0].load_error) {
			snprintf(why, why_len, "%s", a[0].text);
			stop(&r);
			return a[0].load_error;
		}
		if (i == 0 && o->facts && a[0].facts.abi)
			o->facts(o->arg, &a[0].facts);
		count[l.verdict]++;
		o->line(o->arg, &l);
		/* Without these nothing else can be tried. */
		if (l.verdict == CONFORM_FAIL &&
			(cases[i].run == case_load || cases[i].run == case_table ||
				cases[i].run == case_init || cases[i].run == case_devices))
			break;
	}
	stop(&r);
	return 0;
}
