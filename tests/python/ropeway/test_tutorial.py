# SPDX-License-Identifier: BSD-3-Clause
"""docs/python: every block runs, shows what stands below it, and passes mypy --strict; so do the
commands of python/README.md."""

import os
import re
import subprocess
import sys

import pytest
from helpers import HERE

ROOT = os.path.dirname(os.path.dirname(HERE))
PAGES = [os.path.join(ROOT, p) for p in ("docs/python/README.md", "python/README.md")]
BLOCK = re.compile(r"^(?:#+ (?P<title>[^\n]*)|```(?P<kind>python|sh|text)(?P<how>[^\n]*)\n(?P<body>.*?)^```)$", re.M | re.S)


def steps():
    """(title, kind, how, body, what it shows or None) of each block."""
    found = []
    for page in PAGES:
        title = ""
        for m in BLOCK.finditer(open(page, encoding="utf-8").read()):
            if m["title"]:
                title = m["title"]
            elif m["kind"] == "text":
                found[-1] = (*found[-1][:4], m["body"])
            else:
                found.append((title, m["kind"], m["how"].strip(), m["body"], None))
    return [s for s in found if s[2] != "norun"]


def like(expected, got):
    pattern = re.escape(expected.strip()).replace(r"\.\.\.", ".*?").replace(r"\ ", r"\s+")
    return re.fullmatch(pattern, got.strip(), re.S)


FILES = {s[2].partition("=")[2]: s[3] for s in steps() if s[2].startswith("file=")}
RUNS = [s for s in steps() if not s[2].startswith("file=")]


@pytest.mark.parametrize("step", RUNS, ids=[f"{n}-{s[0]}" for n, s in enumerate(RUNS)])
def test_block(step, tmp_path):
    _, kind, _, body, shows = step
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    env = dict(os.environ, PATH=os.path.dirname(sys.executable) + ":" + os.environ["PATH"])
    env.pop("ROPEWAY_TRANSPORT", None)
    if kind == "python":
        (tmp_path / "block.py").write_text(body)
        argv = [sys.executable, "-X", "dev", "block.py"]
    else:
        argv = ["bash", "-euc", body]
    r = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100)
    assert r.returncode == 0, r.stderr
    assert not r.stderr.strip(), r.stderr
    assert shows is None or like(shows, r.stdout), f"expected:\n{shows}\ngot:\n{r.stdout}"


def test_mypy_strict(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    for n, (_, kind, _, body, _) in enumerate(s for s in steps() if s[1] == "python"):
        if "wrong in" not in body:  # that one is wrong on purpose
            (tmp_path / f"block{n}.py").write_text(body)
    r = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"),
        "--follow-imports=silent", *map(str, sorted(tmp_path.glob("*.py")))], capture_output=True, text=True, timeout=110,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | ({"MYPYPATH": os.environ["PYTHONPATH"].split(":")[0]} if "PYTHONPATH" in os.environ else {}))
    assert r.returncode == 0, r.stdout + r.stderr


def test_stubs_and_code_agree():
    """Every public name of the stubs is there, and documented; nothing public is missing in them."""
    import ast

    import ropeway

    def check(where, nodes, path):
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                assert hasattr(where, node.name), f"{path}.{node.name}"
                check(getattr(where, node.name), node.body, f"{path}.{node.name}")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if node.name == "__buffer__":
                    continue  # from 3.12 on
                thing = getattr(where, node.name, None)
                assert thing is not None, f"{path}.{node.name}"
                if not node.name.startswith("_") and where not in (ropeway.Info, ropeway.Statistics):
                    assert thing.__doc__, f"{path}.{node.name} has no docstring"

    here = os.path.dirname(ropeway.__file__)
    for module, name in ((ropeway, "__init__.pyi"), (ropeway.core, "_core.pyi")):
        tree = ast.parse(open(os.path.join(here, name), encoding="utf-8").read())
        check(module, tree.body, name)
    stubs = {n.name for n in ast.parse(open(os.path.join(here, "__init__.pyi")).read()).body if hasattr(n, "name")}
    assert set(ropeway.__all__) - stubs <= {"ALL", "Memory", "Operation", "Received", "RemoteKey", "blocking", "core"}
