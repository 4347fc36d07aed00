#!/usr/bin/python3
"""The tree of a device as programs of many kinds see it, beside a kernel's rxe, beside real devices, and under attack.

Usage: tree_test.py BUILD [unittest arguments]. CALLS, COST, FILESYSTEM (may be empty) and PLACES are in the environment: the programs of this folder.
All of it runs in namespaces of its own: lo and one end of a veth, d0, with a /sys of theirs.
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

import spaces

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from preload import preloadable  # noqa: E402

BUILD = pathlib.Path(sys.argv[1]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
DROPIN = preloadable(BUILD / "libropeway-verbs.so")
ENV = {k: v for k, v in os.environ.items() if not k.startswith("ROPEWAY_") and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "XDG_RUNTIME_DIR")}
ENV["ROPEWAY_DEVICES"] = "all"  # two devices are better than one to test a list: without it lo has none here
DEVICE, PARENT = "rpw_d0", "/sys/devices/virtual/ropeway/rpw_d0:00.0"
CLASS = f"/sys/class/infiniband/{DEVICE}"
# Where a folder for the working directory may be made.
PLACES = ("/dev/shm", "/tmp", "/var/tmp")

# What rxe has and we have not, and the other way round, each with its reason.
MISSING = {
    r".*/(cm_rx_|cm_tx_)\w+(/.*)?": "counters of the kernel's ib_cm: nobody adds up those of several processes yet",
    r"/(dev/infiniband|sys/class/infiniband_mad)/(umad|issm)0.*": "no MAD device: management datagrams are the kernel's or a subnet manager's business",
}
EXTRA = {
    r".*/DEV/(board_id|hca_type|hw_rev)": "as NICs have them; rxe has none",
    r".*/ports/1/counters(/.*)?": "as NICs have it; rxe has hw_counters alone",
    r".*/(DEV|UVERBS)/device": "each device has a parent, as NICs have; rxe had one in older kernels",
}
DIFFERENT = {
    "fw_ver": "ropeway's version; rxe has none",
    "node_desc": "says what it is",
    "rate": "of the interface: a veth says 10 Gb/s, a dummy nothing",
    "uevent": "the numbers of uverbs, and of rdma_cm, which rxe's kernel chose",
}


def run(*command, preload=True, check=True, timeout=120, **env):
    extra = {"LD_PRELOAD": str(DROPIN)} if preload else {}
    r = subprocess.run([str(c) for c in command], env={**ENV, **extra, **env}, capture_output=True, text=True, timeout=timeout)
    if check and r.returncode:
        raise AssertionError(f"{r.args}: {r.returncode}\nstdout: {r.stdout}\nstderr: {r.stderr}")
    return r


def sh(script, **more):
    return run("bash", "-c", script, **more).stdout


def leftovers():
    return [str(p) for place in PLACES for p in pathlib.Path(place).glob(".ropeway-cwd.*")]


class Shape(unittest.TestCase):
    def ours(self):
        """As rxe.txt: path -> (kind, end of a link, contents)."""
        code = r"""
import os, sys
def show(p, name):
    kind = "l" if os.path.islink(p) else "d" if os.path.isdir(p) else "-" if os.path.isfile(p) else "c"
    text = None
    if kind == "-":
        try:
            text = open(p).read().rstrip("\n").replace("\n", "\\n")
        except OSError as e:
            text = "!" + e.strerror
    print(kind, name, os.path.realpath(p) if kind == "l" else "", "" if text is None else text, sep="\t")
def walk(p, name):
    show(p, name)
    if os.path.isdir(p) and not os.path.islink(p):
        for e in os.listdir(p):
            if not e.isdigit() or e in ("0", "1") and p.endswith("ports"):
                walk(p + "/" + e, name + "/" + e)
dev = sys.argv[1]
for c in ("infiniband", "infiniband_verbs", "infiniband_mad", "misc"):
    top = "/sys/class/" + c
    if c != "misc":
        show(top, top)
    for e in os.listdir(top):
        p = top + "/" + e
        if not os.path.islink(p):
            show(p, p)
        elif e == dev or (c == "misc" and e == "rdma_cm") or (c == "infiniband_verbs" and open(p + "/ibdev").read().strip() == dev):
            walk(os.path.realpath(p), p)
            if c == "infiniband_verbs":
                show("/dev/infiniband/" + e, "/dev/infiniband/" + e)
show("/dev/infiniband", "/dev/infiniband")
show("/dev/infiniband/rdma_cm", "/dev/infiniband/rdma_cm")
"""
        found = {}
        for line in run(sys.executable, "-c", code, DEVICE).stdout.splitlines():
            line = re.sub(r"uverbs\d+", "UVERBS", line.replace(DEVICE, "DEV"))
            kind, path, to, text = line.split("\t")
            found[path] = (kind, to, text)
        return found

    def test_beside_rxe(self):
        rxe = {}
        for line in (HERE / "rxe.txt").read_text().splitlines():
            m = re.fullmatch(r"([-dlc]) (\S+?)(?: -> (\S+))?(?: = (.*))?", line)
            if m:
                rxe[m[2]] = (m[1], m[3] or "", m[4])
        ours = self.ours()
        self.assertGreater(len(rxe), 150)
        told = set()
        for path, (kind, to, text) in rxe.items():
            if path not in ours:
                why = [p for p in MISSING if re.fullmatch(p, path)]
                self.assertTrue(why, f"rxe has {path}")
                told.update(why)
                continue
            self.assertEqual(ours[path][:2], (kind, to), path)
            name = path.rpartition("/")[2]
            if text is not None and ours[path][2] != text.replace("IF", "d0"):
                self.assertIn(name, DIFFERENT, f"{path}: rxe {text}, ours {ours[path][2]}")
        for path in ours.keys() - rxe.keys():
            why = [p for p in EXTRA if re.fullmatch(p, path)]
            self.assertTrue(why, f"rxe has no {path}")
            told.update(why)
        self.assertEqual(told, MISSING.keys() | EXTRA.keys(), "a difference that is none any more")
        print(f"\nbeside rxe: {len(rxe)} paths of rxe's, {len(rxe.keys() & ours.keys())} of them ours, {len(ours.keys() - rxe.keys())} of ours alone", flush=True)


class Programs(unittest.TestCase):
    def test_c(self):
        for device in (DEVICE, "rpw_lo"):
            self.assertEqual(run(os.environ["CALLS"], device).stderr, "")
        self.assertEqual(leftovers(), [])

    def listing(self, dir):
        out = []
        for line in sh(f"cd {dir}; find . -mindepth 1 -printf '%y %P\\n'").splitlines():
            out.append(line.replace("f ", "- ", 1))
        return sorted(out)

    def by_program(self, program):
        lines = run(program, CLASS).stdout.splitlines()
        rest = [l for l in lines if l[:2] in ("gu", "pa", "li", "cw")]
        real = f"{PARENT}/infiniband/{DEVICE}"
        self.assertEqual(sorted(set(lines) - set(rest)), self.listing(CLASS))
        self.assertEqual(rest, ["guid " + sh(f"cat {CLASS}/node_guid").strip(), f"path {real}", f"link ../..{real[4:]}", f"cwd {real}/ports 1"])

    def test_cpp(self):
        if not os.environ.get("FILESYSTEM"):
            self.skipTest("no C++ compiler")
        self.by_program(os.environ["FILESYSTEM"])

    def test_rust(self):
        rustc = shutil.which("rustc") or shutil.which("rustc", path=os.path.expanduser("~/.cargo/bin"))
        if not rustc:
            self.skipTest("no rustc")
        with tempfile.TemporaryDirectory() as tmp:
            made = run(rustc, "-o", f"{tmp}/std", HERE / "std.rs", preload=False, check=False)
            if made.returncode:
                self.skipTest("rustc: " + made.stderr[-200:])
            self.by_program(f"{tmp}/std")

    def test_shell(self):
        real = f"{PARENT}/infiniband/{DEVICE}"
        self.assertEqual(sh("ls /sys/class/infiniband"), "rpw_d0\nrpw_lo\n")
        self.assertEqual(sh(f"readlink -f {CLASS}; realpath {CLASS}/device; readlink {CLASS}/device"), f"{real}\n{PARENT}\n../../../rpw_d0:00.0\n")
        self.assertEqual(sh(f"[ -e {CLASS} ] && [ -d {CLASS}/ports ] && [ -L {CLASS} ] && [ -r {CLASS}/fw_ver ] && [ ! -e {CLASS}/x ] && test -c /dev/infiniband/rdma_cm && echo yes"), "yes\n")
        self.assertEqual(sh("echo /sys/class/infiniband/*/ports/1/link_layer"), "/sys/class/infiniband/rpw_d0/ports/1/link_layer /sys/class/infiniband/rpw_lo/ports/1/link_layer\n")
        self.assertEqual(sh(f"cd {CLASS}/ports && pwd && /bin/pwd && cat 1/state && cd ../device && /bin/pwd && ls -d net/*"), f"{CLASS}/ports\n{real}/ports\n4: ACTIVE\n{PARENT}\nnet/d0\n")
        self.assertIn("Is a directory", run("cat", "/sys/class/infiniband", check=False).stderr)
        # every file is there to be read, or says what rxe's says
        errors = run("grep", "-r", ".", f"{real}/", check=False).stderr
        self.assertEqual({l.rpartition(": ")[2] for l in errors.splitlines()}, {"Invalid argument", "Input/output error"}, errors)
        r = run("ls", "-lR", f"{CLASS}/")
        self.assertEqual(r.stderr, "")
        self.assertEqual(len(re.findall(r"^[-dl]", r.stdout, re.M)), len(self.listing(CLASS + "/")))
        # who walks from above comes by
        self.assertIn(real + "\n", sh("find /sys/devices -name rpw_d0"))
        self.assertIn("/sys/class/infiniband\n", sh("find /sys -maxdepth 3 -name 'infiniband*'"))
        self.assertEqual(sh("ls /dev | grep infiniband; ls /sys/class/net/d0/device/infiniband"), "infiniband\nrpw_d0\n")
        self.assertNotEqual(run("test", "-e", "/sys/class/net/d0/device", check=False).returncode, 0)
        self.assertEqual(sh(f"cat {CLASS}/device/numa_node"), "-1\n")
        self.assertRegex(sh(f"cat {CLASS}/device/local_cpus"), r"^[0-9a-f,]+\n$")
        self.assertEqual(sh("ls /sys/class", ROPEWAY_DISABLE="1"), sh("ls /sys/class", preload=False))

    def test_python(self):
        code = f"""
import glob, os, pathlib
c = "{CLASS}"
d = os.open(c, os.O_RDONLY | os.O_DIRECTORY)
assert sorted(os.listdir(d)) == sorted(os.listdir(c)) == sorted(e.name for e in os.scandir(c))
assert os.stat("ports", dir_fd=d).st_ino == os.stat(c + "/ports").st_ino
assert os.path.realpath(c) == os.readlink(f"/proc/self/fd/{{d}}")
assert len(glob.glob("/sys/class/infiniband/*/ports/1/gids/*")) == 32
assert len(list(pathlib.Path("/sys/class/infiniband").glob("*/ports/1/gids/*"))) == 32
os.fchdir(d)
assert os.getcwd() == os.path.realpath(c) and pathlib.Path("node_type").read_text() == "1: CA\\n"
assert {{r for r, _, _ in os.walk(c)}} >= {{c, c + "/ports/1/gid_attrs/types"}}
import subprocess
assert subprocess.run(["cat", "state"], cwd=c + "/ports/1", capture_output=True, text=True).stdout == "4: ACTIVE\\n"
"""
        run(sys.executable, "-c", code)
        self.assertEqual(leftovers(), [])

    def test_topology(self):
        """What NCCL's ncclIbGetPciPath does: the end of `device`, with its function and a VF's digits taken out."""
        seen = set()
        for dev in ("rpw_d0", "rpw_lo"):
            p = list(sh(f"realpath /sys/class/infiniband/{dev}/device").strip())
            p[-1] = p[-3] = p[-4] = "0"
            seen.add("".join(p))
        self.assertEqual(len(seen), 2, seen)


class Beside(unittest.TestCase):
    """Real devices, as far as a program can see: folders that are mounted over /sys/class and /dev/infiniband."""

    def test_merged(self):
        script = r"""set -e
t=$2; mkdir $t/net; mount --rbind /sys/class/net $t/net
mount -t tmpfs t /sys/class; mkdir -p /sys/class/net /sys/class/infiniband/mlx5_0/ports/1 /sys/class/infiniband_verbs/uverbs0 /sys/class/misc
mount --rbind $t/net /sys/class/net
echo 1234 >/sys/class/infiniband/mlx5_0/node_guid; echo 9 >/sys/class/infiniband_verbs/abi_version
export LD_PRELOAD=$1
exec bash -ec '
ls /sys/class/infiniband | tr "\n" " "; cat /sys/class/infiniband/mlx5_0/node_guid /sys/class/infiniband_verbs/abi_version
ls /sys/class/infiniband_verbs | sed "s/uverbs1[0-9]*/ours/" | sort | tr "\n" " "
cd /sys/class/infiniband; cat rpw_lo/node_type mlx5_0/node_guid; cd rpw_lo; cd -P ..; /bin/pwd
python3 -c "import os; d = os.open(\"/sys/class/infiniband\", 0); print(sorted(os.listdir(d)), os.stat(\"rpw_lo/ports\", dir_fd=d).st_nlink)"
LD_PRELOAD= rm -rf /sys/class/infiniband/mlx5_0; ls /sys/class/infiniband | tr "\n" " "
'
"""
        with tempfile.TemporaryDirectory() as tmp:
            r = run("unshare", "-m", "bash", "-c", script, "merged", DROPIN, tmp, preload=False)
        self.assertEqual(r.stdout, "mlx5_0 rpw_d0 rpw_lo 1234\n9\nabi_version ours ours uverbs0 1: CA\n1234\n/sys/devices/virtual/ropeway/rpw_lo:00.0/infiniband\n['mlx5_0', 'rpw_d0', 'rpw_lo'] 3\nrpw_d0 rpw_lo ", r.stderr)


class Attack(unittest.TestCase):
    def test_killed(self):
        """SIGKILL at any moment, of the process or its group, leaves no folder behind."""
        loop = f"import os\nwhile True:\n    os.chdir('{CLASS}'); os.listdir('.'); os.chdir('/')"
        for i in range(30):
            p = subprocess.Popen([sys.executable, "-c", loop], env={**ENV, "LD_PRELOAD": str(DROPIN)}, start_new_session=True)
            time.sleep(0.1 + 0.0037 * i)
            os.killpg(p.pid, signal.SIGKILL) if i % 2 else p.kill()
            p.wait()
        deadline = time.monotonic() + 10  # the maker of a folder may still be about to remove it
        while leftovers() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(leftovers(), [])

    def test_forged(self):
        """Who names a memfd or a folder as ours are named gets what that path has, and no more."""
        code = r"""
import os, sys
for name in ("ropeway:/etc/passwd", "ropeway:/sys/class/infiniband/../../../etc/passwd", "ropeway:", "ropeway:/", "ropeway:" + "/a" * 120, "ropeway:/sys/class/infiniband/rpw_none"):
    fd = os.memfd_create(name)
    os.write(fd, b"own")
    os.dup2(fd, 77)
    for n in (fd, 77):
        assert os.fstat(n).st_size == 3, name
        for rel in ("passwd", "../etc/passwd", "node_guid"):
            try:
                os.open(rel, os.O_RDONLY, dir_fd=n)
                sys.exit("opened below " + name)
            except OSError:
                pass
"""
        run(sys.executable, "-c", code)
        with tempfile.TemporaryDirectory() as tmp:
            d = f"{tmp}/.ropeway-cwd.0123456789abcdef\x01etc"
            os.mkdir(d)
            r = run(sys.executable, "-c", f"import os; os.chdir({d!r}); os.rmdir({d!r})\ntry:\n    print(open('passwd').read())\nexcept OSError as e:\n    print(e.errno)\n")
            self.assertEqual(r.stdout, "2\n")

    def test_races(self):
        """Devices that come and go under those who look."""
        stop = time.monotonic() + 3
        walk = subprocess.Popen([sys.executable, "-c", "import os, time\nend = time.time() + 4\nn = 0\nwhile time.time() < end:\n    n += sum(len(f) for _, _, f in os.walk('/sys/class/infiniband', followlinks=False))\n    for d in os.listdir('/sys/class/infiniband'):\n        try:\n            n += len(os.listdir('/sys/class/infiniband/' + d))\n        except FileNotFoundError:\n            pass\nprint(n > 100)"],
                                env={**ENV, "LD_PRELOAD": str(DROPIN)}, stdout=subprocess.PIPE, text=True)
        while time.monotonic() < stop:
            run("ip", "link", "add", "d1", "type", "veth", "peer", "name", "p1", preload=False)
            run("ip", "addr", "add", "10.9.8.1/24", "dev", "d1", preload=False)
            run("ip", "link", "set", "d1", "up", preload=False)
            run("ip", "link", "del", "d1", preload=False)
        self.assertEqual(walk.communicate(timeout=60)[0], "True\n")

    def test_no_trace(self):
        """A program that never looks has no descriptor, thread or file more."""
        script = "ls /proc/self/fd | wc -l; ls /proc/self/task | wc -l"
        self.assertEqual(sh(script), sh(script, preload=False))


# Opens the device and a QP, says so, and stays until its input ends.
HOLD = r"""
import ctypes, os, sys
v = ctypes.CDLL(os.environ["LD_PRELOAD"], use_errno=True)
v.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
v.ibv_get_device_name.restype = ctypes.c_char_p
v.ibv_get_device_name.argtypes = v.ibv_open_device.argtypes = v.ibv_close_device.argtypes = [ctypes.c_void_p]
v.ibv_open_device.restype = ctypes.c_void_p
def opened(name):
    n, i = ctypes.c_int(), 0
    devices = v.ibv_get_device_list(ctypes.byref(n))
    for i in range(n.value):
        if v.ibv_get_device_name(devices[i]).decode() == name:
            return v.ibv_open_device(devices[i])
context = opened(sys.argv[1])
assert context
print("ready", flush=True)
"""
WAIT = "sys.stdin.read()\n"


def helpers():
    """PIDs of the helpers of this network namespace that have mapped the counters."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "comm").read_text() == "ropeway-helper\n" and os.readlink(process / "ns/net") == os.readlink("/proc/self/ns/net") and "/SYSV" in (process / "maps").read_text():
                found.append(int(process.name))
    return found


class Counters(unittest.TestCase):
    """What processes count, beside what they say that they have sent. A packet of a lane is what would be one on a wire."""

    NAMES = [f"{d}/{n}" for d, names in (("counters", "port_xmit_data port_rcv_data port_xmit_packets port_rcv_packets unicast_xmit_packets unicast_rcv_packets"), ("hw_counters", "sent_pkts rcvd_pkts rdma_sends rdma_recvs")) for n in names.split()]
    SERVER = ("ibv_rc_pingpong", "-d", "rpw_lo", "-g", "1")
    PORT = 18515

    def setUp(self):
        if not shutil.which("ibv_rc_pingpong"):
            self.skipTest("no ibv_rc_pingpong")
        self.started = []

    def tearDown(self):
        for p in self.started:
            p.kill()
            p.communicate()
        self.wait_for(lambda: not any(self.read().values()), "counts that nobody holds any more")

    def wait_for(self, true, what, seconds=60):
        deadline = time.monotonic() + seconds
        while not true():
            self.assertLess(time.monotonic(), deadline, f"no {what} in {seconds} s")
            time.sleep(0.01)

    def start(self, *command, prefix=(), **env):
        p = subprocess.Popen([*prefix, *command], env={**ENV, "LD_PRELOAD": str(DROPIN), "ROPEWAY_STATS": "1", **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.started.append(p)
        return p

    def end(self, p):
        out, err = p.communicate(timeout=120)
        self.started.remove(p)
        return out, err

    def hold(self, device="rpw_lo", then=WAIT, **env):
        p = self.start(sys.executable, "-c", HOLD + then, device, **env)
        self.assertEqual(p.stdout.readline(), "ready\n", "the holder")
        return p

    def read(self, device="rpw_lo", names=None, **more):
        names = names or self.NAMES
        out = run("cat", *(f"/sys/class/infiniband/{device}/ports/1/{n}" for n in names), **more).stdout
        return dict(zip((n.partition("/")[2] for n in names), map(int, out.split()), strict=True))

    def listening(self, pid="self", port=PORT):
        tables = "".join(pathlib.Path(f"/proc/{pid}/net/{f}").read_text() for f in ("tcp", "tcp6"))
        return re.search(rf":{port:04X} \S+ 0A ", tables)

    def pingpong(self, n, size, port=PORT, **env):
        """Both ends, running."""
        command = (*self.SERVER, "-n", str(n), "-s", str(size), "-p", str(port))
        server = self.start(*command, **env)
        self.wait_for(lambda: self.listening(port=port), "server")
        return server, self.start(*command, "127.0.0.1", **env)

    def stats(self, ends, may_fail=False):
        """What `--stats` says of processes that have ended, added up."""
        sums = {}
        for p in ends:
            out, err = self.end(p)
            self.assertIn(p.returncode, (0, 1) if may_fail else (0,), out + err)
            sums["failed"] = sums.get("failed", 0) + p.returncode
            for name, value in re.findall(r"^  (.*?) +(\d+)$", err, re.M):
                sums[name] = sums.get(name, 0) + int(value)
        return sums

    def check(self, before, n, size, said):
        """Since `before` one pingpong has run, which said that."""
        now = self.read()
        d = {k: now[k] - before[k] for k in now}
        self.assertIn(2 * n - d["rdma_sends"], (0, 1) if said["failed"] else (0,), d)
        self.assertEqual(d["rdma_recvs"], 2 * n, d)
        self.assertEqual((d["port_xmit_packets"], d["port_rcv_packets"]), (said["packets sent"], said["packets received"]))
        self.assertEqual((now["port_xmit_data"], now["port_rcv_data"]), (self.bytes[0] // 4, self.bytes[1] // 4))
        for a, b in (("sent_pkts", "port_xmit_packets"), ("rcvd_pkts", "port_rcv_packets"), ("unicast_xmit_packets", "port_xmit_packets"), ("unicast_rcv_packets", "port_rcv_packets")):
            self.assertEqual(d[a], d[b])
        # what is sent again comes on top
        per_message = -(-size // 1024) if size else 1
        self.assertGreaterEqual(d["port_xmit_packets"] - said["packets sent again"], 2 * n * per_message)
        self.assertGreaterEqual(said["payload bytes sent"], 2 * n * size)
        if not said["packets sent again"]:
            self.assertEqual(said["payload bytes sent"], 2 * n * size)

    def several(self, **env):
        holder = self.hold()
        self.bytes = [0, 0]
        for n, size in ((100, 4096), (1000, 8), (50, 1), (10, 65536)):
            before = self.read()
            # by UDP the last ACK may be lost, and the peer have ended: then one of the two ends with an error
            said = self.stats(self.pingpong(n, size, **env), may_fail="ROPEWAY_WIRE" in env)
            self.bytes[0] += said["payload bytes sent"]
            self.bytes[1] += said["payload bytes received"]
            self.check(before, n, size, said)
        self.end(holder)

    def test_lane(self):
        self.several()

    def test_udp(self):
        self.several(ROPEWAY_WIRE="udp")

    def test_udp_losses(self):
        """What is sent again counts again. The last ACK may be lost, too: then one of the two ends with an error."""
        holder = self.hold()
        names = [*self.NAMES, "hw_counters/completer_retry_err", "hw_counters/out_of_seq_request"]
        said = self.stats(self.pingpong(1000, 4096, ROPEWAY_WIRE="udp", ROPEWAY_FAULT="drop=0.02,seed=7"), may_fail=True)
        now = self.read(names=names)
        self.assertEqual([now[k] for k in ("port_xmit_packets", "port_rcv_packets", "port_xmit_data", "port_rcv_data")],
                         [said["packets sent"], said["packets received"], said["payload bytes sent"] // 4, said["payload bytes received"] // 4])
        for k in ("packets sent again", "out of order received"):
            self.assertGreater(said[k], 0)
        self.assertGreater(now["completer_retry_err"], 0)
        self.assertEqual(now["out_of_seq_request"], said["out of order received"])
        self.end(holder)

    def test_without_helper(self):
        """No helper, no difference: while one process lives that has opened the device."""
        self.several(ROPEWAY_HELPER="0")

    def test_two_pairs(self):
        """Two pairs at once, and readers: no count ever falls, and none is lost."""
        holder = self.hold()
        pairs = [self.pingpong(50000, 512, port=self.PORT + i) for i in range(2)]
        seen = [self.read()]
        while any(p.poll() is None for pair in pairs for p in pair):
            seen.append(self.read())
            self.assertFalse([k for k in seen[-1] if seen[-1][k] < seen[-2][k]], seen[-2:])
        said = self.stats(p for pair in pairs for p in pair)
        now = self.read()
        self.assertEqual(now["rdma_sends"], 4 * 50000)
        self.assertEqual(now["port_xmit_packets"], said["packets sent"])
        self.assertEqual(now["port_xmit_data"], said["payload bytes sent"] // 4)
        self.assertGreater(len(seen), 2)
        self.end(holder)

    def test_killed(self):
        """SIGKILL in the middle: what was counted stays, and stays as it is."""
        holder = self.hold()
        last = self.read()
        for i in range(5):
            pair = self.pingpong(1 << 30, 64)
            self.wait_for(lambda: self.read()["rdma_sends"] > last["rdma_sends"] + 100, "traffic")
            first = self.read()
            for p in pair:
                p.kill()
            for p in pair:
                self.end(p)
            now = self.read()
            self.assertFalse([k for k in now if now[k] < first[k]], (first, now))
            self.assertEqual(now, self.read())
            # one message is under way each way at most, and a packet may be killed before its count
            self.assertLessEqual(abs(now["rdma_sends"] - now["rdma_recvs"]), 2 * (i + 1))
            last = now
        self.stats(self.pingpong(100, 64))
        self.assertEqual(self.read()["rdma_sends"], last["rdma_sends"] + 200)
        self.end(holder)

    def test_fork(self):
        """A child with a context of its own counts beside its parent; one that ends takes nothing along."""
        then = """
for own in (False, True):
    pid = os.fork()
    if not pid:
        if own:
            assert opened(sys.argv[1])
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
print("forked", flush=True)
"""
        holder = self.hold(then=then + WAIT)
        self.assertEqual(holder.stdout.readline(), "forked\n")
        self.stats(self.pingpong(100, 64))
        self.assertEqual(self.read()["rdma_sends"], 200)
        self.end(holder)

    def test_last_one(self):
        """Without a helper the counts go with the last process that has had the device open, and no segment is left, by SIGKILL neither."""
        def segments():
            rows = [l.split() for l in pathlib.Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
            return {r[1] for r in rows if int(r[3]) >= 1 << 24 and int(r[7]) == os.geteuid()}
        self.wait_for(lambda: not any(self.read().values()), "end of the others'")
        holder = self.hold()
        self.stats(self.pingpong(100, 64))
        self.assertEqual(self.read()["rdma_sends"], 200)
        before = segments()
        self.assertTrue(before)
        holder.kill()
        self.end(holder)
        self.assertFalse(any(self.read().values()))
        self.assertLess(segments() & before, before)

    def test_closed_and_open(self):
        """A process that closes the device keeps the counts, and may open it again."""
        holder = self.hold(then="""
for _ in range(20):
    assert not v.ibv_close_device(context)
    context = opened(sys.argv[1])
    assert context
v.ibv_close_device(context)
print("closed", flush=True)
""" + WAIT)
        self.assertEqual(holder.stdout.readline(), "closed\n")
        self.stats(self.pingpong(10, 64))
        self.assertEqual(self.read()["rdma_sends"], 20)
        self.end(holder)

    def test_devices_apart(self):
        holder = self.hold(DEVICE)
        self.stats(self.pingpong(10, 64))
        self.assertEqual(self.read()["rdma_sends"], 20)
        self.assertFalse(any(self.read(DEVICE).values()))
        self.end(holder)

    def test_other_namespace(self):
        """Devices of one name in two network namespaces."""
        holder = self.hold()
        self.stats(self.pingpong(10, 64))
        here = self.read()
        self.assertEqual(here["rdma_sends"], 20)
        cat = "ip link set lo up && cat /sys/class/infiniband/rpw_lo/ports/1/hw_counters/rdma_sends"
        self.assertEqual(run("unshare", "-n", "sh", "-c", cat).stdout, "0\n")
        inside = self.start("unshare", "-n", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh", sys.executable, "-c", HOLD + """
import subprocess
print(subprocess.run(["cat", "/sys/class/infiniband/rpw_lo/ports/1/hw_counters/rdma_sends"], capture_output=True, text=True).stdout, flush=True, end="")
""" + WAIT, "rpw_lo")
        self.assertEqual([inside.stdout.readline() for _ in range(2)], ["ready\n", "0\n"])
        self.assertEqual(self.read(), here)
        self.end(inside)
        self.assertEqual(self.read(), here)
        self.end(holder)

    def test_other_user(self):
        """Another user sees that there are counters, and that he has counted nothing."""
        holder = self.hold()
        self.stats(self.pingpong(10, 64))
        tried = subprocess.run(["setpriv", "--reuid", "4711", "--clear-groups", "true"], capture_output=True, text=True)
        if tried.returncode:
            self.skipTest(f"one user alone here: {tried.stderr.strip()}")
        theirs = run("setpriv", "--reuid", "4711", "--clear-groups", "cat", "/sys/class/infiniband/rpw_lo/ports/1/hw_counters/rdma_sends", ROPEWAY_LOG="error", check=False)
        if theirs.returncode and "LD_PRELOAD" in theirs.stderr:
            self.skipTest(f"another user cannot read the build: {theirs.stderr}")
        self.assertEqual(theirs.stdout, "0\n", theirs.stderr)
        self.assertEqual(self.read()["rdma_sends"], 20)
        self.end(holder)

    def test_helper_keeps(self):
        """With a peer on another host (namespace) there is a helper, and the counts outlive the process, for as long as it does."""
        peer = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo ready; read x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            peer.stdout.readline()
            for c in ("link add e0 type veth peer name e1", f"link set e1 netns {peer.pid}", "addr add 10.9.7.1/24 dev e0", "link set e0 up"):
                run("ip", *c.split(), preload=False)
            there = ("nsenter", f"--net=/proc/{peer.pid}/ns/net")
            for c in ("addr add 10.9.7.2/24 dev e1", "link set e1 up", "link set lo up"):
                run(*there, "ip", *c.split(), preload=False)
            # long enough for a helper to come up in the meantime
            command = ("ibv_rc_pingpong", "-g", "1", "-n", "20000", "-s", "64")
            server = self.start(*command, "-d", "rpw_e1", prefix=there)
            self.wait_for(lambda: self.listening(peer.pid), "server")
            client = self.start(*command, "-d", "rpw_e0", "10.9.7.2")
            self.wait_for(helpers, "helper")
            for helper in helpers():
                os.kill(helper, signal.SIGSTOP)
            self.stats([client, server])
            self.assertEqual(self.read("rpw_e0")["rdma_sends"], 20000)
            for helper in helpers():
                os.kill(helper, signal.SIGCONT)
            self.wait_for(lambda: not any(self.read("rpw_e0").values()), "end of the helper")
        finally:
            peer.communicate("\n")
            subprocess.run(["ip", "link", "del", "e0"], capture_output=True)

    def test_read_only(self):
        for path in (f"{CLASS}/ports/1/counters/port_xmit_data", f"{CLASS}/ports/1/hw_counters/lifespan"):
            self.assertIn("Permission denied", run("sh", "-c", f"echo 0 >{path}", check=False).stderr)
        self.assertEqual(sh(f"ls {CLASS}/ports/1/counters | wc -l; cat {CLASS}/ports/1/counters/* | grep -cv '^[0-9][0-9]*$' || true"), "19\n0\n")


class Cost(unittest.TestCase):
    def test_cost(self):
        """Printed, not asserted: ns that a call about another path costs more, before and after the program has looked; us at start."""
        rounds = {"without": [], "with": [], "looked": []}
        for _ in range(3):
            rounds["without"].append(run(os.environ["COST"], preload=False).stdout)
            rounds["with"].append(run(os.environ["COST"]).stdout)
            rounds["looked"].append(run(os.environ["COST"], "looked").stdout)
        mid = {}
        for kind, outs in rounds.items():
            by_name = {}
            for out in outs:
                for line in out.splitlines():
                    name, ns = line.split()
                    by_name.setdefault(name, []).append(float(ns))
            mid[kind] = {n: statistics.median(v) for n, v in by_name.items()}
        self.assertGreater(len(mid["with"]), 10)
        print("\ncost, ns: call, the call itself, more with the drop-in, and once the program has looked")
        for name, ns in mid["without"].items():
            print(f"  {name:16}{ns:9.1f}{mid['with'][name] - ns:+9.1f}{mid['looked'][name] - ns:+9.1f}")
        def start(preload):
            from_s = time.monotonic()
            for _ in range(20):
                run("/bin/true", preload=preload)
            return (time.monotonic() - from_s) * 5e4
        pairs = [(start(False), start(True)) for _ in range(3)]
        print(f"  start of /bin/true: {statistics.median(b - a for a, b in pairs):.0f} us more than {statistics.median(a for a, _ in pairs):.0f} us", flush=True)


if __name__ == "__main__":
    spaces.enter()
    sys.argv.pop(1)
    unittest.main(verbosity=1)
