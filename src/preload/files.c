/* SPDX-License-Identifier: BSD-3-Clause */
/* files.c - answers reads of a software device's files. UCX and NCCL learn the type of a GID from
 * /sys/class/infiniband/<dev>/ports/1/gid_attrs/types/N, and UCX wants a character device in
 * /dev/infiniband. Only paths that begin with one of our prefixes are looked at; every other call
 * goes straight on.
 *
 * The functions carry their public names as assembler names: open, fopen and stat have too many
 * declarations (large files, fortification, old glibc's __xstat).
 */
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS
#include "preload/preload.h"
#include "ucma/ucma.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* struct stat and stat64 are then the same, and so are open and open64. */
_Static_assert(
	sizeof(void *) == 8 && sizeof(struct stat) == sizeof(struct stat64), "64-bit machines");

/* Documentation/admin-guide/devices.txt; a minor number that no real device has */
enum { UVERBS_MAJOR = 231, MISC_MAJOR = 10, RDMA_CM_MINOR = 0xff000 };

/* The compiler may believe that a path is never NULL, since the C library declares so. The kernel
 * says EFAULT. */
static bool ours(const char *path)
{
	__asm__("" : "+r"(path));
	return path && rpwi_sysfs_maybe(path);
}

static int fail(int err)
{
	errno = err;
	return -1;
}

/* A descriptor from which the file's contents can be read. */
static int open_ours(const char *path, int flags)
{
	char text[RPWI_SYSFS_FILE_MAX];
	size_t len = 0;
	int what = rpwi_sysfs_lookup(path, text, &len);
	if (what < 0)
		return fail(-what);
	if (what == RPWI_PATH_CHARDEV)
		return fail(ENXIO); /* there is no kernel driver behind it */
	if (what == RPWI_PATH_RDMA_CM)
		return rpwi_ucma_open(flags);
	if (what == RPWI_PATH_DIR)
		return fail(EACCES);
	if ((flags & O_ACCMODE) != O_RDONLY || flags & (O_TRUNC | O_DIRECTORY))
		return fail(flags & O_DIRECTORY ? ENOTDIR : EACCES);
	int fd = memfd_create("ropeway-sysfs", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
	if (fd < 0)
		return -1;
	if (pwrite(fd, text, len, 0) != (ssize_t)len) {
		close(fd);
		return fail(EIO);
	}
	return fd;
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

typedef int open_fn(const char *path, int flags, ...);
typedef int openat_fn(int dir, const char *path, int flags, ...);
typedef int open2_fn(const char *path, int flags);
typedef int openat2_fn(int dir, const char *path, int flags);

RPWI_EXPORT open_fn hook_open __asm__("open");
RPWI_EXPORT open_fn hook_open64 __asm__("open64");
RPWI_EXPORT openat_fn hook_openat __asm__("openat");
RPWI_EXPORT openat_fn hook_openat64 __asm__("openat64");
RPWI_EXPORT open2_fn hook_open_2 __asm__("__open_2");
RPWI_EXPORT open2_fn hook_open64_2 __asm__("__open64_2");
RPWI_EXPORT openat2_fn hook_openat_2 __asm__("__openat_2");
RPWI_EXPORT openat2_fn hook_openat64_2 __asm__("__openat64_2");

int hook_open(const char *path, int flags, ...)
{
	static open_fn *next;
	mode_t mode = MODE_OF(flags);
	if (ours(path))
		return open_ours(path, flags);
	if (!next)
		next = (open_fn *)rpwi_next("open");
	return next(path, flags, mode);
}

int hook_open64(const char *path, int flags, ...)
{
	static open_fn *next;
	mode_t mode = MODE_OF(flags);
	if (ours(path))
		return open_ours(path, flags);
	if (!next)
		next = (open_fn *)rpwi_next("open64");
	return next(path, flags, mode);
}

int hook_openat(int dir, const char *path, int flags, ...)
{
	static openat_fn *next;
	mode_t mode = MODE_OF(flags);
	if (ours(path))
		return open_ours(path, flags);
	if (!next)
		next = (openat_fn *)rpwi_next("openat");
	return next(dir, path, flags, mode);
}

int hook_openat64(int dir, const char *path, int flags, ...)
{
	static openat_fn *next;
	mode_t mode = MODE_OF(flags);
	if (ours(path))
		return open_ours(path, flags);
	if (!next)
		next = (openat_fn *)rpwi_next("openat64");
	return next(dir, path, flags, mode);
}

/* What a fortified program calls when no mode was given. */
int hook_open_2(const char *path, int flags)
{
	static open2_fn *next;
	if (ours(path))
		return open_ours(path, flags);
	if (!next)
		next = (open2_fn *)rpwi_next("__open_2");
	return next(path, flags);
}

int hook_open64_2(const char *path, int flags)
{
	static open2_fn *next;
	if (ours(path))
		return open_ours(path, flags);
	if (!next)
		next = (open2_fn *)rpwi_next("__open64_2");
	return next(path, flags);
}

int hook_openat_2(int dir, const char *path, int flags)
{
	static openat2_fn *next;
	if (ours(path))
		return open_ours(path, flags);
	if (!next)
		next = (openat2_fn *)rpwi_next("__openat_2");
	return next(dir, path, flags);
}

int hook_openat64_2(int dir, const char *path, int flags)
{
	static openat2_fn *next;
	if (ours(path))
		return open_ours(path, flags);
	if (!next)
		next = (openat2_fn *)rpwi_next("__openat64_2");
	return next(dir, path, flags);
}

/* ---- fopen ---- */

typedef FILE *fopen_fn(const char *path, const char *mode);
RPWI_EXPORT fopen_fn hook_fopen __asm__("fopen");
RPWI_EXPORT fopen_fn hook_fopen64 __asm__("fopen64");

static FILE *fopen_ours(const char *path, const char *mode)
{
	if (mode[0] != 'r' || strchr(mode, '+')) {
		errno = EACCES;
		return NULL;
	}
	int fd = open_ours(path, strchr(mode, 'e') ? O_RDONLY | O_CLOEXEC : O_RDONLY);
	if (fd < 0)
		return NULL;
	FILE *f = fdopen(fd, "r");
	if (!f)
		close(fd);
	return f;
}

FILE *hook_fopen(const char *path, const char *mode)
{
	static fopen_fn *next;
	if (ours(path))
		return fopen_ours(path, mode);
	if (!next)
		next = (fopen_fn *)rpwi_next("fopen");
	return next(path, mode);
}

FILE *hook_fopen64(const char *path, const char *mode)
{
	static fopen_fn *next;
	if (ours(path))
		return fopen_ours(path, mode);
	if (!next)
		next = (fopen_fn *)rpwi_next("fopen64");
	return next(path, mode);
}

/* ---- stat and access ---- */

/* Where the kernel has an rdma_cm device, librdmacm compares its number (which it learns by
 * netlink) with that of the file it has opened. */
dev_t rpwi_rdma_cm_rdev(void)
{
	struct stat st;
	int (*next)(int, const char *, struct stat *, int) =
		(int (*)(int, const char *, struct stat *, int))rpwi_next("fstatat");
	if (next && !next(AT_FDCWD, "/dev/infiniband/rdma_cm", &st, 0))
		return st.st_rdev;
	return makedev(MISC_MAJOR, RDMA_CM_MINOR);
}

static int stat_ours(const char *path, struct stat *st)
{
	char text[RPWI_SYSFS_FILE_MAX];
	size_t len = 0;
	int what = rpwi_sysfs_lookup(path, text, &len);
	if (what == -EINVAL) /* there, but not to be read, as sysfs has it for an empty GID */
		what = RPWI_PATH_FILE;
	if (what < 0)
		return fail(-what);
	*st = (struct stat){.st_nlink = 1, .st_blksize = 4096, .st_ino = 1};
	if (what == RPWI_PATH_CHARDEV || what == RPWI_PATH_RDMA_CM) {
		st->st_mode = S_IFCHR | 0666;
		st->st_rdev = what == RPWI_PATH_CHARDEV ? makedev(UVERBS_MAJOR, 0xff000)
							: rpwi_rdma_cm_rdev();
	} else if (what == RPWI_PATH_DIR) {
		st->st_mode = S_IFDIR | 0555;
	} else {
		st->st_mode = S_IFREG | 0444;
		st->st_size = 4096; /* as sysfs files show */
	}
	return 0;
}

static int access_ours(const char *path, int mode)
{
	struct stat st;
	if (stat_ours(path, &st))
		return -1;
	bool dev = S_ISCHR(st.st_mode), dir = S_ISDIR(st.st_mode);
	if ((mode & W_OK && !dev) || (mode & X_OK && !dir))
		return fail(EACCES);
	return 0;
}

typedef int stat_fn(const char *path, struct stat *st);
typedef int xstat_fn(int version, const char *path, struct stat *st);
typedef int fstatat_fn(int dir, const char *path, struct stat *st, int flags);
typedef int access_fn(const char *path, int mode);
RPWI_EXPORT stat_fn hook_stat __asm__("stat");
RPWI_EXPORT stat_fn hook_stat64 __asm__("stat64");
RPWI_EXPORT stat_fn hook_lstat __asm__("lstat");
RPWI_EXPORT stat_fn hook_lstat64 __asm__("lstat64");
RPWI_EXPORT xstat_fn hook_xstat __asm__("__xstat");
RPWI_EXPORT xstat_fn hook_xstat64 __asm__("__xstat64");
RPWI_EXPORT xstat_fn hook_lxstat __asm__("__lxstat");
RPWI_EXPORT xstat_fn hook_lxstat64 __asm__("__lxstat64");
RPWI_EXPORT fstatat_fn hook_fstatat __asm__("fstatat");
RPWI_EXPORT fstatat_fn hook_fstatat64 __asm__("fstatat64");
RPWI_EXPORT access_fn hook_access __asm__("access");

/* glibc has these as functions since 2.33; a program built with an older one calls __xstat. On an
 * older one `stat` is inline, and nobody calls what we define here. */
static int next_stat(stat_fn **next, const char *name, const char *path, struct stat *st)
{
	if (!*next && !(*next = (stat_fn *)rpwi_next(name)))
		return fail(ENOSYS);
	return (*next)(path, st);
}

static int next_xstat(
	xstat_fn **next, const char *name, int version, const char *path, struct stat *st)
{
	if (!*next)
		*next = (xstat_fn *)rpwi_next(name);
	return (*next)(version, path, st);
}

int hook_stat(const char *path, struct stat *st)
{
	static stat_fn *next;
	return ours(path) ? stat_ours(path, st) : next_stat(&next, "stat", path, st);
}

int hook_stat64(const char *path, struct stat *st)
{
	static stat_fn *next;
	return ours(path) ? stat_ours(path, st) : next_stat(&next, "stat64", path, st);
}

int hook_lstat(const char *path, struct stat *st)
{
	static stat_fn *next;
	return ours(path) ? stat_ours(path, st) : next_stat(&next, "lstat", path, st);
}

int hook_lstat64(const char *path, struct stat *st)
{
	static stat_fn *next;
	return ours(path) ? stat_ours(path, st) : next_stat(&next, "lstat64", path, st);
}

int hook_xstat(int version, const char *path, struct stat *st)
{
	static xstat_fn *next;
	return ours(path) ? stat_ours(path, st) : next_xstat(&next, "__xstat", version, path, st);
}

int hook_xstat64(int version, const char *path, struct stat *st)
{
	static xstat_fn *next;
	return ours(path) ? stat_ours(path, st) : next_xstat(&next, "__xstat64", version, path, st);
}

int hook_lxstat(int version, const char *path, struct stat *st)
{
	static xstat_fn *next;
	return ours(path) ? stat_ours(path, st) : next_xstat(&next, "__lxstat", version, path, st);
}

int hook_lxstat64(int version, const char *path, struct stat *st)
{
	static xstat_fn *next;
	return ours(path) ? stat_ours(path, st)
			  : next_xstat(&next, "__lxstat64", version, path, st);
}

int hook_fstatat(int dir, const char *path, struct stat *st, int flags)
{
	static fstatat_fn *next;
	if (ours(path))
		return stat_ours(path, st);
	if (!next && !(next = (fstatat_fn *)rpwi_next("fstatat")))
		return fail(ENOSYS);
	return next(dir, path, st, flags);
}

int hook_fstatat64(int dir, const char *path, struct stat *st, int flags)
{
	static fstatat_fn *next;
	if (ours(path))
		return stat_ours(path, st);
	if (!next && !(next = (fstatat_fn *)rpwi_next("fstatat64")))
		return fail(ENOSYS);
	return next(dir, path, st, flags);
}

int hook_access(const char *path, int mode)
{
	static access_fn *next;
	if (ours(path))
		return access_ours(path, mode);
	if (!next)
		next = (access_fn *)rpwi_next("access");
	return next(path, mode);
}
