#!/usr/bin/python3
"""README's doors where ropeway is installed: the console of README itself, then docs/install.md, docs/ci.md, docs/messaging and docs/nccl, command by command, by docs/learn/check.py.

  doors.py [CHAPTER...]     of these chapters alone, as install.md, and not README's console

The documents say build/ropeway: here `build` is a folder of links to what is installed. Run in a tree of script/release --check, or of the stage install.
"""
import contextlib
import glob
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/learn"))
import check  # noqa: E402

CHAPTERS = (("docs", "install.md"), ("docs", "ci.md"), ("docs/messaging", "README.md"), ("docs/nccl", "README.md"))
EXAMPLES = "/usr/share/doc/libropeway-dev/examples"
LIMIT_S = 60


def fill(build):
    """What documents find in a build folder, from what is installed."""
    for pattern in ("/usr/bin/ropeway", "/usr/lib/*/libropeway*.so*", "/usr/lib/*/libnccl-net-ropeway.so", "/usr/libexec/ropeway/*"):
        for path in glob.glob(pattern):
            (build / os.path.basename(path)).symlink_to(path)
    (build / "examples").mkdir()
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "ropeway"], capture_output=True, text=True, check=True).stdout.split()
    for source in glob.glob(f"{EXAMPLES}/*.c"):
        subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-o", str(build / "examples" / pathlib.Path(source).stem), source, *flags], check=True)
    # Somebody else's plugin, to docs/nccl.
    (build / "tests/nccl").mkdir(parents=True)
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", "-fvisibility=hidden", "-shared", "-fPIC", f"-I{ROOT}/src", f"-I{ROOT}/include", "-o", str(build / "tests/nccl/libnccl-net-onestream.so"),
                    str(ROOT / "tests/nccl/onestream.c")], check=True)


def python_readme(folder):
    """The two programs of python/README.md, and what its commands print, by Debian's Python."""
    text = (ROOT / "python/README.md").read_text()
    for file, body in re.findall(r"(?ms)^```python file=(\S+)\n(.*?)^```", text):
        pathlib.Path(folder, file).write_text(body)
    commands, shown = re.search(r"(?ms)^```sh\n(.*?)^```\n\n```text\n(.*?)^```", text).groups()
    done = subprocess.run(["bash", "-euc", commands.replace("python ", "python3 ")], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode or done.stdout != shown:
        return [f"python/README.md: ended with {done.returncode}, printed {done.stdout}{done.stderr}"]
    return []


@contextlib.contextmanager
def one_interface():
    """Of the machine that README shows: eth0 with its address, beside lo. The chapters show one without."""
    subprocess.run("ip link add eth0 type veth peer name eth1".split(), check=True)
    pathlib.Path("/proc/sys/net/ipv6/conf/eth1/disable_ipv6").write_text("1")  # without an address it has no device
    for words in ("link set eth1 up", "link set eth0 up", "addr add 192.0.2.1/24 dev eth0"):
        subprocess.run(["ip", *words.split()], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "del", "eth0"], check=True)


def readme_console(folder):
    """The commands behind `$` in README, and what they print. One that names an address is a client: the same command without it is the server, started before."""
    blocks = re.findall(r"(?ms)^```console\n(\$ .*?)^```", (ROOT / "README.md").read_text())
    wrong = [] if blocks else ["README.md: no block of commands with their output"]
    for shown in blocks:
        for command, output in re.findall(r"(?ms)^\$ ([^\n]*)\n(.*?)(?=^\$ |\Z)", shown):
            server = None
            if command.endswith(" 127.0.0.1"):
                server = subprocess.Popen(command.removesuffix(" 127.0.0.1"), shell=True, cwd=folder, stdout=subprocess.DEVNULL)
            end = time.monotonic() + LIMIT_S
            while True:
                done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
                if not done.returncode or not server or time.monotonic() > end:
                    break
                time.sleep(0.1)
            if server and server.wait(LIMIT_S):
                wrong.append(f"{command}: the server ended with {server.returncode}")
            # QPNs, PSNs and rates differ from run to run.
            loose = [(re.compile(r"0x[0-9a-f]+|\d+\.\d+"), "#")]
            plain, check.VARIES[:] = list(check.VARIES), loose + check.VARIES
            wrong += [f"README: `{command}` no longer prints: {line}" for line in check.missing_lines(output, check.plain(done.stdout + done.stderr))]
            check.VARIES[:] = plain
            print(f"ran {command}")
    return wrong


def readmes(folder):
    """Whether one of them failed."""
    with one_interface():
        wrong = readme_console(folder)
    print("\n".join(wrong) or "pass README.md", flush=True)
    wrong += python_readme(folder)
    print("\n".join(wrong) or "pass python/README.md", flush=True)
    return bool(wrong)


def main(only):
    with tempfile.TemporaryDirectory() as temp:
        build = pathlib.Path(temp, "build")
        build.mkdir()
        fill(build)
        failed = False if only else readmes(temp)
        for folder, name in CHAPTERS:
            if only and name not in only:
                continue
            done = subprocess.run([sys.executable, "-B", ROOT / "docs/learn/check.py", "--build", build, "--only", name, ROOT / folder], env={**os.environ, check.INSIDE: "1"})
            failed |= done.returncode != 0
        return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
