/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.h - the control path: a TCP connection on which the two programs tell each other where
 * their queue pairs are.
 *
 * RDMA cannot begin by itself: to send to a queue pair one must know its number (QPN), the address
 * of its port (LID on InfiniBand, GID on RoCE) and the number of the first packet (PSN). So they
 * travel over something that already works.
 *
 * 控制通道：一条 TCP 连接，双方用它告知各自队列对（QP）的位置。RDMA 无法凭空开始：要向一个 QP
 * 发送，必须知道它的编号（QPN）、 所在端口的地址（InfiniBand 用 LID，RoCE 用 GID）
 * 和第一个包的序号（PSN）。因此先用一条现成的通道交换这些信息。
 */
#ifndef LEARN_EXCHANGE_H
#define LEARN_EXCHANGE_H

#include <infiniband/verbs.h>

#include "common.h"

/* What one side tells the other. / 一方告诉另一方的内容。 */
struct cm_con_data_t {
	uint32_t mtu_bytes;
	uint32_t qps;
	uint32_t buffer_bytes;
	uint32_t message_bytes; /* 0 from the server / 服务器为 0 */
	uint8_t link_layer;     /* IBV_LINK_LAYER_... */
	uint16_t lid;
	union ibv_gid gid;
	struct {
		uint32_t qpn, psn;
	} qp[QPS_MAX];
};

/* The kinds of message on the TCP connection. / TCP 连接上的消息种类。 */
enum kind {
	KIND_HELLO = 1, /* a struct cm_con_data_t / 携带 struct cm_con_data_t */
	KIND_READY = 2, /* the server has receives posted: send now / 服务器已准备好接收 */
	/* I have all that I wait for: you may leave / 我已收到所需的一切，你可以离开 */
	KIND_DONE = 3,
	/* I failed and am about to leave; my own line says why / 我出错了，即将退出 */
	KIND_SORRY = 4,
};

struct exchange {
	int fd;        /* -1: not connected / -1 表示未连接 */
	char peer[96]; /* "127.0.0.1 port 18515", for messages / 用于输出 */
	const char *peer_program;
};

/* All return 0, or -1 after fail() has said why. / 均返回 0；出错时先用 fail() 说明原因，再返回
 * -1。 */
int exchange_accept(struct exchange *x, const struct options *opt);
int exchange_connect(struct exchange *x, const struct options *opt);
/* Each side sends its data and gets the other's; the client speaks first. /
 * 双方互换数据，客户端先发言。 */
int sock_sync_data(struct exchange *x, const struct options *opt, const struct cm_con_data_t *local,
	struct cm_con_data_t *remote);
int exchange_tell(struct exchange *x, enum kind kind);
int exchange_await(struct exchange *x, enum kind kind);
/* Without waiting: is the peer still there, and content? / 不等待地检查：对端还在吗，
 * 是否报告了错误？ */
int exchange_watch(struct exchange *x);
/* Hang up. If `failed`, tell the peer first. Takes an exchange that was never connected, too. /
 * 挂断；若 failed 则先告知对端。 */
void exchange_close(struct exchange *x, bool failed);

/* All zero: no address there. / 全零：没有地址。 */
bool gid_empty(const union ibv_gid *gid);

#endif
