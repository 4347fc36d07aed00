/* SPDX-License-Identifier: BSD-3-Clause */
/* refuse.c - connections that are refused, and calls that fail. */
#include "cases.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A request of the client's; the event that it brings is told. */
static struct event ask(struct side *s, struct conn *c, int port)
{
	struct rdma_conn_param param = {
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};

	conn_open(s, c, resolved_id(s, port, RDMA_PS_TCP), 1);
	MUST(rdma_connect(c->id, &param));
	return next_event(s);
}

void no_listener_server(struct side *s)
{
	struct rdma_cm_id *id;

	/* A port that is bound, and never listened on, and so nobody else's. */
	MUST(rdma_create_id(s->channel, &id, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(id, server_address(s, 0)));
	tell(s, ntohs(rdma_get_src_port(id)));
	wait_for_death(s);
	MUST(rdma_destroy_id(id));
}

void no_listener_client(struct side *s)
{
	struct conn c;

	ask(s, &c, hear(s));
	conn_close(&c);
}

static void try_resolve(struct side *s, const char *address)
{
	struct sockaddr_storage to = {0};
	struct rdma_cm_id *id;
	struct event e;
	int rc;

	if (inet_pton(AF_INET, address, &((struct sockaddr_in *)&to)->sin_addr) == 1)
		to.ss_family = AF_INET;
	else if (inet_pton(AF_INET6, address, &((struct sockaddr_in6 *)&to)->sin6_addr) == 1)
		to.ss_family = AF_INET6;
	((struct sockaddr_in *)&to)->sin_port = htons(7471);
	MUST(rdma_create_id(s->channel, &id, NULL, RDMA_PS_TCP));
	rc = rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000);
	say("%s: rdma_resolve_addr: %s", address, rc ? errno_name(errno) : "0");
	if (!rc)
		next_event_within(s, s->channel, &e, 5000);
	MUST(rdma_destroy_id(id));
}

void no_route_server(struct side *s) { tell(s, 0); }

void no_route_client(struct side *s)
{
	hear(s);
	try_resolve(s, "203.0.113.9");
	try_resolve(s, "2001:db8::9");
	try_resolve(s, "255.255.255.255");
}

/* ---- ports ---- */

static void try_listen(struct side *s, const char *what, const struct sockaddr *at)
{
	struct rdma_cm_id *id;
	int rc;

	MUST(rdma_create_id(s->channel, &id, NULL, RDMA_PS_TCP));
	rc = rdma_bind_addr(id, (struct sockaddr *)at);
	say("%s: rdma_bind_addr: %s", what, rc ? errno_name(errno) : "0");
	if (!rc) {
		rc = rdma_listen(id, 4);
		say("%s: rdma_listen: %s", what, rc ? errno_name(errno) : "0");
	}
	MUST(rdma_destroy_id(id));
}

static struct sockaddr *any_address(struct side *s, int port)
{
	static struct sockaddr_storage any;

	memcpy(&any, server_address(s, port), sizeof(any));
	if (any.ss_family == AF_INET)
		((struct sockaddr_in *)&any)->sin_addr.s_addr = INADDR_ANY;
	else
		((struct sockaddr_in6 *)&any)->sin6_addr = in6addr_any;
	return (struct sockaddr *)&any;
}

void port_taken_server(struct side *s)
{
	/* Not one that the pairs beside this one may draw in the moment between two steps. */
	int port = 10000 + getpid() % 20000;
	struct rdma_cm_id *listener = listen_at_and_tell(s, port, 4), *other;

	try_listen(s, "same process, same address", server_address(s, port));
	try_listen(s, "same process, any address", any_address(s, port));
	hear(s); /* the client has tried */
	MUST(rdma_destroy_id(listener));
	try_listen(s, "after the listener has gone", server_address(s, port));
	MUST(rdma_create_id(s->channel, &other, NULL, RDMA_PS_TCP));
	MUST(rdma_bind_addr(other, any_address(s, port)));
	try_listen(s, "bound on any address, not listening", server_address(s, port));
	MUST(rdma_listen(other, 4));
	tell(s, port);
	hear(s);
	MUST(rdma_destroy_id(other));
}

void port_taken_client(struct side *s)
{
	int port = hear(s);

	try_listen(s, "another process, same address", server_address(s, port));
	try_listen(s, "another process, any address", any_address(s, port));
	tell(s, 1);
	port = hear(s);
	try_listen(s, "another process, against any address", server_address(s, port));
	tell(s, 1);
}

void port_any_server(struct side *s)
{
	struct rdma_cm_id *id[8];
	unsigned zero = 0, same = 0;

	for (int i = 0; i < 8; i++) {
		MUST(rdma_create_id(s->channel, &id[i], NULL, RDMA_PS_TCP));
		MUST(rdma_bind_addr(id[i], server_address(s, 0)));
		zero += !rdma_get_src_port(id[i]);
		for (int j = 0; j < i; j++)
			same += rdma_get_src_port(id[j]) == rdma_get_src_port(id[i]);
	}
	say("8 binds to port 0: %u without a port, %u pairs with the same", zero, same);
	say("verbs %s, port number %d", id[0]->verbs ? "known" : "not known", id[0]->port_num);
	say("again: %s", rdma_bind_addr(id[0], server_address(s, 0)) ? errno_name(errno) : "0");
	for (int i = 0; i < 8; i++)
		MUST(rdma_destroy_id(id[i]));
	tell(s, 0);
}

void port_any_client(struct side *s)
{
	struct sockaddr_storage foreign = {.ss_family = AF_INET};
	struct rdma_cm_id *id;

	hear(s);
	inet_pton(AF_INET, "203.0.113.9", &((struct sockaddr_in *)&foreign)->sin_addr);
	MUST(rdma_create_id(s->channel, &id, NULL, RDMA_PS_TCP));
	say("an address that is not ours: %s",
		rdma_bind_addr(id, (struct sockaddr *)&foreign) ? errno_name(errno) : "0");
	foreign.ss_family = AF_UNIX;
	say("of another family: %s",
		rdma_bind_addr(id, (struct sockaddr *)&foreign) ? errno_name(errno) : "0");
	/* Listening without binding: on any address, at a port of librdmacm's choice. */
	say_result("rdma_listen, not bound", rdma_listen(id, 4));
	say("port: %s", rdma_get_src_port(id) ? "given" : "none");
	MUST(rdma_destroy_id(id));
}

static void setting(const char *path, const char *value)
{
	FILE *f = fopen(path, "we");

	if (!f || fputs(value, f) < 0 || fclose(f))
		give_up("%s: %s", path, errno_name(errno));
}

/* No program is started for it: that would have the library preloaded, too. */
static void loopback_up(void)
{
	struct ifreq lo = {.ifr_name = "lo"};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	MUST(ioctl(fd, SIOCGIFFLAGS, &lo));
	lo.ifr_flags |= IFF_UP;
	MUST(ioctl(fd, SIOCSIFFLAGS, &lo));
	close(fd);
}

/* In a network namespace of its own, where nobody else asks for a port. */
static void ports_of_four(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET};
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id[5];
	unsigned outside = 0, same = 0;

	MUST(unshare(CLONE_NEWNET));
	loopback_up();
	setting("/proc/sys/net/ipv4/ip_local_port_range", "41000 41003");
	channel = rdma_create_event_channel();
	MUST(!channel);
	for (int i = 0; i < 5; i++)
		MUST(rdma_create_id(channel, &id[i], NULL, RDMA_PS_TCP));
	for (int i = 0; i < 4; i++) {
		MUST(rdma_bind_addr(id[i], (struct sockaddr *)&any));
		outside += ntohs(rdma_get_src_port(id[i])) - 41000U > 3;
		for (int j = 0; j < i; j++)
			same += rdma_get_src_port(id[j]) == rdma_get_src_port(id[i]);
	}
	say("4 binds to port 0 of 4: %u outside, %u pairs with the same", outside, same);
	say_result("a fifth", rdma_bind_addr(id[4], (struct sockaddr *)&any));
	MUST(rdma_destroy_id(id[2]));
	say_result("again, when one is free", rdma_bind_addr(id[4], (struct sockaddr *)&any));
	say("its port: %s",
		ntohs(rdma_get_src_port(id[4])) - 41000U > 3 ? "outside" : "of the range");
}

void port_range_server(struct side *s)
{
	int status;
	pid_t child = fork();

	if (!child) {
		ports_of_four();
		_exit(0);
	}
	waitpid(child, &status, 0);
	say("the child ended with %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	tell(s, 0);
}

void port_range_client(struct side *s) { hear(s); }

void reuse_server(struct side *s)
{
	struct rdma_cm_id *a, *b;
	int on = 1;

	MUST(rdma_create_id(s->channel, &a, NULL, RDMA_PS_TCP));
	MUST(rdma_create_id(s->channel, &b, NULL, RDMA_PS_TCP));
	say_result("set on the first",
		rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
	say_result("set on the second",
		rdma_set_option(b, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
	MUST(rdma_bind_addr(a, server_address(s, 0)));
	say_result("bind the second to the same port",
		rdma_bind_addr(b, server_address(s, ntohs(rdma_get_src_port(a)))));
	say_result("listen on the first", rdma_listen(a, 4));
	say_result("listen on the second", rdma_listen(b, 4));
	say_result("set when listening",
		rdma_set_option(a, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)));
	MUST(rdma_destroy_id(a));
	MUST(rdma_destroy_id(b));
	tell(s, 0);
}

void reuse_client(struct side *s) { hear(s); }

/* ---- who does not want ---- */

void never_accepts_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct event e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);

	tell(s, 1);
	hear(s);
	MUST(rdma_destroy_id(e.id));
	MUST(rdma_destroy_id(listener));
	wait_for_death(s);
}

void never_accepts_client(struct side *s)
{
	struct rdma_conn_param param = {.retry_count = 7};
	struct conn c;
	struct event e;

	conn_open(s, &c, resolved_id(s, hear(s), RDMA_PS_TCP), 1);
	MUST(rdma_connect(c.id, &param));
	hear(s);
	next_event_within(s, s->channel, &e, 3000);
	tell(s, 1);
	next_event(s);
	conn_close(&c);
}

enum { REJECT_DATA_MAX = 148 };

void reject_data_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 64);
	uint8_t data[256];

	s->mute = true;
	for (unsigned n = 0; n <= REJECT_DATA_MAX + 1; n++) {
		struct event e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);

		pattern_fill(data, n, n);
		if (n > REJECT_DATA_MAX) {
			say("%u bytes:", n);
			say_result("rdma_reject", rdma_reject(e.id, data, (uint8_t)n));
			say_result("rdma_reject, none", rdma_reject(e.id, NULL, 0));
		} else {
			MUST(rdma_reject(e.id, data, (uint8_t)n));
		}
		MUST(rdma_destroy_id(e.id));
	}
	wait_for_death(s);
	MUST(rdma_destroy_id(listener));
}

void reject_data_client(struct side *s)
{
	int port = hear(s);
	unsigned right = 0;

	s->mute = true;
	for (unsigned n = 0; n <= REJECT_DATA_MAX; n++) {
		struct conn c;
		struct event e = ask(s, &c, port);

		if (e.type == RDMA_CM_EVENT_REJECTED && e.status == 28 &&
			e.pdata_len == REJECT_DATA_MAX && pattern_holds(e.pdata, n, n))
			right++;
		else
			say("length %u: %s, status %d, %u bytes", n, rdma_event_str(e.type),
				e.status, e.pdata_len);
		conn_close(&c);
	}
	say("%u rejections with status 28 and the data that was sent", right);
	s->mute = false;
	struct conn c;

	ask(s, &c, port);
	conn_close(&c);
}

void reject_reply_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct rdma_conn_param param = {.rnr_retry_count = 7};
	struct conn c;
	struct event e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);

	conn_open(s, &c, e.id, 1);
	MUST(rdma_accept(c.id, &param));
	e = next_event(s);
	say("private data: %u bytes, '%.9s'", e.pdata_len, (const char *)e.pdata);
	conn_close(&c);
	MUST(rdma_destroy_id(listener));
}

void reject_reply_client(struct side *s)
{
	struct rdma_cm_id *id = resolved_id(s, hear(s), RDMA_PS_TCP);
	struct rdma_conn_param param = {.retry_count = 7, .qp_num = 0x123};

	MUST(rdma_connect(id, &param));
	expect_event(s, RDMA_CM_EVENT_CONNECT_RESPONSE);
	say_result("rdma_reject", rdma_reject(id, "no thanks", 9));
	MUST(rdma_destroy_id(id));
	wait_for_death(s);
}

void reject_ece_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct event e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);

	say_result("rdma_reject_ece", rdma_reject_ece(e.id, NULL, 0));
	MUST(rdma_destroy_id(e.id));
	wait_for_death(s);
	MUST(rdma_destroy_id(listener));
}

void reject_ece_client(struct side *s)
{
	struct conn c;

	ask(s, &c, hear(s));
	conn_close(&c);
}

/* ---- backlog ---- */

enum { BACKLOG = 2, ASKING = 5 };

/* What finds no room is not answered: its sender tries again, some seconds later, and is taken
 * then. */
void backlog_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, BACKLOG);
	struct event e;

	hear(s); /* all have asked, and a second has gone by */
	for (int i = 0; i < BACKLOG; i++) {
		e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);
		MUST(rdma_reject(e.id, NULL, 0));
		MUST(rdma_destroy_id(e.id));
	}
	for (int i = BACKLOG; i < ASKING; i++) {
		e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);
		MUST(rdma_reject(e.id, NULL, 0));
		MUST(rdma_destroy_id(e.id));
	}
	wait_for_death(s);
	MUST(rdma_destroy_id(listener));
}

void backlog_client(struct side *s)
{
	struct rdma_conn_param param = {.retry_count = 7};
	struct conn conns[ASKING];
	struct event e;
	int port = hear(s);

	for (int i = 0; i < ASKING; i++) {
		conn_open(s, &conns[i], resolved_id(s, port, RDMA_PS_TCP), 1);
		MUST(rdma_connect(conns[i].id, &param));
	}
	next_event_within(s, s->channel, &e, 1000);
	tell(s, 1);
	for (int i = 0; i < ASKING; i++)
		next_event(s);
	for (int i = 0; i < ASKING; i++)
		conn_close(&conns[i]);
}

/* ---- ids that go ---- */

void listener_goes_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct pollfd p = {.fd = s->channel->fd, .events = POLLIN};

	poll(&p, 1, EVENT_WAIT_MS); /* the request waits */
	say_result("rdma_destroy_id of the listener", rdma_destroy_id(listener));
	struct event e;

	next_event_within(s, s->channel, &e, 300);
	wait_for_death(s);
}

void listener_goes_client(struct side *s)
{
	struct conn c;

	ask(s, &c, hear(s));
	conn_close(&c);
}

void client_goes_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct rdma_conn_param param = {0};
	struct event e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct conn c;

	conn_open(s, &c, e.id, 1);
	tell(s, 1);
	hear(s); /* it has gone */
	next_event_within(s, s->channel, &e, 1000);
	say_result("rdma_accept", rdma_accept(c.id, &param));
	next_event_within(s, s->channel, &e, 1000);
	say_result("rdma_disconnect", rdma_disconnect(c.id));
	conn_close(&c);
	MUST(rdma_destroy_id(listener));
	tell(s, 1);
}

void client_goes_client(struct side *s)
{
	struct rdma_conn_param param = {.retry_count = 7};
	struct conn c;

	conn_open(s, &c, resolved_id(s, hear(s), RDMA_PS_TCP), 1);
	MUST(rdma_connect(c.id, &param));
	hear(s);
	conn_close(&c);
	tell(s, 1);
	wait_for_death(s);
}

/* ---- wrong calls ---- */

void wrong_state_server(struct side *s)
{
	struct rdma_cm_id *listener = listen_and_tell(s, 4);
	struct rdma_conn_param param = {0};
	struct event e;
	struct conn c;

	say_result("listen twice", rdma_listen(listener, 8));
	say_result("connect a listener", rdma_connect(listener, &param));
	say_result("reject a listener", rdma_reject(listener, NULL, 0));
	e = expect_event(s, RDMA_CM_EVENT_CONNECT_REQUEST);
	say_result("disconnect a request", rdma_disconnect(e.id));
	say_result("resolve the route of a request", rdma_resolve_route(e.id, 100));
	say_result("resolve the address of a request",
		rdma_resolve_addr(e.id, NULL, server_address(s, 1), 100));
	conn_open(s, &c, e.id, 1);
	MUST(rdma_accept(c.id, &param));
	say_result("accept twice", rdma_accept(c.id, &param));
	expect_event(s, RDMA_CM_EVENT_ESTABLISHED);
	say_result("reject when connected", rdma_reject(c.id, NULL, 0));
	say_result("listen when connected", rdma_listen(c.id, 1));
	tell(s, 1);
	expect_event(s, RDMA_CM_EVENT_DISCONNECTED);
	say_result("disconnect", rdma_disconnect(c.id));
	say_result("disconnect twice", rdma_disconnect(c.id));
	conn_close(&c);
	MUST(rdma_destroy_id(listener));
}

void wrong_state_client(struct side *s)
{
	struct rdma_conn_param param = {.retry_count = 7};

	struct rdma_cm_id *id;
	struct conn c;
	int port = hear(s);

	MUST(rdma_create_id(s->channel, &id, NULL, RDMA_PS_TCP));
	/* rdma_connect, rdma_accept, rdma_resolve_route and rdma_create_qp of an idle id crash
	 * within librdmacm. */
	say_result("disconnect an idle id", rdma_disconnect(id));
	say_result("reject an idle id", rdma_reject(id, NULL, 0));
	say_result("establish an idle id", rdma_establish(id));
	MUST(rdma_resolve_addr(id, NULL, server_address(s, port), 2000));
	expect_event(s, RDMA_CM_EVENT_ADDR_RESOLVED);
	say_result("resolve the address twice",
		rdma_resolve_addr(id, NULL, server_address(s, port), 2000));
	say_result("connect without a route", rdma_connect(id, &param));
	say_result("listen when resolved", rdma_listen(id, 1));
	MUST(rdma_resolve_route(id, 2000));
	expect_event(s, RDMA_CM_EVENT_ROUTE_RESOLVED);
	say_result("resolve the route twice", rdma_resolve_route(id, 2000));
	conn_open(s, &c, id, 1);
	MUST(rdma_connect(id, &param));
	say_result("connect twice", rdma_connect(id, &param));
	expect_event(s, RDMA_CM_EVENT_ESTABLISHED);
	say_result("establish twice", rdma_establish(id));
	say_result("accept a client's", rdma_accept(id, &param));
	hear(s);
	say_result("disconnect", rdma_disconnect(id));
	next_event(s);
	say_result("disconnect twice", rdma_disconnect(id));
	say_result("connect again", rdma_connect(id, &param));
	conn_close(&c);
	say_result("another port space",
		rdma_create_id(s->channel, &id, NULL, (enum rdma_port_space)0x7777));
}

void options_server(struct side *s) { tell(s, 0); }

void options_client(struct side *s)
{
	struct rdma_cm_id *id;
	uint8_t tos = 0x68, timeout = 18;
	int on = 1;

	hear(s);
	MUST(rdma_create_id(s->channel, &id, NULL, RDMA_PS_TCP));
	say_result("type of service",
		rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)));
	say_result("type of service of 4 bytes",
		rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &on, sizeof(on)));
	say_result("only its own family",
		rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)));
	say_result("acknowledge time-out",
		rdma_set_option(
			id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout)));
	timeout = 32;
	say_result("acknowledge time-out of 32",
		rdma_set_option(
			id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout)));
	say_result(
		"an option that is none", rdma_set_option(id, RDMA_OPTION_ID, 77, &on, sizeof(on)));
	say_result("a level that is none", rdma_set_option(id, 77, 0, &on, sizeof(on)));
	say_result("a path", rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &on, 0));
	MUST(rdma_destroy_id(id));
}
