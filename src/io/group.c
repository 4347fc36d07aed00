/* SPDX-License-Identifier: BSD-3-Clause */
/* group.c - the SO_REUSEPORT group of one address: which member is at which place, and the classic
 * BPF program that picks the member by the slot of a packet's QPN (of a CM message: of the
 * communication ID that it is for).
 *
 * The kernel tells nobody his place, and moves the last member into the hole when one leaves. So
 * places are learned: a probe packet carries a place, the program has a rule that sends probes
 * where they say, and whoever receives one tells the prober his slots over the Unix sockets. One
 * process at a time does this, under a lock that is a name (dest.c), so that it goes with its
 * holder; where a stranger has taken it, or its holder is stopped, we do without: two who probe at
 * once only do it twice. A member that is stopped does not answer: its slots are left to the
 * kernel's hash, and to handing over.
 *
 * When: after joining, after claiming a slot, when packets keep landing at the wrong member, and
 * when a peer in the group does not answer: packets for it may land at a stopped member. Nothing
 * depends on the program but speed.
 */
#include "io/io_priv.h"

#include "base/lock.h"
#include "wire/mad.h"

#include <linux/filter.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	PLACES_MAX = 512, /* more members than this are left to the hash */
	/* slot -> place; two instructions each, of the 4096 that a program may have */
	ENTRIES_MAX = 1024,
	/* how long answers are awaited; later ones are put in as they come */
	PROBE_NS = 20000000,
	LOCKED_RETRY_NS = 30000000,
	LOCK_REFUSED_MAX = 40, /* 1.2 s of retries */
	WRONG_PKTS = 32,
	WRONG_WINDOW_NS = 100000000,
	PAUSE_MIN_NS = 100000000,
	UNANSWERED_MIN_NS = 25000000,
	LOOK_MS = 400,
	LOOK_SHARE = 2000, /* of the watcher's time, at most one part in so many */
	OFFER_MS = 2000,   /* who does not watch tries to so often */
	CALM_NS = 1000000000,
};
static const uint64_t PAUSE_MAX_NS = 5 * RPWI_NS_PER_S;

/* Looks like a BTH as far as the QPN, whose slot no QP has. The program reads the place at
 * PROBE_PLACE. */
enum { PROBE_PLACE = 12, PROBE_MAGIC = 16, PROBE_COOKIE = 24, PROBE_SLOT = 32, PROBE_LEN = 34 };
static const uint64_t probe_magic = 0x726f70657761793full;

struct entry {
	uint16_t slot, place;
};

struct rpwi_group {
	uint64_t look_ns;
	unsigned members; /* when we looked last */
	int watch_fd;     /* the name of who watches, if it is us; else -1 */
	pid_t watcher;    /* who it is, if it is another; 0: not known */
	struct rpwi_port *port;
	struct rpwi_steer *steer;
	struct entry entry[ENTRIES_MAX];
	unsigned nentries;
	uint64_t renewals;

	/* while probing, and a while after: late answers still count */
	bool probing;
	int lock_fd; /* -1 also where we do without */
	unsigned lock_refused;
	uint64_t cookie, began_ns;
	unsigned places, answered;
	bool confused; /* one member at two places: the probe rule is not installed */
	bool again;    /* it was put in, and the probing repeated */
	uint64_t seen[PLACES_MAX / 64];

	uint64_t due_ns; /* of the next attempt, or RPWI_NEVER */
	uint64_t last_ns, pause_ns, unanswered_pause_ns;
	uint64_t wrong_since_ns;
	unsigned wrong;
};

struct rpwi_group *rpwi_group_new(struct rpwi_port *p, struct rpwi_steer *s)
{
	struct rpwi_group *g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->port = p;
	g->steer = s;
	g->lock_fd = g->watch_fd = -1;
	g->due_ns = RPWI_NEVER;
	g->pause_ns = PAUSE_MIN_NS;
	return g;
}

static void unlock(struct rpwi_group *g)
{
	if (g->lock_fd >= 0)
		close(g->lock_fd);
	g->lock_fd = -1;
	g->probing = false;
}

void rpwi_group_free(struct rpwi_group *g)
{
	if (!g)
		return;
	unlock(g);
	if (g->watch_fd >= 0)
		close(g->watch_fd);
	free(g);
}

/* Of each address and user there is one. */
static void name_of(const struct rpwi_group *g, const char *what, char name[RPWI_NAME_MAX])
{
	const struct rpwi_addr *a = rpwi_port_local(g->port);
	char text[IO_ADDR_TEXT];
	snprintf(name, RPWI_NAME_MAX, "ropeway/%u/%s/%s%%%u", rpwi_who_uid(), what,
		rpwi_addr_text(a, text), a->scope);
}

static bool lock(struct rpwi_group *g)
{
	rpwi_shield();
	char name[RPWI_NAME_MAX];
	struct rpwi_who who;
	name_of(g, "group", name);
	g->lock_fd = rpwi_name_listen(name);
	if (g->lock_fd == -EADDRINUSE) {
		int fd = rpwi_name_connect(name, &who);
		if (fd >= 0)
			close(fd);
		/* One of ours, which runs; or somebody who does not say whose he is, because he has
		 * just ended or begun. It never waits for a stranger. */
		bool ours = fd >= 0 && who.us && !rpwi_process_seems_stopped(who.pid);
		g->lock_refused += ours ? 1 : LOCK_REFUSED_MAX / 4;
		if ((ours || fd < 0) && g->lock_refused < LOCK_REFUSED_MAX) {
			g->lock_fd = -1;
			return false;
		}
	}
	g->lock_refused = 0;
	g->lock_fd = RPWI_MAX(g->lock_fd, -1);
	g->probing = true;
	return true;
}

/* ---- the program ---- */

/* Where a CM message has what steers it: MAD header 13.4.3, messages 12.6. */
enum {
	MAD_AT = RPWI_BTH_LEN + 8, /* after BTH and DETH */
	ATTR_AT = MAD_AT + 16,
	REQUEST_ID_AT = MAD_AT + RPWI_MAD_HDR_LEN,      /* SIDR_REP: the asker's */
	RECEIVER_ID_AT = MAD_AT + RPWI_MAD_HDR_LEN + 4, /* of the others */
	COMM_ID_SLOT_SHIFT = 20,
	NO_PLACE = -1, /* the kernel takes its hash */
};

/* A is the slot of the packet's QPN, or, for QP 1, that of the receiver's communication ID; then
 * comes what picks the place by A. A request has no such ID: it goes to any member, which knows
 * whose service it names; but if a member did not answer and so may be stopped, to one that lives:
 * us. */
enum { REQUEST_RET = 6 };
static const struct sock_filter find_slot[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4), /* the UDP payload begins at 0: reserved, QPN */
	BPF_STMT(BPF_ALU | BPF_AND | BPF_K, RPWI_QPN_MASK),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RPWI_GSI_QPN, 0, 10), /* to "a QP" */
	BPF_STMT(BPF_LD | BPF_H | BPF_ABS, ATTR_AT),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RPWI_CM_REQ, 1, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RPWI_CM_SIDR_REQ, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, (uint32_t)NO_PLACE),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RPWI_CM_SIDR_REP, 0, 2),
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, REQUEST_ID_AT),
	BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, RECEIVER_ID_AT),
	BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, COMM_ID_SLOT_SHIFT),
	BPF_JUMP(BPF_JMP | BPF_JA, 4, 0, 0), /* past the probes */
	/* a QP: */
	BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, RPWI_SLOT_SHIFT),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IO_PROBE_SLOT, 0, 2),
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, PROBE_PLACE),
	BPF_STMT(BPF_RET | BPF_A, 0),
};

static uint32_t place_of_requests(const struct rpwi_group *g)
{
	uint16_t own = 0;
	rpwi_steer_slots(g->steer, &own, 1);
	for (unsigned i = 0; i < g->nentries && g->answered < g->places; i++)
		if (g->entry[i].slot == own)
			return g->entry[i].place;
	return (uint32_t)NO_PLACE;
}

static void install(struct rpwi_group *g)
{
	/* built under the caller's lock */
	static struct sock_filter code[RPWI_ARRAY_LEN(find_slot) + 1 + 2 * ENTRIES_MAX];
	unsigned n = RPWI_ARRAY_LEN(find_slot);
	memcpy(code, find_slot, sizeof(find_slot));
	code[REQUEST_RET].k = place_of_requests(g);
	for (unsigned i = 0; i < g->nentries; i++) {
		code[n++] = (struct sock_filter)BPF_JUMP(
			BPF_JMP | BPF_JEQ | BPF_K, g->entry[i].slot, 0, 1);
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, g->entry[i].place);
	}
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, (uint32_t)NO_PLACE);
	struct sock_fprog prog = {.len = (unsigned short)n, .filter = code};
	if (setsockopt(rpwi_port_rx_fd(g->port), SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &prog,
		    sizeof(prog)))
		rpwi_debug("steering program refused: %s; packets are handed over instead",
			strerror(errno));
}

/* False: this process was already seen at another place. */
static bool place_add(struct rpwi_group *g, unsigned place, const uint16_t *slots, unsigned n)
{
	for (unsigned k = 0; k < n; k++)
		for (unsigned i = 0; i < g->nentries; i++)
			if (g->entry[i].slot == slots[k])
				return g->entry[i].place == place;
	for (unsigned k = 0; k < n && g->nentries < ENTRIES_MAX; k++)
		if (slots[k] >= 1 && slots[k] <= RPWI_SLOT_MAX)
			g->entry[g->nentries++] = (struct entry){slots[k], (uint16_t)place};
	return true;
}

/* ---- probing ---- */

static void send_probes(struct rpwi_group *g)
{
	uint16_t slot = 0;
	uint8_t b[PROBE_LEN] = {0xff};
	rpwi_steer_slots(g->steer, &slot, 1);
	rpwi_put_be24(b + 5, IO_PROBE_SLOT << RPWI_SLOT_SHIFT);
	rpwi_put_be64(b + PROBE_MAGIC, probe_magic);
	rpwi_put_be64(b + PROBE_COOKIE, g->cookie);
	rpwi_put_be16(b + PROBE_SLOT, slot);
	for (unsigned place = 0; place < g->places; place++) {
		rpwi_put_be32(b + PROBE_PLACE, place);
		rpwi_port_send_to_self(g->port, b, sizeof(b));
	}
}

static void probe(struct rpwi_group *g, uint64_t now_ns)
{
	g->cookie = rpwi_random64();
	memset(g->seen, 0, sizeof(g->seen));
	g->nentries = g->answered = 0;
	g->confused = false;
	g->began_ns = now_ns;
	g->due_ns = now_ns + PROBE_NS;
	send_probes(g);
}

static void finish(struct rpwi_group *g, uint64_t now_ns)
{
	bool had_rule = !g->confused && g->answered;
	if (!had_rule && !g->again) {
		/* No program there yet, or one without our rule. */
		g->again = true;
		g->nentries = 0;
		install(g);
		probe(g, now_ns);
		return;
	}
	install(g);
	unlock(g);
	g->renewals++;
	g->wrong = 0;
	g->last_ns = now_ns;
	g->due_ns = RPWI_NEVER;
	rpwi_debug("port group: %u members, %u answered, %u slots steered", g->places, g->answered,
		g->nentries);
}

static void only_member(struct rpwi_group *g, uint64_t now_ns)
{
	uint16_t own[IO_SLOTS_MAX];
	unsigned n = rpwi_steer_slots(g->steer, own, IO_SLOTS_MAX);
	g->cookie = 0;
	g->nentries = 0;
	place_add(g, 0, own, RPWI_MIN(n, (unsigned)IO_SLOTS_MAX));
	g->answered = 1;
	g->again = true;
	g->confused = false;
	finish(g, now_ns);
}

void rpwi_group_renew(struct rpwi_group *g, uint64_t now_ns)
{
	struct io_holder h;
	if (rpwi_port_rx_fd(g->port) < 0 || g->probing)
		return;
	if (!lock(g)) {
		g->due_ns = now_ns + LOCKED_RETRY_NS;
		return;
	}
	if (rpwi_holder_find(rpwi_port_local(g->port), &h) || h.sockets > PLACES_MAX) {
		unlock(g);
		g->due_ns = RPWI_NEVER;
		return;
	}
	g->places = h.sockets ? h.sockets : 1;
	if (g->places == 1) {
		only_member(g, now_ns);
		return;
	}
	g->again = false;
	probe(g, now_ns);
}

static void learned(struct rpwi_group *g, unsigned place, const uint16_t *slots, unsigned n)
{
	if (place >= g->places || (g->seen[place / 64] >> place % 64 & 1))
		return;
	g->seen[place / 64] |= 1ull << place % 64;
	g->answered++;
	if (!place_add(g, place, slots, n))
		g->confused = true;
	if (!g->probing)
		install(g); /* a late answer */
	else if (g->answered == g->places)
		finish(g, rpwi_now_ns());
}

/* Probes are of this host: from our own address, which the kernel lets nobody else send from. */
bool rpwi_group_take_probe(struct rpwi_group *g, const struct rpwi_rx *rx)
{
	const uint8_t *b = rx->data;
	uint16_t own[IO_SLOTS_MAX], first = 0;
	unsigned n = rpwi_steer_slots(g->steer, own, IO_SLOTS_MAX);
	if (rx->len != PROBE_LEN || rpwi_get_be64(b + PROBE_MAGIC) != probe_magic ||
		!rpwi_addr_eq(&rx->flow.src, &rx->flow.dst))
		return true; /* nobody's packet: there is no such QP */
	n = RPWI_MIN(n, (unsigned)IO_SLOTS_MAX);
	first = rpwi_get_be16(b + PROBE_SLOT);
	uint64_t cookie = rpwi_get_be64(b + PROBE_COOKIE);
	uint32_t place = rpwi_get_be32(b + PROBE_PLACE);
	if (n && first == own[0]) {
		if (cookie == g->cookie)
			learned(g, place, own, n);
		return true;
	}
	struct io_msg m = {.type = IO_MSG_PROBE_ANSWER,
		.cookie = cookie,
		.index = place,
		.nslots = (uint16_t)n};
	memcpy(m.slots, own, n * sizeof(own[0]));
	rpwi_steer_tell(g->steer, &(struct io_dest){.slot = first}, &m, NULL, 0);
	if (!g->probing) {
		/* Someone else is doing it, with us in it. */
		g->due_ns = RPWI_NEVER;
		g->last_ns = rpwi_now_ns();
		g->wrong = 0;
		g->cookie = 0;
	}
	return true;
}

void rpwi_group_answer(struct rpwi_group *g, const struct io_msg *m)
{
	if (!g->cookie || m->cookie != g->cookie || m->nslots > IO_SLOTS_MAX)
		return;
	if (!g->probing && rpwi_now_ns() - g->began_ns > CALM_NS)
		return;
	learned(g, m->index, m->slots, m->nslots);
}

/* ---- when ---- */

/* What renewing does not mend (another user's slots, mixed GRO batches, a peer that has ended) must
 * not make us renew all the time: each pause is twice as long as the one before. */
static void renew_soon(
	struct rpwi_group *g, uint64_t *pause_ns, uint64_t min_ns, uint64_t max_ns, uint64_t now_ns)
{
	bool helped = now_ns - g->last_ns > CALM_NS + *pause_ns;
	*pause_ns = helped ? min_ns : RPWI_MIN(RPWI_MAX(*pause_ns * 2, min_ns), max_ns);
	g->due_ns = RPWI_MAX(now_ns, g->last_ns + (helped ? 0 : *pause_ns));
}

void rpwi_group_no_answer(struct rpwi_group *g, uint64_t now_ns)
{
	if (!g->probing && g->due_ns == RPWI_NEVER)
		renew_soon(g, &g->unanswered_pause_ns, UNANSWERED_MIN_NS, CALM_NS, now_ns);
}

void rpwi_group_wrong_member(struct rpwi_group *g, unsigned pkts)
{
	if (g->probing || g->due_ns != RPWI_NEVER)
		return;
	uint64_t now = rpwi_now_ns();
	if (now - g->wrong_since_ns > WRONG_WINDOW_NS) {
		g->wrong_since_ns = now;
		g->wrong = 0;
	}
	g->wrong += pkts;
	if (g->wrong >= WRONG_PKTS)
		renew_soon(g, &g->pause_ns, PAUSE_MIN_NS, PAUSE_MAX_NS, now);
}

/* One of the group reads the kernel's list of sockets, whatever their number: it has a name, which
 * the kernel frees with it, and the others try to get it. Where it is stopped, each does its own
 * watching. */
static bool is_watcher(struct rpwi_group *g)
{
	rpwi_shield();
	char name[RPWI_NAME_MAX];
	struct rpwi_who who = {0};
	if (g->watch_fd >= 0)
		return true;
	name_of(g, "watch", name);
	g->watch_fd = rpwi_name_listen(name);
	if (g->watch_fd >= 0)
		return true;
	if (g->watch_fd != -EADDRINUSE) {
		g->watch_fd = -1;
		return true; /* of each for itself, then */
	}
	g->watch_fd = -1;
	if (!g->watcher) {
		int fd = rpwi_name_connect(name, &who);
		if (fd >= 0)
			close(fd);
		/* a stranger, or one of another PID namespace: it is believed to run */
		g->watcher = fd >= 0 && who.us && who.pid > 0 ? who.pid : -1;
		if (fd >= 0 && !who.us)
			return true;
	} else if (g->watcher > 0 && kill(g->watcher, 0) && errno == ESRCH) {
		g->watcher = 0; /* a forked child has a copy of its name, perhaps */
		return true;
	}
	return rpwi_process_seems_stopped(g->watcher);
}

/* When a member leaves, the last one gets its place, and a packet for a wrong member is noticed
 * there; but not by one that is stopped, and then it is lost. So the watcher looks now and then
 * whether somebody left, and puts it right. */
static void look_who_left(struct rpwi_group *g, uint64_t now_ns)
{
	struct io_holder h;
	g->look_ns = now_ns + OFFER_MS * RPWI_NS_PER_MS;
	if (g->probing || rpwi_port_rx_fd(g->port) < 0 || !is_watcher(g))
		return;
	int rc = rpwi_holder_find(rpwi_port_local(g->port), &h);
	uint64_t took_ns = rpwi_now_ns() - now_ns;
	g->look_ns = now_ns + RPWI_MAX((uint64_t)LOOK_MS * RPWI_NS_PER_MS, took_ns * LOOK_SHARE);
	if (rc)
		return;
	if (h.sockets < g->members && g->due_ns == RPWI_NEVER)
		g->due_ns = now_ns;
	g->members = h.sockets;
}

uint64_t rpwi_group_deadline(const struct rpwi_group *g) { return RPWI_MIN(g->due_ns, g->look_ns); }
uint64_t rpwi_group_renewals(const struct rpwi_group *g) { return g->renewals; }

void rpwi_group_timer(struct rpwi_group *g, uint64_t now_ns)
{
	if (g->look_ns <= now_ns)
		look_who_left(g, now_ns);
	if (g->due_ns > now_ns)
		return;
	if (g->probing) {
		finish(g, now_ns);
		return;
	}
	g->due_ns = RPWI_NEVER;
	rpwi_group_renew(g, now_ns);
}
