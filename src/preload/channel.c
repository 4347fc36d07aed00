/* SPDX-License-Identifier: BSD-3-Clause */
/* channel.c - librdmacm's event channels: their descriptors are not the kernel's, so what librdmacm
 * does to them is answered here (src/ucma). Every other descriptor goes straight on, after a look
 * into a table.
 */
#include "preload/netlink.h"
#include "preload/next.h"
#include "preload/preload.h"
#include "ucma/ucma.h"

#include <unistd.h>

/* Out of the way of every other descriptor's. */
static __attribute__((noinline, cold)) bool write_found(
	int fd, const void *buf, size_t len, ssize_t *result)
{
	return (rpwi_ucma_maybe(fd) && rpwi_ucma_write(fd, buf, len, result)) ||
	       (rpwi_fd_state(fd) == RPWI_FD_NETLINK && rpwi_netlink_write(fd, buf, len, result));
}

static __attribute__((noinline, cold)) ssize_t write_maybe(
	__typeof__(write) *next, int fd, const void *buf, size_t len)
{
	ssize_t result;
	return write_found(fd, buf, len, &result) ? result : next(fd, buf, len);
}

RPWI_HOOK(ssize_t, hook_write, write, (int fd, const void *buf, size_t len))
{
	__typeof__(write) *next = RPWI_NEXT(hook_write, write);
	if (RPWI_UNLIKELY(rpwi_ucma_maybe(fd) || rpwi_fd_state(fd) == RPWI_FD_NETLINK))
		return write_maybe(next, fd, buf, len);
	return next(fd, buf, len);
}

RPWI_HOOK(int, hook_close, close, (int fd))
{
	if (RPWI_UNLIKELY(rpwi_ucma_maybe(fd)))
		rpwi_ucma_closing(fd);
	return RPWI_NEXT(hook_close, close)(fd);
}
