#!/usr/bin/python3
"""Files of one folder of src/ that call each other in a circle: who of them is below whom, nobody can say. Reads the symbols of the objects that a build left (nm), so a table of functions counts like a call.

Usage: check_circles.py [BUILD]. A line for each folder that has a circle; exit status 1 if one has more files in circles than ALLOWED says, or fewer: then the table is to be lowered.
"""
import collections
import pathlib
import subprocess
import sys

# folder -> files that are in some circle. These numbers only go down; a folder that is not here has none.
ALLOWED = {"cli/connection": 4, "cli/doctor": 5, "cli/explain": 5, "cm": 3, "device": 10, "io": 7, "nccl": 5, "preload": 8, "rc": 5, "tran/ncclnet": 7, "tran/shm": 5, "tran/verbs": 4, "ucma": 5}


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


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build")
    objects = sorted(str(p) for p in [*(build / "src").rglob("*.c.o"), *build.glob("ropeway.p/src_cli_*.c.o"), *build.glob("test_connection.p/src_cli_connection_*.c.o")])
    if not objects:
        print(f"{build}/src has no objects: run script/setup")
        return 1
    folders = collections.defaultdict(dict)
    for name, facts in symbols(objects).items():
        folder, leaf = file_of(build, name)
        folders[folder][leaf] = facts
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
    print(f"circles: {len(folders)} folders, {wrong} not as told")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
