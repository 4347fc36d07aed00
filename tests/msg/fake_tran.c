/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_tran.c - "fake_a" (same host, unbreakable, maps memory) and "fake_b" (breakable), see
 * fake.h. */
#include "fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "ropeway.h"
#include "tran/tran.h"

struct fake_knobs fake = {.rng = {1}, .eager_max = 2048, .frame_max = 8192};

uint64_t fake_random(void) { return rng_next(&fake.rng); }
static bool chance(unsigned percent) { return percent && fake_random() % 100 < percent; }

enum what { IS_FRAME, IS_DONE };
struct item {
	struct rpwi_list link;
	enum what what;
	size_t head_len, len;
	void *cookie;
	int status;
	bool begun; /* a long frame, half of which is in its place */
	uint8_t *place;
	uint8_t bytes[];
};
struct fep {
	struct tran_ep ep;
	struct rpwi_list all, in, dones;
	struct fep *peer;
	uint64_t number;
	bool started, told, wants_room, broken, told_broken, peer_closed;
};
struct ftran {
	struct tran t;
	struct rpwi_list eps;
};
struct handle {
	uint64_t magic, number;
};

static struct rpwi_list everyone = {&everyone, &everyone};
struct global_ep {
	struct rpwi_list link;
	struct fep *ep;
};
static uint64_t numbers, last_made, made_by[2];

static struct fep *find(uint64_t number)
{
	for (struct rpwi_list *n = everyone.next; n != &everyone; n = n->next) {
		struct fep *e = RPWI_CONTAINER_OF(n, struct global_ep, link)->ep;
		if (e->number == number)
			return e;
	}
	return NULL;
}

static int fusable(
	const struct tran_facts *own, const struct tran_facts *peer, char *why, size_t why_len)
{
	return 0;
}

static int fopen_ops(const struct tran_ops *ops, const struct tran_up *up, struct tran **out)
{
	struct ftran *t = calloc(1, sizeof(*t));
	t->t = (struct tran){.ops = ops, .up = up};
	rpwi_list_init(&t->eps);
	*out = &t->t;
	return 0;
}
static int fopen_a(const struct tran_up *up, const struct tran_facts *own, struct tran **out);
static int fopen_b(const struct tran_up *up, const struct tran_facts *own, struct tran **out);

static void fclose_(struct tran *t)
{
	assert(rpwi_list_empty(&((struct ftran *)t)->eps));
	free(t);
}

static void items_free(struct rpwi_list *l)
{
	while (!rpwi_list_empty(l)) {
		struct rpwi_list *n = l->next;
		rpwi_list_del(n);
		free(RPWI_CONTAINER_OF(n, struct item, link));
	}
}

static void break_path(struct fep *e)
{
	fake.breaks++;
	struct fep *both[] = {e, e->peer};
	for (int i = 0; i < 2; i++)
		if (both[i]) {
			both[i]->broken = true;
			items_free(&both[i]->in);
			items_free(&both[i]->dones);
		}
}

static bool is_b(const struct fep *e) { return e->ep.tran->ops->caps & TRAN_CAN_BREAK; }

static void tell(struct fep *e, void *cookie, int status)
{
	e->ep.tran->up->done(
		e->ep.user, cookie, status ? &(struct rpwi_error){status, 0, ""} : NULL);
}

static unsigned ep_progress(struct fep *e)
{
	const struct tran_up *up = e->ep.tran->up;
	unsigned n = 0;
	if (e->started && !e->told && is_b(e) && fake.break_young) {
		fake.break_young--;
		e->told = e->broken = e->told_broken = true;
		char why[64];
		snprintf(why, sizeof(why), "end %llu broke before it was up",
			(unsigned long long)e->number);
		up->ready(e->ep.user, &(struct rpwi_error){RPW_ERR_UNREACHABLE, 0, why});
		return 1;
	}
	if (e->started && !e->told && e->peer && (is_b(e) || !fake.no_ready)) {
		e->told = true;
		up->ready(e->ep.user, NULL);
		n++;
	}
	if (!e->told)
		return n;
	if (is_b(e) && !e->broken && e->peer && e->peer->told &&
		(fake.break_now ||
			(fake.break_permille && fake_random() % 1000 < fake.break_permille))) {
		fake.break_now = false;
		break_path(e);
	}
	while (!rpwi_list_empty(&e->dones) && !fake.hold_dones && !chance(fake.late_percent) &&
		!e->broken) {
		struct item *i = RPWI_CONTAINER_OF(e->dones.next, struct item, link);
		rpwi_list_del(&i->link);
		tell(e, i->cookie, i->status);
		free(i);
		n++;
		if (fake.break_behind_done) {
			fake.break_behind_done = false;
			break_path(e);
		}
	}
	while (!rpwi_list_empty(&e->in) && !chance(fake.late_percent) && !e->broken) {
		struct item *i = RPWI_CONTAINER_OF(e->in.next, struct item, link);
		uint8_t *body = i->bytes + i->head_len;
		if (i->len > e->ep.limits.frame_max && !i->begun) {
			i->place = up->place(e->ep.user, i->bytes, i->head_len, i->len);
			if (i->place == TRAN_PLACE_LATER) {
				i->place = NULL;
				if (chance(90))
					break;
			}
			i->begun = true;
			fake.placed += i->place != NULL;
			if (i->place)
				memcpy(i->place, body, i->len / 2);
			n++;
			break;
		}
		rpwi_list_del(&i->link);
		if (i->place)
			body = memcpy(i->place, body, i->len);
		up->frame(e->ep.user, i->bytes, i->head_len, body, i->len);
		free(i);
		n++;
	}
	if (e->peer_closed && rpwi_list_empty(&e->in))
		e->broken = true;
	if (e->broken && !e->told_broken) {
		e->told_broken = true;
		up->failed(e->ep.user,
			&(struct rpwi_error){RPW_ERR_UNREACHABLE, 0, "broken on purpose"});
		n++;
	}
	if (e->wants_room && !e->broken) {
		e->wants_room = false;
		up->room(e->ep.user);
		n++;
	}
	return n;
}

static unsigned fprogress(struct tran *t)
{
	unsigned n = 0;
	struct ftran *f = (struct ftran *)t;
	for (struct rpwi_list *l = f->eps.next; l != &f->eps; l = l->next)
		n += ep_progress(RPWI_CONTAINER_OF(l, struct fep, all));
	return n;
}

static int farm(struct tran *t, int *fd, uint64_t *deadline_ns)
{
	*deadline_ns = 0; /* nobody wakes anybody here: the clock does */
	return 1;
}

static int fmake(struct tran *t, const struct tran_control *control, void *user,
	struct tran_ep **out, uint8_t *handle, size_t *handle_len)
{
	if (fake.refuse_make && !(t->ops->caps & TRAN_CAN_BREAK))
		return rpwi_fail(RPW_ERR_LIMIT, "no endpoint, on purpose");
	struct fep *e = calloc(1, sizeof(*e));
	struct global_ep *g = malloc(sizeof(*g));
	e->ep = (struct tran_ep){.tran = t,
		.user = user,
		.limits = {.frame_max = fake.frame_max, .eager_max = fake.eager_max}};
	if (is_b(e)) {
		e->ep.limits.put_min = 4 * (size_t)fake.eager_max;
		e->ep.limits.placed_max = fake.placed_max;
		e->ep.limits.placed_under_way = numbers % 2 ? 2 : 1000;
	}
	snprintf(e->ep.path, sizeof(e->ep.path), "in memory");
	e->number = last_made = made_by[control->active] = ++numbers;
	fake.made++;
	rpwi_list_init(&e->in);
	rpwi_list_init(&e->dones);
	rpwi_list_add_tail(&((struct ftran *)t)->eps, &e->all);
	g->ep = e;
	rpwi_list_add_tail(&everyone, &g->link);
	struct handle h = {0xfa4e, e->number};
	memcpy(handle, &h, sizeof(h));
	*handle_len = sizeof(h);
	*out = &e->ep;
	return 0;
}

static int fstart(struct tran_ep *ep, const uint8_t *handle, size_t len, unsigned timeout_ms)
{
	struct fep *e = (struct fep *)ep;
	struct handle h;
	if (len != sizeof(h))
		return rpwi_fail(RPW_ERR_PROTOCOL, "a garbled handle");
	memcpy(&h, handle, sizeof(h));
	struct fep *p = find(h.number);
	if (h.magic != 0xfa4e)
		return rpwi_fail(RPW_ERR_PROTOCOL, "a garbled handle");
	e->started = true;
	e->peer = p;
	if (p)
		p->peer = e;
	return 0;
}

static void fep_close(struct tran_ep *ep)
{
	struct fep *e = (struct fep *)ep;
	for (struct rpwi_list *n = everyone.next, *next; n != &everyone; n = next) {
		next = n->next;
		struct global_ep *g = RPWI_CONTAINER_OF(n, struct global_ep, link);
		if (g->ep->peer == e) {
			g->ep->peer = NULL;
			if (is_b(e) && !e->broken)
				g->ep->peer_closed = true; /* what was sent before still comes */
		}
		if (g->ep == e) {
			rpwi_list_del(n);
			free(g);
		}
	}
	items_free(&e->in);
	items_free(&e->dones);
	rpwi_list_del(&e->all);
	free(e);
}

static bool feager(struct tran_ep *ep, const void *buf, size_t len)
{
	return len <= ep->limits.eager_max || chance(70);
}

static int fsend(struct tran_ep *ep, const void *head, size_t head_len, const struct iovec *iov,
	int iovcnt, size_t body_len)
{
	struct fep *e = (struct fep *)ep;
	assert(head_len <= TRAN_HEAD_MAX &&
		body_len <= RPWI_MAX(e->ep.limits.frame_max, e->ep.limits.placed_max));
	if (chance(fake.again_percent)) {
		fake.agains++;
		e->wants_room = true;
		return RPWI_LATER;
	}
	if (e->broken || !e->peer)
		return tran_path_over(ep);
	struct item *i = malloc(sizeof(*i) + head_len + body_len);
	*i = (struct item){.what = IS_FRAME, .head_len = head_len, .len = body_len};
	memcpy(i->bytes, head, head_len);
	size_t at = 0;
	for (int k = 0; k < iovcnt; at += iov[k].iov_len, k++)
		if (iov[k].iov_len)
			memcpy(i->bytes + head_len + at, iov[k].iov_base, iov[k].iov_len);
	assert(at == body_len);
	rpwi_list_add_tail(&e->peer->in, &i->link);
	return 0;
}

/* What is registered, so that a stale or forged description is refused. */
struct fmem {
	struct tran_mem m;
	struct rpwi_list all;
	uint64_t number;
	const struct tran *of;
	bool owned, gpu;
};
static struct rpwi_list memories = {&memories, &memories};

static int fmem_add(struct tran *t, void *addr, size_t len, unsigned access, struct tran_mem **out)
{
	struct fmem *m = calloc(1, sizeof(*m));
	m->owned = !addr;
	m->m = (struct tran_mem){
		.addr = addr ? addr : calloc(1, len), .len = len, .access = access};
	m->number = ++numbers;
	m->of = t;
	/* each transport describes memory in its own way */
	m->m.desc.len = (uint8_t)(sizeof(m->number) +
				  m->number % (sizeof(m->m.desc.bytes) - sizeof(m->number)));
	memcpy(m->m.desc.bytes, &m->number, sizeof(m->number));
	rpwi_list_add_tail(&memories, &m->all);
	*out = &m->m;
	return 0;
}

static int fmem_alloc(struct tran *t, size_t len, unsigned access, struct tran_mem **out)
{
	return fmem_add(t, NULL, len, access, out);
}
static int fgpu_add(
	struct tran *t, const struct tran_gpu_memory *what, unsigned access, struct tran_mem **out)
{
	if (!fake.gpu_write || what->dmabuf >= 0)
		return rpwi_fail(RPW_ERR_NOT_SUPPORTED, "no memory of GPUs, on purpose");
	int rc = fmem_add(t, what->addr, what->len, access, out);
	((struct fmem *)*out)->gpu = true;
	return rc;
}
static void fmem_del(struct tran *t, struct tran_mem *mem)
{
	struct fmem *m = (struct fmem *)mem;
	assert(m->of == t);
	rpwi_list_del(&m->all);
	if (m->owned)
		free(m->m.addr);
	free(m);
}

static uint64_t number_of(const struct tran_desc *d)
{
	uint64_t number;
	memcpy(&number, d->bytes, sizeof(number));
	return number;
}
static struct fmem *described(struct fep *e, const struct tran_desc *d)
{
	uint64_t number = number_of(d);
	if (d->len < sizeof(number) ||
		d->len != sizeof(number) + number % (sizeof(d->bytes) - sizeof(number)) || !e->peer)
		return NULL;
	for (struct rpwi_list *n = memories.next; n != &memories; n = n->next) {
		struct fmem *m = RPWI_CONTAINER_OF(n, struct fmem, all);
		if (m->number == number && m->of == e->peer->ep.tran)
			return m;
	}
	return NULL;
}

static int done(struct fep *e, void *cookie, int status)
{
	if (!fake.hold_dones && (!fake.late_percent || !chance(50))) {
		tell(e, cookie, status);
		return 0;
	}
	struct item *i = malloc(sizeof(*i));
	*i = (struct item){.what = IS_DONE, .cookie = cookie, .status = status};
	rpwi_list_add_tail(&e->dones, &i->link);
	return 0;
}

static int frma(struct tran_ep *ep, bool is_put, const struct tran_desc *remote, uint64_t offset,
	void *local, size_t len, const struct tran_mem *mem, void *cookie)
{
	struct fep *e = (struct fep *)ep;
	if (chance(fake.again_percent))
		return RPWI_LATER;
	if (e->broken || !e->peer)
		return tran_path_over(ep);
	struct fmem *m = described(e, remote);
	if (!m || offset > m->m.len || len > m->m.len - offset ||
		!(m->m.access & (is_put ? TRAN_WRITE : TRAN_READ)))
		return done(e, cookie, RPW_ERR_ACCESS);
	const struct fmem *own = (const struct fmem *)mem;
	assert(!own || ((char *)local >= (char *)own->m.addr &&
			       (char *)local + len <= (char *)own->m.addr + own->m.len &&
			       own->of == ep->tran));
	char *there = (char *)m->m.addr + offset;
	bool own_gpu = own && own->gpu;
	const void *from = is_put   ? own_gpu ? fake.gpu_read(local, len) : local
			   : m->gpu ? fake.gpu_read(there, len)
				    : there;
	if (is_put ? m->gpu : own_gpu)
		fake.gpu_write(is_put ? there : local, from, len);
	else
		memcpy(is_put ? there : local, from, len);
	return done(e, cookie, 0);
}

static int fatomic(struct tran_ep *ep, enum tran_atomic op, const struct tran_desc *remote,
	uint64_t offset, uint64_t operand, uint64_t compare, uint64_t *before, void *cookie)
{
	struct fep *e = (struct fep *)ep;
	if (chance(fake.again_percent))
		return RPWI_LATER;
	struct fmem *m = described(e, remote);
	if (!m || offset > m->m.len || 8 > m->m.len - offset || !(m->m.access & TRAN_ATOMIC))
		return done(e, cookie, RPW_ERR_ACCESS);
	uint64_t *at = (uint64_t *)((char *)m->m.addr + offset);
	*before = *at;
	if (op == TRAN_FETCH_ADD)
		*at += operand;
	else if (*at == compare)
		*at = operand;
	return done(e, cookie, 0);
}

static int fflush_(struct tran_ep *ep, void *cookie)
{
	if (chance(fake.again_percent))
		return RPWI_LATER;
	return done((struct fep *)ep, cookie, 0);
}

/* ---- loans: "fake_a". Both sides see the same bytes; they go with the last that has them ---- */

struct fpool {
	struct tran_pool pool;
	struct rpwi_list all;
	uint64_t owner;         /* the endpoint's number */
	struct tran_seen *seen; /* with a reference */
};
static struct rpwi_list pools = {&pools, &pools};
static uint32_t pool_ids;

static void fseen_forget(struct tran_seen *s)
{
	free(s->data);
	free((void *)s->returned);
	free(s);
}

static int fpool_make(struct tran_ep *ep, size_t slot_bytes, uint32_t slots, bool writable,
	struct tran_pool **out)
{
	struct fep *e = (struct fep *)ep;
	if (chance(fake.again_percent))
		return RPWI_LATER;
	if (e->broken || !e->peer)
		return tran_path_over(ep);
	struct fpool *p = calloc(1, sizeof(*p));
	struct tran_seen *s = calloc(1, sizeof(*s));
	p->seen = s;
	p->owner = e->number;
	*s = (struct tran_seen){.refs = 1,
		.generation = (uint32_t)fake_random(),
		.slots = slots,
		.slot_bytes = slot_bytes,
		.writable = writable,
		.data = aligned_alloc(TRAN_LOAN_ALIGN, slot_bytes * slots),
		.returned = calloc(slots, sizeof(uint64_t))};
	p->pool = (struct tran_pool){.id = pool_ids += 3,
		.generation = s->generation,
		.slots = slots,
		.slot_bytes = slot_bytes,
		.data = s->data,
		.returned = s->returned};
	rpwi_list_add_tail(&pools, &p->all);
	*out = &p->pool;
	return 0;
}

static void fpool_end(struct tran_ep *ep, struct tran_pool *pool)
{
	struct fpool *p = (struct fpool *)pool;
	rpwi_list_del(&p->all);
	if (!--p->seen->refs)
		fseen_forget(p->seen);
	free(p);
}

static int fpool_find(struct tran_ep *ep, uint32_t id, uint32_t generation, struct tran_seen **out)
{
	const struct fep *e = (struct fep *)ep;
	for (struct rpwi_list *n = pools.next; n != &pools; n = n->next) {
		struct fpool *p = RPWI_CONTAINER_OF(n, struct fpool, all);
		if (e->peer && p->owner == e->peer->number && p->pool.id == id &&
			p->pool.generation == generation) {
			*out = p->seen;
			return 0;
		}
	}
	return rpwi_fail(RPW_ERR_PROTOCOL, "no pool %u", id);
}

unsigned fake_pools(void)
{
	unsigned n = 0;
	for (struct rpwi_list *l = pools.next; l != &pools; l = l->next)
		n++;
	return n;
}

bool fake_pool(uint64_t owner, uint32_t *id, uint32_t *generation)
{
	for (struct rpwi_list *n = pools.next; n != &pools; n = n->next) {
		const struct fpool *p = RPWI_CONTAINER_OF(n, struct fpool, all);
		if (p->owner == owner) {
			*id = p->pool.id;
			*generation = p->pool.generation;
			return true;
		}
	}
	return false;
}

uint64_t fake_last_made(void) { return last_made; }
uint64_t fake_made_by(bool active) { return made_by[active]; }

uint64_t fake_number_of(const void *memory)
{
	for (struct rpwi_list *n = memories.prev; n != &memories; n = n->prev) {
		struct fmem *m = RPWI_CONTAINER_OF(n, struct fmem, all);
		if (m->m.addr == memory)
			return m->number;
	}
	return 0;
}

void fake_inject(
	uint64_t nth, const void *head, unsigned head_len, const void *body, unsigned body_len)
{
	struct fep *e = find(nth);
	if (!e)
		return; /* it has been closed for what came before */
	struct item *i = malloc(sizeof(*i) + head_len + body_len);
	*i = (struct item){.what = IS_FRAME, .head_len = head_len, .len = body_len};
	memcpy(i->bytes, head, head_len);
	if (body_len)
		memcpy(i->bytes + head_len, body, body_len);
	rpwi_list_add_tail(&e->in, &i->link);
}

static const struct tran_mem_ops fmem_ops = {
	.add = fmem_add, .alloc = fmem_alloc, .add_gpu = fgpu_add, .del = fmem_del};
static const struct tran_rma_ops frma_ops = {.transfer = frma, .atomic = fatomic, .flush = fflush_};
#define OPS(n, c, o, l) \
	{ \
		.name = n, .caps = c, .usable = fusable, .open = o, .close = fclose_, \
		.progress = fprogress, .arm = farm, .ep_make = fmake, .ep_start = fstart, \
		.ep_close = fep_close, .eager = feager, .send = fsend, .mem = &fmem_ops, \
		.rma = &frma_ops, .loan = l, \
	}
static const struct tran_loan_ops floan_ops = {
	.make = fpool_make, .end = fpool_end, .find = fpool_find, .forget = fseen_forget};
static const struct tran_ops fake_a =
	OPS("fake_a", TRAN_SAME_HOST | TRAN_MAPS, fopen_a, &floan_ops);
static const struct tran_ops fake_b = OPS("fake_b", TRAN_CAN_BREAK | TRAN_GPU, fopen_b, NULL);
static int fopen_a(const struct tran_up *up, const struct tran_facts *own, struct tran **out)
{
	return fopen_ops(&fake_a, up, out);
}
static int fopen_b(const struct tran_up *up, const struct tran_facts *own, struct tran **out)
{
	return fopen_ops(&fake_b, up, out);
}
const struct tran_ops *const tran_all[] = {&fake_a, &fake_b, NULL};
