/* SPDX-License-Identifier: BSD-3-Clause */
/* names.c - libibverbs' calls that only translate values. The real library answers, so that its
 * newer values are seen; the tables are for machines that have none. They have its words, for which
 * people search logs (device-names compares). */
#include "preload/preload.h"

#define NAME_IN(table, i) \
	((unsigned)(i) < RPWI_ARRAY_LEN(table) && (table)[i] ? (table)[i] : "unknown")

static const char *const node_types[] = {
	[IBV_NODE_CA] = "InfiniBand channel adapter",
	[IBV_NODE_SWITCH] = "InfiniBand switch",
	[IBV_NODE_ROUTER] = "InfiniBand router",
	[IBV_NODE_RNIC] = "iWARP NIC",
	[IBV_NODE_USNIC] = "usNIC",
	[IBV_NODE_USNIC_UDP] = "usNIC UDP",
	[IBV_NODE_UNSPECIFIED] = "unspecified",
};

static const char *const port_states[] = {
	[IBV_PORT_NOP] = "no state change (NOP)",
	[IBV_PORT_DOWN] = "down",
	[IBV_PORT_INIT] = "init",
	[IBV_PORT_ARMED] = "armed",
	[IBV_PORT_ACTIVE] = "active",
	[IBV_PORT_ACTIVE_DEFER] = "active defer",
};

static const char *const events[] = {
	[IBV_EVENT_CQ_ERR] = "CQ error",
	[IBV_EVENT_QP_FATAL] = "local work queue catastrophic error",
	[IBV_EVENT_QP_REQ_ERR] = "invalid request local work queue error",
	[IBV_EVENT_QP_ACCESS_ERR] = "local access violation work queue error",
	[IBV_EVENT_COMM_EST] = "communication established",
	[IBV_EVENT_SQ_DRAINED] = "send queue drained",
	[IBV_EVENT_PATH_MIG] = "path migrated",
	[IBV_EVENT_PATH_MIG_ERR] = "path migration request error",
	[IBV_EVENT_DEVICE_FATAL] = "local catastrophic error",
	[IBV_EVENT_PORT_ACTIVE] = "port active",
	[IBV_EVENT_PORT_ERR] = "port error",
	[IBV_EVENT_LID_CHANGE] = "LID change",
	[IBV_EVENT_PKEY_CHANGE] = "P_Key change",
	[IBV_EVENT_SM_CHANGE] = "SM change",
	[IBV_EVENT_SRQ_ERR] = "SRQ catastrophic error",
	[IBV_EVENT_SRQ_LIMIT_REACHED] = "SRQ limit reached",
	[IBV_EVENT_QP_LAST_WQE_REACHED] = "last WQE reached",
	[IBV_EVENT_CLIENT_REREGISTER] = "client reregistration",
	[IBV_EVENT_GID_CHANGE] = "GID table change",
	[IBV_EVENT_WQ_FATAL] = "WQ fatal",
};

static const char *const wc_statuses[] = {
	[IBV_WC_SUCCESS] = "success",
	[IBV_WC_LOC_LEN_ERR] = "local length error",
	[IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
	[IBV_WC_LOC_EEC_OP_ERR] = "local EE context operation error",
	[IBV_WC_LOC_PROT_ERR] = "local protection error",
	[IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
	[IBV_WC_MW_BIND_ERR] = "memory management operation error",
	[IBV_WC_BAD_RESP_ERR] = "bad response error",
	[IBV_WC_LOC_ACCESS_ERR] = "local access error",
	[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
	[IBV_WC_REM_ACCESS_ERR] = "remote access error",
	[IBV_WC_REM_OP_ERR] = "remote operation error",
	[IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
	[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
	[IBV_WC_LOC_RDD_VIOL_ERR] = "local RDD violation error",
	[IBV_WC_REM_INV_RD_REQ_ERR] = "remote invalid RD request",
	[IBV_WC_REM_ABORT_ERR] = "aborted error",
	[IBV_WC_INV_EECN_ERR] = "invalid EE context number",
	[IBV_WC_INV_EEC_STATE_ERR] = "invalid EE context state",
	[IBV_WC_FATAL_ERR] = "fatal error",
	[IBV_WC_RESP_TIMEOUT_ERR] = "response timeout error",
	[IBV_WC_GENERAL_ERR] = "general error",
	[IBV_WC_TM_ERR] = "TM error",
	[IBV_WC_TM_RNDV_INCOMPLETE] = "TM software rendezvous",
};

RPWI_EXPORT const char *ibv_node_type_str(enum ibv_node_type node_type)
{
	const struct rpwi_real *r = rpwi_real();
	return r->found ? r->ibv_node_type_str(node_type) : NAME_IN(node_types, node_type);
}

RPWI_EXPORT const char *ibv_port_state_str(enum ibv_port_state port_state)
{
	const struct rpwi_real *r = rpwi_real();
	return r->found ? r->ibv_port_state_str(port_state) : NAME_IN(port_states, port_state);
}

RPWI_EXPORT const char *ibv_event_type_str(enum ibv_event_type event)
{
	const struct rpwi_real *r = rpwi_real();
	return r->found ? r->ibv_event_type_str(event) : NAME_IN(events, event);
}

RPWI_EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	const struct rpwi_real *r = rpwi_real();
	return r->found ? r->ibv_wc_status_str(status) : NAME_IN(wc_statuses, status);
}

/* IBTA 12.7.10, the encoding of a static rate. `mult` counts 2.5 Gb/s; 0 where the older rates'
 * multiplier is not used. */
static const struct rate {
	enum ibv_rate rate;
	int mult, mbps;
} rates[] = {
	{IBV_RATE_2_5_GBPS, 1, 2500},
	{IBV_RATE_5_GBPS, 2, 5000},
	{IBV_RATE_10_GBPS, 4, 10000},
	{IBV_RATE_20_GBPS, 8, 20000},
	{IBV_RATE_30_GBPS, 12, 30000},
	{IBV_RATE_40_GBPS, 16, 40000},
	{IBV_RATE_60_GBPS, 24, 60000},
	{IBV_RATE_80_GBPS, 32, 80000},
	{IBV_RATE_120_GBPS, 48, 120000},
	{IBV_RATE_14_GBPS, 0, 14062},
	{IBV_RATE_56_GBPS, 0, 56250},
	{IBV_RATE_112_GBPS, 0, 112500},
	{IBV_RATE_168_GBPS, 0, 168750},
	{IBV_RATE_25_GBPS, 0, 25781},
	{IBV_RATE_100_GBPS, 0, 103125},
	{IBV_RATE_200_GBPS, 0, 206250},
	{IBV_RATE_300_GBPS, 0, 309375},
	{IBV_RATE_28_GBPS, 11, 28125},
	{IBV_RATE_50_GBPS, 20, 53125},
	{IBV_RATE_400_GBPS, 160, 425000},
	{IBV_RATE_600_GBPS, 240, 637500},
	{IBV_RATE_800_GBPS, 320, 850000},
	{IBV_RATE_1200_GBPS, 480, 1275000},
};

static const struct rate *rate_by(enum ibv_rate rate)
{
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(rates); i++)
		if (rates[i].rate == rate)
			return &rates[i];
	return NULL;
}

RPWI_EXPORT int ibv_rate_to_mult(enum ibv_rate rate)
{
	const struct rpwi_real *real = rpwi_real();
	if (real->found)
		return real->ibv_rate_to_mult(rate);
	const struct rate *r = rate_by(rate);
	return r && r->mult ? r->mult : -1;
}

RPWI_EXPORT enum ibv_rate mult_to_ibv_rate(int mult)
{
	const struct rpwi_real *real = rpwi_real();
	if (real->found)
		return real->mult_to_ibv_rate(mult);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(rates); i++)
		if (mult && rates[i].mult == mult)
			return rates[i].rate;
	return IBV_RATE_MAX;
}

RPWI_EXPORT int ibv_rate_to_mbps(enum ibv_rate rate)
{
	const struct rpwi_real *real = rpwi_real();
	if (real->found)
		return real->ibv_rate_to_mbps(rate);
	const struct rate *r = rate_by(rate);
	return r ? r->mbps : -1;
}

RPWI_EXPORT enum ibv_rate mbps_to_ibv_rate(int mbps)
{
	const struct rpwi_real *real = rpwi_real();
	if (real->found)
		return real->mbps_to_ibv_rate(mbps);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(rates); i++)
		if (rates[i].mbps == mbps)
			return rates[i].rate;
	return IBV_RATE_MAX;
}

/* In verbs.h since rdma-core 50, so declared here, too. */
const char *ibv_wr_opcode_str(enum ibv_wr_opcode opcode);
RPWI_EXPORT const char *ibv_wr_opcode_str(enum ibv_wr_opcode opcode)
{
#define NAME(x) [IBV_WR_##x] = "IBV_WR_" #x
	static const char *const names[] = {NAME(RDMA_WRITE), NAME(RDMA_WRITE_WITH_IMM), NAME(SEND),
		NAME(SEND_WITH_IMM), NAME(RDMA_READ), NAME(ATOMIC_CMP_AND_SWP),
		NAME(ATOMIC_FETCH_AND_ADD), NAME(LOCAL_INV), NAME(BIND_MW), NAME(SEND_WITH_INV),
		NAME(TSO), NAME(DRIVER1), [14] = "IBV_WR_FLUSH", [15] = "IBV_WR_ATOMIC_WRITE"};
#undef NAME
	return NAME_IN(names, opcode);
}
