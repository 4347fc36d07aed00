/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.c - see watch.h.
 *
 * The program is as it would be without a parent: it is in the same process group, and has the same
 * signals ignored and blocked; whoever sends this process a signal means the program, which gets
 * it, and whoever kills this process kills the program. What the terminal sends (SIGINT, SIGQUIT)
 * goes to the whole group, so it is not passed on.
 */
#include "cli/run/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/check/check.h"
#include "cli/cli.h"

#define NAME "ropeway run"

enum {
	LOOK_MS = 1000,      /* where changes are told by none: a network's file system */
	LOOK_BLIND_MS = 100, /* where there is no inotify */
	ERROR_BUFFER = 64 * 1024,
};

/* ---- the report ---- */

static int make_own(struct rpwi_watch *w)
{
	const char *folder = getenv("TMPDIR");
	if (!folder || folder[0] != '/')
		folder = "/tmp";
	if ((size_t)snprintf(w->file, sizeof(w->file), "%s/ropeway-check-XXXXXX.jsonl", folder) >=
		sizeof(w->file))
		return -ENAMETOOLONG;
	w->own = true;
	w->fd = mkostemps(w->file, (int)strlen(".jsonl"), O_CLOEXEC);
	return w->fd < 0 ? -errno : 0;
}

/* The program may change its folder, so the name is whole. */
static int open_given(struct rpwi_watch *w)
{
	char cwd[PATH_MAX];
	struct stat st;
	bool whole = w->how.log[0] == '/';
	if (!whole && !getcwd(cwd, sizeof(cwd)))
		return -errno;
	if ((size_t)snprintf(w->file, sizeof(w->file), "%s%s%s", whole ? "" : cwd, whole ? "" : "/",
		    w->how.log) >= sizeof(w->file))
		return -ENAMETOOLONG;
	w->fd = open(w->file, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (w->fd < 0 || fstat(w->fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	return lseek(w->fd, 0, SEEK_END) < 0 ? -errno : 0;
}

int rpwi_watch_prepare(struct rpwi_watch *w, const char *spec, char *why, size_t why_len)
{
	w->spec = spec;
	w->fd = -1;
	if (rpwi_check_options_read(spec, &w->how, why, why_len))
		return -EINVAL;
	if (strstr(w->how.log, "%p")) {
		snprintf(why, why_len,
			"log: one file gets the findings of all processes, so its name has no "
			"process ID");
		return -EINVAL;
	}
	int rc = *w->how.log ? open_given(w) : make_own(w);
	if (rc)
		snprintf(why, why_len, "cannot write a report to %s: %s", w->file, strerror(-rc));
	else if (strchr(w->file, '\'') && strchr(w->file, '"'))
		snprintf(why, why_len, "%s has quotes of both kinds in its name", w->file);
	else
		return 0;
	return rc ? rc : -EINVAL;
}

/* ---- the program ---- */

struct watching {
	struct rpwi_watch *w;
	pid_t pid;
	int signals, changes; /* descriptors; changes -1: there is no inotify */
	int status;           /* of wait(2) */
	sigset_t blocked, before;
	struct sigaction on_child;
	struct ck_report report;
	struct ck_symbols *symbols;
	struct ck_suppressions *without;
	struct ck_look look;
};

/* Those that a process may be sent to say something to the program. */
static void choose_signals(sigset_t *set)
{
	static const int some[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD};
	sigemptyset(set);
	for (size_t i = 0; i < RPWI_ARRAY_LEN(some); i++)
		sigaddset(set, some[i]);
	for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++)
		sigaddset(set, sig);
}

/* SPEC, and where the findings go: the last setting of a key counts. */
static int set_variable(const struct rpwi_watch *w)
{
	char quote = strchr(w->file, '\'') ? '"' : '\'';
	const char *spec = strcmp(w->spec, "1") != 0 ? w->spec : "";
	size_t room = strlen(spec) + strlen(w->file) + 16;
	char *value = malloc(room);
	if (!value)
		return -ENOMEM;
	snprintf(value, room, "%s:log=%c%s%c", spec, quote, w->file, quote);
	int rc = setenv("ROPEWAY_CHECK", value, 1) ? -errno : 0;
	free(value);
	return rc;
}

/* Does not come back. */
static void become(const struct watching *g, pid_t parent, char **argv, int to)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(CLI_CANNOT_RUN);
	sigaction(SIGCHLD, &g->on_child, NULL);
	sigprocmask(SIG_SETMASK, &g->before, NULL);
	rpwi_cli_file_limit_as_before();
	int err = -set_variable(g->w);
	if (!err) {
		execvp(argv[0], argv);
		err = errno;
	}
	if (write(to, &err, sizeof(err)) < 0)
		_exit(CLI_FAILED);
	_exit(CLI_CANNOT_RUN);
}

/* 0, or an errno of executing it. */
static int start(struct watching *g, char **argv)
{
	const struct sigaction by_default = {.sa_handler = SIG_DFL};
	pid_t self = getpid();
	int told[2], err = 0;
	choose_signals(&g->blocked);
	sigprocmask(SIG_BLOCK, &g->blocked, &g->before);
	sigaction(SIGCHLD, &by_default, &g->on_child);
	g->signals = signalfd(-1, &g->blocked, SFD_NONBLOCK | SFD_CLOEXEC);
	if (g->signals < 0 || pipe2(told, O_CLOEXEC))
		return errno;
	g->pid = fork();
	if (!g->pid)
		become(g, self, argv, told[1]);
	close(told[1]);
	if (g->pid < 0)
		err = errno;
	else if (read(told[0], &err, sizeof(err)) != sizeof(err))
		err = 0;
	close(told[0]);
	if (err && g->pid > 0)
		waitpid(g->pid, NULL, 0);
	return err;
}

/* ---- while it runs ---- */

static void on_kind(void *arg, struct ck_kind *k)
{
	struct watching *g = arg;
	if (!g->symbols)
		g->symbols = rpwi_ck_symbols_new(0);
	if (g->symbols)
		rpwi_ck_symbolize_kind(g->symbols, k);
	k->suppressed = rpwi_ck_suppressed(g->without, k);
	if (!k->suppressed)
		rpwi_ck_show(stderr, k, &g->look);
}

static void read_report(struct watching *g)
{
	char buf[1 << 16];
	ssize_t n;
	while ((n = read(g->w->fd, buf, sizeof(buf))) > 0)
		rpwi_ck_feed(&g->report, buf, (size_t)n, on_kind, g);
}

/* True: the program has ended. */
static bool take_signals(struct watching *g)
{
	struct signalfd_siginfo si;
	bool ended = false;
	while (read(g->signals, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo == SIGCHLD)
			ended |= waitpid(g->pid, &g->status, WNOHANG) == g->pid;
		else if (si.ssi_code <= 0 && !ended) /* of a process, not of the terminal */
			kill(g->pid, (int)si.ssi_signo);
	}
	return ended;
}

static void watch(struct watching *g)
{
	char event[4096];
	struct pollfd p[2];
	bool ended = false;
	g->changes = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (g->changes >= 0 && inotify_add_watch(g->changes, g->w->file, IN_MODIFY) < 0) {
		close(g->changes);
		g->changes = -1;
	}
	while (!ended) {
		p[0] = (struct pollfd){.fd = g->signals, .events = POLLIN};
		p[1] = (struct pollfd){.fd = g->changes, .events = POLLIN};
		int rc = poll(p, 2, g->changes < 0 ? LOOK_BLIND_MS : LOOK_MS);
		if (rc > 0 && p[0].revents)
			ended = take_signals(g);
		while (g->changes >= 0 && read(g->changes, event, sizeof(event)) > 0) {
		}
		read_report(g);
	}
	if (g->changes >= 0)
		close(g->changes);
}

/* ---- when it has ended ---- */

/* What only all processes together show. */
static void show_conclusions(struct watching *g)
{
	uint32_t before = g->report.kinds;
	const bool *on = g->w->how.on;
	if ((on[RPWI_RULE_FIRST_CAUSE] && rpwi_ck_add_causes(&g->report)) ||
		(on[RPWI_RULE_PLUGIN_HANDLE] && rpwi_ck_add_handles(&g->report)))
		return;
	for (uint32_t i = before; i < g->report.kinds; i++)
		on_kind(g, &g->report.kind[i]);
}

/* How many of the program's processes are there still. */
static unsigned running(const struct ck_report *r)
{
	unsigned n = 0;
	for (uint32_t i = 0; i < r->processes; i++) {
		const struct ck_process *p = &r->process[i];
		bool newest = true;
		for (uint32_t j = i + 1; j < r->processes; j++)
			newest &= r->process[j].pid != p->pid;
		n += newest && !p->end && p->pid > 0 && (!kill(p->pid, 0) || errno == EPERM);
	}
	return n;
}

/* The status of a run that ended by itself. */
static int conclude(struct watching *g, int status)
{
	struct ck_totals t;
	show_conclusions(g);
	t = rpwi_ck_totals(&g->report);
	bool found = t.kinds[RPWI_SEVERITY_ERROR] || t.kinds[RPWI_SEVERITY_WARNING];
	unsigned alive = running(&g->report);
	bool keep = !g->w->own || found || t.kinds[RPWI_SEVERITY_NOTE] || alive;
	rpwi_ck_summary(stderr, &g->report, keep ? g->w->file : NULL);
	if (alive)
		fprintf(stderr,
			"ropeway: %u process%s still running, and not counted: see the report "
			"when %s ended\n",
			alive, alive == 1 ? " is" : "es are", alive == 1 ? "it has" : "they have");
	if (!keep)
		unlink(g->w->file);
	fflush(stderr);
	return found && g->w->how.exitcode ? g->w->how.exitcode : status;
}

/* As the program did; its core, if any, is the one that counts. */
static void die_by(int sig)
{
	const struct rlimit none = {0, 0};
	sigset_t set;
	setrlimit(RLIMIT_CORE, &none);
	signal(sig, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, sig);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	raise(sig);
}

/* Nothing has run, so nobody wants the file that was made for it. */
static void drop_own(const struct rpwi_watch *w)
{
	if (w->own)
		unlink(w->file);
}

static void clean(struct watching *g)
{
	rpwi_ck_free(&g->report);
	rpwi_ck_symbols_free(g->symbols);
	rpwi_ck_suppressions_free(g->without);
	if (g->signals >= 0)
		close(g->signals);
	close(g->w->fd);
	free(g);
}

int rpwi_watch_run(struct rpwi_watch *w, char **argv, int (*cannot_run)(const char *, int))
{
	static const char *const when[] = {"auto", "always", "never"};
	char why[RPWI_WHY_LEN];
	struct watching *g = calloc(1, sizeof(*g));
	if (!g)
		return rpwi_cli_fail(CLI_FAILED, NAME, "out of memory");
	g->w = w;
	g->signals = -1;
	if (*w->how.suppress &&
		rpwi_ck_suppressions_read(w->how.suppress, &g->without, why, sizeof(why))) {
		drop_own(w);
		clean(g);
		return rpwi_cli_fail(CLI_USAGE, NAME, "--check: suppress: %s", why);
	}
	g->look = rpwi_ck_look(STDERR_FILENO, when[w->how.color], w->how.columns);
	int err = start(g, argv);
	if (err) {
		drop_own(w);
		clean(g);
		return cannot_run(argv[0], err);
	}
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stderr, NULL, _IOFBF, ERROR_BUFFER);
	watch(g);
	int sig = WIFSIGNALED(g->status) ? WTERMSIG(g->status) : 0;
	int status = conclude(g, sig ? 128 + sig : WEXITSTATUS(g->status));
	clean(g);
	if (sig)
		die_by(sig);
	return status;
}
