/* SPDX-License-Identifier: BSD-3-Clause */
/* cq.c - completion queues, their channels, and the polls in which the program makes progress. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/turn.h"
#include "device/fault.h"
#include "device/hca.h"
#include "device/tally.h"
#include "explain/verbs.h"

static inline void cq_lock(struct dcq *cq)
{
	rpwi_lock_enter(RPWI_LOCK_CQ);
	for (unsigned spins = 0; atomic_exchange_explicit(&cq->spin, hca_here.generation,
					 memory_order_acquire) == hca_here.generation;
		spins++)
		if (spins > 100)
			sched_yield();
}

static inline void cq_unlock(struct dcq *cq)
{
	atomic_store_explicit(&cq->spin, 0, memory_order_release);
	rpwi_lock_leave(RPWI_LOCK_CQ);
}

/* ---- events ---- */

/* Queue one event of the CQ on its channel. RPWI_LOCK_EVENTS is not held. */
static void cq_notify(struct dcq *cq)
{
	struct dchannel *ch = RPWI_CONTAINER_OF(cq->ibv.channel, struct dchannel, ibv);
	uint64_t one = 1;
	rpwi_lock(RPWI_LOCK_EVENTS);
	bool first = rpwi_list_empty(&ch->cqs);
	if (!cq->pending_events++)
		rpwi_list_add_tail(&ch->cqs, &cq->link);
	/* The descriptor is readable exactly while the list is not empty: programs poll it. */
	if (first && write(ch->ibv.fd, &one, sizeof(one)) < 0)
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
	if (attr->attr_mask != IBV_CQ_ATTR_MODERATE)
		return EINVAL;
	hca_lock();
	if (!live_is(LIVE_CQ, ibv)) {
		hca_unlock();
		return ENOENT;
	}
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

static bool channel_take(struct dchannel *ch, struct ibv_cq **cq, void **ctx)
{
	bool got = false;
	rpwi_lock(RPWI_LOCK_EVENTS);
	if (!rpwi_list_empty(&ch->cqs)) {
		struct dcq *q = RPWI_CONTAINER_OF(ch->cqs.next, struct dcq, link);
		rpwi_list_del(&q->link);
		if (--q->pending_events)
			rpwi_list_add_tail(&ch->cqs, &q->link);
		q->events_got++;
		*cq = &q->ibv;
		*ctx = q->ibv.cq_context;
		got = true;
		uint64_t n;
		if (rpwi_list_empty(&ch->cqs) && read(ch->ibv.fd, &n, sizeof(n)) < 0)
			rpwi_debug("completion channel: %s", strerror(errno));
	}
	rpwi_unlock(RPWI_LOCK_EVENTS);
	return got;
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
	errno = -rc;
	return NULL;
}

int rpwi_dev_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	RPWI_WHOLE;
	struct dchannel *ch = RPWI_CONTAINER_OF(ibv, struct dchannel, ibv);
	hca_lock();
	int rc = !live_is(LIVE_CHANNEL, ibv) ? ENOENT : ch->refs ? EBUSY : 0;
	if (!rc)
		live_del(&ch->live);
	hca_unlock();
	if (rc)
		return rc;
	close(ibv->fd);
	free(ch);
	return 0;
}

/* The thread that waits may be canceled, as with libibverbs: servers end theirs so. */
static void wait_ends(void *arg) { service_wait_end(); }

int rpwi_dev_get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **cq, void **ctx)
{
	struct dchannel *ch = RPWI_CONTAINER_OF(ibv, struct dchannel, ibv);
	if (channel_take(ch, cq, ctx))
		return 0;
	if (fcntl(ibv->fd, F_GETFL) & O_NONBLOCK) {
		errno = EAGAIN;
		return -1;
	}
	/* This thread has nothing else to do: it makes progress itself, so a completion needs no
	 * second thread to be woken. */
	int rc = 0;
	service_wait_begin();
	pthread_cleanup_push(wait_ends, NULL);
	while (!rc && !channel_take(ch, cq, ctx))
		rc = progress_wait(ibv->fd);
	pthread_cleanup_pop(true);
	if (rc)
		errno = -rc;
	return rc ? -1 : 0;
}

void rpwi_dev_ack_cq_events(struct ibv_cq *ibv, unsigned nevents)
{
	pthread_mutex_lock(&ibv->mutex);
	ibv->comp_events_completed += nevents;
	pthread_cond_signal(&ibv->cond);
	pthread_mutex_unlock(&ibv->mutex);
}

int dev_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return rpwi_fork_refuse("ibv_req_notify_cq");
	int refused = rpwi_plan_call(RPWI_CALL_REQ_NOTIFY_CQ);
	if (RPWI_UNLIKELY(refused))
		return refused;
	struct dcq *cq = to_dcq(ibv);
	/* no table here: a program that sleeps calls this for each completion */
	if (RPWI_UNLIKELY(ibv->handle != cq->live.handle))
		return ENOENT;
	cq_lock(cq);
	int want = solicited_only ? NOTIFY_SOLICITED : NOTIFY_ALL;
	if (want > cq->notify)
		cq->notify = want;
	cq_unlock(cq);
	/* The program is about to sleep, perhaps on its own epoll: the service thread must watch
	 * the sockets soon. */
	atomic_store_explicit(&hca_here.empty_polls, 0, memory_order_relaxed);
	if (atomic_load_explicit(&hca_here.held_any, memory_order_relaxed) ||
		!atomic_load_explicit(&hca_here.service_running, memory_order_relaxed)) {
		hca_lock_serving();
		send_held(rpwi_now_ns());
		hca_unlock();
	}
	return 0;
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

/* Without its lock, where it has no event to give and nobody else puts in: who has the HCA's lock,
 * as long as no QP has one of its own. */
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

void cq_push(struct dcq *cq, const struct ibv_wc *wc, bool solicited)
{
	if (RPWI_LIKELY(push_alone(cq, wc)))
		return;
	cq_lock(cq);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed),
		 head = atomic_load_explicit(&cq->head, memory_order_acquire);
	if (RPWI_UNLIKELY(tail - head >= cq->cap)) {
		bool first = !cq->overflowed;
		cq->overflowed = true;
		cq_unlock(cq);
		__atomic_fetch_add(&hca_here.n.cq_overflows, 1, __ATOMIC_RELAXED);
		if (first && !cq->ignore_overrun) {
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

static int cq_pop(struct dcq *cq, int n, struct ibv_wc *wc)
{
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	if (head == atomic_load_explicit(&cq->tail, memory_order_acquire))
		return 0;
	cq_lock(cq);
	head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	/* push_alone takes no lock: what it wrote is seen by its tail, which may have gone on */
	uint32_t have = atomic_load_explicit(&cq->tail, memory_order_acquire) - head;
	int got = (int)RPWI_MIN((uint32_t)n, have);
	for (int i = 0; i < got; i++)
		wc[i] = cq->ring[(head + (uint32_t)i) & cq->mask];
	if (RPWI_UNLIKELY(cq->stamps) && got)
		cq->cur_stamp = cq->stamps[(head + (uint32_t)got - 1) & cq->mask];
	atomic_store_explicit(&cq->head, head + (uint32_t)got, memory_order_release);
	cq_unlock(cq);
	return got;
}

/* One round of progress if nobody else is at it. Counts polls in vain, by which the service thread
 * knows who owns the sockets. */
static void poll_progress(void)
{
	static __thread struct rpwi_turn turn __attribute__((tls_model("initial-exec")));
	struct hca *h = &hca_here;
	atomic_store_explicit(&h->any_polls,
		atomic_load_explicit(&h->any_polls, memory_order_relaxed) + 1,
		memory_order_relaxed);
	if (!hca_try()) {
		/* Who has it may be the service thread that waits awake: it shall leave. */
		atomic_store_explicit(&h->empty_polls,
			atomic_load_explicit(&h->empty_polls, memory_order_relaxed) + 1,
			memory_order_relaxed);
		sched_yield();
		return;
	}
	if (RPWI_UNLIKELY(!h->service_running))
		service_start();
	h->n.inline_polls++;
	/* A poll in vain: no reply is about to take the ACK along. */
	if (atomic_load_explicit(&h->held_any, memory_order_relaxed))
		send_held(rpwi_now_ns());
	bool found = progress_run(false);
	if (!found) {
		h->n.inline_empty++;
		atomic_store_explicit(&h->empty_polls,
			atomic_load_explicit(&h->empty_polls, memory_order_relaxed) + 1,
			memory_order_relaxed);
	}
	bool others_turn = rpwi_turn_ends(&turn, found);
	hca_unlock();
	if (RPWI_UNLIKELY(others_turn))
		rpwi_turn_give(&turn);
}

static int poll_cq(struct dcq *cq, int n, struct ibv_wc *wc)
{
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return -rpwi_fork_refuse("ibv_poll_cq");
	if (n <= 0)
		return 0;
	int got = cq_pop(cq, n, wc);
	if (got)
		return got;
	if (RPWI_UNLIKELY(cq->overflowed && !cq->ignore_overrun))
		return -EIO;
	poll_progress();
	return cq_pop(cq, n, wc);
}

int dev_poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	int got = poll_cq(to_dcq(ibv), n, wc);
	if (RPWI_UNLIKELY(rpwi_explain_on))
		rpwi_explain_polled(wc, got);
	return got;
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

static struct dcq *cq_new(struct ibv_context *c, int cqe, void *cq_context,
	struct ibv_comp_channel *ch, int comp_vector)
{
	if (cqe < 1 || cqe > DEV_CQE_MAX || comp_vector < 0 || comp_vector >= c->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	if (rpwi_plan_refuses(RPWI_CALL_CREATE_CQ))
		return NULL;
	static uint32_t made;
	struct dcq *cq = calloc(1, sizeof(*cq));
	if (!cq || !(cq->ring = ring_new(cqe, &cq->mask))) {
		free(cq);
		errno = ENOMEM;
		return NULL;
	}
	cq->cap = cq->mask + 1;
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
			 : live_add(&cq->live, LIVE_CQ, &cq->ibv, made + 1);
	if (!rc) {
		cq->ordinal = ++made;
		tally_one(c, cqs, 1);
		if (ch)
			RPWI_CONTAINER_OF(ch, struct dchannel, ibv)->refs++;
	}
	hca_unlock();
	if (!rc)
		return cq;
	free(cq->ring);
	free(cq);
	errno = -rc;
	return NULL;
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
	if (cqe < 1 || cqe > DEV_CQE_MAX)
		return EINVAL;
	int refused = rpwi_plan_call(RPWI_CALL_RESIZE_CQ);
	if (refused)
		return refused;
	uint32_t mask;
	struct ibv_wc *ring = ring_new(cqe, &mask), *old;
	struct cq_stamp *stamps = NULL, *old_stamps;
	hca_lock(); /* who puts in may have no more than that: push_alone */
	int rc = !live_is(LIVE_CQ, ibv) ? ENOENT : ring ? 0 : ENOMEM;
	if (!rc && cq->stamps && !(stamps = malloc((mask + 1) * sizeof(*stamps))))
		rc = ENOMEM;
	if (rc) {
		hca_unlock();
		free(ring);
		return rc;
	}
	cq_lock(cq);
	uint32_t head = atomic_load(&cq->head), tail = atomic_load(&cq->tail);
	if (tail - head > mask + 1) {
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
	cq->cap = mask + 1;
	ibv->cqe = (int)cq->cap;
	cq_unlock(cq);
	hca_unlock();
	free(old);
	free(old_stamps);
	return 0;
}

int rpwi_dev_destroy_cq(struct ibv_cq *ibv)
{
	RPWI_WHOLE;
	struct dcq *cq = to_dcq(ibv);
	hca_lock();
	int rc = !live_is(LIVE_CQ, ibv) ? ENOENT : cq->refs ? EBUSY : 0;
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
	/* As the man page says: wait until every event that was handed out is acknowledged. */
	pthread_mutex_lock(&ibv->mutex);
	while (ibv->comp_events_completed != got)
		pthread_cond_wait(&ibv->cond, &ibv->mutex);
	pthread_mutex_unlock(&ibv->mutex);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	free(cq->ring);
	free(cq->stamps);
	free(cq);
	return 0;
}

/* ---- extended CQs: the current completion is a copy, popped one at a time ---- */

static int ex_next(struct ibv_cq_ex *ex)
{
	struct dcq *cq = RPWI_CONTAINER_OF(ex, struct dcq, ex);
	if (!cq_pop(cq, 1, &cq->cur))
		return ENOENT;
	if (RPWI_UNLIKELY(rpwi_explain_on))
		rpwi_explain_polled(&cq->cur, 1);
	ex->wr_id = cq->cur.wr_id;
	ex->status = cq->cur.status;
	return 0;
}

static int ex_start(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct dcq *cq = RPWI_CONTAINER_OF(ex, struct dcq, ex);
	if (attr->comp_mask)
		return EINVAL;
	if (dev_poll_cq(&cq->ibv, 1, &cq->cur) < 1)
		return ENOENT;
	ex->wr_id = cq->cur.wr_id;
	ex->status = cq->cur.status;
	return 0;
}

static void ex_end(struct ibv_cq_ex *ex) {}
static const struct ibv_wc *ex_cur(struct ibv_cq_ex *ex)
{
	return &RPWI_CONTAINER_OF(ex, struct dcq, ex)->cur;
}
static enum ibv_wc_opcode ex_opcode(struct ibv_cq_ex *ex) { return ex_cur(ex)->opcode; }
static uint32_t ex_vendor_err(struct ibv_cq_ex *ex) { return ex_cur(ex)->vendor_err; }
static uint32_t ex_byte_len(struct ibv_cq_ex *ex) { return ex_cur(ex)->byte_len; }
static __be32 ex_imm(struct ibv_cq_ex *ex) { return ex_cur(ex)->imm_data; }
static uint32_t ex_qp_num(struct ibv_cq_ex *ex) { return ex_cur(ex)->qp_num; }
static uint32_t ex_src_qp(struct ibv_cq_ex *ex) { return ex_cur(ex)->src_qp; }
static unsigned ex_flags(struct ibv_cq_ex *ex) { return ex_cur(ex)->wc_flags; }
static uint32_t ex_slid(struct ibv_cq_ex *ex) { return ex_cur(ex)->slid; }
static uint8_t ex_sl(struct ibv_cq_ex *ex) { return ex_cur(ex)->sl; }
static uint8_t ex_path_bits(struct ibv_cq_ex *ex) { return ex_cur(ex)->dlid_path_bits; }
static uint64_t ex_ts(struct ibv_cq_ex *ex)
{
	return RPWI_CONTAINER_OF(ex, struct dcq, ex)->cur_stamp.raw_ns;
}
static uint64_t ex_wallclock(struct ibv_cq_ex *ex)
{
	return RPWI_CONTAINER_OF(ex, struct dcq, ex)->cur_stamp.wall_ns;
}

enum {
	STAMPED =
		IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
};

struct ibv_cq_ex *dev_create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *attr)
{
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return dev_refuse("ibv_create_cq_ex");
	/* VLAN and flow tags and tag matching are of raw packets and NICs */
	const uint64_t known = IBV_WC_STANDARD_FLAGS | STAMPED;
	if ((attr->comp_mask &
		    ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) ||
		(attr->wc_flags & ~known)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	const uint32_t known_flags =
		IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS && attr->flags & ~known_flags) {
		errno = EINVAL;
		return NULL;
	}
	struct dcq *cq =
		cq_new(c, (int)attr->cqe, attr->cq_context, attr->channel, (int)attr->comp_vector);
	if (!cq)
		return NULL;
	if (attr->wc_flags & STAMPED) {
		cq->stamps_wall = attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
		cq->stamps = malloc(cq->cap * sizeof(*cq->stamps));
		if (!cq->stamps) {
			rpwi_dev_destroy_cq(&cq->ibv);
			errno = ENOMEM;
			return NULL;
		}
	}
	cq->is_ex = true;
	rpwi_explain(RPWI_EXPLAIN_CALL, "ibv_create_cq_ex for %u completions", attr->cqe);
	cq->ignore_overrun = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
			     (attr->flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
	struct ibv_cq_ex *ex = &cq->ex;
	ex->comp_mask = 0;
	ex->start_poll = ex_start;
	ex->next_poll = ex_next;
	ex->end_poll = ex_end;
	ex->read_opcode = ex_opcode;
	ex->read_vendor_err = ex_vendor_err;
	ex->read_byte_len = ex_byte_len;
	ex->read_imm_data = ex_imm;
	ex->read_qp_num = ex_qp_num;
	ex->read_src_qp = ex_src_qp;
	ex->read_wc_flags = ex_flags;
	ex->read_slid = ex_slid;
	ex->read_sl = ex_sl;
	ex->read_dlid_path_bits = ex_path_bits;
	ex->read_completion_ts = ex_ts;
	ex->read_completion_wallclock_ns = ex_wallclock;
	return ex;
}
