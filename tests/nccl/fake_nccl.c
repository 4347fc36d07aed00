/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_nccl.c - a NCCL for machines without one: two ranks that meet in a file, on the memory of
 * tests/msg/fake_cuda.c. It tests two_ranks.c and script/nccl-two-ranks, and nothing of NCCL's or
 * of the plugin; it writes the line by which NCCL says which way a connection goes.
 *
 * FAKE_NCCL_WRONG: a bit of one element of all_reduce is turned. FAKE_NCCL_NET: the transport that
 * it claims, instead of NCCL_NET. FAKE_NCCL_DIES: rank 1 ends in the middle.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
typedef unsigned long long dev;
struct unique_id {
	char path[128];
};

enum { ROOM = 1 << 20 };
static struct meeting {
	_Atomic unsigned arrived;
	char data[2][ROOM];
} * m;
static int rank;
static unsigned arrivals;
static struct {
	dev p;
	size_t len;
} sends, receives;

static char *bytes(dev p, size_t len)
{
	char *(*find)(dev p, size_t len);
	*(void **)&find = dlsym(RTLD_DEFAULT, "fake_bytes");
	return find(p, len);
}

static void stream_done(void *stream)
{
	int (*wait)(void *stream);
	*(void **)&wait = dlsym(RTLD_DEFAULT, "cuStreamSynchronize");
	wait(stream);
}

static void meet(void)
{
	arrivals += 2;
	atomic_fetch_add(&m->arrived, 1);
	for (int ms = 0; atomic_load(&m->arrived) < arrivals; ms++) {
		if (ms == 60000)
			_exit(3);
		usleep(1000);
	}
}

/* What this rank has goes there, what the other has comes back. */
static char *exchange(dev p, size_t len)
{
	if (len > ROOM || (getenv("FAKE_NCCL_DIES") && rank && arrivals > 8))
		_exit(4);
	if (p)
		memcpy(m->data[rank], bytes(p, len), len);
	meet();
	return m->data[!rank];
}

API int ncclGetVersion(int *version) { return *version = 20000, 0; }
API const char *ncclGetErrorString(int result) { return result ? "an error" : "no error"; }
API int ncclGetUniqueId(struct unique_id *id)
{
	snprintf(id->path, sizeof(id->path), "/tmp/ropeway-fake-nccl-XXXXXX");
	int fd = mkstemp(id->path);
	return fd < 0 || ftruncate(fd, sizeof(*m)) || close(fd);
}
API int ncclCommInitRank(void **comm, int ranks, struct unique_id id, int own_rank)
{
	const char *net = getenv("FAKE_NCCL_NET") ? getenv("FAKE_NCCL_NET") : getenv("NCCL_NET");
	int fd = open(id.path, O_RDWR | O_CLOEXEC);
	rank = own_rank;
	m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || m == MAP_FAILED || ranks != 2)
		return 2;
	close(fd);
	*comm = m;
	meet();
	unlink(id.path);
	FILE *f = fopen(getenv("NCCL_DEBUG_FILE"), "w");
	fprintf(f, "host:1:1 [0] NCCL INFO NCCL_HOSTID set by environment to %s\n",
		getenv("NCCL_HOSTID"));
	fprintf(f, "host:1:1 [0] NCCL INFO Channel 00/0 : %d[0] -> %d[0] [send] via NET/%s/0\n",
		rank, !rank, net);
	return fclose(f);
}
API int ncclAllReduce(dev from, dev to, size_t count, int type, int op, void *comm, void *stream)
{
	stream_done(stream);
	uint32_t *other = (uint32_t *)exchange(from, 4 * count),
		 *own = (uint32_t *)bytes(from, 4 * count), *out = (uint32_t *)bytes(to, 4 * count);
	for (size_t i = 0; i < count; i++)
		out[i] = own[i] + other[i];
	out[count / 2] ^= getenv("FAKE_NCCL_WRONG") != NULL;
	meet();
	return 0;
}
API int ncclBroadcast(dev from, dev to, size_t count, int type, int root, void *comm, void *stream)
{
	stream_done(stream);
	char *other = exchange(from, 4 * count);
	memcpy(bytes(to, 4 * count), root == rank ? bytes(from, 4 * count) : other, 4 * count);
	meet();
	return 0;
}
API int ncclSend(dev from, size_t count, int type, int peer, void *comm, void *stream)
{
	stream_done(stream);
	sends.p = from;
	sends.len = 4 * count;
	return peer == rank;
}
API int ncclRecv(dev to, size_t count, int type, int peer, void *comm, void *stream)
{
	receives.p = to;
	receives.len = 4 * count;
	return peer == rank;
}
API int ncclGroupStart(void) { return 0; }
API int ncclGroupEnd(void)
{
	memcpy(bytes(receives.p, receives.len), exchange(sends.p, sends.len), receives.len);
	meet();
	return 0;
}
API int ncclCommDestroy(void *comm) { return comm != m; }
