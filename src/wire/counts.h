/* SPDX-License-Identifier: BSD-3-Clause */
/* counts.h - what a QP counts and, by adding up, a device: for `ropeway run --stats` and for the
 * files in ports/1/counters and hw_counters.
 */
#ifndef ROPEWAY_WIRE_COUNTS_H
#define ROPEWAY_WIRE_COUNTS_H

#include "wire/packet.h"

/* Counters alone: whoever adds them up takes it for an array. Those of more than one QP are changed
 * under the HCA's lock alone. */
struct rpwi_qp_stats {
	/* of all kinds, ACKs and packets sent again too; bytes of payload */
	uint64_t tx_packets, tx_bytes, rx_packets, rx_bytes;
	uint64_t retransmits, probes, timeouts, rnr_nak_rx, rnr_nak_tx, seq_nak_rx, seq_nak_tx;
	uint64_t nak_rx[RPWI_NAK_COUNT], nak_tx[RPWI_NAK_COUNT];
	uint64_t rx_duplicate, rx_out_of_order, rx_bad_opcode, rx_wrong_peer, rx_wrong_state,
		rx_bad_length, rx_bad_qkey, rx_no_rwqe;
	uint64_t reads_alone;                  /* without the peer's help; each QP's own */
	uint64_t writes_alone;                 /* likewise, while it is stopped */
	uint64_t retries;                      /* went back to the first unacknowledged packet */
	uint64_t retry_exceeded, rnr_exceeded; /* work requests that failed so */
	uint64_t sends, recvs;                 /* SENDs and receives, completed well */
	/* The device's own. Of the packets above, those to and from groups; packets that the kernel
	 * refused; packets with a wrong ICRC, and bytes that are no packet. */
	uint64_t tx_mcast, rx_mcast, tx_refused, rx_broken;
};

static inline void rpwi_counts_add(struct rpwi_qp_stats *sum, const struct rpwi_qp_stats *s)
{
	uint64_t *to = (uint64_t *)(void *)sum;
	const uint64_t *from = (const uint64_t *)(const void *)s;
	for (size_t i = 0; i < sizeof(*s) / sizeof(uint64_t); i++)
		to[i] += from[i];
}
_Static_assert(sizeof(struct rpwi_qp_stats) % sizeof(uint64_t) == 0, "counters only");

#endif
