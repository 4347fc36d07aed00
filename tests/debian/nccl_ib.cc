// SPDX-License-Identifier: BSD-3-Clause
// nccl_ib RANK FOLDER: NCCL's own IB transport (ncclNetIb of its transport/net_ib.cc, linked in from
// NCCL's source) between two ranks, on each device, host memory, every byte compared. Nothing of CUDA is
// called: the stub headers beside this file are what NCCL's own headers need. Each WARN of NCCL's fails.
#include "core.h"
#include "net.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>
#include <vector>

extern ncclNet_t ncclNetIb;
int ncclDebugLevel = NCCL_LOG_INFO;
thread_local int ncclDebugNoWarn = 0;
static int warnings;

void ncclSetThreadName(pthread_t, const char *, ...) {}

void ncclDebugLog(
	ncclDebugLogLevel level, unsigned long, const char *where, int line, const char *form, ...)
{
	va_list args;
	bool warn = level == NCCL_LOG_WARN && !ncclDebugNoWarn;
	warnings += warn;
	va_start(args, form);
	fprintf(stderr, "NCCL %s %s:%d ", warn ? "WARN" : "INFO", where, line);
	vfprintf(stderr, form, args);
	fprintf(stderr, "\n");
	va_end(args);
}

static void ok(ncclResult_t r, const char *what)
{
	if (r != ncclSuccess) {
		fprintf(stderr, "%s: %d\n", what, r);
		exit(1);
	}
}
#define OK(call) ok(call, #call)

static unsigned char byte_of(size_t i, int seed)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull ^ uint64_t(seed) * 0xbf58476d1ce4e5b9ull;
	return (unsigned char)((x ^ x >> 31) * 0x94d049bb133111ebull >> 40);
}

static void await(void *request)
{
	int done = 0, sizes[8];
	for (int i = 0; !done && i < 60000000; i++)
		OK(ncclNetIb.test(request, &done, sizes));
	if (!done) {
		fprintf(stderr, "a request is not done\n");
		exit(1);
	}
}

static void one_device(int rank, const std::string &folder, int dev)
{
	char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
	std::string path = folder + "/handle" + std::to_string(dev), fresh = path + ".new";
	void *listening = nullptr, *comm = nullptr, *mr;
	ncclNetDeviceHandle_t *offload = nullptr;
	std::vector<unsigned char> memory(8 << 20);
	if (rank == 0) {
		OK(ncclNetIb.listen(dev, handle, &listening));
		FILE *f = fopen(fresh.c_str(), "w");
		fwrite(handle, sizeof(handle), 1, f);
		fclose(f);
		rename(fresh.c_str(), path.c_str());
		while (!comm)
			OK(ncclNetIb.accept(listening, &comm, &offload));
	} else {
		FILE *f;
		while (!(f = fopen(path.c_str(), "r")))
			usleep(1000);
		if (fread(handle, sizeof(handle), 1, f) != 1)
			exit(1);
		fclose(f);
		while (!comm)
			OK(ncclNetIb.connect(dev, handle, &comm, &offload));
	}
	OK(ncclNetIb.regMr(comm, memory.data(), memory.size(), NCCL_PTR_HOST, &mr));
	size_t wrong = 0, total = 0;
	for (int size : {1, 1000, 4096, 65537, 1 << 20, 8 << 20}) {
		for (int round = 0; round < 8; round++) {
			void *request = nullptr, *data = memory.data();
			int seed = size * 31 + round, tag = round;
			if (rank) {
				for (int i = 0; i < size; i++)
					memory[i] = byte_of(i, seed);
				while (!request)
					OK(ncclNetIb.isend(comm, data, size, tag, mr, &request));
				await(request);
			} else {
				while (!request)
					OK(ncclNetIb.irecv(
						comm, 1, &data, &size, &tag, &mr, &request));
				await(request);
				for (int i = 0; i < size; i++)
					wrong += memory[i] != byte_of(i, seed);
			}
			total += size;
		}
	}
	OK(ncclNetIb.deregMr(comm, mr));
	OK(rank ? ncclNetIb.closeSend(comm) : ncclNetIb.closeRecv(comm));
	if (listening)
		OK(ncclNetIb.closeListen(listening));
	printf("device %d: %zu bytes, %zu wrong\n", dev, total, wrong);
	if (wrong)
		exit(1);
}

int main(int argc, char **argv)
{
	int devices = 0;
	if (argc != 3)
		return 2;
	OK(ncclNetIb.init(ncclDebugLog));
	OK(ncclNetIb.devices(&devices));
	for (int dev = 0; dev < devices; dev++) {
		ncclNetProperties_t p;
		OK(ncclNetIb.getProperties(dev, &p));
		printf("device %d: %s, %s, speed %d\n", dev, p.name,
			p.pciPath ? p.pciPath : "no path", p.speed);
	}
	fflush(stdout);
	for (int dev = 0; dev < devices; dev++)
		one_device(atoi(argv[1]), argv[2], dev);
	printf("%d devices, %d WARN\n", devices, warnings);
	return warnings || !devices;
}
