/* SPDX-License-Identifier: BSD-3-Clause */
/* conform_priv.h - what the files of the conformance run share. A case is a function that both
 * processes run, each with its role; it begins with both loaded and initialized, unless it says
 * otherwise. */
#ifndef ROPEWAY_NCCLNET_CONFORM_PRIV_H
#define ROPEWAY_NCCLNET_CONFORM_PRIV_H

#include "ncclnet/check/conform.h"
#include "ncclnet/check/pair.h"
#include "ncclnet/host/quirks.h"

enum {
	OPS_MAX = 64, /* requests that a stream has under way */
	/* a share of the deadline: how long something is waited for that need not come */
	LINGER = 4,
};

struct conform {
	struct side *s;
	const struct conform_options *o;
	bool initialized;
	struct ncclnet_properties p;
	char name[64];  /* before init */
	int load_error; /* of ncclnet_load: -ENOENT, -ENOTSUP */
	/* Of the case under way. */
	enum conform_verdict verdict;
	int quirk; /* enum ncclnet_quirk_id, or -1 */
	char text[400];
};

/* ---- verdicts of a case; the worst one stays. conform_fail gives false. ---- */
bool conform_fail(struct conform *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* id: the entry of quirks.h that it is, or -1. */
void conform_quirk(struct conform *c, int id, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void conform_note(struct conform *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void conform_skip(struct conform *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

enum conform_flag {
	CASE_BARE = 1,           /* before init */
	CASE_FRESH = 2,          /* what it leaves behind is not for the next case */
	CASE_KILLS = 4,          /* role 1 dies by SIGKILL */
	CASE_CRASH_IS_QUIRK = 8, /* of `quirk` */
	CASE_NEVER_FAILS = 16,   /* NCCL never does it: a failure is `quirk` */
};
struct conform_case {
	const char *id, *what;
	void (*run)(struct conform *c);
	unsigned flags;
	int abi_least, quirk;
};

/* ---- move.c: ends of connections, and messages through them ---- */
struct end {
	struct link link;
	bool sends;
	char *memory;
	size_t bytes;
	void *mhandle;
};
/* A connection whose `receiver` has this role, with `bytes` of registered host memory. */
bool end_open(struct conform *c, struct end *e, int receiver, size_t bytes);
void end_close(struct conform *c, struct end *e);
void *end_comm(const struct end *e);

/* Messages of one connection, in order, verified byte by byte. */
struct stream {
	struct end *e;
	struct side *s; /* NULL: the case's */
	unsigned n, window;
	const size_t *sizes; /* message i has sizes[i % sizes_n] */
	unsigned sizes_n;
	size_t extra;    /* a receive has so much more room */
	uint64_t salt;   /* of the patterns */
	bool poison;     /* *request holds garbage before each post */
	bool no_sizes;   /* test is given NULL */
	bool may_refuse; /* an error for one more request than it can have is a quirk */
	/* How far it is. */
	unsigned posted, done, limit; /* limit: of what is under way, where it has refused more */
	void *request[OPS_MAX];
	unsigned left_alone; /* sizes that test did not write */
	unsigned not_sent;   /* sends whose size is not what was sent */
	int said;            /* the first of those */
};
/* What NCCL does after a receive of n is done: irecvConsumed where there is one, and a flush where
 * the properties ask for it. */
bool move_after_receive(struct conform *c, struct side *s, struct end *e, void *request, int n,
	void **data, const size_t *size);
/* 1: something moved, 0: nothing; negative: failed, c says why. */
int stream_advance(struct conform *c, struct stream *t);
/* Posts as many as the window and the plugin let it: how many are posted; negative: failed. */
int stream_post(struct conform *c, struct stream *t);
/* Tests the request of message i (posted, not done): as stream_advance. */
int stream_test(struct conform *c, struct stream *t, unsigned i);
bool streams_run(struct conform *c, struct stream *t, unsigned n);
/* The memory that an end needs for such a stream. */
size_t stream_bytes(const struct stream *t);
char *stream_at(const struct stream *t, unsigned i);
size_t stream_size(const struct stream *t, unsigned i);
/* Both sides: a connection to `receiver`, the stream, and close. */
bool stream_once(struct conform *c, struct stream *t, int receiver);

/* Until a request is done: 1; 0: not within the time; negative: a result of the plugin, negated. */
int move_wait(struct conform *c, void *request, int *sizes, unsigned timeout_ms);

/* ---- the cases ---- */
void case_load(struct conform *c);
void case_table(struct conform *c);
void case_name(struct conform *c);
void case_init(struct conform *c);
void case_devices(struct conform *c);
void case_properties(struct conform *c);
void case_vprops(struct conform *c);
void case_handle(struct conform *c);
void case_accept(struct conform *c);
void case_connect(struct conform *c);
void case_handle_copy(struct conform *c);
void case_device_handle(struct conform *c);
void case_reg(struct conform *c);
void case_reg_bad(struct conform *c);
void case_wrong_handle(struct conform *c);
void case_mixed(struct conform *c);
void case_messages(struct conform *c);
void case_request(struct conform *c);
void case_zero(struct conform *c);
void case_sizes(struct conform *c);
void case_sizes_null(struct conform *c);
void case_short(struct conform *c);
void case_truncation(struct conform *c);
void case_patterns(struct conform *c);
void case_order(struct conform *c);
void case_polled(struct conform *c);
void case_group(struct conform *c);
void case_same_tag(struct conform *c);
void case_under_way(struct conform *c);
void case_test_order(struct conform *c);
void case_flush(struct conform *c);
void case_comms(struct conform *c);
void case_threads(struct conform *c);
void case_reg_thread(struct conform *c);
void case_killed(struct conform *c);
void case_close_busy(struct conform *c);
void case_finalize(struct conform *c);
void case_reload(struct conform *c);

#endif
