/* SPDX-License-Identifier: BSD-3-Clause */
/* echo_client.c - sends an object to an echo_server, and compares what comes back.
 *
 *   echo_client ADDRESS [BYTES]     for example  echo_client 127.0.0.1:7471 1000000
 *
 * An object is a size and then bytes: the receiver need not know how many there will be. */
#include "example.h"

int main(int argc, char **argv)
{
	rpw_context *c;
	rpw_endpoint *ep;
	rpw_request *req, *send;

	if (argc < 2) {
		fprintf(stderr, "Usage: echo_client ADDRESS [BYTES]\n");
		return 2;
	}
	size_t len = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
	unsigned char *object = malloc(len ? len : 1);
	if (!object)
		return 1;
	fill(object, len, 1);

	must(rpw_context_create(NULL, &c), "rpw_context_create");
	/* It is tried again until somebody listens there, for 10 s if not told otherwise. */
	must(rpw_finish(rpw_endpoint_create(c, argv[1], NULL, &ep, &req), &req, TIMEOUT_MS, NULL),
		"rpw_endpoint_create");
	print_path(ep);

	/* The receive is posted first. Sending is complete when the server has taken the object. */
	void *echo;
	size_t echo_len;
	must(rpw_recv_obj(c, ep, NULL, NULL, &echo, &echo_len, &req), "rpw_recv_obj");
	must(rpw_finish(rpw_send_obj(ep, object, len, &send), &send, TIMEOUT_MS, NULL),
		"rpw_send_obj");
	must(rpw_finish(RPW_IN_PROGRESS, &req, TIMEOUT_MS, NULL), "rpw_recv_obj");
	bool same = echo_len == len && memcmp(echo, object, len) == 0;
	if (same)
		printf("%zu bytes came back as they went\n", echo_len);
	else
		fprintf(stderr, "%zu bytes went, %zu came back, and they are not the same\n", len,
			echo_len);

	free(echo); /* malloc'ed, since no allocator was given */
	free(object);
	rpw_endpoint_destroy(ep);
	rpw_context_destroy(c);
	return same ? 0 : 1;
}
