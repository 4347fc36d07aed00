#!/usr/bin/python3
"""What goes wrong between the write/read programs: a clear line on each side that is left, and no harm to anybody else."""
import re
import signal
import unittest

from pair import Program
from peers import (ADDRESS, C_LOCALE, FLUSHED, PeerCase, client, descriptors, program, server, stop, strange_client, strange_server, text_client,
                   text_server, wait_for_count, wait_until)

# What a hostile client does after it has connected, and words of the server's line about it.
HOSTILE = {
    "garbage": ["a message of 200 bytes was refused", "magic number"],
    "wrong-magic": ["a message of 28 bytes was refused", "magic number"],
    "wrong-version": ["a message of 28 bytes was refused", "version that this program does not speak"],
    "wrong-type": ["a message of 28 bytes was refused", "its type does not exist"],
    "long-length": ["a message of 28 bytes was refused", "its length is not what it says"],
    "short": ["a message of 5 bytes was refused", "shorter than a header"],
    "cut": ["a message of 27 bytes was refused", "its length is not what it says"],
    "long": ["a message of 300 bytes was refused", "its length is not what it says"],
    "too-long": ["a receive failed ("],
    "memory-too-small": ["refused", "the memory that it offers is not of the size agreed on"],
    "memory-too-large": ["refused", "the memory that it offers is not of the size agreed on"],
    "wraps-around": ["refused", "the memory that it offers"],
    "wrong-rkey": ["the RDMA operation on the peer's memory failed (", "emote"],
    "wrong-address": ["the RDMA operation on the peer's memory failed (", "emote"],
    "done-first": ["a message of type 2 was refused", "RS_INIT"],
    "mr-twice": ["a message of type 1 was refused", "RS_MR_RECV"],
    "text": ["refused"],
    "flood": ["a message of type 1 was refused", "RS_MR_RECV"],
    "wrong-content": ["the bytes in the remote buffer are not those that a peer writes"],
}
# What a strange hello gets: the reason in the private data of the rejection, and words of the server's line.
HELLOS = {
    "no-hello": (3, ["no hello of these programs"]),
    "short-hello": (3, ["no hello of these programs"]),
    "other-program": (3, ["no hello of these programs"]),
    "other-version": (2, ["it speaks version 9, this server version 1"]),
    "no-mode": (1, ['it was started for "?", this server for "write"']),
}


class Refusals(PeerCase):
    def test_modes_that_differ(self):
        for ours, theirs in (("write", "read"), ("read", "write")):
            with self.subTest(server=ours), server(ours) as (s, port), client(port, theirs) as c:
                of_client, of_server = c.end(), stop(s)
                self.client_says(of_client, "RDMA_CM_EVENT_REJECTED, status 28", f'it was started for "{ours}", this client for "{theirs}"')
                self.assertEqual(of_server[0], 0)
                self.assertRegex(of_server[2], r"^rdma-server: client \S+ was refused: ")
                self.assertIn(f'was refused: it was started for "{theirs}", this server for "{ours}"', of_server[2])
                self.assertIn("received connection request.\n", of_server[1])

    def client_says(self, result, *words, name="rdma-client"):
        self.says(result, name, *words)

    def server_says(self, result, *words, name="rdma-server"):
        self.says(result, name, *words)

    def says(self, result, name, *words):
        status, out, err = result
        self.assertEqual(status, 1, f"{out}\n{err}")
        self.assertTrue(err.startswith(name + ": "), err)
        for word in words:
            self.assertIn(word, err)

    def test_programs_of_the_other_pair(self):
        with server("write") as (s, port), text_client(port) as c:
            self.client_says(c.end(), 'it was started for "write", this client for "send-recv"', name="rdma-send-recv-client")
            self.assertIn('it was started for "send-recv", this server for "write"', stop(s)[2])

    def test_nobody_listens(self):
        with server("write") as (s, port):
            stop(s)
        with client(port, "write") as c:
            result = c.end()
        self.client_says(result, "RDMA_CM_EVENT_REJECTED, status 8", "nobody listens on that port")
        self.assertEqual(result[1], "address resolved.\nroute resolved.\n")

    def test_strange_hellos(self):
        with server("write") as (s, port):
            for behaviour, (reason, words) in HELLOS.items():
                with self.subTest(behaviour=behaviour), strange_client(port, behaviour) as c:
                    self.assertEqual(c.end()[1], f"rejected 28 reason {reason} version 1 mode 1\n")
            self.check_serves(port)
            status, _, err = stop(s)
        self.assertEqual(status, 0)
        # A request that was repeated before our rejection arrived is one more request, so there may be more lines than clients.
        # The last client has what it wants before the server sees it leave.
        lines = [line for line in err.splitlines() if "is left alone: this program was asked to end" not in line]
        self.assertEqual([line for line in lines if " was refused: " not in line], [])
        self.assertEqual(len({line.split("refused", 1)[1] for line in lines}), 3, err)
        for _, words in HELLOS.values():
            for word in words:
                self.assertIn(word, err)

    def test_server_that_is_another_program(self):
        for behaviour, words in (("no-hello", "it accepted, but: no hello of these programs"), ("other-version", "it accepted, but: it speaks version 9"),
                                 ("reject", "RDMA_CM_EVENT_REJECTED, status 28): no hello of these programs, so it is another program")):
            with self.subTest(behaviour=behaviour), strange_server(behaviour) as (_, port), client(port, "write") as c:
                self.client_says(c.end(), words)

    def test_port_in_use(self):
        with server("write") as (_, port), Program(program("rdma-server"), "-b", ADDRESS, "write", port, env=C_LOCALE) as second:
            self.server_says(second.end(), f"port {port} is in use")

    def test_arguments(self):
        for name, words, expected in (
                ("rdma-server", (), '"write" or "read"'), ("rdma-server", ("wirte",), '"write" or "read"'), ("rdma-client", ("read",), "address is missing"),
                ("rdma-client", ("read", ADDRESS, "70000"), "from 1 to 65535"), ("rdma-client", ("read", ADDRESS, "1", "more"), '"more" is one argument'),
                ("rdma-client", ("-b", ADDRESS, "read", ADDRESS), "no option -b"), ("rdma-client", ("--silent", "read", ADDRESS), "no option --silent"),
                ("rdma-server", ("-w", "0", "read"), "from 1 to 3600"), ("rdma-server", ("-w",), "needs a value"), ("rdma-server", ("--fast",), "--fast"),
                ("rdma-client", ("read", "300.1.2.3"), '"300.1.2.3" is no address'), ("rdma-server", ("-b", "192.0.2.1", "read"), "192.0.2.1"),
                ("rdma-send-recv-client", (), "address is missing"), ("rdma-send-recv-server", ("1", "2"), '"2" is one argument')):
            with self.subTest(name=name, words=words), Program(program(name), *words, env=C_LOCALE) as p:
                result = p.end()
                self.says(result, name, expected)
                self.assertEqual(len(result[2].splitlines()), 1, result[2])


# A strange peer that is silent, or that sends its MR and then nothing; how many of our sends complete then, and what we still wait for.
DYING = {"silent": (1, "the peer's MR message", 3), "stays": (2, "the peer's DONE message", 2)}
EARLY = "the peer disconnected too early (RDMA_CM_EVENT_DISCONNECTED): this side was waiting for "


class Deaths(PeerCase):
    def check_flushes(self, out, missing, receives):
        """Each receive that was still posted comes back, and the cause is told each time."""
        self.assertEqual(out.count(FLUSHED + "\n    a receive was flushed, because: " + EARLY + missing), receives, out)

    def test_client_killed_in_the_middle(self):
        for behaviour, (sends, missing, receives) in DYING.items():
            with self.subTest(behaviour=behaviour), server("write") as (s, port):
                with strange_client(port, behaviour) as c:
                    self.assertIn("said", c.wait_for("said"))
                    wait_for_count(s, "send completed successfully.", sends)
                    c.process.send_signal(signal.SIGKILL)
                    c.end()
                self.check_serves(port)
                self.assertIn("because: " + EARLY, s.wait_for("because: " + EARLY))
                self.check_serves(port)
                wait_for_count(s, "peer disconnected.", 3)
                status, out, err = stop(s)
                self.assertEqual(status, 0)
                self.assertRegex(err, rf"^rdma-server: client \S+: {re.escape(EARLY + missing)}\n$")
                self.check_flushes(out, missing, receives)

    def test_server_killed_in_the_middle(self):
        for behaviour, (sends, missing, receives) in DYING.items():
            with self.subTest(behaviour=behaviour), strange_server(behaviour) as (s, port), client(port, "write") as c:
                self.assertIn("said", s.wait_for("said"))
                wait_for_count(c, "send completed successfully.", sends)
                s.process.send_signal(signal.SIGKILL)
                status, out, err = c.end()
                self.assertEqual(status, 1)
                self.assertRegex(err, rf"^rdma-client: server \S+:{port}: {re.escape(EARLY + missing)}\n$")
                self.check_flushes(out, missing, receives)
                self.assertIn("peer disconnected.", out)

    def test_server_of_texts_killed_before_it_answers(self):
        with text_server("--silent") as (s, port), text_client(port) as c:
            self.assertIn("received message: ", s.wait_for("received message: "))
            wait_for_count(c, "send completed successfully.", 1)
            s.process.send_signal(signal.SIGKILL)
            status, _, err = c.end()
            self.assertEqual(status, 1)
            self.assertIn("this side was waiting for the server's greeting", err)

    def test_server_asked_to_end_while_it_serves(self):
        with server("write") as (s, port), strange_client(port, "silent") as c:
            self.assertIn("said", c.wait_for("said"))
            status, _, err = stop(s)
            self.assertEqual(status, 0, err)
            self.assertIn("is left alone: this program was asked to end", err)
            self.assertIn("disconnected\n", c.end()[1])


class Deadlines(PeerCase):
    """Each wait ends, and the line says what was waited for, and from whom. -w 1 only makes the test short."""

    def test_client_waits_for_an_answer_to_its_request(self):
        with strange_server("never-accept") as (s, port), client(port, "-w", 1, "write") as c:
            status, out, err = c.end()
        self.assertEqual(status, 1)
        self.assertRegex(err, rf"^rdma-client: server \S+:{port}: waited 1 s in vain for an answer to our connection request")
        self.assertEqual(out, "address resolved.\nroute resolved.\n")

    def test_client_waits_for_messages(self):
        for behaviour, missing in (("silent", "the peer's MR message"), ("stays", "the peer's DONE message")):
            with self.subTest(behaviour=behaviour), strange_server(behaviour) as (s, port), client(port, "-w", 1, "write") as c:
                status, out, err = c.end()
                self.assertEqual(status, 1)
                self.assertRegex(err, rf"^rdma-client: server \S+:{port}: waited 1 s in vain for {missing}\n$")
                self.assertIn("\ndisconnected.\n", out)
                self.assertIn(FLUSHED + "\n    a receive was flushed, because: waited 1 s in vain", out)
                self.assertIn("disconnected\n", s.end()[1])

    def test_server_waits_for_messages(self):
        with server("-w", 1, "-n", 2, "write") as (s, port):
            for behaviour in ("silent", "stays"):
                with strange_client(port, behaviour) as c:
                    self.assertIn("disconnected\n", c.end()[1])
            status, _, err = s.end()
        self.assertEqual(status, 1)
        first, second = err.splitlines()
        self.assertRegex(first, r"^rdma-server: client \S+: waited 1 s in vain for the peer's MR message$")
        self.assertRegex(second, r"^rdma-server: client \S+: waited 1 s in vain for the peer's DONE message$")

    def test_server_that_never_answers(self):
        """The story of the tour: the client waits for a greeting that is never sent, gives up, and sees its receives flushed."""
        with text_server("--silent", "-n", 1) as (s, port), text_client(port, "-w", 1) as c:
            status, out, err = c.end()
            self.assertEqual(status, 1)
            self.assertIn("waited 1 s in vain for the server's greeting", err)
            self.assertEqual(out.count(FLUSHED + "\n    a receive was flushed, because: waited 1 s in vain"), 2, out)
            status, out, err = s.end()
            self.assertEqual((status, err), (0, ""))
            self.assertNotIn("send completed", out)


class Hostile(PeerCase):
    def test_messages(self):
        for behaviour, words in HOSTILE.items():
            with self.subTest(behaviour=behaviour), server("-n", 2, "write") as (s, port):
                with strange_client(port, behaviour) as c:
                    said = c.end()
                self.assertIn("disconnected\n", said[1], said)
                self.check_serves(port)
                status, out, err = s.end()
                self.assertEqual(status, 1)
                for word in words:
                    self.assertIn(word, err)
                for line in err.splitlines():
                    self.assertRegex(line, r"^rdma-server: client \S+: ")
                    self.assertNotIn("no side has disconnected", line)

    def test_all_at_once_beside_a_good_one(self):
        """They are served by one loop; none of them holds it up, and none leaves anything behind."""
        with server("write") as (s, port):
            self.check_serves(port)
            wait_until(lambda: s.process.poll() is not None, 0.5)
            before = descriptors(s)
            strangers = [strange_client(port, b) for b in [*HOSTILE, "silent"]]
            try:
                for _ in range(3):
                    self.check_serves(port)
                for stranger in strangers[:-1]:
                    self.assertIn("disconnected\n", stranger.end()[1])
                strangers[-1].process.kill()
            finally:
                for stranger in strangers:
                    stranger.__exit__()
            self.assertTrue(wait_until(lambda: descriptors(s) <= before), f"{descriptors(s)} descriptors, {before} before")
            self.check_serves(port)
            self.assertEqual(stop(s)[0], 0)

    def test_nobody_writes_beyond_a_region(self):
        with server("-n", 1, "write") as (s, port), strange_client(port, "write-beyond") as c:
            self.assertRegex(c.end()[1], r"write status (10|9|12|5|11)\n")  # remote access error, by whatever name; never 0
            status, _, err = s.end()
        self.assertEqual(status, 1)
        self.assertIn("client ", err)

    def test_hostile_servers(self):
        for behaviour, words in HOSTILE.items():
            with self.subTest(behaviour=behaviour), strange_server(behaviour) as (_, port), client(port, "write") as c:
                status, _, err = c.end()
                self.assertEqual(status, 1)
                for word in words:
                    self.assertIn(word, err)


if __name__ == "__main__":
    unittest.main()
