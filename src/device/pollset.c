/* SPDX-License-Identifier: BSD-3-Clause */
/* pollset.c - see pollset.h. */
#include "device/pollset.h"

unsigned pollset_fill(const struct hca *h, struct pollfd *fds)
{
	unsigned n = 0;
	if (h->steer_fd >= 0)
		fds[n++] = (struct pollfd){.fd = h->steer_fd, .events = POLLIN};
	if (rpwi_lanes_fd(h->lanes) >= 0)
		fds[n++] = (struct pollfd){.fd = rpwi_lanes_fd(h->lanes), .events = POLLIN};
	if (rpwi_mcast_fd() >= 0)
		fds[n++] = (struct pollfd){.fd = rpwi_mcast_fd(), .events = POLLIN};
	for (unsigned i = 0; i < h->nports; i++)
		if (h->port[i].refs && rpwi_port_fd(h->port[i].io) >= 0)
			fds[n++] = (struct pollfd){
				.fd = rpwi_port_fd(h->port[i].io), .events = POLLIN};
	for (unsigned i = 0; i < h->nports; i++) /* for POLLERR */
		if (h->port[i].refs && rpwi_port_tx_fd(h->port[i].io) >= 0)
			fds[n++] = (struct pollfd){.fd = rpwi_port_tx_fd(h->port[i].io)};
	return n;
}

bool pollset_path_spoke(const struct pollfd *fds, unsigned n)
{
	for (unsigned k = 0; k < n; k++)
		if (!fds[k].events && fds[k].revents & POLLERR)
			return true;
	return false;
}

struct pollset_ready pollset_read(const struct hca *h, const struct pollfd *fds, unsigned n)
{
	struct pollset_ready r = pollset_all_ready;
	for (unsigned k = 0; k < n; k++) {
		if (fds[k].revents)
			continue;
		if (fds[k].fd == h->steer_fd)
			r.steer = false;
		for (unsigned i = 0; i < h->nports; i++)
			if (h->port[i].refs && rpwi_port_fd(h->port[i].io) == fds[k].fd)
				r.ports &= ~(1ull << i);
	}
	return r;
}

struct timespec pollset_timeout(uint64_t at_ns, uint64_t max_ns)
{
	uint64_t now = rpwi_now_ns(), ns = at_ns > now ? RPWI_MIN(at_ns - now, max_ns) : 0;
	return (struct timespec){
		.tv_sec = (time_t)(ns / RPWI_NS_PER_S), .tv_nsec = (long)(ns % RPWI_NS_PER_S)};
}

bool pollset_sleep(struct hca *h)
{
	atomic_fetch_add(&h->lane_sleepers, 1);
	if (rpwi_lanes_arm(h->lanes))
		return true;
	atomic_fetch_sub(&h->lane_sleepers, 1);
	return false;
}
void pollset_awake(struct hca *h) { atomic_fetch_sub(&h->lane_sleepers, 1); }
