/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.h - two processes that load a plugin and talk through it, and a third that watches them and
 * never loads it. Handles go between the two as opaque bytes, over a socketpair. What the plugin
 * does to a process (crash, hang) is a fact that the watcher reports: each call to the plugin is
 * named in shared memory while it lasts. conform.c and `ropeway plugin bench` stand on it. A plugin
 * for one-sided operations has up to PAIR_SIDES_MAX processes: they have no sockets between them,
 * and share notes and counts instead.
 *
 * The processes are forked before anything is loaded, die with their parent, and run a body, which
 * gets messages from the parent (pair_ask) and answers.
 */
#ifndef ROPEWAY_NCCLNET_PAIR_H
#define ROPEWAY_NCCLNET_PAIR_H

#include <sys/types.h>

#include "ncclnet/drive/side.h"

enum {
	PAIR_THREADS = 4,    /* of a side, that call the plugin */
	PAIR_SAID = 200,     /* of the plugin's last warning */
	PAIR_MESSAGE = 1024, /* between parent and sides */
	PAIR_SIDES_MAX = 8,
	PAIR_NOTE = 256, /* what a side shows to all */
	PAIR_COUNTS = 4,
};

struct pair_shared {
	int sides;
	struct side_watch watch[PAIR_SIDES_MAX][PAIR_THREADS];
	char said[PAIR_SIDES_MAX][PAIR_SAID];
	_Atomic bool gone[PAIR_SIDES_MAX]; /* as the watcher has seen it */
	struct {
		_Alignas(64) _Atomic uint32_t arrived;
	} meeting[PAIR_SIDES_MAX];
	char note[PAIR_SIDES_MAX][PAIR_NOTE];
	_Alignas(64) _Atomic uint64_t count[PAIR_SIDES_MAX][PAIR_COUNTS];
};

typedef void pair_body(struct side *s, void *arg);

struct pair {
	int sides;
	pid_t pid[PAIR_SIDES_MAX];
	int up[PAIR_SIDES_MAX];
	struct pair_shared *shared;
	bool gone[PAIR_SIDES_MAX];
	int status[PAIR_SIDES_MAX]; /* of waitpid, once gone */
};

/* ---- the watcher ---- */
/* sides: 2 or more. core: what each side is pinned to, or NULL. 0 or -errno. */
int pair_start(struct pair *p, int sides, pair_body *body, void *arg, unsigned timeout_ms,
	const int *core);
/* Kills and reaps what is left. */
void pair_end(struct pair *p);
int pair_ask(struct pair *p, int role, const void *message, size_t len);
/* The next message of a side: its length, and who; 0: nothing within timeout_ms; -EPIPE: `role` has
 * gone (its status is in p); -ETIMEDOUT: `role` has been for stuck_ms in the call that pair_call
 * names. */
int pair_answer(struct pair *p, int *role, void *message, size_t room, unsigned timeout_ms,
	unsigned stuck_ms);
/* The call that a side is in, or was when it ended; NULL: none. */
const char *pair_call(const struct pair *p, int role);

/* ---- a side ---- */
/* false: s->text says why. init comes after load, and may come again from v11 on. */
bool side_load(struct side *s, const char *path, int abi);
bool side_init(struct side *s, const struct ncclnet *n, void **ctx);
bool side_properties(struct side *s);
/* What a plugin is given for its messages: the last warning is kept for the watcher. */
nccl_logger side_logger(struct side *s);
/* For another thread of this side: 1 to PAIR_THREADS - 1. */
struct side side_thread(const struct side *s, unsigned thread);
/* Whole messages to and from the other side; false: it is gone, or the deadline has passed. */
bool side_give(struct side *s, const void *data, size_t len);
bool side_take(struct side *s, void *data, size_t len);
/* Is anything there to be taken, within so long? */
bool side_heard(struct side *s, unsigned timeout_ms);
/* Both sides come here before either goes on. */
bool side_meet(struct side *s);
/* All sides, by polling shared memory: little noise, for measuring. */
bool side_meet_spinning(struct side *s);
/* The same in two parts, for a side that has to do something while it waits: side_arrived says
 * whether all others have come as far as this. */
uint32_t side_arrive(struct side *s);
bool side_arrived(const struct side *s, uint32_t ticket);
/* To the parent. */
bool side_tell(struct side *s, const void *message, size_t len);
/* From the parent: its length, 0 when it has gone. */
size_t side_asked(struct side *s, void *message, size_t room);

/* ---- a connection: `receiver` listens and accepts, the other connects, within a step ---- */
/* One side listens and gives the handle away, the other one takes it. */
bool link_offer(struct side *s, struct link *l);
bool link_take(struct side *s, struct link *l);
/* With `bytes` of registered host memory. */
bool end_open(struct side *s, struct end *e, int receiver, size_t bytes);

#endif
