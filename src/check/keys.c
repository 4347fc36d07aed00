/* SPDX-License-Identifier: BSD-3-Clause */
/* keys.c - see keys.h. */
#include "check/keys.h"

#include "base/guard.h"
#include "check/pages.h"
#include "wire/crc32.h"

#include <stdlib.h>

enum { BUCKETS = 1024, WRITES = 256 };
struct key {
	struct key *next;
	const struct ibv_pd *pd;
	uint64_t addr, iova, len;
	uint32_t key;
	int access;
	uintptr_t made; /* return address */
	uint32_t loss;  /* of its pages (freed.c), or 0 */
};
_Static_assert(sizeof(struct key) <= 64, "the bound that check.h promises");
/* One that is no more. */
struct gone {
	uint32_t key;
	int access;
	bool window;
	uint64_t addr, iova, len, at_ns;
	struct rpwi_site at;
};
static struct {
	struct key *key[BUCKETS];
	struct gone gone[CHECK_GONE];
	uint32_t gones; /* free-running */
	struct writes {
		struct {
			uint64_t addr, len, at_ns;
			uint32_t qpn;
			bool early; /* before all that the QP had to send was sent */
		} one[WRITES];
		uint32_t n; /* free-running */
	} remote, received; /* by WRITEs and atomics; by messages */
} keys;

static const struct ibv_pd *itself(const struct ibv_pd *pd) { return pd; }
const struct ibv_pd *(*check_pd_root)(const struct ibv_pd *pd) = itself;

static struct key **place_of(uint32_t key)
{
	struct key **at = &keys.key[key >> 8 & (BUCKETS - 1)];
	while (*at && (*at)->key != key)
		at = &(*at)->next;
	return at;
}

void check_mr_made(const struct ibv_mr *mr, const void *addr, uint64_t iova, int access)
{
	struct key *k = calloc(1, sizeof(*k));
	if (!rpwi_check_lock()) {
		free(k);
		return;
	}
	if (k) {
		struct key **at = &keys.key[mr->lkey >> 8 & (BUCKETS - 1)];
		*k = (struct key){*at, check_pd_root(mr->pd), (uintptr_t)addr, iova, mr->length,
			mr->lkey, access, rpwi_check_site.pc[0], 0};
		*at = k;
		check_pages_region(k->addr, k->len, 1);
	} else {
		rpwi_check_unwatched("there was no memory to watch one of the registrations");
	}
	rpwi_check_unlock();
}

void check_key_gone(uint32_t key)
{
	if (!rpwi_check_lock())
		return;
	struct key **at = place_of(key), *k = *at;
	if (k) {
		*at = k->next;
		check_pages_region(k->addr, k->len, -1);
		keys.gone[keys.gones++ % CHECK_GONE] = (struct gone){key, k->access, false, k->addr,
			k->iova, k->len, rpwi_now_ns(), rpwi_check_site};
	}
	rpwi_check_unlock();
	free(k);
}

void check_window_gone(uint32_t key, const struct rpwi_site *at)
{
	if (!rpwi_check_lock())
		return;
	struct gone *g = &keys.gone[keys.gones++ % CHECK_GONE];
	*g = (struct gone){.key = key, .window = true, .at_ns = rpwi_now_ns()};
	if (at)
		g->at = *at;
	rpwi_check_unlock();
}

bool check_key_look(uint32_t key, struct check_key *out)
{
	const struct key *k = *place_of(key);
	*out = (struct check_key){.region = {.pd = NULL}};
	if (k) {
		out->region = (struct check_region){k->pd, k->iova, k->len, k->access};
		out->addr = k->addr;
		out->made = k->made;
		return true;
	}
	for (uint32_t i = 1; i <= RPWI_MIN(keys.gones, (uint32_t)CHECK_GONE); i++) {
		const struct gone *g = &keys.gone[(keys.gones - i) % CHECK_GONE];
		if (g->key != key)
			continue;
		out->region = (struct check_region){NULL, g->iova, g->len, g->access};
		out->addr = g->addr;
		out->gone = g->at;
		out->gone_ns = g->at_ns;
		out->window = g->window;
		return true;
	}
	return false;
}

uint32_t check_keys_count(struct check_key *one)
{
	uint32_t n = 0;
	*one = (struct check_key){.made = 0};
	for (unsigned i = 0; i < BUCKETS; i++)
		for (const struct key *k = keys.key[i]; k; k = k->next, n++)
			one->made = k->made;
	return n;
}

void check_keys_each(
	uint64_t addr, uint64_t len, void (*fn)(uint32_t key, uint32_t *loss, void *arg), void *arg)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct key *k = keys.key[i]; k; k = k->next)
			if (k->addr < addr + len && addr < k->addr + k->len &&
				!(k->access & IBV_ACCESS_ON_DEMAND))
				fn(k->key, &k->loss, arg);
}

uint32_t check_key_loss(uint32_t key, uint64_t iova, uint64_t *at)
{
	const struct key *k = *place_of(key);
	if (!k || !k->loss)
		return 0;
	*at = k->addr + (iova - k->iova);
	return k->loss;
}

const uint8_t *check_key_memory(const struct ibv_sge *s)
{
	const struct key *k = *place_of(s->lkey);
	if (!k || s->addr < k->iova || s->length > k->len || s->addr - k->iova > k->len - s->length)
		return NULL;
	return (const uint8_t *)(uintptr_t)(k->addr + (s->addr - k->iova));
}

uintptr_t check_key_at(uint32_t rkey, uint64_t addr)
{
	const struct key *k = *place_of(rkey);
	return k ? (uintptr_t)(k->addr + (addr - k->iova)) : 0;
}

/* ---- what is in the memory ---- */

struct job {
	const uint8_t *at;
	uint32_t len, sum;
};

static void sum_job(void *arg)
{
	struct job *j = arg;
	j->sum = check_sum(rpwi_crc32, j->sum, j->at, j->len);
}

bool check_key_sum(const struct ibv_sge *sge, uint32_t *sum)
{
	struct job j = {.at = check_key_memory(sge), .len = sge->length, .sum = *sum};
	if (!j.len)
		return true;
	if (!j.at || rpwi_guard_call(sum_job, &j))
		return false;
	*sum = j.sum;
	return true;
}

/* ---- who has written ---- */

static void note_write(
	struct writes *to, uint32_t qpn, uint32_t key, uint64_t addr, uint64_t len, bool early)
{
	const struct key *k = *place_of(key);
	uint64_t at = k ? k->addr + (addr - k->iova) : addr;
	uint32_t last = (to->n - 1) % WRITES;
	/* the packets of a message are one */
	if (to->n && to->one[last].qpn == qpn && to->one[last].addr + to->one[last].len == at) {
		to->one[last].len += len;
		to->one[last].at_ns = rpwi_now_ns();
		to->one[last].early |= early;
		return;
	}
	uint32_t i = to->n++ % WRITES;
	to->one[i].addr = at;
	to->one[i].len = len;
	to->one[i].at_ns = rpwi_now_ns();
	to->one[i].qpn = qpn;
	to->one[i].early = early;
}

void check_key_written(uint32_t qpn, uint32_t key, uint64_t addr, uint64_t len)
{
	note_write(&keys.remote, qpn, key, addr, len, false);
}

void check_key_received(uint32_t qpn, uint32_t key, uint64_t addr, uint64_t len, bool early)
{
	note_write(&keys.received, qpn, key, addr, len, early);
}

static bool reaches(uint64_t addr, uint64_t len, const struct ibv_sge *sge, unsigned n)
{
	for (unsigned s = 0; s < n; s++) {
		uint64_t at = (uintptr_t)check_key_memory(&sge[s]);
		if (at && at < addr + len && addr < at + sge[s].length)
			return true;
	}
	return false;
}

static uint32_t wrote(const struct writes *by, const struct ibv_sge *sge, unsigned n,
	uint64_t since_ns, bool *early)
{
	uint32_t qpn = 0;
	*early = false;
	for (uint32_t i = 0; i < RPWI_MIN(by->n, (uint32_t)WRITES) && !*early; i++)
		if (by->one[i].at_ns >= since_ns &&
			reaches(by->one[i].addr, by->one[i].len, sge, n)) {
			qpn = by->one[i].qpn;
			*early = by->one[i].early;
		}
	return qpn;
}

uint32_t check_key_wrote(const struct ibv_sge *sge, unsigned n, uint64_t since_ns)
{
	bool early;
	return wrote(&keys.remote, sge, n, since_ns, &early);
}

uint32_t check_key_got(const struct ibv_sge *sge, unsigned n, uint64_t since_ns, bool *early)
{
	return wrote(&keys.received, sge, n, since_ns, early);
}
