#!/usr/bin/python3
"""Runs every command of the tour and holds its output against what the chapters show, so that the tour cannot rot.

  check.py [--build DIR] [--only TEXT] [--keep] [-v] [FOLDER]      FOLDER: of other chapters than those beside this file, as docs/messaging

In the chapters, the first line of a fenced block says what the block is:

  ```sh NAME [background] [status=N] [needs=PROGRAM]    commands. They run in a folder of the chapter in which `build` is the build folder, and `include`, `learn` and `script` this tree's.
                                                        background: the other terminal; it has to end by itself before the next one starts
                                                        needs: passed over where that program is not installed
  ```sh norun                                           commands that need another machine, a screen or much time
  ```text NAME                                          what NAME prints: each line must be in its output, in any order

In shown output "..." stands for anything, and a line of it alone for lines left out. Blanks count as one, runs of dashes as one, and what differs from run to
run (times, PSNs, QPNs, addresses, process IDs, seeds) is not compared. A .zh.md file has the same blocks as its English chapter, unless it says
<!-- blocks of its own -->; then those are run as well. <!-- blocks of its own, LANG=zh_CN.UTF-8 -->: they have the same names and commands, and are run in
that language.

All runs in a network namespace of its own, with loopback alone. Exit status 0: all as shown; 1: not; 77: no namespace can be made here.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
READY = re.compile("listening on port|waiting for rdma_client".encode())
WAIT_S = 30  # far more than any command of the tour takes
TRIES = 3
OWN_BLOCKS = re.compile(r"<!-- blocks of its own(?:, LANG=(\S+))? -->")
INSIDE = "ROPEWAY_TOUR_NAMESPACE"


class Block:
    def __init__(self, words, line):
        self.kind, self.words, self.line, self.text = words[0], words[1:], line, ""
        self.name = words[1] if len(words) > 1 else ""

    def option(self, name):
        return next((w.partition("=")[2] for w in self.words[1:] if w.partition("=")[0] == name), None)

    def same(self, other):
        return self.same_but_for_language(other) and self.text == other.text

    def same_but_for_language(self, other):
        """What is run is the same; what it shows may be in another language."""
        return (self.kind, self.words) == (other.kind, other.words) and (self.kind != "sh" or self.text == other.text)


def blocks_of(path):
    found, block = [], None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.startswith("```"):
            if block:
                block.text += line + "\n"
        elif block:
            found.append(block)
            block = None
        else:
            block = Block(line[3:].split() or ["text"], number)
    if block:
        raise ValueError(f"{path.name}:{block.line}: this block has no end")
    return found


# ---- what differs from run to run ----

VARIES = [
    (re.compile(r"\b\d+\.\d{3,9}\b~?"), "#"),                            # times; ~: moved
    (re.compile(r"\b0x[0-9a-f]{5,}\b"), "#"),                            # QPNs, addresses, PSNs
    (re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{16}\b"), "#"),            # seeds and checksums
    (re.compile(r"\b(pid|process|client|server|进程) \d+"), r"\1 #"),
    (re.compile(r"\b\d+(,\d{3})+\b|\b\d{5,}\b"), "#"),                   # PSNs, ports, counts
    (re.compile(r"\b\d\d (B|bytes)\b"), r"# \1"),                       # of texts with a process ID in them
    (re.compile(r"-+"), "-"),
    (re.compile(r"\s+"), " "),
]


def plain(text):
    for pattern, instead in VARIES:
        text = pattern.sub(instead, text)
    return text.strip()


def missing_lines(shown, output):
    """Lines of `shown` that `output`, made plain, does not hold."""
    for line in shown.splitlines():
        parts = [re.escape(p) for p in plain(line).split("...") if p.strip()]
        if parts and not re.search(r".{0,400}?".join(parts), output, re.S):
            yield line


# ---- running ----

def tcp_listens():
    """In this namespace; state 0A is LISTEN (proc(5)). perftest says nothing that would reach a file in time."""
    tables = [pathlib.Path(f"/proc/net/{name}") for name in ("tcp", "tcp6")]
    return any(line.split()[3] == "0A" for t in tables if t.exists() for line in t.read_text().splitlines()[1:])


class Chapter:
    def __init__(self, path, build, folder, verbose):
        self.path, self.folder, self.verbose = path, folder, verbose
        self.errors, self.output, self.skipped, self.behind = [], {}, set(), None
        folder.mkdir()
        (folder / "build").symlink_to(build)
        for name in ("include", "learn", "script"):
            (folder / name).symlink_to(HERE.parent.parent / name)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "ROPEWAY_")) and k != "LD_PRELOAD"}
        own = OWN_BLOCKS.search(path.read_text())
        self.env["LANG"] = own and own[1] or "C.UTF-8"

    def error(self, block, text):
        self.errors.append(f"{self.path.name}:{block.line}: {text}")

    def start(self, block):
        out = open(self.folder / f"{block.name}.output", "wb")
        return subprocess.Popen(["/bin/sh", "-c", block.text], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                start_new_session=True)

    def read(self, name):
        return (self.folder / f"{name}.output").read_bytes()

    def finish(self, process, block):
        try:
            status = process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = "nothing: it still ran"
        wanted = int(block.option("status") or 0)
        self.output[block.name] = self.read(block.name).decode(errors="replace")
        if status != wanted:
            self.error(block, f"{block.name} ended with {status} instead of {wanted}:\n" + self.output[block.name])

    def end_background(self):
        if self.behind:
            self.finish(*self.behind)
        self.behind = None

    def wait_ready(self, process, block):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end and process.poll() is None and not READY.search(self.read(block.name)) and not tcp_listens():
            time.sleep(0.02)

    def run(self, block):
        needs = block.option("needs")
        if needs and not shutil.which(needs):
            self.skipped.add(block.name)
            print(f"    {block.name}: passed over, there is no {needs} here")
            return
        if block.name in self.output:
            self.error(block, f"two blocks are named {block.name}")
        if "background" not in block.words:
            self.finish(self.start(block), block)
            return
        self.end_background()
        process = self.start(block)
        self.behind = process, block
        self.wait_ready(process, block)

    def compare(self, block):
        if block.name in self.skipped:
            return
        if block.name not in self.output:
            self.error(block, f"no block is named {block.name!r}")
            return
        for line in missing_lines(block.text, plain(self.output[block.name])):
            self.error(block, f"{block.name} no longer prints: {line.strip()}")

    def check(self):
        blocks = blocks_of(self.path)
        for block in blocks:
            if block.kind == "sh" and not block.name:
                self.error(block, "this block has neither a name nor \"norun\"")
            elif block.kind == "sh" and block.name != "norun":
                self.run(block)
        self.end_background()
        for block in blocks:
            if block.kind == "text" and block.name:
                self.compare(block)
        if self.verbose:
            for name, text in self.output.items():
                print(f"---- {self.path.name}: {name}\n{text}")
        return self.errors


# ---- all of them ----

def check_links(path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if "://" not in target and not (path.parent / target).exists():
            yield f"{path.name}: the link to {target} leads nowhere"


def check_twin(path):
    twin = path.with_name(path.name.replace(".md", ".zh.md"))
    if not twin.exists():
        yield f"{path.name}: there is no {twin.name}"
        return
    own = OWN_BLOCKS.search(twin.read_text())
    if not own or own[1]:
        ours, theirs = blocks_of(path), blocks_of(twin)
        for a, b in zip(ours, theirs):
            if not (a.same_but_for_language(b) if own else a.same(b)):
                yield f"{twin.name}:{b.line}: this block is not that of {path.name}:{a.line}"
        if len(ours) != len(theirs):
            yield f"{twin.name} has {len(theirs)} blocks, {path.name} {len(ours)}"


def tell(texts):
    print("".join(f"    {line}\n" for text in texts for line in text.splitlines()), end="", flush=True)


def run_chapter(path, build, work, verbose):
    """What was wrong at the last try."""
    for number in range(1, TRIES + 1):
        wrong = Chapter(path, build, work / f"{path.stem}.{number}", verbose).check()
        if not wrong:
            break
        if number < TRIES:
            print(f"{path.name}: once more, since")
            tell(wrong)
    return wrong


def enter_namespace():
    """Only comes back inside of one."""
    if os.environ.get(INSIDE):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    words = ["unshare", "--net"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    if subprocess.run([*words, "true"], stderr=subprocess.DEVNULL).returncode:
        print("SKIPPED: no network namespace can be made here (unshare --net)\n0 passed, 0 failed, 1 skipped")
        sys.exit(77)
    os.execvpe("unshare", [*words, sys.executable, str(HERE / "check.py"), *sys.argv[1:]], {**os.environ, INSIDE: "1"})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.environ.get("ROPEWAY_BUILD", str(HERE.parent.parent / "build")))
    parser.add_argument("--only", default="", help="chapters whose name contains this")
    parser.add_argument("--keep", action="store_true", help="keep the folder with captures, pages and outputs")
    parser.add_argument("-v", action="store_true", help="show all that was printed")
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=HERE)
    args = parser.parse_args()
    build = pathlib.Path(args.build).resolve()
    if not (build / "ropeway").exists():
        print(f"{build}/ropeway is not there: run script/setup")
        return 1
    enter_namespace()
    work = pathlib.Path(tempfile.mkdtemp(prefix="ropeway-tour-"))
    passed = failed = 0
    chapters = sorted(args.folder.resolve().glob("*.md"))
    has_twins = any(path.name.endswith(".zh.md") for path in chapters)
    for path in chapters:
        if args.only not in path.name:
            continue
        began, is_twin = time.monotonic(), path.name.endswith(".zh.md")
        wrong = list(check_links(path)) + (list(check_twin(path)) if has_twins and not is_twin else [])
        if not is_twin or OWN_BLOCKS.search(path.read_text()):
            wrong += run_chapter(path, build, work, args.v)
        print(f"{'FAIL' if wrong else 'pass'} {path.name} ({time.monotonic() - began:.1f} s)", flush=True)
        tell(wrong)
        passed, failed = passed + (not wrong), failed + bool(wrong)
    if args.keep or failed:
        print(f"captures, pages and what was printed (NAME.output) are in {work}")
    else:
        shutil.rmtree(work)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
