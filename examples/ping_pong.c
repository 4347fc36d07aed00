/* SPDX-License-Identifier: BSD-3-Clause */
/* ping_pong.c - a message with one tag goes, one with another comes back, many times; how long does
 * one way take?
 *
 *   ping_pong listen ADDRESS [COUNT [BYTES]]     for example  ping_pong listen :7472
 *   ping_pong connect ADDRESS [COUNT [BYTES]]                 ping_pong connect 127.0.0.1:7472
 *
 * Both sides are given the same COUNT and BYTES. Tags tell messages apart: a receive gets those
 * whose tag is equal in the bits of its mask. */
#include "example.h"

#include <time.h>

#define PING 0x100u /* the low byte is the number of the round */
#define PONG 0x200u

static rpw_endpoint *peer;

static void accepted(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	(void)l, (void)arg;
	if (peer)
		rpw_endpoint_destroy(ep); /* one is enough */
	else
		peer = ep;
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void send_round(uint64_t tag, unsigned char *buf, size_t len, uint64_t number)
{
	rpw_request *req;

	fill(buf, len, number);
	must(rpw_finish(
		     rpw_send(peer, buf, len, tag | (number & 0xff), &req), &req, TIMEOUT_MS, NULL),
		"rpw_send");
}

static void receive_round(
	rpw_context *c, uint64_t tag, unsigned char *buf, size_t len, uint64_t number)
{
	rpw_request *req;
	/* Any round of that kind will do, since rounds come in order: the mask leaves out the low
	 * byte. The completion has the message's own tag. */
	rpw_completion done = RPW_COMPLETION_INIT;

	must(rpw_finish(rpw_recv(c, peer, buf, len, tag, ~(uint64_t)0xff, &req), &req, TIMEOUT_MS,
		     &done),
		"rpw_recv");
	if (done.length != len || done.tag != (tag | (number & 0xff))) {
		fprintf(stderr, "round %llu: %zu bytes with tag 0x%llx came\n",
			(unsigned long long)number, done.length, (unsigned long long)done.tag);
		exit(1);
	}
	check(buf, len, number);
}

int main(int argc, char **argv)
{
	rpw_context *c;
	rpw_listener *l = NULL;
	rpw_request *req;

	if (argc < 3 || (strcmp(argv[1], "listen") != 0 && strcmp(argv[1], "connect") != 0)) {
		fprintf(stderr, "Usage: ping_pong listen|connect ADDRESS [COUNT [BYTES]]\n");
		return 2;
	}
	unsigned long count = argc > 3 ? strtoul(argv[3], NULL, 10) : 1000;
	size_t len = argc > 4 ? strtoul(argv[4], NULL, 10) : 8;
	unsigned char *buf = malloc(len ? len : 1);
	int is_server = !strcmp(argv[1], "listen");
	if (!buf)
		return 1;

	must(rpw_context_create(NULL, &c), "rpw_context_create");
	if (is_server) {
		l = listen_on(c, argv[2], accepted, NULL);
		while (!peer)
			turn(c);
	} else {
		must(rpw_finish(rpw_endpoint_create(c, argv[2], NULL, &peer, &req), &req,
			     TIMEOUT_MS, NULL),
			"rpw_endpoint_create");
	}
	print_path(peer);

	double begin_s = now_s();
	for (unsigned long i = 0; i < count; i++) {
		if (is_server)
			receive_round(c, PING, buf, len, 2 * i);
		else
			send_round(PING, buf, len, 2 * i);
		if (is_server)
			send_round(PONG, buf, len, 2 * i + 1);
		else
			receive_round(c, PONG, buf, len, 2 * i + 1);
	}
	printf("%lu rounds of %zu bytes, %.2f us one way\n", count, len,
		(now_s() - begin_s) * 1e6 / (double)count / 2);

	/* A send is complete when its buffer can be used again, the peer need not have it yet. */
	if (is_server)
		wait_until_closed(c, peer);
	rpw_endpoint_destroy(peer);
	rpw_listener_destroy(l);
	rpw_context_destroy(c);
	free(buf);
	return 0;
}
