/* SPDX-License-Identifier: BSD-3-Clause */
/* netdev.c - which devices there are: links, addresses and default routes, asked of the kernel over
 * rtnetlink (rtnetlink(7)). Reads only; keeps nothing between calls but the descriptor of a watch,
 * which its caller owns.
 */
#include "io/rtnl.h"
#include "like/own.h"
#include "like/like.h"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINKS_MAX = 4096, ADDRS_MAX = 16384, NAME_SUFFIX_MAX = 999 };

struct link {
	int ifindex;
	char ifname[16];
	uint32_t mtu;
	bool up, no_carrier, loopback;
	uint8_t mac[6];
};
struct ifaddr {
	int ifindex;
	struct rpwi_addr addr;
	bool usable;
};
/* What the dumps have found so far. */
struct scan {
	struct link *link;
	unsigned links, links_room;
	struct ifaddr *addr;
	unsigned addrs, addrs_room;
	int default_ifindex; /* 0: none */
	bool default_is_ipv4;
	uint32_t default_metric;
	bool no_memory;
};

/* Memory of the kernel's own: the list is asked for in signal handlers too (stat(2) of a device's
 * file), which may have interrupted malloc. */
static void *pages_get(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

static void pages_put(void *p, size_t bytes)
{
	if (p)
		munmap(p, bytes);
}

/* ---- netlink ---- */

int rpwi_rtnl_open(uint32_t groups)
{
	int fd = socket(
		AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | (groups ? SOCK_NONBLOCK : 0), NETLINK_ROUTE);
	if (fd < 0)
		return -errno;
	struct sockaddr_nl sa = {.nl_family = AF_NETLINK, .nl_groups = groups};
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa))) {
		int rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

/* Only the kernel (port 0) is believed: any process may send to a netlink socket of its own
 * user. */
static ssize_t nl_recv(int fd, void *buf, size_t room)
{
	for (;;) {
		struct sockaddr_nl from;
		struct iovec iov = {buf, room};
		struct msghdr msg = {.msg_name = &from,
			.msg_namelen = sizeof(from),
			.msg_iov = &iov,
			.msg_iovlen = 1};
		ssize_t n = recvmsg(fd, &msg, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (msg.msg_flags & MSG_TRUNC)
			return -EMSGSIZE;
		if (msg.msg_namelen == sizeof(from) && from.nl_pid == 0)
			return n;
	}
}

/* Visit each message of the answer. 0, or -errno (the kernel's own error for the request
 * included). */
int rpwi_rtnl_answers(int fd, uint32_t seq, rpwi_rtnl_visit visit, void *arg)
{
	enum { ROOM = 64 * 1024 }; /* the kernel fills at most 32 KiB a read */
	void *buf = pages_get(ROOM);
	int rc = buf ? 1 : -ENOMEM;
	while (rc > 0) {
		ssize_t n = nl_recv(fd, buf, ROOM);
		if (n < 0)
			rc = (int)n;
		int left = n < 0 ? 0 : (int)n;
		for (struct nlmsghdr *h = buf; NLMSG_OK(h, left) && rc > 0;
			h = NLMSG_NEXT(h, left)) {
			if (h->nlmsg_seq != seq)
				continue;
			if (h->nlmsg_type == NLMSG_DONE)
				rc = 0;
			else if (h->nlmsg_type == NLMSG_ERROR)
				rc = h->nlmsg_len >= NLMSG_LENGTH(sizeof(int))
					     ? ((struct nlmsgerr *)NLMSG_DATA(h))->error
					     : -EPROTO;
			else
				visit(h, arg);
			if (rc > 0 && !(h->nlmsg_flags & NLM_F_MULTI))
				rc = 0;
		}
	}
	pages_put(buf, ROOM);
	return rc;
}

static int nl_dump(int fd, uint16_t type, uint32_t seq, rpwi_rtnl_visit visit, void *arg)
{
	struct {
		struct nlmsghdr h;
		struct rtgenmsg g;
	} req = {
		.h = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtgenmsg)),
			.nlmsg_type = type,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
			.nlmsg_seq = seq},
		.g = {.rtgen_family = AF_UNSPEC},
	};
	if (send(fd, &req, req.h.nlmsg_len, 0) < 0)
		return -errno;
	return rpwi_rtnl_answers(fd, seq, visit, arg);
}

/* The attributes after a family header of `hdr` bytes, by type; a later one of the same type
 * wins. */
void rpwi_rtnl_attrs(const struct nlmsghdr *h, size_t hdr, const struct rtattr **at, unsigned max)
{
	memset(at, 0, sizeof(*at) * (max + 1));
	if (h->nlmsg_len < NLMSG_SPACE(hdr))
		return;
	int left = (int)(h->nlmsg_len - NLMSG_SPACE(hdr));
	const struct rtattr *a = (const struct rtattr *)((const char *)h + NLMSG_SPACE(hdr));
	for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
		if ((a->rta_type & NLA_TYPE_MASK) <= max)
			at[a->rta_type & NLA_TYPE_MASK] = a;
}

static bool attr_u32(const struct rtattr *a, uint32_t *out)
{
	if (!a || RTA_PAYLOAD(a) < sizeof(*out))
		return false;
	memcpy(out, RTA_DATA(a), sizeof(*out));
	return true;
}

/* ---- what the dumps say ---- */

/* Room for one more element, or NULL: at the bound, or without memory. */
static void *grow(void **array, unsigned *count, unsigned *room, unsigned max, size_t size)
{
	if (*count == max)
		return NULL;
	if (*count == *room) {
		unsigned want = RPWI_MAX(16u, *room * 2);
		void *more = pages_get(want * size);
		if (!more)
			return NULL;
		if (*array)
			memcpy(more, *array, *count * size);
		pages_put(*array, *room * size);
		*array = more;
		*room = want;
	}
	void *slot = (char *)*array + (size_t)*count * size;
	memset(slot, 0, size);
	++*count;
	return slot;
}

static void visit_link(const struct nlmsghdr *h, void *arg)
{
	struct scan *s = arg;
	const struct ifinfomsg *m = NLMSG_DATA(h);
	const struct rtattr *at[IFLA_MTU + 1];
	if (h->nlmsg_type != RTM_NEWLINK || h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
		return;
	rpwi_rtnl_attrs(h, sizeof(*m), at, IFLA_MTU);
	if (!at[IFLA_IFNAME])
		return;
	struct link *l = grow((void **)&s->link, &s->links, &s->links_room, LINKS_MAX, sizeof(*l));
	if (!l) {
		s->no_memory = true;
		return;
	}
	l->ifindex = m->ifi_index;
	snprintf(l->ifname, sizeof(l->ifname), "%.*s", (int)RTA_PAYLOAD(at[IFLA_IFNAME]),
		(const char *)RTA_DATA(at[IFLA_IFNAME]));
	l->up = (m->ifi_flags & IFF_UP) && (m->ifi_flags & IFF_RUNNING);
	l->no_carrier = (m->ifi_flags & IFF_UP) && !(m->ifi_flags & IFF_RUNNING);
	l->loopback = m->ifi_flags & IFF_LOOPBACK;
	attr_u32(at[IFLA_MTU], &l->mtu);
	if (at[IFLA_ADDRESS] && RTA_PAYLOAD(at[IFLA_ADDRESS]) == sizeof(l->mac))
		memcpy(l->mac, RTA_DATA(at[IFLA_ADDRESS]), sizeof(l->mac));
}

static size_t address_bytes(unsigned family)
{
	if (family == AF_INET)
		return 4;
	return family == AF_INET6 ? 16 : 0;
}

static void visit_addr(const struct nlmsghdr *h, void *arg)
{
	struct scan *s = arg;
	const struct ifaddrmsg *m = NLMSG_DATA(h);
	const struct rtattr *at[IFA_FLAGS + 1];
	if (h->nlmsg_type != RTM_NEWADDR || h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
		return;
	rpwi_rtnl_attrs(h, sizeof(*m), at, IFA_FLAGS);
	/* On a point-to-point link IFA_ADDRESS is the other end (rtnetlink(7)). */
	const struct rtattr *a = at[IFA_LOCAL] ? at[IFA_LOCAL] : at[IFA_ADDRESS];
	size_t want = address_bytes(m->ifa_family);
	if (!a || !want || RTA_PAYLOAD(a) != want)
		return;
	struct ifaddr *ia =
		grow((void **)&s->addr, &s->addrs, &s->addrs_room, ADDRS_MAX, sizeof(*ia));
	if (!ia) {
		s->no_memory = true;
		return;
	}
	uint32_t flags = m->ifa_flags;
	attr_u32(at[IFA_FLAGS], &flags);
	ia->ifindex = (int)m->ifa_index;
	ia->addr.family = want == 4 ? 4 : 6;
	memcpy(ia->addr.bytes, RTA_DATA(a), want);
	if (rpwi_addr_is_link_local6(&ia->addr))
		ia->addr.scope = m->ifa_index;
	ia->usable = !(flags & IFA_F_DADFAILED) &&
		     (!(flags & IFA_F_TENTATIVE) || (flags & IFA_F_OPTIMISTIC));
}

static int route_oif(const struct rtattr *const *at)
{
	uint32_t oif = 0;
	if (attr_u32(at[RTA_OIF], &oif))
		return (int)oif;
	if (at[RTA_MULTIPATH] && RTA_PAYLOAD(at[RTA_MULTIPATH]) >= sizeof(struct rtnexthop))
		return ((const struct rtnexthop *)RTA_DATA(at[RTA_MULTIPATH]))->rtnh_ifindex;
	return 0;
}

/* The default route that wins: IPv4 before IPv6, then the lowest metric. */
static void visit_route(const struct nlmsghdr *h, void *arg)
{
	struct scan *s = arg;
	const struct rtmsg *m = NLMSG_DATA(h);
	const struct rtattr *at[RTA_MULTIPATH + 1];
	if (h->nlmsg_type != RTM_NEWROUTE || h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
		return;
	if (m->rtm_dst_len || m->rtm_table != RT_TABLE_MAIN || m->rtm_type != RTN_UNICAST)
		return;
	if (m->rtm_family != AF_INET && m->rtm_family != AF_INET6)
		return;
	rpwi_rtnl_attrs(h, sizeof(*m), at, RTA_MULTIPATH);
	uint32_t metric = 0;
	attr_u32(at[RTA_PRIORITY], &metric);
	bool ipv4 = m->rtm_family == AF_INET;
	int oif = route_oif(at);
	if (!oif || (s->default_ifindex && s->default_is_ipv4 > ipv4))
		return;
	if (s->default_ifindex && s->default_is_ipv4 == ipv4 && s->default_metric <= metric)
		return;
	s->default_ifindex = oif;
	s->default_is_ipv4 = ipv4;
	s->default_metric = metric;
}

_Static_assert((int)RPWI_GIDS_MAX == (int)DEV_GIDS_MAX, "a profile's bound is the table's");

/* ---- GIDs (IB annex A17.4.1: a RoCEv2 GID is an IPv6 address, or an IPv4-mapped one) ---- */

static struct rpwi_gid *gid_add(struct rpwi_netdev *d, const struct rpwi_addr *addr, bool usable)
{
	const uint64_t *most = rpwi_like()->has;
	uint64_t at = d->gid_count ? d->gid_count - 1 + most[RPWI_LIKE_GID_STEP]
				   : most[RPWI_LIKE_GID_FIRST];
	if (at >= most[RPWI_LIKE_GID_TBL_LEN])
		return NULL;
	struct rpwi_gid *g = &d->gid[at];
	d->gid_count = (unsigned)at + 1;
	g->addr = *addr;
	g->usable = usable;
	if (addr->family == 6) {
		memcpy(g->raw, addr->bytes, 16);
	} else {
		g->raw[10] = g->raw[11] = 0xff;
		memcpy(g->raw + 12, addr->bytes, 4);
	}
	return g;
}

/* The link-local address that the MAC makes (RFC 4291, appendix A), as rxe has it where the
 * interface carries none. */
static struct rpwi_addr made_up_link_local(const struct link *l)
{
	struct rpwi_addr a = {.family = 6, .scope = (uint32_t)l->ifindex};
	const uint8_t *m = l->mac;
	const uint8_t b[16] = {
		0xfe, 0x80, 0, 0, 0, 0, 0, 0, m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]};
	memcpy(a.bytes, b, 16);
	return a;
}

static const uint8_t loopback6[16] = {[15] = 1};

static void gid_add_link_local(struct rpwi_netdev *d, const struct scan *s, const struct link *l)
{
	const struct ifaddr *carrier = NULL;
	for (unsigned i = 0; i < s->addrs && !carrier; i++) {
		const struct ifaddr *a = &s->addr[i];
		if (a->ifindex != l->ifindex || a->addr.family != 6)
			continue;
		if (l->loopback ? !memcmp(a->addr.bytes, loopback6, 16)
				: rpwi_addr_is_link_local6(&a->addr))
			carrier = a;
	}
	struct rpwi_addr made_up = made_up_link_local(l);
	struct rpwi_gid *g =
		gid_add(d, carrier ? &carrier->addr : &made_up, carrier && carrier->usable);
	if (g && l->loopback)
		memcpy(g->raw, made_up.bytes, 16);
}

/* The n-th entry that is not empty; none: zeros. */
static const uint8_t *nth_gid(const struct rpwi_netdev *d, unsigned n)
{
	static const uint8_t none[16];
	for (unsigned i = 0; i < d->gid_count; i++)
		if (d->gid[i].addr.family && !n--)
			return d->gid[i].raw;
	return none;
}

static void gids_fill(
	struct rpwi_netdev *d, const struct scan *s, const struct link *l, const struct ifaddr *v4)
{
	gid_add_link_local(d, s, l);
	if (v4)
		gid_add(d, &v4->addr, v4->usable);
	for (unsigned i = 0; i < s->addrs; i++) {
		const struct ifaddr *a = &s->addr[i];
		if (a->ifindex == l->ifindex && a->addr.family == 6 &&
			memcmp(a->addr.bytes, nth_gid(d, 0), 16))
			gid_add(d, &a->addr, a->usable);
	}
}

/* ---- the list ---- */

static uint32_t speed_of(const char *ifname)
{
	char path[64], text[16];
	snprintf(path, sizeof(path), "/sys/class/net/%s/speed", ifname);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, text, sizeof(text) - 1); /* EINVAL where the link has no speed */
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	long mbps = strtol(text, NULL, 10);
	return mbps > 0 && mbps < UINT32_MAX ? (uint32_t)mbps : 0;
}

static void device_fill(struct rpwi_netdev *d, const struct scan *s, const struct link *l,
	const struct ifaddr *v4, unsigned nth)
{
	memset(d, 0, sizeof(*d));
	if (nth)
		snprintf(d->name, sizeof(d->name), "rpw_%.15s_%u", l->ifname, nth);
	else
		snprintf(d->name, sizeof(d->name), "rpw_%.15s", l->ifname);
	memcpy(d->ifname, l->ifname, sizeof(d->ifname));
	d->ifindex = l->ifindex;
	d->mtu = l->mtu;
	d->up = l->up;
	d->no_carrier = l->no_carrier;
	d->loopback = l->loopback;
	memcpy(d->mac, l->mac, sizeof(d->mac));
	d->speed_mbps = speed_of(l->ifname);
	gids_fill(d, s, l, v4);
}

/* The devices of one interface: one for each IPv4 address, or one if it has IPv6 alone. */
static unsigned devices_of(struct rpwi_netdev *out, const struct scan *s, const struct link *l)
{
	unsigned n = 0;
	bool has_v6 = false;
	for (unsigned i = 0; i < s->addrs; i++) {
		const struct ifaddr *a = &s->addr[i];
		if (a->ifindex != l->ifindex)
			continue;
		if (a->addr.family == 6)
			has_v6 = true;
		else if (n <= NAME_SUFFIX_MAX) {
			device_fill(&out[n], s, l, a, n);
			n++;
		}
	}
	if (!n && has_v6)
		device_fill(&out[n++], s, l, NULL, 0);
	return n;
}

/* 0: the default route's interface, 1: others in the kernel's order, 2: loopback. */
static int rank_of(const struct scan *s, const struct link *l)
{
	if (l->loopback)
		return 2;
	return l->ifindex != s->default_ifindex;
}

static int scan_run(struct scan *s)
{
	static const struct {
		uint16_t type;
		rpwi_rtnl_visit visit;
	} dumps[] = {
		{RTM_GETLINK, visit_link},
		{RTM_GETADDR, visit_addr},
		{RTM_GETROUTE, visit_route},
	};
	int fd = rpwi_rtnl_open(0);
	if (fd < 0)
		return fd;
	int rc = 0;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(dumps) && !rc; i++)
		rc = nl_dump(fd, dumps[i].type, i + 1, dumps[i].visit, s);
	close(fd);
	if (!rc && s->no_memory)
		rc = -ENOMEM;
	return rc;
}

/* Those that programs see first, each part in the order it has. How many those are. */
static int shown_first(struct rpwi_netdev *devs, unsigned n)
{
	struct rpwi_netdev one;
	unsigned shown = 0;
	for (unsigned i = 0; i < n; i++) {
		if (devs[i].hidden)
			continue;
		one = devs[i];
		memmove(&devs[shown + 1], &devs[shown], (i - shown) * sizeof(*devs));
		devs[shown++] = one;
	}
	return (int)shown;
}

int rpwi_netdev_map(struct rpwi_netdev **list, size_t *bytes, unsigned *all)
{
	struct scan s = {0};
	unsigned n = 0;
	int rc = scan_run(&s);
	*list = NULL;
	/* at most one device for each address */
	*bytes = ((size_t)s.addrs + 1) * sizeof(**list);
	struct rpwi_netdev *out = rc ? NULL : pages_get(*bytes);
	if (!rc && !out)
		rc = -ENOMEM;
	for (int rank = 0; out && rank <= 2; rank++)
		for (unsigned i = 0; i < s.links; i++)
			if (rank_of(&s, &s.link[i]) == rank)
				n += devices_of(&out[n], &s, &s.link[i]);
	pages_put(s.link, s.links_room * sizeof(*s.link));
	pages_put(s.addr, s.addrs_room * sizeof(*s.addr));
	*list = out;
	if (all)
		*all = n;
	if (rc)
		return rc;
	rpwi_netdev_offer(out, n);
	return shown_first(out, n);
}

void rpwi_netdev_unmap(struct rpwi_netdev *list, size_t bytes) { pages_put(list, bytes); }

int rpwi_netdev_list(struct rpwi_netdev **list, unsigned *all)
{
	struct rpwi_netdev *mapped;
	unsigned there = 0;
	size_t bytes;
	*list = NULL;
	int n = rpwi_netdev_map(&mapped, &bytes, &there);
	if (all)
		*all = there;
	if (n < 0)
		return n;
	*list = calloc((size_t)there + 1, sizeof(**list));
	if (*list && mapped)
		memcpy(*list, mapped, (size_t)there * sizeof(**list));
	rpwi_netdev_unmap(mapped, bytes);
	return *list ? n : -ENOMEM;
}

/* EUI-64 of the MAC, with the address in its place where there is none (lo), so that devices
 * differ. */
void rpwi_netdev_guid(const struct rpwi_netdev *d, uint8_t guid[8])
{
	const uint8_t *m = d->mac;
	const uint8_t g[8] = {m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]};
	memcpy(guid, g, 8);
	for (int i = 0; i < 4; i++)
		guid[4 + i] ^= nth_gid(d, 1)[12 + i];
}

/* The same in every process, whatever else comes and goes, and above the kernel's. librdmacm lists
 * devices in that order, and programs that do not choose take the first (libfabric's datagrams):
 * not loopback, which reaches no other host. */
unsigned rpwi_netdev_uverbs(const struct rpwi_netdev *d)
{
	enum { FIRST = 1000, EACH = 1000000 };
	const char *suffix = d->name + strlen("rpw_") + strlen(d->ifname);
	unsigned number = (d->loopback ? EACH : FIRST) + (unsigned)d->ifindex;
	if (*suffix == '_')
		number += EACH * (unsigned)strtoul(suffix + 1, NULL, 10);
	return number;
}

/* ---- changes ---- */

int rpwi_netdev_watch_open(void)
{
	return rpwi_rtnl_open(RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR);
}

int rpwi_netdev_ways_open(void)
{
	/* the newer groups have no name as a bit */
	const uint32_t newer = 1u << (RTNLGRP_IPV6_RULE - 1) | 1u << (RTNLGRP_NEXTHOP - 1);
	/* what is read is that something came; beyond this the kernel says ENOBUFS, which is as
	 * good */
	const int least = 4096;
	int fd = rpwi_rtnl_open(RTMGRP_LINK | RTMGRP_NEIGH | RTMGRP_IPV4_IFADDR |
				RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE |
				RTMGRP_IPV4_RULE | newer);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof(least));
	return fd;
}

bool rpwi_netdev_watch_read(int fd)
{
	bool changed = false;
	char buf[8192];
	for (;;) {
		ssize_t n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == ENOBUFS) {
			/* the kernel had more to say than the socket holds: something changed */
			changed = true;
			continue;
		}
		if (n <= 0)
			return changed;
		changed = true;
	}
}

static void visit_lookup(const struct nlmsghdr *h, void *arg)
{
	struct rpwi_route *l = arg;
	const struct rtmsg *m = NLMSG_DATA(h);
	const struct rtattr *at[RTA_VIA + 1];
	if (h->nlmsg_type != RTM_NEWROUTE || h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
		return;
	rpwi_rtnl_attrs(h, sizeof(*m), at, RTA_VIA);
	l->local = m->rtm_type == RTN_LOCAL;
	l->ifindex = route_oif(at);
	l->direct = !at[RTA_GATEWAY] && !at[RTA_VIA] && !at[RTA_MULTIPATH];
	if (!at[RTA_METRICS])
		return;
	int left = (int)RTA_PAYLOAD(at[RTA_METRICS]);
	for (const struct rtattr *a = RTA_DATA(at[RTA_METRICS]); RTA_OK(a, left);
		a = RTA_NEXT(a, left))
		if (a->rta_type == RTAX_HOPLIMIT)
			attr_u32(a, &l->hops);
}

static unsigned system_hops(unsigned family, int ifindex)
{
	struct ifreq r = {.ifr_ifindex = ifindex};
	char path[80 + IFNAMSIZ];
	unsigned hops = 0;
	int fd = family == 4 ? -1 : rpwi_rtnl_open(0);
	if (family == 4)
		snprintf(path, sizeof(path), "/proc/sys/net/ipv4/ip_default_ttl");
	else
		snprintf(path, sizeof(path), "/proc/sys/net/ipv6/conf/%.*s/hop_limit", IFNAMSIZ,
			ioctl(fd, SIOCGIFNAME, &r) ? "all" : r.ifr_name);
	if (fd >= 0)
		close(fd);
	FILE *f = fopen(path, "re");
	if (f && fscanf(f, "%u", &hops) != 1)
		hops = 0;
	if (f)
		fclose(f);
	return hops;
}

/* All of 127.0.0.0/8 is local too. */
struct rpwi_route rpwi_netdev_route(const struct rpwi_addr *a)
{
	size_t alen = a->family == 4 ? 4 : 16;
	struct {
		struct nlmsghdr h;
		struct rtmsg r;
		uint8_t attrs[64];
	} req = {
		.h = {.nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST, .nlmsg_seq = 1},
		.r = {.rtm_family = a->family == 4 ? AF_INET : AF_INET6,
			.rtm_dst_len = (unsigned char)(alen * 8)},
	};
	struct rtattr at = {.rta_len = (unsigned short)RTA_LENGTH(alen), .rta_type = RTA_DST};
	memcpy(req.attrs, &at, sizeof(at));
	memcpy(req.attrs + RTA_LENGTH(0), a->bytes, alen);
	size_t used = RTA_SPACE(alen);
	if (a->scope) { /* a link-local address is looked up on its own interface */
		at = (struct rtattr){.rta_len = RTA_LENGTH(4), .rta_type = RTA_OIF};
		memcpy(req.attrs + used, &at, sizeof(at));
		memcpy(req.attrs + used + RTA_LENGTH(0), &a->scope, 4);
		used += RTA_SPACE(4);
	}
	req.h.nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof(req.r)) + used);
	struct rpwi_route l = {0};
	int fd = rpwi_rtnl_open(0);
	if (fd < 0)
		return l;
	if (send(fd, &req, req.h.nlmsg_len, 0) >= 0)
		(void)rpwi_rtnl_answers(fd, 1, visit_lookup, &l);
	close(fd);
	return l;
}

uint8_t rpwi_netdev_hops(const struct rpwi_addr *a, const struct rpwi_route *r)
{
	enum { USUAL = 64 };
	unsigned hops = r->hops ? r->hops : system_hops(a->family, r->ifindex);
	return (uint8_t)(hops && hops < 256 ? hops : USUAL);
}
