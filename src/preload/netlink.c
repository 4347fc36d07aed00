/* SPDX-License-Identifier: BSD-3-Clause */
/* netlink.c - sockets of NETLINK_RDMA, on which `rdma` and libraries ask for devices: the kernel's
 * answers, where it has such devices, and ours after them.
 *
 * The program's descriptor is a datagram socket of the kernel's that is connected to itself
 * (unix(7)). A request sent to it does not go there: it is answered at once (netlink/), and the
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
#include "preload/netlink.h"
#include "base/choice.h"
#include "io/counters.h"
#include "netlink/netlink.h"
#include "tree/tree.h"
#include "ucma/ucma.h"

#include <infiniband/verbs.h>
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

#define NAME "ropeway/netlink/"
enum {
	NAME_LEN = sizeof(NAME) - 1 + 8 + 1 + 16, /* and the port, and chance, in hexadecimal */
	MARK = 4,     /* in the socket's priority, of which a user may set 0 to 6 */
	EXPLAINS = 1, /* beside it */
	REQUEST_MAX = 1 << 16,
	KERNEL_DATAGRAM = 4096, /* the kernel makes none that is larger than the reader's room */
	/* The most that waits to be read; the room above is for the word that it is full. */
	QUEUE_BYTES = 180000,
	QUEUE_BYTES_AT_END = 212992,
};

/* ---- whose is it? ---- */

static uint32_t from_hex(const char *s, bool *good)
{
	uint32_t v = 0;
	for (unsigned i = 0; i < 8; i++) {
		unsigned c = (unsigned char)s[i];
		unsigned d = 16;
		if (c >= '0' && c <= '9')
			d = c - '0';
		else if (c >= 'a' && c <= 'f')
			d = c - 'a' + 10;
		*good = *good && d < 16;
		v = v << 4 | (d & 15);
	}
	return v;
}

/* The kernel's word, with a few system calls. */
static bool look(int fd, enum rpwi_fd_state state, struct rpwi_netlink *o)
{
	struct sockaddr_un a;
	socklen_t len = sizeof(a), int_len = sizeof(int);
	int priority = 0, type = 0;
	bool good = true;
	if (syscall(SYS_getsockname, fd, &a, &len))
		return false;
	size_t name = len - RPWI_MIN(len, offsetof(struct sockaddr_un, sun_path));
	*o = (struct rpwi_netlink){.bound = name};
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

bool rpwi_netlink_ask(int fd, struct rpwi_netlink *o)
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

/* ---- a socket of ours ---- */

static int set_int(int fd, int option, int v)
{
	return (int)syscall(SYS_setsockopt, fd, SOL_SOCKET, option, &v, sizeof(v));
}

int rpwi_netlink_open(int type)
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
int rpwi_netlink_bind(int fd, uint32_t port)
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

int rpwi_netlink_explain(int fd, bool on)
{
	return set_int(fd, SO_PRIORITY, MARK | (on ? EXPLAINS : 0));
}

uint32_t rpwi_netlink_own_port(void) { return (uint32_t)syscall(SYS_getpid); }

/* ---- requests ---- */

static bool is_admin(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3] = {0};
	return !syscall(SYS_capget, &h, d) && d[0].effective & 1u << CAP_NET_ADMIN;
}

/* QPs of other processes: what they show of themselves (io/counters.h). */
struct others {
	const char *device;
	rpwi_resource_visit *visit;
	void *arg;
	bool more;
};

static bool visit_all(void *arg, const struct rpwi_resource *r)
{
	struct others *o = arg;
	o->more = o->visit(o->arg, r);
	return o->more;
}

static bool visit_other(void *arg, const struct rpwi_counters_part *c)
{
	const struct others *o = arg;
	if (!c->qpn || rpwi_counters_is_own(c->socket_inode) || strcmp(c->device, o->device) != 0)
		return true;
	struct rpwi_resource r = {.kind = RPWI_RES_QP,
		.id = c->qpn,
		.pid = c->pid,
		.type = c->type,
		.state = c->state,
		.connects = c->type != IBV_QPT_UD,
		.remote_qpn = c->peer_qpn};
	return o->visit(o->arg, &r);
}

static int resources(
	const char *device, enum rpwi_resource_kind kind, rpwi_resource_visit *visit, void *arg)
{
	if (kind == RPWI_RES_CM_ID)
		return rpwi_ucma_resources(device, visit, arg);
	if (kind != RPWI_RES_QP)
		return rpwi_dev_resources(device, kind, visit, arg);
	struct others o = {device, visit, arg, true};
	int rc = rpwi_dev_resources(device, kind, visit_all, &o);
	if (!rc && o.more)
		/* without System V memory a process has its own alone */
		RPWI_KEEP_ERRNO(rpwi_counters_walk(visit_other, &o));
	return rc;
}

static bool count_all(const char *device, enum rpwi_resource_kind kind, uint64_t *n)
{
	struct rpwi_qp_stats sum;
	struct rpwi_resources live;
	if (rpwi_counters_sum(device, &sum, &live))
		return false;
	_Atomic uint64_t *const of[RPWI_RES_KINDS] = {[RPWI_RES_PD] = &live.pds,
		[RPWI_RES_CQ] = &live.cqs,
		[RPWI_RES_QP] = &live.qps,
		[RPWI_RES_MR] = &live.mrs,
		[RPWI_RES_CTX] = &live.contexts,
		[RPWI_RES_SRQ] = &live.srqs};
	if (of[kind])
		*n = atomic_load_explicit(of[kind], memory_order_relaxed);
	return of[kind];
}

/* A call's memory. */
struct call {
	int fd;
	int kernel;  /* its socket; -1: it has no RDMA that is seen, -2: not asked yet */
	bool hidden; /* an answer of its was about a device that programs are not shown */
	struct rpwi_nl_world w;
	struct rpwi_nl_out out;
	_Alignas(8) uint8_t answer[KERNEL_DATAGRAM];
	_Alignas(8) uint8_t request[];
};

static int queue(void *arg, const void *datagram, size_t len)
{
	const struct call *c = arg;
	long n = syscall(SYS_sendto, c->fd, datagram, len, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	if (n >= 0)
		return 0;
	return errno == EAGAIN ? -ENOBUFS : -errno;
}

static int kernel_socket(struct call *c)
{
	int one = 1;
	if (c->kernel != -2)
		return c->kernel;
	if (rpwi_choice_software())
		return c->kernel = -1;
	c->kernel = (int)syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	if (c->kernel < 0)
		return c->kernel = -1;
	syscall(SYS_setsockopt, c->kernel, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof(one));
	if (c->w.explains)
		syscall(SYS_setsockopt, c->kernel, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof(one));
	return c->kernel;
}

static bool is_hidden(const struct nlmsghdr *h)
{
	char name[64];
	return rpwi_nl_device(h, name, sizeof(name)) && rpwi_choice_hides(name);
}

/* One datagram of the kernel's goes on, as to the program's own port; without what is about hidden
 * devices, and without the end of a list if `open`. *end: that end, or an error, was in it; *err:
 * the former's. */
static int pass_on(struct call *c, size_t len, bool open, bool *end, int *err)
{
	size_t at = 0, keep = 0;
	while (rpwi_nl_message(c->answer + at, len - at)) {
		struct nlmsghdr *h = (void *)(c->answer + at);
		size_t step = RPWI_MIN((size_t)NLMSG_ALIGN(h->nlmsg_len), len - at);
		/* both begin with the error */
		bool last = h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR;
		h->nlmsg_pid = c->w.port;
		if (last && h->nlmsg_len >= NLMSG_LENGTH(sizeof(int32_t)))
			memcpy(err, NLMSG_DATA(h), sizeof(int32_t));
		*end = *end || last;
		bool hidden = is_hidden(h);
		c->hidden = c->hidden || hidden;
		if (!hidden && !(last && open)) {
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

/* Its answer alone. Of a hidden device there is none. */
static int answer_kernel(struct call *c, const struct nlmsghdr *h)
{
	int none = 0;
	c->hidden = false;
	int rc = ask_kernel(c, h, false, &none);
	if (rc || !c->hidden || h->nlmsg_flags & NLM_F_DUMP)
		return rc;
	return rpwi_nl_error(&c->w, h, -ENODEV, NULL, &c->out);
}

static int answer(struct call *c, const struct nlmsghdr *h)
{
	enum rpwi_nl_side side = rpwi_nl_side(&c->w, h);
	if (side == RPWI_NL_OURS || kernel_socket(c) < 0)
		return rpwi_nl_answer(&c->w, h, &c->out);
	return side == RPWI_NL_BOTH ? answer_both(c, h) : answer_kernel(c, h);
}

/* The queue is full: the request ends with that error, and the program sees it. */
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

static int serve(
	int fd, const struct rpwi_netlink *o, const struct iovec *iov, size_t n, size_t len)
{
	size_t bytes = sizeof(struct call) + len, nets_bytes = 0, at = 0;
	struct rpwi_netdev *nets = NULL;
	struct call *c =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (c == MAP_FAILED)
		return -ENOMEM;
	/* once more within bounds: another thread of the program may have written to them */
	for (size_t i = 0; i < n; i++) {
		size_t part = RPWI_MIN(iov[i].iov_len, len - at);
		if (part)
			memcpy(c->request + at, iov[i].iov_base, part);
		at += part;
	}
	int count = rpwi_netdev_map(&nets, &nets_bytes, NULL);
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
		.resources = resources,
		.count = count_all,
		.counter = rpwi_tree_hw_counter};
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
int rpwi_netlink_check_to(const struct sockaddr *to, socklen_t len)
{
	struct sockaddr_nl a;
	if (!to || !len)
		return 0;
	if (len < sizeof(a))
		return -EINVAL;
	memcpy(&a, to, sizeof(a));
	if (a.nl_family != AF_NETLINK)
		return -EINVAL;
	return a.nl_pid || a.nl_groups ? -EPERM : 0;
}

ssize_t rpwi_netlink_send(int fd, struct rpwi_netlink *o, const struct iovec *iov, size_t n,
	int flags, const struct sockaddr *to, socklen_t to_len)
{
	size_t len = 0;
	int kept = errno, rc = flags & MSG_OOB ? -EOPNOTSUPP : rpwi_netlink_check_to(to, to_len);
	for (size_t i = 0; i < n && !rc; i++) {
		if (iov[i].iov_len > REQUEST_MAX - len)
			rc = -EMSGSIZE;
		else
			len += iov[i].iov_len;
	}
	if (!rc && !o->bound) {
		o->port = rpwi_netlink_own_port();
		rc = rpwi_netlink_bind(fd, o->port) ? -errno : 0;
		o->bound = true;
	}
	if (!rc)
		rc = serve(fd, o, iov, n, len);
	errno = rc ? -rc : kept;
	return rc ? -1 : (ssize_t)len;
}

bool rpwi_netlink_write(int fd, const void *buf, size_t len, ssize_t *sent)
{
	struct rpwi_netlink o;
	struct iovec v = {(void *)(uintptr_t)buf, len};
	if (!rpwi_netlink_ask(fd, &o))
		return false;
	*sent = rpwi_netlink_send(fd, &o, &v, 1, 0, NULL, 0);
	return true;
}
