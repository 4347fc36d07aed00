/* SPDX-License-Identifier: BSD-3-Clause */
/* cq_too_small.c
 *
 * Public report: ROCm/TransferBench pull request #239 (2026). A benchmark hung in ibv_poll_cq once
 * it had many QPs. All of them share one CQ, every chunk is signaled, and the program polls after
 * it has posted everything. With few QPs the CQ is large enough, so small tests never showed it.
 *
 * The bug: more completions than the CQ has entries. A CQ that overruns loses completions or goes
 * into an error state, and the loop that counts them never ends. */
#include "plain.h"

enum { QPS = 16, CHUNKS = 64, ENTRIES = FIXED ? QPS * CHUNKS : 64, BYTES = 64 };

static void post_all(struct ibv_qp *qps[QPS], struct ibv_mr *from, const struct where *to)
{
	for (int k = 0; k < CHUNKS; k++)
		for (int i = 0; i < QPS; i++)
			if (post_bytes(qps[i], IBV_WR_RDMA_WRITE, from, 0, BYTES, to))
				die("ibv_post_send");
}

static void poll_all(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	for (int n = 0; n < QPS * CHUNKS; n++) {
		if (!completion(cq, &wc)) {
			printf("%d of %d completions\n", n, QPS * CHUNKS);
			exit(1);
		}
		if (wc.status) {
			printf("chunk %d: %s\n", n, ibv_wc_status_str(wc.status));
			exit(1);
		}
	}
}

int main(void)
{
	struct device d = {0};
	struct ibv_qp *sources[QPS], *targets[QPS];

	alarm(HANG_S);
	device_open(&d);
	struct ibv_cq *cq = cq_make(&d, ENTRIES, NULL), *unused = cq_make(&d, ENTRIES, NULL);
	struct ibv_mr *from = registered(&d, BYTES), *to = registered(&d, BYTES);
	const struct where there = {.address = (uintptr_t)to->addr, .rkey = to->rkey};
	for (int i = 0; i < QPS; i++) {
		sources[i] = qp_make(&d, IBV_QPT_RC, cq, cq, CHUNKS);
		targets[i] = qp_make(&d, IBV_QPT_RC, unused, unused, CHUNKS);
		rc_connect_two(&d, sources[i], targets[i]);
	}

	post_all(sources, from, &there);
	sleep(1);
	poll_all(cq);
	printf("all completions\n");

	for (int i = 0; i < QPS; i++)
		if (ibv_destroy_qp(sources[i]) || ibv_destroy_qp(targets[i]))
			die("ibv_destroy_qp");
	if (ibv_destroy_cq(cq) || ibv_destroy_cq(unused))
		die("ibv_destroy_cq");
	unregister(from);
	unregister(to);
	device_close(&d);
	return 0;
}
