/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_connect.c - events of rdma_cm. The client: address -> device, device -> route, connect. The
 * server: listen, look at each connection request, accept or refuse it. Each step is asked for here
 * and answered by an event: the table at the end says what follows each. */
#include <netinet/in.h>

#include "peer.h"

/* ---- the client ---- */

/* Which device leads to that address? The answer is RDMA_CM_EVENT_ADDR_RESOLVED or ..._ERROR. */
void client_start(struct loop *loop)
{
	struct addrinfo *found = addresses_of(loop->address, loop->port);
	struct rdma_cm_id *id;

	if (rdma_create_id(loop->channel, &id, NULL, RDMA_PS_TCP) ||
		rdma_resolve_addr(id, NULL, found->ai_addr, (int)loop->wait_s * 1000))
		die("the address %s leads to no RDMA device (%s): see \"ropeway devices\" or "
		    "\"ibv_devices\"",
			loop->address, strerror(errno));
	freeaddrinfo(found);
	peer_new(loop, id);
}

static void address_resolved(struct peer *p, const struct rdma_cm_event *event)
{
	puts("address resolved.");
	peer_enter(p, PHASE_ROUTE);
	if (rdma_resolve_route(p->id, (int)p->loop->wait_s * 1000))
		peer_abort(p, "no route can be asked for (%s)", strerror(errno));
}

/* What this side asks for, or answers with. */
static struct rdma_conn_param hello(
	struct peer *p, enum reason reason, const struct rdma_conn_param *asked)
{
	wire_put_hello(p->hello, p->loop->mode, reason);
	return (struct rdma_conn_param){
		.private_data = p->hello,
		.private_data_len = sizeof(p->hello),
		/* One RDMA READ at a time in each direction; at 0, as a zeroed struct has it, every
		 * READ would fail. The answer allows no more than the request: its depth is our
		 * resources, and the other way round (rdma_accept(3)). */
		.responder_resources = !asked || asked->initiator_depth > 0,
		.initiator_depth = !asked || asked->responder_resources > 0,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
}

static void route_resolved(struct peer *p, const struct rdma_cm_event *event)
{
	struct rdma_conn_param param = hello(p, REASON_NONE, NULL);

	puts("route resolved.");
	peer_enter(p, PHASE_CONNECT);
	if (!peer_prepare(p) || rdma_connect(p->id, &param))
		peer_abort(p,
			"the verbs objects or the connection request cannot be made (%s): perhaps "
			"the limit of locked memory is too low (ulimit -l)",
			strerror(errno));
}

/* Does the other side fit? If not, p->why has it in words. */
static enum reason judge(struct peer *p, const struct rdma_conn_param *param)
{
	const char *us = p->loop->server ? "server" : "client";
	struct hello theirs;

	if (!wire_get_hello(param->private_data, param->private_data_len, &theirs)) {
		strcpy(p->why, "no hello of these programs, so it is another program");
		return REASON_HELLO;
	}
	if (theirs.version != WIRE_VERSION) {
		snprintf(p->why, sizeof(p->why),
			"it speaks version %u, this %s version %d: use programs of one version",
			theirs.version, us, WIRE_VERSION);
		return REASON_VERSION;
	}
	snprintf(p->why, sizeof(p->why),
		"it was started for \"%s\", this %s for \"%s\": start both for the same",
		mode_name(theirs.mode), us, mode_name(p->loop->mode));
	return theirs.mode == p->loop->mode ? REASON_NONE : REASON_MODE;
}

static void established(struct peer *p, const struct rdma_cm_event *event)
{
	peer_enter(p, PHASE_TALK);
	/* The server says in its reply who it is, so that we do not talk to another program. */
	if (!p->loop->server && judge(p, &event->param.conn)) {
		peer_abort(p, "it accepted, but: %s", p->why);
		return;
	}
	puts("connected. posting send...");
	talk_advance(p);
}

/* ---- no connection ---- */

static const char *waits_for(const struct peer *p)
{
	static const char *const awaited[] = {
		[PHASE_ADDRESS] = "the device that leads there (RDMA_CM_EVENT_ADDR_RESOLVED)",
		[PHASE_ROUTE] = "the route (RDMA_CM_EVENT_ROUTE_RESOLVED)",
		[PHASE_CONNECT] = "an answer to our connection request (RDMA_CM_EVENT_ESTABLISHED)",
		[PHASE_ACCEPT] = "the last step of the handshake (RDMA_CM_EVENT_ESTABLISHED)",
		[PHASE_END] = "an answer to our disconnect (RDMA_CM_EVENT_DISCONNECTED)",
	};

	if (p->phase == PHASE_END && p->disconnected)
		return "the flush of all that was posted";
	return p->phase == PHASE_TALK ? talk_waits_for(p) : awaited[p->phase];
}

void take_lateness(struct peer *p)
{
	const char *missing = waits_for(p);

	if (p->phase == PHASE_END)
		p->phase = PHASE_OVER;
	peer_abort(p, "waited %u s in vain for %s", p->loop->wait_s, missing);
}

static void unexpected(struct peer *p, const struct rdma_cm_event *event)
{
	peer_abort(p, "%s, status %d, came instead of %s", rdma_event_str(event->event),
		event->status, waits_for(p));
}

/* The reasons of the CM itself are in IB 12.6.7.2. The server program's own come as reason 28, with
 * its hello in the private data. */
static void rejected(struct peer *p, const struct rdma_cm_event *event)
{
	strcpy(p->why, "IB 12.6.7.2 lists the reasons");
	if (event->status == 8) /* Invalid Service ID */
		strcpy(p->why, "nobody listens on that port there: start the server first");
	if (event->status == 28 && !judge(p, &event->param.conn)) /* Consumer Reject */
		strcpy(p->why, "it could not make the objects for one more client");
	peer_abort(p, "refused us (RDMA_CM_EVENT_REJECTED, status %d): %s", event->status, p->why);
}

/* ---- the server listens ---- */

enum { BACKLOG = 128 };

static bool listen_at(struct loop *loop, const char *host)
{
	struct addrinfo *found = addresses_of(host, loop->port);
	bool done = !rdma_create_id(loop->channel, &loop->listener, NULL, RDMA_PS_TCP) &&
		    !rdma_bind_addr(loop->listener, found->ai_addr) &&
		    !rdma_listen(loop->listener, BACKLOG);

	freeaddrinfo(found);
	return done;
}

void server_start(struct loop *loop)
{
	const char *where = loop->address ? loop->address : "::"; /* which takes IPv4, too */
	bool done = listen_at(loop, where);

	if (!done && !loop->address && errno != EADDRINUSE) { /* a kernel without IPv6 */
		rdma_destroy_id(loop->listener);
		done = listen_at(loop, "0.0.0.0");
	}
	if (!done && errno == EADDRINUSE)
		die("port %u is in use by another RDMA program: name another port", loop->port);
	if (!done)
		die("cannot listen on port %u of %s (%s): see \"ropeway devices\" or "
		    "\"ibv_devices\"",
			loop->port, where, strerror(errno));
	printf("listening on port %d.\n", ntohs(rdma_get_src_port(loop->listener)));
}

/* ---- the server is asked ---- */

static void take_request(struct peer *p, const struct rdma_cm_event *event)
{
	enum reason reason = judge(p, &event->param.conn);
	struct rdma_conn_param param;

	puts("received connection request.");
	if (!reason && !peer_prepare(p)) {
		reason = REASON_RESOURCES;
		strcpy(p->why, "the verbs objects cannot be made: perhaps the limit of locked "
			       "memory (ulimit -l) or of descriptors (ulimit -n) is too low");
	}
	param = hello(p, reason, &event->param.conn);
	if (reason) {
		rdma_reject(p->id, param.private_data, param.private_data_len);
		peer_abort(p, "was refused: %s", p->why);
	} else if (rdma_accept(p->id, &param)) {
		peer_abort(p, "cannot be accepted (%s)", strerror(errno));
	}
}

/* ---- the end ---- */

/* The peer was faster. Either it had all that it wanted of us, and then so have we of it; or it
 * broke off. */
static void has_left(struct peer *p)
{
	p->ended = ENDED_BY_PEER;
	if (talk_may_leave(p))
		talk_conclude(p);
	else
		peer_abort(p,
			"the peer disconnected too early (RDMA_CM_EVENT_DISCONNECTED): this side "
			"was waiting for %s",
			talk_waits_for(p));
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
	by_us = p->failed ? p->ended != ENDED_BY_PEER : !p->loop->server;
	puts(by_us ? "disconnected." : "peer disconnected.");
	peer_leave(p, ENDED_BY_PEER);
	look_for_end(p);
}

/* ---- which event means what ---- */

static void nothing(struct peer *p, const struct rdma_cm_event *event) {}

static void (*const steps[])(struct peer *p, const struct rdma_cm_event *event) = {
	[RDMA_CM_EVENT_ADDR_RESOLVED] = address_resolved,
	[RDMA_CM_EVENT_ROUTE_RESOLVED] = route_resolved,
	[RDMA_CM_EVENT_CONNECT_REQUEST] = take_request,
	[RDMA_CM_EVENT_REJECTED] = rejected,
	[RDMA_CM_EVENT_ESTABLISHED] = established,
	[RDMA_CM_EVENT_DISCONNECTED] = disconnected,
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
	if (!p) {
		if (type == RDMA_CM_EVENT_DEVICE_REMOVAL)
			die("the device was removed (RDMA_CM_EVENT_DEVICE_REMOVAL)");
		return;
	}
	/* After the end of a connection its last event may still come. */
	if (p->phase == PHASE_OVER)
		return;
	if (type < sizeof(steps) / sizeof(steps[0]) && steps[type])
		steps[type](p, event);
	else
		unexpected(p, event);
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
