/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_path.h - what a side can offer (devices, ports, GIDs), its handle, and the rule by which
 * both sides choose the same pair from both offers. No verbs calls.
 *
 * The handle, little-endian: magic "RPWV", version, number of ports, credits, nonce, the address at
 * which this side sees the peer, then the ports, each with its GIDs.
 */
#ifndef ROPEWAY_TRAN_VERBS_PATH_H
#define ROPEWAY_TRAN_VERBS_PATH_H

#include "tran/tran.h"

enum {
	VERBS_PLANES_MAX = 6, /* as many keys fit into a tran_desc */
	VERBS_DEV_PORTS_MAX = 2,
	VERBS_PORTS_MAX = 8,
	VERBS_GIDS_MAX = 8,
	VERBS_NAME_BYTES = 32,
	VERBS_GID_TEXT = 46, /* INET6_ADDRSTRLEN */
};

enum verbs_gid_type { VERBS_GID_IB, VERBS_GID_ROCE_V1, VERBS_GID_ROCE_V2, VERBS_GID_TYPES };
struct verbs_gid {
	uint8_t raw[16];
	uint8_t type, index;
	uint8_t prefix; /* bits of its subnet, counted in the GID; 0: not known */
};
struct verbs_port {
	uint8_t dev, port, mtu /* enum ibv_mtu */, gids;
	uint8_t rd_in; /* READs and atomics that it answers at a time */
	bool ethernet, atomics, software;
	bool wide; /* before it is up, this side sends a frame that fills a packet */
	uint16_t lid;
	uint32_t mbps, qpn, psn;
	char name[VERBS_NAME_BYTES];
	struct verbs_gid gid[VERBS_GIDS_MAX];
};
struct verbs_offer {
	uint16_t window; /* credits that the peer begins with */
	uint32_t nonce;
	uint8_t sees[16]; /* the peer's address as this side sees it, as a GID; zero: not known */
	unsigned ports;
	struct verbs_port port[VERBS_PORTS_MAX];
};
/* How two GIDs may reach each other, best last. */
enum verbs_reach {
	VERBS_REACH_NOT,
	VERBS_REACH_LINK_LOCAL,
	VERBS_REACH_ROUTED,
	VERBS_REACH_SUBNET,
	VERBS_REACH_SAME,
	VERBS_REACHES
};
struct verbs_choice {
	unsigned own_port, own_gid, peer_port, peer_gid; /* indices into the offers */
	enum verbs_reach reach;
	unsigned ways; /* pairs of GIDs that would do */
};

/* Gives the length. */
size_t rpwi_verbs_offer_write(const struct verbs_offer *o, uint8_t *out, size_t room);
/* 0, or RPW_ERR_PROTOCOL: it is not one. */
int rpwi_verbs_offer_read(struct verbs_offer *o, const uint8_t *in, size_t len);
/* Both sides come to the same pair. False: no two of them reach each other. */
bool rpwi_verbs_choose(const struct verbs_offer *own, const struct verbs_offer *peer,
	bool own_active, bool same_host, struct verbs_choice *out);

/* The choice for people: "rpw_eth0, GID 1 ::ffff:10.0.0.1, MTU 1024, to rxe0 ::ffff:10.0.0.2 on one
 * subnet (2 other pairs of GIDs would do)". */
void rpwi_verbs_choice_text(const struct verbs_offer *own, const struct verbs_offer *peer,
	const struct verbs_choice *c, char *out, size_t room);

/* A check sum of handles and descriptions. */
uint32_t rpwi_verbs_check(const uint8_t *bytes, size_t len);
bool rpwi_verbs_gid_is_ipv4(const uint8_t *gid);
bool rpwi_verbs_gid_is_link_local(const uint8_t *gid);
const char *rpwi_verbs_gid_text(const uint8_t *gid, char *out, size_t room);
/* A numeric address as a GID; zero when it is none. */
void rpwi_verbs_gid_of_address(const char *text, uint8_t *gid);

#endif
