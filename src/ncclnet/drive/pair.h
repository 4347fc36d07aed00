/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.h - two processes that load a plugin and talk through it, and a third that watches them and
 * never loads it. Handles go between the two as opaque bytes, over a socketpair. What the plugin
 * does to a process (crash, hang) is a fact that the watcher reports: each call to the plugin is
 * named in shared memory while it lasts. conform.c and `ropeway plugin bench` stand on it.
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
};

struct pair_shared {
	struct side_watch watch[2][PAIR_THREADS];
	char said[2][PAIR_SAID];
	struct {
		_Alignas(64) _Atomic uint32_t arrived;
	} meeting[2];
};

typedef void pair_body(struct side *s, void *arg);

struct pair {
	pid_t pid[2];
	int up[2];
	struct pair_shared *shared;
	bool gone[2];
	int status[2]; /* of waitpid, once gone */
};

/* ---- the watcher ---- */
/* core: what each side is pinned to, or NULL. 0 or -errno. */
int pair_start(struct pair *p, pair_body *body, void *arg, unsigned timeout_ms, const int *core);
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
/* For another thread of this side: 1 to PAIR_THREADS - 1. */
struct side side_thread(const struct side *s, unsigned thread);
/* Whole messages to and from the other side; false: it is gone, or the deadline has passed. */
bool side_give(struct side *s, const void *data, size_t len);
bool side_take(struct side *s, void *data, size_t len);
/* Is anything there to be taken, within so long? */
bool side_heard(struct side *s, unsigned timeout_ms);
/* Both sides come here before either goes on. */
bool side_meet(struct side *s);
/* The same by polling shared memory: little noise, for measuring. */
bool side_meet_spinning(struct side *s);
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
