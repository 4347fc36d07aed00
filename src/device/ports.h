/* SPDX-License-Identifier: BSD-3-Clause */
/* ports.h - the local addresses and peers of QPs, and address vectors, which name them.
 * Private to device/. */
#ifndef ROPEWAY_DEVICE_PORTS_H
#define ROPEWAY_DEVICE_PORTS_H

#include "device/hca.h"

/* ports.c; the lock is held. lanes_do: as rpwi_port_open */
struct dport *port_get(
	const struct rpwi_addr *a, bool lanes_do, char *why, size_t why_len, int *err);
void port_put(struct dport *p);
/* Closes ports that nobody has used for a while, or all of those; `before` sees each once more. Of
 * the service thread, or when there is none. */
void ports_tend(bool all, void (*before)(struct dport *p));
uint64_t ports_deadline(void);
/* receive.c: what lies in the socket of a port that is about to close for other processes of this
 * host goes to them. */
void receive_for_others(struct dport *p);
void port_stats_add(const struct rpwi_port *io, struct rpwi_port_stats *sum);
/* dqpn: any QPN of that process */
struct dpeer *peer_get(const struct rpwi_addr *a, uint32_t dqpn, unsigned mtu_bytes);
void peer_put(struct dpeer *p);

/* gid.c */
void gid_text(const uint8_t *raw, char *out); /* INET6_ADDRSTRLEN */
/* ifindex: of the device, for addresses that need one */
void gid_to_addr(const union ibv_gid *gid, int ifindex, struct rpwi_addr *a);

/* ah.c: 0, or -ETIMEDOUT: nobody answers at an address of the own subnet, which may take a second.
 * A vector that is wrong in another way is ah_resolve's to refuse. No lock is held. */
int ah_find_host(struct dctx *c, const struct ibv_ah_attr *attr);
/* the lock is held for what follows */
/* Resolve an address vector: 0, or a positive errno (EINVAL: bad port, no GRH, GID index empty or
 * not usable, families differ), with the reason in the log. `dqpn`: of a RC QP at the other end,
 * else 0; one that a lane reaches needs no UDP port, and the peer is the process that has it. On
 * success *port and *peer are referenced for the caller. */
int ah_resolve(struct dctx *c, const struct ibv_ah_attr *attr, uint32_t dqpn, unsigned mtu_bytes,
	struct rpwi_av *av, struct dport **port, struct dpeer **peer);
/* Before an address handle is sent by for the first time: what it is sent from, which a UD QP has
 * open as a rule, is opened no earlier. 0 or -errno, with the reason in the log. */
int ah_reach(struct dah *ah);

#endif
