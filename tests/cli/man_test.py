#!/usr/bin/python3
"""The man pages: one for every public call, as the header has it, with an example that compiles; one place for every option of the command. Of an installed copy.

Usage: man_test.py BUILD_DIR SOURCE_DIR
"""
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

BUILD = SOURCE = MAN = pathlib.Path(".")
TIMEOUT_S = 90
SECTIONS = ["NAME", "LIBRARY", "SYNOPSIS", "DESCRIPTION", "RETURN VALUES", "EXAMPLES", "SEE ALSO"]  # of section 3, besides ERRORS
# Lines may be as long as elsewhere in this tree, and whether a page is installed is asked below.
STYLE_IS_OURS = re.compile(r"STYLE: (input text line longer than 80 bytes|referenced manual not found)|outdated mandoc.db")
LONG_OPTION = re.compile(r"--[a-z][a-z-]+")
COMMON = {"--help", "--version"}  # of every command, told once


def plain(text):
    """C without comments and layout."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return re.sub(r"\s*([^\w\s])\s*", r"\1", re.sub(r"\s+", " ", text)).strip().replace(",}", "}")


def arguments(text):
    """The words of a line of mdoc: one in quotes counts as one."""
    return [quoted or word for quoted, word in re.findall(r'"([^"]*)"|(\S+)', text)]


class Page:
    def __init__(self, path):
        self.path, self.sections, self.text = path, {}, path.read_text()
        for part in re.split(r"(?m)^\.Sh ", self.text)[1:]:
            name, _, body = part.partition("\n")
            self.sections[name] = body

    def names(self):
        return re.findall(r"(?m)^\.Nm (\S+)", self.sections["NAME"])

    def prototypes(self):
        """What the SYNOPSIS declares, as C made plain."""
        found, result, call = [], "", ""
        for line in self.sections["SYNOPSIS"].splitlines():
            macro, _, rest = line.partition(" ")
            words = arguments(rest)
            if macro == ".Ft":
                result = " ".join(words)
            elif macro == ".Fo":
                call, given = words[0], []
            elif macro == ".Fa":
                given += words
            elif macro == ".Fc":
                found.append(plain(f"{result} {call}({', '.join(given)});"))
            elif macro == ".Fn":
                found.append(plain(f"{result} {words[0]}({', '.join(words[1:])});"))
        return found

    def displays(self, section):
        """Literal displays, as they appear to a reader."""
        blocks = re.findall(r"(?ms)^\.Bd -literal.*?\n(.*?)^\.Ed", self.sections.get(section, ""))
        return [b.replace(r"\e", "\\").replace(r"\&", "").replace(r"\-", "-") for b in blocks]


class Header(unittest.TestCase):
    """Everything in include/ropeway.h has its place in section 3 or 7, and nothing else has."""

    @classmethod
    def setUpClass(cls):
        cls.header = plain(re.sub(r"(?m)^#.*(\\\n.*)*$", "", (SOURCE / "include/ropeway.h").read_text()))
        cls.pages = [Page(p) for p in sorted(MAN.glob("man[37]/rpw*")) if not p.is_symlink()]

    def test_every_call_is_found_by_its_name(self):
        calls = set(re.findall(r"RPW_API[^;()]*?(\w+)\(", self.header))
        self.assertGreater(len(calls), 40)
        self.assertEqual({p.stem for p in MAN.glob("man3/*.3")}, calls)
        for name in calls:
            self.assertIn(name, Page(MAN / "man3" / f"{name}.3").names())

    def test_a_clone_has_the_same_pages(self):
        """`man -l man/rpw_recv.3` works there, too: links lead where those that are installed do."""
        pages = [p for p in (SOURCE / "man").iterdir() if re.fullmatch(r"[1-9]", p.suffix[1:])]
        self.assertEqual({p.name: p.is_symlink() and str(p.readlink()) for p in pages},
                         {p.name: p.is_symlink() and str(p.readlink()) for p in MAN.glob("man*/*")})
        for page in pages:
            self.assertIn(".Sh NAME", page.read_text(), page.name)

    def test_every_prototype_is_the_headers(self):
        wanted = set(re.findall(r"RPW_API ([^;]*;)", self.header)) | set(re.findall(r"typedef [^;{}]*\(\*\w+\)\([^;]*\);", self.header))
        given = [prototype for page in self.pages for prototype in page.prototypes()]
        self.assertEqual(sorted(given), sorted(wanted))

    def test_every_type_is_the_headers(self):
        wanted = re.findall(r"typedef struct\{[^{}]*\}\w+;|enum(?: \w+)?\{[^{}]*\};", self.header)
        given = [plain(d) for page in self.pages for d in page.displays("SYNOPSIS")]
        self.assertGreater(len(wanted), 8)
        self.assertEqual(sorted(given), sorted(wanted))

    def test_every_status_is_explained(self):
        text = Page(MAN / "man7/rpw.7").sections["DESCRIPTION"]
        statuses = re.findall(r"RPW_ERR_\w+", self.header)
        for name in statuses:
            self.assertIn(f".It Dv {name}\n", text)
        for page in self.pages:
            self.assertLessEqual(set(re.findall(r"RPW_ERR_\w+", page.text)), set(statuses), page.path.name)

    def test_pages_have_the_sections_that_readers_look_for(self):
        for page in self.pages:
            if page.path.suffix == ".3":
                given = [s for s in page.sections if s not in ("ERRORS", "ENVIRONMENT")]
                self.assertEqual(given, SECTIONS, page.path.name)
                can_fail = any(p.startswith("int ") and not p.startswith("int rpw_listener_port") for p in page.prototypes())
                self.assertEqual("ERRORS" in page.sections, can_fail, page.path.name)

    def test_every_variable_that_a_program_of_ours_reads_is_told_of(self):
        read = {name for path in (SOURCE / "src").rglob("*.c") for name in re.findall(r'(?:getenv|env_is)\("(ROPEWAY_\w+)"', path.read_text())}
        told = {name for page in ("man7/rpw.7", "man1/ropeway.1", "man1/test_connection.1", "man7/libnccl-net-ropeway.7")
                for name in re.findall(r"(?m)^\.It Ev (ROPEWAY_\w+)", (MAN / page).read_text())}
        self.assertLessEqual({"ROPEWAY_TRANSPORT", "ROPEWAY_DISABLE"}, read)
        self.assertEqual(sorted(read - told), [])


class Examples(unittest.TestCase):
    def test_each_compiles_as_it_stands(self):
        with tempfile.TemporaryDirectory() as temp:
            for path in sorted(MAN.glob("man3/*.3")) + [MAN / "man7/rpw.7"]:
                if path.is_symlink():
                    continue
                examples = Page(path).displays("EXAMPLES")
                self.assertTrue(examples, path.name)
                for i, text in enumerate(examples):
                    source = pathlib.Path(temp, f"{path.stem}_{i}.c")
                    source.write_text(text)
                    got = subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I", SOURCE / "include", "-c", source, "-o", source.with_suffix(".o")],
                                         capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
                    self.assertEqual(got.returncode, 0, got.stderr)

    def test_the_program_of_the_overview_does_what_is_said(self):
        with tempfile.TemporaryDirectory() as temp, socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            source, program = pathlib.Path(temp, "program.c"), pathlib.Path(temp, "program")
            source.write_text(Page(MAN / "man7/rpw.7").displays("EXAMPLES")[0].replace("7400", str(s.getsockname()[1])))
            subprocess.run(["cc", "-I", SOURCE / "include", source, "-o", program, "-L", BUILD, "-lropeway", f"-Wl,-rpath,{BUILD}"], check=True, timeout=TIMEOUT_S)
            s.close()
            receiver = subprocess.Popen([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            sender = subprocess.run([program, "words that are seen once: 4711"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            out, _ = receiver.communicate(timeout=TIMEOUT_S)
            self.assertEqual((sender.returncode, sender.stderr, receiver.returncode, out), (0, "", 0, "words that are seen once: 4711\n"))


class Command(unittest.TestCase):
    """Section 1: each option of each command, in a section of its own; no option that there is not."""

    def sections(self):
        return {m[1]: m[2] for m in re.finditer(r"(?ms)^\.Ss ropeway (\S+)\n(.*?)(?=^\.S[sh] )", (MAN / "man1/ropeway.1").read_text())}

    def test_every_option_of_every_command(self):
        def run(*args):
            return subprocess.run([BUILD / "ropeway", *args], capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout

        sections = self.sections()
        commands = re.findall(r"(?m)^  (?:ropeway )?([a-z]+)\b", run("--help"))
        self.assertLessEqual({"perf", "send", "recv", "doctor", "completion"}, set(commands))
        for command in commands:
            self.assertIn(command, sections)
            told = {"--" + name for name in re.findall(r"Fl Fl ([a-z][a-z-]*)", sections[command])}
            for words in (("plugin", "check"), ("plugin", "bench")) if command == "plugin" else ((command,),):
                there = set(LONG_OPTION.findall(run(*words, "--help"))) - COMMON
                self.assertLessEqual(there, told, words)

    def test_the_synopsis_of_run_has_all_its_options_and_wire_all_its_ways(self):
        page = (MAN / "man1/ropeway.1").read_text()
        shown = subprocess.run([BUILD / "ropeway", "run", "--help"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
        synopsis = "".join(re.findall(r"(?ms)^\.Cm run\b(.*?)(?=^\.Nm$)", page[:page.index(".Sh DESCRIPTION")]))
        self.assertEqual({"--" + name for name in re.findall(r"Fl Fl ([a-z][a-z-]*)", synopsis)}, set(LONG_OPTION.findall(shown)) - COMMON)
        ways = re.search(r"--wire x: expected (.*) or (\w+)", subprocess.run([BUILD / "ropeway", "run", "--wire", "x", "true"], capture_output=True, text=True, check=False)
                         .stderr.replace("invalid value 'x' for --wire:", "--wire x:"))
        ways = {*ways[1].split(", "), ways[2]}
        self.assertLessEqual({"auto", "copy"}, ways)
        for place in (self.sections()["run"].split("Fl Fl wire Ar WAY\n")[1].split(".It ")[0], page.split(".It Ev ROPEWAY_WIRE\n")[1].split(".It ")[0]):
            self.assertEqual({word for line in re.findall(r"(?m)^\.Li (.*)", place) for word in re.findall(r"\w+", line)}, ways)

    def test_every_option_of_test_connection(self):
        there = set(LONG_OPTION.findall(subprocess.run([BUILD / "test_connection", "--help"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout)) - COMMON
        told = {"--" + name for name in re.findall(r"Fl Fl ([a-z][a-z-]*)", (MAN / "man1/test_connection.1").read_text())}
        self.assertIn("--plugin", there)
        self.assertEqual(there, told - COMMON)

    def test_every_variable_that_the_plugin_reads_is_told_of(self):
        read = {name for path in (SOURCE / "src/nccl").rglob("*.c") for name in re.findall(r'getenv\("(\w+)"\)', path.read_text())}
        self.assertIn("NCCL_IB_HCA", read)
        for page in ((MAN / "man7/libnccl-net-ropeway.7").read_text(), (SOURCE / "docs/nccl/README.md").read_text()):
            self.assertLessEqual(read, set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", page)))


class Form(unittest.TestCase):
    def pages(self):
        return [p for p in sorted(MAN.glob("man*/*")) if not p.is_symlink()]

    @unittest.skipUnless(shutil.which("mandoc"), "no mandoc here")
    def test_mandoc_finds_nothing(self):
        for path in self.pages():
            got = subprocess.run(["mandoc", "-Tlint", "-Wall", path], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            self.assertEqual([line for line in (got.stdout + got.stderr).splitlines() if not STYLE_IS_OURS.search(line)], [])

    @unittest.skipUnless(shutil.which("groff"), "no groff here")
    def test_groff_finds_nothing(self):
        for path in self.pages():
            got = subprocess.run(["groff", "-mdoc", "-ww", "-z", "-Tutf8", path], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            self.assertEqual(got.stderr, "")

    def test_references_lead_somewhere(self):
        for path in self.pages():
            for name, section in re.findall(r"Xr (\S+) (\d)", path.read_text()):
                if name.startswith(("rpw", "ropeway")):
                    self.assertTrue((MAN / f"man{section}" / f"{name}.{section}").exists(), f"{path.name}: {name}({section})")


if __name__ == "__main__":
    BUILD, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory() as where:
        subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--tags", "man", "--destdir", where], check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL)
        MAN = next(pathlib.Path(where).rglob("man1")).parent
        unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
