/* SPDX-License-Identifier: BSD-3-Clause */
/* peers.h - two processes with a QP each, connected over a socket between them. */
#ifndef TESTS_DEVICE_PEERS_H
#define TESTS_DEVICE_PEERS_H

#include "pair.h"

#include <stddef.h>
#include <sys/types.h>

struct info {
	uint32_t qpn, psn, rkey;
	uint64_t addr;
};

struct end {
	struct pair p;
	struct side s;
	struct info peer;
	int sock;
};

void say(const struct end *e, const void *what, size_t n);
void hear(const struct end *e, void *what, size_t n);
/* Another process, and a socket to it. 0: this is that process. */
pid_t peer_fork(int *sock);
/* Both call it: after it the QPs are in RTS, and `peer` is filled. */
void end_make(struct end *e, int sock);
void end_free(struct end *e);
/* Both call it: the same QPs, connected anew after RESET. */
void end_again(struct end *e);
/* SIGSTOP, and it has stopped. */
void stop(pid_t pid);

#endif
