/* SPDX-License-Identifier: BSD-3-Clause */
/* fact.c - see fact.h. */
#include "device/fact.h"

#include "check/happened.h"
#include "device/qp.h"
#include "wire/mad.h"

#include <stdio.h>

static const struct {
	enum rpwi_cause_kind kind;
	const char *text; /* NULL: the checker is not told */
} words[RPWI_FACT_COUNT] = {
	[RPWI_FACT_CONNECTING] = {RPWI_CAUSE_CONNECTING, "called rdma_connect"},
	[RPWI_FACT_ACCEPTING] = {RPWI_CAUSE_ACCEPTING, "called rdma_accept"},
	[RPWI_FACT_ESTABLISHED] = {RPWI_CAUSE_ESTABLISHED, "was connected"},
	[RPWI_FACT_TOOK_ESTABLISHED] = {RPWI_CAUSE_TOOK_ESTABLISHED, "took ESTABLISHED"},
	[RPWI_FACT_DISCONNECT] = {RPWI_CAUSE_DISCONNECT, "called rdma_disconnect"},
	[RPWI_FACT_DISCONNECTED] = {RPWI_CAUSE_DISCONNECTED, "was told that the peer disconnects"},
	[RPWI_FACT_PEER_GONE] = {RPWI_CAUSE_PEER_GONE, "saw that the peer's process had ended"},
	[RPWI_FACT_REJECTED] = {RPWI_CAUSE_REJECTED, "was rejected"},
	[RPWI_FACT_UNREACHABLE] = {RPWI_CAUSE_UNREACHABLE,
		"got no answer to its request to connect"},
	[RPWI_FACT_TO_ERROR] = {RPWI_CAUSE_TO_ERROR, "moved its QP to ERR"},
};

/* QPs whose sends are flushed by that, though the program may have meant them to arrive. */
static void look_for_sends(uint32_t qpn)
{
	struct dqp *q = qpn ? qp_lookup(qpn) : NULL;
	if (!q)
		return;
	qp_hold(q);
	check_undrained(qpn, q->t.sq_tail - q->t.sq_head);
}

void rpwi_fact_tell(enum rpwi_explain_fact fact, uint32_t qpn, uint64_t n, const char *how)
{
	if (rpwi_explain_on)
		rpwi_explain_fact_write(fact, qpn, n);
	if (!rpwi_check_on || !words[fact].text)
		return;
	if (fact == RPWI_FACT_DISCONNECT)
		look_for_sends(qpn);
	if (fact == RPWI_FACT_REJECTED)
		check_happened(words[fact].kind, qpn, "was rejected%s (REJ, reason %u)",
			n == RPWI_REJ_INVALID_SERVICE_ID ? ": no program listens on that port" : "",
			(unsigned)n);
	else
		check_happened(words[fact].kind, qpn, "%s", how ? how : words[fact].text);
}

void rpwi_dev_disconnects(struct ibv_qp *ibv)
{
	if (!hca_lock_live(LIVE_QP, ibv))
		return;
	look_for_sends(ibv->qp_num);
	hca_unlock();
}
