/* SPDX-License-Identifier: BSD-3-Clause */
/* trace.c - see trace.h. Owns the folding of what repeats, the counts for the summary, the output,
 * and the formatter with the socket and the memory that lead to it; it knows no column and no
 * language. */
#include "explain/log.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/orphan.h"
#include "near/memory.h"
#include "near/rights.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef ROPEWAY_BINDIR
#define ROPEWAY_BINDIR "/usr/bin"
#endif

bool rpwi_explain_on;

enum {
	SHOWN_MAX = 4, /* lines of one shape before it is folded */
	FD_LEAST = 3,
	VALUE_MAX = 256,
};

/* A descriptor, and the file that it leads to: the program may close it, and get its number for
 * another file. */
struct place {
	int fd;
	struct stat file;
};

static struct account {
	bool begun, ended, is_child, ordered; /* see is_output_of_program */
	struct place out, formatter;          /* -1: none */
	struct rpwi_explain_log *log;         /* NULL: no formatter */
	uint64_t start_ns, us, words_told;    /* us: when the event came that is under way */
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

/* ---- without a formatter ---- */

static void put_plain(const struct rpwi_explain_line *l)
{
	static const char *const mark[RPWI_EXPLAIN_KINDS] = {[RPWI_EXPLAIN_ASYNC] = "async event ",
		[RPWI_EXPLAIN_TX] = "-> ",
		[RPWI_EXPLAIN_RX] = "<- ",
		[RPWI_EXPLAIN_LOST] = "-x "};
	char line[RPWI_EXPLAIN_TEXT + 64];
	int n = snprintf(line, sizeof(line), "%llu.%03llu  %s%s\n",
		(unsigned long long)l->us / 1000, (unsigned long long)l->us % 1000,
		mark[l->kind] ? mark[l->kind] : "", l->first);
	for (int at = 0; at < n && is_ours(&acc.out);) {
		ssize_t put = rpwi_file_write(acc.out.fd, line + at, (size_t)(n - at));
		if (put <= 0 && errno != EINTR)
			return;
		at += put > 0 ? (int)put : 0;
	}
}

/* ---- the formatter ---- */

static void formatter_leave(void)
{
	leave(&acc.formatter);
	if (acc.log)
		munmap(acc.log, sizeof(*acc.log));
	acc.log = NULL;
}

/* System calls, not hooks of the drop-in; no thread is canceled there. */
static bool formatter_byte(long call, char byte, int flags)
{
	long n;
	do
		n = syscall(call, acc.formatter.fd, &byte, 1, flags, NULL, NULL);
	while (n < 0 && errno == EINTR);
	return n == 1;
}

static bool formatter_answers(void) { return formatter_byte(SYS_recvfrom, 0, 0); }

static void say_how_it_goes_on(void)
{
	rpwi_error("ROPEWAY_EXPLAIN: the formatter, the command `ropeway`, cannot be started or "
		   "has ended; from here on each event is a plain line, and there is no summary");
}

/* What the formatter has not written is written here if it has ended. */
static void tell(enum rpwi_explain_word word)
{
	if (!acc.log ||
		(is_ours(&acc.formatter) && formatter_byte(SYS_sendto, (char)word, MSG_NOSIGNAL) &&
			(word == RPWI_EXPLAIN_SHOW || formatter_answers())))
		return;
	say_how_it_goes_on();
	for (uint32_t at = acc.log->written; at != acc.log->put; at++)
		put_plain(&acc.log->line[at % RPWI_EXPLAIN_LINES]);
	formatter_leave();
}

static int formatter_run(int in)
{
	static const char *const places[] = {"ropeway", "../bin/ropeway", "../../bin/ropeway",
		"../../../bin/ropeway", "../../ropeway", (ROPEWAY_BINDIR "/ropeway")};
	static const char *const keep[] = {
		"LC_ALL", "LC_MESSAGES", "LANG", "NO_COLOR", "TZ", "LD_LIBRARY_PATH"};
	enum { KEEP = RPWI_ARRAY_LEN(keep) };
	char path[PATH_MAX], value[KEEP][VALUE_MAX];
	char *argv[] = {(char[]){"ropeway"}, (char[]){"explain-events"}, NULL};
	char *envp[KEEP + 1] = {NULL};
	for (size_t i = 0, n = 0; i < KEEP; i++) {
		const char *v = getenv(keep[i]);
		if (v && snprintf(value[i], VALUE_MAX, "%s=%s", keep[i], v) < VALUE_MAX)
			envp[n++] = value[i];
	}
	struct rpwi_orphan o = {
		.path = path, .argv = argv, .envp = envp, .in = in, .out = acc.out.fd};
	if (!rpwi_orphan_find(places, RPWI_ARRAY_LEN(places), path))
		return -ENOENT;
	return rpwi_orphan_start(&o);
}

static void put_heading(struct rpwi_explain_log *log)
{
	log->layout = RPWI_EXPLAIN_LAYOUT;
	log->pid = (int)getpid();
	log->is_child = acc.is_child;
	log->words_told = acc.words_told;
	clock_gettime(CLOCK_REALTIME, &log->began);
	int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	ssize_t n = read(fd, log->program, sizeof(log->program) - 1);
	log->program[n > 1 ? n - 1 : 0] = '\0';
	close(fd);
}

/* The first answer says that the heading is written. */
static void formatter_start(void)
{
	static const char word = RPWI_EXPLAIN_BEGIN;
	void *memory;
	int pair[2] = {-1, -1};
	int fd = rpwi_memory_make("ropeway-explain", sizeof(*acc.log), RPWI_MEMORY_WRITE, &memory);
	if (fd < 0)
		return;
	acc.log = memory;
	put_heading(acc.log);
	socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
	int theirs = raised(pair[1]);
	acc.formatter = place_of(raised(pair[0]));
	bool started = theirs >= 0 && acc.formatter.fd >= 0 &&
		       !rpwi_rights_send(acc.formatter.fd, &word, 1, &fd, 1) &&
		       !formatter_run(theirs);
	close(fd);
	if (theirs >= 0)
		close(theirs);
	if (!started || !formatter_answers())
		formatter_leave();
}

/* ---- beginning and end ---- */

/* Where the program writes, too, it waits for each line: the log then stands in the order of the
 * program's own output. In a file of its own no order shows. */
static bool is_output_of_program(void)
{
	struct stat st;
	for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
		if (!fstat(fd, &st) && st.st_dev == acc.out.file.st_dev &&
			st.st_ino == acc.out.file.st_ino)
			return true;
	return isatty(acc.out.fd);
}

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

static void take_vain(void)
{
	uint64_t vain = atomic_exchange_explicit(&acc.vain, 0, memory_order_relaxed);
	if (!acc.log)
		return;
	acc.log->vain += vain;
	acc.log->all_vain += vain;
}

static void put_end(void)
{
	if (!acc.begun || acc.ended)
		return;
	acc.ended = true;
	take_vain();
	tell(RPWI_EXPLAIN_END);
	formatter_leave();
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
	acc.begun = true;
	open_output();
	if (acc.out.fd < 0) {
		acc.ended = true;
		return;
	}
	acc.ordered = is_output_of_program();
	formatter_start();
	if (!acc.log)
		say_how_it_goes_on();
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
	if (acc.log)
		acc.words_told = acc.log->words_told;
	formatter_leave();
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

/* ---- events ---- */

static uint64_t shape_hash(enum rpwi_explain_kind kind, const char *text)
{
	uint64_t h = kind;
	while (*text) {
		size_t n = rpwi_explain_number(text);
		h = rpwi_mix(h, n ? '#' : (unsigned char)*text);
		text += n ? n : 1;
	}
	return h ? h : 1;
}

static struct rpwi_explain_shape *shape_find(enum rpwi_explain_kind kind, const char *text)
{
	uint64_t h = shape_hash(kind, text);
	unsigned i = (unsigned)(h % RPWI_EXPLAIN_SHAPES);
	while (acc.log->shape[i].hash && acc.log->shape[i].hash != h)
		i = (i + 1) % RPWI_EXPLAIN_SHAPES;
	struct rpwi_explain_shape *s = &acc.log->shape[i];
	if (!s->hash) {
		s->hash = h;
		s->line.kind = kind;
		acc.log->nshapes++;
	}
	return s;
}

static void fold(struct rpwi_explain_shape *s, const char *text)
{
	if (!s->line.folded++) {
		acc.log->nfolded++;
		s->folded_at = acc.log->events;
		memcpy(s->line.first, text, sizeof(s->line.first));
	}
	memcpy(s->line.last, text, sizeof(s->line.last));
}

/* A state changed, or rdma_cm said something: a new chapter, in which the first lines of each shape
 * are shown again. */
static void new_chapter(void)
{
	for (unsigned i = 0; i < RPWI_EXPLAIN_SHAPES; i++) {
		struct rpwi_explain_shape *s = &acc.log->shape[i];
		if (s->line.kind != RPWI_EXPLAIN_STATE && s->line.kind != RPWI_EXPLAIN_CM_EVENT)
			s->shown = 0;
	}
}

static void put_line(const struct rpwi_explain_line *l)
{
	uint32_t at = acc.log->put;
	acc.log->line[at % RPWI_EXPLAIN_LINES] = *l;
	acc.log->put = ++at;
	if (at - acc.log->written == RPWI_EXPLAIN_LINES)
		tell(RPWI_EXPLAIN_WAIT);
}

/* What was folded before this event, and then the event. */
static void show(const struct rpwi_explain_line *l)
{
	uint32_t before = acc.log->put;
	while (acc.log && acc.log->nfolded) {
		struct rpwi_explain_shape *s = rpwi_explain_folded(acc.log);
		struct rpwi_explain_line folded = s->line;
		s->line.folded = 0;
		acc.log->nfolded--;
		put_line(&folded);
	}
	if (acc.log)
		put_line(l);
	if (acc.ordered)
		tell(RPWI_EXPLAIN_WAIT);
	else if (acc.log && (int32_t)(acc.log->written - before) >= 0)
		tell(RPWI_EXPLAIN_SHOW); /* else the formatter is not done, and looks once more */
	if (acc.log)
		acc.log->vain = 0;
}

static void event(struct rpwi_explain_line *l)
{
	struct rpwi_explain_log *log = acc.log;
	struct rpwi_explain_shape *s = NULL;
	bool full = log->nshapes > RPWI_EXPLAIN_SHAPES * 3 / 4;
	log->events++;
	if (!full)
		s = shape_find(l->kind, l->first);
	if (s && s->shown == SHOWN_MAX) {
		fold(s, l->first);
		return;
	}
	if (l->kind == RPWI_EXPLAIN_STATE || l->kind == RPWI_EXPLAIN_CM_EVENT)
		new_chapter();
	l->vain = log->vain;
	show(l);
	if (!acc.log)
		return;
	if (full) {
		memset(log->shape, 0, sizeof(log->shape));
		log->nshapes = 0;
		s = shape_find(l->kind, l->first);
	}
	if (s)
		s->shown++;
}

/* Locked until the caller is done: false where no more is written. */
static bool lock_and_begin(void)
{
	rpwi_lock(RPWI_LOCK_EXPLAIN);
	uint64_t now = rpwi_now_ns();
	if (!acc.begun) {
		acc.start_ns = now;
		begin();
	}
	acc.us = (now - acc.start_ns) / 1000;
	return !acc.ended;
}

void rpwi_explain_write(enum rpwi_explain_kind kind, const char *fmt, ...)
{
	struct rpwi_explain_line l;
	int saved_errno = errno;
	va_list ap;
	l.kind = kind;
	l.folded = 0;
	va_start(ap, fmt);
	vsnprintf(l.first, sizeof(l.first), fmt, ap);
	va_end(ap);
	if (lock_and_begin()) {
		take_vain();
		l.us = acc.us;
		if (acc.log)
			event(&l);
		else
			put_plain(&l);
	}
	rpwi_unlock(RPWI_LOCK_EXPLAIN);
	errno = saved_errno;
}

void rpwi_explain_poll_in_vain(void)
{
	atomic_fetch_add_explicit(&acc.vain, 1, memory_order_relaxed);
}

/* ---- facts ---- */

static struct rpwi_explain_facts *facts_of(uint32_t qpn)
{
	struct rpwi_explain_log *log = acc.log;
	for (unsigned k = 0; k < log->nqp; k++) {
		unsigned i = (log->qp_at + k) % log->nqp;
		if (log->qp[i].qpn == qpn) {
			log->qp_at = i;
			return &log->qp[i];
		}
	}
	if (log->nqp == RPWI_EXPLAIN_QPS)
		return &log->qp[RPWI_EXPLAIN_QPS]; /* all the rest together */
	log->qp[log->nqp].qpn = qpn;
	return &log->qp[log->nqp++];
}

static void count(struct rpwi_explain_facts *f, enum rpwi_explain_fact fact, uint64_t n)
{
	if (fact == RPWI_FACT_FAILED) {
		if (!f->failed)
			f->failed = (uint32_t)n;
		f->n[fact]++;
	} else if (fact == RPWI_FACT_REJECTED) {
		f->n[fact] = n;
	} else if ((fact == RPWI_FACT_DISCONNECT || fact == RPWI_FACT_TO_ERROR) &&
		   (f->n[RPWI_FACT_DISCONNECTED] || f->n[RPWI_FACT_PEER_GONE])) {
		; /* only the answer to the peer's */
	} else {
		f->n[fact] += n ? n : 1;
	}
}

void rpwi_explain_fact_write(enum rpwi_explain_fact fact, uint32_t qpn, uint64_t n)
{
	int saved_errno = errno;
	if (lock_and_begin() && acc.log)
		count(facts_of(qpn), fact, n);
	rpwi_unlock(RPWI_LOCK_EXPLAIN);
	errno = saved_errno;
}
