#!/usr/bin/env python3
"""One rank of two, with torch.distributed: what two_ranks.c does, the same arguments and lines. For script/nccl-two-ranks.

Usage: two_ranks.py --probe | RANK ID_FILE ROUNDS BYTES...
"""
import datetime
import sys
import time

WARM_UP = 2
SKIPPED = 77


def probe():
    try:
        import torch
        import torch.distributed as dist
    except ImportError as e:
        print(f"PyTorch: {e}")
        sys.exit(SKIPPED)
    if not torch.cuda.is_available() or not dist.is_available() or not dist.is_nccl_available():
        print(f"PyTorch {torch.__version__}: " + ("it has no NCCL" if torch.cuda.is_available() else "it sees no GPU"))
        sys.exit(SKIPPED)
    print(f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}, PyTorch {torch.__version__}, {torch.cuda.get_device_name(0)}")
    return torch, dist


def main():
    torch, dist = probe()
    if sys.argv[1:] == ["--probe"]:
        return
    rank, id_file, rounds, sizes = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), [int(a) for a in sys.argv[4:]]
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method=f"file://{id_file}", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=90))

    def element(of_rank, number, count):
        """No two elements, ranks or rounds alike; 32 bits that wrap."""
        x = torch.arange(count, dtype=torch.int64, device="cuda") * 2654435761 + of_rank * 0x9E3779B9 + number * 0x85EBCA6B
        return (x ^ (x >> 13)).to(torch.int32)

    def all_reduce(data, number):
        dist.all_reduce(data)
        return data

    def send_recv(data, number):
        got = torch.empty_like(data)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, data, 1 - rank), dist.P2POp(dist.irecv, got, 1 - rank)]):
            work.wait()
        return got

    def broadcast(data, number):
        dist.broadcast(data, number % 2)
        return data

    expected = {all_reduce: lambda n, count: element(0, n, count) + element(1, n, count), send_recv: lambda n, count: element(1 - rank, n, count),
                broadcast: lambda n, count: element(n % 2, n, count)}
    mark = torch.zeros(1, dtype=torch.int32, device="cuda")

    def meet():
        """Until both ranks are here, and have what was sent to them: what a rank sends is in the kernel's buffers long before."""
        dist.all_reduce(mark)
        torch.cuda.synchronize()

    number = 0
    for size in sizes:
        count = size // 4
        for run in (all_reduce, send_recv, broadcast):
            wrong = 0
            for _ in range(WARM_UP):
                number += 1
                wrong += int((run(element(rank, number, count), number) != expected[run](number, count)).sum().item())
            data = element(rank, number, count)
            meet()
            began = time.monotonic()
            for _ in range(rounds):
                run(data, number)
            meet()
            seconds = (time.monotonic() - began) / rounds
            print(f"RESULT {run.__name__} {size} {seconds:.9f} {wrong}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
