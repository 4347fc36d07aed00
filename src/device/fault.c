/* SPDX-License-Identifier: BSD-3-Clause */
/* fault.c - see fault.h. Where the device has a real cause for a status it is made to happen: a
 * wrong key, a receive without room, packets that nobody gets. Else the transport is told which
 * status the work request ends with (rpwi_qp_doom). */
#include "device/fault.h"

#include <stdlib.h>

#include "wire/mad.h"

enum { KEPT_MAX = 16384, MADS_MAX = 256 };

static const struct fault_ops *ops; /* before there is a script */
void fault_begin(const struct fault_ops *o) { ops = o; }

/* ---- work requests ---- */

/* One that no region has. */
static uint32_t wrong_key(uint32_t key)
{
	do
		key ^= 0x5a00u, key += 0x100;
	while (ops->key(key));
	return key;
}

/* The SGEs with a wrong key each, in `to`; their bytes. 0: none to be had. */
static uint64_t wrong_sges(struct ibv_sge to[RPWI_SGE_MAX], const struct ibv_sge *from, int n)
{
	uint64_t bytes = 0;
	for (int i = 0; i < n; i++) {
		to[i] = from[i];
		to[i].lkey = wrong_key(from[i].lkey);
		bytes += from[i].length;
	}
	return bytes;
}

static uint64_t bytes_of(const struct ibv_sge *sge, int n)
{
	uint64_t bytes = 0;
	for (int i = 0; i < n; i++)
		bytes += sge[i].length;
	return bytes;
}

static bool is_local(enum ibv_wr_opcode op)
{
	return op == IBV_WR_LOCAL_INV || op == IBV_WR_BIND_MW;
}
static bool is_atomic(enum ibv_wr_opcode op)
{
	return op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
static bool has_rkey(enum ibv_wr_opcode op)
{
	return op == IBV_WR_RDMA_WRITE || op == IBV_WR_RDMA_WRITE_WITH_IMM ||
	       op == IBV_WR_RDMA_READ || (int)op == RPWI_WR_ATOMIC_WRITE || is_atomic(op);
}

/* The same work request, so changed that it fails with `status` by itself. False: none such. */
static bool cause_send(const struct dqp *q, struct ibv_send_wr *wr, uint64_t bytes, int status,
	struct ibv_sge sge[RPWI_SGE_MAX])
{
	switch (status) {
	case IBV_WC_LOC_PROT_ERR:
		if (!bytes || is_local(wr->opcode) || wr->send_flags & IBV_SEND_INLINE)
			return false;
		wrong_sges(sge, wr->sg_list, wr->num_sge);
		wr->sg_list = sge;
		return true;
	case IBV_WC_REM_ACCESS_ERR:
		if (q->t.type != IBV_QPT_RC || !bytes || !has_rkey(wr->opcode))
			return false;
		if (is_atomic(wr->opcode))
			wr->wr.atomic.rkey = wrong_key(wr->wr.atomic.rkey);
		else
			wr->wr.rdma.rkey = wrong_key(wr->wr.rdma.rkey);
		return true;
	case IBV_WC_MW_BIND_ERR:
		if (wr->opcode != IBV_WR_BIND_MW)
			return false;
		wr->bind_mw.bind_info.length = UINT64_MAX; /* more than any region has */
		return true;
	default:
		return false;
	}
}

int fault_post_send(struct dqp *q, const struct ibv_send_wr *wr, const struct rpwi_av *av)
{
	struct ibv_sge sge[RPWI_SGE_MAX];
	bool sane = wr->num_sge >= 0 && wr->num_sge <= RPWI_SGE_MAX;
	uint64_t bytes = sane && !is_local(wr->opcode) ? bytes_of(wr->sg_list, wr->num_sge) : 0;
	struct rpwi_fate f = rpwi_plan_ask(&(struct rpwi_occasion){.subject = RPWI_SUBJ_SEND,
		.detail = RPWI_ANY,
		.state = RPWI_ANY,
		.qp = q->ordinal,
		.bytes = bytes});
	if (!f.status || !sane)
		return rpwi_qp_post_send(&q->t, wr, av);
	struct ibv_send_wr harmed = *wr;
	if (!f.forge && cause_send(q, &harmed, bytes, f.status, sge))
		return rpwi_qp_post_send(&q->t, &harmed, av);
	if (f.status == IBV_WC_WR_FLUSH_ERR && !f.forge) {
		ops->to_error(q, rpwi_now_ns());
		return rpwi_qp_post_send(&q->t, wr, av);
	}
	bool waits = q->t.state == IBV_QPS_RTS || q->t.state == IBV_QPS_SQD;
	int rc = rpwi_qp_post_send(&q->t, wr, av);
	bool silent = f.status == IBV_WC_RETRY_EXC_ERR && !f.forge && q->t.timeout_ns &&
		      q->t.type == IBV_QPT_RC && !is_local(wr->opcode);
	if (!rc && waits)
		rpwi_qp_doom(&q->t, (uint8_t)(f.status | (silent ? RPWI_DOOM_SILENT : 0)));
	return rc;
}

int fault_post_recv(struct dqp *q, struct rpwi_rq *rq, const struct ibv_recv_wr *wr)
{
	struct ibv_sge sge[RPWI_SGE_MAX];
	struct rpwi_fate f = rpwi_plan_ask(&(struct rpwi_occasion){.subject = RPWI_SUBJ_RECV,
		.detail = RPWI_ANY,
		.state = RPWI_ANY,
		.qp = q ? q->ordinal : 0});
	struct ibv_recv_wr harmed = *wr;
	bool sane = wr->num_sge >= 0 && (uint32_t)wr->num_sge <= rq->sge_max;
	if (!f.status || !sane)
		return rpwi_rq_post(rq, wr);
	/* A byte is too much for it. UC and UD take the next message into it then. */
	bool fails = !q || q->t.type == IBV_QPT_RC;
	if (!f.forge && f.status == IBV_WC_LOC_LEN_ERR && fails) {
		harmed.num_sge = 0;
		return rpwi_rq_post(rq, &harmed);
	}
	if (!f.forge && f.status == IBV_WC_LOC_PROT_ERR &&
		wrong_sges(sge, wr->sg_list, wr->num_sge)) {
		harmed.sg_list = sge;
		return rpwi_rq_post(rq, &harmed);
	}
	if (!f.forge && f.status == IBV_WC_WR_FLUSH_ERR && q) {
		ops->to_error(q, rpwi_now_ns());
		return rpwi_rq_post(rq, wr);
	}
	int rc = rpwi_rq_post(rq, wr);
	if (!rc)
		rpwi_rq_doom(rq, (uint8_t)f.status);
	return rc;
}

/* ---- packets that come ---- */

bool fault_rx(
	struct dqp *q, const struct rpwi_pkt *pkt, const struct rpwi_rxmeta *meta, uint64_t now_ns)
{
	if (!rpwi_plan_packets)
		return false;
	if (rpwi_plan_port_down(now_ns) || rpwi_plan_silent(q->ordinal, now_ns))
		return true;
	struct rpwi_fate f = rpwi_plan_ask(&(struct rpwi_occasion){.subject = RPWI_SUBJ_RX,
		.detail = (int)rpwi_pkt_op(pkt),
		.state = RPWI_ANY,
		.qp = q->ordinal,
		.bytes = pkt->payload_len});
	if (f.drop)
		return true;
	if (f.nak && q->t.type == IBV_QPT_RC && rpwi_op_is_request(rpwi_pkt_op(pkt)))
		rpwi_qp_answer_next(&q->t, (uint8_t)(f.nak - 1));
	if (f.dup)
		rpwi_qp_rx(&q->t, pkt, meta, now_ns);
	return false;
}

/* ---- completions that are late ---- */

struct kept {
	struct kept *next;
	uint64_t due_ns;
	struct dcq *cq;
	struct ibv_wc wc;
	bool solicited;
};
/* By the time they came: in each CQ they are due in that order. */
static struct kept *kept_first, **kept_end = &kept_first;
static unsigned nkept;

/* Those that `take` says yes to leave, in order; to the program where they are pushed. */
static void kept_sweep(
	bool (*take)(const struct kept *k, const void *arg), const void *arg, bool push)
{
	for (struct kept **at = &kept_first; *at;) {
		struct kept *k = *at;
		if (!take(k, arg)) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		if (!*at)
			kept_end = at;
		nkept--;
		k->cq->kept--;
		if (push)
			ops->push(k->cq, &k->wc, k->solicited);
		free(k);
	}
	if (!kept_first)
		kept_end = &kept_first;
}

static bool is_of_cq(const struct kept *k, const void *arg) { return k->cq == arg; }

bool fault_complete(struct dqp *q, bool recv, const struct ibv_wc *wc, bool solicited)
{
	struct dcq *cq = recv ? q->rcq : q->scq;
	struct rpwi_fate f = rpwi_plan_ask(&(struct rpwi_occasion){.subject = RPWI_SUBJ_COMPLETION,
		.detail = recv,
		.state = RPWI_ANY,
		.qp = q->ordinal});
	uint64_t until = cq->kept ? cq->kept_until_ns : 0;
	if (!f.late_ns && !until)
		return false;
	if (nkept == KEPT_MAX) { /* too many are late: those of this CQ no more */
		kept_sweep(is_of_cq, cq, true);
		return false;
	}
	struct kept *k = malloc(sizeof(*k));
	if (!k)
		return false;
	*k = (struct kept){.due_ns = RPWI_MAX(until, rpwi_now_ns() + f.late_ns),
		.cq = cq,
		.wc = *wc,
		.solicited = solicited};
	*kept_end = k;
	kept_end = &k->next;
	nkept++;
	cq->kept++;
	cq->kept_until_ns = k->due_ns;
	ops->wake();
	return true;
}

struct of_qp {
	const struct dcq *cq;
	uint32_t qpn;
};
static bool is_of(const struct kept *k, const void *arg)
{
	const struct of_qp *of = arg;
	return k->cq == of->cq && k->wc.qp_num == of->qpn;
}
static bool is_due(const struct kept *k, const void *arg)
{
	return k->due_ns <= *(const uint64_t *)arg;
}

void fault_forget(const struct dcq *cq, uint32_t qpn)
{
	kept_sweep(is_of, &(struct of_qp){cq, qpn}, false);
}

/* ---- messages of the CM ---- */

struct mad {
	struct mad *next;
	uint64_t due_ns;
	bool received;
	struct rpwi_cm_path path;
	uint8_t bytes[RPWI_MAD_LEN];
};
static struct mad *mads;
static unsigned nmads;
static bool mads_pass; /* what was kept goes its way now */

static void keep_mad(
	const struct rpwi_cm_path *path, const uint8_t *bytes, bool received, uint64_t ns)
{
	struct mad *m = nmads < MADS_MAX ? malloc(sizeof(*m)) : NULL, **end = &mads;
	if (!m)
		return;
	*m = (struct mad){.due_ns = rpwi_now_ns() + ns, .received = received, .path = *path};
	memcpy(m->bytes, bytes, RPWI_MAD_LEN);
	while (*end)
		end = &(*end)->next;
	*end = m;
	nmads++;
	ops->wake();
}

/* The refusal of a request, as from who got it (IB 12.6.7). */
static void reject_of(const struct rpwi_cm_msg *req, int reason, uint8_t out[RPWI_MAD_LEN])
{
	struct rpwi_cm_msg rej = {
		.attr = RPWI_CM_REJ, .tid = req->tid, .remote_comm_id = req->local_comm_id};
	rej.rej.reason = (uint16_t)reason;
	rpwi_cm_encode(&rej, out);
}

static bool cm_fate(enum rpwi_subject way, const struct rpwi_cm_path *path, const uint8_t *mad)
{
	struct rpwi_cm_msg m;
	uint8_t rej[RPWI_MAD_LEN];
	bool received = way == RPWI_SUBJ_CM_RX;
	if (mads_pass || rpwi_cm_decode(mad, RPWI_MAD_LEN, &m))
		return false;
	struct rpwi_fate f = rpwi_plan_ask(
		&(struct rpwi_occasion){.subject = way, .detail = m.attr, .state = RPWI_ANY});
	if (f.drop)
		return true;
	if (f.reject && m.attr == RPWI_CM_REQ) {
		reject_of(&m, f.reject, rej);
		/* of a request that came, to its sender; of our own, as if from the peer */
		keep_mad(path, rej, !received, 0);
		return true;
	}
	if (f.dup)
		keep_mad(path, mad, received, 0);
	if (f.delay_ns)
		keep_mad(path, mad, received, f.delay_ns);
	return f.delay_ns;
}

bool fault_cm_tx(const struct rpwi_cm_path *path, const uint8_t *mad)
{
	return cm_fate(RPWI_SUBJ_CM_TX, path, mad);
}

bool fault_cm_rx(const struct rpwi_cm_path *path, const uint8_t *mad, size_t len)
{
	uint64_t now = rpwi_now_ns();
	if (rpwi_plan_port_down(now) || rpwi_plan_silent(0, now))
		return true;
	return len == RPWI_MAD_LEN && cm_fate(RPWI_SUBJ_CM_RX, path, mad);
}

static void mads_due(uint64_t now_ns)
{
	struct mad *next;
	for (struct mad **at = &mads; *at;) {
		struct mad *m = *at;
		next = m->next;
		if (m->due_ns > now_ns) {
			at = &m->next;
			continue;
		}
		*at = next;
		nmads--;
		mads_pass = true;
		if (m->received)
			ops->feed(&m->path, m->bytes, RPWI_MAD_LEN, now_ns);
		else
			ops->send(&m->path, m->bytes);
		mads_pass = false;
		free(m);
	}
}

/* ---- time ---- */

uint64_t fault_deadline(void)
{
	uint64_t at = rpwi_plan_deadline();
	for (const struct kept *k = kept_first; k; k = k->next)
		at = RPWI_MIN(at, k->due_ns);
	for (const struct mad *m = mads; m; m = m->next)
		at = RPWI_MIN(at, m->due_ns);
	return at;
}

void fault_timer(uint64_t now_ns)
{
	struct rpwi_happening h;
	while (rpwi_plan_next(now_ns, &h))
		ops->happen(&h);
	kept_sweep(is_due, &now_ns, true);
	mads_due(now_ns);
}
