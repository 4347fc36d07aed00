/* SPDX-License-Identifier: BSD-3-Clause */
/* lane.c - lanes: packets between two processes of our own user in one network namespace go through
 * shared memory (lane_ring.c) instead of UDP.
 *
 * A lane has one direction. The sender makes the memory and offers it, with a descriptor that wakes
 * it, over its connection to the slot (line.c: whose owner the kernel has named on that very
 * connection); the owner maps it and answers with the descriptor that wakes itself. Until the
 * answer comes, and where none comes (another user, a build without lanes, a bound reached),
 * packets go by UDP. The end of that connection is the end of the lane: packets written before are
 * still taken.
 *
 * Order where it changes from UDP to a lane: the owner reads a new lane only after it has found its
 * sockets empty once, so what was sent before is taken before. That holds for what has reached the
 * socket: on a busy machine Linux brings a datagram there late. RC repeats what overtakes; UC and
 * UD wait for the answer instead of beginning by UDP (rpwi_lane_is_awaited).
 *
 * The memory is sealed against shrinking (a memfd), so nothing that the other does to it ends this
 * process; what it writes into it is checked (lane_ring.h).
 */
#include "io/io_priv.h"

#include "base/guard.h"
#include "base/lock.h"
#include "io/lane_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	LANES_MAX = 64,      /* in each direction; half a megabyte each, as far as it is used */
	PACKETS_A_TURN = 64, /* of one lane, then the next one's turn */
	ASK_AGAIN_MS = 1000,
	ANSWER_MS = 100, /* who has not answered by then has no lanes, or does not run */
	SAMPLED_LEN = 1024,
};

struct rpwi_lane {
	struct rpwi_list link;
	struct rpwi_lanes *of;
	struct io_line *line; /* NULL: to ourselves, or it has ended */
	struct lane_mem *mem;
	int peer_fd; /* wakes the other side, or -1 */
	uint16_t slot;
	bool up;
	uint64_t cookie, offered_ns;
	struct lane_writer w;       /* out */
	struct rpwi_lane_peer peer; /* board NULL: it shows none */
	struct lane_reader r;       /* in */
	/* in: what the large packets of this turn take, all of one kind; began_ns 0: not looked
	 * at */
	struct {
		uint64_t began_ns, bytes, pull_ns;
		bool fetched;
	} sample;
	bool after_udp; /* in: not before the sockets were found empty */
	bool ended;     /* in: the other side has, and what it wrote is still taken */
};

struct rpwi_lanes {
	struct rpwi_lines *lines;
	uint64_t own[64]; /* a bit for each slot */
	bool off;         /* ROPEWAY_WIRE=udp */
	enum lane_choice choice;
	int event_fd;
	int board_fd; /* the device's, or -1 */
	void (*about_to)(void);
	lane_place_fn *place;
	bool armed;
	bool any_new;              /* some wait until the sockets were found empty */
	struct rpwi_list in, outs; /* outs: the lanes in `out` */
	unsigned n_in, n_out;
	struct rpwi_lane *out[RPWI_SLOT_MAX + 2];
	uint64_t ask_again_ns[RPWI_SLOT_MAX + 2];
	struct rpwi_lane *turn; /* whose packet was given last */
	unsigned taken;         /* in this turn */
	struct rpwi_lane_stats n;
	uint8_t datagram[RPWI_PACKET_MAX];
};

const char *const rpwi_wire_names[RPWI_WIRES + 1] = {
	[RPWI_WIRE_AUTO] = "auto",
	[RPWI_WIRE_UDP] = "udp",
	[RPWI_WIRE_COPY] = "copy",
	[RPWI_WIRE_FETCH] = "fetch",
};

enum rpwi_wire rpwi_wire_wanted(const char **unknown)
{
	const char *wire = getenv("ROPEWAY_WIRE");
	if (unknown)
		*unknown = NULL;
	if (!wire || !*wire)
		return RPWI_WIRE_AUTO;
	for (int i = 0; i < RPWI_WIRES; i++)
		if (!strcmp(wire, rpwi_wire_names[i]))
			return (enum rpwi_wire)i;
	if (unknown)
		*unknown = wire;
	return RPWI_WIRE_AUTO;
}

struct rpwi_lanes *rpwi_lanes_new(struct rpwi_lines *lines)
{
	const char *unknown;
	enum rpwi_wire wire = rpwi_wire_wanted(&unknown);
	struct rpwi_lanes *ls = calloc(1, sizeof(*ls));
	if (!ls)
		return NULL;
	ls->lines = lines;
	ls->board_fd = -1;
	rpwi_list_init(&ls->in);
	rpwi_list_init(&ls->outs);
	ls->off = wire == RPWI_WIRE_UDP;
	if (wire == RPWI_WIRE_FETCH)
		ls->choice = LANE_FETCHED;
	else if (wire == RPWI_WIRE_COPY)
		ls->choice = LANE_COPIED;
	if (unknown)
		rpwi_warn("ROPEWAY_WIRE: invalid value '%s': expected auto, udp, copy or fetch; "
			  "using auto",
			unknown);
	ls->event_fd = ls->off ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ls->off |= ls->event_fd < 0;
	return ls;
}

void rpwi_lanes_own(struct rpwi_lanes *ls, uint16_t slot)
{
	ls->own[slot / 64] |= 1ull << slot % 64;
}

void rpwi_lanes_on_change(struct rpwi_lanes *ls, void (*about_to)(void))
{
	if (ls)
		ls->about_to = about_to;
}

void rpwi_lanes_place_by(struct rpwi_lanes *ls, lane_place_fn *place)
{
	if (ls)
		ls->place = place;
}

static void about_to_change(const struct rpwi_lanes *ls)
{
	if (ls->about_to)
		ls->about_to();
}

static struct lane_mem *map_mem(int fd)
{
	return rpwi_memory_take(fd, sizeof(struct lane_mem), RPWI_MEMORY_WRITE);
}

static void lane_free(struct rpwi_lane *l)
{
	rpwi_shield();
	struct rpwi_lanes *ls = l->of;
	if (l->line) {
		l->line->on_end = NULL;
		l->line->user = NULL;
	}
	if (l->w.mem) {
		about_to_change(ls);
		ls->n_out--;
		ls->out[l->slot] = NULL;
	}
	if (l->r.mem) {
		ls->n_in--;
		ls->turn = ls->turn == l ? NULL : ls->turn;
	}
	rpwi_list_del(&l->link);
	if (l->peer_fd >= 0)
		close(l->peer_fd);
	if (l->peer.board) {
		munmap((void *)(uintptr_t)l->peer.board, l->peer.bytes);
		close(l->peer.mem_fd);
	}
	munmap(l->mem, sizeof(struct lane_mem));
	free(l->r.bounce);
	free(l);
}

static struct rpwi_lane *lane_at(struct rpwi_list *at)
{
	return RPWI_CONTAINER_OF(at, struct rpwi_lane, link);
}

void rpwi_lanes_free(struct rpwi_lanes *ls)
{
	if (!ls)
		return;
	while (!rpwi_list_empty(&ls->outs))
		lane_free(lane_at(ls->outs.next));
	while (!rpwi_list_empty(&ls->in))
		lane_free(lane_at(ls->in.next));
	if (ls->event_fd >= 0)
		close(ls->event_fd);
	free(ls);
}

/* The lists may be half changed: a walk along them ends in any case. The bulk area, most of a lane,
 * is not copied: the child gets no completion of the messages in it. */
static void leave_all(const struct rpwi_list *of)
{
	unsigned n = 0;
	for (struct rpwi_list *at = of->next; at != of && n <= LANES_MAX; at = at->next, n++)
		rpwi_memory_leave(
			lane_at(at)->mem, sizeof(struct lane_mem), offsetof(struct lane_mem, bulk));
}

void rpwi_lanes_leave(struct rpwi_lanes *ls)
{
	if (!ls)
		return;
	leave_all(&ls->outs);
	leave_all(&ls->in);
}

/* ---- making one ---- */

/* The other side has ended. Packets for it are lost, or go by UDP to the slot's next owner; those
 * that it wrote before are taken. */
static void line_ended(struct io_line *line)
{
	struct rpwi_lane *l = line->user;
	l->line = NULL;
	l->ended = true;
	if (l->w.mem)
		lane_free(l);
}

static void lane_holds(struct rpwi_lane *l, struct io_line *line)
{
	l->line = line;
	line->user = l;
	line->on_end = line_ended;
}

static struct rpwi_lane *lane_new(struct rpwi_lanes *ls, struct lane_mem *mem, uint16_t slot)
{
	struct rpwi_lane *l = mem ? calloc(1, sizeof(*l)) : NULL;
	if (!l) {
		if (mem)
			munmap(mem, sizeof(*mem));
		return NULL;
	}
	l->of = ls;
	l->mem = mem;
	l->slot = slot;
	l->peer_fd = -1;
	rpwi_list_init(&l->link);
	return l;
}

static struct rpwi_lane *out_new(struct rpwi_lanes *ls, uint16_t slot, int *fd)
{
	void *mem;
	*fd = rpwi_memory_make("ropeway-lane", sizeof(struct lane_mem), RPWI_MEMORY_WRITE, &mem);
	struct rpwi_lane *l = lane_new(ls, mem, slot);
	if (!l)
		return NULL;
	rpwi_lane_writer_init(&l->w, mem);
	about_to_change(ls);
	ls->out[slot] = l;
	rpwi_list_add_tail(&ls->outs, &l->link);
	ls->n_out++;
	return l;
}

static struct rpwi_lane *in_new(struct rpwi_lanes *ls, struct lane_mem *mem, uint16_t slot)
{
	struct rpwi_lane *l = lane_new(ls, mem, slot);
	if (!l)
		return NULL;
	if (rpwi_lane_reader_init(&l->r, mem)) {
		munmap(mem, sizeof(*mem));
		free(l);
		return NULL;
	}
	l->after_udp = ls->any_new = true;
	rpwi_list_add_tail(&ls->in, &l->link);
	ls->n_in++;
	return l;
}

/* Both ends are ours: two QPs of one process. */
static void make_own(struct rpwi_lanes *ls, uint16_t slot)
{
	int fd;
	struct rpwi_lane *out = out_new(ls, slot, &fd);
	struct rpwi_lane *in = out ? in_new(ls, map_mem(fd), slot) : NULL;
	if (fd >= 0)
		close(fd);
	if (in) {
		out->up = true;
		out->peer_fd = fcntl(ls->event_fd, F_DUPFD_CLOEXEC, 0);
	} else if (out) {
		lane_free(out);
	}
}

static void offer(struct rpwi_lanes *ls, uint16_t slot)
{
	const struct io_dest to = {.slot = slot};
	int fds[3] = {-1, ls->event_fd, ls->board_fd};
	struct rpwi_lane *l = out_new(ls, slot, &fds[0]);
	if (!l) {
		if (fds[0] >= 0)
			close(fds[0]);
		return;
	}
	l->cookie = rpwi_random64();
	l->offered_ns = rpwi_now_ns();
	struct io_msg m = {.type = IO_MSG_LANE_OFFER, .index = slot, .cookie = l->cookie};
	int rc = rpwi_message_send_fds(ls->lines, &to, &m, fds, ls->board_fd < 0 ? 2 : 3);
	close(fds[0]);
	struct io_line *line = rc ? NULL : rpwi_lines_find(ls->lines, &to);
	if (!line || !line->who.us || line->on_end)
		lane_free(l);
	else
		lane_holds(l, line);
}

struct rpwi_lane *rpwi_lane_to(struct rpwi_lanes *ls, uint32_t qpn)
{
	uint16_t slot = rpwi_slot_of(qpn);
	if (RPWI_UNLIKELY(!ls || ls->off || !slot || slot > RPWI_SLOT_MAX || rpwi_fork_broken))
		return NULL;
	struct rpwi_lane *l = ls->out[slot];
	if (RPWI_LIKELY(l != NULL))
		return l->up ? l : NULL;
	if (ls->n_out >= LANES_MAX || rpwi_slot_is_shared(slot))
		return NULL;
	uint64_t now = rpwi_now_ns();
	if (now < ls->ask_again_ns[slot])
		return NULL;
	rpwi_shield();
	ls->ask_again_ns[slot] = now + ASK_AGAIN_MS * RPWI_NS_PER_MS;
	if (ls->own[slot / 64] >> slot % 64 & 1) {
		make_own(ls, slot);
		return ls->out[slot];
	}
	offer(ls, slot);
	return NULL;
}

struct rpwi_lane *rpwi_lane_up(const struct rpwi_lanes *ls, uint32_t qpn)
{
	uint16_t slot = rpwi_slot_of(qpn);
	struct rpwi_lane *l = ls && slot <= RPWI_SLOT_MAX ? ls->out[slot] : NULL;
	return l && l->up && !rpwi_fork_broken ? l : NULL;
}

bool rpwi_lane_is_awaited(const struct rpwi_lanes *ls, uint32_t qpn)
{
	uint16_t slot = rpwi_slot_of(qpn);
	const struct rpwi_lane *l = ls && slot <= RPWI_SLOT_MAX ? ls->out[slot] : NULL;
	return l && !l->up && rpwi_now_ns() - l->offered_ns < ANSWER_MS * RPWI_NS_PER_MS;
}

bool rpwi_lane_reaches(struct rpwi_lanes *ls, uint32_t qpn)
{
	return rpwi_lane_to(ls, qpn) || (ls && ls->out[rpwi_slot_of(qpn)]);
}

/* ---- what the other side shows of itself ---- */

void rpwi_lanes_show_board(struct rpwi_lanes *ls, int fd)
{
	if (ls)
		ls->board_fd = fd;
}

/* The kernel's leave is asked for here, and where it says no (Yama, another user namespace) that is
 * all: nothing is changed to get it. */
static void take_board(struct rpwi_lane *l, pid_t pid, int fd)
{
	char path[32];
	bool wanted = fd >= 0 && pid > 0 && l->of->choice != LANE_COPIED;
	ssize_t bytes = wanted ? rpwi_memory_size(fd) : -1;
	if (bytes < (ssize_t)sizeof(struct rpwi_board_head))
		return;
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	int mem_fd = open(path, O_RDWR | O_CLOEXEC);
	bool writable = mem_fd >= 0;
	if (!writable)
		mem_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (mem_fd < 0) {
		rpwi_debug("process %d cannot be read: %s", (int)pid, strerror(errno));
		return;
	}
	void *board = rpwi_memory_take(fd, (size_t)bytes, RPWI_MEMORY_READ);
	if (!board) {
		close(mem_fd);
		return;
	}
	l->peer = (struct rpwi_lane_peer){.board = board,
		.bytes = (size_t)bytes,
		.mem_fd = mem_fd,
		.writable = writable,
		.pid = pid};
}

struct rpwi_lane_peer *rpwi_lane_peer(struct rpwi_lane *l)
{
	return l->peer.board ? &l->peer : NULL;
}

bool rpwi_lane_peer_is_there(const struct rpwi_lane_peer *p)
{
	const struct rpwi_board_head *b = p->board;
	uint64_t nonce = atomic_load(&b->nonce), found;
	return nonce &&
	       pread(p->mem_fd, &found, sizeof(found), (off_t)b->nonce_at) == sizeof(found) &&
	       found == nonce;
}

static bool peer_is_stopped(void *arg) { return rpwi_process_is_stopped(*(pid_t *)arg); }

bool rpwi_lane_take_over(struct rpwi_lane *l, uint32_t dqpn, uint32_t una, uint32_t *from)
{
	rpwi_shield();
	return l->up && l->peer.board && l->peer.writable &&
	       rpwi_process_seems_stopped(l->peer.pid) &&
	       rpwi_lane_writer_take_over(&l->w, dqpn, una, from, peer_is_stopped, &l->peer.pid);
}

void rpwi_lane_give_over(struct rpwi_lane *l, uint32_t dqpn, uint32_t upto)
{
	rpwi_lane_writer_give_over(&l->w, dqpn, upto);
}

pid_t rpwi_lanes_over(const struct rpwi_lanes *ls)
{
	for (struct rpwi_list *at = ls ? ls->in.next : NULL; at && at != &ls->in; at = at->next) {
		const struct rpwi_lane *l = lane_at(at);
		struct pollfd p = {.fd = l->line ? l->line->fd : -1};
		if (rpwi_lane_is_over(l->mem) && l->line && poll(&p, 1, 0) == 0)
			return l->line->who.pid;
	}
	return 0;
}

bool rpwi_lanes_may_fetch(char *why, size_t why_len)
{
	char scope = '0', here = 0, there = 1;
	ssize_t got = rpwi_process_read(getpid(), &here, &there, 1);
	int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (read(fd, &scope, 1) != 1)
			scope = '0';
		close(fd);
	}
	if (rpwi_wire_wanted(NULL) == RPWI_WIRE_COPY)
		snprintf(why, why_len, "ROPEWAY_WIRE=copy");
	else if (got < 0)
		snprintf(why, why_len, "process_vm_readv: %s", strerror((int)-got));
	else if (scope == '3' || (scope != '0' && geteuid()))
		snprintf(why, why_len, "kernel.yama.ptrace_scope is %c", scope);
	else
		why[0] = '\0';
	return !why[0];
}

/* The kernel looks up the pages of each piece, so packets of one message are one. */
static unsigned pieces_of(struct iovec *v, const struct lane_span *s, unsigned n, size_t *bytes)
{
	unsigned pieces = 0;
	uint64_t end = 0;
	*bytes = 0;
	for (unsigned i = 0; i < n; end = s[i].addr + s[i].len, *bytes += s[i++].len)
		if (pieces && s[i].addr == end)
			v[pieces - 1].iov_len += s[i].len;
		else
			v[pieces++] = (struct iovec){(void *)(uintptr_t)s[i].addr, s[i].len};
	return pieces;
}

bool rpwi_lane_peer_readv(const struct rpwi_lane_peer *p, struct iovec *to, unsigned nto,
	struct iovec *from, unsigned nfrom, size_t bytes)
{
	const struct rpwi_board_head *b = p->board;
	const void *nonce_at = (const void *)(uintptr_t)b->nonce_at;
	uint64_t nonce = atomic_load(&b->nonce);
	return nonce && rpwi_process_readv(p->pid, to, nto, from, nfrom, bytes, nonce_at, nonce) &&
	       atomic_load(&b->nonce) == nonce;
}

static bool pull(void *arg, const struct lane_span *to, const struct lane_span *from, unsigned n)
{
	struct rpwi_lane *l = arg;
	uint64_t began_ns = rpwi_now_ns();
	struct iovec there[LANE_PULL_SLOTS + 1], here[LANE_PULL_SLOTS + 1];
	size_t bytes;
	unsigned nthere = pieces_of(there, from, n, &bytes), nhere = pieces_of(here, to, n, &bytes);
	bool good = rpwi_lane_peer_readv(&l->peer, here, nhere, there, nthere, bytes);
	l->sample.pull_ns = rpwi_now_ns() - began_ns;
	return good;
}

/* ---- taking one ---- */

/* An offer: true, it is taken, and the descriptor that wakes its sender is ours. */
static bool take_offer(struct rpwi_lanes *ls, struct io_line *line, uint16_t slot, int mem_fd)
{
	if (ls->off || !line->who.us || line->on_end || ls->n_in >= LANES_MAX)
		return false;
	struct rpwi_lane *l = in_new(ls, map_mem(mem_fd), slot);
	if (!l)
		return false;
	lane_holds(l, line);
	return true;
}

void rpwi_lanes_offered(struct rpwi_lanes *ls, struct io_line *line, const struct io_msg *m,
	int fds[RPWI_RIGHTS_MAX])
{
	struct io_msg answer = {.type = IO_MSG_LANE_ANSWER, .cookie = m->cookie, .index = m->index};
	if (!ls || fds[0] < 0 || fds[1] < 0 || !take_offer(ls, line, (uint16_t)m->index, fds[0]))
		return;
	struct rpwi_lane *l = line->user;
	l->peer_fd = fds[1];
	fds[1] = -1;
	take_board(l, line->who.pid, fds[2]);
	if (l->peer.board && rpwi_lane_peer_is_there(&l->peer)) {
		l->r.pull = pull;
		l->r.pull_arg = l;
		l->r.place = ls->place;
		answer.flags = IO_LANE_REFS;
	}
	const int given[2] = {ls->event_fd, ls->board_fd};
	if (rpwi_message_answer(line, &answer, given, ls->board_fd < 0 ? 1 : 2))
		lane_free(l);
}

/* Believed on the very connection that the offer went by. */
void rpwi_lanes_answered(struct rpwi_lanes *ls, struct io_line *line, const struct io_msg *m,
	int fds[RPWI_RIGHTS_MAX])
{
	struct rpwi_lane *l = line->on_end == line_ended ? line->user : NULL;
	if (!ls || !l || !l->w.mem || l->up || l->cookie != m->cookie || fds[0] < 0)
		return;
	about_to_change(ls);
	l->peer_fd = fds[0];
	fds[0] = -1;
	take_board(l, line->who.pid, fds[1]);
	l->w.refs = m->flags & IO_LANE_REFS;
	l->w.choice = ls->choice;
	l->up = true;
	rpwi_debug("packets for slot %u go through shared memory", l->slot);
}

static void wake(const struct rpwi_lane *l)
{
	uint64_t one = 1;
	rpwi_shield();
	if (l->peer_fd >= 0 && write(l->peer_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		rpwi_debug("lane: cannot wake the other side: %s", strerror(errno));
}

/* ---- sending ---- */

unsigned rpwi_lane_room(struct rpwi_lane *l, unsigned pkts, uint32_t bytes)
{
	unsigned n = rpwi_lane_writer_room(&l->w, pkts, bytes);
	if (RPWI_UNLIKELY(!n) && rpwi_lane_writer_stalls(&l->w, bytes))
		n = rpwi_lane_writer_room(&l->w, pkts, bytes);
	l->of->n.stalls += !n;
	return n;
}

struct fill {
	struct lane_writer *w;
	const struct rpwi_txb *b;
	struct lane_way way;
	bool refs;
	unsigned done, referred;
	const uint8_t *ack; /* of the packet before, an ACK that leads the next one; or NULL */
};

static bool goes_by_reference(const struct fill *x, const struct rpwi_txpkt *t)
{
	return x->refs && t->stays && t->hdr_len <= LANE_REF_HDR_BYTES && t->payload_len;
}

/* A reference is a slot without room for it: there it goes by itself, and first. */
static bool ack_leads(const struct fill *x)
{
	const struct rpwi_txpkt *next = &x->b->pkt[x->done + 1];
	return x->b->ack == x->done + 1 && x->b->ack < x->b->npkt && !goes_by_reference(x, next) &&
	       rpwi_lane_ack_may_lead(next);
}

/* Runs under the guard: a payload may have been unmapped. A packet is seen by the other side when
 * it is whole. */
static void fill(void *arg)
{
	struct fill *x = arg;
	const struct rpwi_txb *b = x->b;
	for (; x->done < b->npkt; x->done++) {
		const struct rpwi_txpkt *t = &b->pkt[x->done];
		if (goes_by_reference(x, t)) {
			if (!rpwi_lane_writer_reference(x->w, &x->way, t, &b->iov[t->iov_first]))
				return;
			x->referred++;
			continue;
		}
		if (ack_leads(x)) {
			x->ack = t->hdr;
			continue;
		}
		if (!rpwi_lane_writer_packet(
			    x->w, &x->way, t, &b->iov[t->iov_first], x->ack, b->npkt - x->done - 1))
			return;
		x->ack = NULL;
	}
}

static void sent_some(struct rpwi_lane *l, unsigned n)
{
	l->of->n.tx_packets += n;
	if (!rpwi_lane_writer_wakes(&l->w))
		return;
	l->of->n.wakes++;
	wake(l);
}

static bool is_large(const struct rpwi_txb *b)
{
	return b->npkt * (uint64_t)b->pkt[0].payload_len >= LANE_REF_MIN_BYTES;
}

int rpwi_lane_fill(struct rpwi_lane *l, uint16_t sport, const struct rpwi_txb *b, unsigned *sent)
{
	struct fill x = {.w = &l->w, .b = b};
	*sent = 0;
	if (!rpwi_lane_writer_way(
		    &l->w, &b->av->flow, sport, b->av->hop_limit, b->av->tclass, &x.way))
		return -ENOSPC;
	x.refs = rpwi_lane_writer_may_refer(&l->w, b);
	if (b->npkt > 1 && !x.refs)
		rpwi_lane_writer_expects(&l->w, b->npkt);
	uint64_t bulk = l->w.bulk_pos;
	uint64_t began_ns = l->w.refs && !x.refs && is_large(b) ? rpwi_now_ns() : 0;
	int rc = rpwi_guard_call(fill, &x);
	rpwi_lane_writer_publish(&l->w);
	if (RPWI_UNLIKELY(x.ack)) /* what it leads is not readable */
		rpwi_lane_writer_packet(&l->w, &x.way, &b->pkt[b->ack - 1], NULL, NULL, 0);
	bulk = l->w.bulk_pos - bulk;
	if (bulk >= LANE_REF_MIN_BYTES)
		rpwi_cost_sampled(&l->w.fill_ns, began_ns, bulk);
	l->of->n.tx_refs += x.referred;
	*sent = x.done;
	sent_some(l, x.done);
	return rc ? rc : x.done == b->npkt ? 0 : -ENOSPC;
}

int rpwi_lane_short(
	struct rpwi_lane *l, uint16_t sport, const struct rpwi_av *av, const struct rpwi_short *s)
{
	struct lane_way way;
	if (!rpwi_lane_writer_way(&l->w, &av->flow, sport, av->hop_limit, av->tclass, &way))
		return -ENOSPC;
	int rc = rpwi_lane_writer_short(&l->w, &way, s);
	if (!rc)
		sent_some(l, s->led + 1);
	return rc;
}

int rpwi_lane_datagram(struct rpwi_lane *l, const struct rpwi_flow *flow, uint8_t ttl, uint8_t tos,
	const void *data, size_t len)
{
	struct lane_way way;
	if (!rpwi_lane_writer_way(&l->w, flow, flow->sport, ttl, tos, &way) ||
		!rpwi_lane_writer_datagram(&l->w, &way, data, (uint32_t)len))
		return -ENOSPC;
	sent_some(l, 1);
	return 0;
}

void rpwi_lanes_revoke_qp(struct rpwi_lanes *ls, uint32_t dqpn)
{
	uint16_t slot = rpwi_slot_of(dqpn);
	if (ls && slot <= RPWI_SLOT_MAX && ls->out[slot])
		rpwi_lane_writer_revoke_qp(&ls->out[slot]->w, dqpn);
}

void rpwi_lanes_revoke_memory(struct rpwi_lanes *ls, const void *addr, size_t len)
{
	if (!ls)
		return;
	for (struct rpwi_list *at = ls->outs.next; at != &ls->outs; at = at->next)
		rpwi_lane_writer_revoke_memory(&lane_at(at)->w, (uint64_t)(uintptr_t)addr, len);
}

/* ---- receiving ---- */

/* What a capture shows is a datagram, whole and with its ICRC. */
static void as_datagram(struct rpwi_lanes *ls, struct lane_packet *p)
{
	uint8_t *d = ls->datagram;
	if (p->kind == LANE_DATAGRAM) {
		memcpy(d, p->payload, p->len);
	} else {
		unsigned pad = -p->len & 3;
		const struct rpwi_iov part = {d + p->hdr_len, p->len};
		memcpy(d, p->data, p->hdr_len);
		memcpy(d + p->hdr_len, p->payload, p->len);
		memset(d + p->hdr_len + p->len, 0, pad);
		rpwi_put_le32(d + p->hdr_len + p->len + pad,
			rpwi_icrc(p->flow, 0, d, p->hdr_len, &part, 1, pad));
		p->len += p->hdr_len + pad + RPWI_ICRC_LEN;
		p->kind = LANE_DATAGRAM;
	}
	p->payload = d;
}

/* The first packet of a turn; one that was fetched, if it is the first of its run. */
static void sample_begins(struct rpwi_lane *l, const struct lane_packet *p)
{
	bool whole = !p->fetched || l->r.pos == l->r.pull_pos;
	l->sample.began_ns = 0;
	if (p->kind != LANE_BULK || p->len < SAMPLED_LEN || !l->r.pull || !whole)
		return;
	l->sample.began_ns = rpwi_now_ns() - (p->fetched ? l->sample.pull_ns : 0);
	l->sample.bytes = 0;
	l->sample.fetched = p->fetched;
}

static void sample_goes_on(struct rpwi_lane *l, const struct lane_packet *p)
{
	l->sample.bytes += p->len * (1ull + p->more);
	if (p->fetched != l->sample.fetched)
		l->sample.began_ns = 0;
}

static void sample_ends(struct rpwi_lane *l)
{
	_Atomic uint32_t *at = l->sample.fetched ? &l->mem->fetched_ns : &l->mem->copied_ns;
	if (l->sample.bytes >= LANE_REF_MIN_BYTES)
		rpwi_cost_sampled(at, l->sample.began_ns, l->sample.bytes);
}

static void turn_ends(struct rpwi_lanes *ls)
{
	struct rpwi_lane *l = ls->turn;
	ls->turn = NULL;
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): a lane that goes ends its turn */
	sample_ends(l);
	bool waits = rpwi_lane_reader_tell(&l->r);
	rpwi_lane_reader_turns(&l->r, false);
	rpwi_list_del(&l->link);
	rpwi_list_add_tail(&ls->in, &l->link);
	if (waits)
		wake(l);
}

static void disarm(struct rpwi_lanes *ls)
{
	uint64_t n;
	ls->armed = false;
	rpwi_shield();
	for (struct rpwi_list *at = ls->in.next; at != &ls->in; at = at->next)
		rpwi_lane_reader_wakes(&lane_at(at)->r);
	if (read(ls->event_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		rpwi_debug("lanes: %s", strerror(errno));
}

static void settle(struct rpwi_lane *l)
{
	if (rpwi_lane_reader_settle(&l->r))
		wake(l);
}

/* The next packet of the lane, into ls->turn. A lane that has come to its end goes. */
static bool next_of(struct rpwi_lane *l, struct lane_packet *p)
{
	struct rpwi_lanes *ls = l->of;
	if (l->after_udp)
		return false;
	int rc;
	if (!ls->turn) {
		if (!rpwi_lane_reader_ready(&l->r) && !l->ended) {
			if (RPWI_UNLIKELY(rpwi_lane_reader_owes(&l->r)))
				settle(l);
			return false;
		}
		rpwi_lane_reader_turns(&l->r, true);
	}
	while (RPWI_UNLIKELY((rc = rpwi_lane_reader_next(&l->r, p)) == -ENODATA)) {
		rpwi_lane_reader_done(&l->r);
		ls->n.rx_lost++;
	}
	if (RPWI_LIKELY(rc > 0)) {
		if (!ls->turn)
			sample_begins(l, p);
		ls->turn = l;
		sample_goes_on(l, p);
		unsigned parts = rpwi_lane_packet_parts(p);
		ls->n.rx_packets += parts;
		ls->taken += parts;
		if (RPWI_UNLIKELY((rpwi_tap_enabled && parts == 1) || p->kind == LANE_DATAGRAM))
			as_datagram(ls, p);
		return true;
	}
	if (RPWI_UNLIKELY(rc < 0)) {
		rpwi_error("closing a lane: process %d of our user wrote something that is not a "
			   "packet",
			l->line ? (int)l->line->who.pid : (int)getpid());
		/* so that it hears of it, and goes on by UDP */
		if (l->line)
			rpwi_lines_drop(ls->lines, l->line);
	}
	if (RPWI_UNLIKELY(rc < 0 || l->ended))
		lane_free(l);
	else if (!ls->turn) {
		if (rpwi_lane_reader_tell(&l->r))
			wake(l);
		rpwi_lane_reader_turns(&l->r, false);
	}
	return false;
}

void rpwi_lanes_linger(const struct rpwi_lanes *ls, unsigned looks)
{
	if (RPWI_UNLIKELY(!ls) || ls->turn || rpwi_list_empty(&ls->in))
		return;
	for (struct rpwi_list *at = ls->in.next; looks; at = at->next) {
		if (at == &ls->in)
			continue;
		if (rpwi_lane_reader_ready(&lane_at(at)->r))
			return;
		looks--;
	}
}

bool rpwi_lanes_recv(struct rpwi_lanes *ls, struct lane_packet *p)
{
	if (RPWI_UNLIKELY(!ls || ls->off || rpwi_fork_broken))
		return false;
	if (RPWI_UNLIKELY(ls->armed))
		disarm(ls);
	if (ls->turn) {
		rpwi_lane_reader_done(&ls->turn->r);
		bool goes_on = ls->taken < PACKETS_A_TURN || rpwi_lane_reader_fetched(&ls->turn->r);
		if (goes_on && next_of(ls->turn, p))
			return true;
		if (ls->turn)
			turn_ends(ls);
		if (goes_on && ls->n_in == 1) /* it has just been looked at */
			return false;
	}
	ls->taken = 0;
	unsigned n = ls->n_in;
	for (struct rpwi_list *at = ls->in.next, *next; n-- && at != &ls->in; at = next) {
		next = at->next;
		if (next_of(lane_at(at), p))
			return true;
	}
	return false;
}

void rpwi_lanes_nth(
	struct rpwi_lanes *ls, const struct lane_packet *p, unsigned n, struct lane_packet *out)
{
	*out = *p;
	rpwi_lane_packet_nth(out, n);
	if (RPWI_UNLIKELY(rpwi_tap_enabled))
		as_datagram(ls, out);
}

bool rpwi_lanes_mid_run(const struct rpwi_lanes *ls)
{
	return ls && ls->turn && rpwi_lane_reader_fetched(&ls->turn->r) > 1;
}

bool rpwi_lanes_any_new(const struct rpwi_lanes *ls) { return ls && ls->any_new; }

void rpwi_lanes_sockets_empty(struct rpwi_lanes *ls)
{
	if (!rpwi_lanes_any_new(ls))
		return;
	ls->any_new = false;
	for (struct rpwi_list *at = ls->in.next; at != &ls->in; at = at->next)
		lane_at(at)->after_udp = false;
}

int rpwi_lanes_fd(const struct rpwi_lanes *ls) { return ls ? ls->event_fd : -1; }

bool rpwi_lanes_arm(struct rpwi_lanes *ls)
{
	bool quiet = true;
	if (!ls || ls->off)
		return true;
	ls->armed = true;
	for (struct rpwi_list *at = ls->in.next; at != &ls->in; at = at->next) {
		struct rpwi_lane *l = lane_at(at);
		if (rpwi_lane_reader_owes(&l->r))
			settle(l);
		quiet &= rpwi_lane_reader_sleeps(&l->r) && !l->after_udp;
	}
	return quiet;
}

void rpwi_lanes_wake_self(const struct rpwi_lanes *ls)
{
	uint64_t one = 1;
	rpwi_shield();
	if (ls && write(ls->event_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		rpwi_debug("lanes: %s", strerror(errno));
}

void rpwi_lanes_stats(const struct rpwi_lanes *ls, struct rpwi_lane_stats *out)
{
	*out = ls ? ls->n : (struct rpwi_lane_stats){0};
}
