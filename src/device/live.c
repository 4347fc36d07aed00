/* SPDX-License-Identifier: BSD-3-Clause */
/* live.c - see live.h. */
#include "device/live.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "check/made.h"
#include "device/hca.h"

enum { BUCKETS_MIN = 256 };

#define ALL(kind) [kind] = {&live.all[kind], &live.all[kind]}
static struct {
	struct live **bucket;
	uint32_t buckets, used; /* buckets: a power of two, or 0 */
	struct rpwi_list all[LIVE_KINDS];
} live = {.all = {ALL(LIVE_PD), ALL(LIVE_MR), ALL(LIVE_MW), ALL(LIVE_CQ), ALL(LIVE_SRQ),
		  ALL(LIVE_QP), ALL(LIVE_AH), ALL(LIVE_CHANNEL), ALL(LIVE_COUNTER)}};

/* Where the struct of each kind has its handle; 0: it has none. */
static const size_t handle_at[LIVE_KINDS] = {
	[LIVE_PD] = offsetof(struct ibv_pd, handle),
	[LIVE_MR] = offsetof(struct ibv_mr, handle),
	[LIVE_MW] = offsetof(struct ibv_mw, handle),
	[LIVE_CQ] = offsetof(struct ibv_cq, handle),
	[LIVE_SRQ] = offsetof(struct ibv_srq, handle),
	[LIVE_QP] = offsetof(struct ibv_qp, handle),
	[LIVE_AH] = offsetof(struct ibv_ah, handle),
	[LIVE_COUNTER] = offsetof(struct rpwi_comp_cntr, handle),
};
#define CONTEXT_IS_FIRST(type) \
	_Static_assert(!offsetof(struct type, context), "an object begins with its context")
CONTEXT_IS_FIRST(ibv_pd);
CONTEXT_IS_FIRST(ibv_mr);
CONTEXT_IS_FIRST(ibv_mw);
CONTEXT_IS_FIRST(ibv_cq);
CONTEXT_IS_FIRST(ibv_srq);
CONTEXT_IS_FIRST(ibv_qp);
CONTEXT_IS_FIRST(ibv_ah);
CONTEXT_IS_FIRST(ibv_comp_channel);
CONTEXT_IS_FIRST(rpwi_comp_cntr);

/* So many a device has, by its profile; 1 + the key, or 0: it is no key's. */
static const unsigned limit_of[LIVE_KINDS] = {
	[LIVE_PD] = 1 + RPWI_LIKE_MAX_PD,
	[LIVE_MR] = 1 + RPWI_LIKE_MAX_MR,
	[LIVE_MW] = 1 + RPWI_LIKE_MAX_MW,
	[LIVE_CQ] = 1 + RPWI_LIKE_MAX_CQ,
	[LIVE_SRQ] = 1 + RPWI_LIKE_MAX_SRQ,
	[LIVE_QP] = 1 + RPWI_LIKE_MAX_QP,
	[LIVE_AH] = 1 + RPWI_LIKE_MAX_AH,
};

static const struct {
	const char *kind, *article, *undo;
} names[LIVE_KINDS] = {
	[LIVE_PD] = {"PD", "a", "ibv_dealloc_pd"},
	[LIVE_MR] = {"MR", "an", "ibv_dereg_mr"},
	[LIVE_MW] = {"MW", "an", "ibv_dealloc_mw"},
	[LIVE_CQ] = {"CQ", "a", "ibv_destroy_cq"},
	[LIVE_SRQ] = {"SRQ", "an", "ibv_destroy_srq"},
	[LIVE_QP] = {"QP", "a", "ibv_destroy_qp"},
	[LIVE_AH] = {"AH", "an", "ibv_destroy_ah"},
	[LIVE_CHANNEL] = {"completion channel", "a", "ibv_destroy_comp_channel"},
	[LIVE_COUNTER] = {"completion counter", "a", "ibv_destroy_comp_cntr"},
};

static uint64_t most_of(enum live_kind kind)
{
	if (limit_of[kind])
		return rpwi_like_most((enum rpwi_like_key)(limit_of[kind] - 1));
	return kind == LIVE_COUNTER ? DEV_COUNTER_MAX : UINT64_MAX;
}

static struct live **bucket_of(const void *object)
{
	return &live.bucket[rpwi_mix(0, (uintptr_t)object) >> 32 & (live.buckets - 1)];
}

static void put(struct live *l)
{
	struct live **at = bucket_of(l->object);
	l->next = *at;
	*at = l;
}

/* Without memory for more buckets, those that there are become longer. False: there are none. */
static bool grow(void)
{
	uint32_t n = live.buckets ? live.buckets * 2 : BUCKETS_MIN;
	struct live **bucket = calloc(n, sizeof(struct live *));
	if (!bucket)
		return live.buckets;
	free(live.bucket);
	live.bucket = bucket;
	live.buckets = n;
	for (unsigned k = 0; k < LIVE_KINDS; k++)
		for (struct rpwi_list *at = live.all[k].next; at != &live.all[k]; at = at->next)
			put(RPWI_CONTAINER_OF(at, struct live, link));
	return true;
}

static uint32_t *handle_of(enum live_kind kind, const void *object)
{
	return (uint32_t *)((uintptr_t)object + handle_at[kind]);
}

int live_add(struct live *l, enum live_kind kind, void *object, uint32_t handle)
{
	const struct ibv_context *ctx = *(struct ibv_context *const *)object;
	struct dev *dev = to_dctx(ctx)->dev;
	unsigned *have = &dev->live[kind];
	uint64_t most = most_of(kind);
	if (*have >= most)
		return most ? -ENOMEM : -EOPNOTSUPP;
	if (live.used >= live.buckets && !grow())
		return -ENOMEM;
	*l = (struct live){
		.object = object, .ctx = ctx, .dev = dev, .handle = handle, .kind = (uint8_t)kind};
	if (RPWI_UNLIKELY(rpwi_check_on))
		l->place = (uint16_t)check_made(names[kind].kind, names[kind].undo);
	rpwi_list_add_tail(&live.all[kind], &l->link);
	put(l);
	live.used++;
	++*have;
	if (handle_at[kind])
		*handle_of(kind, object) = handle;
	return 0;
}

static void unlist(struct live *l)
{
	struct live **at = bucket_of(l->object);
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	rpwi_list_del(&l->link);
	l->object = NULL;
	live.used--;
	l->dev->live[l->kind]--;
}

void live_del(struct live *l)
{
	if (!l->object)
		return;
	if (RPWI_UNLIKELY(rpwi_check_on))
		check_unmade(l->place);
	unlist(l);
}

bool live_is(enum live_kind kind, const void *object)
{
	const struct live *l = live.buckets ? *bucket_of(object) : NULL;
	while (l && l->object != object)
		l = l->next;
	return l && l->kind == kind && *(struct ibv_context *const *)object == l->ctx &&
	       (!handle_at[kind] || *handle_of(kind, object) == l->handle);
}

int live_may_go(enum live_kind kind, const void *object, const unsigned *refs)
{
	if (!live_is(kind, object))
		return ENOENT;
	if (*refs && RPWI_UNLIKELY(rpwi_check_on))
		live_tell_busy(kind, object);
	return *refs ? EBUSY : 0;
}

/* ---- who uses it, for --check ---- */

static bool uses(enum live_kind kind, const void *object, const struct live *user)
{
	const void *o = user->object;
	const struct dqp *qp = user->kind == LIVE_QP ? o : NULL;
	const struct dkey *k = NULL;
	if (user->kind == LIVE_MR)
		k = &RPWI_CONTAINER_OF(user, const struct dmr, live)->k;
	else if (user->kind == LIVE_MW)
		k = &RPWI_CONTAINER_OF(user, const struct dmw, live)->k;
	switch (kind) {
	case LIVE_PD:
		if (user->kind == LIVE_PD)
			return ((const struct dpd *)o)->parent == object &&
			       !((const struct dpd *)o)->imported;
		if (user->kind == LIVE_AH)
			return to_dpd(((const struct ibv_ah *)o)->pd) == to_dpd(object);
		if (user->kind == LIVE_SRQ)
			return to_dpd(((const struct ibv_srq *)o)->pd) == to_dpd(object);
		return (qp && qp->pd == to_dpd(object)) || (k && k->pd == to_dpd(object));
	case LIVE_CQ:
		return qp && (qp->scq == object || qp->rcq == object);
	case LIVE_SRQ:
		return qp && qp->srq == object;
	case LIVE_MR:
		return k && k->mr == &((const struct dmr *)object)->k;
	case LIVE_CHANNEL:
		return user->kind == LIVE_CQ && ((const struct ibv_cq *)o)->channel == object;
	default:
		return false;
	}
}

void live_tell_busy(enum live_kind kind, const void *object)
{
	const struct live *first = NULL;
	unsigned users = 0;
	char name[64];
	for (unsigned k = 0; k < LIVE_KINDS; k++)
		for (struct rpwi_list *at = live.all[k].next; at != &live.all[k]; at = at->next) {
			const struct live *l = RPWI_CONTAINER_OF(at, struct live, link);
			if (l->object == object || !uses(kind, object, l))
				continue;
			first = first && first->kind == LIVE_QP ? first : l;
			users++;
		}
	if (!first)
		return;
	if (first->kind == LIVE_QP)
		snprintf(name, sizeof(name), "QP 0x%06x",
			((const struct ibv_qp *)first->object)->qp_num);
	else
		snprintf(name, sizeof(name), "%s %s", names[first->kind].article,
			names[first->kind].kind);
	check_busy(names[kind].undo, names[kind].kind, name, users - 1, first->place);
}

void live_context_gone(const struct ibv_context *ctx)
{
	struct rpwi_list *at, *next;
	for (unsigned k = 0; k < LIVE_KINDS; k++)
		for (at = live.all[k].next; at != &live.all[k]; at = next) {
			struct live *l = RPWI_CONTAINER_OF(at, struct live, link);
			next = at->next;
			if (l->ctx == ctx)
				unlist(l);
		}
}

void live_renumber(struct live *l, uint32_t handle)
{
	l->handle = handle;
	*handle_of(l->kind, l->object) = handle;
}

struct rpwi_list *live_all(enum live_kind kind) { return &live.all[kind]; }
