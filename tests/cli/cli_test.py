#!/usr/bin/python3
"""The `ropeway` command as its users see it: arguments, exit statuses, output for programs, and the demo.

Usage: cli_test.py BUILD_DIR TEST_CLASS. Exit status 77 where every test of the class was skipped.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path(".")
TIMEOUT_S = 120
NOBODY = 65534


def ropeway(*args, program="ropeway", cwd=None, env=None, wrapper=(), **kwargs):
    """Runs the command to its end; both streams as text."""
    full = dict(os.environ, LC_ALL="C.UTF-8")
    full.update(env or {})
    return subprocess.run([*wrapper, BUILD / program, *map(str, args)], cwd=cwd, env=full, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False, **kwargs)


def tables():
    """The program and words of each command -> (letter, name) of each row of its table of options, as the sources have it."""
    found = {}
    for path in sorted((pathlib.Path(__file__).resolve().parents[2] / "src/cli").rglob("*.c")):
        text = path.read_text()
        rows = re.search(r"(?ms)^static const struct cli_option option\[\] = \{$(.*?)^\};", text)
        if rows:
            name = re.search(r"cli_command command = \{\s*\.name = (\w+|\"[^\"]*\")", text)[1]
            name = name if name[0] == '"' else re.search(rf"#define {name} (.*)", "".join(p.read_text() for p in (path, *path.parent.glob("*.h"))))[1]
            found[tuple(name.strip('"').split())] = [(letter or "", word) for word, letter in re.findall(r"(?m)^\t\{\"([a-z-]+)\", (?:0|'(\w)'),", rows[1])]
    return found


TABLES = tables()


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ropeway-cli-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def assert_usage_error(self, *args, says="", program="ropeway"):
        got = ropeway(*args, program=program, cwd=self.dir)
        self.assertEqual(got.returncode, 2, (args, got))
        self.assertEqual(got.stdout, "", args)
        self.assertIn(says, got.stderr, args)
        self.assertIn("--help", got.stderr, args)


class Usage(Case):
    def test_version_is_one_line_with_the_version(self):
        got = ropeway("--version")
        self.assertEqual(got.returncode, 0)
        self.assertRegex(got.stdout, r"\Aropeway \d+\.\d+\.\d+\n\Z")

    def test_help_names_every_command_and_each_command_has_help(self):
        top = ropeway("--help")
        self.assertEqual((top.returncode, top.stderr), (0, ""))
        for command in ("demo", "devices", "explain", "run"):
            self.assertRegex(top.stdout, rf"(?m)^  {command} ")
            got = ropeway(command, "--help")
            self.assertEqual((got.returncode, got.stderr), (0, ""), command)
            self.assertIn(f"Usage: ropeway {command}", got.stdout)
            self.assertEqual(ropeway("help", command).stdout, got.stdout)
        self.assertEqual(ropeway("help", "plugin", "check").stdout, ropeway("plugin", "check", "--help").stdout)
        self.assertEqual(ropeway("help").stdout, top.stdout)
        self.assertEqual(ropeway("help", "rnu").stderr, "ropeway: unknown command 'rnu': did you mean 'run'?\nTry 'ropeway --help'.\n")

    def test_a_slip_in_a_value_gets_the_word_that_was_meant(self):
        for value, start in ((("--fault", "dorp=1"), "did you mean 'drop'? \"dorp=1\" is not understood; accepted: drop=P"),
                             (("--fault", "seed=1,dely=3"), "did you mean 'delay'? \"dely=3\" is not understood"),
                             (("--fault", "drop=2"), "\"drop=2\" is not understood; accepted: drop=P"),
                             (("--wire", "ucp"), "did you mean 'udp'? Expected auto, udp, copy or fetch"),
                             (("--wire", "pigeon"), "expected auto, udp, copy or fetch"),
                             (("--devices", "rpw_ol"), "did you mean 'rpw_lo'? No software device and no interface is called 'rpw_ol'; there "),
                             (("--devices", "lo,softwrae"), "did you mean 'software'? No software device and no interface is called 'softwrae'; there "),
                             (("--devices", "rpw_pigeon77"), "no software device and no interface is called 'rpw_pigeon77'; there ")):
            got = ropeway("run", *value, "--", "true")
            self.assertEqual(got.returncode, 2, got)
            self.assertTrue(got.stderr.startswith(f"ropeway run: invalid value '{value[1]}' for {value[0]}: {start}"), got.stderr)
            self.assertNotIn("ROPEWAY_FAULT", got.stderr)
        got = ropeway("run", "--", "true", env=dict(os.environ, ROPEWAY_FAULT="dorp=1"))
        self.assertEqual(got.stderr.count("ROPEWAY_FAULT: "), 1, got.stderr)

    def test_every_help_fits_80_columns(self):
        commands = re.findall(r"(?m)^  ([a-z]+) ", ropeway("--help").stdout)
        self.assertLess(8, len(commands))
        scripts = pathlib.Path(__file__).resolve().parents[2] / "script"
        told = [[BUILD / "ropeway", *words.split()] for words in ("", "plugin check", "plugin bench", *commands)]
        for command in [*told, [BUILD / "test_connection"], *([p] for p in sorted(scripts.iterdir()) if os.access(p, os.X_OK))]:
            got = subprocess.run([*command, "--help"], env=dict(os.environ, COLUMNS="80"), text=True, capture_output=True, timeout=TIMEOUT_S, check=False)
            self.assertEqual((got.returncode, got.stderr), (0, ""), command)
            self.assertLess(80, len(got.stdout), command)
            self.assertEqual([line for line in got.stdout.splitlines() if len(line) > 80], [], command)

    def test_every_command_says_its_version(self):
        version = ropeway("--version").stdout
        for program, *words in (("ropeway",), *TABLES):
            for option in ("--version", "-V"):
                got = ropeway(*words, option, program=program)
                self.assertEqual((got.returncode, got.stdout, got.stderr), (0, version, ""), words)
        self.assertEqual(ropeway("version").stdout, version)
        self.assertEqual(ropeway("recv", "--once", "--version").stdout, version)  # anywhere among the options
        self.assertIn("coreutils", ropeway("run", "ls", "--version").stdout)  # but not behind another program
        self.assertNotEqual(ropeway("nope", "--version").returncode, 0)

    def test_no_command_and_wrong_ones_are_usage_errors(self):
        got = ropeway()
        self.assertEqual((got.returncode, got.stdout), (2, ""))
        self.assertIn("Usage:", got.stderr)
        for word, meant in (("dmeo", "demo"), ("dev", "devices"), ("exlpian", "explain"), ("recieve", "recv"), ("runs", "run")):
            self.assert_usage_error(word, says=f"ropeway: unknown command '{word}'" + (f": did you mean '{meant}'?" if word != "recieve" else "\n"))
        self.assert_usage_error("--verison", says="unknown option '--verison': did you mean '--version'?")

    def test_the_help_of_every_command_names_every_option_of_its_table(self):
        commands = ("check", "demo", "devices", "doctor", "explain", "perf", "plugin check", "plugin bench", "plugin trace", "recv", "run", "send", "top")
        self.assertEqual(set(TABLES), {("ropeway", *c.split()) for c in commands} | {("test_connection",)})
        for (program, *words), table in TABLES.items():
            self.assertTrue(table, words)
            got = ropeway(*words, "--help", program=program)
            told = re.findall(r"(?m)^  (?:-(\w), |    )--([a-z-]+)", got.stdout)
            self.assertEqual(told, [*table, ("h", "help"), ("V", "version")], words)
            self.assertEqual(ropeway(*words, "-h", program=program).stdout, got.stdout)

    def test_an_unknown_option_is_compared_with_those_that_there_are(self):
        for (program, *words), table in TABLES.items():
            for _, name in table:
                wrong = name[0] + name[2] + name[1] + name[3:]
                if wrong == name or wrong in [other for _, other in table]:
                    continue
                self.assert_usage_error(*words, f"--{wrong}=1", says=f"unknown option '--{wrong}': did you mean '--{name}'?\n", program=program)
        self.assert_usage_error("devices", "--json-please", says="did you mean '--json'?")
        self.assert_usage_error("devices", "--quickly", says="unknown option '--quickly'\n")
        self.assert_usage_error("devices", "-x", says="unknown option '-x'\n")
        self.assert_usage_error("perf", "--ver", says="ambiguous option '--ver': '--verify' or '--version'")

    def test_a_bad_value_is_told_with_what_is_expected(self):
        for args, says in ((("perf", "-w", "1025"), "'1025' for --window: expected a number from 1 to 1024\n"), (("perf", "--window= 1"), "' 1' for --window: expected a number from 1"),
                           (("send", "-t", "0", "x", "h"), "'0' for --timeout: expected a number of seconds from 1 to 86400\n"),
                           (("perf", "-d", "1e9"), "'1e9' for --duration: expected a number of seconds from 0.0001 to 3600\n"),
                           (("plugin", "check", "--abi", "v13", "x"), "'v13' for --abi: expected v4 to v12\n"),
                           (("plugin", "check", "--largest", "2G", "x"), "'2G' for --largest: expected a size from 4K to 1G, in bytes or with a suffix K, M or G\n"),
                           (("perf", "-s", "9..8"), "'9..8' for --sizes: expected sizes from 0 to 1G, as in 8,4096,1M or 8..8M\n"),
                           (("perf", "-t", "pigeon"), "'pigeon' for --transport: expected shm, verbs or tcp\n"),
                           (("perf", "-o", "tag,toss"), "'tag,toss' for --ops: expected a list of tag, put, get, am, loan and view; or all\n"),
                           (("run", "--explain=", "true"), "'' for --explain: expected the name of a file\n"),
                           (("recv", "--listen", "7477"), "'7477' for --listen: expected HOST:PORT, [IPV6]:PORT or :PORT, with a port up to 65535\n"),
                           (("plugin", "bench", "x", *["--against=y"] * 4), "'y' for --against: expected the name of a file, at most 3 times\n"),
                           (("run", "--fault", "lose=1", "true"), "'lose=1' for --fault: ")):
            self.assert_usage_error(*args, says=f"ropeway {args[0]}{' ' + args[1] if args[0] == 'plugin' else ''}: invalid value {says}")
        self.assert_usage_error("perf", "--window", says="option '--window' needs a value: a number from 1 to 1024\n")
        self.assert_usage_error("perf", "--json=1", says="option '--json' takes no value, but has one in '--json=1'\n")

    def test_wrong_options_name_the_option(self):
        self.assert_usage_error("devices", "--jsno", says="--jsno")
        self.assert_usage_error("devices", "rpw_lo", says="rpw_lo")
        self.assert_usage_error("demo", "--sizes=1M", says="--sizes")
        self.assert_usage_error("demo", "8M", says="8M")
        self.assert_usage_error("demo", "--size", says="--size")
        self.assert_usage_error("run", says="no program")
        self.assert_usage_error("run", "--stat=1", "true", says="--stat")
        self.assert_usage_error("run", "--pcap", "", "true", says="--pcap")

    def test_wrong_sizes(self):
        for text in ("", "0", "0M", "-1", "+1", " 1", "1.5G", "M", "1X", "1MM", "0x10", "18446744073709551616", "99999999999G"):
            self.assert_usage_error("demo", "--size=" + text, says=f"invalid value '{text}' for --size: expected a size from 1 up")

    def test_wrong_seed(self):
        for text in ("", "-1", "x", "1x"):
            self.assert_usage_error("demo", "--seed=" + text, says=f"invalid value '{text}' for --seed: expected a number")

    def test_a_full_standard_output_is_a_failure(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            got = subprocess.run([BUILD / "ropeway", "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(got.returncode, 1)
        self.assertIn("standard output", got.stderr)


class Run(Case):
    def program(self, name, text, mode=0o755):
        path = self.dir / name
        path.write_text(text, encoding="ascii")
        path.chmod(mode)
        return path

    def test_exit_status_is_the_programs(self):
        for status in (0, 1, 7, 255):
            self.assertEqual(ropeway("run", "--", "sh", "-c", f"exit {status}").returncode, status)
        self.assertEqual(ropeway("run", "sh", "-c", "kill -TERM $$").returncode, -signal.SIGTERM)

    def test_a_stock_program_that_is_missing_is_told_with_its_package(self):
        programs = {"ibv_rc_pingpong": "ibverbs-utils", "ibv_devinfo": "ibverbs-utils", "rping": "rdmacm-utils", "rstream": "rdmacm-utils", "rdma_xserver": "rdmacm-utils", "ucmatose": "rdmacm-utils",
                    "ib_write_lat": "perftest", "ib_send_bw": "perftest", "raw_ethernet_bw": "perftest", "ib_made_up": None, "./rping": None, "rdma": None}
        for program, package in programs.items():
            got = ropeway("run", "--", program, env={**os.environ, "PATH": str(self.dir)})
            self.assertEqual(got.returncode, 127, got)
            self.assertIn(f"{program}: there is no such program", got.stderr)
            self.assertEqual(re.findall(r"apt install (\S+)", got.stderr), [package] if package else [], got.stderr)

    def test_arguments_after_the_program_are_the_programs(self):
        got = ropeway("run", "printf", "%s|", "--stats", "a b", "", "--", "--help")
        self.assertEqual((got.returncode, got.stdout, got.stderr), (0, "--stats|a b||--|--help|", ""))

    def test_standard_streams_go_through(self):
        got = subprocess.run([BUILD / "ropeway", "run", "cat"], input="ping", capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(got.stdout, "ping")

    def test_program_is_not_found(self):
        for name in ("no-such-program-anywhere", "/no/such/program", "./nothing"):
            got = ropeway("run", "--", name, cwd=self.dir)
            self.assertEqual(got.returncode, 127, got)
            self.assertIn(name, got.stderr)
            self.assertEqual(got.stderr.count("\n"), 1)

    def test_program_cannot_be_run(self):
        script = self.program("plain.txt", "no program\n", 0o644)
        got = ropeway("run", "--", script)
        self.assertEqual(got.returncode, 126, got)
        self.assertIn("plain.txt", got.stderr)
        got = ropeway("run", "--", self.dir)
        self.assertEqual(got.returncode, 126, got)

    def test_a_program_that_cannot_be_run_does_not_hide_one_further_down_the_path(self):
        first, second = self.dir / "first", self.dir / "second"
        first.mkdir(), second.mkdir()
        self.program("first/tool", "", 0o644)
        self.program("second/tool", "#!/bin/sh\necho second\n")
        got = ropeway("run", "tool", env={"PATH": f"{first}:{second}:/usr/bin:/bin"})
        self.assertEqual(got.stdout, "second\n", got)

    def environment(self, *options, **env):
        got = ropeway("run", *options, "--", "env", env=env, cwd=self.dir)
        self.assertEqual(got.returncode, 0, got)
        return dict(line.split("=", 1) for line in got.stdout.splitlines() if "=" in line)

    def test_what_the_program_finds_in_its_environment(self):
        env = self.environment()
        self.assertEqual(pathlib.Path(env["LD_PRELOAD"]).name, "libropeway-verbs.so.0")
        self.assertTrue(pathlib.Path(env["LD_PRELOAD"]).is_absolute())
        self.assertEqual(env["ROPEWAY_DEVICES"], "first")
        self.assertNotIn("ROPEWAY_FIRST", env)
        for name in ("ROPEWAY_STATS", "ROPEWAY_PCAP", "ROPEWAY_FAULT"):
            self.assertNotIn(name, env)
        env = self.environment("--stats", "--pcap", "a.pcapng", "--fault", "drop=0.25,seed=3")
        self.assertEqual(env["ROPEWAY_STATS"], "1")
        self.assertEqual(env["ROPEWAY_PCAP"], str(self.dir / "a.pcapng"))
        self.assertEqual(env["ROPEWAY_FAULT"], "drop=0.25,seed=3")

    def test_a_preload_that_is_there_already_stays(self):
        libm = next(pathlib.Path("/lib").glob("*-linux-gnu/libm.so.6"), None)
        if not libm:
            self.skipTest("no libm.so.6 to preload")
        preload = re.split("[: ]", self.environment(LD_PRELOAD=str(libm))["LD_PRELOAD"])
        self.assertIn(str(libm), preload)
        self.assertEqual(sum(p.endswith("libropeway-verbs.so.0") for p in preload), 1)

    def test_the_drop_in_is_preloaded_once_in_a_nested_run(self):
        got = ropeway("run", BUILD / "ropeway", "run", "printenv", "LD_PRELOAD")
        self.assertEqual(got.stdout.count("libropeway-verbs.so"), 1, got)

    def test_in_a_folder_whose_path_the_loader_would_split(self):
        folder = self.dir / "my tree: 2;3"
        folder.mkdir()
        for name in ("ropeway", "libropeway-verbs.so.0", "libropeway.so.0", "ropeway-helper", "src/library/libibverbs.so.1"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(BUILD / name, folder / name)
        lists = "ls /sys/class/infiniband; printenv LD_PRELOAD LD_LIBRARY_PATH"
        got = subprocess.run([folder / "ropeway", "run", "--library", "-d", "lo", "--", "sh", "-c", lists], capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                             env={k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")})
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)
        device, preload, path = got.stdout.splitlines()
        links = [pathlib.Path(preload).parent, pathlib.Path(path)]
        for link in links:
            self.addCleanup(link.unlink)
        self.assertEqual(device, "rpw_lo")
        self.assertEqual([link.resolve() for link in links], [folder, folder / "src/library"])
        # another run, and one within a run, make no other link
        again = subprocess.run([folder / "ropeway", "run", "--", folder / "ropeway", "run", "--", "printenv", "LD_PRELOAD"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual((again.stdout, again.stderr), (preload + "\n", ""), again)

    def test_the_versioned_library_goes_before_what_is_there(self):
        printed = ropeway("run", "--print-library")
        self.assertEqual((printed.returncode, printed.stderr), (0, ""))
        folder = printed.stdout.removesuffix("\n")
        self.assertTrue(pathlib.Path(folder, "libibverbs.so.1").exists())
        self.assertEqual(self.environment("--library", LD_LIBRARY_PATH="/a")["LD_LIBRARY_PATH"], f"{folder}:/a")

    def test_a_wrong_fault_says_what_is_wrong(self):
        for spec in ("drop", "drop=2", "drop=x", "lose=0.1", "drop=0.1,dup", "seed=-1"):
            got = ropeway("run", "--fault", spec, "--", "true")
            self.assertEqual(got.returncode, 2, (spec, got))
            self.assertIn(f"invalid value '{spec}' for --fault: ", got.stderr)

    def test_a_fault_script_is_checked_before_the_program_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "faults")
            script.write_text("# one\nreg_mr 3: ENOMEM\n")
            got = subprocess.run([BUILD / "ropeway", "run", "--fault", "faults", "printenv", "ROPEWAY_FAULT"], cwd=folder, text=True, capture_output=True)
            self.assertEqual((got.returncode, got.stdout), (0, f"{script.resolve()}\n"), got)
            script.write_text("# one\nreg_mr 3: ENOMOM\n")
            for args, env in ((("--fault", str(script)), {}), ((), {"ROPEWAY_FAULT": str(script)})):
                got = subprocess.run([BUILD / "ropeway", "run", *args, "echo", "ran"], text=True, capture_output=True, env=dict(os.environ, **env))
                self.assertEqual((got.returncode, got.stdout), (2, ""), got)
                self.assertIn(f"{script}:2:11: expected an errno, as in ENOMEM, not 'ENOMOM': did you mean ENOMEM?", got.stderr)
            got = ropeway("run", "--fault", "./no=such", "--", "echo", "ran")
            self.assertEqual((got.returncode, got.stdout), (2, ""), got)
            self.assertIn("./no=such: No such file or directory", got.stderr)

    def test_a_capture_that_cannot_be_written_is_said_before_the_program_runs(self):
        got = ropeway("run", "--pcap", "/no/such/folder/x.pcapng", "--", "echo", "ran")
        self.assertEqual((got.returncode, got.stdout), (1, ""), got)
        self.assertIn("/no/such/folder", got.stderr)

    def test_a_static_program_is_warned_of_and_runs(self):
        busybox = shutil.which("busybox")
        if not busybox or b"/ld-linux" in pathlib.Path(busybox).read_bytes():
            self.skipTest("no static program here (busybox-static)")
        got = ropeway("run", "--", busybox, "true")
        self.assertEqual(got.returncode, 0)
        self.assertIn("statically linked", got.stderr)
        self.assertNotIn("warning", ropeway("run", "--", "true").stderr)

    def test_a_set_uid_program_is_warned_of(self):
        if os.geteuid():
            program = shutil.which("su")
            if not program or not os.stat(program).st_mode & 0o4000 or os.stat(program).st_uid == os.geteuid():
                self.skipTest("no set-uid program here")
        else:
            program = self.dir / "true"
            shutil.copy(shutil.which("true"), program)
            os.chown(program, NOBODY, -1)
            program.chmod(0o4755)
        self.assertIn("set-uid", ropeway("run", "--", program, "--version").stderr)


class Devices(Case):
    def devices(self):
        got = ropeway("devices", "--json")
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)
        return json.loads(got.stdout)["devices"]

    def test_json_is_complete_and_consistent(self):
        devices = self.devices()
        self.assertTrue(devices)
        self.assertEqual(len({d["name"] for d in devices}), len(devices))
        for d in devices:
            self.assertEqual(set(d), {"name", "kind", "interface", "address", "state", "mtu", "interface_mtu", "gids", "gid_index", "usable", "reason"})
            self.assertIn(d["kind"], ("software", "hardware"))
            self.assertEqual(d["reason"] is None, d["usable"])
            if d["usable"]:
                self.assertIn(d["gid_index"], [g["index"] for g in d["gids"]])
                self.assertIn(d["mtu"], (256, 512, 1024, 2048, 4096))

    def test_loopback_is_the_last_software_device_and_has_its_address_at_gid_1(self):
        got = ropeway("devices", "--json", env=dict(os.environ, ROPEWAY_DEVICES="all"))
        last = [d for d in json.loads(got.stdout)["devices"] if d["kind"] == "software"][-1]
        self.assertEqual((last["name"], last["interface"], last["address"], last["gid_index"]), ("rpw_lo", "lo", "127.0.0.1", 1))
        self.assertEqual([g["gid"] for g in last["gids"] if g["index"] == 1], ["::ffff:127.0.0.1"])

    def test_what_is_hidden_is_named_with_the_reason(self):
        env = dict(os.environ, ROPEWAY_DEVICES="lo")
        told = json.loads(ropeway("devices", "--json", env=env).stdout)
        self.assertEqual([d["name"] for d in told["devices"] if d["kind"] == "software"], ["rpw_lo"])
        text = ropeway("devices", env=env).stdout
        for d in told["hidden"]:
            self.assertEqual(set(d), {"name", "interface", "reason"})
            self.assertEqual(d["reason"], "ROPEWAY_DEVICES=lo does not name it")
            self.assertIn(f"{d['name']}: software device on {d['interface']}, hidden from programs\n    {d['reason']}\n", text)
        every = json.loads(ropeway("devices", "--json", env=dict(os.environ, ROPEWAY_DEVICES="all")).stdout)
        self.assertEqual(every["hidden"], [])
        self.assertEqual({d["name"] for d in told["devices"] + told["hidden"]}, {d["name"] for d in every["devices"]})

    def test_run_chooses_devices_and_refuses_unknown_names(self):
        got = ropeway("run", "--devices", "lo", "--", "ls", "/sys/class/infiniband")
        self.assertEqual((got.returncode, [d for d in got.stdout.split() if d.startswith("rpw_")], got.stderr), (0, ["rpw_lo"], ""), got)
        got = ropeway("run", "--devices", "lo,nothing0", "--", "true")
        self.assertEqual(got.returncode, 2, got)
        self.assertRegex(got.stderr, "no software device and no interface is called 'nothing0'; there (is|are) .*rpw_lo")
        got = ropeway("run", "--", "ls", "/sys/class/infiniband", env=dict(os.environ, ROPEWAY_DEVICES="nothing0,lo"))
        self.assertEqual((got.returncode, [d for d in got.stdout.split() if d.startswith("rpw_")]), (0, ["rpw_lo"]), got)

    def test_run_puts_words_about_real_devices_together(self):
        for option, variable, want in ((None, "lo", "first,lo"), ("lo", None, "first,lo"), ("software", None, "software"), ("first", None, "first"), ("software,lo", "all", "software,lo"),
                                       ("^x_0", "lo", "first,^x_0"), ("lo", "all,^x_0,^y_1", "first,lo,^x_0,^y_1"), ("lo", "software", "lo,software"), ("lo,first", "software,^x_0", "lo,first"),
                                       ("auto", None, None), (None, "auto,lo", None)):
            env = {k: v for k, v in os.environ.items() if k != "ROPEWAY_DEVICES"} | ({"ROPEWAY_DEVICES": variable} if variable else {})
            got = ropeway("run", *([f"--devices={option}"] if option else []), "--", "printenv", "ROPEWAY_DEVICES", env=env)
            self.assertEqual(got.returncode, 0, got)
            if want:
                self.assertEqual(got.stdout, f"{want}\n", (option, variable))
            self.assertNotIn("auto", got.stdout)
        env["ROPEWAY_DEVICES"] = "^" + "x" * 4200
        got = ropeway("run", "--", "true", env=env)
        self.assertEqual((got.returncode, got.stderr), (2, "ropeway run: the list of devices has more than 4095 characters\n"), got)

    def test_run_says_that_a_device_that_is_named_is_hidden(self):
        env = dict(os.environ, ROPEWAY_DEVICES="none")
        for argument, warns in (("rpw_lo", True), ("--device=rpw_lo:1", True), ("rpw_lo_1", False), ("xrpw_lo", False), ("lo", False)):
            got = ropeway("run", "--", "true", argument, env=env)
            self.assertEqual("ropeway run: warning: rpw_lo is hidden: ROPEWAY_DEVICES=none does not name it\n" in got.stderr, warns, got)
        self.assertEqual(ropeway("run", "--devices", "lo", "--", "true", "rpw_lo").stderr, "")

    def test_the_way_to_peers_on_this_host_is_told(self):
        for wire, way, text in (("udp", "udp", "Peers on this host: UDP"), ("copy", "memory", "payloads copied, since ROPEWAY_WIRE=copy"), ("auto", "memory", "shared memory; ")):
            env = dict(os.environ, ROPEWAY_WIRE=wire)
            told = json.loads(ropeway("devices", "--json", env=env).stdout)["same_host"]
            self.assertEqual(told["way"], way)
            self.assertEqual(told["reason"] is None, told["fetches"])
            self.assertIn(text, ropeway("devices", env=env).stdout)

    def test_text_names_the_same_devices_and_the_gid_to_use(self):
        text = ropeway("devices").stdout
        for d in self.devices():
            self.assertRegex(text, rf"(?m)^{re.escape(d['name'])}: {'software' if d['kind'] == 'software' else 'real'} device")
        text = ropeway("devices", env=dict(os.environ, ROPEWAY_DEVICES="lo")).stdout
        self.assertRegex(text, r"(?m)^    GID 1 +::ffff:127\.0\.0\.1 +RoCE v2  <- use this one$")


class Namespace(Case):
    """In a network namespace of its own, where the test decides what there is. An unprivileged user namespace does."""

    # What runs inside: brings loopback up (or not), holds the port (or not), then runs the command given.
    INSIDE = """
import socket, subprocess, sys
loopback, hold, *command = sys.argv[1:]
if loopback == "up":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
if hold == "hold":
    holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    holder.bind(("127.0.0.1", 4791))
sys.exit(subprocess.run(command, check=False).returncode)
"""

    def setUp(self):
        super().setUp()
        self.unshare = ("unshare", *(() if os.geteuid() == 0 else ("--map-root-user",)), "--net", "--kill-child")
        if not shutil.which("unshare") or not shutil.which("ip") or subprocess.run([*self.unshare, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("no network namespace can be made here")

    def inside(self, loopback, hold, *args):
        return ropeway(*args, cwd=self.dir, wrapper=(*self.unshare, "/usr/bin/python3", "-c", self.INSIDE, loopback, hold))

    def test_loopback_alone_is_enough(self):
        got = self.inside("up", "-", "demo", "--size", "1M", "--no-pcap")
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)

    def test_no_interface_is_up(self):
        got = self.inside("down", "-", "devices", "--json")
        self.assertEqual([d for d in json.loads(got.stdout)["devices"] if d["kind"] == "software" and d["usable"]], [])
        got = self.inside("down", "-", "demo", "--size", "1M")
        self.assertEqual(got.returncode, 1, got)
        self.assertRegex(got.stderr, r"(?m)^ropeway demo: ")

    def test_no_carrier_is_not_down(self):
        links = "ip link add v0 type veth peer name w0 && ip addr add 10.9.0.1/24 dev v0 && ip link set v0 up && ip link set lo up"
        for peer, says, remedy in (("down", "interface v0 is up, but has no carrier", "bring up the other end"), ("up", None, None)):
            script = self.dir / peer
            script.write_text(f"set -e\n{links}\nip link set w0 {peer}\nsleep 0.1\nexec \"$@\"")
            for command in (("devices",), ("doctor",)):
                got = ropeway(*command, cwd=self.dir, wrapper=(*self.unshare, "/bin/sh", script))
                if "Cannot find device" in got.stderr or "not supported" in got.stderr:
                    self.skipTest("this kernel makes no veth pairs")
                self.assertNotIn("ip link set v0 up", got.stdout, got)
                if says:
                    self.assertIn(says, got.stdout, got)
                    if command == ("doctor",):
                        self.assertIn(remedy, got.stdout, got)
                else:
                    self.assertNotIn("v0 is up, but", got.stdout, got)
        script.write_text(f"set -e\n{links}\nip link set v0 down\nexec \"$@\"")
        got = ropeway("devices", cwd=self.dir, wrapper=(*self.unshare, "/bin/sh", script))
        self.assertIn("interface v0 is down: ip link set v0 up", got.stdout, got)

    def test_many_interfaces_are_laid_into_a_mount_namespace(self):
        pairs, script = 32, self.dir / "many"
        script.write_text("\n".join(["set -e", *(f"ip link add v{i} type veth peer name w{i}; ip addr add 10.9.{i}.1/24 dev v{i}; ip link set v{i} up; ip link set w{i} up" for i in range(pairs)),
                                     'exec "$@"']))
        got = ropeway("run", "--namespace", "--", "ls", "/sys/class/infiniband",
                      cwd=self.dir, wrapper=(*self.unshare, "/bin/sh", script))
        if "veth" in got.stderr or "Operation not supported" in got.stderr:
            self.skipTest("this kernel makes no veth pairs")
        if "--namespace:" in got.stderr and "forbids" in got.stderr:
            self.skipTest("no mount namespace can be made here")
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)
        self.assertEqual(len([d for d in got.stdout.split() if d.startswith(("rpw_v", "rpw_w"))]), 2 * pairs)

    def test_who_holds_the_port(self):
        got = self.inside("up", "hold", "devices", "--json")
        self.assertEqual(got.returncode, 0, got)
        (device,) = [d for d in json.loads(got.stdout)["devices"] if d["kind"] == "software"]
        self.assertFalse(device["usable"])
        self.assertRegex(device["reason"], r"4791.*python3.*\d+")
        self.assertEqual(device["gid_index"], 1)
        self.assertIn("CANNOT BE USED", self.inside("up", "hold", "devices").stdout)
        got = self.inside("up", "hold", "demo", "--size", "1M")
        self.assertEqual(got.returncode, 1, got)
        self.assertIn("4791", got.stderr)
        self.assertEqual(list(self.dir.iterdir()), [], "no empty capture is left")


class Demo(Case):
    def demo(self, *args, **kwargs):
        env = {"TMPDIR": str(self.dir / "tmp"), **kwargs.pop("env", {})}
        (self.dir / "tmp").mkdir(exist_ok=True)
        return ropeway("demo", *args, cwd=self.dir, env=env, **kwargs)

    def left_behind(self):
        return sorted(str(p.relative_to(self.dir)) for p in self.dir.rglob("*") if p.is_file())

    def test_moves_verifies_and_leaves_a_capture(self):
        got = self.demo("--size", "8M", "--seed", "5")
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)
        for text in ("seed 5", "RESET -> INIT -> RTR -> RTS", "all 8388608 bytes are the same", "GB/s", "8 RDMA WRITEs of 1 MiB"):
            self.assertIn(text, got.stdout)
        self.assertIn("ropeway-demo.pcapng", "\n".join(got.stdout.splitlines()[-3:]))
        self.assertEqual(self.left_behind(), ["ropeway-demo.pcapng"])

    def test_the_last_line_is_a_command_for_a_shell(self):
        got = self.demo("--size", "1M", "--pcap", "my capture.pcapng")
        self.assertEqual(got.returncode, 0, got)
        last = got.stdout.splitlines()[-1]
        shown = subprocess.run(["sh", "-c", last], cwd=self.dir, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(shown.returncode, 0, (last, shown))
        self.assertIn("</html>", (self.dir / "demo.html").read_text())

    def test_tshark_reads_the_capture_and_finds_the_writes(self):
        if not shutil.which("tshark"):
            self.skipTest("no tshark")
        self.assertEqual(self.demo("--size", "2M", "--pcap", "x.pcapng").returncode, 0)
        out = subprocess.run(["tshark", "-r", self.dir / "x.pcapng", "-T", "fields", "-e", "infiniband.bth.opcode", "-e", "_ws.malformed", "-e", "infiniband.bth.psn"],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=TIMEOUT_S, check=True).stdout
        rows = [line.split("\t") for line in out.splitlines()]
        self.assertEqual([r for r in rows if len(r) > 1 and r[1]], [])
        # A machine that is busy has packets sent twice: each PSN counts once.
        opcodes = [int(opcode) for opcode, _ in dict.fromkeys((r[0], r[2]) for r in rows)]
        self.assertEqual(opcodes[0], 0x06, "the first packet is an RC RDMA WRITE FIRST")
        self.assertEqual(opcodes.count(0x06), 2, "one FIRST for each MiB")
        self.assertEqual((opcodes.count(0x08), opcodes.count(0x09)), (1, 1), "the last WRITE carries the immediate")
        self.assertIn(0x11, opcodes, "acknowledgements are in it too")

    def test_sizes_that_are_no_multiple_of_anything(self):
        for size in ("1", "4095", "1048577", "3145727"):
            got = self.demo("--size", size, "--no-pcap")
            self.assertEqual(got.returncode, 0, got)
            self.assertIn(f"all {size} bytes are the same", got.stdout)
        self.assertEqual(self.left_behind(), [])

    def test_the_seed_decides_the_contents_and_keep_keeps_them(self):
        sums = []
        for seed in ("7", "7", "8"):
            got = self.demo("--size", "64K", "--no-pcap", "--keep", "--seed", seed)
            sent, received = re.search(r"Kept: (\S+) and (\S+)", got.stdout).groups()
            data = pathlib.Path(sent).read_bytes()
            self.assertEqual(len(data), 65536)
            self.assertEqual(data, pathlib.Path(received).read_bytes())
            self.assertEqual(len({data[i:i + 8] for i in range(0, len(data), 8)}), 8192, "no 8 bytes of the file repeat")
            sums.append(data)
        self.assertEqual(sums[0], sums[1])
        self.assertNotEqual(sums[0], sums[2])

    def test_arrives_whole_where_packets_are_lost(self):
        got = self.demo("--size", "2M", "--no-pcap", env={"ROPEWAY_FAULT": "drop=0.02,dup=0.02,reorder=0.02,seed=11"})
        self.assertEqual(got.returncode, 0, got)
        self.assertIn("all 2097152 bytes are the same", got.stdout)
        self.assertIn("ROPEWAY_FAULT is set", got.stdout)

    def test_no_such_device(self):
        got = self.demo("--size", "1M", "--device", "rpw_none0")
        self.assertEqual(got.returncode, 1, got)
        self.assertIn("there is no device 'rpw_none0'", got.stderr)

    def test_no_room(self):
        got = self.demo("--size", "1000000T")
        self.assertEqual(got.returncode, 1, got)
        self.assertRegex(got.stderr, r"free; .* are needed")
        self.assertIn("--size", got.stderr)

    def test_a_capture_that_cannot_be_written(self):
        got = self.demo("--size", "1M", "--pcap", "/no/such/folder/x.pcapng")
        self.assertEqual(got.returncode, 1, got)
        self.assertIn("/no/such/folder/x.pcapng", got.stderr)

    def in_the_middle(self, action):
        """Starts a demo whose packets are slow, calls action(the demo, pids by role) once data is under way; returns the demo's exit status and messages."""
        env = dict(os.environ, TMPDIR=str(self.dir), ROPEWAY_FAULT="delay=20")
        with subprocess.Popen([BUILD / "ropeway", "demo", "--size", "256M", "--no-pcap"], env=env, cwd=self.dir, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as demo:
            pids = {}
            for line in demo.stdout:
                opened = re.match(r"  (receiver|sender) +pid (\d+) opened", line)
                if opened:
                    pids[opened.group(1)] = int(opened.group(2))
                if "RDMA WRITE" in line and "posts" in line:
                    action(demo, pids)
                    break
            _, err = demo.communicate(timeout=TIMEOUT_S)
            return demo.returncode, err

    def test_a_killed_peer_is_said_and_nothing_is_left(self):
        for role, survivor in (("receiver", "sender"), ("sender", "receiver")):
            status, err = self.in_the_middle(lambda _, pids, role=role: os.kill(pids[role], signal.SIGKILL))
            self.assertEqual(status, 1, err)
            self.assertIn(f"the {role} was killed by signal 9", err)
            self.assertRegex(err, rf"(?m)^ropeway demo: {survivor}: ", "the other one says what it saw")
            self.assertEqual(self.left_behind(), [])

    def test_nothing_outlives_a_killed_demo(self):
        seen = {}

        def kill_all_but_peers(demo, pids):
            seen.update(pids)
            demo.kill()

        status, _ = self.in_the_middle(kill_all_but_peers)  # communicate() inside returns when the peers have closed their standard error
        self.assertEqual(status, -signal.SIGKILL)
        self.assertEqual(len(seen), 2)
        for role, pid in seen.items():
            for _ in range(100):
                if not pathlib.Path(f"/proc/{pid}/exe").exists():
                    break
                time.sleep(0.1)
            self.assertFalse(pathlib.Path(f"/proc/{pid}/exe").exists(), f"the {role} is still there")
        self.assertEqual(self.left_behind(), [])

    def test_an_unprivileged_user_in_a_folder_of_somebody_else(self):
        if os.geteuid():
            self.skipTest("the other tests have shown it: this user is not root")
        if not shutil.which("setpriv"):
            self.skipTest("no setpriv")
        wrapper = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all")
        if subprocess.run([*wrapper, "test", "-x", BUILD / "ropeway"], check=False).returncode:
            self.skipTest(f"an unprivileged user cannot reach {BUILD}")
        self.dir.chmod(0o755)
        (self.dir / "tmp").mkdir()
        (self.dir / "tmp").chmod(0o777)
        got = self.demo("--size", "3M", wrapper=wrapper)
        self.assertEqual((got.returncode, got.stderr), (0, ""), got)
        capture = re.search(r"explain (\S+\.pcapng) -o demo.html", got.stdout).group(1)
        self.assertEqual(pathlib.Path(capture).parent, self.dir / "tmp")


def main():
    global BUILD
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(globals()[sys.argv[2]])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    for test, why in result.skipped:
        print(f"SKIPPED {test}: {why}", file=sys.stderr)
    if not result.wasSuccessful():
        return 1
    return 77 if result.testsRun and len(result.skipped) == result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
