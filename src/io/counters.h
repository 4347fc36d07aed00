/* SPDX-License-Identifier: BSD-3-Clause */
/* counters.h - what all ropeway processes of this user in this network namespace have counted,
 * device by device: memory that they share.
 *
 * A process has the place of its slot (io.h: rpwi_steer_slots) in it, which nobody else writes to,
 * and it counts there in the first place: with plain stores, and nothing is told to anybody. The
 * next holder of the slot goes on with the numbers that it finds. So what a device has counted is
 * the sum of all places, whether their processes live or not, and an end needs no work: not at
 * exit, not by SIGKILL. Counts are of 64 bits and are written whole; a process that is killed
 * between a packet and its count has that one packet less.
 *
 * The memory is a System V segment that is marked for removal as soon as it is made, so the kernel
 * lets it go with the last process that has it: of those that have opened a device, the helper
 * among them. Then counts begin anew. It is of one user (mode 0600, and the kernel's word for who
 * made it), of one network namespace, and of one IPC namespace.
 */
#ifndef ROPEWAY_IO_COUNTERS_H
#define ROPEWAY_IO_COUNTERS_H

#include "wire/counts.h"

/* What lives now. */
struct rpwi_resources {
	_Atomic uint64_t contexts, pds, mrs, cqs, qps, srqs;
};

/* Of one device in one process. */
struct rpwi_counters {
	char device[32]; /* "": free */
	struct rpwi_qp_stats n;
	struct rpwi_resources res;
};

/* ---- for who counts; the caller serializes ---- */
/* This process has that slot from now on, to which the socket with that inode belongs. Where there
 * is no such memory (no System V IPC), counts are this process's alone. */
void rpwi_counters_begin(uint16_t slot, uint64_t socket_inode);
/* The device's, in this process: until rpwi_counters_end, or in a forked child that begins anew.
 * Never NULL: above 10 devices the others share one that no sum has. */
struct rpwi_counters *rpwi_counters_of(const char *device);
/* The slot is given up; nothing lives any more. The memory is kept until the process ends. */
void rpwi_counters_end(void);
/* In a forked child: the place is its parent's. */
void rpwi_counters_forget(void);

/* ---- for who reads: any process, at any moment; in signal handlers, and in a vfork's child ----
 *
 * The sums over all places. `res` (may be NULL): over those whose processes live, or a forked
 * child that has their sockets; it takes a look at /proc/net/unix. All 0 where nobody has counted.
 * 0 or -errno: the kernel has no System V IPC. */
int rpwi_counters_sum(const char *device, struct rpwi_qp_stats *sum, struct rpwi_resources *res);

#endif
