/* SPDX-License-Identifier: BSD-3-Clause */
/* bench.h - the parts of `ropeway plugin bench`: options, rounds and the table (bench.c), the two
 * processes with a network plugin (bench_net.c) or with one for one-sided operations (bench_rma.c),
 * and the ranks of either kind that exchange blocks (bench_all.c). */
#ifndef ROPEWAY_CLI_PLUGIN_BENCH_H
#define ROPEWAY_CLI_PLUGIN_BENCH_H

#include "cli/options.h"
#include "ncclnet/drive/rma.h"

enum {
	UNDER_WAY = 8,
	COMMS_MAX = 16,
	BUFFERS_MAX = 128,
	PLUGINS_MAX = 4,
	ROUNDS_MAX = 100,
	RMA_BENCH_CONTEXTS = 4,
	RMA_BENCH_OPS = 3,
	JOB_TIMEOUT_MS = 60000,
	IDLE_LOOKS = 64,
};

struct options {
	/* path: the operand, then those */
	const char *path[PLUGINS_MAX], *against[PLUGINS_MAX - 1];
	int abi;
	const char *table;             /* NULL: a network plugin; "": the newest table */
	struct cli_sizes sizes, trips; /* rates of these; latencies of those */
	unsigned plugins, comms, under_way, buffers, rounds, ranks; /* ranks: of --alltoall */
	double seconds;
	int device;
	bool both, json, op[RMA_BENCH_OPS]; /* op: with --rma STREAM, SIGNAL, GET */
};

/* STREAM to ALLTOALL are rates. SIGNAL and GET are of one-sided operations, STREAM is puts there;
 * CONNECT and CLOSE are of network plugins. ALLTOALL is by itself. */
enum kind { OPEN, VERIFY, STREAM, SIGNAL, GET, ALLTOALL, TRIPS, CONNECT, CLOSE };
struct job {
	enum kind kind;
	unsigned contexts;
	uint64_t size, n; /* n: messages of each comm, operations of each context */
};
struct result {
	bool ok;
	double seconds; /* of the whole stream; half a round trip; until there is a comm */
	double closing; /* of a comm */
	char text[400];
	char name[64], device[64], table[16];
	int abi, devices;
};
struct bench_start {
	const struct options *o;
	unsigned index; /* which plugin */
	size_t bytes;   /* of buffers: for each comm, for all contexts, or of a block of ALLTOALL */
};

/* From one buffer to the next, as `ropeway perf` has them: a page of its own, and room between, so
 * that buffers of 4 MiB do not fall on each other in a cache. */
static inline size_t bench_pitch(uint64_t size)
{
	return size <= 64 ? 64 : (size + 4159) & ~4095ull;
}

/* Loads a plugin, and fills in what is known of it. false: the side's text says why. */
bool bench_net_load(struct side *s, const struct options *o, unsigned index, struct result *r);
bool bench_rma_load(
	struct rma_side *r, const struct options *o, unsigned index, struct result *found);

/* false: the side's text says why. */
typedef bool bench_job(void *arg, const struct job *j, struct result *r);
/* Does what the parent asks for, and tells it what was found. A job that failed is this side's
 * last: it stays until the parent ends it, since others that see it end may be heard first, and
 * name that instead. */
void bench_jobs(struct side *s, const struct bench_start *start, bench_job *job, void *arg);

/* Bodies of a side (pair.h); arg: struct bench_start. Side 0 receives what STREAM to GET move, and
 * side 1 begins the round trips. */
void bench_net_body(struct side *s, void *arg);
void bench_rma_body(struct side *s, void *arg);
void bench_all_body(struct side *s, void *arg);

#endif
