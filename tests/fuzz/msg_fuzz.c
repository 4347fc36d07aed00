/* msg_fuzz.c - both ends of a connection of the messaging library, over a transport and a control path in memory (tests/msg/fake.h), in the hands of the input: frames of every type and
 * words of the control path, made with some sense (numbers that are known, memory that is registered) and then spoilt, come in between whatever the two programs do: receives, sends,
 * objects, active messages, remote memory, flushes, cancels, closes, and paths that break. So an endpoint meets each of them in every state.
 *
 * Checked all along: each operation ends once, with a status that there is, and its buffer is not touched after (ASan); registered memory that is not for writing keeps its bytes, and so does
 * what is around the rest; what waits for a receive is within the bound; and everything can be closed, and is then freed.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "../msg/fake.h"
#include "msg/msg.h"

enum { COMMANDS_MAX = 300, OPS_MAX = 40, EPS_MAX = 4, KEYS_MAX = 8, REGION = 4096, GUARD = 64, POOL = 256 * 1024, OBJECT_MAX = 1 << 20 };
enum { WRITABLE, READABLE, REGIONS };

struct op {
	bool used;
	rpw_request *r; /* NULL: the program has let go of it */
	uint8_t *buf;
	size_t len;
	uint64_t before;
	void *obj;
	size_t obj_len;
	bool is_recv;
};
struct side {
	rpw_context *c;
	rpw_listener *l;
	rpw_endpoint *ep[EPS_MAX];
	uint8_t *region[REGIONS]; /* each with guards around it */
	rpw_memory *memory[REGIONS];
	rpw_rkey *key[KEYS_MAX];
	unsigned keys;
};
static struct fuzz_run {
	struct fuzz_input in;
	struct side side[2]; /* 0 connects, 1 listens */
	struct op op[OPS_MAX];
} run;

static uint64_t fuzz_u64(void)
{
	return (uint64_t)fuzz_u16(&run.in) << 48 | (uint64_t)fuzz_u16(&run.in) << 32 | (uint32_t)fuzz_u16(&run.in) << 16 | fuzz_u16(&run.in);
}

/* Small numbers mostly, and the ones that programs trip over. */
static uint64_t some_number(void)
{
	static const uint64_t odd[] = {
		UINT64_MAX, UINT64_MAX - 7, INT64_MAX, 1ull << 32, UINT32_MAX, INT32_MAX, 65536, 65535, POOL, REGION, REGION - 7, REGION + 1};
	uint8_t b = fuzz_u8(&run.in);
	return b < 224 ? b % 32 : b < 248 ? odd[b % RPWI_ARRAY_LEN(odd)] : fuzz_u64();
}

static rpw_endpoint *some_ep(const struct side *s)
{
	uint8_t b = fuzz_u8(&run.in);
	for (unsigned i = 0; i < EPS_MAX; i++)
		if (s->ep[(b + i) % EPS_MAX])
			return s->ep[(b + i) % EPS_MAX];
	return NULL;
}

static void side_keep(struct side *s, rpw_endpoint *ep)
{
	for (unsigned i = 0; i < EPS_MAX; i++)
		if (!s->ep[i]) {
			s->ep[i] = ep;
			return;
		}
	rpw_endpoint_close(ep);
}

static void ep_close(struct side *s)
{
	rpw_endpoint *ep = some_ep(s);
	for (unsigned i = 0; i < EPS_MAX; i++)
		if (s->ep[i] == ep)
			s->ep[i] = NULL;
	rpw_endpoint_close(ep);
}

/* ---- what the programs do ---- */

static void op_end(struct op *op)
{
	free(op->buf);
	if (op->obj)
		free(op->obj);
	*op = (struct op){0};
}

static void act(struct side *s);

static void on_done(rpw_request *r, const rpw_completion *done, void *arg)
{
	struct op *op = arg;
	if (!op->used)
		fuzz_broken("an operation ended twice");
	if (done->status > 0 || done->status < RPW_ERR_SYSTEM)
		fuzz_broken("an operation ended with a status that there is not");
	if (op->is_recv && done->status == RPW_OK && done->length > op->len)
		fuzz_broken("more was received than there was room for");
	if (op->obj && done->status == RPW_OK && done->length != op->obj_len)
		fuzz_broken("an object of another length");
	rpw_request_free(op->r);
	op_end(op);
}

static struct op *op_new(size_t len)
{
	for (unsigned i = 0; i < OPS_MAX; i++) {
		struct op *op = &run.op[i];
		if (op->used)
			continue;
		*op = (struct op){.used = true, .len = len, .buf = malloc(len ? len : 1)};
		memset(op->buf, (int)i, len);
		return op;
	}
	return NULL;
}

/* What a call gave. */
static void op_posted(struct op *op, int rc, rpw_request **r)
{
	if (rc != RPW_IN_PROGRESS) {
		op_end(op);
		return;
	}
	op->r = *r;
	rpw_on_done(*r, on_done, op);
}

static size_t some_len(void)
{
	uint8_t b = fuzz_u8(&run.in);
	return b < 128 ? b : b < 192 ? fuzz_u16(&run.in) % 3000 : fuzz_u16(&run.in) % 20000;
}

static uint64_t some_mask(void)
{
	uint8_t b = fuzz_u8(&run.in);
	return b < 128 ? UINT64_MAX : b < 192 ? 0 : b;
}

static void post_recv(struct side *s)
{
	struct op *op = op_new(some_len());
	rpw_request *r;
	if (!op)
		return;
	uint8_t how = fuzz_u8(&run.in);
	rpw_endpoint *ep = how & 1 ? some_ep(s) : NULL;
	uint64_t tag = fuzz_u8(&run.in) % 8;
	op->is_recv = true;
	if (how & 2) {
		struct iovec iov[5];
		int n = 1 + how / 4 % 5;
		for (int i = 0; i < n; i++)
			iov[i] = (struct iovec){
				op->buf + op->len * (size_t)i / (size_t)n, op->len * (size_t)(i + 1) / (size_t)n - op->len * (size_t)i / (size_t)n};
		op_posted(op, rpw_recv_iov(s->c, ep, iov, n, tag, some_mask(), &r), &r);
	} else {
		op_posted(op, rpw_recv(s->c, ep, op->buf, op->len, tag, some_mask(), &r), &r);
	}
}

static void post_send(struct side *s)
{
	rpw_endpoint *ep = some_ep(s);
	struct op *op = ep ? op_new(some_len()) : NULL;
	rpw_request *r;
	if (!op)
		return;
	uint8_t how = fuzz_u8(&run.in);
	if (how < 64) {
		struct iovec iov[20];
		int n = 2 + how % 18;
		for (int i = 0; i < n; i++)
			iov[i] = (struct iovec){
				op->buf + op->len * (size_t)i / (size_t)n, op->len * (size_t)(i + 1) / (size_t)n - op->len * (size_t)i / (size_t)n};
		op_posted(op, rpw_send_iov(ep, iov, n, how % 8, &r), &r);
	} else if (how < 128) {
		op_posted(op, rpw_send(ep, op->buf, op->len, how % 8, &r), &r);
	} else if (how < 192) {
		op_posted(op, rpw_send_obj(ep, op->buf, op->len, &r), &r);
	} else {
		static const uint8_t header[RPW_AM_HEADER_MAX] = {1, 2, 3};
		op_posted(op, rpw_am_send(ep, how % 3, header, how % 2 ? how : 0, op->buf, op->len, &r), &r);
	}
}

static void *object_room(size_t len, void *arg)
{
	struct op *op = arg;
	op->obj = len <= OBJECT_MAX ? malloc(len ? len : 1) : NULL;
	return op->obj;
}

static void post_recv_obj(struct side *s)
{
	rpw_endpoint *ep = some_ep(s);
	struct op *op = ep ? op_new(0) : NULL;
	rpw_request *r;
	void *unused;
	if (!op)
		return;
	/* obj is what the allocator gave: it is freed once, whatever the library says of it. */
	static void *told[OPS_MAX];
	(void)unused;
	op_posted(op, rpw_recv_obj(ep, object_room, op, &told[op - run.op], &op->obj_len, &r), &r);
}

static const rpw_rkey *some_key(const struct side *s) { return s->keys ? s->key[fuzz_u8(&run.in) % s->keys] : NULL; }

static void post_rma(struct side *s)
{
	rpw_endpoint *ep = some_ep(s);
	const rpw_rkey *k = some_key(s);
	struct op *op = ep && k ? op_new(some_len()) : NULL;
	rpw_request *r;
	if (!op)
		return;
	uint8_t how = fuzz_u8(&run.in);
	uint64_t offset = some_number();
	switch (how % 8) {
	case 0:
	case 1:
		op_posted(op, rpw_put(ep, op->buf, op->len, k, offset, &r), &r);
		break;
	case 2:
	case 3:
		op_posted(op, rpw_get(ep, op->buf, op->len, k, offset, &r), &r);
		break;
	case 4:
		op_posted(op, rpw_put_notify(ep, op->buf, op->len, k, offset, how, &r), &r);
		break;
	case 5:
		op_posted(op, rpw_fetch_add(ep, how, k, offset & ~7ull, &op->before, &r), &r);
		break;
	case 6:
		op_posted(op, rpw_compare_swap(ep, how, offset, k, offset & ~7ull, &op->before, &r), &r);
		break;
	default: {
		size_t half = op->len / 2;
		rpw_transfer t[2] = {{how & 8, op->buf, half, k, offset}, {how & 16, op->buf + half, op->len - half, some_key(s), 0}};
		op_posted(op, rpw_transfer_batch(ep, t, 2, &r), &r);
	}
	}
}

static void post_flush(struct side *s)
{
	rpw_endpoint *ep = some_ep(s);
	struct op *op = ep ? op_new(0) : NULL;
	rpw_request *r;
	if (!op)
		return;
	if (fuzz_u8(&run.in) & 1) {
		rpw_fence(ep);
		op_end(op);
	} else {
		op_posted(op, rpw_flush(ep, &r), &r);
	}
}

static void let_go_or_cancel(void)
{
	uint8_t b = fuzz_u8(&run.in);
	struct op *op = &run.op[b % OPS_MAX];
	if (!op->used || !op->r)
		return;
	if (b & 0x80) {
		rpw_cancel(op->r);
	} else {
		rpw_request *r = op->r;
		op->r = NULL; /* it goes on by itself, and still calls back */
		rpw_request_free(r);
	}
}

/* A packed key, spoilt or not; with a checksum that is right mostly. */
static void unpack(struct side *s, struct side *peer)
{
	rpw_endpoint *ep = some_ep(s);
	uint8_t packed[RPW_RKEY_BYTES_MAX], how = fuzz_u8(&run.in);
	rpw_memory *m = peer->memory[how & 1];
	int n = m ? rpw_memory_pack(m, packed, sizeof(packed)) : -1;
	if (!ep || n < 0 || s->keys == KEYS_MAX)
		return;
	for (unsigned i = how >> 1 & 3; i; i--)
		packed[fuzz_u8(&run.in) % (unsigned)n] = fuzz_u8(&run.in);
	if (how & 8)
		n -= fuzz_u8(&run.in) % n;
	if (how & 0x70 && n > 4) {
		uint32_t crc = (uint32_t)crc32(0, packed, (uInt)(n - 4));
		memcpy(packed + n - 4, &crc, 4);
	}
	uint8_t *exact = malloc((size_t)n + 1); /* so that a byte too much is seen */
	memcpy(exact, packed, (size_t)n);
	exact = realloc(exact, (size_t)n ? (size_t)n : 1);
	if (rpw_rkey_unpack(ep, exact, (size_t)n, &s->key[s->keys]) == RPW_OK)
		s->keys++;
	free(exact);
}

static const unsigned region_access[REGIONS] = {RPW_REMOTE_READ | RPW_REMOTE_WRITE | RPW_REMOTE_ATOMIC, RPW_REMOTE_READ};

static void memory_turn(struct side *s)
{
	unsigned i = fuzz_u8(&run.in) % REGIONS;
	if (s->memory[i]) {
		rpw_memory_release(s->memory[i]);
		s->memory[i] = NULL;
	} else if (rpw_memory_register(s->c, s->region[i] + GUARD, REGION, RPW_MEMORY_HOST, region_access[i], &s->memory[i])) {
		fuzz_broken("memory cannot be registered");
	}
}

static void do_connect(struct side *s)
{
	char address[32];
	rpw_endpoint *ep;
	rpw_connect_options o = {.size = sizeof(o), .timeout_ms = 1000};
	if (!run.side[1].l)
		return;
	snprintf(address, sizeof(address), "h:%d", rpw_listener_port(run.side[1].l));
	struct op *op = op_new(0);
	rpw_request *r;
	if (!op)
		return;
	int rc = rpw_connect(s->c, address, &o, &ep, &r);
	if (rc >= 0)
		side_keep(s, ep);
	op_posted(op, rc, &r);
}

/* Inside callbacks: what may be done there. */
static void act(struct side *s)
{
	uint8_t b = fuzz_u8(&run.in);
	if (b < 8)
		ep_close(s);
	else if (b < 24)
		post_send(s);
	else if (b < 32)
		post_recv(s);
}

static struct side *side_of(const rpw_endpoint *ep) { return ep->c == run.side[0].c ? &run.side[0] : &run.side[1]; }

static void on_am(rpw_endpoint *ep, const void *header, size_t header_len, const void *data, size_t len, void *arg)
{
	const volatile uint8_t *h = header, *d = data;
	for (size_t i = 0; i < header_len; i++)
		(void)h[i];
	for (size_t i = 0; i < len; i++)
		(void)d[i];
	act(side_of(ep));
}
static void on_notify(rpw_endpoint *ep, uint64_t data, size_t len, void *arg) { act(side_of(ep)); }
static void on_accept(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	side_keep(&run.side[1], ep);
	act(&run.side[1]);
}

/* ---- what a peer of bad will sends ---- */

static size_t put_piece(uint8_t *p, uint64_t len, uint64_t number)
{
	memcpy(p, &len, 8);
	p[8] = 8;
	memcpy(p + 9, &number, 8);
	return 17;
}

/* The number of something that the other side has under way. */
static uint64_t their_number(const rpw_endpoint *ep)
{
	uint8_t b = fuzz_u8(&run.in);
	for (const struct rpwi_list *n = ep->active_list.next; b < 224 && n != &ep->active_list; n = n->next) {
		const rpw_request *r = RPWI_CONTAINER_OF(n, rpw_request, active);
		if (r->number && b-- % 4 == 0)
			return r->number;
	}
	return b < 240 ? 1ull << 32 | (b & 7) : some_number();
}

/* The number of what was offered to it. */
static uint64_t our_number(const rpw_endpoint *ep)
{
	const struct rpwi_list *lists[] = {&ep->unexpected, &ep->objects, &ep->ams};
	uint8_t b = fuzz_u8(&run.in);
	for (const struct rpwi_list *n = ep->fetching.next; b >= 64 && n != &ep->fetching; n = n->next) {
		const rpw_request *r = RPWI_CONTAINER_OF(n, rpw_request, link);
		if (r->rts && b % 2)
			return r->rts->number;
	}
	const struct rpwi_list *list = lists[b % 3];
	if (b < 192 && list->next != list) {
		const struct unexpected *u = RPWI_CONTAINER_OF(list->next, struct unexpected, in_endpoint);
		return u->rts ? u->rts->number : u->number;
	}
	return b % 8;
}

static size_t rts_make(uint8_t *body, const rpw_endpoint *ep, const struct side *from, bool describe)
{
	uint8_t b = fuzz_u8(&run.in);
	struct rts_body h = {.number = describe ? our_number(ep) : fuzz_u8(&run.in) % 16, .pieces = (uint16_t)(1 + b % 3), .am_header_len = b & 0x80 ? 4 : 0};
	uint8_t *p = body + sizeof(h);
	for (unsigned i = 0; i < h.pieces; i++) {
		uint8_t c = fuzz_u8(&run.in);
		uint64_t len = c < 128 ? c * 16u : c < 192 ? REGION : some_number();
		p += put_piece(p, len, c & 1 ? fake_number_of(from->region[c >> 1 & 1] + GUARD) : some_number());
		h.len += len;
	}
	if (b & 0x40)
		h.len = some_number();
	memcpy(body, &h, sizeof(h));
	memset(p, 7, h.am_header_len);
	return (size_t)(p - body) + h.am_header_len;
}

static void inject(unsigned to)
{
	struct side *s = &run.side[to], *from = &run.side[!to];
	const rpw_endpoint *ep = some_ep(s);
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
	f.h.ack = (uint16_t)(b & 1 ? ep->tx_count : ep->acked);
	f.h.credit = ep->tx_limit + (b & 2 ? 1000 : 0);
	f.h.tag = b >> 5;
	memset(body, b, sizeof(body));
	switch (f.h.type) {
	case FRAME_TAG:
	case FRAME_OBJECT:
		len = some_len() % 8192;
		break;
	case FRAME_AM:
		len = some_len() % 8192;
		f.h.tag = am_word(b % 4, b & 4 ? b : 0);
		head_len += b & 4 ? b : 0;
		break;
	case FRAME_RTS:
		f.h.flags = (uint8_t)(b % (RTS_KINDS + 1));
		len = rts_make(body, ep, from, false);
		if (f.h.flags == RTS_AM)
			f.h.tag = am_word(b % 4, body[18]);
		break;
	case FRAME_DESCRIBE:
		len = b < 16 ? 0 : rts_make(body, ep, from, true);
		break;
	case FRAME_FIN:
	case FRAME_ATOMIC_DONE:
		f.h.flags = b & 4 ? (uint8_t)some_number() : 0;
		f.h.tag = their_number(ep);
		len = f.h.type == FRAME_FIN ? 0 : 8;
		break;
	case FRAME_WITHDRAW:
		f.h.tag = our_number(ep);
		break;
	case FRAME_NOTIFY:
		len = 8;
		break;
	case FRAME_FLUSHED:
		f.h.tag = their_number(ep);
		break;
	case FRAME_ATOMIC: {
		struct atomic_body a = {.region = 1ull << 32 | (1 + b % 4), .offset = some_number(), .operand = 1, .compare = b, .op = b >> 7};
		for (unsigned i = 0; i < REGIONS; i++)
			if (s->memory[i] && b & (1u << i)) {
				a.region = s->memory[i]->number;
				a.secret = s->memory[i]->secret;
			}
		memcpy(body, &a, sizeof(a));
		len = sizeof(a);
		break;
	}
	case FRAME_NEED:
		f.h.tag = some_number();
		break;
	default:
		break;
	}
	/* Then one thing of it is wrong, or not. */
	uint8_t spoil = fuzz_u8(&run.in);
	if (spoil < 16)
		head_len = spoil;
	else if (spoil < 48)
		len = some_len() % 8192;
	else if (spoil < 80 && len)
		body[fuzz_u8(&run.in) % RPWI_MIN(len, (size_t)128)] = fuzz_u8(&run.in);
	else if (spoil < 96)
		((uint8_t *)&f)[fuzz_u8(&run.in) % sizeof(f.h)] = fuzz_u8(&run.in);
	else if (spoil < 104)
		f.h.tag = some_number();
	fake_inject(fake_made_by(!to), &f, (unsigned)head_len, body, (unsigned)len);
}

static void say(bool to_listener)
{
	const rpw_endpoint *ep = some_ep(&run.side[to_listener]);
	static uint8_t m[BOOT_MESSAGE_MAX];
	uint8_t b = fuzz_u8(&run.in), spoil = fuzz_u8(&run.in);
	unsigned type = b % 8;
	size_t text = b >> 5, n;
	uint16_t attempt = (uint16_t)((ep ? ep->attempt : 0) + (spoil & 3 ? 0 : b >> 6));
	if (type == SAY_CHOICE || type == SAY_ANSWER) {
		struct say_path p = {.version = SAY_VERSION,
			.attempt = attempt,
			.status = spoil & 4 ? -(int)(b >> 4) : 0,
			.received = (ep ? ep->tx_count : 0) + (spoil & 8 ? some_number() : 0),
			.credit = (uint32_t)(ep ? ep->tx_limit : 0) + b,
			.text_len = (uint16_t)text,
			.handle_len = 16};
		uint64_t handle[2] = {0xfa4e, fake_made_by(!to_listener) + (spoil & 16 ? some_number() : 0)};
		memcpy(p.transport, spoil & 32 ? "fake_a" : "fake_b", 7);
		memcpy(m, &p, sizeof(p));
		memset(m + sizeof(p), 'x', text);
		memcpy(m + sizeof(p) + text, handle, 16);
		n = sizeof(p) + text + 16;
	} else {
		struct say_word w = {.version = SAY_VERSION,
			.attempt = attempt,
			.text_len = (uint16_t)text,
			.sent = (ep ? ep->rx_count : 0) + (spoil & 4 ? some_number() : 0)};
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

/* ---- the run ---- */

static void knobs(void)
{
	uint8_t b = fuzz_u8(&run.in);
	fake.again_percent = b & 1 ? 30 : 0;
	fake.late_percent = b & 2 ? 40 : 0;
	fake.break_permille = b & 4 ? 200 : 0;
	fake.no_ready = (b & 0x38) == 0x38;
	fake.refuse_make = (b & 0xc0) == 0xc0;
}

static void command(void)
{
	uint8_t b = fuzz_u8(&run.in);
	unsigned which = b >> 7;
	struct side *s = &run.side[which];
	switch (b & 31) {
	case 0 ... 1:
		post_recv(s);
		break;
	case 2 ... 3:
		post_send(s);
		break;
	case 4:
		post_recv_obj(s);
		break;
	case 5:
		post_rma(s);
		break;
	case 6:
		post_flush(s);
		break;
	case 7:
		let_go_or_cancel();
		break;
	case 8:
		unpack(s, &run.side[!which]);
		break;
	case 9:
		if (fuzz_u8(&run.in) < 64)
			memory_turn(s);
		break;
	case 10:
		if (fuzz_u8(&run.in) < 32)
			ep_close(s);
		break;
	case 11:
		if (fuzz_u8(&run.in) < 64)
			do_connect(&run.side[0]);
		break;
	case 12:
		knobs();
		break;
	case 13: {
		rpw_completion what;
		rpw_probe(s->c, some_ep(s), fuzz_u8(&run.in) % 8, some_mask(), &what);
		break;
	}
	case 14:
		if (fuzz_u8(&run.in) == 7) {
			rpw_listener_destroy(run.side[1].l);
			run.side[1].l = NULL;
		}
		break;
	case 15 ... 22:
		inject(which);
		break;
	case 23 ... 24:
		say(which);
		break;
	default:
		rpw_progress(run.side[0].c);
		rpw_progress(run.side[1].c);
	}
}

static void side_begin(struct side *s)
{
	rpw_context_options o = {.size = sizeof(o), .unexpected_bytes_max = POOL};
	uint8_t how = fuzz_u8(&run.in);
	o.transports = how < 100 ? "fake_a" : how < 200 ? "fake_b" : NULL;
	if (rpw_context_create(&o, &s->c))
		fuzz_broken("no context");
	for (unsigned i = 0; i < REGIONS; i++) {
		s->region[i] = malloc(REGION + 2 * GUARD);
		memset(s->region[i], 0xa5, REGION + 2 * GUARD);
		if (rpw_memory_register(s->c, s->region[i] + GUARD, REGION, RPW_MEMORY_HOST, region_access[i], &s->memory[i]))
			fuzz_broken("memory cannot be registered");
	}
	for (unsigned i = 0; i < 3; i++)
		rpw_am_handle(s->c, i, on_am, NULL);
	rpw_on_notify(s->c, on_notify, NULL);
}

static void check(const struct side *s)
{
	rpw_statistics st = {.size = sizeof(st)};
	rpw_context_statistics(s->c, &st);
	if (st.unexpected_bytes > POOL)
		fuzz_broken("more waits for a receive than may");
	if (s->c->am_bytes > POOL)
		fuzz_broken("more active messages are fetched than may be");
}

static void side_end(struct side *s)
{
	rpw_context_destroy(s->c);
	for (unsigned i = 0; i < s->keys; i++)
		rpw_rkey_destroy(s->key[i]);
	for (unsigned i = 0; i < REGIONS; i++) {
		for (unsigned k = 0; k < REGION + 2 * GUARD; k++)
			if (s->region[i][k] != 0xa5 && (i == READABLE || k < GUARD || k >= GUARD + REGION))
				fuzz_broken("memory was written that was not registered for it");
		free(s->region[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	memset(&run, 0, sizeof(run));
	run.in = (struct fuzz_input){data, len};
	rpwi_log_level_cached = RPWI_LOG_ERROR;
	fake = (struct fake_knobs){.seed = 1 + fuzz_u8(&run.in), .eager_max = 2048, .frame_max = 8192};
	side_begin(&run.side[0]);
	side_begin(&run.side[1]);
	if (rpw_listener_create(run.side[1].c, ":0", on_accept, NULL, &run.side[1].l))
		fuzz_broken("no listener");
	do_connect(&run.side[0]);
	for (unsigned i = 0; run.in.left && i < COMMANDS_MAX; i++) {
		command();
		check(&run.side[0]);
		check(&run.side[1]);
	}
	fake.again_percent = fake.late_percent = fake.break_permille = 0;
	for (unsigned i = 0; i < 8; i++) {
		rpw_progress(run.side[0].c);
		rpw_progress(run.side[1].c);
	}
	side_end(&run.side[0]);
	side_end(&run.side[1]);
	for (unsigned i = 0; i < OPS_MAX; i++)
		if (run.op[i].used)
			fuzz_broken("an operation that never ended");
	return 0;
}
