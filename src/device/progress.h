/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.h - what a round of progress is made of: receive.c, send.c; and who makes it:
 * progress.c, service.c. Private to device/. The HCA's lock is held in all of it, but where it says
 * otherwise. */
#ifndef ROPEWAY_DEVICE_PROGRESS_H
#define ROPEWAY_DEVICE_PROGRESS_H

#include "device/hca.h"
#include "device/pollset.h"

/* send.c */
/* Send what it may now, keep its timer right. */
void send_kick(struct dqp *qp, bool hold_ack, uint64_t now_ns);
/* The same, after a post. */
void send_posted(struct dqp *qp, uint64_t now_ns);
/* After a post: true if what was posted may wait for more, to go in one batch with it. It goes when
 * an ACK comes or a poll finds its CQ empty, with the service thread's next tick while the program
 * polls, and when a timer of its peer's QPs is due, 10 ms at most, where an ACK is lost. */
bool send_gather(struct dqp *qp);
void send_forget(struct dqp *qp);
void send_unlist(struct dqp *qp);   /* it waits for nothing any more */
void send_waiting(uint64_t now_ns); /* those that wait for a window, as far as there is room */
void send_held(uint64_t now_ns);    /* ACKs that wait for company */

/* receive.c */
lane_place_fn receive_place;
void receive_forget(const struct dqp *q); /* it goes; the lock is held */

/* progress.c, service.c */
bool progress_run(bool all_ports); /* one round: receive, send, timers. True if anything came. */
/* a thread that only waits (poll.c) is there: the service thread leaves the sockets to it */
void service_wait_begin(void);
void service_wait_end(void);
int service_start(void);
void service_stop(void);
/* For calls of the data path: a child that goes on after a fork has no service thread yet. */
static inline void hca_lock_serving(void)
{
	rpwi_lock(RPWI_LOCK_HCA);
	if (RPWI_UNLIKELY(!hca_here.service_running))
		service_start();
}
void service_atfork_child(void);

/* One round. all_ports: look at every socket, even a quiet one. hold_ack: a plain ACK may wait for
 * the next post or poll. True if anything came. */
bool progress_round(bool all_ports, bool hold_ack, struct pollset_ready ready);
/* When something is due: a timer, a retry. RPWI_NEVER: nothing. */
uint64_t progress_deadline(void);

/* receive.c: packets that came, at most so many that others get their turn, and its answers. The
 * number of packets or batches; *now_ns is set with the first, if it is 0. */
unsigned receive_lanes(bool hold_ack, uint64_t *now_ns);
unsigned receive_port(struct dport *p, bool hold_ack, uint64_t *now_ns);
unsigned receive_groups(bool hold_ack, uint64_t *now_ns);
unsigned receive_handed(uint64_t *now_ns); /* by other processes */

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
