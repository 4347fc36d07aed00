"""What the tests of `ropeway run --explain` and `ropeway explain` share: programs that are run and captured once, their accounts, pages and packets.

Usage of each: explain_X_test.py BUILD_DIR TEST_CLASS [NAME]... Exit status 77 where every test of the class was skipped.
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

BUILD = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 120
NAMESPACE = ("unshare", *(() if os.geteuid() == 0 else ("--map-root-user",)), "--net", "--kill-child")  # root needs no user namespace, and may not get one

# Server and client of each story; the server's line is run in the background until the client has ended. $R is `ropeway run` with captures and accounts.
STORIES = {
    "pair": ("$R rdma_server", "$R rdma_client -s 127.0.0.1"),
    "silent": ("$R $BUILD/rdma-send-recv-server --silent --wait 2 --count 1 7471", "$R $BUILD/rdma-send-recv-client 127.0.0.1 7471"),
    "refused": ("sleep 0", "$R rdma_client -s 127.0.0.1 -p 7999"),
    "lossy": ("$R --fault drop=0.04,seed=7 -- ibv_rc_pingpong -d rpw_lo -g 1 -n 40 -s 9000",
              "$R --fault drop=0.04,seed=9 -- ibv_rc_pingpong -d rpw_lo -g 1 -n 40 -s 9000 127.0.0.1"),
    "write": ("$R $BUILD/rdma-server -n 1 write", "$R $BUILD/rdma-client write 127.0.0.1"),
    "stream": ("$R ibv_rc_pingpong -d rpw_lo -g 1 -n 20 -s 60000", "$R ibv_rc_pingpong -d rpw_lo -g 1 -n 20 -s 60000 127.0.0.1"),
    "long": ("$R --fault drop=0.0008,seed=3 -- ibv_rc_pingpong -d rpw_lo -g 1 -n 60 -s 60000", "$R --fault drop=0.0008,seed=5 -- ibv_rc_pingpong -d rpw_lo -g 1 -n 60 -s 60000 127.0.0.1"),
    "datagrams": ("$R ibv_ud_pingpong -d rpw_lo -g 1 -n 30", "$R ibv_ud_pingpong -d rpw_lo -g 1 -n 30 127.0.0.1"),
}
RUN = """
set -u
ip link set lo up
R="$BUILD/ropeway run --explain=$OUT/server.txt --pcap $OUT/server.pcapng"
{server} >$OUT/server.out 2>&1 &
server=$!
sleep 1
R="$BUILD/ropeway run --explain=$OUT/client.txt --pcap $OUT/client.pcapng"
timeout 60 {client} >$OUT/client.out 2>&1
echo $? >$OUT/client.status
( sleep 5; kill $server ) 2>/dev/null &
wait $server
echo $? >$OUT/server.status
"""
told = {}


def ropeway(*args, **kwargs):
    env = dict(os.environ, LC_ALL="C.UTF-8", **kwargs.pop("env", {}))
    return subprocess.run([BUILD / "ropeway", *map(str, args)], env=env, text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False, **kwargs)


def story(name):
    """Runs it once; the folder with its captures, accounts and output."""
    if name not in told:
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"ropeway-{name}-"))
        (folder / "build").symlink_to(BUILD)  # a path without a space, for the words of a shell
        server, client = (line.replace("$R", "timeout 60 $R", 1) for line in STORIES[name])
        subprocess.run([*NAMESPACE, "bash", "-c", RUN.format(server=server, client=client.replace("timeout 60 ", "", 1))],
                       env=dict(os.environ, BUILD=str(folder / "build"), OUT=str(folder), LC_ALL="C.UTF-8"), timeout=TIMEOUT_S, check=False)
        told[name] = folder
    return told[name]


def at_a_terminal(columns, locale):
    """The account of the client of "pair", as a terminal of that width gets it, without colours."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen([*NAMESPACE, "bash", "-c", f"ip link set lo up; '{BUILD}/ropeway' run -- rdma_server >/dev/null & sleep 1;"
                                f"'{BUILD}/ropeway' run --explain -- rdma_client -s 127.0.0.1 >/dev/null; wait"],
                               env=dict(os.environ, LC_ALL=locale, NO_COLOR="1"), stdin=subprocess.DEVNULL, stderr=follower)
    os.close(follower)
    text = b""
    try:
        while select.select([leader], [], [], TIMEOUT_S)[0]:
            text += os.read(leader, 1 << 16)
    except OSError:  # nobody has the terminal open any more
        pass
    os.close(leader)
    process.wait(TIMEOUT_S)
    return "\n".join(line for line in text.decode().replace("\r\n", "\n").splitlines() if "setlocale" not in line and "locale (" not in line)


def forget():
    for folder in told.values():
        shutil.rmtree(folder, ignore_errors=True)


def page_data(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL).group(1))


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ropeway-explain-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        if not shutil.which("unshare") or subprocess.run([*NAMESPACE, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("no network namespace can be made here")

    def text(self, name, side):
        return (story(name) / f"{side}.txt").read_text(encoding="utf-8")

    def page(self, *captures, options=()):
        out = self.dir / "page.html"
        got = ropeway("explain", *options, "-o", out, *captures)
        self.assertEqual(got.returncode, 0, got)
        return out

    def data(self, *captures):
        return page_data(self.page(*captures).read_text(encoding="utf-8"))


def tshark(capture):
    out = subprocess.run(["tshark", "-r", capture, "-T", "fields", "-e", "frame.number", "-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn", "-Y", "udp.dstport == 4791"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=TIMEOUT_S, check=True).stdout
    return {int(n): (int(op, 0), int(psn, 0)) for n, op, psn in (line.split("\t") for line in out.splitlines())}


def blocks(data):
    """The blocks of a pcapng: what comes before the packets, and each packet."""
    at, head, packets = 0, b"", []
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 6:
            packets.append(data[at:at + length])
        elif not packets:
            head += data[at:at + length]
        at += length
    return head, packets


def main(classes):
    """One class of the tests, and of it those with a name of the command line's. The exit status."""
    loader = unittest.defaultTestLoader
    loader.testNamePatterns = [f"*{p}*" for p in sys.argv[3:]] or None
    result = unittest.TextTestRunner(verbosity=2).run(loader.loadTestsFromTestCase(classes[sys.argv[2]]))
    forget()
    for test, why in result.skipped:
        print(f"SKIPPED {test}: {why}", file=sys.stderr)
    if not result.wasSuccessful():
        return 1
    return 77 if result.testsRun and len(result.skipped) == result.testsRun else 0
