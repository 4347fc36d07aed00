/* SPDX-License-Identifier: BSD-3-Clause */
/* cost.c - what socket calls on other descriptors cost, ns each: `cost`, with and without the
 * drop-in. A line each: name, best of some rounds. The calls fail in the kernel at once, or move
 * nothing, so that what a hook adds is not lost in them. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int pair[2];
static char buf[64];

#define CALLS(X) \
	X(send, send(pair[0], buf, 0, MSG_OOB | MSG_DONTWAIT)) \
	X(sendto, sendto(pair[0], buf, 0, MSG_OOB | MSG_DONTWAIT, NULL, 0)) \
	X(sendmsg, { \
		struct msghdr m = {0}; \
		sendmsg(pair[0], &m, MSG_OOB | MSG_DONTWAIT); \
	}) \
	X(recvfrom, { \
		struct sockaddr_storage a; \
		socklen_t len = sizeof(a); \
		recvfrom(pair[0], buf, sizeof(buf), MSG_DONTWAIT, (struct sockaddr *)&a, &len); \
	}) \
	X(recvmsg, { \
		struct msghdr m = {0}; \
		recvmsg(pair[0], &m, MSG_DONTWAIT); \
	}) \
	X(getsockopt, { \
		int v; \
		socklen_t len = sizeof(v); \
		getsockopt(pair[0], SOL_SOCKET, SO_TYPE, &v, &len); \
	}) \
	X(getsockname, { \
		struct sockaddr_storage a; \
		socklen_t len = sizeof(a); \
		getsockname(pair[0], (struct sockaddr *)&a, &len); \
	}) \
	X(writev, writev(pair[0], NULL, 0)) \
	X(socket_close, close(socket(AF_UNIX, SOCK_DGRAM, 0)))

#define WRAP(name, ...) \
	static void run_##name(void) { __VA_ARGS__; }
/* NOLINTNEXTLINE(bugprone-unused-return-value): what they answer is not asked */
CALLS(WRAP)

int main(void)
{
	enum { ROUNDS = 20, CALLS_A_ROUND = 4000 };
	static const struct {
		const char *name;
		void (*run)(void);
	} calls[] = {
#define ROW(name, ...) {#name, run_##name},
		CALLS(ROW)
#undef ROW
	};
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair))
		return 1;
	for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
		uint64_t best = UINT64_MAX;
		for (int r = 0; r < ROUNDS; r++) {
			uint64_t from = now_ns();
			for (int i = 0; i < CALLS_A_ROUND; i++)
				calls[c].run();
			uint64_t took = now_ns() - from;
			best = took < best ? took : best;
		}
		printf("%s %.2f\n", calls[c].name, (double)best / CALLS_A_ROUND);
	}
	return 0;
}
