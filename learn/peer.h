/* SPDX-License-Identifier: BSD-3-Clause */
/* peer.h - one connection through librdmacm, and what the programs do with it.
 *
 *     rdma-server, rdma-client                            peer_memory.c     what is said: MRs, then
 *                                                         write or read, then DONE
 *     rdma-send-recv-server, rdma-send-recv-client        peer_text.c       what is said: a text
 *                                                         each
 *             |                                              ^
 *     peer_main.c  options -> peer_loop.c  one loop over all descriptors and deadlines
 *                                 |              |
 *                 peer_client.c, peer_server.c   peer.c
 *                 events of rdma_cm              one connection: its verbs objects, posting,
 *                                                completions, its end
 *
 * 通过 librdmacm 建立的一个连接，以及各程序用它做什么。
 */
#ifndef LEARN_PEER_H
#define LEARN_PEER_H

#include <rdma/rdma_cma.h>

#include "language.h"
#include "peer_region.h"
#include "peer_states.h"
#include "peer_wire.h"

enum {
	PEER_PORT_DEFAULT = 22222,
	PEER_WAIT_S_DEFAULT = 15,
	PEER_WAIT_S_MAX = 3600,
	/* MR, DONE, and one that nothing comes for: it is flushed at the end / 最后一个不会有消息，
	 * 结束时被冲刷 */
	PEER_RECEIVES = 3,
};

struct peer_options {
	const char *program;
	enum mode mode;
	bool server;
	/* client: whom to call; server: where to listen, NULL for everywhere / 客户端：服务器地址；
	 * 服务器：监听地址 */
	const char *address;
	unsigned port;
	unsigned wait_s; /* no wait is longer / 任何等待都不会更长 */
	/* server: end after so many clients, 0: never / 服务器：服务多少个客户端后结束 */
	unsigned count;
	/* server of texts: never answer, to show what follows / 从不回答，用于演示后果 */
	bool silent;
	bool verbose; /* print the status of each completion / 打印每个完成事件的状态 */
};

/* The life of a connection. A client begins at the first, a server at PHASE_ACCEPT. /
 * 连接的一生。 */
enum phase {
	PHASE_ADDRESS, /* the client waits for RDMA_CM_EVENT_ADDR_RESOLVED */
	PHASE_ROUTE,   /* ... ROUTE_RESOLVED */
	PHASE_CONNECT, /* ... ESTABLISHED, REJECTED, UNREACHABLE */
	PHASE_ACCEPT,  /* the server has accepted and waits for ESTABLISHED */
	PHASE_TALK,    /* established */
	/* waits for DISCONNECTED, and until every work request has come back / 等待断开事件，
	 * 以及所有工作请求返回 */
	PHASE_END,
	PHASE_OVER, /* to be freed / 等待释放 */
};

struct peer;

/* What two peers do once they are connected. / 连接之后双方做什么。 */
struct talk {
	/* Post what the states ask for now, or disconnect; called whenever something has happened.
	 * 0 or -1. / 按状态投递下一步。 */
	int (*advance)(struct peer *p);
	/* A send completed, a message came. -1 if it cannot be so here; then peer_abort() was
	 * called. / 发送完成；收到消息。 */
	int (*sent)(struct peer *p, unsigned work);
	int (*received)(struct peer *p, const struct message *m);
	/* May the peer leave now, with nothing missing? / 对端此时可以离开而不缺什么吗？ */
	bool (*may_leave)(const struct peer *p);
	/* All is done: look at what the peer left here. 0 or -1. / 全部完成：
	 * 检查对端留下的内容。 */
	int (*conclude)(struct peer *p);
	/* What advance() waits for, translated. / 正在等待什么（已翻译）。 */
	const char *(*waits_for)(const struct peer *p);
};
extern const struct talk memory_talk, text_talk;

/* What a work request is for; it comes back in wr_id. / 工作请求的用途，由 wr_id 带回。 */
enum work { WORK_RECEIVE, WORK_MR, WORK_RDMA, WORK_DONE, WORK_TEXT };

struct peer {
	struct peer *next;
	const struct peer_options *options;
	const struct talk *talk;
	char name[96]; /* "client 10.0.0.1:4711", translated / 已翻译 */
	unsigned number; /* of this connection in this process, from 1 / 本进程中连接的序号 */
	enum phase phase;
	/* of the phase, or of the step of the talk that is awaited / 当前阶段或步骤的期限 */
	uint64_t deadline_ms;

	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	uint8_t *memory; /* one block for the four below / 以下四者共用一块内存 */
	uint8_t *source; /* what the peer shall get / 给对端的内容 */
	uint8_t *target; /* what we get of the peer / 从对端得到的内容 */
	uint8_t *message_out, *message_in;
	struct ibv_mr *message_mr, *source_mr, *target_mr;
	unsigned sends_out, receives_out; /* posted and not come back / 已投递、尚未返回的数目 */

	/* memory_talk */
	enum send_state send;
	enum recv_state recv;
	enum posted posted;
	struct remote_memory remote;
	/* text_talk */
	bool text_posted, text_sent, text_received;

	/* the end */
	enum ended ended;
	bool disconnected; /* RDMA_CM_EVENT_DISCONNECTED came / 已收到断开事件 */
	bool left_early;   /* it came before all was done / 在完成之前断开 */
	bool failed;
	/* of the failure: which side, which event / 失败的原因：哪一方、哪个事件 */
	char cause[300];
};

/* ---- peer.c ---- */

struct peer *peer_new(const struct peer_options *options, struct rdma_cm_id *id, unsigned number);
/* accepts what was made only in part / 也接受只完成了一部分的对象 */
void peer_free(struct peer *p);
void peer_set_name(struct peer *p);
/* PD, channel, CQ, QP, memory; and the receives, which are posted before anyone may send. -1 with
 * errno. / 创建对象并投递接收。 */
int peer_prepare(struct peer *p);
int peer_post_send(struct peer *p, enum work work, size_t bytes);
int peer_post_rdma(struct peer *p);
/* Take all that the completion queue holds. / 取出完成队列中的全部完成事件。 */
void peer_completions(struct peer *p);
/* RDMA_CM_EVENT_ESTABLISHED and RDMA_CM_EVENT_DISCONNECTED. */
void peer_established(struct peer *p);
void peer_disconnected(struct peer *p);
/* Both are done: leave. / 双方都已完成：断开。 */
void peer_leave(struct peer *p);
/* Say why this connection failed, and end it. Always -1. / 说明连接失败的原因并结束它。总是返回
 * -1。 */
int peer_abort(struct peer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The deadline has passed. / 期限已过。 */
void peer_late(struct peer *p);
void peer_restart_clock(struct peer *p);
/* Is all of PHASE_END there? Then it is over. / 结束阶段所等的都到齐了吗？ */
void peer_look_for_end(struct peer *p);

/* ---- peer_loop.c ---- */

struct loop {
	const struct peer_options *options;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener; /* NULL in a client / 客户端中为 NULL */
	struct peer *peers;
	unsigned made, over, failed; /* connections / 连接数 */
	bool stopping;               /* no more clients / 不再接受客户端 */
	bool asked;                  /* ... since SIGINT or SIGTERM came / 因收到信号 */
};

int loop_start(struct loop *loop, const struct peer_options *options);
int loop_run(struct loop *loop); /* until nothing is left to do / 直到无事可做 */
void loop_stop(struct loop *loop);
struct peer *loop_add(struct loop *loop, struct rdma_cm_id *id);

/* What is kept of an event, which must be acknowledged before its connection may be freed. /
 * 事件须先确认，因此保留其内容的副本。 */
struct cm_event {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id;
	struct peer *peer; /* NULL: of the listener, or of a request / NULL：属于监听者或新的请求 */
	uint8_t private_data[WIRE_HELLO_BYTES];
	uint8_t private_bytes;
	uint8_t responder_resources, initiator_depth;
};

/* ---- peer_client.c, peer_server.c: the events of each side ---- */

int client_start(struct loop *loop);
void client_event(struct loop *loop, const struct cm_event *event);
int server_start(struct loop *loop);
void server_event(struct loop *loop, const struct cm_event *event);

/* ---- peer_main.c ---- */

/* All of main(). / main() 的全部内容。 */
int peer_main(const char *program, bool server, bool texts, int argc, char **argv);

#endif
