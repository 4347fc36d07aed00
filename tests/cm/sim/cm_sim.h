/* SPDX-License-Identifier: BSD-3-Clause */
/* cm_sim.h - the simulator of the communication manager: hosts with an engine each, a link that
 * loses, doubles and reorders, programs that do what a plan says, virtual time, one seed.
 *
 * cm_sim.c     the settings that a seed stands for, the event loop, the link, the command line
 * cm_program.c the programs: what each end of each connection does when, and the check of all that
 * it is told
 */
#ifndef ROPEWAY_CM_SIM_H
#define ROPEWAY_CM_SIM_H

#include "cm/cm.h"
#include "lib/rng.h"

struct cms_config {
	uint64_t seed, spread_ns;
	unsigned hosts, conns;
	double loss, dup, reorder, forge; /* forge: a copy from somebody else's address */
	bool trace;
};
enum { CMS_HOSTS_MAX = 5 };
/* Longer than this no datagram is under way: less than the shortest TIMEWAIT that the programs' ACK
 * time-outs stand for, as it must be. */
#define CMS_LIFETIME_NS (200 * RPWI_NS_PER_MS)

extern struct cms_config cms_config;
extern uint64_t cms_now;

/* cm_sim.c */
struct rpwi_cm *cms_engine(unsigned host);
struct rpwi_addr cms_addr(unsigned host);
void cms_at(uint64_t when_ns, unsigned end, int action); /* calls cms_act(end, action) then */
void cms_trace(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* says the seed, and ends */
void cms_fail(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* cm_program.c */
void cms_programs_begin(void);
void cms_act(unsigned end, int action);
struct rpwi_cm_conn *cms_request(unsigned host, const struct rpwi_cm_path *path,
	const struct rpwi_cm_msg *m, bool sidr, uint16_t *reason);
void cms_incoming(unsigned host, struct rpwi_cm_conn *c, const struct rpwi_cm_msg *m);
void cms_event(unsigned host, struct rpwi_cm_conn *c, const struct rpwi_cm_event *ev);
void cms_programs_end(void); /* all is quiet: did everything end as it must? */
struct cms_tally {
	uint64_t established, rejected, disconnected, destroyed, gone, sidr;
};
extern struct cms_tally cms_tally;

#endif
