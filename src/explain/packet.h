/* SPDX-License-Identifier: BSD-3-Clause */
/* packet.h - packets in words: "RC SEND_ONLY", "PSN 17, 64 B". The explain log (trace.h) has them,
 * and so has the ladder of `ropeway explain`. */
#ifndef ROPEWAY_EXPLAIN_PACKET_H
#define ROPEWAY_EXPLAIN_PACKET_H

#include "explain/trace.h"
#include "wire/mad.h"
#include "wire/packet.h"

/* One packet, from the BTH to the ICRC: kind RPWI_EXPLAIN_TX, RPWI_EXPLAIN_RX or RPWI_EXPLAIN_LOST.
 * Called where it is captured, under the lock over io. */
void rpwi_explain_packet(
	const struct rpwi_flow *flow, enum rpwi_explain_kind kind, const uint8_t *data, size_t len);

/* "RC SEND_ONLY", "RC RNR NAK"; what a reader looks for first: "PSN 17, 64 B"; likewise of a
 * message of the connection manager: "port 7471, QPN 0x000012". */
enum { RPWI_EXPLAIN_DETAIL = 160 };
const char *rpwi_explain_packet_name(const struct rpwi_pkt *p);
const char *rpwi_explain_packet_detail(const struct rpwi_pkt *p, char out[RPWI_EXPLAIN_DETAIL]);
const char *rpwi_explain_packet_cm(const struct rpwi_cm_msg *m, char out[RPWI_EXPLAIN_DETAIL]);
/* What a code of the wire stands for. */
double rpwi_explain_packet_rnr_ms(unsigned code);
unsigned rpwi_explain_packet_mtu(unsigned code); /* bytes; 0: of none */

#endif
