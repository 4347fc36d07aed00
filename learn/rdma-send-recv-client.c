/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma-send-recv-client.c - call an rdma-send-recv-server; send a text, and print the greeting.
 * peer_text.c has the steps. 连接 rdma-send-recv-server；发送一段文本，并打印问候。步骤见
 * peer_text.c。
 */
#include "peer.h"

int main(int argc, char **argv)
{
	return peer_main("rdma-send-recv-client", false, true, argc, argv);
}
