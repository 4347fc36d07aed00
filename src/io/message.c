/* SPDX-License-Identifier: BSD-3-Clause */
/* message.c - what ropeway processes of one network namespace say to each other over their
 * connections (line.c): a struct io_msg, data behind it, descriptors with it. What it means is for
 * who asks (steer.c, lane.c); whom to believe as well.
 */
#include "io/io_priv.h"
#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { PARTS_MAX = 2 };

/* ---- telling ---- */

static void sign(struct io_msg *m)
{
	m->magic = IO_MSG_MAGIC;
	m->version = IO_MSG_VERSION;
}

union fds_control {
	char room[CMSG_SPACE(IO_FDS_MAX * sizeof(int))];
	struct cmsghdr align;
};

static void attach_fds(struct msghdr *h, union fds_control *control, const int *fds, unsigned n)
{
	memset(control, 0, sizeof(*control));
	h->msg_control = control;
	h->msg_controllen = CMSG_SPACE(n * sizeof(int));
	struct cmsghdr *c = CMSG_FIRSTHDR(h);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
}

int rpwi_message_send(struct rpwi_lines *ls, const struct io_dest *to, struct io_msg *m,
	const struct iovec *data, unsigned parts)
{
	struct iovec iov[1 + PARTS_MAX] = {{m, sizeof(*m)}};
	struct msghdr h = {.msg_iov = iov, .msg_iovlen = 1 + parts};
	assert(parts <= PARTS_MAX);
	for (unsigned i = 0; i < parts; i++)
		iov[1 + i] = data[i];
	sign(m);
	return rpwi_lines_send(ls, to, &h);
}

int rpwi_message_send_fds(struct rpwi_lines *ls, const struct io_dest *to, struct io_msg *m,
	const int *fds, unsigned nfds)
{
	union fds_control control;
	struct iovec iov = {m, sizeof(*m)};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
	attach_fds(&h, &control, fds, nfds);
	sign(m);
	return rpwi_lines_send(ls, to, &h);
}

/* An answer that finds no room is asked for again, or not missed. */
int rpwi_message_answer(const struct io_line *l, struct io_msg *m, const int *fds, unsigned nfds)
{
	rpwi_shield();
	union fds_control control;
	struct iovec iov = {m, sizeof(*m)};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
	attach_fds(&h, &control, fds, nfds);
	sign(m);
	if (sendmsg(l->fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	int rc = -errno;
	rpwi_debug("an answer is lost: %s", strerror(errno));
	return rc;
}

/* ---- listening ---- */

static void read_control(struct msghdr *h, struct io_heard *got)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		/* The control buffer has room for so many, or one more, whatever was sent. */
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (i < IO_FDS_MAX && got->fd[i] < 0)
				got->fd[i] = fd;
			else
				close(fd);
		}
	}
}

void rpwi_message_close_fds(struct io_heard *got)
{
	for (unsigned i = 0; i < IO_FDS_MAX; i++) {
		if (got->fd[i] >= 0)
			close(got->fd[i]);
		got->fd[i] = -1;
	}
}

/* 1, 0 nothing there, -EBADMSG for what is not ours, -EPIPE at its end, or another -errno. */
int rpwi_message_hear(int fd, struct io_heard *got, uint8_t *buf, size_t room)
{
	union fds_control control;
	struct iovec iov[2] = {{&got->msg, sizeof(got->msg)}, {buf, room}};
	struct msghdr h = {.msg_iov = iov,
		.msg_iovlen = 2,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	for (unsigned i = 0; i < IO_FDS_MAX; i++)
		got->fd[i] = -1;
	ssize_t n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	/* reset: something that we said was not read; what was said to us is still there */
	if (n < 0)
		return errno == EAGAIN || errno == EINTR || errno == ECONNRESET ? 0 : -errno;
	/* an empty message may bring descriptors, too; but for these it is like the end */
	read_control(&h, got);
	const struct io_msg *m = &got->msg;
	if ((size_t)n < sizeof(*m) || (h.msg_flags & MSG_TRUNC) || m->magic != IO_MSG_MAGIC ||
		m->version != IO_MSG_VERSION) {
		rpwi_message_close_fds(got);
		return n ? -EBADMSG : -EPIPE;
	}
	got->len = (size_t)n - sizeof(*m);
	return 1;
}

bool rpwi_message_memory_is_sound(int fd, size_t bytes)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);
	return seals >= 0 && (seals & F_SEAL_SHRINK) &&
	       !(seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) && !fstat(fd, &st) &&
	       st.st_size == (off_t)bytes;
}
