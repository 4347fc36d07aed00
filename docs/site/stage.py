#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""stage.py BUILD OUT: lays out what Sphinx makes the site of: the documents where they stand in the tree, and what is generated.

  - each *.md of the tree for readers; a link to a source file becomes one to a page that shows it
  - reference/c.rst from include/ropeway.h, reference/python.rst from the stubs and docstrings of python/ropeway
  - man/*.md from the man pages, by mandoc
  - index.md from index.md.in (home.py)
  - docs/bench/RESULTS.md with a plot above each table
  - docs/check-gallery.md: the programs of examples/check, and what the checker says (gallery.py)
  - docs/learn/ladders/*.html: the ladder pages of a run of the tour, and a page that lists them
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import c_reference  # noqa: E402
import gallery  # noqa: E402
import home  # noqa: E402
import plots  # noqa: E402
import python_reference  # noqa: E402

NOT_FOR_READERS = re.compile(r"\.github/")
LANGUAGES = {".c": "c", ".h": "c", ".py": "python", ".pyi": "python", ".sh": "bash", ".yaml": "yaml"}
LADDERS = [  # chapter of the tour, capture, what is to be seen
    ("03-wire", "send", "A SEND of four packets, answered by one ACK", "四个包的 SEND，由一个 ACK 确认"),
    ("03-wire", "write", "RDMA WRITEs in both directions", "两个方向的 RDMA WRITE"),
    ("04-connect", "server", "Connecting and disconnecting with rdma_cm", "用 rdma_cm 建立和断开连接"),
    ("06-flush", "client", "A server that never answers, and the flush error", "不应答的服务器与 flush 错误"),
    ("07-loss", "nak-server", "Lost packets, NAKs, and what is sent again", "丢包、NAK 与重传"),
]


def tracked(pattern):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", pattern], cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(name for name in listed.stdout.split() if (ROOT / name).exists())


class Stage:
    def __init__(self, build, out):
        self.build, self.out = build, out
        self.shown = {}  # source file: its page

    def write(self, name, text):
        path = self.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def link(self, name, target):
        """A link of the document `name`, as it is on the site."""
        path, hash_, anchor = target.partition("#")
        if "://" in target or not path or target.startswith("mailto:"):
            return target
        there = (ROOT / name).parent.joinpath(path).resolve()
        if there.is_dir():  # its only file, or what it begins with
            inside = sorted(p for p in there.iterdir() if p.is_file())
            readme = [p for p in inside if p.name == "README.md"]
            if not (readme or len(inside) == 1):
                raise ValueError(f"{name}: the link to the folder {path}: the site shows files; link to one of {', '.join(p.name for p in inside)}")
            there = (readme or inside)[0]
            path = os.path.relpath(there, (ROOT / name).parent)
            if readme:
                return path + hash_ * bool(anchor) + anchor
        if not there.is_file() or there.suffix in (".md", ".svg", ".png"):
            return target
        source = str(there.relative_to(ROOT))
        self.shown[source] = "source/" + source.replace("/", "-") + ".md"
        up = os.path.relpath(self.out / self.shown[source], (self.out / name).parent)
        return up + hash_ * bool(anchor) + anchor

    def document(self, name):
        text = (ROOT / name).read_text(encoding="utf-8")
        if name == "docs/bench/RESULTS.md":
            text = plots.with_plots(text)
        text = re.sub(r"(\]\()([^)\s]+)(\))", lambda m: m[1] + self.link(name, m[2]) + m[3], text)
        self.pictures(text, (ROOT / name).parent)
        if re.fullmatch(r"docs/learn/README(\.zh)?\.md", name):
            text += self.contents_of_tour(".zh" if ".zh" in name else "")
        if name == "docs/decisions/README.md":
            text += "\n```{toctree}\n:hidden:\n:glob:\n\n[a-z]*\n```\n"
        self.write(name, text)

    def pictures(self, text, folder):
        """Copies those that a document in `folder` shows."""
        for image in re.findall(r'(?:src|srcset)="([^":]+)"|!\[[^\]]*\]\(([^):]+)\)', text):
            there = folder / (image[0] or image[1])
            if there.is_file():
                target = self.out / there.resolve().relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(there, target)

    @staticmethod
    def contents_of_tour(language):
        chapters = [pathlib.Path(n).stem for n in tracked("docs/learn/[0-9]*.md") if n.endswith(".zh.md") == bool(language)]
        return "\n```{toctree}\n:hidden:\n\n" + "\n".join([*chapters, "ladders/index" + language, "glossary" + language]) + "\n```\n"

    def sources(self):
        for source, page in self.shown.items():
            text = (ROOT / source).read_text(encoding="utf-8")
            fence = "`" * (max(map(len, re.findall("`{3,}", text)), default=2) + 1)
            self.write(page, f"---\norphan: true\n---\n\n# {source}\n\n{fence}{LANGUAGES.get(pathlib.Path(source).suffix, 'none')}\n{text}\n{fence}\n")

    def man_pages(self):
        names = [n for n in tracked("man/*.[137]") if not (ROOT / n).is_symlink()]
        rows = []
        for name in names:
            got = subprocess.run(["mandoc", "-T", "html", "-O", "fragment", name], cwd=ROOT, capture_output=True, text=True, check=True).stdout
            about = re.search(r"(?m)^\.Nd (.*)", (ROOT / name).read_text(encoding="utf-8"))
            title = re.sub(r"(.*)\.(\d)$", r"\1(\2)", pathlib.Path(name).name)
            got = re.sub(r'<table class="(head|foot)">.*?</table>', "", got, flags=re.S)
            got = re.sub(r"<(/?)h([12])\b", lambda m: f"<{m[1]}h{int(m[2]) + 1}", got)  # the page has its h1
            got = re.sub(r"(<h\d[^>]*>)<a class=\"permalink\"[^>]*>(.*?)</a>", r"\1\2", got, flags=re.S)
            got = re.sub(r"\n\s*\n", "\n", got)
            page = pathlib.Path(name).name.replace(".", "-")
            self.write(f"man/{page}.rst", f":orphan:\n\n{title}\n{'=' * len(title)}\n\n.. raw:: html\n\n   <div class=\"man-page\">\n" + "".join(f"   {line}\n" for line in got.splitlines()) + "   </div>\n")
            rows.append(f"- [{title}]({page}.rst): {about[1] if about else ''}")
        self.write("man/index.md", "# Manual pages\n\n" + "\n".join(rows) + "\n")

    def ladders(self):
        """Runs the chapters that capture, and draws what they have captured."""
        made = []
        with tempfile.TemporaryDirectory(prefix="ropeway-site-") as place:
            for chapter in sorted({row[0] for row in LADDERS}):
                subprocess.run([sys.executable, "-B", ROOT / "docs/learn/check.py", "--build", self.build, "--only", f"{chapter}.md", "--keep"],
                               env={**os.environ, "TMPDIR": place}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False, timeout=300)
            for chapter, capture, *about in LADDERS:
                found = sorted(pathlib.Path(place).glob(f"*/{chapter}.*/{capture}.pcapng"))
                if not found:
                    print(f"SKIPPED: no ladder page of {chapter}: its commands left no {capture}.pcapng (docs/learn/check.py --only {chapter} -v says why)")
                    continue
                page = self.out / "html" / "docs/learn/ladders" / f"{chapter}-{capture}.html"
                page.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run([self.build / "ropeway", "explain", found[-1], "-o", page], check=True, stderr=subprocess.DEVNULL)
                made.append((chapter, page.name, *about))
        for language, title, lead, nth in (("", "Ladder pages", "What `ropeway explain CAPTURE -o PAGE` draws, of captures that the tour made when this site was built. Select a packet or a state: it explains itself. "
                                            "Each page is one file, in English and Chinese.", 2),
                                           (".zh", "报文阶梯图", "`ropeway explain CAPTURE -o PAGE` 根据抓包绘制的页面；这些抓包是构建本站时由教程生成的。点击任意报文或状态即可查看说明。每个页面都是单个文件，含中英文。", 3)):
            rows = "".join(f'- <a href="{row[1]}">{row[nth]}</a> ([{row[0]}](../{row[0]}{language}.md))\n' for row in made)
            self.write(f"docs/learn/ladders/index{language}.md", f"# {title}\n\n{lead}\n\n{rows}")

    def all(self):
        for name in tracked("*.md"):
            if not NOT_FOR_READERS.match(name):
                self.document(name)
        shutil.copy(HERE / "conf.py", self.out / "conf.py")
        shutil.copytree(HERE / "static", self.out / "site/static", dirs_exist_ok=True)
        self.write("reference/c.rst", c_reference.reference((ROOT / "include/ropeway.h").read_text(encoding="utf-8")))
        self.write("reference/python.rst", python_reference.reference(ROOT / "python"))
        self.man_pages()
        self.ladders()
        checked = gallery.page(ROOT, self.build)
        if checked:
            self.write(gallery.PAGE + ".md", checked)
        first = home.expand((HERE / "index.md.in").read_text(encoding="utf-8"), ROOT, lambda page: (self.out / "html" / page).exists() or (self.out / page).exists())
        self.pictures(first, ROOT)
        self.write("index.md", first)
        self.sources()


def main():
    build, out = map(pathlib.Path, sys.argv[1:3])
    if out.exists():
        shutil.rmtree(out)
    Stage(build.resolve(), out.resolve()).all()


if __name__ == "__main__":
    main()
