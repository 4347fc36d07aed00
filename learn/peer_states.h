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
 *
 * 发送与接收是两个独立的状态机，因为两者之间的先后次序不受保证：完成队列给出的是“被发现”的次序，
 * 而不是“发生”的次序。 对端的 DONE 完全可能先于我方 MR 消息的发送完成被轮询到。这里只计算状态，
 * 不做任何动作，因此测试可以穷举所有次序。
 */
#ifndef LEARN_PEER_STATES_H
#define LEARN_PEER_STATES_H

#include <stdbool.h>

/* SS_ILLEGAL and RS_ILLEGAL are no states: they answer a step that cannot be taken here. /
 * 二者不是状态，而是对非法步骤的回答。 */
enum send_state { SS_ILLEGAL = -1, SS_INIT, SS_MR_SENT, SS_RDMA_SENT, SS_DONE_SENT };
enum recv_state { RS_ILLEGAL = -1, RS_INIT, RS_MR_RECV, RS_DONE_RECV };

/* What a completion of the send queue was for; what a message is. / 发送完成的内容；
 * 收到的消息的种类。 */
enum send_step { SENT_MR, SENT_RDMA, SENT_DONE };
enum recv_step { RECEIVED_MR, RECEIVED_DONE };

enum send_state send_state_next(enum send_state state, enum send_step step);
enum recv_state recv_state_next(enum recv_state state, enum recv_step step);

/* How far posting has got. Posting is no state: between a post and its completion nothing is known.
 * 已投递到哪一步。投递不是状态：在投递与完成之间，什么都还不确定。 */
enum posted { POSTED_NOTHING, POSTED_MR, POSTED_RDMA, POSTED_DONE };

enum peer_action {
	ACTION_WAIT,
	ACTION_POST_MR,
	ACTION_POST_RDMA,
	ACTION_POST_DONE,
	ACTION_DISCONNECT
};

/* What to do now. One thing at a time is on its way, so one message buffer is enough. /
 * 现在该做什么。同一时刻只有一个发送在途。 */
enum peer_action peer_action(enum send_state send, enum recv_state recv, enum posted posted);

/* What ACTION_WAIT waits for, for the one who has to explain that it did not come. / ACTION_WAIT
 * 在等什么，用于说明等不到的是什么。 */
enum peer_wait {
	WAIT_NOTHING,
	WAIT_OWN_MR,
	WAIT_PEER_MR,
	WAIT_OWN_RDMA,
	WAIT_OWN_DONE,
	WAIT_PEER_DONE
};
enum peer_wait peer_waits_for(enum send_state send, enum recv_state recv, enum posted posted);

/* May the peer have left by now? It leaves once it has our DONE and its own is acknowledged. We
 * know the second when its DONE is here; of the first, that our DONE was posted: its
 * acknowledgement may be lost, since a peer that has left acknowledges nothing any more.
 * 对端此时可以离开吗？它收到我方 DONE、且自己的 DONE 得到确认之后才离开。我方 DONE 的确认可能丢失，
 * 因此“已投递”就够了。 */
bool peer_may_leave(enum recv_state recv, enum posted posted);

/* Who ended the connection. / 谁结束了连接。 */
enum ended { ENDED_NOT, ENDED_BY_US, ENDED_BY_PEER, ENDED_BY_ERROR };

/* Is IBV_WC_WR_FLUSH_ERR the normal end of a posted work request, or the trace of a fault? When a
 * queue pair goes to the error state, all that is still posted comes back with this status (IB
 * 10.3.1, state Error): so it comes at the end of every connection, too. IBV_WC_WR_FLUSH_ERR
 * 是正常结束还是故障的痕迹？队列对进入错误状态时，所有未完成的工作请求都以此状态返回，
 * 每个连接正常结束时也会出现。 */
bool flush_is_normal(enum ended ended, bool peer_might_leave);

const char *send_state_name(enum send_state state);
const char *recv_state_name(enum recv_state state);

#endif
