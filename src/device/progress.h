/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.h - what a round of progress is made of: receive.c, send.c; and who makes it:
 * progress.c, service.c. Private to these four. The HCA's lock is held in all of it. */
#ifndef ROPEWAY_DEVICE_PROGRESS_H
#define ROPEWAY_DEVICE_PROGRESS_H

#include "device/hca.h"
#include "device/pollset.h"

/* One round. all_ports: look at every socket, even a quiet one. hold_ack: a plain ACK may wait for
 * the next post or poll. True if anything came. */
bool progress_round(bool all_ports, bool hold_ack, struct pollset_ready ready);
/* When something is due: a timer, a retry. RPWI_NEVER: nothing. */
uint64_t progress_deadline(void);

/* receive.c: what came, at most so much that others get their turn, and its answers. The number of
 * packets or batches; *now_ns is set with the first, if it is 0. */
unsigned receive_lanes(bool hold_ack, uint64_t *now_ns);
unsigned receive_port(struct dport *p, bool hold_ack, uint64_t *now_ns);
unsigned receive_groups(uint64_t *now_ns);
unsigned receive_handed(uint64_t *now_ns); /* by other processes; *now_ns is set anew with each */

/* send.c */
void send_timers(uint64_t now_ns); /* of QPs, that are due */
/* send_kick, after packets for it have come */
void send_answer(struct dqp *qp, bool hold_ack, uint64_t now_ns);
void send_gathered(uint64_t now_ns);
/* Those who waited for a window; then everyone who has something to send, once. */
void send_run(uint64_t now_ns);
/* Enough was sent in this round: what others wait for comes first, the rest in the next one. */
bool send_is_spent(void);

#endif
