/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma-server.c - wait for clients; with each: write to the other's memory, or read from it. Read
 * peer_connect.c, then peer_memory.c: the order of the protocol. */
#include "peer.h"

int main(int argc, char **argv) { return peer_main(RDMA_SERVER, argc, argv); }
