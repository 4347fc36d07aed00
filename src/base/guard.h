/* SPDX-License-Identifier: BSD-3-Clause */
/* guard.h - copies that survive memory the program has unmapped under a registration.
 *
 * Registered memory is not pinned, so a page may be gone when a packet for it arrives. A kernel
 * copy (process_vm_writev) reports that with EFAULT but costs 1 us a call here, a guarded memcpy 2
 * ns. So: memcpy under a SIGSEGV/SIGBUS handler that acts only while the faulting thread is inside
 * one of these calls, and passes every other fault on to the handler that the program has set (the
 * drop-in interposes sigaction and signal to keep ours in front), with its flags and mask as the
 * kernel would.
 *
 * A thread may block these two signals, as daemons with signalfd or sigwait do in all of theirs;
 * then a fault would end the process. Its mask is opened for the time of the copy: two system
 * calls, for such threads only. Which they are is learned at a thread's first guarded copy; the
 * drop-in's hooks report changes. Not seen: masks set by raw system calls, by swapcontext, by
 * siglongjmp, or for the time of a signal handler (sa_mask).
 */
#ifndef ROPEWAY_GUARD_H
#define ROPEWAY_GUARD_H

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* Install the handlers; idempotent, any thread. Called when the first device is opened. 0 or
 * -errno. */
int rpwi_guard_install(void);
/* True once installed: then the drop-in must route the program's sigaction for SIGSEGV/SIGBUS to
 * rpwi_guard_sigaction. */
bool rpwi_guard_installed(void);
/* What the program's sigaction(signo, act, old) does once we are installed, signo being SIGSEGV or
 * SIGBUS. 0 or -errno. */
int rpwi_guard_sigaction(int signo, const struct sigaction *act, struct sigaction *old);

/* From now on every change of a thread's mask is told by rpwi_guard_mask_set, after it was made.
 * Until then each copy asks the kernel. */
void rpwi_guard_masks_hooked(void);
void rpwi_guard_mask_set(int how, const sigset_t *set);

/* memcpy that returns 0, or -EFAULT when either side is not mapped (bytes before the hole may have
 * been copied). Never logs, never allocates. Any thread, not from a signal handler. */
int rpwi_guard_copy(void *dst, const void *src, size_t n);
/* The same for memory that its owner may poll: in the order of rpwi_copy_up (base/copy.h). */
int rpwi_guard_copy_up(void *dst, const void *src, size_t n);

/* Run fn(arg) with faults caught: 0, or -EFAULT. fn must hold no lock it takes itself, and must be
 * restartable. */
int rpwi_guard_call(void (*fn)(void *arg), void *arg);

#endif
