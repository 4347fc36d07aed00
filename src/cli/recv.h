/* recv.h - `ropeway recv`: the sessions of its senders (recv_session.c), and the loop around them (recv.c). */
#ifndef ROPEWAY_CLI_RECV_H
#define ROPEWAY_CLI_RECV_H

#include "cli/recv_store.h"
#include "ropeway.h"

enum { RECV_SESSIONS_MAX = 16, RECV_SILENT_MS = 300 * 1000, RECV_LEAVING_MS = 10 * 1000 };

struct recv_session;
struct receiver {
	rpw_context *c;
	int root; /* the directory */
	bool quiet;
	unsigned sessions, good, bad; /* now; ended well; ended otherwise, of those that said hello */
	struct recv_session *session[RECV_SESSIONS_MAX];
};

/* A sender has come. */
void recv_session_begin(struct receiver *r, rpw_endpoint *ep);
/* Those that have been silent for too long are ended. */
void recv_session_timers(struct receiver *r, uint64_t now_ns);
/* All of them, before the context goes. */
void recv_session_end_all(struct receiver *r);

#endif
