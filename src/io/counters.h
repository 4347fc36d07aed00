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
 * QPs count in rows beside the places: any process of the user takes a free one for a QP. A row
 * goes on with the numbers that it finds, like a place, and stays the device's that it was first
 * taken for: so a row is part of its device's sum for ever, and nothing is added up or cleared when
 * a QP goes or a process dies. What stood in it before its QP is beside it. Where all rows are
 * taken, a QP counts in its process's place.
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

/* Of one device in one process: all that it counts outside the rows of its QPs. */
struct rpwi_counters {
	char device[32]; /* "": free */
	struct rpwi_qp_stats n;
	/* n as this process found it, less what its QPs have counted that are gone: so what it has
	 * counted is n - before, and the rows of its QPs */
	struct rpwi_qp_stats before;
	struct rpwi_resources res;
};

/* A row: of one QP. */
struct rpwi_counters_qp {
	/* the socket that has the name of its process's slot; 0: free */
	_Atomic uint64_t owner;
	/* odd while the lines below change; who reads looks again */
	_Atomic uint32_t turn;
	uint8_t state; /* enum ibv_qp_state: as it is, at any time */
	uint8_t type;  /* enum ibv_qp_type */
	uint16_t slot;
	uint32_t qpn, peer_qpn; /* peer_qpn 0: it has none */
	uint8_t peer[16];       /* its GID */
	char device[32];        /* "": no QP has ever had it */
	struct rpwi_qp_stats n, before;
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
/* In a forked child that goes on with what it inherited: the place is its own. */
void rpwi_counters_is_forked(void);
/* A row for a new QP of that device, until the next; NULL: there is none. */
struct rpwi_counters_qp *rpwi_counters_qp_begin(const char *device, uint32_t qpn, uint8_t type);
void rpwi_counters_qp_peer(struct rpwi_counters_qp *row, const uint8_t gid[16], uint32_t qpn);
/* Its QP is gone; `of` is what rpwi_counters_of gave for its device. */
void rpwi_counters_qp_end(struct rpwi_counters *of, struct rpwi_counters_qp *row);

/* ---- for who reads: any process, at any moment; in signal handlers, and in a vfork's child ----
 *
 * The sums over all places. `res` (may be NULL): over those whose processes live, or a forked
 * child that has their sockets; it takes a look at /proc/net/unix. All 0 where nobody has counted.
 * 0 or -errno: the kernel has no System V IPC. */
int rpwi_counters_sum(const char *device, struct rpwi_qp_stats *sum, struct rpwi_resources *res);

/* A live process's part of a device, or one of its QPs. */
struct rpwi_counters_part {
	char device[32];
	uint16_t slot;
	uint32_t pid;          /* as its own PID namespace has it */
	uint64_t socket_inode; /* that one of its descriptors has, by which /proc shows who it is */
	uint32_t qpn;          /* 0: the process, without its QPs that have rows */
	uint32_t peer_qpn;     /* 0: none */
	uint8_t type, state, peer[16];
	uint64_t contexts, qps; /* the process's: how many it has */
	struct rpwi_qp_stats n;
};
/* False ends it. */
typedef bool rpwi_counters_visit(void *arg, const struct rpwi_counters_part *c);
/* Each process, and each row of a QP, of those that live; in no order. As rpwi_counters_sum. */
int rpwi_counters_walk(rpwi_counters_visit *visit, void *arg);
/* Is that process this one? In another PID namespace the number of a process says nothing. */
bool rpwi_counters_is_own(uint64_t socket_inode);
/* This process keeps the memory, which it makes if there is none, until it ends: so counts do not
 * begin anew while it runs. Again and again: where it failed it is tried again. 0 or -errno. */
int rpwi_counters_hold(void);

#endif
