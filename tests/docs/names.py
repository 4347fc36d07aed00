#!/usr/bin/python3
"""names.py [FILE]...: files and symbols that prose names and that do not exist.

Prose: every *.md, the man pages, and the comments of src, include, python and learn. Four kinds of name are looked up:
  - a file: a word that ends in .c, .h, .py, .md or .sh. A file of the tree must have that path, or a path that ends so
  - a function: a word that ends in ()
  - a place: `file:function`, as in docs/index-of-code.md. The file must define the function
  - a symbol: a word with an underscore, in documents where it is `code`, in comments wherever it has a small letter
A symbol exists if the code of the tree has the word; comments are not code. names_ignore.txt lists the rest, each with a reason: names of other projects, and examples.

Prints FILE:LINE: NAME. Exit status 1 if there is any. --self-test: that it finds what it should.
"""
import fnmatch
import functools
import pathlib
import re
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


IGNORE = HERE / "names_ignore.txt"
COMMENTED = re.compile(r"(src|include|python|learn)/.*\.([chS]|py)$")
FILE = re.compile(r"(?<![\w./$*{}<>-])((?:[\w.-]+/)*[\w-]+(?:\.[\w-]+)*\.(?:c|h|py|md|sh))(?![\w*{/(-]|\.\w)")
CALL = re.compile(r"(?<![\w$:])(?:\w+(?:\.|->))*([A-Za-z_]\w+)\(\)")
IN_COMMENT = re.compile(r"(?<![\w/.$-])(?=\w*[a-z])([A-Za-z]\w*_\w*[A-Za-z0-9])(?![\w*/<]|_\*|\(\d\))")
SYMBOL = re.compile(r"[A-Za-z]\w*_\w*[A-Za-z0-9]")
PLACE = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:c|h|py)):([A-Za-z_]\w*)`")
PLACES_LEAST = 70
C_COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
PY_COMMENT = re.compile(r'"""(?:.*?)"""|#[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)


@functools.cache
def tree():
    """The names of all files: of a checkout what git knows, of an unpacked release all but builds."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    else:
        listed = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
    return sorted(name for name in listed if (ROOT / name).is_file() and not re.match(r"(build|obj-|\.pybuild|debian/\w+/)", name))


@functools.cache
def endings():
    """Every path of the tree, and every end of one that begins with a name."""
    return {"/".join(parts[n:]) for parts in (name.split("/") for name in tree()) for n in range(len(parts))}


def comments(text, pattern):
    """[(line, text)] of the comments: of a C file, or of a Python file with its docstrings."""
    for found in pattern.finditer(text):
        if not found[0].startswith('"') or found[0].startswith('"""'):
            first = text.count("\n", 0, found.start()) + 1
            yield from ((first + n, line) for n, line in enumerate(found[0].splitlines()))


@functools.cache
def code_words():
    found = set()
    for name in tree():
        if re.search(r"\.(md|svg|png|txt|json|[137])$|^tests/fuzz/corpus/", name) and not name.endswith("meson_options.txt") or name == "tests/docs/names.py":
            continue
        text = (ROOT / name).read_text(encoding="utf-8", errors="ignore")
        if re.search(r"\.[chS]$", name):
            text = re.sub(C_COMMENT, lambda m: m[0] if m[0].startswith('"') else " ", text)
        found.update(re.findall(r"[A-Za-z_]\w+", text))
    return found


@functools.cache
def ignored():
    rows = [line.partition(" :: ") for line in IGNORE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    if bad := [row[0] for row in rows if not row[2]]:
        raise ValueError(f"names_ignore.txt: without a reason: {bad}")
    return [pattern for row in rows for pattern in row[0].split()]


@functools.cache
def code_of(name):
    return re.sub(C_COMMENT, " ", (ROOT / name).read_text(encoding="utf-8"))


def defines(name, function):
    """Whether the file has the function's definition, which begins a line, perhaps by a macro; a call or a declaration does not count."""
    return bool(re.search(rf"(?m)^(?:[A-Za-z_][\w \t*]*[ *])?{function}\((?:[^;{{}}]|\n)*?\)\s*\{{|^[A-Z_]+\([^;{{}}()]*\b{function}\b|^(?:class|def) {function}\b", code_of(name)))


def is_ignored(name):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in ignored())


def file_exists(name, source):
    return name.lstrip("./") in endings() or (ROOT / source).parent.joinpath(name).exists()


def prose(path, text):
    """[(line, prose, symbols)]: a line with the symbols in it that must exist."""
    name = str(path)
    if name.endswith(".md"):
        for number, line in words_and_code(text):
            yield number, line, [code for code in re.findall(r"`([^`]+)`", line) if SYMBOL.fullmatch(code)]
    elif re.match(r"man/.*\.[137]$", name):
        for number, line in enumerate(text.splitlines(), 1):
            if not line.startswith('.\\"'):
                yield number, line, re.findall(r"^\.(?:Fn|Vt|Ev|Dv) (?:struct )?(\w+)", line)
    elif COMMENTED.match(name):
        for number, line in comments(text, PY_COMMENT if name.endswith(".py") else C_COMMENT):
            yield number, line, IN_COMMENT.findall(line) + [code for code in re.findall(r"`([^`]+)`", line) if SYMBOL.fullmatch(code)]


def words_and_code(text):
    """[(line, text)] of a document without its fenced blocks and the addresses of its links, which docs_test.py checks."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"\]\([^)]*\)|<[^>]*>|https?://\S+", " ", line)


def unknown(path, text):
    for number, line, symbols in prose(path, text):
        for name, function in PLACE.findall(line):
            if (ROOT / name).is_file() and not defines(name, function):
                yield number, f"{name}:{function}"
        line = re.sub(r"<[^>]*>|https?://\S+", " ", line)
        for name in FILE.findall(line):
            if not file_exists(name, path) and not is_ignored(name):
                yield number, name
        for name in dict.fromkeys(CALL.findall(line) + symbols):
            if name not in code_words() and not is_ignored(name):
                yield number, name


def read_files():
    return [name for name in tree() if name.endswith(".md") or re.match(r"man/.*\.[137]$", name) or COMMENTED.match(name)]


class Finds(unittest.TestCase):
    def found(self, name, text):
        return [what for _, what in unknown(pathlib.PurePath(name), text)]

    def test_what_does_not_exist_is_found(self):
        self.assertEqual(self.found("a.md", "`src/io/tx.c`, `tx.c`, no_such.c, `io/no_such.h`\n```\nno_such.py\n```\n"), ["no_such.c", "io/no_such.h"])
        self.assertEqual(self.found("a.md", "`rpwi_port_send`, `rpwi_no_such`, no_such_call(), `a word`, rpw_send()"), ["no_such_call", "rpwi_no_such"])
        self.assertEqual(self.found("src/a.c", "/* no_such.c, rpwi_no_such, rpwi_lane_* */\nint rpwi_other_such; // no_such_call()\n"), ["no_such.c", "rpwi_no_such", "no_such_call"])
        self.assertEqual(self.found("python/a.py", '"""`no_such_word`, no_such.py"""\nx = "no_such.c"  # rpw_no_such\n'), ["no_such.py", "no_such_word", "rpw_no_such"])
        self.assertEqual(self.found("man/a.3", ".Fn rpw_send\n.Fn rpw_no_such\n"), ["rpw_no_such"])

    def test_a_place_that_has_no_such_function_is_found(self):
        text = "`src/io/tx.c:rpwi_port_send` `src/io/port.c:rpwi_port_send` `src/io/none.c:rpwi_port_send` `src/io/io.h:rpwi_port_send`"
        self.assertEqual(self.found("a.md", text), ["src/io/port.c:rpwi_port_send", "src/io/io.h:rpwi_port_send", "src/io/none.c"])
        self.assertGreaterEqual(len(PLACE.findall((ROOT / "docs/index-of-code.md").read_text(encoding="utf-8"))), PLACES_LEAST)

    def test_each_row_of_the_list_is_needed(self):
        global is_ignored
        seen, before = set(), is_ignored
        try:
            is_ignored = lambda name: seen.update(p for p in ignored() if fnmatch.fnmatchcase(name, p)) or before(name)  # noqa: E731
            for name in read_files():
                list(unknown(pathlib.PurePath(name), (ROOT / name).read_text(encoding="utf-8")))
        finally:
            is_ignored = before
        self.assertEqual([p for p in ignored() if p not in seen], [])


def main():
    if "--self-test" in sys.argv:
        return 0 if unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(Finds)).wasSuccessful() else 1
    names = sys.argv[1:] or read_files()
    found = [f"{name}:{number}: {what}" for name in names for number, what in unknown(pathlib.PurePath(name), (ROOT / name).read_text(encoding="utf-8"))]
    print("\n".join(found), end="\n" * bool(found))
    print(f"{len(names)} files, {len(found)} names that do not exist")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
