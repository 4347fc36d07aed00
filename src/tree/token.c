/* SPDX-License-Identifier: BSD-3-Clause */
/* token.c - descriptors and a working directory that stand for files of ours. The kernel carries
 * what they are, so that copies (dup, fork, exec, SCM_RIGHTS) are the same, and nothing is kept in
 * a table that a vfork's child would spoil.
 *
 * A descriptor is a memfd; its name is the path. The working directory has to be a folder: one is
 * made where the user may write, opened, and removed at once; its name is the path, too. A child
 * without an exit signal and in a session of its own does that, so that a SIGKILL of the program or
 * its process group in between leaves nothing behind.
 */
#include "tree/tree.h"

#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

uint8_t rpwi_fd_states[RPWI_FDS];
uint8_t rpwi_cwd_state;
bool rpwi_tokens_given;

#define MEMFD_NAME "ropeway:"
#define MEMFD_SHOWN "/memfd:" MEMFD_NAME
#define CWD_NAME "/.ropeway-cwd."
#define DELETED " (deleted)"
enum { SLASH = 1 /* stands for '/' in a folder's name */, RANDOM_DIGITS = 16 };

int rpwi_token_open(const char *path, const char *text, size_t len, int flags)
{
	char name[256];
	int n = snprintf(name, sizeof(name), MEMFD_NAME "%s", path);
	if (n < 0 || n >= 250)
		return rpwi_minus(ENAMETOOLONG);
	int fd = memfd_create(
		name, (flags & O_CLOEXEC ? MFD_CLOEXEC : 0u) | (unsigned)MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if ((len && rpwi_file_pwrite(fd, text, len, 0) != (ssize_t)len) ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)) {
		syscall(SYS_close, fd);
		return rpwi_minus(EIO);
	}
	rpwi_fd_is(fd, RPWI_FD_TOKEN);
	rpwi_tokens_given = true;
	return fd;
}

bool rpwi_token_path(const char *shown, char path[RPWI_TREE_PATH_MAX])
{
	const char *p = shown, *cwd;
	size_t len = strlen(shown), end = strlen(DELETED);
	if (len <= end || strcmp(shown + len - end, DELETED) != 0)
		return false;
	len -= end;
	if (!strncmp(shown, MEMFD_SHOWN, strlen(MEMFD_SHOWN))) {
		p = shown + strlen(MEMFD_SHOWN);
	} else if ((cwd = strstr(shown, CWD_NAME))) {
		p = cwd + strlen(CWD_NAME);
		if (strnlen(p, RANDOM_DIGITS) < RANDOM_DIGITS)
			return false;
		p += RANDOM_DIGITS;
	} else {
		return false;
	}
	if (p >= shown + len || shown + len - p >= RPWI_TREE_PATH_MAX)
		return false;
	len = (size_t)(shown + len - p);
	for (size_t i = 0; i < len; i++)
		path[i] = p[i] == SLASH ? '/' : p[i];
	path[len] = '\0';
	return rpwi_is_below_sys(path);
}

struct job {
	const char *path;
	int fd; /* the folder's, or -errno */
};

/* In a child that shares memory and descriptors: system calls only. */
static int make(void *arg)
{
	struct job *j = arg;
	setsid();
	if (mkdir(j->path, 0700)) {
		j->fd = -errno;
		return 0;
	}
	long fd = syscall(SYS_openat, AT_FDCWD, j->path, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	j->fd = fd < 0 ? -errno : (int)fd;
	rmdir(j->path);
	return 0;
}

/* A folder without a name, or -errno. */
static int folder_make(const char *path)
{
	enum { STACK = 32 * 1024 };
	struct job j = {.path = path, .fd = -EIO};
	sigset_t all, before;
	char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (stack == MAP_FAILED)
		return -errno;
	sigfillset(&all); /* no handler of the program's runs in the child */
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, 8);
	int pid = clone(make, stack + STACK, CLONE_VM | CLONE_VFORK | CLONE_FILES, &j);
	int err = errno;
	if (pid > 0)
		while (waitpid(pid, NULL, __WCLONE) < 0 && errno == EINTR)
			;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, 8);
	munmap(stack, STACK);
	return pid < 0 ? -err : j.fd;
}

/* The name of a folder in `where`; false: too long for one. */
static bool folder_name(const char *where, const char *path, char *name, size_t size)
{
	int n = snprintf(name, size, "%s" CWD_NAME "%016llx%s", where,
		(unsigned long long)rpwi_random64(), path);
	if (n < 0 || (size_t)n >= size)
		return false;
	char *last = name + strlen(where) + 1;
	for (char *c = last; *c; c++)
		if (*c == '/')
			*c = SLASH;
	return strlen(last) <= NAME_MAX;
}

int rpwi_token_chdir(const char *path)
{
	const char *const where[] = {getenv("XDG_RUNTIME_DIR"), "/dev/shm", "/tmp", "/var/tmp"};
	char name[2 * RPWI_TREE_PATH_MAX];
	int fd = -EACCES;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(where) && fd < 0; i++)
		if (where[i] && where[i][0] == '/') {
			if (!folder_name(where[i], path, name, sizeof(name)))
				fd = -ENAMETOOLONG;
			else
				fd = folder_make(name);
		}
	if (fd < 0)
		return rpwi_minus(-fd);
	int rc = (int)syscall(SYS_fchdir, fd), err = errno;
	syscall(SYS_close, fd);
	if (rc)
		return rpwi_minus(err);
	rpwi_cwd_state = RPWI_CWD_TOKEN;
	rpwi_tokens_given = true;
	return 0;
}

/* What is inherited by exec. */
__attribute__((constructor)) static void cwd_look(void)
{
	char name[RPWI_TREE_PATH_MAX], path[RPWI_TREE_PATH_MAX];
	int err = errno;
	if (rpwi_kernel_name(AT_FDCWD, name)) {
		if (rpwi_token_path(name, path)) {
			rpwi_cwd_state = RPWI_CWD_TOKEN;
			rpwi_tokens_given = true;
		} else if (rpwi_is_below_sys(name)) {
			rpwi_cwd_state = RPWI_CWD_SYS;
		}
	}
	errno = err;
}
