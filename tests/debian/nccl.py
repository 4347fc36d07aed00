#!/usr/bin/python3
"""nccl.py: NCCL's own IB transport (its net_ib, with nccl_ib.cc of this folder before it and stubcuda for CUDA), host memory: between two hosts with two interfaces each and no variable, on every device, 76 MB each compared, and not one WARN.

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


def body(a, b):
    folder = f"{a.folder}/ranks"
    os.mkdir(folder)
    both = [host.start([program(), rank, folder]) for rank, host in enumerate((a, b))]
    for process in both:
        rc, text = process.wait(60), process.text()
        place.check(not rc and ", 0 WARN" in text and "WARN " not in text.split("devices,")[0], f"ended with {rc}\n{text}")
        devices = int(text.split(" devices,")[0].split()[-1])
        place.check(devices == 2, f"{devices} devices")
        place.check("no path" not in text, f"a device has no path\n{text}")
    place.compared(f"{devices} devices, 76 MB on each, every byte, no WARN")


place.main(body, interfaces=2)
