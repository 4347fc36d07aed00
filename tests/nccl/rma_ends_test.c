/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_ends_test.c - our one-sided plugin: what is refused, how ranks end, and where it is NCCL's
 * choice. PLUGIN TRANSPORT [TEST]... */
#include "rma_group.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#elif defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED false
#endif

/* ---- bad input ---- */

static struct ncclnet_rma_op good_put(void *wh)
{
	return (struct ncclnet_rma_op){.from = wh,
		.from_off = at(0),
		.size = 64,
		.to = wh,
		.to_off = at(64),
		.rank = 1,
		.signals = true,
		.signal = wh,
		.signal_op = NCCL_RMA_SIGNAL_ADD,
		.value = 5};
}

#define BAD(word, ...) \
	do { \
		struct ncclnet_rma_op op = good_put(wh); \
		void *request = NULL; \
		__VA_ARGS__; \
		RANK_REFUSED(r, r->n.calls->put(r->n.table, r->coll, r->ctx, 0, &op, &request), \
			NCCL_INVALID_ARGUMENT, word); \
		RANK_TRUE(r, !request); \
	} while (0)

static void bad_puts(struct rank *r, void *wh, size_t size)
{
	BAD("2 ranks", op.rank = 2);
	BAD("2 ranks", op.rank = UINT32_MAX);
	BAD("registered", op.to_off = size - 63);
	BAD("registered", op.to_off = UINT64_MAX);
	BAD("registered", op.to_off = UINT64_MAX - 63);
	BAD("registered", op.from_off = size - 63);
	BAD("registered", op.size = SIZE_MAX);
	BAD("registered", op.signal_off = size);
	BAD("registered", op.signal_off = size - 4);
	BAD("multiple of 8", op.signal_off = 4);
	BAD("increment is 1", op.signal_op = 0);
	BAD("increment is 1", op.signal_op = 3);
	BAD("not one of the", op.to = (void *)((uintptr_t)wh + 16));
	BAD("not one of the", op.to = (void *)((uintptr_t)wh + 1));
	BAD("not one of the", op.from = (void *)op.to_off);
	BAD("not one of the", op.signal = NULL);
	BAD("not one of the", op.signal = (void *)UINTPTR_MAX);
	if (!r->n.gin && r->n.abi >= 15)
		BAD("known is 0x1", op.options = 2);
}

static void bad_calls(struct rank *r, void *wh)
{
	struct ncclnet_rma_op op = good_put(wh);
	void *request = NULL, *mhandle = NULL;
	int done;
	const struct ncclnet_rma_calls *c = r->n.calls;
	if (!(r->n.gin && r->n.abi == 11))
		RANK_REFUSED(r, c->put(r->n.table, r->coll, r->ctx, 7, &op, &request),
			NCCL_INVALID_ARGUMENT, "this one has 1");
	RANK_REFUSED(r, c->test(r->n.table, r->coll, &op, &done), NCCL_INVALID_ARGUMENT,
		"not a request");
	RANK_REFUSED(r, c->test(r->n.table, r->coll, NULL, &done), NCCL_INVALID_ARGUMENT,
		"not a request");
	RANK_REFUSED(r, c->dereg(r->n.table, r->coll, &op), NCCL_INVALID_ARGUMENT, "did not give");
	RANK_REFUSED(r, c->close_coll(r->n.table, r->listen_comm), NCCL_INVALID_ARGUMENT,
		"not a coll comm");
	RANK_REFUSED(r, c->close_listen(r->n.table, r->coll), NCCL_INVALID_ARGUMENT, "not a comm");
	RANK_REFUSED(r, c->reg(r->n.table, r->coll, &op, sizeof(op), 9, 0, &mhandle),
		NCCL_INVALID_ARGUMENT, "memory type 9");
	RANK_REFUSED(r,
		c->reg_dmabuf(r->n.table, r->coll, &op, 8, NCCL_PTR_CUDA, 0, 0, 0, &mhandle),
		NCCL_INVALID_USAGE, "dma-buf");
	RANK_TRUE(r, !mhandle);
	request = rank_put(r, 0, &op);
	RANK_OK(r, rank_wait(r, request));
	RANK_REFUSED(r, c->test(r->n.table, r->coll, request, &done), NCCL_INVALID_ARGUMENT,
		"until it was done");
	if (rank_has_iget(r)) {
		struct ncclnet_rma_op g = op;
		g.from_off = 1 << 20;
		RANK_REFUSED(r, c->get(r->n.table, r->coll, r->ctx, 0, &g, &request),
			NCCL_INVALID_ARGUMENT, "registered");
		RANK_REFUSED(r, c->flush(r->n.table, r->coll, r->ctx, 0, wh, 9, &request),
			NCCL_INVALID_ARGUMENT, "2 ranks");
	}
}

static void bad(struct rank *r)
{
	size_t size = sizeof(struct window) + 4096;
	struct window *w = window_new(4096);
	void *wh = rank_reg(r, w, size), *second, *empty;
	rank_barrier(r);
	if (!r->rank)
		bad_puts(r, wh, size);
	bad_calls(r, wh);
	rank_barrier(r);
	/* each rank put once, to rank 1 */
	if (r->rank)
		rank_await(r, &w->signal[0], 10, true);
	rank_barrier(r);
	for (size_t i = 0; i < 4096; i++)
		RANK_TRUE(r, !w->at[i]);
	RANK_TRUE(r, w->signal[0] == (r->rank ? 10 : 0));
	/* the same memory twice, and none; the first is still good when the second goes */
	second = rank_reg(r, w, size);
	empty = rank_reg(r, NULL, 0);
	RANK_OK(r, r->n.calls->dereg(r->n.table, r->coll, second));
	RANK_REFUSED(r, r->n.calls->dereg(r->n.table, r->coll, second), NCCL_INVALID_ARGUMENT,
		"was deregistered");
	BAD("not one of the", op.to = second);
	BAD("registered 0 bytes", op.to = empty; op.to_off = 0);
	rank_barrier(r);
	struct ncclnet_rma_op op = good_put(wh);
	rank_do(r, 0, &op);
	rank_barrier(r);
}
static void bad_input_is_refused_by_name(void **unused) { group_each_table(2, 1, 0, bad); }

/* ---- registration is collective ---- */

static void one_cannot(struct rank *r)
{
	uint64_t data[8] = {0};
	void *mhandle = NULL;
	const struct ncclnet_rma_calls *c = r->n.calls;
	for (int k = 0; k < 20; k++)
		RANK_REFUSED(r,
			c->reg(r->n.table, r->coll, data, sizeof(data), r->rank ? NCCL_PTR_HOST : 9,
				0, &mhandle),
			r->rank ? NCCL_REMOTE_ERROR : NCCL_INVALID_ARGUMENT,
			r->rank ? "rank 0 could not register" : "memory type 9");
	void *wh = rank_reg(r, data, sizeof(data));
	rank_do(r, 0,
		&(struct ncclnet_rma_op){.rank = 0,
			.signals = true,
			.signal = wh,
			.signal_op = NCCL_RMA_SIGNAL_INCREMENT});
	if (!r->rank)
		rank_await(r, data, (uint64_t)r->ranks, true);
	rank_barrier(r);
}
static void a_rank_that_cannot_register_fails_it_on_all(void **unused)
{
	group_newest(4, 1, 0, one_cannot);
}

/* A put that is under way when its target deregisters: refused there, and said on both sides. */
static void stale(struct rank *r)
{
	struct window *w = window_new(256);
	void *wh = rank_reg(r, w, sizeof(*w) + 256);
	bool failed = false;
	rank_barrier(r);
	if (r->rank)
		RANK_OK(r, r->n.calls->dereg(r->n.table, r->coll, wh));
	rank_barrier(r);
	if (!r->rank) {
		struct ncclnet_rma_op op = good_put(wh);
		w->at[0] = 1;
		rank_do(r, 0, &op);
		for (int i = 0; i < 2000 && !failed; i++, usleep(1000))
			RANK_OK(r, r->n.calls->query(r->n.table, r->coll, r->ctx, &failed));
		RANK_TRUE(r, failed);
		RANK_TRUE(r, strstr(rank_warned(), "no such memory is registered") != NULL);
	}
	rank_barrier(r);
	RANK_TRUE(r, !w->signal[0] && !w->at[64]);
}
static void a_put_to_what_was_deregistered_is_refused(void **unused)
{
	group_newest(2, 1, 0, stale);
}

/* ---- ends ---- */

/* Rank 1 is killed in the middle of puts from all. */
static void killed(struct rank *r)
{
	enum { BIG = 1 << 20 };
	struct window *w = window_new(BIG);
	void *wh = rank_reg(r, w, sizeof(*w) + BIG);
	bool failed = false;
	int rc = 0;
	rank_barrier(r);
	if (r->rank == 1) {
		rank_await(r, &w->signal[0], 20, true);
		atomic_store(rank_shared(r, 1), rpwi_now_ns());
		kill(getpid(), SIGKILL);
	}
	for (unsigned k = 0; !rc; k++) {
		void *request = NULL;
		struct ncclnet_rma_op op = {.from = wh,
			.from_off = at(0),
			.size = k % 2 ? BIG : 50,
			.to = wh,
			.to_off = at(0),
			.rank = 1,
			.signals = true,
			.signal = wh,
			.signal_off = r->rank ? 8 : 0,
			.signal_op = NCCL_RMA_SIGNAL_INCREMENT};
		rc = r->n.calls->put(r->n.table, r->coll, r->ctx, 0, &op, &request);
		if (!rc)
			rc = rank_wait(r, request);
	}
	RANK_TRUE(r, rc == NCCL_REMOTE_ERROR);
	uint64_t died_ns = atomic_load(rank_shared(r, 1));
	RANK_TRUE(r, died_ns && rpwi_now_ns() - died_ns < DEATH_MS * RPWI_NS_PER_MS);
	RANK_OK(r, r->n.calls->query(r->n.table, r->coll, r->ctx, &failed));
	RANK_TRUE(r, failed);
	RANK_TRUE(r, strstr(rank_warned(), "rank 1") != NULL);
	/* the others still work */
	uint32_t other = r->rank ? 0 : 2;
	rank_do(r, 0,
		&(struct ncclnet_rma_op){.rank = other,
			.signals = true,
			.signal = wh,
			.signal_off = 16,
			.signal_op = NCCL_RMA_SIGNAL_INCREMENT});
	if (r->rank != 3)
		rank_await(r, &w->signal[2], r->rank ? 1 : 2, true);
	atomic_fetch_add(rank_shared(r, 3), 1);
	while (atomic_load(rank_shared(r, 3)) < 3)
		usleep(100);
}
static void a_death_is_told_within_two_seconds(void **unused)
{
	group_newest(4, 1, 1u << 1, killed);
}

/* Rank 1 dies; nobody has anything under way with it, and nobody calls but queryLastError. */
static void killed_idle(struct rank *r)
{
	bool failed = false;
	rank_barrier(r);
	if (r->rank == 1) {
		atomic_store(rank_shared(r, 1), rpwi_now_ns());
		kill(getpid(), SIGKILL);
	}
	uint64_t until_ns = rpwi_now_ns() + DEATH_MS * RPWI_NS_PER_MS;
	while (!failed && rpwi_now_ns() < until_ns) {
		RANK_OK(r, r->n.calls->query(r->n.table, r->coll, r->ctx, &failed));
		usleep(1000);
	}
	RANK_TRUE(r, failed);
}
/* NCCL 2.30.4 asks by a struct of its own, which begins with the coll comm. */
static void asked_by_proxy(struct rank *r)
{
	struct {
		void *coll;
		int ranks;
	} own = {r->coll, r->ranks}, other = {&own, r->ranks};
	bool failed = true;
	const struct ncclnet_rma_calls *c = r->n.calls;
	RANK_OK(r, c->query(r->n.table, r->coll, &own, &failed));
	RANK_TRUE(r, !failed);
	RANK_REFUSED(r, c->query(r->n.table, r->coll, &other, &failed), NCCL_INVALID_ARGUMENT,
		"not a context");
	rank_barrier(r);
	if (r->rank == 1)
		kill(getpid(), SIGKILL);
	for (int i = 0; i < DEATH_MS && !failed; i++, usleep(1000))
		RANK_OK(r, c->query(r->n.table, r->coll, &own, &failed));
	RANK_TRUE(r, failed);
}
static void the_gin_proxy_may_ask_by_its_own_context(void **unused)
{
	struct group_options o = {.plugin = group_main.plugin,
		.transport = group_main.transport,
		.table = "GIN v13",
		.ranks = 2,
		.expendable = 1u << 1};
	group_run(&o, asked_by_proxy);
}

static void an_idle_death_is_told_within_two_seconds(void **unused)
{
	group_each_table(2, 1, 1u << 1, killed_idle);
	group_newest(4, 1, 1u << 1, killed_idle);
}

/* Rank 1 is stopped: nothing waits for it beyond its bound, and the others go on. */
static void stopped(struct rank *r)
{
	enum { BIG = 1 << 20, MANY = 60, BOUND_MS = 4000 };
	struct window *w = window_new(BIG);
	void *wh = rank_reg(r, w, sizeof(*w) + BIG);
	struct ncclnet_rma_op op = {.from = wh,
		.from_off = at(0),
		.to = wh,
		.to_off = at(0),
		.signals = true,
		.signal = wh,
		.signal_op = NCCL_RMA_SIGNAL_INCREMENT};
	const struct ncclnet_rma_calls *c = r->n.calls;
	if (r->rank == 1)
		atomic_store(rank_shared(r, 0), (uint64_t)getpid());
	rank_barrier(r);
	if (r->rank == 1) /* until rank 0 has closed */
		for (bool failed = false; !failed; usleep(1000))
			RANK_OK(r, c->query(r->n.table, r->coll, r->ctx, &failed));
	if (r->rank == 2)
		rank_await(r, &w->signal[0], MANY, false);
	if (!r->rank) {
		pid_t pid = (pid_t)atomic_load(rank_shared(r, 0));
		kill(pid, SIGSTOP);
		for (unsigned k = 0; k < MANY; k++) {
			op.size = k % 2 ? BIG : 64;
			op.rank = 1;
			rank_put(r, 0, &op);
			op.rank = 2;
			rank_do(r, 0, &op);
		}
		uint64_t began_ns = rpwi_now_ns();
		int rc = c->dereg(r->n.table, r->coll, wh);
		RANK_TRUE(r, !rc || rc == NCCL_INTERNAL_ERROR);
		RANK_OK(r, c->context_destroy(r->n.table, r->ctx));
		RANK_OK(r, c->close_coll(r->n.table, r->coll));
		RANK_TRUE(r, rpwi_now_ns() - began_ns < BOUND_MS * RPWI_NS_PER_MS);
		r->ctx = r->coll = NULL;
		kill(pid, SIGCONT);
	}
}
static void a_stopped_rank_stops_nobody_else(void **unused)
{
	group_newest(3, 1, 1u << 1, stopped);
}

/* Registration does not wait for a rank that is dead. */
static void killed_before_reg(struct rank *r)
{
	uint64_t data[8];
	void *mhandle = NULL;
	rank_barrier(r);
	if (r->rank == 1)
		kill(getpid(), SIGKILL);
	RANK_TRUE(r, r->n.calls->reg(r->n.table, r->coll, data, sizeof(data), NCCL_PTR_HOST, 0,
			     &mhandle) == NCCL_REMOTE_ERROR);
	RANK_TRUE(r, !mhandle);
}
static void registration_does_not_wait_for_the_dead(void **unused)
{
	group_newest(4, 1, 1u << 1, killed_before_reg);
}

static void busy_close(struct rank *r)
{
	enum { BIG = 1 << 20, MANY = 20 }; /* deregMrSym waits 2 s for them */
	struct window *w = window_new(BIG);
	void *wh = rank_reg(r, w, sizeof(*w) + BIG);
	rank_barrier(r);
	/* a rank that is faster has closed its side by then */
	for (unsigned k = 0, rc = 0; k < MANY && !rc; k++) {
		void *request = NULL;
		rc = (unsigned)r->n.calls->put(r->n.table, r->coll, r->ctx, 0,
			&(struct ncclnet_rma_op){.from = wh,
				.from_off = at(0),
				.size = BIG,
				.to = wh,
				.to_off = at(0),
				.rank = (uint32_t)(r->rank ^ 1),
				.signals = true,
				.signal = wh,
				.signal_op = NCCL_RMA_SIGNAL_INCREMENT},
			&request);
		RANK_TRUE(r, rc == NCCL_REMOTE_ERROR || (!rc && request));
	}
	if (r->ranks != 2)
		return;
	/* dereg waits for what is under way, 2 s each time; on a busy machine 20 MiB take longer */
	int rc = NCCL_INTERNAL_ERROR;
	for (int tries = 0; tries < 10 && rc == NCCL_INTERNAL_ERROR; tries++)
		rc = r->n.calls->dereg(r->n.table, r->coll, wh);
	RANK_OK(r, rc);
}
static void close_and_deregister_with_work_in_flight(void **unused)
{
	group_each_table(2, 1, 0, busy_close);
	group_newest(4, 1, 0, busy_close);
}

/* What was put arrives although its rank closes at once. */
static void close_flushes(struct rank *r)
{
	enum { BIG = 300000 };
	struct window *w = window_new(BIG);
	uint8_t *from = room_new(BIG);
	void *wh = rank_reg(r, w, sizeof(*w) + BIG), *fh = rank_reg(r, from, BIG);
	pattern_fill(from, BIG, 5);
	rank_barrier(r);
	if (r->rank) {
		rank_do(r, 0,
			&(struct ncclnet_rma_op){.from = fh,
				.size = BIG,
				.to = wh,
				.to_off = at(0),
				.signals = true,
				.signal = wh,
				.signal_op = NCCL_RMA_SIGNAL_INCREMENT});
		return;
	}
	rank_await(r, &w->signal[0], 1, false);
	RANK_TRUE(r, pattern_wrong(w->at, BIG, 5) == BIG);
}
static void what_was_put_arrives_before_the_end(void **unused)
{
	group_each_table(2, 1, 0, close_flushes);
}

/* ---- what it costs ---- */

static unsigned descriptors(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");
	while (d && readdir(d))
		n++;
	closedir(d);
	return n;
}

/* KiB of this process, what it shares by halves. */
static long kib(struct rank *r)
{
	char line[200];
	long pss = -1;
	FILE *f = fopen("/proc/self/smaps_rollup", "re");
	RANK_TRUE(r, f != NULL);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Pss: %ld kB", &pss) == 1)
			break;
	fclose(f);
	return pss;
}

/* The ends of 7 pairs, and both of the one with itself. What there is once for all is in it. */
static void costs(struct rank *r)
{
	uint64_t word = 0;
	rank_open(r, group_main.plugin, "RMA v16");
	rank_listen(r);
	unsigned fds = descriptors();
	long before = kib(r);
	rank_barrier(r);
	RANK_OK(r, rank_connect(r, 1));
	void *wh = rank_reg(r, &word, sizeof(word));
	for (int to = 0; to < r->ranks; to++)
		rank_do(r, 0,
			&(struct ncclnet_rma_op){.rank = (uint32_t)to,
				.signals = true,
				.signal = wh,
				.signal_op = NCCL_RMA_SIGNAL_INCREMENT});
	rank_await(r, &word, (uint64_t)r->ranks, true);
	rank_barrier(r);
	unsigned ends = (unsigned)r->ranks + 1, fds_more = descriptors() - fds;
	long more = kib(r) - before;
	if (!r->rank)
		printf("# rank 0 of %d: %u descriptors and %ld KiB for %u ends\n", r->ranks,
			fds_more, more, ends);
	/* a pair has two ends: 4 descriptors over TCP, and 64 KiB without a key; sanitizers and
	 * devices have more */
	bool tcp = !strcmp(group_main.transport, "tcp"), shm = !strcmp(group_main.transport, "shm");
	RANK_TRUE(r, !tcp || fds_more <= 2 * ends + 2);
	RANK_TRUE(r, !(tcp || shm) || SANITIZED || more <= 32 * (long)ends);
	rank_barrier(r);
	rank_close(r);
}
static void an_idle_pair_costs_little(void **unused) { group_bare(8, costs); }

/* ---- tables, handles, devices ---- */

static void two_versions(struct rank *r)
{
	rank_open(r, group_main.plugin, r->rank ? "RMA v15" : "RMA v16");
	rank_listen(r);
	RANK_REFUSED(r, rank_connect(r, 1), NCCL_INVALID_USAGE, "one version");
	rank_barrier(r);
	rank_close(r);
}
static void ranks_of_two_versions_are_refused(void **unused) { group_bare(2, two_versions); }

static void two_tables(struct rank *r)
{
	struct ncclnet_rma other;
	char why[300];
	bool failed;
	uint64_t word = 0;
	void *mhandle = NULL, *wh = rank_reg(r, &word, 8);
	RANK_TRUE(r, !ncclnet_rma_load(group_main.plugin, "RMA v15", &other, why, sizeof(why)));
	RANK_REFUSED(r,
		other.calls->reg(other.table, r->coll, &word, 8, NCCL_PTR_HOST, 0, &mhandle),
		NCCL_INVALID_USAGE, "made by RMA v16");
	RANK_REFUSED(r, other.calls->query(other.table, r->coll, r->ctx, &failed),
		NCCL_INVALID_USAGE, "one version's table");
	RANK_REFUSED(r, other.calls->dereg(other.table, r->coll, wh), NCCL_INVALID_USAGE,
		"made by RMA v16");
	rank_barrier(r);
}
static void tables_are_not_mixed(void **unused) { group_newest(2, 1, 0, two_tables); }

static void wrong_connects(struct rank *r)
{
	char handle[2][NCCL_RMA_HANDLE_BYTES], other[NCCL_RMA_HANDLE_BYTES];
	void *handles[] = {handle[0], handle[1]}, *coll = NULL, *lc = NULL;
	const struct ncclnet_rma_calls *c;
	rank_open(r, group_main.plugin, "RMA v16");
	c = r->n.calls;
	RANK_OK(r, c->listen(r->n.table, r->instance, 0, handle[0], &r->listen_comm));
	RANK_OK(r, c->listen(r->n.table, r->instance, 0, other, &lc));
	memcpy(handle[1], handle[0], sizeof(handle[0]));
#define CONNECT(ranks, rank, l) c->connect(r->n.table, NULL, handles, ranks, rank, 1, l, &coll)
	RANK_REFUSED(r, CONNECT(2, 2, r->listen_comm), NCCL_INVALID_ARGUMENT, "rank 2 of 2");
	RANK_REFUSED(r, CONNECT(0, 0, r->listen_comm), NCCL_INVALID_ARGUMENT, "rank 0 of 0");
	RANK_REFUSED(r, CONNECT(2, -1, r->listen_comm), NCCL_INVALID_ARGUMENT, "rank -1 of 2");
	RANK_REFUSED(r, CONNECT(2, 0, lc), NCCL_INVALID_ARGUMENT, "its own");
	RANK_REFUSED(r, CONNECT(2, 0, r->instance), NCCL_INVALID_ARGUMENT, "not a comm");
	handle[1][40] ^= 1;
	RANK_REFUSED(r, CONNECT(2, 0, r->listen_comm), NCCL_INVALID_ARGUMENT,
		"rank 1: the handle is garbled");
	memset(handle[1], 0, sizeof(handle[1]));
	RANK_REFUSED(r, CONNECT(2, 0, r->listen_comm), NCCL_INVALID_ARGUMENT, "all zero");
	/* ourselves twice: that rank does not come */
	memcpy(handle[1], other, sizeof(other));
	setenv("ROPEWAY_NCCL_TIMEOUT_MS", "5000", 1);
	RANK_REFUSED(
		r, CONNECT(2, 0, r->listen_comm), NCCL_REMOTE_ERROR, "rank 1 has not connected");
	RANK_TRUE(r, !coll);
	RANK_OK(r, CONNECT(1, 0, r->listen_comm));
	r->coll = coll;
	RANK_REFUSED(
		r, CONNECT(1, 0, r->listen_comm), NCCL_INVALID_USAGE, "has a coll comm already");
	RANK_OK(r, c->close_listen(r->n.table, lc));
	rank_close(r);
}
static void wrong_connects_are_refused(void **unused) { group_bare(1, wrong_connects); }

static int devices_with(struct rank *r, const char *variable, const char *value)
{
	int ndev = -1;
	void *instance = NULL;
	if (value)
		setenv(variable, value, 1);
	RANK_OK(r, r->n.calls->init(r->n.table, &instance, ncclnet_log));
	RANK_OK(r, r->n.calls->devices(r->n.table, &ndev));
	RANK_OK(r, r->n.calls->finalize(r->n.table, instance));
	if (value)
		unsetenv(variable);
	return ndev;
}

/* NCCL takes the first table that has a device. */
static void chosen(struct rank *r)
{
	char why[300];
	struct ncclnet *net;
	struct nccl_net_properties_v12 p;
	void *ctx = NULL;
	unsetenv("ROPEWAY_RMA");
	RANK_TRUE(r, !ncclnet_rma_load(group_main.plugin, NULL, &r->n, why, sizeof(why)));
	RANK_TRUE(r, devices_with(r, "", NULL) == 0);
	RANK_TRUE(r, devices_with(r, "ROPEWAY_RMA", "1") > 0);
	RANK_TRUE(r, devices_with(r, "NCCL_RMA_PLUGIN", "other,/x/libnccl-net-ropeway.so") > 0);
	RANK_TRUE(r, devices_with(r, "NCCL_GIN_PLUGIN", "ropeway") > 0);
	RANK_TRUE(r, devices_with(r, "NCCL_RMA_PLUGIN", "other") == 0);
	RANK_TRUE(r, !ncclnet_load(group_main.plugin, 12, &net, why, sizeof(why)));
	RANK_OK(r, ncclnet_init(net, &ctx, ncclnet_log));
	RANK_TRUE(r, devices_with(r, "", NULL) > 0);
	RANK_TRUE(r, devices_with(r, "ROPEWAY_RMA", "0") == 0);
	RANK_TRUE(r, devices_with(r, "NCCL_NET", "Socket") == 0);
	RANK_TRUE(r, devices_with(r, "NCCL_NET", "ropeway") > 0);
	RANK_OK(r, ncclnet_finalize(net, ctx));
	ncclnet_unload(net);
	RANK_TRUE(r, devices_with(r, "", NULL) == 0);
	RANK_OK(r, r->n.calls->properties(r->n.table, 0, &p));
	RANK_TRUE(r, p.device_type == NCCL_NET_DEVICE_GIN_PROXY && p.max_recvs > 0);
	RANK_TRUE(r, !(p.ptr_support & NCCL_PTR_DMABUF) && p.ptr_support & NCCL_PTR_HOST);
	RANK_TRUE(r, r->n.calls->properties(r->n.table, 99, &p) == NCCL_INVALID_ARGUMENT);
}
static void it_is_chosen_where_ropeway_is_the_network(void **unused) { group_bare(1, chosen); }

int main(int argc, char **argv)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test(it_is_chosen_where_ropeway_is_the_network),
		cmocka_unit_test(bad_input_is_refused_by_name),
		cmocka_unit_test(a_rank_that_cannot_register_fails_it_on_all),
		cmocka_unit_test(a_put_to_what_was_deregistered_is_refused),
		cmocka_unit_test(a_death_is_told_within_two_seconds),
		cmocka_unit_test(an_idle_death_is_told_within_two_seconds),
		cmocka_unit_test(the_gin_proxy_may_ask_by_its_own_context),
		cmocka_unit_test(a_stopped_rank_stops_nobody_else),
		cmocka_unit_test(registration_does_not_wait_for_the_dead),
		cmocka_unit_test(close_and_deregister_with_work_in_flight),
		cmocka_unit_test(what_was_put_arrives_before_the_end),
		cmocka_unit_test(an_idle_pair_costs_little),
		cmocka_unit_test(ranks_of_two_versions_are_refused),
		cmocka_unit_test(tables_are_not_mixed),
		cmocka_unit_test(wrong_connects_are_refused),
	};
	return group_tests(argc, argv, all, RPWI_ARRAY_LEN(all));
}
