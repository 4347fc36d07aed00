/* SPDX-License-Identifier: BSD-3-Clause */
/* ucma.h - the character device /dev/infiniband/rdma_cm, answered in this process: what librdmacm
 * writes its commands to.
 *
 * The commands are the kernel's user ABI, version 4 (<rdma/rdma_user_cm.h>); their meaning, events
 * and errors are those of drivers/infiniband/core/{ucma,cma}.c, as rdma_cm(7) and its man pages
 * document them. So the distribution's librdmacm runs unchanged, with everything that it makes of
 * these commands: synchronous calls, rdma_getaddrinfo, rsockets.
 *
 * A channel's descriptor is one end of a socket pair: readable while events wait, so that programs
 * poll it, put it into an epoll set and make it non-blocking as they please.
 *
 * Threads: any of these calls from any thread. A command holds the HCA's lock, except while
 * GET_EVENT waits.
 */
#ifndef ROPEWAY_UCMA_H
#define ROPEWAY_UCMA_H

#include "base/base.h"
#include "device/resource.h"

#include <stdatomic.h>
#include <sys/types.h>

enum { RPWI_UCMA_FDS = 1 << 16 };
extern struct channel *_Atomic rpwi_ucma_channels[RPWI_UCMA_FDS];
/* Could it be a channel's? Any other number costs a load and a comparison: every write of the
 * program comes this way. */
static inline bool rpwi_ucma_maybe(int fd)
{
	return (unsigned)fd < RPWI_UCMA_FDS &&
	       atomic_load_explicit(&rpwi_ucma_channels[fd], memory_order_relaxed);
}

/* A channel: its descriptor (O_CLOEXEC if flags say so), or -1 with errno. */
int rpwi_ucma_open(int flags);

/* These ask the kernel whose the number is now. */
bool rpwi_ucma_owns(int fd);
/* One command: *result the number of bytes taken, or -1 with errno, as write(2) to the kernel's
 * device. False: the number is not a channel's, nothing was done. */
bool rpwi_ucma_write(int fd, const void *buf, size_t len, ssize_t *result);
/* fd is about to be closed. A channel's ids end as at rdma_destroy_id, without waiting for
 * anyone. */
void rpwi_ucma_closing(int fd);

/* "ESTABLISHED": of an enum rdma_cm_event_type. */
const char *rpwi_ucma_event_name(unsigned type);

/* The ids on the device of that name, as rpwi_dev_resources. */
int rpwi_ucma_resources(const char *device, rpwi_resource_visit *visit, void *arg);

#endif
