#!/usr/bin/python3
"""What README, docs/install.md and the READMEs of python/ucp and python/ucxx tell people to type, typed as it stands, as root, in fresh trees of Debian 12, 13 and unstable that have git and
nothing else, in a clone of this tree in a home of mode 0700. What needs no network then runs with loopback alone.

  install.py [--only REGEX] [--suite NAME]... [--keep]     --keep: the trees stay, for a look

Trees lie below ~/.cache/ropeway/release (root; debootstrap). apt and pip are asked for packages. Without root it says SKIPPED and ends with 77.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "docs/learn"), str(ROOT / "tests/wheels")]
import bare  # noqa: E402
import check  # noqa: E402
import trees  # noqa: E402

SUITES = {"bookworm": "Debian 12", "trixie": "Debian 13", "sid": "Debian unstable"}
PACKAGES = {"ropeway", "ropeway-verbs", "libropeway0", "libropeway-dev", "ropeway-nccl", "python3-ropeway"}
LIMIT_S = 3600
VISITS = {}
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# The first terminal stays; the second tries again, since a server says nothing when it listens.
TWO_TERMINALS = """
({0}) >/tmp/server 2>&1 & server=$!
for try in $(seq 100); do ({1}) >/tmp/client 2>&1 && break; kill -0 $server || break; sleep 0.1; done
wait $server || {{ cat /tmp/server /tmp/client; exit 1; }}
cat /tmp/client
"""
SYSTEM = "find / -xdev \\( -path /proc -o -path /tmp -o -path {} -o -path {} -o -path /root/ropeway \\) -prune -o -name '*ropeway*' -not -path '/root/*_*' -print"


class Wrong(Exception):
    """What somebody who follows the documents meets, for people."""


class Visit:
    """A fresh tree, and a clone in its home. Commands run in the clone, by a login shell's bash that stops at the first that fails."""

    def __init__(self, suite, kind):
        self.suite, self.tree = suite, trees.copied(suite, f"install-{kind}")
        self.home = self.tree / "root"
        self.home.chmod(0o700)
        # A mirror may be a snapshot. Whoever types answers apt's question with yes.
        (self.tree / "etc/apt/apt.conf.d/00install").write_text('Acquire::Check-Valid-Until "false";\nAPT::Get::Assume-Yes "true";\n')
        # Whom this machine trusts, where it reaches PyPI by a proxy. Not in the place of the package ca-certificates, which python3-venv brings.
        (self.tree / "etc/ssl").mkdir(parents=True, exist_ok=True)
        shutil.copy(os.environ.get("PIP_CERT") or CERTIFICATES, self.tree / "etc/ssl/host.crt")
        self.clone = self.home / "ropeway"
        subprocess.run(["git", "clone", "-q", ROOT, self.clone], check=True)
        listed = subprocess.run(["git", "ls-files", "-com", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        for name in filter(lambda name: (ROOT / name).is_file(), listed):  # what is not committed yet, too
            (self.clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.clone / name)
        self.run("apt-get update -qq && apt-get install -qq --no-install-recommends git && git -C . log -1 --format=%h")

    def run(self, script, alone=False, limit_s=LIMIT_S, says=()):
        """What it printed."""
        try:
            done = trees.enter(self.tree, ["bash", "-euo", "pipefail", "-c", f"cd /root/ropeway\n{script}"], env={"PIP_CERT": "/etc/ssl/host.crt"}, alone=alone, timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise Wrong(f"{script}: it had not ended after {limit_s} s") from None
        if done.returncode:
            raise Wrong(f"{script}\nended with {done.returncode}:\n{done.stdout[-6000:]}")
        for text in says:
            if not re.search(text, done.stdout):
                raise Wrong(f"{script}: expected '{text}' in:\n{done.stdout[-6000:]}")
        return done.stdout

    def nothing_is_left(self, before):
        left = self.system() - before
        if left:
            raise Wrong(f"it leaves behind: {sorted(left)}")

    def system(self):
        """What of ropeway's is in the tree, but for the clone and what is built from it."""
        return set(self.run(SYSTEM.format(trees.FOLDER, ROOT)).splitlines())


def block(name, first):
    """The commands of a document's block, by its first line."""
    found = [one.text for one in check.blocks_of(ROOT / name) if one.text.startswith(first)]
    if len(found) != 1:
        raise Wrong(f"{name} has {len(found)} blocks that begin with '{first}'")
    return found[0]


def inline(name, pattern):
    """A command within a sentence."""
    found = re.search(rf"`({pattern})`", (ROOT / name).read_text())
    if not found:
        raise Wrong(f"{name} has no command like {pattern}")
    return found[1]


def pieces(name):
    """The Python programs of a document, in order."""
    return [one.text for one in check.blocks_of(ROOT / name) if one.kind == "python"]


# ---- the cases: each returns what the table shows ----

def settled(suite):
    """Where README's commands have been typed already, if they have: what needs a clone that is built goes on there."""
    if suite not in VISITS:
        VISITS[suite] = Visit(suite, "readme")
        VISITS[suite].run("script/setup")
    return VISITS[suite]


def readme(suite):
    """The demo twice: for a stranger, and without a network; two terminals; script/install; pip."""
    visit = Visit(suite, "readme")
    began = time.monotonic()
    if "warning:" in visit.run(block("README.md", "script/demo"), says=["verified +all 1073741824 bytes"]):
        raise Wrong("script/demo shows warnings of its build")
    took = time.monotonic() - began
    visit.run(block("README.md", "script/demo"), alone=True, says=["verified +all 1073741824 bytes"])
    server, client = block("README.md", "build/ropeway run -- ibv_rc_pingpong").strip().splitlines()
    visit.run(TWO_TERMINALS.format(server, client), alone=True, limit_s=60, says=["1000 iters in"])
    before = visit.system()
    said = visit.run(block("docs/install.md", "script/setup --packages"), says=["installed below /usr/local: ", "installed below /root/.local: "])
    if "found: YES" in said:
        raise Wrong(f"script/install shows what meson looks for:\n{said}")
    if (visit.home / ".local/bin/ropeway").exists() or (visit.tree / "usr/local/bin/ropeway").exists():
        raise Wrong("script/install --uninstall leaves the command")
    visit.nothing_is_left(before)
    visit.run(inline("README.md", r"script/setup --packages && python3 -m venv v && v/bin/pip install \."))
    visit.run("export PATH=$PWD/v/bin:$PATH\nropeway devices\npython -c 'import ropeway; print(ropeway.__version__)'", alone=True, says=["rpw_lo: software device", r"(?m)^\d+\.\d+\.\d+$"])
    VISITS[suite] = visit
    return f"script/demo {took:.0f} s from git alone; two terminals; script/install and its end; pip"


def packages(suite):
    """By hand: what is built, where it lies, what it recommends, the page's commands, and its end."""
    visit = Visit(suite, "packages")
    visit.run("apt-get install -qq --no-install-recommends iproute2")  # for the page's test itself
    before, began = visit.system(), time.monotonic()
    visit.run(block("docs/install.md", "apt-get install dpkg-dev"))
    took = time.monotonic() - began
    made = {path.name.split("_")[0]: path for path in visit.home.glob("*.deb")}
    if set(made) != PACKAGES:
        raise Wrong(f"packages in the folder above the clone: {sorted(made)}, expected {sorted(PACKAGES)}")
    recommended = subprocess.run(["dpkg-deb", "-f", made["ropeway"], "Recommends"], capture_output=True, text=True, check=True).stdout
    if not {"ibverbs-utils", "rdmacm-utils"} <= set(re.split(r",\s*", recommended.strip())):
        raise Wrong(f"ropeway recommends {recommended}")
    said = trees.enter(visit.tree, [ROOT / "tests/release/doors.py", "install.md"], alone=True, timeout=LIMIT_S)
    if said.returncode:
        raise Wrong(f"docs/install.md with these packages:\n{said.stdout[-6000:]}")
    visit.run(block("docs/install.md", "apt-get purge"))
    visit.nothing_is_left(before)
    return f"six packages in {took:.0f} s, no debug packages; docs/install.md's commands; purged, nothing is left"


def python(suite):
    """python/ucp and python/ucxx, each in an environment of its own."""
    visit = settled(suite)
    for name in ("ucp", "ucxx"):
        visit.run(f"python3 -m venv /root/{name} && . /root/{name}/bin/activate\n" + block(f"python/{name}/README.md", "pip install ."))
    activate = "export PATH=/root/{}/bin:$PATH\ncd /root\n"
    visit.run(activate.format("ucp") + "pip install numpy")
    for name, text in zip(("server.py", "client.py"), pieces("python/ucp/README.md")):
        (visit.home / name).write_text(text)
    visit.run(activate.format("ucp") + TWO_TERMINALS.format("python server.py", "python client.py"), alone=True, limit_s=60, says=[r"\[ 1  2  3  4  5  6  7  8  9 10\]"])
    install, program = block("python/ucxx/README.md", "pip install --no-deps").split("python -c", 1)
    visit.run(activate.format("ucxx") + install)
    visit.run(activate.format("ucxx") + "python -c" + program, alone=True, limit_s=120, says=[r"(?m)^7$"])
    return "ropeway-ucp: its two programs; ropeway-ucxx: Dask"


def wheel(suite):
    """Built with this suite's Python, it is for 3.11 on: Debian 12's pip takes it, and Debian 12's Python runs it here, beside the libraries that it was built with."""
    visit, old = settled(suite), trees.ready("bookworm", "wheel", ("python3", "python3-pip"), build=False)
    visit.run("python3 -m venv /root/v && /root/v/bin/pip wheel -q --no-deps -w /root/wheels .")
    made, = (visit.home / "wheels").glob("*.whl")
    version = visit.run("python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'").strip()
    shared = trees.FOLDER / "work/wheel-of" / suite
    shutil.rmtree(shared, ignore_errors=True)
    shared.mkdir(parents=True)
    shutil.copy(made, shared)
    try:
        trees.must(old, ["python3", "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", shared / "site", shared / made.name])
    except trees.Failed as why:
        raise Wrong(f"Debian 12's pip and the wheel that Python {version} built: {why}") from None
    for name in ("usr/bin/python3.11", "usr/lib/python3.11"):
        visit.run(f"rm -rf /{name}")
        subprocess.run(["cp", "-a", old / name, visit.tree / name], check=True)
    (visit.home / "messages.py").write_text(bare.MESSAGES)
    visit.run(f"PYTHONPATH={shared}/site python3.11 /root/messages.py shm,tcp,verbs", alone=True, limit_s=60, says=[f"all as sent by {name}" for name in ("shm", "tcp", "verbs")])
    return f"built by Python {version}: {made.name}; pip of Debian 12 takes it, 3.11 sends messages with it"


CASES = [(f"{name}: {what}", case, suite) for suite, name in SUITES.items() for what, case in (("README", readme), ("python", python), ("wheel", wheel), ("packages", packages))
         if case is not wheel or suite != "bookworm"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--suite", action="append", choices=SUITES)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    if os.geteuid():
        print("SKIPPED: trees of Debian need root (chroot, namespaces)")
        return 77
    counts, rows = dict.fromkeys(("passed", "failed", "skipped"), 0), []
    for name, case, suite in CASES:
        if not re.search(args.only, name) or suite not in (args.suite or SUITES):
            continue
        began = time.monotonic()
        try:
            said, result = case(suite), "passed"
            rows.append((name, said))
        except trees.Skipped as why:
            said, result = why, "skipped"
        except (Wrong, trees.Failed, subprocess.CalledProcessError, subprocess.TimeoutExpired, ValueError) as why:
            said, result = why, "failed"
        counts[result] += 1
        print(f"{dict(passed='ok', failed='FAILED', skipped='SKIPPED')[result]} {name} ({time.monotonic() - began:.0f} s): {said}", flush=True)
    for suite in () if args.keep else SUITES:
        for kind in ("readme", "packages"):
            shutil.rmtree(trees.FOLDER / f"{suite}.install-{kind}", ignore_errors=True)
    print("\n| where | as the documents say |\n|---|---|\n" + "".join(f"| {name} | {said} |\n" for name, said in rows))
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["failed"] else 0 if counts["passed"] else 77


if __name__ == "__main__":
    sys.exit(main())
