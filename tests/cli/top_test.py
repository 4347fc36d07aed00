#!/usr/bin/python3
"""`ropeway top`: its numbers beside what two processes moved exactly, the terminal, the page for Prometheus, and who asks for it with bad intent.

Usage: top_test.py BUILD_DIR TEST_CLASS LOAD. Exit status 77 where every test of the class was skipped.
"""
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

BUILD = pathlib.Path(".")
LOAD = "top_load"
TIMEOUT_S = 60


def environment(**more):
    return dict(os.environ, LC_ALL="C.UTF-8", ROPEWAY_DEVICES="lo", **more)


def top(*args, **kwargs):
    return subprocess.run([BUILD / "ropeway", "top", *map(str, args)], env=environment(), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False, **kwargs)


class Load:
    """Two processes with so many QP pairs (top_load.c)."""

    def __init__(self, case, qps, below=()):
        self.case = case
        self.process = subprocess.Popen([*below, LOAD, str(qps)], env=environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        case.addCleanup(self.end)
        line = self.process.stdout.readline()
        case.assertRegex(line, r"^\d+ \d+$")
        self.pids = [int(word) for word in line.split()]

    def do(self, order):
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        self.case.assertEqual(self.process.stdout.readline(), "done\n", order)

    def end(self):
        if not self.process.stdin.closed:
            self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(TIMEOUT_S)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ropeway-top-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def look(self):
        got = top("--json", "--interval", "0.1")
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        return json.loads(got.stdout)


def of(rows, **wanted):
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def moved(after, before, *names):
    return [after["counted"][name] - before["counted"][name] for name in names]


class Counts(Case):
    def test_counts_are_what_was_moved_by_each_process_and_qp(self):
        load = Load(self, 3)
        before = self.look()
        load.do("send 7 1000")
        load.do("write 5 8")
        load.do("read 11 70000")
        after = self.look()
        names = ("sends", "writes", "reads", "work_requests", "receives", "transmitted_bytes", "received_bytes", "failed")
        for level, qps in (("processes", 3), ("qps", 1)):
            rows = [of(after[level], pid=pid) for pid in load.pids]
            was = [of(before[level], pid=pid) for pid in load.pids]
            self.assertEqual([len(r) for r in rows], [1, 1] if level == "processes" else [3, 3])
            for now, then in zip(rows[0], was[0]):
                got = moved(now, then, *names)
                self.assertEqual(got[:5] + got[7:], [7 * qps, 5 * qps, 11 * qps, 23 * qps, 0, 0])
                self.assertEqual(got[5:7], [(7 * 1000 + 5 * 8) * qps, 11 * 70000 * qps])
            for now, then in zip(rows[1], was[1]):
                got = moved(now, then, *names)
                self.assertEqual(got[:5] + got[7:], [0, 0, 0, 0, 7 * qps, 0])
                self.assertEqual(got[6], (7 * 1000 + 5 * 8) * qps)
        device, = of(after["devices"], device="rpw_lo")
        self.assertEqual((device["processes"], device["qps"]) >= (2, 6), True)
        for row in of(after["processes"], pid=load.pids[0]) + of(after["qps"], pid=load.pids[0]):
            self.assertEqual(row["command"], pathlib.Path(LOAD).name[:15])
        first, second = ({q["qpn"]: q for q in of(after["qps"], pid=pid)} for pid in load.pids)
        for qpn, q in first.items():
            self.assertEqual((q["type"], q["state"], q["peer_address"]), ("RC", "RTS", "127.0.0.1"))
            self.assertEqual(second[q["peer_qpn"]]["peer_qpn"], qpn)

    def test_a_device_s_files_have_the_same_numbers(self):
        load = Load(self, 2)
        load.do("send 9 512")
        device, = of(self.look()["devices"], device="rpw_lo")
        folder = "/sys/class/infiniband/rpw_lo/ports/1/"
        files = ("counters/port_xmit_data", "counters/port_rcv_packets", "hw_counters/rdma_sends", "hw_counters/rdma_recvs")
        got = subprocess.run([BUILD / "ropeway", "run", "cat", *(folder + f for f in files)], env=environment(), text=True, capture_output=True, timeout=TIMEOUT_S, check=True)
        counted = device["counted"]
        self.assertEqual([int(line) for line in got.stdout.split()],
                         [counted["transmitted_bytes"] // 4, counted["received_packets"], counted["sends"], counted["receives"]])

    def test_errors_retries_and_the_state_of_a_qp_show(self):
        load = Load(self, 2)
        before = self.look()
        load.do("rnr")
        load.do("bad")
        after = self.look()
        now, then = (of(look["processes"], pid=load.pids[0])[0] for look in (after, before))
        self.assertEqual(moved(now, then, "failed"), [1])
        self.assertGreater(moved(now, then, "rnr_naks_received")[0], 0)
        peer_now, peer_then = (of(look["processes"], pid=load.pids[1])[0] for look in (after, before))
        self.assertEqual(moved(peer_now, peer_then, "rnr_naks_sent"), moved(now, then, "rnr_naks_received"))
        for pid in load.pids:
            self.assertEqual(sorted(q["state"] for q in of(after["qps"], pid=pid)), ["ERR", "RTS"])

    def test_counts_of_a_qp_stay_with_its_process_and_device(self):
        with_top = subprocess.Popen([BUILD / "ropeway", "top", "--listen", "127.0.0.1:0"], env=environment(), stdout=subprocess.PIPE, text=True)
        self.addCleanup(with_top.wait)
        self.addCleanup(with_top.stdout.close)
        self.addCleanup(with_top.terminate)
        self.assertIn("http://", with_top.stdout.readline())
        before = of(self.look()["devices"], device="rpw_lo")[0]
        load = Load(self, 1)
        load.do("send 100 8")
        self.assertEqual(load.end(), 0)
        after = self.look()
        self.assertEqual(of(after["processes"], pid=load.pids[0]), [])
        # kept, though no process is left that counted
        self.assertEqual(moved(of(after["devices"], device="rpw_lo")[0], before, "sends", "receives"), [100, 100])

    def test_the_names_of_other_sockets_hide_no_process(self):
        load = Load(self, 1)
        slots = set(re.findall(r"@ropeway/slot/(\d+)$", pathlib.Path("/proc/net/unix").read_text(), re.M))
        for slot in slots:
            for n in range(1, 20):  # some are listed behind the real one
                for name in (f"{n} @ropeway/slot/{slot}", f"x\n0: 2 0 10000 0005 01 {n} @ropeway/slot/{slot}"):
                    stranger = socket.socket(socket.AF_UNIX)
                    self.addCleanup(stranger.close)
                    stranger.bind("\0" + name)
        after = self.look()
        for pid in load.pids:
            self.assertEqual([len(of(after[level], pid=pid)) for level in ("processes", "qps")], [1, 1])

    def test_rdma_s_list_has_the_qps_of_other_processes(self):
        rdma = shutil.which("rdma", path=os.environ["PATH"] + ":/sbin:/usr/sbin")
        if not rdma:
            self.skipTest("there is no rdma(8)")
        load = Load(self, 2)
        got = subprocess.run([BUILD / "ropeway", "run", rdma, "-j", "res", "show", "qp"], env=environment(), text=True, capture_output=True, timeout=TIMEOUT_S, check=True)
        qps = [q for q in json.loads(got.stdout) if q.get("pid") in load.pids]
        self.assertEqual(sorted(q["pid"] for q in qps), sorted(load.pids * 2))
        self.assertEqual({(q["type"], q["state"], q["ifname"]) for q in qps}, {("RC", "RTS", "rpw_lo")})


class Text(Case):
    def test_output_that_is_no_terminal_is_plain_and_fits_80_columns(self):
        load = Load(self, 2)
        load.do("send 3 100")
        for args in (("--once",), ()):
            for view, words in (("device", "DEVICE"), ("process", "COMMAND"), ("qp", "PEER")):
                got = top(*args, "--interval", "0.1", "--view", view)
                self.assertEqual((got.returncode, got.stderr), (0, ""))
                self.assertIn(words, got.stdout.splitlines()[0])
                self.assertNotIn("\033", got.stdout)
                self.assertEqual([line for line in got.stdout.splitlines() if len(line) > 80], [])
                for pid in load.pids if view != "device" else ():
                    self.assertEqual(len(re.findall(rf"(?m)\b{pid}\b", got.stdout)), 2 if view == "qp" else 1, got.stdout)

    def test_what_excludes_each_other_is_a_usage_error(self):
        for args, says in ((("--listen", "127.0.0.1:0", "--file", "x"), "exclude"), (("--json", "--file", "x"), "--json"), (("--once", "--listen", "127.0.0.1:0"), "--once"),
                           (("--allow-remote",), "--listen"), (("--listen", "0.0.0.0:0"), "--allow-remote"), (("--listen", ":9"), "--allow-remote"),
                           (("--listen", "192.0.2.1:9"), "--allow-remote"), (("--view", "rank"), "expected device, process or qp"), (("--interval", "0"), "0.1")):
            got = top(*args)
            self.assertEqual((got.returncode, got.stdout), (2, ""), args)
            self.assertIn(says, got.stderr, args)


class Terminal:
    """`ropeway top` on a terminal of its own, as a shell starts it: its own process group, in the foreground, with somebody who waits for it."""

    def __init__(self, case, args=(), lines=24, columns=80):
        self.case, self.text, self.status = case, "", None
        told, tell = os.pipe()
        leader, self.fd = pty.fork()
        if not leader:
            self.lead(tell, args)
        os.close(tell)
        self.told = os.fdopen(told)
        self.pid, self.before = (int(word) for word in self.told.readline().split())
        case.addCleanup(self.close)
        self.leader = leader
        self.resize(lines, columns)
        self.wait_for(r"\x1b\[7m", begin=0)

    @staticmethod
    def lead(tell, args):
        for sig in (signal.SIGTTOU, signal.SIGHUP):
            signal.signal(sig, signal.SIG_IGN)
        before = termios.tcgetattr(0)[3]
        pid = os.fork()
        if not pid:
            os.setpgid(0, 0)
            os.tcsetpgrp(0, os.getpid())
            for sig in (signal.SIGTTOU, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # the last two are ignored in what a script starts with &
                signal.signal(sig, signal.SIG_DFL)
            os.execve(BUILD / "ropeway", ["ropeway", "top", "--interval", "0.2", *args], environment(TERM="xterm"))
        os.write(tell, f"{pid} {before}\n".encode())
        while True:
            _, status = os.waitpid(pid, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                os.write(tell, b"stopped\n")
            else:
                os.write(tell, f"{status}\n".encode())
                os._exit(0)

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
        self.hang_up()
        os.waitpid(self.leader, 0)
        self.told.close()

    def hang_up(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def resize(self, lines, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self, seconds):
        if self.fd < 0 or not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.text += data.decode(errors="replace")
        return bool(data)

    def wait_for(self, pattern, begin=None):
        """In what comes from now on."""
        until = time.monotonic() + 20
        at = len(self.text) if begin is None else begin
        while not re.search(pattern, self.text[at:]):
            self.case.assertLess(time.monotonic(), until, (pattern, self.text[at:][-2000:]))
            self.read(0.2)
        return self.text[at:]

    def keys(self, text):
        os.write(self.fd, text.encode())

    def word(self):
        """The next from who waits for it: "stopped", or the status with which it ended."""
        until = time.monotonic() + 20
        while not select.select([self.told], [], [], 0)[0]:
            self.case.assertLess(time.monotonic(), until)
            self.read(0.05)
        word = self.told.readline().strip()
        self.status = None if word == "stopped" else int(word)
        return word

    def assert_restored(self):
        """Screen, cursor and modes are as before; the terminal's other side may be closed."""
        while self.read(0.1):
            pass
        tail = self.text[self.text.rindex("\033[?1049h"):]
        self.case.assertIn("\033[?1049l", tail)
        self.case.assertIn("\033[?25h", tail)
        self.case.assertEqual(termios.tcgetattr(self.fd)[3], self.before)

    def lines(self, text):
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).split("\r\n")


class Screen(Case):
    def test_keys_change_view_order_and_pause_and_q_restores_the_terminal(self):
        load = Load(self, 2)
        t = Terminal(self)
        t.wait_for(rf"{load.pids[0]}")
        for line in t.lines(t.wait_for(r"\? q")):
            self.assertLessEqual(len(line), 80, line)
        for key, shows in (("3", r"QPN +TY"), ("1", "PROCS"), ("\t", "COMMAND"), ("e", "by errors"), ("r", r"by errors \(reversed\)"), (" ", "PAUSED"), ("?", "pause, and go on"), ("x", "PAUSED"),
                           ("m", "by messages"), ("t", "by retries"), ("n", "by RNR"), ("i", "by name"), ("b", "by bytes"), ("-", "every 0.4 s"), ("+", "every 0.2 s"), (" ", r"(?m)^(?!.*PAUSED).*device")):
            t.keys(key)
            t.wait_for(shows)
        t.keys("\033[B\033[5~")
        t.keys("q")
        self.assertEqual(t.word(), "0")
        t.assert_restored()

    def test_every_signal_that_ends_it_restores_the_terminal(self):
        for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGSEGV"):
            with self.subTest(name):
                t = Terminal(self)
                self.assertFalse(termios.tcgetattr(t.fd)[3] & (termios.ICANON | termios.ECHO))
                if name == "SIGINT":
                    t.keys("\003")
                else:
                    os.kill(t.pid, getattr(signal, name))
                status = int(t.word())
                self.assertEqual(os.WTERMSIG(status), getattr(signal, name))
                t.assert_restored()

    def test_a_stop_gives_the_terminal_back_and_continuing_takes_it_again(self):
        t = Terminal(self)
        for stop in (lambda: t.keys("\032"), lambda: os.kill(t.pid, signal.SIGTSTP)):
            stop()
            self.assertEqual(t.word(), "stopped")
            t.assert_restored()
            at = len(t.text)
            os.kill(t.pid, signal.SIGCONT)
            t.wait_for(r"\x1b\[\?1049h(?s:.*)\x1b\[7m", begin=at)
            self.assertFalse(termios.tcgetattr(t.fd)[3] & termios.ICANON)
        # nothing can be done before this one, but after it
        os.kill(t.pid, signal.SIGSTOP)
        self.assertEqual(t.word(), "stopped")
        at = len(t.text)
        os.kill(t.pid, signal.SIGCONT)
        t.wait_for(r"\x1b\[\?1049h(?s:.*)\x1b\[7m", begin=at)
        t.keys("q")
        self.assertEqual(t.word(), "0")
        t.assert_restored()

    def test_another_size_is_drawn_at_once(self):
        load = Load(self, 2)
        t = Terminal(self, args=("--interval", "30", "--view", "qp"))
        t.resize(10, 160)
        frame = t.wait_for(rf"ADDRESS(?s:.*){load.pids[0]}(?s:.*)\? q")
        self.assertIn("127.0.0.1", frame)
        t.resize(5, 30)
        frame = t.wait_for(r"QPN(?s:.*)\x1b\[5;1H.*\x1b\[K")
        for line in t.lines(frame[frame.rindex("\x1b[7m"):]):
            self.assertLessEqual(len(line), 30, line)
        t.resize(1, 1)
        t.wait_for(r"\x1b\[1;1H")
        t.keys("q")
        self.assertEqual(t.word(), "0")

    def test_a_terminal_that_goes_away_ends_it(self):
        t = Terminal(self)
        t.hang_up()
        t.word()
        self.assertIsNotNone(t.status)


SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (\d+)')


def parse(page):
    """The exposition format of Prometheus, version 0.0.4, strictly: (name, labels) -> value. Each family has its HELP and TYPE once, before its samples, which lie together."""
    families, samples, family = {}, {}, None
    if not page.endswith("\n"):
        raise ValueError("the last line does not end")
    for line in page[:-1].split("\n"):
        if line.startswith("# HELP "):
            family = line.split(" ", 3)[2]
            if family in families:
                raise ValueError(f"{family} twice")
            families[family] = None
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if name != family or families[name] or kind not in ("counter", "gauge"):
                raise ValueError(line)
            if (kind == "counter") != name.endswith("_total"):
                raise ValueError(line)
            families[name] = kind
        else:
            found = SAMPLE.fullmatch(line)
            if not found or found[1] != family or not families[family]:
                raise ValueError(line)
            labels = tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found[2])))
            if (family, labels) in samples:
                raise ValueError(f"twice: {line}")
            samples[family, labels] = int(found[3])
    return samples


def value(samples, name, **labels):
    found = [v for (n, l), v in samples.items() if n == name and labels.items() <= dict(l).items()]
    assert len(found) == 1, (name, labels, found)
    return found[0]


class Page(Case):
    def assert_is_valid(self, page):
        """By promtool, and by Prometheus's own Python client, where they are."""
        tried = 0
        if shutil.which("promtool"):
            got = subprocess.run(["promtool", "check", "metrics"], input=page, text=True, capture_output=True, timeout=TIMEOUT_S, check=False)
            self.assertEqual((got.returncode, got.stderr), (0, ""))
            tried += 1
        try:
            from prometheus_client.parser import text_string_to_metric_families  # pylint: disable=import-outside-toplevel
        except ImportError:
            return tried
        self.assertEqual(sum(len(f.samples) for f in text_string_to_metric_families(page)), len(parse(page)))
        return tried + 1

    def test_a_file_is_replaced_whole_and_has_the_exact_numbers(self):
        path = self.dir / "ropeway.prom"
        load = Load(self, 2)
        load.do("send 5 100")
        got = top("--file", path, "--once", "--view", "qp")
        self.assertEqual((got.returncode, got.stdout, got.stderr), (0, "", ""))
        self.assertEqual(list(self.dir.iterdir()), [path])
        page = path.read_text()
        samples = parse(page)
        self.assert_is_valid(page)
        pid = str(load.pids[0])
        self.assertEqual(value(samples, "ropeway_process_sends_total", pid=pid, device="rpw_lo"), 10)
        self.assertEqual(value(samples, "ropeway_process_transmitted_bytes_total", pid=pid), 1000)
        self.assertEqual(sum(v for (n, l), v in samples.items() if n == "ropeway_qp_sends_total" and ("pid", pid) in l), 10)
        self.assertEqual(value(samples, "ropeway_device_up", device="rpw_lo"), 1)
        got = top("--file", self.dir / "missing" / "x.prom", "--once")
        self.assertEqual(got.returncode, 1)
        self.assertIn("cannot write", got.stderr)

    def test_processes_with_the_same_pid_in_two_containers_are_two(self):
        below = ("unshare", "--pid", "--fork", "--kill-child")
        if subprocess.run([*below, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("no PID namespaces here")
        loads = [Load(self, 1, below) for _ in range(2)]
        self.assertEqual(loads[0].pids, loads[1].pids)
        for n, load in enumerate(loads):
            load.do(f"send {n + 1} 8")
        path = self.dir / "ropeway.prom"
        self.assertEqual(top("--file", path, "--once", "--view", "qp").returncode, 0)
        samples = parse(path.read_text())
        sent = [v for (name, labels), v in samples.items() if name == "ropeway_process_sends_total" and ("pid", str(loads[0].pids[0])) in labels and ("command", "?") in labels]
        self.assertEqual(sorted(sent), [1, 2])

    def test_a_file_that_is_kept_new_goes_with_its_command(self):
        path = self.dir / "ropeway.prom"
        load = Load(self, 1)
        p = subprocess.Popen([BUILD / "ropeway", "top", "--file", path, "--interval", "0.1"], env=environment())
        self.addCleanup(p.wait)
        self.addCleanup(p.terminate)
        seen = set()
        until = time.monotonic() + TIMEOUT_S
        load.do("send 1 8")
        while len(seen) < 3:
            self.assertLess(time.monotonic(), until)
            if path.exists():
                seen.add(path.stat().st_ino)
                parse(path.read_text())
        p.terminate()
        self.assertEqual(p.wait(TIMEOUT_S), 0)
        self.assertEqual(list(self.dir.iterdir()), [])


class Listen(Case):
    def setUp(self):
        super().setUp()
        self.server = subprocess.Popen([BUILD / "ropeway", "top", "--listen", "127.0.0.1:0"], env=environment(), stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.server.wait)
        self.addCleanup(self.server.stdout.close)
        self.addCleanup(self.server.kill)
        self.port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/metrics\n", self.server.stdout.readline())[1])

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)
        self.addCleanup(s.close)
        return s

    def ask(self, request):
        with socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S) as s:
            s.sendall(request)
            return self.answer(s)

    @staticmethod
    def answer(s):
        got = b""
        while data := s.recv(65536):
            got += data
        return got.decode()

    def get(self, path="/metrics"):
        return self.ask(f"GET {path} HTTP/1.1\r\nHost: localhost:{self.port}\r\n\r\n".encode())

    def test_a_scrape_has_exact_numbers_and_valid_framing(self):
        load = Load(self, 1)
        load.do("write 6 4096")
        head, page = self.get().split("\r\n\r\n", 1)
        self.assertTrue(head.startswith("HTTP/1.1 200 OK\r\n"), head)
        self.assertIn("Content-Type: text/plain; version=0.0.4", head)
        self.assertIn(f"Content-Length: {len(page)}\r\n", head)
        self.assertIn("Connection: close", head)
        self.assertEqual(value(parse(page), "ropeway_process_writes_total", pid=str(load.pids[0])), 6)
        only_head = self.ask(b"HEAD /metrics HTTP/1.0\r\n\r\n")
        self.assertTrue(only_head.startswith("HTTP/1.1 200 OK\r\n") and only_head.endswith("\r\n\r\n"))
        self.assertIn("200 OK", self.get("/metrics?x=1").split("\r\n")[0])
        self.assertIn("/metrics", self.get("/").split("\r\n\r\n")[1])

    def test_it_waits_where_no_descriptor_is_left(self):
        for limit, alive in ((19, True), (10, False)):  # 10: fewer than poll(2) is given
            p = subprocess.Popen([BUILD / "ropeway", "top", "--listen", "127.0.0.1:0"], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            resource.prlimit(p.pid, resource.RLIMIT_NOFILE, (limit, limit))
            self.addCleanup(p.communicate)
            self.addCleanup(p.kill)
            port = int(re.search(r":(\d+)/", p.stdout.readline())[1])
            if not alive:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), TIMEOUT_S).close()
                self.assertEqual(p.wait(TIMEOUT_S), 1)
                self.assertIn("cannot listen", p.stderr.read())
                continue
            clients = [socket.create_connection(("127.0.0.1", port), TIMEOUT_S) for _ in range(18)]
            used = lambda: sum(map(int, pathlib.Path(f"/proc/{p.pid}/stat").read_text().split()[13:15]))  # noqa: B023,E731
            time.sleep(0.2)
            before = used()
            time.sleep(1)
            self.assertLess((used() - before) / os.sysconf("SC_CLK_TCK"), 0.2)
            for s in clients:
                s.close()

    def test_what_is_no_good_request_is_refused(self):
        for request, status in ((b"GET / HTTP/1.1\r\n\r\n", 400), (b"GET /\r\n\r\n", 400), (b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 400), (b"\r\n\r\n", 400), (b" / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
                                (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400), (b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
                                (b"\x16\x03\x01\x02\0\x01\0\r\n\r\n", 400), (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 405),
                                (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404), (b"GET /metricsx HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
                                (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421), (b"GET /metrics HTTP/1.1\r\nHost: 192.0.2.1:80\r\n\r\n", 421),
                                (b"GET /metrics HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 421), (b"GET /" + b"a" * 5000, 431),
                                (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 8000 + b"\r\n\r\n", 431)):
            self.assertEqual(self.ask(request).split(" ")[1:2], [str(status)], request[:60])
        for good in (b"Host: [::1]:9", b"hOST:\t127.9.9.9"):
            self.assertIn("200 OK", self.ask(b"GET /metrics HTTP/1.1\r\n" + good + b"\r\n\r\n").split("\r\n")[0])

    def test_slow_silent_and_many_clients_keep_nobody_from_a_scrape(self):
        silent = [self.connect() for _ in range(60)]
        for i, s in enumerate(silent[::2]):
            s.sendall(b"GET /metr"[:1 + i % 9])
        begun = time.monotonic()
        self.assertIn("200 OK", self.get().split("\r\n")[0])
        self.assertLess(time.monotonic() - begun, 3)
        # one that never reads, and one that sends for ever behind a good request
        deaf = self.connect()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        talks = self.connect()
        with self.assertRaises(OSError):
            talks.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            for _ in range(10000):
                talks.sendall(b"x" * 65536)
        self.assertIn("200 OK", self.get().split("\r\n")[0])
        # each has a deadline
        until = time.monotonic() + 15
        for s in silent[-8:]:
            s.settimeout(max(0.1, until - time.monotonic()))
            try:
                self.assertEqual(s.recv(1), b"")
            except ConnectionResetError:
                pass
        fds = len(list(pathlib.Path(f"/proc/{self.server.pid}/fd").iterdir()))
        self.assertLess(fds, 16)
        self.assertEqual(self.server.poll(), None)
        self.server.terminate()
        self.assertEqual(self.server.wait(TIMEOUT_S), 0)


def main():
    global BUILD, LOAD  # pylint: disable=global-statement
    BUILD, LOAD = pathlib.Path(sys.argv[1]).resolve(), str(pathlib.Path(sys.argv[3]).resolve())
    suite = unittest.defaultTestLoader.loadTestsFromTestCase({c.__name__: c for c in (Counts, Text, Screen, Page, Listen)}[sys.argv[2]])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    if result.wasSuccessful() and len(result.skipped) == result.testsRun:
        sys.exit(77)
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
