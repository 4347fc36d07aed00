/* SPDX-License-Identifier: BSD-3-Clause */
/* cq.c - completion queues and their channels, and what puts completions and events into them; the
 * program takes them out in poll.c. */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "check/events.h"
#include "check/queue.h"
#include "device/devices.h"
#include "device/fault.h"
#include "device/cq.h"
#include "device/tally.h"
#include "explain/verbs.h"

/* ---- events ---- */

/* Queue one event of the CQ on its channel. RPWI_LOCK_EVENTS is not held. */
static void cq_notify(struct dcq *cq)
{
	struct dchannel *ch = RPWI_CONTAINER_OF(cq->ibv.channel, struct dchannel, ibv);
	uint64_t one = 1;
	rpwi_lock(RPWI_LOCK_EVENTS);
	if (!cq->pending_events++)
		rpwi_list_add_tail(&ch->cqs, &cq->link);
	/* The descriptor is readable exactly while the list is not empty: programs poll it. Each
	 * event is written, for those that wait for edges (EPOLLET) and take none before. */
	if (write(ch->ibv.fd, &one, sizeof(one)) < 0)
		rpwi_error("completion channel: cannot signal its descriptor: %s", strerror(errno));
	rpwi_unlock(RPWI_LOCK_EVENTS);
}

static void first_of_all(uint64_t at_ns)
{
	uint64_t had = atomic_load(&hca_here.say_at_ns);
	while ((!had || at_ns < had) &&
		!atomic_compare_exchange_weak(&hca_here.say_at_ns, &had, at_ns))
		;
}

/* A completion for which there is an event: at once? The CQ is locked. */
static bool event_is_due(struct dcq *cq)
{
	if (RPWI_LIKELY(cq->event_count <= 1 || !cq->event_period_us))
		return true;
	if (++cq->unsaid < cq->event_count) {
		if (!cq->say_at_ns) {
			cq->say_at_ns = rpwi_now_ns() + cq->event_period_us * 1000ull;
			first_of_all(cq->say_at_ns);
		}
		return false;
	}
	cq->unsaid = 0;
	cq->say_at_ns = 0;
	return true;
}

uint64_t cq_event_deadline(void)
{
	uint64_t at = atomic_load_explicit(&hca_here.say_at_ns, memory_order_relaxed);
	return at ? at : RPWI_NEVER;
}

void cq_event_timer(uint64_t now_ns)
{
	struct rpwi_list *at, *cqs = live_all(LIVE_CQ);
	atomic_store(&hca_here.say_at_ns, 0);
	for (at = cqs->next; at != cqs; at = at->next) {
		struct dcq *cq = RPWI_CONTAINER_OF(at, struct dcq, live.link);
		cq_lock(cq);
		bool due = cq->say_at_ns && cq->say_at_ns <= now_ns;
		if (due) {
			cq->notify = NOTIFY_NONE;
			cq->unsaid = 0;
			cq->say_at_ns = 0;
		} else if (cq->say_at_ns) {
			first_of_all(cq->say_at_ns);
		}
		cq_unlock(cq);
		if (due && cq->ibv.channel)
			cq_notify(cq);
	}
}

int dev_modify_cq(struct ibv_cq *ibv, struct ibv_modify_cq_attr *attr)
{
	struct dcq *cq = to_dcq(ibv);
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return rpwi_fork_refuse("ibv_modify_cq");
	if (!rpwi_like_has(RPWI_LIKE_OPTIONAL, RPWI_LIKE_MODERATION))
		return EOPNOTSUPP;
	if (attr->attr_mask != IBV_CQ_ATTR_MODERATE)
		return EINVAL;
	if (!hca_lock_live(LIVE_CQ, ibv))
		return ENOENT;
	cq_lock(cq);
	cq->event_count = attr->moderate.cq_count;
	cq->event_period_us = attr->moderate.cq_period;
	/* what waits under the old rule is said at once */
	if (cq->say_at_ns)
		cq->say_at_ns = 1;
	cq_unlock(cq);
	cq_event_timer(rpwi_now_ns());
	hca_unlock();
	return 0;
}

struct ibv_comp_channel *rpwi_dev_create_comp_channel(struct ibv_context *c)
{
	if (rpwi_plan_refuses(RPWI_CALL_CREATE_COMP_CHANNEL))
		return NULL;
	struct dchannel *ch = calloc(1, sizeof(*ch));
	if (!ch)
		return NULL;
	ch->ibv.context = c;
	ch->ibv.fd = eventfd(0, EFD_CLOEXEC);
	if (ch->ibv.fd < 0) {
		free(ch);
		return NULL;
	}
	rpwi_list_init(&ch->cqs);
	hca_lock();
	int rc = live_add(&ch->live, LIVE_CHANNEL, &ch->ibv, 0);
	hca_unlock();
	if (!rc)
		return &ch->ibv;
	close(ch->ibv.fd);
	free(ch);
	return rpwi_none(-rc);
}

int rpwi_dev_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	RPWI_WHOLE;
	struct dchannel *ch = RPWI_CONTAINER_OF(ibv, struct dchannel, ibv);
	hca_lock();
	int rc = live_may_go(LIVE_CHANNEL, ibv, &ch->refs);
	if (!rc)
		live_del(&ch->live);
	hca_unlock();
	if (rc)
		return rc;
	close(ibv->fd);
	free(ch);
	return 0;
}

void rpwi_dev_ack_cq_events(struct ibv_cq *ibv, unsigned nevents)
{
	pthread_mutex_lock(&ibv->mutex);
	ibv->comp_events_completed += nevents;
	pthread_cond_signal(&ibv->cond);
	pthread_mutex_unlock(&ibv->mutex);
}

/* ---- the ring ---- */

static struct cq_stamp stamp_now(const struct dcq *cq)
{
	struct cq_stamp s = {.raw_ns = rpwi_now_ns()};
	struct timespec ts;
	if (cq->stamps_wall && !clock_gettime(CLOCK_REALTIME, &ts))
		s.wall_ns = (uint64_t)ts.tv_sec * RPWI_NS_PER_S + (uint64_t)ts.tv_nsec;
	return s;
}

/* Without the CQ's lock, where it has no event to give and nobody else puts in: only the holder of
 * the HCA's lock does, as long as no QP has a lock of its own. */
static inline bool push_alone(struct dcq *cq, const struct ibv_wc *wc)
{
	if (cq->ibv.channel || RPWI_UNLIKELY(qplock_is_split() || cq->stamps))
		return false;
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	if (RPWI_UNLIKELY(tail - atomic_load_explicit(&cq->head, memory_order_acquire) >= cq->cap))
		return false;
	cq->ring[tail & cq->mask] = *wc;
	atomic_store_explicit(&cq->tail, tail + 1, memory_order_release);
	return true;
}

/* Apart, so that push_alone is compiled into its callers. */
__attribute__((noinline)) static void push_locked(
	struct dcq *cq, const struct ibv_wc *wc, bool solicited)
{
	cq_lock(cq);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed),
		 head = atomic_load_explicit(&cq->head, memory_order_acquire);
	if (RPWI_UNLIKELY(tail - head >= cq->cap)) {
		bool first = !cq->overflowed;
		cq->overflowed = true;
		cq_unlock(cq);
		__atomic_fetch_add(&hca_here.n.cq_overflows, 1, __ATOMIC_RELAXED);
		if (first && !cq->ignore_overrun) {
			if (RPWI_UNLIKELY(rpwi_check_on))
				check_overran(&cq->ibv, wc->qp_num, cq->cap);
			rpwi_warn("CQ of %u entries overran: a completion of QP 0x%06x is lost; "
				  "make the CQ as large as all its queues together",
				cq->cap, wc->qp_num);
			struct ibv_async_event ev = {
				.element.cq = &cq->ibv, .event_type = IBV_EVENT_CQ_ERR};
			dev_event(to_dctx(cq->ibv.context), &ev);
		}
		return;
	}
	cq->ring[tail & cq->mask] = *wc;
	if (RPWI_UNLIKELY(cq->stamps))
		cq->stamps[tail & cq->mask] = stamp_now(cq);
	atomic_store_explicit(&cq->tail, tail + 1, memory_order_release);
	bool event = cq->notify == NOTIFY_ALL || (cq->notify == NOTIFY_SOLICITED && solicited),
	     fire = event && event_is_due(cq), first = event && !fire && cq->unsaid == 1;
	if (fire)
		cq->notify = NOTIFY_NONE;
	cq_unlock(cq);
	if (fire && cq->ibv.channel)
		cq_notify(cq);
	/* it may sleep for longer than the event may wait */
	if (RPWI_UNLIKELY(first))
		service_wake();
}

void cq_push(struct dcq *cq, const struct ibv_wc *wc, bool solicited)
{
	if (RPWI_UNLIKELY(!push_alone(cq, wc)))
		push_locked(cq, wc, solicited);
}

/* Drop the completions of a QP that is destroyed or reset (IB 11.2.5.5). */
void cq_purge_qp(struct dcq *cq, uint32_t qpn)
{
	if (RPWI_UNLIKELY(rpwi_plan_on))
		fault_forget(cq, qpn);
	cq_lock(cq);
	uint32_t head = atomic_load(&cq->head), tail = atomic_load(&cq->tail), to = head;
	for (uint32_t i = head; i != tail; i++) {
		struct ibv_wc *wc = &cq->ring[i & cq->mask];
		if (wc->qp_num == qpn)
			continue;
		if (cq->stamps)
			cq->stamps[to & cq->mask] = cq->stamps[i & cq->mask];
		cq->ring[to++ & cq->mask] = *wc;
	}
	atomic_store(&cq->tail, to);
	cq_unlock(cq);
}

/* ---- life ---- */

static struct ibv_wc *ring_new(int cqe, uint32_t *mask)
{
	uint32_t cap = 1;
	while (cap < (uint32_t)cqe)
		cap *= 2;
	*mask = cap - 1;
	return malloc(cap * sizeof(struct ibv_wc));
}

/* Never more than the device says that it has. */
static uint32_t room_of(uint32_t mask)
{
	return (uint32_t)RPWI_MIN(mask + 1ull, rpwi_like_most(RPWI_LIKE_MAX_CQE));
}

struct dcq *cq_new(struct ibv_context *c, int cqe, void *cq_context, struct ibv_comp_channel *ch,
	int comp_vector)
{
	if (cqe < 1 || rpwi_like_beyond(RPWI_LIKE_MAX_CQE, (uint64_t)cqe) || comp_vector < 0 ||
		comp_vector >= c->num_comp_vectors)
		return rpwi_none(EINVAL);
	if (rpwi_plan_refuses(RPWI_CALL_CREATE_CQ))
		return NULL;
	struct dcq *cq = calloc(1, sizeof(*cq));
	if (!cq || !(cq->ring = ring_new(cqe, &cq->mask))) {
		free(cq);
		return rpwi_none(ENOMEM);
	}
	cq->cap = room_of(cq->mask);
	cq->ibv.context = c;
	cq->ibv.channel = ch;
	cq->ibv.cq_context = cq_context;
	cq->ibv.cqe = (int)cq->cap;
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	rpwi_list_init(&cq->link);
	hca_lock();
	int rc = ch && !live_is(LIVE_CHANNEL, ch)
			 ? -ENOENT
			 : live_add(&cq->live, LIVE_CQ, &cq->ibv, hca_here.made[LIVE_CQ] + 1);
	if (!rc) {
		cq->ordinal = ++hca_here.made[LIVE_CQ];
		tally_one(c, cqs, 1);
		if (ch)
			RPWI_CONTAINER_OF(ch, struct dchannel, ibv)->refs++;
	}
	hca_unlock();
	if (!rc && RPWI_UNLIKELY(rpwi_check_on))
		check_cq_made(&cq->ibv, (uint32_t)cqe);
	if (!rc)
		return cq;
	free(cq->ring);
	free(cq);
	return rpwi_none(-rc);
}

struct ibv_cq *rpwi_dev_create_cq(struct ibv_context *c, int cqe, void *cq_context,
	struct ibv_comp_channel *ch, int comp_vector)
{
	struct dcq *cq = cq_new(c, cqe, cq_context, ch, comp_vector);
	return cq ? &cq->ibv : NULL;
}

int rpwi_dev_resize_cq(struct ibv_cq *ibv, int cqe)
{
	struct dcq *cq = to_dcq(ibv);
	if (cqe < 1 || rpwi_like_beyond(RPWI_LIKE_MAX_CQE, (uint64_t)cqe))
		return EINVAL;
	int refused = rpwi_plan_call(RPWI_CALL_RESIZE_CQ);
	if (refused)
		return refused;
	uint32_t mask;
	struct ibv_wc *ring = ring_new(cqe, &mask), *old;
	struct cq_stamp *stamps = NULL, *old_stamps;
	hca_lock(); /* who puts in may have no more than that: push_alone */
	int rc = live_is(LIVE_CQ, ibv) ? 0 : ENOENT;
	if (!rc && !ring)
		rc = ENOMEM;
	if (!rc && cq->stamps && !(stamps = malloc((mask + 1) * sizeof(*stamps))))
		rc = ENOMEM;
	if (rc) {
		hca_unlock();
		free(ring);
		return rc;
	}
	cq_lock(cq);
	uint32_t head = atomic_load(&cq->head), tail = atomic_load(&cq->tail);
	if (tail - head > room_of(mask)) {
		cq_unlock(cq);
		hca_unlock();
		free(ring);
		free(stamps);
		return EINVAL;
	}
	for (uint32_t i = head; i != tail; i++) {
		ring[i & mask] = cq->ring[i & cq->mask];
		if (stamps)
			stamps[i & mask] = cq->stamps[i & cq->mask];
	}
	old_stamps = cq->stamps;
	cq->stamps = stamps;
	old = cq->ring;
	cq->ring = ring;
	cq->mask = mask;
	cq->cap = room_of(mask);
	ibv->cqe = (int)cq->cap;
	cq_unlock(cq);
	hca_unlock();
	free(old);
	free(old_stamps);
	if (RPWI_UNLIKELY(rpwi_check_on))
		check_cq_resized(ibv, (uint32_t)cqe);
	return 0;
}

/* For --check: another thread may be about to acknowledge them. */
static void acks_checked(struct ibv_cq *ibv, unsigned got)
{
	struct timespec until;
	int rc = 0;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 200000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&ibv->mutex);
	while (!rc && ibv->comp_events_completed != got)
		rc = pthread_cond_timedwait(&ibv->cond, &ibv->mutex, &until);
	unsigned left = got - ibv->comp_events_completed;
	pthread_mutex_unlock(&ibv->mutex);
	if (left)
		check_events_left(ibv, left);
}

int rpwi_dev_destroy_cq(struct ibv_cq *ibv)
{
	RPWI_WHOLE;
	struct dcq *cq = to_dcq(ibv);
	hca_lock();
	int rc = live_may_go(LIVE_CQ, ibv, &cq->refs);
	if (rc) {
		hca_unlock();
		return rc;
	}
	if (ibv->channel)
		RPWI_CONTAINER_OF(ibv->channel, struct dchannel, ibv)->refs--;
	tally_one(ibv->context, cqs, -1);
	live_del(&cq->live);
	hca_unlock();
	rpwi_lock(RPWI_LOCK_EVENTS);
	if (cq->pending_events) {
		struct dchannel *ch = RPWI_CONTAINER_OF(ibv->channel, struct dchannel, ibv);
		uint64_t n;
		rpwi_list_del(&cq->link);
		if (rpwi_list_empty(&ch->cqs) && read(ch->ibv.fd, &n, sizeof(n)) < 0)
			rpwi_debug("completion channel: %s", strerror(errno));
	}
	unsigned got = cq->events_got;
	rpwi_unlock(RPWI_LOCK_EVENTS);
	if (RPWI_UNLIKELY(rpwi_check_on))
		acks_checked(ibv, got);
	/* As the man page says: wait until every event that was handed out is acknowledged. */
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->comp_events_completed != got)
		pthread_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
	if (RPWI_UNLIKELY(rpwi_check_on))
		check_cq_gone(ibv);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	free(cq->ring);
	free(cq->stamps);
	free(cq);
	return 0;
}
