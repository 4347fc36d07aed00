/* SPDX-License-Identifier: BSD-3-Clause */
/* mcast.c - IP multicast: the groups that this process is a member of, one socket for each group
 * and interface. Sending to one is a port's business (tx.c).
 *
 * A group's socket is bound to the group's address, with SO_REUSEADDR: Linux gives a multicast
 * datagram to each socket that it fits (udp(7), ip(7)), so every process, of any user, has its own
 * copies, and nothing is handed over. A port's socket is bound to a unicast address and gets none.
 * Membership (IGMP, MLD) is the socket's: the kernel reports it, and ends it with the socket. A
 * datagram that came by another interface than the one that was joined is not taken
 * (IP_MULTICAST_ALL 0).
 *
 * Threads: as io.h says.
 */
#include "io/io_priv.h"

#include "base/lock.h"

#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29 /* Linux 4.20 */
#endif

struct rpwi_mcast {
	struct rpwi_list link;
	struct rpwi_addr group;
	int ifindex, fd;
	void *user;
};

static struct {
	struct rpwi_list groups;
	unsigned n;
	int epoll_fd;
	uint8_t *buf;
	uint64_t overflow_gone; /* of groups that were left */
} here = {.groups = {&here.groups, &here.groups}, .epoll_fd = -1};

/* ---- membership ---- */

static int membership(const struct rpwi_mcast *m, bool in)
{
	int rc;
	if (m->group.family == 4) {
		struct ip_mreqn r = {.imr_ifindex = m->ifindex};
		memcpy(&r.imr_multiaddr, m->group.bytes, sizeof(r.imr_multiaddr));
		rc = setsockopt(m->fd, IPPROTO_IP, in ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &r,
			sizeof(r));
	} else {
		struct ipv6_mreq r = {.ipv6mr_interface = (unsigned)m->ifindex};
		memcpy(&r.ipv6mr_multiaddr, m->group.bytes, sizeof(r.ipv6mr_multiaddr));
		rc = setsockopt(m->fd, IPPROTO_IPV6, in ? IPV6_JOIN_GROUP : IPV6_LEAVE_GROUP, &r,
			sizeof(r));
	}
	return rc ? -errno : 0;
}

static int open_group(struct rpwi_mcast *m)
{
	bool v6 = m->group.family == 6;
	union io_sockaddr sa;
	m->fd = rpwi_udp_rx_socket(v6);
	if (m->fd < 0)
		return m->fd;
	int rc = rpwi_udp_set(m->fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (!rc)
		rc = v6 ? rpwi_udp_set(m->fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0)
			: rpwi_udp_set(m->fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
	rpwi_udp_want_ttl(m->fd, v6, true); /* for the GRH */
	socklen_t len = rpwi_sockaddr_make(&sa, &m->group, RPWI_UDP_PORT);
	if (!rc && bind(m->fd, &sa.sa, len))
		rc = -errno;
	return rc ? rc : membership(m, true);
}

static int watch(struct rpwi_mcast *m)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = m};
	if (here.epoll_fd < 0)
		here.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (!here.buf)
		here.buf = aligned_alloc(4096, IO_GRO_BYTES_MAX);
	if (!here.buf)
		return -ENOMEM;
	return here.epoll_fd < 0 || epoll_ctl(here.epoll_fd, EPOLL_CTL_ADD, m->fd, &ev) ? -errno
											: 0;
}

static void close_if_empty(void)
{
	if (here.n)
		return;
	if (here.epoll_fd >= 0)
		close(here.epoll_fd);
	here.epoll_fd = -1;
	free(here.buf);
	here.buf = NULL;
}

static void explain(const struct rpwi_mcast *m, int rc, char *why, size_t why_len)
{
	char text[IO_ADDR_TEXT];
	if (rc == -EADDRINUSE)
		rpwi_holder_explain(&m->group, why, why_len);
	else
		snprintf(why, why_len, "cannot join %s on interface %d: %s",
			rpwi_addr_text(&m->group, text), m->ifindex, strerror(-rc));
}

int rpwi_mcast_join(const struct rpwi_addr *group, int ifindex, void *user, struct rpwi_mcast **out,
	char *why, size_t why_len)
{
	struct rpwi_mcast *m = calloc(1, sizeof(*m));
	*out = NULL;
	if (!m)
		return -ENOMEM;
	*m = (struct rpwi_mcast){.group = *group, .ifindex = ifindex, .fd = -1, .user = user};
	int rc = open_group(m);
	if (!rc)
		rc = watch(m);
	if (rc) {
		explain(m, rc, why, why_len);
		if (m->fd >= 0)
			close(m->fd);
		free(m);
		close_if_empty();
		return rc;
	}
	rpwi_list_add_tail(&here.groups, &m->link);
	here.n++;
	*out = m;
	return 0;
}

static uint64_t overflow_of(const struct rpwi_mcast *m)
{
	uint32_t mem[SK_MEMINFO_VARS] = {0};
	socklen_t len = sizeof(mem);
	return getsockopt(m->fd, SOL_SOCKET, SO_MEMINFO, mem, &len) ? 0 : mem[SK_MEMINFO_DROPS];
}

/* The membership first: a forked child may have a copy of the socket. */
void rpwi_mcast_leave(struct rpwi_mcast *m)
{
	here.overflow_gone += overflow_of(m);
	membership(m, false);
	epoll_ctl(here.epoll_fd, EPOLL_CTL_DEL, m->fd, NULL);
	close(m->fd);
	rpwi_list_del(&m->link);
	free(m);
	here.n--;
	close_if_empty();
}

/* The memberships are the parent's, and its sockets' still: only the copies go. */
void rpwi_mcast_forget(void)
{
	if (here.epoll_fd >= 0)
		close(here.epoll_fd); /* before anything is taken out of the set that both share */
	here.epoll_fd = -1;
	while (!rpwi_list_empty(&here.groups)) {
		struct rpwi_mcast *m = RPWI_CONTAINER_OF(here.groups.next, struct rpwi_mcast, link);
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it does not see rpwi_list_del */
		close(m->fd);
		rpwi_list_del(&m->link);
		free(m);
	}
	here.n = 0;
	close_if_empty();
}

/* ---- receiving ---- */

void rpwi_mcast_deaf(struct rpwi_mcast *m, bool deaf)
{
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog prog = {.len = 1, .filter = &drop};
	int none = 0;
	if (deaf)
		setsockopt(m->fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog));
	else
		setsockopt(m->fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof(none));
}

int rpwi_mcast_fd(void) { return here.epoll_fd; }

/* The one there is; of several one that has something, each in turn (the kernel moves a descriptor
 * that it has reported to the end of its list). */
static struct rpwi_mcast *ready(void)
{
	struct epoll_event ev;
	if (here.n == 1)
		return RPWI_CONTAINER_OF(here.groups.next, struct rpwi_mcast, link);
	return epoll_wait(here.epoll_fd, &ev, 1, 0) == 1 ? ev.data.ptr : NULL;
}

int rpwi_mcast_recv(struct rpwi_rx *rx, void **user)
{
	if (!here.n || RPWI_UNLIKELY(rpwi_fork_broken))
		return 0;
	struct rpwi_mcast *m = ready();
	if (!m)
		return 0;
	*user = m->user;
	return rpwi_udp_recv(m->fd, here.buf, &m->group, rx);
}

uint64_t rpwi_mcast_overflow(void)
{
	uint64_t sum = here.overflow_gone;
	for (struct rpwi_list *l = here.groups.next; l != &here.groups; l = l->next)
		sum += overflow_of(RPWI_CONTAINER_OF(l, struct rpwi_mcast, link));
	return sum;
}
