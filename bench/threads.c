/* SPDX-License-Identifier: BSD-3-Clause */
/* threads.c - do threads of one process, each with a QP and a CQ of its own, get in each other's
 * way? So many messages a second by one thread, and by -n at once, in turn, -r times each.
 *
 * Plain verbs, linked with libibverbs, so it runs on a NIC, on kernel rxe, and preloaded on the
 * software device. Two processes, forked before any device is opened; the other one registers
 * memory and sleeps. Each thread keeps -w messages in flight and polls its CQ. RDMA READ by
 * default: on the software device's lane it needs no processor of the process that is read, so two
 * cores show what two threads do. WRITE (-o write) needs one there. -o bare reads by
 * process_vm_readv, without a QP: what the kernel gives several threads that read one process. What
 * was read or written is compared at the end, by patterns that differ from QP to QP.
 */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "bench.h"

enum {
	CLOCK_EVERY = 32,
	THREADS_MAX = 64,
	ROUNDS_MAX = 101,
	DEADLINE_S = 300,
	POLL_MAX = 16,
	WINDOW_MAX = 128,
	APART = 4096, /* no two threads share a cache line, or a page */
};
enum opcode { READ, WRITE, BARE, OPCODES };
static const char *const opcode_name[OPCODES] = {"read", "write", "bare"};

static struct plan {
	const char *device;
	int gid_index;
	unsigned threads, size, window, rounds;
	uint64_t run_ns;
	enum opcode opcode;
} plan = {.gid_index = 1, .threads = 2, .size = 8, .window = 1, .rounds = 5, .run_ns = 300000000};

/* What one side tells the other; both are the same binary on the same host, so no byte order. */
struct hello {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t rkey;
	uint32_t qpn[THREADS_MAX];
};

static struct hello here, there;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_port_attr port;
static uint8_t *mem; /* `size` bytes for each thread */
static pid_t other;
static struct worker {
	_Alignas(128) pthread_t thread;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	unsigned number;
	uint64_t done, took_ns;
} worker[THREADS_MAX];
static _Atomic bool go;

static void fail(const char *what)
{
	fprintf(stderr, "threads: %s failed: %s\n", what, strerror(errno));
	exit(1);
}

static size_t stride(void) { return (plan.size + APART - 1) / APART * APART; }

/* Of thread t's memory, the i-th byte; `mine` of the side that measures. */
static uint8_t pattern(unsigned t, size_t i, bool mine)
{
	return (uint8_t)((i + t * 977) * 131 + (i >> 8) * 29 + (i >> 16) * 7 + (mine ? 5 : 3));
}

static void open_side(bool mine)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	size_t bytes = stride() * plan.threads;

	for (int i = 0; list && list[i] && !ctx; i++)
		if (!plan.device || !strcmp(ibv_get_device_name(list[i]), plan.device))
			ctx = ibv_open_device(list[i]);
	if (!ctx) {
		fprintf(stderr, "threads: no device %s; ibv_devices lists what there is\n",
			plan.device ? plan.device : "at all");
		exit(1);
	}
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(ctx);
	if (!pd || ibv_query_port(ctx, 1, &port) ||
		ibv_query_gid(ctx, 1, plan.gid_index, &here.gid))
		fail("opening the device");
	mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		fail("mmap");
	for (unsigned t = 0; t < plan.threads; t++)
		for (size_t i = 0; i < plan.size; i++)
			mem[t * stride() + i] = pattern(t, i, mine);
	mr = ibv_reg_mr(pd, mem, bytes,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!mr)
		fail("ibv_reg_mr");
	here.addr = (uintptr_t)mem;
	here.rkey = mr->rkey;
}

static void make_qp(unsigned t)
{
	struct worker *w = &worker[t];
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};

	w->number = t;
	w->cq = ibv_create_cq(ctx, (int)plan.window + 1, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = w->cq,
		.recv_cq = w->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = plan.window,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1}};
	w->qp = w->cq ? ibv_create_qp(pd, &init) : NULL;
	if (!w->qp)
		fail("making a QP");
	errno = ibv_modify_qp(
		w->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (errno)
		fail("to INIT");
	here.qpn[t] = w->qp->qp_num;
}

static void connect_qp(struct worker *w)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = there.qpn[w->number],
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = there.gid,
				.sgid_index = (uint8_t)plan.gid_index,
				.hop_limit = 64}}};

	errno = ibv_modify_qp(w->qp, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (errno)
		fail("to RTR");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 16};
	errno = ibv_modify_qp(w->qp, &attr,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	if (errno)
		fail("to RTS");
}

static void swap(int fd, const void *out, void *in, size_t len)
{
	if (send(fd, out, len, MSG_NOSIGNAL) != (ssize_t)len ||
		recv(fd, in, len, MSG_WAITALL) != (ssize_t)len) {
		fprintf(stderr, "threads: the other side left\n");
		exit(1);
	}
}

static void connect_sides(int fd)
{
	char ready = 1;

	for (unsigned t = 0; t < plan.threads; t++)
		make_qp(t);
	swap(fd, &here, &there, sizeof here);
	for (unsigned t = 0; t < plan.threads; t++)
		connect_qp(&worker[t]);
	swap(fd, &ready, &ready, 1);
}

static void compare(bool mine)
{
	for (unsigned t = 0; t < plan.threads; t++)
		for (size_t i = 0; i < plan.size; i++)
			if (mem[t * stride() + i] != pattern(t, i, mine)) {
				fprintf(stderr, "threads: byte %zu of thread %u is wrong\n", i, t);
				exit(1);
			}
}

/* As work, by the kernel alone. */
static void *work_bare(void *arg)
{
	struct worker *w = arg;
	size_t offset = w->number * stride();
	struct iovec to = {mem + offset, plan.size},
		     from = {(void *)(uintptr_t)(there.addr + offset), plan.size};

	while (!atomic_load_explicit(&go, memory_order_acquire))
		;
	uint64_t begin = now_ns();
	for (w->done = 0, w->took_ns = 0; w->took_ns < plan.run_ns; w->took_ns = now_ns() - begin)
		for (unsigned i = 0; i < CLOCK_EVERY; i++, w->done++)
			if (process_vm_readv(other, &to, 1, &from, 1, 0) != (ssize_t)plan.size)
				fail("process_vm_readv");
	return NULL;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t offset = w->number * stride(), posted = 0, done = 0, begin;
	struct ibv_sge sge = {
		.addr = (uintptr_t)mem + offset, .length = plan.size, .lkey = mr->lkey};
	struct ibv_send_wr *bad,
		wr = {.sg_list = &sge,
			.num_sge = 1,
			.opcode = plan.opcode == WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {.remote_addr = there.addr + offset, .rkey = there.rkey}};
	struct ibv_wc wc[POLL_MAX];
	unsigned rounds = 0;
	bool over = false;

	while (!atomic_load_explicit(&go, memory_order_acquire))
		;
	begin = now_ns();
	while (!over || done < posted) {
		/* By its own clock: who would tell it may find no core free. */
		over = over || (!(++rounds % CLOCK_EVERY) && now_ns() - begin >= plan.run_ns);
		while (posted - done < plan.window && !over) {
			if (ibv_post_send(w->qp, &wr, &bad))
				fail("ibv_post_send");
			posted++;
		}
		int n = ibv_poll_cq(w->cq, POLL_MAX, wc);
		if (n < 0)
			fail("ibv_poll_cq");
		for (int i = 0; i < n; i++)
			if (wc[i].status != IBV_WC_SUCCESS) {
				fprintf(stderr, "threads: %s\n", ibv_wc_status_str(wc[i].status));
				exit(1);
			}
		done += (unsigned)n;
	}
	w->took_ns = now_ns() - begin;
	w->done = done;
	return NULL;
}

/* Messages a second, all threads together. */
static double rate(unsigned threads)
{
	double sum = 0;

	go = false;
	for (unsigned t = 0; t < threads; t++)
		if (pthread_create(&worker[t].thread, NULL, plan.opcode == BARE ? work_bare : work,
			    &worker[t]))
			fail("pthread_create");
	atomic_store(&go, true);
	for (unsigned t = 0; t < threads; t++) {
		pthread_join(worker[t].thread, NULL);
		sum += (double)worker[t].done / ((double)worker[t].took_ns / 1e9);
	}
	return sum;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double middle(double *v)
{
	qsort(v, plan.rounds, sizeof *v, compare_doubles);
	return v[plan.rounds / 2];
}

static int measure(int fd)
{
	double one[ROUNDS_MAX], all[ROUNDS_MAX], ratio[ROUNDS_MAX];
	char over = 1;

	connect_sides(fd);
	rate(plan.threads); /* warm */
	for (unsigned r = 0; r < plan.rounds; r++) {
		one[r] = rate(1);
		all[r] = rate(plan.threads);
		ratio[r] = all[r] / one[r];
	}
	swap(fd, &over, &over, 1);
	if (plan.opcode != WRITE)
		compare(false);
	double r = middle(ratio), low = ratio[0], high = ratio[plan.rounds - 1];
	printf("{\"name\": \"threads\", \"opcode\": \"%s\", \"bytes\": %u, \"window\": %u, "
	       "\"threads\": %u, \"one_per_s\": %.0f, \"all_per_s\": %.0f, \"ratio\": %.2f, "
	       "\"ratio_low\": %.2f, \"ratio_high\": %.2f}\n",
		opcode_name[plan.opcode], plan.size, plan.window, plan.threads, middle(one),
		middle(all), r, low, high);
	fflush(stdout);
	return 0;
}

/* It sleeps until the other side has done. */
static int be_used(int fd)
{
	char over = 1;

	connect_sides(fd);
	swap(fd, &over, &over, 1);
	compare(plan.opcode == WRITE);
	return 0;
}

static void usage(void)
{
	fprintf(stderr,
		"usage: threads [-d device] [-x GID index] [-n threads] [-s message bytes]\n"
		"               [-w messages in flight, of each] [-o read|write|bare] [-r rounds]\n"
		"               [-t seconds]\n");
	exit(2);
}

static void parse(int argc, char **argv)
{
	int c;

	while ((c = getopt(argc, argv, "d:x:n:s:w:o:r:t:")) != -1) {
		switch (c) {
		case 'd':
			plan.device = optarg;
			break;
		case 'x':
			plan.gid_index = atoi(optarg);
			break;
		case 'n':
			plan.threads = (unsigned)atoi(optarg);
			break;
		case 's':
			plan.size = (unsigned)atoi(optarg);
			break;
		case 'w':
			plan.window = (unsigned)atoi(optarg);
			break;
		case 'o':
			for (plan.opcode = READ; plan.opcode < OPCODES; plan.opcode++)
				if (!strcmp(optarg, opcode_name[plan.opcode]))
					break;
			if (plan.opcode == OPCODES)
				usage();
			break;
		case 'r':
			plan.rounds = (unsigned)atoi(optarg);
			break;
		case 't':
			plan.run_ns = (uint64_t)(atof(optarg) * 1e9);
			break;
		default:
			usage();
		}
	}
	if (!plan.threads || plan.threads > THREADS_MAX || !plan.size || !plan.window ||
		plan.window > WINDOW_MAX || !plan.rounds || plan.rounds > ROUNDS_MAX ||
		optind != argc)
		usage();
}

int main(int argc, char **argv)
{
	int fd[2], status;

	parse(argc, argv);
	alarm(DEADLINE_S);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0)
		fail("socketpair");
	other = fork();
	if (other < 0)
		fail("fork");
	if (!other) {
		die_with_parent();
		open_side(false);
		_exit(be_used(fd[1]));
	}
	close(fd[1]);
	open_side(true);
	measure(fd[0]);
	if (waitpid(other, &status, 0) < 0 || status) {
		fprintf(stderr, "threads: the other side failed\n");
		return 1;
	}
	return 0;
}
