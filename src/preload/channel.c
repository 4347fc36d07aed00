/* SPDX-License-Identifier: BSD-3-Clause */
/* channel.c - librdmacm's event channels: their descriptors are not the kernel's, so what librdmacm
 * does to them is answered here (src/ucma). Every other descriptor goes straight on, after a look
 * into a table.
 */
#include "preload/preload.h"
#include "ucma/ucma.h"

#include <sys/stat.h>
#include <unistd.h>

typedef ssize_t write_fn(int fd, const void *buf, size_t len);
typedef int close_fn(int fd);
typedef int fstat_fn(int fd, struct stat *st);
typedef int fxstat_fn(int version, int fd, struct stat *st);
RPWI_EXPORT write_fn hook_write __asm__("write");
RPWI_EXPORT close_fn hook_close __asm__("close");
RPWI_EXPORT fstat_fn hook_fstat __asm__("fstat");
RPWI_EXPORT fstat_fn hook_fstat64 __asm__("fstat64");
RPWI_EXPORT fxstat_fn hook_fxstat __asm__("__fxstat");
RPWI_EXPORT fxstat_fn hook_fxstat64 __asm__("__fxstat64");

static bool ours(int fd) { return RPWI_UNLIKELY(rpwi_ucma_maybe(fd)) && rpwi_ucma_owns(fd); }

ssize_t hook_write(int fd, const void *buf, size_t len)
{
	static write_fn *next;
	ssize_t result;
	if (RPWI_UNLIKELY(rpwi_ucma_maybe(fd)) && rpwi_ucma_write(fd, buf, len, &result))
		return result;
	if (!next)
		next = (write_fn *)rpwi_next("write");
	return next(fd, buf, len);
}

int hook_close(int fd)
{
	static close_fn *next;
	if (RPWI_UNLIKELY(rpwi_ucma_maybe(fd)))
		rpwi_ucma_closing(fd);
	if (!next)
		next = (close_fn *)rpwi_next("close");
	return next(fd);
}

/* librdmacm wants a character device, of the number that it knows. */
static int fstat_ours(struct stat *st)
{
	*st = (struct stat){.st_nlink = 1,
		.st_blksize = 4096,
		.st_ino = 1,
		.st_mode = S_IFCHR | 0666,
		.st_rdev = rpwi_rdma_cm_rdev()};
	return 0;
}

static int next_fstat(fstat_fn **next, const char *name, int fd, struct stat *st)
{
	if (!*next && !(*next = (fstat_fn *)rpwi_next(name))) {
		errno = ENOSYS;
		return -1;
	}
	return (*next)(fd, st);
}

static int next_fxstat(fxstat_fn **next, const char *name, int version, int fd, struct stat *st)
{
	if (!*next)
		*next = (fxstat_fn *)rpwi_next(name);
	return (*next)(version, fd, st);
}

int hook_fstat(int fd, struct stat *st)
{
	static fstat_fn *next;
	return ours(fd) ? fstat_ours(st) : next_fstat(&next, "fstat", fd, st);
}

int hook_fstat64(int fd, struct stat *st)
{
	static fstat_fn *next;
	return ours(fd) ? fstat_ours(st) : next_fstat(&next, "fstat64", fd, st);
}

int hook_fxstat(int version, int fd, struct stat *st)
{
	static fxstat_fn *next;
	return ours(fd) ? fstat_ours(st) : next_fxstat(&next, "__fxstat", version, fd, st);
}

int hook_fxstat64(int version, int fd, struct stat *st)
{
	static fxstat_fn *next;
	return ours(fd) ? fstat_ours(st) : next_fxstat(&next, "__fxstat64", version, fd, st);
}
