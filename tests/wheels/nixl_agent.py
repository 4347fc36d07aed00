"""nixl_agent.py target|initiator FOLDER: two NIXL agents, CPU memory, UCX: five WRITEs with notifications and READs of 8 MiB, each byte compared on the side where it arrives. Files in FOLDER
carry the agents' metadata and turns."""
import os
import pickle
import sys
import time

import numpy as np
from nixl_cu12._api import nixl_agent, nixl_agent_config

BYTES, ROUNDS = 8 << 20, 5
role, folder = sys.argv[1:3]
end = time.monotonic() + 50


def pattern(seed):
    return np.random.default_rng(seed).integers(0, 256, BYTES, dtype=np.uint8)


def until(there, what):
    while not there():
        if time.monotonic() > end:
            print(f"{role}: no {what} in time", flush=True)
            os._exit(1)
        time.sleep(0.005)


def wait_file(name):
    until(lambda: os.path.exists(f"{folder}/{name}"), name)


def put_file(name, data=b""):
    with open(f"{folder}/{name}.new", "wb") as f:
        f.write(data)
    os.rename(f"{folder}/{name}.new", f"{folder}/{name}")


def notified(name):
    return any(name in (n if isinstance(n, bytes) else n.encode()) for notes in agent.get_new_notifs().values() for n in notes)


agent = nixl_agent(role, nixl_agent_config(True, True, 19001 if role == "target" else 19002, backends=["UCX"]))
memory = np.zeros(BYTES, dtype=np.uint8)
agent.register_memory(agent.get_reg_descs([(memory.ctypes.data, BYTES, 0, "memory")], "DRAM"))
whole = agent.get_xfer_descs([(memory.ctypes.data, BYTES, 0)], "DRAM")
right = True
if role == "target":
    put_file("metadata", pickle.dumps((agent.get_agent_metadata(), agent.get_serialized_descs(whole))))
    for number in range(ROUNDS):
        until(lambda number=number: notified(b"written%d" % number), "notification")
        right &= bool((memory == pattern(number)).all())
        memory[:] = pattern(100 + number)
        put_file(f"turn{number}")
    wait_file("done")
else:
    wait_file("metadata")
    with open(f"{folder}/metadata", "rb") as f:
        metadata, described = pickle.load(f)  # of the other process of this test
    peer = agent.add_remote_agent(metadata)
    peer = peer.decode() if isinstance(peer, bytes) else peer
    theirs = agent.deserialize_descs(described)

    def move(operation, note=b""):
        handle = agent.initialize_xfer(operation, whole, theirs, peer, note)
        state = [agent.transfer(handle)]

        def over():
            state[0] = agent.check_xfer_state(handle) if state[0] == "PROC" else state[0]
            return state[0] != "PROC"

        until(over, f"end of {operation}")
        agent.release_xfer_handle(handle)
        if state[0] != "DONE":
            print(f"{operation}: {state[0]}", flush=True)
            os._exit(1)

    for number in range(ROUNDS):
        memory[:] = pattern(number)
        move("WRITE", b"written%d" % number)
        wait_file(f"turn{number}")
        memory[:] = 0
        move("READ")
        right &= bool((memory == pattern(100 + number)).all())
    put_file("done")
print(f"{role}: {'all as sent' if right else 'bytes differ'}", flush=True)
os._exit(not right)  # NIXL's own end is not what is tried here
