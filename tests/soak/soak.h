/* SPDX-License-Identifier: BSD-3-Clause */
/* soak.h - what the files of the soak share. soak.c forks the sides and does them harm; each side
 * (side.c) runs sessions of random operations with the others and checks whatever it is told.
 *
 * What is said out of band goes through an arena that all map: a ledger of each direction
 * (message.c, remote.c write it before they post, and afterwards how it ended), which outlives a
 * side that is killed. So a side knows what another has sent, may have sent, and must not have
 * sent. */
#ifndef TESTS_SOAK_H
#define TESTS_SOAK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/pattern.h"
#include "ropeway.h"

enum {
	SIDES_MAX = 3,
	MESSAGES_MAX = 2048, /* of a kind, a direction and a round */
	PUTS_MAX = 2048,
	ATOMICS_MAX = 2048,
	OPS_MAX = 256,       /* under way on a side, */
	OPS_RESERVE = 48,    /* of which the end of a round needs some */
	PIECES_MAX = 24,     /* of a scatter list */
	TRANSFERS_MAX = 8,   /* of a batch */
	LEN_MAX = 8 << 20,   /* of a message or a transfer */
	AREA = LEN_MAX + 64, /* what each peer may write to on a side */
	CANARY = 4096,       /* before, between and behind areas */
	/* for atomics: a third is added 1 to, a third anything, a third compared and swapped */
	WORDS = 48,
	CHANNELS = 5,
};
#define UNDER_WAY_MAX ((size_t)48 << 20) /* bytes in buffers of a side */

/* ---- the arena ---- */

enum kind { KIND_TAG, KIND_OBJECT, KIND_AM, KINDS };
enum state { STATE_NONE, STATE_POSTED, STATE_OK, STATE_CANCELED, STATE_REFUSED, STATE_FAILED };

struct message {
	uint64_t tag;
	uint32_t len;
	_Atomic uint8_t state;
	_Atomic bool cancel_asked;
};
struct put {
	uint64_t offset, key;
	uint32_t len;
	bool notify;
	_Atomic uint8_t state; /* POSTED; OK: flushed */
};
struct change {
	uint32_t word;
	bool swap;
	uint64_t operand, compare, before;
	_Atomic uint8_t state;
};
struct direction {
	_Atomic uint64_t when; /* session * 2^32 + round of what follows */
	_Atomic unsigned messages[KINDS], puts, changes;
	_Atomic unsigned refused; /* objects, by their receiver */
	struct message message[KINDS][MESSAGES_MAX];
	struct put put[PUTS_MAX];
	struct change change[ATOMICS_MAX];
};

enum stage {
	STAGE_BEGIN,
	STAGE_LISTEN,
	STAGE_KEYS,
	STAGE_RUN,
	STAGE_DRAIN,
	STAGE_FLUSHED,
	STAGE_CHECKED,
	STAGE_LAST,
	STAGES
};

struct totals {
	_Atomic uint64_t operations, bytes, messages, objects, ams, puts, gets, batches, notifies,
		atomics, flushes, fences, probes, canceled, truncated, endings, rounds, sessions,
		late_wakes, path_changes, waited_for_room;
};

struct public
{
	_Atomic uint64_t stage; /* session * 2^32 + round * STAGES + enum stage: only grows */
	_Atomic uint64_t heartbeat;
	_Atomic bool dying;        /* killed, or about to be: its peers' endpoints to it may end */
	_Atomic bool please_close; /* it is asked to close its endpoints in mid-flight */
	_Atomic unsigned closed;   /* sessions of which it closes, or has closed, its endpoints */
	/* sessions whose endpoint to another it has no more: it writes there no more */
	_Atomic unsigned left[SIDES_MAX];
	_Atomic int port;
	/* message_tag of the endpoint that it made to another */
	_Atomic uint64_t tag_to[SIDES_MAX];
	int key_len;
	uint8_t key[RPW_RKEY_BYTES_MAX];
	uint64_t words_were[WORDS];
	struct totals totals;
};

enum mode { MODE_CALM, MODE_FAULTS, MODE_KILLS };
/* How side 0 misbehaves, for the test of the checks. */
enum mutant {
	MUTANT_NONE,
	MUTANT_CORRUPT,
	MUTANT_LOSE,
	MUTANT_DUPLICATE,
	MUTANT_REORDER,
	MUTANT_OVERRUN,
	MUTANT_ADD_TWICE,
	MUTANT_NOTIFY_TWICE,
	MUTANT_LEAK,
	MUTANTS
};

struct arena {
	_Atomic bool failed, stop; /* stop: as soon as the session is over */
	/* side 0 says: go on behind so many; that was all */
	_Atomic unsigned sessions, sessions_end;
	_Atomic bool cut[SIDES_MAX][SIDES_MAX]; /* the control path between them was reset */
	struct public side[SIDES_MAX];
	struct direction way[SIDES_MAX][SIDES_MAX];
};

struct config {
	const char *transports;
	enum mode mode;
	enum mutant mutant; /* of side 0 */
	unsigned sides;
	unsigned deadline_s; /* an operation that has not ended by then has failed to end */
	size_t len_max;
	uint64_t seed;
	uint64_t life;
	bool rings; /* no process_vm_readv */
};
extern struct config config;
extern struct arena *arena;

/* ---- a side ---- */

/* A buffer in pieces, with canaries between them. */
struct spread {
	char *mem;
	size_t room, len;
	uint64_t poison;
	int n;
	struct iovec v[PIECES_MAX];
};
void spread_make(struct spread *s, size_t len, int pieces);
void spread_free(struct spread *s);
void spread_fill(struct spread *s, uint64_t key);
/* The first `len` bytes are the key's, everything else is untouched. NULL, or what is wrong. */
const char *spread_wrong(const struct spread *s, size_t len, uint64_t key);

struct peer {
	unsigned id;
	rpw_endpoint *ep;
	rpw_rkey *key;
	bool lost; /* its endpoint has ended */
	struct direction *out, *in;
	struct taken {
		bool came, any;
		uint64_t post, tag, mask; /* of the receive */
	} taken[MESSAGES_MAX];
	bool came[KINDS][MESSAGES_MAX];
	unsigned next[KINDS]; /* objects, active messages: the first that has not come */
	unsigned refused;     /* objects that this side refused and does not know which they were */
	bool notified[PUTS_MAX];
	unsigned fenced; /* puts before it take effect before what is posted now */
	/* its area for us, as our puts make it; ours for it, as its ledger tells, and which bytes
	 * are certain */
	uint8_t *image, *expect, *known;
};

enum op_kind {
	OP_SEND,
	OP_RECV,
	OP_OBJECT,
	OP_RECV_OBJECT,
	OP_AM,
	OP_PUT,
	OP_GET,
	OP_CHANGE,
	OP_FLUSH,
	OP_KINDS
};
struct op {
	/* all: a receive of anything */
	bool used, orphan, cancel_asked, with_callback, refuse, all;
	unsigned calls;
	enum op_kind kind;
	struct peer *p; /* receives: NULL for any */
	rpw_request *r;
	rpw_completion done;
	uint64_t began_ns, order;
	struct spread s;
	unsigned index; /* in the ledger */
	uint64_t tag, mask, post;
	unsigned transfers;
	struct {
		bool is_get;
		char *local;
		size_t offset, len;
		uint8_t *want; /* what a get has to bring */
	} t[TRANSFERS_MAX];
	uint64_t before;
	void *obj, *obj_mem;
	size_t obj_len;
};

struct side {
	unsigned id, session, round;
	struct rng rng;
	uint64_t key; /* of the session and round */
	rpw_context *c;
	rpw_listener *l;
	rpw_memory *memory;
	char *around; /* registered memory: what it is a part of */
	char *base;
	struct peer peer[SIDES_MAX]; /* by id; own is unused */
	struct op op[OPS_MAX];
	unsigned ops;
	size_t under_way;
	uint64_t next_order, next_post;
	bool closing, close_in_callback;
};
extern struct side me;
extern struct totals *totals;

/* side.c */
void wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
uint64_t rnd(uint64_t below);
bool chance(unsigned one_in);
uint64_t now_ns(void);
bool current(const struct peer *p); /* its ledger is of this round */
int side_run(unsigned id);
void close_here(void); /* in a callback: the moment to close endpoints, if this side is to */
uint64_t way_key(unsigned from, unsigned to, unsigned what, uint64_t index);
size_t size_of(uint64_t key);
#define EACH_PEER(p) \
	for (struct peer *p = me.peer; p < me.peer + config.sides; p++) \
		if (p->id != me.id)

/* op.c */
struct op *op_new(enum op_kind kind, struct peer *p);
/* What a call that posts has returned. False: nothing was posted, and the endpoint may have
 * ended. */
bool op_posted(struct op *o, int rc, const char *what);
void op_look(struct op *o); /* whether it has ended, and then what came of it */
void op_done(struct op *o); /* it has ended */
void op_free(struct op *o);
bool op_is_receive(const struct op *o);
/* A status that is neither good nor explained by the end of an endpoint is reported. */
bool ended_with_endpoint(const struct op *o, int status);
bool must_end(const struct peer *p); /* its endpoint ends soon, if it has not */
bool excused(const struct peer *p);  /* that, or this side closes */

/* message.c */
void message_send(struct peer *p);
void message_object(struct peer *p);
void message_am(struct peer *p);
void message_recv(struct peer *p, bool all);
void message_recv_object(struct peer *p);
void message_probe(struct peer *p);
void message_done(struct op *o);
void message_handle(void);
bool message_missing(const struct peer *p); /* some of its messages have yet to come */
void message_check(struct peer *p);         /* all have come that were to, in order */

/* remote.c */
void remote_open(void);
void remote_close(void);
void remote_random(struct peer *p);
void remote_flush(struct peer *p);
void remote_done(struct op *o);
void remote_notified(rpw_endpoint *ep, uint64_t data, size_t len, void *arg);
void remote_check(struct peer *p);
void remote_check_words(void);
void remote_round(struct peer *p);
void message_round(struct peer *p);
bool remote_missing(const struct peer *p);

/* faults.c */
/* A TCP connection of a process, at random: a data stream, or the control path to one of these
 * listeners (then *to is which). A descriptor of it, or -1. */
int fault_find(int pid, const int *ports, unsigned n, bool control, uint64_t random, unsigned *to);
void fault_cut(int fd, uint64_t random); /* reset, or shut down; closes fd */
/* Whether its UDP sockets receive anything. */
void fault_blackout(int pid, bool on);
void fault_no_vm(void); /* for this process: process_vm_readv and _writev are not permitted */

#endif
