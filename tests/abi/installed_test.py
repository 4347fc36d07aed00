#!/usr/bin/python3
"""script/install and its --uninstall: what is installed works in the folder that it was moved to, and what is removed leaves the folder as it was.

Usage: installed_test.py BUILD_DIR       a copy of the build's scripts is used, so that BUILD_DIR stays as it is
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv[1]).resolve()
OPTIONS = subprocess.run(["meson", "introspect", BUILD, "--buildoptions"], capture_output=True, text=True, check=True).stdout


def files_of(folder):
    return sorted(str(p.relative_to(folder)) + "/" * p.is_dir() for p in folder.rglob("*"))


def loaded(path):
    """{section: bytes} of what the loader maps, but for the paths in which it looks for libraries: those meson sets anew."""
    data, found = path.read_bytes(), {}
    for line in subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout.splitlines():
        row = re.match(r" +\[ *\d+\] (\.\S+) +(\S+) +\S+ (\S+) (\S+) \S+ +(\w*A\w*) ", line)
        if row and row[2] != "NOBITS" and row[1] not in (".dynamic", ".dynstr"):
            found[row[1]] = data[int(row[3], 16):][:int(row[4], 16)]
    return found


class Installed(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ropeway-install-"))
        self.addCleanup(shutil.rmtree, self.dir)
        # The script finds its tree by its own place: a tree whose build is this one.
        tree = self.dir / "tree"
        tree.mkdir()
        shutil.copytree(ROOT / "script", tree / "script")
        (tree / "build").symlink_to(BUILD)
        self.script = tree / "script/install"
        self.dest = self.dir / "dest"
        values = {o["name"]: o["value"] for o in json.loads(OPTIONS)}
        self.prefix, self.libdir = values["prefix"], values["libdir"]

    def install(self, *options, status=0, dest=None):
        got = subprocess.run([self.script, "--prefix", self.prefix, "--libdir", self.libdir, *options], env={**os.environ, "DESTDIR": str(dest or self.dest)},
                             capture_output=True, text=True, timeout=300)
        self.assertEqual(got.returncode, status, got)
        return got

    def test_what_was_there_before_is_there_after_and_nothing_else(self):
        mine = self.dest / self.prefix[1:]
        for name in ("bin/other", "share/man/man1/other.1"):
            (mine / name).parent.mkdir(parents=True)
            (mine / name).write_text("other\n")
        (mine / "include").mkdir()
        before = files_of(self.dest)
        self.install()
        installed = files_of(self.dest)
        listed = (mine / "libexec/ropeway/installed").read_text().splitlines()
        self.assertEqual(sorted(set(installed) - set(before)), sorted(f"{self.prefix[1:]}/{name}" for name in listed))
        for name in ("bin/ropeway", "libexec/ropeway/test_connection", "libexec/ropeway/ropeway-helper", f"{self.libdir}/ropeway/libibverbs.so.1",
                     "share/bash-completion/completions/ropeway", "share/zsh/site-functions/_ropeway", "share/fish/vendor_completions.d/ropeway.fish"):
            self.assertIn(name, listed)
        self.assertEqual([name for name in listed if name.startswith("bin/") and name != "bin/ropeway"], [])
        self.install()  # again, over itself
        self.assertEqual(files_of(self.dest), installed)
        self.install("--uninstall")
        self.assertEqual(files_of(self.dest), before)
        self.assertIn("nothing was installed", self.install("--uninstall", status=1).stderr)

    def test_what_script_demo_builds_is_what_is_installed(self):
        """The same files: each instruction is the same, so no count of instructions can differ."""
        self.install()
        place = self.dest / self.prefix[1:]
        for installed, built in {"bin/ropeway": "ropeway", "libexec/ropeway/ropeway-helper": "ropeway-helper", "libexec/ropeway/rdma-client": "rdma-client",
                                 f"{self.libdir}/libropeway-verbs.so.0": "libropeway-verbs.so.0", f"{self.libdir}/libropeway.so.0": "libropeway.so.0",
                                 f"{self.libdir}/libnccl-net-ropeway.so": "libnccl-net-ropeway.so", f"{self.libdir}/ropeway/libibverbs.so.1": "src/library/libibverbs.so.1"}.items():
            code = loaded(BUILD / built)
            self.assertLess(1000, len(code[".text"]), built)
            self.assertEqual([name for name, data in loaded(place / installed).items() if data != code.get(name)], [], built)
        # nor is anything of it compiled in another way than the rest: what the demo builds first
        values = {o["name"]: o["value"] for o in json.loads(OPTIONS)}
        wanted = {"0": "-O0", "1": "-O1", "2": "-O2", "3": "-O3"}.get(values["optimization"])
        objects = json.loads((BUILD / "compile_commands.json").read_text())
        product = [o for o in objects if o["output"].startswith(("src/", "libropeway", "ropeway", "rdma-"))]
        self.assertLess(100, len(product))
        self.assertEqual([o["output"] for o in product if wanted and wanted not in o["command"].split()], [])

    def test_a_folder_with_files_of_somebody_else_stays(self):
        self.install()
        theirs = self.dest / self.prefix[1:] / "libexec/ropeway/theirs"
        theirs.write_text("")
        self.install("--uninstall")
        self.assertEqual([p for p in self.dest.rglob("*") if p.is_file()], [theirs])

    def test_a_list_that_leads_out_of_the_folder_removes_nothing_there(self):
        self.install()
        outside = self.dest / "outside"
        outside.write_text("")
        listing = self.dest / self.prefix[1:] / "libexec/ropeway/installed"
        listing.write_text(listing.read_text() + "../" * len(pathlib.Path(self.prefix).parts[1:]) + "outside\n")
        self.assertIn("is not below", self.install("--uninstall", status=1).stderr)
        self.assertTrue(outside.exists())

    def test_it_works_where_it_was_moved_to(self):
        self.install()
        moved = self.dir / "moved"
        (self.dest / self.prefix[1:]).rename(moved)
        env = {k: v for k, v in os.environ.items() if not k.startswith("ROPEWAY_") and k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
        env["ROPEWAY_DEVICES"] = "lo"  # the same on every machine
        listing = subprocess.run([moved / "bin/ropeway", "run", "--", "ls", "/sys/class/infiniband"], capture_output=True, text=True, env=env, timeout=60)
        self.assertIn("rpw_lo", listing.stdout, listing)
        for program in ("rdma_server", "rdma-client", "test_connection"):
            got = subprocess.run([moved / "libexec/ropeway" / program, "--help"], capture_output=True, text=True, env=env, timeout=60)
            self.assertIn(program, got.stdout + got.stderr, got)
        maps = subprocess.run([moved / "bin/ropeway", "run", "--", "cat", "/proc/self/maps"], capture_output=True, text=True, env=env, timeout=60)
        self.assertIn(f"{moved}/{self.libdir}/libropeway-verbs.so.0", maps.stdout)


unittest.main(argv=sys.argv[:1])
