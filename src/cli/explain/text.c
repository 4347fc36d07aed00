/* SPDX-License-Identifier: BSD-3-Clause */
/* text.c - the ladder on a terminal. One line a packet; states where they change; folded rows as
 * one line. */
#include "cli/explain/explain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>

enum { TIME_COLS = 11, STATE_COLS = 16, LADDER_MIN = 36, LADDER_MAX = 72, TALKS_SHOWN = 200 };

struct page {
	FILE *to;
	bool colours;
	unsigned ladder;
	const struct ex_model *m;
};

static const char *const mark_text[EX_MARKS] = {"sent again", "lost", "lost, or its answer was",
	"out of order: dropped", "", "", "refused", "wrong ICRC", "not readable",
	"after a time-out", ""};

static const char *colour_of(const struct ex_pkt *k)
{
	if (k->marks & (EX_LOST | EX_GAP | EX_BAD_ICRC | EX_MALFORMED | EX_NAK))
		return "\033[31m";
	if (k->marks & (EX_OUT_OF_ORDER | EX_REFUSED))
		return "\033[90m";
	if (k->marks)
		return "\033[33m";
	return ex_is_cm(k)                               ? "\033[35m"
	       : rpwi_op_is_response(rpwi_pkt_op(&k->p)) ? "\033[32m"
							 : "\033[36m";
}

static void paint(const struct page *p, const char *colour)
{
	if (p->colours)
		fputs(colour, p->to);
}

/* "---- text ---->" of `width` columns, towards the right or the left; one that is lost does not
 * arrive. */
static void arrow(char *out, unsigned width, const char *text, bool right, bool lost)
{
	size_t len = strlen(text);
	unsigned reach = lost ? width - 6 : width, room = reach - 4;
	len = RPWI_MIN(len, (size_t)room);
	unsigned before = (unsigned)(room - len) / 2 + 1;
	memset(out, ' ', width);
	memset(out + (right ? 0 : width - reach), '-', reach);
	char *at = out + (right ? 0 : width - reach) + before;
	at[0] = ' ';
	for (size_t i = 0; i < len; i++)
		at[1 + i] = text[i];
	at[1 + len] = ' ';
	if (right)
		out[reach - 1] = lost ? 'x' : '>';
	else
		out[width - reach] = lost ? 'x' : '<';
	out[width] = '\0';
}

static void state_text(char out[64], const struct ex_state *s, const struct ex_state *before)
{
	const char *cm = s->cm != before->cm ? rpwi_explain_cm_name[s->cm] : "",
		   *qp = s->qp != before->qp ? rpwi_explain_qp_name[s->qp] : "";
	snprintf(out, 64, "%s%s%s", cm, *cm && *qp ? " " : "", qp);
}

static void marks_text(char *out, size_t len, const struct ex_pkt *k)
{
	size_t n = 0;
	out[0] = '\0';
	for (unsigned i = 0; i < EX_MARKS; i++)
		if (k->marks >> i & 1 && mark_text[i][0] && n < len)
			n += (size_t)snprintf(
				out + n, len - n, "%s%s", n ? ", " : "", mark_text[i]);
}

static void put_row(const struct page *p, const struct ex_pkt *k, const struct ex_state before[2])
{
	char label[64], detail[160], text[240], line[LADDER_MAX + 1], left[64], right[64],
		marks[160];
	rpwi_explain_label(k, label);
	rpwi_explain_detail(k, detail);
	snprintf(text, sizeof(text), "%s%s%s", k->marks & EX_GAP ? "not in the capture:" : label,
		*detail ? " " : "", detail);
	arrow(line, p->ladder, text, k->side == 0, k->marks & (EX_LOST | EX_GAP));
	state_text(left, &k->state[0], &before[0]);
	state_text(right, &k->state[1], &before[1]);
	marks_text(marks, sizeof(marks), k);
	uint64_t us = (k->time_ns - p->m->start_ns) / 1000;
	fprintf(p->to, "%*" PRIu64 ".%03" PRIu64 "%c %*s |", TIME_COLS - 4, us / 1000, us % 1000,
		k->moved_ns ? '~' : ' ', STATE_COLS, left);
	paint(p, colour_of(k));
	fputs(line, p->to);
	paint(p, "\033[0m");
	fprintf(p->to, "| %-*s", *marks ? STATE_COLS : 0, right);
	if (*marks) {
		paint(p, "\033[33m");
		fprintf(p->to, " %s", marks);
		paint(p, "\033[0m");
	}
	fputc('\n', p->to);
}

static void put_fold(const struct page *p, const struct ex_talk *t, const struct ex_fold *f)
{
	char text[120], pad[LADDER_MAX + 128];
	uint32_t ways[2] = {0, 0};
	uint64_t bytes = 0;
	for (uint32_t n = f->from; n <= f->to; n++) {
		const struct ex_pkt *k = &p->m->pkt[t->row[n]];
		ways[k->side]++;
		bytes += k->p.payload_len;
	}
	snprintf(text, sizeof(text), "... %u more: %u ->, %u <-, %" PRIu64 " B ...",
		ways[0] + ways[1], ways[0], ways[1], bytes);
	int left = (int)(p->ladder - RPWI_MIN(strlen(text), (size_t)p->ladder)) / 2;
	snprintf(pad, sizeof(pad), "%*s%s", left, "", text);
	fprintf(p->to, "%*s  %*s :", TIME_COLS, "", STATE_COLS, "");
	paint(p, "\033[2m");
	fprintf(p->to, "%-*.*s", (int)p->ladder, (int)p->ladder, pad);
	paint(p, "\033[0m");
	fputs(":\n", p->to);
}

static const char *end_text(const struct ex_end *e, char out[80])
{
	char addr[CLI_GID_LEN];
	rpwi_explain_addr(&e->addr, addr);
	if (e->has_qpn)
		snprintf(out, 80, "%s QP 0x%06x", addr, e->qpn);
	else
		snprintf(out, 80, "%s", addr);
	return out;
}

static const char *plural(uint64_t n) { return n == 1 ? "" : "s"; }

static void put_outcome(const struct page *p, const struct ex_talk *t)
{
	static const char *const side_name[] = {"left", "right"};
	const struct ex_end *e = t->end;
	for (unsigned side = 0; side < 2; side++)
		fprintf(p->to,
			"  %-5s sent %" PRIu64 " packet%s, %" PRIu64 " message%s, %" PRIu64
			" byte%s; %" PRIu64 " again, %" PRIu64 " NAK%s, %" PRIu64 " RNR%s\n",
			side_name[side], e[side].packets, plural(e[side].packets), e[side].messages,
			plural(e[side].messages), e[side].bytes, plural(e[side].bytes),
			e[side].resent, e[side].naks, plural(e[side].naks), e[side].rnrs,
			plural(e[side].rnrs));
	const char *who = side_name[t->outcome_side];
	const char *how = t->outcome ? t->outcome : "open";
	fputs("  end:  ", p->to);
	if (!strcmp(how, "disconnected"))
		fprintf(p->to, "the %s side disconnected\n", who);
	else if (!strcmp(how, "rejected"))
		fprintf(p->to, "rejected by the %s side, reason %u: %s\n", who, t->outcome_number,
			rpwi_cm_rej_name(t->outcome_number));
	else if (!strcmp(how, "nak"))
		fprintf(p->to, "refused by the %s side: %s\n", who,
			t->outcome_number < RPWI_NAK_COUNT ? rpwi_nak_name[t->outcome_number]
							   : "?");
	else if (!strcmp(how, "silent"))
		fprintf(p->to, "the %s side was not answered any more\n", who);
	else if (!strcmp(how, "no_answer"))
		fputs("nobody answered\n", p->to);
	else if (!strcmp(how, "not_confirmed"))
		fputs("REP was not confirmed by RTU\n", p->to);
	else if (!strcmp(how, "sidr"))
		fprintf(p->to, "looked up, status %u\n", t->outcome_number);
	else
		fputs("the capture ends while it is open\n", p->to);
	for (unsigned i = 0; i < EX_DIAGNOSES; i++)
		if (t->diagnoses >> i & 1)
			fprintf(p->to, "  => %s\n", rpwi_explain_diagnosis[i].text[EX_ENGLISH]);
}

static void put_talk(const struct page *p, const struct ex_talk *t, uint32_t number)
{
	static const char *const kind[] = {"RC", "UC", "UD", "SIDR", "?"};
	struct ex_state before[2] = {{0, 0}, {0, 0}};
	char a[80], b[80];
	paint(p, "\033[1m");
	fprintf(p->to, "%s%u/%u  %s  %s  <->  %s", number ? "\n" : "", number + 1, p->m->talks,
		kind[t->kind], end_text(&t->end[0], a), end_text(&t->end[1], b));
	paint(p, "\033[0m");
	if (t->has_cm && t->port)
		fprintf(p->to, "  port %u", t->port);
	fputc('\n', p->to);
	uint32_t fold = 0;
	for (uint32_t n = 0; n < t->rows; n++) {
		if (fold < t->folds && n == t->fold[fold].from) {
			put_fold(p, t, &t->fold[fold]);
			n = t->fold[fold++].to;
			continue;
		}
		const struct ex_pkt *k = &p->m->pkt[t->row[n]];
		put_row(p, k, before);
		before[0] = k->state[0];
		before[1] = k->state[1];
	}
	put_outcome(p, t);
}

int rpwi_explain_text(const struct ex_model *m, FILE *to, bool colours, unsigned width)
{
	unsigned around = TIME_COLS + 2 * STATE_COLS + 8,
		 room = width > around ? width - around : 0;
	struct page p = {.to = to,
		.colours = colours,
		.m = m,
		.ladder = RPWI_MIN(RPWI_MAX(room, (unsigned)LADDER_MIN), (unsigned)LADDER_MAX)};
	for (uint32_t i = 0; i < m->talks && i < TALKS_SHOWN && !ferror(to); i++)
		put_talk(&p, &m->talk[i], i);
	if (m->talks > TALKS_SHOWN)
		fprintf(to, "\n%u more conversation%s not shown\n", m->talks - TALKS_SHOWN,
			m->talks - TALKS_SHOWN == 1 ? " is" : "s are");
	for (unsigned i = 0; i < m->files; i++)
		if (m->file_shift_ns[i])
			fprintf(to,
				"\nThe clock of %s was moved by %+.6f s, so that no packet arrives "
				"before it was sent.\n",
				m->file_name[i], (double)m->file_shift_ns[i] / 1e9);
	if (m->moved)
		fprintf(to,
			"\n~  %" PRIu64 " packet%s stamped too late to be true: an effect was "
			"stamped before. Each is shown no later than its effect.\n",
			m->moved, m->moved == 1 ? " was" : "s were");
	if (m->beyond)
		fprintf(to, "\n%" PRIu64 " packets beyond the first %d were not looked at\n",
			m->beyond, EX_PACKETS_MAX);
	return ferror(to) ? -EIO : 0;
}
