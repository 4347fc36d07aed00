/* SPDX-License-Identifier: BSD-3-Clause */
/* helpers_test.c - helper threads: when there are some and how many, and that who posts gets in
 * beside them. That they break nothing is for all the other tests, which run with two of them, too
 * (meson.build). */
#include "plugin_test.h"

#include <dirent.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG = 1 << 20 };

static int threads_called(const char *line)
{
	int n = 0;
	DIR *d = opendir("/proc/self/task");
	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));) {
		char path[300], name[32] = "";
		snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", e->d_name);
		FILE *f = fopen(path, "r");
		n += f && fgets(name, sizeof(name), f) && !strcmp(name, line);
		if (f)
			fclose(f);
	}
	closedir(d);
	return n;
}

static int helpers_now(void) { return threads_called("rpw-helper\n"); }

static void runs(const char *wanted, int expected)
{
	struct pair p;
	if (wanted)
		setenv("ROPEWAY_NCCL_THREADS", wanted, 1);
	else
		unsetenv("ROPEWAY_NCCL_THREADS");
	*pair_warned = 0;
	pair_open(&p, 12);
	pair_message(&p, PLUGIN_LONG_BYTES - 1, 1);
	assert_int_equal(helpers_now(), 0);
	pair_message(&p, PLUGIN_LONG_BYTES, 1);
	/* the listing may end early where a thread ends meanwhile */
	uint64_t until_ns = rpwi_now_ns() + 2 * RPWI_NS_PER_S;
	int found;
	while ((found = helpers_now()) != expected && rpwi_now_ns() < until_ns)
		sched_yield();
	if (found != expected)
		fail_msg("ROPEWAY_NCCL_THREADS=%s: %d helper threads, expected were %d",
			wanted ? wanted : "", found, expected);
	for (int i = 0; i < 20; i++)
		pair_message(&p, LONG + (size_t)i * 4099, i);
	pair_close(&p);
	/* it ends with the last comm context, after them */
	for (uint64_t until = pair_deadline(); threads_called("rpw-progress\n") || helpers_now();)
		pair_breathe(until);
}

static void allow(int n, const cpu_set_t *all)
{
	cpu_set_t some = *all;
	for (int i = CPU_SETSIZE - 1; CPU_COUNT(&some) > n; i--)
		CPU_CLR(i, &some);
	assert_int_equal(sched_setaffinity(0, sizeof(some), &some), 0);
}

/* As many as the variable says; else as many as there are cores for. Twice, since they end with the
 * last comm. */
void helpers_come_and_go(void **unused)
{
	char *before = getenv("ROPEWAY_NCCL_THREADS");
	cpu_set_t all;
	before = before ? strdup(before) : NULL;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	int cpus = CPU_COUNT(&all), usual = cpus >= 16 ? 2 : cpus >= 8 ? 1 : 0;
	runs("2", 2);
	runs("0", 0);
	runs("1", 1);
	runs("", usual);
	runs(NULL, usual);
	static const char *const wrong[] = {"9", "-1", "two", "1 "};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(wrong); i++) {
		IN_CASE("row", i);
		runs(wrong[i], usual);
		REFUSED(0, 0, "expected helper threads, 0 to 8");
	}
	/* one core for the proxy thread, the peer's and them: they rest */
	allow(1, &all);
	runs(NULL, 0);
	runs("3", 3);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	if (before)
		setenv("ROPEWAY_NCCL_THREADS", before, 1);
	else
		unsetenv("ROPEWAY_NCCL_THREADS");
	free(before);
}

/* Sends and receives without a test in between, while they are moved: who posts is let in each
 * time, and what is posted late is found in order. */
void who_posts_gets_in(void **unused)
{
	enum { COUNT = 64, BYTES = 300000 };
	struct pair p;
	uint8_t *from = malloc((size_t)COUNT * BYTES), *to = malloc((size_t)COUNT * BYTES);
	void *sends[COUNT], *recvs[COUNT];
	pair_open(&p, 12);
	pattern_fill(from, (size_t)COUNT * BYTES, 21);
	for (int i = 0; i < COUNT; i++) {
		sends[i] = pair_isend(&p, from + (size_t)i * BYTES, BYTES, 0);
		recvs[i] = pair_irecv(&p, to + (size_t)i * BYTES, BYTES, 0);
	}
	for (int i = COUNT - 1; i >= 0; i--) {
		OK(pair_wait(&p, recvs[i], NULL));
		OK(pair_wait(&p, sends[i], NULL));
	}
	pair_verify(to, (size_t)COUNT * BYTES, 21);
	pair_close(&p);
	free(from);
	free(to);
}

/* A child that has forked beside these threads has none of them, and ends as any program does. */
void a_forked_child_ends(void **unused)
{
	struct pair p;
#ifdef __SANITIZE_THREAD__
	print_message(
		"skipped: ThreadSanitizer's runtime does not end in the child of such a process\n");
	skip();
#endif
	pair_open(&p, 12);
	pair_message(&p, LONG, 1);
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		int status = -1;
		assert_true(child >= 0);
		if (!child) {
			alarm(20);
			exit(7);
		}
		pair_message(&p, LONG, 1);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 7);
	}
	pair_close(&p);
}
