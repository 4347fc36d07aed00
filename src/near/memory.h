/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.h - memory that two processes share: a memfd of sealed size (memfd_create(2)), so that
 * nothing that the other process does to it ends this one by SIGBUS. What the other writes there
 * is hostile until it is checked.
 *
 * Threads: any. Errors: -errno, and nothing is left behind. */
#ifndef ROPEWAY_NEAR_MEMORY_H
#define ROPEWAY_NEAR_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum rpwi_memory_right {
	RPWI_MEMORY_WRITE, /* who has the descriptor may write */
	RPWI_MEMORY_READ,  /* only the mapping of its maker may */
};

/* A descriptor, for the caller to close, of `bytes` zeros that are mapped for writing at *at. That
 * RLIMIT_FSIZE is too low is told once, with what to do. */
int rpwi_memory_make(const char *name, size_t bytes, enum rpwi_memory_right right, void **at);

/* The size of memory that came from another process; -EINVAL: it is not sealed, not a memfd, or in
 * huge pages, which its maker could take back. */
ssize_t rpwi_memory_size(int fd);
/* A mapping of it, if it has just that size. NULL: it has not, or cannot be mapped. The descriptor
 * stays the caller's. */
void *rpwi_memory_take(int fd, size_t bytes, enum rpwi_memory_right right);
/* Likewise of its first bytes, where it has at least so many. */
void *rpwi_memory_take_part(int fd, size_t bytes, enum rpwi_memory_right right);
/* In a fork's child: a mapping that can be written becomes memory of this process's own, with a
 * copy of its first `kept` bytes as they are now, and zeros behind them. Without memory for that,
 * it stays as it is. May be called by a signal handler. */
void rpwi_memory_leave(void *at, size_t bytes, size_t kept);

#endif
