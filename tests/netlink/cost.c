/* SPDX-License-Identifier: BSD-3-Clause */
/* cost.c - what socket calls on other descriptors cost, ns each: the call that the program has, a
 * hook or not, and the C library's own, in turn. A line each: name, the C library's, how much more
 * the program's takes (the median of the rounds). Calls that fail in the kernel at once, or move
 * nothing, so that what a hook adds is not lost in them. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

static int pair[2], readable; /* the latter not to be written to */
static char buf[64];

#define CALLS(X) \
	X(send, f(pair[0], buf, 0, MSG_OOB | MSG_DONTWAIT)) \
	X(sendto, f(pair[0], buf, 0, MSG_OOB | MSG_DONTWAIT, NULL, 0)) \
	X(sendmsg, { \
		struct msghdr m = {0}; \
		f(pair[0], &m, MSG_OOB | MSG_DONTWAIT); \
	}) \
	X(sendmmsg, f(pair[0], NULL, 0, MSG_DONTWAIT)) \
	X(recvfrom, { \
		struct sockaddr_storage a; \
		socklen_t len = sizeof(a); \
		f(pair[0], buf, sizeof(buf), MSG_DONTWAIT, (struct sockaddr *)&a, &len); \
	}) \
	X(recvmsg, { \
		struct msghdr m = {0}; \
		f(pair[0], &m, MSG_DONTWAIT); \
	}) \
	X(recvmmsg, f(pair[0], NULL, 0, MSG_DONTWAIT, NULL)) \
	X(getsockopt, { \
		int v; \
		socklen_t len = sizeof(v); \
		f(pair[0], SOL_SOCKET, SO_TYPE, &v, &len); \
	}) \
	X(setsockopt, f(pair[0], SOL_SOCKET, -1, buf, sizeof(int))) \
	X(getsockname, { \
		struct sockaddr_storage a; \
		socklen_t len = sizeof(a); \
		f(pair[0], (struct sockaddr *)&a, &len); \
	}) \
	X(writev, f(pair[0], NULL, 0)) \
	X(write, f(readable, buf, 1)) \
	X(socket, f(-1, SOCK_DGRAM, 0))

/* Both by pointer, so that the way to the call is the same. */
#define RUN(name, ...) \
	static void run_##name(void *call, int times) \
	{ \
		__typeof__(&name) f; \
		memcpy(&f, &call, sizeof(f)); \
		for (int i = 0; i < times; i++) { \
			__VA_ARGS__; \
		} \
	}
/* NOLINTNEXTLINE(bugprone-unused-return-value): what they answer is not asked */
CALLS(RUN)

enum { ROUNDS = 101, CALLS_A_ROUND = 1000 };

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double took(void (*run)(void *call, int times), void *call)
{
	uint64_t from = now_ns();
	run(call, CALLS_A_ROUND);
	return (double)(now_ns() - from) / CALLS_A_ROUND;
}

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(void *call, int times);
	} calls[] = {
#define ROW(name, ...) {#name, run_##name},
		CALLS(ROW)
#undef ROW
	};
	void *libc = dlopen("libc.so.6", RTLD_LAZY);
	readable = open("/dev/null", O_RDONLY);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) || !libc)
		return 1;
	for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
		double plain[ROUNDS], more[ROUNDS];
		void *own = dlsym(RTLD_DEFAULT, calls[c].name), *its = dlsym(libc, calls[c].name);
		for (int r = -1; r < ROUNDS; r++) {
			double a, b;
			if (r & 1) {
				a = took(calls[c].run, its);
				b = took(calls[c].run, own);
			} else {
				b = took(calls[c].run, own);
				a = took(calls[c].run, its);
			}
			if (r < 0) /* the first call looks things up */
				continue;
			plain[r] = a;
			more[r] = b - a;
		}
		qsort(plain, ROUNDS, sizeof(double), by_size);
		qsort(more, ROUNDS, sizeof(double), by_size);
		printf("%s %.2f %.2f\n", calls[c].name, plain[ROUNDS / 2], more[ROUNDS / 2]);
	}
	return 0;
}
