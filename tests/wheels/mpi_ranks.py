"""mpi_ranks.py [--windows]: messages of many sizes round a ring, collectives; puts and gets; each byte compared. Buffers live until the call that ends their use (MPI wants that; mpi4py keeps none)."""
import sys

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size
nxt, before = (rank + 1) % ranks, (rank - 1) % ranks
wrong = []


def pattern(seed, size):
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def compare(got, want, what):
    if not (got == want).all():
        wrong.append(what)


for number, size in enumerate([0, 1, 8, 64, 1000, 4096, 8192, 65536, 1 << 20, 4 << 20]):
    out, got = pattern(rank * 100 + number, size), np.zeros(size, dtype=np.uint8)
    world.Sendrecv(out, nxt, number, got, before, number)
    compare(got, pattern(before * 100 + number, size), f"message of {size}")
    got = pattern(7 + number, size) if rank == 0 else np.zeros(size, dtype=np.uint8)
    world.Bcast(got, 0)
    compare(got, pattern(7 + number, size), f"broadcast of {size}")
out, got = np.arange(100003, dtype=np.int64) * (rank + 1), np.zeros(100003, dtype=np.int64)
world.Allreduce(out, got)
compare(got, np.arange(100003) * (ranks * (ranks + 1) // 2), "allreduce")
if "--windows" in sys.argv:
    window = MPI.Win.Allocate(1 << 20, 1, comm=world)
    mine = np.frombuffer(window.tomemory(), dtype=np.uint8)
    out, got = pattern(rank, 1 << 20), np.zeros(1 << 20, dtype=np.uint8)
    window.Fence()
    window.Put(out, nxt)
    window.Fence()
    compare(mine, pattern(before, 1 << 20), "put")
    window.Get(got, nxt)
    window.Fence()
    compare(got, out, "get")
    counter = MPI.Win.Allocate(8, 8, comm=world)
    count = np.frombuffer(counter.tomemory(), dtype=np.int64)
    count[:] = 0
    world.Barrier()
    one, old = np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    counter.Lock_all()
    for _ in range(100):
        counter.Fetch_and_op(one, old, 0, 0, MPI.SUM)
        counter.Flush(0)
    counter.Unlock_all()
    world.Barrier()
    if rank == 0:
        compare(count, 100 * ranks, "fetch_and_op")
    counter.Free()
    window.Free()
all_wrong = world.gather(wrong)
if rank == 0:
    print(f"{ranks} ranks: {all_wrong if any(all_wrong) else 'all as sent'}", flush=True)
sys.exit(bool(wrong))
