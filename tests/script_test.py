#!/usr/bin/python3
"""What script/test says and counts when something cannot run here."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import one

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run_stage(body):
    """script/test's own run_stage, over a stage with this body: what it printed, and 'passed failed skipped bad_stages'."""
    script = (ROOT / "script" / "test").read_text(encoding="utf-8")
    function = script[script.index("run_stage() {"):]
    function = function[:function.index("\n}\n") + 3]
    with tempfile.TemporaryDirectory() as folder:
        program = f"""set -u
say() {{ printf '%s\\n' "$*"; }}
stage_about() {{ echo about; }}
stage_x() {{ {body}; }}
passed=0 failed=0 skipped=0 bad_stages=
{function}
run_stage x
echo "$passed $failed $skipped$bad_stages"
"""
        got = subprocess.run(["bash", "-c", program], cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    said, counts = got.stdout.rstrip("\n").rsplit("\n", 1)
    return said, counts


class Stages(unittest.TestCase):
    def test_each_has_a_function_and_is_in_a_tier(self):
        script = (ROOT / "script" / "test").read_text(encoding="utf-8")
        table = script[script.index("STAGES='\n") + 9:]
        rows = [[cell.strip() for cell in line.split("|")] for line in table[:table.index("\n'\n")].splitlines()]
        for name, about, tiers, *more in rows:
            self.assertIn(f"\nstage_{name}() {{", script)
            self.assertTrue(about and set(tiers.split()) and set(tiers.split()) <= {"check", "quick", "all", "long"}, name)
            self.assertEqual(bool(more and int(more[0])), "all" in tiers, f"{name}: its seconds")
            self.assertLessEqual(set(" ".join(more[1:]).split()), {"all", "net", "guest"}, name)
        self.assertEqual([row[0] for row in rows if "check" in row[2]], ["layers", "format", "fast"])


class Stage(unittest.TestCase):
    def test_one_that_cannot_run_is_skipped(self):
        said, counts = run_stage("echo 'SKIPPED: no guest here'; return 77")
        self.assertEqual(counts, "0 0 1")
        self.assertIn("SKIPPED: no guest here", said)

    def test_one_that_cannot_run_and_says_no_reason_is_named(self):
        said, counts = run_stage("return 77")
        self.assertEqual(counts, "0 0 1")
        self.assertIn("SKIPPED: x cannot run here", said)

    def test_one_that_counts_what_it_skips(self):
        self.assertEqual(run_stage("echo '0 passed, 0 failed, 5 skipped'; return 77")[1], "0 0 5")

    def test_one_that_ends_without_a_count_has_failed(self):
        self.assertEqual(run_stage("true")[1], "0 1 0 x")
        self.assertEqual(run_stage("return 3")[1], "0 1 0 x")


class Again(unittest.TestCase):
    """--again: two stages, of which one fails each time, or once, or never."""

    def run_two(self, first, second):
        script = (ROOT / "script" / "test").read_text(encoding="utf-8")
        parts = [script[script.index(head):] for head in ("run_stage() {", "run_again() {")]
        functions = "\n".join(part[:part.index("\n}\n") + 3] for part in parts)
        with tempfile.TemporaryDirectory() as folder:
            program = f"""set -u
say() {{ printf '%s\\n' "$*"; }}
stage_about() {{ echo about; }}
stage_x() {{ {first}; }}
stage_y() {{ {second}; }}
passed=0 failed=0 skipped=0 bad_stages= unsteady=
{functions}
run_stage x; run_stage y; run_again
echo "$passed $failed $skipped$bad_stages;$unsteady"
"""
            return subprocess.run(["bash", "-c", program], cwd=folder, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()[-1]

    good = "echo '5 passed, 0 failed'"
    bad = "echo '3 passed, 2 failed, 1 skipped'; return 1"
    once = "if [ -e was ]; then echo '5 passed, 0 failed, 1 skipped'; else touch was; echo '3 passed, 2 failed, 1 skipped'; return 1; fi"
    died_once = "if [ -e was ]; then echo '5 passed, 0 failed'; else touch was; return 3; fi"

    def test_what_fails_again_has_failed(self):
        self.assertEqual(self.run_two(self.bad, self.good), "8 2 1 x;")

    def test_what_passes_then_is_named(self):
        self.assertEqual(self.run_two(self.once, self.good), "10 0 1; x")
        self.assertEqual(self.run_two(self.good, self.died_once), "6 0 0; y")
        self.assertEqual(self.run_two(self.bad, self.once), "8 2 2 x; y")


class Failed(unittest.TestCase):
    """What the second run of a stage of meson tests runs."""

    def arguments(self, tests, *args):
        script = (ROOT / "script" / "test").read_text(encoding="utf-8")
        function = script[script.index("with_failed() {"):]
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "testlog-x.json"
            if tests is not None:
                log.write_text("".join(json.dumps({"name": name, "result": result, "stdout": "a\n"}) + "\n" for name, result in tests), encoding="utf-8")
            program = function[:function.index("\n}\n") + 3] + 'with_failed "$@"; printf "%s\\n" "${arguments[@]}"'
            return subprocess.run(["bash", "-uc", program, "bash", str(log), *args], capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()

    ran = [("ropeway:io / port", "OK"), ("ropeway:nccl+slow / nccl check bench", "FAIL"), ("ropeway:msg / msg", "SKIP"), ("ropeway:msg / msg over pipes", "TIMEOUT"),
           ("ropeway:msg / msg over verbs", "INTERRUPT"), ("ropeway:cm / cm", "UNEXPECTEDPASS")]
    failed = ["nccl check bench", "msg over pipes", "msg over verbs", "cm"]

    def test_those_that_failed_and_no_others(self):
        self.assertEqual(self.arguments(self.ran, "port", "msg over pipes"), self.failed)
        self.assertEqual(self.arguments(self.ran, "--suite", "unit", "-t", "10", "--suite", "msg", "--wrapper", "setarch -R"), ["-t", "10", "--wrapper", "setarch -R", *self.failed])

    def test_all_where_none_is_known_to_have_failed(self):
        for ran in (None, [], self.ran[:1]):
            self.assertEqual(self.arguments(ran, "--suite", "unit", "msg"), ["--suite", "unit", "msg"])


class One(unittest.TestCase):
    tests = [{"name": name} for name in ("msg", "msg over pipes", "msg over verbs", "rc-storm")]

    def test_the_name_may_be_a_part(self):
        for name, wanted in (("msg", "msg"), ("storm", "rc-storm"), ("msg over v", "msg over verbs")):
            self.assertEqual(one.the_one(self.tests, name)["name"], wanted)
        for name, said in (("over", "msg over pipes, msg over verbs"), ("none", "no test has none")):
            with self.assertRaisesRegex(SystemExit, said):
                one.the_one(self.tests, name)

    def test_the_commands_by_hand(self):
        self.assertEqual(one.by_hand({"cmd": ["/bin/true", "a b"]})[1], ["gdb", "--args", "/bin/true", "a b"])
        script = str(ROOT / "tests" / "one.py")
        self.assertEqual(one.by_hand({"cmd": [script, "x"]})[1][3:], ["--args", "/usr/bin/python3", script, "x"])


class Skipped(unittest.TestCase):
    def said(self, **test):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as log:
            print(json.dumps({"name": "ropeway:io / port", "result": "SKIP", "stdout": "", **test}), file=log, flush=True)
            return subprocess.run([ROOT / "tests" / "skipped.py", log.name], capture_output=True, text=True, timeout=60, check=True).stdout

    def test_reasons_of_each_kind_of_test(self):
        self.assertEqual(self.said(stderr="SKIPPED: no network namespace can be made here (EPERM): these tests did not run\n"),
                         "SKIPPED port: no network namespace can be made here (EPERM): these tests did not run\n")
        self.assertEqual(self.said(stdout="1..0 # SKIP tcp can not be used here: why\n"), "SKIPPED port: tcp can not be used here: why\n")
        self.assertEqual(self.said(result="OK", stdout="ok 1 - a\nok 2 - b # SKIP no GPU\n"), "SKIPPED port, in part: no GPU\n")
        self.assertEqual(self.said(stderr="test_a (__main__.A.test_a) ... skipped 'none here'\nSKIPPED test_a (__main__.A.test_a): none here\n"
                                          "SKIPPED test_b (__main__.A.test_b): none here\n"), "SKIPPED port: none here (2 cases)\n")
        self.assertEqual(self.said(), "SKIPPED port: it gave no reason\n")
        self.assertEqual(self.said(result="OK", stdout="ok 1 - a\n"), "")


class Setup(unittest.TestCase):
    """Of a folder that has nothing but the scripts, on a machine where dpkg-query and apt are ours."""

    def run_setup(self, *options):
        with tempfile.TemporaryDirectory() as folder:
            place, tools = pathlib.Path(folder), pathlib.Path(folder, "tools")
            shutil.copytree(ROOT / "script", place / "script")
            tools.mkdir()
            for name, says in (("dpkg-query", ""), ("apt-get", "echo apt-get \"$@\" >>calls"), ("env", 'shift; exec "$@"'), ("sudo", "exit 1"), ("id", "echo 0"),
                               ("meson", "echo meson \"$@\" >>calls; exit 1")):
                (tools / name).write_text(f"#!/bin/sh\n{says}\n")
                (tools / name).chmod(0o755)
            got = subprocess.run([place / "script/setup", *options], env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}, capture_output=True, text=True, timeout=60, check=False)
            calls = (place / "calls").read_text() if (place / "calls").exists() else ""
            return got.returncode, calls

    def test_packages_alone_are_installed_and_nothing_is_built(self):
        status, calls = self.run_setup("--packages")
        self.assertEqual(status, 0)
        self.assertRegex(calls, r"apt-get install .* meson .* python3-venv")
        self.assertNotIn("meson setup", calls)
        self.assertNotIn("tshark", calls)
        self.assertIn("tshark", self.run_setup("--packages", "--test")[1])

    def test_without_the_option_it_builds(self):
        status, calls = self.run_setup()
        self.assertEqual(status, 1)
        self.assertIn("meson setup", calls)


if __name__ == "__main__":
    unittest.main(verbosity=2)
