/* SPDX-License-Identifier: BSD-3-Clause */
/* cc.c - the congestion window of one peer process, in packets: slow start, additive increase, a
 * half on loss.
 *
 * It guards that process's socket buffer rather than a network: what overruns it is lost in bursts,
 * and go-back-N sends it all again. Only a peer that answers makes it smaller: a time-out is of one
 * QP, and limits that one (window.c). cwnd_max, chosen by the device from the size of such a
 * buffer, keeps two ropeways from ever losing anything on one host.
 */
#include "rc/rc.h"

enum {
	LENT_PART = 4,
	CWND_FLOOR = 4,           /* of a halving: less would only wait for ACKs */
	SILENCE_MIN_NS = 2000000, /* a process may not run for so long on a busy machine */
	SILENCE_UNKNOWN_NS = 8000000,
	RECOVERY_MIN_NS = 50000, /* where no round trip is known yet */
};

uint32_t rpwi_cc_window(unsigned mtu_bytes, size_t rcvbuf_bytes)
{
	static const struct {
		unsigned mtu;
		uint32_t pkts;
	} table[] = {{256, 400}, {512, 300}, {1024, 180}, {2048, 110}, {4096, 75}};
	uint32_t pkts = 400;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(table); i++)
		if (mtu_bytes >= table[i].mtu)
			pkts = table[i].pkts;
	/* Not more than twice that: packets that wait in a socket fall out of the cache. */
	return (uint32_t)(pkts * (uint64_t)RPWI_MIN(rcvbuf_bytes, (size_t)2 * 425984) / 425984);
}

void rpwi_cc_at_most(struct rpwi_cc *cc, uint32_t cwnd_max)
{
	cc->cwnd_max = RPWI_MIN(cc->cwnd_max, RPWI_MAX(cwnd_max, 1u));
	cc->cwnd = RPWI_MIN(cc->cwnd, cc->cwnd_max);
	cc->lent_max = RPWI_MAX(cc->cwnd_max / LENT_PART, 1u);
}

void rpwi_cc_init(struct rpwi_cc *cc, uint32_t cwnd_initial, uint32_t cwnd_max)
{
	memset(cc, 0, sizeof(*cc));
	cc->silence_ns = SILENCE_UNKNOWN_NS;
	cc->cwnd_max = RPWI_MAX(cwnd_max, 1);
	cc->cwnd = RPWI_MIN(RPWI_MAX(cwnd_initial, 1), cc->cwnd_max);
	cc->ssthresh = cc->cwnd_max;
	rpwi_cc_at_most(cc, cc->cwnd_max);
}

void rpwi_cc_on_ack(struct rpwi_cc *cc, uint32_t pkts, uint64_t now_ns)
{
	/* a window that is not used says nothing about the path */
	bool in_use = cc->inflight * 2 >= cc->cwnd;

	cc->heard_ns = now_ns;
	rpwi_cc_on_forget(cc, pkts);
	if (cc->cwnd >= cc->cwnd_max || !in_use)
		return;
	if (cc->cwnd < cc->ssthresh) {
		cc->cwnd = RPWI_MIN(cc->cwnd + pkts, RPWI_MIN(cc->ssthresh, cc->cwnd_max));
		return;
	}
	cc->acked_partial += pkts;
	if (cc->acked_partial >= cc->cwnd) {
		cc->acked_partial -= cc->cwnd;
		cc->cwnd++;
	}
}

void rpwi_cc_on_forget(struct rpwi_cc *cc, uint32_t pkts)
{
	assert(pkts <= cc->inflight);
	cc->inflight -= pkts;
}

void rpwi_cc_on_rtt(struct rpwi_cc *cc, uint64_t sample_ns)
{
	if (!cc->rtt_min_ns || sample_ns < cc->rtt_min_ns) {
		cc->rtt_min_ns = sample_ns;
		cc->silence_ns = 2 * sample_ns + SILENCE_MIN_NS;
	}
	cc->srtt_ns = cc->srtt_ns ? cc->srtt_ns - cc->srtt_ns / 8 + sample_ns / 8 : sample_ns;
}

void rpwi_cc_on_loss(struct rpwi_cc *cc, uint64_t now_ns)
{
	cc->losses++;
	if (now_ns < cc->recovery_until_ns)
		return;
	cc->ssthresh = RPWI_MIN(RPWI_MAX(cc->cwnd / 2, CWND_FLOOR), cc->cwnd_max);
	cc->cwnd = RPWI_MIN(cc->cwnd, cc->ssthresh);
	cc->recovery_until_ns = now_ns + RPWI_MAX(cc->srtt_ns, RECOVERY_MIN_NS);
	cc->acked_partial = 0;
}
