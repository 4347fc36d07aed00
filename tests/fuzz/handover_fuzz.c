/* SPDX-License-Identifier: BSD-3-Clause */
/* handover_fuzz.c - hand-over and steering (src/io) in the hands of the other processes of the
 * host: those of our own user, and strangers. The input has them listen at names of slots and
 * services, also at ours, and at such as would forge lines of /proc/net/unix; connect to our
 * listeners; send messages of every type, true, forged and cut, with descriptors or none; answer
 * what we ask; hold the port of an address. Between that it claims services, hands packets over,
 * asks for room, passes time. Users, time, random numbers and /proc are the target's own; sockets
 * are real, under names that nobody has.
 *
 * Checked all along: packets are taken from our user alone, or, where we share the port, from who
 * holds it; a stranger is told nothing, and gets nothing but what is for sharing; the steering
 * program has nobody's slots but those that our user has told; lines of strangers and what waits
 * for owners are bounded; no descriptor stays behind.
 */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/descriptors.h"
#include "handover_fake.h"

enum {
	COMMANDS_MAX = 250,
	STRANGER_LINES_MAX = 16,
	SAID_MAX = 4096,
	/* no byte of what is sent: shows that something was read which nobody has sent */
	UNSENT = 0xee,
	WAITING_MAX = 10 << 20,
	PAGE_BYTES = 4096,
};
static const uint16_t slots_of_others[] = {10, 11, 3000, 3590, 4094};
static const struct rpwi_addr here = {.family = 4, .bytes = {127, 0, 0, 1}},
			      here6 = {.family = 6, .bytes = {[15] = 1}},
			      away = {.family = 4, .bytes = {127, 0, 0, 9}};

static uint8_t batch[IO_GRO_BYTES_MAX];

size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

/* ---- what others do ---- */

static enum who some_who(uint8_t b) { return (enum who)(b % WHOS); }

static struct io_dest some_dest(uint8_t b)
{
	struct io_dest d = {0};
	uint16_t own = 0;
	rpwi_steer_slots(run.steer, &own, 1);
	if (b & 0x80)
		d = (struct io_dest){.service_id = 0x1060000 + (b & 3),
			.shared = b & 4,
			.addr = b & 8 ? here : (struct rpwi_addr){0}};
	else
		d.slot = b % 8 < RPWI_ARRAY_LEN(slots_of_others) ? slots_of_others[b % 8] : own;
	return d;
}

static socklen_t un_make(struct sockaddr_un *un, const char *text)
{
	*un = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(un->sun_path + 1, text, RPWI_MIN(strlen(text), sizeof(un->sun_path) - 1));
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(text));
}

static int stranger_socket(const char *text)
{
	struct sockaddr_un un;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd >= 0 && !__wrap_bind(fd, (struct sockaddr *)&un, un_make(&un, text)))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static void unlisten(struct name *n)
{
	for (unsigned i = 0; n->used && i < CONNS; i++)
		if (n->conn[i] >= 0)
			close(n->conn[i]);
	if (n->used)
		close(n->fd);
	n->used = false;
}

static void listen_as(struct name *n, enum who who)
{
	uint8_t b = fuzz_u8(&run.in), how = fuzz_u8(&run.in);
	if (n->used)
		return;
	*n = (struct name){.who = who, .dest = some_dest(b), .conn = {-1, -1, -1}};
	/* The name is made as ropeway makes it, but of the user whose it is. */
	rpwi_dest_name(&n->dest, n->text);
	if (how >= 0xf0)
		snprintf(n->text, sizeof(n->text), "x\n 00010000 @ropeway/%u/service/%x/9", run.us,
			0x1060000 + (b & 3));
	n->fd = stranger_socket(n->text);
	n->used = n->fd >= 0;
	if (n->used && how < 0xe0)
		listen(n->fd, how & 1 ? 0 : 16);
}

static bool is_others(const char *text)
{
	for (unsigned i = 0; i < NAMES; i++)
		if (run.name[i].used && !strcmp(run.name[i].text, text))
			return true;
	return false;
}

/* Of a name whose queue is full the kernel's list says whose it is. */
int __wrap_rpwi_who_listens(const char *text, struct rpwi_who *w);
int __wrap_rpwi_who_listens(const char *text, struct rpwi_who *w)
{
	for (unsigned i = 0; i < NAMES; i++)
		if (run.name[i].used && !strcmp(run.name[i].text, text)) {
			*w = (struct rpwi_who){.uid = uid_of(run.name[i].who),
				.pid = -1,
				.us = is_trusted(run.name[i].who)};
			return 0;
		}
	return -ENOENT;
}

static void connect_as(struct line *l, enum who who, uint8_t b)
{
	struct sockaddr_un un;
	char text[RPWI_NAME_MAX];
	struct io_dest d = some_dest(b);
	uint16_t own = 0;
	if (l->fd >= 0)
		return;
	rpwi_steer_slots(run.steer, &own, 1);
	if (!(b & 0x80))
		d.slot = own;
	snprintf(text, sizeof(text), "who/%u/%u", who, run.serial++);
	*l = (struct line){.who = who, .fd = stranger_socket(text)};
	if (l->fd < 0 ||
		(!is_others(rpwi_dest_name(&d, text)) &&
			!__wrap_connect(l->fd, (struct sockaddr *)&un, un_make(&un, text))))
		return;
	close(l->fd);
	l->fd = -1;
}

static int page_make(uint8_t how)
{
	static const uint32_t magic = 0x70616365;
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, how & 1 ? PAGE_BYTES : how) ||
		(how & 2 && pwrite(fd, &magic, sizeof(magic), 0) < 0))
		abort();
	for (unsigned at = 8; how & 4 && how & 1 && at < 192; at += 8) {
		uint64_t v = (uint64_t)fuzz_u8(&run.in) << fuzz_u8(&run.in) % 64;
		if (pwrite(fd, &v, sizeof(v), (off_t)at) < 0)
			abort();
	}
	fcntl(fd, F_ADD_SEALS,
		(how & 8 ? F_SEAL_SHRINK : 0) | (how & 16 ? F_SEAL_WRITE : 0) |
			(how & 32 ? F_SEAL_GROW : 0));
	if (run.page_fd >= 0)
		close(run.page_fd);
	run.page_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return fd;
}

static struct rpwi_addr some_addr(uint8_t b)
{
	return b % 4 == 0   ? here6
	       : b % 4 == 1 ? away
	       : b >= 0xf0  ? (struct rpwi_addr){.family = b}
			    : here;
}

static size_t add_record(uint8_t *to, size_t room)
{
	uint8_t b = fuzz_u8(&run.in);
	struct io_packet k = {.flow = {.src = some_addr(fuzz_u8(&run.in)),
				      .dst = some_addr(fuzz_u8(&run.in)),
				      .dport = b & 1 ? RPWI_UDP_PORT : fuzz_u16(&run.in)},
		.len = fuzz_u8(&run.in)};
	size_t n = sizeof(k) + k.len;
	k.seg_len = b & 2 ? k.len : fuzz_u8(&run.in);
	if (b & 4)
		((uint8_t *)&k)[fuzz_u8(&run.in) % sizeof(k)] = fuzz_u8(&run.in);
	if (b >= 0xe0)
		k.len += (uint32_t)fuzz_u16(&run.in) << (b & 15);
	if (n > room)
		return 0;
	memcpy(to, &k, sizeof(k));
	memset(to + sizeof(k), 1, n - sizeof(k));
	return n;
}

/* Each record that can be found says who sent it. */
static void mark(uint8_t *p, size_t len, enum who who)
{
	struct io_packet k;
	for (size_t at = 0; at < len && len - at >= sizeof(k); at += sizeof(k) + k.len) {
		memcpy(&k, p + at, sizeof(k));
		k.flow.sport = (uint16_t)who;
		memcpy(p + at, &k, sizeof(k));
		if (k.len > len - at - sizeof(k))
			break;
	}
}

static uint64_t some_cookie(uint8_t b)
{
	return b & 0x80 ? run.page_cookie : b & 0x40 ? run.probe_cookie : b;
}

/* One message, on one of our lines, or on one that we have opened. */
static void say(int fd, enum who who)
{
	static uint8_t bytes[SAID_MAX];
	uint8_t how = fuzz_u8(&run.in), b = fuzz_u8(&run.in), page = fuzz_u8(&run.in),
		cut = how & 0x40 ? fuzz_u8(&run.in) : 0;
	struct io_msg m = {.magic = IO_MSG_MAGIC,
		.version = IO_MSG_VERSION,
		.type = b % 6,
		.cookie = some_cookie(fuzz_u8(&run.in)),
		.index = fuzz_u8(&run.in),
		.nslots = b / 6 % 4};
	size_t len = sizeof(m);
	int fds[3], count = how & 3;
	if (m.type == IO_MSG_PAGE_ASK || m.type == IO_MSG_PAGE_ANSWER)
		m.index = some_dest((uint8_t)m.index & 0x7f).slot;
	for (unsigned i = 0; i < m.nslots && i < 4; i++)
		m.slots[i] = slots_of_others[fuzz_u8(&run.in) % RPWI_ARRAY_LEN(slots_of_others)];
	if (how & 4)
		m.nslots = fuzz_u16(&run.in);
	if (how >= 0xf0)
		((uint8_t *)&m)[fuzz_u8(&run.in) % sizeof(m)] = fuzz_u8(&run.in);
	memcpy(bytes, &m, sizeof(m));
	for (unsigned n = m.type == IO_MSG_PACKETS ? 1 + (how >> 3 & 3) : 0; n; n--)
		len += add_record(bytes + len, sizeof(bytes) - len);
	len -= RPWI_MIN(len, (size_t)cut);
	if (len > sizeof(m))
		mark(bytes + sizeof(m), len - sizeof(m), who);
	for (size_t i = sizeof(m); i < len; i++)
		bytes[i] = bytes[i] == UNSENT ? UNSENT + 1 : bytes[i];
	for (unsigned i = 0; i < m.nslots && i < IO_SLOTS_MAX && is_trusted(who); i++)
		if (m.slots[i] <= RPWI_SLOT_MAX)
			run.told[m.slots[i] / 64] |= 1ull << m.slots[i] % 64;
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(fds))];
	} control;
	struct iovec iov = {bytes, len};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
	memset(&control, 0, sizeof(control));
	for (int i = 0; i < count; i++)
		fds[i] = page_make(page);
	if (count) {
		h.msg_control = &control;
		h.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)count * sizeof(int));
	}
	sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
	for (int i = 0; i < count; i++)
		close(fds[i]);
}

/* ---- what others get ---- */

static void check_records(const uint8_t *p, size_t len)
{
	struct io_packet k;
	for (; len; p += k.len, len -= k.len) {
		if (len < sizeof(k))
			fuzz_broken("a record that is cut is handed over");
		memcpy(&k, p, sizeof(k));
		p += sizeof(k);
		len -= sizeof(k);
		if (!k.len || k.len > len || !k.seg_len || k.seg_len > k.len)
			fuzz_broken("a malformed record is handed over");
	}
}

/* -1: closed; 0: nothing there; 1: a message, *m its head. */
static int get(int fd, struct io_msg *m)
{
	static uint8_t bytes[4 * IO_GRO_BYTES_MAX];
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {bytes, sizeof(bytes)};
	struct msghdr h = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n <= 0)
		return n < 0 && errno == EAGAIN ? 0 : -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c))
		if (c->cmsg_type == SCM_RIGHTS) {
			int got;
			memcpy(&got, CMSG_DATA(c), sizeof(got));
			close(got);
		}
	if ((size_t)n < sizeof(*m) || h.msg_flags & MSG_TRUNC)
		fuzz_broken("a message without a head, or longer than any may be");
	memcpy(m, bytes, sizeof(*m));
	if (m->type == IO_MSG_PACKETS)
		check_records(bytes + sizeof(*m), (size_t)n - sizeof(*m));
	return 1;
}

static void name_reads(struct name *n)
{
	struct io_msg m;
	int fd;
	for (unsigned i = 0; n->used && i < CONNS; i++) {
		if (n->conn[i] < 0)
			n->conn[i] = accept4(n->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		for (int k = 0; n->conn[i] >= 0 && k < 8; k++) {
			int rc = get(n->conn[i], &m);
			if (rc < 0) {
				close(n->conn[i]);
				n->conn[i] = -1;
			}
			if (rc <= 0)
				break;
			if (!is_trusted(n->who) && !is_for_sharing(&n->dest))
				fuzz_broken("a stranger who has taken a name is told something");
			if (m.type == IO_MSG_PAGE_ASK)
				run.page_cookie = m.cookie;
		}
	}
	if (n->used && (fd = accept4(n->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		close(fd);
}

static void line_reads(struct line *l)
{
	struct io_msg m;
	int rc = l->fd >= 0 ? get(l->fd, &m) : 0;
	if (rc < 0) {
		close(l->fd);
		l->fd = -1;
	}
	if (rc <= 0)
		return;
	if (!is_trusted(l->who) && !run.shares)
		fuzz_broken("a stranger is answered");
	if (m.type != IO_MSG_PAGE_ANSWER || !rpwi_steer_owns(run.steer, m.index << RPWI_SLOT_SHIFT))
		fuzz_broken("an answer to nothing that could be asked");
}

/* ---- what we do ---- */

/* Now, or a moment ago: the answer is remembered. */
static bool holds(enum who who, const struct rpwi_addr *a)
{
	enum { REMEMBERED_NS = 100000000 };
	if (!rpwi_addr_eq(a, &here) && !rpwi_addr_eq(a, &here6))
		return false;
	for (int w = 0; w < WHOS; w++)
		if (uid_of((enum who)w) == uid_of(who) &&
			(w == run.holder.who ||
				(run.holder.until_ns[w] &&
					fuzz_clock.now_ns - run.holder.until_ns[w] <=
						REMEMBERED_NS)))
			return true;
	return false;
}

static void check_taken(const struct rpwi_rx *rx)
{
	enum who who = (enum who)rx->flow.sport;
	if (!rx->len || !rx->seg_len || rx->seg_len > rx->len || rx->flow.dport != RPWI_UDP_PORT)
		fuzz_broken("a malformed packet is taken");
	if ((unsigned)who >= WHOS ||
		!(is_trusted(who) || (run.shares && holds(who, &rx->flow.dst))))
		fuzz_broken("a packet is taken from who may not hand it over");
	if (memchr(rx->data, UNSENT, rx->len))
		fuzz_broken("more is taken than was sent");
}

static void take(void)
{
	struct rpwi_rx rx;
	size_t room;
	uint8_t *buf = rpwi_handover_buf(rpwi_steer_handover(run.steer), &room);
	for (int i = 0; i < 64; i++) {
		if (!rpwi_handover_pending(rpwi_steer_handover(run.steer)))
			memset(buf, UNSENT, 2 * SAID_MAX);
		if (rpwi_steer_recv(run.steer, &rx) <= 0)
			break;
		check_taken(&rx);
	}
}

static void check_lines(void)
{
	unsigned strangers = 0;
	char c;
	/* whoever has connected is let in or turned away, some at a time */
	for (int i = 0; i < 32; i++)
		take();
	for (unsigned i = 0; i < LINES; i++)
		if (run.line[i].fd >= 0 && !is_trusted(run.line[i].who)) {
			ssize_t n = recv(run.line[i].fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
			strangers += n > 0 || (n < 0 && errno == EAGAIN);
		}
	if (strangers > (run.shares ? STRANGER_LINES_MAX : 0))
		fuzz_broken("more strangers are let in than there may be");
}

static void hand_over(uint8_t b)
{
	uint8_t how = fuzz_u8(&run.in);
	size_t seg = how & 0x80 ? 4096 : 1 + fuzz_u8(&run.in),
	       n = how & 0x40 && run.floods++ < 4 ? 15 : 1 + how % 4;
	struct rpwi_rx rx = {.flow = {.src = away, .dst = here, .dport = RPWI_UDP_PORT},
		.ttl = 64,
		.data = batch,
		.len = n * seg,
		.seg_len = seg,
		.ip_id = -1};
	struct io_dest d = some_dest(b);
	if (!run.port)
		return;
	for (unsigned times = n == 15 ? 200 : 1; times; times--)
		for (size_t i = 0; i < n; i++)
			if (d.slot)
				rpwi_port_hand_over(run.port, &rx, batch + i * seg, seg,
					(uint32_t)d.slot << RPWI_SLOT_SHIFT);
			else
				rpwi_port_hand_over_service(
					run.port, &rx, batch + i * seg, seg, d.service_id);
}

static bool others_have(const struct io_dest *d)
{
	for (unsigned i = 0; i < NAMES; i++) {
		const struct name *n = &run.name[i];
		if (n->used && !n->dest.slot && n->dest.service_id == d->service_id &&
			!n->dest.shared && (is_trusted(n->who) || rpwi_dest_eq(&n->dest, d)))
			return true;
	}
	return false;
}

static void claim_or_not(uint8_t b)
{
	struct io_dest d = some_dest(b | 0x80);
	uint64_t bit = 1ull << ((b & 3) | (b & 8 ? 4 : 0)),
		 other = 1ull << ((b & 3) | (b & 8 ? 0 : 4));
	if (run.claims & bit) {
		rpwi_steer_unclaim_service(run.steer, d.service_id, &d.addr);
		run.claims &= ~bit;
		return;
	}
	d.shared = false;
	int rc = rpwi_steer_claim_service(run.steer, d.service_id, &d.addr);
	if (!rc)
		run.claims |= bit;
	/* A user without a number of its own is a stranger to itself. */
	if (!rc && (!rpwi_steer_owns_service(run.steer, d.service_id, &here) ||
			   (run.claims & other && is_trusted(COUSIN))))
		fuzz_broken("a claim that is none, or one beside its contrary");
	/* No name that a stranger takes is in the way but that one itself. */
	bool taken = run.claims & (bit | other) || others_have(&d);
	if (rc && !taken && !run.shares)
		fuzz_broken("a service that nobody has cannot be claimed");
}

static void room_for(uint8_t b)
{
	struct rpwi_pace *pace = rpwi_steer_pace(run.steer);
	unsigned pkts = 1 + fuzz_u8(&run.in) % RPWI_TXB_PKTS;
	size_t bytes = pkts * 1024u;
	if (run.page_fd >= 0 && b & 0x80 && ftruncate(run.page_fd, 0))
		errno = 0; /* sealed */
	if (rpwi_steer_room(run.steer, (uint32_t)some_dest(b & 0x7f).slot << RPWI_SLOT_SHIFT, pkts,
		    bytes) > pkts)
		fuzz_broken("more room than was asked for");
	if (rpwi_pace_granted(pace)) {
		rpwi_pace_charge(pace, pkts, bytes);
		rpwi_pace_charged(pace);
	}
}

/* A datagram into our socket, from ourselves or from somebody else; a probe as a rule. */
static void datagram(uint8_t b)
{
	enum {
		PROBE_PLACE = 12,
		PROBE_MAGIC = 16,
		PROBE_COOKIE = 24,
		PROBE_SLOT = 32,
		PROBE_LEN = 34
	};
	uint8_t bytes[PROBE_LEN + 8] = {0xff};
	union io_sockaddr to, from;
	socklen_t len = sizeof(to), from_len = rpwi_sockaddr_make(&from, b & 1 ? &here : &away, 0);
	struct rpwi_rx rx;
	if (!run.port || rpwi_port_fd(run.port) < 0)
		return;
	rpwi_put_be24(bytes + 5, (b & 2 ? 10u : IO_PROBE_SLOT) << RPWI_SLOT_SHIFT);
	rpwi_put_be32(bytes + PROBE_PLACE, fuzz_u8(&run.in));
	rpwi_put_be64(bytes + PROBE_MAGIC, 0x726f70657761793full);
	rpwi_put_be64(bytes + PROBE_COOKIE, some_cookie(fuzz_u8(&run.in)));
	rpwi_put_be16(bytes + PROBE_SLOT, some_dest(fuzz_u8(&run.in) & 0x7f).slot);
	if (b & 4)
		bytes[fuzz_u8(&run.in) % sizeof(bytes)] = fuzz_u8(&run.in);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || __real_bind(fd, &from.sa, from_len) ||
		getsockname(rpwi_port_fd(run.port), &to.sa, &len))
		abort();
	sendto(fd, bytes, b & 8 ? b % sizeof(bytes) : PROBE_LEN, 0, &to.sa, len);
	close(fd);
	if (rpwi_port_recv(run.port, &rx) > 0)
		fuzz_readable(rx.data, rx.len, 1);
}

static void pass(uint8_t b)
{
	fuzz_clock.now_ns += (uint64_t)fuzz_u8(&run.in) << (b & 31);
	if (!run.port)
		return;
	if (b & 0x80)
		fuzz_clock.now_ns = RPWI_MAX(fuzz_clock.now_ns,
			RPWI_MIN(rpwi_port_deadline(run.port), fuzz_clock.now_ns + RPWI_NS_PER_S));
	rpwi_port_timer(run.port, fuzz_clock.now_ns);
}

static void port_turn(uint8_t b)
{
	char why[RPWI_WHY_LEN];
	if (run.port) {
		rpwi_port_close(run.port);
		run.port = NULL;
		return;
	}
	run.port_taken = b & 1;
	rpwi_port_open(run.steer, &here, false, &run.port, why, sizeof(why));
	run.port_taken = b & 2;
}

static void hold(uint8_t b)
{
	if (run.holder.who >= 0)
		run.holder.until_ns[run.holder.who] = fuzz_clock.now_ns;
	run.holder.who = (int)(b % (WHOS + 1)) - 1;
	run.holder.sockets = b >> 4;
}

static void command(void)
{
	uint8_t what = fuzz_u8(&run.in), b = fuzz_u8(&run.in);
	struct name *n = &run.name[b % NAMES];
	struct line *l = &run.line[b % LINES];
	switch (what % 24) {
	case 0 ... 1:
		listen_as(n, some_who(what >> 5));
		break;
	case 2:
		unlisten(n);
		break;
	case 3 ... 4:
		for (unsigned i = 0, k = what & 0x80 ? 20 : 1; i < k; i++)
			connect_as(
				&run.line[(b + i) % LINES], some_who(what >> 5), fuzz_u8(&run.in));
		break;
	case 5:
		if (l->fd >= 0)
			close(l->fd);
		l->fd = -1;
		break;
	case 6 ... 10:
		if (l->fd >= 0)
			say(l->fd, l->who);
		break;
	case 11 ... 12:
		if (n->used && n->conn[b >> 3 & 1] >= 0)
			say(n->conn[b >> 3 & 1], n->who);
		break;
	case 13 ... 14:
		hand_over(b);
		break;
	case 15:
		claim_or_not(b);
		break;
	case 16:
		datagram(b);
		break;
	case 17:
		pass(b);
		break;
	case 18:
		room_for(b);
		break;
	case 19:
		if (rpwi_steer_slot_reachable(run.steer, some_dest(b & 0x7f).slot) &&
			!rpwi_steer_slot_exists(run.steer, some_dest(b & 0x7f).slot))
			fuzz_broken("a slot is in reach and does not exist");
		break;
	case 20:
		for (unsigned i = 0; i < NAMES; i++)
			name_reads(&run.name[i]);
		for (unsigned i = 0; i < LINES; i++)
			line_reads(&run.line[i]);
		break;
	case 21:
		if (b & 1)
			hold(b >> 1);
		else
			port_turn(b >> 1);
		break;
	default:
		take();
	}
}

static void begin(void)
{
	uint8_t b = fuzz_u8(&run.in);
	run.shares = b & 1;
	run.all_mapped = b & 2;
	run.us = b & 4 ? NOBODY : 1000;
	fuzz_clock.random = b;
	fuzz_clock.now_ns = 1000 * RPWI_NS_PER_S;
	run.page_fd = -1;
	run.holder.who = -1;
	for (unsigned i = 0; i < LINES; i++)
		run.line[i].fd = -1;
	setenv("ROPEWAY_SHARE_PORT", run.shares ? "1" : "0", 1);
	if (rpwi_steer_open(&run.steer))
		fuzz_broken("no steer");
	port_turn(0);
}

static void end(void)
{
	rpwi_port_close(run.port);
	rpwi_steer_close(run.steer);
	for (unsigned i = 0; i < NAMES; i++)
		unlisten(&run.name[i]);
	for (unsigned i = 0; i < LINES; i++)
		if (run.line[i].fd >= 0)
			close(run.line[i].fd);
	if (run.page_fd >= 0)
		close(run.page_fd);
	fuzz_clock.now_ns = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	memset(&run, 0, sizeof(run));
	run.in = (struct fuzz_input){data, len};
	rpwi_log_level_cached = RPWI_LOG_ERROR;
	unsigned had = open_descriptors();
	begin();
	size_t at_first = __sanitizer_get_current_allocated_bytes
				  ? __sanitizer_get_current_allocated_bytes()
				  : 0;
	for (int i = 0; run.in.left && i < COMMANDS_MAX; i++)
		command();
	if (__sanitizer_get_current_allocated_bytes &&
		__sanitizer_get_current_allocated_bytes() > at_first + WAITING_MAX)
		fuzz_broken("more is kept for others than may be");
	check_lines();
	end();
	if (open_descriptors() != had)
		fuzz_broken("a descriptor is left behind");
	return 0;
}
