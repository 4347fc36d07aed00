/* SPDX-License-Identifier: BSD-3-Clause */
/* mad.h - management datagrams of the communication management class: encode and decode, no state.
 *
 * A CM message is one UD SEND ONLY to QP 1 of the peer with Q_Key 0x80010000; its payload is one
 * MAD of 256 bytes: 24 bytes of common header, 232 of message. Sources: InfiniBand Architecture
 * Specification vol. 1, 13.4 (MAD format), 12.6 (CM messages, figures and tables of each), 12.11
 * (SIDR), annex A11 (IP addressing: the CMA header that librdmacm's peers put in front of REQ's and
 * SIDR_REQ's private data).
 */
#ifndef ROPEWAY_WIRE_MAD_H
#define ROPEWAY_WIRE_MAD_H

#include "wire/packet.h"

enum {
	RPWI_GSI_QPN = 1,
	RPWI_MAD_LEN = 256,
	RPWI_MAD_HDR_LEN = 24,
	RPWI_CM_CLASS = 0x07,
	RPWI_CM_CLASS_VERSION = 2,
	RPWI_CMA_HDR_LEN = 36,
};
#define RPWI_GSI_QKEY 0x80010000u

/* MAD attribute IDs of the CM class (IB 12.6, table "CM attributes"). */
enum rpwi_cm_attr {
	RPWI_CM_REQ = 0x10,
	RPWI_CM_MRA = 0x11,
	RPWI_CM_REJ = 0x12,
	RPWI_CM_REP = 0x13,
	RPWI_CM_RTU = 0x14,
	RPWI_CM_DREQ = 0x15,
	RPWI_CM_DREP = 0x16,
	RPWI_CM_SIDR_REQ = 0x17,
	RPWI_CM_SIDR_REP = 0x18,
	RPWI_CM_LAP = 0x19,
	RPWI_CM_APR = 0x1a,
};
const char *rpwi_cm_attr_name(unsigned attr); /* "REQ"; "?" for an unknown one */

/* REJ reasons (IB 12.6.7.2). */
enum rpwi_cm_rej {
	RPWI_REJ_NO_QP = 1,
	RPWI_REJ_NO_EEC = 2,
	RPWI_REJ_NO_RESOURCES = 3,
	RPWI_REJ_TIMEOUT = 4,
	RPWI_REJ_UNSUPPORTED = 5,
	RPWI_REJ_INVALID_COMM_ID = 6,
	RPWI_REJ_INVALID_COMM_INSTANCE = 7,
	RPWI_REJ_INVALID_SERVICE_ID = 8,
	RPWI_REJ_INVALID_TRANSPORT_TYPE = 9,
	RPWI_REJ_STALE_CONN = 10,
	RPWI_REJ_RDC_NOT_EXIST = 11,
	RPWI_REJ_INVALID_GID = 12,
	RPWI_REJ_INVALID_LID = 13,
	RPWI_REJ_INVALID_SL = 14,
	RPWI_REJ_INVALID_TRAFFIC_CLASS = 15,
	RPWI_REJ_INVALID_HOP_LIMIT = 16,
	RPWI_REJ_INVALID_PACKET_RATE = 17,
	RPWI_REJ_INVALID_ALT_GID = 18,
	RPWI_REJ_INVALID_MTU = 26,
	RPWI_REJ_INSUFFICIENT_RESP_RESOURCES = 27,
	RPWI_REJ_CONSUMER_DEFINED = 28,
	RPWI_REJ_INVALID_RNR_RETRY = 29,
	RPWI_REJ_DUPLICATE_LOCAL_COMM_ID = 30,
	RPWI_REJ_INVALID_CLASS_VERSION = 31,
	RPWI_REJ_VENDOR_OPTION_NOT_SUPPORTED = 35,
};
const char *rpwi_cm_rej_name(unsigned reason);

/* Room for private data in each message, bytes. The CMA header takes 36 of REQ's and SIDR_REQ's. */
enum {
	RPWI_REQ_PDATA = 92,
	RPWI_MRA_PDATA = 222,
	RPWI_REJ_PDATA = 148,
	RPWI_REP_PDATA = 196,
	RPWI_RTU_PDATA = 224,
	RPWI_DREQ_PDATA = 220,
	RPWI_DREP_PDATA = 224,
	RPWI_SIDR_REQ_PDATA = 216,
	RPWI_SIDR_REP_PDATA = 136,
};

/* One of REQ's two paths (IB 12.6.5: primary, alternate). */
struct rpwi_cm_req_path {
	uint16_t local_lid, remote_lid; /* 0xffff (permissive) on RoCE */
	uint8_t local_gid[16], remote_gid[16];
	uint32_t flow_label;
	uint8_t packet_rate, traffic_class, hop_limit, sl;
	bool subnet_local;
	uint8_t local_ack_timeout; /* 5 bits, 4.096 us * 2^n */
};

/* Fields in host order; GUIDs and GIDs are bytes as on the wire. What a message does not have is
 * 0. */
struct rpwi_cm_msg {
	uint16_t attr; /* enum rpwi_cm_attr */
	uint64_t tid;  /* of the MAD header */
	/* the sender's, the receiver's; of SIDR: local_comm_id is the request ID */
	uint32_t local_comm_id, remote_comm_id;
	union {
		struct {
			uint64_t service_id;
			uint8_t ca_guid[8];
			uint32_t qkey, qpn, eecn, starting_psn;
			uint8_t responder_resources, initiator_depth;
			uint8_t remote_cm_response_timeout, local_cm_response_timeout; /* 5 bits */
			uint8_t transport; /* 0 RC, 1 UC, 2 RD, 3 XRC by its extension */
			bool flow_control, srq, rdc_exists;
			uint8_t retry_count, rnr_retry_count, max_cm_retries;
			uint8_t path_mtu; /* enum ibv_mtu */
			uint16_t pkey;
			uint8_t extended_transport;
			uint32_t vendor_id;
			struct rpwi_cm_req_path primary, alternate;
		} req;
		struct {
			uint8_t msg_mraed; /* 0 REQ, 1 REP, 2 LAP */
			uint8_t service_timeout;
		} mra;
		struct {
			uint8_t msg_rejected; /* 0 REQ, 1 REP, 2 other */
			uint8_t ari_len;      /* at most 72 */
			uint16_t reason;
			uint8_t ari[72];
		} rej;
		struct {
			uint32_t qkey, qpn, eecn, starting_psn;
			uint8_t responder_resources, initiator_depth, target_ack_delay;
			uint8_t failover_accepted; /* 2 bits */
			bool flow_control, srq;
			uint8_t rnr_retry_count;
			uint8_t ca_guid[8];
			uint32_t vendor_id;
		} rep;
		struct {
			uint32_t remote_qpn;
		} dreq;
		struct {
			uint16_t pkey;
			uint64_t service_id;
		} sidr_req;
		struct {
			/* 0 valid, 1 service ID not supported, 2 rejected, 3 no QP, 4 redirect, 5
			 * unsupported version */
			uint8_t status;
			uint8_t info_len;
			uint32_t qpn, qkey;
			uint64_t service_id;
		} sidr_rep;
	};
	/* always the whole room of the message when decoded; the given bytes, zero-padded, when
	 * encoded */
	uint8_t pdata_len;
	uint8_t pdata[RPWI_RTU_PDATA];
};

/* A MAD of `len` bytes (must be 256) for the CM class. 0, or a negative errno: -EMSGSIZE wrong
 * length, -EPROTONOSUPPORT another class, version or method, -ENOMSG an attribute we do not know,
 * -EBADMSG a field out of its range. Reads nothing outside mad[0..len). */
int rpwi_cm_decode(const uint8_t *mad, size_t len, struct rpwi_cm_msg *out);
/* pdata_len above the message's room is cut. Writes 256 bytes. */
void rpwi_cm_encode(const struct rpwi_cm_msg *m, uint8_t *mad);
/* Only the attribute and the receiver's communication ID (remote_comm_id; SIDR_REP: the request ID;
 * 0 for REQ and SIDR_REQ), and for those two, and a ropeway's REJ of a request by time-out that
 * names no receiver, the service ID: what steering needs. False when it is too short or no CM
 * MAD. */
bool rpwi_cm_peek(const uint8_t *mad, size_t len, uint16_t *attr, uint32_t *receiver_comm_id,
	uint64_t *service_id);

/* The CMA header (annex A11): IP version and addresses and the sender's port, in front of the
 * private data. */
struct rpwi_cma_hdr {
	struct rpwi_addr src, dst;
	uint16_t src_port;
};
/* 0 or -EBADMSG */
int rpwi_cma_hdr_decode(const uint8_t *pdata, size_t len, struct rpwi_cma_hdr *out);
void rpwi_cma_hdr_encode(const struct rpwi_cma_hdr *h, uint8_t out[RPWI_CMA_HDR_LEN]);

/* Service IDs of rdma_cm (annex A11): port space and port. */
#define RPWI_SERVICE_ID(ps, port) \
	(0x0000000001000000ull | (uint64_t)((ps)&0xff) << 16 | (uint16_t)(port))

#endif
