/* SPDX-License-Identifier: BSD-3-Clause */
/* rights.h - messages of a connected Unix socket (SEQPACKET), with descriptors (SCM_RIGHTS,
 * unix(7)).
 *
 * Nothing blocks, and nothing raises SIGPIPE. Descriptors that are sent stay the caller's; those
 * that come are the caller's to close, with close-on-exec set. */
#ifndef ROPEWAY_NEAR_RIGHTS_H
#define ROPEWAY_NEAR_RIGHTS_H

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { RPWI_RIGHTS_MAX = 3 };
union rpwi_rights {
	char room[CMSG_SPACE(RPWI_RIGHTS_MAX * sizeof(int))];
	struct cmsghdr align;
};

/* n descriptors, at most RPWI_RIGHTS_MAX, go with a message that is about to be sent. */
void rpwi_rights_attach(struct msghdr *h, union rpwi_rights *room, const int *fds, unsigned n);
/* 0 or -errno */
int rpwi_rights_send(int fd, const void *data, size_t len, const int *fds, unsigned n);
/* The length of one message, 0 at the end (or of an empty one), or -errno: -EMSGSIZE, it was longer
 * than the room. fds[RPWI_RIGHTS_MAX]: the descriptors that came along, or -1; none after an
 * error. */
ssize_t rpwi_rights_recv(int fd, struct iovec *to, unsigned parts, int *fds);
/* Those that are left, which are -1 then. */
void rpwi_rights_close(int *fds, unsigned n);

#endif
