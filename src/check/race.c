/* SPDX-License-Identifier: BSD-3-Clause */
/* race.c - see race.h. */
#include "check/race.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "check/keys.h"
#include "rc/names.h"

/* Under one number for each QP: who wrote an entry is known by `n`, which counts from 1 and is
 * stored last. */
struct entry {
	_Atomic uint32_t n;
	_Atomic uint32_t ended; /* the process's own component when it was polled; 0: not yet */
	/* of a send: its receive was polled; the component of that process, `taker` */
	_Atomic uint32_t taken;
	uint32_t taker;
	uint32_t proc;
	int32_t pid;
	uint64_t raddr, len;
	uintptr_t pc;
	uint32_t opcode;
	uint32_t clock[RACE_PROCS];
};
struct way { /* from one QP to another */
	_Atomic uint64_t key;
	struct entry send[RACE_RING], op[RACE_RING];
};
struct shared {
	_Atomic uint32_t procs;
	struct way way[RACE_QPS];
};

struct access {
	uintptr_t at;
	uint64_t len;
	enum race_kind kind;
	const struct way *way;
	const struct entry *of; /* what it was, while its number is */
	uint32_t n;
	struct entry was; /* as it came */
};
static struct {
	struct shared *all;
	uint32_t me, clock[RACE_PROCS];
	struct access access[RACE_ACCESSES];
	uint32_t accesses;
} race;

static void *map(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	void *at = MAP_FAILED;
	if (fd >= 0 && !rpwi_file_truncate(fd, sizeof(struct shared)))
		at = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	return at;
}

void race_init(void)
{
	char path[RPWI_CHECK_PATH + 8];
	if (race.all || !rpwi_check_wants(RPWI_RULE_RACE))
		return;
	snprintf(path, sizeof(path), "%s.race", rpwi_check_how.log);
	bool file = *rpwi_check_how.log && !strstr(rpwi_check_how.log, "%p");
	void *at = file ? map(path)
			: mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED) {
		rpwi_check_unwatched("races: the clocks of the processes could not be mapped");
		return;
	}
	race.all = at;
	race.me = atomic_fetch_add(&race.all->procs, 1);
	if (race.me >= RACE_PROCS) {
		rpwi_check_unwatched("races: more than 32 processes, of which 32 are watched");
		race.all = NULL;
	}
}

static uint32_t tick(void) { return ++race.clock[race.me]; }

/* From QP `from` to QP `to`. NULL: none, or no room. */
static struct way *way_of(uint32_t from, uint32_t to, bool make)
{
	uint64_t key = (uint64_t)from << 24 | to;
	uint32_t i = (from * 31 + to) % RACE_QPS;
	for (uint32_t tries = 0; tries < RACE_QPS; tries++, i = (i + 1) % RACE_QPS) {
		uint64_t have = atomic_load(&race.all->way[i].key);
		if (!have && make &&
			atomic_compare_exchange_strong(&race.all->way[i].key, &have, key))
			have = key;
		if (have == key)
			return &race.all->way[i];
		if (!have)
			return NULL;
	}
	if (make)
		rpwi_check_unwatched("races: there were more QPs than are watched");
	return NULL;
}

static void put(struct entry *ring, uint32_t n, const struct check_wr *w)
{
	struct entry *e = &ring[n % RACE_RING];
	atomic_store(&e->n, 0);
	atomic_store(&e->ended, 0);
	atomic_store(&e->taken, 0);
	e->proc = race.me;
	e->pid = (int32_t)getpid();
	e->raddr = w->raddr;
	e->len = w->len;
	e->pc = w->site.pc[0];
	e->opcode = w->opcode;
	memcpy(e->clock, race.clock, sizeof(e->clock));
	atomic_store(&e->n, n);
}

void race_posted(const struct check_qp *q, struct check_wr *w)
{
	struct check_qp *mine = (struct check_qp *)(uintptr_t)q; /* its counts are ours alone */
	if (!race.all || q->t->type != IBV_QPT_RC)
		return;
	struct way *way = way_of(q->t->qpn, q->t->attr.dest_qp_num, true);
	w->race_at = tick();
	if (way && rpwi_op_is_one_sided(w->opcode))
		put(way->op, ++mine->race.ops, w);
	if (way && rpwi_op_wants_receive(w->opcode))
		put(way->send, ++mine->race.sends, w);
}

static void end(struct entry *ring, uint32_t n)
{
	struct entry *e = ring ? &ring[n % RACE_RING] : NULL;
	if (e && atomic_load(&e->n) == n)
		atomic_store(&e->ended, tick());
}

/* They are polled in the order of the posts. */
void race_sent_polled(const struct check_qp *q, const struct check_wr *w)
{
	struct check_qp *mine = (struct check_qp *)(uintptr_t)q;
	if (!race.all || q->t->type != IBV_QPT_RC)
		return;
	struct way *way = way_of(q->t->qpn, q->t->attr.dest_qp_num, false);
	if (rpwi_op_is_one_sided(w->opcode))
		end(way ? way->op : NULL, ++mine->race.ops_polled);
	if (rpwi_op_wants_receive(w->opcode))
		end(way ? way->send : NULL, ++mine->race.sends_polled);
}

void race_recv_polled(const struct check_qp *q, const struct check_wr *w)
{
	struct check_qp *mine = (struct check_qp *)(uintptr_t)q;
	if (!race.all || q->t->type != IBV_QPT_RC)
		return;
	struct way *way = way_of(q->t->attr.dest_qp_num, q->t->qpn, false);
	uint32_t n = ++mine->race.recvs;
	struct entry *e = way ? &way->send[n % RACE_RING] : NULL;
	if (!e || atomic_load(&e->n) != n)
		return;
	for (unsigned i = 0; i < RACE_PROCS; i++)
		race.clock[i] = RPWI_MAX(race.clock[i], e->clock[i]);
	e->taker = race.me;
	atomic_store(&e->taken, tick());
}

/* ---- at the target ---- */

/* Which of the peer's operations is it? Those without a byte do not get here. */
static const struct entry *operation(struct check_qp *q, const struct way *way, uint64_t addr)
{
	for (uint32_t n = q->race.arrived + 1; n <= q->race.arrived + RACE_RING; n++) {
		const struct entry *e = &way->op[n % RACE_RING];
		if (atomic_load(&e->n) != n || e->raddr != addr)
			continue;
		q->race.arrived = n;
		return e;
	}
	return NULL;
}

/* Who posted b knows that the receive of this send was polled. */
static bool knows_taken(const struct access *b, const struct entry *send)
{
	uint32_t taken = atomic_load(&send->taken);
	return taken && b->was.clock[send->taker] >= taken;
}

static bool ordered(const struct access *a, const struct access *b)
{
	if (a->way == b->way)
		return true;
	/* out of the ring: it ended long ago, and when is not known */
	if (atomic_load(&a->of->n) != a->n)
		return true;
	uint32_t ended = atomic_load(&a->of->ended);
	return (ended && b->was.clock[a->was.proc] >= ended) || knows_taken(b, a->of);
}

static bool conflict(const struct access *a, const struct access *b)
{
	if (a->kind == RACE_READS && b->kind == RACE_READS)
		return false;
	if (a->kind == RACE_ATOMIC && b->kind == RACE_ATOMIC)
		return false;
	return a->at < b->at + b->len && b->at < a->at + a->len;
}

static void site_add(
	struct rpwi_finding *f, const char *what, const struct entry *e, enum rpwi_site_when when)
{
	unsigned i = 0;
	rpwi_finding_site_when(f, what, &(struct rpwi_site){{e->pc}}, when);
	while (i < RPWI_FINDING_SITES && f->site[i].what)
		i++;
	if (i && e->pc)
		f->site[i - 1].pid = e->pid;
}

static void report(const struct check_qp *q, const struct access *a, const struct access *b)
{
	uintptr_t from = RPWI_MAX(a->at, b->at), to = RPWI_MIN(a->at + a->len, b->at + b->len);
	struct rpwi_finding f = check_finding(RPWI_RULE_RACE, q, NULL);
	f.has_memory = true;
	f.addr = from;
	f.len = to - from;
	snprintf(f.text, sizeof(f.text),
		"%s of process %d reached %llu bytes that %s of process %d had reached, and the "
		"process that posted the second one did not know that the first one had ended",
		rpwi_wr_name((enum ibv_wr_opcode)b->was.opcode), b->was.pid,
		(unsigned long long)f.len, rpwi_wr_name((enum ibv_wr_opcode)a->was.opcode),
		a->was.pid);
	site_add(&f, "the second one, posted here", &b->was, RPWI_SITE_BEFORE);
	site_add(&f, "the first one, posted here", &a->was, RPWI_SITE_UNORDERED);
	rpwi_check_report(&f);
}

static void compare(const struct check_qp *q, const struct access *b)
{
	for (uint32_t i = 0; i < RPWI_MIN(race.accesses, (uint32_t)RACE_ACCESSES); i++) {
		const struct access *a = &race.access[i];
		if (conflict(a, b) && !ordered(a, b))
			report(q, a, b);
	}
	race.access[race.accesses++ % RACE_ACCESSES] = *b;
}

/* ---- the target's own requests ---- */

struct arrival {
	const struct check_qp *by;
	const struct access *b;
};

/* Who posted b knows that the request is done: it, or one behind it, was received. */
static bool is_over(const struct check_qp *q, const struct check_wr *w, const struct access *b)
{
	const struct way *way = way_of(q->t->qpn, q->t->attr.dest_qp_num, false);
	for (unsigned i = 0; way && i < RACE_RING; i++) {
		const struct entry *e = &way->send[i];
		if (atomic_load(&e->n) && e->clock[race.me] >= w->race_at && knows_taken(b, e))
			return true;
	}
	return false;
}

static void say_own(const struct arrival *r, struct check_qp *q, const struct check_wr *w,
	uintptr_t at, uint64_t len)
{
	const struct access *b = r->b;
	struct rpwi_finding f = check_finding(RPWI_RULE_RACE, r->by, NULL);
	f.has_memory = true;
	f.addr = RPWI_MAX(at, b->at);
	f.len = RPWI_MIN(at + len, b->at + b->len) - f.addr;
	site_add(&f, "posted here", &b->was, RPWI_SITE_BEFORE);
	rpwi_finding_site_when(&f, "the other one, posted here", &w->site, RPWI_SITE_UNORDERED);
	rpwi_check_say(&f,
		"%s of process %d reached %llu bytes of %s with wr_id %llu, which this process has "
		"posted and has not seen complete, and the other process did not know that it had",
		rpwi_wr_name((enum ibv_wr_opcode)b->was.opcode), b->was.pid,
		(unsigned long long)f.len, check_op_name(&q->sq, w), (unsigned long long)w->wr_id);
}

static void own_look(struct check_qp *q, void *arg)
{
	const struct arrival *r = arg;
	for (uint32_t i = q->sq.head; i != q->sq.tail && q->t->type == IBV_QPT_RC; i++) {
		const struct check_wr *w = &q->sq.ring[i & q->sq.mask];
		bool itself = r->b->was.proc == race.me && r->b->was.clock[race.me] == w->race_at,
		     writes = rpwi_op_needs_response(w->opcode);
		if (w->phase == CHECK_POLLED || itself || (r->b->kind == RACE_READS && !writes))
			continue;
		for (unsigned s = 0; s < w->nsge; s++) {
			uintptr_t at = (uintptr_t)check_key_memory(&w->sge[s]);
			uint64_t len = w->sge[s].length;
			if (at && at < r->b->at + r->b->len && r->b->at < at + len &&
				!is_over(q, w, r->b))
				say_own(r, q, w, at, len);
		}
	}
}

void race_arrives(
	const struct check_qp *q, enum race_kind kind, uint64_t addr, uintptr_t at, uint64_t len)
{
	if (!race.all || q->t->type != IBV_QPT_RC)
		return;
	const struct way *way = way_of(q->t->attr.dest_qp_num, q->t->qpn, false);
	const struct entry *e = way ? operation((struct check_qp *)(uintptr_t)q, way, addr) : NULL;
	if (!e)
		return;
	/* a long READ comes in parts, of which this is the first */
	struct access b = {at, RPWI_MAX(len, e->len), kind, way, e, atomic_load(&e->n), *e};
	compare(q, &b);
	check_qps_each(own_look, &(struct arrival){q, &b});
}

void race_came(struct check_qp *q, const struct check_wr *w, const struct ibv_wc *wc)
{
	uint32_t n = ++q->race.came;
	bool placed = wc->status == IBV_WC_SUCCESS && wc->opcode == IBV_WC_RECV;
	if (!race.all || q->t->type != IBV_QPT_RC || !placed)
		return;
	const struct way *way = way_of(q->t->attr.dest_qp_num, q->t->qpn, false);
	const struct entry *e = way ? &way->send[n % RACE_RING] : NULL;
	if (!e || atomic_load(&e->n) != n)
		return;
	uint32_t left = wc->byte_len;
	for (unsigned s = 0; s < w->nsge && left; s++) {
		uint32_t len = RPWI_MIN(left, w->sge[s].length);
		uintptr_t at = (uintptr_t)check_key_memory(&w->sge[s]);
		left -= len;
		if (at && len)
			compare(q, &(struct access){at, len, RACE_WRITES, way, e, n, *e});
	}
}
