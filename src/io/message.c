/* SPDX-License-Identifier: BSD-3-Clause */
/* message.c - what ropeway processes of one network namespace say to each other over their
 * connections (line.c): a struct io_msg, data behind it, descriptors with it. What it means is for
 * who asks (steer.c, lane.c); whom to believe as well.
 */
#include "io/io_priv.h"
#include "base/lock.h"

enum { PARTS_MAX = 2 };

/* ---- telling ---- */

static void sign(struct io_msg *m)
{
	m->magic = IO_MSG_MAGIC;
	m->version = IO_MSG_VERSION;
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
	union rpwi_rights room;
	struct iovec iov = {m, sizeof(*m)};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
	rpwi_rights_attach(&h, &room, fds, nfds);
	sign(m);
	return rpwi_lines_send(ls, to, &h);
}

/* An answer that finds no room is asked for again, or not missed. */
int rpwi_message_answer(const struct io_line *l, struct io_msg *m, const int *fds, unsigned nfds)
{
	rpwi_shield();
	sign(m);
	int rc = rpwi_rights_send(l->fd, m, sizeof(*m), fds, nfds);
	if (rc)
		rpwi_debug("an answer is lost: %s", strerror(-rc));
	return rc;
}

/* ---- listening ---- */

int rpwi_message_hear(int fd, struct io_heard *got, uint8_t *buf, size_t room)
{
	struct iovec to[2] = {{&got->msg, sizeof(got->msg)}, {buf, room}};
	const struct io_msg *m = &got->msg;
	ssize_t n = rpwi_rights_recv(fd, to, 2, got->fd);
	/* reset: something that we said was not read; messages to us are still there */
	if (n == -EAGAIN || n == -EINTR || n == -ECONNRESET)
		return 0;
	if (!n)
		return -EPIPE;
	if (n < 0)
		return n == -EMSGSIZE ? -EBADMSG : (int)n;
	if ((size_t)n < sizeof(*m) || m->magic != IO_MSG_MAGIC || m->version != IO_MSG_VERSION) {
		rpwi_rights_close(got->fd, RPWI_RIGHTS_MAX);
		return -EBADMSG;
	}
	got->len = (size_t)n - sizeof(*m);
	return 1;
}
