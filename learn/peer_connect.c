/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_connect.c - the way to a connection. The client: address -> device, device -> route,
 * connect. The server: listen, look at each connection request, accept or refuse it. Each step is
 * asked for here and answered by an event. */
#include <netinet/in.h>

#include "peer.h"

/* ---- the client ---- */

/* Which device leads to that address? The answer is RDMA_CM_EVENT_ADDR_RESOLVED or ..._ERROR. */
void client_start(struct loop *loop)
{
	const struct peer_options *opt = loop->options;
	struct addrinfo *found = addresses_of(opt->address, opt->port);
	struct rdma_cm_id *id;

	if (rdma_create_id(loop->channel, &id, NULL, RDMA_PS_TCP))
		die("no connection can be made (%s): rdma_create_id failed", strerror(errno));
	if (!peer_new(loop, id))
		die("there is no memory for one more connection");
	if (rdma_resolve_addr(id, NULL, found->ai_addr, (int)opt->wait_s * 1000))
		die("the address %s leads to no RDMA device (%s): see \"ropeway devices\" or "
		    "\"ibv_devices\"",
			opt->address, strerror(errno));
	freeaddrinfo(found);
}

void address_resolved(struct peer *p, const struct rdma_cm_event *event)
{
	tell("address resolved.");
	peer_set_name(p);
	peer_enter(p, PHASE_ROUTE);
	if (rdma_resolve_route(p->id, (int)p->options->wait_s * 1000))
		peer_abort(p, "no route can be asked for (%s)", strerror(errno));
}

void route_resolved(struct peer *p, const struct rdma_cm_event *event)
{
	uint8_t hello[WIRE_HELLO_BYTES];
	struct rdma_conn_param param = {
		.private_data = hello,
		.private_data_len = sizeof(hello),
		/* One RDMA READ at a time in each direction; at 0, as a zeroed struct has it, every
		 * READ would fail. */
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	tell("route resolved.");
	peer_enter(p, PHASE_CONNECT);
	wire_put_hello(hello, p->options->mode, REASON_NONE);
	if (!peer_prepare(p))
		peer_abort(p,
			"the verbs objects cannot be made (%s): perhaps the limit of locked memory "
			"is too low (ulimit -l)",
			strerror(errno));
	else if (rdma_connect(p->id, &param))
		peer_abort(p, "no connection request can be sent (%s)", strerror(errno));
}

/* The server says in its reply who it is, so that we do not talk to another program. */
static void check_server(struct peer *p, const struct rdma_conn_param *reply)
{
	struct hello hello;

	if (!wire_get_hello(reply->private_data, reply->private_data_len, &hello))
		peer_abort(p, "it accepted without the hello of these programs: another program "
			      "listens on that port");
	else if (hello.version != WIRE_VERSION || hello.mode != p->options->mode)
		peer_abort(p,
			"it accepted with version %u and mode \"%s\", but asked for were version "
			"%d and mode \"%s\"",
			hello.version, mode_name(hello.mode), WIRE_VERSION,
			mode_name(p->options->mode));
}

void established(struct peer *p, const struct rdma_cm_event *event)
{
	peer_enter(p, PHASE_TALK);
	if (!p->options->server)
		check_server(p, &event->param.conn);
	if (p->failed)
		return;
	tell("connected. posting send...");
	talk_advance(p);
}

/* ---- no connection ---- */

void not_connected(struct peer *p, const struct rdma_cm_event *event)
{
	if (p->options->server)
		peer_abort(p, "left before the handshake was complete (%s, status %d)",
			rdma_event_str(event->event), event->status);
	else if (event->event == RDMA_CM_EVENT_ADDR_ERROR)
		peer_abort(p, "the address leads to no RDMA device (RDMA_CM_EVENT_ADDR_ERROR, %s)",
			strerror(-event->status));
	else if (event->event == RDMA_CM_EVENT_ROUTE_ERROR)
		peer_abort(p, "there is no route (RDMA_CM_EVENT_ROUTE_ERROR, %s)",
			strerror(-event->status));
	else
		peer_abort(p,
			"no answer came to our connection request (%s, %s): does UDP port 4791 get "
			"through?",
			rdma_event_str(event->event), strerror(-event->status));
}

/* The server program's own reason comes in the private data; without it, IB 12.6.7.2 has those of
 * the CM itself. */
static const char *rejection_text(enum reason reason, int status)
{
	if (reason == REASON_RESOURCES)
		return N_("it could not make the objects for one more client");
	if (reason != REASON_NONE)
		return N_("it did not understand our hello");
	switch (status) {
	case 8: /* Invalid Service ID */
		return N_("nobody listens on that port there: start the server first");
	case 10: /* Stale Connection */
		return N_("it takes our queue pair for one of an old connection: start the client "
			  "again");
	case 28: /* Consumer Reject */
		return N_("the program there refused, and did not say why in words that this one "
			  "knows");
	default:
		return N_("IB 12.6.7.2 lists the reasons");
	}
}

void rejected(struct peer *p, const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *reply = &event->param.conn;
	struct hello hello;

	if (p->options->server) { /* our reply */
		not_connected(p, event);
		return;
	}
	wire_get_hello(reply->private_data, reply->private_data_len, &hello);
	if (hello.reason == REASON_MODE)
		peer_abort(p,
			"refused us (RDMA_CM_EVENT_REJECTED, status 28): this client was started "
			"for \"%s\", the server for \"%s\": start both for the same",
			mode_name(p->options->mode), mode_name(hello.mode));
	else if (hello.reason == REASON_VERSION)
		peer_abort(p,
			"refused us (RDMA_CM_EVENT_REJECTED, status %d): it speaks version %u, "
			"this client version %d: use programs of one version",
			event->status, hello.version, WIRE_VERSION);
	else
		peer_abort(p, "refused us (RDMA_CM_EVENT_REJECTED, status %d): %s", event->status,
			_(rejection_text(hello.reason, event->status)));
}

/* ---- the server listens ---- */

enum { BACKLOG = 128 };

static bool listen_at(struct loop *loop, const char *host)
{
	struct addrinfo *found = addresses_of(host, loop->options->port);
	bool done;

	if (rdma_create_id(loop->channel, &loop->listener, NULL, RDMA_PS_TCP))
		die("no connection can be made (%s): rdma_create_id failed", strerror(errno));
	done = !rdma_bind_addr(loop->listener, found->ai_addr) &&
	       !rdma_listen(loop->listener, BACKLOG);
	freeaddrinfo(found);
	return done;
}

void server_start(struct loop *loop)
{
	const struct peer_options *opt = loop->options;
	bool done = listen_at(loop, opt->address ? opt->address : "::"); /* which takes IPv4, too */

	if (!done && !opt->address && errno != EADDRINUSE) { /* a kernel without IPv6 */
		rdma_destroy_id(loop->listener);
		done = listen_at(loop, "0.0.0.0");
	}
	if (!done && errno == EADDRINUSE)
		die("port %u is in use by another RDMA program: name another port", opt->port);
	if (!done && errno == ENODEV)
		die("no RDMA device has the address %s: see \"ropeway devices\" or \"ibv_devices\"",
			opt->address ? opt->address : "*");
	if (!done)
		die("cannot listen on port %u of %s (%s)", opt->port,
			opt->address ? opt->address : "*", strerror(errno));
	tell("listening on port %d.", ntohs(rdma_get_src_port(loop->listener)));
}

/* ---- the server is asked ---- */

static enum reason judge(const struct peer *p, const struct rdma_conn_param *param)
{
	struct hello hello;

	if (!wire_get_hello(param->private_data, param->private_data_len, &hello)) {
		complain("%s was refused: its connection request has no hello of these programs, "
			 "so it is another program",
			p->name);
		return REASON_HELLO;
	}
	if (hello.version != WIRE_VERSION) {
		complain("%s was refused: it speaks version %u, this server version %d: use "
			 "programs of one version",
			p->name, hello.version, WIRE_VERSION);
		return REASON_VERSION;
	}
	if (hello.mode != p->options->mode) {
		complain("%s was refused: it was started for \"%s\", this server for \"%s\": start "
			 "both for the same",
			p->name, mode_name(hello.mode), mode_name(p->options->mode));
		return REASON_MODE;
	}
	return REASON_NONE;
}

static void reject(const struct loop *loop, struct rdma_cm_id *id, enum reason reason)
{
	uint8_t hello[WIRE_HELLO_BYTES];

	wire_put_hello(hello, loop->options->mode, reason);
	rdma_reject(id, hello, sizeof(hello));
}

/* The id stays: nobody may destroy it before its event is acknowledged. */
void no_room_for(struct loop *loop, struct rdma_cm_id *id)
{
	complain("there is no memory for one more connection");
	reject(loop, id, REASON_RESOURCES);
}

static void refuse(struct peer *p, enum reason reason)
{
	reject(p->loop, p->id, reason);
	p->failed = true;
	p->phase = PHASE_OVER;
}

static bool accept_request(struct peer *p, const struct rdma_conn_param *asked)
{
	uint8_t hello[WIRE_HELLO_BYTES];
	struct rdma_conn_param param = {
		.private_data = hello,
		.private_data_len = sizeof(hello),
		/* No more READs at a time than the client allows: its depth is our resources, and
		 * the other way round (rdma_accept(3)). */
		.responder_resources = asked->initiator_depth > 0,
		.initiator_depth = asked->responder_resources > 0,
		.rnr_retry_count = 7,
	};

	wire_put_hello(hello, p->options->mode, REASON_NONE);
	return !rdma_accept(p->id, &param);
}

void take_request(struct peer *p, const struct rdma_cm_event *event)
{
	enum reason reason;

	tell("received connection request.");
	reason = judge(p, &event->param.conn);
	if (reason) {
		refuse(p, reason);
	} else if (!peer_prepare(p)) {
		peer_abort(p,
			"was refused: the verbs objects cannot be made (%s): perhaps the limit of "
			"locked memory (ulimit -l) or of descriptors (ulimit -n) is too low",
			strerror(errno));
		refuse(p, REASON_RESOURCES);
	} else if (!accept_request(p, &event->param.conn)) {
		peer_abort(p, "cannot be accepted (%s)", strerror(errno));
	}
}
