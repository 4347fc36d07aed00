/* SPDX-License-Identifier: BSD-3-Clause */
/* steps.h - the data path: what a verbs program does, one function for each step, in the order in
 * which they are called.
 *
 *     device -> PD -> MR -> CQ -> QP: RESET -> INIT -> RTR -> RTS -> post, poll -> everything
 *     closed, in reverse order
 *
 * 数据通道：一个 verbs 程序要做的事，每一步一个函数，按调用顺序排列。
 */
#ifndef LEARN_STEPS_H
#define LEARN_STEPS_H

#include <infiniband/verbs.h>

#include "common.h"
#include "exchange.h"

struct rdma {
	struct ibv_context *context; /* the opened device / 已打开的设备 */
	struct ibv_port_attr port;
	union ibv_gid gid;
	enum ibv_mtu mtu;  /* this side's / 本端的 MTU */
	struct ibv_pd *pd; /* protection domain / 保护域 */
	/* one after the other, `buffer_bytes` for each QP / 每个 QP 各占 buffer_bytes 字节 */
	char *send_buffer, *receive_buffer;
	char *expected; /* what a message must be; not registered / 消息应有的内容，未注册 */
	struct ibv_mr *send_mr, *receive_mr; /* memory regions / 内存区域 */
	struct ibv_cq *cq;                   /* completion queue / 完成队列 */
	struct ibv_qp *qp[QPS_MAX];          /* queue pairs / 队列对 */
	unsigned qps;
	uint32_t buffer_bytes;
	bool verbose; /* print the status of each completion / 打印每个完成事件的状态 */
};

/* What a completion is for; it comes back in wr_id. / 完成事件的用途，由 wr_id 带回。 */
enum work { WORK_RECEIVE, WORK_SEND };

struct completion {
	enum work work;
	unsigned qp;
	uint32_t bytes; /* of a receive / 接收的字节数 */
};

/* All return 0, or -1 after fail() has said why. / 均返回 0；出错时先用 fail() 说明原因，再返回
 * -1。 */

/* Steps 1 to 5: device, PD, MR, CQ, QPs in RESET. / 第 1 至 5 步：设备、PD、MR、CQ，
 * 以及处于 RESET 的 QP。 */
int init_rdma_resources(struct rdma *r, const struct options *opt);
int modify_qp_to_init(struct rdma *r);
/* One receive on each QP. / 在每个 QP 上投递一个接收。 */
int post_receives(struct rdma *r);
void con_data_describe(
	const struct rdma *r, const struct options *opt, struct cm_con_data_t *local);
void con_data_show(const struct cm_con_data_t *local, const struct cm_con_data_t *remote);
int modify_qp_to_rtr(struct rdma *r, const struct options *opt, const struct cm_con_data_t *local,
	const struct cm_con_data_t *remote);
int modify_qp_to_rts(struct rdma *r, const struct cm_con_data_t *local);
/* Send the first `bytes` of the QP's send buffer. / 发送该 QP 发送缓冲区的前 bytes 个字节。 */
int post_send(struct rdma *r, unsigned qp, uint32_t bytes);
/* Poll until one operation is complete, 5 s at most, and look now and then whether the peer is
 * still there. 轮询直到一个操作完成，最多 5 秒，期间不时查看对端是否还在。 */
int poll_completion(struct rdma *r, struct exchange *x, struct completion *c);
/* Accepts what was made only in part. / 也接受只完成了一部分的对象。 */
void close_rdma_resources(struct rdma *r);

#endif
