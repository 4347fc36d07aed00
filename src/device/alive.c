/* SPDX-License-Identifier: BSD-3-Clause */
/* alive.c - see alive.h.
 *
 * What a silence means. Nothing, for as long as the attributes of a QP allow: its process may be in
 * a debugger, or the path may be slow. What means something:
 * - an answer that the slot is nobody's: whoever of that host answers knows it from the kernel;
 * - twice in a row "port unreachable" and nothing between: no ropeway is left on that host;
 * - eight questions without an answer, to a host that has had a helper answer before: a helper is
 *   stopped by nobody, so the host or the path is gone. A QP whose attributes allow more silence is
 *   left alone until then, one with `timeout` 0 for ever.
 * A host that has never answered has no ropeway, or an older one's: it is asked every half minute.
 */
#include "device/alive.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum {
	HOSTS_MAX = 1024,
	SLOT_MAX = 4094, /* as io.h has it */
	SLOT_SHIFT = 12,
	HERE_MAX = 64,  /* processes of this host in one look */
	DEAF_AFTER = 5, /* questions to a host that has never answered */
	SILENT_S = 8,
	REFUSED_MAX = 2,
	SLOT_WORDS = (SLOT_MAX + 64) / 64,
};
/* FRESH: less than a second, so that who is silent for a second is asked about in the next look. */
static const uint64_t LOOK_NS = RPWI_NS_PER_S, FRESH_NS = 700 * RPWI_NS_PER_MS,
		      AGAIN_NS = 50 * RPWI_NS_PER_MS, DEAF_NS = 30 * RPWI_NS_PER_S,
		      FIRST_LOOK_NS = 100 * RPWI_NS_PER_MS;

struct slots {
	uint64_t w[SLOT_WORDS];
};

/* A host with peers. */
struct host {
	struct rpwi_list link;
	struct rpwi_addr local, remote;
	bool here;
	struct slots want;  /* that there are peers in, this round */
	struct slots seen;  /* that have been there */
	struct slots fresh; /* that something has come from in the last second */
	struct slots asked; /* what an answer may be about */
	bool any;
	uint64_t tid, asked_ns, heard_ns;
	unsigned unanswered, refused, asks;
	unsigned turn; /* of this host: the slot that was looked at last */
	/* of this host: whose process has ended, since when, and how far it had been read by
	 * then */
	struct slots missed;
	uint64_t missed_ns, missed_emptied;
	bool answers, has_helper;
	uint16_t helper_slot;
};

static struct {
	const struct alive_world *world;
	struct rpwi_list hosts;
	struct host *last; /* found last */
	unsigned nhosts;
	uint64_t look_ns;
	struct alive_stats n;
} alive = {.hosts = {&alive.hosts, &alive.hosts}, .look_ns = RPWI_NEVER};

void alive_begin(const struct alive_world *w) { alive.world = w; }
const struct alive_stats *alive_stats(void) { return &alive.n; }

static bool has(const struct slots *s, unsigned slot) { return s->w[slot / 64] >> slot % 64 & 1; }
static void add(struct slots *s, unsigned slot) { s->w[slot / 64] |= 1ull << slot % 64; }
static void drop(struct slots *s, unsigned slot) { s->w[slot / 64] &= ~(1ull << slot % 64); }

/* ---- who is looked after ---- */

static struct host *host_find(const struct rpwi_addr *remote)
{
	if (alive.last && rpwi_addr_eq(&alive.last->remote, remote))
		return alive.last;
	for (struct rpwi_list *l = alive.hosts.next; l != &alive.hosts; l = l->next) {
		struct host *h = RPWI_CONTAINER_OF(l, struct host, link);
		if (rpwi_addr_eq(&h->remote, remote))
			return alive.last = h;
	}
	return NULL;
}

static struct host *host_of(const struct rpwi_addr *local, const struct rpwi_addr *remote)
{
	struct host *h = host_find(remote);
	if (h || alive.nhosts == HOSTS_MAX || !(h = calloc(1, sizeof(*h))))
		return h;
	h->local = *local;
	h->remote = *remote;
	h->here = alive.world->is_here(remote);
	rpwi_list_add_tail(&alive.hosts, &h->link);
	alive.nhosts++;
	return alive.last = h;
}

static void host_forget(struct host *h)
{
	rpwi_list_del(&h->link);
	free(h);
	alive.nhosts--;
	alive.last = NULL;
}

static void note(const struct alive_peer *p, void *arg)
{
	uint64_t now_ns = *(const uint64_t *)arg;
	struct host *h;
	if (p->slot < 1 || p->slot > SLOT_MAX || !(h = host_of(p->local, p->remote)) ||
		(h->here && alive.world->is_own(p->slot)))
		return;
	h->any = true;
	add(&h->want, p->slot);
	if (p->seen)
		add(&h->seen, p->slot);
	if (p->heard_ns && now_ns - p->heard_ns < FRESH_NS) {
		h->heard_ns = now_ns;
		add(&h->fresh, p->slot);
	}
}

static void tell_gone(const struct host *h, unsigned slot, uint64_t silent_ns, uint64_t now_ns)
{
	struct alive_gone g = {
		.remote = &h->remote, .slot = slot, .silent_ns = silent_ns, .now_ns = now_ns};
	alive.n.gone += alive.world->gone(&g) != 0;
}

/* All that have been there. Others may be still to come. */
static void tell_all_gone(const struct host *h, uint64_t silent_ns, uint64_t now_ns)
{
	for (unsigned slot = 1; slot <= SLOT_MAX; slot++)
		if (has(&h->want, slot) && has(&h->seen, slot))
			tell_gone(h, slot, silent_ns, now_ns);
}

/* ---- this host ---- */

/* A process that has ended may have said its last moments before, and that still be unread. Has all
 * been read since it was missed? (Or so long ago was that, that it is no matter.) */
static bool is_read(struct host *h, unsigned slot, uint64_t now_ns)
{
	uint64_t emptied = alive.world->emptied();
	if (has(&h->missed, slot))
		return emptied != h->missed_emptied || now_ns - h->missed_ns >= LOOK_NS;
	add(&h->missed, slot);
	h->missed_emptied = emptied;
	h->missed_ns = now_ns;
	return false;
}

/* In turn, some of them in each look: to ask the kernel about one takes two system calls, or a
 * connection where there are more than are kept. True: to be looked at again soon. */
static bool look_here(struct host *h, uint64_t now_ns)
{
	unsigned slot = h->turn, looked = 0;
	bool again = false;
	for (unsigned n = 0; n < SLOT_MAX && looked < HERE_MAX; n++) {
		slot = slot % SLOT_MAX + 1;
		if (!has(&h->want, slot))
			continue;
		looked++;
		h->turn = slot;
		if (alive.world->exists(slot)) {
			add(&h->seen, slot);
			drop(&h->missed, slot);
		} else if (has(&h->seen, slot)) {
			if (is_read(h, slot, now_ns))
				tell_gone(h, slot, RPWI_NEVER, now_ns);
			else
				again = true;
		}
	}
	return again;
}

/* ---- other hosts ---- */

/* To the helper, which nobody stops; now and then to others. */
static void send_question(struct host *h, struct rpwi_ask *a)
{
	uint8_t mad[RPWI_MAD_LEN];
	uint32_t to = h->helper_slot && h->unanswered % 2 == 0
			      ? (uint32_t)h->helper_slot << SLOT_SHIFT
			      : RPWI_GSI_QPN;
	rpwi_ask_encode(a, mad);
	alive.world->send(&h->local, &h->remote, to, mad);
	alive.n.asked++;
	a->n = 0;
}

static void ask(struct host *h, uint64_t now_ns)
{
	struct rpwi_ask a = {.tid = rpwi_random64(), .from_slot = alive.world->own_slot()};
	/* at first also while it is heard from: is there a helper? */
	bool any = false, all = !h->has_helper && h->asks < DEAF_AFTER;
	if (!h->answers && h->unanswered >= DEAF_AFTER && now_ns - h->asked_ns < DEAF_NS)
		return;
	for (unsigned slot = 1; slot <= SLOT_MAX; slot++) {
		if (!has(&h->want, slot) || (has(&h->fresh, slot) && !all))
			continue;
		any = true;
		a.slot[a.n++] = (uint16_t)slot;
		if (a.n == RPWI_ASK_SLOTS)
			send_question(h, &a);
	}
	if (!any)
		return;
	if (a.n)
		send_question(h, &a);
	h->asked = h->want;
	h->tid = a.tid;
	h->asked_ns = now_ns;
	h->asks++;
	h->unanswered++;
}

static void look_there(struct host *h, uint64_t now_ns)
{
	uint64_t silent = h->heard_ns ? now_ns - h->heard_ns : 0;
	if (!silent)
		h->refused = 0;
	if (h->refused >= REFUSED_MAX) {
		h->refused = 0;
		tell_all_gone(h, RPWI_NEVER, now_ns);
		return;
	}
	if (h->has_helper && h->unanswered >= SILENT_S && silent >= SILENT_S * RPWI_NS_PER_S)
		tell_all_gone(h, silent, now_ns);
	ask(h, now_ns);
}

static void answer(
	const struct rpwi_addr *local, const struct rpwi_addr *remote, struct rpwi_ask *a)
{
	uint8_t mad[RPWI_MAD_LEN];
	uint32_t to = (uint32_t)a->from_slot << SLOT_SHIFT;
	a->answer = true;
	a->helper_slot = alive.world->helper_slot(&a->by_helper);
	memset(a->there, 0, sizeof(a->there));
	for (unsigned i = 0; i < a->n; i++)
		if (a->slot[i] && alive.world->exists(a->slot[i]))
			a->there[i / 8] |= (uint8_t)(1u << i % 8);
	a->from_slot = alive.world->own_slot();
	rpwi_ask_encode(a, mad);
	alive.world->send(local, remote, to, mad);
}

static void answered(struct host *h, const struct rpwi_ask *a, uint64_t now_ns)
{
	alive.n.answers++;
	h->answers = true;
	h->unanswered = h->refused = 0;
	h->heard_ns = now_ns;
	h->has_helper |= a->by_helper;
	h->helper_slot = a->helper_slot;
	for (unsigned i = 0; i < a->n; i++) {
		unsigned slot = a->slot[i];
		if (!has(&h->asked, slot))
			continue;
		if (a->there[i / 8] >> i % 8 & 1)
			add(&h->seen, slot);
		else if (has(&h->seen, slot))
			tell_gone(h, slot, RPWI_NEVER, now_ns);
	}
}

bool alive_rx(const struct rpwi_addr *local, const struct rpwi_addr *remote, const uint8_t *mad,
	size_t len, uint64_t now_ns)
{
	struct rpwi_ask a;
	int rc = alive.world ? rpwi_ask_decode(mad, len, &a) : -EPROTONOSUPPORT;
	if (rc)
		return rc != -EPROTONOSUPPORT;
	struct host *h = a.answer ? host_find(remote) : NULL;
	if (!a.answer)
		answer(local, remote, &a);
	else if (h && !h->here && h->tid && h->tid == a.tid)
		answered(h, &a, now_ns);
	return true;
}

bool alive_answers(const struct rpwi_addr *remote)
{
	const struct host *h = host_find(remote);
	return h && h->answers;
}

/* Asked once more, soon: what one packet met may have been the moment before its port was
 * opened. */
void alive_refused(const struct rpwi_addr *remote, uint64_t now_ns)
{
	struct host *h = host_find(remote);
	if (!h || h->here)
		return;
	h->refused++;
	if (h->refused <= REFUSED_MAX)
		alive.look_ns = RPWI_MIN(alive.look_ns, now_ns + AGAIN_NS);
}

/* ---- time ---- */

/* Soon: only who has been seen there can be missed. */
void alive_wanted(uint64_t now_ns)
{
	if (alive.world)
		alive.look_ns = RPWI_MIN(alive.look_ns, now_ns + FIRST_LOOK_NS);
}

uint64_t alive_deadline(void) { return alive.look_ns; }

void alive_timer(uint64_t now_ns)
{
	struct rpwi_list *l, *next;
	bool again = false;
	if (alive.look_ns > now_ns)
		return;
	for (l = alive.hosts.next; l != &alive.hosts; l = l->next) {
		struct host *h = RPWI_CONTAINER_OF(l, struct host, link);
		h->any = false;
		memset(&h->want, 0, sizeof(h->want));
		memset(&h->fresh, 0, sizeof(h->fresh));
	}
	alive.world->each(note, &now_ns);
	for (l = alive.hosts.next; l != &alive.hosts; l = next) {
		struct host *h = RPWI_CONTAINER_OF(l, struct host, link);
		next = l->next;
		if (!h->any)
			host_forget(h);
		else if (h->here)
			again |= look_here(h, now_ns);
		else
			look_there(h, now_ns);
	}
	alive.look_ns = now_ns + (again ? AGAIN_NS : LOOK_NS);
	if (!alive.nhosts)
		alive.look_ns = RPWI_NEVER;
}

void alive_forget(void)
{
	while (!rpwi_list_empty(&alive.hosts))
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): a forgotten one leaves its list */
		host_forget(RPWI_CONTAINER_OF(alive.hosts.next, struct host, link));
	alive.look_ns = RPWI_NEVER;
}
