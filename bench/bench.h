/* SPDX-License-Identifier: BSD-3-Clause */
/* bench.h - what the reference programs share: a core of one's own, the clock, order statistics, a
 * clear death. They stand alone on purpose: a reference that used the device's code could hide the
 * device's cost.
 */
#ifndef ROPEWAY_BENCH_H
#define ROPEWAY_BENCH_H

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* what a MIDDLE packet adds to its payload */
enum { BTH_BYTES = 12, ICRC_BYTES = 4, WIRE_HEAD_BYTES = BTH_BYTES + ICRC_BYTES };

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static inline void die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(1);
}

static inline void pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set) < 0)
		die("sched_setaffinity");
}

/* "0,1" -> the cores of the first and the second process; "-1,-1" leaves both to the scheduler. */
static inline void parse_cpus(const char *arg, int cpu[2])
{
	if (sscanf(arg, "%d,%d", &cpu[0], &cpu[1]) != 2) {
		fprintf(stderr, "-c wants two cores, such as 0,1; got \"%s\"\n", arg);
		exit(2);
	}
}

/* An option: its letter, what it takes, where that goes. The last one of a table has no letter. */
struct flag {
	char letter;
	enum { FLAG, TEXT, NUMBER, DURATION, CPUS } kind;
	/* bool, const char *, unsigned, uint64_t of nanoseconds, int [2] */
	void *to;
};

static inline void take_flag(const struct flag *f, const char *text)
{
	switch (f->kind) {
	case FLAG:
		*(bool *)f->to = true;
		break;
	case TEXT:
		*(const char **)f->to = text;
		break;
	case NUMBER:
		*(unsigned *)f->to = (unsigned)atoi(text);
		break;
	case DURATION:
		*(uint64_t *)f->to = (uint64_t)(atof(text) * 1e9);
		break;
	case CPUS:
		parse_cpus(text, f->to);
		break;
	}
}

static inline void need_usage(bool ok, const char *usage)
{
	if (ok)
		return;
	fprintf(stderr, "usage: %s %s\n", program_invocation_short_name, usage);
	exit(2);
}

static inline void take_flags(int argc, char **argv, const struct flag *flags, const char *usage)
{
	char letters[64];
	const struct flag *f;
	size_t n = 0;
	int c;

	for (f = flags; f->letter; f++)
		n += (size_t)snprintf(letters + n, sizeof letters - n, "%c%s", f->letter,
			f->kind == FLAG ? "" : ":");
	while ((c = getopt(argc, argv, letters)) != -1) {
		for (f = flags; f->letter && f->letter != c;)
			f++;
		need_usage(f->letter, usage);
		take_flag(f, optarg);
	}
	need_usage(optind == argc, usage);
}

/* A spinning child must not outlive its parent. */
static inline void die_with_parent(void) { prctl(PR_SET_PDEATHSIG, SIGKILL); }

/* A second process, on its core: 0 there. */
static inline pid_t child(int cpu)
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (pid)
		return pid;
	die_with_parent();
	pin(cpu);
	return 0;
}

static inline void join_child(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) >= 0 && !status)
		return;
	fprintf(stderr, "%s: the other side failed\n", program_invocation_short_name);
	exit(1);
}

/* flags: MAP_SHARED or MAP_PRIVATE */
static inline void *memory(size_t bytes, int flags)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

static inline int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts them. */
static inline double median(double *v, unsigned n)
{
	qsort(v, n, sizeof *v, compare_doubles);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static inline int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

#endif
