/* SPDX-License-Identifier: BSD-3-Clause */
/* look.c - what is there: the stat family, access, statfs, extended attributes. */
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS
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

/* False: go on. True: *rc is the answer. */
static bool stat_found(int dir, const char *path, int flags, struct stat *st, int *rc)
{
	struct rpwi_place p;
	int found = rpwi_place_find(&p, dir, path,
		(flags & AT_SYMLINK_NOFOLLOW ? RPWI_NOFOLLOW : 0) |
			(flags & AT_EMPTY_PATH ? RPWI_EMPTY : 0));
	if (found == RPWI_OURS)
		*rc = (rpwi_ours_stat(&p, st), 0);
	else if (found == RPWI_REAL)
		*rc = rpwi_raw_stat(p.path, st, flags & AT_SYMLINK_NOFOLLOW);
	else if (found < 0)
		*rc = rpwi_fail(-found);
	rpwi_place_done(&p);
	return found != RPWI_PASS;
}

typedef int stat_fn(const char *path, struct stat *st);
typedef int xstat_fn(int version, const char *path, struct stat *st);
typedef int fstatat_fn(int dir, const char *path, struct stat *st, int flags);
typedef int fxstatat_fn(int version, int dir, const char *path, struct stat *st, int flags);

/* glibc has stat, lstat, fstat and fstatat as functions since 2.33; a program built with an older
 * one calls __xstat. On an older one `stat` is inline, and nobody calls what we define here. */
#define HOOK_STAT(hook, name, flags) \
	RPWI_EXPORT stat_fn hook __asm__(name); \
	int hook(const char *path, struct stat *st) \
	{ \
		static stat_fn *next; \
		int rc = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe(path)) && stat_found(AT_FDCWD, path, flags, st, &rc)) \
			return rc; \
		if (!next && !(next = (stat_fn *)rpwi_next(name))) \
			return rpwi_fail(ENOSYS); \
		return next(path, st); \
	}
HOOK_STAT(hook_stat, "stat", 0)
HOOK_STAT(hook_stat64, "stat64", 0)
HOOK_STAT(hook_lstat, "lstat", AT_SYMLINK_NOFOLLOW)
HOOK_STAT(hook_lstat64, "lstat64", AT_SYMLINK_NOFOLLOW)

#define HOOK_XSTAT(hook, name, flags) \
	RPWI_EXPORT xstat_fn hook __asm__(name); \
	int hook(int version, const char *path, struct stat *st) \
	{ \
		static xstat_fn *next; \
		int rc = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe(path)) && stat_found(AT_FDCWD, path, flags, st, &rc)) \
			return rc; \
		if (!next && !(next = (xstat_fn *)rpwi_next(name))) \
			return rpwi_fail(ENOSYS); \
		return next(version, path, st); \
	}
HOOK_XSTAT(hook_xstat, "__xstat", 0)
HOOK_XSTAT(hook_xstat64, "__xstat64", 0)
HOOK_XSTAT(hook_lxstat, "__lxstat", AT_SYMLINK_NOFOLLOW)
HOOK_XSTAT(hook_lxstat64, "__lxstat64", AT_SYMLINK_NOFOLLOW)

#define HOOK_FSTATAT(hook, name) \
	RPWI_EXPORT fstatat_fn hook __asm__(name); \
	int hook(int dir, const char *path, struct stat *st, int flags) \
	{ \
		static fstatat_fn *next; \
		int rc = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe_at(dir, path)) && \
			stat_found(dir, path, flags, st, &rc)) \
			return rc; \
		if (!next && !(next = (fstatat_fn *)rpwi_next(name))) \
			return rpwi_fail(ENOSYS); \
		return next(dir, path, st, flags); \
	}
HOOK_FSTATAT(hook_fstatat, "fstatat")
HOOK_FSTATAT(hook_fstatat64, "fstatat64")

#define HOOK_FXSTATAT(hook, name) \
	RPWI_EXPORT fxstatat_fn hook __asm__(name); \
	int hook(int version, int dir, const char *path, struct stat *st, int flags) \
	{ \
		static fxstatat_fn *next; \
		int rc = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe_at(dir, path)) && \
			stat_found(dir, path, flags, st, &rc)) \
			return rc; \
		if (!next && !(next = (fxstatat_fn *)rpwi_next(name))) \
			return rpwi_fail(ENOSYS); \
		return next(version, dir, path, st, flags); \
	}
HOOK_FXSTATAT(hook_fxstatat, "__fxstatat")
HOOK_FXSTATAT(hook_fxstatat64, "__fxstatat64")

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

typedef int statx_fn(int dir, const char *path, int flags, unsigned mask, struct statx *x);
RPWI_EXPORT statx_fn hook_statx __asm__("statx");
int hook_statx(int dir, const char *path, int flags, unsigned mask, struct statx *x)
{
	static statx_fn *next;
	struct stat st;
	struct rpwi_place p;
	int found = RPWI_PASS, rc = -1;
	if (RPWI_UNLIKELY(rpwi_maybe_at(dir, path))) {
		found = rpwi_place_find(&p, dir, path,
			(flags & AT_SYMLINK_NOFOLLOW ? RPWI_NOFOLLOW : 0) |
				(flags & AT_EMPTY_PATH ? RPWI_EMPTY : 0));
		if (found == RPWI_OURS) {
			rpwi_ours_stat(&p, &st);
			to_statx(&st, x);
			rc = 0;
		} else if (found == RPWI_REAL) {
			rc = (int)syscall(SYS_statx, AT_FDCWD, p.path, flags, mask, x);
		} else if (found < 0) {
			rc = rpwi_fail(-found);
		}
		rpwi_place_done(&p);
	}
	if (found != RPWI_PASS)
		return rc;
	if (!next && !(next = (statx_fn *)rpwi_next("statx")))
		return rpwi_fail(ENOSYS);
	return next(dir, path, flags, mask, x);
}

/* ---- fstat: librdmacm's channels (channel.c of ucma), and our descriptors ---- */

typedef int fstat_fn(int fd, struct stat *st);
typedef int fxstat_fn(int version, int fd, struct stat *st);

/* librdmacm wants a character device, of the number that it knows. */
static bool fstat_found(int fd, struct stat *st)
{
	struct rpwi_place p;
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
	RPWI_EXPORT fstat_fn hook __asm__(name); \
	int hook(int fd, struct stat *st) \
	{ \
		static fstat_fn *next; \
		if (fstat_found(fd, st)) \
			return 0; \
		if (!next && !(next = (fstat_fn *)rpwi_next(name))) \
			return rpwi_fail(ENOSYS); \
		return next(fd, st); \
	}
HOOK_FSTAT(hook_fstat, "fstat")
HOOK_FSTAT(hook_fstat64, "fstat64")

#define HOOK_FXSTAT(hook, name) \
	RPWI_EXPORT fxstat_fn hook __asm__(name); \
	int hook(int version, int fd, struct stat *st) \
	{ \
		static fxstat_fn *next; \
		if (fstat_found(fd, st)) \
			return 0; \
		if (!next && !(next = (fxstat_fn *)rpwi_next(name))) \
			return rpwi_fail(ENOSYS); \
		return next(version, fd, st); \
	}
HOOK_FXSTAT(hook_fxstat, "__fxstat")
HOOK_FXSTAT(hook_fxstat64, "__fxstat64")

/* ---- access ---- */

static int may(const struct rpwi_place *p, int mode)
{
	struct stat st;
	rpwi_ours_stat(p, &st);
	bool dev = S_ISCHR(st.st_mode), dir = S_ISDIR(st.st_mode);
	if ((mode & W_OK && !dev) || (mode & X_OK && !dir))
		return rpwi_fail(EACCES);
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
		*rc = rpwi_fail(-found);
	rpwi_place_done(&p);
	return found != RPWI_PASS;
}

typedef int access_fn(const char *path, int mode);
typedef int faccessat_fn(int dir, const char *path, int mode, int flags);
#define HOOK_ACCESS(hook, name) \
	RPWI_EXPORT access_fn hook __asm__(name); \
	int hook(const char *path, int mode) \
	{ \
		static access_fn *next; \
		int rc = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe(path)) && access_found(AT_FDCWD, path, mode, 0, &rc)) \
			return rc; \
		if (!next) \
			next = (access_fn *)rpwi_next(name); \
		return next(path, mode); \
	}
HOOK_ACCESS(hook_access, "access")
HOOK_ACCESS(hook_eaccess, "eaccess")
HOOK_ACCESS(hook_euidaccess, "euidaccess")

RPWI_EXPORT faccessat_fn hook_faccessat __asm__("faccessat");
int hook_faccessat(int dir, const char *path, int mode, int flags)
{
	static faccessat_fn *next;
	int rc = -1;
	if (RPWI_UNLIKELY(rpwi_maybe_at(dir, path)) && access_found(dir, path, mode, flags, &rc))
		return rc;
	if (!next)
		next = (faccessat_fn *)rpwi_next("faccessat");
	return next(dir, path, mode, flags);
}

/* ---- the file system: systemd's libraries ask whether it is sysfs ---- */

typedef int statfs_fn(const char *path, struct statfs *st);
typedef int fstatfs_fn(int fd, struct statfs *st);

/* *real: the path to ask for instead. */
static bool root_found(const char *path, struct rpwi_place *p, const char **real, int *rc)
{
	int found = rpwi_place_find(p, AT_FDCWD, path, 0);
	*real = found == RPWI_OURS ? p->path[1] == 'd' ? "/dev" : "/sys" : p->path;
	if (found < 0)
		*rc = rpwi_fail(-found);
	rpwi_place_done(p);
	return found != RPWI_PASS;
}

#define HOOK_STATFS(hook, name, type) \
	RPWI_EXPORT int hook(const char *path, struct type *st) __asm__(name); \
	int hook(const char *path, struct type *st) \
	{ \
		static int (*next)(const char *, struct type *); \
		struct rpwi_place p; \
		int rc = 0; \
		if (!next) \
			next = (__typeof__(next))rpwi_next(name); \
		if (RPWI_UNLIKELY(rpwi_maybe(path)) && root_found(path, &p, &path, &rc) && rc) \
			return rc; \
		return next(path, st); \
	}
#define HOOK_FSTATFS(hook, name, whole, type) \
	RPWI_EXPORT int hook(int fd, struct type *st) __asm__(name); \
	int hook(int fd, struct type *st) \
	{ \
		static int (*next)(int, struct type *); \
		static int (*by_path)(const char *, struct type *); \
		struct rpwi_place p; \
		if (RPWI_UNLIKELY(rpwi_fd_state(fd) == RPWI_FD_TOKEN)) { \
			int found = rpwi_place_of_fd(&p, fd); \
			rpwi_place_done(&p); \
			if (!by_path) \
				by_path = (__typeof__(by_path))rpwi_next(whole); \
			if (found == RPWI_OURS) \
				return by_path(p.path[1] == 'd' ? "/dev" : "/sys", st); \
		} \
		if (!next) \
			next = (__typeof__(next))rpwi_next(name); \
		return next(fd, st); \
	}
HOOK_STATFS(hook_statfs, "statfs", statfs)
HOOK_STATFS(hook_statfs64, "statfs64", statfs64)
HOOK_STATFS(hook_statvfs, "statvfs", statvfs)
HOOK_STATFS(hook_statvfs64, "statvfs64", statvfs64)
HOOK_FSTATFS(hook_fstatfs, "fstatfs", "statfs", statfs)
HOOK_FSTATFS(hook_fstatfs64, "fstatfs64", "statfs64", statfs64)
HOOK_FSTATFS(hook_fstatvfs, "fstatvfs", "statvfs", statvfs)
HOOK_FSTATFS(hook_fstatvfs64, "fstatvfs64", "statvfs64", statvfs64)

/* ---- extended attributes: there are none (`ls -l` asks for two) ---- */

static bool attribute_found(const char *path, int flags, struct rpwi_place *p, ssize_t none,
	const char **real, ssize_t *rc)
{
	int found = rpwi_place_find(p, AT_FDCWD, path, flags);
	if (found < 0 || (found == RPWI_OURS && none))
		*rc = rpwi_fail(found < 0 ? -found : ENODATA);
	else if (found == RPWI_OURS)
		*rc = 0;
	else if (found == RPWI_REAL)
		*real = p->path;
	rpwi_place_done(p);
	return found < 0 || found == RPWI_OURS;
}

#define HOOK_GETXATTR(hook, name, flags) \
	RPWI_EXPORT ssize_t hook( \
		const char *path, const char *attr, void *value, size_t size) __asm__(name); \
	ssize_t hook(const char *path, const char *attr, void *value, size_t size) \
	{ \
		static ssize_t (*next)(const char *, const char *, void *, size_t); \
		struct rpwi_place p; \
		ssize_t rc = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe(path)) && \
			attribute_found(path, flags, &p, 1, &path, &rc)) \
			return rc; \
		if (!next) \
			next = (__typeof__(next))rpwi_next(name); \
		return next(path, attr, value, size); \
	}
#define HOOK_LISTXATTR(hook, name, flags) \
	RPWI_EXPORT ssize_t hook(const char *path, char *list, size_t size) __asm__(name); \
	ssize_t hook(const char *path, char *list, size_t size) \
	{ \
		static ssize_t (*next)(const char *, char *, size_t); \
		struct rpwi_place p; \
		ssize_t rc = -1; \
		if (RPWI_UNLIKELY(rpwi_maybe(path)) && \
			attribute_found(path, flags, &p, 0, &path, &rc)) \
			return rc; \
		if (!next) \
			next = (__typeof__(next))rpwi_next(name); \
		return next(path, list, size); \
	}
HOOK_GETXATTR(hook_getxattr, "getxattr", 0)
HOOK_GETXATTR(hook_lgetxattr, "lgetxattr", RPWI_NOFOLLOW)
HOOK_LISTXATTR(hook_listxattr, "listxattr", 0)
HOOK_LISTXATTR(hook_llistxattr, "llistxattr", RPWI_NOFOLLOW)
