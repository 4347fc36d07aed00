/* SPDX-License-Identifier: BSD-3-Clause */
/* bench.h - what the reference programs share: a core of one's own, the clock, order statistics, a
 * clear death. They stand alone on purpose: a reference that used the device's code could hide the
 * device's cost.
 */
#ifndef ROPEWAY_BENCH_H
#define ROPEWAY_BENCH_H

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
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

/* A spinning child must not outlive its parent. */
static inline void die_with_parent(void) { prctl(PR_SET_PDEATHSIG, SIGKILL); }

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

static inline int compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

#endif
