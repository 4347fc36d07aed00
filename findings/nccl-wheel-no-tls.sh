#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# nvidia-nccl-cu12 2.32.3 of PyPI (x86-64 wheel), 29 November 2026.
#
# Its header and its library have ncclSetEncryption, for TLS on NCCL's own TCP connections, and the library has no
# TLS: the call takes a pre-shared key and says success, and then each connection fails. No GPU is needed to see it:
# ncclGetUniqueId listens, and NCCL's log has what the listener says of the first one that connects:
#
#   ncclSetEncryption with a key of 32 bytes: 0
#   ... NCCL WARN NCCL was built without TLS support but a pre-shared key was configured
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m pip download -q --no-deps --dest "$dir" nvidia-nccl-cu12==2.32.3
python3 -m zipfile -e "$dir"/*.whl "$dir"
cat >"$dir/ask.py" <<'EOF'
import ctypes, socket, struct, sys, time

class Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("mode", ctypes.c_int), ("psk", ctypes.c_char_p)]

nccl = ctypes.CDLL(sys.argv[1])
key = Config(ctypes.sizeof(Config), 0xCAFEBEEF, 23203, 1, b"0123456789abcdef0123456789abcdef")
print("ncclSetEncryption with a key of 32 bytes:", nccl.ncclSetEncryption(ctypes.byref(key)))
unique = ctypes.create_string_buffer(128)
print("ncclGetUniqueId:", nccl.ncclGetUniqueId(unique))
magic, family, port = struct.unpack_from("=QH", unique.raw)[0:2] + struct.unpack_from("!H", unique.raw, 10)
assert family == socket.AF_INET, family
with socket.create_connection((socket.inet_ntoa(unique.raw[12:16]), port), 5) as s:
    s.sendall(struct.pack("=QI", magic, 1))
    time.sleep(2)
EOF
NCCL_DEBUG=WARN NCCL_SOCKET_FAMILY=AF_INET python3 "$dir/ask.py" "$dir/nvidia/nccl/lib/libnccl.so.2" | tee "$dir/said"
grep -q "with a key of 32 bytes: 0" "$dir/said" && grep -q "built without TLS support" "$dir/said"
