/* SPDX-License-Identifier: BSD-3-Clause */
/* recv.h - `ropeway recv`: the sessions of its senders (recv_session.c), and the loop around them
 * (recv.c). */
#ifndef ROPEWAY_CLI_RECV_H
#define ROPEWAY_CLI_RECV_H

#include "cli/files/recv_store.h"
#include "ropeway.h"

enum {
	RECV_SESSIONS_MAX = 16, /* served at once */
	RECV_PER_PEER_MAX = 12, /* of one address */
	/* that have yet to take a last word: why they were refused, or turned away */
	RECV_LEAVING_MAX = 16,
	RECV_SLOTS = RECV_SESSIONS_MAX + RECV_LEAVING_MAX,
	RECV_SILENT_MS = 300 * 1000,
	RECV_LEAVING_MS = 10 * 1000,
	/* who moves nothing for so long gives way to a newcomer when all places are taken */
	RECV_IDLE_MS = 10 * 1000,
};

struct recv_session;
struct receiver {
	rpw_context *c;
	struct store store;
	bool quiet;
	unsigned good, bad; /* ended well; ended otherwise, of those that said hello */
	struct recv_session *session[RECV_SLOTS];
};

/* A sender has come. */
void recv_session_begin(struct receiver *r, rpw_endpoint *ep);
/* A piece of the bytes to be read from the disk. True: there is more of it. */
bool recv_session_work(struct receiver *r, uint64_t now_ns);
/* Those that have been silent for too long are ended. */
void recv_session_timers(struct receiver *r, uint64_t now_ns);
/* All of them, before the context goes. */
void recv_session_end_all(struct receiver *r);

#endif
