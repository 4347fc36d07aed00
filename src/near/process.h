/* SPDX-License-Identifier: BSD-3-Clause */
/* process.h - another process of this host: its end, whether it runs, and its memory.
 *
 * Threads: any. */
#ifndef ROPEWAY_NEAR_PROCESS_H
#define ROPEWAY_NEAR_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* A pidfd (pidfd_open(2)), readable when the process has ended, for the caller to close; or -errno:
 * -ESRCH, it has; -ENOSYS, before Linux 5.3. */
int rpwi_process_open(pid_t pid);
/* By SIGSTOP or a debugger: its first thread, as of now; all of its threads, whose stores are seen
 * here, too. */
bool rpwi_process_seems_stopped(pid_t pid);
bool rpwi_process_is_stopped(pid_t pid);

/* Its memory, or this process's own that may have been unmapped (process_vm_readv(2), faster than
 * by descriptor). How many of the n bytes were copied, in no order; or -errno: -EPERM, the kernel
 * does not let us; -ESRCH, it has ended. */
ssize_t rpwi_process_read(pid_t pid, void *to, const void *from, size_t n);
ssize_t rpwi_process_write(pid_t pid, void *to, const void *from, size_t n);
/* `bytes` of it in one call, and the word behind them that tells whose memory it is: all that one
 * call reads is of one address space. Both arrays have room for one piece more, the word's. False:
 * not all, or another word is there. */
bool rpwi_process_readv(pid_t pid, struct iovec *to, unsigned nto, struct iovec *from,
	unsigned nfrom, size_t bytes, const void *word_at, uint64_t word);

#endif
