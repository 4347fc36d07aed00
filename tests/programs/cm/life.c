/* SPDX-License-Identifier: BSD-3-Clause */
/* life.c - cases in which connections come about and end: who closes, on which channel and
 * listener, in which process. */

#include "cases.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- who closes ---- */

void client_closes_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct conn c;

	connect_as_server(s, &c, 1);
	exchange(s, &c);
	see_disconnect(s, &c);
	MUST(rdma_destroy_id(listener));
}

void client_closes_client(struct side *s)
{
	struct conn c;
	int port = hear(s);

	connect_as_client(s, &c, port, 1);
	exchange(s, &c);
	say_result("rdma_disconnect", rdma_disconnect(c.id));
	next_event(s);
	conn_close(&c);
}

void server_closes_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct conn c;

	connect_as_server(s, &c, 2);
	exchange(s, &c);
	hear(s); /* the client has its message */
	say_result("rdma_disconnect", rdma_disconnect(c.id));
	next_event(s);
	conn_close(&c);
	MUST(rdma_destroy_id(listener));
}

void server_closes_client(struct side *s)
{
	struct conn c;
	int port = hear(s);

	connect_as_client(s, &c, port, 2);
	exchange(s, &c);
	conn_post_receive(&c);
	tell(s, 1);
	expect_event(s, RDMA_CM_EVENT_DISCONNECTED);
	struct ibv_wc wc;
	say_result("rdma_disconnect", rdma_disconnect(c.id));
	if (rdma_get_recv_comp(c.id, &wc) == 1)
		say("receive: %s", ibv_wc_status_str(wc.status));
	conn_close(&c);
}

static void close_at_once(struct side *s, struct conn *c)
{
	tell(s, 1);
	hear(s);
	say_result("rdma_disconnect", rdma_disconnect(c->id));
	next_event(s);
	conn_close(c);
	wait_for_death(s);
}

void both_close_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct conn c;

	connect_as_server(s, &c, 3);
	exchange(s, &c);
	tell(s, 1);
	hear(s);
	say_result("rdma_disconnect", rdma_disconnect(c.id));
	next_event(s);
	conn_close(&c);
	MUST(rdma_destroy_id(listener));
}

void both_close_client(struct side *s)
{
	struct conn c;
	int port = hear(s);

	connect_as_client(s, &c, port, 3);
	exchange(s, &c);
	close_at_once(s, &c);
}

/* ---- channels ---- */

void migrate_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct rdma_event_channel *own = rdma_create_event_channel();
	struct rdma_conn_param param = {.retry_count = 7};
	struct conn c;
	struct event e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);

	say_result("rdma_migrate_id", rdma_migrate_id(e.id, own));
	conn_open(s, &c, e.id, 7);
	conn_post_receive(&c);
	MUST(rdma_accept(c.id, &param));
	say("on its own channel:");
	next_event_within(s, own, &e, EVENT_WAIT_MS);
	exchange(s, &c);
	next_event_within(s, own, &e, EVENT_WAIT_MS);
	MUST(rdma_disconnect(c.id));
	say("on the listener's:");
	next_event_within(s, s->channel, &e, 100);
	conn_close(&c);
	rdma_destroy_event_channel(own);
	MUST(rdma_destroy_id(listener));
}

/* Here events wait on the old channel when the id moves: they move with it. */
void migrate_client(struct side *s)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct event e;
	struct conn c;
	int port = hear(s);

	MUST(rdma_create_id(s->channel, &id, NULL, RDMA_PS_TCP));
	MUST(rdma_resolve_addr(id, NULL, server_address(s, port), 2000));
	usleep(300000);
	say_result("rdma_migrate_id", rdma_migrate_id(id, other));
	say("on the old channel:");
	next_event_within(s, s->channel, &e, 100);
	say("on the new one:");
	next_event_within(s, other, &e, EVENT_WAIT_MS);
	MUST(rdma_resolve_route(id, 2000));
	next_event_within(s, other, &e, EVENT_WAIT_MS);
	conn_open(s, &c, id, 7);
	conn_post_receive(&c);
	MUST(rdma_connect(id, &param));
	next_event_within(s, other, &e, EVENT_WAIT_MS);
	exchange(s, &c);
	MUST(rdma_disconnect(id));
	next_event_within(s, other, &e, EVENT_WAIT_MS);
	conn_close(&c);
	rdma_destroy_event_channel(other);
}

void epoll_server(struct side *s) { client_closes_server(s); }

static bool readable(int epoll_fd, int ms)
{
	struct epoll_event ev;

	return epoll_wait(epoll_fd, &ev, 1, ms) == 1;
}

static void take_nonblocking(struct side *s, const char *when)
{
	struct rdma_cm_event *ev;

	if (rdma_get_cm_event(s->channel, &ev)) {
		say("%s: rdma_get_cm_event: %s", when, errno_name(errno));
		return;
	}
	say("%s: %s", when, rdma_event_str(ev->event));
	rdma_ack_cm_event(ev);
}

void epoll_client(struct side *s)
{
	int epoll_fd = epoll_create1(0);
	struct epoll_event want = {.events = EPOLLIN};
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct rdma_cm_id *id;
	struct conn c;
	int port = hear(s);

	MUST(fcntl(s->channel->fd, F_SETFL, fcntl(s->channel->fd, F_GETFL) | O_NONBLOCK));
	MUST(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, s->channel->fd, &want));
	say("readable before anything: %d", readable(epoll_fd, 0));
	take_nonblocking(s, "before anything");
	MUST(rdma_create_id(s->channel, &id, NULL, RDMA_PS_TCP));
	MUST(rdma_resolve_addr(id, NULL, server_address(s, port), 2000));
	say("readable: %d", readable(epoll_fd, 10000));
	say("still readable: %d", readable(epoll_fd, 0));
	take_nonblocking(s, "first");
	say("readable after the last event: %d", readable(epoll_fd, 100));
	take_nonblocking(s, "second");
	MUST(rdma_resolve_route(id, 2000));
	say("readable: %d", readable(epoll_fd, 10000));
	take_nonblocking(s, "third");
	conn_open(s, &c, id, 1);
	conn_post_receive(&c);
	MUST(rdma_connect(id, &param));
	say("readable: %d", readable(epoll_fd, 10000));
	take_nonblocking(s, "fourth");
	exchange(s, &c);
	MUST(rdma_disconnect(id));
	say("readable: %d", readable(epoll_fd, 10000));
	take_nonblocking(s, "fifth");
	take_nonblocking(s, "sixth");
	conn_close(&c);
	close(epoll_fd);
}

/* ---- listeners ---- */

void wildcard_server(struct side *s)
{
	struct sockaddr_storage any = s->address;
	struct rdma_cm_id *id;
	struct conn c;

	if (any.ss_family == AF_INET)
		((struct sockaddr_in *)&any)->sin_addr.s_addr = INADDR_ANY;
	else
		((struct sockaddr_in6 *)&any)->sin6_addr = in6addr_any;
	MUST(rdma_create_id(s->channel, &id, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(id, (struct sockaddr *)&any));
	say("bound: verbs %s", id->verbs ? "known" : "not known");
	MUST(rdma_listen(id, 4));
	tell(s, ntohs(rdma_get_src_port(id)));
	connect_as_server(s, &c, 9);
	say("the connection's address is the client's target: %s",
		s->address.ss_family == AF_INET
			? (((struct sockaddr_in *)rdma_get_local_addr(c.id))->sin_addr.s_addr ==
						  ((struct sockaddr_in *)&s->address)
							  ->sin_addr.s_addr
					  ? "yes"
					  : "no")
			: (memcmp(&((struct sockaddr_in6 *)rdma_get_local_addr(c.id))->sin6_addr,
				   &((struct sockaddr_in6 *)&s->address)->sin6_addr, 16)
					  ? "no"
					  : "yes"));
	say("ports: own %s, peer %s",
		rdma_get_src_port(c.id) == rdma_get_src_port(id) ? "as bound" : "another",
		ntohs(rdma_get_dst_port(c.id)) == hear(s) ? "right" : "wrong");
	exchange(s, &c);
	see_disconnect(s, &c);
	MUST(rdma_destroy_id(id));
}

void wildcard_client(struct side *s)
{
	struct conn c;
	int port = hear(s);

	connect_as_client(s, &c, port, 9);
	tell(s, ntohs(rdma_get_src_port(c.id)));
	exchange(s, &c);
	MUST(rdma_disconnect(c.id));
	next_event(s);
	conn_close(&c);
}

/* ---- processes ---- */

/* A parent that has a channel and a listener, and no device yet: a kernel's verbs cannot be used by
 * two processes. */
void fork_server(struct side *s)
{
	struct sockaddr_storage any = s->address;
	struct rdma_cm_id *listener;
	struct conn c;
	int status;
	pid_t child;

	if (any.ss_family == AF_INET)
		((struct sockaddr_in *)&any)->sin_addr.s_addr = INADDR_ANY;
	else
		((struct sockaddr_in6 *)&any)->sin6_addr = in6addr_any;
	MUST(rdma_create_id(s->channel, &listener, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(listener, (struct sockaddr *)&any));
	MUST(rdma_listen(listener, 4));
	child = fork();
	if (!child) {
		struct side mine = *s;
		struct conn own;

		mine.channel = rdma_create_event_channel();
		mine.mute = true;
		listen_and_tell(&mine, 4);
		connect_as_server(&mine, &own, 31);
		exchange(&mine, &own);
		see_disconnect(&mine, &own);
		_exit(0);
	}
	waitpid(child, &status, 0);
	say("the child ended with %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	tell(s, ntohs(rdma_get_src_port(listener)));
	connect_as_server(s, &c, 30);
	exchange(s, &c);
	see_disconnect(s, &c);
	MUST(rdma_destroy_id(listener));
}

void fork_client(struct side *s)
{
	struct conn c;

	for (unsigned i = 0; i < 2; i++) {
		int port = hear(s);

		connect_as_client(s, &c, port, 31 - i);
		exchange(s, &c);
		MUST(rdma_disconnect(c.id));
		next_event(s);
		conn_close(&c);
	}
}

void within_server(struct side *s) { tell(s, 0); }

void within_client(struct side *s)
{
	struct rdma_conn_param param = {.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7};
	struct conn in = {0}, out;
	struct side as_server = *s;
	struct rdma_cm_id *listener;
	unsigned established = 0, closed = 0;

	hear(s);
	as_server.is_server = true;
	s->mute = true;
	MUST(rdma_create_id(s->channel, &listener, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(listener, server_address(s, 0)));
	MUST(rdma_listen(listener, 4));
	conn_open(s, &out, resolved_id(s, ntohs(rdma_get_src_port(listener)), RDMA_PS_TCP), 40);
	conn_post_receive(&out);
	MUST(rdma_connect(out.id, &param));
	while (established < 2) {
		struct event e = next_event(s);

		if (e.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			conn_open(&as_server, &in, e.id, 40);
			conn_post_receive(&in);
			MUST(rdma_accept(in.id, &param));
		} else if (e.type == RDMA_CM_EVENT_ESTABLISHED) {
			established++;
		} else {
			give_up("%s, status %d", rdma_event_str(e.type), e.status);
		}
	}
	MUST(rdma_post_send(out.id, NULL, out.buf, MESSAGE_BYTES, out.mr, IBV_SEND_SIGNALED));
	exchange(&as_server, &in);
	struct ibv_wc wc;

	if (rdma_get_recv_comp(out.id, &wc) != 1 || wc.status ||
		!pattern_holds(out.buf + MESSAGE_BYTES, MESSAGE_BYTES, out.seed_in))
		say("wrong bytes");
	MUST(rdma_disconnect(out.id));
	while (closed < 2) {
		struct event e = next_event(s);

		if (e.type != RDMA_CM_EVENT_DISCONNECTED)
			give_up("%s, status %d", rdma_event_str(e.type), e.status);
		if (e.id == in.id)
			MUST(rdma_disconnect(in.id));
		closed++;
	}
	say("%u established, %u closed", established, closed);
	conn_close(&out);
	conn_close(&in);
	MUST(rdma_destroy_id(listener));
}

void timewait_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct conn c;

	connect_as_server(s, &c, 50);
	expect_event(s, RDMA_CM_EVENT_DISCONNECTED);
	MUST(rdma_disconnect(c.id));
	next_event(s);
	conn_close(&c);
	MUST(rdma_destroy_id(listener));
}

void timewait_client(struct side *s)
{
	struct conn c;
	int port = hear(s);

	connect_as_client(s, &c, port, 50);
	MUST(rdma_disconnect(c.id));
	next_event(s);
	next_event(s);
	conn_close(&c);
}
