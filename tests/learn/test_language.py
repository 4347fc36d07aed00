#!/usr/bin/python3
"""Chinese by locale, complete, also where no Chinese locale was ever generated; English everywhere else."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from pair import CLIENT, Case, Program, free_port, run_pair

TOP = pathlib.Path(__file__).resolve().parents[2]
CHINESE = (
    {"LC_ALL": "", "LANG": "zh_CN.UTF-8", "LANGUAGE": "", "LC_MESSAGES": ""},
    {"LC_ALL": "C.UTF-8", "LANGUAGE": "zh_CN"},
    {"LC_ALL": "", "LANG": "C.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8", "LANGUAGE": ""},
)
ENGLISH = (
    {"LC_ALL": "C", "LANGUAGE": ""},
    {"LC_ALL": "C", "LANGUAGE": "zh_CN"},  # gettext: LANGUAGE does not count in the C locale
    {"LC_ALL": "", "LANG": "de_DE.UTF-8", "LANGUAGE": ""},
)
NAMES = r"rdma_server|rdma_client"
# What translates its text: as in po/meson.build.
KEYWORDS = ("_", "N_", "tell", "say", "say_step:2", "complain", "die", "peer_abort:2")


class Language(Case):
    def test_a_whole_run_in_chinese(self):
        of_server, of_client = run_pair(env=CHINESE[0])
        for status, out, err in (of_server, of_client):
            self.assertEqual((status, err), (0, ""), out)
            self.assertIn("步骤 1：", out)
            self.assertIn("本端： LID", out)
            self.assertIn("对端： LID", out)
            for line in out.splitlines():
                self.assertRegex(line, "[\u4e00-\u9fff]", "a line without a Chinese word")

    def failure(self, env):
        with Program(CLIENT, "127.0.0.1", "nosuchdevice", free_port(), env=env) as p:
            status, _, err = p.end()
        self.assertEqual(status, 1)
        return err

    def test_each_way_to_ask_for_chinese(self):
        for env in CHINESE:
            with self.subTest(env=env):
                err = self.failure(env)
                self.assertIn('没有设备 "nosuchdevice"，只有：', err)
                self.assertEqual(len(err.splitlines()), 1)

    def test_english_otherwise(self):
        for env in ENGLISH:
            with self.subTest(env=env):
                self.assertIn('there is no device "nosuchdevice"', self.failure(env))

    def test_help_in_chinese(self):
        with Program(CLIENT, "--help", env=CHINESE[0]) as p:
            status, out, err = p.end()
        self.assertEqual((status, err), (0, ""))
        self.assertIn("用法：rdma_client", out)


class Catalogue(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def tool(self, *command):
        done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def test_complete(self):
        said = self.tool("msgfmt", "--check", "--statistics", "-o", f"{self.folder.name}/x.mo", "po/zh_CN.po")
        self.assertRegex(said, r"^\d+ translated messages\.\s*$")

    def test_every_sentence_of_the_sources_is_in_it(self):
        template = f"{self.folder.name}/learn.pot"
        self.tool("xgettext", *(f"--keyword={k}" for k in KEYWORDS), "--from-code=UTF-8", "-f", "po/POTFILES", "-o", template)
        self.tool("msgcmp", "po/zh_CN.po", template)
        listed = set((TOP / "po/POTFILES").read_text().split())
        says = re.compile(rf'\b({"|".join(k.partition(":")[0] for k in KEYWORDS)})\((?:[^()"]*,)?\s*"')
        using = {f"learn/{p.name}" for p in (TOP / "learn").glob("*.[ch]") if says.search(p.read_text())}
        self.assertEqual(listed, using)

    def test_both_languages_tell_of_every_source(self):
        """The comments are English; docs/learn/09-source.md leads through the files, and its Chinese twin has each of their lessons."""
        for name in ("09-source.md", "09-source.zh.md"):
            chapter = (TOP / "docs/learn" / name).read_text()
            for path in sorted((TOP / "learn").glob("*.[ch]")):
                about = re.search(rf"\[{re.escape(path.name)}\]\(../../learn/{re.escape(path.name)}\)(.*)", chapter)
                self.assertTrue(about, f"{name} says nothing of {path.name}")
                if name.endswith(".zh.md"):
                    self.assertRegex(about[1], "[\u4e00-\u9fff]", f"{name} says nothing in Chinese of {path.name}")


if __name__ == "__main__":
    unittest.main()
