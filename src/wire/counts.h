/* SPDX-License-Identifier: BSD-3-Clause */
/* counts.h - what a QP counts and, by adding up, a device: for `ropeway run --stats` and for the
 * files in ports/1/counters and hw_counters.
 */
#ifndef ROPEWAY_WIRE_COUNTS_H
#define ROPEWAY_WIRE_COUNTS_H

#include "wire/packet.h"

/* Work requests that are done, by enum ibv_wc_opcode. */
enum { RPWI_DONE_SENDS = 0, RPWI_DONE_KINDS = 10 };

/* Counters alone: whoever adds them up takes it for an array. Those of one QP are changed under its
 * lock, those of more than one under the HCA's. */
struct rpwi_qp_stats {
	/* of all kinds, ACKs and packets sent again too; bytes of payload */
	uint64_t tx_packets, tx_bytes, rx_packets, rx_bytes;
	uint64_t retransmits, probes, timeouts, rnr_nak_rx, rnr_nak_tx, seq_nak_rx, seq_nak_tx;
	uint64_t nak_rx[RPWI_NAK_COUNT], nak_tx[RPWI_NAK_COUNT];
	uint64_t rx_duplicate, rx_out_of_order, rx_bad_opcode, rx_wrong_peer, rx_wrong_state,
		rx_bad_length, rx_bad_qkey, rx_no_rwqe;
	/* READs without the peer's help, and WRITEs while it is stopped; bytes of those that were
	 * no packets */
	uint64_t reads_alone, writes_alone, read_alone_bytes, written_alone_bytes;
	uint64_t retries;                      /* went back to the first unacknowledged packet */
	uint64_t retry_exceeded, rnr_exceeded; /* work requests that failed so */
	uint64_t done[RPWI_DONE_KINDS], recvs; /* work requests and receives, completed well */
	uint64_t failed;                       /* of both, with an error; flushed ones are none */
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
/* *to += now - was */
static inline void rpwi_counts_add_since(
	struct rpwi_qp_stats *to, const struct rpwi_qp_stats *now, const struct rpwi_qp_stats *was)
{
	uint64_t *sum = (uint64_t *)(void *)to;
	const uint64_t *n = (const uint64_t *)(const void *)now;
	const uint64_t *w = (const uint64_t *)(const void *)was;
	for (size_t i = 0; i < sizeof(*to) / sizeof(uint64_t); i++)
		sum[i] += n[i] - w[i];
}
_Static_assert(sizeof(struct rpwi_qp_stats) % sizeof(uint64_t) == 0, "counters only");

#endif
