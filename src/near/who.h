/* SPDX-License-Identifier: BSD-3-Clause */
/* who.h - whose the process at the other end of a connection is. See who.c.
 *
 * One rule of trust: the kernel says on the connection itself who is there, and names, numbers in
 * messages and shared memory prove nothing. The device takes packets from a process of our own
 * user (`us`) alone. The transport of messages takes a link from the very process (`pid`) that
 * the control path named, whoever's it is, and from it only with the nonce of a handle. */
#ifndef ROPEWAY_NEAR_WHO_H
#define ROPEWAY_NEAR_WHO_H

#include <stdbool.h>
#include <sys/types.h>

struct rpwi_who {
	uid_t uid;
	pid_t pid; /* 0: not of our PID namespace; -1: not known */
	bool us;   /* a process of our own user */
};
enum { RPWI_WHO_TEXT = 96 };
/* reads the environment and the user that we are now: our sockets are that user's from now on */
void rpwi_who_begin(void);
uid_t rpwi_who_uid(void);
bool rpwi_who_is_us(uid_t uid);
/* ROPEWAY_SHARE_PORT: our packets may go through another user's process */
bool rpwi_who_shares(void);
/* who is at the other end of a connected Unix socket: 0 or -errno */
int rpwi_who_of(int fd, struct rpwi_who *who);
/* at an abstract name, without a connection: 0 or -ENOENT; reads the kernel's list of all
 * listeners */
int rpwi_who_listens(const char *name, struct rpwi_who *who);
const char *rpwi_who_text(const struct rpwi_who *who, char text[RPWI_WHO_TEXT]);

#endif
