/* SPDX-License-Identifier: BSD-3-Clause */
/* channel.c - librdmacm's event channels: their descriptors are not the kernel's, so what librdmacm
 * does to them is answered here (src/ucma). Every other descriptor goes straight on, after a look
 * into a table.
 */
#include "preload/netlink.h"
#include "preload/preload.h"
#include "ucma/ucma.h"

#include <unistd.h>

typedef ssize_t write_fn(int fd, const void *buf, size_t len);
typedef int close_fn(int fd);
RPWI_EXPORT write_fn hook_write __asm__("write");
RPWI_EXPORT close_fn hook_close __asm__("close");

/* Out of the way of every other descriptor's. */
static __attribute__((noinline, cold)) bool write_found(
	int fd, const void *buf, size_t len, ssize_t *result)
{
	return (rpwi_ucma_maybe(fd) && rpwi_ucma_write(fd, buf, len, result)) ||
	       (rpwi_fd_state(fd) == RPWI_FD_NETLINK && rpwi_netlink_write(fd, buf, len, result));
}

static __attribute__((noinline, cold)) ssize_t write_maybe(
	write_fn *next, int fd, const void *buf, size_t len)
{
	ssize_t result;
	return write_found(fd, buf, len, &result) ? result : next(fd, buf, len);
}

ssize_t hook_write(int fd, const void *buf, size_t len)
{
	static write_fn *next;
	if (RPWI_UNLIKELY(!next))
		next = (write_fn *)rpwi_next("write");
	if (RPWI_UNLIKELY(rpwi_ucma_maybe(fd) || rpwi_fd_state(fd) == RPWI_FD_NETLINK))
		return write_maybe(next, fd, buf, len);
	return next(fd, buf, len);
}

int hook_close(int fd)
{
	static close_fn *next;
	if (RPWI_UNLIKELY(rpwi_ucma_maybe(fd)))
		rpwi_ucma_closing(fd);
	if (!next)
		next = (close_fn *)rpwi_next("close");
	return next(fd);
}
