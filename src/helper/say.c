/* SPDX-License-Identifier: BSD-3-Clause */
/* say.c - see say.h.
 *
 * What peers can be told. One of rdma_cm's gets DREQ (IB 12.6.9), whatever device it has. A RC QP
 * knows no "goodbye"; but a request that is never valid ends it: the responder answers with a NAK,
 * goes to the error state, flushes what is posted and raises an asynchronous event (IB 9.9.3.1,
 * classes C and D). It has to have the PSN that the responder expects, which lies between what was
 * acknowledged to the process that ended and what that one has sent last: each of them is tried, in
 * order. The request is a WRITE ONLY without a payload, of a length that no message may have, so
 * nothing is ever written by it.
 */
#include "say.h"

#include "device/gsi_priv.h"

enum {
	TOO_LONG = 0x80000001u, /* longer than a message may be: 2^31 (IB 9.4.3) */
	NO_RKEY = 0xffffffffu,
	PSNS_MAX = 256,
};
static const uint64_t OVER_FRESH_NS = 2 * RPWI_NS_PER_S;

static bool is_sane(const struct rpwi_addr *a) { return a->family == 4 || a->family == 6; }

static bool tell_cm(const struct ledger_cm *e, uint64_t now_ns)
{
	uint32_t id = atomic_load_explicit(&e->local_id, memory_order_acquire);
	uint64_t over = e->over_ns;
	struct rpwi_cm_path path = e->path;
	uint8_t mad[RPWI_MAD_LEN];
	if (!id || !is_sane(&path.local) || !is_sane(&path.remote) ||
		(over && now_ns - over > OVER_FRESH_NS))
		return false;
	struct rpwi_cm_msg m = {.attr = RPWI_CM_DREQ,
		.tid = (uint64_t)id << 32 | (uint32_t)over,
		.local_comm_id = id,
		.remote_comm_id = e->remote_id,
		.dreq.remote_qpn = e->remote_qpn & RPWI_QPN_MASK};
	rpwi_cm_encode(&m, mad);
	gsi_send(&path, mad);
	return true;
}

static bool tell_qp(const struct ledger_qp *e)
{
	uint32_t dqpn = atomic_load_explicit(&e->dqpn, memory_order_acquire);
	struct ledger_qp q = {.local = e->local,
		.remote = e->remote,
		.una = e->una,
		.next = e->next,
		.hop_limit = e->hop_limit,
		.tclass = e->tclass};
	if (!dqpn || dqpn > RPWI_QPN_MASK || !is_sane(&q.local) || !is_sane(&q.remote) ||
		q.local.family != q.remote.family)
		return false;
	uint32_t span = q.next - q.una;
	struct rpwi_pkt pkt = {.opcode = RPWI_SVC_RC | RPWI_OP_WRITE_ONLY,
		.ackreq = true,
		.migreq = true,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = dqpn,
		.rkey = NO_RKEY,
		.dma_len = TOO_LONG};
	for (uint32_t i = 0; i <= RPWI_MIN(span, (uint32_t)PSNS_MAX); i++) {
		pkt.psn = (q.una + i) & RPWI_PSN_MASK;
		gsi_send_packet(&q.local, &q.remote, q.hop_limit, q.tclass, &pkt);
	}
	return true;
}

unsigned say_farewell(const struct ledger *l, uint64_t now_ns, bool and_qps)
{
	unsigned told = 0;
	for (uint32_t i = 0; i < l->cms && i < LEDGER_CMS; i++)
		told += tell_cm(&l->cm[i], now_ns);
	for (uint32_t i = 0; and_qps && i < l->qps && i < LEDGER_QPS; i++)
		told += tell_qp(&l->qp[i]);
	return told;
}
