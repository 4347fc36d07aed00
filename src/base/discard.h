/* SPDX-License-Identifier: BSD-3-Clause */
/* discard.h - bytes of a TCP socket that nobody wants. */
#ifndef ROPEWAY_BASE_DISCARD_H
#define ROPEWAY_BASE_DISCARD_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* The kernel throws up to len bytes away that have come, and copies none (MSG_TRUNC, tcp(7)). As
 * recv(2): how many; 0 at the end; -1 with errno. The bare call: ThreadSanitizer's recv takes the
 * NULL for an address that is written, and two threads that do so for a race. */
static inline ssize_t rpwi_tcp_discard(int fd, size_t len)
{
	return syscall(SYS_recvfrom, fd, NULL, len, MSG_DONTWAIT | MSG_TRUNC, NULL, NULL);
}

#endif
