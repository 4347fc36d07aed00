/* SPDX-License-Identifier: BSD-3-Clause */
/* words.c - see words.h. */
#include "cli/top/words.h"

#include <arpa/inet.h>

const char *top_type(unsigned type)
{
	static const char *const name[] = {
		[IBV_QPT_RC] = "RC", [IBV_QPT_UC] = "UC", [IBV_QPT_UD] = "UD"};
	return type < RPWI_ARRAY_LEN(name) && name[type] ? name[type] : "?";
}

const char *top_state(unsigned state)
{
	static const char *const name[] = {[IBV_QPS_RESET] = "RST",
		[IBV_QPS_INIT] = "INIT",
		[IBV_QPS_RTR] = "RTR",
		[IBV_QPS_RTS] = "RTS",
		[IBV_QPS_SQD] = "SQD",
		[IBV_QPS_SQE] = "SQE",
		[IBV_QPS_ERR] = "ERR"};
	return state < RPWI_ARRAY_LEN(name) ? name[state] : "?";
}

const char *top_address(const uint8_t gid[16], char out[TOP_CELL])
{
	struct in6_addr a;
	memcpy(&a, gid, sizeof(a));
	if (IN6_IS_ADDR_V4MAPPED(&a))
		inet_ntop(AF_INET, gid + 12, out, TOP_CELL);
	else
		inet_ntop(AF_INET6, gid, out, TOP_CELL);
	return out;
}

#define COUNT(name, count) \
	static uint64_t of_##name(const struct rpwi_qp_stats *n) { return count; }
COUNT(work_requests, top_work_requests(n))
COUNT(sends, n->done[IBV_WC_SEND])
COUNT(writes, n->done[IBV_WC_RDMA_WRITE])
COUNT(reads, n->done[IBV_WC_RDMA_READ])
COUNT(atomics, n->done[IBV_WC_COMP_SWAP] + n->done[IBV_WC_FETCH_ADD])
COUNT(receives, n->recvs)
COUNT(transmitted_bytes, top_figure(n, TOP_TX))
COUNT(received_bytes, top_figure(n, TOP_RX))
COUNT(transmitted_packets, n->tx_packets)
COUNT(received_packets, n->rx_packets)
COUNT(retries, n->retries)
COUNT(retransmitted_packets, n->retransmits)
COUNT(timeouts, n->timeouts)
COUNT(rnr_naks_sent, n->rnr_nak_tx)
COUNT(rnr_naks_received, n->rnr_nak_rx)
COUNT(sequence_naks_sent, n->seq_nak_tx)
COUNT(sequence_naks_received, n->seq_nak_rx)
COUNT(failed, n->failed)
COUNT(retry_exceeded, n->retry_exceeded)
COUNT(rnr_retry_exceeded, n->rnr_exceeded)
COUNT(duplicates, n->rx_duplicate)
COUNT(out_of_order, n->rx_out_of_order)
COUNT(bad_packets, top_bad_packets(n))
COUNT(dropped_without_receive, n->rx_no_rwqe)
COUNT(transmit_refused, n->tx_refused)

const struct top_count *top_count(unsigned i)
{
#define ROW(name, help) \
	{ \
#name, help, of_##name \
	}
	static const struct top_count all[] = {
		ROW(work_requests, "Work requests of send queues that completed well."),
		ROW(sends, "Of them SENDs."),
		ROW(writes, "Of them RDMA WRITEs."),
		ROW(reads, "Of them RDMA READs."),
		ROW(atomics, "Of them atomics."),
		ROW(receives, "Receives that were filled."),
		ROW(transmitted_bytes, "Payload sent, in bytes; what was sent again too."),
		ROW(received_bytes, "Payload received, in bytes; READs too."),
		ROW(transmitted_packets, "Packets sent, ACKs too."),
		ROW(received_packets, "Packets received, ACKs too."),
		ROW(retries, "Times that data was sent again from the peer's position."),
		ROW(retransmitted_packets, "Packets sent again."),
		ROW(timeouts, "Retries because nothing came within the timeout."),
		ROW(rnr_naks_sent, "RNR NAKs sent: no receive was posted here."),
		ROW(rnr_naks_received, "RNR NAKs received: no receive was posted at the peer."),
		ROW(sequence_naks_sent, "Sequence NAKs sent: a packet was missing here."),
		ROW(sequence_naks_received, "Sequence NAKs received."),
		ROW(failed, "Work requests and receives that ended with an error; none that were "
			    "flushed."),
		ROW(retry_exceeded, "Of them for want of an answer (retry_cnt)."),
		ROW(rnr_retry_exceeded, "Of them for RNR NAKs (rnr_retry)."),
		ROW(duplicates, "Request packets that came again."),
		ROW(out_of_order, "Packets that came before their turn."),
		ROW(bad_packets,
			"Packets with a wrong ICRC, opcode, length, Q_Key, peer or state."),
		ROW(dropped_without_receive, "UC and UD messages dropped: no receive was posted."),
		ROW(transmit_refused, "Batches of packets that Linux refused to send."),
	};
	return i < RPWI_ARRAY_LEN(all) ? &all[i] : NULL;
}
