/* SPDX-License-Identifier: BSD-3-Clause */
/* message.c - tagged messages, objects, active messages: posted at random, and what comes is held
 * against the ledger of its sender: length, every byte, once, in order.
 *
 * A tag says where it belongs: a mark, the sender, the number of the message in this round, a
 * channel. Masks of receives leave out some of it, so that a receive may get one of many messages,
 * and many receives wait for the same. The order is checked at the end of the round, when it is
 * known which receive got what (MPI's rule): of two messages of one endpoint that a receive could
 * have got, it got the later one only if the earlier one had gone to a receive that was posted
 * earlier. */
#include "soak.h"

#include <unistd.h>

#define MARK ((uint64_t)0xa5 << 56)
#define MASK_MARK ((uint64_t)0xff << 56)
#define MASK_FROM ((uint64_t)0xff << 48)
#define MASK_CHANNEL ((uint64_t)0xff)
enum { AM_ID = 7, AM_LEN_MAX = 400 << 10, PROBE_LEN_MAX = LEN_MAX };

static const char *const kind_names[KINDS] = {"message", "object", "active message"};
static uint64_t message_key(unsigned from, unsigned to, enum kind kind, unsigned i)
{
	return way_key(from, to, (unsigned)kind, i);
}
static size_t message_len(enum kind kind, uint64_t key)
{
	size_t len = size_of(key);
	return kind == KIND_AM && len > AM_LEN_MAX ? len % AM_LEN_MAX : len;
}
static uint64_t tag_of(unsigned from, unsigned i, uint64_t key)
{
	return MARK | (uint64_t)from << 48 | (uint64_t)i << 8 | rng_mix(key + 5) % CHANNELS;
}
static unsigned tag_index(uint64_t tag) { return (unsigned)(tag >> 8 & 0xffffffff); }

void message_round(struct peer *p)
{
	for (int k = 0; k < KINDS; k++) {
		for (unsigned i = 0; i < p->out->messages[k]; i++)
			p->out->message[k][i] = (struct message){0};
		p->out->messages[k] = 0;
		p->next[k] = 0;
	}
	p->in->refused = 0;
	p->refused = 0;
	memset(p->taken, 0, sizeof(p->taken));
	memset(p->came, 0, sizeof(p->came));
}

/* ---- sending ---- */

static struct op *begin(struct peer *p, enum kind kind, enum op_kind op, unsigned *index)
{
	unsigned i = p->out->messages[kind];
	uint64_t key = message_key(me.id, p->id, kind, i);
	size_t len = message_len(kind, key);
	if (p->lost || !p->ep || i >= MESSAGES_MAX || me.under_way + len > UNDER_WAY_MAX)
		return NULL;
	struct op *o = op_new(op, p);
	if (!o)
		return NULL;
	*index = o->index = i;
	spread_make(&o->s, len, op == OP_SEND && chance(3) ? 1 + (int)rnd(PIECES_MAX) : 1);
	spread_fill(&o->s, key);
	struct message *m = &p->out->message[kind][i];
	m->tag = tag_of(me.id, i, key);
	m->len = (uint32_t)len;
	m->state = STATE_POSTED;
	p->out->messages[kind] = i + 1;
	return o;
}

/* Posted, or not; complete at once, or later. */
static void posted(struct op *o, enum kind kind, int rc)
{
	atomic_fetch_add(kind == KIND_TAG      ? &totals->messages
			 : kind == KIND_OBJECT ? &totals->objects
					       : &totals->ams,
		1);
	atomic_fetch_add(&totals->bytes, o->s.len);
	if (!op_posted(o, rc, kind_names[kind])) {
		o->p->out->message[kind][o->index].state = STATE_FAILED;
		op_free(o);
	} else if (rc == RPW_OK) {
		o->p->out->message[kind][o->index].state = STATE_OK;
		op_free(o);
	}
}

static int send_now(struct peer *p, struct op *o, rpw_request **req)
{
	uint64_t tag = p->out->message[KIND_TAG][o->index].tag;
	return o->s.n == 1 && chance(2) ? rpw_send(p->ep, o->s.v[0].iov_base, o->s.len, tag, req)
					: rpw_send_iov(p->ep, o->s.v, o->s.n, tag, req);
}

static bool mutant(enum mutant which, unsigned one_in)
{
	return config.mutant == which && !me.id && chance(one_in);
}

void message_send(struct peer *p)
{
	unsigned i, k;
	struct op *o = begin(p, KIND_TAG, OP_SEND, &i);
	if (!o)
		return;
	if (mutant(MUTANT_CORRUPT, 50) && o->s.len)
		*(char *)o->s.v[0].iov_base ^= o->s.v[0].iov_len ? 0x40 : 0;
	if (mutant(MUTANT_DUPLICATE, 50))
		send_now(p, o, NULL);
	struct op *later = mutant(MUTANT_REORDER, 4) ? o : NULL;
	if (later && (o = begin(p, KIND_TAG, OP_SEND, &k)))
		posted(o, KIND_TAG, send_now(p, o, &o->r));
	o = later ? later : o;
	posted(o, KIND_TAG,
		mutant(MUTANT_LOSE, 50) ? RPW_OK : send_now(p, o, chance(20) ? NULL : &o->r));
}

void message_object(struct peer *p)
{
	unsigned i;
	struct op *o = begin(p, KIND_OBJECT, OP_OBJECT, &i);
	if (o)
		posted(o, KIND_OBJECT, rpw_send_obj(p->ep, o->s.v[0].iov_base, o->s.len, &o->r));
}

void message_am(struct peer *p)
{
	unsigned i;
	uint8_t header[RPW_AM_HEADER_MAX];
	struct op *o = begin(p, KIND_AM, OP_AM, &i);
	if (!o)
		return;
	uint64_t key = message_key(me.id, p->id, KIND_AM, i), number = i;
	size_t len = 8 + rng_mix(key + 1) % (RPW_AM_HEADER_MAX - 7);
	memcpy(header, &number, 8);
	pattern_fill_from(header + 8, len - 8, key + 3, 8);
	posted(o, KIND_AM,
		rpw_am_send(p->ep, AM_ID, header, len, o->s.v[0].iov_base, o->s.len,
			chance(20) ? NULL : &o->r));
	memset(header, 0xee, sizeof(header));
}

static void sent(struct op *o, enum kind kind)
{
	struct message *m = &o->p->out->message[kind][o->index];
	int status = o->done.status;
	if (status == RPW_OK)
		m->state = STATE_OK;
	else if (status == RPW_ERR_CANCELED && o->cancel_asked && !me.closing) {
		m->state = STATE_CANCELED;
		atomic_fetch_add(&totals->canceled, 1);
	} else if (status == RPW_ERR_NO_MEMORY && kind == KIND_OBJECT)
		m->state = STATE_REFUSED; /* the count of these is checked against the receiver's */
	else if (ended_with_endpoint(o, status))
		m->state = STATE_FAILED;
}

/* ---- receiving ---- */

static uint64_t mask_random(void)
{
	switch (rnd(8)) {
	case 0:
		return UINT64_MAX;
	case 1:
	case 2:
		return MASK_MARK | MASK_FROM | MASK_CHANNEL;
	case 3:
		return MASK_MARK | MASK_CHANNEL;
	case 4:
		return MASK_MARK;
	case 5:
		return MASK_MARK | (uint64_t)0x100;
	default: /* more different ones than there are tables for masks */
		return MASK_MARK | rnd(32) << 8 | (chance(2) ? MASK_CHANNEL : 0);
	}
}

/* all: whatever comes, from any. */
void message_recv(struct peer *p, bool all)
{
	struct op *o = !all && me.under_way > UNDER_WAY_MAX ? NULL : op_new(OP_RECV, p);
	if (!o)
		return;
	const struct peer *from = p;
	while (!from || from->id == me.id)
		from = &me.peer[rnd(config.sides)];
	unsigned next = from->in->messages[KIND_TAG],
		 i = next > 6 ? next - 6 + (unsigned)rnd(12) : (unsigned)rnd(12);
	uint64_t key = message_key(from->id, me.id, KIND_TAG, i);
	o->all = all;
	o->mask = all ? MASK_MARK : mask_random();
	o->tag = tag_of(from->id, i, key);
	size_t len = message_len(KIND_TAG, chance(4) ? rnd(UINT64_MAX) : key);
	if (chance(2) && len < 64 << 10)
		len = 64 << 10;
	if (chance(50))
		len = config.len_max;
	if (chance(10))
		len -= rnd(len + 1);
	spread_make(&o->s, len, chance(3) ? 1 + (int)rnd(PIECES_MAX) : 1);
	o->post = ++me.next_post;
	int rc = o->s.n == 1 && chance(2) ? rpw_recv(me.c, p ? p->ep : NULL, o->s.v[0].iov_base,
						    len, o->tag, o->mask, &o->r)
					  : rpw_recv_iov(me.c, p ? p->ep : NULL, o->s.v, o->s.n,
						    o->tag, o->mask, &o->r);
	if (!op_posted(o, rc, "receive"))
		op_free(o);
}

/* It came: the ledger's entry. */
static struct message *came(struct peer *p, enum kind kind, unsigned i, size_t len)
{
	struct message *m = &p->in->message[kind][i];
	if (i >= MESSAGES_MAX || m->state == STATE_NONE)
		wrong("%s %u of side %u came, which it did not send", kind_names[kind], i, p->id);
	if (p->came[kind][i])
		wrong("%s %u of side %u came twice", kind_names[kind], i, p->id);
	p->came[kind][i] = true;
	if (m->state == STATE_CANCELED)
		wrong("%s %u of side %u came, although it was canceled", kind_names[kind], i,
			p->id);
	if (m->len != len)
		wrong("%s %u of side %u came with %zu bytes; it has %u", kind_names[kind], i, p->id,
			len, m->len);
	return m;
}

static void received(struct op *o)
{
	const rpw_completion *d = &o->done;
	if (d->status != RPW_OK && d->status != RPW_ERR_TRUNCATED) {
		/* With its endpoint, what is being fetched is canceled in the middle. */
		if (d->status == RPW_ERR_CANCELED && o->cancel_asked && !me.closing) {
			const char *bad = spread_wrong(&o->s, 0, 0);
			if (bad)
				wrong("a receive that was canceled: %s", bad);
		} else
			ended_with_endpoint(o, d->status);
		return;
	}
	/* When everything is being closed its endpoint may be gone by now: then only the tag
	 * says. */
	unsigned from = (unsigned)((d->tag & MASK_FROM) >> 48);
	struct peer *p = me.closing && from < config.sides ? &me.peer[from]
			 : d->from                         ? rpw_endpoint_user(d->from)
							   : NULL;
	if (!p || p->id >= config.sides || (o->p && o->p != p) || from != p->id)
		wrong("a receive for %s says that a message with tag 0x%llx came from another",
			o->p ? "one side" : "any side", (unsigned long long)d->tag);
	if ((d->tag ^ o->tag) & o->mask)
		wrong("a receive for tag 0x%llx, mask 0x%llx got tag 0x%llx",
			(unsigned long long)o->tag, (unsigned long long)o->mask,
			(unsigned long long)d->tag);
	unsigned i = tag_index(d->tag);
	const struct message *m = came(p, KIND_TAG, i, d->length);
	bool cut = d->length > o->s.len;
	if (m->tag != d->tag || cut != (d->status == RPW_ERR_TRUNCATED))
		wrong("message %u of side %u (%u bytes, tag 0x%llx) ended with %s in a buffer of "
		      "%zu, tag 0x%llx",
			i, p->id, m->len, (unsigned long long)m->tag, rpw_status_name(d->status),
			o->s.len, (unsigned long long)d->tag);
	const char *bad = spread_wrong(
		&o->s, cut ? o->s.len : d->length, message_key(p->id, me.id, KIND_TAG, i));
	if (bad)
		wrong("message %u of side %u: %s", i, p->id, bad);
	p->taken[i] = (struct taken){
		.came = true, .any = !o->p, .post = o->post, .tag = o->tag, .mask = o->mask};
	if (cut)
		atomic_fetch_add(&totals->truncated, 1);
}

void message_probe(struct peer *p)
{
	rpw_completion d = RPW_COMPLETION_INIT;
	atomic_fetch_add(&totals->probes, 1);
	int rc = rpw_probe(me.c, chance(2) ? p->ep : NULL, MARK, MASK_MARK, &d);
	if (rc == RPW_IN_PROGRESS)
		return;
	struct op *o = rc || me.under_way + d.length > UNDER_WAY_MAX ? NULL : op_new(OP_RECV, NULL);
	if (rc)
		wrong("rpw_probe: %s", rpw_last_error());
	if (!o)
		return;
	/* It is there, so a receive for exactly it, with room for exactly it, gets it: nothing can
	 * come between. */
	o->tag = d.tag;
	o->mask = UINT64_MAX;
	o->p = rpw_endpoint_user(d.from);
	o->post = ++me.next_post;
	spread_make(&o->s, d.length, 1);
	if (!op_posted(o,
		    rpw_recv(me.c, d.from, o->s.v[0].iov_base, d.length, d.tag, UINT64_MAX, &o->r),
		    "receive"))
		op_free(o);
}

/* ---- objects: the receiver does not see a number, so what came is the first of those that may
 * come that looks like it ---- */

static void *object_alloc(size_t len, void *arg)
{
	struct op *o = arg;
	if (o->obj_mem)
		wrong("the allocator of an object was called twice");
	o->refuse = len >= 16 && chance(12); /* smaller ones cannot be told from the next */
	if (o->refuse)
		return NULL;
	o->obj_len = len;
	return o->obj_mem = malloc(len ? len : 1);
}

void message_recv_object(struct peer *p)
{
	struct op *o = p->lost ? NULL : op_new(OP_RECV_OBJECT, p);
	if (!o)
		return;
	bool own = chance(2);
	if (!op_posted(o,
		    rpw_recv_obj(me.c, p->ep, own ? object_alloc : NULL, own ? o : NULL, &o->obj,
			    &o->obj_len, &o->r),
		    "receive of an object"))
		op_free(o);
}

static bool object_is(struct peer *p, unsigned i, const struct op *o)
{
	const struct message *m = &p->in->message[KIND_OBJECT][i];
	return m->len == o->done.length &&
	       pattern_wrong(o->obj, m->len, message_key(p->id, me.id, KIND_OBJECT, i)) == m->len;
}

static void object_received(struct op *o)
{
	struct peer *p = o->p;
	if (o->done.status != RPW_OK) {
		if (o->refuse && o->done.status == RPW_ERR_NO_MEMORY) {
			p->refused++;
			atomic_fetch_add(&p->in->refused, 1);
		} else
			ended_with_endpoint(o, o->done.status);
		return;
	}
	if (o->obj_len != o->done.length || (o->obj_mem && o->obj != o->obj_mem) ||
		(p->ep && o->done.from != p->ep))
		wrong("an object of %zu bytes: %zu were told, at %p; its memory is at %p",
			o->done.length, o->obj_len, o->obj, o->obj_mem);
	unsigned i = p->next[KIND_OBJECT], n = p->in->messages[KIND_OBJECT];
	while (i < n && !object_is(p, i, o)) {
		bool certain = !p->in->message[KIND_OBJECT][i].cancel_asked && !excused(p);
		if (certain && !p->refused)
			break;
		p->refused -= certain;
		i++;
	}
	if (i >= n || !object_is(p, i, o))
		wrong("an object of %zu bytes came from side %u that is not its object %u, nor one "
		      "behind it that may come",
			o->done.length, p->id, p->next[KIND_OBJECT]);
	came(p, KIND_OBJECT, i, o->done.length);
	p->next[KIND_OBJECT] = i + 1;
	if (!o->obj_mem)
		free(o->obj);
}

/* ---- active messages ---- */

static void handler(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
{
	struct peer *p = rpw_endpoint_user(ep);
	uint64_t i = UINT64_MAX;
	if (header_len >= 8)
		memcpy(&i, header, 8);
	if (arg != &me || !p || i >= MESSAGES_MAX)
		wrong("an active message with a header of %zu bytes", header_len);
	uint64_t key = message_key(p->id, me.id, KIND_AM, (unsigned)i);
	came(p, KIND_AM, (unsigned)i, len);
	if (i < p->next[KIND_AM])
		wrong("active message %u of side %u came after %u", (unsigned)i, p->id,
			p->next[KIND_AM] - 1);
	for (unsigned k = p->next[KIND_AM]; k < i; k++)
		if (!p->in->message[KIND_AM][k].cancel_asked && !excused(p))
			wrong("active message %u of side %u came before %u", (unsigned)i, p->id, k);
	p->next[KIND_AM] = (unsigned)i + 1;
	if (header_len != 8 + rng_mix(key + 1) % (RPW_AM_HEADER_MAX - 7) ||
		pattern_wrong_from((const char *)header + 8, header_len - 8, key + 3, 8) !=
			header_len - 8)
		wrong("the header of active message %u of side %u, %zu bytes, is not what was sent",
			(unsigned)i, p->id, header_len);
	size_t bad = pattern_wrong(data, len, key);
	if (bad != len)
		wrong("active message %u of side %u: byte %zu of %zu is wrong", (unsigned)i, p->id,
			bad, len);
	/* A handler may post, as long as nobody counts on that the round's sends are over. */
	if (p->ep && arena->side[me.id].stage % STAGES == STAGE_RUN &&
		me.ops < OPS_MAX - OPS_RESERVE && chance(6))
		message_send(p);
	close_here();
}
void message_handle(void)
{
	if (rpw_context_on_am(me.c, AM_ID, handler, &me))
		wrong("rpw_context_on_am: %s", rpw_last_error());
	rpw_context_on_notify(me.c, remote_notified, &me);
}

/* ---- the end of operations, and of the round ---- */

void message_done(struct op *o)
{
	switch (o->kind) {
	case OP_SEND:
		sent(o, KIND_TAG);
		break;
	case OP_OBJECT:
		sent(o, KIND_OBJECT);
		break;
	case OP_AM:
		sent(o, KIND_AM);
		break;
	case OP_RECV:
		received(o);
		break;
	default:
		object_received(o);
	}
}

bool message_missing(const struct peer *p)
{
	for (int k = 0; k < KINDS && current(p); k++)
		for (unsigned i = 0; i < p->in->messages[k]; i++) {
			unsigned state = p->in->message[k][i].state;
			if ((state == STATE_POSTED || state == STATE_OK) && !p->came[k][i])
				return true;
		}
	return false;
}

static void order_check(const struct peer *p)
{
	unsigned n = p->in->messages[KIND_TAG];
	for (unsigned late = 1; late < n; late++) {
		const struct taken *r = &p->taken[late];
		for (unsigned early = 0; r->came && early < late; early++)
			if (p->taken[early].came && p->taken[early].post > r->post &&
				!((p->in->message[KIND_TAG][early].tag ^ r->tag) & r->mask))
				wrong("message %u of side %u went to receive %llu, message %u, "
				      "which was sent earlier, to the later receive %llu: the "
				      "first "
				      "would have matched it",
					late, p->id, (unsigned long long)r->post, early,
					(unsigned long long)p->taken[early].post);
	}
}

void message_check(struct peer *p)
{
	unsigned refused = 0;
	for (int k = 0; k < KINDS && current(p); k++)
		for (unsigned i = 0; i < p->in->messages[k]; i++) {
			unsigned state = p->in->message[k][i].state;
			refused += state == STATE_REFUSED;
			if (state == STATE_CANCELED && p->came[k][i])
				wrong("%s %u of side %u came, although it was canceled",
					kind_names[k], i, p->id);
			if (!p->lost &&
				(state == STATE_OK ? !p->came[k][i] : state == STATE_POSTED))
				wrong("%s %u of side %u (%u bytes) %s", kind_names[k], i, p->id,
					p->in->message[k][i].len,
					state == STATE_OK ? "was lost" : "never ended");
		}
	if (!p->lost && refused != p->in->refused)
		wrong("%u objects of side %u were refused; it was told so of %u", p->in->refused,
			p->id, refused);
	order_check(p);
}
