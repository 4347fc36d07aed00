/* SPDX-License-Identifier: BSD-3-Clause */
/* side.h - one end of a run with a loaded plugin, and every call that a run makes of it: open,
 * listen, connect and accept with a deadline, registered memory, messages and their outcome.
 * `ropeway plugin check`, `ropeway plugin bench` and test_connection stand on it; how the two sides
 * find each other is theirs (pair.h, cli/connection/talk.c).
 *
 * A call that goes wrong leaves a sentence in `text`, the first one only. Calls of one side are
 * made by one thread at a time, or by threads that have a struct side each (side_thread).
 */
#ifndef ROPEWAY_NCCLNET_SIDE_H
#define ROPEWAY_NCCLNET_SIDE_H

#include <stdatomic.h>

#include "ncclnet/host/host.h"

enum {
	SIDE_GUARD_BYTES = 64, /* behind handles and receives */
	SIDE_OPS_MAX = 64,     /* requests that a stream has under way */
};

/* What a thread is doing in the plugin. */
struct side_watch {
	const char *_Atomic call; /* "isend"; NULL: nothing */
	_Atomic uint32_t count;   /* of calls */
};

struct pair_shared;
struct side {
	int role;       /* 0 or 1 */
	int peer, up;   /* pair.c: sockets, to the other side and to the parent */
	uint64_t until; /* the deadline of the step under way, ns */
	unsigned timeout_ms;
	/* Between two looks in vain. false: time is up, or the other side has given up; the text
	 * says it. */
	bool (*idle)(struct side *s, unsigned *looks);
	struct pair_shared *shared;
	struct side_watch *watch;
	struct ncclnet *n;
	void *ctx;
	int device;
	struct ncclnet_properties p; /* of that device */
	const char *why;             /* text, once a call has failed */
	bool waited; /* why: for the other side, in vain; what it says matters more */
	char text[400];
};

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
/* false, and s->text: a sentence. The first one stays. */
bool side_fail(struct side *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* What a call gave: true of success; else false, and "... gives 3 (internal error)". */
bool side_result(struct side *s, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Starts the deadline of a step. */
void side_step(struct side *s);

/* ---- a connection ---- */
struct link {
	void *listen, *send, *recv; /* of this side: send, or listen and recv */
	struct nccl_net_device_handle *device;
	unsigned char handle[NCCL_NET_HANDLE_BYTES + SIDE_GUARD_BYTES];
	struct nccl_net_device_handle device_memory;
};
/* The handle of link_listen is in l->handle, where link_connect has to find it. */
bool link_listen(struct side *s, struct link *l);
bool link_accept(struct side *s, struct link *l);
bool link_connect(struct side *s, struct link *l);
void link_close(struct side *s, struct link *l);
/* Writes what is past the handle, and asks whether it is still there. */
void link_guard(const struct side *s, struct link *l);
bool link_guarded(const struct side *s, const struct link *l);

/* ---- an end of it, with memory ---- */
struct end {
	struct link link;
	bool sends;
	char *memory;
	size_t bytes;
	void *mhandle;
};
void *end_comm(const struct end *e);
/* Fresh host memory, registered; and the end of it. */
bool end_memory(struct side *s, struct end *e, size_t bytes);
void end_close(struct side *s, struct end *e);
/* What the plugin gave: host memory of the caller's. */
int end_reg(struct side *s, const struct end *e, void *data, size_t bytes, void **mhandle);
int end_dereg(struct side *s, const struct end *e, void *mhandle);
/* One message, sent or received into one slot. */
int end_post(struct side *s, const struct end *e, void *data, size_t size, int tag, void **request);
const char *end_call(const struct end *e); /* "isend" */
int end_test(struct side *s, void *request, int *done, int *sizes);
/* Until it is posted. */
bool end_post_all(
	struct side *s, const struct end *e, void *data, size_t size, int tag, void **request);
/* Until a request is done: 1; 0: not within the time; negative: a result of the plugin, negated. */
int end_wait(struct side *s, void *request, int *sizes, unsigned timeout_ms);
/* What NCCL does after a receive of n is done: irecvConsumed where there is one, and a flush where
 * the properties ask for it. */
bool end_received(
	struct side *s, struct end *e, void *request, int n, void **data, const size_t *size);

/* ---- messages of one connection, in order, verified byte by byte ---- */
struct stream {
	struct end *e;
	unsigned n, window;
	const size_t *sizes; /* message i has sizes[i % sizes_n] */
	unsigned sizes_n;
	size_t extra;     /* a receive has so much more room */
	uint64_t salt;    /* of the patterns */
	const char *text; /* instead of a pattern: the message */
	bool no_sizes;    /* test is given NULL */
	bool may_refuse;  /* an error for one more request than it can have is no failure */
	bool prepared;    /* stream_prepare has written all of them, before any clock runs */
	int *came;        /* the sizes of receives, which are checked by stream_check only */
	/* How far it is. */
	unsigned posted, done, limit; /* limit: the most at once, after a refusal */
	int refused;                  /* ... by this result */
	void *request[SIDE_OPS_MAX];
	unsigned left_alone; /* sizes that test did not write */
	unsigned not_sent;   /* sends whose size is not what was sent */
	int said;            /* the first of those */
};
/* Posts as many as the window and the plugin let it: how many are posted; negative: failed. */
int stream_post(struct side *s, struct stream *t);
/* Tests the request of message i. 1: it is done, 0: not yet; negative: failed. */
int stream_test(struct side *s, struct stream *t, unsigned i);
bool streams_run(struct side *s, struct stream *t, unsigned n);
/* Of messages that all have room in the window: the bytes to send, and the guard past receives. */
void stream_prepare(struct stream *t);
/* Receives that `came`. */
bool stream_check(struct side *s, struct stream *t);
/* The memory that an end needs for such a stream. */
size_t stream_bytes(const struct stream *t);
char *stream_at(const struct stream *t, unsigned i);
size_t stream_size(const struct stream *t, unsigned i);

/* ---- patterns: no two messages, and no two places of one, have the same bytes ---- */
void side_fill(void *buf, size_t size, uint64_t message);
/* Where the first wrong byte is; size: none. */
size_t side_wrong(const void *buf, size_t size, uint64_t message);

#endif
