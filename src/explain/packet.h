/* SPDX-License-Identifier: BSD-3-Clause */
/* packet.h - packets in words, for the account (trace.h): "RC SEND_ONLY PSN 17, 64 bytes", "CM
 * ConnectRequest (REQ) port 7471, ...". */
#ifndef ROPEWAY_EXPLAIN_PACKET_H
#define ROPEWAY_EXPLAIN_PACKET_H

#include "explain/trace.h"
#include "wire/packet.h"

/* One packet, from the BTH to the ICRC: kind RPWI_EXPLAIN_TX, RPWI_EXPLAIN_RX or RPWI_EXPLAIN_LOST.
 * Called where it is captured, under the lock over io. */
void rpwi_explain_packet(
	const struct rpwi_flow *flow, enum rpwi_explain_kind kind, const uint8_t *data, size_t len);

#endif
