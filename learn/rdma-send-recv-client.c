/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma-send-recv-client.c - call an rdma-send-recv-server; send a text, and print the greeting.
 * Read peer_connect.c, then peer_text.c: the order of the protocol. */
#include "peer.h"

int main(int argc, char **argv) { return peer_main(TEXT_CLIENT, argc, argv); }
