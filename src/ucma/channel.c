/* SPDX-License-Identifier: BSD-3-Clause */
/* channel.c - event channels: descriptors, the queue of events behind each, and waiting for one. */
#include "device/fact.h"
#include "fault/fault.h"
#include "base/lock.h"
#include "ucma/ucma_priv.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const cm_event_name[EV_COUNT] = {
	[EV_ADDR_RESOLVED] = "ADDR_RESOLVED",
	[EV_ADDR_ERROR] = "ADDR_ERROR",
	[EV_ROUTE_RESOLVED] = "ROUTE_RESOLVED",
	[EV_ROUTE_ERROR] = "ROUTE_ERROR",
	[EV_CONNECT_REQUEST] = "CONNECT_REQUEST",
	[EV_CONNECT_RESPONSE] = "CONNECT_RESPONSE",
	[EV_CONNECT_ERROR] = "CONNECT_ERROR",
	[EV_UNREACHABLE] = "UNREACHABLE",
	[EV_REJECTED] = "REJECTED",
	[EV_ESTABLISHED] = "ESTABLISHED",
	[EV_DISCONNECTED] = "DISCONNECTED",
	[EV_DEVICE_REMOVAL] = "DEVICE_REMOVAL",
	[EV_MULTICAST_JOIN] = "MULTICAST_JOIN",
	[EV_MULTICAST_ERROR] = "MULTICAST_ERROR",
	[EV_ADDR_CHANGE] = "ADDR_CHANGE",
	[EV_TIMEWAIT_EXIT] = "TIMEWAIT_EXIT",
	[EV_ADDRINFO_RESOLVED] = "ADDRINFO_RESOLVED",
	[EV_ADDRINFO_ERROR] = "ADDRINFO_ERROR",
	[EV_USER] = "USER",
	[EV_INTERNAL] = "INTERNAL",
};

const char *rpwi_ucma_event_name(unsigned type)
{
	return type < EV_COUNT ? cm_event_name[type] : "?";
}

/* ---- descriptors ---- */

struct channel *_Atomic rpwi_ucma_channels[RPWI_UCMA_FDS];

/* Whose a descriptor is. Its number says nothing: after close_range, dup2, a raw system call or a
 * child's closes it may be any other file's. A socket's cookie is never given twice; where the
 * kernel has none (before 4.12), and for what is no socket, the inode and its device, the latter
 * never 0, which keeps the two kinds apart. */
static struct channel_fd identify(int fd)
{
	struct channel_fd f = {.fd = fd};
	socklen_t len = sizeof(f.id[0]);
	struct stat st;
	if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &f.id[0], &len) &&
		!fstatat(fd, "", &st, AT_EMPTY_PATH)) {
		/* fstat is hooked, and would ask us */
		f.id[0] = st.st_ino;
		f.id[1] = st.st_dev;
	}
	return f;
}

static bool still(const struct channel_fd *was, int fd)
{
	struct channel_fd is = identify(fd);
	return is.id[0] == was->id[0] && is.id[1] == was->id[1];
}

static void close_if_still(const struct channel_fd *f)
{
	if (still(f, f->fd))
		close(f->fd);
}

struct channel *channel_of(int fd)
{
	return fd >= 0 && fd < RPWI_UCMA_FDS
		       ? atomic_load_explicit(&rpwi_ucma_channels[fd], memory_order_acquire)
		       : NULL;
}

/* Who uses a channel: a lock of its own, held for a few instructions only. Between the end of one
 * command and this count of the next a thread has nothing that keeps its channel open, and the
 * HCA's lock may be busy for long: a program that closes the channel then (rping's main thread)
 * would make its own other thread fail. */
/* A handler that interrupts this thread there finds it taken, and needs none. */
static bool users_lock(void)
{
	if (rpwi_lock_is_mine(RPWI_LOCK_CHANNELS))
		return false;
	rpwi_lock(RPWI_LOCK_CHANNELS);
	return true;
}
static void users_unlock(bool taken)
{
	if (taken)
		rpwi_unlock(RPWI_LOCK_CHANNELS);
}

static struct channel *channel_hold(int fd)
{
	bool taken = users_lock();
	struct channel *ch = channel_of(fd);
	if (ch)
		ch->users++;
	users_unlock(taken);
	return ch;
}

/* A thread may be inside GET_EVENT. In the kernel it holds the file then, and goes on waiting
 * although the descriptor is gone (rping ends like that); so it does here, on a descriptor of its
 * own, since the number of the program's may be another file's by now. */
static void channel_release(struct channel *ch)
{
	RPWI_WHOLE;
	bool taken = users_lock();
	bool used = --ch->users;
	users_unlock(taken);
	if (used)
		return;
	close_if_still(&ch->signal);
	close_if_still(&ch->wait);
	free(ch);
}

/* The process that all this belongs to: a child of vfork runs in this memory, but it is not that
 * process, and what it closes is its own copy. Nothing tells us of it (no atfork handler runs), so
 * the kernel is asked. */
static pid_t own_pid;
static pthread_once_t own_pid_once = PTHREAD_ONCE_INIT;
static void note_pid(void) { own_pid = getpid(); }
static void watch_forks(void)
{
	note_pid();
	rpwi_fork_watch(note_pid);
}
static bool in_vfork_child(void) { return getpid() != own_pid; }

struct channel *channel_intact(int fd)
{
	struct channel *ch = channel_of(fd);
	return ch && still(&ch->fd, fd) ? ch : NULL;
}

/* Out of the table, which only one succeeds in. */
static bool take_out(struct channel *ch)
{
	return atomic_compare_exchange_strong(
		&rpwi_ucma_channels[ch->fd.fd], &(struct channel *){ch}, NULL);
}

/* Channels that ended where the HCA's lock could not be waited for: in a signal handler, or under
 * that lock, where a descriptor of our own has a number that was a channel's. Whoever uses a
 * channel next ends them. */
static struct channel *_Atomic ended;

static void end_later(struct channel *ch)
{
	ch->next_ended = atomic_load(&ended);
	while (!atomic_compare_exchange_weak(&ended, &ch->next_ended, ch))
		;
}

static void channel_free_ids(struct channel *ch)
{
	rpwi_gsi_lock();
	while (!rpwi_list_empty(&ch->ids))
		id_free(RPWI_CONTAINER_OF(ch->ids.next, struct id, link));
	assert(rpwi_list_empty(&ch->events));
	real_close(ch);
	if (ch->cm)
		rpwi_gsi_put();
	ch->closed = true;
	rpwi_gsi_unlock();
	channel_release(ch);
}

static void end_those(void)
{
	if (!atomic_load_explicit(&ended, memory_order_relaxed) || rpwi_locks_mine.wanted)
		return;
	for (struct channel *ch = atomic_exchange(&ended, NULL), *next; ch; ch = next) {
		next = ch->next_ended;
		channel_free_ids(ch);
	}
}

static void channel_end(struct channel *ch)
{
	RPWI_WHOLE;
	if (!take_out(ch) || rpwi_fork_broken)
		return;
	if (ch->pid != own_pid) {
		/* A fork's child closes what it inherited: the connections are its parent's. */
		close_if_still(&ch->signal);
		close_if_still(&ch->wait);
		return;
	}
	if (rpwi_locks_mine.wanted)
		end_later(ch);
	else
		channel_free_ids(ch);
}

/* The channel whose descriptor fd is, held; NULL when the number is another file's. One that was
 * closed behind our back is found out here, and ends. */
static struct channel *channel_behind(int fd)
{
	struct channel *ch = channel_hold(fd);
	if (!ch || still(&ch->fd, fd))
		return ch;
	if (!in_vfork_child())
		channel_end(ch);
	/* channel_end gives back the hold of the table; this one is ours.
	 * NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
	channel_release(ch);
	return NULL;
}

bool rpwi_ucma_owns(int fd)
{
	struct channel *ch = channel_behind(fd);
	if (ch)
		channel_release(ch);
	return ch;
}

void rpwi_ucma_closing(int fd)
{
	RPWI_WHOLE;
	struct channel *ch = channel_behind(fd);
	if (!ch)
		return;
	if (!in_vfork_child()) {
		channel_end(ch);
		end_those();
	}
	channel_release(ch);
}

/* The program's descriptor, the other end, by which it is signaled, and ours to wait on. 0, or -1
 * and errno. */
static int fds_open(int flags, int fds[3])
{
	int type = SOCK_STREAM;
	if (flags & O_CLOEXEC)
		type |= SOCK_CLOEXEC;
	if (flags & O_NONBLOCK)
		type |= SOCK_NONBLOCK;
	if (socketpair(AF_UNIX, type, 0, fds))
		return -1;
	fds[2] = fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
	if (fds[2] >= 0 && fds[0] < RPWI_UCMA_FDS)
		return fcntl(fds[1], F_SETFD, FD_CLOEXEC);
	rpwi_error("event channel: descriptor %d cannot be a channel: %s", fds[0],
		fds[2] < 0 ? strerror(errno) : "it is above 65,536");
	for (int i = 0; i < 3; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return rpwi_minus(EMFILE);
}

int rpwi_ucma_open(int flags)
{
	RPWI_WHOLE;
	static const struct rpwi_gsi_user user = {.request = cm_request,
		.incoming = cm_incoming,
		.event = cm_event,
		.addresses_changed = cm_addresses_changed,
		.deadline = resolve_deadline,
		.timer = resolve_timer};
	int fds[3], refused = rpwi_plan_load();
	if (refused)
		return rpwi_minus(-refused);
	if (rpwi_fork_broken)
		return rpwi_minus(rpwi_fork_refuse("rdma_create_event_channel"));
	end_those();
	struct channel *ch = calloc(1, sizeof(*ch));
	if (!ch || fds_open(flags, fds)) {
		free(ch);
		return -1;
	}
	ch->fd = identify(fds[0]);
	ch->signal = identify(fds[1]);
	ch->wait = identify(fds[2]);
	pthread_once(&own_pid_once, watch_forks);
	ch->pid = own_pid;
	ch->real_fd = -1;
	ch->users = 1; /* the descriptor */
	rpwi_list_init(&ch->ids);
	rpwi_list_init(&ch->events);
	rpwi_gsi_lock();
	rpwi_gsi_attach(&user);
	rpwi_gsi_unlock();
	/* its number was closed behind our back, and nobody has written to it since */
	struct channel *stale = channel_hold(fds[0]);
	if (stale) {
		channel_end(stale);
		channel_release(stale);
	}
	atomic_store_explicit(&rpwi_ucma_channels[fds[0]], ch, memory_order_release);
	return fds[0];
}

/* Until the channel is closed: a program that opens one listener after the other does not take the
 * whole device down in between. */
int channel_engine(struct channel *ch) { return ch->cm ? 0 : rpwi_gsi_get(&ch->cm); }

bool rpwi_ucma_write(int fd, const void *buf, size_t len, ssize_t *result)
{
	struct channel *ch = channel_behind(fd);
	if (!ch)
		return false;
	if (RPWI_UNLIKELY(rpwi_fork_broken)) {
		errno = rpwi_fork_refuse("a command of rdma_cm");
		*result = -1;
		channel_release(ch);
		return true;
	}
	end_those();
	ch->pid = own_pid; /* a child that uses what it inherited has taken it over */
	*result = command(ch, buf, len);
	channel_release(ch);
	if (*result < 0) {
		errno = (int)-*result;
		*result = -1;
	}
	return true;
}

/* ---- events ---- */

/* Readable while events wait: one byte lies in the socket as long as the list is not empty. */
void channel_signal(struct channel *ch)
{
	bool want = !rpwi_list_empty(&ch->events);
	char byte = 1;
	if (want == ch->signalled)
		return;
	const struct channel_fd *end = want ? &ch->signal : &ch->wait;
	if (!still(end, end->fd)) {
		/* close_range takes all that there is: not a byte into the file that has the number
		 * now */
		rpwi_debug(
			"event channel %d: its descriptors were closed: no one receives its events",
			ch->fd.fd);
		return;
	}
	/* Nothing to take back (EAGAIN): a thread that waits has the byte, and is about to find the
	 * list empty. */
	if (want ? send(end->fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0
		 : recv(end->fd, &byte, 1, MSG_DONTWAIT) < 0 && errno != EAGAIN)
		rpwi_error("event channel %d: cannot signal: %s", ch->fd.fd, strerror(errno));
	ch->signalled = want;
}

struct event *event_new(struct id *id, enum cm_event type, int status)
{
	struct event *e = calloc(1, sizeof(*e));
	if (!e) {
		rpwi_error("no memory for the event %s of id %u: it is lost", cm_event_name[type],
			id->handle);
		return NULL;
	}
	e->id = id;
	e->resp.uid = id->uid;
	e->resp.id = id->handle;
	e->resp.event = type;
	e->resp.status = (uint32_t)status;
	rpwi_list_add_tail(&id->ch->events, &e->link);
	channel_signal(id->ch);
	rpwi_debug("cm id %u: event %s, status %d", id->handle, cm_event_name[type], status);
	return e;
}

static void event_free(struct event *e)
{
	rpwi_list_del(&e->link);
	free(e);
}

static struct event *first_event_of(const struct channel *ch, const struct id *id)
{
	for (struct rpwi_list *l = ch->events.next; l != &ch->events; l = l->next) {
		struct event *e = RPWI_CONTAINER_OF(l, struct event, link);
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it does not see rpwi_list_del */
		if (e->id == id || e->child == id)
			return e;
	}
	return NULL;
}

void events_of_id_drop(struct id *id)
{
	struct channel *ch = id->ch;
	struct event *e;
	while ((e = first_event_of(ch, id))) {
		struct id *child = e->child;
		event_free(e);
		if (child && child != id)
			id_free(child); /* its program does not know it */
	}
	channel_signal(ch);
}

void events_of_mcast_drop(struct channel *ch, const struct mcast *m)
{
	for (struct rpwi_list *l = ch->events.next, *next; l != &ch->events; l = next) {
		struct event *e = RPWI_CONTAINER_OF(l, struct event, link);
		next = l->next;
		if (e->mcast == m)
			event_free(e);
	}
	channel_signal(ch);
}

void events_move(struct id *id, struct channel *from, struct channel *to)
{
	for (struct rpwi_list *l = from->events.next, *next; l != &from->events; l = next) {
		struct event *e = RPWI_CONTAINER_OF(l, struct event, link);
		next = l->next;
		if (e->id != id)
			continue;
		rpwi_list_del(&e->link);
		rpwi_list_add_tail(&to->events, &e->link);
		if (e->child) {
			e->child->ch = to;
			rpwi_list_del(&e->child->link);
			rpwi_list_add_tail(&to->ids, &e->child->link);
		}
	}
	channel_signal(from);
	channel_signal(to);
}

static bool event_take(struct channel *ch, struct rdma_ucm_event_resp *out)
{
	if (rpwi_list_empty(&ch->events))
		return false;
	struct event *e = RPWI_CONTAINER_OF(ch->events.next, struct event, link);
	*out = e->resp;
	if (e->resp.status)
		rpwi_explain(RPWI_EXPLAIN_CM_EVENT, "event %s, status %d",
			cm_event_name[e->resp.event], (int)e->resp.status);
	else
		rpwi_explain(RPWI_EXPLAIN_CM_EVENT, "event %s", cm_event_name[e->resp.event]);
	e->id->events_reported++;
	if (e->mcast)
		e->mcast->events_reported++;
	bool up = e->resp.event == EV_ESTABLISHED || e->resp.event == EV_CONNECT_RESPONSE;
	if (up && e->id->has_conn)
		rpwi_fact(RPWI_FACT_TOOK_ESTABLISHED, e->id->conn.local.qpn, 1, NULL);
	if (e->child) {
		e->child->listener = NULL;
		e->id->backlog++;
	}
	event_free(e);
	channel_signal(ch);
	return true;
}

/* The thread that waits may be canceled, as in the kernel. It has counted itself in
 * (rpwi_ucma_write). */
static void wait_canceled(void *ch) { channel_release(ch); }

static ssize_t wait_byte(struct channel *ch)
{
	ssize_t n;
	char byte;
	pthread_cleanup_push(wait_canceled, ch);
	n = recv(ch->wait.fd, &byte, 1, 0);
	pthread_cleanup_pop(false);
	return n;
}

int channel_get_event(struct channel *ch, struct rdma_ucm_event_resp *out)
{
	int rc = 0;
	bool taken = false;
	rpwi_gsi_lock();
	while (!rc && !event_take(ch, out)) {
		if (fcntl(ch->wait.fd, F_GETFL) & O_NONBLOCK) {
			rc = -EAGAIN;
			break;
		}
		rpwi_gsi_unlock();
		/* A receive begins anew after a signal handler that asked for it (SA_RESTART), as
		 * the kernel's wait in write does; poll never would. It takes the byte that says
		 * that there are events: */
		ssize_t n = wait_byte(ch);
		int err = errno;
		rpwi_gsi_lock();
		if (n == 1) {
			ch->signalled = false;
			taken = true;
		} else if (n < 0 && err != EAGAIN) {
			rc = -err;
		}
	}
	if (taken && !ch->closed)
		channel_signal(ch); /* and is put back if there are more */
	rpwi_gsi_unlock();
	return rc;
}
