/* SPDX-License-Identifier: BSD-3-Clause */
/* farewell.c - see farewell.h.
 *
 * What peers can be told. One of rdma_cm's gets DREQ (IB 12.6.9), whatever device it has. A RC QP
 * knows no "goodbye"; but a request that is never valid ends it: the responder answers with a NAK,
 * goes to the error state, flushes what is posted and raises an asynchronous event (IB 9.9.3.1,
 * classes C and D). It has to have the PSN that the responder expects, which lies between what was
 * acknowledged to the process that ended and what that one has sent last: each of them is tried, in
 * order. The request is a WRITE ONLY without a payload, of a length that no message may have, so
 * nothing is ever written by it.
 */
#include "device/farewell.h"

#include <stdio.h>
#include <unistd.h>

enum {
	TRY_FIRST_NS = 2000000, /* a helper that has just been started needs some ms */
	TRY_MAX_NS = 100000000,
	TRIES_MAX = 24,         /* 2 s */
	STARTS_MAX = 8,         /* in the life of a process */
	TOO_LONG = 0x80000001u, /* longer than a message may be: 2^31 (IB 9.4.3) */
	NO_RKEY = 0xffffffffu,
	PSNS_MAX = 256,
};
static const uint64_t LOOK_NS = RPWI_NS_PER_S, OVER_FRESH_NS = 2 * RPWI_NS_PER_S;

/* Who touches it: `wanted` and `slot` anybody, the rest the service thread, or nobody else. */
static struct {
	_Atomic bool wanted, off;
	_Atomic uint16_t slot;
	int fd;
	unsigned tries, starts;
	uint32_t locals; /* that it has been told of */
	uint64_t due_ns;
	bool inherited;
} self = {.fd = -1, .due_ns = RPWI_NEVER};

void farewell_wanted(void)
{
	atomic_store(&self.wanted, true);
	service_wake();
}

uint16_t farewell_helper_slot(void) { return atomic_load(&self.slot); }

uint64_t farewell_deadline(void)
{
	if (atomic_load_explicit(&self.off, memory_order_relaxed))
		return RPWI_NEVER;
	return atomic_load_explicit(&self.wanted, memory_order_relaxed) ? 0 : self.due_ns;
}

void farewell_close(void)
{
	if (self.fd >= 0)
		close(self.fd);
	self.fd = -1;
	self.due_ns = RPWI_NEVER;
	self.tries = self.starts = 0;
	self.locals = 0;
	self.inherited = false;
	self.slot = 0;
	self.wanted = self.off = false;
	ledger_close();
}

void farewell_is_forked(void)
{
	if (self.fd < 0)
		return;
	self.inherited = true;
	atomic_store(&self.wanted, true);
}

static void give_up(int rc)
{
	static bool said;
	atomic_store(&self.off, true);
	if (!said)
		rpwi_info(
			"no helper (%s): if this process is killed, peers on other hosts learn it "
			"by asking",
			strerror(-rc));
	said = true;
}

static void look_again(uint64_t now_ns)
{
	uint64_t wait =
		RPWI_MIN((uint64_t)TRY_FIRST_NS << RPWI_MIN(self.tries, 6u), (uint64_t)TRY_MAX_NS);
	self.tries++;
	self.due_ns = now_ns + wait;
}

static void find_one(uint64_t now_ns)
{
	int fd = rpwi_helper_connect(), rc;
	if (fd >= 0) {
		rc = rpwi_helper_hello(fd, ledger_fd());
		if (!rc) {
			self.fd = fd;
			self.tries = 0;
			self.locals = ledger_locals();
			self.due_ns = now_ns + LOOK_NS / 20; /* for its slot */
			return;
		}
		close(fd);
		fd = rc;
	}
	if (fd == -EPERM || self.tries > TRIES_MAX) {
		give_up(fd);
		return;
	}
	if (fd == -ECONNREFUSED && self.tries % 8 == 0) {
		rc = self.starts++ < STARTS_MAX ? rpwi_helper_start() : -EAGAIN;
		if (rc) {
			give_up(rc);
			return;
		}
	}
	look_again(now_ns);
}

static void hear_it(uint64_t now_ns)
{
	uint16_t slot = self.slot;
	int rc;
	while ((rc = rpwi_helper_hear(self.fd, &slot)) > 0)
		atomic_store(&self.slot, slot);
	self.due_ns = now_ns + LOOK_NS;
	if (!rc)
		return;
	rpwi_debug("the helper has ended: another is started");
	close(self.fd);
	self.fd = -1;
	self.slot = 0;
	self.due_ns = now_ns;
}

void farewell_tend(uint64_t now_ns)
{
	bool wanted = atomic_exchange(&self.wanted, false);
	if (ledger_fd() < 0 || atomic_load(&self.off))
		return;
	if (self.fd >= 0) {
		hear_it(now_ns);
		if (self.fd >= 0 && self.inherited) {
			rpwi_helper_hello(self.fd, ledger_fd());
			self.inherited = false;
		} else if (self.fd >= 0 && wanted && self.locals != ledger_locals()) {
			if (!rpwi_helper_nudge(self.fd))
				self.locals = ledger_locals();
		}
	}
	if (self.fd < 0)
		find_one(now_ns);
}

/* ---- in the helper ---- */

bool farewell_is_helper;

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

unsigned farewell_say(const struct ledger *l, uint64_t now_ns, bool and_qps)
{
	unsigned told = 0;
	for (uint32_t i = 0; i < l->cms && i < LEDGER_CMS; i++)
		told += tell_cm(&l->cm[i], now_ns);
	for (uint32_t i = 0; and_qps && i < l->qps && i < LEDGER_QPS; i++)
		told += tell_qp(&l->qp[i]);
	return told;
}
