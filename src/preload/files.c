/* SPDX-License-Identifier: BSD-3-Clause */
/* files.c - open and fopen of our files. Only paths that may be ours are looked at; every other
 * call goes straight on.
 *
 * The functions carry their public names as assembler names: open, fopen and stat have too many
 * declarations (large files, fortification, old glibc's __xstat). Those that differ in that alone
 * are made by one macro.
 */
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS
#include "preload/preload.h"
#include "tree/tree.h"
#include "ucma/ucma.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* struct stat and stat64 are then the same, and so are open and open64. */
_Static_assert(
	sizeof(void *) == 8 && sizeof(struct stat) == sizeof(struct stat64), "64-bit machines");

/* A descriptor from which the file's contents can be read. */
static int open_ours(const struct rpwi_place *p, int flags)
{
	char text[RPWI_SYSFS_FILE_MAX];
	size_t len = 0;
	switch (p->node.kind) {
	case RPWI_NODE_CHARDEV:
		if (!(flags & O_PATH))
			return rpwi_fail(ENXIO); /* there is no kernel driver behind it */
		break;
	case RPWI_NODE_RDMA_CM:
		return rpwi_ucma_open(flags);
	case RPWI_NODE_LINK: /* it was not to be followed */
		if (!(flags & O_PATH))
			return rpwi_fail(ELOOP);
		break;
	case RPWI_NODE_DIR:
		if (!(flags & O_PATH) && (flags & O_ACCMODE) != O_RDONLY)
			return rpwi_fail(EISDIR);
		return rpwi_token_open(p->path, NULL, 0, flags);
	default:
		if (flags & O_PATH)
			break;
		if ((flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC)
			return rpwi_fail(EACCES);
		/* The kernel fails the read, we the open. */
		int rc = flags & O_DIRECTORY ? 0 : rpwi_tree_show(&p->node, text, &len);
		if (rc)
			return rpwi_fail(-rc);
	}
	if (flags & O_DIRECTORY)
		return rpwi_fail(ENOTDIR);
	return rpwi_token_open(p->path, text, len, flags);
}

/* ---- open ---- */

static bool has_mode(int flags) { return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE; }

#define MODE_OF(flags) \
	({ \
		va_list ap_; \
		va_start(ap_, flags); \
		mode_t mode_ = has_mode(flags) ? va_arg(ap_, mode_t) : 0; \
		va_end(ap_); \
		mode_; \
	})

/* A folder of the kernel's below which ours may be. */
static int opened(int fd, bool below_sys)
{
	if (fd >= 0 && RPWI_UNLIKELY(below_sys))
		rpwi_fd_is(fd, RPWI_FD_SYS);
	else if (RPWI_UNLIKELY(rpwi_fd_state(fd) > RPWI_FD_OTHER))
		rpwi_fd_is(fd, RPWI_FD_OTHER);
	return fd;
}

/* False: go on. True: *fd is the answer. */
static bool open_found(int dir, const char *path, int flags, mode_t mode, int *fd)
{
	struct rpwi_place p;
	bool stay = flags & O_NOFOLLOW || (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
	int found = rpwi_place_find(&p, dir, path, stay ? RPWI_NOFOLLOW : 0);
	if (found == RPWI_OURS)
		*fd = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL) ? rpwi_fail(EEXIST)
									 : open_ours(&p, flags);
	else if (found == RPWI_REAL)
		*fd = opened((int)syscall(SYS_openat, AT_FDCWD, p.path, flags | O_LARGEFILE, mode),
			true);
	else if (found < 0)
		*fd = rpwi_fail(found == -ENOENT && flags & O_CREAT ? EACCES : -found);
	rpwi_place_done(&p);
	return found != RPWI_PASS;
}

typedef int open_fn(const char *path, int flags, ...);
typedef int openat_fn(int dir, const char *path, int flags, ...);
typedef int open2_fn(const char *path, int flags);
typedef int openat2_fn(int dir, const char *path, int flags);
typedef int creat_fn(const char *path, mode_t mode);

#define HOOK_OPEN(hook, name) \
	RPWI_EXPORT open_fn hook __asm__(name); \
	int hook(const char *path, int flags, ...) \
	{ \
		static open_fn *next; \
		mode_t mode = MODE_OF(flags); \
		int fd = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe(path)) && \
			open_found(AT_FDCWD, path, flags, mode, &fd)) \
			return fd; \
		if (!next) \
			next = (open_fn *)rpwi_next(name); \
		fd = next(path, flags, mode); \
		return opened(fd, fd >= 0 && rpwi_is_below_sys(path)); \
	}
HOOK_OPEN(hook_open, "open")
HOOK_OPEN(hook_open64, "open64")

static bool is_below(int dir, const char *path)
{
	return path[0] == '/'    ? rpwi_is_below_sys(path)
	       : dir == AT_FDCWD ? rpwi_cwd_state == RPWI_CWD_SYS
				 : rpwi_fd_state(dir) == RPWI_FD_SYS;
}

#define HOOK_OPENAT(hook, name) \
	RPWI_EXPORT openat_fn hook __asm__(name); \
	int hook(int dir, const char *path, int flags, ...) \
	{ \
		static openat_fn *next; \
		mode_t mode = MODE_OF(flags); \
		int fd = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe_at(dir, path)) && \
			open_found(dir, path, flags, mode, &fd)) \
			return fd; \
		if (!next) \
			next = (openat_fn *)rpwi_next(name); \
		fd = next(dir, path, flags, mode); \
		return opened(fd, fd >= 0 && is_below(dir, path)); \
	}
HOOK_OPENAT(hook_openat, "openat")
HOOK_OPENAT(hook_openat64, "openat64")

/* What a fortified program calls when no mode was given. */
#define HOOK_OPEN2(hook, name) \
	RPWI_EXPORT open2_fn hook __asm__(name); \
	int hook(const char *path, int flags) \
	{ \
		static open2_fn *next; \
		int fd = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe(path)) && open_found(AT_FDCWD, path, flags, 0, &fd)) \
			return fd; \
		if (!next) \
			next = (open2_fn *)rpwi_next(name); \
		fd = next(path, flags); \
		return opened(fd, fd >= 0 && rpwi_is_below_sys(path)); \
	}
HOOK_OPEN2(hook_open_2, "__open_2")
HOOK_OPEN2(hook_open64_2, "__open64_2")

#define HOOK_OPENAT2(hook, name) \
	RPWI_EXPORT openat2_fn hook __asm__(name); \
	int hook(int dir, const char *path, int flags) \
	{ \
		static openat2_fn *next; \
		int fd = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe_at(dir, path)) && \
			open_found(dir, path, flags, 0, &fd)) \
			return fd; \
		if (!next) \
			next = (openat2_fn *)rpwi_next(name); \
		fd = next(dir, path, flags); \
		return opened(fd, fd >= 0 && is_below(dir, path)); \
	}
HOOK_OPENAT2(hook_openat_2, "__openat_2")
HOOK_OPENAT2(hook_openat64_2, "__openat64_2")

#define HOOK_CREAT(hook, name) \
	RPWI_EXPORT creat_fn hook __asm__(name); \
	int hook(const char *path, mode_t mode) \
	{ \
		static creat_fn *next; \
		int fd = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe(path)) && \
			open_found(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode, &fd)) \
			return fd; \
		if (!next) \
			next = (creat_fn *)rpwi_next(name); \
		return opened(next(path, mode), false); \
	}
HOOK_CREAT(hook_creat, "creat")
HOOK_CREAT(hook_creat64, "creat64")

/* ---- fopen ---- */

typedef FILE *fopen_fn(const char *path, const char *mode);
typedef FILE *freopen_fn(const char *path, const char *mode, FILE *f);

static int flags_of(const char *mode)
{
	bool plus = strchr(mode, '+') != NULL;
	int flags = mode[0] == 'r' ? 0 : O_CREAT | (mode[0] == 'w' ? O_TRUNC : O_APPEND);
	flags |= plus ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;
	return flags | (strchr(mode, 'e') ? O_CLOEXEC : 0) | (strchr(mode, 'x') ? O_EXCL : 0);
}

#define HOOK_FOPEN(hook, name) \
	RPWI_EXPORT fopen_fn hook __asm__(name); \
	FILE *hook(const char *path, const char *mode) \
	{ \
		static fopen_fn *next; \
		int fd = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe(path)) && \
			open_found(AT_FDCWD, path, flags_of(mode), 0666, &fd)) { \
			FILE *f = fd < 0 ? NULL : fdopen(fd, mode); \
			if (!f && fd >= 0) \
				RPWI_KEEP_ERRNO(syscall(SYS_close, fd)); \
			return f; \
		} \
		if (!next) \
			next = (fopen_fn *)rpwi_next(name); \
		return next(path, mode); \
	}
HOOK_FOPEN(hook_fopen, "fopen")
HOOK_FOPEN(hook_fopen64, "fopen64")

/* The C library opens what is open already once more. */
#define HOOK_FREOPEN(hook, name) \
	RPWI_EXPORT freopen_fn hook __asm__(name); \
	FILE *hook(const char *path, const char *mode, FILE *f) \
	{ \
		static freopen_fn *next; \
		char link[40]; \
		int fd = -1; \
		if (!next) \
			next = (freopen_fn *)rpwi_next(name); \
		if (!RPWI_UNLIKELY(rpwi_maybe(path)) || \
			!open_found(AT_FDCWD, path, flags_of(mode), 0666, &fd)) \
			return next(path, mode, f); \
		if (fd < 0) { \
			RPWI_KEEP_ERRNO(fclose(f)); \
			return NULL; \
		} \
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd); \
		f = next(link, mode, f); \
		RPWI_KEEP_ERRNO(syscall(SYS_close, fd)); \
		if (f) \
			rpwi_fd_is(fileno(f), RPWI_FD_TOKEN); \
		return f; \
	}
HOOK_FREOPEN(hook_freopen, "freopen")
HOOK_FREOPEN(hook_freopen64, "freopen64")
