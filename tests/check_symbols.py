#!/usr/bin/python3
"""What the objects of a build say of the files of src/ (nm), so that a table of functions counts like a call; and those of python/core, which a release build leaves out, and which are compiled here.

Circles: files of one folder that call each other in a circle; who of them is below whom, nobody can say. A line for each folder that has one; wrong where it has more than ALLOWED says, or fewer: then the table
is to be lowered.
Names: what a file gives to others begins with rpw_ (a public call), rpwi_ (between layers), its folder's name, a word that a file of its folder begins with, or one of the folder's WORDS; or the library exports it.

Thread memory: what programs open at run time (dlopen) has none of the kind that the C library must reserve at start (STATIC_TLS); the drop-in, which has some, would then find none left beside it.

Usage: check_symbols.py [BUILD]. Exit status 1: something is wrong.
"""
import collections
import concurrent.futures
import fnmatch
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile

# folder -> files that are in some circle. These numbers only go down; a folder that is not here has none.
ALLOWED = {"cli/explain": 5, "preload": 8, "tran/shm": 5, "ucma": 5}

# folder -> the nouns that its calls are about, where no file has their name.
WORDS = {
    "cli/connection": ["step"],
    "cli/files": ["store"],
    "device": ["dev", "mem", "peer", "port", "service"],
    "msg": ["ep", "gpu", "iov", "pipelines", "proto", "req", "rndv"],
    "nccl": ["plugin"],
    "ncclnet/check": ["case", "conform"],
    "ncclnet/drive": ["link", "side", "stream", "streams"],
    "ncclnet/host": ["ncclnet"],
    "tran": ["emulated"],
    "tran/ncclnet": ["nt", "tran"],
    "tran/shm": ["tran"],
    "tran/tcp": ["tran"],
    "tran/verbs": ["tran"],
    "ucma": ["cm", "endpoint", "event", "events"],
}


def symbols(objects):
    """object -> (what it defines, what it takes from others)"""
    found, current = {}, None
    for line in subprocess.run(["nm", "--format=posix", *objects], capture_output=True, text=True, check=True).stdout.splitlines():
        words = line.split()
        if line.endswith(":"):
            current = found.setdefault(line[:-1], (set(), set()))
        elif len(words) >= 2 and words[1] in "Uw":
            current[1].add(words[0])
        elif len(words) >= 2 and words[1].isupper():
            current[0].add(words[0])
    return found


def circles(graph):
    """The strongly connected components of more than one node (Tarjan)."""
    number, low, stack, found = {}, {}, [], []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in graph[node]:
            if other not in number:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == number[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in graph:
        if node not in number:
            visit(node)
    return found


def file_of(build, name):
    """build/src/tran/libtran.a.p/tcp_tcp_ep.c.o -> ("tran/tcp", "tcp_ep.c"): meson writes a folder below as part of the name."""
    path = pathlib.Path(name).relative_to(build)
    folder, leaf = path.parent.parent.relative_to("src" if path.parts[0] == "src" else "."), path.name.removesuffix(".o")
    if path.parts[0] != "src":  # of a program that is declared in the top folder: build/ropeway.p/src_cli_perf_run.c.o
        folder, leaf = folder / "cli", leaf.removeprefix("src_cli_")
    for below in sorted(p.name for p in (pathlib.Path("src") / folder).iterdir() if p.is_dir()):
        if leaf.startswith(below + "_") and (pathlib.Path("src") / folder / below / leaf[len(below) + 1:]).is_file():
            return str(folder / below), leaf[len(below) + 1:]
    return str(folder), leaf


def python_core():
    """file -> (what it defines, what it takes from others), of python/core"""
    headers = pathlib.Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").is_file():
        print(f"SKIPPED python/core: {headers} has no Python.h (Debian: python3-dev)")
        return {}
    sources = sorted(pathlib.Path("python/core").glob("*.c"))
    with tempfile.TemporaryDirectory() as out, concurrent.futures.ThreadPoolExecutor() as pool:
        def compiled(source):
            subprocess.run(["cc", "-std=gnu11", "-w", "-DPy_LIMITED_API=0x030B0000", "-Iinclude", f"-I{headers}", "-c", source, "-o", f"{out}/{source.name}.o"], check=True)
            return f"{out}/{source.name}.o"
        return {pathlib.Path(name).name.removesuffix(".o"): facts for name, facts in symbols(list(pool.map(compiled, sources))).items()}


def exported(folder):
    """The patterns of the version script, if the folder is a library's."""
    script = pathlib.Path("src") / folder / "exports.map"
    text = re.sub(r"#.*", "", script.read_text()) if script.is_file() else ""
    return [name for part in re.findall(r"global:(.*?)local:", text, re.DOTALL) for name in re.findall(r"[\w*]+", part)]


def strange_names(folder, files):
    words = {"rpw", "rpwi", folder.split("/")[-1], *(leaf.removesuffix(".c").split("_")[0] for leaf in files), *WORDS.get(folder, [])}
    public = exported(folder)
    return [f"{name} ({leaf})" for leaf, (defines, _) in sorted(files.items()) for name in sorted(defines)
            if name.split("_")[0] not in words and not any(fnmatch.fnmatchcase(name, p) for p in public)]


def static_tls(build):
    """Of the libraries that programs open at run time, those with thread memory of the kind that is reserved at start."""
    for name in ("libropeway.so", "libnccl-net-ropeway.so", "libnccl-net-ropeway-trace.so"):
        path = build / name
        if path.exists() and "STATIC_TLS" in subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True).stdout:
            yield name


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build")
    objects = sorted(str(p) for p in [*(build / "src").rglob("*.c.o"), *build.glob("ropeway.p/src_cli_*.c.o"), *build.glob("test_connection.p/src_cli_connection_*.c.o")])
    if not objects:
        print(f"{build}/src has no objects: run script/setup")
        return 1
    folders = collections.defaultdict(dict)
    for name, facts in symbols(objects).items():
        folder, leaf = file_of(build, name)
        defines, takes = folders[folder].setdefault(leaf, (set(), set()))  # one file may be compiled more than once
        defines |= facts[0]
        takes |= facts[1]
    folders["python/core"] = python_core()
    wrong = 0
    for folder, files in sorted(folders.items()):
        home = {s: leaf for leaf, (defines, _) in files.items() for s in defines}
        found = circles({leaf: {home[s] for s in takes if home.get(s, leaf) != leaf} for leaf, (_, takes) in files.items()})
        n, allowed = sum(map(len, found)), ALLOWED.get(folder, 0)
        if n:
            print(f"{folder}: {n} of {len(files)} files in circles: " + "; ".join(" ".join(c) for c in found))
        if n != allowed:
            print(f"    {'more than' if n > allowed else 'fewer than'} the {allowed} of ALLOWED: " + ("take the new one out" if n > allowed else "lower it"))
            wrong += 1
        strange = strange_names(folder, files) if folder != "python/core" else []
        if strange:
            print(f"{folder}: names that tell of no module: " + ", ".join(strange))
            wrong += 1
    for name in static_tls(build):
        print(f"{name} has STATIC_TLS: beside it, the drop-in may find no thread memory (base/lock.h is not for what it is made of)")
        wrong += 1
    print(f"symbols: {len(folders)} folders, {wrong} not as told")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
