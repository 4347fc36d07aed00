/* SPDX-License-Identifier: BSD-3-Clause */
/* look.c - what is there: the stat family, access, statfs, extended attributes. */
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS
#include "preload/next.h"
#include "preload/preload.h"
#include "tree/tree.h"
#include "ucma/ucma.h"

#include <fcntl.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ---- stat ---- */

static int flags_of(int at_flags)
{
	int flags = at_flags & AT_SYMLINK_NOFOLLOW ? RPWI_NOFOLLOW : 0;
	return at_flags & AT_EMPTY_PATH ? flags | RPWI_EMPTY : flags;
}

/* False: go on. True: *rc is the answer. */
static bool stat_found(int dir, const char *path, int flags, struct stat *st, int *rc)
{
	struct rpwi_place p;
	int found = rpwi_place_find(&p, dir, path, flags_of(flags));
	if (found == RPWI_OURS)
		*rc = (rpwi_ours_stat(&p, st), 0);
	else if (found == RPWI_REAL)
		*rc = rpwi_raw_stat(p.path, st, flags & AT_SYMLINK_NOFOLLOW);
	else if (found < 0)
		*rc = rpwi_minus(-found);
	rpwi_place_done(&p);
	return found != RPWI_PASS;
}

/* glibc has stat, lstat, fstat and fstatat as functions since 2.33; a program built with an older
 * one calls __xstat. On an older one `stat` is inline, and nobody calls what we define here. */
#define STAT_FOUND(dir, flags) \
	RPWI_UNLIKELY(rpwi_maybe_at(dir, path)) && stat_found(dir, path, flags, st, &rc)
#define HOOK_STAT(hook, name, flags) \
	RPWI_HOOK_UNLESS(int, hook, name, (const char *path, struct stat *st), (path, st), \
		STAT_FOUND(AT_FDCWD, flags))
HOOK_STAT(hook_stat, stat, 0)
HOOK_STAT(hook_stat64, stat64, 0)
HOOK_STAT(hook_lstat, lstat, AT_SYMLINK_NOFOLLOW)
HOOK_STAT(hook_lstat64, lstat64, AT_SYMLINK_NOFOLLOW)

#define HOOK_XSTAT(hook, name, flags) \
	RPWI_HOOK_UNLESS(int, hook, name, (int version, const char *path, struct stat *st), \
		(version, path, st), STAT_FOUND(AT_FDCWD, flags))
HOOK_XSTAT(hook_xstat, __xstat, 0)
HOOK_XSTAT(hook_xstat64, __xstat64, 0)
HOOK_XSTAT(hook_lxstat, __lxstat, AT_SYMLINK_NOFOLLOW)
HOOK_XSTAT(hook_lxstat64, __lxstat64, AT_SYMLINK_NOFOLLOW)

#define HOOK_FSTATAT(hook, name) \
	RPWI_HOOK_UNLESS(int, hook, name, (int dir, const char *path, struct stat *st, int flags), \
		(dir, path, st, flags), STAT_FOUND(dir, flags))
HOOK_FSTATAT(hook_fstatat, fstatat)
HOOK_FSTATAT(hook_fstatat64, fstatat64)

#define HOOK_FXSTATAT(hook, name) \
	RPWI_HOOK_UNLESS(int, hook, name, \
		(int version, int dir, const char *path, struct stat *st, int flags), \
		(version, dir, path, st, flags), STAT_FOUND(dir, flags))
HOOK_FXSTATAT(hook_fxstatat, __fxstatat)
HOOK_FXSTATAT(hook_fxstatat64, __fxstatat64)

static void to_statx(const struct stat *st, struct statx *x)
{
	*x = (struct statx){.stx_mask = STATX_BASIC_STATS,
		.stx_blksize = (uint32_t)st->st_blksize,
		.stx_nlink = (uint32_t)st->st_nlink,
		.stx_mode = (uint16_t)st->st_mode,
		.stx_ino = st->st_ino,
		.stx_size = (uint64_t)st->st_size,
		.stx_rdev_major = major(st->st_rdev),
		.stx_rdev_minor = minor(st->st_rdev),
		.stx_dev_major = major(st->st_dev),
		.stx_dev_minor = minor(st->st_dev)};
	x->stx_atime.tv_sec = x->stx_mtime.tv_sec = x->stx_ctime.tv_sec = st->st_mtim.tv_sec;
	x->stx_atime.tv_nsec = x->stx_mtime.tv_nsec = x->stx_ctime.tv_nsec =
		(uint32_t)st->st_mtim.tv_nsec;
}

static bool statx_found(
	int dir, const char *path, int flags, unsigned mask, struct statx *x, int *rc)
{
	struct rpwi_place p;
	struct stat st;
	int found = rpwi_place_find(&p, dir, path, flags_of(flags));
	if (found == RPWI_OURS) {
		rpwi_ours_stat(&p, &st);
		to_statx(&st, x);
		*rc = 0;
	} else if (found == RPWI_REAL) {
		*rc = (int)syscall(SYS_statx, AT_FDCWD, p.path, flags, mask, x);
	} else if (found < 0) {
		*rc = rpwi_minus(-found);
	}
	rpwi_place_done(&p);
	return found != RPWI_PASS;
}

RPWI_HOOK_UNLESS(int, hook_statx, statx,
	(int dir, const char *path, int flags, unsigned mask, struct statx *x),
	(dir, path, flags, mask, x),
	RPWI_UNLIKELY(rpwi_maybe_at(dir, path)) && statx_found(dir, path, flags, mask, x, &rc))

/* ---- fstat: librdmacm's channels (channel.c of ucma), and our descriptors ---- */

/* librdmacm wants a character device, of the number that it knows. */
static bool fstat_found(int fd, struct stat *st, int *rc)
{
	struct rpwi_place p;
	*rc = 0;
	if (RPWI_UNLIKELY(rpwi_ucma_maybe(fd)) && rpwi_ucma_owns(fd)) {
		*st = (struct stat){.st_nlink = 1,
			.st_blksize = 4096,
			.st_ino = 1,
			.st_mode = S_IFCHR | 0666,
			.st_rdev = rpwi_rdma_cm_rdev()};
		return true;
	}
	if (RPWI_LIKELY(rpwi_fd_state(fd) != RPWI_FD_TOKEN))
		return false;
	int found = rpwi_place_of_fd(&p, fd);
	if (found == RPWI_OURS)
		rpwi_ours_stat(&p, st);
	else
		rpwi_fd_is(fd, RPWI_FD_UNKNOWN); /* another file has the number now */
	rpwi_place_done(&p);
	return found == RPWI_OURS;
}

#define HOOK_FSTAT(hook, name) \
	RPWI_HOOK_UNLESS( \
		int, hook, name, (int fd, struct stat *st), (fd, st), fstat_found(fd, st, &rc))
HOOK_FSTAT(hook_fstat, fstat)
HOOK_FSTAT(hook_fstat64, fstat64)

#define HOOK_FXSTAT(hook, name) \
	RPWI_HOOK_UNLESS(int, hook, name, (int version, int fd, struct stat *st), \
		(version, fd, st), fstat_found(fd, st, &rc))
HOOK_FXSTAT(hook_fxstat, __fxstat)
HOOK_FXSTAT(hook_fxstat64, __fxstat64)

/* ---- access ---- */

static int may(const struct rpwi_place *p, int mode)
{
	struct stat st;
	rpwi_ours_stat(p, &st);
	bool dev = S_ISCHR(st.st_mode), dir = S_ISDIR(st.st_mode);
	if ((mode & W_OK && !dev) || (mode & X_OK && !dir))
		return rpwi_minus(EACCES);
	return 0;
}

static bool access_found(int dir, const char *path, int mode, int flags, int *rc)
{
	struct rpwi_place p;
	int found = rpwi_place_find(&p, dir, path, flags & AT_SYMLINK_NOFOLLOW ? RPWI_NOFOLLOW : 0);
	if (found == RPWI_OURS)
		*rc = may(&p, mode);
	else if (found == RPWI_REAL)
		*rc = (int)syscall(SYS_faccessat, AT_FDCWD, p.path, mode);
	else if (found < 0)
		*rc = rpwi_minus(-found);
	rpwi_place_done(&p);
	return found != RPWI_PASS;
}

#define HOOK_ACCESS(hook, name) \
	RPWI_HOOK_UNLESS(int, hook, name, (const char *path, int mode), (path, mode), \
		RPWI_UNLIKELY(rpwi_maybe(path)) && access_found(AT_FDCWD, path, mode, 0, &rc))
HOOK_ACCESS(hook_access, access)
HOOK_ACCESS(hook_eaccess, eaccess)
HOOK_ACCESS(hook_euidaccess, euidaccess)

RPWI_HOOK_UNLESS(int, hook_faccessat, faccessat, (int dir, const char *path, int mode, int flags),
	(dir, path, mode, flags),
	RPWI_UNLIKELY(rpwi_maybe_at(dir, path)) && access_found(dir, path, mode, flags, &rc))

/* ---- the file system: systemd's libraries ask whether it is sysfs ---- */

static const char *root_of(const struct rpwi_place *p)
{
	return p->path[1] == 'd' ? "/dev" : "/sys";
}

/* *real: the path to ask for instead. */
static bool root_found(const char *path, struct rpwi_place *p, const char **real, int *rc)
{
	int found = rpwi_place_find(p, AT_FDCWD, path, 0);
	*real = found == RPWI_OURS ? root_of(p) : p->path;
	if (found < 0)
		*rc = rpwi_minus(-found);
	rpwi_place_done(p);
	return found != RPWI_PASS;
}

#define HOOK_STATFS(hook, name, type) \
	RPWI_HOOK(int, hook, name, (const char *path, struct type *st)) \
	{ \
		struct rpwi_place p; \
		int rc = 0; \
		if (RPWI_UNLIKELY(rpwi_maybe(path)) && root_found(path, &p, &path, &rc) && rc) \
			return rc; \
		return RPWI_NEXT(hook, name)(path, st); \
	}
#define HOOK_FSTATFS(hook, name, by_path, by_path_name, type) \
	RPWI_HOOK(int, hook, name, (int fd, struct type *st)) \
	{ \
		struct rpwi_place p; \
		if (RPWI_UNLIKELY(rpwi_fd_state(fd) == RPWI_FD_TOKEN)) { \
			int found = rpwi_place_of_fd(&p, fd); \
			rpwi_place_done(&p); \
			if (found == RPWI_OURS) \
				return RPWI_NEXT(by_path, by_path_name)(root_of(&p), st); \
		} \
		return RPWI_NEXT(hook, name)(fd, st); \
	}
HOOK_STATFS(hook_statfs, statfs, statfs)
HOOK_STATFS(hook_statfs64, statfs64, statfs64)
HOOK_STATFS(hook_statvfs, statvfs, statvfs)
HOOK_STATFS(hook_statvfs64, statvfs64, statvfs64)
HOOK_FSTATFS(hook_fstatfs, fstatfs, hook_statfs, statfs, statfs)
HOOK_FSTATFS(hook_fstatfs64, fstatfs64, hook_statfs64, statfs64, statfs64)
HOOK_FSTATFS(hook_fstatvfs, fstatvfs, hook_statvfs, statvfs, statvfs)
HOOK_FSTATFS(hook_fstatvfs64, fstatvfs64, hook_statvfs64, statvfs64, statvfs64)

/* ---- extended attributes: there are none (`ls -l` asks for two) ---- */

static bool attribute_found(const char *path, int flags, struct rpwi_place *p, ssize_t none,
	const char **real, ssize_t *rc)
{
	int found = rpwi_place_find(p, AT_FDCWD, path, flags);
	if (found < 0 || (found == RPWI_OURS && none))
		*rc = rpwi_minus(found < 0 ? -found : ENODATA);
	else if (found == RPWI_OURS)
		*rc = 0;
	else if (found == RPWI_REAL)
		*real = p->path;
	rpwi_place_done(p);
	return found < 0 || found == RPWI_OURS;
}

#define HOOK_GETXATTR(hook, name, flags) \
	RPWI_HOOK(ssize_t, hook, name, \
		(const char *path, const char *attr, void *value, size_t size)) \
	{ \
		struct rpwi_place p; \
		ssize_t rc = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe(path)) && \
			attribute_found(path, flags, &p, 1, &path, &rc)) \
			return rc; \
		return RPWI_NEXT(hook, name)(path, attr, value, size); \
	}
#define HOOK_LISTXATTR(hook, name, flags) \
	RPWI_HOOK(ssize_t, hook, name, (const char *path, char *list, size_t size)) \
	{ \
		struct rpwi_place p; \
		ssize_t rc = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe(path)) && \
			attribute_found(path, flags, &p, 0, &path, &rc)) \
			return rc; \
		return RPWI_NEXT(hook, name)(path, list, size); \
	}
HOOK_GETXATTR(hook_getxattr, getxattr, 0)
HOOK_GETXATTR(hook_lgetxattr, lgetxattr, RPWI_NOFOLLOW)
HOOK_LISTXATTR(hook_listxattr, listxattr, 0)
HOOK_LISTXATTR(hook_llistxattr, llistxattr, RPWI_NOFOLLOW)
