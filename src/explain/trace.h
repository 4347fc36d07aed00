/* SPDX-License-Identifier: BSD-3-Clause */
/* trace.h - the explain log: what a program does, step by step, for people (`ropeway run
 * --explain`, ROPEWAY_EXPLAIN=file or "-" for standard error; a %p in it is the pid). This library
 * is in other people's programs, so it only says what happened, and folds what repeats: the first
 * few lines of a shape (the text without its numbers) are shown, then they are counted, and the
 * count is told before the next line that is shown. The formatter, `ropeway explain-events`
 * (cli/explain/events.c), makes lines of it: columns, colors, two languages, a sentence the first
 * time that a concept appears (RTR, REQ, rkey), and a summary with diagnoses at the end.
 *
 * Data path: event -> text -> memory shared with the formatter (log.h), and one byte that wakes
 * it. A folded event and a fact (a count for the summary) end in the memory. Where the program
 * writes to the same file or terminal, it waits for each line that is shown, so that the log stands
 * in the order of its own output; else only when RPWI_EXPLAIN_LINES are not written yet. The memory
 * outlives the program: its last lines, the folded counts and the summary are written after a crash
 * or _exit, too.
 *
 * Processes: the first event of a process starts its formatter (base/orphan.h): the program gets no
 * SIGCHLD and has no child to wait for; the formatter has no descriptor but the socket and the
 * output, and a session of its own, so ^C does not end it before the summary. A forked child drops
 * socket and memory, and starts a formatter of its own at its first event; exec closes the socket.
 * The formatter ends when the socket closes or the process has ended (pidfd), with the summary; at
 * exit, and at SIGINT, SIGTERM and SIGHUP without a handler, the program waits for that. A program
 * that adopts orphans (pid 1 of a container, PR_SET_CHILD_SUBREAPER) is the parent of its
 * children's formatters.
 *
 * States: no event yet; formatter; plain (no formatter can be started, or it ended: a sentence says
 * so, and every event is a line of its own, without columns, folds and summary); ended.
 *
 * Bounds: RPWI_EXPLAIN_LINES lines are under way for each process. A write that fails (full disk)
 * is the formatter's, which goes on. A blocked output blocks the program, as its own write would. A
 * descriptor that the program closed is not used again, even if another file has its number.
 *
 * Trust: nobody else can reach the socket and the memory, which have no name. The command is
 * started from the library's own folders only if it belongs to root, to us, or to the owner of the
 * library.
 *
 * Threads: any, with any lock held: inside is one lock, under which nothing but system calls is
 * called. Nothing here may be called from a signal handler. While it is off, each hook costs one
 * branch.
 */
#ifndef ROPEWAY_EXPLAIN_TRACE_H
#define ROPEWAY_EXPLAIN_TRACE_H

#include "base/base.h"

extern bool rpwi_explain_on; /* set by rpwi_explain_init, before the program's main */

enum rpwi_explain_kind {
	RPWI_EXPLAIN_CALL,     /* a verbs call:               column "program" */
	RPWI_EXPLAIN_CM_CALL,  /* an rdma_cm command:         column "program" */
	RPWI_EXPLAIN_CM_EVENT, /* an rdma_cm event, taken:    column "program" */
	RPWI_EXPLAIN_WC,       /* a completion, polled:       column "program" */
	RPWI_EXPLAIN_ASYNC,    /* an asynchronous event:      column "program" */
	RPWI_EXPLAIN_STATE,    /* of a QP or of a connection: column "state" */
	RPWI_EXPLAIN_TX,       /* a packet sent:              column "wire" */
	RPWI_EXPLAIN_RX,       /* a packet received:          column "wire" */
	RPWI_EXPLAIN_LOST,     /* a packet lost on purpose (ROPEWAY_FAULT), sent by nobody */
	RPWI_EXPLAIN_NOTE,     /* over all columns */
	RPWI_EXPLAIN_KINDS,
};

/* Reads the environment; idempotent. The file is made when the first line is written, so programs
 * that use no device leave none. */
void rpwi_explain_init(void);

void rpwi_explain_write(enum rpwi_explain_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
#define rpwi_explain(kind, ...) \
	do { \
		if (RPWI_UNLIKELY(rpwi_explain_on)) \
			rpwi_explain_write(kind, __VA_ARGS__); \
	} while (0)

/* A poll that found nothing: only counted ("ibv_poll_cq 12,345 times in vain"). No lock is
 * taken. */
void rpwi_explain_poll_in_vain(void);

/* What the summary and its diagnoses are made of; `qpn` 0 where it is of no QP, n 0 as good as 1.
 * Counted even where the line of the event is folded. */
enum rpwi_explain_fact {
	RPWI_FACT_SEND_POSTED, /* sends, writes, reads, atomics; n of them */
	RPWI_FACT_RECV_POSTED,
	RPWI_FACT_SEND_DONE,    /* completed with success */
	RPWI_FACT_RECV_DONE,    /* likewise; */
	RPWI_FACT_SEND_FLUSHED, /* completed with IBV_WC_WR_FLUSH_ERR */
	RPWI_FACT_RECV_FLUSHED, /* likewise */
	/* completed with another error: n is the enum ibv_wc_status. The first one of a QP is
	 * kept */
	RPWI_FACT_FAILED,
	RPWI_FACT_CONNECTING,  /* REQ sent: this side is the active one */
	RPWI_FACT_ACCEPTING,   /* REP sent: this side is the passive one */
	RPWI_FACT_ESTABLISHED, /* the connection that the QP serves is up */
	/* the program took the event that says so (a server's ESTABLISHED) */
	RPWI_FACT_TOOK_ESTABLISHED,
	/* the program asked for it (rdma_disconnect, also by destroying the id) */
	RPWI_FACT_DISCONNECT,
	RPWI_FACT_DISCONNECTED,  /* the peer asked for it (DREQ) */
	RPWI_FACT_PEER_GONE,     /* the peer's process ended without a word */
	RPWI_FACT_REJECTED,      /* the peer refused: n is the reason of REJ */
	RPWI_FACT_UNREACHABLE,   /* no answer to REQ or REP */
	RPWI_FACT_TO_ERROR,      /* the program itself moved the QP to ERR */
	RPWI_FACT_RETRANSMITTED, /* n packets sent again */
	RPWI_FACT_RNR_SEEN,      /* RNR NAKs received: the peer had no receive posted */
	RPWI_FACT_NAK_SEEN,      /* NAKs received, of whatever reason */
	RPWI_FACT_BY_MEMORY,     /* n packets sent through shared memory; */
	RPWI_FACT_BY_UDP,        /* by UDP */
	/* of the path to the peer (device/path.c): */
	RPWI_FACT_TOO_BIG,   /* packets too big for it */
	RPWI_FACT_HOPS,      /* their hop limit was used up */
	RPWI_FACT_NO_PORT,   /* nobody has the port there */
	RPWI_FACT_NO_HOST,   /* the host is not reached */
	RPWI_FACT_FORBIDDEN, /* a firewall rejects them */
	RPWI_FACT_NAT,       /* packets fit another source */
	RPWI_FACT_SIZE_LOST, /* small packets pass, large ones do not */
	RPWI_FACT_COUNT,
};
void rpwi_explain_fact_write(enum rpwi_explain_fact fact, uint32_t qpn, uint64_t n);
#define rpwi_explain_fact(fact, qpn, n) \
	do { \
		if (RPWI_UNLIKELY(rpwi_explain_on)) \
			rpwi_explain_fact_write(fact, qpn, n); \
	} while (0)

#endif
