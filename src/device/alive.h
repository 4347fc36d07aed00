/* SPDX-License-Identifier: BSD-3-Clause */
/* alive.h - do the processes at the other ends still exist? Private to device/; the lock is held.
 *
 * Looked at once a second while there is a RC QP or a connection of rdma_cm's. On this host the
 * kernel knows. Another host is asked (wire/ask.h), once a second, and only about processes that
 * nothing has come from for a second. The world (gsi.c) says which QPs have peers, sends the
 * questions, and acts when a process has ended: a connection of rdma_cm's is disconnected, a RC QP
 * fails (IBV_EVENT_QP_FATAL, posted WQEs are flushed).
 */
#ifndef ROPEWAY_DEVICE_ALIVE_H
#define ROPEWAY_DEVICE_ALIVE_H

#include "wire/ask.h"

/* The other end of a QP or a connection. */
struct alive_peer {
	const struct rpwi_addr *local, *remote;
	unsigned slot;     /* of its process */
	bool seen;         /* something has come from there */
	uint64_t heard_ns; /* when it last did; 0: not kept */
};
struct alive_gone {
	const struct rpwi_addr *remote;
	unsigned slot;
	/* so long has the whole host been silent; RPWI_NEVER: it is certain to have ended */
	uint64_t silent_ns;
	uint64_t now_ns;
};
struct alive_world {
	/* Each peer: of a connected RC QP, of a connection that is not over. */
	void (*each)(void (*fn)(const struct alive_peer *p, void *arg), void *arg);
	bool (*is_here)(const struct rpwi_addr *a);
	/* Of this host's: it is ours; somebody has it, we or another. */
	bool (*is_own)(unsigned slot);
	bool (*exists)(unsigned slot);
	/* How often all that had come to us had been read. */
	uint64_t (*emptied)(void);
	void (*send)(const struct rpwi_addr *local, const struct rpwi_addr *remote, uint32_t dqpn,
		const uint8_t *mad);
	/* What leads there is told; how many that were. */
	unsigned (*gone)(const struct alive_gone *g);
	uint16_t (*own_slot)(void);
	/* the helper's of this host, 0: none known; `is_us`: this process is it */
	uint16_t (*helper_slot)(bool *is_us);
};
void alive_begin(const struct alive_world *w); /* before all else */

void alive_wanted(uint64_t now_ns); /* there may be something new to look after */
uint64_t alive_deadline(void);
void alive_timer(uint64_t now_ns);
/* A MAD that may be a question or an answer; true: it was. */
bool alive_rx(const struct rpwi_addr *local, const struct rpwi_addr *remote, const uint8_t *mad,
	size_t len, uint64_t now_ns);
/* Has that host answered a question? Then it is a ropeway's. */
bool alive_answers(const struct rpwi_addr *remote);
/* That host has said that nobody has its port 4791 (ICMP). */
void alive_refused(const struct rpwi_addr *remote, uint64_t now_ns);
void alive_forget(void); /* nobody uses the HCA any more, or a child begins anew */

struct alive_stats {
	uint64_t asked, answers, gone;
};
const struct alive_stats *alive_stats(void);

#endif
