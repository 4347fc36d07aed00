/* SPDX-License-Identifier: BSD-3-Clause */
/* msg_fuzz.c - both ends of a connection of the messaging library, over a transport and a control
 * path in memory (tests/msg/fake.h), in the hands of the input: frames of every type and words of
 * the control path, made with some sense (numbers that are known, memory that is registered) and
 * then spoilt, come in between whatever the two programs do: receives, sends, loans, views,
 * objects, active messages, remote memory, flushes, cancels, closes, and paths that break. So an
 * endpoint meets each of them in every state.
 *
 * Checked all along: each operation ends once, with a status that there is, and its buffer is not
 * touched after (ASan); registered memory that is not for writing keeps its bytes, and so does what
 * is around the rest; what waits for a receive is within the bound; and everything can be closed,
 * and is then freed.
 */
#include <dlfcn.h>

#include "msg_fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

struct fuzz_run run;

static uint64_t fuzz_u64(void)
{
	return (uint64_t)fuzz_u16(&run.in) << 48 | (uint64_t)fuzz_u16(&run.in) << 32 |
	       (uint32_t)fuzz_u16(&run.in) << 16 | fuzz_u16(&run.in);
}

uint64_t fuzz_some_number(void)
{
	static const uint64_t odd[] = {UINT64_MAX, UINT64_MAX - 7, INT64_MAX, 1ull << 32,
		UINT32_MAX, INT32_MAX, 65536, 65535, POOL, REGION, REGION - 7, REGION + 1};
	uint8_t b = fuzz_u8(&run.in);
	return b < 224 ? b % 32 : b < 248 ? odd[b % RPWI_ARRAY_LEN(odd)] : fuzz_u64();
}

rpw_endpoint *fuzz_some_ep(const struct side *s)
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
	rpw_endpoint_destroy(ep);
}

static void ep_close(struct side *s)
{
	rpw_endpoint *ep = fuzz_some_ep(s);
	for (unsigned i = 0; i < EPS_MAX; i++)
		if (s->ep[i] == ep)
			s->ep[i] = NULL;
	rpw_endpoint_destroy(ep);
}

/* ---- a GPU: buffers of operations, and a region of each side, that the CPU cannot touch where the
 * library sees them (tests/msg/fake_cuda.c) ---- */

int cuMemAlloc_v2(unsigned long long *out, size_t len);
void *fake_bytes(unsigned long long p, size_t len);
void fake_device_writes(void *to, const void *from, size_t len);
const void *fake_device_reads(const void *from, size_t len);
extern unsigned long fake_pinned, fake_streams, fake_events;
extern long fake_ordering;
static struct {
	uint8_t *rooms, *region[2];
	size_t left[OPS_MAX]; /* so much of an operation's room is as it was left when that ended */
} gpu;

static uint8_t *gpu_alloc(size_t len)
{
	unsigned long long p;
	if (cuMemAlloc_v2(&p, len))
		abort();
	return (uint8_t *)(uintptr_t)p;
}

static void gpu_open(void)
{
	Dl_info driver;
	if (gpu.rooms)
		return;
	if (!dladdr((void *)fake_bytes, &driver))
		abort();
	setenv("ROPEWAY_CUDA_LIBRARY", driver.dli_fname, 1);
	gpu.rooms = gpu_alloc((size_t)GPU_ROOM * OPS_MAX);
	for (int i = 0; i < 2; i++)
		gpu.region[i] = gpu_alloc(REGION);
}

static void gpu_left(unsigned i)
{
	const uint8_t *p = fake_bytes((uintptr_t)gpu.rooms + (size_t)i * GPU_ROOM, GPU_ROOM);
	for (size_t k = 0; k < gpu.left[i]; k++)
		if (p[k] != 0x5a)
			fuzz_broken("memory of a GPU was written after its operation had ended");
	gpu.left[i] = 0;
}

static void gpu_enter(struct op *op, size_t len)
{
	unsigned i = (unsigned)(op - run.op);
	gpu_left(i);
	op->buf = gpu.rooms + (size_t)i * GPU_ROOM;
	op->gpu = fake_bytes((uintptr_t)op->buf, GPU_ROOM);
	memset(op->gpu, (int)i, len);
}

static void gpu_leave(struct op *op)
{
	memset(op->gpu, 0x5a, op->len);
	gpu.left[op - run.op] = op->len;
}

static void gpu_begin(struct side *s)
{
	gpu_open();
	s->gpu_region = gpu.region[s == &run.side[1]];
	if (rpw_memory_register(s->c, gpu.rooms, (size_t)GPU_ROOM * OPS_MAX, RPW_MEMORY_CUDA, 0,
		    &s->gpu_memory[0]) ||
		rpw_memory_register(s->c, s->gpu_region, REGION, RPW_MEMORY_CUDA,
			RPW_REMOTE_READ | RPW_REMOTE_WRITE, &s->gpu_memory[1]))
		fuzz_broken("memory of a GPU cannot be registered");
}

/* Both sides have ended. */
static void gpu_end(void)
{
	if (!gpu.rooms)
		return;
	if (fake_pinned || fake_streams || fake_events)
		fuzz_broken("something of a GPU's was not given back");
	for (unsigned i = 0; i < OPS_MAX; i++)
		gpu_left(i);
}

/* ---- memory: a peer may say that its message is longer than there is any ---- */

enum { ROOM_MOST = 64 << 20 };
void *__real_aligned_alloc(size_t align, size_t len);
void *__wrap_aligned_alloc(size_t align, size_t len);
void *__wrap_aligned_alloc(size_t align, size_t len)
{
	return len > ROOM_MOST ? NULL : __real_aligned_alloc(align, len);
}

/* ---- what the programs do ---- */

static void op_end(struct op *op)
{
	if (op->gpu)
		gpu_leave(op);
	else
		free(op->buf);
	if (op->obj)
		free(op->obj);
	*op = (struct op){0};
}

static void act(struct side *s);

/* It stays readable until it is released, whatever becomes of its endpoint. */
static void view_release(rpw_view *v)
{
	if (!v->data)
		return;
	fuzz_readable(v->data, v->length, 61);
	if (rpw_view_release(v))
		fuzz_broken("a view cannot be released");
}
static void view_came(const struct op *op, const rpw_completion *done)
{
	if (done->status) {
		if (op->view.data)
			fuzz_broken("a receive that failed has a view");
		return;
	}
	if (!op->view.data || op->view.length != done->length)
		fuzz_broken("a view of another length");
	rpw_view *place = &op->viewer->view[done->tag % LOANS_MAX];
	view_release(place);
	*place = op->view;
}

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
	if (op->viewer)
		view_came(op, done);
	rpw_request_destroy(op->r);
	op_end(op);
}

/* Its buffer is in the GPU, or not, where side s knows one. */
static struct op *op_new(const struct side *s, size_t len)
{
	uint8_t where = s && s->gpu_region ? fuzz_u8(&run.in) : 0;
	for (unsigned i = 0; i < OPS_MAX; i++) {
		struct op *op = &run.op[i];
		if (op->used)
			continue;
		*op = (struct op){.used = true, .len = where > 240 ? len * 64 : len};
		if (where & 1) {
			gpu_enter(op, op->len);
			return op;
		}
		op->buf = malloc(op->len ? op->len : 1);
		memset(op->buf, (int)i, op->len);
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
	rpw_request_on_done(*r, on_done, op);
}

size_t fuzz_some_len(void)
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
	struct op *op = op_new(s, fuzz_some_len());
	rpw_request *r;
	if (!op)
		return;
	uint8_t how = fuzz_u8(&run.in);
	rpw_endpoint *ep = how & 1 ? fuzz_some_ep(s) : NULL;
	uint64_t tag = fuzz_u8(&run.in) % 8;
	op->is_recv = true;
	if (how & 2) {
		struct iovec iov[5];
		int n = 1 + how / 4 % 5;
		for (int i = 0; i < n; i++)
			iov[i] = (struct iovec){op->buf + op->len * (size_t)i / (size_t)n,
				op->len * (size_t)(i + 1) / (size_t)n -
					op->len * (size_t)i / (size_t)n};
		op_posted(op, rpw_recv_iov(s->c, ep, iov, n, tag, some_mask(), &r), &r);
	} else {
		op_posted(op, rpw_recv(s->c, ep, op->buf, op->len, tag, some_mask(), &r), &r);
	}
}

static void post_send(struct side *s)
{
	rpw_endpoint *ep = fuzz_some_ep(s);
	struct op *op = ep ? op_new(s, fuzz_some_len()) : NULL;
	rpw_request *r;
	if (!op)
		return;
	uint8_t how = fuzz_u8(&run.in);
	if (how < 64) {
		struct iovec iov[20];
		int n = 2 + how % 18;
		for (int i = 0; i < n; i++)
			iov[i] = (struct iovec){op->buf + op->len * (size_t)i / (size_t)n,
				op->len * (size_t)(i + 1) / (size_t)n -
					op->len * (size_t)i / (size_t)n};
		op_posted(op, rpw_send_iov(ep, iov, n, how % 8, &r), &r);
	} else if (how < 128) {
		op_posted(op, rpw_send(ep, op->buf, op->len, how % 8, &r), &r);
	} else if (how < 192) {
		op_posted(op, rpw_send_obj(ep, op->buf, op->len, &r), &r);
	} else {
		static const uint8_t header[RPW_AM_HEADER_MAX] = {1, 2, 3};
		op_posted(op,
			rpw_am_send(ep, how % 3, header, how % 2 ? how : 0, op->buf, op->len, &r),
			&r);
	}
}

static void post_recv_view(struct side *s)
{
	struct op *op = op_new(NULL, 0);
	rpw_request *r;
	if (!op)
		return;
	uint8_t how = fuzz_u8(&run.in);
	op->viewer = s;
	op->view = (rpw_view)RPW_VIEW_INIT;
	op_posted(op,
		rpw_recv_view(s->c, how & 8 ? fuzz_some_ep(s) : NULL, how % 8, some_mask(),
			&op->view, &r),
		&r);
}

/* Takes, sends or returns one. */
static void loan_turn(struct side *s)
{
	uint8_t how = fuzz_u8(&run.in);
	rpw_loaned *l = &s->loan[how % LOANS_MAX];
	rpw_endpoint *ep = fuzz_some_ep(s);
	struct op *op;
	rpw_request *r;
	if (!l->data) {
		*l = (rpw_loaned)RPW_LOANED_INIT;
		if (ep && !rpw_loan(ep, fuzz_some_len(), how & 8 ? RPW_LOAN_WRITABLE : 0, 0, l))
			memset(l->data, how, l->length);
	} else if (how < 64)
		rpw_loan_return(l);
	else if (ep && (op = op_new(NULL, 0)))
		op_posted(op, rpw_send_loan(ep, l, fuzz_some_len(), how >> 2 & 7, &r), &r);
}

static void *object_room(size_t len, void *arg)
{
	struct op *op = arg;
	op->obj = len <= OBJECT_MAX ? malloc(len ? len : 1) : NULL;
	return op->obj;
}

static void post_recv_obj(struct side *s)
{
	rpw_endpoint *ep = fuzz_some_ep(s);
	struct op *op = ep ? op_new(NULL, 0) : NULL;
	rpw_request *r;
	void *unused;
	if (!op)
		return;
	/* obj is what the allocator gave: it is freed once, whatever the library says of it. */
	static void *told[OPS_MAX];
	(void)unused;
	op_posted(op, rpw_recv_obj(s->c, ep, object_room, op, &told[op - run.op], &op->obj_len, &r),
		&r);
}

static const rpw_rkey *some_key(const struct side *s)
{
	return s->keys ? s->key[fuzz_u8(&run.in) % s->keys] : NULL;
}

static void post_rma(struct side *s)
{
	rpw_endpoint *ep = fuzz_some_ep(s);
	const rpw_rkey *k = some_key(s);
	struct op *op = ep && k ? op_new(s, fuzz_some_len()) : NULL;
	rpw_request *r;
	if (!op)
		return;
	uint8_t how = fuzz_u8(&run.in);
	uint64_t offset = fuzz_some_number();
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
		op_posted(op, rpw_compare_swap(ep, how, offset, k, offset & ~7ull, &op->before, &r),
			&r);
		break;
	default: {
		size_t half = op->len / 2;
		rpw_transfer t[2] = {{sizeof(*t), how & 8, op->buf, half, k, offset},
			{sizeof(*t), how & 16, op->buf + half, op->len - half, some_key(s), 0}};
		op_posted(op, rpw_transfer_batch(ep, t, 2, &r), &r);
	}
	}
}

static void post_flush(struct side *s)
{
	rpw_endpoint *ep = fuzz_some_ep(s);
	struct op *op = ep ? op_new(NULL, 0) : NULL;
	rpw_request *r;
	if (!op)
		return;
	if (fuzz_u8(&run.in) & 1) {
		rpw_endpoint_fence(ep);
		op_end(op);
	} else {
		op_posted(op, rpw_endpoint_flush(ep, &r), &r);
	}
}

static void let_go_or_cancel(void)
{
	uint8_t b = fuzz_u8(&run.in);
	struct op *op = &run.op[b % OPS_MAX];
	if (!op->used || !op->r)
		return;
	if (b & 0x80) {
		rpw_request_cancel(op->r);
	} else {
		rpw_request *r = op->r;
		op->r = NULL; /* it goes on by itself, and still calls back */
		rpw_request_destroy(r);
	}
}

/* A packed key, spoilt or not; with a checksum that is right mostly. */
static void unpack(struct side *s, struct side *peer)
{
	rpw_endpoint *ep = fuzz_some_ep(s);
	uint8_t packed[RPW_RKEY_BYTES_MAX], how = fuzz_u8(&run.in);
	rpw_memory *m =
		peer->gpu_memory[1] && how & 0x80 ? peer->gpu_memory[1] : peer->memory[how & 1];
	int n = m ? rpw_rkey_pack(m, packed, sizeof(packed)) : -1;
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

static const unsigned region_access[REGIONS] = {
	RPW_REMOTE_READ | RPW_REMOTE_WRITE | RPW_REMOTE_ATOMIC, RPW_REMOTE_READ};

static void memory_turn(struct side *s)
{
	uint8_t b = fuzz_u8(&run.in);
	unsigned i = b % REGIONS;
	if (b >= 128 && s->gpu_memory[1]) {
		rpw_memory_destroy(s->gpu_memory[1]);
		if (rpw_memory_register(s->c, s->gpu_region, REGION, RPW_MEMORY_CUDA,
			    b & 2 ? RPW_REMOTE_READ : RPW_REMOTE_READ | RPW_REMOTE_WRITE,
			    &s->gpu_memory[1]))
			fuzz_broken("memory of a GPU cannot be registered again");
	} else if (s->memory[i]) {
		rpw_memory_destroy(s->memory[i]);
		s->memory[i] = NULL;
	} else if (rpw_memory_register(s->c, s->region[i] + GUARD, REGION, RPW_MEMORY_HOST,
			   region_access[i], &s->memory[i])) {
		fuzz_broken("memory cannot be registered");
	}
}

static void do_connect(struct side *s)
{
	char address[32];
	rpw_endpoint *ep;
	rpw_endpoint_options o = {.size = sizeof(o), .timeout_ms = 1000};
	if (!run.side[1].l)
		return;
	snprintf(address, sizeof(address), "h:%d", rpw_listener_port(run.side[1].l));
	struct op *op = op_new(NULL, 0);
	rpw_request *r;
	if (!op)
		return;
	int rc = rpw_endpoint_create(s->c, address, &o, &ep, &r);
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

static struct side *side_of(const rpw_endpoint *ep)
{
	return ep->c == run.side[0].c ? &run.side[0] : &run.side[1];
}

static void on_am(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *arg)
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
	bool lent = (b & 0x60) == 0x60;
	switch (b & 31) {
	case 0 ... 1:
		if (lent)
			post_recv_view(s);
		else
			post_recv(s);
		break;
	case 2 ... 3:
		if (lent)
			loan_turn(s);
		else
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
		rpw_completion what = RPW_COMPLETION_INIT;
		rpw_probe(s->c, fuzz_some_ep(s), fuzz_u8(&run.in) % 8, some_mask(), &what);
		break;
	}
	case 14:
		if (fuzz_u8(&run.in) == 7) {
			rpw_listener_destroy(run.side[1].l);
			run.side[1].l = NULL;
		}
		break;
	case 15 ... 22:
		fuzz_inject(which);
		break;
	case 23 ... 24:
		fuzz_say(which);
		break;
	case 25: /* of the next path */
		b = fuzz_u8(&run.in);
		fake.frame_max = b & 1 ? RTS_BODY_MAX : 8192;
		fake.eager_max = b & 2 ? 8000 : 2048;
		break;
	default:
		rpw_context_progress(run.side[0].c);
		rpw_context_progress(run.side[1].c);
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
		if (rpw_memory_register(s->c, s->region[i] + GUARD, REGION, RPW_MEMORY_HOST,
			    region_access[i], &s->memory[i]))
			fuzz_broken("memory cannot be registered");
	}
	for (unsigned i = 0; i < 3; i++)
		rpw_context_on_am(s->c, i, on_am, NULL);
	rpw_context_on_notify(s->c, on_notify, NULL);
	if (how % 4 == 3)
		gpu_begin(s);
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
	for (unsigned i = 0; i < LOANS_MAX; i++) {
		view_release(&s->view[i]);
		if (s->loan[i].data)
			rpw_loan_return(&s->loan[i]);
	}
	for (unsigned i = 0; i < s->keys; i++)
		rpw_rkey_destroy(s->key[i]);
	for (unsigned i = 0; i < REGIONS; i++) {
		for (unsigned k = 0; k < REGION + 2 * GUARD; k++)
			if (s->region[i][k] != 0xa5 &&
				(i == READABLE || k < GUARD || k >= GUARD + REGION))
				fuzz_broken("memory was written that was not registered for it");
		free(s->region[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	memset(&run, 0, sizeof(run));
	run.in = (struct fuzz_input){data, len};
	rpwi_log_level_cached = RPWI_LOG_ERROR;
	fake = (struct fake_knobs){
		.rng = {1 + fuzz_u8(&run.in)}, .eager_max = 2048, .frame_max = 8192};
	if (fake.rng.state &
		1) { /* "fake_b" reaches it by itself; what it writes is there at once */
		fake.gpu_write = fake_device_writes;
		fake.gpu_read = fake_device_reads;
		fake_ordering = 100;
	}
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
		rpw_context_progress(run.side[0].c);
		rpw_context_progress(run.side[1].c);
	}
	side_end(&run.side[0]);
	side_end(&run.side[1]);
	for (unsigned i = 0; i < OPS_MAX; i++)
		if (run.op[i].used)
			fuzz_broken("an operation that never ended");
	if (fake_pools())
		fuzz_broken("a pool of loans was left");
	gpu_end();
	return 0;
}
