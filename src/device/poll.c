/* SPDX-License-Identifier: BSD-3-Clause */
/* poll.c - the program looks for completions: it polls, asks for an event or waits for one, and
 * makes progress meanwhile. */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "base/turn.h"
#include "check/events.h"
#include "device/checked.h"
#include "device/cq.h"
#include "device/fault.h"
#include "device/path.h"
#include "device/pollset.h"
#include "device/progress.h"
#include "device/slots.h"
#include "explain/verbs.h"

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

/* The thread is canceled where it waits, with no lock. */
static void awake(void *h) { pollset_awake(h); }

/* A thread only waits: it makes progress until `fd` is readable or anything came. 0, or -EINTR
 * when a signal handler ran. */
static int progress_wait(int fd)
{
	struct hca *h = &hca_here;
	struct pollfd fds[2 * DEV_PORTS_MAX + 4];
	hca_lock_serving();
	bool got = progress_round(true, false, pollset_all_ready);
	send_held(rpwi_now_ns());
	unsigned n = pollset_fill(h, fds);
	uint64_t until = progress_deadline();
	got = got || !pollset_sleep(h);
	hca_unlock();
	if (got)
		return 0;
	fds[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
	/* Bounded: what another thread posts meanwhile may set an earlier deadline. */
	struct timespec ts = pollset_timeout(until, 10 * RPWI_NS_PER_MS);
	int rc;
	pthread_cleanup_push(awake, h);
	rc = ppoll(fds, n, &ts, NULL) < 0 ? -errno : 0;
	pthread_cleanup_pop(true);
	if (RPWI_UNLIKELY(!rc && pollset_path_spoke(fds, n))) {
		hca_lock();
		path_heard(h);
		hca_unlock();
	}
	return rc;
}

/* The thread that waits may be canceled, as with libibverbs: servers end theirs so. */
static void wait_ends(void *arg) { service_wait_end(); }

int rpwi_dev_get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **cq, void **ctx)
{
	struct dchannel *ch = RPWI_CONTAINER_OF(ibv, struct dchannel, ibv);
	if (channel_take(ch, cq, ctx)) {
		if (RPWI_UNLIKELY(rpwi_check_on))
			check_event_got(*cq);
		return 0;
	}
	if (fcntl(ibv->fd, F_GETFL) & O_NONBLOCK)
		return rpwi_minus(EAGAIN);
	/* This thread has nothing else to do: it makes progress itself, so a completion needs no
	 * second thread to be woken. */
	int rc = 0;
	if (RPWI_UNLIKELY(rpwi_check_on))
		check_waits(ibv);
	service_wait_begin();
	pthread_cleanup_push(wait_ends, NULL);
	while (!rc && !channel_take(ch, cq, ctx))
		rc = progress_wait(ibv->fd);
	pthread_cleanup_pop(true);
	if (!rc && RPWI_UNLIKELY(rpwi_check_on))
		check_event_got(*cq);
	if (rc)
		errno = -rc;
	return rc ? -1 : 0;
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
	if (RPWI_UNLIKELY(!h->service_running)) {
		/* A child that a signal handler forked here refuses every call, and so the rest of
		 * this one: with a service thread it would take what is its parent's. */
		if (rpwi_fork_broken) {
			hca_unlock();
			return;
		}
		service_start();
	}
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
	RPWI_CHECK_HERE();
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return dev_refuse("ibv_create_cq_ex");
	/* VLAN and flow tags and tag matching are of raw packets and NICs */
	bool stamps = rpwi_like_has(RPWI_LIKE_OPTIONAL, RPWI_LIKE_TIMESTAMPS);
	const uint64_t known = IBV_WC_STANDARD_FLAGS | (stamps ? STAMPED : 0);
	if ((attr->comp_mask &
		    ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) ||
		(attr->wc_flags & ~known))
		return rpwi_none(EOPNOTSUPP);
	const uint32_t known_flags =
		IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS && attr->flags & ~known_flags)
		return rpwi_none(EINVAL);
	struct dcq *cq =
		cq_new(c, (int)attr->cqe, attr->cq_context, attr->channel, (int)attr->comp_vector);
	if (!cq)
		return NULL;
	if (attr->wc_flags & STAMPED) {
		cq->stamps_wall = attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
		cq->stamps = malloc(cq->cap * sizeof(*cq->stamps));
		if (!cq->stamps) {
			rpwi_dev_destroy_cq(&cq->ibv);
			return rpwi_none(ENOMEM);
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
	if (slots_on())
		slots_cq_ex(ex);
	if (RPWI_UNLIKELY(rpwi_check_on))
		checked_cq_ex(ex);
	return ex;
}
