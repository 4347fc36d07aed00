/* SPDX-License-Identifier: BSD-3-Clause */
/* keys.c - the keys of a profile: what each takes, and what the device itself has. */
#include <infiniband/verbs.h>
#include <stdio.h>

#include "like/fields.h"
#include "like/own.h"

/* ---- words ---- */

#define BIT(name) \
	{ \
#name, IBV_DEVICE_##name \
	}
static const struct like_word cap_flags[] = {BIT(RESIZE_MAX_WR), BIT(BAD_PKEY_CNTR),
	BIT(BAD_QKEY_CNTR), BIT(RAW_MULTI), BIT(AUTO_PATH_MIG), BIT(CHANGE_PHY_PORT),
	BIT(UD_AV_PORT_ENFORCE), BIT(CURR_QP_STATE_MOD), BIT(SHUTDOWN_PORT), BIT(INIT_TYPE),
	BIT(PORT_ACTIVE_EVENT), BIT(SYS_IMAGE_GUID), BIT(RC_RNR_NAK_GEN), BIT(SRQ_RESIZE),
	BIT(N_NOTIFY_CQ), BIT(MEM_WINDOW), BIT(UD_IP_CSUM), BIT(XRC), BIT(MEM_MGT_EXTENSIONS),
	BIT(MEM_WINDOW_TYPE_2A), BIT(MEM_WINDOW_TYPE_2B), BIT(RC_IP_CSUM), BIT(RAW_IP_CSUM),
	BIT(MANAGED_FLOW_STEERING), BIT(RAW_SCATTER_FCS), BIT(PCI_WRITE_END_PADDING),
	/* newer than the headers of rdma-core 44 */
	{"FLUSH_GLOBAL", 1ull << 38}, {"FLUSH_PERSISTENT", 1ull << 39},
	{"ATOMIC_WRITE", RPWI_LIKE_ATOMIC_WRITE}, {0}};

static const struct like_word transports[] = {{"RC", 1 << IBV_QPT_RC}, {"UC", 1 << IBV_QPT_UC},
	{"UD", 1 << IBV_QPT_UD}, {"RAW_PACKET", 1 << IBV_QPT_RAW_PACKET},
	{"XRC", 1 << IBV_QPT_XRC_SEND | 1 << IBV_QPT_XRC_RECV}, {0}};

static const struct like_word atomic_caps[] = {
	{"NONE", IBV_ATOMIC_NONE}, {"HCA", IBV_ATOMIC_HCA}, {"GLOB", IBV_ATOMIC_GLOB}, {0}};

static const struct like_word odp_general[] = {
	{"SUPPORT", IBV_ODP_SUPPORT}, {"IMPLICIT", IBV_ODP_SUPPORT_IMPLICIT}, {0}};
/* by number: newer than the headers of rdma-core 44 */
enum { ODP_FLUSH = 1 << 6, ODP_ATOMIC_WRITE = 1 << 7 };
static const struct like_word odp_ops[] = {{"SEND", IBV_ODP_SUPPORT_SEND},
	{"RECV", IBV_ODP_SUPPORT_RECV}, {"WRITE", IBV_ODP_SUPPORT_WRITE},
	{"READ", IBV_ODP_SUPPORT_READ}, {"ATOMIC", IBV_ODP_SUPPORT_ATOMIC},
	{"SRQ_RECV", IBV_ODP_SUPPORT_SRQ_RECV}, {"FLUSH", ODP_FLUSH},
	{"ATOMIC_WRITE", ODP_ATOMIC_WRITE}, {0}};

static const struct like_word optional[] = {{"domains", RPWI_LIKE_DOMAINS},
	{"null_mr", RPWI_LIKE_NULL_MR}, {"rereg_mr", RPWI_LIKE_REREG_MR},
	{"zero_based", RPWI_LIKE_ZERO_BASED}, {"moderation", RPWI_LIKE_MODERATION},
	{"timestamps", RPWI_LIKE_TIMESTAMPS}, {"import", RPWI_LIKE_IMPORT},
	{"counters", RPWI_LIKE_COUNTERS}, {0}};

static const struct like_word send_slots[] = {
	{"POLL", RPWI_LIKE_SLOTS_POLL}, {"COMPLETION", RPWI_LIKE_SLOTS_COMPLETION}, {0}};

/* ---- what the device has ---- */

enum {
	OWN_CAPS = IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_SRQ_RESIZE |
		   IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID |
		   IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_MEM_WINDOW |
		   IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS,
	OWN_TRANSPORTS = 1 << IBV_QPT_RC | 1 << IBV_QPT_UC | 1 << IBV_QPT_UD,
	/* No region is pinned: all can what "on demand" asks for, and any address of the process
	 * may become one's. */
	OWN_ODP = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
	OWN_ODP_UC = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE,
	OWN_ODP_UD = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV,
	OWN_ODP_RC = OWN_ODP_UC | OWN_ODP_UD | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC |
		     ODP_ATOMIC_WRITE,
	OWN_OPTIONAL = RPWI_LIKE_DOMAINS | RPWI_LIKE_NULL_MR | RPWI_LIKE_REREG_MR |
		       RPWI_LIKE_ZERO_BASED | RPWI_LIKE_MODERATION | RPWI_LIKE_TIMESTAMPS |
		       RPWI_LIKE_IMPORT | RPWI_LIKE_COUNTERS,
	OWN_MTU = 4096,
};
/* The program's own atomics are as atomic as a peer's, but UCX takes no other word than HCA, and
 * rxe says this one. */
#define OWN_ATOMIC IBV_ATOMIC_HCA
#define OWN_MSG RPWI_MSG_MAX
#define OWN_MR_SIZE (UINT64_MAX >> 1)

/* Key, the name of its enum, what the device has. */
#define KEYS(NUMBER, MTU, PLACE, RANK, SET) \
	NUMBER(max_qp, MAX_QP, DEV_QP_MAX) \
	NUMBER(max_cq, MAX_CQ, DEV_CQ_MAX) \
	NUMBER(max_mr, MAX_MR, DEV_MR_MAX) \
	NUMBER(max_pd, MAX_PD, DEV_PD_MAX) \
	NUMBER(max_mw, MAX_MW, DEV_MW_MAX) \
	NUMBER(max_ah, MAX_AH, DEV_AH_MAX) \
	NUMBER(max_srq, MAX_SRQ, DEV_SRQ_MAX) \
	NUMBER(max_qp_wr, MAX_QP_WR, DEV_QP_WR_MAX) \
	NUMBER(max_sge, MAX_SGE, RPWI_SGE_MAX) \
	NUMBER(max_sge_rd, MAX_SGE_RD, RPWI_SGE_MAX) \
	NUMBER(max_inline_data, MAX_INLINE_DATA, RPWI_INLINE_MAX) \
	NUMBER(max_qp_rd_atom, MAX_QP_RD_ATOM, RPWI_RD_ATOMIC_MAX) \
	NUMBER(max_qp_init_rd_atom, MAX_QP_INIT_RD_ATOM, RPWI_RD_ATOMIC_MAX) \
	NUMBER(max_res_rd_atom, MAX_RES_RD_ATOM, DEV_RES_RD_ATOM_MAX) \
	NUMBER(max_cqe, MAX_CQE, DEV_CQE_MAX) \
	NUMBER(max_mr_size, MAX_MR_SIZE, OWN_MR_SIZE) \
	NUMBER(max_srq_wr, MAX_SRQ_WR, DEV_SRQ_WR_MAX) \
	NUMBER(max_srq_sge, MAX_SRQ_SGE, RPWI_SGE_MAX) \
	NUMBER(max_mcast_grp, MAX_MCAST_GRP, DEV_MCAST_GROUPS_MAX) \
	NUMBER(max_mcast_qp_attach, MAX_MCAST_QP_ATTACH, DEV_MCAST_QPS_MAX) \
	NUMBER(max_total_mcast_qp_attach, MAX_TOTAL_MCAST_QP_ATTACH, \
		DEV_MCAST_GROUPS_MAX *DEV_MCAST_QPS_MAX) \
	NUMBER(max_pkeys, MAX_PKEYS, 1) \
	MTU(max_mtu, MAX_MTU, OWN_MTU) \
	NUMBER(max_msg_sz, MAX_MSG_SZ, OWN_MSG) \
	NUMBER(max_send_sz, MAX_SEND_SZ, OWN_MSG) \
	NUMBER(gid_tbl_len, GID_TBL_LEN, DEV_GIDS_MAX) \
	PLACE(gid_first, GID_FIRST, 0, 0, DEV_GIDS_MAX - 1) \
	PLACE(gid_step, GID_STEP, 1, 1, DEV_GIDS_MAX) \
	RANK(atomic_cap, ATOMIC_CAP, OWN_ATOMIC, atomic_caps) \
	SET(transports, TRANSPORTS, OWN_TRANSPORTS, transports, NULL) \
	SET(device_cap_flags, DEVICE_CAP_FLAGS, OWN_CAPS | RPWI_LIKE_ATOMIC_WRITE, cap_flags, \
		"IBV_DEVICE_") \
	SET(odp_general, ODP_GENERAL, OWN_ODP, odp_general, "ODP_") \
	SET(odp_rc, ODP_RC, OWN_ODP_RC, odp_ops, "SUPPORT_") \
	SET(odp_uc, ODP_UC, OWN_ODP_UC, odp_ops, "SUPPORT_") \
	SET(odp_ud, ODP_UD, OWN_ODP_UD, odp_ops, "SUPPORT_") \
	SET(optional, OPTIONAL, OWN_OPTIONAL, optional, NULL) \
	RANK(send_slots, SEND_SLOTS, RPWI_LIKE_SLOTS_COMPLETION, send_slots)

#define NUMBER_FIELD(key, KEY, own) \
	[RPWI_LIKE_##KEY] = {.name = #key, .kind = LIKE_NUMBER, .ours = own},
#define MTU_FIELD(key, KEY, own) [RPWI_LIKE_##KEY] = {.name = #key, .kind = LIKE_MTU, .ours = own},
#define PLACE_FIELD(key, KEY, own, low, high) \
	[RPWI_LIKE_##KEY] = { \
		.name = #key, .kind = LIKE_PLACE, .ours = own, .least = low, .most = high},
#define RANK_FIELD(key, KEY, own, list) \
	[RPWI_LIKE_##KEY] = {.name = #key, .kind = LIKE_RANK, .ours = own, .words = list},
#define SET_FIELD(key, KEY, own, list, before) \
	[RPWI_LIKE_##KEY] = { \
		.name = #key, .kind = LIKE_SET, .ours = own, .words = list, .prefix = before},
const struct like_field like_fields[RPWI_LIKE_KEYS] = {
	KEYS(NUMBER_FIELD, MTU_FIELD, PLACE_FIELD, RANK_FIELD, SET_FIELD)};

#define VALUE(key, KEY, own, ...) [RPWI_LIKE_##KEY] = own,
#define VALUES KEYS(VALUE, VALUE, VALUE, VALUE, VALUE)
const struct rpwi_like rpwi_like_whole = {.said = {VALUES}, .has = {VALUES}};

const char *rpwi_like_key_name(enum rpwi_like_key key) { return like_fields[key].name; }

/* ---- what the real one has more ---- */

static size_t put_words(const struct like_field *f, uint64_t bits, char *out, size_t len)
{
	size_t used = 0;
	for (const struct like_word *w = f->words; w->name && used < len; w++)
		if (bits & w->value) {
			used += (size_t)snprintf(
				out + used, len - used, "%s%s", used ? " " : "", w->name);
			bits &= ~w->value;
		}
	if (bits && used < len)
		used += (size_t)snprintf(out + used, len - used, "%s0x%llx", used ? " " : "",
			(unsigned long long)bits);
	return used;
}

static const char *rank_name(const struct like_field *f, uint64_t value)
{
	for (const struct like_word *w = f->words; w->name; w++)
		if (w->value == value)
			return w->name;
	return "?";
}

bool rpwi_like_more(const struct rpwi_like *l, enum rpwi_like_key key, char *out, size_t len)
{
	const struct like_field *f = &like_fields[key];
	uint64_t said = l->said[key], has = l->has[key];
	if (said == has || !(l->given >> key & 1))
		return false;
	if (f->kind == LIKE_SET) {
		if (!(said & ~has))
			return false;
		put_words(f, said & ~has, out, len);
	} else if (f->kind == LIKE_RANK) {
		snprintf(out, len, "%s, here %s", rank_name(f, said), rank_name(f, has));
	} else {
		snprintf(out, len, "%llu, here %llu", (unsigned long long)said,
			(unsigned long long)has);
	}
	return true;
}
