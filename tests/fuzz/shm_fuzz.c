/* SPDX-License-Identifier: BSD-3-Clause */
/* shm_fuzz.c - a link of tran_shm in the hands of its peer: between the rounds of progress of both
 * sides the input writes into the shared segment (control words, cells, bytes), into the board of
 * the peer, forges cells and control frames, sends notes over the socket, shows handles and
 * descriptions of memory, while both sides send, get, put, and come and go. Checked all along:
 * frames within bounds and readable; each operation told once, and its buffer not touched after
 * (ASan); memory around what was registered, and what was registered only for reading, as it
 * was.
 */
#include "../tran/emulated_frames.h"
#include "fuzz.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <fcntl.h>
#include <unistd.h>

#include "ropeway.h"
#include "tran/shm/shm.h"

enum {
	COMMANDS_MAX = 300,
	EPS_MAX = 4,
	OPS_MAX = 48,
	REGION = 4096,
	GUARD = 64,
	LOCAL_MAX = 256 * 1024,
	ROUNDS_UP = 400
};
enum { WRITABLE, READABLE, MAPPED, REGIONS };

struct side;
struct end {
	struct side *s;
	struct tran_ep *ep;
	bool ready, failed;
	struct tran_pool *pool; /* of loans, its own */
};
struct op {
	bool used;
	struct side *s;
	uint8_t *local;
	uint64_t before;
};
struct side {
	struct tran *t;
	struct end end[EPS_MAX];
	uint8_t *region[2]; /* with guards around them */
	struct tran_mem *mem[REGIONS];
};
static struct fuzz_run {
	struct fuzz_input in;
	struct side side[2];
	struct op op[OPS_MAX];
} run;
static struct tran_facts facts = {.transports = "shm", .hostname = "here"};

static uint64_t fuzz_u64(void)
{
	return (uint64_t)fuzz_u16(&run.in) << 48 | (uint64_t)fuzz_u16(&run.in) << 32 |
	       (uint32_t)fuzz_u16(&run.in) << 16 | fuzz_u16(&run.in);
}

static uint64_t some_number(void)
{
	static const uint64_t odd[] = {UINT64_MAX, UINT64_MAX - 7, INT64_MAX, 1ull << 32,
		UINT32_MAX, INT32_MAX, 1 << 20, 65536, 65535, RING_BULK, RING_CELLS, REGION,
		REGION - 7, REGION + 1};
	uint8_t b = fuzz_u8(&run.in);
	return b < 192 ? b % 64 : b < 240 ? odd[b % RPWI_ARRAY_LEN(odd)] : fuzz_u64();
}

/* Both sides are of one process; here they are to be as two are: nothing by address. */
static void apart(struct side *s)
{
	struct shm *t = shm_of(s->t);
	for (unsigned i = 0; i < t->link_count; i++)
		if (!t->links[i]->self)
			t->links[i]->local = t->links[i]->pvm = false;
}

static struct shm_link *link_of(struct side *s)
{
	struct shm *t = shm_of(s->t);
	for (unsigned i = 0; i < t->link_count; i++)
		if (t->links[i]->state == SHM_LINK_UP && t->links[i]->segment && !t->links[i]->self)
			return t->links[i];
	return NULL;
}

static struct end *some_end(struct side *s)
{
	uint8_t b = fuzz_u8(&run.in);
	for (unsigned i = 0; i < EPS_MAX; i++) {
		struct end *e = &s->end[(b + i) % EPS_MAX];
		if (e->ep && e->ready)
			return e;
	}
	return NULL;
}

/* ---- up-calls ---- */

static void on_ready(void *user, const struct rpwi_error *err)
{
	int status = err ? err->status : 0;
	struct end *e = user;
	if (e->ready || e->failed)
		fuzz_broken("ready twice");
	e->ready = !status;
	e->failed = status;
}

static void send_some(struct end *e);
static bool on_frame(
	void *user, const void *head, size_t head_len, const void *body, size_t body_len)
{
	struct end *e = user;
	if (e->failed || !e->ready || !e->ep)
		fuzz_broken("a frame at the wrong time");
	if (head_len > TRAN_HEAD_MAX || body_len > RING_BODY_MAX)
		fuzz_broken("a frame beyond its limits");
	fuzz_readable(head, head_len, 1);
	fuzz_readable(body, body_len, 61);
	if (fuzz_u8(&run.in) < 16)
		send_some(e);
	return true;
}
static void on_room(void *user) {}
static void op_end(struct op *op)
{
	free(op->local);
	*op = (struct op){0};
}
static void on_done(void *user, void *cookie, const struct rpwi_error *err)
{
	int status = err ? err->status : 0;
	struct op *op = cookie;
	struct end *e = user;
	if (!op->used || e->failed)
		fuzz_broken("an operation was told twice, or after the end");
	/* SYSTEM: it says that it could not */
	if (status != RPW_OK && status != RPW_ERR_ACCESS && status != RPW_ERR_SYSTEM)
		fuzz_broken("a status that no peer can cause");
	op_end(op);
}
static void on_failed(void *user, const struct rpwi_error *err)
{
	int status = err ? err->status : 0;
	const char *why = err ? err->text : "";
	struct end *e = user;
	if (e->failed || !e->ready || status >= 0 || !why[0])
		fuzz_broken("failed twice, or without a reason");
	e->failed = true;
	e->ready = false;
}
static const struct tran_up up = {on_ready, on_frame, NULL, on_room, on_done, on_failed, NULL};

/* ---- what programs do ---- */

static void send_some(struct end *e)
{
	static const uint8_t bytes[SHM_FRAME_MAX] = {1, 2, 3};
	uint8_t b = fuzz_u8(&run.in);
	size_t head = b & 1 ? b : 16,
	       body = b & 2 ? fuzz_u16(&run.in) % (SHM_FRAME_MAX + 1) : b / 4;
	struct iovec iov = {(void *)bytes, body};
	tran_shm.send(e->ep, bytes, head, &iov, 1, body);
}

/* A pool of its own; or a look at those that the peer has shown, or says that it has: each byte
 * that a view may have is there. */
static void loan_some(struct end *e)
{
	uint8_t how = fuzz_u8(&run.in);
	struct tran_seen *seen;
	if (how & 1 && !e->pool) {
		tran_shm.loan->make(e->ep, TRAN_LOAN_ALIGN * (size_t)(1 + how / 4),
			1 + fuzz_u8(&run.in), how & 2, &e->pool);
		return;
	}
	if (how & 2 && e->pool) {
		tran_shm.loan->end(e->ep, e->pool);
		e->pool = NULL;
		return;
	}
	if (tran_shm.loan->find(e->ep, how >> 2 & 3, how >> 4 & 3, &seen))
		return;
	fuzz_readable(seen->data, seen->slots * seen->slot_bytes, 4096);
	if (seen->writable)
		seen->data[seen->slots * seen->slot_bytes - 1] = how;
	atomic_store(&seen->returned[seen->slots - 1], how);
}

static struct op *op_new(struct side *s, size_t len)
{
	for (unsigned i = 0; i < OPS_MAX; i++)
		if (!run.op[i].used) {
			run.op[i] = (struct op){.used = true, .s = s, .local = calloc(1, len + 1)};
			return &run.op[i];
		}
	return NULL;
}

/* Of the peer's memory; spoilt or not. */
static struct tran_desc some_desc(struct side *peer)
{
	uint8_t b = fuzz_u8(&run.in);
	struct tran_mem *m = peer->mem[b % REGIONS];
	struct tran_desc d = {0};
	if (m)
		d = m->desc;
	for (unsigned n = b >= 192 ? b & 3 : 0; n; n--)
		((uint8_t *)&d)[fuzz_u8(&run.in) % sizeof(d)] = fuzz_u8(&run.in);
	return d;
}

static void rma_some(struct side *s, struct side *peer)
{
	struct end *e = some_end(s);
	uint8_t b = fuzz_u8(&run.in);
	size_t len = b & 0x40 ? fuzz_u16(&run.in) * 4u : fuzz_u8(&run.in);
	struct op *op = e ? op_new(s, len) : NULL;
	if (!op)
		return;
	struct tran_desc d = some_desc(peer);
	uint64_t offset = some_number();
	int rc;
	if (b % 8 == 0)
		rc = tran_shm.rma->flush(e->ep, op);
	else if (b % 8 == 1)
		rc = tran_shm.rma->atomic(e->ep, b & 0x80 ? TRAN_FETCH_ADD : TRAN_COMPARE_SWAP, &d,
			offset & ~7ull, 1, 2, &op->before, op);
	else
		rc = tran_shm.rma->transfer(e->ep, b & 0x80, &d, offset, op->local, len, NULL, op);
	if (rc && op->used)
		op_end(op);
}

static void ops_forget(struct side *s)
{
	for (unsigned i = 0; i < OPS_MAX; i++)
		if (run.op[i].used && run.op[i].s == s)
			op_end(&run.op[i]); /* nobody may touch them from now on */
}

static void close_end(struct side *s, unsigned i)
{
	if (!s->end[i].ep)
		return;
	/* Operations of one endpoint cannot be told from those of another here: so all of the
	 * side's close together. */
	for (unsigned k = 0; k < EPS_MAX; k++) {
		if (s->end[k].ep)
			tran_shm.ep_close(s->end[k].ep);
		if (s->end[k].pool)
			tran_shm.loan->end(NULL, s->end[k].pool);
		s->end[k] = (struct end){.s = s};
	}
	ops_forget(s);
}

static const unsigned access_of[REGIONS] = {
	TRAN_READ | TRAN_WRITE | TRAN_ATOMIC, TRAN_READ, TRAN_READ | TRAN_WRITE};
static void mem_turn(struct side *s, unsigned i)
{
	if (s->mem[i]) {
		tran_shm.mem->del(s->t, s->mem[i]);
		s->mem[i] = NULL;
	} else if (i == MAPPED ? tran_shm.mem->alloc(s->t, REGION, access_of[i], &s->mem[i])
			       : tran_shm.mem->add(s->t, s->region[i] + GUARD, REGION, access_of[i],
					 &s->mem[i])) {
		fuzz_broken("memory cannot be registered");
	}
}

static bool free_end(struct side *s, unsigned *i)
{
	for (*i = 0; *i < EPS_MAX; ++*i)
		if (!s->end[*i].ep)
			return true;
	return false;
}

static uint64_t handle_check(const struct shm_handle *h)
{
	uint64_t sum = 0xcbf29ce484222325ull;
	for (size_t i = 0; i < offsetof(struct shm_handle, check); i++)
		sum = (sum ^ ((const uint8_t *)h)[i]) * 0x100000001b3ull;
	return sum;
}

/* An endpoint on both sides, with each other's handles; one of them spoilt, or not. */
static void connect_pair(bool spoil)
{
	uint8_t handle[2][TRAN_HANDLE_MAX];
	size_t len[2];
	unsigned i, k;
	if (!free_end(&run.side[0], &i) || !free_end(&run.side[1], &k))
		return;
	struct end *e[2] = {&run.side[0].end[i], &run.side[1].end[k]};
	for (unsigned n = 0; n < 2; n++) {
		*e[n] = (struct end){.s = &run.side[n]};
		if (tran_shm.ep_make(run.side[n].t,
			    &(struct tran_control){.peer = &facts, .active = n}, e[n], &e[n]->ep,
			    handle[n], &len[n]))
			fuzz_broken("no endpoint");
	}
	if (spoil) {
		unsigned n = fuzz_u8(&run.in) & 1;
		struct shm_handle *h = (struct shm_handle *)(void *)handle[n];
		uint8_t how = fuzz_u8(&run.in);
		for (unsigned c = how & 3; c; c--)
			handle[n][fuzz_u8(&run.in) % sizeof(*h)] = fuzz_u8(&run.in);
		if (how & 4)
			h->check = handle_check(h);
		if (how & 8)
			len[n] = fuzz_u16(&run.in) % TRAN_HANDLE_MAX;
	}
	for (unsigned n = 0; n < 2; n++) {
		uint8_t *exact = malloc(len[!n] + 1);
		memcpy(exact, handle[!n], len[!n]);
		exact = realloc(exact, len[!n] ? len[!n] : 1);
		if (tran_shm.ep_start(e[n]->ep, exact, len[!n], 1000)) {
			tran_shm.ep_close(e[n]->ep);
			*e[n] = (struct end){.s = &run.side[n]};
		}
		free(exact);
	}
}

/* ---- what the peer does ---- */

static void scribble(void)
{
	struct shm_link *l = link_of(&run.side[1]);
	uint8_t how = fuzz_u8(&run.in), *at;
	uint64_t value = some_number();
	if (!l)
		return;
	struct ring_tx *tx = &l->tx;
	if (how < 96) { /* control words, near to what they are */
		uint64_t *word = (uint64_t *)(void *)((uint8_t *)l->segment->shared +
						      how % (sizeof(l->segment->shared) / 8) * 8);
		*word = how & 1 ? *word + value : value;
		return;
	}
	if (how < 192)
		at = (uint8_t *)&tx->cells[(tx->tail - 1 + how % 4) % RING_CELLS] +
		     fuzz_u8(&run.in) % 64;
	else if (how < 224)
		at = tx->bulk + (tx->bulk_tail + RING_BULK - fuzz_u16(&run.in)) % RING_BULK;
	else
		at = (uint8_t *)l->segment + fuzz_u64() % sizeof(*l->segment);
	*at = (uint8_t)value;
}

static void forge_cell(void)
{
	struct shm_link *l = link_of(&run.side[1]);
	if (!l)
		return;
	struct ring_tx *tx = &l->tx;
	struct ring_cell *cell = &tx->cells[tx->tail % RING_CELLS];
	uint8_t how = fuzz_u8(&run.in);
	unsigned kind = how & 15;
	size_t head = how & 16 ? sizeof(struct shm_ctl) : fuzz_u16(&run.in) & 511,
	       body = how & 32 ? fuzz_u8(&run.in) : (size_t)some_number() & 0x7fffff;
	uint32_t endpoint = how & 64 ? fuzz_u8(&run.in) % 8 : (uint32_t)some_number() & 0xfffff;
	for (unsigned i = 0; i < 8; i++)
		cell->bytes[fuzz_u8(&run.in) % RING_INLINE] = (uint8_t)i;
	atomic_store_explicit(
		&cell->word, ring_word(tx->lap, kind, head, body, endpoint), memory_order_release);
	ring_tx_step(tx);
	if (how & 128)
		tx->bulk_tail += (size_t)ring_bulk_skip(tx->bulk_tail, ring_bulk_need(head, body)) +
				 ring_bulk_need(head, body);
}

static const uint8_t forged_body[RING_BODY_MAX] = {9};
static struct shm_desc some_forged_desc(unsigned of, uint8_t how)
{
	struct tran_mem *m = run.side[of].mem[how % REGIONS];
	struct shm_desc d = {0};
	if (m)
		memcpy(&d, m->desc.bytes, sizeof(d));
	return d;
}

static void forge_ctl(unsigned from)
{
	struct shm_link *l = link_of(&run.side[from]);
	uint8_t how = fuzz_u8(&run.in);
	if (!l)
		return;
	struct shm_desc d = some_forged_desc(!from, how);
	struct shm_ctl ctl = {.index = d.index, .nonce = d.nonce};
	uint8_t kind = fuzz_u8(&run.in) % (SHM_KINDS + 1);
	if (kind >= SHM_OPEN && kind <= SHM_REFUSE && how & 64) {
		struct shm *t = shm_of(run.side[!from].t);
		uint32_t index = how % RPWI_MAX(t->eps.room, 1u);
		ctl.index = fuzz_u8(&run.in) % 8;
		const struct shm_ep *ep = rpwi_slots_find(&t->eps, index);
		ctl.nonce = ep ? ep->nonce : 1;
	} else if (how & 128) {
		ctl.index = (uint32_t)some_number();
	}
	ring_tx_refresh(&l->tx);
	size_t len = how & 16 ? (size_t)fuzz_u16(&run.in) : 0;
	rpwi_shm_link_put(l, (enum shm_kind)kind, fuzz_u8(&run.in) % 8, &ctl, sizeof(ctl),
		forged_body, RPWI_MIN(len, (size_t)RING_BODY_MAX), 0);
}

/* A frame as in emulate_priv.h: a request; or an answer, of what was asked. */
static void forge_memory(unsigned from)
{
	struct ask ask = {0};
	struct done done = {0};
	struct shm_link *l = link_of(&run.side[from]);
	uint8_t how = fuzz_u8(&run.in), kind = EMULATED_GET + fuzz_u8(&run.in) % 6;
	uint32_t id = fuzz_u8(&run.in) % 32u << 7 | (fuzz_u8(&run.in) % 8u);
	if (!l)
		return;
	struct shm_desc d = some_forged_desc(!from, how);
	size_t len = how & 16 ? (size_t)fuzz_u16(&run.in) : fuzz_u8(&run.in);
	len = RPWI_MIN(len, (size_t)RING_BODY_MAX);
	ring_tx_refresh(&l->tx);
	if (kind == EMULATED_DONE) {
		done.kind = kind;
		done.answer = how & 96 ? 0 : how >> 2 & 3;
		done.id = how & 128 ? (uint32_t)some_number() : id;
		rpwi_shm_link_put(l, SHM_MEMORY, fuzz_u8(&run.in) % 8, &done, sizeof(done),
			forged_body, how & 64 ? len : 0, 0);
		return;
	}
	ask.kind = kind;
	ask.bulk = how & 4 && how & 8;
	ask.more = how >> 3 & 1;
	ask.id = how & 128 ? (uint32_t)some_number() : id;
	ask.slot = d.index;
	ask.key = d.nonce;
	ask.offset = how & 32 ? 0 : some_number();
	ask.len = how & 64 ? len : some_number();
	size_t body = kind == EMULATED_GET ? 0 : len;
	if (how & 2)
		body = kind == EMULATED_PUT ? RPWI_MIN(ask.len, (uint64_t)RING_BODY_MAX) : 16;
	rpwi_shm_link_put(
		l, SHM_MEMORY, fuzz_u8(&run.in) % 8, &ask, sizeof(ask), forged_body, body, 0);
}

static void forge_board(void)
{
	struct shm *t = shm_of(run.side[1].t);
	uint8_t how = fuzz_u8(&run.in);
	struct shm_desc d = some_forged_desc(1, how);
	struct shm_entry *e = &t->board->entries[d.index];
	if (how < 64)
		atomic_store(&e->len, some_number());
	else if (how < 128)
		atomic_store(&e->addr, some_number());
	else if (how < 160)
		atomic_store(&e->access, (uint32_t)some_number());
	else if (how < 192)
		atomic_store(&e->nonce, some_number());
	else
		atomic_store(how & 1   ? &t->board->sleeping
			     : how & 2 ? &t->board->fence
				       : &t->board->beat,
			(uint32_t)some_number());
}

static int some_fd(void)
{
	uint8_t how = fuzz_u8(&run.in);
	if (how < 32)
		return dup(0);
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, how & 1 ? REGION : how * 16))
		abort();
	if (how & 2)
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | (how & 4 ? F_SEAL_FUTURE_WRITE : 0));
	return fd;
}

static void forge_note(void)
{
	struct shm_link *l = link_of(&run.side[1]);
	uint8_t how = fuzz_u8(&run.in);
	if (!l || l->socket.fd < 0)
		return;
	struct shm_desc d = some_forged_desc(1, how);
	struct shm_note n = {.magic = SHM_NOTE_MAGIC,
		.version = SHM_VERSION,
		.type = how & 32 ? SHM_POOL : SHM_PASSED,
		.index = d.index,
		.writable = how & 1,
		.nonce = d.nonce,
		.value = how & 64 ? REGION : some_number()};
	if (how & 32) { /* of its endpoint, and small enough to be shown */
		n.index = how & 1;
		n.nonce = some_number() << 32 | some_number() % 4;
		n.addr = how & 64 ? TRAN_LOAN_ALIGN : some_number();
		n.value = some_number();
	}
	if (how & 4)
		((uint8_t *)&n)[fuzz_u8(&run.in) % sizeof(n)] = fuzz_u8(&run.in);
	int fds[3], count = how >> 3 & 3;
	struct iovec iov = {&n, how & 128 ? fuzz_u8(&run.in) % sizeof(n) : sizeof(n)};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(fds))];
	} control;
	memset(&control, 0, sizeof(control));
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	for (int i = 0; i < count; i++)
		fds[i] = some_fd();
	if (count) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)count * sizeof(int));
	}
	sendmsg(l->socket.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	for (int i = 0; i < count; i++)
		close(fds[i]);
}

/* ---- the run ---- */

static void round_of(struct side *s)
{
	tran_shm.progress(s->t);
	apart(s);
}

static void command(void)
{
	uint8_t b = fuzz_u8(&run.in);
	struct side *s = &run.side[b >> 7];
	int fd;
	uint64_t deadline = RPWI_NEVER;
	switch (b & 31) {
	case 0 ... 3:
		scribble();
		break;
	case 4:
		forge_cell();
		break;
	case 5 ... 6:
		forge_ctl(b >> 7);
		break;
	case 7 ... 8:
		forge_memory(b >> 7);
		break;
	case 9:
		forge_board();
		break;
	case 10:
		forge_note();
		break;
	case 11:
		rpwi_shm_control(shm_of(s->t));
		apart(s);
		break;
	case 12 ... 13: {
		struct end *e = some_end(s);
		if (e && (b & 0x60) == 0x60)
			loan_some(e);
		else if (e)
			send_some(e);
		break;
	}
	case 14 ... 17:
		rma_some(s, &run.side[!(b >> 7)]);
		break;
	case 18:
		mem_turn(s, fuzz_u8(&run.in) % REGIONS);
		break;
	case 19:
		if (fuzz_u8(&run.in) < 32)
			close_end(s, fuzz_u8(&run.in) % EPS_MAX);
		break;
	case 20:
		connect_pair(b >> 7);
		break;
	case 21:
		tran_shm.arm(s->t, &fd, &deadline);
		break;
	default:
		round_of(s);
	}
}

static void guards(const struct side *s)
{
	for (unsigned i = 0; i < 2; i++)
		for (unsigned k = 0; k < REGION + 2 * GUARD; k++)
			if (s->region[i][k] != 0xa5 &&
				(i == READABLE || k < GUARD || k >= GUARD + REGION))
				fuzz_broken("memory was written that was not registered for it");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	memset(&run, 0, sizeof(run));
	run.in = (struct fuzz_input){data, len};
	rpwi_log_level_cached = RPWI_LOG_ERROR;
	facts.pid = (uint32_t)getpid();
	for (unsigned n = 0; n < 2; n++) {
		struct side *s = &run.side[n];
		if (tran_shm.open(&up, &facts, &s->t))
			fuzz_broken("no transport");
		for (unsigned i = 0; i < 2; i++) {
			s->region[i] = malloc(REGION + 2 * GUARD);
			memset(s->region[i], 0xa5, REGION + 2 * GUARD);
		}
		for (unsigned i = 0; i < REGIONS; i++)
			mem_turn(s, i);
	}
	connect_pair(false);
	for (unsigned i = 0;
		i < ROUNDS_UP && !(run.side[0].end[0].ready && run.side[1].end[0].ready); i++) {
		round_of(&run.side[0]);
		round_of(&run.side[1]);
	}
	for (unsigned i = 0; run.in.left && i < COMMANDS_MAX; i++)
		command();
	for (unsigned i = 0; i < 8; i++) {
		round_of(&run.side[0]);
		round_of(&run.side[1]);
	}
	for (unsigned n = 0; n < 2; n++) {
		for (unsigned i = 0; i < EPS_MAX; i++)
			close_end(&run.side[n], i);
		for (unsigned i = 0; i < REGIONS; i++)
			if (run.side[n].mem[i])
				mem_turn(&run.side[n], i);
		guards(&run.side[n]);
	}
	for (unsigned n = 0; n < 2; n++) {
		tran_shm.close(run.side[n].t);
		for (unsigned i = 0; i < 2; i++)
			free(run.side[n].region[i]);
	}
	return 0;
}
