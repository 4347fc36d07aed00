#!/usr/bin/python3
"""words.py [FILE]...: our own words and sentences, held against the list in words.txt: one term for one thing, American spelling, no sentence that only we understand.

Without files: every *.md of the tree (but the Chinese ones), the man pages, the texts that programs print (the strings in src/, learn/ and python/), and the comments of the C code.
Prints FILE:LINE: what stands there -> what to write. Exit status 1 if there is anything.

  words.py --new     those rows of the list that are commented out as "later" as well: how much they would find
"""
import ast
import pathlib
import re
import runpy
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Rule:
    """A row of words.txt: PATTERN => INSTEAD, and behind " @" which kinds of text it is for (md, man, text, comment)."""

    def __init__(self, line, number):
        pattern, _, rest = line.partition(" => ")
        self.instead, _, kinds = rest.partition(" @")
        self.kinds = set(kinds.split()) or {"md", "man", "text", "comment"}
        self.number = number
        if not self.instead.strip() or not self.kinds <= {"md", "man", "text", "comment"}:
            raise ValueError(f"words.txt:{number}: expected 'PATTERN => INSTEAD [@md man text comment]', not {line!r}")
        # A small letter stands for a large one too, where a sentence begins.
        self.pattern = re.compile(r"(?<![\w-])(?:" + pattern + r")(?![\w])", re.IGNORECASE if pattern == pattern.lower() else 0)


def rules(later=False):
    found = []
    for number, line in enumerate((HERE / "words.txt").read_text(encoding="utf-8").splitlines(), 1):
        if later:
            line = line.removeprefix("#later ")
        if line.strip() and not line.startswith("#"):
            found.append(Rule(line, number))
    return found


# ---- what is prose ----

def of_markdown(text):
    """[(line, prose)]: without code, addresses of links and HTML."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            line = re.sub(r"`[^`]*`", "`x`", line)
            line = re.sub(r"\]\([^)]*\)|<[^>]*>|\"[^\"]*\"|'x'", " ", line)  # what is quoted is somebody else's
            yield number, line


def of_man(text):
    """[(line, prose)]: lines of text, and the words of macros that hold some."""
    literal = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith((".Bd -literal", ".Bl -literal")):
            literal = True
        elif line.startswith(".Ed"):
            literal = False
        elif not literal and (not line.startswith(".") or line.startswith((".Nd ", ".Sh ", ".Ss "))):
            yield number, re.sub(r"^\.\w+ ", "", line)


def of_c(text):
    """[(line, text)] of the strings of a C file that hold a sentence; adjacent ones are one."""
    code = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    for strings in re.finditer(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', code):
        joined = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', strings[0])).replace("\\n", " ")
        if joined.count(" ") >= 2:
            yield code.count("\n", 0, strings.start()) + 1, joined


PIECES = runpy.run_path(str(ROOT / "script/measure"))["C_PIECES"]  # comments and strings, as they are counted


def of_comments(text):
    """[(line, text)] of the comments of a C file, each in one piece."""
    for piece in PIECES.finditer(text):
        if piece[0].startswith("/"):
            prose = re.sub(r"\s*\n\s*\*?\s*", " ", piece[0])
            yield text.count("\n", 0, piece.start()) + 1, re.sub(r"`[^`]*`", "`x`", prose)


def of_python(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") >= 2:
            for number, line in enumerate(node.value.splitlines()):
                yield node.lineno + number, re.sub(r"`[^`]*`", "`x`", line)


def kinds_of(path):
    """[(kind, how its prose is found)]"""
    name = str(path)
    if name.endswith(".md"):
        return [("md", of_markdown)] if not name.endswith(".zh.md") else []
    if re.search(r"\.[137]$", name):
        return [("man", of_man)]
    if name.endswith(".h"):
        return [("comment", of_comments)]
    if name.endswith(".c"):
        return [("comment", of_comments)] + ([] if name.startswith("bench/") else [("text", of_c)])
    if name.endswith(".py") and name.startswith("python/ropeway/"):
        return [("text", of_python)]
    return []


def hits(path, text, wanted):
    for kind, prose in kinds_of(path):
        for number, line in prose(text):
            for rule in wanted:
                if kind in rule.kinds:
                    for found in rule.pattern.finditer(line):
                        yield f"{path}:{number}: {found[0].strip()!r} -> {rule.instead.strip()} (words.txt:{rule.number})"


def all_files():
    """Of a checkout what git knows; of an unpacked release (no git, perhaps built in place) every file but those of builds."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md", "man/*", "src/*.[ch]", "include/*.h", "learn/*.[ch]", "python/*.[ch]", "bench/*.[ch]", "python/ropeway/*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    else:
        listed = [str(path.relative_to(ROOT)) for pattern in ("*.md", "*/**/*.md", "man/*", "src/**/*.[ch]", "include/*.h", "learn/**/*.[ch]", "python/**/*.[ch]", "bench/*.[ch]", "python/ropeway/**/*.py") for path in ROOT.glob(pattern)]
    return sorted(name for name in listed if (ROOT / name).is_file() and not re.match(r"(build|obj-|\.pybuild|debian/\w)", name))


class Words(unittest.TestCase):
    """That it finds what it should: a list that finds nothing would pass everything."""

    def found(self, name, text, wanted=None):
        return list(hits(pathlib.PurePath(name), text, wanted or [Rule("colour => color", 1), Rule("one too many => unexpected", 2)]))

    def test_prose_is_looked_at_and_code_is_not(self):
        self.assertEqual(len(self.found("a.md", "The colour\n`colour` [x](colour.md)\n```\ncolour\n```\nColour, colours\n")), 2)
        self.assertEqual(len(self.found("man/a.1", ".Sh COLOUR\n.Fl colour\n.Bd -literal\ncolour\n.Ed\na colour\n")), 2)
        self.assertEqual(len(self.found("src/a.c", '/* colour */\nint colour;\nf("colour");\nf("\'%s\' is one "\n  "too many here");\n')), 2)
        self.assertEqual(len(self.found("src/a.h", '/* one too\n * many, `colour` */\nint colour;\n')), 1)
        self.assertEqual(len(self.found("python/ropeway/a.py", '"""The colour of it."""\ncolour = "colour"\n')), 1)
        self.assertEqual(self.found("docs/a.zh.md", "colour"), [])

    def test_a_row_without_an_answer_is_refused(self):
        for row in ("colour", "colour => ", "colour => color @html"):
            with self.assertRaises(ValueError):
                Rule(row, 1)


def main():
    if "--self-test" in sys.argv:
        return 0 if unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(Words)).wasSuccessful() else 1
    names = [name for name in sys.argv[1:] if not name.startswith("--")] or all_files()
    wanted = rules("--new" in sys.argv)
    found = [hit for name in names for hit in hits(pathlib.PurePath(name), (ROOT / name).read_text(encoding="utf-8"), wanted)]
    print("\n".join(found), end="\n" * bool(found))
    print(f"{len(wanted)} rows, {len(names)} files, {len(found)} hits")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
