/* SPDX-License-Identifier: BSD-3-Clause */
/* sockets.c - the hooks of socket calls: for those of NETLINK_RDMA (netlink.c); every other goes
 * straight on, after a look into a table by number.
 *
 * Straight on is a jump: after a system call each return costs as much as all the rest (the kernel
 * has emptied the processor's memory of whence it came). So each hook has its work in a function of
 * its own, NAME_maybe, and nothing behind the call. */
#undef _FORTIFY_SOURCE
#include "preload/netlink.h"
#include "preload/preload.h"

#include <linux/netlink.h>
#include <unistd.h>

#define NEXT(type, name) \
	({ \
		static type *next_; \
		if (!next_) \
			next_ = (type *)rpwi_next(name); \
		next_; \
	})

/* The C library declares addresses as a union of all kinds, and options with names of their own:
 * the assembler's names keep clear of that. */
typedef int socket_fn(int domain, int type, int protocol);
typedef int address_fn(int fd, const void *a, socklen_t len);
typedef int name_fn(int fd, void *a, socklen_t *len);
typedef int getsockopt_fn(int fd, int level, int option, void *v, socklen_t *len);
typedef int setsockopt_fn(int fd, int level, int option, const void *v, socklen_t len);
typedef ssize_t send_fn(int fd, const void *buf, size_t len, int flags);
typedef ssize_t sendto_fn(
	int fd, const void *buf, size_t len, int flags, const void *to, socklen_t to_len);
typedef ssize_t sendmsg_fn(int fd, const struct msghdr *m, int flags);
typedef int sendmmsg_fn(int fd, struct mmsghdr *m, unsigned n, int flags);
typedef ssize_t writev_fn(int fd, const struct iovec *iov, int n);
typedef ssize_t recvfrom_fn(
	int fd, void *buf, size_t len, int flags, void *from, socklen_t *from_len);
typedef ssize_t recvfrom_chk_fn(
	int fd, void *buf, size_t len, size_t room, int flags, void *from, socklen_t *from_len);
typedef ssize_t recvmsg_fn(int fd, struct msghdr *m, int flags);
typedef int recvmmsg_fn(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *timeout);
RPWI_EXPORT socket_fn hook_socket __asm__("socket");
RPWI_EXPORT address_fn hook_bind __asm__("bind");
RPWI_EXPORT address_fn hook_connect __asm__("connect");
RPWI_EXPORT name_fn hook_getsockname __asm__("getsockname");
RPWI_EXPORT name_fn hook_getpeername __asm__("getpeername");
RPWI_EXPORT getsockopt_fn hook_getsockopt __asm__("getsockopt");
RPWI_EXPORT setsockopt_fn hook_setsockopt __asm__("setsockopt");
RPWI_EXPORT send_fn hook_send __asm__("send");
RPWI_EXPORT sendto_fn hook_sendto __asm__("sendto");
RPWI_EXPORT sendmsg_fn hook_sendmsg __asm__("sendmsg");
RPWI_EXPORT sendmmsg_fn hook_sendmmsg __asm__("sendmmsg");
RPWI_EXPORT writev_fn hook_writev __asm__("writev");
RPWI_EXPORT recvfrom_fn hook_recvfrom __asm__("recvfrom");
RPWI_EXPORT recvfrom_chk_fn hook_recvfrom_chk __asm__("__recvfrom_chk");
RPWI_EXPORT recvmsg_fn hook_recvmsg __asm__("recvmsg");
RPWI_EXPORT recvmmsg_fn hook_recvmmsg __asm__("recvmmsg");

#define SLOW static __attribute__((noinline, cold))

SLOW int socket_ours(int domain, int type, int protocol)
{
	int base = type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK), fd = -1;
	if ((base == SOCK_RAW || base == SOCK_DGRAM) && !rpwi_tree_disabled())
		fd = rpwi_netlink_open(type);
	return fd >= 0 ? fd : NEXT(socket_fn, "socket")(domain, type, protocol);
}

int hook_socket(int domain, int type, int protocol)
{
	if (RPWI_UNLIKELY(domain == AF_NETLINK && protocol == NETLINK_RDMA))
		return socket_ours(domain, type, protocol);
	return NEXT(socket_fn, "socket")(domain, type, protocol);
}

/* ---- addresses ---- */

SLOW int bind_maybe(int fd, const void *a, socklen_t len)
{
	struct rpwi_netlink o;
	struct sockaddr_nl nl;
	if (!rpwi_netlink_ask(fd, &o))
		return NEXT(address_fn, "bind")(fd, a, len);
	if (len < sizeof(nl))
		return rpwi_fail(EINVAL);
	memcpy(&nl, a, sizeof(nl));
	if (nl.nl_family != AF_NETLINK || (o.bound && nl.nl_pid && nl.nl_pid != o.port))
		return rpwi_fail(EINVAL);
	/* nothing reports a change: see docs/tree.md */
	if (nl.nl_groups)
		return rpwi_fail(EOPNOTSUPP);
	if (o.bound)
		return 0;
	return rpwi_netlink_bind(fd, nl.nl_pid ? nl.nl_pid : rpwi_netlink_own_port());
}

int hook_bind(int fd, const void *a, socklen_t len)
{
	return rpwi_netlink_maybe(fd) ? bind_maybe(fd, a, len)
				      : NEXT(address_fn, "bind")(fd, a, len);
}

SLOW int connect_maybe(int fd, const void *a, socklen_t len)
{
	struct rpwi_netlink o;
	sa_family_t family = AF_UNSPEC;
	if (!rpwi_netlink_ask(fd, &o))
		return NEXT(address_fn, "connect")(fd, a, len);
	if (len < sizeof(family))
		return rpwi_fail(EINVAL);
	memcpy(&family, a, sizeof(family));
	int rc = family == AF_UNSPEC ? 0 : rpwi_netlink_check_to(a, len);
	return rc ? rpwi_fail(-rc) : 0;
}

int hook_connect(int fd, const void *a, socklen_t len)
{
	return rpwi_netlink_maybe(fd) ? connect_maybe(fd, a, len)
				      : NEXT(address_fn, "connect")(fd, a, len);
}

static void give_address(uint32_t port, void *a, socklen_t *len)
{
	const struct sockaddr_nl nl = {.nl_family = AF_NETLINK, .nl_pid = port};
	memcpy(a, &nl, RPWI_MIN((size_t)*len, sizeof(nl)));
	*len = sizeof(nl);
}

SLOW int name_maybe(int fd, void *a, socklen_t *len, bool own)
{
	struct rpwi_netlink o;
	if (!rpwi_netlink_ask(fd, &o))
		return own ? NEXT(name_fn, "getsockname")(fd, a, len)
			   : NEXT(name_fn, "getpeername")(fd, a, len);
	give_address(own ? o.port : 0, a, len);
	return 0;
}

int hook_getsockname(int fd, void *a, socklen_t *len)
{
	return rpwi_netlink_maybe(fd) ? name_maybe(fd, a, len, true)
				      : NEXT(name_fn, "getsockname")(fd, a, len);
}

int hook_getpeername(int fd, void *a, socklen_t *len)
{
	return rpwi_netlink_maybe(fd) ? name_maybe(fd, a, len, false)
				      : NEXT(name_fn, "getpeername")(fd, a, len);
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

SLOW int getsockopt_maybe(int fd, int level, int option, void *v, socklen_t *len)
{
	struct rpwi_netlink o;
	int is;
	if (!rpwi_netlink_ask(fd, &o) || !option_get(&o, level, option, &is))
		return NEXT(getsockopt_fn, "getsockopt")(fd, level, option, v, len);
	if (*len < sizeof(is))
		return rpwi_fail(EINVAL);
	memcpy(v, &is, sizeof(is));
	*len = sizeof(is);
	return 0;
}

int hook_getsockopt(int fd, int level, int option, void *v, socklen_t *len)
{
	return rpwi_netlink_maybe(fd)
		       ? getsockopt_maybe(fd, level, option, v, len)
		       : NEXT(getsockopt_fn, "getsockopt")(fd, level, option, v, len);
}

static int option_set(int fd, int option, const void *v, socklen_t len)
{
	int on = 0;
	if (len < sizeof(on))
		return rpwi_fail(EINVAL);
	memcpy(&on, v, sizeof(on));
	switch (option) {
	case NETLINK_EXT_ACK:
		return rpwi_netlink_explain(fd, on);
	case NETLINK_ADD_MEMBERSHIP:
		return rpwi_fail(EOPNOTSUPP);
	case NETLINK_DROP_MEMBERSHIP:
	case NETLINK_PKTINFO:
	case NETLINK_BROADCAST_ERROR:
	case NETLINK_NO_ENOBUFS:
	case NETLINK_CAP_ACK: /* they are capped anyway, and say so */
	case NETLINK_GET_STRICT_CHK:
		return 0;
	default:
		return rpwi_fail(ENOPROTOOPT);
	}
}

SLOW int setsockopt_maybe(int fd, int level, int option, const void *v, socklen_t len)
{
	struct rpwi_netlink o;
	if (!rpwi_netlink_ask(fd, &o))
		return NEXT(setsockopt_fn, "setsockopt")(fd, level, option, v, len);
	if (level == SOL_NETLINK)
		return option_set(fd, option, v, len);
	/* the queue is what holds the answers to one request: libnl would make it smaller */
	if (level == SOL_SOCKET &&
		(option == SO_SNDBUF || option == SO_SNDBUFFORCE || option == SO_RCVBUF ||
			option == SO_RCVBUFFORCE || option == SO_PRIORITY))
		return 0;
	return NEXT(setsockopt_fn, "setsockopt")(fd, level, option, v, len);
}

int hook_setsockopt(int fd, int level, int option, const void *v, socklen_t len)
{
	return rpwi_netlink_maybe(fd)
		       ? setsockopt_maybe(fd, level, option, v, len)
		       : NEXT(setsockopt_fn, "setsockopt")(fd, level, option, v, len);
}

/* ---- requests ---- */

SLOW ssize_t send_maybe(int fd, const void *buf, size_t len, int flags)
{
	struct rpwi_netlink o;
	struct iovec v = {(void *)(uintptr_t)buf, len};
	if (!rpwi_netlink_ask(fd, &o))
		return NEXT(send_fn, "send")(fd, buf, len, flags);
	return rpwi_netlink_send(fd, &o, &v, 1, flags, NULL, 0);
}

ssize_t hook_send(int fd, const void *buf, size_t len, int flags)
{
	return rpwi_netlink_maybe(fd) ? send_maybe(fd, buf, len, flags)
				      : NEXT(send_fn, "send")(fd, buf, len, flags);
}

SLOW ssize_t sendto_maybe(
	int fd, const void *buf, size_t len, int flags, const void *to, socklen_t to_len)
{
	struct rpwi_netlink o;
	struct iovec v = {(void *)(uintptr_t)buf, len};
	if (!rpwi_netlink_ask(fd, &o))
		return NEXT(sendto_fn, "sendto")(fd, buf, len, flags, to, to_len);
	return rpwi_netlink_send(fd, &o, &v, 1, flags, to, to_len);
}

ssize_t hook_sendto(
	int fd, const void *buf, size_t len, int flags, const void *to, socklen_t to_len)
{
	return rpwi_netlink_maybe(fd) ? sendto_maybe(fd, buf, len, flags, to, to_len)
				      : NEXT(sendto_fn, "sendto")(fd, buf, len, flags, to, to_len);
}

static ssize_t sendmsg_ours(int fd, struct rpwi_netlink *o, const struct msghdr *m, int flags)
{
	return rpwi_netlink_send(
		fd, o, m->msg_iov, m->msg_iovlen, flags, m->msg_name, m->msg_namelen);
}

SLOW ssize_t sendmsg_maybe(int fd, const struct msghdr *m, int flags)
{
	struct rpwi_netlink o;
	return rpwi_netlink_ask(fd, &o) ? sendmsg_ours(fd, &o, m, flags)
					: NEXT(sendmsg_fn, "sendmsg")(fd, m, flags);
}

ssize_t hook_sendmsg(int fd, const struct msghdr *m, int flags)
{
	return rpwi_netlink_maybe(fd) ? sendmsg_maybe(fd, m, flags)
				      : NEXT(sendmsg_fn, "sendmsg")(fd, m, flags);
}

SLOW int sendmmsg_maybe(int fd, struct mmsghdr *m, unsigned n, int flags)
{
	struct rpwi_netlink o;
	unsigned i = 0;
	if (!rpwi_netlink_ask(fd, &o))
		return NEXT(sendmmsg_fn, "sendmmsg")(fd, m, n, flags);
	for (; i < n; i++) {
		ssize_t sent = sendmsg_ours(fd, &o, &m[i].msg_hdr, flags);
		if (sent < 0)
			break;
		m[i].msg_len = (unsigned)sent;
	}
	return i || !n ? (int)i : -1;
}

int hook_sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags)
{
	return rpwi_netlink_maybe(fd) ? sendmmsg_maybe(fd, m, n, flags)
				      : NEXT(sendmmsg_fn, "sendmmsg")(fd, m, n, flags);
}

SLOW ssize_t writev_maybe(int fd, const struct iovec *iov, int n)
{
	struct rpwi_netlink o;
	if (n < 0 || !rpwi_netlink_ask(fd, &o))
		return NEXT(writev_fn, "writev")(fd, iov, n);
	return rpwi_netlink_send(fd, &o, iov, (size_t)n, 0, NULL, 0);
}

/* Files and pipes come here: numbers that nothing is known of are not asked about. */
ssize_t hook_writev(int fd, const struct iovec *iov, int n)
{
	return RPWI_UNLIKELY(rpwi_fd_state(fd) == RPWI_FD_NETLINK)
		       ? writev_maybe(fd, iov, n)
		       : NEXT(writev_fn, "writev")(fd, iov, n);
}

/* ---- what comes, comes from the kernel: its address is all that is to be put right ---- */

SLOW ssize_t recvfrom_maybe(
	int fd, void *buf, size_t len, int flags, void *from, socklen_t *from_len)
{
	struct rpwi_netlink o;
	if (!from || !rpwi_netlink_ask(fd, &o))
		return NEXT(recvfrom_fn, "recvfrom")(fd, buf, len, flags, from, from_len);
	ssize_t n = NEXT(recvfrom_fn, "recvfrom")(fd, buf, len, flags, NULL, NULL);
	if (n >= 0)
		give_address(0, from, from_len);
	return n;
}

ssize_t hook_recvfrom(int fd, void *buf, size_t len, int flags, void *from, socklen_t *from_len)
{
	return rpwi_netlink_maybe(fd)
		       ? recvfrom_maybe(fd, buf, len, flags, from, from_len)
		       : NEXT(recvfrom_fn, "recvfrom")(fd, buf, len, flags, from, from_len);
}

ssize_t hook_recvfrom_chk(
	int fd, void *buf, size_t len, size_t room, int flags, void *from, socklen_t *from_len)
{
	if (rpwi_netlink_maybe(fd) && len <= room)
		return recvfrom_maybe(fd, buf, len, flags, from, from_len);
	return NEXT(recvfrom_chk_fn, "__recvfrom_chk")(fd, buf, len, room, flags, from, from_len);
}

SLOW ssize_t recvmsg_maybe(int fd, struct msghdr *m, int flags)
{
	struct rpwi_netlink o;
	if (!rpwi_netlink_ask(fd, &o))
		return NEXT(recvmsg_fn, "recvmsg")(fd, m, flags);
	socklen_t room = m->msg_namelen;
	ssize_t n = NEXT(recvmsg_fn, "recvmsg")(fd, m, flags);
	if (n >= 0 && m->msg_name) {
		give_address(0, m->msg_name, &room);
		m->msg_namelen = room;
	}
	return n;
}

ssize_t hook_recvmsg(int fd, struct msghdr *m, int flags)
{
	return rpwi_netlink_maybe(fd) ? recvmsg_maybe(fd, m, flags)
				      : NEXT(recvmsg_fn, "recvmsg")(fd, m, flags);
}

/* One by one: of what recvmmsg gives the room for an address is not known any more. */
SLOW int recvmmsg_maybe(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *timeout)
{
	struct rpwi_netlink o;
	unsigned i = 0;
	if (!rpwi_netlink_ask(fd, &o))
		return NEXT(recvmmsg_fn, "recvmmsg")(fd, m, n, flags, timeout);
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

int hook_recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *timeout)
{
	return rpwi_netlink_maybe(fd) ? recvmmsg_maybe(fd, m, n, flags, timeout)
				      : NEXT(recvmmsg_fn, "recvmmsg")(fd, m, n, flags, timeout);
}
