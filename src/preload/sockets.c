/* SPDX-License-Identifier: BSD-3-Clause */
/* sockets.c - the hooks of socket calls: for those of NETLINK_RDMA (netlink.c); every other goes
 * straight on, after a look into a table by number.
 *
 * Straight on is a jump: after a system call each return costs as much as all the rest (the kernel
 * has emptied the processor's memory of whence it came). So each hook has its work in a function of
 * its own, NAME_maybe, and nothing behind the call. */
#undef _FORTIFY_SOURCE
#include "preload/netlink.h"
#include "preload/next.h"
#include "preload/preload.h"

#include <linux/netlink.h>
#include <unistd.h>

/* The C library declares addresses as a union of all kinds, and options with names of their own:
 * the assembler's names keep clear of that. */
#define SLOW static __attribute__((noinline, cold))

/* A hook, and the head of its `maybe`, whose body follows. */
#define HOOK_IF(is_ours, result, hook, name, maybe, params, args) \
	SLOW result maybe params; \
	RPWI_HOOK(result, hook, name, params) \
	{ \
		return is_ours ? maybe args : RPWI_NEXT(hook, name) args; \
	} \
	SLOW result maybe params
#define HOOK(...) HOOK_IF(rpwi_netlink_maybe(fd), __VA_ARGS__)

HOOK_IF(RPWI_UNLIKELY(domain == AF_NETLINK && protocol == NETLINK_RDMA), int, hook_socket, socket,
	socket_maybe, (int domain, int type, int protocol), (domain, type, protocol))
{
	int base = type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK), fd = -1;
	if ((base == SOCK_RAW || base == SOCK_DGRAM) && !rpwi_tree_disabled())
		fd = rpwi_netlink_open(type);
	return fd >= 0 ? fd : RPWI_NEXT(hook_socket, socket)(domain, type, protocol);
}

/* ---- addresses ---- */

HOOK(int, hook_bind, bind, bind_maybe, (int fd, const void *a, socklen_t len), (fd, a, len))
{
	struct rpwi_netlink o;
	struct sockaddr_nl nl;
	if (!rpwi_netlink_ask(fd, &o))
		return RPWI_NEXT(hook_bind, bind)(fd, a, len);
	if (len < sizeof(nl))
		return rpwi_minus(EINVAL);
	memcpy(&nl, a, sizeof(nl));
	if (nl.nl_family != AF_NETLINK || (o.bound && nl.nl_pid && nl.nl_pid != o.port))
		return rpwi_minus(EINVAL);
	/* nothing reports a change: see docs/tree.md */
	if (nl.nl_groups)
		return rpwi_minus(EOPNOTSUPP);
	if (o.bound)
		return 0;
	return rpwi_netlink_bind(fd, nl.nl_pid ? nl.nl_pid : rpwi_netlink_own_port());
}

HOOK(int, hook_connect, connect, connect_maybe, (int fd, const void *a, socklen_t len),
	(fd, a, len))
{
	struct rpwi_netlink o;
	sa_family_t family = AF_UNSPEC;
	if (!rpwi_netlink_ask(fd, &o))
		return RPWI_NEXT(hook_connect, connect)(fd, a, len);
	if (len < sizeof(family))
		return rpwi_minus(EINVAL);
	memcpy(&family, a, sizeof(family));
	int rc = family == AF_UNSPEC ? 0 : rpwi_netlink_check_to(a, len);
	return rc ? rpwi_minus(-rc) : 0;
}

static void give_address(uint32_t port, void *a, socklen_t *len)
{
	const struct sockaddr_nl nl = {.nl_family = AF_NETLINK, .nl_pid = port};
	memcpy(a, &nl, RPWI_MIN((size_t)*len, sizeof(nl)));
	*len = sizeof(nl);
}

HOOK(int, hook_getsockname, getsockname, getsockname_maybe, (int fd, void *a, socklen_t *len),
	(fd, a, len))
{
	struct rpwi_netlink o;
	if (!rpwi_netlink_ask(fd, &o))
		return RPWI_NEXT(hook_getsockname, getsockname)(fd, a, len);
	give_address(o.port, a, len);
	return 0;
}

HOOK(int, hook_getpeername, getpeername, getpeername_maybe, (int fd, void *a, socklen_t *len),
	(fd, a, len))
{
	struct rpwi_netlink o;
	if (!rpwi_netlink_ask(fd, &o))
		return RPWI_NEXT(hook_getpeername, getpeername)(fd, a, len);
	give_address(0, a, len);
	return 0;
}

/* ---- options ---- */

/* False: the kernel's own answer will do. */
static bool option_get(const struct rpwi_netlink *o, int level, int option, int *v)
{
	*v = 0;
	if (level == SOL_NETLINK)
		*v = option == NETLINK_EXT_ACK && o->explains;
	else if (level == SOL_SOCKET && option == SO_DOMAIN)
		*v = AF_NETLINK;
	else if (level == SOL_SOCKET && option == SO_PROTOCOL)
		*v = NETLINK_RDMA;
	else if (level == SOL_SOCKET && option == SO_TYPE)
		*v = SOCK_RAW;
	else if (level != SOL_SOCKET || option != SO_PRIORITY)
		return false;
	return true;
}

HOOK(int, hook_getsockopt, getsockopt, getsockopt_maybe,
	(int fd, int level, int option, void *v, socklen_t *len), (fd, level, option, v, len))
{
	struct rpwi_netlink o;
	int is;
	if (!rpwi_netlink_ask(fd, &o) || !option_get(&o, level, option, &is))
		return RPWI_NEXT(hook_getsockopt, getsockopt)(fd, level, option, v, len);
	if (*len < sizeof(is))
		return rpwi_minus(EINVAL);
	memcpy(v, &is, sizeof(is));
	*len = sizeof(is);
	return 0;
}

static int option_set(int fd, int option, const void *v, socklen_t len)
{
	int on = 0;
	if (len < sizeof(on))
		return rpwi_minus(EINVAL);
	memcpy(&on, v, sizeof(on));
	switch (option) {
	case NETLINK_EXT_ACK:
		return rpwi_netlink_explain(fd, on);
	case NETLINK_ADD_MEMBERSHIP:
		return rpwi_minus(EOPNOTSUPP);
	case NETLINK_DROP_MEMBERSHIP:
	case NETLINK_PKTINFO:
	case NETLINK_BROADCAST_ERROR:
	case NETLINK_NO_ENOBUFS:
	case NETLINK_CAP_ACK: /* they are capped anyway, and say so */
	case NETLINK_GET_STRICT_CHK:
		return 0;
	default:
		return rpwi_minus(ENOPROTOOPT);
	}
}

HOOK(int, hook_setsockopt, setsockopt, setsockopt_maybe,
	(int fd, int level, int option, const void *v, socklen_t len), (fd, level, option, v, len))
{
	struct rpwi_netlink o;
	if (!rpwi_netlink_ask(fd, &o))
		return RPWI_NEXT(hook_setsockopt, setsockopt)(fd, level, option, v, len);
	if (level == SOL_NETLINK)
		return option_set(fd, option, v, len);
	/* the queue is what holds the answers to one request: libnl would make it smaller */
	if (level == SOL_SOCKET &&
		(option == SO_SNDBUF || option == SO_SNDBUFFORCE || option == SO_RCVBUF ||
			option == SO_RCVBUFFORCE || option == SO_PRIORITY))
		return 0;
	return RPWI_NEXT(hook_setsockopt, setsockopt)(fd, level, option, v, len);
}

/* ---- requests ---- */

HOOK(ssize_t, hook_send, send, send_maybe, (int fd, const void *buf, size_t len, int flags),
	(fd, buf, len, flags))
{
	struct rpwi_netlink o;
	struct iovec v = {(void *)(uintptr_t)buf, len};
	if (!rpwi_netlink_ask(fd, &o))
		return RPWI_NEXT(hook_send, send)(fd, buf, len, flags);
	return rpwi_netlink_send(fd, &o, &v, 1, flags, NULL, 0);
}

HOOK(ssize_t, hook_sendto, sendto, sendto_maybe,
	(int fd, const void *buf, size_t len, int flags, const void *to, socklen_t to_len),
	(fd, buf, len, flags, to, to_len))
{
	struct rpwi_netlink o;
	struct iovec v = {(void *)(uintptr_t)buf, len};
	if (!rpwi_netlink_ask(fd, &o))
		return RPWI_NEXT(hook_sendto, sendto)(fd, buf, len, flags, to, to_len);
	return rpwi_netlink_send(fd, &o, &v, 1, flags, to, to_len);
}

static ssize_t sendmsg_ours(int fd, struct rpwi_netlink *o, const struct msghdr *m, int flags)
{
	return rpwi_netlink_send(
		fd, o, m->msg_iov, m->msg_iovlen, flags, m->msg_name, m->msg_namelen);
}

HOOK(ssize_t, hook_sendmsg, sendmsg, sendmsg_maybe, (int fd, const struct msghdr *m, int flags),
	(fd, m, flags))
{
	struct rpwi_netlink o;
	return rpwi_netlink_ask(fd, &o) ? sendmsg_ours(fd, &o, m, flags)
					: RPWI_NEXT(hook_sendmsg, sendmsg)(fd, m, flags);
}

HOOK(int, hook_sendmmsg, sendmmsg, sendmmsg_maybe,
	(int fd, struct mmsghdr *m, unsigned n, int flags), (fd, m, n, flags))
{
	struct rpwi_netlink o;
	unsigned i = 0;
	if (!rpwi_netlink_ask(fd, &o))
		return RPWI_NEXT(hook_sendmmsg, sendmmsg)(fd, m, n, flags);
	for (; i < n; i++) {
		ssize_t sent = sendmsg_ours(fd, &o, &m[i].msg_hdr, flags);
		if (sent < 0)
			break;
		m[i].msg_len = (unsigned)sent;
	}
	return i || !n ? (int)i : -1;
}

/* Files and pipes come here: numbers that nothing is known of are not asked about. */
HOOK_IF(RPWI_UNLIKELY(rpwi_fd_state(fd) == RPWI_FD_NETLINK), ssize_t, hook_writev, writev,
	writev_maybe, (int fd, const struct iovec *iov, int n), (fd, iov, n))
{
	struct rpwi_netlink o;
	if (n < 0 || !rpwi_netlink_ask(fd, &o))
		return RPWI_NEXT(hook_writev, writev)(fd, iov, n);
	return rpwi_netlink_send(fd, &o, iov, (size_t)n, 0, NULL, 0);
}

/* ---- what comes, comes from the kernel: its address is all that is to be put right ---- */

HOOK(ssize_t, hook_recvfrom, recvfrom, recvfrom_maybe,
	(int fd, void *buf, size_t len, int flags, void *from, socklen_t *from_len),
	(fd, buf, len, flags, from, from_len))
{
	struct rpwi_netlink o;
	if (!from || !rpwi_netlink_ask(fd, &o))
		return RPWI_NEXT(hook_recvfrom, recvfrom)(fd, buf, len, flags, from, from_len);
	ssize_t n = RPWI_NEXT(hook_recvfrom, recvfrom)(fd, buf, len, flags, NULL, NULL);
	if (n >= 0)
		give_address(0, from, from_len);
	return n;
}

RPWI_HOOK(ssize_t, hook_recvfrom_chk, __recvfrom_chk,
	(int fd, void *buf, size_t len, size_t room, int flags, void *from, socklen_t *from_len))
{
	if (rpwi_netlink_maybe(fd) && len <= room)
		return recvfrom_maybe(fd, buf, len, flags, from, from_len);
	return RPWI_NEXT(hook_recvfrom_chk, __recvfrom_chk)(
		fd, buf, len, room, flags, from, from_len);
}

HOOK(ssize_t, hook_recvmsg, recvmsg, recvmsg_maybe, (int fd, struct msghdr *m, int flags),
	(fd, m, flags))
{
	struct rpwi_netlink o;
	if (!rpwi_netlink_ask(fd, &o))
		return RPWI_NEXT(hook_recvmsg, recvmsg)(fd, m, flags);
	socklen_t room = m->msg_namelen;
	ssize_t n = RPWI_NEXT(hook_recvmsg, recvmsg)(fd, m, flags);
	if (n >= 0 && m->msg_name) {
		give_address(0, m->msg_name, &room);
		m->msg_namelen = room;
	}
	return n;
}

/* One by one: of what recvmmsg gives the room for an address is not known any more. */
HOOK(int, hook_recvmmsg, recvmmsg, recvmmsg_maybe,
	(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *timeout),
	(fd, m, n, flags, timeout))
{
	struct rpwi_netlink o;
	unsigned i = 0;
	if (!rpwi_netlink_ask(fd, &o))
		return RPWI_NEXT(hook_recvmmsg, recvmmsg)(fd, m, n, flags, timeout);
	for (; i < n; i++) {
		ssize_t got = recvmsg_maybe(fd, &m[i].msg_hdr,
			(flags & ~MSG_WAITFORONE) |
				(i && flags & MSG_WAITFORONE ? MSG_DONTWAIT : 0));
		if (got < 0)
			break;
		m[i].msg_len = (unsigned)got;
	}
	return i || !n ? (int)i : -1;
}
