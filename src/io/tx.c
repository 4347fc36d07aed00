/* SPDX-License-Identifier: BSD-3-Clause */
/* tx.c - the sending half of a port: ICRCs, GSO batches, injected faults, the capture of outgoing
 * packets.
 *
 * The IP header that the ICRC covers must be known before the kernel writes it: an unconnected
 * socket with IP_PMTUDISC_DO sends every datagram with DF and ID 0, and a GSO send numbers its
 * segments from 0.
 */
#include "io/port_priv.h"

#include "base/guard.h"
#include "base/lock.h"
#include "explain/packet.h"
#include "fault/fault.h"

#include <linux/filter.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	SNDBUF_BYTES = 8 << 20,
	SPORT_FIRST = 0xc000,
	/* A17.9.1.1 has the source port carry entropy, from the dynamic ports */
	SPORT_COUNT = 0x4000,
	HOP_LIMIT_DEFAULT = 64,
	WAIT_FOR_ROOM_MS = 2,
	/* of sends that failed because of what ICMP says of earlier packets; whoever forges more in
	 * that time costs a packet */
	ICMP_AGAIN_MAX = 4,
	HOLD_NS = 5000000, /* a held packet goes when nothing follows it for so long */
};

/* ---- the sending socket ---- */

static int bind_some_port(int fd, const struct rpwi_addr *local, uint16_t *sport)
{
	unsigned start = ((unsigned)getpid() * 2654435761u) >> 16;
	for (unsigned i = 0; i < SPORT_COUNT; i++) {
		union io_sockaddr sa;
		*sport = (uint16_t)(SPORT_FIRST + (start + i) % SPORT_COUNT);
		socklen_t len = rpwi_sockaddr_make(&sa, local, *sport);
		if (!bind(fd, &sa.sa, len))
			return 0;
		if (errno != EADDRINUSE)
			return -errno;
	}
	return -EADDRINUSE;
}

/* What arrives at the source port is nobody's: the kernel drops it, so that it cannot fill
 * memory. */
static void drop_all_input(int fd)
{
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog prog = {.len = 1, .filter = &drop};
	if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)))
		rpwi_udp_set(fd, SOL_SOCKET, SO_RCVBUF, 0);
}

/* An option that both versions of IP have, each by a name of its own. */
static int set_ip(int fd, bool v6, int name_v6, int name_v4, int value)
{
	return v6 ? rpwi_udp_set(fd, IPPROTO_IPV6, name_v6, value)
		  : rpwi_udp_set(fd, IPPROTO_IP, name_v4, value);
}

static int open_socket(struct rpwi_port *p)
{
	bool v6 = p->local.family == 6;
	int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	p->tx_fd = fd;
	rpwi_udp_set(fd, SOL_SOCKET, SO_SNDBUF, SNDBUF_BYTES);
	drop_all_input(fd);
	/* what ICMP says of our packets: icmp.c */
	set_ip(fd, v6, IPV6_RECVERR, IP_RECVERR, 1);
	_Static_assert((int)IPV6_PMTUDISC_DO == (int)IP_PMTUDISC_DO, "one value for both");
	int rc = set_ip(fd, v6, IPV6_MTU_DISCOVER, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
	return rc ? rc : bind_some_port(fd, &p->local, &p->sport);
}

int rpwi_tx_open(struct rpwi_port *p, char *why, size_t why_len)
{
	const char *spec = getenv("ROPEWAY_FAULT");
	char text[IO_ADDR_TEXT];
	p->tx_fd = -1;
	p->ttl = p->tos = -1;
	p->mcast_ttl = 0;
	if (spec && *spec && !rpwi_script_is_file(spec)) {
		char wrong[RPWI_WHY_LEN];
		int rc = rpwi_fault_parse(spec, &p->fault, wrong, sizeof(wrong));
		if (rc) {
			snprintf(why, why_len, "ROPEWAY_FAULT: %s", wrong);
			return rc;
		}
	}
	int rc = open_socket(p);
	if (rc == -EADDRNOTAVAIL)
		snprintf(why, why_len, "%s is not an address of this host now",
			rpwi_addr_text(&p->local, text));
	else if (rc)
		snprintf(why, why_len, "cannot open a sending socket on %s: %s",
			rpwi_addr_text(&p->local, text), strerror(-rc));
	return rc;
}

void rpwi_tx_close(struct rpwi_port *p)
{
	if (p->tx_fd >= 0)
		close(p->tx_fd);
	p->tx_fd = -1;
	for (struct later *l = p->later, *next; l; l = next) {
		next = l->next;
		free(l);
	}
	p->later = NULL;
	p->nlater = 0;
	rpwi_fault_free(p->fault);
	p->fault = NULL;
}

/* The interface is that of the port's address. Members on this host get copies by default
 * (IP_MULTICAST_LOOP, IPV6_MULTICAST_LOOP are 1), the sending process among them. The option stays
 * as long as the socket. */
static void choose_interface(struct rpwi_port *p, const struct rpwi_addr *group)
{
	if (group->family == 6) {
		rpwi_udp_set(p->tx_fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, (int)group->scope);
		return;
	}
	struct ip_mreqn r = {0};
	memcpy(&r.imr_address, p->local.bytes, sizeof(r.imr_address));
	setsockopt(p->tx_fd, IPPROTO_IP, IP_MULTICAST_IF, &r, sizeof(r));
}

static void prepare_for_group(struct rpwi_port *p, const struct rpwi_addr *group, int ttl)
{
	bool v6 = group->family == 6;
	if (!p->mcast_ttl)
		choose_interface(p, group);
	if (p->mcast_ttl == ttl)
		return;
	set_ip(p->tx_fd, v6, IPV6_MULTICAST_HOPS, IP_MULTICAST_TTL, ttl);
	p->mcast_ttl = ttl;
}

static void set_hops(struct rpwi_port *p, const struct rpwi_addr *dst, unsigned ttl, unsigned tos)
{
	bool v6 = p->local.family == 6;
	ttl = ttl ? ttl : HOP_LIMIT_DEFAULT;
	if (RPWI_UNLIKELY(rpwi_addr_is_mcast(dst))) {
		prepare_for_group(p, dst, (int)ttl);
	} else if (p->ttl != (int)ttl) {
		set_ip(p->tx_fd, v6, IPV6_UNICAST_HOPS, IP_TTL, (int)ttl);
		p->ttl = (int)ttl;
	}
	if (p->tos != (int)tos) {
		set_ip(p->tx_fd, v6, IPV6_TCLASS, IP_TOS, (int)tos);
		p->tos = (int)tos;
	}
}

/* ---- building ---- */

static uint32_t packet_len(const struct rpwi_txpkt *t)
{
	return t->hdr_len + t->payload_len + t->pad + RPWI_ICRC_LEN;
}

/* Append n staged bytes, which the caller fills; they join the last piece if that is staged too. */
static uint8_t *stage(struct tx_build *x, size_t n)
{
	uint8_t *at = x->stage + x->staged;
	x->staged += n;
	if (x->open) {
		x->iov[x->niov - 1].iov_len += n;
	} else {
		x->iov[x->niov++] = (struct iovec){at, n};
		x->open = true;
	}
	return at;
}

/* May packet k join the run? Equal sizes, of which the last may be shorter. */
static bool joins(const struct tx_build *x, const struct tx_run *r, uint32_t len)
{
	return x->gso && len <= r->seg_len && r->len == r->npkt * r->seg_len &&
	       r->npkt < RPWI_GSO_SEGS_MAX && r->len + len <= RPWI_GSO_BYTES_MAX;
}

static struct tx_run *run_for(struct tx_build *x, unsigned k, uint32_t len)
{
	struct tx_run *r = x->nruns ? &x->run[x->nruns - 1] : NULL;
	if (r && joins(x, r, len))
		return r;
	x->open = false; /* a message begins with an iovec of its own */
	r = &x->run[x->nruns++];
	*r = (struct tx_run){.first = k, .iov_first = x->niov, .seg_len = len};
	return r;
}

/* Headers, payload and pad, copied into one piece; their ICRC. */
static uint32_t add_copied(struct tx_build *x, const struct tx_run *r, const struct rpwi_txpkt *t)
{
	const struct rpwi_iov *part = &x->b->iov[t->iov_first];
	size_t len = t->hdr_len + t->payload_len + t->pad;
	uint8_t *begin = stage(x, len), *at = begin;
	memcpy(at, t->hdr, t->hdr_len);
	at += t->hdr_len;
	for (unsigned i = 0; i < t->iov_count; at += part[i++].len)
		memcpy(at, part[i].base, part[i].len);
	memset(at, 0, t->pad);
	return rpwi_icrc_next_whole(&x->icrc, (uint16_t)r->npkt, begin, len);
}

/* The same, the payload where it lies. */
static uint32_t add_pointed(struct tx_build *x, const struct tx_run *r, const struct rpwi_txpkt *t)
{
	const struct rpwi_iov *part = &x->b->iov[t->iov_first];
	memcpy(stage(x, t->hdr_len), t->hdr, t->hdr_len);
	for (unsigned i = 0; i < t->iov_count; i++)
		if (part[i].len)
			x->iov[x->niov++] =
				(struct iovec){(void *)(uintptr_t)part[i].base, part[i].len};
	x->open = false;
	memset(stage(x, t->pad), 0, t->pad);
	return rpwi_icrc_next(
		&x->icrc, (uint16_t)r->npkt, t->hdr, t->hdr_len, part, t->iov_count, t->pad);
}

static void add_packet(struct tx_build *x, unsigned k)
{
	const struct rpwi_txpkt *t = &x->b->pkt[k];
	uint32_t len = packet_len(t);
	struct tx_run *r = run_for(x, k, len);
	uint32_t icrc = t->payload_len <= TX_COPY_MAX ? add_copied(x, r, t) : add_pointed(x, r, t);
	rpwi_put_le32(stage(x, RPWI_ICRC_LEN), icrc);
	r->npkt++;
	r->len += len;
	r->niov = x->niov - r->iov_first;
}

/* An ACK before requests is a datagram of its own: a GSO batch can only end in a shorter segment.
 * Where batches arrive whole it may end the first of theirs instead, which costs nothing (txb.ack
 * says so): the receiver takes it first (ack_leads in device/receive.c). */
static bool ack_may_wait(const struct tx_build *x, unsigned k)
{
	uint32_t len = packet_len(&x->b->pkt[k]);
	if (!x->gso || k + 1 != x->b->ack || k + 1 == x->b->npkt ||
		packet_len(&x->b->pkt[k + 1]) < len)
		return false;
	return !x->nruns || !joins(x, &x->run[x->nruns - 1], len);
}

static void ack_ends_run(struct tx_build *x)
{
	x->ack_waits = false;
	add_packet(x, x->b->ack - 1);
	x->run[x->nruns - 1].first = x->b->ack - 1;
}

/* Does packet k leave the run open for the ACK that waits? */
static bool leaves_open(const struct tx_build *x, unsigned k)
{
	const struct tx_run *r = &x->run[x->nruns - 1];
	uint32_t len = packet_len(&x->b->pkt[k]);
	return joins(x, r, len) && len == r->seg_len && r->npkt + 1 < RPWI_GSO_SEGS_MAX &&
	       r->len + len + packet_len(&x->b->pkt[x->b->ack - 1]) <= RPWI_GSO_BYTES_MAX;
}

/* Runs under the guard: a payload may have been unmapped. Whole packets are noted one by one. */
static void build(void *arg)
{
	struct tx_build *x = arg;
	for (unsigned k = x->first; k < x->b->npkt; k++) {
		if (ack_may_wait(x, k)) {
			x->ack_waits = true;
			continue;
		}
		if (x->ack_waits && k != x->b->ack && !leaves_open(x, k))
			ack_ends_run(x);
		add_packet(x, k);
		if (x->ack_waits && k + 1 == x->b->npkt)
			ack_ends_run(x);
		x->done = k + 1;
		x->done_niov = x->niov;
		x->done_runs = x->nruns;
		x->done_last_len = x->iov[x->niov - 1].iov_len;
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
	}
}

/* Forget the packet that faulted, which may be half appended. */
static void cut_back(struct tx_build *x)
{
	x->niov = x->done_niov;
	x->nruns = x->done_runs;
	if (!x->niov)
		return;
	x->iov[x->niov - 1].iov_len = x->done_last_len;
	struct tx_run *r = &x->run[x->nruns - 1];
	r->niov = x->niov - r->iov_first;
}

static int build_from(struct rpwi_port *p, const struct rpwi_txb *b, unsigned first, bool gso)
{
	struct tx_build *x = &p->tx;
	x->b = b;
	x->first = x->done = first;
	x->gso = gso;
	x->ack_waits = false;
	x->niov = x->nruns = x->done_niov = x->done_runs = 0;
	x->staged = 0;
	x->open = false;
	x->flow.src = p->local;
	x->flow.sport = p->sport;
	x->flow.dst = b->av->flow.dst;
	x->flow.dport = RPWI_UDP_PORT;
	x->icrc = (struct rpwi_icrc_run){.flow = &x->flow};
	int rc = rpwi_guard_call(build, x);
	if (RPWI_UNLIKELY(rc))
		cut_back(x);
	return rc;
}

/* ---- capture ---- */

/* Each segment of a run, gathered first: the tap must not meet memory that is gone. */
static void tap_run(struct rpwi_port *p, const struct tx_run *r, uint64_t sent_ns)
{
	const struct iovec *v = &p->tx.iov[r->iov_first], *end = v + r->niov;
	uint8_t pkt[RPWI_PACKET_MAX];
	size_t at = 0; /* in *v */
	for (unsigned k = 0; k < r->npkt; k++) {
		size_t want = RPWI_MIN(r->seg_len, r->len - k * r->seg_len), have = 0;
		while (have < want && v < end) {
			size_t n = RPWI_MIN(v->iov_len - at, want - have);
			if (want > sizeof(pkt) ||
				rpwi_guard_copy(pkt + have, (const char *)v->iov_base + at, n))
				return;
			have += n;
			at += n;
			if (at == v->iov_len) {
				v++;
				at = 0;
			}
		}
		struct rpwi_iov part = {pkt, have};
		bool to_group = rpwi_addr_is_mcast(&p->tx.flow.dst);
		rpwi_tap(&p->tx.flow, (uint16_t)k, (uint8_t)(to_group ? p->mcast_ttl : p->ttl),
			(uint8_t)p->tos, sent_ns, &part, 1);
	}
}

/* ---- sending ---- */

/* GSO's ancillary message. */
union gso_cmsg {
	char room[CMSG_SPACE(sizeof(uint16_t))];
	struct cmsghdr align;
};

static void fill_msg(struct rpwi_port *p, const struct tx_run *r, struct msghdr *m,
	union gso_cmsg *c, union io_sockaddr *to, socklen_t to_len)
{
	memset(m, 0, sizeof(*m));
	m->msg_name = to;
	m->msg_namelen = to_len;
	m->msg_iov = &p->tx.iov[r->iov_first];
	m->msg_iovlen = r->niov;
	if (r->npkt == 1)
		return;
	m->msg_control = c;
	m->msg_controllen = sizeof(c->room);
	struct cmsghdr *h = CMSG_FIRSTHDR(m);
	h->cmsg_level = SOL_UDP;
	h->cmsg_type = UDP_SEGMENT;
	h->cmsg_len = CMSG_LEN(sizeof(uint16_t));
	uint16_t seg = (uint16_t)r->seg_len;
	memcpy(CMSG_DATA(h), &seg, sizeof(seg));
}

/* Runs handed to the kernel (at least one), or -errno for the first. */
static int send_runs(struct rpwi_port *p, const struct tx_run *r, unsigned n, union io_sockaddr *to,
	socklen_t to_len)
{
	rpwi_shield();
	p->n.tx_syscalls++;
	if (n == 1) {
		struct msghdr m;
		union gso_cmsg c;
		const struct iovec *v = &p->tx.iov[r->iov_first];
		if (r->niov == 1 && r->npkt == 1)
			return sendto(p->tx_fd, v->iov_base, v->iov_len, 0, &to->sa, to_len) < 0
				       ? -errno
				       : 1;
		fill_msg(p, r, &m, &c, to, to_len);
		return sendmsg(p->tx_fd, &m, 0) < 0 ? -errno : 1;
	}
	struct mmsghdr m[RPWI_TXB_PKTS];
	union gso_cmsg c[RPWI_TXB_PKTS];
	for (unsigned i = 0; i < n; i++)
		fill_msg(p, &r[i], &m[i].msg_hdr, &c[i], to, to_len);
	int sent = sendmmsg(p->tx_fd, m, n, 0);
	return sent < 0 ? -errno : sent;
}

static bool wait_for_room(struct rpwi_port *p)
{
	rpwi_shield();
	struct pollfd f = {.fd = p->tx_fd, .events = POLLOUT};
	return poll(&f, 1, WAIT_FOR_ROOM_MS) == 1;
}

static bool gso_refused(const struct tx_run *r, int rc)
{
	return r->npkt > 1 && (rc == -EINVAL || rc == -EIO || rc == -EOPNOTSUPP);
}

/* Send what was built. Stops, with *at the first run not dealt with, at -EFAULT and when GSO is
 * refused. */
static int send_built(struct rpwi_port *p, unsigned *at, union io_sockaddr *to, socklen_t to_len)
{
	int worst = 0;
	bool waited = false;
	unsigned i = 0, n = p->tx.nruns, again = 0;
	while (i < n) {
		const struct tx_run *r = &p->tx.run[i];
		uint64_t sent_ns = RPWI_UNLIKELY(rpwi_tap_enabled) ? rpwi_tap_clock_ns() : 0;
		int rc = send_runs(p, r, n - i, to, to_len);
		for (int k = 0; k < rc; k++, i++, r++) {
			p->n.tx_datagrams += r->npkt;
			if (RPWI_UNLIKELY(sent_ns))
				tap_run(p, r, sent_ns);
		}
		if (RPWI_LIKELY(rc > 0) || rc == -EINTR)
			continue;
		if (rc == -EAGAIN && !waited) {
			waited = true;
			if (wait_for_room(p))
				continue;
		}
		if (rc == -EFAULT || gso_refused(r, rc)) {
			worst = rc;
			break;
		}
		if (rpwi_icmp_take(p) && again++ < ICMP_AGAIN_MAX)
			continue;
		p->n.tx_refused += r->npkt; /* lost, as on a wire */
		worst = rc;
		i++;
	}
	*at = i;
	return worst;
}

static int send_plain(
	struct rpwi_port *p, const struct rpwi_txb *b, unsigned first, bool gso, unsigned *sent)
{
	union io_sockaddr to;
	socklen_t to_len = rpwi_sockaddr_make(&to, &b->av->flow.dst, RPWI_UDP_PORT);
	unsigned at;
	int fault = build_from(p, b, first, gso);
	int rc = send_built(p, &at, &to, to_len);
	if (RPWI_LIKELY(at == p->tx.nruns)) {
		*sent = p->tx.done;
		return fault ? fault : rc;
	}
	*sent = p->tx.run[at].first;
	if (rc == -EFAULT)
		return rc;
	/* Without GSO the segments have another IP ID each, so their ICRCs are made anew. If that
	 * is refused alike, GSO was not to blame. */
	rc = send_plain(p, b, *sent, false, sent);
	if (rc != -EINVAL && rc != -EIO && rc != -EMSGSIZE && !p->gso_off) {
		p->gso_off = true;
		rpwi_info("the kernel refuses UDP_SEGMENT here: packets go one by one");
	}
	return rc;
}

/* ---- injected faults: every packet by itself ---- */

static int send_by_udp(struct rpwi_port *p, const struct later *l)
{
	rpwi_shield();
	if (RPWI_UNLIKELY(p->mute))
		return -ENETDOWN;
	set_hops(p, &l->flow.dst, l->ttl, l->tos);
	for (int again = 0;; again++) {
		p->n.tx_syscalls++;
		if (sendto(p->tx_fd, l->data, l->len, 0, &l->to.sa, l->to_len) >= 0)
			return 0;
		int err = errno;
		if (err == EAGAIN || !rpwi_icmp_take(p) || again == ICMP_AGAIN_MAX)
			return -err;
	}
}

static int send_one(struct rpwi_port *p, const struct later *l)
{
	uint64_t sent_ns = rpwi_tap_enabled ? rpwi_tap_clock_ns() : 0;
	/* Its end may have come since it was put aside. */
	int32_t qpn = l->by_lane ? rpwi_pkt_peek_qpn(l->data, l->len) : -1;
	struct rpwi_lane *lane =
		qpn > 0 ? rpwi_lane_to(rpwi_steer_lanes(p->steer), (uint32_t)qpn) : NULL;
	int rc = lane ? rpwi_lane_datagram(lane, &l->flow, l->ttl, l->tos, l->data, l->len)
		      : send_by_udp(p, l);
	if (rc) {
		p->n.tx_refused++;
		return rc;
	}
	p->n.tx_datagrams++;
	if (sent_ns) {
		struct rpwi_iov part = {l->data, l->len};
		rpwi_tap(&l->flow, 0, l->ttl, l->tos, sent_ns, &part, 1);
	}
	return 0;
}

static void keep_for_later(struct rpwi_port *p, struct later *l)
{
	if (p->nlater >= LATER_PKTS_MAX) {
		p->n.tx_refused++;
		free(l);
		return;
	}
	struct later **at = &p->later;
	while (*at && (*at)->due_ns <= l->due_ns)
		at = &(*at)->next;
	l->next = *at;
	*at = l;
	p->nlater++;
}

static void keep_copy(struct rpwi_port *p, const struct later *l)
{
	struct later *copy = malloc(sizeof(*l) + l->len);
	if (!copy)
		return;
	memcpy(copy, l, sizeof(*l) + l->len);
	keep_for_later(p, copy);
}

/* Send and free what is due, or (`held`) what waited for the packet that has just gone. */
static void release(struct rpwi_port *p, bool held, uint64_t now_ns)
{
	for (struct later **at = &p->later; *at;) {
		struct later *l = *at;
		if (held ? !l->held : l->due_ns > now_ns) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		p->nlater--;
		send_one(p, l);
		free(l);
	}
}

static struct later *flatten(
	struct rpwi_port *p, const struct tx_run *r, const union io_sockaddr *to, socklen_t to_len)
{
	struct later *l = malloc(sizeof(*l) + r->len);
	if (!l)
		return NULL;
	*l = (struct later){.to = *to,
		.to_len = to_len,
		.flow = p->tx.flow,
		.ttl = p->tx.b->av->hop_limit ? p->tx.b->av->hop_limit : HOP_LIMIT_DEFAULT,
		.tos = p->tx.b->av->tclass};
	for (unsigned i = 0; i < r->niov; i++) {
		const struct iovec *v = &p->tx.iov[r->iov_first + i];
		if (rpwi_guard_copy(l->data + l->len, v->iov_base, v->iov_len)) {
			free(l);
			return NULL;
		}
		l->len += v->iov_len;
	}
	return l;
}

/* Fate of one packet; frees it, or keeps it. */
static int send_or_harm(struct rpwi_port *p, struct later *l)
{
	struct rpwi_fault_verdict v = {0};
	int rc = 0;
	if (p->fault)
		v = rpwi_fault_next(p->fault, l->len);
	if (rpwi_plan_packets)
		rpwi_harm(l, &v);
	if (v.drop) {
		if (rpwi_explain_on)
			rpwi_explain_packet(&l->flow, RPWI_EXPLAIN_LOST, l->data, l->len);
		free(l);
		return 0;
	}
	if (v.corrupt && l->len)
		l->data[v.corrupt_bit / 8 % l->len] ^= (uint8_t)(1u << v.corrupt_bit % 8);
	if (v.hold || v.delay_ns) {
		l->held = v.hold && !v.delay_ns;
		l->due_ns = rpwi_now_ns() + v.delay_ns + (v.hold ? HOLD_NS : 0);
		if (v.dup)
			keep_copy(p, l);
		keep_for_later(p, l);
		return 0;
	}
	for (int copies = v.dup ? 2 : 1; copies; copies--)
		rc = send_one(p, l);
	free(l);
	release(p, true, 0);
	return rc;
}

/* Each packet by itself, with its ICRC, through the faults that are injected. */
static int send_datagrams(
	struct rpwi_port *p, const struct rpwi_txb *b, bool by_lane, unsigned *sent)
{
	union io_sockaddr to;
	socklen_t to_len = rpwi_sockaddr_make(&to, &b->av->flow.dst, RPWI_UDP_PORT);
	int fault = build_from(p, b, 0, false), rc = 0;
	for (unsigned i = 0; i < p->tx.nruns; i++) {
		struct later *l = flatten(p, &p->tx.run[i], &to, to_len);
		*sent = p->tx.run[i].first;
		if (!l)
			return -EFAULT;
		l->by_lane = by_lane;
		l->qp = b->ordinal;
		int one = send_or_harm(p, l);
		rc = one ? one : rc;
	}
	*sent = p->tx.done;
	return fault ? fault : rc;
}

/* What the owner of the other end finds in its socket. */
static void charge(struct rpwi_port *p)
{
	struct rpwi_pace *pace = rpwi_steer_pace(p->steer);
	for (unsigned i = 0; i < p->tx.nruns; i++)
		rpwi_pace_charge(pace, p->tx.run[i].npkt, p->tx.run[i].len);
	rpwi_pace_charged(pace);
}

int rpwi_port_send(struct rpwi_port *p, const struct rpwi_txb *b, unsigned *sent)
{
	*sent = 0;
	if (!b->npkt)
		return 0;
	bool dead = p->tx_fd < 0 || RPWI_UNLIKELY(p->mute || rpwi_fork_broken);
	if (dead || b->av->flow.dst.family != p->local.family) {
		*sent = b->npkt;
		p->n.tx_refused += b->npkt;
		return dead ? -ENETDOWN : -EAFNOSUPPORT;
	}
	set_hops(p, &b->av->flow.dst, b->av->hop_limit, b->av->tclass);
	int rc = RPWI_UNLIKELY(p->fault || rpwi_plan_packets)
			 ? send_datagrams(p, b, false, sent)
			 : send_plain(p, b, 0, !p->gso_off, sent);
	if (rpwi_pace_granted(rpwi_steer_pace(p->steer)))
		charge(p);
	return RPWI_UNLIKELY(!rc && p->icmp_head != p->icmp_tail) ? -EREMOTEIO : rc;
}

/* False: by UDP. */
static bool pass_to_slot(struct rpwi_port *p, const struct rpwi_txb *b, uint16_t slot)
{
	uint8_t data[RPWI_PACKET_MAX];
	uint32_t len = 0;
	if (build_from(p, b, 0, false) || p->tx.nruns != 1 || p->tx.run[0].len > sizeof(data))
		return false;
	const struct tx_run *r = &p->tx.run[0];
	for (unsigned i = 0; i < r->niov; i++) {
		const struct iovec *v = &p->tx.iov[r->iov_first + i];
		memcpy(data + len, v->iov_base, v->iov_len);
		len += (uint32_t)v->iov_len;
	}
	const struct io_dest to = {.slot = slot};
	const struct io_packet pkt = {.flow = p->tx.flow,
		.len = len,
		.seg_len = len,
		.ttl = b->av->hop_limit,
		.tos = b->av->tclass};
	if (rpwi_handover_now(rpwi_steer_handover(p->steer), p->steer, &to, &pkt, data))
		return false;
	p->n.tx_datagrams++;
	if (RPWI_UNLIKELY(rpwi_tap_enabled))
		tap_run(p, r, rpwi_tap_clock_ns());
	return true;
}

int rpwi_port_send_to_slot(
	struct rpwi_port *p, const struct rpwi_txb *b, uint16_t slot, unsigned *sent)
{
	/* a shared slot may be another user's, who takes packets only from the port's holder */
	bool plain = p->tx_fd >= 0 && !p->mute && !rpwi_fork_broken && !p->fault &&
		     !rpwi_plan_packets && b->npkt == 1 && !rpwi_slot_is_shared(slot) &&
		     b->av->flow.dst.family == p->local.family;
	if (plain && pass_to_slot(p, b, slot)) {
		*sent = 1;
		return 0;
	}
	return rpwi_port_send(p, b, sent);
}

bool rpwi_port_is_watched(const struct rpwi_port *p)
{
	return rpwi_tap_enabled || p->fault || rpwi_plan_packets;
}

int rpwi_port_send_by_lane(
	struct rpwi_port *p, struct rpwi_lane *l, const struct rpwi_txb *b, unsigned *sent)
{
	*sent = 0;
	if (RPWI_UNLIKELY(rpwi_fork_broken)) {
		*sent = b->npkt;
		return -ENETDOWN;
	}
	if (RPWI_UNLIKELY(rpwi_port_is_watched(p)))
		return send_datagrams(p, b, true, sent);
	int rc = rpwi_lane_fill(l, p->sport, b, sent);
	if (RPWI_UNLIKELY(rc == -ENOSPC)) {
		p->n.tx_refused += b->npkt - *sent;
		*sent = b->npkt; /* lost, as on a wire */
	}
	return rc;
}

int rpwi_port_send_short(struct rpwi_port *p, struct rpwi_lane *l, const struct rpwi_av *av,
	const struct rpwi_short *s)
{
	int rc = rpwi_lane_short(l, p->sport, av, s);
	p->n.tx_refused += rc == -ENOSPC;
	return rc == -ENOSPC ? 0 : rc; /* lost, as on a wire */
}

int rpwi_port_send_to_self(struct rpwi_port *p, const void *data, size_t len)
{
	rpwi_shield();
	union io_sockaddr to;
	socklen_t to_len = rpwi_sockaddr_make(&to, &p->local, RPWI_UDP_PORT);
	if (sendto(p->tx_fd, data, len, 0, &to.sa, to_len) >= 0)
		return 0;
	int err = errno;
	bool again = err != EAGAIN && rpwi_icmp_take(p);
	return again && sendto(p->tx_fd, data, len, 0, &to.sa, to_len) >= 0 ? 0 : -err;
}

uint64_t rpwi_tx_deadline(const struct rpwi_port *p)
{
	return p->later ? p->later->due_ns : RPWI_NEVER;
}

void rpwi_tx_timer(struct rpwi_port *p, uint64_t now_ns)
{
	if (p->later && p->later->due_ns <= now_ns)
		release(p, false, now_ns);
}
