/* SPDX-License-Identifier: BSD-3-Clause */
/* access.c - why memory was refused: which rule a key breaks, and by how much. The lock is held,
 * but for the functions that the device calls. */
#include "check/keys.h"
#include "check/queue.h"

#include "base/mapped.h"
#include "check/freed.h"

#include <stdio.h>

/* The right that an access needs; NULL: every region has it. */
static const char *right_name(int access)
{
	static const struct {
		int flag;
		const char *name;
	} rights[] = {{IBV_ACCESS_REMOTE_WRITE, "IBV_ACCESS_REMOTE_WRITE"},
		{IBV_ACCESS_REMOTE_READ, "IBV_ACCESS_REMOTE_READ"},
		{IBV_ACCESS_REMOTE_ATOMIC, "IBV_ACCESS_REMOTE_ATOMIC"},
		{IBV_ACCESS_MW_BIND, "IBV_ACCESS_MW_BIND"},
		{IBV_ACCESS_LOCAL_WRITE, "IBV_ACCESS_LOCAL_WRITE"}};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rights); i++)
		if (access & rights[i].flag)
			return rights[i].name;
	return NULL;
}

static const char *key_word(const struct check_access *a) { return a->remote ? "rkey" : "lkey"; }

/* "64 bytes at 0x..: 16 beyond the end" */
static void say_bounds(
	const struct check_access *a, const struct check_region *r, struct rpwi_finding *f)
{
	uint64_t end = r->iova + r->len;
	bool before = a->addr < r->iova;
	uint64_t by = before ? r->iova - a->addr : a->addr + a->len - end;
	snprintf(f->text, sizeof(f->text),
		"%llu bytes at 0x%llx are %s the region of %s 0x%x by %llu bytes: it has %llu "
		"bytes, from 0x%llx on",
		(unsigned long long)a->len, (unsigned long long)a->addr,
		before ? "in front of" : "beyond the end of", key_word(a), a->key,
		(unsigned long long)by, (unsigned long long)r->len, (unsigned long long)r->iova);
}

bool check_region_judge(
	const struct check_access *a, const struct check_region *r, struct rpwi_finding *f)
{
	const char *right = right_name(a->access & ~r->access);
	if (a->pd && r->pd && a->pd != r->pd) {
		f->rule = RPWI_RULE_KEY_PD;
		snprintf(f->text, sizeof(f->text),
			"the region of %s 0x%x was registered in another protection domain than "
			"the one of the QP",
			key_word(a), a->key);
		return true;
	}
	if (right) {
		f->rule = RPWI_RULE_KEY_ACCESS;
		snprintf(f->text, sizeof(f->text),
			"the region of %s 0x%x was registered without %s", key_word(a), a->key,
			right);
		return true;
	}
	if (a->addr >= r->iova && a->len <= r->len && a->addr - r->iova <= r->len - a->len)
		return false;
	f->rule = RPWI_RULE_KEY_BOUNDS;
	say_bounds(a, r, f);
	return true;
}

/* Of a key that is no more. */
static void judge_stale(
	const struct check_access *a, const struct check_key *k, struct rpwi_finding *f)
{
	uint64_t now = rpwi_now_ns();
	bool after = !a->remote && k->gone_ns > a->since_ns;
	if (k->window) {
		f->rule = RPWI_RULE_KEY_STALE;
		snprintf(f->text, sizeof(f->text),
			"the memory window of %s 0x%x was deallocated, or bound anew with another "
			"key, %llu us ago",
			key_word(a), a->key, (unsigned long long)((now - k->gone_ns) / 1000));
		rpwi_finding_site(f, "deallocated here", &k->gone);
		return;
	}
	f->rule = after ? RPWI_RULE_MR_IN_USE : RPWI_RULE_KEY_STALE;
	snprintf(f->text, sizeof(f->text),
		after ? "the region of %s 0x%x, %llu bytes at 0x%llx, was deregistered %llu us "
			"ago, "
			"while this request was posted"
		      : "the region of %s 0x%x, %llu bytes at 0x%llx, was deregistered %llu us ago",
		key_word(a), a->key, (unsigned long long)k->region.len,
		(unsigned long long)k->region.iova,
		(unsigned long long)((now - k->gone_ns) / 1000));
	rpwi_finding_site_when(
		f, "deregistered here", &k->gone, after ? RPWI_SITE_AFTER : RPWI_SITE_BEFORE);
}

bool check_key_judge(const struct check_access *a, struct rpwi_finding *f)
{
	struct check_key k;
	if (!check_key_look(a->key, &k)) {
		f->rule = RPWI_RULE_KEY_UNKNOWN;
		snprintf(f->text, sizeof(f->text),
			"no region of this process has, or had, the %s 0x%x%s", key_word(a), a->key,
			check_key_look(__builtin_bswap32(a->key), &k)
				? ": its bytes are in the wrong order"
				: "");
		return true;
	}
	if (k.gone_ns) {
		judge_stale(a, &k, f);
		return true;
	}
	if (!check_region_judge(a, &k.region, f))
		return false;
	rpwi_finding_site(f, "the region was registered here", &(struct rpwi_site){{k.made}});
	return true;
}

/* The key is right, but the memory is not there: the call that took it away was not seen. */
static bool is_unmapped(const struct check_access *a, struct rpwi_finding *f)
{
	const struct ibv_sge s = {a->addr, (uint32_t)a->len, a->key};
	const uint8_t *at = check_key_memory(&s);
	bool writes = a->access &
		      (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	if (!at || rpwi_mapped(at, s.length, writes))
		return false;
	f->rule = RPWI_RULE_MEMORY_FREED;
	snprintf(f->text, sizeof(f->text),
		"the %llu bytes at 0x%llx are registered, and not mapped any more",
		(unsigned long long)a->len, (unsigned long long)a->addr);
	return true;
}

/* ---- of our own requests ---- */

static int access_of(const struct check_queue *of, const struct check_wr *w)
{
	bool writes = !of->is_send || w->opcode == IBV_WR_RDMA_READ ||
		      w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		      w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	return writes ? IBV_ACCESS_LOCAL_WRITE : 0;
}

void check_local_refused(struct check_qp *q, struct check_queue *of, struct check_wr *w)
{
	struct rpwi_finding f = check_finding(RPWI_RULE_KEY_UNKNOWN, q, w);
	struct check_access a = {.pd = check_pd_root(of->shared ? q->srq->ibv->pd : q->ibv->pd),
		.access = access_of(of, w),
		.since_ns = w->posted_ns};
	check_freed_uses(q, w);
	for (unsigned i = 0; i < w->nsge && !w->told; i++) {
		const struct ibv_sge *s = &w->sge[i];
		a.key = s->lkey;
		a.addr = s->addr;
		a.len = s->length;
		if (!a.len || (!check_key_judge(&a, &f) && !is_unmapped(&a, &f)))
			continue;
		f.addr = s->addr;
		f.len = s->length;
		f.key = s->lkey;
		w->told = true;
		rpwi_check_report(&f);
	}
}

struct lost {
	uint32_t key;
};

/* A request of a send queue that the device has not done yet. */
static void lose_sends(struct check_qp *q, void *arg)
{
	const struct lost *l = arg;
	for (uint32_t i = check_sending_from(q); i != q->sq.tail; i++) {
		struct check_wr *w = &q->sq.ring[i & q->sq.mask];
		unsigned s = 0;
		while (s < w->nsge && w->sge[s].lkey != l->key)
			s++;
		if (s == w->nsge || w->phase != CHECK_POSTED || w->told)
			continue;
		struct rpwi_finding f = check_finding(RPWI_RULE_MR_IN_USE, q, w);
		f.key = l->key;
		w->told = true;
		w->summed = false;
		rpwi_finding_site_when(&f, "deregistered here", &rpwi_check_site, RPWI_SITE_AFTER);
		rpwi_check_say(&f,
			"the region of lkey 0x%x was deregistered %llu us after the post, and the "
			"request has not completed",
			l->key, (unsigned long long)((rpwi_now_ns() - w->posted_ns) / 1000));
	}
}

void check_mr_gone(uint32_t key)
{
	check_key_gone(key);
	if (!rpwi_check_lock())
		return;
	check_qps_each(lose_sends, &(struct lost){key});
	rpwi_check_unlock();
}

/* ---- of the peer's requests ---- */

static int remote_access_of(unsigned opcode)
{
	if (opcode == IBV_WR_RDMA_READ)
		return IBV_ACCESS_REMOTE_READ;
	bool atomic = opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	return atomic ? IBV_ACCESS_REMOTE_ATOMIC : IBV_ACCESS_REMOTE_WRITE;
}

/* The request of a QP of this process that asked for it; NULL: it is another process's. */
static struct check_wr *asked_here(struct check_qp *from, const struct check_access *a)
{
	for (uint32_t i = from->sq.done; i != from->sq.tail; i++) {
		struct check_wr *w = &from->sq.ring[i & from->sq.mask];
		if (w->rkey == a->key && w->phase == CHECK_POSTED && a->addr >= w->raddr &&
			a->addr - w->raddr <= w->len)
			return w;
	}
	return NULL;
}

static void remote_report(struct check_qp *q, struct rpwi_finding *f, const struct check_access *a)
{
	struct check_qp *from = check_qpn_find(q->t->attr.dest_qp_num);
	struct check_wr *w =
		from && from->t->attr.dest_qp_num == q->t->qpn ? asked_here(from, a) : NULL;
	f->has_memory = true;
	f->addr = a->addr;
	f->len = a->len;
	f->key = a->key;
	if (w) {
		w->told = true;
		memmove(&f->site[1], &f->site[0], sizeof(f->site) - sizeof(f->site[0]));
		f->site[1].when = RPWI_SITE_UNORDERED;
		f->site[0].what = "the peer's request, posted here";
		f->site[0].at = w->site;
	}
	rpwi_check_report(f);
}

void check_remote_refused(uint32_t qpn, const struct check_access *a)
{
	if (!rpwi_check_lock())
		return;
	struct check_qp *q = check_qpn_find(qpn);
	struct rpwi_finding f = check_finding(RPWI_RULE_KEY_UNKNOWN, q, NULL);
	if (q && (check_key_judge(a, &f) || (!check_freed_reached(qpn, a->key, a->addr, a->len) &&
						    is_unmapped(a, &f))))
		remote_report(q, &f, a);
	rpwi_check_unlock();
}

void check_flags_refuse(struct check_qp *q, const struct rpwi_pkt *p)
{
	unsigned op = rpwi_pkt_op(p);
	bool atomic = rpwi_op_has(op, RPWI_F_ATOMIC), reads = rpwi_op_has(op, RPWI_F_READ);
	struct check_access a = {.remote = true,
		.key = p->rkey,
		.addr = p->va,
		.len = atomic ? 8 : p->dma_len,
		.access = reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE};
	if (atomic)
		a.access = IBV_ACCESS_REMOTE_ATOMIC;
	struct rpwi_finding f = check_finding(RPWI_RULE_QP_ACCESS, q, NULL);
	rpwi_finding_site(&f, "qp_access_flags were set here", &q->order.access_at);
	snprintf(f.text, sizeof(f.text),
		"the peer's request needs %s, which qp_access_flags of QP 0x%06x do not have; "
		"what the memory region permits does not matter",
		right_name(a.access), q->t->qpn);
	remote_report(q, &f, &a);
}

void check_window_refused(
	uint32_t qpn, const struct check_access *a, enum rpwi_check_rule rule, const char *why)
{
	if (!rpwi_check_lock())
		return;
	struct check_qp *q = check_qpn_find(qpn);
	struct rpwi_finding f = check_finding(rule, q, NULL);
	snprintf(f.text, sizeof(f.text), "%s (%s 0x%x)", why, key_word(a), a->key);
	if (q)
		remote_report(q, &f, a);
	rpwi_check_unlock();
}

static struct check_wr *asked_by(const struct check_qp *q, uint64_t wr_id)
{
	for (uint32_t i = q ? q->sq.done : 0; q && i != q->sq.tail; i++)
		if (q->sq.ring[i & q->sq.mask].wr_id == wr_id)
			return &q->sq.ring[i & q->sq.mask];
	return NULL;
}

uint32_t check_rkey_of(uint32_t qpn, uint64_t wr_id)
{
	if (!rpwi_check_lock())
		return 0;
	const struct check_wr *w = asked_by(check_qpn_find(qpn), wr_id);
	uint32_t rkey = w && !w->told ? w->rkey : 0;
	rpwi_check_unlock();
	return rkey;
}

void check_peer_refused(uint32_t qpn, uint64_t wr_id, const struct check_region *region)
{
	if (!rpwi_check_lock())
		return;
	struct check_qp *q = check_qpn_find(qpn);
	struct check_wr *w = asked_by(q, wr_id);
	struct check_access a = {.remote = true};
	if (w && !w->told) {
		struct rpwi_finding f = check_finding(RPWI_RULE_KEY_UNKNOWN, q, w);
		bool wrong = true;
		a.key = f.key = w->rkey;
		a.addr = f.addr = w->raddr;
		a.len = f.len = w->len;
		a.access = remote_access_of(w->opcode);
		if (region)
			wrong = check_region_judge(&a, region, &f);
		else
			snprintf(f.text, sizeof(f.text),
				"no region of the peer has the rkey 0x%x now; whether one had it, "
				"the peer's own report says",
				a.key);
		w->told = wrong;
		f.has_memory = true;
		if (wrong)
			rpwi_check_report(&f);
	}
	rpwi_check_unlock();
}

/* ---- windows ---- */

/* The bind that is under way; NULL: it is not known. */
static struct check_wr *bind_of(struct check_qp *q)
{
	for (uint32_t i = q ? q->sq.done : 0; q && i != q->sq.tail; i++) {
		struct check_wr *w = &q->sq.ring[i & q->sq.mask];
		if (w->opcode == IBV_WR_BIND_MW && !w->told)
			return w;
	}
	return NULL;
}

void check_window_left(uint32_t qpn, uint32_t key, bool again)
{
	if (!rpwi_check_lock())
		return;
	struct check_qp *q = check_qpn_find(qpn);
	struct check_wr *w = again ? bind_of(q) : NULL;
	struct rpwi_finding f = check_finding(RPWI_RULE_MW_LEFT, q, w);
	if (w)
		w->told = true;
	else
		rpwi_finding_site(&f, "called here", &rpwi_check_site);
	rpwi_check_say(&f,
		again ? "the memory window of rkey 0x%x is bound, and was not invalidated"
		      : "a memory window is bound to the region of key 0x%x, which is to be "
			"deregistered",
		key);
	rpwi_check_unlock();
}

void check_bind_refused(uint32_t qpn, const struct check_access *a)
{
	if (!rpwi_check_lock())
		return;
	struct check_qp *q = check_qpn_find(qpn);
	struct check_wr *w = bind_of(q);
	struct rpwi_finding f = check_finding(RPWI_RULE_KEY_UNKNOWN, q, w);
	struct check_access since = *a;
	since.since_ns = w ? w->posted_ns : 0;
	if (w && check_key_judge(&since, &f)) {
		w->told = true;
		rpwi_check_report(&f);
	}
	rpwi_check_unlock();
}
