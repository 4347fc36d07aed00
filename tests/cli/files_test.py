#!/usr/bin/python3
"""`ropeway send` and `ropeway recv`: what arrives, what goes on after a break, and what a sender of bad will cannot do.

Usage: files_test.py BUILD_DIR TEST_CLASS
"""
import contextlib
import ctypes
import fcntl
import hashlib
import os
import pathlib
import pty
import random
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unicodedata
import unittest

BUILD = pathlib.Path(".")
TIMEOUT_S = 60
PART = ".ropeway-part"
CHUNK = 1 << 20
HELLO, READY, DIR, DIR_END, LINK, FILE, HAVE, START, END, DONE, REFUSED, BYE, COMPARE, KEPT, STILL = range(1, 16)
CONTROL, DATA = 1 << 63, 0
WANTS_LINKS = 1
XXHASH = ctypes.CDLL("libxxhash.so.0")


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


XXHASH.XXH3_128bits.restype = Hash128
XXHASH.XXH3_128bits.argtypes = (ctypes.c_char_p, ctypes.c_size_t)


def xxh3(data):
    h = XXHASH.XXH3_128bits(data, len(data))
    return struct.pack(">QQ", h.high, h.low)


def checksum(data):
    """As files/sum.c has it: of the chunks that are not zeros, and the length."""
    chunks = ((i, data[at:at + CHUNK]) for i, at in enumerate(range(0, len(data), CHUNK)))
    return xxh3(b"".join(struct.pack(">Q", i) + xxh3(c) for i, c in chunks if len(c) < CHUNK or c.strip(b"\0")) + struct.pack(">Q", len(data)))


def content(seed, size):
    return random.Random(seed).randbytes(size)


class Case(unittest.TestCase):
    transport = "shm,tcp"

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ropeway-files-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.dst = self.dir / "dst"
        self.dst.mkdir()
        self.env = dict(os.environ, LC_ALL="C.UTF-8", ROPEWAY_TRANSPORT=self.transport)

    def recv(self, *args, dst=None, wrapper=()):
        p = subprocess.Popen([*wrapper, BUILD / "ropeway", "recv", "-l", "127.0.0.1:0", *args, dst or self.dst], env=self.env,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(lambda: p.poll() is None and p.kill())
        line = p.stdout.readline()
        found = re.match(r"listening on port (\d+) ", line)
        self.assertTrue(found, line)
        if not {"-k", "--key-file"} & set(args):
            self.assertIn("no key: any program that reaches that port can add", p.stdout.readline())
        return p, int(found[1])

    def send_command(self, *args):
        return [BUILD / "ropeway", "send", *map(str, args)]

    def send(self, port, *paths, status=0):
        got = subprocess.run(self.send_command(*paths, f"127.0.0.1:{port}"), env=self.env, cwd=self.dir, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
        self.assertEqual(got.returncode, status, got)
        return got

    def end(self, p, status=0):
        out, _ = p.communicate(timeout=TIMEOUT_S)
        self.assertEqual(p.returncode, status, out)
        return out

    def assert_same(self, a, b):
        self.assertEqual(os.path.islink(a), os.path.islink(b), a)
        sa, sb = os.lstat(a), os.lstat(b)
        self.assertEqual((stat.S_IMODE(sa.st_mode), sa.st_mtime_ns), (stat.S_IMODE(sb.st_mode), sb.st_mtime_ns), a)
        if os.path.islink(a):
            self.assertEqual(os.readlink(a), os.readlink(b))
        elif os.path.isdir(a):
            self.assertEqual(sorted(os.listdir(a)), sorted(os.listdir(b)), a)
            for name in os.listdir(a):
                self.assert_same(pathlib.Path(a) / name, pathlib.Path(b) / name)
        else:
            self.assertEqual(hashlib.sha256(pathlib.Path(a).read_bytes()).digest(), hashlib.sha256(pathlib.Path(b).read_bytes()).digest(), a)

    def tree(self):
        src = self.dir / "tree"
        (src / "deep" / "er").mkdir(parents=True)
        for i, size in enumerate((0, 1, 4096, CHUNK - 1, CHUNK, CHUNK + 1, 9 * CHUNK + 77)):
            (src / f"size {size}").write_bytes(content(i, size))
        (src / "deep" / "er" / "x\nstrange \x1b[31m").write_bytes(b"name")
        (src / "deep" / ("n" * 255)).write_bytes(b"long name")
        (src / "deep" / "link").symlink_to("../size 1")
        (src / "here").symlink_to("deep")
        os.chmod(src / "size 1", 0o640)
        os.chmod(src / "size 4096", 0o400)
        os.utime(src / "size 0", ns=(1, 987654321123456789))
        os.chmod(src / "deep" / "er", 0o555)
        os.utime(src / "deep" / "er", ns=(1, 1000000007))
        return src


class Whole(Case):
    def test_a_tree_arrives_as_it_is(self):
        src = self.tree()
        p, port = self.recv("--once")
        out = self.send(port, src).stdout
        self.assertRegex(out, r"^9 files, .* by (shm|tcp|verbs): ")
        self.assertIn("14 entries", self.end(p))
        self.assert_same(src, self.dst / "tree")

    def test_sending_again_sends_nothing_and_changes_nothing(self):
        src = self.tree()
        p, port = self.recv()
        self.send(port, src)
        before = {q: q.lstat().st_ino for q in self.dst.rglob("*")}
        out = self.send(port, src).stdout
        self.assertRegex(out, r"^9 files, 12.00 MiB compared in ")
        self.assertIn("all of it was there already", out)
        self.assertEqual(before, {q: q.lstat().st_ino for q in self.dst.rglob("*") if not q.is_symlink()} | {q: i for q, i in before.items() if q.is_symlink()})
        self.assert_same(src, self.dst / "tree")

    def test_another_file_of_the_name_stays_and_the_rest_arrives(self):
        src = self.tree()
        p, port = self.recv("--once")
        self.send(port, src)
        self.end(p)
        changed = {"size 4096": content(99, 4096), "size 1": b"longer"}
        for name, data in changed.items():
            (src / name).unlink()
            (src / name).write_bytes(data)
        (src / "zz new").write_bytes(b"new")
        os.unlink(src / "here")
        (src / "here").symlink_to("size 0")
        p, port = self.recv("--once")
        got = self.send(port, src, status=1)
        for name in (*changed, "here"):
            self.assertIn(f"'tree/{name}': a different file of this name exists, and stays", got.stderr)
        self.assertIn("size 4096", self.end(p, status=1))
        self.assertEqual((self.dst / "tree" / "size 4096").read_bytes(), content(2, 4096))
        self.assertEqual(os.readlink(self.dst / "tree" / "here"), "deep")
        self.assertEqual((self.dst / "tree" / "zz new").read_bytes(), b"new")
        p, port = self.recv("--once", "--overwrite")
        self.send(port, src)
        self.end(p)
        self.assert_same(src, self.dst / "tree")
        self.assertEqual([q for q in self.dst.rglob("*" + PART)], [])

    def test_a_file_with_another_name_elsewhere_is_replaced_and_the_other_stays(self):
        (self.dst / "f").write_bytes(content(1, CHUNK))
        os.link(self.dst / "f", self.dst / "other")
        os.chmod(self.dst / "f", 0o600)
        (self.dir / "f").write_bytes(content(2, CHUNK))
        p, port = self.recv("--overwrite")
        self.send(port, self.dir / "f")
        self.assert_same(self.dir / "f", self.dst / "f")
        self.assertEqual((self.dst / "other").read_bytes(), content(1, CHUNK))
        os.unlink(self.dst / "f")
        os.link(self.dst / "other", self.dst / "f")
        (self.dir / "f").write_bytes(content(1, CHUNK))
        self.assertIn("its mode 600 stays", self.send(port, self.dir / "f").stderr)
        self.assertEqual(stat.S_IMODE((self.dst / "other").stat().st_mode), 0o600)

    def test_what_was_there_keeps_its_mode_and_that_is_said(self):
        src = self.dir / "d"
        (src / "made").mkdir(parents=True)
        (src / "f").write_bytes(b"the same")
        (self.dst / "d").mkdir()
        (self.dst / "d" / "f").write_bytes(b"the same")
        os.chmod(src / "f", 0o777)
        os.chmod(src, 0o777)
        os.chmod(src / "made", 0o751)
        os.chmod(self.dst / "d" / "f", 0o600)
        os.chmod(self.dst / "d", 0o711)
        p, port = self.recv()
        got = self.send(port, src)
        modes = [stat.S_IMODE((self.dst / q).stat().st_mode) for q in ("d", "d/f", "d/made")]
        self.assertEqual(modes, [0o711, 0o600, 0o751])
        self.assertIn("'d': the directory exists: its mode 711 stays, the sender's is 777", got.stderr)
        self.assertIn("'d/f': the same file exists: its mode 600 stays, the sender's is 777", got.stderr)

    def test_two_sources_of_one_name_are_refused_before_anything_moves(self):
        for side in "pq":
            (self.dir / side).mkdir()
            (self.dir / side / "n").write_bytes(side.encode())
        p, port = self.recv()
        got = self.send(port, "p/n", "q/n", status=1)
        self.assertIn("'p/n' and 'q/n' would both become 'n'", got.stderr)
        self.assertEqual(os.listdir(self.dst), [])

    def test_a_missing_source_is_said_before_connecting(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))  # nobody answers
            begin = time.monotonic()
            got = self.send(s.getsockname()[1], "-t", "20", self.dir / "absent", status=1)
            self.assertIn("absent' is left out: No such file", got.stderr)
            self.assertLess(time.monotonic() - begin, 15)

    def sparse(self, name, size, pieces):
        with open(self.dir / name, "wb") as f:
            os.truncate(f.fileno(), size)
            for seed, at, length in pieces:
                f.seek(at)
                f.write(content(seed, length))
        return self.dir / name

    def same_bytes_at(self, a, b, pieces):
        with open(a, "rb") as x, open(b, "rb") as y:
            for _, at, length in pieces:
                for f in (x, y):
                    f.seek(max(0, at - 4096))
                self.assertEqual(x.read(length + 8192), y.read(length + 8192))

    def test_sparse_files_stay_sparse_and_may_be_larger_than_the_disk(self):
        pieces = ((1, 0, 5000), (2, 3 * CHUNK + 8192, CHUNK), (3, 1 << 34, 4096), ((4), (1 << 43) - 4096, 100))
        src = self.sparse("s", 1 << 43, pieces)  # 8 TiB
        only_hole = self.sparse("hole", 1 << 40, ())
        ends = self.sparse("ends", CHUNK + 5, ((5, 4096, 77),))
        fs = os.statvfs(self.dst)
        self.assertGreater(1 << 43, fs.f_blocks * fs.f_frsize)
        p, port = self.recv()
        self.assertIn("3 files, 1.0", self.send(port, src, only_hole, ends).stdout)
        for f, parts in ((src, pieces), (only_hole, ()), (ends, ((5, 4096, 77),))):
            got = self.dst / f.name
            self.assertEqual(got.stat().st_size, f.stat().st_size)
            self.assertLessEqual(got.stat().st_blocks, f.stat().st_blocks + 16)
            self.same_bytes_at(f, got, parts)
        self.assertEqual((self.dst / "ends").read_bytes(), ends.read_bytes())
        self.assertIn("compared", self.send(port, src, only_hole, ends).stdout)

    def test_zeros_that_are_written_and_zeros_that_are_a_hole_are_the_same_file(self):
        (self.dst / "f").write_bytes(bytes(3 * CHUNK + 9))
        f = self.sparse("f", 3 * CHUNK + 9, ())
        p, port = self.recv()
        self.assertIn("compared", self.send(port, f).stdout)

    def test_hard_links_and_set_id_bits_are_named(self):
        src = self.dir / "d"
        src.mkdir()
        (src / "one").write_bytes(b"two names")
        os.link(src / "one", src / "two")
        (src / "suid").write_bytes(b"bits")
        os.chmod(src / "suid", 0o4755)
        p, port = self.recv()
        err = self.send(port, src).stderr
        for name in ("one", "two"):
            self.assertIn(f"'d/{name}' has 2 names (hard links): each one sent becomes a separate file", err)
        self.assertIn("'d/suid' has mode 4755: it is sent without its set-user-ID", err)
        self.assertEqual(stat.S_IMODE((self.dst / "d" / "suid").stat().st_mode), 0o755)

    def test_all_links_are_sent_as_they_are_where_both_sides_want_it(self):
        src = self.dir / "d"
        src.mkdir()
        targets = {"abs": "/etc/passwd", "up": "../../x", "bent": "a/../../b", "inner": "abs", "loop": "loop"}
        for name, target in targets.items():
            (src / name).symlink_to(target)
        (self.dir / "alone").symlink_to("/nowhere")
        p, port = self.recv("--links")
        self.send(port, "--links", src, self.dir / "alone")
        self.assertEqual({n: os.readlink(self.dst / "d" / n) for n in targets}, targets)
        self.assertEqual(os.readlink(self.dst / "alone"), "/nowhere")
        self.send(port, "--links", src)  # and again
        p, port = self.recv()
        self.assertIn("start it with --links too", self.send(port, "--links", src, status=1).stderr)

    def test_quiet_prints_errors_only(self):
        (self.dir / "f").write_bytes(b"quiet")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        p = subprocess.Popen([BUILD / "ropeway", "recv", "-q", "-1", "-l", f"127.0.0.1:{port}", self.dst], env=self.env, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
        self.addCleanup(lambda: p.poll() is None and p.kill())
        self.send(port, "-t", "20", "-q", self.dir / "f")
        self.assertEqual(p.communicate(timeout=TIMEOUT_S)[0], "")

    def test_the_progress_line_fits_the_terminal(self):
        """On a terminal of its own: no frame is wider than it, so that each rewrites the one before."""
        src = self.dir / "d"
        src.mkdir()
        for name in ("n" * 60, "\u6587\u4ef6" * 20, "short"):
            (src / name).write_bytes(content(name, 9 * CHUNK))
        p, port = self.recv("--overwrite")
        for width in (80, 30, 132, 5):
            ours, theirs = pty.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
            run = subprocess.Popen(self.send_command(src, f"127.0.0.1:{port}"), env=dict(self.env, LC_ALL="C"), stdout=subprocess.DEVNULL, stderr=theirs)
            os.close(theirs)
            shown = b""
            with contextlib.suppress(OSError):  # the end of a terminal is EIO
                while data := os.read(ours, 65536):
                    shown += data
            os.close(ours)
            self.assertEqual(run.wait(TIMEOUT_S), 0, shown)
            frames = shown.decode().split("\r\x1b[K")
            self.assertGreater(len(frames), 3)
            self.assertNotIn("\n", shown.decode())
            widths = [sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in f) for f in frames]
            self.assertLess(max(widths), width, frames)
            self.assertEqual(any("[#" in f or "[.." in f for f in frames), width >= 80, frames)
            shutil.rmtree(self.dst / "d")

    def test_no_bar_where_there_is_no_terminal(self):
        (self.dir / "f").write_bytes(content(1, 9 * CHUNK))
        p, port = self.recv()
        self.assertEqual(self.send(port, self.dir / "f").stderr, "")

    def test_without_a_key_it_listens_on_loopback_and_says_so(self):
        if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode:
            self.skipTest("no network namespace can be made here")
        key = self.dir / "key"
        key.write_text("0123456789abcdef0123456789abcdef\n")
        key.chmod(0o600)
        shell = 'ip link set lo up && { "$@" & pid=$!; for i in $(seq 100); do l=$(ss -Hltn); case $l in *:7477*) break;; esac; sleep 0.1; done; echo "$l"; kill $pid; }'
        for args, where in (((), "127.0.0.1:7477"), (("-k", key), "*:7477"), (("-l", ":7477"), "*:7477")):
            got = subprocess.run(["unshare", "-n", "sh", "-c", shell, "sh", BUILD / "ropeway", "recv", *args, self.dst], env=dict(self.env, ROPEWAY_TRANSPORT=self.transport + ",tcp"), text=True, capture_output=True,
                                 timeout=TIMEOUT_S, check=False)
            self.assertIn(f" {where} ", got.stdout)
            self.assertEqual("no key: every user of this host can add files, and replace none there" in got.stdout, not args, got.stdout)
            self.assertEqual("no key: any program that reaches that port can add files" in got.stdout, args[:1] == ("-l",), got.stdout)

    def test_paths_have_the_names_that_they_have(self):
        src = self.tree()
        p, port = self.recv()
        self.send(port, str(src) + "/", str(src / "deep" / "er") + "/.", self.dir / "tree" / "size 1")
        self.assertIn("it begins with a dot", self.send(port, self.dotted(), status=1).stderr)
        self.assertFalse((self.dst / ".profile").exists())
        self.assert_same(src, self.dst / "tree")
        self.assert_same(src / "deep" / "er", self.dst / "er")
        self.assert_same(src / "size 1", self.dst / "size 1")

    def dotted(self):
        (self.dir / ".profile").write_bytes(b"not to be run")
        return self.dir / ".profile"

    def test_several_senders_at_once(self):
        p, port = self.recv()
        runs = []
        for i in range(4):
            name = self.dir / f"file{i}"
            name.write_bytes(content(1000 + i, 3 * CHUNK + i))
            runs.append(subprocess.Popen(self.send_command("-q", name, f"127.0.0.1:{port}"), env=self.env))
        for run in runs:
            self.assertEqual(run.wait(TIMEOUT_S), 0)
        for i in range(4):
            self.assert_same(self.dir / f"file{i}", self.dst / f"file{i}")

    def test_what_cannot_be_sent_is_named_and_the_rest_arrives(self):
        src = self.dir / "mixed"
        src.mkdir()
        (src / "good").write_bytes(b"good")
        os.mkfifo(src / "pipe")
        (src / "out").symlink_to("../secret")
        (src / "abs").symlink_to("/etc/passwd")
        (src / "maybe").symlink_to("x/../y")
        p, port = self.recv()
        got = self.send(port, src, self.dir / "absent", status=1)
        for name in ("mixed/pipe", "mixed/out", "mixed/abs", "mixed/maybe", "absent"):
            self.assertIn(name + "' is left out", got.stderr)
        self.assertEqual(sorted(os.listdir(self.dst / "mixed")), ["good"])

    def test_a_key_on_both_sides_or_nothing(self):
        one, two = self.dir / "one", self.dir / "two"
        one.write_text("0123456789abcdef0123456789abcdef\n")
        two.write_text("fedcba9876543210fedcba9876543210\n")
        one.chmod(0o600)
        two.chmod(0o600)
        (self.dir / "f").write_bytes(b"secret file")
        p, port = self.recv("--key-file", one)
        for args in ((), ("--key-file", two)):
            got = self.send(port, "-t", "3", *args, self.dir / "f", status=1)
            self.assertTrue(got.stderr.startswith("ropeway send: "), got)
            self.assertEqual(os.listdir(self.dst), [])
        self.send(port, "--key-file", one, self.dir / "f")
        self.assert_same(self.dir / "f", self.dst / "f")

    def test_nobody_there_is_a_failure_in_words(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            got = self.send(s.getsockname()[1], "-t", "1", __file__, status=1)
        self.assertIn("ropeway send: ", got.stderr)

    def test_wrong_usage(self):
        for args in (("send",), ("send", "x"), ("send", "-t", "0", "x", "h"), ("send", "--nope", "x", "h"), ("recv", "a", "b"), ("recv", "--nope")):
            got = subprocess.run([BUILD / "ropeway", *args], text=True, capture_output=True, timeout=TIMEOUT_S, check=False)
            self.assertEqual((got.returncode, got.stdout), (2, ""), args)
            self.assertIn("--help", got.stderr)
        got = subprocess.run([BUILD / "ropeway", "recv", self.dir / "absent"], text=True, capture_output=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(got.returncode, 1)
        self.assertIn("cannot be opened as a directory", got.stderr)

    def test_a_folder_that_is_not_there_is_told_with_its_remedy(self):
        absent = self.dir / "absent"
        got = subprocess.run([BUILD / "ropeway", "recv", absent], text=True, capture_output=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual((got.returncode, got.stderr), (1, f"ropeway recv: '{absent}': cannot be opened as a directory: No such file or directory: create it first, with mkdir\n"))
        (self.dir / "plain").write_bytes(b"")
        got = subprocess.run([BUILD / "ropeway", "recv", self.dir / "plain"], text=True, capture_output=True, timeout=TIMEOUT_S, check=False)
        self.assertIn("cannot be opened as a directory: Not a directory\n", got.stderr)


class WholeTcp(Whole):
    transport = "tcp"


class WholeVerbs(Whole):
    """On the software device; run in a network namespace of its own, where UDP port 4791 is free."""
    transport = "verbs"

    def test_a_key_on_both_sides_or_nothing(self):
        """Verbs carries bytes in the clear: with a key it is not taken, and alone it is refused."""
        (self.dir / "key").write_text("0123456789abcdef0123456789abcdef\n")
        (self.dir / "key").chmod(0o600)
        got = subprocess.run([BUILD / "ropeway", "recv", "-l", "127.0.0.1:0", "--key-file", self.dir / "key", self.dst], env=self.env, text=True, capture_output=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual((got.returncode, got.stdout), (1, ""))
        self.assertIn("none of the transports asked for (verbs) protects what it carries", got.stderr)
        self.env["ROPEWAY_TRANSPORT"] = "verbs,tcp"
        super().test_a_key_on_both_sides_or_nothing()


class Broken(Case):
    def half(self, seed=5, size=64 * CHUNK + 5):
        """A file of which a part has arrived; the part."""
        big = self.dir / "big"
        big.write_bytes(content(seed, size))
        p, port = self.recv()
        part = self.dst / ("big" + PART)
        run = subprocess.Popen(self.send_command("-q", big, f"127.0.0.1:{port}"), env=self.env, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and not (part.exists() and part.stat().st_size > 2 * CHUNK):
            time.sleep(0.001)
        run.kill()
        run.wait()
        return big, part, p, port

    def test_a_killed_sender_leaves_a_part_and_the_next_one_goes_on_there(self):
        big, part, p, port = self.half()
        line = p.stdout.readline()
        if not part.exists():
            self.skipTest("all of it had arrived before the sender was killed")
        self.assertIn("are kept, sending it again continues there", line)
        self.assertFalse((self.dst / "big").exists())
        out = self.send(port, big).stdout
        self.assertIn("were there already", out)
        self.assert_same(big, self.dst / "big")
        self.assertFalse(part.exists())

    def test_a_stopped_sender_says_where_and_the_same_command_continues(self):
        big = self.dir / "big"
        with open(big, "wb") as f:
            for seed in range(8):
                f.write(content(seed, 64 * CHUNK))
        p, port = self.recv()
        part = self.dst / ("big" + PART)
        run = subprocess.Popen(self.send_command(big, f"127.0.0.1:{port}"), env=self.env, stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # ignored in what a script starts with &
        while run.poll() is None and not (part.exists() and part.stat().st_size > 2 * CHUNK):
            time.sleep(0.001)
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=TIMEOUT_S)
        if run.returncode == 0:
            self.skipTest("all of it had arrived before the sender was stopped")
        self.assertEqual(run.returncode, -signal.SIGINT)
        self.assertRegex(err, r"^ropeway send: stopped at \d+(\.\d+)? \w+ of 'big': what has arrived is kept, and the same command continues there\n$")
        line = p.stdout.readline()
        self.assertIn("are kept, sending it again continues there: ", line)
        self.assertEqual(line.count(re.match(r"ropeway recv: (\S+)", line)[1]), 1, line)
        self.assertIn("were there already", self.send(port, big).stdout)
        self.assert_same(big, self.dst / "big")

    def test_a_killed_receiver_is_noticed_and_its_part_is_used(self):
        big = self.dir / "big"
        big.write_bytes(content(6, 64 * CHUNK))
        p, port = self.recv()
        part = self.dst / ("big" + PART)
        run = subprocess.Popen(self.send_command("-q", big, f"127.0.0.1:{port}"), env=self.env, stderr=subprocess.PIPE, text=True)
        while run.poll() is None and not (part.exists() and part.stat().st_size > 2 * CHUNK):
            time.sleep(0.001)
        p.kill()
        _, err = run.communicate(timeout=TIMEOUT_S)
        if run.returncode == 0:
            self.skipTest("all of it had arrived before the receiver was killed")
        self.assertEqual(run.returncode, 1)
        self.assertIn("the same command continues there", err)
        p, port = self.recv("--once")
        self.assertIn("were there already", self.send(port, big).stdout)
        self.end(p)
        self.assert_same(big, self.dst / "big")

    def test_a_part_of_another_file_is_not_gone_on_with(self):
        (self.dst / ("f" + PART)).write_bytes(content(1, 2 * CHUNK))
        (self.dir / "f").write_bytes(content(2, 3 * CHUNK))
        p, port = self.recv()
        self.assertNotIn("were there already", self.send(port, self.dir / "f").stdout)
        self.assert_same(self.dir / "f", self.dst / "f")

    def test_one_wrong_byte_in_a_part_is_found(self):
        data = content(3, 3 * CHUNK)
        (self.dir / "f").write_bytes(data)
        (self.dst / ("f" + PART)).write_bytes(data[:CHUNK + 4] + bytes([data[CHUNK + 4] ^ 1]) + data[CHUNK + 5:2 * CHUNK])
        p, port = self.recv()
        self.send(port, self.dir / "f")
        self.assert_same(self.dir / "f", self.dst / "f")

    def test_a_sparse_file_goes_on_where_it_stopped(self):
        big = self.dir / "big"
        with open(big, "wb") as f:
            f.write(content(8, 32 * CHUNK))
            f.seek(50 * CHUNK + 4096)
            f.write(content(9, 3 * CHUNK))
            f.truncate(60 * CHUNK + 5)
        whole = big.read_bytes()
        for kept in (10 * CHUNK + 17, 32 * CHUNK, 51 * CHUNK):
            with open(self.dst / ("big" + PART), "wb") as f:
                f.write(whole[:min(kept, 32 * CHUNK)])
                if kept > 50 * CHUNK:
                    f.seek(50 * CHUNK + 4096)
                    f.write(whole[50 * CHUNK + 4096:kept])
            p, port = self.recv("--once")
            self.assertIn(f"{kept // CHUNK} MiB were there already", self.send(port, big).stdout)
            self.end(p)
            self.assertEqual(hashlib.sha256((self.dst / "big").read_bytes()).digest(), hashlib.sha256(whole).digest())
            self.assertLess((self.dst / "big").stat().st_blocks * 512, 37 * CHUNK)
            (self.dst / "big").unlink()

    def test_a_part_beyond_a_hole_of_the_source_leaves_nothing_behind(self):
        (self.dst / ("f" + PART)).write_bytes(content(1, CHUNK) + content(2, CHUNK // 2))
        with open(self.dir / "f", "wb") as f:
            f.write(content(1, CHUNK))
            f.truncate(3 * CHUNK)
        p, port = self.recv()
        self.send(port, self.dir / "f")
        self.assert_same(self.dir / "f", self.dst / "f")

    @unittest.skipIf(os.geteuid(), "a small file system needs root")
    def test_a_full_disk_is_told_to_both(self):
        small = self.dir / "small"
        small.mkdir()
        (self.dir / "f").write_bytes(content(4, 3 * CHUNK))
        mount = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=2m none {small} && exec "$@"', "sh"]
        with contextlib.suppress(subprocess.CalledProcessError):
            subprocess.run([*mount, "true"], check=True, timeout=TIMEOUT_S, stderr=subprocess.DEVNULL)
            p, port = self.recv("--once", dst=small, wrapper=mount)
            got = self.send(port, self.dir / "f", status=1)
            self.assertRegex(got.stderr, r"refused: 'f': no room for 3 MiB: .*; .* are free")
            self.assertIn("no room", self.end(p, 1))
            return
        self.skipTest("no tmpfs can be mounted here")


class BrokenVerbs(Broken):
    transport = "verbs"


class Library:
    """libropeway by ctypes: a sender that says what it likes."""

    class Done(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("status", ctypes.c_int), ("length", ctypes.c_size_t), ("tag", ctypes.c_uint64), ("ep", ctypes.c_void_p)]

    def __init__(self, port, may_fail=False):
        self.l = ctypes.CDLL(str(BUILD / "libropeway.so.0"))
        self.l.rpw_last_error.restype = ctypes.c_char_p
        self.c, self.ep, req = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        assert self.l.rpw_context_create(None, ctypes.byref(self.c)) == 0
        assert self.l.rpw_endpoint_create(self.c, f"127.0.0.1:{port}".encode(), None, ctypes.byref(self.ep), ctypes.byref(req)) == 1
        self.connected = self.wait(req).status == 0
        assert self.connected or may_fail, self.l.rpw_last_error()
        self.kept = []

    def wait(self, req):
        done = self.Done(ctypes.sizeof(self.Done))
        self.l.rpw_request_wait(req, TIMEOUT_S * 1000, ctypes.byref(done))
        self.l.rpw_request_destroy(req)
        return done

    def send(self, data, tag=CONTROL):
        req = ctypes.c_void_p()
        buf = ctypes.create_string_buffer(data, len(data))
        self.kept.append(buf)
        rc = self.l.rpw_send(self.ep, buf, ctypes.c_size_t(len(data)), ctypes.c_uint64(tag), ctypes.byref(req))
        if rc == 1:
            self.l.rpw_request_wait(req, 200, None)  # a receiver that does not want it never takes it
            self.l.rpw_request_destroy(req)

    def say(self, kind, name=b"", text=b"", number=0, mode=0o644, size=0, mtime=(1, 2), hash_=b"", version=2, magic=b"RPWF", lens=None, data=0):
        a, b = lens or (len(name), len(text))
        self.send(magic + struct.pack(">HHIIQqIHH", version, kind, number, mode, size, mtime[0], mtime[1], a, b) + hash_.ljust(16, b"\0") + struct.pack(">Q", data) + name + text)

    def data(self, data, offset):
        self.send(data + struct.pack(">Q", offset), DATA)

    def hear(self):
        """(type, text), or (None, status) when the receiver has gone. STILL is not heard."""
        buf, req = ctypes.create_string_buffer(10000), ctypes.c_void_p()
        rc = self.l.rpw_recv(self.c, self.ep, buf, ctypes.c_size_t(10000), ctypes.c_uint64(CONTROL), ctypes.c_uint64(2**64 - 1), ctypes.byref(req))
        if rc < 0:
            return None, rc
        done = self.wait(req)
        if done.status:
            return None, done.status
        kind, = struct.unpack(">H", buf.raw[6:8])
        a, b = struct.unpack(">HH", buf.raw[36:40])
        return (kind, buf.raw[64 + a:64 + a + b].decode()) if kind != STILL else self.hear()

    def close(self):
        self.l.rpw_context_destroy(self.c)
        self.c = None


class Listening(Library):
    """The other side: a receiver that says what it likes, to one sender."""
    ACCEPT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

    def __init__(self):  # pylint: disable=super-init-not-called
        self.l = ctypes.CDLL(str(BUILD / "libropeway.so.0"))
        self.c, self.ep, self.kept, listener = ctypes.c_void_p(), None, [], ctypes.c_void_p()
        self.accepted = self.ACCEPT(lambda l, ep, arg: setattr(self, "ep", ctypes.c_void_p(ep)))
        assert self.l.rpw_context_create(None, ctypes.byref(self.c)) == 0
        assert self.l.rpw_listener_create(self.c, b"127.0.0.1:0", self.accepted, None, ctypes.byref(listener)) == 0
        self.port = self.l.rpw_listener_port(listener)

    def accept(self):
        deadline = time.monotonic() + TIMEOUT_S
        while not self.ep and time.monotonic() < deadline:
            self.l.rpw_context_progress(self.c)
        assert self.ep


class Success(Case):
    """The sender reports it when the receiver has verified and named every file, and said so: never before."""

    def sender_with(self, receive):
        os.environ["ROPEWAY_TRANSPORT"] = self.transport
        r = Listening()
        run = subprocess.Popen(self.send_command(self.dir / "f", f"127.0.0.1:{r.port}"), env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: run.poll() is None and run.kill())
        r.accept()
        self.assertEqual(r.hear()[0], HELLO)
        r.say(READY)
        self.assertEqual(r.hear()[0], FILE)
        receive(r)
        r.close()
        out, err = run.communicate(timeout=TIMEOUT_S)
        return run.returncode, out, err

    def take(self, r):
        r.say(HAVE, hash_=checksum(b""))
        self.assertEqual(r.hear()[0], START)
        buf, req = ctypes.create_string_buffer(CHUNK + 8), ctypes.c_void_p()
        self.assertGreaterEqual(r.l.rpw_recv(r.c, r.ep, buf, ctypes.c_size_t(CHUNK + 8), ctypes.c_uint64(DATA), ctypes.c_uint64(2**64 - 1), ctypes.byref(req)), 0)
        done = r.wait(req)
        self.assertEqual(buf.raw[:done.length], b"whole and right" + bytes(8))
        self.assertEqual(r.hear()[0], END)

    def test_not_before_the_receiver_has_the_file(self):
        (self.dir / "f").write_bytes(b"whole and right")

        for says, status, words in (((), 1, "the connection broke"), (((DONE, b""),), 1, "the connection broke"), (((REFUSED, b"checksum"),), 1, "the receiver refused: checksum"),
                                    (((KEPT, b"another"), (DONE, b"")), 1, "left out: another"), (((STILL, b""), (HAVE, b"")), 1, "unexpected"),
                                    (((STILL, b""), (DONE, b"a note"), (DONE, b"")), 0, "a note")):
            def receive(r, says=says):
                self.take(r)
                for kind, text in says:
                    r.say(kind, b"", text)
                    if kind in (DONE, KEPT):
                        r.hear()  # BYE, or that the sender has gone

            with self.subTest(says=says):
                got, out, err = self.sender_with(receive)
                self.assertEqual(got, status, err)
                self.assertIn(words, err)
                self.assertEqual("1 file," in out, not status)


class SuccessTcp(Success):
    transport = "tcp"


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
