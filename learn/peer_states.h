/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_states.h - where each side of a write/read connection stands: two small state machines, and
 * what follows from them.
 *
 *     sends:     SS_INIT -> SS_MR_SENT -> SS_RDMA_SENT -> SS_DONE_SENT     moved by completions of
 *                what this side sent
 *     receives:  RS_INIT -> RS_MR_RECV -> RS_DONE_RECV                     moved by messages of the
 *                peer
 *
 * They are two because their order against each other is free: a completion queue says in which
 * order things were noticed, not in which order they happened. A peer's DONE may well be polled
 * before the completion of our own MR message: the message arrived, the peer acted on it, and only
 * its acknowledgement was late (IB 10.8.5 orders the completions of one work queue, not those of a
 * send queue against a receive queue). Nothing here does anything: states in, states out, so that a
 * test can try every order.
 */
#ifndef LEARN_PEER_STATES_H
#define LEARN_PEER_STATES_H

#include <stdbool.h>

/* SS_ILLEGAL and RS_ILLEGAL are no states: they answer a step that cannot be taken here. */
enum send_state { SS_ILLEGAL = -1, SS_INIT, SS_MR_SENT, SS_RDMA_SENT, SS_DONE_SENT };
enum recv_state { RS_ILLEGAL = -1, RS_INIT, RS_MR_RECV, RS_DONE_RECV };

/* What a completion of the send queue was for; what a message is. */
enum send_step { SENT_MR, SENT_RDMA, SENT_DONE };
enum recv_step { RECEIVED_MR, RECEIVED_DONE };

enum send_state send_state_next(enum send_state state, enum send_step step);
enum recv_state recv_state_next(enum recv_state state, enum recv_step step);

/* How far posting has got. Posting is no state: between a post and its completion nothing is
 * known. */
enum posted { POSTED_NOTHING, POSTED_MR, POSTED_RDMA, POSTED_DONE };

/* What the next action waits for, so that a program can say what did not come. */
enum peer_wait {
	WAIT_NOTHING,
	WAIT_OWN_MR,
	WAIT_OWN_RDMA,
	WAIT_OWN_DONE,
	WAIT_PEER_MR,
	WAIT_PEER_DONE
};
enum peer_wait peer_waits_for(enum send_state send, enum recv_state recv, enum posted posted);

/* What to do now. One thing at a time is on its way, so one message buffer is enough. */
enum peer_action {
	ACTION_WAIT,
	ACTION_POST_MR,
	ACTION_POST_RDMA,
	ACTION_POST_DONE,
	ACTION_DISCONNECT
};
enum peer_action peer_action(enum send_state send, enum recv_state recv, enum posted posted);

/* May the peer have left by now? It leaves once it has our DONE and its own is acknowledged. We
 * know the second when its DONE is here; of the first, that our DONE was posted: its
 * acknowledgement may be lost, since a peer that has left acknowledges nothing any more. */
bool peer_may_leave(enum recv_state recv, enum posted posted);

enum ended { ENDED_NOT, ENDED_BY_US, ENDED_BY_PEER, ENDED_BY_ERROR };

/* Is IBV_WC_WR_FLUSH_ERR the normal end of a posted work request, or the trace of a fault? When a
 * queue pair goes to the error state, all that is still posted comes back with this status (IB
 * 10.3.1, state Error): so it comes at the end of every connection, too. */
bool flush_is_normal(enum ended ended, bool peer_might_leave);

const char *send_state_name(enum send_state state);
const char *recv_state_name(enum recv_state state);

#endif
