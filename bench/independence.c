/* SPDX-License-Identifier: BSD-3-Clause */
/* independence.c - what an 8-byte WRITE takes beside other QPs to the same address whose peers are
 * dead, stopped, destroyed or in ERR, or that move bulk data.
 *
 * Plain verbs, linked with libibverbs: it runs on a NIC, on kernel rxe, and preloaded on the
 * software device. The process that measures has one QP to process Y, and -q QPs to process X, of
 * the same host as Y. First the WRITE to Y, one every -i microseconds, is measured alone. Then X is
 * killed (-m kill) or stopped (stop), its QPs are destroyed (destroy) or in ERR (err), or each
 * takes WRITEs of -s bytes, of which -w are always posted (bulk); and the WRITE to Y is measured
 * again. With -n NAME X and Y are in the network namespace /run/netns/NAME, where -D is their
 * device. What Y's memory holds at the end is compared.
 *
 * It prints one line: the mode, how many QPs, medians and 99th percentiles in microseconds alone
 * and beside, the longest, and what the bulk moved.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <sched.h>

#include "verbs.h"

enum {
	QPS_MAX = 256,
	SAMPLES_MAX = 1 << 20,
	BULK_MAX = 1 << 20,
	DEADLINE_S = 120,
};

static const char *device = "rpw_lo", *far_device, *netns, *mode = "bulk";
static unsigned qps = 1, bulk_bytes = 65536, bulk_posted = 8, gid_index = 1, interval_us = 500;
static uint64_t run_ns = 1500000000;

struct hello {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t rkey, n, qpn[QPS_MAX];
};

static struct device d;
static double sample[SAMPLES_MAX];

static void join(struct ibv_qp *q, const union ibv_gid *gid, uint32_t qpn)
{
	qp_connect(&d, q, gid, qpn, netns ? IBV_MTU_1024 : IBV_MTU_4096, 1);
}

/* X and Y: QPs, then what the mode says, then nothing more than to serve. */
static void target(int fd, unsigned n, bool ends)
{
	struct ibv_qp *q[QPS_MAX];
	struct hello here = {.n = n}, there;
	if (netns) {
		char path[200];
		snprintf(path, sizeof(path), "/run/netns/%s", netns);
		int ns = open(path, O_RDONLY | O_CLOEXEC);
		if (ns < 0 || setns(ns, CLONE_NEWNET))
			die(path);
	}
	device_open(&d, far_device ? far_device : device, gid_index, BULK_MAX + 4096);
	struct ibv_cq *cq = ibv_create_cq(d.ctx, 16, NULL, NULL, 0);
	here.gid = d.gid;
	here.addr = (uintptr_t)d.mem;
	here.rkey = d.mr->rkey;
	for (unsigned i = 0; i < n; i++)
		here.qpn[i] = (q[i] = qp_make(&d, cq, 64))->qp_num;
	tell(fd, &here, sizeof(here));
	hear(fd, &there, sizeof(there));
	for (unsigned i = 0; i < n; i++)
		join(q[i], &there.gid, there.qpn[i]);
	char c = 0;
	tell(fd, &c, 1);
	hear(fd, &c, 1);
	unsigned bad = ends ? n : 0;
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	for (unsigned i = 0; i < bad; i++)
		if ((!strcmp(mode, "destroy") && ibv_destroy_qp(q[i])) ||
			(!strcmp(mode, "err") && ibv_modify_qp(q[i], &err, IBV_QP_STATE)))
			die(mode);
	tell(fd, &c, 1);
	hear(fd, &c, 1);
	tell(fd, d.mem + BULK_MAX, 8);
	hear(fd, &c, 1);
	_exit(0);
}

struct far {
	int fd;
	pid_t pid;
	struct hello hello;
};

static struct far begin(unsigned n, bool ends)
{
	struct far f;
	int sv[2];
	talk_open(sv);
	f.pid = child(-1);
	if (!f.pid)
		target(sv[1], n, ends);
	close(sv[1]);
	f.fd = sv[0];
	return f;
}

static void meet(struct far *f, struct ibv_qp **q, struct ibv_cq *cq)
{
	struct hello here = {.gid = d.gid};
	char c;
	hear(f->fd, &f->hello, sizeof(f->hello));
	for (unsigned i = 0; i < f->hello.n; i++)
		here.qpn[i] = (q[i] = qp_make(&d, cq, 64))->qp_num;
	tell(f->fd, &here, sizeof(here));
	for (unsigned i = 0; i < f->hello.n; i++)
		join(q[i], &f->hello.gid, f->hello.qpn[i]);
	hear(f->fd, &c, 1);
}

static int post(struct ibv_qp *q, const struct hello *to, uint64_t id, uint32_t from, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)d.mem + from, len, d.mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = id,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = to->addr + from;
	wr.wr.rdma.rkey = to->rkey;
	return ibv_post_send(q, &wr, &bad);
}

/* The others' completions: bulk is posted anew; the first that fails ends its QP. */
static uint64_t bulk_done;
static void tend(struct ibv_cq *cq, struct ibv_qp **q, const struct hello *to)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(cq, 16, wc);
	for (int i = 0; i < n; i++)
		if (!wc[i].status) {
			bulk_done += bulk_bytes;
			post(q[wc[i].wr_id], to, wc[i].wr_id, 0, bulk_bytes);
		}
}

struct seen {
	double median, p99, most;
	unsigned n;
};

/* WRITEs of 8 bytes, one every interval. */
static struct seen measure(struct ibv_qp *small, struct ibv_cq *cq, const struct hello *to,
	struct ibv_cq *others, struct ibv_qp **q, const struct hello *x)
{
	uint64_t begin_ns = now_ns(), end_ns = begin_ns + run_ns, t = begin_ns;
	uint64_t interval = interval_us * 1000ull;
	unsigned n = 0;
	while (t < end_ns && n < SAMPLES_MAX) {
		struct ibv_wc wc = {.status = 99};
		t = now_ns(); /* no two WRITEs have the same bytes */
		memcpy(d.mem + BULK_MAX, &t, 8);
		if (post(small, to, 0, BULK_MAX, 8))
			die("ibv_post_send");
		while (!ibv_poll_cq(cq, 1, &wc)) {
			if (others)
				tend(others, q, x);
			if (now_ns() - t > DEADLINE_S * 1000000000ull)
				die("no completion");
		}
		if (wc.status)
			die(ibv_wc_status_str(wc.status));
		uint64_t done = now_ns();
		/* Those that were due during a long wait would have waited, too. */
		for (uint64_t due = t; due < done && n < SAMPLES_MAX; due += interval)
			sample[n++] = (double)(done - due) / 1000;
		/* until the next is due it polls, as a program with other work does */
		for (uint64_t due = t + interval; t < due; t = now_ns())
			if (others)
				tend(others, q, x);
			else
				ibv_poll_cq(cq, 1, &wc);
	}
	qsort(sample, n, sizeof(*sample), compare_doubles);
	return (struct seen){sample[n / 2], sample[n * 99ull / 100], sample[n - 1], n};
}

static void options(int argc, char **argv)
{
	static const char usage[] =
		"[-m kill|stop|destroy|err|bulk] [-q QPS] [-s BYTES] [-w POSTED] "
		"[-t SECONDS] [-i US] [-d DEVICE] [-n NETNS -D DEVICE] [-g GID]";
	const struct flag flags[] = {{'m', TEXT, &mode}, {'q', NUMBER, &qps},
		{'s', NUMBER, &bulk_bytes}, {'w', NUMBER, &bulk_posted}, {'t', DURATION, &run_ns},
		{'i', NUMBER, &interval_us}, {'d', TEXT, &device}, {'D', TEXT, &far_device},
		{'n', TEXT, &netns}, {'g', NUMBER, &gid_index}, {0}};
	take_flags(argc, argv, flags, usage);
	need_usage(qps < QPS_MAX && bulk_bytes <= BULK_MAX && bulk_posted <= 64, usage);
}

int main(int argc, char **argv)
{
	struct ibv_qp *q[QPS_MAX], *small;
	char c = 0;
	uint8_t held[8];
	options(argc, argv);
	struct far x = begin(qps, true), y = begin(1, false);
	device_open(&d, device, gid_index, BULK_MAX + 4096);
	struct ibv_cq *others = ibv_create_cq(d.ctx, 16384, NULL, NULL, 0),
		      *cq = ibv_create_cq(d.ctx, 16, NULL, NULL, 0);
	meet(&x, q, others);
	meet(&y, &small, cq);
	const struct far *to = &y;
	struct seen alone = measure(small, cq, &to->hello, NULL, NULL, NULL);
	/* a word over each, so that none is new */
	for (unsigned i = 0; i < qps; i++)
		if (post(q[i], &x.hello, i, 0, 8))
			die("ibv_post_send");
	struct ibv_wc wc;
	for (unsigned i = 0; i < qps;)
		i += ibv_poll_cq(others, 1, &wc) > 0;
	tell(x.fd, &c, 1);
	hear(x.fd, &c, 1);
	int status;
	if (!strcmp(mode, "kill") && (kill(x.pid, SIGKILL) || waitpid(x.pid, &status, 0) < 0))
		die("kill");
	if (!strcmp(mode, "stop") &&
		(kill(x.pid, SIGSTOP) || waitpid(x.pid, &status, WUNTRACED) < 0))
		die("stop");
	for (unsigned i = 0; i < qps; i++)
		for (unsigned k = 0; k < bulk_posted; k++)
			if (post(q[i], &x.hello, i, 0, bulk_bytes))
				die("ibv_post_send");
	uint64_t began_ns = now_ns();
	struct seen beside = measure(small, cq, &to->hello, others, q, &x.hello);
	double took = (double)(now_ns() - began_ns) / 1e9;
	tell(y.fd, &c, 1);
	hear(y.fd, &c, 1);
	tell(y.fd, &c, 1);
	hear(y.fd, held, 8);
	bool right = !memcmp(held, d.mem + BULK_MAX, 8);
	printf("%-8s %3u QPs: alone %.1f us (99%% %.1f), beside %.1f us (99%% %.1f, longest %.0f; "
	       "%u "
	       "of them); %.2f x and %.2f x; bulk %.0f MB/s%s\n",
		mode, qps, alone.median, alone.p99, beside.median, beside.p99, beside.most,
		beside.n, beside.median / alone.median, beside.p99 / alone.median,
		(double)bulk_done / 1e6 / took, right ? "" : "; WRONG BYTES");
	kill(x.pid, SIGKILL);
	kill(y.pid, SIGKILL);
	return !right;
}
