/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_loop.c - one loop over everything that can happen: events of rdma_cm, completions of each
 * connection, deadlines, signals.
 *
 * Nothing in it blocks but poll(): the event channel and the completion channels are descriptors,
 * and all are non-blocking. So a peer that is slow, silent or hostile costs the others nothing, and
 * no connection needs a thread.
 *
 * 一个循环处理一切：rdma_cm 事件、每个连接的完成事件、期限和信号。除 poll() 外没有任何阻塞：
 * 事件通道和完成通道都是非阻塞的描述符， 因此缓慢、沉默或有敌意的对端不影响其他连接，
 * 也无需为每个连接创建线程。
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

/* ---- start and stop / 开始与停止 ---- */

static volatile sig_atomic_t asked_to_end;

static void on_signal(int number)
{
	(void)number;
	asked_to_end = 1;
}

/* The signals come only while ppoll() waits, so none is lost between a look at the flag and the
 * wait. / 信号只在 ppoll() 等待时到达。 */
static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	sigset_t blocked;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGINT);
	sigaddset(&blocked, SIGTERM);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

int loop_start(struct loop *loop, const struct peer_options *options)
{
	*loop = (struct loop){.options = options};
	loop->channel = rdma_create_event_channel();
	if (!loop->channel)
		return fail(_("this machine has no rdma_cm (%s): start this program with \"ropeway "
			      "run --\", or as root load the kernel's (modprobe rdma_ucm)"),
			strerror(errno));
	if (fcntl(loop->channel->fd, F_SETFL, fcntl(loop->channel->fd, F_GETFL) | O_NONBLOCK))
		return fail(
			_("the event channel cannot be made non-blocking (%s)"), strerror(errno));
	catch_signals();
	return options->server ? server_start(loop) : client_start(loop);
}

struct peer *loop_add(struct loop *loop, struct rdma_cm_id *id)
{
	struct peer *p = peer_new(loop->options, id, loop->made + 1);

	if (!p) {
		fail(_("there is no memory for one more connection"));
		return NULL;
	}
	p->phase = loop->options->server ? PHASE_ACCEPT : PHASE_ADDRESS;
	p->next = loop->peers;
	loop->peers = p;
	loop->made++;
	return p;
}

static void free_those_over(struct loop *loop)
{
	struct peer **at = &loop->peers, *p;

	while ((p = *at)) {
		if (p->phase != PHASE_OVER) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		loop->over++;
		loop->failed += p->failed;
		peer_free(p);
	}
}

void loop_stop(struct loop *loop)
{
	for (struct peer *p = loop->peers; p; p = p->next)
		p->phase = PHASE_OVER;
	free_those_over(loop);
	if (loop->listener)
		rdma_destroy_id(loop->listener);
	if (loop->channel)
		rdma_destroy_event_channel(loop->channel);
	*loop = (struct loop){0};
}

/* ---- events of rdma_cm / rdma_cm 事件 ---- */

static void take_event(struct loop *loop, const struct cm_event *event)
{
	switch (event->type) {
	case RDMA_CM_EVENT_DISCONNECTED:
		peer_disconnected(event->peer);
		break;
	/* the queue pair number may be used again: nothing to do / 队列对编号可以再次使用 */
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE: /* a bonded interface changed over / 绑定接口发生切换 */
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		if (event->peer)
			peer_abort(event->peer,
				_("the device was removed (RDMA_CM_EVENT_DEVICE_REMOVAL)"));
		else
			loop->stopping = true;
		break;
	default:
		if (loop->listener)
			server_event(loop, event);
		else
			client_event(loop, event);
	}
}

static void copy_event(struct cm_event *copy, const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *param = &event->param.conn;
	bool has_param = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ||
			 event->event == RDMA_CM_EVENT_ESTABLISHED ||
			 event->event == RDMA_CM_EVENT_REJECTED;

	*copy = (struct cm_event){.type = event->event, .status = event->status, .id = event->id};
	/* of a request it is still the listener's / 请求的 context 还是监听者的 */
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		copy->peer = event->id->context;
	if (!has_param)
		return;
	copy->responder_resources = param->responder_resources;
	copy->initiator_depth = param->initiator_depth;
	if (!param->private_data)
		return;
	copy->private_bytes = param->private_data_len < WIRE_HELLO_BYTES ? param->private_data_len
									 : WIRE_HELLO_BYTES;
	memcpy(copy->private_data, param->private_data, copy->private_bytes);
}

/* An event is acknowledged before it is acted on: rdma_destroy_id waits for those of its connection
 * (rdma_ack_cm_event(3)). 先确认事件再处理：rdma_destroy_id 会等待该连接的所有事件被确认。 */
static void take_events(struct loop *loop)
{
	struct rdma_cm_event *event;
	struct cm_event copy;

	while (!rdma_get_cm_event(loop->channel, &event)) {
		copy_event(&copy, event);
		rdma_ack_cm_event(event);
		/* After the end of a connection its last event may still come. /
		 * 连接结束之后可能还有最后的事件。 */
		if (!copy.peer || copy.peer->phase != PHASE_OVER)
			take_event(loop, &copy);
	}
	if (errno != EAGAIN && errno != EINTR) {
		fail(_("the event channel cannot be read (%s)"), strerror(errno));
		loop->stopping = true;
	}
}

/* ---- completions / 完成事件 ---- */

/* The order matters: ask for the next note first, look into the queue then. A completion between
 * the two is seen either way; the other way round it would be lost until the next
 * (ibv_get_cq_event(3)). / 次序很重要：先请求下一次通知，再取完成事件；反过来会漏掉其间的事件。 */
static void take_notes(struct peer *p)
{
	struct ibv_cq *cq;
	void *context;

	while (!ibv_get_cq_event(p->channel, &cq, &context)) {
		ibv_ack_cq_events(cq, 1);
		if (ibv_req_notify_cq(cq, 0))
			peer_abort(p,
				_("its completion queue cannot be armed: the device is at fault"));
	}
	peer_completions(p);
}

/* ---- the loop / 循环 ---- */

struct watch {
	struct pollfd *fds;
	/* fds[i] is the completion channel of peers[i]; fds[0] the event channel / fds[0]
	 * 是事件通道 */
	struct peer **peers;
	nfds_t count, room;
};

static int watch_more(struct watch *w)
{
	nfds_t room = w->room ? w->room * 2 : 16;
	struct pollfd *fds = realloc(w->fds, room * sizeof(*fds));
	struct peer **peers;

	if (fds)
		w->fds = fds;
	peers = realloc(w->peers, room * sizeof(*peers));
	if (peers)
		w->peers = peers;
	if (!fds || !peers) {
		fail(_("there is no memory for one more connection"));
		return -1;
	}
	w->room = room;
	return 0;
}

static int watch_add(struct watch *w, int fd, struct peer *p)
{
	if (w->count == w->room && watch_more(w))
		return -1;
	w->fds[w->count] = (struct pollfd){.fd = fd, .events = POLLIN};
	w->peers[w->count++] = p;
	return 0;
}

static int watch_all(struct watch *w, const struct loop *loop)
{
	w->count = 0;
	if (watch_add(w, loop->channel->fd, NULL))
		return -1;
	for (struct peer *p = loop->peers; p; p = p->next)
		if (p->cq && watch_add(w, p->channel->fd, p))
			return -1;
	return 0;
}

/* Milliseconds until the first deadline; a minute where there is none. / 距最近的期限的毫秒数。 */
static int time_left_ms(const struct loop *loop)
{
	uint64_t now = now_ms(), first = now + 60000;

	for (const struct peer *p = loop->peers; p; p = p->next)
		if (p->deadline_ms < first)
			first = p->deadline_ms;
	return first > now ? (int)(first - now) : 0;
}

static void look_at_deadlines(struct loop *loop)
{
	uint64_t now = now_ms();

	for (struct peer *p = loop->peers; p; p = p->next)
		if (p->phase != PHASE_OVER && p->deadline_ms <= now)
			peer_late(p);
}

static void stop_if_asked(struct loop *loop)
{
	if (!asked_to_end)
		return;
	asked_to_end = 0;
	if (loop->stopping) { /* asked twice: at once / 第二次要求：立即结束 */
		for (struct peer *p = loop->peers; p; p = p->next)
			p->phase = PHASE_OVER;
		return;
	}
	loop->stopping = loop->asked = true;
	/* whoever is about to end does so by itself / 正在结束的连接会自行结束 */
	for (struct peer *p = loop->peers; p; p = p->next)
		if (p->phase != PHASE_END)
			peer_abort(p, _("is left alone: this program was asked to end"));
}

static bool nothing_left(const struct loop *loop)
{
	if (loop->peers)
		return false;
	return !loop->listener || loop->stopping ||
	       (loop->options->count && loop->over >= loop->options->count);
}

static int turn(struct loop *loop, struct watch *w)
{
	struct timespec time;
	sigset_t none;
	int ms = time_left_ms(loop);

	if (watch_all(w, loop))
		return -1;
	sigemptyset(&none);
	time = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
	if (ppoll(w->fds, w->count, &time, &none) < 0 && errno != EINTR)
		return fail(_("poll failed (%s)"), strerror(errno));
	/* Completions before events: what a peer sent before it disconnected comes first. /
	 * 先处理完成事件再处理 CM 事件。 */
	for (nfds_t i = 1; i < w->count; i++)
		if (w->fds[i].revents)
			take_notes(w->peers[i]);
	take_events(loop);
	stop_if_asked(loop);
	look_at_deadlines(loop);
	free_those_over(loop);
	return 0;
}

int loop_run(struct loop *loop)
{
	struct watch w = {0};
	int rc = 0;

	while (!rc && !nothing_left(loop))
		rc = turn(loop, &w);
	free(w.fds);
	free(w.peers);
	/* A server that was asked to end has done its work, whatever became of single clients. /
	 * 应要求结束的服务器算成功。 */
	return rc || (loop->failed && !(loop->listener && loop->asked)) ? -1 : 0;
}
