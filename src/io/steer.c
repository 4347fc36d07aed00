/* steer.c - the slots of this process, and the abstract Unix sockets through which ropeway processes of one network namespace talk: packets handed to their owner,
 * and the questions of group.c, pace.c and port.c. Never touches a UDP socket.
 *
 * Trust. Anyone on this host can send to an abstract socket, as anyone can send UDP packets to port 4791; but a handed-over packet names its own source address.
 * So each message carries the kernel's word on its sender (SCM_CREDENTIALS, unix(7)), and a packet is taken only from
 *   - our own user and root, and
 *   - the user whose socket is bound to the packet's destination address: the kernel gives that user all packets for it anyway.
 * It is then trusted like one from the network: ICRC, peer and PSN are checked above. What steers (places in the port group) is believed of our own user alone,
 * because port groups are of one user.
 */
#include "io/io_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	MSGS_A_CALL = 64,       /* control messages dealt with in one rpwi_steer_recv */
	SNDBUF_BYTES = 8 << 20, /* a message to a Unix socket is charged to its sender until it is read */
	WAITING_MSGS_MAX = 1024, WAITING_BYTES_MAX = 8 << 20,
	RETRY_NS = 200000,
	HOLDER_FRESH_MS = 100,
	SLOTS_LISTED_MAX = 256,
};

struct waiting {
	struct waiting *next;
	uint16_t slot;
	size_t len;
	struct io_msg msg;
	uint8_t data[];
};

struct rpwi_steer {
	struct { uint16_t no; int fd; } slot[IO_SLOTS_MAX];
	unsigned nslots, turn;
	int epoll_fd;
	uint64_t owned[64]; /* a bit for each slot */
	struct rpwi_pace *pace;
	struct waiting *first, **last;
	unsigned nwaiting;
	size_t waiting_bytes;
	uint64_t retry_at_ns;
	uint64_t taken, lost, distrusted;
	struct { struct rpwi_addr addr; uid_t uid; uint64_t at_ns; bool known; } holder; /* the last that was asked about */
	uint8_t *buf;
};
static struct rpwi_steer *open_steers; /* one; for fork */

/* ---- names ---- */

static socklen_t slot_name(struct sockaddr_un *un, unsigned slot)
{
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	int n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "ropeway/slot/%u", slot);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int bind_slot(unsigned slot)
{
	struct sockaddr_un un;
	int one = 1, sndbuf = SNDBUF_BYTES;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
	if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) || bind(fd, (struct sockaddr *)&un, slot_name(&un, slot))) {
		int rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

/* ---- slots ---- */

/* Begin anywhere: a QPN of a process that has ended should not come back soon (its peers may still send to it). */
static unsigned random_slot(void)
{
	uint32_t r;
	if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != sizeof(r))
		r = (uint32_t)rpwi_now_ns() ^ (uint32_t)getpid() << 16;
	return r % RPWI_SLOT_MAX;
}

static int claim_some(int *fd)
{
	unsigned start = random_slot();
	for (unsigned i = 0; i < RPWI_SLOT_MAX; i++) {
		unsigned no = 1 + (start + i) % RPWI_SLOT_MAX;
		*fd = bind_slot(no);
		if (*fd >= 0)
			return (int)no;
		if (*fd != -EADDRINUSE)
			return *fd;
	}
	return -ENOSPC;
}

int rpwi_steer_claim(struct rpwi_steer *s, uint16_t *slot)
{
	int fd;
	if (s->nslots == IO_SLOTS_MAX)
		return -ENOSPC;
	int no = claim_some(&fd);
	if (no < 0)
		return no;
	struct epoll_event ev = {.events = EPOLLIN};
	if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev)) {
		int rc = -errno;
		close(fd);
		return rc;
	}
	s->slot[s->nslots].no = (uint16_t)no;
	s->slot[s->nslots++].fd = fd;
	s->owned[no / 64] |= 1ull << no % 64;
	*slot = (uint16_t)no;
	for (struct rpwi_port *p = rpwi_ports.first; p; p = rpwi_port_next(p))
		rpwi_group_renew(rpwi_port_group(p), rpwi_now_ns());
	return 0;
}

int rpwi_steer_open(struct rpwi_steer **out)
{
	uint16_t slot;
	struct rpwi_steer *s = calloc(1, sizeof(*s));
	*out = NULL;
	if (!s)
		return -ENOMEM;
	s->last = &s->first;
	s->retry_at_ns = RPWI_NEVER;
	s->buf = aligned_alloc(4096, IO_GRO_BYTES_MAX);
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	int rc = s->epoll_fd < 0 ? -errno : s->buf ? 0 : -ENOMEM;
	if (!rc)
		rc = rpwi_pace_new(&s->pace);
	if (!rc)
		rc = rpwi_steer_claim(s, &slot);
	if (rc) {
		rpwi_steer_close(s);
		return rc;
	}
	open_steers = s;
	*out = s;
	return 0;
}

static void close_sockets(struct rpwi_steer *s)
{
	for (unsigned i = 0; i < s->nslots; i++)
		close(s->slot[i].fd);
	if (s->epoll_fd >= 0)
		close(s->epoll_fd);
	s->nslots = 0;
	s->epoll_fd = -1;
	memset(s->owned, 0, sizeof(s->owned));
	while (s->first) {
		struct waiting *w = s->first;
		s->first = w->next;
		free(w);
	}
	s->last = &s->first;
	s->nwaiting = 0;
	s->waiting_bytes = 0;
	s->retry_at_ns = RPWI_NEVER;
}

void rpwi_steer_close(struct rpwi_steer *s)
{
	if (!s)
		return;
	if (open_steers == s)
		open_steers = NULL;
	close_sockets(s);
	rpwi_pace_free(s->pace);
	free(s->buf);
	free(s);
}

void rpwi_io_atfork_child(void)
{
	for (struct rpwi_port *p = rpwi_ports.first, *next; p; p = next) {
		next = rpwi_port_next(p);
		rpwi_port_forget(p);
	}
	if (open_steers)
		close_sockets(open_steers);
	open_steers = NULL;
}

unsigned rpwi_steer_slots(const struct rpwi_steer *s, uint16_t *slots, unsigned max)
{
	for (unsigned i = 0; i < s->nslots && i < max; i++)
		slots[i] = s->slot[i].no;
	return s->nslots;
}

static bool owns_slot(const struct rpwi_steer *s, unsigned slot) { return s->owned[slot / 64] >> slot % 64 & 1; }
bool rpwi_steer_owns(const struct rpwi_steer *s, uint32_t qpn) { return owns_slot(s, rpwi_slot_of(qpn)); }
int rpwi_steer_fd(const struct rpwi_steer *s) { return s->epoll_fd; }
struct rpwi_pace *rpwi_steer_pace(struct rpwi_steer *s) { return s->pace; }
uint64_t rpwi_steer_taken(const struct rpwi_steer *s) { return s->taken; }

/* ---- telling ---- */

static int tell_fd(int from_fd, uint16_t slot, const struct io_msg *m, const void *data, size_t len, int fd)
{
	struct sockaddr_un un;
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov[2] = {{(void *)(uintptr_t)m, sizeof(*m)}, {(void *)(uintptr_t)data, len}};
	struct msghdr h = {.msg_name = &un, .msg_namelen = slot_name(&un, slot), .msg_iov = iov, .msg_iovlen = len ? 2 : 1};
	if (fd >= 0) {
		memset(&control, 0, sizeof(control));
		h.msg_control = &control;
		h.msg_controllen = sizeof(control);
		struct cmsghdr *c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	return sendmsg(from_fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int rpwi_steer_tell(struct rpwi_steer *s, uint16_t slot, struct io_msg *m, const void *data, size_t len, int fd)
{
	if (!s->nslots)
		return -ENETDOWN;
	m->magic = IO_MSG_MAGIC;
	m->version = IO_MSG_VERSION;
	m->slot = s->slot[0].no;
	return tell_fd(s->slot[0].fd, slot, m, data, len, fd);
}

static void wait_in_queue(struct rpwi_steer *s, uint16_t slot, const struct io_msg *m, const void *data, size_t len)
{
	struct waiting *w = NULL;
	if (s->nwaiting < WAITING_MSGS_MAX && s->waiting_bytes + len <= WAITING_BYTES_MAX)
		w = malloc(sizeof(*w) + len);
	if (!w) {
		s->lost++;
		return;
	}
	w->next = NULL;
	w->slot = slot;
	w->len = len;
	w->msg = *m;
	memcpy(w->data, data, len);
	*s->last = w;
	s->last = &w->next;
	s->nwaiting++;
	s->waiting_bytes += len;
	if (s->retry_at_ns == RPWI_NEVER)
		s->retry_at_ns = rpwi_now_ns() + RETRY_NS;
}

void rpwi_steer_pass(struct rpwi_steer *s, uint16_t slot, struct io_msg *m, const void *data, size_t len)
{
	int rc = s->first ? -EAGAIN : rpwi_steer_tell(s, slot, m, data, len, -1);
	if (rc == -EAGAIN || rc == -ENOBUFS)
		wait_in_queue(s, slot, m, data, len);
	else if (rc) {
		s->lost++; /* ECONNREFUSED: no process has that slot */
		rpwi_debug("packets for slot %u: nobody to hand them to: %s", slot, strerror(-rc));
	}
}

/* In order, and one owner that does not read holds the others up no longer than a round. */
void rpwi_steer_retry(struct rpwi_steer *s)
{
	uint64_t full[64] = {0};
	struct waiting **at = &s->first;
	while (*at) {
		struct waiting *w = *at;
		int rc = full[w->slot / 64] >> w->slot % 64 & 1 ? -EAGAIN : rpwi_steer_tell(s, w->slot, &w->msg, w->data, w->len, -1);
		if (rc == -EAGAIN || rc == -ENOBUFS) {
			full[w->slot / 64] |= 1ull << w->slot % 64;
			at = &w->next;
			continue;
		}
		*at = w->next;
		s->nwaiting--;
		s->waiting_bytes -= w->len;
		free(w);
	}
	s->last = at;
	s->retry_at_ns = s->first ? rpwi_now_ns() + RETRY_NS : RPWI_NEVER;
}

uint64_t rpwi_steer_retry_at(const struct rpwi_steer *s) { return s->retry_at_ns; }

/* ---- listening ---- */

struct heard {
	struct io_msg msg;
	uid_t uid;
	bool has_uid;
	int fd; /* that came along, or -1 */
	size_t len; /* of the data after the message */
};

static void read_control(struct msghdr *h, struct heard *got)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_CREDENTIALS && c->cmsg_len >= CMSG_LEN(sizeof(struct ucred))) {
			struct ucred cred;
			memcpy(&cred, CMSG_DATA(c), sizeof(cred));
			got->uid = cred.uid;
			got->has_uid = true;
		} else if (c->cmsg_type == SCM_RIGHTS) {
			/* The control buffer has room for one or two, whatever was sent. */
			size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
			for (size_t i = 0; i < n; i++) {
				int fd;
				memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
				if (got->fd < 0)
					got->fd = fd;
				else
					close(fd);
			}
		}
	}
}

/* 1, 0 nothing there, -EBADMSG for what is not ours, or -errno. */
static int hear(int fd, struct heard *got, uint8_t *buf, size_t room)
{
	union {
		char room[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov[2] = {{&got->msg, sizeof(got->msg)}, {buf, room}};
	struct msghdr h = {.msg_iov = iov, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof(control)};
	got->fd = -1;
	got->has_uid = false;
	ssize_t n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	read_control(&h, got);
	const struct io_msg *m = &got->msg;
	if ((size_t)n < sizeof(*m) || (h.msg_flags & MSG_TRUNC) || m->magic != IO_MSG_MAGIC || m->version != IO_MSG_VERSION || !got->has_uid) {
		if (got->fd >= 0)
			close(got->fd);
		return -EBADMSG;
	}
	got->len = (size_t)n - sizeof(*m);
	return 1;
}

/* Who holds the port of `a` now, asked at most every 100 ms for one address. */
static bool is_holder(struct rpwi_steer *s, const struct rpwi_addr *a, uid_t uid)
{
	uint64_t now = rpwi_now_ns();
	if (!rpwi_addr_eq(&s->holder.addr, a) || now - s->holder.at_ns > HOLDER_FRESH_MS * RPWI_NS_PER_MS) {
		struct io_holder h;
		s->holder.known = !rpwi_holder_find(a, &h) && h.sockets;
		s->holder.uid = s->holder.known ? h.uid : 0;
		s->holder.addr = *a;
		s->holder.at_ns = now;
	}
	return s->holder.known && s->holder.uid == uid;
}

static bool take_packet(struct rpwi_steer *s, const struct heard *got, struct rpwi_rx *rx)
{
	const struct io_msg *m = &got->msg;
	const struct rpwi_flow *f = &m->flow;
	bool shaped = got->len && m->seg_len && m->seg_len <= got->len && f->dport == RPWI_UDP_PORT && f->src.family == f->dst.family &&
		(f->dst.family == 4 || f->dst.family == 6);
	bool trusted = shaped && (got->uid == geteuid() || got->uid == 0 || is_holder(s, &f->dst, got->uid));
	if (!trusted) {
		s->distrusted++;
		rpwi_debug("a packet handed over by user %u is not taken: %s", got->uid, shaped ? "that user does not hold our port" : "malformed");
		return false;
	}
	*rx = (struct rpwi_rx){.flow = *f, .ttl = m->ttl, .tos = m->tos, .data = s->buf, .len = got->len, .seg_len = m->seg_len, .ip_id = m->ip_id};
	s->taken += (rx->len + rx->seg_len - 1) / rx->seg_len;
	return true;
}

/* Do we receive for that address? */
static bool we_hold(const struct rpwi_addr *a)
{
	for (struct rpwi_port *p = rpwi_ports.first; p; p = rpwi_port_next(p))
		if (rpwi_addr_eq(rpwi_port_local(p), a) && rpwi_port_rx_fd(p) >= 0)
			return true;
	return false;
}

static bool holds_any(void)
{
	for (struct rpwi_port *p = rpwi_ports.first; p; p = rpwi_port_next(p))
		if (rpwi_port_rx_fd(p) >= 0)
			return true;
	return false;
}

static void answer_probe(const struct heard *got)
{
	if (got->uid != geteuid())
		return;
	for (struct rpwi_port *p = rpwi_ports.first; p; p = rpwi_port_next(p))
		rpwi_group_answer(rpwi_port_group(p), &got->msg);
}

static void handle(struct rpwi_steer *s, struct heard *got)
{
	struct io_msg *m = &got->msg;
	struct io_msg answer = {.cookie = m->cookie};
	switch (m->type) {
	case IO_MSG_PROBE_ANSWER:
		answer_probe(got);
		break;
	case IO_MSG_PAGE_ASK:
		answer.type = IO_MSG_PAGE_ANSWER;
		answer.index = m->index; /* the slot they asked for */
		if (owns_slot(s, m->index % 4096))
			rpwi_steer_tell(s, m->slot, &answer, NULL, 0, rpwi_pace_fd(s->pace));
		break;
	case IO_MSG_PAGE_ANSWER:
		if (got->fd >= 0 && m->index <= RPWI_SLOT_MAX) {
			rpwi_pace_answer(s->pace, (uint16_t)m->index, m->cookie, got->fd);
			got->fd = -1;
		}
		break;
	case IO_MSG_HOLD_ASK:
		answer.type = IO_MSG_HOLD_ANSWER;
		if (we_hold(&m->flow.dst))
			rpwi_steer_tell(s, m->slot, &answer, NULL, 0, -1);
		break;
	default:
		rpwi_debug("message of type %u from user %u: unknown", m->type, got->uid);
	}
	if (got->fd >= 0)
		close(got->fd);
}

int rpwi_steer_recv(struct rpwi_steer *s, struct rpwi_rx *rx)
{
	struct heard got;
	uint64_t snapshot = rpwi_pace_snapshot(s->pace);
	unsigned empty = 0;
	for (unsigned i = 0; i < MSGS_A_CALL && empty < s->nslots; i++) {
		int rc = hear(s->slot[s->turn % s->nslots].fd, &got, s->buf, IO_GRO_BYTES_MAX);
		if (rc == -EBADMSG)
			continue;
		if (rc <= 0) {
			s->turn++;
			empty++;
			continue;
		}
		empty = 0;
		if (got.msg.type != IO_MSG_PACKET) {
			handle(s, &got);
			continue;
		}
		if (got.fd >= 0)
			close(got.fd);
		if (take_packet(s, &got, rx))
			return 1;
	}
	if (empty && empty == s->nslots && !holds_any())
		rpwi_pace_empty(s->pace, snapshot);
	return 0;
}

/* ---- who holds the port? ---- */

/* The slots that are claimed now, from /proc/net/unix: it lists the abstract names of this network namespace, to any user. */
static unsigned list_slots(uint16_t *slots, unsigned max)
{
	unsigned n = 0;
	char line[512];
	FILE *f = fopen("/proc/net/unix", "re");
	while (f && n < max && fgets(line, sizeof(line), f)) {
		const char *at = strstr(line, " @ropeway/slot/");
		unsigned slot;
		if (at && sscanf(at, " @ropeway/slot/%u", &slot) == 1 && slot >= 1 && slot <= RPWI_SLOT_MAX)
			slots[n++] = (uint16_t)slot;
	}
	if (f)
		fclose(f);
	return n;
}

/* From a slot claimed for this alone: the answers must not mix with packets. */
bool rpwi_steer_ask_holder(const struct rpwi_addr *a, int timeout_ms)
{
	uint16_t slots[SLOTS_LISTED_MAX];
	unsigned n = list_slots(slots, SLOTS_LISTED_MAX);
	struct io_holder h;
	int fd, no = n && !rpwi_holder_find(a, &h) && h.sockets ? claim_some(&fd) : -ENOENT;
	if (no < 0)
		return false;
	struct io_msg m = {.magic = IO_MSG_MAGIC, .version = IO_MSG_VERSION, .type = IO_MSG_HOLD_ASK, .slot = (uint16_t)no, .cookie = rpwi_now_ns()};
	m.flow.dst = *a;
	for (unsigned i = 0; i < n; i++)
		(void)tell_fd(fd, slots[i], &m, NULL, 0, -1);
	bool held = false;
	uint64_t now = rpwi_now_ns(), until = now + (uint64_t)timeout_ms * RPWI_NS_PER_MS;
	for (; !held && now < until; now = rpwi_now_ns()) {
		struct pollfd pf = {.fd = fd, .events = POLLIN};
		struct heard got;
		uint8_t none[1];
		if (poll(&pf, 1, (int)((until - now) / RPWI_NS_PER_MS) + 1) < 1 || hear(fd, &got, none, sizeof(none)) != 1)
			continue;
		if (got.fd >= 0)
			close(got.fd);
		held = got.msg.type == IO_MSG_HOLD_ANSWER && got.msg.cookie == m.cookie && got.uid == h.uid;
	}
	close(fd);
	return held;
}

/* ---- pacing ---- */

unsigned rpwi_steer_room(struct rpwi_steer *s, uint32_t qpn, unsigned pkts, size_t bytes)
{
	uint16_t slot = rpwi_slot_of(qpn);
	return rpwi_pace_room(s->pace, s, slot, owns_slot(s, slot), pkts, bytes);
}

void rpwi_steer_unused(struct rpwi_steer *s, uint32_t qpn, unsigned pkts, size_t bytes) { rpwi_pace_unused(s->pace, pkts); }
