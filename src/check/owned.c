/* SPDX-License-Identifier: BSD-3-Clause */
/* owned.c - see owned.h. */
#include "check/owned.h"

#include "base/hash.h"

#include <stdlib.h>

enum {
	GRANULE_SHIFT = 6,
	SIZES = 14, /* 64 bytes << 2 * 13: 4 GiB */
	CHUNK = 4096,
	CHUNKS = 1024,
	TABLE_MIN = 4096
};
struct node {
	uint64_t addr;
	uint32_t len : 31, read : 1; /* read: target of a READ or an atomic */
	uint32_t next, count;        /* next: its number + 1 */
};
static struct {
	struct node *chunk[CHUNKS];
	uint32_t chunks, requests;
	uint32_t free; /* number + 1 */
	uint32_t *bucket;
	uint32_t buckets;
	uint32_t of_size[SIZES]; /* nodes */
} own;

static struct node *node_at(uint32_t n) { return &own.chunk[(n - 1) / CHUNK][(n - 1) % CHUNK]; }

static unsigned size_of(uint64_t len)
{
	unsigned s = 0;
	while (s < SIZES - 1 && len >> (GRANULE_SHIFT + 2 * s) > 1)
		s++;
	/* 64 << 2s >= len */
	return s + (s < SIZES - 1 && len > 1ull << (GRANULE_SHIFT + 2 * s));
}

static uint32_t *bucket_of(unsigned size, uint64_t granule)
{
	return &own.bucket[rpwi_mix(size, granule) >> 20 & (own.buckets - 1)];
}

static uint32_t *bucket_of_range(uint64_t addr, uint64_t len)
{
	unsigned s = size_of(len);
	return bucket_of(s, addr >> (GRANULE_SHIFT + 2 * s));
}

/* ---- room ---- */

static void table_grow(uint32_t *table, uint32_t n)
{
	uint32_t *was = own.bucket, had = own.buckets;
	own.bucket = table;
	own.buckets = n;
	for (uint32_t i = 0; i < had; i++)
		for (uint32_t at = was[i], next; at; at = next) {
			struct node *v = node_at(at);
			uint32_t *to = bucket_of_range(v->addr, v->len);
			next = v->next;
			v->next = *to;
			*to = at;
		}
}

static void chunk_add(struct node *chunk)
{
	uint32_t first = own.chunks * CHUNK + 1;
	own.chunk[own.chunks++] = chunk;
	for (uint32_t i = 0; i < CHUNK; i++) {
		chunk[i].next = own.free;
		own.free = first + i;
	}
}

/* Chunks until there are so many. */
static void chunks_more(uint32_t chunks)
{
	for (bool more = true; more;) {
		struct node *chunk = malloc(CHUNK * sizeof(*chunk));
		bool mine = chunk && rpwi_check_lock();
		more = mine && own.chunks < chunks;
		if (more)
			chunk_add(chunk);
		else
			free(chunk);
		if (mine)
			rpwi_check_unlock();
	}
}

static void table_more(uint32_t n)
{
	uint32_t *table = calloc(n, sizeof(*table)), *was = table;
	if (!table)
		return;
	if (rpwi_check_lock()) {
		if (n > own.buckets) {
			was = own.bucket;
			table_grow(table, n);
		}
		rpwi_check_unlock();
	}
	free(was);
}

void check_owned_room(uint32_t requests)
{
	if (!rpwi_check_lock())
		return;
	own.requests += requests;
	uint64_t nodes = (uint64_t)own.requests * CHECK_OWNED_SGES;
	uint32_t chunks = (uint32_t)RPWI_MIN((nodes + CHUNK - 1) / CHUNK, (uint64_t)CHUNKS),
		 n = RPWI_MAX(own.buckets, (uint32_t)TABLE_MIN);
	bool chunks_lack = chunks > own.chunks, table_lacks = n > own.buckets;
	while (n < nodes && n < 1u << 22) {
		n *= 2;
		table_lacks = true;
	}
	rpwi_check_unlock();
	if (chunks_lack)
		chunks_more(chunks);
	if (table_lacks)
		table_more(n);
}

void check_owned_room_less(uint32_t requests)
{
	if (!rpwi_check_lock())
		return;
	own.requests -= requests;
	rpwi_check_unlock();
}

/* ---- ranges ---- */

static void look_in_bucket(uint32_t at, uint64_t addr, uint64_t len, struct check_owners *f)
{
	for (; at; at = node_at(at)->next) {
		const struct node *v = node_at(at);
		if (v->addr >= addr + len || addr >= v->addr + v->len)
			continue;
		if (!f->first)
			f->first = at;
		if (!f->bad && v->addr != addr && v->read == f->read)
			f->bad = at;
	}
}

struct check_owners check_owned_look(uint64_t addr, uint64_t len, bool read)
{
	struct check_owners f = {.read = read};
	for (unsigned s = 0; s < SIZES && !f.bad && own.bucket; s++) {
		if (!own.of_size[s])
			continue;
		unsigned shift = GRANULE_SHIFT + 2 * s;
		/* one that begins in the granule before may reach in here */
		uint64_t from = addr >> shift, to = (addr + len - 1) >> shift;
		from -= from > 0;
		if (to - from < own.buckets / 2) {
			for (uint64_t g = from; g <= to; g++)
				look_in_bucket(*bucket_of(s, g), addr, len, &f);
			continue;
		}
		for (uint32_t i = 0; i < own.buckets; i++)
			look_in_bucket(own.bucket[i], addr, len, &f);
	}
	return f;
}

bool check_owned_is_on(uint32_t node, uint64_t addr, uint64_t len)
{
	const struct node *v = node_at(node);
	return v->addr < addr + len && addr < v->addr + v->len;
}

uint32_t check_owned_put(uint64_t addr, uint32_t len, bool read)
{
	if (!own.bucket)
		return 0;
	uint32_t *to = bucket_of_range(addr, len);
	for (uint32_t at = *to; at; at = node_at(at)->next) {
		struct node *v = node_at(at);
		if (v->addr == addr && v->len == len && v->read == read) {
			v->count++;
			return at;
		}
	}
	uint32_t n = own.free;
	if (!n) {
		rpwi_check_unwatched("there was no memory to watch all buffers in flight");
		return 0;
	}
	struct node *v = node_at(n);
	own.free = v->next;
	*v = (struct node){.addr = addr, .len = len, .read = read, .next = *to, .count = 1};
	*to = n;
	own.of_size[size_of(len)]++;
	return n;
}

static void node_drop(uint32_t n)
{
	struct node *v = node_at(n);
	if (--v->count)
		return;
	uint32_t *at = bucket_of_range(v->addr, v->len);
	while (*at != n)
		at = &node_at(*at)->next;
	*at = v->next;
	own.of_size[size_of(v->len)]--;
	v->next = own.free;
	own.free = n;
}

void check_owned_leave(struct check_wr *w)
{
	for (unsigned i = 0; i < CHECK_OWNED_SGES && w->owns; i++)
		if (w->node[i])
			node_drop(w->node[i]);
	w->owns = false;
}
