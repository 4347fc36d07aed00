#!/usr/bin/python3
"""nccl.py [--today]: NCCL's own IB transport (its net_ib.cc, compiled here against stubs of CUDA), host memory: on every device, 76 MB each compared, and not one WARN.

The source of NCCL is not ours to keep: $ROPEWAY_NCCL names a folder with it, or it is fetched. --today: what it shows while /sys/class/infiniband/X/device has no real path: one device
works with one WARN, two end it (NCCL compares two NULLs). It fails once that is over; then the row takes the script without --today.
"""
import os
import pathlib
import subprocess
import sys

import place

VERSION = "2.22.3-1"
FILES = "transport/net_ib misc/ibvwrap misc/ibvsymbols misc/socket misc/utils misc/param".split()
NO_PATH = "Could not find real path"


def source(folder):
    named = os.environ.get("ROPEWAY_NCCL")
    if named:
        subprocess.run(["cp", "-r", f"{named}/src", f"{folder}/src"], check=True)
        return
    url = f"https://github.com/NVIDIA/nccl/archive/refs/tags/v{VERSION}.tar.gz"
    if subprocess.run(f"curl -fsSL --max-time 60 {url} | tar xz -C {folder} --strip-components=1", shell=True, capture_output=True).returncode:
        print(f"SKIPPED: {url} cannot be fetched, and ROPEWAY_NCCL names no folder with NCCL's source")
        sys.exit(77)


def built(folder):
    """nccl_ib, linked with NCCL's transport."""
    source(folder)
    text = pathlib.Path(f"{folder}/src/nccl.h.in").read_text()
    for name, value in (("Major", "2"), ("Minor", "22"), ("Patch", "3"), ("Suffix", ""), ("Version", "22203")):
        text = text.replace("${nccl:%s}" % name, value)
    pathlib.Path(f"{folder}/src/include/nccl.h").write_text(text)
    out = f"{folder}/nccl_ib"
    made = subprocess.run(["g++", "-std=c++14", "-O1", "-w", "-fpermissive", "-I", str(place.HERE / "stubcuda"), "-I", f"{folder}/src/include", "-o", out, str(place.HERE / "nccl_ib.cc"),
                           *[f"{folder}/src/{name}.cc" for name in FILES], "-ldl", "-lpthread"], capture_output=True, text=True)
    if made.returncode:
        raise place.Failed(f"NCCL's transport cannot be built: {made.stderr[:1500]}")
    return out


def ranks(a, program, name, env):
    """The exit statuses and texts of both ranks, on one host."""
    folder = f"{a.folder}/{name}"
    os.mkdir(folder)
    both = [a.start([program, rank, folder], env=env) for rank in (0, 1)]
    return [(process.wait(60), process.text()) for process in both]


def body(a, b):
    place.needs("g++")
    folder = f"{a.folder}/nccl"
    os.mkdir(folder)
    program = built(folder)
    if "--today" in sys.argv:
        for _, text in ranks(a, program, "one", {"NCCL_IB_HCA": place.DEVICE}):
            place.check("1 devices, 1 WARN" in text and NO_PATH in text and " 0 wrong" in text, f"with one device it does not say what it did:\n{text}")
        for rc, text in ranks(a, program, "all", {}):
            place.check(rc == -11 and text.count(NO_PATH) == 2, f"with all devices it ended with {rc} and not by SIGSEGV: the row in rows.py is to be written anew\n{text}")
        place.compared("one device: 76 MB, every byte, one WARN (no real path of device); with two devices NCCL ends by SIGSEGV")
        return
    for rc, text in ranks(a, program, "all", {}):
        place.check(not rc and ", 0 WARN" in text and "WARN " not in text.split("devices,")[0], f"ended with {rc}\n{text}")
        devices = int(text.split(" devices,")[0].split()[-1])
        place.check(devices >= 2, f"{devices} devices")
        place.check("no path" not in text, f"a device has no path\n{text}")
    place.compared(f"{devices} devices, 76 MB on each, every byte, no WARN")


place.main(body)
