/* SPDX-License-Identifier: BSD-3-Clause */
/* stats.c - the statistics of the process, as text. */
#include <stddef.h>
#include <unistd.h>

#include "device/alive.h"
#include "device/fault.h"
#include "device/gsi_priv.h"
#include "device/mcast.h"
#include "device/ports.h"
#include "device/tally.h"

/* All that is counted, of QPs, ports and lanes that are there and of those that were. */
struct sums {
	struct rpwi_qp_stats qps;
	struct hca_counters n;
	struct rpwi_port_stats ports;
	struct rpwi_lane_stats lanes;
	struct alive_stats alive;
};

#define AT(member) offsetof(struct sums, member) / sizeof(uint64_t)
static const struct row {
	const char *name;
	size_t at;
} rows[] = {
	{"packets sent", AT(qps.tx_packets)},
	{"payload bytes sent", AT(qps.tx_bytes)},
	{"packets received", AT(qps.rx_packets)},
	{"payload bytes received", AT(qps.rx_bytes)},
	{"packets sent again", AT(qps.retransmits)},
	{"probes after a silence", AT(qps.probes)},
	{"time-outs", AT(qps.timeouts)},
	{"RNR NAKs sent", AT(qps.rnr_nak_tx)},
	{"RNR NAKs received", AT(qps.rnr_nak_rx)},
	{"sequence NAKs sent", AT(qps.seq_nak_tx)},
	{"sequence NAKs received", AT(qps.seq_nak_rx)},
	{"duplicates received", AT(qps.rx_duplicate)},
	{"out of order received", AT(qps.rx_out_of_order)},
	{"from a wrong peer", AT(qps.rx_wrong_peer)},
	{"in a wrong state", AT(qps.rx_wrong_state)},
	{"bad opcode or length", AT(qps.rx_bad_opcode)},
	{"bad Q_Key", AT(qps.rx_bad_qkey)},
	{"no receive posted (UC, UD)", AT(qps.rx_no_rwqe)},
	{"ICRC errors", AT(n.icrc_errors)},
	{"undecodable", AT(n.decode_errors)},
	{"for an unknown QP", AT(n.no_qp)},
	{"handed to another process", AT(n.handed_over)},
	{"of them lost", AT(ports.hand_over_lost)},
	{"handed to us by others", AT(ports.taken_over)},
	{"port group learned anew", AT(ports.resteered)},
	{"lost in a full socket", AT(ports.rx_overflow)},
	{"refused when sent", AT(ports.tx_refused)},
	{"too big for the path", AT(n.path[RPWI_PATH_TOO_BIG])},
	{"hop limit used up", AT(n.path[RPWI_PATH_HOPS])},
	{"port unreachable", AT(n.path[RPWI_PATH_NO_PORT])},
	{"host unreachable", AT(n.path[RPWI_PATH_NO_HOST])},
	{"rejected by a firewall", AT(n.path[RPWI_PATH_FORBIDDEN])},
	{"changed by a NAT", AT(n.path[RPWI_PATH_NAT])},
	{"lost for their size", AT(n.path[RPWI_PATH_SIZE_LOST])},
	{"UDP port held by another", AT(n.path_held)},
	{"ICMP not believed", AT(n.icmp_unbelieved)},
	{"CQ overruns", AT(n.cq_overflows)},
	{"pacing stalls (UC, UD)", AT(n.pace_stalls)},
	{"sent through memory", AT(lanes.tx_packets)},
	{"of them by reference", AT(lanes.tx_refs)},
	{"received through memory", AT(lanes.rx_packets)},
	{"of them not to be fetched", AT(lanes.rx_lost)},
	{"of them with a wake-up", AT(lanes.wakes)},
	{"waits for room there", AT(lanes.stalls)},
	{"hosts asked whether peers live", AT(alive.asked)},
	{"answers to that", AT(alive.answers)},
	{"peers that had ended", AT(alive.gone)},
	{"READ from the peer's memory", AT(qps.reads_alone)},
	{"written into a stopped peer's", AT(qps.writes_alone)},
	{"receive batches", AT(n.rx_batches)},
	{"send batches", AT(n.tx_batches)},
	{"inline polls", AT(n.inline_polls)},
	{"of them in vain", AT(n.inline_empty)},
	{"service thread wake-ups", AT(n.service_wakeups)},
};

static void sums_take(struct sums *s)
{
	struct hca *h = &hca_here;
	hca_lock();
	*s = (struct sums){.qps = h->gone,
		.n = h->n,
		.ports = h->ports_gone,
		.lanes = h->lanes_gone,
		.alive = *alive_stats()};
	tally_sum(&s->qps);
	for (unsigned i = 0; i < h->nports; i++)
		if (h->port[i].refs)
			port_stats_add(h->port[i].io, &s->ports);
	hca_lane_stats_add(&s->lanes);
	hca_unlock();
	/* two rows are of two counters */
	s->qps.rx_bad_opcode += s->qps.rx_bad_length;
	s->n.icmp_unbelieved += s->ports.icmp_lost;
}

static void rows_print(FILE *to, const struct sums *s)
{
	const uint64_t *counters = (const uint64_t *)(const void *)s;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rows); i++)
		fprintf(to, "  %-28s %llu\n", rows[i].name,
			(unsigned long long)counters[rows[i].at]);
}

static void windows_print(FILE *to)
{
	struct rpwi_list *peers = &hca_here.peers;
	for (struct rpwi_list *l = peers->next; l != peers; l = l->next) {
		const struct rpwi_cc *cc = &RPWI_CONTAINER_OF(l, struct dpeer, link)->cc;
		fprintf(to,
			"  window of a peer process: %u packets (at most %u), in flight %u, round "
			"trip %.1f us, halved %llu times\n",
			cc->cwnd, cc->cwnd_max, cc->inflight, (double)cc->srtt_ns / 1000,
			(unsigned long long)cc->losses);
	}
}

void rpwi_dev_stats_print(FILE *to)
{
	struct sums s;
	sums_take(&s);
	fprintf(to, "ropeway: statistics of process %d\n", (int)getpid());
	rows_print(to, &s);
	hca_lock();
	windows_print(to);
	mcast_stats_print(to);
	gsi_stats_print(to);
	hca_unlock();
	rpwi_plan_print(to);
	for (int k = 1; k < RPWI_NAK_COUNT; k++)
		fprintf(to, "  NAKs \"%s\": sent %llu, received %llu\n", rpwi_nak_name[k],
			(unsigned long long)s.qps.nak_tx[k], (unsigned long long)s.qps.nak_rx[k]);
}
