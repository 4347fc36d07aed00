/* SPDX-License-Identifier: BSD-3-Clause */
/* rights.c - see rights.h. */
#include "near/rights.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

void rpwi_rights_attach(struct msghdr *h, union rpwi_rights *room, const int *fds, unsigned n)
{
	if (!n)
		return;
	memset(room, 0, sizeof(*room));
	h->msg_control = room;
	h->msg_controllen = CMSG_SPACE(n * sizeof(int));
	struct cmsghdr *c = CMSG_FIRSTHDR(h);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
}

int rpwi_rights_send(int fd, const void *data, size_t len, const int *fds, unsigned n)
{
	union rpwi_rights room;
	struct iovec iov = {(void *)(uintptr_t)data, len};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
	rpwi_rights_attach(&h, &room, fds, n);
	return sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* The control buffer has room for so many, or one more, no matter how many were sent. */
static void take(struct msghdr *h, int *fds)
{
	unsigned taken = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (taken < RPWI_RIGHTS_MAX)
				fds[taken++] = fd;
			else
				close(fd);
		}
	}
}

ssize_t rpwi_rights_recv(int fd, struct iovec *to, unsigned parts, int *fds)
{
	union rpwi_rights room;
	struct msghdr h = {.msg_iov = to,
		.msg_iovlen = parts,
		.msg_control = &room,
		.msg_controllen = sizeof(room)};
	for (unsigned i = 0; i < RPWI_RIGHTS_MAX; i++)
		fds[i] = -1;
	ssize_t n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -errno;
	/* an empty message may bring descriptors, too; but for these it is like the end */
	take(&h, fds);
	if (n && !(h.msg_flags & MSG_TRUNC))
		return n;
	rpwi_rights_close(fds, RPWI_RIGHTS_MAX);
	return n ? -EMSGSIZE : 0;
}

void rpwi_rights_close(int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}
