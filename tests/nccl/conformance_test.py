#!/usr/bin/python3
"""`ropeway plugin check`: our own plugin at every version it exports, each called by that version's own header, over one transport after the other; mutants, each of which the line that is about it has to find;
what the command says. `ropeway plugin bench`: its rows, and that it looks at what it moves.

Usage: conformance_test.py BUILD_DIR TEST_CLASS [ONESTREAM.so | TRANSPORT]
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import unittest

BUILD, EXTRA = pathlib.Path("."), ""
TIMEOUT_S = 150
VERSIONS = range(5, 13)
PATIENT_S, HURRIED_S = 20, 2
# Each mutant: its number in mutant.c, the line that is about it, the verdict, and what the line says.
MUTANTS = [
    (1, "sizes", "fail", "test says"),
    (2, "accept", "fail", "accept gives no comm|within"),
    (3, "order", "fail", "message 333 .*byte 17 is wrong"),
    (4, "mixed", "fail", "v5's handle gives a send comm, and its listener accepts none"),
    (5, "properties", "fail", "the struct of v7 has 56"),
    (6, "request", "fail", r"leaves \*request as it was"),
    (7, "truncation", "fail", "is done, with success"),
    (8, "properties", "fail", "byte 64 was written, and the struct of v8 has 64"),
    (9, "handle", "fail", "past the 128 bytes"),
    (10, "group", "fail", "were sent with this tag|is wrong"),
    (11, "zero", "fail", "message|within"),
    (12, "close-busy", "fail", "hung in closeRecv"),
    (13, "messages", "fail", "crashed in isend"),
    (14, "order", "fail", "byte 0 is wrong"),
    (15, "order", "fail", "when test says done, byte 0 is wrong"),
    (16, "order", "fail", "is wrong"),
    (17, "wrong-handle", "fail", "gives a comm"),
    (18, "peer-killed", "fail", "there is no error"),
    (19, "reg-bad-type", "fail", "takes memory of type 0"),
    (20, "table", "fail", "pointer 10 of 19 is NULL"),
    (21, "accept", "quirk", "waits for the other side"),
    (22, "test-order", "quirk", "not done before the oldest is tested"),
    (23, "under-way", "quirk", "receives: 16 at once"),
    (24, "sizes", "quirk", "leaves the size of a receive alone"),
    (25, "properties", "fail", "regIsGlobal"),
    (26, "polled", "fail", "lines showed their last 8 bytes before the others .first at byte"),
]
# onestream's bytes are copied by the kernel into the receive, in no order that it promises: once in some thousand messages a line is seen too early.
BY_CHANCE = {"polled"}
# What tests/nccl/quirk.c is told to do, the line that says it, and how.
QUIRKS = [
    ("dead", "test-order", "gives 3"),
    ("sendzero", "sizes", "of 36 sends of 36 .first 0.: NCCL does not look at a send's"),
    ("fifo", "test-order", "test of a newer (send|receive) than the oldest gives 3"),
    ("sixteen", "under-way", "with 16 under way"),
    ("consumed", "table", "irecvConsumed is there"),
    ("device", "device-handle", "without one (connect|accept) gives 3"),
    ("flush", "properties", "forceFlush"),
    ("nohost", "properties", "ptrSupport 0x2 has no host memory"),
]


def plugin(half, *args, **env):
    full = {k: v for k, v in os.environ.items() if not k.startswith(("ROPEWAY_", "NCCL_", "UCCL_"))}
    return subprocess.run([str(BUILD / "ropeway"), "plugin", half, *map(str, args)], env=dict(full, LC_ALL="C.UTF-8", **env), text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False)


def check(*args, **env):
    return plugin("check", *args, **env)


def lines(found):
    return {line["id"]: line for line in found["lines"]}


class Ropeway(unittest.TestCase):
    """EXTRA: the transport."""

    def version(self, abi):
        # The largest messages at the two ends; between, what is different is not about size.
        largest = "64M" if abi in (VERSIONS[0], VERSIONS[-1]) else "4M"
        return check(BUILD / "libnccl-net-ropeway.so", "--abi", f"v{abi}", "--largest", largest, "--timeout", PATIENT_S, "--json",
                     ROPEWAY_NCCL_TRANSPORT=EXTRA)

    def test_every_version_has_every_property(self):
        # Under a sanitizer the two ends: what is behind the shims is the same code.
        slow = {"ASAN_OPTIONS", "TSAN_OPTIONS"} & os.environ.keys()
        tried = (VERSIONS[0], VERSIONS[-1]) if slow else VERSIONS
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for abi, got in zip(tried, pool.map(self.version, tried)):
                with self.subTest(abi=abi):
                    self.assertIn(got.returncode, (0, 1), got.stderr)
                    found = json.loads(got.stdout)
                    bad = [(line["id"], line["verdict"], line["text"]) for line in found["lines"] if line["verdict"] in ("fail", "quirk")]
                    self.assertEqual(bad, [])
                    self.assertEqual((got.returncode, found["abi"], found["exported"]), (0, abi, list(VERSIONS)))
                    skipped = {line["id"] for line in found["lines"] if line["verdict"] == "skip"}
                    self.assertEqual(skipped, {name for name, first in (("device-handle", 7), ("vprops", 9), ("finalize", 11)) if abi < first})


class Mutants(unittest.TestCase):
    @staticmethod
    def mutant(number):
        return BUILD / f"tests/nccl/libmutant{number}.so"

    def find(self, mutant):
        number, line, _, _ = mutant
        abi = {4: "v7", 5: "v7"}.get(number, "v8")
        return check(self.mutant(number), "--abi", abi, "--only", line, "--timeout", HURRIED_S, "--largest", "1M", "--json")

    def test_each_is_found_by_the_line_that_is_about_it(self):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for mutant, got in zip(MUTANTS, pool.map(self.find, MUTANTS)):
                number, line, verdict, says = mutant
                with self.subTest(mutant=number, line=line):
                    found = lines(json.loads(got.stdout))[line]
                    self.assertEqual(found["verdict"], verdict, found)
                    self.assertRegex(found["text"], says)
                    self.assertEqual(got.returncode, 1 if verdict == "fail" else 0)

    def quirk(self, quirk):
        return check(BUILD / "tests/nccl/libnccl-net-quirk.so", "--abi", "v11", "--timeout", PATIENT_S, "--largest", "1M", "--json", QUIRK=quirk[0])

    def test_quirks_are_lived_with_and_said(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for quirk, got in zip(QUIRKS, pool.map(self.quirk, QUIRKS)):
                name, line, says = quirk
                with self.subTest(quirk=name):
                    found = lines(json.loads(got.stdout))
                    self.assertEqual({k for k, v in found.items() if v["verdict"] == "fail"} - BY_CHANCE, set(), found)
                    self.assertEqual(found[line]["verdict"], "quirk", found[line])
                    self.assertRegex(found[line]["text"], says + ".*; ropeway: ")

    def test_a_table_that_init_fills_in_passes(self):
        got = check(BUILD / "tests/nccl/libnccl-net-quirk.so", "--timeout", PATIENT_S, "--largest", "1M", "--json", QUIRK="late")
        found = lines(json.loads(got.stdout))
        self.assertEqual({k for k, v in found.items() if v["verdict"] == "fail"} - BY_CHANCE, set(), found)
        self.assertGreater(len(found), 30)
        got = plugin("bench", BUILD / "tests/nccl/libnccl-net-quirk.so", *Bench.QUICK, QUIRK="late")
        self.assertEqual(got.returncode, 0, got.stderr)

    def test_unwritten_vprops_are_a_quirk_before_v12(self):
        for abi, verdict in (("v9", "quirk"), ("v11", "quirk"), ("v12", "fail")):
            found = lines(json.loads(check(BUILD / "tests/nccl/libnccl-net-quirk.so", "--abi", abi, "--only", "prop", "--json", QUIRK="novprops").stdout))
            self.assertEqual((found["properties"]["verdict"], found["vprops"]["verdict"]), (verdict, verdict), found)
            self.assertIn("2.29" if verdict == "quirk" else "expected", found["vprops"]["text"])

    def test_what_is_right_passes(self):
        got = check(self.mutant(0), "--timeout", PATIENT_S, "--largest", "4M", "--json")
        bad = [(line["id"], line["text"]) for line in json.loads(got.stdout)["lines"] if line["verdict"] not in ("pass", "skip")]
        self.assertEqual([line for line in bad if line[0] not in {"reg"} | BY_CHANCE], [])


class Command(unittest.TestCase):
    """EXTRA: the plugin of somebody else."""

    def test_what_is_exported_and_what_each_release_takes(self):
        got = check(EXTRA, "--only", "name", "--json")
        found = json.loads(got.stdout)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual((found["abi"], found["exported"]), (12, list(range(4, 13))))
        self.assertEqual([r["abi"] for r in found["releases"]], list(range(4, 13)))
        # v4 and v5 are forgotten in time, and a release takes the highest that it knows.
        ours = json.loads(check(BUILD / "libnccl-net-ropeway.so", "--only", "name", "--json").stdout)
        self.assertEqual([r["abi"] for r in ours["releases"]], [None, *VERSIONS])
        mixed = json.loads(check(BUILD / "tests/nccl/libmutant4.so", "--only", "name", "--json").stdout)
        self.assertEqual([r["abi"] for r in mixed["releases"]], [None, 5, 5, 7, 7, 7, 7, 7, 7])

    def test_a_blocking_version_4_is_a_quirk_and_no_failure(self):
        got = check(EXTRA + "@v4", "--timeout", HURRIED_S * 3, "--largest", "4M", "--json")
        found = lines(json.loads(got.stdout))
        self.assertEqual({k for k, v in found.items() if v["verdict"] == "fail"} - BY_CHANCE, set(), found)
        self.assertEqual(found["accept"]["verdict"], "quirk")
        self.assertIn("; ropeway: both run in threads of their own", found["accept"]["text"])
        self.assertIn("works", found["mixed"]["text"])

    def test_lines_for_people(self):
        out = check(EXTRA, "--only", "reg", "--abi", 8).stdout.splitlines()
        self.assertEqual(out[0], f"{EXTRA} exports v4 to v12; checking v8.")
        self.assertIn("2.20 to 2.23   v8", out)
        self.assertIn("pass   load            loads, and has a table of this version", out)
        self.assertIn("quirk  reg             registers host memory", out)
        self.assertEqual(out[-1], "3 pass, 1 quirk, 0 fail")
        self.assertLessEqual(max(map(len, out[1:])), 112)

    def wrong(self, status, says, *args):
        got = check(*args)
        self.assertEqual((got.returncode, got.stdout), (status, ""), got.stderr)
        self.assertRegex(got.stderr, says)

    def test_what_is_no_plugin(self):
        self.wrong(1, "^ropeway plugin check: /nonexistent.so: cannot open", "/nonexistent.so")
        self.wrong(1, "libropeway.so is not a usable NCCL network plugin", BUILD / "libropeway.so")
        self.wrong(1, "has no ncclNetPlugin_v6: it speaks v5, v7", BUILD / "tests/nccl/libmutant4.so", "--abi", "v6")

    def test_usage(self):
        self.wrong(2, "expected the plugin to check")
        self.wrong(2, "invalid value 'v13' for --abi: expected v4 to v12", EXTRA, "--abi", "v13")
        self.wrong(2, "invalid value '0' for --timeout: expected a number of seconds from 0.1 to 3600", EXTRA, "--timeout", 0)
        self.wrong(2, "invalid value '7' for --largest: expected a size from 4K to 1G", EXTRA, "--largest", 7)
        self.wrong(2, "invalid value 'colour' for --only", EXTRA, "--only", "colour")
        self.wrong(2, "unexpected argument 'x'", EXTRA, "x")
        self.wrong(2, "expected a version of the plugin API", EXTRA + "@v99")

    def test_a_half_is_said(self):
        for args, says in (((), "Usage: ropeway plugin check"), (("frobnicate",), "unknown command 'frobnicate'"), (("chekc",), "did you mean 'check'")):
            got = subprocess.run([str(BUILD / "ropeway"), "plugin", *args], text=True, capture_output=True, timeout=TIMEOUT_S, check=False)
            self.assertEqual((got.returncode, got.stdout), (2, ""))
            self.assertIn(says, got.stderr)


class Bench(unittest.TestCase):
    """EXTRA: the plugin of somebody else. No figure is judged."""

    QUICK = ("--sizes", "0,8,70000", "--rounds", 3, "--duration", "0.01")

    def test_rows_of_two_in_one_run(self):
        got = plugin("bench", EXTRA, "--against", EXTRA + "@v5", "--comms", 2, "--json", *self.QUICK)
        self.assertEqual(got.returncode, 0, got.stderr)
        found = json.loads(got.stdout)
        self.assertEqual([p["abi"] for p in found["plugins"]], [12, 5])
        for p in found["plugins"]:
            self.assertEqual(([r["size"] for r in p["rows"]], p["name"]), ([0, 8, 70000], "OneStream"))
            for r in p["rows"]:
                self.assertEqual(len(r["rounds"]), 3)
                self.assertEqual(sorted(r["rounds"])[1], r["messages_per_second"])
                self.assertAlmostEqual(r["bytes_per_second"], r["size"] * r["messages_per_second"], delta=r["bytes_per_second"] * 1e-4)
            for what in ("connect", "close"):
                self.assertEqual(len(p[what]["rounds"]), 3)
                self.assertAlmostEqual(sorted(p[what]["rounds"])[1] * 1e6, p[what]["us"], delta=p[what]["us"] * 1e-3)
        first, second = (p["rows"][2] for p in found["plugins"])
        self.assertAlmostEqual(second["first_to_this"], sorted(a / b for a, b in zip(first["rounds"], second["rounds"]))[1], delta=second["first_to_this"] * 1e-3)

    def test_both_ways_and_one_send_at_a_time(self):
        got = plugin("bench", EXTRA, "--comms", 3, "--both", "--under-way", 1, "--json", *self.QUICK)
        self.assertEqual(got.returncode, 0, got.stderr)
        found = json.loads(got.stdout)
        self.assertEqual((found["under_way"], found["both"]), (1, True))
        self.assertIn("3 comms, every other one back, 1 send under way on each", plugin("bench", EXTRA, "--comms", 3, "--both", "--under-way", 1, *self.QUICK).stdout)

    def test_ranks_exchange_blocks(self):
        got = plugin("bench", EXTRA, "--alltoall", 4, "--json", *self.QUICK)
        self.assertEqual(got.returncode, 0, got.stderr)
        found = json.loads(got.stdout)
        self.assertEqual((found["ranks"], [(r["kind"], r["size"]) for r in found["plugins"][0]["rows"]]), (4, [("alltoall", 0), ("alltoall", 8), ("alltoall", 70000)]))
        self.assertNotIn("connect", found["plugins"][0])
        for number, says in ((1, "test says that 70001 bytes came, 70000 were sent"), (15, "a block of 70000 bytes from rank [0-2]: byte [0-9]+ is wrong")):
            got = plugin("bench", Mutants.mutant(number), "--alltoall", 3, "--sizes", 70000, "--duration", "0.01")
            self.assertEqual((got.returncode, got.stdout), (1, ""), number)
            self.assertRegex(got.stderr, says)
        got = plugin("bench", EXTRA, "--alltoall", 3, "--comms", 2)
        self.assertEqual((got.returncode, got.stdout), (2, ""))

    def test_a_plugin_that_leaves_sizes_alone(self):
        got = plugin("bench", Mutants.mutant(24), *self.QUICK, "--abi", 8)
        self.assertEqual(got.returncode, 0, got.stderr)

    def test_a_table_for_people(self):
        out = plugin("bench", EXTRA, *self.QUICK).stdout
        self.assertRegex(out, r"(?m)^8 bytes +[\d.]+ [kM]?/s +[\d.]+ [kMG]?B/s$")
        self.assertRegex(out, r"(?m)^latency")
        self.assertRegex(out, r"(?m)^connect +[\d.]+ [um]?s$")

    def test_a_plugin_that_is_wrong_is_told_of(self):
        for number, says in ((13, "the plugin crashed in isend"), (1, "test says that 70001 bytes came, 70000 were sent"), (5, "v7")):
            got = plugin("bench", Mutants.mutant(number), *(self.QUICK if number != 5 else (*self.QUICK, "--abi", 8)))
            self.assertEqual((got.returncode, got.stdout), (1, ""), number)
            self.assertIn(says, got.stderr)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1])
    EXTRA = sys.argv[3] if len(sys.argv) > 3 else ""
    unittest.main(argv=[sys.argv[0], sys.argv[2]])
