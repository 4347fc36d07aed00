#!/usr/bin/python3
"""`ropeway run --namespace`: what programs see that no preload reaches, who joins whom, who forbids it, and other users.

Usage: namespace_test.py BUILD [unittest arguments]. PLAIN and PLAIN_STATIC are in the environment: plain.c, linked both ways.
All of it runs in namespaces of its own: lo and one end of a veth, d0, with a /sys of theirs. As root also as an ordinary user, and against another.
"""
import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import spaces

BUILD = pathlib.Path(sys.argv[1]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
ROPEWAY = BUILD / "ropeway"
PLAIN, STATIC = os.environ["PLAIN"], os.environ["PLAIN_STATIC"]
ENV = {k: v for k, v in os.environ.items() if not k.startswith("ROPEWAY_") and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH", "ASAN_OPTIONS")}
ENV["ROPEWAY_DEVICES"] = "all"  # two devices are better than one to test a list: without it lo has none here
USER, GROUP, OTHER_GROUP, ATTACKER = 4711, 4712, 4713, 4714
ROOT = not os.environ.get("NAMESPACE_TEST_ALONE")
CLASSES = ["/sys/class/infiniband", "/sys/class/infiniband_verbs", "/sys/class/infiniband_mad", "/dev/infiniband"]
ALONE = dict(user=USER, group=GROUP, extra_groups=[OTHER_GROUP])
WAIT_S = 60
PORTS = iter(range(9000, 9999))

# What a static program sees otherwise than a preloaded one, and why.
DIFFERENT = {
    (r".*/gid_attrs/(types|ndevs)/\d+|.*/power/autosuspend_delay_ms", r"- .* ! (5|22)", r"- .* ! 13|- .* = "): "sysfs would answer with an error; a file of tmpfs cannot: it is not to be opened, but by root, to whom it is empty",
}


def start(*command, namespace=True, user=None, under=(), **more):
    command = [*under, *([ROPEWAY, "run", "--namespace", "--"] if namespace else []), *command]
    return subprocess.Popen([str(c) for c in command], env={**ENV, **more.pop("env", {})}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **(user or {}), **more)


def run(*command, check=True, **more):
    p = start(*command, **more)
    try:
        out, err = p.communicate(timeout=WAIT_S)
    except subprocess.TimeoutExpired:
        p.kill()
        p.communicate()
        raise AssertionError(f"{p.args}: no end") from None
    if check and p.returncode:
        raise AssertionError(f"{p.args}: {p.returncode}\nstdout: {out}\nstderr: {err}")
    return subprocess.CompletedProcess(p.args, p.returncode, out, err)


def busybox(script, **more):
    return run("busybox", "sh", "-ec", script, **more).stdout


def until(what):
    end = time.monotonic() + WAIT_S
    while not what():
        if time.monotonic() > end:
            raise AssertionError(f"it does not happen; in namespaces of ours: {marked()}")
        time.sleep(0.02)


def numbers(pid):
    return tuple(os.readlink(f"/proc/{pid}/ns/{n}") for n in ("user", "mnt"))


class Living:
    """A static program in the namespace, which waits."""

    def __init__(self, **more):
        self.p = start("busybox", "sh", "-c", "echo; read x", **more)
        if self.p.stdout.readline() != "\n":
            raise AssertionError(self.p.communicate(input=""))
        self.numbers = numbers(self.p.pid)

    def see(self, path):
        return os.path.lexists(f"/proc/{self.p.pid}/root{path}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.kill()
        self.p.communicate()


def marked():
    """Processes that have mounts of ours, with this network namespace's interfaces."""
    found, net = [], f"-{os.stat('/proc/self/ns/net').st_ino:x} "
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if re.search(" - tmpfs ropeway-.*" + net, pathlib.Path(f"/proc/{pid}/mountinfo").read_text()):
                found.append((pid, pathlib.Path(f"/proc/{pid}/comm").read_text().strip()))
        except OSError:
            pass
    return found


class EachUser:
    """The tests as root, who needs no user namespace, and as an ordinary user."""
    who = None

    def setUp(self):
        self.assertEqual(marked(), [], "something is left of another test")
        self.mounts = pathlib.Path("/proc/self/mountinfo").read_text()

    def tearDown(self):
        """Whatever the test has done, nothing is left, and no mount has come out."""
        until(lambda: not marked())
        self.assertEqual(pathlib.Path("/proc/self/mountinfo").read_text(), self.mounts)

    def busybox(self, script, **more):
        return busybox(script, user=self.who, **more)

    def living(self, **more):
        return Living(user=self.who, **more)

    def roots(self):
        links = self.busybox("ls -d /sys/class/infiniband/* /sys/class/infiniband_verbs/uverbs* /sys/class/misc/rdma_cm").split()
        self.assertEqual(len(links), 5, links)
        return CLASSES + links

    def settled(self, *command):
        """Lines that no counter changes while they are made."""
        seen = [None]
        until(lambda: seen.append(run(*command, user=self.who).stdout) or seen[-1] == seen[-2])
        return seen[-1].splitlines()

    def test_beside_a_preloaded_program(self):
        roots = self.roots()
        static = self.settled(STATIC, *roots)
        preloaded = run(ROPEWAY, "run", "--", PLAIN, *roots, namespace=False, user=self.who).stdout.splitlines()
        self.assertGreater(len(static), 200)
        self.assertGreater(sum(bool(re.search("/ports/1/(hw_)?counters/", line)) for line in static), 50)
        told = set()
        for a, b in zip(preloaded, static, strict=True):
            if a == b:
                continue
            path = b.split()[1]
            why = [w for w in DIFFERENT if re.fullmatch(w[0], path) and re.fullmatch(w[1], a) and re.fullmatch(w[2], b)]
            self.assertTrue(why, f"preloaded: {a}\nstatic: {b}")
            told.update(why)
        self.assertEqual(told, set(DIFFERENT), "a difference that is none any more")
        # a preloaded program in the namespace sees the same as a static one
        self.assertEqual(self.settled(PLAIN, *roots), static)
        print(f"\n{len(static)} lines, {sum(a != b for a, b in zip(preloaded, static))} differ with a reason", flush=True)

    def test_go(self):
        go = shutil.which("go")
        if not go:
            print("SKIPPED: no go: whether a Go program sees the tree was not tried", flush=True)
            self.skipTest("no go")
        with tempfile.TemporaryDirectory() as tmp:
            os.chmod(tmp, 0o755)
            run(go, "build", "-o", f"{tmp}/plain", HERE / "plain.go", namespace=False, env={"CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local", "GO111MODULE": "off", "GOCACHE": str(BUILD / "go-cache") if os.access(BUILD, os.W_OK) else tmp, "GOTELEMETRY": "off", "HOME": tmp})
            roots = self.roots()
            go, static = (lambda program=p: run(program, *roots, user=self.who).stdout for p in (f"{tmp}/plain", STATIC))
            self.assertRegex(go(), r"hw_counters/rdma_sends = \d")
            until(lambda: go() == static())  # counters may move in between

    def test_nothing_of_the_kernel_is_lost(self):
        walk = "find /sys /dev -path /dev/fd -prune -o -path /proc -prune -o -print 2>/dev/null | grep -v '^/dev/pts/'; true"
        outside = set(self.busybox(walk, namespace=False).splitlines())
        inside = set(self.busybox(walk).splitlines())
        self.assertGreater(len(outside), 1000)
        self.assertEqual(sorted(outside - inside), [])
        strange = [p for p in inside - outside if not re.search(r"/(infiniband|infiniband_verbs|infiniband_mad|rdma_cm|ropeway)(/|$)|/ropeway", p)]
        self.assertEqual(strange, [])
        same = "cat /sys/class/net/lo/mtu /sys/devices/virtual/net/lo/operstate; readlink /sys/class/net/lo; readlink /sys/class/net/d0; echo x >/dev/null; head -c 4 /dev/zero | od; ls -ld /dev/shm | cut -c1-10"
        self.assertEqual(self.busybox(same), self.busybox(same, namespace=False))

    def test_who_and_where_it_is(self):
        with tempfile.TemporaryDirectory() as tmp:
            if self.who:
                os.chown(tmp, -1, OTHER_GROUP)
                os.chmod(tmp, 0o770)
            path = os.path.join(tmp, "a b")
            script = "id -u; id -g; pwd; echo mine >f; cat f; umask; ls -n f | tr -s ' ' | cut -d' ' -f3,4"
            os.mkdir(path)
            os.chmod(path, 0o777)
            self.assertIn("infiniband", self.busybox("ls", cwd="/sys/class").split())
            there = self.busybox(script, cwd=path)
            self.assertEqual(there, self.busybox(script, cwd=path, namespace=False))
            with self.living():  # and by joining
                self.assertEqual(there, self.busybox(script, cwd=path))
                gone = os.path.join(path, "gone")
                os.mkdir(gone)
                self.assertEqual(self.busybox("rmdir ../gone; exec " + f"'{ROPEWAY}' run --namespace busybox sh -c 'cd ..; cd \"{path}\"; pwd'", cwd=gone, namespace=False), path + "\n")
                # the folder of the kernel's that is covered here
                self.assertIn("infiniband", self.busybox("ls", cwd="/sys/class").split())
                self.assertNotIn("infiniband", self.busybox("ls", cwd="/sys/class", namespace=False).split())
        self.assertEqual(self.busybox("getent hosts localhost | grep -c localhost"), "1\n")

    def test_children_are_preloaded(self):
        """A static shell that starts a verbs program: the device is there to be used."""
        out = self.busybox("ls /sys/class/infiniband; ibv_devinfo -d rpw_lo")
        self.assertIn("PORT_ACTIVE", out)
        self.assertEqual(self.busybox("ibv_devices 2>&1 | grep -c rpw_"), "2\n")
        # what no preload reaches cannot open one
        r = run("busybox", "sh", "-c", "exec 3<>/dev/infiniband/rdma_cm", user=self.who, check=False)
        self.assertNotEqual(r.returncode, 0)
        # a run in a run stays where it is
        self.assertEqual(*self.busybox(f"readlink /proc/self/ns/mnt; '{ROPEWAY}' run --namespace busybox readlink /proc/self/ns/mnt", env={"PATH": "/usr/bin:/bin"}).split())

    def test_runs_join(self):
        with self.living() as a, self.living() as b:
            self.assertEqual(a.numbers, b.numbers)
            self.assertNotEqual(a.numbers[1], numbers("self")[1])
            self.assertEqual(a.numbers[0] == numbers("self")[0], not self.who)
            a.p.kill()
            a.p.wait()
            with self.living() as c:
                self.assertEqual(c.numbers, b.numbers)
        until(lambda: not marked())
        with self.living() as d:
            self.assertTrue(d.see("/sys/class/infiniband/rpw_d0"))

    def test_what_is_new_is_for_new_runs(self):
        with self.living() as old:
            for command in ("link add d1 type veth peer name p1", "addr add 10.9.8.1/24 dev d1", "link set d1 up"):
                run("ip", *command.split(), namespace=False)
            try:
                with self.living() as new, self.living() as again:
                    self.assertTrue(new.see("/sys/class/infiniband/rpw_d1"))
                    self.assertTrue(new.see("/sys/class/infiniband/rpw_d0"))
                    self.assertFalse(old.see("/sys/class/infiniband/rpw_d1"))
                    self.assertEqual(new.numbers, again.numbers)
                    # peers all the same
                    self.assertEqual(new.numbers[0], old.numbers[0])
                    self.assertNotEqual(new.numbers[1], old.numbers[1])
            finally:
                run("ip", "link", "del", "d1", namespace=False)
            until(lambda: not os.path.exists("/sys/class/net/d1"))
            with self.living() as last:
                self.assertEqual(last.numbers, old.numbers)
                self.assertFalse(last.see("/sys/class/infiniband/rpw_d1"))

    def test_fifty_at_once(self):
        all = [start("busybox", "sh", "-c", "ls /sys/class/infiniband; read x", user=self.who) for _ in range(50)]
        try:
            for p in all:
                self.assertEqual([p.stdout.readline(), p.stdout.readline()], ["rpw_d0\n", "rpw_lo\n"])
            self.assertEqual(len({numbers(p.pid) for p in all}), 1)
        finally:
            for p in all:
                p.kill()
            for p in all:
                p.communicate()

    def test_killed_while_it_is_made(self):
        """SIGKILL at any moment leaves nothing, and nobody waits for the dead."""
        for i in range(20):
            p = start("busybox", "true", user=self.who)
            time.sleep(0.0011 * i)
            p.kill()
            p.communicate()
        self.assertEqual(self.busybox("ls /sys/class/infiniband | wc -l"), "2\n")

    def keepers(self):
        return [pid for pid, name in marked() if name == "ropeway-keeper"]

    def test_counters_move(self):
        """A static program reads what a preloaded one outside reads, once the keeper has come by; so it does where the keeper was killed, and somebody has joined since."""
        path = "/sys/class/infiniband/rpw_lo/ports/1"
        names = "counters/port_xmit_data counters/unicast_rcv_packets hw_counters/rdma_sends hw_counters/sent_pkts".split()
        cat = "cat " + " ".join(f"{path}/{n}" for n in names)
        inside = lambda: run("busybox", "nsenter", f"--target={a.p.pid}", *(["--user", "--preserve-credentials"] if self.who else []), "--mount", "sh", "-c", cat, namespace=False, user=self.who).stdout
        # counts last as long as somebody has had a device open
        watch = start(ROPEWAY, "run", "--", "ibv_asyncwatch", "-d", "rpw_lo", namespace=False, user=self.who)
        self.addCleanup(lambda: (watch.kill(), watch.communicate()))
        self.assertIn("async event FD", watch.stdout.readline())
        with self.living() as a:
            before = inside()
            self.assertEqual(before, "0\n" * len(names))
            for killed in (False, True):
                if killed:
                    for pid in self.keepers():
                        os.kill(int(pid), signal.SIGKILL)
                    until(lambda: not self.keepers())
                self.pingpong(True, not killed)
                until(lambda: len(self.keepers()) == 1)
                want = run(ROPEWAY, "run", "--", "sh", "-c", cat, namespace=False, user=self.who).stdout
                self.assertNotEqual(want, before)
                until(lambda: inside() == want)
                before = want
            folder = f"/proc/{a.p.pid}/root{path}"
            self.assertEqual([n for n in os.listdir(folder) if n.startswith(".")], [])

    def test_one_keeper(self):
        """One for all, that is no child of the program, has nothing of its starter's open, and ends with the last."""
        with self.living() as a, self.living() as b:
            until(lambda: len(self.keepers()) == 1)
            (pid,) = self.keepers()
            self.assertNotIn(int(re.search(r"PPid:\t(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]), (a.p.pid, b.p.pid))
            links = set.intersection(*(opened(pid) for _ in range(10)))  # what it reads at the moment, as /proc, is not kept open
            self.assertFalse([to for to in links if not re.match(r"/dev/null|anon_inode:|.*/ports/1/(hw_)?counters", to)], links)
            a.p.kill()
            a.p.wait()
            time.sleep(0.1)
            self.assertEqual(self.keepers(), [pid])
        until(lambda: not self.keepers())

    def pingpong(self, *inside):
        port = str(next(PORTS))
        program = ("ibv_rc_pingpong", "-d", "rpw_lo", "-g", "1", "-p", port, "-n", "100", "-s", "70000", "-c")
        how = [[ROPEWAY, "run", "--stats", *(["--namespace"] if i else []), "--"] for i in inside]
        server = start(*how[0], *program, namespace=False, user=self.who)
        self.addCleanup(lambda: (server.poll() is None and server.kill(), server.communicate()))
        until(lambda: server.poll() is not None or re.search(rf":{int(port):04X} 0+:0000 0A", pathlib.Path("/proc/net/tcp").read_text() + pathlib.Path("/proc/net/tcp6").read_text()))
        client = run(*how[1], *program, "127.0.0.1", namespace=False, user=self.who, check=False)
        if client.returncode:
            server.kill()
        out, err = server.communicate(timeout=WAIT_S)
        self.assertEqual((client.returncode, server.returncode), (0, 0), client.stdout + client.stderr + out + err)
        said = [out + err, client.stdout + client.stderr]
        return [[int(re.search(rf"{what} +(\d+)", s)[1]) for what in ("sent through memory", "of them by reference")] for s in said]

    def test_peers(self):
        for inside in ((True, True), (True, False), (False, True)):
            got = self.pingpong(*inside)
            for (through_memory, reference), here in zip(got, inside):
                self.assertGreater(through_memory, 100, (inside, got))
                # a program outside may read those in the user namespace, and not the other way round
                other = inside[1] if here == inside[0] and inside[0] != inside[1] else not here if inside[0] != inside[1] else here
                may = not self.who or here or not other
                self.assertEqual(reference > 0, may, (inside, got))

    def test_beside_real_devices(self):
        """As far as a program can see: folders that are mounted over /sys/class and /dev/infiniband."""
        setup = r"""mkdir $t/net; mount --rbind /sys/class/net $t/net
mount -t tmpfs t /sys/class; mkdir -p /sys/class/net /sys/class/infiniband/mlx5_0/ports/1 /sys/class/infiniband_verbs/uverbs0 /sys/class/misc
mount --rbind $t/net /sys/class/net
echo 1234 >/sys/class/infiniband/mlx5_0/node_guid; echo 9 >/sys/class/infiniband_verbs/abi_version; ln -s ../mlx5_0 /sys/class/infiniband/link
""" + (f"exec setpriv --reuid {USER} --regid {GROUP} --clear-groups " if self.who else "exec ") + '"$@"'
        script = "ls /sys/class/infiniband; cat /sys/class/infiniband/mlx5_0/node_guid /sys/class/infiniband/rpw_lo/node_type /sys/class/infiniband_verbs/abi_version; readlink /sys/class/infiniband/link; ls /sys/class/infiniband_verbs | wc -l; ls /sys/class/net"
        with tempfile.TemporaryDirectory() as tmp:
            seen = busybox(script, under=("unshare", "-m", "sh", "-ec", setup, "sh"), env={"t": tmp})
        self.assertEqual(seen, "link\nmlx5_0\nrpw_d0\nrpw_lo\n1234\n1: CA\n9\n../mlx5_0\n4\nd0\nlo\np0\n")

    def test_cost(self):
        """Printed, not asserted."""
        def took(**more):
            best = []
            for _ in range(15):
                begin = time.monotonic()
                run("busybox", "true", user=self.who, **more)
                best.append(time.monotonic() - begin)
            return sorted(best)[len(best) // 2] * 1000
        plain = took(namespace=False, under=(ROPEWAY, "run", "--"))
        alone = took()
        with self.living():
            print(f"\nms, median: run {plain:.1f}, with a new namespace {alone:.1f}, joined {took():.1f}", flush=True)


class AsRoot(EachUser, unittest.TestCase):
    def test_chroot(self):
        """Of a run that has gone into another root nobody gets that root."""
        with tempfile.TemporaryDirectory() as tmp:
            shutil.copy(shutil.which("busybox"), tmp)
            p = start("busybox", "chroot", tmp, "/busybox", "sh", "-c", "echo; read x")
            try:
                self.assertEqual(p.stdout.readline(), "\n")
                self.assertEqual(self.busybox("ls -d /sys/class/infiniband/rpw_lo /etc/passwd"), "/etc/passwd\n/sys/class/infiniband/rpw_lo\n")
            finally:
                p.kill()
                p.communicate()


@unittest.skipUnless(ROOT, "only root can be an ordinary user as well")
class AsUser(EachUser, unittest.TestCase):
    who = ALONE

    def test_a_name_that_is_held(self):
        """Another user has taken the names of the turns, and answers or not: the runs are together all the same."""
        code = f"import os, socket, time\nos.setuid({ATTACKER})\nkept = []\nfor i in range(4):\n    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET if i < 2 else socket.SOCK_STREAM)\n    s.bind(f'\\0ropeway/{USER}/namespace/{{i}}')\n    i % 2 and s.listen()\n    kept.append(s)\nprint(flush=True)\ntime.sleep(100)"
        p = start(sys.executable, "-c", code, namespace=False)
        try:
            self.assertEqual(p.stdout.readline(), "\n")
            with self.living() as a, self.living() as b:
                self.assertEqual(a.numbers, b.numbers)
        finally:
            p.kill()
            p.communicate()

    def test_a_stopped_run(self):
        """Someone of the same user has the turn and does not go on: the others wait, and go on as soon as he is killed. (After 10 s they go without; not waited for here.)"""
        code = f"import os, socket, time\nos.setuid({USER})\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ns.bind('\\0ropeway/{USER}/namespace/0')\ns.listen()\nprint(flush=True)\ntime.sleep(100)"
        p = start(sys.executable, "-c", code, namespace=False)
        try:
            self.assertEqual(p.stdout.readline(), "\n")
            waiting = start("busybox", "ls", "/sys/class/infiniband", user=ALONE)
            time.sleep(0.2)
            self.assertIsNone(waiting.poll())
            p.kill()  # what a SIGKILL frees
            self.assertEqual(waiting.communicate(timeout=WAIT_S)[0], "rpw_d0\nrpw_lo\n")
        finally:
            p.kill()
            p.communicate()

    def test_set_user_id_programs_gain_nothing(self):
        with tempfile.TemporaryDirectory() as tmp:
            os.chmod(tmp, 0o755)
            copy = shutil.copy("/usr/bin/id", tmp)
            os.chmod(copy, 0o4755)
            self.assertIn("euid=0", run(copy, namespace=False, user=self.who).stdout, f"{tmp} lets nobody gain anything")
            self.assertNotIn("euid", run(copy, user=self.who).stdout)

    def forged(self, source, user):
        """A process in a user and mount namespace of its own, which has our mark and a folder of its own making."""
        script = f"mount -t tmpfs {source} /sys/class && mkdir -p /sys/class/infiniband/forged && echo && read x"
        p = start("unshare", "-Urm", "sh", "-c", script, namespace=False, user=user)
        self.assertEqual(p.stdout.readline(), "\n")
        return p

    def source(self):
        with self.living() as a:
            return re.search(r" - tmpfs (ropeway-\S+)", pathlib.Path(f"/proc/{a.p.pid}/mountinfo").read_text())[1]

    def test_another_users_namespace(self):
        source = self.source()
        p = self.forged(source, dict(user=ATTACKER, group=ATTACKER, extra_groups=[]))
        try:
            self.assertEqual(self.busybox("ls /sys/class/infiniband"), "rpw_d0\nrpw_lo\n")
            self.assertEqual(run("busybox", "ls", "/sys/class/infiniband").stdout, "rpw_d0\nrpw_lo\n")
            with self.living() as a, Living(user=dict(user=ATTACKER, group=ATTACKER, extra_groups=[])) as b:
                self.assertNotEqual(a.numbers[0], b.numbers[0])
                # nor can he go into mine
                r = run("busybox", "nsenter", f"--user=/proc/{a.p.pid}/ns/user", "true", namespace=False, check=False, user=dict(user=ATTACKER, group=ATTACKER, extra_groups=[]))
                self.assertNotEqual(r.returncode, 0)
        finally:
            p.kill()
            p.communicate()

    def test_a_namespace_in_a_namespace(self):
        """One of the same user with the mark, but made elsewhere: in a user namespace that is none of ours."""
        source = self.source()
        script = f"unshare -Urm sh -c 'mount -t tmpfs {source} /sys/class && mkdir -p /sys/class/infiniband/forged && echo && read x'"
        p = start("unshare", "-Ur", "sh", "-c", script, namespace=False, user=ALONE)
        try:
            self.assertEqual(p.stdout.readline(), "\n")
            self.assertEqual(self.busybox("ls /sys/class/infiniband"), "rpw_d0\nrpw_lo\n")
        finally:
            p.kill()
            p.communicate()


# ---- who forbids it ----

def without_unshare():
    """As a container's seccomp filter has it: unshare(2) fails with EPERM."""
    insns = [(0x20, 0, 0, 0), (0x15, 0, 1, {"x86_64": 272, "aarch64": 97}[os.uname().machine]), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7fff0000)]
    code = b"".join(struct.pack("HBBI", *i) for i in insns)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(insns), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


class Forbidden(unittest.TestCase):
    def said(self, *under, **more):
        r = run("busybox", "echo", "started", check=False, under=under, **more)
        self.assertEqual((r.returncode, r.stdout), (1, ""), r.stderr)
        self.assertEqual(r.stderr.count("\n"), 1, r.stderr)
        self.assertTrue(r.stderr.startswith("ropeway run: --namespace: "), r.stderr)
        return r.stderr

    no_rights = "exec setpriv --bounding-set=-all --inh-caps=-all \"$@\""

    def test_no_user_namespaces(self):
        said = self.said("unshare", "-Ur", "sh", "-ec", "echo 0 >/proc/sys/user/max_user_namespaces; " + self.no_rights, "sh")
        self.assertIn("user.max_user_namespaces", said)
        self.assertIn("cannot make a user namespace", said)

    def test_no_mount_namespaces(self):
        self.assertIn("user.max_mnt_namespaces", self.said("unshare", "-Ur", "sh", "-ec", "echo 0 >/proc/sys/user/max_mnt_namespaces; exec \"$@\"", "sh"))

    def test_seccomp(self):
        self.assertIn("a seccomp filter forbids it", self.said(preexec_fn=without_unshare))

    @unittest.skipUnless(ROOT, "only root can be an ordinary user as well")
    def test_seccomp_for_a_user(self):
        self.assertIn("a seccomp filter forbids it", self.said(preexec_fn=without_unshare, user=ALONE))

    @unittest.skipUnless(ROOT, "only root can be an ordinary user as well")
    def test_settings(self):
        """The settings of Debian's and Ubuntu's kernels, by a stand-in for /proc/sys/kernel, and a kernel that forbids."""
        for name, value in (("unprivileged_userns_clone", 0), ("apparmor_restrict_unprivileged_userns", 1)):
            script = f"mount -t tmpfs t /proc/sys/kernel; echo {value} >/proc/sys/kernel/{name}; exec setpriv --reuid {USER} --regid {GROUP} --clear-groups {sys.executable} -B {__file__} --without-unshare \"$@\""
            self.assertIn(f"kernel.{name}", self.said("unshare", "-m", "sh", "-ec", script, "sh"))

    def test_without_it(self):
        """The warning for a static program names it."""
        r = run(ROPEWAY, "run", "busybox", "true", namespace=False)
        self.assertIn("with --namespace it sees their files", r.stderr)
        self.assertEqual(run("busybox", "true").stderr, "")


def opened(pid):
    """What a process has open, after a moment."""
    time.sleep(0.02)
    links = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed by now
            links.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return links


def look_who():
    """Before the user namespace, if there is one: can there be other users?"""
    try:
        can = not os.geteuid() and not subprocess.run([ROPEWAY, "--version"], user=USER, group=GROUP, extra_groups=[], capture_output=True, check=False).returncode
    except PermissionError:  # the build lies in a home of mode 0700
        can = False
    if not can:
        print(f"SKIPPED: nobody here can be user {USER}, or that user cannot run {ROPEWAY}: only as this user", flush=True)
        os.environ["NAMESPACE_TEST_ALONE"] = "1"


if __name__ == "__main__":
    if sys.argv[1] == "--without-unshare":
        without_unshare()
        os.execvp(sys.argv[2], sys.argv[2:])
    spaces.enter(look_who, "unshare", "-Ur")
    sys.argv.pop(1)
    unittest.main(verbosity=1)
