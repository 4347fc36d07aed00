/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp.c - tran_tcp: frames and remote memory over TCP, between any two processes that can reach
 * each other. The table of operations, progress, and sleeping. It never looks into what a stream
 * carries. It takes no lock: a transport is used by one thread at a time.
 *
 * Progress reads the few streams that had something to say lately ("hot") straight away: for them
 * it costs one recv and no epoll. All others are asked about by epoll, when nothing is hot each
 * time, else every so many rounds.
 */
#include "tran/tcp/tcp_tx.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/born.h"
#include "tls/tls.h"

enum {
	EVENTS_MAX = 64,
	POLLS_BETWEEN_EPOLLS = 64,
	/* so often read while hot: out of the epoll set, whose bookkeeping costs 0.2 us a packet,
	 * until the program sleeps */
	UNWATCH_READS = 32,
	IDLE_POLLS_MAX = 4096, /* a hot stream that was asked so often in vain has cooled down */
	STREAMS_DEFAULT = 2,   /* one for frames, one for bulk data */
};

/* ---- opening ---- */

static int tcp_usable(
	const struct tran_facts *own, const struct tran_facts *peer, char *why, size_t why_len)
{
	if (peer && !strstr(peer->transports, "tcp")) {
		snprintf(why, why_len, "the peer offers %s, not tcp",
			peer->transports[0] ? peer->transports : "nothing");
		return RPW_ERR_NOT_SUPPORTED;
	}
	return 0;
}

static unsigned streams_wanted(void)
{
	const char *e = getenv("ROPEWAY_TCP_STREAMS");
	char *end;
	long n = e ? strtol(e, &end, 10) : 0;
	if (!e || !*e)
		return STREAMS_DEFAULT;
	if (!*end && n >= 1 && n <= TCP_STREAMS_MAX)
		return (unsigned)n;
	rpwi_warn("ROPEWAY_TCP_STREAMS=%s is not a number from 1 to %d: %d are used", e,
		TCP_STREAMS_MAX, STREAMS_DEFAULT);
	return STREAMS_DEFAULT;
}

static void set_close(struct tcp *t)
{
	if (!t->base.up->set && t->epoll >= 0)
		close(t->epoll);
}

static int tcp_open(const struct tran_up *up, const struct tran_facts *own, struct tran **out)
{
	struct tcp *t = calloc(1, sizeof *t);
	if (!t)
		return rpwi_fail(RPW_ERR_NO_MEMORY, "tcp: no memory for the transport");
	t->base = (struct tran){.ops = &tran_tcp, .up = up, .polled = own->polled};
	t->polled_read_max = tcp_polled_read_max();
	t->own = *own;
	t->pid = getpid();
	t->born = rpwi_born();
	t->streams_max = streams_wanted();
	t->deadline_ns = t->accept_again_ns = RPWI_NEVER;
	struct rpwi_list *lists[] = {&t->bundles, &t->sending, &t->strangers, &t->lingering,
		&t->starting, &t->opening, &t->failing, &t->failing_bundles, &t->dead_streams,
		&t->dead_bundles, &t->unread, &t->moved, &t->spare};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		rpwi_list_init(lists[i]);
	t->epoll = up->set ? *up->set : epoll_create1(EPOLL_CLOEXEC);
	int err = t->epoll < 0 ? rpwi_fail_errno(errno, "tcp: no descriptor to wait on")
			       : emulate_open(&t->base);
	if (err) {
		set_close(t);
		free(t);
		return err;
	}
	*out = &t->base;
	return 0;
}

static void tcp_close(struct tran *tran)
{
	struct tcp *t = tcp_of(tran);
	if (!rpwi_is_ours(t->born))
		t->in_progress = 0; /* whatever the parent was in the middle of */
	tcp_bundle_close_all(t);    /* those that nobody was attached to yet */
	struct rpwi_list *lists[] = {&t->strangers, &t->lingering};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		while (!rpwi_list_empty(lists[i]))
			tcp_stream_close(RPWI_CONTAINER_OF(
				rpwi_list_pop(lists[i]), struct tcp_stream, link));
	tcp_listen_end(t);
	set_close(t);
	if (!rpwi_is_ours(t->born))
		tcp_ep_free_all(t);
	while (t->buffer_count)
		munmap(t->buffer[--t->buffer_count], TCP_BUFFER_LEN);
	tls_domain_free(t->tls);
	if (t->record)
		explicit_bzero(t->record, TLS_RECORD_MAX);
	free(t->record);
	while (t->spare_count--)
		free(RPWI_CONTAINER_OF(rpwi_list_pop(&t->spare), struct tran_bulk, link));
	rpwi_slots_fini(&t->eps);
	emulate_close(tran);
	free(t);
}

/* ---- progress ---- */

static unsigned on_event(struct tcp_stream *s, uint32_t events)
{
	unsigned n = 1;
	switch (s->state) {
	case TCP_CONNECTING:
		if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
			tcp_bundle_connected(s);
		break;
	case TCP_SHAKING:
		tcp_bundle_shaken(s);
		break;
	case TCP_STRANGER:
		tcp_listen_heard(s);
		break;
	case TCP_GREETED:
		tcp_bundle_greeted(s);
		break;
	case TCP_UP:
		if (s->wants_out && (events & EPOLLOUT)) {
			tcp_stream_watch_out(s, false);
			s->blocked = false;
		}
		if (!(events & (EPOLLIN | EPOLLERR | EPOLLHUP)) || s->hot)
			return 0; /* writing is tried in any case; a hot one has been read */
		n = tcp_stream_read(s);
		if (s->state == TCP_UP && !s->stalled)
			tcp_hot_add(s);
		break;
	case TCP_LINGERING:
		if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
			tcp_stream_linger_read(s);
		if (s->state == TCP_LINGERING && (events & EPOLLOUT))
			tcp_stream_watch_out(s, false);
		break;
	case TCP_DEAD: /* closed by an up-call a moment ago */
		return 0;
	}
	return n;
}

static unsigned ask_epoll(struct tcp *t)
{
	struct epoll_event e[EVENTS_MAX];
	unsigned things = 0;
	int n = epoll_wait(t->epoll, e, EVENTS_MAX, 0);
	for (int i = 0; i < n; i++) {
		if (!(e[i].data.u64 & TRAN_MARK))
			continue; /* of the control path, which looks by itself */
		void *whose = (void *)(uintptr_t)(e[i].data.u64 & ~(uint64_t)TRAN_MARK);
		const struct tcp_listener *l = whose;
		if (l >= t->listener && l < t->listener + TCP_LISTENERS_MAX) {
			tcp_listen_accept(t, l);
			things++;
		} else {
			things += on_event(whose, e[i].events);
		}
	}
	return things;
}

static unsigned read_hot(struct tcp *t)
{
	struct tcp_stream *hot[TCP_HOT_MAX];
	unsigned things = 0, count = t->hot_count;
	memcpy(hot, t->hot, sizeof hot);
	for (unsigned i = 0; i < count; i++) {
		if (hot[i]->state != TCP_UP)
			continue;
		rpwi_list_del(&hot[i]->unread);
		unsigned n = tcp_stream_read(hot[i]);
		things += n;
		if (hot[i]->state != TCP_UP)
			continue;
		if (hot[i]->idle_polls > IDLE_POLLS_MAX && !hot[i]->wait_until_ns)
			tcp_hot_del(hot[i]);
		else if (n && ++hot[i]->hot_reads == UNWATCH_READS)
			tcp_stream_watch(hot[i], false);
	}
	return things;
}

/* TLS has read ahead of these. */
static unsigned read_unread(struct tcp *t)
{
	struct rpwi_list todo;
	unsigned things = 0;
	rpwi_list_init(&todo);
	while (!rpwi_list_empty(&t->unread)) {
		struct rpwi_list *l = t->unread.next;
		rpwi_list_del(l);
		rpwi_list_add_tail(&todo, l);
	}
	while (!rpwi_list_empty(&todo)) { /* an up-call may close any of them */
		struct tcp_stream *s =
			RPWI_CONTAINER_OF(rpwi_list_pop(&todo), struct tcp_stream, unread);
		if (s->hot) /* it has been read */
			rpwi_list_add_tail(&t->unread, &s->unread);
		else if (s->state == TCP_UP)
			things += tcp_stream_read(s);
		else if (s->state == TCP_GREETED)
			tcp_bundle_greeted(s);
	}
	return things;
}

static void send_waiting(struct tcp *t, bool now)
{
	struct rpwi_list todo;
	rpwi_list_init(&todo);
	while (!rpwi_list_empty(&t->sending)) {
		/* an up-call may close any of them: the lists are looked at anew each time */
		struct rpwi_list *l = t->sending.next;
		rpwi_list_del(l);
		rpwi_list_add_tail(&todo, l);
	}
	while (!rpwi_list_empty(&todo)) {
		struct tcp_stream *s = RPWI_CONTAINER_OF(todo.next, struct tcp_stream, sending);
		rpwi_list_del(&s->sending);
		if (tcp_stream_flush(s, now) && rpwi_list_empty(&s->sending))
			rpwi_list_add_tail(&t->sending, &s->sending);
	}
}

static void on_time(struct tcp *t)
{
	uint64_t now = rpwi_now_ns();
	if (now < t->deadline_ns)
		return;
	t->deadline_ns = RPWI_NEVER;
	tcp_listen_time(t, now);
	tcp_bundle_time(t, now);
	tcp_ep_time(t, now);
	tcp_stream_time(t, now);
}

static void bury(struct tcp *t)
{
	while (!rpwi_list_empty(&t->dead_streams)) {
		free(RPWI_CONTAINER_OF(rpwi_list_pop(&t->dead_streams), struct tcp_stream, link));
	}
	while (!rpwi_list_empty(&t->dead_bundles)) {
		free(RPWI_CONTAINER_OF(rpwi_list_pop(&t->dead_bundles), struct tcp_bundle, link));
	}
}

/* Is it time to ask about all sockets? Where there is no endpoint at all, a context that lives by
 * another transport must not pay for this one. */
static bool epoll_is_due(struct tcp *t)
{
	bool nobody =
		!t->eps.used && rpwi_list_empty(&t->strangers) && rpwi_list_empty(&t->lingering);
	if ((!t->hot_count && !nobody) || t->others_talk)
		return true;
	return ++t->polls >= POLLS_BETWEEN_EPOLLS;
}

static unsigned tcp_progress(struct tran *tran)
{
	struct tcp *t = tcp_of(tran);
	t->in_progress++;
	unsigned things = read_hot(t);
	if (!rpwi_list_empty(&t->unread))
		things += read_unread(t);
	if (epoll_is_due(t)) {
		t->polls = 0;
		unsigned others = ask_epoll(t);
		t->others_talk = others > 0;
		things += others;
		if (t->deadline_ns != RPWI_NEVER)
			on_time(t);
	}
	if (!rpwi_list_empty(&t->sending))
		send_waiting(t, false);
	if (!rpwi_list_empty(&t->moved))
		tcp_bulk_tell(t);
	t->unsent = !rpwi_list_empty(&t->sending);
	if (!rpwi_list_empty(&t->failing_bundles))
		tcp_ep_report_bundles(t);
	if (!rpwi_list_empty(&t->failing))
		tcp_ep_report(t);
	t->in_progress--;
	bury(t);
	return things;
}

static int tcp_arm(struct tran *tran, int *fd, uint64_t *deadline_ns)
{
	struct tcp *t = tcp_of(tran);
	RPWI_LIST_EACH_SAFE (struct tcp_stream, s, next, &t->sending, sending) {
		if (s->state == TCP_LINGERING) {
			if (tcp_stream_flush(s, true))
				tcp_stream_watch_out(s, true);
			else
				rpwi_list_del(&s->sending);
			continue;
		}
		tcp_stream_send(s);
		if (s->send_errno || (tcp_stream_owes_room(s) && !s->blocked))
			return 1; /* progress has something to tell */
		if (s->blocked)
			tcp_stream_watch_out(s, true);
		else
			rpwi_list_del(&s->sending);
	}
	if (!rpwi_list_empty(&t->failing) || !rpwi_list_empty(&t->failing_bundles) ||
		!rpwi_list_empty(&t->unread) || !rpwi_list_empty(&t->moved))
		return 1;
	for (unsigned i = 0; i < t->hot_count; i++) {
		if (t->hot[i]->wait_until_ns) { /* in vain: nobody polls any more */
			t->hot[i]->wait_until_ns = 1;
			return 1;
		}
		t->hot[i]->hot_reads = 0;
		tcp_stream_watch(t->hot[i], true);
		if (t->hot[i]->unwatched)
			return 1;
	}
	t->polls = POLLS_BETWEEN_EPOLLS; /* who has slept asks at once */
	*fd = t->epoll;
	*deadline_ns = RPWI_MIN(*deadline_ns, t->deadline_ns);
	return 0;
}

static bool tcp_unsent(const struct tran *t) { return ((const struct tcp *)t)->unsent; }

const struct tran_ops tran_tcp = {
	.name = "tcp",
	.caps = TRAN_CAN_BREAK | TRAN_SEALS | TRAN_INHERITED,
	.usable = tcp_usable,
	.open = tcp_open,
	.close = tcp_close,
	.progress = tcp_progress,
	.arm = tcp_arm,
	.ep_make = tcp_ep_make,
	.ep_start = tcp_ep_start,
	.ep_close = tcp_ep_close,
	.eager = tcp_eager,
	.send = tcp_send,
	.gather = tcp_gather,
	.unsent = tcp_unsent,
	.mem = &emulated_mem,
	.rma = &emulated_rma,
	.bulk = &tcp_bulk_ops,
	.breach = tcp_ep_breach,
};
