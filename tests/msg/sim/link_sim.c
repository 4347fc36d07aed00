/* SPDX-License-Identifier: BSD-3-Clause */
/* link_sim.c - two links (src/msg/link) against each other over paths in memory, by seeds: paths
 * that take frames and lose them, that say RPWI_LATER, that are breakable or not and differ in
 * their largest frame; parts, credit, answers; and, with --lies, a peer whose heads and counts are
 * not true.
 *
 *   link-sim [--seed N] [--seeds N] [--messages N] [--lies] [--only SEED] [-v]
 *
 * Each side sends numbered messages of drawn lengths, kept or copied or made anew, and answers.
 * What must hold, whatever is lost: every message arrives once, in order, with its own bytes; every
 * kept body is given back exactly once, after the peer has it or after it was forgotten; what was
 * granted is never exceeded; nothing is left at the end: log, answers and parts are empty, and the
 * pool is whole. A failure prints its seed; the exit status is 1. */
#include "lib/pattern.h"
#include "msg/link/link.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	MESSAGES_MAX = 4096,
	WIRE_MAX = 512,
	BODY_MAX = 40000,
	FRAME_MSG = FRAME_TAG,
	FRAME_ANEW = FRAME_RTS,
	FRAME_ANSWER = FRAME_DONE
};

/* ---- chance ---- */

static struct rng rng;
static unsigned below(unsigned n) { return (unsigned)rng_below(&rng, n); }
static bool one_in(unsigned n) { return !below(n); }

/* ---- a path: frames in memory, in order, none lost while it is there ---- */

struct on_wire {
	size_t head_len, len;
	uint8_t head[TRAN_HEAD_MAX], *body;
};
struct side;
struct channel {
	struct tran_ep te;
	struct side *to;
	struct on_wire frames[WIRE_MAX];
	unsigned first, n, room;
};

struct message {
	struct link_keep keep;
	uint8_t *body;
	size_t len;
	bool kept, given_back, forgotten, anew;
};
struct side {
	struct link link;
	struct link_group group;
	struct channel out;
	struct message sent[MESSAGES_MAX];
	unsigned messages, began, came, answers_sent, answers_due, answers_came, units_held;
	unsigned held[MESSAGES_MAX]; /* units of what came and is not taken yet */
	unsigned helds;
	bool has_work, lost, ended;
	const char *ended_why;
	struct side *peer;
};

static struct side sides[2];
static uint64_t seed;
static unsigned messages = 200, failures;
static bool lies, verbose;

static void fail(const char *what, uint64_t a, uint64_t b)
{
	if (!failures++)
		printf("link-sim: seed %llu: %s (%llu, %llu)\n", (unsigned long long)seed, what,
			(unsigned long long)a, (unsigned long long)b);
}

static int channel_send(struct tran_ep *te, const void *head, size_t head_len,
	const struct iovec *iov, int iovcnt, size_t len)
{
	struct channel *c = RPWI_CONTAINER_OF(te, struct channel, te);
	if (c->n >= c->room || one_in(9))
		return RPWI_LATER;
	if (len > te->limits.frame_max)
		fail("a frame is longer than its path takes", len, te->limits.frame_max);
	struct on_wire *f = &c->frames[(c->first + c->n++) % WIRE_MAX];
	f->head_len = head_len;
	memcpy(f->head, head, head_len);
	f->len = len;
	f->body = malloc(len + 1);
	uint8_t *p = f->body;
	for (int i = 0; i < iovcnt; p += iov[i++].iov_len)
		if (iov[i].iov_len)
			memcpy(p, iov[i].iov_base, iov[i].iov_len);
	if ((size_t)(p - f->body) != len)
		fail("a body is not as long as it is said to be", (uint64_t)(p - f->body), len);
	return 0;
}
static const struct tran_ops breakable = {
	.name = "breakable", .caps = TRAN_CAN_BREAK, .send = channel_send};
static const struct tran_ops whole = {.name = "whole", .send = channel_send};

static void channel_empty(struct channel *c)
{
	for (; c->n; c->n--, c->first++)
		free(c->frames[c->first % WIRE_MAX].body);
}

/* ---- what the links ask of their owner ---- */

static struct side *side_of(struct link *l) { return RPWI_CONTAINER_OF(l, struct side, link); }
static struct message *message_of(struct link_keep *k)
{
	return RPWI_CONTAINER_OF(k, struct message, keep);
}

static bool up_body(struct link_keep *k, size_t at, size_t n, struct link_body *out)
{
	struct message *m = message_of(k);
	if (m->given_back || m->forgotten)
		fail("a body is asked for that was given back", at, n);
	if (one_in(2)) {
		out->iov = (struct iovec){m->body + at, n};
		return true;
	}
	out->flat = malloc(n);
	memcpy(out->flat, m->body + at, n);
	out->iov = (struct iovec){out->flat, n};
	return true;
}
static void up_anew(struct link_keep *k, struct link_body *out)
{
	struct message *m = message_of(k);
	memcpy(out->made, m->body, m->len);
	out->iov = (struct iovec){out->made, m->len};
}
static void up_delivered(struct link_keep *k)
{
	struct message *m = message_of(k);
	if (m->given_back || m->forgotten || !m->kept)
		fail("a body is given back twice", m->given_back, m->forgotten);
	m->given_back = true;
	/* The program's buffer may be anything now. */
	memset(m->body, 0xee, m->len);
}
static void up_work(struct link *l) { side_of(l)->has_work = true; }
static void up_lost(struct link *l) { fail("the path took no frame", 0, 0); }
static void ended(struct link *l, const char *what)
{
	struct side *s = side_of(l);
	s->ended = true;
	if (!lies)
		fail(what, (uint64_t)(s - sides), 0);
}
static const struct link_up up = {up_body, up_anew, up_delivered, up_work, up_lost, ended, ended};

/* ---- one side ---- */

static size_t draw_len(void)
{
	switch (below(6)) {
	case 0:
		return 0;
	case 1:
		return below(100);
	case 2:
		return LOG_COPY_MAX + below(2);
	case 3:
		return below(BODY_MAX);
	default:
		return below(600);
	}
}

/* The next message: 0, or later. */
static int message_send(struct side *s)
{
	struct link *l = &s->link;
	struct message *m = &s->sent[s->began];
	if (!m->body) {
		m->anew = one_in(8);
		m->len = m->anew ? 1 + below(RTS_BODY_MAX - 1) : draw_len();
		m->body = malloc(m->len + 1);
		for (size_t i = 0; i < m->len; i++)
			m->body[i] = pattern_byte(s->began, i);
	}
	uint32_t units = credit_units(m->len);
	if (m->len > l->te->limits.frame_max) {
		/* a program asks the path how long a body may be */
		m->len = l->te->limits.frame_max;
		units = credit_units(m->len);
	}
	if (!credit_has(l, units)) {
		/* a long one is offered rather than sent: an RTS, which fits any window */
		m->len = RPWI_MIN(m->len, (size_t)1024);
		credit_need(l, credit_units(m->len));
		return RPWI_LATER;
	}
	uint64_t extra = ~(uint64_t)s->began;
	size_t half = m->len / 2;
	struct iovec iov[2] = {{m->body, half}, {m->body + half, m->len - half}};
	struct frame f = {.type = m->anew ? FRAME_ANEW : FRAME_MSG,
		.tag = s->began,
		.extra = &extra,
		.extra_len = sizeof(extra),
		.iov = iov,
		.iovcnt = 2,
		.len = m->len};
	f.anew = m->anew;
	f.units = units;
	f.keep = m->anew || one_in(3) ? &m->keep : NULL;
	int rc = link_send(l, &f);
	if (rc)
		return rc;
	m->kept = m->keep.in != NULL;
	s->began++;
	/* it was copied: the buffer is the program's again */
	if (!m->kept)
		memset(m->body, 0xdd, m->len);
	return 0;
}

/* The peer has answered to it, on a way of its own, before it acknowledged it: its buffer is
 * free. */
static void forget_one(struct side *s)
{
	unsigned k = s->peer->came ? below(s->peer->came) : 0;
	struct message *m = &s->sent[k];
	if (k >= s->peer->came || !m->keep.in)
		return;
	link_forget(&m->keep);
	m->forgotten = true;
	memset(m->body, 0xcc, m->len);
}

static void held_return(struct side *s)
{
	if (!s->helds)
		return;
	unsigned units = s->held[--s->helds];
	s->units_held -= units;
	credit_return(&s->link, units);
}

static void message_came(struct side *s, const struct frame_head *h, const uint8_t *extra,
	size_t extra_len, const uint8_t *body, size_t len)
{
	struct message *m = h->tag < s->peer->began + 1u ? &s->peer->sent[h->tag] : NULL;
	uint64_t said = 0;
	if (extra_len == sizeof(said))
		memcpy(&said, extra, sizeof(said));
	if (lies) {
		s->came++;
		return;
	}
	if (h->tag != s->came || !m || said != ~h->tag) {
		fail("a message is not the next one", h->tag, s->came);
		return;
	}
	if (len != m->len)
		fail("a message has another length", len, m->len);
	for (size_t i = 0; i < len; i++)
		if (body[i] != pattern_byte(h->tag, i)) {
			fail("a byte of a message is wrong", h->tag, i);
			break;
		}
	s->came++;
	if (s->messages && one_in(3)) {
		uint64_t n = s->answers_sent++;
		link_reply(&s->link, FRAME_ANSWER, 0, n, &n, sizeof(n));
	}
}

static void frame_came(struct side *s, struct on_wire *f)
{
	struct link *l = &s->link;
	struct frame_head h;
	memcpy(&h, f->head, sizeof(h));
	if (lies && one_in(40)) {
		uint8_t *p = (uint8_t *)&h;
		p[below(sizeof(h))] = (uint8_t)rng_next(&rng);
	}
	const uint8_t *extra = f->head + sizeof(h);
	const void *body = f->body;
	size_t extra_len = f->head_len - sizeof(h), len = f->len;
	uint64_t granted = l->rx_limit;
	if (s->ended || h.type >= FRAME_TYPES || !link_took(l, &h, h.type, len))
		return;
	bool whole_now = l->parts.p && h.type != FRAME_PART;
	if (h.type == FRAME_PART)
		link_part(l, &h, body, len);
	else if (h.type == FRAME_CREDIT) {
		if (h.tag)
			credit_needed(l, h.tag);
	} else if (whole_now && !link_whole(l, &h, &body, &len))
		return;
	else if (h.type == FRAME_MSG || h.type == FRAME_ANEW) {
		uint32_t units = credit_units(len);
		if (!credit_charge(l, units))
			return;
		if ((int32_t)(granted - l->rx_used) < 0)
			fail("more came than was granted", granted, l->rx_used);
		if (s->helds < MESSAGES_MAX)
			s->held[s->helds++] = units;
		s->units_held += units;
		message_came(s, &h, extra, extra_len, body, len);
	} else if (h.type == FRAME_ANSWER) {
		if (h.tag != s->answers_came && !lies)
			fail("an answer is not the next one", h.tag, s->answers_came);
		s->answers_came++;
	}
	if (whole_now)
		link_parts_free(l);
	if (l->acked > l->tx_count)
		fail("more is acknowledged than was sent", l->acked, l->tx_count);
	if (l->parts.p && (int32_t)(l->rx_limit - l->rx_used - credit_units(l->parts.len)) < 0)
		fail("more is kept in parts than was granted", l->parts.len,
			l->rx_limit - l->rx_used);
	if (l->breakable && l->rx_count - l->ack_said >= ACK_FRAMES && !l->head_owed)
		fail("no acknowledgement is owed", l->rx_count, l->ack_said);
}

static void side_work(struct side *s)
{
	s->has_work = false;
	if (s->ended || !s->link.open || !link_resend(&s->link) || !link_work(&s->link))
		return;
	while (s->began < s->messages && !one_in(4) && !message_send(s))
		;
}

/* ---- both ---- */

static void path_make(void)
{
	bool breaks = !one_in(6);
	size_t frame_max = one_in(3) ? 8192 : one_in(2) ? BODY_MAX : 2048;
	for (int i = 0; i < 2; i++) {
		struct side *s = &sides[i];
		s->link.ops = breaks ? &breakable : &whole;
		s->link.te = &s->out.te;
		s->link.breakable = breaks;
		s->out.te.limits.frame_max = frame_max;
		s->out.room = 1 + below(one_in(2) ? 4 : WIRE_MAX - 1);
		link_open(&s->link);
	}
}

/* Both sides' ends close, what is on the wire is gone, and each tells the other how much came: what
 * the control path carries. A path that cannot break is not followed by another. */
static void path_change(void)
{
	uint64_t received[2] = {sides[0].link.rx_count, sides[1].link.rx_count};
	for (int i = 0; i < 2; i++) {
		channel_empty(&sides[i].out);
		link_close(&sides[i].link);
	}
	path_make();
	for (int i = 0; i < 2; i++) {
		struct link *l = &sides[i].link;
		uint64_t count = received[!i];
		if (count < l->acked || count > l->tx_count) {
			if (!lies)
				fail("what came is not what was sent", count, l->tx_count);
			sides[i].ended = true;
			continue;
		}
		if ((int32_t)(sides[!i].link.rx_limit - l->tx_limit) > 0)
			l->tx_limit = sides[!i].link.rx_limit;
		link_resume(l, count);
		sides[i].has_work = true;
	}
}

static void deliver(struct channel *c)
{
	if (!c->n)
		return;
	struct on_wire *f = &c->frames[c->first % WIRE_MAX];
	c->first++;
	c->n--;
	frame_came(c->to, f);
	free(f->body);
}

static bool quiet(const struct side *s)
{
	return s->ended || (s->began == s->messages && s->came == s->peer->messages && !s->out.n &&
				   s->answers_came == s->peer->answers_sent);
}

static void check_end(struct side *s)
{
	struct link *l = &s->link;
	if (!s->ended && !s->peer->ended) {
		if (l->reply_count || !rpwi_list_empty(&l->replies) || l->parts.p || l->resending)
			fail("something waits at the end", l->reply_count, l->parts.len);
		/* The last acknowledgement may be owed still; a quiet round says it. */
		link_ack_now(&s->peer->link);
	}
}

static void run(void)
{
	for (int i = 0; i < 2; i++) {
		struct side *s = &sides[i];
		memset(s, 0, sizeof(*s));
		s->peer = &sides[!i];
		s->out.to = s->peer;
		s->group = (struct link_group){.up = &up, .pool = 1u << (8 + below(10))};
		s->group.pool_free = s->group.pool;
		rpwi_list_init(&s->group.late);
		link_init(&s->link, &s->group);
		if (!credit_open(&s->link))
			fail("no first window", s->group.pool, 0);
	}
	bool one_way = one_in(4); /* then nothing carries acknowledgements */
	for (int i = 0; i < 2; i++)
		sides[i].messages = one_way && i ? 0 : messages;
	for (int i = 0; i < 2; i++)
		sides[i].link.tx_limit = sides[!i].link.rx_limit;
	path_make();
	unsigned turns = 0, until = messages * (lies ? 200 : 4000), breaks = 0;
	for (; turns < until && !(quiet(&sides[0]) && quiet(&sides[1])) && !failures; turns++) {
		struct side *s = &sides[below(2)];
		if (s->link.breakable && one_in(300) && breaks < 40) {
			breaks++;
			path_change();
		}
		switch (below(6)) {
		case 0:
			side_work(s);
			break;
		case 1:
			held_return(s);
			break;
		case 5:
			forget_one(s);
			break;
		case 2:
			link_late_acks(&s->group);
			break;
		default:
			deliver(&s->out);
			break;
		}
		if (sides[0].ended || sides[1].ended)
			break;
	}
	if (turns == until && !lies)
		fail("it does not come to an end: messages that came", sides[0].came,
			sides[1].came);
	if (failures && verbose)
		printf("  %u turns, %u breaks; came %u and %u of %u\n", turns, breaks,
			sides[0].came, sides[1].came, messages);
	for (int i = 0; failures && verbose && i < 2; i++) {
		const struct link *l = &sides[i].link;
		printf("  side %d: began %u, wire %u of %u, tx %u of %u, rx %u of %u, told %u, "
		       "window %u, pool %u of %u, held %u in %u, needed %u, need said "
		       "%d, sent %llu, acked %llu, "
		       "came %llu, log %u (%u bytes), replies %zu, resending %d, owed %d, "
		       "frame_max %zu, next %zu\n",
			i, sides[i].began, sides[i].out.n, sides[i].out.room, l->tx_used,
			l->tx_limit, l->rx_used, l->rx_limit, l->rx_told, l->window,
			sides[i].group.pool_free, sides[i].group.pool, sides[i].units_held,
			sides[i].helds, l->needed, l->need_said, (unsigned long long)l->tx_count,
			(unsigned long long)l->acked, (unsigned long long)l->rx_count,
			l->log_frames, l->log_bytes, l->reply_count, l->resending != NULL,
			l->head_owed, l->te->limits.frame_max, sides[i].sent[sides[i].began].len);
	}
	for (int i = 0; i < 2; i++)
		check_end(&sides[i]);
	for (int k = 0; k < 200 && !failures; k++)
		for (int i = 0; i < 2; i++) {
			side_work(&sides[i]);
			link_ack_now(&sides[i].link);
			deliver(&sides[i].out);
		}
	for (int i = 0; i < 2; i++) {
		struct side *s = &sides[i];
		bool clean = !lies && !s->ended && !s->peer->ended && !failures;
		if (clean && s->link.log_frames)
			fail("frames are kept that have come", s->link.log_frames, s->link.acked);
		for (unsigned k = 0; clean && k < s->messages; k++)
			if (s->sent[k].kept && !s->sent[k].given_back && !s->sent[k].forgotten)
				fail("a body was not given back", k, s->sent[k].len);
		if (clean && s->link.tx_count != s->peer->link.rx_count)
			fail("the two sides count differently", s->link.tx_count,
				s->peer->link.rx_count);
		uint32_t window = s->link.window;
		if (clean && s->link.rx_limit - s->link.rx_used + s->units_held != window)
			fail("the window is not what was granted",
				s->link.rx_limit - s->link.rx_used + s->units_held, window);
		channel_empty(&s->out);
		link_end(&s->link);
		link_fini(&s->link);
		link_group_fini(&s->group);
		if (s->group.pool_free != s->group.pool || s->group.links)
			fail("the pool is not whole", s->group.pool_free, s->group.pool);
		if (s->link.log_frames || s->link.log_bytes || s->link.log_kept)
			fail("the log's counts are not 0", s->link.log_frames, s->link.log_bytes);
		for (unsigned k = 0; k < MESSAGES_MAX && s->sent[k].body; k++)
			free(s->sent[k].body);
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"seed", 1, NULL, 's'}, {"seeds", 1, NULL, 'n'},
		{"messages", 1, NULL, 'm'}, {"lies", 0, NULL, 'l'}, {"only", 1, NULL, 'o'},
		{"verbose", 0, NULL, 'v'}, {NULL, 0, NULL, 0}};
	uint64_t first = 1, n = 1000;
	for (int c; (c = getopt_long(argc, argv, "v", options, NULL)) != -1;)
		switch (c) {
		case 's':
			first = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			n = strtoull(optarg, NULL, 0);
			break;
		case 'm':
			messages = RPWI_MIN((unsigned)atoi(optarg), (unsigned)MESSAGES_MAX - 1);
			break;
		case 'l':
			lies = true;
			break;
		case 'o':
			first = strtoull(optarg, NULL, 0), n = 1, verbose = true;
			break;
		case 'v':
			verbose = true;
			break;
		default:
			return 2;
		}
	unsigned bad = 0;
	for (seed = first; seed < first + n && bad < 5; seed++) {
		rng.state = seed;
		failures = 0;
		run();
		bad += failures > 0;
	}
	printf("link-sim: %llu seeds of %u messages each way%s: %s\n",
		(unsigned long long)(seed - first), messages, lies ? ", heads that lie" : "",
		bad ? "FAILED" : "good");
	return bad ? 1 : 0;
}
