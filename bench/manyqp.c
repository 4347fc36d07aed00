/* SPDX-License-Identifier: BSD-3-Clause */
/* manyqp.c - what a thousand connections cost: bandwidth of RDMA WRITE spread over -q QPs, and
 * memory of an idle QP.
 *
 * Plain verbs, linked with libibverbs, so it runs on a NIC, on kernel rxe, and preloaded on the
 * software device. Two processes, forked before any device is opened. The one that writes keeps -w
 * messages in flight in all, message n going to QP n mod q, so that one QP and a thousand differ in
 * nothing but the number of QPs: same buffers, same messages in flight, same CQ. The one that is
 * written to sleeps, as the server of ib_write_bw does, and afterwards finds its memory holding
 * what was written.
 *
 * -i counts memory instead: QPs with queues of one entry, each connected to its neighbour and left
 * alone; growth of the resident set by QP.
 *
 * -r measures latency of RDMA READ instead, one at a time over one QP, from a process that polls
 * its CQ all the time (that of ib_read_lat sleeps).
 */
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "bench.h"

enum { QPS_MAX = 8192, SLOTS = 16, POLL_MAX = 16, DEADLINE_S = 120, READS_MAX = 1000000 };

struct plan {
	const char *device;
	int gid_index, cpu[2];
	unsigned qps, size, window;
	enum ibv_mtu mtu;
	uint64_t run_ns;
	bool idle, read;
};

/* What one side tells the other; both are the same binary on the same host, so no byte order. */
struct hello {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t rkey;
	uint32_t qpn[QPS_MAX];
};

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp[QPS_MAX];
	uint8_t *mem;
	size_t mem_bytes;
	int lid;
};

static struct hello here, there; /* too big for a stack */
static struct side self;

static void fail(const char *what)
{
	fprintf(stderr, "manyqp: %s failed: %s\n", what, strerror(errno));
	exit(1);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i]; i++)
		if (!name || !strcmp(ibv_get_device_name(list[i]), name)) {
			ctx = ibv_open_device(list[i]);
			break;
		}
	if (!ctx) {
		fprintf(stderr, "manyqp: no device %s; ibv_devices lists what there is\n",
			name ? name : "at all");
		exit(1);
	}
	if (list)
		ibv_free_device_list(list);
	return ctx;
}

static uint8_t pattern(size_t i) { return (uint8_t)(i * 131 + (i >> 8) * 29 + (i >> 16) * 7 + 3); }

static void open_side(struct side *s, const struct plan *p, bool filled)
{
	struct ibv_port_attr port;

	s->ctx = open_device(p->device);
	s->pd = ibv_alloc_pd(s->ctx);
	s->cq = ibv_create_cq(s->ctx, (int)p->window + 1, NULL, NULL, 0);
	if (!s->pd || !s->cq || ibv_query_port(s->ctx, 1, &port) ||
		ibv_query_gid(s->ctx, 1, p->gid_index, &here.gid))
		fail("opening the device");
	s->lid = port.lid;
	s->mem_bytes = (size_t)p->size * SLOTS;
	s->mem = mmap(
		NULL, s->mem_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->mem == MAP_FAILED)
		fail("mmap");
	for (size_t i = 0; i < s->mem_bytes; i++)
		s->mem[i] = filled ? pattern(i) : 0xee;
	s->mr = ibv_reg_mr(s->pd, s->mem, s->mem_bytes,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!s->mr)
		fail("ibv_reg_mr");
	here.addr = (uintptr_t)s->mem;
	here.rkey = s->mr->rkey;
}

static unsigned queue_depth(const struct plan *p)
{
	return p->idle ? 1 : (p->window + p->qps - 1) / p->qps;
}

static void create_qp(struct side *s, const struct plan *p, unsigned i)
{
	struct ibv_qp_init_attr init = {.send_cq = s->cq,
		.recv_cq = s->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = queue_depth(p),
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};

	s->qp[i] = ibv_create_qp(s->pd, &init);
	if (!s->qp[i])
		fail("ibv_create_qp");
	if (ibv_modify_qp(s->qp[i], &attr,
		    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("to INIT");
	here.qpn[i] = s->qp[i]->qp_num;
}

static void connect_qp(
	struct side *s, const struct plan *p, unsigned i, uint32_t qpn, const union ibv_gid *gid)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = p->mtu,
		.dest_qp_num = qpn,
		.rq_psn = 0,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = *gid,
				.sgid_index = (uint8_t)p->gid_index,
				.hop_limit = 64}}};

	if (ibv_modify_qp(s->qp[i], &attr,
		    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		fail("to RTR");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = 0,
		.max_rd_atomic = 1};
	if (ibv_modify_qp(s->qp[i], &attr,
		    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		fail("to RTS");
}

static void put(int fd, const void *data, size_t len)
{
	if (send(fd, data, len, MSG_NOSIGNAL) != (ssize_t)len)
		fail("telling the other side");
}

static void get(int fd, void *data, size_t len)
{
	ssize_t n = recv(fd, data, len, MSG_WAITALL);

	if (n == (ssize_t)len)
		return;
	fprintf(stderr, "manyqp: the other side left\n");
	exit(1);
}

static void connect_sides(struct side *s, const struct plan *p, int fd)
{
	char ready = 1;

	for (unsigned i = 0; i < p->qps; i++)
		create_qp(s, p, i);
	put(fd, &here, sizeof here);
	get(fd, &there, sizeof there);
	for (unsigned i = 0; i < p->qps; i++)
		connect_qp(s, p, i, there.qpn[i], &there.gid);
	put(fd, &ready, 1);
	get(fd, &ready, 1);
}

static void post(const struct side *s, const struct plan *p, uint64_t number)
{
	uint64_t offset = number % SLOTS * p->size;
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->mem + offset, .length = p->size, .lkey = s->mr->lkey};
	struct ibv_send_wr *bad,
		wr = {.wr_id = number,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = p->read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {.remote_addr = there.addr + offset, .rkey = there.rkey}};

	if (ibv_post_send(s->qp[number % p->qps], &wr, &bad))
		fail("ibv_post_send");
}

/* Take completions: each makes room on its QP. */
static unsigned reap(struct side *s, const struct plan *p, unsigned *open)
{
	struct ibv_wc wc[POLL_MAX];
	int n = ibv_poll_cq(s->cq, POLL_MAX, wc);

	if (n < 0)
		fail("ibv_poll_cq");
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "manyqp: message %llu: %s\n",
				(unsigned long long)wc[i].wr_id, ibv_wc_status_str(wc[i].status));
			exit(1);
		}
		open[wc[i].wr_id % p->qps]--;
	}
	return (unsigned)n;
}

/* Messages of different QPs complete in any order and a QP's queue holds only its share of the
 * window, so posting waits for the QP whose turn it is. Returns MiB/s. */
static double write_for(struct side *s, const struct plan *p, uint64_t *messages)
{
	unsigned *open = calloc(p->qps, sizeof *open); /* posted and not done, by QP */
	uint64_t posted = 0, done = 0, begin = now_ns(), now = begin;

	if (!open)
		fail("calloc");
	while (now - begin < p->run_ns || done < posted) {
		while (now - begin < p->run_ns && posted - done < p->window &&
			open[posted % p->qps] < queue_depth(p)) {
			open[posted % p->qps]++;
			post(s, p, posted++);
		}
		done += reap(s, p, open);
		now = now_ns();
	}
	free(open);
	*messages = posted;
	return (double)done * p->size / 1048576.0 / ((double)(now - begin) / 1e9);
}

static int be_written(struct side *s, const struct plan *p, int fd)
{
	uint64_t messages;
	size_t checked;

	connect_sides(s, p, fd);
	get(fd, &messages, sizeof messages);
	checked = (messages < SLOTS ? messages : SLOTS) * p->size;
	for (size_t i = 0; i < checked; i++)
		if (s->mem[i] != pattern(i)) {
			fprintf(stderr, "manyqp: byte %zu is not what was written\n", i);
			return 1;
		}
	return 0;
}

static int write_to_peer(struct side *s, const struct plan *p, int fd)
{
	uint64_t messages;
	double rate;

	connect_sides(s, p, fd);
	rate = write_for(s, p, &messages);
	put(fd, &messages, sizeof messages);
	printf("{\"name\": \"manyqp\", \"qps\": %u, \"bytes\": %u, \"messages\": %llu, "
	       "\"mib_per_s\": %.2f}\n",
		p->qps, p->size, (unsigned long long)messages, rate);
	fflush(stdout);
	return 0;
}

static int be_read(struct side *s, const struct plan *p, int fd)
{
	struct ibv_wc wc;
	char over;

	connect_sides(s, p, fd);
	while (recv(fd, &over, 1, MSG_DONTWAIT) < 0)
		for (int i = 0; i < 1000; i++)
			if (ibv_poll_cq(s->cq, 1, &wc) < 0)
				fail("ibv_poll_cq");
	return 0;
}

static int read_from_peer(struct side *s, const struct plan *p, int fd)
{
	static uint64_t trip_ns[READS_MAX];
	unsigned open[1] = {0}, n = 0, middle;
	uint64_t begin;

	connect_sides(s, p, fd);
	begin = now_ns();
	while (now_ns() - begin < p->run_ns && n < READS_MAX) {
		uint64_t before = now_ns();

		open[0] = 1;
		post(s, p, 0);
		while (open[0])
			reap(s, p, open);
		trip_ns[n++] = now_ns() - before;
		for (size_t i = 0; i < p->size; i++)
			if (s->mem[i] != pattern(i))
				fail("reading what is there");
		memset(s->mem, 0xee, p->size);
	}
	put(fd, "", 1);
	qsort(trip_ns, n, sizeof *trip_ns, compare_u64);
	middle = n / 2;
	printf("{\"name\": \"manyqp\", \"bytes\": %u, \"reads\": %u, \"median_us\": %.3f}\n",
		p->size, n, (double)trip_ns[middle] / 1000.0);
	fflush(stdout);
	return 0;
}

static long resident_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long all, resident = 0;

	if (!f || fscanf(f, "%ld %ld", &all, &resident) != 2)
		fail("/proc/self/statm");
	fclose(f);
	return resident * sysconf(_SC_PAGESIZE);
}

/* The first pair is made before the count begins: what a process pays once is not a QP's. */
static int count_idle(struct side *s, const struct plan *p)
{
	long before = 0, after;

	/* our own table is not a QP's either: have its pages now */
	memset(&here.qpn, 1, sizeof here.qpn);
	memset(s->qp, 1, sizeof s->qp);
	for (unsigned i = 0; i < p->qps; i += 2) {
		create_qp(s, p, i);
		create_qp(s, p, i + 1);
		connect_qp(s, p, i, here.qpn[i + 1], &here.gid);
		connect_qp(s, p, i + 1, here.qpn[i], &here.gid);
		if (!i)
			before = resident_bytes();
	}
	after = resident_bytes();
	printf("{\"name\": \"idle_qp\", \"qps\": %u, \"bytes_per_qp\": %.0f}\n", p->qps,
		(double)(after - before) / (p->qps - 2));
	return 0;
}

static enum ibv_mtu mtu_of(const char *arg)
{
	for (int m = IBV_MTU_256; m <= IBV_MTU_4096; m++)
		if (atoi(arg) == 128 << m)
			return (enum ibv_mtu)m;
	fprintf(stderr, "manyqp: an MTU is 256, 512, 1024, 2048 or 4096, not %s\n", arg);
	exit(2);
}

static void usage(void)
{
	fprintf(stderr,
		"usage: manyqp [-d device] [-x GID index] [-q QPs] [-s message bytes] [-w "
		"messages in flight] [-m mtu] [-t seconds]"
		" [-c writing core,written core] [-i: memory of idle QPs] [-r: READ latency]\n");
	exit(2);
}

static void parse(int argc, char **argv, struct plan *p)
{
	int c;

	*p = (struct plan){.gid_index = 1,
		.qps = 1000,
		.size = 65536,
		.window = 128,
		.mtu = IBV_MTU_4096,
		.run_ns = 1000000000ull,
		.cpu = {-1, -1}};
	while ((c = getopt(argc, argv, "d:x:q:s:w:m:t:c:ir")) != -1) {
		switch (c) {
		case 'd':
			p->device = optarg;
			break;
		case 'x':
			p->gid_index = atoi(optarg);
			break;
		case 'q':
			p->qps = (unsigned)atoi(optarg);
			break;
		case 's':
			p->size = (unsigned)atoi(optarg);
			break;
		case 'w':
			p->window = (unsigned)atoi(optarg);
			break;
		case 'm':
			p->mtu = mtu_of(optarg);
			break;
		case 't':
			p->run_ns = (uint64_t)(atof(optarg) * 1e9);
			break;
		case 'c':
			parse_cpus(optarg, p->cpu);
			break;
		case 'i':
			p->idle = true;
			break;
		case 'r':
			p->read = true;
			break;
		default:
			usage();
		}
	}
	if (!p->qps || p->qps > QPS_MAX || !p->size || !p->window || optind != argc ||
		(p->idle && (p->qps < 4 || p->qps % 2)) || (p->read && p->qps != 1))
		usage();
}

int main(int argc, char **argv)
{
	int fd[2], status;
	struct plan p;
	pid_t child;

	parse(argc, argv, &p);
	alarm(DEADLINE_S);
	if (p.idle) {
		pin(p.cpu[0]);
		open_side(&self, &p, true);
		return count_idle(&self, &p);
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0)
		fail("socketpair");
	child = fork();
	if (child < 0)
		fail("fork");
	if (!child) {
		die_with_parent();
		pin(p.cpu[1]);
		open_side(&self, &p, p.read);
		_exit(p.read ? be_read(&self, &p, fd[1]) : be_written(&self, &p, fd[1]));
	}
	close(fd[1]);
	pin(p.cpu[0]);
	open_side(&self, &p, !p.read);
	if (p.read ? read_from_peer(&self, &p, fd[0]) : write_to_peer(&self, &p, fd[0]))
		return 1;
	if (waitpid(child, &status, 0) < 0 || status) {
		fprintf(stderr, "manyqp: the other side failed\n");
		return 1;
	}
	return 0;
}
