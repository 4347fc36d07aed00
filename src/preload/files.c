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
#include "preload/next.h"
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
			return rpwi_minus(ENXIO); /* there is no kernel driver behind it */
		break;
	case RPWI_NODE_RDMA_CM:
		return rpwi_ucma_open(flags);
	case RPWI_NODE_LINK: /* it was not to be followed */
		if (!(flags & O_PATH))
			return rpwi_minus(ELOOP);
		break;
	case RPWI_NODE_DIR:
		if (!(flags & O_PATH) && (flags & O_ACCMODE) != O_RDONLY)
			return rpwi_minus(EISDIR);
		return rpwi_token_open(p->path, NULL, 0, flags);
	default:
		if (flags & O_PATH)
			break;
		if ((flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC)
			return rpwi_minus(EACCES);
		/* The kernel fails the read, we the open. */
		int rc = flags & O_DIRECTORY ? 0 : rpwi_tree_show(&p->node, text, &len);
		if (rc)
			return rpwi_minus(-rc);
	}
	if (flags & O_DIRECTORY)
		return rpwi_minus(ENOTDIR);
	return rpwi_token_open(p->path, text, len, flags);
}

/* ---- open ---- */

static bool has_mode(int flags) { return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE; }

#define MODE_OF(flags) \
	({ \
		va_list ap_; \
		va_start(ap_, flags); \
		mode_t given_ = has_mode(flags) ? va_arg(ap_, mode_t) : 0; \
		va_end(ap_); \
		given_; \
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
		*fd = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL) ? rpwi_minus(EEXIST)
									 : open_ours(&p, flags);
	else if (found == RPWI_REAL)
		*fd = opened((int)syscall(SYS_openat, AT_FDCWD, p.path, flags | O_LARGEFILE, mode),
			true);
	else if (found < 0)
		*fd = rpwi_minus(found == -ENOENT && flags & O_CREAT ? EACCES : -found);
	rpwi_place_done(&p);
	return found != RPWI_PASS;
}

static bool is_below(int dir, const char *path)
{
	if (path[0] == '/')
		return rpwi_is_below_sys(path);
	return dir == AT_FDCWD ? rpwi_cwd_state == RPWI_CWD_SYS : rpwi_fd_state(dir) == RPWI_FD_SYS;
}

#define HOOK(hook, name, params, args, dir, flags_of, mode_of) \
	RPWI_HOOK(int, hook, name, params) \
	{ \
		mode_t mode_ = mode_of; \
		int fd = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe_at(dir, path)) && \
			open_found(dir, path, flags_of, mode_, &fd)) \
			return fd; \
		fd = RPWI_NEXT(hook, name) args; \
		return opened(fd, fd >= 0 && is_below(dir, path)); \
	}

#define HOOK_OPEN(hook, name) \
	HOOK(hook, name, (const char *path, int flags, ...), (path, flags, mode_), AT_FDCWD, \
		flags, MODE_OF(flags))
HOOK_OPEN(hook_open, open)
HOOK_OPEN(hook_open64, open64)

#define HOOK_OPENAT(hook, name) \
	HOOK(hook, name, (int dir, const char *path, int flags, ...), (dir, path, flags, mode_), \
		dir, flags, MODE_OF(flags))
HOOK_OPENAT(hook_openat, openat)
HOOK_OPENAT(hook_openat64, openat64)

/* What a fortified program calls when no mode was given. */
#define HOOK_OPEN2(hook, name) \
	HOOK(hook, name, (const char *path, int flags), (path, flags), AT_FDCWD, flags, 0)
HOOK_OPEN2(hook_open_2, __open_2)
HOOK_OPEN2(hook_open64_2, __open64_2)

#define HOOK_OPENAT2(hook, name) \
	HOOK(hook, name, (int dir, const char *path, int flags), (dir, path, flags), dir, flags, 0)
HOOK_OPENAT2(hook_openat_2, __openat_2)
HOOK_OPENAT2(hook_openat64_2, __openat64_2)

#define HOOK_CREAT(hook, name) \
	HOOK(hook, name, (const char *path, mode_t mode), (path, mode), AT_FDCWD, \
		O_CREAT | O_WRONLY | O_TRUNC, mode)
HOOK_CREAT(hook_creat, creat)
HOOK_CREAT(hook_creat64, creat64)

/* ---- fopen ---- */

static int flags_of(const char *mode)
{
	int flags = mode[0] == 'r' ? O_RDONLY : O_WRONLY;
	if (strchr(mode, '+'))
		flags = O_RDWR;
	if (mode[0] != 'r')
		flags |= O_CREAT | (mode[0] == 'w' ? O_TRUNC : O_APPEND);
	if (strchr(mode, 'e'))
		flags |= O_CLOEXEC;
	if (strchr(mode, 'x'))
		flags |= O_EXCL;
	return flags;
}

#define HOOK_FOPEN(hook, name) \
	RPWI_HOOK(FILE *, hook, name, (const char *path, const char *mode)) \
	{ \
		int fd = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe(path)) && \
			open_found(AT_FDCWD, path, flags_of(mode), 0666, &fd)) { \
			FILE *f = fd < 0 ? NULL : fdopen(fd, mode); \
			if (!f && fd >= 0) \
				RPWI_KEEP_ERRNO(syscall(SYS_close, fd)); \
			return f; \
		} \
		return RPWI_NEXT(hook, name)(path, mode); \
	}
HOOK_FOPEN(hook_fopen, fopen)
HOOK_FOPEN(hook_fopen64, fopen64)

/* The C library opens what is open already once more. */
#define HOOK_FREOPEN(hook, name) \
	RPWI_HOOK(FILE *, hook, name, (const char *path, const char *mode, FILE *f)) \
	{ \
		char link[40]; \
		int fd = -1; \
		__typeof__(hook) *next = RPWI_NEXT(hook, name); \
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
HOOK_FREOPEN(hook_freopen, freopen)
HOOK_FREOPEN(hook_freopen64, freopen64)
