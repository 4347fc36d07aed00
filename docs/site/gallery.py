# SPDX-License-Identifier: BSD-3-Clause
"""The page of the programs in examples/check: each is compiled and run under `ropeway run --check` as the site is built, and stands there with what the checker said. The lines that it names are highlighted."""
import pathlib
import re
import subprocess
import tempfile

PLACE = "examples/check"
PAGE = "docs/check-gallery"
LEAD = """# Small broken programs, and what the checker says

Each program has one bug, works on a good day, and was run under [`ropeway run --check`](check.md) as this page was made. The report comes first; the highlighted lines of the source are those that it names.
"""
FLAGS = ["-g", "-O0", "-fno-omit-frame-pointer"]


def report_of(root, build, source, folder):
    """What the checker says of a program, or None if it does not compile here."""
    program = pathlib.Path(folder) / source.stem
    made = subprocess.run(["cc", *FLAGS, "-o", program, f"{PLACE}/{source.name}", f"{PLACE}/pair.c", "-libverbs"], cwd=root, capture_output=True, text=True, check=False)
    if made.returncode:
        print(f"SKIPPED: {source.name} on the page of the checker's examples: {made.stderr.strip() or 'it does not compile'}")
        return None
    ran = subprocess.run([build / "ropeway", "run", "--check=color=never:columns=80", "--devices", "lo", "--", program], cwd=root, stdin=subprocess.DEVNULL,
                         capture_output=True, text=True, check=False, timeout=120)
    # the summary names a file of this run
    return re.split(r"(?m)^ropeway: \d+ (?:error|warning|note)", ran.stderr)[0].strip().replace(f"{folder}/", "")


def section(source, report):
    text = source.read_text(encoding="utf-8")
    about = " ".join(re.search(r"/\* \S+\.c - (.*?)\n \*\n", text, re.S)[1].replace("\n *", "").split())
    named = sorted({int(n) for n in re.findall(rf"\b{re.escape(source.name)}:(\d+)", report)})
    emphasis = f":emphasize-lines: {','.join(map(str, named))}\n" if named else ""
    return f"## {source.stem.replace('_', ' ').capitalize()}\n\n{about}\n\n```text\n{report}\n```\n\n```{{code-block}} c\n:linenos:\n{emphasis}\n{text}```\n"


def page(root, build):
    """The text of the page, or None: nothing could be compiled."""
    found = []
    with tempfile.TemporaryDirectory(prefix="ropeway-site-") as folder:
        for source in sorted((root / PLACE).glob("*.c")):
            report = report_of(root, build.resolve(), source, folder) if source.stem != "pair" else None
            if report:
                found.append(section(source, report))
    return "\n".join([LEAD, *found]) if found else None
