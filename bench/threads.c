/* SPDX-License-Identifier: BSD-3-Clause */
/* threads.c - do threads of one process, each with a QP and a CQ of its own, get in each other's
 * way? So many messages a second by one thread, and by -n at once, in turn, -r times each.
 *
 * Plain verbs, linked with libibverbs, so it runs on a NIC, on kernel rxe, and preloaded on the
 * software device. Two processes, forked before any device is opened; the other one registers
 * memory and sleeps. Each thread keeps -w messages in flight and polls its CQ. RDMA READ by
 * default: on the software device's lane it needs no processor of the process that is read, so two
 * cores show what two threads do. WRITE (-o write) needs one there. -o bare reads by
 * process_vm_readv, without a QP: what the kernel gives several threads that read one process. The
 * bytes read or written are compared at the end, by patterns that differ from QP to QP.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "verbs.h"

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
	unsigned gid_index, threads, size, window, rounds;
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
static struct device d; /* its memory: `size` bytes for each thread */
static enum ibv_mtu mtu;
static pid_t other;
static struct worker {
	_Alignas(128) pthread_t thread;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	unsigned number;
	uint64_t done, took_ns;
} worker[THREADS_MAX];
static _Atomic bool go;

static size_t stride(void) { return (plan.size + APART - 1) / APART * APART; }

/* Of thread t's memory, the i-th byte; `mine` of the side that measures. */
static uint8_t pattern(unsigned t, size_t i, bool mine)
{
	return (uint8_t)((i + t * 977) * 131 + (i >> 8) * 29 + (i >> 16) * 7 + (mine ? 5 : 3));
}

static void open_side(bool mine)
{
	struct ibv_port_attr port;

	device_open(&d, plan.device, plan.gid_index, stride() * plan.threads);
	if (ibv_query_port(d.ctx, 1, &port))
		die("ibv_query_port");
	mtu = port.active_mtu;
	for (unsigned t = 0; t < plan.threads; t++)
		for (size_t i = 0; i < plan.size; i++)
			d.mem[t * stride() + i] = pattern(t, i, mine);
	here.gid = d.gid;
	here.addr = (uintptr_t)d.mem;
	here.rkey = d.mr->rkey;
}

static void make_qp(unsigned t)
{
	struct worker *w = &worker[t];

	w->number = t;
	w->cq = ibv_create_cq(d.ctx, (int)plan.window + 1, NULL, NULL, 0);
	w->qp = qp_make(&d, w->cq, plan.window);
	here.qpn[t] = w->qp->qp_num;
}

static void meet(int fd)
{
	char ready = 1;

	tell(fd, &ready, 1);
	hear(fd, &ready, 1);
}

static void connect_sides(int fd)
{
	for (unsigned t = 0; t < plan.threads; t++)
		make_qp(t);
	tell(fd, &here, sizeof here);
	hear(fd, &there, sizeof there);
	for (unsigned t = 0; t < plan.threads; t++)
		qp_connect(&d, worker[t].qp, &there.gid, there.qpn[t], mtu, 16);
	meet(fd);
}

static void compare(bool mine)
{
	for (unsigned t = 0; t < plan.threads; t++)
		for (size_t i = 0; i < plan.size; i++)
			if (d.mem[t * stride() + i] != pattern(t, i, mine)) {
				fprintf(stderr, "threads: byte %zu of thread %u is wrong\n", i, t);
				exit(1);
			}
}

/* As work, by the kernel alone. */
static void *work_bare(void *arg)
{
	struct worker *w = arg;
	size_t offset = w->number * stride();
	struct iovec to = {d.mem + offset, plan.size},
		     from = {(void *)(uintptr_t)(there.addr + offset), plan.size};

	while (!atomic_load_explicit(&go, memory_order_acquire))
		;
	uint64_t begin = now_ns();
	for (w->done = 0, w->took_ns = 0; w->took_ns < plan.run_ns; w->took_ns = now_ns() - begin)
		for (unsigned i = 0; i < CLOCK_EVERY; i++, w->done++)
			if (process_vm_readv(other, &to, 1, &from, 1, 0) != (ssize_t)plan.size)
				die("process_vm_readv");
	return NULL;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t offset = w->number * stride(), posted = 0, done = 0, begin;
	struct ibv_sge sge = {
		.addr = (uintptr_t)d.mem + offset, .length = plan.size, .lkey = d.mr->lkey};
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
				die("ibv_post_send");
			posted++;
		}
		int n = ibv_poll_cq(w->cq, POLL_MAX, wc);
		if (n < 0)
			die("ibv_poll_cq");
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
			die("pthread_create");
	atomic_store(&go, true);
	for (unsigned t = 0; t < threads; t++) {
		pthread_join(worker[t].thread, NULL);
		sum += (double)worker[t].done / ((double)worker[t].took_ns / 1e9);
	}
	return sum;
}

static int measure(int fd)
{
	double one[ROUNDS_MAX], all[ROUNDS_MAX], ratio[ROUNDS_MAX];

	connect_sides(fd);
	rate(plan.threads); /* warm */
	for (unsigned r = 0; r < plan.rounds; r++) {
		one[r] = rate(1);
		all[r] = rate(plan.threads);
		ratio[r] = all[r] / one[r];
	}
	meet(fd);
	if (plan.opcode != WRITE)
		compare(false);
	double r = median(ratio, plan.rounds), low = ratio[0], high = ratio[plan.rounds - 1];
	printf("{\"name\": \"threads\", \"opcode\": \"%s\", \"bytes\": %u, \"window\": %u, "
	       "\"threads\": %u, \"one_per_s\": %.0f, \"all_per_s\": %.0f, \"ratio\": %.2f, "
	       "\"ratio_low\": %.2f, \"ratio_high\": %.2f}\n",
		opcode_name[plan.opcode], plan.size, plan.window, plan.threads,
		median(one, plan.rounds), median(all, plan.rounds), r, low, high);
	fflush(stdout);
	return 0;
}

/* It sleeps until the other side has done. */
static int be_used(int fd)
{
	connect_sides(fd);
	meet(fd);
	compare(plan.opcode == WRITE);
	return 0;
}

static const char usage[] =
	"[-d device] [-x GID index] [-n threads] [-s message bytes] [-w messages in flight, of "
	"each] [-o read|write|bare] [-r rounds] [-t seconds]";

static void parse(int argc, char **argv)
{
	const char *opcode = opcode_name[READ];
	const struct flag flags[] = {{'d', TEXT, &plan.device}, {'x', NUMBER, &plan.gid_index},
		{'n', NUMBER, &plan.threads}, {'s', NUMBER, &plan.size},
		{'w', NUMBER, &plan.window}, {'o', TEXT, &opcode}, {'r', NUMBER, &plan.rounds},
		{'t', DURATION, &plan.run_ns}, {0}};

	take_flags(argc, argv, flags, usage);
	while (plan.opcode < OPCODES && strcmp(opcode, opcode_name[plan.opcode]))
		plan.opcode++;
	need_usage(plan.opcode < OPCODES && plan.threads && plan.threads <= THREADS_MAX &&
			   plan.size && plan.window && plan.window <= WINDOW_MAX && plan.rounds &&
			   plan.rounds <= ROUNDS_MAX,
		usage);
}

int main(int argc, char **argv)
{
	int fd[2];

	parse(argc, argv);
	alarm(DEADLINE_S);
	talk_open(fd);
	other = child(-1);
	if (!other) {
		open_side(false);
		_exit(be_used(fd[1]));
	}
	close(fd[1]);
	open_side(true);
	measure(fd[0]);
	join_child(other);
	return 0;
}
