/* SPDX-License-Identifier: BSD-3-Clause */
/* cost.c - what calls about other paths cost, ns each: `cost`, with and without the drop-in. A line
 * each: name, best of some rounds. `cost looked` looks at the tree first. */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static const char path[] = "/usr/include/stdio.h";
static int dir, file;
static char buf[4096];
static DIR *stream;

#define CALLS(X) \
	X(stat, { \
		struct stat st; \
		stat(path, &st); \
	}) \
	X(stat_sys, { \
		struct stat st; \
		stat("/sys/devices/system/cpu/online", &st); \
	}) \
	X(fstatat, { \
		struct stat st; \
		fstatat(dir, "stdio.h", &st, 0); \
	}) \
	X(fstat, { \
		struct stat st; \
		fstat(file, &st); \
	}) \
	X(statx, { \
		struct statx x; \
		statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &x); \
	}) \
	X(access, access(path, R_OK)) \
	X(open_close, close(open(path, O_RDONLY | O_CLOEXEC))) \
	X(openat_close, close(openat(dir, "stdio.h", O_RDONLY | O_CLOEXEC))) \
	X(readlink, readlink("/proc/self/exe", buf, sizeof(buf))) \
	X(realpath, realpath(path, buf)) \
	X(opendir_close, closedir(opendir("/usr/include/asm-generic"))) \
	X(readdir_end, readdir(stream)) \
	X(getcwd, getcwd(buf, sizeof(buf))) \
	X(chdir, chdir("/usr")) \
	X(read_0, read(file, buf, 0)) \
	X(fcntl, fcntl(file, F_GETFD)) \
	X(dup_close, close(dup(file)))

#define WRAP(name, ...) \
	static void run_##name(void) { __VA_ARGS__; }
/* NOLINTNEXTLINE(bugprone-unused-return-value): what they answer is not asked */
CALLS(WRAP)

int main(int argc, char **argv)
{
	enum { ROUNDS = 15, CALLS_A_ROUND = 4000 };
	static const struct {
		const char *name;
		void (*run)(void);
	} calls[] = {
#define ROW(name, ...) {#name, run_##name},
		CALLS(ROW)
#undef ROW
	};
	dir = open("/usr/include", O_RDONLY | O_DIRECTORY);
	file = open(path, O_RDONLY);
	stream = opendir("/usr/include/asm-generic");
	while (readdir(stream))
		;
	if (argc > 1 && !strcmp(argv[1], "looked"))
		closedir(opendir("/sys/class/infiniband/rpw_lo"));
	for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
		uint64_t best = UINT64_MAX;
		for (int r = 0; r < ROUNDS; r++) {
			uint64_t from = now_ns();
			for (int i = 0; i < CALLS_A_ROUND; i++)
				calls[c].run();
			uint64_t took = now_ns() - from;
			best = took < best ? took : best;
		}
		printf("%s %.1f\n", calls[c].name, (double)best / CALLS_A_ROUND);
	}
	return 0;
}
