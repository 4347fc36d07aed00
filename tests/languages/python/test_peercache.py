"""PeerCache's transport by rdma, two of one process: each byte of what is read, and what happens to a READ with a wrong key."""
import ctypes
import hashlib
import os

from peercache.config import PeerCacheConfig
from peercache.transport import ReadOp, create_transport

BYTES, PAGE = 8 << 20, 65536


def transport():
    # Its GID index is 3 where nothing is said, which is mlx5's first one of RoCE v2 over IPv4.
    return create_transport(PeerCacheConfig(discovery_addr="127.0.0.1:0", protocol="rdma", device_name=os.environ["DEVICE"], gid_index=1, local_hostname="127.0.0.1",
                                            rdma_bind_host="127.0.0.1", rdma_port=0, metrics_enabled=False, disk_enabled=False))


def read(key_xor):
    owner, reader = transport(), transport()
    source, target = ctypes.create_string_buffer(hashlib.shake_128(b"source").digest(BYTES), BYTES), ctypes.create_string_buffer(BYTES)
    region = owner.register_mr(ctypes.addressof(source), BYTES)
    reader.register_mr(ctypes.addressof(target), BYTES)
    pages = [ReadOp(owner.local_endpoint(), ctypes.addressof(target) + at, ctypes.addressof(source) + at, region.rkey ^ key_xor, PAGE) for at in range(0, BYTES, PAGE)]
    done = reader.batch_read(pages)
    reader.close()
    owner.close()
    return done, target.raw == source.raw, target.raw == bytes(BYTES)


def test_pages_are_read():
    done, same, _ = read(0)
    assert done == [True] * (BYTES // PAGE) and same


def test_a_wrong_key_reads_nothing():
    done, _, untouched = read(0x100)
    assert not any(done) and untouched
