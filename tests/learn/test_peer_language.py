#!/usr/bin/python3
"""The lines of the write/read and send-recv programs that a reader expects word for word, in every locale."""
import unittest

from peers import C_LOCALE, FLUSHED, PeerCase, client, program, server, stop, text_client, text_server
from pair import Program

CHINESE = {"LC_ALL": "", "LANG": "zh_CN.UTF-8", "LANGUAGE": "", "LC_MESSAGES": ""}
LOCALES = (C_LOCALE, CHINESE, {"LC_ALL": "C", "LANGUAGE": "zh_CN"}, {"LC_ALL": "C.UTF-8", "LANGUAGE": ""},
           {"LC_ALL": "", "LANG": "de_DE.UTF-8", "LANGUAGE": ""})
PRESCRIBED = {
    "server": ("received connection request.", "connected. posting send...", "send completed successfully.", FLUSHED, "peer disconnected."),
    "client": ("address resolved.", "route resolved.", "connected. posting send...", "send completed successfully.", FLUSHED, "disconnected."),
}


class Language(PeerCase):
    def run_pair(self, env, texts):
        start_server, start_client, mode = (text_server, text_client, ()) if texts else (server, client, ("write",))
        with start_server("-n", 1, *mode, env=env) as (s, port), start_client(port, *mode, env=env) as c:
            of_client = c.end()
            return s.end(), of_client

    def test_prescribed_lines(self):
        for env in LOCALES:
            for texts in (False, True):
                with self.subTest(env=env, texts=texts):
                    for who, (status, out, err) in zip(("server", "client"), self.run_pair(env, texts)):
                        self.assertEqual((status, err), (0, ""), out)
                        for line in PRESCRIBED[who]:
                            if texts and who == "server" and line.startswith("send completed"):
                                continue  # the client may leave before our device knows that it has the greeting
                            self.assertIn(line, out.splitlines())
                    self.assertRegex(out, "(?m)^received message: ")

    def test_errors_and_help(self):
        for env in (C_LOCALE, CHINESE):
            with client(1, "write", address="300.1.2.3", env=env) as c:
                status, _, err = c.end()
            self.assertEqual(status, 1)
            self.assertIn('"300.1.2.3" is no address', err)
            for name in ("rdma-server", "rdma-client", "rdma-send-recv-server", "rdma-send-recv-client"):
                with Program(program(name), "--help", env=env) as p:
                    status, out, err = p.end()
                self.assertEqual((status, err), (0, ""))
                self.assertIn("Usage: " + name + " ", out)

    def test_a_refusal_between_two_locales(self):
        with server("write") as (s, port), client(port, "read", env=CHINESE) as c:
            self.assertIn('it was started for "write", this client for "read"', c.end()[2])
            self.assertIn('was refused: it was started for "read"', stop(s)[2])


if __name__ == "__main__":
    unittest.main()
