/* SPDX-License-Identifier: BSD-3-Clause */
/* mapped.c - see mapped.h. */
#include "base/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* <linux/fs.h> of Linux 6.11; Debian 12's has none of it. */
struct procmap_query {
	uint64_t size, query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
	uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
	uint64_t vma_name_addr, build_id_addr;
};
#define PROCMAP_QUERY_NOW _IOWR('f', 17, struct procmap_query)
enum { VMA_READABLE = 1, VMA_WRITABLE = 2, MAPPINGS = 32 };

/* The mapping that has the address. 1; 0: there is none; -1: this kernel does not say. */
static int mapping_at(int fd, uintptr_t at, struct procmap_query *q)
{
	*q = (struct procmap_query){.size = sizeof(*q), .query_addr = at};
	if (!syscall(SYS_ioctl, fd, PROCMAP_QUERY_NOW, q))
		return 1;
	return errno == ENOENT ? 0 : -1;
}

/* msync without a flag goes over mappings, not over pages. */
static bool has_no_gap(uintptr_t from, uintptr_t end)
{
	return !syscall(SYS_msync, from, end - from, 0);
}

bool rpwi_mapped(const void *addr, size_t len, bool writes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)addr & -page,
		  end = ((uintptr_t)addr + len + page - 1) & -page;
	uint64_t need = writes ? VMA_WRITABLE : VMA_READABLE;
	struct procmap_query q;
	int kept = errno, found = -1,
	    fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
	bool right = true;
	for (int i = 0; fd >= 0 && right && at < end && i < MAPPINGS; i++) {
		found = mapping_at(fd, at, &q);
		if (found < 0)
			break;
		right = found && (q.vma_flags & need);
		at = right ? (uintptr_t)q.vma_end : at;
	}
	if (fd >= 0)
		syscall(SYS_close, fd);
	if (right && at < end)
		right = has_no_gap(at, end);
	errno = kept;
	return right;
}
