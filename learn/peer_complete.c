/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_complete.c - completions of sends and receives, and flushed ones. */
#include "peer.h"

static const char *const work_names[] = {
	[WORK_RECEIVE] = "a receive",
	[WORK_MR] = "the send of our MR",
	[WORK_RDMA] = "the RDMA operation on the peer's memory",
	[WORK_DONE] = "the send of our DONE",
	[WORK_TEXT] = "the send of our text",
};

/* A work request that was not carried out since the queue pair is in the error state. Never passed
 * over in silence: whoever sees status 5 has to know what took the queue pair there. */
static void flushed(struct peer *p, enum work work)
{
	if (p->ended == ENDED_NOT)
		peer_abort(p,
			"%s was flushed, but no side has disconnected and nothing failed before: "
			"the device took the queue pair to the error state",
			work_names[work]);
	else if (p->failed || !flush_is_normal(p->ended, talk_may_leave(p)))
		printf("    %s was flushed, because: %s\n", work_names[work], p->cause);
}

static void work_failed(struct peer *p, enum work work, enum ibv_wc_status status)
{
	enum ended was = p->ended;

	peer_abort(p, "%s failed (%s)", work_names[work], ibv_wc_status_str(status));
	if (was == ENDED_NOT) /* what is flushed now is so because of this */
		p->ended = ENDED_BY_ERROR;
}

static void received(struct peer *p, const uint8_t *in, uint32_t bytes)
{
	struct message m;
	enum wire_fault fault = wire_get(in, bytes, &m);

	if (fault)
		peer_abort(
			p, "a message of %u bytes was refused: %s", bytes, wire_fault_text(fault));
	else
		talk_received(p, &m);
}

static void take_completion(struct peer *p, const struct ibv_wc *wc)
{
	enum work work = (enum work)(wc->wr_id >> 32);

	if (work == WORK_RECEIVE)
		p->receives_out--;
	else
		p->sends_out--;
	if (p->loop->verbose || wc->status != IBV_WC_SUCCESS)
		printf("wc->status = %d (%s)\n", wc->status, ibv_wc_status_str(wc->status));
	/* Only wr_id and status count in a completion that failed (ibv_poll_cq(3)). */
	if (wc->status == IBV_WC_WR_FLUSH_ERR) {
		flushed(p, work);
		return;
	}
	if (wc->status != IBV_WC_SUCCESS) {
		work_failed(p, work, wc->status);
		return;
	}
	peer_enter(p, p->phase);
	if (work == WORK_RECEIVE) {
		received(p, p->in[(uint32_t)wc->wr_id], wc->byte_len);
		return;
	}
	if (work != WORK_RDMA)
		puts("send completed successfully.");
	talk_sent(p, work);
}

void look_for_end(struct peer *p)
{
	if (p->phase == PHASE_END && p->disconnected && !p->sends_out && !p->receives_out)
		p->phase = PHASE_OVER;
}

/* The order matters: ask for the next note first, look into the queue then. A completion between
 * the two is seen either way; the other way round it would be lost until the next
 * (ibv_get_cq_event(3)). */
void take_completions(struct peer *p)
{
	bool sound = true;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;
	int n;

	while (!ibv_get_cq_event(p->channel, &cq, &context)) {
		ibv_ack_cq_events(cq, 1);
		sound &= succeeded(ibv_req_notify_cq(cq, 0));
	}
	while ((n = ibv_poll_cq(p->cq, 1, &wc)) > 0) {
		take_completion(p, &wc);
		/* Not before ESTABLISHED: on the side that accepts, a receive may complete earlier,
		 * since the peer's first message serves the device as well as the RTU that it
		 * overtook (IB 12.9.7, Communication Established); its content counts, but this
		 * side sends nothing yet (rdma_accept(3)). */
		if (p->phase == PHASE_TALK)
			talk_advance(p);
	}
	if (n < 0 || !sound)
		peer_abort(p, "its completion queue cannot be read: the device is at fault");
	look_for_end(p);
}
