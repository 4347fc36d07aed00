#!/usr/bin/python3
"""A real device that lists itself, answers queries and cannot make a queue pair, beside ours: what programs take of the two, and what they move compared.

Usage: mana_test.py BUILD [--tree DIR] [unittest arguments]. MANA_DRIVER, a path without its end -rdmav34.so, and EVERY are in the environment.
It runs in namespaces of its own: lo, d0, one end of a veth, and folders over /sys/class and /dev that have mana_0. Its driver (fake/mana.c) is one of the distribution's libibverbs.
--tree: in that tree of Debian 12, which has MPICH; the class Long is for such a tree. Where ROPEWAY_NCCL_IB names the program of tests/debian/nccl.py, NCCL's IB transport runs, too.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from preload import preloadable  # noqa: E402

BUILD = pathlib.Path(sys.argv[1]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
ROPEWAY, LIBRARY = BUILD / "ropeway", BUILD / "src" / "library"
DRIVER, EVERY = (os.environ.get(name, str(BUILD / "tests" / "abi" / path)) for name, path in (("MANA_DRIVER", "fake/mana"), ("EVERY", "every")))
OURS, BROKEN, ADDRESS = "rpw_d0", "mana_0", "10.9.9.1"
HIDDEN = f"ropeway run: the real device {BROKEN} is hidden, since it cannot make a queue pair (%s); --devices first keeps it\n"
NO_QP = "ibv_create_qp: Operation not supported"

# $t: a folder of this namespace alone.
PLACE = r"""
set -e
mount -t sysfs sys /sys
ip link set lo up
ip link add d0 type veth peer name p0
ip link set p0 addrgenmode none
ip addr add 10.9.9.1/24 dev d0
ip link set d0 up
ip link set p0 up
t=/mnt
mount -t tmpfs mana $t
mkdir $t/net $t/dev
mount --rbind /sys/class/net $t/net
mount --rbind /dev $t/dev
mount -t tmpfs mana /sys/class
mkdir -p /sys/class/net /sys/class/misc
mount --rbind $t/net /sys/class/net
port=/sys/class/infiniband/mana_0/ports/1
mkdir -p $port/gids $port/pkeys $port/gid_attrs/types $port/gid_attrs/ndevs /sys/class/infiniband/mana_0/device
echo "1: CA" >/sys/class/infiniband/mana_0/node_type
echo 0000:0000:0000:0a0a >/sys/class/infiniband/mana_0/node_guid
echo "4: ACTIVE" >$port/state
echo Ethernet >$port/link_layer
echo 0xffff >$port/pkeys/0
echo 0000:0000:0000:0000:0000:ffff:0a09:0909 >$port/gids/0
echo "RoCE v2" >$port/gid_attrs/types/0
echo d0 >$port/gid_attrs/ndevs/0
verbs=/sys/class/infiniband_verbs
mkdir -p $verbs/uverbs0 /sys/class/infiniband_mad/umad0
echo 6 >$verbs/abi_version
echo 1:3 >$verbs/uverbs0/dev
echo mana_0 >$verbs/uverbs0/ibdev
echo 1 >$verbs/uverbs0/abi_version
echo mana_0 >/sys/class/infiniband_mad/umad0/ibdev
mount -t tmpfs mana /dev
for name in null zero full random urandom tty; do
	: >/dev/$name
	mount --bind $t/dev/$name /dev/$name
done
for name in pts shm; do
	mkdir /dev/$name
	mount --rbind $t/dev/$name /dev/$name
done
ln -s /proc/self/fd /dev/fd
ln -s pts/ptmx /dev/ptmx
mkdir /dev/infiniband
for name in uverbs0 umad0; do
	: >/dev/infiniband/$name
	mount --bind $t/dev/null /dev/infiniband/$name
done
exec "$@"
"""


def skip_all(why):
    print(f"SKIPPED: {why}")
    sys.exit(77)


def enter():
    """Starts this program again in there."""
    if os.environ.get("MANA_INSIDE"):
        return
    version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libibverbs1"], capture_output=True, text=True).stdout
    if not re.match(r"(4[4-9]|5[0-8])\.", version):
        skip_all(f"libibverbs1 {version or 'of no package'}: the driver's ABI is that of 44 to 58")
    user = [] if os.geteuid() == 0 else ["-r"]
    inside = ["unshare", *user, "-mn", "sh", "-c", PLACE, "sh"]
    tried = subprocess.run([*inside, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        skip_all(f"no namespaces here: {tried.stderr.strip()}")
    os.execvpe("unshare", [*inside, sys.executable, "-B", *sys.argv], {**os.environ, "MANA_INSIDE": "1"})


ENV = {k: v for k, v in os.environ.items() if not k.startswith("ROPEWAY_") and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH", "ASAN_OPTIONS")}
ENV["RDMAV_DRIVERS"] = DRIVER


def run(*command, devices=None, limit_s=60, **env):
    """Under `ropeway run --devices`; without `devices`, as it is."""
    wrapped = [ROPEWAY, "run", "--devices", devices, "--", *command] if devices is not None else command
    return subprocess.run([str(c) for c in wrapped], env={**ENV, **env}, capture_output=True, text=True, timeout=limit_s, stdin=subprocess.DEVNULL)


class Base(unittest.TestCase):
    maxDiff = None

    def ok(self, r):
        self.assertEqual(r.returncode, 0, f"{r.args}\nstdout: {r.stdout}\nstderr: {r.stderr}")
        return r

    def need(self, *programs):
        for program in programs:
            if not shutil.which(program):
                self.skipTest(f"no {program}")

    def pair(self, server, client, devices="auto", **env):
        """Both outputs together. The client is started again until the server listens."""
        wrap = [str(ROPEWAY), "run", "--devices", devices, "--"] if devices is not None else []
        with subprocess.Popen([*wrap, *server], env={**ENV, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as s:
            try:
                for _ in range(50):
                    c = subprocess.run([*wrap, *client], env={**ENV, **env}, capture_output=True, text=True, timeout=60)
                    if c.returncode == 0 or s.poll() is not None:
                        break
                    time.sleep(0.1)
                out, _ = s.communicate(timeout=60)
            finally:
                s.kill()
        self.assertEqual((c.returncode, s.returncode), (0, 0), f"client: {c.stdout}{c.stderr}\nserver: {out}")
        return out + c.stdout


class Seen(Base):
    """Who takes no device by name."""

    def test_without_a_word_the_broken_one_is_met(self):
        """Else the rest of this file shows nothing."""
        for way in ("list", "sysfs", "cm"):
            r = run(EVERY, way, devices="first")
            self.assertEqual(r.returncode, 2 if way == "sysfs" else 1, r)
            self.assertIn(f"{BROKEN}: Operation not supported", r.stderr)

    def test_ours_alone(self):
        for devices in ("software", "^mana_0", "auto"):
            for way in ("list", "sysfs", "cm"):
                r = self.ok(run(EVERY, way, devices=devices))
                self.assertEqual((r.stdout, r.stderr), (f"{OURS}\n", HIDDEN % NO_QP if devices == "auto" else ""), devices)

    def test_with_a_name_of_ours(self):
        self.assertEqual(self.ok(run(EVERY, devices="software,lo")).stdout, "rpw_lo\n")
        self.assertEqual(self.ok(run(EVERY, devices="software,all")).stdout, f"{OURS}\nrpw_lo\n")

    def test_the_versioned_library(self):
        env = {"LD_LIBRARY_PATH": str(LIBRARY)}
        self.assertIn(BROKEN, run(EVERY, **env).stderr)
        for way in ("list", "cm"):
            for words in ("software", f"^{BROKEN}"):
                self.assertEqual(self.ok(run(EVERY, way, **env, ROPEWAY_DEVICES=words)).stdout, f"{OURS}\n")

    def test_a_bare_preload_never_tries(self):
        preload = {"LD_PRELOAD": str(preloadable(BUILD / "libropeway-verbs.so"))}
        self.assertEqual(self.ok(run(EVERY, **preload, ROPEWAY_DEVICES="software")).stdout, f"{OURS}\n")
        self.assertIn(BROKEN, run(EVERY, **preload, ROPEWAY_DEVICES="auto").stderr)
        began = time.monotonic()
        self.assertIn(BROKEN, run("ibv_devices", **preload, ROPEWAY_DEVICES="auto", MANA="hangs").stdout)
        self.assertLess(time.monotonic() - began, 1.5)

    def test_its_files(self):
        """No path leads to it, no list has it."""
        script = r"""
ls /sys/class/infiniband /dev/infiniband /sys/class/infiniband_mad | sed 's/uverbs1[0-9]*/ours/' | tr '\n' ' '; ls /sys/class/infiniband_verbs | sed 's/uverbs1[0-9]*/ours/' | tr '\n' ' '; echo
for path in /sys/class/infiniband/mana_0 /sys/class/infiniband/mana_0/node_type /sys/class/infiniband_verbs/uverbs0 /sys/class/infiniband_verbs/uverbs0/dev /sys/class/infiniband_mad/umad0 /dev/infiniband/uverbs0 \
	/dev/infiniband/umad0 /sys/class/net/../infiniband/mana_0/ports; do
	[ ! -e $path ] || echo $path is there
	cat $path 2>&1 | grep -v "No such file" && echo $path can be read
done
cd /sys/class/infiniband; cat mana_0/node_type 2>&1; [ ! -e mana_0 ] || echo relative; echo *; cat /sys/class/infiniband_verbs/abi_version
python3 -c '
import glob, os
d = os.open("/sys/class/infiniband", 0)
print(sorted(os.listdir(d)), glob.glob("/sys/class/infiniband*/*[av]*0"))
for path in ("mana_0", "mana_0/node_type"):
    try:
        print(os.open(path, 0, dir_fd=d))
    except FileNotFoundError:
        print("none")
'
"""
        want = ["/dev/infiniband: rdma_cm ours  /sys/class/infiniband: rpw_d0  /sys/class/infiniband_mad: abi_version abi_version ours ", "cat: mana_0/node_type: No such file or directory", "rpw_d0", "6",
                "['rpw_d0'] []", "none", "none"]
        for devices in ("software", f"^{BROKEN}"):
            got = self.ok(run("bash", "-c", script, devices=devices)).stdout
            self.assertEqual(re.sub("ours ours", "ours", got).splitlines(), want, devices)
        self.assertIn(BROKEN, self.ok(run("ls", "/sys/class/infiniband", devices="first")).stdout)

    def test_namespace(self):
        """Programs that no preload reaches."""
        self.need("busybox")
        for devices, there in (("first", True), ("software", False), (f"^{BROKEN}", False)):
            r = run(ROPEWAY, "run", "--namespace", "--devices", devices, "busybox", "ls", "/sys/class/infiniband", "/sys/class/infiniband_verbs", "/dev/infiniband")
            self.ok(r)
            self.assertIn(OURS, r.stdout)
            self.assertEqual([word in r.stdout.split() for word in (BROKEN, "uverbs0")], [there, there], r.stdout)


class Tried(Base):
    """By the command, in another process, for 2 s."""

    def words(self, **env):
        began = time.monotonic()
        r = self.ok(run("printenv", "ROPEWAY_DEVICES", devices="auto", **env))
        return r.stdout.strip(), r.stderr, time.monotonic() - began

    def test_one_that_works_stays(self):
        self.assertEqual(self.words(MANA="works")[:2], ("first", ""))

    def test_one_that_fails_hangs_or_crashes_is_hidden(self):
        for way, why in (("fails", NO_QP), ("hangs", "no answer in 2 s"), ("crashes", "the attempt ended with signal 11 (Segmentation fault)")):
            words, said, took = self.words(MANA=way)
            self.assertEqual((words, said), (f"first,^{BROKEN}", HIDDEN % why))
            self.assertLess(took, 2 if way == "fails" else 4)

    def test_nothing_is_left_behind(self):
        self.words(MANA="hangs")
        left = [p for p in pathlib.Path("/proc").glob("[0-9]*/environ") if b"MANA=hangs" in self.read(p)]
        self.assertEqual(left, [])

    @staticmethod
    def read(path):
        try:
            return path.read_bytes()
        except OSError:
            return b""

    def test_devices_says_it(self):
        def shown(*options, **env):
            text = self.ok(run(ROPEWAY, "devices", *options, **env)).stdout
            told = json.loads(self.ok(run(ROPEWAY, "devices", "--json", *options, **env)).stdout)
            return text, {d["name"]: d for d in told["devices"]}, {d["name"]: d for d in told["hidden"]}

        text, devices, _ = shown()
        self.assertEqual([*devices], [OURS, BROKEN])
        self.assertTrue(devices[BROKEN]["usable"])
        text, devices, _ = shown("--try")
        self.assertEqual(devices[BROKEN]["reason"], f"it cannot make a queue pair: {NO_QP}")
        self.assertIn(f"CANNOT BE USED: it cannot make a queue pair: {NO_QP}\n", text)
        self.assertIn("`ropeway run --devices auto` hides", text)
        self.assertTrue(shown("--try", MANA="works")[1][BROKEN]["usable"])
        for words in ("software", f"first,^{BROKEN}"):
            text, devices, hidden = shown("--try", ROPEWAY_DEVICES=words)
            self.assertEqual([*devices], [OURS])
            self.assertEqual(hidden[BROKEN], {"name": BROKEN, "interface": None, "reason": f"ROPEWAY_DEVICES={words} hides it; `first` in its place shows it"})
            self.assertIn(f"{BROKEN}: real device, hidden from programs\n    {hidden[BROKEN]['reason']}\n", text)

    def test_doctor_says_it(self):
        def told(**env):
            return [(v["verdict"], v["text"], v["remedy"]) for v in json.loads(run(ROPEWAY, "doctor", "--json", **env).stdout)["verdicts"] if v["what"] == f"device {BROKEN}"]

        self.assertEqual([("warn", f"it cannot make a queue pair: {NO_QP}", "`ropeway run --devices auto` hides it from programs")], told())
        self.assertEqual(told(ROPEWAY_DEVICES="software"), [("ok", "hidden from programs: ROPEWAY_DEVICES=software hides it", None)])
        # and the transport `verbs` of the library does not open it
        for words, opened in (("first", True), ("software", False), (f"^{BROKEN}", False)):
            self.assertEqual(f"verbs: device {BROKEN} has no active port" in run(ROPEWAY, "doctor", ROPEWAY_DEVICES=words, ROPEWAY_LOG="debug").stderr, opened)


class Action(Base):
    """The step of GitHub's action that the rest of a job depends on."""

    def use(self, *devices, **env):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(f"{folder}/bin")
            os.symlink(ROPEWAY, f"{folder}/bin/ropeway")
            pathlib.Path(folder, "packages").touch()
            r = run(HERE.parent.parent / "script" / "action", "use", folder, *devices, GITHUB_ENV=f"{folder}/variables", **env)
            variables = pathlib.Path(folder, "variables")
            return r, variables.read_text() if variables.exists() else None

    def test_what_it_hides(self):
        for devices in ((), ("auto",)):
            r, variables = self.use(*devices)
            self.assertEqual(variables, f"ROPEWAY_DEVICES=first,^{BROKEN}\n", r)
            self.assertIn(HIDDEN % NO_QP + "(--devices first: for this action, devices: first)\n", self.ok(r).stdout)
            self.assertIn(f"{BROKEN}: real device, hidden from programs\n", r.stdout)
        self.assertEqual(self.use(ROPEWAY_DEVICES="lo")[1], f"ROPEWAY_DEVICES=first,^{BROKEN},lo\n")
        self.assertEqual(self.use(MANA="works")[1], "ROPEWAY_DEVICES=first\n")  # never one that works
        self.assertEqual(self.use("first")[1], "ROPEWAY_DEVICES=first\n")
        self.assertEqual(self.use("software,lo")[1], "ROPEWAY_DEVICES=software,lo\n")
        for wrong in ("nothing0", "lo\nPATH=/"):
            r, variables = self.use(wrong)
            self.assertNotEqual(r.returncode, 0, r)
            self.assertIsNone(variables)

    def test_what_the_rest_of_a_job_sees(self):
        env = {"ROPEWAY_DEVICES": self.use()[1].strip().split("=", 1)[1]}
        self.assertEqual(self.ok(run(EVERY, LD_PRELOAD=str(preloadable(BUILD / "libropeway-verbs.so")), **env)).stdout, f"{OURS}\n")
        self.assertEqual(self.ok(run(EVERY, devices="lo", **env)).stdout, "rpw_lo\n")


class Programs(Base):
    """None is told a device. With `first`, as before there were words for real devices, UCX and Open MPI fail."""

    def test_pingpong(self):
        """It compares what arrives (-c), and takes the first device."""
        self.need("ibv_rc_pingpong")
        self.assertIn("1000 iters", self.pair(["ibv_rc_pingpong", "-g", "1", "-c"], ["ibv_rc_pingpong", "-g", "1", "-c", ADDRESS], devices="software"))

    def test_perftest(self):
        self.need("ib_write_bw")
        for program in ("ib_write_bw", "ib_send_bw"):
            options = ["-x", "1", "-n", "500", "-s", "65536", *(["-R"] if program == "ib_send_bw" else [])]
            out = self.pair([program, *options], [program, *options, ADDRESS])
            self.assertRegex(out, r"\n 65536 +500 ")
            self.assertEqual(set(re.findall(r"Device +: (\S+)", out)), {OURS})

    def test_ucx(self):
        self.need("ucx_info", "ucx_perftest")
        shown = self.ok(run("ucx_info", "-d", devices="auto")).stdout
        self.assertEqual(set(re.findall(r"Transport: (?:rc|ud)_verbs\n# +Device: (\w+)", shown)), {OURS})
        sys.path.insert(0, str(HERE.parent))
        import ucx_perftest
        server = [*ucx_perftest.command().split(), "-p", "18713"]
        # the fake's kernel answers CREATE_COMP_CHANNEL with nothing, so the channel's descriptor is what was there
        self.assertRegex(run(*server, "-t", "tag_bw", "-l", devices="first", UCX_TLS="rc_v,self").stdout, r"failed to create UD QP|fcntl\(fd=-?\d+, F_GETFL\) returned -1")
        self.assertRegex(self.pair(server, [*server, ADDRESS, "-t", "tag_bw", "-s", "100000", "-n", "100", "-w", "10"], UCX_TLS="rc_v,self"), r"Final: +100 ")

    def test_open_mpi(self):
        """Over UCX's RC; every byte of what it sends and puts is compared."""
        self.mpi("openmpi", ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "btl", "^openib,vader,tcp", "--mca", "pml", "ucx", "--mca", "osc", "ucx"])

    def mpi(self, which, options):
        self.need(f"mpicc.{which}", f"mpirun.{which}")
        with tempfile.TemporaryDirectory() as folder:
            program = f"{folder}/mpi_pattern"
            self.ok(run(f"mpicc.{which}", "-O2", f"-I{HERE.parent}", "-o", program, HERE.parent / "programs" / "cm" / "mpi_pattern.c"))
            first, r = (run(f"mpirun.{which}", *options, "-n", "2", program, devices=devices, UCX_TLS="rc_v,self", OMPI_MCA_btl_base_warn_component_unused="0") for devices in ("first", "auto"))
        self.assertNotEqual(first.returncode, 0, first)
        self.assertRegex(self.ok(r).stdout, r"all \d+ messages as sent")


class Long(Programs):
    """In a tree, or with what is no package."""

    def test_mpich(self):
        self.mpi("mpich", ["-hosts", "localhost"])

    def test_nccl(self):
        """NCCL's IB transport opens each device that it finds when it begins; 76 MB on each, every byte compared."""
        program = os.environ.get("ROPEWAY_NCCL_IB", "")
        if not os.access(program, os.X_OK):
            self.skipTest("ROPEWAY_NCCL_IB names no program")
        def ranks(devices):
            with tempfile.TemporaryDirectory() as folder:
                both = [subprocess.Popen([str(ROPEWAY), "run", "--devices", devices, "--", program, str(rank), folder], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") for rank in (0, 1)]
                said = [p.communicate(timeout=60)[0] for p in both]
            return [p.returncode for p in both], said

        returned, said = ranks("first")
        self.assertNotIn(0, returned)
        self.assertIn("Call to ibv_create_qp failed with error Operation not supported", "".join(said))
        returned, said = ranks("auto")
        self.assertEqual(returned, [0, 0], said)
        for out in said:
            self.assertIn(OURS, out)
            self.assertRegex(out, r"(?m)^1 devices, 0 WARN$")


def in_tree(tree):
    sys.path.insert(0, str(HERE.parent / "debian"))
    import run as debian
    if not (pathlib.Path(tree) / "usr/bin/python3").exists():
        skip_all(f"there is no tree {tree}: script/test --stage debian makes it")
    sys.exit(debian.enter(tree, ["/usr/bin/python3", "-B", HERE / "mana_test.py", BUILD, *sys.argv[4:]]).returncode)


if __name__ == "__main__":
    if sys.argv[2:3] == ["--tree"]:
        in_tree(sys.argv[3])
    enter()
    del sys.argv[1]
    result = unittest.main(verbosity=2, exit=False).result
    bad = len(result.failures) + len(result.errors)
    for test, why in result.skipped:
        print(f"SKIPPED: {test.id()}: {why}")
    print(f"{result.testsRun - bad - len(result.skipped)} passed, {bad} failed, {len(result.skipped)} skipped")
    sys.exit(bool(bad))
