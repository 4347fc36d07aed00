#!/usr/bin/python3
"""A man in the middle between `ropeway send` and `ropeway recv` (relay.py): with a key he reads nothing, and what he changes is said by the receiver and never reported as sent; without one he
forges a file, which shows that he has the bytes in his hands.

Usage: middle_test.py BUILD_DIR TEST_CLASS
"""
import contextlib
import ctypes
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import files_test  # pylint: disable=wrong-import-position
from files_test import CHUNK, PART, TIMEOUT_S, Case, checksum, content  # pylint: disable=wrong-import-position
from relay import ALERT_BYTES, CONTROL, DATA, DOWN, HANDSHAKE, SEALED, THERE, UP, Relay  # pylint: disable=wrong-import-position

KEY = "00112233445566778899aabbccddeeff" * 2
SIZE = 8 * CHUNK + 7  # so much that both data streams carry some
SAYS_S, TURN_S = 15, 0.02
MARK = b"only for the receiver"
NAME = "a-name-of-weight"
# What either side says of a byte that is not the other's.
CHANGED = r"changed on its way|(?i:bad record mac|illegal parameter|unexpected message|decode error|decoding the received|missing extension|protocol version|something between the two)"
EXTENSIONS = {"the pre-shared key": 0x0029, "TLS 1.3": 0x002b, "the key exchange modes": 0x002d, "the key share": 0x0033}


def until(what, seconds):
    end = time.monotonic() + seconds
    while not (got := what()) and time.monotonic() < end:
        time.sleep(0.005)
    return got


# ---- where ----

def first(c, way, unit):
    return not c.passed[way]


def sealed(n):
    return lambda c, way, unit: unit[0] == SEALED and c.sealed[way] == n


def after(part):
    """When so much of the file has gone by."""
    return lambda c, way, unit: unit[0] == SEALED and c.relay.passed(DATA, UP) >= part * SIZE


def inside(part):
    return lambda c, way, unit: unit[0] == SEALED and len(unit) > 4096 and c.passed[way] >= part * CHUNK


def goodbye(c, way, unit):
    """The last record: that this is the end."""
    return unit[0] == SEALED and len(unit) == ALERT_BYTES


# ---- what ----

def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


def change(c, way, unit):
    return flipped(unit, (len(unit) + 5) // 2)


def change_tag(c, way, unit):
    return flipped(unit, len(unit) - 1)


def drop_bytes(c, way, unit):
    return unit[:len(unit) // 2] + unit[len(unit) // 2 + 7:]


def drop_record(c, way, unit):
    return b""


def repeat(c, way, unit):
    return unit + unit


def insert(c, way, unit):
    return b"\x17\3\3\0\x40" + os.urandom(64) + unit


def reflect(c, way, unit):
    c.put(1 - way, unit)
    return unit


def cut(c, way, unit):
    c.cut()
    return b""


class Between(Case):
    transport = "tcp"

    def setUp(self):
        super().setUp()
        (self.dir / "key").write_text(KEY + "\n")
        (self.dir / "key").chmod(0o600)
        self.keyed = ("--key-file", self.dir / "key")
        self.source = self.dir / NAME
        self.source.write_bytes((MARK + content(1, 4096 - len(MARK))) * (SIZE // 4096) + b"the end")
        self.said = []

    def start(self, *args):
        p, port = self.recv(*args)
        self.said = said = []

        def listen():
            with contextlib.suppress(ValueError):  # the test has ended and closed it
                said.extend(iter(p.stdout.readline, ""))

        threading.Thread(target=listen, daemon=True).start()
        return p, port

    def relay(self, p, port, *meddle):
        r = Relay(p.pid, port, *meddle)
        self.addCleanup(r.close)
        return r

    def send_by(self, relay, *args, path=None):
        return subprocess.run(self.send_command("-t", "5", *args, path or self.source, f"{relay.here}:{relay.port}"), env=self.env, text=True, capture_output=True, timeout=TIMEOUT_S,
                              check=False)

    def received(self, name=NAME):
        """Nothing, or all of it."""
        got = self.dst / name
        self.assertTrue({q.name for q in self.dst.iterdir()} <= {name, name + PART}, os.listdir(self.dst))
        if got.exists():
            self.assertEqual(got.read_bytes(), (self.dir / name).read_bytes())
        return got.exists()

    def receiver_says(self, what):
        self.assertTrue(until(lambda: any(re.search(what, line) and f"{THERE}:" in line for line in list(self.said)), SAYS_S), self.said)

    def assert_unread(self, relay):
        for secret in (MARK, NAME.encode(), self.dir.name.encode()):
            self.assertEqual(relay.seen(secret), [])


class Middle(Between):
    def meddled(self, kind, number, way, where, what):
        """One session with that done to it once: how the sender ended, and whether he came to do it."""
        done = []

        def meddle(c, w, unit):
            if number and c.kind == kind and c.number < number and c.passed[w] > CHUNK and not done:
                time.sleep(TURN_S)  # the other stream is to get its turn: this one is slow, and goes on, since it announces what the other carries
            if not done and (c.kind, w) == (kind, way) and number in (None, c.number) and where(c, w, unit):
                done.append(unit)
                return what(c, w, unit)
            return unit

        p, port = self.start(*self.keyed)
        relay = self.relay(p, port, meddle)
        got = self.send_by(relay, *self.keyed)
        self.assertEqual(self.received() or got.returncode, got.returncode or True, got)  # success: all of it is there
        self.assert_unread(relay)
        return p, port, got, done

    def goes_on(self, p, port):
        """The receiver serves on, and what it kept is right."""
        self.send(port, *self.keyed, self.source)
        self.assertTrue(self.received())
        self.assertFalse((self.dst / (NAME + PART)).exists())
        p.kill()
        p.wait()
        (self.dst / NAME).unlink()

    def all_of(self, cases, must_fail=True, must_come=True):
        for i, (what, kind, number, way, where) in enumerate(cases):
            with self.subTest(i=i, what=what.__name__, kind=kind, number=number, way=way):
                p, port, got, done = self.meddled(kind, number, way, where, what)
                if must_come:
                    self.assertTrue(done, "nothing was there to be changed")
                if must_fail:
                    self.assertEqual((got.returncode, got.stdout), (1, ""), got)
                    self.assertRegex(got.stderr, CHANGED)
                    self.receiver_says(CHANGED)
                self.goes_on(p, port)

    # ---- without a change, and without a key ----

    def test_who_only_looks_is_not_noticed_and_reads_nothing(self):
        p, port = self.start(*self.keyed)
        relay = self.relay(p, port)
        got = self.send_by(relay, *self.keyed)
        self.assertEqual(got.returncode, 0, got)
        self.assertIn("by tcp: only tcp was asked for; sealed by the key of both sides (TLS 1.3)", got.stdout)
        self.assertTrue(self.received())
        self.assert_unread(relay)
        self.assertEqual([c.kind for c in relay.connections], [CONTROL, DATA, DATA])
        self.assertGreater(relay.passed(DATA, UP), SIZE)
        for c in relay.connections:
            self.assertGreater(c.passed[UP], 2 * CHUNK if c.kind == DATA else 0)
            self.assertEqual([said[0] for said in c.said], [HANDSHAKE, HANDSHAKE])

    def forge(self, *key):
        """A file whose bytes and checksum he replaces by others."""
        mine, other = MARK * 40, MARK.swapcase() * 40
        self.source.write_bytes(mine)
        p, port = self.start(*key)
        relay = self.relay(p, port, lambda c, way, unit: unit.replace(mine, other).replace(checksum(mine), checksum(other)))
        got = self.send_by(relay, *key)
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)
        return (self.dst / NAME).read_bytes() == other, relay

    def test_without_a_key_he_reads_and_forges_a_file_and_nobody_notices(self):
        forged, relay = self.forge()
        self.assertTrue(forged)
        for secret in (MARK, NAME.encode()):
            self.assertEqual(relay.seen(secret), [(DATA, 0, UP)])

    def test_with_a_key_the_same_forger_finds_nothing_to_forge(self):
        forged, relay = self.forge(*self.keyed)
        self.assertFalse(forged)
        self.assert_unread(relay)
        self.assertTrue(self.received())

    def test_without_a_key_a_changed_byte_reaches_the_file_and_its_checksum(self):
        done = []

        def meddle(c, way, unit):
            at = unit.find(MARK)
            if at < 0 or done or c.passed[way] < CHUNK:
                return unit
            done.append(at)
            return flipped(unit, at)

        p, port = self.start()
        got = self.send_by(self.relay(p, port, meddle))
        self.assertTrue(done)
        self.assertEqual(got.returncode, 1, got)
        self.assertIn("checksum", got.stderr)
        self.assertFalse(self.received())

    # ---- one thing is done to a stream ----

    def test_a_changed_byte_of_a_handshake_is_said(self):
        self.all_of([(change, DATA, 0, way, where) for way in (UP, DOWN) for where in (first, sealed(0))])
        self.all_of([(change, DATA, 1, UP, first), (change, DATA, 1, DOWN, first), (change, DATA, 1, DOWN, sealed(0))])
        self.all_of([(change, CONTROL, 0, way, first) for way in (UP, DOWN)])

    def test_a_changed_byte_of_the_data_is_said(self):
        self.all_of([(what, DATA, n, UP, inside(part)) for what in (change, change_tag) for n in (0, 1) for part in (1, 2)])
        self.all_of([(change, DATA, None, UP, after(part)) for part in (0.5, 0.97)])

    def test_a_changed_byte_of_what_the_receiver_answers_is_said(self):
        self.all_of([(what, DATA, 0, DOWN, sealed(n)) for what in (change, change_tag) for n in (2, 3, 5)])
        self.all_of([(change, DATA, 0, DOWN, after(0.3))])

    def test_a_changed_byte_of_the_control_connection_is_said(self):
        self.all_of([(change, CONTROL, 0, UP, sealed(2)), (change, CONTROL, 0, UP, sealed(3)), (change, CONTROL, 0, DOWN, sealed(3)), (change, CONTROL, 0, DOWN, sealed(4))])

    def test_what_is_changed_before_there_is_anything_to_lose_is_tried_again_or_said(self):
        self.all_of([(change, CONTROL, 0, way, sealed(n)) for way in (UP, DOWN) for n in (0, 1)] + [(change, DATA, 1, UP, sealed(0))], must_fail=False)

    def test_bytes_and_records_that_are_lost_added_or_repeated_are_said(self):
        self.all_of([(what, DATA, n, UP, inside(1)) for what in (drop_bytes, drop_record, repeat, insert) for n in (0, 1)])
        self.all_of([(what, CONTROL, 0, UP, sealed(2)) for what in (repeat, insert)])
        self.all_of([(what, DATA, 0, DOWN, sealed(3)) for what in (repeat, insert)])

    def test_a_record_that_comes_back_is_said(self):
        self.all_of([(reflect, DATA, 0, UP, inside(1)), (reflect, CONTROL, 0, UP, sealed(2))])

    def test_who_cuts_a_stream_loses_nothing_and_adds_nothing(self):
        self.all_of([(cut, DATA, n, way, where) for n, way, where in ((0, UP, first), (0, UP, sealed(1)), (0, DOWN, sealed(1)), (0, UP, inside(1)), (1, UP, inside(1)))]
                    + [(cut, DATA, None, UP, after(0.97)), (cut, CONTROL, 0, UP, sealed(2)), (cut, CONTROL, 0, DOWN, sealed(2))], must_fail=False)

    def test_the_end_that_is_changed_or_does_not_come_leaves_only_what_is_whole(self):
        self.all_of([(what, kind, None, way, goodbye) for kind in (CONTROL, DATA) for way in (UP, DOWN) for what in (change, drop_record, cut)],
                    must_fail=False, must_come=False)  # who has heard enough does not wait for it

    # ---- streams and sessions are mixed up ----

    def test_two_streams_that_change_places_are_said(self):
        def swap(c, way, unit):
            one, two = (c.relay.find(DATA, n) for n in (0, 1))
            one.sock[1], two.sock[1] = two.sock[1], one.sock[1]
            return unit

        self.all_of([(swap, DATA, 1, UP, inside(n)) for n in (1, 2)])

    def session(self, port, p, name, meddle=None):
        (self.dir / name).write_bytes((MARK + content(name, 4096 - len(MARK))) * (SIZE // 4096))
        relay = self.relay(p, port, *([meddle] if meddle else []))
        got = self.send_by(relay, *self.keyed, path=self.dir / name)
        relay.close()
        return relay, got

    def test_a_stream_of_another_session_is_not_taken_again(self):
        p, port = self.start(*self.keyed)
        old, got = self.session(port, p, "old")
        self.assertEqual(got.returncode, 0, got)
        (self.dst / "old").unlink()
        said = {(c.kind, c.number): bytes(c.said[UP]) for c in old.connections}
        data_port = next(iter(old.listeners.keys() - {port}))

        def into(kind, number, at):
            done = []

            def meddle(c, way, unit):
                if (c.kind, c.number, way) != (kind, number, UP) or done == [1] or c.passed[UP] < at:
                    return unit
                done.append(1)
                return said[kind, number] if at == 0 else said[kind, number][-CHUNK:]
            return meddle

        for kind, number, at in ((DATA, 0, 0), (DATA, 0, CHUNK), (DATA, 1, CHUNK), (CONTROL, 0, 0)):
            with self.subTest(kind=kind, number=number, at=at):
                name = f"new-{kind}-{number}-{at}"
                _, got = self.session(port, p, name, into(kind, number, at))
                self.assertEqual(got.returncode, 1, got)
                self.receiver_says(CHANGED)
                self.assertEqual([q for q in os.listdir(self.dst) if not q.endswith(PART)], [])
                self.said.clear()
        # And all of it once more, with nobody at the other end.
        socks = [socket.create_connection((THERE, port if kind == CONTROL else data_port)) for kind, _ in said]
        for s, stream in zip(socks, said.values()):
            s.settimeout(TIMEOUT_S)
            try:
                s.sendall(stream)
                while s.recv(65536):
                    pass
            except ConnectionError:
                pass
            s.close()
        self.assertEqual([q for q in os.listdir(self.dst) if not q.endswith(PART)], [])
        self.send(port, *self.keyed, self.dir / "old")
        self.assertEqual((self.dst / "old").read_bytes(), (self.dir / "old").read_bytes())

    # ---- talked down ----

    def test_a_hello_without_what_it_needs_is_refused(self):
        for what, number in EXTENSIONS.items():
            for kind in (CONTROL, DATA):
                with self.subTest(what=what, kind=kind):
                    def strip(c, way, unit, number=number):
                        at = unit.find(number.to_bytes(2, "big"), 76)  # after the version, the random bytes and the session
                        self.assertGreater(at, 0)
                        return unit[:at] + b"\x7f\x7f" + unit[at + 2:]

                    p, port, got, done = self.meddled(kind, 0, UP, first, strip)
                    self.assertTrue(done)
                    self.assertEqual((got.returncode, got.stdout), (1, ""), got)
                    if kind == DATA:  # else he is one of the many strangers who have no key
                        self.receiver_says("could not be made")
                    self.goes_on(p, port)

    def test_a_receiver_or_a_sender_without_the_key_gets_nothing(self):
        p, port = self.start()  # his own, in the clear
        relay = self.relay(p, port)
        got = self.send_by(relay, *self.keyed)
        self.assertEqual((got.returncode, got.stdout), (1, ""), got)
        self.assertIn("it has no key, this side has one", got.stderr)
        self.assertEqual(os.listdir(self.dst), [])
        self.assert_unread(relay)
        p, port = self.start(*self.keyed)
        got = self.send_by(self.relay(p, port))
        self.assertEqual((got.returncode, got.stdout), (1, ""), got)
        self.receiver_says("it has no key, this side has one")
        self.assertEqual(os.listdir(self.dst), [])

    def test_a_data_stream_in_the_clear_is_not_taken_by_either(self):
        p, port = self.start()
        clear = self.relay(p, port)
        self.assertEqual(self.send_by(clear).returncode, 0)
        p.kill()
        said = clear.find(DATA, 0).said
        (self.dst / NAME).unlink()
        for way in (UP, DOWN):
            def speak(c, w, unit):
                return bytes(said[w])[:CHUNK]

            p, port, got, done = self.meddled(DATA, 0, way, first, speak)
            self.assertTrue(done)
            self.assertEqual((got.returncode, got.stdout), (1, ""), got)
            self.receiver_says("could not be made")
            self.assertFalse(self.received())
            self.goes_on(p, port)

    def test_a_stream_with_another_key_under_the_right_name_is_refused_and_keeps_nobody_out(self):
        results = []

        def stranger(c, way, unit):
            identity = re.search(rb"ropeway-tcp [0-9a-f]{8} [0-9]", unit)[0]
            port = c.sock[1].getpeername()[1]
            results.extend(psk_handshake(port, identity, key) for key in (bytes(32), bytes.fromhex(KEY)))
            return unit

        p, port = self.start(*self.keyed)
        self.assertEqual(psk_handshake(port, b"ropeway", bytes.fromhex(KEY)), 0)  # so it is the key, not what he speaks
        self.assertLess(psk_handshake(port, b"ropeway", bytes(32)), 0)
        self.receiver_says("its key is not the one")
        p.kill()
        p, port, got, done = self.meddled(DATA, 0, UP, first, stranger)
        self.assertTrue(done)
        self.assertEqual(got.returncode, 0, got)
        self.assertEqual([r < 0 for r in results], [True, True])
        self.goes_on(p, port)


class Datum(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_uint)]


def psk_handshake(port, identity, key):
    """What gnutls_handshake gives, or the record that comes after it."""
    g = ctypes.CDLL("libgnutls.so.30")
    client, by_psk, raw_key = 2, 4, 0
    session, credentials, one = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(1)
    assert not g.gnutls_init(ctypes.byref(session), client)
    assert not g.gnutls_psk_allocate_client_credentials(ctypes.byref(credentials))
    assert not g.gnutls_psk_set_client_credentials(credentials, identity, ctypes.byref(Datum(key, len(key))), raw_key)
    assert not g.gnutls_priority_set_direct(session, b"NORMAL:-VERS-ALL:+VERS-TLS1.3:+ECDHE-PSK:+PSK", None)
    assert not g.gnutls_credentials_set(session, by_psk, credentials)
    with socket.create_connection((THERE, port), TIMEOUT_S) as s:
        s.setblocking(True)
        g.gnutls_transport_set_int2(session, s.fileno(), s.fileno())
        rc = g.gnutls_handshake(session)
        if not rc:
            s.shutdown(socket.SHUT_WR)
            rc = min(0, g.gnutls_record_recv(session, one, ctypes.c_size_t(1)))
            rc = 0 if rc == -110 else rc  # GNUTLS_E_PREMATURE_TERMINATION: no alert, it only ends as we do
    g.gnutls_deinit(session)
    g.gnutls_psk_free_client_credentials(credentials)
    return rc


class Paths(Between):
    """In a network namespace of its own, where UDP port 4791 is free: which paths are taken."""

    def taken(self, transports, *key):
        self.env["ROPEWAY_TRANSPORT"] = transports
        p, port = self.start(*key)
        relay = self.relay(p, port)
        got = self.send_by(relay, *key)
        p.kill()
        p.wait()
        by = re.search(r" by (\w+): ", got.stdout)
        if by:
            self.assertTrue(self.received())
            (self.dst / NAME).unlink()
        if key:
            self.assert_unread(relay)
        return by and by[1]

    def test_with_a_key_no_path_in_the_clear_is_taken(self):
        self.assertEqual(self.taken("verbs"), "verbs")
        self.assertEqual(self.taken("verbs,tcp"), "verbs")
        for command in (["recv", "-l", f"{THERE}:0", *self.keyed, self.dst], ["send", *self.keyed, self.source, THERE]):
            got = subprocess.run([files_test.BUILD / "ropeway", *command], env=dict(self.env, ROPEWAY_TRANSPORT="verbs"), text=True, capture_output=True, timeout=TIMEOUT_S,
                                 check=False)
            self.assertEqual((got.returncode, got.stdout), (1, ""), got)
            self.assertIn("there is a key, and none of the transports asked for (verbs) protects what it carries", got.stderr)
        self.assertEqual(self.taken("verbs,tcp", *self.keyed), "tcp")
        self.assertEqual(self.taken("shm,verbs,tcp", *self.keyed), "shm")


if __name__ == "__main__":
    files_test.BUILD = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
