/* SPDX-License-Identifier: BSD-3-Clause */
/* pipe_tran.c - a transport over a pair of pipes, which is what a new one takes at least: frames,
 * and nothing else. Put, get and atomics above them are the emulation's (tran/emulate.h).
 *
 * Each side makes a pipe with a name, from which it reads; the handle says the name. The peer opens
 * it to write, and says hello; with the peer's hello an endpoint is ready. A frame is two lengths
 * and its bytes. The end of a pipe is the end of the path, and so is the end of the peer's process,
 * though a child of it may hold the pipe open. */
#include "tran/tran.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/hash.h"
#include "ropeway.h"
#include "tran/emulate.h"

enum { FRAME_MAX = 64 * 1024, EAGER_MAX = 16 * 1024, QUEUE_MAX = 256 * 1024, VERSION = 1 };

struct handle {
	char magic[8];
	uint32_t version, pid;
	char name[48];
	/* of all before it: a handle that was garbled names no pipe of somebody else's */
	uint32_t check;
};
struct head {
	uint32_t head_len, body_len;
};
static const struct head hello = {UINT32_MAX, VERSION};

struct pipe_tran {
	struct tran base;
	int epfd;
	bool busy; /* in progress: who is closed meanwhile is freed after it */
	struct rpwi_list eps;
};
struct pipe_ep {
	struct tran_ep base;
	struct rpwi_list link;
	int in, out, peer; /* peer: a pidfd */
	char name[48];
	bool started, greeted, ready, over, closed, wants_room, left;
	uint64_t deadline_ns;
	size_t rx_len, tx_at, tx_len;
	uint8_t rx[sizeof(struct head) + TRAN_HEAD_MAX + FRAME_MAX];
	uint8_t tx[QUEUE_MAX];
};

extern const struct tran_ops tran_pipe;
static struct pipe_tran *of(struct tran *t) { return (struct pipe_tran *)t; }
static struct pipe_ep *ep_of(struct tran_ep *ep) { return (struct pipe_ep *)ep; }

static uint32_t check_of(const struct handle *h)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < offsetof(struct handle, check); i++)
		sum = rpwi_mix(sum, ((const uint8_t *)h)[i]);
	return (uint32_t)sum;
}

static void watch(struct pipe_tran *t, int fd, uint32_t events, int op)
{
	struct epoll_event ev = {.events = events, .data.fd = fd};
	epoll_ctl(t->epfd, op, fd, &ev);
}

static void shut(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}
static void shut_all(struct pipe_ep *ep)
{
	shut(&ep->in);
	shut(&ep->out);
	shut(&ep->peer);
}

/* ---- the end ---- */

static void over(struct pipe_ep *ep, const struct rpwi_error *e)
{
	if (ep->over || ep->closed)
		return;
	ep->over = true;
	shut_all(ep);
	const struct tran_up *up = ep->base.tran->up;
	(ep->ready ? up->failed : up->ready)(ep->base.user, e);
}

static void pipe_breach(struct tran_ep *base, const struct rpwi_error *e) { over(ep_of(base), e); }

static void ep_free(struct pipe_ep *ep)
{
	emulate_ep_close(&ep->base);
	shut_all(ep);
	unlink(ep->name);
	rpwi_list_del(&ep->link);
	free(ep);
}

/* ---- sending ---- */

/* What the pipe takes of what waits. */
static unsigned flush(struct pipe_ep *ep)
{
	unsigned n = 0;
	while (ep->tx_at < ep->tx_len && ep->out >= 0) {
		ssize_t k = write(ep->out, ep->tx + ep->tx_at, ep->tx_len - ep->tx_at);
		/* full; or the reader is gone: reading tells, when what it had sent has been
		 * taken */
		if (k < 0)
			break;
		ep->tx_at += (size_t)k;
		n++;
	}
	if (ep->tx_at == ep->tx_len)
		ep->tx_at = ep->tx_len = 0;
	if (ep->out >= 0)
		watch(of(ep->base.tran), ep->out, ep->tx_len ? EPOLLOUT : 0, EPOLL_CTL_MOD);
	return n;
}

static void put(struct pipe_ep *ep, const void *bytes, size_t len)
{
	if (len)
		memcpy(ep->tx + ep->tx_len, bytes, len);
	ep->tx_len += len;
}

static int pipe_send(struct tran_ep *base, const void *head, size_t head_len,
	const struct iovec *iov, int iovcnt, size_t body_len)
{
	struct pipe_ep *ep = ep_of(base);
	struct head h = {(uint32_t)head_len, (uint32_t)body_len};
	if (!ep->ready || ep->over)
		return tran_path_over(base);
	if (head_len > TRAN_HEAD_MAX || body_len > FRAME_MAX)
		return rpwi_fail(
			RPW_ERR_INVALID, "pipe: a frame of %zu and %zu bytes", head_len, body_len);
	if (ep->tx_len + sizeof(h) + head_len + body_len > QUEUE_MAX && ep->tx_at) {
		memmove(ep->tx, ep->tx + ep->tx_at, ep->tx_len -= ep->tx_at);
		ep->tx_at = 0;
	}
	if (ep->tx_len + sizeof(h) + head_len + body_len > QUEUE_MAX) {
		ep->wants_room = true;
		return RPWI_LATER;
	}
	bool idle = !ep->tx_len;
	put(ep, &h, sizeof(h));
	put(ep, head, head_len);
	for (int i = 0; i < iovcnt; i++)
		put(ep, iov[i].iov_base, iov[i].iov_len);
	if (idle)
		flush(ep);
	return 0;
}

/* ---- receiving ---- */

static void greeted(struct pipe_ep *ep)
{
	ep->greeted = true;
	unlink(ep->name); /* whom it was for has it */
	if (ep->started && !ep->ready) {
		ep->ready = true;
		ep->base.tran->up->ready(ep->base.user, NULL);
	}
}

/* Whole frames, as far as there are any; false: one had to be kept, the rest is left for the next
 * round. */
static bool deliver(struct pipe_ep *ep, unsigned *n)
{
	size_t at = 0;
	bool go_on = true;
	while (go_on && !ep->over && !ep->closed && ep->rx_len - at >= sizeof(struct head)) {
		struct head h;
		memcpy(&h, ep->rx + at, sizeof(h));
		if (!ep->greeted) {
			if (memcmp(&h, &hello, sizeof(h)) != 0) {
				over(ep, &(struct rpwi_error){RPW_ERR_PROTOCOL, 0,
						 "the peer did not say hello"});
				return false;
			}
			at += sizeof(h);
			greeted(ep);
			continue;
		}
		if (!ep->ready)
			break; /* not started here */
		if (h.head_len > TRAN_HEAD_MAX || h.body_len > FRAME_MAX) {
			over(ep, &(struct rpwi_error){RPW_ERR_PROTOCOL, 0,
					 "the peer sent a frame that is too long"});
			return false;
		}
		if (ep->rx_len - at < sizeof(h) + h.head_len + h.body_len)
			break;
		const uint8_t *p = ep->rx + at + sizeof(h);
		at += sizeof(h) + h.head_len + h.body_len;
		++*n;
		go_on = emulate_frame_up(&ep->base, p, h.head_len, p + h.head_len, h.body_len);
	}
	memmove(ep->rx, ep->rx + at, ep->rx_len - at);
	ep->rx_len -= at;
	return go_on;
}

static void receive(struct pipe_ep *ep, unsigned *n)
{
	ep->left = !deliver(ep, n);
	while (!ep->left && ep->in >= 0 && !ep->over && !ep->closed &&
		ep->rx_len < sizeof(ep->rx)) {
		ssize_t k = read(ep->in, ep->rx + ep->rx_len, sizeof(ep->rx) - ep->rx_len);
		if (k < 0 && errno == EAGAIN)
			return;
		if (k <= 0 && (ep->greeted || k < 0)) {
			over(ep, &(struct rpwi_error){RPW_ERR_PEER_GONE, 0,
					 "the peer closed its pipe, or its process ended"});
			return;
		}
		if (k <= 0)
			return; /* nobody has opened it yet */
		ep->rx_len += (size_t)k;
		ep->left = !deliver(ep, n);
	}
}

static bool peer_ended(const struct pipe_ep *ep)
{
	return ep->peer >= 0 && poll(&(struct pollfd){.fd = ep->peer, .events = POLLIN}, 1, 0) > 0;
}

static unsigned pipe_progress(struct tran *base)
{
	struct pipe_tran *t = of(base);
	unsigned n = 0;
	t->busy = true;
	for (struct rpwi_list *l = t->eps.next; l != &t->eps; l = l->next) {
		struct pipe_ep *ep = RPWI_CONTAINER_OF(l, struct pipe_ep, link);
		n += flush(ep);
		if (ep->closed || ep->over)
			continue;
		bool ended = peer_ended(ep);
		receive(ep, &n);
		if (ended && !ep->left)
			over(ep, &(struct rpwi_error){
					 RPW_ERR_PEER_GONE, 0, "the peer's process ended"});
		else if (ep->started && !ep->ready && !ep->over && rpwi_now_ns() >= ep->deadline_ns)
			over(ep, &(struct rpwi_error){RPW_ERR_TIMEOUT, 0,
					 "the peer did not open its pipe in time"});
		if (ep->wants_room && ep->tx_len < QUEUE_MAX / 2 && !ep->over && !ep->closed) {
			ep->wants_room = false;
			emulate_room(&ep->base);
			base->up->room(ep->base.user);
		}
	}
	t->busy = false;
	for (struct rpwi_list *l = t->eps.next, *next; l != &t->eps; l = next) {
		struct pipe_ep *ep = RPWI_CONTAINER_OF(l, struct pipe_ep, link);
		next = l->next;
		if (ep->closed && (!ep->tx_len || rpwi_now_ns() >= ep->deadline_ns))
			ep_free(ep);
	}
	return n;
}

static int pipe_arm(struct tran *base, int *fd, uint64_t *deadline_ns)
{
	struct pipe_tran *t = of(base);
	*fd = t->epfd;
	for (struct rpwi_list *l = t->eps.next; l != &t->eps; l = l->next) {
		struct pipe_ep *ep = RPWI_CONTAINER_OF(l, struct pipe_ep, link);
		if (ep->left || (ep->wants_room && ep->tx_len < QUEUE_MAX / 2))
			return 1;
		if (ep->closed || (ep->started && !ep->ready && !ep->over))
			*deadline_ns = RPWI_MIN(*deadline_ns, ep->deadline_ns);
	}
	return 0;
}

/* ---- endpoints ---- */

static int pipe_ep_make(struct tran *base, const struct tran_control *control, void *user,
	struct tran_ep **out, uint8_t *handle, size_t *handle_len)
{
	struct pipe_tran *t = of(base);
	struct pipe_ep *ep = calloc(1, sizeof(*ep));
	struct handle h = {.magic = "rpwpipe", .version = VERSION, .pid = (uint32_t)getpid()};
	if (!ep)
		return tran_no_memory(base, "an endpoint");
	ep->base = (struct tran_ep){.tran = base,
		.user = user,
		.limits = {.frame_max = FRAME_MAX, .eager_max = EAGER_MAX}};
	ep->out = ep->peer = -1;
	snprintf(ep->name, sizeof(ep->name), "/tmp/ropeway-pipe-%016llx",
		(unsigned long long)rpwi_random64());
	rpwi_list_init(&ep->link);
	ep->in = mkfifo(ep->name, 0600) || chmod(ep->name, 0666)
			 ? -1
			 : open(ep->name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (ep->in < 0) {
		int error = errno;
		ep_free(ep);
		return rpwi_fail_errno(error, "pipe: no pipe can be made in /tmp");
	}
	watch(t, ep->in, EPOLLIN, EPOLL_CTL_ADD);
	memcpy(h.name, ep->name, sizeof(h.name));
	h.check = check_of(&h);
	memcpy(handle, &h, sizeof(h));
	*handle_len = sizeof(h);
	rpwi_list_add_tail(&t->eps, &ep->link);
	*out = &ep->base;
	return 0;
}

static int pipe_ep_start(
	struct tran_ep *base, const uint8_t *handle, size_t len, unsigned timeout_ms)
{
	struct pipe_ep *ep = ep_of(base);
	struct pipe_tran *t = of(base->tran);
	struct handle h;
	memcpy(&h, handle, RPWI_MIN(len, sizeof(h)));
	if (len != sizeof(h) || memcmp(h.magic, "rpwpipe", 8) != 0 || h.version != VERSION ||
		h.check != check_of(&h) || h.name[sizeof(h.name) - 1] ||
		strncmp(h.name, "/tmp/ropeway-pipe-", 18) != 0)
		return rpwi_fail(RPW_ERR_PROTOCOL, "pipe: the handle of %zu bytes is garbled", len);
	ep->out = open(h.name, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	if (ep->out < 0 || fstat(ep->out, &st) || !S_ISFIFO(st.st_mode))
		return rpwi_fail(RPW_ERR_UNREACHABLE,
			"pipe: the peer's pipe cannot be opened: has it closed it?");
	ep->peer = (int)syscall(SYS_pidfd_open, (pid_t)h.pid, 0);
	watch(t, ep->out, 0, EPOLL_CTL_ADD);
	if (ep->peer >= 0)
		watch(t, ep->peer, EPOLLIN, EPOLL_CTL_ADD);
	snprintf(base->path, sizeof(base->path), "a pair of pipes to process %u", h.pid);
	ep->started = true;
	ep->deadline_ns = rpwi_now_ns() + timeout_ms * RPWI_NS_PER_MS;
	put(ep, &hello, sizeof(hello));
	flush(ep);
	if (ep->greeted)
		greeted(ep);
	return 0;
}

/* What it took goes out still, for a second. */
static void pipe_ep_close(struct tran_ep *base)
{
	struct pipe_ep *ep = ep_of(base);
	ep->closed = true;
	emulate_ep_close(base);
	shut(&ep->in);
	shut(&ep->peer);
	unlink(ep->name);
	ep->deadline_ns = rpwi_now_ns() + RPWI_NS_PER_S;
	flush(ep);
	if (ep->over)
		ep->tx_len = 0;
	if (!ep->tx_len && !of(base->tran)->busy)
		ep_free(ep);
}

/* ---- the whole ---- */

static int pipe_usable(
	const struct tran_facts *own, const struct tran_facts *peer, char *why, size_t why_len)
{
	if (!peer || !memcmp(own->host_id, peer->host_id, sizeof(own->host_id)))
		return 0;
	snprintf(why, why_len, "the peer is on another host");
	return RPW_ERR_UNREACHABLE;
}

static int pipe_open(const struct tran_up *up, const struct tran_facts *own, struct tran **out)
{
	struct pipe_tran *t = calloc(1, sizeof(*t));
	if (!t || emulate_open(&t->base)) {
		free(t);
		return rpwi_fail(RPW_ERR_NO_MEMORY, "pipe: no memory for the transport");
	}
	signal(SIGPIPE, SIG_IGN); /* a pipe has no MSG_NOSIGNAL */
	t->base = (struct tran){
		.ops = &tran_pipe, .up = up, .polled = own->polled, .emulated = t->base.emulated};
	t->epfd = epoll_create1(EPOLL_CLOEXEC);
	rpwi_list_init(&t->eps);
	*out = &t->base;
	return 0;
}

static void pipe_close(struct tran *base)
{
	struct pipe_tran *t = of(base);
	while (!rpwi_list_empty(&t->eps))
		ep_free(RPWI_CONTAINER_OF(t->eps.next, struct pipe_ep, link));
	emulate_close(base);
	close(t->epfd);
	free(t);
}

const struct tran_ops tran_pipe = {
	.name = "pipe",
	.caps = TRAN_SAME_HOST,
	.usable = pipe_usable,
	.open = pipe_open,
	.close = pipe_close,
	.progress = pipe_progress,
	.arm = pipe_arm,
	.ep_make = pipe_ep_make,
	.ep_start = pipe_ep_start,
	.ep_close = pipe_ep_close,
	.send = pipe_send,
	.mem = &emulated_mem,
	.rma = &emulated_rma,
	.breach = pipe_breach,
};
const struct tran_ops *const tran_all[] = {&tran_pipe, NULL};
