"""DLSlime's endpoints, two of one process with two QPs each: each byte of what they move."""
import ctypes
import hashlib
import os

from dlslime import RDMAEndpoint, available_nic

BYTES = 4 << 20


def pattern(seed):
    return hashlib.shake_128(seed).digest(BYTES)


class Side:
    def __init__(self, seed):
        self.memory = ctypes.create_string_buffer(pattern(seed), BYTES)
        self.endpoint = RDMAEndpoint(os.environ["DEVICE"], 1, "RoCE", 2)
        self.key = self.endpoint.register_memory_region("memory", ctypes.addressof(self.memory), 0, BYTES)


def pair():
    a, b = Side(b"a"), Side(b"b")
    of_a, of_b = a.endpoint.endpoint_info(), b.endpoint.endpoint_info()
    a.endpoint.connect(of_b)
    b.endpoint.connect(of_a)
    return a, b, a.endpoint.register_remote_memory_region("memory", of_b["mr_info"]["memory"])


def test_the_device_is_listed():
    assert os.environ["DEVICE"] in available_nic()


def test_write_and_read():
    a, b, theirs = pair()
    a.endpoint.write([(a.key, theirs, 0, 0, BYTES)]).wait()
    assert b.memory.raw == pattern(b"a")
    b.memory[:] = pattern(b"c")
    a.endpoint.read([(a.key, theirs, 0, 0, BYTES)]).wait()
    assert a.memory.raw == pattern(b"c")


def test_send():
    a, b, _ = pair()
    receive = b.endpoint.recv((ctypes.addressof(b.memory), 0, BYTES))
    a.endpoint.send((ctypes.addressof(a.memory), 0, BYTES)).wait()
    receive.wait()
    assert b.memory.raw == pattern(b"a")
