/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma-send-recv-server.c - wait for clients; send each a greeting, and print what it sends. Read
 * peer_connect.c, then peer_text.c: the order of the protocol. */
#include "peer.h"

int main(int argc, char **argv) { return peer_main(TEXT_SERVER, argc, argv); }
