/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_gpu_test.c - our one-sided plugin and memory of GPUs, over a driver that pretends
 * (tests/msg/fake_cuda.c): payloads from and to it, signals in it, gets into it, in the order that
 * is promised. PLUGIN TRANSPORT [TEST]..., with ROPEWAY_CUDA_LIBRARY. */
#include "rma_group.h"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

enum { ROOM = 3 << 20, TIMES = 60, OFFERED = 3 };

static struct {
	int (*alloc)(unsigned long long *, size_t);
	void *(*bytes)(unsigned long long, size_t);
} cuda;

/* The driver is each rank's own. */
static void cuda_open(struct rank *r)
{
	void *l = dlopen(getenv("ROPEWAY_CUDA_LIBRARY"), RTLD_NOW);
	RANK_TRUE(r, l != NULL);
	*(void **)&cuda.alloc = dlsym(l, "cuMemAlloc_v2");
	*(void **)&cuda.bytes = dlsym(l, "fake_bytes");
	RANK_TRUE(r, cuda.alloc && cuda.bytes);
	*(long *)dlsym(l, "fake_peer") = getenv("GPU_PEER") != NULL;
}

struct buffer {
	void *at;       /* as the driver has it */
	uint8_t *bytes; /* as the processor may see it in a test */
	void *mhandle;
};

static struct buffer buffer_new(struct rank *r, bool device)
{
	struct buffer b = {0};
	unsigned long long p;
	if (device) {
		RANK_TRUE(r, !cuda.alloc(&p, ROOM));
		b.at = (void *)(uintptr_t)p;
		b.bytes = cuda.bytes(p, ROOM);
		memset(b.bytes, 0, ROOM);
	} else {
		b.at = b.bytes = room_new(ROOM);
	}
	RANK_OK(r,
		r->n.calls->reg(r->n.table, r->coll, b.at, ROOM,
			device ? NCCL_PTR_CUDA : NCCL_PTR_HOST, NCCL_RMA_FORCE_ORDER, &b.mhandle));
	return b;
}

static const size_t sizes[] = {1, 8, 100, 4096, 4097, 70000, 1 << 20, (2 << 20) + 3};

/* From and to a GPU or not, with a signal in a GPU or not: to the next rank, and to itself. */
static void moves(struct rank *r)
{
	cuda_open(r);
	struct buffer from[2] = {buffer_new(r, false), buffer_new(r, true)};
	struct buffer to[2] = {buffer_new(r, false), buffer_new(r, true)};
	struct buffer signals[2] = {buffer_new(r, false), buffer_new(r, true)};
	uint64_t rounds = 0;
	for (size_t k = 0; k < RPWI_ARRAY_LEN(sizes) * 16; k++) {
		IN_CASE("case", k);
		size_t size = sizes[k / 16];
		int out = k & 1, in = k >> 1 & 1, sig = k >> 2 & 1, self = k >> 3 & 1;
		int next = self ? r->rank : (r->rank + 1) % r->ranks;
		int before = self ? r->rank : (r->rank + r->ranks - 1) % r->ranks;
		const uint64_t *word = (const uint64_t *)(const void *)signals[sig].bytes;
		uint64_t was = *word;
		pattern_fill(from[out].bytes, size, k * 100 + (uint64_t)r->rank);
		memset(to[in].bytes, 0x5a, ROOM);
		rank_barrier(r);
		rank_do(r, 0,
			&(struct ncclnet_rma_op){.from = from[out].mhandle,
				.size = size,
				.to = to[in].mhandle,
				.to_off = 16,
				.rank = (uint32_t)next,
				.signals = true,
				.weak = k % 3 == 0,
				.signal = signals[sig].mhandle,
				.signal_op = NCCL_RMA_SIGNAL_ADD,
				.value = 5});
		rank_await(r, word, was + 5, k % 2);
		size_t wrong = pattern_wrong(to[in].bytes + 16, size, k * 100 + (uint64_t)before);
		if (wrong < size)
			rank_fail(r, "byte %zu of %zu (to a GPU: %d, signal: %d)", wrong, size, in,
				sig);
		RANK_TRUE(r, to[in].bytes[15] == 0x5a && to[in].bytes[16 + size] == 0x5a);
		RANK_TRUE(r, *word == was + 5);
		rounds++;
		rank_barrier(r);
	}
	RANK_TRUE(r, rounds == RPWI_ARRAY_LEN(sizes) * 16);
}
static void payloads_and_signals_of_gpus(void **unused)
{
	group_newest(2, 1, 0, moves);
	group_newest(1, 1, 0, moves);
}

/* Host and GPU, small and large, then a strong signal: in a GPU, and in the host's memory. */
static void strong(struct rank *r)
{
	enum { PUTS = 10, CELL = 100000 };
	cuda_open(r);
	struct buffer from = buffer_new(r, true);
	struct buffer to[2] = {buffer_new(r, false), buffer_new(r, true)};
	struct buffer signals[2] = {buffer_new(r, false), buffer_new(r, true)};
	uint32_t peer = (uint32_t)(r->rank ^ 1);
	for (unsigned k = 0; k < TIMES; k++) {
		IN_CASE("round", k);
		void *request[PUTS + 1];
		for (unsigned i = 0; i < PUTS; i++) {
			size_t size = i % 3 ? 50 + i : CELL - i;
			pattern_fill(from.bytes + (size_t)i * CELL, size, k * PUTS + i);
			request[i] = rank_put(r, 0,
				&(struct ncclnet_rma_op){.from = from.mhandle,
					.from_off = (uint64_t)i * CELL,
					.size = size,
					.to = to[(i + k) % 2].mhandle,
					.to_off = (uint64_t)i * CELL,
					.rank = peer});
		}
		request[PUTS] = rank_put(r, 0,
			&(struct ncclnet_rma_op){.rank = peer,
				.signals = true,
				.signal = signals[k % 2].mhandle,
				.signal_off = 8,
				.signal_op = NCCL_RMA_SIGNAL_INCREMENT});
		rank_await(r, (const uint64_t *)(const void *)signals[k % 2].bytes + 1, k / 2 + 1,
			true);
		for (unsigned i = 0; i < PUTS; i++) {
			size_t size = i % 3 ? 50 + i : CELL - i;
			RANK_TRUE(r, pattern_wrong(to[(i + k) % 2].bytes + (size_t)i * CELL, size,
					     k * PUTS + i) == size);
		}
		for (unsigned i = 0; i <= PUTS; i++)
			RANK_OK(r, rank_wait(r, request[i]));
		rank_barrier(r);
	}
}
static void strong_signals_of_gpus_come_last(void **unused) { group_newest(2, 1, 0, strong); }

/* Puts of the other contexts that the stopped target has no credit for: it will fetch them. */
static void puts_offered(struct rank *r, struct ncclnet_rma_op op, void *request[OFFERED])
{
	enum { MANY = 4000 };
	unsigned waiting = 0;
	for (unsigned i = 0; waiting < OFFERED; i++) {
		int done;
		RANK_TRUE(r, i < MANY);
		request[waiting] = rank_put(r, 1 + (int)(i % 2), &op);
		RANK_OK(r, r->n.calls->test(r->n.table, r->coll, request[waiting], &done));
		waiting += !done;
	}
}

/* A put of few bytes still finds credit when an earlier, longer message finds none. Its signal in a
 * GPU comes after it nevertheless: with the put, weak or strong, or after it by itself. */
static void small_behind_offered(struct rank *r)
{
	enum { LONG = 4096, SHORT = 100, WAYS = 3 };
	static const char *const way[WAYS] = {"weak", "strong", "by itself"};
	cuda_open(r);
	struct buffer from = buffer_new(r, false), to = buffer_new(r, false),
		      signal = buffer_new(r, true);
	const uint64_t *word = (const uint64_t *)(const void *)signal.bytes;
	if (r->rank)
		atomic_store(rank_shared(r, 0), (uint64_t)getpid());
	for (unsigned k = 0; k < TIMES; k++) {
		IN_CASE("round", k);
		pattern_fill(from.bytes, SHORT, k);
		rank_barrier(r);
		if (r->rank) {
			rank_await(r, word, k + 1, k / WAYS % 2);
			size_t wrong = pattern_wrong(to.bytes, SHORT, k);
			if (wrong < SHORT)
				rank_fail(r, "byte %zu of the put comes after its signal: %s",
					wrong, way[k % WAYS]);
			rank_barrier(r);
			continue;
		}
		void *request[OFFERED + 2] = {0};
		struct ncclnet_rma_op op = {.from = from.mhandle,
			.size = LONG,
			.to = to.mhandle,
			.to_off = LONG,
			.rank = 1};
		pid_t pid = (pid_t)atomic_load(rank_shared(r, 0));
		RANK_TRUE(r, !kill(pid, SIGSTOP));
		puts_offered(r, op, request);
		op.size = SHORT;
		op.to_off = 0;
		if (k % WAYS == 2) {
			request[OFFERED] = rank_put(r, 0, &op);
			op.size = 0;
		}
		op.signals = true;
		op.weak = k % WAYS == 0;
		op.signal = signal.mhandle;
		op.signal_op = NCCL_RMA_SIGNAL_INCREMENT;
		request[OFFERED + 1] = rank_put(r, 0, &op);
		RANK_TRUE(r, !kill(pid, SIGCONT));
		for (unsigned i = 0; i < RPWI_ARRAY_LEN(request); i++)
			if (request[i])
				RANK_OK(r, rank_wait(r, request[i]));
		rank_barrier(r);
	}
}
static void signals_of_gpus_wait_for_puts_behind_offered_ones(void **unused)
{
	group_newest(2, 3, 0, small_behind_offered);
}

static void sums(struct rank *r)
{
	cuda_open(r);
	struct buffer signals = buffer_new(r, true);
	for (unsigned k = 0; k < TIMES; k++)
		for (int to = 0; to < r->ranks; to++)
			rank_do(r, 0,
				&(struct ncclnet_rma_op){.rank = (uint32_t)to,
					.signals = true,
					.weak = k % 2,
					.signal = signals.mhandle,
					.signal_off = 64,
					.signal_op = NCCL_RMA_SIGNAL_ADD,
					.value = k});
	uint64_t expected = (uint64_t)r->ranks * TIMES * (TIMES - 1) / 2;
	rank_await(r, (const uint64_t *)(const void *)signals.bytes + 8, expected, true);
	rank_barrier(r);
	RANK_TRUE(r, ((const uint64_t *)(const void *)signals.bytes)[8] == expected);
}
static void signals_in_a_gpu_add_up(void **unused) { group_newest(4, 1, 0, sums); }

static void gets(struct rank *r)
{
	cuda_open(r);
	struct buffer there[2] = {buffer_new(r, false), buffer_new(r, true)};
	struct buffer here[2] = {buffer_new(r, false), buffer_new(r, true)};
	for (int i = 0; i < 2; i++)
		pattern_fill(there[i].bytes, ROOM, (uint64_t)(r->rank * 2 + i));
	rank_barrier(r);
	for (size_t k = 0; k < RPWI_ARRAY_LEN(sizes) * 4; k++)
		for (int by = 0; by < r->ranks; by++) {
			size_t size = sizes[k / 4];
			int out = k & 1, in = k >> 1 & 1;
			memset(here[in].bytes, 0x5a, ROOM);
			rank_get(r, 0,
				&(struct ncclnet_rma_op){.from = there[out].mhandle,
					.from_off = 5,
					.size = size,
					.to = here[in].mhandle,
					.to_off = 7,
					.rank = (uint32_t)by});
			RANK_TRUE(r, pattern_wrong_from(here[in].bytes + 7, size,
					     (uint64_t)(by * 2 + out), 5) == size);
			RANK_TRUE(r, here[in].bytes[7 + size] == 0x5a);
		}
	rank_barrier(r);
}
static void gets_from_and_into_gpus(void **unused) { group_newest(2, 1, 0, gets); }

int main(int argc, char **argv)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test(payloads_and_signals_of_gpus),
		cmocka_unit_test(strong_signals_of_gpus_come_last),
		cmocka_unit_test(signals_of_gpus_wait_for_puts_behind_offered_ones),
		cmocka_unit_test(signals_in_a_gpu_add_up),
		cmocka_unit_test(gets_from_and_into_gpus),
	};
	return group_tests(argc, argv, all, RPWI_ARRAY_LEN(all));
}
