/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_states.c - the two state machines of a write/read connection. Pure: no call here has an
 * effect. State n means that n things are complete, so step n leads from state n to the next. */
#include "peer_states.h"

enum send_state send_state_next(enum send_state state, enum send_step step)
{
	return (int)step == (int)state && step <= SENT_DONE ? state + 1 : SS_ILLEGAL;
}

/* Messages of one queue pair arrive in order (IB 9.7), so a DONE without an MR before it is no late
 * message but a wrong one. */
enum recv_state recv_state_next(enum recv_state state, enum recv_step step)
{
	return (int)step == (int)state && step <= RECEIVED_DONE ? state + 1 : RS_ILLEGAL;
}

enum peer_wait peer_waits_for(enum send_state send, enum recv_state recv, enum posted posted)
{
	if ((int)posted > (int)send) /* the last post is still on its way */
		return WAIT_OWN_MR + (posted - POSTED_MR);
	if (send == SS_MR_SENT && recv == RS_INIT)
		return WAIT_PEER_MR; /* its DONE is as good: the MR came before */
	if (send == SS_DONE_SENT && recv != RS_DONE_RECV)
		return WAIT_PEER_DONE;
	return WAIT_NOTHING;
}

enum peer_action peer_action(enum send_state send, enum recv_state recv, enum posted posted)
{
	if (peer_waits_for(send, recv, posted) != WAIT_NOTHING)
		return ACTION_WAIT;
	return ACTION_POST_MR + (send - SS_INIT);
}

bool peer_may_leave(enum recv_state recv, enum posted posted)
{
	return recv == RS_DONE_RECV && posted == POSTED_DONE;
}

bool flush_is_normal(enum ended ended, bool peer_might_leave)
{
	return ended == ENDED_BY_US || (ended == ENDED_BY_PEER && peer_might_leave);
}

const char *send_state_name(enum send_state state)
{
	static const char *const names[] = {
		"SS_ILLEGAL", "SS_INIT", "SS_MR_SENT", "SS_RDMA_SENT", "SS_DONE_SENT"};

	return names[state - SS_ILLEGAL];
}

const char *recv_state_name(enum recv_state state)
{
	static const char *const names[] = {"RS_ILLEGAL", "RS_INIT", "RS_MR_RECV", "RS_DONE_RECV"};

	return names[state - RS_ILLEGAL];
}
