/* SPDX-License-Identifier: BSD-3-Clause */
/* context.c - contexts: what they open, how they make progress, what they sleep on. Progress is
 * transports first, then (now and then) the control path, then what up-calls left to do. */
#include "msg/checked.h"
#include "msg/choice.h"
#include "msg/context.h"
#include "msg/connect.h"
#include "msg/endpoint.h"
#include "msg/ids.h"
#include "msg/loan.h"
#include "msg/messages.h"
#include "msg/objects.h"
#include "msg/path.h"
#include "msg/pipeline.h"
#include "msg/request.h"
#include "msg/transfer.h"
#include "msg/unexpected.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* ---- create and destroy ---- */

static int transports_set(rpw_context *c, const char *wanted)
{
	char why[400];
	const char *env = secure_getenv("ROPEWAY_TRANSPORT");
	const char *list = wanted ? wanted : text_or(env, NULL);
	if (list && !(c->listed = strdup(list)))
		return rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for a context");
	int order[TRANSPORTS_MAX], n = choice_parse(list, order, why, sizeof(why));
	int rc =
		n < 0 ? n
		      : choice_plugin(list, c->own.plugin, sizeof(c->own.plugin), why, sizeof(why));
	if (rc < 0)
		return rpwi_fail(rc, "%s%s", why, wanted ? "" : " (from ROPEWAY_TRANSPORT)");
	for (int i = 0; i < n; i++) {
		const struct tran_ops *ops = tran_all[order[i]];
		rc = ops->usable(&c->own, NULL, why, sizeof(why));
		if (rc < 0 && (ops->caps & TRAN_BY_NAME))
			rpwi_warn("transport %s is not used: %s", ops->name, why);
		else if (rc < 0)
			rpwi_debug("transport %s is not used: %s", ops->name, why);
		else {
			size_t at = strlen(c->transports);
			snprintf(c->transports + at, sizeof(c->transports) - at, "%s%s",
				at ? "," : "", ops->name);
		}
	}
	if (!*c->transports)
		return rpwi_fail(RPW_ERR_UNREACHABLE,
			"none of the transports (%s) can be used here; the last error: %s",
			text_or(list, "all"), n ? why : "none is built in");
	memcpy(c->own.transports, c->transports, sizeof(c->own.transports));
	return 0;
}

static int rdma_devices_set(rpw_context *c, const char *names)
{
	if (!names)
		return 0;
	if (strlen(names) >= sizeof(c->own.rdma_devices))
		return rpwi_fail(RPW_ERR_INVALID,
			"rdma_devices has %zu bytes: at most %zu are possible", strlen(names),
			sizeof(c->own.rdma_devices) - 1);
	snprintf(c->own.rdma_devices, sizeof(c->own.rdma_devices), "%s", names);
	return 0;
}

static int key_is_of_use(const rpw_context *c)
{
	for (int i = 0; i < c->tn; i++)
		if (tran_lists(c->transports, c->t[i].ops->name) && choice_protects(c, i))
			return 0;
	return rpwi_fail(RPW_ERR_INVALID,
		"there is a key, and none of the transports asked for (%s) protects what it "
		"carries: tcp does, and shm does not leave the host; ask for one of "
		"them, "
		"or give no key",
		c->transports);
}

/* Into the set of the control path; its events are for whoever sleeps only. */
static int set_add(rpw_context *c, int fd)
{
	return epoll_ctl(c->epfd, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN});
}

static int descriptors_open(rpw_context *c)
{
	c->epfd = boot_fd(c->boot);
	c->timerfd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (c->timerfd < 0 || set_add(c, c->timerfd))
		return rpwi_fail(RPW_ERR_SYSTEM,
			"no descriptor to wait on: %s; `ulimit -n` says how many this process may "
			"have",
			strerror(errno));
	return 0;
}

/* With all that cannot fail. NULL: no memory. */
static rpw_context *context_new(const rpw_context_options *o)
{
	rpw_context *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	struct rpwi_list *lists[] = {&c->chunks, &c->endpoints, &c->listeners, &c->memories,
		&c->work, &c->callbacks, &c->any_receives, &c->unexpected_list, &c->object_receives,
		&c->objects, &c->small_free, &c->links.late, &c->gpus, &c->pipelines, &c->views,
		&c->idle_views};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		rpwi_list_init(lists[i]);
	c->epfd = c->timerfd = -1;
	c->debug = rpwi_log_on(RPWI_LOG_DEBUG);
	c->pid = getpid();
	c->born_here = rpwi_born();
	c->born = c->debug || rpwi_check_on ? BORN_LOOKED_AT : c->born_here;
	c->classes = 1;
	c->class[0].mask = UINT64_MAX;
	c->unexpected_max = o->unexpected_bytes_max ? o->unexpected_bytes_max : 64 << 20;
	c->protos = protos;
	c->proto_ends = proto_ends;
	c->links.up = &path_link_up;
	c->links.pool = c->links.pool_free = (uint32_t)RPWI_MIN(
		RPWI_MAX(c->unexpected_max / UNIT_BYTES, (size_t)WINDOW_LEAST), (size_t)1 << 30);
	c->loan_max = o->loan_bytes_max ? o->loan_bytes_max : LOAN_BYTES;
	c->loan_max = (c->loan_max + LOAN_PAGE - 1) & ~(size_t)(LOAN_PAGE - 1);
	c->eager_option = o->eager_bytes_max;
	c->polled = o->polled;
	c->domain = msg_random();
	c->boot_next_ns = 0;
	c->timers_next_ns = RPWI_NEVER;
	c->up = (struct tran_up){connect_ready, path_up_frame, path_up_place, path_up_room,
		transfer_up_done, path_up_failed, &c->epfd};
	for (const struct tran_ops *const *p = tran_all; *p && c->tn < TRANSPORTS_MAX; p++)
		c->t[c->tn++] = (typeof(c->t[0])){.ops = *p, .fd = -1};
	boot_own_facts(&c->own);
	c->own.polled = c->polled;
	snprintf(c->host, sizeof(c->host), "%s", c->own.hostname);
	return c;
}

int rpw_context_create(const rpw_context_options *given, rpw_context **out)
{
	if (!out)
		return rpwi_fail(RPW_ERR_INVALID, "rpw_context_create: out is NULL");
	checked_init();
	rpw_context_options o = {0};
	if (given) {
		if (given->size < sizeof(size_t))
			return rpwi_fail(RPW_ERR_INVALID,
				"rpw_context_options.size is %zu: set it to "
				"sizeof(rpw_context_options)",
				given->size);
		memcpy(&o, given, RPWI_MIN(given->size, sizeof(o)));
	}
	if (o.loan_bytes_max > TRAN_LOAN_BYTES_MAX)
		return rpwi_fail(RPW_ERR_INVALID,
			"rpw_context_options.loan_bytes_max is %zu: %zu are the most",
			o.loan_bytes_max, TRAN_LOAN_BYTES_MAX);
	rpw_context *c = context_new(&o);
	if (!c)
		return rpwi_fail(RPW_ERR_NO_MEMORY, "no memory for a context");
	int status = rdma_devices_set(c, o.rdma_devices);
	if (!status)
		status = transports_set(c, o.transports);
	if (status)
		goto fail;
	status = RPW_ERR_NO_MEMORY;
	if (!match_init(&c->posted, msg_random()) || !match_init(&c->unexpected, msg_random())) {
		rpwi_fail(status, "no memory for the tables of a context");
		goto fail;
	}
	const char *key = o.key_file ? o.key_file : secure_getenv("ROPEWAY_KEY_FILE");
	status = boot_new(&connect_boot_up, c, &c->own, key && *key ? key : NULL, &c->boot);
	if (!status)
		status = key_is_of_use(c);
	if (!status)
		status = descriptors_open(c);
	if (status)
		goto fail;
	*out = c;
	return RPW_OK;
fail:
	rpw_context_destroy(c);
	return status;
}

static void all_end(rpw_context *c)
{
	while (!rpwi_list_empty(&c->endpoints))
		ep_free(RPWI_CONTAINER_OF(c->endpoints.next, rpw_endpoint, all));
	while (!rpwi_list_empty(&c->listeners))
		rpw_listener_destroy(RPWI_CONTAINER_OF(c->listeners.next, rpw_listener, all));
	while (!rpwi_list_empty(&c->any_receives)) {
		rpw_request *r = RPWI_CONTAINER_OF(c->any_receives.next, rpw_request, active);
		tag_unpost(r);
		req_complete(r, RPW_ERR_CANCELED);
	}
	while (!rpwi_list_empty(&c->object_receives)) {
		rpw_request *r = RPWI_CONTAINER_OF(c->object_receives.next, rpw_request, active);
		object_unpost(r);
		req_complete(r, RPW_ERR_CANCELED);
	}
}

static void context_free(rpw_context *c);

/* In a forked child: its copies go, and nobody hears of it. Where a transport cannot part with what
 * it shares with the parent, that stays until exec or exit. */
static void inherited_free(rpw_context *c)
{
	for (int i = 0; i < c->tn; i++) {
		if (c->t[i].tran && c->t[i].ops->caps & TRAN_INHERITED)
			c->t[i].ops->close(c->t[i].tran);
		c->t[i].tran = NULL;
	}
	while (!rpwi_list_empty(&c->endpoints)) {
		rpw_endpoint *ep =
			RPWI_CONTAINER_OF(rpwi_list_pop(&c->endpoints), rpw_endpoint, all);
		loan_all_end(ep);
		char *texts[] = {ep->why, ep->next.reasons, ep->peer, ep->path_text};
		for (size_t i = 0; i < RPWI_ARRAY_LEN(texts); i++)
			free(texts[i]);
		rpwi_error_drop(&ep->error);
		free(ep);
	}
	while (!rpwi_list_empty(&c->memories)) {
		rpw_memory *m = RPWI_CONTAINER_OF(rpwi_list_pop(&c->memories), rpw_memory, all);
		if (m->dmabuf >= 0)
			close(m->dmabuf);
		free(m);
	}
	context_free(c);
}

void rpw_context_destroy(rpw_context *c)
{
	if (!c)
		return;
	if (!msg_is_ours(c)) {
		inherited_free(c);
		return;
	}
	if (c->in_progress) {
		owner_inside(c, "rpw_context_destroy",
			"nothing was destroyed; do it after rpw_context_progress has returned");
		rpwi_error("%s", rpw_last_error());
		return;
	}
	if (RPWI_UNLIKELY(rpwi_check_on))
		checked_context_ends(c);
	all_end(c);
	c->in_progress = true;
	c->mover = pthread_self();
	msg_deliver_callbacks(c);
	c->in_progress = false;
	all_end(c); /* what these callbacks posted; nobody is called any more */
	pipeline_end(c);
	while (!rpwi_list_empty(&c->memories))
		rpw_memory_destroy(RPWI_CONTAINER_OF(c->memories.next, rpw_memory, all));
	pipeline_gpus_free(c);
	context_free(c);
}

static void context_free(rpw_context *c)
{
	for (int i = 0; i < c->tn; i++)
		if (c->t[i].tran)
			c->t[i].ops->close(c->t[i].tran);
	if (c->boot) /* after those that use its set */
		boot_free(c->boot);
	while (!rpwi_list_empty(&c->small_free)) {
		struct unexpected *u =
			RPWI_CONTAINER_OF(c->small_free.next, struct unexpected, in_context);
		rpwi_list_del(&u->in_context);
		free(u);
	}
	view_context_gone(c);
	match_fini(&c->posted);
	match_fini(&c->unexpected);
	unexpected_indexes_free(c);
	req_chunks_free(c);
	link_group_fini(&c->links);
	rpwi_slots_fini(&c->numbers);
	free(c->listed);
	rpwi_slots_fini(&c->regions);
	if (c->timerfd >= 0)
		close(c->timerfd);
	free(c);
}

/* ---- progress ---- */

static void todo_do(rpw_endpoint *ep)
{
	unsigned todo = ep->todo;
	ep->todo = 0;
	rpwi_list_del(&ep->work);
	if (todo & TODO_CLOSE) {
		ep_free(ep);
		return;
	}
	if ((todo & TODO_FAIL) && ep->state != EP_FAILED) {
		ep_fail(ep, &ep->error);
		return;
	}
	if (todo & TODO_PATH)
		connect_next_path(ep);
	if (todo & TODO_AM)
		am_turn(ep);
	if (ep->state == EP_UP)
		path_work(ep);
}

/* What is left to do now; what that leaves is for the next round. */
static int work_do(rpw_context *c)
{
	struct rpwi_list now = c->work;
	now.next->prev = now.prev->next = &now;
	rpwi_list_init(&c->work);
	int n = 0;
	for (; !rpwi_list_empty(&now); n++)
		todo_do(RPWI_CONTAINER_OF(now.next, rpw_endpoint, work));
	return n;
}

/* What callbacks have closed. */
static void closes_do(rpw_context *c)
{
	c->closes = false;
	RPWI_LIST_EACH_SAFE (rpw_endpoint, ep, next, &c->work, work)
		if (ep->todo & TODO_CLOSE)
			ep_free(ep);
}

static int progress_control(rpw_context *c)
{
	uint64_t now = rpwi_now_ns();
	int n = 0;
	if (now >= c->boot_next_ns || c->connecting) {
		n = (int)boot_progress(c->boot);
		c->boot_next_ns = now + BOOT_EVERY_NS;
	}
	if (now >= c->timers_next_ns)
		connect_timers(c, now);
	return n;
}

int rpw_context_progress(rpw_context *c)
{
	if (RPWI_UNLIKELY(!c || c->in_progress))
		return c ? owner_inside(c, "rpw_context_progress", "it is under way already")
			 : msg_wrong("rpw_context_progress", "the context is NULL");
	if (RPWI_UNLIKELY(!msg_is_ours(c)))
		return msg_inherited(c);
	c->in_progress = true;
	c->mover = pthread_self();
	int n = 0;
	/* also those without endpoints now and then: a closed endpoint may still have something to
	 * say, or to hear */
	bool all = (c->polls & 7) == 7;
	for (int i = 0; i < c->tn; i++)
		if (c->t[i].endpoints || (all && c->t[i].tran))
			n += (int)c->t[i].ops->progress(c->t[i].tran);
	if (RPWI_UNLIKELY(!rpwi_list_empty(&c->pipelines)))
		n += pipeline_progress(c);
	/* The control path is looked after more often while nothing else happens. */
	if (RPWI_UNLIKELY(!(++c->polls & (n ? 63 : 7)) || c->connecting))
		n += progress_control(c);
	if (RPWI_UNLIKELY(!rpwi_list_empty(&c->links.late)) && (!n || !(c->polls & 15)))
		n += link_late_acks(&c->links);
	if (RPWI_UNLIKELY(!rpwi_list_empty(&c->work)))
		n += work_do(c);
	if (RPWI_UNLIKELY(!rpwi_list_empty(&c->callbacks)))
		n += msg_deliver_callbacks(c);
	if (RPWI_UNLIKELY(c->closes))
		closes_do(c);
	c->in_progress = false;
	if (RPWI_UNLIKELY(rpwi_turn_ends(&c->turn, n > 0)))
		rpwi_turn_give(&c->turn);
	return n;
}

int rpw_context_fd(rpw_context *c)
{
	if (!c)
		return msg_wrong("rpw_context_fd", "the context is NULL");
	return msg_is_ours(c) ? c->epfd : msg_inherited(c);
}

static void timer_set(rpw_context *c, uint64_t deadline_ns)
{
	if (deadline_ns == c->timer_set_ns && deadline_ns == RPWI_NEVER)
		return;
	c->timer_set_ns = deadline_ns;
	struct itimerspec at = {0};
	if (deadline_ns != RPWI_NEVER) {
		deadline_ns = RPWI_MAX(deadline_ns, 1);
		at.it_value.tv_sec = (time_t)(deadline_ns / RPWI_NS_PER_S);
		at.it_value.tv_nsec = (long)(deadline_ns % RPWI_NS_PER_S);
	}
	timerfd_settime(c->timerfd, TFD_TIMER_ABSTIME, &at, NULL);
}

void rpw_context_wake(rpw_context *c)
{
	if (!c || !msg_is_ours_anywhere(c))
		return;
	int saved = errno;
	/* The flag first: arm sets the timer, and then looks at the flag. So either that sees it,
	 * or this sets the timer last. */
	c->woken = true;
	const struct itimerspec now = {.it_value.tv_nsec = 1};
	timerfd_settime(c->timerfd, TFD_TIMER_ABSTIME, &now, NULL);
	errno = saved;
}

/* Since it was asked last. */
static bool woken(rpw_context *c)
{
	if (RPWI_LIKELY(!atomic_load_explicit(&c->woken, memory_order_relaxed)))
		return false;
	c->woken = false;
	c->timer_set_ns = 0; /* whatever it is set to */
	return true;
}

static int arm(rpw_context *c)
{
	if (!rpwi_list_empty(&c->work) || !rpwi_list_empty(&c->callbacks) ||
		!rpwi_list_empty(&c->links.late) || pipeline_copying(c))
		return RPW_IN_PROGRESS;
	uint64_t deadline = RPWI_MIN(boot_deadline(c->boot), c->timers_next_ns);
	for (int i = 0; i < c->tn; i++) {
		if (!c->t[i].tran)
			continue;
		int fd = -1, rc = c->t[i].ops->arm(c->t[i].tran, &fd, &deadline);
		if (rc > 0)
			return RPW_IN_PROGRESS;
		if (rc < 0)
			return rc;
		if (fd >= 0 && fd != c->epfd && c->t[i].fd != fd) {
			if (set_add(c, fd) && errno != EEXIST)
				return rpwi_fail(RPW_ERR_SYSTEM,
					"transport %s: its descriptor cannot be waited for: %s",
					c->t[i].ops->name, strerror(errno));
			c->t[i].fd = fd;
		}
	}
	timer_set(c, deadline);
	if (c->woken)
		return RPW_IN_PROGRESS;
	c->boot_next_ns = 0; /* what wakes us may be the control path */
	c->polls = 63;
	return 0;
}

int rpw_context_arm(rpw_context *c)
{
	if (!c)
		return rpwi_fail(RPW_ERR_INVALID, "rpw_context_arm: the context is NULL");
	if (RPWI_UNLIKELY(!msg_is_ours(c)))
		return msg_inherited(c);
	return woken(c) ? RPW_IN_PROGRESS : arm(c);
}

/* ---- waiting ---- */

static bool all_done(rpw_request **r, size_t *n)
{
	while (*n && (!r[*n - 1] || r[*n - 1]->complete))
		--*n;
	return !*n;
}

/* Sleep until there is something to do, at most until the deadline. */
static int doze(rpw_context *c, uint64_t now, uint64_t deadline)
{
	int rc = arm(c);
	if (rc)
		return rc < 0 ? rc : 0;
	int ms = deadline == RPWI_NEVER
			 ? -1
			 : (int)RPWI_MIN((deadline - now + RPWI_NS_PER_MS - 1) / RPWI_NS_PER_MS,
				   1u << 30);
	struct epoll_event ev;
	if (epoll_wait(c->epfd, &ev, 1, ms) < 0 && errno != EINTR)
		return rpwi_fail(RPW_ERR_SYSTEM, "waiting failed: %s", strerror(errno));
	return 0;
}

static int still_under_way(const rpw_request *r, int timeout_ms)
{
	char trouble[400] = "";
	if (r->kind == REQ_CONNECT)
		connect_trouble(r->ep, trouble, sizeof(trouble));
	return rpwi_fail(RPW_ERR_EXPIRED,
		"not done within %d ms; the operation is still under way%s%s", timeout_ms,
		*trouble ? "; so far: " : "", trouble);
}

static int wait_for(rpw_context *c, rpw_request **r, size_t n, int timeout_ms)
{
	if (RPWI_UNLIKELY(!msg_is_ours(c)))
		return msg_inherited(c);
	if (c->in_progress)
		return owner_inside(c, "waiting", "return from it first");
	uint64_t now = rpwi_now_ns(),
		 deadline =
			 timeout_ms < 0 ? RPWI_NEVER : now + (uint64_t)timeout_ms * RPWI_NS_PER_MS,
		 spin_until = now + SPIN_NS;
	for (unsigned polls = 0; !all_done(r, &n);) {
		if (rpw_context_progress(c) > 0) {
			if (!(++polls & 31)) {
				now = rpwi_now_ns();
				spin_until = now + SPIN_NS;
			}
			if ((timeout_ms < 0 || now < deadline || (polls & 31)) &&
				!atomic_load_explicit(&c->woken, memory_order_relaxed))
				continue;
		} else if (++polls & 15)
			continue;
		now = rpwi_now_ns();
		if (woken(c))
			return all_done(r, &n) ? RPW_OK
					       : rpwi_fail(RPW_ERR_EXPIRED,
							 "rpw_context_wake was called; the "
							 "operation is still under way");
		if (now >= deadline)
			return all_done(r, &n) ? RPW_OK : still_under_way(r[n - 1], timeout_ms);
		if (now < spin_until)
			continue;
		int rc = doze(c, now, deadline);
		if (rc)
			return rc;
		spin_until = rpwi_now_ns() + SPIN_NS;
	}
	return RPW_OK;
}

void context_wait_begin(struct context_wait *w, int timeout_ms)
{
	uint64_t now = rpwi_now_ns();
	w->deadline_ns = timeout_ms < 0 ? RPWI_NEVER : now + (uint64_t)timeout_ms * RPWI_NS_PER_MS;
	w->spin_until_ns = now + SPIN_NS;
}

int context_wait_step(rpw_context *c, struct context_wait *w, uint64_t look_ns)
{
	if (c->in_progress)
		return owner_inside(c, "waiting", "return from it first");
	uint64_t now = rpwi_now_ns();
	bool moved = rpw_context_progress(c) > 0;
	if (woken(c))
		return rpwi_fail(RPW_ERR_EXPIRED, "rpw_context_wake was called");
	if (now >= w->deadline_ns)
		return RPWI_LATER;
	if (moved)
		w->spin_until_ns = now + SPIN_NS;
	return now < w->spin_until_ns ? 0 : doze(c, now, RPWI_MIN(w->deadline_ns, now + look_ns));
}

int rpw_request_wait(rpw_request *r, int timeout_ms, rpw_completion *done)
{
	if (!r)
		return rpwi_fail(RPW_ERR_INVALID, "rpw_request_wait: the request is NULL (a call "
						  "that gave RPW_OK was complete already)");
	if (!r->complete) {
		int rc = done ? req_completion_check(done, "rpw_request_wait") : RPW_OK;
		rc = rc ? rc : wait_for(r->c, &r, 1, timeout_ms);
		if (rc)
			return rc;
	}
	return rpw_request_test(r, done);
}

int rpw_finish(int posted, rpw_request **r, int timeout_ms, rpw_completion *done)
{
	if (posted < 0)
		return posted;
	if (!r)
		return rpwi_fail(RPW_ERR_INVALID,
			"rpw_finish: where the request is must not be NULL: give "
			"the call that posts, and this one, the same &request");
	if (done) {
		int rc = req_completion_check(done, "rpw_finish");
		if (rc)
			return rc;
	}
	if (!*r) {
		if (done)
			completion_give(done, &(rpw_completion){.status = RPW_OK});
		return RPW_OK;
	}
	int rc = rpw_request_wait(*r, timeout_ms, done);
	if ((*r)->complete) {
		rpw_request_destroy(*r);
		*r = NULL;
	}
	return rc;
}

int rpw_request_wait_all(rpw_context *c, rpw_request **r, size_t n, int timeout_ms)
{
	if (!c || (n && !r))
		return msg_wrong("rpw_request_wait_all",
			c ? "the array of requests is NULL" : "the context is NULL");
	int rc = wait_for(c, r, n, timeout_ms);
	for (size_t i = 0; !rc && i < n; i++)
		rc = r[i] ? rpw_request_test(r[i], NULL) : RPW_OK;
	return rc;
}

int rpw_context_statistics(rpw_context *c, rpw_statistics *s)
{
	if (!c || !s)
		return msg_wrong("rpw_context_statistics",
			c ? "the rpw_statistics to fill is NULL" : "the context is NULL");
	if (s->size < sizeof(size_t))
		return rpwi_fail(RPW_ERR_INVALID,
			"rpw_statistics.size is %zu: set it to sizeof(rpw_statistics)", s->size);
	rpw_statistics now = c->stat;
	now.size = s->size;
	now.endpoints = c->links.links;
	now.waited_for_room = c->links.waited_for_room;
	now.strangers_refused = boot_strangers(c->boot);
	now.unsent = !rpwi_list_empty(&c->links.late);
	for (int i = 0; i < c->tn; i++)
		now.unsent +=
			c->t[i].tran && c->t[i].ops->unsent && c->t[i].ops->unsent(c->t[i].tran);
	memcpy(s, &now, RPWI_MIN(s->size, sizeof(now)));
	return RPW_OK;
}
