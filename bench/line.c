/* SPDX-License-Identifier: BSD-3-Clause */
/* line.c - half a round trip of one cache line between two cores: how far they stand from each
 * other right now. A host moves virtual cores, so script/bench asks before and after each round.
 */
#include <stdatomic.h>

#include "bench.h"

enum { BLOCKS = 200, MIDDLE = BLOCKS / 2, TURNS = 200, DEADLINE_S = 10 };

struct line {
	_Alignas(64) _Atomic uint64_t value;
};

static void await(struct line *l, uint64_t value)
{
	while (atomic_load_explicit(&l->value, memory_order_acquire) != value)
		;
}

/* Each side waits for the other's number and writes the next one. */
static void answer(struct line *l)
{
	for (uint64_t v = 1; v < 2ull * BLOCKS * TURNS; v += 2) {
		await(l, v);
		atomic_store_explicit(&l->value, v + 1, memory_order_release);
	}
}

static void ask(struct line *l, uint64_t *block_ns)
{
	uint64_t v = 1;

	for (unsigned i = 0; i < BLOCKS; i++) {
		uint64_t begin = now_ns();

		for (unsigned k = 0; k < TURNS; k++, v += 2) {
			atomic_store_explicit(&l->value, v, memory_order_release);
			await(l, v + 1);
		}
		block_ns[i] = now_ns() - begin;
	}
}

int main(int argc, char **argv)
{
	uint64_t block_ns[BLOCKS];
	int cpu[2] = {-1, -1};
	const struct flag flags[] = {{'c', CPUS, cpu}, {0}};

	take_flags(argc, argv, flags, "[-c asking core,answering core]");
	struct line *l = memory(sizeof *l, MAP_SHARED);
	pid_t other = child(cpu[1]);
	alarm(DEADLINE_S); /* two that share a core take a time slice for each turn */
	if (!other) {
		answer(l);
		_exit(0);
	}
	pin(cpu[0]);
	ask(l, block_ns);
	join_child(other);
	qsort(block_ns, BLOCKS, sizeof *block_ns, compare_u64);
	printf("{\"name\": \"line\", \"half_trip_ns\": %.2f, \"least_ns\": %.2f}\n",
		(double)block_ns[MIDDLE] / TURNS / 2, (double)block_ns[0] / TURNS / 2);
	return 0;
}
