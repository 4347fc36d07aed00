#!/usr/bin/python3
"""script/commit-msg: what it refuses and what it takes, as a hook and over a range; then the commits of this history since the one that added it.

Without history its last part says SKIPPED, and the exit status is 77.
"""
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "script/commit-msg"


def load():
    loader = importlib.machinery.SourceFileLoader("commit_msg", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("commit_msg", loader))
    loader.exec_module(module)
    return module


class Messages(unittest.TestCase):
    def faults(self, message, changed=1):
        return list(load().faults(message, changed))

    def test_an_order_or_a_statement_is_taken(self):
        for subject in ("Read each line once", "A lane has one reader", "io: no file calls another in a circle", "near: names, descriptors and memory, once", "Merge branch 'x'"):
            self.assertEqual(self.faults(subject), [], subject)
        self.assertEqual(self.faults("Read each line once\n\nIt was read twice.\n", 1000), [])

    def test_what_says_nothing_is_refused(self):
        for subject in ("Comments", "Fixed the test", "Adding a lane", "wip lanes", "io: updated", "A lane has one reader.", "fixup! A lane has one reader", "x" * 60 + " a subject too long", ""):
            self.assertNotEqual(self.faults(subject), [], subject)

    def test_a_change_that_is_not_trivial_needs_a_body(self):
        self.assertEqual(self.faults("Read each line once", 20), [])
        self.assertIn("no body", self.faults("Read each line once", 21)[0])
        self.assertIn("not blank", self.faults("Read each line once\nIt was read twice.", 21)[0])


class InARepository(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ropeway-commits-")
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name)
        self.git("init", "-q")
        self.commit("script/commit-msg", SCRIPT.read_text(encoding="utf-8"), "old and wrong in every way, but from before.")
        (self.place / "script/commit-msg").chmod(0o755)

    def git(self, *words):
        said = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", "-C", self.place, *said, *words], capture_output=True, text=True, check=False)

    def commit(self, name, text, message):
        (self.place / name).parent.mkdir(exist_ok=True)
        (self.place / name).write_text(text, encoding="utf-8")
        self.git("add", "-A")
        return self.git("commit", "-q", "-m", message)

    def script(self, *words):
        return subprocess.run([SCRIPT, *words], cwd=self.place, capture_output=True, text=True, check=False)

    def test_commits_since_it_was_added_are_looked_at(self):
        self.assertEqual(self.script("--since").returncode, 0)
        self.commit("a", "1\n", "A lane has one reader")
        self.assertEqual(self.script("--since").returncode, 0)
        self.commit("a", "2\n" * 30, "A lane has two readers")
        got = self.script("--since")
        self.assertEqual(got.returncode, 1)
        self.assertIn("A lane has two readers: it changes 31 lines and has no body", got.stderr)

    def test_git_calls_it_once_installed(self):
        self.git("config", "core.hooksPath", "script")
        self.assertNotEqual(self.commit("a", "1\n", "Comments").returncode, 0)
        self.assertEqual(self.commit("a", "1\n", "A lane has one reader").returncode, 0)
        self.assertEqual(self.commit("a", "2\n", "fixup! A lane has one reader").returncode, 0)

    def test_without_history_it_is_skipped(self):
        with tempfile.TemporaryDirectory(prefix="ropeway-commits-") as folder:
            got = subprocess.run([SCRIPT, "--since"], cwd=folder, capture_output=True, text=True, check=False)
            self.assertEqual((got.returncode, got.stdout[:7]), (77, "SKIPPED"))


def main():
    if not unittest.main(exit=False).result.wasSuccessful():
        return 1
    return subprocess.run([SCRIPT, "--since"], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
