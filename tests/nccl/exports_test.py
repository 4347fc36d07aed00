#!/usr/bin/python3
"""What libnccl-net-ropeway.so exports: a table for each version of the net, GIN and RMA interfaces, and nothing else; and that it cannot be unloaded. Usage: exports_test.py FILE.so"""
import subprocess
import sys

FILE = sys.argv[1]
expected = {f"ncclNetPlugin_v{v}" for v in range(5, 13)} | {f"ncclGinPlugin_v{v}" for v in range(11, 14)} | {f"ncclRmaPlugin_v{v}" for v in range(13, 17)}
listed = subprocess.run(["nm", "-D", "--defined-only", FILE], check=True, capture_output=True, text=True).stdout
found = {line.split()[-1].split("@")[0] for line in listed.splitlines() if line.strip()}
dynamic = subprocess.run(["readelf", "-dW", FILE], check=True, capture_output=True, text=True).stdout
# A sanitizer's build exports what its runtime wants.
sanitized = any(s in dynamic for s in ("libasan", "libtsan", "libubsan")) or any(s.startswith("__asan") for s in found)
wrong = []
if expected - found or (found - expected and not sanitized):
    wrong.append(f"exported is {sorted(found)}, expected {sorted(expected)}")
if "NODELETE" not in dynamic:
    wrong.append("it is not linked with -z nodelete")
print("\n".join(wrong) or f"{len(found)} symbols")
sys.exit(1 if wrong else 0)
