/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma-client.c - call an rdma-server; write to the other's memory, or read from it. Read
 * peer_connect.c, then peer_memory.c: the order of the protocol. */
#include "peer.h"

int main(int argc, char **argv) { return peer_main(RDMA_CLIENT, argc, argv); }
