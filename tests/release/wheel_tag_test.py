#!/usr/bin/python3
"""python/build_backend.py: a wheel that a newer Python builds has the tag of the oldest one. The stage install builds with the Pythons of Debian 13 and unstable, and installs with 3.11."""
import base64
import csv
import hashlib
import pathlib
import re
import sys
import tempfile
import types
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
INFO = "ropeway-0.1.0.dist-info"
WHEEL = "Wheel-Version: 1.0\nGenerator: meson\nRoot-Is-Purelib: false\nTag: {}-linux_x86_64\n\n"

# What the backend imports, with a wheel of ours.
fake = types.ModuleType("mesonpy")
fake.build_editable = fake.build_sdist = fake.get_requires_for_build_sdist = fake.get_requires_for_build_wheel = None
sys.modules["mesonpy"] = fake
sys.path.insert(0, str(ROOT / "python"))
sys.dont_write_bytecode = True
import build_backend  # noqa: E402


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


class Tag(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder = pathlib.Path(temp.name)

    def build(self, tag):
        """The wheel of a Python with that tag: its path, and its contents before."""
        files = {f"{INFO}/METADATA": b"Name: ropeway\n", f"{INFO}/WHEEL": WHEEL.format(tag).encode(), "ropeway/_core.abi3.so": bytes(range(256)) * 40}
        files[f"{INFO}/RECORD"] = ("".join(f"{name},{digest(data)},{len(data)}\n" for name, data in files.items()) + f"{INFO}/RECORD,,\n").encode()

        def make(folder, _settings, _metadata):
            name = f"ropeway-0.1.0-{tag}-linux_x86_64.whl"
            with zipfile.ZipFile(pathlib.Path(folder, name), "w", zipfile.ZIP_DEFLATED) as made:
                for path, data in files.items():
                    info = zipfile.ZipInfo(path, (2026, 11, 28, 1, 2, 4))
                    info.external_attr, info.compress_type = 0o100755 << 16, zipfile.ZIP_DEFLATED
                    made.writestr(info, data)
            return name

        fake.build_wheel = make
        return self.folder / build_backend.build_wheel(str(self.folder)), files

    def test_a_newer_python_s_wheel_is_tagged_for_the_oldest(self):
        for tag in ("cp313-abi3", "cp39-abi3", "cp311-abi3"):
            path, before = self.build(tag)
            self.assertEqual([p.name for p in self.folder.iterdir()], ["ropeway-0.1.0-cp311-abi3-linux_x86_64.whl"], tag)
            with zipfile.ZipFile(path) as wheel:
                after = {name: wheel.read(name) for name in wheel.namelist()}
                self.assertEqual({(i.date_time, i.external_attr, i.compress_type) for i in wheel.infolist()}, {((2026, 11, 28, 1, 2, 4), 0o100755 << 16, zipfile.ZIP_DEFLATED)})
            self.assertEqual(after[f"{INFO}/WHEEL"].decode(), WHEEL.format("cp311-abi3"))
            self.assertEqual([name for name in before if before[name] != after[name] and tag != "cp311-abi3"], [] if tag == "cp311-abi3" else [f"{INFO}/WHEEL", f"{INFO}/RECORD"])
            for name, said, size in csv.reader(after[f"{INFO}/RECORD"].decode().splitlines()):
                if not name.endswith("RECORD"):
                    self.assertEqual((said, int(size)), (digest(after[name]), len(after[name])), name)

    def test_a_wheel_of_one_python_keeps_its_tag(self):
        path, _ = self.build("cp313-cp313t")
        self.assertEqual(path.name, "ropeway-0.1.0-cp313-cp313t-linux_x86_64.whl")

    def test_the_extension_is_compiled_for_the_python_of_the_tag(self):
        version = int(re.search(r"-DPy_LIMITED_API=(0x[0-9A-F]+)", (ROOT / "python/meson.build").read_text())[1], 16)
        self.assertEqual(build_backend.oldest_tag(), f"cp{version >> 24}{version >> 16 & 0xFF}-abi3")


if __name__ == "__main__":
    unittest.main()
