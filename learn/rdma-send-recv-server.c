/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma-send-recv-server.c - wait for clients; send each a greeting, and print what it sends.
 * peer_text.c has the steps. 等待客户端；向每个客户端发送问候，并打印它发来的文本。步骤见
 * peer_text.c。
 */
#include "peer.h"

int main(int argc, char **argv)
{
	return peer_main("rdma-send-recv-server", true, true, argc, argv);
}
