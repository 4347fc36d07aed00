/* SPDX-License-Identifier: BSD-3-Clause */
/* cause.c - see cause.h. */
#include "check/cause.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BIT(kind) (1u << RPWI_CAUSE_##kind)

enum {
	FLUSHED = BIT(SEND_FLUSHED) | BIT(RECV_FLUSHED),
	HURT = FLUSHED | BIT(FAILED) | BIT(REJECTED) | BIT(UNREACHABLE),
	/* what may come before it: on the side that is hurt, and on the other one */
	OWN = BIT(TO_ERROR) | BIT(DISCONNECT) | BIT(DISCONNECTED) | BIT(PEER_GONE) | BIT(FAILED),
	OTHER = BIT(TO_ERROR) | BIT(DISCONNECT) | BIT(DESTROYED) | BIT(ENDED) | BIT(FAILED),
	/* of these the program of that side is the author */
	LEFT = BIT(TO_ERROR) | BIT(DISCONNECT) | BIT(DESTROYED) | BIT(ENDED),
};

static const char *const names[RPWI_CAUSES] = {
	[RPWI_CAUSE_CONNECTING] = "connecting",
	[RPWI_CAUSE_ACCEPTING] = "accepting",
	[RPWI_CAUSE_ESTABLISHED] = "established",
	[RPWI_CAUSE_TOOK_ESTABLISHED] = "took-established",
	[RPWI_CAUSE_SENT] = "sent",
	[RPWI_CAUSE_RECEIVED] = "received",
	[RPWI_CAUSE_DISCONNECT] = "disconnect",
	[RPWI_CAUSE_DISCONNECTED] = "disconnected",
	[RPWI_CAUSE_TO_ERROR] = "to-err",
	[RPWI_CAUSE_DESTROYED] = "destroyed",
	[RPWI_CAUSE_ENDED] = "ended",
	[RPWI_CAUSE_PEER_GONE] = "peer-gone",
	[RPWI_CAUSE_REJECTED] = "rejected",
	[RPWI_CAUSE_UNREACHABLE] = "unreachable",
	[RPWI_CAUSE_FAILED] = "failed",
	[RPWI_CAUSE_SEND_FLUSHED] = "send-flushed",
	[RPWI_CAUSE_RECV_FLUSHED] = "recv-flushed",
};

const char *rpwi_cause_name(enum rpwi_cause_kind k) { return names[k]; }

enum rpwi_cause_kind rpwi_cause_named(const char *name)
{
	enum rpwi_cause_kind k = 0;
	while (k < RPWI_CAUSES && strcmp(names[k], name))
		k++;
	return k;
}

/* ---- one end of a connection: the events of a QP from its birth to its end ---- */

struct log {
	const struct rpwi_cause_event *e;
	size_t n;
};

struct end {
	bool known;
	int pid;
	uint32_t qpn, peer_qpn;
	size_t from, to; /* a number may be used again after a QP has gone */
};

static bool is(const struct rpwi_cause_event *e, unsigned kinds) { return kinds >> e->kind & 1; }

static bool same_qp(const struct rpwi_cause_event *a, const struct rpwi_cause_event *b)
{
	return a->pid == b->pid && a->qpn == b->qpn;
}

static struct end end_at(const struct log *l, size_t i)
{
	const struct rpwi_cause_event *e = &l->e[i];
	struct end x = {.known = true, .pid = e->pid, .qpn = e->qpn, .from = i, .to = i + 1};
	for (size_t j = i; j && !(same_qp(&l->e[j - 1], e) && is(&l->e[j - 1], BIT(DESTROYED)));)
		x.from = --j;
	while (x.to < l->n && !(same_qp(&l->e[x.to - 1], e) && is(&l->e[x.to - 1], BIT(DESTROYED))))
		x.to++;
	for (size_t j = x.from; j < x.to; j++)
		if (same_qp(&l->e[j], e) && l->e[j].peer_qpn)
			x.peer_qpn = l->e[j].peer_qpn;
	return x;
}

/* The first event of these kinds before event `before`; l->n: none. */
static size_t first_of(const struct log *l, const struct end *x, unsigned kinds, size_t before)
{
	for (size_t i = x->known ? x->from : before; i < before; i++) {
		const struct rpwi_cause_event *e = &l->e[i];
		bool of_qp = e->qpn == x->qpn && i < x->to,
		     of_process = e->kind == RPWI_CAUSE_ENDED && !e->qpn;
		if (e->pid == x->pid && (of_qp || of_process) && is(e, kinds))
			return i;
	}
	return l->n;
}

static bool has(const struct log *l, const struct end *x, unsigned kinds, size_t before)
{
	return first_of(l, x, kinds, before) < l->n;
}

/* The other end: what names this QP as its peer, nearest to event `i`. */
static struct end other_end(const struct log *l, const struct end *x, size_t i)
{
	for (size_t away = 0; x->peer_qpn && away < l->n; away++) {
		const size_t at[] = {i - away, i + away};
		for (unsigned k = 0; k < 2; k++) {
			if (at[k] >= l->n) /* before the first one, too */
				continue;
			const struct rpwi_cause_event *e = &l->e[at[k]];
			if (e->qpn == x->peer_qpn && e->peer_qpn == x->qpn &&
				!(e->pid == x->pid && e->qpn == x->qpn))
				return end_at(l, at[k]);
		}
	}
	return (struct end){0};
}

/* ---- what is worth a word ---- */

/* Receives that are left over when a connection ends are flushed, and that is its normal end: as
 * long as something was received before. */
static bool is_failure(const struct log *l, const struct end *x, size_t i)
{
	const struct rpwi_cause_event *e = &l->e[i];
	if (e->kind == RPWI_CAUSE_RECV_FLUSHED)
		return !has(l, x, BIT(RECEIVED), i);
	return is(e, HURT);
}

static bool failed_before(const struct log *l, const struct end *x, size_t i)
{
	for (size_t at = x->from; x->known && at < i && at < x->to; at++)
		if (l->e[at].pid == x->pid && l->e[at].qpn == x->qpn && is_failure(l, x, at))
			return true;
	return false;
}

static size_t cause_of(const struct log *l, const struct end *x, const struct end *y, size_t i)
{
	unsigned own = is(&l->e[i], FLUSHED) ? OWN : OWN & ~BIT(FAILED);
	if (is(&l->e[i], BIT(REJECTED) | BIT(UNREACHABLE)))
		return i;
	size_t a = first_of(l, x, own, i), b = first_of(l, y, OTHER, i);
	return a < b ? a : b;
}

/* ---- the sentence ---- */

struct text {
	char *out;
	size_t room, used;
};

static void say(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct text *t, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(t->out + t->used, t->room - t->used, fmt, ap);
	va_end(ap);
	if (n > 0)
		t->used += (size_t)n;
	if (t->used >= t->room)
		t->used = t->room - 1;
}

static const char *role_of(const struct log *l, const struct end *x)
{
	if (has(l, x, BIT(CONNECTING), l->n))
		return "the client";
	return has(l, x, BIT(ACCEPTING), l->n) ? "the server" : NULL;
}

static const char *program_of(const struct log *l, const struct end *x)
{
	for (size_t i = x->from; i < x->to; i++)
		if (l->e[i].pid == x->pid && l->e[i].program) {
			const char *slash = strrchr(l->e[i].program, '/');
			return slash ? slash + 1 : l->e[i].program;
		}
	return "a process";
}

/* `x` in full, with what tells it from `y`. */
static void say_who(struct text *t, const struct log *l, const struct end *x, const struct end *y)
{
	const char *role = role_of(l, x), *others = role_of(l, y);
	if (!x->known) {
		bool is_server = others && !strcmp(others, "the client");
		if (others)
			say(t, "%s (not checked)", is_server ? "the server" : "the client");
		else
			say(t, "the peer (not checked)");
	} else if (x->pid == y->pid) {
		say(t, "%s%sQP 0x%06x of %s (pid %d)", role ? role : "", role ? ", " : "", x->qpn,
			program_of(l, x), x->pid);
	} else if (role) {
		say(t, "%s (%s, pid %d)", role, program_of(l, x), x->pid);
	} else {
		say(t, "%s (pid %d)", program_of(l, x), x->pid);
	}
}

static const char *or_none(const char *s) { return s ? s : ""; }

/* "RECV with wr_id 7 was flushed", of the event's text: "the RECV with ...". */
static const char *what_was_hurt(const struct rpwi_cause_event *e)
{
	const char *s = or_none(e->text);
	return strncmp(s, "the ", 4) ? s : s + 4;
}

/* What the side that left had not done. */
static const char *omission(const struct log *l, const struct end *z, size_t cause)
{
	if (!is(&l->e[cause], LEFT))
		return "";
	if (has(l, z, BIT(ACCEPTING), cause) && has(l, z, BIT(ESTABLISHED), cause) &&
		!has(l, z, BIT(TOOK_ESTABLISHED), cause))
		return "never handled ESTABLISHED and ";
	return has(l, z, BIT(SENT), cause) ? "" : "sent nothing and ";
}

/* rdma_disconnect begins by moving the QP to ERR. */
static const char *deed(const struct log *l, const struct end *z, size_t cause)
{
	if (l->e[cause].kind == RPWI_CAUSE_TO_ERROR) {
		size_t then = first_of(l, z, BIT(DISCONNECT), l->n);
		if (then < l->n)
			return or_none(l->e[then].text);
	}
	return or_none(l->e[cause].text);
}

static void by_itself(struct text *t, const struct log *l, const struct end *x, const struct end *y,
	size_t cause, size_t i)
{
	bool sends = l->e[i].kind != RPWI_CAUSE_RECV_FLUSHED;
	say_who(t, l, x, y);
	say(t, " %s", deed(l, x, cause));
	if (l->e[cause].kind == RPWI_CAUSE_FAILED) {
		say(t, "; that moved the QP to ERR, and the %s by that", what_was_hurt(&l->e[i]));
		return;
	}
	if (sends) {
		say(t, " before its sends were complete; the %s by that", what_was_hurt(&l->e[i]));
		return;
	}
	say(t, " before anything had come from ");
	say_who(t, l, y, x);
	if (y->known && !has(l, y, BIT(SENT), i))
		say(t, ", which had sent nothing");
	say(t, "; the %s by that", what_was_hurt(&l->e[i]));
}

static void sentence(struct text *t, const struct log *l, const struct end *x, const struct end *y,
	size_t cause, size_t i)
{
	const struct rpwi_cause_event *e = &l->e[i];
	if (is(e, BIT(REJECTED) | BIT(UNREACHABLE))) {
		say_who(t, l, x, y);
		say(t, " %s", or_none(e->text));
		return;
	}
	if (cause == l->n) {
		say_who(t, l, x, y);
		say(t, ": the %s, and nothing in the reports came before it", what_was_hurt(e));
		return;
	}
	const struct rpwi_cause_event *c = &l->e[cause];
	bool own = c->pid == x->pid && c->qpn == x->qpn && c->kind != RPWI_CAUSE_ENDED;
	if (own && !is(c, BIT(DISCONNECTED) | BIT(PEER_GONE))) {
		by_itself(t, l, x, y, cause, i);
		return;
	}
	say_who(t, l, y, x);
	if (own) /* what this end heard of the other one */
		say(t, " %s",
			c->kind == RPWI_CAUSE_PEER_GONE ? "ended without disconnecting"
							: "disconnected");
	else if (c->kind == RPWI_CAUSE_FAILED)
		say(t, " failed first: %s", or_none(c->text));
	else
		say(t, " %s%s", omission(l, y, cause), deed(l, y, cause));
	say(t, "; ");
	say_who(t, l, x, y);
	say(t, ": the %s by that", what_was_hurt(e));
}

/* But for their numbers. */
static bool same_text(const char *a, const char *b)
{
	static const char digits[] = "0123456789abcdefx";
	for (;;) {
		size_t in_a = strspn(a, "0123456789"), in_b = strspn(b, "0123456789");
		if (in_a && in_b) {
			a += strspn(a, digits);
			b += strspn(b, digits);
		}
		if (*a != *b)
			return false;
		if (!*a)
			return true;
		a++;
		b++;
	}
}

unsigned rpwi_causes(
	const struct rpwi_cause_event *e, size_t n, struct rpwi_cause *out, unsigned room)
{
	const struct log l = {e, n};
	unsigned found = 0;
	for (size_t i = 0; i < n; i++) {
		struct rpwi_cause c = {.seen = i, .pairs = 1};
		if (!is(&e[i], HURT))
			continue;
		struct end x = end_at(&l, i), y = other_end(&l, &x, i);
		if (!is_failure(&l, &x, i) || failed_before(&l, &x, i) || failed_before(&l, &y, i))
			continue;
		struct text t = {.out = c.text, .room = sizeof(c.text)};
		c.first = cause_of(&l, &x, &y, i);
		sentence(&t, &l, &x, &y, c.first, i);
		unsigned k = 0;
		while (k < found && !same_text(out[k].text, c.text))
			k++;
		if (k < found)
			out[k].pairs++;
		else if (found < room)
			out[found++] = c;
	}
	return found;
}
