/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_path.c - offers and the choice between them.
 *
 * Both sides tell each other their devices, GIDs, MTUs and the address at which they see the other,
 * and choose the same pair by one rule. First comes what reaches furthest with most certainty: the
 * control path's own addresses and common subnets, then routers, then link-local addresses. Then
 * RoCE v2, devices that are not software, speed, MTU. Several rails are not used at once. */
#include "tran/verbs/verbs_path.h"

#include <arpa/inet.h>
#include <stdio.h>

#include "base/error.h"
#include "ropeway.h"

enum {
	VERSION = 1,
	HEAD_BYTES = 32,
	CHECK_AT = 28,
	PORT_BYTES = 24 + VERBS_NAME_BYTES,
	GID_BYTES = 19,
	MTU_MIN = 1,
	MTU_MAX = 5,
	WINDOW_LIMIT = 1024
};
_Static_assert(
	HEAD_BYTES + VERBS_PORTS_MAX * (PORT_BYTES + VERBS_GIDS_MAX * GID_BYTES) <= TRAN_HANDLE_MAX,
	"a full offer is a handle");
static const char magic[4] = {'R', 'P', 'W', 'V'};

static void put_le16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}
static uint16_t get_le16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

/* ---- addresses ---- */

static const uint8_t ipv4_prefix[12] = {[10] = 0xff, [11] = 0xff};
bool rpwi_verbs_gid_is_ipv4(const uint8_t *gid)
{
	return !memcmp(gid, ipv4_prefix, sizeof(ipv4_prefix));
}

static bool gid_is_zero(const uint8_t *gid)
{
	static const uint8_t zero[16];
	return !memcmp(gid, zero, 16);
}

static bool gid_is_loopback(const uint8_t *gid)
{
	static const uint8_t one[16] = {[15] = 1};
	return !memcmp(gid, one, 16) || (rpwi_verbs_gid_is_ipv4(gid) && gid[12] == 127);
}

bool rpwi_verbs_gid_is_link_local(const uint8_t *gid)
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

const char *rpwi_verbs_gid_text(const uint8_t *gid, char *out, size_t room)
{
	if (!inet_ntop(AF_INET6, gid, out, (socklen_t)room))
		snprintf(out, room, "?");
	return out;
}

void rpwi_verbs_gid_of_address(const char *text, uint8_t *gid)
{
	memset(gid, 0, 16);
	if (inet_pton(AF_INET6, text, gid) == 1)
		return;
	memset(gid, 0, 16);
	if (inet_pton(AF_INET, text, gid + 12) == 1)
		memcpy(gid, ipv4_prefix, sizeof(ipv4_prefix));
}

static bool same_prefix(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned bytes = bits / 8, rest = bits % 8;
	return !memcmp(a, b, bytes) && (!rest || (a[bytes] ^ b[bytes]) >> (8 - rest) == 0);
}

/* ---- the handle ---- */

uint32_t rpwi_verbs_check(const uint8_t *bytes, size_t len)
{
	uint32_t h = 2166136261u; /* FNV-1a: against accidents, not against forgers */
	for (size_t i = 0; i < len; i++)
		h = (h ^ bytes[i]) * 16777619u;
	return h;
}

size_t rpwi_verbs_offer_write(const struct verbs_offer *o, uint8_t *out, size_t room)
{
	uint8_t *p = out;
	if (room < TRAN_HANDLE_MAX)
		return 0;
	memcpy(p, magic, 4);
	p[4] = VERSION;
	p[5] = (uint8_t)o->ports;
	put_le16(p + 6, o->window);
	rpwi_put_le32(p + 8, o->nonce);
	memcpy(p + 12, o->sees, 16);
	p += HEAD_BYTES;
	for (unsigned i = 0; i < o->ports; i++) {
		const struct verbs_port *t = &o->port[i];
		memset(p, 0, PORT_BYTES);
		p[0] = t->dev;
		p[1] = t->port;
		p[2] = t->mtu;
		p[3] = t->gids;
		p[4] = t->rd_in;
		p[5] = (uint8_t)(t->ethernet | t->atomics << 1 | t->software << 2 | t->wide << 3);
		put_le16(p + 6, t->lid);
		rpwi_put_le32(p + 8, t->mbps);
		rpwi_put_le32(p + 12, t->qpn);
		rpwi_put_le32(p + 16, t->psn);
		memcpy(p + 24, t->name, VERBS_NAME_BYTES);
		p += PORT_BYTES;
		for (unsigned g = 0; g < t->gids; g++, p += GID_BYTES) {
			p[0] = t->gid[g].type;
			p[1] = t->gid[g].index;
			p[2] = t->gid[g].prefix;
			memcpy(p + 3, t->gid[g].raw, 16);
		}
	}
	memset(out + CHECK_AT, 0, 4);
	rpwi_put_le32(out + CHECK_AT, rpwi_verbs_check(out, (size_t)(p - out)));
	return (size_t)(p - out);
}

static bool port_read(struct verbs_port *t, const uint8_t **in, const uint8_t *end)
{
	const uint8_t *p = *in;
	if (end - p < PORT_BYTES)
		return false;
	*t = (struct verbs_port){.dev = p[0],
		.port = p[1],
		.mtu = p[2],
		.gids = p[3],
		.rd_in = p[4],
		.ethernet = p[5] & 1,
		.atomics = p[5] >> 1 & 1,
		.software = p[5] >> 2 & 1,
		.wide = p[5] >> 3 & 1,
		.lid = get_le16(p + 6),
		.mbps = rpwi_get_le32(p + 8),
		.qpn = rpwi_get_le32(p + 12),
		.psn = rpwi_get_le32(p + 16)};
	memcpy(t->name, p + 24, VERBS_NAME_BYTES);
	t->name[VERBS_NAME_BYTES - 1] = '\0';
	for (char *c = t->name; *c; c++) /* it is printed */
		if (*c <= ' ' || *c > '~')
			*c = '?';
	p += PORT_BYTES;
	if (t->mtu < MTU_MIN || t->mtu > MTU_MAX || t->gids > VERBS_GIDS_MAX ||
		t->dev >= VERBS_PLANES_MAX || t->qpn > 0xffffff || t->psn > 0xffffff ||
		end - p < t->gids * GID_BYTES)
		return false;
	for (unsigned g = 0; g < t->gids; g++, p += GID_BYTES) {
		t->gid[g] = (struct verbs_gid){.type = p[0], .index = p[1], .prefix = p[2]};
		memcpy(t->gid[g].raw, p + 3, 16);
		if (t->gid[g].type >= VERBS_GID_TYPES || t->gid[g].prefix > 128)
			return false;
	}
	*in = p;
	return true;
}

int rpwi_verbs_offer_read(struct verbs_offer *o, const uint8_t *in, size_t len)
{
	const uint8_t *p = in + HEAD_BYTES, *end = in + len;
	memset(o, 0, sizeof(*o));
	if (len < HEAD_BYTES || memcmp(in, magic, 4))
		return rpwi_fail(RPW_ERR_PROTOCOL,
			"verbs: the peer's handle (%zu bytes) is not one of the verbs transport",
			len);
	if (in[4] != VERSION)
		return rpwi_fail(RPW_ERR_PROTOCOL,
			"verbs: the peer's handle has version %u, this side speaks %u: run the "
			"same ropeway on both",
			in[4], VERSION);
	o->ports = in[5];
	o->window = get_le16(in + 6);
	o->nonce = rpwi_get_le32(in + 8);
	memcpy(o->sees, in + 12, 16);
	uint32_t check = rpwi_verbs_check(in, CHECK_AT);
	for (size_t i = 0; i < 4; i++)
		check *= 16777619u; /* the four bytes of the check count as zeros */
	for (size_t i = HEAD_BYTES; i < len; i++)
		check = (check ^ in[i]) * 16777619u;
	bool good = check == rpwi_get_le32(in + CHECK_AT) && o->ports &&
		    o->ports <= VERBS_PORTS_MAX && o->window >= 2 && o->window <= WINDOW_LIMIT;
	for (unsigned i = 0; good && i < o->ports; i++)
		good = port_read(&o->port[i], &p, end);
	if (good && p == end)
		return 0;
	return rpwi_fail(RPW_ERR_PROTOCOL,
		"verbs: the peer's handle (%zu bytes, %u ports) is garbled", len, in[5]);
}

/* ---- the choice ---- */

static enum verbs_reach reach_of(const struct verbs_gid *a, const struct verbs_gid *b,
	const uint8_t *a_seen, const uint8_t *b_seen, bool same_host)
{
	bool same = !memcmp(a->raw, b->raw, 16);
	if (a->type != b->type || rpwi_verbs_gid_is_ipv4(a->raw) != rpwi_verbs_gid_is_ipv4(b->raw))
		return VERBS_REACH_NOT;
	if (gid_is_loopback(a->raw) || gid_is_loopback(b->raw))
		return same && same_host ? VERBS_REACH_SAME : VERBS_REACH_NOT;
	/* Two hosts with one address are not on one network: bridges of containers, say. */
	if (same)
		return same_host ? VERBS_REACH_SAME : VERBS_REACH_NOT;
	if (rpwi_verbs_gid_is_link_local(a->raw) != rpwi_verbs_gid_is_link_local(b->raw))
		return VERBS_REACH_NOT;
	if (a->type == VERBS_GID_IB)
		return same_prefix(a->raw, b->raw, 64) ? VERBS_REACH_SUBNET : VERBS_REACH_ROUTED;
	if (rpwi_verbs_gid_is_link_local(a->raw))
		return VERBS_REACH_LINK_LOCAL; /* perhaps on one link: it is unknown */
	/* The way that the control path goes is known to work. */
	if (!gid_is_zero(a_seen) && !memcmp(a->raw, a_seen, 16) && !memcmp(b->raw, b_seen, 16))
		return VERBS_REACH_SUBNET;
	unsigned bits = RPWI_MIN(a->prefix, b->prefix);
	return bits && same_prefix(a->raw, b->raw, bits) ? VERBS_REACH_SUBNET : VERBS_REACH_ROUTED;
}

/* Higher is better: reach, RoCE v2, hardware (or the kernel) on as many sides as there can be, the
 * slower side's speed, the smaller MTU, IPv4-mapped. */
static uint64_t score(const struct verbs_port *ap, const struct verbs_gid *a,
	const struct verbs_port *bp, enum verbs_reach reach)
{
	uint64_t mbps = RPWI_MIN(ap->mbps, bp->mbps), real = !ap->software + !bp->software;
	return (uint64_t)reach << 48 | (uint64_t)(a->type == VERBS_GID_ROCE_V2) << 44 | real << 40 |
	       mbps << 8 | (uint64_t)RPWI_MIN(ap->mtu, bp->mtu) << 4 |
	       rpwi_verbs_gid_is_ipv4(a->raw);
}

bool rpwi_verbs_choose(const struct verbs_offer *own, const struct verbs_offer *peer,
	bool own_active, bool same_host, struct verbs_choice *out)
{
	/* Both walk the two offers in one order, the active side's first, and the first of equals
	 * wins. */
	const struct verbs_offer *a = own_active ? own : peer;
	const struct verbs_offer *b = own_active ? peer : own;
	struct verbs_choice best = {0};
	uint64_t best_score = 0;
	unsigned ways = 0;
	for (unsigned i = 0; i < a->ports; i++)
		for (unsigned g = 0; g < a->port[i].gids; g++)
			for (unsigned j = 0; j < b->ports; j++)
				for (unsigned h = 0; h < b->port[j].gids; h++) {
					const struct verbs_gid *x = &a->port[i].gid[g],
							       *y = &b->port[j].gid[h];
					if (a->port[i].ethernet != b->port[j].ethernet)
						continue;
					enum verbs_reach reach =
						reach_of(x, y, b->sees, a->sees, same_host);
					uint64_t s =
						reach == VERBS_REACH_NOT
							? 0
							: score(&a->port[i], x, &b->port[j], reach);
					ways += s != 0;
					if (s > best_score) {
						best_score = s;
						best = (struct verbs_choice){i, g, j, h, reach, 0};
					}
				}
	best.ways = ways;
	*out = own_active ? best
			  : (struct verbs_choice){best.peer_port, best.peer_gid, best.own_port,
				    best.own_gid, best.reach, ways};
	return best_score != 0;
}

void rpwi_verbs_choice_text(const struct verbs_offer *own, const struct verbs_offer *peer,
	const struct verbs_choice *c, char *out, size_t room)
{
	static const char *const where[VERBS_REACHES] = {
		[VERBS_REACH_LINK_LOCAL] = "perhaps on one link",
		[VERBS_REACH_ROUTED] = "by a router",
		[VERBS_REACH_SUBNET] = "on one subnet",
		[VERBS_REACH_SAME] = "on this host",
	};
	const struct verbs_port *a = &own->port[c->own_port], *b = &peer->port[c->peer_port];
	const struct verbs_gid *x = &a->gid[c->own_gid], *y = &b->gid[c->peer_gid];
	char from[VERBS_GID_TEXT], to[VERBS_GID_TEXT], others[48] = "";
	/* The control path's own pair counts as much as one on a subnet; but what it is is told. */
	unsigned bits = x->prefix && y->prefix ? RPWI_MIN(x->prefix, y->prefix)
					       : RPWI_MAX(x->prefix, y->prefix);
	enum verbs_reach reach = c->reach;
	if (reach == VERBS_REACH_SUBNET && bits && !same_prefix(x->raw, y->raw, bits))
		reach = VERBS_REACH_ROUTED;
	if (c->ways > 1)
		snprintf(others, sizeof(others), " (%u other pair%s of GIDs would do)", c->ways - 1,
			c->ways == 2 ? "" : "s");
	snprintf(out, room, "%s, GID %u %s, MTU %u, to %s %s %s%s", a->name, x->index,
		rpwi_verbs_gid_text(x->raw, from, sizeof(from)), 128u << RPWI_MIN(a->mtu, b->mtu),
		b->name, rpwi_verbs_gid_text(y->raw, to, sizeof(to)), where[reach], others);
}
