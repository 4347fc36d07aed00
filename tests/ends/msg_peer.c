/* SPDX-License-Identifier: BSD-3-Clause */
/* msg_peer.c - one side of a connection of the messaging library. `serve` waits to be ended; `wait`
 * has sent a message, and waits for an answer that does not come: it prints what it learns.
 *
 *   msg_peer serve ADDRESS:PORT
 *   msg_peer wait ADDRESS:PORT
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ropeway.h"

enum { LIMIT_MS = 30000, TAG = 7, BYTES = 64 };

static void must(int rc, const char *what)
{
	if (rc < 0) {
		fprintf(stderr, "msg_peer: %s: %s\n", what, rpw_last_error());
		_exit(2);
	}
}

static void on_accept(rpw_listener *l, rpw_endpoint *ep, void *arg) {}

static int serve(rpw_context *c, const char *address)
{
	rpw_listener *l;
	rpw_request *r;
	char got[BYTES];
	must(rpw_listener_create(c, address, on_accept, NULL, &l), "listener");
	printf("ready %d\n", (int)getpid());
	fflush(stdout);
	must(rpw_finish(rpw_recv(c, NULL, got, sizeof(got), TAG, ~0ull, &r), &r, LIMIT_MS, NULL),
		"recv");
	printf("connected\n");
	fflush(stdout);
	must(rpw_recv(c, NULL, got, sizeof(got), TAG + 1, ~0ull, &r), "recv");
	rpw_request_wait(r, 2 * LIMIT_MS, NULL);
	return 0;
}

static int wait_for_answer(rpw_context *c, const char *address)
{
	rpw_endpoint *ep;
	rpw_request *r;
	rpw_endpoint_information info = RPW_ENDPOINT_INFORMATION_INIT;
	static char message[BYTES] = "hello, who will not answer", answer[BYTES];
	must(rpw_finish(rpw_endpoint_create(c, address, NULL, &ep, &r), &r, LIMIT_MS, NULL),
		"endpoint");
	must(rpw_finish(rpw_send(ep, message, sizeof(message), TAG, &r), &r, LIMIT_MS, NULL),
		"send");
	must(rpw_endpoint_info(ep, &info), "info");
	printf("path %s\n", info.transport);
	fflush(stdout);
	int rc = rpw_finish(
		rpw_recv(c, ep, answer, sizeof(answer), TAG, ~0ull, &r), &r, LIMIT_MS, NULL);
	printf("learned %s\n", rpw_status_name(rc));
	return 0;
}

int main(int argc, char **argv)
{
	rpw_context *c;
	if (argc != 3)
		return 2;
	must(rpw_context_create(NULL, &c), "context");
	return !strcmp(argv[1], "serve") ? serve(c, argv[2]) : wait_for_answer(c, argv[2]);
}
