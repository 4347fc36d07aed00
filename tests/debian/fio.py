#!/usr/bin/python3
"""fio, ioengine rdma, server and client, each verb. fio itself verifies nothing here, so both sides keep their buffers in files: what arrived is compared block by block."""
import pathlib

import place

DEPTH = 8
# SEND takes receives, and fio's server grants 0 RNR retries: it posts as many as come (on any device).
CASES = [("write", 65536, 1024, DEPTH), ("read", 65536, 1024, DEPTH), ("send", 4096, 64, 128)]


def blocks(path, size):
    data = pathlib.Path(path).read_bytes()
    return [data[at:at + size] for at in range(0, len(data) - size + 1, size)]


def body(a, b):
    place.needs("fio")
    for number, (verb, size, count, server_depth) in enumerate(CASES):
        port = 8765 + number
        theirs, ours = f"{a.folder}/mem.{verb}", f"{b.folder}/mem.{verb}"
        before = place.pattern(size * (server_depth + 1), verb)  # a block more: fio aligns its buffers to pages
        pathlib.Path(theirs).write_bytes(before)
        pathlib.Path(ours).write_bytes(bytes(size * (DEPTH + 1)))
        common = f"--bs={size} --size={size * count} --port={port} --scramble_buffers=0"
        server = a.start(f"fio --name=server --ioengine=rdma --rw=read --iodepth={server_depth} --mem=mmapshared:{theirs} {common}")
        a.wait_rdma(port, server)
        b.run(f"fio --name=client --ioengine=rdma --hostname={a.ip} --verb={verb} --rw=write --iodepth={DEPTH} --mem=mmapshared:{ours} {common}", limit_s=60)
        server.done(30)
        source, target = (theirs, ours) if verb == "read" else (ours, theirs)
        sent = set(blocks(source, size))
        changed = [block for block in blocks(target, size) if block not in set(blocks_of(before, size)) or verb == "read"]
        arrived = [block for block in changed if block in sent and any(block)]
        wrong = [block for block in changed if block not in sent and any(block)]
        expected = min(DEPTH if verb != "send" else count, count)
        place.check(not wrong, f"{verb}: {len(wrong)} blocks of {len(changed)} are not what was sent")
        place.check(len(arrived) >= expected, f"{verb}: {len(arrived)} buffers arrived, {expected} were to be filled")
        place.compared(f"{verb}: {count} blocks of {size}; {len(arrived)} buffers at the end are what was sent ({len(set(arrived))} different)")


def blocks_of(data, size):
    return [data[at:at + size] for at in range(0, len(data) - size + 1, size)]


place.main(body)
