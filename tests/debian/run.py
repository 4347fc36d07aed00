#!/usr/bin/python3
"""Debian's RDMA programs, unmodified, on the software device: one script for each row of rows.py, and what came of it in one table.

  run.py [--tree DIR]     every row, in a tree of Debian 12 (debootstrap) that is made and filled when it is missing: about 4 GB below ~/.cache/ropeway, once. Nothing is installed
                          into this machine
  run.py --suite trixie   the same in a tree of Debian 13 (ROPEWAY_BUILD: a build of that tree's own; else the one in build/, if it runs there)
  run.py --here           the quick rows, with what is installed on this machine
  run.py --only REGEX     rows whose name matches
  run.py --list           the rows
  run.py --write          put the table into docs/programs.md: rows of this run, and the last results of the others (build/test-logs/debian/results.json)
  run.py --check-docs     no run: does docs/programs.md have each row, with the status that rows.py has?

Root only (chroot, network and mount namespaces): elsewhere it says SKIPPED and ends with 77. Each row runs in a mount and PID namespace of its own, so that nothing of it is left.
"""
import argparse
import fcntl
import json
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import rows  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "ropeway"
DOCS = ROOT / "docs" / "programs.md"
BEGIN, END = "<!-- table: tests/debian/run.py{} --write -->", "<!-- end of the table -->"
MIRROR = os.environ.get("ROPEWAY_DEBIAN_MIRROR", "http://deb.debian.org/debian")
SUITES = ("bookworm", "trixie")
ABSENT = "not in it"
BUILD = pathlib.Path(os.environ.get("ROPEWAY_BUILD") or ROOT / "build")
# What the build in build/ needs to run in the tree, and what the scripts themselves use.
BASE = ("libibverbs1 ibverbs-providers librdmacm1 libisal2 libjansson4 libgnutls30 libxxhash0 zlib1g libnl-3-200 libnl-route-3-200 python3 iproute2 procps gcc g++ libc6-dev make pkg-config "
        "ca-certificates").split()

# Word 0: the tree, or / for this machine. Then the command. Everything that is mounted goes with the namespace.
ENTER = r"""
set -e
tree=$0
mount --make-rprivate /
if [ "$tree" = / ]; then
	for folder in /run/netns /run/tgtd; do
		mkdir -p $folder
		mount -t tmpfs tmpfs $folder
	done
	mount -t proc proc /proc
	exec "$@"
fi
mount --bind "$tree" "$tree"
mount -t proc proc "$tree/proc"
mount --rbind /sys "$tree/sys"
mount --rbind /dev "$tree/dev"
mount -t tmpfs tmpfs "$tree/run"
mount -t tmpfs tmpfs "$tree/tmp"
mkdir -p "$tree/etc/netns"
mount -t tmpfs tmpfs "$tree/etc/netns"
[ -e "$tree/etc/hosts" ] || : >"$tree/etc/hosts"
for folder in $ROPEWAY_BINDS; do
	mkdir -p "$tree$folder"
	mount --rbind "$folder" "$tree$folder"
done
cp -L /etc/resolv.conf "$tree/etc/resolv.conf" 2>/dev/null || true
exec chroot "$tree" "$@"
"""


def enter(tree, words, env=None, **kw):
    """Run words in the tree (None: this machine), in namespaces of their own; whatever they leave running ends with them."""
    CACHE.mkdir(parents=True, exist_ok=True)
    # Programs that are in no package
    named = [pathlib.Path(os.environ[name]).absolute() for name in ("ROPEWAY_FABTESTS", "ROPEWAY_NCCL_IB") if os.environ.get(name)]
    sources = [str(path if path.is_dir() else path.parent) for path in named]
    binds = " ".join([str(ROOT), str(CACHE), *sources, *os.environ.get("ROPEWAY_DEBIAN_BINDS", "").split()])
    keep = {name: value for name, value in os.environ.items() if name.startswith("ROPEWAY_") or name in ("http_proxy", "https_proxy", "TERM")}
    return subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, str(tree or "/"), *map(str, words)], stdin=subprocess.DEVNULL,
                          env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root", "ROPEWAY_BINDS": binds, "XDG_CACHE_HOME": str(CACHE.parent), **keep, **(env or {})}, **kw)


def installed(tree):
    """Name to version of the tree's packages."""
    root = [f"--root={tree}"] if tree else []
    out = subprocess.run(["dpkg-query", *root, "-W", "-f", "${db:Status-Abbrev}|${Package}|${Version}\n"], capture_output=True, text=True).stdout
    return {line.split("|")[1]: line.split("|")[2] for line in out.splitlines() if line.startswith("ii")}


def section(text, suite):
    """(from, to) of a suite's table in the text."""
    begin = BEGIN.format("" if suite == SUITES[0] else f" --suite {suite}")
    start = text.index(begin) + len(begin) + 1
    return start, text.index(END, start)


def make_tree(tree, suite):
    if (tree / "ropeway-tree").exists():
        return
    if not any(os.access(f"{d}/debootstrap", os.X_OK) for d in ("/usr/sbin", "/sbin", "/usr/bin")):
        raise SystemExit("SKIPPED: no debootstrap (package debootstrap)")
    print(f"making {tree} (debootstrap {suite}; once)", flush=True)
    tree.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(["debootstrap", "--variant=minbase", suite, str(tree), MIRROR], capture_output=True, text=True)
    if made.returncode:
        print(made.stdout[-2000:], made.stderr[-2000:])
        raise SystemExit(f"debootstrap ended with {made.returncode}")
    (tree / "ropeway-tree").write_text(suite + "\n")


def install(tree, packages):
    missing = [package for package in packages if package not in installed(tree)]
    if not missing:
        return None
    print(f"installing into the tree: {' '.join(missing)}", flush=True)
    env = {"DEBIAN_FRONTEND": "noninteractive", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    policy = tree / "usr/sbin/policy-rc.d"  # no daemon is started by its package
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    enter(tree, ["apt-get", "update", "-qq"], env, capture_output=True)
    done = enter(tree, ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], env, capture_output=True, text=True)
    return done.stderr[-600:] if done.returncode else None


def versions(row, tree, suite):
    have = installed(tree)
    return ", ".join(f"{package} {have[package]}" for package in row.of(suite)[:row.show] if package in have) or "-"


def run_row(row, tree, logs):
    """(status, seconds, what the script said last)"""
    if not row.script:
        return "not run", 0, row.why
    began = time.monotonic()
    log = logs / f"{row.name.split()[0].replace('/', '-')}-{pathlib.Path(row.script.split()[0]).stem}.log"
    with open(log, "w") as out:
        words = ["/usr/bin/python3", "-B", HERE / row.script.split()[0], *row.script.split()[1:]]
        try:
            rc = enter(tree, words, stdout=out, stderr=subprocess.STDOUT, timeout=row.limit_s).returncode
        except subprocess.TimeoutExpired:
            rc = 124
    text = log.read_text(errors="replace")
    seconds = time.monotonic() - began
    if rc == 77:
        return "skipped", seconds, next((line for line in text.splitlines() if line.startswith("SKIPPED")), "SKIPPED: it did not say why")
    if rc:
        return "failed", seconds, f"ended with {rc}; {log}\n" + "\n".join("    " + line for line in text.splitlines()[-20:])
    return row.status, seconds, ""


def table(results):
    """The table in Markdown. Results: a row's name to status, seconds, versions."""
    lines = ["| program | version | what was compared | status | took |", "|---|---|---|---|---|"]
    for row in rows.ROWS:
        if row.name not in results:
            continue
        status, seconds, version = results[row.name]
        if status == "skipped" and row.status == rows.TRIED:
            status = rows.TRIED
        compared = row.compared if row.script else row.why
        if status == ABSENT:
            compared, status, seconds = "this release of Debian does not have it", rows.NOT_RUN, None
        if row.script and row.status != rows.WORKS:
            compared += ". " + row.why
        lines.append(f"| {row.name} | {version} | {compared} | {status} | {f'{seconds:.0f} s' if row.script and seconds is not None else ''} |")
    return "\n".join(lines)


def check_docs():
    text = DOCS.read_text()
    start, end = section(text, SUITES[0])
    text, shown = text[start:end], {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 5 and cells[0] not in ("program", "---"):
            shown[cells[0]] = cells
    bad = []
    for row in rows.ROWS:
        cells = shown.pop(row.name, None)
        want = row.status if row.script else "not run"
        if not cells:
            bad.append(f"docs/programs.md has no row '{row.name}'")
        elif cells[3] != want:
            bad.append(f"docs/programs.md says '{cells[3]}' of {row.name}, rows.py '{want}'")
        elif not cells[2].startswith((row.compared if row.script else row.why)):
            bad.append(f"docs/programs.md says '{cells[2]}' of {row.name}, which is not what rows.py has")
    bad += [f"docs/programs.md has a row '{name}' that rows.py does not have" for name in shown]
    bad += rows.not_covered()
    bad += [f"{row.name}: there is no {row.script}" for row in rows.ROWS if row.script and not (HERE / row.script.split()[0]).exists()]
    for line in bad:
        print(line)
    print(f"{len(rows.ROWS)} rows; {'as rows.py has them' if not bad else f'{len(bad)} differences (run.py --write puts them right)'}")
    return 1 if bad else 0


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--tree", type=pathlib.Path)
    args.add_argument("--suite", choices=SUITES, default=SUITES[0])
    args.add_argument("--here", action="store_true")
    args.add_argument("--only", default="")
    args.add_argument("--list", action="store_true")
    args.add_argument("--write", action="store_true")
    args.add_argument("--check-docs", action="store_true")
    args = args.parse_args()
    wanted = [row for row in rows.ROWS if re.search(args.only, row.name) and (row.quick or not args.here)]
    if args.check_docs:
        return check_docs()
    if args.list:
        for row in wanted:
            print(f"{'quick' if row.quick else '     '} {row.name:28} {row.status if row.script else 'not run':14} {row.script}")
        return 0
    if os.geteuid() or subprocess.run(["unshare", "-mn", "true"], capture_output=True).returncode:
        print("SKIPPED: Debian's programs between two hosts need root: chroot, mounts and network namespaces")
        return 77
    tree = None if args.here else pathlib.Path(args.tree or os.environ.get("ROPEWAY_DEBIAN_TREE") or CACHE / f"debian-{args.suite}").resolve()
    logs = ROOT / "build" / "test-logs" / "debian"
    logs.mkdir(parents=True, exist_ok=True)
    lock = None
    if tree:
        tree.parent.mkdir(parents=True, exist_ok=True)
        lock = open(f"{tree}.lock", "w")
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs do not install at the same time
        make_tree(tree, args.suite)
        problem = install(tree, rows.renamed(BASE, args.suite))
        if problem:
            raise SystemExit(f"the tree cannot be filled: {problem}")
        if enter(tree, [BUILD / "ropeway", "--version"], capture_output=True).returncode:
            print(f"SKIPPED: {BUILD}/ropeway does not run in {args.suite}: it was built on another system")
            return 77
    results = {}
    for row in wanted:
        problem = install(tree, row.of(args.suite)) if tree and row.script else None
        if problem and "Unable to locate package" in problem:
            result = ABSENT, 0, ""
        else:
            result = ("failed", 0, f"not to be installed: {problem}") if problem else run_row(row, tree, logs)
        results[row] = result
        print(f"{result[0]:14} {row.name} ({result[1]:.1f} s){': ' + result[2] if result[2] else ''}", flush=True)
    shown = {row.name: (status, seconds, versions(row, tree, args.suite)) for row, (status, seconds, _) in results.items()}
    print()
    print(table(shown))
    if tree:
        saved = logs / ("results.json" if args.suite == SUITES[0] else f"results-{args.suite}.json")
        shown = {**(json.loads(saved.read_text()) if saved.exists() else {}), **shown}
        saved.write_text(json.dumps(shown, indent=1))
        if args.write:
            text = DOCS.read_text()
            start, end = section(text, args.suite)
            DOCS.write_text(text[:start] + table(shown) + "\n" + text[end:])
    failed = [row for row, result in results.items() if result[0] == "failed"]
    skipped = [(row, result) for row, result in results.items() if result[0] == "skipped"]
    for row, result in skipped:
        print(f"SKIPPED {row.name}: {result[2].removeprefix('SKIPPED: ')}")
    count = sum(1 for row, result in results.items() if row.script and result[0] != ABSENT) - len(failed) - len(skipped)
    print(f"{count} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or not count and not skipped else 0


if __name__ == "__main__":
    sys.exit(main())
