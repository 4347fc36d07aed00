/* SPDX-License-Identifier: BSD-3-Clause */
/* context_cases.c - the contract of contexts: names, options, the descriptor to sleep on,
 * statistics, destruction. */
#include "contract.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static void names_and_version(void)
{
	static const struct {
		int status;
		const char *name;
	} table[] = {{RPW_OK, "RPW_OK"}, {RPW_IN_PROGRESS, "RPW_IN_PROGRESS"},
		{RPW_ERR_INVALID, "RPW_ERR_INVALID"}, {RPW_ERR_NO_MEMORY, "RPW_ERR_NO_MEMORY"},
		{RPW_ERR_TIMEOUT, "RPW_ERR_TIMEOUT"}, {RPW_ERR_EXPIRED, "RPW_ERR_EXPIRED"},
		{RPW_ERR_CANCELED, "RPW_ERR_CANCELED"}, {RPW_ERR_TRUNCATED, "RPW_ERR_TRUNCATED"},
		{RPW_ERR_UNREACHABLE, "RPW_ERR_UNREACHABLE"}, {RPW_ERR_REFUSED, "RPW_ERR_REFUSED"},
		{RPW_ERR_PEER_GONE, "RPW_ERR_PEER_GONE"}, {RPW_ERR_ACCESS, "RPW_ERR_ACCESS"},
		{RPW_ERR_PROTOCOL, "RPW_ERR_PROTOCOL"},
		{RPW_ERR_NOT_SUPPORTED, "RPW_ERR_NOT_SUPPORTED"}, {RPW_ERR_LIMIT, "RPW_ERR_LIMIT"},
		{RPW_ERR_SYSTEM, "RPW_ERR_SYSTEM"}};
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
		IS(strcmp(rpw_status_name(table[i].status), table[i].name), 0);
	static const int unknown[] = {2, -15, -1000, 1 << 30, -(1 << 30)};
	for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++)
		IS(strcmp(rpw_status_name(unknown[i]), "unknown status"), 0);
	char begins[32];
	snprintf(begins, sizeof(begins), "%d.%d.", RPW_VERSION_MAJOR, RPW_VERSION_MINOR);
	IS(strncmp(rpw_version(), begins, strlen(begins)), 0);
}

static void *another_thread(void *arg)
{
	/* Nothing has failed here yet, whatever happened in the other. */
	CHECK(rpw_last_error() != NULL);
	CHECK(!strstr(rpw_last_error(), "pigeon"));
	rpw_context *c = NULL;
	rpw_context_options o = options_of("carrier");
	IS(rpw_context_create(&o, &c), RPW_ERR_INVALID);
	SAYS("carrier");
	return arg;
}

static void last_error_is_of_its_thread(void)
{
	CHECK(rpw_last_error() != NULL);
	CHECK(*rpw_last_error());
	rpw_context *c = NULL;
	rpw_context_options o = options_of("pigeon");
	IS(rpw_context_create(&o, &c), RPW_ERR_INVALID);
	SAYS("pigeon");
	pthread_t t;
	IS(pthread_create(&t, NULL, another_thread, NULL), 0);
	IS(pthread_join(t, NULL), 0);
	SAYS("pigeon");
	/* Two contexts share nothing: neither does a failure of one. */
	c = context_open();
	rpw_context_destroy(c);
}

static void what_options_a_context_takes(void)
{
	rpw_context *untouched = (rpw_context *)&untouched, *c = untouched;
	REFUSED(rpw_context_create(NULL, NULL), RPW_ERR_INVALID, "out is NULL");
	rpw_context_options o = options_of("shm,pigeon");
	REFUSED(rpw_context_create(&o, &c), RPW_ERR_INVALID, "'pigeon'");
	SAYS("tcp"); /* what there is */
	o.transports = " , ,";
	REFUSED(rpw_context_create(&o, &c), RPW_ERR_INVALID, "is empty");
	o.size = 0;
	REFUSED(rpw_context_create(&o, &c), RPW_ERR_INVALID, "sizeof(rpw_context_options)");
	CHECK(c == untouched);
	/* None, the empty list, a list with spaces and something twice. */
	IS(rpw_context_create(NULL, &c), RPW_OK);
	rpw_context_destroy(c);
	o = options_of("");
	IS(rpw_context_create(&o, &c), RPW_OK);
	rpw_context_destroy(c);
	o = options_of("tcp, tcp,shm");
	IS(rpw_context_create(&o, &c), RPW_OK);
	rpw_context_destroy(c);
	/* A program of an earlier version: what lies behind its struct is not looked at. Of a later
	 * one: what this version does not know is left alone. */
	o = options_of(contract_transport);
	o.key_file = "/nonexistent/key";
	o.size = offsetof(rpw_context_options, key_file);
	IS(rpw_context_create(&o, &c), RPW_OK);
	rpw_context_destroy(c);
	struct {
		rpw_context_options known;
		uint64_t later[8];
	} longer;
	memset(&longer, 0x77, sizeof(longer));
	longer.known = options_of(contract_transport);
	longer.known.size = sizeof(longer);
	IS(rpw_context_create(&longer.known, &c), RPW_OK);
	rpw_context_destroy(c);
}

/* Only what is listed is used; where that is none, verbs is none of the transports. */
static void rdma_devices_as_listed(void)
{
	rpw_context *c = NULL;
	rpw_context_options o = options_of("verbs");
	struct pair p;
	char name[32], list[80], long_list[400];
	memset(long_list, 'x', sizeof(long_list) - 1);
	long_list[sizeof(long_list) - 1] = 0;
	o.rdma_devices = long_list;
	REFUSED(rpw_context_create(&o, &c), RPW_ERR_INVALID, "rdma_devices");
	o.rdma_devices = "nothere0,nothere1";
	REFUSED(rpw_context_create(&o, &c), RPW_ERR_UNREACHABLE, "nothere0");
	o.transports = "verbs,tcp";
	pair_open_as(&p, &o, NULL);
	IS(strcmp(information_of(p.ea).transport, "tcp"), 0);
	pair_close(&p);
	if (strcmp(contract_transport, "verbs") != 0)
		return;
	o.transports = "verbs";
	o.rdma_devices = "";
	pair_open_as(&p, &o, NULL);
	IS(sscanf(information_of(p.ea).path, "%31[^,]", name), 1); /* "rpw_lo, GID 1 ..." */
	pair_close(&p);
	snprintf(list, sizeof(list), "nothere0,%s", name);
	o.rdma_devices = list;
	pair_open_as(&p, &o, NULL);
	CHECK(!strncmp(information_of(p.ea).path, name, strlen(name)));
	pair_close(&p);
	snprintf(list, sizeof(list), "%s0,x%s", name, name); /* whole names */
	REFUSED(rpw_context_create(&o, &c), RPW_ERR_UNREACHABLE, name);
}

static void options_from_the_environment(void)
{
	rpw_context *c = NULL;
	rpw_context_options o = options_of(NULL);
	setenv("ROPEWAY_TRANSPORT", "pigeon", 1);
	REFUSED(rpw_context_create(&o, &c), RPW_ERR_INVALID, "ROPEWAY_TRANSPORT");
	REFUSED(rpw_context_create(NULL, &c), RPW_ERR_INVALID, "'pigeon'");
	o.transports = "tcp"; /* what the program says goes first */
	IS(rpw_context_create(&o, &c), RPW_OK);
	rpw_context_destroy(c);
	setenv("ROPEWAY_TRANSPORT", "tcp", 1);
	o.transports = NULL;
	struct pair p;
	pair_open_as(&p, &o, NULL);
	IS(strcmp(information_of(p.ea).transport, "tcp"), 0);
	pair_close(&p);
	unsetenv("ROPEWAY_TRANSPORT");
	setenv("ROPEWAY_KEY_FILE", "/nonexistent/key", 1);
	REFUSED(rpw_context_create(NULL, &c), RPW_ERR_SYSTEM, "/nonexistent/key");
	SAYS("make one with");
	setenv("ROPEWAY_KEY_FILE", "", 1);
	IS(rpw_context_create(NULL, &c), RPW_OK);
	rpw_context_destroy(c);
	unsetenv("ROPEWAY_KEY_FILE");
}

static void eager_bytes_as_the_option_says(void)
{
	struct pair p;
	rpw_context_options o = options_of(contract_transport);
	o.eager_bytes_max = 100;
	pair_open_as(&p, &o, NULL);
	IS(information_of(p.ea).eager_bytes_max, 100);
	/* One byte to each side of it. */
	for (size_t n = 99; n <= 101; n++) {
		unsigned char out[101], in[101];
		rpw_request *s = NULL, *r = NULL;
		pattern_fill(out, n, n);
		int rc = rpw_send(p.ea, out, n, n, &s);
		IS(rpw_recv(p.b, NULL, in, sizeof(in), n, ALL, &r), RPW_IN_PROGRESS);
		IS(pair_finish(&p, r, NULL), RPW_OK);
		IS(ended(&p, rc, s), RPW_OK);
		CHECK(pattern_right(in, n, n));
	}
	pair_close(&p);
}

static void null_is_no_context(void)
{
	struct pair p;
	memset(&p, 0, sizeof(p));
	rpw_request *r = NULL;
	rpw_listener *l = NULL;
	rpw_endpoint *ep = NULL;
	rpw_memory *m = NULL;
	rpw_statistics s;
	char byte;
	s.size = sizeof(s);
	REFUSED(rpw_context_progress(NULL), RPW_ERR_INVALID, "rpw_context_progress");
	REFUSED(rpw_context_fd(NULL), RPW_ERR_INVALID, "rpw_context_fd");
	REFUSED(rpw_context_arm(NULL), RPW_ERR_INVALID, "rpw_context_arm");
	REFUSED(rpw_context_statistics(NULL, &s), RPW_ERR_INVALID, "context");
	REFUSED(rpw_request_wait_all(NULL, &r, 1, 0), RPW_ERR_INVALID, "rpw_request_wait_all");
	REFUSED(rpw_listener_create(NULL, ":0", (rpw_accept_fn)NULL, NULL, &l), RPW_ERR_INVALID,
		"context");
	REFUSED(rpw_endpoint_create(NULL, "127.0.0.1:1", NULL, &ep, &r), RPW_ERR_INVALID,
		"context");
	REFUSED(rpw_recv(NULL, NULL, &byte, 1, 0, ALL, &r), RPW_ERR_INVALID, "context");
	REFUSED(rpw_recv_iov(NULL, NULL, NULL, 0, 0, ALL, &r), RPW_ERR_INVALID, "context");
	REFUSED(rpw_probe(NULL, NULL, 0, 0, NULL), RPW_ERR_INVALID, "context");
	REFUSED(rpw_context_on_am(NULL, 0, NULL, NULL), RPW_ERR_INVALID, "rpw_context_on_am");
	REFUSED(rpw_memory_register(NULL, &byte, 1, RPW_MEMORY_HOST, 0, &m), RPW_ERR_INVALID,
		"context");
	REFUSED(rpw_memory_allocate(NULL, 1, 0, &m), RPW_ERR_INVALID, "context");
	rpw_context_on_notify(NULL, NULL, NULL);
	rpw_context_destroy(NULL);
}

static void *no_memory(size_t len, void *arg)
{
	(void)len;
	(void)arg;
	return NULL;
}
static void nobody(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	(void)l;
	(void)ep;
	(void)arg;
}

/* Of several arguments the one that is wrong is named. */
static void the_argument_that_is_wrong_is_named(void)
{
	struct pair p;
	rpw_context *stranger = context_open();
	rpw_request *r = NULL;
	rpw_listener *l = NULL;
	rpw_endpoint *ep = NULL;
	rpw_memory *m = NULL;
	rpw_rkey *k = NULL;
	void *buf = NULL;
	size_t len = 0;
	char byte = 0, key[RPW_RKEY_BYTES_MAX];
	pair_open(&p);
	pair_memory(&p);
#define WRONG(call, what) REFUSED(call, RPW_ERR_INVALID, what)
	WRONG(rpw_recv(NULL, NULL, &byte, 1, 0, ALL, &r), "rpw_recv: the context is NULL");
	WRONG(rpw_recv(stranger, p.ea, &byte, 1, 0, ALL, &r),
		"rpw_recv: the endpoint is of another context");
	WRONG(rpw_recv(p.a, p.ea, NULL, 1, 0, ALL, &r), "rpw_recv: the buffer is NULL");
	WRONG(rpw_recv_iov(stranger, p.ea, NULL, 0, 0, ALL, &r),
		"rpw_recv_iov: the endpoint is of another context");
	WRONG(rpw_probe(stranger, p.ea, 0, 0, NULL),
		"rpw_probe: the endpoint is of another context");
	WRONG(rpw_probe(NULL, NULL, 0, 0, NULL), "rpw_probe: the context is NULL");
	WRONG(rpw_send(NULL, &byte, 1, 0, &r), "the endpoint is NULL");
	WRONG(rpw_send_obj(NULL, &byte, 1, &r), "rpw_send_obj: the endpoint is NULL");
	WRONG(rpw_send_obj(p.ea, NULL, 1, &r), "rpw_send_obj: the buffer is NULL");
	WRONG(rpw_recv_obj(NULL, NULL, no_memory, NULL, &buf, &len, &r),
		"rpw_recv_obj: the context is NULL");
	WRONG(rpw_recv_obj(p.b, p.ea, no_memory, NULL, &buf, &len, &r),
		"rpw_recv_obj: the endpoint is of another context");
	WRONG(rpw_recv_obj(p.a, p.ea, no_memory, NULL, NULL, &len, &r),
		"rpw_recv_obj: buf is NULL");
	WRONG(rpw_recv_obj(p.a, p.ea, no_memory, NULL, &buf, NULL, &r),
		"rpw_recv_obj: len is NULL");
	WRONG(rpw_am_send(NULL, 1, NULL, 0, NULL, 0, &r), "rpw_am_send: the endpoint is NULL");
	WRONG(rpw_am_send(p.ea, 1, NULL, 1, NULL, 0, &r), "rpw_am_send: the header is NULL");
	WRONG(rpw_am_send(p.ea, 1, NULL, 0, NULL, 1, &r), "rpw_am_send: the buffer is NULL");
	WRONG(rpw_am_send(p.ea, 256, NULL, 0, NULL, 0, &r), "id 256");
	WRONG(rpw_context_on_am(NULL, 0, NULL, NULL), "rpw_context_on_am: the context is NULL");
	WRONG(rpw_context_on_am(p.a, 256, NULL, NULL), "256");
	WRONG(rpw_put(NULL, &byte, 1, p.k, 0, &r), "put: the endpoint is NULL");
	WRONG(rpw_get(p.ea, &byte, 1, NULL, 0, &r), "get: the remote key is NULL");
	WRONG(rpw_transfer_batch(NULL, NULL, 0, &r), "rpw_transfer_batch: the endpoint is NULL");
	WRONG(rpw_transfer_batch(p.ea, NULL, 1, &r),
		"rpw_transfer_batch: the array of transfers is NULL");
	WRONG(rpw_endpoint_flush(NULL, &r), "rpw_endpoint_flush: the endpoint is NULL");
	WRONG(rpw_endpoint_fence(NULL), "rpw_endpoint_fence: the endpoint is NULL");
	WRONG(rpw_listener_create(NULL, ":0", nobody, NULL, &l),
		"rpw_listener_create: the context is NULL");
	WRONG(rpw_listener_create(p.a, NULL, nobody, NULL, &l),
		"rpw_listener_create: the address is NULL");
	WRONG(rpw_listener_create(p.a, ":0", (rpw_accept_fn)NULL, NULL, &l),
		"rpw_listener_create: the callback is NULL");
	WRONG(rpw_listener_create(p.a, ":0", nobody, NULL, NULL),
		"rpw_listener_create: out is NULL");
	WRONG(rpw_endpoint_create(NULL, "h:1", NULL, &ep, &r),
		"rpw_endpoint_create: the context is NULL");
	WRONG(rpw_endpoint_create(p.a, NULL, NULL, &ep, &r),
		"rpw_endpoint_create: the address is NULL");
	WRONG(rpw_endpoint_create(p.a, "h:1", NULL, NULL, &r), "rpw_endpoint_create: out is NULL");
	WRONG(rpw_endpoint_info(NULL, NULL), "rpw_endpoint_info: the endpoint is NULL");
	WRONG(rpw_endpoint_info(p.ea, NULL),
		"rpw_endpoint_info: the rpw_endpoint_information to fill is NULL");
	WRONG(rpw_context_statistics(p.a, NULL),
		"rpw_context_statistics: the rpw_statistics to fill is NULL");
	WRONG(rpw_request_wait_all(NULL, &r, 1, 0), "rpw_request_wait_all: the context is NULL");
	WRONG(rpw_request_wait_all(p.a, NULL, 1, 0),
		"rpw_request_wait_all: the array of requests is NULL");
	WRONG(rpw_memory_allocate(NULL, 1, 0, &m), "the context is NULL");
	WRONG(rpw_memory_allocate(p.a, 0, 0, &m), "the length is 0");
	WRONG(rpw_memory_allocate(p.a, 1, 0, NULL), "out is NULL");
	WRONG(rpw_memory_allocate(p.a, 1, 1u << 30, &m), "access 0x40000000");
	WRONG(rpw_memory_direct(NULL), "rpw_memory_direct: the context is NULL");
	WRONG(rpw_rkey_pack(NULL, key, sizeof(key)), "rpw_rkey_pack: the memory is NULL");
	WRONG(rpw_rkey_pack(p.m, NULL, sizeof(key)), "rpw_rkey_pack: out is NULL");
	WRONG(rpw_rkey_unpack(NULL, key, sizeof(key), &k), "rpw_rkey_unpack: the endpoint is NULL");
	WRONG(rpw_rkey_unpack(p.ea, NULL, sizeof(key), &k),
		"rpw_rkey_unpack: the packed key is NULL");
	WRONG(rpw_rkey_unpack(p.ea, key, sizeof(key), NULL), "rpw_rkey_unpack: out is NULL");
	rpw_context_destroy(stranger);
	pair_close(&p);
}

/* ---- sleeping ---- */

static bool readable(int fd, int timeout_ms)
{
	struct pollfd f;
	memset(&f, 0, sizeof(f));
	f.fd = fd;
	f.events = POLLIN;
	return poll(&f, 1, timeout_ms) == 1;
}

/* Armed, and nothing to do. */
static void sleepy(rpw_context *c)
{
	for (;;) {
		int rc = rpw_context_arm(c);
		CHECK(rc == 0 || rc == RPW_IN_PROGRESS);
		if (!rc && !readable(rpw_context_fd(c), 0))
			return;
		rpw_context_progress(c);
	}
}

enum { LONG_MS = 60000 };

static void the_descriptor_wakes_for_what_comes(void)
{
	struct pair p;
	rpw_request *r = NULL, *s = NULL;
	pair_open(&p);
	int fd = rpw_context_fd(p.b), ep = epoll_create1(0);
	struct epoll_event ev;
	memset(&ev, 0, sizeof(ev));
	ev.events = EPOLLIN;
	CHECK(fd >= 0);
	IS(rpw_context_fd(p.b), fd); /* it stays */
	IS(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), 0);
	settle(&p);
	static const size_t sizes[] = {0, 8, 200000};
	static unsigned char out[200000], in[200000];
	for (int k = 0; k < 3; k++) {
		size_t n = sizes[k];
		pattern_fill(out, n, (uint64_t)k);
		IS(rpw_recv(p.b, NULL, in, n, 1, ALL, &r), RPW_IN_PROGRESS);
		sleepy(p.b);
		s = NULL;
		int rc = rpw_send(p.ea, out, n, 1, &s);
		CHECK(rc >= 0);
		/* b sleeps whenever it has nothing to do; a is driven between. */
		for (long sleeps = 0; rpw_request_test(r, NULL) == RPW_IN_PROGRESS; sleeps++) {
			CHECK(sleeps < 1000000);
			for (int i = 0; i < 100; i++)
				rpw_context_progress(p.a);
			rc = rpw_context_arm(p.b);
			CHECK(rc >= 0);
			if (!rc)
				IS(epoll_wait(ep, &ev, 1, LONG_MS), 1);
			rpw_context_progress(p.b);
		}
		IS(rpw_request_test(r, NULL), RPW_OK);
		CHECK(pattern_right(in, n, (uint64_t)k));
		rpw_request_destroy(r);
		if (s)
			IS(pair_finish(&p, s, NULL), RPW_OK);
		settle(&p);
	}
	close(ep);
	pair_close(&p);
}

static void count_done(rpw_request *r, const rpw_completion *done, void *arg)
{
	(void)r;
	(void)done;
	++*(int *)arg;
}

static void arm_says_when_there_is_something_to_do(void)
{
	struct pair p;
	rpw_request *r = NULL;
	int done = 0;
	pair_open(&p);
	settle(&p);
	sleepy(p.a);
	/* A callback that waits to be called. */
	IS(rpw_recv(p.a, p.ea, incoming, 8, 1, ALL, &r), RPW_IN_PROGRESS);
	rpw_request_on_done(r, count_done, &done);
	IS(rpw_request_cancel(r), RPW_OK);
	IS(done, 0);
	IS(rpw_context_arm(p.a), RPW_IN_PROGRESS);
	CHECK(rpw_context_progress(p.a) > 0);
	IS(done, 1);
	rpw_request_destroy(r);
	sleepy(p.a);
	IS(rpw_context_progress(p.a), 0);
	pair_close(&p);
}

static void the_descriptor_wakes_for_deadlines(void)
{
	rpw_context *c = context_open();
	rpw_endpoint *ep = NULL;
	rpw_request *r = NULL;
	/* A listener that says nothing: only the deadline can end this. */
	int s = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	memset(&at, 0, sizeof(at));
	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	IS(bind(s, (struct sockaddr *)&at, sizeof(at)), 0);
	IS(listen(s, 10), 0);
	IS(getsockname(s, (struct sockaddr *)&at, &len), 0);
	char address[64];
	snprintf(address, sizeof(address), "127.0.0.1:%d", ntohs(at.sin_port));
	rpw_endpoint_options o;
	memset(&o, 0, sizeof(o));
	o.size = sizeof(o);
	o.timeout_ms = 300;
	IS(rpw_endpoint_create(c, address, &o, &ep, &r), RPW_IN_PROGRESS);
	while (rpw_request_test(r, NULL) == RPW_IN_PROGRESS) {
		int rc = rpw_context_arm(c);
		CHECK(rc >= 0);
		CHECK(rc || readable(rpw_context_fd(c), LONG_MS));
		rpw_context_progress(c);
	}
	IS(rpw_request_test(r, NULL), RPW_ERR_TIMEOUT);
	IS(information_of(ep).status, RPW_ERR_TIMEOUT);
	HAS(information_of(ep).why, address);
	rpw_request_destroy(r);
	rpw_context_destroy(c);
	close(s);
}

/* ---- statistics ---- */

static void nothing_said(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	(void)ep, (void)header, (void)header_len, (void)data, (void)len, (void)arg;
}

static void statistics_count(void)
{
	struct pair p;
	rpw_request *r = NULL;
	pair_open(&p);
	pair_memory(&p);
	settle(&p);
	rpw_statistics a = statistics_of(p.a), b = statistics_of(p.b);
	IS(a.size, sizeof(a));
	IS(a.endpoints, 1);
	IS(a.listeners, 0);
	IS(b.listeners, 1);
	IS(a.requests + b.requests, 0);
	IS(a.sent + a.received + b.sent + b.received, 0);
	IS(a.path_changes + a.strangers_refused, 0);
	rpw_context_on_am(p.b, 1, nothing_said, NULL);
	/* Four kinds of 64 bytes: of a message, in pieces, of an object, of an active message. */
	int obj = rpw_recv_obj(p.b, p.eb, NULL, NULL, &incoming_obj, &incoming_obj_len, NULL);
	IS(obj, RPW_IN_PROGRESS);
	for (int what = SEND; what <= AM_SEND; what++) {
		r = NULL;
		int rc = post(&p, what, p.ea, &r);
		IS(ended(&p, rc, r), RPW_OK);
	}
	settle(&p);
	free(incoming_obj);
	a = statistics_of(p.a);
	b = statistics_of(p.b);
	IS(a.sent, 4);
	IS(a.bytes_sent, 4 * 64);
	/* Those of tag 1 have no receive yet. */
	IS(b.unexpected, 2);
	IS(b.unexpected_bytes, 2 * 64);
	IS(b.received, 2);
	IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 1, ALL, &r), RPW_IN_PROGRESS);
	IS(pair_finish(&p, r, NULL), RPW_OK);
	IS(rpw_recv(p.b, p.eb, incoming, sizeof(incoming), 1, ALL, NULL), RPW_OK);
	b = statistics_of(p.b);
	IS(b.unexpected, 2);
	IS(b.unexpected_bytes, 0);
	IS(b.received, 4);
	IS(b.bytes_received, 4 * 64);
	/* Requests are those under way. */
	IS(rpw_recv(p.b, NULL, incoming, sizeof(incoming), 1, ALL, &r), RPW_IN_PROGRESS);
	IS(statistics_of(p.b).requests, 1);
	rpw_request_cancel(r);
	IS(statistics_of(p.b).requests, 0);
	rpw_request_destroy(r);
	/* The struct of an earlier version is filled as far as it goes. */
	memset(&b, 0x5a, sizeof(b));
	b.size = offsetof(rpw_statistics, received);
	IS(rpw_context_statistics(p.b, &b), RPW_OK);
	IS(b.sent, 0);
	IS(b.received, 0x5a5a5a5a5a5a5a5aLL);
	b.size = 0;
	REFUSED(rpw_context_statistics(p.b, &b), RPW_ERR_INVALID, "sizeof(rpw_statistics)");
	REFUSED(rpw_context_statistics(p.b, NULL), RPW_ERR_INVALID, "rpw_statistics");
	rpw_endpoint_destroy(p.ea);
	p.ea = NULL;
	IS(statistics_of(p.a).endpoints, 0);
	pair_close(&p);
}

static void strangers_are_counted(void)
{
	rpw_context *c = context_open();
	rpw_endpoint *ep = NULL;
	char address[64];
	rpw_listener *l = pair_listen(c, &ep, address);
	struct sockaddr_in at;
	memset(&at, 0, sizeof(at));
	at.sin_family = AF_INET;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	at.sin_port = htons((uint16_t)rpw_listener_port(l));
	int s = socket(AF_INET, SOCK_STREAM, 0);
	IS(connect(s, (struct sockaddr *)&at, sizeof(at)), 0);
	CHECK(send(s, "GET / HTTP/1.1\r\nHost: here\r\n\r\n", 30, MSG_NOSIGNAL) == 30);
	while (!statistics_of(c).strangers_refused)
		rpw_context_progress(c);
	IS(statistics_of(c).strangers_refused, 1);
	IS(statistics_of(c).endpoints, 0);
	CHECK(!ep);
	close(s);
	rpw_context_destroy(c);
}

/* ---- destruction ---- */

static int destroyed_status;
static void on_destroyed(rpw_request *r, const rpw_completion *done, void *arg)
{
	(void)r;
	destroyed_status = done->status;
	++*(int *)arg;
}

static void posts_again(rpw_request *r, const rpw_completion *done, void *arg)
{
	rpw_request *again = NULL;
	rpw_endpoint *ep = NULL;
	rpw_context *c = *(rpw_context **)arg;
	(void)r;
	(void)done;
	/* As a server that always has a receive posted, and a client that connects again. */
	rpw_recv(c, NULL, incoming, 8, 1, ALL, &again);
	if (again)
		rpw_request_on_done(again, posts_again, arg);
	rpw_endpoint_create(c, "127.0.0.1:1", NULL, &ep, NULL);
}

static void destroy_ends_everything(void)
{
	struct pair p;
	rpw_request *held[POSTINGS], *r = NULL;
	int called = 0;
	pair_open(&p);
	pair_memory(&p);
	/* b takes nothing: what is posted stays under way, some of it in b's rings. */
	static unsigned char big[1 << 20];
	for (int i = 0; i < 50; i++)
		rpw_send(p.ea, big, sizeof(big), 1, NULL);
	for (int what = 0; what < POSTINGS; what++) {
		held[what] = NULL;
		CHECK(post(&p, what, p.ea, &held[what]) >= 0);
		if (held[what])
			rpw_request_on_done(held[what], on_destroyed, &called);
	}
	IS(rpw_recv(p.a, NULL, incoming, 8, 99, ALL, &r), RPW_IN_PROGRESS);
	rpw_request_on_done(r, posts_again, &p.a);
	rpw_rkey_destroy(p.k);
	/* The held requests, the endpoint, the registered memory, the listener: all go with their
	 * contexts, and nothing leaks (ASan). */
	rpw_context_destroy(p.a);
	CHECK(called > 0);
	IS(destroyed_status, RPW_ERR_CANCELED);
	rpw_context_destroy(p.b);
}

static void try_to_destroy(rpw_request *r, const rpw_completion *done, void *arg)
{
	rpw_context *c = (rpw_context *)arg;
	(void)r;
	(void)done;
	forget_error();
	rpw_context_destroy(c);
	SAYS("rpw_context_destroy");
	REFUSED(rpw_context_progress(c), RPW_ERR_INVALID, "callback");
}

static void a_callback_cannot_destroy_its_context(void)
{
	rpw_context *c = context_open();
	rpw_request *r = NULL;
	IS(rpw_recv(c, NULL, incoming, 8, 1, ALL, &r), RPW_IN_PROGRESS);
	rpw_request_on_done(r, try_to_destroy, c);
	rpw_request_cancel(r);
	CHECK(rpw_context_progress(c) > 0);
	rpw_request_destroy(r);
	IS(rpw_context_progress(c), 0); /* it lives */
	rpw_context_destroy(c);
}

const struct contract_case context_cases[] = {
	{"names_and_version", names_and_version, false, "rpw_status_name rpw_version"},
	{"last_error_is_of_its_thread", last_error_is_of_its_thread, false, "rpw_last_error"},
	{"what_options_a_context_takes", what_options_a_context_takes, false, "rpw_context_create"},
	{"options_from_the_environment", options_from_the_environment, false, "rpw_context_create"},
	{"rdma_devices_as_listed", rdma_devices_as_listed, true, "rpw_context_create"},
	{"eager_bytes_as_the_option_says", eager_bytes_as_the_option_says, true,
		"rpw_context_create"},
	{"the_argument_that_is_wrong_is_named", the_argument_that_is_wrong_is_named, false,
		"rpw_last_error rpw_recv rpw_send_obj rpw_am_send rpw_transfer_batch rpw_rkey_pack "
		"rpw_rkey_unpack"},
	{"null_is_no_context", null_is_no_context, false,
		"rpw_context_progress rpw_context_fd rpw_context_arm rpw_context_statistics "
		"rpw_request_wait_all rpw_listener_create rpw_endpoint_create "
		"rpw_recv rpw_recv_iov "
		"rpw_probe "
		"rpw_context_on_am rpw_memory_register rpw_memory_allocate rpw_context_on_notify "
		"rpw_context_destroy"},
	{"the_descriptor_wakes_for_what_comes", the_descriptor_wakes_for_what_comes, true,
		"rpw_context_fd rpw_context_arm"},
	{"arm_says_when_there_is_something_to_do", arm_says_when_there_is_something_to_do, true,
		"rpw_context_arm rpw_context_progress"},
	{"the_descriptor_wakes_for_deadlines", the_descriptor_wakes_for_deadlines, false,
		"rpw_context_fd rpw_context_arm rpw_endpoint_create"},
	{"statistics_count", statistics_count, true, "rpw_context_statistics"},
	{"strangers_are_counted", strangers_are_counted, false, "rpw_context_statistics"},
	{"destroy_ends_everything", destroy_ends_everything, true, "rpw_context_destroy"},
	{"a_callback_cannot_destroy_its_context", a_callback_cannot_destroy_its_context, false,
		"rpw_context_destroy rpw_context_progress"},
	{NULL, NULL, false, NULL},
};
