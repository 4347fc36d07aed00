// SPDX-License-Identifier: BSD-3-Clause
// gloo FOLDER RANK SIZE DEVICE INDEX: allreduce and broadcast over gloo's ibverbs transport, each value
// compared with what it has to be.
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <unistd.h>
#include <vector>

static int64_t value(int rank, size_t i, int round)
{
	return int64_t(i) * 2654435761 + rank * 977 + round;
}

int main(int argc, char **argv)
{
	if (argc != 6)
		return 2;
	int rank = atoi(argv[2]), size = atoi(argv[3]), wrong = 0;
	gloo::rendezvous::FileStore store(argv[1]);
	auto device = gloo::transport::ibverbs::CreateDevice({argv[4], 1, atoi(argv[5])});
	auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
	context->connectFullMesh(store, device);
	for (size_t n : {1, 1000, 250001}) {
		// Never destroyed: gloo ends the process where a buffer goes before the completion of
		// its last send has been seen, for which its algorithms do not wait.
		auto &ring = *new std::vector<int64_t>(n), &halving = *new std::vector<int64_t>(n),
		     &from_root = *new std::vector<int64_t>(n);
		std::vector<int64_t *> ring_ptr{ring.data()}, halving_ptr{halving.data()},
			root_ptr{from_root.data()};
		auto &a = *new gloo::AllreduceRing<int64_t>(context, ring_ptr, int(n));
		auto &h = *new gloo::AllreduceHalvingDoubling<int64_t>(context, halving_ptr, int(n));
		auto &b = *new gloo::BroadcastOneToAll<int64_t>(context, root_ptr, int(n), 0);
		for (int round = 0; round < 5; round++) {
			for (size_t i = 0; i < n; i++)
				ring[i] = halving[i] = from_root[i] = value(rank, i, round);
			a.run();
			h.run();
			b.run();
			for (size_t i = 0; i < n; i++) {
				int64_t sum = 0;
				for (int r = 0; r < size; r++)
					sum += value(r, i, round);
				wrong += ring[i] != sum || halving[i] != sum ||
					 from_root[i] != value(0, i, round);
			}
		}
	}
	printf("rank %d: %d values wrong\n", rank, wrong);
	fflush(stdout);
	// gloo always has receives posted, and ends the process when one is flushed, as happens when a
	// peer ends. So nobody leaves: gloo.py ends the ranks when all have said their line.
	pause();
	return 0;
}
