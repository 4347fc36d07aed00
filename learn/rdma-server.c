/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma-server.c - wait for clients; with each: write to the other's memory, or read from it.
 * peer_memory.c has the steps, peer_states.c their order. 等待客户端；与每个客户端互相写（读）
 * 对方的内存。步骤见 peer_memory.c，次序见 peer_states.c。
 */
#include "peer.h"

int main(int argc, char **argv) { return peer_main("rdma-server", true, false, argc, argv); }
