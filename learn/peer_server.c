/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_server.c - the side that is called: listen, look at each connection request, accept or
 * refuse it. 被动方：监听，检查每个连接请求，接受或拒绝。
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "peer.h"

enum { BACKLOG = 128 };

/* ---- listening / 监听 ---- */

static int bind_to(struct loop *loop, struct sockaddr *address)
{
	if (rdma_create_id(loop->channel, &loop->listener, NULL, RDMA_PS_TCP)) {
		loop->listener = NULL;
		return -1;
	}
	if (!rdma_bind_addr(loop->listener, address) && !rdma_listen(loop->listener, BACKLOG))
		return 0;
	int error = errno;
	rdma_destroy_id(loop->listener);
	loop->listener = NULL;
	errno = error;
	return -1;
}

/* Everywhere: the IPv6 wildcard takes IPv4 as well; where there is no IPv6, that of IPv4. / IPv6
 * 通配地址也接受 IPv4；没有 IPv6 时用 IPv4 的。 */
static int bind_everywhere(struct loop *loop, unsigned port)
{
	struct sockaddr_in6 all6 = {.sin6_family = AF_INET6,
		.sin6_addr = IN6ADDR_ANY_INIT,
		.sin6_port = htons((uint16_t)port)};
	struct sockaddr_in all4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	if (!bind_to(loop, (struct sockaddr *)&all6))
		return 0;
	return errno == EADDRINUSE ? -1 : bind_to(loop, (struct sockaddr *)&all4);
}

static int bind_somewhere(struct loop *loop, const struct peer_options *opt)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
	char port[8];
	int rc;

	snprintf(port, sizeof(port), "%u", opt->port);
	rc = getaddrinfo(opt->address, port, &hints, &found);
	if (rc)
		return fail(_("\"%s\" is no address (%s): write an IPv4 or IPv6 address, or a host "
			      "name"),
			opt->address, gai_strerror(rc));
	rc = bind_to(loop, found->ai_addr);
	freeaddrinfo(found);
	return rc;
}

static int cannot_listen(const struct peer_options *opt, int error)
{
	if (error == EADDRINUSE)
		return fail(_("port %u is in use by another RDMA program: name another port"),
			opt->port);
	if (error == ENODEV)
		return fail(_("no RDMA device has the address %s: see \"ropeway devices\" or "
			      "\"ibv_devices\""),
			opt->address ? opt->address : "*");
	return fail(_("cannot listen on port %u of %s (%s)"), opt->port,
		opt->address ? opt->address : "*", strerror(error));
}

int server_start(struct loop *loop)
{
	const struct peer_options *opt = loop->options;
	int rc;

	errno = 0;
	rc = opt->address ? bind_somewhere(loop, opt) : bind_everywhere(loop, opt->port);
	if (rc)
		return errno ? cannot_listen(opt, errno) : -1;
	printf(_("listening on port %d.\n"), ntohs(rdma_get_src_port(loop->listener)));
	return 0;
}

/* ---- requests / 连接请求 ---- */

static void refuse(struct loop *loop, struct rdma_cm_id *id, enum reason reason)
{
	uint8_t hello[WIRE_HELLO_BYTES];

	wire_put_hello(hello, loop->options->mode, reason);
	rdma_reject(id, hello, sizeof(hello));
}

/* NULL, or after refusing it, the reason. / 若不合适则拒绝并返回原因。 */
static enum reason judge(const struct loop *loop, const struct cm_event *event, const char *name)
{
	struct hello hello;

	if (!wire_get_hello(event->private_data, event->private_bytes, &hello)) {
		fail(_("%s was refused: its connection request has no hello of these programs, so "
		       "it is another program"),
			name);
		return REASON_HELLO;
	}
	if (hello.version != WIRE_VERSION) {
		fail(_("%s was refused: it speaks version %u, this server version %d: use programs "
		       "of one version"),
			name, hello.version, WIRE_VERSION);
		return REASON_VERSION;
	}
	if (hello.mode != loop->options->mode) {
		fail(_("%s was refused: it was started for \"%s\", this server for \"%s\": start "
		       "both for the same"),
			name, mode_name(hello.mode), mode_name(loop->options->mode));
		return REASON_MODE;
	}
	return REASON_NONE;
}

static int accept_request(struct peer *p, const struct cm_event *event)
{
	uint8_t hello[WIRE_HELLO_BYTES];
	struct rdma_conn_param param = {
		.private_data = hello,
		.private_data_len = sizeof(hello),
		/* No more READs at a time than the client allows: its depth is our resources, and
		 * the other way round (rdma_accept(3)). 同时进行的 READ 数不超过客户端所允许的；
		 * 客户端的 depth 对应我方的 resources，反之亦然。 */
		.responder_resources = event->initiator_depth < 1 ? 0 : 1,
		.initiator_depth = event->responder_resources < 1 ? 0 : 1,
		.rnr_retry_count = 7,
	};

	wire_put_hello(hello, p->options->mode, REASON_NONE);
	return rdma_accept(p->id, &param);
}

static void take_request(struct loop *loop, const struct cm_event *event)
{
	struct peer *p = loop_add(loop, event->id);
	enum reason reason;

	printf("%s\n", _("received connection request."));
	if (!p) {
		refuse(loop, event->id, REASON_RESOURCES);
		rdma_destroy_id(event->id);
		return;
	}
	reason = judge(loop, event, p->name);
	if (reason) {
		refuse(loop, p->id, reason);
		p->failed = true;
		p->phase = PHASE_OVER;
	} else if (peer_prepare(p)) {
		int error = errno;

		refuse(loop, p->id, REASON_RESOURCES);
		peer_abort(p,
			_("was refused: the verbs objects cannot be made (%s): perhaps the limit "
			  "of locked memory (ulimit -l) or of "
			  "descriptors (ulimit -n) is too low"),
			strerror(error));
	} else if (accept_request(p, event)) {
		peer_abort(p, _("cannot be accepted (%s)"), strerror(errno));
	}
}

void server_event(struct loop *loop, const struct cm_event *event)
{
	struct peer *p = event->peer;

	switch (event->type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		take_request(loop, event);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		peer_established(p);
		break;
	case RDMA_CM_EVENT_REJECTED: /* of our reply / 我方的应答被拒绝 */
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		peer_abort(p, _("left before the handshake was complete (%s, status %d)"),
			rdma_event_str(event->type), event->status);
		break;
	default:
		peer_abort(p, _("an event came that does not belong here: %s, status %d"),
			rdma_event_str(event->type), event->status);
	}
}
