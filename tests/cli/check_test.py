#!/usr/bin/python3
"""`ropeway check` of reports that are made here, and `ropeway run --check` of programs that write into their report what the checker would: functions and lines of source, counts, suppression, SARIF, exit statuses, signals.

Usage: check_test.py BUILD_DIR TEST_CLASS, or check_test.py --fetch, which script/test does first: its stages have no way out. TEST_SEED and TEST_ROUNDS choose what Hostile does.
"""
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path(".")
SOURCE = pathlib.Path(__file__).resolve().parent / "check"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "ropeway")
TIMEOUT_S, FETCH_S = 120, 30
# SARIF's schema as OASIS has it, in a package of Microsoft's (MIT).
SCHEMA = "@microsoft/jest-sarif@1.0.0-beta.0"
SCHEMA_FILE = "package/lib/schemas/sarif-2.1.0-rtm.5.json"
SCHEMA_SHA256 = "2d99159ae54a3eea97f81781cff48780548657c35949f4b7f25e99a2ba4de4f8"


def ropeway(*args, **kwargs):
    """Runs the command to its end; both streams as text."""
    kwargs = {"stdin": subprocess.DEVNULL, **kwargs}
    return subprocess.run([BUILD / "ropeway", *map(str, args)], text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False, **kwargs)


def begin(pid=4711, program="/usr/bin/server", t=1000):
    return {"kind": "begin", "pid": pid, "ppid": 1, "program": program, "t": t}


def frame(module, offset):
    return {"module": str(module), "offset": hex(offset)}


def finding(pid=4711, number=1, rule="buffer-reposted", sites=(("posted here", (("/nowhere/server", 0x1234),)),), **more):
    return {"kind": "finding", "pid": pid, "tid": pid, "t": 2000, "id": number, "rule": rule, "number": 0, "severity": "error", "text": "4096 bytes belong to wr_id 6",
            "sites": [{"what": what, "frames": [frame(*f) for f in frames]} for what, frames in sites], **more}


def again(count, pid=4711, number=1):
    return {"kind": "again", "pid": pid, "id": number, "count": count}


def end(pid=4711, unwatched=""):
    return {"kind": "end", "pid": pid, "t": 9_000_000, "findings": 1, "unwatched": unwatched}


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ropeway-check-test-")).resolve()
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def report(self, *lines, name="report.jsonl"):
        path = self.dir / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return path

    def check(self, *args, says=0, **kwargs):
        got = ropeway("check", *args, cwd=self.dir, **kwargs)
        self.assertEqual(got.returncode, says, got)
        return got.stdout

    def assert_in_order(self, text, *parts):
        at = 0
        for part in parts:
            self.assertIn(part, text[at:])
            at = text.index(part, at) + len(part)


# ---- functions and lines of source ----

class Symbols(Case):
    def build(self, compiler, source, *flags):
        """A program that reports its own call sites; its report."""
        shutil.copy(SOURCE / source, self.dir)
        shutil.copy(SOURCE / "record.h", self.dir)
        made = "program"
        subprocess.run(["gcc", "-O2", "-fno-omit-frame-pointer", "-c", SOURCE / "record.c", "-o", self.dir / "record.o"], check=True)
        if compiler == "rustc":
            words = ["env", "RUSTC_BOOTSTRAP=1", compiler, "-O", "-Zunstable-options", "-Cforce-frame-pointers=yes", "-Clink-arg=record.o", *flags, source, "-o", made]
        else:
            words = [compiler, "-O2", "-fno-omit-frame-pointer", *flags, source, "record.o", "-o", made]
        subprocess.run(words, cwd=self.dir, check=True, timeout=TIMEOUT_S)
        (self.dir / "r").write_text(subprocess.run([self.dir / made], check=True, capture_output=True, text=True).stdout)
        return self.dir / "r"

    def line(self, source, words):
        """The number of the line that says so behind it."""
        return next(n for n, line in enumerate((self.dir / source).read_text().splitlines(), 1) if f"line of {words}" in line and "by" not in line)

    def frames(self, report):
        text = self.check(report)
        return [line.strip() for line in text.split("posted here\n")[1].split("  on a NIC")[0].splitlines()], text

    def test_an_inlined_function_is_shown_with_the_one_that_it_is_in(self):
        for compiler in ("gcc", "clang"):
            for flags in (["-g"], ["-gdwarf-4"], ["-g", "-no-pie"], ["-g", "-fuse-ld=gold"]):
                if compiler == "clang" and flags[-1] == "-fuse-ld=gold":
                    continue
                with self.subTest(compiler=compiler, flags=flags):
                    report = self.build(compiler, "sites.c", *flags)
                    frames, text = self.frames(report)
                    self.assertEqual(frames, [f"#0 ring_put at sites.c:{self.line('sites.c', 'ring_put')} (inlined)", f"send_loop at sites.c:{self.line('sites.c', 'send_loop')}",
                                              f"#1 main at sites.c:{self.line('sites.c', 'main')}"])
                    self.assertNotIn("debug information", text)

    def test_the_c_librarys_own_start_is_not_shown(self):
        """Where its debug information is installed it has lines, and the program has none."""
        frames, _ = self.frames(self.build("gcc", "sites.c", "-g", "-Dmain=__libc_start_call_main", "-Wl,--defsym=main=__libc_start_call_main"))
        self.assertEqual([frame.split()[-4 if "inlined" in frame else -3] for frame in frames], ["ring_put", "send_loop"])

    def test_a_program_elsewhere_has_its_sources_whole_names(self):
        report = self.build("gcc", "sites.c", "-g")
        text = subprocess.run([BUILD / "ropeway", "check", report], cwd="/", capture_output=True, text=True, check=True).stdout
        self.assertIn(f"#1 main at {self.dir}/sites.c:", text)

    def test_a_source_in_another_folder_than_the_compiler_ran_in(self):
        (self.dir / "src").mkdir()
        (self.dir / "build").mkdir()
        self.build("gcc", "sites.c", "-g")
        for name in ("sites.c", "record.h"):
            (self.dir / name).rename(self.dir / "src" / name)
        subprocess.run(["gcc", "-O2", "-g", "-fno-omit-frame-pointer", "../src/./sites.c", "../record.o", "-o", "p"], cwd=self.dir / "build", check=True)
        (self.dir / "r").write_text(subprocess.run([self.dir / "build/p"], check=True, capture_output=True, text=True).stdout)
        self.assertIn("#1 main at src/sites.c:", self.check("r"))

    def test_without_debug_information_functions_are_known_and_why_lines_are_not(self):
        frames, text = self.frames(self.build("gcc", "sites.c"))
        self.assertRegex(frames[0], r"^#0 send_loop in program\+0x[0-9a-f]+$")
        self.assertRegex(frames[1], r"^#1 main in program\+0x[0-9a-f]+$")
        self.assertIn("program has no debug information", " ".join(text.split()))

    def test_a_stripped_program_has_addresses_that_addr2line_knows(self):
        report = self.build("gcc", "sites.c", "-g")
        whole = self.dir / "whole"
        shutil.copy(self.dir / "program", whole)
        subprocess.run(["strip", self.dir / "program"], check=True)
        frames, text = self.frames(report)
        for got, function in zip(frames, ("ring_put", "main")):
            address = re.fullmatch(r"#\d program\+(0x[0-9a-f]+)", got)[1]
            said = subprocess.run(["addr2line", "-f", "-e", whole, hex(int(address, 16) - 1)], check=True, capture_output=True, text=True).stdout
            self.assertEqual(said.splitlines()[0], function)
        self.assertIn("no debug information", text)

    def test_debug_information_in_a_file_of_its_own(self):
        report = self.build("gcc", "sites.c", "-g")
        subprocess.run("objcopy --only-keep-debug program program.debug && strip program && objcopy --add-gnu-debuglink=program.debug program", shell=True, cwd=self.dir, check=True)
        self.assertIn(f"#1 main at sites.c:{self.line('sites.c', 'main')}", self.check(report))

    def test_cpp(self):
        frames, _ = self.frames(self.build("g++", "sites.cpp", "-g"))
        self.assertEqual(frames, [f"#0 net::Queue<int>::post at sites.cpp:{self.line('sites.cpp', 'post')}", f"#1 main at sites.cpp:{self.line('sites.cpp', 'main')}"])
        frames, _ = self.frames(self.build("g++", "sites.cpp"))
        self.assertRegex(frames[0], r"^#0 net::Queue<int>::post in program\+0x")

    def test_rust(self):
        if not shutil.which("rustc"):
            self.skipTest("no rustc here")
        frames, _ = self.frames(self.build("rustc", "sites.rs", "-g", "-Csymbol-mangling-version=legacy"))
        self.assertEqual(frames, [f"#0 sites::net::Queue<T>::post at sites.rs:{self.line('sites.rs', 'post')}", f"#1 sites::main at sites.rs:{self.line('sites.rs', 'main')}"])
        frames, _ = self.frames(self.build("rustc", "sites.rs", "-Csymbol-mangling-version=legacy"))
        self.assertRegex(frames[0], r"^#0 sites::net::Queue<T>::post in program\+0x")
        # The newer names have no decoder here: their plain names, by the debug information.
        frames, _ = self.frames(self.build("rustc", "sites.rs", "-g", "-Csymbol-mangling-version=v0"))
        self.assertEqual(frames[0], f"#0 post<u32> at sites.rs:{self.line('sites.rs', 'post')}")

    def test_a_module_that_is_no_program(self):
        os.mkfifo(self.dir / "fifo")
        (self.dir / "text").write_text("no program")
        for name, why in (("fifo", "Invalid argument"), ("text", "cannot be read"), ("gone", "No such file"), (".", "Invalid argument")):
            with self.subTest(name):
                text = self.check(self.report(begin(), finding(sites=[("posted here", [(self.dir / name, 0x1234)])]), end()))
                self.assertRegex(text, r"#0 \S+\+0x1234\n")
                self.assertIn(why, " ".join(text.split()))

    def test_an_offset_beyond_the_module(self):
        self.build("gcc", "sites.c", "-g")
        for offset in (0, 1, 1 << 40, (1 << 64) - 1):
            text = self.check(self.report(begin(), finding(sites=[("posted here", [(self.dir / "program", offset)])]), end()))
            self.assertIn(f"#0 program+{hex(offset)}\n", text)

    def test_a_module_that_is_newer_than_the_report_is_told(self):
        report = self.build("gcc", "sites.c", "-g")
        os.utime(report, (1, 1))
        self.assertIn("program is newer than the report", " ".join(self.check(report).split()))

    def test_without_libdw_frames_are_offsets_and_it_is_said_what_is_missing(self):
        report = self.build("gcc", "sites.c", "-g")
        (self.dir / "lib").mkdir()
        (self.dir / "lib/libdw.so.1").write_text("")
        text = self.check(report, env=dict(os.environ, LD_LIBRARY_PATH=str(self.dir / "lib")))
        self.assertRegex(text, r"#0 program\+0x[0-9a-f]+\n +#1 program\+0x")
        self.assertIn("functions and lines of source are not shown", " ".join(text.split()))
        self.assertIn("libdw1", text)

    def test_no_server_is_asked_for_debug_information(self):
        """Where DEBUGINFOD_URLS is set, elfutils would."""
        report = self.build("gcc", "sites.c")
        got = subprocess.run(["strace", "-f", "-e", "trace=%network", BUILD / "ropeway", "check", report], env=dict(os.environ, DEBUGINFOD_URLS="http://127.0.0.1:9/", ASAN_OPTIONS="detect_leaks=0"),
                             capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        self.assertNotIn("AF_INET", got.stderr)


# ---- reports ----

class Report(Case):
    def test_what_is_found_again_is_counted_and_not_repeated(self):
        text = self.check(self.report(begin(), finding(), again(2), again(4), again(7), end()))
        self.assertEqual(text.count("error 103 buffer-reposted: server, process 4711, 7 times\n"), 1)
        self.assertIn("ropeway: 1 error in 1 process, found 7 times\n", text)
        self.assertRegex(text, r"\n  error   103 buffer-reposted +7 times  /nowhere/server\+0x1234\n")

    def test_the_same_of_several_processes_is_one_kind(self):
        lines = [line for pid in range(1, 5) for line in (begin(pid), finding(pid), again(2, pid), end(pid))]
        other = [begin(9, "/usr/bin/client"), finding(9, sites=[("posted here", [("/nowhere/client", 0x99)])]), finding(9, 2, "recv-late", []), finding(9, 3, "wr-id-twice", []), end(9)]
        text = self.check(self.report(*lines, *other))
        self.assertIn("process 1, 8 times", text)
        self.assertIn("ropeway: 2 errors, 1 warning, 1 note in 5 processes, found 10 times\n", text)

    def test_a_process_that_executes_another_program_begins_anew(self):
        text = self.check(self.report(begin(program="/bin/sh"), finding(), again(3), begin(program="/usr/bin/client"), finding(sites=[("here", [("/nowhere/client", 1)])]), again(5), end()))
        self.assertIn("error 103 buffer-reposted: sh, process 4711, 3 times", text)
        self.assertIn("error 103 buffer-reposted: client, process 4711, 5 times", text)

    def test_several_reports_are_one(self):
        a, b = self.report(begin(1), finding(1), end(1), name="a"), self.report(begin(2), finding(2), again(2, 2), end(2), name="b")
        self.assertIn("1 error in 2 processes, found 3 times", self.check(a, b))
        with open(a, "rb") as f:
            self.assertIn("1 error in 1 process\n", self.check("-", stdin=f))

    def test_a_line_that_was_cut_off_costs_only_itself(self):
        whole = self.report(begin(), finding(), finding(number=2, rule="recv-late", sites=[]))
        text = whole.read_text()
        whole.write_text(text[:-20])
        said = self.check(whole)
        self.assertIn("1 error in 1 process\n", said)
        self.assertIn("1 line of the report cannot be read", said)

    def test_what_this_version_does_not_know_is_counted(self):
        said = self.check(self.report(begin(), finding(rule="later-rule"), {"kind": "cut", "pid": 4711}, {"kind": "later"}, end()))
        self.assertIn("no error, no warning in 1 process", said)
        self.assertIn("1 finding of rules that this version does not know", said)
        self.assertIn("1 finding was too long for the report", said)
        self.assertIn("1 line of the report cannot be read", said)

    def test_a_row_that_would_be_too_wide_has_no_folder(self):
        for module, shown in (("/opt/lib/libucp.so.0", "/opt/lib/libucp.so.0+0x10"), ("/usr/lib/x86_64-linux-gnu/librdmacm.so.1", "librdmacm.so.1+0x10")):
            said = self.check(self.report(begin(), finding(sites=[("here", [(module, 0x10)])]), end()))
            self.assertIn(f"#0 {module}+0x10\n", said)
            self.assertRegex(said, rf"\n  error   103 buffer-reposted +1 time  {re.escape(shown)}\n")

    def test_what_was_not_watched_is_the_last_line_and_said_once(self):
        said = self.check(self.report(begin(1), end(1, "free is not watched"), begin(2), end(2, "free is not watched")))
        self.assertEqual(said.count("free is not watched"), 1)
        self.assertTrue(said.endswith("ropeway: free is not watched\n"))

    def test_no_report_is_an_error(self):
        for name, text in (("empty", ""), ("text", "hello\n"), ("list", "[1]\n7\nnull\n")):
            path = self.dir / name
            path.write_text(text)
            got = ropeway("check", path)
            self.assertEqual((got.returncode, got.stdout), (1, ""))
            self.assertIn("is no report of the checker", got.stderr)
        got = ropeway("check", self.dir / "gone")
        self.assertEqual(got.returncode, 1)
        self.assertIn("No such file", got.stderr)
        self.assertEqual(ropeway("check").returncode, 2)

    def test_the_exit_status_is_asked_for(self):
        error, note, clean = (self.report(begin(), *([finding(rule=rule)] if rule else []), end(), name=f"{rule}") for rule in ("recv-late", "wr-id-twice", None))
        self.check(error, note, clean)
        self.check(error, "--exitcode", 86, says=86)
        self.check(note, "--exitcode", 86)
        self.check(clean, "--exitcode", 86)

    def test_lines_fit_a_terminal_of_80_columns(self):
        said = self.check(self.report(begin(), finding(text="word " * 80, peer="peer " * 80, qp={"qpn": 17, "type": "RC", "state": "RTS", "peer_qpn": 18}, wr={"id": str(2**64 - 1), "op": "RDMA_WRITE_WITH_IMM"},
                                                       memory={"addr": "0x7f0000000000", "len": 1 << 40, "key": "0x12345678"}), end(unwatched="word " * 40)))
        self.assertLessEqual(max(map(len, said.splitlines())), 80)
        self.assertIn("RDMA_WRITE_WITH_IMM with wr_id 18446744073709551615", " ".join(said.split()))

    def test_color_only_where_it_is_wanted(self):
        report = self.report(begin(), finding(), end())
        self.assertNotIn("\x1b", self.check(report))
        self.assertIn("\x1b[1;31merror 103 buffer-reposted\x1b[0m", self.check(report, "--color", "always"))

    def test_the_first_cause_is_told_from_both_ends(self):
        lines = [begin(1, "/usr/bin/server"), begin(2, "/usr/bin/client"),
                 {"kind": "event", "pid": 2, "t": 3_500_000, "what": "recv-flushed", "qpn": 18, "peer_qpn": 17, "text": "the RECV with wr_id 7 was flushed"},
                 {"kind": "event", "pid": 1, "t": 3_000_000, "what": "disconnect", "qpn": 17, "peer_qpn": 18, "text": "called rdma_disconnect", "sites": [{"what": "called here", "frames": [frame("/nowhere/server", 0x77)]}]},
                 end(1), end(2)]
        said = self.check(self.report(*lines))
        self.assert_in_order(" ".join(said.split()), "note 301 first-cause: server, process 1", "server (pid 1) sent nothing and called rdma_disconnect; client (pid 2): the RECV with wr_id 7 was flushed by that", "first, here #0 /nowhere/server+0x77")
        self.assertIn("no error, no warning, 1 note in 2 processes", said)
        self.assertNotIn("first-cause", self.check(self.report(*lines[:2], lines[3], *lines[4:])))

    def test_a_handle_that_changed_between_two_processes_is_told_and_no_other(self):
        def event(pid, what, one, two):
            return {"kind": "event", "pid": pid, "t": 2000 + pid, "what": f"handle-{what}", "qpn": 0, "peer_qpn": 0, "text": f"v8 {one:016x} {two:016x}", "sites": [{"what": "called here", "frames": [frame("/nowhere/rank", pid)]}]}
        given = [begin(1), begin(2), begin(3), event(1, "given", 0x11, 0xaa), event(2, "given", 0x22, 0xaa)]
        said = " ".join(self.check(self.report(*given, event(3, "used", 0x11, 0xaa), event(3, "used", 0x22, 0xbb), end(1), end(2), end(3))).split())
        self.assert_in_order(said, "error 502 plugin-handle: server, process 3", "bytes 64 to 127 of the handle are not those that listen gave in process 2", "connect is called here", "listen gave it here")
        self.assertIn("1 error", said)
        for others in (([event(3, "used", 0x11, 0xaa), event(3, "used", 0x33, 0xaa)], "the half that all share says nothing"),
                       ([event(3, "used", 0x11, 0xaa), event(3, "used", 0x11, 0xbb)], "that handle has arrived: plugins change it from call to call"),
                       ([event(3, "used", 0x44, 0xcc)], "of a process that was not traced")):
            self.assertNotIn("plugin-handle", self.check(self.report(*given, *others[0], end(1), end(2), end(3))), others[1])
        alone = [begin(1), begin(3), event(1, "given", 0x11, 0xaa), event(3, "used", 0x11, 0xbb), end(1), end(3)]
        self.assertNotIn("plugin-handle", self.check(self.report(*alone)), "with one handle, nothing tells what a half of it says")


class Suppress(Case):
    def suppressed(self, *lines, kinds=1):
        (self.dir / "s").write_text("".join(line + "\n" for line in lines))
        report = self.report(begin(), finding(sites=[("here", [("/opt/lib/libucp.so.0", 0x10), ("/opt/bin/app", 0x20)])]), end())
        said = self.check(report, "--suppress", "s", "--exitcode", 86, says=86 if kinds else 0)
        self.assertEqual("buffer-reposted" in said, bool(kinds))
        if not kinds:
            self.assertIn("(1 suppressed)", said)

    def test_by_module_and_program_rule_and_number(self):
        for line in ("buffer-reposted:libucp*", "103:libucp.so.0", "*:*/libucp.so*", "buffer-reposted:/opt/bin/app", "103:server", "  103:server  # known", "103:*"):
            with self.subTest(line):
                self.suppressed("# first", "", "recv-late:*", line, kinds=0)
        for line in ("recv-late:*", "103:ucp", "103:libuct*", "104:server", "103:Server"):
            with self.subTest(line):
                self.suppressed(line, kinds=1)

    def test_by_function_and_source_file(self):
        symbols = Symbols()
        symbols.setUp()
        self.addCleanup(symbols.doCleanups)
        report = symbols.build("gcc", "sites.c", "-g")
        for glob, gone in (("ring_put", True), ("send_*", True), ("main", True), ("sites.c", True), ("*/sites.c", True), ("sites", False), ("other", False)):
            (self.dir / "s").write_text(f"buffer-reposted:{glob}\n")
            self.assertEqual("(1 suppressed)" in self.check(report, "--suppress", "s"), gone, glob)

    def test_a_mistake_is_told_with_its_line(self):
        report = self.report(begin(), end())
        for text, why in (("\nrecv-lat:*\n", "s:2: unknown rule 'recv-lat': did you mean 'recv-late'?"), ("hello\n", "s:1: expected RULE:GLOB, not 'hello'"), ("103:\n", "s:1: expected RULE:GLOB, not '103:'")):
            (self.dir / "s").write_text(text)
            got = ropeway("check", report, "--suppress", "s", cwd=self.dir)
            self.assertEqual(got.returncode, 2)
            self.assertIn(why, got.stderr)
        got = ropeway("check", report, "--suppress", "gone", cwd=self.dir)
        self.assertIn("gone: No such file", got.stderr)


# ---- for programs ----

def fetch_schema(path):
    """None, or why not."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            got = subprocess.run(["npm", "pack", "--fetch-retries=0", SCHEMA], cwd=folder, check=False, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=FETCH_S)
            if got.returncode:
                return (re.findall(r"request to .*|code \w+", got.stderr) or [f"exit status {got.returncode}"])[-1]
            subprocess.run(f"tar -xzf *.tgz {SCHEMA_FILE}", shell=True, cwd=folder, check=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(pathlib.Path(folder, SCHEMA_FILE), path)
        except (OSError, subprocess.TimeoutExpired) as e:
            return str(e)
    return None


def schema():
    """SARIF's, from npm, fetched once for each machine and known by its hash; or None and why."""
    path = CACHE / "sarif" / SCHEMA_SHA256
    if not path.exists():
        why = fetch_schema(path) if shutil.which("npm") else "it is not installed"
        if why:
            return None, f"npm cannot fetch SARIF's schema: {why}"
    text = path.read_bytes()
    if hashlib.sha256(text).hexdigest() != SCHEMA_SHA256:
        raise ValueError(f"{path} is not the schema that was looked at")
    return json.loads(text), None


class Programs(Case):
    def validate(self, document):
        try:
            import jsonschema
        except ImportError:
            self.skipTest("python3-jsonschema is not installed")
        rules, why = schema()
        if not rules:
            self.skipTest(why)
        wrong = [f"{e.json_path if hasattr(e, 'json_path') else list(e.path)}: {e.message[:200]}" for e in jsonschema.Draft4Validator(rules).iter_errors(document)]
        self.assertEqual(wrong, [])

    def sarif(self, *args):
        return json.loads(self.check(*args, "--format", "sarif"))

    def symbols(self):
        symbols = Symbols()
        symbols.setUp()
        self.addCleanup(symbols.doCleanups)
        return symbols

    def test_sarif_is_valid(self):
        symbols = self.symbols()
        built = symbols.build("gcc", "sites.c", "-g")
        odd = self.report(begin(program="/opt/a b/ü#1?.bin"), finding(sites=[("here", [("/opt/a b/ü#1?.so", 5)])]), finding(number=2, rule="recv-late", sites=[]), finding(number=3, rule="wr-id-twice", sites=[("here", [])]),
                          finding(number=4, rule="race", sites=[(what, [("/nowhere/x", 5), ("", 2**47)]) for what in ("first", "second", "third")], peer="p"), again(2**32 - 1), end())
        for document in (self.sarif(built), self.sarif(odd), self.sarif(built, odd)):
            self.validate(document)
        uris = [r["locations"][0]["physicalLocation"].get("artifactLocation", {}).get("uri") for r in self.sarif(odd)["runs"][0]["results"][:2]]
        self.assertEqual(uris, ["file:///opt/a%20b/%C3%BC%231%3F.so", "file:///opt/a%20b/%C3%BC%231%3F.bin"])
        self.validate(self.sarif(self.report(begin(), end())))
        with self.assertRaises(AssertionError):
            self.validate({"version": "2.1.0", "runs": [{"tool": {}}]})

    def test_sarif_says_where_what_and_how_often(self):
        symbols = self.symbols()
        built = symbols.build("gcc", "sites.c", "-g")
        document = json.loads(subprocess.run([BUILD / "ropeway", "check", "-f", "sarif", built], cwd=symbols.dir, capture_output=True, text=True, check=True).stdout)
        run, = document["runs"]
        result, = run["results"]
        rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
        self.assertEqual((rule["id"], rule["name"], rule["defaultConfiguration"]["level"]), ("RPW103", "buffer-reposted", "error"))
        self.assertEqual((result["ruleId"], result["level"], result["occurrenceCount"]), ("RPW103", "error", 1))
        self.assertIn("belong to the SEND with wr_id 6", result["message"]["text"])
        where, = result["locations"]
        self.assertEqual(where["physicalLocation"], {"artifactLocation": {"uri": "sites.c", "uriBaseId": "%SRCROOT%"}, "region": {"startLine": symbols.line("sites.c", "ring_put")}})
        self.assertEqual(run["originalUriBaseIds"]["%SRCROOT%"]["uri"], f"file://{symbols.dir}/")
        self.assertEqual(where["logicalLocations"][0]["fullyQualifiedName"], "ring_put")
        self.assertEqual([f["location"]["logicalLocations"][0]["fullyQualifiedName"] for f in result["stacks"][0]["frames"]], ["ring_put", "send_loop", "main"])

    def flow(self, *order):
        """The texts of the steps of a finding whose second and third site have that order."""
        line = finding(sites=[(what, [("/nowhere/server", at)]) for at, what in enumerate(("first", "second", "third")[:len(order) + 1], 16)])
        for site, when in zip(line["sites"][1:], order):
            site.update({"when": when} if when else {})
        document = self.sarif(self.report(begin(), line, end()))
        self.validate(document)
        result, = document["runs"][0]["results"]
        flows = [thread["locations"] for flow in result.get("codeFlows", ()) for thread in flow["threadFlows"]]
        for steps in flows:
            self.assertEqual([step["executionOrder"] for step in steps], list(range(1, len(steps) + 1)))
        return [[step["location"]["message"]["text"] for step in steps] for steps in flows]

    def test_sarif_has_the_call_sites_in_the_order_of_the_calls(self):
        self.assertEqual(self.flow(), [])
        self.assertEqual(self.flow("before"), [["second", "first"]])
        self.assertEqual(self.flow("after"), [["first", "second"]])
        self.assertEqual(self.flow("before", "before"), [["third", "second", "first"]])
        self.assertEqual(self.flow("before", "after"), [["second", "first", "third"]])
        self.assertEqual(self.flow(None, "after"), [["first", "third"]])
        for unknown in (None, "", "later"):
            self.assertEqual(self.flow(unknown), [])

    def test_sarif_has_every_rule_and_every_finding_a_place(self):
        names = re.findall(r"\{(\d+), \"([a-z0-9-]+)\"", (SOURCE.parents[2] / "src/check/rules.c").read_text())
        report = self.report(begin(), *[finding(number=n, rule=name, sites=[("here", [("/nowhere/x", n)])] if n % 2 else []) for n, (_, name) in enumerate(names, 1)], end())
        run, = self.sarif(report)["runs"]
        self.assertEqual([r["id"] for r in run["tool"]["driver"]["rules"]], [f"RPW{number}" for number, _ in names])
        self.assertGreater(len(names), 40)
        self.assertEqual([r["ruleId"] for r in run["results"]], [f"RPW{number}" for number, _ in names])
        for result in run["results"]:
            self.assertEqual(len(result["locations"]), 1)
        self.assertEqual(len({r["partialFingerprints"]["ropewayCall/v1"] for r in run["results"]}), len(names))

    def test_a_fingerprint_stays_where_lines_move(self):
        found = []
        for before in ("", "/* three\n * more\n * lines */\n"):
            symbols = self.symbols()
            text = (SOURCE / "sites.c").read_text()
            symbols.build("gcc", "sites.c", "-g")
            (symbols.dir / "sites.c").write_text(before + text)
            subprocess.run("gcc -O2 -g -fno-omit-frame-pointer sites.c record.o -o program && ./program > r", shell=True, cwd=symbols.dir, check=True)
            result, = self.sarif(symbols.dir / "r")["runs"][0]["results"]
            found.append((result["partialFingerprints"], result["locations"][0]["physicalLocation"]["region"]["startLine"]))
        self.assertEqual(found[0][0], found[1][0])
        self.assertEqual(found[0][1] + 3, found[1][1])

    def test_json_has_a_line_for_each_kind_and_a_summary(self):
        built = self.symbols().build("gcc", "sites.c", "-g")
        other = self.report(begin(1), finding(1, rule="recv-late", sites=[]), again(3, 1), end(1, "free is not watched"))
        first, second, summary = map(json.loads, self.check(built, other, "-f", "json").splitlines())
        self.assertEqual((first["rule"], first["count"], first["wr"]), ("buffer-reposted", 1, {"id": "7", "op": "SEND"}))
        innermost = first["sites"][0]["frames"][0]
        self.assertEqual((innermost["function"], [f["function"] for f in innermost["inlined_into"]]), ("ring_put", ["send_loop"]))
        self.assertEqual((second["rule"], second["count"]), ("recv-late", 3))
        self.assertEqual(summary, {"kind": "summary", "errors": 1, "warnings": 1, "notes": 0, "suppressed": 0, "times": 4, "processes": 2, "unwatched": ["free is not watched"]})

    def test_output_goes_to_a_file(self):
        report = self.report(begin(), finding(), end())
        self.assertEqual(self.check(report, "-f", "sarif", "-o", "out.sarif"), "")
        self.assertEqual(json.loads((self.dir / "out.sarif").read_text())["version"], "2.1.0")
        got = ropeway("check", report, "-o", self.dir / "none/out")
        self.assertEqual(got.returncode, 1)
        self.assertIn("No such file", got.stderr)
        got = ropeway("check", report, "-o", "/dev/full")
        self.assertEqual(got.returncode, 1)


class Hostile(Case):
    def test_no_text_of_a_report_reaches_the_terminal_as_a_control_character(self):
        evil = "\x1b[2J\r\n\x07\x9b31m\u202e\x7f"
        report = self.report(begin(program=f"/bin/{evil}"), finding(text=evil, peer=evil, qp={"qpn": 1, "type": evil, "state": evil, "peer_qpn": 2}, wr={"id": evil, "op": evil},
                                                                    sites=[(evil, [(f"/no/{evil}", 7)])]), end(unwatched=evil))
        report.write_bytes(report.read_bytes() + json.dumps(finding(number=2, rule="recv-late", text=evil), ensure_ascii=False).encode() + b"\n")
        for format in ("text", "json", "sarif"):
            said = self.check(report, "-f", format)
            self.assertIsNone(re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", said), format)

    def test_names_that_are_no_utf_8(self):
        report = self.report(begin(), finding(text="caf@"), end())
        report.write_bytes(report.read_bytes().replace(b"caf@", b"caf\xe9"))
        self.assertIn("caf?", self.check(report))

    def test_a_report_that_somebody_has_tampered_with(self):
        seed, rounds = int(os.environ.get("TEST_SEED", time.time_ns() % 10**9)), int(os.environ.get("TEST_ROUNDS", 60))
        print(f"TEST_SEED={seed} TEST_ROUNDS={rounds}", file=sys.stderr)
        draw = random.Random(seed)
        lines = [begin(), finding(), again(2), finding(number=2, rule="race", sites=[("a", [("/proc/self/exe", 7)])] * 3, peer="p"), begin(2), finding(2, memory={"addr": "0x1", "len": 1, "key": "0x1"}), end(), end(2),
                 {"kind": "event", "pid": 2, "t": 5, "what": "failed", "qpn": 1, "peer_qpn": 2, "text": "x", "sites": [{"what": "here", "frames": [frame("/proc/self/exe", 99)]}]}]
        odd = [None, -1, 0, 2**63 - 1, -2**63, 1e300, "", "x" * 5000, [], {}, [[]], True, "0xffffffffffffffffff", "/dev/zero", "/proc/self/mem", 4097, 2**32]

        def spoil(v):
            if draw.random() < 0.15:
                return draw.choice(odd)
            if isinstance(v, dict):
                return {k: spoil(x) for k, x in v.items() if draw.random() > 0.05}
            return [spoil(x) for x in v] * draw.choice((1, 1, 1, 9)) if isinstance(v, list) else v

        for number in range(rounds):
            text = "".join(json.dumps(spoil(line)) + "\n" for line in draw.choices(lines, k=draw.randrange(1, 40)))
            data = bytearray(text.encode())
            for _ in range(draw.randrange(4)):
                data[draw.randrange(len(data))] = draw.randrange(256)
            path = self.dir / "r"
            path.write_bytes(data)
            for format in ("text", "json", "sarif"):
                got = ropeway("check", path, "-f", format)
                self.assertIn(got.returncode, (0, 1), (seed, number, format, got.stderr[-2000:]))
                if got.returncode == 0 and format == "sarif":
                    json.loads(got.stdout)

    def test_a_line_without_an_end(self):
        path = self.dir / "r"
        path.write_bytes(json.dumps(begin()).encode() + b"\n" + b"x" * 10_000_000 + b"\n" + json.dumps(finding()).encode() + b"\n")
        said = self.check(path)
        self.assertIn("1 error in 1 process\n", said)
        self.assertIn("1 line of the report cannot be read", said)


# ---- ropeway run --check ----

# What a process under the checker leaves in the report; `say` writes lines as the checker does.
PROGRAM = """#!/usr/bin/python3
import json, os, re, signal, subprocess, sys, time
log = re.search(r"log='([^']*)'", os.environ["ROPEWAY_CHECK"])[1]
def say(*lines):
    for line in lines:
        fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, json.dumps(dict(line, pid=os.getpid())).encode() + b"\\n")
        os.close(fd)
def begin(): say({"kind": "begin", "ppid": os.getppid(), "program": "/usr/bin/planted", "t": 1})
def find(rule="buffer-reposted", number=1, at=0x10):
    say({"kind": "finding", "tid": 1, "t": 2, "id": number, "rule": rule, "number": 0, "severity": "", "text": "found it", "sites": [{"what": "here", "frames": [{"module": "/nowhere/planted", "offset": hex(at)}]}]})
def end(): say({"kind": "end", "t": 3, "findings": 1, "unwatched": ""})
"""


class Watch(Case):
    def program(self, body, name="program"):
        path = self.dir / name
        path.write_text(PROGRAM + body)
        path.chmod(0o755)
        return path

    def run_check(self, body, *options, spec="", says=None, **kwargs):
        got = ropeway("run", f"--check={spec}" if spec else "--check", *options, "--", self.program(body), cwd=self.dir, env=dict(os.environ, TMPDIR=str(self.dir)), **kwargs)
        if says is not None:
            self.assertEqual(got.returncode, says, got)
        return got

    def left(self):
        return sorted(p.name for p in self.dir.glob("ropeway-check-*.jsonl"))

    def start(self, body, spec="", **kwargs):
        path = self.program(body)
        process = subprocess.Popen([BUILD / "ropeway", "run", f"--check={spec}" if spec else "--check", "--", path], cwd=self.dir, env=dict(os.environ, TMPDIR=str(self.dir)), text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs)
        self.addCleanup(lambda: (process.kill(), process.wait(), process.stdin.close(), process.stdout.close(), process.stderr.close()))
        return process

    def test_a_finding_makes_the_exit_status_86_and_keeps_the_report(self):
        got = self.run_check("begin(); find(); end(); sys.exit(3)", says=86)
        self.assertIn("error 103 buffer-reposted: planted, process", got.stderr)
        report, = self.left()
        self.assertIn(f"1 error in 1 process; report: {self.dir}/{report}", got.stderr)
        self.assertIn("1 error in 1 process\n", self.check(self.dir / report))

    def test_without_a_finding_the_status_is_the_programs_and_nothing_is_left(self):
        for status in (0, 3):
            got = self.run_check(f"begin(); end(); sys.exit({status})", says=status)
            self.assertIn("no error, no warning in 1 process\n", got.stderr)
            self.assertEqual(self.left(), [])
        got = self.run_check("begin(); find('wr-id-twice'); end(); sys.exit(3)", says=3)
        self.assertIn("no error, no warning, 1 note in 1 process; report:", got.stderr)

    def test_a_program_that_used_no_device_is_told(self):
        got = self.run_check("sys.exit(0)", says=0)
        self.assertEqual(got.stderr, "ropeway: no finding: no process has reported to the checker\n")

    def test_exitcode_is_chosen(self):
        self.run_check("begin(); find(); sys.exit(3)", spec="exitcode=9", says=9)
        self.run_check("begin(); find(); sys.exit(3)", spec="exitcode=0", says=3)

    def test_a_signal_ends_the_run_as_it_ended_the_program(self):
        for sig in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
            got = self.run_check(f"begin(); find(); os.kill(os.getpid(), {int(sig)}); time.sleep(60)", says=-sig)
            self.assertIn("1 error in 1 process", got.stderr)

    def test_a_finding_is_shown_while_the_program_runs(self):
        process = self.start("begin(); find(); sys.stdin.readline(); find('recv-late', 2); sys.stdin.readline()")
        seen = ""
        while "remedy" not in seen:
            seen += process.stderr.readline()
        self.assertIsNone(process.poll())
        self.assertNotIn("recv-late", seen)
        process.stdin.write("\n")
        process.stdin.flush()
        while "recv-late" not in seen:
            seen += process.stderr.readline()
        self.assertIsNone(process.poll())
        process.stdin.write("\n")
        process.stdin.flush()
        self.assertEqual(process.wait(TIMEOUT_S), 86)

    def test_standard_streams_are_the_programs(self):
        got = self.run_check("begin(); print(sys.stdin.read().upper(), end=''); print('e', file=sys.stderr); end()", stdin=None, input="hello\n", says=0)
        self.assertEqual(got.stdout, "HELLO\n")
        self.assertTrue(got.stderr.startswith("e\n"))

    def test_children_and_programs_that_it_starts_count(self):
        got = self.run_check(f"""
begin()
if os.fork() == 0:
    begin(); find(at=0x20); end(); os._exit(0)
os.wait()
subprocess.run([sys.executable, "-c", open(__file__).read().split("# ----")[0] + "begin(); find('recv-late', 1, 0x30); end()"])
end()
""".replace("\nbegin()\nif", "\n# ----\nbegin()\nif"), says=86)
        self.assertIn("1 error, 1 warning in 3 processes", got.stderr)

    def test_what_is_still_running_is_told(self):
        got = self.run_check("""
begin()
r, w = os.pipe()
if os.fork() == 0:
    begin(); begin(); os.write(w, b"x"); os.setsid()  # the second: it has executed another program
    for fd in range(3): os.close(fd)
    time.sleep(2); find(at=0x20); end(); os._exit(0)
os.read(r, 1); end()
""", says=0)
        self.assertIn("1 process is still running, and not counted", got.stderr)
        report, = self.left()
        deadline = time.monotonic() + TIMEOUT_S
        while "1 error" not in self.check(self.dir / report) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertIn("1 error in 3 processes", self.check(self.dir / report))

    def test_a_signal_for_the_run_is_the_programs(self):
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP, signal.SIGRTMIN + 3):
            process = self.start(f"""
n = 0
def on(*_):
    global n
    n += 1
signal.signal({int(sig)}, on)
begin(); print("ready", flush=True)
while not n: time.sleep(0.01)
time.sleep(0.3); print(n, flush=True); end(); sys.exit(7)""")
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.send_signal(sig)
            self.assertEqual(process.stdout.readline(), "1\n")
            self.assertEqual(process.wait(TIMEOUT_S), 7)

    def test_who_kills_the_run_kills_the_program(self):
        process = self.start("begin(); print(os.getpid(), flush=True); time.sleep(600)")
        pid = int(process.stdout.readline())
        process.kill()
        process.wait(TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        while pathlib.Path(f"/proc/{pid}/cmdline").exists() and pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertLess(time.monotonic(), deadline)

    def test_the_program_has_the_signals_that_it_would_have(self):
        body = "print([signal.getsignal(s) for s in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT)], signal.pthread_sigmask(signal.SIG_BLOCK, []), os.getpgrp() == os.getpgid(os.getppid()), flush=True)"
        program = self.program(body.replace("signal.getsignal(s)", "open('/proc/self/status').read().split('SigIgn:')[1].split()[0]"))
        env = dict(os.environ, ROPEWAY_CHECK="log='x'")
        for before in ("", "trap '' CHLD HUP; "):
            plain, checked = (subprocess.run(["bash", "-c", f'{before}exec "$@"', "x", BUILD / "ropeway", "run", *more, "--", program], env=env, cwd=self.dir, capture_output=True, text=True, check=True).stdout
                              for more in ([], ["--check"]))
            self.assertEqual(plain.split("]")[0], checked.split("]")[0])
            self.assertIn("set()", checked)

    def test_the_log_is_a_file_of_the_users_which_grows(self):
        for n in (1, 2):
            got = self.run_check("begin(); os.chdir('/'); find(); end()", spec="log=a b.jsonl", says=86)
            self.assertIn(f"1 error in 1 process; report: {self.dir}/a b.jsonl", got.stderr)
            self.assertEqual(self.check("a b.jsonl").count("buffer-reposted:"), 1)
            self.assertIn(f"in {n} process", self.check("a b.jsonl"))
        self.assertEqual(self.left(), [])

    def test_a_log_that_cannot_be(self):
        (self.dir / "link").symlink_to(self.dir / "x")
        for log, why in (("none/log", "No such file"), ("link", "Too many levels"), (".", "Is a directory"), ("a.%p", "its name has no process ID"), ("/dev/null", "Invalid argument")):
            got = self.run_check("sys.exit(0)", spec=f"log={log}", says=2)
            self.assertIn(why, got.stderr)

    def test_what_the_program_is_told(self):
        got = self.run_check("print(os.environ['ROPEWAY_CHECK'])", spec="race,-leak:halt=1", says=0)
        self.assertRegex(got.stdout, rf"^race,-leak:halt=1:log='{self.dir}/ropeway-check-\w+\.jsonl'\n$")
        got = self.run_check("print(os.environ['ROPEWAY_CHECK'])", says=0)
        self.assertRegex(got.stdout, rf"^:log='{self.dir}/ropeway-check-\w+\.jsonl'\n$")

    def test_a_mistake_in_the_spec_is_told_before_the_program_runs(self):
        got = self.run_check("print('ran')", spec="recv-lat", says=2)
        self.assertEqual(got.stdout, "")
        self.assertIn("did you mean 'recv-late'?", got.stderr)
        got = ropeway("run", "--", "true", env=dict(os.environ, ROPEWAY_CHECK="hlat=1"))
        self.assertEqual(got.returncode, 2)
        self.assertIn("ROPEWAY_CHECK: unknown setting 'hlat'", got.stderr)
        self.assertEqual(self.left(), [])

    def test_suppressed_findings_do_not_count(self):
        (self.dir / "s").write_text("103:planted\n")
        got = self.run_check("begin(); find(); end(); sys.exit(3)", spec="suppress=s", says=3)
        self.assertIn("no error, no warning in 1 process (1 suppressed)", got.stderr)
        self.assertNotIn("found it", got.stderr)
        (self.dir / "s").write_text("104:planted\n")
        self.run_check("begin(); find(); end(); sys.exit(3)", spec="suppress=s", says=86)
        got = self.run_check("print('ran')", spec="suppress=gone", says=2)
        self.assertEqual(got.stdout, "")
        self.assertIn("gone: No such file", got.stderr)

    def test_a_program_that_is_not_there(self):
        got = ropeway("run", "--check", "--", self.dir / "gone")
        self.assertEqual((got.returncode, got.stdout), (127, ""))
        got = ropeway("run", "--check", "--", self.dir, env=dict(os.environ, TMPDIR=str(self.dir)))
        self.assertEqual(got.returncode, 126)
        self.assertNotIn("ropeway: ", got.stderr)
        self.assertEqual(self.left(), [])

    def test_rules_that_are_all_off_check_nothing(self):
        got = ropeway("run", "--check=none", "--", "sh", "-c", "echo $ROPEWAY_CHECK; exit 3", env={k: v for k, v in os.environ.items() if k != "ROPEWAY_CHECK"})
        self.assertEqual((got.returncode, got.stdout, got.stderr), (3, "\n", ""))

    def test_a_flood_of_findings_is_shown_whole(self):
        got = self.run_check("begin()\nfor n in range(1, 2001): find(number=n, at=n)\nend()", says=86)
        self.assertEqual(got.stderr.count("found it"), 2000)
        self.assertIn("2000 errors in 1 process", got.stderr)


# ---- programs of verbs ----

class Live(Case):
    """posts.c and sites.py make two mistakes each, with a device."""

    def build(self, *words, source="posts"):
        shutil.copy(SOURCE / f"{source}.c", self.dir)
        subprocess.run([*words, f"{source}.c", "-libverbs", "-o", source], cwd=self.dir, check=True)
        return self.dir / source

    def line(self, words="line of post", source="posts"):
        return next(n for n, line in enumerate((SOURCE / f"{source}.c").read_text().splitlines(), 1) if words in line)

    def run_check(self, program, *options, spec="wr-id-twice", says=86):
        got = ropeway("run", "--devices", "lo", f"--check={spec}", *options, "--", *program, cwd=self.dir, env=dict(os.environ, TMPDIR=str(self.dir)))
        self.assertEqual(got.returncode, says, got)
        return got

    def test_c_and_cpp_with_lines(self):
        for words in (["gcc", "-O2", "-g"], ["g++", "-x", "c++", "-O2", "-g"]):
            got = self.run_check([self.build(*words), "rpw_lo"])
            self.assertEqual(got.stdout, "posted\n")
            for rule in ("warning 108 cq-small", "note 112 wr-id-twice"):
                block = got.stderr.split(f"ropeway: {rule}: posts, process ")[1].split("ropeway: ")[0]
                self.assertIn(f"#0 post at posts.c:{self.line()}\n", block)
            self.assertIn("no error", got.stderr.replace("1 warning, 1 note in 1 process", "no error"))
            report, = self.dir.glob("ropeway-check-*.jsonl")
            self.assertIn(f"post at posts.c:{self.line()}\n", self.check(report))
            report.unlink()

    def test_two_sites_and_their_callers_up_to_main(self):
        said = self.run_check([self.build("gcc", "-g", "-O1", "-fno-omit-frame-pointer", source="worker"), "rpw_lo"]).stderr
        self.assert_in_order(said, "error 217 key-unknown", "error 101 error-ignored", "note 301 first-cause", "2 errors, 1 note in 1 process")
        sites = said.split("error 101 error-ignored")[1].split("  on a NIC")[0].split("  posted here\n")[1].split("  that completion was polled here\n")
        for site, function, line in zip(sites, ("write_block", "wait_for_one"), ("if (ibv_post_send", "while (!ibv_poll_cq")):
            first, second = site.splitlines()
            self.assertEqual(first.strip(), f"#0 {function} at worker.c:{self.line(line, 'worker')}")
            self.assertRegex(second, r"#1 main at worker\.c:\d+$")

    def test_without_debug_information(self):
        self.assertRegex(self.run_check([self.build("gcc", "-O2"), "rpw_lo"]).stderr, r"#0 post in posts\+0x[0-9a-f]+\n")

    def test_beside_the_other_options(self):
        program = self.build("gcc", "-O2", "-g")
        for options in (["--explain=a.txt"], ["--pcap", "a.pcapng"], ["--fault", "drop=0.1,seed=1"], ["--like", "mlx5"], ["--library"], ["--stats"], ["--wire", "udp"], ["--namespace"]):
            with self.subTest(options):
                if options == ["--namespace"] and ropeway("run", "--namespace", "--", "true").returncode:
                    self.skipTest("no mount namespace here")
                got = self.run_check([program, "rpw_lo"], *options)
                self.assertIn(f"#0 post at posts.c:{self.line()}\n", got.stderr)
                self.assertEqual(got.stdout, "posted\n")
        self.assertIn("ibv_post_recv", (self.dir / "a.txt").read_text())

    def test_a_child_and_a_program_that_a_script_starts(self):
        program = self.build("gcc", "-O2", "-g")
        got = self.run_check(["sh", "-c", f"{program} rpw_lo child; {program} rpw_lo; exit 0"])
        self.assertIn("1 warning, 1 note in 3 processes, found 3 times", got.stderr)

    def test_rules_are_turned_off(self):
        program = self.build("gcc", "-O2", "-g")
        got = self.run_check([program, "rpw_lo"], spec="wr-id-twice,-cq-small", says=0)
        self.assertNotIn("cq-small", got.stderr)
        self.assertIn("wr-id-twice", got.stderr)

    def test_halt_ends_the_program_at_the_first_warning(self):
        got = self.run_check([self.build("gcc", "-O2", "-g"), "rpw_lo"], spec="halt=1")
        self.assertEqual(got.stdout, "")
        self.assertIn("cq-small", got.stderr)

    def test_what_is_freed_is_watched_by_a_library_that_the_run_adds(self):
        got = self.run_check([BUILD / "tests/check/planted", "memory-freed", "bad"])
        self.assertIn("error 215 memory-freed: planted, process", got.stderr)
        self.assertNotIn("libropeway-check", ropeway("run", "--", "sh", "-c", "echo $LD_PRELOAD").stdout)

    def test_by_the_preload_alone(self):
        program = self.build("gcc", "-O2", "-g")
        env = dict(os.environ, LD_PRELOAD=str(BUILD / "libropeway-verbs.so.0"), ROPEWAY_DEVICES="lo")
        got = subprocess.run([program, "rpw_lo"], env=dict(env, ROPEWAY_CHECK="1"), capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        self.assertRegex(got.stderr, r"warning 108 cq-small: posts, process \d+\n(.*\n)*? +#0 \S*/posts\+0x[0-9a-f]+\n")
        got = subprocess.run([program, "rpw_lo"], env=dict(env, ROPEWAY_CHECK=f"log={self.dir}/r.%p"), capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        self.assertEqual(got.stderr, "")
        report, = self.dir.glob("r.*")
        self.assertIn(f"#0 post at posts.c:{self.line()}\n", self.check(report))

    def test_python_by_pyverbs(self):
        if subprocess.run(["/usr/bin/python3", "-c", "import pyverbs.device"], check=False, stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no pyverbs here")
        got = self.run_check(["/usr/bin/python3", SOURCE / "sites.py", "rpw_lo"], says=0)
        self.assertEqual(got.stdout, "posted\n")
        self.assertRegex(got.stderr, r"note 112 wr-id-twice: python3[^,]*, process \d+\n(.*\n)*? +#0 \S*/pyverbs/qp\.\S+\.so\+0x[0-9a-f]+\n")


def main():
    global BUILD
    if sys.argv[1:] == ["--fetch"]:
        why = schema()[1]
        if why:
            print(f"SKIPPED SARIF is not validated: {why}")
        return 0
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(globals()[sys.argv[2]])
    if len(sys.argv) > 3:
        suite = unittest.TestSuite(t for t in suite if re.search(sys.argv[3], t.id()))
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    for test, why in result.skipped:
        print(f"SKIPPED {test}: {why}", file=sys.stderr)
    if not result.wasSuccessful():
        return 1
    return 77 if result.testsRun and len(result.skipped) == result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
