#!/usr/bin/python3
"""`ropeway plugin check --rma`: a reference plugin with every table, our own plugin, mutants, each of which the property that is about it has to find; what the command says. `ropeway plugin bench --rma`: its rows. `test_connection --rma`.

Usage: rma_check_test.py BUILD_DIR TEST_CLASS REFERENCE.so
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import unittest

BUILD, REFERENCE = pathlib.Path("."), ""
TIMEOUT_S = 200
TABLES = ("v16", "v15", "v14", "v13", "gin13", "gin12", "gin11")
# Each mutant of rma_reference.c, the property that is about it, the verdict, and what the line says; the table where it is not the newest.
MUTANTS = [
    ("null-put", "table", "fail", "pointer 14 of 22 is NULL"),
    ("null-flush", "iflush", "fail", "iflush is NULL"),
    ("null-name", "name", "fail", "not a short line"),
    ("init-once", "init", "fail", "init gives 3"),
    ("no-devices", "devices", "fail", "there is no device 0"),
    ("wide-properties", "properties", "fail", "byte 128 was written"),
    ("no-receives", "properties", "fail", "maxRecvs 0"),
    ("any-device", "outside", "quirk", "getProperties.1. of 1 devices is a success"),
    ("host-type", "type", "fail", "netDeviceType 0", "v13"),
    ("long-handle", "listen", "fail", "byte 128, past the 128"),
    ("not-alone", "ranks", "fail", "connect of 1 ranks gives 4"),
    ("wide-claims", "rma-properties", "fail", "byte 1 was written"),
    ("no-flags", "reg", "fail", "flags 3 gives"),
    ("reg-by-address", "reg-order", "fail", "registration . of 3: byte 0 of 8192"),
    ("reg-once", "reg-twice", "fail", "regMrSym of 8192 bytes"),
    ("any-type", "reg-type", "fail", "takes memory of type 0"),
    ("wrong-byte", "put", "fail", "byte 17 of 65535"),
    ("wide-put", "put", "fail", "the byte behind it was written"),
    ("wrong-byte", "large", "fail", "byte 17 of"),
    ("self-lost", "self", "fail", "nothing came of it"),
    ("no-last-byte", "ends", "fail", "gives 4"),
    ("empty-lost", "signal-only", "fail", "nothing came of it"),
    ("inc-adds", "signals", "fail", "after an increment of 0x4d the word is 0x4d"),
    ("signal-narrow", "signals", "fail", "after an add of 0x300000000"),
    ("signal-wide", "signals", "fail", "the word beside the signal"),
    ("signal-same-window", "signal-window", "fail", "nothing came of it"),
    ("null-request", "source", "fail", "iput gives success and no request"),
    ("done-early", "source", "fail", "is 0xee"),
    ("get-short", "get", "fail", "a get: byte"),
    ("more-waits", "more", "fail", "nothing came of it"),
    ("signal-first", "strong", "fail", "before the signal: byte"),
    ("weak-first", "weak", "fail", "the weak signal's own put: byte"),
    ("sums-lost", "sums", "fail", "300 signals of each of"),
    ("few-requests", "in-flight", "fail", "with 16 requests of 32"),
    ("no-bounds", "beyond", "fail", "a source that ends 4 bytes past its registration is done, with success"),
    ("no-wrap", "beyond", "fail", "offset wraps"),
    ("any-rank", "wrong-rank", "quirk", "a put to rank 2 of 2 is taken"),
    ("mixed-hangs", "mixed", "fail", "hung in connect"),
    ("no-deaths", "peer-killed", "fail", "has no error"),
    ("close-hangs", "close-busy", "fail", "hung in closeColl"),
    ("dereg-crashes", "dereg-busy", "fail", "crashed in deregMrSym"),
    ("finalize-busy", "finalize", "fail", "finalize gives 3"),
]
PATIENT_S, HURRIED_S = 20, 2


def plugin(half, *args, **env):
    full = {k: v for k, v in os.environ.items() if not k.startswith(("ROPEWAY_", "NCCL_", "UCCL_", "RMA_"))}
    return subprocess.run([str(BUILD / "ropeway"), "plugin", half, *map(str, args)], env=dict(full, LC_ALL="C.UTF-8", **env), text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False)


def check(path, *args, rma="", **env):
    return plugin("check", f"--rma={rma}" if rma else "--rma", path, *args, **env)


def lines(got):
    return {line["id"]: line for line in json.loads(got.stdout)["lines"]}


class Reference(unittest.TestCase):
    def passes(self, path, table, ranks, rounds=500, **env):
        got = check(path, "--ranks", ranks, "--rounds", rounds, "--largest", "1M", "--timeout", PATIENT_S, "--json", rma=table, **env)
        self.assertIn(got.returncode, (0, 1), got.stderr)
        found = json.loads(got.stdout)
        self.assertEqual([(line["id"], line["text"]) for line in found["lines"] if line["verdict"] in ("fail", "quirk")], [], (table, ranks))
        self.assertEqual((got.returncode, found["ranks"], found["rccl"]), (0, ranks, "fit"))
        # Every line has what NCCL would do.
        self.assertEqual([line["id"] for line in found["lines"] if not line["then"]], [])
        abi = int(table[-2:])
        skipped = {line["id"] for line in found["lines"] if line["verdict"] == "skip"}
        self.assertEqual(skipped, {name for name, first in (("iflush", 13), ("get", 13), ("weak", 14), ("more", 15), ("rma-properties", 16)) if abi < first})

    def test_each_table_passes(self):
        for table in TABLES if not {"ASAN_OPTIONS", "TSAN_OPTIONS"} & os.environ.keys() else ("v16", "gin11"):
            with self.subTest(table=table):
                self.passes(REFERENCE, table, 2)

    def test_three_and_eight_ranks_pass(self):
        self.passes(REFERENCE, "v16", 3)
        self.passes(REFERENCE, "v16", 8, rounds=100)


class Ropeway(Reference):
    """Our own plugin."""

    def passes(self, path, table, ranks, rounds=500, **env):
        super().passes(BUILD / "libnccl-net-ropeway.so", table, ranks, rounds, ROPEWAY_RMA="1", **env)

    def test_its_network_is_up_first(self):
        """As in NCCL: where one-sided operations rest on the network plugin of the same file, there are devices."""
        got = check(BUILD / "libnccl-net-ropeway.so", "--only", "devices", "--json")
        self.assertEqual("pass", lines(got)["devices"]["verdict"], got.stdout + got.stderr)


class Mutants(unittest.TestCase):
    @staticmethod
    def find(mutant):
        name, line, _, _, *table = mutant
        return check(REFERENCE, "--only", line, "--timeout", HURRIED_S, "--largest", "1M", "--rounds", 2000, "--json", rma=table[0] if table else "", RMA_MUTANT=name)

    def test_each_is_found_by_the_property_that_is_about_it(self):
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for mutant, got in zip(MUTANTS, pool.map(self.find, MUTANTS)):
                name, line, verdict, says, *_ = mutant
                with self.subTest(mutant=name, line=line):
                    self.assertIn(got.returncode, (0, 1), got.stderr)
                    found = lines(got)[line]
                    self.assertEqual(found["verdict"], verdict, found)
                    self.assertRegex(found["text"], says)
                    self.assertEqual(got.returncode, 1 if verdict == "fail" else 0)

    def test_each_property_has_one(self):
        properties = set(lines(check(REFERENCE, "--rounds", 100, "--largest", "1M", "--timeout", PATIENT_S, "--json")))
        # A library without such a table is tried by Command; a comm that does not connect at all fails every test here.
        self.assertEqual(properties - {line for _, line, *_ in MUTANTS}, {"load", "connect"})


class Command(unittest.TestCase):
    def test_verdicts_for_people(self):
        quick = ("--rounds", 100, "--largest", "1M", "--timeout", PATIENT_S)
        out = check(REFERENCE, *quick).stdout.splitlines()
        self.assertEqual(out[0], f"{REFERENCE} exports RMA v16, RMA v15, RMA v14, RMA v13, GIN v13, GIN v12, GIN v11; checking RMA v16 with 2 ranks.")
        self.assertIn("2.30.7            RMA v14", out)
        self.assertIn("fit for NCCL 2.32.3, by RMA v16", out)
        self.assertIn("fit for RCCL, with RMA v16", out)
        self.assertIn("not checked: NCCL 2.30.7, which uses RMA v14", out)
        # A part of the properties shows nothing but that it is not fit.
        self.assertIn("not checked for NCCL 2.32.3, by RMA v16", check(REFERENCE, "--only", "name").stdout)
        old = check(REFERENCE, *quick, rma="v14").stdout
        self.assertIn("fit for NCCL 2.30.7, by RMA v14", old)
        self.assertIn("not checked: NCCL 2.32.3, which uses RMA v16", old)

    def test_an_iflush_that_is_not_there_is_no_matter_to_rccl(self):
        out = check(REFERENCE, "--rounds", 100, "--largest", "1M", "--timeout", PATIENT_S, RMA_MUTANT="null-flush").stdout
        self.assertIn("\nnot fit for NCCL 2.32.3, by RMA v16\nfit for RCCL, with RMA v16\n", out)
        self.assertIn("RCCL asks first", " ".join(out.split()))

    def test_the_tracer_in_front_changes_nothing_and_finds_nothing(self):
        for table in ("v16", "gin12"):
            got = check(BUILD / "libnccl-net-ropeway-trace.so", "--ranks", 3, "--rounds", 200, "--largest", "1M", "--only", "st", "--json", rma=table, ROPEWAY_TRACE_PLUGIN=REFERENCE, ROPEWAY_CHECK="1")
            self.assertEqual((got.returncode, got.stderr), (0, ""), table)
            self.assertEqual(json.loads(got.stdout)["fail"], 0)

    def wrong(self, status, says, *args):
        got = plugin("check", *args)
        self.assertEqual((got.returncode, got.stdout), (status, ""), got.stderr)
        self.assertRegex(got.stderr, says)

    def test_what_is_no_such_plugin(self):
        self.wrong(1, "exports no table of RMA v13 to v16 or GIN v11 to v13", "--rma", BUILD / "libropeway.so")
        self.wrong(1, "/nonexistent.so: cannot open", "--rma", "/nonexistent.so")

    def test_usage(self):
        self.wrong(2, "invalid value 'v12' for --rma: expected v13 to v16, or gin11 to gin13", "--rma=v12", REFERENCE)
        self.wrong(2, "--ranks is of --rma", "--ranks", 3, REFERENCE)
        self.wrong(2, "--rma=v16 sets the table", "--rma", "--abi", "v9", REFERENCE)
        self.wrong(2, "invalid value '9' for --ranks: expected .* from 2 to 8", "--rma", "--ranks", 9, REFERENCE)


class Bench(unittest.TestCase):
    """No figure is judged."""

    QUICK = ("--sizes", "8,70000", "--rounds", 3, "--duration", "0.01")

    def test_rows_of_two_in_one_run(self):
        got = plugin("bench", "--rma", REFERENCE, "--against", REFERENCE, "--json", *self.QUICK)
        self.assertEqual(got.returncode, 0, got.stderr)
        found = json.loads(got.stdout)
        self.assertEqual([p["table"] for p in found["plugins"]], ["RMA v16"] * 2)
        for p in found["plugins"]:
            self.assertEqual([(r["kind"], r["size"], r["contexts"]) for r in p["rows"]],
                             [(kind, size, contexts) for kind in ("put", "signal", "get") for contexts in (1, 4) for size in (8, 70000)])
            for r in p["rows"]:
                self.assertEqual(sorted(r["rounds"])[1], r["per_second"])
            self.assertEqual([r["size"] for r in p["latency"]], [8])

    def test_a_table_for_people(self):
        out = plugin("bench", "--rma", REFERENCE, *self.QUICK).stdout
        self.assertRegex(out, r"(?m)^put, 4 contexts")
        self.assertRegex(out, r"(?m)^8 bytes +[\d.]+ [kM]?/s +[\d.]+ [kMG]?B/s$")

    def test_only_some_operations(self):
        got = plugin("bench", "--rma", REFERENCE, "--ops", "put,get", "--json", *self.QUICK)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual({r["kind"] for r in json.loads(got.stdout)["plugins"][0]["rows"]}, {"put", "get"})

    def test_ranks_exchange_blocks(self):
        got = plugin("bench", "--rma", REFERENCE, "--against", REFERENCE, "--alltoall", 3, "--json", *self.QUICK)
        self.assertEqual(got.returncode, 0, got.stderr)
        found = json.loads(got.stdout)
        self.assertEqual(found["ranks"], 3)
        for p in found["plugins"]:
            self.assertEqual(([(r["kind"], r["size"]) for r in p["rows"]], p["latency"]), ([("alltoall", 8), ("alltoall", 70000)], []))
            for r in p["rows"]:
                self.assertAlmostEqual(r["bytes_per_second"] / r["per_second"], 2 * r["size"], delta=0.01 * r["size"])
        out = plugin("bench", "--rma", BUILD / "libnccl-net-ropeway.so", "--alltoall", 8, *self.QUICK, ROPEWAY_RMA="1").stdout
        self.assertIn("\nalltoall, 8 ranks, each to 7 others\n8 bytes ", out)

    def test_a_block_that_is_wrong_is_told_of(self):
        got = plugin("bench", "--rma", REFERENCE, "--alltoall", 3, *self.QUICK, RMA_MUTANT="wrong-byte")
        self.assertEqual((got.returncode, got.stdout), (1, ""))
        self.assertRegex(got.stderr, "a block of [0-9]+ bytes from rank [0-2]: byte 17 is wrong")

    def test_a_plugin_that_is_wrong_is_told_of(self):
        got = plugin("bench", "--rma", REFERENCE, *self.QUICK, RMA_MUTANT="wrong-byte")
        self.assertEqual((got.returncode, got.stdout), (1, ""))
        self.assertIn("byte 17", got.stderr)


class Connection(unittest.TestCase):
    """`test_connection --rma` between two processes."""

    def both(self, server_args=(), client_args=("--rma",), **env):
        env = dict({k: v for k, v in os.environ.items() if not k.startswith(("ROPEWAY_", "NCCL_", "UCCL_", "RMA_"))}, **env)
        command = [str(BUILD / "test_connection")]
        with subprocess.Popen(command + ["server", *server_args, "--bind", "127.0.0.1", "--port", "0", "--timeout", "20"], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
            out = ""
            while "waiting for a client on port" not in out:
                line = server.stdout.readline()
                self.assertTrue(line, server.stderr.read() if not line else "")
                out += line
            port = out.split("waiting for a client on port ")[1].split()[0]
            client = subprocess.run(command + ["client", "127.0.0.1", *client_args, "--port", port, "--timeout", "20"], env=env, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
            rest, errors = server.communicate(timeout=TIMEOUT_S)
        return (server.returncode, out + rest, errors), (client.returncode, client.stdout, client.stderr)

    def test_a_put_with_a_signal_each_way(self):
        for table, name, plugin_path in (("", "RMA v16", REFERENCE), ("=gin11", "GIN v11", REFERENCE), ("", "RMA v16", BUILD / "libnccl-net-ropeway.so")):
            args = [f"--rma{table}", "--plugin", str(plugin_path)]
            for code, out, errors in self.both(args, args, ROPEWAY_RMA="1"):
                self.assertEqual(code, 0, out + errors)
                self.assertIn("its signal has come, and its 1048576 bytes are right", out)
                self.assertRegex(out, f"PASSED: .*, {name}, device 0, with ")

    def test_sides_that_differ_say_so(self):
        args = ["--plugin", REFERENCE]
        for server, client, says in ((["--rma=v16", *args], ["--rma=v15", *args], "uses RMA v15, you RMA v16: give both the same --rma=TABLE"),
                                     (["--rma", *args], ["--plugin", str(BUILD / "libnccl-net-ropeway.so")], "client tests messages, you one-sided operations")):
            (code, _, errors), (other, _, _) = self.both(server, client)
            self.assertEqual((code, other), (1, 1))
            self.assertIn(says, errors)

    def test_a_wrong_byte_is_found(self):
        args = ["--rma", "--plugin", REFERENCE]
        found = self.both(args, args, RMA_MUTANT="wrong-byte")
        self.assertIn("its signal is there, and byte 17 of its put is wrong", "".join(errors for _, _, errors in found))


if __name__ == "__main__":
    BUILD, REFERENCE = pathlib.Path(sys.argv[1]), sys.argv[3]
    unittest.main(argv=[sys.argv[0], sys.argv[2]])
