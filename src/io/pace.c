/* SPDX-License-Identifier: BSD-3-Clause */
/* pace.c - same-host pacing of services without acknowledgements. Each process publishes a page (a
 * sealed memfd, passed over a connection to its slot): senders add what they send, the owner says
 * how much of that it has drained, and the difference is kept below what the owner's socket holds.
 *
 * A page goes to processes of our own user, and to strangers only where we share the port with
 * them. Its numbers are compared, never used as an address or a length; the worst that false ones
 * do is to make a sender wait STALL_NS for each little batch, or not at all.
 */
#include "io/io_priv.h"
#include "base/file.h"
#include "base/lock.h"

#include <fcntl.h>
#include <linux/sock_diag.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum {
	PAGE_BYTES = 4096,
	PAGE_MAGIC = 0x70616365,
	LIMIT_MIN = 32 << 10,
	LIMIT_MAX = 64 << 20,
	/* the owner may have to be scheduled first, and its queue may have been full */
	ASK_AGAIN_NS = 50000000,
	UNPACED_NS = 100000000, /* nobody has the slot: go on without, and ask again after this */
	STALL_NS = 20000000,    /* nothing drained for so long: something is granted anyway */
	STALL_GRANT_PKTS = 4,
	PORTS_POLLED_MAX = 64,
};

/* an owner that says nothing for so long never will */
static const uint64_t DEAF_NS = 2 * RPWI_NS_PER_S;

struct page {
	_Atomic uint32_t magic;
	_Atomic uint64_t limit;
	_Alignas(64) _Atomic uint64_t sent;    /* written by senders */
	_Alignas(64) _Atomic uint64_t drained; /* written by the owner */
};
_Static_assert(sizeof(struct page) <= PAGE_BYTES, "the page is one page");

/* What we know of the owner of another slot. */
struct owner {
	struct page *page;
	/* asked_at_ns 0: no answer is awaited */
	uint64_t cookie, asked_at_ns, first_asked_ns, unpaced_until_ns, stalled_at_ns;
};

struct rpwi_pace {
	int fd;
	struct page *page;
	uint64_t limit; /* ours: others can write to the page */
	uint64_t own_stalled_at_ns, arrived_at_ns;
	struct page *granted; /* where the next send is charged; the one after is not */
	unsigned granted_pkts;
	struct owner *owner[RPWI_SLOT_MAX + 2];
};

/* What the owner's socket is charged (truesize) for packets, as measured on loopback; never less
 * than the truth. A GSO batch takes its length and a little; a lone datagram what the allocator
 * rounds it to: 832 bytes when small, 2304 for 1 KiB, 8448 for 4 KiB. */
static uint64_t cost_of_run(unsigned pkts, size_t bytes)
{
	size_t room = 512;
	if (pkts > 1)
		return bytes + bytes / 8 + 1024;
	while (room < bytes + 448)
		room *= 2;
	return room + 320;
}
/* The same before it is known how they will be grouped. */
static uint64_t cost_guess(uint64_t pkts, uint64_t bytes)
{
	return 2560 + pkts * 64 + bytes + bytes / 8;
}

/* ---- the page ---- */

int rpwi_pace_new(struct rpwi_pace **out)
{
	struct rpwi_pace *pc = calloc(1, sizeof(*pc));
	*out = pc;
	if (!pc)
		return -ENOMEM;
	void *page;
	pc->fd = rpwi_memory_make("ropeway-pace", PAGE_BYTES, RPWI_MEMORY_WRITE, &page);
	if (pc->fd < 0)
		return pc->fd;
	pc->page = page;
	pc->page->limit = LIMIT_MIN;
	pc->page->magic = PAGE_MAGIC;
	return 0;
}

void rpwi_pace_free(struct rpwi_pace *pc)
{
	if (!pc)
		return;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(pc->owner); i++) {
		if (pc->owner[i] && pc->owner[i]->page)
			munmap(pc->owner[i]->page, PAGE_BYTES);
		free(pc->owner[i]);
	}
	if (pc->page)
		munmap(pc->page, PAGE_BYTES);
	if (pc->fd >= 0)
		close(pc->fd);
	free(pc);
}

int rpwi_pace_fd(const struct rpwi_pace *pc) { return pc->fd; }

/* The smallest of our sockets decides; a quarter is left for what is granted but not yet sent, and
 * for other hosts. */
void rpwi_pace_set_limit(struct rpwi_pace *pc, size_t rcvbuf_bytes)
{
	uint64_t limit = RPWI_MAX((uint64_t)LIMIT_MIN, (uint64_t)rcvbuf_bytes * 3 / 4);
	if (pc->limit && pc->limit <= limit)
		return;
	pc->limit = limit;
	pc->page->limit = limit;
}

/* ---- the owner's side ---- */

uint64_t rpwi_pace_snapshot(const struct rpwi_pace *pc)
{
	return atomic_load_explicit(&pc->page->sent, memory_order_acquire);
}

static uint64_t drained_now(const struct rpwi_pace *pc)
{
	return atomic_load_explicit(&pc->page->drained, memory_order_relaxed);
}

static void publish(struct rpwi_pace *pc, uint64_t drained)
{
	if ((int64_t)(drained - drained_now(pc)) > 0)
		atomic_store_explicit(&pc->page->drained, drained, memory_order_release);
}

/* What our sockets are charged for now. */
static uint64_t occupied(void)
{
	uint64_t sum = 0;
	for (struct rpwi_port *p = rpwi_ports.first; p; p = rpwi_port_next(p)) {
		uint32_t mem[SK_MEMINFO_VARS] = {0};
		socklen_t len = sizeof(mem);
		if (rpwi_port_rx_fd(p) >= 0 &&
			!getsockopt(rpwi_port_rx_fd(p), SOL_SOCKET, SO_MEMINFO, mem, &len))
			sum += mem[SK_MEMINFO_RMEM_ALLOC];
	}
	return sum;
}

/* Something was received. Packets sent up to now are drained but for those that the sockets still
 * hold: taken from the kernel, so that lost packets and wrong estimates do not add up. It costs a
 * system call; so only when the senders may be running out of room. */
void rpwi_pace_progress(struct rpwi_pace *pc)
{
	uint64_t sent = rpwi_pace_snapshot(pc);
	if (RPWI_LIKELY((int64_t)(sent - drained_now(pc)) <= (int64_t)pc->limit / 4))
		return;
	publish(pc, sent - occupied());
}

/* For a process whose packets all come from another user's process, which holds the port: its
 * sockets tell nothing of packets on the way. So what was charged is taken off as it arrives; and
 * after a silence, all of it. */
void rpwi_pace_arrived(struct rpwi_pace *pc, unsigned pkts, size_t bytes)
{
	uint64_t sent = rpwi_pace_snapshot(pc), had = drained_now(pc), now = rpwi_now_ns();
	if ((int64_t)(sent - had) > 0)
		publish(pc, now - pc->arrived_at_ns > STALL_NS
				    ? sent
				    : had + RPWI_MIN(sent - had, cost_of_run(pkts, bytes)));
	pc->arrived_at_ns = now;
}

static bool all_ports_empty(void)
{
	struct pollfd f[PORTS_POLLED_MAX];
	nfds_t n = 0;
	for (struct rpwi_port *p = rpwi_ports.first; p && n < PORTS_POLLED_MAX;
		p = rpwi_port_next(p))
		if (rpwi_port_rx_fd(p) >= 0)
			f[n++] = (struct pollfd){.fd = rpwi_port_rx_fd(p), .events = POLLIN};
	rpwi_shield();
	return n < 2 || poll(f, n, 0) == 0;
}

/* A receive found the socket empty: all that was sent before it is read, or lost. */
void rpwi_pace_empty(struct rpwi_pace *pc, uint64_t snapshot)
{
	if (RPWI_UNLIKELY((int64_t)(snapshot - drained_now(pc)) > 0) && all_ports_empty())
		publish(pc, snapshot);
}

/* ---- the sender's side ---- */

static void ask(struct owner *o, struct rpwi_steer *s, uint16_t slot, uint64_t now_ns)
{
	/* A late answer to the last question is as good. */
	if (!o->asked_at_ns)
		o->cookie = rpwi_random64();
	struct io_msg m = {.type = IO_MSG_PAGE_ASK, .index = slot, .cookie = o->cookie};
	int rc = rpwi_steer_tell(s, &(struct io_dest){.slot = slot}, &m, NULL, 0);
	o->asked_at_ns = now_ns;
	if (rc && rc != -EAGAIN && rc != -ENOBUFS) {
		o->asked_at_ns = o->first_asked_ns = 0;
		o->unpaced_until_ns = now_ns + UNPACED_NS;
	}
}

/* So that every wait is bounded: a little is granted although nothing tells that there is room. */
static unsigned stalled(uint64_t *since_ns, unsigned pkts, uint64_t now_ns)
{
	if (!*since_ns)
		*since_ns = now_ns;
	if (now_ns - *since_ns < STALL_NS)
		return 0;
	*since_ns = now_ns;
	return RPWI_MIN(pkts, (unsigned)STALL_GRANT_PKTS);
}

/* Before the page has come. The slot has an owner, so it is a ropeway that will tell, unless it is
 * stopped: and then it cannot receive either. */
static unsigned room_unknown(struct owner *o, struct rpwi_steer *s, uint16_t slot, unsigned pkts)
{
	uint64_t now = rpwi_now_ns();
	if (now < o->unpaced_until_ns)
		return pkts;
	if (!o->first_asked_ns)
		o->first_asked_ns = now;
	if (!o->asked_at_ns || now - o->asked_at_ns >= ASK_AGAIN_NS)
		ask(o, s, slot, now);
	if (o->first_asked_ns && now - o->first_asked_ns >= DEAF_NS) {
		rpwi_debug("the owner of slot %u does not say what it has drained: it is not paced",
			slot);
		o->asked_at_ns = o->first_asked_ns = 0;
		o->unpaced_until_ns = now + DEAF_NS;
	}
	return now < o->unpaced_until_ns ? pkts : stalled(&o->stalled_at_ns, pkts, now);
}

/* How many fit now. They are charged once they are sent (rpwi_pace_charge): what the owner reads in
 * `sent` must already lie in its socket, or be read, or lost; else it would publish as drained what
 * is still to come. So several senders may be granted the same room; the share of each is small
 * enough for the quarter that the limit leaves. */
static unsigned fitting(struct page *pg, unsigned pkts, size_t bytes)
{
	uint64_t sent = atomic_load_explicit(&pg->sent, memory_order_relaxed);
	uint64_t drained = atomic_load_explicit(&pg->drained, memory_order_acquire);
	uint64_t limit = atomic_load_explicit(&pg->limit, memory_order_relaxed);
	limit = RPWI_MIN(RPWI_MAX(limit, (uint64_t)LIMIT_MIN), (uint64_t)LIMIT_MAX);
	int64_t out = (int64_t)(sent - drained);
	uint64_t outstanding = out > 0 ? (uint64_t)out : 0, want = cost_guess(pkts, bytes);
	uint64_t room = RPWI_MIN(outstanding < limit ? limit - outstanding : 0, limit / 4);
	return room >= want ? pkts : (unsigned)(room * pkts / want);
}

static unsigned grant(struct rpwi_pace *pc, struct page *pg, unsigned n)
{
	pc->granted = n ? pg : NULL;
	pc->granted_pkts = n;
	return n;
}

unsigned rpwi_pace_room(struct rpwi_pace *pc, struct rpwi_steer *s, uint16_t slot, bool own,
	unsigned pkts, size_t bytes)
{
	pc->granted = NULL;
	if (!pkts || !slot || slot > RPWI_SLOT_MAX)
		return pkts;
	struct owner *o = pc->owner[slot];
	if (!own && !o) {
		o = pc->owner[slot] = calloc(1, sizeof(*o));
		if (!o)
			return pkts;
	}
	if (!own && !o->page)
		return room_unknown(o, s, slot, pkts);
	uint64_t *stalled_at_ns = own ? &pc->own_stalled_at_ns : &o->stalled_at_ns;
	struct page *pg = own ? pc->page : o->page;
	unsigned n = fitting(pg, pkts, bytes);
	if (RPWI_LIKELY(n)) {
		*stalled_at_ns = 0;
		return grant(pc, pg, n);
	}
	uint64_t now = rpwi_now_ns();
	n = stalled(stalled_at_ns, pkts, now);
	if (n && !own)
		ask(o, s, slot, now); /* the slot may have a new owner */
	return grant(pc, pg, n);
}

void rpwi_pace_unused(struct rpwi_pace *pc, unsigned pkts)
{
	if (pkts >= pc->granted_pkts)
		pc->granted = NULL;
}

bool rpwi_pace_granted(const struct rpwi_pace *pc) { return pc->granted; }

void rpwi_pace_charge(struct rpwi_pace *pc, unsigned pkts, size_t bytes)
{
	atomic_fetch_add_explicit(
		&pc->granted->sent, cost_of_run(pkts, bytes), memory_order_release);
}

void rpwi_pace_charged(struct rpwi_pace *pc) { pc->granted = NULL; }

/* The new page lies elsewhere before the old one goes: nothing that a stranger's descriptor does to
 * mmap takes a page from under us. */
void rpwi_pace_answer(struct rpwi_pace *pc, uint16_t slot, uint64_t cookie, int fd)
{
	struct owner *o = slot <= RPWI_SLOT_MAX ? pc->owner[slot] : NULL;
	bool asked = o && o->asked_at_ns && o->cookie == cookie;
	if (asked && rpwi_memory_size(fd) == PAGE_BYTES) {
		struct page *pg = rpwi_memory_take(fd, PAGE_BYTES, RPWI_MEMORY_WRITE);
		if (pg && pg->magic != PAGE_MAGIC) {
			munmap(pg, PAGE_BYTES);
			pg = NULL;
		}
		if (o->page) {
			if (pc->granted == o->page)
				pc->granted = NULL;
			munmap(o->page, PAGE_BYTES);
		}
		o->page = pg;
		o->asked_at_ns = o->first_asked_ns = 0;
	}
	close(fd);
}
