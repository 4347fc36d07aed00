/* SPDX-License-Identifier: BSD-3-Clause */
/* process.h - another process of this host: its end, and whether it runs.
 *
 * Threads: any. */
#ifndef ROPEWAY_NEAR_PROCESS_H
#define ROPEWAY_NEAR_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

/* A pidfd (pidfd_open(2)), readable when the process has ended, for the caller to close; or -errno:
 * -ESRCH, it has; -ENOSYS, before Linux 5.3. */
int rpwi_process_open(pid_t pid);
/* By SIGSTOP or a debugger: its first thread, as of now; all of its threads, whose stores are seen
 * here, too. */
bool rpwi_process_seems_stopped(pid_t pid);
bool rpwi_process_is_stopped(pid_t pid);

#endif
