#!/usr/bin/python3
"""Programs that ask for devices by NETLINK_RDMA, under `ropeway run`: the distribution's rdma(8), and a program that does everything to such a socket; and what shows
devices by files beside it.

Usage: netlink_test.py BUILD [unittest arguments]. SOCKETS and COST are in the environment: the programs of this folder.
All of it runs in namespaces of its own: lo, and d0, one end of a veth, with a /sys of theirs. Beside a kernel's own devices: tests/interop/beside.py.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from preload import preloadable  # noqa: E402

BUILD = pathlib.Path(sys.argv[1]).resolve()
DROPIN = preloadable(BUILD / "libropeway-verbs.so")
ENV = {k: v for k, v in os.environ.items() if not k.startswith("ROPEWAY_") and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
ENV["ROPEWAY_DEVICES"] = "all"  # two devices are better than one to test a list: without it lo has none here


def run(*command, wrap=True, check=True, **env):
    command = [str(c) for c in command]
    r = subprocess.run([str(BUILD / "ropeway"), "run", *command] if wrap else command, env={**ENV, **env}, capture_output=True, text=True, timeout=60)
    if check and r.returncode:
        raise AssertionError(f"{r.args}: {r.returncode}\nstdout: {r.stdout}\nstderr: {r.stderr}")
    return r


def lines(*command, **more):
    return [line.rstrip() for line in run(*command, **more).stdout.splitlines()]


def contents(path):
    return run("cat", path).stdout.strip()


def contents_of_folder(path):
    return {name: int(contents(f"{path}/{name}")) for name in run("ls", path).stdout.split()}


def guid(device):
    """As rdma prints it: the file's, its groups in that order."""
    return contents(f"/sys/class/infiniband/{device}/node_guid")


def index(interface):
    return int(pathlib.Path(f"/sys/class/net/{interface}/ifindex").read_text())


def number(interface):
    """The device's: loopback's is behind the others'."""
    return (1000000 if interface == "lo" else 1000) + index(interface)


DEVICES = {"rpw_d0": "d0", "rpw_lo": "lo"}
# iproute2 6.15 (Debian 13) prints two attributes that 6.1 (Debian 12) skips, and each counter on a line of its own.
NEWER = tuple(map(int, re.search(r"iproute2-(\d+)\.(\d+)", subprocess.run(["rdma", "-V"], capture_output=True, text=True, check=True).stdout).groups())) >= (6, 15)


class Rdma(unittest.TestCase):
    maxDiff = None

    def test_dev(self):
        version = contents("/sys/class/infiniband/rpw_lo/fw_ver")
        want = [f"{number(i)}: {d}: node_type ca {'protocol roce ' * NEWER}fw {version} node_guid {guid(d)} sys_image_guid {guid(d)}" for d, i in DEVICES.items()]
        self.assertEqual(lines("rdma", "dev"), want)
        self.assertEqual(lines("rdma", "dev", "show", "rpw_lo"), want[1:])
        self.assertEqual(json.loads(run("rdma", "-j", "dev").stdout),
                         [{"ifindex": number(i), "ifname": d, "node_type": "ca", **({"protocol": "roce"} if NEWER else {}), "fw": version, "node_guid": guid(d), "sys_image_guid": guid(d)} for d, i in DEVICES.items()])
        detail = run("rdma", "-d", "dev").stdout
        self.assertEqual(detail.count("caps: <BAD_PKEY_CNTR, BAD_QKEY_CNTR, PORT_ACTIVE_EVENT, SYS_IMAGE_GUID, RC_RNR_NAK_GEN, SRQ_RESIZE, MEM_WINDOW, MEM_MGT_EXTENSIONS, MEM_WINDOW_TYPE_2B>"), 2)
        self.assertIn("Wrong device name", run("rdma", "dev", "show", "rpw_d1", check=False).stderr)

    def test_link(self):
        self.assertEqual(lines("rdma", "link"), [f"link {d}/1 state ACTIVE physical_state LINK_UP netdev {i}" for d, i in DEVICES.items()])
        self.assertEqual(lines("rdma", "-d", "link"), [f"link {d}/1 state ACTIVE physical_state LINK_UP netdev {i} netdev_index {index(i)}" for d, i in DEVICES.items()])
        self.assertEqual(json.loads(run("rdma", "-j", "link").stdout),
                         [{"ifindex": number(i), "ifname": d, "port": 1, "state": "ACTIVE", "physical_state": "LINK_UP", "netdev": i, "netdev_index": index(i)} for d, i in DEVICES.items()])
        run("ip", "link", "set", "d0", "down", wrap=False)
        try:
            self.assertEqual(lines("rdma", "link", "show", "rpw_d0/1"), ["link rpw_d0/1 state DOWN physical_state DISABLED netdev d0"])
        finally:
            run("ip", "link", "set", "d0", "up", wrap=False)

    def test_system_and_resources(self):
        self.assertEqual(lines("rdma", "system"), [f"netns exclusive {'monitor off ' * NEWER}copy-on-fork on"])
        none = " ".join(f"{k} 0" for k in ("pd", "cq", "qp", "cm_id", "mr", "ctx", "srq"))
        self.assertEqual(lines("rdma", "res"), [f"{number(i)}: {d}: {none}" for d, i in DEVICES.items()])
        for kind in ("qp", "cq", "mr", "pd", "cm_id", "ctx", "srq"):
            self.assertEqual(lines("rdma", "res", "show", kind), [])
            self.assertEqual(json.loads(run("rdma", "-j", "res", "show", kind).stdout), [])

    def test_others(self):
        """What another process of the user has is counted, its QPs are listed too; and goes with it."""
        def summary():
            return next(line for line in lines("rdma", "res", "show", "rpw_d0")).split(": ")[-1]

        server = subprocess.Popen([str(BUILD / "ropeway"), "run", "ibv_rc_pingpong", "-d", "rpw_d0", "-g", "0", "-p", "18514"], env=ENV, stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 30
            while " qp 1 " not in summary() and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertEqual(summary(), "pd 1 cq 1 qp 1 cm_id 0 mr 1 ctx 1 srq 0")
            qp, = lines("rdma", "res", "show", "qp")
            self.assertRegex(qp, rf"link rpw_d0/- lqpn \d+ .*type RC state INIT .*pid {server.pid} comm ibv_rc_pingpong")
            self.assertEqual(lines("rdma", "res", "show", "cq"), [])
        finally:
            server.kill()
            server.wait()
        self.assertEqual(summary(), "pd 0 cq 0 qp 0 cm_id 0 mr 0 ctx 0 srq 0")

    def test_statistic(self):
        """The files of hw_counters, name by name."""
        said = run("rdma", "statistic").stdout
        for link, d in zip(re.findall(r"^link .*(?:\n +.*)*", said, re.M), DEVICES, strict=True):
            words = link.split()
            self.assertEqual(words[:2], ["link", f"{d}/1"])
            names = contents_of_folder(f"/sys/class/infiniband/{d}/ports/1/hw_counters")
            self.assertEqual({n: int(v) for n, v in zip(words[2::2], words[3::2], strict=True)}, names)

    def test_changes_are_refused(self):
        for command in (("dev", "set", "rpw_lo", "name", "other"), ("link", "add", "rxe0", "type", "rxe", "netdev", "lo")):
            r = run("rdma", *command, check=False)
            self.assertNotEqual(r.returncode, 0)
            self.assertRegex(r.stderr, "ip link.*|not permitted")

    def test_without(self):
        """Where the drop-in is off, the kernel's answer."""
        self.assertEqual(run("rdma", "dev", wrap=False, check=False, LD_PRELOAD=str(DROPIN), ROPEWAY_DISABLE="1").stderr, run("rdma", "dev", wrap=False, check=False).stderr)


class Programs(unittest.TestCase):
    def test_sockets(self):
        r = run(os.environ["SOCKETS"], wrap=False, check=False)
        self.assertEqual((r.returncode, r.stderr), (0, ""))

    def test_count(self):
        self.assertEqual(lines(os.environ["SOCKETS"], "count", wrap=False), ["2"])

    def test_python(self):
        """Unbuffered, by hand: another language's runtime."""
        code = """
import socket, struct
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 20)
s.bind((0, 0))
assert s.getsockname()[1] == 0 and s.getsockname()[0] > 0
s.send(struct.pack("=IHHII", 16, 5 << 10 | 1, 0x301, 9, 0))
data, sender = s.recvfrom(8192)
assert sender == (0, 0), sender
print(data.count(b"rpw_"))
"""
        self.assertEqual(lines(sys.executable, "-c", code), ["2"])

    def test_ibv_devinfo(self):
        out = run("ibv_devinfo", "-v").stdout
        for d in DEVICES:
            self.assertRegex(out, rf"hca_id:\s+{d}\n")
            self.assertRegex(out, rf"node_guid:\s+{guid(d)}\n")

    def test_ibstat(self):
        for d in DEVICES:
            out = run("ibstat", d).stdout
            self.assertIn(f"Node GUID: 0x{guid(d).replace(':', '')}", out)
            self.assertIn("State: Active", out)
        self.assertEqual(len(re.findall(r"state:\s+4: ACTIVE", run("ibstatus").stdout)), 2)

    def test_scripts(self):
        """What show_gids and ibdev2netdev do, in their ways."""
        script = 'for d in /sys/class/infiniband/*; do for g in $d/ports/1/gids/*; do n=$(basename $g); t=$(cat $d/ports/1/gid_attrs/types/$n 2>/dev/null) || continue; echo "$(basename $d) 1 $n $(cat $g) $t $(cat $d/ports/1/gid_attrs/ndevs/$n)"; done; done'
        shown = lines("bash", "-c", script)
        self.assertTrue(any(re.fullmatch(r"rpw_d0 1 1 0000:0000:0000:0000:0000:ffff:0a09:0901 RoCE v2 d0", line) for line in shown), shown)
        script = 'for n in /sys/class/net/*; do [ -e $n/device/infiniband ] && for d in $n/device/infiniband/*; do [ "$(cat $d/ports/1/gid_attrs/ndevs/0)" = $(basename $n) ] && echo "$(basename $d) port 1 ==> $(basename $n) ($(cat $n/operstate))"; done; done; true'
        self.assertIn("rpw_d0 port 1 ==> d0 (up)", lines("bash", "-c", script))

    def test_nothing_unasked(self):
        script = "ls /proc/self/fd | wc -l; ls /proc/self/task | wc -l; cat /proc/net/unix | grep -c ropeway/netlink; true"
        self.assertEqual(lines("bash", "-c", script), lines("bash", "-c", script, wrap=False))
        self.assertNotIn("ropeway/netlink", pathlib.Path("/proc/net/unix").read_text())


class Cost(unittest.TestCase):
    def test_cost(self):
        """Printed, not asserted: ns that a socket call on another descriptor costs more, in pairs."""
        print("\ncost, ns: call, the C library's, more with the drop-in (and without it)")
        without, taken = ([line.split() for line in lines(os.environ["COST"], wrap=False, **env)] for env in ({}, {"LD_PRELOAD": str(DROPIN)}))
        self.assertGreater(len(taken), 10)
        for (name, _, zero), (_, ns, more) in zip(without, taken):
            print(f"  {name:16}{float(ns):9.1f}{float(more):+9.1f}   ({float(zero):+.1f})", flush=True)


def enter():
    """In new namespaces (and as root of one's own user namespace where need be), start again."""
    user = [] if os.geteuid() == 0 else ["-r"]
    setup = "mount -t sysfs sys /sys && ip link set lo up && ip link add d0 type veth peer name p0 && ip addr add 10.9.9.1/24 dev d0 && ip link set p0 addrgenmode none && ip link set d0 up && ip link set p0 up && exec \"$@\""
    tried = subprocess.run(["unshare", *user, "-mn", "sh", "-c", setup, "sh", "true"], capture_output=True, text=True)
    if tried.returncode:
        print(f"SKIPPED: no namespaces here: {tried.stderr.strip()}")
        sys.exit(77)
    os.execvpe("unshare", ["unshare", *user, "-mn", "sh", "-c", setup, "sh", sys.executable, "-B", *sys.argv], {**os.environ, "NETLINK_TEST_INSIDE": "1"})


if __name__ == "__main__":
    if not os.environ.get("NETLINK_TEST_INSIDE"):
        enter()
    sys.argv.pop(1)
    unittest.main(verbosity=1)
