"""Trees of Debian for script/release: one in which packages are built, and a fresh one in which they are installed and tried.

A tree is entered in mount, PID and network namespaces of its own, so that nothing of it is left, with loopback alone where something is tried. Root only.
"""
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "ropeway" / "release"
MIRROR = os.environ.get("ROPEWAY_DEBIAN_MIRROR", "http://deb.debian.org/debian")
BUILD = "build-essential debhelper fakeroot lintian".split()
# Of debian/tests/control, and what the doors need.
TRY = "ibverbs-utils rdmacm-utils iproute2 gcc libc6-dev pkgconf procps bash-completion zsh fish python3 python3-numpy".split()
# A runner of GitHub has these; an image of Debian, git and what the action installs.
RUNNER = "ca-certificates git iproute2 python3 python3-yaml".split()
TESTS = ("verbs", "c", "python", "nccl", "completion", "doors")
TEST_LIMIT_S = 900

# Word 0: the tree. The words that follow are run there. TRIES: with a network namespace.
ENTER = r"""
set -e
tree=$0
mount --make-rprivate /
mount --bind "$tree" "$tree"
mount -t proc proc "$tree/proc"
mount --rbind /sys "$tree/sys"
mount --rbind /dev "$tree/dev"
mount -t tmpfs tmpfs "$tree/tmp"
for folder in $ROPEWAY_BINDS; do
	mkdir -p "$tree$folder"
	mount --bind "$folder" "$tree$folder"
done
cp -L /etc/resolv.conf "$tree/etc/resolv.conf" 2>/dev/null || true
[ -z "$ROPEWAY_ALONE" ] || ip link set lo up
exec chroot "$tree" "$@"
"""


class Skipped(Exception):
    """What cannot be done here, and why."""


class Failed(Exception):
    pass


def enter(tree, words, env=None, alone=False, **kw):
    """Runs words in the tree; alone: without a network but loopback."""
    binds = [str(FOLDER), str(ROOT)]
    spaces = ["--mount", "--pid", "--fork", "--kill-child"] + (["--net"] if alone else [])
    return subprocess.run(["unshare", *spaces, "sh", "-c", ENTER, str(tree), *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root", "ROPEWAY_BINDS": " ".join(binds),
                                             "ROPEWAY_ALONE": "1" if alone else "", "DEBIAN_FRONTEND": "noninteractive", **(env or {})}, **kw)


def must(tree, words, **kw):
    done = enter(tree, words, **kw)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, words))[:300]} ended with {done.returncode}:\n" + "\n".join(done.stdout.splitlines()[-40:]))
    return done.stdout


def base(suite):
    """The bare tree, made once."""
    tree = FOLDER / suite
    if (tree / "ropeway-tree").exists():
        return tree
    if os.geteuid():
        raise Skipped("trees of Debian need root (chroot, namespaces)")
    if not shutil.which("debootstrap", path="/usr/sbin:/usr/bin:/sbin"):
        raise Skipped("no debootstrap (package debootstrap)")
    tree.parent.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(["debootstrap", "--variant=minbase", suite, str(tree), MIRROR], capture_output=True, text=True)
    if made.returncode:
        raise Failed(f"debootstrap {suite} ended with {made.returncode}:\n{made.stdout[-2000:]}{made.stderr[-2000:]}")
    (tree / "ropeway-tree").write_text(suite + "\n")
    return tree


def copied(suite, kind):
    tree = FOLDER / f"{suite}.{kind}"
    source = base(suite)
    if tree.exists():
        shutil.rmtree(tree)
    subprocess.run(["cp", "-a", str(source), str(tree)], check=True)
    return tree


def install(tree, packages):
    must(tree, ["apt-get", "-o", "Acquire::Check-Valid-Until=false", "update", "-qq"])  # a mirror may be a snapshot
    must(tree, ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages])


def build_depends(source):
    """Package names of debian/control, without versions and profiles."""
    text = (source / "debian/control").read_text().split("Build-Depends:")[1].split("\nStandards-Version")[0]
    names = [word.split()[0] for word in text.split(",")]
    return ["dh-python" if name == "dh-sequence-python3" else name for name in names if name != "debhelper-compat"]


def ready(suite, kind, packages, build=True):
    """A tree with these packages, and what builds packages, made once for each list of them."""
    tree = FOLDER / f"{suite}.{kind}"
    mark, want = tree / "ropeway-packages", " ".join(packages)
    if not (mark.exists() and mark.read_text() == want):
        tree = copied(suite, kind)
        install(tree, [*(BUILD if build else ()), *packages])
        mark.write_text(want)
    return tree


# ---- what is tried ----

def lintian(suite, debs):
    """No error and no warning; overrides are in debian/, each with its reason."""
    tree = FOLDER / f"{suite}.build"
    changes = list(debs.glob("*.changes"))
    if not changes:
        raise Failed(f"{debs} has no .changes file")
    inside = FOLDER / "work" / f"lintian-{suite}"
    shutil.rmtree(inside, ignore_errors=True)
    shutil.copytree(debs, inside)
    must(tree, ["lintian", "--allow-root", "--fail-on", "error,warning", inside / changes[0].name])
    # Of Debian 12, it counts what is overridden as a failure where it shows it.
    return enter(tree, ["lintian", "--allow-root", "--show-overrides", inside / changes[0].name]).stdout.strip()


def fresh(suite, debs):
    """A tree with nothing but our packages, by `apt install ./*.deb`, and what the tests need. The same one for all tests of these packages."""
    tree = FOLDER / f"{suite}.try"
    paths = sorted(path for path in debs.glob("*.deb") if "dbgsym" not in path.name)
    if not paths:
        raise Failed(f"{debs} has no packages")
    mark, want = tree / "ropeway-debs", " ".join(TRY) + " " + " ".join(f"{path.name} {path.stat().st_mtime_ns}" for path in paths)
    if mark.exists() and mark.read_text() == want:
        return tree
    tree = copied(suite, "try")
    inside = FOLDER / "work" / f"install-{suite}"
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir(parents=True)
    for path in paths:
        shutil.copy(path, inside)
    must(tree, ["apt-get", "update", "-qq"])
    must(tree, ["sh", "-c", f"cd {inside} && apt-get install -y -qq ./*.deb"])
    install(tree, TRY)
    mark.write_text(want)
    return tree


def try_installed(suite, debs, name):
    """A test of debian/tests, or `doors`: what the documents show."""
    tree = fresh(suite, debs)
    words = [ROOT / "tests/release/doors.py"] if name == "doors" else [ROOT / "debian/tests" / name]
    try:
        done = enter(tree, words, alone=True, timeout=TEST_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise Failed(f"{words[0]} had not ended after {TEST_LIMIT_S} s") from None
    if done.returncode:
        raise Failed(f"{words[0]} ended with {done.returncode}:\n" + "\n".join(done.stdout.splitlines()[-60:]))
    return "\n".join(line for line in done.stdout.splitlines()[-60:] if name == "doors")
