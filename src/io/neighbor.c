/* SPDX-License-Identifier: BSD-3-Clause */
/* neighbor.c - is there a host at an address of the own subnet? Asked of the kernel's neighbor
 * table (RTM_GETNEIGH needs no privilege). RoCE hardware needs the link-layer address to send;
 * here the kernel finds it, but a program shall hear of an absent host when it would elsewhere.
 *
 * Nobody is asked about an address of this host, one behind a router (the router's answer says
 * nothing about it), or on an interface without address resolution.
 */
#include "io/rtnl.h"

#include <linux/if.h>
#include <linux/neighbour.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/io_priv.h"

enum {
	/* the host can be sent to (the kernel's NUD_VALID, which is not for its users) */
	FOUND = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY,
	DISCARD_PORT = 9, /* RFC 863 */
	/* so long after the question the kernel has an entry, if it asks at all */
	ENTRY_NS = 50 * 1000000,
	AGAIN_NS = 1000 * 1000000,
};

static void visit_entry(const struct nlmsghdr *h, void *arg)
{
	if (h->nlmsg_type == RTM_NEWNEIGH && h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct ndmsg)))
		*(unsigned *)arg = ((const struct ndmsg *)NLMSG_DATA(h))->ndm_state;
}

/* The entry's state (NUD_*), 0: there is none, or none can be asked for. */
static unsigned entry_of(const struct rpwi_addr *a, int ifindex)
{
	size_t len = a->family == 4 ? 4 : 16;
	struct {
		struct nlmsghdr h;
		struct ndmsg n;
		uint8_t attrs[RTA_SPACE(16)];
	} req = {
		.h = {.nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof(req.n)) + RTA_SPACE(len)),
			.nlmsg_type = RTM_GETNEIGH,
			.nlmsg_flags = NLM_F_REQUEST,
			.nlmsg_seq = 1},
		.n = {.ndm_family = a->family == 4 ? AF_INET : AF_INET6, .ndm_ifindex = ifindex},
	};
	struct rtattr at = {.rta_len = (unsigned short)RTA_LENGTH(len), .rta_type = NDA_DST};
	memcpy(req.attrs, &at, sizeof(at));
	memcpy(req.attrs + RTA_LENGTH(0), a->bytes, len);
	unsigned state = 0;
	int fd = rpwi_rtnl_open(0);
	if (fd < 0)
		return 0;
	if (send(fd, &req, req.h.nlmsg_len, 0) >= 0)
		(void)rpwi_rtnl_answers(fd, 1, visit_entry, &state);
	close(fd);
	return state;
}

/* One datagram that nobody wants makes the kernel look for the host. */
static void make_kernel_ask(const struct rpwi_addr *src, const struct rpwi_addr *dst)
{
	union io_sockaddr from, to;
	socklen_t from_len = rpwi_sockaddr_make(&from, src, 0),
		  to_len = rpwi_sockaddr_make(&to, dst, DISCARD_PORT);
	int fd = socket(dst->family == 4 ? AF_INET : AF_INET6,
		SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	if (!bind(fd, &from.sa, from_len))
		(void)sendto(fd, NULL, 0, 0, &to.sa, to_len);
	close(fd);
}

static bool resolves(int ifindex)
{
	struct ifreq r = {.ifr_ifindex = ifindex};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool does = fd >= 0 && !ioctl(fd, SIOCGIFNAME, &r) && !ioctl(fd, SIOCGIFFLAGS, &r) &&
		    !(r.ifr_flags & (IFF_NOARP | IFF_LOOPBACK | IFF_POINTOPOINT));
	if (fd >= 0)
		close(fd);
	return does;
}

bool rpwi_neighbor_begin(struct rpwi_neighbor *n, const struct rpwi_addr *src,
	const struct rpwi_addr *dst, const struct rpwi_route *r, uint64_t now_ns)
{
	*n = (struct rpwi_neighbor){.src = *src,
		.dst = *dst,
		.ifindex = r->ifindex,
		.begun_ns = now_ns,
		.asked_ns = now_ns};
	if (r->local || !r->direct || !r->ifindex || rpwi_addr_is_mcast(dst) ||
		(entry_of(dst, r->ifindex) & FOUND) || !resolves(r->ifindex))
		return false;
	make_kernel_ask(src, dst);
	return true;
}

bool rpwi_neighbor_missing(struct rpwi_neighbor *n, uint64_t now_ns)
{
	unsigned state = entry_of(&n->dst, n->ifindex);
	if (state & FOUND)
		return false;
	if (!state) /* a firewall, say, keeps the kernel from asking: then nothing is known */
		return now_ns - n->begun_ns < ENTRY_NS;
	if ((state & NUD_FAILED) && now_ns - n->asked_ns > AGAIN_NS) {
		n->asked_ns = now_ns;
		make_kernel_ask(&n->src, &n->dst);
	}
	return true;
}

int rpwi_neighbor_wait(const struct rpwi_addr *src, const struct rpwi_addr *dst,
	const struct rpwi_route *r, uint64_t longest_ns)
{
	enum { FIRST_US = 100, MOST_US = 20000 };
	struct rpwi_neighbor n;
	uint64_t until_ns = rpwi_now_ns() + longest_ns;
	unsigned us = FIRST_US;
	if (!rpwi_neighbor_begin(&n, src, dst, r, rpwi_now_ns()))
		return 0;
	while (rpwi_neighbor_missing(&n, rpwi_now_ns())) {
		if (rpwi_now_ns() >= until_ns)
			return -ETIMEDOUT;
		usleep(us);
		us = RPWI_MIN(2 * us, (unsigned)MOST_US);
	}
	return 0;
}
