/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_states.c - the two state machines of a write/read connection. Pure: no call here has an
 * effect. 写/读连接的两个状态机。纯函数：没有任何副作用。
 */
#include "peer_states.h"

enum send_state send_state_next(enum send_state state, enum send_step step)
{
	switch (step) {
	case SENT_MR:
		return state == SS_INIT ? SS_MR_SENT : SS_ILLEGAL;
	case SENT_RDMA:
		return state == SS_MR_SENT ? SS_RDMA_SENT : SS_ILLEGAL;
	case SENT_DONE:
		return state == SS_RDMA_SENT ? SS_DONE_SENT : SS_ILLEGAL;
	}
	return SS_ILLEGAL;
}

enum recv_state recv_state_next(enum recv_state state, enum recv_step step)
{
	/* Messages of one queue pair arrive in order (IB 9.7), so a DONE without an MR before it is
	 * no late message but a wrong one. 同一队列对的消息按序到达，因此没有 MR 就来的 DONE
	 * 不是“乱序”，而是错误。 */
	switch (step) {
	case RECEIVED_MR:
		return state == RS_INIT ? RS_MR_RECV : RS_ILLEGAL;
	case RECEIVED_DONE:
		return state == RS_MR_RECV ? RS_DONE_RECV : RS_ILLEGAL;
	}
	return RS_ILLEGAL;
}

/* Is what was posted last still on its way? State n means that n things are complete. /
 * 最近一次投递是否还没有完成？ */
static bool on_its_way(enum send_state send, enum posted posted) { return (int)posted > (int)send; }

enum peer_action peer_action(enum send_state send, enum recv_state recv, enum posted posted)
{
	if (on_its_way(send, posted))
		return ACTION_WAIT;
	switch (send) {
	case SS_INIT:
		return ACTION_POST_MR;
	case SS_MR_SENT:
		/* RS_DONE_RECV is as good: the MR came before / RS_DONE_RECV 也可以 */
		return recv == RS_INIT ? ACTION_WAIT : ACTION_POST_RDMA;
	case SS_RDMA_SENT:
		return ACTION_POST_DONE;
	case SS_DONE_SENT:
		return recv == RS_DONE_RECV ? ACTION_DISCONNECT : ACTION_WAIT;
	case SS_ILLEGAL:
		break;
	}
	return ACTION_WAIT;
}

enum peer_wait peer_waits_for(enum send_state send, enum recv_state recv, enum posted posted)
{
	static const enum peer_wait own[] = {[POSTED_MR] = WAIT_OWN_MR,
		[POSTED_RDMA] = WAIT_OWN_RDMA,
		[POSTED_DONE] = WAIT_OWN_DONE};

	if (on_its_way(send, posted))
		return own[posted];
	if (send == SS_MR_SENT && recv == RS_INIT)
		return WAIT_PEER_MR;
	if (send == SS_DONE_SENT && recv != RS_DONE_RECV)
		return WAIT_PEER_DONE;
	return WAIT_NOTHING;
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
		"SS_INIT", "SS_MR_SENT", "SS_RDMA_SENT", "SS_DONE_SENT"};

	return state == SS_ILLEGAL ? "SS_ILLEGAL" : names[state];
}

const char *recv_state_name(enum recv_state state)
{
	static const char *const names[] = {"RS_INIT", "RS_MR_RECV", "RS_DONE_RECV"};

	return state == RS_ILLEGAL ? "RS_ILLEGAL" : names[state];
}
