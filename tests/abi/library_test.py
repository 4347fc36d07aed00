#!/usr/bin/python3
"""The versioned library, ropeway's own libibverbs.so.1: its symbols beside rdma-core's, and programs of the distribution that find it by LD_LIBRARY_PATH alone, with the distribution's library and without.

Usage: library_test.py BUILD_DIR [unittest arguments]. MERGED, MARSHAL and FAKE_DIR are in the environment.
"""
import ast
import glob
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import ucx_perftest  # noqa: E402
from lib.preload import preloadable  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
HERE = pathlib.Path(__file__).resolve().parent
ROPEWAY, DROPIN = BUILD / "ropeway", BUILD / "libropeway-verbs.so"
FOLDER = BUILD / "src" / "library"
LIBRARY = FOLDER / "libibverbs.so.1"
ENV = {k: v for k, v in os.environ.items() if not k.startswith("ROPEWAY_") and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH", "ASAN_OPTIONS")}
ENV["ROPEWAY_DEVICES"] = "lo"  # the same on every machine
FAKE = pathlib.Path(os.environ["FAKE_DIR"])
# As exports_test.py has them: the calls of the C library that it stands in front of.
HOOKS, = (ast.literal_eval(n.value.args[0]) for n in ast.parse((HERE / "exports_test.py").read_text()).body if isinstance(n, ast.Assign) and n.targets[0].id == "HOOKS")

DEVICES = """
import ctypes, sys
verbs = ctypes.CDLL(sys.argv[1])
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype, verbs.ibv_get_device_name.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
verbs.ibv_open_device.restype, verbs.ibv_open_device.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
verbs.ibv_close_device.argtypes = [ctypes.c_void_p]
n = ctypes.c_int()
devices = verbs.ibv_get_device_list(ctypes.byref(n))
names = [verbs.ibv_get_device_name(devices[i]).decode() for i in range(n.value)]
context = verbs.ibv_open_device(devices[names.index("rpw_lo")])
print(*sorted(names), bool(context), verbs.ibv_close_device(context))
"""
VERSIONS = """
import ctypes, sys
verbs, c = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(None)
class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("at", ctypes.c_void_p)]
c.dlvsym.restype, c.dlvsym.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
for line in sys.stdin:
    name, version = line.split()
    at, info = c.dlvsym(verbs._handle, name.encode(), version.encode()), Info()
    if not at or not c.dladdr(ctypes.c_void_p(at), ctypes.byref(info)) or info.file.decode() != sys.argv[1]:
        print(name, version, at, info.file)
"""
# Without the distribution's library: what is left of the calls that go there.
NOBODY = """
import ctypes, sys
verbs, c = ctypes.CDLL(sys.argv[1], use_errno=True), ctypes.CDLL(None)
c.dlvsym.restype, c.dlvsym.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
old = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, use_errno=True)(c.dlvsym(verbs._handle, b"ibv_get_device_list", b"IBVERBS_1.0"))
print(old(None), ctypes.get_errno(), verbs.ibv_cmd_alloc_pd(None, None, None, 0, None, 0), verbs.ibv_cmd_poll_cq(None, 1, None), ctypes.get_errno(), verbs.ibv_dontfork_range(None, 0))
"""
PYVERBS = """
from pyverbs.device import Context
from pyverbs.cmid import CMEventChannel
print(Context(name="rpw_lo").query_port(1).state, bool(CMEventChannel()))
"""


def run(*command, library=FOLDER, **env):
    extra = {"LD_LIBRARY_PATH": str(library)} if library else {}
    return subprocess.run([str(c) for c in command], env={**ENV, **extra, **env}, capture_output=True, text=True, timeout=60)


def free_port():
    """A TCP port that nobody has; its number serves for services of rdma_cm, too."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def pair(server, client, library=FOLDER, prefix=(), **env):
    """Starts the server and, until it listens, the client again and again. Both results."""
    env = {**ENV, **({"LD_LIBRARY_PATH": str(library)} if library else {}), **env}
    with subprocess.Popen([*prefix, *server], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as s:
        try:
            for _ in range(100):
                c = subprocess.run([*prefix, *client], env=env, capture_output=True, text=True, timeout=60)
                if c.returncode == 0 or s.poll() is not None:
                    break
                time.sleep(0.1)
            out, _ = s.communicate(timeout=60)
        finally:
            s.kill()
    return c, s.returncode, out


def symbols(path):
    """'name@@version' of what a library defines, 'name' where it has none."""
    out = subprocess.run(["readelf", "--dyn-syms", "-W", path], check=True, capture_output=True, text=True).stdout
    fields = [line.split() for line in out.splitlines()]
    return {f[7] for f in fields if len(f) >= 8 and f[6] not in ("UND", "Ndx") and not f[7].startswith("IBVERBS_")}


def facts():
    lines = [line.split() for line in (HERE / "versions.txt").read_text().splitlines() if not line.startswith("#")]
    return {line[0] for line in lines if len(line) == 1}, {line[0] for line in lines}


def installed():
    """The distribution's library, or None."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    found = re.search(r"libibverbs\.so\.1 \(.*x86-64\) => (\S+)|libibverbs\.so\.1 .* => (\S+)", listed)
    return pathlib.Path(found[1] or found[2]) if found else None


def without_distribution():
    """What to put before a command so that the distribution's library cannot be read; or None, where namespaces are forbidden."""
    library = installed()
    prefix = ["unshare", "-rm", "sh", "-c", f'mount --bind /dev/null {library.resolve()} && exec "$@"', "sh"] if library else []
    return prefix if subprocess.run([*prefix, "true"], capture_output=True).returncode == 0 else None


class Base(unittest.TestCase):
    def ok(self, r):
        self.assertEqual(r.returncode, 0, f"{r.args}\nstdout: {r.stdout}\nstderr: {r.stderr}")
        return r

    def need(self, *programs):
        for program in programs:
            if not shutil.which(program):
                self.skipTest(f"no {program}")

    def masked(self):
        prefix = without_distribution()
        if prefix is None:
            self.skipTest("no user and mount namespaces here (unshare -rm), in which the distribution's library could be hidden")
        return prefix


class Symbols(Base):
    def test_versions_are_those_of_44_to_65(self):
        of_44, of_65 = facts()
        self.assertGreater(len(of_44), 150)
        self.assertLess(of_44, of_65)
        ours = symbols(LIBRARY)
        self.assertEqual({s for s in ours if "@" in s}, of_65)
        self.assertEqual([s for s in sorted(ours) if "@" not in s and s != "ropeway_path_word" and not re.fullmatch(HOOKS, s)], [])

    def test_the_installed_library_has_no_other(self):
        library = installed()
        if not library:
            self.skipTest("no libibverbs.so.1 here")
        theirs = {s for s in symbols(library) if "@" in s}
        self.assertGreater(len(theirs), 150)
        self.assertEqual(sorted(s for s in theirs - symbols(LIBRARY) if not re.search(r"@IBVERBS_1\.(19|[2-9]\d)$", s)), [])

    def test_the_nodes_follow_each_other(self):
        out = subprocess.run(["readelf", "-V", "-W", LIBRARY], check=True, capture_output=True, text=True).stdout
        names = re.findall(r"Rev: 1 .*Name: (\S+)", out)
        self.assertEqual(names, ["libibverbs.so.1", "IBVERBS_1.0", "IBVERBS_1.1", *(f"IBVERBS_1.{i}" for i in range(5, 19)), "IBVERBS_PRIVATE_34"])
        self.assertEqual(re.findall(r"Parent 1: (\S+)", out), names[1:-2])

    def test_dlvsym_finds_every_version(self):
        functions = [s.split("@", 1) for s in facts()[1] if not s.startswith("verbs_allow")]
        r = subprocess.run([sys.executable, "-c", VERSIONS, str(LIBRARY)], input="".join(f"{n} {v.lstrip('@')}\n" for n, v in functions), env=ENV, capture_output=True, text=True, timeout=60)
        self.assertEqual(self.ok(r).stdout, "")

    def test_structs_of_rdma_cm(self):
        library = installed()
        if not library:
            self.skipTest("no libibverbs.so.1 to compare with")
        self.ok(run(os.environ["MARSHAL"], LIBRARY, library, library=None))


class Found(Base):
    def devices(self, r):
        *names, opened, closed = self.ok(r).stdout.split()
        self.assertEqual((opened, closed), ("True", "0"))
        self.assertEqual(len(set(names)), len(names), "a device is listed twice")
        self.assertIn("rpw_lo", names)
        return names

    def test_by_path(self):
        self.devices(run(sys.executable, "-c", DEVICES, LIBRARY, library=None))

    def test_by_name(self):
        self.devices(run(sys.executable, "-c", DEVICES, "libibverbs.so.1"))

    def test_after_patchelf(self):
        """As wheels have them: the dynamic section is elsewhere."""
        self.need("patchelf")
        with tempfile.TemporaryDirectory() as folder:
            for library in (LIBRARY, DROPIN):
                copy = shutil.copy(library.resolve(), folder)
                self.ok(subprocess.run(["patchelf", "--set-rpath", "/nowhere/" + "x" * 4000, copy], capture_output=True, text=True))
                r = self.ok(subprocess.run([sys.executable, "-c", DEVICES, copy], env=ENV, capture_output=True, text=True, timeout=30))
                self.assertIn("rpw_lo", r.stdout)

    def test_beside_the_drop_in(self):
        """One device for both, whichever the loader took first."""
        alone = self.devices(run(sys.executable, "-c", DEVICES, LIBRARY, library=None))
        for name in LIBRARY, "libibverbs.so.1", DROPIN:
            for preload in preloadable(DROPIN), preloadable(LIBRARY):
                with self.subTest(name=name, preload=preload):
                    r = run(sys.executable, "-c", DEVICES, name, LD_PRELOAD=str(preload), ROPEWAY_STATS="1")
                    self.assertEqual(self.devices(r), alone)
                    self.assertLessEqual(r.stderr.count("ropeway statistics"), 1)

    def test_real_devices_are_the_distributions(self):
        path = f"{FOLDER}:{FAKE}"
        for order, env in ("real-first", {}), ("software-first", {"ROPEWAY_FIRST": "software"}), ("disabled", {"ROPEWAY_DISABLE": "1"}), ("hidden", {}):
            for preload in {}, {"LD_PRELOAD": str(preloadable(DROPIN))}:
                self.ok(run(os.environ["MERGED"], order, FAKE / "libibverbs.so.1", library=path, **env, **preload))

    def test_a_driver_reaches_the_distributions_library(self):
        code = f"""
import ctypes
provider, fake = ctypes.CDLL("{FAKE}/libfake_provider.so"), ctypes.CDLL("{FAKE}/libibverbs.so.1")
maps = open("/proc/self/maps").read()
print(provider.provider_calls(), fake.fake_registered(), "{LIBRARY.resolve()}" in maps, "{FAKE}" in maps)
"""
        self.assertEqual(self.ok(run(sys.executable, "-c", code, library=f"{FOLDER}:{FAKE}")).stdout, "123456789 1 True True\n")

    def test_without_the_distributions_library(self):
        prefix = self.masked()
        self.assertTrue(all(n.startswith("rpw_") for n in self.devices(run(*prefix, sys.executable, "-c", DEVICES, LIBRARY, library=None))))
        r = self.ok(run(*prefix, sys.executable, "-c", NOBODY, LIBRARY))
        self.assertEqual(r.stdout, "None 95 95 -1 95 0\n")
        self.assertEqual(len(r.stderr.splitlines()), 1, r.stderr)
        self.assertIn("the program calls ibv_get_device_list as libibverbs had it before 1.1 (2007)", r.stderr)


class Programs(Base):
    """Debian's, by LD_LIBRARY_PATH alone."""

    def both(self, server, client, **kwargs):
        c, rc, out = pair(server, client, **kwargs)
        self.assertEqual((c.returncode, rc), (0, 0), f"client: {c.stdout}{c.stderr}\nserver: {out}")
        return c.stdout

    def test_pingpong(self):
        self.need("ibv_rc_pingpong")
        server = ["ibv_rc_pingpong", "-d", "rpw_lo", "-g", "1", "-c", "-p", free_port()]
        self.assertIn("1000 iters", self.both(server, [*server, "127.0.0.1"]))

    def test_rping(self):
        self.need("rping")
        options = ["-a", "127.0.0.1", "-p", free_port(), "-C", "5", "-V"]
        self.both(["rping", "-s", *options], ["rping", "-c", *options])

    def test_perftest(self):
        self.need("ib_write_bw")
        server = ["ib_write_bw", "-d", "rpw_lo", "-x", "1", "-n", "200", "-p", free_port()]
        self.assertRegex(self.both(server, [*server, "127.0.0.1"]), r"\n 65536 +200 ")

    def test_without_rdma_core(self):
        self.need("ibv_rc_pingpong", "rping")
        prefix = self.masked()
        server = ["ibv_rc_pingpong", "-d", "rpw_lo", "-g", "1", "-c", "-p", free_port()]
        self.assertIn("1000 iters", self.both(server, [*server, "127.0.0.1"], prefix=prefix))
        options = ["-a", "127.0.0.1", "-p", free_port(), "-C", "5", "-V"]
        # and unasked by `ropeway run`
        command = [str(ROPEWAY), "run", "--", "rping"]
        self.both([*command, "-s", *options], [*command, "-c", *options], prefix=prefix, library=None)

    def test_ucx(self):
        self.need("ucx_info")
        r = self.ok(run("ucx_info", "-d"))
        self.assertRegex(r.stdout, r"Transport: rc_verbs\n# +Device: rpw_lo:1")
        self.assertIn("Connection manager: rdmacm", r.stdout)
        self.need("ucx_perftest")
        server = [*ucx_perftest.command().split(), "-p", free_port()]
        self.assertRegex(self.both(server, [*server, "127.0.0.1", "-t", "ucp_put_lat", "-n", "100", "-w", "10"], UCX_TLS="rc,self", UCX_NET_DEVICES="rpw_lo:1"), r"Final: +100 ")

    def test_pyverbs(self):
        if run("/usr/bin/python3", "-c", "import pyverbs.cmid", library=None).returncode:
            self.skipTest("no pyverbs")
        self.assertEqual(self.ok(run("/usr/bin/python3", "-c", PYVERBS)).stdout, "4 True\n")

    def test_run_library(self):
        got = self.ok(run(ROPEWAY, "run", "--print-library", library=None)).stdout
        self.assertEqual(got, f"{FOLDER}\n")
        self.assertEqual([p.name for p in FOLDER.glob("*.so*") if not p.is_dir()].count("libibverbs.so.1"), 1)
        first = self.ok(run(ROPEWAY, "run", "--library", "printenv", "LD_LIBRARY_PATH", library="/a:/b c:")).stdout
        self.assertEqual(first, f"{FOLDER}:/a:/b c:\n")
        self.assertEqual(self.ok(run(ROPEWAY, "run", "-l", ROPEWAY, "run", "-l", "printenv", "LD_LIBRARY_PATH", library=None)).stdout, f"{FOLDER}\n")
        if installed():
            self.assertEqual(run(ROPEWAY, "run", "printenv", "LD_LIBRARY_PATH", library=None).returncode, 1)


class Tree(Base):
    """A tree with what two programs need, and without libibverbs."""

    def test_a_tree_without_rdma_core(self):
        self.need("ibv_rc_pingpong", "rping")
        if subprocess.run(["unshare", "-r", "chroot", "/", "true"], capture_output=True).returncode:
            self.skipTest("no user namespaces here, in which chroot is allowed")
        with tempfile.TemporaryDirectory() as tree:
            # glibc opens it when a thread ends by pthread_exit, as rping's do
            libgcc = glob.glob("/lib/*/libgcc_s.so.1")

            def put(path):
                to = pathlib.Path(tree, str(path).lstrip("/"))
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(pathlib.Path(path).resolve(), to)
            for path in "ibv_rc_pingpong", "rping", str(LIBRARY), *libgcc:
                path = shutil.which(path) or path
                put(path)
                for needed in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", path], capture_output=True, text=True).stdout):
                    if "libibverbs" not in needed:
                        put(needed)
            for folder in "proc", "sys", "dev", "tmp":
                pathlib.Path(tree, folder).mkdir(exist_ok=True)
            self.assertEqual([p for p in pathlib.Path(tree).rglob("libibverbs*") if p.is_file()], [pathlib.Path(tree, str(LIBRARY).lstrip("/"))])
            prefix = ["unshare", "-rm", "sh", "-c", 't=$1; shift; for d in proc sys dev; do mount --rbind /$d "$t/$d" || exit; done; exec chroot "$t" "$@"', "sh", tree]
            server = ["/usr/bin/ibv_rc_pingpong", "-d", "rpw_lo", "-g", "1", "-c", "-p", free_port()]
            c, rc, out = pair(server, [*server, "127.0.0.1"], prefix=prefix)
            self.assertEqual((c.returncode, rc), (0, 0), f"client: {c.stdout}{c.stderr}\nserver: {out}")
            options = ["-a", "127.0.0.1", "-p", free_port(), "-C", "5", "-V"]
            c, rc, out = pair(["/usr/bin/rping", "-s", *options], ["/usr/bin/rping", "-c", *options], prefix=prefix)
            self.assertEqual((c.returncode, rc), (0, 0), f"client: {c.stdout}{c.stderr}\nserver: {out}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
