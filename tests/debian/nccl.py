#!/usr/bin/python3
"""nccl.py: NCCL's own IB transport (its net_ib, with nccl_ib.cc of this folder before it and stubcuda for CUDA), host memory: on every device, 76 MB each compared, and not one WARN.

NCCL's source is not ours to keep: $ROPEWAY_NCCL_IB is the program, built by who has it; without it nothing is run, and that is said.
"""
import os
import sys

import place


def program():
    path = os.environ.get("ROPEWAY_NCCL_IB", "")
    if not os.access(path, os.X_OK):
        print(f"SKIPPED: ROPEWAY_NCCL_IB ({path or 'not set'}) names no program of nccl_ib.cc and NCCL's transport")
        sys.exit(77)
    return path


def ranks(a, name, env):
    """The exit statuses and texts of both ranks, on one host."""
    folder = f"{a.folder}/{name}"
    os.mkdir(folder)
    both = [a.start([program(), rank, folder], env=env) for rank in (0, 1)]
    return [(process.wait(60), process.text()) for process in both]


def body(a, b):
    for rc, text in ranks(a, "all", {}):
        place.check(not rc and ", 0 WARN" in text and "WARN " not in text.split("devices,")[0], f"ended with {rc}\n{text}")
        devices = int(text.split(" devices,")[0].split()[-1])
        place.check(devices >= 2, f"{devices} devices")
        place.check("no path" not in text, f"a device has no path\n{text}")
    place.compared(f"{devices} devices, 76 MB on each, every byte, no WARN")


place.main(body)
