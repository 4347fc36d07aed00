/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.h - two processes that load a plugin and talk through it, and a third that watches them and
 * never loads it. Handles go between the two as opaque bytes, over a socketpair. What the plugin
 * does to a process (crash, hang) is a fact that the watcher reports: each call to the plugin is
 * named in shared memory while it lasts. conform.c and `ropeway plugin bench` stand on it.
 *
 * The processes are forked before anything is loaded, die with their parent, and run a body, which
 * gets messages from the parent (pair_ask) and answers. Calls of one side are made by one thread at
 * a time, or by threads that have a struct side each (side_thread).
 */
#ifndef ROPEWAY_NCCLNET_PAIR_H
#define ROPEWAY_NCCLNET_PAIR_H

#include <stdatomic.h>
#include <sys/types.h>

#include "ncclnet/host/host.h"

enum {
	PAIR_THREADS = 4,      /* of a side, that call the plugin */
	PAIR_SAID = 200,       /* of the plugin's last warning */
	PAIR_MESSAGE = 1024,   /* between parent and sides */
	PAIR_GUARD_BYTES = 64, /* behind handles and buffers */
};

/* What a thread is doing in the plugin. */
struct pair_watch {
	const char *_Atomic call; /* "isend"; NULL: nothing */
	_Atomic uint32_t count;   /* of calls */
};
struct pair_shared {
	struct pair_watch watch[2][PAIR_THREADS];
	char said[2][PAIR_SAID];
	struct {
		_Alignas(64) _Atomic uint32_t arrived;
	} meeting[2];
};

struct pair;
struct side {
	int role;       /* 0 or 1 */
	int peer, up;   /* sockets: to the other side, to the parent */
	uint64_t until; /* the deadline of what is being done, ns */
	unsigned timeout_ms;
	struct pair_shared *shared;
	struct pair_watch *watch;
	struct ncclnet *n;
	void *ctx;
	const char *why; /* what the first of the helpers below that failed says */
	bool waited;     /* why: for the other side, in vain; what it says matters more */
	char text[400];
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
/* A call to the plugin, named for the watcher. */
#define SIDE_CALL(s, name, expr) \
	({ \
		atomic_store_explicit(&(s)->watch->call, name, memory_order_release); \
		__typeof__(expr) rc_ = (expr); \
		atomic_store_explicit(&(s)->watch->call, NULL, memory_order_release); \
		atomic_store_explicit(&(s)->watch->count, \
			atomic_load_explicit(&(s)->watch->count, memory_order_relaxed) + 1, \
			memory_order_relaxed); \
		rc_; \
	})
/* false: s->text says why. init comes after load, and may come again from v11 on. */
bool side_load(struct side *s, const char *path, int abi);
bool side_init(struct side *s, const struct ncclnet *n, void **ctx);
/* For another thread of this side: 1 to PAIR_THREADS - 1. */
struct side side_thread(const struct side *s, unsigned thread);
/* Starts the deadline of a step. */
void side_step(struct side *s);
/* Between two looks in vain: yields, as NCCL's progress thread does, later sleeps. false: the
 * deadline has passed, or the other side has given up (s->text says it). */
bool side_idle(struct side *s, unsigned *looks);
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
/* false, and s->text: a sentence. The first one stays. */
bool side_fail(struct side *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- a connection ---- */
struct link {
	void *listen, *send, *recv; /* of this side: send, or listen and recv */
	struct nccl_net_device_handle *device;
	unsigned char handle[NCCL_NET_HANDLE_BYTES + PAIR_GUARD_BYTES];
	struct nccl_net_device_handle device_memory;
};
/* `role` listens and accepts, the other connects; as NCCL does, with the deadline of a step. */
bool link_open(struct side *s, struct link *l, int dev, int receiver);
void link_close(struct side *s, struct link *l);
/* Its parts: the handle of link_listen is in l->handle, where link_connect has to find it. */
bool link_listen(struct side *s, struct link *l, int dev);
bool link_accept(struct side *s, struct link *l);
bool link_connect(struct side *s, struct link *l, int dev);
/* Writes what is past the handle, and asks whether it is still there. */
void link_guard(const struct side *s, struct link *l);
bool link_guarded(const struct side *s, const struct link *l);

/* ---- patterns: no two messages, and no two places of one, have the same bytes ---- */
static inline uint64_t pair_mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}
void pair_fill(void *buf, size_t size, uint64_t message);
/* Where the first wrong byte is; size: none. */
size_t pair_wrong(const void *buf, size_t size, uint64_t message);

#endif
