/* SPDX-License-Identifier: BSD-3-Clause */
/* place.h - copies into and out of registered memory, by this process's hands. The program may have
 * unmapped it, and then a copy must not crash: the kernel makes it, and says so. No lock. */
#ifndef ROPEWAY_TRAN_PLACE_H
#define ROPEWAY_TRAN_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* 0 or -EFAULT, and then some of it may have been copied. A microsecond. own: this process's ID,
 * which its caller keeps. up: in the order of rpwi_copy_up (base/copy.h), for memory that may be
 * looked at meanwhile. Any thread. */
int tran_place(pid_t own, void *to, const void *from, size_t n, bool up);
int tran_fetch(pid_t own, void *to, const void *from, size_t n);
/* 8 bytes can be written there now: 0 or -EFAULT. */
int tran_reachable(void *at);

#endif
