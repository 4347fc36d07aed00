# SPDX-License-Identifier: BSD-3-Clause
"""docs/python: every block runs, shows what stands below it, and passes mypy --strict; so do the
commands of python/README.md."""

import importlib
import inspect
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
    # asyncio's debug mode names steps of over 0.1 s: on a busy machine that may be any
    said = re.sub(r"(?m)^Executing <.* took [\d.]+ seconds\n", "", r.stderr)
    assert not said.strip(), r.stderr
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
    """Every public name of the stubs is there, and documented."""
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
                if not node.name.startswith("_"):
                    assert thing.__doc__, f"{path}.{node.name} has no docstring"

    path = os.path.join(os.path.dirname(ropeway.__file__), "_core.pyi")
    check(ropeway.core, ast.parse(open(path, encoding="utf-8").read()).body, "_core.pyi")


@pytest.mark.parametrize("name", ["ropeway", "ropeway.blocking"])
def test_every_public_call_is_documented_and_typed(name):
    """What is written in Python has its types beside it; what is C's has them in the stubs."""
    module = importlib.import_module(name)

    def check(call, where):
        assert call.__doc__, f"{where} has no docstring"
        if inspect.isfunction(call):
            args = [p for p in inspect.signature(call).parameters if p != "self"]
            assert {*args, "return"} <= set(call.__annotations__), f"{where} has no types"

    for public in module.__all__:
        thing = getattr(module, public)
        if inspect.isclass(thing) and thing.__module__.startswith("ropeway.") and thing.__module__ != "ropeway._core":
            check(thing, public)
            for inner, value in vars(thing).items():
                call = value.fget if isinstance(value, property) else value
                if not inner.startswith("_") and callable(call):
                    check(call, f"{public}.{inner}")
        elif inspect.isfunction(thing):
            check(thing, public)
