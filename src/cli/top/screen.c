/* SPDX-License-Identifier: BSD-3-Clause */
/* screen.c - see top.h: `ropeway top` on a terminal: a frame for each look, and what keys do. */
#include "cli/top/top.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BOLD "\033[1m"
#define REVERSED "\033[7m"
#define PLAIN "\033[0m"
#define END_LINE "\033[K\n"

/* Lines that are no rows: the head, a blank one, titles, the keys. */
enum { OTHER_LINES = 4 };

struct screen {
	struct top_look look;
	enum top_level level;
	struct top_order order;
	double interval_s;
	bool paused, helps;
	unsigned from; /* the first row that is shown */
	unsigned page; /* rows that fit */
};

static const char *const sort_name[] = {[TOP_BY_NAME] = "name",
	[TOP_BY_MESSAGES] = "messages",
	[TOP_BY_BYTES] = "bytes",
	[TOP_BY_RETRIES] = "retries",
	[TOP_BY_RNR] = "RNR NAKs",
	[TOP_BY_ERRORS] = "errors"};
static const char keys_line[] =
	"1 devices 2 processes 3 QPs  sort: m b t n e i, r reverses  space pause  ? q";
static const char *const help[] = {
	"1 2 3, Tab    devices, processes, QPs; the next of them",
	"m             sort by messages: work requests and receives, a second",
	"b             sort by bytes a second",
	"t             sort by retries",
	"n             sort by RNR NAKs",
	"e             sort by errors",
	"i             sort by name, PID, QPN",
	"r             the other way round",
	"space         pause, and go on",
	"+ -           half, or twice, the time between two looks",
	"arrows, Page  more rows",
	"? h           this help; any key leaves it",
	"q             quit",
	"",
	"OUT/s  work requests that completed a second; IN/s receives that were filled",
	"TX, RX payload a second. RETRY, RNR, ERR are counts since the process or QP",
	"       began (of a device: since its counters began); bold: it has grown",
};

/* ---- a frame ---- */

static unsigned count(const struct top_look *l, enum top_level level)
{
	unsigned n = 0;
	for (unsigned i = 0; i < l->n; i++)
		n += l->row[i].level == level;
	return n;
}

/* The same process may be on several devices. */
static unsigned count_pids(const struct top_look *l)
{
	unsigned n = 0;
	for (unsigned i = 0; i < l->n; i++)
		n += l->row[i].level == TOP_PROCESSES &&
		     (i == 0 || l->row[i - 1].level != TOP_PROCESSES ||
			     l->row[i - 1].socket_inode != l->row[i].socket_inode);
	return n;
}

static void put_cut(FILE *to, const char *text, unsigned columns)
{
	char cut[1024];
	rpwi_cli_columns(text, cut, sizeof(cut), columns);
	fputs(cut, to);
}

static void put_head(FILE *to, const struct screen *s, unsigned columns)
{
	char text[200], now[16] = "";
	time_t t = time(NULL);
	struct tm tm;
	if (localtime_r(&t, &tm))
		strftime(now, sizeof(now), "%H:%M:%S", &tm);
	unsigned d = count(&s->look, TOP_DEVICES), p = count_pids(&s->look),
		 q = count(&s->look, TOP_QPS);
	snprintf(text, sizeof(text),
		"%s%s  %u device%s, %u process%s, %u QP%s  by %s%s  every %g s", now,
		s->paused ? "  PAUSED" : "", d, rpwi_cli_plural(d), p, p == 1 ? "" : "es", q,
		rpwi_cli_plural(q), sort_name[s->order.by], s->order.reverse ? " (reversed)" : "",
		s->interval_s);
	put_cut(to, text, columns);
	fputs(END_LINE, to);
}

static void put_rows(FILE *to, struct screen *s, unsigned columns, unsigned lines)
{
	static const struct top_marks marks = {BOLD, PLAIN};
	unsigned n = 0;
	const struct top_row **rows = top_rows(&s->look, s->level, s->order, &n);
	s->page = lines > OTHER_LINES ? lines - OTHER_LINES : 1;
	s->from = RPWI_MIN(s->from, n > s->page ? n - s->page : 0);
	for (unsigned i = s->from; i < n && i < s->from + s->page; i++) {
		top_line(to, rows[i], columns, &marks);
		fputs(END_LINE, to);
	}
	if (!n)
		fputs("(none)" END_LINE, to);
	free(rows);
}

static void put_help(FILE *to, unsigned columns, unsigned lines)
{
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(help) && i + 1 < lines; i++) {
		put_cut(to, help[i], columns);
		fputs(END_LINE, to);
	}
}

static void put_frame(FILE *to, struct screen *s)
{
	unsigned columns, lines;
	top_term_size(&columns, &lines);
	fputs("\033[H", to);
	if (s->helps) {
		put_help(to, columns, lines);
		fputs("\033[J", to);
		return;
	}
	put_head(to, s, columns);
	fputs(END_LINE REVERSED, to);
	top_titles(to, s->level, columns);
	fputs(PLAIN END_LINE, to);
	put_rows(to, s, columns, lines);
	fprintf(to, "\033[J\033[%u;1H", lines);
	put_cut(to, keys_line, columns);
	fputs("\033[K", to);
}

/* In one piece, so that nothing flickers. 0 or -errno. */
static int draw(struct screen *s)
{
	char *text = NULL;
	size_t len = 0, done = 0;
	FILE *to = open_memstream(&text, &len);
	if (!to)
		return -ENOMEM;
	put_frame(to, s);
	int rc = fclose(to) ? -ENOMEM : 0;
	while (!rc && done < len) {
		ssize_t n = write(STDOUT_FILENO, text + done, len - done);
		if (n < 0 && errno == EAGAIN)
			rc = top_term_room() ? 0 : -EIO;
		else if (n < 0 && errno != EINTR)
			rc = -errno;
		done += n > 0 ? (size_t)n : 0;
	}
	free(text);
	return rc;
}

/* ---- keys ---- */

static void sort_by(struct screen *s, enum top_sort by)
{
	s->order.by = by;
	s->order.reverse = false;
	s->from = 0;
}

static bool is_sort_key(struct screen *s, int key)
{
	static const char sorts[] = {[TOP_BY_NAME] = 'i',
		[TOP_BY_MESSAGES] = 'm',
		[TOP_BY_BYTES] = 'b',
		[TOP_BY_RETRIES] = 't',
		[TOP_BY_RNR] = 'n',
		[TOP_BY_ERRORS] = 'e'};
	const char *at = key > 0 ? memchr(sorts, key, sizeof(sorts)) : NULL;
	if (at)
		sort_by(s, (enum top_sort)(at - sorts));
	return at;
}

static void show_level(struct screen *s, enum top_level level)
{
	s->level = level;
	s->from = 0;
}

static void scroll(struct screen *s, int by)
{
	int from = (int)s->from + by;
	s->from = from > 0 ? (unsigned)from : 0; /* put_rows knows the end */
}

static void change_interval(struct screen *s, double times)
{
	const double least = 0.1, most = 60;
	s->interval_s *= times;
	if (s->interval_s < least)
		s->interval_s = least;
	if (s->interval_s > most)
		s->interval_s = most;
}

static void do_key(struct screen *s, int key)
{
	switch (key) {
	case '1':
	case '2':
	case '3':
		show_level(s, (enum top_level)(key - '1'));
		break;
	case '\t':
		show_level(s, (s->level + 1) % TOP_LEVELS);
		break;
	case 'r':
		s->order.reverse = !s->order.reverse;
		break;
	case ' ':
		s->paused = !s->paused;
		break;
	case '?':
	case 'h':
		s->helps = true;
		break;
	case '+':
		change_interval(s, 0.5);
		break;
	case '-':
		change_interval(s, 2);
		break;
	case TOP_KEY_UP:
	case TOP_KEY_DOWN:
		scroll(s, key == TOP_KEY_UP ? -1 : 1);
		break;
	case TOP_KEY_PAGE_UP:
	case TOP_KEY_PAGE_DOWN:
		scroll(s, (key == TOP_KEY_PAGE_UP ? -1 : 1) * (int)s->page);
		break;
	default:
		is_sort_key(s, key);
	}
}

/* ---- the loop ---- */

static int look_again(struct screen *s)
{
	struct top_look now;
	rpwi_counters_hold(); /* without, counts end with their last process */
	int rc = top_look(&now, &s->look);
	if (rc) {
		top_free(&now);
		return rc;
	}
	top_free(&s->look);
	s->look = now;
	return 0;
}

static int loop(struct screen *s)
{
	/* the first rates come soon */
	const uint64_t first_ns = 200 * RPWI_NS_PER_MS;
	uint64_t next_ns = rpwi_now_ns() + first_ns;
	int rc = look_again(s);
	while (!rc) {
		rc = draw(s);
		uint64_t now_ns = rpwi_now_ns();
		int key = rc ? TOP_KEY_END : top_term_key(next_ns > now_ns ? next_ns - now_ns : 0);
		if (key == TOP_KEY_END)
			break;
		if (s->helps && key > 0) {
			s->helps = false;
			continue;
		}
		if (key == 'q' || key == 3)
			break;
		do_key(s, key);
		now_ns = rpwi_now_ns();
		uint64_t interval_ns = (uint64_t)(s->interval_s * RPWI_NS_PER_S);
		next_ns = RPWI_MIN(next_ns, now_ns + interval_ns);
		if (next_ns <= now_ns) {
			if (!s->paused)
				rc = look_again(s);
			next_ns = now_ns + interval_ns;
		}
	}
	return rc;
}

int top_screen(enum top_level level, double interval_s)
{
	struct screen s = {.level = level, .order = {.by = TOP_BY_BYTES}, .interval_s = interval_s};
	int rc = top_term_open();
	if (!rc)
		rc = loop(&s);
	top_term_close();
	top_free(&s.look);
	if (top_term_signal()) {
		/* ends as others see a program end by it */
		sigset_t all;
		signal(top_term_signal(), SIG_DFL);
		raise(top_term_signal());
		sigfillset(&all);
		sigprocmask(SIG_UNBLOCK, &all, NULL);
	}
	if (rc && rc != -EIO && rc != -EPIPE)
		return rpwi_cli_fail(
			CLI_FAILED, TOP_NAME, "cannot read the counters: %s", strerror(-rc));
	return CLI_OK;
}
