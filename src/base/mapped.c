/* SPDX-License-Identifier: BSD-3-Clause */
/* mapped.c - see mapped.h. */
#include "base/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

/* "begin-end perms offset dev inode   path". False: `fn` wants no more. */
static bool line_tell(char *line, bool (*fn)(const struct rpwi_mapping *m, void *arg), void *arg)
{
	char *at = line;
	struct rpwi_mapping m = {.begin = strtoull(at, &at, 16)};
	m.end = *at == '-' ? strtoull(at + 1, &at, 16) : 0;
	m.perms = at + (*at == ' ');
	m.offset = strlen(m.perms) > 5 ? strtoull(m.perms + 5, NULL, 16) : 0;
	m.path = strchr(m.perms, '/');
	return strlen(m.perms) < 4 || fn(&m, arg);
}

void rpwi_mappings_each(int pid, bool (*fn)(const struct rpwi_mapping *m, void *arg), void *arg)
{
	char buf[4096];
	size_t have = 0;
	bool more = true;
	int kept = errno;
	snprintf(buf, sizeof(buf), pid ? "/proc/%d/maps" : "/proc/self/maps", pid);
	int fd = (int)syscall(SYS_openat, AT_FDCWD, buf, O_RDONLY | O_CLOEXEC, 0);
	while (fd >= 0 && more) {
		long n = syscall(SYS_read, fd, buf + have, sizeof(buf) - 1 - have);
		if (n <= 0)
			break;
		have += (size_t)n;
		buf[have] = '\0';
		char *line = buf, *end;
		for (; more && (end = strchr(line, '\n')); line = end + 1) {
			*end = '\0';
			more = line_tell(line, fn, arg);
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
		if (have == sizeof(buf) - 1) /* no line is so long */
			have = 0;
	}
	if (fd >= 0)
		syscall(SYS_close, fd);
	errno = kept;
}
