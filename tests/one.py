#!/usr/bin/python3
"""one.py BUILD NAME: one test of meson, found by its name or a part of it, after what it needs has been built. Then the commands that run it by hand, under gdb, and with the seed of a failure."""
import json
import os
import re
import shlex
import subprocess
import sys


def the_one(tests, name):
    """A name that is whole comes before one that begins so, and that before any that holds it."""
    for found in ([t for t in tests if t["name"] == name], [t for t in tests if t["name"].startswith(name)], [t for t in tests if name in t["name"]]):
        if len(found) == 1:
            return found[0]
        if found:
            sys.exit(f"{name} may be any of: " + ", ".join(sorted(t["name"] for t in found)))
    sys.exit(f"no test has {name} in its name: meson test -C build --list")


def by_hand(test):
    """The command without and with gdb; a script's interpreter is gdb's program, and its children are followed."""
    command = list(test["cmd"])
    with open(command[0], "rb") as f:
        first = f.read(64).split(b"\n")[0].decode(errors="replace")
    interpreter = shlex.split(first[2:]) if first.startswith("#!") else []
    follow = ["-ex", "set follow-fork-mode child"] if interpreter or "python" in os.path.basename(command[0]) else []
    return command, ["gdb", *follow, "--args", *interpreter, *command]


def main(build, name):
    build = os.path.abspath(build)
    listed = subprocess.run(["meson", "introspect", build, "--tests"], capture_output=True, text=True, check=True).stdout
    test = the_one(json.loads(listed), name)
    ran = subprocess.run(["meson", "test", "-C", build, "--print-errorlogs", test["name"]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(ran.stdout, end="")
    plain, debugged = (shlex.join(c) for c in by_hand(test))
    environment = " ".join(f"{k}={shlex.quote(v)}" for k, v in test["env"].items())
    where = f"cd {shlex.quote(test['workdir'] or build)} &&" + (f" {environment}" if environment else "")
    print(f"by hand:   {where} {plain}\nunder gdb: {where} {debugged}")
    seeds = re.findall(r"TEST_SEED=(\d+)", ran.stdout)
    if ran.returncode and seeds:
        print(f"the seed:  TEST_SEED={seeds[-1]} script/test --one {shlex.quote(test['name'])}")
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
