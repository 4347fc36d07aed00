/* SPDX-License-Identifier: BSD-3-Clause */
/* places.c - paths that calls return, and the working directory: readlink, realpath, chdir, getcwd;
 * and copies of descriptors, which are what the first one was. */
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS
#include "preload/next.h"
#include "preload/preload.h"
#include "tree/tree.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- readlink ---- */

void __chk_fail(void) __attribute__((noreturn));

static ssize_t give(const char *text, char *buf, size_t size)
{
	size_t len = RPWI_MIN(strlen(text), size);
	/* NOLINTNEXTLINE(bugprone-not-null-terminated-result): readlink(2) ends with none */
	memcpy(buf, text, len);
	return (ssize_t)len;
}

/* /proc/self/fd/N of a descriptor of ours, and the like: the kernel's answer in our words. */
static bool shows_token(const char *path, char *token)
{
	char shown[RPWI_TREE_PATH_MAX];
	if (!rpwi_tokens_given || strncmp(path, "/proc/", 6) != 0)
		return false;
	long n = syscall(SYS_readlinkat, AT_FDCWD, path, shown, sizeof(shown) - 1);
	if (n <= 0)
		return false;
	shown[n] = '\0';
	return rpwi_token_path(shown, token);
}

static bool readlink_found(int dir, const char *path, char *buf, size_t size, ssize_t *rc)
{
	struct rpwi_place p;
	char to[RPWI_TREE_PATH_MAX];
	bool token = false;
	RPWI_KEEP_ERRNO(token = shows_token(path, to));
	if (token) {
		*rc = give(to, buf, size);
		return true;
	}
	int found = rpwi_place_find(&p, dir, path, RPWI_NOFOLLOW);
	if (found == RPWI_OURS && p.node.kind == RPWI_NODE_LINK) {
		int n = rpwi_tree_target(&p.node, p.path, to, sizeof(to));
		*rc = n < 0 ? rpwi_minus(-n) : give(to, buf, size);
	} else if (found == RPWI_OURS) {
		*rc = rpwi_minus(EINVAL);
	} else if (found == RPWI_REAL) {
		*rc = syscall(SYS_readlinkat, AT_FDCWD, p.path, buf, size);
	} else if (found < 0) {
		*rc = rpwi_minus(-found);
	}
	rpwi_place_done(&p);
	return found != RPWI_PASS;
}

RPWI_HOOK(ssize_t, hook_readlink, readlink, (const char *path, char *buf, size_t size))
{
	ssize_t rc = -1;
	if (RPWI_UNLIKELY(rpwi_maybe(path)) && readlink_found(AT_FDCWD, path, buf, size, &rc))
		return rc;
	return RPWI_NEXT(hook_readlink, readlink)(path, buf, size);
}

RPWI_HOOK(ssize_t, hook_readlinkat, readlinkat, (int dir, const char *path, char *buf, size_t size))
{
	ssize_t rc = -1;
	if (RPWI_UNLIKELY(rpwi_maybe_at(dir, path)) && readlink_found(dir, path, buf, size, &rc))
		return rc;
	return RPWI_NEXT(hook_readlinkat, readlinkat)(dir, path, buf, size);
}

RPWI_HOOK(ssize_t, hook_readlink_chk, __readlink_chk,
	(const char *path, char *buf, size_t size, size_t room))
{
	if (size > room)
		return RPWI_NEXT(hook_readlink_chk, __readlink_chk)(path, buf, size, room);
	return hook_readlink(path, buf, size);
}

RPWI_HOOK(ssize_t, hook_readlinkat_chk, __readlinkat_chk,
	(int dir, const char *path, char *buf, size_t size, size_t room))
{
	if (size > room)
		return RPWI_NEXT(hook_readlinkat_chk, __readlinkat_chk)(dir, path, buf, size, room);
	return hook_readlinkat(dir, path, buf, size);
}

/* ---- realpath ---- */

static bool realpath_found(const char *path, char *resolved, char **answer)
{
	struct rpwi_place p;
	int found = rpwi_place_find(&p, AT_FDCWD, path, 0);
	*answer = NULL;
	if (found < 0)
		errno = -found;
	else if (found != RPWI_PASS)
		*answer = resolved ? strcpy(resolved, p.path) : strdup(p.path);
	rpwi_place_done(&p);
	return found != RPWI_PASS;
}

RPWI_HOOK(char *, hook_realpath, realpath, (const char *path, char *resolved))
{
	char *answer;
	if (RPWI_UNLIKELY(rpwi_maybe(path)) && realpath_found(path, resolved, &answer))
		return answer;
	return RPWI_NEXT(hook_realpath, realpath)(path, resolved);
}

RPWI_HOOK(
	char *, hook_realpath_chk, __realpath_chk, (const char *path, char *resolved, size_t room))
{
	if (room < PATH_MAX)
		return RPWI_NEXT(hook_realpath_chk, __realpath_chk)(path, resolved, room);
	return hook_realpath(path, resolved);
}

RPWI_HOOK(char *, hook_canonicalize, canonicalize_file_name, (const char *path))
{
	return hook_realpath(path, NULL);
}

/* ---- the working directory ---- */

/* After a chdir that worked. A vfork's child must not spoil what its parent knows: there the state
 * only rises. */
static pid_t cwd_owner; /* the process that rpwi_cwd_state is of */
static void cwd_is(enum rpwi_cwd_state s)
{
	if (s < rpwi_cwd_state) {
		/* getpid(2) is that of the process, thread group by thread group; a child of fork
		 * that has the parent's number here looks once more at each relative path */
		if (cwd_owner != (pid_t)syscall(SYS_getpid))
			return;
	}
	if (s > rpwi_cwd_state)
		cwd_owner = (pid_t)syscall(SYS_getpid);
	rpwi_cwd_state = (uint8_t)s;
}

static enum rpwi_cwd_state cwd_look(void)
{
	char name[RPWI_TREE_PATH_MAX], path[RPWI_TREE_PATH_MAX];
	if (!rpwi_kernel_name(AT_FDCWD, name))
		return RPWI_CWD_OTHER;
	if (rpwi_token_path(name, path))
		return RPWI_CWD_TOKEN;
	return rpwi_is_below_sys(name) ? RPWI_CWD_SYS : RPWI_CWD_OTHER;
}

/* The kernel's folder is the working directory now: which one, as far as it matters. */
static void cwd_moved(bool maybe_sys)
{
	if (RPWI_UNLIKELY(maybe_sys || rpwi_cwd_state))
		RPWI_KEEP_ERRNO(cwd_is(cwd_look()));
}

static bool chdir_found(int dir, const char *path, int flags, int *rc)
{
	struct rpwi_place p;
	int found = rpwi_place_find(&p, dir, path, flags);
	if (found == RPWI_OURS) {
		*rc = p.node.kind == RPWI_NODE_DIR ? rpwi_token_chdir(p.path) : rpwi_minus(ENOTDIR);
		if (!*rc)
			cwd_is(RPWI_CWD_TOKEN);
	} else if (found == RPWI_REAL) {
		*rc = (int)syscall(SYS_chdir, p.path);
		if (!*rc)
			cwd_moved(true);
	} else if (found < 0) {
		*rc = rpwi_minus(-found);
	}
	rpwi_place_done(&p);
	return found != RPWI_PASS;
}

RPWI_HOOK(int, hook_chdir, chdir, (const char *path))
{
	int rc = -1;
	if (RPWI_UNLIKELY(rpwi_maybe(path)) && chdir_found(AT_FDCWD, path, 0, &rc))
		return rc;
	rc = RPWI_NEXT(hook_chdir, chdir)(path);
	if (!rc)
		cwd_moved(rpwi_is_below_sys(path));
	return rc;
}

RPWI_HOOK(int, hook_fchdir, fchdir, (int fd))
{
	int rc = -1, state = rpwi_fd_state(fd);
	if (RPWI_UNLIKELY(state == RPWI_FD_TOKEN) && chdir_found(fd, "", RPWI_EMPTY, &rc))
		return rc;
	rc = RPWI_NEXT(hook_fchdir, fchdir)(fd);
	if (!rc)
		cwd_moved(state == RPWI_FD_SYS || state == RPWI_FD_UNKNOWN);
	return rc;
}

static bool cwd_ours(char path[RPWI_TREE_PATH_MAX])
{
	char name[RPWI_TREE_PATH_MAX];
	bool ours = false;
	if (RPWI_LIKELY(rpwi_cwd_state != RPWI_CWD_TOKEN))
		return false;
	RPWI_KEEP_ERRNO(ours = !rpwi_tree_disabled() && rpwi_kernel_name(AT_FDCWD, name) &&
			       rpwi_token_path(name, path));
	return ours;
}

RPWI_HOOK(char *, hook_getcwd, getcwd, (char *buf, size_t size))
{
	char path[RPWI_TREE_PATH_MAX];
	if (RPWI_LIKELY(!cwd_ours(path)))
		return RPWI_NEXT(hook_getcwd, getcwd)(buf, size);
	size_t need = strlen(path) + 1;
	if ((buf && !size) || (size && size < need))
		return rpwi_none(buf && !size ? EINVAL : ERANGE);
	if (!buf && !(buf = malloc(size ? size : need)))
		return NULL;
	return memcpy(buf, path, need);
}

RPWI_HOOK(char *, hook_getcwd_chk, __getcwd_chk, (char *buf, size_t size, size_t room))
{
	if (size > room)
		return RPWI_NEXT(hook_getcwd_chk, __getcwd_chk)(buf, size, room);
	return hook_getcwd(buf, size);
}

RPWI_HOOK(char *, hook_getwd, getwd, (char *buf))
{
	return RPWI_LIKELY(rpwi_cwd_state != RPWI_CWD_TOKEN) ? RPWI_NEXT(hook_getwd, getwd)(buf)
							     : hook_getcwd(buf, PATH_MAX);
}

RPWI_HOOK(char *, hook_current_dir, get_current_dir_name, (void))
{
	return RPWI_LIKELY(rpwi_cwd_state != RPWI_CWD_TOKEN)
		       ? RPWI_NEXT(hook_current_dir, get_current_dir_name)()
		       : hook_getcwd(NULL, 0);
}

/* ---- copies of a descriptor ---- */

static int copied(int from, int to)
{
	if (to >= 0 && RPWI_UNLIKELY(rpwi_fd_state(from) > RPWI_FD_OTHER ||
				     rpwi_fd_state(to) > RPWI_FD_OTHER))
		rpwi_fd_is(to, (enum rpwi_fd_state)rpwi_fd_state(from));
	return to;
}

RPWI_HOOK(int, hook_dup, dup, (int fd)) { return copied(fd, RPWI_NEXT(hook_dup, dup)(fd)); }
RPWI_HOOK(int, hook_dup2, dup2, (int fd, int to))
{
	return copied(fd, RPWI_NEXT(hook_dup2, dup2)(fd, to));
}
RPWI_HOOK(int, hook_dup3, dup3, (int fd, int to, int flags))
{
	return copied(fd, RPWI_NEXT(hook_dup3, dup3)(fd, to, flags));
}

/* The third argument is an int, a long or a pointer: all go in one register. */
#define HOOK_FCNTL(hook, name) \
	RPWI_HOOK(int, hook, name, (int fd, int command, ...)) \
	{ \
		va_list ap; \
		va_start(ap, command); \
		void *arg = va_arg(ap, void *); \
		va_end(ap); \
		int rc = RPWI_NEXT(hook, name)(fd, command, arg); \
		return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? copied(fd, rc) : rc; \
	}
HOOK_FCNTL(hook_fcntl, fcntl)
HOOK_FCNTL(hook_fcntl64, fcntl64)

/* ---- a folder is not to be read ---- */

static bool is_folder(int fd)
{
	struct rpwi_place p;
	if (RPWI_LIKELY(rpwi_fd_state(fd) != RPWI_FD_TOKEN))
		return false;
	int found = rpwi_place_of_fd(&p, fd);
	bool folder = found == RPWI_OURS && p.node.kind == RPWI_NODE_DIR;
	rpwi_place_done(&p);
	return folder;
}

RPWI_HOOK(ssize_t, hook_read, read, (int fd, void *buf, size_t size))
{
	return is_folder(fd) ? rpwi_minus(EISDIR) : RPWI_NEXT(hook_read, read)(fd, buf, size);
}
RPWI_HOOK(ssize_t, hook_read_chk, __read_chk, (int fd, void *buf, size_t size, size_t room))
{
	return is_folder(fd) ? rpwi_minus(EISDIR)
			     : RPWI_NEXT(hook_read_chk, __read_chk)(fd, buf, size, room);
}

/* cat(1) begins with it. */
RPWI_HOOK(ssize_t, hook_copy, copy_file_range,
	(int in, off_t *in_at, int out, off_t *out_at, size_t size, unsigned flags))
{
	return is_folder(in)
		       ? rpwi_minus(EISDIR)
		       : RPWI_NEXT(hook_copy, copy_file_range)(in, in_at, out, out_at, size, flags);
}
