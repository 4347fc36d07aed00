#!/usr/bin/python3
"""`ropeway send` and `ropeway recv`: what arrives, what goes on after a break, and what a sender of bad will cannot do.

Usage: files_test.py BUILD_DIR TEST_CLASS
"""
import contextlib
import ctypes
import hashlib
import os
import pathlib
import random
import re
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path(".")
TIMEOUT_S = 60
PART = ".ropeway-part"
CHUNK = 1 << 20
HELLO, READY, DIR, DIR_END, LINK, FILE, HAVE, START, END, DONE, REFUSED, BYE = range(1, 13)
CONTROL = 1 << 63


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
        self.assertIn("9 files, 0 bytes sent", out)
        self.assertEqual(before, {q: q.lstat().st_ino for q in self.dst.rglob("*") if not q.is_symlink()} | {q: i for q, i in before.items() if q.is_symlink()})
        self.assert_same(src, self.dst / "tree")
        (src / "size 4096").unlink()
        (src / "size 4096").write_bytes(content(99, 4096))
        self.send(port, src)
        self.assert_same(src, self.dst / "tree")

    def test_paths_have_the_names_that_they_have(self):
        src = self.tree()
        p, port = self.recv()
        self.send(port, str(src) + "/", str(src / "deep" / "er") + "/.", self.dir / "tree" / "size 1")
        self.assert_same(src, self.dst / "tree")
        self.assert_same(src / "deep" / "er", self.dst / "er")
        self.assert_same(src / "size 1", self.dst / "size 1")

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


class WholeTcp(Whole):
    transport = "tcp"


class WholeVerbs(Whole):
    """On the software device; run in a network namespace of its own, where UDP port 4791 is free."""
    transport = "verbs"


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
        line = p.stdout.readline() + p.stdout.readline()
        if not part.exists():
            self.skipTest("all of it had arrived before the sender was killed")
        self.assertIn("are kept, sending it again goes on there", line)
        self.assertFalse((self.dst / "big").exists())
        out = self.send(port, big).stdout
        self.assertIn("were there already", out)
        self.assert_same(big, self.dst / "big")
        self.assertFalse(part.exists())

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
        self.assertIn("the same command goes on there", err)
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
        _fields_ = [("status", ctypes.c_int), ("length", ctypes.c_size_t), ("tag", ctypes.c_uint64), ("ep", ctypes.c_void_p)]

    def __init__(self, port, may_fail=False):
        self.l = ctypes.CDLL(str(BUILD / "libropeway.so.0"))
        self.l.rpw_last_error.restype = ctypes.c_char_p
        self.c, self.ep, req = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        assert self.l.rpw_context_create(None, ctypes.byref(self.c)) == 0
        assert self.l.rpw_connect(self.c, f"127.0.0.1:{port}".encode(), None, ctypes.byref(self.ep), ctypes.byref(req)) == 1
        self.connected = self.wait(req).status == 0
        assert self.connected or may_fail, self.l.rpw_last_error()
        self.kept = []

    def wait(self, req):
        done = self.Done()
        self.l.rpw_wait(req, TIMEOUT_S * 1000, ctypes.byref(done))
        self.l.rpw_request_free(req)
        return done

    def send(self, data, tag=CONTROL):
        req = ctypes.c_void_p()
        buf = ctypes.create_string_buffer(data, len(data))
        self.kept.append(buf)
        rc = self.l.rpw_send(self.ep, buf, ctypes.c_size_t(len(data)), ctypes.c_uint64(tag), ctypes.byref(req))
        if rc == 1:
            self.l.rpw_wait(req, 200, None)  # a receiver that does not want it never takes it
            self.l.rpw_request_free(req)

    def say(self, kind, name=b"", text=b"", number=0, mode=0o644, size=0, mtime=(1, 2), hash_=b"", version=1, magic=b"RPWF", lens=None):
        a, b = lens or (len(name), len(text))
        self.send(magic + struct.pack(">HHIIQqIHH", version, kind, number, mode, size, mtime[0], mtime[1], a, b) + hash_.ljust(16, b"\0") + name + text)

    def hear(self):
        """(type, text), or (None, status) when the receiver has gone."""
        buf, req = ctypes.create_string_buffer(10000), ctypes.c_void_p()
        rc = self.l.rpw_recv(self.c, self.ep, buf, ctypes.c_size_t(10000), ctypes.c_uint64(CONTROL), ctypes.c_uint64(2**64 - 1), ctypes.byref(req))
        if rc < 0:
            return None, rc
        done = self.wait(req)
        if done.status:
            return None, done.status
        kind, = struct.unpack(">H", buf.raw[6:8])
        a, b = struct.unpack(">HH", buf.raw[36:40])
        return kind, buf.raw[56 + a:56 + a + b].decode()

    def close(self):
        self.l.rpw_context_destroy(self.c)


class Hostile(Case):
    def setUp(self):
        super().setUp()
        os.environ["ROPEWAY_TRANSPORT"] = self.transport
        self.outside = self.dir / "outside"
        self.outside.mkdir()
        (self.outside / "victim").write_bytes(b"as it was")
        self.p, self.port = self.recv()

    def tearDown(self):
        # The receiver serves on, and nothing outside was touched.
        self.assertIsNone(self.p.poll())
        (self.dir / "after").write_bytes(b"after")
        self.send(self.port, self.dir / "after")
        self.assertEqual((self.dst / "after").read_bytes(), b"after")
        self.assertEqual(sorted(os.listdir(self.outside)), ["victim"])
        self.assertEqual((self.outside / "victim").read_bytes(), b"as it was")
        self.assertEqual(sorted(q.name for q in self.dir.iterdir()), ["after", "dst", "outside"])

    def talk(self):
        t = Library(self.port)
        self.addCleanup(t.close)
        t.say(HELLO)
        self.assertEqual(t.hear()[0], READY)
        return t

    def assert_refused(self, t, *says):
        kind, text = t.hear()
        self.assertEqual(kind, REFUSED, text)
        for word in says:
            self.assertIn(word, text)

    def test_names_that_leave_or_cheat(self):
        for name, why in ((b"/etc/x", "absolute"), (b"../x", ". or .."), (b"a/../../x", ". or .."), (b"./x", ". or .."), (b"", "empty"), (b"a//b", "empty"),
                          (b"a/", "empty"), (b"..", ". or .."), (b"n" * 256, "longer than 255"), (b"x" + PART.encode(), "under way"), (b"a/" * 200 + b"x", "deep")):
            for kind in (FILE, DIR, LINK, DIR_END):
                with self.subTest(name=name[:20], kind=kind):
                    t = self.talk()
                    t.say(kind, name, b"x" if kind == LINK else b"")
                    self.assert_refused(t, why, "refused")
        self.assertEqual(os.listdir(self.dst), [])

    def test_links_never_lead_outside(self):
        for name, target in ((b"l", b"/etc"), (b"l", b".."), (b"l", b"../outside"), (b"l", b"a/../../outside"), (b"d/l", b"../../outside"), (b"l", b""), (b"l", b".//../x")):
            t = self.talk()
            t.say(DIR, b"d", mode=0o755)
            self.assertEqual(t.hear()[0], DONE)
            t.say(LINK, name, target)
            self.assert_refused(t, "the link is not safe")

    def test_links_are_never_followed(self):
        (self.dst / "way").symlink_to(self.outside)
        (self.dst / "file").symlink_to(self.outside / "victim")
        (self.dst / ("g" + PART)).symlink_to(self.outside / "new")
        os.link(self.outside / "victim", self.dst / ("h" + PART))
        for kind, name in ((FILE, b"way/new"), (DIR, b"way/new"), (LINK, b"way/new"), (DIR_END, b"way"), (DIR, b"way"), (FILE, b"file"), (FILE, b"g"), (FILE, b"h"), (FILE, b"way")):
            with self.subTest(kind=kind, name=name):
                t = self.talk()
                t.say(kind, name, b"x" if kind == LINK else b"", size=5)
                self.assert_refused(t, f"'{name.decode()}'")

    def test_devices_and_pipes_are_left_alone(self):
        os.mkfifo(self.dst / "pipe")
        os.mkfifo(self.dst / ("q" + PART))
        for name in (b"pipe", b"q"):
            t = self.talk()
            t.say(FILE, name, size=5)
            self.assert_refused(t, "plain file")
        t = self.talk()
        t.say(FILE, b"dev", mode=0o020666)
        self.assert_refused(t, "mode")

    def test_no_special_bits(self):
        t = self.talk()
        t.say(FILE, b"suid", mode=0o6755)
        self.assertEqual(t.hear()[0], HAVE)
        t.say(START)
        t.say(END, hash_=bytes.fromhex("99aa06d3014798d86001c324468d497f"))  # XXH3-128 of nothing
        self.assertEqual(t.hear()[0], DONE)
        self.assertEqual(stat.S_IMODE((self.dst / "suid").stat().st_mode), 0o755)

    def begin_file(self, size):
        t = self.talk()
        t.say(FILE, b"f", size=size, number=7)
        self.assertEqual(t.hear()[0], HAVE)
        t.say(START)
        return t

    def test_more_bytes_than_announced(self):
        t = self.begin_file(10)
        t.send(b"x" * 11, 7)
        self.assert_refused(t, "11 bytes came where 10 were due")
        t = self.begin_file(10)
        t.send(b"0123456789", 7)
        t.send(b"and more", 7)
        t.say(END)
        self.assert_refused(t, "8 bytes came after the 10 that were announced")
        self.assertFalse((self.dst / "f").exists())

    def test_fewer_bytes_than_announced(self):
        t = self.begin_file(CHUNK + 10)
        t.send(b"x" * 11, 7)
        self.assert_refused(t, f"11 bytes came where {CHUNK} were due")
        self.assertFalse((self.dst / "f").exists())

    def test_a_wrong_checksum_leaves_nothing(self):
        t = self.begin_file(10)
        t.send(b"0123456789", 7)
        t.say(END, hash_=b"wrong")
        self.assert_refused(t, "checksum")
        self.assertEqual(os.listdir(self.dst), [])

    def test_sizes_that_no_file_has(self):
        for size, why in ((2**63, "no file has"), (2**64 - 1, "no file has"), (2**62, "no room")):
            t = self.talk()
            t.say(FILE, b"huge", size=size)
            self.assert_refused(t, why)
        self.assertEqual(os.listdir(self.dst), [])

    def test_a_beginning_that_is_not_there(self):
        t = self.talk()
        t.say(FILE, b"f", size=100)
        self.assertEqual(t.hear()[0], HAVE)
        t.say(START, size=50)
        self.assert_refused(t, "neither 0 nor where this side is")

    def test_messages_that_are_none(self):
        for args, why in (({"magic": b"HTTP"}, "not a message"), ({"version": 9}, "version 9"), ({"kind": 99}, "type"), ({"kind": 0}, "type"), ({"lens": (5, 5)}, "length"),
                          ({"lens": (65535, 0)}, "longer"), ({"name": b"a\0b"}, "zero byte"), ({"mtime": (1, 10**9)}, "nanoseconds"), ({"kind": START}, "not due"),
                          ({"kind": READY}, "not due"), ({"kind": HELLO}, "not due")):
            with self.subTest(**args):
                t = self.talk()
                t.say(**{"kind": DIR, **args})
                self.assert_refused(t, why)
        t = self.talk()
        t.send(b"x" * 9000)
        self.assert_refused(t, "9000 bytes")
        t = Library(self.port)
        self.addCleanup(t.close)
        t.say(FILE, b"without hello")
        self.assert_refused(t, "not due")

    def test_two_senders_of_one_name(self):
        one = self.talk()
        one.say(FILE, b"same", size=3)
        self.assertEqual(one.hear()[0], HAVE)
        two = self.talk()
        two.say(FILE, b"same", size=3)
        self.assert_refused(two, "another sender")

    def test_a_flood_without_listening_ends(self):
        t = self.talk()
        for i in range(5000):
            t.say(DIR, b"d", mode=0o755)
        t.say(BYE)
        kinds = set()
        for _ in range(5002):
            kind, _text = t.hear()
            kinds.add(kind)
            if kind is None:
                break
        self.assertLessEqual(kinds, {DONE, REFUSED, None})

    def test_who_was_refused_or_says_nothing_keeps_nobody_out(self):
        for i in range(24):  # none of these ever closes
            if i % 2:
                self.addCleanup(Library(self.port).close)
            else:
                t = self.talk()
                t.say(FILE, b"/")
                self.assert_refused(t, "absolute")

    def test_too_many_at_once_are_turned_away(self):
        talks = [self.talk() for _ in range(16)]
        # The 17th is closed at once: it learns so while it connects, or when it waits for an answer.
        t = Library(self.port, may_fail=True)
        if t.connected:
            t.say(HELLO)
            self.assertIsNone(t.hear()[0])
        t.close()
        for talk in talks:
            talk.say(BYE)
            self.assertEqual(talk.hear()[0], DONE)


class HostileTcp(Hostile):
    transport = "tcp"


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
