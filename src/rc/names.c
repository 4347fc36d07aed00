/* SPDX-License-Identifier: BSD-3-Clause */
/* names.c - see names.h. */
#include "rc/names.h"

#include "rc/rc.h"

static const char *const state_name[] = {
	[IBV_QPS_RESET] = "RESET",
	[IBV_QPS_INIT] = "INIT",
	[IBV_QPS_RTR] = "RTR",
	[IBV_QPS_RTS] = "RTS",
	[IBV_QPS_SQD] = "SQD",
	[IBV_QPS_SQE] = "SQE",
	[IBV_QPS_ERR] = "ERR",
};

static const char *const wr_name[] = {
	[IBV_WR_RDMA_WRITE] = "RDMA_WRITE",
	[IBV_WR_RDMA_WRITE_WITH_IMM] = "RDMA_WRITE with immediate",
	[IBV_WR_SEND] = "SEND",
	[IBV_WR_SEND_WITH_IMM] = "SEND with immediate",
	[IBV_WR_RDMA_READ] = "RDMA_READ",
	[IBV_WR_ATOMIC_CMP_AND_SWP] = "ATOMIC_CMP_AND_SWP",
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = "ATOMIC_FETCH_AND_ADD",
	[IBV_WR_LOCAL_INV] = "LOCAL_INV",
	[IBV_WR_BIND_MW] = "BIND_MW",
	[IBV_WR_SEND_WITH_INV] = "SEND with invalidate",
	[RPWI_WR_ATOMIC_WRITE] = "ATOMIC_WRITE",
};

static const char *const status_name[] = {
	[IBV_WC_SUCCESS] = "success",
	[IBV_WC_LOC_LEN_ERR] = "local length error",
	[IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
	[IBV_WC_LOC_PROT_ERR] = "local protection error",
	[IBV_WC_WR_FLUSH_ERR] = "flushed",
	[IBV_WC_MW_BIND_ERR] = "memory window bind error",
	[IBV_WC_BAD_RESP_ERR] = "bad response",
	[IBV_WC_LOC_ACCESS_ERR] = "local access error",
	[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request",
	[IBV_WC_REM_ACCESS_ERR] = "remote access error",
	[IBV_WC_REM_OP_ERR] = "remote operation error",
	[IBV_WC_RETRY_EXC_ERR] = "retries exceeded",
	[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retries exceeded",
};

static const char *const type_name[] = {
	[IBV_QPT_RC] = "RC",
	[IBV_QPT_UC] = "UC",
	[IBV_QPT_UD] = "UD",
};

static const char *name(const char *const *names, size_t n, size_t i)
{
	return i < n && names[i] ? names[i] : "?";
}

const char *rpwi_state_name(enum ibv_qp_state s)
{
	return name(state_name, RPWI_ARRAY_LEN(state_name), s);
}
const char *rpwi_type_name(enum ibv_qp_type t)
{
	return name(type_name, RPWI_ARRAY_LEN(type_name), t);
}
const char *rpwi_wr_name(enum ibv_wr_opcode op)
{
	return name(wr_name, RPWI_ARRAY_LEN(wr_name), op);
}
const char *rpwi_status_name(enum ibv_wc_status s)
{
	return s < RPWI_ARRAY_LEN(status_name) && status_name[s] ? status_name[s] : "error";
}
