/* SPDX-License-Identifier: BSD-3-Clause */
/* packet.h - RoCEv2 packets: what the UDP payload of port 4791 holds. Pure encode and decode, no
 * state.
 *
 * Source: InfiniBand Architecture Specification vol. 1, chapter 9 (BTH 9.2, extended headers
 * 9.3-9.4, opcodes table 38), and its annex A17 (RoCEv2).
 */
#ifndef ROPEWAY_WIRE_PACKET_H
#define ROPEWAY_WIRE_PACKET_H

#include "base/base.h"

#define RPWI_UDP_PORT 4791
#define RPWI_BTH_LEN 12
#define RPWI_ICRC_LEN 4
#define RPWI_GRH_LEN 40
/* More than the longest header chain we build (BTH 12 + RETH 16 + ImmDt 4, or BTH 12 + AtomicETH
 * 28). */
#define RPWI_HDR_MAX 64
#define RPWI_MTU_MAX 4096
#define RPWI_PACKET_MAX (RPWI_HDR_MAX + RPWI_MTU_MAX + RPWI_ICRC_LEN)
#define RPWI_PKEY_DEFAULT 0xffff
#define RPWI_PSN_MASK 0xffffffu
#define RPWI_QPN_MASK 0xffffffu
#define RPWI_MCAST_QPN 0xffffff /* all QPs of a multicast group (IB 3.5.3, 9.4.1 DestQP) */

/* BTH opcodes: service in the top three bits, operation in the low five. */
enum {
	RPWI_SVC_RC = 0x00,
	RPWI_SVC_UC = 0x20,
	RPWI_SVC_RD = 0x40,
	RPWI_SVC_UD = 0x60,
	RPWI_SVC_CNP = 0x80,
	RPWI_SVC_XRC = 0xa0,
	RPWI_SVC_MASK = 0xe0,
};
enum rpwi_op {
	RPWI_OP_SEND_FIRST = 0x00,
	RPWI_OP_SEND_MIDDLE = 0x01,
	RPWI_OP_SEND_LAST = 0x02,
	RPWI_OP_SEND_LAST_IMM = 0x03,
	RPWI_OP_SEND_ONLY = 0x04,
	RPWI_OP_SEND_ONLY_IMM = 0x05,
	RPWI_OP_WRITE_FIRST = 0x06,
	RPWI_OP_WRITE_MIDDLE = 0x07,
	RPWI_OP_WRITE_LAST = 0x08,
	RPWI_OP_WRITE_LAST_IMM = 0x09,
	RPWI_OP_WRITE_ONLY = 0x0a,
	RPWI_OP_WRITE_ONLY_IMM = 0x0b,
	RPWI_OP_READ_REQ = 0x0c,
	RPWI_OP_READ_RESP_FIRST = 0x0d,
	RPWI_OP_READ_RESP_MIDDLE = 0x0e,
	RPWI_OP_READ_RESP_LAST = 0x0f,
	RPWI_OP_READ_RESP_ONLY = 0x10,
	RPWI_OP_ACK = 0x11,
	RPWI_OP_ATOMIC_ACK = 0x12,
	RPWI_OP_CMP_SWAP = 0x13,
	RPWI_OP_FETCH_ADD = 0x14,
	RPWI_OP_SEND_LAST_INV = 0x16,
	RPWI_OP_SEND_ONLY_INV = 0x17,
	RPWI_OP_ATOMIC_WRITE = 0x1d, /* IB 1.5, annex A19 */
	RPWI_OP_COUNT = 0x20,        /* as many as five bits name: not all of them are VALID */
};

/* Facts about each operation (low five bits), one table: which headers follow the BTH, and what
 * kind of packet it is. */
enum {
	RPWI_F_RETH = 1 << 0,
	RPWI_F_ATOMICETH = 1 << 1,
	RPWI_F_AETH = 1 << 2,
	RPWI_F_ATOMICACK = 1 << 3,
	RPWI_F_IMM = 1 << 4,
	RPWI_F_IETH = 1 << 5,
	RPWI_F_FIRST = 1 << 6, /* begins a message (FIRST and ONLY) */
	RPWI_F_LAST = 1 << 7,  /* ends a message (LAST and ONLY) */
	RPWI_F_PAYLOAD = 1 << 8,
	RPWI_F_REQUEST = 1 << 9,
	RPWI_F_RESPONSE = 1 << 10,
	RPWI_F_SEND = 1 << 11,
	RPWI_F_WRITE = 1 << 12,
	RPWI_F_READ = 1 << 13,
	RPWI_F_ATOMIC = 1 << 14,
	RPWI_F_READRESP = 1 << 15,
	RPWI_F_VALID = 1 << 16,
	RPWI_F_ATOMICWRITE = 1 << 17,
};
struct rpwi_op_info {
	const char *name;
	uint32_t flags;
};
extern const struct rpwi_op_info rpwi_op_info[RPWI_OP_COUNT];

/* Predicates, never raw masks: `op` is the low five bits. */
static inline bool rpwi_op_has(unsigned op, uint32_t flag)
{
	return rpwi_op_info[op % RPWI_OP_COUNT].flags & flag;
}
static inline bool rpwi_op_is_request(unsigned op) { return rpwi_op_has(op, RPWI_F_REQUEST); }
static inline bool rpwi_op_is_response(unsigned op) { return rpwi_op_has(op, RPWI_F_RESPONSE); }
/* "RC SEND_ONLY" for logs and captures; "?" for an unknown opcode. Static storage. */
const char *rpwi_opcode_name(uint8_t opcode);

/* AETH syndromes (IB 9.7.5.2.1). */
enum rpwi_aeth_kind {
	RPWI_AETH_ACK = 0,
	RPWI_AETH_RNR_NAK = 1,
	RPWI_AETH_RESERVED = 2,
	RPWI_AETH_NAK = 3
};
static inline enum rpwi_aeth_kind rpwi_aeth_kind(uint8_t syndrome)
{
	return (enum rpwi_aeth_kind)(syndrome >> 5 & 3);
}
enum rpwi_nak {
	RPWI_NAK_PSN_SEQ = 0,
	RPWI_NAK_INV_REQ = 1,
	RPWI_NAK_REM_ACCESS = 2,
	RPWI_NAK_REM_OP = 3,
	RPWI_NAK_INV_RD = 4,
	RPWI_NAK_COUNT = 5
};
extern const char *const rpwi_nak_name[RPWI_NAK_COUNT];

/* A packet's headers in host order. `payload` points into the caller's buffer. */
struct rpwi_pkt {
	uint8_t opcode; /* service | operation */
	uint8_t pad;    /* pad bytes after the payload, 0..3 */
	bool solicited, migreq, ackreq, fecn, becn;
	uint16_t pkey;
	uint32_t dqpn, psn;
	uint64_t va;
	uint32_t rkey, dma_len; /* RETH; va and rkey of AtomicETH too; rkey of IETH as `inv_rkey` */
	uint64_t swap_add, compare; /* AtomicETH */
	uint8_t syndrome;
	uint32_t msn;         /* AETH */
	uint64_t atomic_orig; /* AtomicAckETH */
	uint32_t imm_be;      /* ImmDt as on the wire (network order, as struct ibv_wc has it) */
	uint32_t inv_rkey;    /* IETH */
	uint32_t qkey, sqpn;  /* DETH (UD) */
	uint16_t hdr_len;
	const uint8_t *payload;
	uint32_t payload_len; /* without pad and ICRC */
	/* Packets that this one stands for beside itself, whose payloads are in it: those of one
	 * message that follow it, as rpwi_pkt_follow has them. No wire carries such a packet. */
	uint16_t more;
	bool placed; /* its payload is where it belongs: nothing is to be copied, nor checked */
};
/* All 0. In two parts: of one so long GCC makes a `rep stos`, which takes as long as all else that
 * is done to decode a packet. */
static inline void rpwi_pkt_clear(struct rpwi_pkt *p)
{
	enum { PART = offsetof(struct rpwi_pkt, msn) };
	memset(p, 0, PART);
	memset((uint8_t *)p + PART, 0, sizeof(*p) - PART);
}
static inline unsigned rpwi_pkt_op(const struct rpwi_pkt *p) { return p->opcode & 0x1f; }
static inline unsigned rpwi_pkt_svc(const struct rpwi_pkt *p) { return p->opcode & RPWI_SVC_MASK; }

enum rpwi_decode_err {
	RPWI_DECODE_OK = 0,
	RPWI_DECODE_SHORT = -1,
	RPWI_DECODE_VERSION = -2,
	RPWI_DECODE_OPCODE = -3,
	RPWI_DECODE_PAD = -4,
	RPWI_DECODE_TOO_LONG = -5,
};
/* Decode a whole UDP payload (BTH .. ICRC). Reads nothing outside data[0..len). 0 or a negative
 * rpwi_decode_err. */
int rpwi_pkt_decode(const uint8_t *data, size_t len, struct rpwi_pkt *out);
/* The same of headers and payload apart, without pad and ICRC: exactly these headers, or it is
 * RPWI_DECODE_SHORT. */
int rpwi_pkt_decode_parts(const uint8_t *hdr, size_t hdr_len, const uint8_t *payload,
	size_t payload_len, struct rpwi_pkt *out);
/* Of those that come one after the other most are alike: the same headers but for the acknowledge
 * request, the PSN and what their extended headers say, the same length. State of the last one
 * decoded; zeroed: nothing. */
struct rpwi_alike {
	bool known;
	uint8_t bth[8]; /* as it came, without the word that ends in the PSN */
	uint32_t payload_len;
	struct rpwi_pkt pkt;
};
/* As rpwi_pkt_decode_parts, into `last`; of one like the one before it only what differs. */
int rpwi_pkt_decode_next(const uint8_t *hdr, size_t hdr_len, const uint8_t *payload,
	size_t payload_len, struct rpwi_alike *last);
/* Can such a packet stand for some that follow it? A FIRST or MIDDLE of a SEND or WRITE over RC. */
bool rpwi_opcode_may_have_more(uint8_t opcode);
/* A BTH of such a packet becomes that of the n-th one after it in the middle of its message. */
void rpwi_pkt_follow(uint8_t bth[RPWI_BTH_LEN], unsigned n);
/* Does a BTH ask for an ACK? From now on, as `ask` says. */
bool rpwi_pkt_ask_ack(uint8_t bth[RPWI_BTH_LEN], bool ask);
/* Only the destination QPN: what steering needs. -1 when shorter than a BTH. */
int32_t rpwi_pkt_peek_qpn(const uint8_t *data, size_t len);
/* A whole packet that is a plain, positive ACK of RC, and nothing else? */
bool rpwi_pkt_is_ack(const uint8_t *data, size_t len);
/* Write the headers of `p` (not the payload) to buf[RPWI_HDR_MAX]; returns their length. The M bit
 * is sent as 1 (as kernel rxe and NICs expect), resv8a 0. p->pad must be (4 - payload_len % 4) %
 * 4. */
size_t rpwi_pkt_encode(const struct rpwi_pkt *p, uint8_t *buf);

/* PSN arithmetic, modulo 2^24 (IB 9.7.2 and 9.2.9). The one place of it. */
static inline uint32_t rpwi_psn_add(uint32_t a, uint32_t n) { return (a + n) & RPWI_PSN_MASK; }
/* a - b as a signed 24-bit number: < 0 when a is before b. */
static inline int32_t rpwi_psn_diff(uint32_t a, uint32_t b) { return (int32_t)((a - b) << 8) >> 8; }

/* The same headers for another packet of the message: only its PSN and acknowledge request differ
 * (IB 9.2.7, 9.2.8: A is the top bit of the word that ends in the PSN). */
static inline void rpwi_pkt_set_psn(uint8_t *hdr, uint32_t psn, bool ackreq)
{
	rpwi_put_be32(hdr + 8, (ackreq ? 1u << 31 : 0) | (psn & RPWI_PSN_MASK));
}

/* Where a packet goes and where it comes from: the L3/L4 facts that the ICRC covers. Addresses are
 * in network order; an IPv4 address is in the first four bytes, the rest 0, so two flows compare
 * with memcmp. Ports in host order. */
struct rpwi_addr {
	uint8_t family; /* 4 or 6 */
	uint8_t bytes[16];
	uint32_t scope; /* interface index for fe80::/10 and ff00::/8, else 0 */
};
static inline bool rpwi_addr_eq(const struct rpwi_addr *a, const struct rpwi_addr *b)
{
	return a->family == b->family && !memcmp(a->bytes, b->bytes, 16);
}
/* 224.0.0.0/4 and ff00::/8 (RFC 1112, RFC 4291): a group, not a host. */
static inline bool rpwi_addr_is_mcast(const struct rpwi_addr *a)
{
	return a->family == 4 ? (a->bytes[0] & 0xf0) == 0xe0 : a->bytes[0] == 0xff;
}
/* fe80::/10 (RFC 4291): it needs the scope. */
static inline bool rpwi_addr_is_link_local6(const struct rpwi_addr *a)
{
	return a->family == 6 && a->bytes[0] == 0xfe && (a->bytes[1] & 0xc0) == 0x80;
}
struct rpwi_flow {
	struct rpwi_addr src, dst;
	uint16_t sport, dport;
};

/* A batch of packets that all go to one destination: the transport appends, io sends (as GSO where
 * sizes allow) and adds the ICRCs. A packet is header bytes, then iov[iov_first ..
 * iov_first+iov_count), then `pad` zero bytes, then the ICRC. */
struct rpwi_txpkt {
	uint16_t hdr_len;
	uint8_t pad;
	uint8_t iov_count;
	/* The payload is one piece that nobody changes until it is acknowledged: it may be read
	 * later. */
	bool stays;
	uint16_t iov_first;
	uint32_t payload_len;
	uint8_t hdr[RPWI_HDR_MAX];
};
struct rpwi_iov {
	const void *base;
	size_t len;
}; /* same layout as struct iovec, const */
enum { RPWI_TXB_PKTS = 64, RPWI_TXB_IOVS = 512, RPWI_TXB_SCRATCH = 64 * RPWI_MTU_MAX };
/* What one GSO send takes: bytes, without the IPv4 and UDP headers; UDP_MAX_SEGMENTS of kernels
 * before 6.9; full packets of a path MTU (enum ibv_mtu), with the headers of a WRITE ONLY. */
enum { RPWI_GSO_BYTES_MAX = 65507, RPWI_GSO_SEGS_MAX = 64 };
static inline unsigned rpwi_gso_pkts(unsigned path_mtu)
{
	static const uint8_t pkts[] = {64, 64, 64, 62, 31, 15};
	return pkts[RPWI_MIN(path_mtu, 5u)];
}
struct rpwi_av;
struct rpwi_txb {
	const struct rpwi_av *av; /* destination; set by the first packet */
	unsigned npkt, niov;
	unsigned pkt_max; /* append no more than this many (at most RPWI_TXB_PKTS) */
	/* It goes by datagrams: as many whole ones as the window has room for. */
	bool by_datagrams;
	/* A WRITE of several packets may go as WRITE ONLYs, which are of one length. */
	bool may_split;
	/* UD: only to QPs that have the same of these bits as `dqpn`: of one process */
	uint32_t dqpn, dqpn_mask;
	/* 1 + the number of a plain ACK before requests, which may travel behind them, because the
	 * peer will take it first; 0: none */
	unsigned ack;
	size_t scratch_used;
	struct rpwi_txpkt pkt[RPWI_TXB_PKTS];
	struct rpwi_iov iov[RPWI_TXB_IOVS];
	/* RPWI_TXB_SCRATCH bytes, owned by whoever made the batch: READ response snapshots,
	 * atomics */
	uint8_t *scratch;
	/* under a fault script: the n-th QP of the process, whose packets these are; 0: of none */
	uint32_t ordinal;
};
/* One packet of RC whose payload is short and in one piece, made without a batch. */
enum { RPWI_SHORT_HDR_MAX = RPWI_BTH_LEN + 16 + 4 };
struct rpwi_short {
	uint8_t hdr[RPWI_SHORT_HDR_MAX];
	uint8_t hdr_len;
	bool led; /* by a plain ACK to the same QP, of ack_psn */
	uint8_t aeth[4];
	uint32_t ack_psn, psn, len;
	const void *data;
};
static inline void rpwi_txb_reset(struct rpwi_txb *b)
{
	b->av = NULL;
	b->npkt = b->niov = b->ack = 0;
	b->dqpn = b->dqpn_mask = 0;
	b->scratch_used = 0;
	b->pkt_max = RPWI_TXB_PKTS;
	b->by_datagrams = b->may_split = false;
}

/* An address vector, resolved: made by the device from ibv_ah_attr, read by rc (peer check) and io
 * (sending). */
struct rpwi_av {
	struct rpwi_flow flow; /* ours -> theirs; dport 4791 */
	uint8_t hop_limit, tclass, sl, sgid_index;
	uint32_t flow_label;
	bool loopback_zone; /* peer is one of this host's own addresses */
	void *port;         /* io's sending side for flow.src; opaque here */
	void *cc;           /* struct rpwi_cc of this peer address; opaque here */
};

#endif
