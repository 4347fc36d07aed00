#!/usr/bin/python3
"""Senders of bad will against `ropeway recv`: they say what they like, by the messaging library. Nothing that is there changes, nothing outside is touched, and nobody else is kept out.

Usage: senders_test.py BUILD_DIR TEST_CLASS
"""
import contextlib
import fcntl
import os
import pathlib
import stat
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import files_test  # pylint: disable=wrong-import-position
from files_test import (BYE, CHUNK, COMPARE, DATA, DIR, DIR_END, DONE, END, FILE, HAVE, HELLO, KEPT, LINK, PART, READY, REFUSED, START, STILL,  # pylint: disable=wrong-import-position
                        TIMEOUT_S, WANTS_LINKS, Case, Library, checksum, content)


class Senders(Case):
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
        self.put(self.talk(), b"suid", b"", mode=0o6755)
        self.assertEqual(stat.S_IMODE((self.dst / "suid").stat().st_mode), 0o755)

    def put(self, t, name, data, answer=HAVE, end=DONE, mode=0o644):
        """A whole file, and what the receiver makes of it."""
        t.say(FILE, name, size=len(data), mode=mode)
        self.assertEqual(t.hear()[0], answer)
        t.say(START, size=len(data) if answer == COMPARE else 0)
        if data and answer == HAVE:
            t.data(data, 0)
        t.say(END, hash_=checksum(data), data=len(data) if answer == HAVE else 0)
        kind, text = t.hear()
        self.assertEqual(kind, end, text)
        return text

    def begin_file(self, size, name=b"f"):
        t = self.talk()
        t.say(FILE, name, size=size, number=7)
        self.assertEqual(t.hear()[0], HAVE)
        t.say(START)
        return t

    def test_more_bytes_than_announced(self):
        t = self.begin_file(10)
        t.data(b"x" * 11, 0)
        self.assert_refused(t, "11 bytes came for offset 0")
        t = self.begin_file(10)
        t.data(b"0123456789", 0)
        t.data(b"and more", 10)
        self.assert_refused(t, "8 bytes came for offset 10")
        t = self.begin_file(10)
        t.data(b"01234567", 0)
        t.say(END, data=7)
        self.assert_refused(t, "8 bytes came where the sender says that it sent 7")
        t = self.talk()
        self.put(t, b"whole", b"0123456789")
        t.data(b"and more", 10)
        self.assert_refused(t, "unexpected")
        self.assertEqual(os.listdir(self.dst), ["whole"])

    def test_offsets_that_lead_elsewhere(self):
        for at in (4, 0, 95, 2**64 - 5, 2**63, 2**63 - 5):
            t = self.begin_file(100)
            t.data(b"0123456789", 0)
            t.data(b"again", at)
            if at == 95:
                t.say(END, data=15, hash_=checksum(b"0123456789".ljust(95, b"\0") + b"again"))
                self.assertEqual(t.hear()[0], DONE)
                (self.dst / "f").unlink()
            else:
                self.assert_refused(t, f"offset {at}")
        t = self.begin_file(2**62)  # a long hole costs nothing
        t.data(b"0123456789", 0)
        t.say(END, data=10)
        self.assert_refused(t, "checksum")
        t = self.begin_file(10)
        t.send(b"1234567", DATA)
        self.assert_refused(t, "7 bytes came")
        t = self.begin_file(3 * CHUNK)
        t.data(bytes(CHUNK + 1), 0)
        self.assert_refused(t, "pieces of files")
        self.assertEqual(os.listdir(self.dst), [])

    def test_what_breaks_off_keeps_only_what_was_written(self):
        t = self.begin_file(3_000_000_000, b"big")
        t.data(content(1, CHUNK), 0)
        t.data(content(2, CHUNK), CHUNK)
        part = self.dst / ("big" + PART)
        deadline = time.monotonic() + TIMEOUT_S
        while part.stat().st_size < 2 * CHUNK and time.monotonic() < deadline:
            time.sleep(0.01)
        held = part.stat().st_blocks * 512
        t.close()
        with open(part, "rb") as f:
            while time.monotonic() < deadline:
                with contextlib.suppress(BlockingIOError):  # the receiver holds it until it has let go of the sender
                    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(0.01)
        self.assertLessEqual(held, 16 * CHUNK)
        self.assertLessEqual(part.stat().st_blocks * 512, 2 * CHUNK + 65536)

    def test_a_wrong_checksum_leaves_nothing(self):
        t = self.begin_file(10)
        t.data(b"0123456789", 0)
        t.say(END, hash_=b"wrong", data=10)
        self.assert_refused(t, "checksum")
        self.assertEqual(os.listdir(self.dst), [])

    def test_sizes_that_no_file_has(self):
        for size, why in ((2**63, "no file has"), (2**64 - 1, "no file has"), (2**62, "no room")):
            t = self.talk()
            t.say(FILE, b"huge", size=size, data=size)
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
                          ({"lens": (65535, 0)}, "longer"), ({"name": b"a\0b"}, "zero byte"), ({"mtime": (1, 10**9)}, "nanoseconds"), ({"kind": START}, "unexpected"),
                          ({"kind": READY}, "unexpected"), ({"kind": HELLO}, "unexpected")):
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
        self.assert_refused(t, "unexpected")

    def home(self):
        """A directory with what an attacker would like to have: nothing of it may change."""
        (self.dst / ".ssh").mkdir(mode=0o700)
        (self.dst / ".ssh" / "authorized_keys").write_bytes(b"mine\n")
        (self.dst / ".bashrc").write_bytes(b"# mine\n")
        (self.dst / "bin").mkdir(mode=0o755)
        (self.dst / "bin" / "tool").write_bytes(b"#!/bin/sh\n")
        (self.dst / "empty").write_bytes(b"")
        (self.dst / "l").symlink_to("bin")
        for name, mode in ((".ssh/authorized_keys", 0o600), ("bin/tool", 0o755), ("empty", 0o600)):
            (self.dst / name).chmod(mode)
        return self.photo()

    def photo(self):
        """Everything there is: names, modes, times of files, contents."""
        def one(q):
            st = q.lstat()
            return (oct(st.st_mode), st.st_ino, *(() if q.is_dir() and not q.is_symlink() else (st.st_mtime_ns, os.readlink(q) if q.is_symlink() else q.read_bytes())))
        return {str(q.relative_to(self.dst)): one(q) for q in sorted(self.dst.rglob("*"))}

    def test_a_home_is_not_changed_by_a_stranger(self):
        before = self.home()
        for kind, name, why in ((FILE, b".bashrc", "begins with a dot"), (FILE, b".new", "begins with a dot"), (DIR, b".ssh", "begins with a dot"),
                                (FILE, b".ssh/authorized_keys", "begins with a dot"), (DIR_END, b".ssh", "begins with a dot"), (LINK, b".l", "begins with a dot"),
                                (DIR_END, b"bin", "not the directory that was begun last"), (DIR, b"bin/x", "not in the directory"), (DIR, b"empty", "not a directory")):
            t = self.talk()
            t.say(kind, name, b"x" if kind == LINK else b"", mode=0)
            self.assert_refused(t, why)
        t = self.talk()
        t.say(FILE, b"bin/tool", size=5)
        kind, text = t.hear()
        self.assertEqual((kind, "a different file of this name exists" in text), (KEPT, True), text)
        for name, data in ((b"bin/tool", b"#!/bin/ev\n"), (b"bin/tool", b"#!/bin/sh\r")):
            self.put(t, name, data, COMPARE, KEPT)
        # What is the same is received, and no more than that: not its mode, nor its time.
        self.assertIn("its mode 755 stays", self.put(t, b"bin/tool", b"#!/bin/sh\n", COMPARE, mode=0o4777))
        self.assertIn("its mode 600 stays", self.put(t, b"empty", b"", COMPARE, mode=0o666))
        t.say(LINK, b"l", b"elsewhere")
        self.assertEqual(t.hear()[0], KEPT)
        for mode in (0o777, 0):
            t.say(DIR, b"bin", mode=mode)
            self.assertEqual(t.hear()[0], DONE)
            t.say(DIR_END, b"bin", mode=mode)
            self.assertEqual(t.hear()[0], DONE)
        self.assertEqual(self.photo(), before)

    def test_no_checksum_of_what_is_there_is_told(self):
        self.home()
        t = self.talk()
        t.say(FILE, b"bin/tool", size=10)
        self.assertEqual(t.hear()[0], COMPARE)
        for args in ({"kind": START, "size": 0}, {"kind": START, "size": 5}):
            t = self.talk()
            t.say(FILE, b"bin/tool", size=10)
            self.assertEqual(t.hear()[0], COMPARE)
            t.say(**args)
            self.assert_refused(t, "neither 0 nor where this side is")

    def test_what_appears_meanwhile_is_not_replaced(self):
        t = self.begin_file(10)
        t.data(b"0123456789", 0)
        deadline = time.monotonic() + TIMEOUT_S
        while (self.dst / ("f" + PART)).stat().st_size < 10 and time.monotonic() < deadline:
            time.sleep(0.01)
        (self.dst / "f").write_bytes(b"of another")
        t.say(END, hash_=checksum(b"0123456789"), data=10)
        kind, text = t.hear()
        self.assertEqual((kind, "has appeared meanwhile" in text), (KEPT, True), text)
        self.assertEqual((self.dst / "f").read_bytes(), b"of another")

    def test_no_file_is_written_through_a_link_that_was_sent(self):
        p, port = self.recv("--links", "--overwrite")
        t = Library(port)
        self.addCleanup(t.close)
        t.say(HELLO, mode=WANTS_LINKS)
        self.assertEqual(t.hear()[0], READY)
        outside = str(self.outside).encode()
        for name, target in ((b"d", outside), (b"f", outside + b"/victim"), (b"up", b".."), (b"self", b".")):
            t.say(LINK, name, target)
            self.assertEqual(t.hear()[0], DONE)
        for kind, name in ((FILE, b"d/new"), (FILE, b"f"), (FILE, b"up/new"), (FILE, b"self/new"), (DIR, b"d"), (DIR, b"d/new"), (LINK, b"d/l"), (DIR_END, b"d"),
                           (FILE, b"up/outside/victim")):
            with self.subTest(kind=kind, name=name):
                t = Library(port)
                self.addCleanup(t.close)
                t.say(HELLO, mode=WANTS_LINKS)
                self.assertEqual(t.hear()[0], READY)
                t.say(kind, name, b"x" if kind == LINK else b"", size=5, mode=0)
                self.assert_refused(t, f"'{name.decode()}'")
        self.assertEqual(stat.S_IMODE(self.outside.stat().st_mode) & 0o700, 0o700)

    def test_links_that_lead_outside_need_the_receivers_word(self):
        t = Library(self.port)
        self.addCleanup(t.close)
        t.say(HELLO, mode=WANTS_LINKS)
        self.assertEqual(t.hear()[0], READY)
        t.say(LINK, b"l", b"/etc")
        self.assert_refused(t, "the link is not safe")

    def test_a_part_of_another_user_or_name_is_not_used(self):
        if os.geteuid():
            self.skipTest("needs root")
        (self.dst / ("f" + PART)).write_bytes(b"")
        os.chown(self.dst / ("f" + PART), 12345, 12345)
        t = self.talk()
        t.say(FILE, b"f", size=5)
        self.assert_refused(t, "not a plain file of ours")

    def test_who_reads_a_long_file_may_say_so(self):
        t = self.talk()
        for kind, args in ((STILL, {}), (FILE, {"name": b"f", "size": 5}), (STILL, {}), (START, {}), (STILL, {}), (None, {}), (STILL, {}), (END, {"hash_": checksum(b"bytes"), "data": 5})):
            if kind is None:
                t.data(b"bytes", 0)
            else:
                t.say(kind, **args)
        self.assertEqual([t.hear()[0], t.hear()[0]], [HAVE, DONE])  # and nothing for STILL
        t = Library(self.port)
        self.addCleanup(t.close)
        t.say(STILL)
        self.assert_refused(t, "unexpected")

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

    def test_too_many_at_once_are_turned_away_and_hear_why(self):
        talks = [self.talk() for _ in range(12)]  # of one address
        t = Library(self.port)
        self.addCleanup(t.close)
        t.say(HELLO)
        self.assert_refused(t, "12 senders of your address are already being served")
        for talk in talks:
            talk.say(BYE)
            self.assertEqual(talk.hear()[0], DONE)

    def test_strangers_who_do_nothing_give_way_after_10_s(self):
        silent = [self.talk() for _ in range(10)]
        for name in (b"a", b"b"):  # silent in the middle of a file
            t = self.talk()
            t.say(FILE, name, size=5)
            self.assertEqual(t.hear()[0], HAVE)
            silent.append(t)
        begin, served = time.monotonic(), []
        while not served and time.monotonic() - begin < TIMEOUT_S:
            for t in silent[5:10]:  # to say STILL between two files is to do nothing
                t.say(STILL)
            t = Library(self.port)
            self.addCleanup(t.close)
            t.say(HELLO)
            kind, text = t.hear()
            if kind == READY:
                served.append(t)
            else:
                self.assertIn("are already being served", text)
                time.sleep(0.5)
        self.assertTrue(served)
        kind, text = silent[0].hear()
        self.assertEqual((kind, "nothing moved for 10 s" in text), (REFUSED, True), text)


class SendersTcp(Senders):
    transport = "tcp"


if __name__ == "__main__":
    files_test.BUILD = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
