/* SPDX-License-Identifier: BSD-3-Clause */
/* onestream.c - a network plugin in the shape of NCCL's own Socket transport with one stream: what
 * the figures of script/bench --nccl are held against, and the tests' plugin of somebody else.
 *
 * A comm is one TCP connection that nothing blocks on. A message is its length in 8 bytes, then the
 * bytes straight from and into the caller's memory. Requests move in the order in which they were
 * posted, in test() and nowhere else; there are no threads. Only 127.0.0.1. A connection begins
 * with the nonce of the handle; one that does not is dropped. The state of a connection being made
 * is in the handle, as NCCL's is. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "ncclnet/abi/tables.h"

#ifndef PLUGIN_NAME
#define PLUGIN_NAME "OneStream"
#endif

struct hello {
	uint64_t magic, nonce;
};
static const uint64_t MAGIC = 0x6d61657274656e6f; /* "onetream", as it lies in memory */

struct comm;
struct request {
	struct comm *comm;
	char *data;
	/* size: of a receive what may come, and once the header is there what does come */
	uint64_t size, header;
	uint64_t moved; /* header and bytes */
	bool used, done;
};

struct comm {
	int fd;
	bool receives;
	int failed; /* enum nccl_result */
	uint64_t posted, finished;
	struct request requests[NCCL_NET_MAX_REQUESTS];
	size_t greeted; /* bytes of the hello sent, or come */
	struct hello hello;
};

struct handle {
	struct hello hello;
	uint32_t port;
	struct comm *connecting; /* of who connects, in its own copy */
};
_Static_assert(sizeof(struct handle) <= NCCL_NET_HANDLE_BYTES_V4, "it fits every version's");

struct listener {
	int fd;
	struct hello hello;
	struct comm *accepting;
};

static nccl_logger logger;
#define WARN(...) \
	do { \
		if (logger) \
			logger(NCCL_LOG_WARN, NCCL_SUBSYS_NET, __FILE__, __LINE__, \
				"NET/" PLUGIN_NAME ": " __VA_ARGS__); \
	} while (0)

static const struct plugin_properties {
	const char *name;
	int speed, max_comms, max_recvs;
	size_t max_bytes;
} plugin_properties = {.name = "lo",
	.speed = 10000,
	.max_comms = 65536,
	.max_recvs = 1,
	.max_bytes = (size_t)1 << 40};

static int plugin_init(nccl_logger log)
{
	logger = log;
	return NCCL_SUCCESS;
}

static int plugin_devices(int *ndev)
{
	*ndev = 1;
	return NCCL_SUCCESS;
}

/* ---- connecting ---- */

static struct comm *comm_make(int fd, bool receives)
{
	struct comm *c = calloc(1, sizeof(*c));
	int one = 1;
	if (!c || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one))) {
		free(c);
		close(fd);
		return NULL;
	}
	c->fd = fd;
	c->receives = receives;
	return c;
}

static int plugin_close(void *comm)
{
	struct comm *c = comm;
	if (c) {
		close(c->fd);
		free(c);
	}
	return NCCL_SUCCESS;
}

static int plugin_close_listen(void *listen_comm)
{
	struct listener *l = listen_comm;
	if (l) {
		plugin_close(l->accepting);
		if (l->fd >= 0)
			close(l->fd);
		free(l);
	}
	return NCCL_SUCCESS;
}

static int plugin_listen(int dev, void *handle, void **listen_comm)
{
	struct handle *h = handle;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	struct listener *l = calloc(1, sizeof(*l));
	*listen_comm = NULL;
	if (!l)
		return NCCL_SYSTEM_ERROR;
	l->hello.magic = MAGIC;
	l->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (l->fd < 0 ||
		getrandom(&l->hello.nonce, sizeof(l->hello.nonce), 0) != sizeof(l->hello.nonce) ||
		bind(l->fd, (struct sockaddr *)&a, len) || listen(l->fd, 128) ||
		getsockname(l->fd, (struct sockaddr *)&a, &len)) {
		WARN("no listening socket on 127.0.0.1: %s", strerror(errno));
		plugin_close_listen(l);
		return NCCL_SYSTEM_ERROR;
	}
	*h = (struct handle){.hello = l->hello, .port = ntohs(a.sin_port)};
	*listen_comm = l;
	return NCCL_SUCCESS;
}

static int connect_begin(struct handle *h)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons((uint16_t)h->port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct comm *c = fd >= 0 ? comm_make(fd, false) : NULL;
	if (!c)
		return NCCL_SYSTEM_ERROR;
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) && errno != EINPROGRESS) {
		WARN("127.0.0.1:%u cannot be connected to: %s", h->port, strerror(errno));
		plugin_close(c);
		return NCCL_REMOTE_ERROR;
	}
	c->hello = h->hello;
	h->connecting = c;
	return NCCL_SUCCESS;
}

static bool not_now(void) { return errno == EAGAIN || errno == EINTR; }

static int plugin_connect(int dev, void *handle, void **comm)
{
	struct handle *h = handle;
	*comm = NULL;
	if (h->hello.magic != MAGIC) {
		WARN("the handle is not of this plugin");
		return NCCL_INVALID_ARGUMENT;
	}
	int rc = h->connecting ? NCCL_SUCCESS : connect_begin(h);
	if (rc)
		return rc;
	struct comm *c = h->connecting;
	ssize_t n = send(c->fd, (char *)&c->hello + c->greeted, sizeof(c->hello) - c->greeted,
		MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0 && not_now()) /* also while it is connecting */
		return NCCL_SUCCESS;
	if (n < 0) {
		WARN("127.0.0.1:%u cannot be connected to: %s", h->port, strerror(errno));
		h->connecting = NULL;
		plugin_close(c);
		return NCCL_REMOTE_ERROR;
	}
	c->greeted += (size_t)n;
	if (c->greeted == sizeof(c->hello)) {
		h->connecting = NULL;
		*comm = c;
	}
	return NCCL_SUCCESS;
}

static int plugin_accept(void *listen_comm, void **comm)
{
	struct listener *l = listen_comm;
	*comm = NULL;
	if (!l->accepting) {
		int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			return not_now() || errno == ECONNABORTED ? NCCL_SUCCESS
								  : NCCL_SYSTEM_ERROR;
		l->accepting = comm_make(fd, true);
		if (!l->accepting)
			return NCCL_SYSTEM_ERROR;
	}
	struct comm *c = l->accepting;
	ssize_t n = recv(
		c->fd, (char *)&c->hello + c->greeted, sizeof(c->hello) - c->greeted, MSG_DONTWAIT);
	if (n < 0 && not_now())
		return NCCL_SUCCESS;
	c->greeted += n > 0 ? (size_t)n : 0;
	if (n > 0 && c->greeted < sizeof(c->hello))
		return NCCL_SUCCESS;
	l->accepting = NULL;
	if (n > 0 && !memcmp(&c->hello, &l->hello, sizeof(l->hello)))
		*comm = c;
	else
		plugin_close(c); /* a stranger; the next one, next time */
	return NCCL_SUCCESS;
}

static int plugin_reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	*mhandle = NULL; /* nothing to keep, as with NCCL's own */
	return type == NCCL_PTR_HOST ? NCCL_SUCCESS : NCCL_INVALID_ARGUMENT;
}

static int plugin_dereg(void *comm, void *mhandle) { return NCCL_SUCCESS; }

/* ---- messages ---- */

static int post(struct comm *c, void *data, size_t size, void **request)
{
	struct request *r = &c->requests[c->posted % NCCL_NET_MAX_REQUESTS];
	*request = NULL;
	if (c->failed)
		return c->failed;
	if (r->used)
		return NCCL_SUCCESS;
	*r = (struct request){.comm = c, .data = data, .size = size, .header = size, .used = true};
	c->posted++;
	*request = r;
	return NCCL_SUCCESS;
}

static int plugin_isend(void *comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	return post(comm, data, size, request);
}

static int plugin_irecv(void *comm, int n, void **data, const size_t *sizes, int *tags,
	void **mhandles, void **request)
{
	*request = NULL;
	return n == 1 ? post(comm, data[0], sizes[0], request) : NCCL_INVALID_ARGUMENT;
}

static int plugin_iflush(
	void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	*request = NULL; /* host memory: there is nothing to wait for */
	return NCCL_SUCCESS;
}

static int fail(struct comm *c, const char *what, int result)
{
	WARN("%s failed: %s", c->receives ? "a receive" : "a send", what);
	c->failed = result;
	return result;
}

/* What one system call moved; 0: not now, -1: the connection is lost. */
static ssize_t send_some(const struct request *r)
{
	struct iovec part[2];
	struct msghdr m = {.msg_iov = part};
	uint64_t body = r->moved > sizeof(r->header) ? r->moved - sizeof(r->header) : 0;
	if (r->moved < sizeof(r->header))
		part[m.msg_iovlen++] =
			(struct iovec){(char *)&r->header + r->moved, sizeof(r->header) - r->moved};
	if (body < r->size)
		part[m.msg_iovlen++] = (struct iovec){r->data + body, r->size - body};
	return sendmsg(r->comm->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static ssize_t receive_some(struct request *r)
{
	ssize_t n = r->moved < sizeof(r->header)
			    ? recv(r->comm->fd, (char *)&r->header + r->moved,
				      sizeof(r->header) - r->moved, MSG_DONTWAIT)
			    : recv(r->comm->fd, r->data + (r->moved - sizeof(r->header)),
				      r->size - (r->moved - sizeof(r->header)), MSG_DONTWAIT);
	return n ? n : -2;
}

/* The oldest request, as far as it goes. */
static int progress(struct comm *c, struct request *r)
{
	while (r->moved < sizeof(r->header) + r->size) {
		bool was_header = r->moved < sizeof(r->header);
		ssize_t n = c->receives ? receive_some(r) : send_some(r);
		if (n < 0) {
			if (n == -1 && not_now())
				return NCCL_SUCCESS;
			return fail(c, n == -2 ? "the peer closed the connection" : strerror(errno),
				NCCL_REMOTE_ERROR);
		}
		r->moved += (uint64_t)n;
		if (!c->receives || !was_header || r->moved < sizeof(r->header))
			continue;
		if (r->header > r->size)
			return fail(
				c, "the message is longer than the receive", NCCL_INVALID_USAGE);
		r->size = r->header;
	}
	r->done = true;
	c->finished++;
	return NCCL_SUCCESS;
}

static int plugin_test(void *request, int *done, int *sizes)
{
	struct request *r = request;
	struct comm *c = r->comm;
	*done = 0;
	while (!r->done && !c->failed) {
		struct request *oldest = &c->requests[c->finished % NCCL_NET_MAX_REQUESTS];
		progress(c, oldest);
		if (!oldest->done)
			break;
	}
	if (!r->done)
		return c->failed;
	if (sizes)
		*sizes = (int)r->size;
	*done = 1;
	r->used = false;
	return NCCL_SUCCESS;
}

#ifndef WITHOUT_TABLES /* quirk.c makes its own */
#define V 4
#include "export.h"
#define V 5
#include "export.h"
#define V 6
#include "export.h"
#define V 7
#include "export.h"
#define V 8
#include "export.h"
#define V 9
#include "export.h"
#define V 10
#include "export.h"
#define V 11
#include "export.h"
#define V 12
#include "export.h"
#endif
