/* SPDX-License-Identifier: BSD-3-Clause */
/* cause.h - the first cause of failed and flushed work, and the side that it lies on, found in the
 * events of both ends (the lines "event" of a report, finding.h). The processes write the events,
 * the command draws the conclusion. Pure: no I/O, no clock, no allocation.
 *
 * The diagnoses of `ropeway run --explain` (cli/explain/diagnose.c) are made of the counts of one
 * end. Here are two ends, and an order.
 */
#ifndef ROPEWAY_CHECK_CAUSE_H
#define ROPEWAY_CHECK_CAUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What happens at one end of a connection. Each is told once for a QP, but DISCONNECTED. */
enum rpwi_cause_kind {
	RPWI_CAUSE_CONNECTING,       /* the active side: "the client" */
	RPWI_CAUSE_ACCEPTING,        /* the passive side: "the server" */
	RPWI_CAUSE_ESTABLISHED,      /* the connection is up */
	RPWI_CAUSE_TOOK_ESTABLISHED, /* the program took that event */
	RPWI_CAUSE_SENT,             /* the first send was posted */
	RPWI_CAUSE_RECEIVED,         /* the first receive completed */
	RPWI_CAUSE_DISCONNECT,       /* the program asked for it */
	RPWI_CAUSE_DISCONNECTED,     /* the peer asked for it */
	RPWI_CAUSE_TO_ERROR,         /* the program moved the QP to ERR */
	RPWI_CAUSE_DESTROYED,        /* the program destroyed the QP */
	RPWI_CAUSE_ENDED,            /* the process ended, of no QP */
	RPWI_CAUSE_PEER_GONE,        /* the device saw that the peer's process had ended */
	RPWI_CAUSE_REJECTED,
	RPWI_CAUSE_UNREACHABLE,
	RPWI_CAUSE_FAILED, /* the first completion in error that is no flush */
	RPWI_CAUSE_SEND_FLUSHED,
	RPWI_CAUSE_RECV_FLUSHED,
	RPWI_CAUSES
};
/* "disconnect": the event's "what" in a report. */
const char *rpwi_cause_name(enum rpwi_cause_kind k);
enum rpwi_cause_kind rpwi_cause_named(const char *name); /* RPWI_CAUSES: there is none */

struct rpwi_cause_event {
	uint64_t t_ns;
	int pid;
	enum rpwi_cause_kind kind;
	uint32_t qpn, peer_qpn;
	const char *text;    /* "called rdma_disconnect" */
	const char *program; /* a path, or a name; NULL: not known */
};

struct rpwi_cause {
	char text[640]; /* a sentence or two, without a full stop at the end */
	/* numbers of events: the first cause (`n`: no event shows it), and the failure that it
	 * explains */
	size_t first, seen;
	unsigned pairs; /* of QPs of which the same is to be said */
};

/* Into `out`, the earliest failure first; how many. `e` is in the order of time. A flush at the end
 * of a connection that ends as it should is no failure. */
unsigned rpwi_causes(
	const struct rpwi_cause_event *e, size_t n, struct rpwi_cause *out, unsigned room);

#endif
