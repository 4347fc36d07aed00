/* SPDX-License-Identifier: BSD-3-Clause */
/* model.h - a random model of verbs. A script, which is a function of a seed, says what each of two
 * to four processes posts; the model says each byte and each completion that must follow.
 *
 * A script has connections, and rounds of work requests over them. In a round no two connections
 * touch the same bytes, and the two directions of a connection do not either, so what a round
 * leaves behind does not depend on who was faster. Between rounds the processes meet, and each
 * compares all of its memory with the model.
 *
 * Nothing of ropeway is included here: the model must not share the device's mistakes. */
#ifndef TESTS_MODEL_MODEL_H
#define TESTS_MODEL_MODEL_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/pattern.h"

enum {
	PROCS_MAX = 4,
	CONNS_MAX = 12,
	MSG_MAX = 128 << 10, /* bytes of a message */
	SGE_MAX = 6,
	INLINE_MAX = 256,
	SQ_DEPTH = 64,
	RQ_DEPTH = 512, /* all receives of a direction in a round */
	BATCH_MAX = 24,
	SLOT = 4096, /* a receive of a SRQ, and of UD */
	GRH = 40,
	TX_LEN = MSG_MAX + 4096,
	TGT_LEN = 128 << 10,
	SINK_LEN = 384 << 10,
	RX_LEN = 768 << 10,
	SRQ_MOST = 900,      /* messages to a SRQ in a round */
	UNSIGNALED_MAX = 12, /* in a row: what a send queue must hold */
	BLANK = 0xa5,        /* what memory holds that nothing was received into */
	GONE = 0xee          /* what it holds after its QP has gone */
};

enum kind {
	K_SEND,
	K_SEND_IMM,
	K_SEND_INV, /* the first of a direction takes the peer's window; others are SENDs */
	K_WRITE,
	K_WRITE_IMM,
	K_READ,
	K_CAS,
	K_ADD,
	K_AWRITE,
	K_WINDOW, /* BIND_MW and LOCAL_INV in turn, of a window that is the sender's own */
	K_KINDS
};

enum flag {
	F_SIGNALED = 1,
	F_FENCE = 2,
	F_INLINE = 4,
	F_SOLICITED = 8,
	F_SINK = 16,  /* sends what READs have brought, not the pattern */
	F_WINDOW = 32 /* by the key of the peer's window, not of its region */
};

/* What is wrong with a work request: at most one of a connection and round has something. */
enum bad {
	BAD_NONE,
	BAD_RKEY,
	BAD_BOUNDS,    /* it ends beside the region */
	BAD_RIGHT,     /* the region does not allow it */
	BAD_LKEY,      /* of the sender */
	BAD_SHORT,     /* the receive has no room */
	BAD_RECV_LKEY, /* of the receive */
	BAD_STALE,     /* the key of a window that was invalidated */
	BAD_KINDS
};

/* What happens to a connection in a round, beside its traffic. */
enum event {
	EV_NONE,
	EV_DESTROY, /* one side destroys its QP */
	EV_RESET,
	EV_ERR,
	EV_KILL, /* one side's process is killed, and started again in the next round */
	EV_STOP, /* stopped, and continued: nothing may be lost */
	EV_KINDS
};

extern const char *const kind_names[K_KINDS], *const bad_names[BAD_KINDS],
						      *const event_names[EV_KINDS];

/* One work request. Lengths of its pieces and their places follow from `cut`. */
struct op {
	uint16_t round;
	uint8_t conn, dir; /* dir 0: from side 0 to side 1 */
	uint8_t kind, nsge, flags, bad;
	uint32_t len, cut;
	uint32_t to;   /* offset in the target */
	uint32_t room; /* of its receive */
};

struct conn {
	uint8_t type;                     /* enum ibv_qp_type */
	uint8_t proc[2];                  /* of its sides */
	uint8_t srq[2], ex[2], window[2]; /* SRQ; by ibv_wr_*; type of the window, 0: none */
	uint8_t mtu, gid;                 /* enum ibv_mtu; index of the GID */
	uint8_t late; /* receives are posted in small portions: of 16, how often */
};

struct happening {
	uint16_t round, at; /* after so many of its operations */
	uint8_t conn, side, event;
	uint8_t waits;    /* the other side waits for its own error */
	uint8_t together; /* with all others of that process that say so */
};

enum wire { WIRE_AUTO, WIRE_COPY, WIRE_FETCH, WIRE_UDP, WIRE_MIXED, WIRE_VETH, WIRE_FAULT, WIRES };
extern const char *const wire_names[WIRES];

struct script {
	uint64_t seed;
	uint8_t wire, procs, threads, cqs; /* threads and CQs of each process */
	uint16_t conns, rounds;
	uint32_t nops, nhappenings, room; /* room: for operations in `op` */
	struct conn conn[CONNS_MAX];
	struct happening happening[256];
	struct op op[];
};

struct limits {
	uint32_t ops;       /* about as many */
	bool states;        /* posts in wrong states */
	bool events, wrong; /* happenings; work requests that fail */
	bool unreliable;    /* UC and UD */
};

/* gen.c */
struct script *script_new(uint32_t room);
struct script *gen_script(uint64_t seed, enum wire wire, const struct limits *limits);

/* script.c: the text form, one operation a line */
void script_write(const struct script *s, FILE *to);
struct script *script_read(const char *path); /* says why not, and ends the process */

#endif
