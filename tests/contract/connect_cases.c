/* SPDX-License-Identifier: BSD-3-Clause */
/* connect_cases.c - the contract of listeners, of connecting, and of what is known of an
 * endpoint. */
#include "contract.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static void take(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	(void)l;
	*(rpw_endpoint **)arg = ep;
}

static const struct {
	const char *address, *says;
} malformed[] = {{"", "has no port"}, {"localhost", "has no port"}, {"127.0.0.1", "has no port"},
	{"127.0.0.1:", "is not a port"}, {"127.0.0.1:http", "is not a port"},
	{"127.0.0.1:65536", "is not a port"}, {"127.0.0.1:-1", "is not a port"},
	{"127.0.0.1:80x", "is not a port"}, {"::1:80", "[v6]:port"}, {"[::1:80", "bracket"}};

static void addresses_that_are_none(void)
{
	rpw_context *c = context_open();
	rpw_listener *none = (rpw_listener *)&none, *l = none;
	rpw_endpoint *nobody = (rpw_endpoint *)&nobody, *ep = nobody;
	for (size_t i = 0; i < sizeof(malformed) / sizeof(*malformed); i++) {
		rpw_request *r = NULL;
		REFUSED(rpw_listener_create(c, malformed[i].address, take, NULL, &l),
			RPW_ERR_INVALID, malformed[i].says);
		REFUSED(rpw_endpoint_create(c, malformed[i].address, NULL, &ep, &r),
			RPW_ERR_INVALID, malformed[i].says);
		CHECK(!r);
	}
	char longest[400];
	memset(longest, 'a', sizeof(longest));
	memcpy(longest + sizeof(longest) - 4, ":80", 4);
	REFUSED(rpw_listener_create(c, longest, take, NULL, &l), RPW_ERR_INVALID, "characters");
	REFUSED(rpw_endpoint_create(c, longest, NULL, &ep, NULL), RPW_ERR_INVALID, "characters");
	REFUSED(rpw_endpoint_create(c, "127.0.0.1:0", NULL, &ep, NULL), RPW_ERR_INVALID, "port 0");
	CHECK(l == none);
	CHECK(ep == nobody);
	IS(statistics_of(c).endpoints, 0);
	IS(statistics_of(c).listeners, 0);
	IS(statistics_of(c).requests, 0);
	rpw_context_destroy(c);
}

static void arguments_of_listeners(void)
{
	rpw_context *c = context_open();
	rpw_listener *l = NULL, *second = NULL;
	rpw_endpoint *ep = NULL;
	char address[64];
	REFUSED(rpw_listener_create(c, NULL, take, NULL, &l), RPW_ERR_INVALID, "address");
	REFUSED(rpw_listener_create(c, ":0", NULL, NULL, &l), RPW_ERR_INVALID, "callback");
	REFUSED(rpw_listener_create(c, ":0", take, NULL, NULL), RPW_ERR_INVALID, "out");
	REFUSED(rpw_listener_create(c, "192.0.2.1:0", take, NULL, &l), RPW_ERR_SYSTEM,
		"192.0.2.1:0");
	SAYS("no interface"); /* of this host's */
	REFUSED(rpw_listener_port(NULL), RPW_ERR_INVALID, "rpw_listener_port");
	rpw_listener_destroy(NULL);
	l = pair_listen(c, &ep, address);
	int port = rpw_listener_port(l);
	REFUSED(rpw_listener_create(c, address, take, NULL, &second), RPW_ERR_SYSTEM, "in use");
	SAYS("ss -ltnp");
	IS(statistics_of(c).listeners, 1);
	rpw_listener_destroy(l);
	IS(statistics_of(c).listeners, 0);
	/* The port is free again, at once. */
	IS(rpw_listener_create(c, address, take, &ep, &l), RPW_OK);
	IS(rpw_listener_port(l), port);
	rpw_listener_destroy(l);
	/* All addresses. */
	IS(rpw_listener_create(c, ":0", take, &ep, &l), RPW_OK);
	CHECK(rpw_listener_port(l) > 0);
	rpw_context_destroy(c); /* with what is left */
}

/* What rpw_listener_address would give: CRC-32 (IEEE 802.3) of all before it. */
static const char *with_checksum(const char *text)
{
	static char out[600];
	uint32_t crc = ~0u;
	for (const char *p = text; *p; p++) {
		crc ^= (unsigned char)*p;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
	}
	snprintf(out, sizeof(out), "%s%08x", text, (unsigned)~crc);
	return out;
}

static int connect_to(struct pair *p, const char *address, unsigned timeout_ms)
{
	rpw_request *r = NULL;
	rpw_endpoint_options o = RPW_ENDPOINT_OPTIONS_INIT;
	o.timeout_ms = timeout_ms;
	forget_error();
	int rc = rpw_endpoint_create(p->a, address, &o, &p->ea, &r);
	return rc == RPW_IN_PROGRESS ? pair_finish(p, r, NULL) : rc;
}

static void ends_go(struct pair *p)
{
	settle(p);
	rpw_endpoint_destroy(p->ea);
	rpw_endpoint_destroy(p->eb);
	p->ea = p->eb = NULL;
	settle(p);
}

static void an_address_can_be_carried(void)
{
	struct pair p;
	char text[RPW_ADDRESS_MAX], forged[RPW_ADDRESS_MAX + 40], head[64];
	memset(&p, 0, sizeof(p));
	p.a = context_open();
	p.b = context_open();
	IS(rpw_listener_create(p.b, ":0", take, &p.eb, &p.l), RPW_OK);
	REFUSED(rpw_listener_address(NULL, text, sizeof(text)), RPW_ERR_INVALID,
		"the listener is NULL");
	REFUSED(rpw_listener_address(p.l, NULL, 9), RPW_ERR_INVALID, "out is NULL");
	memset(text, 7, sizeof(text));
	int n = rpw_listener_address(p.l, text, sizeof(text));
	CHECK(n > 0 && n < RPW_ADDRESS_MAX);
	IS(strlen(text), n);
	REFUSED(rpw_listener_address(p.l, forged, (size_t)n), RPW_ERR_LIMIT, "RPW_ADDRESS_MAX");
	IS(rpw_listener_address(p.l, forged, (size_t)n + 1), n);
	IS(strcmp(forged, text), 0);
	/* As any other address. */
	IS(connect_to(&p, text, 0), RPW_OK);
	UNTIL(&p, p.eb);
	CHECK(!strchr(information_of(p.ea).peer, ';')); /* what people see is who it is */
	CHECK(rpw_send(p.ea, "across", 7, 1, NULL) >= 0);
	rpw_request *r = NULL;
	IS(rpw_recv(p.b, p.eb, incoming, 7, 1, ALL, &r), RPW_IN_PROGRESS);
	IS(pair_finish(&p, r, NULL), RPW_OK);
	IS(strcmp((const char *)incoming, "across"), 0);
	ends_go(&p);
	/* Garbled anywhere, or cut off: refused by name, at once. */
	for (int i = 5; i < n; i++) {
		memcpy(forged, text, (size_t)n + 1);
		forged[i] ^= 1;
		REFUSED(connect_to(&p, forged, 0), RPW_ERR_INVALID, "garbled");
		memcpy(forged, text, (size_t)n + 1);
		forged[i] = 0;
		REFUSED(connect_to(&p, forged, 0), RPW_ERR_INVALID, "garbled");
	}
	/* Made by somebody else: what fits its checksum, and is none. */
	memcpy(head, text, 5 + 32 + 1);
	head[5 + 32 + 1] = 0;
	static const char *const wrong[] = {"", ";", "1;", "1;127.0.0.1;", "1;127.0.0.1:0;",
		"1;:7;", "1;127.0.0.1:7,;", "1;localhost:7;", "-1;127.0.0.1:7;",
		"99999999999;127.0.0.1:7;", "1;127.0.0.1:7;more;",
		("1;127.0.0.1:1,127.0.0.1:2,127.0.0.1:3,127.0.0.1:4,127.0.0.1:5,"
		 "127.0.0.1:6,127.0.0.1:7,127.0.0.1:8,127.0.0.1:9;")};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(forged, sizeof(forged), "%s%s", head, wrong[i]);
		REFUSED(connect_to(&p, with_checksum(forged), 0), RPW_ERR_INVALID, "garbled");
	}
	memset(forged, '1', sizeof(forged));
	memcpy(forged, "rpw1;", 5);
	forged[sizeof(forged) - 1] = 0;
	REFUSED(connect_to(&p, forged, 0), RPW_ERR_INVALID, "too long");
	/* Its addresses are tried in turn; where nobody is, the next. */
	int port = rpw_listener_port(p.l);
	rpw_listener_destroy(p.l);
	snprintf(forged, sizeof(forged), "127.0.0.1:%d", port);
	IS(rpw_listener_create(p.b, forged, take, &p.eb, &p.l), RPW_OK);
	snprintf(forged, sizeof(forged), "%s%d;127.0.0.9:%d,127.0.0.1:%d;", head, (int)getpid(),
		port, port);
	IS(connect_to(&p, with_checksum(forged), 0), RPW_OK);
	UNTIL(&p, p.eb);
	ends_go(&p);
	/* Who answers there, and is another process: not taken for it. */
	snprintf(forged, sizeof(forged), "%s%d;127.0.0.1:%d;", head, (int)getpid() + 1, port);
	REFUSED(connect_to(&p, with_checksum(forged), 300), RPW_ERR_UNREACHABLE,
		"another process answers there");
	CHECK(!p.eb);
	ends_go(&p);
	/* Loopback of another host is not this one's. */
	head[9] = head[9] == '0' ? '1' : '0';
	snprintf(forged, sizeof(forged), "%s%d;127.0.0.1:%d;", head, (int)getpid(), port);
	REFUSED(connect_to(&p, with_checksum(forged), 300), RPW_ERR_UNREACHABLE, "on another host");
	pair_close(&p);
}

static void every_form_of_address_connects(void)
{
	static const char *const listens[] = {"127.0.0.1:0", "localhost:0", ":0", "[::1]:0", ":0"},
				 *const connects[] = {
					 "127.0.0.1", "localhost", "127.0.0.1", "[::1]", "[::1]"};
	bool has_ipv6 = true;
	for (int i = 0; i < 5; i++) {
		struct pair p;
		rpw_request *r = NULL;
		char address[64];
		if (!has_ipv6 && strchr(connects[i], ':'))
			continue;
		memset(&p, 0, sizeof(p));
		p.a = context_open();
		p.b = context_open();
		int rc = rpw_listener_create(p.b, listens[i], take, &p.eb, &p.l);
		if (rc && strchr(connects[i], ':')) {
			has_ipv6 = false;
			fprintf(stderr, "SKIPPED: no IPv6 here: %s\n", rpw_last_error());
			pair_close(&p);
			continue;
		}
		IS(rc, RPW_OK);
		snprintf(address, sizeof(address), "%s:%d", connects[i], rpw_listener_port(p.l));
		IS(rpw_endpoint_create(p.a, address, NULL, &p.ea, &r), RPW_IN_PROGRESS);
		IS(pair_finish(&p, r, NULL), RPW_OK);
		UNTIL(&p, p.eb);
		pair_close(&p);
	}
}

static void what_options_a_connection_takes(void)
{
	struct pair p;
	rpw_request *r = NULL;
	rpw_endpoint *nobody = (rpw_endpoint *)&nobody, *ep = nobody;
	char address[64];
	rpw_endpoint_options o;
	pair_open(&p);
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(p.l));
	memset(&o, 0, sizeof(o));
	REFUSED(rpw_endpoint_create(p.a, address, &o, &ep, &r), RPW_ERR_INVALID,
		"sizeof(rpw_endpoint_options)");
	o.size = sizeof(o);
	o.transports = "tcp,pigeon";
	REFUSED(rpw_endpoint_create(p.a, address, &o, &ep, &r), RPW_ERR_INVALID, "'pigeon'");
	SAYS("shm");
	REFUSED(rpw_endpoint_create(p.a, NULL, NULL, &ep, &r), RPW_ERR_INVALID, "address");
	REFUSED(rpw_endpoint_create(p.a, address, NULL, NULL, &r), RPW_ERR_INVALID, "out");
	CHECK(ep == nobody);
	/* Of an earlier version, without the last field. */
	rpw_endpoint_destroy(p.eb);
	p.eb = NULL;
	o.size = offsetof(rpw_endpoint_options, transports);
	IS(rpw_endpoint_create(p.a, address, &o, &ep, &r), RPW_IN_PROGRESS);
	IS(pair_finish(&p, r, NULL), RPW_OK);
	UNTIL(&p, p.eb);
	rpw_endpoint_destroy(ep);
	pair_close(&p);
}

static void the_transport_that_was_asked_for(void)
{
	struct pair p;
	rpw_context_options every = options_of(transport_is_hosted() ? contract_transport : NULL);
	rpw_endpoint_options o;
	rpw_request *r = NULL;
	char address[64];
	memset(&p, 0, sizeof(p));
	memset(&o, 0, sizeof(o));
	o.size = sizeof(o);
	o.transports = contract_transport;
	IS(rpw_context_create(&every, &p.a), RPW_OK);
	IS(rpw_context_create(&every, &p.b), RPW_OK);
	p.l = pair_listen(p.b, &p.eb, address);
	IS(rpw_endpoint_create(p.a, address, &o, &p.ea, &r), RPW_IN_PROGRESS);
	IS(pair_finish(&p, r, NULL), RPW_OK);
	UNTIL(&p, p.eb);
	rpw_endpoint_information a = information_of(p.ea), b = information_of(p.eb);
	IS(strcmp(a.transport, transport_name()), 0);
	IS(strcmp(b.transport, transport_name()), 0);
	HAS(a.why, transport_name());
	HAS(b.why, transport_name());
	pair_close(&p);
}

static void what_is_known_before_and_after(void)
{
	struct pair p;
	rpw_request *r = NULL;
	char address[64];
	memset(&p, 0, sizeof(p));
	p.a = context_open();
	p.b = context_open();
	p.l = pair_listen(p.b, &p.eb, address);
	IS(rpw_endpoint_create(p.a, address, NULL, &p.ea, &r), RPW_IN_PROGRESS);
	rpw_endpoint_information i = information_of(p.ea);
	CHECK(!i.connected);
	IS(i.status, RPW_OK);
	CHECK(i.transport && i.path && i.why && i.peer); /* never NULL: they can be printed */
	IS(strcmp(i.peer, address), 0);
	uint64_t tag = i.message_tag;
	CHECK(tag);
	IS(pair_finish(&p, r, NULL), RPW_OK);
	UNTIL(&p, p.eb);
	rpw_endpoint_information j = information_of(p.eb);
	i = information_of(p.ea);
	CHECK(i.connected);
	CHECK(j.connected);
	IS(i.size, sizeof(i));
	CHECK(*i.path && *i.why);
	IS(i.message_tag, tag);
	IS(i.message_tag, j.peer_message_tag);
	IS(i.control_tag, j.peer_control_tag);
	IS(j.message_tag, i.peer_message_tag);
	IS(j.control_tag, i.peer_control_tag);
	char pid[32];
	snprintf(pid, sizeof(pid), ":%d ", (int)getpid());
	HAS(i.peer, pid);
	HAS(i.peer, address);
	/* A struct of an earlier version; none. */
	memset(&i, 0x5a, sizeof(i));
	i.size = offsetof(rpw_endpoint_information, peer);
	IS(rpw_endpoint_info(p.ea, &i), RPW_OK);
	HAS(i.transport, transport_name());
	IS(i.control_tag, 0x5a5a5a5a5a5a5a5aLL);
	i.size = 0;
	REFUSED(rpw_endpoint_info(p.ea, &i), RPW_ERR_INVALID, "sizeof(rpw_endpoint_information)");
	REFUSED(rpw_endpoint_info(p.ea, NULL), RPW_ERR_INVALID, "rpw_endpoint_information");
	i.size = sizeof(i);
	REFUSED(rpw_endpoint_info(NULL, &i), RPW_ERR_INVALID, "endpoint");
	pair_close(&p);
}

static void the_pointer_of_the_user(void)
{
	struct pair p;
	int mine = 0;
	pair_open(&p);
	CHECK(!rpw_endpoint_user(p.ea));
	rpw_endpoint_set_user(p.ea, &mine);
	CHECK(rpw_endpoint_user(p.ea) == &mine);
	CHECK(!rpw_endpoint_user(p.eb));
	rpw_endpoint_set_user(p.ea, NULL);
	CHECK(!rpw_endpoint_user(p.ea));
	rpw_endpoint_set_user(NULL, &mine);
	CHECK(!rpw_endpoint_user(NULL));
	pair_close(&p);
}

/* ---- connections that do not come to stand ---- */

static int closed_status, closed_times;
static void on_closed(rpw_endpoint *ep, int status, void *arg)
{
	(void)ep;
	(void)arg;
	closed_status = status;
	closed_times++;
}

/* A port of loopback where nobody listens. */
static int dead_port(void)
{
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	int s = socket(AF_INET, SOCK_STREAM, 0);
	memset(&at, 0, sizeof(at));
	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	IS(bind(s, (struct sockaddr *)&at, sizeof(at)), 0);
	IS(getsockname(s, (struct sockaddr *)&at, &len), 0);
	close(s);
	return ntohs(at.sin_port);
}

static void nobody_answers(void)
{
	struct pair p;
	rpw_endpoint_options o;
	rpw_request *r = NULL, *posted[POSTINGS];
	char address[64];
	memset(&p, 0, sizeof(p));
	memset(&o, 0, sizeof(o));
	o.size = sizeof(o);
	o.timeout_ms = 200;
	p.a = context_open();
	snprintf(address, sizeof(address), "127.0.0.1:%d", dead_port());
	IS(rpw_endpoint_create(p.a, address, &o, &p.ea, &r), RPW_IN_PROGRESS);
	rpw_endpoint_on_close(p.ea, on_closed, NULL);
	/* What is posted waits until it is connected, and fails if it is not. */
	for (int what = 0; what < POSTINGS; what++) {
		posted[what] = NULL;
		if (!posting_needs_key(what))
			IS(post(&p, what, p.ea, &posted[what]), RPW_IN_PROGRESS);
	}
	IS(rpw_endpoint_fence(p.ea), RPW_OK);
	IS(pair_finish(&p, r, NULL), RPW_ERR_UNREACHABLE);
	for (int what = 0; what < POSTINGS; what++)
		if (posted[what])
			IS(pair_finish(&p, posted[what], NULL), RPW_ERR_UNREACHABLE);
	IS(closed_times, 1);
	IS(closed_status, RPW_ERR_UNREACHABLE);
	rpw_endpoint_information i = information_of(p.ea);
	IS(i.status, RPW_ERR_UNREACHABLE);
	CHECK(!i.connected);
	HAS(i.why, address);
	HAS(i.why, "refused");
	/* Without a request, and without anybody who looks: no harm. */
	rpw_endpoint *ep = NULL;
	IS(rpw_endpoint_create(p.a, address, &o, &ep, NULL), RPW_IN_PROGRESS);
	while (information_of(ep).status == RPW_OK)
		rpw_context_progress(p.a);
	IS(information_of(ep).status, RPW_ERR_UNREACHABLE);
	IS(statistics_of(p.a).requests, 0);
	rpw_endpoint_destroy(ep);
	pair_close(&p);
}

static void a_listener_that_comes_later(void)
{
	struct pair p;
	rpw_request *r = NULL;
	char address[64];
	memset(&p, 0, sizeof(p));
	p.a = context_open();
	p.b = context_open();
	snprintf(address, sizeof(address), "127.0.0.1:%d", dead_port());
	IS(rpw_endpoint_create(p.a, address, NULL, &p.ea, &r), RPW_IN_PROGRESS);
	for (int i = 0; i < 1000; i++)
		rpw_context_progress(p.a);
	IS(rpw_request_test(r, NULL), RPW_IN_PROGRESS);
	IS(rpw_listener_create(p.b, address, take, &p.eb, &p.l), RPW_OK);
	IS(pair_finish(&p, r, NULL), RPW_OK);
	UNTIL(&p, p.eb);
	pair_close(&p);
}

static void connecting_can_be_canceled_or_closed(void)
{
	struct pair p;
	rpw_request *r = NULL;
	char address[64];
	memset(&p, 0, sizeof(p));
	p.a = context_open();
	snprintf(address, sizeof(address), "127.0.0.1:%d", dead_port());
	IS(rpw_endpoint_create(p.a, address, NULL, &p.ea, &r), RPW_IN_PROGRESS);
	IS(rpw_request_cancel(r), RPW_OK);
	IS(pair_finish(&p, r, NULL), RPW_ERR_CANCELED);
	IS(information_of(p.ea).status, RPW_ERR_CANCELED);
	rpw_endpoint_destroy(p.ea);
	/* Closed while it connects: the request completes. */
	IS(rpw_endpoint_create(p.a, address, NULL, &p.ea, &r), RPW_IN_PROGRESS);
	rpw_endpoint_destroy(p.ea);
	IS(rpw_request_test(r, NULL), RPW_ERR_CANCELED);
	rpw_request_destroy(r);
	p.ea = NULL;
	pair_close(&p);
}

static void a_listener_that_closes_says_no(void)
{
	struct pair p;
	rpw_request *r = NULL, *again = NULL;
	rpw_endpoint *late = NULL;
	char address[64];
	memset(&p, 0, sizeof(p));
	p.a = context_open();
	p.b = context_open();
	p.l = pair_listen(p.b, &p.eb, address);
	IS(rpw_endpoint_create(p.a, address, NULL, &p.ea, &r), RPW_IN_PROGRESS);
	IS(pair_finish(&p, r, NULL), RPW_OK);
	UNTIL(&p, p.eb);
	/* Endpoints outlive their listener. */
	rpw_listener_destroy(p.l);
	p.l = NULL;
	rpw_request *s = NULL;
	IS(rpw_recv(p.b, p.eb, incoming, sizeof(incoming), 1, ALL, &r), RPW_IN_PROGRESS);
	int rc = post(&p, SEND, p.ea, &s);
	IS(pair_finish(&p, r, NULL), RPW_OK);
	IS(ended(&p, rc, s), RPW_OK);
	/* Nobody listens any more. */
	rpw_endpoint_options o;
	memset(&o, 0, sizeof(o));
	o.size = sizeof(o);
	o.timeout_ms = 100;
	IS(rpw_endpoint_create(p.a, address, &o, &late, &again), RPW_IN_PROGRESS);
	IS(pair_finish(&p, again, NULL), RPW_ERR_UNREACHABLE);
	rpw_endpoint_destroy(late);
	pair_close(&p);
}

/* ---- what the accept callback may do ---- */

struct host {
	rpw_context *c;
	rpw_endpoint *ep;
	int times;
	bool refuse, leave;
};
static void host_accept(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	struct host *h = (struct host *)arg;
	h->times++;
	CHECK(rpw_listener_port(l) > 0);
	CHECK(information_of(ep).connected);
	REFUSED(rpw_context_progress(h->c), RPW_ERR_INVALID, "callback");
	/* Usable at once. */
	CHECK(rpw_send(ep, "welcome", 8, 7, NULL) >= 0);
	if (h->leave)
		rpw_listener_destroy(l);
	if (h->refuse)
		rpw_endpoint_destroy(ep);
	else
		h->ep = ep;
}

static void an_accept_callback_may_post_close_and_stop_listening(void)
{
	for (int how = 0; how < 3; how++) {
		struct pair p;
		struct host h;
		rpw_request *r = NULL;
		char address[64], in[8] = "";
		memset(&p, 0, sizeof(p));
		memset(&h, 0, sizeof(h));
		p.a = context_open();
		h.c = p.b = context_open();
		h.leave = how == 1;
		h.refuse = how == 2;
		IS(rpw_listener_create(p.b, "127.0.0.1:0", host_accept, &h, &p.l), RPW_OK);
		snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(p.l));
		IS(rpw_endpoint_create(p.a, address, NULL, &p.ea, NULL), RPW_IN_PROGRESS);
		IS(rpw_recv(p.a, p.ea, in, sizeof(in), 7, ALL, &r), RPW_IN_PROGRESS);
		int status = pair_finish(&p, r, NULL);
		IS(h.times, 1);
		if (!h.refuse) {
			IS(status, RPW_OK);
			IS(strcmp(in, "welcome"), 0);
		} else { /* the welcome may have come before the close */
			CHECK(status == RPW_OK || status == RPW_ERR_PEER_GONE ||
				status == RPW_ERR_REFUSED);
			UNTIL(&p, information_of(p.ea).status != RPW_OK);
			settle(&p);
			IS(statistics_of(p.b).endpoints, 0);
		}
		IS(statistics_of(p.b).listeners, how != 1);
		p.eb = h.ep;
		p.l = how == 1 ? NULL : p.l;
		pair_close(&p);
	}
}

/* ---- keys ---- */

static void key_write(char *path, const char *text)
{
	strcpy(path, "/tmp/contract-key-XXXXXX");
	int fd = mkstemp(path); /* mode 0600 */
	CHECK(fd >= 0);
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static int connected_with(const char *key_a, const char *key_b, char *why, size_t why_len)
{
	struct pair p;
	rpw_context_options a = options_of("tcp"), b = options_of("tcp");
	rpw_request *r = NULL;
	char address[64];
	rpw_endpoint_options o;
	memset(&o, 0, sizeof(o));
	o.size = sizeof(o);
	memset(&p, 0, sizeof(p));
	a.key_file = key_a;
	b.key_file = key_b;
	IS(rpw_context_create(&a, &p.a), RPW_OK);
	IS(rpw_context_create(&b, &p.b), RPW_OK);
	p.l = pair_listen(p.b, &p.eb, address);
	IS(rpw_endpoint_create(p.a, address, &o, &p.ea, &r), RPW_IN_PROGRESS);
	int status = pair_finish(&p, r, NULL);
	snprintf(why, why_len, "%s", information_of(p.ea).why);
	if (!status)
		UNTIL(&p, p.eb);
	else
		CHECK(!p.eb);
	pair_close(&p);
	return status;
}

/* With minutes to spare: the case's own deadline is shorter. */
static void before_a_dead_port(struct pair *p, rpw_endpoint_options *o, char address[64])
{
	memset(p, 0, sizeof(*p));
	memset(o, 0, sizeof(*o));
	o->size = sizeof(*o);
	o->timeout_ms = 300000;
	p->a = context_open();
	snprintf(address, 64, "127.0.0.1:%d", dead_port());
}

static void it_is_refused(struct pair *p, const rpw_endpoint_options *o, const char *address)
{
	rpw_request *r = NULL;
	IS(rpw_endpoint_create(p->a, address, o, &p->ea, &r), RPW_IN_PROGRESS);
	IS(pair_finish(p, r, NULL), RPW_ERR_UNREACHABLE);
	HAS(information_of(p->ea).why, address);
	HAS(information_of(p->ea).why, "refused");
	rpw_endpoint_destroy(p->ea);
}

/* Refused for long enough; who listens before that is met. */
static void a_refusal_is_enough(void)
{
	struct pair p;
	rpw_endpoint_options o;
	rpw_request *r = NULL;
	char address[64];
	before_a_dead_port(&p, &o, address);
	o.refused_ms = 50;
	it_is_refused(&p, &o, address);
	o.refused_ms = 300000;
	IS(rpw_endpoint_create(p.a, address, &o, &p.ea, &r), RPW_IN_PROGRESS);
	for (int i = 0; i < 100 && !strstr(information_of(p.ea).why, "refused"); i++) {
		rpw_context_progress(p.a);
		usleep(1000);
	}
	p.b = context_open();
	IS(rpw_listener_create(p.b, address, take, &p.eb, &p.l), RPW_OK);
	IS(pair_finish(&p, r, NULL), RPW_OK);
	UNTIL(&p, p.eb);
	pair_close(&p);
}

static void once_means_once(void)
{
	struct pair p;
	rpw_endpoint_options o;
	char address[64];
	before_a_dead_port(&p, &o, address);
	o.once = true;
	for (int i = 0; i < 3; i++)
		it_is_refused(&p, &o, address);
	p.ea = NULL;
	pair_close(&p);
}

static void both_sides_need_the_same_key(void)
{
	char one[64], other[64], why[512];
	rpw_context *c = NULL;
	key_write(one, "0123456789abcdef0123456789abcdef\n");
	key_write(other, "a passphrase of sixteen or more\n");
	IS(connected_with(one, one, why, sizeof(why)), RPW_OK);
	IS(connected_with(one, other, why, sizeof(why)), RPW_ERR_REFUSED);
	HAS(why, "key");
	IS(connected_with(one, NULL, why, sizeof(why)), RPW_ERR_REFUSED);
	HAS(why, "key");
	IS(connected_with(NULL, one, why, sizeof(why)), RPW_ERR_REFUSED);
	HAS(why, "key");
	/* A key that others can read is none. */
	rpw_context_options o = options_of("tcp");
	o.key_file = one;
	IS(chmod(one, 0644), 0);
	REFUSED(rpw_context_create(&o, &c), RPW_ERR_INVALID, one);
	SAYS("chmod 600");
	o.key_file = "/nonexistent/key";
	REFUSED(rpw_context_create(&o, &c), RPW_ERR_SYSTEM, "/nonexistent/key");
	unlink(one);
	unlink(other);
}

const struct contract_case connect_cases[] = {
	{"addresses_that_are_none", addresses_that_are_none, false,
		"rpw_listener_create rpw_endpoint_create"},
	{"arguments_of_listeners", arguments_of_listeners, false,
		"rpw_listener_create rpw_listener_port rpw_listener_destroy"},
	{"an_address_can_be_carried", an_address_can_be_carried, false,
		"rpw_listener_address rpw_endpoint_create"},
	{"every_form_of_address_connects", every_form_of_address_connects, false,
		"rpw_listener_create rpw_endpoint_create"},
	{"what_options_a_connection_takes", what_options_a_connection_takes, false,
		"rpw_endpoint_create"},
	{"the_transport_that_was_asked_for", the_transport_that_was_asked_for, true,
		"rpw_endpoint_create rpw_endpoint_info"},
	{"what_is_known_before_and_after", what_is_known_before_and_after, true,
		"rpw_endpoint_info"},
	{"the_pointer_of_the_user", the_pointer_of_the_user, false,
		"rpw_endpoint_set_user rpw_endpoint_user"},
	{"nobody_answers", nobody_answers, false,
		"rpw_endpoint_create rpw_endpoint_info rpw_endpoint_on_close "
		"rpw_endpoint_fence " POSTED},
	{"a_refusal_is_enough", a_refusal_is_enough, false, "rpw_endpoint_create"},
	{"once_means_once", once_means_once, false, "rpw_endpoint_create"},
	{"a_listener_that_comes_later", a_listener_that_comes_later, false, "rpw_endpoint_create"},
	{"connecting_can_be_canceled_or_closed", connecting_can_be_canceled_or_closed, false,
		"rpw_endpoint_create rpw_request_cancel rpw_endpoint_destroy"},
	{"a_listener_that_closes_says_no", a_listener_that_closes_says_no, false,
		"rpw_listener_destroy"},
	{"an_accept_callback_may_post_close_and_stop_listening",
		an_accept_callback_may_post_close_and_stop_listening, true,
		"rpw_listener_create rpw_listener_destroy rpw_endpoint_destroy"},
	{"both_sides_need_the_same_key", both_sides_need_the_same_key, false,
		"rpw_context_create rpw_endpoint_create"},
	{NULL, NULL, false, NULL},
};
