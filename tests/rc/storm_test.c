/* SPDX-License-Identifier: BSD-3-Clause */
/* All operations, both ways, a bad wire, for a little while; the simulator (tests/rc/sim) does it
 * at length. */
#include "rc/internal.h"
#include "wire_pair.h"

static struct rng rng;
static uint32_t rnd(uint32_t n) { return (uint32_t)rng_below(&rng, n); }

struct want {
	enum ibv_wr_opcode op;
	uint32_t off, roff, len;
	uint64_t add;
};

static void storm(uint64_t seed)
{
	enum { OPS = 40, SLOT = 16384, PCT = 10 };
	static struct want want[2][OPS];
	static uint8_t *shadow[2];
	unsigned posted[2] = {0}, sends[2] = {0};
	uint64_t sum[2] = {0};

	rng.state = seed;
	pair(CONFIG(.send_wr = 16, .recv_wr = 64, .rd = 1 + rnd(5), .cwnd = 4 + rnd(60),
		.rnr_retry = 7, .rnr_timer = 1));
	for (int i = 0; i < 2; i++) {
		memset(S[i].mem + MEM - 8, 0, 8); /* the counter */
		shadow[i] = malloc(MEM);
		memcpy(shadow[i], S[i].mem, MEM);
	}
	/* Each operation k of side i has slot k: the first half of memory is a source, the second
	 * half a target; OPS slots of 8 KiB fit each. */
	for (long guard = 0;; guard++) {
		if (guard > 200000)
			fail_msg("it hangs");
		for (int i = 0; i < 2; i++) {
			if (posted[i] < OPS && rnd(3) == 0) {
				static const enum ibv_wr_opcode all[] = {IBV_WR_SEND,
					IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
					IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
					IBV_WR_ATOMIC_FETCH_AND_ADD};
				struct want w = {.op = all[rnd(6)],
					.off = posted[i] * 8192,
					.roff = MEM / 2 + posted[i] * 8192,
					.len = rnd(4) ? rnd(8192) : rnd(64),
					.add = 1 + rnd(1000)};
				int rc;
				if (w.op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
					rc = post_atomic(i, false, posted[i],
						MEM / 2 + OPS * 8192 + posted[i] * 8, MEM - 8,
						w.add, 0);
				} else {
					if (w.op == IBV_WR_RDMA_READ) {
						/* from the peer's source half into an own area
						 * behind all slots */
						w.len = RPWI_MIN(w.len, 2048u);
						w.off = MEM / 2 + OPS * 8192 + 512 +
							posted[i] * 2048;
						w.roff = posted[i] * 8192;
					}
					rc = post(i, w.op, posted[i], w.off, w.len, w.roff,
						SIG | (rnd(8) ? 0 : IBV_SEND_FENCE));
				}
				if (!rc) {
					if (w.op == IBV_WR_ATOMIC_FETCH_AND_ADD)
						sum[!i] += w.add;
					want[i][posted[i]++] = w;
				}
			}
			/* receives, sometimes late */
			unsigned need = 0;
			for (unsigned k = 0; k < posted[!i]; k++)
				need += want[!i][k].op == IBV_WR_SEND ||
					want[!i][k].op == IBV_WR_SEND_WITH_IMM ||
					want[!i][k].op == IBV_WR_RDMA_WRITE_WITH_IMM;
			if (sends[i] < need && rnd(2)) {
				/* the k-th receive belongs to the k-th such operation: its slot */
				unsigned seen = 0, k = 0;
				for (; k < posted[!i]; k++)
					if ((want[!i][k].op == IBV_WR_SEND ||
						    want[!i][k].op == IBV_WR_SEND_WITH_IMM ||
						    want[!i][k].op == IBV_WR_RDMA_WRITE_WITH_IMM) &&
						seen++ == sends[i])
						break;
				post_recv(i, 1000 + k, MEM / 2 + k * 8192, 8192);
				sends[i]++;
			}
			emit_held(i, rnd(2));
		}
		now += 1 + rnd(3000);
		/* some of the wire, badly */
		unsigned n = wire_n ? rnd(wire_n + 1) : 0;
		for (unsigned m = 0; m < n && wire_n; m++) {
			unsigned k = rnd(100) < PCT ? rnd(RPWI_MIN(wire_n, 4u)) : 0;
			uint32_t dice = rnd(100);
			if (dice >= PCT)
				deliver(&wire[k]);
			if (dice < PCT || dice >= 2 * PCT)
				take_off(k);
		}
		bool done = posted[0] == OPS && posted[1] == OPS && S[0].nwc - S[0].nrecv == OPS &&
			    S[1].nwc - S[1].nrecv == OPS && S[0].nrecv == sends[0] &&
			    S[1].nrecv == sends[1];
		if (done && !wire_n && !rpwi_qp_ack_owed(&S[0].qp) && !rpwi_qp_ack_owed(&S[1].qp))
			break;
		if (!wire_n && rnd(4) == 0)
			tick();
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(S[i].qp.state, IBV_QPS_RTS);
		unsigned send_seen = 0;
		for (unsigned k = 0; k < S[i].nwc; k++) {
			assert_int_equal(S[i].wc[k].status, IBV_WC_SUCCESS);
			if (!S[i].wc_recv[k]) {
				assert_int_equal(S[i].wc[k].wr_id, send_seen);
				send_seen++;
			} else {
				const struct want *w = &want[!i][S[i].wc[k].wr_id - 1000];
				assert_int_equal(S[i].wc[k].byte_len, w->len);
			}
		}
		assert_int_equal(*(uint64_t *)(S[i].mem + MEM - 8), sum[i]);
		for (unsigned k = 0; k < OPS; k++) {
			const struct want *w = &want[i][k];
			uint8_t *mine = S[i].mem, *theirs = S[!i].mem;
			if (w->op == IBV_WR_ATOMIC_FETCH_AND_ADD)
				continue;
			if (w->op == IBV_WR_RDMA_READ) {
				assert_memory_equal(mine + w->off, shadow[!i] + w->roff, w->len);
				continue;
			}
			assert_memory_equal(theirs + w->roff, shadow[i] + w->off, w->len);
			/* and not a byte more */
			assert_memory_equal(theirs + w->roff + w->len,
				shadow[!i] + w->roff + w->len, 8192 - w->len);
			assert_memory_equal(mine + k * 8192, shadow[i] + k * 8192, 8192);
		}
		/* alone it is lent nothing; one that was silent at the end counts nowhere */
		assert_int_equal(S[i].cc.lent, 0);
		assert_int_equal(S[i].cc.inflight,
			S[i].qp.window & RPWI_WINDOW_SILENT ? 0 : S[i].qp.nxt - S[i].qp.una);
	}
	free(shadow[0]);
	free(shadow[1]);
	unpair();
}

static void storms(void **state)
{
	FOR_SEEDS (s, 300)
		storm(s.seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(storms),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, wire_pair_setup, wire_pair_teardown);
}
