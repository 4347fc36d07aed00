/* SPDX-License-Identifier: BSD-3-Clause */
/* frame.c - from a captured frame to the UDP datagram in it, if that is RoCEv2. Link types as
 * tcpdump.org lists them. */
#include "cli/explain/explain.h"

enum {
	LINK_NULL = 0,
	LINK_ETHERNET = 1,
	LINK_RAW = 101,
	LINK_LOOP = 108,
	LINK_SLL = 113,
	LINK_IPV4 = 228,
	LINK_IPV6 = 229,
	LINK_SLL2 = 276,
	ETHER_LEN = 14,
	VLAN_LEN = 4,
	VLANS_MAX = 2,
	TYPE_IPV4 = 0x0800,
	TYPE_IPV6 = 0x86dd,
	TYPE_VLAN = 0x8100,
	TYPE_QINQ = 0x88a8,
	PROTO_UDP = 17,
	UDP_LEN = 8,
	IPV4_LEN = 20,
	IPV6_LEN = 40,
	IPV4_FRAGMENT = 0x3fff, /* more fragments, and the offset */
};

struct span {
	const uint8_t *at;
	uint32_t len, cut; /* cut: bytes of the frame's end that were not captured */
};

static bool skip(struct span *s, uint32_t n)
{
	if (n > s->len)
		return false;
	s->at += n;
	s->len -= n;
	return true;
}

/* The link's header; false where what follows cannot be IP. */
static bool link_header(uint32_t link, struct span *s)
{
	uint32_t at;
	switch (link) {
	case LINK_RAW:
	case LINK_IPV4:
	case LINK_IPV6:
		return true;
	case LINK_NULL:
	case LINK_LOOP:
		return skip(s, 4);
	case LINK_SLL:
		return skip(s, 16);
	case LINK_SLL2:
		return skip(s, 20);
	case LINK_ETHERNET:
		at = 12;
		for (int tags = 0; tags <= VLANS_MAX && s->len >= at + 2; tags++) {
			uint16_t type = rpwi_get_be16(s->at + at);
			if (type == TYPE_IPV4 || type == TYPE_IPV6)
				return skip(s, at + 2);
			if (type != TYPE_VLAN && type != TYPE_QINQ)
				return false;
			at += VLAN_LEN;
		}
		return false;
	default:
		return false;
	}
}

static bool ipv4(struct span *s, struct ex_datagram *d)
{
	if (s->len < IPV4_LEN)
		return false;
	const uint8_t *ip = s->at;
	uint32_t head = (ip[0] & 15u) * 4u, total = rpwi_get_be16(ip + 2);
	if (head < IPV4_LEN || head > s->len || total < head || ip[9] != PROTO_UDP ||
		rpwi_get_be16(ip + 6) & IPV4_FRAGMENT)
		return false;
	d->flow.src.family = d->flow.dst.family = 4;
	memcpy(d->flow.src.bytes, ip + 12, 4);
	memcpy(d->flow.dst.bytes, ip + 16, 4);
	d->tos = ip[1];
	d->ttl = ip[8];
	d->ip_id = rpwi_get_be16(ip + 4);
	return skip(s, head);
}

static bool ipv6(struct span *s, struct ex_datagram *d)
{
	/* RoCEv2 has no extension headers (A17.4.5) */
	if (s->len < IPV6_LEN || s->at[6] != PROTO_UDP)
		return false;
	const uint8_t *ip = s->at;
	d->flow.src.family = d->flow.dst.family = 6;
	memcpy(d->flow.src.bytes, ip + 8, 16);
	memcpy(d->flow.dst.bytes, ip + 24, 16);
	d->tos = (uint8_t)(rpwi_get_be16(ip) >> 4);
	d->ttl = ip[7];
	return skip(s, IPV6_LEN);
}

bool rpwi_explain_frame(const struct ex_frame *f, struct ex_datagram *out)
{
	struct span s = {.at = f->bytes, .len = f->len};
	*out = (struct ex_datagram){0};
	if (!link_header(f->link, &s) || !s.len)
		return false;
	unsigned version = s.at[0] >> 4;
	if (!(version == 4 ? ipv4(&s, out) : version == 6 ? ipv6(&s, out) : false))
		return false;
	if (s.len < UDP_LEN)
		return false;
	const uint8_t *udp = s.at;
	out->flow.sport = rpwi_get_be16(udp);
	out->flow.dport = rpwi_get_be16(udp + 2);
	uint32_t udp_len = rpwi_get_be16(udp + 4);
	if (out->flow.dport != RPWI_UDP_PORT || udp_len < UDP_LEN + RPWI_BTH_LEN ||
		!skip(&s, UDP_LEN))
		return false;
	out->payload = s.at;
	out->wire_len = udp_len - UDP_LEN;
	out->len = RPWI_MIN(s.len, out->wire_len); /* Ethernet pads short frames */
	return out->len >= RPWI_BTH_LEN;
}
