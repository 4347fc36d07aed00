/* SPDX-License-Identifier: BSD-3-Clause */
/* mapped.h - what the kernel knows of this process's memory, asked without touching it. */
#ifndef ROPEWAY_BASE_MAPPED_H
#define ROPEWAY_BASE_MAPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Is [addr, addr + len) mapped throughout, and may the process read it, or write it? No page is
 * read, written, populated or locked. Len is at least 1 and nothing wraps. Since Linux 6.11 rights
 * are looked up, of the first MAPPINGS of the range (PROCMAP_QUERY: fs/proc/task_mmu.c); of the
 * rest, and by older kernels or without /proc, only gaps are found. About 2 us, and 0.3 for each
 * mapping of the range, however many the process has. Any thread; no memory of malloc's; no point
 * of cancellation. True where nothing speaks against it. */
bool rpwi_mapped(const void *addr, size_t len, bool writes);

/* A mapping of a process, as /proc/PID/maps has it. */
struct rpwi_mapping {
	uint64_t begin, end, offset;
	const char *perms, *path; /* "r-xp"; NULL: of no file */
};
/* Those of a process (0: this one) in turn, until `fn` returns false. The same of it: any thread,
 * no memory of malloc's, no point of cancellation. Lines longer than 4 KiB are left out. */
void rpwi_mappings_each(int pid, bool (*fn)(const struct rpwi_mapping *m, void *arg), void *arg);

#endif
