#!/usr/bin/python3
"""gloo's ibverbs transport: ring and halving-doubling allreduce, broadcast, of up to 2 MB between two ranks on two hosts and four on both; every value compared."""
import os

import place


def body(a, b):
    place.needs("g++", "/usr/include/gloo/transport/ibverbs/device.h")
    program = place.compiled("gloo.cc", a.folder, "-std=c++14", "-lgloo", "-libverbs", "-lpthread", compiler="g++")
    for size in (2, 4):
        folder = f"{a.folder}/store{size}"
        os.mkdir(folder)
        ranks = [(a, b)[rank % 2].start([program, folder, rank, size, place.DEVICE, 1]) for rank in range(size)]
        try:
            for rank in ranks:
                rank.says(r": \d+ values wrong", 60)
        except place.Failed as e:  # where one ends, the others end, too: who was the first?
            raise place.Failed(f"{e}\nall of them:\n" + "\n".join(f"rank {number}:\n{rank.tail(6)}" for number, rank in enumerate(ranks))) from None
        for rank in ranks:
            place.check(": 0 values wrong" in rank.text(), rank.text())
            rank.kill()
        place.compared(f"{size} ranks: 15 rounds of each collective, every value")


place.main(body)
