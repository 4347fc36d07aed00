"""mooncake_agent.py target|initiator FOLDER ADDRESS: two transfer engines of Mooncake over rdma, no device named: writes and reads of 8 MiB, each byte compared on the side where it arrives."""
import os
import sys
import time

import numpy as np
from mooncake.engine import TransferEngine

BYTES, ROUNDS = 8 << 20, 5
role, folder, address = sys.argv[1:4]
end = time.monotonic() + 50


def pattern(seed):
    return np.random.default_rng(seed).integers(0, 256, BYTES, dtype=np.uint8)


def wait_file(name):
    while not os.path.exists(f"{folder}/{name}"):
        if time.monotonic() > end:
            print(f"{role}: no {name} in time", flush=True)
            os._exit(1)
        time.sleep(0.005)


def put_file(name, text=""):
    with open(f"{folder}/{name}.new", "w") as f:
        f.write(text)
    os.rename(f"{folder}/{name}.new", f"{folder}/{name}")


engine = TransferEngine()
if engine.initialize(address, "P2PHANDSHAKE", "rdma", ""):
    print(f"{role}: no engine", flush=True)
    os._exit(1)
memory = np.zeros(BYTES, dtype=np.uint8)
engine.register_memory(memory.ctypes.data, BYTES)
right = True
if role == "target":
    put_file("where", f"{address}:{engine.get_rpc_port()} {memory.ctypes.data}")
    for number in range(ROUNDS):
        wait_file(f"written{number}")
        right &= bool((memory == pattern(number)).all())
        memory[:] = pattern(100 + number)
        put_file(f"turn{number}")
    wait_file("done")
else:
    wait_file("where")
    with open(f"{folder}/where") as f:
        peer, at = f.read().split()
    for size in (8, 4096, 65536):
        right &= engine.transfer_sync_write(peer, memory.ctypes.data, int(at), size) == 0
    for number in range(ROUNDS):
        memory[:] = pattern(number)
        right &= engine.transfer_sync_write(peer, memory.ctypes.data, int(at), BYTES) == 0
        put_file(f"written{number}")
        wait_file(f"turn{number}")
        memory[:] = 0
        right &= engine.transfer_sync_read(peer, memory.ctypes.data, int(at), BYTES) == 0 and bool((memory == pattern(100 + number)).all())
    put_file("done")
print(f"{role}: {'all as sent' if right else 'bytes differ, or a transfer failed'}", flush=True)
os._exit(not right)
