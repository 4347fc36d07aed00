/* SPDX-License-Identifier: BSD-3-Clause */
/* trace.c - see trace.h. Owns the columns, the folding of what repeats, and the summary; knows no
 * packet and no QP but by what it is told. */
#include "explain/trace.h"

#include "explain/words.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/lock.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool rpwi_explain_on;

enum {
	TEXT_MAX = 320,
	LINE_MAX_BYTES = 2048,
	SHAPES = 256,
	SHOWN_MAX = 4,    /* lines of one shape before it is folded */
	VAIN_WORTH = 100, /* polls in vain that are worth a line */
	QPS_MAX = 64,     /* in the summary by themselves; more are added up */
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

/* A shape is a text without its numbers. */
struct shape {
	uint64_t hash; /* 0: free */
	uint8_t kind;
	unsigned shown;
	uint64_t folded, folded_at;           /* folded_at: which line was the first of them */
	char first[TEXT_MAX], last[TEXT_MAX]; /* of the folded ones */
};

struct qp_facts {
	uint32_t qpn;
	uint64_t n[RPWI_FACT_COUNT];
	unsigned failed; /* first enum ibv_wc_status */
};

static struct account {
	bool begun, ended, chinese, colours;
	int fd;
	unsigned col[COLS], width[COLS], line_width;
	uint64_t start_ns;
	_Atomic uint64_t vain;
	uint64_t all_vain;
	bool hinted; /* at a wider terminal: once, not by each child */
	uint64_t events;
	struct shape shape[SHAPES];
	unsigned nshapes, nfolded;
	uint64_t words_told; /* bit i: rpwi_explain_words[i] */
	struct qp_facts qp[QPS_MAX + 1];
	unsigned nqp, qp_at;
	char name[4096];
} acc = {.fd = -1}; /* under RPWI_LOCK_EXPLAIN */

/* ---- writing ---- */

/* The drop-in answers write(2) of its own descriptors: its hook must not be met from here, with
 * locks held. */
static void put(const char *text, size_t len)
{
	while (acc.fd >= 0 && len) {
		ssize_t n = rpwi_file_write(acc.fd, text, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		text += n;
		len -= (size_t)n;
	}
}

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
static void put_in_column(
	const char *time, enum column c, const char *colour, const char *text, unsigned indent)
{
	struct line l = {.len = 0};
	unsigned from = (c == COL_ALL ? acc.col[COL_PROGRAM] : acc.col[c]),
		 width = c == COL_ALL ? acc.line_width - from : acc.width[c], more = 0;
	do {
		size_t n = fit(text, width - more);
		add(&l, "%*s%*s", TIME_WIDTH, time, (int)(from - TIME_WIDTH + more), "");
		add(&l, "%s%.*s%s\n", acc.colours ? colour : "", (int)n, text,
			acc.colours && *colour ? "\033[0m" : "");
		text += n;
		text += strspn(text, " ");
		time = "";
		more = indent;
	} while (*text);
	put(l.text, l.len);
}

static const char *sentence(const char *en, const char *zh) { return acc.chinese ? zh : en; }

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

static void lay_out(void)
{
	struct winsize w = {0};
	unsigned width = WIDTH_DEFAULT;
	if (isatty(acc.fd) && !ioctl(acc.fd, TIOCGWINSZ, &w) && w.ws_col)
		width = RPWI_MAX((unsigned)w.ws_col, (unsigned)WIDTH_MIN);
	unsigned room = width - TIME_WIDTH - 6;
	acc.line_width = width;
	acc.col[COL_PROGRAM] = TIME_WIDTH + 2;
	if (width < WIDTH_COLUMNS) {
		for (enum column c = COL_PROGRAM; c < COLS; c++) {
			acc.col[c] = TIME_WIDTH + 2 + c * INDENT;
			acc.width[c] = width - acc.col[c];
		}
		return;
	}
	acc.width[COL_PROGRAM] = room * 40 / 100;
	acc.col[COL_STATE] = acc.col[COL_PROGRAM] + acc.width[COL_PROGRAM] + 2;
	acc.width[COL_STATE] = room * 22 / 100;
	acc.col[COL_WIRE] = acc.col[COL_STATE] + acc.width[COL_STATE] + 2;
	acc.width[COL_WIRE] = width - acc.col[COL_WIRE];
}

static void open_output(void)
{
	char name[sizeof(acc.name) + 16];
	size_t n = 0;
	if (!strcmp(acc.name, "-")) {
		/* a program may close its standard error before the end */
		acc.fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
		return;
	}
	for (const char *s = acc.name; *s && n + 16 < sizeof(name); s++) {
		if (s[0] == '%' && s[1] == 'p') {
			n += (size_t)snprintf(name + n, sizeof(name) - n, "%d", (int)getpid());
			s++;
		} else {
			name[n++] = *s;
		}
	}
	name[n] = '\0';
	acc.fd = open(name,
		O_WRONLY | O_CREAT | O_CLOEXEC | (strstr(acc.name, "%p") ? O_TRUNC : O_APPEND),
		0644);
	if (acc.fd < 0)
		rpwi_error("ROPEWAY_EXPLAIN: cannot write %s: %s", name, strerror(errno));
}

static void summary(void);

/* A server is ended by a signal as a rule: its summary must not be lost with it. The lock is only
 * tried: its holder may be the thread that was interrupted. */
static void on_end_signal(int signo)
{
	if (rpwi_lock_try(RPWI_LOCK_EXPLAIN)) {
		summary();
		rpwi_unlock(RPWI_LOCK_EXPLAIN);
	}
	signal(signo, SIG_DFL);
	raise(signo);
}

static void watch_signals(void)
{
	static const int end[] = {SIGINT, SIGTERM, SIGHUP};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(end); i++) {
		struct sigaction have, want = {.sa_handler = on_end_signal, .sa_flags = SA_RESTART};
		sigemptyset(&want.sa_mask);
		if (!sigaction(end[i], NULL, &have) && !(have.sa_flags & SA_SIGINFO) &&
			have.sa_handler == SIG_DFL)
			sigaction(end[i], &want, NULL);
	}
}

static void put_heading(void)
{
	struct timespec ts;
	struct tm tm;
	char text[TEXT_MAX], program[64] = "?";
	clock_gettime(CLOCK_REALTIME, &ts);
	localtime_r(&ts.tv_sec, &tm);
	int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		ssize_t n = read(fd, program, sizeof(program) - 1);
		program[n > 1 ? n - 1 : 0] = '\0';
		close(fd);
	}
	snprintf(text, sizeof(text),
		sentence("account of %s, pid %d. Times are in ms since %02d:%02d:%02d.%06ld",
			"%s（进程 %d）的执行记录。时间以毫秒计，起点 %02d:%02d:%02d.%06ld"),
		program, (int)getpid(), tm.tm_hour, tm.tm_min, tm.tm_sec, ts.tv_nsec / 1000);
	put_in_column("", COL_ALL, kinds[RPWI_EXPLAIN_NOTE].colour, text, 0);
	if (isatty(acc.fd) && acc.line_width < WIDTH_BEST && !acc.hinted) {
		snprintf(text, sizeof(text),
			sentence("(best with %d columns; this terminal has %u)",
				"（终端宽 %d 列时最易读；当前为 %u 列）"),
			WIDTH_BEST, acc.line_width);
		put_in_column("", COL_ALL, "", text, 0);
		acc.hinted = true;
	}
	struct line l = {.len = 0};
	if (acc.line_width < WIDTH_COLUMNS)
		add(&l, "%*s  program\n%*sstate\n%*swire\n", TIME_WIDTH, "time",
			(int)acc.col[COL_STATE], "", (int)acc.col[COL_WIRE], "");
	else
		add(&l, "%*s  %-*s  %-*s  %s\n", TIME_WIDTH, "time", (int)acc.width[COL_PROGRAM],
			"program", (int)acc.width[COL_STATE], "state", "wire");
	for (unsigned i = 0; i < acc.line_width && i < sizeof(l.text) / 2; i++)
		add(&l, "-");
	add(&l, "\n");
	put(l.text, l.len);
}

static void begin(void)
{
	acc.begun = true;
	acc.start_ns = rpwi_now_ns();
	acc.chinese = locale_is_chinese();
	open_output();
	if (acc.fd < 0)
		return;
	acc.colours = isatty(acc.fd) && !getenv("NO_COLOR");
	lay_out();
	put_heading();
	watch_signals();
}

static void at_exit(void)
{
	if (rpwi_fork_broken)
		return;
	rpwi_lock(RPWI_LOCK_EXPLAIN);
	summary();
	rpwi_unlock(RPWI_LOCK_EXPLAIN);
}

/* A child tells its own story, from its own beginning. */
static void after_fork_child(void)
{
	if (rpwi_fork_broken) { /* perhaps in the middle of a line, which has to go nowhere */
		rpwi_explain_on = false;
		rpwi_fork_mute(acc.fd);
		return;
	}
	if (acc.fd >= 0)
		close(acc.fd);
	acc.fd = -1;
	acc.begun = acc.ended = false;
	acc.events = acc.nshapes = acc.nfolded = acc.nqp = 0;
	acc.all_vain = 0;
	atomic_store_explicit(&acc.vain, 0, memory_order_relaxed);
	memset(acc.shape, 0, sizeof(acc.shape));
	memset(acc.qp, 0, sizeof(acc.qp));
}

void rpwi_explain_init(void)
{
	const char *name = secure_getenv("ROPEWAY_EXPLAIN");
	if (rpwi_explain_on || !name || !*name || strlen(name) >= sizeof(acc.name))
		return;
	assert(rpwi_explain_word_count <= 8 * sizeof(acc.words_told));
	strcpy(acc.name, name);
	if (rpwi_fork_watch(after_fork_child) || atexit(at_exit))
		return;
	rpwi_explain_on = true;
}

/* ---- shapes ---- */

static size_t number_len(const char *s)
{
	size_t n = 0;
	if (s[0] == '0' && s[1] == 'x') {
		for (n = 2; isxdigit((unsigned char)s[n]); n++)
			;
		return n;
	}
	while (isdigit((unsigned char)s[n]))
		n++;
	return n;
}

static uint64_t shape_hash(enum rpwi_explain_kind kind, const char *text)
{
	uint64_t h = kind;
	while (*text) {
		size_t n = number_len(text);
		h = rpwi_mix(h, n ? '#' : (unsigned char)*text);
		text += n ? n : 1;
	}
	return h ? h : 1;
}

static struct shape *shape_find(enum rpwi_explain_kind kind, const char *text)
{
	uint64_t h = shape_hash(kind, text);
	unsigned i = (unsigned)(h % SHAPES);
	while (acc.shape[i].hash && acc.shape[i].hash != h)
		i = (i + 1) % SHAPES;
	struct shape *s = &acc.shape[i];
	if (!s->hash) {
		s->hash = h;
		s->kind = (uint8_t)kind;
		acc.nshapes++;
	}
	return s;
}

/* Two texts of one shape as one: numbers that differ become a range. */
static void merge(const char *a, const char *b, char *out, size_t len)
{
	size_t used = 0;
	while (*a && *b && used + 1 < len) {
		size_t n = number_len(a), m = number_len(b);
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

/* The shape whose folding began first. */
static struct shape *oldest_folded(void)
{
	struct shape *oldest = NULL;
	for (unsigned i = 0; i < SHAPES; i++)
		if (acc.shape[i].folded && (!oldest || acc.shape[i].folded_at < oldest->folded_at))
			oldest = &acc.shape[i];
	return oldest;
}

static void tell_folded(void)
{
	char text[2 * TEXT_MAX + 64], merged[2 * TEXT_MAX], n[32];
	for (; acc.nfolded; acc.nfolded--) {
		struct shape *s = oldest_folded();
		merge(s->first, s->last, merged, sizeof(merged));
		snprintf(text, sizeof(text), "... %s more %s%s", grouped(s->folded, n),
			kinds[s->kind].prefix, merged);
		put_in_column("", kinds[s->kind].column, acc.colours ? "\033[2m" : "", text, 4);
		s->folded = 0;
	}
}

/* Polls since the line before: told where they happened, or not at all but in the sum. */
static void tell_vain(void)
{
	char text[96], n[32];
	uint64_t vain = atomic_exchange_explicit(&acc.vain, 0, memory_order_relaxed);
	acc.all_vain += vain;
	if (vain < VAIN_WORTH)
		return;
	snprintf(text, sizeof(text), "... ibv_poll_cq: polled %s times in vain", grouped(vain, n));
	put_in_column("", COL_PROGRAM, acc.colours ? "\033[2m" : "", text, 4);
}

/* A state changed, or rdma_cm said something: a new chapter, in which the first lines of each shape
 * are shown again. */
static void new_chapter(void)
{
	for (unsigned i = 0; i < SHAPES; i++)
		if (acc.shape[i].kind != RPWI_EXPLAIN_STATE &&
			acc.shape[i].kind != RPWI_EXPLAIN_CM_EVENT)
			acc.shape[i].shown = 0;
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
static bool was_told(const struct rpwi_explain_word *w)
{
	for (unsigned i = 0; i < rpwi_explain_word_count; i++)
		if (acc.words_told >> i & 1 && !strcmp(rpwi_explain_words[i].en, w->en))
			return true;
	return false;
}

static void tell_words(const char *text)
{
	char line[TEXT_MAX];
	for (unsigned i = 0, told = 0; i < rpwi_explain_word_count && told < WORDS_A_LINE; i++) {
		const struct rpwi_explain_word *w = &rpwi_explain_words[i];
		if (acc.words_told >> i & 1 || !has_word(text, w->word) || was_told(w))
			continue;
		acc.words_told |= 1ull << i;
		told++;
		snprintf(line, sizeof(line), "    ? %s", sentence(w->en, w->zh));
		put_in_column("", COL_ALL, acc.colours ? "\033[2;3m" : "", line, 6);
	}
}

/* ---- events ---- */

static void show(enum rpwi_explain_kind kind, const char *text)
{
	char time[32], prefixed[TEXT_MAX + 32];
	tell_folded();
	tell_vain();
	uint64_t us = (rpwi_now_ns() - acc.start_ns) / 1000;
	snprintf(time, sizeof(time), "%llu.%03llu", (unsigned long long)(us / 1000),
		(unsigned long long)(us % 1000));
	snprintf(prefixed, sizeof(prefixed), "%s%s", kinds[kind].prefix, text);
	put_in_column(time, kinds[kind].column, kinds[kind].colour, prefixed, 3);
	tell_words(prefixed);
}

void rpwi_explain_write(enum rpwi_explain_kind kind, const char *fmt, ...)
{
	char text[TEXT_MAX];
	int saved_errno = errno;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	rpwi_lock(RPWI_LOCK_EXPLAIN);
	if (!acc.begun)
		begin();
	if (acc.fd >= 0 && !acc.ended) {
		if (acc.nshapes > SHAPES * 3 / 4) {
			tell_folded();
			memset(acc.shape, 0, sizeof(acc.shape));
			acc.nshapes = acc.nfolded = 0;
		}
		struct shape *s = shape_find(kind, text);
		acc.events++;
		if (s->shown < SHOWN_MAX) {
			if (kind == RPWI_EXPLAIN_STATE || kind == RPWI_EXPLAIN_CM_EVENT)
				new_chapter();
			s->shown++;
			show(kind, text);
		} else {
			if (!s->folded++) {
				acc.nfolded++;
				s->folded_at = acc.events;
				memcpy(s->first, text, sizeof(text));
			}
			memcpy(s->last, text, sizeof(text));
		}
	}
	rpwi_unlock(RPWI_LOCK_EXPLAIN);
	errno = saved_errno;
}

void rpwi_explain_poll_in_vain(void)
{
	atomic_fetch_add_explicit(&acc.vain, 1, memory_order_relaxed);
}

/* ---- facts ---- */

static struct qp_facts *facts_of(uint32_t qpn)
{
	for (unsigned k = 0; k < acc.nqp; k++) {
		unsigned i = (acc.qp_at + k) % acc.nqp;
		if (acc.qp[i].qpn == qpn) {
			acc.qp_at = i;
			return &acc.qp[i];
		}
	}
	if (acc.nqp == QPS_MAX)
		return &acc.qp[QPS_MAX]; /* all the rest together */
	acc.qp[acc.nqp].qpn = qpn;
	return &acc.qp[acc.nqp++];
}

void rpwi_explain_fact_write(enum rpwi_explain_fact fact, uint32_t qpn, uint64_t n)
{
	rpwi_lock(RPWI_LOCK_EXPLAIN);
	struct qp_facts *f = facts_of(qpn);
	if (fact == RPWI_FACT_FAILED) {
		if (!f->failed)
			f->failed = (unsigned)n;
		f->n[fact]++;
	} else if (fact == RPWI_FACT_REJECTED) {
		f->n[fact] = n;
	} else if ((fact == RPWI_FACT_DISCONNECT || fact == RPWI_FACT_TO_ERROR) &&
		   (f->n[RPWI_FACT_DISCONNECTED] || f->n[RPWI_FACT_PEER_GONE])) {
		; /* only the answer to the peer's */
	} else {
		f->n[fact] += n ? n : 1;
	}
	rpwi_unlock(RPWI_LOCK_EXPLAIN);
}

/* ---- the summary ---- */

static uint64_t count(const struct qp_facts *f, enum rpwi_explain_fact fact) { return f->n[fact]; }
static bool over(const struct qp_facts *f)
{
	return count(f, RPWI_FACT_DISCONNECT) || count(f, RPWI_FACT_DISCONNECTED) ||
	       count(f, RPWI_FACT_PEER_GONE);
}

static bool never_answered(const struct qp_facts *f)
{
	return count(f, RPWI_FACT_RECV_FLUSHED) && !count(f, RPWI_FACT_RECV_DONE) &&
	       !count(f, RPWI_FACT_DISCONNECT) &&
	       (count(f, RPWI_FACT_DISCONNECTED) || count(f, RPWI_FACT_PEER_GONE));
}
static bool waits_in_vain(const struct qp_facts *f)
{
	return count(f, RPWI_FACT_RECV_POSTED) && !count(f, RPWI_FACT_RECV_DONE) &&
	       !count(f, RPWI_FACT_RECV_FLUSHED) && !count(f, RPWI_FACT_DISCONNECT) &&
	       (count(f, RPWI_FACT_DISCONNECTED) || count(f, RPWI_FACT_PEER_GONE));
}
static bool peer_died(const struct qp_facts *f) { return count(f, RPWI_FACT_PEER_GONE); }
static bool stopped_waiting(const struct qp_facts *f)
{
	return count(f, RPWI_FACT_RECV_FLUSHED) && !count(f, RPWI_FACT_RECV_DONE) &&
	       count(f, RPWI_FACT_ESTABLISHED) && count(f, RPWI_FACT_DISCONNECT) && !f->failed;
}
static bool sent_nothing(const struct qp_facts *f)
{
	return count(f, RPWI_FACT_ACCEPTING) && count(f, RPWI_FACT_ESTABLISHED) &&
	       !count(f, RPWI_FACT_SEND_POSTED) && over(f);
}
static bool flushed_on_purpose(const struct qp_facts *f)
{
	return (count(f, RPWI_FACT_RECV_FLUSHED) || count(f, RPWI_FACT_SEND_FLUSHED)) &&
	       (count(f, RPWI_FACT_DISCONNECT) || count(f, RPWI_FACT_TO_ERROR)) && !f->failed &&
	       !stopped_waiting(f);
}
static bool flushed_at_the_end(const struct qp_facts *f)
{
	return count(f, RPWI_FACT_RECV_FLUSHED) && count(f, RPWI_FACT_RECV_DONE) &&
	       !count(f, RPWI_FACT_DISCONNECT) && count(f, RPWI_FACT_DISCONNECTED) && !f->failed;
}
static bool sends_cut_off(const struct qp_facts *f)
{
	return count(f, RPWI_FACT_SEND_FLUSHED) && !count(f, RPWI_FACT_DISCONNECT) &&
	       count(f, RPWI_FACT_DISCONNECTED) && !f->failed;
}
static bool rnr(const struct qp_facts *f) { return count(f, RPWI_FACT_RNR_SEEN); }
static bool resent(const struct qp_facts *f) { return count(f, RPWI_FACT_RETRANSMITTED); }
static bool rejected(const struct qp_facts *f) { return count(f, RPWI_FACT_REJECTED); }
/* REJ reason 8: invalid service ID (IB 12.6.7.2) */
static bool no_listener(const struct qp_facts *f) { return count(f, RPWI_FACT_REJECTED) == 8; }
static bool unreachable(const struct qp_facts *f) { return count(f, RPWI_FACT_UNREACHABLE); }
static bool still_waiting(const struct qp_facts *f)
{
	return !over(f) && !f->failed && count(f, RPWI_FACT_RECV_POSTED) &&
	       !count(f, RPWI_FACT_RECV_DONE) && !count(f, RPWI_FACT_RECV_FLUSHED) &&
	       !count(f, RPWI_FACT_SEND_DONE);
}
static bool path_is_known(const struct qp_facts *f)
{
	for (int k = RPWI_FACT_TOO_BIG; k <= RPWI_FACT_SIZE_LOST; k++)
		if (count(f, k))
			return true;
	return false;
}
static bool retry_exc(const struct qp_facts *f)
{
	return f->failed == IBV_WC_RETRY_EXC_ERR && !path_is_known(f);
}
static bool too_big(const struct qp_facts *f) { return count(f, RPWI_FACT_TOO_BIG); }
static bool hops(const struct qp_facts *f) { return count(f, RPWI_FACT_HOPS); }
static bool no_port(const struct qp_facts *f)
{
	return count(f, RPWI_FACT_NO_PORT) && f->failed == IBV_WC_RETRY_EXC_ERR;
}
static bool no_host(const struct qp_facts *f) { return count(f, RPWI_FACT_NO_HOST); }
static bool forbidden(const struct qp_facts *f) { return count(f, RPWI_FACT_FORBIDDEN); }
static bool behind_nat(const struct qp_facts *f) { return count(f, RPWI_FACT_NAT); }
static bool size_lost(const struct qp_facts *f) { return count(f, RPWI_FACT_SIZE_LOST); }
static bool rnr_exc(const struct qp_facts *f) { return f->failed == IBV_WC_RNR_RETRY_EXC_ERR; }
static bool rem_access(const struct qp_facts *f) { return f->failed == IBV_WC_REM_ACCESS_ERR; }
static bool rem_inv(const struct qp_facts *f) { return f->failed == IBV_WC_REM_INV_REQ_ERR; }
static bool rem_op(const struct qp_facts *f) { return f->failed == IBV_WC_REM_OP_ERR; }
static bool loc_prot(const struct qp_facts *f) { return f->failed == IBV_WC_LOC_PROT_ERR; }
static bool loc_len(const struct qp_facts *f) { return f->failed == IBV_WC_LOC_LEN_ERR; }

static const struct {
	bool (*holds)(const struct qp_facts *f);
	const char *en, *zh;
} diagnoses[] = {
	{never_answered,
		"receives were flushed because the peer disconnected before it had sent anything: "
		"it accepted the connection, but never sent the answer that "
		"this "
		"program waits for. Look at the peer's account: it posted no send between "
		"ESTABLISHED and disconnect",
		"接收请求被冲刷，因为对端在发送任何数据之前就断开了连接：它接受了连接，却从未发送本"
		"程序等待的回答。请看对端的记录：它在 ESTABLISHED "
		"与断开之间没有投递任何发送请求"},
	{waits_in_vain,
		"the peer disconnected before it had sent anything, and this program still waits: "
		"it does not answer DISCONNECTED with rdma_disconnect, which "
		"would flush its "
		"receives. It accepted the connection, but never sent the answer that this program "
		"waits for",
		"对端在发送任何数据之前就断开了连接，而本程序仍在等待：它没有用 rdma_disconnect "
		"响应 DISCONNECTED "
		"事件（那样会冲刷其接收请求）。对端接受了连接，却从未发送本程序等待的回答"},
	{stopped_waiting,
		"this program disconnected before the peer had sent anything, which flushed its "
		"own receives (status 5). If it waited for an answer: the peer accepted the "
		"connection, but never sent the answer that this program waits for",
		"本程序在对端发送任何数据之前就断开了连接，自己的接收请求因此被冲刷（状态 "
		"5）。如果它在等待回答：对端接受了连接，却从未发送本程序等待的回答"},
	{sent_nothing,
		"this side accepted the connection, and posted no send between ESTABLISHED and "
		"disconnect: a client that waits for an answer gets none, and "
		"its "
		"receives are flushed (status 5)",
		"本端接受了连接，但在 ESTABLISHED "
		"与断开之间没有投递任何发送请求：等待回答的客户端得不到回答，其接收请求将被冲刷（状"
		"态 5）"},
	{peer_died, "the peer's process ended without disconnecting",
		"对端进程没有断开连接就结束了"},
	{flushed_on_purpose,
		"work requests were flushed because this program itself disconnected, or moved the "
		"QP to ERR: the normal end",
		"工作请求被冲刷是因为本程序自己断开了连接（或把 QP 置为 ERR）：正常结束"},
	{flushed_at_the_end,
		"unused receives were flushed when the peer disconnected: the normal end, if it "
		"had nothing more to send",
		"对端断开时冲刷了剩余的接收请求：如果对端已无数据要发，这是正常结束"},
	{sends_cut_off,
		"sends were flushed because the peer disconnected before it had acknowledged them: "
		"it left too early, or this side sent too late",
		"发送请求被冲刷，因为对端在确认之前就断开了：对端断开过早，或本端发送过晚"},
	{too_big,
		"packets were too big for a link on the path, and were lost there: use a smaller "
		"path MTU, or give all links the same one",
		"数据包对路径上的某段链路来说太大而丢失：使用更小的路径 MTU，或让所有链路的 MTU "
		"一致"},
	{size_lost,
		"small packets came through and large ones did not: a link on the path has a "
		"smaller MTU, and no ICMP message reports it; use a smaller path MTU",
		"小包能通过而大包不能：路径上有一段链路的 MTU 更小且无人告知；请使用更小的路径 "
		"MTU"},
	{hops,
		"the hop limit of packets was used up on the path: look for a loop in the routes, "
		"or for a small limit of the route (a datagram's is its address handle's)",
		"数据包的跳数限制在途中耗尽：请检查路由是否成环，或路由的跳数限制是否过小（数据报使"
		"用地址句柄的值）"},
	{behind_nat,
		"packets came from another address or port than their ICRC is for: there is a NAT "
		"between the two hosts, and RoCE does not pass one",
		"数据包的来源地址或端口与其 ICRC 不符：两台主机之间有 NAT，而 RoCE 无法穿过 NAT"},
	{forbidden, "a firewall on the path rejects packets to UDP port 4791: let the port pass",
		"路径上的防火墙拒绝发往 UDP 4791 端口的数据包：请放行该端口"},
	{no_host, "the peer's host was not reached: it is down, or the route to it is wrong",
		"无法到达对端主机：它未运行，或路由有误"},
	{no_port,
		"no process has UDP port 4791 on the peer's host: its program has ended, or a "
		"firewall rejects the port",
		"对端主机上没有程序使用 UDP 4791 端口：其程序已结束，或防火墙拒绝了该端口"},
	{retry_exc,
		"the peer acknowledged nothing in all retries (status 12): it is gone, or its "
		"address or QPN is wrong, or its QP is not in RTR yet",
		"无论重试多少次，对端都没有确认（状态 12）：对端已退出，或地址/QPN 有误，或其 QP "
		"尚未进入 RTR"},
	{rnr_exc,
		"the peer had no receive posted when a SEND came, not even after all retries "
		"(status 13): post receives before the peer sends",
		"SEND 到达时对端没有接收请求，重试后仍没有（状态 "
		"13）：应在对端发送之前投递接收请求"},
	{rem_access,
		"the peer refused the access (status 10): wrong rkey, or outside of the region, or "
		"its access flags do not allow it",
		"对端拒绝访问（状态 10）：rkey 错误、超出区域，或访问标志不允许"},
	{rem_inv,
		"the peer could not take the request (status 9): a message longer than the "
		"receive, or an operation that its QP does not allow",
		"对端无法接受该请求（状态 9）：消息比接收缓冲长，或其 QP 不允许该操作"},
	{rem_op,
		"the peer could not finish the request (status 11): its own memory for it was not "
		"usable",
		"对端无法完成请求（状态 11）：其自身的内存不可用"},
	{loc_prot,
		"this side's own memory could not be used (status 4): the lkey is wrong, or the "
		"region too short, or not writable",
		"本端内存不可用（状态 4）：lkey 错误、区域过短或不可写"},
	{loc_len, "a message did not fit (status 1): longer than the receive that waited for it",
		"消息放不下（状态 1）：比等待它的接收缓冲更长"},
	{no_listener, "the connection was refused: no program listens on that port at the peer",
		"连接被拒绝：对端没有程序监听该端口"},
	{rejected, "the connection was refused by the peer (REJ)", "连接被对端拒绝（REJ）"},
	{unreachable,
		"the peer did not answer the connection request: the address is wrong, no process "
		"has UDP port 4791 there, or a firewall is in between",
		"对端没有回应连接请求：地址错误、对端 UDP 4791 端口无人服务，或中间有防火墙"},
	{rnr,
		"SENDs came before the peer had posted a receive (RNR); they were sent again, "
		"which costs time",
		"SEND 早于对端投递接收请求到达（RNR）；重试会花费时间"},
	{resent,
		"packets were sent again: lost on the way, or the receiver was too slow for its "
		"socket",
		"有数据包重发：途中丢失，或接收方来不及处理"},
	{still_waiting, "receives were still waiting at the end: the peer never sent anything",
		"结束时接收请求仍在等待：对端从未发送数据"},
};

/* By which way packets went, on a line of its own. */
static void tell_ways(const struct qp_facts *f)
{
	uint64_t memory = count(f, RPWI_FACT_BY_MEMORY), udp = count(f, RPWI_FACT_BY_UDP);
	struct line l = {.len = 0};
	char n[32];
	if (!memory && !udp)
		return;
	add(&l, "%s", sentence("packets sent: ", "发送的包："));
	if (memory)
		add(&l, "%s%s", grouped(memory, n),
			sentence(" through shared memory", " 个经共享内存"));
	if (udp)
		add(&l, "%s%s%s", memory ? ", " : "", grouped(udp, n),
			sentence(" by UDP", " 个经 UDP"));
	put_in_column("", COL_ALL, "", l.text, 4);
}

static void tell_qp(const struct qp_facts *f)
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
	if (f == &acc.qp[QPS_MAX])
		add(&l, "%s", sentence("all other QPs:", "其余 QP："));
	else if (f->qpn)
		add(&l, "QP 0x%06x:", f->qpn);
	else
		add(&l, "%s", sentence("connections without a QP:", "无 QP 的连接："));
	const char *comma = " ";
	for (size_t i = 0; i < RPWI_ARRAY_LEN(parts); i++) {
		uint64_t many = count(f, parts[i].fact);
		if (!many)
			continue;
		const char *plural = *parts[i].noun && many != 1 ? "s" : "";
		add(&l, "%s%s ", comma, grouped(many, n));
		if (acc.chinese)
			add(&l, "%s", parts[i].zh);
		else
			add(&l, "%s%s%s", parts[i].noun, plural, parts[i].en);
		comma = ", ";
	}
	if (count(f, RPWI_FACT_CONNECTING) || count(f, RPWI_FACT_ACCEPTING))
		add(&l, "%s%s", comma,
			count(f, RPWI_FACT_CONNECTING)
				? sentence("connected as client", "作为客户端连接")
				: sentence("accepted as server", "作为服务器接受"));
	put_in_column("", COL_ALL, "", l.text, 4);
	tell_ways(f);
}

static void tell_diagnoses(const struct qp_facts *f, uint64_t *told, unsigned *again)
{
	char text[LINE_MAX_BYTES / 2];
	for (size_t i = 0; i < RPWI_ARRAY_LEN(diagnoses); i++) {
		if (!diagnoses[i].holds(f))
			continue;
		if (*told >> i & 1) {
			++*again;
			continue;
		}
		*told |= 1ull << i;
		snprintf(text, sizeof(text), "  => %s", sentence(diagnoses[i].en, diagnoses[i].zh));
		put_in_column("", COL_ALL, acc.colours ? "\033[1m" : "", text, 5);
	}
}

static void summary(void)
{
	uint64_t told = 0;
	unsigned again = 0, shown = 0;
	char text[TEXT_MAX];
	if (!acc.begun || acc.ended || acc.fd < 0)
		return;
	acc.ended = true;
	tell_folded();
	put_in_column("", COL_ALL, kinds[RPWI_EXPLAIN_NOTE].colour,
		sentence("---- summary ----", "---- 小结 ----"), 0);
	acc.all_vain += atomic_exchange_explicit(&acc.vain, 0, memory_order_relaxed);
	if (acc.all_vain) {
		char n[32];
		grouped(acc.all_vain, n);
		if (acc.chinese)
			snprintf(text, sizeof(text), "ibv_poll_cq：共空轮询 %s 次", n);
		else
			snprintf(text, sizeof(text), "ibv_poll_cq: polled %s time%s in vain in all",
				n, acc.all_vain == 1 ? "" : "s");
		put_in_column("", COL_ALL, "", text, 4);
	}
	for (unsigned i = 0; i <= QPS_MAX; i++) {
		const struct qp_facts *f = &acc.qp[i];
		bool used = i < acc.nqp;
		for (unsigned k = 0; k < RPWI_FACT_COUNT && i == QPS_MAX; k++)
			used |= f->n[k] != 0;
		if (!used)
			continue;
		if (shown++ < QPS_TOLD || i == QPS_MAX)
			tell_qp(f);
		tell_diagnoses(f, &told, &again);
	}
	if (shown > QPS_TOLD) {
		snprintf(text, sizeof(text), sentence("... and %u more QPs", "……另有 %u 个 QP"),
			shown - QPS_TOLD);
		put_in_column("", COL_ALL, "", text, 0);
	}
	if (again)
		put_in_column("", COL_ALL, "",
			sentence("  (the same applies to other QPs)",
				"  （以上结论也适用于其他 QP）"),
			0);
}
