#!/usr/bin/python3
"""The messaging library as others meet it: an installed copy, found by pkg-config alone. What it exports, what it is called, whether its header stands alone; and the whole contract,
compiled from it as C11 and as C++17, run with it.

Usage: install_test.py BUILD_DIR
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = [HERE / "contract.c", *sorted(HERE.glob("*_cases.c"))]
LANGUAGES = {"C11": ("cc", "-std=c11", "-xc"), "C++17": ("c++", "-std=c++17", "-xc++")}
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wmissing-field-initializers", "-Werror"]
# Older and stricter readers of the header.
READERS = [("cc", "-std=c99", "-xc"), ("cc", "-std=c11", "-xc"), ("c++", "-std=c++11", "-xc++"), ("c++", "-std=c++20", "-xc++")]
EXPORTS = HERE.parent.parent / "src/msg/exports.map"
# What a program allocates: the header's own way to begin with it.
BEGINNINGS = "".join(f"""
extern rpw_{name} {name};
rpw_{name} {name} = RPW_{name.upper()}_INIT;
""" for name in ("context_options", "endpoint_options", "endpoint_information", "completion", "transfer", "statistics"))


def run(*command, timeout=600, **env):
    r = subprocess.run([str(c) for c in command], capture_output=True, text=True, env={**os.environ, **env}, timeout=timeout)
    if r.returncode:
        sys.exit(f"contract install: {' '.join(str(c) for c in command)} gave {r.returncode}\n{r.stdout}{r.stderr}")
    return r.stdout


def check(condition, text):
    if not condition:
        sys.exit(f"contract install: {text}")


def check_exports(library, header):
    """Exactly what the header declares, each of the release that the map has it in."""
    releases = {name: node for node, body in re.findall(r"(ROPEWAY_[\d.]+) \{\nglobal:\n(.*?)\n(?:local:|\})", EXPORTS.read_text(), flags=re.S)
                for name in re.findall(r"(\w+);", body)}
    found = {}
    for line in run("nm", "-D", "--defined-only", library).splitlines():
        kind, name = line.split()[-2:]
        symbol, _, version = name.partition("@")
        if kind != "A":  # the name of the version itself
            found[symbol] = version.lstrip("@")
    declared = set(re.findall(r"^RPW_API\b[^;(]*?\b(rpw_\w+)\s*\(", re.sub(r"/\*.*?\*/", " ", header, flags=re.S), flags=re.M))
    check(len(declared) > 40, f"only {len(declared)} calls were found in the header")
    check(set(found) == declared, f"exported, not declared: {set(found) - declared}; declared, not exported: {declared - set(found)}")
    check(found == releases, f"not of the release that {EXPORTS.name} says: {set(found.items()) ^ set(releases.items())}")
    return len(found)


def main():
    with tempfile.TemporaryDirectory() as temp:
        run("meson", "install", "-C", sys.argv[1], "--no-rebuild", "--destdir", temp)
        pc, = pathlib.Path(temp).rglob("ropeway.pc")
        libdir = pc.parent.parent
        env = {"PKG_CONFIG_PATH": str(pc.parent), "PKG_CONFIG_LIBDIR": str(pc.parent), "PKG_CONFIG_SYSROOT_DIR": temp}
        cflags = run("pkg-config", "--cflags", "ropeway", **env).split()
        libs = run("pkg-config", "--libs", "ropeway", **env).split()
        version = run("pkg-config", "--modversion", "ropeway", **env).strip()
        includedir = run("pkg-config", "--variable=includedir", "ropeway", **env).strip()
        include = pathlib.Path(includedir if includedir.startswith(temp) else temp + includedir)
        header = (include / "ropeway.h").read_text()
        check(libs[-1] == "-lropeway" and all(f.startswith(f"-L{temp}") for f in libs[:-1]), f"pkg-config gives {libs}: nothing but the library is needed")
        check(header == (HERE.parent.parent / "include/ropeway.h").read_text(), "the installed header is another one")

        library = libdir / "libropeway.so"
        check("[libropeway.so.0]" in run("readelf", "-d", library), "its SONAME is not libropeway.so.0")
        check((libdir / "libropeway.so.0").exists() and (libdir / f"libropeway.so.{version}").exists(), f"libropeway.so.0 and .{version} belong beside it")
        exports = check_exports(library, header)

        # The header needs nothing of this tree, and nothing before it.
        alone = pathlib.Path(temp, "alone")
        alone.write_text("#include <ropeway.h>\n#include <ropeway.h>\n" + BEGINNINGS + "int main(void) { return rpw_status_name(RPW_OK) == 0; }\n")
        for compiler, standard, language in READERS:
            run(compiler, standard, *WARNINGS, *cflags, language, "-c", alone, "-o", pathlib.Path(temp, "alone.o"))

        for name, (compiler, standard, language) in LANGUAGES.items():
            binary = pathlib.Path(temp, "contract")
            define = ["-D_DEFAULT_SOURCE"] if compiler == "cc" else []  # usleep, mkstemp: the tests', not the header's
            run(compiler, standard, *define, *WARNINGS, *cflags, f"-I{HERE}", f"-I{HERE.parent}", language, *SOURCES, "-o", binary, "-xnone", *libs, "-lpthread")
            needed = run("readelf", "-d", binary)
            check("libropeway.so.0" in needed and not re.search(r"R(UN)?PATH", needed), f"linked with the wrong libraries\n{needed}")
            mapped = run("ldd", binary, LD_LIBRARY_PATH=str(libdir))
            check(str(libdir) in mapped, f"another library would be loaded:\n{mapped}")
            out = run(binary, LD_LIBRARY_PATH=str(libdir), ROPEWAY_LOG="error")
            passed = len(re.findall(r"^ok ", out, flags=re.M))
            check(passed > 50 and "not ok" not in out, f"{name}:\n{out}")
            print(f"{name}, version {version}, {exports} symbols: {passed} cases passed")


main()
