/* SPDX-License-Identifier: BSD-3-Clause */
/* common.h - what rdma_server and rdma_client share apart from RDMA: options, and the text of the
 * messages. 两个程序共用的、与 RDMA 无关的部分：命令行选项，以及消息的内容。
 */
#ifndef LEARN_COMMON_H
#define LEARN_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "language.h"

enum {
	TCP_PORT_DEFAULT = 18515,
	/* on RoCE, usually the GID made from the IPv4 address / 在 RoCE 上通常是由 IPv4 地址生成的
	 * GID */
	GID_INDEX_DEFAULT = 1,
	BUFFER_BYTES_DEFAULT = 4096,
	BUFFER_BYTES_MAX = 1 << 30,
	QPS_MAX = 16,
	WAIT_MS = 5000, /* nobody waits longer than this for a peer / 等待对端的最长时间 */
};

enum role { ROLE_SERVER, ROLE_CLIENT };

struct options {
	enum role role;
	const char *server; /* client: whom to call / 客户端：要连接的服务器 */
	/* server: where to listen, NULL for everywhere / 服务器：监听地址，NULL 表示全部 */
	const char *bind_address;
	const char *device; /* NULL: the first one / NULL 表示第一个设备 */
	unsigned tcp_port;
	unsigned gid_index;
	/* of each send buffer and each receive buffer / 每个发送缓冲区和接收缓冲区的大小 */
	uint32_t buffer_bytes;
	/* client: of each message; 0 on the server, which answers with as many / 客户端：
	 * 每条消息的长度 */
	uint32_t message_bytes;
	unsigned qps;
	unsigned mtu_bytes; /* 0: what the port allows / 0 表示使用端口允许的值 */
	bool verbose; /* print the status of each completion / 打印每个完成事件的状态 */
};

/* 0: go on. 1: --help or --version was answered, end with status 0. -1: an option is wrong and was
 * explained. 0：继续。1：已回答 --help 或 --version。-1：选项有误，已说明。 */
int options_parse(struct options *opt, enum role role, int argc, char **argv);
const char *program_name(enum role role);

/* Write the message that `role` sends on its QP number `qp` (from 0) of `qps`. It depends on the
 * QPN and the PSN, both drawn anew for each run, so neither an old message nor one of another QP
 * can be taken for it. Printable ASCII throughout. 写出 role 在第 qp 个（从 0 开始）QP
 * 上发送的消息。内容取决于每次运行都不同的 QPN 和 PSN，因此旧消息或别的 QP 的消息都不会被误认。 */
void message_write(char *buffer, size_t bytes, enum role role, unsigned qp, unsigned qps,
	uint32_t qpn, uint32_t psn);
/* Compare, and print the beginning of the message. 0, or -1 after fail(). /
 * 比较并打印消息的开头。 */
int message_check(const char *got, const char *expected, size_t bytes, unsigned qp);

#endif
