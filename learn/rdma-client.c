/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma-client.c - call an rdma-server; write to the other's memory, or read from it. peer_memory.c
 * has the steps, peer_client.c the way there. 连接 rdma-server；互相写（读）对方的内存。步骤见
 * peer_memory.c，如何连接见 peer_client.c。
 */
#include "peer.h"

int main(int argc, char **argv) { return peer_main("rdma-client", false, false, argc, argv); }
