#!/usr/bin/python3
"""Every document: its links lead somewhere, its commands are run by a test or stand in `not_run.txt` with the reason, and what they name exists.

Usage: docs_test.py BUILD_DIR [unittest's arguments]

What is checked of each *.md of the tree:
  - links and images: the file, and the heading behind '#', by GitHub's rule for anchors; of an external one only its form
  - fenced blocks: each is run by one of RUN_BY, or here (lines that begin with '$ ', TWO_SIDES, the scripts of docs/faults.md), or is in not_run.txt
  - commands, in blocks and in `code`: a path of this tree exists, an option of ropeway or of a script is one
"""
import functools
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import samples  # noqa: E402

BUILD = ROOT / "build"
TIMEOUT_S = 60

# Which test runs the blocks of a document, and by what they are marked.
RUN_BY = [
    (r"docs/learn/.*", r"(sh|text) \S+.*", "stage tour (docs/learn/check.py)"),
    (r"docs/messaging/.*", r"(sh|text) \S+.*", "test messaging-tour"),
    (r"docs/nccl/.*", r"(sh|text) \S+.*", "test nccl tour"),
    (r"docs/check\.md", r"c example", "test check-page"),
    (r"docs/ci\.md", r"(sh|text) \S+.*", "test ci-page"),
    (r"docs/install\.md", r"(sh|text) \S+.*", "check doors (script/release --check, tests/release/doors.py)"),
    (r"(docs/python|python)/README\.md", r"(python|sh|text).*", "stage python (test_tutorial.py)"),
    (r"python/ucp/README\.md", r"python", "stage python (test_ucp_readme.py)"),
]
NOT_RUN = "norun"
MISTAKE = "ropeway run: invalid value"  # docs/faults.md: what a mistake in its script is answered with
INSIDE = "ROPEWAY_DOCS_NAMESPACE"
# Blocks that are run here: the last line while the one before it runs in the background, and those before that first.
TWO_SIDES = {("README.md", "build/ropeway run -- ibv_rc_pingpong -g 1 -c"), ("docs/files.md", "ropeway recv incoming/              # an existing directory; listens on 127.0.0.1, port 7477"),
             ("docs/files.md", "(umask 077; openssl rand -hex 32 > key)     # once; the same file on both hosts")}
SERVERS = {  # a command with its output that needs a server: (document, command): the server's
    ("README.md", "build/ropeway run -- ibv_rc_pingpong -g 1 -c 127.0.0.1"): "build/ropeway run -- ibv_rc_pingpong -g 1 -c",
}


def tour():
    """docs/learn/check.py: how outputs are compared stands there."""
    spec = importlib.util.spec_from_file_location("tour_check", ROOT / "docs/learn/check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def documents():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return {name: (ROOT / name).read_text(encoding="utf-8") for name in sorted(listed) if (ROOT / name).exists()}


class Block:
    def __init__(self, name, line, info):
        self.name, self.line, self.info, self.text = name, line, info, ""

    @property
    def first(self):
        return next((line.strip() for line in self.text.splitlines() if line.strip()), "")

    def __str__(self):
        return f"{self.name}:{self.line}: ```{self.info} {self.first}"


@functools.cache
def parts(name):
    """The blocks of a document, and its text without them (lines kept)."""
    blocks, prose, block = [], [], None
    for number, line in enumerate(documents()[name].splitlines(), 1):
        fence = line.lstrip().startswith("```")
        prose.append("" if fence or block else line)
        if fence and not block:
            block = Block(name, number, line.strip()[3:].strip())
        elif fence:
            blocks.append(block)
            block = None
        elif block:
            block.text += line + "\n"
    return blocks, prose


# ---- links ----

def slug(heading):
    """GitHub's anchor of a heading."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


@functools.cache
def anchors(name):
    seen, found = {}, set()
    for line in parts(name)[1]:
        heading = re.match(r"#{1,6} +(.*?) *#*$", line)
        if heading:
            text = slug(heading[1])
            count = seen[text] = seen.get(text, -1) + 1
            found.add(f"{text}-{count}" if count else text)
        found |= set(re.findall(r'<a (?:name|id)="([^"]+)"', line))
    return found


def links(name):
    for number, line in enumerate(parts(name)[1], 1):
        line = re.sub(r"`[^`]*`", "`", line)
        for target in re.findall(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)", line) + re.findall(r'(?:href|src|srcset)="([^"]+)"', line):
            yield number, target


def link_error(name, target):
    """None, or why it leads nowhere."""
    if re.match(r"[a-z][a-z+.-]*:", target):
        return None if re.fullmatch(r"https?://[\w.-]+\.[a-z]{2,}(:\d+)?(/[^\s]*)?|mailto:[^@\s]+@[\w.-]+", target) else "is no address"
    path, _, anchor = target.partition("#")
    there = (ROOT / name).parent / path if path else ROOT / name
    if not there.exists():
        return "leads nowhere"
    if ROOT not in there.resolve().parents and there.resolve() != ROOT:
        return "leads out of the tree"
    if anchor and there.suffix == ".md":
        key = str(there.resolve().relative_to(ROOT))
        if anchor not in anchors(key):
            return f"has no such heading; {key} has {', '.join(sorted(anchors(key)))}"
    return None


class Links(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        count, bad = 0, []
        for name in documents():
            for number, target in links(name):
                count += 1
                error = link_error(name, target)
                if error:
                    bad.append(f"{name}:{number}: {target} {error}")
        self.assertEqual(bad, [])
        self.assertGreater(count, 200)

    def test_no_template_is_left_unfilled(self):
        left = [f"{name}: {mark}" for name, text in documents().items() for mark in re.findall(r"@@\w+@@", text)]
        self.assertEqual(left, [])

    def test_what_leads_nowhere_is_found(self):
        for target in ("no-such-file.md", "README.md#no-such-heading", "../out", "http:/wrong", "https://no dot"):
            self.assertIsNotNone(link_error("README.md", target), target)
        self.assertIsNone(link_error("README.md", "README.md#two-commands"))
        self.assertEqual(slug("What `ropeway run` does: *now*, 1.0!"), "what-ropeway-run-does-now-10")


class Sizes(unittest.TestCase):
    """What grows by addition is bounded: whoever adds shortens."""

    def test_decisions_are_few_and_short_and_listed(self):
        folder = "docs/decisions/"
        files = {name: text for name, text in documents().items() if name.startswith(folder)}
        listed = re.findall(r"\]\((\S+\.md)\)", files.pop(folder + "README.md"))
        self.assertEqual(sorted(folder + name for name in listed if "/" not in name), sorted(files))
        self.assertLessEqual(len(files), 31)
        for name, text in files.items():
            if name != folder + "devices.md":  # two tables of programs that were tried
                self.assertEqual(re.findall(r"^\*\*(.*?)\.\*\*", text, re.M), ["Context", "Decision", "Price", "What would change it"], name)
                self.assertLessEqual(len(text.split()), 260, name)

    def test_pages_at_the_top_stay_short(self):
        for name, most in {"ARCHITECTURE.md": 1500, "TESTING.md": 1300, "src/msg/DESIGN.md": 650, "src/nccl/DESIGN.md": 500, "docs/glossary.md": 550}.items():
            self.assertLessEqual(len(documents()[name].split()), most, name)


# ---- blocks ----

@functools.cache
def not_run():
    """{(document, first line): reason} of not_run.txt."""
    found, document = {}, None
    for line in (ROOT / "tests/docs/not_run.txt").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if not line[0].isspace():
            document = line
        else:
            first, _, reason = line.strip().partition(" :: ")
            found[document, first] = reason
    return found


def shown_commands(block):
    """[(command, its output as shown)] of a block whose commands begin with '$ '."""
    found = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append([line[2:], ""])
        elif found:
            found[-1][1] += line + "\n"
    return found


def run_by(block):
    """Who runs a block of another test, or of this one: None where nobody does."""
    if (block.name, block.first) in TWO_SIDES or fault_script(block) == block.text or block.first.startswith(MISTAKE):
        return "test docs"
    return next((who for document, info, who in RUN_BY if re.fullmatch(document, block.name) and re.fullmatch(info, block.info) and NOT_RUN not in block.info), None)


def fault_script(block):
    """The fault script that a block of docs/faults.md is, or has; else None."""
    if block.name != "docs/faults.md":
        return None
    if re.match(r"# faults\.txt|process all", block.first):
        return block.text
    return next(iter(re.findall(r"(?s)cat > faults\.txt <<'END'\n(.*?)^END$", block.text, re.M)), None)


class Blocks(unittest.TestCase):
    def blocks(self):
        return [block for name in documents() for block in parts(name)[0] if block.first]  # a template's are empty

    def test_each_is_run_or_says_why_not(self):
        seen, bad = set(), []
        for block in self.blocks():
            key = block.name, block.first
            if block.name.endswith(".zh.md"):  # the tour holds its blocks against the English ones
                continue
            if key in not_run():
                seen.add(key)
                if run_by(block):
                    bad.append(f"{block} stands in not_run.txt, but {run_by(block)} runs it")
            elif not run_by(block) and not shown_commands(block):
                bad.append(f"{block}: no test runs it; say why in tests/docs/not_run.txt, or mark it for docs/learn/check.py")
        bad += [f"not_run.txt: {document} has no block that begins with '{first}'" for document, first in set(not_run()) - seen]
        bad += [f"not_run.txt: {document}: '{first}' has no reason" for (document, first), reason in not_run().items() if not reason]
        self.assertEqual(bad, [])

    def test_those_who_are_said_to_run_them_do(self):
        self.assertTrue((ROOT / "tests/python/ucp/test_ucp_readme.py").exists())
        wired = "".join(p.read_text() for p in (ROOT / "tests").rglob("meson.build")) + (ROOT / "script/test").read_text() + (ROOT / "tests/python/run").read_text()
        wired += (ROOT / "tests/release/trees.py").read_text()
        for _, _, who in RUN_BY:
            kind, name = re.match(r"(stage|test|check) ([\w -]+?)(?: \(|$)", who).groups()
            self.assertTrue({"stage": f"stage_{name}()", "test": f"'{name}'", "check": f'"{name}"'}[kind] in wired, who)
        self.assertIn('("docs", "install.md")', (ROOT / "tests/release/doors.py").read_text())

    def test_commands_with_their_output_print_it(self):
        check = tour()
        ran = 0
        for block in self.blocks():
            if (block.name, block.first) in not_run() or run_by(block):
                continue
            for command, shown in shown_commands(block):
                with self.subTest(f"{block.name}: {command}"):
                    if "busybox" in command and not shutil.which("busybox"):
                        self.skipTest("busybox is not installed")
                    output = self.run_beside(SERVERS.get((block.name, command), "true"), command, ROOT)
                    shown, output = (re.sub(r"(?m)^\d+$", "#", samples.form(text)) for text in (shown, output))  # a line of its own: a counter's value
                    self.assertEqual(list(check.missing_lines(shown, check.plain(output))), [], output)
                    ran += 1
        self.assertGreaterEqual(ran, 2)

    def test_two_sides_find_each_other(self):
        blocks = {(block.name, block.first): block for block in self.blocks()}
        for key in sorted(TWO_SIDES):
            with self.subTest(key), tempfile.TemporaryDirectory(prefix="ropeway-docs-") as folder:
                self.assertIn(key, blocks)
                place = pathlib.Path(folder)
                (place / "results").mkdir()
                (place / "incoming").mkdir()
                (place / "results/a").write_bytes(os.urandom(1000))
                (place / "build").symlink_to(BUILD)
                *before, server, client = blocks[key].text.strip().replace("HOST", "127.0.0.1").splitlines()
                for line in before:
                    subprocess.run(["sh", "-c", line], cwd=place, check=True, timeout=TIMEOUT_S)
                self.run_beside(server, client, place)
                if "send" in client:
                    self.assertEqual((place / "incoming/results/a").read_bytes(), (place / "results/a").read_bytes())

    def test_fault_scripts_are_taken(self):
        scripts = [script for block in self.blocks() if (script := fault_script(block))]
        self.assertGreaterEqual(len(scripts), 3)
        for script in scripts:
            with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
                file.write(script)
                file.flush()
                got = subprocess.run([BUILD / "ropeway", "run", "--fault", file.name, "--", "true"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
                self.assertEqual((got.returncode, got.stderr), (0, ""), script)

    def test_a_mistake_is_told_as_shown(self):
        shown = next(block for block in self.blocks() if block.first.startswith(MISTAKE))
        script = next(filter(None, map(fault_script, self.blocks()))).replace("ENOMEM", "ENOMOM", 1)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "faults.txt").write_text(script)
            got = subprocess.run([BUILD / "ropeway", "run", "--fault", "faults.txt", "--", "true"], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertIn(shown.text.strip(), got.stderr)

    def run_beside(self, server, client, folder):
        """What the client prints, which has to end with 0, while the server runs. A server says nothing when it listens, so the client tries again."""
        environment = {**{k: v for k, v in os.environ.items() if not k.startswith("ROPEWAY_")}, "LANG": "C.UTF-8", "PATH": f"{BUILD}:{os.environ['PATH']}"}
        output = {"cwd": folder, "env": environment, "stdin": subprocess.DEVNULL}
        said = tempfile.TemporaryFile("w+")
        # exec: where the shell stays (it does before a comment), the signal ends it first, and the server still has its port when the next one starts.
        behind = subprocess.Popen(["sh", "-c", f"exec {server}"], stdout=subprocess.DEVNULL, stderr=said, start_new_session=True, **output)
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while True:
                if behind.poll() not in (None, 0):
                    said.seek(0)
                    self.fail(f"{server} has ended with {behind.returncode}: {said.read()}")
                got = subprocess.run(["sh", "-c", client], capture_output=True, text=True, timeout=TIMEOUT_S, check=False, **output)
                if got.returncode == 0 or time.monotonic() > deadline:
                    break
                time.sleep(0.1)
        finally:
            try:
                os.killpg(behind.pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
            behind.wait()
            said.close()
        self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
        return got.stdout + got.stderr


# ---- the site ----

def site():
    """docs/site/stage.py and docs/site/home.py: how the site's pages are made of the documents."""
    sys.path.insert(0, str(ROOT / "docs/site"))
    return importlib.import_module("stage"), importlib.import_module("home")


class Site(unittest.TestCase):
    def test_each_link_is_one_that_the_site_has(self):
        stage, _ = site()
        pages, count = stage.Stage(BUILD, pathlib.Path("/nonexistent")), 0
        for name in documents():
            if not stage.NOT_FOR_READERS.match(name):
                for _, target in links(name):
                    pages.link(name, target)  # it raises an error for a folder that has no page
                    count += 1
        self.assertGreater(count, 200)

    def test_its_first_page_takes_each_command_from_a_document(self):
        _, home = site()
        text = (ROOT / "docs/site/index.md.in").read_text(encoding="utf-8")
        self.assertEqual(set(re.findall(r"(?m)^```(.+)$", text)), {"{toctree}"}, "a block of its own, which no test runs")
        taken = home.takes(text)
        self.assertGreaterEqual(len(taken), 12)
        self.assertEqual(len(taken), text.count("{{ block"))
        for name, first in taken:
            block = next((block for block in parts(name)[0] if block.first == first), None)
            self.assertIsNotNone(block, f"{name} has no block that begins with '{first}'")
            self.assertTrue(run_by(block) or (name, first) in not_run(), block)
            self.assertEqual(home.blocks(documents()[name])[first][1], block.text)
        for code in re.findall(r"`([^`\n]+)`", text):
            self.assertIsNone(command_error(code), code)

    def test_in_a_plot_each_ratio_is_a_mark_and_right_is_better(self):
        plots = site()[1].plots
        drawn = plots.first_plot("| What | ropeway | Reference | | Ratio | Goal | |\n|---|---|---|---|---|---|---|\n"
                                 "| late | 0.50 µs | one | 2.00 | 0.25 | ≤ 0.5 | pass |\n| slow | 50 MiB/s | two | 100 | 0.50 | ≥ 1 | short, unsteady |\n").partition("</figcaption>")[2]
        rows = re.findall(r'<span class="what">(\w+) <small>(\w+)</small></span>.*class="(mark[^"]*)".*<span class="value">(\S+)</span>', drawn)
        self.assertEqual(rows, [("late", "one", "mark", "4.0×"), ("slow", "two", "mark short unsteady", "0.50×")])
        late, slow = (float(re.search(pattern, drawn)[1]) for pattern in (r'cx="([\d.]+)%" cy="50%" r=', r'x="([\d.]+)%" y="50%" overflow'))
        self.assertGreater(late, slow)
        for name in ("README.md", "docs/bench/RESULTS.md"):
            ratios = sum(plots.number(row[head.index("ratio")]) is not None for _, _, head, rows in plots.tables(documents()[name].splitlines()) for row in rows)
            figures = "".join(re.findall(r"(?s)</figcaption>.*?</figure>", plots.with_plots(documents()[name])))
            self.assertEqual(figures.count('class="mark'), ratios, name)
            self.assertGreaterEqual(ratios, 10, name)


# ---- what commands name ----

@functools.cache
def help_of(words):
    return subprocess.run([str(BUILD / "ropeway"), *words, "--help"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False).stdout


@functools.cache
def subcommands(words=()):
    """Of `ropeway`, or of one of its commands that has some."""
    text = help_of(words)
    table = re.search(r"(?m)^Commands:\n((?:  .*\n)+)", text)
    return set(re.findall(r"(?m)^  ([a-z]+)  ", table[1])) if table else set()


@functools.cache
def is_command(word):
    """Of `ropeway`: the command itself is asked, because its list leaves out `completion`."""
    got = subprocess.run([str(BUILD / "ropeway"), word, "--help"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
    return got.returncode == 0


def options_of(text):
    return set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", text))


def ropeway_error(words):
    command = ()
    while words and (words[0] in subcommands(command) or (not command and re.fullmatch(r"[a-z]+", words[0]) and is_command(words[0]))):
        command, words = (*command, words[0]), words[1:]
    if not command and words and re.fullmatch(r"[a-z]+", words[0]):
        return f"ropeway has no command '{words[0]}'"
    known = options_of(help_of(command)) | {"--help", "--version"}
    for word in words:
        if word == "--" or (command == ("run",) and not word.startswith("-") and not word[0].isdigit()):
            break
        option = re.match(r"(--[a-z][\w-]*)", word)
        if option and option[1] not in known:
            return f"ropeway {' '.join(command)} has no option {option[1]}"
    return None


def script_error(path, words):
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".sh" or "bash" in text[:20] or "python" in text[:30]:
        for word in words:
            if word in ("|", ";", "&&", "--", "#"):
                break
            option = re.match(r"(--[a-z][\w-]*)", word)
            if option and option[1] not in text and option[1] != "--help":
                return f"{path.relative_to(ROOT)} has no option {option[1]}"
    return None


def command_error(text):
    """None, or what is wrong with a command line."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        return None
    if re.match(r"ropeway( [a-z]+)?: ", text):  # what the command says, not how it is called
        return None
    while words and re.fullmatch(r"[A-Z_]+=.*|sudo|time|env", words[0]):
        words = words[1:]
    if not words:
        return None
    if re.fullmatch(r"(\w+/)*ropeway", words[0]) and len(words) > 1:
        if "..." not in words[1] and words[1] not in ("COMMAND",):
            return ropeway_error(words[1:])
    elif re.match(r"(script|tests|docs|bench|learn|examples|src|man|include|python|po)/", words[0]):
        path = words[0].rstrip(".,:;")
        if re.search(r"[*<>{}%]|\b[xN]\b|NAME|TARGET|\.\.\.", path):
            return None
        path = re.sub(r":\w+$", "", path)  # a line, or a function (names.py)
        if not (ROOT / path).exists() and not (BUILD / path).exists():
            return f"there is no {path}"
        if (ROOT / path).is_file():
            return script_error(ROOT / path, words[1:])
    return None


class Names(unittest.TestCase):
    def test_nobody_is_told_to_install_a_name_that_is_not_ours(self):
        """As long as it is not registered, whoever uploads something as `ropeway` gets those who follow such a line."""
        bare = re.compile(r"pip install\b[^`#\n]*\s(ropeway(-ucp|-ucxx)?)(?=[\s`\]\[=]|$)")
        self.assertTrue(bare.search("pip install -q ropeway") and bare.search("pip install numpy ropeway-ucp==1") and not bare.search("pip install ./ropeway-*.whl"))
        bad = [f"{name}:{n}: {line.strip()}" for name in documents() if name != "docs/publish.md"
               for n, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1) if bare.search(line)]
        self.assertEqual(bad, [])

    def test_commands_in_blocks_and_in_code_name_what_is_there(self):
        count, bad = 0, []
        for name in documents():
            if name == "CHANGELOG.md":  # it tells of what was
                continue
            blocks, prose = parts(name)
            found = [(block.line + 1 + n, line.removeprefix("$ ")) for block in blocks if not block.info.startswith(("python", "text", "yaml", "dockerfile"))
                     for n, line in enumerate(re.sub(r"\\\n", "  ", block.text).splitlines())]
            found += [(n, code) for n, line in enumerate(prose, 1) for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", line)]
            for number, text in found:
                error = command_error(text)
                count += 1
                if error:
                    bad.append(f"{name}:{number}: {text}: {error}")
        self.assertEqual(bad, [])
        self.assertGreater(count, 500)

    def test_what_is_not_there_is_found(self):
        for text in ("ropeway fly", "ropeway run --no-such -- x", "script/test --no-such", "tests/no_such.py", "A=1 build/ropeway plugin check --no-such"):
            self.assertIsNotNone(command_error(text), text)
        for text in ("ropeway run --explain -- x --no-such", "ropeway completion bash", "script/test --stage x", "build/ropeway doctor"):
            self.assertIsNone(command_error(text), text)


def enter_namespace():
    """A network namespace where the documents' ports are free and, as in their examples, an interface is called eth0. Returns only inside of it."""
    if os.environ.get(INSIDE):
        for words in ("set lo up", "add eth0 type veth peer name peer0", "set peer0 addrgenmode none", "set eth0 up", "set peer0 up"):
            subprocess.run(["ip", "link", *words.split()], check=True)
        subprocess.run(["ip", "address", "add", "192.0.2.1/24", "dev", "eth0"], check=True)
        return
    words = ["unshare", "--net"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    if subprocess.run([*words, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        print("SKIPPED: no network namespace can be made here (unshare --net)")
        sys.exit(77)
    os.execvpe("unshare", [*words, sys.executable, "-B", *sys.argv], {**os.environ, INSIDE: "1"})


if __name__ == "__main__":
    enter_namespace()
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=1)
