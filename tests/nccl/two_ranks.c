/* SPDX-License-Identifier: BSD-3-Clause */
/* two_ranks.c - one rank of a NCCL communicator of two, for script/nccl-two-ranks where there is no
 * PyTorch. Neither NCCL's headers nor CUDA's are needed: both libraries are opened by name, and
 * what is called is declared here after their documentation.
 *
 *   two_ranks --probe                        what is here, or what is missing (exit 77)
 *   two_ranks RANK ID_FILE ROUNDS BYTES...   a line for each operation and size: RESULT OPERATION
 *                                            BYTES SECONDS WRONG (elements, of this rank, after all
 *                                            rounds)
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { UINT32 = 3, SUM = 0, WARM_UP = 2, ID_WAIT_S = 60, SKIPPED = 77 };
typedef unsigned long long device_ptr;
struct unique_id {
	char bytes[128];
};

static struct {
	int (*init)(unsigned flags);
	int (*device_get)(int *device, int ordinal);
	int (*primary_retain)(void **context, int device);
	int (*push)(void *context);
	int (*alloc)(device_ptr *out, size_t len);
	int (*to_device)(device_ptr to, const void *from, size_t len, void *stream);
	int (*to_host)(void *to, device_ptr from, size_t len, void *stream);
	int (*stream_new)(void **stream, unsigned flags);
	int (*stream_wait)(void *stream);
} cu;
static struct {
	int (*version)(int *version);
	int (*id)(struct unique_id *id);
	int (*init)(void **comm, int ranks, struct unique_id id, int rank);
	int (*all_reduce)(device_ptr from, device_ptr to, size_t count, int type, int op,
		void *comm, void *stream);
	int (*broadcast)(device_ptr from, device_ptr to, size_t count, int type, int root,
		void *comm, void *stream);
	int (*send)(device_ptr from, size_t count, int type, int peer, void *comm, void *stream);
	int (*recv)(device_ptr to, size_t count, int type, int peer, void *comm, void *stream);
	int (*group_start)(void);
	int (*group_end)(void);
	int (*destroy)(void *comm);
	const char *(*error)(int result);
} nccl;

static const struct symbol {
	const char *name;
	void *fn;
} cuda_symbols[] = {{"cuInit", &cu.init}, {"cuDeviceGet", &cu.device_get},
	{"cuDevicePrimaryCtxRetain", &cu.primary_retain}, {"cuCtxPushCurrent_v2", &cu.push},
	{"cuMemAlloc_v2", &cu.alloc}, {"cuMemcpyHtoDAsync_v2", &cu.to_device},
	{"cuMemcpyDtoHAsync_v2", &cu.to_host}, {"cuStreamCreate", &cu.stream_new},
	{"cuStreamSynchronize", &cu.stream_wait}, {NULL, NULL}},
  nccl_symbols[] = {{"ncclGetVersion", &nccl.version}, {"ncclGetUniqueId", &nccl.id},
	  {"ncclCommInitRank", &nccl.init}, {"ncclAllReduce", &nccl.all_reduce},
	  {"ncclBroadcast", &nccl.broadcast}, {"ncclSend", &nccl.send}, {"ncclRecv", &nccl.recv},
	  {"ncclGroupStart", &nccl.group_start}, {"ncclGroupEnd", &nccl.group_end},
	  {"ncclCommDestroy", &nccl.destroy}, {"ncclGetErrorString", &nccl.error}, {NULL, NULL}};

static void missing(const char *what, const char *why)
{
	printf("%s: %s\n", what, why ? why : "?");
	exit(SKIPPED);
}

static void open_library(const char *variable, const char *name, const struct symbol *s)
{
	const char *path = getenv(variable) ? getenv(variable) : name;
	void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!library)
		missing(name, dlerror());
	for (; s->name; s++) {
		void *fn = dlsym(library, s->name);
		if (!fn)
			missing(name, dlerror());
		memcpy(s->fn, &fn, sizeof(fn));
	}
}

static void cuda(int result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "two_ranks: %s gave CUDA error %d\n", what, result);
	exit(1);
}
static void ok(int result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "two_ranks: %s gave %d (%s)\n", what, result, nccl.error(result));
	exit(1);
}

/* ---- a rank ---- */

static int rank;
static void *comm, *stream;
static device_ptr from, to, mark;
static uint32_t *host;

/* No two elements, ranks or rounds alike. */
static uint32_t element(int of_rank, uint32_t round, size_t i)
{
	uint32_t x =
		(uint32_t)i * 2654435761u + (uint32_t)of_rank * 0x9e3779b9u + round * 0x85ebca6bu;
	return x ^ x >> 13;
}

static void fill(uint32_t round, size_t count)
{
	for (size_t i = 0; i < count; i++)
		host[i] = element(rank, round, i);
	cuda(cu.to_device(from, host, count * sizeof(*host), stream), "copying to the GPU");
	cuda(cu.stream_wait(stream), "waiting for the GPU");
}

static void all_reduce(uint32_t round, size_t count)
{
	ok(nccl.all_reduce(from, to, count, UINT32, SUM, comm, stream), "ncclAllReduce");
}
static void broadcast(uint32_t round, size_t count)
{
	ok(nccl.broadcast(from, to, count, UINT32, (int)(round % 2), comm, stream),
		"ncclBroadcast");
}
static void send_recv(uint32_t round, size_t count)
{
	ok(nccl.group_start(), "ncclGroupStart");
	ok(nccl.send(from, count, UINT32, !rank, comm, stream), "ncclSend");
	ok(nccl.recv(to, count, UINT32, !rank, comm, stream), "ncclRecv");
	ok(nccl.group_end(), "ncclGroupEnd");
}
static uint32_t of_all_reduce(uint32_t round, size_t i)
{
	return element(0, round, i) + element(1, round, i);
}
static uint32_t of_broadcast(uint32_t round, size_t i)
{
	return element((int)(round % 2), round, i);
}
static uint32_t of_send_recv(uint32_t round, size_t i) { return element(!rank, round, i); }

static const struct operation {
	const char *name;
	void (*run)(uint32_t round, size_t count);
	uint32_t (*expected)(uint32_t round, size_t i);
} operations[] = {{"all_reduce", all_reduce, of_all_reduce}, {"send_recv", send_recv, of_send_recv},
	{"broadcast", broadcast, of_broadcast}};

static size_t wrong_elements(const struct operation *op, uint32_t round, size_t count)
{
	size_t wrong = 0;
	memset(host, 0, count * sizeof(*host));
	cuda(cu.to_host(host, to, count * sizeof(*host), stream), "copying from the GPU");
	cuda(cu.stream_wait(stream), "waiting for the GPU");
	for (size_t i = 0; i < count; i++)
		wrong += host[i] != op->expected(round, i);
	return wrong;
}

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Until both ranks are here, and have what was sent to them: what a rank sends is in the kernel's
 * buffers long before. */
static void meet(void)
{
	ok(nccl.all_reduce(mark, mark, 1, UINT32, SUM, comm, stream), "ncclAllReduce");
	cuda(cu.stream_wait(stream), "waiting for the GPU");
}

/* Timed on data that stays; verified on data of its own, twice, so that each rank has been the
 * root. */
static void measure(const struct operation *op, size_t bytes, unsigned rounds)
{
	static uint32_t round;
	size_t count = bytes / sizeof(*host), wrong = 0;
	for (int i = 0; i < WARM_UP; i++) {
		fill(++round, count);
		op->run(round, count);
		cuda(cu.stream_wait(stream), op->name);
		wrong += wrong_elements(op, round, count);
	}
	meet();
	double began = now_s();
	for (unsigned i = 0; i < rounds; i++)
		op->run(round, count);
	meet();
	printf("RESULT %s %zu %.9f %zu\n", op->name, bytes, (now_s() - began) / rounds,
		wrong + wrong_elements(op, round, count));
	fflush(stdout);
}

/* Rank 0 makes the id, rank 1 finds it: whole, since the name appears last. */
static void share_id(const char *file, struct unique_id *id)
{
	char temporary[4096];
	snprintf(temporary, sizeof(temporary), "%s.new", file);
	FILE *f = NULL;
	if (!rank) {
		ok(nccl.id(id), "ncclGetUniqueId");
		f = fopen(temporary, "w");
		if (!f || fwrite(id, sizeof(*id), 1, f) != 1 || fclose(f) ||
			rename(temporary, file))
			perror(file), exit(1);
		return;
	}
	for (int i = 0; i < ID_WAIT_S * 100 && !(f = fopen(file, "r")); i++)
		usleep(10 * 1000);
	if (!f || fread(id, sizeof(*id), 1, f) != 1)
		perror(file), exit(1);
	fclose(f);
}

int main(int argc, char **argv)
{
	int device, version = 0;
	void *context;
	struct unique_id id;
	open_library("ROPEWAY_CUDA_LIBRARY", "libcuda.so.1", cuda_symbols);
	int result = cu.init(0);
	if (result || cu.device_get(&device, 0))
		missing("no GPU", result ? "cuInit failed" : "cuDeviceGet failed");
	open_library("ROPEWAY_NCCL_LIBRARY", "libnccl.so.2", nccl_symbols);
	ok(nccl.version(&version), "ncclGetVersion");
	printf("NCCL %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
	if (argc < 5)
		return argc == 2 && !strcmp(argv[1], "--probe") ? 0 : 2;
	rank = atoi(argv[1]);
	cuda(cu.primary_retain(&context, device), "cuDevicePrimaryCtxRetain");
	cuda(cu.push(context), "cuCtxPushCurrent");
	cuda(cu.stream_new(&stream, 1), "cuStreamCreate");
	share_id(argv[2], &id);
	ok(nccl.init(&comm, 2, id, rank), "ncclCommInitRank");
	cuda(cu.alloc(&mark, sizeof(uint32_t)), "cuMemAlloc");
	for (int i = 4; i < argc; i++) {
		size_t bytes = strtoull(argv[i], NULL, 10);
		host = malloc(bytes + 1);
		if (!host)
			missing("memory", "none");
		cuda(cu.alloc(&from, bytes), "cuMemAlloc");
		cuda(cu.alloc(&to, bytes), "cuMemAlloc");
		for (size_t k = 0; k < sizeof(operations) / sizeof(*operations); k++)
			measure(&operations[k], bytes, (unsigned)atoi(argv[3]));
		free(host);
	}
	ok(nccl.destroy(comm), "ncclCommDestroy");
	return 0;
}
