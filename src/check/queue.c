/* SPDX-License-Identifier: BSD-3-Clause */
/* queue.c - see queue.h: requests from the post to the poll, and the rules about them. */
#include "check/queue.h"

#include "base/hash.h"
#include "check/forked.h"
#include "check/freed.h"
#include "check/happened.h"
#include "check/keys.h"
#include "check/overlap.h"
#include "check/owned.h"
#include "check/race.h"
#include "rc/names.h"

#include <stdio.h>

static struct check_wr *at(const struct check_queue *q, uint32_t i)
{
	return &q->ring[i & q->mask];
}

static uint16_t *id_count(struct check_queue *q, uint64_t wr_id)
{
	return &q->ids[rpwi_mix(0, wr_id) >> 32 & (RPWI_ARRAY_LEN(q->ids) - 1)];
}

static struct check_queue *recv_queue(struct check_qp *q) { return q->srq ? &q->srq->q : &q->rq; }

/* ---- what is in the buffers ---- */

static bool reads_memory(unsigned opcode)
{
	return rpwi_op_sends(opcode) || rpwi_op_writes(opcode);
}

/* False: its memory is not there, or its key is not ours to read. */
static bool sum(const struct check_wr *w, uint32_t *out)
{
	*out = 0;
	for (unsigned i = 0; i < w->nsge; i++)
		if (!check_key_sum(&w->sge[i], out))
			return false;
	return true;
}

/* Where the program, or somebody, has changed what was posted. */
static void look_for_change(
	struct check_qp *q, struct check_wr *w, enum rpwi_check_rule rule, const char *when)
{
	uint32_t now;
	if (!w->summed || !sum(w, &now) || now == w->sum)
		return;
	struct rpwi_finding f = check_finding(rule, q, w);
	w->summed = false;
	bool early;
	uint32_t by = check_key_wrote(w->sge, w->nsge, w->posted_ns),
		 answer = check_key_got(w->sge, w->nsge, w->posted_ns, &early);
	/* the peer's answer in the buffer of the question (buffer-shared): it had all of it, though
	 * its acknowledgement may come behind the answer */
	if (answer && (!early || rule == RPWI_RULE_BUFFER_CHANGED_LATE))
		return;
	if (by || answer)
		snprintf(f.text, sizeof(f.text),
			"the bytes differ from those at the post; %s, through QP 0x%06x, has "
			"reached them since",
			by ? "a WRITE or an atomic of the peer" : "a message of the peer",
			by ? by : answer);
	else
		snprintf(f.text, sizeof(f.text), "the bytes were other ones at the post than %s%s",
			when,
			w->len > CHECK_SUM_ALL ? " (a sample: the request is longer than 64 KiB)"
					       : "");
	if (rpwi_check_site.pc[0] && rule == RPWI_RULE_BUFFER_CHANGED_LATE) {
		rpwi_finding_site_when(&f, "seen here, as the completion is polled",
			&rpwi_check_site, RPWI_SITE_AFTER);
	}
	rpwi_check_report(&f);
}

/* ---- posting ---- */

static void wr_note(struct check_queue *q, struct check_wr *w, uint64_t wr_id,
	const struct ibv_sge *sge, int nsge)
{
	check_owned_leave(w); /* a slot that was taken from one in flight */
	check_in_flight(1);
	w->wr_id = wr_id;
	w->posted_ns = rpwi_now_ns();
	w->site = rpwi_check_site;
	w->phase = CHECK_POSTED;
	w->status = IBV_WC_SUCCESS;
	w->summed = w->told = false;
	w->raddr = w->rkey = w->opcode = w->flags = 0;
	w->nsge = (uint8_t)RPWI_MIN(RPWI_MAX(nsge, 0), (int)CHECK_SGES);
	w->len = 0;
	for (int i = 0; sge && i < nsge; i++) {
		if (i < w->nsge)
			w->sge[i] = sge[i];
		w->len += sge[i].length;
	}
	++*id_count(q, wr_id);
}

/* Said once for a queue: most programs that do it do it always. */
static void ids_look(struct check_qp *q, struct check_queue *of, const struct check_wr *w)
{
	if (of->ids_told || *id_count(of, w->wr_id) < 2)
		return;
	for (uint32_t i = of->tail - 1; i != of->head - 1; i--) {
		const struct check_wr *v = at(of, i);
		if (v == w || v->wr_id != w->wr_id || v->phase == CHECK_POLLED)
			continue;
		of->ids_told = true;
		struct rpwi_finding f = check_finding(RPWI_RULE_WR_ID_TWICE, q, w);
		rpwi_finding_site(&f, "the other one, posted here", &v->site);
		rpwi_check_say(&f, "another %s with wr_id %llu is in flight on the same queue",
			check_op_name(of, v), (unsigned long long)w->wr_id);
		return;
	}
}

/* A slot for one more; the oldest of those that the device is done with go where there is none. */
static struct check_wr *slot(struct check_queue *q)
{
	if (q->tail - q->head > q->mask) {
		if (q->shared || q->done == q->head)
			q->head++;
		else
			q->head = q->done;
	}
	return at(q, q->tail++);
}

static void cq_more(struct check_qp *q, struct check_cq *cq, const struct check_wr *w)
{
	if (!cq || ++cq->outstanding <= cq->cqe)
		return;
	struct rpwi_finding f = check_finding(RPWI_RULE_CQ_SMALL, q, w);
	rpwi_finding_site(&f, "the CQ was created here", &cq->made);
	rpwi_check_say(&f, "%u requests can complete into a CQ that was made for %u",
		cq->outstanding, cq->cqe);
}

static void posts_after_error(struct check_qp *q, const struct check_wr *w)
{
	/* one more may be a marker, by which programs know that all is flushed */
	if (!q->failed || q->posts_since++ != 1)
		return;
	struct rpwi_finding f = check_finding(RPWI_RULE_ERROR_IGNORED, q, w);
	rpwi_finding_site(&f, "that completion was polled here", &q->failed_at);
	rpwi_check_say(&f,
		"the completion of wr_id %llu had status %u (%s), and requests are still posted",
		(unsigned long long)q->failed_wr_id, q->failed,
		rpwi_status_name((enum ibv_wc_status)q->failed));
}

/* What drivers give beyond what was asked for differs. */
static void by_luck(struct check_qp *q, const struct check_wr *w, enum rpwi_check_rule rule,
	unsigned has, const char *of_what, unsigned asked)
{
	struct rpwi_finding f = check_finding(rule, q, w);
	rpwi_finding_site(&f, "the QP was created here", &q->made);
	rpwi_check_say(&f, "%u %s, and ibv_create_qp was asked for %u", has, of_what, asked);
}

static void sges_look(struct check_qp *q, const struct check_wr *w, int nsge, unsigned asked)
{
	if (nsge > (int)RPWI_MAX(asked, 1u))
		by_luck(q, w, RPWI_RULE_SGE_LUCK, (unsigned)nsge, "elements", asked);
}

static void limits_look(struct check_qp *q, const struct check_wr *w, int nsge)
{
	if (!(w->flags & IBV_SEND_INLINE))
		sges_look(q, w, nsge, q->asked.max_send_sge);
	else if (w->len > q->asked.max_inline_data)
		by_luck(q, w, RPWI_RULE_INLINE_LUCK, w->len, "bytes inline",
			q->asked.max_inline_data);
}

static void send_note(struct check_qp *q, const struct ibv_send_wr *wr)
{
	if (q->scq)
		q->scq->risky = false;
	if (q->rcq)
		q->rcq->risky = false;
	struct check_wr *w = slot(&q->sq);
	wr_note(&q->sq, w, wr->wr_id, wr->sg_list, wr->num_sge);
	w->opcode = (uint8_t)wr->opcode;
	w->flags = (uint8_t)wr->send_flags;
	if (wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
		wr->opcode == IBV_WR_RDMA_READ || (int)wr->opcode == RPWI_WR_ATOMIC_WRITE) {
		w->raddr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
	} else if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		   wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		w->raddr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
	}
	if (RPWI_UNLIKELY(rpwi_check_wants(RPWI_RULE_RACE)))
		race_posted(q, w);
	check_sent(q);
	posts_after_error(q, w);
	limits_look(q, w, wr->num_sge);
	if (rpwi_op_needs_response(w->opcode))
		check_reads(q, w);
	if (rpwi_check_wants(RPWI_RULE_WR_ID_TWICE))
		ids_look(q, &q->sq, w);
	if (check_makes_completion(q, w))
		cq_more(q, q->scq, w);
	if (w->flags & IBV_SEND_INLINE)
		w->nsge = 0; /* the bytes are the device's by now */
	check_overlap_post(q, &q->sq, w);
	check_freed_uses(q, w);
	if (w->nsge && reads_memory(w->opcode) && rpwi_check_wants(RPWI_RULE_BUFFER_CHANGED))
		w->summed = sum(w, &w->sum);
}

struct check_qp *check_sends_begin(const struct ibv_qp *qp, const struct ibv_send_wr *wr)
{
	if (!rpwi_check_lock())
		return NULL;
	struct check_qp *q = check_qp_find(qp);
	if (!q || pthread_mutex_trylock(&q->posting)) {
		rpwi_check_unlock();
		if (!q)
			return NULL;
		/* another thread posts, and needs the lock to end that */
		pthread_mutex_lock(&q->posting);
		rpwi_lock(RPWI_LOCK_CHECK);
	}
	if (RPWI_UNLIKELY(q->inherited))
		check_child_uses(q, &q->made, "ibv_post_send");
	for (; wr; wr = wr->next)
		send_note(q, wr);
	rpwi_check_unlock();
	return q;
}

static void drop(struct check_qp *q, struct check_queue *of, struct check_wr *w)
{
	check_owned_leave(w);
	if (w->phase == CHECK_POSTED)
		check_in_flight(-1);
	w->phase = CHECK_POLLED;
	--*id_count(of, w->wr_id);
	if (!q) /* of a SRQ */
		return;
	struct check_cq *cq = of->is_send ? q->scq : q->rcq;
	if (cq && cq->outstanding && (!of->is_send || check_makes_completion(q, w)))
		cq->outstanding--;
}

/* The queue has no slot that the program has polled free. */
static void full(struct check_qp *q, const struct check_wr *last, bool refused)
{
	const struct check_wr *first = NULL;
	uint32_t n = q->sq.tail - q->sq.head;
	for (uint32_t i = q->sq.head; i != q->sq.tail; i++) {
		const struct check_wr *w = at(&q->sq, i);
		if (check_makes_completion(q, w))
			first = NULL;
		else if (!first)
			first = w;
	}
	/* the requests before `first` make a completion: polling it is all that is missing */
	bool never = first == at(&q->sq, q->sq.head);
	if (refused && !never)
		return; /* the program is told */
	struct rpwi_finding f =
		check_finding(never ? RPWI_RULE_NEVER_SIGNALED : RPWI_RULE_SQ_OVERFLOW, q, last);
	rpwi_finding_site(&f, never ? "the first of them, posted here" : "the QP was created here",
		never ? &first->site : &q->made);
	rpwi_check_say(&f,
		never ? "%u requests are outstanding in a send queue of %u, and none of them makes "
			"a completion"
		      : "%u requests are outstanding in a send queue of %u: the program has polled "
			"no completion that gives a slot back",
		n, q->sq.max);
}

void check_sends_end(struct check_qp *q, const struct ibv_send_wr *bad, int rc)
{
	if (!q)
		return;
	rpwi_lock(RPWI_LOCK_CHECK);
	if (rc == ENOMEM)
		full(q, at(&q->sq, q->sq.tail - 1), true);
	for (; rc && bad; bad = bad->next)
		drop(q, &q->sq, at(&q->sq, --q->sq.tail));
	if (!rc && q->sq.tail - q->sq.head > q->sq.max) {
		full(q, at(&q->sq, q->sq.tail - 1), false);
		q->sq.head = q->sq.done;
	}
	rpwi_check_unlock();
	pthread_mutex_unlock(&q->posting);
}

/* A receive without a byte in ERR is no buffer: its flush says that all before it are flushed. */
static void room_look(struct check_qp *q, const struct check_wr *w)
{
	if (q->t->type != IBV_QPT_UD || w->len >= RPWI_GRH_LEN || q->t->state == IBV_QPS_ERR)
		return;
	struct rpwi_finding f = check_finding(RPWI_RULE_RECV_SHORT, q, w);
	rpwi_check_say(&f,
		"the receive has %u bytes, and the first %u of each are the GRH's: no datagram "
		"fits",
		w->len, RPWI_GRH_LEN);
}

static void recv_note(struct check_qp *q, struct check_queue *of, const struct ibv_recv_wr *wr)
{
	struct check_wr *w = slot(of);
	wr_note(of, w, wr->wr_id, wr->sg_list, wr->num_sge);
	check_overlap_post(q, of, w);
	check_freed_uses(q, w);
	if (!q)
		return;
	q->dropped.recvs = 0;
	posts_after_error(q, w);
	if (rpwi_check_wants(RPWI_RULE_WR_ID_TWICE))
		ids_look(q, of, w);
	sges_look(q, w, wr->num_sge, q->asked.max_recv_sge);
	room_look(q, w);
	cq_more(q, q->rcq, w);
}

void check_recvs_begin(const struct ibv_qp *qp, const struct ibv_recv_wr *wr)
{
	if (!rpwi_check_lock())
		return;
	struct check_qp *q = check_qp_find(qp);
	if (q && RPWI_UNLIKELY(q->inherited))
		check_child_uses(q, &q->made, "ibv_post_recv");
	for (; q && q->rq.ring && wr; wr = wr->next)
		recv_note(q, &q->rq, wr);
	rpwi_check_unlock();
}

static void recvs_end(struct check_qp *q, struct check_queue *of, const struct ibv_recv_wr *bad)
{
	for (; bad; bad = bad->next) {
		struct check_wr *w = at(of, --of->tail);
		drop(q, of, w);
	}
	/* the device takes a slot back when a message comes, a driver when it is polled */
	if (q && of->tail - of->head > of->max) {
		struct rpwi_finding f =
			check_finding(RPWI_RULE_RQ_OVERFLOW, q, at(of, of->tail - 1));
		rpwi_finding_site(&f, "the QP was created here", &q->made);
		rpwi_check_say(&f,
			"%u receives are outstanding in a receive queue of %u: the program has "
			"polled no completion that gives a slot back",
			of->tail - of->head, of->max);
		of->head = of->done;
	}
}

void check_recvs_end(const struct ibv_qp *qp, const struct ibv_recv_wr *bad)
{
	if (!rpwi_check_lock())
		return;
	struct check_qp *q = check_qp_find(qp);
	if (q && q->rq.ring)
		recvs_end(q, &q->rq, bad);
	rpwi_check_unlock();
}

void check_srq_recvs_begin(const struct ibv_srq *srq, const struct ibv_recv_wr *wr)
{
	if (!rpwi_check_lock())
		return;
	struct check_srq *s = check_srq_find(srq);
	if (s && RPWI_UNLIKELY(s->inherited))
		check_child_uses(NULL, &s->made, "ibv_post_srq_recv");
	for (; s && wr; wr = wr->next)
		recv_note(NULL, &s->q, wr);
	rpwi_check_unlock();
}

void check_srq_recvs_end(const struct ibv_srq *srq, const struct ibv_recv_wr *bad)
{
	if (!bad || !rpwi_check_lock())
		return;
	struct check_srq *s = check_srq_find(srq);
	if (s)
		recvs_end(NULL, &s->q, bad);
	rpwi_check_unlock();
}

/* ---- completing ---- */

static void done(
	struct check_qp *q, struct check_queue *of, struct check_wr *w, enum ibv_wc_status status)
{
	check_in_flight(-1);
	w->phase = CHECK_DONE;
	w->status = (uint8_t)status;
	if (status == IBV_WC_LOC_PROT_ERR)
		check_local_refused(q, of, w);
	else if (status == IBV_WC_SUCCESS && w->owns)
		check_freed_uses(q, w);
	if (status == IBV_WC_SUCCESS)
		look_for_change(q, w, RPWI_RULE_BUFFER_CHANGED,
			"when the peer had acknowledged all of them");
	else
		w->summed = false;
}

void check_retires(const struct rpwi_qp *t, bool good)
{
	if (!rpwi_check_lock())
		return;
	struct check_qp *q = check_qpn_find(t->qpn);
	struct check_queue *of = q ? &q->sq : NULL;
	if (of && (int32_t)(of->gone - of->done) < 0)
		of->gone = of->done;
	for (bool found = false; of && !found && of->gone != of->tail; of->gone++) {
		struct check_wr *w = at(of, of->gone);
		found = reads_memory(w->opcode);
		if (!found || check_makes_completion(q, w))
			continue; /* one that makes a completion is looked at then */
		if (good)
			look_for_change(
				q, w, RPWI_RULE_BUFFER_CHANGED, "when the device was done with it");
		w->summed = false;
	}
	rpwi_check_unlock();
}

/* Completions of a QP's own queues come in the order of the posts; those before it that make none
 * are done, too. */
void check_completes(const struct rpwi_qp *t, bool recv, const struct ibv_wc *wc)
{
	if (!rpwi_check_lock())
		return;
	struct check_qp *q = check_qpn_find(t->qpn);
	struct check_queue *of = q && recv ? recv_queue(q) : NULL;
	const struct check_wr *ended = NULL;
	struct check_cq *into = q && recv ? q->rcq : NULL;
	if (q && !recv) {
		of = &q->sq;
		into = q->scq;
	}
	if (into)
		into->unheard = 0; /* if it is armed, this one makes an event */
	if (of && of->shared) {
		struct check_wr *w = check_with_id(of, of->head, wc->wr_id, CHECK_POSTED);
		if (w)
			done(q, of, w, wc->status);
		ended = w;
		if (w && q->order.looking)
			check_received(q, w);
	} else if (of && of->ring) {
		bool found = false;
		while (!found && of->done != of->tail) {
			struct check_wr *w = at(of, of->done++);
			bool makes = recv || check_makes_completion(q, w);
			found = wc->status == IBV_WC_SUCCESS ? makes : w->wr_id == wc->wr_id;
			done(q, of, w, found ? wc->status : IBV_WC_SUCCESS);
			ended = w;
			if (recv && q->order.looking)
				check_received(q, w);
			if (found && !makes && q->scq)
				q->scq->outstanding++; /* an error shows whatever it asked for */
		}
	}
	if (ended && recv && RPWI_UNLIKELY(rpwi_check_wants(RPWI_RULE_RACE)))
		race_came(q, ended, wc);
	if (ended)
		check_ended(q, wc, check_op_name(of, ended), recv, false);
	rpwi_check_unlock();
}

static void retire(struct check_qp *q, struct check_queue *of, struct check_wr *w)
{
	w->phase = CHECK_POLLED;
	check_owned_leave(w);
	--*id_count(of, w->wr_id);
	if (RPWI_UNLIKELY(rpwi_check_wants(RPWI_RULE_RACE)) && w->status == IBV_WC_SUCCESS) {
		if (of->is_send)
			race_sent_polled(q, w);
		else
			race_recv_polled(q, w);
	}
	look_for_change(q, w, RPWI_RULE_BUFFER_CHANGED_LATE, "when their completion was polled");
}

static void polled_one(struct check_qp *q, struct check_cq *cq, const struct ibv_wc *wc)
{
	if (cq && cq->outstanding)
		cq->outstanding--;
	if (wc->status != IBV_WC_SUCCESS && !q->failed) {
		q->failed = (uint8_t)wc->status;
		q->posts_since = 0;
		q->failed_wr_id = wc->wr_id;
		q->failed_at = rpwi_check_site;
	}
	/* of a failed one the opcode means nothing: it is the queue that has it done */
	bool recv = wc->status == IBV_WC_SUCCESS
			    ? wc->opcode & IBV_WC_RECV
			    : !check_with_id(&q->sq, q->sq.head, wc->wr_id, CHECK_DONE);
	struct check_queue *of = recv ? recv_queue(q) : &q->sq;
	if (of->shared || wc->status != IBV_WC_SUCCESS) {
		struct check_wr *w = check_with_id(of, of->head, wc->wr_id, CHECK_DONE);
		check_ended(q, wc, w ? check_op_name(of, w) : "request", recv, true);
		if (w)
			retire(q, of, w);
		while (of->head != of->tail && at(of, of->head)->phase == CHECK_POLLED)
			of->head++;
		return;
	}
	check_ended(q, wc, "RECV", recv, true);
	for (bool last = false; !last && of->head != of->done; of->head++) {
		struct check_wr *w = at(of, of->head);
		last = recv || check_makes_completion(q, w);
		if (w->phase != CHECK_POLLED)
			retire(q, of, w);
	}
}

void check_polled(const struct ibv_cq *ibv, const struct ibv_wc *wc, int n)
{
	if (!rpwi_check_lock())
		return;
	struct check_cq *cq = check_cq_find(ibv);
	if (cq && cq->unsolicited_ns)
		check_cq_waited(cq);
	for (int i = 0; i < n; i++) {
		struct check_qp *q = check_qpn_find(wc[i].qp_num);
		if (q)
			polled_one(q, cq, &wc[i]);
	}
	rpwi_check_unlock();
}

/* ---- the end of a QP ---- */

static void unread_of(struct check_qp *q, struct check_queue *of)
{
	for (uint32_t i = of->head; i != of->done; i++) {
		struct check_wr *w = at(of, i);
		if (w->phase != CHECK_DONE || w->status == IBV_WC_SUCCESS ||
			w->status == IBV_WC_WR_FLUSH_ERR)
			continue;
		struct rpwi_finding f = check_finding(RPWI_RULE_ERROR_UNREAD, q, w);
		rpwi_finding_site_when(
			&f, "destroyed or reset here", &rpwi_check_site, RPWI_SITE_AFTER);
		rpwi_check_say(&f,
			"it completed with status %u (%s), and the QP is destroyed or reset before "
			"the program has polled that",
			w->status, rpwi_status_name((enum ibv_wc_status)w->status));
	}
}

void check_unread(struct check_qp *q)
{
	unread_of(q, &q->sq);
	if (!q->srq)
		unread_of(q, &q->rq);
}

static void drop_all(struct check_qp *q, struct check_queue *of)
{
	for (; of->head != of->tail; of->head++)
		if (at(of, of->head)->phase != CHECK_POLLED)
			drop(q, of, at(of, of->head));
	of->done = of->gone = of->head;
	memset(of->ids, 0, sizeof(of->ids));
	for (uint32_t i = 0; i <= of->mask; i++)
		check_owned_leave(&of->ring[i]);
}

void check_queues_drop(struct check_qp *q)
{
	drop_all(q, &q->sq);
	if (!q->srq && q->rq.ring)
		drop_all(q, &q->rq);
}
