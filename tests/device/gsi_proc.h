/* SPDX-License-Identifier: BSD-3-Clause */
/* gsi_proc.h - the processes of gsi_test: each is told what to do, as a program on librdmacm would
 * do it, and what it sees stands in memory that all share. */
#ifndef TESTS_DEVICE_GSI_PROC_H
#define TESTS_DEVICE_GSI_PROC_H

#include "../io/ns.h"

#include <signal.h>
#include <stddef.h>

#include "device/gsi.h"
#include "device/hca.h"

enum { WAIT_MS = 60000 };

/* What a process has seen: in memory that all share. */
struct seen {
	volatile unsigned requests, sidr_requests, active, passive, bad,
		event[RPWI_CM_EV_SIDR_REQ_ERROR + 1], rej_reason, sidr_status, sidr_qpn,
		addresses_changed;
};

enum verb {
	GET,
	PUT,
	PORT,
	UNPORT,
	CLAIM,
	UNCLAIM,
	CONNECT,
	SIDR,
	DISCONNECT,
	STATE,
	NAP,
	PUT_LATE, /* in n ms, without a look at what comes until then; answered at once */
	OPEN_DEVICE_PORT,
	FORK_EXIT,
	FORK_OWN,
	EXIT,
	FILES,
	COUNTER,
	LOCAL,
	HOLD,
	DESTROY,
	SLOT,
	LOST,
	REFUSED,
	DAEMON
};
struct order {
	enum verb verb;
	struct rpwi_addr from, to;
	uint64_t service;
	unsigned n;
};
struct proc {
	pid_t pid;
	int fd;
	struct seen *seen;
};

void start_as(struct proc *p, uid_t uid);
void start(struct proc *p);
int tell(struct proc *p, struct order o);
void end(struct proc *p, int signo); /* 0: it is told to */

/* Waits until a count has come to n; how long is never judged, but a hang ends. */
void await(const volatile unsigned *count, unsigned n);
void await_state(struct proc *p, unsigned state, int n);
void await_counter(struct proc *p, unsigned offset, int n);
#define COUNTER_OF(p, name) \
	tell(p, (struct order){.verb = COUNTER, .n = offsetof(struct hca_counters, name)})

/* Whole steps, which must succeed. */
void open_engine_as(struct proc *p, const struct rpwi_addr *addr, uid_t uid);
void open_engine(struct proc *p, const struct rpwi_addr *addr);
void claim(struct proc *p, uint64_t service, const struct rpwi_addr *addr);
void connect_to(struct proc *p, uint64_t service, const struct rpwi_addr *from,
	const struct rpwi_addr *to, unsigned n);

#endif
