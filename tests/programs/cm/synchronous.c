/* SPDX-License-Identifier: BSD-3-Clause */
/* synchronous.c - the case of the synchronous calls. */
#include "cases.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ibv_qp_init_attr endpoint_attr = {.cap = {.max_send_wr = 8,
							      .max_recv_wr = 8,
							      .max_send_sge = 1,
							      .max_recv_sge = 1,
							      .max_inline_data = 16},
	.qp_type = IBV_QPT_RC,
	.sq_sig_all = 1};

static struct rdma_addrinfo *endpoint_address(struct side *s, int port, int flags)
{
	struct rdma_addrinfo hints = {.ai_flags = flags | RAI_NUMERICHOST,
				     .ai_port_space = RDMA_PS_TCP},
			     *found;
	char host[INET6_ADDRSTRLEN], service[8];
	const void *at = s->address.ss_family == AF_INET
				 ? (void *)&((struct sockaddr_in *)&s->address)->sin_addr
				 : (void *)&((struct sockaddr_in6 *)&s->address)->sin6_addr;

	inet_ntop(s->address.ss_family, at, host, sizeof(host));
	snprintf(service, sizeof(service), "%d", port);
	MUST(rdma_getaddrinfo(host, service, &hints, &found));
	return found;
}

static void endpoint_exchange(struct side *s, struct conn *c)
{
	struct ibv_wc wc;

	exchange(s, c);
	/* A READ of the peer's outgoing message, with the address it sends us in a message. */
	uint64_t where[2];

	conn_post_receive(c);
	tell(s, 1);
	if (rdma_get_recv_comp(c->id, &wc) != 1 || wc.status || wc.byte_len != sizeof(where))
		say("receive: failed");
	memcpy(where, c->buf + MESSAGE_BYTES, sizeof(where));
	memset(c->buf + MESSAGE_BYTES, 0, MESSAGE_BYTES);
	MUST(rdma_post_read(c->id, NULL, c->buf + MESSAGE_BYTES, MESSAGE_BYTES, c->mr,
		IBV_SEND_SIGNALED, where[0], (uint32_t)where[1]));
	if (rdma_get_send_comp(c->id, &wc) != 1 || wc.status)
		say("READ: %s", ibv_wc_status_str(wc.status));
	if (!pattern_holds(c->buf + MESSAGE_BYTES, MESSAGE_BYTES, c->seed_in))
		say("READ: the bytes are not the server's");
	say("SEND and READ through the synchronous calls");
}

static void endpoint_memory(struct side *s, struct conn *c)
{
	*c = (struct conn){.id = c->id,
		.seed_out = 22 + s->is_server,
		.seed_in = 22 + !s->is_server,
		.buf = calloc(2, MESSAGE_BYTES)};
	pattern_fill(c->buf, MESSAGE_BYTES, c->seed_out);
	c->mr = rdma_reg_read(c->id, c->buf, (size_t)2 * MESSAGE_BYTES);
	if (!c->mr)
		give_up("rdma_reg_read: %s", errno_name(errno));
	conn_post_receive(c);
}

void endpoints_server(struct side *s)
{
	struct rdma_addrinfo *address = endpoint_address(s, 0, RAI_PASSIVE);
	struct ibv_qp_init_attr attr = endpoint_attr;
	struct rdma_cm_id *listener;
	struct conn c = {0};

	say("passive: source %s, destination %s, QP type %d",
		address->ai_src_len ? "given" : "none", address->ai_dst_len ? "given" : "none",
		address->ai_qp_type);
	MUST(rdma_create_ep(&listener, address, NULL, &attr));
	rdma_freeaddrinfo(address);
	MUST(rdma_listen(listener, 0));
	tell(s, ntohs(rdma_get_src_port(listener)));
	say_result("rdma_get_request", rdma_get_request(listener, &c.id));
	say("QP %s, event %s", c.id->qp ? "made" : "missing",
		c.id->event ? rdma_event_str(c.id->event->event) : "none");
	endpoint_memory(s, &c);
	say_result("rdma_accept", rdma_accept(c.id, NULL));
	exchange(s, &c);
	hear(s);
	uint64_t where[2] = {(uintptr_t)c.buf, c.mr->rkey};
	struct ibv_wc wc;

	MUST(rdma_post_send(c.id, NULL, where, sizeof(where), NULL, IBV_SEND_INLINE));
	if (rdma_get_send_comp(c.id, &wc) != 1 || wc.status)
		say("inline send: failed");
	/* it has read. A synchronous rdma_disconnect waits for the other side's, so both call it */
	hear(s);
	say_result("rdma_disconnect", rdma_disconnect(c.id));
	rdma_dereg_mr(c.mr);
	free(c.buf);
	rdma_destroy_ep(c.id);
	rdma_destroy_ep(listener);
}

void endpoints_client(struct side *s)
{
	int port = hear(s);
	struct rdma_addrinfo *address = endpoint_address(s, port, 0);
	struct ibv_qp_init_attr attr = endpoint_attr;
	struct rdma_conn_param param = {.responder_resources = 2,
		.initiator_depth = 2,
		.retry_count = 7,
		.rnr_retry_count = 7};
	struct conn c = {0};

	say("active: source %s, destination %s, QP type %d", address->ai_src_len ? "given" : "none",
		address->ai_dst_len ? "given" : "none", address->ai_qp_type);
	MUST(rdma_create_ep(&c.id, address, NULL, &attr));
	rdma_freeaddrinfo(address);
	endpoint_memory(s, &c);
	say_result("rdma_connect", rdma_connect(c.id, &param));
	say("event %s", c.id->event ? rdma_event_str(c.id->event->event) : "none");
	endpoint_exchange(s, &c);
	tell(s, 1);
	say_result("rdma_disconnect", rdma_disconnect(c.id));
	rdma_dereg_mr(c.mr);
	free(c.buf);
	rdma_destroy_ep(c.id);
}
