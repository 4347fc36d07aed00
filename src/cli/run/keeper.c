/* SPDX-License-Identifier: BSD-3-Clause */
/* keeper.c - see keeper.h.
 *
 * A file of tmpfs cannot be computed when it is read, so the keeper writes each counter that has
 * changed anew, once in TICK_MS: into a file beside its folder, which then takes its name. So who
 * reads has a whole number, the old one or the new one.
 *
 * It holds a lock (flock) on a folder of counters, which is nobody else's to see: that is how there
 * is one. It waits for the end of one process in the namespace, then looks for another; where there
 * is none it ends. A run that joins in this moment finds the lock held, so the keeper gives it back
 * and looks once more.
 */
#include "cli/run/keeper.h"

#include "base/base.h"
#include "cli/run/space.h"
#include "tree/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TICK_MS = 1000, NUMBER_MAX = 32 };

/* What its file has now. */
struct counter {
	const char *path;
	char text[NUMBER_MAX];
};

struct keeper {
	struct counter *counter;
	unsigned n;
	dev_t dev;       /* of the tmpfs */
	int lock, other; /* other: a pidfd of one for whom it is kept, or -errno */
};

/* ---- the files ---- */

/* .../ports/1/counters/NAME: ends behind `up` of its last parts. */
static void folder_of(const char *path, unsigned up, char *folder, size_t size)
{
	snprintf(folder, size, "%s", path);
	for (char *slash; up && (slash = strrchr(folder, '/')); up--)
		*slash = '\0';
}

static void replace(const char *path, const char *text, size_t len)
{
	char folder[RPWI_TREE_PATH_MAX], next[RPWI_TREE_PATH_MAX + 16];
	folder_of(path, 2, folder, sizeof(folder));
	snprintf(next, sizeof(next), "%s/.counter", folder);
	unlink(next); /* of a keeper that was killed */
	if (rpwi_plan_write(next, text, len, 0444) || rename(next, path))
		unlink(next);
}

/* What the starter has written, or a keeper that was killed. */
static void read_now(struct counter *c)
{
	int fd = open(c->path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, c->text, sizeof(c->text) - 1);
	c->text[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		close(fd);
}

/* An interface that has gone has no counters any more: its files stay as they are. */
static void update(struct keeper *k)
{
	struct rpwi_tree tree = {0};
	char text[RPWI_SYSFS_FILE_MAX];
	rpwi_tree_open(&tree);
	for (unsigned i = 0; i < k->n; i++) {
		struct counter *c = &k->counter[i];
		struct rpwi_node node = rpwi_tree_node(&tree, c->path);
		size_t len = 0;
		if (node.kind != RPWI_NODE_FILE || rpwi_tree_show(&node, text, &len) ||
			len >= sizeof(c->text) ||
			(strlen(c->text) == len && !memcmp(c->text, text, len)))
			continue;
		replace(c->path, text, len);
		memcpy(c->text, text, len);
		c->text[len] = '\0';
	}
	rpwi_tree_close(&tree);
}

/* ---- its life ---- */

/* False: nobody is left, or another keeper is there. */
static bool find_other(struct keeper *k)
{
	k->other = rpwi_space_other(k->dev);
	if (k->other != -ESRCH)
		return true;
	flock(k->lock, LOCK_UN);
	k->other = rpwi_space_other(k->dev);
	return k->other != -ESRCH && !flock(k->lock, LOCK_EX | LOCK_NB);
}

static void keep(struct keeper *k)
{
	uint64_t next_ns = 0;
	while (k->other >= 0 || find_other(k)) {
		uint64_t now_ns = rpwi_now_ns();
		if (next_ns <= now_ns) {
			update(k);
			next_ns = now_ns + TICK_MS * RPWI_NS_PER_MS;
		}
		struct pollfd p = {.fd = k->other, .events = POLLIN};
		poll(&p, 1, (int)((next_ns - now_ns) / RPWI_NS_PER_MS) + 1);
		if (k->other >= 0 && p.revents) {
			close(k->other);
			k->other = -EAGAIN;
		}
	}
}

/* What is the starter's: its terminal, descriptors, turn and priority. */
static void leave_starter(void)
{
	const struct sched_param none = {0};
	sigset_t all;
	setsid();
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	signal(SIGXFSZ, SIG_IGN); /* a limit of its starter's: the write fails, and that is all */
	sigemptyset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	sched_setscheduler(0, SCHED_OTHER, &none);
	int null = open("/dev/null", O_RDWR);
	for (int fd = 0; fd <= 2; fd++)
		dup2(null, fd);
	if (syscall(SYS_close_range, 3u, ~0u, 0u)) /* before Linux 5.9 */
		for (int fd = 3; fd < 65536; fd++)
			close(fd);
	if (chdir("/"))
		_exit(1);
	prctl(PR_SET_NAME, "ropeway-keeper");
}

static void keeper_main(const struct rpwi_plan *plan)
{
	struct keeper k = {.other = -EAGAIN};
	struct stat st;
	char folder[RPWI_TREE_PATH_MAX];
	const char *path;
	unsigned at = 0;
	leave_starter();
	k.counter = calloc(plan->n, sizeof(*k.counter));
	while (k.counter && (path = rpwi_plan_counter(plan, &at))) {
		k.counter[k.n].path = path;
		read_now(&k.counter[k.n++]);
	}
	if (!k.n)
		_exit(0);
	folder_of(k.counter[0].path, 1, folder, sizeof(folder));
	k.lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (k.lock < 0 || fstat(k.lock, &st) || flock(k.lock, LOCK_EX | LOCK_NB))
		_exit(0);
	k.dev = st.st_dev;
	keep(&k);
	_exit(0);
}

int rpwi_keeper_start(const struct rpwi_plan *plan)
{
	int status = 0;
	unsigned at = 0;
	if (!rpwi_plan_counter(plan, &at))
		return 0;
	/* The program waits for children of its own, and not for this. */
	pid_t pid = fork();
	if (!pid) {
		pid = fork();
		if (!pid)
			keeper_main(plan);
		_exit(pid < 0 ? errno : 0);
	}
	if (pid < 0)
		return -errno;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 0; /* its end is not told to who ignores SIGCHLD */
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EAGAIN;
}
