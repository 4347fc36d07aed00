/* SPDX-License-Identifier: BSD-3-Clause */
/* msg_frames.c - the frames and words that a peer of bad will sends: made with some sense for what
 * is under way, and then spoilt. */
#include "msg_fuzz.h"

#include <zlib.h>

/* Number 0: described by nothing. */
static size_t put_piece(uint8_t *p, uint64_t len, uint64_t number)
{
	memcpy(p, &len, 8);
	p[8] = number ? 8 : 0;
	if (!number)
		return 9;
	memcpy(p + 9, &number, 8);
	return 17;
}

/* The number of something that the other side has under way. */
static uint64_t their_number(const rpw_endpoint *ep)
{
	uint8_t b = fuzz_u8(&run.in);
	for (const struct rpwi_list *n = ep->active_list.next; b < 224 && n != &ep->active_list;
		n = n->next) {
		const rpw_request *r = RPWI_CONTAINER_OF(n, rpw_request, active);
		if (r->number && b-- % 4 == 0)
			return r->number;
	}
	return b < 240 ? 1ull << 32 | (b & 7) : fuzz_some_number();
}

/* The number of a receive that it was told where to put, perhaps. */
static uint64_t invited_number(const rpw_endpoint *ep)
{
	uint8_t b = fuzz_u8(&run.in);
	for (const struct rpwi_list *n = ep->fetching.next; b < 240 && n != &ep->fetching;
		n = n->next) {
		const rpw_request *r = RPWI_CONTAINER_OF(n, rpw_request, link);
		if (r->rts && r->number && b-- % 4 == 0)
			return r->number;
	}
	return 1ull << 32 | (b & 7);
}

/* The number of what was offered to it. */
static uint64_t our_number(const rpw_endpoint *ep)
{
	const struct rpwi_list *lists[] = {&ep->unexpected, &ep->objects, &ep->ams};
	uint8_t b = fuzz_u8(&run.in);
	for (const struct rpwi_list *n = ep->fetching.next; b >= 64 && n != &ep->fetching;
		n = n->next) {
		const rpw_request *r = RPWI_CONTAINER_OF(n, rpw_request, link);
		if (r->rts && b % 2)
			return r->rts->number;
	}
	const struct rpwi_list *list = lists[b % 3];
	if (b < 192 && list->next != list) {
		const struct unexpected *u =
			RPWI_CONTAINER_OF(list->next, struct unexpected, in_endpoint);
		return u->rts ? u->rts->number : u->number;
	}
	return b % 8;
}

static size_t rts_make(
	uint8_t *body, const rpw_endpoint *ep, const struct side *from, bool describe)
{
	uint8_t b = fuzz_u8(&run.in);
	bool to_be_pulled = (b & 0x30) == 0x30;
	struct rts_body h = {.number = describe ? our_number(ep) : fuzz_u8(&run.in) % 16,
		.pieces = to_be_pulled ? 0 : (uint16_t)(1 + b % 3),
		.am_header_len = b & 0x80 ? 4 : 0};
	uint8_t *p = body + sizeof(h);
	for (unsigned i = 0; i < h.pieces; i++) {
		uint8_t c = fuzz_u8(&run.in);
		uint64_t len = c < 128 ? c * 16u : c < 192 ? REGION : fuzz_some_number();
		p += put_piece(p, len,
			c & 1 ? fake_number_of(from->region[c >> 1 & 1] + GUARD)
			      : fuzz_some_number());
		h.len += len;
	}
	if (b & 0x40 || to_be_pulled)
		h.len = fuzz_some_number();
	memcpy(body, &h, sizeof(h));
	memset(p, 7, h.am_header_len);
	return (size_t)(p - body) + h.am_header_len;
}

/* Memory of a GPU that the other side has registered, and how much. */
static struct ask_body ask_make(const struct side *s, uint64_t len)
{
	uint8_t b = fuzz_u8(&run.in);
	struct ask_body ask = {.region = 1ull << 32 | (1 + b % 4),
		.offset = b & 0x10 ? fuzz_some_number() : 0,
		.len = len};
	const rpw_memory *m = b & 0x40 ? s->memory[WRITABLE] : s->gpu_memory[1];
	if (m && b & 0x2f) {
		ask.region = m->number;
		ask.secret = m->secret;
	}
	return ask;
}

void fuzz_inject(unsigned to)
{
	struct side *s = &run.side[to], *from = &run.side[!to];
	const rpw_endpoint *ep = fuzz_some_ep(s);
	struct {
		struct frame_head h;
		uint8_t extra[RPW_AM_HEADER_MAX];
	} f = {0};
	static uint8_t body[8192];
	size_t len = 0, head_len = sizeof(f.h);
	if (!ep)
		return;
	uint8_t type = fuzz_u8(&run.in), b = fuzz_u8(&run.in);
	f.h.type = (uint8_t)(type % (FRAME_TYPES + 1));
	f.h.ack = (uint16_t)(b & 1 ? ep->link.tx_count : ep->link.acked);
	f.h.credit = ep->link.tx_limit + (b & 2 ? 1000 : 0);
	f.h.tag = b >> 5;
	memset(body, b, sizeof(body));
	switch (f.h.type) {
	case FRAME_TAG:
	case FRAME_OBJECT:
		len = fuzz_some_len() % 8192;
		break;
	case FRAME_AM:
		len = fuzz_some_len() % 8192;
		f.h.tag = am_word(b % 4, b & 4 ? b : 0);
		head_len += b & 4 ? b : 0;
		break;
	case FRAME_RTS: {
		f.h.flags = (uint8_t)(fuzz_u8(&run.in) % (RTS_KINDS + 1));
		len = f.h.flags == RTS_AGAIN && b < 16
			      ? 0
			      : rts_make(body, ep, from, f.h.flags == RTS_AGAIN);
		if (f.h.flags == RTS_AM)
			f.h.tag = am_word(b % 4, body[18]);
		if (f.h.flags == RTS_CHUNK)
			f.h.tag = our_number(ep);
		if (f.h.flags != RTS_GOT)
			break;
		f.h.tag = their_number(ep);
		const rpw_request *r = ids_get(&ep->c->numbers, f.h.tag);
		uint64_t bytes = r ? r->len : 0;
		if (b & 4)
			memcpy(body + offsetof(struct rts_body, len), &bytes, sizeof(bytes));
		break;
	}
	case FRAME_RTR:
		f.h.tag = their_number(ep);
		len = rts_make(body, ep, from, false);
		break;
	case FRAME_DONE: {
		uint8_t kind = (uint8_t)(fuzz_u8(&run.in) % (DONE_KINDS + 1));
		f.h.flags =
			(uint8_t)(kind << DONE_STATUS_BITS | (b & 4 ? fuzz_some_number() % 32 : 0));
		f.h.tag = kind == DONE_PLACED   ? invited_number(ep)
			  : kind == DONE_CHUNKS ? our_number(ep)
						: their_number(ep);
		len = kind == DONE_ATOMIC ? 8 : 0;
		break;
	}
	case FRAME_WITHDRAW:
		f.h.tag = our_number(ep);
		break;
	case FRAME_NOTIFY:
		len = 8;
		break;
	case FRAME_ATOMIC: {
		struct atomic_body a = {.region = 1ull << 32 | (1 + b % 4),
			.offset = fuzz_some_number(),
			.operand = 1,
			.compare = b,
			.op = b >> 7};
		for (unsigned i = 0; i < REGIONS; i++)
			if (s->memory[i] && b & (1u << i)) {
				a.region = s->memory[i]->number;
				a.secret = s->memory[i]->secret;
			}
		memcpy(body, &a, sizeof(a));
		len = sizeof(a);
		break;
	}
	case FRAME_PULL:
		f.h.tag = their_number(ep);
		break;
	case FRAME_GET: {
		struct ask_body ask = ask_make(s, fuzz_some_number());
		memcpy(body, &ask, sizeof(ask));
		len = sizeof(ask);
		break;
	}
	case FRAME_PUT: {
		len = rts_make(body, ep, from, false);
		uint64_t bytes;
		memcpy(&bytes, body + offsetof(struct rts_body, len), sizeof(bytes));
		struct ask_body ask = ask_make(s, bytes);
		memcpy(f.extra, &ask, sizeof(ask));
		head_len += sizeof(ask);
		break;
	}
	case FRAME_LOAN: {
		struct loan_body l = {.slot = b % 8,
			.number = 1 + b % 3,
			.len = b & 64 ? fuzz_some_number() : fuzz_some_len()};
		if (!fake_pool(fake_made_by(to), &l.pool, &l.generation))
			l.pool = b;
		memcpy(body, &l, sizeof(l));
		len = sizeof(l);
		break;
	}
	case FRAME_PART:
		f.h.tag = ep->link.parts.len;
		len = fuzz_some_len() % 8192;
		break;
	case FRAME_CREDIT:
		f.h.tag = fuzz_some_number();
		break;
	default:
		break;
	}
	if (ep->link.parts.p && f.h.type <= FRAME_AM && b & 8)
		f.h.flags |= FRAME_PARTED;
	/* Then one thing of it is wrong, or not. */
	uint8_t spoil = fuzz_u8(&run.in);
	if (spoil < 16)
		head_len = spoil;
	else if (spoil < 48)
		len = fuzz_some_len() % 8192;
	else if (spoil < 80 && len)
		body[fuzz_u8(&run.in) % RPWI_MIN(len, (size_t)128)] = fuzz_u8(&run.in);
	else if (spoil < 96)
		((uint8_t *)&f)[fuzz_u8(&run.in) % sizeof(f.h)] = fuzz_u8(&run.in);
	else if (spoil < 104)
		f.h.tag = fuzz_some_number();
	fake_inject(fake_made_by(!to), &f, (unsigned)head_len, body, (unsigned)len);
}

void fuzz_say(bool to_listener)
{
	const rpw_endpoint *ep = fuzz_some_ep(&run.side[to_listener]);
	static uint8_t m[BOOT_MESSAGE_MAX];
	uint8_t b = fuzz_u8(&run.in), spoil = fuzz_u8(&run.in);
	unsigned type = b % 8;
	size_t text = b >> 5, n;
	uint16_t attempt = (uint16_t)((ep ? ep->next.attempt : 0) + (spoil & 3 ? 0 : b >> 6));
	if (type == SAY_CHOICE || type == SAY_ANSWER) {
		struct say_path p = {.version = SAY_VERSION,
			.attempt = attempt,
			.status = spoil & 4 ? -(int)(b >> 4) : 0,
			.received =
				(ep ? ep->link.tx_count : 0) + (spoil & 8 ? fuzz_some_number() : 0),
			.credit = (uint32_t)(ep ? ep->link.tx_limit : 0) + b,
			.text_len = (uint16_t)text,
			.handle_len = 16};
		uint64_t handle[2] = {
			0xfa4e, fake_made_by(!to_listener) + (spoil & 16 ? fuzz_some_number() : 0)};
		memcpy(p.transport, spoil & 32 ? "fake_a" : "fake_b", 7);
		memcpy(m, &p, sizeof(p));
		memset(m + sizeof(p), 'x', text);
		memcpy(m + sizeof(p) + text, handle, 16);
		n = sizeof(p) + text + 16;
	} else {
		struct say_word w = {.version = SAY_VERSION,
			.attempt = attempt,
			.text_len = (uint16_t)text,
			.sent = (ep ? ep->link.rx_count : 0) +
				(spoil & 4 ? fuzz_some_number() : 0)};
		memcpy(m, &w, sizeof(w));
		memset(m + sizeof(w), 'y', text);
		n = sizeof(w) + text;
	}
	if (spoil >= 224)
		m[fuzz_u8(&run.in) % n] = fuzz_u8(&run.in);
	if (spoil >= 250)
		n -= fuzz_u8(&run.in) % n;
	uint32_t crc = (uint32_t)crc32(0, m, (uInt)n) + (spoil == 255);
	memcpy(m + n, &crc, 4);
	fake_say(to_listener, type, m, (unsigned)n + 4);
}
