/* SPDX-License-Identifier: BSD-3-Clause */
/* line.c - how near the cores of two processes are: half a round trip of a cache line that both
 * write.
 *
 * Where the other process is not a child, the line is in a memfd that the server makes: its pid,
 * the descriptor's number and a nonce go over the connection. What the client finds by that number
 * may be somebody else's, in another pid namespace or on another host: it uses only a memfd of one
 * page that cannot shrink and begins with the nonce. */
#include "cli/perf/perf.h"

#include "cli/perf/hist.h"
#include "near/memory.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	BYTES = 4096,
	BLOCKS = 200,
	TURNS = 500, /* of a block */
	PATIENCE_NS = 1000000000,
	WAIT_NS = 500000000, /* for a moment at which both run */
	ALL_NS = 200000000,
	TURN_MOST_NS = 50000, /* then the two share a core, or somebody else has one of them */
	SPINS = 1024,
};
#define OVER UINT64_MAX

struct perf_line {
	uint8_t nonce[PERF_NONCE_LEN];
	_Alignas(64) _Atomic uint64_t value;
	_Alignas(64) _Atomic uint64_t core; /* of the side that answers */
};
_Static_assert(sizeof(struct perf_line) <= BYTES, "one page");

void rpwi_perf_line_free(struct perf_line *l)
{
	if (l)
		munmap(l, BYTES);
}

struct perf_line *rpwi_perf_line_offer(int *fd, uint8_t nonce[PERF_NONCE_LEN])
{
	void *at;
	*fd = -1;
	if (getrandom(nonce, PERF_NONCE_LEN, 0) != PERF_NONCE_LEN)
		return NULL;
	*fd = rpwi_memory_make("ropeway-perf-line", BYTES, RPWI_MEMORY_WRITE, &at);
	if (*fd < 0)
		return NULL;
	struct perf_line *l = at;
	memcpy(l->nonce, nonce, PERF_NONCE_LEN);
	return l;
}

struct perf_line *rpwi_perf_line_take(uint64_t pid, uint64_t fd, const uint8_t *nonce)
{
	char path[64];
	struct stat st;
	snprintf(path, sizeof(path), "/proc/%u/fd/%u", (unsigned)pid, (unsigned)fd);
	if (pid > INT32_MAX || fd > INT32_MAX || stat(path, &st) || !S_ISREG(st.st_mode) ||
		st.st_size != BYTES)
		return NULL;
	int own = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (own < 0)
		return NULL;
	struct perf_line *l = rpwi_memory_take(own, BYTES, RPWI_MEMORY_WRITE);
	close(own);
	if (!l || !memcmp(l->nonce, nonce, PERF_NONCE_LEN))
		return l;
	rpwi_perf_line_free(l);
	return NULL;
}

/* What the line has once it is `value` or over; 0: the other side is not there (any more). */
static uint64_t await(struct perf_line *l, uint64_t value, uint64_t until_ns)
{
	for (unsigned spins = 1;; spins++) {
		uint64_t now = atomic_load_explicit(&l->value, memory_order_acquire);
		if (now == value || now == OVER)
			return now;
		if (spins % SPINS == 0 && rpwi_now_ns() > until_ns)
			return 0;
	}
}

void rpwi_perf_line_answer(struct perf_line *l)
{
	uint64_t until = rpwi_now_ns() + PATIENCE_NS;
	int core = sched_getcpu();
	atomic_store_explicit(&l->core, core < 0 ? 0 : (uint64_t)core, memory_order_relaxed);
	for (uint64_t v = 1; v < OVER - 1 && await(l, v, until) == v; v += 2)
		atomic_store_explicit(&l->value, v + 1, memory_order_release);
}

/* `turns` round trips; 0: the other side has gone. */
static uint64_t block(struct perf_line *l, unsigned turns, uint64_t *v, uint64_t until)
{
	uint64_t begin = rpwi_now_ns();
	for (unsigned i = 0; i < turns; i++, *v += 2) {
		atomic_store_explicit(&l->value, *v, memory_order_release);
		if (await(l, *v + 1, until) != *v + 1)
			return 0;
	}
	return rpwi_now_ns() - begin;
}

double rpwi_perf_line_ask(struct perf_line *l, int core[2])
{
	double s[BLOCKS];
	uint64_t v = 1, turn, began = rpwi_now_ns(), until = began + PATIENCE_NS;
	unsigned n = 0;
	do
		turn = block(l, 1, &v, until);
	while (turn >= TURN_MOST_NS && rpwi_now_ns() - began < WAIT_NS);
	began = rpwi_now_ns();
	while (turn && turn < TURN_MOST_NS && n < BLOCKS && rpwi_now_ns() - began < ALL_NS) {
		uint64_t ns = block(l, TURNS, &v, until);
		if (!ns)
			break;
		s[n++] = (double)ns / 1e9;
	}
	atomic_store_explicit(&l->value, OVER, memory_order_release);
	core[0] = sched_getcpu();
	core[1] = (int)(atomic_load_explicit(&l->core, memory_order_relaxed) & 0xffff);
	return rpwi_perf_median(s, n) / TURNS / 2;
}
