#!/usr/bin/python3
"""ROPEWAY_EXPLAIN with LD_PRELOAD alone: the log is live, in order and complete, and the process that formats it does not disturb the program.

Usage: explain_live_test.py BUILD_DIR TEST_CLASS [NAME]...
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import explain
from explain import BUILD, NAMESPACE, TIMEOUT_S, Case, ropeway

LIBRARY = BUILD / "libropeway-verbs.so.0"
# What each program begins with: event() is one call, which is one line; formatter() finds the process that prints what leads to the output.
BEGIN = """
import ctypes, os, signal, sys, time
sigchld = []
signal.signal(signal.SIGCHLD, lambda *a: sigchld.append(a))
v = ctypes.CDLL(sys.argv[1])
p = ctypes.c_void_p
v.ibv_get_device_list.restype = v.ibv_open_device.restype = v.ibv_alloc_pd.restype = p
def opened():
    return p(v.ibv_open_device(p(ctypes.cast(p(v.ibv_get_device_list(None)), ctypes.POINTER(p))[0])))
def event():
    assert v.ibv_alloc_pd(device)
def formatter():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if b"--events" in open(f"/proc/{pid}/cmdline", "rb").read() and os.path.samefile(f"/proc/{pid}/fd/1", sys.argv[2]):
                found.append(int(pid))
        except OSError:
            pass
    return found
def no_child():
    for options in (0, 0x40000000):  # __WALL: also children without a signal
        try:
            assert os.waitpid(-1, os.WNOHANG | options) is None
        except ChildProcessError:
            pass
    assert not sigchld
device = opened()
"""


class Live(Case):
    def setUp(self):
        super().setUp()
        self.log = self.dir / "log"

    def run_program(self, text, log=None, library=LIBRARY, shell='exec "$@"', **env):
        """The program, and its status: what it printed is in `out` and `err`."""
        (self.dir / "p.py").write_text(BEGIN + text, encoding="utf-8")
        command = f"ip link set lo up; {shell}"
        env = dict(os.environ, LC_ALL="C.UTF-8", ROPEWAY_EXPLAIN=str(log or self.log), **env)
        with open(self.dir / "out", "wb") as out, open(self.dir / "err", "wb") as err:
            return subprocess.run([*NAMESPACE, "bash", "-c", command, "bash", "env", f"LD_PRELOAD={library}", sys.executable, self.dir / "p.py", library, self.log],
                                  env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, timeout=TIMEOUT_S, check=False, start_new_session=True).returncode

    def read(self, name="log"):
        return (self.dir / name).read_text(encoding="utf-8")

    def until(self, text, name="log"):
        """The summary of a process that could not wait for it comes a moment later."""
        end = time.monotonic() + 10
        while text not in self.read(name) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertIn(text, self.read(name))
        return self.read(name)

    def test_lines_stand_in_the_order_of_the_programs_own_output(self):
        self.assertEqual(self.run_program('for i in range(4):\n    os.write(2, b"mark %d\\n" % i)\n    event()\nos.write(2, b"mark 4\\n")\n', log="-"), 0)
        lines = [line for line in self.read("err").splitlines() if "mark" in line or "ibv_alloc_pd" in line]
        self.assertEqual(["mark" in line for line in lines], [True, False] * 4 + [True], lines)
        self.assertIn("summary", self.read("err"), "a program that exits waits for its summary")

    def test_a_crash_and_an_immediate_exit_lose_nothing(self):
        for name, end, status in (("crash", "os.kill(os.getpid(), 11)", -11), ("kill", "os.kill(os.getpid(), 9)", -9), ("exit", "os._exit(3)", 3)):
            self.log = self.dir / name
            # Another process has the socket, and goes on: _Fork tells no handler.
            fork = 'if not ctypes.CDLL(None)._Fork():\n    time.sleep(12)\n    os._exit(0)\n' if name == "kill" else ""
            got = self.run_program(f"event()\n{fork}event()\n{end}\n")
            self.assertTrue(got == status or status < 0 < got, (got, self.read("err")))  # unshare hands some signals on as a status
            self.assertEqual(self.read(name).count("ibv_alloc_pd"), 2)
            self.until("---- summary ----", name)

    def test_the_program_has_no_child_and_no_signal_and_goes_on_without_the_formatter(self):
        got = self.run_program("event()\nno_child()\nf, = formatter()\nfds = {n: os.readlink(f'/proc/{f}/fd/{n}') for n in os.listdir(f'/proc/{f}/fd')}\n"
                               "assert {'0', '1', '2'} <= set(fds) and fds['0'].startswith('socket:') and fds['1'] == fds['2'] == sys.argv[2], fds\n"
                               "assert all(t.startswith('anon_inode:') for n, t in fds.items() if int(n) > 2), fds\n"
                               "assert os.getsid(f) == f\nos.kill(f, 9)\nevent()\nevent()\nno_child()\nprint('went on')\n")
        self.assertEqual((got, self.read("out")), (0, "went on\n"), self.read("err"))
        self.assertIn("ropeway explain --events", self.read("err"))
        rest = [json.loads(line) for line in self.read().splitlines() if line.startswith("{")]
        self.assertEqual([e["event"] for e in rest], ["call", "call", "end"])

    def test_a_signal_to_the_whole_terminal_does_not_end_the_summary(self):
        got = self.run_program("signal.signal(2, signal.SIG_DFL)\nevent()\nos.kill(0, 2)\ntime.sleep(20)\n", shell='trap : INT; "$@"')
        self.assertNotEqual(got, 0)
        self.until("---- summary ----")

    def test_closed_descriptors_stay_the_programs(self):
        got = self.run_program("event()\nfds = {n: os.readlink(f'/proc/self/fd/{n}') for n in range(3) if os.path.exists(f'/proc/self/fd/{n}')}\nassert sys.argv[2] not in fds.values(), fds\n", shell='exec "$@" <&- >&-')
        self.assertEqual(got, 0, self.read("err"))
        self.assertIn("ibv_alloc_pd", self.read())
        # A program that closes all that it does not know, and gets the numbers for files of its own.
        got = self.run_program("event()\nos.closerange(3, 256)\nmine = [os.open(sys.argv[0] + '.mine', os.O_CREAT | os.O_RDWR) for _ in range(32)]\n"
                               "event()\nevent()\nassert not os.fstat(mine[0]).st_size\n")
        self.assertEqual(got, 0, self.read("err"))
        self.until("---- summary ----")
        self.assertEqual((self.dir / "p.py.mine").stat().st_size, 0)

    def test_a_full_disk_is_not_the_programs(self):
        self.assertEqual(self.run_program("event()\nevent()\nprint('went on')\n", log="/dev/full"), 0)
        self.assertEqual((self.read("out"), self.read("err")), ("went on\n", ""))

    def test_a_forked_child_and_an_executed_program_have_logs_of_their_own(self):
        got = self.run_program("event()\nchild = os.fork()\nif child:\n    assert os.waitpid(child, 0)[1] == 0\nevent()\nno_child() if not child else None\n", log=f"{self.dir}/fork-%p")
        self.assertEqual(got, 0, self.read("err"))
        logs = sorted(self.dir.glob("fork-*"))
        self.assertEqual(sorted(log.read_text(encoding="utf-8").count("ibv_alloc_pd") for log in logs), [1, 2])
        self.assertTrue(all("summary" in log.read_text(encoding="utf-8") for log in logs))
        got = self.run_program("event()\nif len(sys.argv) == 3:\n    os.execv(sys.executable, [sys.executable, *sys.argv, 'again'])\n")
        self.assertEqual(got, 0, self.read("err"))
        self.until("summary")
        self.assertEqual(self.read().count("account of"), 2)
        self.assertEqual(self.read().count("ibv_alloc_pd"), 2)

    def test_without_the_command_there_are_lines_of_json_and_a_sentence(self):
        if any(shutil.which("ropeway", path=p) for p in ("/usr/bin", "/usr/local/bin")):
            self.skipTest("an installed ropeway formats instead")
        alone = self.dir / "a" / "b" / "c"
        alone.mkdir(parents=True)
        shutil.copy(LIBRARY, alone)
        got = self.run_program('event()\nos.write(2, b"mark\\n")\nevent()\n', library=alone / LIBRARY.name)
        self.assertEqual(got, 0, self.read("err"))
        self.assertRegex(self.read("err"), r"^ropeway: error: ROPEWAY_EXPLAIN: .*lines of JSON.*ropeway explain --events -`\nmark\n$")
        self.assertEqual([e.get("event") for e in map(json.loads, self.read().splitlines())], ["begin", "call", "call", "call", "end"])
        (self.dir / "mixed").write_text("what the program says\n" + self.read() + "{\n", encoding="utf-8")
        got = ropeway("explain", "--events", self.dir / "mixed")
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)
        self.assertEqual(got.stdout.count("ibv_alloc_pd"), 2)
        self.assertIn("---- summary ----", got.stdout)

    def test_files_without_events_and_wrong_use_are_said(self):
        pathlib.Path(self.dir / "empty").touch()
        got = ropeway("explain", "--events", self.dir / "empty")
        self.assertEqual((got.returncode, got.stdout), (1, ""))
        self.assertIn("no events", got.stderr)
        self.assertEqual(ropeway("explain", "--events", self.dir / "missing").returncode, 1)
        self.assertEqual(ropeway("explain", "--events", "a", "b").returncode, 2)


if __name__ == "__main__":
    sys.exit(explain.main(globals()))
