/* SPDX-License-Identifier: BSD-3-Clause */
/* orphan.c - see orphan.h. */
#include "base/orphan.h"

#include "base/base.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK_BYTES = 64 * 1024 };

static bool is_known(uid_t owner, uid_t of_library)
{
	return owner == 0 || owner == geteuid() || owner == of_library;
}

/* A folder above the library's may be everybody's (/tmp): a program that anybody else put there, or
 * a link to one, is not started. */
static bool is_trusted(const char *path, const char *library)
{
	struct stat lib, link, file;
	return !stat(library, &lib) && !lstat(path, &link) && !stat(path, &file) &&
	       S_ISREG(file.st_mode) && is_known(link.st_uid, lib.st_uid) &&
	       is_known(file.st_uid, lib.st_uid);
}

bool rpwi_orphan_find(const char *const *place, size_t places, char path[PATH_MAX])
{
	Dl_info info;
	const char *end = NULL;
	if (dladdr((const void *)(uintptr_t)&rpwi_orphan_find, &info) && info.dli_fname)
		end = strrchr(info.dli_fname, '/');
	int dir = end ? (int)(end - info.dli_fname) + 1 : 0;
	for (size_t i = 0; i < places; i++) {
		bool absolute = place[i][0] == '/';
		if (!absolute && !dir)
			continue;
		snprintf(path, PATH_MAX, "%.*s%s", absolute ? 0 : dir, dir ? info.dli_fname : "",
			place[i]);
		if (!access(path, X_OK) && (absolute || is_trusted(path, info.dli_fname)))
			return true;
	}
	return false;
}

struct start {
	const struct rpwi_orphan *orphan;
	uint8_t *stack; /* of the second */
	int error;      /* of exec; memory is shared until then */
};

/* The two run in the memory of the thread that waits for them, signals blocked, on a stack that no
 * sanitizer knows: system calls only. */
#define BORROWED __attribute__((no_sanitize("address", "thread", "undefined")))
BORROWED static int become(void *arg)
{
	struct start *s = arg;
	const struct rpwi_orphan *o = s->orphan;
	struct sigaction dfl = {.sa_handler = SIG_DFL};
	sigset_t none;
	setsid();
	for (int sig = 1; sig < NSIG; sig++)
		sigaction(sig, &dfl, NULL);
	sigemptyset(&none);
	int null = open("/dev/null", O_RDWR);
	dup2(o->in < 0 ? null : o->in, 0);
	for (int fd = 1; fd <= 2; fd++)
		dup2(o->out < 0 ? null : o->out, fd);
	if (syscall(SYS_close_range, 3u, ~0u, 0u)) /* before Linux 5.9 */
		for (int fd = 3; fd < 65536; fd++)
			close(fd);
	if (chdir("/"))
		s->error = errno;
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve(o->path, o->argv, o->envp);
	s->error = errno;
	_exit(127);
}

/* Ends at once, so that the other is the child of whoever adopts it. */
BORROWED static int middle(void *arg)
{
	struct start *s = arg;
	if (clone(become, s->stack, CLONE_VM | CLONE_VFORK | SIGCHLD, s) < 0)
		s->error = errno;
	_exit(0);
}

int rpwi_orphan_start(const struct rpwi_orphan *o)
{
	if (getauxval(AT_SECURE))
		return -ENOENT;
	uint8_t *stack = mmap(NULL, 2 * (size_t)STACK_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (stack == MAP_FAILED)
		return -errno;
	struct start s = {.orphan = o, .stack = stack + STACK_BYTES};
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	/* No exit signal: no SIGCHLD, and no wait(2) but one with __WCLONE sees it. */
	pid_t pid = clone(middle, stack + 2 * (size_t)STACK_BYTES, CLONE_VM | CLONE_VFORK, &s);
	int rc = pid < 0 ? -errno : -s.error;
	while (pid > 0 && waitpid(pid, NULL, __WCLONE) < 0 && errno == EINTR)
		;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	munmap(stack, 2 * (size_t)STACK_BYTES);
	return rc;
}
