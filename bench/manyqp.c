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
 * -i counts memory instead: QPs with queues of one entry, each connected to its neighbor and left
 * alone; growth of the resident set by QP.
 *
 * -r measures latency of RDMA READ instead, one at a time over one QP, from a process that polls
 * its CQ all the time (that of ib_read_lat sleeps).
 */
#include "verbs.h"

enum { QPS_MAX = 8192, SLOTS = 16, POLL_MAX = 16, DEADLINE_S = 120, READS_MAX = 1000000 };

struct plan {
	const char *device;
	int cpu[2];
	unsigned gid_index, qps, size, window;
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
	struct device d;
	struct ibv_cq *cq;
	struct ibv_qp *qp[QPS_MAX];
};

static struct hello here, there; /* too big for a stack */
static struct side self;

static uint8_t pattern(size_t i) { return (uint8_t)(i * 131 + (i >> 8) * 29 + (i >> 16) * 7 + 3); }

static void open_side(struct side *s, const struct plan *p, bool filled)
{
	size_t bytes = (size_t)p->size * SLOTS;

	device_open(&s->d, p->device, p->gid_index, bytes);
	s->cq = ibv_create_cq(s->d.ctx, (int)p->window + 1, NULL, NULL, 0);
	if (!s->cq)
		die("ibv_create_cq");
	for (size_t i = 0; i < bytes; i++)
		s->d.mem[i] = filled ? pattern(i) : 0xee;
	here.gid = s->d.gid;
	here.addr = (uintptr_t)s->d.mem;
	here.rkey = s->d.mr->rkey;
}

static unsigned queue_depth(const struct plan *p)
{
	return p->idle ? 1 : (p->window + p->qps - 1) / p->qps;
}

static void create_qp(struct side *s, const struct plan *p, unsigned i)
{
	s->qp[i] = qp_make(&s->d, s->cq, queue_depth(p));
	here.qpn[i] = s->qp[i]->qp_num;
}

static void connect_sides(struct side *s, const struct plan *p, int fd)
{
	char ready = 1;

	for (unsigned i = 0; i < p->qps; i++)
		create_qp(s, p, i);
	tell(fd, &here, sizeof here);
	hear(fd, &there, sizeof there);
	for (unsigned i = 0; i < p->qps; i++)
		qp_connect(&s->d, s->qp[i], &there.gid, there.qpn[i], p->mtu, 1);
	tell(fd, &ready, 1);
	hear(fd, &ready, 1);
}

static void post(const struct side *s, const struct plan *p, uint64_t number)
{
	uint64_t offset = number % SLOTS * p->size;
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->d.mem + offset, .length = p->size, .lkey = s->d.mr->lkey};
	struct ibv_send_wr *bad,
		wr = {.wr_id = number,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = p->read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {.remote_addr = there.addr + offset, .rkey = there.rkey}};

	if (ibv_post_send(s->qp[number % p->qps], &wr, &bad))
		die("ibv_post_send");
}

/* Take completions: each makes room on its QP. */
static unsigned reap(struct side *s, const struct plan *p, unsigned *open)
{
	struct ibv_wc wc[POLL_MAX];
	int n = ibv_poll_cq(s->cq, POLL_MAX, wc);

	if (n < 0)
		die("ibv_poll_cq");
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
		die("calloc");
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
	hear(fd, &messages, sizeof messages);
	checked = (messages < SLOTS ? messages : SLOTS) * p->size;
	for (size_t i = 0; i < checked; i++)
		if (s->d.mem[i] != pattern(i)) {
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
	tell(fd, &messages, sizeof messages);
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
				die("ibv_poll_cq");
	return 0;
}

static int read_from_peer(struct side *s, const struct plan *p, int fd)
{
	uint64_t *trip_ns = memory(READS_MAX * sizeof *trip_ns, MAP_PRIVATE);
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
			if (s->d.mem[i] != pattern(i))
				die("reading what is there");
		memset(s->d.mem, 0xee, p->size);
	}
	tell(fd, "", 1);
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
		die("/proc/self/statm");
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
		qp_connect(&s->d, s->qp[i], &here.gid, here.qpn[i + 1], p->mtu, 1);
		qp_connect(&s->d, s->qp[i + 1], &here.gid, here.qpn[i], p->mtu, 1);
		if (!i)
			before = resident_bytes();
	}
	after = resident_bytes();
	printf("{\"name\": \"idle_qp\", \"qps\": %u, \"bytes_per_qp\": %.0f}\n", p->qps,
		(double)(after - before) / (p->qps - 2));
	return 0;
}

static const char usage[] =
	"[-d device] [-x GID index] [-q QPs] [-s message bytes] [-w messages in flight] [-m mtu] "
	"[-t seconds] [-c writing core,written core] [-i: memory of idle QPs] [-r: READ latency]";

static void parse(int argc, char **argv, struct plan *p)
{
	unsigned mtu = 4096;

	*p = (struct plan){.gid_index = 1,
		.qps = 1000,
		.size = 65536,
		.window = 128,
		.mtu = IBV_MTU_256,
		.run_ns = 1000000000ull,
		.cpu = {-1, -1}};
	const struct flag flags[] = {{'d', TEXT, &p->device}, {'x', NUMBER, &p->gid_index},
		{'q', NUMBER, &p->qps}, {'s', NUMBER, &p->size}, {'w', NUMBER, &p->window},
		{'m', NUMBER, &mtu}, {'t', DURATION, &p->run_ns}, {'c', CPUS, p->cpu},
		{'i', FLAG, &p->idle}, {'r', FLAG, &p->read}, {0}};
	take_flags(argc, argv, flags, usage);
	while (p->mtu < IBV_MTU_4096 && mtu != 128u << p->mtu)
		p->mtu++;
	need_usage(mtu == 128u << p->mtu && p->qps && p->qps <= QPS_MAX && p->size && p->window &&
			   (!p->idle || (p->qps >= 4 && p->qps % 2 == 0)) &&
			   (!p->read || p->qps == 1),
		usage);
}

int main(int argc, char **argv)
{
	int fd[2];
	struct plan p;

	parse(argc, argv, &p);
	alarm(DEADLINE_S);
	if (p.idle) {
		pin(p.cpu[0]);
		open_side(&self, &p, true);
		return count_idle(&self, &p);
	}
	talk_open(fd);
	pid_t other = child(p.cpu[1]);
	if (!other) {
		open_side(&self, &p, p.read);
		_exit(p.read ? be_read(&self, &p, fd[1]) : be_written(&self, &p, fd[1]));
	}
	close(fd[1]);
	pin(p.cpu[0]);
	open_side(&self, &p, !p.read);
	if (p.read ? read_from_peer(&self, &p, fd[0]) : write_to_peer(&self, &p, fd[0]))
		return 1;
	join_child(other);
	return 0;
}
