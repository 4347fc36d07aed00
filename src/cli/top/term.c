/* SPDX-License-Identifier: BSD-3-Clause */
/* term.c - see top.h: the terminal while `ropeway top` has it: keys one by one without an echo, a
 * screen of its own, no cursor. It is given back as it was at every end: a key, a signal that ends
 * or stops the process, a fault of ours. After a stop it is taken again.
 *
 * Signals are blocked but for the wait for a key, so that none comes in the middle of a frame.
 */
#include "cli/top/top.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* The other screen, without a cursor and without wrapping; and back. */
#define ENTER "\033[?1049h\033[?25l\033[?7l"
#define LEAVE "\033[?7h\033[?25h\033[?1049l"

static struct {
	struct termios before;
	bool open, taken;
	sigset_t wait; /* the signals that are blocked while it waits */
} term;
static volatile sig_atomic_t ends, stops, resized, goes_on;

static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

/* In signal handlers too. */
static void say(const char *text)
{
	size_t len = strlen(text);
	while (len) {
		ssize_t n = write(STDOUT_FILENO, text, len);
		if (n <= 0)
			return;
		text += n;
		len -= (size_t)n;
	}
}

static void take(void)
{
	struct termios t = term.before;
	t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	t.c_cc[VMIN] = 1;
	t.c_cc[VTIME] = 0;
	tcsetattr(STDIN_FILENO, TCSADRAIN, &t);
	say(ENTER);
	term.taken = true;
}

static void give_back(void)
{
	if (!term.taken)
		return;
	term.taken = false;
	say(LEAVE);
	tcsetattr(STDIN_FILENO, TCSADRAIN, &term.before);
}

static void on_signal(int sig)
{
	if (sig == SIGTSTP)
		stops = 1;
	else if (sig == SIGWINCH)
		resized = 1;
	else if (sig == SIGCONT)
		goes_on = 1;
	else
		ends = sig;
}

/* The handler was for once: the fault comes again and ends the process as it would have. */
static void on_fault(int sig)
{
	give_back();
	raise(sig);
}

static void handle(int sig, void (*with)(int), int flags)
{
	struct sigaction a = {.sa_handler = with, .sa_flags = flags}, was;
	sigaction(sig, NULL, &was);
	if (was.sa_handler == SIG_IGN && sig != SIGWINCH && sig != SIGCONT)
		return; /* nohup, or a shell without job control */
	sigaction(sig, &a, NULL);
}

int top_term_open(void)
{
	sigset_t ours;
	if (tcgetattr(STDIN_FILENO, &term.before))
		return -errno;
	sigemptyset(&ours);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(ending); i++) {
		sigaddset(&ours, ending[i]);
		handle(ending[i], on_signal, 0);
	}
	sigaddset(&ours, SIGTSTP);
	sigaddset(&ours, SIGCONT);
	sigaddset(&ours, SIGWINCH);
	handle(SIGTSTP, on_signal, 0);
	handle(SIGCONT, on_signal, 0);
	handle(SIGWINCH, on_signal, 0);
	sigprocmask(SIG_BLOCK, &ours, &term.wait);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(faults); i++)
		handle(faults[i], on_fault, (int)SA_RESETHAND);
	term.open = true;
	take();
	return 0;
}

void top_term_close(void)
{
	if (term.open)
		give_back();
	term.open = false;
}

int top_term_signal(void) { return ends; }

void top_term_size(unsigned *columns, unsigned *lines)
{
	enum { COLUMNS_MAX = 400, LINES_MAX = 1000 };
	struct winsize w = {0};
	bool known = !ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_col && w.ws_row;
	*columns = RPWI_MIN(known ? w.ws_col : 80u, (unsigned)COLUMNS_MAX);
	*lines = RPWI_MIN(known ? w.ws_row : 24u, (unsigned)LINES_MAX);
}

/* As a program that knows nothing of it would: the terminal is the shell's meanwhile. */
static void stop(void)
{
	struct sigaction ours, as_before = {.sa_handler = SIG_DFL};
	sigset_t tstp, was;
	give_back();
	sigaction(SIGTSTP, &as_before, &ours);
	sigemptyset(&tstp);
	sigaddset(&tstp, SIGTSTP);
	raise(SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &tstp, &was); /* it stops here, until it is told to go on */
	sigprocmask(SIG_SETMASK, &was, NULL);
	sigaction(SIGTSTP, &ours, NULL);
	stops = 0;
	goes_on = 1;
}

/* What the signals of the last wait ask for; TOP_KEY_NONE: nothing. */
static int asked(void)
{
	if (ends)
		return TOP_KEY_END;
	if (stops)
		stop();
	if (goes_on) { /* also after SIGSTOP, where nothing could be given back */
		give_back();
		take();
	}
	int key = goes_on || resized ? TOP_KEY_REDRAW : TOP_KEY_NONE;
	goes_on = resized = 0;
	return key;
}

bool top_term_room(void)
{
	struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
	while (!ends && ppoll(&p, 1, NULL, &term.wait) < 0 && errno == EINTR)
		;
	return !ends;
}

/* What was typed and is no key yet. */
static struct {
	char text[64];
	size_t len;
} typed;

static int typed_take(size_t n, int key)
{
	typed.len -= n;
	memmove(typed.text, typed.text + n, typed.len);
	return key;
}

/* The first of those typed. A terminal sends the bytes of one key at once. */
static int typed_key(void)
{
	static const struct {
		const char *text;
		int key;
	} keys[] = {{"\033[A", TOP_KEY_UP}, {"\033OA", TOP_KEY_UP}, {"\033[B", TOP_KEY_DOWN},
		{"\033OB", TOP_KEY_DOWN}, {"\033[5~", TOP_KEY_PAGE_UP},
		{"\033[6~", TOP_KEY_PAGE_DOWN}};
	const char *s = typed.text;
	size_t n = 2;
	if (s[0] != '\033')
		return typed_take(1, (unsigned char)s[0]);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(keys); i++) {
		size_t len = strlen(keys[i].text);
		if (len <= typed.len && !memcmp(s, keys[i].text, len))
			return typed_take(len, keys[i].key);
	}
	if (typed.len < 2 || (s[1] != '[' && s[1] != 'O'))
		return typed_take(1, TOP_KEY_OTHER);
	/* ECMA-48, 5.4: up to its final byte */
	while (n < typed.len && !(s[n] >= 0x40 && s[n] <= 0x7e))
		n++;
	return typed_take(RPWI_MIN(n + 1, typed.len), TOP_KEY_OTHER);
}

int top_term_key(uint64_t timeout_ns)
{
	struct timespec t = {.tv_sec = (time_t)(timeout_ns / RPWI_NS_PER_S),
		.tv_nsec = (long)(timeout_ns % RPWI_NS_PER_S)};
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
	int n = typed.len ? 1 : ppoll(&p, 1, &t, &term.wait);
	int key = asked();
	if (key != TOP_KEY_NONE || n <= 0)
		return key;
	if (!typed.len) {
		ssize_t got = read(STDIN_FILENO, typed.text, sizeof(typed.text));
		if (got <= 0) /* the terminal is gone */
			return TOP_KEY_END;
		typed.len = (size_t)got;
	}
	return typed_key();
}
