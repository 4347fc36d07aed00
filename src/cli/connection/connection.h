/* SPDX-License-Identifier: BSD-3-Clause */
/* connection.h - `test_connection`: two processes try a NCCL network plugin, call by call, and say
 * what each gave.
 *
 * main.c   what was asked for, and the steps one after another
 * say.c    the lines of a step, why the run fails, its deadline
 * talk.c   the control path: who the peer is, its handle, both sides at the same step, why the
 *          other gave up
 * steps.c  the plugin's calls that are not about data
 * where.c  the device and the addresses that a side listens on, for people
 * data.c   messages: sent, received, checked
 * one_sided.c  the same steps with a plugin for one-sided operations (--rma)
 *
 * The calls themselves are ncclnet/drive's. A step returns 0, or -1 after connection_fail. Each
 * ends by its deadline: what polls looks at it, and a thread of its own ends the process where a
 * call of the plugin does not return.
 */
#ifndef ROPEWAY_CLI_CONNECTION_H
#define ROPEWAY_CLI_CONNECTION_H

#include <stdatomic.h>

#include "boot/boot.h"
#include "ncclnet/drive/rma.h"

enum { CONNECTION_PASSED = 0, CONNECTION_FAILED = 1 };
enum {
	CONNECTION_TIMEOUT_S = 30,
	CONNECTION_WAIT_S = 300, /* of a server, for its client */
	CONNECTION_WHERE_LEN = 400,
	CONNECTION_IN_FLIGHT = 4,
	/* up to here, messages are CONNECTION_IN_FLIGHT at a time */
	CONNECTION_SHARED_MAX = 4 << 20,
};
#define CONNECTION_SIZE_MAX ((size_t)64 << 20)

struct connection_options {
	const char *plugin, *server, *bind; /* server NULL: this is it */
	const char *table;                  /* of one-sided operations; NULL: a network plugin */
	int abi, port, device;
	unsigned timeout_ms, wait_ms;
	size_t size_max;
};

/* This side, as it presents itself. `abi` of one-sided operations: CONNECTION_RMA or CONNECTION_GIN
 * plus the version. */
enum { CONNECTION_RMA = 256, CONNECTION_GIN = 512 };
struct connection_own {
	const char *name;
	int abi;
	unsigned exported;
	size_t handle_bytes;
	const void *handle;
};
/* What the other side says of itself. */
struct connection_peer {
	int abi;
	unsigned exported;
	char plugin[64], where[CONNECTION_WHERE_LEN];
	size_t size_max, handle_len;
	_Alignas(64) uint8_t handle[NCCL_NET_HANDLE_BYTES];
};

struct connection;
enum { TALK_CANDIDATES_MAX = 8 };
struct talk_peer {
	struct talk *talk;
	struct boot_conn *c;
};
struct talk {
	struct connection *owner;
	struct boot *b;
	struct boot_listener *listener;
	struct talk_peer candidate[TALK_CANDIDATES_MAX], *peer; /* peer: who said a good hello */
	unsigned steps_said, steps_heard;
	int dial_status;
	bool dialled, last; /* last: no step follows, the peer may go */
	char text[200];     /* the peer, for people; "" before there is one */
};

struct connection {
	struct side side; /* the first: its `idle` finds the rest */
	struct side_watch watch;
	struct connection_options o;
	bool initialized;
	struct connection_own own;
	struct rma_side rma;
	struct rma_comm comm;
	struct rma_mem window, source;
	char rma_handle[RMA_HANDLE_ROOM];
	char where[CONNECTION_WHERE_LEN]; /* where_listens */
	struct end out, in;               /* the listener, and the own handle, are of `in` */
	struct connection_peer peer;
	struct talk talk;
	uint64_t next_number; /* of a message: both sides count alike */
	bool sizes_missing, failed;
	_Atomic int step;
	_Atomic uint64_t deadline_ns;
	_Atomic(const char *) doing;
	char why[1024];
};

/* ---- say.c ---- */
static inline bool connection_is_server(const struct connection *c) { return !c->o.server; }
static inline const char *connection_side(const struct connection *c)
{
	return connection_is_server(c) ? "server" : "client";
}
/* Records the sentence, the first one only. -1. */
int connection_fail(struct connection *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* A line of a step: the call and its result. */
void connection_say(const struct connection *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The same of a call to the plugin, whose result ends the line. 0, or -1 (nothing recorded) where
 * it is no success. */
int connection_call(const struct connection *c, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* `doing`: a literal, for who waits too long. */
void connection_deadline(struct connection *c, unsigned timeout_ms, const char *doing);
/* "RMA v16" of an `abi`; NULL: it is of no table of one-sided operations. */
const char *connection_table(int abi);

/* ---- talk.c ---- */
/* While waiting: the control path moves, and after some time without anything the processor is
 * given away. false: the peer is gone or has given up, or it is too late. */
bool connection_wait(struct side *side, unsigned *idle);
int talk_open(struct connection *c);
/* Finds the other side, and learns what it says: c->peer. */
int talk_exchange(struct connection *c);
/* The peer has come as far as this. */
int talk_step(struct connection *c);
/* The peer is told why, if it failed here. */
void talk_close(struct connection *c);

/* ---- steps.c ---- */
int step_initialize(struct connection *c);
int step_listen(struct connection *c);
int step_exchange(struct connection *c);
int step_connect(struct connection *c);
int step_register(struct connection *c);
int step_close(struct connection *c);
/* Whatever is open is closed; results are of no interest. */
void steps_give_back(struct connection *c);
void steps_show_handle(const struct connection *c, const char *whose, const void *handle);

/* ---- one_sided.c ---- */
int one_sided_load(struct connection *c);
int one_sided_initialize(struct connection *c);
int one_sided_listen(struct connection *c);
int one_sided_connect(struct connection *c);
int one_sided_register(struct connection *c);
int one_sided_put(struct connection *c);
int one_sided_close(struct connection *c);
void one_sided_give_back(struct connection *c);

/* ---- where.c ---- */
/* "device 0, eth0, address 192.0.2.1": the plugin's device of these properties, and the addresses
 * of the network interface with its name. Nothing of the handle. */
void where_listens(const struct ncclnet_properties *p, int device, char *out, size_t len);

/* ---- data.c ---- */
int step_hello(struct connection *c);
int step_sizes(struct connection *c);

#endif
