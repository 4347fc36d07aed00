/* SPDX-License-Identifier: BSD-3-Clause */
/* dropped.c - see queue.h: requests that RESET drops, and a QP that is used again without them. */
#include "check/queue.h"

static const struct check_wr *slot_at(const struct check_queue *of, uint32_t i)
{
	return &of->ring[i & of->mask];
}

/* Completions that were not polled are gone, too: of receives they count. A send that is done has
 * done what it was for. */
void check_drops(struct check_qp *q)
{
	uint32_t from = (int32_t)(q->sq.gone - q->sq.done) > 0 ? q->sq.gone : q->sq.done, n = 0;
	for (uint32_t i = q->rq.head; q->rq.ring && i != q->rq.tail; i++) {
		if (slot_at(&q->rq, i)->phase == CHECK_POLLED)
			continue;
		if (!n++)
			q->dropped.recv_at = slot_at(&q->rq, i)->site;
	}
	q->dropped.recvs = n ? n : q->dropped.recvs;
	q->dropped.sends = 0;
	for (uint32_t i = from; i != q->sq.tail; i++)
		if (check_makes_completion(q, slot_at(&q->sq, i)) && !q->dropped.sends++)
			q->dropped.send_at = slot_at(&q->sq, i)->site;
	q->dropped.at = rpwi_check_site;
}

static struct rpwi_finding dropped(const struct check_qp *q, const struct rpwi_site *first)
{
	struct rpwi_finding f = check_finding(RPWI_RULE_RESET_DROPS, q, NULL);
	rpwi_finding_site(&f, "the first of them, posted here", first);
	rpwi_finding_site(&f, "reset here", &q->dropped.at);
	return f;
}

bool check_receives_missed(struct check_qp *q)
{
	uint32_t n = q->dropped.recvs;
	if (!n)
		return false;
	q->dropped.recvs = 0;
	struct rpwi_finding f = dropped(q, &q->dropped.recv_at);
	rpwi_check_say(&f,
		"a message came, and no receive has been posted since RESET dropped %u; nothing "
		"completes %s",
		n, n == 1 ? "it" : "them");
	return true;
}

void check_sends_missed(struct check_qp *q)
{
	uint32_t n = q->dropped.sends;
	if (!n)
		return;
	q->dropped.sends = 0;
	struct rpwi_finding f = dropped(q, &q->dropped.send_at);
	rpwi_check_say(&f,
		"the QP is made ready to send again; RESET dropped %u send%s that had not "
		"completed, and nothing completes %s",
		n, rpwi_plural(n), n == 1 ? "it" : "them");
}
