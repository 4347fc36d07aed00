/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - see memory.h. */
#include "near/memory.h"

#include "base/base.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { SIZE_SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

static struct {
	bool of_limit;
} warned;

static void warn_of_limit(size_t bytes)
{
	if (!__atomic_exchange_n(&warned.of_limit, true, __ATOMIC_RELAXED))
		rpwi_warn("no memory to share with other processes: it takes a file of %zu bytes, "
			  "and the limit of this process is %llu (RLIMIT_FSIZE). Raise it: ulimit "
			  "-f unlimited. Until then data goes by sockets",
			bytes, (unsigned long long)rpwi_file_limit());
}

static int map_and_seal(int fd, size_t bytes, enum rpwi_memory_right right, void **at)
{
	if (rpwi_file_truncate(fd, bytes)) {
		int rc = -errno;
		if (rc == -EFBIG)
			warn_of_limit(bytes);
		return rc;
	}
	*at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (*at == MAP_FAILED)
		return -errno;
	/* The seal against future writing leaves the mapping that stands alone. */
	int seals =
		SIZE_SEALS | F_SEAL_SEAL | (right == RPWI_MEMORY_READ ? F_SEAL_FUTURE_WRITE : 0);
	if (!fcntl(fd, F_ADD_SEALS, seals))
		return 0;
	int rc = -errno;
	munmap(*at, bytes);
	return rc;
}

int rpwi_memory_make(const char *name, size_t bytes, enum rpwi_memory_right right, void **at)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int rc = fd < 0 ? -errno : map_and_seal(fd, bytes, right, at);
	if (!rc)
		return fd;
	*at = NULL;
	if (fd >= 0)
		close(fd);
	return rc;
}

ssize_t rpwi_memory_size(int fd)
{
	struct stat st;
	struct statfs fs;
	int seals = fcntl(fd, F_GET_SEALS);
	/* Of hugetlbfs a peer can take back the pages that it has touched for us, and then there
	 * may be none left to fault in. */
	bool sound = seals >= 0 && seals & F_SEAL_SHRINK && !fstatfs(fd, &fs) &&
		     fs.f_type == TMPFS_MAGIC && !fstat(fd, &st);
	return sound ? st.st_size : -EINVAL;
}

static void *map(int fd, size_t bytes, enum rpwi_memory_right right)
{
	int prot = PROT_READ | (right == RPWI_MEMORY_WRITE ? PROT_WRITE : 0);
	void *at = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
	return at == MAP_FAILED ? NULL : at;
}

void *rpwi_memory_take(int fd, size_t bytes, enum rpwi_memory_right right)
{
	return rpwi_memory_size(fd) == (ssize_t)bytes ? map(fd, bytes, right) : NULL;
}

void *rpwi_memory_take_part(int fd, size_t bytes, enum rpwi_memory_right right)
{
	ssize_t size = rpwi_memory_size(fd);
	return bytes && size >= 0 && (size_t)size >= bytes ? map(fd, bytes, right) : NULL;
}

void rpwi_memory_leave(void *at, size_t bytes, size_t kept)
{
	void *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		return;
	memcpy(copy, at, kept);
	if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED)
		munmap(copy, bytes);
}
