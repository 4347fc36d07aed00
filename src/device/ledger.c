/* SPDX-License-Identifier: BSD-3-Clause */
/* ledger.c - see ledger.h. */
#include "device/ledger.h"

#include "near/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/helper.h"

static struct ledger *own;
static int own_fd = -1;
static bool failed; /* once is enough */
static uint32_t next_cm, nslots;
static uint16_t slots[LEDGER_SLOTS];
static _Atomic bool news;

bool ledger_has_news(void) { return atomic_load_explicit(&news, memory_order_relaxed); }
bool ledger_take_news(void) { return atomic_exchange(&news, false); }

static bool make(void)
{
	if (own || failed || rpwi_helper_is_off())
		return own;
	failed = true;
	void *m;
	int fd = rpwi_memory_make("ropeway-ledger", sizeof(*own), RPWI_MEMORY_WRITE, &m);
	if (fd < 0)
		return false;
	failed = false;
	own = m;
	own->magic = LEDGER_MAGIC;
	own->version = LEDGER_VERSION;
	own->bytes = sizeof(*own);
	own_fd = fd;
	atomic_store(&news, true);
	return true;
}

int ledger_fd(void) { return own_fd; }
uint32_t ledger_locals(void) { return own ? own->nlocals : 0; }

void ledger_close(void)
{
	if (own)
		munmap(own, sizeof(*own));
	if (own_fd >= 0)
		close(own_fd);
	own = NULL;
	own_fd = -1;
	failed = false;
	next_cm = nslots = 0;
	news = false;
}

static void know_local(const struct rpwi_addr *a)
{
	uint32_t n = own->nlocals;
	for (uint32_t i = 0; i < n; i++)
		if (rpwi_addr_eq(&own->local[i], a) && own->local[i].scope == a->scope)
			return;
	if (n == LEDGER_LOCALS)
		return;
	own->local[n] = *a;
	atomic_store_explicit(&own->nlocals, n + 1, memory_order_release);
	atomic_store(&news, true);
}

/* ---- QPs ---- */

/* A block of entries for each slot of this process, in the order in which they are met. */
static struct ledger_qp *qp_place(uint32_t qpn)
{
	uint16_t slot = (uint16_t)(qpn >> RPWI_SLOT_SHIFT);
	uint32_t i = 0;
	while (i < nslots && slots[i] != slot)
		i++;
	if (i == LEDGER_SLOTS)
		return NULL;
	slots[i] = slot;
	nslots = RPWI_MAX(nslots, i + 1);
	uint32_t at = i * RPWI_SLOT_QPNS + (qpn & (RPWI_SLOT_QPNS - 1));
	if (at >= own->qps)
		own->qps = at + 1;
	return &own->qp[at];
}

static bool is_left_behind(const struct rpwi_qp *t)
{
	return t->type == IBV_QPT_RC && t->attr.dest_qp_num && !t->av.loopback_zone &&
	       t->av.flow.dst.family &&
	       (t->state == IBV_QPS_RTS || t->state == IBV_QPS_SQD || t->state == IBV_QPS_ERR);
}

bool ledger_qp(struct dqp *q)
{
	struct ledger_qp *e = q->ledger;
	bool wanted = is_left_behind(&q->t);
	if (RPWI_LIKELY(e && wanted)) {
		atomic_store_explicit(&e->una, q->t.una, memory_order_relaxed);
		atomic_store_explicit(&e->next, q->t.psn_max, memory_order_relaxed);
		return false;
	}
	if (!wanted) {
		ledger_qp_gone(q);
		return false;
	}
	/* one that has failed before it was sent from has nothing to take leave of */
	if (q->t.state == IBV_QPS_ERR || !make() || !(e = qp_place(q->t.qpn)))
		return false;
	e->una = q->t.una;
	e->next = q->t.psn_max;
	e->local = q->t.av.flow.src;
	e->remote = q->t.av.flow.dst;
	e->hop_limit = q->t.av.hop_limit;
	e->tclass = q->t.av.tclass;
	atomic_store_explicit(&e->dqpn, q->t.attr.dest_qp_num, memory_order_release);
	q->ledger = e;
	know_local(&e->local);
	return ledger_has_news();
}

void ledger_qp_gone(struct dqp *q)
{
	if (q->ledger && own)
		atomic_store_explicit(&q->ledger->dqpn, 0, memory_order_release);
	q->ledger = NULL;
}

/* ---- connections ---- */

/* One that has ended keeps its place until another takes it: see over_ns. */
static struct ledger_cm *cm_new(uint32_t *index)
{
	for (uint32_t n = 0; n < LEDGER_CMS; n++) {
		uint32_t at = (next_cm + n) % LEDGER_CMS;
		struct ledger_cm *e = &own->cm[at];
		if (e->local_id && !e->over_ns)
			continue;
		/* those that have ended a moment ago are passed over while there are others */
		if (e->over_ns && n < LEDGER_CMS / 2 && rpwi_now_ns() - e->over_ns < RPWI_NS_PER_S)
			continue;
		next_cm = at + 1;
		*index = at;
		if (at >= own->cms)
			own->cms = at + 1;
		return e;
	}
	return NULL;
}

static bool is_told_of(enum rpwi_cm_state s)
{
	return s == RPWI_CM_ESTABLISHED || s == RPWI_CM_REP_RCVD || s == RPWI_CM_REP_SENT ||
	       s == RPWI_CM_RTU_WAIT || s == RPWI_CM_DREQ_SENT || s == RPWI_CM_DREQ_RCVD;
}

bool ledger_cm(struct rpwi_cm_conn *c, enum rpwi_cm_state to, uint64_t now_ns)
{
	uint32_t index = c->noted - 1;
	if (c->noted) {
		if (is_told_of(to))
			return false;
		c->noted = 0;
		if (!own)
			return false;
		/* TIMEWAIT: the peer has answered */
		if (to == RPWI_CM_IDLE)
			own->cm[index].over_ns = now_ns;
		else
			atomic_store_explicit(&own->cm[index].local_id, 0, memory_order_release);
		return false;
	}
	struct ledger_cm *e;
	if (!is_told_of(to) || c->sidr || !make() || !(e = cm_new(&index)))
		return false;
	e->local_id = 0;
	atomic_thread_fence(memory_order_release);
	e->over_ns = 0;
	e->remote_id = c->remote_id;
	e->remote_qpn = c->remote.qpn;
	e->path = c->path;
	atomic_store_explicit(&e->local_id, c->local_id, memory_order_release);
	c->noted = index + 1;
	know_local(&e->path.local);
	return ledger_has_news();
}

/* ---- the reader's side ---- */

const struct ledger *ledger_map(int fd)
{
	const struct ledger *l = rpwi_memory_take(fd, sizeof(*l), RPWI_MEMORY_READ);
	if (!l)
		return NULL;
	if (l->magic == LEDGER_MAGIC && l->version == LEDGER_VERSION && l->bytes == sizeof(*l))
		return l;
	ledger_unmap(l);
	return NULL;
}

void ledger_unmap(const struct ledger *l)
{
	if (l)
		munmap((void *)(uintptr_t)l, sizeof(*l));
}
