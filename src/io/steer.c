/* steer.c - the slots of this process, and the abstract Unix sockets through which ropeway processes of one network namespace talk (their names: dest.c). What they say is
 * handed on: packets to handover.c (which says whom it trusts), answers to group.c and pace.c. Never touches a UDP socket.
 *
 * Each message carries the kernel's word on its sender (SCM_CREDENTIALS, unix(7)). What steers (places in the port group) is believed of our own user alone, because port
 * groups are of one user; questions are answered to anyone: the answers are no secret.
 */
#include "io/io_priv.h"

#include "base/lock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
	MSGS_A_CALL = 64, /* control messages dealt with in one rpwi_steer_recv */
	SLOTS_LISTED_MAX = 256,
	TOLD_PARTS_MAX = 2,
};

struct rpwi_steer {
	struct {
		uint16_t no;
		int fd;
	} slot[IO_SLOTS_MAX];
	unsigned nslots, turn;
	int epoll_fd;
	uint64_t owned[64]; /* a bit for each slot */
	struct rpwi_pace *pace;
	struct rpwi_handover *over;
	struct rpwi_claims *claims;
};
static struct rpwi_steer *open_steers; /* one; for fork */

/* ---- slots ---- */

/* Begin anywhere: a QPN of a process that has ended should not come back soon (its peers may still send to it). */
static unsigned random_slot(void) { return (uint32_t)rpwi_random64() % RPWI_SLOT_MAX; }

static int claim_some(int *fd)
{
	unsigned start = random_slot();
	for (unsigned i = 0; i < RPWI_SLOT_MAX; i++) {
		unsigned no = 1 + (start + i) % RPWI_SLOT_MAX;
		*fd = rpwi_dest_bind(&(struct io_dest){.slot = (uint16_t)no});
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

static int listen_to_claims(struct rpwi_steer *s)
{
	struct epoll_event ev = {.events = EPOLLIN};
	s->claims = rpwi_claims_new();
	if (!s->claims)
		return -ENOMEM;
	return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, rpwi_claims_fd(s->claims), &ev) ? -errno : 0;
}

int rpwi_steer_open(struct rpwi_steer **out)
{
	uint16_t slot;
	struct rpwi_steer *s = calloc(1, sizeof(*s));
	*out = NULL;
	if (!s)
		return -ENOMEM;
	s->over = rpwi_handover_new();
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	int rc = s->epoll_fd < 0 ? -errno : s->over ? 0 : -ENOMEM;
	if (!rc)
		rc = listen_to_claims(s);
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
	rpwi_claims_free(s->claims);
	s->claims = NULL;
	if (s->epoll_fd >= 0)
		close(s->epoll_fd);
	s->nslots = 0;
	s->epoll_fd = -1;
	memset(s->owned, 0, sizeof(s->owned));
	if (s->over)
		rpwi_handover_forget(s->over);
}

void rpwi_steer_close(struct rpwi_steer *s)
{
	if (!s)
		return;
	if (open_steers == s)
		open_steers = NULL;
	close_sockets(s);
	rpwi_pace_free(s->pace);
	rpwi_handover_free(s->over);
	free(s);
}

void rpwi_io_atfork_child(void)
{
	for (struct rpwi_port *p = rpwi_ports.first, *next; p; p = next) {
		next = rpwi_port_next(p);
		rpwi_port_forget(p);
	}
	rpwi_ports.first = NULL; /* the next one to be opened for the same address is a new one */
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
struct rpwi_handover *rpwi_steer_handover(struct rpwi_steer *s) { return s->over; }
bool rpwi_steer_slot_exists(uint16_t slot) { return slot >= 1 && slot <= RPWI_SLOT_MAX && rpwi_dest_exists(&(struct io_dest){.slot = slot}); }

/* ---- services ---- */

int rpwi_steer_claim_service(struct rpwi_steer *s, uint64_t service_id, const struct rpwi_addr *addr)
{
	return s->claims ? rpwi_claims_add(s->claims, service_id, addr) : -ENETDOWN;
}

void rpwi_steer_unclaim_service(struct rpwi_steer *s, uint64_t service_id, const struct rpwi_addr *addr)
{
	if (s->claims)
		rpwi_claims_del(s->claims, service_id, addr);
}

bool rpwi_steer_owns_service(const struct rpwi_steer *s, uint64_t service_id, const struct rpwi_addr *local)
{
	return s->claims && rpwi_claims_cover(s->claims, service_id, local);
}

/* ---- telling ---- */

static int tell_fd(int from_fd, const struct io_dest *to, const struct io_msg *m, const struct iovec *data, unsigned parts, int fd)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov[1 + TOLD_PARTS_MAX] = {{(void *)(uintptr_t)m, sizeof(*m)}};
	struct msghdr h = {.msg_iov = iov, .msg_iovlen = 1 + parts};
	assert(parts <= TOLD_PARTS_MAX);
	for (unsigned i = 0; i < parts; i++)
		iov[1 + i] = data[i];
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
	return rpwi_dest_send(from_fd, to, &h);
}

int rpwi_steer_tell_dest(struct rpwi_steer *s, const struct io_dest *to, struct io_msg *m, const struct iovec *data, unsigned parts, int fd)
{
	if (!s->nslots)
		return -ENETDOWN;
	m->magic = IO_MSG_MAGIC;
	m->version = IO_MSG_VERSION;
	m->slot = s->slot[0].no;
	return tell_fd(s->slot[0].fd, to, m, data, parts, fd);
}

int rpwi_steer_tell(struct rpwi_steer *s, uint16_t slot, struct io_msg *m, const struct iovec *data, unsigned parts, int fd)
{
	return rpwi_steer_tell_dest(s, &(struct io_dest){.slot = slot}, m, data, parts, fd);
}

/* ---- listening ---- */

struct heard {
	struct io_msg msg;
	uid_t uid;
	bool has_uid;
	int fd;     /* that came along, or -1 */
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
		if (we_hold(&m->addr))
			rpwi_steer_tell(s, m->slot, &answer, NULL, 0, -1);
		break;
	default:
		rpwi_debug("message of type %u from user %u: unknown", m->type, got->uid);
	}
	if (got->fd >= 0)
		close(got->fd);
}

static bool next_taken(struct rpwi_steer *s, struct rpwi_rx *rx)
{
	if (!rpwi_handover_next(s->over, rx))
		return false;
	if (!holds_any())
		rpwi_pace_arrived(s->pace, (unsigned)((rx->len + rx->seg_len - 1) / rx->seg_len), rx->len);
	return true;
}

/* Place 0 to nslots - 1 is a slot's socket; the last, that of some claimed service which has something. */
static int hear_at(struct rpwi_steer *s, unsigned place, struct heard *got, uint8_t *buf, size_t room)
{
	int fd = place < s->nslots ? s->slot[place].fd : rpwi_claims_ready(s->claims);
	return fd < 0 ? 0 : hear(fd, got, buf, room);
}

/* Deal with what others ask, until a message brings packets (true: they wait in s->over) or nothing is there. */
static bool serve(struct rpwi_steer *s)
{
	struct heard got;
	size_t room;
	uint8_t *buf = rpwi_handover_buf(s->over, &room);
	for (unsigned i = 0, empty = 0; i < MSGS_A_CALL && s->nslots && empty <= s->nslots; i++) {
		int rc = hear_at(s, s->turn % (s->nslots + 1), &got, buf, room);
		if (rc == -EBADMSG)
			continue;
		if (rc <= 0) {
			s->turn++;
			empty++;
			continue;
		}
		empty = 0;
		if (got.msg.type != IO_MSG_PACKETS) {
			handle(s, &got);
			continue;
		}
		if (got.fd >= 0)
			close(got.fd);
		s->turn++; /* others have their turn before the next message from there */
		rpwi_handover_arrived(s->over, got.uid, got.len);
		return true;
	}
	return false;
}

void rpwi_steer_serve(struct rpwi_steer *s)
{
	if (!rpwi_handover_pending(s->over))
		serve(s);
}

int rpwi_steer_recv(struct rpwi_steer *s, struct rpwi_rx *rx)
{
	if (RPWI_UNLIKELY(rpwi_fork_broken))
		return 0;
	do {
		if (next_taken(s, rx))
			return 1;
	} while (serve(s));
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
	m.addr = *a;
	for (unsigned i = 0; i < n; i++)
		(void)tell_fd(fd, &(struct io_dest){.slot = slots[i]}, &m, NULL, 0, -1);
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
