/* SPDX-License-Identifier: BSD-3-Clause */
/* sockets.c - a NETLINK_RDMA socket of ours against everything that a program may do with one, and
 * with other sockets. `sockets` runs all cases, the drop-in preloaded or linked; a line for each
 * that fails. `sockets child FD`, `sockets copies` and `sockets count` are
 * what some cases execute. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_netlink.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef NETLINK_RDMA
#define NETLINK_RDMA 20
#endif

static const char *running;
static int failures;
#define CHECK(what) \
	do { \
		errno = 0; \
		if (!(what)) { \
			fprintf(stderr, "%s: line %d: %s (errno %d)\n", running, __LINE__, #what, \
				errno); \
			failures++; \
		} \
	} while (0)
#define FAILS(err, what) CHECK((what) == -1 && errno == (err))

/* No case waits for longer. */
static bool readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, ms) == 1 && p.revents & POLLIN;
}

struct request {
	struct nlmsghdr h;
	struct nlattr a[2];
	uint32_t device;
};

static struct nlmsghdr list(unsigned seq)
{
	return (struct nlmsghdr){.nlmsg_len = NLMSG_HDRLEN,
		.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET),
		.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
		.nlmsg_seq = seq};
}

static int open_one(int flags)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | flags, NETLINK_RDMA);
	CHECK(fd >= 0);
	return fd;
}

/* Reads one list to its end: how many devices, -1: it is none, or of another request. */
static int read_list(int fd, unsigned seq)
{
	_Alignas(8) static __thread char buf[4096];
	for (int n = 0;;) {
		if (!readable(fd, 5000))
			return -1;
		ssize_t len = recv(fd, buf, sizeof(buf), 0);
		for (const struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, (unsigned)len);
			h = NLMSG_NEXT(h, len)) {
			if (h->nlmsg_seq != seq)
				return -1;
			if (h->nlmsg_type == NLMSG_DONE)
				return n;
			n++;
		}
	}
}

static int ask(int fd, unsigned seq)
{
	struct nlmsghdr h = list(seq);
	return send(fd, &h, sizeof(h), 0) == sizeof(h) ? read_list(fd, seq) : -2;
}

static int devices;

static void addresses(void)
{
	int fd = open_one(SOCK_CLOEXEC), other = open_one(SOCK_CLOEXEC), v = 0;
	struct sockaddr_nl a = {.nl_family = AF_NETLINK}, kernel = a;
	struct sockaddr_in in = {.sin_family = AF_INET};
	socklen_t len = sizeof(a), short_len = 2, int_len = sizeof(v);
	CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	CHECK(!getsockname(fd, (void *)&a, &len) && len == sizeof(a) && a.nl_family == AF_NETLINK &&
		!a.nl_pid);
	FAILS(EINVAL, bind(fd, (void *)&a, 4));
	FAILS(EINVAL, bind(fd, (void *)&in, sizeof(in)));
	a.nl_groups = 1;
	FAILS(EOPNOTSUPP, bind(fd, (void *)&a, sizeof(a)));
	a.nl_groups = 0;
	CHECK(!bind(fd, (void *)&a, sizeof(a)));
	CHECK(!bind(fd, (void *)&a, sizeof(a))); /* once more, as the kernel lets one */
	CHECK(!getsockname(fd, (void *)&a, &len) && a.nl_pid == (uint32_t)getpid());
	a.nl_pid = 12345678;
	FAILS(EINVAL, bind(fd, (void *)&a, sizeof(a)));
	/* libnl chooses one itself */
	CHECK(!bind(other, (void *)&a, sizeof(a)));
	CHECK(!getsockname(other, (void *)&a, &len) && a.nl_pid == 12345678);
	CHECK(!getsockname(other, (void *)&a, &short_len) && short_len == sizeof(a));
	CHECK(!getpeername(other, (void *)&a, &len) && !a.nl_pid && a.nl_family == AF_NETLINK);
	CHECK(!connect(other, (void *)&kernel, sizeof(kernel)));
	kernel.nl_pid = 1;
	FAILS(EPERM, connect(other, (void *)&kernel, sizeof(kernel)));
	CHECK(!getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &v, &int_len) && v == AF_NETLINK);
	CHECK(!getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &v, &int_len) && v == NETLINK_RDMA);
	CHECK(!getsockopt(fd, SOL_SOCKET, SO_TYPE, &v, &int_len) && v == SOCK_RAW);
	v = 1;
	CHECK(!setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &v, sizeof(v)));
	CHECK(!setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &v, sizeof(v)));
	v = 0;
	CHECK(!getsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &v, &int_len) && v == 1);
	FAILS(ENOPROTOOPT, setsockopt(fd, SOL_NETLINK, 99, &v, sizeof(v)));
	FAILS(EINVAL, setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &v, 1));
	FAILS(EOPNOTSUPP, setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &v, sizeof(v)));
	v = 4096; /* libnl; a list has room all the same */
	CHECK(!setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &v, sizeof(v)));
	CHECK(!setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &v, sizeof(v)));
	CHECK(ask(fd, 1) == devices && ask(other, 2) == devices);
	close(fd);
	close(other);
	/* of another type it is the kernel's business */
	FAILS(ESOCKTNOSUPPORT, socket(AF_NETLINK, SOCK_STREAM, NETLINK_RDMA));
}

/* Every way to send and to receive. */
static void calls(void)
{
	int fd = open_one(0);
	struct nlmsghdr h[3] = {list(1), list(2), list(3)};
	struct sockaddr_nl to = {.nl_family = AF_NETLINK}, from;
	socklen_t len = sizeof(from);
	_Alignas(8) char buf[4096];
	struct iovec v[2] = {{&h[0], 5}, {(char *)&h[0] + 5, sizeof(h[0]) - 5}},
		     in = {buf, sizeof(buf)};
	struct msghdr m = {
		.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = v, .msg_iovlen = 2};
	struct mmsghdr mm[2] = {{.msg_hdr = m}, {.msg_hdr = m}};

	CHECK(write(fd, &h[0], sizeof(h[0])) == sizeof(h[0]) && read_list(fd, 1) == devices);
	CHECK(writev(fd, v, 2) == sizeof(h[0]) && read_list(fd, 1) == devices);
	CHECK(sendto(fd, &h[0], sizeof(h[0]), 0, (void *)&to, sizeof(to)) == sizeof(h[0]));
	CHECK(read_list(fd, 1) == devices);
	CHECK(sendmsg(fd, &m, 0) == sizeof(h[0]) && read_list(fd, 1) == devices);
	CHECK(sendmmsg(fd, mm, 2, 0) == 2 && mm[1].msg_len == sizeof(h[0]));
	CHECK(read_list(fd, 1) == devices && read_list(fd, 1) == devices);
	/* several messages in one buffer */
	CHECK(send(fd, h, sizeof(h), 0) == sizeof(h));
	CHECK(read_list(fd, 1) == devices && read_list(fd, 2) == devices &&
		read_list(fd, 3) == devices);

	memset(&from, 0xff, sizeof(from));
	CHECK(send(fd, h, sizeof(h[0]), 0) == sizeof(h[0]));
	ssize_t all = recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC);
	CHECK(all > NLMSG_HDRLEN);
	CHECK(recvfrom(fd, buf, 20, MSG_PEEK | MSG_TRUNC, (void *)&from, &len) == all);
	CHECK(len == sizeof(from) && from.nl_family == AF_NETLINK && !from.nl_pid);
	struct msghdr r = {
		.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &in, .msg_iovlen = 1};
	memset(&from, 0xff, sizeof(from));
	in.iov_len = 20;
	CHECK(recvmsg(fd, &r, MSG_PEEK) == 20 && r.msg_flags & MSG_TRUNC);
	in.iov_len = sizeof(buf);
	CHECK(recvmsg(fd, &r, 0) == all && !(r.msg_flags & MSG_TRUNC));
	CHECK(r.msg_namelen == sizeof(from) && from.nl_family == AF_NETLINK && !from.nl_pid);
	r.msg_namelen = 2;
	while (readable(fd, 0))
		CHECK(recv(fd, buf, sizeof(buf), 0) > 0);

	CHECK(send(fd, h, sizeof(h[0]), 0) == sizeof(h[0]));
	struct mmsghdr rr[2] = {{.msg_hdr = r}, {.msg_hdr = r}};
	CHECK(recvmmsg(fd, rr, 2, MSG_WAITFORONE, NULL) >= 1);
	CHECK(rr[0].msg_len == (unsigned)all && rr[0].msg_hdr.msg_namelen == sizeof(from));
	close(fd);
}

static void what_is_no_request(void)
{
	int fd = open_one(SOCK_NONBLOCK);
	struct nlmsghdr h = list(1);
	struct sockaddr_nl to = {.nl_family = AF_NETLINK, .nl_pid = 1};
	static char large[70000];
	FAILS(EAGAIN, recv(fd, &h, sizeof(h), 0));
	FAILS(EPERM, sendto(fd, &h, sizeof(h), 0, (void *)&to, sizeof(to)));
	FAILS(EINVAL, sendto(fd, &h, sizeof(h), 0, (void *)&to, 4));
	FAILS(EMSGSIZE, send(fd, large, sizeof(large), 0));
	FAILS(EOPNOTSUPP, send(fd, &h, sizeof(h), MSG_OOB));
	/* lengths that are wrong: taken, and nothing said, as the kernel does */
	CHECK(send(fd, &h, 0, 0) == 0);
	CHECK(send(fd, &h, 7, 0) == 7);
	CHECK(send(fd, large, 60000, 0) == 60000);
	for (unsigned len = 0; len < 64; len++) {
		h = list(1);
		h.nlmsg_len = len == NLMSG_HDRLEN ? UINT32_MAX : len;
		CHECK(send(fd, &h, sizeof(h), 0) == sizeof(h));
	}
	CHECK(!readable(fd, 0));
	/* a message that begins anywhere */
	memcpy(large + 1, &(struct nlmsghdr){0}, sizeof(h));
	h = list(9);
	memcpy(large + 1, &h, sizeof(h));
	CHECK(send(fd, large + 1, sizeof(h), 0) == sizeof(h) && read_list(fd, 9) == devices);
	close(fd);
}

static void waiting(void)
{
	int fd = open_one(0), set = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u64 = 7}, got;
	struct nlmsghdr h = list(1);
	CHECK(!epoll_ctl(set, EPOLL_CTL_ADD, fd, &e));
	CHECK(epoll_wait(set, &got, 1, 0) == 0 && !readable(fd, 0));
	CHECK(send(fd, &h, sizeof(h), 0) == sizeof(h));
	CHECK(epoll_wait(set, &got, 1, 5000) == 1 && got.data.u64 == 7);
	CHECK(read_list(fd, 1) == devices);
	CHECK(!readable(fd, 0));
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLOUT);
	close(fd);
	close(set);
}

static int wait_for(pid_t pid)
{
	int status = -1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void copies(const char *self)
{
	int fd = open_one(0), two = dup(fd), three = dup2(fd, 200), four = fcntl(fd, F_DUPFD, 300);
	struct nlmsghdr h = list(1);
	char number[16];
	CHECK(ask(two, 1) == devices && ask(three, 2) == devices && ask(four, 3) == devices);
	/* one queue */
	CHECK(send(two, &h, sizeof(h), 0) == sizeof(h) && read_list(three, 1) == devices);
	close(fd);
	CHECK(ask(two, 4) == devices);
	pid_t pid = fork();
	if (!pid)
		_exit(ask(two, 5) == devices ? 0 : 1);
	CHECK(wait_for(pid) == 0);
	CHECK(ask(two, 6) == devices);
	/* a program that inherits it */
	snprintf(number, sizeof(number), "%d", two);
	CHECK(send(two, &h, sizeof(h), 0) == sizeof(h));
	pid = vfork();
	if (!pid) {
		execl(self, self, "child", number, (char *)NULL);
		_exit(2);
	}
	CHECK(wait_for(pid) == 0);
	/* and one to which it is sent */
	int pair[2];
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} c = {.h = {.cmsg_len = CMSG_LEN(sizeof(int)),
		       .cmsg_level = SOL_SOCKET,
		       .cmsg_type = SCM_RIGHTS}};
	struct iovec v = {"x", 1};
	char byte;
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
	memcpy(CMSG_DATA(&c.h), &two, sizeof(two));
	CHECK(sendmsg(pair[0], &m, 0) == 1);
	v.iov_base = &byte;
	CHECK(recvmsg(pair[1], &m, 0) == 1);
	int sent;
	memcpy(&sent, CMSG_DATA(&c.h), sizeof(sent));
	CHECK(sent != two && ask(sent, 7) == devices);
	close(sent);
	close(pair[0]);
	close(pair[1]);
	close(two);
	close(three);
	close(four);
}

/* A number that was one of ours is another file's. Closed behind our back, too. */
static void numbers_that_come_again(void)
{
	struct sockaddr_un a;
	socklen_t len = sizeof(a);
	char buf[64];
	for (int way = 0; way < 3; way++) {
		int fd = open_one(0), pair[2] = {-1, -1};
		CHECK(ask(fd, 1) == devices);
		if (way == 0)
			close(fd);
		else
			syscall(SYS_close, fd);
		if (way == 2) { /* a datagram pair, made past the hooks */
			CHECK(!syscall(SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0, pair));
		} else {
			CHECK(!socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
		}
		CHECK(pair[0] == fd);
		CHECK(!getsockname(fd, (void *)&a, &len) && a.sun_family == AF_UNIX);
		CHECK(send(fd, "hello", 5, 0) == 5 && recv(pair[1], buf, sizeof(buf), 0) == 5);
		CHECK(write(pair[1], "world!", 6) == 6 && read(fd, buf, sizeof(buf)) == 6);
		len = sizeof(a);
		close(pair[0]);
		close(pair[1]);
	}
	/* and files, pipes */
	int fd = open_one(0), ends[2];
	close(fd);
	CHECK(!pipe(ends) && ends[0] == fd);
	CHECK(write(ends[1], "x", 1) == 1 && read(ends[0], buf, 4) == 1);
	FAILS(ENOTSOCK, send(ends[0], "x", 1, 0));
	FAILS(ENOTSOCK, bind(ends[1], (void *)&a, sizeof(a)));
	close(ends[0]);
	close(ends[1]);
	FAILS(EBADF, send(fd, "x", 1, 0));
	FAILS(EBADF, recvfrom(-1, buf, 1, 0, (void *)&a, &len));
	FAILS(EBADF, send(1 << 20, "x", 1, 0));
}

/* Sockets of others are as they are; and one with a name like ours is not ours. */
static void foreign(void)
{
	int route = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), v = 0;
	struct sockaddr_nl a = {.nl_family = AF_NETLINK};
	socklen_t len = sizeof(a), int_len = sizeof(v);
	CHECK(!bind(route, (void *)&a, sizeof(a)) && !getsockname(route, (void *)&a, &len));
	CHECK(!getsockopt(route, SOL_SOCKET, SO_PROTOCOL, &v, &int_len) && v == NETLINK_ROUTE);
	close(route);
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	const char name[] = "ropeway/netlink/0000zzzz/0123456789abcdef";
	memcpy(un.sun_path + 1, name, sizeof(name) - 1);
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof(name));
	CHECK(!bind(fd, (void *)&un, len) && !connect(fd, (void *)&un, len));
	CHECK(send(fd, "hello", 5, 0) == 5);
	char buf[16];
	CHECK(recv(fd, buf, sizeof(buf), 0) == 5 && !memcmp(buf, "hello", 5));
	close(fd);
}

/* Nobody else's words get into the queue. */
static void strangers(void)
{
	int fd = open_one(0), other = socket(AF_UNIX, SOCK_DGRAM, 0);
	struct sockaddr_un a;
	socklen_t len = sizeof(a);
	CHECK(ask(fd, 1) == devices);
	/* as the kernel names it, for all to see */
	CHECK(!syscall(SYS_getsockname, fd, &a, &len) && a.sun_family == AF_UNIX);
	FAILS(EPERM, sendto(other, "x", 1, 0, (void *)&a, len));
	FAILS(EPERM, connect(other, (void *)&a, len));
	CHECK(!readable(fd, 0));
	close(other);
	close(fd);
}

static unsigned handled;
static int in_handler = -1;
static void handler(int signal)
{
	int kept = errno;
	struct nlmsghdr h = list(77);
	(void)signal;
	handled += send(in_handler, &h, sizeof(h), MSG_DONTWAIT) == sizeof(h) || errno == ENOBUFS;
	errno = kept;
}

static void *asks(void *arg)
{
	int fd = open_one(SOCK_CLOEXEC);
	intptr_t wrong = 0;
	(void)arg;
	for (unsigned i = 0; i < 200; i++)
		wrong += ask(fd, i) != devices;
	close(fd);
	return (void *)wrong;
}

static void threads_and_signals(void)
{
	pthread_t t[4];
	void *wrong;
	in_handler = open_one(SOCK_CLOEXEC);
	signal(SIGUSR1, handler);
	for (unsigned i = 0; i < 4; i++)
		CHECK(!pthread_create(&t[i], NULL, asks, NULL));
	for (unsigned i = 0; i < 100; i++)
		pthread_kill(t[i % 4], SIGUSR1);
	for (unsigned i = 0; i < 4; i++)
		CHECK(!pthread_join(t[i], &wrong) && !wrong);
	raise(SIGUSR1);
	CHECK(handled >= 1);
	close(in_handler);
}

/* More than the queue holds: the list ends with that error. */
static void a_full_queue(void)
{
	int fd = open_one(SOCK_NONBLOCK);
	struct nlmsghdr h = list(1);
	_Alignas(8) char buf[4096];
	int rc = 0, err = 0, sent = 0;
	for (; sent < 100000 && !(rc = send(fd, &h, sizeof(h), 0) != sizeof(h)); sent++)
		;
	rc = rc ? errno : 0;
	CHECK(rc == ENOBUFS);
	ssize_t n;
	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
		for (const struct nlmsghdr *m = (void *)buf; NLMSG_OK(m, (unsigned)n);
			m = NLMSG_NEXT(m, n))
			if (m->nlmsg_type == NLMSG_DONE && *(int *)NLMSG_DATA(m))
				err = *(int *)NLMSG_DATA(m);
	CHECK(err == -ENOBUFS);
	CHECK(ask(fd, 2) == devices);
	close(fd);
}

/* The objects of this very process, by QPN. */
static const struct nlattr *find(const char *at, const char *end, unsigned type)
{
	for (; at < end; at += NLA_ALIGN(((const struct nlattr *)at)->nla_len))
		if (((const struct nlattr *)at)->nla_type == type)
			return (const struct nlattr *)at;
	return NULL;
}

static void objects(void)
{
	int n = 0, fd = open_one(0);
	struct ibv_device **all = ibv_get_device_list(&n);
	CHECK(all && n == devices);
	struct ibv_context *c = ibv_open_device(all[0]);
	struct ibv_pd *pd = ibv_alloc_pd(c);
	struct ibv_cq *cq = ibv_create_cq(c, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_UD};
	enum { QPS = 300 };
	static struct ibv_qp *qp[QPS];
	static bool met[QPS];
	for (unsigned i = 0; i < QPS; i++) {
		qp[i] = ibv_create_qp(pd, &init);
		CHECK(qp[i]);
	}
	struct request q = {.h = list(5)};
	q.h.nlmsg_len = NLMSG_HDRLEN + 8;
	q.h.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_RES_QP_GET);
	q.a[0] = (struct nlattr){.nla_len = 8, .nla_type = RDMA_NLDEV_ATTR_DEV_INDEX};
	uint32_t index = (uint32_t)ibv_get_device_index(all[0]);
	memcpy(&q.a[1], &index, sizeof(index));
	CHECK(send(fd, &q, q.h.nlmsg_len, 0) == (ssize_t)q.h.nlmsg_len);
	_Alignas(8) char buf[4096];
	unsigned found = 0;
	for (bool end = false; !end && readable(fd, 5000);) {
		ssize_t len = recv(fd, buf, sizeof(buf), 0);
		for (const struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, (unsigned)len);
			h = NLMSG_NEXT(h, len)) {
			end = end || h->nlmsg_type == NLMSG_DONE;
			if (end)
				break;
			const struct nlattr *qps = find(NLMSG_DATA(h),
				(const char *)h + h->nlmsg_len, RDMA_NLDEV_ATTR_RES_QP);
			if (!qps)
				continue;
			for (const char *at = (const char *)(qps + 1),
					*to = (const char *)qps + qps->nla_len;
				at < to; at += ((const struct nlattr *)at)->nla_len) {
				const struct nlattr *e = (const void *)at;
				const uint32_t *qpn =
					(const void *)(find(at + NLA_HDRLEN, at + e->nla_len,
							       RDMA_NLDEV_ATTR_RES_LQPN) +
						       1);
				for (unsigned i = 0; i < QPS; i++)
					if (qp[i]->qp_num == *qpn && !met[i])
						met[i] = found++ < QPS;
			}
		}
	}
	CHECK(found == QPS);
	for (unsigned i = 0; i < QPS; i++)
		ibv_destroy_qp(qp[i]);
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(pd);
	ibv_close_device(c);
	ibv_free_device_list(all);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "child")) {
		int fd = atoi(argv[2]);
		running = "the program that inherits it";
		int first = read_list(fd, 1); /* what waited in the queue */
		struct nlmsghdr h = list(8);
		return first > 0 && send(fd, &h, sizeof(h), 0) == sizeof(h) &&
				       read_list(fd, 8) == first
			       ? 0
			       : 1;
	}
	int probe = open_one(0);
	devices = ask(probe, 1);
	close(probe);
	if (argc == 2 && !strcmp(argv[1], "count")) {
		printf("%d\n", devices);
		return 0;
	}
	if (argc == 2 && !strcmp(argv[1], "copies")) {
		running = "copies";
		copies(argv[0]);
		return failures ? 1 : 0;
	}
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {{"addresses", addresses}, {"calls", calls}, {"no request", what_is_no_request},
		{"waiting", waiting}, {"numbers", numbers_that_come_again}, {"foreign", foreign},
		{"strangers", strangers}, {"full queue", a_full_queue},
		{"threads and signals", threads_and_signals}, {"objects", objects}};
	running = "devices";
	CHECK(devices >= 2);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		running = cases[i].name;
		cases[i].run();
	}
	/* in a process where no number has had another file: what is known of one is not asked for
	 * anew */
	pid_t pid = vfork();
	if (!pid) {
		execl(argv[0], argv[0], "copies", (char *)NULL);
		_exit(2);
	}
	CHECK(wait_for(pid) == 0);
	return failures ? 1 : 0;
}
