/* SPDX-License-Identifier: BSD-3-Clause */
/* stats.c - the statistics of the process, as text. */
#include <unistd.h>

#include "device/alive.h"
#include "device/fault.h"
#include "device/gsi_priv.h"
#include "device/mcast.h"
#include "device/tally.h"

void rpwi_dev_stats_print(FILE *to)
{
	struct hca *h = &hca_here;
	hca_lock();
	struct rpwi_qp_stats s = h->gone;
	tally_sum(&s);
	for (unsigned i = 0; i < h->nslots; i++)
		for (unsigned j = 0; h->qps[i] && j < RPWI_SLOT_QPNS; j++)
			if (h->qps[i][j]) {
				qp_hold(h->qps[i][j]);
				rpwi_counts_add(&s, &h->qps[i][j]->t.stats);
			}
	struct hca_counters n = h->n;
	struct rpwi_port_stats ports = h->ports_gone;
	struct rpwi_lane_stats lanes = h->lanes_gone;
	for (unsigned i = 0; i < h->nports; i++)
		if (h->port[i].refs)
			port_stats_add(h->port[i].io, &ports);
	hca_lane_stats_add(&lanes);
	hca_unlock();
	const struct {
		const char *name;
		uint64_t v;
	} rows[] = {
		{"packets sent", s.tx_packets},
		{"payload bytes sent", s.tx_bytes},
		{"packets received", s.rx_packets},
		{"payload bytes received", s.rx_bytes},
		{"packets sent again", s.retransmits},
		{"probes after a silence", s.probes},
		{"time-outs", s.timeouts},
		{"RNR NAKs sent", s.rnr_nak_tx},
		{"RNR NAKs received", s.rnr_nak_rx},
		{"sequence NAKs sent", s.seq_nak_tx},
		{"sequence NAKs received", s.seq_nak_rx},
		{"duplicates received", s.rx_duplicate},
		{"out of order received", s.rx_out_of_order},
		{"from a wrong peer", s.rx_wrong_peer},
		{"in a wrong state", s.rx_wrong_state},
		{"bad opcode or length", s.rx_bad_opcode + s.rx_bad_length},
		{"bad Q_Key", s.rx_bad_qkey},
		{"no receive posted (UC, UD)", s.rx_no_rwqe},
		{"ICRC errors", n.icrc_errors},
		{"undecodable", n.decode_errors},
		{"for an unknown QP", n.no_qp},
		{"handed to another process", n.handed_over},
		{"of them lost", ports.hand_over_lost},
		{"handed to us by others", ports.taken_over},
		{"port group learned anew", ports.resteered},
		{"lost in a full socket", ports.rx_overflow},
		{"refused when sent", ports.tx_refused},
		{"too big for the path", n.path[RPWI_PATH_TOO_BIG]},
		{"hop limit used up", n.path[RPWI_PATH_HOPS]},
		{"port unreachable", n.path[RPWI_PATH_NO_PORT]},
		{"host unreachable", n.path[RPWI_PATH_NO_HOST]},
		{"rejected by a firewall", n.path[RPWI_PATH_FORBIDDEN]},
		{"changed by a NAT", n.path[RPWI_PATH_NAT]},
		{"lost for their size", n.path[RPWI_PATH_SIZE_LOST]},
		{"UDP port held by another", n.path_held},
		{"ICMP not believed", n.icmp_unbelieved + ports.icmp_lost},
		{"CQ overruns", n.cq_overflows},
		{"pacing stalls (UC, UD)", n.pace_stalls},
		{"sent through memory", lanes.tx_packets},
		{"of them by reference", lanes.tx_refs},
		{"received through memory", lanes.rx_packets},
		{"of them not to be fetched", lanes.rx_lost},
		{"of them with a wake-up", lanes.wakes},
		{"waits for room there", lanes.stalls},
		{"hosts asked whether peers live", alive_stats()->asked},
		{"answers to that", alive_stats()->answers},
		{"peers that had ended", alive_stats()->gone},
		{"READ from the peer's memory", s.reads_alone},
		{"written into a stopped peer's", s.writes_alone},
		{"receive batches", n.rx_batches},
		{"send batches", n.tx_batches},
		{"inline polls", n.inline_polls},
		{"of them in vain", n.inline_empty},
		{"service thread wake-ups", n.service_wakeups},
	};
	fprintf(to, "ropeway: statistics of process %d\n", (int)getpid());
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rows); i++)
		fprintf(to, "  %-28s %llu\n", rows[i].name, (unsigned long long)rows[i].v);
	hca_lock();
	for (struct rpwi_list *l = h->peers.next; l != &h->peers; l = l->next) {
		const struct rpwi_cc *cc = &RPWI_CONTAINER_OF(l, struct dpeer, link)->cc;
		fprintf(to,
			"  window of a peer process: %u packets (at most %u), in flight %u, round "
			"trip %.1f us, halved %llu times\n",
			cc->cwnd, cc->cwnd_max, cc->inflight, (double)cc->srtt_ns / 1000,
			(unsigned long long)cc->losses);
	}
	mcast_stats_print(to);
	gsi_stats_print(to);
	hca_unlock();
	rpwi_plan_print(to);
	for (int k = 1; k < RPWI_NAK_COUNT; k++)
		fprintf(to, "  NAKs \"%s\": sent %llu, received %llu\n", rpwi_nak_name[k],
			(unsigned long long)s.nak_tx[k], (unsigned long long)s.nak_rx[k]);
}
