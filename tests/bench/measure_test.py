#!/usr/bin/python3
"""What script/bench makes of its rounds: which are dropped, how they are told apart by the bare cache line, which rows are unsteady, and what is said about
them: with figures and lines that are made up. And the bare copies and the bare line, each for a moment. Usage: measure_test.py BUILD_DIR"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import cases  # noqa: E402
import measure  # noqa: E402
import msg  # noqa: E402
import placement  # noqa: E402
import report  # noqa: E402
import samples  # noqa: E402
from processes import RunFailed, Runner, perftest_table, program_of  # noqa: E402

HEAD = {"name": "a row", "unit": "MiB/s", "reference_name": "a reference", "goal": "≥ 1"}


def at_least_one(ratio):
    return ratio >= 1


def binned(*rounds):
    return measure.binned(HEAD, list(rounds), at_least_one)


class Moved(unittest.TestCase):
    def test_up_to_a_fifth_is_no_move(self):
        for before, after in ((100, 100), (100, 120), (120, 100), (40, 47)):
            self.assertFalse(placement.moved(before, after), (before, after))

    def test_more_than_a_fifth_is_one_in_either_direction(self):
        for before, after in ((100, 121), (121, 100), (40, 164), (164, 40)):
            self.assertTrue(placement.moved(before, after), (before, after))

    def test_a_line_that_could_be_measured_once_only_proves_nothing(self):
        self.assertTrue(placement.moved(100, None))
        self.assertTrue(placement.moved(None, 100))
        self.assertFalse(placement.moved(None, None))


class Bins(unittest.TestCase):
    def test_they_are_powers_of_two(self):
        for ns, name in ((20, "near, 16–31 ns"), (31.9, "near, 16–31 ns"), (32, "middle, 32–63 ns"), (63.9, "middle, 32–63 ns"), (64, "middle, 64–127 ns"),
                         (127.9, "middle, 64–127 ns"), (128, "far, 128–255 ns"), (300, "far, 256–511 ns"), (None, "-")):
            self.assertEqual(placement.bin_name(placement.bin_of(ns)), name, ns)

    def test_the_fullest_is_first(self):
        bins = placement.by_bin([(1, 1, 40, 40), (2, 1, 160, 160), (3, 1, 161, 159)])
        self.assertEqual([[r[0] for r in rounds] for rounds in bins.values()], [[2, 3], [1]])


class Unsteady(unittest.TestCase):
    def test_too_few_rounds_are(self):
        self.assertTrue(placement.unsteady([1.0, 1.0]))
        self.assertFalse(placement.unsteady([1.0, 1.0, 1.0]))

    def test_a_wide_middle_half_is_and_one_stray_round_is_not(self):
        self.assertTrue(placement.unsteady([0.6, 0.7, 1.0, 1.3, 1.4]))
        self.assertFalse(placement.unsteady([0.98, 1.0, 1.0, 1.02, 3.0]))

    def test_spread_is_relative(self):
        self.assertAlmostEqual(placement.spread([8, 9, 10, 11, 12]), 0.2)
        self.assertAlmostEqual(placement.spread([0.8, 0.9, 1.0, 1.1, 1.2]), 0.2)


class Rows(unittest.TestCase):
    def test_rounds_in_which_the_line_moved_do_not_count(self):
        row, = binned((2, 1, 40, 41), (2, 1, 41, 40), (2, 1, 40, 40), (90, 1, 40, 160), (90, 1, 160, 40))
        self.assertEqual((row["ratio"], row["rounds"], row["dropped"], row["verdict"], row["unsteady"]), (2, 3, 2, "pass", False))
        self.assertIn("2 of 5 rounds dropped", row["why"])
        self.assertEqual(len(row["samples"]), 5)

    def test_each_bin_has_a_row_of_its_own(self):
        near, far = binned(*[(20, 10, 40, 40)] * 4, *[(3, 6, 160, 160)] * 3)
        self.assertEqual((near["bin"], near["ratio"], near["verdict"], near["rounds"], near["line_ns"]), ("middle, 32–63 ns", 2, "pass", 4, 40))
        self.assertEqual((far["bin"], far["ratio"], far["verdict"], far["rounds"], far["line_ns"]), ("far, 128–255 ns", 0.5, "short", 3, 160))

    def test_where_every_round_is_dropped_there_is_no_figure(self):
        row, = binned((2, 1, 40, 160), (2, 1, 160, 40))
        self.assertEqual((row["ours"], row["ratio"], row["verdict"]), (None, None, "unsteady"))

    def test_where_no_run_gave_a_figure_the_row_failed(self):
        row, = measure.binned(HEAD, [], at_least_one, ["it crashed"])
        self.assertEqual((row["verdict"], row["why"]), ("failed", "it crashed"))

    def test_without_a_line_nothing_is_dropped(self):
        row, = binned(*[(1, 2, None, None)] * 3)
        self.assertEqual((row["bin"], row["rounds"], row["dropped"], row["verdict"], row["unsteady"]), ("-", 3, 0, "short", False))

    def test_the_median_is_of_ratios_of_pairs(self):
        row, = binned((10, 10, 40, 40), (30, 10, 40, 40), (20, 10, 40, 40))
        self.assertEqual((row["ratio"], row["ours"], row["reference"]), (2, 20, 10))


class Order(unittest.TestCase):
    """What is run when: the line outside of each round, ours between two references."""

    def run_groups(self, lines, fails=False):
        said, lines = [], iter(lines)

        def figure(name, value):
            said.append(name)
            if fails and name == "ours":
                raise RunFailed("no")
            return value

        def line():
            said.append("line")
            return next(lines)

        case = cases.Case("case", "µs", lambda: figure("ours", 1.0), [cases.Goal("ref", 0.6, at_least=False)])
        rows = measure.measure([cases.Group("group", {"ref": lambda: figure("ref", 2.0)}, [case])], 2, lambda text: None, line)
        return said, rows

    def test_a_round_is_line_reference_ours_reference_line(self):
        said, rows = self.run_groups([40, 40, 40, 40])
        self.assertEqual(said, ["line", "ref", "ours", "ref", "line"] * 2)
        self.assertEqual([(row["ratio"], row["verdict"], row["rounds"]) for row in rows], [(0.5, "pass", 2)])

    def test_a_line_that_moves_within_a_round_drops_that_round(self):
        _, rows = self.run_groups([40, 160, 160, 160])
        self.assertEqual([(row["rounds"], row["dropped"], row["bin"]) for row in rows], [(1, 1, "far, 128–255 ns")])

    def test_a_case_that_fails_twice_says_why(self):
        _, rows = self.run_groups([40] * 4, fails=True)
        self.assertEqual([(row["verdict"], row["why"]) for row in rows], [("failed", "no")])


class Messaging(unittest.TestCase):
    def test_rounds_are_gathered_by_row_and_dropped_by_line(self):
        rows = {}
        for ours, lines in ((1.0, (40, 40)), (9.0, (40, 160)), (1.0, (40, 41)), (1.0, (41, 40))):
            msg.keep(rows, [{"name": "shm_lat_8", "ours": ours, "peer": 2.0, "unit": "us", "better": "lower", "goal": 0.9, "peer_name": "UCX"}], lines)
        row, = msg.table_rows(rows["shm_lat_8"])
        self.assertEqual((row["ratio"], row["rounds"], row["dropped"], row["verdict"], row["goal"]), (0.5, 3, 1, "pass", "≤ 0.9"))

    def test_without_a_peer_ours_is_shown(self):
        rows = {}
        msg.keep(rows, [{"name": "shm_lat_8", "ours": 3.0, "peer": None, "unit": "us", "better": "lower", "goal": 0.9, "peer_name": ""}], (40, 40))
        row, = msg.table_rows(rows["shm_lat_8"])
        self.assertEqual((row["ours"], row["ratio"], row["verdict"]), (3.0, None, "no peer"))

    def test_each_row_of_perf_grow_and_crowd_is_asked_for_once(self):
        asked = msg.AGAINST + [name for names in msg.GROW.values() for name in names] + msg.MANY + list(msg.CROWD.values())
        measured = set(asked)
        self.assertEqual(len(asked), len(measured))
        self.assertEqual(set(msg.WHAT) - measured, {name for name in msg.WHAT if name.startswith(("bare_", "verbs_", "loan_"))})


class Sharing(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, path, text):
        path = self.root / "cpu0" / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    def test_by_what_sysfs_says(self):
        self.assertEqual(placement.sharing(0, 1, self.root), "unknown")
        self.write("topology/thread_siblings_list", "0,4")
        self.write("cache/index2/level", "2")
        self.write("cache/index2/shared_cpu_list", "0-7")
        self.assertEqual(placement.sharing(0, 4, self.root), "SMT siblings")
        self.assertEqual(placement.sharing(0, 3, self.root), "other")
        self.write("cache/index3/level", "3")
        self.write("cache/index3/shared_cpu_list", "0-3")
        self.assertEqual(placement.sharing(0, 3, self.root), "same L3")
        self.assertEqual(placement.sharing(0, 5, self.root), "other")

    def test_lists_of_cpus(self):
        self.assertEqual(placement.members("0-2,8,10-11\n"), {0, 1, 2, 8, 10, 11})
        self.assertEqual(placement.members("\n"), set())


class Told(unittest.TestCase):
    def test_the_meter_names_the_placements_that_it_met(self):
        lines = iter([40, 44, 160, None])

        def figure():
            ns = next(lines)
            if ns is None:
                raise RunFailed("no")
            return ns

        meter = placement.Meter((0, 1), figure, RunFailed)
        self.assertEqual([meter() for _ in range(4)], [40, 44, 160, None])
        found = meter.placements()
        self.assertEqual([(p["bin"], p["looks"], p["line_ns"], p["cpus"]) for p in found], [("middle, 32–63 ns", 2, 42, [0, 1]), ("far, 128–255 ns", 1, 160, [0, 1])])
        text = placement.placements_text(found)
        for part in ("CPUs 0 and 1", "42 ns (middle, 32–63 ns; 40 to 44) in 2", "160 ns (far, 128–255 ns; 160 to 160) in 1"):
            self.assertIn(part, text)

    def test_the_table_has_bin_rounds_and_what_is_unsteady(self):
        rows = binned(*[(2, 1, 40, 40)] * 3, (1, 2, 160, 160), (1, 1, 40, 160))
        head, sep, steady, other = report.markdown_table(rows).splitlines()
        self.assertEqual(head.count("|"), sep.count("|"))
        self.assertTrue(head.endswith("| Bare line | Rounds |"), head)
        self.assertTrue(steady.endswith("| pass | middle, 32–63 ns | 3 of 5, 1 dropped |"), steady)
        self.assertTrue(other.endswith("| short, unsteady | far, 128–255 ns | 1 of 5, 1 dropped |"), other)
        self.assertIn("short, unsteady", report.text_table(rows))

    def test_a_result_is_written_between_its_markers(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "RESULTS.md"
            path.write_text(f"before\n{report.BEGIN}\n<!-- bench:guest -->\nkept\n{report.END}\nafter\n")
            machine = {"cpu": "c", "cores": 2, "kernel": "k", "rmem_max": "1", "load": 0.0, "rounds": 3, "date": "d", "commit": "x",
                       "placements": placement.Meter((0, 1), lambda: 40).placements()}
            self.assertTrue(report.write_results(path, "loopback", binned(*[(2, 1, 40, 40)] * 3), machine))
            text = path.read_text()
        for part in ("before\n", "after\n", "kept", "| pass | middle, 32–63 ns | 3 of 3 |", "The bare cache line was not measured."):
            self.assertIn(part, text)


class Goals(unittest.TestCase):
    def test_one_without_a_limit_is_only_shown(self):
        goal = cases.Goal("x")
        self.assertEqual((goal.met, goal.text()), (None, ""))
        self.assertTrue(cases.Goal("x", 0.25, at_least=False).met(0.25))
        self.assertFalse(cases.Goal("x", 0.25, at_least=False).met(0.26))

    def test_perftest_gives_its_rate(self):
        text = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n 8          5000             0.00               33.20              4.351234\n"
        self.assertEqual(perftest_table(text)["MsgRate"], 4.351234)

    def test_the_best_bare_copy_does_without_what_the_kernel_denies(self):
        class Plain:
            cores = [0, 1]

            def alone(self, program, *args):
                if "readv" in args:
                    raise RunFailed("process_vm_readv: Operation not permitted")
                return {"mib_per_s": {"double": 5.0, "single": 7.0}[args[1]]}

        self.assertEqual(cases.BareCopies(Plain(), 0.1).best(65536), 7.0)


class Commands(unittest.TestCase):
    def test_a_program_is_named_behind_what_starts_it(self):
        for words in (["ib_write_bw", "-d"], ["ip", "netns", "exec", "x", "/usr/bin/ib_write_bw"], ["unshare", "-U", "-r", "ib_write_bw"], ["ip", "netns", "exec", "x", "unshare", "-U", "ib_write_bw"]):
            self.assertEqual(program_of(words), "ib_write_bw", words)

    def test_server_and_client_may_be_in_different_places(self):
        started = []

        class Started(Runner):
            def start(self, command, core, preload=True, prefix=None):
                started.append((command, core, self.prefix if prefix is None else prefix))
                raise RunFailed("enough")

        for server_prefix, expected in ((None, ["a"]), (("b",), ["b"])):
            with self.assertRaises(RunFailed):
                Started([0, 1], "build", prefix=("a",), server_prefix=server_prefix).pair(["server"], ["client"], 1)
            self.assertEqual(started.pop(), (["server"], 1, expected))


class Samples(unittest.TestCase):
    """README's figures."""

    def test_what_is_shown_has_figures(self):
        self.assertEqual([(where, [unit for unit, _ in samples.figures(output)]) for where, _, output in samples.shown()],
                         [(where, ["seconds", "Mbit/sec", "seconds", "usec/iter"]) for where in ("README.md", "docs/pictures/explain.txt")])

    def test_a_figure_is_told_by_how_it_is_written(self):
        self.assertEqual(samples.form("8 bytes in 0.00 seconds = 15807.04 Mbit/sec"), "8 bytes in #.## seconds = #.## Mbit/sec")
        self.assertNotEqual(samples.form("4.15 usec/iter"), samples.form("4.1 usec/iter"))

    def test_one_of_another_order_is_far(self):
        shown = "in 0.00 seconds = 68.40 Mbit/sec\nin 0.96 seconds = 958.12 usec/iter"
        self.assertEqual(samples.far(shown, "in 0.00 seconds = 684.1 Mbit/sec\nin 0.10 seconds = 100.12 usec/iter"), ["shown are 68.4 Mbit/sec, measured 684.1"])
        self.assertEqual(samples.far(shown, "in 0.01 seconds = 7.00 Mbit/sec\nin 9.00 seconds = 9000.00 usec/iter"), [])
        self.assertEqual(samples.far(shown, "in 0.00 seconds = 68.40 Mbit/sec"), ["shown are 4 figures, printed were 2"])


class Programs(unittest.TestCase):
    """No figure is judged: only that there is one."""

    def run_one(self, name, *args):
        return subprocess.run([BUILD / "bench" / name, *map(str, args)], capture_output=True, text=True, timeout=60, check=False)

    def setUp(self):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            self.skipTest("two cores are needed")
        self.cores = f"{cores[0]},{cores[1]}"

    def test_the_line_is_measured(self):
        got = self.run_one("line", "-c", self.cores)
        self.assertEqual(got.returncode, 0, got.stderr)
        found = json.loads(got.stdout)
        self.assertGreater(found["least_ns"], 0)
        self.assertGreaterEqual(found["half_trip_ns"], found["least_ns"])

    def test_each_copy_moves_messages_of_any_size(self):
        for mode in ("double", "single", "readv"):
            for size in (8, 8192, 65537, 1 << 20):
                got = self.run_one("copy", "-m", mode, "-s", size, "-t", 0.01, "-c", self.cores)
                if mode == "readv" and "Operation not permitted" in got.stderr:
                    continue
                self.assertEqual(got.returncode, 0, (mode, size, got.stderr))
                found = json.loads(got.stdout)
                self.assertEqual((found["mode"], found["bytes"]), (mode, size))
                self.assertGreater(min(found["messages"], found["mib_per_s"]), 0)
                self.assertEqual(found["median_us"] > 0, mode == "readv")

    def test_wrong_arguments_are_usage_errors(self):
        for name, *args in (("copy", "-m", "triple"), ("copy", "-s", 7), ("copy", "-t", 0), ("copy", "x"), ("line", "-x"), ("line", "x"), ("line", "-c", "0")):
            got = self.run_one(name, *args)
            self.assertEqual((got.returncode, got.stdout), (2, ""), (name, args))
            self.assertTrue(got.stderr, (name, args))


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1], verbosity=2)
