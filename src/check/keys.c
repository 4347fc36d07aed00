/* SPDX-License-Identifier: BSD-3-Clause */
/* keys.c - see keys.h. */
#include "check/keys.h"

#include "base/guard.h"
#include "wire/icrc.h"

#include <stdlib.h>

enum { BUCKETS = 1024, WRITES = 256 };
struct key {
	struct key *next;
	const struct ibv_pd *pd;
	uint64_t addr, iova, len;
	uint32_t key;
	int access;
	uintptr_t made; /* return address */
};
_Static_assert(sizeof(struct key) <= 64, "the bound that check.h promises");
static struct {
	struct key *key[BUCKETS];
	struct {
		uint64_t addr, len, at_ns;
		uint32_t qpn;
	} write[WRITES];
	uint32_t writes; /* free-running */
} keys;

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
		*k = (struct key){*at, mr->pd, (uintptr_t)addr, iova, mr->length, mr->lkey, access,
			rpwi_check_site.pc[0]};
		*at = k;
	} else {
		rpwi_check_unwatched("there was no memory to watch one of the registrations");
	}
	rpwi_check_unlock();
}

void check_mr_gone(uint32_t key)
{
	if (!rpwi_check_lock())
		return;
	struct key **at = place_of(key), *k = *at;
	if (k)
		*at = k->next;
	rpwi_check_unlock();
	free(k);
}

/* Where an SGE lies; NULL: not in a region that is known. */
static const uint8_t *memory_of(const struct ibv_sge *s)
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
	struct job j = {.at = memory_of(sge), .len = sge->length, .sum = *sum};
	if (!j.len)
		return true;
	if (!j.at || rpwi_guard_call(sum_job, &j))
		return false;
	*sum = j.sum;
	return true;
}

/* ---- who has written ---- */

void check_key_written(uint32_t qpn, uint32_t rkey, uint64_t addr, uint64_t len)
{
	const struct key *k = *place_of(rkey);
	uint64_t at = k ? k->addr + (addr - k->iova) : addr;
	uint32_t last = (keys.writes - 1) % WRITES;
	/* the packets of a WRITE are one */
	if (keys.writes && keys.write[last].qpn == qpn &&
		keys.write[last].addr + keys.write[last].len == at) {
		keys.write[last].len += len;
		keys.write[last].at_ns = rpwi_now_ns();
		return;
	}
	uint32_t i = keys.writes++ % WRITES;
	keys.write[i].addr = at;
	keys.write[i].len = len;
	keys.write[i].at_ns = rpwi_now_ns();
	keys.write[i].qpn = qpn;
}

uint32_t check_key_wrote(const struct ibv_sge *sge, unsigned n, uint64_t since_ns)
{
	for (uint32_t i = 0; i < RPWI_MIN(keys.writes, (uint32_t)WRITES); i++) {
		if (keys.write[i].at_ns < since_ns)
			continue;
		for (unsigned s = 0; s < n; s++) {
			uint64_t at = (uintptr_t)memory_of(&sge[s]);
			if (at && at < keys.write[i].addr + keys.write[i].len &&
				keys.write[i].addr < at + sge[s].length)
				return keys.write[i].qpn;
		}
	}
	return 0;
}
