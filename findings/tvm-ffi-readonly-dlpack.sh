#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# apache-tvm-ffi 0.1.15.post2 (NumPy 2.4.6), 29 November 2026.
#
# DLPack 1.0 can say that a tensor's memory is read-only. tvm_ffi.from_dlpack takes such a capsule, and its tensor
# offers the same memory to the next library without the flag: an array of it is writable, and a store through it
# changes the array that was read-only. There is no error. Seen:
#
#   writable before False, after True; the read-only array is now [7 1 2]
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip -q install apache-tvm-ffi==0.1.15.post2 numpy==2.4.6
cat >probe.py <<'END'
import numpy as np
import tvm_ffi

array = np.arange(3, dtype="u1")
array.flags.writeable = False
tensor = tvm_ffi.from_dlpack(array.__dlpack__(max_version=(1, 0)))
again = np.from_dlpack(tensor)
before, after = array.flags.writeable, again.flags.writeable
again[0] = 7
print(f"writable before {before}, after {after}; the read-only array is now {array}")
END
said=$(timeout 60 venv/bin/python probe.py)
echo "$said"
[ "$said" = "writable before False, after True; the read-only array is now [7 1 2]" ]
