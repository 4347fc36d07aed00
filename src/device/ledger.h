/* SPDX-License-Identifier: BSD-3-Clause */
/* ledger.h - what a process leaves behind for its helper to settle: its connections with other
 * hosts, in memory that both map. The process writes, under the HCA's lock; the helper reads it
 * once the process has ended, and checks what it reads: a program that crashed may have written
 * anywhere. Nothing is said for an entry but what its own process could have said.
 *
 * Memory: 34 MB of address space, of which what is used is there; made with the first connection
 * to another host.
 */
#ifndef ROPEWAY_DEVICE_LEDGER_H
#define ROPEWAY_DEVICE_LEDGER_H

#include "device/hca.h"

enum {
	LEDGER_MAGIC = 0x6c656467,
	LEDGER_VERSION = 1,
	LEDGER_CMS = RPWI_CM_CONNS_MAX,
	LEDGER_SLOTS = 64,
	LEDGER_QPS = LEDGER_SLOTS * RPWI_SLOT_QPNS,
	LEDGER_LOCALS = 16,
};

/* A RC QP whose peer is on another host, from RTS until RESET or its end. */
struct ledger_qp {
	_Atomic uint32_t dqpn;      /* 0: none. Written last */
	_Atomic uint32_t una, next; /* PSNs, free-running: acknowledged below; sent below */
	struct rpwi_addr local, remote;
	uint8_t hop_limit, tclass;
};

/* A connection of rdma_cm's. */
struct ledger_cm {
	_Atomic uint32_t local_id; /* 0: none. Written last */
	uint32_t remote_id, remote_qpn;
	/* since when the process itself has taken leave, which may have been lost; 0: it has not */
	_Atomic uint64_t over_ns;
	struct rpwi_cm_path path;
};

struct ledger {
	uint32_t magic, version;
	uint64_t bytes;
	_Atomic uint32_t nlocals, cms, qps; /* so many are or were in use */
	struct rpwi_addr local[LEDGER_LOCALS];
	struct ledger_cm cm[LEDGER_CMS];
	struct ledger_qp qp[LEDGER_QPS];
};

/* The lock is held. */

/* Its state, peer or PSNs may have changed. True: there is something that the helper has to hear
 * of: wake who tends it. */
bool ledger_qp(struct dqp *q);
void ledger_qp_gone(struct dqp *q); /* before it is */
/* likewise; of another host's peer */
bool ledger_cm(struct rpwi_cm_conn *c, enum rpwi_cm_state to, uint64_t now_ns);
int ledger_fd(void); /* -1: no connection with another host yet */
uint32_t ledger_locals(void);
/* There is something that the helper has to hear of; any thread, and the tender alone takes it. */
bool ledger_has_news(void);
bool ledger_take_news(void);
void ledger_close(void); /* also in a child that begins anew */

/* Is it one, of this build? Checked before a word of it is believed; the memory cannot shrink. */
const struct ledger *ledger_map(int fd);
void ledger_unmap(const struct ledger *l);

#endif
