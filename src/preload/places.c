/* SPDX-License-Identifier: BSD-3-Clause */
/* places.c - paths that calls return, and the working directory: readlink, realpath, chdir, getcwd;
 * and copies of descriptors, which are what the first one was. */
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS
#include "preload/preload.h"
#include "tree/tree.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEXT(type, name) \
	({ \
		static type *next_; \
		if (!next_) \
			next_ = (type *)rpwi_next(name); \
		next_; \
	})

/* ---- readlink ---- */

typedef ssize_t readlink_fn(const char *path, char *buf, size_t size);
typedef ssize_t readlinkat_fn(int dir, const char *path, char *buf, size_t size);
typedef ssize_t readlink_chk_fn(const char *path, char *buf, size_t size, size_t room);
typedef ssize_t readlinkat_chk_fn(int dir, const char *path, char *buf, size_t size, size_t room);
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
		*rc = n < 0 ? rpwi_fail(-n) : give(to, buf, size);
	} else if (found == RPWI_OURS) {
		*rc = rpwi_fail(EINVAL);
	} else if (found == RPWI_REAL) {
		*rc = syscall(SYS_readlinkat, AT_FDCWD, p.path, buf, size);
	} else if (found < 0) {
		*rc = rpwi_fail(-found);
	}
	rpwi_place_done(&p);
	return found != RPWI_PASS;
}

RPWI_EXPORT readlink_fn hook_readlink __asm__("readlink");
ssize_t hook_readlink(const char *path, char *buf, size_t size)
{
	ssize_t rc = -1;
	if (RPWI_UNLIKELY(rpwi_maybe(path)) && readlink_found(AT_FDCWD, path, buf, size, &rc))
		return rc;
	return NEXT(readlink_fn, "readlink")(path, buf, size);
}

RPWI_EXPORT readlinkat_fn hook_readlinkat __asm__("readlinkat");
ssize_t hook_readlinkat(int dir, const char *path, char *buf, size_t size)
{
	ssize_t rc = -1;
	if (RPWI_UNLIKELY(rpwi_maybe_at(dir, path)) && readlink_found(dir, path, buf, size, &rc))
		return rc;
	return NEXT(readlinkat_fn, "readlinkat")(dir, path, buf, size);
}

RPWI_EXPORT readlink_chk_fn hook_readlink_chk __asm__("__readlink_chk");
ssize_t hook_readlink_chk(const char *path, char *buf, size_t size, size_t room)
{
	if (size > room)
		return NEXT(readlink_chk_fn, "__readlink_chk")(path, buf, size, room);
	return hook_readlink(path, buf, size);
}

RPWI_EXPORT readlinkat_chk_fn hook_readlinkat_chk __asm__("__readlinkat_chk");
ssize_t hook_readlinkat_chk(int dir, const char *path, char *buf, size_t size, size_t room)
{
	if (size > room)
		return NEXT(readlinkat_chk_fn, "__readlinkat_chk")(dir, path, buf, size, room);
	return hook_readlinkat(dir, path, buf, size);
}

/* ---- realpath ---- */

typedef char *realpath_fn(const char *path, char *resolved);
typedef char *realpath_chk_fn(const char *path, char *resolved, size_t room);
typedef char *canonicalize_fn(const char *path);

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

RPWI_EXPORT realpath_fn hook_realpath __asm__("realpath");
char *hook_realpath(const char *path, char *resolved)
{
	char *answer;
	if (RPWI_UNLIKELY(rpwi_maybe(path)) && realpath_found(path, resolved, &answer))
		return answer;
	return NEXT(realpath_fn, "realpath")(path, resolved);
}

RPWI_EXPORT realpath_chk_fn hook_realpath_chk __asm__("__realpath_chk");
char *hook_realpath_chk(const char *path, char *resolved, size_t room)
{
	if (room < PATH_MAX)
		return NEXT(realpath_chk_fn, "__realpath_chk")(path, resolved, room);
	return hook_realpath(path, resolved);
}

RPWI_EXPORT canonicalize_fn hook_canonicalize __asm__("canonicalize_file_name");
char *hook_canonicalize(const char *path) { return hook_realpath(path, NULL); }

/* ---- the working directory ---- */

/* After a chdir that worked. A vfork's child must not spoil what its parent knows: there the state
 * only rises. */
static void cwd_is(enum rpwi_cwd_state s)
{
	static pid_t owner;
	if (s < rpwi_cwd_state) {
		/* getpid(2) is that of the process, thread group by thread group; a child of fork
		 * that has the parent's number here looks once more at each relative path */
		if (owner != (pid_t)syscall(SYS_getpid))
			return;
	}
	if (s > rpwi_cwd_state)
		owner = (pid_t)syscall(SYS_getpid);
	rpwi_cwd_state = (uint8_t)s;
}

static enum rpwi_cwd_state cwd_look(void)
{
	char name[RPWI_TREE_PATH_MAX], path[RPWI_TREE_PATH_MAX];
	if (!rpwi_kernel_name(AT_FDCWD, name))
		return RPWI_CWD_OTHER;
	return rpwi_token_path(name, path) ? RPWI_CWD_TOKEN
	       : rpwi_is_below_sys(name)   ? RPWI_CWD_SYS
					   : RPWI_CWD_OTHER;
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
		*rc = p.node.kind == RPWI_NODE_DIR ? rpwi_token_chdir(p.path) : rpwi_fail(ENOTDIR);
		if (!*rc)
			cwd_is(RPWI_CWD_TOKEN);
	} else if (found == RPWI_REAL) {
		*rc = (int)syscall(SYS_chdir, p.path);
		if (!*rc)
			cwd_moved(true);
	} else if (found < 0) {
		*rc = rpwi_fail(-found);
	}
	rpwi_place_done(&p);
	return found != RPWI_PASS;
}

typedef int chdir_fn(const char *path);
RPWI_EXPORT chdir_fn hook_chdir __asm__("chdir");
int hook_chdir(const char *path)
{
	int rc = -1;
	if (RPWI_UNLIKELY(rpwi_maybe(path)) && chdir_found(AT_FDCWD, path, 0, &rc))
		return rc;
	rc = NEXT(chdir_fn, "chdir")(path);
	if (!rc)
		cwd_moved(rpwi_is_below_sys(path));
	return rc;
}

typedef int fchdir_fn(int fd);
RPWI_EXPORT fchdir_fn hook_fchdir __asm__("fchdir");
int hook_fchdir(int fd)
{
	int rc = -1, state = rpwi_fd_state(fd);
	if (RPWI_UNLIKELY(state == RPWI_FD_TOKEN) && chdir_found(fd, "", RPWI_EMPTY, &rc))
		return rc;
	rc = NEXT(fchdir_fn, "fchdir")(fd);
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

typedef char *getcwd_fn(char *buf, size_t size);
RPWI_EXPORT getcwd_fn hook_getcwd __asm__("getcwd");
char *hook_getcwd(char *buf, size_t size)
{
	char path[RPWI_TREE_PATH_MAX];
	if (RPWI_LIKELY(!cwd_ours(path)))
		return NEXT(getcwd_fn, "getcwd")(buf, size);
	size_t need = strlen(path) + 1;
	if ((buf && !size) || (size && size < need)) {
		errno = buf && !size ? EINVAL : ERANGE;
		return NULL;
	}
	if (!buf && !(buf = malloc(size ? size : need)))
		return NULL;
	return memcpy(buf, path, need);
}

typedef char *getcwd_chk_fn(char *buf, size_t size, size_t room);
RPWI_EXPORT getcwd_chk_fn hook_getcwd_chk __asm__("__getcwd_chk");
char *hook_getcwd_chk(char *buf, size_t size, size_t room)
{
	if (size > room)
		return NEXT(getcwd_chk_fn, "__getcwd_chk")(buf, size, room);
	return hook_getcwd(buf, size);
}

typedef char *getwd_fn(char *buf);
RPWI_EXPORT getwd_fn hook_getwd __asm__("getwd");
char *hook_getwd(char *buf)
{
	return RPWI_LIKELY(rpwi_cwd_state != RPWI_CWD_TOKEN) ? NEXT(getwd_fn, "getwd")(buf)
							     : hook_getcwd(buf, PATH_MAX);
}

typedef char *current_dir_fn(void);
RPWI_EXPORT current_dir_fn hook_current_dir __asm__("get_current_dir_name");
char *hook_current_dir(void)
{
	return RPWI_LIKELY(rpwi_cwd_state != RPWI_CWD_TOKEN)
		       ? NEXT(current_dir_fn, "get_current_dir_name")()
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

typedef int dup_fn(int fd);
typedef int dup2_fn(int fd, int to);
typedef int dup3_fn(int fd, int to, int flags);
RPWI_EXPORT dup_fn hook_dup __asm__("dup");
RPWI_EXPORT dup2_fn hook_dup2 __asm__("dup2");
RPWI_EXPORT dup3_fn hook_dup3 __asm__("dup3");
int hook_dup(int fd) { return copied(fd, NEXT(dup_fn, "dup")(fd)); }
int hook_dup2(int fd, int to) { return copied(fd, NEXT(dup2_fn, "dup2")(fd, to)); }
int hook_dup3(int fd, int to, int flags)
{
	return copied(fd, NEXT(dup3_fn, "dup3")(fd, to, flags));
}

/* The third argument is an int, a long or a pointer: all go in one register. */
typedef int fcntl_fn(int fd, int command, ...);
#define HOOK_FCNTL(hook, name) \
	RPWI_EXPORT fcntl_fn hook __asm__(name); \
	int hook(int fd, int command, ...) \
	{ \
		va_list ap; \
		va_start(ap, command); \
		void *arg = va_arg(ap, void *); \
		va_end(ap); \
		int rc = NEXT(fcntl_fn, name)(fd, command, arg); \
		return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? copied(fd, rc) : rc; \
	}
HOOK_FCNTL(hook_fcntl, "fcntl")
HOOK_FCNTL(hook_fcntl64, "fcntl64")

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

typedef ssize_t read_fn(int fd, void *buf, size_t size);
typedef ssize_t read_chk_fn(int fd, void *buf, size_t size, size_t room);
RPWI_EXPORT read_fn hook_read __asm__("read");
RPWI_EXPORT read_chk_fn hook_read_chk __asm__("__read_chk");
ssize_t hook_read(int fd, void *buf, size_t size)
{
	return is_folder(fd) ? rpwi_fail(EISDIR) : NEXT(read_fn, "read")(fd, buf, size);
}
ssize_t hook_read_chk(int fd, void *buf, size_t size, size_t room)
{
	return is_folder(fd) ? rpwi_fail(EISDIR)
			     : NEXT(read_chk_fn, "__read_chk")(fd, buf, size, room);
}

/* cat(1) begins with it. */
typedef ssize_t copy_fn(int in, off_t *in_at, int out, off_t *out_at, size_t size, unsigned flags);
RPWI_EXPORT copy_fn hook_copy __asm__("copy_file_range");
ssize_t hook_copy(int in, off_t *in_at, int out, off_t *out_at, size_t size, unsigned flags)
{
	return is_folder(in)
		       ? rpwi_fail(EISDIR)
		       : NEXT(copy_fn, "copy_file_range")(in, in_at, out, out_at, size, flags);
}
