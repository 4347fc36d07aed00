/* SPDX-License-Identifier: BSD-3-Clause */
/* overlap.c - see overlap.h. */
#include "check/overlap.h"

#include "check/keys.h"
#include "check/owned.h"

#include <stdio.h>

enum { TOLD_MAX = 16 }; /* findings that are looked for, of one queue */

bool check_overlap_shares;

/* ---- the request that a node is of ---- */

struct owner {
	uint32_t node; /* 0: all that overlap */
	uint64_t addr, len;
	const struct check_wr *but;
	bool (*fn)(struct check_qp *q, struct check_queue *of, struct check_wr *w, void *arg);
	void *arg;
	bool over;
};

static bool is_of(const struct owner *o, const struct check_wr *w)
{
	for (unsigned s = 0; s < CHECK_OWNED_SGES && w->owns; s++) {
		uint32_t n = w->node[s];
		if (o->node ? n == o->node : n && check_owned_is_on(n, o->addr, o->len))
			return true;
	}
	return false;
}

static void look_in(struct check_qp *q, struct check_queue *of, struct owner *o)
{
	for (uint32_t i = of->head; i != of->tail && of->ring && !o->over; i++) {
		struct check_wr *w = &of->ring[i & of->mask];
		if (w != o->but && w->phase != CHECK_POLLED && is_of(o, w))
			o->over = !o->fn(q, of, w, o->arg);
	}
}

static void look_in_qp(struct check_qp *q, void *arg)
{
	struct owner *o = arg;
	if (o->over)
		return;
	look_in(q, &q->sq, o);
	look_in(q, q->srq ? &q->srq->q : &q->rq, o);
}

/* ---- overlaps ---- */

struct overlap {
	struct check_qp *q;
	struct check_queue *of;
	struct check_wr *w;
	enum rpwi_check_rule rule;
	uint64_t addr, len; /* of the new one */
	bool writes;
};

static bool say_overlap(struct check_qp *q, struct check_queue *of, struct check_wr *v, void *arg)
{
	const struct overlap *o = arg;
	struct rpwi_finding f = check_finding(o->rule, o->q ? o->q : q, o->w);
	f.addr = o->addr;
	f.len = o->len;
	rpwi_finding_site(&f, "the other one, posted here", &v->site);
	rpwi_check_say(&f,
		"%llu bytes at 0x%llx, which the %s %s, are within reach of a %s with wr_id %llu "
		"that the program has not seen complete",
		(unsigned long long)o->len, (unsigned long long)o->addr, check_op_name(o->of, o->w),
		o->writes ? "will fill" : "sends", check_op_name(of, v),
		(unsigned long long)v->wr_id);
	return false;
}

/* Two receives, or two READs, that overlap in part are a mistake. With one start they may be a
 * place where data is thrown away (ib_send_bw), and bytes that are sent from a posted receive are a
 * buffer for both, which is right where the peer answers (ibv_rc_pingpong). In front of a datagram
 * are 40 bytes that nobody may want. */
static void overlaps(struct check_qp *q, struct check_queue *of, struct check_wr *w,
	const struct check_owners *f, uint64_t addr, uint64_t len, bool writes)
{
	bool is_ud = q && q->t->type == IBV_QPT_UD;
	struct overlap o = {q, of, w, RPWI_RULE_BUFFER_SHARED, addr, len, writes};
	uint32_t node = f->first;
	check_overlap_shares |= !writes;
	if (writes && f->bad && !is_ud && !of->shared) {
		o.rule = RPWI_RULE_BUFFER_REPOSTED;
		node = f->bad;
		if (of->overlaps_told >= TOLD_MAX)
			return;
		of->overlaps_told++;
	} else if (of->shares_told) {
		return;
	} else {
		of->shares_told = true;
	}
	struct owner who = {.node = node, .but = w, .fn = say_overlap, .arg = &o};
	check_qps_each(look_in_qp, &who);
}

void check_overlap_post(struct check_qp *q, struct check_queue *of, struct check_wr *w)
{
	bool read = w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		    w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	bool writes = !of->is_send || read;
	/* a send is looked up for a note alone, which a queue has once */
	if (!writes && of->shares_told)
		return;
	for (unsigned i = 0; i < w->nsge && i < CHECK_OWNED_SGES; i++) {
		const struct ibv_sge *s = &w->sge[i];
		uint64_t addr = (uintptr_t)check_key_memory(s);
		uint32_t len = RPWI_MIN(s->length, 0x7fffffffu);
		if (!addr || !len)
			continue;
		struct check_owners f = check_owned_look(addr, len, read);
		if (RPWI_UNLIKELY(f.first))
			overlaps(q, of, w, &f, addr, len, writes);
		if (!writes)
			continue;
		if (!w->owns)
			memset(w->node, 0, sizeof(w->node));
		w->owns = true;
		w->node[i] = check_owned_put(addr, len, read);
	}
}

void check_owners_each(uint64_t addr, uint64_t len,
	bool (*fn)(struct check_qp *q, struct check_queue *of, struct check_wr *w, void *arg),
	void *arg)
{
	struct owner o = {.addr = addr, .len = len, .fn = fn, .arg = arg};
	if (check_owned_look(addr, len, false).first)
		check_qps_each(look_in_qp, &o);
}
