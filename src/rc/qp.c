/* SPDX-License-Identifier: BSD-3-Clause */
/* qp.c - the queue pair: states and their attributes (IB 10.3, 11.2.5.2), posting, and the entry
 * points, which dispatch to requester, completer, responder and datagram.
 */
#include "rc/internal.h"

#include <stdlib.h>

/* ---- making and ending ---- */

/* Everything a QP needs in one zeroed block: ring, rcv.sge, then for each send slot its SGEs,
 * address vector (UD) and inline bytes. */
static int alloc_arena(struct rpwi_qp *qp, const struct ibv_qp_cap *cap, uint32_t rcv_sge_max)
{
	size_t slots = 1;

	while (slots < cap->max_send_wr)
		slots <<= 1;
	size_t sge_max = RPWI_MAX(cap->max_send_sge, 1);
	size_t inl_max = (cap->max_inline_data + 7) & ~(size_t)7;
	size_t av_size = qp->type == IBV_QPT_UD ? sizeof(struct rpwi_av) : 0;
	size_t rcv_size = RPWI_MAX(rcv_sge_max, 1) * sizeof(struct ibv_sge);
	size_t each =
		sizeof(struct rpwi_swqe) + sge_max * sizeof(struct ibv_sge) + av_size + inl_max;
	const size_t align = _Alignof(struct rpwi_swqe);
	size_t size = (rcv_size + slots * each + align - 1) & ~(align - 1);
	uint8_t *p = aligned_alloc(align, size);

	if (!p)
		return -ENOMEM;
	memset(p, 0, size);
	qp->arena = p;
	qp->sq = (struct rpwi_swqe *)p;
	p += slots * sizeof(struct rpwi_swqe);
	qp->rcv.sge = (struct ibv_sge *)p;
	p += rcv_size;
	struct ibv_sge *sge = (struct ibv_sge *)p;
	p += slots * sge_max * sizeof(*sge);
	struct rpwi_av *av = (struct rpwi_av *)p;
	p += slots * av_size;
	for (size_t i = 0; i < slots; i++) {
		qp->sq[i].sge = sge + i * sge_max;
		qp->sq[i].av = av_size ? av + i : NULL;
		qp->sq[i].inl = p + i * inl_max;
	}
	qp->sq_mask = (uint32_t)slots - 1;
	qp->sq_max = cap->max_send_wr;
	return 0;
}
_Static_assert(sizeof(struct rpwi_swqe) % 8 == 0 && sizeof(struct rpwi_av) % 8 == 0,
	"the pieces of the arena stay aligned");

static const struct rpwi_qp_bounds no_bounds = {.message = RPWI_MSG_MAX,
	.send = RPWI_MSG_MAX,
	.opcodes = UINT32_MAX,
	.sge_rd = RPWI_SGE_MAX,
	.rd_atomic_out = RPWI_RD_ATOMIC_MAX,
	.rd_atomic_in = RPWI_RD_ATOMIC_MAX,
	.mtu = IBV_MTU_4096};

int rpwi_qp_init(struct rpwi_qp *qp, const struct rpwi_qp_init *init)
{
	const struct ibv_qp_cap *cap = &init->cap;

	memset(qp, 0, sizeof(*qp));
	if (init->type != IBV_QPT_RC && init->type != IBV_QPT_UC && init->type != IBV_QPT_UD)
		return -EINVAL;
	if (cap->max_send_wr > RPWI_QP_WR_MAX || cap->max_send_sge > RPWI_SGE_MAX ||
		cap->max_inline_data > RPWI_INLINE_MAX || !init->rq)
		return -EINVAL;
	qp->ops = init->ops;
	qp->n = &qp->stats;
	qp->user = init->user;
	qp->type = init->type;
	qp->qpn = init->qpn;
	qp->rq = init->rq;
	qp->sig_all = init->sq_sig_all;
	qp->attr.cap = init->cap;
	qp->bounds = init->bounds ? *init->bounds : no_bounds;
	qp->plain_max = RPWI_MIN(qp->bounds.message, qp->bounds.send);
	rpwi_qp_enter(qp, IBV_QPS_RESET);
	qp->read_chunk_pkts = RPWI_READ_CHUNK_PKTS;
	qp->mtu = RPWI_MTU_MAX;
	qp->attr.path_mtu = IBV_MTU_4096;
	rpwi_qp_rnr_over(qp);
	return alloc_arena(qp, cap, init->rq->sge_max);
}

void rpwi_qp_fini(struct rpwi_qp *qp)
{
	rpwi_req_forget(qp);
	free(qp->arena);
	free(qp->res);
	qp->arena = NULL;
	qp->res = NULL;
	qp->sq = NULL;
	qp->sq_head = qp->sq_cur = qp->sq_tail = 0;
	rpwi_qp_enter(qp, IBV_QPS_RESET);
}

static void reset(struct rpwi_qp *qp)
{
	struct ibv_qp_attr keep = {.cap = qp->attr.cap, .path_mtu = qp->attr.path_mtu};

	rpwi_req_reset(qp, 0);
	rpwi_resp_reset(qp, 0);
	qp->sq_head = qp->sq_cur = qp->sq_tail = 0;
	qp->rq->head = qp->rq->shared ? qp->rq->head : qp->rq->tail;
	qp->comm_est = qp->last_wqe_told = qp->sqd_notify = false;
	qp->cc = NULL;
	qp->attr = keep;
	rpwi_qp_enter(qp, IBV_QPS_RESET);
}

/* ---- modify: the table of IB 11.2.5.2 (table 91) ---- */

enum { T_RC, T_UC, T_UD, T_COUNT };
struct transition {
	bool valid;
	int need[T_COUNT], may[T_COUNT];
};

enum {
	SET_INIT = IBV_QP_PKEY_INDEX | IBV_QP_PORT,
	SET_PEER = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
	SET_RETRY = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
	SET_PATHS = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE,
	SQD_NOTIFY = IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_CUR_STATE,
	SQD_UC = IBV_QP_AV | SET_PATHS | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
	SQD_RC = SET_INIT | IBV_QP_AV | SET_RETRY | IBV_QP_MAX_DEST_RD_ATOMIC | SET_PATHS |
		 IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER,
};

/* By hand: clang-format 14 leaves lines of 150 columns in it. */
/* clang-format off */
static const struct transition transitions[7][7] =
	{
		[IBV_QPS_RESET] =
			{
				[IBV_QPS_RESET] = {.valid = true},
				[IBV_QPS_INIT] = {.valid = true,
					.need = {[T_RC] = SET_INIT | IBV_QP_ACCESS_FLAGS,
						[T_UC] = SET_INIT | IBV_QP_ACCESS_FLAGS,
						[T_UD] = SET_INIT | IBV_QP_QKEY}},
			},
		[IBV_QPS_INIT] =
			{
				[IBV_QPS_RESET] = {.valid = true},
				[IBV_QPS_ERR] = {.valid = true},
				[IBV_QPS_INIT] = {.valid = true,
					.may = {[T_RC] = SET_INIT | IBV_QP_ACCESS_FLAGS,
						[T_UC] = SET_INIT | IBV_QP_ACCESS_FLAGS,
						[T_UD] = SET_INIT | IBV_QP_QKEY}},
				[IBV_QPS_RTR] = {.valid = true,
					.need = {[T_RC] = SET_PEER | IBV_QP_MAX_DEST_RD_ATOMIC |
							  IBV_QP_MIN_RNR_TIMER,
						[T_UC] = SET_PEER},
					.may = {[T_RC] = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
							 IBV_QP_PKEY_INDEX,
						[T_UC] = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
							 IBV_QP_PKEY_INDEX,
						[T_UD] = IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
			},
		[IBV_QPS_RTR] =
			{
				[IBV_QPS_RESET] = {.valid = true},
				[IBV_QPS_ERR] = {.valid = true},
				[IBV_QPS_RTS] = {.valid = true,
					.need = {[T_RC] = SET_RETRY | IBV_QP_SQ_PSN,
						[T_UC] = IBV_QP_SQ_PSN,
						[T_UD] = IBV_QP_SQ_PSN},
					.may = {[T_RC] = IBV_QP_CUR_STATE | SET_PATHS |
							 IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER,
						[T_UC] = IBV_QP_CUR_STATE | SET_PATHS |
							 IBV_QP_ACCESS_FLAGS,
						[T_UD] = IBV_QP_CUR_STATE | IBV_QP_QKEY}},
			},
		[IBV_QPS_RTS] =
			{
				[IBV_QPS_RESET] = {.valid = true},
				[IBV_QPS_ERR] = {.valid = true},
				[IBV_QPS_RTS] = {.valid = true,
					.may = {[T_RC] = IBV_QP_CUR_STATE | SET_PATHS |
							 IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER,
						[T_UC] = IBV_QP_CUR_STATE | SET_PATHS |
							 IBV_QP_ACCESS_FLAGS,
						[T_UD] = IBV_QP_CUR_STATE | IBV_QP_QKEY}},
				[IBV_QPS_SQD] = {.valid = true,
					.may = {[T_RC] = SQD_NOTIFY,
						[T_UC] = SQD_NOTIFY,
						[T_UD] = SQD_NOTIFY}},
			},
		[IBV_QPS_SQD] =
			{
				[IBV_QPS_RESET] = {.valid = true},
				[IBV_QPS_ERR] = {.valid = true},
				[IBV_QPS_RTS] = {.valid = true,
					.may = {[T_RC] = IBV_QP_CUR_STATE | SET_PATHS |
							 IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER,
						[T_UC] = IBV_QP_CUR_STATE | SET_PATHS |
							 IBV_QP_ACCESS_FLAGS,
						[T_UD] = IBV_QP_CUR_STATE | IBV_QP_QKEY}},
				[IBV_QPS_SQD] = {.valid = true,
					.may = {[T_RC] = SQD_RC,
						[T_UC] = SQD_UC,
						[T_UD] = IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
			},
		[IBV_QPS_SQE] =
			{
				[IBV_QPS_RESET] = {.valid = true},
				[IBV_QPS_ERR] = {.valid = true},
				[IBV_QPS_RTS] = {.valid = true,
					.may = {[T_UC] = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS,
						[T_UD] = IBV_QP_CUR_STATE | IBV_QP_QKEY}},
			},
		[IBV_QPS_ERR] =
			{
				[IBV_QPS_RESET] = {.valid = true},
				[IBV_QPS_ERR] = {.valid = true},
			},
};
/* clang-format on */

/* Those of rdma-core 56, of which FLUSH's are not in older headers, and all that a device may
 * ignore. */
enum { ACCESS_KNOWN = 0x3ff | IBV_ACCESS_OPTIONAL_RANGE };

/* NULL when attributes and values are right for the transition, else what is wrong. */
static const char *modify_refused(const struct rpwi_qp *qp, const struct ibv_qp_attr *a, int mask,
	enum ibv_qp_state to, const struct rpwi_av *av)
{
	static const int columns[] = {
		[IBV_QPT_RC] = T_RC, [IBV_QPT_UC] = T_UC, [IBV_QPT_UD] = T_UD};
	int type = columns[qp->type];

	if ((unsigned)to > IBV_QPS_ERR || !transitions[qp->state][to].valid)
		return "no such transition";
	const struct transition *t = &transitions[qp->state][to];
	if (to == IBV_QPS_RTS && qp->state == IBV_QPS_SQE && type == T_RC)
		return "no such transition";
	if (t->need[type] & ~mask)
		return "a required attribute is missing";
	if (mask & ~(IBV_QP_STATE | t->need[type] | t->may[type]))
		return "an attribute is not allowed here";
	if ((mask & IBV_QP_CUR_STATE) && a->cur_qp_state != qp->state)
		return "the current state is another";
	if ((mask & IBV_QP_PORT) && a->port_num != 1)
		return "there is only port 1";
	if ((mask & IBV_QP_PKEY_INDEX) && a->pkey_index != 0)
		return "there is only P_Key index 0";
	if ((mask & IBV_QP_ACCESS_FLAGS) && (a->qp_access_flags & ~ACCESS_KNOWN))
		return "an access flag that is none";
	if ((mask & IBV_QP_ALT_PATH) ||
		((mask & IBV_QP_PATH_MIG_STATE) && a->path_mig_state != IBV_MIG_MIGRATED))
		return "RoCE has no alternate paths";
	if ((mask & IBV_QP_AV) && !av)
		return "no address vector";
	if ((mask & IBV_QP_PATH_MTU) && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096))
		return "no such path MTU";
	if ((mask & IBV_QP_PATH_MTU) && a->path_mtu > qp->bounds.mtu)
		return "the path MTU is larger than the port's max_mtu";
	if ((mask & IBV_QP_DEST_QPN) && a->dest_qp_num > RPWI_QPN_MASK)
		return "the destination QP number has more than 24 bits";
	/* Of min_rnr_timer the low 5 bits count, as with rxe and mlx5: DLSlime says 32. */
	if ((mask & IBV_QP_TIMEOUT) && a->timeout > 31)
		return "a timer code is above 31";
	if (((mask & IBV_QP_RETRY_CNT) && a->retry_cnt > 7) ||
		((mask & IBV_QP_RNR_RETRY) && a->rnr_retry > 7))
		return "a retry count is above 7";
	if (((mask & IBV_QP_MAX_QP_RD_ATOMIC) && a->max_rd_atomic > qp->bounds.rd_atomic_out) ||
		((mask & IBV_QP_MAX_DEST_RD_ATOMIC) &&
			a->max_dest_rd_atomic > qp->bounds.rd_atomic_in))
		return "too many outstanding READs and atomics";
	return NULL;
}

static void set_attributes(struct rpwi_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	struct ibv_qp_attr *to = &qp->attr;

	if (mask & IBV_QP_PKEY_INDEX)
		to->pkey_index = a->pkey_index;
	if (mask & IBV_QP_PORT)
		to->port_num = a->port_num;
	if (mask & IBV_QP_ACCESS_FLAGS)
		to->qp_access_flags = a->qp_access_flags;
	if (mask & IBV_QP_QKEY)
		to->qkey = a->qkey;
	if (mask & IBV_QP_AV)
		to->ah_attr = a->ah_attr;
	if (mask & IBV_QP_PATH_MTU)
		to->path_mtu = a->path_mtu;
	if (mask & IBV_QP_DEST_QPN)
		to->dest_qp_num = a->dest_qp_num;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = a->min_rnr_timer;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = a->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = a->max_dest_rd_atomic;
	if (mask & IBV_QP_TIMEOUT) {
		to->timeout = a->timeout;
		qp->timeout_ns = a->timeout ? 4096ull << a->timeout : 0;
	}
	if (mask & IBV_QP_RETRY_CNT)
		qp->retry_left = to->retry_cnt = a->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		qp->rnr_left = to->rnr_retry = a->rnr_retry;
	if (mask & IBV_QP_PATH_MIG_STATE)
		to->path_mig_state = a->path_mig_state;
}

/* The peer's address; packets in flight move to the window of the new one. */
static void set_av(struct rpwi_qp *qp, const struct rpwi_av *av)
{
	rpwi_window_move(qp, rpwi_qp_is_rc(qp) ? av->cc : NULL);
	qp->av = *av;
}

static void enter_state(
	struct rpwi_qp *qp, enum ibv_qp_state to, const struct ibv_qp_attr *a, int mask)
{
	enum ibv_qp_state from = qp->state;

	rpwi_qp_enter(qp, to);
	if (to == IBV_QPS_RTR && from == IBV_QPS_INIT) {
		rpwi_resp_reset(qp, a->rq_psn & RPWI_PSN_MASK);
		qp->mtu = 128u << qp->attr.path_mtu;
		qp->read_chunk_pkts =
			RPWI_MAX(RPWI_READ_CHUNK_PKTS, RPWI_READ_CHUNK_BYTES / qp->mtu);
		qp->attr.path_mig_state = IBV_MIG_MIGRATED;
	}
	if (to == IBV_QPS_RTS && from == IBV_QPS_RTR)
		rpwi_req_reset(qp, a->sq_psn & RPWI_PSN_MASK);
	if (to == IBV_QPS_SQD && from == IBV_QPS_RTS) {
		qp->sqd_notify = (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) && a->en_sqd_async_notify;
		rpwi_req_retired(qp);
	}
}

int rpwi_qp_modify(struct rpwi_qp *qp, const struct ibv_qp_attr *attr, int mask,
	const struct rpwi_av *av, uint64_t now_ns)
{
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : qp->state;
	const char *why = modify_refused(qp, attr, mask, to, av);

	if (why) {
		rpwi_debug("QP %u: modify from state %d to %d with attributes 0x%x refused: %s",
			qp->qpn, qp->state, to, mask, why);
		return -EINVAL;
	}
	if (to == IBV_QPS_RESET) {
		reset(qp);
		return 0;
	}
	if (to == IBV_QPS_ERR) {
		if (qp->state != IBV_QPS_ERR)
			rpwi_qp_enter_err(qp, false);
		return 0;
	}
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) &&
		(qp->state == IBV_QPS_INIT ||
			attr->max_dest_rd_atomic > qp->attr.max_dest_rd_atomic) &&
		rpwi_resp_alloc(qp, attr->max_dest_rd_atomic))
		return -ENOMEM;
	set_attributes(qp, attr, mask);
	if (mask & IBV_QP_AV)
		set_av(qp, av);
	enter_state(qp, to, attr, mask);
	return 0;
}

void rpwi_qp_query(const struct rpwi_qp *qp, struct ibv_qp_attr *attr)
{
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->sq_psn = qp->nxt & RPWI_PSN_MASK;
	attr->rq_psn = qp->epsn & RPWI_PSN_MASK;
	attr->sq_draining = qp->state == IBV_QPS_SQD &&
			    (qp->sq_head != qp->sq_cur || rpwi_req_state(qp) != RPWI_REQ_IDLE);
}

/* ---- posting ---- */

static uint32_t longest(const struct rpwi_qp *qp, const struct rpwi_wr_info *info)
{
	return info->wc_opcode == IBV_WC_SEND ? qp->plain_max : qp->bounds.message;
}

/* 0 or -EINVAL: is this a WR for this QP? *len gets its length. */
static int check_wr(const struct rpwi_qp *qp, const struct ibv_send_wr *wr,
	const struct rpwi_av *ud_av, uint64_t *len)
{
	if ((unsigned)wr->opcode >= RPWI_WR_OPCODES)
		return -EINVAL;
	const struct rpwi_wr_info *info = &rpwi_wr_info[wr->opcode];
	bool has = info->types >> qp->type & qp->bounds.opcodes >> wr->opcode & 1;
	bool inl = wr->send_flags & IBV_SEND_INLINE;

	if (!has || (qp->type == IBV_QPT_UD && !ud_av) || (inl && !info->inline_ok))
		return -EINVAL;
	*len = 0;
	if (info->local)
		return wr->opcode == IBV_WR_BIND_MW && !wr->bind_mw.mw ? -EINVAL : 0;
	if (wr->num_sge < 0 || (!inl && (uint32_t)wr->num_sge > qp->attr.cap.max_send_sge))
		return -EINVAL;
	if (wr->opcode == IBV_WR_RDMA_READ && wr->num_sge > qp->bounds.sge_rd)
		return -EINVAL;
	for (int i = 0; i < wr->num_sge; i++)
		*len += wr->sg_list[i].length;
	if (*len > longest(qp, info) || (inl && *len > qp->attr.cap.max_inline_data))
		return -EINVAL;
	if (qp->type == IBV_QPT_UD && *len > qp->mtu)
		return -EINVAL;
	if (info->wc_opcode == IBV_WC_COMP_SWAP || info->wc_opcode == IBV_WC_FETCH_ADD) {
		if (*len < 8)
			return -EINVAL;
		*len = 8;
	}
	if (info->wc_opcode == RPWI_WC_ATOMIC_WRITE && *len != RPWI_ATOMIC_WRITE_LEN)
		return -EINVAL;
	return 0;
}

int rpwi_qp_check_wr(
	const struct rpwi_qp *qp, const struct ibv_send_wr *wr, const struct rpwi_av *ud_av)
{
	uint64_t len;
	return check_wr(qp, wr, ud_av, &len);
}

static void copy_data(struct rpwi_swqe *w, const struct ibv_send_wr *wr)
{
	uint8_t *to = w->inl;

	w->nsge = 0;
	if (rpwi_wr_info[wr->opcode].local)
		return;
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *s = &wr->sg_list[i];

		if (!(wr->send_flags & IBV_SEND_INLINE)) {
			w->sge[w->nsge++] = *s;
		} else if (s->length) {
			/* inline: the lkey does not matter (ibv_post_send(3)) */
			memcpy(to, (const void *)(uintptr_t)s->addr, s->length);
			to += s->length;
		}
	}
}

static void copy_operands(struct rpwi_qp *qp, struct rpwi_swqe *w, const struct ibv_send_wr *wr,
	const struct rpwi_av *ud_av)
{
	switch (wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		w->raddr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		w->compare_add = wr->wr.atomic.compare_add;
		w->swap = wr->wr.atomic.swap;
		return;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		w->inv_rkey = wr->invalidate_rkey;
		return;
	case IBV_WR_BIND_MW:
		w->bind = (struct rpwi_bind){.mw_key = wr->bind_mw.mw->rkey,
			.new_key = wr->bind_mw.rkey,
			.mr_key = wr->bind_mw.bind_info.mr ? wr->bind_mw.bind_info.mr->lkey : 0,
			.access = wr->bind_mw.bind_info.mw_access_flags,
			.addr = wr->bind_mw.bind_info.addr,
			.length = wr->bind_mw.bind_info.length};
		return;
	default:
		break;
	}
	w->imm_be = wr->imm_data;
	if (qp->type == IBV_QPT_UD) {
		*w->av = *ud_av;
		w->dqpn = wr->wr.ud.remote_qpn & RPWI_QPN_MASK;
		w->dqkey = wr->wr.ud.remote_qkey;
	} else {
		w->raddr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
	}
}

/* Most are: a SEND or WRITE of one piece, over RC. All that check_wr asks of it, at once. */
static bool is_plain(const struct rpwi_qp *qp, const struct ibv_send_wr *wr)
{
	return (wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_RDMA_WRITE) && wr->num_sge == 1 &&
	       qp->type == IBV_QPT_RC && (qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD) &&
	       qp->sq_tail - qp->sq_head < qp->sq_max &&
	       wr->sg_list->length <= (wr->send_flags & IBV_SEND_INLINE
						      ? qp->attr.cap.max_inline_data
						      : qp->plain_max);
}

/* The next WQE, which is not posted yet. */
static struct rpwi_swqe *next_wqe(
	const struct rpwi_qp *qp, const struct ibv_send_wr *wr, uint32_t len)
{
	struct rpwi_swqe *w = rpwi_sq_at(qp, qp->sq_tail);

	w->wr_id = wr->wr_id;
	w->opcode = (uint8_t)wr->opcode;
	w->flags = (uint8_t)wr->send_flags;
	w->phase = RPWI_SWQE_POSTED;
	w->doom = 0;
	w->len = len;
	return w;
}

static void post_plain(struct rpwi_qp *qp, const struct ibv_send_wr *wr)
{
	const struct ibv_sge *s = wr->sg_list;
	struct rpwi_swqe *w = next_wqe(qp, wr, s->length);

	w->raddr = wr->wr.rdma.remote_addr;
	w->rkey = wr->wr.rdma.rkey;
	w->nsge = !(wr->send_flags & IBV_SEND_INLINE);
	if (w->nsge)
		w->sge[0] = *s;
	else
		memcpy(w->inl, (const void *)(uintptr_t)s->addr, s->length);
	qp->sq_tail++;
}

int rpwi_qp_post_any(struct rpwi_qp *qp, const struct ibv_send_wr *wr, const struct rpwi_av *ud_av)
{
	uint64_t len;

	if (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT || qp->state == IBV_QPS_RTR ||
		check_wr(qp, wr, ud_av, &len))
		return -EINVAL;
	if (qp->sq_tail - qp->sq_head >= qp->sq_max)
		return -ENOMEM;

	struct rpwi_swqe *w = next_wqe(qp, wr, (uint32_t)len);

	copy_operands(qp, w, wr, ud_av);
	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE) {
		rpwi_qp_complete_send(qp, w, IBV_WC_WR_FLUSH_ERR);
		return 0;
	}
	copy_data(w, wr);
	qp->sq_tail++;
	return 0;
}

int rpwi_qp_post_send(struct rpwi_qp *qp, const struct ibv_send_wr *wr, const struct rpwi_av *ud_av)
{
	if (!RPWI_LIKELY(is_plain(qp, wr)))
		return rpwi_qp_post_any(qp, wr, ud_av);
	post_plain(qp, wr);
	return 0;
}

void rpwi_qp_doom(struct rpwi_qp *qp, uint8_t status)
{
	if (qp->sq_tail != qp->sq_head)
		rpwi_sq_at(qp, qp->sq_tail - 1)->doom = status;
}

void rpwi_qp_answer_next(struct rpwi_qp *qp, uint8_t syndrome)
{
	qp->scripted = (uint8_t)(syndrome + 1);
}

/* ---- packets and time: dispatch ---- */

#define LATE_NS RPWI_NS_PER_MS

/* RC and UC take packets of their peer and from nobody else (IB 9.6.1.5; RoCEv2: A17.4.5, the
 * addresses of the IP header), in the default partition (IB 9.6.1.1.1). */
static bool from_peer(const struct rpwi_qp *qp, const struct rpwi_flow *flow)
{
	return rpwi_addr_eq(&flow->src, &qp->av.flow.dst) &&
	       rpwi_addr_eq(&flow->dst, &qp->av.flow.src);
}

void rpwi_qp_rx(struct rpwi_qp *qp, const struct rpwi_pkt *p, const struct rpwi_rxmeta *meta,
	uint64_t now_ns)
{
	static const unsigned svc[] = {
		[IBV_QPT_RC] = RPWI_SVC_RC, [IBV_QPT_UC] = RPWI_SVC_UC, [IBV_QPT_UD] = RPWI_SVC_UD};

	if (RPWI_UNLIKELY(!rpwi_qp_receives(qp))) {
		qp->n->rx_wrong_state++;
		return;
	}
	if (RPWI_UNLIKELY(rpwi_pkt_svc(p) != svc[qp->type] ||
			  !rpwi_op_has(rpwi_pkt_op(p), RPWI_F_VALID))) {
		qp->n->rx_bad_opcode++;
		return;
	}
	if (RPWI_UNLIKELY((p->pkey ^ RPWI_PKEY_DEFAULT) & 0x7fff) ||
		(qp->type != IBV_QPT_UD && RPWI_UNLIKELY(!from_peer(qp, meta->flow)))) {
		if (RPWI_UNLIKELY(qp->ops->told))
			qp->ops->told(qp, RPWI_TOLD_WRONG_PEER, p, meta->flow);
		qp->n->rx_wrong_peer++;
		return;
	}
	struct rpwi_qp_stats *n = qp->n;
	n->rx_packets += 1u + p->more;
	n->rx_bytes += p->payload_len;
	if (qp->type == IBV_QPT_UD)
		rpwi_ud_rx(qp, p, meta);
	else if (qp->type == IBV_QPT_UC)
		rpwi_uc_rx(qp, p);
	else if (rpwi_op_is_request(rpwi_pkt_op(p)))
		rpwi_resp_rx(qp, p, now_ns);
	else
		rpwi_cpl_rx(qp, p, now_ns);
}

static bool sends(const struct rpwi_qp *qp)
{
	return qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
}

void rpwi_qp_tx(struct rpwi_qp *qp, struct rpwi_txb *b, bool hold_ack, uint64_t now_ns)
{
	unsigned npkt = b->npkt;

	rpwi_qp_tx_done(qp);
	if (qp->type != IBV_QPT_UD && !rpwi_txb_accepts(b, &qp->av))
		return;
	if (rpwi_resp_has_answers(qp))
		rpwi_resp_tx(qp, b, now_ns);
	/* Before the requests: requests that they answer complete at the peer before they do, as
	 * programs expect of a NIC. */
	bool requests =
		hold_ack && qp->ack_owed && sends(qp) && rpwi_req_state(qp) == RPWI_REQ_READY;

	if (rpwi_resp_ack_due(qp, hold_ack && !requests && b->npkt == npkt, now_ns) &&
		rpwi_txb_room(b)) {
		b->ack = qp->slow & RPWI_SLOW_NAK ? 0 : b->npkt + 1;
		rpwi_resp_tx_ack(qp, b);
	}
	if (sends(qp) && rpwi_txb_room(b))
		rpwi_req_tx(qp, b, rpwi_txb_room(b), now_ns);
	if (!b->npkt)
		b->av = NULL;
}

bool rpwi_qp_tx_short(struct rpwi_qp *qp, struct rpwi_short *out, uint32_t len_max, uint64_t now_ns)
{
	if (rpwi_resp_has_answers(qp) || !rpwi_req_tx_short(qp, out, len_max, now_ns))
		return false;
	rpwi_resp_lead_by_ack(qp, out);
	return true;
}

void rpwi_qp_tx_short_fault(struct rpwi_qp *qp, const struct rpwi_short *s, struct rpwi_txb *b)
{
	if (s->led && rpwi_txb_accepts(b, &qp->av))
		rpwi_resp_tx_ack(qp, b);
	rpwi_req_fault(qp, s->psn);
}

void rpwi_qp_tx_done(struct rpwi_qp *qp)
{
	if (!rpwi_qp_is_rc(qp) && qp->sq_head != qp->sq_cur)
		rpwi_req_sent(qp);
}

void rpwi_qp_tx_fault(struct rpwi_qp *qp, const struct rpwi_txb *b, unsigned index, uint64_t now_ns)
{
	struct rpwi_pkt p;
	uint8_t raw[RPWI_HDR_MAX + 4 + RPWI_ICRC_LEN] = {0};

	index += index + 1 == b->ack; /* of a run of packets the first is named */
	if (index >= b->npkt || !sends(qp))
		return;
	/* Only the headers are looked at, so four zero bytes stand for a payload and its pad. */
	const struct rpwi_txpkt *t = &b->pkt[index];
	size_t len = t->hdr_len + (t->payload_len ? 4u : 0) + RPWI_ICRC_LEN;

	memcpy(raw, t->hdr, t->hdr_len);
	if (!rpwi_pkt_decode(raw, len, &p) && rpwi_op_is_request(rpwi_pkt_op(&p)))
		rpwi_req_fault(qp, p.psn);
}

bool rpwi_qp_tx_ready(const struct rpwi_qp *qp, bool hold_ack, uint64_t now_ns)
{
	if (rpwi_resp_has_answers(qp) || rpwi_resp_ack_due(qp, hold_ack, now_ns))
		return true;
	if (!rpwi_qp_is_rc(qp) && qp->sq_head != qp->sq_cur)
		return true;
	return sends(qp) && rpwi_req_state(qp) == RPWI_REQ_READY;
}

bool rpwi_qp_ack_owed(const struct rpwi_qp *qp) { return qp->ack_owed || qp->slow & RPWI_SLOW_NAK; }

bool rpwi_qp_rests(const struct rpwi_qp *qp, uint64_t now_ns)
{
	return !(qp->slow & (RPWI_SLOW_STATE | RPWI_SLOW_PROBE)) && qp->sq_cur == qp->sq_tail &&
	       !rpwi_resp_has_answers(qp) && !rpwi_resp_ack_due(qp, true, now_ns);
}

bool rpwi_qp_blocked(const struct rpwi_qp *qp)
{
	return sends(qp) && rpwi_req_state(qp) == RPWI_REQ_BLOCKED;
}

void rpwi_qp_yields(struct rpwi_qp *qp, bool yields)
{
	if (yields)
		qp->window |= RPWI_WINDOW_YIELDS;
	else
		qp->window &= (uint8_t)~RPWI_WINDOW_YIELDS;
}

bool rpwi_qp_may_gather(struct rpwi_qp *qp)
{
	struct rpwi_cc *cc = qp->cc;
	uint32_t waiting = qp->sq_tail - qp->sq_cur;

	if (!cc || qp->state != IBV_QPS_RTS || !waiting)
		return false;
	/* How many are posted before all is acknowledged, this time and the last. */
	if (!cc->inflight) {
		cc->bursts = cc->burst >= RPWI_GATHER_BURST;
		cc->burst = 0;
	}
	cc->burst += cc->burst < RPWI_GATHER_BURST;
	bool many = cc->bursts || cc->burst == RPWI_GATHER_BURST;

	if (cc->inflight < (many ? 1u : RPWI_GATHER_BEHIND) || waiting > RPWI_GATHER_MAX ||
		qp->ack_owed || qp->slow & (RPWI_SLOW_NAK | RPWI_SLOW_RNR))
		return false;
	const struct rpwi_swqe *w = rpwi_sq_at(qp, qp->sq_tail - 1);

	return w->len <= RPWI_GATHER_BYTES && !rpwi_wr_info[w->opcode].local &&
	       !rpwi_op_needs_response(w->opcode);
}

uint64_t rpwi_qp_deadline(const struct rpwi_qp *qp)
{
	if (!rpwi_qp_is_rc(qp))
		return RPWI_NEVER;
	if (qp->nxt == qp->una)
		return qp->rnr_deadline_ns;
	return RPWI_MIN(RPWI_MIN(qp->ack_deadline_ns, qp->probe_deadline_ns), qp->rnr_deadline_ns);
}

void rpwi_qp_timer(struct rpwi_qp *qp, uint64_t now_ns)
{
	if (!rpwi_qp_is_rc(qp))
		return;
	if (now_ns >= qp->rnr_deadline_ns)
		rpwi_qp_rnr_over(qp);
	uint64_t *first = qp->probe_deadline_ns < qp->ack_deadline_ns ? &qp->probe_deadline_ns
								      : &qp->ack_deadline_ns;

	if (qp->nxt == qp->una || now_ns < *first)
		return;
	/* This process did not run when it should have: packets that came meanwhile are looked at
	 * first. */
	if (now_ns - *first > LATE_NS && !qp->late) {
		qp->late = true;
		qp->probe_deadline_ns = RPWI_MAX(qp->probe_deadline_ns, now_ns + LATE_NS);
		qp->ack_deadline_ns = RPWI_MAX(qp->ack_deadline_ns, now_ns + LATE_NS);
		return;
	}
	qp->late = false;
	uint32_t upto;

	if (RPWI_UNLIKELY(rpwi_stopped_look(qp, &upto)))
		rpwi_cpl_placed(qp, upto, now_ns);
	else if (now_ns >= qp->ack_deadline_ns)
		rpwi_cpl_timeout(qp, now_ns);
	else
		rpwi_req_probe(qp, now_ns);
}

bool rpwi_qp_is_silent(const struct rpwi_qp *qp)
{
	return qp->nxt != qp->una &&
	       (qp->probes || qp->silences || qp->window & RPWI_WINDOW_SILENT);
}

const struct rpwi_av *rpwi_qp_next_av(const struct rpwi_qp *qp)
{
	if (qp->type != IBV_QPT_UD)
		return qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD ? &qp->av : NULL;
	return qp->sq_cur != qp->sq_tail ? rpwi_sq_at(qp, qp->sq_cur)->av : NULL;
}

uint32_t rpwi_qp_next_dqpn(const struct rpwi_qp *qp)
{
	if (qp->type != IBV_QPT_UD)
		return qp->attr.dest_qp_num;
	return qp->sq_cur != qp->sq_tail ? rpwi_sq_at(qp, qp->sq_cur)->dqpn : 0;
}

unsigned rpwi_qp_mtu(const struct rpwi_qp *qp) { return qp->mtu; }
