/* SPDX-License-Identifier: BSD-3-Clause */
/* link.c - how two contexts come to share a segment, and how they notice that the other has ended.
 *
 * The context with the smaller ID dials the other's door, an abstract Unix socket named by its ID
 * (from the endpoint's handle). Both check by SO_PEERCRED that the process at the other end is the
 * one that the handle came from; the hello shows that the dialer was given a handle of ours, by the
 * nonce of the endpoint in it. With the hello come the segment and the dialer's board, with the
 * welcome the other board: memfds, whose seals and sizes are checked before they are mapped, so
 * that no peer can make us fault. The connection stays: a byte in it wakes a sleeper, its end (or
 * the process's, by pidfd: a forked child may hold the socket) is the peer's end.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/error.h"
#include "near/name.h"
#include "near/process.h"
#include "near/rights.h"
#include "ropeway.h"
#include "shm.h"

enum {
	NOTES_A_ROUND = 64,
	NOTES_MOST = 4096, /* more than any socket holds */
};
static int note_send(int fd, const struct shm_note *n, const int *fds, unsigned fd_count)
{
	return rpwi_rights_send(fd, n, sizeof *n, fds, fd_count);
}

/* One message. Its length, 0 at the end, -errno. */
static ssize_t note_receive(int fd, struct shm_note *n, int fds[RPWI_RIGHTS_MAX])
{
	struct iovec to = {n, sizeof *n};
	return rpwi_rights_recv(fd, &to, 1, fds);
}

static const char *door_name(const uint8_t context[16], char name[RPWI_NAME_MAX])
{
	int at = snprintf(name, RPWI_NAME_MAX, "ropeway/context/");
	for (int i = 0; i < 16; i++)
		at += snprintf(name + at, RPWI_NAME_MAX - (size_t)at, "%02x", context[i]);
	return name;
}

static int source_watch(struct shm *t, struct shm_source *s)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = s};
	return epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, s->fd, &ev) ? -errno : 0;
}

static void source_close(struct shm_source *s)
{
	/* which takes it out of the epoll set, unless a forked child holds it */
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

static void source_end(struct shm *t, struct shm_source *s)
{
	if (s->fd >= 0 && rpwi_is_ours(t->born)) /* the set is the parent's, too */
		epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
	source_close(s);
}

int rpwi_shm_listen(struct shm *t)
{
	char name[RPWI_NAME_MAX];
	int fd = rpwi_name_listen(door_name(t->context, name));
	t->listener = (struct shm_source){SHM_SOURCE_LISTENER, RPWI_MAX(fd, -1)};
	return fd < 0 ? fd : source_watch(t, &t->listener);
}

static void embryo_free(struct shm *t, struct shm_embryo *e)
{
	rpwi_list_del(&e->in);
	t->embryo_count--;
	source_end(t, &e->source);
	free(e);
}

void rpwi_shm_unlisten(struct shm *t)
{
	while (!rpwi_list_empty(&t->embryos))
		embryo_free(t, RPWI_CONTAINER_OF(t->embryos.next, struct shm_embryo, in));
	source_close(&t->listener);
}

/* ---- a link as an object ---- */

static void link_notes(struct shm_link *l);

static struct shm_link *link_new(struct shm *t, const uint8_t context[16], pid_t pid)
{
	if (t->link_count == t->link_room) {
		unsigned room = t->link_room ? t->link_room * 2 : 8;
		struct shm_link **bigger = realloc(t->links, room * sizeof(struct shm_link *));
		if (!bigger)
			return NULL;
		t->links = bigger;
		t->link_room = room;
	}
	struct shm_link *l = rpwi_alloc_lines(sizeof *l);
	if (!l)
		return NULL;
	l->t = t;
	l->pid = pid;
	l->local = pid == getpid();
	t->local_count += l->local;
	memcpy(l->context, context, sizeof l->context);
	l->socket = (struct shm_source){SHM_SOURCE_LINK, -1};
	l->process = (struct shm_source){SHM_SOURCE_PROCESS, -1};
	l->wake_fd = -1;
	l->notes = link_notes;
	rpwi_list_init(&l->eps);
	rpwi_list_init(&l->owing);
	rpwi_list_init(&l->rooms);
	rpwi_list_init(&l->work);
	rpwi_list_init(&l->blocked);
	rpwi_list_init(&l->asking);
	l->position = t->link_count;
	t->links[t->link_count++] = l;
	return l;
}

static void link_sockets_close(struct shm_link *l)
{
	if (l->wake_fd != l->socket.fd && l->wake_fd >= 0)
		close(l->wake_fd);
	l->wake_fd = -1;
	source_end(l->t, &l->socket);
	source_end(l->t, &l->process);
}

void rpwi_shm_link_swap(struct shm *t, unsigned a, unsigned b)
{
	struct shm_link *l = t->links[a];
	t->links[a] = t->links[b];
	t->links[b] = l;
	t->links[a]->position = a;
	t->links[b]->position = b;
}

void rpwi_shm_link_free(struct shm_link *l)
{
	struct shm *t = l->t;
	rpwi_shm_mem_unmap_all(l);
	link_sockets_close(l);
	if (l->segment)
		munmap(l->segment, sizeof *l->segment);
	if (l->board && !l->self)
		munmap(l->board, sizeof *l->board);
	/* The last hot one takes its place, and the last of all that one's. */
	if (l->position < t->hot_count)
		rpwi_shm_link_swap(t, l->position, --t->hot_count);
	rpwi_shm_link_swap(t, l->position, --t->link_count);
	t->local_count -= l->local;
	free(l);
}

struct shm_link *rpwi_shm_link_find(struct shm *t, const uint8_t context[16], pid_t pid)
{
	for (unsigned i = 0; i < t->link_count; i++) {
		struct shm_link *l = t->links[i];
		if (l->state != SHM_LINK_DEAD && !l->dead_soon && l->pid == pid &&
			!memcmp(l->context, context, 16))
			return l;
	}
	return NULL;
}

/* `side` 0: the dialer, who produces into ring 0. A link to itself has only ring 0. */
static void link_rings(struct shm_link *l, int side)
{
	struct shm_segment *s = l->segment;
	int in = l->self ? 0 : !side;
	l->tx = (struct ring_tx){
		.cells = s->cells[side], .bulk = s->bulk[side], .shared = &s->shared[side]};
	l->rx = (struct ring_rx){
		.cells = s->cells[in], .bulk = s->bulk[in], .shared = &s->shared[in]};
}

void rpwi_shm_link_fail(struct shm_link *l, int status, const char *why)
{
	if (l->state == SHM_LINK_DEAD)
		return;
	rpwi_debug("shm: link to process %d ends: %s (status %d)", (int)l->pid, why, status);
	l->state = SHM_LINK_DEAD;
	l->t->dead_count++;
	l->t->ending_count -= l->dead_soon;
	link_sockets_close(l);
	/* The list turns while it is walked: an up-call may close any of them. */
	size_t count = 0;
	for (struct rpwi_list *n = l->eps.next; n != &l->eps; n = n->next)
		count++;
	for (; count && !rpwi_list_empty(&l->eps); count--) {
		struct shm_ep *ep = RPWI_CONTAINER_OF(l->eps.next, struct shm_ep, in_link);
		rpwi_list_del(&ep->in_link);
		rpwi_list_add_tail(&l->eps, &ep->in_link);
		if (ep->state == SHM_EP_CLOSED)
			rpwi_shm_ep_free(ep);
		else
			rpwi_shm_ep_fail(ep, status, why);
	}
}

void rpwi_shm_link_end(struct shm_link *l, int status)
{
	if (l->dead_soon || l->state == SHM_LINK_DEAD)
		return;
	l->dead_soon = true;
	l->dead_status = status;
	l->t->ending_count++;
	link_sockets_close(l);
}

void rpwi_shm_link_wake(struct shm_link *l)
{
	/* When the socket is full, it holds wake-ups enough. */
	if (l->wake_fd >= 0 && send(l->wake_fd, "w", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
		errno != EAGAIN)
		rpwi_debug("shm: process %d can not be woken: %s", (int)l->pid, strerror(errno));
}

int rpwi_shm_link_pass(struct shm_link *l, const struct shm_mem *m)
{
	struct shm_note n = {.magic = SHM_NOTE_MAGIC,
		.version = SHM_VERSION,
		.type = SHM_PASSED,
		.index = m->index,
		.nonce = m->nonce,
		.value = m->base.len};
	n.writable = !!(m->base.access & (TRAN_WRITE | TRAN_ATOMIC));
	return note_send(l->socket.fd, &n, &m->fd, 1);
}

/* ---- dialing ---- */

static void link_probe(struct shm_link *l, const struct shm_note *n)
{
	uint64_t value = 0;
	if (l->local) {
		l->pvm = false;
		return;
	}
	ssize_t got =
		rpwi_process_read(l->pid, &value, (const void *)(uintptr_t)n->addr, sizeof value);
	l->pvm = got == sizeof value && value == n->value;
	if (!l->pvm)
		atomic_store_explicit(
			&l->rx.shared->fetch_ns, RPWI_COST_NEVER, memory_order_relaxed);
	snprintf(l->pvm_why, sizeof l->pvm_why, "%s",
		got < 0 ? strerror((int)-got) : "the probe read something else");
}

static int link_watch(struct shm_link *l)
{
	struct shm *t = l->t;
	int rc = source_watch(t, &l->socket);
	if (rc)
		return rc;
	int fd = rpwi_process_open(l->pid);
	if (fd < 0)
		return fd == -ESRCH ? fd : 0; /* old kernels: the socket alone tells */
	l->process.fd = fd;
	return source_watch(t, &l->process);
}

static void link_up(struct shm_link *l, const struct shm_note *n)
{
	l->state = SHM_LINK_UP;
	link_probe(l, n);
	char way[RPWI_SHM_WAY];
	rpwi_debug("shm: link to process %d stands: %s", (int)l->pid, rpwi_shm_rma_path(l, way));
	for (struct rpwi_list *at = l->eps.next, *next; at != &l->eps; at = next) {
		next = at->next;
		struct shm_ep *ep = RPWI_CONTAINER_OF(at, struct shm_ep, in_link);
		if (ep->state == SHM_EP_STARTING)
			rpwi_shm_ep_attach(ep, l);
	}
}

static void note_fill(struct shm *t, struct shm_note *n, enum shm_note_type type)
{
	*n = (struct shm_note){.magic = SHM_NOTE_MAGIC,
		.version = SHM_VERSION,
		.type = (uint16_t)type,
		.addr = (uint64_t)(uintptr_t)&t->secret,
		.value = t->secret};
	memcpy(n->context, t->context, sizeof n->context);
}

static int dial(struct shm_link *l)
{
	struct shm *t = l->t;
	struct shm_ep *ep = l->dialing_for;
	char name[RPWI_NAME_MAX];
	struct rpwi_who who;
	int fd = rpwi_name_connect(door_name(l->context, name), &who);
	if (fd < 0)
		return fd;
	l->socket.fd = l->wake_fd = fd;
	if (who.pid != l->pid)
		return -EACCES;
	void *at;
	int segment_fd =
		rpwi_memory_make("ropeway-link", sizeof *l->segment, RPWI_MEMORY_WRITE, &at);
	if (segment_fd < 0)
		return segment_fd;
	l->segment = at;
	link_rings(l, 0);
	struct shm_note n;
	note_fill(t, &n, SHM_HELLO);
	n.index = ep->peer.endpoint;
	n.nonce = ep->peer.nonce;
	int rc = note_send(l->socket.fd, &n, (int[]){segment_fd, t->board_fd}, 2);
	close(segment_fd);
	if (!rc)
		rc = link_watch(l);
	l->state = SHM_LINK_GREETED;
	return rc;
}

/* A refused hello: another endpoint's nonce may do. */
static void link_redial(struct shm_link *l, int status, const char *why)
{
	struct shm_ep *ep = l->dialing_for;
	link_sockets_close(l);
	if (l->segment)
		munmap(l->segment, sizeof *l->segment);
	l->segment = NULL;
	l->state = SHM_LINK_DIALING;
	l->dialing_for = NULL;
	if (ep)
		rpwi_shm_ep_fail(ep, status, why);
	for (struct rpwi_list *at = l->eps.next; at != &l->eps; at = at->next) {
		struct shm_ep *other = RPWI_CONTAINER_OF(at, struct shm_ep, in_link);
		if (other->state == SHM_EP_STARTING) {
			l->dialing_for = other;
			return; /* the next round dials */
		}
	}
	rpwi_shm_link_fail(l, status, why);
}

void rpwi_shm_link_dial_on(struct shm_link *l)
{
	int rc = l->dialing_for ? dial(l) : -ECANCELED;
	char why[128];
	if (!rc || rc == -EAGAIN) /* its queue of connections is full: again in the next round */
		return;
	snprintf(why, sizeof why,
		rc == -EACCES ? "the door of its context belongs to another process"
			      : "its context can not be reached: %s",
		strerror(-rc));
	link_redial(l, rc == -ECONNREFUSED ? RPW_ERR_PEER_GONE : RPW_ERR_UNREACHABLE, why);
}

/* The endpoint whose nonce the hello has is being closed. */
void rpwi_shm_link_forsake(struct shm_link *l)
{
	if (l->state == SHM_LINK_DIALING || l->state == SHM_LINK_GREETED) {
		l->dialing_for = NULL;
		link_redial(l, RPW_ERR_CANCELED, "the endpoint was closed");
	}
}

static int link_self(struct shm *t, struct shm_link *l)
{
	int pair[2];
	void *at = mmap(NULL, sizeof *l->segment, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return -errno;
	l->segment = at;
	l->board = t->board;
	l->self = true;
	link_rings(l, 0);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair))
		return -errno;
	l->socket.fd = pair[0];
	l->wake_fd = pair[1];
	l->state = SHM_LINK_UP;
	return source_watch(t, &l->socket);
}

int rpwi_shm_link_dial(struct shm *t, struct shm_ep *ep, struct shm_link **out)
{
	struct shm_link *l = link_new(t, ep->peer.context, (pid_t)ep->peer.pid);
	if (!l)
		return -ENOMEM;
	if (!memcmp(t->context, ep->peer.context, 16)) {
		int rc = link_self(t, l);
		if (rc) {
			rpwi_shm_link_free(l);
			return rc;
		}
	} else {
		l->dialing_for = ep;
		l->state = SHM_LINK_DIALING;
	}
	*out = l;
	return 0;
}

/* ---- what comes over the sockets ---- */

static bool note_sound(const struct shm_note *n, ssize_t len)
{
	return len == sizeof *n && n->magic == SHM_NOTE_MAGIC && n->version == SHM_VERSION;
}

/* A hello from somebody at the door. 0: it has become a link. */
static int greet(struct shm *t, struct shm_embryo *e, const struct shm_note *n,
	const int fds[RPWI_RIGHTS_MAX])
{
	struct shm_ep *ep = rpwi_shm_ep_find(t, n->index);
	pid_t pid = e->who.pid;
	if (n->type != SHM_HELLO || !ep || ep->state == SHM_EP_CLOSED || ep->nonce != n->nonce ||
		pid <= 0 || (ep->pid_expected && ep->pid_expected != pid))
		return -EACCES;
	/* A nonce opens the door once: with one handle there is no coming again and again under
	 * other names. */
	if (ep->greeted || rpwi_shm_link_find(t, n->context, pid) ||
		!memcmp(n->context, t->context, 16))
		return -EEXIST;
	struct shm_link *l = link_new(t, n->context, pid);
	if (!l)
		return -ENOMEM;
	l->segment = rpwi_memory_take(fds[0], sizeof *l->segment, RPWI_MEMORY_WRITE);
	l->board = rpwi_memory_take(fds[1], sizeof *l->board, RPWI_MEMORY_READ);
	struct shm_note welcome;
	note_fill(t, &welcome, SHM_WELCOME);
	int rc = l->segment && l->board ? note_send(e->source.fd, &welcome, &t->board_fd, 1)
					: -EBADF;
	if (!rc) {
		epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, e->source.fd, NULL);
		l->socket.fd = l->wake_fd = e->source.fd;
		e->source.fd = -1;
		rc = link_watch(l);
	}
	if (rc) {
		rpwi_shm_link_free(l);
		return rc;
	}
	ep->greeted = true;
	link_rings(l, 1);
	link_up(l, n);
	rpwi_shm_ep_adopt(t, l);
	return 0;
}

static void embryo_ready(struct shm *t, struct shm_embryo *e)
{
	char text[RPWI_WHO_TEXT];
	struct shm_note n;
	int fds[RPWI_RIGHTS_MAX];
	ssize_t got = note_receive(e->source.fd, &n, fds);
	if (got == -EAGAIN || got == -EINTR)
		return;
	int rc = got > 0 && note_sound(&n, got) ? greet(t, e, &n, fds) : -EPROTO;
	rpwi_rights_close(fds, RPWI_RIGHTS_MAX);
	if (rc) {
		t->strangers++;
		rpwi_debug("shm: %s at the door was sent away: %s", rpwi_who_text(&e->who, text),
			strerror(-rc));
	}
	e->dead = true;
}

static void door_ready(struct shm *t)
{
	for (int i = 0; i < 64; i++) {
		int fd = accept4(t->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			return;
		/* the oldest */
		if (t->embryo_count == SHM_EMBRYOS_MAX)
			RPWI_CONTAINER_OF(t->embryos.next, struct shm_embryo, in)->dead = true;
		struct shm_embryo *e = calloc(1, sizeof *e);
		if (!e) {
			close(fd);
			return;
		}
		e->source = (struct shm_source){SHM_SOURCE_EMBRYO, fd};
		e->dead = rpwi_who_of(fd, &e->who);
		e->deadline_ns = rpwi_now_ns() + SHM_EMBRYO_MS * RPWI_NS_PER_MS;
		rpwi_list_add_tail(&t->embryos, &e->in);
		t->embryo_count++;
		e->dead = e->dead || source_watch(t, &e->source);
		if (!e->dead)
			embryo_ready(t, e); /* its hello mostly is there already */
	}
}

void rpwi_shm_embryos_tick(struct shm *t, uint64_t now_ns)
{
	for (struct rpwi_list *at = t->embryos.next, *after; at != &t->embryos; at = after) {
		struct shm_embryo *e = RPWI_CONTAINER_OF(at, struct shm_embryo, in);
		after = at->next;
		if (e->dead || e->deadline_ns <= now_ns)
			embryo_free(t, e);
	}
}

uint64_t rpwi_shm_embryos_next(const struct shm *t)
{
	/* They are in the order in which they came, and all have the same time. */
	return rpwi_list_empty(&t->embryos)
		       ? RPWI_NEVER
		       : RPWI_CONTAINER_OF(t->embryos.next, struct shm_embryo, in)->deadline_ns;
}

static bool welcomed(struct shm_link *l, const struct shm_note *n, const int fds[RPWI_RIGHTS_MAX])
{
	if (n->type != SHM_WELCOME || memcmp(n->context, l->context, 16))
		return false;
	l->board = rpwi_memory_take(fds[0], sizeof *l->board, RPWI_MEMORY_READ);
	if (!l->board)
		return false;
	l->dialing_for = NULL;
	link_up(l, n);
	return true;
}

static void memory_passed(
	struct shm_link *l, const struct shm_note *n, const int fds[RPWI_RIGHTS_MAX])
{
	if (n->type == SHM_PASSED && fds[0] >= 0)
		rpwi_shm_mem_mapped(l, n->index, n->nonce, fds[0], n->value, n->writable);
	else if (n->type == SHM_POOL)
		rpwi_shm_loan_shown(l, n, fds);
}

/* At most `most` messages. */
static void link_ready(struct shm_link *l, int most)
{
	for (int i = 0; i < most && l->socket.fd >= 0; i++) {
		struct shm_note n;
		int fds[RPWI_RIGHTS_MAX];
		ssize_t got = note_receive(l->socket.fd, &n, fds);
		if (got == -EAGAIN || got == -EINTR)
			return;
		bool fine = got > 0;
		if (got == 1 && l->state == SHM_LINK_UP)
			; /* a wake-up */
		else if (fine && !note_sound(&n, got))
			fine = false;
		else if (fine && l->state == SHM_LINK_GREETED)
			fine = welcomed(l, &n, fds);
		else if (fine)
			memory_passed(l, &n, fds);
		rpwi_rights_close(fds, RPWI_RIGHTS_MAX);
		if (fine)
			continue;
		if (l->state == SHM_LINK_GREETED)
			link_redial(l, RPW_ERR_REFUSED,
				"the other process did not accept the handle: its endpoint is "
				"closed, or the handle is of another connection");
		else
			rpwi_shm_link_end(l, got > 0 ? RPW_ERR_PROTOCOL : RPW_ERR_PEER_GONE);
		return;
	}
}

static void link_notes(struct shm_link *l) { link_ready(l, NOTES_MOST); }

static void process_ended(struct shm_link *l)
{
	if (l->state == SHM_LINK_GREETED)
		rpwi_shm_link_fail(l, RPW_ERR_PEER_GONE, "the other process ended");
	else {
		/* frames that are still to be read may be about what it has passed */
		link_notes(l);
		rpwi_shm_link_end(l, RPW_ERR_PEER_GONE);
	}
}

unsigned rpwi_shm_control(struct shm *t)
{
	struct epoll_event events[32];
	int n = epoll_wait(t->epoll_fd, events, RPWI_ARRAY_LEN(events), 0);
	for (int i = 0; i < n; i++) {
		struct shm_source *s = events[i].data.ptr;
		if (s->fd < 0)
			continue; /* ended by an earlier one of this round */
		switch (s->kind) {
		case SHM_SOURCE_LISTENER:
			door_ready(t);
			break;
		case SHM_SOURCE_EMBRYO:
			embryo_ready(t, RPWI_CONTAINER_OF(s, struct shm_embryo, source));
			break;
		case SHM_SOURCE_LINK:
			link_ready(RPWI_CONTAINER_OF(s, struct shm_link, socket), NOTES_A_ROUND);
			break;
		case SHM_SOURCE_PROCESS:
			process_ended(RPWI_CONTAINER_OF(s, struct shm_link, process));
			break;
		}
	}
	/* Those that wait to be dialed belong to endpoints that start. By index: up-calls may add
	 * links. */
	for (unsigned i = 0; !rpwi_list_empty(&t->starting) && i < t->link_count; i++)
		if (t->links[i]->state == SHM_LINK_DIALING)
			rpwi_shm_link_dial_on(t->links[i]);
	return n > 0 ? (unsigned)n : 0;
}

/* ---- frames of the link's own ---- */

int rpwi_shm_link_put(struct shm_link *l, enum shm_kind kind, uint32_t endpoint, const void *head,
	size_t head_len, const void *body, size_t body_len, size_t spare)
{
	int rc = ring_tx_room(&l->tx, ring_bulk_need(head_len, body_len), spare);
	if (rc)
		return rc;
	uint8_t *head_at, *body_at;
	ring_tx_place(&l->tx, head_len, body_len, &head_at, &body_at);
	rpwi_copy_small(head_at, head, head_len);
	uint64_t began_ns = shm_sample(l, body_len);
	if (body_len)
		memcpy(body_at, body, body_len);
	rpwi_cost_sampled(&l->tx.shared->in_ns, began_ns, body_len);
	ring_tx_publish(&l->tx, kind, endpoint, head_len, body_len);
	shm_link_kick(l);
	return 0;
}

void rpwi_shm_link_hint(
	struct shm_link *l, enum shm_kind kind, uint32_t endpoint, const struct shm_ctl *ctl)
{
	if (!l->hint_count && !rpwi_shm_link_ctl(l, kind, endpoint, ctl))
		return;
	if (l->hint_count == SHM_HINTS)
		return;
	l->todo = true;
	l->hints[(l->hint_head + l->hint_count++) % SHM_HINTS] =
		(struct shm_hint){(uint8_t)kind, endpoint, *ctl};
}

unsigned rpwi_shm_link_hints(struct shm_link *l)
{
	unsigned n = 0;
	for (; l->hint_count; n++) {
		const struct shm_hint *h = &l->hints[l->hint_head];
		if (rpwi_shm_link_ctl(l, h->kind, h->endpoint, &h->ctl))
			break;
		l->hint_head = (l->hint_head + 1) % SHM_HINTS;
		l->hint_count--;
	}
	return n;
}
