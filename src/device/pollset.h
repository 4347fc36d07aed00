/* SPDX-License-Identifier: BSD-3-Clause */
/* pollset.h - what a thread that makes progress sleeps on: the sockets of all ports, the lanes'
 * descriptor, other processes' questions. Private to device/. The HCA's lock is held over all but
 * pollset_awake and pollset_timeout.
 */
#ifndef ROPEWAY_DEVICE_POLLSET_H
#define ROPEWAY_DEVICE_POLLSET_H

#include <poll.h>
#include <time.h>

#include "device/hca.h"

/* Which descriptors are worth a receive: a bit for each port, and whether other processes may have
 * sent something. */
struct pollset_ready {
	uint64_t ports;
	bool steer;
};
static const struct pollset_ready pollset_all_ready = {.ports = ~0ull, .steer = true};
_Static_assert(DEV_PORTS_MAX <= 64, "a bit for each port");

/* Fills room for 2 * DEV_PORTS_MAX + 3; how many. */
unsigned pollset_fill(const struct hca *h, struct pollfd *fds);
/* What such a set says after poll. The lock is held again, and ports may have come and gone: those
 * that the set does not have are read. */
struct pollset_ready pollset_read(const struct hca *h, const struct pollfd *fds, unsigned n);
/* After poll: is there word of packets of ours (ICMP), in the error queue of a sending socket,
 * which is polled for nothing else? It stays readable until path_heard has read it. */
bool pollset_path_spoke(const struct pollfd *fds, unsigned n);
/* Until then, but no longer than that. */
struct timespec pollset_timeout(uint64_t at_ns, uint64_t max_ns);
/* Before a sleep on it: packets in memory wake from now on, until pollset_awake. False: not now. */
bool pollset_sleep(struct hca *h);
void pollset_awake(struct hca *h);

#endif
