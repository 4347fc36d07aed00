/* SPDX-License-Identifier: BSD-3-Clause */
/* sockets.c - sockets of NETLINK_RDMA, on which `rdma` and libraries ask for devices: the kernel's
 * answers, where it has such devices, and ours after them.
 *
 * The program's descriptor is a datagram socket of the kernel's that is connected to itself
 * (unix(7)). What is sent to it does not go there: it is answered at once (netlink/), and the
 * answers are put into the socket's own queue, from which the program reads them by itself. So
 * readiness, blocking, MSG_PEEK, MSG_TRUNC, its end, and copies by dup, fork, exec or SCM_RIGHTS
 * are the kernel's. Nobody else can send to a socket that is connected to itself.
 *
 * What such a socket is, it carries: its name is ropeway/netlink/PORT/RANDOM, PORT being the
 * program's nl_pid; before it is bound, its priority says it, and whether NETLINK_EXT_ACK is set.
 * The table by number (tree.h) only says which numbers to ask about.
 *
 * The kernel is asked on a socket of its own, for the length of one call.
 */
#undef _FORTIFY_SOURCE
#include "netlink/netlink.h"
#include "preload/preload.h"
#include "tree/tree.h"
#include "ucma/ucma.h"

#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef NETLINK_RDMA
#define NETLINK_RDMA 20
#endif

#define NEXT(type, name) \
	({ \
		static type *next_; \
		if (!next_) \
			next_ = (type *)rpwi_next(name); \
		next_; \
	})

#define NAME "ropeway/netlink/"
enum {
	NAME_LEN = sizeof(NAME) - 1 + 8 + 1 + 16, /* and the port, and chance, in hexadecimal */
	MARK = 4,     /* in the socket's priority, of which a user may set 0 to 6 */
	EXPLAINS = 1, /* beside it */
	REQUEST_MAX = 1 << 16,
	KERNEL_DATAGRAM = 4096, /* the kernel makes none that is larger than the reader's room */
	/* What waits to be read; what is above that is for the word that it is full. */
	QUEUE_BYTES = 180000,
	QUEUE_BYTES_AT_END = 212992,
};

/* ---- whose is it? ---- */

struct ours {
	bool bound;
	uint32_t port; /* nl_pid; 0 before it is bound */
	bool explains;
};

static uint32_t from_hex(const char *s, bool *good)
{
	uint32_t v = 0;
	for (unsigned i = 0; i < 8; i++) {
		unsigned c = (unsigned char)s[i];
		unsigned d = c >= '0' && c <= '9'   ? c - '0'
			     : c >= 'a' && c <= 'f' ? c - 'a' + 10
						    : 16;
		*good = *good && d < 16;
		v = v << 4 | (d & 15);
	}
	return v;
}

/* The kernel's word, with a few system calls. */
static bool look(int fd, enum rpwi_fd_state state, struct ours *o)
{
	struct sockaddr_un a;
	socklen_t len = sizeof(a), int_len = sizeof(int);
	int priority = 0, type = 0;
	bool good = true;
	if (syscall(SYS_getsockname, fd, &a, &len))
		return false;
	size_t name = len - RPWI_MIN(len, offsetof(struct sockaddr_un, sun_path));
	*o = (struct ours){.bound = name};
	if (a.sun_family != AF_UNIX || (name ? name != 1 + NAME_LEN : state != RPWI_FD_NETLINK))
		return false;
	if (name && (a.sun_path[0] || memcmp(a.sun_path + 1, NAME, strlen(NAME)) != 0))
		return false;
	if (name)
		o->port = from_hex(a.sun_path + 1 + strlen(NAME), &good);
	if (syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PRIORITY, &priority, &int_len) ||
		syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &int_len))
		return false;
	o->explains = priority & EXPLAINS;
	return good && type == SOCK_DGRAM && priority & MARK;
}

static bool ask(int fd, struct ours *o)
{
	enum rpwi_fd_state state = rpwi_fd_states[fd];
	bool is = false, socket = true;
	RPWI_KEEP_ERRNO({
		is = !rpwi_tree_disabled() && look(fd, state, o);
		socket = is || errno != ENOTSOCK;
	});
	/* No socket: a folder may be it, and places.c wants to know. */
	if (is)
		rpwi_fd_is(fd, RPWI_FD_NETLINK);
	else if (socket && !rpwi_inside_real)
		rpwi_fd_is(fd, RPWI_FD_OTHER);
	return is;
}

/* A number that nothing is known of is asked about once: it may have come by exec. */
static inline bool is_ours(int fd, struct ours *o)
{
	if ((unsigned)fd >= RPWI_FDS)
		return false;
	uint8_t s = rpwi_fd_states[fd];
	return RPWI_UNLIKELY(s == RPWI_FD_NETLINK || s == RPWI_FD_UNKNOWN) && ask(fd, o);
}

/* ---- a socket of ours ---- */

static int set_int(int fd, int option, int v)
{
	return (int)syscall(SYS_setsockopt, fd, SOL_SOCKET, option, &v, sizeof(v));
}

static int open_ours(int type)
{
	int fd = (int)syscall(
		SYS_socket, AF_UNIX, SOCK_DGRAM | (type & (SOCK_CLOEXEC | SOCK_NONBLOCK)), 0);
	if (fd < 0)
		return -1;
	if (fd >= RPWI_FDS || set_int(fd, SO_PRIORITY, MARK)) {
		rpwi_raw_close(fd);
		return -1;
	}
	set_int(fd, SO_SNDBUF, QUEUE_BYTES);
	rpwi_fd_is(fd, RPWI_FD_NETLINK);
	return fd;
}

/* Gives it its name, and itself as its peer. Another thread may have done so. */
static int bind_ours(int fd, uint32_t port)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char text[NAME_LEN + 1], c;
	socklen_t len = offsetof(struct sockaddr_un, sun_path) + 1 + NAME_LEN;
	snprintf(
		text, sizeof(text), NAME "%08x/%016llx", port, (unsigned long long)rpwi_random64());
	memcpy(a.sun_path + 1, text, NAME_LEN);
	if (syscall(SYS_bind, fd, &a, len))
		return errno == EINVAL ? 0 : -1;
	if (syscall(SYS_connect, fd, &a, len))
		return -1;
	/* Between the two anybody who reads /proc/net/unix could send. Nobody can any more. */
	while (syscall(SYS_recvfrom, fd, &c, 1, MSG_DONTWAIT | MSG_TRUNC, NULL, NULL) >= 0)
		;
	return 0;
}

static uint32_t own_port(void) { return (uint32_t)syscall(SYS_getpid); }

/* ---- requests ---- */

static bool is_admin(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3] = {0};
	return !syscall(SYS_capget, &h, d) && d[0].effective & 1u << CAP_NET_ADMIN;
}

static int resources(
	const char *device, enum rpwi_resource_kind kind, rpwi_resource_visit *visit, void *arg)
{
	return kind == RPWI_RES_CM_ID ? rpwi_ucma_resources(device, visit, arg)
				      : rpwi_dev_resources(device, kind, visit, arg);
}

/* A call's memory. */
struct call {
	int fd;
	int kernel; /* its socket; -1: it has no RDMA, -2: not asked yet */
	struct rpwi_nl_world w;
	struct rpwi_nl_out out;
	_Alignas(8) uint8_t answer[KERNEL_DATAGRAM];
	_Alignas(8) uint8_t request[];
};

static int queue(void *arg, const void *datagram, size_t len)
{
	const struct call *c = arg;
	long n = syscall(SYS_sendto, c->fd, datagram, len, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	return n >= 0 ? 0 : errno == EAGAIN ? -ENOBUFS : -errno;
}

static int kernel_socket(struct call *c)
{
	int one = 1;
	if (c->kernel != -2)
		return c->kernel;
	c->kernel = (int)syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	if (c->kernel < 0)
		return c->kernel = -1;
	syscall(SYS_setsockopt, c->kernel, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof(one));
	if (c->w.explains)
		syscall(SYS_setsockopt, c->kernel, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one));
	return c->kernel;
}

/* One datagram of the kernel's goes on, as to the program's own port; without the end of a list
 * if `open`. *end: that end, or an error, was in it; *err: the former's. */
static int pass_on(struct call *c, size_t len, bool open, bool *end, int *err)
{
	size_t at = 0, keep = 0;
	const struct nlmsghdr *m;
	while ((m = rpwi_nl_message(c->answer + at, len - at))) {
		struct nlmsghdr *h = (void *)(c->answer + at);
		size_t step = RPWI_MIN((size_t)NLMSG_ALIGN(h->nlmsg_len), len - at);
		bool done = h->nlmsg_type == NLMSG_DONE;
		h->nlmsg_pid = c->w.port;
		if (done && h->nlmsg_len >= NLMSG_LENGTH(sizeof(int32_t)))
			memcpy(err, NLMSG_DATA(h), sizeof(int32_t));
		*end = *end || done || h->nlmsg_type == NLMSG_ERROR;
		if (!(done && open)) {
			memmove(c->answer + keep, h, step);
			keep += step;
		}
		at += step;
	}
	return keep ? queue(c, c->answer, keep) : 0;
}

/* All that the kernel answers to one message; it does so before send returns, and goes on with a
 * list in each recv. open: its end is not passed on. 0 or -errno. */
static int ask_kernel(struct call *c, const struct nlmsghdr *h, bool open, int *list_err)
{
	bool end = false;
	if (syscall(SYS_sendto, c->kernel, h, (size_t)h->nlmsg_len, 0, NULL, 0) < 0)
		return -errno;
	while (!end) {
		long n = syscall(SYS_recvfrom, c->kernel, c->answer, sizeof(c->answer),
			MSG_DONTWAIT | MSG_TRUNC, NULL, NULL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		if ((size_t)n > sizeof(c->answer))
			return -EMSGSIZE;
		int rc = pass_on(c, (size_t)n, open, &end, list_err);
		if (rc)
			return rc;
	}
	return 0;
}

/* Its list, and ours behind it. An error of the kernel's ends it. */
static int answer_both(struct call *c, const struct nlmsghdr *h)
{
	int err = 0, rc = ask_kernel(c, h, true, &err);
	if (rc)
		return rc;
	return err ? rpwi_nl_done(&c->w, h, err, &c->out) : rpwi_nl_answer(&c->w, h, &c->out);
}

static int answer(struct call *c, const struct nlmsghdr *h)
{
	int none = 0;
	enum rpwi_nl_side side = rpwi_nl_side(&c->w, h);
	if (side == RPWI_NL_OURS || kernel_socket(c) < 0)
		return rpwi_nl_answer(&c->w, h, &c->out);
	return side == RPWI_NL_BOTH ? answer_both(c, h) : ask_kernel(c, h, false, &none);
}

/* The queue is full: what was asked for ends with that error, and the program sees it. */
static int answer_full(struct call *c, const struct nlmsghdr *h)
{
	c->out.rc = 0;
	c->out.len = c->out.message = 0;
	set_int(c->fd, SO_SNDBUF, QUEUE_BYTES_AT_END);
	int rc = h->nlmsg_flags & NLM_F_DUMP ? rpwi_nl_done(&c->w, h, -ENOBUFS, &c->out)
					     : rpwi_nl_error(&c->w, h, -ENOBUFS, NULL, &c->out);
	set_int(c->fd, SO_SNDBUF, QUEUE_BYTES);
	return rc;
}

static int answer_all(struct call *c, size_t len)
{
	const struct nlmsghdr *h;
	int rc = 0;
	for (size_t at = 0; !rc && (h = rpwi_nl_message(c->request + at, len - at));
		at += RPWI_MIN((size_t)NLMSG_ALIGN(h->nlmsg_len), len - at)) {
		rc = answer(c, h);
		if (rc == -ENOBUFS)
			rc = answer_full(c, h);
	}
	return rc;
}

static uint64_t rdma_cm_number(void)
{
	dev_t d = rpwi_rdma_cm_rdev();
	return (minor(d) & 0xff) | (uint64_t)major(d) << 8 | (uint64_t)(minor(d) & ~0xffu) << 12;
}

static int serve(int fd, const struct ours *o, const struct iovec *iov, size_t n, size_t len)
{
	size_t bytes = sizeof(struct call) + len, nets_bytes = 0, at = 0;
	struct rpwi_netdev *nets = NULL;
	struct call *c =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (c == MAP_FAILED)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		if (iov[i].iov_len)
			memcpy(c->request + at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	int count = rpwi_netdev_map(&nets, &nets_bytes);
	c->fd = fd;
	c->kernel = -2;
	c->w = (struct rpwi_nl_world){.nets = nets,
		.n = count > 0 ? (unsigned)count : 0,
		.caps = rpwi_dev_caps(),
		.firmware = ROPEWAY_VERSION,
		.rdma_cm = rdma_cm_number(),
		.port = o->port,
		.explains = o->explains,
		.admin = is_admin(),
		.resources = resources};
	c->out.send = queue;
	c->out.arg = c;
	int rc = answer_all(c, len);
	rpwi_netdev_unmap(nets, nets_bytes);
	if (c->kernel >= 0)
		rpwi_raw_close(c->kernel);
	munmap(c, bytes);
	return rc;
}

/* To the kernel alone (nl_pid 0): sockets of NETLINK_RDMA do not speak to each other. */
static int check_to(const struct sockaddr *to, socklen_t len)
{
	struct sockaddr_nl a;
	if (!to || !len)
		return 0;
	if (len < sizeof(a))
		return -EINVAL;
	memcpy(&a, to, sizeof(a));
	return a.nl_family != AF_NETLINK ? -EINVAL : a.nl_pid || a.nl_groups ? -EPERM : 0;
}

static ssize_t send_ours(int fd, struct ours *o, const struct iovec *iov, size_t n, int flags,
	const struct sockaddr *to, socklen_t to_len)
{
	size_t len = 0;
	int kept = errno, rc = flags & MSG_OOB ? -EOPNOTSUPP : check_to(to, to_len);
	for (size_t i = 0; i < n && !rc; i++) {
		if (iov[i].iov_len > REQUEST_MAX - len)
			rc = -EMSGSIZE;
		else
			len += iov[i].iov_len;
	}
	if (!rc && !o->bound) {
		o->port = own_port();
		rc = bind_ours(fd, o->port) ? -errno : 0;
		o->bound = true;
	}
	if (!rc)
		rc = serve(fd, o, iov, n, len);
	errno = rc ? -rc : kept;
	return rc ? -1 : (ssize_t)len;
}

bool rpwi_netlink_write(int fd, const void *buf, size_t len, ssize_t *sent)
{
	struct ours o;
	struct iovec v = {(void *)(uintptr_t)buf, len};
	if (!ask(fd, &o))
		return false;
	*sent = send_ours(fd, &o, &v, 1, 0, NULL, 0);
	return true;
}

/* ---- the hooks ---- */

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

int hook_socket(int domain, int type, int protocol)
{
	int base = type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK), fd = -1;
	if (RPWI_UNLIKELY(domain == AF_NETLINK && protocol == NETLINK_RDMA) &&
		(base == SOCK_RAW || base == SOCK_DGRAM) && !rpwi_tree_disabled())
		fd = open_ours(type);
	if (RPWI_UNLIKELY(fd >= 0))
		return fd;
	fd = NEXT(socket_fn, "socket")(domain, type, protocol);
	if (fd >= 0)
		rpwi_fd_is(fd, RPWI_FD_OTHER);
	return fd;
}

int hook_bind(int fd, const void *a, socklen_t len)
{
	struct ours o;
	struct sockaddr_nl nl;
	if (RPWI_LIKELY(!is_ours(fd, &o)))
		return NEXT(address_fn, "bind")(fd, a, len);
	if (len < sizeof(nl))
		return rpwi_fail(EINVAL);
	memcpy(&nl, a, sizeof(nl));
	if (nl.nl_family != AF_NETLINK || (o.bound && nl.nl_pid && nl.nl_pid != o.port))
		return rpwi_fail(EINVAL);
	/* nobody tells of a change: see docs/tree.md */
	if (nl.nl_groups)
		return rpwi_fail(EOPNOTSUPP);
	return o.bound ? 0 : bind_ours(fd, nl.nl_pid ? nl.nl_pid : own_port());
}

int hook_connect(int fd, const void *a, socklen_t len)
{
	struct ours o;
	if (RPWI_LIKELY(!is_ours(fd, &o)))
		return NEXT(address_fn, "connect")(fd, a, len);
	sa_family_t family = AF_UNSPEC;
	if (len < sizeof(family))
		return rpwi_fail(EINVAL);
	memcpy(&family, a, sizeof(family));
	int rc = family == AF_UNSPEC ? 0 : check_to(a, len);
	return rc ? rpwi_fail(-rc) : 0;
}

static void give_address(uint32_t port, void *a, socklen_t *len)
{
	const struct sockaddr_nl nl = {.nl_family = AF_NETLINK, .nl_pid = port};
	memcpy(a, &nl, RPWI_MIN((size_t)*len, sizeof(nl)));
	*len = sizeof(nl);
}

int hook_getsockname(int fd, void *a, socklen_t *len)
{
	struct ours o;
	if (RPWI_LIKELY(!is_ours(fd, &o)))
		return NEXT(name_fn, "getsockname")(fd, a, len);
	give_address(o.port, a, len);
	return 0;
}

int hook_getpeername(int fd, void *a, socklen_t *len)
{
	struct ours o;
	if (RPWI_LIKELY(!is_ours(fd, &o)))
		return NEXT(name_fn, "getpeername")(fd, a, len);
	give_address(0, a, len);
	return 0;
}

/* False: the kernel's own answer will do. */
static bool option_get(const struct ours *o, int level, int option, int *v)
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

int hook_getsockopt(int fd, int level, int option, void *v, socklen_t *len)
{
	struct ours o;
	int is;
	if (RPWI_LIKELY(!is_ours(fd, &o)) || !option_get(&o, level, option, &is))
		return NEXT(getsockopt_fn, "getsockopt")(fd, level, option, v, len);
	if (*len < sizeof(is))
		return rpwi_fail(EINVAL);
	memcpy(v, &is, sizeof(is));
	*len = sizeof(is);
	return 0;
}

static int option_set(int fd, const struct ours *o, int option, const void *v, socklen_t len)
{
	int on = 0;
	if (len < sizeof(on))
		return rpwi_fail(EINVAL);
	memcpy(&on, v, sizeof(on));
	switch (option) {
	case NETLINK_EXT_ACK:
		return set_int(fd, SO_PRIORITY, MARK | (on ? EXPLAINS : 0));
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

int hook_setsockopt(int fd, int level, int option, const void *v, socklen_t len)
{
	struct ours o;
	if (RPWI_LIKELY(!is_ours(fd, &o)))
		return NEXT(setsockopt_fn, "setsockopt")(fd, level, option, v, len);
	if (level == SOL_NETLINK)
		return option_set(fd, &o, option, v, len);
	/* the queue is what holds the answers to one request: libnl would make it smaller */
	if (level == SOL_SOCKET &&
		(option == SO_SNDBUF || option == SO_SNDBUFFORCE || option == SO_RCVBUF ||
			option == SO_RCVBUFFORCE || option == SO_PRIORITY))
		return 0;
	return NEXT(setsockopt_fn, "setsockopt")(fd, level, option, v, len);
}

ssize_t hook_send(int fd, const void *buf, size_t len, int flags)
{
	struct ours o;
	struct iovec v = {(void *)(uintptr_t)buf, len};
	if (RPWI_LIKELY(!is_ours(fd, &o)))
		return NEXT(send_fn, "send")(fd, buf, len, flags);
	return send_ours(fd, &o, &v, 1, flags, NULL, 0);
}

ssize_t hook_sendto(
	int fd, const void *buf, size_t len, int flags, const void *to, socklen_t to_len)
{
	struct ours o;
	struct iovec v = {(void *)(uintptr_t)buf, len};
	if (RPWI_LIKELY(!is_ours(fd, &o)))
		return NEXT(sendto_fn, "sendto")(fd, buf, len, flags, to, to_len);
	return send_ours(fd, &o, &v, 1, flags, to, to_len);
}

static ssize_t sendmsg_ours(int fd, struct ours *o, const struct msghdr *m, int flags)
{
	return send_ours(fd, o, m->msg_iov, m->msg_iovlen, flags, m->msg_name, m->msg_namelen);
}

ssize_t hook_sendmsg(int fd, const struct msghdr *m, int flags)
{
	struct ours o;
	if (RPWI_LIKELY(!is_ours(fd, &o)))
		return NEXT(sendmsg_fn, "sendmsg")(fd, m, flags);
	return sendmsg_ours(fd, &o, m, flags);
}

int hook_sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags)
{
	struct ours o;
	unsigned i = 0;
	if (RPWI_LIKELY(!is_ours(fd, &o)))
		return NEXT(sendmmsg_fn, "sendmmsg")(fd, m, n, flags);
	for (; i < n; i++) {
		ssize_t sent = sendmsg_ours(fd, &o, &m[i].msg_hdr, flags);
		if (sent < 0)
			break;
		m[i].msg_len = (unsigned)sent;
	}
	return i || !n ? (int)i : -1;
}

ssize_t hook_writev(int fd, const struct iovec *iov, int n)
{
	struct ours o;
	if (RPWI_UNLIKELY(rpwi_fd_state(fd) == RPWI_FD_NETLINK) && n >= 0 && ask(fd, &o))
		return send_ours(fd, &o, iov, (size_t)n, 0, NULL, 0);
	return NEXT(writev_fn, "writev")(fd, iov, n);
}

/* What comes, comes from the kernel: its address is all that is to be put right. */

ssize_t hook_recvfrom(int fd, void *buf, size_t len, int flags, void *from, socklen_t *from_len)
{
	struct ours o;
	if (RPWI_LIKELY(!from || !is_ours(fd, &o)))
		return NEXT(recvfrom_fn, "recvfrom")(fd, buf, len, flags, from, from_len);
	ssize_t n = NEXT(recvfrom_fn, "recvfrom")(fd, buf, len, flags, NULL, NULL);
	if (n >= 0)
		give_address(0, from, from_len);
	return n;
}

ssize_t hook_recvfrom_chk(
	int fd, void *buf, size_t len, size_t room, int flags, void *from, socklen_t *from_len)
{
	if (len > room)
		return NEXT(recvfrom_chk_fn, "__recvfrom_chk")(
			fd, buf, len, room, flags, from, from_len);
	return hook_recvfrom(fd, buf, len, flags, from, from_len);
}

/* Descriptors that came: of their numbers nothing is known any more (nor by places.c). */
static void received(struct msghdr *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
			int fd;
			memcpy(&fd, (const char *)c + at, sizeof(fd));
			rpwi_fd_is(fd, RPWI_FD_UNKNOWN);
		}
	}
}

ssize_t hook_recvmsg(int fd, struct msghdr *m, int flags)
{
	struct ours o;
	if (RPWI_LIKELY(!is_ours(fd, &o))) {
		ssize_t got = NEXT(recvmsg_fn, "recvmsg")(fd, m, flags);
		if (RPWI_UNLIKELY(got >= 0 && m->msg_controllen))
			received(m);
		return got;
	}
	socklen_t room = m->msg_namelen;
	ssize_t n = NEXT(recvmsg_fn, "recvmsg")(fd, m, flags);
	if (n >= 0 && m->msg_name) {
		give_address(0, m->msg_name, &room);
		m->msg_namelen = room;
	}
	return n;
}

/* One by one: of what recvmmsg gives the room for an address is not known any more. */
int hook_recvmmsg(int fd, struct mmsghdr *m, unsigned n, int flags, struct timespec *timeout)
{
	struct ours o;
	unsigned i = 0;
	if (RPWI_LIKELY(!is_ours(fd, &o))) {
		int all = NEXT(recvmmsg_fn, "recvmmsg")(fd, m, n, flags, timeout);
		for (int k = 0; k < all; k++)
			if (RPWI_UNLIKELY(m[k].msg_hdr.msg_controllen))
				received(&m[k].msg_hdr);
		return all;
	}
	for (; i < n; i++) {
		ssize_t got = hook_recvmsg(fd, &m[i].msg_hdr,
			(flags & ~MSG_WAITFORONE) |
				(i && flags & MSG_WAITFORONE ? MSG_DONTWAIT : 0));
		if (got < 0)
			break;
		m[i].msg_len = (unsigned)got;
	}
	return i || !n ? (int)i : -1;
}
