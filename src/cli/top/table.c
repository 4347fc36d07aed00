/* SPDX-License-Identifier: BSD-3-Clause */
/* table.c - see top.h: the columns of each level, and rows in them. At 80 columns all that has no
 * `least` fits; a wider terminal shows more. */
#include "cli/top/top.h"

#include "cli/top/words.h"

#include <inttypes.h>
#include <stdlib.h>

enum { CELL = TOP_CELL, NARROW = 80 };

struct column {
	const char *title;
	unsigned width;
	bool left;
	unsigned levels; /* a bit each */
	unsigned least;  /* columns that the terminal must have */
	void (*show)(const struct top_row *r, char out[CELL]);
	int figure; /* -1: none */
};

/* ---- cells ---- */

const char *top_number(double v, char out[TOP_NUMBER_LEN])
{
	static const char units[] = "kMGTPE";
	unsigned u = 0;
	if (v < 999.5) {
		/* a rate of one in ten seconds is not 0 */
		bool whole = v >= 9.95 || !((double)(uint64_t)v < v);
		snprintf(out, TOP_NUMBER_LEN, "%.*f", !whole, v);
		return out;
	}
	for (v /= 1000; v >= 999.5 && units[u + 1]; u++)
		v /= 1000;
	int digits = v < 99.95;
	if (v < 9.995)
		digits = 2;
	snprintf(out, TOP_NUMBER_LEN, "%.*f%c", digits, v, units[u]);
	return out;
}

static void show_device(const struct top_row *r, char out[CELL])
{
	snprintf(out, CELL, "%s%s", r->device, r->level == TOP_DEVICES && !r->up ? " (down)" : "");
}

static void show_processes(const struct top_row *r, char out[CELL])
{
	snprintf(out, CELL, "%u", r->processes);
}

static void show_qps(const struct top_row *r, char out[CELL])
{
	snprintf(out, CELL, "%" PRIu64, r->qps);
}

static void show_pid(const struct top_row *r, char out[CELL]) { snprintf(out, CELL, "%u", r->pid); }

static void show_comm(const struct top_row *r, char out[CELL])
{
	snprintf(out, CELL, "%s", r->comm);
}

static void show_qpn(const struct top_row *r, char out[CELL])
{
	snprintf(out, CELL, "0x%06x", r->qpn);
}

static void show_type(const struct top_row *r, char out[CELL])
{
	snprintf(out, CELL, "%s", top_type(r->type));
}

static void show_state(const struct top_row *r, char out[CELL])
{
	snprintf(out, CELL, "%s", top_state(r->state));
}

static void show_peer(const struct top_row *r, char out[CELL])
{
	snprintf(out, CELL, "0x%06x", r->peer_qpn);
	if (!r->peer_qpn)
		strcpy(out, "-");
}

static void show_address(const struct top_row *r, char out[CELL])
{
	strcpy(out, "-");
	if (r->peer_qpn)
		top_address(r->peer, out);
}

/* ---- columns ---- */

#define DEVICE (1u << TOP_DEVICES)
#define PROCESS (1u << TOP_PROCESSES)
#define QP (1u << TOP_QPS)
#define ALL (DEVICE | PROCESS | QP)
static const struct column columns_of[] = {
	{"DEVICE", 19, true, DEVICE, 0, show_device, -1},
	{"PROCS", 5, false, DEVICE, 0, show_processes, -1},
	{"QPN", 8, true, QP, 0, show_qpn, -1},
	{"TY", 2, true, QP, 0, show_type, -1},
	{"ST", 4, true, QP, 0, show_state, -1},
	{"PID", 7, false, PROCESS | QP, 0, show_pid, -1},
	{"COMMAND", 9, true, PROCESS, 0, show_comm, -1},
	{"DEVICE", 11, true, PROCESS, 0, show_device, -1},
	{"PEER", 8, true, QP, 0, show_peer, -1},
	{"QPS", 5, false, DEVICE | PROCESS, 0, show_qps, -1},
	{"OUT/s", 5, false, ALL, 0, NULL, TOP_OUT},
	{"IN/s", 5, false, ALL, 0, NULL, TOP_IN},
	{"TX B/s", 6, false, ALL, 0, NULL, TOP_TX},
	{"RX B/s", 6, false, ALL, 0, NULL, TOP_RX},
	{"RETRY", 5, false, ALL, 0, NULL, TOP_RETRY},
	{"RNR", 5, false, ALL, 0, NULL, TOP_RNR},
	{"ERR", 5, false, ALL, 0, NULL, TOP_ERROR},
	{"COMMAND", 15, true, QP, 97, show_comm, -1},
	{"DEVICE", 12, true, QP, 110, show_device, -1},
	{"ADDRESS", 39, true, QP, 150, show_address, -1},
};

static bool is_rate(int figure) { return figure >= 0 && figure < TOP_RETRY; }

static void cell(const struct column *c, const struct top_row *r, char out[CELL])
{
	char number[TOP_NUMBER_LEN];
	if (c->figure < 0) {
		c->show(r, out);
		return;
	}
	double v = is_rate(c->figure) ? r->rate[c->figure]
				      : (double)top_figure(&r->n, (enum top_figure)c->figure);
	snprintf(out, CELL, "%s", top_number(v, number));
}

/* What does not fit is cut; a number does. */
static void put(FILE *to, const struct column *c, const char *text, bool first)
{
	char cut[4 * CELL];
	unsigned used = rpwi_cli_columns(text, cut, sizeof(cut), c->width);
	int pad = (int)(c->width - RPWI_MIN(used, c->width));
	if (!first)
		putc(' ', to);
	if (c->left)
		fprintf(to, "%s%*s", cut, pad, "");
	else
		fprintf(to, "%*s%s", pad, "", cut);
}

/* Those of a level that fit, in order: i is where to look on. NULL: there is none any more. */
static const struct column *next(
	enum top_level level, unsigned columns, unsigned *i, unsigned *used)
{
	for (; *i < RPWI_ARRAY_LEN(columns_of); ++*i) {
		const struct column *c = &columns_of[*i];
		unsigned end = *used + (*used > 0) + c->width;
		if (!(c->levels >> level & 1) || columns < c->least || end > columns)
			continue;
		*used = end;
		++*i;
		return c;
	}
	return NULL;
}

void top_titles(FILE *to, enum top_level level, unsigned columns)
{
	unsigned i = 0, used = 0;
	const struct column *c;
	for (bool first = true; (c = next(level, columns, &i, &used)); first = false)
		put(to, c, c->title, first);
}

void top_line(FILE *to, const struct top_row *r, unsigned columns, const struct top_marks *marks)
{
	unsigned i = 0, used = 0;
	const struct column *c;
	for (bool first = true; (c = next(r->level, columns, &i, &used)); first = false) {
		bool marked = marks && c->figure >= TOP_RETRY && r->grew[c->figure];
		char text[CELL];
		cell(c, r, text);
		fputs(marked ? marks->begin : "", to);
		put(to, c, text, first);
		fputs(marked ? marks->end : "", to);
	}
}

/* ---- as text ---- */

int top_print(const struct top_look *l, enum top_level level)
{
	struct top_order order = {.by = TOP_BY_NAME};
	unsigned n;
	const struct top_row **rows = top_rows(l, level, order, &n);
	if (!rows)
		return rpwi_cli_fail(CLI_FAILED, TOP_NAME, "out of memory");
	top_titles(stdout, level, NARROW);
	putchar('\n');
	for (unsigned i = 0; i < n; i++) {
		top_line(stdout, rows[i], NARROW, NULL);
		putchar('\n');
	}
	free(rows);
	return CLI_OK;
}
