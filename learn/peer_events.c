/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_events.c - what comes back on a connection: completions, events of rdma_cm, and deadlines
 * that pass; and so how it ends. */
#include "peer.h"

/* ---- completions ---- */

static void print_status(const struct ibv_wc *wc)
{
	printf("wc->status = %d (%s)\n", wc->status, ibv_wc_status_str(wc->status));
}

static const char *work_text(enum work work)
{
	static const char *const texts[] = {
		[WORK_RECEIVE] = N_("a receive"),
		[WORK_MR] = N_("the send of our MR"),
		[WORK_RDMA] = N_("the RDMA operation on the peer's memory"),
		[WORK_DONE] = N_("the send of our DONE"),
		[WORK_TEXT] = N_("the send of our text"),
	};

	return _(texts[work]);
}

/* A work request that was not carried out since the queue pair is in the error state. Never passed
 * over in silence: whoever sees status 5 has to know what took the queue pair there. */
static void flushed(struct peer *p, enum work work)
{
	if (p->ended == ENDED_NOT)
		peer_abort(p,
			"%s was flushed, but no side has disconnected and nothing failed before: "
			"the device took the queue pair to the error state",
			work_text(work));
	else if (p->failed || !flush_is_normal(p->ended, !p->left_early))
		say("%s was flushed, because: %s", work_text(work), p->cause);
}

static void work_failed(struct peer *p, enum work work, enum ibv_wc_status status)
{
	enum ended was = p->ended;

	peer_abort(p, "%s failed (%s)", work_text(work), ibv_wc_status_str(status));
	if (was == ENDED_NOT) /* what is flushed now is so because of this */
		p->ended = ENDED_BY_ERROR;
}

static void take_message(struct peer *p, const uint8_t *in, uint32_t bytes)
{
	struct message m;
	enum wire_fault fault = wire_get(in, bytes, &m);

	if (fault)
		peer_abort(p, "a message of %u bytes was refused: %s", bytes,
			_(wire_fault_text(fault)));
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
	if (p->options->verbose || wc->status != IBV_WC_SUCCESS)
		print_status(wc);
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
		take_message(p, p->in[(uint32_t)wc->wr_id], wc->byte_len);
	} else {
		if (work != WORK_RDMA)
			tell("send completed successfully.");
		talk_sent(p, work);
	}
}

static void look_for_end(struct peer *p)
{
	if (p->phase == PHASE_END && p->disconnected && !p->sends_out && !p->receives_out)
		p->phase = PHASE_OVER;
}

/* The order matters: ask for the next note first, look into the queue then. A completion between
 * the two is seen either way; the other way round it would be lost until the next
 * (ibv_get_cq_event(3)). */
void take_completions(struct peer *p)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;
	int n;

	while (!ibv_get_cq_event(p->channel, &cq, &context)) {
		ibv_ack_cq_events(cq, 1);
		if (!succeeded(ibv_req_notify_cq(cq, 0)))
			peer_abort(
				p, "its completion queue cannot be armed: the device is at fault");
	}
	while ((n = ibv_poll_cq(p->cq, 1, &wc)) > 0) {
		take_completion(p, &wc);
		talk_advance(p);
	}
	if (n < 0)
		peer_abort(p, "its completion queue cannot be read: the device is at fault");
	look_for_end(p);
}

/* ---- the end ---- */

/* The peer was faster. Either it had all that it wanted of us, and then so have we of it; or it
 * broke off. */
static void has_left(struct peer *p)
{
	p->ended = ENDED_BY_PEER;
	p->left_early = !talk_may_leave(p);
	if (p->left_early)
		peer_abort(p,
			"the peer disconnected too early (RDMA_CM_EVENT_DISCONNECTED): this side "
			"was waiting for %s",
			talk_waits_for(p));
	else
		talk_conclude(p);
}

static void disconnected(struct peer *p, const struct rdma_cm_event *event)
{
	bool by_us;

	/* What was completed before counts, though its note may still lie in the queue. */
	take_completions(p);
	p->disconnected = true;
	if (p->phase != PHASE_END)
		has_left(p);
	/* Who speaks of it depends on who began: as a rule the client leaves and the server
	 * notices. */
	by_us = p->failed ? p->ended != ENDED_BY_PEER : !p->options->server;
	tell(by_us ? N_("disconnected.") : N_("peer disconnected."));
	peer_leave(p, ENDED_BY_PEER);
	look_for_end(p);
}

static void end_is_late(struct peer *p)
{
	if (!p->disconnected)
		peer_abort(p,
			"no answer to our disconnect within %u s (no RDMA_CM_EVENT_DISCONNECTED)",
			p->options->wait_s);
	else
		peer_abort(p,
			"%u work requests were not flushed within %u s: the device is at fault",
			p->sends_out + p->receives_out, p->options->wait_s);
	p->phase = PHASE_OVER;
}

void take_lateness(struct peer *p)
{
	static const char *const awaited[] = {
		[PHASE_ADDRESS] = N_("the device that leads there (RDMA_CM_EVENT_ADDR_RESOLVED)"),
		[PHASE_ROUTE] = N_("the route (RDMA_CM_EVENT_ROUTE_RESOLVED)"),
		[PHASE_CONNECT] = N_("an answer to our connection request "
				     "(RDMA_CM_EVENT_ESTABLISHED or REJECTED)"),
		[PHASE_ACCEPT] = N_("the last step of the handshake, after we accepted "
				    "(RDMA_CM_EVENT_ESTABLISHED)"),
	};

	if (p->phase == PHASE_END)
		end_is_late(p);
	else
		peer_abort(p, "waited %u s in vain for %s", p->options->wait_s,
			p->phase == PHASE_TALK ? talk_waits_for(p) : _(awaited[p->phase]));
}

/* ---- events of rdma_cm ---- */

static void out_of_place(struct peer *p, const struct rdma_cm_event *event)
{
	peer_abort(p, "an event came that does not belong here: %s, status %d",
		rdma_event_str(event->event), event->status);
}

static void device_removed(struct peer *p, const struct rdma_cm_event *event)
{
	peer_abort(p, "the device was removed (RDMA_CM_EVENT_DEVICE_REMOVAL)");
}

static void nothing(struct peer *p, const struct rdma_cm_event *event) {}

/* Of the client, then of the server, then of both. */
static void (*const steps[])(struct peer *p, const struct rdma_cm_event *event) = {
	[RDMA_CM_EVENT_ADDR_RESOLVED] = address_resolved,
	[RDMA_CM_EVENT_ADDR_ERROR] = not_connected,
	[RDMA_CM_EVENT_ROUTE_RESOLVED] = route_resolved,
	[RDMA_CM_EVENT_ROUTE_ERROR] = not_connected,
	[RDMA_CM_EVENT_CONNECT_REQUEST] = take_request,
	[RDMA_CM_EVENT_CONNECT_ERROR] = not_connected,
	[RDMA_CM_EVENT_UNREACHABLE] = not_connected,
	[RDMA_CM_EVENT_REJECTED] = rejected,
	[RDMA_CM_EVENT_ESTABLISHED] = established,
	[RDMA_CM_EVENT_DISCONNECTED] = disconnected,
	[RDMA_CM_EVENT_DEVICE_REMOVAL] = device_removed,
	[RDMA_CM_EVENT_ADDR_CHANGE] = nothing,   /* a bonded interface changed over */
	[RDMA_CM_EVENT_TIMEWAIT_EXIT] = nothing, /* the queue pair number may be used again */
};

static void take_event(struct loop *loop, const struct rdma_cm_event *event)
{
	unsigned type = event->event;
	struct peer *p = event->id->context;

	/* The context of a request is still the listener's: none. */
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		p = peer_new(loop, event->id);
	if (!p && type == RDMA_CM_EVENT_CONNECT_REQUEST)
		no_room_for(loop, event->id);
	else if (!p)
		loop->stopping |= type == RDMA_CM_EVENT_DEVICE_REMOVAL;
	else if (p->phase == PHASE_OVER)
		; /* after the end of a connection its last event may still come */
	else if (type < sizeof(steps) / sizeof(steps[0]) && steps[type])
		steps[type](p, event);
	else
		out_of_place(p, event);
}

/* An event is acknowledged before its connection is freed, at the end of the turn: rdma_destroy_id
 * waits for those of its connection (rdma_ack_cm_event(3)). */
void take_events(struct loop *loop)
{
	struct rdma_cm_event *event;

	while (!rdma_get_cm_event(loop->channel, &event)) {
		take_event(loop, event);
		rdma_ack_cm_event(event);
	}
	if (errno != EAGAIN && errno != EINTR)
		die("the event channel cannot be read (%s)", strerror(errno));
}
