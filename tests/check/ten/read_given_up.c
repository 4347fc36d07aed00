/* SPDX-License-Identifier: BSD-3-Clause */
/* read_given_up.c
 *
 * Public report: novitalabs/pegaflow issue #403 (2026). A fetch by RDMA READ has a time limit.
 * When it passes, the fetch returns its buffers to the pool, which gives them to others, while the
 * READs are still posted. A peer that stalls and recovers then writes into memory that belongs to
 * another request. Nothing fails: the data of that request is silently wrong.
 *
 * The bug: a time limit of the program does not take the work request back. The buffer is in use
 * until the completion, or until the QP is in the error state and its CQ is empty. Here the peer
 * stalls before it is ready to receive; the device repeats the READ until then. */
#include "plain.h"

enum { BYTES = 4096, LIMIT_MS = 200 };

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
};

static void end_open(struct end *e, struct device *d, char fill)
{
	e->cq = cq_make(d, 16, NULL);
	e->qp = qp_make(d, IBV_QPT_RC, e->cq, e->cq, 4);
	e->mr = registered(d, (size_t)2 * BYTES);
	memset(e->mr->addr, fill, BYTES);
	rc_to_init(e->qp);
}

static struct where place(const struct end *e, const struct device *d, uint32_t psn)
{
	return (struct where){.gid = d->gid,
		.qpn = e->qp->qp_num,
		.psn = psn,
		.rkey = e->mr->rkey,
		.address = (uintptr_t)e->mr->addr};
}

static void end_close(struct end *e)
{
	if (ibv_destroy_qp(e->qp) || ibv_destroy_cq(e->cq))
		die("the end");
	unregister(e->mr);
}

/* False: the time limit passed. */
static bool fetch(struct end *e, const struct where *from)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	struct ibv_wc wc;

	if (post_bytes(e->qp, IBV_WR_RDMA_READ, e->mr, 0, BYTES, from))
		die("ibv_post_send");
	for (int ms = 0; ms < LIMIT_MS; ms++) {
		if (ibv_poll_cq(e->cq, 1, &wc) > 0)
			return wc.status == IBV_WC_SUCCESS;
		nanosleep(&nap, NULL);
	}
	return false;
}

/* The next request gets a buffer that is free; returns it. */
static const char *next_request(struct end *e)
{
	const size_t at = FIXED ? BYTES : 0;
	char *memory = (char *)e->mr->addr + at;

	memset(memory, 'n', BYTES);
	if (post_bytes(e->qp, IBV_WR_SEND, e->mr, at, BYTES, NULL))
		die("ibv_post_send");
	return memory;
}

int main(void)
{
	struct device d = {0};
	struct end reader, peer;

	alarm(HANG_S);
	device_open(&d);
	end_open(&reader, &d, 'r');
	end_open(&peer, &d, 'p');
	post_receive(peer.qp, peer.mr, BYTES, BYTES);
	const struct where at_reader = place(&reader, &d, 100), at_peer = place(&peer, &d, 200);
	rc_to_rts(reader.qp, at_reader.psn, &at_peer);

	printf("the fetch %s\n", fetch(&reader, &at_peer) ? "succeeded" : "took too long");
	const char *next = next_request(&reader);
	rc_to_rts(peer.qp, at_peer.psn, &at_reader);
	succeeded(reader.cq, "the late completion");
	succeeded(reader.cq, "the next request");
	succeeded(peer.cq, "the next request's receive");
	printf("the next request's buffer: '%.8s...'\n", next);

	end_close(&reader);
	end_close(&peer);
	device_close(&d);
	return 0;
}
