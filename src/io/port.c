/* SPDX-License-Identifier: BSD-3-Clause */
/* port.c - a local address on UDP port 4791: opening it, receiving, and what happens to packets
 * that are another process's. Sending is in tx.c. */
#include "io/port_priv.h"

#include "base/lock.h"

#include <linux/sock_diag.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	REBIND_MS = 1000,
	/* receives between two looks at what others ask: a sender may wait for the answer */
	SERVE_EVERY = 32,
	PROBES_A_CALL = 16, /* probes eaten before a receive gives up looking for a packet */
};

/* ---- opening ---- */

static int make_rx_socket(struct rpwi_port *p)
{
	int have = 0;
	socklen_t len = sizeof(have);
	p->rx_fd = rpwi_udp_rx_socket(p->local.family == 6);
	if (p->rx_fd < 0)
		return p->rx_fd;
	int rc = rpwi_udp_set(p->rx_fd, SOL_SOCKET, SO_REUSEPORT, 1);
	if (rc)
		return rc;
	if (!getsockopt(p->rx_fd, SOL_SOCKET, SO_RCVBUF, &have, &len) && have > 0)
		rpwi_pace_set_limit(rpwi_steer_pace(p->steer), (size_t)have);
	rpwi_port_want_ttl(p, rpwi_tap_enabled);
	return 0;
}

static int bind_rx(struct rpwi_port *p)
{
	union io_sockaddr sa;
	socklen_t len = rpwi_sockaddr_make(&sa, &p->local, RPWI_UDP_PORT);
	if (bind(p->rx_fd, &sa.sa, len))
		return -errno;
	p->bound = true;
	p->mute = false;
	rpwi_group_renew(p->group, rpwi_now_ns());
	return 0;
}

/* Port groups are of one user. Where another user's ropeway has the port, its packets would be in
 * that user's hands: only who says that he wants this lives on what is handed over. */
static int bind_or_share(struct rpwi_port *p, char *why, size_t why_len)
{
	char text[IO_ADDR_TEXT];
	struct io_holder h;
	struct rpwi_who who;
	int rc = bind_rx(p);
	if (rc == -EADDRINUSE) {
		if (rpwi_who_shares() && !rpwi_holder_find(&p->local, &h) && h.sockets &&
			rpwi_holder_find_user(h.uid, &who)) {
			rpwi_info("UDP port %d of %s is held by user %u's ropeway, which hands our "
				  "packets over",
				RPWI_UDP_PORT, rpwi_addr_text(&p->local, text), h.uid);
			p->rebind_at_ns = rpwi_now_ns() + REBIND_MS * RPWI_NS_PER_MS;
			return 0;
		}
		rpwi_holder_explain(&p->local, why, why_len);
	} else if (rc) {
		snprintf(why, why_len, "cannot bind UDP port %d of %s: %s", RPWI_UDP_PORT,
			rpwi_addr_text(&p->local, text), strerror(-rc));
	}
	return rc;
}

static void port_free(struct rpwi_port *p)
{
	rpwi_tx_close(p);
	if (p->rx_fd >= 0)
		close(p->rx_fd);
	rpwi_group_free(p->group);
	free(p->buf);
	free(p);
}

static struct rpwi_port *port_find(const struct rpwi_addr *local)
{
	for (struct rpwi_port *p = rpwi_ports.first; p; p = p->next)
		if (rpwi_addr_eq(&p->local, local) && p->local.scope == local->scope)
			return p;
	return NULL;
}

/* Another user's program has it: packets by lanes go, packets by UDP would be answered to him. It
 * is asked for again, as where he hands our packets over. */
static void be_mute(struct rpwi_port *p, const char *why)
{
	p->mute = true;
	p->rebind_at_ns = rpwi_now_ns() + REBIND_MS * RPWI_NS_PER_MS;
	rpwi_info("%s: only processes of this user on this host can be reached, through shared "
		  "memory",
		why);
}

static int again(struct rpwi_port *p, bool lanes_do, char *why, size_t why_len)
{
	if (p->mute && !lanes_do) {
		int rc = bind_or_share(p, why, why_len);
		if (rc)
			return rc;
		p->mute = false;
	}
	p->refs++;
	return 0;
}

int rpwi_port_open(struct rpwi_steer *s, const struct rpwi_addr *local, bool lanes_do,
	struct rpwi_port **out, char *why, size_t why_len)
{
	struct rpwi_port *p = port_find(local);
	*out = NULL;
	if (why_len)
		*why = 0;
	if (p) {
		int rc = again(p, lanes_do, why, why_len);
		*out = rc ? NULL : p;
		return rc;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->refs = 1;
	p->steer = s;
	p->local = *local;
	p->rx_fd = p->tx_fd = -1;
	p->buf = aligned_alloc(4096, IO_GRO_BYTES_MAX);
	p->group = rpwi_group_new(p, s);
	int rc = p->buf && p->group ? rpwi_tap_init() : -ENOMEM;
	if (!rc)
		rc = rpwi_tx_open(p, why, why_len);
	if (!rc)
		rc = make_rx_socket(p);
	if (!rc)
		rc = bind_or_share(p, why, why_len);
	if (rc == -EADDRINUSE && lanes_do && p->rx_fd >= 0) {
		be_mute(p, why);
		rc = 0;
	}
	if (rc) {
		if (why_len && !*why)
			snprintf(why, why_len, "cannot open UDP port %d: %s", RPWI_UDP_PORT,
				strerror(-rc));
		port_free(p);
		return rc;
	}
	p->next = rpwi_ports.first;
	rpwi_ports.first = p;
	*out = p;
	return 0;
}

static void flush_over(struct rpwi_port *p)
{
	if (RPWI_LIKELY(!p->over.pkt.len))
		return;
	rpwi_handover_pass(
		rpwi_steer_handover(p->steer), p->steer, &p->over.to, &p->over.pkt, p->over.at);
	p->over.pkt.len = 0;
}

void rpwi_port_close(struct rpwi_port *p)
{
	if (!p || --p->refs)
		return;
	flush_over(p);
	struct rpwi_port **at = &rpwi_ports.first;
	while (*at && *at != p)
		at = &(*at)->next;
	if (*at)
		*at = p->next;
	port_free(p);
}

bool rpwi_port_is_mute(const struct rpwi_port *p) { return p->mute; }
int rpwi_port_fd(const struct rpwi_port *p) { return p->bound ? p->rx_fd : -1; }

void rpwi_port_want_ttl(struct rpwi_port *p, bool want)
{
	p->want_ttl = want || rpwi_tap_enabled;
	if (p->rx_fd >= 0)
		rpwi_udp_want_ttl(p->rx_fd, p->local.family == 6, p->want_ttl);
}

/* ---- receiving ---- */

static unsigned segments(const struct rpwi_rx *rx)
{
	return rx->seg_len ? (unsigned)((rx->len + rx->seg_len - 1) / rx->seg_len) : 1;
}

static bool is_probe(const struct rpwi_rx *rx)
{
	int32_t qpn = rpwi_pkt_peek_qpn(rx->data, rx->len);
	return qpn >> RPWI_SLOT_SHIFT == IO_PROBE_SLOT && qpn != RPWI_MCAST_QPN;
}

int rpwi_port_recv(struct rpwi_port *p, struct rpwi_rx *rx)
{
	struct rpwi_pace *pace = rpwi_steer_pace(p->steer);
	/* an interrupted poll ends in the child: arriving packets are the parent's */
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return 0;
	flush_over(p);
	if (!p->bound)
		return 0;
	for (int i = 0; i < PROBES_A_CALL; i++) {
		uint64_t snapshot = rpwi_pace_snapshot(pace);
		int rc = rpwi_udp_recv(p->rx_fd, p->buf, &p->local, rx);
		p->n.rx_syscalls++;
		if (rc <= 0) {
			if (!rc)
				rpwi_pace_empty(pace, snapshot);
			return rc;
		}
		if (is_probe(rx) && rpwi_group_take_probe(p->group, rx))
			continue;
		p->n.rx_datagrams += segments(rx);
		rpwi_pace_progress(pace);
		if (!(++p->receives % SERVE_EVERY))
			rpwi_steer_serve(p->steer);
		return 1;
	}
	return 0;
}

/* ---- for others ---- */

static void hand_to(struct rpwi_port *p, const struct rpwi_rx *rx, const uint8_t *seg, size_t len,
	const struct io_dest *to)
{
	size_t seg_len = rx->seg_len ? rx->seg_len : rx->len;
	/* Neighbors for one owner go as one. */
	if (p->over.pkt.len && rpwi_dest_eq(&p->over.to, to) &&
		p->over.at + p->over.pkt.len == seg && p->over.pkt.len % seg_len == 0) {
		p->over.pkt.len += (uint32_t)len;
		return;
	}
	flush_over(p);
	p->over.at = seg;
	p->over.to = *to;
	int32_t ip_id = RPWI_MAX(rx->ip_id, 0);
	if (seg >= rx->data && seg_len)
		ip_id += (int32_t)((size_t)(seg - rx->data) / seg_len);
	p->over.pkt = (struct io_packet){
		.len = (uint32_t)len,
		.seg_len = (uint32_t)RPWI_MIN(seg_len, len),
		.ip_id = ip_id,
		.ttl = rx->ttl,
		.tos = rx->tos,
		.flow = rx->flow,
	};
}

void rpwi_port_hand_over(
	struct rpwi_port *p, const struct rpwi_rx *rx, const uint8_t *seg, size_t len, uint32_t qpn)
{
	struct io_dest to = {.slot = rpwi_slot_of(qpn)};
	p->n.handed_over++;
	rpwi_group_wrong_member(p->group, 1);
	if (to.slot >= 1 && to.slot <= RPWI_SLOT_MAX && len)
		hand_to(p, rx, seg, len, &to);
}

/* Who has claimed it: one of our own user; and where we share the port with other users, one of
 * those who do so, too. */
static bool find_claimant(struct rpwi_port *p, uint64_t service_id, struct io_dest *to)
{
	struct rpwi_lines *ls = rpwi_steer_lines(p->steer);
	for (int shared = 0; ls && shared <= rpwi_who_shares(); shared++) {
		*to = (struct io_dest){
			.service_id = service_id, .addr = p->local, .shared = shared};
		for (int i = 0; i < 2; i++, to->addr = (struct rpwi_addr){0}) {
			enum io_owner o = rpwi_lines_owner(ls, to);
			if (o == IO_OWNER_US || (shared && o == IO_OWNER_STRANGER))
				return true;
		}
	}
	return false;
}

/* No steering program sends requests to their claimant, so a request here is not a sign that it is
 * out of date. */
bool rpwi_port_hand_over_service(struct rpwi_port *p, const struct rpwi_rx *rx, const uint8_t *seg,
	size_t len, uint64_t service_id)
{
	struct io_dest to;
	if (!find_claimant(p, service_id, &to))
		return false;
	p->n.handed_over++;
	if (len)
		hand_to(p, rx, seg, len, &to);
	return true;
}

/* ---- time ---- */

void rpwi_port_no_answer(struct rpwi_port *p, const struct rpwi_addr *peer, uint64_t now_ns)
{
	if (p->bound && rpwi_addr_eq(&p->local, peer))
		rpwi_group_no_answer(p->group, now_ns);
}

uint64_t rpwi_port_deadline(const struct rpwi_port *p)
{
	uint64_t at = rpwi_tx_deadline(p);
	at = RPWI_MIN(at, rpwi_handover_retry_at(rpwi_steer_handover(p->steer)));
	if (p->rx_fd < 0)
		return at;
	return RPWI_MIN(at, p->bound ? rpwi_group_deadline(p->group) : p->rebind_at_ns);
}

void rpwi_port_timer(struct rpwi_port *p, uint64_t now_ns)
{
	flush_over(p);
	rpwi_tx_timer(p, now_ns);
	if (rpwi_handover_retry_at(rpwi_steer_handover(p->steer)) <= now_ns)
		rpwi_handover_retry(rpwi_steer_handover(p->steer), p->steer);
	if (p->rx_fd < 0)
		return;
	if (p->bound) {
		rpwi_group_timer(p->group, now_ns);
	} else if (p->rebind_at_ns <= now_ns) {
		/* The holder may have gone, and then nobody receives for us. */
		p->rebind_at_ns = now_ns + REBIND_MS * RPWI_NS_PER_MS;
		if (!bind_rx(p))
			rpwi_info("UDP port %d is free again and ours now", RPWI_UDP_PORT);
	}
}

void rpwi_port_stats(const struct rpwi_port *p, struct rpwi_port_stats *out)
{
	uint32_t mem[SK_MEMINFO_VARS] = {0};
	socklen_t len = sizeof(mem);
	*out = p->n;
	out->resteered = rpwi_group_renewals(p->group);
	out->taken_over = rpwi_handover_taken(rpwi_steer_handover(p->steer));
	out->hand_over_lost = rpwi_handover_lost(rpwi_steer_handover(p->steer));
	if (p->rx_fd >= 0 && !getsockopt(p->rx_fd, SOL_SOCKET, SO_MEMINFO, mem, &len))
		out->rx_overflow = mem[SK_MEMINFO_DROPS];
}

/* ---- fork ---- */

/* The child has copies of our sockets, and as long as it keeps them a port that the parent closes
 * stays in its group, a slot stays claimed. */
void rpwi_port_forget(struct rpwi_port *p)
{
	if (p->rx_fd >= 0)
		close(p->rx_fd);
	p->rx_fd = -1;
	p->bound = false;
	p->over.pkt.len = 0;
	rpwi_group_free(p->group);
	p->group = rpwi_group_new(p, p->steer);
	rpwi_tx_close(p);
}

static size_t rcvbuf_bytes; /* asked for once */

size_t rpwi_rcvbuf_bytes(void)
{
	if (rcvbuf_bytes)
		return rcvbuf_bytes;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), have = 212992;
	socklen_t len = sizeof(have);
	if (fd >= 0) {
		rpwi_udp_set(fd, SOL_SOCKET, SO_RCVBUF, IO_RCVBUF_BYTES);
		getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &have, &len);
		close(fd);
	}
	return rcvbuf_bytes = (size_t)have;
}
