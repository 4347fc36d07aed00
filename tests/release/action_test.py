#!/usr/bin/python3
"""One job with action.yml: its steps run as a runner of GitHub runs them, then ropeway is used as the job's tests would.

Usage: action_test.py CACHE STEPS [WHEEL]   CACHE: a folder, kept from job to job. STEPS: how many have to run: 3 without what an earlier job left in the cache, 2 with it. WHEEL: a file, the action's input
With a cache, the job has to end with the packages that the job before it had.
Here a runner is this machine, or the tree in which it is started; it needs bash and PyYAML. No hosted runner has been tried.
"""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 900


class Ended(Exception):
    """A step that failed, and what it said."""


class Runner:
    """Expressions of the three forms that action.yml has, the files of outputs, of PATH and of the environment, and a cache that is a folder."""

    def __init__(self, home, cache):
        self.home, self.cache, self.outputs, self.ran, self.inputs = home, cache, {}, [], {}
        self.paths, self.variables = home / "paths", home / "variables"
        self.paths.touch()
        self.variables.touch()

    def value(self, text):
        text = re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: self.inputs[m[1]], text)
        return re.sub(r"\$\{\{ steps\.(\w+)\.outputs\.([\w-]+) \}\}", lambda m: self.outputs[m[1]].get(m[2], ""), text)

    def wanted(self, condition):
        if condition is None:
            return True
        step, name, value = re.fullmatch(r"steps\.(\w+)\.outputs\.([\w-]+) != '(\w+)'", condition).groups()
        return self.outputs[step].get(name, "") != value

    def restore(self, step):
        path, key = pathlib.Path(self.value(step["with"]["path"])), self.value(step["with"]["key"])
        kept = self.cache / key
        if kept.exists():
            shutil.copytree(kept, path, symlinks=True)
        self.outputs[step["id"]] = {"cache-hit": "true" if kept.exists() else ""}
        return path, kept

    def shell(self, command, env=None):
        path = ":".join([*self.paths.read_text().split(), os.environ["PATH"]])
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", command], cwd=self.home, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S,
                              env={**os.environ, "HOME": str(self.home), "PATH": path, "GITHUB_ACTIONS": "true", "GITHUB_ACTION_PATH": str(ROOT), "GITHUB_PATH": str(self.paths), "GITHUB_ENV": str(self.variables),
                                   **dict(line.split("=", 1) for line in self.variables.read_text().splitlines()), **(env or {})})
        if done.returncode:
            raise Ended(f"`{command}` ended with {done.returncode}\n{done.stdout[-3000:]}")
        return done.stdout

    def step(self, step, save):
        if not self.wanted(step.get("if")):
            return
        if "uses" in step:
            assert step["uses"].startswith("actions/cache@"), step
            save.append(self.restore(step))
            return
        output = self.home / "output"
        output.write_text("")
        said = self.shell(step["run"], {"GITHUB_OUTPUT": str(output), **{name: self.value(text) for name, text in step.get("env", {}).items()}})
        self.ran.append(step["run"])
        if "id" in step:
            self.outputs[step["id"]] = dict(line.split("=", 1) for line in output.read_text().splitlines())
        print(said, end="", flush=True)

    def action(self, **inputs):
        save = []
        about = yaml.safe_load((ROOT / "action.yml").read_text())
        self.inputs = {name: one["default"] for name, one in about["inputs"].items()} | inputs
        for step in about["runs"]["steps"]:
            self.step(step, save)
        for path, kept in save:  # what the cache action does after the job
            if not kept.exists():
                shutil.copytree(path, kept, symlinks=True)


def wheel_input(path, wrong=False):
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{path}#sha256={digest[::-1] if wrong else digest}"


def refuses_another_file(wheel, temp, cache):
    """A file with another hash ends the step, and the job's annotation says so."""
    try:
        Runner(temp, cache).action(wheel=wheel_input(wheel, wrong=True))
    except Ended as said:
        assert "::error title=ropeway: the step build failed::" in str(said) and "it is another file than the one that was asked for" in str(said), said
        return
    raise AssertionError("a wheel with another hash was taken")


def packages():
    """That are installed, with whether each was asked for by somebody left out."""
    return subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Abbrev}${binary:Package}\n"], capture_output=True, text=True, check=True).stdout


def same_packages(cache):
    kept = cache / "packages"
    if kept.exists():
        before, now = set(kept.read_text().splitlines()), set(packages().splitlines())
        assert before == now, f"the job before this one had other packages: {sorted(before ^ now)}"
    kept.write_text(packages())


def main():
    cache, expected = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    wheel = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temp:
        if wheel and expected == 3:
            (pathlib.Path(temp) / "other").mkdir()
            refuses_another_file(wheel, pathlib.Path(temp) / "other", cache)
        runner = Runner(pathlib.Path(temp), cache)
        runner.action(**({"wheel": wheel_input(wheel)} if wheel else {}))
        same_packages(cache)
        listed = runner.shell("ropeway run -- ls /sys/class/infiniband")
        assert "rpw_" in listed, listed
        assert runner.variables.read_text().startswith("ROPEWAY_DEVICES=first"), runner.variables.read_text()
        moved = runner.shell("ropeway demo --size 4M --no-pcap")
        print(f"{len(runner.ran)} steps, devices {listed.split()}, demo: {moved.splitlines()[-1].strip()}")
        assert len(runner.ran) == expected, f"{expected} steps were expected: {runner.ran}"


try:
    main()
except Ended as why:
    sys.exit(str(why))
