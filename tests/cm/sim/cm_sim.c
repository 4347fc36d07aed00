/* SPDX-License-Identifier: BSD-3-Clause */
/* cm_sim.c - see cm_sim.h. */
#include "cm_sim.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct cms_config cms_config;
uint64_t cms_now;

/* ---- What is to happen: datagrams that arrive, and what programs have planned; a binary heap.
 * ---- */

struct what {
	uint64_t when_ns, order; /* order: of equal times, and for nothing else */
	int action;              /* -1: a datagram */
	unsigned end, to;
	struct rpwi_cm_path path;
	uint8_t mad[RPWI_MAD_LEN];
};
static struct what **heap;
static size_t heap_n, heap_room;
static uint64_t heap_order;

static bool before(const struct what *a, const struct what *b)
{
	return a->when_ns != b->when_ns ? a->when_ns < b->when_ns : a->order < b->order;
}

static void push(struct what *w)
{
	if (heap_n == heap_room) {
		heap_room = heap_room ? 2 * heap_room : 1024;
		heap = realloc(heap, heap_room * sizeof(struct what *));
	}
	w->order = heap_order++;
	size_t i = heap_n++;
	for (; i && before(w, heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = w;
}

static struct what *pop(void)
{
	struct what *top = heap[0], *last = heap[--heap_n];
	size_t i = 0;
	for (size_t child; (child = 2 * i + 1) < heap_n; i = child) {
		if (child + 1 < heap_n && before(heap[child + 1], heap[child]))
			child++;
		if (!before(heap[child], last))
			break;
		heap[i] = heap[child];
	}
	if (heap_n)
		heap[i] = last;
	return top;
}

void cms_at(uint64_t when_ns, unsigned end, int action)
{
	struct what *w = calloc(1, sizeof(*w));
	w->when_ns = when_ns;
	w->action = action;
	w->end = end;
	push(w);
}

void cms_trace(const char *fmt, ...)
{
	va_list ap;
	if (!cms_config.trace)
		return;
	printf("%11.6f ", (double)cms_now / 1e9);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

void cms_fail(const char *fmt, ...)
{
	va_list ap;
	fflush(stdout);
	fprintf(stderr, "seed %lu at %.6f s: ", (unsigned long)cms_config.seed,
		(double)cms_now / 1e9);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr,
		"\nagain, with all that happens: cm-sim --seed %lu --hosts %u --conns %u --spread "
		"%g --loss %g --dup %g --reorder %g --forge %g --trace\n",
		(unsigned long)cms_config.seed, cms_config.hosts, cms_config.conns,
		(double)(cms_config.spread_ns - 1) / 1e9, cms_config.loss, cms_config.dup,
		cms_config.reorder, cms_config.forge);
	exit(1);
}

/* ---- Hosts and the link between them ---- */

static struct host {
	struct rpwi_cm *cm;
	struct rng rng;
} hosts[CMS_HOSTS_MAX];
static struct rng link_rng;
static struct {
	uint64_t sent, lost, doubled, late, forged;
} link_count;

struct rpwi_cm *cms_engine(unsigned host) { return hosts[host].cm; }
struct rpwi_addr cms_addr(unsigned host)
{
	return (struct rpwi_addr){.family = 4, .bytes = {10, 9, 0, (uint8_t)(host + 1)}};
}

static uint64_t delay(void)
{
	uint64_t ns = rng_between(&link_rng, 20000, 2000000);
	if (!rng_chance(&link_rng, cms_config.reorder))
		return ns;
	link_count.late++;
	return ns + rng_below(&link_rng, CMS_LIFETIME_NS - 2000000);
}

static void under_way(unsigned to, const struct rpwi_addr *from, const uint8_t *mad)
{
	struct what *w = calloc(1, sizeof(*w));
	w->when_ns = cms_now + delay();
	w->action = -1;
	w->to = to;
	w->path.local = cms_addr(to);
	w->path.remote = *from;
	memcpy(w->mad, mad, sizeof(w->mad));
	push(w);
}

/* Somebody who sees the datagrams, and sends copies of them as his own. New requests would be
 * requests, so he keeps to the rest. */
static void forge(unsigned to, const uint8_t *mad)
{
	static const struct rpwi_addr stranger = {.family = 4, .bytes = {10, 9, 9, 9}};
	if (mad[17] == RPWI_CM_REQ || mad[17] == RPWI_CM_SIDR_REQ ||
		!rng_chance(&link_rng, cms_config.forge))
		return;
	link_count.forged++;
	under_way(to, &stranger, mad);
}

static void op_send(void *user, const struct rpwi_cm_path *path, const uint8_t *mad)
{
	struct host *h = user;
	unsigned to = (unsigned)path->remote.bytes[3] - 1;
	if (to >= cms_config.hosts)
		return; /* an answer to the stranger */
	bool lost = rng_chance(&link_rng, cms_config.loss);
	link_count.sent++;
	link_count.lost += lost;
	cms_trace("host %u -> %u %s 0x%08x 0x%08x%s", (unsigned)(h - hosts), to,
		rpwi_cm_attr_name(mad[17]), rpwi_get_be32(mad + 24), rpwi_get_be32(mad + 28),
		lost ? " (lost)" : "");
	forge(to, mad);
	if (lost)
		return;
	under_way(to, &path->local, mad);
	if (rng_chance(&link_rng, cms_config.dup)) {
		link_count.doubled++;
		under_way(to, &path->local, mad);
	}
}

static unsigned host_of(void *user) { return (unsigned)((struct host *)user - hosts); }
static struct rpwi_cm_conn *op_request(void *user, const struct rpwi_cm_path *path,
	const struct rpwi_cm_msg *m, bool sidr, uint16_t *reason)
{
	return cms_request(host_of(user), path, m, sidr, reason);
}
static void op_incoming(void *user, struct rpwi_cm_conn *c, const struct rpwi_cm_msg *m)
{
	cms_incoming(host_of(user), c, m);
}
static void op_event(void *user, struct rpwi_cm_conn *c, const struct rpwi_cm_event *ev)
{
	cms_event(host_of(user), c, ev);
}
static uint32_t op_random(void *user) { return (uint32_t)rng_next(&((struct host *)user)->rng); }
static const struct rpwi_cm_ops ops = {op_send, op_request, op_incoming, op_event, op_random, NULL};

/* ---- The loop ---- */

/* Slow programs, an MRA of 69 s, 69 s of repetition, and TIMEWAIT: nothing takes longer than
 * this. */
static const uint64_t end_max_ns = 1000 * RPWI_NS_PER_S;

/* False when nothing is left to happen. */
static bool step(void)
{
	uint64_t next = heap_n ? heap[0]->when_ns : RPWI_NEVER;
	int timer_of = -1;
	for (unsigned h = 0; h < cms_config.hosts; h++)
		if (rpwi_cm_deadline(hosts[h].cm) < next) {
			next = rpwi_cm_deadline(hosts[h].cm);
			timer_of = (int)h;
		}
	if (next == RPWI_NEVER)
		return false;
	if (next < cms_now)
		cms_fail("a deadline in the past");
	cms_now = next;
	if (cms_now > end_max_ns)
		cms_fail("it does not come to an end");
	if (timer_of >= 0) {
		rpwi_cm_timer(hosts[timer_of].cm, cms_now);
		return true;
	}
	struct what *w = pop();
	if (w->action < 0)
		rpwi_cm_rx(hosts[w->to].cm, &w->path, w->mad, sizeof(w->mad), cms_now);
	else
		cms_act(w->end, w->action);
	free(w);
	return true;
}

static void left_over(struct rpwi_cm_conn *c, void *arg)
{
	cms_fail("a connection is left over in state %s", rpwi_cm_state_name[c->state]);
}

static void run(uint64_t seed)
{
	struct rpwi_cm_stats sum = {0};
	cms_config.seed = seed;
	cms_now = 0;
	link_rng.state = seed * 3 + 1;
	memset(&link_count, 0, sizeof(link_count));
	for (unsigned h = 0; h < cms_config.hosts; h++) {
		hosts[h].rng.state = seed * 1000 + h;
		if (rpwi_cm_new(&hosts[h].cm, &ops, &hosts[h], (uint16_t)(h + 1)))
			cms_fail("no memory");
	}
	cms_programs_begin();
	while (step())
		;
	cms_programs_end();
	for (unsigned h = 0; h < cms_config.hosts; h++) {
		const struct rpwi_cm_stats *s = rpwi_cm_stats(hosts[h].cm);
		rpwi_cm_each(hosts[h].cm, left_over, NULL);
		sum.retries += s->retries;
		sum.duplicates += s->duplicates;
		sum.stray += s->stray;
		sum.timeouts += s->timeouts;
		if (s->bad_mads)
			cms_fail("the engines do not understand each other");
		rpwi_cm_free(hosts[h].cm);
	}
	printf("seed %lu: %lu MADs, %lu lost, %lu doubled, %lu late, %lu forged; %lu retries, %lu "
	       "duplicates, %lu stray, %lu time-outs; "
	       "%lu established, %lu rejected, %lu disconnected, %lu destroyed, %lu gone, %lu "
	       "SIDR; %.1f s\n",
		(unsigned long)seed, link_count.sent, link_count.lost, link_count.doubled,
		link_count.late, link_count.forged, sum.retries, sum.duplicates, sum.stray,
		sum.timeouts, cms_tally.established, cms_tally.rejected, cms_tally.disconnected,
		cms_tally.destroyed, cms_tally.gone, cms_tally.sidr, (double)cms_now / 1e9);
}

static const char usage[] = "cm-sim [--seed N] [--seeds COUNT] [--conns N] [--hosts N] [--spread "
			    "SECONDS] [--loss P] [--dup P] [--reorder P] [--forge P] [--trace]\n"
			    "Connections between simulated hosts, each ended in one of many ways; "
			    "every seed is another run. Exit status 1 with the seed that failed.\n";

int main(int argc, char **argv)
{
	static const struct option options[] = {{"seed", 1, 0, 's'}, {"seeds", 1, 0, 'n'},
		{"conns", 1, 0, 'c'}, {"hosts", 1, 0, 'h'}, {"spread", 1, 0, 'p'},
		{"loss", 1, 0, 'l'}, {"dup", 1, 0, 'd'}, {"reorder", 1, 0, 'r'},
		{"forge", 1, 0, 'f'}, {"trace", 0, 0, 't'}, {0}};
	uint64_t first = 1, seeds = 1;
	cms_config = (struct cms_config){.conns = 1000,
		.hosts = 3,
		.spread_ns = 2 * RPWI_NS_PER_S + 1,
		.loss = 0.1,
		.dup = 0.1,
		.reorder = 0.1,
		.forge = 0.05};
	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;)
		switch (o) {
		case 's':
			first = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			seeds = strtoull(optarg, NULL, 0);
			break;
		case 'c':
			cms_config.conns = (unsigned)strtoul(optarg, NULL, 0);
			break;
		case 'h':
			cms_config.hosts =
				(unsigned)RPWI_MIN(RPWI_MAX(strtoul(optarg, NULL, 0), 1ul),
					(unsigned long)CMS_HOSTS_MAX);
			break;
		case 'p':
			cms_config.spread_ns = (uint64_t)(strtod(optarg, NULL) * 1e9) + 1;
			break;
		case 'l':
			cms_config.loss = strtod(optarg, NULL);
			break;
		case 'd':
			cms_config.dup = strtod(optarg, NULL);
			break;
		case 'r':
			cms_config.reorder = strtod(optarg, NULL);
			break;
		case 'f':
			cms_config.forge = strtod(optarg, NULL);
			break;
		case 't':
			cms_config.trace = true;
			break;
		default:
			fputs(usage, stderr);
			return 2;
		}
	for (uint64_t s = first; s < first + seeds; s++)
		run(s);
	free(heap);
	return 0;
}
