/* SPDX-License-Identifier: BSD-3-Clause */
/* account.c - the events of one process as lines: columns, the counts of what was folded, sentences
 * about words that appear for the first time, and the summary. It knows no socket and no packet. */
#include "cli/explain/explain.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
	TEXT_MAX = RPWI_EXPLAIN_TEXT,
	LINE_MAX_BYTES = 2048,
	VAIN_WORTH = 100, /* polls in vain that are worth a line */
	QPS_TOLD = 8,
	TIME_WIDTH = 11,
	WIDTH_DEFAULT = 132,
	WIDTH_MIN = 72,
	/* below, there is no room for columns: states and the wire are indented instead */
	WIDTH_COLUMNS = 100,
	WIDTH_BEST = 120,
	INDENT = 3,
	WORDS_A_LINE = 2,
};

enum column { COL_PROGRAM, COL_STATE, COL_WIRE, COL_ALL, COLS = COL_ALL };

static const struct {
	enum column column;
	const char *colour;
	const char *prefix;
} kinds[RPWI_EXPLAIN_KINDS] = {
	[RPWI_EXPLAIN_CALL] = {COL_PROGRAM, "", ""},
	[RPWI_EXPLAIN_CM_CALL] = {COL_PROGRAM, "", ""},
	[RPWI_EXPLAIN_CM_EVENT] = {COL_PROGRAM, "\033[35m", ""},
	[RPWI_EXPLAIN_WC] = {COL_PROGRAM, "\033[32m", ""},
	[RPWI_EXPLAIN_ASYNC] = {COL_PROGRAM, "\033[35m", "async event "},
	[RPWI_EXPLAIN_STATE] = {COL_STATE, "\033[33m", ""},
	[RPWI_EXPLAIN_TX] = {COL_WIRE, "\033[36m", "-> "},
	[RPWI_EXPLAIN_RX] = {COL_WIRE, "\033[34m", "<- "},
	[RPWI_EXPLAIN_LOST] = {COL_WIRE, "\033[31m", "-x "},
	[RPWI_EXPLAIN_NOTE] = {COL_ALL, "\033[1m", ""},
};

struct ex_account {
	FILE *to;
	bool colours;
	enum ex_language language;
	unsigned col[COLS], width[COLS], line_width;
	struct rpwi_explain_log *log;
};

/* ---- writing ---- */

/* Bytes of the UTF-8 character at s, and the columns it takes: ours are ASCII (1) and Chinese
 * (2). */
static size_t char_len(const char *s, unsigned *cells)
{
	unsigned char c = (unsigned char)s[0];
	size_t want = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4, n = 1;
	while (n < want && (s[n] & 0xc0) == 0x80)
		n++;
	*cells = n >= 3 ? 2 : 1;
	return n;
}

/* What no line of Chinese begins with. */
static bool is_closing(const char *s)
{
	static const char *const closing[] = {"，", "。", "；", "：", "、", "）", "”", "？", "！"};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(closing); i++)
		if (!strncmp(s, closing[i], strlen(closing[i])))
			return true;
	return false;
}

/* How many bytes of s fit into `width` columns, broken at a blank where there is one. */
static size_t fit(const char *s, unsigned width)
{
	size_t at = 0, blank = 0;
	unsigned used = 0, cells;
	while (s[at]) {
		size_t n = char_len(s + at, &cells);
		if (used + cells > width)
			return blank ? blank : at ? at : n;
		if (s[at] == ' ' && at)
			blank = at;
		/* between Chinese characters a line may end anywhere */
		if (cells == 2 && !is_closing(s + at + n))
			blank = at + n;
		used += cells;
		at += n;
	}
	return at;
}

/* One event in its column, wrapped there. `time` is "" on the lines that follow the first. */
static void put_in_column(struct ex_account *a, const char *time, enum column c, const char *colour,
	const char *text, unsigned indent)
{
	unsigned from = c == COL_ALL ? a->col[COL_PROGRAM] : a->col[c],
		 width = c == COL_ALL ? a->line_width - from : a->width[c], more = 0;
	do {
		size_t n = fit(text, width - more);
		fprintf(a->to, "%*s%*s%s%.*s%s\n", TIME_WIDTH, time,
			(int)(from - TIME_WIDTH + more), "", a->colours ? colour : "", (int)n, text,
			a->colours && *colour ? "\033[0m" : "");
		text += n;
		text += strspn(text, " ");
		time = "";
		more = indent;
	} while (*text);
}

/* Over all columns. */
static void put_note(struct ex_account *a, const char *colour, const char *text, unsigned indent)
{
	put_in_column(a, "", COL_ALL, colour, text, indent);
}

/* A text of the program's memory: it may have no end, and any bytes. */
static const char *text_of(const char *from, size_t room, char out[TEXT_MAX])
{
	char copy[TEXT_MAX] = "";
	memcpy(copy, from, RPWI_MIN(room, sizeof(copy) - 1));
	return rpwi_cli_printable(copy, out, TEXT_MAX);
}

static const char *sentence(const struct ex_account *a, const char *en, const char *zh)
{
	return a->language == EX_CHINESE ? zh : en;
}

/* ---- beginning ---- */

static bool locale_is_chinese(void)
{
	static const char *const names[] = {"LC_ALL", "LC_MESSAGES", "LANG"};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(names); i++) {
		const char *v = getenv(names[i]);
		if (v && *v)
			return !strncmp(v, "zh", 2);
	}
	return false;
}

static void lay_out(struct ex_account *a)
{
	struct winsize w = {0};
	int fd = fileno(a->to);
	unsigned width = WIDTH_DEFAULT;
	if (isatty(fd) && !ioctl(fd, TIOCGWINSZ, &w) && w.ws_col)
		width = RPWI_MAX((unsigned)w.ws_col, (unsigned)WIDTH_MIN);
	unsigned room = width - TIME_WIDTH - 6;
	a->line_width = width;
	a->col[COL_PROGRAM] = TIME_WIDTH + 2;
	if (width < WIDTH_COLUMNS) {
		for (enum column c = COL_PROGRAM; c < COLS; c++) {
			a->col[c] = TIME_WIDTH + 2 + c * INDENT;
			a->width[c] = width - a->col[c];
		}
		return;
	}
	a->width[COL_PROGRAM] = room * 40 / 100;
	a->col[COL_STATE] = a->col[COL_PROGRAM] + a->width[COL_PROGRAM] + 2;
	a->width[COL_STATE] = room * 22 / 100;
	a->col[COL_WIRE] = a->col[COL_STATE] + a->width[COL_STATE] + 2;
	a->width[COL_WIRE] = width - a->col[COL_WIRE];
}

static void put_heading(struct ex_account *a)
{
	char text[TEXT_MAX], program[TEXT_MAX];
	struct tm tm = {0};
	struct timespec began = a->log->began;
	localtime_r(&began.tv_sec, &tm);
	snprintf(text, sizeof(text),
		sentence(a, "account of %s, pid %d. Times are in ms since %02d:%02d:%02d.%06ld",
			"%s（进程 %d）的执行记录。时间以毫秒计，起点 %02d:%02d:%02d.%06ld"),
		text_of(a->log->program, sizeof(a->log->program), program), a->log->pid, tm.tm_hour,
		tm.tm_min, tm.tm_sec, began.tv_nsec / 1000);
	put_note(a, kinds[RPWI_EXPLAIN_NOTE].colour, text, 0);
	if (isatty(fileno(a->to)) && a->line_width < WIDTH_BEST && !a->log->is_child) {
		snprintf(text, sizeof(text),
			sentence(a, "(best with %d columns; this terminal has %u)",
				"（终端宽 %d 列时最易读；当前为 %u 列）"),
			WIDTH_BEST, a->line_width);
		put_note(a, "", text, 0);
	}
	if (a->line_width < WIDTH_COLUMNS)
		fprintf(a->to, "%*s  program\n%*sstate\n%*swire\n", TIME_WIDTH, "time",
			(int)a->col[COL_STATE], "", (int)a->col[COL_WIRE], "");
	else
		fprintf(a->to, "%*s  %-*s  %-*s  %s\n", TIME_WIDTH, "time",
			(int)a->width[COL_PROGRAM], "program", (int)a->width[COL_STATE], "state",
			"wire");
	for (unsigned i = 0; i < a->line_width && i < LINE_MAX_BYTES / 2; i++)
		putc('-', a->to);
	putc('\n', a->to);
}

struct ex_account *rpwi_explain_account(FILE *to, struct rpwi_explain_log *log)
{
	struct ex_account *a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	assert(rpwi_explain_words <= 8 * sizeof(log->words_told));
	a->to = to;
	a->log = log;
	a->language = locale_is_chinese() ? EX_CHINESE : EX_ENGLISH;
	a->colours = isatty(fileno(to)) && !getenv("NO_COLOR");
	lay_out(a);
	put_heading(a);
	return a;
}

/* ---- what was folded ---- */

/* Two texts of one shape as one: numbers that differ become a range. */
static void merge(const char *a, const char *b, char *out, size_t len)
{
	size_t used = 0;
	while (*a && *b && used + 1 < len) {
		size_t n = rpwi_explain_number(a), m = rpwi_explain_number(b);
		if (!n || !m) {
			out[used++] = *a++;
			b++;
			continue;
		}
		bool same = n == m && !memcmp(a, b, n);
		used += (size_t)snprintf(
			out + used, len - used, same ? "%.*s" : "%.*s..%.*s", (int)n, a, (int)m, b);
		used = RPWI_MIN(used, len - 1);
		a += n;
		b += m;
	}
	out[used] = '\0';
}

/* "1,234,567" */
static const char *grouped(uint64_t n, char out[32])
{
	char digits[24];
	int len = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)n), at = 0;
	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			out[at++] = ',';
		out[at++] = digits[i];
	}
	out[at] = '\0';
	return out;
}

static void tell_folded(struct ex_account *a, const struct rpwi_explain_line *l)
{
	char text[2 * TEXT_MAX + 64], merged[2 * TEXT_MAX], first[TEXT_MAX], last[TEXT_MAX], n[32];
	merge(text_of(l->first, sizeof(l->first), first), text_of(l->last, sizeof(l->last), last),
		merged, sizeof(merged));
	snprintf(text, sizeof(text), "... %s more %s%s", grouped(l->folded, n),
		kinds[l->kind].prefix, merged);
	put_in_column(a, "", kinds[l->kind].column, a->colours ? "\033[2m" : "", text, 4);
}

/* Polls since the line before: told where they happened, or not at all but in the sum. */
static void tell_vain(struct ex_account *a, uint64_t vain)
{
	char text[96], n[32];
	if (vain < VAIN_WORTH)
		return;
	snprintf(text, sizeof(text), "... ibv_poll_cq: polled %s times in vain", grouped(vain, n));
	put_in_column(a, "", COL_PROGRAM, a->colours ? "\033[2m" : "", text, 4);
}

/* ---- words ---- */

static bool is_word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool has_word(const char *text, const char *word)
{
	size_t n = strlen(word);
	for (const char *at = text; (at = strstr(at, word)); at++)
		if ((at == text || !is_word_char(at[-1])) && !is_word_char(at[n]))
			return true;
	return false;
}

/* Two words may share a sentence. */
static bool was_told(const struct ex_account *a, const struct ex_words *w)
{
	for (unsigned i = 0; i < rpwi_explain_words; i++)
		if (a->log->words_told >> i & 1 &&
			!strcmp(rpwi_explain_word[i].text[0], w->text[0]))
			return true;
	return false;
}

static void tell_words(struct ex_account *a, const char *text)
{
	char line[TEXT_MAX];
	for (unsigned i = 0, told = 0; i < rpwi_explain_words && told < WORDS_A_LINE; i++) {
		const struct ex_words *w = &rpwi_explain_word[i];
		if (a->log->words_told >> i & 1 || !has_word(text, w->key) || was_told(a, w))
			continue;
		a->log->words_told |= 1ull << i;
		told++;
		snprintf(line, sizeof(line), "    ? %s", w->text[a->language]);
		put_note(a, a->colours ? "\033[2;3m" : "", line, 6);
	}
}

/* ---- events ---- */

static void put_line(struct ex_account *a, const struct rpwi_explain_line *of_program)
{
	char time[32], text[TEXT_MAX], prefixed[TEXT_MAX + 32];
	struct rpwi_explain_line l = *of_program;
	if (l.kind >= RPWI_EXPLAIN_KINDS)
		return;
	if (l.folded) {
		tell_folded(a, &l);
		return;
	}
	tell_vain(a, l.vain);
	snprintf(time, sizeof(time), "%llu.%03llu", (unsigned long long)(l.us / 1000),
		(unsigned long long)(l.us % 1000));
	snprintf(prefixed, sizeof(prefixed), "%s%s", kinds[l.kind].prefix,
		text_of(l.first, sizeof(l.first), text));
	put_in_column(a, time, kinds[l.kind].column, kinds[l.kind].colour, prefixed, 3);
	tell_words(a, prefixed);
}

/* The program wakes us only for the first line: lines that it puts meanwhile are looked for. */
void rpwi_explain_account_show(struct ex_account *a)
{
	struct rpwi_explain_log *log = a->log;
	uint32_t put, at = log->written;
	do {
		put = log->put;
		for (unsigned i = 0; at != put && i < RPWI_EXPLAIN_LINES; i++)
			put_line(a, &log->line[at++ % RPWI_EXPLAIN_LINES]);
		fflush(a->to);
		/* A full disk is no reason to leave: there may be room later. */
		clearerr(a->to);
		log->written = at = put;
	} while (put != log->put);
}

/* ---- the summary ---- */

struct line {
	char text[LINE_MAX_BYTES];
	size_t len;
};

static void add(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct line *l, const char *fmt, ...)
{
	va_list ap;
	if (l->len + 1 >= sizeof(l->text))
		return;
	va_start(ap, fmt);
	int n = vsnprintf(l->text + l->len, sizeof(l->text) - l->len, fmt, ap);
	va_end(ap);
	if (n > 0)
		l->len = RPWI_MIN(l->len + (size_t)n, sizeof(l->text) - 1);
}

/* By which way packets went, on a line of its own. */
static void tell_ways(struct ex_account *a, const struct rpwi_explain_facts *f)
{
	uint64_t memory = f->n[RPWI_FACT_BY_MEMORY], udp = f->n[RPWI_FACT_BY_UDP];
	struct line l = {.len = 0};
	char n[32];
	if (!memory && !udp)
		return;
	add(&l, "%s", sentence(a, "packets sent: ", "发送的包："));
	if (memory)
		add(&l, "%s%s", grouped(memory, n),
			sentence(a, " through shared memory", " 个经共享内存"));
	if (udp)
		add(&l, "%s%s%s", memory ? ", " : "", grouped(udp, n),
			sentence(a, " by UDP", " 个经 UDP"));
	put_note(a, "", l.text, 4);
}

static void tell_qp(struct ex_account *a, const struct rpwi_explain_facts *f)
{
	static const struct {
		enum rpwi_explain_fact fact;
		const char *noun, *en, *zh; /* noun: takes an s where there are several */
	} parts[] = {
		{RPWI_FACT_SEND_POSTED, "send", " posted", "个发送请求"},
		{RPWI_FACT_SEND_DONE, "", "done", "个发送完成"},
		{RPWI_FACT_SEND_FLUSHED, "", "flushed", "个发送被冲刷"},
		{RPWI_FACT_RECV_POSTED, "receive", " posted", "个接收请求"},
		{RPWI_FACT_RECV_DONE, "", "filled", "个接收完成"},
		{RPWI_FACT_RECV_FLUSHED, "", "flushed", "个接收被冲刷"},
		{RPWI_FACT_FAILED, "", "failed", "个失败"},
		{RPWI_FACT_RETRANSMITTED, "packet", " sent again", "个包重发"},
		{RPWI_FACT_NAK_SEEN, "NAK", " received", "个 NAK"},
		{RPWI_FACT_RNR_SEEN, "RNR NAK", " received", "个 RNR NAK"},
	};
	struct line l = {.len = 0};
	char n[32];
	if (f == &a->log->qp[RPWI_EXPLAIN_QPS])
		add(&l, "%s", sentence(a, "all other QPs:", "其余 QP："));
	else if (f->qpn)
		add(&l, "QP 0x%06x:", f->qpn);
	else
		add(&l, "%s", sentence(a, "connections without a QP:", "无 QP 的连接："));
	const char *comma = " ";
	for (size_t i = 0; i < RPWI_ARRAY_LEN(parts); i++) {
		uint64_t many = f->n[parts[i].fact];
		if (!many)
			continue;
		const char *plural = *parts[i].noun && many != 1 ? "s" : "";
		add(&l, "%s%s ", comma, grouped(many, n));
		if (a->language == EX_CHINESE)
			add(&l, "%s", parts[i].zh);
		else
			add(&l, "%s%s%s", parts[i].noun, plural, parts[i].en);
		comma = ", ";
	}
	if (f->n[RPWI_FACT_CONNECTING] || f->n[RPWI_FACT_ACCEPTING])
		add(&l, "%s%s", comma,
			f->n[RPWI_FACT_CONNECTING]
				? sentence(a, "connected as client", "作为客户端连接")
				: sentence(a, "accepted as server", "作为服务器接受"));
	put_note(a, "", l.text, 4);
	tell_ways(a, f);
}

static void tell_diagnoses(
	struct ex_account *a, const struct rpwi_explain_facts *f, uint32_t *told, bool *again)
{
	char text[LINE_MAX_BYTES / 2];
	uint32_t found = rpwi_explain_diagnose(f);
	for (unsigned i = 0; i < EX_DIAGNOSES; i++) {
		if (!(found & ~*told & 1u << i))
			continue;
		snprintf(
			text, sizeof(text), "  => %s", rpwi_explain_diagnosis[i].text[a->language]);
		put_note(a, a->colours ? "\033[1m" : "", text, 5);
	}
	*again |= found & *told;
	*told |= found;
}

void rpwi_explain_account_end(struct ex_account *a)
{
	uint32_t told = 0;
	unsigned shown = 0;
	bool again = false;
	char text[TEXT_MAX];
	rpwi_explain_account_show(a);
	struct rpwi_explain_shape *s = rpwi_explain_folded(a->log);
	for (unsigned i = 0; s && i < RPWI_EXPLAIN_SHAPES; i++) {
		put_line(a, &s->line);
		s->line.folded = 0;
		s = rpwi_explain_folded(a->log);
	}
	put_note(a, kinds[RPWI_EXPLAIN_NOTE].colour,
		sentence(a, "---- summary ----", "---- 小结 ----"), 0);
	uint64_t vain = a->log->all_vain;
	if (vain) {
		char n[32];
		grouped(vain, n);
		if (a->language == EX_CHINESE)
			snprintf(text, sizeof(text), "ibv_poll_cq：共空轮询 %s 次", n);
		else
			snprintf(text, sizeof(text), "ibv_poll_cq: polled %s time%s in vain in all",
				n, vain == 1 ? "" : "s");
		put_note(a, "", text, 4);
	}
	for (unsigned i = 0; i <= RPWI_EXPLAIN_QPS; i++) {
		const struct rpwi_explain_facts *f = &a->log->qp[i];
		bool used = i < a->log->nqp;
		for (unsigned k = 0; k < RPWI_FACT_COUNT && i == RPWI_EXPLAIN_QPS; k++)
			used |= f->n[k] != 0;
		if (!used)
			continue;
		if (shown++ < QPS_TOLD || i == RPWI_EXPLAIN_QPS)
			tell_qp(a, f);
		tell_diagnoses(a, f, &told, &again);
	}
	if (shown > QPS_TOLD) {
		snprintf(text, sizeof(text), sentence(a, "... and %u more QPs", "……另有 %u 个 QP"),
			shown - QPS_TOLD);
		put_note(a, "", text, 0);
	}
	if (again)
		put_note(a, "",
			sentence(a, "  (the same applies to other QPs)",
				"  （以上结论也适用于其他 QP）"),
			0);
	fflush(a->to);
	free(a);
}
