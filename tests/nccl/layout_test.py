#!/usr/bin/python3
"""The tables of src/ncclnet/abi/rma.h and the structs beside them, member by member, against the debug information of NCCL's published library. gdb reads both.

Usage: layout_test.py ROOT [LIBNCCL.so.2]...    without a library: those of the wheels that `pip download nvidia-nccl-cu13` left in $NCCL_WHEELS, unpacked; none: exit status 77, and a line.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# Ours, NCCL's. A library that does not have one is older or newer.
STRUCTS = {
    "nccl_gin_v11": "ncclGin_v11_t", "nccl_gin_v12": "ncclGin_v12_t", "nccl_gin_v13": "ncclGin_v13_t", "nccl_rma_v14": "ncclRma_v14_t", "nccl_rma_v15": "ncclRma_v15_t",
    "nccl_rma_v16": "ncclRma_v16_t", "nccl_gin_config_v13": "ncclGinConfig_v13_t", "nccl_rma_config": "ncclRmaConfig_v14_t", "nccl_rma_properties": "ncclRmaProperties_v16_t",
    "nccl_net_properties_v12": "ncclNetProperties_v12_t", "nccl_net_properties_v11": "ncclNetProperties_v11_t", "nccl_net_device_handle": "ncclNetDeviceHandle_v11_t", "nccl_net_v12": "ncclNet_v12_t",
}
WIDTH = {"int": "i4", "int32_t": "i4", "ncclResult_t": "i4", "unsigned int": "u4", "uint32_t": "u4", "uint64_t": "u8", "size_t": "u8", "unsigned long": "u8", "bool": "b1", "_Bool": "b1", "int16_t": "i2",
    "int64_t": "i8", "float": "f4", "ncclDebugLogger_t": "p", "nccl_logger": "p", "ncclProfilerCallback_t": "p", "nccl_profiler": "p", "enum ncclNetDeviceType": "i4", "ncclNetDeviceType": "i4", "void": "v"}


def kind(c_type):
    """How it is passed: a pointer, or an integer of so many bytes."""
    c_type = re.sub(r"\b(const|volatile|struct)\b", "", c_type).strip()
    if "*" in c_type or c_type.endswith("]"):
        return "p"
    return WIDTH.get(c_type.strip(), c_type)


def member(declaration):
    """(name, what a call takes or a field is): names of functions are equal on both sides, names of fields need not be."""
    function = re.fullmatch(r"(.*?)\(\*(\w+)\)\((.*)\)", declaration)
    if function:
        return function[2], [kind(function[1])] + [kind(p) for p in function[3].split(",") if p.strip()]
    if re.match(r"struct \w+$|ncclNetVDeviceProps_v\d+_t \w+$", declaration):
        return None, "struct"
    return None, kind(re.sub(r"\w+(\[\d+\])?$", "", declaration))


def layout(gdb_says):
    members, size = [], None
    for line in gdb_says.splitlines():
        total = re.search(r"total size \(bytes\): +(\d+)", line)
        if total:
            size = int(total[1])
        field = re.match(r"/\* +(\d+)(?:: *\d+)? +\| +(\d+) \*/ {4}(\S.*?)(?:;| \{)$", line)
        if field:
            members.append((int(field[1]), int(field[2]), *member(field[3])))
    return members, size


def ask(file, names):
    """{name: layout} of those that the file has."""
    command = ["gdb", "-nx", "-batch", "-ex", "set pagination off", "-ex", "set width 0"]
    for name in names:
        command += ["-ex", f"echo ==={name}\\n", "-ex", f"ptype /o {name}"]
    said = subprocess.run([*command, file], capture_output=True, text=True, check=False, timeout=240).stdout  # status 1: the last one is not there
    parts = dict(part.split("\n", 1) for part in said.split("===")[1:])
    return {name: layout(text) for name, text in parts.items() if "type = " in text}


def ours(root):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "ours.c"
        source.write_text('#include "ncclnet/abi/rma.h"\n' + "".join(f"struct {name} of_{name};\n" for name in STRUCTS))
        subprocess.run(["cc", "-std=gnu11", "-g", "-c", f"-I{root}/src", source.name, "-o", "ours.o"], cwd=folder, check=True)
        return ask(f"{folder}/ours.o", [f"struct {name}" for name in STRUCTS])


def compare(own, theirs, said):
    wrong = []
    if own[1] != theirs[1]:
        wrong.append(f"{said}: {own[1]} bytes here, {theirs[1]} there")
    for a, b in zip(own[0], theirs[0]):
        same = a[:2] == b[:2] and a[3] == b[3] and (a[2] == b[2] or {a[2], b[2]} in ({"progress", "ginProgress"}, {"progress", "rmaProgress"}))
        if not same:
            wrong.append(f"{said}: here {a}, there {b}")
    if len(own[0]) != len(theirs[0]):
        wrong.append(f"{said}: {len(own[0])} members here, {len(theirs[0])} there")
    return wrong


def main():
    root, files = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    if not files and os.environ.get("NCCL_WHEELS"):
        files = sorted(str(p) for p in pathlib.Path(os.environ["NCCL_WHEELS"]).rglob("libnccl.so.2"))
    if not files:
        print("SKIPPED: layouts of NCCL's tables: needs libnccl.so.2 of its wheels; unpack nvidia-nccl-cu13 into a folder, and name that in NCCL_WHEELS")
        return 77
    own, wrong, compared = ours(root), [], 0
    for file in files:
        there = ask(file, STRUCTS.values())
        here = [name for name, theirs in STRUCTS.items() if theirs in there]
        for name in here:
            wrong += compare(own[f"struct {name}"], there[STRUCTS[name]], f"{file}: {STRUCTS[name]}")
        compared += len(here)
        print(f"{file}: {len(here)} of {len(STRUCTS)} structs: {', '.join(STRUCTS[n] for n in here)}")
    print("\n".join(wrong) or f"{compared} layouts are equal")
    return 1 if wrong or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
