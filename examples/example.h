/* SPDX-License-Identifier: BSD-3-Clause */
/* example.h - what each example does with the result of a call: say what went wrong, and end. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <ropeway.h>

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 30000 }; /* of each step: a peer that stopped must not stop us for ever */

/* A call gives a status; below 0 it failed, and rpw_last_error says what was expected, what came,
 * and what to do. */
static inline int must(int status, const char *what)
{
	if (status < 0) {
		fprintf(stderr, "%s: %s: %s\n", what, rpw_status_name(status), rpw_last_error());
		exit(1);
	}
	return status;
}

/* One turn of a program's loop: do what there is to do; when that is nothing, sleep until there is
 * something. arm says RPW_IN_PROGRESS when something came meanwhile. */
static inline void turn(rpw_context *c)
{
	struct pollfd p = {.fd = rpw_context_fd(c), .events = POLLIN};

	if (!rpw_context_progress(c) && must(rpw_context_arm(c), "rpw_context_arm") == RPW_OK)
		poll(&p, 1, -1);
}

/* Whoever sent last stays until the peer, which then has everything, has closed: closing first
 * could take back what is still on its way. */
static inline void has_closed(rpw_endpoint *ep, int status, void *flag)
{
	(void)ep, (void)status;
	*(int *)flag = 1;
}
static inline void wait_until_closed(rpw_context *c, rpw_endpoint *ep)
{
	rpw_endpoint_information info = RPW_ENDPOINT_INFORMATION_INIT;
	int closed = 0;

	rpw_endpoint_on_close(ep, has_closed, &closed);
	must(rpw_endpoint_info(ep, &info), "rpw_endpoint_info");
	while (info.connected && !closed)
		turn(c);
}

/* Where the two programs are connected, and why so. */
static inline void print_path(rpw_endpoint *ep)
{
	rpw_endpoint_information info = RPW_ENDPOINT_INFORMATION_INIT;

	must(rpw_endpoint_info(ep, &info), "rpw_endpoint_info");
	printf("connected to %s by %s (%s)\n", info.peer, info.transport, info.why);
	fflush(stdout);
}

/* Listen, and say on which port: an address may end in ":0", which is any free one. */
static inline rpw_listener *listen_on(
	rpw_context *c, const char *address, rpw_accept_fn accepted, void *arg)
{
	rpw_listener *l;

	must(rpw_listener_create(c, address, accepted, arg, &l), "rpw_listener_create");
	printf("listening on port %d\n", rpw_listener_port(l));
	fflush(stdout);
	return l;
}

/* Bytes of which no two stretches are the same: a byte at a wrong place is noticed. `number` tells
 * one message from the next. */
static inline unsigned char byte_at(uint64_t number, size_t i)
{
	uint64_t z = (number << 40) + i / 8 + 1;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return (unsigned char)((z ^ z >> 31) >> i % 8 * 8);
}
static inline void fill(unsigned char *p, size_t len, uint64_t number)
{
	for (size_t i = 0; i < len; i++)
		p[i] = byte_at(number, i);
}
static inline void check(const unsigned char *p, size_t len, uint64_t number)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != byte_at(number, i)) {
			fprintf(stderr, "message %llu: byte %zu of %zu is wrong\n",
				(unsigned long long)number, i, len);
			exit(1);
		}
}

#endif
