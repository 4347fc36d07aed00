/* SPDX-License-Identifier: BSD-3-Clause */
/* netlink.h - sockets of NETLINK_RDMA that are ours, below the hooks: they make system calls, call
 * no hook, and leave errno as the call does that they stand for. */
#ifndef ROPEWAY_PRELOAD_NETLINK_H
#define ROPEWAY_PRELOAD_NETLINK_H

#include "base/base.h"
#include "tree/tree.h"

#include <sys/socket.h>
#include <sys/uio.h>

#ifndef NETLINK_RDMA
#define NETLINK_RDMA 20
#endif

struct rpwi_netlink {
	bool bound;
	uint32_t port; /* nl_pid; 0 before it is bound */
	bool explains; /* NETLINK_EXT_ACK */
};

/* The kernel's word on a number of the table; errno is kept. */
bool rpwi_netlink_ask(int fd, struct rpwi_netlink *o);
/* Is it worth to be asked about? A number that nothing is known of is, once: it may have come by
 * exec. */
static inline bool rpwi_netlink_maybe(int fd)
{
	return RPWI_UNLIKELY(
		(unsigned)fd < RPWI_FDS &&
		(rpwi_fd_states[fd] == RPWI_FD_NETLINK || rpwi_fd_states[fd] == RPWI_FD_UNKNOWN));
}
/* type: that of socket(2), with its flags. -1: there can be none. */
int rpwi_netlink_open(int type);
/* Gives it its port, and makes it deaf to all others. 0, or -1 with errno */
int rpwi_netlink_bind(int fd, uint32_t port);
uint32_t rpwi_netlink_own_port(void); /* which one that chooses none has */
int rpwi_netlink_explain(int fd, bool on);
/* May one send there? 0 or -errno */
int rpwi_netlink_check_to(const struct sockaddr *to, socklen_t len);
/* As sendmsg(2): the answer waits in the socket before it returns. */
ssize_t rpwi_netlink_send(int fd, struct rpwi_netlink *o, const struct iovec *iov, size_t n,
	int flags, const struct sockaddr *to, socklen_t to_len);
/* Is it one of ours? Then *sent is what write(2) to it gives. */
bool rpwi_netlink_write(int fd, const void *buf, size_t len, ssize_t *sent);

#endif
