#!/usr/bin/python3
"""`ropeway perf`: every operation over every transport that needs no device, what is checked and that a wrong byte is seen, a server among strangers, the curves, and the rows beside peers.

No figure is judged: only that there is one, and that figures agree with each other. Usage: perf_test.py BUILD_DIR TEST_CLASS [SPOIL.so].
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ET

BUILD, SPOIL = pathlib.Path("."), ""
TIMEOUT_S = 120
GOALS = {"shm_lat_8": 1.1, "shm_rate_8": 1, "shm_bw_64k": 1, "shm_bw_8m": 1, "shm_put_8m": 1.0, "tcp_lat_8": 0.95, "tcp_lat_4k": 0.95, "tcp_rate_8": 5,
         "tcp_bw_64k": 1.5, "tcp_bw_8m": 1.1, "tcp_put_8m": 10}
# Stands in for ucx_perftest: the server listens until its client has come; the client prints the line that `-v` gives, with figures that are easy to recognise.
PEER = """#!/usr/bin/python3
import os, socket, sys
if not os.isatty(0):  # built with MPI, it would wait for other ranks
    sys.exit("its input is no terminal")
port = int(sys.argv[sys.argv.index("-p") + 1])
if sys.argv[1] == "-p":
    s = socket.create_server(("127.0.0.1", port))
    s.accept()
else:
    socket.create_connection(("127.0.0.1", port))
    print("iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr")
    print("100,2.000,3.0,4.0,5.0,1000.00,7,2000000")
"""


def command(*args):
    return [str(BUILD / "ropeway"), "perf", *map(str, args)]


def environment(**more):
    full = {k: v for k, v in os.environ.items() if not k.startswith("ROPEWAY_")}
    return dict(full, LC_ALL="C.UTF-8", **more)


def perf(*args, **env):
    return subprocess.run(command(*args), env=environment(**env), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=TIMEOUT_S, check=False)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ropeway-perf-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def good(self, *args, **env):
        got = perf(*args, **env)
        self.assertEqual(got.returncode, 0, (args, got.stderr, got.stdout))
        return got.stdout

    def with_line(self, run, mark="line_ns"):
        """On a busy machine the two processes may not run at once, and there is no line: then again."""
        for _ in range(20):
            found = run()
            if mark in found:
                break
        return found


class Rows(Case):
    def check_rows(self, found, transport, verify):
        self.assertEqual(found["transport"], transport)
        self.assertEqual([(r["op"], r["size"]) for r in found["rows"]], [(op, size) for op in ("tag", "put", "get", "am", "loan", "view") for size in (0, 8, 4097, 1 << 20)])
        for row in found["rows"]:
            times = [row["latency_us"][k] for k in ("min", "p50", "p90", "p99", "p99.9", "max")]
            self.assertEqual(times, sorted(times), row)
            self.assertGreater(times[0], 0, row)
            self.assertAlmostEqual(row["bytes_per_second"], row["messages_per_second"] * row["size"], delta=row["bytes_per_second"] * 1e-4)
            self.assertGreaterEqual(row["checked"], 40 if verify else 2, row)


class Alone(Rows):
    def test_every_operation_over_each_transport_with_every_byte_checked(self):
        for transport in ("shm", "tcp"):
            out = self.good("-t", transport, "-o", "all", "-s", "0,8,4097,1M", "-n", 40, "--verify", "--json", "--no-bare")
            self.check_rows(json.loads(out), transport, True)

    def test_a_few_messages_are_checked_without_being_asked(self):
        out = self.good("-t", "shm", "-o", "all", "-s", "0,8,4097,1M", "-d", "0.01", "--json")
        found = json.loads(out)
        self.check_rows(found, "shm", False)
        self.assertGreater(min(found["bare_us"].values()), 0)

    def test_the_distance_of_the_two_cores_is_said(self):
        cores = sorted(os.sched_getaffinity(0))[:2]
        if len(cores) < 2:
            self.skipTest("two cores are needed")
        found = self.with_line(lambda: json.loads(self.good("-s", 8, "-n", 5, "--json")))
        self.assertGreater(found["line_ns"], 0)
        self.assertEqual(found["line_cores"], cores)
        self.assertAlmostEqual(found["bare_us"]["cache_line"] * 1e3, found["line_ns"], delta=found["line_ns"] * 1e-3)
        text = self.with_line(lambda: self.good("-s", 8, "-n", 5), "\nline ")
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        self.assertRegex(text, rf"(?m)^line   \d+ ns: .* between cores {cores[0]} and {cores[1]}$")
        self.assertNotRegex(self.good("-s", 8, "-n", 5, "--no-bare"), r"(?m)^line")

    def test_the_path_by_shared_memory_says_which_side_copies_when(self):
        path = json.loads(self.good("-t", "shm", "-s", 8, "-n", 5, "--no-bare", "--json"))["path"]
        self.assertRegex(path, r"^shared memory with process \d+: large data: both sides copy (while the peer polls, else process_vm \(or where that is faster\)|\(process_vm: .+\))$")

    def test_stopped_it_leaves_whole_rows_and_says_so(self):
        run = subprocess.Popen(command("-t", "shm", "-s", "8,16,32,64", "-d", "1", "--no-bare"), env=environment(), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # ignored in what a script starts with &
        self.addCleanup(run.kill)
        while not run.stdout.readline().startswith("tag "):
            self.assertIsNone(run.poll())
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=TIMEOUT_S)
        self.assertEqual(run.returncode, -signal.SIGINT)
        self.assertTrue(out == "" or out.endswith("\n"), out)
        self.assertEqual(err, "ropeway perf: stopped: the rows above are whole; --sizes and --measure go on with the others\n")

    def test_a_wrong_byte_is_seen_in_each_operation(self):
        if not SPOIL:
            self.skipTest("no spoiling library was built")
        for op in ("tag", "put", "get", "am"):
            for verify in ((), ("--verify",)):
                got = perf("-t", "tcp", "-o", op, "-m", "bw", "-s", 4096, "-n", 30, "--no-bare", *verify, LD_PRELOAD=SPOIL)
                self.assertEqual(got.returncode, 1, (op, verify, got))
                self.assertIn("are not what was sent", got.stderr, (op, verify))

    def test_the_curves_are_one_drawing_for_light_and_dark(self):
        svg = self.dir / "out.svg"
        self.good("-t", "shm", "-o", "tag,put", "-s", "8..8K", "-d", "0.005", "--no-bare", "--plot", svg)
        root = ET.parse(svg).getroot()
        lines = root.findall("{http://www.w3.org/2000/svg}polyline")
        self.assertEqual(len(lines), 4)  # two operations, two panels
        for line in lines:
            points = [tuple(map(float, p.split(","))) for p in line.get("points").split()]
            self.assertEqual(len(points), 6)
            self.assertEqual(points, sorted(points))
        self.assertIn("prefers-color-scheme:dark", svg.read_text())
        self.assertEqual(perf("-s", 8, "-n", 5, "--no-bare", "--plot", self.dir / "no" / "out.svg").returncode, 1)

    def test_wrong_arguments_are_usage_errors(self):
        for args in (("-s", "8,x"), ("-s", "9..8"), ("-s", "2G"), ("-o", "tags"), ("-m", "rate"), ("-t", "pigeon"), ("-d", "0"), ("-n", "0"), ("-w", "1025"), ("-c", "-1"),
                     ("--against", "mpi"), ("--against", "ucx", "host"), ("a", "b"), ("--rounds", "0")):
            got = perf(*args)
            self.assertEqual((got.returncode, got.stdout), (2, ""), (args, got))
            self.assertIn("--help", got.stderr, args)
        self.assertIn("Usage: ropeway perf", self.good("--help"))


class Verbs(Rows):
    """Over the software device, which the library opens by itself. Run in a network namespace of its own: UDP port 4791 has to be free."""

    def test_every_operation_with_every_byte_checked(self):
        for more in ((), ("-n", 7, "-w", 3)):
            found = json.loads(self.good("-t", "verbs", "-o", "all", "-s", "0,8,4097,1M", "-n", 40, "--verify", "--json", "--no-bare", *more))
            self.assertRegex(found["path"], r"^rpw_lo, GID \d+ ::ffff:127\.0\.0\.1, MTU 4096")
            if not more:
                self.check_rows(found, "verbs", True)

    def test_a_wrong_byte_is_seen_in_each_operation(self):
        if not SPOIL:
            self.skipTest("no spoiling library was built")
        for op in ("tag", "put", "get", "am"):
            got = perf("-t", "verbs", "-o", op, "-m", "bw", "-s", 4096, "-n", 30, "--no-bare", "--verify", LD_PRELOAD=SPOIL)
            self.assertEqual(got.returncode, 1, (op, got))
            self.assertIn("are not what was sent", got.stderr, op)

    def test_a_lossy_network_loses_nothing(self):
        out = self.good("-t", "verbs", "-o", "all", "-s", "8,4097,1M", "-n", 40, "--verify", "--json", "--no-bare", ROPEWAY_FAULT="drop=0.02,dup=0.01,reorder=0.02,corrupt=0.01,seed=5")
        self.assertEqual(json.loads(out)["transport"], "verbs")


class Server(Case):
    def setUp(self):
        super().setUp()
        self.server = subprocess.Popen(command("--serve", "127.0.0.1:0"), env=environment(), text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(self.server.stdout.close)
        self.addCleanup(self.server.wait)
        self.addCleanup(self.server.kill)
        line = self.server.stdout.readline()
        self.assertRegex(line, r"listening on port \d+")
        self.port = int(line.split("port ")[1].split(";")[0])

    def measure(self, *args):
        return json.loads(self.good(f"127.0.0.1:{self.port}", "-n", 20, "--json", *args))

    def test_one_client_after_the_other(self):
        for transport in ("shm", "tcp"):
            self.assertEqual(self.measure("-t", transport, "-s", "8,100000", "-o", "all", "--verify")["transport"], transport)

    def test_the_distance_to_a_server_of_this_host_is_said_over_each_transport(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("two cores are needed")
        for transport in ("shm", "tcp"):
            os.sched_setaffinity(self.server.pid, {max(os.sched_getaffinity(0))})
            found = self.with_line(lambda transport=transport: self.measure("-t", transport, "-s", 8, "-c", min(os.sched_getaffinity(0))))
            self.assertGreater(found["line_ns"], 0)
            self.assertEqual(found["line_cores"], [min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))])

    def test_who_may_not_share_memory_with_the_server_measures_without_the_distance(self):
        found = subprocess.run(["unshare", "-U", "-p", "-m", "--mount-proc", "-r", "-f", *command(f"127.0.0.1:{self.port}", "-t", "tcp", "-s", 8, "-n", 20, "--json")], env=environment(),
                               text=True, capture_output=True, timeout=TIMEOUT_S, check=False)
        if "unshare" in found.stderr:
            self.skipTest(found.stderr)
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertNotIn("line_ns", json.loads(found.stdout))

    def test_a_client_that_is_killed_does_not_stop_it(self):
        victim = subprocess.Popen(command(f"127.0.0.1:{self.port}", "-d", "60", "-s", 8), env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        victim.stdout.readline()
        victim.kill()
        victim.wait()
        victim.stdout.close()
        self.assertEqual(len(self.measure("-s", 8)["rows"]), 1)

    def test_strangers_do_not_stop_it(self):
        for bytes_ in (b"", b"GET / HTTP/1.0\r\n\r\n", bytes(range(256)) * 20):
            with socket.create_connection(("127.0.0.1", self.port)) as s:
                s.sendall(bytes_)
        self.assertEqual(len(self.measure("-s", 8)["rows"]), 1)

    def test_a_job_that_is_too_large_is_refused_and_the_next_is_not(self):
        got = perf(f"127.0.0.1:{self.port}", "-s", "64M", "-w", 1024, "--verify", "-n", 1, "-o", "get", "-m", "bw")
        self.assertEqual(got.returncode, 1, got)
        self.assertEqual(len(self.measure("-s", 8)["rows"]), 1)

    def test_nobody_there_is_said(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            free = s.getsockname()[1]
        got = perf(f"127.0.0.1:{free}", "-s", 8)
        self.assertEqual(got.returncode, 1)
        self.assertIn(f"127.0.0.1:{free}", got.stderr)


class Against(Case):
    def rows(self, *args):
        out = self.good("--against", "ucx", "--rounds", 1, "-d", "0.05", "--json", *args, PATH=str(self.dir))
        return {row["name"]: row for row in json.loads(out)}

    def setUp(self):
        super().setUp()
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("two cores are needed")

    def peer(self, text, where="."):
        path = self.dir / where / "ucx_perftest"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def test_each_row_has_its_name_its_goal_and_its_ratio(self):
        self.peer(PEER)
        rows = self.rows()
        self.assertEqual({name: row["goal"] for name, row in rows.items() if not name.startswith("bare_")}, GOALS)
        for bare, name, goal in (("bare_cache_line", "shm_lat_8", None), ("bare_tcp_8", "tcp_lat_8", 1.1), ("bare_tcp_4k", "tcp_lat_4k", 1.1)):
            row = rows.pop(bare)
            self.assertEqual((row["ours"], row["goal"]), (rows[name]["ours"], goal))
            self.assertAlmostEqual(row["ratio"], row["ours"] / row["peer"], delta=row["ratio"] * 1e-3)
        for name, row in rows.items():
            latency = "_lat_" in name
            self.assertEqual((row["unit"], row["better"]), ("us", "lower") if latency else ("M/s" if "rate" in name else "MB/s", "higher"))
            self.assertAlmostEqual(row["peer"], 2.0 if latency or "rate" in name else 1048.576, delta=0.1)
            self.assertAlmostEqual(row["ratio"], row["ours"] / row["peer"], delta=row["ratio"] * 1e-3)

    def test_without_a_peer_there_is_no_ratio_and_ours_is_still_there(self):
        row = self.rows("--only", "shm_lat_8")["shm_lat_8"]
        self.assertIsNone(row["peer"])
        self.assertIsNone(row["ratio"])
        self.assertGreater(row["ours"], 0)

    def test_peers_that_are_not_installed_are_told_with_their_packages(self):
        measure = ("--against", "ucx", "--rounds", 1, "-d", "0.005", "--only", "shm_lat_8")
        for place, said in (("bin", "ucx_perftest and fi_pingpong are not in PATH"), ("with", "fi_pingpong is not in PATH")):
            if place == "with":
                self.peer(PEER, place)
            (self.dir / place).mkdir(exist_ok=True)
            (self.dir / place / "python3").symlink_to(sys.executable)
            got = perf(*measure, PATH=str(self.dir / place))
            self.assertEqual(got.returncode, 0, got)
            self.assertIn(said, got.stderr)
            self.assertIn("apt install " + ("ucx-utils libfabric-bin" if place == "bin" else "libfabric-bin"), got.stderr)
            row = next(line for line in got.stdout.splitlines() if line.startswith("shm_lat_8"))
            self.assertEqual(row.split()[2] == "-", place == "bin", row)

    def test_of_several_installations_the_best_one_counts(self):
        self.peer(PEER)
        self.peer(PEER.replace("2000000", "3000000"), "fast-9.9/bin")
        self.peer(PEER.replace("2000000", "1000000"), "slow/bin")
        row = self.rows("--only", "tcp_rate_8", "--peers", f"{self.dir}/slow/:{self.dir}/fast-9.9")["tcp_rate_8"]
        self.assertAlmostEqual(row["peer"], 3.0, delta=0.1)
        self.assertIn("(fast-9.9)", row["peer_name"])

    def test_an_installation_that_is_none_is_refused(self):
        got = perf("--against", "ucx", "--peers", str(self.dir))
        self.assertEqual(got.returncode, 2)
        self.assertIn(str(self.dir), got.stderr)

    def test_a_peer_that_fails_gives_no_figure(self):
        self.peer("#!/bin/sh\nexit 3\n")
        self.assertIsNone(self.rows("--only", "tcp_rate_8")["tcp_rate_8"]["peer"])


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    SPOIL = sys.argv[3] if len(sys.argv) > 3 else ""
    unittest.main(argv=[sys.argv[0], sys.argv[2]], verbosity=2)
