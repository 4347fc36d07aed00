/* SPDX-License-Identifier: BSD-3-Clause */
/* planted_rpw.c - a program of the messaging library with one mistake: `planted_rpw TRANSPORT CASE
 * bad|good`; without CASE the list, a line each: CASE RULE. */
#include <pthread.h>
#include <ropeway.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = 8 << 20, SHORT = 4096 };
static rpw_context *client, *server;
static rpw_listener *listener;
static rpw_endpoint *to_server, *to_client;
static unsigned char *from, *into;

static void expect(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "expected: %s (%s)\n", what, rpw_last_error());
	exit(3);
}

static void accepted(rpw_listener *l, rpw_endpoint *ep, void *arg) { to_client = ep; }

static void progress(void)
{
	rpw_context_progress(client);
	rpw_context_progress(server);
}

static void finish(rpw_request *r)
{
	rpw_completion done = RPW_COMPLETION_INIT;
	for (long i = 0; i < 100000000 && rpw_request_test(r, &done) == RPW_IN_PROGRESS; i++)
		progress();
	expect(done.status == RPW_OK, "a request that is done");
}

static void begin(const char *transport)
{
	rpw_context_options o = RPW_CONTEXT_OPTIONS_INIT;
	char address[RPW_ADDRESS_MAX];
	rpw_request *r;
	o.transports = transport;
	expect(!rpw_context_create(&o, &client) && !rpw_context_create(&o, &server), "contexts");
	expect(!rpw_listener_create(server, "127.0.0.1:0", accepted, NULL, &listener), "to listen");
	expect(rpw_listener_address(listener, address, sizeof(address)) >= 0, "its address");
	expect(rpw_endpoint_create(client, address, NULL, &to_server, &r) >= 0, "an endpoint");
	finish(r);
	rpw_request_destroy(r);
	while (!to_client)
		progress();
	from = malloc(LONG);
	into = malloc(LONG);
	expect(from && into, "memory");
	memset(from, 0x33, LONG);
}

static void end(void)
{
	rpw_endpoint_destroy(to_server);
	rpw_endpoint_destroy(to_client);
	rpw_listener_destroy(listener);
	rpw_context_destroy(client);
	rpw_context_destroy(server);
	free(from);
	free(into);
}

static void transfer(bool spoil, bool keep)
{
	rpw_request *send = NULL, *recv = NULL;
	expect(rpw_send(to_server, from, LONG, 7, &send) == RPW_IN_PROGRESS, "a send under way");
	for (int i = 0; i < 1000; i++)
		progress();
	if (spoil)
		from[100]++;
	expect(rpw_recv(server, to_client, into, LONG, 7, ~0ull, &recv) >= 0, "a receive");
	finish(recv);
	finish(send);
	rpw_request_destroy(recv);
	if (!keep)
		rpw_request_destroy(send);
}

static void buffer(bool bad) { transfer(bad, false); }
static void leak(bool bad) { transfer(false, bad); }

/* A message comes while the thread is inside a callback, and another one calls. */
static void *call(void *arg)
{
	rpw_context_progress(server);
	return NULL;
}

static void on_message(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	pthread_t other;
	if (!*(bool *)arg)
		return;
	expect(!pthread_create(&other, NULL, call, NULL), "a thread");
	pthread_join(other, NULL);
}

static void thread(bool bad)
{
	rpw_request *send = NULL;
	expect(!rpw_context_on_am(server, 1, on_message, &bad), "a handler");
	int rc = rpw_am_send(to_server, 1, NULL, 0, from, 8, &send);
	expect(rc >= 0, "to send");
	for (int i = 0; i < 20000; i++)
		progress();
	if (send)
		rpw_request_destroy(send);
}

static void pass_on(rpw_loaned *l, bool spoil)
{
	rpw_request *send = NULL, *recv = NULL;
	rpw_view view = RPW_VIEW_INIT;
	unsigned char *data = l->data;
	memset(data, 0x5a, SHORT);
	expect(rpw_send_loan(to_server, l, SHORT, 9, &send) >= 0, "to send a loan");
	if (spoil)
		data[SHORT / 2]++;
	expect(rpw_recv_view(server, to_client, 9, ~0ull, &view, &recv) >= 0, "a receive");
	finish(recv);
	if (send) {
		finish(send);
		rpw_request_destroy(send);
	}
	rpw_request_destroy(recv);
	expect(!rpw_view_release(&view), "to release a view");
}

/* The library looks at a loan again when it needs its memory. */
static void loan(bool bad)
{
	for (int i = 0; i < 200; i++) {
		rpw_loaned l = RPW_LOANED_INIT;
		expect(!rpw_loan(to_server, SHORT, 0, 1000, &l), "a loan");
		pass_on(&l, bad && !i);
	}
}

static void loan_left(bool bad)
{
	rpw_loaned l = RPW_LOANED_INIT;
	expect(!rpw_loan(to_server, SHORT, 0, 1000, &l), "a loan");
	if (!bad)
		expect(!rpw_loan_return(&l), "to return it");
}

static const struct {
	const char *rule;
	void (*run)(bool bad);
} cases[] = {
	{"rpw-buffer", buffer},
	{"rpw-leak", leak},
	{"rpw-thread", thread},
	{"rpw-loan", loan},
	{"rpw-loan-left", loan_left},
};

int main(int argc, char **argv)
{
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (argc < 4)
			printf("%s %s\n", cases[i].rule, cases[i].rule);
		else if (!strcmp(cases[i].rule, argv[2])) {
			begin(argv[1]);
			cases[i].run(!strcmp(argv[3], "bad"));
			end();
			return 0;
		}
	}
	return argc < 4 ? 0 : 2;
}
