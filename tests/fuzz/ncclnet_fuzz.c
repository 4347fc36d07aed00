/* SPDX-License-Identifier: BSD-3-Clause */
/* ncclnet_fuzz.c - endpoints of tran_ncclnet in the hands of their peer, over a network plugin of
 * the target's own (ncclnet_fake.c). The input says what comes: handles that are true, changed in a
 * place, or raw; hellos; batches, raw or of items with some sense (ids that were asked for, keys
 * and lengths that are right) and then changed in a place; bulk data of the announced size or
 * another; when sends are done; what the plugin refuses; and what the program does meanwhile. Time
 * passes when the input says so, and what would be threads (connect, accept) runs when it says so.
 * Checked all along: each operation is told once, and its buffer not touched after; one failure at
 * most, and nothing after it; frames lie in what came (ASan); what is sent is well-formed, bulk
 * data goes as it was announced, and nothing follows a goodbye; memory beside what is registered,
 * and what peers may only read, keeps its bytes; nothing of the plugin's uses memory that was
 * released; windows hold; all is closed once.
 */
#include "../tran/emulated_frames.h"
#include "ncclnet_fake.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The real one, and its threads are ours: they run in one piece, when the input says so, the one
 * that connects around the one that accepts. */
static int thread_begin(void *(*what)(void *), void *arg);
#define pthread_create(thread, attr, what, arg) ((void)(thread), thread_begin(what, arg))
#include "tran/ncclnet/nt_setup.c"
#undef pthread_create

enum {
	COMMANDS_MAX = 400,
	EPS_MAX = 3,
	OPS_MAX = 96,
	REGION = 24 * 1024,
	GUARD = 64,
	KEPT = 96 * 1024,
	LOCAL_MAX = 64 * 1024,
	THREADS_MAX = 64,
	SLEEP_MS = 25
};

struct end {
	struct tran_ep *ep;
	bool started, ready, failed;
	uint8_t handle[TRAN_HANDLE_MAX];
	size_t handle_len;
};
struct op {
	bool posted;
	struct end *end;
	uint8_t *local; /* NULL: within the memory that is kept */
	size_t len;
	uint64_t before;
};
static struct fuzz_run {
	struct fuzz_input in;
	struct tran *t;
	struct end end[EPS_MAX];
	struct op op[OPS_MAX];
	uint8_t *region, *kept; /* the first with guards around it */
	struct tran_mem *mem, *kept_mem;
	struct thread {
		void *(*what)(void *);
		void *arg;
	} thread[THREADS_MAX];
	unsigned threads;
	const struct thread *running;
	bool no_threads, ending;
} run;

static struct nt_ep *nt_of_end(const struct end *e) { return (struct nt_ep *)e->ep; }
static struct end *some_end(uint8_t which) { return &run.end[which % EPS_MAX]; }

/* ---- time and threads ---- */

static uint64_t clock_ns; /* 0: the real one */

int clock_gettime(clockid_t id, struct timespec *ts)
{
	if (id != CLOCK_MONOTONIC || !clock_ns)
		return (int)syscall(SYS_clock_gettime, id, ts);
	*ts = (struct timespec){.tv_sec = (time_t)(clock_ns / RPWI_NS_PER_S),
		.tv_nsec = (long)(clock_ns % RPWI_NS_PER_S)};
	return 0;
}

static int thread_begin(void *(*what)(void *), void *arg)
{
	if (run.no_threads || run.threads == THREADS_MAX)
		return EAGAIN;
	run.thread[run.threads++] = (struct thread){what, arg};
	return 0;
}

static void thread_run(unsigned i)
{
	const struct thread t = run.thread[i], *before = run.running;
	memmove(&run.thread[i], &run.thread[i + 1], (--run.threads - i) * sizeof run.thread[0]);
	run.running = &t;
	t.what(t.arg);
	run.running = before;
}

static void close_end(struct end *e);
static void plugin_moves(void);

/* Whoever sleeps lets the others move. */
int usleep(useconds_t us)
{
	clock_ns += SLEEP_MS * RPWI_NS_PER_MS;
	if (!run.running) {
		plugin_moves();
		return 0;
	}
	uint8_t what = fuzz_u8(&run.in);
	if (what >= 254)
		close_end(some_end(fuzz_u8(&run.in)));
	for (unsigned i = 0; !(what & 1) && run.running->what == connecting && i < run.threads; i++)
		if (run.thread[i].arg == run.running->arg) {
			thread_run(i);
			return 0;
		}
	return 0;
}

/* ---- what the program is told ---- */

static void mem_change(void);
static void post(struct end *e);

static void op_end(struct op *op)
{
	if (op->local && fake_uses(op->local, op->len))
		fuzz_broken("the plugin has a buffer whose operation is over");
	free(op->local);
	*op = (struct op){0};
}

/* From inside an up-call about `e`. */
static void react(struct end *e)
{
	uint8_t what = fuzz_u8(&run.in);
	if (what >= 252)
		mem_change();
	else if (what >= 248)
		post(some_end(what));
	else if (what >= 244 && some_end(what) != e)
		close_end(some_end(what));
}

static void on_ready(void *user, const struct rpwi_error *err)
{
	int status = err ? err->status : 0;
	const char *why = err ? err->text : "";
	struct end *e = user;
	if (!e->started || e->ready || e->failed || (status && !why[0]))
		fuzz_broken("ready twice, before it was started, or without a reason");
	e->ready = status == 0;
	e->failed = status < 0;
	if (e->ready)
		react(e);
}

static bool on_frame(
	void *user, const void *head, size_t head_len, const void *body, size_t body_len)
{
	struct end *e = user;
	if (!e->ready || e->failed || !e->ep)
		fuzz_broken("a frame after the end, or before the beginning");
	if (head_len && *(const uint8_t *)head >= TRAN_OWN_HEADS)
		fuzz_broken("a frame of the emulation's");
	if (head_len > TRAN_HEAD_MAX || body_len > NT_FRAME_MAX)
		fuzz_broken("a frame beyond its limits");
	fuzz_readable(head, head_len, 1);
	fuzz_readable(body, body_len, 61);
	if (fuzz_u8(&run.in) >= 224)
		tran_ncclnet.send(e->ep, head, head_len, &(struct iovec){(void *)body, body_len}, 1,
			body_len);
	react(e);
	return true;
}

static void on_room(void *user)
{
	struct end *e = user;
	if (!e->ready || e->failed)
		fuzz_broken("room after the end");
	react(e);
}

static void on_done(void *user, void *cookie, const struct rpwi_error *err)
{
	int status = err ? err->status : 0;
	struct op *op = cookie;
	struct end *e = user;
	if (!op->posted || op->end != e || e->failed)
		fuzz_broken("an operation was told twice, or after the end");
	if (status != RPW_OK && status != RPW_ERR_ACCESS && status != RPW_ERR_SYSTEM)
		fuzz_broken("a status that no peer can cause");
	op_end(op);
	react(e);
}

static void on_failed(void *user, const struct rpwi_error *err)
{
	int status = err ? err->status : 0;
	const char *why = err ? err->text : "";
	struct end *e = user;
	if (!e->ready || e->failed || status >= 0 || !why[0])
		fuzz_broken("failed twice, or without a reason");
	e->failed = true;
}
static const struct tran_up up_calls = {
	on_ready, on_frame, NULL, on_room, on_done, on_failed, NULL};

/* ---- what the program does ---- */

static void close_end(struct end *e)
{
	struct tran_ep *ep = e->ep;
	if (!ep)
		return;
	e->ep = NULL;
	tran_ncclnet.ep_close(ep);
	for (unsigned i = 0; i < OPS_MAX; i++)
		if (run.op[i].posted && run.op[i].end == e)
			op_end(&run.op[i]); /* nobody may touch it from now on */
	memset(e, 0, sizeof *e);
}

static void make_end(struct end *e)
{
	struct tran_facts peer = {.transports = "ncclnet", .hostname = "there"};
	if (e->ep)
		return;
	fake.next_which = 0;
	if (tran_ncclnet.ep_make(run.t, &(struct tran_control){.peer = &peer, .active = true}, e,
		    &e->ep, e->handle, &e->handle_len))
		e->ep = NULL;
}

/* The peer's handle: one of ours, with something changed. */
static void start_end(struct end *e)
{
	static uint8_t handle[TRAN_HANDLE_MAX];
	struct nt_handle h;
	char why[200];
	uint8_t how = fuzz_u8(&run.in), which = fuzz_u8(&run.in), value = fuzz_u8(&run.in);
	size_t len = e->handle_len;
	if (!e->ep || e->started || nt_get_handle(e->handle, len, &h, why, sizeof why))
		return;
	if (how >= 160) {
		uint8_t *const field[] = {(uint8_t *)&h.abi, (uint8_t *)&h.bytes, (uint8_t *)h.name,
			(uint8_t *)h.name + 4, h.nonce, h.plugin[0], h.plugin[1]};
		*field[which % RPWI_ARRAY_LEN(field)] = value;
		h.bytes = RPWI_MIN(h.bytes, (size_t)NCCL_NET_HANDLE_BYTES);
	}
	len = nt_put_handle(handle, &h);
	if (how >= 224)
		handle[(which | value << 8) % len] ^= (uint8_t)(1u << (how & 7));
	if (how >= 240)
		len = (which | value << 8) % (len + 32);
	uint8_t *exact = malloc(len ? len : 1);
	memcpy(exact, handle, len);
	e->started = true;
	run.no_threads = how >= 96 && how < 104;
	if (tran_ncclnet.ep_start(e->ep, exact, len, how & 1 ? 0 : 2000))
		fuzz_broken("an endpoint that was made cannot be started");
	run.no_threads = false;
	free(exact);
}

static void post(struct end *e)
{
	uint8_t what = fuzz_u8(&run.in), where = fuzz_u8(&run.in);
	unsigned slot = 0;
	while (slot < OPS_MAX && run.op[slot].posted)
		slot++;
	if (!e->ready || slot == OPS_MAX)
		return;
	struct op *op = &run.op[slot];
	struct tran_desc d = run.kept_mem->desc;
	if (what & 0x08)
		d.bytes[where % sizeof d.bytes] ^= what;
	size_t len = what & 0x40 ? where * 330u : where;
	bool kept = what & 0x10, rma = what % 8 > 1;
	*op = (struct op){.posted = true,
		.end = e,
		.len = len,
		.local = kept || !rma ? NULL : calloc(1, len ? len : 1)};
	int rc;
	if (what % 8 == 0)
		rc = tran_ncclnet.rma->flush(e->ep, op);
	else if (!rma)
		rc = tran_ncclnet.rma->atomic(e->ep,
			what & 0x80 ? TRAN_FETCH_ADD : TRAN_COMPARE_SWAP, &d, where, 1, 2,
			&op->before, op);
	else
		rc = tran_ncclnet.rma->transfer(e->ep, what & 0x80, &d, what & 0x20 ? 7 : 0,
			kept ? run.kept + where : op->local, len, kept ? run.kept_mem : NULL, op);
	if (rc && op->posted)
		op_end(op);
}

static uint8_t pattern(size_t i) { return (uint8_t)(i * 31 + (i >> 8) + 5); }

static void mem_del(void)
{
	struct tran_mem *m = run.mem;
	if (!m)
		return;
	run.mem = NULL;
	bool read_only = !(m->access & (TRAN_WRITE | TRAN_ATOMIC));
	tran_ncclnet.mem->del(run.t, m);
	if (fake_uses(run.region + GUARD, REGION))
		fuzz_broken("the plugin has memory that was released");
	for (size_t i = 0; i < REGION + 2 * GUARD; i++)
		if ((read_only || i < GUARD || i >= GUARD + REGION) && run.region[i] != pattern(i))
			fuzz_broken("bytes were written beside the registered memory, or where "
				    "peers may only read");
	free(run.region);
	run.region = NULL;
}

static void mem_add(unsigned access)
{
	run.region = malloc(REGION + 2 * GUARD);
	for (size_t i = 0; i < REGION + 2 * GUARD; i++)
		run.region[i] = pattern(i);
	if (tran_ncclnet.mem->add(run.t, run.region + GUARD, REGION, access, &run.mem))
		abort();
}

static void mem_change(void)
{
	/* mem_del may have up-calls in it: one at a time, for the sake of `region` */
	static bool inside;
	uint8_t access = fuzz_u8(&run.in);
	if (inside)
		return;
	inside = true;
	mem_del();
	if (access < 224)
		mem_add(access % 8 ? access % 8 : TRAN_READ | TRAN_WRITE | TRAN_ATOMIC);
	inside = false;
}

static void say(struct end *e)
{
	static uint8_t text[NT_FRAME_MAX];
	size_t head = fuzz_u8(&run.in), body = fuzz_u8(&run.in);
	if (body >= 224)
		body = fuzz_u16(&run.in) + (body & 7);
	text[0] = (uint8_t)((text[0] + 1) & 0x7f);
	if (e->ep && e->ready)
		tran_ncclnet.send(e->ep, text, head * 2 % (TRAN_HEAD_MAX + 8),
			&(struct iovec){text, RPWI_MIN(body, sizeof text)}, 1, body);
}

/* ---- what the plugin says of its host ---- */

void fake_hello(struct fake_comm *c)
{
	uint8_t text[NT_HELLO_LEN], how = fuzz_u8(&run.in);
	const struct fake_listen *l = c->listen;
	const struct nt_setup *s = RPWI_CONTAINER_OF(
		(uint8_t(*)[HANDLE_ROOM])l->handle - l->which, struct nt_setup, own[0]);
	nt_put_hello(text, (unsigned)fake_load.n->abi, (unsigned)l->which, s->nonce, s->peer_nonce);
	if (how >= 240)
		text[fuzz_u8(&run.in) % NT_HELLO_LEN] ^= (uint8_t)(1u << (how & 7));
	if (how < 236)
		fake_bring(c, text, sizeof text, sizeof text);
	else if (how < 238)
		fake_bring(c, text, sizeof text / 2, sizeof text / 2);
	else if (how < 239)
		c->broken = NCCL_REMOTE_ERROR;
}

void fake_batch(struct fake_comm *c, const uint8_t *p, size_t len)
{
	if (len < NT_BATCH_LEN || rpwi_get_be32(p) != len || rpwi_get_be32(p + 4) != c->moved - 1)
		fuzz_broken("a batch was sent that says it is another");
	for (size_t at = NT_BATCH_LEN, more; at < len; at += NT_ITEM_LEN + more) {
		struct nt_item i;
		const char *why;
		if (nt_get_item(p + at, len - at, &i, &more, &why) || c->left)
			fuzz_broken(c->left ? "something was sent behind a goodbye" : why);
		c->left = i.kind == NT_LEAVE;
		if (i.kind == NT_BULK && i.answer == NT_OK && c->lens < FAKE_LENS)
			c->len[c->lens++] = (size_t)i.len;
	}
}

void fake_may(const uint8_t *data, size_t len, bool sends)
{
	const struct tran_mem *m = run.mem;
	if (m && data >= (uint8_t *)m->addr && data < (uint8_t *)m->addr + m->len &&
		!(m->access & (sends ? TRAN_READ : TRAN_WRITE)))
		fuzz_broken("bulk data of a peer that may not");
}

/* ---- the peer ---- */

/* The comm of an endpoint, or any. */
static struct fake_comm *some_comm(const struct end *e, bool sends, bool bulk)
{
	uint8_t what = fuzz_u8(&run.in);
	const struct nt_ep *ep = e->ep ? nt_of_end(e) : NULL;
	if (ep && ep->has_comms && what < 224)
		return (sends  ? bulk ? &ep->bulk_out : &ep->out
			: bulk ? &ep->bulk_in
			       : &ep->in)
			->comm;
	for (unsigned i = 0; i < fake.comms; i++) { /* of one that leaves, above all */
		struct fake_comm *c = &fake.comm[(what + i) % fake.comms];
		if (c->live && c->sends == sends && c->bulk == bulk && c->moved)
			return c;
	}
	return NULL;
}

static void plugin_moves(void)
{
	uint8_t what = fuzz_u8(&run.in);
	struct end *e = some_end(what);
	struct fake_comm *c = what >= 128 ? some_comm(e, what & 4, what & 8) : NULL;
	if (!c)
		return;
	if (what >= 208)
		c->broken = NCCL_REMOTE_ERROR;
	else if (c->sends)
		fake_sent(c, what & 7);
	else if (c->bulk && c->fill != c->tail)
		fake_bring_bulk(c, (int)c->ring[c->fill % FAKE_RING]->len);
}

/* Bulk data that is expected, or NULL. */
static const struct tran_bulk *some_expected(const struct end *e)
{
	const struct nt_ep *ep = e->ep ? nt_of_end(e) : NULL;
	uint8_t what = fuzz_u8(&run.in) % 16;
	const struct rpwi_list *l = ep ? ep->expected.next : NULL;
	while (l && l != &ep->expected && what--)
		l = l->next;
	return l && l != &ep->expected ? RPWI_CONTAINER_OF(l, struct tran_bulk, link) : NULL;
}

static uint64_t some_len(void)
{
	uint8_t n = fuzz_u8(&run.in);
	return n < 96    ? n
	       : n < 192 ? (n - 80u) * 220u
	       : n < 248 ? REGION
	       : n < 252 ? UINT64_MAX - n
			 : (uint64_t)fuzz_u16(&run.in) * (n - 240u);
}

/* A head as in emulate_priv.h: a request, or an answer; and how long the body
 * behind it is. */
static size_t put_emulation(const struct end *e, uint8_t what, uint8_t *p, struct nt_item *i)
{
	struct ask ask = {.kind = (uint8_t)(TRAN_OWN_HEADS + what % 5)};
	struct {
		uint32_t magic, slot;
		uint64_t key;
	} desc = {0};
	enum { GET, PUT, ADD, SWAP, DONE };
	uint8_t where = fuzz_u8(&run.in), kind = what % 5;
	const struct tran_bulk *b = kind == DONE ? some_expected(e) : NULL;
	const struct tran_mem *m = where == 250 ? run.kept_mem : run.mem;
	if (m)
		memcpy(&desc, m->desc.bytes, sizeof desc);
	ask.slot = desc.slot;
	ask.key = desc.key;
	ask.offset = where < 160   ? where * 8u
		     : where < 250 ? REGION + 80 - where
				   : UINT64_MAX - (255u - where) * 8;
	ask.len = kind >= ADD ? 8 : some_len();
	if (kind == GET && what < 224)
		ask.len = RPWI_MIN(ask.len, (uint64_t)REGION);
	ask.bulk = kind < ADD && ask.len > NT_HERE_MAX;
	ask.id = b ? b->id
		   : ((uint32_t)where % 8 + 1) << 7 |
				 (ask.bulk ? EMULATED_SMALL + where % EMULATED_BULK
					   : where % EMULATED_SMALL);
	if (kind == DONE)
		ask.bulk = what % 3; /* its answer */
	memcpy(p, &ask, sizeof ask);
	i->head_len = kind == DONE ? 16 : sizeof ask;
	i->len = kind == PUT && !ask.bulk      ? ask.len
		 : kind == ADD || kind == SWAP ? 16
		 : kind == DONE && where < 96  ? where * 3u
					       : 0;
	return i->head_len;
}

/* One item of a batch that could be right. 0: no room. */
static size_t put_sense(const struct end *e, uint8_t *p, size_t room)
{
	static uint8_t head[64];
	uint8_t what = fuzz_u8(&run.in);
	struct nt_item i = {.kind = NT_FRAME};
	size_t own = 0;
	if (what % 16 < 5) {
		const struct tran_bulk *b = some_expected(e);
		i = (struct nt_item){.kind = NT_BULK,
			.id = b ? b->id : what,
			.len = b && what < 192 ? b->len : some_len(),
			.answer = what >= 160};
		if (i.answer && what < 208)
			i.len = 0;
	} else if (what == 15) {
		i.kind = NT_LEAVE;
	} else if (what % 16 < 7) {
		i.head_len = fuzz_u8(&run.in);
		i.len = some_len();
	} else {
		own = put_emulation(e, what, head, &i);
	}
	size_t len = NT_ITEM_LEN + (i.kind == NT_FRAME ? i.head_len + (size_t)RPWI_MIN(i.len,
									      (uint64_t)NT_SLOT_LEN)
						       : 0);
	if (len > room)
		return 0;
	nt_put_item(p, &i);
	if (own)
		memcpy(p + NT_ITEM_LEN, head, own);
	else if (i.head_len)
		p[NT_ITEM_LEN] &= 0x7f;
	return len;
}

static void bring_sense(const struct end *e)
{
	static uint8_t bytes[NT_SLOT_LEN + 64];
	struct fake_comm *c = some_comm(e, false, false);
	uint8_t what = fuzz_u8(&run.in), again = what < 224 ? 1 : what - 223; /* floods */
	size_t len = NT_BATCH_LEN;
	for (size_t n, items = 1 + what % 5;
		items && (n = put_sense(e, bytes + len, NT_SLOT_LEN - len)); items--)
		for (unsigned i = 0; i < again && len + n <= NT_SLOT_LEN; i++, len += n)
			if (i)
				memcpy(bytes + len, bytes + len - n, n);
	uint16_t change = fuzz_u16(&run.in);
	if (!c)
		return;
	rpwi_put_be32(bytes, (uint32_t)(change >> 8 == 0xdf ? len + change % 64 - 32 : len));
	rpwi_put_be32(bytes + 4, c->moved - 1 + (change >> 8 == 0xde));
	if (change >= 0xe000)
		bytes[(change >> 3 & 0x3ff) % len] ^= (uint8_t)(1u << (change & 7));
	size_t size = change >> 8 == 0xdd ? change % (len + 1)
		      : change == 0xdc00  ? sizeof bytes
					  : len;
	fake_bring(c, bytes, RPWI_MAX(size, len),
		change >> 8 == 0xdb   ? -(int)change
		: change >> 8 == 0xda ? 0
				      : (int)size);
}

static void bring_raw(const struct end *e)
{
	uint8_t raw[64], n = fuzz_u8(&run.in) % sizeof raw;
	struct fake_comm *c = some_comm(e, false, false);
	for (unsigned i = 0; i < n; i++)
		raw[i] = fuzz_u8(&run.in);
	if (c)
		fake_bring(c, raw, n, n);
}

static void bring_bulk(const struct end *e)
{
	struct fake_comm *c = some_comm(e, false, true);
	uint8_t how = fuzz_u8(&run.in);
	for (unsigned n = 0; c && n <= (how & 3) && c->fill != c->tail; n++) {
		size_t len = c->ring[c->fill % FAKE_RING]->len;
		fake_bring_bulk(c, how < 224   ? (int)len
				   : how < 240 ? (int)(len / 2)
				   : how < 244 ? -1
				   : how < 248 ? 0
					       : (int)len + how);
	}
}

static void plugin_changes(void)
{
	uint8_t what = fuzz_u8(&run.in), n = fuzz_u8(&run.in);
	uint8_t *const field[] = {&fake.not_now, &fake.bad_posts, &fake.bad_regs, &fake.bad_listens,
		&fake.bad_consumed, &fake.flush_tests};
	if (what < 64)
		fake.sends_wait = n & 1;
	else if (what < 128)
		fake.bulk_waits = n & 1;
	else if (what < 144)
		fake.no_sizes = n & 1;
	else
		*field[what % RPWI_ARRAY_LEN(field)] = n;
}

static void lens_check(const struct nt_ep *ep)
{
	const struct fake_comm *out = ep->out.comm, *bulk = ep->bulk_out.comm;
	for (unsigned i = 0; out && bulk && i < RPWI_MIN(out->lens, bulk->lens); i++)
		if (out->len[i] != bulk->len[i])
			fuzz_broken("bulk data was sent that was announced otherwise");
}

static void progress(void)
{
	tran_ncclnet.progress(run.t);
	unsigned leaving = 0, waiting = 0;
	const struct nt *t = nt_of(run.t);
	for (const struct rpwi_list *l = t->leaving.next; l != &t->leaving; l = l->next)
		leaving++;
	for (unsigned i = 0; i < run.threads; i++)
		waiting += run.thread[i].what == accepting;
	for (unsigned i = 0; i < EPS_MAX; i++) {
		const struct nt_ep *ep = nt_of_end(&run.end[i]);
		waiting += ep != NULL;
		if (!ep || !ep->has_comms)
			continue;
		unsigned ways[2] = {0};
		for (const struct rpwi_list *l = ep->bulks.next; l != &ep->bulks; l = l->next)
			ways[RPWI_CONTAINER_OF(l, struct tran_bulk, of_ep)->sends]++;
		if (ways[0] > TRAN_BULK_MOST || ways[1] > TRAN_BULK_MOST)
			fuzz_broken("more is under way than allowed");
		lens_check(ep);
	}
	if (fake.comms_live > 4 * (leaving + waiting) + 2 * run.threads)
		fuzz_broken("more comms than endpoints use");
}

static void command(void)
{
	uint8_t what = fuzz_u8(&run.in);
	struct end *e = some_end(what >> 6);
	switch (what & 15) {
	case 0:
		bring_raw(e);
		break;
	case 1 ... 4:
		bring_sense(e);
		break;
	case 5:
	case 6:
		post(e);
		break;
	case 7: {
		struct fake_comm *c = some_comm(e, true, what & 0x10);
		uint8_t n = fuzz_u8(&run.in);
		if (c && n >= 250)
			c->broken = n - 249;
		else if (c)
			fake_sent(c, n);
		break;
	}
	case 8:
		bring_bulk(e);
		break;
	case 9:
		say(e);
		break;
	case 10:
		make_end(e);
		start_end(e);
		break;
	case 11:
		if (run.threads)
			thread_run(fuzz_u8(&run.in) % run.threads);
		progress();
		break;
	case 12:
		if (what & 0x20)
			mem_change();
		else if (fuzz_u8(&run.in) < 48)
			close_end(e);
		break;
	case 13:
		if (what & 0x20)
			plugin_changes();
		else if (what & 0x10)
			clock_ns += fuzz_u16(&run.in) * RPWI_NS_PER_MS / 16;
		else {
			int fd;
			uint64_t deadline_ns = RPWI_NEVER;
			struct fake_comm *c =
				fuzz_u8(&run.in) >= 250 ? some_comm(e, false, what & 1) : NULL;
			if (c)
				c->broken = NCCL_REMOTE_ERROR;
			tran_ncclnet.arm(run.t, &fd, &deadline_ns);
		}
		break;
	default:
		progress();
	}
}

static void begin(void)
{
	static const size_t chunks[] = {NT_CHUNK_MAX, 20000, 9000, 4096};
	struct tran_facts own = {.transports = "ncclnet", .hostname = "here", .plugin = "fuzz"};
	uint8_t how = fuzz_u8(&run.in);
	clock_ns = 1000 * RPWI_NS_PER_S;
	fake_reset(&run.in, chunks[how & 3], how & 4);
	fake.bulk_waits = how & 8;
	fake.sends_wait = how & 16;
	fake.flush_tests = how >> 5 & 1;
	if (tran_ncclnet.open(&up_calls, &own, &run.t))
		abort();
	mem_add(TRAN_READ | TRAN_WRITE | TRAN_ATOMIC);
	run.kept = malloc(KEPT);
	memset(run.kept, 0x77, KEPT);
	if (tran_ncclnet.mem->add(run.t, run.kept, KEPT, TRAN_READ, &run.kept_mem))
		abort();
	run.kept_mem->kept = true;
	if (how & 64)
		return;
	make_end(&run.end[0]);
	start_end(&run.end[0]);
	while (run.threads)
		thread_run(0);
	progress();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	memset(&run, 0, sizeof run);
	run.in = (struct fuzz_input){data, len};
	begin();
	for (unsigned i = 0; run.in.left && i < COMMANDS_MAX; i++)
		command();
	progress();
	for (unsigned i = 0; i < EPS_MAX; i++)
		close_end(&run.end[i]);
	while (run.threads)
		thread_run(0);
	progress();
	mem_del();
	tran_ncclnet.mem->del(run.t, run.kept_mem);
	free(run.kept);
	tran_ncclnet.close(run.t);
	nt_linger_wait();
	clock_ns = 0;
	if (fake.comms_live || fake.listens_live || fake.regs_live)
		fuzz_broken("comms or registrations were not given back");
	return 0;
}
