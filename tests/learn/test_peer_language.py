#!/usr/bin/python3
"""The write/read and send-recv programs in Chinese by locale, and the lines that a reader expects word for word in English."""
import re
import unittest

from peers import ADDRESS, C_LOCALE, FLUSHED, PeerCase, client, program, server, stop, text_client, text_server
from pair import Program

CHINESE = {"LC_ALL": "", "LANG": "zh_CN.UTF-8", "LANGUAGE": "", "LC_MESSAGES": ""}
ENGLISH_LOCALES = (C_LOCALE, {"LC_ALL": "C", "LANGUAGE": "zh_CN"}, {"LC_ALL": "C.UTF-8", "LANGUAGE": ""}, {"LC_ALL": "", "LANG": "de_DE.UTF-8", "LANGUAGE": ""})
PRESCRIBED = {
    "server": ("received connection request.", "connected. posting send...", "send completed successfully.", FLUSHED, "peer disconnected."),
    "client": ("address resolved.", "route resolved.", "connected. posting send...", "send completed successfully.", FLUSHED, "disconnected."),
}


class Language(PeerCase):
    def run_pair(self, env, texts):
        start_server, start_client, mode = (text_server, text_client, ()) if texts else (server, client, ("write",))
        with Program(program("rdma-send-recv-server" if texts else "rdma-server"), "-b", ADDRESS, "-n", 1, *mode, self.port(env, texts), env=env) as s:
            s.wait_for("\n")
            with start_client(self.used, *mode, env=env) as c:
                of_client = c.end()
                return s.end(), of_client

    def port(self, env, texts):
        """A port that was free a moment ago: in Chinese no test reads it off the output."""
        with (text_server() if texts else server("write")) as (_, self.used):
            return self.used

    def test_a_whole_run_in_chinese(self):
        for texts in (False, True):
            with self.subTest(texts=texts):
                for status, out, err in self.run_pair(CHINESE, texts):
                    self.assertEqual((status, err), (0, ""), out)
                    for line in out.splitlines():
                        if line != FLUSHED:
                            if not re.fullmatch(r"\s*[SR]S_\w+ -> [SR]S_\w+", line):  # names in the code
                                self.assertRegex(line, "[\u4e00-\u9fff]", "a line without a Chinese word")

    def test_prescribed_lines_elsewhere(self):
        for env in ENGLISH_LOCALES:
            for texts in (False, True):
                with self.subTest(env=env, texts=texts):
                    for who, (status, out, err) in zip(("server", "client"), self.run_pair(env, texts)):
                        self.assertEqual((status, err), (0, ""), out)
                        for line in PRESCRIBED[who]:
                            if texts and who == "server" and line.startswith("send completed"):
                                continue  # the client may leave before our device knows that it has the greeting
                            self.assertIn(line, out.splitlines())
                    self.assertRegex(out, "(?m)^received message: ")

    def test_errors_and_help_in_chinese(self):
        with client(1, "write", address="300.1.2.3", env=CHINESE) as c:
            status, _, err = c.end()
        self.assertEqual(status, 1)
        self.assertIn("“300.1.2.3”不是地址", err)
        for name in ("rdma-server", "rdma-client", "rdma-send-recv-server", "rdma-send-recv-client"):
            with Program(program(name), "--help", env=CHINESE) as p:
                status, out, err = p.end()
            self.assertEqual((status, err), (0, ""))
            self.assertIn("用法：" + name + " ", out)
            with Program(program(name), "--help", env=C_LOCALE) as p:
                self.assertIn("Usage: " + name + " ", p.end()[1])

    def test_a_refusal_in_two_languages(self):
        with server("write") as (s, port), client(port, "read", env=CHINESE) as c:
            self.assertIn("拒绝了连接", c.end()[2])
            self.assertIn('was refused: it was started for "read"', stop(s)[2])


if __name__ == "__main__":
    unittest.main()
