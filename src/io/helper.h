/* SPDX-License-Identifier: BSD-3-Clause */
/* helper.h - the helper of this user in this network namespace: a process that speaks for those
 * that end without a word (src/helper). Here: its name, how it is started, how one says hello to
 * it.
 * Nothing blocks, but starting it: about a millisecond. ROPEWAY_HELPER=0: there is none.
 */
#ifndef ROPEWAY_IO_HELPER_H
#define ROPEWAY_IO_HELPER_H

#include <stdbool.h>
#include <stdint.h>

/* It ends so long after the last process that it speaks for: a child that goes on has so long to
 * say so, peers are told so often, and then it waits for the next process. */
enum {
	RPWI_HELPER_HEIR_MS = 1000,
	RPWI_HELPER_SAYS_MS = 1200,
	RPWI_HELPER_LINGER_MS = 3000,
	RPWI_HELPER_STAYS_MS = RPWI_HELPER_HEIR_MS + RPWI_HELPER_SAYS_MS + RPWI_HELPER_LINGER_MS,
};
bool rpwi_helper_is_off(void);
/* A connection to the one that is there: a descriptor, or -errno: -ECONNREFUSED nobody, -EPERM
 * another user has its name. */
int rpwi_helper_connect(void);
/* Is there one, as the kernel lists names? Unlike a connection this keeps it no longer. */
bool rpwi_helper_is_there(void);
/* Start one. It is nobody's child that a wait would see: it is made by a child that gives no signal
 * and has ended before this returns; it has no descriptor of ours, a session of its own, and an
 * empty environment but for ROPEWAY_LOG and ROPEWAY_SHARE_PORT. 0 or -errno; -ENOENT: its program
 * is not beside this library, nor where it is installed. */
int rpwi_helper_start(void);
/* "Here I am": the memory that it is to read when I have ended (device/ledger.h), and a pidfd of
 * this process, which tells that it has ended where a copy of the connection is still open in a
 * forked child. 0 or -errno. Said again, by a child of the first, it is the child's. */
int rpwi_helper_hello(int fd, int ledger_fd);
/* "There is something new": that it opens the ports of our addresses, too. */
int rpwi_helper_nudge(int fd);
/* What it says: its slot. 1, 0 nothing there, or -errno: it has ended. */
int rpwi_helper_hear(int fd, uint16_t *slot);

/* ---- the other end ---- */
int rpwi_helper_listen(void);         /* a descriptor; -EADDRINUSE: there is one */
int rpwi_helper_accept(int listener); /* of our own user only; -EAGAIN, -EPERM, or another -errno */
struct rpwi_helper_heard {
	bool hello;
	int ledger_fd, pid_fd; /* the caller's; -1: none */
};
/* 1, 0 nothing there, or -errno: it has ended, or said what nobody says */
int rpwi_helper_heard(int fd, struct rpwi_helper_heard *got);
int rpwi_helper_tell_slot(int fd, uint16_t slot);

#endif
