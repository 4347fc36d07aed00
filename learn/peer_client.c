/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_client.c - the side that calls: address -> device, device -> route, connect. Each step is
 * asked for here and answered by an event. 主动方：地址 -> 设备 -> 路由 -> 连接。每一步在这里发起，
 * 由一个事件来回答。
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "peer.h"

static int find_address(const struct peer_options *opt, struct addrinfo **found)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	char port[8];
	int error;

	snprintf(port, sizeof(port), "%u", opt->port);
	error = getaddrinfo(opt->address, port, &hints, found);
	if (error)
		return fail(_("\"%s\" is no address (%s): write an IPv4 or IPv6 address, or a host "
			      "name"),
			opt->address, gai_strerror(error));
	return 0;
}

/* Which device leads to that address? The answer is RDMA_CM_EVENT_ADDR_RESOLVED or ..._ERROR. /
 * 哪个设备通往该地址？ */
static int resolve_address(struct loop *loop, struct rdma_cm_id *id, struct sockaddr *address)
{
	if (rdma_resolve_addr(id, NULL, address, (int)loop->options->wait_s * 1000))
		return fail(_("the address %s leads to no RDMA device (%s): see \"ropeway "
			      "devices\" or \"ibv_devices\""),
			loop->options->address, strerror(errno));
	return 0;
}

int client_start(struct loop *loop)
{
	struct rdma_cm_id *id = NULL;
	struct addrinfo *found;
	int rc = -1;

	if (find_address(loop->options, &found))
		return -1;
	if (rdma_create_id(loop->channel, &id, NULL, RDMA_PS_TCP))
		fail(_("no connection can be made (%s): rdma_create_id failed"), strerror(errno));
	else if (!loop_add(loop, id))
		rdma_destroy_id(id);
	else
		rc = resolve_address(loop, id, found->ai_addr);
	freeaddrinfo(found);
	return rc;
}

static void address_resolved(struct peer *p)
{
	printf("%s\n", _("address resolved."));
	peer_set_name(p);
	p->phase = PHASE_ROUTE;
	peer_restart_clock(p);
	if (rdma_resolve_route(p->id, (int)p->options->wait_s * 1000))
		peer_abort(p, _("no route can be asked for (%s)"), strerror(errno));
}

static void route_resolved(struct peer *p)
{
	uint8_t hello[WIRE_HELLO_BYTES];
	struct rdma_conn_param param = {
		.private_data = hello,
		.private_data_len = sizeof(hello),
		/* One RDMA READ at a time in each direction; at 0, as a zeroed struct has it, every
		 * READ would fail. 每个方向同时允许一个 RDMA READ；若为 0（结构体清零的默认值），
		 * 所有 READ 都会失败。 */
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	printf("%s\n", _("route resolved."));
	p->phase = PHASE_CONNECT;
	peer_restart_clock(p);
	if (peer_prepare(p)) {
		peer_abort(p,
			_("the verbs objects cannot be made (%s): perhaps the limit of locked "
			  "memory is too low (ulimit -l)"),
			strerror(errno));
		return;
	}
	wire_put_hello(hello, p->options->mode, REASON_NONE);
	if (rdma_connect(p->id, &param))
		peer_abort(p, _("no connection request can be sent (%s)"), strerror(errno));
}

/* Reasons of the CM itself, IB 12.6.7.2; the server program's own come in the private data. / CM
 * 自身的拒绝原因。 */
static const char *rejection_text(int status)
{
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

static void refused_for_mode(struct peer *p, const struct hello *hello)
{
	peer_abort(p,
		_("refused us (RDMA_CM_EVENT_REJECTED, status 28): this client was started for "
		  "\"%s\", the server for \"%s\": start both for the same"),
		mode_name(p->options->mode), mode_name(hello->mode));
}

static void rejected(struct peer *p, const struct cm_event *event)
{
	struct hello hello;

	if (!wire_get_hello(event->private_data, event->private_bytes, &hello) ||
		hello.reason == REASON_NONE) {
		peer_abort(p, _("refused us (RDMA_CM_EVENT_REJECTED, status %d): %s"),
			event->status, _(rejection_text(event->status)));
		return;
	}
	switch (hello.reason) {
	case REASON_MODE:
		refused_for_mode(p, &hello);
		break;
	case REASON_VERSION:
		peer_abort(p,
			_("refused us (RDMA_CM_EVENT_REJECTED, status %d): it speaks version %u, "
			  "this client version %d: use programs of one version"),
			event->status, hello.version, WIRE_VERSION);
		break;
	case REASON_RESOURCES:
		peer_abort(p,
			_("refused us (RDMA_CM_EVENT_REJECTED, status %d): it could not make the "
			  "objects for one more client"),
			event->status);
		break;
	default:
		peer_abort(p,
			_("refused us (RDMA_CM_EVENT_REJECTED, status %d): it did not understand "
			  "our hello"),
			event->status);
	}
}

/* The server says in its reply who it is, so that we do not talk to another program. /
 * 服务器在应答中表明身份。 */
static void connected(struct peer *p, const struct cm_event *event)
{
	struct hello hello;

	p->phase = PHASE_TALK;
	if (!wire_get_hello(event->private_data, event->private_bytes, &hello))
		peer_abort(p, _("it accepted without the hello of these programs: another program "
				"listens on that port"));
	else if (hello.version != WIRE_VERSION || hello.mode != p->options->mode)
		peer_abort(p,
			_("it accepted with version %u and mode \"%s\", but asked for were version "
			  "%d and mode \"%s\""),
			hello.version, mode_name(hello.mode), WIRE_VERSION,
			mode_name(p->options->mode));
	else
		peer_established(p);
}

void client_event(struct loop *loop, const struct cm_event *event)
{
	struct peer *p = event->peer;

	(void)loop;
	switch (event->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		address_resolved(p);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		route_resolved(p);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		connected(p, event);
		break;
	case RDMA_CM_EVENT_REJECTED:
		rejected(p, event);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
		peer_abort(p,
			_("the address leads to no RDMA device (RDMA_CM_EVENT_ADDR_ERROR, %s)"),
			strerror(-event->status));
		break;
	case RDMA_CM_EVENT_ROUTE_ERROR:
		peer_abort(p, _("there is no route (RDMA_CM_EVENT_ROUTE_ERROR, %s)"),
			strerror(-event->status));
		break;
	case RDMA_CM_EVENT_UNREACHABLE:
		peer_abort(p,
			_("no answer came to our connection request (RDMA_CM_EVENT_UNREACHABLE, "
			  "%s): does UDP port 4791 get through?"),
			strerror(-event->status));
		break;
	default:
		peer_abort(p, _("an event came that does not belong here: %s, status %d"),
			rdma_event_str(event->type), event->status);
	}
}
