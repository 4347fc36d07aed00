/* SPDX-License-Identifier: BSD-3-Clause */
/* top_load.c - what `ropeway top` looks at: two processes with as many QP pairs between them as
 * asked for, on the loopback device, which move exactly what they are told to.
 *
 * top_load QPS: prints the two processes' numbers, then reads lines: "send N BYTES", "write N
 * BYTES", "read N BYTES" (each QP of the first process, N times), "bad" (a WRITE with a wrong key
 * on the first QP), "rnr" (a SEND that finds no receive for a while, on the last QP); answers each
 * with "done" when it is. "stream SECONDS" moves as much as it can. Payloads are verified.
 */
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../device/pair.h"
#include "lib/test.h"

enum { QPS_MAX = 64, ROUND = 64 };

struct hello {
	uint32_t qpn, psn, rkey;
	uint64_t addr;
};
struct order {
	char what; /* 's', 'w', 'r', 'b', 'n', or 0: end */
	uint32_t n, bytes;
	uint64_t seed;
};

static struct pair p = {.timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .mtu = IBV_MTU_4096};
static struct side side[QPS_MAX];
static struct hello peer[QPS_MAX];
static unsigned qps;

static void all(ssize_t (*io)(int, void *, size_t), int fd, void *at, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = io(fd, (char *)at + done, len - done);
		if (n <= 0)
			_exit(1); /* the other one has ended */
		done += (size_t)n;
	}
}
static ssize_t put(int fd, void *at, size_t len) { return write(fd, at, len); }
static void tell(int fd, const void *at, size_t len) { all(put, fd, (void *)(uintptr_t)at, len); }
static void hear(int fd, void *at, size_t len) { all(read, fd, at, len); }

static void meet(int to, int from)
{
	p.ctx = pair_open_loopback();
	p.pd = ibv_alloc_pd(p.ctx);
	for (unsigned i = 0; i < qps; i++) {
		side_make(&p, &side[i], 100 + i);
		struct hello h = {
			side[i].qp->qp_num, side[i].psn, side[i].mr->rkey, (uintptr_t)side[i].buf};
		tell(to, &h, sizeof(h));
	}
	for (unsigned i = 0; i < qps; i++) {
		hear(from, &peer[i], sizeof(peer[i]));
		side_connect_to(&p, &side[i], peer[i].qpn, peer[i].psn);
	}
}

/* The second process: receives what is sent, and looks at what was written. */
static void serve(int to, int from)
{
	struct order o;
	for (hear(from, &o, sizeof(o)); o.what; hear(from, &o, sizeof(o))) {
		if (o.what == 'r')
			for (unsigned i = 0; i < qps; i++)
				pattern_fill(side[i].buf, o.bytes, o.seed);
		if (o.what == 's')
			for (unsigned i = 0; i < qps; i++)
				for (uint32_t k = 0; k < o.n; k++)
					pair_recv(&side[i], 0, o.bytes, k);
		if (o.what != 'n')
			tell(to, "g", 1); /* go */
		if (o.what == 'n') {
			usleep(50 * 1000);
			pair_recv(&side[qps - 1], 0, o.bytes, 0);
			assert_int_equal(side_done(&side[qps - 1]), IBV_WC_SUCCESS);
		}
		for (unsigned i = 0; o.what == 's' && i < qps; i++)
			for (uint32_t k = 0; k < o.n; k++)
				assert_int_equal(side_done(&side[i]), IBV_WC_SUCCESS);
		char c;
		hear(from, &c, 1);
		if (o.what == 's' || o.what == 'w')
			for (unsigned i = 0; i < qps; i++)
				assert_true(pattern_holds(side[i].buf, o.bytes, o.seed));
		tell(to, "d", 1);
	}
}

static void post(struct side *s, const struct hello *to, const struct order *o)
{
	enum ibv_wr_opcode op = o->what == 's' || o->what == 'n' ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
	if (o->what == 'r')
		op = IBV_WR_RDMA_READ;
	assert_int_equal(pair_send(s, op, 0, o->bytes, to->addr, to->rkey), 0);
}

static void work(const struct order *o, int to, int from)
{
	char c;
	tell(to, o, sizeof(*o));
	if (o->what != 'n')
		hear(from, &c, 1);
	for (unsigned i = 0; i < qps; i++) {
		struct hello h = peer[i];
		struct order one = *o;
		if (o->what == 'b' && i)
			break;
		if (o->what == 'n' && i != qps - 1)
			continue;
		h.rkey += o->what == 'b' ? 0x100 : 0;
		if (o->what != 'r')
			pattern_fill(side[i].buf, o->bytes, o->seed);
		for (uint32_t k = 0; k < one.n; k++) {
			post(&side[i], &h, &one);
			assert_int_equal(side_done(&side[i]),
				o->what == 'b' ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
		}
		if (o->what == 'r')
			assert_true(pattern_holds(side[i].buf, o->bytes, o->seed));
	}
	tell(to, "c", 1);
	hear(from, &c, 1);
}

static void stream(double seconds)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	double until = (double)t.tv_sec + (double)t.tv_nsec / 1e9 + seconds;
	const struct order o = {.what = 'w', .bytes = 4096};
	do {
		for (unsigned i = 0; i < qps; i++)
			for (unsigned k = 0; k < ROUND; k++)
				post(&side[i], &peer[i], &o);
		for (unsigned i = 0; i < qps; i++)
			for (unsigned k = 0; k < ROUND; k++)
				assert_int_equal(side_done(&side[i]), IBV_WC_SUCCESS);
		clock_gettime(CLOCK_MONOTONIC, &t);
	} while ((double)t.tv_sec + (double)t.tv_nsec / 1e9 < until);
}

static void listen_to_test(int to, int from)
{
	char line[128], what[16];
	uint64_t seed = 1;
	while (fgets(line, sizeof(line), stdin)) {
		struct order o = {.n = 1, .bytes = 64, .seed = seed++};
		double seconds;
		if (sscanf(line, "stream %lf", &seconds) == 1) {
			stream(seconds);
		} else if (sscanf(line, "%15s %u %u", what, &o.n, &o.bytes) >= 1) {
			o.what = what[0] == 'r' && what[1] == 'n' ? 'n' : what[0];
			work(&o, to, from);
		}
		puts("done");
		fflush(stdout);
	}
	struct order end = {0};
	tell(to, &end, sizeof(end));
}

int main(int argc, char **argv)
{
	int there[2], back[2], status;
	qps = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
	if (!qps || qps > QPS_MAX || pipe(there) || pipe(back))
		return 2;
	pid_t pid = fork();
	if (!pid) {
		close(there[1]);
		close(back[0]);
		meet(back[1], there[0]);
		tell(back[1], "m", 1);
		serve(back[1], there[0]);
		_exit(0);
	}
	close(there[0]);
	close(back[1]);
	char c;
	meet(there[1], back[0]);
	hear(back[0], &c, 1);
	printf("%d %d\n", (int)getpid(), (int)pid);
	fflush(stdout);
	listen_to_test(there[1], back[0]);
	return waitpid(pid, &status, 0) == pid && !status ? 0 : 1;
}
