#!/usr/bin/python3
"""ROPEWAY_EXPLAIN with LD_PRELOAD alone: the log is live, in order and complete, and the process that formats it does not disturb the program.

Usage: explain_live_test.py BUILD_DIR TEST_CLASS [NAME]...
"""
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from preload import preloadable  # noqa: E402
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
            if b"explain-events" in open(f"/proc/{pid}/cmdline", "rb").read() and os.path.samefile(f"/proc/{pid}/fd/1", sys.argv[2]):
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
PLAIN = r"(?:[0-9]+\.[0-9]{3}  ibv_alloc_pd[^\n]*\n){2}"


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
            return subprocess.run([*NAMESPACE, "bash", "-c", command, "bash", "env", f"LD_PRELOAD={preloadable(library)}", sys.executable, self.dir / "p.py", library, self.log],
                                  env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, timeout=TIMEOUT_S, check=False, start_new_session=True).returncode

    def read(self, name="log"):
        return (self.dir / name).read_text(encoding="utf-8", errors="replace")

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
            self.assertEqual(self.until("---- summary ----", name).count("ibv_alloc_pd"), 2)

    def test_the_program_has_no_child_and_no_signal_and_goes_on_without_the_formatter(self):
        got = self.run_program("event()\nno_child()\nf, = formatter()\nfds = {n: os.readlink(f'/proc/{f}/fd/{n}') for n in os.listdir(f'/proc/{f}/fd')}\n"
                               "assert {'0', '1', '2'} <= set(fds) and fds['0'].startswith('socket:') and fds['1'] == fds['2'] == sys.argv[2], fds\n"
                               "assert all(t.startswith('anon_inode:') for n, t in fds.items() if int(n) > 2), fds\n"
                               "assert os.getsid(f) == f\nos.kill(f, 9)\nevent()\nevent()\nno_child()\nprint('went on')\n")
        self.assertEqual((got, self.read("out")), (0, "went on\n"), self.read("err"))
        self.assertRegex(self.read("err"), r"^ropeway: error: ROPEWAY_EXPLAIN: .*has ended.*plain line")
        self.assertRegex(self.read(), PLAIN + "$", "and what it had not folded is there")

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

    def alone(self, folder):
        """A copy of the library, with no command where it looks for one."""
        if any(shutil.which("ropeway", path=p) for p in ("/usr/bin", "/usr/local/bin")):
            self.skipTest("an installed ropeway formats instead")
        folder = self.dir / folder
        folder.mkdir(parents=True)
        return shutil.copy(LIBRARY, folder / LIBRARY.name)

    def test_without_the_command_there_are_plain_lines_and_a_sentence(self):
        self.assertEqual(self.run_program('event()\nos.write(2, b"mark\\n")\nevent()\n', library=self.alone("a/b/c")), 0, self.read("err"))
        self.assertRegex(self.read("err"), r"^ropeway: error: ROPEWAY_EXPLAIN: .*plain line.*\nmark\n$")
        self.assertRegex(self.read(), "^[^\n]*ibv_open_device[^\n]*\n" + PLAIN + "$")

    def test_a_command_that_another_user_put_beside_the_library_is_not_started(self):
        if os.geteuid():
            self.skipTest("needs root, to have files of two users")
        library = self.alone("a/b/c")
        trap = self.dir / "trap"
        trap.write_text(f"#!/bin/sh\ntouch {self.dir}/trapped\n")
        trap.chmod(0o755)
        os.chown(trap, 1234, 1234)
        for plant in (lambda to: shutil.copy2(trap, to) and os.chown(to, 1234, 1234), lambda to: to.symlink_to(trap),
                      lambda to: to.symlink_to("/bin/true") or os.chown(to, 1234, 1234, follow_symlinks=False), lambda to: to.mkdir()):
            plant(library.with_name("ropeway"))
            self.assertEqual(self.run_program("event()\nevent()\n", library=library), 0, self.read("err"))
            self.assertRegex(self.read(), PLAIN + "$")
            self.assertFalse((self.dir / "trapped").exists())
            self.log.unlink()
            (os.rmdir if library.with_name("ropeway").is_dir() and not library.with_name("ropeway").is_symlink() else os.unlink)(library.with_name("ropeway"))

    def test_what_was_folded_is_counted_after_a_crash(self):
        for name, end in (("kill", "os.kill(os.getpid(), 9)"), ("exit", "os._exit(3)"), ("return", "")):
            self.log = self.dir / name
            self.run_program(f"for _ in range(1000):\n    event()\n{end}\n")
            text = self.until("---- summary ----", name)
            self.assertRegex(" ".join(text.split()), r"\.\.\. 996 more ibv_alloc_pd.* ---- summary ----")
            self.assertEqual(text.count("ibv_alloc_pd"), 4 + 1)

    def test_a_program_that_writes_over_the_shared_memory_harms_only_its_own_log(self):
        seed = int(os.environ.get("TEST_SEED") or random.randrange(1 << 32))
        got = self.run_program(f"""
import random, socket
event()
draw = random.Random({seed})
at, end = (int(n, 16) for n in next(l for l in open('/proc/self/maps') if 'ropeway-explain' in l).split()[0].split('-'))
def is_formatter(s):
    try:
        return s.type == socket.SOCK_SEQPACKET and s.getpeername() == ''
    except OSError:
        return False
sockets = [int(n) for n in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + n) and os.readlink('/proc/self/fd/' + n).startswith('socket:')]
talk, = filter(is_formatter, [socket.socket(fileno=os.dup(n)) for n in sockets])
for turn in range(40):
    if turn % 4 == 0:
        text = draw.choice((draw.randbytes(end - at), bytes([draw.choice((1, 0x41, 0x80, 0xff))]) * (end - at)))
        ctypes.memmove(at, text, len(text))
    else:
        for _ in range(50):
            ctypes.memset(at + draw.randrange(end - at), draw.randrange(256), 1)
    talk.send(b'w')
    assert talk.recv(1), 'the formatter ended'
os._exit(0)
""")
        self.assertEqual((got, self.read("err")), (0, ""), f"TEST_SEED={seed}")
        text = self.until("---- summary ----")
        self.assertFalse(re.search(r"[\x00-\x09\x0b-\x1f\x7f]|Sanitizer|runtime error", text), f"TEST_SEED={seed}")

    def test_by_hand_the_formatter_says_what_it_is_for(self):
        got = ropeway("explain-events")
        self.assertEqual((got.returncode, got.stdout), (1, ""))
        self.assertIn("for the library", got.stderr)


if __name__ == "__main__":
    sys.exit(explain.main(globals()))
