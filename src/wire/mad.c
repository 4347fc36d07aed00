/* SPDX-License-Identifier: BSD-3-Clause */
/* mad.c - see mad.h. Owns the place of every field of every CM message, as one table that drives
 * both directions; knows no connection and no state. */
#include "wire/mad.h"

/* The common MAD header (IB 13.4.2). */
enum {
	MAD_BASE_VERSION = 0,
	MAD_CLASS = 1,
	MAD_CLASS_VERSION = 2,
	MAD_METHOD = 3,
	MAD_TID = 8,
	MAD_ATTR = 16,
	BASE_VERSION = 1,
	METHOD_SEND = 3,
};

/* ---- Fields: where each is in the message (bytes and bits counted from its first byte behind the
 * MAD header; bit 0 is the highest), and which member holds it. ---- */
struct field {
	uint8_t byte, bit, width; /* width 0: `size` bytes as they are */
	uint8_t shift;   /* of the member's value: a number that the message has in pieces */
	uint16_t member; /* offset in struct rpwi_cm_msg */
	uint8_t size;    /* of the member */
};
#define MEMBER(name) offsetof(struct rpwi_cm_msg, name), sizeof(((struct rpwi_cm_msg *)0)->name)
#define BITS(byte, bit, width, name) \
	{ \
		byte, bit, width, 0, MEMBER(name) \
	}
#define PIECE(byte, shift, name) \
	{ \
		byte, 0, 8, shift, MEMBER(name) \
	}
#define BYTES(byte, name) \
	{ \
		byte, 0, 0, 0, MEMBER(name) \
	}
#define BOTH_IDS BITS(0, 0, 32, local_comm_id), BITS(4, 0, 32, remote_comm_id)
#define PATH(at, p) \
	BITS(at, 0, 16, p.local_lid), BITS(at + 2, 0, 16, p.remote_lid), \
		BYTES(at + 4, p.local_gid), BYTES(at + 20, p.remote_gid), \
		BITS(at + 36, 0, 20, p.flow_label), BITS(at + 39, 2, 6, p.packet_rate), \
		BITS(at + 40, 0, 8, p.traffic_class), BITS(at + 41, 0, 8, p.hop_limit), \
		BITS(at + 42, 0, 4, p.sl), BITS(at + 42, 4, 1, p.subnet_local), \
		BITS(at + 43, 0, 5, p.local_ack_timeout)

/* IB 12.6.5. The vendor ID is of later editions. */
static const struct field req_fields[] = {
	BITS(0, 0, 32, local_comm_id),
	BITS(5, 0, 24, req.vendor_id),
	BITS(8, 0, 64, req.service_id),
	BYTES(16, req.ca_guid),
	BITS(28, 0, 32, req.qkey),
	BITS(32, 0, 24, req.qpn),
	BITS(35, 0, 8, req.responder_resources),
	BITS(36, 0, 24, req.eecn),
	BITS(39, 0, 8, req.initiator_depth),
	BITS(43, 0, 5, req.remote_cm_response_timeout),
	BITS(43, 5, 2, req.transport),
	BITS(43, 7, 1, req.flow_control),
	BITS(44, 0, 24, req.starting_psn),
	BITS(47, 0, 5, req.local_cm_response_timeout),
	BITS(47, 5, 3, req.retry_count),
	BITS(48, 0, 16, req.pkey),
	BITS(50, 0, 4, req.path_mtu),
	BITS(50, 4, 1, req.rdc_exists),
	BITS(50, 5, 3, req.rnr_retry_count),
	BITS(51, 0, 4, req.max_cm_retries),
	BITS(51, 4, 1, req.srq),
	BITS(51, 5, 3, req.extended_transport),
	PATH(52, req.primary),
	PATH(96, req.alternate),
};
/* 12.6.6 */
static const struct field mra_fields[] = {
	BOTH_IDS, BITS(8, 0, 2, mra.msg_mraed), BITS(9, 0, 5, mra.service_timeout)};
static const struct field rej_fields[] = {
	/* 12.6.7 */
	BOTH_IDS, BITS(8, 0, 2, rej.msg_rejected), BITS(9, 0, 7, rej.ari_len),
	BITS(10, 0, 16, rej.reason), BYTES(12, rej.ari)};
/* IB 12.6.8; the vendor ID in what was reserved between the others. */
static const struct field rep_fields[] = {
	BOTH_IDS,
	BITS(8, 0, 32, rep.qkey),
	BITS(12, 0, 24, rep.qpn),
	PIECE(15, 16, rep.vendor_id),
	BITS(16, 0, 24, rep.eecn),
	PIECE(19, 8, rep.vendor_id),
	BITS(20, 0, 24, rep.starting_psn),
	PIECE(23, 0, rep.vendor_id),
	BITS(24, 0, 8, rep.responder_resources),
	BITS(25, 0, 8, rep.initiator_depth),
	BITS(26, 0, 5, rep.target_ack_delay),
	BITS(26, 5, 2, rep.failover_accepted),
	BITS(26, 7, 1, rep.flow_control),
	BITS(27, 0, 3, rep.rnr_retry_count),
	BITS(27, 3, 1, rep.srq),
	BYTES(28, rep.ca_guid),
};
/* RTU, DREP (12.6.9, 12.6.11), the IDs of LAP, APR */
static const struct field id_fields[] = {BOTH_IDS};
static const struct field dreq_fields[] = {BOTH_IDS, BITS(8, 0, 24, dreq.remote_qpn)}; /* 12.6.10 */
static const struct field sidr_req_fields[] = {
	/* 12.11.2.1 */
	BITS(0, 0, 32, local_comm_id), BITS(4, 0, 16, sidr_req.pkey),
	BITS(8, 0, 64, sidr_req.service_id)};
/* 12.11.2.2 */
static const struct field sidr_rep_fields[] = {BITS(0, 0, 32, local_comm_id),
	BITS(4, 0, 8, sidr_rep.status), BITS(5, 0, 8, sidr_rep.info_len),
	BITS(8, 0, 24, sidr_rep.qpn), BITS(12, 0, 64, sidr_rep.service_id),
	BITS(20, 0, 32, sidr_rep.qkey)};

enum {
	PDATA_REQ = 140,
	PDATA_MRA = 10,
	PDATA_REJ = 84,
	PDATA_REP = 36,
	PDATA_IDS = 8,
	PDATA_DREQ = 12,
	PDATA_SIDR_REQ = 16,
	PDATA_SIDR_REP = 96,
	ATTRS = 0x20,
	INFO_MAX = 72
};
/* Private data fills each message up to the end of the MAD. */
_Static_assert(RPWI_MAD_HDR_LEN + PDATA_REQ + RPWI_REQ_PDATA == RPWI_MAD_LEN, "REQ");
_Static_assert(RPWI_MAD_HDR_LEN + PDATA_MRA + RPWI_MRA_PDATA == RPWI_MAD_LEN, "MRA");
_Static_assert(RPWI_MAD_HDR_LEN + PDATA_REJ + RPWI_REJ_PDATA == RPWI_MAD_LEN, "REJ");
_Static_assert(RPWI_MAD_HDR_LEN + PDATA_REP + RPWI_REP_PDATA == RPWI_MAD_LEN, "REP");
_Static_assert(RPWI_MAD_HDR_LEN + PDATA_IDS + RPWI_RTU_PDATA == RPWI_MAD_LEN &&
		       RPWI_DREP_PDATA == RPWI_RTU_PDATA,
	"RTU and DREP");
_Static_assert(RPWI_MAD_HDR_LEN + PDATA_DREQ + RPWI_DREQ_PDATA == RPWI_MAD_LEN, "DREQ");
_Static_assert(RPWI_MAD_HDR_LEN + PDATA_SIDR_REQ + RPWI_SIDR_REQ_PDATA == RPWI_MAD_LEN, "SIDR_REQ");
_Static_assert(RPWI_MAD_HDR_LEN + PDATA_SIDR_REP + RPWI_SIDR_REP_PDATA == RPWI_MAD_LEN, "SIDR_REP");

#define FIELDS(f) f, RPWI_ARRAY_LEN(f)
static const struct message {
	const char *name;
	const struct field *fields;
	size_t field_count;
	uint8_t pdata_at, pdata_max;
} messages[ATTRS] = {
	[RPWI_CM_REQ] = {"REQ", FIELDS(req_fields), PDATA_REQ, RPWI_REQ_PDATA},
	[RPWI_CM_MRA] = {"MRA", FIELDS(mra_fields), PDATA_MRA, RPWI_MRA_PDATA},
	[RPWI_CM_REJ] = {"REJ", FIELDS(rej_fields), PDATA_REJ, RPWI_REJ_PDATA},
	[RPWI_CM_REP] = {"REP", FIELDS(rep_fields), PDATA_REP, RPWI_REP_PDATA},
	[RPWI_CM_RTU] = {"RTU", FIELDS(id_fields), PDATA_IDS, RPWI_RTU_PDATA},
	[RPWI_CM_DREQ] = {"DREQ", FIELDS(dreq_fields), PDATA_DREQ, RPWI_DREQ_PDATA},
	[RPWI_CM_DREP] = {"DREP", FIELDS(id_fields), PDATA_IDS, RPWI_DREP_PDATA},
	[RPWI_CM_SIDR_REQ] = {"SIDR_REQ", FIELDS(sidr_req_fields), PDATA_SIDR_REQ,
		RPWI_SIDR_REQ_PDATA},
	[RPWI_CM_SIDR_REP] = {"SIDR_REP", FIELDS(sidr_rep_fields), PDATA_SIDR_REP,
		RPWI_SIDR_REP_PDATA},
	/* Path migration is not spoken here: enough to say whose it is. */
	[RPWI_CM_LAP] = {"LAP", FIELDS(id_fields), 0, 0},
	[RPWI_CM_APR] = {"APR", FIELDS(id_fields), 0, 0},
};

static const char *const rej_names[] = {
	[RPWI_REJ_NO_QP] = "no QP",
	[RPWI_REJ_NO_EEC] = "no EEC",
	[RPWI_REJ_NO_RESOURCES] = "no resources",
	[RPWI_REJ_TIMEOUT] = "time-out",
	[RPWI_REJ_UNSUPPORTED] = "unsupported request",
	[RPWI_REJ_INVALID_COMM_ID] = "invalid communication ID",
	[RPWI_REJ_INVALID_COMM_INSTANCE] = "invalid communication instance",
	[RPWI_REJ_INVALID_SERVICE_ID] = "invalid service ID",
	[RPWI_REJ_INVALID_TRANSPORT_TYPE] = "invalid transport service type",
	[RPWI_REJ_STALE_CONN] = "stale connection",
	[RPWI_REJ_RDC_NOT_EXIST] = "RDC does not exist",
	[RPWI_REJ_INVALID_GID] = "primary remote port GID rejected",
	[RPWI_REJ_INVALID_LID] = "primary remote port LID rejected",
	[RPWI_REJ_INVALID_SL] = "invalid primary SL",
	[RPWI_REJ_INVALID_TRAFFIC_CLASS] = "invalid primary traffic class",
	[RPWI_REJ_INVALID_HOP_LIMIT] = "invalid primary hop limit",
	[RPWI_REJ_INVALID_PACKET_RATE] = "invalid primary packet rate",
	[RPWI_REJ_INVALID_ALT_GID] = "alternate remote port GID rejected",
	[RPWI_REJ_INVALID_MTU] = "invalid path MTU",
	[RPWI_REJ_INSUFFICIENT_RESP_RESOURCES] = "insufficient responder resources",
	[RPWI_REJ_CONSUMER_DEFINED] = "consumer reject",
	[RPWI_REJ_INVALID_RNR_RETRY] = "RNR retry count rejected",
	[RPWI_REJ_DUPLICATE_LOCAL_COMM_ID] = "duplicate local communication ID",
	[RPWI_REJ_INVALID_CLASS_VERSION] = "unsupported class version",
	[RPWI_REJ_VENDOR_OPTION_NOT_SUPPORTED] = "vendor option not supported",
};

static const struct message *message_of(unsigned attr)
{
	return attr < ATTRS && messages[attr].name ? &messages[attr] : NULL;
}

const char *rpwi_cm_attr_name(unsigned attr)
{
	const struct message *m = message_of(attr);
	return m ? m->name : "?";
}

const char *rpwi_cm_rej_name(unsigned reason)
{
	return reason < RPWI_ARRAY_LEN(rej_names) && rej_names[reason] ? rej_names[reason] : "?";
}

static uint64_t mask_of(unsigned width) { return width < 64 ? (1ull << width) - 1 : UINT64_MAX; }

/* A field never crosses more bytes than its width says, so at most eight. */
static uint64_t bits_get(const uint8_t *msg, const struct field *f)
{
	unsigned bytes = (f->bit + f->width + 7) / 8, below = bytes * 8 - f->bit - f->width;
	uint64_t v = 0;
	for (unsigned i = 0; i < bytes; i++)
		v = v << 8 | msg[f->byte + i];
	return v >> below & mask_of(f->width);
}

/* Over zeros, or over other fields of the same byte. */
static void bits_put(uint8_t *msg, const struct field *f, uint64_t v)
{
	unsigned bytes = (f->bit + f->width + 7) / 8, below = bytes * 8 - f->bit - f->width;
	v = (v & mask_of(f->width)) << below;
	for (unsigned i = bytes; i--; v >>= 8)
		msg[f->byte + i] |= (uint8_t)v;
}

/* Members are unsigned integers of 1, 2, 4 or 8 bytes (a bool is one of 1), little-endian as base.h
 * asserts. */
static uint64_t member_get(const struct rpwi_cm_msg *m, const struct field *f)
{
	uint64_t v = 0;
	memcpy(&v, (const uint8_t *)m + f->member, f->size);
	return v;
}
static void member_put(struct rpwi_cm_msg *m, const struct field *f, uint64_t v)
{
	memcpy((uint8_t *)m + f->member, &v, f->size);
}

static void field_decode(const uint8_t *msg, const struct field *f, struct rpwi_cm_msg *m)
{
	if (!f->width)
		memcpy((uint8_t *)m + f->member, msg + f->byte, f->size);
	else
		member_put(m, f, member_get(m, f) | bits_get(msg, f) << f->shift);
}

static void field_encode(const struct rpwi_cm_msg *m, const struct field *f, uint8_t *msg)
{
	if (!f->width)
		memcpy(msg + f->byte, (const uint8_t *)m + f->member, f->size);
	else
		bits_put(msg, f, member_get(m, f) >> f->shift);
}

/* Fields whose room is larger than what the specification gives a meaning to, and that say how much
 * of something else is there. */
static bool in_range(const struct rpwi_cm_msg *m)
{
	switch (m->attr) {
	case RPWI_CM_REJ:
		return m->rej.ari_len <= INFO_MAX && m->rej.msg_rejected <= 2;
	case RPWI_CM_MRA:
		return m->mra.msg_mraed <= 2;
	case RPWI_CM_SIDR_REP:
		return m->sidr_rep.info_len <= INFO_MAX;
	default:
		return true;
	}
}

static int header_check(const uint8_t *mad, size_t len)
{
	if (len != RPWI_MAD_LEN)
		return -EMSGSIZE;
	if (mad[MAD_BASE_VERSION] != BASE_VERSION || mad[MAD_CLASS] != RPWI_CM_CLASS ||
		mad[MAD_CLASS_VERSION] != RPWI_CM_CLASS_VERSION || mad[MAD_METHOD] != METHOD_SEND)
		return -EPROTONOSUPPORT;
	return message_of(rpwi_get_be16(mad + MAD_ATTR)) ? 0 : -ENOMSG;
}

int rpwi_cm_decode(const uint8_t *mad, size_t len, struct rpwi_cm_msg *out)
{
	int err = header_check(mad, len);
	if (err)
		return err;
	memset(out, 0, sizeof(*out));
	out->attr = rpwi_get_be16(mad + MAD_ATTR);
	out->tid = rpwi_get_be64(mad + MAD_TID);
	const struct message *t = message_of(out->attr);
	const uint8_t *msg = mad + RPWI_MAD_HDR_LEN;
	for (size_t i = 0; i < t->field_count; i++)
		field_decode(msg, &t->fields[i], out);
	out->pdata_len = t->pdata_max;
	memcpy(out->pdata, msg + t->pdata_at, t->pdata_max);
	return in_range(out) ? 0 : -EBADMSG;
}

void rpwi_cm_encode(const struct rpwi_cm_msg *m, uint8_t *mad)
{
	const struct message *t = message_of(m->attr);
	assert(t);
	memset(mad, 0, RPWI_MAD_LEN);
	mad[MAD_BASE_VERSION] = BASE_VERSION;
	mad[MAD_CLASS] = RPWI_CM_CLASS;
	mad[MAD_CLASS_VERSION] = RPWI_CM_CLASS_VERSION;
	mad[MAD_METHOD] = METHOD_SEND;
	rpwi_put_be64(mad + MAD_TID, m->tid);
	rpwi_put_be16(mad + MAD_ATTR, m->attr);
	uint8_t *msg = mad + RPWI_MAD_HDR_LEN;
	for (size_t i = 0; i < t->field_count; i++)
		field_encode(m, &t->fields[i], msg);
	memcpy(msg + t->pdata_at, m->pdata, RPWI_MIN(m->pdata_len, t->pdata_max));
}

enum { REJ_ARI_LEN = 9, REJ_REASON = 10, REJ_ARI = 12 };

bool rpwi_cm_peek(const uint8_t *mad, size_t len, uint16_t *attr, uint32_t *receiver_comm_id,
	uint64_t *service_id)
{
	if (header_check(mad, len))
		return false;
	const uint8_t *msg = mad + RPWI_MAD_HDR_LEN;
	*attr = rpwi_get_be16(mad + MAD_ATTR);
	*receiver_comm_id = 0;
	*service_id = 0;
	switch (*attr) {
	case RPWI_CM_REQ:
	case RPWI_CM_SIDR_REQ:
		*service_id = rpwi_get_be64(msg + 8);
		break;
	case RPWI_CM_SIDR_REP:
		*receiver_comm_id = rpwi_get_be32(msg);
		break;
	case RPWI_CM_REJ:
		*receiver_comm_id = rpwi_get_be32(msg + 4);
		if (!*receiver_comm_id && rpwi_get_be16(msg + REJ_REASON) == RPWI_REJ_TIMEOUT &&
			msg[REJ_ARI_LEN] >> 1 >= 8 + 8)
			*service_id = rpwi_get_be64(msg + REJ_ARI + 8);
		break;
	default:
		*receiver_comm_id = rpwi_get_be32(msg + 4);
	}
	return true;
}

/* ---- The CMA header (annex A11.2): major and minor version, IP version, source port, source and
 * destination address; IPv4 in the last four of sixteen bytes. ---- */
enum {
	CMA_VERSION = 0,
	CMA_IPV = 1,
	CMA_PORT = 2,
	CMA_SRC = 4,
	CMA_DST = 20,
	CMA_ADDR_LEN = 16,
	CMA_IPV4_AT = 12,
	CMA_IPV_SHIFT = 4
};
_Static_assert(
	CMA_DST + CMA_ADDR_LEN == RPWI_CMA_HDR_LEN, "the CMA header ends with the destination");

static void cma_addr_decode(const uint8_t *p, uint8_t family, struct rpwi_addr *a)
{
	memset(a, 0, sizeof(*a));
	a->family = family;
	if (family == 4)
		memcpy(a->bytes, p + CMA_IPV4_AT, 4);
	else
		memcpy(a->bytes, p, CMA_ADDR_LEN);
}

static void cma_addr_encode(const struct rpwi_addr *a, uint8_t *p)
{
	if (a->family == 4)
		memcpy(p + CMA_IPV4_AT, a->bytes, 4);
	else
		memcpy(p, a->bytes, CMA_ADDR_LEN);
}

int rpwi_cma_hdr_decode(const uint8_t *pdata, size_t len, struct rpwi_cma_hdr *out)
{
	if (len < RPWI_CMA_HDR_LEN || pdata[CMA_VERSION])
		return -EBADMSG;
	uint8_t family = pdata[CMA_IPV] >> CMA_IPV_SHIFT;
	if (family != 4 && family != 6)
		return -EBADMSG;
	out->src_port = rpwi_get_be16(pdata + CMA_PORT);
	cma_addr_decode(pdata + CMA_SRC, family, &out->src);
	cma_addr_decode(pdata + CMA_DST, family, &out->dst);
	return 0;
}

void rpwi_cma_hdr_encode(const struct rpwi_cma_hdr *h, uint8_t out[RPWI_CMA_HDR_LEN])
{
	memset(out, 0, RPWI_CMA_HDR_LEN);
	out[CMA_IPV] = (uint8_t)(h->dst.family << CMA_IPV_SHIFT);
	rpwi_put_be16(out + CMA_PORT, h->src_port);
	cma_addr_encode(&h->src, out + CMA_SRC);
	cma_addr_encode(&h->dst, out + CMA_DST);
}
