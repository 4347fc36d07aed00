/* SPDX-License-Identifier: BSD-3-Clause */
/* resource.c - see resource.h. */
#include "device/resource.h"

#include <unistd.h>

#include "device/hca.h"

struct look {
	const char *device;
	pid_t pid;
	rpwi_resource_visit *visit;
	void *arg;
};

static bool is_on(const struct look *l, const struct ibv_context *c)
{
	return !strcmp(to_dctx(c)->dev->net.name, l->device);
}

static struct rpwi_resource resource(const struct look *l, enum rpwi_resource_kind kind,
	uint32_t id, const struct ibv_context *c)
{
	return (struct rpwi_resource){
		.kind = kind, .id = id, .pid = (uint32_t)l->pid, .ctx = to_dctx(c)->group};
}

static void look_pds(const struct look *l)
{
	struct rpwi_list *all = live_all(LIVE_PD);
	for (struct rpwi_list *at = all->next; at != all; at = at->next) {
		const struct dpd *p = RPWI_CONTAINER_OF(at, struct dpd, live.link);
		struct rpwi_resource r = resource(l, RPWI_RES_PD, p->id, p->ibv.context);
		r.users = p->refs;
		if (!p->parent && is_on(l, p->ibv.context) && !l->visit(l->arg, &r))
			return;
	}
}

static void look_cqs(const struct look *l)
{
	struct rpwi_list *all = live_all(LIVE_CQ);
	for (struct rpwi_list *at = all->next; at != all; at = at->next) {
		const struct dcq *q = RPWI_CONTAINER_OF(at, struct dcq, live.link);
		struct rpwi_resource r = resource(l, RPWI_RES_CQ, q->ordinal, q->ibv.context);
		r.users = q->refs;
		r.cqe = (uint32_t)q->ibv.cqe;
		if (is_on(l, q->ibv.context) && !l->visit(l->arg, &r))
			return;
	}
}

static void look_srqs(const struct look *l)
{
	struct rpwi_list *all = live_all(LIVE_SRQ);
	for (struct rpwi_list *at = all->next; at != all; at = at->next) {
		const struct dsrq *s = RPWI_CONTAINER_OF(at, struct dsrq, live.link);
		struct rpwi_resource r = resource(l, RPWI_RES_SRQ, s->ordinal, s->ibv.context);
		r.pd = to_dpd(s->ibv.pd)->id;
		if (is_on(l, s->ibv.context) && !l->visit(l->arg, &r))
			return;
	}
}

static void look_contexts(const struct look *l)
{
	struct rpwi_list *all = &hca_here.contexts;
	for (struct rpwi_list *at = all->next; at != all; at = at->next) {
		const struct dctx *c = RPWI_CONTAINER_OF(at, struct dctx, link);
		struct rpwi_resource r = resource(l, RPWI_RES_CTX, c->group, &c->v.context);
		if (is_on(l, &c->v.context) && !l->visit(l->arg, &r))
			return;
	}
}

static void look_mrs(const struct look *l)
{
	for (uint32_t i = 0; i < hca_here.keys_cap; i++) {
		const struct dkey *k = hca_here.keys[i];
		if (!k || k->is_mw)
			continue;
		const struct ibv_context *c = k->pd->ibv.context;
		struct rpwi_resource r = resource(l, RPWI_RES_MR, k->key >> 8, c);
		r.pd = k->pd->id;
		r.lkey = r.rkey = k->key;
		r.length = k->length;
		if (is_on(l, c) && !l->visit(l->arg, &r))
			return;
	}
}

static bool look_qp(const struct look *l, struct dqp *q)
{
	qp_hold(q);
	struct rpwi_resource r = resource(l, RPWI_RES_QP, q->t.qpn, &q->ctx->v.context);
	r.pd = q->pd ? q->pd->id : 0;
	r.type = (uint8_t)q->t.type;
	r.state = (uint8_t)q->t.state;
	r.connects = q->t.type == IBV_QPT_RC || q->t.type == IBV_QPT_UC;
	r.remote_qpn = q->t.attr.dest_qp_num;
	r.rq_psn = q->t.epsn & RPWI_PSN_MASK;
	r.sq_psn = q->t.nxt & RPWI_PSN_MASK;
	return l->visit(l->arg, &r);
}

static void look_qps(const struct look *l)
{
	for (unsigned i = 0; i < hca_here.nslots; i++)
		for (unsigned j = 0; hca_here.qps[i] && j < RPWI_SLOT_QPNS; j++) {
			struct dqp *q = hca_here.qps[i][j];
			if (q && is_on(l, &q->ctx->v.context) && !look_qp(l, q))
				return;
		}
}

int rpwi_dev_resources(
	const char *device, enum rpwi_resource_kind kind, rpwi_resource_visit *visit, void *arg)
{
	static void (*const looks[RPWI_RES_KINDS])(const struct look *l) = {
		[RPWI_RES_PD] = look_pds,
		[RPWI_RES_CQ] = look_cqs,
		[RPWI_RES_QP] = look_qps,
		[RPWI_RES_MR] = look_mrs,
		[RPWI_RES_CTX] = look_contexts,
		[RPWI_RES_SRQ] = look_srqs,
	};
	struct look l = {.device = device, .pid = getpid(), .visit = visit, .arg = arg};
	if (rpwi_locks_mine.wanted || rpwi_fork_broken)
		return -EBUSY;
	if (!looks[kind])
		return 0;
	hca_lock();
	looks[kind](&l);
	hca_unlock();
	return 0;
}
