/* SPDX-License-Identifier: BSD-3-Clause */
/* gsi_priv.h - QP 1 as the other files of device/ know it; rdma_cm has gsi.h. The lock is held in
 * all of it. From below: gsi_slot.c, gsi_send.c, gsi_route.c, gsi.c, gsi_defer.c; gsi_face.c is
 * above the whole HCA. */
#ifndef ROPEWAY_DEVICE_GSI_PRIV_H
#define ROPEWAY_DEVICE_GSI_PRIV_H

#include <stdio.h>

#include "device/hca.h"

enum { GSI_HOP_LIMIT = 64 };

/* gsi_slot.c */
unsigned gsi_slot_of_id(uint32_t comm_id); /* of the process that made a communication ID */
/* Of another process, for which an outgoing message names a communication ID; 0: it names none */
uint16_t gsi_slot_of_receiver(const uint8_t *mad);
bool gsi_well_formed(const struct rpwi_pkt *pkt);
bool gsi_slot_is_request(uint16_t attr); /* RPWI_CM_REQ or RPWI_CM_SIDR_REQ */

/* gsi_send.c */
void gsi_send(const struct rpwi_cm_path *path, const uint8_t *mad);
/* a MAD that is not for QP 1; any packet, the device's own */
void gsi_send_mad_to(const struct rpwi_addr *local, const struct rpwi_addr *remote, uint32_t dqpn,
	const uint8_t *mad);
void gsi_send_packet(const struct rpwi_addr *local, const struct rpwi_addr *remote,
	uint8_t hop_limit, uint8_t tclass, const struct rpwi_pkt *pkt);
bool gsi_is_own(const struct rpwi_addr *a); /* an address of this host */
/* The device that has the address among its usable ones, and its GID's index; or NULL. */
const struct dev *gsi_dev_of(const struct rpwi_addr *a, unsigned *index);
void gsi_send_ports_sweep(bool all); /* closes those that nobody uses, or all of them */
void gsi_send_begin(uint32_t psn);

/* gsi_route.c */
/* true: it was another process's */
bool gsi_pass_on(struct dport *port, const struct rpwi_rx *rx, const uint8_t *seg, size_t len,
	const struct rpwi_pkt *pkt);
/* true: it was for a process that has ended */
bool gsi_answer_for_gone(const struct rpwi_cm_path *path, const uint8_t *mad, size_t len);

/* gsi.c */
/* The engine, which is made where there is none, for one user more. 0 or -errno. */
int gsi_engine_get(struct rpwi_cm **out);
void gsi_engine_put(void);
/* a packet for QP 0 or 1 */
void gsi_rx(const struct rpwi_rx *rx, const struct rpwi_pkt *pkt, uint64_t now_ns);
uint64_t gsi_deadline(void);
void gsi_timer(uint64_t now_ns); /* when the deadline has come */
void gsi_left_to_parent(void);   /* after a fork, this process has a place of its own now */
void gsi_exit(void);             /* the process ends: its peers are told */
void gsi_hca_gone(void);         /* nobody uses the HCA any more */
void gsi_addresses_changed(void);
void gsi_stats_print(FILE *to);
/* a question about processes, or an answer (alive.c)? True: dealt with */
bool gsi_ask(const struct rpwi_rx *rx, const struct rpwi_pkt *pkt, uint64_t now_ns);
void gsi_begin(void); /* the HCA has a place */
/* a message that came, with its GIDs filled in, for the engine */
void gsi_feed(const struct rpwi_cm_path *path, const uint8_t *mad, size_t len, uint64_t now_ns);

/* gsi_defer.c */
/* true: kept for now */
bool gsi_defer(const struct rpwi_rx *rx, const uint8_t *seg, size_t len, const struct rpwi_pkt *pkt,
	uint64_t now_ns);
uint64_t gsi_defer_deadline(void);
void gsi_defer_timer(uint64_t now_ns);
void gsi_defer_forget(void);

#endif
