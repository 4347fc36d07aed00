/* SPDX-License-Identifier: BSD-3-Clause */
/* port_priv.h - struct rpwi_port, for port.c (opening, receiving) and tx.c (sending) alone. */
#ifndef ROPEWAY_IO_PORT_PRIV_H
#define ROPEWAY_IO_PORT_PRIV_H

#include "io/io_priv.h"

enum {
	/* a payload up to this is copied beside its header: cheaper than two iovecs (9.8 against
	 * 8.5 us for 60 of 1 KiB); not so for 4 KiB */
	TX_COPY_MAX = 1024,
	TX_STAGE_MAX = RPWI_TXB_PKTS * (RPWI_HDR_MAX + TX_COPY_MAX + 4 + RPWI_ICRC_LEN),
	TX_IOVS_MAX = RPWI_TXB_IOVS + RPWI_TXB_PKTS + 1,
	LATER_PKTS_MAX = 4096,
	IO_ICMP_KEPT = 16, /* until the device asks */
};

/* Consecutive packets that go to the kernel as one datagram, or one GSO batch. */
struct tx_run {
	unsigned first, npkt;
	unsigned iov_first, niov;
	uint32_t seg_len, len;
};

/* A batch on its way out: headers, small payloads and trailers lie in `stage`, in the order of the
 * wire, so that a packet's ICRC and the next one's header are one piece; large payloads stay where
 * they are. */
struct tx_build {
	const struct rpwi_txb *b;
	struct rpwi_flow flow;
	struct rpwi_icrc_run icrc;
	unsigned first;
	bool gso;
	bool ack_waits; /* for the end of the run that has just begun */
	/* As far as whole packets got: what a fault in the payload of the next one leaves to be
	 * sent. */
	unsigned done, done_niov, done_runs;
	size_t done_last_len;
	unsigned niov, nruns;
	size_t staged;
	bool open; /* the last iovec ends at stage + staged, and may grow */
	struct iovec iov[TX_IOVS_MAX];
	struct tx_run run[RPWI_TXB_PKTS];
	uint8_t stage[TX_STAGE_MAX];
};

/* A packet that an injected fault keeps back. */
struct later {
	struct later *next;
	uint64_t due_ns;
	bool held; /* goes after the next one, or when due */
	bool by_lane;
	union io_sockaddr to;
	socklen_t to_len;
	struct rpwi_flow flow;
	uint8_t ttl, tos;
	uint32_t qp; /* of the batch: rpwi_txb.ordinal */
	size_t len;
	uint8_t data[];
};

struct rpwi_port {
	struct rpwi_port *next; /* rpwi_ports */
	unsigned refs;
	struct rpwi_steer *steer;
	struct rpwi_addr local;
	struct rpwi_port_stats n;

	/* receiving */
	int rx_fd;
	bool bound; /* false while another user's process holds the port; */
	bool mute;  /* and where he does not hand our packets over: nothing goes by UDP */
	uint64_t rebind_at_ns;
	bool want_ttl;
	struct rpwi_group *group;
	unsigned receives;
	uint8_t *buf; /* IO_GRO_BYTES_MAX */
	/* Segments in a row for one other process, in `buf`, not yet handed over. */
	struct {
		const uint8_t *at;
		struct io_dest to;
		struct io_packet pkt;
	} over; /* pkt.len 0: none */

	/* sending */
	int tx_fd;
	uint16_t sport;
	bool gso_off;  /* the kernel or the NIC refuses it */
	int ttl, tos;  /* what tx_fd has now, -1 unknown */
	int mcast_ttl; /* and for groups; 0: nothing was sent to one */
	struct rpwi_fault *fault;
	struct later *later; /* by due_ns */
	unsigned nlater;
	unsigned icmp_head, icmp_tail; /* free-running, into: */
	struct rpwi_icmp icmp[IO_ICMP_KEPT];
	struct tx_build tx;
};

int rpwi_tx_open(struct rpwi_port *p, char *why, size_t why_len);
void rpwi_tx_close(struct rpwi_port *p);
uint64_t rpwi_tx_deadline(const struct rpwi_port *p);
void rpwi_tx_timer(struct rpwi_port *p, uint64_t now_ns);
/* harm.c: what a fault script has for this packet, beside what *v has already */
void rpwi_harm(struct later *l, struct rpwi_fault_verdict *v);

/* icmp.c: a send has failed, or poll says POLLERR. Pending messages are kept for rpwi_port_icmp.
 * True: the send failed for an earlier packet's sake, and may be made again. */
bool rpwi_icmp_take(struct rpwi_port *p);

#endif
