/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_group.c - ranks as processes: see rma_group.h. */
#include "rma_group.h"

#include <fnmatch.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 64 };

struct group {
	struct group_options o;
	char key_file[32];
	char handle[RANKS_MAX][NCCL_RMA_HANDLE_BYTES];
	_Atomic unsigned arrived; /* at barriers, all of them together */
	_Atomic uint64_t word[WORDS];
};

static char warned[1200];
static unsigned warnings;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static int own_rank = -1;

static void __attribute__((format(printf, 5, 6)))
log_line(int level, unsigned long subsys, const char *file, int line, const char *fmt, ...)
{
	char text[sizeof(warned)];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&log_lock);
	if (level == NCCL_LOG_WARN) {
		snprintf(warned, sizeof(warned), "%s", text);
		warnings++;
	}
	if (getenv("GROUP_LOG"))
		fprintf(stderr, "# rank %d %s %s:%d %s\n", own_rank,
			level == NCCL_LOG_WARN ? "WARN" : "INFO", file, line, text);
	pthread_mutex_unlock(&log_lock);
}

const char *rank_warned(void) { return warned; }
unsigned rank_warnings(void)
{
	pthread_mutex_lock(&log_lock);
	unsigned n = warnings;
	pthread_mutex_unlock(&log_lock);
	return n;
}
const char *rank_handle(const struct rank *r, int of) { return r->g->handle[of]; }
_Atomic uint64_t *rank_shared(struct rank *r, unsigned i) { return &r->g->word[i]; }

void rank_fail(const struct rank *r, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fprintf(stderr, "# rank %d of %d, %s: ", r->rank, r->ranks, r->g->o.table);
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	say_cases();
	fflush(NULL);
	_exit(1);
}

void rank_said(
	const struct rank *r, int line, const char *call, int rc, int expected, const char *word)
{
	if (rc != expected || !strstr(warned, word))
		rank_fail(r, "line %d: %s gave %d (%s), expected %d and a line with \"%s\": %s",
			line, call, rc, ncclnet_result_name(rc), expected, word, warned);
	*warned = 0;
}

static uint64_t deadline(void) { return rpwi_now_ns() + GROUP_WAIT_S * RPWI_NS_PER_S; }

void rank_settle(struct rank *r)
{
	bool failed;
	if (r->coll)
		r->n.calls->query(r->n.table, r->coll, r->ctx, &failed);
}

void rank_barrier(struct rank *r)
{
	rank_settle(r);
	uint64_t until_ns = deadline();
	unsigned want = ++r->barriers * (unsigned)r->ranks;
	atomic_fetch_add(&r->g->arrived, 1);
	while (atomic_load(&r->g->arrived) < want) {
		if (rpwi_now_ns() > until_ns)
			rank_fail(r, "not all ranks came to barrier %u", r->barriers);
		usleep(20);
	}
}

void rank_open(struct rank *r, const char *plugin, const char *table)
{
	char why[300];
	int ndev = 0;
	if (ncclnet_rma_load(plugin, table, &r->n, why, sizeof(why)))
		rank_fail(r, "%s", why);
	RANK_OK(r, r->n.calls->init(r->n.table, &r->instance, log_line));
	RANK_OK(r, r->n.calls->devices(r->n.table, &ndev));
	RANK_TRUE(r, ndev > 0);
}

void rank_listen(struct rank *r)
{
	RANK_OK(r, r->n.calls->listen(
			   r->n.table, r->instance, 0, r->g->handle[r->rank], &r->listen_comm));
	rank_barrier(r);
}

int rank_connect(struct rank *r, int contexts)
{
	void *handles[RANKS_MAX];
	for (int i = 0; i < r->ranks; i++)
		handles[i] = r->g->handle[i];
	int rc = r->n.calls->connect(r->n.table, r->instance, handles, r->ranks, r->rank,
		r->n.gin && r->n.abi == 11 ? 1 : contexts, r->listen_comm, &r->coll);
	return rc ? rc : r->n.calls->context(r->n.table, r->coll, contexts, &r->ctx);
}

void rank_close(struct rank *r)
{
	if (r->ctx)
		RANK_OK(r, r->n.calls->context_destroy(r->n.table, r->ctx));
	if (r->coll)
		RANK_OK(r, r->n.calls->close_coll(r->n.table, r->coll));
	if (r->listen_comm)
		RANK_OK(r, r->n.calls->close_listen(r->n.table, r->listen_comm));
	RANK_OK(r, r->n.calls->finalize(r->n.table, r->instance));
}

void *rank_reg(struct rank *r, void *data, size_t size)
{
	void *mhandle = NULL;
	RANK_OK(r, r->n.calls->reg(r->n.table, r->coll, data, size, NCCL_PTR_HOST,
			   NCCL_RMA_FORCE_ORDER, &mhandle));
	RANK_TRUE(r, mhandle != NULL);
	return mhandle;
}

int rank_wait(struct rank *r, void *request)
{
	int done = 0, rc = 0;
	for (uint64_t until_ns = deadline(); !done && !rc;) {
		rc = r->n.calls->test(r->n.table, r->coll, request, &done);
		if (rpwi_now_ns() > until_ns)
			rank_fail(r, "a request is not done within %d s", GROUP_WAIT_S);
		if (!done)
			sched_yield();
	}
	return rc;
}

void *rank_put(struct rank *r, int index, const struct ncclnet_rma_op *op)
{
	void *request = NULL;
	RANK_OK(r, r->n.calls->put(r->n.table, r->coll, r->ctx, index, op, &request));
	RANK_TRUE(r, request != NULL);
	return request;
}

void rank_do(struct rank *r, int index, const struct ncclnet_rma_op *op)
{
	RANK_OK(r, rank_wait(r, rank_put(r, index, op)));
}

void rank_get(struct rank *r, int index, const struct ncclnet_rma_op *op)
{
	void *request = NULL, *flush = NULL;
	RANK_OK(r, r->n.calls->get(r->n.table, r->coll, r->ctx, index, op, &request));
	RANK_TRUE(r, request != NULL);
	int rc = r->n.calls->flush(r->n.table, r->coll, r->ctx, index, op->to, op->rank, &flush);
	RANK_OK(r, rc == NCCLNET_ABSENT ? 0 : rc);
	if (flush)
		RANK_OK(r, rank_wait(r, flush));
	RANK_OK(r, rank_wait(r, request));
}

void rank_await(struct rank *r, const uint64_t *word, uint64_t value, bool polls)
{
	for (uint64_t until_ns = deadline(); __atomic_load_n(word, __ATOMIC_ACQUIRE) < value;) {
		if (polls)
			r->n.calls->progress(r->n.table, r->coll, r->ctx);
		else
			usleep(50);
		if (rpwi_now_ns() > until_ns)
			rank_fail(r, "a signal is %llu, not %llu, after %d s",
				(unsigned long long)*word, (unsigned long long)value, GROUP_WAIT_S);
		sched_yield();
	}
}

bool rank_has_iget(const struct rank *r) { return !r->n.gin || r->n.abi >= 13; }
bool rank_has_options(const struct rank *r) { return !r->n.gin && r->n.abi >= 15; }
bool rank_has_weak(const struct rank *r) { return !r->n.gin && r->n.abi >= 14; }

/* ---- the parent ---- */

static void run_rank(struct group *g, int rank, rank_fn fn)
{
	struct rank r = {.g = g, .rank = rank, .ranks = g->o.ranks};
	const char *transport = g->o.transport;
	own_rank = rank;
	if (transport && !strcmp(transport, "mixed"))
		transport = rank >= (g->o.ranks + 1) / 2 ? "tcp" : "shm,tcp";
	if (transport && !strcmp(transport, "sealed")) {
		transport = "tcp";
		setenv("ROPEWAY_KEY_FILE", g->key_file, 1);
	}
	if (transport)
		setenv("ROPEWAY_NCCL_TRANSPORT", transport, 1);
	setenv("ROPEWAY_RMA", "1", 0);
	if (!g->o.bare) {
		rank_open(&r, g->o.plugin, g->o.table);
		rank_listen(&r);
		RANK_OK(&r, rank_connect(&r, RPWI_MAX(g->o.contexts, 1)));
	}
	fn(&r);
	if (!g->o.bare)
		rank_close(&r);
	fflush(NULL);
	exit(0);
}

static bool is_good(const struct group_options *o, int rank, int status)
{
	return o->expendable >> rank & 1 || (WIFEXITED(status) && !WEXITSTATUS(status));
}

static void key_make(char path[32])
{
	strcpy(path, "/tmp/rma-key-XXXXXX");
	int fd = mkstemp(path);
	for (int i = 0; i < 64; i++)
		assert_int_equal(write(fd, &"0123456789abcdef"[i % 16], 1), 1);
	close(fd);
}

void group_run(const struct group_options *o, rank_fn fn)
{
	struct group *g =
		mmap(NULL, sizeof(*g), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid[RANKS_MAX] = {0};
	bool good = true;
	int left = o->ranks;
	/* a model of 10^6 operations may take its time */
	uint64_t limit_s = 3 * GROUP_WAIT_S + test_rounds(0) / 1000;
	uint64_t until_ns = rpwi_now_ns() + limit_s * RPWI_NS_PER_S;
	assert_true(g != MAP_FAILED && o->ranks <= RANKS_MAX);
	g->o = *o;
	key_make(g->key_file);
	fflush(NULL);
	for (int i = 0; i < o->ranks; i++) {
		pid[i] = fork();
		assert_true(pid[i] >= 0);
		if (!pid[i])
			run_rank(g, i, fn);
	}
	while (left && good && rpwi_now_ns() < until_ns) {
		usleep(200);
		for (int i = 0; i < o->ranks; i++) {
			int status;
			if (!pid[i] || waitpid(pid[i], &status, WNOHANG) != pid[i])
				continue;
			pid[i] = 0;
			left--;
			if (!is_good(o, i, status)) {
				fprintf(stderr, "# rank %d of %d ended with status 0x%x\n", i,
					o->ranks, (unsigned)status);
				good = false;
			}
		}
	}
	for (int i = 0; i < o->ranks; i++)
		if (pid[i]) {
			kill(pid[i], SIGKILL);
			waitpid(pid[i], NULL, 0);
		}
	unlink(g->key_file);
	if (left && good)
		fail_msg("%d of %d ranks did not end in time", left, o->ranks);
	munmap(g, sizeof(*g));
	assert_true(good);
}

struct group_main group_main;

void *room_new(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(p != MAP_FAILED);
	return p;
}

struct window *window_new(size_t room) { return room_new(sizeof(struct window) + room); }

static struct group_options options_of(const char *table, int ranks)
{
	return (struct group_options){.plugin = group_main.plugin,
		.table = table,
		.ranks = ranks,
		.transport = group_main.transport};
}

void group_newest(int ranks, int contexts, unsigned expendable, rank_fn fn)
{
	struct group_options o = options_of("RMA v16", ranks);
	o.contexts = contexts;
	o.expendable = expendable;
	group_run(&o, fn);
}

void group_each_table(int ranks, int contexts, unsigned expendable, rank_fn fn)
{
	for (unsigned i = 0; ncclnet_rma_table_name(i); i++) {
		IN_CASE("table", i);
		struct group_options o = options_of(ncclnet_rma_table_name(i), ranks);
		o.contexts = contexts;
		o.expendable = expendable;
		group_run(&o, fn);
	}
}

void group_bare(int ranks, rank_fn fn)
{
	struct group_options o = options_of("RMA v16", ranks);
	o.bare = true;
	group_run(&o, fn);
}

int group_tests(int argc, char **argv, const struct CMUnitTest *all, size_t n)
{
	struct CMUnitTest some[64];
	size_t count = 0;
	if (argc < 3 || n > RPWI_ARRAY_LEN(some)) {
		fprintf(stderr, "usage: %s PLUGIN.so TRANSPORT [TEST]...\n", argv[0]);
		return 2;
	}
	group_main = (struct group_main){.plugin = argv[1], .transport = argv[2]};
	for (size_t i = 0; i < n; i++) {
		bool wanted = argc == 3;
		for (int k = 3; k < argc; k++)
			wanted |= !fnmatch(argv[k], all[i].name, 0);
		if (wanted)
			some[count++] = all[i];
	}
	return _cmocka_run_group_tests("rma", some, count, NULL, NULL);
}
