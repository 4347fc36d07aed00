/* SPDX-License-Identifier: BSD-3-Clause */
/* line.c - the connections between ropeway processes of one network namespace: our listeners (each
 * a slot's or a service's name), what others have connected to them, and what we have connected to
 * others. A line is checked once, when it is made (who.c), and stays with those two processes until
 * one of them ends: a name that changes hands takes no line along. Messages are datagrams
 * (SEQPACKET), nothing blocks, and a full line says so.
 *
 * All are in one epoll, which gives the ready ones in turn. Both tables are bounded; the line that
 * was silent for longest goes first, and is made again when it is needed.
 */
#include "io/io_priv.h"
#include "base/lock.h"
#include "base/slots.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
	OUT_MAX = 128,
	IN_MAX = 256,
	STRANGERS_MAX = 16, /* of those, where strangers are let in at all */
	ACCEPTS_A_CALL = 32,
	INDEX_BITS = 20,
	GENERATION_BITS = 22,
};
static const uint64_t HEIR_NS = RPWI_NS_PER_S;

struct rpwi_lines {
	int epoll_fd;
	/* given up for a moment when no descriptor is left: a listener that nobody can accept from
	 * would be ready for ever */
	int spare;
	struct rpwi_slots all;               /* what an event says is a number of these */
	struct rpwi_list listeners, in, out; /* those last used at the tail */
	unsigned n_in, n_out, n_strangers;
};

static struct io_line *line_at(struct rpwi_list *l)
{
	return RPWI_CONTAINER_OF(l, struct io_line, link);
}

struct rpwi_lines *rpwi_lines_new(void)
{
	struct rpwi_lines *ls = calloc(1, sizeof(*ls));
	if (!ls)
		return NULL;
	rpwi_list_init(&ls->listeners);
	rpwi_list_init(&ls->in);
	rpwi_list_init(&ls->out);
	ls->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	ls->spare = ls->epoll_fd < 0 ? -1 : fcntl(ls->epoll_fd, F_DUPFD_CLOEXEC, 0);
	if (ls->spare < 0) {
		rpwi_lines_free(ls);
		return NULL;
	}
	return ls;
}

int rpwi_lines_fd(const struct rpwi_lines *ls) { return ls->epoll_fd; }

/* A signal handler may fork while this thread is in here. The child goes on with what its parent
 * was doing, at the epoll of both, until it returns: what it adds there names lines that the parent
 * does not have. So an event has no address, but a number with the process in it. */
static uint64_t number_of(const struct rpwi_lines *ls, const struct io_line *l)
{
	uint64_t generation = ls->all.at[l->index].generation & ((1u << GENERATION_BITS) - 1);
	return (uint64_t)getpid() << (GENERATION_BITS + INDEX_BITS) | generation << INDEX_BITS |
	       l->index;
}

static struct io_line *numbered(const struct rpwi_lines *ls, uint64_t number)
{
	struct io_line *l = rpwi_slots_find(&ls->all, number & ((1u << INDEX_BITS) - 1));
	return l && number_of(ls, l) == number ? l : NULL;
}

static int watch(const struct rpwi_lines *ls, int epoll_fd, const struct io_line *l)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = number_of(ls, l)};
	if (!epoll_ctl(epoll_fd, EPOLL_CTL_ADD, l->fd, &ev))
		return 0;
	/* such a child was first */
	return errno == EEXIST && !epoll_ctl(epoll_fd, EPOLL_CTL_MOD, l->fd, &ev) ? 0 : -errno;
}

static int line_add(struct rpwi_lines *ls, struct rpwi_list *to, const struct io_line *what,
	struct io_line **out)
{
	struct io_line *l =
		rpwi_slots_reserve(&ls->all, 1u << INDEX_BITS) ? malloc(sizeof(*l)) : NULL;
	int rc = -ENOMEM;
	if (l) {
		*l = *what;
		l->pid_fd = -1;
		l->index = rpwi_slots_take(&ls->all, l);
		rc = watch(ls, ls->epoll_fd, l);
	}
	if (rc) {
		if (l)
			rpwi_slots_give(&ls->all, l->index);
		close(what->fd);
		free(l);
		return rc;
	}
	rpwi_list_init(&l->link);
	rpwi_list_add_tail(to, &l->link);
	ls->n_in += l->kind == IO_LINE_IN;
	ls->n_out += l->kind == IO_LINE_OUT;
	ls->n_strangers += l->kind == IO_LINE_IN && !l->who.us;
	*out = l;
	return 0;
}

static void line_used(struct rpwi_list *in, struct io_line *l)
{
	rpwi_list_del(&l->link);
	rpwi_list_add_tail(in, &l->link);
}

void rpwi_lines_drop(struct rpwi_lines *ls, struct io_line *l)
{
	rpwi_shield();
	ls->n_in -= l->kind == IO_LINE_IN;
	ls->n_out -= l->kind == IO_LINE_OUT;
	ls->n_strangers -= l->kind == IO_LINE_IN && !l->who.us;
	/* By hand: epoll forgets a descriptor only with its last copy (epoll(7)), and a fork's
	 * child may have one. */
	epoll_ctl(ls->epoll_fd, EPOLL_CTL_DEL, l->fd, NULL);
	if (l->on_end)
		l->on_end(l);
	close(l->fd);
	if (l->pid_fd >= 0)
		close(l->pid_fd);
	rpwi_list_del(&l->link);
	rpwi_slots_give(&ls->all, l->index);
	free(l);
}

static void drop_all(struct rpwi_lines *ls, struct rpwi_list *of)
{
	while (!rpwi_list_empty(of))
		rpwi_lines_drop(ls, line_at(of->next));
}

void rpwi_lines_free(struct rpwi_lines *ls)
{
	if (!ls)
		return;
	/* The epoll is the parent's too where this is a fork's child: closed first, so that nothing
	 * is taken out of it. */
	if (ls->epoll_fd >= 0)
		close(ls->epoll_fd);
	ls->epoll_fd = -1;
	drop_all(ls, &ls->out);
	drop_all(ls, &ls->in);
	drop_all(ls, &ls->listeners);
	if (ls->spare >= 0)
		close(ls->spare);
	rpwi_slots_fini(&ls->all);
	free(ls);
}

/* The one that was silent for longest goes. */
static bool oldest_goes(struct rpwi_lines *ls, struct rpwi_list *of)
{
	for (struct rpwi_list *at = of->next; at != of; at = at->next) {
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): a dropped line leaves its list */
		if (line_at(at)->on_end)
			continue;
		rpwi_lines_drop(ls, line_at(at));
		return true;
	}
	return false;
}

static bool make_room(struct rpwi_lines *ls)
{
	return oldest_goes(ls, &ls->out) || oldest_goes(ls, &ls->in);
}

static bool no_descriptor(int rc) { return rc == -EMFILE || rc == -ENFILE; }

/* ---- listening ---- */

int rpwi_lines_listen(struct rpwi_lines *ls, const struct io_dest *name, struct io_line **out)
{
	char text[RPWI_NAME_MAX];
	int fd = rpwi_name_listen(rpwi_dest_name(name, text));
	while (no_descriptor(fd) && make_room(ls))
		fd = rpwi_name_listen(text);
	if (fd < 0)
		return fd;
	return line_add(ls, &ls->listeners,
		&(struct io_line){.kind = IO_LINE_LISTENER,
			.fd = fd,
			.name = *name,
			.who = {.uid = rpwi_who_uid(), .us = true}},
		out);
}

/* With what came to it: a process connected to a service must not go on with us when it is
 * another's. */
void rpwi_lines_unlisten(struct rpwi_lines *ls, struct io_line *listener)
{
	for (struct rpwi_list *at = ls->in.next, *next; at != &ls->in; at = next) {
		next = at->next;
		if (line_at(at)->via == listener)
			rpwi_lines_drop(ls, line_at(at));
	}
	rpwi_lines_drop(ls, listener);
}

static void turn_away(int fd, const struct rpwi_who *w)
{
	char text[RPWI_WHO_TEXT];
	close(fd);
	rpwi_debug("%s is rejected: not of our user", rpwi_who_text(w, text));
}

static void oldest_stranger_goes(struct rpwi_lines *ls)
{
	for (struct rpwi_list *at = ls->in.next; at != &ls->in; at = at->next)
		if (!line_at(at)->who.us) {
			rpwi_lines_drop(ls, line_at(at));
			return;
		}
}

static void take_in(struct rpwi_lines *ls, struct io_line *listener, int fd)
{
	struct io_line l = {.kind = IO_LINE_IN, .fd = fd, .via = listener}, *made;
	if (rpwi_who_of(fd, &l.who) || (!l.who.us && !rpwi_who_shares())) {
		turn_away(fd, &l.who);
		return;
	}
	if (!l.who.us && ls->n_strangers >= STRANGERS_MAX)
		oldest_stranger_goes(ls);
	else if (ls->n_in >= IN_MAX)
		oldest_goes(ls, &ls->in);
	line_add(ls, &ls->in, &l, &made);
}

static void accept_from(struct rpwi_lines *ls, struct io_line *listener)
{
	for (int i = 0; i < ACCEPTS_A_CALL; i++) {
		int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			take_in(ls, listener, fd);
			continue;
		}
		if (!no_descriptor(-errno))
			return;
		if (make_room(ls))
			continue;
		close(ls->spare);
		fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			close(fd);
		ls->spare = fcntl(ls->epoll_fd, F_DUPFD_CLOEXEC, 0);
	}
}

/* The parent's epoll reports lines that the parent has made since, and would tell the parent of
 * ours. Under the same descriptor, which others may wait for. */
static int epoll_of_ones_own(struct rpwi_lines *ls)
{
	struct rpwi_list *const lists[] = {&ls->listeners, &ls->in, &ls->out};
	close(ls->spare);
	int fd = epoll_create1(EPOLL_CLOEXEC), rc = fd < 0 ? -errno : 0;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lists) && !rc; i++)
		for (struct rpwi_list *at = lists[i]->next; at != lists[i] && !rc; at = at->next)
			rc = watch(ls, fd, line_at(at));
	if (fd >= 0) { /* with what it has, for it has none of the parent's */
		rc = dup3(fd, ls->epoll_fd, O_CLOEXEC) < 0 ? -errno : rc;
		close(fd);
	}
	ls->spare = fcntl(ls->epoll_fd, F_DUPFD_CLOEXEC, 0);
	return rc;
}

struct io_line *rpwi_lines_ready(struct rpwi_lines *ls)
{
	rpwi_shield();
	enum { LISTENERS_A_CALL = 16 };
	struct epoll_event ev;
	for (int i = 0; i < LISTENERS_A_CALL && epoll_wait(ls->epoll_fd, &ev, 1, 0) == 1; i++) {
		struct io_line *l = numbered(ls, ev.data.u64);
		if (RPWI_UNLIKELY(!l)) {
			epoll_of_ones_own(ls);
			continue;
		}
		if (l->kind != IO_LINE_LISTENER) {
			line_used(l->kind == IO_LINE_IN ? &ls->in : &ls->out, l);
			return l;
		}
		accept_from(ls, l);
	}
	return NULL;
}

/* ---- connecting ---- */

struct io_line *rpwi_lines_find(const struct rpwi_lines *ls, const struct io_dest *to)
{
	for (struct rpwi_list *at = ls->out.prev; at != &ls->out; at = at->prev)
		if (rpwi_dest_eq(&line_at(at)->name, to))
			return line_at(at);
	return NULL;
}

/* May what is for that name go to a stranger? Only what its owner has put into strangers' hands
 * himself: a slot of those that are for sharing; and a service, if we do so, too. */
static bool for_anyone(const struct io_dest *to)
{
	return to->slot ? rpwi_slot_is_shared(to->slot) : to->shared && rpwi_who_shares();
}

static int out_open(struct rpwi_lines *ls, const struct io_dest *to, struct io_line **out)
{
	rpwi_shield();
	struct io_line l = {.kind = IO_LINE_OUT, .name = *to};
	char name[RPWI_NAME_MAX], text[RPWI_WHO_TEXT];
	l.fd = rpwi_name_connect(rpwi_dest_name(to, name), &l.who);
	while (no_descriptor(l.fd) && make_room(ls))
		l.fd = rpwi_name_connect(name, &l.who);
	if (l.fd < 0 && l.fd != -EAGAIN)
		return l.fd;
	if (!l.who.us && !for_anyone(to)) {
		rpwi_debug("@%s is held by %s: packets are handed over only to our own user", name,
			rpwi_who_text(&l.who, text));
		if (l.fd >= 0)
			close(l.fd);
		return -EPERM;
	}
	if (l.fd < 0)
		return l.fd;
	if (ls->n_out >= OUT_MAX)
		oldest_goes(ls, &ls->out);
	return line_add(ls, &ls->out, &l, out);
}

static bool is_broken(int rc) { return rc == -EPIPE || rc == -ECONNRESET || rc == -ENOTCONN; }

int rpwi_lines_send(struct rpwi_lines *ls, const struct io_dest *to, const struct msghdr *h)
{
	rpwi_shield();
	struct io_line *l = rpwi_lines_find(ls, to);
	bool had = l;
	for (;;) {
		int rc = l ? 0 : out_open(ls, to, &l);
		if (rc)
			return rc;
		if (sendmsg(l->fd, h, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
			line_used(&ls->out, l);
			return 0;
		}
		rc = -errno;
		if (!is_broken(rc))
			return rc;
		rpwi_lines_drop(ls, l);
		l = NULL;
		if (!had)
			return -ECONNREFUSED;
		had = false; /* whoever had the name has ended; another may have it now */
	}
}

/* Has the other side closed it? */
static bool is_cut(const struct io_line *l)
{
	char c;
	ssize_t n = recv(l->fd, &c, sizeof(c), MSG_PEEK | MSG_DONTWAIT);
	return !n || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* Its process has ended, though its end is open: in a child, which looks like one that goes on
 * (listen(2) by that one puts its own PID in the place of its parent's), nor from one that only has
 * not closed it. So it has a second. */
static bool is_dead(struct io_line *l)
{
	if (l->pid_fd < 0 && l->who.us && l->who.pid > 0)
		l->pid_fd = rpwi_process_open(l->who.pid); /* before Linux 5.3: negative */
	struct pollfd p = {.fd = l->pid_fd, .events = POLLIN};
	if (l->pid_fd < 0 || poll(&p, 1, 0) <= 0)
		return false;
	uint64_t now_ns = rpwi_now_ns();
	if (!l->dead_ns)
		l->dead_ns = now_ns;
	return now_ns - l->dead_ns >= HEIR_NS;
}

/* A process that is there no more cannot be looked at, but by its number in another namespace. */
static bool has_heir(struct rpwi_lines *ls, const struct io_dest *name, pid_t parent)
{
	rpwi_shield();
	char text[RPWI_NAME_MAX];
	struct rpwi_who who;
	int fd = rpwi_name_connect(rpwi_dest_name(name, text), &who);
	if (fd < 0)
		return fd == -EAGAIN;
	close(fd);
	return who.us && who.pid != parent;
}

void rpwi_lines_heir(struct rpwi_lines *ls)
{
	rpwi_shield();
	int rc = epoll_of_ones_own(ls);
	if (rc)
		rpwi_error("after a fork: cannot wait for connections to other processes of this "
			   "host: %s",
			strerror(-rc));
	for (struct rpwi_list *at = ls->listeners.next; at != &ls->listeners; at = at->next)
		if (listen(line_at(at)->fd, RPWI_NAME_BACKLOG))
			rpwi_debug("listen: %s", strerror(errno));
}

enum io_owner rpwi_lines_owner(struct rpwi_lines *ls, const struct io_dest *name)
{
	rpwi_shield();
	struct io_line *l = rpwi_lines_find(ls, name);
	bool was_ours = l && l->who.us;
	bool cut = l && is_cut(l);
	if (l && !cut && !is_dead(l))
		return l->who.us ? IO_OWNER_US : IO_OWNER_STRANGER;
	if (l && !cut && !has_heir(ls, name, l->who.pid))
		return IO_OWNER_NOBODY;
	if (l)
		rpwi_lines_drop(ls, l);
	int rc = out_open(ls, name, &l);
	if (!rc) {
		is_dead(l); /* from now on its process is watched */
		if (l->who.us)
			return IO_OWNER_US;
	}
	/* what was ours has ended, whoever took the name */
	if (!rc || rc == -EPERM)
		return was_ours ? IO_OWNER_NOBODY : IO_OWNER_STRANGER;
	if (rc == -ECONNREFUSED)
		return IO_OWNER_NOBODY;
	/* it is unknown, or its queue is full: nothing is to be given up for that */
	return IO_OWNER_US;
}
