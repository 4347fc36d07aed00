/* SPDX-License-Identifier: BSD-3-Clause */
/* trace.c - see trace.h. Owns the output, the formatter and the socket between them and the
 * program; it knows no column and no language. */
#include "explain/trace.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/orphan.h"
#include "wire/mad.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef ROPEWAY_BINDIR
#define ROPEWAY_BINDIR "/usr/bin"
#endif

bool rpwi_explain_on;

const char *const rpwi_explain_kind_name[RPWI_EXPLAIN_KINDS] = {
	"call", "cm_call", "cm_event", "wc", "async", "state", "tx", "rx", "lost", "note"};
const char *const rpwi_explain_fact_name[RPWI_FACT_COUNT] = {"send_posted", "recv_posted",
	"send_done", "recv_done", "send_flushed", "recv_flushed", "failed", "connecting",
	"accepting", "established", "disconnect", "disconnected", "peer_gone", "rejected",
	"unreachable", "to_error", "retransmitted", "rnr_seen", "nak_seen", "by_memory", "by_udp",
	"too_big", "hops", "no_port", "no_host", "forbidden", "nat", "size_lost"};

enum { TEXT_MAX = 320, LINE_BYTES = 2048, FD_LEAST = 3, VALUE_MAX = 256 };

/* A descriptor, and the file that it leads to: the program may close it, and get its number for
 * another file. */
struct place {
	int fd;
	struct stat file;
};

static struct account {
	bool begun, ended, is_child;
	struct place out, formatter; /* -1: none */
	uint64_t start_ns;
	_Atomic uint64_t vain;
	char name[4096];
} acc = {.out.fd = -1, .formatter.fd = -1}; /* under RPWI_LOCK_EXPLAIN */

static struct place place_of(int fd)
{
	struct place p = {.fd = fd};
	if (fd >= 0 && fstat(fd, &p.file))
		p.fd = -1;
	return p;
}

static bool is_ours(const struct place *p)
{
	struct stat now;
	return p->fd >= 0 && !fstat(p->fd, &now) && now.st_dev == p->file.st_dev &&
	       now.st_ino == p->file.st_ino;
}

static void leave(struct place *p)
{
	if (is_ours(p))
		close(p->fd);
	p->fd = -1;
}

/* Above the descriptors of standard input, output and error, which a program may have closed. */
static int raised(int fd)
{
	int high = fd < 0 || fd >= FD_LEAST ? fd : fcntl(fd, F_DUPFD_CLOEXEC, FD_LEAST);
	if (high != fd)
		close(fd);
	return high;
}

/* ---- the formatter ---- */

/* System calls, not hooks of the drop-in; no thread is canceled there. */
static bool formatter_gets(const char *text, size_t len)
{
	while (len) {
		ssize_t n =
			syscall(SYS_sendto, acc.formatter.fd, text, len, MSG_NOSIGNAL, NULL, NULL);
		if (n < 0 && errno != EINTR)
			return false;
		text += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return true;
}

static bool formatter_answers(void)
{
	char byte;
	ssize_t n;
	do
		n = syscall(SYS_recvfrom, acc.formatter.fd, &byte, 1, 0, NULL, NULL);
	while (n < 0 && errno == EINTR);
	return n == 1;
}

static void formatter_start(void)
{
	static const char *const places[] = {"ropeway", "../bin/ropeway", "../../bin/ropeway",
		"../../../bin/ropeway", "../../ropeway", ROPEWAY_BINDIR "/ropeway"};
	static const char *const keep[] = {
		"LC_ALL", "LC_MESSAGES", "LANG", "NO_COLOR", "TZ", "LD_LIBRARY_PATH"};
	enum { KEEP = RPWI_ARRAY_LEN(keep) };
	char path[PATH_MAX], value[KEEP][VALUE_MAX];
	char *argv[] = {(char[]){"ropeway"}, (char[]){"explain"}, (char[]){"--events"},
		(char[]){"-"}, NULL};
	char *envp[KEEP + 1] = {NULL};
	int pair[2];
	for (size_t i = 0, n = 0; i < KEEP; i++) {
		const char *v = getenv(keep[i]);
		if (v && snprintf(value[i], VALUE_MAX, "%s=%s", keep[i], v) < VALUE_MAX)
			envp[n++] = value[i];
	}
	if (!rpwi_orphan_find(places, RPWI_ARRAY_LEN(places), path) ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return;
	int ours = raised(pair[0]), theirs = raised(pair[1]);
	struct rpwi_orphan o = {
		.path = path, .argv = argv, .envp = envp, .in = theirs, .out = acc.out.fd};
	int rc = ours < 0 || theirs < 0 ? -EMFILE : rpwi_orphan_start(&o);
	if (theirs >= 0)
		close(theirs);
	acc.formatter = place_of(ours);
	if (rc || !formatter_answers()) /* "I am there" */
		leave(&acc.formatter);
}

/* ---- lines ---- */

static void say_how_to_read(void)
{
	rpwi_error("ROPEWAY_EXPLAIN: the formatter, `ropeway explain --events`, cannot be started "
		   "or has ended; events are written as lines of JSON, for `grep '^{' FILE | "
		   "ropeway explain --events -`");
}

struct line {
	char text[LINE_BYTES];
	size_t len;
};

static void add(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct line *l, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(l->text + l->len, sizeof(l->text) - l->len, fmt, ap);
	va_end(ap);
	if (n > 0)
		l->len = RPWI_MIN(l->len + (size_t)n, sizeof(l->text) - 1);
}

/* Of strings, each at most once a line: TEXT_MAX characters of six bytes, or the headers of a
 * packet, two digits a byte. */
_Static_assert(LINE_BYTES > 6 * TEXT_MAX + 100 && TEXT_MAX >= RPWI_HDR_MAX + RPWI_MAD_LEN,
	"a line has room for them");
static void add_string(struct line *l, const char *key, const char *text)
{
	add(l, ",\"%s\":\"", key);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c < ' ' || c == '"' || c == '\\')
			add(l, "\\u%04x", c);
		else
			l->text[l->len++] = (char)c;
	}
	add(l, "\"");
}

static void add_hex(struct line *l, const char *key, const uint8_t *bytes, size_t len)
{
	static const char digit[] = "0123456789abcdef";
	add(l, ",\"%s\":\"", key);
	for (size_t i = 0; i < len; i++) {
		l->text[l->len++] = digit[bytes[i] >> 4];
		l->text[l->len++] = digit[bytes[i] & 15];
	}
	add(l, "\"");
}

/* The end of a line, and where it goes. Only what is shown is waited for. */
static void put(struct line *l, bool wait)
{
	add(l, "}\n");
	bool had = acc.formatter.fd >= 0;
	if (had && is_ours(&acc.formatter) && formatter_gets(l->text, l->len) &&
		(!wait || formatter_answers()))
		return;
	if (had) {
		leave(&acc.formatter);
		say_how_to_read();
	}
	for (size_t at = 0; at < l->len && is_ours(&acc.out);) {
		ssize_t n = rpwi_file_write(acc.out.fd, l->text + at, l->len - at);
		if (n <= 0 && errno != EINTR)
			return;
		at += n > 0 ? (size_t)n : 0;
	}
}

static void begin_line(struct line *l, const char *event)
{
	uint64_t vain = atomic_exchange_explicit(&acc.vain, 0, memory_order_relaxed);
	l->len = 0;
	add(l, "{\"event\":\"%s\",\"us\":%llu", event,
		(unsigned long long)((rpwi_now_ns() - acc.start_ns) / 1000));
	if (vain)
		add(l, ",\"vain\":%llu", (unsigned long long)vain);
}

/* ---- beginning and end ---- */

static void open_output(void)
{
	char name[sizeof(acc.name) + 16];
	size_t n = 0;
	if (!strcmp(acc.name, "-")) {
		/* a program may close its standard error before the end */
		acc.out = place_of(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, FD_LEAST));
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
	int fd = open(name,
		O_WRONLY | O_CREAT | O_CLOEXEC | (strstr(acc.name, "%p") ? O_TRUNC : O_APPEND),
		0644);
	if (fd < 0)
		rpwi_error("ROPEWAY_EXPLAIN: cannot write %s: %s", name, strerror(errno));
	acc.out = place_of(raised(fd));
}

static void put_end(void)
{
	struct line l;
	if (!acc.begun || acc.ended)
		return;
	acc.ended = true;
	begin_line(&l, "end");
	put(&l, true);
}

/* A server is ended by a signal as a rule: its summary stands before what its starter writes next.
 * The lock is only tried: its holder may be the thread that was interrupted. */
static void on_end_signal(int signo)
{
	if (rpwi_lock_try(RPWI_LOCK_EXPLAIN)) {
		put_end();
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

static void begin(void)
{
	struct line l;
	struct timespec now;
	char program[64] = "?";
	acc.begun = true;
	open_output();
	if (acc.out.fd < 0) {
		acc.ended = true;
		return;
	}
	formatter_start();
	if (acc.formatter.fd < 0)
		say_how_to_read();
	int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		ssize_t n = read(fd, program, sizeof(program) - 1);
		program[n > 1 ? n - 1 : 0] = '\0';
		close(fd);
	}
	clock_gettime(CLOCK_REALTIME, &now);
	acc.start_ns = rpwi_now_ns();
	begin_line(&l, "begin");
	add(&l, ",\"pid\":%d,\"child\":%s,\"s\":%lld,\"ns\":%ld", (int)getpid(),
		acc.is_child ? "true" : "false", (long long)now.tv_sec, now.tv_nsec);
	add_string(&l, "program", program);
	put(&l, true);
	watch_signals();
}

static void at_exit(void)
{
	if (rpwi_fork_broken)
		return;
	rpwi_lock(RPWI_LOCK_EXPLAIN);
	put_end();
	rpwi_unlock(RPWI_LOCK_EXPLAIN);
}

/* A child tells its own story, from its own beginning. */
static void after_fork_child(void)
{
	if (rpwi_fork_broken) { /* perhaps in the middle of a line, which has to go nowhere */
		rpwi_explain_on = false;
		rpwi_fork_mute(is_ours(&acc.out) ? acc.out.fd : -1);
		rpwi_fork_mute(is_ours(&acc.formatter) ? acc.formatter.fd : -1);
		return;
	}
	leave(&acc.out);
	leave(&acc.formatter);
	acc.begun = acc.ended = false;
	acc.is_child = true;
	atomic_store_explicit(&acc.vain, 0, memory_order_relaxed);
}

void rpwi_explain_init(void)
{
	const char *name = secure_getenv("ROPEWAY_EXPLAIN");
	if (rpwi_explain_on || !name || !*name || strlen(name) >= sizeof(acc.name))
		return;
	strcpy(acc.name, name);
	if (rpwi_fork_watch(after_fork_child) || atexit(at_exit))
		return;
	rpwi_explain_on = true;
}

/* ---- events and facts ---- */

/* Locked until the line was put: false where no more is written. */
static bool lock_and_begin(void)
{
	rpwi_lock(RPWI_LOCK_EXPLAIN);
	if (!acc.begun)
		begin();
	return !acc.ended;
}

void rpwi_explain_write(enum rpwi_explain_kind kind, const char *fmt, ...)
{
	char text[TEXT_MAX];
	int saved_errno = errno;
	struct line l;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (lock_and_begin()) {
		begin_line(&l, rpwi_explain_kind_name[kind]);
		add_string(&l, "text", text);
		put(&l, true);
	}
	rpwi_unlock(RPWI_LOCK_EXPLAIN);
	errno = saved_errno;
}

void rpwi_explain_packet(
	const struct rpwi_flow *flow, enum rpwi_explain_kind kind, const uint8_t *data, size_t len)
{
	bool is_mad = len >= RPWI_BTH_LEN && rpwi_get_be24(data + 5) == RPWI_GSI_QPN;
	size_t shown = RPWI_MIN(len, (size_t)RPWI_HDR_MAX + (is_mad ? RPWI_MAD_LEN : 0));
	int saved_errno = errno;
	struct line l;
	if (lock_and_begin()) {
		begin_line(&l, rpwi_explain_kind_name[kind]);
		add(&l, ",\"len\":%zu", len);
		add_hex(&l, "to", flow->dst.bytes, sizeof(flow->dst.bytes));
		add_hex(&l, "packet", data, shown);
		put(&l, true);
	}
	rpwi_unlock(RPWI_LOCK_EXPLAIN);
	errno = saved_errno;
}

void rpwi_explain_poll_in_vain(void)
{
	atomic_fetch_add_explicit(&acc.vain, 1, memory_order_relaxed);
}

void rpwi_explain_fact_write(enum rpwi_explain_fact fact, uint32_t qpn, uint64_t n)
{
	int saved_errno = errno;
	struct line l = {.len = 0};
	if (lock_and_begin()) {
		add(&l, "{\"fact\":\"%s\",\"qpn\":%u,\"n\":%llu", rpwi_explain_fact_name[fact], qpn,
			(unsigned long long)n);
		put(&l, false);
	}
	rpwi_unlock(RPWI_LOCK_EXPLAIN);
	errno = saved_errno;
}
