/* SPDX-License-Identifier: BSD-3-Clause */
/* path.h - what this process knows of the ways to its peers: who drops its packets, and why. */
#ifndef ROPEWAY_DEVICE_PATH_H
#define ROPEWAY_DEVICE_PATH_H

#include "device/hca.h"

/* path.c; the lock is held. h: the process's */

/* rpwi_port_send gave `rc` for a packet of that QP (0: none of ours) to av's destination: what ICMP
 * says of earlier ones is taken, and what the refusal itself says. Told once for each peer. */
void path_refused(
	struct hca *h, struct rpwi_port *port, const struct rpwi_av *av, uint32_t qpn, int rc);
/* poll says POLLERR for one of the ports' sending sockets */
void path_heard(struct hca *h);
/* A packet whose ICRC is bad (QP q of ours, or NULL): does it fit another source? Never accepted
 * for it. `ip_id`: the ID that was expected. At most PATH_SOLVED_MAX a second are looked at. */
void path_bad_icrc(struct hca *h, const struct dqp *q, const struct rpwi_rx *rx, const uint8_t *seg,
	size_t len, uint16_t ip_id, const struct rpwi_pkt *pkt);
/* Has the peer's own host said, since anything was acknowledged, that the port is nobody's? Where
 * the network cannot say it for another. */
bool path_no_port(const struct dqp *q);
/* q's send is about to complete with IBV_WC_RETRY_EXC_ERR: one line says why, if that is known. */
void path_retries_exceeded(struct hca *h, const struct dqp *q);
/* The UDP port cannot be had: kept for rpwi_dev_path_word. */
void path_port_held(struct hca *h, const char *why);

#endif
