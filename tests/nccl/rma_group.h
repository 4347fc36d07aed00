/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_group.h - ranks that are processes, each with a coll comm of a plugin; no GPU is needed. The
 * parent never loads the plugin: it forks, carries handles in shared memory, and waits. */
#ifndef ROPEWAY_TESTS_RMA_GROUP_H
#define ROPEWAY_TESTS_RMA_GROUP_H

#include "ncclnet/host/rma.h"

#include <stdatomic.h>
#include <sys/types.h>

#include "lib/pattern.h"
#include "lib/test.h"

enum { RANKS_MAX = 8, GROUP_WAIT_S = 60, DEATH_MS = 2000 };

struct group;
struct rank {
	struct group *g;
	int rank, ranks;
	struct ncclnet_rma n;
	void *instance, *listen_comm, *coll, *ctx;
	unsigned barriers;
};
typedef void (*rank_fn)(struct rank *r);

struct group_options {
	const char *plugin, *table;
	int ranks, contexts;
	/* ROPEWAY_NCCL_TRANSPORT of each rank; NULL: as it is. "mixed": the upper half has
	 * tcp only; "sealed": tcp, and all have a key */
	const char *transport;
	/* these ranks are to be killed, or to end as they like: bit by rank */
	unsigned expendable;
	bool bare; /* nobody connects: the function does what it likes */
};

/* The tests of a program: PLUGIN TRANSPORT [TEST]... */
struct group_main {
	const char *plugin, *transport;
};
extern struct group_main group_main;
int group_tests(int argc, char **argv, const struct CMUnitTest *all, size_t n);
/* With that plugin and transport; each table, or the newest. */
void group_each_table(int ranks, int contexts, unsigned expendable, rank_fn fn);
void group_newest(int ranks, int contexts, unsigned expendable, rank_fn fn);
/* Nobody connects. */
void group_bare(int ranks, rank_fn fn);

/* A rank's memory: signals, and room for bytes. */
enum { SIGNALS = 64 };
struct window {
	uint64_t signal[SIGNALS];
	uint8_t at[];
};
/* Zeros, that are a rank's for as long as it lives, and no leak. */
void *room_new(size_t len);
struct window *window_new(size_t room);
static inline size_t at(size_t offset) { return sizeof(struct window) + offset; }

/* Runs fn in a process for each rank. Fails the test where a rank did. */
void group_run(const struct group_options *o, rank_fn fn);

/* ---- in a rank; all fail the process with a line ---- */

void rank_fail(const struct rank *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), noreturn));
#define RANK_OK(r, call) \
	do { \
		int rc_ = (call); \
		if (rc_) \
			rank_fail(r, "%s:%d: %s: %d (%s); it last said: %s", __FILE__, __LINE__, \
				#call, rc_, ncclnet_result_name(rc_), rank_warned()); \
	} while (0)
#define RANK_TRUE(r, what) \
	do { \
		if (!(what)) \
			rank_fail(r, "%s:%d: not so: %s; it last said: %s", __FILE__, __LINE__, \
				#what, rank_warned()); \
	} while (0)
/* The call gives that, and the plugin's line has the word. */
#define RANK_REFUSED(r, call, expected, word) rank_said(r, __LINE__, #call, (call), expected, word)
void rank_said(
	const struct rank *r, int line, const char *call, int rc, int expected, const char *word);
const char *rank_warned(void);
unsigned rank_warnings(void); /* how many */
/* What this thread has read of its window is before what peers put there once they are told. That
 * is so by way of their processes; but ThreadSanitizer sees only the plugin's lock. */
void rank_settle(struct rank *r);
/* All ranks that live are here. */
void rank_barrier(struct rank *r);
/* Beside the barrier: words that all ranks share. */
_Atomic uint64_t *rank_shared(struct rank *r, unsigned i);
/* All ranks of the group, or a part of it. */
void rank_open(struct rank *r, const char *plugin, const char *table);
void rank_listen(struct rank *r);
const char *rank_handle(const struct rank *r, int of);
int rank_connect(struct rank *r, int contexts);
void rank_close(struct rank *r);

void *rank_reg(struct rank *r, void *data, size_t size);
/* The result of the test that said done; it has GROUP_WAIT_S. */
int rank_wait(struct rank *r, void *request);
void *rank_put(struct rank *r, int index, const struct ncclnet_rma_op *op);
/* Posts and waits. */
void rank_do(struct rank *r, int index, const struct ncclnet_rma_op *op);
void rank_get(struct rank *r, int index, const struct ncclnet_rma_op *op);
/* Until the word in our memory is at least that; the plugin is progressed, or not at all. */
void rank_await(struct rank *r, const uint64_t *word, uint64_t value, bool polls);
bool rank_has_iget(const struct rank *r);
bool rank_has_weak(const struct rank *r);
bool rank_has_options(const struct rank *r);

#endif
