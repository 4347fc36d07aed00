/* SPDX-License-Identifier: BSD-3-Clause */
/* peer.h - one connection through librdmacm, and what the programs do with it.
 *
 *     peer_main.c      options, then one loop over all descriptors and deadlines
 *     peer_connect.c   events of rdma_cm: address, route, connect; or listen, accept; the end
 *     peer_complete.c  completions of sends and receives, and flushed ones
 *     peer_memory.c    rdma-server and rdma-client: MRs, then write or read, then DONE
 *     peer_states.c      ... in which order
 *     peer_text.c      rdma-send-recv-server and rdma-send-recv-client: a text each
 *     peer.c           one connection: its verbs objects, posting, leaving
 *     peer_wire.c      messages as bytes
 *
 * Each file calls only those below it.
 */
#ifndef LEARN_PEER_H
#define LEARN_PEER_H

#include <rdma/rdma_cma.h>

#include "common.h"
#include "peer_states.h"
#include "peer_wire.h"

enum {
	/* MR, DONE, and one that nothing comes for: it is flushed at the end */
	PEER_RECEIVES = 3,
	/* A receive takes the longest message that we know, and more: then a message that is too
	 * long is refused by a sentence that says so instead of a local length error. */
	RECEIVE_BYTES = 512,
};
_Static_assert((int)RECEIVE_BYTES > (int)WIRE_MESSAGE_BYTES_MAX, "it takes the longest message");

/* The life of a connection. A client begins at the first, a server at PHASE_ACCEPT. */
enum phase {
	PHASE_ADDRESS, /* the client waits for RDMA_CM_EVENT_ADDR_RESOLVED */
	PHASE_ROUTE,   /* ... ROUTE_RESOLVED */
	PHASE_CONNECT, /* ... ESTABLISHED, REJECTED, UNREACHABLE */
	PHASE_ACCEPT,  /* the server has accepted and waits for ESTABLISHED */
	PHASE_TALK,    /* established */
	PHASE_END,     /* waits for DISCONNECTED, and until every work request has come back */
	PHASE_OVER,    /* to be freed */
};

/* What a work request is for; it comes back in wr_id. */
enum work { WORK_RECEIVE, WORK_MR, WORK_RDMA, WORK_DONE, WORK_TEXT };

struct peer {
	struct peer *next;
	struct loop *loop;
	char name[96];   /* "client 10.0.0.1:4711" */
	unsigned number; /* of this connection in this process, from 1 */
	enum phase phase;
	uint64_t deadline_ms; /* of the phase, or of the step of the talk that is awaited */

	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *message_mr, *source_mr, *target_mr;
	unsigned sends_out, receives_out; /* posted and not come back */

	/* What the talk has reached. Of texts, the first state is the only one. */
	enum send_state send;
	enum recv_state recv;
	enum posted posted;
	struct remote_memory remote;

	enum ended ended;
	bool disconnected; /* RDMA_CM_EVENT_DISCONNECTED came */
	bool failed;
	char cause[300]; /* of the failure: which side, which event */
	char why[200];   /* what does not fit in the peer's hello */

	uint8_t hello[WIRE_HELLO_BYTES];
	uint8_t out[RECEIVE_BYTES], in[PEER_RECEIVES][RECEIVE_BYTES];
	uint8_t source[REGION_BYTES]; /* what the peer shall get */
	uint8_t target[REGION_BYTES]; /* what we get of the peer */
};

struct loop {
	/* options */
	bool server;
	enum mode mode;
	/* client: the server to call; server: where to listen, NULL for everywhere */
	const char *address;
	unsigned port;
	unsigned wait_s; /* no wait is longer */
	unsigned count;  /* server: end after so many clients, 0: never */
	bool silent;     /* server of texts: never answer, to show what follows */
	bool verbose;    /* print the status of each completion */

	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener; /* NULL in a client */
	int epoll, signals;
	struct peer *peers;
	unsigned made, over, failed; /* connections */
	bool stopping;               /* SIGINT or SIGTERM came: no more clients */
};

/* ---- peer.c ---- */

struct peer *peer_new(struct loop *loop, struct rdma_cm_id *id);
void peer_enter(struct peer *p, enum phase phase); /* and begin to wait anew */
/* PD, MRs, CQ, QP; and the receives, which are posted before anyone may send. False with errno. */
bool peer_prepare(struct peer *p);
void peer_send(struct peer *p, enum work work, size_t bytes);
void peer_post_rdma(struct peer *p);
void peer_leave(struct peer *p, enum ended who);
/* Say why this connection failed, and end it. */
void peer_abort(struct peer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void peer_free(struct peer *p); /* accepts what was made only in part */

/* ---- peer_memory.c or peer_text.c: each program is linked with one of them ---- */

/* Once established: post what may be posted now, or leave. */
void talk_advance(struct peer *p);
void talk_sent(struct peer *p, enum work work);
void talk_received(struct peer *p, const struct message *m);
/* May the peer leave now, with nothing missing? */
bool talk_may_leave(const struct peer *p);
/* All is done: is what the peer left here as it should be? */
bool talk_conclude(struct peer *p);
const char *talk_waits_for(const struct peer *p);

/* ---- peer_complete.c ---- */

void take_completions(struct peer *p);
void look_for_end(struct peer *p);

/* ---- peer_connect.c ---- */

void client_start(struct loop *loop);
void server_start(struct loop *loop);
void take_events(struct loop *loop);
void take_lateness(struct peer *p);

/* ---- peer_main.c: all of main() ---- */

enum which { RDMA_SERVER, RDMA_CLIENT, TEXT_SERVER, TEXT_CLIENT };
int peer_main(enum which which, int argc, char **argv);

#endif
