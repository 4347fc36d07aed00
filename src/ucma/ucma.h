/* ucma.h - the character device /dev/infiniband/rdma_cm, answered in this process: what librdmacm writes its commands to.
 *
 * The commands are the kernel's user ABI, version 4 (<rdma/rdma_user_cm.h>); their meaning, events and errors are those of drivers/infiniband/core/{ucma,cma}.c, as
 * rdma_cm(7) and its man pages document them. So the distribution's librdmacm runs unchanged, with everything that it makes of these commands: synchronous calls, rdma_getaddrinfo, rsockets.
 *
 * A channel's descriptor is one end of a socket pair: readable while events wait, so that programs poll it, put it into an epoll set and make it non-blocking as they please.
 *
 * Threads: any of these calls from any thread. A command holds the HCA's lock, except while GET_EVENT waits.
 */
#ifndef ROPEWAY_UCMA_H
#define ROPEWAY_UCMA_H

#include "base/base.h"

#include <sys/types.h>

extern bool rpwi_ucma_any; /* a channel has been opened: look closer at descriptors */
/* A channel: its descriptor (O_CLOEXEC if flags say so), or -1 with errno. */
int rpwi_ucma_open(int flags);
bool rpwi_ucma_owns(int fd);                                    /* asks the kernel, lest a number that was closed behind our back be taken for ours */
bool rpwi_ucma_is_command(int fd, const void *buf, size_t len); /* to one of our channels? */
/* One command: the number of bytes taken, or -1 with errno, as write(2) to the kernel's device. */
ssize_t rpwi_ucma_write(int fd, const void *buf, size_t len);
/* The descriptor is about to be closed: its ids end as at rdma_destroy_id, without waiting for anyone. */
void rpwi_ucma_forget(int fd);

#endif
