/* SPDX-License-Identifier: BSD-3-Clause */
/* words.c - what things are called in a script: the names of errno(3), verbs.h, rdma_cma.h and the
 * specification. */
#include "fault/words.h"

#include <infiniband/verbs.h>
#include <strings.h>

#include "base/number.h"
#include "wire/mad.h"
#include "wire/packet.h"

#define E(name) \
	{ \
#name, name \
	}
const struct words_entry words_errnos[] = {E(EPERM), E(ENOENT), E(EINTR), E(EIO), E(ENXIO),
	E(EBADF), E(EAGAIN), E(ENOMEM), E(EACCES), E(EFAULT), E(EBUSY), E(EEXIST), E(ENODEV),
	E(EINVAL), E(ENFILE), E(EMFILE), E(ENOSPC), E(EPIPE), E(ERANGE), E(ENOSYS), E(ENODATA),
	E(EPROTO), E(EOVERFLOW), E(EMSGSIZE), E(EOPNOTSUPP), E(EADDRINUSE), E(EADDRNOTAVAIL),
	E(ENETDOWN), E(ENETUNREACH), E(ECONNABORTED), E(ECONNRESET), E(ENOBUFS), E(ENOTCONN),
	E(ETIMEDOUT), E(ECONNREFUSED), E(EHOSTDOWN), E(EHOSTUNREACH), E(EALREADY), E(EDQUOT),
	E(ECANCELED), {0}};

#define W(name) \
	{ \
#name, IBV_WC_##name \
	}
const struct words_entry words_statuses[] = {W(LOC_LEN_ERR), W(LOC_QP_OP_ERR), W(LOC_EEC_OP_ERR),
	W(LOC_PROT_ERR), W(WR_FLUSH_ERR), W(MW_BIND_ERR), W(BAD_RESP_ERR), W(LOC_ACCESS_ERR),
	W(REM_INV_REQ_ERR), W(REM_ACCESS_ERR), W(REM_OP_ERR), W(RETRY_EXC_ERR),
	W(RNR_RETRY_EXC_ERR), W(LOC_RDD_VIOL_ERR), W(REM_INV_RD_REQ_ERR), W(REM_ABORT_ERR),
	W(INV_EECN_ERR), W(INV_EEC_STATE_ERR), W(FATAL_ERR), W(RESP_TIMEOUT_ERR), W(GENERAL_ERR),
	W(TM_ERR), W(TM_RNDV_INCOMPLETE), {0}};

/* WQ_FATAL is of work queues, of which the device has none. */
#define V(name) \
	{ \
#name, IBV_EVENT_##name \
	}
const struct words_entry words_events[] = {V(CQ_ERR), V(QP_FATAL), V(QP_REQ_ERR), V(QP_ACCESS_ERR),
	V(COMM_EST), V(SQ_DRAINED), V(PATH_MIG), V(PATH_MIG_ERR), V(DEVICE_FATAL), V(PORT_ACTIVE),
	V(PORT_ERR), V(LID_CHANGE), V(PKEY_CHANGE), V(SM_CHANGE), V(SRQ_ERR), V(SRQ_LIMIT_REACHED),
	V(QP_LAST_WQE_REACHED), V(CLIENT_REREGISTER), V(GID_CHANGE), {0}};

#define O(name) \
	{ \
#name, RPWI_OP_##name \
	}
const struct words_entry words_opcodes[] = {O(SEND_FIRST), O(SEND_MIDDLE), O(SEND_LAST),
	O(SEND_LAST_IMM), O(SEND_ONLY), O(SEND_ONLY_IMM), O(WRITE_FIRST), O(WRITE_MIDDLE),
	O(WRITE_LAST), O(WRITE_LAST_IMM), O(WRITE_ONLY), O(WRITE_ONLY_IMM), O(READ_REQ),
	O(READ_RESP_FIRST), O(READ_RESP_MIDDLE), O(READ_RESP_LAST), O(READ_RESP_ONLY), O(ACK),
	O(ATOMIC_ACK), O(CMP_SWAP), O(FETCH_ADD), O(SEND_LAST_INV), O(SEND_ONLY_INV),
	O(ATOMIC_WRITE), {0}};

#define M(name) \
	{ \
#name, RPWI_CM_##name \
	}
const struct words_entry words_messages[] = {
	M(REQ), M(MRA), M(REJ), M(REP), M(RTU), M(DREQ), M(DREP), M(SIDR_REQ), M(SIDR_REP), {0}};

#define R(name) \
	{ \
#name, RPWI_REJ_##name \
	}
const struct words_entry words_reasons[] = {R(NO_QP), R(NO_RESOURCES), R(TIMEOUT), R(UNSUPPORTED),
	R(INVALID_COMM_ID), R(INVALID_SERVICE_ID), R(STALE_CONN), R(INVALID_GID), R(INVALID_MTU),
	R(INSUFFICIENT_RESP_RESOURCES), R(CONSUMER_DEFINED), R(INVALID_RNR_RETRY), {0}};

#define N(name, code) \
	{ \
#name, RPWI_AETH_NAK << 5 | RPWI_NAK_##code \
	}
const struct words_entry words_naks[] = {N(INV_REQ, INV_REQ), N(REM_ACCESS, REM_ACCESS),
	N(REM_OP, REM_OP), {"RNR", RPWI_AETH_RNR_NAK << 5}, {0}};

const struct words_entry words_states[] = {{"RESET", IBV_QPS_RESET}, {"INIT", IBV_QPS_INIT},
	{"RTR", IBV_QPS_RTR}, {"RTS", IBV_QPS_RTS}, {"SQD", IBV_QPS_SQD}, {"SQE", IBV_QPS_SQE},
	{"ERR", IBV_QPS_ERR}, {0}};

/* enum rdma_cm_event_type of <rdma/rdma_cma.h>: those that report a failure */
const struct words_entry words_cm_events[] = {{"ADDR_ERROR", 1}, {"ROUTE_ERROR", 3},
	{"CONNECT_ERROR", 6}, {"UNREACHABLE", 7}, {"DEVICE_REMOVAL", 11}, {"ADDR_CHANGE", 14}, {0}};

#define C(name, NAME) \
	{ \
#name, RPWI_CALL_##NAME \
	}
const struct words_entry words_calls[] = {C(open_device, OPEN_DEVICE), C(alloc_pd, ALLOC_PD),
	C(reg_mr, REG_MR), C(alloc_mw, ALLOC_MW), C(create_comp_channel, CREATE_COMP_CHANNEL),
	C(create_cq, CREATE_CQ), C(resize_cq, RESIZE_CQ), C(req_notify_cq, REQ_NOTIFY_CQ),
	C(create_srq, CREATE_SRQ), C(modify_srq, MODIFY_SRQ), C(create_qp, CREATE_QP),
	C(modify_qp, MODIFY_QP), C(create_ah, CREATE_AH), C(post_send, POST_SEND),
	C(post_recv, POST_RECV), C(post_srq_recv, POST_SRQ_RECV), C(rdma_create_id, CM_CREATE_ID),
	C(rdma_bind_addr, CM_BIND_ADDR), C(rdma_listen, CM_LISTEN),
	C(rdma_resolve_addr, CM_RESOLVE_ADDR), C(rdma_resolve_route, CM_RESOLVE_ROUTE),
	C(rdma_connect, CM_CONNECT), C(rdma_accept, CM_ACCEPT), C(rdma_reject, CM_REJECT),
	C(rdma_disconnect, CM_DISCONNECT), {0}};

bool words_find(const struct words_entry *table, const char *prefix, const char *word, int *value)
{
	size_t skip = prefix && !strncasecmp(word, prefix, strlen(prefix)) ? strlen(prefix) : 0;
	for (; table->name; table++)
		if (!strcasecmp(table->name, word + skip) || !strcasecmp(table->name, word)) {
			*value = table->value;
			return true;
		}
	return false;
}

const char *words_near(const struct words_entry *table, const char *word)
{
	const char *best = NULL;
	size_t most = 2; /* that much by chance */
	for (; table->name; table++)
		if (rpwi_alike(word, table->name) > most) {
			most = rpwi_alike(word, table->name);
			best = table->name;
		}
	return best;
}
