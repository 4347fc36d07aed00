/* SPDX-License-Identifier: BSD-3-Clause */
/* icrc.h - the invariant CRC of RoCEv2 (IB annex A17.3.3): zlib's CRC-32 over a pseudo header of 8
 * bytes 0xff, the IP header with TOS, TTL and checksum as ones (IPv6: traffic class, flow label,
 * hop limit), the UDP header with its checksum as ones, the BTH with resv8a as ones, and the rest.
 * Stored little-endian.
 *
 * The IPv4 ID is covered too, and a receiving socket cannot see it. CRC is linear: for each length
 * there is a 16-bit set of differences that an ID can make, so a check against it both verifies and
 * recovers the ID.
 */
#ifndef ROPEWAY_WIRE_ICRC_H
#define ROPEWAY_WIRE_ICRC_H

#include "wire/packet.h"

/* Packets of one flow, one after the other: what comes before the BTH is covered once for all of
 * one length. Zero it but for the flow, which must outlive it and may not change. */
struct rpwi_icrc_run {
	const struct rpwi_flow *flow;
	size_t len;   /* of the UDP payload; 0: nothing is known yet */
	uint32_t crc; /* before the BTH, with ID 0 */
};

/* The ICRC of its next packet: hdr (BTH and extended headers), then nparts pieces of payload, then
 * pad zero bytes. ip_id in host order, ignored on IPv6. */
uint32_t rpwi_icrc_next(struct rpwi_icrc_run *run, uint16_t ip_id, const uint8_t *hdr,
	size_t hdr_len, const struct rpwi_iov *parts, unsigned nparts, unsigned pad);
/* Of one in one piece: len bytes from the BTH to the pad. */
uint32_t rpwi_icrc_next_whole(
	struct rpwi_icrc_run *run, uint16_t ip_id, const uint8_t *data, size_t len);
/* Of one alone. */
uint32_t rpwi_icrc(const struct rpwi_flow *flow, uint16_t ip_id, const uint8_t *hdr, size_t hdr_len,
	const struct rpwi_iov *parts, unsigned nparts, unsigned pad);

enum rpwi_icrc_verdict {
	RPWI_ICRC_OK,
	RPWI_ICRC_OK_ID /* right with another ID than expected, see *ip_id */,
	RPWI_ICRC_BAD
};
/* Check a received UDP payload (BTH .. ICRC, len >= 16). *ip_id: in, the ID expected (0 from
 * ropeway; the segment's index in a GRO batch); out, the ID that makes the ICRC right. On IPv6
 * there is no ID and OK_ID is never returned. */
enum rpwi_icrc_verdict rpwi_icrc_check_next(
	struct rpwi_icrc_run *run, const uint8_t *data, size_t len, uint16_t *ip_id);
enum rpwi_icrc_verdict rpwi_icrc_check(
	const struct rpwi_flow *flow, const uint8_t *data, size_t len, uint16_t *ip_id);

/* The change that made an ICRC bad. CRC is linear, so the effect of another address or
 * port in the pseudo header can be solved for.
 * - The source port that makes it right, with the ID given and all else in `flow` as it is. False:
 *   there is none (of random damage that is found with a chance of 2^-16).
 * - IPv4: the source (or destination) address that makes it right: there is always exactly one, so
 *   it means something only where it is one that was to be expected, or comes twice.
 * - One bit, wherever in the packet: it was damaged. The same bit of packets of one length makes
 *   the same address twice. */
bool rpwi_icrc_is_one_bit(
	const struct rpwi_flow *flow, const uint8_t *data, size_t len, uint16_t ip_id);
bool rpwi_icrc_solve_port(const struct rpwi_flow *flow, const uint8_t *data, size_t len,
	uint16_t ip_id, uint16_t *sport);
bool rpwi_icrc_solve_addr(const struct rpwi_flow *flow, const uint8_t *data, size_t len,
	uint16_t ip_id, bool of_dst, struct rpwi_addr *addr);

#endif
